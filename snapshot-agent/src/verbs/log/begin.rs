//! Where the log begins, and where an existing log continues.
//!
//! This file decides the revision. A log that exists continues after its last segment, whether the store or the spool has it; a
//! new log continues the newest snapshot, so that the snapshot and the log together reach every later revision.

use holdfast_contract::LogRequest;
use holdfast_contract::error::Result;
use holdfast_contract::layout::{Folder, SegmentName};
use holdfast_store::Store;

use super::spool::Spool;
use crate::catalog::log;
use crate::catalog::log::bases::find_bases;
use crate::etcd::revisions::newest_revision;
use crate::etcd::source::Source;

/// Attempts in which the newest complete snapshot is looked for.
const NEWEST_ATTEMPTS: usize = 64;

/// Where the log continues.
pub(super) struct Begin {
    /// The last revision before the log's next one.
    pub(super) after: i64,
    /// The newest stored segment.
    pub(super) stored: Option<SegmentName>,
}

/// Returns where the log continues.
pub(super) async fn find(
    request: &LogRequest,
    store: &Store,
    lineage: &Folder,
    spool: &Spool,
    source: &Source,
) -> Result<Begin> {
    let stored = log::newest_segment(store, &lineage.log()).await?;
    let recorded = stored.as_ref().map(|segment| segment.last).max(spool.last_revision());
    if let Some(recorded) = recorded {
        check_not_behind(store, &lineage.log(), source, recorded).await?;
        tracing::info!(revision = recorded, "the log continues");
        return Ok(Begin { after: recorded, stored });
    }
    let begin = |after| Begin { after, stored: None };
    let bases = find_bases(store, lineage, source.facts.cluster_id, NEWEST_ATTEMPTS).await?;
    let newest = bases.iter().map(|base| base.revision).max();
    check_not_behind(store, &lineage.log(), source, newest.unwrap_or_default()).await?;
    if let Some(first) = request.from_revision {
        return Ok(begin(first.saturating_sub(1)));
    }
    if let Some(base) = bases.first() {
        tracing::info!(revision = base.revision, snapshot = base.key, "the log continues a snapshot");
        return Ok(begin(base.revision));
    }
    tracing::warn!(
        revision = source.revision,
        "the log begins now: a restore from it needs a snapshot that is saved from now on"
    );
    Ok(begin(source.revision))
}

/// Refuses an etcd that has lost revisions, and closes the log: the same numbers stand for other changes from now on. The member's
/// own revision may be late, so only a read that a quorum confirms counts.
pub(super) async fn check_not_behind(store: &Store, log: &Folder, source: &Source, recorded: i64) -> Result<()> {
    if source.revision >= recorded {
        return Ok(());
    }
    let found = newest_revision(source).await?;
    if found >= recorded { Ok(()) } else { Err(log::close(store, log, recorded, found).await) }
}
