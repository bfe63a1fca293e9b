//! PURE: decides, and does nothing. No client, no tokio, no clock, no randomness, no environment.
//!
//! Read this file first: it is the vocabulary. `observe` (in `operator`) fills an `Observed`, the `plan` function of a
//! kind turns the `Observed` into a [`Plan`], [`safety`] checks the plan, and `act` (in `operator`) carries the plan out
//! without a choice of its own. The operator remembers nothing between passes.

#![cfg_attr(
    test,
    allow(
        missing_docs,
        unreachable_pub,
        clippy::pedantic,
        clippy::unwrap_in_result,
        reason = "tests favour plain words"
    )
)]

use std::collections::BTreeMap;
use std::fmt;

use holdfast_api::agent::PodMetadata;
use holdfast_api::cluster::{Latches, Retention};
use holdfast_api::condition::Reason;
use holdfast_api::member::{Joined, Leaving, Parked, Removed};
use holdfast_api::schedule::PruneRun;
use holdfast_api::snapshot::Removal;
use holdfast_api::template::Template;
use holdfast_api::tls::Trusts;
use holdfast_api::{EtcdMember, EtcdSnapshot};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceRequirements, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::certificate::Issue;
use crate::cluster::Alarm;
pub use crate::settings::{Proxies, Settings};

pub mod build;
pub mod certificate;
pub mod cluster;
pub mod drift;
mod failure;
pub mod fingerprint;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod job_state;
pub mod jobs;
pub mod live_reads;
pub mod member;
pub mod meta;
mod pod_cause;
pub mod pods;
pub mod retries;
pub mod safety;
mod saving;
pub mod schedule;
mod settings;
pub mod snapshot;
pub mod store;
pub mod template;
pub mod valid;
pub mod volumes;

/// A value that the operator tried to read. *Absent* is `Known(None)`. `Unknown` never satisfies a condition for something
/// destructive.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen<T> {
    /// The operator read the value.
    Known(T),
    /// The operator could not read the value, for this cause.
    Unknown(Unread),
}

/// Why the operator could not read a value. Displays as a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// etcd answers, and requires a login.
    LoginRequired(String),
    /// Every other cause.
    Other(String),
}

impl Unread {
    /// Returns the cause with this text.
    pub const fn new(login_required: bool, text: String) -> Self {
        if login_required { Self::LoginRequired(text) } else { Self::Other(text) }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::LoginRequired(text) | Self::Other(text)) = self;
        f.write_str(text)
    }
}

impl<T> Seen<T> {
    /// Returns `Unknown` with this cause.
    pub fn unknown(cause: impl Into<String>) -> Self {
        Self::Unknown(Unread::Other(cause.into()))
    }

    /// Returns the value, if the operator knows the value.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

/// The decisions of one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S> {
    /// Idempotent server-side applies; only those that would change an object.
    pub ensures: Vec<Ensure>,
    /// At most one consequential step, guarded by the facts that must still hold when the operator carries out the step.
    pub act: Option<Act>,
    /// The whole status before the act. The operator writes the status only when it differs.
    pub status: S,
    /// Log lines and Events.
    pub notes: Vec<Note>,
    /// Why there is no act although the object is not as desired.
    pub waiting: Option<Waiting>,
    /// When the operator plans again, if no watch event comes before.
    pub wake: Wake,
}

/// An object that Holdfast owns alone and may apply at any time.
#[derive(Clone, Debug, PartialEq)]
pub enum Ensure {
    /// A Service.
    Service(Box<Service>),
    /// A disruption budget.
    Budget(Box<PodDisruptionBudget>),
    /// The `ConfigMap` with the certificate of a cluster's client CA.
    CaBundle {
        /// Name, namespace, labels and owner.
        metadata: Box<ObjectMeta>,
        /// Name of the CA's Secret, from which the certificate is read.
        secret: String,
        /// Fingerprint of the certificate.
        ca: String,
    },
    /// A Certificate for cert-manager.
    Certificate {
        /// Name, namespace, labels and owner.
        metadata: Box<ObjectMeta>,
        /// Its spec.
        spec: serde_json::Value,
    },
    /// A Secret with certificates of a cluster that has formed.
    Secret(Box<Issue>),
    /// The `CronJob` of a schedule.
    CronJob(Box<CronJob>),
    /// The disruption budget of a cluster with one voter left. Holdfast deletes the budget, which would block every drain.
    DropBudget(Target),
}

/// One consequential step. `act` re-checks with a live read the facts that the step carries, and makes no other choice.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Write the cluster's latches with the status, under its resourceVersion.
    Latch(Box<Latches>),
    /// Put Holdfast's finalizer on the `EtcdCluster`, before the cluster has a member.
    HoldCluster {
        /// The cluster.
        cluster: Target,
    },
    /// Copy `spec.storage.retention` of the cluster to a member.
    CopyRetention {
        /// The member.
        member: Target,
        /// The value.
        retention: Retention,
    },
    /// Remove Holdfast's finalizer from an `EtcdCluster` whose members have the newest `spec.storage.retention`.
    ReleaseCluster {
        /// The cluster.
        cluster: Target,
    },
    /// POST an `EtcdMember`. An existing member of the same name and owner counts as done. A member of another owner is a conflict.
    CreateMember(Box<EtcdMember>),
    /// Add a learner to etcd's membership. A listed member with this peer URL counts as done.
    AddLearner {
        /// Name of the member.
        name: String,
        /// Its peer URL.
        peer_url: String,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Latch `spec.initialCluster` of a member that etcd lists, so that the member's pass may create the Pod.
    SetInitialCluster {
        /// The member.
        member: Target,
        /// The value.
        initial_cluster: String,
    },
    /// Latch `spec.joined` of a member.
    LatchJoined {
        /// The member.
        member: Target,
        /// Member ID and cluster ID under which the member serves.
        joined: Joined,
    },
    /// Remove the `may-start-empty` annotation from a Pod, and write the member's `spec.joined` on the Pod.
    ForbidEmptyStart {
        /// The Pod.
        pod: Target,
        /// Member ID and cluster ID of the member.
        joined: Joined,
    },
    /// Latch `spec.startCount` of a member: its Pod of this number serves.
    LatchStart {
        /// The member.
        member: Target,
        /// The number.
        count: u64,
    },
    /// Write the member's `spec.startCount` and `spec.joined` on the Pod, for the gate at the next start of the container.
    MarkStarted {
        /// The Pod.
        pod: Target,
        /// The number.
        count: u64,
        /// Member ID and cluster ID of the member.
        joined: Joined,
    },
    /// Promote a learner to a voter. etcd itself checks whether the learner has caught up.
    Promote {
        /// Name of the member.
        name: String,
        /// Its ID.
        member_id: u64,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Latch `spec.leaving` of a member, before the first request to etcd.
    LatchLeaving {
        /// The member.
        member: Target,
        /// Why and since when.
        leaving: Leaving,
    },
    /// Label the Pod of a member that leaves as the Pod of a learner, so that no new client reaches the Pod.
    DismissClients {
        /// The Pod.
        pod: Target,
    },
    /// Ask the leader, which etcd is to remove or which restarts, to hand the leadership to another voter.
    MoveLeader {
        /// Name of the member that leads.
        name: String,
        /// Its ID.
        from: u64,
        /// ID of the next leader.
        to: u64,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Remove a member from etcd's membership. A member that etcd does not list counts as done.
    RemoveMember {
        /// Name of the member.
        name: String,
        /// Its ID.
        member_id: u64,
        /// Whether the member is a learner.
        learner: bool,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Latch `spec.removed` of a member that etcd does not list any more.
    LatchRemoved {
        /// The member.
        member: Target,
        /// The proof that etcd does not list the member.
        removed: Removed,
    },
    /// Write a template into the spec of a member. The Pod ends afterwards, or has ended.
    SetTemplate {
        /// The member.
        member: Target,
        /// The template.
        template: Box<Template>,
        /// The template with which the member last served, for a rollback.
        served: Option<Box<Template>>,
    },
    /// Ask for a larger volume: the request of a claim, and no other field.
    GrowClaim {
        /// The claim.
        claim: Target,
        /// The larger size.
        size: Quantity,
    },
    /// Write the size of a volume that has grown into the spec of its member.
    SetVolumeSize {
        /// The member.
        member: Target,
        /// The size.
        size: Quantity,
    },
    /// Annotate a member's Pod with the size that its claim asks for, so that kubelet grows the file system at once.
    RefreshVolume {
        /// The Pod.
        pod: Target,
        /// The size.
        size: Quantity,
    },
    /// Evict a Pod whose member has another template. The API server asks the disruption budget in the same step.
    EvictPod {
        /// The Pod.
        pod: Target,
        /// Why, for the log and the Event.
        why: String,
    },
    /// Annotate a running Pod with its member's template, before the resources of the Pod change.
    BeginResize {
        /// The Pod.
        pod: Target,
        /// Fingerprint of the member's template.
        template: String,
    },
    /// Change the resources of etcd's container in a running Pod. The Pod's annotation holds the API server's answer.
    ResizePod {
        /// The Pod.
        pod: Target,
        /// The resources.
        resources: Box<ResourceRequirements>,
    },
    /// Remove the annotation of [`Act::BeginResize`]: the Pod has the resources of its member's template.
    EndResize {
        /// The Pod.
        pod: Target,
    },
    /// Change labels and annotations of a Pod to `spec.podMetadata` of its cluster; `None` removes a key.
    SetPodMetadata {
        /// The Pod.
        pod: Target,
        /// Labels.
        labels: BTreeMap<String, Option<String>>,
        /// Annotations.
        annotations: BTreeMap<String, Option<String>>,
    },
    /// Copy `spec.podMetadata` of the cluster to a member, after the Pod has it.
    CopyPodMetadata {
        /// The member.
        member: Target,
        /// The earlier value.
        old: Box<PodMetadata>,
        /// The value.
        new: Box<PodMetadata>,
    },
    /// Latch `spec.parked` of a member. The member's own pass then deletes the Pod.
    Park {
        /// The member.
        member: Target,
        /// Term and index of the member's log.
        parked: Parked,
    },
    /// Remove `spec.parked` of a member: the leader has applied the index at which the member was parked.
    Unpark {
        /// The member.
        member: Target,
    },
    /// Write a Secret with a new CA or new certificates.
    Issue(Box<Issue>),
    /// Write `spec.tls.staged` of a member: the member's Secret holds these certificates.
    AnnounceCertificates {
        /// The member.
        member: Target,
        /// Digest of the certificates.
        digest: String,
        /// Their CAs.
        trusts: Trusts,
    },
    /// Annotate a member's Pod with the digest of its certificates, so that kubelet refreshes the files at once.
    RefreshCertificates {
        /// The Pod.
        pod: Target,
        /// Digest of the certificates.
        digest: String,
    },
    /// Clear an alarm that no member can hold any more.
    Disarm {
        /// The alarm; etcd does not list the member that it names.
        alarm: Alarm,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Commit an entry that changes nothing. A member that received a snapshot from the leader serves after the next entry.
    CommitEntry {
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Commit entries that change nothing, until each member takes a raft snapshot: etcd 3.7 does not read entries of etcd 3.5.
    FillLog {
        /// Number of entries.
        entries: u32,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Put the voter label on a Pod, so that clients reach the Pod.
    AdmitClients {
        /// The Pod.
        pod: Target,
    },
    /// Restore Holdfast's labels that another writer removed from a Pod or changed: Services, budgets and Holdfast's watch
    /// select by these labels. Never the role, which [`Act::AdmitClients`] writes.
    Relabel {
        /// The Pod.
        pod: Target,
        /// The labels that are missing or have another value.
        labels: BTreeMap<String, String>,
    },
    /// POST a member's claim.
    CreateClaim(Box<PersistentVolumeClaim>),
    /// POST a member's Pod.
    CreatePod(Box<Pod>),
    /// Delete a Pod, gracefully.
    DeletePod {
        /// The Pod.
        pod: Target,
        /// Why, for the log and the Event.
        why: String,
    },
    /// Delete a claim, and the data with it.
    DeleteClaim {
        /// The claim.
        claim: Target,
        /// Why, for the log and the Event.
        why: String,
    },
    /// Delete an `EtcdMember`. Its finalizer keeps the object until the Pod and the claim are gone.
    DeleteMember {
        /// The member.
        member: Target,
        /// Why, for the log and the Event.
        why: String,
    },
    /// Remove Holdfast's finalizer from an `EtcdMember` whose Pod and claim are gone.
    ReleaseMember {
        /// The member.
        member: Target,
    },
    /// POST the record of a schedule's run. An existing record of the same name and run counts as done.
    RecordRun(Box<EtcdSnapshot>),
    /// POST an `EtcdSnapshot` before an upgrade. An existing one of the same name and cluster counts as done.
    RequestSnapshot(Box<EtcdSnapshot>),
    /// Latch `status.pruneRun` of a schedule with the status, under its resourceVersion, before the pass reads the clusters.
    LatchPrune(Box<PruneRun>),
    /// Delete the record of a run without a stored snapshot: the run failed, or Holdfast removed the snapshot.
    DeleteRecord {
        /// The `EtcdSnapshot`.
        snapshot: Target,
        /// Key of the removed snapshot; absent: the run failed.
        removed: Option<String>,
        /// Why, for the log and the Event.
        why: String,
    },
    /// Delete the Job of a snapshot whose agent has ended while another container keeps the Pod running.
    DeleteJob {
        /// The Job.
        job: Target,
        /// Why, for the log and the Event.
        why: String,
    },
    /// Put Holdfast's finalizer on an `EtcdSnapshot` whose deletion also removes the stored snapshot.
    KeepArtifact {
        /// The snapshot.
        snapshot: Target,
    },
    /// Latch `status.removal` of a snapshot with the status, under its resourceVersion, before the pass reads the restores.
    LatchRemoval(Removal),
    /// Remove Holdfast's finalizer from an `EtcdSnapshot`.
    ReleaseArtifact {
        /// The snapshot.
        snapshot: Target,
    },
    /// POST a Job. An existing Job of the same name and owner counts as done.
    StartJob(Box<Job>),
}

impl Act {
    /// Whether the operator writes the act with the status.
    pub const fn is_latch(&self) -> bool {
        matches!(self, Self::Latch(_) | Self::LatchPrune(_) | Self::LatchRemoval(_))
    }
}

/// The decision of a pass. `Settled` means that nothing is left to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Do this act, and plan again at the wake.
    Do(Act, Wake),
    /// Do nothing for this reason, and plan again at the wake.
    Wait(Waiting, Wake),
    /// The object is as desired; plan again at the wake.
    Settled(Wake),
}

impl Next {
    /// Returns an act, with the next pass right after it.
    pub const fn act(act: Act) -> Self {
        Self::Do(act, Wake::Now)
    }

    /// Returns a wait for this reason.
    pub fn wait(reason: Reason, message: impl Into<String>, wake: Wake) -> Self {
        Self::Wait(Waiting { reason, message: message.into() }, wake)
    }

    /// Returns the parts of a plan.
    pub fn into_parts(self) -> (Option<Act>, Option<Waiting>, Wake) {
        match self {
            Self::Do(act, wake) => (Some(act), None, wake),
            Self::Wait(waiting, wake) => (None, Some(waiting), wake),
            Self::Settled(wake) => (None, None, wake),
        }
    }
}

/// The object of an act. UID and resourceVersion become preconditions: Holdfast never touches a newer object (I12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name, in the namespace of the pass.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The version that the pass decided on.
    pub resource_version: String,
}

/// One sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether the Event has the type `Warning`.
    pub warning: bool,
    /// Event reason, CamelCase.
    pub reason: String,
    /// The change, and the remedy if there is one.
    pub message: String,
}

/// Why the pass has no act although the object is not as desired: a value that becomes a condition, never an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The condition's reason.
    pub reason: Reason,
    /// The condition's message: the missing fact, and what a person can do.
    pub message: String,
}

/// When the operator plans again, if no watch event comes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Right after this pass's act.
    Now,
    /// After this many milliseconds (the operator adds jitter).
    AfterMillis(u64),
    /// Only after a change. The operator still plans every few minutes, against missed events.
    OnChange,
}

impl Wake {
    /// Returns the wake at this time; `None` when the time is past. Part of a millisecond counts as one: a rule that compares the
    /// exact times agrees.
    pub fn at(time: Timestamp, now: Timestamp) -> Option<Self> {
        let remaining = u128::try_from(time.duration_since(now).as_nanos()).ok().filter(|remaining| *remaining > 0)?;
        Some(Self::AfterMillis(u64::try_from(remaining.div_ceil(1_000_000)).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_past_only_when_it_is() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let at = |nanos: i64| Wake::at(now + jiff::SignedDuration::from_nanos(nanos), now);
        let wakes: Vec<_> = [-1, 0, 1, 999_999, 1_000_000, 1_000_001].into_iter().map(at).collect();
        let millis = |n| Some(Wake::AfterMillis(n));
        assert_eq!(wakes, [None, None, millis(1), millis(1), millis(1), millis(2)]);
    }
}
