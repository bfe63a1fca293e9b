//! From the present members to fewer.
//!
//! Decides the order for one member at a time (I11): `leaving` is latched, clients and leadership go elsewhere, etcd removes the
//! member, `removed` is latched, the `EtcdMember` is deleted. A voter goes only while a quorum of the rest is healthy (I1). The
//! member's own pass then deletes the Pod and the claim. A changed spec reaches the members before fewer than three remain. `victim.rs` decides which member goes; `replace.rs` decides which member
//! is replaced.

use holdfast_api::condition::Reason;
use holdfast_api::member::{Departure, Leaving, Removed};
use holdfast_api::{key, role};
use holdfast_contract::hex_id;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::hand_over::hand_over;
use super::health::{in_doubt, stands_at_three, voters};
use super::intervals::POLL;
use super::orphan::remove;
use super::{Listed, Member, Membership, Observed, diverged, health, orphan, roll, victim};
use holdfast_base::valid::Wanted;
use holdfast_base::{Act, Next, Target, Wake, meta, objects, pods};

/// Interval while a voter may not go yet.
const RETRY: Wake = Wake::AfterMillis(500);

/// Returns the next step towards fewer members; `None` when there is no step left.
pub(super) fn next(seen: &Observed, wanted: &Wanted, etcd: &Membership, now: Timestamp) -> Option<Next> {
    if let Some((member, listed)) = listed_again(seen, etcd) {
        return Some(remove(etcd, member.name(), listed));
    }
    // A healthy voter waits for the members that take its place, which `grow.rs` adds meanwhile.
    let member = leaving(seen, etcd);
    let alone = member.is_some_and(|member| is_needed(seen, wanted, etcd, member));
    if let Some(member) = member.filter(|_| !alone) {
        return Some(depart(seen, etcd, member, now));
    }
    if let Some(next) = delete_removed(seen) {
        return Some(next);
    }
    if let Some(unbooted) = etcd.members.iter().find(|l| never_booted_without_member(seen, l)) {
        return Some(remove(etcd, unbooted.peer_urls.first().map_or("", String::as_str), unbooted));
    }
    if let Some(next) = orphan::next(seen, etcd) {
        return Some(next);
    }
    if alone || seen.staying().count() <= wanted.replicas {
        return None;
    }
    if let Some(doubt) = in_doubt(etcd) {
        return Some(doubt);
    }
    // A restart of one of three voters costs no quorum; later it would.
    if stands_at_three(seen, etcd) && roll::comes_first(seen, wanted, etcd, now) {
        return None;
    }
    let member = victim::choose(seen, etcd)?;
    // Before the latch: a member that leaves never stays, and a user may still change the size.
    let voter = seen.listed(etcd, member.name()).filter(|l| !l.learner);
    if let Some(voter) = voter.filter(|voter| !health::can_spare(seen, etcd, voter)) {
        return Some(unspared(seen, etcd, voter, member.name()));
    }
    let leaving = Leaving { why: Departure::ScaledIn, evidence: None, at: now.to_string() };
    Some(Next::act(Act::LatchLeaving { member: Target::from(&member.object.metadata), leaving }))
}

/// Deletes the object of a member that etcd has removed, also while etcd is silent: the proof is latched. A learner that etcd
/// lists again is removed first.
pub(super) fn delete_removed(seen: &Observed) -> Option<Next> {
    let again = |m: &Member| seen.own_etcd().is_some_and(|etcd| seen.listed(etcd, m.name()).is_some());
    let member = seen.members.iter().find(|m| m.removed() && !m.deleting() && !again(m))?;
    let why = "etcd does not list the member any more".to_owned();
    Some(Next::act(Act::DeleteMember { member: Target::from(&member.object.metadata), why }))
}

/// Returns the member that leaves next. Only one member leaves (I11), except in two cases: another member was lost or never got its
/// vote meanwhile, and goes first; or the request of a crashed operator took effect late, and then the leader goes last.
fn leaving<'a>(seen: &'a Observed, etcd: &Membership) -> Option<&'a Member> {
    let listed = |m: &Member| seen.listed(etcd, m.name());
    let last = |m: &&Member| {
        let (votes, leads) = listed(m).map_or((false, false), |l| (!l.learner, Some(l.id) == etcd.leader));
        (!m.object.spec.is_lost(), votes, leads)
    };
    seen.members.iter().filter(|m| !m.stays() && !m.removed()).min_by_key(last)
}

/// Whether a healthy voter that leaves is one of the last two, and the spec asks for two or more: with one voter the next loss is
/// total.
fn is_needed(seen: &Observed, wanted: &Wanted, etcd: &Membership, member: &Member) -> bool {
    let Some(voter) = seen.listed(etcd, member.name()).filter(|l| !l.learner) else { return false };
    let healthy = health::healthy(seen, etcd);
    let others = healthy.iter().filter(|(l, m)| l.id != voter.id && m.stays()).count();
    let serves = healthy.iter().any(|(l, _)| l.id == voter.id);
    let goes = serves && health::can_spare(seen, etcd, voter) && !member.object.spec.is_lost();
    // The data of a member in memory go with it: the next member comes first, and a bad change costs no vote.
    let in_memory = member.object.spec.storage.in_memory() && !is_scaled_in(member);
    let least = if in_memory { wanted.replicas } else { 2 };
    voters(etcd) == 1 || (goes && wanted.replicas > 1 && others < least)
}

/// Returns the next step of a member that leaves.
fn depart(seen: &Observed, etcd: &Membership, member: &Member, now: Timestamp) -> Next {
    let Some(listed) = seen.listed(etcd, member.name()) else {
        let removed = Removed {
            member_id: member.object.spec.joined.as_ref().map(|joined| joined.member_id.clone()),
            cluster_id: hex_id(etcd.cluster_id),
            at: now.to_string(),
        };
        return Next::act(Act::LatchRemoved { member: Target::from(&member.object.metadata), removed });
    };
    if let Some(doubt) = in_doubt(etcd).filter(|_| !listed.learner && !diverged::leaves(seen, member)) {
        return doubt;
    }
    if let Some(wait) = fenced(member, now) {
        return wait;
    }
    // The member serves its clients until etcd may remove the member.
    if !listed.learner && !health::can_spare(seen, etcd, listed) {
        return unspared(seen, etcd, listed, member.name());
    }
    let voter = |pod: &&Pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
    if let Some(pod) = member.live_pod().filter(voter) {
        return Next::act(Act::DismissClients { pod: Target::from(&pod.metadata) });
    }
    if etcd.leader == Some(listed.id) {
        return hand_over(seen, etcd, listed, member.name()).unwrap_or_else(|| {
            let message = format!("no healthy voter can lead in place of {}, which is to be removed", member.name());
            Next::wait(Reason::Shrinking, message, RETRY)
        });
    }
    remove(etcd, member.name(), listed)
}

/// Returns the wait for the Pod of a lost member. The Pod ends before etcd removes the member, so that no etcd serves from such a
/// volume again.
fn fenced(member: &Member, now: Timestamp) -> Option<Next> {
    let pod = member.pod.as_ref().filter(|_| member.object.spec.is_lost())?;
    let name = member.name();
    if pods::lingers(pod, now) {
        return Some(Next::wait(Reason::NodeSilent, format!("{name} is lost: {}", pods::who_holds(pod)), POLL));
    }
    Some(Next::wait(Reason::Replacing, format!("the Pod of {name} ends before etcd removes the member"), RETRY))
}

fn unspared(seen: &Observed, etcd: &Membership, voter: &Listed, name: &str) -> Next {
    let (healthy, rest) = health::without(seen, etcd, voter);
    let replaced = seen.members.iter().any(|m| m.name() == name && !is_scaled_in(m));
    let reason = if replaced { Reason::Replacing } else { Reason::Shrinking };
    let message = format!(
        "Holdfast removes {name} when a quorum of the other {rest} voters is healthy: {healthy} are. Bring the silent voters \
         back"
    );
    Next::wait(reason, message, if healthy == 0 { POLL } else { RETRY })
}

/// Whether no other member takes this member's place.
pub(super) fn is_scaled_in(member: &Member) -> bool {
    member.object.spec.leaving.as_ref().is_none_or(|leaving| leaving.why == Departure::ScaledIn)
}

/// Returns a removed member that etcd lists as a learner: a request to add the member took effect after the proof was latched.
fn listed_again<'a>(seen: &'a Observed, etcd: &'a Membership) -> Option<(&'a Member, &'a Listed)> {
    let learner = |m: &'a Member| Some((m, seen.listed(etcd, m.name()).filter(|l| l.learner)?));
    seen.members.iter().filter(|m| m.removed()).find_map(learner)
}

/// Whether etcd lists a learner under a peer URL of this cluster that has never started and has no `EtcdMember`: a request to add
/// the learner took effect after Holdfast gave the member up. The learner holds no data and no vote.
fn never_booted_without_member(seen: &Observed, listed: &Listed) -> bool {
    listed.learner
        && listed.name.is_empty()
        && seen.standing_for(listed).is_none()
        && listed.peer_urls.iter().all(|url| objects::member::is_peer_url(&seen.cluster, url))
}
