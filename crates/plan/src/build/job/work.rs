//! The request of the agent in a Job.
//!
//! Decides the arguments and the time. `kind.rs` has the facts of each kind of Job, and `job.rs` decides its shape.

use holdfast_contract::{
    CompactRequest, EtcdFlags, InspectRequest, LatestRequest, LogRequest, ProbeRequest, PruneRequest, RecallRequest,
    RemoveRequest, SaveRequest, SnapshotFlags, StoreFlags, VerifyRequest,
};

use super::kind::Kind;

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

impl Work {
    /// Returns the kind; a run of a schedule saves.
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Save(_) => Kind::Save,
            Self::Log(_) => Kind::Log,
            Self::Inspect(_) => Kind::Inspect,
            Self::Latest(_) => Kind::Latest,
            Self::Recall(_) => Kind::Recall,
            Self::Prune(_) => Kind::Prune,
            Self::Remove(_) => Kind::Remove,
            Self::Probe(_) => Kind::Probe,
            Self::Rehearse(_) => Kind::Rehearse,
            Self::Drill(_) => Kind::Drill,
            Self::Compact(_) => Kind::Compact,
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
