//! State of a Job of Holdfast's. `jobs.rs` decides how to read the state from the Job and its Pods.

use holdfast_api::condition::Reason;
use holdfast_contract::{ExitClass, Failure, Origin, SavedReport};
use jiff::Timestamp;

use super::pod_cause::PodCause;

/// State of a Job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobState {
    /// The Job is suspended or being deleted.
    Pending(String),
    /// The Job works.
    Running(String),
    /// No Pod of the Job runs, or kubelet does not report the end of the last Pod.
    HeldUp(PodCause),
    /// The Job ended, and the report of a Pod may still arrive.
    Settling,
    /// The Job ended well, but its report is lost.
    Lost,
    /// A Pod stored the snapshot.
    Stored {
        /// The agent's report.
        report: Box<SavedReport>,
        /// When the agent ended.
        at: Option<Timestamp>,
    },
    /// The Job failed.
    Failed {
        /// The row of the table of failures, where the agent or the Job gave a class.
        failure: Option<&'static Failure>,
        /// The failure, for people.
        message: String,
        /// When the Job failed.
        at: Option<Timestamp>,
        /// The cause that kept every Pod from running, where it is certain that none ran.
        held: Option<PodCause>,
    },
}

/// Consequence of users in a snapshot.
pub const AUTH_ENABLED: &str =
    "authentication is on in this snapshot, so no EtcdCluster can be restored from it; holdfast agent restore can";

/// Returns the reason of a failure; without a row, the agent crashed.
pub fn reason_of(failure: Option<&Failure>) -> Reason {
    failure.map_or(Reason::AgentCrashed, Reason::from)
}

/// Returns the reason of a failure where this cause kept every Pod from running.
pub fn reason_of_unstarted(failure: Option<&Failure>, held: &PodCause) -> Reason {
    match (held.reason, &held.pod) {
        (cause @ (Reason::WriteRefused | Reason::WaitingForReference), _) => cause,
        // The Pod did not start until the Job's deadline, so the cause is no delay.
        (_, Some(_)) => Reason::PodHeldUp,
        // The reason for the missing Pod is unknown.
        (_, None) => reason_of(failure),
    }
}

/// Returns the names by which a status records a failure: class and origin.
pub fn names_of(failure: Option<&Failure>) -> (String, Option<String>) {
    let class = failure.map_or("Crashed", |row| row.class.as_str());
    let origin = failure.and_then(|row| row.origin).map(Origin::as_str);
    (class.to_owned(), origin.map(str::to_owned))
}

/// Returns the row of a failure that a status records by the names of its class and origin.
pub fn recorded(class: &str, origin: Option<&str>) -> Option<&'static Failure> {
    let class = ExitClass::ALL.into_iter().find(|known| known.as_str() == class)?;
    Some(Failure::for_class(class, Origin::ALL.into_iter().find(|known| Some(known.as_str()) == origin)))
}
