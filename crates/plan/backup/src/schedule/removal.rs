//! A run that removes snapshots, and its Job.
//!
//! Decides the Job's request. `holdfast_base::removals` decides how long a run may remove objects, and which snapshots the run
//! endangers. `prune.rs` decides when a run starts.

use std::collections::BTreeSet;

use holdfast_api::EtcdSnapshotSchedule;
use holdfast_api::backup_store::StoreRecord;
use holdfast_api::key;
use holdfast_api::schedule::PruneRun;
use holdfast_api::store::Location;
use holdfast_contract::{DEFAULT_ANNOUNCED_SECONDS, DEFAULT_PRUNE_DEADLINE_SECONDS, Policy, PruneRequest, Request};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::{Line, Observed, UTC, arm, facts};
use holdfast_base::objects::job::{AgentJob, Kind, job, pod_spec};
use holdfast_base::removals::{REMOVES_FOR, may_remove};
use holdfast_base::{jobs, meta, saving};

/// The place of the snapshots.
pub(super) struct Place {
    pub(super) location: Location,
    pub(super) record: Option<StoreRecord>,
}

/// Returns the schedule's run that may still remove objects, for restores.
pub fn live_run(schedule: &EtcdSnapshotSchedule, now: Timestamp) -> Option<PruneRun> {
    let run = schedule.status.as_ref()?.prune_run.clone()?;
    Some(run).filter(|run| run.ended_at.is_none() && may_remove(run, now))
}

/// Returns the run of a Job that may still remove objects: the Job's schedule may be gone.
pub fn live_job(job: &Job, now: Timestamp) -> Option<PruneRun> {
    let runs = removes(job) && !jobs::over(job);
    latched_on(job).filter(|run| runs && may_remove(run, now))
}

pub(super) fn removes(job: &Job) -> bool {
    matches!(pod_spec(job).and_then(Kind::of_pod), Some(Kind::Prune | Kind::Remove))
}

/// Returns the run in the Job's annotation.
pub(super) fn latched_on(job: &Job) -> Option<PruneRun> {
    serde_json::from_str(meta::annotation(&job.metadata, key::PRUNE_RUN)?).ok()
}

/// Returns the Job of a latched run.
pub(super) fn start(
    seen: &Observed,
    (run, protects): (&PruneRun, &[String]),
    since: Option<Timestamp>,
    (policy, line, place): (&Policy, &Line, &Place),
    now: Timestamp,
) -> Job {
    let (meta, spec) = (&seen.schedule.metadata, &seen.schedule.spec);
    let below = format!("{}/", run.lineage);
    let held = seen.held.iter().filter(|key| key.starts_with(&below));
    let request = PruneRequest {
        expect_store_id: place.record.as_ref().and_then(|record| record.id.clone()),
        namespace: meta.namespace.clone().unwrap_or_default(),
        cluster: saving::filed_under(spec.cluster_ref.as_ref()),
        cluster_uid: seen.cluster.as_ref().map(|cluster| meta::uid(&cluster.metadata).to_owned()).unwrap_or_default(),
        schedule_uid: seen.uid().to_owned(),
        policy: policy.clone(),
        time_zone: spec.time_zone.clone().unwrap_or_else(|| UTC.to_owned()),
        newest_after: line.before_last(now),
        protect: protects.iter().chain(held).cloned().collect::<BTreeSet<_>>().into_iter().collect(),
        accept_anomaly: meta::annotation(meta, key::ACCEPT_ANOMALY).map(str::to_owned),
        announced_seconds: DEFAULT_ANNOUNCED_SECONDS,
        announced_after: since,
        not_after: facts::time(Some(&run.latched_at)).map(|at| at + REMOVES_FOR),
        deadline_seconds: DEFAULT_PRUNE_DEADLINE_SECONDS,
        ..PruneRequest::default()
    };
    let mut job = job(&AgentJob {
        name: run.job.clone(),
        work: Request::Prune(request),
        destination: place.location.clone(),
        record: place.record.clone(),
        ..arm::agent_job(seen)
    });
    // JSON of our own types cannot fail.
    let latched = serde_json::to_string(run).unwrap_or_default();
    job.metadata.annotations.get_or_insert_default().insert(key::PRUNE_RUN.to_owned(), latched);
    job
}
