//! Facts about Pods and owners, read from what the API server says.
//!
//! Decides nothing but how a fact is read, so that the cluster pass and the member pass read it the same way.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use snapshot_agent::contract::{ExitClass, Report};

use crate::api::condition::Reason;
use crate::api::key;
use crate::api::member::{Joined, LastFailure};
use crate::plan::Target;
use crate::plan::build::container;

/// Longest piece of a container's last words that goes into a status.
const MAX_WORDS: usize = 500;

impl Target {
    /// The object with this metadata, as it was seen.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// An object's name.
pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// An object's UID.
pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Whether the object is on its way out.
pub const fn deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// Whether the object's controller is the one with this UID. Names never make an owner (I13).
pub fn controlled_by(meta: &ObjectMeta, owner: &str) -> bool {
    !owner.is_empty()
        && meta.owner_references.iter().flatten().any(|r| r.controller == Some(true) && r.uid.as_str() == owner)
}

/// The value of a label.
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

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
    condition(pod, "Ready", "True").is_some() && !deleting(&pod.metadata)
}

fn condition<'a>(pod: &'a Pod, kind: &str, status: &str) -> Option<&'a PodCondition> {
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

fn running_since(pod: &Pod) -> Option<Timestamp> {
    let running = status(pod, container::ETCD)?.state.as_ref()?.running.as_ref()?;
    Some(running.started_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0))
}

/// The same of a Pod with a restore step.
pub fn restore_held_since(pod: &Pod) -> Option<Timestamp> {
    container_of(pod, container::RESTORE)?;
    unprepared_since(pod)
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

/// What a person has to know of a Pod that goes and is there too long.
pub fn who_holds(pod: &Pod) -> String {
    let held = pod.metadata.finalizers.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
    match pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) {
        Some(node) if held.is_empty() => format!(
            "its Pod was told to end and node {node} does not say that it has. If that node is off for good, and only then: \
             kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        ),
        _ => format!("its Pod was told to end and stays: look for who holds it, by its finalizers ({held})"),
    }
}

/// The arguments of a container of a Pod.
pub fn arguments<'a>(pod: &'a Pod, name: &str) -> Option<&'a [String]> {
    container_of(pod, name)?.args.as_deref()
}

fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
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

/// What a container reported, where it reported anything.
pub fn report(pod: &Pod, name: &str) -> Option<Report> {
    serde_json::from_str(last_end(status(pod, name)?)?.message.as_deref()?.trim()).ok()
}

/// How the Pod's latest container to fail did so: init containers first, since etcd cannot have run before them.
pub fn failure(pod: &Pod) -> Option<LastFailure> {
    container::ALL.into_iter().find_map(|name| {
        let status = status(pod, name)?;
        // An init container that has succeeded since is no trouble any more.
        if status.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code == 0) {
            return None;
        }
        let end = last_end(status).filter(|t| t.exit_code != 0)?;
        let own = || (ExitClass::from_code(end.exit_code).map(|class| of(name, class)), words(end));
        let (reason, message) = out_of_memory(pod, name, end).unwrap_or_else(own);
        let reason = reason.map(|reason| reason.as_str().to_owned());
        Some(LastFailure { container: name.to_owned(), exit_code: end.exit_code, reason, message })
    })
}

/// What a class means where a container ended with it: no store is asked by the gate, which has nothing but the volume.
fn of(name: &str, class: ExitClass) -> Reason {
    if name == container::ETCD && is_of_the_volume(class) { Reason::MemberRestarting } else { Reason::from(class) }
}

const fn is_of_the_volume(class: ExitClass) -> bool {
    matches!(class, ExitClass::Denied | ExitClass::NotFound | ExitClass::Transient | ExitClass::Deadline)
}

/// A container that was killed for its memory, and what it needs. Its own words say nothing of it: they are the last lines
/// of its log, since there is no report (`FallbackToLogsOnError`).
fn out_of_memory(pod: &Pod, name: &str, end: &ContainerStateTerminated) -> Option<(Option<Reason>, String)> {
    // The kernel may have ended etcdutl alone (cgroup v1). The agent lives on, and calls that something that may pass.
    let killed = ExitClass::from_code(end.exit_code).is_none_or(|class| class == ExitClass::Transient);
    if !killed || end.reason.as_deref() != Some("OOMKilled") {
        return None;
    }
    let (reason, remedy) = match name {
        container::RESTORE => {
            (Some(Reason::AgentMisconfigured), "give spec.bootstrap.restore.agent.resources a larger limit")
        }
        // etcd restarts on its volume, as after any other end.
        container::ETCD => (
            None,
            "spec.resources is immutable: take load off it, or restore a snapshot of it into a cluster with a larger limit",
        ),
        _ => (None, "look at its node's memory"),
    };
    let limit = memory_limit(pod, name).unwrap_or("its node's");
    Some((reason, format!("it ran out of memory (limit {limit}): {remedy}")))
}

fn memory_limit<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let limits = container_of(pod, name)?.resources.as_ref()?.limits.as_ref()?;
    Some(limits.get("memory")?.0.as_str())
}

/// A container's last words, cut.
fn words(end: &ContainerStateTerminated) -> String {
    let raw = end.message.as_deref().unwrap_or_default().trim();
    let said = match serde_json::from_str::<Report>(raw) {
        Ok(Report::Failed(failed)) => failed.message,
        Ok(Report::Gate(gate)) => gate.message,
        Ok(Report::Saved(_) | Report::Restored(_) | Report::Probed(_) | Report::Latest(_)) | Err(_) => raw.to_owned(),
    };
    let said = if said.is_empty() { end.reason.clone().unwrap_or_default() } else { said };
    cut(&said)
}

/// Somebody else's words, not more than fit a condition.
fn cut(said: &str) -> String {
    match said.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => format!("{}…", &said[..end]),
        None => said.to_owned(),
    }
}

/// The reason of a failure that was found earlier.
pub fn failure_reason(failure: &LastFailure) -> Reason {
    let told = failure.reason.as_deref().and_then(Reason::named);
    told.or_else(|| ExitClass::from_code(failure.exit_code).map(Reason::from)).unwrap_or(Reason::MemberRestarting)
}

/// A failure in words, with what to do about it.
pub fn explain(failure: &LastFailure) -> String {
    let LastFailure { container: name, exit_code, reason, message } = failure;
    let restores = name == container::RESTORE;
    let remedy = match ExitClass::from_code(*exit_code) {
        Some(class) if name == container::ETCD && is_of_the_volume(class) => {
            "The gate could not use the member's volume: look at its claim, and at its node. It is tried again"
        }
        Some(ExitClass::Config) if restores => {
            "Correct what it names: spec.bootstrap.restore and its Secrets in place. spec.version, spec.storage and \
             spec.options are immutable: name another snapshot, or delete this cluster, which has not formed, and create \
             it again"
        }
        Some(ExitClass::Config) => "Correct what it names",
        Some(ExitClass::Denied) => "Correct the credentials in the Secret, or what they are allowed to do",
        Some(ExitClass::NotFound) => "Check bucket, prefix and key, or name another snapshot",
        Some(ExitClass::Corrupt) => "Nothing was started from these bytes; name another snapshot",
        Some(ExitClass::Transient) => "It is tried again",
        Some(ExitClass::Full) if restores => {
            "spec.bootstrap.restore may be changed in place, spec.storage.size may not: delete this cluster, which has not \
             formed, and create it again with a larger one"
        }
        Some(ExitClass::Full) => "Its volume is full: enlarge the claim, if its class allows that",
        Some(ExitClass::Deadline) if restores => {
            "Check the store, the network and the volume's disk. It is tried again"
        }
        Some(ExitClass::Deadline) => "Check the store and the network. It is tried again",
        Some(ExitClass::Refused) => "Nothing was touched; the runbook says how to tell the cases apart",
        Some(ExitClass::AuthRequired) => {
            "Holdfast does not run clusters with authentication yet: name a snapshot that was taken without it, or restore \
             by hand"
        }
        // What is wrong is known although no code says it.
        None if reason.is_some() => "It is tried again",
        None => "Look at the logs of the container; it is started again",
    };
    format!("container {name} ended with code {exit_code}: {message}. {remedy}")
}

/// What keeps a Pod from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldUp {
    /// In the words of kubelet or the scheduler.
    pub message: String,
    /// Whether it lasts until somebody does something.
    pub stuck: bool,
}

/// What keeps a Pod from running, where kubelet or the scheduler has said so.
pub fn hold_up(pod: &Pod) -> Option<HoldUp> {
    let status = pod.status.as_ref()?;
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let waiting = all.filter_map(|s| s.state.as_ref()?.waiting.as_ref());
    let mut quiet = None;
    for held in waiting {
        let reason = held.reason.as_deref().unwrap_or_default();
        match reason {
            "" | "ContainerCreating" | "PodInitializing" => quiet = Some(preparing(pod)),
            // How it failed is told by its last end.
            "CrashLoopBackOff" => {}
            // kubelet's own list of what it cannot mend by itself (pkg/kubelet/images, pkg/kubelet/kuberuntime).
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "InvalidImageName"
            | "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError" => {
                let said = held.message.as_deref().unwrap_or("kubelet gives no reason");
                return Some(HoldUp { message: cut(&format!("{reason}: {said}")), stuck: true });
            }
            other => quiet = Some(HoldUp { message: other.to_owned(), stuck: false }),
        }
    }
    quiet.or_else(|| unscheduled(pod))
}

/// kubelet says no more than that it is at it; what it may be waiting for stands in the Pod.
fn preparing(pod: &Pod) -> HoldUp {
    let volumes = || pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let secrets: Vec<&str> = volumes().filter_map(|v| v.secret.as_ref()?.secret_name.as_deref()).collect();
    let claims: Vec<&str> =
        volumes().filter_map(|v| Some(v.persistent_volume_claim.as_ref()?.claim_name.as_str())).collect();
    let mut parts = vec![];
    if !secrets.is_empty() {
        parts.push(format!("Secrets ({})", secrets.join(", ")));
    }
    if !claims.is_empty() {
        parts.push(format!("volumes ({})", claims.join(", ")));
    }
    parts.push("image".to_owned());
    let message = format!(
        "its {} are being prepared; if that stays, `kubectl describe pod {}` says which of them is missing",
        parts.join(", "),
        name(&pod.metadata)
    );
    HoldUp { message, stuck: false }
}

fn unscheduled(pod: &Pod) -> Option<HoldUp> {
    let scheduled = condition(pod, "PodScheduled", "False")?;
    let reason = scheduled.reason.as_deref().unwrap_or("not scheduled");
    let said = scheduled.message.as_deref().unwrap_or("the scheduler gives no reason");
    Some(HoldUp { message: cut(&format!("{reason}: {said}")), stuck: reason == "Unschedulable" })
}
