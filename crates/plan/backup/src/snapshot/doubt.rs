//! Ends of a Job after which only the store knows whether the snapshot is stored.
//!
//! Decides which ends these are. The operator must never report a stored snapshot as failed, and never report `Complete`
//! without a report of the agent.

use holdfast_contract::{Report, Retry};
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use holdfast_base::jobs::{JobState, end};
use holdfast_base::objects::job::CONTAINER;
use holdfast_base::pods;

/// Least time between a Pod's end and the creation of the next Pod: a Job pauses this long after a failure, also after a
/// failure that its policy ignores (Kubernetes: `DefaultJobPodFailureBackOff`).
pub(super) const PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// Whether the snapshot may be stored although no report confirms the snapshot: the Job succeeded, or one of its Pods is or may
/// be gone, or ended at an unknown point.
pub(super) fn doubtful(state: &JobState, job: &Job, all: &[Pod]) -> bool {
    match state {
        JobState::Lost => true,
        // At least one of these Pods has an exit code: others may be gone.
        JobState::Failed { .. } => !(all.iter().any(|pod| end(pod).is_some()) && stored_nothing(job, all)),
        JobState::Pending(_)
        | JobState::Running(_)
        | JobState::HeldUp(_)
        | JobState::Settling
        | JobState::Stored { .. } => false,
    }
}

/// Whether no Pod of a Job has published anything. The Job counts no Pod that a drain ended, and Kubernetes soon removes that Pod: no
/// other Pod existed only if none of these Pods replaced another.
pub(super) fn stored_nothing(job: &Job, all: &[Pod]) -> bool {
    let counted = job.status.as_ref().and_then(|s| s.failed).unwrap_or_default();
    let there = i32::try_from(all.len()).is_ok_and(|there| there >= counted);
    there && !all.is_empty() && all.iter().all(|pod| took_no_place(pod, job) && published_nothing(pod))
}

/// Whether the Pod was created too soon after the Job to have replaced a Pod that ran.
fn took_no_place(pod: &Pod, job: &Job) -> bool {
    let made = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|t| t.0);
    made(&pod.metadata).zip(made(&job.metadata)).is_some_and(|(pod, job)| pod < job + PAUSE)
}

/// Whether a Pod certainly published nothing: the Pod never ran, or the agent reports a failure that only a change fixes. After
/// a network failure or a deadline the agent does not know either: the answer to its last request may be lost.
fn published_nothing(pod: &Pod) -> bool {
    let status = pods::status(pod, CONTAINER);
    let Some(end) = status.and_then(pods::last_end) else {
        let runs = status.and_then(|s| s.state.as_ref()).is_some_and(|s| s.running.is_some());
        return !runs;
    };
    match pods::report(pod, CONTAINER) {
        Some(Report::Failed(failed)) => {
            let failure = failed.failure();
            failure.retry == Retry::AfterChange && end.exit_code == i32::from(failure.code)
        }
        Some(
            Report::Saved(_)
            | Report::Restored(_)
            | Report::Gate(_)
            | Report::Probed(_)
            | Report::Latest(_)
            | Report::Recalled(_)
            | Report::Compared(_)
            | Report::Drilled(_)
            | Report::Surveyed(_),
        )
        | None => false,
    }
}
