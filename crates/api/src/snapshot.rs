//! `EtcdSnapshot`: one backup, made once; terminal phases are final (I18).
//!
//! Decides fields, defaults and what CEL refuses.

use holdfast_contract::{AskMembers, Compression, Level, Verify};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::backup_store::StoreRecord;
use crate::blocked_pod::BlockedPod;
use crate::name::{LocalRef, OBJECT_NAME};
use crate::store::Destination;

/// One backup of one etcd cluster, saved once.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "EtcdSnapshot",
    plural = "etcdsnapshots",
    shortname = "etcdsnap",
    category = "etcd",
    namespaced,
    status = "EtcdSnapshotStatus",
    derive = "PartialEq",
    selectable = ".spec.clusterRef.name",
    selectable = ".status.phase",
    doc = "One backup of one etcd cluster, saved once. The phases Complete and Failed are final.",
    printcolumn(name = "CLUSTER", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "PHASE", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "REVISION", type_ = "integer", json_path = ".status.artifact.revision"),
    printcolumn(
        name = "SIZE",
        type_ = "string",
        json_path = ".status.artifact.size",
        description = "size of the database"
    ),
    printcolumn(
        name = "VERIFIED",
        type_ = "string",
        json_path = ".status.verification.level",
        description = "level of proof: HashKV (members agree), Structure, Trailer"
    ),
    printcolumn(name = "COMPLETED", type_ = "date", json_path = ".status.completedAt"),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "STORE", type_ = "string", json_path = ".status.store.name", priority = 1),
    printcolumn(name = "MEMBER", type_ = "string", json_path = ".status.source.member", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    // Whatever is added to the spec is mutable until it stands here; a test compares.
    validation = Rule::new("has(self.clusterRef) == has(oldSelf.clusterRef) && (!has(self.clusterRef) || self.clusterRef == oldSelf.clusterRef) && has(self.external) == has(oldSelf.external) && (!has(self.external) || self.external == oldSelf.external) && has(self.run) == has(oldSelf.run) && (!has(self.run) || self.run == oldSelf.run) && has(self.destination) == has(oldSelf.destination) && (!has(self.destination) || self.destination == oldSelf.destination) && has(self.compression) == has(oldSelf.compression) && (!has(self.compression) || self.compression == oldSelf.compression) && has(self.verify) == has(oldSelf.verify) && (!has(self.verify) || self.verify == oldSelf.verify) && has(self.askMembers) == has(oldSelf.askMembers) && (!has(self.askMembers) || self.askMembers == oldSelf.askMembers) && has(self.encryption) == has(oldSelf.encryption) && (!has(self.encryption) || self.encryption == oldSelf.encryption) && has(self.spool) == has(oldSelf.spool) && (!has(self.spool) || self.spool == oldSelf.spool) && has(self.minimumThroughput) == has(oldSelf.minimumThroughput) && (!has(self.minimumThroughput) || self.minimumThroughput == oldSelf.minimumThroughput) && has(self.deadlineSeconds) == has(oldSelf.deadlineSeconds) && (!has(self.deadlineSeconds) || self.deadlineSeconds == oldSelf.deadlineSeconds) && has(self.agent) == has(oldSelf.agent) && (!has(self.agent) || self.agent == oldSelf.agent)")
        .message("the spec of a snapshot is immutable, except for hold and deletionPolicy: create another EtcdSnapshot"),
    validation = Rule::new("has(self.clusterRef) != has(self.external)")
        .message("a snapshot needs exactly one of clusterRef and external"),
    validation = Rule::new("!has(self.run) || !has(self.deletionPolicy) || self.deletionPolicy == 'Retain'")
        .message("deletionPolicy: a record of a schedule's run has Retain only; spec.retention of the schedule removes its snapshot")
)]
pub struct EtcdSnapshotSpec {
    /// `EtcdCluster` to back up. The snapshot waits until the cluster exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<LocalRef>,
    /// An etcd that Holdfast does not run, to back up instead of `clusterRef`. The keys of its snapshots begin with
    /// `<namespace>/external/etcd-<cluster ID>/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// Run of an `EtcdSnapshotSchedule` that this snapshot records. Holdfast sets this field; it reads the run, and starts
    /// no Job that saves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Whether the stored snapshot stays whatever the retention of its schedule says. May be changed at any time; a Job that
    /// removes snapshots and has started goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// Whether the stored snapshot goes with this object. `Retain` (default): the snapshot stays in the store. `Delete`: the
    /// deletion of this object waits up to 10 minutes for the removal of the snapshot, and leaves a snapshot that is held,
    /// locked, being restored, or the last proven snapshot of its cluster. May be changed at any time, also during the deletion.
    /// Not for records of a schedule's runs, whose retention decides.
    #[serde(default, skip_serializing_if = "DeletionPolicy::is_retain")]
    pub deletion_policy: DeletionPolicy,
    /// Source, destination and form of the snapshot.
    #[serde(flatten)]
    pub template: SnapshotTemplate,
}

/// The fate of the stored snapshot when its object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The snapshot stays in the store.
    #[default]
    Retain,
    /// The snapshot goes with the object.
    Delete,
}

impl DeletionPolicy {
    /// Serde takes a reference.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    const fn is_retain(&self) -> bool {
        matches!(self, Self::Retain)
    }
}

/// A Job of a schedule's `CronJob`, which runs whether the operator runs or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Name of the Job.
    #[schemars(length(min = 1, max = 63), regex(pattern = OBJECT_NAME))]
    pub job: String,
    /// UID of the Job.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// Creation of the Job, or begin of the save for a run whose Job was gone (RFC 3339).
    #[schemars(length(max = 40))]
    pub started_at: String,
}

/// Destination and form of a snapshot; everything but its source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotTemplate {
    /// Store for the backup: exactly one of `storeRef`, `s3`, `azure`, `gcs` and `pvc`.
    pub destination: Destination,
    /// Compression: `zstd` (default), `gzip` or `none`.
    #[serde(default)]
    pub compression: Compression,
    /// `Stored` (default): the agent reads the stored object back and compares the bytes before publishing the
    /// snapshot. `Stream`: the agent proves the bytes from etcd, and trusts the store.
    #[serde(default)]
    pub verify: Verify,
    /// Members that compute their HashKV at the snapshot's revision, for comparison with the snapshot. `Auto`
    /// (default): the source member, and below 1 GiB of database a second voter; no leader from 1 GiB up. `Always`: the
    /// source member and a second voter, each of which delays writes by 0.1 to 0.9 s for each GiB. `Never`: no member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_members: Option<AskMembers>,
    /// Encryption of the snapshot inside the agent's Pod, before the upload. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// Volume that buffers the snapshot for a slow store, so that etcd streams at full speed: etcd cannot free deleted
    /// data during the stream. Default: no buffer; the stream waits for the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<Spool>,
    /// Minimum rate of the stream from etcd in bytes per second, as a quantity; default 512Ki, `0` disables the limit.
    /// A snapshot that is slower for a minute fails, because etcd cannot free deleted data during the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity('0')) >= 0").message("minimumThroughput must not be negative"))]
    pub minimum_throughput: Option<Quantity>,
    /// Time limit of the Job in seconds, 10 to 86400; default 3600. In a schedule with a period of 30 to 65 minutes
    /// the default ends a run before the next one is due: Kubernetes skips a run while the one before is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 86400))]
    pub deadline_seconds: Option<u32>,
    /// Settings of the agent's Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

/// Folder of the snapshots of an [`External`] etcd, in the place of a cluster's name.
pub const EXTERNAL: &str = "external";

/// An etcd that Holdfast does not run, and its connection settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.tlsSecretRef) && !has(self.serverName) || self.endpoints.exists(e, e.startsWith('https://'))").message("tlsSecretRef and serverName need an https:// endpoint: change the endpoints, or leave both fields out"))]
pub struct External {
    /// Client URLs of the members, `https://HOST:PORT` or `http://HOST:PORT`, 1 to 16. The agent reads from a healthy
    /// follower.
    #[schemars(
        length(min = 1, max = 16),
        inner(length(min = 1, max = 300), regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+:[0-9]{1,5}$"))
    )]
    pub endpoints: Vec<String>,
    /// Name that the servers' certificates must contain. Default: the endpoint's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9.:-]+$"))]
    pub server_name: Option<String>,
    /// Secret in this namespace with the key `ca.crt` (the CA to trust; default: the public CAs) and, for an etcd that
    /// requires a client certificate, `tls.crt` and `tls.key`. kubelet mounts the Secret into the agent's Pod; the
    /// operator never reads the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_secret_ref: Option<LocalRef>,
    /// Secret in this namespace with the keys `username` and `password`, for an etcd with authentication; the user
    /// needs the role root. kubelet mounts the Secret into the agent's Pod; the operator never reads the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_secret_ref: Option<LocalRef>,
}

/// Volume of an agent's Pod: the buffer of a snapshot for a slow store, or the data of a rehearsal. The volume exists as
/// long as the Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spool {
    /// Size of the volume, at least 64Mi. For the buffer of a snapshot ideally the size of the compressed snapshot: while
    /// the volume is full, the stream waits. For a rehearsal twice the size of the database.
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity('64Mi')) >= 0").message("the size must be at least 64Mi"))]
    pub size: Quantity,
    /// StorageClass of the volume. Default: an `emptyDir` of this size on the node's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub storage_class_name: Option<String>,
}

/// Encryption of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// age with X25519 keys: `age -d` decrypts the snapshot without Holdfast.
    pub age: Age,
}

/// Recipients that can decrypt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Age {
    /// Public keys (`age1...`, as `age-keygen -y` prints them), 1 to 10. The identity of each key alone can decrypt;
    /// the agent that saves cannot. Without an identity the data is lost: keep the identities outside this Kubernetes
    /// cluster.
    #[schemars(length(min = 1, max = 10), inner(length(min = 62, max = 62), regex(pattern = r"^age1[0-9a-z]+$")))]
    pub recipients: Vec<String>,
}

/// Phase of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Waits for the cluster or the store.
    #[default]
    Pending,
    /// The Job exists.
    Running,
    /// Stored and published. Final.
    Complete,
    /// Failed; nothing was published. Final.
    Failed,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Complete, Self::Failed];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Complete => "Complete",
            Self::Failed => "Failed",
        }
    }

    /// Whether nothing changes any more (I18).
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}

/// State that the operator last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdSnapshotStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Phase: `Pending`, `Running`, `Complete` or `Failed`.
    #[serde(default)]
    pub phase: Phase,
    /// Creation of the Job (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Time of completion or failure (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// Number of Pods that tried.
    #[serde(default)]
    pub attempts: i32,
    /// The cause that keeps the Pods of the Job that saves the snapshot, or asks the store for the snapshot, from running. Absent
    /// while a Pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up: Option<BlockedPod>,
    /// Name of the Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// UID of the `EtcdCluster` at the start; the snapshot never saves a later cluster of the same name. Written once.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// The `EtcdBackupStore` of `spec.destination.storeRef` as recorded at the start; the snapshot stays at this
    /// location when the store moves. Written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreRecord>,
    /// Source of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The stored snapshot. Written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Level of proof of the stored snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Removal of the stored snapshot, while this object is being deleted with `deletionPolicy: Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<Removal>,
    /// Error of a failed snapshot. In phase `Running`: error of the save, while the store has not yet answered whether
    /// the snapshot exists anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// `Ready`, and `Verified` when the snapshot is complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A removal of the stored snapshot. The operator writes it before it looks for restores that read the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// Name of the Job that removes the snapshot.
    pub job: String,
    /// Time of the decision (RFC 3339). The Job removes nothing more than 30 minutes later.
    pub latched_at: String,
}

/// Member that a snapshot came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Name of the member.
    pub member: String,
    /// etcd's member ID, hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// etcd's cluster ID, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
}

/// The stored snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// URI of the data object, without credentials.
    pub uri: String,
    /// Folder below the destination's prefix or subPath; the value for `bootstrap.restore.source.key`.
    pub key: String,
    /// Size of the database in bytes.
    pub db_bytes: u64,
    /// Size of the database, readable (`1.2 GiB`).
    pub size: String,
    /// Size of the stored object in bytes.
    pub stored_bytes: u64,
    /// sha256 of the database, hexadecimal; equals etcd's own trailer.
    pub sha256: String,
    /// sha256 of the snapshot's manifest.json, hexadecimal, for `holdfast agent remove`; absent for snapshots of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_sha256: Option<String>,
    /// Revision of the key space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Compaction revision: older history is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_revision: Option<i64>,
    /// Number of keys at `revision`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<i64>,
    /// etcd's HashKV at `revision`, as `etcdctl endpoint hashkv` shows the hash.
    #[serde(default, rename = "hashKV", skip_serializing_if = "Option::is_none")]
    pub hash_kv: Option<i64>,
    /// Compression of the object.
    pub compression: Compression,
    /// Whether the object is encrypted; a restore then needs `identitySecretRefs`.
    #[serde(default)]
    pub encrypted: bool,
    /// Whether authentication is on: no EtcdCluster can be restored from the snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auth_enabled: bool,
    /// End of the S3 Object Lock, RFC 3339. Until then the store refuses to remove the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    /// The member's etcd version.
    pub etcd_version: String,
    /// Storage version of the data (3.6 and later).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
}

/// Level of proof of a snapshot before its publication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// `Trailer`: the bytes are those that etcd sent. `Structure`: the database is sound. `HashKV`: live members have
    /// the same key space.
    pub level: Level,
    /// Members with an equal HashKV.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agreed_by: Vec<String>,
    /// Whether the agent read equal bytes back from the store.
    #[serde(default)]
    pub read_back: bool,
    /// Result, or why the proof ends at this level.
    pub message: String,
}

/// Error of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Class: `Config`, `Denied`, `NotFound`, `Corrupt`, `Transient`, `Full`, `Deadline`, `Refused`, or `Crashed` when
    /// the agent ended without a report.
    pub class: String,
    /// Origin of the error, if the runbook depends on the origin: `Request`, `Store`, `Volume`, `Etcd` or `Own`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Problem and remedy.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;

    #[test]
    fn everything_but_hold_and_the_deletion_policy_is_immutable() {
        let crd = serde_json::to_value(EtcdSnapshot::crd()).unwrap();
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let rules = spec["x-kubernetes-validations"].to_string();
        for field in spec["properties"].as_object().unwrap().keys() {
            let listed = rules.contains(&format!("(!has(self.{field}) || self.{field} == oldSelf.{field})"));
            assert_eq!(listed, !["hold", "deletionPolicy"].contains(&field.as_str()), "{field}");
        }
    }
}
