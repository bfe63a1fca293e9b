//! Reads the small parts of a database: its buckets, the content of small buckets, and the path to the end of a large one.
//!
//! The scan has proven the tree before; a defect here is a reason not to graft, never a verdict.

use std::hash::{DefaultHasher, Hasher as _};

use super::write::Child;
use super::{Entries, Unfit};
use crate::scan::page::{Header, Kind, Meta};
use crate::scan::{ReadAt, page};

/// Maximum depth of a tree (as in the scan).
const MAX_DEPTH: usize = 64;

/// Maximum size of a page with its overflow: four values of the largest size that etcd is run with. Held for a moment.
const MAX_PAGE: usize = 32 << 20;

/// Maximum size of a bucket that is held completely: some thousand members, where usual clusters have at most seven.
const MAX_BUCKET: usize = 4 << 20;

/// A database with its meta page.
#[derive(Debug)]
pub(crate) struct Database<R> {
    file: R,
    meta: Meta,
}

/// The end of a bucket.
#[derive(Debug)]
pub(crate) struct Last {
    /// The branches from its root to its last leaf.
    pub(crate) branches: Vec<Vec<Child>>,
    pub(crate) leaf: LastLeaf,
    /// Content of a bucket that lies in the root bucket.
    pub(crate) inline: Entries,
}

impl Last {
    /// Returns the entries of such a bucket, followed by these entries.
    pub(super) fn with(&self, added: &Entries) -> Entries {
        self.inline.iter().chain(added).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// The last leaf of a bucket.
#[derive(Debug)]
pub(crate) struct LastLeaf {
    /// Page ID; 0: the bucket lies in the root bucket.
    pub(crate) id: u64,
    pub(crate) first: Option<Vec<u8>>,
    pub(crate) last: Option<Vec<u8>>,
}

/// Returns the value of the bucket with this name.
pub(crate) fn bucket<'a>(buckets: &'a Entries, name: &[u8]) -> Result<&'a [u8], Unfit> {
    buckets.get(name).map(Vec::as_slice).ok_or_else(|| Unfit::bucket(name, "it is missing"))
}

/// Returns the sequence number from a bucket's value.
pub(crate) fn sequence(value: &[u8]) -> u64 {
    value.get(8..).and_then(|value| value.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl<R: ReadAt> Database<R> {
    pub(crate) fn open(file: R, bytes: u64) -> Result<Self, Unfit> {
        let meta = Meta::read(&file, bytes)?;
        if meta.bytes() > bytes {
            return Err(Unfit::new(format!("{bytes} bytes are not all, the meta page speaks of {}", meta.bytes())));
        }
        Ok(Self { file, meta })
    }

    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Returns the buckets with their values in the root bucket.
    pub(crate) fn buckets(&self) -> Result<Entries, Unfit> {
        self.all(self.meta.root, page::BUCKET)
    }

    /// Returns the entries of a bucket, given its value in the root bucket.
    pub(crate) fn entries(&self, value: &[u8]) -> Result<Entries, Unfit> {
        match root(value)? {
            (0, inline) => inline_entries(inline),
            (root, _) => self.all(root, 0),
        }
    }

    /// Returns the entries of a leaf.
    pub(super) fn leaf(&self, id: u64) -> Result<Entries, Unfit> {
        let (header, page) = self.page(id)?;
        let mut found = Entries::new();
        if header.kind != Kind::Leaf {
            return Err(Unfit::page(id, "is no leaf"));
        }
        let mut remaining = MAX_BUCKET;
        take(id, &page, header.count, 0, &mut found, &mut remaining)?;
        Ok(found)
    }

    /// Returns the path to a bucket's end.
    pub(crate) fn last(&self, value: &[u8]) -> Result<Last, Unfit> {
        let (mut id, inline) = root(value)?;
        if id == 0 {
            let inline = inline_entries(inline)?;
            let leaf = LastLeaf { id, first: inline.keys().next().cloned(), last: inline.keys().next_back().cloned() };
            return Ok(Last { branches: Vec::new(), leaf, inline });
        }
        let mut branches = Vec::new();
        while branches.len() < MAX_DEPTH {
            let (header, page) = self.page(id)?;
            if header.kind == Kind::Leaf {
                let (mut first, mut last) = (None, None);
                for element in page::leaf(&page, header.count) {
                    let key = element.map_err(|what| Unfit::page(id, what))?.key;
                    first = first.or(Some(key));
                    last = Some(key);
                }
                let [first, last] = [first, last].map(|key| key.map(<[u8]>::to_vec));
                return Ok(Last { branches, leaf: LastLeaf { id, first, last }, inline: Entries::new() });
            }
            let children = children(id, &page, header.count)?;
            id = children.last().ok_or_else(|| Unfit::page(id, "is a branch without children"))?.1;
            branches.push(children);
        }
        Err(Unfit::page(id, "is too deep in the tree"))
    }

    /// Returns the pages of all leaves of a bucket in order, each with a fingerprint of its key in the branch. Does not read
    /// the leaves: all have the same depth.
    pub(super) fn leaves(&self, value: &[u8]) -> Result<Vec<(u64, u64)>, Unfit> {
        let last = self.last(value)?;
        let depth = last.branches.len();
        let mut level = vec![(root(value)?.0, fingerprint(&last.leaf.first.unwrap_or_default()))];
        for step in 0..depth {
            let mut below = Vec::new();
            for (id, first) in level {
                let (header, page) = self.page(id)?;
                if header.kind != Kind::Branch {
                    return Err(Unfit::page(id, "is a leaf above others"));
                }
                let children = children(id, &page, header.count)?;
                let begins = children.first().is_some_and(|(key, _)| fingerprint(key) == first);
                if step > 0 && !begins {
                    return Err(Unfit::page(id, "does not begin with the key that leads to it"));
                }
                below.extend(children.into_iter().map(|(key, child)| (child, fingerprint(&key))));
                self.bounded(id, below.len())?;
            }
            level = below;
        }
        Ok(level)
    }

    /// Passes the entries of a bucket to `visit`, in order, given its value in the root bucket. Holds the branches of one path.
    pub(crate) fn each<E: From<Unfit>>(
        &self,
        value: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each_from(value, &[], visit)
    }

    /// Passes the entries from a key on.
    pub(crate) fn each_from<E: From<Unfit>>(
        &self,
        value: &[u8],
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (root, inline) = root(value)?;
        if root == 0 {
            let entries = inline_entries(inline)?;
            return entries
                .iter()
                .filter(|(key, _)| key.as_slice() >= from)
                .try_for_each(|(key, value)| visit(key, value));
        }
        let (mut next, mut pages) = (vec![root], 0);
        while let Some(id) = next.pop() {
            let (header, page) = self.page(id)?;
            pages += header.span;
            if pages > self.meta.high_water {
                return Err(Unfit::page(id, "is used twice").into());
            }
            if header.kind == Kind::Leaf {
                for element in page::leaf(&page, header.count) {
                    let element = element.map_err(|what| Unfit::page(id, what))?;
                    if element.key >= from {
                        visit(element.key, element.value)?;
                    }
                }
            } else {
                let children = children(id, &page, header.count)?;
                let earlier = children.iter().skip(1).take_while(|(key, _)| key.as_slice() <= from).count();
                next.extend(children.into_iter().skip(earlier).rev().map(|(_, child)| child));
                self.bounded(id, next.len())?;
            }
        }
        Ok(())
    }

    /// Returns all entries below a page; `flags` are those of each entry.
    fn all(&self, root: u64, flags: u32) -> Result<Entries, Unfit> {
        let (mut found, mut remaining, mut pages) = (Entries::new(), MAX_BUCKET, 0);
        let mut next = vec![root];
        while let Some(id) = next.pop() {
            let (header, page) = self.page(id)?;
            pages += header.span;
            if pages > self.meta.high_water {
                return Err(Unfit::page(id, "is used twice"));
            }
            if header.kind == Kind::Leaf {
                take(id, &page, header.count, flags, &mut found, &mut remaining)?;
            } else {
                next.extend(children(id, &page, header.count)?.into_iter().map(|(_, child)| child));
                self.bounded(id, next.len())?;
            }
        }
        Ok(found)
    }

    /// Checks the number of pages: a tree has no more than its file. A scan without enough memory has not proven this tree.
    fn bounded(&self, id: u64, pages: usize) -> Result<(), Unfit> {
        if pages as u64 > self.meta.high_water { Err(Unfit::page(id, "leads to pages twice")) } else { Ok(()) }
    }

    /// Reads a branch or a leaf with its overflow.
    fn page(&self, id: u64) -> Result<(Header, Vec<u8>), Unfit> {
        // The first two pages are meta pages.
        if id < 2 {
            return Err(Unfit::page(id, "is pointed to and out of range"));
        }
        let mut page = Vec::new();
        let header = self.meta.page(&self.file, id, &[Kind::Branch, Kind::Leaf], MAX_PAGE, &mut page)?;
        let header = header.ok_or_else(|| Unfit::page(id, "goes on for too long"))?;
        if !page::fills(&page, &header) {
            return Err(Unfit::page(id, "does not fill its pages"));
        }
        Ok((header, page))
    }
}

/// Tells keys apart that were not chosen to collide.
pub(super) fn fingerprint(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// Returns the root page of a bucket, or 0 and the bucket's inline page.
fn root(value: &[u8]) -> Result<(u64, &[u8]), Unfit> {
    page::bucket(value).ok_or_else(|| Unfit::new("the root bucket has something that is no bucket"))
}

fn inline_entries(page: &[u8]) -> Result<Entries, Unfit> {
    let header = Header::parse(page).filter(|header| header.kind == Kind::Leaf);
    let header = header.ok_or_else(|| Unfit::new("the page within the root bucket is no leaf"))?;
    let (mut found, mut remaining) = (Entries::new(), MAX_BUCKET);
    take(0, page, header.count, 0, &mut found, &mut remaining)?;
    Ok(found)
}

/// Adds a leaf's entries to `found`, up to a limit.
fn take(
    id: u64,
    page: &[u8],
    count: usize,
    flags: u32,
    found: &mut Entries,
    remaining: &mut usize,
) -> Result<(), Unfit> {
    for element in page::leaf(page, count) {
        let element = element.map_err(|what| Unfit::page(id, what))?;
        if element.flags != flags {
            return Err(Unfit::page(id, "has an entry of another kind"));
        }
        let more = (element.key.len() + element.value.len()).max(1);
        *remaining = remaining
            .checked_sub(more)
            .ok_or_else(|| Unfit::page(id, "is of a bucket that is too large for a graft"))?;
        found.insert(element.key.to_vec(), element.value.to_vec());
    }
    Ok(())
}

fn children(id: u64, page: &[u8], count: usize) -> Result<Vec<Child>, Unfit> {
    let child = |child: Result<(&[u8], u64), page::Defect>| {
        child.map(|(key, child)| (key.to_vec(), child)).map_err(|what| Unfit::page(id, what))
    };
    page::branch(page, count).map(child).collect()
}
