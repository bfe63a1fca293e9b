//! Whether etcd is in the history that the log holds. After a restore in place, or without its newest entries, etcd makes other
//! revisions with the numbers of recorded ones.
//!
//! This file decides which facts show another history, and closes the log then. Three facts are compared: the newest revision,
//! the entries of raft, and the changes of the last recorded revision. None of them alone shows every case: etcd passes the
//! recorded revision, an etcd that lost entries keeps its raft, and two histories may make an equal change. The HashKV of checks,
//! which a merge proves, shows the rest.

use std::collections::BTreeSet;

use holdfast_contract::error::{Error, Result, of_etcd, task_error};
use holdfast_layout::{Folder, SegmentName};
use holdfast_segment::{Entry, Record, RevisionSum, key_of};
use holdfast_store::Store;
use tokio::task::spawn_blocking;

use holdfast_catalog::log::{Evidence, close, find_segment, read};
use holdfast_etcd::revisions::{Sums, has_compacted, newest_revision, raft_place};
use holdfast_etcd::source::Source;

/// Refuses an etcd whose newest revision or whose raft is behind the log, and closes the log. `recorded`: the last recorded
/// revision, and the least number of entries of raft without a revision. The member's own revision may be late, so only a read
/// that a quorum confirms counts.
pub(super) async fn check_place(
    store: &Store,
    log: &Folder,
    source: &Source,
    (recorded, least): (i64, Option<i64>),
) -> Result<()> {
    if source.revision < recorded {
        let found = newest_revision(source).await?;
        if found < recorded {
            return Err(close(store, log, (recorded, found), Evidence::Fell).await);
        }
    }
    let Some(least) = least else { return Ok(()) };
    match raft_place(source).await? {
        Some(place) if !place.may_follow(least) => {
            Err(close(store, log, (recorded, place.revision), Evidence::FewerEntries).await)
        }
        Some(_) | None => Ok(()),
    }
}

/// Compares the changes of the last recorded revision, and returns their checksum. `recorded`: the revision with its checksum.
/// `found`: the checksums of what a watch from this revision has brought.
pub(super) async fn compare(
    store: &Store,
    log: &Folder,
    source: &Source,
    (revision, recorded): (i64, Option<u32>),
    found: Sums,
) -> Result<Option<u32>> {
    if revision <= 1 || recorded.is_some() && found.changes == recorded {
        return Ok(recorded);
    }
    // After the watch has brought the revision: an earlier answer could be out of date.
    if has_compacted(source, revision).await? {
        return match recorded_puts(store, log, revision).await {
            // Nothing of the revision has come: silence says nothing about the history.
            Ok(Some(Some(_))) if found.changes.is_none() => Err(unsent(source, revision)),
            Ok(Some(puts)) if puts != found.puts => {
                Err(close(store, log, (revision, source.revision), Evidence::OtherChanges).await)
            }
            Ok(_) => Ok(recorded),
            Err(error) => {
                tracing::warn!(
                    revision,
                    "etcd has compacted the last recorded revision, which cannot be compared: {error}"
                );
                Ok(recorded)
            }
        };
    }
    match (recorded, found.changes) {
        (None, changes) => Ok(changes),
        (Some(_), Some(_)) => Err(close(store, log, (revision, source.revision), Evidence::OtherChanges).await),
        // Each revision has a change: its absence says nothing about the history.
        (Some(_), None) => Err(unsent(source, revision)),
    }
}

fn unsent(source: &Source, revision: i64) -> Error {
    let endpoint = &source.facts.endpoint;
    of_etcd(Error::transient(format!("{endpoint} has not sent revision {revision}, with which the watch begins")))
}

/// Reads the checksum of a recorded revision's puts, which etcd keeps at its compact revision; the inner `None`: it has none. The
/// outer `None`: no stored segment that is readable without a key holds the revision, or the revision deletes a key that it has
/// put, so that etcd keeps not all of them.
async fn recorded_puts(store: &Store, log: &Folder, revision: i64) -> Result<Option<Option<u32>>> {
    let holds = |name: &SegmentName| name.first <= revision && revision <= name.last && !name.encrypted;
    let Some(name) = find_segment(store, log, holds).await? else { return Ok(None) };
    let stored = read::fetch(store, log, &name).await?;
    let reading = spawn_blocking(move || {
        let (mut sum, mut put, mut deletes_own) = (None::<RevisionSum>, BTreeSet::new(), false);
        let mut reader = read::open(stored, None)?;
        while let Some(entry) = reader.next()? {
            let Entry::Record(Record { main, tombstone, value, .. }) = entry else { continue };
            let Some(key) = key_of(value).filter(|_| main == revision) else { continue };
            if tombstone {
                deletes_own |= put.contains(key);
            } else {
                put.insert(key.to_vec());
                sum.get_or_insert_default().add(false, value);
            }
        }
        Ok((!deletes_own).then(|| sum.map(|sum| sum.get())))
    });
    let read = reading.await.map_err(|error| task_error(&error))?;
    read.map_err(|error| read::unreadable("the segment of the last recorded revision", &error))
}
