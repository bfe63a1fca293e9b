//! Summaries of pages for the walk over the tree, and the interface to read them.

use std::hash::Hasher;

use holdfast_segment::put_varint;

use super::budget::{Arena, Meter, OverBudget, Place};
use super::page::{self, Defect};
use super::proof::ScanError;
use super::records::{Fingerprints, Records, Rev, Revs, begins_like_records};
use super::wire::{take, varint};

/// A page of the tree.
#[derive(Debug)]
pub(super) enum Summary<'a> {
    /// A branch. Its keys must be the first keys of its children, so one fingerprint of all is enough.
    Branch {
        /// Number of pages.
        span: u64,
        first: &'a [u8],
        children: Vec<u64>,
        keys: u64,
    },
    /// A leaf of records of the bucket `key`.
    Records {
        /// Number of pages.
        span: u64,
        revs: Revs,
    },
    /// A leaf of another kind, with its bytes.
    Leaf {
        /// Number of pages.
        span: u64,
        count: usize,
        page: &'a [u8],
    },
}

/// Source of a tree's pages: summaries of a stream, or a file.
pub(super) trait Source {
    /// Returns a page that the tree points to; its ID is in range.
    fn page(&mut self, id: u64) -> Result<Summary<'_>, ScanError>;

    /// Returns the list of free pages: the number of its own pages, and its IDs.
    fn freelist(&mut self, id: u64) -> Result<(u64, Vec<u64>), ScanError>;
}

/// Adds a key to the fingerprint of a branch's keys.
pub(super) fn add_key(list: &mut impl Hasher, key: &[u8]) {
    list.write_usize(key.len());
    list.write(key);
}

/// Returns first key, children and fingerprint of the keys of a branch.
pub(super) fn branch<'a>(
    page: &'a [u8],
    count: usize,
    fingerprints: &Fingerprints,
) -> Result<(&'a [u8], Vec<u64>, u64), Defect> {
    let (mut first, mut children, mut keys) = (None, Vec::with_capacity(count), fingerprints.list());
    for element in page::branch(page, count) {
        let (key, child) = element?;
        first = first.or(Some(key));
        children.push(child);
        add_key(&mut keys, key);
    }
    Ok((first.ok_or("is a branch without children")?, children, keys.finish()))
}

/// The summaries of a stream's pages, also of free pages: a header alone proves nothing.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    /// By page: the place of its summary, counted from 1.
    places: Vec<u32>,
    arena: Arena,
    scratch: Vec<u8>,
    freelist: Option<(u64, Vec<u64>)>,
    /// Page runs that exceeded the budget: a bit per page, set at the start of such a run.
    left_out: Vec<u64>,
}

const BRANCH: u8 = 0;
const RECORDS: u8 = 1;
const LEAF: u8 = 2;

impl Summaries {
    /// Records that this page has no summary for lack of memory. That excuses no other missing page.
    pub(super) fn leave_out(&mut self, id: u64, records: &mut Records, meter: &mut Meter) -> Result<(), OverBudget> {
        let (word, bit) = bit(id).ok_or(OverBudget)?;
        if self.left_out.len() <= word {
            let more = (word + 1 - self.left_out.len()) * size_of::<u64>();
            match meter.take(more) {
                Err(OverBudget) if records.give_up(meter) => meter.take(more)?,
                taken => taken?,
            }
            self.left_out.resize(word + 1, 0);
        }
        if let Some(bits) = self.left_out.get_mut(word) {
            *bits |= bit;
        }
        Ok(())
    }

    fn is_left_out(&self, id: u64) -> bool {
        bit(id).is_some_and(|(word, bit)| self.left_out.get(word).is_some_and(|bits| bits & bit != 0))
    }

    /// Summarizes a page that may belong to the tree. An invalid page gets no summary: if the tree reaches it, it is missing.
    pub(super) fn add(
        &mut self,
        header: page::Header,
        page: &[u8],
        records: &mut Records,
        meter: &mut Meter,
    ) -> Result<(), OverBudget> {
        if matches!(header.kind, page::Kind::Branch | page::Kind::Leaf) && !page::fills(page, &header) {
            return Ok(());
        }
        self.scratch.clear();
        let out = &mut self.scratch;
        let mut body = &[][..];
        match header.kind {
            page::Kind::Meta => return Ok(()),
            page::Kind::Freelist => {
                if let Ok(ids) = page::freelist(page, header.count) {
                    meter.take(page.len())?;
                    self.freelist = Some((header.span, ids.collect()));
                }
                return Ok(());
            }
            page::Kind::Branch => {
                let Ok((first, children, keys)) = branch(page, header.count, &records.fingerprints) else {
                    return Ok(());
                };
                out.push(BRANCH);
                put_varint(header.span, out);
                put_varint(first.len() as u64, out);
                out.extend_from_slice(first);
                out.extend_from_slice(&keys.to_le_bytes());
                put_varint(children.len() as u64, out);
                // Children are often close to each other: a difference takes two bytes, an ID eight.
                let mut before = header.id;
                for child in children {
                    put_varint(zigzag(child.wrapping_sub(before).cast_signed()), out);
                    before = child;
                }
            }
            page::Kind::Leaf => {
                // Any other leaf is kept with its bytes: names in a bucket may look like a revision.
                let is_records = begins_like_records(page, header.count);
                if let Some(Ok(revs)) = is_records.then(|| records.add(page, header.count, meter)) {
                    put_records(header.span, revs, out);
                } else {
                    let Ok(end) = page::leaf_end(page, header.count) else {
                        return Ok(());
                    };
                    out.push(LEAF);
                    put_varint(header.span, out);
                    put_varint(header.count as u64, out);
                    body = page.get(..end).unwrap_or_default();
                    put_varint(body.len() as u64, out);
                }
            }
        }
        let place = match self.arena.put(&self.scratch, body, meter) {
            // The proof can omit HashKV, but not the structure.
            Err(OverBudget) if records.give_up(meter) => self.arena.put(&self.scratch, body, meter)?,
            place => place?,
        };
        let index = usize::try_from(header.id).map_err(|_| OverBudget)?;
        if self.places.len() <= index {
            let grown = index.checked_add(1).ok_or(OverBudget)?;
            meter.take((grown - self.places.len()) * size_of::<u32>())?;
            self.places.resize(grown, 0);
        }
        if let Some(slot) = self.places.get_mut(index) {
            *slot = place.0.checked_add(1).ok_or(OverBudget)?;
        }
        Ok(())
    }

    fn find(&self, id: u64) -> Option<Summary<'_>> {
        let place = usize::try_from(id).ok().and_then(|id| self.places.get(id)).and_then(|place| place.checked_sub(1));
        let mut bytes = self.arena.get(Place(place?));
        let bytes = &mut bytes;
        let (kind, span) = (take(bytes, 1)?.first().copied()?, varint(bytes)?);
        match kind {
            BRANCH => {
                let length = varint(bytes)?;
                let first = take(bytes, length)?;
                let keys = u64::from_le_bytes(*take(bytes, 8)?.first_chunk()?);
                let (count, mut before) = (varint(bytes)?, id);
                let mut children = Vec::with_capacity(usize::try_from(count).ok()?);
                for _ in 0..count {
                    before = before.wrapping_add(unzigzag(varint(bytes)?).cast_unsigned());
                    children.push(before);
                }
                Some(Summary::Branch { span, first, children, keys })
            }
            RECORDS => Some(Summary::Records { span, revs: get_records(bytes)? }),
            LEAF => {
                let (count, length) = (varint(bytes)?, varint(bytes)?);
                Some(Summary::Leaf { span, count: usize::try_from(count).ok()?, page: take(bytes, length)? })
            }
            _ => None,
        }
    }
}

fn put_records(span: u64, revs: Revs, out: &mut Vec<u8>) {
    out.push(RECORDS);
    put_varint(span, out);
    put_varint(revs.count, out);
    put_varint(revs.place.map_or(0, |place| u64::from(place.0) + 1), out);
    let mut before = 0;
    for rev in [revs.first, revs.last] {
        // Revisions rise within a page, so the second is the larger.
        put_varint(rev.main.abs_diff(before) << 1 | u64::from(rev.tombstone), out);
        put_varint(rev.sub.unsigned_abs(), out);
        before = rev.main;
    }
}

fn get_records(bytes: &mut &[u8]) -> Option<Revs> {
    let (count, place) = (varint(bytes)?, varint(bytes)?);
    let place = place.checked_sub(1).and_then(|place| u32::try_from(place).ok()).map(Place);
    let mut before = 0;
    let mut rev = || {
        let (main, sub) = (varint(bytes)?, varint(bytes)?);
        before += i64::try_from(main >> 1).ok()?;
        Some(Rev { main: before, sub: i64::try_from(sub).ok()?, tombstone: main & 1 == 1 })
    };
    Some(Revs { count, first: rev()?, last: rev()?, place })
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1 ^ (number & 1).wrapping_neg()).cast_signed()
}

/// Returns the index of a page's word, and the word with only this page's bit set.
fn bit(id: u64) -> Option<(usize, u64)> {
    Some((usize::try_from(id / u64::from(u64::BITS)).ok()?, 1 << (id % u64::from(u64::BITS))))
}

/// Summaries and their budget, for the walk.
pub(super) struct Seen<'a> {
    pub(super) summaries: &'a Summaries,
    pub(super) budget: usize,
}

impl Seen<'_> {
    fn missing(&self, page: u64) -> ScanError {
        if self.summaries.is_left_out(page) {
            return ScanError::OverBudget { budget: self.budget };
        }
        ScanError::Page { page, what: "is part of the tree and no valid page" }
    }
}

impl Source for Seen<'_> {
    fn page(&mut self, id: u64) -> Result<Summary<'_>, ScanError> {
        self.summaries.find(id).ok_or_else(|| self.missing(id))
    }

    fn freelist(&mut self, id: u64) -> Result<(u64, Vec<u64>), ScanError> {
        self.summaries.freelist.clone().ok_or_else(|| self.missing(id))
    }
}
