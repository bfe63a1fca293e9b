//! The record of a return: how it passes into its next phase, and the words of each phase.
//!
//! Decides no step.

use holdfast_api::EtcdRestore;
use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::timeline::{ReturnPhase, Returning};
use jiff::{SignedDuration, Timestamp};

use super::super::{Member, Observed};
use holdfast_base::{Act, Next, Wake, pods};

/// Interval while a Pod ends, starts, or restores: the watch of the Pod reports most of it earlier.
const RETRY: Wake = Wake::AfterMillis(1_000);

/// Whether the `EtcdRestore` has recorded its end.
pub(super) fn has_ended(restore: &EtcdRestore) -> bool {
    restore.status.as_ref().is_some_and(|status| status.phase.is_final())
}

/// Whether the `EtcdRestore` of the return is there and stays.
pub(super) fn is_wanted(seen: &Observed, returning: &Returning) -> bool {
    let own = |restore: &&EtcdRestore| restore.metadata.uid.as_ref() == Some(&returning.uid);
    seen.returns.as_ref().filter(own).is_some_and(|restore| restore.metadata.deletion_timestamp.is_none())
}

/// Writes the latches.
pub(super) fn latch(latches: Latches) -> Next {
    Next::act(Act::Latch(Box::new(latches)))
}

/// Writes the record as it is changed.
pub(super) fn write(seen: &Observed, returning: Returning) -> Next {
    latch(Latches { returning: Some(returning), ..seen.latches() })
}

/// Ends the way forward: the earlier timeline serves again.
pub(super) fn fail(seen: &Observed, returning: &Returning, why: &str, now: Timestamp) -> Next {
    let failure = Some(why.chars().take(2000).collect());
    write(seen, Returning { failure, ..returning.clone() }.entering(ReturnPhase::TurningBack, now))
}

/// Longest time without a member for clients before a return has failed: the data is on its volume, and a Pod starts in seconds.
const OUTAGE_SECONDS: u32 = 600;

/// Whether a phase without a member for clients has lasted too long, and the return is to turn back.
pub(super) fn is_late(returning: &Returning, now: Timestamp) -> Option<u32> {
    let seconds = match returning.survivor() {
        // Without a quorum no member serves in any case.
        Some(_) => returning.deadline_seconds,
        None => returning.deadline_seconds.min(OUTAGE_SECONDS),
    };
    (is_over(returning, seconds, now) && !returning.stays).then_some(seconds)
}

/// Whether the present phase has lasted longer than this.
pub(super) fn is_over(returning: &Returning, seconds: u32, now: Timestamp) -> bool {
    let since: Option<Timestamp> = returning.since().and_then(|at| at.parse().ok());
    since.is_some_and(|since| now >= since + SignedDuration::from_secs(seconds.into()))
}

/// Returns the words for a member whose Pod ends; of a node that is silent, with the remedy.
pub(super) fn ends(member: &Member, now: Timestamp) -> String {
    let lingers = member.pod.as_ref().filter(|pod| pods::lingers(pod, now));
    match lingers {
        Some(pod) => format!("{}: {}", member.name(), pods::who_holds(pod)),
        None => format!("the Pod of {} ends", member.name()),
    }
}

/// Waits in a return.
pub(super) fn wait(message: String) -> Next {
    Next::wait(Reason::Returning, message, RETRY)
}

/// Returns the words of a phase, for the conditions of the cluster and of the `EtcdRestore`.
pub fn waits_for(returning: &Returning) -> String {
    let name = &returning.name;
    let why = returning.failure.as_deref().unwrap_or("the return was given up");
    match returning.phase() {
        ReturnPhase::Pending | ReturnPhase::Preparing if let Some(survivor) = returning.survivor() => {
            format!("EtcdRestore {name}: a Pod restores the data of {survivor} onto a new claim")
        }
        ReturnPhase::Pending | ReturnPhase::Preparing => {
            format!("EtcdRestore {name}: a Pod restores the data onto a new claim; the cluster serves meanwhile")
        }
        ReturnPhase::Saving => {
            format!("EtcdRestore {name}: clients are led away, and the safety snapshot is saved")
        }
        ReturnPhase::SettingAside => format!("EtcdRestore {name}: the Pods of the present members end"),
        ReturnPhase::Starting => format!("EtcdRestore {name}: the first member starts on the restored data"),
        ReturnPhase::TurningBack => {
            format!("EtcdRestore {name} has failed, and the earlier members start again: {why}")
        }
        ReturnPhase::Complete | ReturnPhase::Skipped => format!("EtcdRestore {name} has ended"),
        ReturnPhase::Failed if returning.survivor().is_some() => {
            format!("EtcdRestore {name} has failed, and the members stand as before it: {why}")
        }
        ReturnPhase::Failed => {
            format!("EtcdRestore {name} has failed, and the cluster serves its earlier timeline: {why}")
        }
    }
}
