//! The consequential steps that a plan may take, one at a time.
//!
//! Decides the shape. `live_reads.rs` decides which objects the operator reads again before an act, and `safety.rs` which acts are
//! allowed.

use std::collections::BTreeMap;

use holdfast_api::agent::PodMetadata;
use holdfast_api::cluster::{Latches, Retention};
use holdfast_api::member::{Joined, Leaving, Parked, Removed};
use holdfast_api::schedule::PruneRun;
use holdfast_api::snapshot::Removal;
use holdfast_api::template::Template;
use holdfast_api::timeline::Aside;
use holdfast_api::tls::Trusts;
use holdfast_api::user::{PasswordRef, Permission};
use holdfast_api::{EtcdMember, EtcdSnapshot};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::certificate::Issue;
use crate::{Alarm, Target};

/// Why a member cannot lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unelectable {
    /// The cluster has no member of this name, or the member leaves.
    Absent,
    /// The member has no vote.
    Learner,
}

/// A user for etcd. The password stays in its Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserChange {
    /// Name of the user and of its role.
    pub name: String,
    /// Keys of the user.
    pub permissions: Vec<Permission>,
    /// Whether etcd was not given the user yet: a user that is there is deleted first.
    pub is_new: bool,
    /// The Secret with the password; `None`: the user logs in by a certificate.
    pub password: Option<PasswordRef>,
    /// Whether the user's password changes.
    pub changes_password: bool,
    /// The annotation of the object afterwards.
    pub claim: String,
}

/// Facts of a member that gets its first certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstCertificates {
    /// DNS name that the member will require of its peers, if not the default.
    pub peer_name: Option<String>,
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
    /// Label the Pod of a member that leaves or is defragmented as the Pod of a learner, so that no new client reaches the Pod.
    DismissClients {
        /// The Pod.
        pod: Target,
    },
    /// Ask the leader to hand the leadership to another voter: etcd is to remove the leader, its etcd is to stand still, or a user
    /// wants another leader.
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
    /// Take the annotation `holdfast.dev/move-leader` away from the `EtcdCluster`: the request is carried out, or refused.
    EndLeaderRequest {
        /// The cluster.
        cluster: Target,
        /// The member that the annotation names.
        member: String,
        /// Why the member cannot lead; `None`: the member leads.
        refused: Option<Unelectable>,
    },
    /// Ask a member's etcd to rewrite its file, and then let clients in to its Pod again. The member serves nothing meanwhile.
    Defragment {
        /// The Pod.
        pod: Target,
        /// Name of the member.
        name: String,
        /// Its ID.
        member_id: u64,
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
    /// Ask for a larger volume: the request of a claim, with the time as an annotation.
    GrowClaim {
        /// The claim.
        claim: Target,
        /// The larger size.
        size: Quantity,
        /// Time of the request (RFC 3339): no field of a claim has it, and nothing may ever answer.
        at: String,
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
    /// Remove the annotation of [`Act::BeginResize`]: the Pod has the resources of its member's template, or those that a webhook or
    /// another controller has put in their place.
    EndResize {
        /// The Pod.
        pod: Target,
        /// The resources in which the Pod differs from its member's template.
        differs: Option<String>,
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
    /// Latch `spec.aside` of a member of the earlier timeline. The member's own pass then deletes the Pod.
    SetAside {
        /// The member.
        member: Target,
        /// The return, with term and index of the member's log.
        aside: Aside,
    },
    /// Let a member that was set aside start again: the return failed. Clients come when the leader has applied the index.
    TakeBack {
        /// The member.
        member: Target,
        /// Term and index of the member's log.
        parked: Parked,
    },
    /// Write a Secret with a new CA or new certificates.
    Issue(Box<Issue>),
    /// Write `spec.tls.staged` of a member: the member's Secret holds these certificates.
    AnnounceCertificates {
        /// The member.
        member: Target,
        /// Facts of a member that had no certificates before, and goes on in plaintext until its turn.
        first: Option<FirstCertificates>,
        /// Digest of the certificates.
        digest: String,
        /// CAs that the member trusts.
        trusts: Trusts,
        /// Digest of the CAs in the member's files.
        cas: Option<String>,
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
    /// Put the finalizer on an `EtcdUser`: etcd loses the user before the object goes.
    HoldUser {
        /// The `EtcdUser`.
        user: Target,
    },
    /// Let an `EtcdUser` go.
    ReleaseUser {
        /// The `EtcdUser`.
        user: Target,
    },
    /// Write down that the user of this name is Holdfast's, before etcd gets the user.
    ClaimUser {
        /// The `EtcdUser`.
        user: Target,
        /// ID of the etcd cluster, hexadecimal.
        claim: String,
    },
    /// Make or change a user and its role in etcd, and write down what etcd was given.
    PutUser {
        /// The `EtcdUser`.
        user: Target,
        /// The user.
        change: Box<UserChange>,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Delete a user and its role in etcd, and let the `EtcdUser` go.
    DropUser {
        /// The `EtcdUser`.
        user: Target,
        /// Name in etcd.
        name: String,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Change the peer URL under which etcd lists a member to the scheme that its Pod serves.
    SetPeerUrl {
        /// Name of the member.
        name: String,
        /// Its ID.
        member_id: u64,
        /// The URL.
        peer_url: String,
        /// The etcd cluster that must answer.
        cluster_id: u64,
    },
    /// Turn etcd's authentication on, with the user root, or off.
    SetAuth {
        /// Whether authentication is on afterwards.
        enabled: bool,
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
    /// POST a Job of the schedule's `CronJob` at another time than a due one. An existing Job of the same name and owner counts as
    /// done.
    StartRun(Box<Job>),
    /// Delete the Deployment of a schedule that asks for no log any more. The stored log stays.
    DeleteDeployment {
        /// The Deployment.
        deployment: Target,
        /// Why, for the log and the Event.
        why: String,
    },
}
