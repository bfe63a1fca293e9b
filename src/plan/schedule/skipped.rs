//! The run that Kubernetes skips because the one before has not ended: `concurrencyPolicy` of the `CronJob` is `Forbid`.
//!
//! Decides when a due time counts as skipped, and when to look. The CronJob controller says it in an Event alone, which the
//! operator may not read; the status of the `CronJob` shows the same.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::{Line, Observed, facts};
use crate::api::schedule::SkippedRun;
use crate::plan::{Wake, jobs, meta};

/// The CronJob controller starts a run within seconds after its due time.
const STARTS_WITHIN: SignedDuration = SignedDuration::from_secs(5);

/// The first due time since the last run at which no run began, while the Job of that run is active.
pub(super) fn skipped(seen: &Observed, line: &Line, now: Timestamp) -> Option<SkippedRun> {
    let (due, job) = waits(seen, line)?;
    (now >= due + STARTS_WITHIN).then(|| SkippedRun {
        at: due.to_string(),
        job: meta::name(&job.metadata).to_owned(),
        active_since: facts::created(job).map(|at| at.to_string()).unwrap_or_default(),
    })
}

/// When to look whether the next run is skipped.
pub(super) fn wake(seen: &Observed, line: &Line, now: Timestamp) -> Option<Wake> {
    let (due, _) = waits(seen, line)?;
    let left = (due + STARTS_WITHIN).duration_since(now);
    // Waits are a fifth longer or shorter than asked for: the look must not come minutes after the due time.
    let wait = left.checked_sub(left / 5)?;
    let Ok(millis) = u64::try_from(wait.as_millis()) else { return None };
    left.is_positive().then(|| Wake::AfterMillis(millis.max(1_000)))
}

/// The first due time since the last run, and the active Job of an earlier run.
fn waits<'a>(seen: &'a Observed, line: &Line) -> Option<(Timestamp, &'a Job)> {
    let status = seen.own_cron_job()?.status.as_ref()?;
    let due = line.next(status.last_schedule_time.as_ref()?.0)?;
    // A Job that a person made of the CronJob is not in this list, and keeps no run from its start.
    let listed = status.active.iter().flatten().filter_map(|active| active.uid.as_deref());
    let active = listed.filter_map(|uid| seen.jobs.iter().find(|job| meta::uid(&job.metadata) == uid));
    Some((due, active.filter(|job| !jobs::over(job)).min_by_key(|job| facts::created(job))?))
}
