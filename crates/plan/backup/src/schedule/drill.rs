//! Results of a schedule's drills, and the condition `Rehearsed`.
//!
//! Decides what an ended Job proves: broken bytes and objects that kube-apiserver cannot decode are a failed drill, and every other
//! end leaves the last proof as it is.
//! Decides when drills are overdue. `drill_job.rs` decides the `CronJob`.

use holdfast_api::condition::{Reason, Type, Wanted};
use holdfast_api::drill::{DecodedObjects, Drill, DrillStatus, FailedDrill, PassedDrill};
use holdfast_contract::{DrilledReport, ExitClass, KubernetesReport, Report};
use holdfast_layout::attempt_of_key;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::CronJob;

use super::beside::{self, Armed};
use super::drill_job;
use super::{Observed, Recall, facts};
use holdfast_base::job_state::AUTH_ENABLED;
use holdfast_base::jobs::{self, JobState, PATIENCE_MILLIS};
use holdfast_base::objects::job::CONTAINER;
use holdfast_base::{Ensure, Note, Wake, job_state, meta, pods};

/// Time after a due time: the CronJob controller creates the Job within seconds.
const AFTER_DUE: SignedDuration = SignedDuration::from_secs(5);

/// The drills' part of a pass.
#[derive(Debug, Default)]
pub(super) struct Drills {
    /// The status; absent without `spec.drill`.
    pub(super) status: Option<DrillStatus>,
    /// The condition; absent without `spec.drill`.
    pub(super) condition: Option<Wanted>,
    /// The `CronJob` to apply.
    pub(super) ensure: Option<Ensure>,
    /// Events of results that are new.
    pub(super) notes: Vec<Note>,
    /// The next pass.
    pub(super) wake: Option<Wake>,
}

/// Returns the drills' part of a pass.
pub(super) fn decide(seen: &Observed, now: Timestamp) -> Drills {
    let spec = &seen.schedule.spec;
    let apply = |cron| Ensure::CronJob(Box::new(cron));
    let Some(drill) = &spec.drill else {
        return Drills { ensure: drill_job::retire(seen).map(apply), ..Drills::default() };
    };
    let line = beside::line(seen, "spec.drill", (&drill.schedule, drill.time_zone.as_deref()), now);
    let armed = drill_job::arm(seen, drill, line.as_ref().map_err(Clone::clone));
    let old = seen.schedule.status.as_ref().and_then(|status| status.drill.clone()).unwrap_or_default();
    let starts = armed.runs && armed.wrong.is_none();
    let next = line.ok().filter(|_| starts).and_then(|line| line.next(now));
    let mut status = DrillStatus {
        cron_job: seen.own_drill_cron_job().map(beside::reference),
        next_time: next.map(|at| at.to_string()),
        // A mistake in the spec neither hides an overdue drill nor restarts its time.
        active_since: match &armed {
            Armed { wrong: None, runs: true, .. } => Some(old.active_since.clone().unwrap_or_else(|| now.to_string())),
            Armed { wrong: Some(_), .. } => old.active_since.clone(),
            Armed { .. } => None,
        },
        ..old.clone()
    };
    let settling = account(&mut status, seen, now);
    let condition = condition(drill, &status, &armed, now);
    let notes = notes(&old, &status);
    let overdue = overdue_at(drill, &status).filter(|at| *at > now);
    let times = overdue.into_iter().chain(next.map(|at| at + AFTER_DUE)).min().and_then(|at| Wake::at(at, now));
    let wake = if settling { Some(Wake::AfterMillis(PATIENCE_MILLIS)) } else { times };
    Drills { status: Some(status), condition: Some(condition), ensure: armed.apply.map(apply), notes, wake }
}

/// Result of one drill.
enum Ended {
    Passed(PassedDrill),
    Failed(FailedDrill),
    Incomplete(FailedDrill),
}

impl Ended {
    fn at(&self) -> &String {
        match self {
            Self::Passed(drill) => &drill.at,
            Self::Failed(drill) | Self::Incomplete(drill) => &drill.at,
        }
    }

    fn job(&self) -> &str {
        match self {
            Self::Passed(drill) => &drill.job,
            Self::Failed(drill) | Self::Incomplete(drill) => &drill.job,
        }
    }
}

/// Takes over the results of ended Jobs, each once, in the order of their ends. Returns whether a report may still arrive.
fn account(status: &mut DrillStatus, seen: &Observed, now: Timestamp) -> bool {
    let known = [
        status.last_passed.as_ref().map(|drill| (&drill.at, &drill.job)),
        status.last_failed.as_ref().map(|drill| (&drill.at, &drill.job)),
        status.last_incomplete.as_ref().map(|drill| (&drill.at, &drill.job)),
    ];
    let through = known.iter().flatten().filter_map(|(at, _)| facts::time(Some(at))).max();
    let names: Vec<String> = known.iter().flatten().map(|(_, job)| (*job).clone()).collect();
    let mut settling = false;
    let mut ended: Vec<(Timestamp, Ended)> = vec![];
    for one in seen.drills.iter().filter(|one| jobs::over(&one.job)) {
        match read(one, now) {
            Some(end) => ended.extend(facts::time(Some(end.at())).map(|at| (at, end))),
            None => settling = true,
        }
    }
    ended.sort_by(|(one, this), (other, that)| (one, this.job()).cmp(&(other, that.job())));
    for (at, end) in ended {
        let is_new =
            through.is_none_or(|through| at > through || (at == through && !names.iter().any(|n| n == end.job())));
        match end {
            _ if !is_new => {}
            Ended::Passed(drill) => status.last_passed = Some(drill),
            Ended::Failed(drill) => status.last_failed = Some(drill),
            Ended::Incomplete(drill) => status.last_incomplete = Some(drill),
        }
    }
    settling
}

/// Reads the result of an ended Job; `None`: the report of a Pod may still arrive.
fn read(one: &Recall, now: Timestamp) -> Option<Ended> {
    let report = one.pods.iter().rev().find_map(|pod| match pods::report(pod, CONTAINER)? {
        Report::Drilled(report) => Some(report),
        _ => None,
    });
    let at = jobs::last_end(&one.job, &one.pods).unwrap_or(now).to_string();
    let job = meta::name(&one.job.metadata).to_owned();
    let key = report.as_ref().map(|report| report.key.clone());
    let objects = report.as_ref().and_then(|report| report.kubernetes.clone()).unwrap_or_default();
    if let Some(report) = report.filter(|report| report.failed.is_none()) {
        return Some(Ended::Passed(passed(report, at, job)));
    }
    let without = |reason: Reason, class: String, message| FailedDrill {
        at: at.clone(),
        key: key.clone(),
        job: job.clone(),
        reason: reason.as_str().to_owned(),
        class,
        message,
        undecodable: objects.undecodable.clone(),
        encrypted: objects.encrypted.clone(),
    };
    match jobs::read(&one.job, &one.pods, None, None, now) {
        JobState::Failed { failure, message, .. } => {
            let class = job_state::names_of(failure).0;
            Some(if failure.is_some_and(|row| matches!(row.class, ExitClass::Corrupt | ExitClass::Undecodable)) {
                Ended::Failed(without(Reason::DrillFailed, class, message))
            } else {
                Ended::Incomplete(without(Reason::DrillIncomplete, class, message))
            })
        }
        JobState::Lost | JobState::Stored { .. } => {
            let message = "the Job succeeded, but its report is gone. The proof is in the store (holdfast agent list)";
            Some(Ended::Incomplete(without(Reason::DrillIncomplete, "ReportLost".to_owned(), message.to_owned())))
        }
        JobState::Pending(_) | JobState::Running(_) | JobState::HeldUp(_) | JobState::Settling => None,
    }
}

fn passed(report: DrilledReport, at: String, job: String) -> PassedDrill {
    let (restore_seconds, serve_seconds) =
        (report.restore_seconds.unwrap_or_default(), report.serve_seconds.unwrap_or_default());
    let kubernetes = report.kubernetes.map(|found| {
        let KubernetesReport {
            version,
            ready_seconds,
            objects,
            resources,
            left_out_keys,
            undecodable: _,
            encrypted: _,
        } = found;
        DecodedObjects { version, ready_seconds, objects, resources, left_out_keys }
    });
    let ready_seconds = kubernetes.as_ref().map_or(0, |found| found.ready_seconds);
    PassedDrill {
        at,
        key: report.key,
        job,
        revision: report.revision,
        keys: report.keys,
        etcd_version: report.etcd_version,
        restore_seconds,
        serve_seconds,
        rto_seconds: restore_seconds.saturating_add(serve_seconds).saturating_add(ready_seconds),
        kubernetes,
        auth_enabled: report.auth_enabled,
        proof_not_kept: report.proof_not_kept,
    }
}

/// Returns the failed drill that stands: no later drill has passed with the same snapshot or a newer one.
pub fn standing_failure(status: &DrillStatus) -> Option<&FailedDrill> {
    let taken = |key: &str| attempt_of_key(key).map(|(_, at)| at);
    let failed = status.last_failed.as_ref()?;
    let refuted = status.last_passed.as_ref().is_some_and(|passed| {
        let later = facts::time(Some(&passed.at)) > facts::time(Some(&failed.at));
        later && failed.key.as_deref().is_none_or(|key| taken(&passed.key) >= taken(key))
    });
    (!refuted).then_some(failed)
}

/// Returns when the drills are overdue; `None`: no drill starts.
pub fn overdue_at(drill: &Drill, status: &DrillStatus) -> Option<Timestamp> {
    let began = facts::time(status.active_since.as_ref())?;
    let passed = facts::time(status.last_passed.as_ref().map(|passed| &passed.at));
    let since = passed.map_or(began, |passed| passed.max(began));
    Some(since + SignedDuration::from_secs(drill.max_age().into()))
}

/// Returns the condition `Rehearsed`.
fn condition(drill: &Drill, status: &DrillStatus, armed: &Armed<CronJob>, now: Timestamp) -> Wanted {
    let no = |reason, message: String| Wanted::no(Type::Rehearsed, reason, message);
    let unknown = |reason, message: String| Wanted::unknown(Type::Rehearsed, reason, message);
    if let Some(failed) = standing_failure(status) {
        let snapshot =
            failed.key.as_deref().map_or_else(|| "every snapshot".to_owned(), |key| format!("the snapshot {key}"));
        if failed.class == ExitClass::Undecodable.as_str() {
            let message = format!("the drill of {} restored {snapshot}, and {}", failed.at, failed.message);
            return no(Reason::DrillFailed, message);
        }
        return no(
            Reason::DrillFailed,
            format!(
                "the drill of {} found {snapshot} broken: {}. Do not restore it; save another one now",
                failed.at, failed.message
            ),
        );
    }
    if let Some((reason, why)) = &armed.wrong {
        return no(*reason, why.clone());
    }
    let newest = match &status.last_passed {
        Some(PassedDrill { at, key, rto_seconds, kubernetes: None, .. }) => {
            format!("the drill of {at} restored {key}, and etcd served it after {rto_seconds} s")
        }
        Some(PassedDrill { at, key, rto_seconds, kubernetes: Some(found), .. }) => {
            let (version, decoded) = (&found.version, describe_decoded(found));
            format!(
                "the drill of {at} restored {key}, and kube-apiserver {version} was ready after {rto_seconds} s and {decoded}"
            )
        }
        None => "no drill has passed yet".to_owned(),
    };
    let closed = status.last_passed.as_ref().is_some_and(|passed| passed.auth_enabled);
    let newest = if closed { format!("{newest}; {AUTH_ENABLED}") } else { newest };
    let passed = status.last_passed.as_ref().map(|passed| &passed.at);
    let incomplete = status.last_incomplete.as_ref().filter(|last| facts::time(Some(&last.at)) >= facts::time(passed));
    let no_result = incomplete.map(|last| format!("the drill of {} has no result: {}", last.at, last.message));
    if let Some(due) = overdue_at(drill, status).filter(|due| now >= *due) {
        let check = || {
            let cron_job = status.cron_job.as_ref().map(|cron| cron.name.as_str()).unwrap_or_default();
            format!("Check the CronJob and its Jobs: kubectl describe cronjob {cron_job}")
        };
        let message = format!("no drill passed by {due}, and {newest}. {}", no_result.unwrap_or_else(check));
        return no(Reason::DrillOverdue, message);
    }
    if let Some((reason, why)) = &armed.waits {
        return unknown(*reason, why.clone());
    }
    match (status.last_passed.is_some(), no_result) {
        (true, None) => Wanted::yes(Type::Rehearsed, Reason::DrillPassed, newest),
        (true, Some(why)) => Wanted::yes(Type::Rehearsed, Reason::DrillIncomplete, format!("{newest}; {why}")),
        (false, Some(why)) => unknown(Reason::DrillIncomplete, why),
        (false, None) => unknown(Reason::NoDrillYet, newest),
    }
}

fn describe_decoded(found: &DecodedObjects) -> String {
    let left_out = found.left_out_keys.filter(|keys| *keys > 0).map(|keys| {
        format!("; {keys} keys of resources that it does not serve were left out (leftOut in the proof names them)")
    });
    format!("decoded {} objects{}", found.objects, left_out.unwrap_or_default())
}

/// Returns the Events of new results. The condition has that of a failed drill.
fn notes(old: &DrillStatus, new: &DrillStatus) -> Vec<Note> {
    let note = |warning, reason: Reason, message| Note { warning, reason: reason.as_str().to_owned(), message };
    let mut notes = vec![];
    if let Some(passed) = new.last_passed.as_ref().filter(|passed| old.last_passed.as_ref() != Some(*passed)) {
        let PassedDrill { key, restore_seconds, serve_seconds, rto_seconds, kubernetes, .. } = passed;
        let decoded = kubernetes.as_ref().map(|found| {
            format!(", and kube-apiserver was ready {} s later and {}", found.ready_seconds, describe_decoded(found))
        });
        let message = format!(
            "a drill restored {key} in {restore_seconds} s, and etcd served it {serve_seconds} s later{}: {rto_seconds} s together",
            decoded.unwrap_or_default()
        );
        notes.push(note(false, Reason::DrillPassed, message));
    }
    if let Some(last) = new.last_incomplete.as_ref().filter(|last| old.last_incomplete.as_ref() != Some(*last)) {
        notes.push(note(true, Reason::DrillIncomplete, format!("the drill has no result: {}", last.message)));
    }
    notes
}
