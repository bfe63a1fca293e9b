//! The wire contract: one file per kind, CEL beside the field it guards, every name on the wire written once.
//!
//! Decides what users and the operator may write. It does not decide what happens then (that is `plan`).

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
#![allow(unreachable_pub, reason = "the schema derive writes `pub` items into private scopes")]
#![allow(clippy::duplicated_attributes, reason = "printer columns repeat their keys by nature")]

pub mod agent;
pub mod auth;
pub mod backup_store;
pub mod blocked_pod;
pub mod cluster;
mod cluster_rules;
pub mod condition;
pub mod cron;
pub mod defragmentation;
pub mod drill;
pub mod family;
pub mod final_snapshot;
pub mod formed;
pub mod log;
pub mod member;
pub mod name;
pub mod pod_security;
pub mod repair;
pub mod restore;
pub mod schedule;
pub mod snapshot;
pub mod storage;
pub mod store;
pub mod template;
pub mod timeline;
pub mod tls;
pub mod transport;
pub mod upgrade;
pub mod user;

pub use backup_store::{EtcdBackupStore, EtcdBackupStoreSpec, EtcdBackupStoreStatus};
pub use cluster::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus};
pub use member::{EtcdMember, EtcdMemberSpec, EtcdMemberStatus};
pub use schedule::{EtcdSnapshotSchedule, EtcdSnapshotScheduleSpec, EtcdSnapshotScheduleStatus};
pub use snapshot::{EtcdSnapshot, EtcdSnapshotSpec, EtcdSnapshotStatus};
pub use timeline::{EtcdRestore, EtcdRestoreSpec, EtcdRestoreStatus};
pub use user::{EtcdUser, EtcdUserSpec, EtcdUserStatus};

/// API group of every kind.
pub const GROUP: &str = "holdfast.dev";
/// The one served version.
pub const VERSION: &str = "v1alpha1";
/// Field manager of every write.
pub const FIELD_MANAGER: &str = "holdfast";

/// Finalizer of an `EtcdCluster`: its members get the newest `spec.storage.retention` first.
pub const CLUSTER_FINALIZER: &str = "holdfast.dev/cluster";

/// Finalizer of an `EtcdMember`: its Pod and claim go first.
pub const MEMBER_FINALIZER: &str = "holdfast.dev/member";

/// Finalizer of an `EtcdSnapshot` with `deletionPolicy: Delete`: its stored snapshot goes first.
pub const ARTIFACT_FINALIZER: &str = "holdfast.dev/artifact";

/// Finalizer of an `EtcdUser`: the user in etcd goes first.
pub const USER_FINALIZER: &str = "holdfast.dev/user";

/// Label and annotation keys.
pub mod key {
    /// The program of the Pod: always `etcd` on our children.
    pub const NAME: &str = "app.kubernetes.io/name";
    /// Which part: [`super::component`].
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// Always `holdfast` on our children.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Name of the `EtcdCluster`.
    pub const CLUSTER: &str = "holdfast.dev/cluster";
    /// UID of the `EtcdCluster`; children are found by it, never by name alone.
    pub const CLUSTER_UID: &str = "holdfast.dev/cluster-uid";
    /// Name of the `EtcdMember`.
    pub const MEMBER: &str = "holdfast.dev/member";
    /// UID of the `EtcdMember` (on claims, which have no owner reference).
    pub const MEMBER_UID: &str = "holdfast.dev/member-uid";
    /// Name of the `EtcdSnapshot`.
    pub const SNAPSHOT: &str = "holdfast.dev/snapshot";
    /// Name of the `EtcdSnapshotSchedule` whose run it is, or records.
    pub const SCHEDULE: &str = "holdfast.dev/schedule";
    /// UID of the `EtcdSnapshotSchedule`.
    pub const SCHEDULE_UID: &str = "holdfast.dev/schedule-uid";
    /// Annotation of a schedule's Jobs: the `snapshotTemplate` that the run carries out, as JSON.
    pub const SNAPSHOT_TEMPLATE: &str = "holdfast.dev/snapshot-template";
    /// Annotation of a schedule's `CronJob`: fingerprint of the object as Holdfast applied it.
    pub const RENDERED: &str = "holdfast.dev/rendered";
    /// Name of the `EtcdBackupStore` that is probed.
    pub const STORE: &str = "holdfast.dev/store";
    /// Annotation of a snapshot's Job: the `EtcdBackupStore` as it was when the Job was made, as JSON.
    pub const STORE_RECORD: &str = "holdfast.dev/store-record";
    /// Annotation of an `EtcdBackupStore`, set by a person: the store ID to accept instead of the recorded store ID, or
    /// [`holdfast_contract::NEW_STORE`] for a store without an ID.
    pub const ACCEPT_STORE: &str = "holdfast.dev/accept-store";
    /// Annotation of an `EtcdSnapshotSchedule`, set by a person: key of a snapshot whose loss of keys, or lower revision, is
    /// intended.
    pub const ACCEPT_ANOMALY: &str = "holdfast.dev/accept-anomaly";
    /// Annotation `true` on an `EtcdSnapshot`, set by a person: its removal may take the last proven snapshot of the lineage.
    pub const REMOVE_LAST: &str = "holdfast.dev/remove-last";
    /// Annotation of a Job that removes snapshots: the `status.pruneRun` that it was made for, as JSON.
    pub const PRUNE_RUN: &str = "holdfast.dev/prune-run";
    /// Annotation `true` on an `EtcdMember`: a person may delete the object, although the admission policy refuses this.
    pub const ALLOW_DELETION: &str = "holdfast.dev/allow-deletion";
    /// Annotation of an `EtcdCluster`, set by a person: name of the member to replace.
    pub const REPLACE: &str = "holdfast.dev/replace";
    /// Annotation `true` of an `EtcdCluster`, set by a person: the deleted cluster goes without its last snapshot.
    pub const SKIP_FINAL_SNAPSHOT: &str = "holdfast.dev/skip-final-snapshot";
    /// Annotation of an `EtcdCluster`, set by a person: name of the member that is to lead. The operator takes the annotation
    /// away when the member leads, or cannot lead.
    pub const MOVE_LEADER: &str = "holdfast.dev/move-leader";
    /// Annotation of an `EtcdCluster`, set by a person: each new value restarts the members, one after the other.
    pub const RESTART: &str = "holdfast.dev/restart";
    /// Annotation of a member's Pod: fingerprint of the template that the Pod was made with.
    pub const TEMPLATE: &str = "holdfast.dev/template";
    /// Annotation of a member's Pod: fingerprint of the template without its resources, which alone may change in a running
    /// Pod. Never changes.
    pub const PROCESS: &str = "holdfast.dev/process";
    /// Annotation of a member's Pod while its resources change: see [`crate::member::Resize`].
    pub const RESIZE: &str = "holdfast.dev/resize";
    /// Annotation of a member's Pod: fingerprint of `spec.podMetadata` as the Pod has it.
    pub const POD_METADATA: &str = "holdfast.dev/pod-metadata";
    /// Annotation of a Service or a disruption budget: fingerprint of `spec.additionalMetadata` as the object has it.
    pub const METADATA: &str = "holdfast.dev/metadata";
    /// Annotation of a member's Pod: size of the volume that the Pod was made for.
    pub const VOLUME_SIZE: &str = "holdfast.dev/volume-size";
    /// Annotation of a member's Pod: size that the claim asks for. kubelet looks at the volumes when the annotation changes.
    pub const VOLUME_REQUEST: &str = "holdfast.dev/volume-request";
    /// `voter` or `learner`; client traffic and disruption budgets follow `voter` only.
    pub const ROLE: &str = "holdfast.dev/role";
    /// Annotation of a member's Pod: see [`holdfast_contract::MAY_START_EMPTY`].
    pub const MAY_START_EMPTY: &str = holdfast_contract::MAY_START_EMPTY;
    /// Annotation of a member's Pod: see [`holdfast_contract::STARTED`].
    pub const STARTED: &str = holdfast_contract::STARTED;
    /// Annotation of a member's Pod: see [`holdfast_contract::JOINED`].
    pub const JOINED: &str = holdfast_contract::JOINED;
    /// Annotation of a member's Pod: digest of the certificates that the operator wrote last. kubelet refreshes the mounted
    /// files when the annotation changes.
    pub const TLS: &str = "holdfast.dev/tls";
    /// Annotation of a member's Pod: digest of the CAs in the files that the Pod was made with. etcd reads them when it starts.
    pub const CAS: &str = "holdfast.dev/cas";
    /// Annotation of a member's Pod: which ports speak TLS ([`crate::transport::Transport`]), on the way between plaintext and TLS.
    pub const TRANSPORT: &str = "holdfast.dev/transport";
    /// Annotation of an `EtcdCluster`, set by a person: `client/TOKEN`, `peer/TOKEN` or `all/TOKEN`, several separated by commas,
    /// of which the last of a plane counts. Each new token exchanges the CA of the plane.
    pub const ROTATE_CA: &str = "holdfast.dev/rotate-ca";
    /// Annotation of a Secret of certificates: when the operator last wrote a certificate of another CA than before (RFC 3339).
    pub const EXCHANGED_AT: &str = "holdfast.dev/exchanged-at";
    /// Annotation of an `EtcdCluster`, set by a person: a time (RFC 3339). Certificates that Holdfast issued before it are issued
    /// again.
    pub const RENEW: &str = "holdfast.dev/renew-certificates";
    /// Annotation of a CA's Secret: the token of [`ROTATE_CA`] that was answered last.
    pub const ROTATED_FOR: &str = "holdfast.dev/rotated-for";
    /// Annotation of an `EtcdUser`: ID (hexadecimal) of the etcd cluster that has the user, and behind `/` the digest of what etcd
    /// was given.
    pub const USER: &str = "holdfast.dev/etcd-user";
    /// Annotation of a Secret of certificates: when the operator wrote it (RFC 3339).
    pub const WRITTEN_AT: &str = "holdfast.dev/written-at";
    /// Annotation of a Job: Pods that earlier Jobs of the same snapshot had tried; of a Job that looks for the latest
    /// snapshot: Jobs that had looked for it before.
    pub const ATTEMPTS_BEFORE: &str = "holdfast.dev/attempts-before";
    /// Annotation of a claim: the time at which Holdfast asked for a larger volume.
    pub const GROWTH_ASKED: &str = "holdfast.dev/growth-asked-at";
    /// Annotation of a Job that rehearses an upgrade: the snapshot that it reads, as JSON.
    pub const REHEARSES: &str = "holdfast.dev/rehearses";
    /// Annotation of a Pod that restores: the image of Holdfast that it was asked for with, whatever an admission webhook has
    /// made of that.
    pub const AGENT_IMAGE: &str = "holdfast.dev/agent-image";

    /// All of them.
    pub const ALL: &[&str] = &[
        NAME,
        COMPONENT,
        MANAGED_BY,
        CLUSTER,
        CLUSTER_UID,
        MEMBER,
        MEMBER_UID,
        SNAPSHOT,
        SCHEDULE,
        SCHEDULE_UID,
        SNAPSHOT_TEMPLATE,
        RENDERED,
        STORE,
        STORE_RECORD,
        ACCEPT_STORE,
        ACCEPT_ANOMALY,
        REMOVE_LAST,
        PRUNE_RUN,
        ALLOW_DELETION,
        REPLACE,
        SKIP_FINAL_SNAPSHOT,
        MOVE_LEADER,
        RESTART,
        TEMPLATE,
        PROCESS,
        RESIZE,
        POD_METADATA,
        METADATA,
        VOLUME_SIZE,
        VOLUME_REQUEST,
        ROLE,
        MAY_START_EMPTY,
        STARTED,
        JOINED,
        TLS,
        TRANSPORT,
        CAS,
        ROTATE_CA,
        RENEW,
        EXCHANGED_AT,
        ROTATED_FOR,
        WRITTEN_AT,
        ATTEMPTS_BEFORE,
        REHEARSES,
        GROWTH_ASKED,
        AGENT_IMAGE,
        USER,
    ];

    /// Whether a label or annotation key belongs to us, so that no other writer's value may stand under it.
    pub fn is_own(key: &str) -> bool {
        key.split_once('/').is_some_and(|(domain, _)| domain == super::GROUP)
    }
}

/// Values of [`key::COMPONENT`].
pub mod component {
    /// A member's Pod, claim and what fronts them.
    pub const MEMBER: &str = "etcd-member";
    /// A Job that saves a snapshot, asks a store for one, or probes a store: what may leave the cluster for a store.
    pub const SNAPSHOT_AGENT: &str = "snapshot-agent";
    /// A Job that restores a snapshot in a drill: nothing of it connects to a member.
    pub const SNAPSHOT_DRILL: &str = "snapshot-drill";
    /// A Pod of a user's `CronJob` that asks for snapshots in turn.
    pub const SNAPSHOT_CREATOR: &str = "snapshot-creator";
}

/// Values of [`key::ROLE`].
pub mod role {
    /// Counts for the quorum and serves clients.
    pub const VOTER: &str = "voter";
    /// Receives the log, has no vote, serves no client.
    pub const LEARNER: &str = "learner";
}
