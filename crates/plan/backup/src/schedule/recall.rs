//! Runs without a record: the operator was down, and the runs' Jobs are gone.
//!
//! Decides whether such runs may exist: more than one due time lies between two recorded runs, and no Job remains as old as the
//! first of the two (the CronJob controller removes the oldest first). Then a Job asks the store, and another Job follows if
//! the report names only the first runs. The operator repeats a Job without an answer. Failed runs leave nothing in the store,
//! and the operator does not reconstruct failed runs.

use holdfast_api::backup_store::Right;
use holdfast_api::name;
use holdfast_contract::{DEFAULT_INSPECT_DEADLINE_SECONDS, RecallReport, RecallRequest, Report, Request};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::facts::{self, Run};
use super::{Line, Observed, Recall, arm};
use holdfast_base::jobs::{self, JobState};
use holdfast_base::objects::job::{AgentJob, CONTAINER, job};
use holdfast_base::{Wake, meta, pods, retries, saving};

/// Interval of passes while a Job runs, against a missed event.
const WAITED_FOR: Wake = Wake::AfterMillis(15_000);

/// A time between two recorded runs that may contain other runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) after: Timestamp,
    pub(super) until: Timestamp,
}

/// How far the records reach.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reach {
    /// All runs up to this time are recorded; `None`: no run exists.
    Through(Option<Timestamp>),
    /// The first gap.
    Hole(Hole),
}

/// Answer about a gap.
pub(super) enum Answer {
    /// The store holds these runs.
    Found(RecallReport),
    /// This Job asks; the text is why the previous Job did not answer.
    Ask(Box<Job>, Option<String>),
    /// A Job is asking, or the next Job must wait; the text is why the previous Job did not answer.
    Wait(Wake, Option<String>),
}

/// Returns the first gap, or the newest run without a gap before. `recalled`: up to this time all runs are recorded.
pub(super) fn reach(seen: &Observed, line: Option<&Line>, runs: &[Run<'_>], recalled: Option<Timestamp>) -> Reach {
    let made = seen.own_cron_job().and_then(|cron| cron.metadata.creation_timestamp.as_ref()).map(|at| at.0);
    let Some(from) = recalled.or(made) else { return Reach::Through(None) };
    let (mut after, mut reached) = (from, recalled);
    for run in runs.iter().filter(|run| run.at > from) {
        if !covered(seen, line, after, run.at) {
            // The gap keeps its start while a pass records parts of the gap: the same Job answers for the whole gap.
            return Reach::Hole(Hole { after: from, until: run.at });
        }
        after = run.at;
        reached = Some(after);
    }
    Reach::Through(reached)
}

/// Whether no run is missing between these times: the second was the next due time, or a Job as old as the first still exists.
fn covered(seen: &Observed, line: Option<&Line>, after: Timestamp, until: Timestamp) -> bool {
    let second_due = line.and_then(|line| line.next(line.next(after)?));
    let ended_well = |job: &&Job| job.status.as_ref().is_some_and(|s| s.succeeded.unwrap_or_default() > 0);
    let mut times = seen.jobs.iter().filter(ended_well).filter_map(facts::created);
    second_due.is_some_and(|second| second > until) || times.any(|at| at <= after)
}

/// Returns the store's answer about a gap. `since`: a Job that may have removed runs; answers from before this Job do not
/// count.
pub(super) fn answer(seen: &Observed, hole: Hole, since: Option<&str>, now: Timestamp) -> Answer {
    let own = seen.recalls.iter().filter(|one| meta::controlled_by(&one.job.metadata, seen.uid())).collect();
    let asked = retries::consecutive_jobs(own, |one: &&Recall| &one.job, |number| named(seen, hole, since, number));
    let Some((number, last)) = asked.last().copied() else { return ask(seen, (hole, since), 0, None) };
    let report = last.pods.iter().rev().find_map(|pod| match pods::report(pod, CONTAINER)? {
        Report::Recalled(found) => Some(found),
        _ => None,
    });
    if let Some(found) = report {
        return Answer::Found(found);
    }
    let (why, at) = match jobs::read(&last.job, &last.pods, None, None, now) {
        JobState::Failed { message, at, .. } => (message, at),
        JobState::Lost => ("the Job that asked the store succeeded, but its report is gone".to_owned(), None),
        JobState::Pending(_)
        | JobState::Running(_)
        | JobState::HeldUp(_)
        | JobState::Settling
        | JobState::Stored { .. } => {
            return Answer::Wait(WAITED_FOR, None);
        }
    };
    let at = at.or_else(|| jobs::created(&last.job)).unwrap_or(now);
    let first = asked.first().and_then(|(_, first)| jobs::created(&first.job)).unwrap_or(at);
    match Wake::at(at + jobs::pause(first, at), now) {
        Some(later) => Answer::Wait(later, Some(why)),
        None => ask(seen, (hole, since), number.saturating_add(1), Some(why)),
    }
}

fn ask(seen: &Observed, (hole, since): (Hole, Option<&str>), number: i32, silent: Option<String>) -> Answer {
    let Ok(place) = arm::place(seen, Right::Read) else { return Answer::Wait(WAITED_FOR, None) };
    let meta = &seen.schedule.metadata;
    let request = RecallRequest {
        expect_store_id: place.record.as_ref().and_then(|record| record.id.clone()),
        namespace: meta.namespace.clone().unwrap_or_default(),
        cluster: saving::filed_under(seen.schedule.spec.cluster_ref.as_ref()),
        schedule_uid: seen.uid().to_owned(),
        after: hole.after,
        until: hole.until,
        deadline_seconds: DEFAULT_INSPECT_DEADLINE_SECONDS,
        ..RecallRequest::default()
    };
    let asks = job(&AgentJob {
        name: named(seen, hole, since, number),
        work: Request::Recall(request),
        destination: place.location,
        record: place.record,
        attempts_before: number,
        ..arm::agent_job(seen)
    });
    Answer::Ask(Box::new(asks), silent)
}

/// Returns the name of the Job that asks about a gap, after `number` earlier Jobs.
fn named(seen: &Observed, hole: Hole, since: Option<&str>, number: i32) -> String {
    let meta = &seen.schedule.metadata;
    let after = hole.after.to_string();
    let question = since.map_or_else(|| after.clone(), |job| format!("{after}/{job}"));
    name::recall(meta::name(meta), meta::uid(meta), &question, number)
}
