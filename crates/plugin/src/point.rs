//! Flags of a point in time, for the verbs that write an EtcdCluster which restores, or an EtcdRestore.
//!
//! Decides the flags only. `crates/contract/src/restore.rs` has those of the agent.

use clap::Args;
use holdfast_api::restore::RestorePoint;
use holdfast_contract::parse_time;
use jiff::Timestamp;

/// A point in time.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PointFlags {
    /// Restore the state at this revision, from a snapshot before it and the log.
    #[arg(long, value_name = "REVISION", group = "point", value_parser = clap::value_parser!(i64).range(1..))]
    pub at_revision: Option<i64>,
    /// Restore the state at this time (RFC 3339, such as 2026-11-28T10:42:07Z), from a snapshot before it and the log.
    #[arg(long, value_name = "TIME", group = "point", value_parser = parse_time)]
    pub at_time: Option<Timestamp>,
    /// Restore a point in time although users or roles changed after the snapshot: the cluster then has those of the snapshot.
    #[arg(long, requires = "point")]
    pub allow_auth_changed: bool,
}

impl PointFlags {
    /// Returns the point in time, if one is given.
    pub fn point(&self) -> Option<RestorePoint> {
        (self.at_revision.is_some() || self.at_time.is_some()).then(|| RestorePoint {
            revision: self.at_revision,
            time: self.at_time.map(|time| time.to_string()),
            allow_auth_changed: self.allow_auth_changed,
        })
    }
}
