//! `agent compact`: the lineage, the revision and the scratch folder of a merge.
//!
//! This file decides flags and defaults only.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Compression, DEFAULT_SAVE_DEADLINE_SECONDS, OWNER_NAME, OWNER_UID, POD_UID, StoreFlags, Verify};

/// Heading of the flags for the manifest, in help texts.
const FILED: &str = "Filed under";

/// Heading of the other flags, in help texts.
const MERGING: &str = "Merging";

/// `agent compact`: merge the newest snapshot of a lineage and the log after it into a new snapshot of this lineage.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CompactRequest {
    /// Store of the snapshots and the log.
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
    /// Lineage: the cluster's UID, its first 8 characters, or the third part of the key. Default: the only lineage with a
    /// log.
    #[arg(long, visible_alias = "cluster-uid", help_heading = FILED)]
    pub lineage: Option<String>,
    /// Name of the object that requested this merge. In a Pod of a CronJob, set by the environment.
    #[arg(long, value_name = "NAME", env = OWNER_NAME, help_heading = FILED)]
    pub owner_name: Option<String>,
    /// UID of the object that requested this merge. In a Pod of a CronJob, set by the environment.
    #[arg(long, value_name = "UID", env = OWNER_UID, help_heading = FILED)]
    pub owner_uid: Option<String>,
    /// Name of the `EtcdSnapshotSchedule` whose retention judges the new snapshot.
    #[arg(long, value_name = "NAME", requires = "schedule_uid", help_heading = FILED)]
    pub schedule_name: Option<String>,
    /// UID of the `EtcdSnapshotSchedule` whose retention judges the new snapshot.
    #[arg(long, value_name = "UID", help_heading = FILED)]
    pub schedule_uid: Option<String>,
    /// UID of the Pod that runs this command, so that two Pods of one Job never share a key. In a Pod, set by the
    /// environment.
    #[arg(long, value_name = "UID", env = POD_UID, help_heading = FILED)]
    pub pod_uid: Option<String>,
    /// Last revision of the new snapshot. Default: the newest check of the log after the newest snapshot, whose HashKV the
    /// agent compares; without a check the end of the log without a hole.
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(1..), help_heading = MERGING)]
    pub at_revision: Option<i64>,
    /// Quota of the cluster's etcd, in bytes (etcd's flag of the same name); the agent publishes no database that fills this
    /// quota, because the cluster could not restore it. Default: the quota in the spec of the snapshot's cluster; 0: no check.
    #[arg(long, value_name = "BYTES", help_heading = MERGING)]
    pub quota_backend_bytes: Option<u64>,
    /// Folder for the snapshot and the merged database: the sizes of both, and 128 MiB.
    #[arg(long, value_name = "DIR", env = "TMPDIR", default_value = "/tmp", help_heading = MERGING)]
    pub scratch: PathBuf,
    /// Folder of identity files of `age-keygen` (a mounted Secret) to decrypt the snapshot and the log with; repeatable.
    #[arg(long = "age-identity-dir", value_name = "DIR", help_heading = MERGING)]
    pub age_identity_dirs: Vec<PathBuf>,
    /// Public age key (`age1...`) to encrypt the new snapshot for, after compression; repeatable. Default: no encryption.
    #[arg(long = "age-recipient", value_name = "RECIPIENT", help_heading = MERGING)]
    pub age_recipients: Vec<String>,
    /// Compression.
    #[arg(long, value_enum, default_value_t, help_heading = MERGING)]
    pub compression: Compression,
    /// Checks, beside those of the stream, before the agent publishes the snapshot.
    #[arg(long, value_enum, default_value_t, help_heading = MERGING)]
    pub verify: Verify,
    /// Print JSON instead of text.
    #[arg(long, help_heading = MERGING)]
    pub json: bool,
    /// Time limit in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SAVE_DEADLINE_SECONDS, help_heading = MERGING)]
    pub deadline_seconds: u32,
}
