//! Where a cluster's first data comes from, as a user says it, as it is latched, and as it is reported.
//!
//! Decides fields and what CEL refuses. Which attempt is wanted is decided in `plan::cluster::restore`.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use snapshot_agent::contract::{CameAlong, Engine};

use crate::api::agent::Agent;
use crate::api::name::{LocalRef, OBJECT_NAME};
use crate::api::store::{Place, StoredSnapshot};

/// Where the first data comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// Rebuild the first member's data from a snapshot before etcd starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
}

/// Which snapshot to restore: exactly one of `snapshotRef`, `source` and `latest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.snapshotRef), has(self.source), has(self.latest)].exists_one(x, x)").message("restore needs exactly one of snapshotRef, source and latest"))]
pub struct Restore {
    /// An `EtcdSnapshot` of this namespace. One that is not complete yet is waited for. One that is deleted and
    /// made anew meanwhile is not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_ref: Option<LocalRef>,
    /// A stored snapshot by its place; no `EtcdSnapshot` object is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<StoredSnapshot>,
    /// The newest complete snapshot of one cluster in a store. It is looked for once, and written down (`status.latches`)
    /// before anything is restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Latest>,
    /// Secrets of this namespace with the identities (private keys) of age that an encrypted snapshot is read with, at most
    /// 10. Every key of each Secret is an identity file as `age-keygen` writes it. One that fits is enough; a snapshot
    /// that is not encrypted needs none. The operator never reads them; they are mounted into the step that restores, and
    /// may be deleted when the cluster has formed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub identity_secret_refs: Vec<LocalRef>,
    /// Take a raw `.db` file that does not end with etcd's sha256 (a copy of a member's own file). Its structure is proven
    /// all the same; nothing tells whether its values are what they were. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_unverified: bool,
    /// How far the restored cluster's revision is moved on, so that no client is given a revision for the second time with
    /// something else behind it; what was before counts as compacted, so watchers list anew. Default 1000000000; `0` leaves
    /// both out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub revision_bump: Option<i64>,
    /// How the data directory is made. `etcdutl` (default): the snapshot is downloaded and etcdutl copies it, which takes
    /// twice the space. `graft`: it is written once, to its place, and what etcdutl makes of a small database is added to
    /// it as pages; where that cannot be done, etcdutl does it all, and `status.restore` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Engine")]
    pub engine: Option<Engine>,
    /// One attempt may take so many seconds; then it begins anew. Default: no end as long as something moves (20 s without
    /// a byte end it too).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604_800))]
    pub deadline_seconds: Option<u32>,
    /// The Pod that restores, and the one that looks for the latest snapshot. Service account, labels and annotations are
    /// those of the first member's first Pod; a later one goes without. Resources are those of the step that restores
    /// (default: the member's own).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

/// A cluster's snapshots in a store: exactly one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.storeRef), has(self.s3), has(self.azure), has(self.gcs), has(self.pvc)].exists_one(x, x)")
        .message("latest needs exactly one of storeRef, s3, azure, gcs and pvc"),
    validation = Rule::new("!has(self.azure) || has(self.azure.account) || has(self.azure.credentialsSecretRef)")
        .message("azure needs account, or credentialsSecretRef with a Secret that names it")
)]
pub struct Latest {
    /// An `EtcdBackupStore` of this namespace. One that does not exist yet, or that no probe has found usable yet, is
    /// waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_ref: Option<LocalRef>,
    /// The place itself.
    #[serde(flatten)]
    pub place: Place,
    /// Namespace that the snapshots were filed under; default: this cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = OBJECT_NAME))]
    pub namespace: Option<String>,
    /// Name of the cluster that the snapshots were filed under; default: this cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = OBJECT_NAME))]
    pub cluster: Option<String>,
    /// Which of the clusters that had this name: its UID, or the third part of its snapshots' keys. Needed only where the
    /// store holds snapshots of several of them, and they are not one line of restores: the newest may be the empty one
    /// that was made by mistake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 8, max = 64), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$"))]
    pub lineage: Option<String>,
}

impl Latest {
    /// Whether it names exactly one store (CEL refuses everything else at admission).
    pub fn names_a_store(&self) -> bool {
        self.place.is_the_only_one(self.store_ref.as_ref())
    }
}

impl Restore {
    /// Name of the `EtcdBackupStore` that has to be there.
    pub fn store(&self) -> Option<&str> {
        let named = match (&self.source, &self.latest) {
            (Some(source), _) => source.store_ref.as_ref(),
            (None, Some(latest)) => latest.store_ref.as_ref(),
            (None, None) => None,
        };
        named.map(|named| named.name.as_str())
    }
}

/// One restore attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restoring {
    /// UID of the attempt; stands in the volume's identity file.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// Exactly what is restored.
    pub source: StoredSnapshot,
    /// sha256 of the database, where it was known beforehand (from an `EtcdSnapshot`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Name of the `EtcdSnapshot`, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Its UID: another object that gets its name later is not meant. Absent in what an earlier version wrote down.
    #[serde(rename = "snapshotUID", default, skip_serializing_if = "Option::is_none")]
    pub snapshot_uid: Option<String>,
    /// Name of the `EtcdBackupStore`, where `source` was named by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The mark that store has to have, where it is known and no hash tells what is meant.
    #[serde(rename = "storeID", default, skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// Secrets with the identities it is decrypted with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identity_secret_refs: Vec<LocalRef>,
    /// How far the revision is moved on; absent: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_bump: Option<i64>,
    /// Whether a raw file without etcd's sha256 is taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_unverified: bool,
    /// How the data directory is made; absent: by etcdutl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Engine")]
    pub engine: Option<Engine>,
    /// Seconds that an attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
    /// Where the newest was asked for, that it is this one: it is not looked for again while the question is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<Newest>,
    /// How the Pod that restores differs from the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

/// A newest snapshot that was looked for and found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Newest {
    /// Hash of `spec.bootstrap.restore.latest` as it was asked.
    pub question: String,
    /// When the snapshot was taken (RFC 3339).
    pub taken_at: String,
    /// Its revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Whether it was saved without a quorum.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Newer ones that cannot be restored, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}

/// How far a restore has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestorePhase {
    /// It is being found out what is restored, or it is decided and the Pod does not run yet.
    Pending,
    /// The data is being downloaded, proven and rebuilt. The log of the Pod's container `restore` says how far it is.
    Rebuilding,
    /// An attempt has failed, and is made again. `Degraded` says why.
    Failed,
    /// The data is complete, and etcd is starting on it.
    Starting,
    /// The cluster has formed; it is never restored again.
    Formed,
}

/// Lineage of restored data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreStatus {
    /// How far it has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RestorePhase")]
    pub phase: Option<RestorePhase>,
    /// URI of the data object; of its folder, as long as the restore step has not reported, and where the report is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// When the snapshot was taken (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<String>,
    /// `namespace/name` of the cluster it was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_cluster: Option<String>,
    /// Whether it was saved by hand after a quorum was lost: writes that were acknowledged may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Bytes of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_bytes: Option<u64>,
    /// sha256 (hex) of the database: which bytes these are, whatever lies under that name later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The snapshot's revision: what was written after it is not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// How far the revision was moved on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_bump: Option<i64>,
    /// Name of the `EtcdSnapshot`, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What came along beside the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_along: Option<CameAlong>,
    /// What of the contents was not compared with what was recorded when the snapshot was saved, and why. Absent: all of it
    /// was; nothing was ever recorded, as of a raw file; or the report is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
    /// How the data directory was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Engine")]
    pub engine: Option<Engine>,
    /// Why it was made by etcdutl where another way was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<String>,
    /// Newer snapshots than this one that could not be restored, and why, where the newest was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}
