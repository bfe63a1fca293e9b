//! Turns a tree into a proof: the same steps for a stream's summaries and for a file.

use super::budget::{Meter, Place};
use super::contents::{Contents, Refused};
use super::hashkv::fold;
use super::page::{self, Meta};
use super::proof::{HashKv, NoHashKv, Proven, ScanError};
use super::records::{Records, Revs, look_like_records};
use super::summary::Source;
use super::tree::{Bucket, Leaf, Tree};

/// etcd's value for "never compacted".
pub const NEVER: i64 = -1;

/// Facts that are known before the walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) meta: Meta,
    pub(super) bytes: u64,
    /// The compact revision for which the records were kept, if the caller gave one.
    pub(super) compact: Option<i64>,
}

/// The leaves of the bucket `key`, in order.
#[derive(Debug, Default)]
struct Keys {
    leaves: Vec<Place>,
    revisions: u64,
    newest: Option<i64>,
    /// Whether a leaf's records exceeded the budget.
    left_out: bool,
}

impl Keys {
    fn add(&mut self, revs: Revs) {
        self.revisions += revs.count;
        self.newest = Some(revs.last.main);
        match revs.place {
            Some(place) if !self.left_out => self.leaves.push(place),
            _ => self.left_out = true,
        }
    }
}

/// Walks and checks the tree, and returns the database's facts.
pub(super) fn prove(
    source: &mut impl Source,
    before: Before,
    mut records: Records,
    meter: &mut Meter,
) -> Result<Proven, ScanError> {
    let Before { meta, bytes, compact } = before;
    whole(&meta, bytes)?;
    let over = ScanError::OverBudget { budget: meter.limit() };
    let fingerprints = records.fingerprints.clone();
    let mut tree = Tree::new(meta, meter)?;
    let (mut contents, mut keys) = (Contents::default(), None);
    for bucket in tree.buckets(source, &fingerprints, meter)? {
        if bucket.name == b"key" {
            let mut found = Keys::default();
            tree.bucket(source, &fingerprints, &bucket, &mut |leaf| {
                found.add(match leaf {
                    Leaf::Records(revs) => revs,
                    Leaf::Raw { count: 0, .. } => return Ok(()),
                    Leaf::Raw { id, count, page } => {
                        records.add(page, count, meter).map_err(|what| ScanError::Page { page: id, what })?
                    }
                });
                if found.leaves.len() == found.leaves.capacity() {
                    meter.take(found.leaves.len() * size_of::<Place>()).map_err(|_| over.clone())?;
                }
                Ok(())
            })?;
            keys = Some(found);
        } else {
            let walked = tree.bucket(source, &fingerprints, &bucket, &mut |leaf| {
                entries(leaf, &bucket, |key, value| contents.add(&bucket.name, key, value, meter), &over)
            });
            walked?;
        }
    }
    tree.account(source, meter)?;
    let no_keys = || ScanError::Bucket { bucket: "key".to_owned(), what: "it is missing: not etcd's database" };
    Ok(verdict(before, &tree, &records, &keys.ok_or_else(no_keys)?, contents, compact, meter))
}

/// Checks that all pages up to the high-water mark exist.
pub(super) fn whole(meta: &Meta, bytes: u64) -> Result<(), ScanError> {
    let needed = meta.bytes();
    if bytes < needed || !bytes.is_multiple_of(meta.page_size as u64) {
        return Err(ScanError::Cut { bytes, needed });
    }
    Ok(())
}

/// Passes the entries of a leaf to `take`, for a bucket other than `key`.
pub(super) fn entries(
    leaf: Leaf<'_>,
    bucket: &Bucket,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Refused>,
    over: &ScanError,
) -> Result<(), ScanError> {
    // In a file, and inline in a parent, such a page has its bytes: the verdict must be the same.
    let (id, count, page) = match leaf {
        Leaf::Raw { id, count, page } if !look_like_records(page, count) => (id, count, page),
        _ => return Err(bucket.error("it has a page that looks like one of the bucket `key`")),
    };
    for element in page::leaf(page, count) {
        let element = element.map_err(|what| ScanError::Page { page: id, what })?;
        // etcd has no nested buckets.
        if element.flags != 0 {
            return Err(bucket.error("it has a bucket within"));
        }
        take(element.key, element.value).map_err(|refused| match refused {
            Refused::Wrong(what) => bucket.error(what),
            Refused::OverBudget => over.clone(),
        })?;
    }
    Ok(())
}

fn verdict(
    before: Before,
    tree: &Tree,
    records: &Records,
    keys: &Keys,
    contents: Contents,
    asked: Option<i64>,
    meter: &mut Meter,
) -> Proven {
    let Before { meta, bytes, .. } = before;
    let compact_revision = contents.compact_revision();
    let compact = compact_revision.unwrap_or(NEVER);
    // As a member determines its revision at its start.
    let revision = keys.newest.unwrap_or(1).max(compact).max(1);
    let folded = (!keys.left_out).then(|| fold(records, &keys.leaves, keys.revisions, compact, meter)).flatten();
    let comparable = match asked {
        Some(asked) if asked != compact => Err(NoHashKv::Moved { asked, found: compact }),
        _ if contents.scheduled != contents.finished => {
            Err(NoHashKv::Unfinished { scheduled: compact, finished: contents.finished.unwrap_or(NEVER) })
        }
        _ => Ok(()),
    };
    let hash_kv = comparable.and_then(|()| {
        let folded = folded.ok_or(NoHashKv::OverBudget)?;
        Ok(HashKv { hash: folded.hash, revision, compact_revision: compact })
    });
    Proven {
        revision,
        last_record: keys.newest,
        compact_revision,
        keys: folded.map(|folded| folded.keys),
        revisions: keys.revisions,
        hash_kv,
        consistent_index: contents.consistent_index,
        term: contents.term,
        storage_version: contents.storage_version,
        cluster_version: contents.cluster_version,
        members: contents.members,
        removed_members: contents.removed,
        auth_enabled: contents.auth_enabled,
        users: contents.users,
        first_users: contents.first_users.into_iter().collect(),
        roles: contents.roles,
        leases: contents.leases,
        alarms: contents.alarms,
        bytes,
        pages: meta.high_water,
        pages_in_use: tree.count(),
        page_size: u32::try_from(meta.page_size).unwrap_or(u32::MAX),
    }
}
