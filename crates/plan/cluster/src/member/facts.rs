//! Facts about a member and its cluster that several decisions use.

use holdfast_api::EtcdCluster;
use holdfast_api::timeline::{self, FIRST, Returning};
use k8s_openapi::api::core::v1::Pod;

use super::Observed;
use holdfast_base::meta;

/// Returns the cluster if its existence is known.
pub(super) fn cluster(seen: &Observed) -> Option<&EtcdCluster> {
    seen.cluster.known()?.as_ref()
}

/// Whether the cluster is known to exist and not to have formed.
pub(super) fn unformed(seen: &Observed) -> bool {
    cluster(seen).is_some_and(|c| c.status.as_ref().is_none_or(|s| s.latches.formed.is_none()))
}

/// Returns the return that prepares this member: the member belongs to a timeline that the cluster is not in yet. It gets no etcd.
pub(super) fn prepared_for(seen: &Observed) -> Option<Preparation<'_>> {
    let spec = &seen.member.spec;
    let latches = cluster(seen)?.status.as_ref().map(|status| &status.latches);
    let present = latches.and_then(|latches| latches.timeline).unwrap_or(FIRST);
    let ahead = spec.joined.is_none() && spec.aside.is_none() && timeline::of_member(&seen.member) > present;
    ahead.then(|| latches.and_then(|latches| latches.returning.as_ref()))
}

/// Whether the data of this first member is on its claim: the record of a return names the member that was prepared.
pub(super) fn is_prepared(seen: &Observed) -> bool {
    let latches = cluster(seen).and_then(|cluster| cluster.status.as_ref()).map(|status| &status.latches);
    let returning = latches.and_then(|latches| latches.returning.as_ref());
    let claim = seen.claim.as_ref().map(|claim| meta::uid(&claim.metadata));
    returning.is_some_and(|it| {
        // On another claim the data has to be restored again.
        it.claim_uid.is_some()
            && it.claim_uid.as_deref() == claim
            && it.member.as_deref() == Some(meta::name(&seen.member.metadata))
    })
}

/// The return that prepares a member; `None`: the record is lost, or the return has ended.
pub(super) type Preparation<'a> = Option<&'a Returning>;

/// Returns the Pod with the member's name if the member controls the Pod.
pub(super) fn own_pod(seen: &Observed) -> Option<&Pod> {
    seen.pod.as_ref().filter(|pod| meta::controlled_by(&pod.metadata, meta::uid(&seen.member.metadata)))
}
