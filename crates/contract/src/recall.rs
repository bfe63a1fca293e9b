//! `agent recall`: the request for a schedule's runs in a store, and the report.
//!
//! This file decides the wire format only.

use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_INSPECT_DEADLINE_SECONDS, StoreFlags};

/// `agent recall`: list the complete snapshots that runs of one schedule saved in a period, oldest first.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RecallRequest {
    /// Store to search.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Store ID that the store must have, as `agent probe` prints; the agent searches no other store. Default: any
    /// store.
    #[arg(long, value_name = "ID")]
    pub expect_store_id: Option<String>,
    /// Namespace in the key.
    #[arg(long)]
    pub namespace: String,
    /// Cluster in the key.
    #[arg(long)]
    pub cluster: String,
    /// UID of the `EtcdSnapshotSchedule` whose runs are searched.
    #[arg(long, value_name = "UID")]
    pub schedule_uid: String,
    /// Search snapshots whose save began after this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub after: Timestamp,
    /// Search snapshots whose save began at this time (RFC 3339) or earlier.
    #[arg(long, value_name = "TIME")]
    pub until: Timestamp,
    /// Time limit in seconds.
    #[arg(long, default_value_t = DEFAULT_INSPECT_DEADLINE_SECONDS)]
    pub deadline_seconds: u32,
}

impl Default for RecallRequest {
    fn default() -> Self {
        Self {
            store: StoreFlags::default(),
            expect_store_id: None,
            namespace: String::new(),
            cluster: String::new(),
            schedule_uid: String::new(),
            after: Timestamp::UNIX_EPOCH,
            until: Timestamp::UNIX_EPOCH,
            deadline_seconds: DEFAULT_INSPECT_DEADLINE_SECONDS,
        }
    }
}

/// Maximum number of runs in one report. With names of 63 characters a report has 2.3 KB, and kubelet keeps 4 KB.
pub const MAX_RECALLED: usize = 12;

/// Result of `agent recall`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecallReport {
    /// The runs, oldest first, at most [`MAX_RECALLED`].
    pub runs: Vec<RecalledRun>,
    /// The report names all runs up to this time. Before `--until`: ask again with this time as `--after`.
    pub through: Timestamp,
}

/// A run whose snapshot is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecalledRun {
    /// Name of the Job.
    pub job: String,
    /// UID of the Job.
    pub uid: String,
    /// Start of the save.
    pub at: Timestamp,
}
