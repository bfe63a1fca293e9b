//! The Pod that records a schedule's log.
//!
//! Decides which Pod the operator asks, and the words for a Pod that cannot run. `log.rs` decides the condition.

use holdfast_api::key;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;

use super::Observed;
use holdfast_base::objects::job::CONTAINER;
use holdfast_base::{failure, meta, pods};

/// Whether the Pod is of this Deployment: it has the label with the schedule's UID, and a ReplicaSet of the Deployment controls it. The
/// operator has no right to read ReplicaSets.
pub fn is_log_pod(pod: &Pod, deployment: &Deployment, schedule_uid: &str) -> bool {
    let set = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let begin = format!("{}-", meta::name(&deployment.metadata));
    meta::label(&pod.metadata, key::SCHEDULE_UID) == Some(schedule_uid)
        && set.is_some_and(|set| set.kind == "ReplicaSet" && set.name.strip_prefix(&begin).is_some_and(is_hash))
}

/// Whether this is the Deployment controller's hash of a Pod template.
fn is_hash(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns the Pod whose agent runs.
pub fn running(pods: &[Pod]) -> Option<&Pod> {
    let runs = |pod: &&Pod| {
        let state = pods::status(pod, CONTAINER).and_then(|status| status.state.as_ref());
        state.is_some_and(|state| state.running.is_some()) && !meta::deleting(&pod.metadata)
    };
    pods.iter().rev().find(runs)
}

/// Returns why the newest Pod cannot run, with the remedy; `None`: it runs or starts.
pub(super) fn trouble(seen: &Observed) -> Option<String> {
    if running(&seen.log_pods).is_some() {
        return None;
    }
    let pod = seen.log_pods.last()?;
    let name = meta::name(&pod.metadata);
    let end = pods::status(pod, CONTAINER).and_then(pods::last_end).filter(|end| end.exit_code != 0);
    if let Some(end) = end {
        if let Some(failed) = pods::failed_report(pod, CONTAINER) {
            return Some(format!("The agent ends with code {}: {}", end.exit_code, failed.message));
        }
        if end.reason.as_deref() == Some("OOMKilled") {
            let limit = pods::memory_limit(pod.spec.as_ref(), CONTAINER).unwrap_or("its node's");
            return Some(format!("The agent ran out of memory (limit {limit}). Raise spec.log.resources"));
        }
        let code = end.exit_code;
        return Some(format!("The agent ends with code {code} and no report. See `kubectl logs --previous {name}`"));
    }
    let held = failure::hold_up(pod, None).filter(|held| held.stuck)?;
    Some(format!("Pod {name} does not run: {}", held.message))
}
