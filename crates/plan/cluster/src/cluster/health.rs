//! Which voters count when a vote is added or removed (I1).
//!
//! Decides the meaning of healthy: a voter answers for itself, follows the leader that the linearizable list names, lags at most
//! [`CLOSE_ENOUGH`] entries behind that leader, and its Pod is not being deleted. A voter that answers while it is cut off from its
//! peers is not healthy.

use holdfast_api::condition::Reason;
use holdfast_api::{key, role};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::intervals::POLL;
use super::{Listed, Member, Membership, Observed};
use holdfast_base::objects::budget::quorum;
use holdfast_base::{AlarmKind, Next, Wake, meta, pods};

/// Raft entries that a healthy voter may lack.
pub(super) const CLOSE_ENOUGH: u64 = 1_000;

/// Returns the healthy voters.
pub(super) fn healthy<'a>(seen: &'a Observed, etcd: &'a Membership) -> Vec<(&'a Listed, &'a Member)> {
    let answer = |listed: &Listed| {
        let member = seen.standing_for(listed)?;
        // A Pod that is being deleted may end at any moment.
        member.live_pod()?;
        Some((member, seen.serving(etcd, listed, member.name())?))
    };
    let Some(leader) = etcd.leader else { return vec![] };
    let ahead = etcd.members.iter().find(|l| l.id == leader).and_then(answer).map(|(_, reply)| reply.applied_index);
    let Some(ahead) = ahead else { return vec![] };
    let healthy = |listed: &'a Listed| {
        let (member, reply) = answer(listed)?;
        let close = ahead.saturating_sub(reply.applied_index) <= CLOSE_ENOUGH;
        (reply.leader == leader && close).then_some((listed, member))
    };
    etcd.members.iter().filter(|l| !l.learner).filter_map(healthy).collect()
}

/// Returns the number of healthy voters, and the number of voters, both without this voter.
pub(super) fn without(seen: &Observed, etcd: &Membership, voter: &Listed) -> (usize, usize) {
    let healthy = healthy(seen, etcd).into_iter().filter(|(l, _)| l.id != voter.id).count();
    (healthy, voters(etcd).saturating_sub(1))
}

/// Whether a quorum of the remaining voters is healthy after the removal of this voter.
pub(super) fn can_spare(seen: &Observed, etcd: &Membership, voter: &Listed) -> bool {
    let (healthy, rest) = without(seen, etcd, voter);
    rest > 0 && healthy >= quorum(rest)
}

/// Returns the number of voters that etcd lists.
pub(super) fn voters(etcd: &Membership) -> usize {
    etcd.members.iter().filter(|l| !l.learner).count()
}

/// Returns the wait while Holdfast does not know which members are corrupt (I3).
pub(super) fn in_doubt(etcd: &Membership) -> Option<Next> {
    let message = "Holdfast removes no voter while a CORRUPT alarm is raised: the members that are left may be the corrupt \
                   ones";
    let corrupt = etcd.alarms_of(AlarmKind::Corrupt).next().is_some();
    corrupt.then(|| Next::wait(Reason::AlarmRaised, message, POLL))
}

/// Whether a voter serves clients, follows the leader, lags little, and has its volume (I1).
pub(super) fn is_well(seen: &Observed, etcd: &Membership, listed: &Listed, member: &Member) -> bool {
    let admitted = |pod: &Pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
    is_level(seen, etcd, listed, member) && member.live_pod().is_some_and(admitted)
}

/// Whether a voter follows the leader, lags little, and has its volume, also where clients were led away from it.
pub(super) fn is_level(seen: &Observed, etcd: &Membership, listed: &Listed, member: &Member) -> bool {
    let healthy = healthy(seen, etcd).iter().any(|(l, _)| l.id == listed.id);
    let volume = member.object.spec.storage.in_memory() || member.live_claim().is_some();
    healthy && volume && !member.deleting() && member.live_pod().is_some_and(pods::ready)
}

/// Whether a member joins or leaves, or the number of members is not the wanted one (I11).
pub(super) fn changes_members(seen: &Observed, etcd: &Membership) -> bool {
    let replicas = usize::try_from(seen.cluster.spec.replicas).unwrap_or_default();
    let whole = etcd.members.iter().all(|l| !l.learner && seen.standing_for(l).is_some_and(Member::stays));
    let leaves = seen.members.iter().any(|m| !m.stays() && !m.removed());
    !whole || leaves || seen.staying().count() != etcd.members.len() || etcd.members.len() != replicas
}

/// Whether a cluster of three voters, of which none leaves yet, is to have fewer.
pub(super) fn stands_at_three(seen: &Observed, etcd: &Membership) -> bool {
    let stays = |l: &Listed| !l.learner && seen.standing_for(l).is_some_and(Member::stays);
    // A removed member may still have its object.
    let all_stay = seen.members.iter().all(|m| m.stays() || m.removed()) && etcd.members.iter().all(stays);
    let all_stay = all_stay && seen.staying().count() == 3 && etcd.members.len() == 3;
    all_stay && matches!(seen.cluster.spec.replicas, 1 | 2)
}

/// Returns the wait for listed members whose Pod is not ready.
pub(super) fn restarting(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let back: Vec<&str> = etcd
        .members
        .iter()
        .filter_map(|l| seen.standing_for(l))
        .filter(|m| !m.live_pod().is_some_and(pods::ready))
        .map(Member::name)
        .collect();
    if back.is_empty() {
        return None;
    }
    let starting = seen.members.iter().any(|m| pods::starting(m.live_pod(), now));
    let message = format!("not ready: {}", back.join(", "));
    Some(Next::wait(Reason::MemberRestarting, message, if starting { Wake::AfterMillis(1_000) } else { POLL }))
}
