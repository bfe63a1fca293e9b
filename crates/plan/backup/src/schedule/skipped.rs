//! The run that Kubernetes skips while the previous run is active: `concurrencyPolicy` of the `CronJob` is `Forbid`.
//!
//! Decides when a due time counts as skipped, and when to check. The CronJob controller reports a skipped run only in an Event,
//! which the operator may not read; the status of the `CronJob` shows the same.

use holdfast_api::schedule::SkippedRun;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::{Line, Observed, facts};
use holdfast_base::{Wake, jobs, meta};

/// Time within which the CronJob controller starts a due run.
const STARTS_WITHIN: SignedDuration = SignedDuration::from_secs(5);

/// Returns the first due time since the last run at which no run began, while the last run's Job is active.
pub(super) fn skipped(seen: &Observed, line: &Line, now: Timestamp) -> Option<SkippedRun> {
    let (due, job) = waits(seen, line)?;
    (now >= due + STARTS_WITHIN).then(|| SkippedRun {
        at: due.to_string(),
        job: meta::name(&job.metadata).to_owned(),
        active_since: facts::created(job).map(|at| at.to_string()).unwrap_or_default(),
    })
}

/// Returns when to check whether the next run is skipped.
pub(super) fn wake(seen: &Observed, line: &Line, now: Timestamp) -> Option<Wake> {
    let (due, _) = waits(seen, line)?;
    let remaining = (due + STARTS_WITHIN).duration_since(now);
    // The operator lengthens or shortens a wait by up to a fifth: the check must not come minutes after the due time.
    let wait = remaining.checked_sub(remaining / 5)?;
    let Ok(millis) = u64::try_from(wait.as_millis()) else { return None };
    remaining.is_positive().then(|| Wake::AfterMillis(millis.max(1_000)))
}

/// Returns the first due time since the last run, and the active Job of an earlier run.
fn waits<'a>(seen: &'a Observed, line: &Line) -> Option<(Timestamp, &'a Job)> {
    let status = seen.own_cron_job()?.status.as_ref()?;
    let due = line.next(status.last_schedule_time.as_ref()?.0)?;
    // A Job that a person created from the CronJob is missing in this list, and blocks no run.
    let listed = status.active.iter().flatten().filter_map(|active| active.uid.as_deref());
    let active = listed.filter_map(|uid| seen.jobs.iter().find(|job| meta::uid(&job.metadata) == uid));
    Some((due, active.filter(|job| !jobs::over(job)).min_by_key(|job| facts::created(job))?))
}
