//! The fate of the members' claims when the cluster is deleted: `spec.storage.retention`.
//!
//! Decides when the cluster gets its finalizer, when an edit of `spec.storage.retention` is copied to the members, and when the
//! deleted cluster is released. A member outlives its cluster and then has only its own copy, so the finalizer keeps the cluster
//! until each copy equals the spec (I4). The members' own passes delete the claims.

use holdfast_api::CLUSTER_FINALIZER;
use holdfast_api::cluster::Retention;
use holdfast_api::condition::Reason;

use super::Observed;
use holdfast_base::{Act, Next, Target, Wake, meta};

/// Puts the finalizer on the cluster.
pub(super) fn hold(seen: &Observed) -> Option<Next> {
    (!is_held(seen)).then(|| Next::act(Act::HoldCluster { cluster: Target::from(&seen.cluster.metadata) }))
}

/// Returns the act of a formed cluster without another act, also without a quorum and while the cluster waits: first the finalizer,
/// so that an edit takes effect at once.
pub(super) fn beside(seen: &Observed) -> Option<Act> {
    let idle = seen.cluster.spec.paused || meta::deleting(&seen.cluster.metadata) || seen.latches().formed.is_none();
    let next = if idle { None } else { hold(seen).or_else(|| copy(seen)) };
    next.and_then(|next| next.into_parts().0)
}

/// Copies the spec's value to the next member with another value.
pub(super) fn copy(seen: &Observed) -> Option<Next> {
    let retention = wanted(seen);
    let member =
        seen.members.iter().chain(&seen.others).find(|member| member.object.spec.storage.retention != retention)?;
    Some(Next::act(Act::CopyRetention { member: Target::from(&member.object.metadata), retention }))
}

/// Releases a cluster that is being deleted, after each member has the spec's value. Kubernetes' garbage collector deletes the
/// members afterwards.
pub(super) fn release(seen: &Observed) -> Next {
    if !is_held(seen) {
        return Next::wait(Reason::Deleting, "the cluster is being deleted", Wake::OnChange);
    }
    copy(seen).unwrap_or_else(|| Next::act(Act::ReleaseCluster { cluster: Target::from(&seen.cluster.metadata) }))
}

/// Returns the value that takes effect if the cluster is deleted now; the earlier value until each member has the new value.
pub(super) fn in_force(seen: &Observed, old: Option<Retention>) -> Option<Retention> {
    if is_held(seen) && copy(seen).is_none() { Some(wanted(seen)) } else { old }
}

fn wanted(seen: &Observed) -> Retention {
    seen.cluster.spec.storage.retention
}

fn is_held(seen: &Observed) -> bool {
    meta::has_finalizer(&seen.cluster.metadata, CLUSTER_FINALIZER)
}
