//! Where a cluster's first data comes from, as a user says it, as it is latched, and as it is reported.
//!
//! Decides fields and what CEL refuses. Which attempt is wanted is decided in `plan::cluster::restore`.

use std::fmt;

use holdfast_contract::{CameAlong, Engine, Point, PointProof, PointReport};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::name::{LocalRef, OBJECT_NAME};
use crate::store::{Place, StoredSnapshot};

/// Source of the initial data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// Restore that rebuilds the first member's data from a snapshot before etcd starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
}

/// Snapshot to restore: exactly one of `snapshotRef`, `source` and `latest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.snapshotRef), has(self.source), has(self.latest)].exists_one(x, x)").message("restore needs exactly one of snapshotRef, source and latest"))]
pub struct Restore {
    /// `EtcdSnapshot` in this namespace. The cluster waits until the snapshot is complete, and does not use an object
    /// that was deleted and created again meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_ref: Option<LocalRef>,
    /// Stored snapshot by its store and key; no `EtcdSnapshot` is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<StoredSnapshot>,
    /// Newest complete snapshot of one cluster in a store. The operator searches once, and writes the result to
    /// `status.latches` before the restore starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Latest>,
    /// Point in time up to which the log of the snapshot's lineage is added. The restore step begins with the newest snapshot
    /// before the point if `latest` is given, and with the named snapshot otherwise. Default: the snapshot itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<RestorePoint>,
    /// Secrets in this namespace with age identities (private keys) to decrypt an encrypted snapshot, at most 10; a
    /// single matching identity is enough. Every key of a Secret has to be an identity file as `age-keygen` writes. The
    /// operator never reads the Secrets; you may delete them when the cluster has formed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub identity_secret_refs: Vec<LocalRef>,
    /// Whether to accept a raw `.db` file without etcd's sha256 at its end (a copy of a member's own file), and a folder
    /// whose manifest names another key (the folder was moved). The agent checks the structure, but cannot detect changed
    /// values of a raw file, nor an exchanged folder. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_unverified: bool,
    /// Number to add to the revision, so that etcd never assigns a revision twice. Earlier revisions count as
    /// compacted, so watchers list again. Default 1000000000, at most 1000000000000; `0` adds and compacts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub revision_bump: Option<i64>,
    /// How the agent builds the data directory. `graft` (default): writes the snapshot once, and appends the pages that
    /// etcdutl changed in a small database; if that fails, etcdutl restores and `status.restore` says why. `etcdutl`:
    /// downloads the snapshot, then copies the file with etcdutl, which needs twice the time and space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Engine")]
    pub engine: Option<Engine>,
    /// Time limit of one attempt in seconds, 1 to 604800; afterwards a new attempt starts. Default: no limit. Without a
    /// single byte for 20 s an attempt ends in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604_800))]
    pub deadline_seconds: Option<u32>,
    /// Settings of the Pods that restore and that search for the latest snapshot. In the first member, ServiceAccount,
    /// labels and annotations apply to the first Pod only, and resources to the restore container (default: the
    /// member's resources).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

/// A point in the log: exactly one of `revision` and `time`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.revision) != has(self.time)").message("at needs exactly one of revision and time"))]
pub struct RestorePoint {
    /// The last revision of the restored key space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub revision: Option<i64>,
    /// Time in RFC 3339, such as `2026-11-28T10:42:07Z`: the newest revision that the log had received by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 20, max = 40))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$')").message("at.time needs a date, a time with seconds and an offset, such as 2026-11-28T10:42:07Z or 2026-11-28T12:42:07+02:00"))]
    pub time: Option<String>,
    /// Whether to restore although users or roles changed between the snapshot and the point: the log does not hold them, so the
    /// cluster has those of the snapshot. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_auth_changed: bool,
}

impl RestorePoint {
    /// Returns the point; an error has the reason, as a sentence about the fields.
    pub fn parse(&self) -> Result<Point, String> {
        match (self.revision, &self.time) {
            (Some(revision), None) if revision > 0 => Ok(Point::Revision(revision)),
            (Some(revision), None) => Err(format!("revision {revision} is not above 0")),
            (None, Some(time)) => time
                .parse()
                .map(Point::Time)
                .map_err(|_| format!("time {time:?} is not a time in RFC 3339, such as 2026-11-28T10:42:07Z")),
            (None, None) | (Some(_), Some(_)) => Err("needs exactly one of revision and time".to_owned()),
        }
    }
}

impl fmt::Display for RestorePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.revision, &self.time) {
            (Some(revision), _) => write!(f, "revision {revision}"),
            (None, time) => f.write_str(time.as_deref().unwrap_or_default()),
        }
    }
}

/// Snapshots of one cluster in exactly one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.storeRef), has(self.s3), has(self.azure), has(self.gcs), has(self.pvc)].exists_one(x, x)")
        .message("latest needs exactly one of storeRef, s3, azure, gcs and pvc"),
    validation = Rule::new("!has(self.azure) || has(self.azure.account) || has(self.azure.credentialsSecretRef)")
        .message("azure needs account, or credentialsSecretRef with a Secret that has the key accountName")
)]
pub struct Latest {
    /// `EtcdBackupStore` in this namespace. The cluster waits until the store exists and a probe has found the store
    /// usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_ref: Option<LocalRef>,
    /// Location of the store.
    #[serde(flatten)]
    pub place: Place,
    /// Namespace in the snapshots' keys. Default: the namespace of this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = OBJECT_NAME))]
    pub namespace: Option<String>,
    /// Cluster name in the snapshots' keys. Default: the name of this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = OBJECT_NAME))]
    pub cluster: Option<String>,
    /// Lineage to search: a cluster's UID, or the third part of the snapshots' keys. Set this field only when the store
    /// holds snapshots of several clusters of this name that are not one line of restores: the newest may be an empty
    /// cluster, created by mistake.
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

/// One restore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restoring {
    /// Restore UID; also in the volume's identity file.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// Snapshot to restore; the lineage, if `latest` is given with `at`; the claim, for `survivor`.
    pub source: StoredSnapshot,
    /// Name of the `EtcdMember` whose claim `source` names: the data is that of its volume, and no snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivor: Option<String>,
    /// Point up to which the log is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<RestorePoint>,
    /// sha256 of the database, if known beforehand (by `snapshotRef` or `latest`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Name of the `EtcdSnapshot`, for `snapshotRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// UID of that `EtcdSnapshot`; a later object of the same name is not used. Absent in entries of earlier versions.
    #[serde(rename = "snapshotUID", default, skip_serializing_if = "Option::is_none")]
    pub snapshot_uid: Option<String>,
    /// Name of the `EtcdBackupStore`, for `storeRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Store ID that the store must have; set when the ID is known and no sha256 identifies the snapshot.
    #[serde(rename = "storeID", default, skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// Secrets with the age identities for decryption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identity_secret_refs: Vec<LocalRef>,
    /// Number to add to the revision; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_bump: Option<i64>,
    /// Whether to accept a raw file without etcd's sha256, and a folder whose manifest names another key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_unverified: bool,
    /// Engine that builds the data directory; absent: graft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Engine")]
    pub engine: Option<Engine>,
    /// Time limit of one attempt in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
    /// Result of the search for `latest`. The operator does not search again while `latest` stays unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<Newest>,
    /// Settings of the Pod that restores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

/// Result of a search for the newest snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Newest {
    /// Hash of `spec.bootstrap.restore.latest` at the time of the search, and of whether the lineage was asked for.
    pub question: String,
    /// When the snapshot was taken (RFC 3339).
    pub taken_at: String,
    /// Revision of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Whether no quorum answered during the save.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Newer snapshots that cannot be restored, with the causes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}

/// Phase of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestorePhase {
    /// The operator is selecting the snapshot, or the Pod does not run yet.
    Pending,
    /// The agent downloads and verifies the snapshot, and builds the data directory. The log of the Pod's container
    /// `restore` shows the progress.
    Rebuilding,
    /// An attempt has failed, and another attempt follows. `Degraded` has the cause.
    Failed,
    /// The data is complete, and etcd is starting.
    Starting,
    /// The cluster has formed; the operator never restores this cluster again.
    Formed,
}

/// The point of a restore, and how the log reached it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PointStatus {
    /// The requested time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The restored revision; the requested one before the restore step has reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Revision of the snapshot from which the log continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_revision: Option<i64>,
    /// Records of the log that were added to the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Segments of the log that were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// `HashKV`: the hash equals that of a live member at this revision. `Chained`: the snapshot is proven, no revision is
    /// missing, and each segment has its checksum; no member was asked at this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PointProof")]
    pub proof: Option<PointProof>,
    /// Number of leases whose time to live the log does not name; they end after one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_leases: Option<u64>,
    /// For a requested time: the latest time before it at which etcd is known to have had the restored revision (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_at: Option<String>,
    /// For a requested time: the next known time, at which etcd had a later revision (RFC 3339). The log does not say when
    /// between both the changes were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
}

impl PointStatus {
    /// Returns the requested point.
    pub fn requested(at: &RestorePoint) -> Self {
        Self { time: at.time.clone(), revision: at.revision, ..Self::default() }
    }

    /// Returns the result of the restore step.
    pub fn reported(report: &PointReport) -> Self {
        let time = match report.asked {
            Point::Revision(_) => None,
            Point::Time(time) => Some(time.to_string()),
        };
        Self {
            time,
            revision: Some(report.revision),
            base_revision: Some(report.base_revision),
            records: Some(report.records),
            segments: Some(report.segments),
            proof: Some(report.proof),
            unknown_leases: Some(report.unknown_leases).filter(|count| *count > 0),
            known_at: report.known_at.map(|at| at.to_string()),
            changed_by: report.changed_by.map(|at| at.to_string()),
        }
    }
}

/// Source and progress of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreStatus {
    /// Phase of the restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RestorePhase")]
    pub phase: Option<RestorePhase>,
    /// URI of the data object; URI of its folder before the restore step has reported, or when the report is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// When the snapshot was taken (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<String>,
    /// `namespace/name` of the snapshot's cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_cluster: Option<String>,
    /// Whether the snapshot was saved by hand after a quorum was lost: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Size of the database in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_bytes: Option<u64>,
    /// sha256 (hex) of the restored database; identifies the bytes even if the stored object changes later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Revision of the snapshot, or of the point in time; later writes are not in the restored cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The point in time, and how the log reached it. `uri`, `takenAt` and `sha256` are those of the snapshot before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<PointStatus>,
    /// Number added to the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_bump: Option<i64>,
    /// Name of the `EtcdSnapshot`, for `snapshotRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Data in the snapshot beside the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_along: Option<CameAlong>,
    /// Contents that the agent could not compare with the snapshot's manifest, and the cause. Absent after a full
    /// comparison, for a raw file (no manifest exists), and when the report is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
    /// Engine that built the data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Engine")]
    pub engine: Option<Engine>,
    /// Why etcdutl built the data directory instead of the requested engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<String>,
    /// For `latest`: newer snapshots that could not be restored, with the causes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}
