//! Facts about Pods, read from their objects.
//!
//! Decides only how a fact is read, so that the cluster pass and the member pass read it the same way.

use holdfast_api::condition;
use holdfast_api::member::Joined;
use holdfast_api::transport::Transport;
use holdfast_api::{EtcdMember, key};
use holdfast_contract::{FailedReport, GateRequest, PruneReport, RemovalReport, RemovedReport, Report, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::meta;
use crate::objects::pod::TLS;
use crate::objects::{container, request};

/// Whether the Pod permits a start on an empty volume.
pub fn may_start_empty(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(key::MAY_START_EMPTY))
}

/// Whether the Pod was made with other CAs than the files of its member hold: etcd loads them when it starts.
pub fn has_other_cas(pod: &Pod, member: &EtcdMember) -> bool {
    let wanted = member.spec.certificates().and_then(|tls| tls.cas.as_deref());
    let uses_cas = member.spec.transport().has_certificates() && transport(pod).has_certificates();
    uses_cas && meta::annotation(&pod.metadata, key::CAS) != wanted
}

/// Returns which ports of a Pod speak TLS. A Pod without certificates speaks plaintext.
pub fn transport(pod: &Pod) -> Transport {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    if !volumes.any(|volume| volume.name == TLS) {
        return Transport::Plaintext;
    }
    meta::annotation(&pod.metadata, key::TRANSPORT).and_then(Transport::parse).unwrap_or(Transport::Tls)
}

/// Returns the request of the gate in a member's Pod; `None` for a Pod of an earlier version.
pub fn gate(pod: &Pod) -> Option<GateRequest> {
    match request::of_container(pod.spec.as_ref(), container::ETCD)? {
        Request::Gate(gate) => Some(gate),
        _ => None,
    }
}

/// Returns the number of this Pod among its member's Pods; `None` for a Pod of an earlier version.
pub fn start_number(pod: &Pod) -> Option<u64> {
    gate(pod).map(|gate| gate.start).filter(|start| *start > 0)
}

/// Returns the number of its member's latest Pod that served, from this Pod's annotation.
pub fn knows_started(pod: &Pod) -> u64 {
    meta::annotation(&pod.metadata, key::STARTED).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Whether the Pod's annotation has these joined IDs of its member.
pub fn knows_joined(pod: &Pod, joined: &Joined) -> bool {
    meta::annotation(&pod.metadata, key::JOINED).is_some_and(|recorded| recorded == joined.annotation())
}

/// Whether the Pod is ready and not being deleted.
pub fn ready(pod: &Pod) -> bool {
    condition(pod, "Ready", "True").is_some() && !meta::deleting(&pod.metadata)
}

/// Returns since when the Pod is ready; the beginning of time where kubelet gives no time.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready", "True").filter(|_| !meta::deleting(&pod.metadata))?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0))
}

/// Returns when kubelet could start the containers: after the Pod was made, scheduled, and its volumes mounted.
pub fn prepared_at(pod: &Pod) -> Option<Timestamp> {
    let steps =
        ["PodScheduled", "PodReadyToStartContainers"].into_iter().filter_map(|kind| condition(pod, kind, "True"));
    let steps = steps.filter_map(|step| step.last_transition_time.as_ref()).map(|at| at.0);
    steps.chain(pod.metadata.creation_timestamp.as_ref().map(|at| at.0)).max()
}

/// Whether no node takes the Pod.
pub fn is_unscheduled(pod: &Pod) -> bool {
    condition(pod, "PodScheduled", "False").is_some()
}

/// Returns the Pod's condition of this kind with this status.
pub fn condition<'a>(pod: &'a Pod, kind: &str, status: &str) -> Option<&'a PodCondition> {
    condition::find_with_status(pod.status.as_ref()?.conditions.iter().flatten(), kind, status)
}

/// Whether the Pod has ended for good: kubelet never starts its containers again.
pub fn ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Failed" | "Succeeded"))
}

/// Whether all containers of the Pod have ended well.
pub fn succeeded(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded")
}

/// Returns why the Pod as a whole has ended, in kubelet's words and in brackets: `Evicted`, `OutOfpods` and the like.
pub fn why_ended(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let words = status.map(|s| [s.reason.as_deref(), s.message.as_deref()]).unwrap_or_default();
    let words: Vec<&str> = words.into_iter().flatten().collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(": ")) }
}

/// Whether etcd's container runs (the gate may still be deciding).
pub fn runs(pod: &Pod) -> bool {
    running_since(pod).is_some()
}

/// Returns when the Pod's first container started.
pub fn running_since(pod: &Pod) -> Option<Timestamp> {
    let running = status(pod, container::ETCD)?.state.as_ref()?.running.as_ref()?;
    Some(running.started_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0))
}

/// Returns the agent image that the operator created the Pod with. A webhook may have changed the image in the spec, which only
/// counts for a Pod of an earlier version without the annotation.
pub fn agent_image(pod: &Pod) -> Option<&str> {
    meta::annotation(&pod.metadata, key::AGENT_IMAGE)
        .or_else(|| request::find_container(pod.spec.as_ref(), container::INSTALL)?.image.as_deref())
}

/// Whether the Pod has a restore step, and so mounts the step's volumes, also after the restore.
pub fn restores(pod: &Pod) -> bool {
    request::find_container(pod.spec.as_ref(), container::RESTORE).is_some()
}

/// Whether the Pod only restores the data of a member that a return prepares: it has no etcd.
pub fn prepares(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut names = containers.map(|container| container.name.as_str());
    names.any(|name| name == container::RESTORE)
}

/// Returns the names of the claims that the Pod mounts.
pub fn claims(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// Returns a claim that both Pods mount, while the other Pod has not ended.
pub fn shared_claim<'a>(pod: &'a Pod, other: &Pod) -> Option<&'a str> {
    let another = meta::uid(&pod.metadata) != meta::uid(&other.metadata) && !ended(other);
    claims(pod).find(|claim| another && claims(other).any(|used| used == *claim))
}

/// Returns [`unprepared_since`] of a Pod with a restore step.
pub fn restore_held_since(pod: &Pod) -> Option<Timestamp> {
    if restores(pod) { unprepared_since(pod) } else { None }
}

/// Returns since when a Pod cannot start by kubelet's condition: the Pod has no sandbox, or a volume is not mounted (Kubernetes:
/// `PodReadyToStartContainers`, KEP 3085). `None` while etcd runs.
pub fn unprepared_since(pod: &Pod) -> Option<Timestamp> {
    if runs(pod) {
        return None;
    }
    let unprepared = condition(pod, "PodReadyToStartContainers", "False")?;
    unprepared.last_transition_time.as_ref().map(|t| t.0)
}

/// Whether a Pod does not exist yet, or is too young for its silence to matter: 60 s to schedule the Pod, pull the image and mount
/// the volume; 30 s for etcd to read its log and find a leader.
pub fn starting(pod: Option<&Pod>, now: Timestamp) -> bool {
    let Some(pod) = pod else { return true };
    if let Some(since) = running_since(pod) {
        return now < since + SignedDuration::from_secs(30);
    }
    pod.metadata.creation_timestamp.as_ref().is_none_or(|t| now < t.0 + SignedDuration::from_secs(60))
}

/// How long a member may take to join with each of two Pods: the member's pass creates the second Pod (`member/pod.rs`), and the
/// cluster's pass gives the member up (`cluster/stuck.rs`).
pub const JOINS_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// How long after its deletionTimestamp a Pod may exist before its node counts as silent. The API server sets that time to the
/// end of the grace period (metadata.deletionTimestamp).
const LINGERS_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Returns from when on a Pod that is being deleted lingers.
pub fn lingers_from(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.deletion_timestamp.as_ref().map(|t| t.0 + LINGERS_AFTER)
}

/// Whether a Pod that is being deleted lingers.
pub fn lingers(pod: &Pod, now: Timestamp) -> bool {
    lingers_from(pod).is_some_and(|from| now >= from)
}

/// The words between the problem with such a Pod's node and the remedy.
pub const IF_OFF: &str = ". If that node never returns, and only then: ";

/// Returns cause and remedy for a Pod that lingers.
pub fn who_holds(pod: &Pod) -> String {
    let held = pod.metadata.finalizers.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
    match pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) {
        Some(node) if held.is_empty() => format!(
            "its Pod is being deleted, and the kubelet of node {node} does not report its end{IF_OFF}kubectl taint nodes {node} \
             node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        ),
        _ => format!(
            "its Pod is being deleted, and its finalizers remain: {held}. Check the controllers of these finalizers"
        ),
    }
}

/// Returns the memory limit of a container.
pub fn memory_limit<'a>(spec: Option<&'a PodSpec>, name: &str) -> Option<&'a str> {
    let limits = request::find_container(spec, name)?.resources.as_ref()?.limits.as_ref()?;
    limits.get("memory").map(|quantity| quantity.0.as_str())
}

/// Returns the status of a container of a Pod.
pub fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    all.into_iter().find(|c| c.name == name)
}

/// Returns a container's last end.
pub fn last_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    fn ended(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
        state?.terminated.as_ref()
    }
    ended(status.state.as_ref()).or_else(|| ended(status.last_state.as_ref()))
}

/// Reason that kubelet gives for a container without a known end, also for a container that never started.
const UNKNOWN_END: &str = "ContainerStatusUnknown";

/// Part of that message if the container had run (Kubernetes: `convertStatusToAPIStatus` in kubelet_pods.go).
const USED_TO_RUN: &str = "used to be Running";

/// Whether a container that has ended had started.
pub fn had_started(end: &ContainerStateTerminated) -> bool {
    end.started_at.is_some()
        || end.reason.as_deref() != Some(UNKNOWN_END)
        || end.message.as_ref().is_some_and(|message| message.contains(USED_TO_RUN))
}

/// A Pod that the API server deletes, or has deleted, before its agent ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstarted {
    /// Name of the Pod.
    pub name: String,
    /// When the Pod was created.
    pub created: Timestamp,
    /// When the deletion was requested.
    pub deleted: Timestamp,
}

impl Unstarted {
    /// Returns the Pod, where its last state proves that this container never ran and never will.
    pub fn prove(pod: &Pod, container: &str, now: Timestamp) -> Option<Self> {
        let ObjectMeta { creation_timestamp, deletion_timestamp, deletion_grace_period_seconds, .. } = &pod.metadata;
        let grace = SignedDuration::from_secs(deletion_grace_period_seconds.unwrap_or_default());
        let (created, deleted) = (creation_timestamp.as_ref()?.0, deletion_timestamp.as_ref()?.0 - grace);
        let name = meta::name(&pod.metadata).to_owned();
        never_runs(pod, container, now).then_some(Self { name, created, deleted })
    }
}

/// Whether it is certain that this container of a deleted Pod never ran and never will. Unknown is not certain.
fn never_runs(pod: &Pod, container: &str, now: Timestamp) -> bool {
    let began = status(pod, container).is_some_and(|status| {
        let created = status.container_id.as_ref().is_some_and(|id| !id.is_empty());
        let state = status.state.as_ref();
        let runs = state.is_some_and(|state| state.running.is_some());
        let ended = state.and_then(|state| state.terminated.as_ref()).is_some_and(had_started);
        let before = status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
        created || runs || ended || before || status.restart_count > 0
    });
    // The API server binds no Pod that is being deleted to a node.
    let unbound = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_none_or(str::is_empty);
    // In time: kubelet answered, and had lost no container in a restart of its node. The API server alone may have ended a
    // disrupted Pod while its node was silent.
    let by_kubelet = || ended(pod) && !lingers(pod, now) && condition(pod, "DisruptionTarget", "True").is_none();
    !began && (unbound || by_kubelet())
}

/// Returns the report of a container.
pub fn report(pod: &Pod, name: &str) -> Option<Report> {
    report_of(last_end(status(pod, name)?)?)
}

/// Returns the failure that a container reported.
pub fn failed_report(pod: &Pod, name: &str) -> Option<FailedReport> {
    match report(pod, name)? {
        Report::Failed(failed) => Some(failed),
        Report::Drilled(drilled) => drilled.failed,
        _ => None,
    }
}

/// Returns the report of a container that pruned a schedule's snapshots.
pub fn prune_report(pod: &Pod, name: &str) -> Option<PruneReport> {
    match removal_report(pod, name)? {
        RemovalReport::Pruned(report) => Some(*report),
        RemovalReport::Removed(_) => None,
    }
}

/// Returns the report of a container that removed a snapshot, or refused to remove it.
pub fn removed_report(pod: &Pod, name: &str) -> Option<RemovedReport> {
    match removal_report(pod, name)? {
        RemovalReport::Removed(report) => Some(report),
        RemovalReport::Pruned(_) => None,
    }
}

fn removal_report(pod: &Pod, name: &str) -> Option<RemovalReport> {
    serde_json::from_str(last_end(status(pod, name)?)?.message.as_deref()?.trim()).ok()
}

/// Returns the report in a container's termination message.
pub fn report_of(end: &ContainerStateTerminated) -> Option<Report> {
    serde_json::from_str(end.message.as_deref()?.trim()).ok()
}
