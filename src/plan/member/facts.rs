//! Facts about a member and its cluster that several decisions ask for.

use k8s_openapi::api::core::v1::Pod;

use super::Observed;
use crate::api::EtcdCluster;
use crate::plan::meta;

/// The cluster, where it is known to be there.
pub(super) fn cluster(seen: &Observed) -> Option<&EtcdCluster> {
    seen.cluster.known()?.as_ref()
}

/// Whether the cluster is known to be there and not to have formed.
pub(super) fn unformed(seen: &Observed) -> bool {
    cluster(seen).is_some_and(|c| c.status.as_ref().is_none_or(|s| s.latches.formed.is_none()))
}

/// The Pod of the member's name, where the Pod is the member's own.
pub(super) fn own_pod(seen: &Observed) -> Option<&Pod> {
    seen.pod.as_ref().filter(|pod| meta::controlled_by(&pod.metadata, meta::uid(&seen.member.metadata)))
}
