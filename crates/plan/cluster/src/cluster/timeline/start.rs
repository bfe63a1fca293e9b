//! The start of the next timeline, until clients reach its first member.
//!
//! Decides when the timeline begins, when the return is complete, and when it has failed. `bootstrap.rs` and `promote.rs` take the steps.
//! After the first member has joined nothing turns back by itself.

use holdfast_api::cluster::Latches;
use holdfast_api::timeline::{ReturnPhase, Returning};
use holdfast_api::{key, role};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::super::{Member, Observed};
use super::record::{self, fail};
use holdfast_base::{Next, meta};

/// Begins the next timeline from the prepared member, after no Pod of the present one is left (I2).
pub(super) fn begin(seen: &Observed, record: Returning, now: Timestamp) -> Next {
    record::latch(Latches {
        timeline: Some(record.timeline),
        formed: None,
        pending_member: record.member.clone(),
        restoring: record.restoring.clone(),
        returning: Some(record.entering(ReturnPhase::Starting, now)),
        ..seen.latches()
    })
}

/// Returns the step; `None`: the rules of founding go on.
pub(super) fn next(seen: &Observed, returning: &Returning, now: Timestamp) -> Option<Next> {
    if seen.latches().formed.is_some() {
        let admitted = |pod: &Pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
        let served = seen.members.iter().filter_map(Member::live_pod).any(admitted);
        let returning = Some(returning.clone().entering(ReturnPhase::Complete, now));
        // The restored member has a new log, of the running version.
        let latches = Latches { returning, log_since: None, defragmented: vec![], ..seen.latches() };
        return served.then(|| record::latch(latches));
    }
    if seen.members.iter().any(Member::joined) {
        return None;
    }
    let seconds = record::is_late(returning, now)?;
    let why = format!("the first member of the new timeline did not start within {seconds} s");
    Some(fail(seen, returning, &why, now))
}
