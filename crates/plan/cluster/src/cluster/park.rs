//! To zero members and back.
//!
//! Decides that the membership stays as it is: every member keeps its identity and its volume, and only the Pods end. Each member's
//! log index is latched before, and clients come back only when the leader has applied that index. Parking needs no quorum.

use holdfast_api::condition::Reason;
use holdfast_api::member::Parked;
use jiff::Timestamp;

use super::intervals::SOON;
use super::leader_last::{self, NextEnd};
use super::{Member, Membership, Observed, shrink, silent};
use holdfast_base::{Act, Next, Target, Unread, Wake, pods};

/// Returns the next step towards a parked cluster.
pub(super) fn park(seen: &Observed, now: Timestamp) -> Next {
    // A waking cluster admits clients after a linearizable read, which needs a login then.
    if let Some(next) = silent::locked_out(seen).filter(|_| !wakes(seen)) {
        return next;
    }
    // A member that etcd does not list is not parked: its Pod ends with its object.
    if let Some(next) = shrink::delete_removed(seen) {
        return next;
    }
    let stands = |m: &&Member| !m.removed() && m.object.spec.parked.is_none();
    let ends = |member: &Member| {
        let message = format!("spec.replicas is 0: the Pod of {} ends", member.name());
        Next::wait(Reason::Parking, message, Wake::AfterMillis(1_000))
    };
    let parked = seen.members.iter().filter(|m| m.object.spec.parked.is_some());
    match leader_last::next(seen, seen.members.iter().filter(stands), parked, now) {
        Some(NextEnd::Now(member)) => {
            let answer = seen.known_answer(member.name());
            let parked = Parked {
                term: answer.map(|answer| answer.term),
                index: answer.map(|answer| answer.applied_index),
                at: now.to_string(),
            };
            Next::act(Act::Park { member: Target::from(&member.object.metadata), parked })
        }
        Some(NextEnd::After(other)) => ends(other),
        None => seen.members.iter().find(|m| m.pod.is_some()).map_or(Next::Settled(Wake::OnChange), ends),
    }
}

/// Whether a parked cluster has members that are still parked.
pub(super) fn wakes(seen: &Observed) -> bool {
    seen.members.iter().any(|m| m.object.spec.parked.is_some())
}

/// Returns the wait of a waking cluster while etcd does not answer.
pub(super) fn silent(seen: &Observed, why: &Unread, now: Timestamp) -> Next {
    match silent::wait(seen, why, now) {
        Next::Wait(waiting, wake) if !waiting.reason.needs_a_person() => {
            Next::wait(Reason::Waking, waiting.message, wake)
        }
        other => other,
    }
}

/// Returns the parked members, each with the index of its log, the smallest index first.
fn latched(seen: &Observed) -> Vec<(u64, &Member)> {
    let latched = seen.members.iter().filter_map(|m| Some((m.object.spec.parked.as_ref()?.index.unwrap_or(0), m)));
    let mut latched: Vec<(u64, &Member)> = latched.collect();
    latched.sort_by_key(|(index, _)| *index);
    latched
}

/// Returns the next step of a waking cluster that answers: the check that no entry is lost, then the removal of `parked`.
pub(super) fn wake(seen: &Observed, etcd: &Membership, now: Timestamp) -> Next {
    // The largest index goes last: until then the check covers every member.
    let unpark = |(_, least): &(u64, &Member)| Next::act(Act::Unpark { member: Target::from(&least.object.metadata) });
    lag(seen, etcd, now).unwrap_or_else(|| latched(seen).first().map_or(Next::Settled(SOON), unpark))
}

/// Returns the wait until the leader has applied each index at which a member was parked.
pub(super) fn lag(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let latched = latched(seen);
    let (index, member) = latched.last()?;
    let leader = etcd.members.iter().find(|l| Some(l.id) == etcd.leader);
    let answer = leader.and_then(|l| seen.serving(etcd, l, seen.standing_for(l)?.name()));
    let Some(applied) = answer.map(|answer| answer.applied_index) else {
        return Some(Next::wait(Reason::Waking, "the leader does not answer yet", SOON));
    };
    if applied >= *index {
        return None;
    }
    let all = etcd.members.iter().filter(|l| !l.learner).all(|l| {
        let member = seen.standing_for(l);
        member.is_some_and(|m| seen.serving(etcd, l, m.name()).is_some() && !pods::starting(m.live_pod(), now))
    });
    if !all {
        let message = format!(
            "the leader has applied raft index {applied}; {} was parked at {index}. Clients get access when the leader \
             reaches this index",
            member.name()
        );
        return Some(Next::wait(Reason::Waking, message, SOON));
    }
    let message = format!(
        "every voter answers, and the leader's raft index {applied} is lower than the index {index} at which {} was parked: \
         volumes were exchanged for older copies. Holdfast keeps clients away. See runbook VolumeRolledBack",
        member.name()
    );
    Some(Next::wait(Reason::VolumeRolledBack, message, Wake::AfterMillis(10_000)))
}
