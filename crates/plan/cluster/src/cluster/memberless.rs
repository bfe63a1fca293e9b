//! A cluster that has formed by its own status, and has no member.
//!
//! Decides the wait and its message, never an act. A backup tool can restore an object with its status: then the status describes
//! an earlier cluster, and the latch that the cluster has formed holds in that case too (I2, I9).

use holdfast_api::cluster::MemberSummary;
use holdfast_api::condition::Reason;
use holdfast_api::key;

use super::intervals::POLL;
use super::{ForeignVolume, Observed};
use holdfast_base::{Next, meta, objects};

/// Returns the wait while there is no member.
pub(super) fn next(seen: &Observed) -> Next {
    let formed = seen.latches().formed.map(|formed| formed.cluster_id).unwrap_or_default();
    let uid = meta::uid(&seen.cluster.metadata);
    let Some(earlier) = another_life(seen) else {
        let message = format!(
            "this cluster formed etcd cluster {formed}, and all its EtcdMembers were removed past their finalizers. \
             Holdfast founds and restores nothing in its place. List the volumes that are left: kubectl get pvc -l {}={uid}. \
             Save their data; then delete this EtcdCluster and create it again with bootstrap.restore",
            key::CLUSTER_UID
        );
        return Next::wait(Reason::QuorumLost, message, POLL);
    };
    let message = format!(
        "this status was brought back: it is of an earlier EtcdCluster of this name{earlier}, which had formed etcd cluster \
         {formed}. No EtcdMember belongs to this one (UID {uid}), and nothing is founded, restored or taken over for it. Save \
         what is needed of the earlier one's data; then delete this EtcdCluster and create it anew from its manifest, without \
         a status, with bootstrap.restore. Of the earlier one {}",
        describe_leftovers(&seen.foreign_members, &seen.foreign)
    );
    Next::wait(Reason::ForeignStatusFound, message, POLL)
}

/// Returns the UID of the earlier object in brackets, if the status belongs to an earlier object: by the token in the status,
/// else by the objects that an earlier cluster left.
fn another_life(seen: &Observed) -> Option<String> {
    let own = objects::member::token(&seen.cluster);
    let before = own.strip_suffix(meta::uid(&seen.cluster.metadata)).unwrap_or(&own);
    let other_token = token(seen).filter(|other_token| *other_token != own);
    let uid = other_token
        .as_ref()
        .and_then(|other_token| other_token.strip_prefix(before))
        .map(|uid| format!(" (UID {uid})"));
    let is_there = !seen.foreign_members.is_empty() || !seen.foreign.is_empty();
    uid.or_else(|| (other_token.is_some() || is_there).then(String::new))
}

/// Returns the token in the status: without members only the token identifies the object that the status belongs to.
pub(super) fn token(seen: &Observed) -> Option<String> {
    let status = seen.cluster.status.as_ref().filter(|_| is_memberless(seen))?;
    status.cluster_token.clone()
}

/// Returns the members in the status: their names lead to their volumes. Holdfast can ask none of them.
pub(super) fn summaries(seen: &Observed, old: &[MemberSummary]) -> Option<Vec<MemberSummary>> {
    let gone = |member: &MemberSummary| MemberSummary {
        healthy: false,
        role: None,
        reason: Some("there is no EtcdMember".to_owned()),
        ..member.clone()
    };
    is_memberless(seen).then(|| old.iter().map(gone).collect())
}

fn is_memberless(seen: &Observed) -> bool {
    seen.members.is_empty() && seen.others.is_empty() && seen.latches().formed.is_some()
}

fn describe_leftovers(members: &[String], volumes: &[ForeignVolume]) -> String {
    let claims: Vec<&str> = volumes.iter().map(|volume| volume.claim.as_str()).collect();
    let (members, claims) = (members.join(", "), claims.join(", "));
    match (members.is_empty(), claims.is_empty()) {
        (true, true) => "none of its members and claims is here".to_owned(),
        (false, true) => format!("no claim is here, and these EtcdMembers: {members}"),
        (true, false) => format!("no EtcdMember is here, and these claims: {claims}"),
        (false, false) => format!("these EtcdMembers are here: {members}; and these claims: {claims}"),
    }
}
