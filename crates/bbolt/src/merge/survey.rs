//! The survey: reads the base and the log before a merge, and decides which records a compaction leaves, and how many bytes
//! the result has.
//!
//! The rule is etcd's (server/storage/mvcc/key_index.go, `compact`, since 3.5.16): every record above the compact revision C
//! stays; at or below C the newest record of each key stays, unless it is a tombstone below C.
//!
//! Records come in the order of their revisions, so those at or below C come first: one bit for each says whether it stays. A
//! table holds the newest record of each key. A full table gives up half of its keys, by their fingerprints, and another pass
//! over the same records decides about these. The survey writes nothing; `merge.rs` writes what stays.
//!
//! A survey for HashKV (`hash.rs`) has another rule: at or below C the newest record that each key has at all stays, unless it is
//! a tombstone.

use std::collections::HashMap;

use holdfast_segment::Record;

use super::order::{Order, Taken};
use super::{MergeError, Opened, open};
use crate::graft::read::{Database, bucket};
use crate::graft::{KEY, Unfit};
use crate::scan::ReadAt;
use crate::scan::page::ELEMENT;
use crate::scan::records::{Fingerprints, Rev};
use crate::scan::wire::KeyValue;

/// A survey that takes records.
#[derive(Debug)]
pub struct Survey<R> {
    base: Database<R>,
    /// Value of the base's bucket `key`.
    key: Vec<u8>,
    base_revision: i64,
    until: i64,
    order: Order,
    table: Table,
}

/// The result of a survey.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// The records that stay; `None`: the log records no compaction after the base's, and every record is added to the base.
    pub kept: Option<Kept>,
    /// Bytes that the merged database has at least.
    pub least_bytes: u64,
    /// Bytes that the merged database has if its new pages are filled as etcd fills them.
    pub likely_bytes: u64,
    /// Whether a survey for HashKV has found no key: etcd then hashes records that the survey has not kept.
    pub is_empty: bool,
}

/// Purpose of a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Compaction,
    HashKv,
}

/// The records that a compaction leaves, of those at or below its revision.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    compact: i64,
    bits: Vec<u64>,
    /// Number of the next record.
    next: usize,
}

/// Two fingerprints of a key: a collision would remove a key.
type Fingerprint = (u64, u64);

/// The newest record of each key, for the fingerprints of one range.
#[derive(Debug)]
struct Table {
    purpose: Purpose,
    fingerprints: [Fingerprints; 2],
    /// For each key its newest record at or below the compact revision: number and bytes.
    newest: HashMap<Fingerprint, (usize, u64)>,
    kept: Kept,
    /// First and last fingerprint of the range.
    range: (u64, u64),
    /// Bytes of the records of the range that stay, of those of earlier ranges, and of those above the compact revision.
    within: u64,
    before: u64,
    above: u64,
    /// Whether no range has a key.
    is_empty: bool,
    budget: usize,
}

/// The number of a record above the compact revision, which stays.
const ABOVE: usize = usize::MAX;

impl Kept {
    /// The revision of the compaction.
    pub fn compact_revision(&self) -> i64 {
        self.compact
    }

    /// Whether the next record stays. Takes the records in the order of the survey.
    pub(super) fn stays(&mut self, main: i64) -> bool {
        if main > self.compact {
            return true;
        }
        let (word, bit) = (self.next / 64, self.next % 64);
        self.next += 1;
        self.bits.get(word).is_some_and(|word| word >> bit & 1 == 1)
    }

    fn set(&mut self, number: usize, stays: bool) {
        if number == ABOVE {
            return;
        }
        let (word, bit) = (number / 64, number % 64);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if let Some(word) = self.bits.get_mut(word) {
            *word = *word & !(1 << bit) | u64::from(stays) << bit;
        }
    }
}

impl Table {
    fn note(&mut self, rev: Rev, key: &[u8], bytes: u64) -> Result<(), MergeError> {
        let compact = self.kept.compact;
        let number = if rev.main > compact { ABOVE } else { self.kept.next };
        if number == ABOVE {
            self.above = self.above.saturating_add(bytes);
            if self.purpose == Purpose::Compaction {
                return Ok(());
            }
        } else {
            self.kept.next += 1;
        }
        let [first, second] = &self.fingerprints;
        let fingerprint = (first.hash_key(key), second.hash_key(key));
        if fingerprint.0 < self.range.0 || self.range.1 < fingerprint.0 {
            return Ok(());
        }
        let stays = !rev.tombstone || self.purpose == Purpose::Compaction && rev.main == compact;
        self.kept.set(number, stays);
        let replaced = if stays {
            self.within = self.within.saturating_add(bytes);
            self.newest.insert(fingerprint, (number, bytes))
        } else {
            self.newest.remove(&fingerprint)
        };
        if let Some((number, bytes)) = replaced {
            self.kept.set(number, false);
            self.within = self.within.saturating_sub(bytes);
        }
        self.stay_within_budget()
    }

    /// Gives up the upper half of the range until the table fits its budget.
    fn stay_within_budget(&mut self) -> Result<(), MergeError> {
        while self.bytes() > self.budget {
            let (first, last) = self.range;
            // The fingerprints of fewer keys differ by more.
            let half = (last - first) / 2;
            if half < 1 << 32 {
                return Err(MergeError::OverBudget { budget: self.budget });
            }
            self.range.1 = first + half;
            let (last, within) = (self.range.1, &mut self.within);
            self.newest.retain(|(fingerprint, _), (_, bytes)| {
                let stays = *fingerprint <= last;
                *within = if stays { *within } else { within.saturating_sub(*bytes) };
                stays
            });
            self.newest.shrink_to_fit();
        }
        Ok(())
    }

    /// Returns the bytes in memory. While the table doubles, its old half exists too.
    fn bytes(&self) -> usize {
        let entry = size_of::<(Fingerprint, (usize, u64))>() + 1;
        let table = self.newest.capacity().saturating_mul(entry) / 2 * 3;
        table.saturating_add(self.kept.bits.capacity() * 8)
    }
}

impl<R: ReadAt> Survey<R> {
    /// Begins a survey of a merge of this base up to a revision, with the compaction at `compact` if it is a later one than the
    /// base's. `budget_bytes`: memory for keys.
    pub fn begin(
        base: R,
        bytes: u64,
        until: i64,
        compact: Option<i64>,
        budget_bytes: usize,
    ) -> Result<Self, MergeError> {
        let opened = open(base, bytes, until)?;
        let compact = compact.filter(|compact| (opened.compacted + 1..=until).contains(compact));
        Self::new(opened, until, (Purpose::Compaction, compact.unwrap_or_default()), budget_bytes)
    }

    /// Begins a survey for HashKV at a revision, which a member computed with this compact revision (-1 or 0: none).
    pub fn for_hash_kv(
        base: R,
        bytes: u64,
        revision: i64,
        compact: i64,
        budget_bytes: usize,
    ) -> Result<Self, MergeError> {
        Self::new(open(base, bytes, revision)?, revision, (Purpose::HashKv, compact.max(0)), budget_bytes)
    }

    fn new(
        opened: Opened<R>,
        until: i64,
        (purpose, compact): (Purpose, i64),
        budget: usize,
    ) -> Result<Self, MergeError> {
        let Opened { base, buckets, newest, .. } = opened;
        let table = Table {
            purpose,
            fingerprints: [Fingerprints::default(), Fingerprints::default()],
            newest: HashMap::new(),
            kept: Kept { compact, ..Kept::default() },
            range: (0, u64::MAX),
            within: 0,
            before: 0,
            above: 0,
            is_empty: true,
            budget,
        };
        let key = bucket(&buckets, KEY)?.to_vec();
        let order = Order::after(newest, until);
        let mut survey = Self { base, key, base_revision: newest, until, order, table };
        survey.begin_pass()?;
        Ok(survey)
    }

    fn begin_pass(&mut self) -> Result<(), MergeError> {
        self.order = Order::after(self.base_revision, self.until);
        (self.table.kept.next, self.table.above) = (0, 0);
        let Self { base, key, table, .. } = self;
        if table.kept.compact == 0 {
            // Every record of the base stays where it is.
            return Ok(());
        }
        base.each(key, |rev, value| {
            let unreadable = || Unfit::new("a record of the bucket `key` cannot be read");
            let parsed = Rev::parse(rev).ok_or_else(unreadable)?;
            let kv = KeyValue::parse(value).map_err(|_| unreadable())?;
            table.note(parsed, kv.key, entry_bytes(rev, value))
        })
    }

    /// Takes the next record of the log. Returns `false` for a record after the wanted revision: all that follow are too.
    pub fn add(&mut self, record: &Record<'_>) -> Result<bool, MergeError> {
        let Record { main, sub, tombstone, value } = *record;
        match self.order.take(record)? {
            Taken::Next(kv) => {
                let rev = Rev { main, sub, tombstone };
                if self.table.kept.compact == 0 {
                    // Every record stays.
                    let bytes = entry_bytes(rev.key().bytes(), value);
                    self.table.above = self.table.above.saturating_add(bytes);
                    return Ok(true);
                }
                self.table.note(rev, kv.key, entry_bytes(rev.key().bytes(), value))?;
                Ok(true)
            }
            Taken::Repeated => Ok(true),
            Taken::Late => Ok(false),
        }
    }

    /// Ends a segment of the log.
    pub fn end_segment(&mut self) {
        self.order.end_segment();
    }

    /// Ends a pass over the log. `None`: the table was full, and the survey takes the same records again for the other keys.
    pub fn end_pass(&mut self) -> Result<Option<Surveyed>, MergeError> {
        self.order.check_end()?;
        let table = &mut self.table;
        table.before = table.before.saturating_add(std::mem::take(&mut table.within));
        table.is_empty &= table.newest.is_empty();
        let (first, last) = table.range;
        if last < u64::MAX {
            table.newest.clear();
            table.range = (last + 1, last.saturating_add(last - first + 1));
            self.begin_pass()?;
            return Ok(None);
        }
        let records = table.before.saturating_add(table.above);
        let kept = Kept { next: 0, ..std::mem::take(&mut table.kept) };
        let kept = (kept.compact > 0).then_some(kept);
        let base = if kept.is_some() { 0 } else { self.base.meta().bytes() };
        let least_bytes = base.saturating_add(records);
        let is_empty = table.is_empty && kept.is_some();
        Ok(Some(Surveyed { kept, least_bytes, likely_bytes: least_bytes.saturating_add(records / 9), is_empty }))
    }
}

/// Returns the bytes of a record in a page.
fn entry_bytes(key: &[u8], value: &[u8]) -> u64 {
    (ELEMENT + key.len() + value.len()) as u64
}
