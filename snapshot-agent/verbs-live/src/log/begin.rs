//! Where the log begins, and where an existing log continues.
//!
//! This file decides the revision. A log that exists continues after its last segment, whether the store or the spool has it; a
//! new log continues the newest snapshot, so that the snapshot and the log together reach every later revision, unless etcd was
//! restored in place since.

use holdfast_contract::error::Result;
use holdfast_contract::{ExitClass, LogRequest};
use holdfast_io::clock;
use holdfast_layout::{Folder, SegmentName};
use holdfast_store::Store;
use jiff::Timestamp;

use super::history;
use super::spool::{Spool, Waiting};
use holdfast_catalog::log;
use holdfast_catalog::log::bases::find_bases;
use holdfast_catalog::log::read;
use holdfast_etcd::revisions::raft_place;
use holdfast_etcd::source::Source;

/// Attempts in which the newest complete snapshot is looked for.
const NEWEST_ATTEMPTS: usize = 64;

/// Where the log continues.
pub(super) struct Begin {
    /// The last revision before the log's next one.
    pub(super) after: i64,
    /// The checksum of that revision, if a segment names it.
    pub(super) sum: Option<u32>,
    /// Time of the last sample before.
    pub(super) known_at: Timestamp,
    /// Least number of entries of raft without a revision up to there, if known.
    pub(super) least: Option<i64>,
    /// The newest stored segment.
    pub(super) stored: Option<SegmentName>,
}

/// Returns where the log continues.
pub(super) async fn find(
    request: &LogRequest,
    store: &Store,
    (lineage, log): (&Folder, &Folder),
    spool: &Spool,
    source: &Source,
) -> Result<Begin> {
    let stored = log::newest_segment(store, log).await?;
    let waiting = spool.newest().filter(|(waits, _)| stored.as_ref().is_none_or(|stored| stored.last <= waits.last));
    if let Some(newest) = waiting.as_ref().map(|(name, _)| name).or(stored.as_ref()).cloned() {
        let least = match find_least(store, log, &newest, waiting.as_ref().map(|(_, object)| object)).await {
            Ok(least) => least,
            Err(error) if !matches!(error.class(), ExitClass::Corrupt | ExitClass::NotFound) => return Err(error),
            Err(error) => {
                // The comparison of the last revision does not need it.
                tracing::warn!("the newest segment does not name the place of raft: {error}");
                None
            }
        };
        history::check_place(store, log, source, (newest.last, least)).await?;
        tracing::info!(revision = newest.last, "the log continues");
        let sum = newest.tail.and_then(|tail| tail.sum);
        return Ok(Begin { after: newest.last, sum, known_at: newest.at, least, stored });
    }
    let bases = find_bases(store, lineage, source.facts.cluster_id, NEWEST_ATTEMPTS).await?;
    let newest = bases.iter().map(|base| base.revision).max();
    history::check_place(store, log, source, (newest.unwrap_or_default(), None)).await?;
    let begin = |after, known_at| Begin { after, sum: None, known_at, least: None, stored: None };
    if let Some(first) = request.from_revision {
        return Ok(begin(first.saturating_sub(1), clock::now()));
    }
    let place = raft_place(source).await?;
    let is_earlier = |least: i64| place.is_none_or(|place| place.may_follow(least));
    if let Some(base) = bases.first().filter(|base| !is_earlier(base.least)) {
        tracing::warn!(snapshot = base.key, "etcd was restored in place after the newest snapshot");
    } else if let Some(base) = bases.first() {
        tracing::info!(revision = base.revision, snapshot = base.key, "the log continues a snapshot");
        return Ok(begin(base.revision, base.started_at));
    }
    tracing::warn!(
        revision = source.revision,
        "the log begins now: a restore from it needs a snapshot that is saved from now on"
    );
    Ok(begin(source.revision, clock::now()))
}

/// Reads the place of raft from the header of the newest segment, and of an encrypted log from the newest check; `None`: the
/// object does not have it.
async fn find_least(
    store: &Store,
    log: &Folder,
    newest: &SegmentName,
    waiting: Option<&Waiting>,
) -> Result<Option<i64>> {
    if newest.encrypted {
        return Ok(log::newest_check(store, log).await?.and_then(|check| check.least));
    }
    let stored = match waiting {
        Some(object) => object.read().await?,
        None => read::fetch(store, log, newest).await?,
    };
    let reader = read::open(stored, None).map_err(|error| read::unreadable("the newest segment", &error))?;
    Ok(reader.header().raft.map(|place| place.least()))
}
