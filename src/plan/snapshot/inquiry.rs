//! Asking the store about a snapshot, where neither its Job nor its Pods say whether it is there.
//!
//! Decides when the store is asked, by one Job after the other, and what its answer is. One that gives none is asked again:
//! what is down comes back, and nobody tells the operator.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use snapshot_agent::contract::ExitClass;

use super::plan::SLOW;
use super::report::{self, Fact};
use super::{Inspection, Observed, job, place, status};
use crate::api::backup_store::Right;
use crate::api::condition::Type;
use crate::plan::{Wake, pods};

/// A store that gave no answer is asked again: soon at first.
const SOON: SignedDuration = SignedDuration::from_secs(15);
/// And later not less often than this.
const LATER: SignedDuration = SignedDuration::from_secs(120);

/// What the store says.
pub(super) enum Answer {
    /// It has the snapshot.
    Stored(Fact),
    /// It is there, it is the one that is meant, and it has nothing of this snapshot, in these words.
    Nothing(String),
    /// Somebody else's Job stands where one belongs that asks it.
    Taken(Box<Job>),
    /// Nothing yet.
    Open(Inquiry),
}

/// How far asking has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Inquiry {
    /// The Job that is made now, and asks.
    pub(super) ask: Option<Box<Job>>,
    /// How far the Job is that asks, where one does.
    pub(super) words: String,
    /// Why the store did not answer the last time.
    pub(super) silent: Option<String>,
    /// Whether that was because these credentials may not look.
    pub(super) denied: bool,
    /// When it is asked again, where that is not now.
    pub(super) pause: Option<Wake>,
}

impl Inquiry {
    /// Something else is waited for.
    pub(super) fn waits(words: String) -> Self {
        Self { words, ..Self::default() }
    }

    /// When to look again.
    pub(super) fn wake(&self) -> Wake {
        self.pause.unwrap_or(SLOW)
    }
}

/// What the store says; where it has not been asked, or has not answered, a Job is made that asks it.
pub(super) fn answer(seen: &Observed, now: Timestamp) -> Answer {
    let mut all: Vec<&Inspection> = seen.inspections.iter().collect();
    all.sort_by_key(|one| job::number(&one.job));
    let own = |one: &&&Inspection| pods::controlled_by(&one.job.metadata, pods::uid(&seen.snapshot.metadata));
    if let Some(foreign) = all.iter().find(|one| !own(one)) {
        return Answer::Taken(Box::new(foreign.job.clone()));
    }
    let Some((last, before)) = all.split_last() else { return Answer::Open(ask(seen, 0, None)) };
    match report::read(&last.job, &last.pods, None, now) {
        stored @ Fact::Stored { .. } => Answer::Stored(stored),
        // Said of no other store, and of none that is missing: those are silent, and asked again.
        Fact::Failed { class: Some(ExitClass::NotFound), message, .. } => Answer::Nothing(message),
        // A Pod that cannot run is told of, whatever was wrong before.
        Fact::Held(_, words) => {
            Answer::Open(Inquiry::waits(report::as_told(held(seen).filter(|_| !before.is_empty()), words)))
        }
        Fact::Pending(words) => Answer::Open(match held(seen).filter(|_| !before.is_empty()) {
            Some(told) => Inquiry::waits(told.to_owned()),
            None => still(before, words, now),
        }),
        Fact::Running(words) => Answer::Open(still(before, words, now)),
        Fact::Settling => Answer::Open(match held(seen).filter(|_| report::never_ran(&last.job, &last.pods)) {
            Some(told) => Inquiry::waits(told.to_owned()),
            None => still(before, status::SETTLING.to_owned(), now),
        }),
        ended @ (Fact::Failed { .. } | Fact::Lost) => {
            let denied = matches!(ended, Fact::Failed { class: Some(ExitClass::Denied), .. });
            let (why, at) = silence(ended, &last.job).unwrap_or_default();
            let held = held(seen).filter(|_| report::never_ran(&last.job, &last.pods));
            let at = at.unwrap_or(now);
            let since = all.first().and_then(|first| created(&first.job)).unwrap_or(at);
            let inquiry = match Wake::at(at + pause(since, at), now) {
                Some(later) => Inquiry { silent: Some(why), pause: Some(later), ..Inquiry::default() },
                None => ask(seen, job::number(&last.job).saturating_add(1), Some(why)),
            };
            Answer::Open(match held {
                // The store was not even asked.
                Some(told) => Inquiry { words: told.to_owned(), silent: None, ..inquiry },
                None => Inquiry { denied, ..inquiry },
            })
        }
    }
}

/// What is told of a Pod that asks and is held up.
fn held(seen: &Observed) -> Option<&str> {
    let told = seen.snapshot.status.as_ref()?.conditions.iter().find(|c| c.type_ == Type::Ready.as_str())?;
    report::held_in(&told.message)
}

/// How long a store is left alone that has given no answer since then: as long as it has been asked in vain.
pub(in crate::plan) fn pause(since: Timestamp, failed_at: Timestamp) -> SignedDuration {
    failed_at.duration_since(since).clamp(SOON, LATER)
}

fn ask(seen: &Observed, number: i32, silent: Option<String>) -> Inquiry {
    match place::of(seen, Right::Read) {
        Ok(at) => Inquiry { ask: Some(Box::new(job::inspect(seen, at, number))), silent, ..Inquiry::default() },
        Err((_, why)) => Inquiry { silent: Some(why), ..Inquiry::default() },
    }
}

/// While the store is asked again, why it did not answer is still what a person has to know; and in the same words, so that
/// nothing is written while nothing changes (I17).
fn still(before: &[&Inspection], words: String, now: Timestamp) -> Inquiry {
    let last = before.last().and_then(|one| silence(report::read(&one.job, &one.pods, None, now), &one.job));
    Inquiry { words, silent: last.map(|(why, _)| why), ..Inquiry::default() }
}

/// Why a Job that has ended brought no answer, and when.
fn silence(fact: Fact, job: &Job) -> Option<(String, Option<Timestamp>)> {
    match fact {
        Fact::Failed { message, at, .. } => Some((message, at)),
        Fact::Lost => {
            let why = "the Job that asked the store ended well, and its report is gone".to_owned();
            Some((why, created(job)))
        }
        Fact::Pending(_) | Fact::Running(_) | Fact::Held(..) | Fact::Settling | Fact::Stored { .. } => None,
    }
}

fn created(job: &Job) -> Option<Timestamp> {
    job.metadata.creation_timestamp.as_ref().map(|at| at.0)
}
