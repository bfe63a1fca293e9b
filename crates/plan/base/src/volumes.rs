//! Facts about a member's volume, read from its claim and its Pod.
//!
//! Decides only how a fact is read, so that the cluster pass and the member pass read it the same way.

use std::collections::BTreeMap;

use holdfast_api::{EtcdMember, condition, key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::{meta, pods, template, valid};

/// How long kubelet and the volume driver may take to grow the file system of a volume in use. kubelet looks at a Pod's volumes
/// when the Pod changes, else every 60 to 90 s.
pub const GROWS_WITHIN: SignedDuration = SignedDuration::from_secs(90);

/// Name of a volume's size in requests, capacities and statuses.
const STORAGE: &str = "storage";

fn storage(sizes: Option<&BTreeMap<String, Quantity>>) -> Option<u64> {
    valid::bytes(sizes?.get(STORAGE)?)
}

/// Returns the size that a claim asks for, as written.
pub fn request(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get(STORAGE)
}

/// Returns the size of the claim's file system, in bytes.
pub fn capacity(claim: &PersistentVolumeClaim) -> Option<u64> {
    storage(claim.status.as_ref()?.capacity.as_ref())
}

/// Whether a claim has its volume. The API server refuses a larger request before.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}

fn condition<'a>(claim: &'a PersistentVolumeClaim, kind: &str) -> Option<&'a PersistentVolumeClaimCondition> {
    condition::find_with_status(claim.status.as_ref()?.conditions.iter().flatten(), kind, "True")
}

/// Returns since when the volume is larger and its file system is not.
pub fn pending_since(claim: &PersistentVolumeClaim) -> Option<Timestamp> {
    let pending = condition(claim, "FileSystemResizePending")?;
    Some(pending.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0))
}

/// Returns from when on the Pod counts as made before the growth of its volume, which then needs another mount. A Pod that was made
/// after the volume grew has mounted the larger volume.
pub fn remount_at(claim: &PersistentVolumeClaim, pod: &Pod) -> Option<Timestamp> {
    let since = pending_since(claim)?;
    let made = pod.metadata.creation_timestamp.as_ref()?.0;
    (made <= since).then(|| since + GROWS_WITHIN)
}

/// Whether the file system of the Pod's volume has not grown in time while the Pod used the volume.
pub fn needs_remount(claim: Option<&PersistentVolumeClaim>, pod: &Pod, now: Timestamp) -> bool {
    claim.and_then(|claim| remount_at(claim, pod)).is_some_and(|at| now >= at)
}

/// How long nothing may answer a larger request: a resizer reports within seconds that it begins.
const ANSWERED_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// Returns from when on a claim counts as one that asks for a larger volume in vain: Kubernetes leaves the growth to another program
/// (Event `ExternalExpanding`), and no program has written a word about it. `None`: a program has answered, or the claim has asked under
/// an earlier version of Holdfast.
pub fn unanswered_at(claim: &PersistentVolumeClaim) -> Option<Timestamp> {
    let status = claim.status.as_ref();
    let kinds = ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];
    let answered = status.is_some_and(|status| status.allocated_resource_statuses.is_some())
        || kinds.iter().any(|kind| condition(claim, kind).is_some());
    let asked: Timestamp = meta::annotation(&claim.metadata, key::GROWTH_ASKED)?.parse().ok()?;
    let lacks = request(claim).and_then(valid::bytes) > capacity(claim);
    (lacks && !answered).then(|| asked + ANSWERED_WITHIN)
}

/// Returns the words with which the volume driver refuses the size that the claim asks for. `None` where a mount of the volume may
/// still help.
pub fn refusal(claim: &PersistentVolumeClaim, pod: Option<&Pod>) -> Option<String> {
    let status = claim.status.as_ref()?;
    let stage = status.allocated_resource_statuses.as_ref().and_then(|all| all.get(STORAGE)).map(String::as_str);
    let infeasible = matches!(stage, Some("ControllerResizeInfeasible" | "NodeResizeInfeasible"));
    let remounts = pending_since(claim).is_some() && pod.is_none_or(|pod| remount_at(claim, pod).is_some());
    // kube's resizer keeps its earlier error until the file system has grown, too.
    let controller = condition(claim, "ControllerResizeError").filter(|_| infeasible || pending_since(claim).is_none());
    let node = condition(claim, "NodeResizeError").filter(|_| infeasible || !remounts);
    let words = |c: &PersistentVolumeClaimCondition| c.message.clone().filter(|words| !words.is_empty());
    let found = controller.or(node);
    (found.is_some() || infeasible)
        .then(|| found.and_then(words).unwrap_or_else(|| format!("the size is {}", stage.unwrap_or("refused"))))
}

/// Returns the size for a Pod's annotation, after which kubelet looks at the volume at once: its file system can grow.
pub fn to_announce<'a>(claim: &'a PersistentVolumeClaim, pod: &Pod) -> Option<&'a Quantity> {
    let asked = request(claim).filter(|_| pods::runs(pod) && pending_since(claim).is_some())?;
    (meta::annotation(&pod.metadata, key::VOLUME_REQUEST) != Some(asked.0.as_str())).then_some(asked)
}

/// Whether etcd runs with the default quota of a smaller volume than its member has now. A Pod of an earlier version of Holdfast has
/// no size, and counts as current.
pub fn has_outgrown(pod: &Pod, member: &EtcdMember) -> bool {
    let own = member.spec.process.options.as_ref().and_then(|options| options.quota_backend_bytes);
    let made_for = meta::annotation(&pod.metadata, key::VOLUME_SIZE);
    let made_for = made_for.and_then(|size| valid::bytes(&Quantity(size.to_owned())));
    let (Some(before), Some(after)) = (made_for, valid::bytes(&member.spec.storage.size())) else { return false };
    own.is_none() && valid::default_quota(before) < valid::default_quota(after)
}

/// Whether the etcd in a Pod runs with the quota of its member: the Pod has the member's template, and was made for its volume.
pub fn has_present_quota(pod: &Pod, member: &EtcdMember) -> bool {
    template::is_current(pod, member) && !has_outgrown(pod, member)
}

/// Returns the quota of the etcd in a Pod, in bytes; `None` where the Pod was made for an earlier quota.
pub fn quota_in_force(pod: &Pod, member: &EtcdMember) -> Option<u64> {
    if has_present_quota(pod, member) { valid::member(member).ok().map(|server| server.quota) } else { None }
}

#[cfg(test)]
mod tests;
