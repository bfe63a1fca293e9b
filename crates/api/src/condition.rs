//! Conditions: the closed lists of types and reasons, and how a list of them changes without churn.
//!
//! Decides names and merging. Which condition holds is decided by the `status.rs` of each kind in `plan`.

use holdfast_contract::Failure;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::JobCondition;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimCondition, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Types of conditions we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// All that is asked for is so (kstatus).
    Ready,
    /// Clients are served: a linearizable read succeeded.
    Available,
    /// Something is being done, or waited for.
    Progressing,
    /// Something works worse than the spec asks for, or needs a person.
    Degraded,
    /// Everything works, and a foreseeable fault would hurt more than it has to.
    AtRisk,
    /// The stored snapshot equals the key space of a live member.
    Verified,
    /// The newest backup of a schedule is no older than the schedule promises.
    Fresh,
    /// The backups of a cluster are fresh, by its schedules.
    BackupHealthy,
    /// The store holds what the retention of a schedule keeps, or the rest is announced for removal.
    RetentionApplied,
    /// A drill has restored the newest snapshot of a schedule, and etcd served it.
    Rehearsed,
    /// The log of a schedule is stored up to a short time ago, and continues the newest snapshot.
    LogCurrent,
    /// The newest snapshot of a schedule and its log are merged.
    Merged,
}

impl AsRef<str> for Type {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Type {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Available => "Available",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::AtRisk => "AtRisk",
            Self::Verified => "Verified",
            Self::Fresh => "Fresh",
            Self::BackupHealthy => "BackupHealthy",
            Self::RetentionApplied => "RetentionApplied",
            Self::Rehearsed => "Rehearsed",
            Self::LogCurrent => "LogCurrent",
            Self::Merged => "Merged",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $(=> $runbook:ident)?,)*) => {
        /// Why a condition is what it is: a closed list, stable for alerts and scripts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The reason of this name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
            }

            /// Whether a person has to do something; then `runbooks/<Reason>.md` says what.
            pub const fn needs_a_person(self) -> bool {
                match self { $(Self::$name => reasons!(@person $($runbook)?),)* }
            }
        }
    };
    (@person) => { false };
    (@person runbook) => { true };
}

reasons! {
    // Good.
    /// All that is asked for is so.
    AsDesired,
    /// A linearizable read succeeded.
    ReadSucceeded,
    /// Nothing is known to be wrong.
    NothingWrong,
    /// Nothing is in progress.
    Idle,
    /// A snapshot is stored and its manifest published.
    Stored,
    /// A probe has found that snapshots can be saved to the store and restored from it.
    StoreUsable,
    /// Live members have the HashKV that was worked out from what is stored.
    MembersAgree,
    /// The newest backup is no older than its schedule promises.
    BackupRecent,
    /// The newest drill of a schedule passed.
    DrillPassed,
    /// The log of a schedule is stored up to a short time ago.
    LogStored,
    /// The newest merge of a snapshot and the log succeeded.
    MergeSucceeded,
    /// The cluster serves the timeline that an EtcdRestore made.
    Returned,
    /// The cluster has the timeline that an EtcdRestore names, or a later one.
    TimelineExists,

    // On the way.
    /// The first member is being made.
    Seeding,
    /// The first member's data is being rebuilt from a snapshot.
    Restoring,
    /// Members are being added.
    Growing,
    /// Members are being removed.
    Shrinking,
    /// Members restart with a changed spec, one after the other.
    Rolling,
    /// A change to the next minor version is prepared, or under way.
    Upgrading,
    /// The CA of a plane is exchanged.
    CaRotating,
    /// The members' volumes grow to a larger `spec.storage.size`.
    Resizing,
    /// A member gives free space of its database back.
    Defragmenting,
    /// A member is lost or unwanted, and another one takes its place.
    Replacing,
    /// The claim of a replaced member is kept for a while.
    ClaimKept,
    /// `spec.replicas` is 0, and the Pods are being ended.
    Parking,
    /// `spec.replicas` of the cluster is 0: no Pod runs, and the volumes hold the data.
    Parked,
    /// A parked cluster starts again.
    Waking,
    /// A member's Pod or claim is not there yet, or not running.
    WaitingForPod,
    /// A learner has not caught up.
    WaitingForLearner,
    /// etcd does not answer a linearizable read (yet).
    WaitingForEtcd,
    /// A member is restarting on its own volume.
    MemberRestarting,
    /// A named object does not exist (yet): a cluster, a snapshot, a claim.
    WaitingForReference,
    /// The `EtcdCluster` that is named has not formed, or lists no voter (yet).
    WaitingForCluster,
    /// The `EtcdBackupStore` that is named is not ready (yet).
    WaitingForStore,
    /// It is being found out what a store really does.
    Probing,
    /// A failed restore attempt is being cleared for the corrected one.
    ClearingFailedRestore,
    /// The snapshot's Job is waiting for a Pod to run.
    JobPending,
    /// The snapshot's Job is running.
    JobRunning,
    /// A Job asks a store what is there: for a snapshot whose report is lost, or for the latest one.
    AskingStore,
    /// The object is being deleted and its parts are going.
    Deleting,
    /// The last snapshot of a deleted cluster is being saved.
    SavingFinalSnapshot,
    /// A cluster returns to a stored snapshot, in place.
    Returning,
    /// A member of an earlier timeline: no Pod, and its claim is kept for a while.
    SetAside,
    /// Reconciliation is paused by `spec.paused`.
    Paused,
    /// A schedule is suspended by `spec.suspend`.
    Suspended,
    /// No run of a schedule has been due yet.
    NoBackupYet,
    /// No drill of a schedule has ended yet.
    NoDrillYet,
    /// No merge of a snapshot and the log has succeeded yet.
    NoMergeYet,
    /// The agent that records the log of a schedule starts.
    LogStarting,
    /// The newest drill ended without a result: out of memory, evicted, a full disk, a store that does not answer.
    DrillIncomplete,
    /// No `EtcdSnapshotSchedule` backs the cluster up.
    NoSchedule,
    /// The removal of snapshots is announced, and they are removed later.
    RemovalAnnounced,
    /// The store locks snapshots that the retention of a schedule does not keep.
    SnapshotsLocked,
    /// A Job announces and removes snapshots.
    Pruning,
    /// A Job removes the stored snapshot of an object that is being deleted.
    Removing,
    /// A restore waits for a Job that removes snapshots and does not protect the one to restore.
    WaitingForPrune,
    /// A member waits for its certificates.
    CertificatePending,
    /// etcd is given a user.
    ApplyingUser,
    /// The users of a cluster stand in etcd, and its authentication is off.
    AuthDisabled,

    // Wrong, and a person has to look.
    /// No linearizable read succeeds although the cluster had formed.
    QuorumLost => runbook,
    /// The client Service of a cluster that serves has no ready endpoint.
    NoClientEndpoint => runbook,
    /// A policy or another controller takes back what the operator writes.
    WriteReverted => runbook,
    /// The operator lacks a right that its manifests give.
    RightsMissing => runbook,
    /// The operator's clock differs from that of the API server.
    ClockSkewed => runbook,
    /// Something has been in progress for longer than `spec.progressDeadlineSeconds`.
    DeadlineExceeded => runbook,
    /// A cluster that was parked has come back with an older log than it was parked with.
    VolumeRolledBack => runbook,
    /// The spec asks for what cannot be.
    InvalidSpec => runbook,
    /// The gate refused a member's volume.
    VolumeRefused => runbook,
    /// An alarm is raised in etcd.
    AlarmRaised => runbook,
    /// A database has reached its quota, and neither a defragmentation nor a larger quota makes room for writes.
    SpaceExhausted => runbook,
    /// An object of the wanted name belongs to another owner.
    NameConflict => runbook,
    /// A Pod cannot start: an image, a node, a Secret or a claim is missing.
    PodHeldUp => runbook,
    /// A Pod has to end, and its node does not report the end.
    NodeSilent => runbook,
    /// Claims of an earlier cluster of the same name are there.
    ForeignVolumesFound => runbook,
    /// The status is of an earlier object of the same name, which had formed a cluster.
    ForeignStatusFound => runbook,
    /// The API server refuses what the operator wants to write: a quota, a policy, or missing rights.
    WriteRefused => runbook,
    /// The API server drops fields of a status, because the CRD is older than the operator.
    DefinitionsOutdated => runbook,
    /// A plan broke a safety rule and nothing was done.
    SafetyStop => runbook,
    /// A member's `EtcdCluster` is gone, and nothing takes the member away.
    ClusterGone => runbook,
    /// A member that etcd still lists is being deleted by hand.
    MemberStillListed => runbook,
    /// etcd lists a member that no `EtcdMember` stands for.
    UnknownMember => runbook,
    /// A majority of the members runs on one node.
    MembersColocated => runbook,
    /// An even number of members tolerates no more failures than one fewer.
    EvenReplicas => runbook,
    /// The quota leaves no room on the volume for a snapshot that a member far behind would be sent.
    QuotaTight => runbook,
    /// The version has known defects that lose or corrupt data.
    UnsafeVersion => runbook,
    /// The store refuses the agent's credentials.
    StoreAccessDenied => runbook,
    /// The store has another store ID than the expected one.
    StoreExchanged => runbook,
    /// The bucket, object, folder or manifest is not there.
    ArtifactNotFound => runbook,
    /// Stored or streamed bytes are not what they have to be.
    ArtifactCorrupt => runbook,
    /// The stored snapshot is whole, and could not be compared with a live member.
    NotCompared => runbook,
    /// A store holds snapshots of several clusters that had the name, and only a person knows which is meant.
    LineageUnclear => runbook,
    /// The request to the agent was wrong.
    AgentMisconfigured => runbook,
    /// etcd's authentication is on, and the operator has no login of the user root.
    AuthRequiredNotConfigured => runbook,
    /// Another owner has a user of this name in etcd.
    NameTaken => runbook,
    /// etcd's authentication is on, and `spec.auth` does not say so.
    AuthUnmanaged => runbook,
    /// Clients may connect in plaintext: `spec.tls.client.allowPlaintext`.
    PlaintextAllowed => runbook,
    /// The volume or the store is full.
    NoSpace => runbook,
    /// The agent's time was up, or nothing moved for too long.
    AgentTimedOut => runbook,
    /// The store does not answer; the operator or the Job tries again.
    StoreUnavailable => runbook,
    /// No member of the etcd that is to be saved answers.
    EtcdUnavailable => runbook,
    /// A DNS server has no address for the name of etcd or of the store.
    NameUnresolved => runbook,
    /// etcd refuses the credentials of the agent.
    EtcdAccessDenied => runbook,
    /// A volume of the Pod cannot be read or written.
    VolumeUnusable => runbook,
    /// A snapshot's report is lost, and the store does not answer either.
    ReportLost => runbook,
    /// Two due times and the starting deadline have passed without a complete backup.
    BackupOverdue => runbook,
    /// The newest run of a schedule failed.
    BackupFailing => runbook,
    /// No run of a schedule began at its due time, because the run before has not ended.
    RunSkipped => runbook,
    /// No drill of a schedule has passed in time.
    DrillOverdue => runbook,
    /// A drill found that the bytes of a stored snapshot are broken.
    DrillFailed => runbook,
    /// The stored log of a schedule ends too long ago.
    LogBehind => runbook,
    /// The newest merge of a snapshot and the log failed.
    MergeFailing => runbook,
    /// etcd compacted revisions before the agent recorded them, and no later snapshot is complete yet.
    LogInterrupted => runbook,
    /// Snapshots that the retention of a schedule does not keep could not be removed.
    RetentionBlocked => runbook,
    /// The stored snapshot of an object that is being deleted could not be removed.
    RemovalRefused => runbook,
    /// The newest snapshot has far fewer keys than the one before, so nothing is removed.
    SnapshotAnomaly => runbook,
    /// The due times of a schedule never come: 30 February.
    NeverFires => runbook,
    /// The agent or etcdutl crashed, or ended without a report.
    AgentCrashed => runbook,
    /// A member that has served lost its claim.
    ClaimLost => runbook,
    /// A member that kept its data in the memory of its Pod lost the Pod.
    MemoryLost => runbook,
    /// Every member of a cluster lost its data.
    DataLost => runbook,
    /// The members keep their data in memory, and none can be lost.
    NoSpareMember => runbook,
    /// A member that joins does not get its vote in time, and another member takes its place.
    JoinerStuck => runbook,
    /// A member does not start with the changed spec.
    RolloutStuck => runbook,
    /// The API server or the volume driver refuses a larger volume.
    ResizeRefused => runbook,
    /// The rehearsal of an upgrade failed, or the members are not fit for an upgrade.
    PreflightFailed => runbook,
    /// No recent snapshot of the cluster exists, and an upgrade needs one.
    SnapshotNeeded => runbook,
    /// A deleted cluster stays, because its last snapshot is not complete.
    FinalSnapshotHeld => runbook,
    /// A return of a cluster to a stored snapshot has failed.
    ReturnFailed => runbook,
    /// Several members show the same evidence of loss at the same time: the cause may be common.
    ReplacementHeld => runbook,
    /// etcd no longer lists a member that had joined.
    MemberNotListed => runbook,
    /// The Secret of a cluster's CA is gone or unusable.
    CaLost => runbook,
    /// Certificates come from another CA, and members have to restart to trust it.
    CaRotationWaits => runbook,
    /// A certificate ends soon, and is not renewed.
    CertificateExpiring => runbook,
    /// A certificate of the user's or of cert-manager's cannot be used.
    CertificateRejected => runbook,
    /// The API server does not serve cert-manager's kinds.
    CertManagerMissing => runbook,
    /// A member goes on showing its old certificate after a renewal.
    CertificateNotServed => runbook,
}

impl From<&Failure> for Reason {
    /// The reason that the table of failures names. A test holds that each of them exists.
    fn from(failure: &Failure) -> Self {
        Self::named(failure.reason).unwrap_or(Self::AgentCrashed)
    }
}

/// One condition as a plan wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub kind: Type,
    /// `Some(true)` = True, `Some(false)` = False, `None` = Unknown.
    pub state: Option<bool>,
    /// Why.
    pub reason: Reason,
    /// The remedy, with times, never ages: the message must not change while nothing changes.
    pub message: String,
}

impl Wanted {
    /// A condition that holds.
    pub fn yes(kind: Type, reason: Reason, message: impl Into<String>) -> Self {
        Self { kind, state: Some(true), reason, message: message.into() }
    }

    /// A condition that does not hold.
    pub fn no(kind: Type, reason: Reason, message: impl Into<String>) -> Self {
        Self { kind, state: Some(false), reason, message: message.into() }
    }

    /// A condition that is unknown now.
    pub fn unknown(kind: Type, reason: Reason, message: impl Into<String>) -> Self {
        Self { kind, state: None, reason, message: message.into() }
    }
}

/// Longest condition message we write; the API allows 32 KiB, people read less (I20).
const MAX_MESSAGE: usize = 1000;

/// The new list: what is wanted, keeping the time of the last transition where the state is the same, and carrying
/// over conditions of others untouched.
pub fn merge(old: &[Condition], wanted: &[Wanted], generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    let mut out: Vec<Condition> =
        old.iter().filter(|c| !wanted.iter().any(|w| w.kind.as_str() == c.type_)).cloned().collect();
    for want in wanted {
        let status = match want.state {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let before = find(old, want.kind);
        let since = before.filter(|c| c.status == status).map_or(Time(now), |c| c.last_transition_time.clone());
        out.push(Condition {
            type_: want.kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: want.reason.as_str().to_owned(),
            message: cut(&want.message),
            observed_generation: generation,
            last_transition_time: since,
        });
    }
    out.sort_by(|a, b| a.type_.cmp(&b.type_));
    out
}

/// A condition in the status of any kind of object: a type, and a status of `True`, `False` or `Unknown`.
pub trait AnyCondition {
    /// Returns the type.
    fn kind(&self) -> &str;
    /// Returns the status.
    fn status(&self) -> &str;
}

macro_rules! any_condition {
    ($($name:ty)*) => {$(
        impl AnyCondition for $name {
            fn kind(&self) -> &str {
                &self.type_
            }

            fn status(&self) -> &str {
                &self.status
            }
        }
    )*};
}

any_condition!(Condition JobCondition PodCondition PersistentVolumeClaimCondition);

/// Returns the condition of this type.
pub fn find<'a, C: AnyCondition + 'a>(
    conditions: impl IntoIterator<Item = &'a C>,
    kind: impl AsRef<str>,
) -> Option<&'a C> {
    conditions.into_iter().find(|c| c.kind() == kind.as_ref())
}

/// Returns the condition of this type, if it has this status.
pub fn find_with_status<'a, C: AnyCondition + 'a>(
    conditions: impl IntoIterator<Item = &'a C>,
    kind: impl AsRef<str>,
    status: &str,
) -> Option<&'a C> {
    find(conditions, kind).filter(|c| c.status() == status)
}

/// Whether the condition of this type is `True`.
pub fn is_true<'a>(conditions: impl IntoIterator<Item = &'a Condition>, kind: Type) -> bool {
    find_with_status(conditions, kind, "True").is_some()
}

/// Tells what keeps failing. While there is something to `write`, what is not ready is that for this reason, unless a better
/// one is known: a plan that was stopped is worse than anything, and what needs a person worse than a refused write.
pub fn degrade(
    conditions: &mut Vec<Condition>,
    before: &[Condition],
    writes: bool,
    (reason, message): (Reason, &str),
    generation: Option<i64>,
    now: Timestamp,
) {
    let worse =
        |c: &&Condition| reason != Reason::SafetyStop && Reason::named(&c.reason).is_some_and(Reason::needs_a_person);
    let degraded = match find_with_status(&*conditions, Type::Degraded, "True").filter(worse) {
        Some(c) => {
            let both = format!("{}; besides, {}: {message}", c.message, reason.as_str());
            Wanted::yes(Type::Degraded, Reason::named(&c.reason).unwrap_or(reason), both)
        }
        None => Wanted::yes(Type::Degraded, reason, message),
    };
    let mut wanted = vec![degraded];
    match find(&*conditions, Type::Ready).filter(|c| writes && !worse(c)).map(|c| c.status.as_str()) {
        Some("False") => wanted.push(Wanted::no(Type::Ready, reason, message)),
        Some("Unknown") => wanted.push(Wanted::unknown(Type::Ready, reason, message)),
        _ => {}
    }
    let is_wanted = |c: &Condition| wanted.iter().any(|w| w.kind.as_str() == c.type_);
    conditions.retain(|c| !is_wanted(c));
    // The time of the last transition is that of the condition as it stands, not of the plan's.
    conditions.extend(merge(before, &wanted, generation, now).into_iter().filter(is_wanted));
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
}

fn cut(message: &str) -> String {
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    let mut end = MAX_MESSAGE;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &message[..end])
}

#[cfg(test)]
mod tests;
