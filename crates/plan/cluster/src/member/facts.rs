//! Facts about a member and its cluster that several decisions use.

use holdfast_api::EtcdCluster;
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

/// Returns the Pod with the member's name if the member controls the Pod.
pub(super) fn own_pod(seen: &Observed) -> Option<&Pod> {
    seen.pod.as_ref().filter(|pod| meta::controlled_by(&pod.metadata, meta::uid(&seen.member.metadata)))
}
