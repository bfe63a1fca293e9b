//! Continues a restored snapshot with the log up to a point in time, in the file on the volume.
//!
//! This file decides the order: segments are read one after the other while the merge writes, the meta pages come after a
//! sync, and the result is proven like a snapshot. Users that changed after the snapshot end the restore, unless the request
//! allows it: the snapshot and each segment hold the revision of the users; without either a change in the log counts.
//! `point.rs` has chosen the segments; `crates/bbolt/src/merge.rs` decides which records and leases come into the database.

use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_bbolt::graft;
use holdfast_bbolt::merge::{Merge, MergeError, Merged};
use holdfast_bbolt::scan::{NEVER, Proven, Reader};
use holdfast_contract::error::{Error, Result, task_error};
use holdfast_contract::layout::SegmentName;
use holdfast_contract::{PointProof, PointReport};
use holdfast_io::memory::file_budget;
use holdfast_io::progress::Progress;
use holdfast_segment::Entry;
use holdfast_store::Store;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::from_manifest::Placed;
use super::point::{Chosen, open_segment};
use super::volume::trouble;
use super::{RestoreRun, bump, contents, quota};
use crate::catalog::log::Check;
use crate::catalog::log::read::{fetch, unreadable};
use crate::format::crypt::Identities;
use crate::verbs::common::unsound;

/// Segments in memory beside the merged one.
const AHEAD: usize = 1;

const MERGING: &str = "writing the merged revisions";

/// Meaning of users or roles that changed after the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthChange {
    /// The restore ends.
    Refused,
    /// The result has the users and roles of the snapshot.
    Allowed,
    /// The merge ends: only a snapshot of etcd holds them.
    NeedsSnapshot,
}

/// A segment on its way to the merge.
struct Fetched {
    name: SegmentName,
    uri: String,
    stored: Bytes,
}

/// The inputs of a merge.
struct Replay {
    file: Arc<File>,
    db_bytes: u64,
    cluster_id: u64,
    base_revision: i64,
    next_base: Option<i64>,
    revision: i64,
    identities: Option<Identities>,
    users: AuthChange,
    check: Option<Check>,
    log: String,
}

/// Continues a downloaded snapshot; without a point in time it stays as it is.
pub(super) async fn continue_snapshot(run: &RestoreRun<'_>, placed: Placed) -> Result<Placed> {
    let Some(chosen) = &run.point else { return Ok(placed) };
    let RestoreRun { request, store, .. } = run;
    let Placed { mut restored, file, writeback, db_bytes, .. } = placed;
    let users = if request.allow_auth_changed { AuthChange::Allowed } else { AuthChange::Refused };
    let stall = Duration::from_secs(request.stall_seconds.into());
    let (merged, proven, proof) = merge(store, chosen, (Arc::clone(&file), db_bytes), users, stall).await?;
    quota::check(request, merged.bytes)?;
    restored.db_bytes = merged.bytes;
    contents::record(run, &mut restored, Some(&proven), &file)?;
    let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    restored.point = Some(Box::new(PointReport {
        base_revision: chosen.base_revision,
        revision: merged.revision,
        asked: chosen.asked,
        records: merged.records,
        segments: count(chosen.segments.len()),
        proof,
        unknown_leases: count(merged.unknown_ttls.len()),
    }));
    if let Some(lease) = merged.unknown_ttls.first() {
        tracing::warn!(
            leases = merged.unknown_ttls.len(),
            "the log does not name the time to live of some leases, such as {lease:x}: they end after one hour"
        );
    }
    let bump = bump::for_etcdutl(request.revision_bump, Some(&proven), &*file, merged.bytes)?;
    tracing::info!(asked = %chosen.asked, revision = merged.revision, records = merged.records, "the log continues the snapshot");
    Ok(Placed { restored, bump, file, writeback, db_bytes: merged.bytes })
}

/// Merges the log into the database of a file, and proves the result.
pub(super) async fn merge(
    store: &Store,
    chosen: &Chosen,
    database: (Arc<File>, u64),
    users: AuthChange,
    stall: Duration,
) -> Result<(Merged, Proven, PointProof)> {
    let (to_merge, segments) = mpsc::channel(AHEAD);
    let replay = Replay::new(chosen, users, database, store.uri(&chosen.log));
    let merging = spawn_blocking(move || replay.run(segments));
    let fetched = fetch_segments(store, chosen, stall, to_merge).await;
    let merged = merging.await.map_err(|error| task_error(&error))?;
    // A missing segment ends the merge too, and its own error says more.
    fetched?;
    merged
}

/// Sends the segments to the merge, in order.
async fn fetch_segments(
    store: &Store,
    chosen: &Chosen,
    stall: Duration,
    to_merge: mpsc::Sender<Fetched>,
) -> Result<()> {
    let progress = Progress::new("reading the log", chosen.stored_bytes);
    for name in &chosen.segments {
        let key = name.key(&chosen.log).map_err(|error| holdfast_store::layout(&error))?;
        let stored = progress.watch(stall, fetch(store, &chosen.log, name)).await?;
        progress.add(stored.len());
        let fetched = Fetched { name: name.clone(), uri: store.uri(&key), stored };
        if to_merge.send(fetched).await.is_err() {
            // The merge has failed.
            break;
        }
    }
    Ok(())
}

impl Replay {
    fn new(chosen: &Chosen, users: AuthChange, (file, db_bytes): (Arc<File>, u64), log: String) -> Self {
        Self {
            file,
            db_bytes,
            cluster_id: chosen.cluster_id,
            base_revision: chosen.base_revision,
            next_base: chosen.next_base,
            revision: chosen.revision,
            identities: chosen.identities.clone(),
            users,
            check: chosen.check.clone(),
            log,
        }
    }

    /// Merges the segments, and proves the result.
    fn run(&self, segments: mpsc::Receiver<Fetched>) -> Result<(Merged, Proven, PointProof)> {
        let merged = self.merge(segments)?;
        let (uri, file) = (&self.log, &*self.file);
        let mut reader = Reader::open(file, merged.bytes, file_budget()).map_err(|error| unsound(uri, &error))?;
        let proven = reader.prove(None).map_err(|error| unsound(uri, &error))?;
        if proven.revision != self.revision {
            return Err(Error::corrupt(format!(
                "{uri}: the merged database is at revision {}, and not at {}. Restore another point: --at-revision",
                proven.revision, self.revision
            )));
        }
        let compacted = proven.compact_revision.unwrap_or(NEVER);
        // Records that the snapshot lacks cannot be hashed.
        let Some(check) = self.check.as_ref().filter(|check| check.compact_revision >= compacted) else {
            return Ok((merged, proven, PointProof::Chained));
        };
        let found = reader.hash_kv(self.revision, check.compact_revision).map_err(|error| unsound(uri, &error))?;
        if found.hash != check.hash_kv {
            return Err(Error::corrupt(format!(
                "{uri}: at revision {} the merged database has HashKV {}, and member {} had {}. Restore another point: \
                 --at-revision",
                self.revision, found.hash, check.member_id, check.hash_kv
            )));
        }
        Ok((merged, proven, PointProof::HashKV))
    }

    /// Writes the records of the segments behind the snapshot, then the meta pages.
    fn merge(&self, mut segments: mpsc::Receiver<Fetched>) -> Result<Merged> {
        let file = &*self.file;
        let failed = |error| self.failure(error);
        let users = graft::auth_revision(file, self.db_bytes).map_err(|why| failed(why.into()))?;
        let mut merge = Merge::begin(file, self.db_bytes, self.revision, file_budget()).map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.seek(SeekFrom::Start(merge.offset())).map_err(trouble(MERGING))?;
        while let Some(Fetched { name, uri, stored }) = segments.blocking_recv() {
            let of = (&name, self.cluster_id);
            let mut reader = open_segment(&uri, of, stored, self.identities.as_ref())?;
            let in_segment = reader.header().auth_revision;
            let both = users.zip(in_segment);
            if both.is_some_and(|(users, in_segment)| users != in_segment) {
                self.refuse_auth(&name)?;
            }
            while let Some(entry) = reader.next().map_err(|error| unreadable(&uri, &error))? {
                match entry {
                    Entry::Record(record) => {
                        merge.add(&record, &mut out).map_err(|error| self.failure(error).context(&uri))?;
                    }
                    Entry::Lease { id, ttl } => merge.add_lease(id, ttl).map_err(failed)?,
                    Entry::AuthChanged { revision } if both.is_none() && revision >= self.base_revision => {
                        self.refuse_auth(&name)?;
                    }
                    Entry::AuthChanged { .. } | Entry::Sample { .. } => {}
                }
            }
            merge.end_segment();
        }
        let merged = merge.finish(&mut out).map_err(failed)?;
        drop(out);
        let write = || {
            // Before a page refers to them.
            file.sync_data()?;
            for page in &merged.metas {
                file.write_all_at(&page.bytes, page.id.saturating_mul(page.bytes.len() as u64))?;
            }
            // A snapshot may be longer than its used pages.
            file.set_len(merged.bytes)
        };
        write().map_err(trouble(MERGING))?;
        Ok(merged)
    }

    /// Refuses a segment by whose end users have changed since the snapshot.
    fn refuse_auth(&self, segment: &SegmentName) -> Result<()> {
        let way_out = match self.users {
            AuthChange::Allowed => return Ok(()),
            AuthChange::Refused => {
                format!("set --allow-auth-changed to restore the users and roles of revision {}", self.base_revision)
            }
            AuthChange::NeedsSnapshot => "save a snapshot with `holdfast agent save`".to_owned(),
        };
        let before = segment.first.saturating_sub(1).max(self.base_revision);
        let after = self.next_base.map(|next| format!(" and --at-revision {next}")).unwrap_or_default();
        Err(Error::config(format!(
            "{}: users or roles changed after revision {before}, and the log does not hold them. The nearest points are \
             --at-revision {before}{after}; or {way_out}",
            self.log
        )))
    }

    /// Returns the error of a failed merge.
    fn failure(&self, error: MergeError) -> Error {
        let log = &self.log;
        match error {
            MergeError::Write(error) => trouble(MERGING)(error),
            MergeError::OverBudget { .. } => Error::config(format!(
                "{log}: {error}. Raise resources.limits.memory of its Pod (for a restore, \
                 spec.bootstrap.restore.agent.resources)"
            )),
            MergeError::Hole { .. }
            | MergeError::Short { .. }
            | MergeError::Late { .. }
            | MergeError::Record { .. }
            | MergeError::Base(_) => Error::corrupt(format!("{log}: {error}. Restore another point: --at-revision")),
        }
    }
}
