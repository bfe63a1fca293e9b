//! `agent defrag`: gives free space of the members' databases back, one member after the other.
//!
//! This file decides flags and the report. `snapshot-agent/verbs-live/src/defrag.rs` decides the order and when a member may stand still.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::EtcdFlags;

/// `agent defrag`: defragment the members whose databases have enough free space, followers first, the leader last.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct DefragRequest {
    /// The etcd. `--endpoints` has to name a client URL of every member.
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// etcd cluster ID (hex) that the members must have; the agent touches no other etcd.
    #[arg(long, value_name = "ID", help_heading = DEFRAGMENTING)]
    pub expect_cluster_id: Option<String>,
    /// Least free part of a database file in percent; a member below stays as it is.
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_FREE_PERCENT, value_parser = clap::value_parser!(u8).range(0..=100), help_heading = DEFRAGMENTING)]
    pub free_percent: u8,
    /// Least free space of a database file in MiB; a member below stays as it is.
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_FREE_MIB, help_heading = DEFRAGMENTING)]
    pub free_mib: u32,
    /// Move the leadership to a member that was defragmented before the leader is defragmented, so that writes wait for an
    /// election only.
    #[arg(long, help_heading = DEFRAGMENTING)]
    pub move_leader: bool,
    /// Print the plan, and defragment nothing.
    #[arg(long, help_heading = DEFRAGMENTING)]
    pub dry_run: bool,
    /// Time limit in seconds for one member.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_DEFRAG_MEMBER_SECONDS, help_heading = DEFRAGMENTING)]
    pub member_seconds: u32,
    /// Print JSON instead of text.
    #[arg(long, help_heading = DEFRAGMENTING)]
    pub json: bool,
    /// Time limit in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_DEFRAG_SECONDS, help_heading = DEFRAGMENTING)]
    pub deadline_seconds: u32,
}

/// Heading of the flags, in help texts.
const DEFRAGMENTING: &str = "Defragmenting";

/// Half of the file: below, the file grows back soon.
pub(crate) const DEFAULT_FREE_PERCENT: u8 = 50;

/// 256 MiB: less is not worth a member that stands still.
pub(crate) const DEFAULT_FREE_MIB: u32 = 256;

/// Ten minutes: etcd rewrites 8 GiB at 14 MiB/s.
pub(crate) const DEFAULT_DEFRAG_MEMBER_SECONDS: u32 = 600;

/// Two hours: nine members that use their whole time, and the pauses.
pub(crate) const DEFAULT_DEFRAG_SECONDS: u32 = 7200;

/// Result of a defragmentation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefragReport {
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// All members, in the order in which the agent came to them.
    pub members: Vec<DefragMember>,
}

/// One member and its database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefragMember {
    /// Name.
    pub name: String,
    /// ID (hex).
    pub id: String,
    /// Outcome for the member.
    pub outcome: DefragOutcome,
    /// Bytes of the database file before.
    pub before_bytes: u64,
    /// Bytes of the file in use before.
    pub used_bytes: u64,
    /// Bytes of the database file afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_bytes: Option<u64>,
    /// Seconds during which the member served nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Outcome for one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DefragOutcome {
    /// The file has too little free space.
    #[default]
    TooLittleFree,
    /// The agent would defragment the member (`--dry-run`).
    Planned,
    /// The member was defragmented.
    Defragmented,
    /// The run ended before the member's turn.
    NotReached,
}
