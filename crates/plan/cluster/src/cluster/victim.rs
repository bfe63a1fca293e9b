//! Which member leaves next when a cluster is scaled in.
//!
//! Decides an order: a member that never joined, a learner, a voter whose data is lost, a silent voter, a member that a user
//! deleted, then the voter with the most other members in its zone and on its node, a follower before the leader, and the newest.
//! Does not decide when the member may leave.

use std::cmp::Reverse;

use super::{Member, Membership, Observed, health, replace};
use holdfast_base::meta;

/// Label of the zone, which Kubernetes copies from the node to the Pod (`PodTopologyLabelsAdmission`, on since 1.35).
const ZONE: &str = "topology.kubernetes.io/zone";

/// Returns the next member to remove, of those that stay.
pub(super) fn choose<'a>(seen: &'a Observed, etcd: &Membership) -> Option<&'a Member> {
    let healthy: Vec<u64> = health::healthy(seen, etcd).into_iter().map(|(l, _)| l.id).collect();
    let staying: Vec<&Member> = seen.staying().collect();
    let crowd = |place: fn(&Member) -> Option<&str>, member: &Member| {
        place(member).map_or(0, |own| staying.iter().filter(|m| place(m) == Some(own)).count())
    };
    staying.iter().copied().max_by_key(|member| {
        let listed = seen.listed(etcd, member.name());
        let voter = listed.filter(|l| !l.learner);
        (
            !member.joined() && voter.is_none(),
            voter.is_none(),
            replace::is_lost(seen, member),
            voter.is_some_and(|l| !healthy.contains(&l.id)),
            member.deleting(),
            crowd(zone, member),
            crowd(node, member),
            voter.map(|l| l.id) != etcd.leader,
            member.object.metadata.creation_timestamp.as_ref().map(|at| at.0),
            // The name makes the order total: the same facts give the same member.
            Reverse(member.name()),
        )
    })
}

fn zone(member: &Member) -> Option<&str> {
    meta::label(&member.pod.as_ref()?.metadata, ZONE)
}

fn node(member: &Member) -> Option<&str> {
    member.pod.as_ref()?.spec.as_ref()?.node_name.as_deref()
}
