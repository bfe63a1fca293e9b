//! Facts about Pods, read from what the API server says.
//!
//! Decides nothing but how a fact is read, so that the cluster pass and the member pass read it the same way.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use snapshot_agent::contract::{PruneReport, RemovalReport, RemovedReport, Report};

use super::meta;
use crate::api::key;
use crate::api::member::Joined;
use crate::plan::build::container;

/// Whether a member may still start on an empty volume.
pub fn may_start_empty(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(key::MAY_START_EMPTY))
}

/// The number of this Pod among its member's, as its gate was told; `None` for Pods made before there was one.
pub fn start_number(pod: &Pod) -> Option<u64> {
    let gate = arguments(pod, container::ETCD)?.iter().take_while(|arg| *arg != "--exec");
    gate.filter_map(|arg| arg.strip_prefix("--start=")).find_map(|number| number.parse().ok())
}

/// The number of the latest Pod of its member that this Pod knows to have served.
pub fn knows_started(pod: &Pod) -> u64 {
    let said = pod.metadata.annotations.as_ref().and_then(|a| a.get(key::STARTED));
    said.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Whether the Pod knows that its member has joined as this one.
pub fn knows_joined(pod: &Pod, joined: &Joined) -> bool {
    let said = pod.metadata.annotations.as_ref().and_then(|a| a.get(key::JOINED));
    said.is_some_and(|said| *said == joined.annotation())
}

/// Whether the Pod answers its readiness probe.
pub fn ready(pod: &Pod) -> bool {
    condition(pod, "Ready", "True").is_some() && !meta::deleting(&pod.metadata)
}

pub(super) fn condition<'a>(pod: &'a Pod, kind: &str, status: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == status)
}

/// Whether the Pod has ended for good: kubelet never starts its containers again.
pub fn ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Failed" | "Succeeded"))
}

/// Why the Pod as a whole has ended, in kubelet's words and in brackets: `Evicted`, `OutOfpods` and the like.
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

pub(super) fn running_since(pod: &Pod) -> Option<Timestamp> {
    let running = status(pod, container::ETCD)?.state.as_ref()?.running.as_ref()?;
    Some(running.started_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0))
}

/// The image of ours that the Pod was asked for with. What stands in it may be a webhook's; only of one that an earlier
/// version made nothing else is known.
pub fn agent_image(pod: &Pod) -> Option<&str> {
    let said = pod.metadata.annotations.as_ref().and_then(|all| all.get(key::AGENT_IMAGE)).map(String::as_str);
    said.or_else(|| container_of(pod, container::INSTALL)?.image.as_deref())
}

/// Whether the Pod has a restore step, and so keeps what that needs mounted, also when it is long done.
pub fn restores(pod: &Pod) -> bool {
    container_of(pod, container::RESTORE).is_some()
}

/// Names of the claims that the Pod mounts.
pub fn claims(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// A claim that both Pods mount, while the other one has not ended.
pub fn shared_claim<'a>(pod: &'a Pod, other: &Pod) -> Option<&'a str> {
    let another = meta::uid(&pod.metadata) != meta::uid(&other.metadata) && !ended(other);
    claims(pod).find(|claim| another && claims(other).any(|used| used == *claim))
}

/// [`unprepared_since`], of a Pod with a restore step.
pub fn restore_held_since(pod: &Pod) -> Option<Timestamp> {
    if restores(pod) { unprepared_since(pod) } else { None }
}

/// Since when a Pod cannot start, where kubelet says so: it has no sandbox, or a volume is not mounted (Kubernetes:
/// `PodReadyToStartContainers`, KEP 3085). `None` while etcd runs, whatever else is said.
pub fn unprepared_since(pod: &Pod) -> Option<Timestamp> {
    if runs(pod) {
        return None;
    }
    let unprepared = condition(pod, "PodReadyToStartContainers", "False")?;
    unprepared.last_transition_time.as_ref().map(|t| t.0)
}

/// A Pod that is not there yet, or not long enough for its silence to mean anything: 60 s to be scheduled, pulled and
/// mounted; 30 s for etcd to read its log and find a leader.
pub fn starting(pod: Option<&Pod>, now: Timestamp) -> bool {
    let Some(pod) = pod else { return true };
    if let Some(since) = running_since(pod) {
        return now < since + SignedDuration::from_secs(30);
    }
    pod.metadata.creation_timestamp.as_ref().is_none_or(|t| now < t.0 + SignedDuration::from_secs(60))
}

/// So long a member may take to join with each of two Pods: the member's pass makes the second one (`member/pod.rs`), and the
/// cluster's pass gives the member up (`cluster/stuck.rs`).
pub const JOINS_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// Longer than this after its time to end a Pod is still there: its node does not say that it has ended. The API server
/// sets that time to the end of the grace period (metadata.deletionTimestamp).
const LINGERS_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// From when on a Pod that goes is there too long.
pub fn lingers_from(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.deletion_timestamp.as_ref().map(|t| t.0 + LINGERS_AFTER)
}

/// Whether a Pod that goes is there too long.
pub fn lingers(pod: &Pod, now: Timestamp) -> bool {
    lingers_from(pod).is_some_and(|from| now >= from)
}

/// Between what is wrong with the node of such a Pod and what a person may do.
pub(super) const IF_OFF: &str = ". If that node never returns, and only then: ";

/// What a person has to know of a Pod that goes and is there too long.
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

/// The arguments of a container of a Pod.
pub fn arguments<'a>(pod: &'a Pod, name: &str) -> Option<&'a [String]> {
    container_of(pod, name)?.args.as_deref()
}

pub(super) fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|c| c.name == name)
}

/// The status of a container of a Pod.
pub fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    all.into_iter().find(|c| c.name == name)
}

/// How a container last ended.
pub fn last_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    fn ended(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
        state?.terminated.as_ref()
    }
    ended(status.state.as_ref()).or_else(|| ended(status.last_state.as_ref()))
}

/// How kubelet reports a container of which kubelet knows no end, also one that it never started.
const UNKNOWN_END: &str = "ContainerStatusUnknown";

/// In its message where the container had run (Kubernetes: `convertStatusToAPIStatus` in kubelet_pods.go).
const USED_TO_RUN: &str = "used to be Running";

/// Whether a container that has ended had begun.
pub(super) fn had_begun(end: &ContainerStateTerminated) -> bool {
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
    /// When its deletion was asked for.
    pub deleted: Timestamp,
}

impl Unstarted {
    /// The Pod in its last state, where that state proves that this container never ran and never will.
    pub fn of(pod: &Pod, container: &str, now: Timestamp) -> Option<Self> {
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
        let ended = state.and_then(|state| state.terminated.as_ref()).is_some_and(had_begun);
        let before = status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
        created || runs || ended || before || status.restart_count > 0
    });
    // The API server binds no Pod that is being deleted to a node.
    let unbound = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_none_or(str::is_empty);
    // In time: kubelet answered, and had lost no container in a restart of its node. A disrupted Pod may have been ended by
    // the API server alone, while its node was not heard.
    let by_kubelet = || ended(pod) && !lingers(pod, now) && condition(pod, "DisruptionTarget", "True").is_none();
    !began && (unbound || by_kubelet())
}

/// What a container reported, where it reported anything.
pub fn report(pod: &Pod, name: &str) -> Option<Report> {
    report_of(last_end(status(pod, name)?)?)
}

/// What a container reported of the snapshots of a schedule that it judged.
pub fn prune_report(pod: &Pod, name: &str) -> Option<PruneReport> {
    match removal_report(pod, name)? {
        RemovalReport::Pruned(report) => Some(*report),
        RemovalReport::Removed(_) => None,
    }
}

/// What a container reported of the one snapshot that it removed, or refused to remove.
pub fn removed_report(pod: &Pod, name: &str) -> Option<RemovedReport> {
    match removal_report(pod, name)? {
        RemovalReport::Removed(report) => Some(report),
        RemovalReport::Pruned(_) => None,
    }
}

fn removal_report(pod: &Pod, name: &str) -> Option<RemovalReport> {
    serde_json::from_str(last_end(status(pod, name)?)?.message.as_deref()?.trim()).ok()
}

/// The report in a container's last words.
pub(super) fn report_of(end: &ContainerStateTerminated) -> Option<Report> {
    serde_json::from_str(end.message.as_deref()?.trim()).ok()
}
