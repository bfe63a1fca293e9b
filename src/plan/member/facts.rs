//! Facts about a member's cluster that several decisions ask for.

use super::Observed;
use crate::api::EtcdCluster;

/// The cluster, where it is known to be there.
pub(super) fn cluster(seen: &Observed) -> Option<&EtcdCluster> {
    seen.cluster.known()?.as_ref()
}

/// Whether the cluster is known to be there and not to have formed.
pub(super) fn unformed(seen: &Observed) -> bool {
    cluster(seen).is_some_and(|c| c.status.as_ref().is_none_or(|s| s.latches.formed.is_none()))
}
