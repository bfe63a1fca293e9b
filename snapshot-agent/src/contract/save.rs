//! `agent save`: what is saved from where to where, and what is proven of it before it counts.
//!
//! Decides flags and defaults only.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{EtcdFlags, StoreFlags};

/// How the stored bytes are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// zstd, level 1: on etcd data as small as level 3, at twice gzip's speed.
    #[default]
    Zstd,
    /// gzip, for tools that read nothing else.
    Gzip,
    /// The stream's bytes as they are.
    None,
}

impl Compression {
    /// What follows `snapshot.db` in the object's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
            Self::None => "",
        }
    }

    /// The flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::None => "none",
        }
    }
}

/// Heading of what a snapshot is filed under, in help texts.
const FILED: &str = "Filed under";

/// Heading of how it is saved, in help texts. Each flag of a save needs a heading: clap lets the last one go on.
const SAVING: &str = "Saving";

/// `agent save`: one snapshot of one etcd to one new folder of a store.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct SaveRequest {
    /// Where from.
    #[command(flatten, next_help_heading = "etcd")]
    pub etcd: EtcdFlags,
    /// Where to.
    #[command(flatten, next_help_heading = "Store")]
    pub store: StoreFlags,
    /// Mark that the store has to have, as `agent probe` tells it: at another store, or one without a mark, nothing is
    /// written and nothing removed. Absent: whatever is there is taken.
    #[arg(long, value_name = "ID", help_heading = "Store")]
    pub expect_store_id: Option<String>,
    /// Namespace part of the key.
    #[arg(long, help_heading = FILED)]
    pub namespace: String,
    /// Cluster part of the key.
    #[arg(long, help_heading = FILED)]
    pub cluster: String,
    /// UID of the `EtcdCluster`; its first 8 characters are the lineage in the key. By hand: leave it out, the etcd
    /// cluster ID takes its place.
    #[arg(long, value_name = "UID", help_heading = FILED)]
    pub cluster_uid: Option<String>,
    /// The cluster's `spec` as JSON, for the manifest, so that the store is enough to make the cluster again. It must hold
    /// no secret. Read from the environment in a Pod.
    #[arg(long, value_name = "JSON", env = "HOLDFAST_CLUSTER_SPEC", hide_env_values = true, help_heading = FILED)]
    pub cluster_spec: Option<String>,
    /// Key of the snapshot that this etcd was itself restored from: what the cluster that is gone had saved until then is
    /// the past of this one.
    #[arg(long, value_name = "KEY", help_heading = FILED)]
    pub restored_from: Option<String>,
    /// etcd cluster ID (hex) this snapshot must come from; another one is refused.
    #[arg(long, value_name = "ID", help_heading = "etcd")]
    pub expect_cluster_id: Option<String>,
    /// Name of the object that asked for this snapshot.
    #[arg(long, value_name = "NAME", help_heading = FILED)]
    pub owner_name: Option<String>,
    /// UID of the object that asked for this snapshot.
    #[arg(long, value_name = "UID", help_heading = FILED)]
    pub owner_uid: Option<String>,
    /// UID of the Pod this runs in; with it two Pods of one Job never share a key. Read from the environment in a Pod.
    #[arg(long, value_name = "UID", env = "HOLDFAST_POD_UID", help_heading = FILED)]
    pub pod_uid: Option<String>,
    /// How to compress.
    #[arg(long, value_enum, default_value_t, help_heading = SAVING)]
    pub compression: Compression,
    /// Whether members are asked for their HashKV, to compare it with the snapshot's.
    #[arg(long, value_enum, default_value_t, help_heading = SAVING)]
    pub ask_members: AskMembers,
    /// What is checked beyond the stream before the snapshot is published.
    #[arg(long, value_enum, default_value_t, help_heading = SAVING)]
    pub verify: Verify,
    /// Do everything but storing: read, prove and compress a snapshot, compare it with the members, and tell how fast that
    /// was. The store is only asked whether it would take it.
    #[arg(long, help_heading = SAVING)]
    pub dry_run: bool,
    /// Read from a member also when no quorum answers, after most of them were lost: what is left may lack writes that were
    /// acknowledged, and the manifest says so. By hand alone; where a quorum answers it changes nothing.
    #[arg(long, conflicts_with = "owner_uid", help_heading = SAVING)]
    pub no_quorum: bool,
    /// Public key of age (`age1...`) to encrypt for, after compressing; may be given several times, and each one's
    /// identity alone can decrypt. Absent: not encrypted.
    #[arg(long = "age-recipient", value_name = "RECIPIENT", help_heading = SAVING)]
    pub age_recipients: Vec<String>,
    /// Folder of a volume where the snapshot waits for a slow store, so that etcd is let go at its own speed. Never a
    /// volume of etcd's. Absent: the stream waits for the store.
    #[arg(long, value_name = "DIR", help_heading = SAVING)]
    pub spool_dir: Option<PathBuf>,
    /// How much of that volume the spool takes, in MiB (1024 if absent); when it is full, the stream waits.
    #[arg(long, value_name = "MIB", requires = "spool_dir", help_heading = SAVING)]
    pub spool_mib: Option<u64>,
    /// Give up when less than this many KiB a second came from etcd for a minute; 0: never. While a snapshot streams, etcd
    /// keeps everything that is deleted.
    #[arg(long, value_name = "KIB", default_value_t = DEFAULT_MIN_THROUGHPUT_KIB, help_heading = SAVING)]
    pub min_throughput_kib: u64,
    /// Give up after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SAVE_DEADLINE_SECONDS, help_heading = SAVING)]
    pub deadline_seconds: u32,
}

/// A quarter of the largest database that etcd supports, compressed as etcd's data usually is.
pub const DEFAULT_SPOOL_MIB: u64 = 1024;

/// With that a database of the size that etcd suggests at most (8 GiB) takes four hours and a half; a link of 4 Mbit/s
/// carries it, compressed.
pub const DEFAULT_MIN_THROUGHPUT_KIB: u64 = 512;

/// The most bytes of a cluster's spec that a manifest records. It is some hundred bytes as a rule; a manifest has to stay
/// small, and one variable of a process takes 128 KiB at most (`MAX_ARG_STRLEN` of Linux).
pub const MAX_CLUSTER_SPEC: usize = 64 << 10;

/// What is checked before a snapshot is published, beyond the stream itself, which is proven always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
pub enum Verify {
    /// The stream alone.
    Stream,
    /// And the store gives back what it was given.
    #[default]
    Stored,
}

impl Verify {
    /// The flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Stored => "stored",
        }
    }
}

/// Whether members are asked if they hold what the snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
pub enum AskMembers {
    /// The member that was read and a second one. From 1 GiB up only the one, and never a leader: clients would wait while
    /// it hashes.
    #[default]
    Auto,
    /// The member that was read and a second one, whatever it costs.
    Always,
    /// No: only the snapshot's own structure is proven.
    Never,
}

impl AskMembers {
    /// The flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// One hour: at 32 MiB/s that is 112 GiB, fourteen times the largest database etcd supports.
pub const DEFAULT_SAVE_DEADLINE_SECONDS: u32 = 3600;
