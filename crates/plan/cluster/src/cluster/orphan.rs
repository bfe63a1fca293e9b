//! Members that etcd lists, and that have no object in Kubernetes.
//!
//! Decides that such a member goes: it has a peer URL of this cluster, and neither an `EtcdMember` nor a Pod. No name is used
//! twice, so no etcd runs under its ID again. The pass may have read Kubernetes before etcd's list, and then misses the object of a
//! new member. So the ID is latched first, and the pass that removes the member has read Kubernetes after the latch.

use holdfast_api::cluster::Latches;
use holdfast_contract::hex_id;

use super::health::in_doubt;
use super::{Listed, Membership, Observed, health};
use holdfast_base::{Act, Next, objects};

/// Returns the next step for such a member; `None` where no member may go.
pub(super) fn next(seen: &Observed, etcd: &Membership) -> Option<Next> {
    let latches = seen.latches();
    let known = latches.orphan.as_deref();
    if let Some(orphan) = etcd.members.iter().find(|l| may_go(seen, etcd, l)) {
        let id = hex_id(orphan.id);
        return Some(if known == Some(id.as_str()) {
            let url = orphan.peer_urls.first().map_or("", String::as_str);
            remove(etcd, if orphan.name.is_empty() { url } else { &orphan.name }, orphan)
        } else {
            Next::act(Act::Latch(Box::new(Latches { orphan: Some(id), ..latches })))
        });
    }
    let stands = |l: &Listed| Some(hex_id(l.id).as_str()) == known && seen.standing_for(l).is_none();
    let over = known.is_some() && !etcd.members.iter().any(stands);
    over.then(|| Next::act(Act::Latch(Box::new(Latches { orphan: None, ..latches }))))
}

/// Whether the member may go: a voter only while a quorum of the others is healthy (I1), no member joins and none is corrupt.
fn may_go(seen: &Observed, etcd: &Membership, listed: &Listed) -> bool {
    let pending = seen.latches().pending_member;
    let gone = |url: &String| {
        let name = url.split_once("://").and_then(|(_, rest)| Some(rest.split_once('.')?.0.to_owned()));
        let runs = name.as_ref().is_none_or(|name| seen.stray_pods.contains(name));
        objects::member::is_peer_url(&seen.cluster, url) && !runs && pending != name
    };
    let is_gone = !listed.peer_urls.is_empty() && listed.peer_urls.iter().all(gone);
    let settled = etcd.members.iter().all(|l| !l.learner) && in_doubt(etcd).is_none();
    let spared = listed.learner || (settled && etcd.leader != Some(listed.id) && health::can_spare(seen, etcd, listed));
    is_gone && spared && seen.standing_for(listed).is_none() && seen.cluster.spec.repairs_itself()
}

/// Returns the removal of a listed member.
pub(super) fn remove(etcd: &Membership, name: &str, listed: &Listed) -> Next {
    Next::act(Act::RemoveMember {
        name: name.to_owned(),
        member_id: listed.id,
        learner: listed.learner,
        cluster_id: etcd.cluster_id,
    })
}
