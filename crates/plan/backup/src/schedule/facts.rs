//! Facts about a schedule's runs: which runs are recorded, and how the runs ended.
//!
//! Decides how to read records; `plan.rs` decides the step.

use holdfast_api::schedule::{LastFailed, LastSuccessful};
use holdfast_api::snapshot::{self, Phase};
use holdfast_api::{EtcdSnapshot, key};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::Observed;
use holdfast_base::meta;

/// A recorded run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    /// The record.
    pub(super) snapshot: &'a EtcdSnapshot,
    /// The Job's identity in the record.
    pub(super) job: &'a snapshot::Run,
    /// Start of the run.
    pub(super) at: Timestamp,
}

impl Run<'_> {
    pub(super) fn name(&self) -> &str {
        meta::name(&self.snapshot.metadata)
    }

    pub(super) fn phase(&self) -> Phase {
        self.snapshot.status.as_ref().map(|s| s.phase).unwrap_or_default()
    }
}

/// Whether this snapshot records a run of the schedule with this UID.
pub(super) fn records(snapshot: &EtcdSnapshot, schedule_uid: &str) -> bool {
    snapshot.spec.run.is_some() && meta::label(&snapshot.metadata, key::SCHEDULE_UID) == Some(schedule_uid)
}

/// Returns the recorded runs, oldest first.
pub(super) fn runs(seen: &Observed) -> Vec<Run<'_>> {
    let mine = seen.snapshots.iter().filter(|snapshot| records(snapshot, seen.uid()));
    let mut runs: Vec<Run<'_>> = mine
        .filter_map(|snapshot| {
            let job = snapshot.spec.run.as_ref()?;
            Some(Run { snapshot, job, at: job.started_at.parse().ok()? })
        })
        .collect();
    runs.sort_by(|a, b| (a.at, a.name()).cmp(&(b.at, b.name())));
    runs
}

/// Returns the Jobs without a record, oldest first.
pub(super) fn unrecorded(seen: &Observed) -> Vec<&Job> {
    let mut jobs: Vec<&Job> = seen.jobs.iter().filter(|job| !recorded(seen, job)).collect();
    jobs.sort_by_key(|job| (created(job), meta::name(&job.metadata)));
    jobs
}

/// Whether a record names the Job, with or without its labels; or a snapshot with the record's name was stored without
/// `spec.run`, which its own conditions report.
fn recorded(seen: &Observed, job: &Job) -> bool {
    let own = |there: &EtcdSnapshot| meta::label(&there.metadata, key::SCHEDULE_UID) == Some(seen.uid());
    let place = |there: &EtcdSnapshot| meta::name(&there.metadata) == meta::name(&job.metadata);
    let named = |run: &snapshot::Run| run.uid == meta::uid(&job.metadata);
    seen.snapshots.iter().any(|there| there.spec.run.as_ref().map_or_else(|| own(there) && place(there), named))
}

/// Returns the creation time of a Job.
pub(super) fn created(job: &Job) -> Option<Timestamp> {
    job.metadata.creation_timestamp.as_ref().map(|at| at.0)
}

/// Returns the status's entry for a complete run.
pub(super) fn success(run: &Run<'_>) -> Option<LastSuccessful> {
    let status = run.snapshot.status.as_ref().filter(|status| status.phase == Phase::Complete)?;
    let artifact = status.artifact.as_ref()?;
    let ended: Timestamp = status.completed_at.as_ref()?.parse().ok()?;
    Some(LastSuccessful {
        name: run.name().to_owned(),
        key: artifact.key.clone(),
        taken_at: run.job.started_at.clone(),
        revision: artifact.revision,
        level: status.verification.as_ref().map(|proof| proof.level).unwrap_or_default(),
        db_bytes: artifact.db_bytes,
        stored_bytes: artifact.stored_bytes,
        seconds: ended.duration_since(run.at).as_secs().max(0),
    })
}

/// Returns the status's entry for a failed run.
pub(super) fn failure(run: &Run<'_>) -> Option<LastFailed> {
    let status = run.snapshot.status.as_ref().filter(|status| status.phase == Phase::Failed)?;
    let error = status.error.clone().unwrap_or_default();
    Some(LastFailed {
        name: run.name().to_owned(),
        at: run.job.started_at.clone(),
        class: error.class,
        message: error.message,
    })
}

/// Parses a time of a status.
pub(super) fn time(text: Option<&String>) -> Option<Timestamp> {
    text?.parse().ok()
}
