//! `agent survey`: the request, and the report about a stopped member's volume.
//!
//! This file decides flags and the wire format only. An unknown number is absent, never 0: the choice of a survivor compares
//! these numbers.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::outcome::halve;

/// `agent survey`: read how far a stopped member's data are, and change nothing.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SurveyRequest {
    /// The member's volume: the folder with etcd's data directory `data`, or etcd's data directory itself, which has the
    /// folder `member`. The agent only reads, so the volume may be mounted read-only.
    #[arg(long, value_name = "DIR")]
    pub volume: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// State of the end of a member's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogEnd {
    /// The last record is complete.
    #[default]
    Whole,
    /// A write was cut off at the end, as a crash leaves it. etcd removes the rest at its next start; no client got an answer
    /// to such a write.
    Torn,
}

/// State of a stopped member's volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SurveyReport {
    /// etcd cluster ID (hex).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// etcd member ID (hex).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// Raft term of the newest HardState.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// ID (hex) of the member that got this member's vote in that term; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vote: Option<String>,
    /// Raft index up to which this member knew entries as committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_index: Option<u64>,
    /// Raft index of the log's last entry, known as committed or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_index: Option<u64>,
    /// Raft term of that entry. The member with the highest pair of this and `lastIndex` has every entry that a majority had,
    /// as far as any of the compared members has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_term: Option<u64>,
    /// Raft index of the newest snapshot that the log names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_index: Option<u64>,
    /// Bytes of the log's records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// State of the log's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_end: Option<LogEnd>,
    /// Damage of the log before its end. All numbers of the log are absent then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_damage: Option<String>,
    /// Raft index up to which the database has the log's entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistent_index: Option<u64>,
    /// Raft term of that index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_term: Option<u64>,
    /// Revision of the key space in the database. The entries of the log after `consistentIndex` raise it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Bytes of the database's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_bytes: Option<u64>,
    /// Whether clients have to log in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_enabled: Option<bool>,
    /// Number of members, this one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<u64>,
    /// Reason for which the agent cannot read the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_damage: Option<String>,
    /// Owner of the volume, of a volume of Holdfast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<VolumeOwner>,
    /// Reason for which the agent cannot read the identity file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_damage: Option<String>,
    /// Reason for which the file system cannot say whether an etcd holds the database open. Absent: no etcd does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_unknown: Option<String>,
}

impl SurveyReport {
    /// Shortens the report; `false` when nothing is left to cut.
    pub fn cut(&mut self) -> bool {
        let Self { log_damage, database_damage, identity_damage, lock_unknown, .. } = self;
        let texts = [log_damage, database_damage, identity_damage, lock_unknown];
        texts.into_iter().flatten().max_by_key(|text| text.len()).is_some_and(halve)
    }
}

/// Owner of a volume, as its identity file names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeOwner {
    /// etcd's cluster token.
    pub cluster_token: String,
    /// Name of the member.
    pub member_name: String,
    /// UID of the `EtcdMember`.
    pub member_uid: String,
    /// UID of the claim behind the volume.
    pub claim_uid: String,
    /// UID of the restore that filled the volume, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_uid: Option<String>,
    /// Highest number of this member's Pods that have run on the volume; absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_start: Option<u64>,
}

/// The survivor's volume that a restore has used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SurvivorReport {
    /// etcd cluster ID (hex) of the lost cluster.
    pub cluster_id: String,
    /// etcd member ID (hex) of the survivor.
    pub member_id: String,
    /// Raft term of its newest HardState; absent if the log holds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// Raft index of its last entry. Every entry up to this one is in the restored data.
    pub last_index: u64,
    /// Raft term of that entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_term: Option<u64>,
    /// Raft index up to which the survivor knew entries as committed; absent if its log does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_index: Option<u64>,
    /// Entries after that index. The lost members' leader may have acknowledged them, so the restored data have them.
    pub beyond_commit: u64,
    /// State of the log's end.
    #[serde(default)]
    pub log_end: LogEnd,
    /// etcd's HashKV of the key space after the replay, before the revision is raised; absent if the agent's memory was too
    /// small.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "hashKV")]
    pub hash_kv: Option<u32>,
    /// Whether the etcd that replayed the log gave the same HashKV. `false`: authentication is on, so the agent could not ask.
    #[serde(default)]
    pub hash_confirmed: bool,
}
