//! Where the log begins, and where an existing log continues.
//!
//! This file decides the revision. A log that exists continues after its last segment, whether the store or the spool has it; a
//! new log continues the newest snapshot, so that the snapshot and the log together reach every later revision.

use holdfast_contract::error::{Error, Result};
use holdfast_contract::layout::Folder;
use holdfast_contract::{LogRequest, Origin};
use holdfast_store::Store;

use super::spool::Spool;
use crate::catalog::log;
use crate::catalog::log::bases::find_bases;
use crate::etcd::source::Source;

/// Attempts in which the newest complete snapshot is looked for.
const NEWEST_ATTEMPTS: usize = 64;

/// Returns the last revision before the log's next one.
pub(super) async fn find(
    request: &LogRequest,
    store: &Store,
    lineage: &Folder,
    spool: &Spool,
    source: &Source,
) -> Result<i64> {
    let recorded = log::last_revision(store, &lineage.log()).await?.max(spool.last_revision());
    if let Some(recorded) = recorded {
        check_not_behind(source, recorded)?;
        tracing::info!(revision = recorded, "the log continues");
        return Ok(recorded);
    }
    if let Some(first) = request.from_revision {
        return Ok(first.saturating_sub(1));
    }
    let bases = find_bases(store, lineage, source.facts.cluster_id, NEWEST_ATTEMPTS).await?;
    if let Some(base) = bases.first().filter(|base| base.revision <= source.revision) {
        tracing::info!(revision = base.revision, snapshot = base.key, "the log continues a snapshot");
        return Ok(base.revision);
    }
    tracing::warn!(
        revision = source.revision,
        "the log begins now: a restore from it needs a snapshot that is saved from now on"
    );
    Ok(source.revision)
}

/// Refuses an etcd that has lost revisions: the same numbers would stand for other changes.
pub(super) fn check_not_behind(source: &Source, recorded: i64) -> Result<()> {
    if source.revision >= recorded {
        return Ok(());
    }
    Err(Error::refused(format!(
        "etcd is at revision {}, and the log has recorded revision {recorded} of this etcd cluster: etcd was restored, or \
         lost writes. Begin a log in another place: --cluster, --cluster-uid or --namespace",
        source.revision
    ))
    .with_origin(Origin::Request))
}
