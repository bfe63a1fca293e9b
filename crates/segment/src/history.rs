//! Facts that show whether two runs of revisions are of one history: revisions of the same numbers exist in both after etcd was
//! restored in place.
//!
//! This file decides the checksum of a revision, and what the place of raft says about an earlier one. Callers decide what
//! follows.

use crc_fast::{CrcAlgorithm, Digest};

use crate::KeyValue;

/// Checksum of the changes of one revision: CRC32C of each record's kind, length and value.
#[derive(Debug)]
pub struct RevisionSum {
    digest: Digest,
    value: Vec<u8>,
}

impl Default for RevisionSum {
    fn default() -> Self {
        Self { digest: Digest::new(CrcAlgorithm::Crc32Iscsi), value: Vec::new() }
    }
}

impl RevisionSum {
    /// Adds a record by its value in etcd's bucket `key`.
    pub fn add(&mut self, tombstone: bool, value: &[u8]) {
        self.digest.update(&[u8::from(tombstone)]);
        self.digest.update(&(value.len() as u64).to_le_bytes());
        self.digest.update(value);
    }

    /// Adds a change of a watch.
    pub fn add_change(&mut self, tombstone: bool, kv: &KeyValue<'_>) {
        let mut value = std::mem::take(&mut self.value);
        value.clear();
        kv.encode(&mut value);
        self.add(tombstone, &value);
        self.value = value;
    }

    /// Returns the checksum, and begins another revision.
    pub fn take(&mut self) -> u32 {
        let sum = self.get();
        self.digest.reset();
        sum
    }

    /// Returns the checksum.
    #[expect(clippy::cast_possible_truncation, reason = "this checksum has 32 bits")]
    pub fn get(&self) -> u32 {
        self.digest.finalize() as u32
    }
}

/// The place of etcd's raft beside a revision.
///
/// Each revision is an entry of raft, and some entries make no revision. So within one history the number of entries minus the
/// revision never falls. An etcd that a snapshot restored counts its entries from the beginning, and goes on with the
/// snapshot's revision: the difference falls by nearly that revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftPlace {
    /// Revision of a linearizable read.
    pub revision: i64,
    /// Index that the member had applied before the read.
    pub applied: i64,
    /// Index that the member knew as committed after the read.
    pub committed: i64,
}

impl RaftPlace {
    /// Returns the least number of entries without a revision up to this place.
    pub const fn least(&self) -> i64 {
        self.applied.saturating_sub(self.revision)
    }

    /// Whether a place with this least number may be earlier in the same history.
    pub const fn may_follow(&self, least: i64) -> bool {
        self.committed.saturating_sub(self.revision) >= least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_lengths_and_values_count() {
        let sum = |records: &[(bool, &[u8])]| {
            let mut sum = RevisionSum::default();
            for (tombstone, value) in records {
                sum.add(*tombstone, value);
            }
            sum.take()
        };
        let all = [
            sum(&[]),
            sum(&[(false, b"ab")]),
            sum(&[(true, b"ab")]),
            sum(&[(false, b"a"), (false, b"b")]),
            sum(&[(false, b"b"), (false, b"a")]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one), "{at}");
        }
        let mut again = RevisionSum::default();
        again.add(true, b"x");
        again.take();
        again.add_change(false, &KeyValue { key: b"k", version: 1, ..KeyValue::default() });
        let mut encoded = Vec::new();
        KeyValue { key: b"k", version: 1, ..KeyValue::default() }.encode(&mut encoded);
        assert_eq!(again.get(), sum(&[(false, &encoded)]));
    }

    #[test]
    fn a_restored_etcd_has_too_few_entries_for_its_revision() {
        let old = RaftPlace { revision: 23, applied: 27, committed: 27 };
        let later = RaftPlace { revision: 900, applied: 950, committed: 951 };
        assert!(later.may_follow(old.least()) && old.may_follow(old.least()));
        // From a snapshot at revision 21, then 900 more revisions.
        let restored = RaftPlace { revision: 921, applied: 903, committed: 904 };
        assert!(!restored.may_follow(old.least()));
    }
}
