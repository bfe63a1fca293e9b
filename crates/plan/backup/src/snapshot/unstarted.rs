//! Jobs of which it is certain that no agent ran: its claim, its image or a node was missing until the Job's time was over.
//!
//! Decides when such a Job has stored nothing, so that the snapshot fails without a question to the store. A Pod that is gone
//! may have run, unless its last state was seen; so may a Pod of a Job that counts none, while the operator was away. All that
//! is not certain is `doubt.rs`'s.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::Observed;
use super::doubt::PAUSE;
use holdfast_base::job_state::JobState;
use holdfast_base::objects::job::CONTAINER;
use holdfast_base::pod_cause::PodCause;
use holdfast_base::pods::Unstarted;
use holdfast_base::{jobs, meta};

/// Whether the Job's Pods have ended without a run, and no other is there: its controller ends the Job after they are gone.
pub(super) fn has_ended(seen: &Observed, now: Timestamp) -> bool {
    let none_runs = seen.pods.iter().all(|pod| Unstarted::prove(pod, CONTAINER, now).is_some());
    none_runs && !(seen.pods.is_empty() && seen.unstarted.is_empty())
}

/// How a Job failed of which no agent ran. `before`: what held its Pod up, by the status.
pub(super) fn failure(seen: &Observed, job: &Job, before: Option<&PodCause>, now: Timestamp) -> Option<JobState> {
    let state = jobs::failure(job, &seen.pods, before)?;
    if !no_pod_ran(seen, job, now) {
        return None;
    }
    Some(match state {
        JobState::Failed { failure, message, at, held: _ } => {
            JobState::Failed { failure, message, at, held: before.cloned() }
        }
        other => other,
    })
}

/// Whether the Job had one Pod from its beginning to its end, which never ran. Pods that a drain has ended are counted nowhere:
/// there was no Pod before this one where it has taken no place, and none after where no place was left for one.
fn no_pod_ran(seen: &Observed, job: &Job, now: Timestamp) -> bool {
    let gone = seen.unstarted.iter().filter(|gone| seen.pods.iter().all(|pod| meta::name(&pod.metadata) != gone.name));
    let there = seen.pods.iter().map(|pod| Unstarted::prove(pod, CONTAINER, now));
    let known: Vec<Option<Unstarted>> = there.chain(gone.cloned().map(Some)).collect();
    let [Some(pod)] = known.as_slice() else { return false };
    let first = jobs::created(job).is_some_and(|job| pod.created < job + PAUSE);
    let last = jobs::given_up(job).is_some_and(|job| job < pod.deleted + PAUSE);
    first && last && ended_pods(job).is_some_and(|counted| counted <= 1)
}

/// How many ended Pods the Job counts; `None`: one of them succeeded.
fn ended_pods(job: &Job) -> Option<usize> {
    let status = job.status.as_ref()?;
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let waiting = |pods: Option<&Vec<String>>| pods.map_or(0, Vec::len);
    let succeeded = uncounted.and_then(|pods| pods.succeeded.as_ref());
    if status.succeeded.unwrap_or_default() > 0 || waiting(succeeded) > 0 {
        return None;
    }
    let failed = usize::try_from(status.failed.unwrap_or_default()).ok()?;
    Some(failed + waiting(uncounted.and_then(|pods| pods.failed.as_ref())))
}
