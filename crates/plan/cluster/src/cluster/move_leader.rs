//! A user's request for another leader: the annotation `holdfast.dev/move-leader` of the EtcdCluster names the member.
//!
//! Decides when the leadership moves, and when the request ends. The request counts once: when the member leads, or cannot lead, the
//! annotation goes, so that a later election or roll is not undone. The request waits while a voter is not well, because etcd stops
//! writes for an election if the next leader is not level. `hand_over.rs` moves the leadership for other reasons.

use holdfast_api::key;

use super::health::is_well;
use super::{Listed, Membership, Observed};
use holdfast_base::{Act, Next, Target, Unelectable, meta};

/// Returns the next step of the request; `None` without a request, or while a voter is not well.
pub(super) fn next(seen: &Observed, etcd: &Membership) -> Option<Next> {
    let name = requested(seen)?;
    let listed = seen.staying().find(|member| member.name() == name).and_then(|_| seen.listed(etcd, name));
    let listed = match listed {
        None => return Some(end(seen, name, Some(Unelectable::Absent))),
        Some(listed) if listed.learner => return Some(end(seen, name, Some(Unelectable::Learner))),
        Some(listed) if etcd.leader == Some(listed.id) => return Some(end(seen, name, None)),
        Some(listed) => listed,
    };
    let from = etcd.members.iter().find(|leader| etcd.leader == Some(leader.id))?;
    let leader = seen.standing_for(from)?;
    let is_ready = |voter: &Listed| seen.standing_for(voter).is_some_and(|member| is_well(seen, etcd, voter, member));
    let all_well = etcd.members.iter().filter(|voter| !voter.learner).all(is_ready);
    all_well.then(|| {
        let (from, to, cluster_id) = (from.id, listed.id, etcd.cluster_id);
        Next::act(Act::MoveLeader { name: leader.name().to_owned(), from, to, cluster_id })
    })
}

/// Whether the request names the member with this ID.
pub(super) fn is_requested(seen: &Observed, etcd: Option<&Membership>, id: u64) -> bool {
    let listed = etcd.and_then(|etcd| etcd.members.iter().find(|listed| listed.id == id));
    let member = listed.and_then(|listed| seen.standing_for(listed));
    member.is_some_and(|member| requested(seen) == Some(member.name()))
}

fn requested(seen: &Observed) -> Option<&str> {
    meta::annotation(&seen.cluster.metadata, key::MOVE_LEADER)
}

fn end(seen: &Observed, member: &str, refused: Option<Unelectable>) -> Next {
    let cluster = Target::from(&seen.cluster.metadata);
    Next::act(Act::EndLeaderRequest { cluster, member: member.to_owned(), refused })
}
