//! Facts of one pass over an `EtcdCluster`: plain values, filled by `operator::observe::cluster`. Decides nothing.

use std::collections::BTreeMap;

use holdfast_api::cluster::LastSnapshot;
use holdfast_api::condition::Wanted;
use holdfast_api::schedule::PruneRun;
use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdMember, EtcdRestore, EtcdSnapshot};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::certificate::Certificates;
use crate::{Alarm, AlarmKind, Seen, Settings};

/// All facts that a decision about a cluster may depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The object, with UID, resourceVersion and status.
    pub cluster: EtcdCluster,
    /// The cluster's members (found by owner UID), by name: those of its timeline.
    pub members: Vec<Member>,
    /// Its members of other timelines: set aside, or prepared for the next one.
    pub others: Vec<Member>,
    /// The `EtcdRestore` that is under way, else the one that names the next timeline.
    pub returns: Option<EtcdRestore>,
    /// The safety snapshot of that `EtcdRestore`; the operator reads it only while the cluster waits for it.
    pub safety_snapshot: Option<EtcdSnapshot>,
    /// The Service under the peer Service's name, of any owner.
    pub peer_service: Option<Service>,
    /// The Service under the client Service's name, of any owner.
    pub client_service: Option<Service>,
    /// UIDs of the Pods that are ready endpoints of the client Service, by the cached EndpointSlices; `None` until the operator has
    /// read them.
    pub client_endpoints: Option<Vec<String>>,
    /// The disruption budget under this cluster's budget name, of any owner.
    pub budget: Option<PodDisruptionBudget>,
    /// etcd's own membership, read linearizably. `Unknown` also when no Pod runs that could answer.
    pub etcd: Seen<Membership>,
    /// Answer of each member's own server, by member name; a member without a running Pod is absent.
    pub answers: BTreeMap<String, Seen<Answer>>,
    /// The `EtcdSnapshot` that `bootstrap.restore.snapshotRef` names; `None` without a `snapshotRef`.
    pub snapshot: Option<Seen<Option<EtcdSnapshot>>>,
    /// The `EtcdBackupStore` that `bootstrap.restore` names by a `storeRef`, or that the named `EtcdSnapshot` was saved to; `None`
    /// without such a store.
    pub store: Option<Seen<Option<EtcdBackupStore>>>,
    /// Volumes of an earlier cluster of this name. The operator reads them only while this cluster has not formed,
    /// or has no member.
    pub foreign: Vec<ForeignVolume>,
    /// Names of members of an earlier cluster of this name. The operator reads them only while this cluster has formed and
    /// has no member.
    pub foreign_members: Vec<String>,
    /// Runs of schedules of this namespace that may remove snapshots, read after the cluster itself. The operator reads them only
    /// while the cluster restores and has not formed.
    pub prunes: Vec<PruneRun>,
    /// Jobs of this cluster that search for the latest snapshot, oldest first. The operator reads them only until the cluster has
    /// formed.
    pub searches: Vec<ClusterJob>,
    /// Jobs of this cluster that rehearse an upgrade. The operator reads them only while the minor of the spec differs from that
    /// of a member.
    pub rehearsals: Vec<ClusterJob>,
    /// The newest complete snapshot of this cluster, read with `rehearsals`.
    pub backup: Option<EtcdSnapshot>,
    /// The snapshot that the operator requested before this upgrade, read with `rehearsals`.
    pub requested: Option<EtcdSnapshot>,
    /// Facts for the last snapshot; the operator reads them only while the deletion waits for it.
    pub ending: Option<Ending>,
    /// Why the API server refused the Pod of the last search, if it did.
    pub refusal: Option<String>,
    /// Why the API server refuses a larger claim, by member name. The operator asks only for a claim that has to grow.
    pub refused_growth: BTreeMap<String, String>,
    /// The API server's judgement of the Pod that follows a member's present Pod, by member name. The operator asks only for a Pod
    /// that is about to end, and for a member without a Pod.
    pub next_pods: BTreeMap<String, Seen<Judgement>>,
    /// Names of Pods of this cluster that belong to no member.
    pub stray_pods: Vec<String>,
    /// Hashes of the members' key spaces, by member name. The operator reads them only while a `CORRUPT` alarm names a member.
    pub hashes: BTreeMap<String, KeyHash>,
    /// Whether etcd's authentication is on; `None` while no member answers, and in plaintext.
    pub auth: Option<bool>,
    /// The cluster's certificates; `None` in plaintext, and where the operator cannot read the Secrets.
    pub certificates: Option<Certificates>,
    /// Why the operator may not read the Secrets of the certificates.
    pub unread_certificates: Option<String>,
    /// Newest complete snapshot of this cluster among the cached `EtcdSnapshot`s.
    pub last_snapshot: Option<LastSnapshot>,
    /// Snapshots of this cluster that are being saved, by the cached `EtcdSnapshot`s.
    pub saving: Vec<Saving>,
    /// Whether the defragmentation that `status.latches` decides has its turn among those of all clusters, by their cached status.
    pub has_turn: bool,
    /// How long etcd has refused the next step; `None`: it has not.
    pub refused_for: Option<SignedDuration>,
    /// The condition `BackupHealthy`, by the cached schedules that name this cluster.
    pub backups: Wanted,
    /// Five random characters for the next member's name.
    pub fresh_suffix: String,
    /// The settings of the operator's process.
    pub settings: Settings,
}

/// Facts for the last snapshot of a deleted cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ending {
    /// The last snapshot, after the operator requested it.
    pub snapshot: Option<EtcdSnapshot>,
    /// Whether the namespace is being deleted: the API server then refuses new objects.
    pub terminating: bool,
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

/// The API server's judgement of a Pod that it does not store (`dryRun`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The Pod may be created as soon as the present Pod has ended.
    Permitted,
    /// A quota, a limit range, a policy or a missing object refuses the Pod.
    Refused {
        /// The API server's words.
        words: String,
        /// How long the API server has refused this Pod, by the operator's memory: a restart forgets it.
        lasted: SignedDuration,
    },
}

/// A snapshot that is being saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saving {
    /// Name of the `EtcdSnapshot`.
    pub name: String,
    /// When its first Job started.
    pub since: Timestamp,
}

/// A Job of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterJob {
    /// The Job.
    pub job: Job,
    /// Its Pods, oldest first.
    pub pods: Vec<Pod>,
}

/// A volume with this cluster's name that belongs to an earlier cluster of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignVolume {
    /// Name of the claim.
    pub claim: String,
    /// Whether the claim or its member is being deleted.
    pub going: bool,
}

/// etcd's membership at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Cluster ID.
    pub cluster_id: u64,
    /// ID of the leader, if there is one.
    pub leader: Option<u64>,
    /// The members that etcd lists.
    pub members: Vec<Listed>,
    /// Raised alarms.
    pub alarms: Vec<Alarm>,
}

impl Membership {
    /// Returns the raised alarms of one kind.
    pub fn alarms_of(&self, kind: AlarmKind) -> impl Iterator<Item = &Alarm> {
        self.alarms.iter().filter(move |alarm| alarm.kind == kind)
    }
}

/// One member as etcd lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// ID.
    pub id: u64,
    /// Name; empty until the member has started once.
    pub name: String,
    /// Peer URLs.
    pub peer_urls: Vec<String>,
    /// Whether the member is a learner.
    pub learner: bool,
}

/// Hash of a member's key space (Maintenance.HashKV). Two hashes are comparable at the same revision and compact revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyHash {
    /// Revision of the hash.
    pub revision: i64,
    /// Revision up to which the member had compacted.
    pub compact_revision: i64,
    /// The hash.
    pub hash: u32,
}

/// Answer of one member's server about itself (Maintenance.Status).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Member ID.
    pub member_id: u64,
    /// Cluster ID.
    pub cluster_id: u64,
    /// Version of etcd.
    pub version: String,
    /// Bytes of the database file.
    pub db_bytes: i64,
    /// Bytes of the file in use; the rest are free pages.
    pub used_bytes: i64,
    /// Raft term.
    pub term: u64,
    /// Applied raft index.
    pub applied_index: u64,
    /// Whether the member is a learner.
    pub learner: bool,
    /// ID of the leader that the member follows.
    pub leader: u64,
    /// Revision of the member's key space.
    pub revision: i64,
}
