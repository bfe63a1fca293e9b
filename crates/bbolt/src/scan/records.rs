//! Records of the bucket `key`: the part of each leaf that is kept for HashKV and the key count.
//!
//! A record is one revision of one key. HashKV covers all records above the compact revision C, so those of a leaf are one run
//! with one CRC. At or below C HashKV covers only records that a compaction would keep, which are known only after the last
//! page: these are kept one by one, and as a run too, because usually all of a leaf count. If C is unknown, all records are
//! treated as old: that costs 7 more bytes for each record above C. A key is kept as a fingerprint of 62 bits with a seed per
//! process, so that an attacker cannot construct a collision; after an accidental collision HashKV differs and the snapshot is
//! refused.

use std::hash::{BuildHasher as _, DefaultHasher, RandomState};

use holdfast_segment::put_varint;

use super::budget::{Arena, Meter, OverBudget, Place};
use super::page::{self, Defect, Element};
use super::wire::{KeyValue, take, varint};
use crate::scan::wire::crc32c;

/// A key of the bucket `key`: main revision and sub revision, 8 bytes each with `_` between, and `t` for a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rev {
    pub(crate) main: i64,
    pub(crate) sub: i64,
    pub(crate) tombstone: bool,
}

impl Rev {
    const LENGTH: usize = 17;

    pub(crate) fn parse(key: &[u8]) -> Option<Self> {
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

    /// Returns the key's bytes in bbolt.
    pub(crate) fn key(self) -> RevKey {
        let mut bytes = [0; Self::LENGTH + 1];
        let (main, rest) = bytes.split_at_mut(8);
        main.copy_from_slice(&self.main.to_be_bytes());
        if let Some((separator, rest)) = rest.split_first_mut() {
            *separator = b'_';
            if let Some((sub, suffix)) = rest.split_first_chunk_mut::<8>() {
                *sub = self.sub.to_be_bytes();
                suffix.fill(b't');
            }
        }
        RevKey { bytes, length: Self::LENGTH + usize::from(self.tombstone) }
    }
}

/// A revision in its form as a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RevKey {
    bytes: [u8; Rev::LENGTH + 1],
    length: usize,
}

impl RevKey {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Computes fingerprints of keys; clones compute the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fingerprints(RandomState);

impl Fingerprints {
    /// Returns 62 bits; the low two are free for flags.
    pub(crate) fn hash_key(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key) & !FLAGS
    }

    /// Returns the fingerprint of a growing list.
    pub(super) fn list(&self) -> DefaultHasher {
        self.0.build_hasher()
    }
}

const TOMBSTONE: u64 = 1;
const FLAGS: u64 = 3;

/// A record that is or may be at or below the compact revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Old {
    pub(super) main: i64,
    pub(super) key: FlaggedKey,
    pub(super) run: Run,
}

/// Fingerprint of a record's key, and whether the record is a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlaggedKey(u64);

impl FlaggedKey {
    pub(super) fn fingerprint(self) -> u64 {
        self.0 & !FLAGS
    }

    pub(super) fn tombstone(self) -> bool {
        self.0 & TOMBSTONE != 0
    }
}

/// Result for a leaf of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Revs {
    pub(super) count: u64,
    pub(super) first: Rev,
    pub(super) last: Rev,
    /// Place of the leaf's records; `None`: they exceeded the budget.
    pub(super) place: Option<Place>,
}

/// From this main revision on a key may well be a user's name of 17 letters, such as `platform_operator`: letters give a number
/// above 10^18.
const HARDLY_A_REVISION: i64 = 1 << 60;

/// Whether a leaf starts like a leaf of the bucket `key`: a cheap check.
pub(super) fn begins_like_records(page: &[u8], count: usize) -> bool {
    let first = records(page, count).next();
    first.is_some_and(|first| first.is_ok_and(|(_, rev, _)| rev.main < HARDLY_A_REVISION))
}

/// Whether a leaf looks like a leaf of the bucket `key`. No other bucket may have such a leaf: a stream does not keep its
/// bytes, and a bucket that leads to a freed page of records has lost its content.
pub(super) fn look_like_records(page: &[u8], count: usize) -> bool {
    begins_like_records(page, count) && records(page, count).all(|record| record.is_ok())
}

/// Returns the records of a leaf in order, each checked; ends after the page's first defect.
fn records(page: &[u8], count: usize) -> impl Iterator<Item = Result<(Element<'_>, Rev, KeyValue<'_>), Defect>> {
    let mut before = None;
    page::leaf(page, count).map(move |element| {
        let element = element?;
        let rev = Rev::parse(element.key).ok_or("has a key that is no revision")?;
        if element.flags != 0 {
            return Err("has a bucket among the records");
        }
        // In byte order a tombstone follows its revision; etcd never writes both.
        if before.replace((rev.main, rev.sub)).is_some_and(|before| before >= (rev.main, rev.sub)) {
            return Err("has two records of one revision");
        }
        let kv = KeyValue::parse(element.value).map_err(|_| "has a record that etcd cannot read")?;
        Ok((element, rev, kv))
    })
}

/// The records of all leaves, also of those that turn out to be free pages.
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
    /// Keeps records at or below `compact` one by one; without it, all records.
    pub(super) fn new(compact: Option<i64>, fingerprints: Fingerprints) -> Self {
        let compact = compact.unwrap_or(i64::MAX);
        let [head, olds, news] = [const { Vec::new() }; 3];
        Self { compact, fingerprints, arena: Some(Arena::default()), head, olds, news }
    }

    /// Releases all records and takes no more; `false`: they were released before.
    pub(super) fn give_up(&mut self, meter: &mut Meter) -> bool {
        self.arena.take().map(|mut arena| arena.clear(meter)).is_some()
    }

    /// Reads a leaf with at least one record.
    pub(super) fn add(&mut self, page: &[u8], count: usize, meter: &mut Meter) -> Result<Revs, Defect> {
        let (mut olds, mut news) = (0_u64, 0_u64);
        let (mut old_run, mut run) = (None, None);
        let (mut ends, mut before) = (None::<(Rev, Rev)>, 0);
        self.olds.clear();
        self.news.clear();
        for record in records(page, count) {
            let (element, rev, kv) = record?;
            ends = Some((ends.map_or(rev, |(first, _)| first), rev));
            let key = self.fingerprints.hash_key(kv.key) | if rev.tombstone { TOMBSTONE } else { 0 };
            if rev.main > self.compact {
                news += 1;
                self.news.extend_from_slice(&key.to_le_bytes());
                run = Some((run.map_or(element.start, |(start, _)| start), element.end));
                continue;
            }
            let bytes = page.get(element.start..element.end).unwrap_or_default();
            olds += 1;
            old_run = Some((old_run.map_or(element.start, |(start, _)| start), element.end));
            self.olds.extend_from_slice(&key.to_le_bytes());
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

    /// Stores the records of `add`. If the budget is exceeded, the scan can continue without HashKV.
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

    /// Returns the records at a place. `None`: they were released.
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

/// Consecutive records: the CRC and the length of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) length: u64,
    pub(super) crc: u32,
}

/// The records of one leaf: first the old records, in order, then those above the compact revision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept<'a> {
    bytes: &'a [u8],
    olds: u64,
    news: u64,
    /// Main revision of the last taken old record.
    main: i64,
    /// The runs of all old records and of all newer records; of length 0 without records.
    pub(super) old_run: Run,
    pub(super) new_run: Run,
}

impl<'a> Kept<'a> {
    /// Returns the next old record; `None` at the end.
    pub(super) fn old(&mut self) -> Option<Old> {
        self.olds = self.olds.checked_sub(1)?;
        let key = FlaggedKey(u64::from_le_bytes(*take(&mut self.bytes, 8)?.first_chunk()?));
        self.main = self.main.checked_add_unsigned(varint(&mut self.bytes)?)?;
        let length = varint(&mut self.bytes)?;
        let crc = u32::from_le_bytes(*take(&mut self.bytes, 4)?.first_chunk()?);
        Some(Old { main: self.main, key, run: Run { length, crc } })
    }

    /// Returns the records above the compact revision, in order. Call it after the old records.
    pub(super) fn news(self) -> impl DoubleEndedIterator<Item = FlaggedKey> + use<'a> {
        let keys = self.news.checked_mul(8).and_then(|length| take(&mut { self.bytes }, length));
        keys.unwrap_or_default().as_chunks::<8>().0.iter().map(|key| FlaggedKey(u64::from_le_bytes(*key)))
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
