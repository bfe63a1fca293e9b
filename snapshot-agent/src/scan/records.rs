//! Records of the bucket `key`: what is kept of each leaf until HashKV and the key count can be worked out.
//!
//! A record is one revision of one key. HashKV covers all records above the compact revision C, so those of a leaf are
//! one run with one CRC. At or below C it covers only what compaction would keep, which is known when the last page has
//! been seen: those records are kept one by one, and as a run too, since most often all of a leaf count. Where C is not
//! known, all records are taken for old ones: that costs 7 bytes more for each that is not. A key is kept as a fingerprint of 62 bits, seeded anew in each process,
//! so that nobody can make two keys look the same; should two ever do, HashKV differs and the snapshot is refused.

use std::hash::{BuildHasher as _, DefaultHasher, RandomState};

use super::budget::{Arena, Meter, OverBudget, Place};
use super::page::{self, Defect, Element};
use super::wire::{KeyValue, put_varint, take, varint};
use crate::scan::wire::crc32c;

/// A key of the bucket `key`: main revision and sub revision, 8 bytes each with `_` between, and `t` for a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rev {
    pub(super) main: i64,
    pub(super) sub: i64,
    pub(super) tombstone: bool,
}

impl Rev {
    const LENGTH: usize = 17;

    pub(super) fn parse(key: &[u8]) -> Option<Self> {
        let (main, rest) = key.split_first_chunk::<8>()?;
        let (sub, tombstone) = rest.strip_prefix(b"_")?.split_first_chunk::<8>()?;
        let tombstone = match tombstone {
            b"" => false,
            b"t" => true,
            _ => return None,
        };
        let (main, sub) = (i64::from_be_bytes(*main), i64::from_be_bytes(*sub));
        (main >= 0 && sub >= 0).then_some(Self { main, sub, tombstone })
    }

    /// The key's bytes as bbolt has them.
    pub(super) fn key(self) -> RevKey {
        let mut bytes = [0; Self::LENGTH + 1];
        let (main, rest) = bytes.split_at_mut(8);
        main.copy_from_slice(&self.main.to_be_bytes());
        if let Some((separator, rest)) = rest.split_first_mut() {
            *separator = b'_';
            if let Some((sub, mark)) = rest.split_first_chunk_mut::<8>() {
                *sub = self.sub.to_be_bytes();
                mark.fill(b't');
            }
        }
        RevKey { bytes, length: Self::LENGTH + usize::from(self.tombstone) }
    }
}

/// A revision as a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct RevKey {
    bytes: [u8; Rev::LENGTH + 1],
    length: usize,
}

impl RevKey {
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Makes fingerprints of keys; clones make the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Fingerprints(RandomState);

impl Fingerprints {
    /// 62 bits; the low two are free for flags.
    pub(super) fn of(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key) & !FLAGS
    }

    /// A fingerprint of a list that grows.
    pub(super) fn list(&self) -> DefaultHasher {
        self.0.build_hasher()
    }
}

const TOMBSTONE: u64 = 1;
const FLAGS: u64 = 3;

/// A record at or below the compact revision, or maybe so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Old {
    pub(super) main: i64,
    pub(super) mark: Mark,
    pub(super) run: Run,
}

/// Whose record it is, and of what kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    pub(super) fn fingerprint(self) -> u64 {
        self.0 & !FLAGS
    }

    pub(super) fn tombstone(self) -> bool {
        self.0 & TOMBSTONE != 0
    }
}

/// What a leaf of records came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Revs {
    pub(super) count: u64,
    pub(super) first: Rev,
    pub(super) last: Rev,
    /// Where its records are kept; `None`: they did not fit the budget.
    pub(super) place: Option<Place>,
}

/// A record's main revision from which on it may well be a user's name of 17 letters, as `platform_operator` is. Letters
/// make a number above this, 10^18.
const HARDLY_A_REVISION: i64 = 1 << 60;

/// Whether a leaf begins as one of the bucket `key` does: a cheap look.
pub(super) fn begins_like_records(page: &[u8], count: usize) -> bool {
    let first = records(page, count).next();
    first.is_some_and(|first| first.is_ok_and(|(_, rev, _)| rev.main < HARDLY_A_REVISION))
}

/// Whether a leaf is one of the bucket `key`, by its looks. No other bucket may have such a leaf: of a stream its bytes
/// are not kept, and a bucket that leads to a freed page of records has lost its content.
pub(super) fn look_like_records(page: &[u8], count: usize) -> bool {
    begins_like_records(page, count) && records(page, count).all(|record| record.is_ok())
}

/// The records of a leaf in order, each checked as it comes; ends after the first defect of the page.
fn records(page: &[u8], count: usize) -> impl Iterator<Item = Result<(Element<'_>, Rev, KeyValue<'_>), Defect>> {
    let mut before = None;
    page::leaf(page, count).map(move |element| {
        let element = element?;
        let rev = Rev::parse(element.key).ok_or("has a key that is no revision")?;
        if element.flags != 0 {
            return Err("has a bucket among the records");
        }
        // In bytes a tombstone follows its revision; etcd never writes both.
        if before.replace((rev.main, rev.sub)).is_some_and(|before| before >= (rev.main, rev.sub)) {
            return Err("has two records of one revision");
        }
        let kv = KeyValue::parse(element.value).map_err(|_| "has a record that etcd cannot read")?;
        Ok((element, rev, kv))
    })
}

/// The records of all leaves that were seen, also of those that turn out to be free pages.
#[derive(Debug)]
pub(super) struct Records {
    compact: i64,
    pub(super) fingerprints: Fingerprints,
    arena: Option<Arena>,
    head: Vec<u8>,
    olds: Vec<u8>,
    news: Vec<u8>,
}

impl Records {
    /// Records at or below `compact` are kept one by one; without it, all are.
    pub(super) fn new(compact: Option<i64>, fingerprints: Fingerprints) -> Self {
        let compact = compact.unwrap_or(i64::MAX);
        let [head, olds, news] = [const { Vec::new() }; 3];
        Self { compact, fingerprints, arena: Some(Arena::default()), head, olds, news }
    }

    /// Lets all records go and takes no more; `false`: that was so already.
    pub(super) fn give_up(&mut self, meter: &mut Meter) -> bool {
        self.arena.take().map(|mut arena| arena.clear(meter)).is_some()
    }

    /// Reads a leaf of records; it has at least one.
    pub(super) fn add(&mut self, page: &[u8], count: usize, meter: &mut Meter) -> Result<Revs, Defect> {
        let (mut olds, mut news) = (0_u64, 0_u64);
        let (mut old_run, mut run) = (None, None);
        let (mut ends, mut before) = (None::<(Rev, Rev)>, 0);
        self.olds.clear();
        self.news.clear();
        for record in records(page, count) {
            let (element, rev, kv) = record?;
            ends = Some((ends.map_or(rev, |(first, _)| first), rev));
            let mark = self.fingerprints.of(kv.key) | if rev.tombstone { TOMBSTONE } else { 0 };
            if rev.main > self.compact {
                news += 1;
                self.news.extend_from_slice(&mark.to_le_bytes());
                run = Some((run.map_or(element.start, |(start, _)| start), element.end));
                continue;
            }
            let bytes = page.get(element.start..element.end).unwrap_or_default();
            olds += 1;
            old_run = Some((old_run.map_or(element.start, |(start, _)| start), element.end));
            self.olds.extend_from_slice(&mark.to_le_bytes());
            put_varint(rev.main.abs_diff(before), &mut self.olds);
            before = rev.main;
            put_varint(bytes.len() as u64, &mut self.olds);
            self.olds.extend_from_slice(&crc32c(bytes).to_le_bytes());
        }
        let (first, last) = ends.ok_or("has no records")?;
        let bytes = |run: Option<(usize, usize)>| run.and_then(|(start, end)| page.get(start..end));
        let place = self.keep(olds, news, bytes(old_run), bytes(run), meter);
        Ok(Revs { count: olds + news, first, last, place })
    }

    /// Keeps what `add` has collected. One way out of the budget is to do without: then there is no HashKV.
    fn keep(
        &mut self,
        olds: u64,
        news: u64,
        old_run: Option<&[u8]>,
        run: Option<&[u8]>,
        meter: &mut Meter,
    ) -> Option<Place> {
        let arena = self.arena.as_mut()?;
        self.head.clear();
        put_varint(olds, &mut self.head);
        put_varint(news, &mut self.head);
        for run in [old_run, run].into_iter().flatten() {
            put_varint(run.len() as u64, &mut self.head);
            self.head.extend_from_slice(&crc32c(run).to_le_bytes());
        }
        self.olds.extend_from_slice(&self.news);
        let place = arena.put(&self.head, &self.olds, meter);
        if place == Err(OverBudget) {
            self.give_up(meter);
        }
        place.ok()
    }

    /// The records at a place. `None`: they were let go.
    pub(super) fn get(&self, place: Place) -> Option<Kept<'_>> {
        let mut bytes = self.arena.as_ref()?.get(place);
        let (olds, news) = (varint(&mut bytes)?, varint(&mut bytes)?);
        let mut run = |count: u64| {
            if count == 0 {
                return Some(Run { length: 0, crc: 0 });
            }
            let length = varint(&mut bytes)?;
            Some(Run { length, crc: u32::from_le_bytes(*take(&mut bytes, 4)?.first_chunk()?) })
        };
        let (old_run, new_run) = (run(olds)?, run(news)?);
        Some(Kept { bytes, olds, news, main: 0, old_run, new_run })
    }
}

/// Records that follow each other: the CRC of their bytes, and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) length: u64,
    pub(super) crc: u32,
}

/// The records of one leaf: first the old ones, in order, then those above the compact revision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept<'a> {
    bytes: &'a [u8],
    olds: u64,
    news: u64,
    /// Main revision of the last old record that was taken.
    main: i64,
    /// All old records together, and all above the compact revision; of length 0 if there is none.
    pub(super) old_run: Run,
    pub(super) new_run: Run,
}

impl<'a> Kept<'a> {
    /// Takes the old records, in order; `None` at their end.
    pub(super) fn old(&mut self) -> Option<Old> {
        self.olds = self.olds.checked_sub(1)?;
        let mark = Mark(u64::from_le_bytes(*take(&mut self.bytes, 8)?.first_chunk()?));
        self.main = self.main.checked_add_unsigned(varint(&mut self.bytes)?)?;
        let length = varint(&mut self.bytes)?;
        let crc = u32::from_le_bytes(*take(&mut self.bytes, 4)?.first_chunk()?);
        Some(Old { main: self.main, mark, run: Run { length, crc } })
    }

    /// The records above the compact revision, in order. After the old ones.
    pub(super) fn news(self) -> impl DoubleEndedIterator<Item = Mark> + use<'a> {
        let marks = self.news.checked_mul(8).and_then(|length| take(&mut { self.bytes }, length));
        marks.unwrap_or_default().as_chunks::<8>().0.iter().map(|mark| Mark(u64::from_le_bytes(*mark)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_a_key_and_back() {
        for tombstone in [false, true] {
            let rev = Rev { main: 0x0102_0304_0506_0708, sub: 9, tombstone };
            let key = rev.key();
            assert_eq!(key.bytes().len(), 17 + usize::from(tombstone));
            assert_eq!(Rev::parse(key.bytes()), Some(rev));
        }
        let key = b"\x80\0\0\0\0\0\0\0_\0\0\0\0\0\0\0\0";
        assert_eq!(Rev::parse(key), None, "negative");
        assert_eq!(Rev::parse(b"\0\0\0\0\0\0\0\0_\0\0\0\0\0\0\0\0x"), None);
        assert_eq!(Rev::parse(b"\0\0\0\0\0\0\0\0.\0\0\0\0\0\0\0\0"), None);
        assert_eq!(Rev::parse(b"short"), None);
    }
}
