//! Why a container failed and why a Pod does not run, in words with the remedy.
//!
//! Decides the reason and the remedy. `pods.rs` reads a Pod's status.

use holdfast_api::condition::Reason;
use holdfast_api::member::LastFailure;
use holdfast_contract::{ExitClass, Failure, Origin, Report};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, PersistentVolumeClaim, Pod};

use super::{meta, pods};
use crate::objects::container;

/// Longest part of a container's termination message that goes into a status.
const MAX_WORDS: usize = 500;

/// Returns the failure of the Pod's latest container to fail: init containers first, since etcd cannot have run before them.
pub fn find_last(pod: &Pod) -> Option<LastFailure> {
    container::ALL.into_iter().find_map(|name| {
        let status = pods::status(pod, name)?;
        // An init container that has succeeded since is no failure any more.
        if status.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code == 0) {
            return None;
        }
        let end = pods::last_end(status).filter(|t| t.exit_code != 0)?;
        let report = pods::report_of(end);
        let own = || (Failure::for_code(end.exit_code).map(Reason::from), words(end, report.as_ref()));
        let (reason, message) = out_of_memory(pod, name, end).unwrap_or_else(own);
        let reason = reason.map(|reason| reason.as_str().to_owned());
        let verdict = match report {
            Some(Report::Gate(gate)) => Some(gate.verdict),
            _ => None,
        };
        Some(LastFailure { container: name.to_owned(), exit_code: end.exit_code, reason, verdict, message })
    })
}

/// etcd's write-ahead log is corrupt.
pub const CORRUPT_LOG: &str = "CorruptLog";
/// etcd's database is corrupt.
pub const CORRUPT_DATABASE: &str = "CorruptDatabase";

/// etcd's messages before it exits over a corrupt log (server/storage/wal: `ErrCRCMismatch`, `ErrSnapshotMismatch`;
/// server/storage: `readWAL`).
const LOG_WORDS: [&str; 4] =
    ["crc mismatch", "cannot be repaired", "wal: snapshot mismatch", "wal: slice bounds out of range"];
/// bbolt's messages before it exits over a corrupt file (db.go, page.go, freelist.go).
const DATABASE_WORDS: [&str; 5] =
    ["invalid database", "Page expected to be", "freepages: failed", "unexpected page type", "checksum error"];

/// Returns why a Pod's gate or etcd refuses the member's data: the gate's verdict, or etcd's own words with the exit code of an
/// error or a panic. A container that was killed gives no verdict.
pub fn verdict(pod: &Pod) -> Option<String> {
    let status = pods::status(pod, container::ETCD)?;
    let end = pods::last_end(status)?;
    if let Some(Report::Gate(gate)) = pods::report_of(end) {
        return Some(gate.verdict).filter(|_| end.exit_code != 0);
    }
    let message = end.message.as_deref().unwrap_or_default();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let own = matches!(end.exit_code, 1 | 2);
    match () {
        () if own && says(&LOG_WORDS) => Some(CORRUPT_LOG.to_owned()),
        () if own && says(&DATABASE_WORDS) => Some(CORRUPT_DATABASE.to_owned()),
        () => None,
    }
}

/// Returns the failure and the remedy of a container that was killed for its memory. Its termination message does not name the
/// cause: the message has the last lines of the log, since there is no report (`FallbackToLogsOnError`).
fn out_of_memory(pod: &Pod, name: &str, end: &ContainerStateTerminated) -> Option<(Option<Reason>, String)> {
    // The kernel may have ended etcdutl alone (cgroup v1). The agent lives on, and reports a transient failure.
    let killed = Failure::for_code(end.exit_code).is_none_or(|failure| failure.class == ExitClass::Transient);
    if !killed || end.reason.as_deref() != Some("OOMKilled") {
        return None;
    }
    let (reason, remedy) = match name {
        container::RESTORE => {
            (Some(Reason::AgentMisconfigured), "give spec.bootstrap.restore.agent.resources a larger limit")
        }
        // etcd restarts on its volume, as after any other end.
        container::ETCD => (None, "raise spec.resources, or reduce the load"),
        _ => (None, "check its node's memory"),
    };
    let limit = pods::memory_limit(pod.spec.as_ref(), name).unwrap_or("its node's");
    Some((reason, format!("the container ran out of memory (limit {limit}): {remedy}")))
}

/// Returns a container's termination message, cut.
fn words(end: &ContainerStateTerminated, report: Option<&Report>) -> String {
    let text = match report {
        Some(Report::Failed(failed)) => &failed.message,
        Some(Report::Gate(gate)) => &gate.message,
        Some(
            Report::Saved(_)
            | Report::Restored(_)
            | Report::Probed(_)
            | Report::Latest(_)
            | Report::Recalled(_)
            | Report::Compared(_)
            | Report::Drilled(_)
            | Report::Surveyed(_),
        )
        | None => return last_words(end.message.as_deref().unwrap_or_default().trim(), end),
    };
    let text = if text.is_empty() { end.reason.as_deref().unwrap_or_default() } else { text };
    cut(text)
}

/// Returns the words of a container without a report. Its message is the end of its log (`FallbackToLogsOnError`): etcd writes why it
/// ends into a line of the level `fatal` or `panic`, and Go writes a stack after it.
fn last_words(log: &str, end: &ContainerStateTerminated) -> String {
    let fatal = log.lines().rev().find_map(fatal_line).map(|words| cut(&words));
    let panic = || log.lines().rev().find(|line| line.starts_with("panic: ")).map(cut);
    let tail = || match log.char_indices().rev().nth(MAX_WORDS) {
        Some((start, first)) => format!("…{}", &log[start + first.len_utf8()..]),
        None => log.to_owned(),
    };
    fatal.or_else(panic).or_else(|| Some(tail()).filter(|tail| !tail.is_empty())).unwrap_or_else(|| {
        let reason = end.reason.as_deref().unwrap_or_default();
        cut(reason)
    })
}

/// Returns message and error of a line of etcd's log after which etcd ends.
fn fatal_line(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| line.get(key).and_then(serde_json::Value::as_str);
    matches!(text("level")?, "fatal" | "panic").then(|| match (text("msg").unwrap_or_default(), text("error")) {
        (message, Some(error)) => format!("{message}: {error}"),
        (message, None) => message.to_owned(),
    })
}

/// Returns a text of another program, cut to the size of a condition.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the reason of a recorded failure.
pub fn reason(failure: &LastFailure) -> Reason {
    let named = failure.reason.as_deref().and_then(Reason::named);
    named.or_else(|| Failure::for_code(failure.exit_code).map(Reason::from)).unwrap_or(Reason::MemberRestarting)
}

/// Returns a failure in words, with the remedy.
pub fn explain(failure: &LastFailure) -> String {
    let LastFailure { container: name, exit_code, reason, message, verdict: _ } = failure;
    let restores = name == container::RESTORE;
    let known = Failure::for_code(*exit_code);
    let remedy = match known.map(|failure| failure.class) {
        _ if known.is_some_and(|failure| failure.origin == Some(Origin::Volume)) => {
            "Check the member's claim and its node. kubelet starts the container again"
        }
        Some(ExitClass::Config) if restores => {
            "Correct the named field or Secret: spec.bootstrap.restore and its Secrets, spec.version, spec.storage and \
             spec.options may be changed until the cluster has formed"
        }
        Some(ExitClass::Config) => "Correct the named field or Secret",
        Some(ExitClass::Denied) => "Correct the credentials in the Secret, or grant the missing right",
        Some(ExitClass::NotFound) if restores => {
            "Check bucket, prefix and key, or name another snapshot or point. kubelet starts the container again, which \
             finds a log that has grown meanwhile"
        }
        Some(ExitClass::NotFound) => "Check bucket, prefix and key, or name another snapshot",
        Some(ExitClass::Corrupt) => "Nothing was started from these bytes; name another snapshot",
        Some(ExitClass::Transient) => "kubelet starts the container again",
        Some(ExitClass::Full) if restores => {
            "Enlarge spec.storage.size, or name another snapshot in spec.bootstrap.restore: both may be changed until the \
             cluster has formed"
        }
        Some(ExitClass::Full) => "Its volume is full: set a larger spec.storage.size, if its StorageClass allows that",
        Some(ExitClass::Deadline) if restores => {
            "Check the store, the network and the volume's disk. kubelet starts the container again"
        }
        Some(ExitClass::Deadline) => "Check the store and the network. kubelet starts the container again",
        Some(ExitClass::Refused) => "Nothing was touched; the runbook says how to tell the cases apart",
        Some(ExitClass::AuthRequired) => {
            "Holdfast does not run clusters with authentication yet: name a snapshot without authentication, or \
             restore by hand"
        }
        Some(ExitClass::MembersDiffer) => "Compare the members by hand (holdfast agent compare-members)",
        // The reason is known although no exit code names it.
        None if reason.is_some() => "kubelet starts the container again",
        Some(ExitClass::Undecodable) | None => "Check the container's log. kubelet starts the container again",
    };
    format!("container {name} ended with code {exit_code}: {message}. {remedy}")
}

/// The cause that keeps a Pod from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldUp {
    /// The cause in the words of kubelet or the scheduler.
    pub message: String,
    /// Whether the cause keeps the Pod from running until a person acts, or another program.
    pub stuck: bool,
    /// Whether kubelet tries again, and may succeed: a registry does not answer.
    pub passes: bool,
}

/// Words of a registry or of kubelet about an image that is not there, or that the Pod may not have. Each other failure of a pull, such
/// as a refused connection, a code 5xx or a rate limit, may pass.
const NO_IMAGE: [&str; 9] = [
    "not found",
    "manifest unknown",
    "name unknown",
    "does not exist",
    "no match for platform",
    "invalid reference format",
    "insufficient_scope",
    "denied",
    "unauthorized",
];

/// Returns why kubelet cannot pull an image. kubelet repeats the registry's answer while it waits before the next try.
fn unpulled(reason: &str, message: &str) -> HoldUp {
    let answer = message.rsplit_once("ErrImagePull: ").map(|(_, answer)| answer);
    let (reason, message) = answer.map_or((reason, message), |answer| ("ErrImagePull", answer));
    let passes = !NO_IMAGE.iter().any(|words| message.contains(words));
    HoldUp { message: cut(&format!("{reason}: {message}")), stuck: true, passes }
}

/// Returns the cause that keeps a Pod from running, if kubelet or the scheduler names a cause. `claim`: the Pod's own claim, if
/// known.
pub fn hold_up(pod: &Pod, claim: Option<&PersistentVolumeClaim>) -> Option<HoldUp> {
    let status = pod.status.as_ref()?;
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let waiting = all.filter_map(|s| s.state.as_ref()?.waiting.as_ref());
    let mut quiet = None;
    for held in waiting {
        let reason = held.reason.as_deref().unwrap_or_default();
        match reason {
            "" | "ContainerCreating" | "PodInitializing" => quiet = Some(preparing(pod)),
            // The container's last end explains the failure.
            "CrashLoopBackOff" => {}
            // kubelet's own list of causes that it cannot correct by itself (pkg/kubelet/images, pkg/kubelet/kuberuntime).
            "ErrImagePull" | "ImagePullBackOff" => {
                return Some(unpulled(reason, held.message.as_deref().unwrap_or("kubelet gives no reason")));
            }
            "ErrImageNeverPull"
            | "InvalidImageName"
            | "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError" => {
                let message = held.message.as_deref().unwrap_or("kubelet gives no reason");
                return Some(HoldUp { message: cut(&format!("{reason}: {message}")), stuck: true, passes: false });
            }
            other => quiet = Some(HoldUp { message: other.to_owned(), stuck: false, passes: false }),
        }
    }
    quiet.or_else(|| unscheduled(pod, claim))
}

/// Returns the objects that kubelet may wait for: kubelet reports only that it prepares the Pod, so the names come from the spec.
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
        "kubelet prepares its {}; if the Pod stays in this state, `kubectl describe pod {}` names the missing object",
        parts.join(", "),
        meta::name(&pod.metadata)
    );
    HoldUp { message, stuck: false, passes: false }
}

fn unscheduled(pod: &Pod, claim: Option<&PersistentVolumeClaim>) -> Option<HoldUp> {
    let scheduled = pods::condition(pod, "PodScheduled", "False")?;
    let reason = scheduled.reason.as_deref().unwrap_or("not scheduled");
    let message = scheduled.message.as_deref().unwrap_or("the scheduler gives no reason");
    // The scheduler waits for the claim, and does not name the object that the claim waits for.
    let cause = claim.filter(|_| message.contains("unbound immediate PersistentVolumeClaims")).and_then(unprovisioned);
    let message = cause.as_deref().unwrap_or(message);
    Some(HoldUp { message: cut(&format!("{reason}: {message}")), stuck: reason == "Unschedulable", passes: false })
}

/// Returns why Kubernetes provisions no volume for a claim. Its controller writes the provisioner of the claim's class into an
/// annotation before any other step (`setClaimProvisioner`), so a claim without the annotation has no class that provisions. The
/// operator has no right to read StorageClasses or Events.
fn unprovisioned(claim: &PersistentVolumeClaim) -> Option<String> {
    const PROVISIONER: [&str; 2] =
        ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
    let spec = claim.spec.as_ref()?;
    let taken = claim.metadata.annotations.iter().any(|all| PROVISIONER.iter().any(|key| all.contains_key(*key)));
    if taken || spec.volume_name.as_deref().is_some_and(|name| !name.is_empty()) {
        return None;
    }
    let name = meta::name(&claim.metadata);
    Some(match spec.storage_class_name.as_deref() {
        None => format!(
            "claim {name} has no volume: spec.storage.storageClassName is not set, and the Kubernetes cluster has no default \
             StorageClass. Set the field before the cluster has formed, or create a default StorageClass"
        ),
        Some("") => format!(
            "claim {name} has no volume: no free PersistentVolume without a class fits. Create a PersistentVolume, or set \
             spec.storage.storageClassName before the cluster has formed"
        ),
        Some(class) => format!(
            "claim {name} has no volume: StorageClass {class} does not exist, or provisions no volumes. Create the \
             StorageClass, or correct spec.storage.storageClassName before the cluster has formed (kubectl get storageclass)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_that_does_not_answer_passes_and_a_missing_image_does_not() {
        for (message, passes) in [
            ("rpc error: failed to resolve reference: dial tcp 10.0.0.1:5000: connect: connection refused", true),
            ("unexpected status from GET request to https://r/v2/: 503 Service Unavailable", true),
            ("429 Too Many Requests: toomanyrequests: you have reached your pull rate limit", true),
            ("dial tcp: lookup r.example.org: no such host", true),
            ("failed to resolve reference \"r/etcd:v3.6.99\": r/etcd:v3.6.99: not found", false),
            ("manifest unknown", false),
            ("pull access denied, repository does not exist or may require authorization", false),
        ] {
            let first = unpulled("ErrImagePull", message);
            assert_eq!((first.passes, first.stuck), (passes, true), "{message}");
            let waits = format!("Back-off pulling image \"r/etcd\": ErrImagePull: {message}");
            assert_eq!(unpulled("ImagePullBackOff", &waits), first, "{message}");
        }
    }

    #[test]
    fn the_line_after_which_etcd_ends_is_shown() {
        let fatal = r#"{"level":"fatal","ts":"2026-01-01T12:00:00Z","caller":"etcdmain/etcd.go:204","msg":"discovery failed","error":"write /d/wal: no space left on device"}"#;
        let stack = "goroutine 1 [running]:\ngo.etcd.io/etcd/server/v3/etcdmain.startEtcdOrProxyV2(...)\n".repeat(20);
        let words = |log: &str| {
            last_words(log, &ContainerStateTerminated { reason: Some("Error".to_owned()), ..Default::default() })
        };
        assert_eq!(
            words(&format!("mit\n\tgo.etcd.io/x\n{fatal}\n{stack}")),
            "discovery failed: write /d/wal: no space left on device"
        );
        assert_eq!(
            words(&format!("{{\"level\":\"info\",\"msg\":\"x\"}}\npanic: freepages: failed\n{stack}")),
            "panic: freepages: failed"
        );
        // Neither: the end of the log, not its start.
        let tail = words(&format!("{stack}the last line"));
        assert!(
            tail.starts_with('…') && tail.ends_with("the last line") && tail.chars().count() == MAX_WORDS + 1,
            "{tail}"
        );
        assert_eq!((words("short").as_str(), words("").as_str()), ("short", "Error"));
    }
}
