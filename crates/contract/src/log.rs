//! `agent log` and `agent log status`: the log of revisions beside the snapshots of a cluster.
//!
//! This file decides flags and defaults only.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_INSPECT_DEADLINE_SECONDS, EtcdFlags, StoreFlags};

/// Heading of the flags for the key, in help texts.
const FILED: &str = "Filed under";

/// Heading of the other flags, in help texts.
const LOGGING: &str = "Logging";

/// `agent log`: record every revision of an etcd until SIGTERM.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogRequest {
    /// Source.
    #[command(flatten, next_help_heading = "etcd")]
    pub etcd: EtcdFlags,
    /// Destination.
    #[command(flatten, next_help_heading = "Store")]
    pub store: StoreFlags,
    /// Store ID that the store must have, as `agent probe` prints. In a store with another ID or without an ID, the
    /// agent writes nothing. Default: any store.
    #[arg(long, value_name = "ID", help_heading = "Store")]
    pub expect_store_id: Option<String>,
    /// Namespace in the key.
    #[arg(long, help_heading = FILED)]
    pub namespace: String,
    /// Cluster in the key.
    #[arg(long, help_heading = FILED)]
    pub cluster: String,
    /// UID of the `EtcdCluster`; the first 8 characters are the lineage in the key. By hand, leave this flag out: the
    /// lineage is then `etcd-` and the etcd cluster ID, as for `agent save`.
    #[arg(long, value_name = "UID", help_heading = FILED)]
    pub cluster_uid: Option<String>,
    /// etcd cluster ID (hex) that the source must have; the agent refuses every other etcd.
    #[arg(long, value_name = "ID", help_heading = "etcd")]
    pub expect_cluster_id: Option<String>,
    /// First revision of a new log. Default: the revision after the newest complete snapshot of this lineage, and
    /// without a snapshot the next revision of etcd. A log that exists is continued.
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(2..), help_heading = LOGGING)]
    pub from_revision: Option<i64>,
    /// Seconds between two segments: so many seconds of changes are lost when the cluster is lost.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_EVERY_SECONDS, value_parser = clap::value_parser!(u32).range(1..=300), help_heading = LOGGING)]
    pub every_seconds: u32,
    /// Size in MiB at which a segment ends early. The agent holds one segment in memory.
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_SEGMENT_MIB, value_parser = clap::value_parser!(u64).range(1..=64), help_heading = LOGGING)]
    pub segment_mib: u64,
    /// Public age key (`age1...`) to encrypt for, after compression; repeatable. Default: no encryption.
    #[arg(long = "age-recipient", value_name = "RECIPIENT", help_heading = LOGGING)]
    pub age_recipients: Vec<String>,
    /// Folder for segments that the store has not taken yet; never on a volume of etcd. A later run with the same folder
    /// stores the segments that this run leaves there.
    #[arg(long, value_name = "DIR", env = "TMPDIR", default_value = "/tmp", help_heading = LOGGING)]
    pub spool_dir: PathBuf,
    /// Size of these segments in MiB at which the agent ends the watch; the last segment may be beyond it. The watch
    /// continues where the log ends when the store takes segments again.
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_LOG_SPOOL_MIB, value_parser = clap::value_parser!(u64).range(1..), help_heading = LOGGING)]
    pub spool_mib: u64,
    /// Seconds between two checks, for each of which a member computes its HashKV; 0: no checks.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_CHECK_SECONDS, help_heading = LOGGING)]
    pub check_seconds: u32,
    /// Answer GET /metrics on this port, at every address of this machine. Default: no port.
    #[arg(long, value_name = "PORT", help_heading = LOGGING)]
    pub metrics_port: Option<u16>,
}

/// Ten seconds: the loss of a cluster costs its last ten seconds of changes.
pub const DEFAULT_EVERY_SECONDS: u32 = 10;

/// 16 MiB: ten seconds of 5,000 changes with 300 bytes each.
pub const DEFAULT_SEGMENT_MIB: u64 = 16;

/// Nine minutes without a store, at 5,000 changes of 300 bytes a second that compress to a third.
pub const DEFAULT_LOG_SPOOL_MIB: u64 = 256;

/// One hour: a member holds its read lock while it hashes, 0.1 to 0.9 s for each GiB.
pub const DEFAULT_CHECK_SECONDS: u32 = 3600;

impl Default for LogRequest {
    fn default() -> Self {
        Self {
            etcd: EtcdFlags::default(),
            store: StoreFlags::default(),
            expect_store_id: None,
            namespace: String::new(),
            cluster: String::new(),
            cluster_uid: None,
            expect_cluster_id: None,
            from_revision: None,
            every_seconds: DEFAULT_EVERY_SECONDS,
            segment_mib: DEFAULT_SEGMENT_MIB,
            age_recipients: Vec::new(),
            spool_dir: "/tmp".into(),
            spool_mib: DEFAULT_LOG_SPOOL_MIB,
            check_seconds: DEFAULT_CHECK_SECONDS,
            metrics_port: None,
        }
    }
}

/// `agent log status`: what the log of a cluster covers.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatusRequest {
    /// Where to look.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Namespace part of the key.
    #[arg(long)]
    pub namespace: String,
    /// Cluster part of the key.
    #[arg(long)]
    pub cluster: String,
    /// Lineage: the cluster's UID, its first 8 characters, or the third part of the key. Default: every lineage.
    #[arg(long)]
    pub lineage: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = DEFAULT_INSPECT_DEADLINE_SECONDS)]
    pub deadline_seconds: u32,
}
