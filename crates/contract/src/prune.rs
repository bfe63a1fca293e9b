//! `agent prune` and `agent remove`: the policy, the requests and the reports.
//!
//! This file decides the wire format, and which policies are invalid. `retention/` decides which snapshots a policy keeps.

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{FailedReport, POD_UID, StoreFlags};

/// Which snapshots of a schedule are kept. A rule that is 0 or absent keeps nothing; a snapshot that any rule keeps stays.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    /// Keep this number of newest snapshots.
    #[arg(long, default_value_t, value_name = "N", help_heading = KEEP)]
    pub keep_last: u32,
    /// Keep one snapshot of each hour, for this number of newest hours with snapshots.
    #[arg(long, default_value_t, value_name = "N", help_heading = KEEP)]
    pub keep_hourly: u32,
    /// Keep one snapshot of each day, for this number of newest days with snapshots.
    #[arg(long, default_value_t, value_name = "N", help_heading = KEEP)]
    pub keep_daily: u32,
    /// Keep one snapshot of each week (Monday to Sunday), for this number of newest weeks with snapshots.
    #[arg(long, default_value_t, value_name = "N", help_heading = KEEP)]
    pub keep_weekly: u32,
    /// Keep one snapshot of each month, for this number of newest months with snapshots.
    #[arg(long, default_value_t, value_name = "N", help_heading = KEEP)]
    pub keep_monthly: u32,
    /// Keep one snapshot of each year, for this number of newest years with snapshots.
    #[arg(long, default_value_t, value_name = "N", help_heading = KEEP)]
    pub keep_yearly: u32,
    /// Keep all snapshots that are at most this much older than the newest snapshot, such as `6h` or `48h`.
    #[arg(long, value_name = "DURATION", help_heading = KEEP)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_within: Option<SignedDuration>,
    /// Keep the log of revisions up to this age, counted from its end, such as `168h`. The log after the newest proven snapshot
    /// stays in any case. Default: the log stays from the oldest snapshot on.
    #[arg(long, value_name = "DURATION", help_heading = KEEP)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_within: Option<SignedDuration>,
}

/// Heading of the policy's flags, in help texts.
const KEEP: &str = "Policy";

/// Maximum of one count, as in the CRD.
pub const MAX_KEEP: u32 = 1000;

/// Maximum of the sum of all counts.
pub const MAX_KEEP_SUM: u32 = 2000;

impl Policy {
    /// Returns the counts with the names of their fields.
    pub const fn counts(&self) -> [(&'static str, u32); 6] {
        [
            ("keepLast", self.keep_last),
            ("keepHourly", self.keep_hourly),
            ("keepDaily", self.keep_daily),
            ("keepWeekly", self.keep_weekly),
            ("keepMonthly", self.keep_monthly),
            ("keepYearly", self.keep_yearly),
        ]
    }

    /// Checks the policy; returns the problem.
    pub fn check(&self) -> Result<(), String> {
        if let Some((name, count)) = self.counts().into_iter().find(|(_, count)| *count > MAX_KEEP) {
            return Err(format!("{name} is {count}, more than {MAX_KEEP}"));
        }
        let sum: u32 = self.counts().iter().map(|(_, count)| count).sum();
        match self.keep_within {
            _ if sum > MAX_KEEP_SUM => Err(format!("the counts are {sum} together, more than {MAX_KEEP_SUM}")),
            Some(within) if within.is_negative() => Err("keepWithin is negative".to_owned()),
            _ if self.log_within.is_some_and(|within| within.is_negative()) => Err("logWithin is negative".to_owned()),
            _ if sum == 0 => {
                Err("no count is greater than 0. Set one of keepLast, keepHourly, keepDaily, keepWeekly, \
                                  keepMonthly, keepYearly, or leave the policy out to keep everything"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// `agent prune`: judge the snapshots of one schedule, announce the removals, and remove what was announced before.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PruneRequest {
    /// Store to prune.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Store ID that the store must have, as `agent probe` prints; the agent prunes no other store. Default: any store.
    #[arg(long, value_name = "ID")]
    pub expect_store_id: Option<String>,
    /// Namespace in the key.
    #[arg(long)]
    pub namespace: String,
    /// Cluster in the key.
    #[arg(long)]
    pub cluster: String,
    /// UID of the `EtcdCluster`, in full.
    #[arg(long, value_name = "UID")]
    pub cluster_uid: String,
    /// UID of the `EtcdSnapshotSchedule` whose snapshots the policy judges; all other snapshots stay.
    #[arg(long, value_name = "UID")]
    pub schedule_uid: String,
    /// Rules of the policy.
    #[command(flatten)]
    pub policy: Policy,
    /// Time zone of hours, days, weeks, months and years.
    #[arg(long, value_name = "ZONE", default_value = UTC, help_heading = KEEP)]
    pub time_zone: String,
    /// Time that the newest snapshot's save must not precede (RFC 3339); the operator gives the schedule's due time before
    /// the last. If backups have stopped, the agent removes nothing. Default: not checked.
    #[arg(long, value_name = "TIME")]
    pub newest_after: Option<Timestamp>,
    /// Key of a snapshot to keep, for example because a restore reads it; repeatable. The key of the lineage
    /// (`NAMESPACE/CLUSTER/LINEAGE`) keeps every snapshot and the whole log.
    #[arg(long = "protect", value_name = "KEY")]
    pub protect: Vec<String>,
    /// Key of a snapshot that has far fewer keys or a lower revision than the snapshot before, if this is intended.
    #[arg(long, value_name = "KEY")]
    pub accept_anomaly: Option<String>,
    /// Least age of an announcement in seconds before the agent removes what it names.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_ANNOUNCED_SECONDS, hide = true)]
    pub announced_seconds: u32,
    /// Time that an announcement must not precede to permit a removal (RFC 3339); the operator gives the last change of the
    /// policy. Default: not checked.
    #[arg(long, value_name = "TIME", hide = true)]
    pub announced_after: Option<Timestamp>,
    /// Time after which the agent removes nothing more (RFC 3339), however late its Pod has started. Default: not checked.
    #[arg(long, value_name = "TIME", hide = true)]
    pub not_after: Option<Timestamp>,
    /// UID of the Pod that runs this command. In a Pod, set by the environment.
    #[arg(long, value_name = "UID", env = POD_UID, hide = true)]
    pub pod_uid: Option<String>,
    /// Judge and print only: announce nothing, remove nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Time limit in seconds.
    #[arg(long, default_value_t = DEFAULT_PRUNE_DEADLINE_SECONDS)]
    pub deadline_seconds: u32,
}

/// The default time zone.
pub const UTC: &str = "Etc/UTC";

/// An hour: enough to see an announcement, and to hold a snapshot or suspend the pruning.
pub const DEFAULT_ANNOUNCED_SECONDS: u32 = 3600;

/// Ten minutes: 5000 snapshots take a distant store about three.
pub const DEFAULT_PRUNE_DEADLINE_SECONDS: u32 = 600;

/// Maximum number of snapshots that one run removes: a wrong policy shows before many are gone.
pub const MAX_REMOVED: usize = 20;

/// Maximum number of segments of the log that one run removes: the request for each takes some milliseconds.
pub const MAX_REMOVED_SEGMENTS: usize = 10_000;

/// Report of `agent prune` and `agent remove` in the termination message; a failed remove writes [`super::Report::Failed`]. The
/// limit of every report applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum RemovalReport {
    /// The agent has judged the snapshots of a schedule, with any result.
    Pruned(Box<PruneReport>),
    /// The agent has removed a snapshot.
    Removed(RemovedReport),
}

impl RemovalReport {
    /// Shortens the report; `false` when nothing is left to cut.
    pub fn cut(&mut self) -> bool {
        match self {
            Self::Pruned(pruned) => pruned.cut(),
            Self::Removed(removed) => removed.unknown_files.pop().is_some(),
        }
    }
}

/// Result of `agent prune`: numbers for the operator, also of a failed run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PruneReport {
    /// Snapshots of the schedule that the policy keeps.
    pub kept: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Folders of the lineage that the policy does not judge: other origins, held, incomplete, broken.
    pub untouched: u64,
    /// Key of the newest snapshot of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// Valid announcements; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<Announced>,
    /// Snapshots that the policy drops and that are not announced yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unannounced: u64,
    /// Snapshots that the policy drops and the store locks; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked: Option<LockedPile>,
    /// The log of the lineage; absent: there is none, or the run did not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PrunedLog>,
    /// Key of the announcement that this run wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// Snapshots that this run removed.
    #[serde(default)]
    pub removed: u64,
    /// Their stored bytes.
    #[serde(default)]
    pub removed_bytes: u64,
    /// Files in folders of removed snapshots that the agent does not know and left, at most [`MAX_NAMED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_files: Vec<String>,
    /// Earlier lineages of the cluster's name, which no policy judges, at most [`MAX_NAMED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_lineages: Vec<String>,
    /// Why this run announced and removed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// Why the run ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedReport>,
}

/// Maximum number of names in one list of a report.
pub const MAX_NAMED: usize = 5;

/// Serde passes a reference.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Announced snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Announced {
    /// Number.
    pub count: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Start of the oldest snapshot's save.
    pub oldest: Timestamp,
    /// Start of the newest snapshot's save.
    pub newest: Timestamp,
    /// Earliest time at which a run removes one of them.
    pub not_before: Timestamp,
}

/// The segments of a lineage's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrunedLog {
    /// Segments that the run left.
    pub segments: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// How many of them may go: no snapshot that stays needs them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unneeded: u64,
    /// How many of these are announced.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub announced: u64,
    /// Earliest time at which a run removes announced segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Segments that the store locks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub locked: u64,
    /// Segments that this run removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed: u64,
    /// Their stored bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed_bytes: u64,
    /// Why the whole log stays, or why the run did not read it, or why `logWithin` removes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl PrunedLog {
    /// Adds the numbers of another log of the lineage.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            segments: self.segments + other.segments,
            bytes: self.bytes + other.bytes,
            unneeded: self.unneeded + other.unneeded,
            announced: self.announced + other.announced,
            not_before: self.not_before.into_iter().chain(other.not_before).min(),
            locked: self.locked + other.locked,
            removed: self.removed + other.removed,
            removed_bytes: self.removed_bytes + other.removed_bytes,
            kept: self.kept.or(other.kept),
        }
    }
}

/// Snapshots that the store locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockedPile {
    /// Number.
    pub count: u64,
    /// End of the first lock that ends; absent: legal holds only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Reason for which a run announced and removed nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// The reason for conditions, such as `SnapshotAnomaly`.
    pub reason: String,
    /// The problem and the remedy.
    pub message: String,
}

impl PruneReport {
    fn cut(&mut self) -> bool {
        if self.unknown_files.pop().is_some() || self.earlier_lineages.pop().is_some() {
            return true;
        }
        if self.log.as_mut().is_some_and(|log| log.kept.take().is_some()) {
            return true;
        }
        let words = [self.stopped.as_mut().map(|it| &mut it.message), self.failed.as_mut().map(|it| &mut it.message)];
        words.into_iter().flatten().max_by_key(|words| words.len()).is_some_and(super::outcome::halve)
    }
}

/// `agent remove`: remove one snapshot from a store.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RemoveRequest {
    /// Store that holds the snapshot.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Store ID that the store must have, as `agent probe` prints; the agent removes nothing from another store. Default:
    /// any store.
    #[arg(long, value_name = "ID")]
    pub expect_store_id: Option<String>,
    /// Key of the snapshot: its folder below the store's prefix.
    pub key: String,
    /// sha256 (hex) of the snapshot's manifest.json; the agent removes no other snapshot.
    #[arg(long, value_name = "SHA256")]
    pub manifest_sha256: String,
    /// UID of the object that requested the snapshot; the agent refuses a snapshot of another object. Default: not
    /// checked.
    #[arg(long, value_name = "UID")]
    pub owner_uid: Option<String>,
    /// Remove the snapshot also if it is the last proven snapshot of its lineage.
    #[arg(long)]
    pub allow_last: bool,
    /// Time after which the agent removes nothing (RFC 3339), however late its Pod has started. Default: not checked.
    #[arg(long, value_name = "TIME", hide = true)]
    pub not_after: Option<Timestamp>,
    /// UID of the Pod that runs this command. In a Pod, set by the environment.
    #[arg(long, value_name = "UID", env = POD_UID, hide = true)]
    pub pod_uid: Option<String>,
    /// Time limit in seconds.
    #[arg(long, default_value_t = DEFAULT_PRUNE_DEADLINE_SECONDS)]
    pub deadline_seconds: u32,
}

/// Result of `agent remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedReport {
    /// Key of the snapshot.
    pub key: String,
    /// Stored bytes that this run removed; 0: the snapshot was already gone.
    pub bytes: u64,
    /// Files in the folder that the agent does not know and left, at most [`MAX_NAMED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_files: Vec<String>,
    /// Why the agent refused, and removed nothing: `Held`, `Locked`, `LastProven`, `NotTheSnapshot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Stopped>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_a_count_and_no_count_is_too_high() {
        let day = Policy { keep_daily: 7, ..Policy::default() };
        for (policy, says) in [
            (day.clone(), None),
            (Policy { keep_within: Some(SignedDuration::from_hours(6)), ..day.clone() }, None),
            (Policy::default(), Some("no count is greater than 0")),
            (Policy { keep_within: Some(SignedDuration::from_hours(6)), ..Policy::default() }, Some("no count")),
            (
                Policy { keep_within: Some(SignedDuration::from_hours(-6)), ..day.clone() },
                Some("keepWithin is negative"),
            ),
            (Policy { log_within: Some(SignedDuration::from_hours(-6)), ..day.clone() }, Some("logWithin is negative")),
            (Policy { keep_yearly: 1001, ..day.clone() }, Some("keepYearly is 1001")),
            (Policy { keep_last: u32::MAX, ..day.clone() }, Some("keepLast")),
            (Policy { keep_last: 1000, keep_hourly: 1000, ..day }, Some("2007 together")),
        ] {
            let checked = policy.check();
            assert_eq!(checked.is_err(), says.is_some(), "{policy:?}: {checked:?}");
            assert!(says.is_none_or(|says| checked.unwrap_err().contains(says)), "{policy:?}");
        }
        // As the help and the CRD write it.
        assert_eq!("48h".parse::<SignedDuration>().unwrap(), SignedDuration::from_hours(48));
    }
}
