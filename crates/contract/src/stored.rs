//! Requests about stored snapshots, which users make by hand.
//!
//! This file decides flags, defaults and their combinations. Of these requests the operator renders only that of a verification.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{LatestRequest, StoreFlags, ToStore};

/// One snapshot: a local file, or a stored snapshot by its key.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SnapshotFlags {
    /// Local file instead of --store and --key: a snapshot, also compressed (zstd, gzip) or encrypted (age), or a copy of
    /// a member's `member/snap/db`.
    #[arg(value_name = "FILE", required_unless_present_any = ["key", "url"], conflicts_with_all = ["key", "url"])]
    pub file: Option<PathBuf>,
    /// Store of the snapshot.
    #[command(flatten, next_help_heading = "Store")]
    pub store: Option<StoreFlags>,
    /// Folder of the stored snapshot below the store's prefix, with `manifest.json` inside, as `agent list` shows; or the
    /// key of a snapshot file without a manifest.
    #[arg(long, requires = "url", help_heading = "Store")]
    pub key: Option<String>,
    /// Identity file of `age-keygen` to decrypt with, or a folder of identity files; repeatable. The agent reads the files
    /// only for an encrypted snapshot.
    #[arg(long = "identity", value_name = "PATH", help_heading = "Store")]
    pub identities: Vec<PathBuf>,
}

/// Level of a later verification of a stored snapshot.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ProofLevel {
    /// Read the stored object once, and check hashes, structure and HashKV.
    #[default]
    Stored,
    /// Also restore the snapshot, start etcd on loopback, and query that etcd.
    Drill,
}

impl ProofLevel {
    /// All levels, the lower first.
    pub const ALL: [Self; 2] = [Self::Stored, Self::Drill];

    /// Returns the flag's value, which is also part of a proof's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Drill => "drill",
        }
    }
}

/// Heading of the flags of a verification, in help texts.
const VERIFYING: &str = "Verifying";

/// `agent verify`: verify a snapshot.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[command(group(clap::ArgGroup::new("of_a_cluster").args(["latest", "log"])))]
pub struct VerifyRequest {
    /// Snapshot to verify.
    #[command(flatten)]
    pub snapshot: SnapshotFlags,
    /// Level of the verification of a stored snapshot.
    #[arg(long, value_enum, default_value_t, requires = "url", conflicts_with = "file", help_heading = VERIFYING)]
    pub level: ProofLevel,
    /// Instead of --key, the snapshot that `agent latest` names at the start.
    #[arg(long, requires_all = ["url", "namespace", "cluster"], conflicts_with_all = ["key", "file"], help_heading = VERIFYING)]
    pub latest: bool,
    /// Instead of a snapshot, the log that `agent log` has recorded: read every segment, and find holes.
    #[arg(long, requires_all = ["url", "namespace", "cluster"], conflicts_with_all = ["key", "file", "level"], help_heading = VERIFYING)]
    pub log: bool,
    /// Namespace in the keys, for --latest and --log.
    #[arg(long, requires = "of_a_cluster", help_heading = VERIFYING)]
    pub namespace: Option<String>,
    /// Cluster in the keys, for --latest and --log.
    #[arg(long, requires = "of_a_cluster", help_heading = VERIFYING)]
    pub cluster: Option<String>,
    /// Lineage for --latest and --log: the cluster's UID, its first 8 characters, or the third part of the key. Default:
    /// all; the search fails when the lineage is not clear.
    #[arg(long, requires = "of_a_cluster", help_heading = VERIFYING)]
    pub lineage: Option<String>,
    /// Store ID that the store must have, for --latest. Default: any store.
    #[arg(long, value_name = "ID", requires = "latest", help_heading = VERIFYING)]
    pub expect_store_id: Option<String>,
    /// Folder with `etcd` and `etcdutl` for a drill, of the snapshot's etcd version or a newer version. Default: PATH,
    /// then /usr/local/bin, the folder of both in etcd's own image.
    #[arg(long, value_name = "DIR", requires = "url", conflicts_with = "file", help_heading = VERIFYING)]
    pub bin_dir: Option<PathBuf>,
    /// After the comparisons of a drill, also start this kube-apiserver on the restored etcd, and let it decode every
    /// object: a path, or a name in PATH or /usr/local/bin. Without a value: `kube-apiserver`.
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, require_equals = true, default_missing_value = APISERVER, requires = "url", conflicts_with = "file", help_heading = VERIFYING)]
    pub kubernetes: Option<PathBuf>,
    /// File with the `EncryptionConfiguration` of that kube-apiserver, for values that are encrypted in etcd. Needs
    /// --kubernetes.
    #[arg(long, value_name = "FILE", requires = "kubernetes", help_heading = VERIFYING)]
    pub encryption_config: Option<PathBuf>,
    /// Folder for the temporary folder of a drill, or of a packed local file, which the agent removes at the end. Needs
    /// the database's size, and for a drill about twice that.
    #[arg(long, value_name = "DIR", env = "TMPDIR", default_value = SCRATCH, help_heading = VERIFYING)]
    pub scratch: PathBuf,
    /// Write no proof beside the snapshot.
    #[arg(long, requires = "url", conflicts_with = "file", help_heading = VERIFYING)]
    pub no_proof: bool,
    /// Also write one key to the etcd of a drill, after all comparisons, and read it back. Needs --no-proof, because a proof
    /// does not record it.
    #[arg(long, requires = "no_proof", help_heading = VERIFYING)]
    pub write: bool,
    /// Print JSON instead of lines.
    #[arg(long, help_heading = VERIFYING)]
    pub json: bool,
    /// Time limit in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_READ_DEADLINE_SECONDS, help_heading = VERIFYING)]
    pub deadline_seconds: u32,
}

impl VerifyRequest {
    /// Returns the search for the snapshot of a request with `--latest`.
    pub fn search(&self) -> Option<LatestRequest> {
        let Self { latest: true, namespace: Some(namespace), cluster: Some(cluster), .. } = self else { return None };
        Some(LatestRequest {
            store: self.snapshot.store.clone()?,
            namespace: namespace.clone(),
            cluster: cluster.clone(),
            lineage: self.lineage.clone(),
            expect_store_id: self.expect_store_id.clone(),
            deadline_seconds: self.deadline_seconds,
        })
    }

    /// Returns the request for the snapshot that a search has found. The search took so many seconds of the time limit.
    #[must_use]
    pub fn found(self, key: String, took_seconds: u64) -> Self {
        let took = u32::try_from(took_seconds).unwrap_or(u32::MAX);
        let snapshot = SnapshotFlags { key: Some(key), ..self.snapshot };
        let deadline_seconds = self.deadline_seconds.saturating_sub(took).max(1);
        Self { snapshot, latest: false, deadline_seconds, ..self }
    }
}

/// Name of the program that decodes objects.
pub const APISERVER: &str = "kube-apiserver";

/// The system's folder for temporary files, if the environment names none.
const SCRATCH: &str = "/tmp";

/// One hour, as for a save: the same bytes move.
pub const DEFAULT_READ_DEADLINE_SECONDS: u32 = 3600;

/// Heading of the flags of the output, in help texts.
const SHOWING: &str = "Showing";

/// `agent contents`: show the contents of a snapshot.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentsRequest {
    /// Snapshot to show.
    #[command(flatten)]
    pub snapshot: SnapshotFlags,
    /// Only keys with this prefix.
    #[arg(long, default_value_t, help_heading = SHOWING)]
    pub prefix: String,
    /// Number of parts of a key, after --prefix, by which keys are grouped and counted.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = SHOWING)]
    pub depth: u32,
    /// Separator between the parts of a key.
    #[arg(long, value_name = "TEXT", default_value = "/", help_heading = SHOWING)]
    pub separator: String,
    /// Number of prefixes to show, largest first.
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = SHOWING)]
    pub top: usize,
    /// Print only the value of this key, unchanged. No other option prints values.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["prefix", "depth", "separator", "top", "json"], help_heading = SHOWING)]
    pub value: Option<String>,
    /// Print JSON instead of tables.
    #[arg(long, help_heading = SHOWING)]
    pub json: bool,
    /// Folder for a temporary folder with the unpacked snapshot, which the agent removes at the end. Needs the
    /// database's size.
    #[arg(long, value_name = "DIR", env = "TMPDIR", default_value = SCRATCH, help_heading = SHOWING)]
    pub scratch: PathBuf,
    /// Time limit in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_READ_DEADLINE_SECONDS, help_heading = SHOWING)]
    pub deadline_seconds: u32,
}

/// Heading of the flags of a copy, in help texts.
const COPYING: &str = "Copying";

/// `agent copy`: copy stored snapshots from one store to another.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyRequest {
    /// Source.
    #[command(flatten, next_help_heading = "Store to copy from")]
    pub store: StoreFlags,
    /// Destination.
    #[command(flatten)]
    pub to: ToStore,
    /// Store ID that the destination store must have, as `agent probe` prints. In a store with another ID or without an
    /// ID, the agent writes and removes nothing. Default: any store.
    #[arg(long, value_name = "ID", help_heading = COPYING)]
    pub to_expect_store_id: Option<String>,
    /// Copy this snapshot: its folder below the store's prefix, as `agent list` shows.
    #[arg(long, required_unless_present = "all", conflicts_with = "all", help_heading = COPYING)]
    pub key: Option<String>,
    /// Copy every complete snapshot of a cluster, oldest first.
    #[arg(long, requires_all = ["namespace", "cluster"], help_heading = COPYING)]
    pub all: bool,
    /// Namespace in the keys.
    #[arg(long, requires = "all", help_heading = COPYING)]
    pub namespace: Option<String>,
    /// Cluster in the keys.
    #[arg(long, requires = "all", help_heading = COPYING)]
    pub cluster: Option<String>,
    /// Copy only this lineage: the third part of the keys. Default: all lineages.
    #[arg(long, requires = "all", help_heading = COPYING)]
    pub lineage: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long, help_heading = COPYING)]
    pub json: bool,
    /// Time limit in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_READ_DEADLINE_SECONDS, help_heading = COPYING)]
    pub deadline_seconds: u32,
}
