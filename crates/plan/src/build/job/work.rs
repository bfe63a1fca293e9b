//! The work of a Job that runs the agent: a verb and its request.
//!
//! Decides verb, retries, time and access to the store for each sort of work. `job.rs` decides the shape of the Job.

use holdfast_api::component;
use holdfast_contract::{
    CompactRequest, EtcdFlags, InspectRequest, LatestRequest, LogRequest, ProbeRequest, PruneRequest, RecallRequest,
    RemoveRequest, SaveRequest, SnapshotFlags, StoreFlags, VerifyRequest,
};
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::super::store::Use;
use super::COMPARE;

/// Number of failed Pods before the Job of a save gives up. The Job controller's pauses of 10 s to 320 s, each twice the last,
/// cover ten minutes of failures of a store or of etcd.
pub const BACKOFF_LIMIT: i32 = 6;

/// Number of failed Pods before a question to the store gives up; the snapshot's plan repeats the question.
const INSPECT_BACKOFF_LIMIT: i32 = 3;

/// Number of failed Pods before a drill gives up; the next drill comes by itself.
const DRILL_BACKOFF_LIMIT: i32 = 2;

/// How long an ended Job stays, with its Pod and the log. The snapshot's status has the result by then; otherwise the operator
/// asks the store.
pub const KEPT_SECONDS: i32 = 3600;

/// How long an ended Job stays that may repeat every minute, and whose owner's status has the result.
const REPEATED_KEPT_SECONDS: i32 = 600;

/// Request of the agent. The builder fills in the store, from the Job's `destination`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "made once for each Job, and moved once")]
pub enum Work {
    /// Saves a snapshot.
    Save(SaveRequest),
    /// Records every revision. `deployment.rs` makes a Deployment of the Pod.
    Log(LogRequest),
    /// Reports whether a snapshot was saved.
    Inspect(InspectRequest),
    /// Reports the latest snapshot.
    Latest(LatestRequest),
    /// Reports the stored runs of a schedule.
    Recall(RecallRequest),
    /// Announces and removes snapshots of a schedule.
    Prune(PruneRequest),
    /// Removes one snapshot.
    Remove(RemoveRequest),
    /// Probes a store.
    Probe(ProbeRequest),
    /// Restores a snapshot with another version of etcd, and compares the answers of that etcd.
    Rehearse(VerifyRequest),
    /// Merges the newest snapshot and the log.
    Compact(CompactRequest),
    /// Restores the latest snapshot of a schedule, and compares the answers of an etcd.
    Drill(VerifyRequest),
}

/// Verbs of `agent` in a Pod's command.
const SAVE: &str = "save";
const LOG: &str = "log";
const INSPECT: &str = "inspect";
const LATEST: &str = "latest";
const RECALL: &str = "recall";
const PRUNE: &str = "prune";
const REMOVE: &str = "remove";
const PROBE: &str = "probe";
const VERIFY: &str = "verify";
const COMPACT: &str = "compact";

/// Whether a Holdfast Pod saves.
pub fn saves(pod: &PodSpec) -> bool {
    runs(pod, SAVE)
}

/// Whether a Holdfast Pod merges a snapshot and the log.
pub fn compacts(pod: &PodSpec) -> bool {
    runs(pod, COMPACT)
}

/// Whether a Holdfast Pod records a log.
pub fn records_log(pod: &PodSpec) -> bool {
    runs(pod, LOG)
}

/// Whether a Holdfast Pod only asks the store about a snapshot.
pub fn inspects(pod: &PodSpec) -> bool {
    runs(pod, INSPECT)
}

/// Whether a Holdfast Pod looks for the latest snapshot.
pub fn searches(pod: &PodSpec) -> bool {
    runs(pod, LATEST)
}

/// Whether a Holdfast Pod removes snapshots of a schedule.
pub fn prunes(pod: &PodSpec) -> bool {
    runs(pod, PRUNE)
}

/// Whether a Holdfast Pod removes one snapshot.
pub fn removes(pod: &PodSpec) -> bool {
    runs(pod, REMOVE)
}

/// Whether a Holdfast Pod probes a store.
pub fn probes(pod: &PodSpec) -> bool {
    runs(pod, PROBE)
}

/// Whether a Holdfast Pod compares the members before anything else.
pub fn compares(pod: &PodSpec) -> bool {
    pod.init_containers.iter().flatten().next().is_some_and(|first| first.name == COMPARE)
}

/// Whether a Holdfast Pod rehearses an upgrade.
pub fn rehearses(pod: &PodSpec) -> bool {
    runs(pod, VERIFY) && !drills(pod)
}

/// Whether a Holdfast Pod drills the latest snapshot of a schedule.
pub fn drills(pod: &PodSpec) -> bool {
    let asks = |container: &Container| container.args.iter().flatten().any(|arg| arg == "--latest");
    runs(pod, VERIFY) && pod.containers.iter().any(asks)
}

fn runs(pod: &PodSpec, verb: &str) -> bool {
    pod.containers.iter().flat_map(|c| c.command.iter().flatten()).any(|word| word == verb)
}

impl Work {
    pub(super) const fn verb(&self) -> &'static str {
        match self {
            Self::Save(_) => SAVE,
            Self::Log(_) => LOG,
            Self::Inspect(_) => INSPECT,
            Self::Latest(_) => LATEST,
            Self::Recall(_) => RECALL,
            Self::Prune(_) => PRUNE,
            Self::Remove(_) => REMOVE,
            Self::Probe(_) => PROBE,
            Self::Rehearse(_) | Self::Drill(_) => VERIFY,
            Self::Compact(_) => COMPACT,
        }
    }

    pub(super) fn cluster(&self) -> Option<&str> {
        match self {
            Self::Save(request) => Some(&request.cluster),
            Self::Log(request) => Some(&request.cluster),
            Self::Inspect(request) => Some(&request.cluster),
            Self::Recall(request) => Some(&request.cluster),
            Self::Prune(request) => Some(&request.cluster),
            Self::Compact(request) => Some(&request.cluster),
            // The Job's own cluster, which may differ from the snapshots' cluster.
            Self::Latest(_) | Self::Remove(_) | Self::Probe(_) | Self::Rehearse(_) | Self::Drill(_) => None,
        }
    }

    /// Returns the component of the Pod.
    pub(super) const fn component(&self) -> &'static str {
        match self {
            Self::Drill(_) => component::SNAPSHOT_DRILL,
            Self::Save(_)
            | Self::Log(_)
            | Self::Inspect(_)
            | Self::Latest(_)
            | Self::Recall(_)
            | Self::Prune(_)
            | Self::Remove(_)
            | Self::Probe(_)
            | Self::Compact(_)
            | Self::Rehearse(_) => component::SNAPSHOT_AGENT,
        }
    }

    /// Returns the number of retries. The owner's plan repeats a probe, a search, a recall, a prune and a removal.
    pub(super) const fn backoff_limit(&self) -> i32 {
        match self {
            Self::Save(_) => BACKOFF_LIMIT,
            Self::Drill(_) | Self::Compact(_) => DRILL_BACKOFF_LIMIT,
            Self::Inspect(_) | Self::Rehearse(_) => INSPECT_BACKOFF_LIMIT,
            Self::Log(_) | Self::Latest(_) | Self::Recall(_) | Self::Prune(_) | Self::Remove(_) | Self::Probe(_) => 0,
        }
    }

    pub(super) const fn kept_seconds(&self) -> i32 {
        match self {
            // A search too: the reason for an empty result stays visible until the next search has ended, ten or more minutes
            // later.
            Self::Save(_)
            | Self::Log(_)
            | Self::Inspect(_)
            | Self::Latest(_)
            | Self::Recall(_)
            | Self::Prune(_)
            | Self::Remove(_)
            | Self::Rehearse(_)
            | Self::Compact(_)
            | Self::Drill(_) => KEPT_SECONDS,
            Self::Probe(_) => REPEATED_KEPT_SECONDS,
        }
    }

    pub(super) const fn deadline_seconds(&self) -> u32 {
        match self {
            Self::Save(request) => request.deadline_seconds.saturating_add(request.delay_seconds),
            // A Deployment has no deadline.
            Self::Log(_) => 0,
            Self::Inspect(request) => request.deadline_seconds,
            Self::Latest(request) => request.deadline_seconds,
            Self::Recall(request) => request.deadline_seconds,
            Self::Prune(request) => request.deadline_seconds,
            Self::Remove(request) => request.deadline_seconds,
            Self::Probe(request) => request.deadline_seconds,
            Self::Compact(request) => request.deadline_seconds,
            Self::Rehearse(request) | Self::Drill(request) => request.deadline_seconds,
        }
    }

    pub(super) const fn uses(&self) -> Use {
        match self {
            Self::Save(_) | Self::Log(_) | Self::Probe(_) | Self::Compact(_) => Use::Save,
            Self::Inspect(_) | Self::Recall(_) => Use::Inspect,
            Self::Prune(_) | Self::Remove(_) => Use::Prune,
            // As in the following restore: the agent reports a missing Secret, whereas kubelet would wait in silence until the
            // Job's deadline.
            Self::Latest(_) | Self::Rehearse(_) => Use::Restore,
            Self::Drill(_) => Use::Prove,
        }
    }

    pub(super) fn to_args(&self, store: StoreFlags, etcd: Option<EtcdFlags>) -> Vec<String> {
        match self {
            Self::Save(request) => {
                let etcd = etcd.unwrap_or_else(|| request.etcd.clone());
                SaveRequest { store, etcd, cluster_spec: None, ..request.clone() }.to_args()
            }
            Self::Log(request) => {
                let etcd = etcd.unwrap_or_else(|| request.etcd.clone());
                LogRequest { store, etcd, ..request.clone() }.to_args()
            }
            Self::Inspect(request) => InspectRequest { store, ..request.clone() }.to_args(),
            Self::Latest(request) => LatestRequest { store, ..request.clone() }.to_args(),
            Self::Recall(request) => RecallRequest { store, ..request.clone() }.to_args(),
            Self::Prune(request) => PruneRequest { store, ..request.clone() }.to_args(),
            Self::Remove(request) => RemoveRequest { store, ..request.clone() }.to_args(),
            Self::Probe(request) => ProbeRequest { store, ..request.clone() }.to_args(),
            Self::Compact(request) => CompactRequest { store, ..request.clone() }.to_args(),
            Self::Rehearse(request) | Self::Drill(request) => {
                let snapshot = SnapshotFlags { store: Some(store), ..request.snapshot.clone() };
                VerifyRequest { snapshot, ..request.clone() }.to_args()
            }
        }
    }
}
