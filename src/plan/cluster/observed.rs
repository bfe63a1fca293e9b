//! What one pass over an `EtcdCluster` has seen: plain values, filled by `operator::observe::cluster`.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::api::cluster::LastSnapshot;
use crate::api::condition::Wanted;
use crate::api::schedule::PruneRun;
use crate::api::{EtcdBackupStore, EtcdCluster, EtcdMember, EtcdSnapshot};
use crate::plan::certificate::Certificates;
use crate::plan::{Seen, Settings};

/// Everything a decision about a cluster may depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The object, with UID, resourceVersion and status.
    pub cluster: EtcdCluster,
    /// Its members (found by owner UID), by name.
    pub members: Vec<Member>,
    /// What stands where the peer Service belongs, whoever owns it.
    pub peer_service: Option<Service>,
    /// What stands where the client Service belongs.
    pub client_service: Option<Service>,
    /// UIDs of the Pods that are ready endpoints of the client Service, by the cached EndpointSlices; `None` where the operator has not
    /// read them (yet).
    pub client_endpoints: Option<Vec<String>>,
    /// What stands where the disruption budget belongs.
    pub budget: Option<PodDisruptionBudget>,
    /// etcd's own membership, read linearizably. `Unknown` also when there is no Pod to ask.
    pub etcd: Seen<Membership>,
    /// What each member's own server said, by member name; a member without a Pod that runs is not in it.
    pub answers: BTreeMap<String, Seen<Answer>>,
    /// The `EtcdSnapshot` that `bootstrap.restore.snapshotRef` names; `None` when none is named.
    pub snapshot: Option<Seen<Option<EtcdSnapshot>>>,
    /// The `EtcdBackupStore` that `bootstrap.restore` names by a `storeRef`, or that the `EtcdSnapshot` it names was saved to;
    /// `None` when none is named.
    pub store: Option<Seen<Option<EtcdBackupStore>>>,
    /// Volumes of an earlier cluster of this name; looked for only while this one has not formed, or has no member.
    pub foreign: Vec<ForeignVolume>,
    /// Names of members of an earlier cluster of this name; looked for only where this one has formed and has none.
    pub foreign_members: Vec<String>,
    /// Runs of schedules of this namespace that may remove snapshots, looked at after the cluster itself; looked for only
    /// while it restores and has not formed.
    pub prunes: Vec<PruneRun>,
    /// Jobs of this cluster that look for the latest snapshot, oldest first; looked for only while it has not formed.
    pub searches: Vec<Search>,
    /// Why the API server refused the Pod of the last of these, if it did.
    pub refusal: Option<String>,
    /// Names of Pods of this cluster that belong to no member.
    pub stray_pods: Vec<String>,
    /// Hashes of the members' key spaces, by member name; asked for only while a `CORRUPT` alarm names a member.
    pub hashes: BTreeMap<String, KeyHash>,
    /// The cluster's certificates; `None` in plaintext, and where the Secrets cannot be read.
    pub certificates: Option<Certificates>,
    /// Why the operator may not read the Secrets of the certificates.
    pub unread_certificates: Option<String>,
    /// Newest complete snapshot of this cluster among the cached `EtcdSnapshot`s.
    pub last_snapshot: Option<LastSnapshot>,
    /// The condition `BackupHealthy`, by the cached schedules that name this cluster.
    pub backups: Wanted,
    /// Five characters of luck for the next member's name.
    pub fresh_suffix: String,
    /// What the operator was started with.
    pub settings: Settings,
}

/// One member with its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The object.
    pub object: EtcdMember,
    /// Its Pod (by owner UID).
    pub pod: Option<Pod>,
    /// Its claim (by member UID label).
    pub claim: Option<PersistentVolumeClaim>,
}

/// A Job that looks for the latest snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The Job.
    pub job: Job,
    /// Its Pods, oldest first.
    pub pods: Vec<Pod>,
}

/// A volume that names this cluster, and belongs to another one that had this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignVolume {
    /// Name of the claim.
    pub claim: String,
    /// Whether it, or the member it belongs to, is on its way out.
    pub going: bool,
}

/// etcd's membership at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Cluster ID.
    pub cluster_id: u64,
    /// ID of the leader, if there is one.
    pub leader: Option<u64>,
    /// The members.
    pub members: Vec<Listed>,
    /// Raised alarms.
    pub alarms: Vec<Alarm>,
}

impl Membership {
    /// Raised alarms of one kind.
    pub fn alarms_of(&self, kind: AlarmKind) -> impl Iterator<Item = &Alarm> {
        self.alarms.iter().filter(move |alarm| alarm.kind == kind)
    }
}

/// One member as etcd lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// ID.
    pub id: u64,
    /// Name; empty until it has started once.
    pub name: String,
    /// Peer URLs.
    pub peer_urls: Vec<String>,
    /// No vote yet.
    pub learner: bool,
}

/// One raised alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Member ID; 0 where etcd does not know which member is wrong.
    pub member_id: u64,
    /// What it says.
    pub kind: AlarmKind,
}

/// What an alarm says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// A member's database has reached its quota.
    NoSpace,
    /// A member's data are not those of the others.
    Corrupt,
}

impl AlarmKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::NoSpace, Self::Corrupt];

    /// As etcd calls it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
        }
    }
}

/// Hash of a member's key space (Maintenance.HashKV). Two are comparable at the same revision and compact revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyHash {
    /// Revision up to which it was taken.
    pub revision: i64,
    /// Revision up to which the member had compacted.
    pub compact_revision: i64,
    /// The hash.
    pub hash: u32,
}

/// What one member's server said of itself (Maintenance.Status).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its ID.
    pub member_id: u64,
    /// Its cluster's ID.
    pub cluster_id: u64,
    /// Its version.
    pub version: String,
    /// Bytes of its database file.
    pub db_bytes: i64,
    /// Raft term.
    pub term: u64,
    /// Applied raft index.
    pub applied_index: u64,
    /// Whether it is a learner.
    pub learner: bool,
    /// ID of the leader it knows.
    pub leader: u64,
}
