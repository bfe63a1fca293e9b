//! `agent restore` and what comes before it, `agent latest`: requests, and what the latter finds.
//!
//! Decides flags and defaults only.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_INSPECT_DEADLINE_SECONDS, IdentityFlags, StoreFlags};

/// `agent latest`: which snapshot a restore of "the newest one" means, so that it can be written down before anything is
/// restored.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct LatestRequest {
    /// Where to look.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Namespace part of the key.
    #[arg(long)]
    pub namespace: String,
    /// Cluster part of the key.
    #[arg(long)]
    pub cluster: String,
    /// Which of the clusters that had this name: its UID, the first 8 characters of it, or what else stands at that place
    /// of the key (`etcd-...` for what was saved by hand). Absent: there must be no doubt.
    #[arg(long)]
    pub lineage: Option<String>,
    /// Mark that the store has to have (`agent probe` tells it): nothing is looked for in another one. Absent: whichever it
    /// is.
    #[arg(long, value_name = "ID")]
    pub expect_store_id: Option<String>,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = DEFAULT_INSPECT_DEADLINE_SECONDS)]
    pub deadline_seconds: u32,
}

/// What `agent latest` has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatestReport {
    /// The snapshot's folder below the store's prefix.
    pub key: String,
    /// URI of the data object.
    pub uri: String,
    /// sha256 (hex) of the database: with it the key can only ever mean these bytes.
    pub sha256: String,
    /// When it was taken (RFC 3339).
    pub taken_at: String,
    /// The revision of the key space, where it was proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Whether no quorum answered when it was saved, by hand: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Newer ones that cannot be restored, and why; the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}

/// `agent restore`: rebuild one seed member's data directory from one stored snapshot.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreRequest {
    /// Where from.
    #[command(flatten)]
    pub store: StoreFlags,
    /// The snapshot's folder below the store's prefix (the one that holds `manifest.json`), or a raw file of etcdctl's by
    /// its name, which ends with `.db`.
    #[arg(long)]
    pub key: String,
    /// sha256 (hex) that the manifest must record for the database; absent: the manifest's own word is taken.
    #[arg(long)]
    pub expect_sha256: Option<String>,
    /// Mark that the store has to have (`agent probe` tells it): no data is read from another one. Absent: whichever it
    /// is.
    #[arg(long, value_name = "ID")]
    pub expect_store_id: Option<String>,
    /// Folder whose files are all identity files as `age-keygen` writes them (a mounted Secret), to decrypt with; may be
    /// given several times. Read only when the snapshot is encrypted.
    #[arg(long = "age-identity-dir", value_name = "DIR")]
    pub age_identity_dirs: Vec<PathBuf>,
    /// Take a raw `.db` file that does not end with etcd's sha256 (a copy of a member's own file): its structure is proven
    /// then, and nothing tells whether its values are what they were.
    #[arg(long)]
    pub allow_unverified: bool,
    /// How far the revision is moved on, so that none that a client has seen is given again to something else; what was
    /// before counts as compacted, so that watchers list anew instead of waiting (etcd issue 16028, Kubernetes issue
    /// 118501). 0: it stays.
    #[arg(long, default_value_t = DEFAULT_REVISION_BUMP, value_parser = clap::value_parser!(u64).range(..=1_000_000_000_000))]
    pub revision_bump: u64,
    /// Folder that holds the member's data directory (the volume's mount point).
    #[arg(long)]
    pub volume: PathBuf,
    /// `etcdutl` of the target version.
    #[arg(long, default_value = "/usr/local/bin/etcdutl")]
    pub etcdutl: PathBuf,
    /// How the data directory is made of the snapshot.
    #[arg(long, value_enum, default_value_t)]
    pub engine: Engine,
    /// Who this volume belongs to; written beside the data and checked by the gate.
    #[command(flatten)]
    pub identity: IdentityFlags,
    /// UID of this restore attempt.
    #[arg(long)]
    pub restore_uid: String,
    /// `name=peerURL` of the only member the rebuilt data names.
    #[arg(long)]
    pub initial_cluster: String,
    /// File with the Pod's annotations (a downward API volume). An empty volume is filled only while
    /// holdfast.dev/may-start-empty there names the claim, and neither holdfast.dev/started nor holdfast.dev/joined says that
    /// the member has served: a seed that was emptied since must never be restored again. Absent (by
    /// hand): no such check.
    #[arg(long)]
    pub annotations: Option<PathBuf>,
    /// Restore nothing whose users have to log in: who will run the cluster has no credentials of theirs, and without them
    /// no member can ever be added to it.
    #[arg(long)]
    pub refuse_auth: bool,
    /// The quota of the etcd that is to run on it, in bytes (its flag of the same name): restore nothing that it would take
    /// no write into. Absent, or 0: whatever its size.
    #[arg(long)]
    pub quota_backend_bytes: Option<u64>,
    /// Give up after so many seconds in all; absent: only --stall-seconds counts.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub deadline_seconds: Option<u32>,
    /// Give up when nothing has moved for this many seconds, so that the reason shows early.
    #[arg(long, default_value_t = DEFAULT_RESTORE_STALL_SECONDS)]
    pub stall_seconds: u32,
}

/// How a data directory is made of a snapshot. Both give the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The snapshot is downloaded and etcdutl copies it: twice its space, written twice.
    #[default]
    Etcdutl,
    /// The snapshot is written once, to its place, and etcdutl restores a small database; what is new in that one is
    /// added to the large one as pages: the space once, and less time. Where that cannot be done, etcdutl does it all,
    /// and the report says so.
    Graft,
}

impl Engine {
    /// The flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Etcdutl => "etcdutl",
            Self::Graft => "graft",
        }
    }
}

/// More than a cluster writes between a snapshot and the disaster: at 10,000 a second it takes a day.
pub const DEFAULT_REVISION_BUMP: u64 = 1_000_000_000;

/// 20 s without a byte: the reason is then in the cluster's status within 30 s (I22).
pub const DEFAULT_RESTORE_STALL_SECONDS: u32 = 20;
