//! bbolt's page formats. No I/O and no trust: every fact is checked against the given bytes.
//!
//! All numbers are little endian. A page is a header (id u64, flags u16, count u16, overflow u32), a table of elements of 16
//! bytes, and their data, contiguous in the table's order: bbolt writes nothing else, so a gap or a step back is a defect. A
//! page with an overflow of n continues over the next n pages.

/// Bytes of a page's header.
pub(crate) const HEADER: usize = 16;
pub(crate) const ELEMENT: usize = 16;

/// Kinds of pages, by their flags.
pub(crate) const BRANCH: u16 = 0x01;
pub(crate) const LEAF: u16 = 0x02;
pub(crate) const META: u16 = 0x04;
const FREELIST: u16 = 0x10;

/// The flag of a leaf's element that holds a bucket.
pub(crate) const BUCKET: u32 = 0x01;

/// bbolt's meta page: magic number and format version.
pub(crate) const MAGIC: u32 = 0xED0C_DAED;
pub(crate) const VERSION: u32 = 2;
/// Header, and eight numbers of which the last is the checksum of the others.
pub(crate) const META_BYTES: usize = HEADER + 64;
const CHECKED: usize = 56;

/// bbolt's value for a list of free pages that is not stored; etcd never stores the list.
pub(crate) const NOT_STORED: u64 = u64::MAX;

/// Smallest page size: bbolt tries powers of two from 1 KiB to 16 MiB; usually a page has the operating system's page size.
pub(crate) const SMALLEST: usize = 1 << 10;
/// The largest page size.
pub(crate) const LARGEST: usize = 16 << 20;

/// A defect of a page, as text that follows the page's number.
pub(crate) type Defect = &'static str;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Branch,
    Leaf,
    Meta,
    Freelist,
}

/// A page's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    /// Number of pages: one and the overflow.
    pub(crate) span: u64,
}

impl Header {
    pub(crate) fn parse(page: &[u8]) -> Option<Self> {
        let kind = match u16_at(page, 8)? {
            BRANCH => Kind::Branch,
            LEAF => Kind::Leaf,
            META => Kind::Meta,
            FREELIST => Kind::Freelist,
            _ => return None,
        };
        let span = u64::from(u32_at(page, 12)?) + 1;
        Some(Self { id: u64_at(page, 0)?, kind, count: usize::from(u16_at(page, 10)?), span })
    }

    /// Whether the elements of a branch or a leaf can exist: a cheap check of a page that may be none.
    pub(crate) fn plausible(&self, page: &[u8], page_size: usize) -> bool {
        let position = match self.kind {
            Kind::Branch => HEADER,
            Kind::Leaf => HEADER + 4,
            Kind::Meta | Kind::Freelist => return true,
        };
        let table = self.count * ELEMENT;
        let room = usize::try_from(self.span).ok().and_then(|span| span.checked_mul(page_size));
        room.is_some_and(|room| HEADER + table <= room)
            && match self.count {
                0 => self.kind == Kind::Leaf,
                _ => u32_at(page, position).is_some_and(|at| usize::try_from(at) == Ok(table)),
            }
    }
}

/// A valid meta page, which leads to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) page_size: usize,
    /// Root page of the root bucket.
    pub(crate) root: u64,
    /// The root bucket's sequence number; etcd does not use it.
    pub(crate) sequence: u64,
    /// Page of the list of free pages, if the list is stored.
    pub(crate) freelist: Option<u64>,
    /// Number of pages: pages in use are below this.
    pub(crate) high_water: u64,
    /// The transaction that wrote the meta page.
    pub(crate) txid: u64,
}

impl Meta {
    /// Parses the meta page 0 or 1.
    fn parse(page: &[u8], id: u64) -> Option<Self> {
        let header = Header::parse(page)?;
        let body = page.get(HEADER..META_BYTES)?;
        if header.kind != Kind::Meta || header.id != id || u32_at(body, 0)? != MAGIC || u32_at(body, 4)? != VERSION {
            return None;
        }
        if u64_at(body, CHECKED)? != fnv1a(body.get(..CHECKED)?) {
            return None;
        }
        let page_size = usize::try_from(u32_at(body, 8)?).ok()?;
        if !page_size.is_power_of_two() || !(SMALLEST..=LARGEST).contains(&page_size) {
            return None;
        }
        Some(Self {
            page_size,
            root: u64_at(body, 16)?,
            sequence: u64_at(body, 24)?,
            freelist: Some(u64_at(body, 32)?).filter(|id| *id != NOT_STORED),
            high_water: u64_at(body, 40)?,
            txid: u64_at(body, 48)?,
        })
    }

    /// Returns the newer valid meta page of the two at a file's start. `None`: no meta page is valid, or the given bytes are
    /// too few.
    ///
    /// The second page's offset depends on the page size, which only a valid meta page holds: if the first is invalid, every
    /// size is tried. If fewer than two pages of that size are given, the caller must read more.
    pub(crate) fn choose(beginning: &[u8]) -> Option<Self> {
        let second = |size: usize| {
            let page = beginning.get(size..)?;
            Self::parse(page, 1).filter(|meta| meta.page_size == size)
        };
        let Some(first) = Self::parse(beginning, 0) else {
            let mut sizes = (0..).map(|shift| SMALLEST << shift).take_while(|size| *size <= LARGEST);
            return sizes.find_map(second);
        };
        if beginning.len() < first.page_size + META_BYTES {
            return None;
        }
        Some(second(first.page_size).filter(|second| second.txid > first.txid).unwrap_or(first))
    }

    /// Returns the number of bytes up to the high-water mark.
    pub(crate) fn bytes(&self) -> u64 {
        self.high_water.saturating_mul(self.page_size as u64)
    }
}

/// Returns the 64-bit FNV-1a hash.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// An element of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    pub(crate) flags: u32,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Range of key and value in the page, contiguous.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Returns the elements of a leaf in order, each checked; ends after the first defect.
pub(crate) fn leaf(page: &[u8], count: usize) -> impl Iterator<Item = Result<Element<'_>, Defect>> {
    let mut table = Table::new(page, count);
    std::iter::from_fn(move || {
        table.next(|element| Some((u32_at(element, 4)?, u32_at(element, 8)?, u32_at(element, 12)?))).map(|next| {
            let (element, start, key, value) = next?;
            let flags = u32_at(element, 0).ok_or("ends within its table")?;
            Ok(Element { flags, key, value, start, end: start + key.len() + value.len() })
        })
    })
}

/// Returns the keys and children of a branch in order, each checked; ends after the first defect.
pub(crate) fn branch(page: &[u8], count: usize) -> impl Iterator<Item = Result<(&[u8], u64), Defect>> {
    let mut table = Table::new(page, count);
    std::iter::from_fn(move || {
        table.next(|element| Some((u32_at(element, 0)?, u32_at(element, 4)?, 0))).map(|next| {
            let (element, _, key, _) = next?;
            Ok((key, u64_at(element, 8).ok_or("ends within its table")?))
        })
    })
}

/// Iterates over a page's elements.
struct Table<'a> {
    page: &'a [u8],
    /// The next element, and the number of remaining elements.
    at: usize,
    remaining: usize,
    /// The required position of its key.
    key_at: usize,
    before: Option<&'a [u8]>,
}

/// An element, the start of its key, its key and its value.
type Entry<'a> = (&'a [u8], usize, &'a [u8], &'a [u8]);

impl<'a> Table<'a> {
    fn new(page: &'a [u8], count: usize) -> Self {
        Self { page, at: HEADER, remaining: count, key_at: HEADER + count * ELEMENT, before: None }
    }

    /// Returns the next entry; `sizes` reads position, key size and value size from an element.
    fn next(&mut self, sizes: impl Fn(&[u8]) -> Option<(u32, u32, u32)>) -> Option<Result<Entry<'a>, Defect>> {
        self.remaining = self.remaining.checked_sub(1)?;
        let entry = self.entry(sizes);
        if entry.is_err() {
            self.remaining = 0;
        }
        Some(entry)
    }

    fn entry(&mut self, sizes: impl Fn(&[u8]) -> Option<(u32, u32, u32)>) -> Result<Entry<'a>, Defect> {
        let start = self.key_at;
        let element = self.page.get(self.at..self.at + ELEMENT).ok_or("ends within its table")?;
        let (position, key, value) = sizes(element).ok_or("ends within its table")?;
        if self.at.checked_add(position as usize) != Some(start) {
            return Err("has an element that is not where it should be");
        }
        let rest = self.page.get(start..).unwrap_or_default();
        let (key, rest) = rest.split_at_checked(key as usize).ok_or("has a key beyond its end")?;
        let value = rest.get(..value as usize).ok_or("has a value beyond its end")?;
        if key.is_empty() {
            return Err("has an element without a key");
        }
        if self.before.is_some_and(|before| before >= key) {
            return Err("has keys out of order");
        }
        self.before = Some(key);
        self.at += ELEMENT;
        self.key_at = start + key.len() + value.len();
        Ok((element, start, key, value))
    }
}

/// Whether the elements of a branch or a leaf fill all of its pages, as bbolt allocates them (older versions: one page more for
/// an exact fit). Otherwise an overflow could include free pages unnoticed.
pub(crate) fn fills(page: &[u8], header: &Header) -> bool {
    if header.span == 1 {
        return true;
    }
    let end = match header.kind {
        Kind::Leaf => leaf_end(page, header.count).ok(),
        _ => branch_end(page, header.count),
    };
    let last_page = usize::try_from(header.span).ok().and_then(|span| page.len().checked_div(span));
    last_page.zip(end).is_some_and(|(last_page, end)| end >= page.len() - last_page)
}

/// Returns the end of a leaf's elements, after a check of all of them.
pub(crate) fn leaf_end(page: &[u8], count: usize) -> Result<usize, Defect> {
    leaf(page, count).try_fold(HEADER, |_, element| Ok(element?.end))
}

fn branch_end(page: &[u8], count: usize) -> Option<usize> {
    branch(page, count).try_fold(HEADER + count * ELEMENT, |end, element| Some(end + element.ok()?.0.len()))
}

/// Returns a bucket's value in the root bucket: a root page, or 0 and the inline page after it.
pub(crate) fn bucket(value: &[u8]) -> Option<(u64, &[u8])> {
    Some((u64_at(value, 0)?, value.get(HEADER..)?))
}

/// Returns the IDs in a page of the list of free pages.
pub(crate) fn freelist(page: &[u8], count: usize) -> Result<impl Iterator<Item = u64>, Defect> {
    // A count that does not fit the header precedes the IDs.
    let (at, count) = match count {
        0xffff => (HEADER + 8, u64_at(page, HEADER).and_then(|count| usize::try_from(count).ok())),
        count => (HEADER, Some(count)),
    };
    let bytes = count.and_then(|count| count.checked_mul(8)).and_then(|bytes| page.get(at..)?.get(..bytes));
    let bytes = bytes.ok_or("ends within its list")?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|id| u64::from_le_bytes(*id)))
}
