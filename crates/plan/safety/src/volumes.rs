//! Rules for larger volumes and quotas: a claim only ever asks for more, and no member counts on a volume that has not grown yet (I3).

use holdfast_api::cluster::Latches;
use holdfast_api::{EtcdMember, key};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::facts::latches;
use super::{Verdict, is, rule};
use holdfast_base::seen::cluster::{Member, Observed};
use holdfast_base::valid::{bytes, default_quota};
use holdfast_base::{Target, meta};

const STORAGE: &str = "storage";

fn requested(claim: &PersistentVolumeClaim) -> Option<u64> {
    bytes(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get(STORAGE)?)
}

fn arrived(claim: &PersistentVolumeClaim) -> Option<u64> {
    bytes(claim.status.as_ref()?.capacity.as_ref()?.get(STORAGE)?)
}

/// Whether a claim asks for this size.
pub(super) fn asks_for(claim: &PersistentVolumeClaim, size: &Quantity) -> bool {
    requested(claim).is_some_and(|asked| Some(asked) == bytes(size))
}

fn active(seen: &Observed, size: &Quantity) -> Verdict {
    rule("I2", latches(seen).formed.is_some(), "the volumes of a cluster grow after it has formed")?;
    rule("I13", bytes(size) == bytes(&seen.cluster.spec.storage.size()), "a volume gets the size of the spec")
}

/// Checks a claim's larger request.
pub(super) fn grow(seen: &Observed, claim: &Target, size: &Quantity) -> Verdict {
    active(seen, size)?;
    let own = |m: &&Member| {
        let uid = meta::uid(&m.object.metadata);
        let labelled = |c: &PersistentVolumeClaim| meta::label(&c.metadata, key::MEMBER_UID) == Some(uid);
        !uid.is_empty() && m.claim.as_ref().is_some_and(|c| labelled(c) && is(claim, &c.metadata))
    };
    let member = seen.members.iter().find(own);
    rule("I13", member.is_some(), "only the claim of a member grows, as it was seen")?;
    let stays = |m: &Member| m.object.spec.removed.is_none() && m.object.spec.leaving.is_none() && !m.deleting();
    rule("I13", member.is_some_and(stays), "the claim of a member that goes stays as it is")?;
    let there = member.and_then(|m| m.claim.as_ref()).filter(|c| !meta::deleting(&c.metadata));
    let asked = there.and_then(requested);
    rule("I3", asked.is_some() && asked < bytes(size), "a claim only ever asks for more")
}

/// Checks the size in the spec of a member, from which its quota follows.
pub(super) fn set(seen: &Observed, member: &Member, size: &Quantity) -> Verdict {
    active(seen, size)?;
    let storage = &member.object.spec.storage;
    rule("I3", !storage.in_memory(), "the size of a member in memory stays")?;
    rule("I3", bytes(&storage.size()) < bytes(size), "the volume of a member only ever grows")?;
    let has = member.claim.as_ref().filter(|c| !meta::deleting(&c.metadata)).and_then(arrived);
    rule("I3", has.is_some() && has >= bytes(size), "the volume has grown before its member counts on the size")
}

/// Checks a quota that Holdfast grants: the spec allows it, and each volume has room for it beside the log.
pub(super) fn grant(seen: &Observed, old: &Latches, new: &Latches) -> Verdict {
    if old.granted_quota == new.granted_quota {
        return Ok(());
    }
    let granted = new.granted_quota.and_then(|quota| u64::try_from(quota).ok()).unwrap_or(0);
    let before = old.granted_quota.and_then(|quota| u64::try_from(quota).ok()).unwrap_or(0);
    rule("I13", granted > before, "a granted quota is never taken back")?;
    let most = seen.cluster.spec.defragmentation().grow_quota_to.as_ref().and_then(bytes);
    rule("I13", most.is_some_and(|most| granted <= most), "a quota grows only as far as the spec allows")?;
    let stays = |m: &&Member| m.object.spec.removed.is_none() && m.object.spec.leaving.is_none();
    let holds = |m: &Member| {
        let volume = bytes(&m.object.spec.storage.size()).unwrap_or(0);
        granted.saturating_add((volume / 2).min(1 << 30)) <= volume
    };
    rule("I3", seen.members.iter().filter(stays).all(holds), "each volume has room for the quota and the log")
}

/// Whether a Pod was made for a smaller volume: for a smaller quota, or before the volume grew under its file system.
pub(super) fn is_outgrown(pod: &Pod, member: &EtcdMember, claim: Option<&PersistentVolumeClaim>) -> bool {
    let chosen = member.spec.process.options.as_ref().is_some_and(|options| options.quota_backend_bytes.is_some());
    let made_for = meta::annotation(&pod.metadata, key::VOLUME_SIZE).and_then(|size| bytes(&Quantity(size.to_owned())));
    let quota = |volume: Option<u64>| volume.map(default_quota);
    let smaller = made_for.is_some() && !chosen && quota(made_for) < quota(bytes(&member.spec.storage.size()));
    let conditions = claim.and_then(|c| c.status.as_ref()).into_iter().flat_map(|s| s.conditions.iter().flatten());
    let mut pending = conditions.filter(|c| c.type_ == "FileSystemResizePending" && c.status == "True");
    let made = pod.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let before = |at: Option<_>| made.is_some() && made <= at;
    smaller || pending.any(|c| before(c.last_transition_time.as_ref().map(|at| at.0)))
}
