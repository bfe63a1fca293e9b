//! Result of a probe's Job.
//!
//! Decides the progress and the result. A probe stores nothing permanent, so a lost report only causes another probe.

use holdfast_api::backup_store::{Probe, Tried};
use holdfast_contract::{Failure, Outcome, Probed, Report};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::Observed;
use holdfast_base::jobs::{self, JobState};
use holdfast_base::objects::job::CONTAINER;
use holdfast_base::pod_cause::PodCause;
use holdfast_base::{job_state, pods};

/// Progress of a probe.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Progress {
    /// The Job runs, or waits for its Pod.
    Running(String),
    /// No Pod of the Job runs, or the last Pod has no visible end.
    HeldUp(PodCause),
    /// The Job has ended with this result.
    Ended(Probe),
}

/// Reads the probe's own Job and its Pods, oldest first.
pub(super) fn read(seen: &Observed, job: &Job, inputs: &str, now: Timestamp) -> Progress {
    if let Some(ended) = seen.pods.iter().rev().find_map(|pod| reported(pod, job, inputs, now)) {
        return Progress::Ended(ended);
    }
    let kept = seen.held_up();
    match jobs::read(job, &seen.pods, seen.refusal.as_deref(), kept.as_ref(), now) {
        JobState::Pending(words) | JobState::Running(words) => Progress::Running(words),
        JobState::Settling => Progress::Running("the probe has ended; its report is on its way".to_owned()),
        JobState::HeldUp(held) => Progress::HeldUp(held.with_claim_users(&seen.pods, &seen.claim_users)),
        // A report of another kind, or none.
        JobState::Stored { at, .. } => {
            let at = at.map_or(now, |at| within(job, at));
            failed(inputs, None, "the probe's report is of another kind", at)
        }
        JobState::Lost => failed(inputs, None, "the probe succeeded, but its report is gone", now),
        JobState::Failed { failure, message, at, held: _ } => failed(inputs, failure, &message, at.unwrap_or(now)),
    }
}

fn failed(inputs: &str, failure: Option<&Failure>, message: &str, at: Timestamp) -> Progress {
    let (class, origin) = job_state::names_of(failure);
    Progress::Ended(Probe {
        at: at.to_string(),
        inputs: inputs.to_owned(),
        class: Some(class),
        origin,
        message: Some(message.to_owned()),
        ..Probe::default()
    })
}

fn reported(pod: &Pod, job: &Job, inputs: &str, now: Timestamp) -> Option<Probe> {
    let end = pods::last_end(pods::status(pod, CONTAINER)?)?;
    let Report::Probed(Probed { store: _, usable, findings, store_id, left_behind, failed }) =
        pods::report(pod, CONTAINER)?
    else {
        return None;
    };
    let trials = findings.into_iter().map(|found| Tried {
        name: found.trial.name().to_owned(),
        outcome: outcome(found.outcome).to_owned(),
        needed: found.needed,
        detail: found.detail,
    });
    Some(Probe {
        at: end.finished_at.as_ref().map_or(now, |t| within(job, t.0)).to_string(),
        inputs: inputs.to_owned(),
        usable,
        failing_since: None,
        class: failed.as_ref().map(|failed| failed.class.as_str().to_owned()),
        origin: failed.as_ref().and_then(|failed| failed.origin).map(|origin| origin.as_str().to_owned()),
        message: failed.map(|failed| failed.message),
        trials: trials.collect(),
        store_id,
        left_behind,
    })
}

/// Returns the end of a Pod within its Job's times. The node's clock may be wrong; the Job's times come from the API server and
/// stay the same.
fn within(job: &Job, at: Timestamp) -> Timestamp {
    let made = job.metadata.creation_timestamp.as_ref();
    let started = job.status.as_ref().and_then(|s| s.start_time.as_ref());
    let at = made.into_iter().chain(started).map(|t| t.0).fold(at, Ord::max);
    jobs::last_end(job, &[]).map_or(at, |over| at.min(over))
}

const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Yes => "Yes",
        Outcome::No => "No",
        Outcome::NotThere => "NotThere",
        Outcome::NotTried => "NotTried",
    }
}
