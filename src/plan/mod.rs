//! PURE: decides, and does nothing. No client, no tokio, no clock, no randomness, no environment.
//!
//! Read this file first: it is the vocabulary. `observe` (in `operator`) fills an `Observed`, the `plan` function of a
//! kind turns it into a [`Plan`], [`safety`] checks the plan, and `act` (in `operator`) carries it out without making a
//! choice of its own. Nothing is remembered between passes.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::cluster::{Latches, Retention};
use crate::api::condition::Reason;
use crate::api::member::{Joined, Leaving, Parked, Removed};
use crate::api::pod_security::RunAs;
use crate::api::schedule::PruneRun;
use crate::api::snapshot::Removal;
use crate::api::tls::Trusts;
use crate::api::{EtcdMember, EtcdSnapshot};
use crate::plan::certificate::Issue;
use crate::plan::cluster::Alarm;

pub mod build;
pub mod certificate;
pub mod cluster;
pub mod drift;
pub mod fact;
mod failure;
pub mod fingerprint;
#[cfg(test)]
pub mod fixtures;
mod held;
pub mod jobs;
pub mod live_reads;
pub mod member;
pub mod meta;
pub mod pods;
pub mod row;
pub mod safety;
mod saving;
pub mod schedule;
pub mod snapshot;
pub mod store;
pub mod valid;

/// What was looked at: known, or not known and why. *Absent* is `Known(None)`. `Unknown` never satisfies a condition for
/// something destructive.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen<T> {
    /// It was read.
    Known(T),
    /// It could not be read, and why.
    Unknown(Unread),
}

/// Why something could not be read. Displays as a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// etcd answers, and requires a login.
    LoginRequired(String),
    /// Every other cause.
    Other(String),
}

impl Unread {
    /// A cause with this text.
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
    /// Not known, for this cause.
    pub fn unknown(cause: impl Into<String>) -> Self {
        Self::Unknown(Unread::Other(cause.into()))
    }

    /// The value, if it is known.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

/// What one pass wants done.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S> {
    /// Idempotent server-side applies, any number; only those that would change something.
    pub ensures: Vec<Ensure>,
    /// At most one consequential step, guarded by what must still be true when it happens.
    pub act: Option<Act>,
    /// The whole status as it is now, before the act; written only when it differs.
    pub status: S,
    /// What people should hear about: log line and Event.
    pub notes: Vec<Note>,
    /// Why there is no act although not all is as desired.
    pub waiting: Option<Waiting>,
    /// When to look again, if nothing changes before.
    pub wake: Wake,
}

/// An object that is ours alone and may be applied at any time.
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
    /// A Certificate that cert-manager is asked for.
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
    /// The disruption budget of a cluster that has one voter left goes: it would block every drain.
    DropBudget(Target),
}

/// One consequential step. `act` does it with a live check of what it carries, and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Write the cluster's latches (with the status, under its resourceVersion).
    Latch(Box<Latches>),
    /// Put our finalizer on the `EtcdCluster`, before it has a member.
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
    /// Remove our finalizer from an `EtcdCluster` whose members have the newest `spec.storage.retention`.
    ReleaseCluster {
        /// The cluster.
        cluster: Target,
    },
    /// POST a member. An existing one of the same name and owner counts as done; another's is a conflict.
    CreateMember(Box<EtcdMember>),
    /// Tell etcd of a new learner. A member that already has this peer URL counts as done.
    AddLearner {
        /// Name of the member.
        name: String,
        /// Its peer URL.
        peer_url: String,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Latch `spec.initialCluster` of a member that etcd now knows, so that its Pod may be made.
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
        /// Under which identity it serves.
        joined: Joined,
    },
    /// Remove the `may-start-empty` annotation from a Pod, and tell it whom its member has joined as.
    ForbidEmptyStart {
        /// The Pod.
        pod: Target,
        /// Whom it has joined as.
        joined: Joined,
    },
    /// Latch `spec.startCount` of a member: its Pod of this number serves.
    LatchStart {
        /// The member.
        member: Target,
        /// The number.
        count: u64,
    },
    /// Tell a Pod of its member's `spec.startCount` and `spec.joined`, for the gate at the next start of the container.
    MarkStarted {
        /// The Pod.
        pod: Target,
        /// The number.
        count: u64,
        /// Whom the member has joined as.
        joined: Joined,
    },
    /// Give a learner its vote. etcd itself judges whether it has caught up.
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
    /// Label the Pod of a member that leaves as no voter's: no new client reaches it.
    DismissClients {
        /// The Pod.
        pod: Target,
    },
    /// Ask the leader, which is to be removed, to hand the leadership to another voter.
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
    /// Remove a member from etcd's list. A member that is not listed counts as done.
    RemoveMember {
        /// Name of the member.
        name: String,
        /// Its ID.
        member_id: u64,
        /// Whether it has no vote.
        learner: bool,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Latch `spec.removed` of a member that etcd does not list any more.
    LatchRemoved {
        /// The member.
        member: Target,
        /// The proof.
        removed: Removed,
    },
    /// Latch `spec.parked` of a member; its own pass then ends its Pod.
    Park {
        /// The member.
        member: Target,
        /// State of its log.
        parked: Parked,
    },
    /// Remove `spec.parked` of a member: its cluster has caught up with the log it was parked with.
    Unpark {
        /// The member.
        member: Target,
    },
    /// Write a Secret with a new CA or new certificates.
    Issue(Box<Issue>),
    /// Write `spec.tls.staged` of a member: its Secret holds these certificates.
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
    /// Clear an alarm that nobody can have any more.
    Disarm {
        /// The alarm; etcd does not list the member that it names.
        alarm: Alarm,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Commit an entry that changes nothing in etcd's log: a member that received a snapshot serves after the next entry.
    CommitEntry {
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Label a Pod as a voter's: clients reach it from now on.
    AdmitClients {
        /// The Pod.
        pod: Target,
    },
    /// Put labels of ours back that somebody took from a Pod: Services, budgets and our own watch select by them. Never
    /// the role, which is [`Act::AdmitClients`]'s.
    Relabel {
        /// The Pod.
        pod: Target,
        /// Those that are missing, or another's.
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
    /// Delete an `EtcdMember`; its finalizer holds it until its Pod and claim are gone.
    DeleteMember {
        /// The member.
        member: Target,
        /// Why, for the log and the Event.
        why: String,
    },
    /// Remove our finalizer from an `EtcdMember` whose parts are gone.
    ReleaseMember {
        /// The member.
        member: Target,
    },
    /// POST the record of a schedule's run. An existing one of the same name that records the same run counts as done.
    RecordRun(Box<EtcdSnapshot>),
    /// Latch `status.pruneRun` of a schedule (with the status, under its resourceVersion), before the clusters are read.
    LatchPrune(Box<PruneRun>),
    /// Delete the record of a run of which nothing is stored: it failed, or its snapshot was removed.
    DeleteRecord {
        /// The `EtcdSnapshot`.
        snapshot: Target,
        /// Key of the removed snapshot; absent: the run failed.
        removed: Option<String>,
        /// Why, for the log and the Event.
        why: String,
    },
    /// Delete the Job of a snapshot whose agent has ended, and whose Pod another container keeps running.
    DeleteJob {
        /// The Job.
        job: Target,
        /// Why, for the log and the Event.
        why: String,
    },
    /// Put our finalizer on an `EtcdSnapshot` whose stored snapshot is to go along.
    KeepArtifact {
        /// The snapshot.
        snapshot: Target,
    },
    /// Latch `status.removal` of a snapshot (with the status, under its resourceVersion), before the restores are read.
    LatchRemoval(Removal),
    /// Remove our finalizer from an `EtcdSnapshot`.
    ReleaseArtifact {
        /// The snapshot.
        snapshot: Target,
    },
    /// POST a Job. An existing one of the same name and owner counts as done.
    StartJob(Box<Job>),
}

impl Act {
    /// Whether it is written with the status.
    pub const fn is_latch(&self) -> bool {
        matches!(self, Self::Latch(_) | Self::LatchPrune(_) | Self::LatchRemoval(_))
    }
}

/// What a pass decided to do next. `Settled` means that nothing is left to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Do this, and look again then.
    Do(Act, Wake),
    /// Do nothing, because of this, and look again then.
    Wait(Waiting, Wake),
    /// All is as desired; look again then.
    Settled(Wake),
}

impl Next {
    /// An act, with the next look right after it.
    pub const fn act(act: Act) -> Self {
        Self::Do(act, Wake::Now)
    }

    /// Nothing, because of this.
    pub fn wait(reason: Reason, message: impl Into<String>, wake: Wake) -> Self {
        Self::Wait(Waiting { reason, message: message.into() }, wake)
    }

    /// The parts of a plan.
    pub fn into_parts(self) -> (Option<Act>, Option<Waiting>, Wake) {
        match self {
            Self::Do(act, wake) => (Some(act), None, wake),
            Self::Wait(waiting, wake) => (None, Some(waiting), wake),
            Self::Settled(wake) => (None, None, wake),
        }
    }
}

/// The one object an act is about. UID and resourceVersion become preconditions: a newer object is never touched (I12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name, in the namespace of the pass.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The version the decision was made on.
    pub resource_version: String,
}

/// One sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is bad news (Event type `Warning`).
    pub warning: bool,
    /// Event reason, CamelCase.
    pub reason: String,
    /// What happened and what to do.
    pub message: String,
}

/// Why nothing is done although not all is as desired: a value that becomes a condition, never an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The condition's reason.
    pub reason: Reason,
    /// The condition's message: what is waited for, and what a person can do.
    pub message: String,
}

/// When to look again, if no watch event comes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Right after this pass's act: there is more to do.
    Now,
    /// In this many milliseconds (jittered by the operator).
    AfterMillis(u64),
    /// Only when something changes (the operator still looks every few minutes, against missed events).
    OnChange,
}

impl Wake {
    /// At this time; `None` where it is not ahead any more.
    pub fn at(time: Timestamp, now: Timestamp) -> Option<Self> {
        let left = u64::try_from(time.duration_since(now).as_millis()).ok();
        left.filter(|left| *left > 0).map(Self::AfterMillis)
    }
}

/// What the operator was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of this very binary, for gate and agent.
    pub agent_image: String,
    /// Repository of etcd's image.
    pub etcd_repository: String,
    /// What stands between Pods and stores.
    pub proxies: Proxies,
    /// The domain of the Kubernetes cluster: `cluster.local`; `None`: not known.
    pub cluster_domain: Option<String>,
    /// The user of Pods, where no spec chooses.
    pub pod_run_as: RunAs,
}

/// What stands between Pods and stores, for those that speak to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For stores with TLS.
    pub https: Option<String>,
    /// For stores without.
    pub http: Option<String>,
    /// Names, domains and networks that are reached without, separated by commas.
    pub except: Option<String>,
}
