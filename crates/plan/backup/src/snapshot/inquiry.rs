//! Questions to the store, if neither the snapshot's Job nor its Pods report whether the snapshot is stored.
//!
//! Decides when a Job asks the store, and the store's answer. Without an answer the operator asks again: a store that is down
//! comes back without an event. The operator also asks again if the store shows nothing soon after the save's end: a late
//! listing is never final (I18).

use holdfast_api::backup_store::Right;
use holdfast_api::condition::Reason;
use holdfast_contract::{ExitClass, Failure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::stage::{Inquiry, SETTLING, SLOW};
use super::{Inspection, Observed, job, place};
use holdfast_base::jobs::{self, JobState};
use holdfast_base::pod_cause::PodCause;
use holdfast_base::{Wake, meta};

/// Time after the last Pod's end from which an empty answer of the store counts. The store may carry out the Pod's last request
/// after the Pod is gone, and some stores list late: both take seconds, rarely a minute.
const SHOWN_WITHIN: SignedDuration = SignedDuration::from_secs(90);

/// The store's answer.
pub(super) enum Answer {
    /// The store holds the snapshot.
    Stored(JobState),
    /// The store with the expected ID, asked long enough after the end, does not hold this snapshot. The text is the agent's
    /// message.
    Nothing(String),
    /// The Job with the name of the asking Job belongs to another owner.
    Taken(Box<Job>),
    /// No answer yet.
    Open(Inquiry),
}

/// Returns the store's answer; without an answer, the inquiry holds the Job that asks.
pub(super) fn answer(seen: &Observed, now: Timestamp) -> Answer {
    let mut all: Vec<&Inspection> = seen.inspections.iter().collect();
    all.sort_by_key(|one| one.number);
    let own = |one: &&&Inspection| meta::controlled_by(&one.job.metadata, meta::uid(&seen.snapshot.metadata));
    if let Some(foreign) = all.iter().find(|one| !own(one)) {
        return Answer::Taken(Box::new(foreign.job.clone()));
    }
    let Some((last, before)) = all.split_last() else { return Answer::Open(ask(seen, 0, None)) };
    let kept = kept(seen);
    let state = match jobs::read(&last.job, &last.pods, None, kept.as_ref(), now) {
        JobState::HeldUp(held) => JobState::HeldUp(held.with_claim_users(&last.pods, &seen.claim_users)),
        state => state,
    };
    let held = jobs::still_held_up(kept.clone(), &state, jobs::ran(&last.pods), before.is_empty());
    let stuck = held.clone().filter(PodCause::needs_a_person);
    let open = |inquiry| Answer::Open(Inquiry { held: held.clone(), ..inquiry });
    // An earlier Job may still run beside a later Job that has ended.
    let next = |silent| match before.iter().find(|one| !one.is_done()) {
        Some(_) => Inquiry { silent, pause: Some(SLOW), ..Inquiry::default() },
        None => ask(seen, last.number.saturating_add(1), silent),
    };
    if let Some(due) = too_soon(seen, &all, &state) {
        let inquiry = match Wake::at(due, now) {
            Some(later) => Inquiry { pause: Some(later), ..Inquiry::default() },
            None => next(None),
        };
        return open(Inquiry { words: shows_nothing(due), ..inquiry });
    }
    match state {
        stored @ JobState::Stored { .. } => Answer::Stored(stored),
        // `NotFound` without an origin is about this snapshot. A missing or a different store fails otherwise, and the operator
        // asks again.
        JobState::Failed {
            failure: Some(Failure { class: ExitClass::NotFound, origin: None, .. }), message, ..
        } => Answer::Nothing(message),
        ended @ (JobState::Failed { .. }
        | JobState::Lost
        | JobState::HeldUp(PodCause { reason: Reason::NodeSilent, .. })) => {
            let denied = matches!(
                ended,
                JobState::Failed { failure: Some(Failure { class: ExitClass::Denied, origin: None, .. }), .. }
            );
            let (why, at) = silence(ended, last).unwrap_or_default();
            let at = at.unwrap_or(now);
            let since = all.first().and_then(|first| jobs::created(&first.job)).unwrap_or(at);
            let inquiry = match Wake::at(at + jobs::pause(since, at), now) {
                Some(later) => Inquiry { silent: Some(why), pause: Some(later), ..Inquiry::default() },
                None => next(Some(why)),
            };
            open(match stuck {
                // The store was not asked: the Pod did not run.
                Some(stuck) => Inquiry { words: stuck.words(), silent: None, trouble: Some(stuck.reason), ..inquiry },
                None => Inquiry { denied, ..inquiry },
            })
        }
        // A Pod that cannot run comes first, before an earlier failure.
        JobState::HeldUp(_) | JobState::Pending(_) | JobState::Settling if let Some(stuck) = &stuck => {
            open(Inquiry { trouble: Some(stuck.reason), ..Inquiry::waits(stuck.words()) })
        }
        JobState::HeldUp(next) => open(still(seen, before, next.words(), kept.as_ref(), now)),
        JobState::Pending(words) => open(still(seen, before, words, kept.as_ref(), now)),
        // The earlier Job's hold-up is over.
        JobState::Running(words) => open(still(seen, before, words, None, now)),
        JobState::Settling => open(still(seen, before, SETTLING.to_owned(), kept.as_ref(), now)),
    }
}

/// Returns the status's hold-up of a Pod that asks the store, without a hold-up of the saving Job.
fn kept(seen: &Observed) -> Option<PodCause> {
    let saving = seen.job.as_ref().map(|job| meta::name(&job.metadata));
    seen.held_up().filter(|held| Some(held.job.as_str()) != saving)
}

fn ask(seen: &Observed, number: i32, silent: Option<String>) -> Inquiry {
    match place::resolve(seen, Right::Read) {
        Ok(at) => Inquiry { ask: Some(Box::new(job::inspect(seen, at, number))), silent, ..Inquiry::default() },
        Err((_, why)) => Inquiry { silent: Some(why), ..Inquiry::default() },
    }
}

/// While a Job asks again, the user still needs the store's last answer, or the reason for its silence. The words stay the
/// same, so that the operator writes nothing while nothing changes (I17).
fn still(seen: &Observed, before: &[&Inspection], words: String, kept: Option<&PodCause>, now: Timestamp) -> Inquiry {
    let Some(last) = before.last() else { return Inquiry::waits(words) };
    let state = jobs::read(&last.job, &last.pods, None, kept, now);
    if let Some(due) = too_soon(seen, before, &state) {
        return Inquiry::waits(shows_nothing(due));
    }
    Inquiry { words, silent: silence(state, last).map(|(why, _)| why), ..Inquiry::default() }
}

/// Returns when to ask again, if the last Job asked too soon after the save's end for an empty answer to count. If no end is
/// known, the saving Job was removed since, and the answer counts.
fn too_soon(seen: &Observed, asked: &[&Inspection], state: &JobState) -> Option<Timestamp> {
    let JobState::Failed { failure: Some(Failure { class: ExitClass::NotFound, origin: None, .. }), at, .. } = state
    else {
        return None;
    };
    let since = jobs::created(&asked.first()?.job)?;
    let shown = jobs::last_end(seen.job.as_ref()?, &seen.pods)? + SHOWN_WITHIN;
    let soon = jobs::created(&asked.last()?.job)? < shown;
    // The API server's clock may be behind the operator's clock: the pause prevents an immediate question.
    soon.then(|| at.map_or(shown, |at| shown.max(at + jobs::pause(since, at))))
}

/// Message until the store has answered.
fn shows_nothing(due: Timestamp) -> String {
    format!(
        "the store shows no such snapshot so far. Holdfast asks again at {due}, because the store may carry out or \
         list earlier requests late"
    )
}

/// Returns why an ended Job brought no answer, and when; or that the Pod's node is silent. That Pod only reads, so the operator
/// does not wait for the Pod.
fn silence(state: JobState, one: &Inspection) -> Option<(String, Option<Timestamp>)> {
    match state {
        JobState::Failed { message, at, .. } => Some((message, at)),
        JobState::Lost => {
            let why = "the Job that asked the store succeeded, but its report is gone".to_owned();
            Some((why, jobs::created(&one.job)))
        }
        JobState::HeldUp(held) if held.reason == Reason::NodeSilent => {
            Some((held.words(), jobs::silent_since(&one.pods)))
        }
        JobState::Pending(_)
        | JobState::Running(_)
        | JobState::HeldUp(_)
        | JobState::Settling
        | JobState::Stored { .. } => None,
    }
}
