//! The order of decisions about one schedule.
//!
//! The `CronJob` starts the backups. The operator keeps the `CronJob` up to date and records its runs: one `EtcdSnapshot` for
//! each Job, by the Job's UID. `prune.rs` alone removes stored snapshots, after all runs are
//! recorded. `drill.rs` reads the results of drills; the drills' `CronJob` stands beside that of the backups. `log.rs` reads the state
//! of the log, whose Deployment stands there too. `merges.rs` reads the results of the merges. `out_of_turn.rs` starts the runs that no
//! due time starts.

use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::{EtcdSnapshotScheduleStatus, key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::applied::Pruning;
use super::arm::{Arm, arm};
use super::beside::{self, Live};
use super::facts::{self, Run};
use super::prune;
use super::recall::{self, Answer, Reach};
use super::status::{self, Standing};
use super::{Line, Observed, health, record, skipped, surplus};
use super::{compaction, drill, log, merges, out_of_turn};
use holdfast_base::{Act, Ensure, Next, Note, Plan, Wake, drift, meta};

/// Time after a due time: the CronJob controller creates the Job within seconds, and the status then has the next due time.
const AFTER_DUE: SignedDuration = SignedDuration::from_secs(5);

/// Returns the plan for one schedule.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdSnapshotScheduleStatus> {
    let old = seen.schedule.status.clone().unwrap_or_default();
    if meta::deleting(&seen.schedule.metadata) {
        let (ensures, notes) = (vec![], vec![]);
        return Plan { ensures, act: None, status: old, notes, waiting: None, wake: Wake::OnChange };
    }
    let spec = &seen.schedule.spec;
    let runs = facts::runs(seen);
    let line = line(seen, now);
    let (standing, mut ensures) = stand(seen, &line);
    let line = line.ok();
    let halted = match &standing {
        Standing::Halted(reason, why) => Some((*reason, why.as_str())),
        _ => None,
    };
    let mut pruning = prune::decide(seen, &runs, (line.as_ref(), halted), now);
    let newest = status::latest_success(seen, old.last_successful.as_ref(), &runs);
    let mut log = log::decide(seen, &runs, newest.as_ref(), now);
    merges::add(seen, &mut log, newest.as_ref(), now);
    ensures.extend(log.ensure.take());
    let log_wake = log.wake.into_iter().chain(log.merges_wake);
    let out_of_turn = log.act.take().or_else(|| out_of_turn::save_after_return(seen, &runs));
    let (next, recalled_through, silent) = next(seen, (line.as_ref(), &runs), (&mut pruning, out_of_turn), now);
    let retention_due = pruning.due;
    let (merger, wrong) = compaction::decide(seen, now);
    ensures.extend(merger.map(|cron| Ensure::CronJob(Box::new(cron))));
    let standing = match (standing, wrong) {
        (Standing::Runs(None), wrong @ Some(_)) => Standing::Runs(wrong),
        (standing, _) => standing,
    };
    let mut drills = drill::decide(seen, now);
    ensures.extend(drills.ensure.take());
    let (drill_notes, drill_wake) = (std::mem::take(&mut drills.notes), drills.wake);
    let mut status =
        status::whole(seen, &standing, (line.as_ref(), &runs), recalled_through, (pruning, drills, &mut log), now);
    compaction::record(seen, &mut status);
    let notes = notes(seen, &status, &ensures, (&next, silent)).into_iter().chain(drill_notes).collect();
    let (act, waiting, wake) = next.into_parts();
    let due = line.as_ref().and_then(|line| {
        let next = facts::time(status.next_time.as_ref()).map(|next| next + AFTER_DUE);
        let overdue = health::overdue_at(spec, &status, line).filter(|at| *at > now);
        next.into_iter().chain(overdue).chain(retention_due).filter_map(|at| Wake::at(at, now)).min_by_key(millis)
    });
    let skips = line.as_ref().filter(|_| status.next_time.is_some()).and_then(|line| skipped::wake(seen, line, now));
    let wake =
        due.into_iter().chain(skips).chain(drill_wake).chain(log_wake).chain([wake]).min_by_key(millis).unwrap_or(wake);
    Plan { ensures, act, status, notes, waiting, wake }
}

fn millis(wake: &Wake) -> u64 {
    match wake {
        Wake::Now => 0,
        Wake::AfterMillis(millis) => *millis,
        Wake::OnChange => u64::MAX,
    }
}

fn line(seen: &Observed, now: Timestamp) -> Result<Line, (Reason, String)> {
    let spec = &seen.schedule.spec;
    beside::line(seen, "spec", (&spec.schedule, spec.time_zone.as_deref()), now)
}

/// Returns the schedule's standing, and the `CronJob` if the operator must apply the `CronJob`.
fn stand(seen: &Observed, line: &Result<Line, (Reason, String)>) -> (Standing, Vec<Ensure>) {
    let live = Live { any: seen.cron_job.as_ref(), own: seen.own_cron_job() };
    if let Some(why) = live.conflict() {
        return (Standing::Wrong(Reason::NameConflict, why), vec![]);
    }
    let Arm { cron_job, halted, behind } = arm(seen, line.as_ref().ok());
    let stands = seen.own_cron_job();
    let missing = cron_job.is_none();
    let apply = cron_job.filter(|want| stands.is_none_or(|live| drift::differs_by_name(want, live)));
    let ensures = apply.into_iter().map(|cron| Ensure::CronJob(Box::new(cron))).collect();
    if let Err((reason, why)) = line {
        return (Standing::Wrong(*reason, why.clone()), ensures);
    }
    let standing = match (stands, halted, behind) {
        (None, halted, behind) if missing => {
            let (reason, why) = halted.or(behind).unwrap_or((Reason::WaitingForReference, String::new()));
            Standing::Waits(reason, why)
        }
        (None, None, _) => Standing::Waits(Reason::JobPending, "Holdfast creates the CronJob".to_owned()),
        (_, Some((reason, why)), _) => Standing::Halted(reason, why),
        (Some(_), None, behind) => Standing::Runs(behind),
    };
    (standing, ensures)
}

/// Returns the act, the time up to which all runs are recorded, and why the store did not answer the last question.
fn next(
    seen: &Observed,
    (line, runs): (Option<&Line>, &[Run<'_>]),
    (pruning, out_of_turn): (&mut Pruning, Option<Act>),
    now: Timestamp,
) -> (Next, Option<Timestamp>, Option<String>) {
    let recalled = facts::time(seen.schedule.status.as_ref().and_then(|s| s.recalled_through.as_ref()));
    let record = |snapshot| Next::act(Act::RecordRun(Box::new(snapshot)));
    if let Some(job) = facts::unrecorded(seen).first() {
        return (record(record::of_job(seen, job)), recalled, None);
    }
    if let Some(act) = out_of_turn {
        return (Next::act(act), recalled, None);
    }
    let wanted = pruning.next.take().unwrap_or(Next::Settled(Wake::OnChange));
    let tidy = surplus::next(seen, runs, recalled).map_or(wanted, Next::act);
    let mut recalled = recalled;
    loop {
        let hole = match recall::reach(seen, line, runs, recalled) {
            Reach::Through(through) => return (tidy, through.or(recalled), None),
            Reach::Hole(hole) => hole,
        };
        let found = match recall::answer(seen, hole, None, now) {
            Answer::Found(found) => found,
            Answer::Ask(job, silent) => {
                pruning.wait_for_store(silent.as_deref());
                return (Next::act(Act::StartJob(job)), Some(hole.after), silent);
            }
            Answer::Wait(wake, silent) => {
                pruning.wait_for_store(silent.as_deref());
                let why = "a Job asks the store for runs during an outage of the operator".to_owned();
                return (Next::wait(Reason::AskingStore, why, wake), Some(hole.after), None);
            }
        };
        let known = |uid: &str| runs.iter().any(|run| run.job.uid == uid);
        if let Some(missed) = found.runs.iter().find(|run| !known(&run.uid)) {
            return (record(record::of_recalled(seen, missed)), Some(hole.after), None);
        }
        // The next gap begins there, and always later than this gap, whatever time the report has.
        recalled = Some(found.through.max(hole.after + SignedDuration::from_secs(1)).min(hole.until));
    }
}

/// Returns the Events of this pass, once for each change, so a repeated pass returns none.
fn notes(
    seen: &Observed,
    status: &EtcdSnapshotScheduleStatus,
    ensures: &[Ensure],
    (next, silent): (&Next, Option<String>),
) -> Vec<Note> {
    let note = |warning, reason: &str, message| Note { warning, reason: reason.to_owned(), message };
    let mut notes = vec![];
    let rendered = |meta: &ObjectMeta| meta::annotation(meta, key::RENDERED).map(str::to_owned);
    for ensure in ensures {
        let (kind, want) = match ensure {
            Ensure::CronJob(want) => ("CronJob", &want.metadata),
            Ensure::Deployment(want) => ("Deployment", &want.metadata),
            _ => continue,
        };
        let crons = [seen.own_cron_job(), seen.own_drill_cron_job(), seen.own_compaction_cron_job()];
        let crons = crons.into_iter().flatten().map(|cron| &cron.metadata);
        let mut live = crons.chain(seen.own_log_deployment().map(|log| &log.metadata));
        if let Some(live) = live.find(|live| live.name == want.name && rendered(live) == rendered(want)) {
            let name = meta::name(live);
            let message = format!("{kind} {name} was changed; Holdfast puts it back. Change the EtcdSnapshotSchedule");
            notes.push(note(true, &format!("{kind}Restored"), message));
        }
    }
    let recalls = |job: &Job| meta::annotation(&job.metadata, key::PRUNE_RUN).is_none() && status.prune_run.is_none();
    if let Next::Do(Act::StartJob(job), _) = next
        && recalls(job)
    {
        let name = meta::name(&job.metadata);
        let before = silent.as_ref().map(|why| format!("; the last one got no answer: {why}")).unwrap_or_default();
        let message =
            format!("runs may be missing after an outage of the operator; Job {name} asks the store for them{before}");
        notes.push(note(silent.is_some(), "RecallStarted", message));
    }
    let old = seen.schedule.status.iter().flat_map(|s| &s.conditions);
    let before = |kind| condition::find(old.clone(), kind).map(|c| &c.reason);
    for kind in [Type::Ready, Type::Fresh, Type::RetentionApplied, Type::Rehearsed, Type::LogCurrent, Type::Merged] {
        let Some(condition) = condition::find(&status.conditions, kind) else { continue };
        let person = Reason::named(&condition.reason).is_some_and(Reason::needs_a_person);
        if person && before(kind) != Some(&condition.reason) {
            let noted = notes.iter().any(|n| n.reason == condition.reason);
            if !noted {
                notes.push(note(true, &condition.reason, condition.message.clone()));
            }
        }
    }
    notes
}
