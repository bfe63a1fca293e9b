//! Scans a stream: splits it into pages, and summarizes each page that may belong to the tree.
//!
//! The scan copies bytes only if a page, or a run of overflow pages, is not contiguous in one piece.

use super::budget::{Meter, OverBudget};
use super::page::{Header, Kind, LARGEST, META_BYTES, Meta};
use super::proof::{Proven, ScanError};
use super::prove::{Before, prove};
use super::records::{Fingerprints, Records};
use super::summary::{Seen, Summaries};

/// Options of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The compact revision that the member reported before the stream (-1: never compacted). The scan computes HashKV only if
    /// this is still the file's. `None`: unknown; HashKV is then computed in any case, but records above the compact revision
    /// take twice the memory.
    pub compact_revision: Option<i64>,
    /// Memory budget in bytes, without the parts that do not depend on the database.
    pub budget_bytes: usize,
}

/// Maximum number of overlapping page runs. Old headers of freed pages do overlap, a few at a time.
const MAX_OPEN: usize = 64;

/// Buffer that is kept between page runs: twice etcd's usual largest value.
const KEPT_ROOM: usize = 3 << 20;

/// Average number of times that a byte may be read as part of overlapping runs. A crafted value can look like hundreds of
/// nested runs, and each is read completely.
const MAX_READS: u64 = 16;

/// One pass over the bytes of a database, without etcd's trailer.
#[derive(Debug)]
pub struct Scan {
    options: Options,
    bytes: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The meta pages are not complete yet.
    Beginning(Vec<u8>),
    Pages(Box<Pages>),
    Failed(ScanError),
}

impl Scan {
    /// Returns a new scan.
    pub fn new(options: Options) -> Self {
        Self { options, bytes: 0, state: State::Beginning(Vec::new()) }
    }

    /// Takes the next bytes; the pieces' sizes do not matter. `finish` reports defects.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        let result = match &mut self.state {
            State::Failed(_) => return,
            State::Pages(pages) => pages.push(bytes),
            State::Beginning(held) => {
                held.extend_from_slice(bytes);
                let Some(meta) = Meta::choose(held) else {
                    // bbolt would not search further either.
                    if held.len() > LARGEST + META_BYTES {
                        self.state = State::Failed(ScanError::NoMeta { bytes: self.bytes });
                    }
                    return;
                };
                let held = std::mem::take(held);
                let mut pages = Box::new(Pages::new(meta, self.options));
                let result = pages.push(&held);
                self.state = State::Pages(pages);
                result
            }
        };
        if result == Err(OverBudget) {
            self.state = State::Failed(ScanError::OverBudget { budget: self.options.budget_bytes });
        }
    }

    /// Returns the error of a failed scan, which needs no further bytes.
    pub fn failed(&self) -> Option<&ScanError> {
        match &self.state {
            State::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the verdict after the last byte.
    pub fn finish(self) -> Result<Proven, ScanError> {
        match self.state {
            State::Failed(error) => Err(error),
            State::Beginning(_) => Err(ScanError::NoMeta { bytes: self.bytes }),
            State::Pages(pages) => {
                let Pages { meta, mut meter, summaries, records, held, .. } = *pages;
                meter.give(held.len());
                drop(held);
                let before = Before { meta, bytes: self.bytes, compact: self.options.compact_revision };
                prove(&mut Seen { summaries: &summaries, budget: meter.limit() }, before, records, &mut meter)
            }
        }
    }
}

/// The pages of the stream.
#[derive(Debug)]
struct Pages {
    meta: Meta,
    meter: Meter,
    summaries: Summaries,
    records: Records,
    /// Bytes from the page `base` on that are still needed.
    held: Vec<u8>,
    base: u64,
    /// The next page whose header to check.
    next: u64,
    /// Page runs whose end has not arrived.
    open: Vec<Header>,
    /// Ends of the runs that may include the current page: unlike `open` independent of the pieces' sizes.
    ends: Vec<u64>,
    /// Bytes of page runs that were read or will be read.
    read: u64,
}

impl Pages {
    fn new(meta: Meta, options: Options) -> Self {
        Self {
            meta,
            meter: Meter::new(options.budget_bytes),
            summaries: Summaries::default(),
            records: Records::new(options.compact_revision, Fingerprints::default()),
            held: Vec::new(),
            base: 0,
            // The meta pages are parsed already.
            next: 2,
            open: Vec::new(),
            ends: Vec::new(),
            read: 0,
        }
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<(), OverBudget> {
        while !bytes.is_empty() {
            if self.held.is_empty() {
                let rest = self.read_pages(bytes)?;
                return self.hold(rest);
            }
            // Only the bytes that complete the open runs, so that the rest need not be copied.
            let end = self.open.iter().map(|open| open.id + open.span).fold(self.next.max(self.base) + 1, u64::max);
            let wanted = usize::try_from(end - self.base).ok().and_then(|pages| pages.checked_mul(self.meta.page_size));
            let missing = wanted.ok_or(OverBudget)?.saturating_sub(self.held.len()).min(bytes.len());
            let (taken, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
            bytes = rest;
            self.held.reserve_exact(wanted.unwrap_or_default().saturating_sub(self.held.len()));
            self.hold(taken)?;
            if Some(self.held.len()) == wanted {
                let mut held = std::mem::take(&mut self.held);
                let needed = self.read_pages(&held)?.len();
                self.meter.give(held.len() - needed);
                held.drain(..held.len() - needed);
                // A long run may be the only one: its buffer is released.
                if held.capacity() > KEPT_ROOM {
                    held.shrink_to(KEPT_ROOM);
                }
                self.held = held;
            }
        }
        Ok(())
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), OverBudget> {
        self.meter.take(bytes.len())?;
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    /// Reads the complete pages in the bytes, which start with the page `base`; returns the bytes that are needed again.
    fn read_pages<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], OverBudget> {
        let size = self.meta.page_size;
        let end = self.base.saturating_add((bytes.len() / size) as u64);
        let base = self.base;
        let bytes_of = |header: &Header| {
            let at = |page: u64| usize::try_from(page - base).ok().and_then(|page| page.checked_mul(size));
            bytes.get(at(header.id)?..at(header.id.checked_add(header.span)?)?)
        };
        while self.next < end {
            let id = self.next;
            self.next += 1;
            let page = bytes_of(&Header { id, kind: Kind::Leaf, count: 0, span: 1 }).unwrap_or_default();
            let Some(header) = self.candidate(id, page) else {
                continue;
            };
            if !self.admit(&header) {
                self.summaries.leave_out(header.id, &mut self.records, &mut self.meter)?;
            } else if id + header.span > end {
                self.open.push(header);
            } else {
                self.sum_up(header, bytes_of(&header).unwrap_or_default())?;
            }
        }
        let (done, open) = self.open.iter().partition(|header| header.id + header.span <= end);
        self.open = open;
        let done: Vec<Header> = done;
        for header in done {
            self.sum_up(header, bytes_of(&header).unwrap_or_default())?;
        }
        let needed = self.open.iter().map(|open| open.id).fold(self.next.max(base), u64::min);
        self.base = needed.min(end);
        let done = usize::try_from(self.base - base).ok().and_then(|pages| pages.checked_mul(size));
        Ok(done.and_then(|done| bytes.get(done..)).unwrap_or_default())
    }

    fn sum_up(&mut self, header: Header, bytes: &[u8]) -> Result<(), OverBudget> {
        self.summaries.add(header, bytes, &mut self.records, &mut self.meter)
    }

    /// Whether a page run is read. Judged by the bytes before its end, whatever part has arrived.
    fn admit(&mut self, header: &Header) -> bool {
        if header.span == 1 {
            return true;
        }
        self.ends.retain(|end| *end > header.id);
        let (end, size) = (header.id + header.span, self.meta.page_size as u64);
        let read = self.read.saturating_add(header.span.saturating_mul(size));
        let may = self.ends.len() < MAX_OPEN
            && self.fits(header.span)
            && read <= end.saturating_mul(size).saturating_mul(MAX_READS);
        if may {
            self.ends.push(end);
            self.read = read;
        }
        may
    }

    /// Returns the header of a page that may belong to the tree.
    fn candidate(&self, id: u64, page: &[u8]) -> Option<Header> {
        let header = Header::parse(page)?;
        let wanted = match header.kind {
            Kind::Branch | Kind::Leaf => true,
            Kind::Freelist => self.meta.freelist == Some(id),
            Kind::Meta => false,
        };
        let fits = header.span <= self.meta.high_water.checked_sub(id)?;
        (wanted && fits && header.id == id && header.plausible(page, self.meta.page_size)).then_some(header)
    }

    /// Whether this many pages can be held until their end arrives: within a quarter of the budget.
    fn fits(&self, span: u64) -> bool {
        let bytes = usize::try_from(span).ok().and_then(|span| span.checked_mul(self.meta.page_size));
        bytes.is_some_and(|bytes| bytes <= self.meter.limit() / 4)
    }
}
