//! The Pod of the first member of a restored cluster, when the other members can spare it.
//!
//! Decides when Holdfast deletes that Pod, once, where the Pod mounts the claim of the store that it was restored from: while the
//! Pod runs, no Job on another node can use a ReadWriteOnce claim. Every other Pod stays: its restore step does nothing on a
//! complete volume, and refuses any other volume without the permission that the Pod had until its member joined. The member's
//! own pass creates the next Pod, without the restore step. In a cluster of one or two members no quorum would remain, so there a
//! person deletes the Pod. A Pod of another version of the operator stays too (by its annotation): an upgrade deletes no Pod.

use super::health::CLOSE_ENOUGH;
use super::{Answer, Listed, Membership, Observed, restored_pod, successor};
use holdfast_base::objects::budget::quorum;
use holdfast_base::valid::Wanted;
use holdfast_base::{Act, Next, Target, pods};

/// Returns the deletion of the Pod that restored; `None` where there is no such Pod, or the other members cannot spare it.
pub(super) fn next(seen: &Observed, wanted: &Wanted, etcd: &Membership) -> Option<Next> {
    let (member, pod) = seen.members.iter().find_map(|member| Some((member, restored_pod::find(member)?)))?;
    if !restored_pod::is_of_this_version(pod, &seen.settings) {
        return None;
    }
    let size = wanted.replicas;
    // I1: a quorum remains without the Pod, and no member joins or leaves.
    let whole = seen.members.len() == size && etcd.members.len() == size && quorum(size) < size;
    // A restart does not help while data is in doubt, or etcd takes no write.
    if !whole || !etcd.alarms.is_empty() {
        return None;
    }
    let ahead = seen.answers.values().filter_map(|answer| Some(answer.known()?.applied_index)).max()?;
    let all_well = etcd.members.iter().all(|listed| is_well(seen, etcd, listed, ahead));
    if !all_well {
        return None;
    }
    Some(successor::hold(seen, member).unwrap_or_else(|| {
        let why = "the Pod still mounts the claim of the restore's source; all members serve, and the next Pod does not mount the claim";
        Next::act(Act::DeletePod { pod: Target::from(&pod.metadata), why: why.to_owned() })
    }))
}

/// Whether a member is a voter, serves, stays, keeps up, and still has its volume.
fn is_well(seen: &Observed, etcd: &Membership, listed: &Listed, ahead: u64) -> bool {
    let Some(member) = seen.standing_for(listed) else { return false };
    let answer = seen.serving(etcd, listed, member.name());
    let level = |answer: &Answer| ahead.saturating_sub(answer.applied_index) <= CLOSE_ENOUGH;
    let keeps_up = answer.is_some_and(|answer| Some(answer.leader) == etcd.leader && level(answer));
    let whole = member.live_pod().is_some_and(pods::ready) && member.live_claim().is_some();
    keeps_up && whole && !listed.learner && !member.deleting()
}
