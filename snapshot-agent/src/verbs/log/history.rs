//! Whether etcd is in the history that the log holds. After a restore in place, or without its newest entries, etcd makes other
//! revisions with the numbers of recorded ones.
//!
//! This file decides which facts show another history, and closes the log then. Three facts are compared: the newest revision,
//! the entries of raft, and the changes of the last recorded revision. None of them alone shows every case: etcd passes the
//! recorded revision, an etcd that lost entries keeps its raft, and two histories may make an equal change. The HashKV of checks,
//! which a merge proves, shows the rest.

use holdfast_contract::error::{Error, Result, of_etcd};
use holdfast_contract::layout::Folder;
use holdfast_store::Store;

use crate::catalog::log::{Evidence, close};
use crate::etcd::revisions::{has_compacted, newest_revision, raft_place};
use crate::etcd::source::Source;

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
/// `found`: the checksum of what a watch from this revision has brought.
pub(super) async fn compare(
    store: &Store,
    log: &Folder,
    source: &Source,
    (revision, recorded): (i64, Option<u32>),
    found: Option<u32>,
) -> Result<Option<u32>> {
    if recorded.is_some() && found == recorded {
        return Ok(recorded);
    }
    // After the watch has brought the revision: an earlier answer could be out of date.
    if revision <= 1 || has_compacted(source, revision).await? {
        return Ok(recorded);
    }
    match (recorded, found) {
        (None, _) => Ok(found),
        (Some(_), Some(_)) => Err(close(store, log, (revision, source.revision), Evidence::OtherChanges).await),
        // Each revision has a change: its absence says nothing about the history.
        (Some(_), None) => Err(of_etcd(Error::transient(format!(
            "{} has not sent revision {revision}, with which the watch begins",
            source.facts.endpoint
        )))),
    }
}
