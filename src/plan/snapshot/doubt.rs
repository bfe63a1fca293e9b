//! When only the store itself can tell whether a snapshot is there.
//!
//! Decides which ends of a Job leave that open. A stored snapshot must never be called failed, and `Complete` must never be
//! said without a report.

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use snapshot_agent::contract::{Report, Retry};

use crate::plan::build::job::CONTAINER;
use crate::plan::jobs::{Fact, end};
use crate::plan::pods;

/// A Pod that takes another one's place is made this long after that one's end at the earliest: so long a Job pauses after
/// a failure, also after one that its policy ignores (Kubernetes: `DefaultJobPodFailureBackOff`).
pub(super) const PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// Whether the snapshot may be stored although no report says so: the Job ended well, or a Pod of it is gone or may be, or
/// ended in a way that leaves open how far it had come.
pub(super) fn doubtful(fact: &Fact, job: &Job, all: &[Pod]) -> bool {
    match fact {
        Fact::Lost => true,
        Fact::Failed { .. } => {
            let counted = job.status.as_ref().and_then(|s| s.failed).unwrap_or_default();
            let there = i32::try_from(all.len()).is_ok_and(|there| there >= counted);
            // A Pod that a drain has ended is counted nowhere, and soon gone. There was no other only where none of these has
            // taken a place, and one of them says how it ended.
            let spoke = all.iter().any(|pod| end(pod).is_some());
            let first = all.iter().all(|pod| took_no_place(pod, job));
            !(there && spoke && first && all.iter().all(published_nothing))
        }
        Fact::Pending(_) | Fact::Running(_) | Fact::HeldUp(_) | Fact::Settling | Fact::Stored { .. } => false,
    }
}

/// Whether a Pod was made too soon after its Job to have taken the place of one that had run.
fn took_no_place(pod: &Pod, job: &Job) -> bool {
    let made = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|t| t.0);
    made(&pod.metadata).zip(made(&job.metadata)).is_some_and(|(pod, job)| pod < job + PAUSE)
}

/// Whether a Pod has certainly published nothing: it never ran, or the agent itself says so. After trouble with the
/// network or a deadline not even the agent knows: the answer to its last request may be what was lost.
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
            | Report::Recalled(_),
        )
        | None => false,
    }
}
