//! `EtcdSnapshotSchedule`: recurring backups by a Kubernetes `CronJob`, which runs whether the operator runs or not.
//!
//! Decides fields, defaults and what CEL refuses. Lines and zones that only a parser can judge are `plan::schedule`'s.

#![allow(
    clippy::struct_field_names,
    reason = "keepLast and its like are the names of backup tools; a derive copies the struct"
)]

use holdfast_contract::Level;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cron::CronJobRef;
use crate::drill::{Drill, DrillStatus};
use crate::log::{Log, LogStatus};
use crate::name::LocalRef;
use crate::snapshot::{External, SnapshotTemplate};

/// Recurring backups of one etcd cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "EtcdSnapshotSchedule",
    plural = "etcdsnapshotschedules",
    shortname = "etcdsched",
    category = "etcd",
    namespaced,
    status = "EtcdSnapshotScheduleStatus",
    derive = "PartialEq",
    derive = "Default",
    selectable = ".spec.clusterRef.name",
    doc = "Recurring backups of one etcd cluster. A CronJob runs them, also while the operator is down; each run is recorded as an EtcdSnapshot.",
    printcolumn(name = "CLUSTER", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "SCHEDULE", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "SUSPEND", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(
        name = "NEXT",
        type_ = "string",
        json_path = ".status.nextTime",
        description = "next due time, in UTC"
    ),
    printcolumn(
        name = "LAST-SUCCESS",
        type_ = "date",
        json_path = ".status.lastSuccessful.takenAt",
        description = "age of the newest complete backup"
    ),
    printcolumn(
        name = "PROVEN",
        type_ = "string",
        json_path = ".status.lastSuccessful.level",
        description = "level of proof of the newest complete backup: HashKV (members agree), Structure, Trailer"
    ),
    printcolumn(
        name = "FRESH",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Fresh\")].status",
        description = "False when a backup is overdue or failed: see the condition's message"
    ),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "RETENTION",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"RetentionApplied\")].status",
        description = "False when Holdfast does not remove what spec.retention does not keep: see the condition's message",
        priority = 1
    ),
    printcolumn(
        name = "REHEARSED",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Rehearsed\")].status",
        description = "False when a drill found broken bytes, or no drill has passed in time: see the condition's message",
        priority = 1
    ),
    printcolumn(
        name = "RTO",
        type_ = "integer",
        json_path = ".status.drill.lastPassed.rtoSeconds",
        description = "seconds that the newest passed drill took to restore the snapshot and to serve it",
        priority = 1
    ),
    printcolumn(
        name = "RPO",
        type_ = "integer",
        json_path = ".status.log.rpoSeconds",
        description = "seconds of changes that would be lost with the cluster: the largest age of the stored log in ten minutes",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.clusterRef) != has(self.external)")
        .message("a schedule needs exactly one of clusterRef and external"),
    validation = Rule::new("has(self.clusterRef) == has(oldSelf.clusterRef) && (!has(self.clusterRef) || self.clusterRef == oldSelf.clusterRef) && has(self.external) == has(oldSelf.external) && (!has(self.external) || self.external == oldSelf.external)")
        .message("clusterRef and external are immutable: create another EtcdSnapshotSchedule for another etcd"),
    validation = Rule::new("!has(self.retention) || has(self.clusterRef)")
        .message("retention needs clusterRef: Holdfast removes no snapshots of an external etcd"),
    validation = Rule::new("!has(self.drill) || has(self.clusterRef)")
        .message("drill needs clusterRef: Holdfast does not know the etcd version of an external etcd"),
    validation = Rule::new("!has(self.drill) || !has(self.snapshotTemplate.encryption) || (has(self.drill.identitySecretRefs) && size(self.drill.identitySecretRefs) > 0)")
        .message("drill.identitySecretRefs needs a Secret with an age identity, because snapshotTemplate.encryption encrypts the snapshots"),
    validation = Rule::new("!has(self.log) || !has(self.log.compaction) || !has(self.snapshotTemplate.encryption) || (has(self.log.compaction.identitySecretRefs) && size(self.log.compaction.identitySecretRefs) > 0)")
        .message("log.compaction.identitySecretRefs needs a Secret with an age identity, because snapshotTemplate.encryption encrypts the log"),
    validation = Rule::new("!has(self.log) || !has(self.snapshotTemplate.destination.pvc)")
        .message("log needs an object store: two Pods on two nodes cannot share the volume of destination.pvc. Name storeRef, s3, azure or gcs"),
    validation = Rule::new("!has(self.retention) || !has(self.retention.logWithin) || has(self.log)")
        .message("retention.logWithin needs log")
)]
pub struct EtcdSnapshotScheduleSpec {
    /// `EtcdCluster` to back up. The backups begin when the cluster has formed. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<LocalRef>,
    /// An etcd that Holdfast does not run, to back up instead of `clusterRef`. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// Due times as cron writes them: minute, hour, day of month, month, day of week (0 is Sunday); or `@hourly`,
    /// `@daily` (`@midnight`), `@weekly`, `@monthly`, `@yearly` (`@annually`).
    // Not a pattern: of a pattern the API server shows the expression only.
    #[schemars(length(min = 1, max = 120))]
    #[x_kube(validation = Rule::new(crate::cron::LINE).message(crate::cron::LINE_WORDS))]
    pub schedule: String,
    /// Time zone of the due times, by its name in the IANA database. Default: `Etc/UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = crate::cron::ZONE))]
    #[x_kube(validation = Rule::new(crate::cron::NAMED_ZONE).message(crate::cron::NAMED_ZONE_WORDS))]
    pub time_zone: Option<String>,
    /// Start no run while this is true. A run that has started goes on.
    #[serde(default)]
    pub suspend: bool,
    /// How many seconds a run may start late, after an outage of the CronJob controller for example; 30 to 86400, default
    /// 600. A run that is later is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 86400))]
    pub starting_deadline_seconds: Option<u32>,
    /// Largest delay of a run in seconds, so that many schedules of one minute do not begin at once; 0 to 600, default 30.
    /// The delay of one schedule is always the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 600))]
    pub spread_seconds: Option<u32>,
    /// Number of EtcdSnapshots of complete runs that are kept as objects, 1 to 1000; default 50. The store keeps the
    /// snapshots: `latest` and `source.key` of a restore find them without an object. Those whose Jobs still exist, that are
    /// held or being restored, or that have `deletionPolicy: Delete` are kept in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub successful_history_limit: Option<u32>,
    /// Number of EtcdSnapshots of failed runs that are kept, 0 to 50; default 3. Those whose Jobs still exist are kept in
    /// any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 50))]
    pub failed_history_limit: Option<u32>,
    /// Which of this schedule's snapshots stay in the store. Holdfast announces a removal an hour before. Default: all
    /// snapshots stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Remove no snapshot while this is true. A removal that has started goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend_pruning: bool,
    /// Regular restores of the newest snapshot into a scratch folder, where an etcd serves it. Default: no drills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<Drill>,
    /// A log of every revision beside the snapshots, for restores to any revision or second (`bootstrap.restore.at`). Default:
    /// no log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Log>,
    /// Destination and form of each run's snapshot. A change holds from the next run on.
    pub snapshot_template: SnapshotTemplate,
}

/// Which snapshots of a schedule stay. A snapshot that any rule keeps stays; the newest snapshot, the newest two proven
/// snapshots and all snapshots younger than an hour stay in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.keepLast) ? self.keepLast : 0, has(self.keepHourly) ? self.keepHourly : 0, has(self.keepDaily) ? self.keepDaily : 0, has(self.keepWeekly) ? self.keepWeekly : 0, has(self.keepMonthly) ? self.keepMonthly : 0, has(self.keepYearly) ? self.keepYearly : 0].exists(count, count > 0)")
        .message("retention needs a count above 0: keepLast, keepHourly, keepDaily, keepWeekly, keepMonthly or keepYearly; to keep all snapshots, leave retention out"),
    validation = Rule::new("(has(self.keepLast) ? self.keepLast : 0) + (has(self.keepHourly) ? self.keepHourly : 0) + (has(self.keepDaily) ? self.keepDaily : 0) + (has(self.keepWeekly) ? self.keepWeekly : 0) + (has(self.keepMonthly) ? self.keepMonthly : 0) + (has(self.keepYearly) ? self.keepYearly : 0) <= 2000")
        .message("the counts of retention must not exceed 2000 together")
)]
pub struct Retention {
    /// Number of newest snapshots that stay, 0 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub keep_last: Option<u32>,
    /// Number of newest hours of which one snapshot stays, 0 to 1000. Hours without a snapshot do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub keep_hourly: Option<u32>,
    /// Number of newest days of which one snapshot stays, 0 to 1000. Days, like the other periods, are those of
    /// `spec.timeZone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub keep_daily: Option<u32>,
    /// Number of newest weeks (Monday to Sunday) of which one snapshot stays, 0 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub keep_weekly: Option<u32>,
    /// Number of newest months of which one snapshot stays, 0 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub keep_monthly: Option<u32>,
    /// Number of newest years of which one snapshot stays, 0 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub keep_yearly: Option<u32>,
    /// Age up to which all snapshots stay, counted from the newest snapshot, in days, hours and minutes: `6h`, `2d12h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 20))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,6}m)?$')").message("keepWithin needs days, hours and minutes, such as 6h or 2d12h"))]
    pub keep_within: Option<String>,
    /// Age up to which the log stays, counted from its end, in days, hours and minutes: `7d`. The log after the newest snapshot
    /// stays in any case. Default: the log stays from the oldest kept snapshot on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 20))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,6}m)?$')").message("logWithin needs days, hours and minutes, such as 6h or 2d12h"))]
    pub log_within: Option<String>,
}

/// Seconds that a run may start late.
pub const DEFAULT_STARTING_DEADLINE_SECONDS: u32 = 600;
/// Largest delay of a run in seconds.
pub const DEFAULT_SPREAD_SECONDS: u32 = 30;
/// Records of failed runs that are kept.
pub const DEFAULT_FAILED_HISTORY_LIMIT: u32 = 3;
/// Records of complete runs that are kept.
pub const DEFAULT_SUCCESSFUL_HISTORY_LIMIT: u32 = 50;

impl EtcdSnapshotScheduleSpec {
    /// Seconds that a run may start late.
    pub fn starting_deadline(&self) -> u32 {
        self.starting_deadline_seconds.unwrap_or(DEFAULT_STARTING_DEADLINE_SECONDS)
    }

    /// Largest delay of a run in seconds.
    pub fn spread(&self) -> u32 {
        self.spread_seconds.unwrap_or(DEFAULT_SPREAD_SECONDS)
    }

    /// Records of complete runs that are kept.
    pub fn successful_limit(&self) -> usize {
        self.successful_history_limit.unwrap_or(DEFAULT_SUCCESSFUL_HISTORY_LIMIT) as usize
    }

    /// Records of failed runs that are kept.
    pub fn failed_limit(&self) -> usize {
        self.failed_history_limit.unwrap_or(DEFAULT_FAILED_HISTORY_LIMIT) as usize
    }
}

/// State that the operator last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdSnapshotScheduleStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The `CronJob` that runs the backups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron_job: Option<CronJobRef>,
    /// Next due time (RFC 3339, UTC). Absent while no run starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_time: Option<String>,
    /// Start of the newest recorded run (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_time: Option<String>,
    /// EtcdSnapshots of runs that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<String>,
    /// The run that did not begin because an earlier run has not ended. Absent when that run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<SkippedRun>,
    /// The newest complete backup. Stays when its `EtcdSnapshot` is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful: Option<LastSuccessful>,
    /// The newest failed run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failed: Option<LastFailed>,
    /// Number of runs that failed since the newest complete backup.
    #[serde(default)]
    pub consecutive_failures: u32,
    /// Start of the newest run up to which all runs are recorded (RFC 3339). Later runs may be missing after an outage of
    /// the operator; a Job then asks the store for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled_through: Option<String>,
    /// Since when the `CronJob` has started runs: its creation, or the end of a suspension (RFC 3339). A backup is overdue
    /// two due times after this at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_since: Option<String>,
    /// Number of recorded snapshots that `spec.retention` keeps. Absent without `spec.retention`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// Their stored bytes, and those of the log when the last Job had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Snapshots whose removal is announced in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<Announced>,
    /// Snapshots that `spec.retention` does not keep and the store locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked: Option<Locked>,
    /// Folders of earlier `EtcdCluster`s of the name, at most 5, as the last Job found them: no retention judges these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_lineages: Vec<String>,
    /// Number of snapshots that Holdfast has removed for this schedule.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pruned: u64,
    /// Result of the last Job that announced and removed snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_prune: Option<LastPrune>,
    /// The policy as it is applied. Announcements from before its last change permit no removal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<AppliedPolicy>,
    /// The Job that announces and removes snapshots now, written before the Job exists. An `EtcdCluster` that restores a
    /// snapshot which this Job does not protect waits until the Job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune_run: Option<PruneRun>,
    /// Results of the drills. Absent without `spec.drill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillStatus>,
    /// State of the log. Absent without `spec.log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogStatus>,
    /// `Ready`, `Fresh`; with `spec.retention` `RetentionApplied`, with `spec.drill` `Rehearsed`, and with `spec.log`
    /// `LogCurrent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The newest complete backup of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastSuccessful {
    /// Name of the `EtcdSnapshot`.
    pub name: String,
    /// Folder of the snapshot below the store's prefix; the value for `bootstrap.restore.source.key`.
    pub key: String,
    /// Start of the run (RFC 3339): the backup is at least as new.
    pub taken_at: String,
    /// Revision of the key space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Level of proof.
    pub level: Level,
    /// Size of the database in bytes.
    pub db_bytes: u64,
    /// Size of the stored object in bytes.
    pub stored_bytes: u64,
    /// Seconds from the start of the run to its end.
    pub seconds: i64,
}

/// A run that did not begin because an earlier run has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkippedRun {
    /// Due time of the run (RFC 3339, UTC): the first one after the start of the earlier run.
    pub at: String,
    /// Name of the Job of the earlier run.
    pub job: String,
    /// Since when that Job is active (RFC 3339).
    pub active_since: String,
}

/// The newest failed run of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastFailed {
    /// Name of the `EtcdSnapshot`.
    pub name: String,
    /// Start of the run (RFC 3339).
    pub at: String,
    /// Class of the error, as in `status.error` of the `EtcdSnapshot`.
    pub class: String,
    /// Problem and remedy.
    pub message: String,
}

/// Serde takes a reference.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The policy that is applied, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppliedPolicy {
    /// Fingerprint of `spec.retention`, `spec.timeZone` and `spec.suspendPruning`.
    pub fingerprint: String,
    /// Time of the last change (RFC 3339).
    pub since: String,
}

/// Snapshots whose removal is announced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Announced {
    /// Number.
    pub count: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Begin of the oldest one's save (RFC 3339).
    pub oldest: String,
    /// Begin of the newest one's save (RFC 3339).
    pub newest: String,
    /// Earliest time at which Holdfast removes one of them (RFC 3339).
    pub not_before: String,
}

/// Snapshots that the store locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Locked {
    /// Number.
    pub count: u64,
    /// End of the first lock that ends (RFC 3339). Absent: legal holds, which a person has to remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// Result of a Job that announces and removes snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastPrune {
    /// Name of the Job.
    pub job: String,
    /// End of the Job (RFC 3339).
    pub at: String,
    /// Number of snapshots that the Job removed. Absent: the Job's report is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// Why the Job ended early or removed nothing: a class as in `status.error` of an `EtcdSnapshot`, or `SnapshotAnomaly`,
    /// `BackupOverdue` and the like. Absent when all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Problem and remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Files in folders of removed snapshots that the Job does not know and left, at most 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_files: Vec<String>,
    /// End of the first of the consecutive Jobs with a `class` (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// The log after the last Job that reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PrunedLog>,
    /// Recorded snapshots that `spec.retention` does not keep and no Job has removed yet. With more of them the operator starts another Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
}

/// The log of a cluster after a Job that announced and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrunedLog {
    /// Number of stored segments.
    pub segments: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Number of segments that the Job removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed: u64,
    /// Earliest time at which a Job removes announced segments (RFC 3339). Absent: none is announced, or the store locks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// Why the whole log stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// A Job that announces and removes snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PruneRun {
    /// Name of the Job.
    pub job: String,
    /// Time of the decision (RFC 3339).
    pub latched_at: String,
    /// Folder whose snapshots the Job judges, below the store's prefix.
    pub lineage: String,
    /// Begin of the oldest save that the policy does not keep (RFC 3339).
    pub oldest: String,
    /// Begin of the newest save that the policy does not keep (RFC 3339).
    pub newest: String,
    /// Keys of the snapshots that restores read, which the Job keeps; written once. Absent until the operator has read the
    /// EtcdClusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protects: Option<Vec<String>>,
    /// End of the Job (RFC 3339). From then on the operator asks the store which snapshots are gone, and deletes their
    /// `EtcdSnapshot`s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Begin of the newest save up to which the store was asked (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_through: Option<String>,
}
