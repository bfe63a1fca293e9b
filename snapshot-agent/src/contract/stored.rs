//! Requests about snapshots that are stored already: what a person asks for by hand.
//!
//! Decides flags, defaults and which go together. The operator renders none of them, so there is no way back to
//! arguments.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{StoreFlags, ToStore};

/// One snapshot: a file on this disk, or one in a store by its key.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFlags {
    /// A file on this disk: an unpacked snapshot, or a copy of a member's `member/snap/db`. Instead of --store and
    /// --key.
    #[arg(value_name = "FILE", required_unless_present_any = ["key", "url"], conflicts_with_all = ["key", "url"])]
    pub file: Option<PathBuf>,
    /// Where a stored one is.
    #[command(flatten, next_help_heading = "Store")]
    pub store: Option<StoreFlags>,
    /// The stored snapshot's folder below the store's prefix (the one that holds `manifest.json`), as `agent list` shows
    /// it.
    #[arg(long, requires = "url", help_heading = "Store")]
    pub key: Option<String>,
    /// Identity file as `age-keygen` writes it, to decrypt with; may be given several times. Read only when the snapshot
    /// is encrypted.
    #[arg(long = "identity", value_name = "FILE", requires = "key", conflicts_with = "file", help_heading = "Store")]
    pub identities: Vec<PathBuf>,
}

/// How far a stored snapshot is verified later on.
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
    /// What the store gives back is read once and proven: hashes, structure, HashKV.
    #[default]
    Stored,
    /// And an etcd is restored from it, started on this machine alone, and asked.
    Drill,
}

impl ProofLevel {
    /// All of them, the lower first.
    pub const ALL: [Self; 2] = [Self::Stored, Self::Drill];

    /// The flag's value, and what a proof is named after.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Drill => "drill",
        }
    }
}

/// Heading of how it is verified, in help texts.
const VERIFYING: &str = "Verifying";

/// `agent verify`: whether a snapshot is whole and sound.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyRequest {
    /// Which one.
    #[command(flatten)]
    pub snapshot: SnapshotFlags,
    /// How far a stored one is verified.
    #[arg(long, value_enum, default_value_t, requires = "key", conflicts_with = "file", help_heading = VERIFYING)]
    pub level: ProofLevel,
    /// Folder with `etcd` and `etcdutl` for a drill, of the snapshot's etcd version or a newer one. Absent: they are
    /// looked for in PATH, then in /usr/local/bin, where etcd's own image has them.
    #[arg(long, value_name = "DIR", requires = "key", conflicts_with = "file", help_heading = VERIFYING)]
    pub bin_dir: Option<PathBuf>,
    /// Folder below which a drill makes a folder of its own, which it removes again. It needs about twice the database's
    /// size.
    #[arg(long, value_name = "DIR", env = "TMPDIR", default_value = SCRATCH, help_heading = VERIFYING)]
    pub scratch: PathBuf,
    /// Keep no proof beside the snapshot.
    #[arg(long, requires = "key", conflicts_with = "file", help_heading = VERIFYING)]
    pub no_proof: bool,
    /// Print JSON instead of lines.
    #[arg(long, help_heading = VERIFYING)]
    pub json: bool,
    /// Give up after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_READ_DEADLINE_SECONDS, help_heading = VERIFYING)]
    pub deadline_seconds: u32,
}

/// The system's folder for temporary files, where the environment names none.
const SCRATCH: &str = "/tmp";

/// One hour, as for a save: it moves the same bytes.
pub const DEFAULT_READ_DEADLINE_SECONDS: u32 = 3600;

/// Heading of what is shown, in help texts.
const SHOWING: &str = "Showing";

/// `agent contents`: what is in a snapshot.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentsRequest {
    /// Which one.
    #[command(flatten)]
    pub snapshot: SnapshotFlags,
    /// Only keys that begin with this.
    #[arg(long, default_value_t, help_heading = SHOWING)]
    pub prefix: String,
    /// How many parts of a key, behind --prefix, belong to the prefix that it is counted under.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = SHOWING)]
    pub depth: u32,
    /// What parts a key.
    #[arg(long, value_name = "TEXT", default_value = "/", help_heading = SHOWING)]
    pub separator: String,
    /// Show so many prefixes, the largest first.
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = SHOWING)]
    pub top: usize,
    /// Print this key's value as it is, and nothing else. Values are not shown otherwise.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["prefix", "depth", "separator", "top", "json"], help_heading = SHOWING)]
    pub value: Option<String>,
    /// Print JSON instead of tables.
    #[arg(long, help_heading = SHOWING)]
    pub json: bool,
    /// Folder below which a stored snapshot is unpacked, into a folder of its own that is removed again. It needs the
    /// database's size.
    #[arg(long, value_name = "DIR", env = "TMPDIR", default_value = SCRATCH, help_heading = SHOWING)]
    pub scratch: PathBuf,
    /// Give up after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_READ_DEADLINE_SECONDS, help_heading = SHOWING)]
    pub deadline_seconds: u32,
}

/// Heading of what is copied, in help texts.
const COPYING: &str = "Copying";

/// `agent copy`: stored snapshots from one store to another.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyRequest {
    /// Where from.
    #[command(flatten, next_help_heading = "Store to copy from")]
    pub store: StoreFlags,
    /// Where to.
    #[command(flatten)]
    pub to: ToStore,
    /// Mark that the store that is copied to has to have, as `agent probe` tells it: at another store, or one without a
    /// mark, nothing is written and nothing removed.
    #[arg(long, value_name = "ID", help_heading = COPYING)]
    pub to_expect_store_id: Option<String>,
    /// Copy this snapshot: its folder below the store's prefix, as `agent list` shows it.
    #[arg(long, required_unless_present = "all", conflicts_with = "all", help_heading = COPYING)]
    pub key: Option<String>,
    /// Copy every complete snapshot of a cluster, the oldest first.
    #[arg(long, requires_all = ["namespace", "cluster"], help_heading = COPYING)]
    pub all: bool,
    /// Namespace part of the keys.
    #[arg(long, requires = "all", help_heading = COPYING)]
    pub namespace: Option<String>,
    /// Cluster part of the keys.
    #[arg(long, requires = "all", help_heading = COPYING)]
    pub cluster: Option<String>,
    /// Only this lineage: the part of the keys that follows the cluster. Absent: all of them.
    #[arg(long, requires = "all", help_heading = COPYING)]
    pub lineage: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long, help_heading = COPYING)]
    pub json: bool,
    /// Give up after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_READ_DEADLINE_SECONDS, help_heading = COPYING)]
    pub deadline_seconds: u32,
}
