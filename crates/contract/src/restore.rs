//! `agent restore`, and `agent latest`, which comes before it: requests, and the report of the latter.
//!
//! This file decides flags and defaults only.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use clap::builder::ArgPredicate;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_INSPECT_DEADLINE_SECONDS, IdentityFlags, StoreFlags};

/// `agent latest`: find the newest snapshot, so that the key can be recorded before a restore starts.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LatestRequest {
    /// Store to search.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Namespace in the key.
    #[arg(long)]
    pub namespace: String,
    /// Cluster in the key.
    #[arg(long)]
    pub cluster: String,
    /// Lineage to search: the cluster's UID, its first 8 characters, or the third part of the key (`etcd-...` for
    /// snapshots that were saved by hand). Default: all; the search fails when the lineage is not clear.
    #[arg(long)]
    pub lineage: Option<String>,
    /// Store ID that the store must have, as `agent probe` prints; the agent searches no other store. Default: any
    /// store.
    #[arg(long, value_name = "ID")]
    pub expect_store_id: Option<String>,
    /// Time limit in seconds.
    #[arg(long, default_value_t = DEFAULT_INSPECT_DEADLINE_SECONDS)]
    pub deadline_seconds: u32,
}

/// Result of `agent latest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatestReport {
    /// The snapshot's folder below the store's prefix.
    pub key: String,
    /// URI of the data object.
    pub uri: String,
    /// sha256 (hex) of the database: a restore with this hash accepts no other bytes.
    pub sha256: String,
    /// Time of the snapshot (RFC 3339).
    pub taken_at: String,
    /// Revision of the key space, if proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Whether no quorum answered during this save by hand: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Newer snapshots that cannot be restored, with the causes, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}

/// `agent restore`: rebuild one seed member's data directory from one stored snapshot.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct RestoreRequest {
    /// Source.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Folder of the snapshot below the store's prefix, with `manifest.json` inside; or the key of a snapshot file without
    /// a manifest (of etcdctl, or of another operator), plain or packed with gzip, zstd or age. With --at-revision or
    /// --at-time: the folder of the lineage, `<namespace>/<cluster>/<lineage>`, whose newest fitting snapshot the agent
    /// takes, or one snapshot of it.
    #[arg(long, required_unless_present = "from_volume", default_value_if("from_volume", ArgPredicate::IsPresent, ""))]
    pub key: String,
    /// Instead of a snapshot: the volume of a stopped member of a cluster that has lost its quorum for good, the folder
    /// with etcd's data directory `data`, or etcd's data directory itself. The agent copies the member's data and applies
    /// its whole log to the copy, also the entries that the member does not know as committed; it never writes to this
    /// folder, which may be mounted read-only. `agent survey` shows which member has the most.
    #[arg(long, value_name = "DIR", conflicts_with_all = FROM_A_STORE)]
    pub from_volume: Option<PathBuf>,
    /// Restore the state at this revision: a snapshot before it, and the lineage's log from there on.
    #[arg(long, value_name = "REVISION", conflicts_with = "at_time", value_parser = clap::value_parser!(i64).range(1..))]
    pub at_revision: Option<i64>,
    /// Restore the state at this time (RFC 3339): the newest revision that the log had received by then.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub at_time: Option<Timestamp>,
    /// Accept a log in which users or roles changed between the snapshot and the point in time. The restored etcd has
    /// the users and roles of the snapshot, because a watch does not show them.
    #[arg(long)]
    pub allow_auth_changed: bool,
    /// sha256 (hex) of the database that the manifest must record. Default: the hash in the manifest.
    #[arg(long)]
    pub expect_sha256: Option<String>,
    /// Store ID that the store must have, as `agent probe` prints; the agent reads no data from another store. Default:
    /// any store.
    #[arg(long, value_name = "ID")]
    pub expect_store_id: Option<String>,
    /// Folder of identity files of `age-keygen` (a mounted Secret) to decrypt with; repeatable. The agent reads the
    /// files only for an encrypted snapshot.
    #[arg(long = "age-identity-dir", value_name = "DIR")]
    pub age_identity_dirs: Vec<PathBuf>,
    /// Accept a raw `.db` file without etcd's sha256 at its end (a copy of a member's own file), and a folder whose
    /// manifest names another key (the folder was moved). The agent then checks the structure, but cannot detect changed
    /// values of a raw file, nor an exchanged folder.
    #[arg(long)]
    pub allow_unverified: bool,
    /// Number to add to the revision, so that etcd never assigns a revision twice. Earlier revisions count as
    /// compacted, so watchers list again instead of waiting (etcd issue 16028, Kubernetes issue 118501). 0 adds and
    /// compacts nothing.
    #[arg(long, default_value_t = DEFAULT_REVISION_BUMP, value_parser = clap::value_parser!(u64).range(..=1_000_000_000_000))]
    pub revision_bump: u64,
    /// Folder for the member's data directory (the mount point of the volume).
    #[arg(long)]
    pub volume: PathBuf,
    /// Path of `etcdutl` of the target version. A name without a folder, and the default where there is no such file, is
    /// looked for in PATH.
    #[arg(long, default_value = "/usr/local/bin/etcdutl")]
    pub etcdutl: PathBuf,
    /// Path of `etcd` of the same version, which applies the log of --from-volume. Default: PATH, then /usr/local/bin.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["StoreFlags", "key"])]
    pub etcd: Option<PathBuf>,
    /// How the agent builds the data directory.
    #[arg(long, value_enum, default_value_t)]
    pub engine: Engine,
    /// Owner of this volume. The agent writes the identity beside the data, and the gate compares the identity.
    #[command(flatten)]
    pub identity: IdentityFlags,
    /// Restore UID.
    #[arg(long)]
    pub restore_uid: String,
    /// `name=peerURL` of the only member in the rebuilt data.
    #[arg(long)]
    pub initial_cluster: String,
    /// File with the Pod's annotations (a downward API volume). The agent fills an empty volume only while
    /// holdfast.dev/may-start-empty names the claim, and neither holdfast.dev/started nor holdfast.dev/joined shows
    /// that the member has served: an emptied seed must never be restored again. Default, by hand: no such check.
    #[arg(long)]
    pub annotations: Option<PathBuf>,
    /// Refuse a snapshot with authentication on. Without credentials for such data, no member can join the restored
    /// cluster.
    #[arg(long)]
    pub refuse_auth: bool,
    /// Quota of the etcd that will run, in bytes (etcd's flag of the same name); refuse a database that fills this
    /// quota, because etcd would accept no write. Default, and 0: no check.
    #[arg(long)]
    pub quota_backend_bytes: Option<u64>,
    /// Answer GET /progress on this port with the numbers of the run as JSON, at every address of this machine. Default: no
    /// port.
    #[arg(long, value_name = "PORT", env = "HOLDFAST_PROGRESS_PORT")]
    pub progress_port: Option<u16>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Time limit in seconds. Default: only --stall-seconds applies.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub deadline_seconds: Option<u32>,
    /// End the restore after this many seconds without progress, so that the cause shows early.
    #[arg(long, default_value_t = DEFAULT_RESTORE_STALL_SECONDS)]
    pub stall_seconds: u32,
}

/// Result of a restore to a point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PointReport {
    /// The snapshot's revision, from which the log continues.
    pub base_revision: i64,
    /// The restored revision.
    pub revision: i64,
    /// The requested revision or time, for the comparison with a later request.
    #[serde(flatten)]
    pub asked: Point,
    /// Records of the log in the database.
    pub records: u64,
    /// Segments of the log that were read.
    pub segments: u64,
    /// Proof of the restored key space.
    pub proof: PointProof,
    /// Number of leases whose time to live the log does not name: they had ended before the archiver asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_leases: u64,
    /// For a requested time: the latest time before it at which etcd is known to have had the restored revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_at: Option<Timestamp>,
    /// For a requested time: the next known time, at which etcd had a later revision. The log does not say when between both the
    /// changes were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<Timestamp>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A point in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Point {
    /// The state at a revision.
    #[serde(rename = "atRevision")]
    Revision(i64),
    /// The state at a time.
    #[serde(rename = "atTime")]
    Time(Timestamp),
}

impl Default for Point {
    fn default() -> Self {
        Self::Revision(0)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revision(revision) => write!(f, "revision {revision} (--at-revision)"),
            Self::Time(time) => write!(f, "{time} (--at-time)"),
        }
    }
}

/// Proof of a key space that a snapshot and a log gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum PointProof {
    /// The snapshot is proven, the segments follow each other without a hole, and each has its checksum.
    #[default]
    Chained,
    /// HashKV of the key space equals that of a live member at this revision.
    HashKV,
}

/// Flags of a restore that only a store gives a meaning; `StoreFlags` is clap's name of all store flags together.
const FROM_A_STORE: [&str; 9] = [
    "StoreFlags",
    "key",
    "at_revision",
    "at_time",
    "allow_auth_changed",
    "expect_sha256",
    "expect_store_id",
    "age_identity_dirs",
    "allow_unverified",
];

impl RestoreRequest {
    /// Returns the requested point in time; `None`: the snapshot itself.
    pub fn point(&self) -> Option<Point> {
        self.at_revision.map(Point::Revision).or(self.at_time.map(Point::Time))
    }
}

/// How the agent builds a data directory from a snapshot. The result is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Write the snapshot once, to its final place; etcdutl restores a small database, and the agent appends the pages
    /// that etcdutl changed there. Needs the space once, and half the time. When grafting fails, etcdutl restores the
    /// whole snapshot, and the report says so.
    #[default]
    Graft,
    /// Download the snapshot, then copy the file with etcdutl; needs twice the space and writes twice.
    Etcdutl,
}

impl Engine {
    /// Returns the flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Etcdutl => "etcdutl",
            Self::Graft => "graft",
        }
    }
}

/// Reads a time of a flag. A time without an offset names no moment.
///
/// # Errors
/// The text is no time, or has no offset; the words have an example.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let example = "write for example 2026-11-28T10:42:07Z, or 2026-11-28T11:42:07+01:00";
    text.parse().map_err(|_| format!("a time in RFC 3339 has a date, a time of day and an offset: {example}"))
}

/// More than a cluster writes between a snapshot and a disaster: at 10,000 writes a second it takes a day.
pub const DEFAULT_REVISION_BUMP: u64 = 1_000_000_000;

/// 20 s without a byte: the cluster's status then shows the reason within 30 s (I22).
pub const DEFAULT_RESTORE_STALL_SECONDS: u32 = 20;
