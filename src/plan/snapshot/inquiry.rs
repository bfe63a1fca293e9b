//! Asking the store about a snapshot, where neither its Job nor its Pods say whether it is there.
//!
//! Decides when the store is asked, by one Job after the other, and what its answer is. One that gives none is asked again:
//! what is down comes back, and nobody tells the operator. So is one that shows nothing soon after the end: no listing
//! that may be late has the last word (I18).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use snapshot_agent::contract::{ExitClass, Failure};

use super::stage::{Inquiry, SETTLING, SLOW};
use super::{Inspection, Observed, job, place};
use crate::api::backup_store::Right;
use crate::api::condition::Reason;
use crate::plan::held::HeldUp;
use crate::plan::jobs::{self, Fact};
use crate::plan::{Wake, meta};

/// A store that shows nothing is believed when it was asked so long after the last Pod's end. What that Pod sent last
/// may be carried out when nobody waits for it any more, and there are stores whose listings are late: both are a matter
/// of seconds, seldom of a minute.
const SHOWN_WITHIN: SignedDuration = SignedDuration::from_secs(90);

/// What the store says.
pub(super) enum Answer {
    /// It has the snapshot.
    Stored(Fact),
    /// It is there, it is the one that is meant, and long after the end it has nothing of this snapshot, in these
    /// words.
    Nothing(String),
    /// Somebody else's Job stands where one belongs that asks it.
    Taken(Box<Job>),
    /// Nothing yet.
    Open(Inquiry),
}

/// What the store says; where it has not been asked, or has not answered, a Job is made that asks it.
pub(super) fn answer(seen: &Observed, now: Timestamp) -> Answer {
    let mut all: Vec<&Inspection> = seen.inspections.iter().collect();
    all.sort_by_key(|one| one.number);
    let own = |one: &&&Inspection| meta::controlled_by(&one.job.metadata, meta::uid(&seen.snapshot.metadata));
    if let Some(foreign) = all.iter().find(|one| !own(one)) {
        return Answer::Taken(Box::new(foreign.job.clone()));
    }
    let Some((last, before)) = all.split_last() else { return Answer::Open(ask(seen, 0, None)) };
    let kept = kept(seen);
    let fact = match jobs::read(&last.job, &last.pods, None, kept.as_ref(), now) {
        Fact::HeldUp(held) => Fact::HeldUp(held.with_claim_users(&last.pods, &seen.claim_users)),
        fact => fact,
    };
    let held = jobs::still_held_up(kept.clone(), &fact, jobs::ran(&last.pods), before.is_empty());
    let stuck = held.clone().filter(HeldUp::needs_a_person);
    let open = |inquiry| Answer::Open(Inquiry { held: held.clone(), ..inquiry });
    // One that was asked beside another may have ended first.
    let next = |silent| match before.iter().find(|one| !one.is_done()) {
        Some(_) => Inquiry { silent, pause: Some(SLOW), ..Inquiry::default() },
        None => ask(seen, last.number.saturating_add(1), silent),
    };
    if let Some(due) = too_soon(seen, &all, &fact) {
        let inquiry = match Wake::at(due, now) {
            Some(later) => Inquiry { pause: Some(later), ..Inquiry::default() },
            None => next(None),
        };
        return open(Inquiry { words: shows_nothing(due), ..inquiry });
    }
    match fact {
        stored @ Fact::Stored { .. } => Answer::Stored(stored),
        // Said of no other store, and of none that is missing: those are silent, and asked again.
        Fact::Failed { failure: Some(Failure { class: ExitClass::NotFound, origin: None, .. }), message, .. } => {
            Answer::Nothing(message)
        }
        ended @ (Fact::Failed { .. } | Fact::Lost | Fact::HeldUp(HeldUp { reason: Reason::NodeSilent, .. })) => {
            let denied = matches!(
                ended,
                Fact::Failed { failure: Some(Failure { class: ExitClass::Denied, origin: None, .. }), .. }
            );
            let (why, at) = silence(ended, last).unwrap_or_default();
            let at = at.unwrap_or(now);
            let since = all.first().and_then(|first| jobs::created(&first.job)).unwrap_or(at);
            let inquiry = match Wake::at(at + jobs::pause(since, at), now) {
                Some(later) => Inquiry { silent: Some(why), pause: Some(later), ..Inquiry::default() },
                None => next(Some(why)),
            };
            open(match stuck {
                // The store was not even asked.
                Some(stuck) => Inquiry { words: stuck.words(), silent: None, trouble: Some(stuck.reason), ..inquiry },
                None => Inquiry { denied, ..inquiry },
            })
        }
        // A Pod that cannot run is told of, whatever was wrong before.
        Fact::HeldUp(_) | Fact::Pending(_) | Fact::Settling if let Some(stuck) = &stuck => {
            open(Inquiry { trouble: Some(stuck.reason), ..Inquiry::waits(stuck.words()) })
        }
        Fact::HeldUp(next) => open(still(seen, before, next.words(), kept.as_ref(), now)),
        Fact::Pending(words) => open(still(seen, before, words, kept.as_ref(), now)),
        // What held up the one before does so no more.
        Fact::Running(words) => open(still(seen, before, words, None, now)),
        Fact::Settling => open(still(seen, before, SETTLING.to_owned(), kept.as_ref(), now)),
    }
}

/// What the status keeps of a Pod that asks the store: of the Job that saves it says nothing here.
fn kept(seen: &Observed) -> Option<HeldUp> {
    let saving = seen.job.as_ref().map(|job| meta::name(&job.metadata));
    seen.held_up().filter(|held| Some(held.job.as_str()) != saving)
}

fn ask(seen: &Observed, number: i32, silent: Option<String>) -> Inquiry {
    match place::of(seen, Right::Read) {
        Ok(at) => Inquiry { ask: Some(Box::new(job::inspect(seen, at, number))), silent, ..Inquiry::default() },
        Err((_, why)) => Inquiry { silent: Some(why), ..Inquiry::default() },
    }
}

/// While the store is asked again, what it said the last time, or why it said nothing, is still what a person has to
/// know; and in the same words, so that nothing is written while nothing changes (I17).
fn still(seen: &Observed, before: &[&Inspection], words: String, kept: Option<&HeldUp>, now: Timestamp) -> Inquiry {
    let Some(last) = before.last() else { return Inquiry::waits(words) };
    let fact = jobs::read(&last.job, &last.pods, None, kept, now);
    if let Some(due) = too_soon(seen, before, &fact) {
        return Inquiry::waits(shows_nothing(due));
    }
    Inquiry { words, silent: silence(fact, last).map(|(why, _)| why), ..Inquiry::default() }
}

/// When the store is asked again, where the last of these was begun so soon after the end that it says little to have
/// found nothing. Where nobody knows of an end, the Job was cleaned away since, and what was found is what there is.
fn too_soon(seen: &Observed, asked: &[&Inspection], fact: &Fact) -> Option<Timestamp> {
    let Fact::Failed { failure: Some(Failure { class: ExitClass::NotFound, origin: None, .. }), at, .. } = fact else {
        return None;
    };
    let since = jobs::created(&asked.first()?.job)?;
    let shown = jobs::last_end(seen.job.as_ref()?, &seen.pods)? + SHOWN_WITHIN;
    let soon = jobs::created(&asked.last()?.job)? < shown;
    // The API server's clock may be behind ours: never again at once.
    soon.then(|| at.map_or(shown, |at| shown.max(at + jobs::pause(since, at))))
}

/// What is told from then until the store has answered.
fn shows_nothing(due: Timestamp) -> String {
    format!(
        "the store shows no such snapshot so far. Holdfast asks again at {due}, because the store may carry out or \
         list earlier requests late"
    )
}

/// Why a Job that has ended brought no answer, and when; or that nobody says that its Pod has ended. That one only reads, so
/// it is not waited for.
fn silence(fact: Fact, one: &Inspection) -> Option<(String, Option<Timestamp>)> {
    match fact {
        Fact::Failed { message, at, .. } => Some((message, at)),
        Fact::Lost => {
            let why = "the Job that asked the store succeeded, but its report is gone".to_owned();
            Some((why, jobs::created(&one.job)))
        }
        Fact::HeldUp(held) if held.reason == Reason::NodeSilent => Some((held.words(), jobs::silent_since(&one.pods))),
        Fact::Pending(_) | Fact::Running(_) | Fact::HeldUp(_) | Fact::Settling | Fact::Stored { .. } => None,
    }
}
