//! Members that serve: from first answer to vote to clients.
//!
//! Decides the order joined → no empty start → vote → clients, member by member. In this order no client can write through a
//! member that the gate would still start on an emptied volume (I3).

use holdfast_api::condition::Reason;
use holdfast_api::member::Joined;
use holdfast_api::{key, role};
use holdfast_contract::hex_id;

use super::health::{CLOSE_ENOUGH, voters};
use super::intervals::SOON;
use super::{Listed, Member, Membership, Observed, defragment, health};
use holdfast_base::objects::budget::quorum;
use holdfast_base::{Act, Next, Target, meta, pods};

/// Returns the next step of a member that serves.
pub(super) fn next(seen: &Observed, etcd: &Membership) -> Option<Next> {
    admit(seen, etcd).or_else(|| newcomers(seen, etcd)).or_else(|| votes(seen, etcd))
}

/// Returns the step that lets clients in to a voter that serves.
pub(super) fn admit(seen: &Observed, etcd: &Membership) -> Option<Next> {
    forbid_empty_starts(seen).or_else(|| clients(seen, etcd))
}

/// Removes the permission of a member that has joined to start on an empty volume (I3, I5).
pub(super) fn forbid_empty_starts(seen: &Observed) -> Option<Next> {
    let own = |m: &Member| {
        let pod = m.live_pod().filter(|p| pods::may_start_empty(p))?;
        Some(Act::ForbidEmptyStart { pod: Target::from(&pod.metadata), joined: m.object.spec.joined.clone()? })
    };
    seen.members.iter().find_map(own).map(Next::act)
}

/// Admits clients to a voter that has joined and answers with its own IDs: another etcd on a member's volume would acknowledge
/// writes that the cluster never sees (I3).
fn clients(seen: &Observed, etcd: &Membership) -> Option<Next> {
    let serves = |l: &Listed, m: &Member| seen.serving(etcd, l, m.name()).is_some();
    let may = |m: &Member| m.joined() && m.stays() && !defragment::is_under_way(seen, m.name());
    let voters = present(seen, etcd).filter(|(l, m)| !l.learner && may(m) && serves(l, m));
    let pod =
        voters.filter_map(|(_, m)| m.live_pod()).find(|p| meta::label(&p.metadata, key::ROLE) != Some(role::VOTER))?;
    Some(Next::act(Act::AdmitClients { pod: Target::from(&pod.metadata) }))
}

/// Latches that a member has joined when the member serves for the first time.
fn newcomers(seen: &Observed, etcd: &Membership) -> Option<Next> {
    let (listed, member) = present(seen, etcd).find(|(l, m)| {
        !m.joined() && !m.deleting() && m.stays() && m.live_pod().is_some() && seen.serving(etcd, l, m.name()).is_some()
    })?;
    Some(Next::act(Act::LatchJoined {
        member: Target::from(&member.object.metadata),
        joined: Joined { member_id: hex_id(listed.id), cluster_id: hex_id(etcd.cluster_id) },
    }))
}

/// Promotes a learner that has caught up.
fn votes(seen: &Observed, etcd: &Membership) -> Option<Next> {
    let leader = etcd.leader.and_then(|id| etcd.members.iter().find(|l| l.id == id))?;
    let ahead = seen.serving(etcd, leader, seen.standing_for(leader)?.name())?.applied_index;
    let learners = present(seen, etcd).filter(|(l, m)| l.learner && m.joined() && m.stays() && m.live_pod().is_some());
    let ready = learners
        .filter_map(|(l, m)| Some((l, m, seen.serving(etcd, l, m.name())?)))
        // etcd itself promotes a learner with nine tenths of the log, and then every write waits for the rest. A learner without a
        // connection to the leader would be a missing vote.
        .find(|(_, _, answer)| {
            answer.leader == leader.id && ahead.saturating_sub(answer.applied_index) <= CLOSE_ENOUGH
        });
    let (listed, member, _) = ready?;
    // I1: with the new vote a quorum of the members still answers.
    if health::healthy(seen, etcd).len() + 1 < quorum(voters(etcd) + 1) {
        let message = format!("Holdfast promotes {} when more of the voters answer", member.name());
        return Some(Next::wait(Reason::WaitingForEtcd, message, SOON));
    }
    let act = Act::Promote { name: member.name().to_owned(), member_id: listed.id, cluster_id: etcd.cluster_id };
    // etcd refuses until the learner is in sync, typically 50 ms after the learner serves.
    Some(Next::Do(act, SOON))
}

/// Returns the entries of etcd's membership with their members.
fn present<'a>(seen: &'a Observed, etcd: &'a Membership) -> impl Iterator<Item = (&'a Listed, &'a Member)> {
    etcd.members.iter().filter_map(|l| Some((l, seen.standing_for(l)?)))
}
