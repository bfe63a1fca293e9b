//! A schedule's whole status, computed on every pass, and the Events of its changes.
//!
//! Decides what the status reports; `plan.rs` decides the step. The entry of the newest backup stays after its record is
//! deleted, since the stored snapshot stays, too.

use holdfast_api::EtcdSnapshotScheduleStatus;
use holdfast_api::condition::{Reason, Type, Wanted, merge};
use holdfast_api::schedule::{LastFailed, LastSuccessful};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::applied::Pruning;
use super::beside;
use super::drill::Drills;
use super::facts::{self, Run};
use super::health::{self, Fresh};
use super::log::Logging;
use super::{Line, Observed, skipped};
use holdfast_base::meta;

/// Standing of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standing {
    /// The spec has no valid due times, or an object of another owner has the `CronJob`'s name.
    Wrong(Reason, String),
    /// No `CronJob` exists; the reason, or the operator creates the `CronJob` now.
    Waits(Reason, String),
    /// The `CronJob` exists and starts no run.
    Halted(Reason, String),
    /// The `CronJob` exists; why the `CronJob` differs from the spec.
    Runs(Option<(Reason, String)>),
}

/// Returns the status before the next step.
pub(super) fn whole(
    seen: &Observed,
    standing: &Standing,
    (line, runs): (Option<&Line>, &[Run<'_>]),
    recalled_through: Option<Timestamp>,
    (pruning, drills, log): (Pruning, Drills, &mut Logging),
    now: Timestamp,
) -> EtcdSnapshotScheduleStatus {
    let meta = &seen.schedule.metadata;
    let old = seen.schedule.status.clone().unwrap_or_default();
    let cron_job = seen.own_cron_job().map(beside::reference);
    let starts = matches!(standing, Standing::Runs(_));
    let next = line.filter(|_| starts).and_then(|line| line.next(now));
    let last_successful = latest_success(seen, old.last_successful.as_ref(), runs);
    let (last_failed, consecutive_failures) = failures(&old, last_successful.as_ref(), runs);
    let mut status = EtcdSnapshotScheduleStatus {
        observed_generation: meta.generation,
        cron_job,
        next_time: next.map(|at| at.to_string()),
        last_time: runs.last().map(|run| run.job.started_at.clone()).or(old.last_time),
        active: runs.iter().filter(|run| !run.phase().is_final()).map(|run| run.name().to_owned()).collect(),
        skipped: line.filter(|_| starts).and_then(|line| skipped::skipped(seen, line, now)),
        last_successful,
        last_failed,
        consecutive_failures,
        recalled_through: recalled_through.map(|at| at.to_string()).or(old.recalled_through),
        // A mistake in the spec neither hides an overdue backup nor restarts its time.
        active_since: match standing {
            Standing::Runs(_) => Some(old.active_since.unwrap_or_else(|| now.to_string())),
            Standing::Wrong(..) => old.active_since,
            Standing::Waits(..) | Standing::Halted(..) => None,
        },
        kept: pruning.kept,
        bytes: pruning.bytes,
        announced: pruning.announced,
        locked: pruning.locked,
        earlier_lineages: pruning.earlier_lineages,
        pruned: pruning.pruned,
        last_prune: pruning.last,
        policy: pruning.policy,
        prune_run: pruning.run,
        drill: drills.status,
        log: log.status.take(),
        conditions: vec![],
    };
    let fresh = fresh(seen, standing, line, &status, now);
    let fresh = Wanted { kind: Type::Fresh, state: fresh.state, reason: fresh.reason, message: fresh.message };
    // Drops the old Degraded condition; the operator sets it again if the failure persists.
    let again = [Type::Degraded, Type::RetentionApplied, Type::Rehearsed, Type::LogCurrent, Type::Merged];
    let again = again.map(Type::as_str);
    let of_log = log.condition.take().into_iter().chain(log.merged.take());
    let more: Vec<_> = pruning.condition.into_iter().chain(drills.condition).chain(of_log).collect();
    let kept = |c: &Condition| !again.contains(&c.type_.as_str()) || more.iter().any(|w| w.kind.as_str() == c.type_);
    let kept: Vec<_> = old.conditions.into_iter().filter(kept).collect();
    let wanted: Vec<_> = [ready(standing), fresh].into_iter().chain(more.clone()).collect();
    status.conditions = merge(&kept, &wanted, meta.generation, now);
    status
}

fn ready(standing: &Standing) -> Wanted {
    let no = |reason: &Reason, message: &String| Wanted::no(Type::Ready, *reason, message);
    match standing {
        // The spec requests the pause.
        Standing::Halted(reason @ (Reason::Suspended | Reason::Parked), message) => {
            Wanted::yes(Type::Ready, *reason, message)
        }
        Standing::Wrong(reason, message) | Standing::Waits(reason, message) | Standing::Halted(reason, message) => {
            no(reason, message)
        }
        Standing::Runs(Some((reason, why))) => {
            let message = format!("the CronJob goes on as it was before the last change of the spec: {why}");
            Wanted::no(Type::Ready, *reason, message)
        }
        Standing::Runs(None) => {
            Wanted::yes(Type::Ready, Reason::AsDesired, "the CronJob runs the backups, also while the operator is down")
        }
    }
}

fn fresh(
    seen: &Observed,
    standing: &Standing,
    line: Option<&Line>,
    status: &EtcdSnapshotScheduleStatus,
    now: Timestamp,
) -> Fresh {
    let unknown = |reason: Reason, message: &str| Fresh { state: None, reason, message: message.to_owned() };
    match (standing, line) {
        (Standing::Runs(_), Some(line)) => health::fresh(&seen.schedule.spec, status, line, now),
        (Standing::Wrong(reason, message), _) if reason.needs_a_person() => {
            Fresh { state: Some(false), reason: *reason, message: message.clone() }
        }
        (Standing::Wrong(reason, why) | Standing::Waits(reason, why) | Standing::Halted(reason, why), _) => {
            unknown(*reason, why)
        }
        (Standing::Runs(_), None) => unknown(Reason::NoBackupYet, "the due times are not known"),
    }
}

/// Returns the newest complete backup ever seen, by the start of its run. A backup of an earlier cluster with the same name is
/// no backup of this cluster.
pub(super) fn latest_success(
    seen: &Observed,
    old: Option<&LastSuccessful>,
    runs: &[Run<'_>],
) -> Option<LastSuccessful> {
    // The third folder of a key: the first eight characters of the cluster's UID.
    let lineage = seen.cluster.as_ref().and_then(|cluster| meta::uid(&cluster.metadata).get(..8));
    let is_of_lineage =
        |last: &LastSuccessful| lineage.is_none_or(|lineage| last.key.split('/').nth(2) == Some(lineage));
    let seen = runs.iter().rev().filter_map(facts::success).find(is_of_lineage);
    let at = |last: &LastSuccessful| last.taken_at.parse::<Timestamp>().ok();
    old.filter(|last| is_of_lineage(last))
        .cloned()
        .into_iter()
        .chain(seen)
        .reduce(|one, other| if at(&other) >= at(&one) { other } else { one })
}

/// Returns the newest failed run, and the number of failed runs since the newest complete run. The count includes runs whose
/// records were deleted beyond the limit.
fn failures(
    old: &EtcdSnapshotScheduleStatus,
    success: Option<&LastSuccessful>,
    runs: &[Run<'_>],
) -> (Option<LastFailed>, u32) {
    let since = facts::time(success.map(|last| &last.taken_at));
    let counted = facts::time(old.last_failed.as_ref().map(|last| &last.at));
    let failed: Vec<(Timestamp, LastFailed)> =
        runs.iter().filter_map(|run| Some((run.at, facts::failure(run)?))).collect();
    let is_new = success.map(|last| &last.taken_at) != old.last_successful.as_ref().map(|last| &last.taken_at);
    let counts = |at: Timestamp| since.is_none_or(|since| at > since);
    let before = if is_new { 0 } else { old.consecutive_failures };
    let new = failed.iter().filter(|(at, _)| counts(*at) && (is_new || counted.is_none_or(|counted| *at > counted)));
    let all = before.saturating_add(u32::try_from(new.count()).unwrap_or(u32::MAX));
    let last = failed.into_iter().map(|(_, last)| last).next_back();
    (last.or_else(|| old.last_failed.clone()), all)
}
