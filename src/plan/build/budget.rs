//! The disruption budget of a cluster.
//!
//! Decides how many voters have to stay when Pods are evicted (I1, I16).

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{owned_by_cluster, voters};
use crate::api::{EtcdCluster, name};
use crate::plan::meta;

/// Members that make a decision.
pub const fn quorum(members: usize) -> usize {
    members / 2 + 1
}

/// How many voters have to stay: the quorum of the size that is meant, but never so many that a cluster which can lose
/// a member could not lose one.
pub fn min_available(count: usize, replicas: usize) -> usize {
    quorum(count.max(replicas)).min(count.saturating_sub(1)).max(quorum(count))
}

/// The budget; `None` below two voters: a single member can never be evicted without an outage, and a budget would
/// only make the drain of its node hang for ever.
pub fn budget(cluster: &EtcdCluster, count: usize, replicas: usize) -> Option<PodDisruptionBudget> {
    (count >= 2).then(|| PodDisruptionBudget {
        metadata: owned_by_cluster(name::budget(meta::name(&cluster.metadata)), cluster),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(i32::try_from(min_available(count, replicas)).unwrap_or(i32::MAX))),
            selector: Some(LabelSelector { match_labels: Some(voters(cluster)), match_expressions: None }),
            // A member that is not ready may be the one that is catching up. While a quorum is ready it may be evicted
            // all the same; without one, `AlwaysAllow` would let several drains take what is coming back.
            unhealthy_pod_eviction_policy: Some("IfHealthyBudget".to_owned()),
            max_unavailable: None,
        }),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_stays_and_a_spare_member_may_go() {
        for (voters, replicas, stay) in [
            (2, 2, 2),
            (2, 3, 2),
            (3, 3, 2),
            (3, 5, 2),
            (4, 5, 3),
            (4, 4, 3),
            (5, 5, 3),
            (5, 9, 4),
            (7, 7, 4),
            (9, 9, 5),
        ] {
            assert_eq!(min_available(voters, replicas), stay, "{voters} of {replicas}");
            assert!(stay >= quorum(voters));
            assert!(voters < 3 || stay < voters, "{voters} tolerate one");
        }
    }
}
