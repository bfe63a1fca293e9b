//! `agent save`: source, destination and checks of a snapshot.
//!
//! This file decides flags and defaults only.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{CLUSTER_SPEC, EtcdFlags, OWNER_NAME, OWNER_UID, POD_UID, StoreFlags};

/// Compression of the stored bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// zstd, level 1: compresses etcd data as well as level 3, at twice gzip's speed.
    #[default]
    Zstd,
    /// gzip, for tools without zstd.
    Gzip,
    /// No compression.
    None,
}

impl Compression {
    /// Returns the suffix after `snapshot.db` in the object's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
            Self::None => "",
        }
    }

    /// Returns the name, which is also the flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::None => "none",
        }
    }
}

/// Heading of the flags for the key and the manifest, in help texts.
const FILED: &str = "Filed under";

/// Heading of the other flags, in help texts. Each flag of a save needs a heading: clap otherwise continues the last one.
const SAVING: &str = "Saving";

/// `agent save`: save one snapshot of one etcd to a new folder of a store.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SaveRequest {
    /// Source.
    #[command(flatten, next_help_heading = "etcd")]
    pub etcd: EtcdFlags,
    /// Destination.
    #[command(flatten, next_help_heading = "Store")]
    pub store: StoreFlags,
    /// Store ID that the store must have, as `agent probe` prints. In a store with another ID or without an ID, the
    /// agent writes and removes nothing. Default: any store.
    #[arg(long, value_name = "ID", help_heading = "Store")]
    pub expect_store_id: Option<String>,
    /// Namespace in the key.
    #[arg(long, help_heading = FILED)]
    pub namespace: String,
    /// Cluster in the key.
    #[arg(long, help_heading = FILED)]
    pub cluster: String,
    /// UID of the `EtcdCluster`; the first 8 characters are the lineage in the key. By hand, leave this flag out: the
    /// lineage is then `etcd-` and the etcd cluster ID.
    #[arg(long, value_name = "UID", help_heading = FILED)]
    pub cluster_uid: Option<String>,
    /// The cluster's `spec` as JSON, without secrets. The manifest records this spec, so that the store alone is enough
    /// to create the cluster again. In a Pod, set by the environment.
    #[arg(long, value_name = "JSON", env = CLUSTER_SPEC, hide_env_values = true, help_heading = FILED)]
    pub cluster_spec: Option<String>,
    /// Key of the snapshot that this etcd was restored from. Searches then count the earlier snapshots of that cluster
    /// as the past of this etcd.
    #[arg(long, value_name = "KEY", help_heading = FILED)]
    pub restored_from: Option<String>,
    /// etcd cluster ID (hex) that the source must have; the agent refuses every other etcd.
    #[arg(long, value_name = "ID", help_heading = "etcd")]
    pub expect_cluster_id: Option<String>,
    /// Name of the object that requested this snapshot. In a Pod of a CronJob, set by the environment.
    #[arg(long, value_name = "NAME", env = OWNER_NAME, help_heading = FILED)]
    pub owner_name: Option<String>,
    /// UID of the object that requested this snapshot. In a Pod of a CronJob, set by the environment.
    #[arg(long, value_name = "UID", env = OWNER_UID, help_heading = FILED)]
    pub owner_uid: Option<String>,
    /// Name of the `EtcdSnapshotSchedule` that this snapshot is a run of.
    #[arg(long, value_name = "NAME", requires = "schedule_uid", help_heading = FILED)]
    pub schedule_name: Option<String>,
    /// UID of the `EtcdSnapshotSchedule` that this snapshot is a run of.
    #[arg(long, value_name = "UID", help_heading = FILED)]
    pub schedule_uid: Option<String>,
    /// UID of the Pod that runs this command, so that two Pods of one Job never share a key. In a Pod, set by the
    /// environment.
    #[arg(long, value_name = "UID", env = POD_UID, help_heading = FILED)]
    pub pod_uid: Option<String>,
    /// Compression.
    #[arg(long, value_enum, default_value_t, help_heading = SAVING)]
    pub compression: Compression,
    /// Which members compute their HashKV, for comparison with the snapshot.
    #[arg(long, value_enum, default_value_t, help_heading = SAVING)]
    pub ask_members: AskMembers,
    /// Checks, beside those of the stream, before the agent publishes the snapshot.
    #[arg(long, value_enum, default_value_t, help_heading = SAVING)]
    pub verify: Verify,
    /// Read, prove and compress a snapshot, compare the snapshot with the members, and print the rate, but store
    /// nothing. With --store, the agent also checks that the store would accept an upload.
    #[arg(long, help_heading = SAVING)]
    pub dry_run: bool,
    /// Read from a member also when no quorum answers, after a majority was lost; no effect while a quorum answers. The
    /// snapshot may lack acknowledged writes, and the manifest says so. Only by hand.
    #[arg(long, conflicts_with = "owner_uid", help_heading = SAVING)]
    pub no_quorum: bool,
    /// Public age key (`age1...`) to encrypt for, after compression; repeatable. The identity of each key alone can
    /// decrypt. Default: no encryption.
    #[arg(long = "age-recipient", value_name = "RECIPIENT", help_heading = SAVING)]
    pub age_recipients: Vec<String>,
    /// Folder that buffers the snapshot for a slow store, so that etcd streams at full speed; never on a volume of
    /// etcd. Default: no buffer, and the stream waits for the store.
    #[arg(long, value_name = "DIR", help_heading = SAVING)]
    pub spool_dir: Option<PathBuf>,
    /// Largest size of the buffer in MiB, default 1024. While the buffer is full, the stream waits.
    #[arg(long, value_name = "MIB", requires = "spool_dir", help_heading = SAVING)]
    pub spool_mib: Option<u64>,
    /// End the save when etcd sends less than this many KiB per second for a minute; 0 disables the limit. etcd cannot
    /// free deleted data while a snapshot streams.
    #[arg(long, value_name = "KIB", default_value_t = DEFAULT_MIN_THROUGHPUT_KIB, help_heading = SAVING)]
    pub min_throughput_kib: u64,
    /// Wait this many seconds before the first request, so that the runs of many schedules do not begin at once. The
    /// time limit begins afterwards.
    #[arg(long, value_name = "SECONDS", default_value_t, help_heading = SAVING)]
    pub delay_seconds: u32,
    /// Answer GET /progress on this port with the numbers of the run as JSON, at every address of this machine. Default: no
    /// port.
    #[arg(long, value_name = "PORT", env = "HOLDFAST_PROGRESS_PORT", help_heading = SAVING)]
    pub progress_port: Option<u16>,
    /// Print JSON instead of text.
    #[arg(long, help_heading = SAVING)]
    pub json: bool,
    /// Time limit in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SAVE_DEADLINE_SECONDS, help_heading = SAVING)]
    pub deadline_seconds: u32,
}

/// A quarter of the largest database that etcd supports, compressed as etcd's data usually is.
pub const DEFAULT_SPOOL_MIB: u64 = 1024;

/// A database of the largest size that etcd suggests (8 GiB) takes four and a half hours at this rate; a link of 4 Mbit/s
/// carries it compressed.
pub const DEFAULT_MIN_THROUGHPUT_KIB: u64 = 512;

/// Maximum size in bytes of a cluster's spec in a manifest. A spec usually has some hundred bytes; a manifest must stay small,
/// and a variable of a process has at most 128 KiB (`MAX_ARG_STRLEN` of Linux).
pub const MAX_CLUSTER_SPEC: usize = 64 << 10;

/// Checks before a snapshot is published, beside the proof of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
pub enum Verify {
    /// Only the stream.
    Stream,
    /// Also read the stored object back and compare the bytes.
    #[default]
    Stored,
}

/// Members that compute their HashKV at the snapshot's revision, for comparison with the snapshot. `Auto` (default):
/// the source member, and below 1 GiB of database a second voter; no leader from 1 GiB up. `Always`: the source member
/// and a second voter, each of which delays writes by 0.1 to 0.9 s for each GiB. `Never`: no member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
pub enum AskMembers {
    /// The source member, and below 1 GiB of database a second voter. No leader from 1 GiB up, because clients would
    /// wait while the leader hashes.
    #[default]
    Auto,
    /// The source member and a second voter, whatever the size of the database.
    Always,
    /// No member; the agent proves only the structure of the snapshot.
    Never,
}

/// One hour: at 32 MiB/s that is 112 GiB, fourteen times the largest database that etcd supports.
pub const DEFAULT_SAVE_DEADLINE_SECONDS: u32 = 3600;
