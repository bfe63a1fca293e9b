//! Results of a schedule's merges, and the condition `Merged`.
//!
//! Decides what an ended Job counts for. A merge before the first complete snapshot of the schedule has nothing to begin with, so its
//! failure does not count. `compaction.rs` decides the `CronJob`.

use holdfast_api::condition::{Reason, Type, Wanted};
use holdfast_api::log::{FailedMerge, Merges};
use holdfast_api::schedule::LastSuccessful;
use jiff::Timestamp;

use super::log::Logging;
use super::{Observed, Recall, facts};
use holdfast_base::jobs::{self, JobState, PATIENCE_MILLIS};
use holdfast_base::{Wake, job_state, meta};

/// Adds the merges to the log's part of a pass. `newest`: the newest complete backup.
pub(super) fn add(seen: &Observed, log: &mut Logging, newest: Option<&LastSuccessful>, now: Timestamp) {
    let Some(status) = &mut log.status else { return };
    let mut merges = status.merges.take().unwrap_or_default();
    if seen.schedule.spec.log.as_ref().is_none_or(|log| log.compaction.is_none()) {
        return;
    }
    if account(&mut merges, seen, newest.is_some(), now) {
        log.merges_wake = Some(Wake::AfterMillis(PATIENCE_MILLIS));
    }
    log.merged = Some(condition(&merges));
    status.merges = Some(merges).filter(|merges| *merges != Merges::default());
}

/// Takes over the results of ended Jobs, each once, in the order of their ends. Returns whether a report may still arrive.
fn account(merges: &mut Merges, seen: &Observed, counts: bool, now: Timestamp) -> bool {
    let known = [merges.last_succeeded.as_ref(), merges.last_failed.as_ref().map(|failed| &failed.at)];
    let through = known.into_iter().filter_map(facts::time).max();
    let over = seen.merges.iter().filter(|one| jobs::over(&one.job));
    let mut ended: Vec<(Timestamp, &Recall)> =
        over.filter_map(|one| Some((jobs::last_end(&one.job, &one.pods)?, one))).collect();
    ended.retain(|(at, _)| through.is_none_or(|through| *at > through));
    ended.sort_by_key(|(at, _)| *at);
    for (at, Recall { job, pods }) in ended {
        match jobs::read(job, pods, None, None, now) {
            JobState::Settling => return true,
            JobState::Failed { failure, message, .. } => {
                let (class, _) = job_state::names_of(failure);
                let job = meta::name(&job.metadata).to_owned();
                merges.last_failed = Some(FailedMerge { at: at.to_string(), job, class, message });
                merges.consecutive_failures = merges.consecutive_failures.saturating_add(u32::from(counts));
            }
            JobState::Lost | JobState::Stored { .. } => {
                merges.last_succeeded = Some(at.to_string());
                merges.consecutive_failures = 0;
            }
            JobState::Pending(_) | JobState::Running(_) | JobState::HeldUp(_) => {}
        }
    }
    false
}

fn condition(merges: &Merges) -> Wanted {
    match (&merges.last_failed, &merges.last_succeeded) {
        (Some(failed), succeeded) if merges.consecutive_failures > 0 => {
            let runs = match merges.consecutive_failures {
                1 => "the newest merge failed".to_owned(),
                many => format!("the newest {many} merges failed"),
            };
            let last = match succeeded {
                Some(at) => format!("the last one that succeeded ended at {at}"),
                None => "none has succeeded yet".to_owned(),
            };
            let FailedMerge { at, job, class, message } = failed;
            let message = format!(
                "{runs}, and {last}: a restore reads the whole log after the snapshot. Job {job} of {at}: {class}: {message}"
            );
            Wanted::no(Type::Merged, Reason::MergeFailing, message)
        }
        (_, Some(at)) => {
            Wanted::yes(Type::Merged, Reason::MergeSucceeded, format!("the newest merge succeeded at {at}"))
        }
        (_, None) => {
            let message =
                "no merge has succeeded yet. The first one needs a complete snapshot of the schedule and its log";
            Wanted::unknown(Type::Merged, Reason::NoMergeYet, message)
        }
    }
}
