//! A save whose subject is gone while none of its agents runs: its cluster or a Secret was deleted.
//!
//! Decides when such a save has failed although its Job waits on: kubelet waits for a missing Secret until the Job's time is over. A
//! save whose agent runs goes on to its own end.

use holdfast_api::condition::Reason;
use holdfast_contract::{self as agent, ExitClass, Origin};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::Observed;
use holdfast_base::jobs::JobState;
use holdfast_base::objects::job::CONTAINER;
use holdfast_base::pod_cause::PodCause;
use holdfast_base::{ending, meta, pods};

/// How long a Secret may be absent: a program that renews it may delete and create it.
const RENEWED_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// Whether the agent runs in this Pod.
pub(super) fn runs(pod: &Pod) -> bool {
    pods::status(pod, CONTAINER).and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some())
}

/// Returns the row of a save whose cluster is gone.
pub(super) fn cluster_gone() -> &'static agent::Failure {
    agent::Failure::for_class(ExitClass::Transient, Some(Origin::Etcd))
}

/// Returns the failure of a save that waits, whose subject is gone.
pub(super) fn failure(seen: &Observed, state: &JobState, now: Timestamp) -> Option<JobState> {
    let held = match state {
        JobState::HeldUp(held) if held.reason != Reason::NodeSilent => Some(held),
        JobState::Running(_) if !seen.pods.iter().any(runs) => None,
        _ => return None,
    };
    let (failure, message) = match (cluster(seen), held) {
        (Some(why), _) => (cluster_gone(), why),
        (None, Some(held)) => {
            let cause = secrets(seen, held)?;
            if !lasts(seen, &cause, now) {
                return Some(JobState::HeldUp(cause));
            }
            let message = format!("{}. Create another EtcdSnapshot", cause.words());
            (agent::Failure::for_class(ExitClass::Config, None), message)
        }
        (None, None) => return None,
    };
    let job = seen.job.as_ref().map(|job| meta::name(&job.metadata)).unwrap_or_default();
    let cause = PodCause::job(Reason::WaitingForReference, job, message.clone());
    Some(JobState::Failed { failure: Some(failure), message, at: None, held: Some(cause) })
}

/// Returns why the cluster of a snapshot that was being saved cannot be saved any more.
pub(super) fn cluster(seen: &Observed) -> Option<String> {
    let named = &seen.snapshot.spec.cluster_ref.as_ref()?.name;
    let saved = seen.snapshot.status.as_ref().and_then(|status| status.cluster_uid.as_deref());
    match &seen.cluster {
        None => Some(format!("EtcdCluster {named} was deleted before the snapshot was saved")),
        Some(cluster) if saved.is_some_and(|uid| uid != meta::uid(&cluster.metadata)) => Some(format!(
            "EtcdCluster {named} was deleted before the snapshot was saved, and another EtcdCluster has its name. Create another \
             EtcdSnapshot for the new cluster"
        )),
        Some(cluster) if meta::deleting(&cluster.metadata) && !ending::awaits_snapshot(cluster) => {
            Some(format!("EtcdCluster {named} is being deleted, and the snapshot is not saved"))
        }
        Some(_) => None,
    }
}

/// Returns the cause of a last Pod that waits for Secrets which the API server does not have.
fn secrets(seen: &Observed, held: &PodCause) -> Option<PodCause> {
    let pod = seen.pods.last().filter(|pod| held.pod.as_deref() == Some(meta::name(&pod.metadata)))?;
    let missing = seen.missing_secrets.join(", Secret ");
    let message = format!("Secrets that it mounts were deleted: Secret {missing}. Create them");
    (!missing.is_empty()).then(|| PodCause::pod(Reason::WaitingForReference, &held.job, pod, message))
}

/// Whether the status has recorded this cause for longer than a renewal takes.
fn lasts(seen: &Observed, cause: &PodCause, now: Timestamp) -> bool {
    let before = seen.snapshot.status.as_ref().and_then(|status| status.held_up.as_ref());
    let since = cause.clone().recorded(before, now).since;
    since.parse::<Timestamp>().is_ok_and(|since| now >= since + RENEWED_WITHIN)
}
