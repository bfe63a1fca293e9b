//! The scan of a stream: cuts it into pages, and sums up each one that may be part of the tree.
//!
//! Bytes are only copied when a page, or a row of pages that belong together, does not lie whole in one piece.

use super::budget::{Meter, OverBudget};
use super::page::{Header, Kind, LARGEST, META_BYTES, Meta};
use super::proof::{Proven, ScanError};
use super::prove::{Before, prove};
use super::records::{Fingerprints, Records};
use super::summary::{Seen, Summaries};

/// What a scan is told beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The compact revision that the member gave before the stream began (-1: nothing was ever compacted). HashKV comes
    /// out only if it is still the file's. `None`: it was not asked; then HashKV comes out in any case, but records above
    /// the compact revision take twice the memory.
    pub compact_revision: Option<i64>,
    /// Bytes of memory that may be held, apart from what does not depend on the database.
    pub budget_bytes: usize,
}

/// Rows of pages that may begin before others have ended. Old headers of freed pages do overlap, a few at a time.
const MAX_OPEN: usize = 64;

/// Room for rows of pages that is kept from one to the next: etcd's usual largest value, twice.
const KEPT_ROOM: usize = 3 << 20;

/// How often a byte may be read on average as part of overlapping rows. A value can be made to look like hundreds of rows
/// within each other, and each is read whole.
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
    /// The meta pages are not yet there.
    Beginning(Vec<u8>),
    Pages(Box<Pages>),
    Failed(ScanError),
}

impl Scan {
    /// Begins.
    pub fn new(options: Options) -> Self {
        Self { options, bytes: 0, state: State::Beginning(Vec::new()) }
    }

    /// Takes the next bytes; any cutting into pieces gives the same result. What is wrong with them is said at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        let result = match &mut self.state {
            State::Failed(_) => return,
            State::Pages(pages) => pages.push(bytes),
            State::Beginning(held) => {
                held.extend_from_slice(bytes);
                let Some(meta) = Meta::choose(held) else {
                    // bbolt would look no further, either.
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

    /// Whether it has failed already, so that nothing more need be pushed.
    pub fn failed(&self) -> Option<&ScanError> {
        match &self.state {
            State::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// The verdict, once the last byte is in.
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

/// The pages, as they come.
#[derive(Debug)]
struct Pages {
    meta: Meta,
    meter: Meter,
    summaries: Summaries,
    records: Records,
    /// Bytes from the page `base` on that are still needed.
    held: Vec<u8>,
    base: u64,
    /// The next page whose header is to be looked at.
    next: u64,
    /// Rows of pages whose end has not come.
    open: Vec<Header>,
    /// Where the rows end that the page last looked at could be part of: unlike `open` independent of how the bytes were
    /// cut into pieces.
    ends: Vec<u64>,
    /// Bytes of rows of pages that were read, or will be.
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
            // The meta pages are done with.
            next: 2,
            open: Vec::new(),
            ends: Vec::new(),
            read: 0,
        }
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<(), OverBudget> {
        while !bytes.is_empty() {
            if self.held.is_empty() {
                let rest = self.look(bytes)?;
                return self.hold(rest);
            }
            // No more than what completes all that is open: then the rest need not be copied.
            let end = self.open.iter().map(|open| open.id + open.span).fold(self.next.max(self.base) + 1, u64::max);
            let wanted = usize::try_from(end - self.base).ok().and_then(|pages| pages.checked_mul(self.meta.page_size));
            let missing = wanted.ok_or(OverBudget)?.saturating_sub(self.held.len()).min(bytes.len());
            let (taken, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
            bytes = rest;
            self.held.reserve_exact(wanted.unwrap_or_default().saturating_sub(self.held.len()));
            self.hold(taken)?;
            if Some(self.held.len()) == wanted {
                let mut held = std::mem::take(&mut self.held);
                let needed = self.look(&held)?.len();
                self.meter.give(held.len() - needed);
                held.drain(..held.len() - needed);
                // A long row may be the only one: its room is not kept.
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

    /// Looks at the pages that lie whole in the bytes, which begin with the page `base`; gives back what is needed again.
    fn look<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], OverBudget> {
        let size = self.meta.page_size;
        let end = self.base.saturating_add((bytes.len() / size) as u64);
        let base = self.base;
        let row = |header: &Header| {
            let at = |page: u64| usize::try_from(page - base).ok().and_then(|page| page.checked_mul(size));
            bytes.get(at(header.id)?..at(header.id.checked_add(header.span)?)?)
        };
        while self.next < end {
            let id = self.next;
            self.next += 1;
            let page = row(&Header { id, kind: Kind::Leaf, count: 0, span: 1 }).unwrap_or_default();
            let Some(header) = self.candidate(id, page) else {
                continue;
            };
            if !self.admit(&header) {
                self.summaries.leave_out(header.id, &mut self.records, &mut self.meter)?;
            } else if id + header.span > end {
                self.open.push(header);
            } else {
                self.sum_up(header, row(&header).unwrap_or_default())?;
            }
        }
        let (done, open) = self.open.iter().partition(|header| header.id + header.span <= end);
        self.open = open;
        let done: Vec<Header> = done;
        for header in done {
            self.sum_up(header, row(&header).unwrap_or_default())?;
        }
        let needed = self.open.iter().map(|open| open.id).fold(self.next.max(base), u64::min);
        self.base = needed.min(end);
        let done = usize::try_from(self.base - base).ok().and_then(|pages| pages.checked_mul(size));
        Ok(done.and_then(|done| bytes.get(done..)).unwrap_or_default())
    }

    fn sum_up(&mut self, header: Header, row: &[u8]) -> Result<(), OverBudget> {
        self.summaries.add(header, row, &mut self.records, &mut self.meter)
    }

    /// Whether a row of pages is read. Judged by what stands before its end, never by how much of it is there.
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

    /// The header of a page that may be part of the tree.
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

    /// Whether so many pages can be held until their end has come: in a quarter of the budget.
    fn fits(&self, span: u64) -> bool {
        let bytes = usize::try_from(span).ok().and_then(|span| span.checked_mul(self.meta.page_size));
        bytes.is_some_and(|bytes| bytes <= self.meter.limit() / 4)
    }
}
