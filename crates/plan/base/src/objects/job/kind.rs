//! The kinds of Job that run the agent: one row for each.
//!
//! Decides access to the store, retries, how long an ended Job stays, and the words for a person. `request.rs`
//! holds the requests, `job.rs` decides the shape of the Job.

use holdfast_api::{component, key};
use holdfast_contract::Request;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PodSpec;

use super::super::request;
use super::super::store::Use;
use super::{CONTAINER, pod_spec};
use crate::meta;

/// Number of failed Pods before the Job of a save gives up. The Job controller's pauses of 10 s to 320 s, each twice the last,
/// cover ten minutes of failures of a store or of etcd.
pub const BACKOFF_LIMIT: i32 = 6;

/// How long an ended Job stays, with its Pod and the log. The snapshot's status has the result by then; otherwise the operator
/// asks the store.
pub const KEPT_SECONDS: i32 = 3600;

/// The remedy after a deadline that a user cannot raise.
const CORRECT: &str = "Correct the cause of the delay";

/// A kind of Job, or of the Pod of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Saves a snapshot for an `EtcdSnapshot`.
    Save,
    /// Saves a snapshot as a run of a schedule.
    Run,
    /// Records every revision. `deployment.rs` makes a Deployment of the Pod.
    Log,
    /// Reports whether a snapshot was saved.
    Inspect,
    /// Reports the latest snapshot.
    Latest,
    /// Reports the stored runs of a schedule.
    Recall,
    /// Announces and removes snapshots of a schedule.
    Prune,
    /// Removes one snapshot.
    Remove,
    /// Probes a store.
    Probe,
    /// Restores a snapshot with another version of etcd, and compares the answers of that etcd.
    Rehearse,
    /// Restores the latest snapshot of a schedule, and compares the answers of an etcd.
    Drill,
    /// Merges the newest snapshot and the log.
    Compact,
    /// Puts keys back that a live etcd lacks. The plugin makes this Job, the operator none.
    Undelete,
}

/// The facts of a kind.
pub struct Row {
    pub component: &'static str,
    /// Access to the store. With `Restore` the agent reports a missing Secret, whereas kubelet would wait in silence until the
    /// Job's deadline.
    pub uses: Use,
    /// Number of failed Pods before the Job gives up; 0 where the owner's plan repeats the Job.
    pub retries: i32,
    /// How long the ended Job stays.
    pub kept_seconds: i32,
    /// The verb for a person, after the name of the Pod.
    pub words: &'static str,
    /// The step after the correction of a cause.
    pub then: &'static str,
    /// The remedy after an agent ran out of memory.
    pub more_memory: &'static str,
    /// The remedy after a deadline without a known cause.
    pub late: &'static str,
}

impl Row {
    const fn new(uses: Use, retries: i32) -> Self {
        Self {
            component: component::SNAPSHOT_AGENT,
            uses,
            retries,
            kept_seconds: KEPT_SECONDS,
            words: "",
            then: "; Holdfast then starts another Job",
            more_memory: "raise spec.snapshotTemplate.agent.resources of the EtcdSnapshotSchedule",
            late: CORRECT,
        }
    }
}

const SAVE: Row = Row {
    words: "saves",
    then: ", and create another EtcdSnapshot",
    more_memory: "raise spec.agent.resources in a new EtcdSnapshot",
    late: "Raise spec.deadlineSeconds in a new EtcdSnapshot, or correct the cause of the delay",
    ..Row::new(Use::Save, BACKOFF_LIMIT)
};
const RUN: Row = Row {
    words: "saves",
    then: " before the next run",
    late: "Raise spec.snapshotTemplate.deadlineSeconds of the EtcdSnapshotSchedule, or correct the cause of the delay",
    ..Row::new(Use::Save, BACKOFF_LIMIT)
};
const LOG: Row = Row {
    words: "records the log",
    then: "",
    more_memory: "raise spec.log.resources of the EtcdSnapshotSchedule",
    ..Row::new(Use::Save, 0)
};
const INSPECT: Row = Row {
    words: "searches the store",
    more_memory: "spec.agent.resources is immutable. `holdfast agent list` shows the stored snapshots. Delete this EtcdSnapshot, \
                  and create an EtcdSnapshot with a larger limit",
    ..Row::new(Use::Inspect, 3)
};
const LATEST: Row = Row {
    words: "looks for the latest snapshot",
    more_memory: "raise spec.bootstrap.restore.agent.resources",
    // The reason for an empty result stays visible until the next search has ended, ten or more minutes later.
    ..Row::new(Use::Restore, 0)
};
const RECALL: Row = Row { words: "lists the stored runs", ..Row::new(Use::Inspect, 0) };
const PRUNE: Row = Row { words: "removes snapshots", ..Row::new(Use::Prune, 0) };
const REMOVE: Row = Row {
    words: "removes the snapshot",
    more_memory: "raise spec.agent.resources in a new EtcdSnapshot",
    ..Row::new(Use::Prune, 0)
};
const PROBE: Row = Row {
    // A probe may repeat every minute, and the status of its owner has the result.
    kept_seconds: 600,
    words: "probes the store",
    then: "; Holdfast then starts another probe",
    more_memory: "raise spec.agent.resources",
    ..Row::new(Use::Save, 0)
};
const REHEARSE: Row = Row {
    words: "rehearses the upgrade",
    then: ", and delete the Job: Holdfast then rehearses again",
    more_memory: "raise spec.resources of the EtcdCluster",
    ..Row::new(Use::Restore, 3)
};
const DRILL: Row = Row {
    component: component::SNAPSHOT_DRILL,
    words: "restores the newest snapshot",
    then: " before the next drill",
    more_memory: "raise spec.drill.resources of the EtcdSnapshotSchedule",
    ..Row::new(Use::Prove, 2)
};
const COMPACT: Row = Row {
    words: "merges the newest snapshot and the log",
    then: " before the next merge",
    more_memory: "raise spec.log.compaction.resources of the EtcdSnapshotSchedule",
    ..Row::new(Use::Save, 2)
};
const UNDELETE: Row = Row {
    words: "compares a point with etcd",
    then: ", and run `kubectl holdfast undelete` again: it has less to do then",
    more_memory: "run `kubectl holdfast undelete` for a smaller prefix",
    // A person waits, and repeats the command.
    ..Row::new(Use::Restore, 0)
};

impl Kind {
    /// Returns the facts of the kind.
    pub const fn row(self) -> &'static Row {
        match self {
            Self::Save => &SAVE,
            Self::Run => &RUN,
            Self::Log => &LOG,
            Self::Inspect => &INSPECT,
            Self::Latest => &LATEST,
            Self::Recall => &RECALL,
            Self::Prune => &PRUNE,
            Self::Remove => &REMOVE,
            Self::Probe => &PROBE,
            Self::Rehearse => &REHEARSE,
            Self::Drill => &DRILL,
            Self::Compact => &COMPACT,
            Self::Undelete => &UNDELETE,
        }
    }

    /// Returns the kind of a Holdfast Pod: a run is a save.
    pub fn of_pod(pod: &PodSpec) -> Option<Self> {
        // Of the agent's own container: another one may be of a webhook.
        request::of_container(Some(pod), CONTAINER).map(|request| Self::for_request(&request))
    }

    /// Returns the kind of Job for a request; a run of a schedule saves.
    pub(super) const fn for_request(request: &Request) -> Self {
        match request {
            Request::Save(_) => Self::Save,
            Request::Log(_) => Self::Log,
            Request::Inspect(_) => Self::Inspect,
            Request::Latest(_) => Self::Latest,
            Request::Recall(_) => Self::Recall,
            Request::Prune(_) => Self::Prune,
            Request::Remove(_) => Self::Remove,
            Request::Probe(_) => Self::Probe,
            Request::Compact(_) => Self::Compact,
            Request::Undelete(_) => Self::Undelete,
            Request::Verify(request) if request.latest => Self::Drill,
            Request::Verify(_)
            | Request::CompareMembers(_)
            | Request::Restore(_)
            | Request::Survey(_)
            | Request::Gate(_) => Self::Rehearse,
        }
    }

    /// Returns the kind of a Holdfast Job.
    pub fn of_job(job: &Job) -> Self {
        let kind = pod_spec(job).and_then(Self::of_pod).unwrap_or(Self::Save);
        let is_run = kind == Self::Save && meta::label(&job.metadata, key::SCHEDULE).is_some();
        if is_run { Self::Run } else { kind }
    }

    /// Whether a Holdfast Pod does this work.
    pub fn runs_in(self, pod: Option<&PodSpec>) -> bool {
        pod.and_then(Self::of_pod) == Some(self)
    }
}
