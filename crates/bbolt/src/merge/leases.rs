//! The leases that the merged database needs.
//!
//! This file decides which leases are added to the bucket `lease`, and with which time to live. The rules are in `merge.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use holdfast_segment::put_number;

use super::UNKNOWN_TTL;
use crate::scan::records::Fingerprints;
use crate::scan::wire::KeyValue;

/// Leases of the log.
#[derive(Debug, Default)]
pub(super) struct Leases {
    fingerprints: Fingerprints,
    /// For each key that the log has bound to a lease: the lease.
    bound: HashMap<u64, i64>,
    /// Time to live of the leases that the log names, in seconds.
    ttls: HashMap<i64, i64>,
    /// Number of these at which those without keys are dropped.
    most: usize,
}

/// So few leases are not worth a search for those without keys.
const FEW: usize = 1 << 10;

/// Leases to write, by their keys in the bucket.
#[derive(Debug, Default)]
pub(super) struct Needed(BTreeMap<[u8; 8], Option<i64>>);

impl Leases {
    /// Takes a record's binding.
    pub(super) fn bind(&mut self, kv: &KeyValue<'_>) {
        if kv.lease != 0 {
            self.bound.insert(self.fingerprints.hash_key(kv.key), kv.lease);
        } else if !self.bound.is_empty() {
            self.bound.remove(&self.fingerprints.hash_key(kv.key));
        }
    }

    /// Takes a time to live from the log; `is_later`: the log has named it after the last merged record.
    pub(super) fn add_ttl(&mut self, id: i64, ttl: i64, is_later: bool) {
        if is_later {
            self.ttls.entry(id).or_insert(ttl);
        } else {
            self.ttls.insert(id, ttl);
        }
    }

    /// Drops every time to live that no key needs: a later segment that names the lease names its time to live again.
    pub(super) fn drop_unbound(&mut self) {
        if self.ttls.len() > self.most.max(FEW) {
            let bound: BTreeSet<i64> = self.bound.values().copied().collect();
            self.ttls.retain(|id, _| bound.contains(id));
            self.most = 2 * self.ttls.len();
        }
    }

    /// Returns the bytes of the tables. While a table doubles, its old half exists too.
    pub(super) fn bytes(&self) -> usize {
        let entries = self.bound.capacity().saturating_add(self.ttls.capacity());
        entries.saturating_mul(size_of::<(u64, i64)>() + 1) / 2 * 3
    }

    /// Returns the leases that keys are bound to.
    pub(super) fn needed(self) -> Needed {
        let ids: BTreeSet<i64> = self.bound.into_values().collect();
        Needed(ids.into_iter().map(|id| (id.to_be_bytes(), self.ttls.get(&id).copied())).collect())
    }
}

impl Needed {
    /// Takes the lease out that the base has with this key and time to live, if the log does not contradict.
    pub(super) fn settle(&mut self, key: &[u8], ttl: i64) {
        let same = |found: &Option<i64>| found.is_none_or(|found| found == ttl);
        if let Some(key) = key.as_array::<8>()
            && self.0.get(key).is_some_and(same)
        {
            self.0.remove(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the IDs of leases whose time to live the log does not name.
    pub(super) fn unknown(&self) -> Vec<i64> {
        self.0.iter().filter(|(_, ttl)| ttl.is_none()).map(|(key, _)| i64::from_be_bytes(*key)).collect()
    }

    /// Takes the leases out whose keys are below this key, and the lease with this key; without a key all of them.
    pub(super) fn take_until(&mut self, key: Option<&[u8]>) -> Vec<([u8; 8], Vec<u8>)> {
        let mut taken = Vec::new();
        while let Some(entry) = self.0.first_entry() {
            if key.is_some_and(|key| &entry.key()[..] > key) {
                break;
            }
            let (key, ttl) = entry.remove_entry();
            taken.push((key, encode(i64::from_be_bytes(key), ttl.unwrap_or(UNKNOWN_TTL))));
        }
        taken
    }
}

/// Returns etcd's `leasepb.Lease` (etcd: server/lease/leasepb/lease.proto).
fn encode(id: i64, ttl: i64) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(1, id, &mut out);
    put_number(2, ttl, &mut out);
    out
}
