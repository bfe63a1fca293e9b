//! What is known of a Job of ours. How it is read from the Job and its Pods is decided in `jobs.rs`.

use jiff::Timestamp;
use snapshot_agent::contract::{ExitClass, Failure, Origin, SavedReport};

use super::held::HeldUp;
use crate::api::condition::Reason;

/// What is known of a Job.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) enum Fact {
    /// The Job is suspended or being deleted.
    Pending(String),
    /// It works.
    Running(String),
    /// No Pod of the Job runs, or the last one is not seen to end.
    HeldUp(HeldUp),
    /// It ended, and the last words of a Pod may still be on their way.
    Settling,
    /// It ended well, and nobody knows with what.
    Lost,
    /// A Pod stored the snapshot.
    Stored {
        /// What it said.
        report: Box<SavedReport>,
        /// When it ended.
        at: Option<Timestamp>,
    },
    /// It was given up.
    Failed {
        /// The row of the table of failures, where the agent or the Job gave a class.
        failure: Option<&'static Failure>,
        /// What happened.
        message: String,
        /// When.
        at: Option<Timestamp>,
        /// What kept every Pod from running, where it is certain that none ran.
        held: Option<HeldUp>,
    },
}

/// The reason of a failure; without a row, the agent crashed.
pub(in crate::plan) fn reason_of(failure: Option<&Failure>) -> Reason {
    failure.map_or(Reason::AgentCrashed, Reason::from)
}

/// The reason of a failure where this kept every Pod from running.
pub(in crate::plan) fn reason_of_unstarted(failure: Option<&Failure>, held: &HeldUp) -> Reason {
    match (held.reason, &held.pod) {
        (Reason::WriteRefused, _) => Reason::WriteRefused,
        // It has waited to the end of the Job's time, whatever kubelet expected.
        (_, Some(_)) => Reason::PodHeldUp,
        // Why there was no Pod is not known.
        (_, None) => reason_of(failure),
    }
}

/// The names by which a status records a failure: class and origin.
pub(in crate::plan) fn names_of(failure: Option<&Failure>) -> (String, Option<String>) {
    let class = failure.map_or("Crashed", |row| row.class.as_str());
    let origin = failure.and_then(|row| row.origin).map(Origin::as_str);
    (class.to_owned(), origin.map(str::to_owned))
}

/// The row of a failure that a status records by the names of its class and origin.
pub(in crate::plan) fn recorded(class: &str, origin: Option<&str>) -> Option<&'static Failure> {
    let class = ExitClass::ALL.into_iter().find(|known| known.as_str() == class)?;
    Some(Failure::of(class, Origin::ALL.into_iter().find(|known| Some(known.as_str()) == origin)))
}
