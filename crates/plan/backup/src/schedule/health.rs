//! Age of the newest backup, compared with the schedule.
//!
//! Decides when a backup is overdue, and the health of all backups of a cluster. Reads only a schedule's spec and status, so
//! that conditions and metrics agree.

use holdfast_api::EtcdSnapshotSchedule;
use holdfast_api::condition::{self, Reason, Type, Wanted};
use holdfast_api::schedule::{EtcdSnapshotScheduleSpec, EtcdSnapshotScheduleStatus, SkippedRun};
use jiff::{SignedDuration, Timestamp};

use super::{Line, facts};
use holdfast_base::meta;

/// Whether the newest backup is fresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fresh {
    /// `None`: not known yet.
    pub state: Option<bool>,
    /// Reason of the condition.
    pub reason: Reason,
    /// Message of the condition.
    pub message: String,
}

/// Returns when the newest backup is overdue: two due times and the starting deadline after the backup, or after the schedule's
/// start.
pub fn overdue_at(
    spec: &EtcdSnapshotScheduleSpec,
    status: &EtcdSnapshotScheduleStatus,
    line: &Line,
) -> Option<Timestamp> {
    let began = facts::time(status.active_since.as_ref())?;
    let taken = facts::time(status.last_successful.as_ref().map(|last| &last.taken_at));
    late_at(spec, line, taken.map_or(began, |taken| taken.max(began)))
}

fn late_at(spec: &EtcdSnapshotScheduleSpec, line: &Line, since: Timestamp) -> Option<Timestamp> {
    let second = line.next(line.next(since)?)?;
    Some(second + SignedDuration::from_secs(spec.starting_deadline().into()))
}

/// Returns the freshness of the newest backup, from a status that is complete except for its conditions.
pub fn fresh(
    spec: &EtcdSnapshotScheduleSpec,
    status: &EtcdSnapshotScheduleStatus,
    line: &Line,
    now: Timestamp,
) -> Fresh {
    let freshness = |state, reason, message| Fresh { state, reason, message };
    let newest = match &status.last_successful {
        Some(last) => format!("the newest complete backup was taken at {} (EtcdSnapshot {})", last.taken_at, last.name),
        None => "there is no complete backup yet".to_owned(),
    };
    let skipped = status.skipped.as_ref().map(no_run_began);
    if let Some(failed) = status.last_failed.as_ref().filter(|_| status.consecutive_failures > 0) {
        let runs = match status.consecutive_failures {
            1 => "the last run failed".to_owned(),
            many => format!("the last {many} runs failed"),
        };
        let message = format!(
            "{runs}, and {newest}. EtcdSnapshot {} of {}: {}: {}",
            failed.name, failed.at, failed.class, failed.message
        );
        let message = skipped.map_or(message.clone(), |skipped| format!("{message}. {skipped}"));
        return freshness(Some(false), Reason::BackupFailing, message);
    }
    if let Some(due) = overdue_at(spec, status, line).filter(|due| now >= *due) {
        let check = || {
            let cron_job = status.cron_job.as_ref().map(|cron| cron.name.as_str()).unwrap_or_default();
            format!("Check the CronJob and its Jobs: kubectl describe cronjob {cron_job}")
        };
        let message = format!("no run completed by {due}, and {newest}. {}", skipped.unwrap_or_else(check));
        return freshness(Some(false), Reason::BackupOverdue, message);
    }
    if let Some(skipped) = skipped {
        return freshness(Some(false), Reason::RunSkipped, format!("{skipped}. Meanwhile {newest}"));
    }
    let Some(taken) = facts::time(status.last_successful.as_ref().map(|last| &last.taken_at)) else {
        return freshness(None, Reason::NoBackupYet, newest);
    };
    // After a pause: the newest backup is older than the schedule allows, and the next backup is not late yet.
    if late_at(spec, line, taken).is_some_and(|late| now >= late) {
        return freshness(
            None,
            Reason::NoBackupYet,
            format!("no run completed since the schedule resumed, and {newest}"),
        );
    }
    freshness(Some(true), Reason::BackupRecent, newest)
}

/// Returns the sentence about a skipped run, with the remedy.
fn no_run_began(skipped: &SkippedRun) -> String {
    let SkippedRun { at, job, active_since } = skipped;
    format!(
        "No run began at {at}, because Job {job} of an earlier run is active since {active_since}. `kubectl describe etcdsnap \
         {job}` names what the Job waits for; `kubectl delete job {job}` ends it. Where saves take longer than the period, \
         choose a longer period"
    )
}

/// Returns `BackupHealthy` of a cluster: the worst of its schedules.
pub fn healthy<'a>(schedules: impl IntoIterator<Item = &'a EtcdSnapshotSchedule>) -> Wanted {
    let mut all: Vec<_> = schedules.into_iter().map(freshness).collect();
    all.sort_by_key(|(name, fresh)| (rank(fresh), name.clone()));
    let Some((name, fresh)) = all.into_iter().next() else {
        let message = "no EtcdSnapshotSchedule names this cluster. Create one for recurring backups";
        return Wanted::unknown(Type::BackupHealthy, Reason::NoSchedule, message);
    };
    let message = format!("EtcdSnapshotSchedule {name}: {}", fresh.message);
    Wanted { kind: Type::BackupHealthy, state: fresh.state, reason: fresh.reason, message }
}

/// Orders the worst first.
const fn rank(fresh: &Fresh) -> u8 {
    match fresh.state {
        Some(false) => 0,
        None => 1,
        Some(true) => 2,
    }
}

/// Returns the schedule's name and the worse of its own conditions.
fn freshness(schedule: &EtcdSnapshotSchedule) -> (String, Fresh) {
    let conditions = schedule.status.iter().flat_map(|s| &s.conditions);
    let known = condition::find(conditions, Type::Fresh).and_then(|c| Some((c, Reason::named(&c.reason)?)));
    let unread = || Fresh {
        state: None,
        reason: Reason::NoBackupYet,
        message: "Holdfast has not read the schedule yet".to_owned(),
    };
    let fresh = known.map_or_else(unread, |(c, reason)| {
        let state = match c.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        };
        Fresh { state, reason, message: c.message.clone() }
    });
    let worst = match fresh.state {
        Some(false) => fresh,
        _ => not_rehearsed(schedule).or_else(|| not_logged(schedule)).or_else(|| not_merged(schedule)).unwrap_or(fresh),
    };
    (meta::name(&schedule.metadata).to_owned(), worst)
}

/// Returns the condition `Rehearsed` of a schedule with drills, where it is False: a drill that is still to come is no fault.
fn not_rehearsed(schedule: &EtcdSnapshotSchedule) -> Option<Fresh> {
    schedule.spec.drill.as_ref()?;
    failed(schedule, Type::Rehearsed)
}

/// Returns the condition `LogCurrent` of a schedule with a log, where it is False.
fn not_logged(schedule: &EtcdSnapshotSchedule) -> Option<Fresh> {
    schedule.spec.log.as_ref()?;
    failed(schedule, Type::LogCurrent)
}

/// Returns the condition `Merged` of a schedule with merges, where it is False.
fn not_merged(schedule: &EtcdSnapshotSchedule) -> Option<Fresh> {
    schedule.spec.log.as_ref()?.compaction.as_ref()?;
    failed(schedule, Type::Merged)
}

/// Returns a condition that is False.
fn failed(schedule: &EtcdSnapshotSchedule, kind: Type) -> Option<Fresh> {
    let conditions = schedule.status.iter().flat_map(|s| &s.conditions);
    let condition = condition::find_with_status(conditions, kind, "False")?;
    let reason = Reason::named(&condition.reason)?;
    Some(Fresh { state: Some(false), reason, message: condition.message.clone() })
}
