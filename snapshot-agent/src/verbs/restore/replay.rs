//! Continues a restored snapshot with the log up to a point in time, in the file on the volume.
//!
//! This file decides the order: segments are read one after the other while the merge writes, the meta pages come after a
//! sync, and the result is proven like a snapshot. Users that changed after the snapshot end the restore, unless the request
//! allows it: the snapshot and each segment hold the revision of the users. A segment without one ends the restore too; without
//! one in the snapshot a change in the log counts. Where a segment is damaged and others hold its revisions, the merge begins
//! again with these. Segments of two histories end the restore: at each joint checksums and raft's entries are compared, and the
//! last HashKV of a member before the point is proven too.
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
use holdfast_contract::{ExitClass, PointProof, PointReport};
use holdfast_io::memory::file_budget;
use holdfast_io::progress::Progress;
use holdfast_segment::{Entry, RevisionSum};
use holdfast_store::Store;
use jiff::SignedDuration;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::from_manifest::Placed;
use super::moment::Moment;
use super::point::Chosen;
use super::segments::{ANOTHER, nearest, open_segment};
use super::volume::trouble;
use super::{RestoreRun, bump, contents, quota};
use crate::catalog::log::Check;
use crate::catalog::log::joints::{Fork, Joints};
use crate::catalog::log::read::{fetch, unreadable};
use crate::catalog::merged::hash_database;
use crate::format::crypt::Identities;
use crate::verbs::common::unsound;

/// Usual time between two samples at most: the archiver takes one each second.
const USUAL_BETWEEN_SAMPLES: SignedDuration = SignedDuration::from_secs(5);

/// Segments in memory beside the merged one.
const AHEAD: usize = 1;

/// The problem of users in the log, for errors.
const CHANGED: &str = "users or roles changed";

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
    /// Whether the result is hashed.
    hashes: bool,
    check: Option<Check>,
    check_between: Option<Check>,
    base_least: i64,
    log: String,
}

/// A merge that failed, and the segment that cannot be read.
struct Failed {
    error: Error,
    damaged: Option<SegmentName>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, damaged: None }
    }
}

impl Failed {
    fn reading(name: &SegmentName, error: Error) -> Self {
        let damaged = (error.class() == ExitClass::Corrupt).then(|| name.clone());
        Self { error, damaged }
    }
}

/// The result of a merge.
pub(super) struct Continued {
    pub(super) merged: Merged,
    pub(super) proven: Proven,
    pub(super) proof: PointProof,
    /// sha256 of the proven database, if the caller publishes it.
    pub(super) sha256: Option<[u8; 32]>,
    /// Number of segments that were read.
    pub(super) segments: u64,
}

/// Continues a downloaded snapshot; without a point in time it stays as it is.
pub(super) async fn continue_snapshot(run: &RestoreRun<'_>, placed: Placed) -> Result<Placed> {
    let Some(chosen) = &run.point else { return Ok(placed) };
    let RestoreRun { request, store, .. } = run;
    let Placed { mut restored, file, writeback, db_bytes, .. } = placed;
    let users = if request.allow_auth_changed { AuthChange::Allowed } else { AuthChange::Refused };
    let stall = Duration::from_secs(request.stall_seconds.into());
    let continued = merge(store, chosen, (&file, db_bytes), (users, false), stall).await?;
    let Continued { merged, proven, proof, segments, .. } = continued;
    quota::check(request, merged.bytes)?;
    restored.db_bytes = merged.bytes;
    contents::record(run, &mut restored, Some(&proven), &file)?;
    restored.point = Some(Box::new(PointReport {
        base_revision: chosen.base_revision,
        revision: merged.revision,
        asked: chosen.asked,
        records: merged.records,
        segments,
        proof,
        unknown_leases: u64::try_from(merged.unknown_ttls.len()).unwrap_or(u64::MAX),
        known_at: chosen.moment.map(|moment| moment.known_at),
        changed_by: chosen.moment.and_then(|moment| moment.changed_by),
    }));
    warn_of_pause(chosen);
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

/// Warns of a requested time that is later than the known time of the restored revision.
fn warn_of_pause(chosen: &Chosen) {
    let Some(Moment { revision, known_at, changed_by: Some(changed_by) }) = chosen.moment else { return };
    if changed_by.duration_since(known_at) > USUAL_BETWEEN_SAMPLES {
        tracing::warn!(
            asked = %chosen.asked, revision, %known_at, %changed_by,
            "the archiver was away: the log does not say when between both times etcd made the changes that are left out"
        );
    }
}

/// Merges the log into the database of a file, hashes the result if asked, and proves it.
pub(super) async fn merge(
    store: &Store,
    chosen: &Chosen,
    (file, db_bytes): (&Arc<File>, u64),
    (users, hashes): (AuthChange, bool),
    stall: Duration,
) -> Result<Continued> {
    let (mut cover, mut chain) = (chosen.cover.clone(), chosen.segments.clone());
    loop {
        let replay = Replay::new(chosen, (users, hashes), (Arc::clone(file), db_bytes), store.uri(&chosen.log));
        let Failed { error, damaged } = match merge_chain(store, chosen, &chain, replay, stall).await {
            Ok(continued) => {
                let segments = u64::try_from(chain.len()).unwrap_or(u64::MAX);
                return Ok(Continued { segments, ..continued });
            }
            Err(failed) => failed,
        };
        let Some(damaged) = damaged else { return Err(error) };
        cover = cover.without(&damaged);
        let Some(others) = cover.chain(chosen.base_revision, chosen.revision) else { return Err(error) };
        tracing::warn!(
            "a segment is damaged, and others hold its revisions: the merge begins again with these: {error}"
        );
        chain = others.into_iter().cloned().collect();
    }
}

/// Reads the segments of a chain, and merges them.
async fn merge_chain(
    store: &Store,
    chosen: &Chosen,
    chain: &[SegmentName],
    replay: Replay,
    stall: Duration,
) -> Result<Continued, Failed> {
    let (to_merge, segments) = mpsc::channel(AHEAD);
    let merging = spawn_blocking(move || replay.run(segments));
    let fetched = fetch_segments(store, chosen, chain, to_merge, stall).await;
    let merged = merging.await.map_err(|error| task_error(&error))?;
    // A missing segment ends the merge too, and its own error says more.
    fetched?;
    merged
}

/// Sends the segments to the merge, in order.
async fn fetch_segments(
    store: &Store,
    chosen: &Chosen,
    chain: &[SegmentName],
    to_merge: mpsc::Sender<Fetched>,
    stall: Duration,
) -> Result<()> {
    let progress = Progress::new("reading the log", chosen.stored_bytes);
    for name in chain {
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
    fn new(
        chosen: &Chosen,
        (users, hashes): (AuthChange, bool),
        (file, db_bytes): (Arc<File>, u64),
        log: String,
    ) -> Self {
        Self {
            file,
            db_bytes,
            cluster_id: chosen.cluster_id,
            base_revision: chosen.base_revision,
            next_base: chosen.next_base,
            revision: chosen.revision,
            identities: chosen.identities.clone(),
            users,
            hashes,
            check: chosen.check.clone(),
            check_between: chosen.check_between.clone(),
            base_least: chosen.base_least,
            log,
        }
    }

    /// Merges the segments, and proves the result.
    fn run(&self, segments: mpsc::Receiver<Fetched>) -> Result<Continued, Failed> {
        let merged = self.merge(segments)?;
        let (uri, file) = (&self.log, &*self.file);
        // Before the proof: what changes later has another hash.
        let sha256 = if self.hashes { Some(hash_database(file, merged.bytes)?) } else { None };
        let mut reader = Reader::open(file, merged.bytes, file_budget()).map_err(|error| unsound(uri, &error))?;
        let proven = reader.prove(None).map_err(|error| unsound(uri, &error))?;
        if proven.revision != self.revision {
            let (found, wanted) = (proven.revision, self.revision);
            let message = format!("{uri}: the merged database is at revision {found}, and not at {wanted}. {ANOTHER}");
            return Err(Error::corrupt(message).into());
        }
        let compacted = proven.compact_revision.unwrap_or(NEVER);
        // Records that the snapshot lacks cannot be hashed. A check at the point proves all before it.
        let comparable = |check: &&Check| check.compact_revision >= compacted;
        let at_point = self.check.as_ref().filter(comparable);
        let Some(check) = at_point.or(self.check_between.as_ref().filter(comparable)) else {
            return Ok(Continued { merged, proven, proof: PointProof::Chained, sha256, segments: 0 });
        };
        let found = reader.hash_kv(check.revision, check.compact_revision).map_err(|error| unsound(uri, &error))?;
        if found.hash != check.hash_kv {
            let points: Vec<i64> = std::iter::once(self.base_revision).chain(self.next_base).collect();
            let message = format!(
                "{uri}: at revision {} the merged database has HashKV {}, and member {} had {}. {}",
                check.revision,
                found.hash,
                check.member_id,
                check.hash_kv,
                nearest(&points)
            );
            return Err(Error::corrupt(message).into());
        }
        let proof = if at_point.is_some() { PointProof::HashKV } else { PointProof::Chained };
        Ok(Continued { merged, proven, proof, sha256, segments: 0 })
    }

    /// Writes the records of the segments behind the snapshot, then the meta pages.
    fn merge(&self, mut segments: mpsc::Receiver<Fetched>) -> Result<Merged, Failed> {
        let file = &*self.file;
        let failed = |error| self.failure(error);
        let users = graft::auth_revision(file, self.db_bytes).map_err(|why| failed(why.into()))?;
        let mut merge = Merge::begin(file, self.db_bytes, self.revision, file_budget()).map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.seek(SeekFrom::Start(merge.offset())).map_err(trouble(MERGING))?;
        let mut joints = Joints::default();
        joints.add_least(self.base_revision, self.base_least);
        while let Some(Fetched { name, uri, stored }) = segments.blocking_recv() {
            let of = (&name, self.cluster_id);
            let damaged = |error| Failed::reading(&name, error);
            let mut reader = open_segment(&uri, of, stored, self.identities.as_ref()).map_err(damaged)?;
            let forked = |fork| self.forked(&uri, fork);
            joints.open(reader.header()).map_err(forked)?;
            let (mut sum, mut summed) = (RevisionSum::default(), None);
            let in_segment = reader.header().auth_revision;
            let both = users.zip(in_segment);
            if in_segment.is_none() {
                self.refuse_auth(&name, "users or roles are unknown, because etcd did not tell the archiver,")?;
            }
            if both.is_some_and(|(users, in_segment)| users != in_segment) {
                self.refuse_auth(&name, CHANGED)?;
            }
            while let Some(entry) = reader.next().map_err(|error| damaged(unreadable(&uri, &error)))? {
                match entry {
                    Entry::Record(record) => {
                        if let Some(revision) = summed.replace(record.main).filter(|main| *main != record.main) {
                            joints.add(revision, sum.take()).map_err(forked)?;
                        }
                        sum.add(record.tombstone, record.value);
                        merge.add(&record, &mut out).map_err(|error| self.failure(error).context(&uri))?;
                    }
                    Entry::Lease { id, ttl } => merge.add_lease(id, ttl).map_err(failed)?,
                    Entry::AuthChanged { revision } if both.is_none() && revision >= self.base_revision => {
                        self.refuse_auth(&name, CHANGED)?;
                    }
                    Entry::AuthChanged { .. } | Entry::Sample { .. } => {}
                }
            }
            if let Some(revision) = summed {
                joints.add(revision, sum.take()).map_err(forked)?;
                // No later segment of a chain ends before the last revision of this one.
                joints.forget_before(revision);
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

    /// Refuses a segment by whose end users have changed since the snapshot, or may have.
    fn refuse_auth(&self, segment: &SegmentName, why: &str) -> Result<()> {
        let way_out = match self.users {
            AuthChange::Allowed => return Ok(()),
            AuthChange::Refused => format!(
                "set at.allowAuthChanged (by hand: --allow-auth-changed) to restore the users and roles of revision {}",
                self.base_revision
            ),
            AuthChange::NeedsSnapshot => "save a snapshot with `holdfast agent save`".to_owned(),
        };
        let before = segment.first.saturating_sub(1).max(self.base_revision);
        let points: Vec<i64> = std::iter::once(before).chain(self.next_base).collect();
        Err(Error::config(format!(
            "{}: {why} after revision {before}, and the log does not hold them. {}; or {way_out}",
            self.log,
            nearest(&points)
        )))
    }

    /// Returns the error for segments of two histories.
    fn forked(&self, uri: &str, fork: Fork) -> Error {
        let (why, after) = match fork {
            Fork::Changes(revision) => {
                (format!("other changes of revision {revision} than a segment before"), revision)
            }
            Fork::Raft(revision) => ("fewer entries of raft than its revision needs".to_owned(), revision),
        };
        let points: Vec<i64> = std::iter::once(after.max(self.base_revision)).chain(self.next_base).collect();
        Error::unclear(format!(
            "{uri} has {why}: etcd was restored in place under the same cluster ID, and the log holds two histories. {}",
            nearest(&points)
        ))
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
            | MergeError::Base(_) => Error::corrupt(format!("{log}: {error}. {ANOTHER}")),
        }
    }
}
