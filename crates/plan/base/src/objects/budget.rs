//! The disruption budget of a cluster.
//!
//! Decides how many voters must stay during evictions (I1, I16).

use holdfast_api::{EtcdCluster, name};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{owned_by_cluster, voters};
use crate::meta;

/// Number of members that make a quorum.
pub const fn quorum(members: usize) -> usize {
    members / 2 + 1
}

/// Number of voters that must stay: the quorum of the wanted size, but at least one voter may go if the present cluster can
/// lose a voter.
pub fn min_available(count: usize, replicas: usize) -> usize {
    quorum(count.max(replicas)).min(count.saturating_sub(1)).max(quorum(count))
}

/// Returns the budget; `None` below two voters: evicting a single member always causes an outage, and a budget would block the
/// drain of its node for ever.
pub fn budget(cluster: &EtcdCluster, count: usize, replicas: usize) -> Option<PodDisruptionBudget> {
    (count >= 2).then(|| PodDisruptionBudget {
        metadata: owned_by_cluster(name::budget(meta::name(&cluster.metadata)), cluster),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(i32::try_from(min_available(count, replicas)).unwrap_or(i32::MAX))),
            selector: Some(LabelSelector { match_labels: Some(voters(cluster)), match_expressions: None }),
            // An unready member may be catching up. While a quorum is ready, Kubernetes may evict an unready member; without a
            // quorum, `AlwaysAllow` would let several drains evict the members that are coming back.
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
