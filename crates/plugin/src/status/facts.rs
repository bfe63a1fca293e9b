//! The facts about one cluster that `status` shows, and their form for `-o json`.
//!
//! PURE: decides which fields of which objects become which facts. The fields of these types are stable: scripts read them.

use jiff::Timestamp;
use serde::Serialize;

use super::identity::{Ca, User};
use super::timeline::{Return, SetAside};

/// State of a cluster in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum State {
    /// All that is asked for is so.
    Ready,
    /// Works, and one more fault would stop the cluster or lose data.
    AtRisk,
    /// Serves clients while something changes.
    Progressing,
    /// Serves clients with a fault.
    Degraded,
    /// Serves no client.
    Down,
    /// Has not formed yet.
    Forming,
    /// `spec.replicas` is 0, and no Pod runs.
    Parked,
    /// Is being deleted.
    Deleting,
    /// No operator has seen the object yet.
    #[default]
    Unseen,
}

/// One cluster at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Time of the look.
    pub at: Timestamp,
    /// Name of the EtcdCluster.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// State in one word.
    pub state: State,
    /// Message of the condition `Ready`.
    pub message: String,
    /// Whether `spec.paused` is set.
    pub paused: bool,
    /// Whether the status describes the present spec.
    pub is_current: bool,
    /// `spec.replicas`.
    pub wanted: i32,
    /// Voters with a ready Pod.
    pub serving: i32,
    /// Voters.
    pub voters: i32,
    /// Members that run with the present spec.
    pub updated: i32,
    /// `spec.version`.
    pub version: String,
    /// The lowest running version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_version: Option<String>,
    /// URL for clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Time at which the cluster formed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formed: Option<Timestamp>,
    /// Certificates; absent in plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
    /// The CA of each plane; none in plaintext.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cas: Vec<Ca>,
    /// Whether etcd's authentication is on; absent until the operator knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<bool>,
    /// The timeline of the cluster; absent before its first return in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<u32>,
    /// A return in place that is under way, or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<Return>,
    /// The members of the present timeline.
    pub members: Vec<Member>,
    /// The members of earlier timelines whose claims are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<SetAside>,
    /// Conditions that a person has to know of, the most pressing first.
    pub conditions: Vec<Condition>,
    /// An upgrade to the next minor that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// A restore that fills this cluster, or filled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// Its EtcdUsers, by name; absent where they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<User>>,
    /// Backups.
    pub backups: Backups,
    /// Steps for a person, the most pressing first.
    pub next: Vec<Step>,
    /// Objects that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
}

/// Ends of certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificates {
    /// Earliest end of a certificate towards clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Timestamp>,
    /// Earliest end of a certificate among members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<Timestamp>,
    /// Earliest end of a CA of Holdfast's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<Timestamp>,
    /// Source of the certificates towards clients.
    pub provider: String,
}

impl Certificates {
    /// Earliest end of a certificate, CAs excluded.
    pub fn earliest(&self) -> Option<Timestamp> {
        self.client.into_iter().chain(self.peer).min()
    }
}

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Name of the EtcdMember and of its Pod.
    pub name: String,
    /// Whether the member leads.
    pub leads: bool,
    /// `voter` or `learner`; absent while etcd does not list the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// `Joining`, `Serving`, `NotServing`, `Leaving`, `Removed` or `Parked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Whether its Pod is ready; absent where Pods could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether etcd answered the operator.
    pub healthy: bool,
    /// Time at which `healthy` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why etcd does not answer, or the member's condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// etcd's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Earliest end of the member's certificates; absent in plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_until: Option<Timestamp>,
    /// Node of its Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Restarts of etcd's container in its Pod.
    pub restarts: i32,
    /// Its claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Whether its data are lost, by evidence.
    pub lost: bool,
}

/// A condition that a person has to know of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// Message with the remedy.
    pub message: String,
    /// Since when the status is what it is.
    pub since: Timestamp,
    /// Page about the reason, for reasons that need a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runbook: Option<String>,
}

/// An upgrade to the next minor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// Version before.
    pub from: String,
    /// Version afterwards.
    pub to: String,
    /// Whether the way back is open.
    pub reversible: bool,
    /// Begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// Source and progress of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    /// Phase.
    pub phase: String,
    /// The snapshot's cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Time of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Timestamp>,
    /// Revision of the restored data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Point in time up to which the log is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// Size of the database in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_bytes: Option<u64>,
}

/// Backups of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backups {
    /// The newest complete snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Snapshot>,
    /// The newest failed snapshot, if it is newer than the newest complete one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Snapshot>,
    /// Snapshots that have not ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<Snapshot>,
    /// Number of complete EtcdSnapshots; absent where they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<usize>,
    /// Schedules; absent where they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedules: Option<Vec<Schedule>>,
}

/// One snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Name of the EtcdSnapshot.
    pub name: String,
    /// Phase.
    pub phase: String,
    /// End, or begin of one that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Level of proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Revision of the key space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Size of the database in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_bytes: Option<u64>,
    /// Name of its EtcdBackupStore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Message of the condition `Ready` or of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// Name of the EtcdSnapshotSchedule.
    pub name: String,
    /// Due times as cron writes them.
    pub line: String,
    /// Time zone of the due times.
    pub zone: String,
    /// Whether no run starts.
    pub suspended: bool,
    /// Next due time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// Start of the newest complete run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// Whether the newest backup is fresh; absent while that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fresh: Option<bool>,
    /// Reason of the condition `Fresh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Runs that failed since the newest complete backup.
    pub failures: u32,
    /// Snapshots that the retention keeps; absent without a retention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// Its drills; absent without drills.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drill: Option<Drill>,
    /// Its log; absent without a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Log>,
}

/// The log of one schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Log {
    /// Whether the log is current; absent while that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<bool>,
    /// Reason of the condition `LogCurrent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The last stored revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Seconds of changes that would be lost with the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpo_seconds: Option<u64>,
    /// Its merges with the newest snapshot; absent without merges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
}

/// The merges of one schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Merge {
    /// Whether the newest merge succeeded; absent while that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<bool>,
    /// Reason of the condition `Merged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// End of the newest merge that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<Timestamp>,
    /// Merges that failed since then.
    pub failures: u32,
}

/// The drills of one schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drill {
    /// Whether the newest snapshot is rehearsed; absent while that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rehearsed: Option<bool>,
    /// Reason of the condition `Rehearsed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// End of the newest drill that passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<Timestamp>,
    /// Seconds that this drill took to restore the snapshot and to serve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_seconds: Option<u64>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Why the step is due.
    pub why: String,
    /// Command to paste; absent where the message of the condition names the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Page with the whole story.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
}

impl Step {
    /// Returns a step with a command.
    pub fn with_command(why: impl Into<String>, command: String) -> Self {
        Self { why: why.into(), command: Some(command), page: None }
    }
}

/// Objects that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unread {
    /// Kind.
    pub kind: String,
    /// Answer of the API server.
    pub why: String,
}
