//! `EtcdSnapshot`: one backup, made once; terminal phases are final (I18).
//!
//! Decides fields, defaults and what CEL refuses.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use snapshot_agent::contract::{AskMembers, Compression, Level, Verify};

use crate::api::agent::Agent;
use crate::api::backup_store::StoreRecord;
use crate::api::held::HeldUp;
use crate::api::name::{LocalRef, OBJECT_NAME};
use crate::api::store::Destination;

/// One backup of one etcd cluster, made once.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
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
    doc = "One backup of one etcd cluster, made once. Terminal phases are final.",
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
        description = "how far it is proven: HashKV (members agree), Structure, Trailer"
    ),
    printcolumn(name = "COMPLETED", type_ = "date", json_path = ".status.completedAt"),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "URI", type_ = "string", json_path = ".status.artifact.uri", priority = 1),
    printcolumn(name = "MEMBER", type_ = "string", json_path = ".status.source.member", priority = 1),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self == oldSelf")
        .message("a snapshot is made once: its spec is immutable; create another EtcdSnapshot"),
    validation = Rule::new("has(self.clusterRef) != has(self.external)")
        .message("a snapshot needs exactly one of clusterRef and external")
)]
pub struct EtcdSnapshotSpec {
    /// The cluster to back up. One that does not exist yet is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<LocalRef>,
    /// An etcd that Holdfast does not run, to back up in the place of a cluster. Its snapshots are filed under
    /// `<namespace>/external/etcd-<cluster ID>/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// Where the backup goes: exactly one of `storeRef`, `s3`, `azure`, `gcs` and `pvc`.
    pub destination: Destination,
    /// `zstd` (default), `gzip` or `none`.
    #[serde(default)]
    pub compression: Compression,
    /// `Stored` (default): the store has to give back what it was given before the snapshot is published. `Stream`: what
    /// came from etcd is proven, and the store is believed.
    #[serde(default)]
    pub verify: Verify,
    /// Which members compute their HashKV of the snapshot's revision, to compare it with the snapshot's. `Auto` (default):
    /// the source member, and below 1 GiB of database a second voter; no leader from 1 GiB up. `Always`: the source member
    /// and a second voter; the writes of each wait while it hashes, 0.1 to 0.9 s for each GiB. `Never`: no member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_members: Option<AskMembers>,
    /// Encrypt what is stored, before it leaves the agent's Pod. Default: it is not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// A volume on which the snapshot waits for a slow store, so that etcd is let go at its own speed: while it streams,
    /// etcd keeps everything that is deleted. Default: the stream waits for the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<Spool>,
    /// Bytes a second that have to come from etcd, as a quantity; default 512Ki, `0` turns it off. A snapshot that is slower
    /// for a minute fails: while it streams, etcd keeps everything that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity('0')) >= 0").message("minimumThroughput must not be negative"))]
    pub minimum_throughput: Option<Quantity>,
    /// Seconds the Job may take; default 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 86400))]
    pub deadline_seconds: Option<u32>,
    /// The agent's Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

/// What snapshots of an [`External`] etcd are filed under, where a cluster has its name.
pub const EXTERNAL: &str = "external";

/// An etcd that Holdfast does not run, and how to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.tlsSecretRef) && !has(self.serverName) || self.endpoints.exists(e, e.startsWith('https://'))").message("tlsSecretRef and serverName are for https: write https:// in front of the endpoints, or leave them out"))]
pub struct External {
    /// Client URLs of the members, `https://HOST:PORT` or `http://HOST:PORT`, 1 to 16; the agent picks a healthy follower.
    #[schemars(
        length(min = 1, max = 16),
        inner(length(min = 1, max = 300), regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+:[0-9]{1,5}$"))
    )]
    pub endpoints: Vec<String>,
    /// Name that the servers' certificates have to be for; default: the endpoint's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9.:-]+$"))]
    pub server_name: Option<String>,
    /// Secret of this namespace with the key `ca.crt` (the CA to trust; absent: the public ones) and, for an etcd that asks
    /// for a client certificate, `tls.crt` and `tls.key`. The operator never reads it; it is mounted into the agent's Pod
    /// as files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_secret_ref: Option<LocalRef>,
    /// Secret of this namespace with the keys `username` and `password`, for an etcd with authentication: a snapshot
    /// needs a user with the role root. The operator never reads it; it is mounted into the agent's Pod as files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_secret_ref: Option<LocalRef>,
}

/// Where a snapshot waits for a slow store. It goes with the agent's Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spool {
    /// Size of the volume, at least 64Mi; best as much as the compressed snapshot takes. When it is full, the stream waits.
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity('64Mi')) >= 0").message("spool.size must be at least 64Mi"))]
    pub size: Quantity,
    /// Storage class of the volume; default: the node's disk (an `emptyDir` with this limit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub storage_class_name: Option<String>,
}

/// How what is stored is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// With age, for X25519 keys: `age -d` decrypts it without Holdfast.
    pub age: Age,
}

/// Who can decrypt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Age {
    /// Public keys (`age1...`, as `age-keygen -y` prints them), 1 to 10. Each one's identity alone can decrypt; whoever
    /// saves cannot. Without any of the identities the data is lost: keep them elsewhere than in this Kubernetes cluster.
    #[schemars(length(min = 1, max = 10), inner(length(min = 62, max = 62), regex(pattern = r"^age1[0-9a-z]+$")))]
    pub recipients: Vec<String>,
}

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Waiting for what it names.
    #[default]
    Pending,
    /// Its Job exists.
    Running,
    /// Stored and published. Final.
    Complete,
    /// Given up; nothing was published. Final.
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

/// What the operator has observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdSnapshotStatus {
    /// The generation of the spec this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Pending`, `Running`, `Complete` or `Failed`.
    #[serde(default)]
    pub phase: Phase,
    /// When its Job was made (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it was complete or given up (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// Pods that were tried.
    #[serde(default)]
    pub attempts: i32,
    /// What keeps the Pods of the Job that saves the snapshot, or asks the store for the snapshot, from running; absent while a Pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up: Option<HeldUp>,
    /// Its Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// UID of the `EtcdCluster` that it was begun for: another one that gets the name later is not saved in its stead.
    /// Written once.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// The `EtcdBackupStore` that `spec.destination.storeRef` names, as it was when the snapshot was made: what is saved is
    /// there, wherever the store is now. Written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreRecord>,
    /// Where the data came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// What was stored. Written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// How far what is stored is proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Why it failed. While the phase is `Running`: how saving failed, where only the store knows whether the snapshot is
    /// there all the same, and has not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// `Ready`, and `Verified` once it is complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The member a snapshot came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Its name.
    pub member: String,
    /// Its ID, hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// etcd's cluster ID, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
}

/// What was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// URI of the data object, without credentials.
    pub uri: String,
    /// Folder below the destination's prefix or subPath, as `bootstrap.restore.source.key` takes it.
    pub key: String,
    /// Bytes of the database.
    pub db_bytes: u64,
    /// The same for people (`1.2 GiB`).
    pub size: String,
    /// Bytes of the stored object.
    pub stored_bytes: u64,
    /// sha256 of the database, hexadecimal, as etcd's own trailer has it.
    pub sha256: String,
    /// The revision of the key space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The revision below which history is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_revision: Option<i64>,
    /// Keys that exist at that revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<i64>,
    /// etcd's HashKV at that revision, as `etcdctl endpoint hashkv` shows it.
    #[serde(default, rename = "hashKV", skip_serializing_if = "Option::is_none")]
    pub hash_kv: Option<i64>,
    /// How it is compressed.
    pub compression: Compression,
    /// Whether it is encrypted: then a restore needs `identitySecretRefs`.
    #[serde(default)]
    pub encrypted: bool,
    /// Until when the store keeps it from being removed, RFC 3339 (S3 Object Lock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    /// The member's etcd version.
    pub etcd_version: String,
    /// Storage version of the data (3.6 and later).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
}

/// How far a snapshot was proven before it was published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// `Trailer`: the bytes are those that etcd sent. `Structure`: they are a sound database. `HashKV`: live members have
    /// the same key space.
    pub level: Level,
    /// Members whose HashKV was equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agreed_by: Vec<String>,
    /// Whether the store gave back what it was given.
    #[serde(default)]
    pub read_back: bool,
    /// What was found, or why it is not proven further.
    pub message: String,
}

/// Why a snapshot failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The class: `Config`, `Denied`, `NotFound`, `Corrupt`, `Transient`, `Full`, `Deadline`, `Refused`, or
    /// `Crashed` where the agent ended without saying why.
    pub class: String,
    /// The origin, where the runbook depends on it: `Request`, `Store`, `Volume`, `Etcd`, `Own`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// What happened and what to do.
    pub message: String,
}
