//! The Pod that restored the first member, by its object.
//!
//! Decides only which Pod that is, and whether `seed.rs` ever ends it.

use holdfast_api::{EtcdCluster, name};
use k8s_openapi::api::core::v1::Pod;

use super::Member;
use holdfast_base::{Settings, pods};

/// Whether the Pod of a member restored and may end in a cluster of this size.
pub(super) fn may_end(cluster: &EtcdCluster, member: &Member, settings: &Settings) -> bool {
    cluster.spec.replicas > 2 && find(member).is_some_and(|pod| is_of_this_version(pod, settings))
}

/// Whether this version of the operator made a Pod that restored.
pub(super) fn is_of_this_version(pod: &Pod, settings: &Settings) -> bool {
    pods::agent_image(pod) == Some(&settings.agent_image)
}

/// Returns the member's Pod, if this Pod restored. The Pod was the member's first, and the member counted its start (I27): a
/// webhook may put a step of that name into later Pods, and Holdfast deletes none of these.
pub(super) fn find(member: &Member) -> Option<&Pod> {
    let counted = member.joined() && member.object.spec.start_count == 1;
    let own = name::claim(member.name());
    let mounts_store = |pod: &&Pod| pods::claims(pod).any(|claim| claim != own);
    let restored = |pod: &&Pod| counted && pods::restores(pod) && pods::start_number(pod) == Some(1);
    member.live_pod().filter(restored).filter(mounts_store)
}
