//! A member that is being deleted.
//!
//! Decides the order Pod → claim → finalizer, and whether the operator may delete each: never while a living cluster counts on
//! this member, and never a claim without this member's UID in its label (I4).

use holdfast_api::cluster::Retention;
use holdfast_api::condition::Reason;
use holdfast_api::member::Birth;
use holdfast_api::timeline::FIRST;
use holdfast_api::{MEMBER_FINALIZER, key};
use jiff::Timestamp;

use super::facts::{cluster, own_pod, unformed};
use super::{Observed, park, pod};
use holdfast_base::{Act, Next, Seen, Target, Wake, ending, meta};

/// Whether a member that a user deleted keeps running: the member has joined, and its cluster lives. With foreground deletion
/// Kubernetes' garbage collector deletes each new part, so the member ends.
pub(super) fn stays(seen: &Observed) -> bool {
    let meta = &seen.member.metadata;
    let lives = cluster(seen).is_some_and(|c| !ending::goes(c));
    let spec = &seen.member.spec;
    let counted_on = spec.joined.is_some() && spec.removed.is_none() && spec.aside.is_none();
    meta::deleting(meta)
        && lives
        && counted_on
        && meta::has_finalizer(meta, MEMBER_FINALIZER)
        && !meta::has_finalizer(meta, meta::FOREGROUND)
}

/// Message for a deleted member that keeps running.
pub(super) const STAYS: &str = "the EtcdMember was deleted by hand, and its cluster counts on this member. Holdfast keeps its \
                                claim and its Pod until another member can take its place";

/// When the operator may delete the claim of a replaced member: the claim may hold the last copy of some data. Only a living
/// cluster keeps the claim.
fn kept_until(seen: &Observed) -> Option<Timestamp> {
    let spec = &seen.member.spec;
    spec.leaving.as_ref().filter(|leaving| leaving.why.replaces())?;
    let cluster = cluster(seen).filter(|c| !ending::goes(c))?;
    let removed: Timestamp = spec.removed.as_ref()?.at.parse().ok()?;
    Some(removed + cluster.spec.repair().keep_claim())
}

/// Whether the cluster may go back to the member's timeline: the return that set it aside has not ended.
fn is_needed(seen: &Observed) -> bool {
    let latches = cluster(seen).and_then(|cluster| cluster.status.as_ref()).map(|status| &status.latches);
    let present = latches.and_then(|latches| latches.timeline).unwrap_or(FIRST);
    let returns = latches.is_some_and(|latches| latches.returning.is_some());
    seen.member.spec.aside.as_ref().is_some_and(|aside| returns || present < aside.timeline)
}

/// When the operator may delete the claim of a member of an earlier timeline, also if a person has deleted the member.
fn aside_until(seen: &Observed) -> Option<Timestamp> {
    let aside = seen.member.spec.aside.as_ref().filter(|_| cluster(seen).is_some_and(|c| !ending::goes(c)))?;
    aside.kept_until()
}

/// Returns the next step for a member with a deletion timestamp. The finalizer goes last, after the Pod and the claim (I21).
pub(super) fn next(seen: &Observed, now: Timestamp) -> Next {
    let member = &seen.member;
    let uid = meta::uid(&member.metadata);
    if !meta::has_finalizer(&member.metadata, MEMBER_FINALIZER) {
        return Next::wait(
            Reason::Deleting,
            "Holdfast has removed its finalizer; other finalizers remain",
            Wake::OnChange,
        );
    }
    match &seen.cluster {
        Seen::Unknown(why) => {
            let message = format!("its EtcdCluster cannot be read, so Holdfast deletes nothing: {why}");
            return Next::wait(Reason::WaitingForReference, message, Wake::AfterMillis(1_000));
        }
        Seen::Known(Some(alive)) if !ending::goes(alive) => {
            // No cluster counts on a seed that never joined, whether the cluster has formed without the seed or has not formed.
            let counted_on = member.spec.role != Birth::Seed && !unformed(seen);
            let counted_on = (counted_on || member.spec.joined.is_some()) && member.spec.removed.is_none();
            let ends = park::next(seen, now).filter(|_| member.spec.aside.is_some() && own_pod(seen).is_some());
            if let Some(ends) = ends.filter(|_| is_needed(seen)) {
                return ends;
            }
            if if member.spec.aside.is_some() { is_needed(seen) } else { counted_on } {
                let message = "the EtcdMember was deleted by hand, but its cluster counts on this member. Holdfast \
                               keeps its Pod and claim, and removes the finalizer when the cluster is deleted";
                return Next::wait(Reason::MemberStillListed, message, Wake::AfterMillis(10_000));
            }
            if alive.spec.paused {
                return Next::wait(Reason::Paused, "spec.paused of its EtcdCluster is set", Wake::OnChange);
            }
        }
        Seen::Known(Some(_) | None) => {}
    }
    if let Some(there) = seen.pod.as_ref().filter(|p| meta::controlled_by(&p.metadata, uid)) {
        if meta::deleting(&there.metadata) {
            return pod::going(there, (Reason::Deleting, "its Pod is being deleted"), now);
        }
        return Next::act(Act::DeletePod {
            pod: Target::from(&there.metadata),
            why: "its member is being deleted".to_owned(),
        });
    }
    // The cluster's retention is newer than the member's copy.
    let retention = cluster(seen).map_or(member.spec.storage.retention, |c| c.spec.storage.retention);
    let claim = seen.claim.as_ref().filter(|c| meta::label(&c.metadata, key::MEMBER_UID) == Some(uid));
    if let Some(claim) = claim.filter(|_| retention == Retention::Delete) {
        if meta::deleting(&claim.metadata) {
            return Next::wait(Reason::Deleting, "its claim is being deleted", Wake::OnChange);
        }
        if let Some((until, later)) = aside_until(seen).and_then(|until| Some((until, Wake::at(until, now)?))) {
            let message = format!(
                "the member belongs to an earlier timeline. Holdfast deletes the claim {} at {until} (keepEarlierSeconds)",
                meta::name(&claim.metadata)
            );
            return Next::wait(Reason::ClaimKept, message, later);
        }
        if let Some((until, later)) = kept_until(seen).and_then(|until| Some((until, Wake::at(until, now)?))) {
            let message = format!(
                "another member took this member's place. Holdfast deletes the claim {} at {until} \
                 (spec.repair.keepClaimSeconds)",
                meta::name(&claim.metadata)
            );
            return Next::wait(Reason::ClaimKept, message, later);
        }
        return Next::act(Act::DeleteClaim {
            claim: Target::from(&claim.metadata),
            why: "its member is being deleted and spec.storage.retention is Delete".to_owned(),
        });
    }
    Next::act(Act::ReleaseMember { member: Target::from(&member.metadata) })
}
