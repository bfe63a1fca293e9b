//! Passes over the log between a snapshot and a point: each reads the same segments in the same order.
//!
//! This file decides the order of reading, which revision of the log's compactions a merge applies, what a change of users
//! means, and that segments of two histories end the restore. A pass holds two segments. `replay.rs` decides what happens to the records.

use std::time::Duration;

use bytes::Bytes;
use holdfast_bbolt::merge::MergeError;
use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result, task_error};
use holdfast_io::progress::Progress;
use holdfast_layout::SegmentName;
use holdfast_segment::{Entry, RevisionSum};
use holdfast_store::Store;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::point::Chosen;
use super::segments::{ANOTHER, nearest, open_segment};
use super::volume::trouble;
use holdfast_catalog::log::joints::{Fork, Joints};
use holdfast_catalog::log::read::{fetch, unreadable};
use holdfast_format::crypt::Identities;

/// Segments in memory beside the one that is read.
const AHEAD: usize = 1;

/// The current step, for errors.
pub(super) const MERGING: &str = "writing the merged revisions";

/// The problem of users in the log, for errors.
const CHANGED: &str = "users or roles changed";

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

/// The segments to read.
pub(super) struct Passes<'a> {
    pub(super) store: &'a Store,
    pub(super) chosen: &'a Chosen,
    pub(super) chain: Vec<SegmentName>,
    pub(super) stall: Duration,
}

/// A segment on its way to a pass.
pub(super) struct Fetched {
    name: SegmentName,
    uri: String,
    stored: Bytes,
}

/// Facts of the log and its snapshot, for each pass.
#[derive(Clone)]
pub(super) struct Log {
    uri: String,
    cluster_id: u64,
    base_revision: i64,
    /// Least number of entries of raft without a revision, at the snapshot.
    base_least: i64,
    /// The last revision of the snapshot's records, with its checksum, if no compaction has removed a part of it.
    base_sum: Option<(i64, u32)>,
    next_base: Option<i64>,
    identities: Option<Identities>,
    on_change: AuthChange,
    /// Revision of the snapshot's users and roles.
    users: Option<i64>,
}

/// A pass that failed, and the segment that cannot be read.
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) damaged: Option<SegmentName>,
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

impl Passes<'_> {
    /// Returns the compaction of etcd that a merge applies, at or below the point: that of the check at the point, so that the
    /// result has the same HashKV; without a check the newest of the segments.
    pub(super) async fn find_compaction(&self) -> Result<Option<i64>, Failed> {
        let Self { store, chosen, chain, stall } = self;
        if let Some(check) = &chosen.check {
            return Ok(Some(check.compact_revision));
        }
        let progress = Progress::new("reading the log", 0);
        for name in chain.iter().rev() {
            let Fetched { name, uri, stored } = fetch_segment(store, chosen, name, &progress, *stall).await?;
            let reader = open_segment(&uri, (&name, chosen.cluster_id), stored, chosen.identities.as_ref());
            let compacted = reader.map_err(|error| Failed::reading(&name, error))?.header().compact_revision;
            if (1..=chosen.revision).contains(&compacted) {
                return Ok(Some(compacted));
            }
        }
        Ok(None)
    }

    /// Runs one pass.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(mpsc::Receiver<Fetched>) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failed> {
        let (to_work, segments) = mpsc::channel(AHEAD);
        let working = spawn_blocking(move || work(segments));
        let fetched = self.fetch_all(to_work).await;
        let done = working.await.map_err(|error| task_error(&error))?;
        // A missing segment ends the work too, and its own error says more.
        fetched?;
        done
    }

    /// Sends the segments to the work, in order.
    async fn fetch_all(&self, to_work: mpsc::Sender<Fetched>) -> Result<()> {
        let Self { store, chosen, chain, stall } = self;
        let progress = Progress::new("reading the log", chosen.stored_bytes);
        for name in chain {
            // First the room: a segment that waits for it would be a third one in memory. An error: the work has failed.
            let Ok(room) = to_work.reserve().await else { break };
            room.send(fetch_segment(store, chosen, name, &progress, *stall).await?);
        }
        Ok(())
    }
}

async fn fetch_segment(
    store: &Store,
    chosen: &Chosen,
    name: &SegmentName,
    progress: &Progress,
    stall: Duration,
) -> Result<Fetched> {
    let key = name.key(&chosen.log).map_err(|error| holdfast_store::layout(&error))?;
    let stored = progress.watch(stall, fetch(store, &chosen.log, name)).await?;
    progress.add(stored.len());
    Ok(Fetched { name: name.clone(), uri: store.uri(&key), stored })
}

impl Log {
    pub(super) fn new(
        store: &Store,
        chosen: &Chosen,
        (base_sum, users): (Option<(i64, u32)>, Option<i64>),
        on_change: AuthChange,
    ) -> Self {
        Self {
            uri: store.uri(&chosen.log),
            cluster_id: chosen.cluster_id,
            base_revision: chosen.base_revision,
            base_least: chosen.base_least,
            base_sum,
            next_base: chosen.next_base,
            identities: chosen.identities.clone(),
            on_change,
            users,
        }
    }

    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    /// Returns this revision, but none before the snapshot, and that of the next snapshot.
    pub(super) fn points_around(&self, revision: i64) -> Vec<i64> {
        std::iter::once(revision.max(self.base_revision)).chain(self.next_base).collect()
    }

    /// Passes the entries of all segments to `take`; `None`: a segment has ended.
    pub(super) fn read(
        &self,
        mut segments: mpsc::Receiver<Fetched>,
        mut take: impl FnMut(Option<Entry<'_>>) -> Result<(), MergeError>,
    ) -> Result<(), Failed> {
        let mut joints = Joints::default();
        joints.add_least(self.base_revision, self.base_least);
        if let Some((revision, sum)) = self.base_sum {
            joints.add(revision, sum).map_err(|fork| self.forked(&self.uri, fork))?;
        }
        while let Some(Fetched { name, uri, stored }) = segments.blocking_recv() {
            let of = (&name, self.cluster_id);
            let damaged = |error| Failed::reading(&name, error);
            let failed = |error| merge_error(&self.uri, error).context(&uri);
            let mut reader = open_segment(&uri, of, stored, self.identities.as_ref()).map_err(damaged)?;
            let forked = |fork| self.forked(&uri, fork);
            joints.open(reader.header()).map_err(forked)?;
            let (mut sum, mut summed) = (RevisionSum::default(), None);
            let in_segment = reader.header().auth_revision;
            let both = self.users.zip(in_segment);
            if in_segment.is_none() {
                self.refuse_auth(&name, "users or roles are unknown, because etcd did not tell the archiver,")?;
            }
            if both.is_some_and(|(users, in_segment)| users != in_segment) {
                self.refuse_auth(&name, CHANGED)?;
            }
            while let Some(entry) = reader.next().map_err(|error| damaged(unreadable(&uri, &error)))? {
                if let Entry::Record(record) = entry {
                    if let Some(revision) = summed.replace(record.main).filter(|main| *main != record.main) {
                        joints.add(revision, sum.take()).map_err(forked)?;
                    }
                    sum.add(record.tombstone, record.value);
                }
                match entry {
                    Entry::AuthChanged { revision } if both.is_none() && revision >= self.base_revision => {
                        self.refuse_auth(&name, CHANGED)?;
                    }
                    entry => take(Some(entry)).map_err(failed)?,
                }
            }
            if let Some(revision) = summed {
                joints.add(revision, sum.take()).map_err(forked)?;
                // No later segment of a chain ends before the last revision of this one.
                joints.forget_before(revision);
            }
            take(None).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the error for segments of two histories.
    fn forked(&self, uri: &str, fork: Fork) -> Error {
        let (why, after) = match fork {
            Fork::Changes(revision) => {
                (format!("other changes of revision {revision} than the snapshot or the segment before"), revision)
            }
            Fork::Raft(revision) => ("fewer entries of raft than its revision needs".to_owned(), revision),
        };
        let points = self.points_around(after);
        Error::unclear(format!(
            "{uri} has {why}: etcd was restored in place under the same cluster ID, and the log holds two histories. {}",
            nearest(&points)
        ))
    }

    /// Refuses a segment by whose end users have changed since the snapshot, or may have.
    fn refuse_auth(&self, segment: &SegmentName, why: &str) -> Result<()> {
        let way_out = match self.on_change {
            AuthChange::Allowed => return Ok(()),
            AuthChange::Refused => format!(
                "set at.allowAuthChanged (by hand: --allow-auth-changed) to restore the users and roles of revision {}",
                self.base_revision
            ),
            AuthChange::NeedsSnapshot => "save a snapshot with `holdfast agent save`".to_owned(),
        };
        let before = segment.first.saturating_sub(1).max(self.base_revision);
        let points = self.points_around(before);
        Err(Error::config(format!(
            "{}: {why} after revision {before}, and the log does not hold them. {}; or {way_out}",
            self.uri,
            nearest(&points)
        )))
    }
}

/// Returns the error of a failed merge.
pub(super) fn merge_error(log: &str, error: MergeError) -> Error {
    match error {
        MergeError::Write(error) => trouble(MERGING)(error),
        MergeError::OverBudget { .. } => Error::config(format!(
            "{log}: {error}. Raise resources.limits.memory of its Pod (for a restore, spec.bootstrap.restore.agent.resources)"
        )),
        MergeError::Hole { .. }
        | MergeError::Short { .. }
        | MergeError::Late { .. }
        | MergeError::Record { .. }
        | MergeError::Base(_) => Error::corrupt(format!("{log}: {error}. {ANOTHER}")),
    }
}
