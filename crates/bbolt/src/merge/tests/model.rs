//! A simple model of an etcd: its keys and leases at each revision, and the records of its whole history.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_segment::{KeyValue, Record, put_number};

use crate::bolt::{self, Bolt, Entry};
use crate::merge::{Merge, MergeError};

/// A record as the model keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) main: i64,
    pub(super) sub: i64,
    pub(super) key: Vec<u8>,
    /// `None`: a tombstone.
    pub(super) put: Option<Put>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Put {
    pub(super) value: Vec<u8>,
    pub(super) create_revision: i64,
    pub(super) version: i64,
    pub(super) lease: i64,
}

impl Row {
    /// The record's value as etcd stores it.
    pub(super) fn value(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let key = &self.key[..];
        let put = self.put.as_ref().map(|Put { value, create_revision, version, lease }| KeyValue {
            key,
            create_revision: *create_revision,
            mod_revision: self.main,
            version: *version,
            value,
            lease: *lease,
        });
        put.unwrap_or(KeyValue { key, ..KeyValue::default() }).encode(&mut out);
        out
    }

    pub(super) fn entry(&self) -> Entry {
        (bolt::rev(self.main, self.sub, self.put.is_none()), self.value())
    }

    pub(super) fn add(&self, merge: &mut Merge<&[u8]>, out: &mut Vec<u8>) -> Result<bool, MergeError> {
        let Self { main, sub, .. } = *self;
        merge.add(&Record { main, sub, tombstone: self.put.is_none(), value: &self.value() }, out)
    }
}

/// The state of an etcd, and its whole history.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) rows: Vec<Row>,
    pub(super) revision: i64,
    pub(super) keys: BTreeMap<Vec<u8>, Put>,
    pub(super) leases: BTreeMap<i64, i64>,
    /// The leases at each revision, from revision 1.
    pub(super) past_leases: Vec<BTreeMap<i64, i64>>,
    pub(super) past_keys: Vec<BTreeMap<Vec<u8>, Put>>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Changes of one transaction.
    Txn(Vec<Change>),
    Grant(u8, i64),
    Revoke(u8),
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Put { key: u8, length: usize, lease: Option<u8> },
    Delete { key: u8 },
}

pub(super) fn key_of(key: u8) -> Vec<u8> {
    format!("/registry/things/{key}").into_bytes()
}

impl Model {
    pub(super) fn new() -> Self {
        let mut model = Self { revision: 1, ..Self::default() };
        model.remember();
        model
    }

    fn remember(&mut self) {
        self.past_leases.push(self.leases.clone());
        self.past_keys.push(self.keys.clone());
    }

    fn commit(&mut self, changes: Vec<(Vec<u8>, Option<Put>)>) {
        if changes.is_empty() {
            return;
        }
        self.revision += 1;
        for (sub, (key, put)) in (0..).zip(changes) {
            match &put {
                Some(put) => drop(self.keys.insert(key.clone(), put.clone())),
                None => drop(self.keys.remove(&key)),
            }
            self.rows.push(Row { main: self.revision, sub, key, put });
        }
        self.remember();
    }

    pub(super) fn run(&mut self, step: &Step) {
        match step {
            Step::Grant(id, ttl) => {
                self.leases.entry(i64::from(*id)).or_insert(*ttl);
            }
            Step::Revoke(id) => {
                let id = i64::from(*id);
                if self.leases.remove(&id).is_some() {
                    let bound = self.keys.iter().filter(|(_, put)| put.lease == id);
                    let changes = bound.map(|(key, _)| (key.clone(), None)).collect();
                    self.commit(changes);
                }
            }
            Step::Txn(changes) => {
                let (mut seen, mut made) = (BTreeSet::new(), Vec::new());
                for change in changes {
                    let (Change::Put { key, .. } | Change::Delete { key }) = change;
                    if !seen.insert(key) {
                        continue;
                    }
                    let key = key_of(*key);
                    let before = self.keys.get(&key);
                    match change {
                        Change::Delete { .. } if before.is_none() => {}
                        Change::Delete { .. } => made.push((key, None)),
                        Change::Put { length, lease, .. } => {
                            let lease = lease.map(i64::from).filter(|lease| self.leases.contains_key(lease));
                            let put = Put {
                                value: vec![b'v'; *length],
                                create_revision: before.map_or(self.revision + 1, |put| put.create_revision),
                                version: before.map_or(1, |put| put.version + 1),
                                lease: lease.unwrap_or_default(),
                            };
                            made.push((key, Some(put)));
                        }
                    }
                }
                self.commit(made);
            }
        }
    }

    pub(super) fn from_steps(steps: &[Step]) -> Self {
        let mut model = Self::new();
        for step in steps {
            model.run(step);
        }
        model
    }

    pub(super) fn at<'a, T>(&self, past: &'a [T], revision: i64) -> &'a T {
        assert!(revision <= self.revision);
        &past[usize::try_from(revision).unwrap() - 1]
    }

    /// The records of a member at this revision, compacted at that one.
    pub(super) fn rows_at(&self, revision: i64, compact: i64) -> Vec<Row> {
        let rows = self.rows.iter().filter(|row| row.main <= revision);
        let kept = rows.filter(|row| {
            let is_newest = || {
                let later = |other: &&Row| {
                    other.key == row.key && (other.main, other.sub) > (row.main, row.sub) && other.main <= compact
                };
                !self.rows.iter().any(|other| later(&other))
            };
            row.main > compact || row.put.is_some() && is_newest()
        });
        kept.cloned().collect()
    }

    /// The database of such a member.
    pub(super) fn database(&self, revision: i64, compact: i64, size: usize, inline: &[&str]) -> Vec<u8> {
        let rows: Vec<Entry> = self.rows_at(revision, compact).iter().map(Row::entry).collect();
        let leases = self.at(&self.past_leases, revision).iter();
        let leases = leases.map(|(id, ttl)| (id.to_be_bytes().to_vec(), lease_value(*id, *ttl))).collect();
        let mut meta = vec![
            (b"consistent_index".to_vec(), 77_u64.to_be_bytes().to_vec()),
            (b"term".to_vec(), 5_u64.to_be_bytes().to_vec()),
        ];
        if compact > 0 {
            let rev = bolt::rev(compact, 0, false);
            meta.splice(1..1, [b"finishedCompactRev", &b"scheduledCompactRev"[..]].map(|n| (n.to_vec(), rev.clone())));
        }
        let member = br#"{"id":4660,"peerURLs":["http://m:2380"],"name":"m"}"#.to_vec();
        let all: Vec<(&str, Vec<Entry>)> = vec![
            ("auth", vec![(b"authEnabled".to_vec(), vec![0])]),
            ("key", rows),
            ("lease", leases),
            ("members", vec![(b"0000000000001234".to_vec(), member)]),
            ("meta", meta),
        ];
        let mut bolt = Bolt::new(size);
        let is_inline = |name: &str, all: &[Entry]| {
            inline.contains(&name)
                && all.iter().map(|(key, value)| key.len() + value.len() + 16).sum::<usize>() < size / 4
        };
        let trees: Vec<(&str, u64)> = all
            .iter()
            .filter(|(name, all)| !is_inline(name, all))
            .map(|(name, all)| (*name, bolt.tree(all, |_| ())))
            .collect();
        let inline: Vec<(&str, &[Entry])> =
            all.iter().filter(|(name, all)| is_inline(name, all)).map(|(name, all)| (*name, &all[..])).collect();
        bolt.finish(&trees, &inline)
    }

    /// Rows of a segment: these revisions, as an archiver records them.
    pub(super) fn rows_between(&self, first: i64, last: i64) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| (first..=last).contains(&row.main))
    }
}

pub(super) fn lease_value(id: i64, ttl: i64) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(1, id, &mut out);
    put_number(2, ttl, &mut out);
    out
}
