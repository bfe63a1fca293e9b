//! Rules for the return of a cluster to a stored snapshot: one founding for each timeline, a timeline only by an EtcdRestore, and never
//! two timelines with a Pod of etcd (I2). Decides only whether a plan keeps them.

use holdfast_api::cluster::Latches;
use holdfast_api::member::Parked;
use holdfast_api::snapshot::DeletionPolicy;
use holdfast_api::timeline::{self, Aside, ReturnPhase, Returning};
use holdfast_api::{EtcdMember, EtcdRestore, EtcdSnapshot, key, role};
use jiff::Timestamp;

use super::facts::{formed_as, is_healthy, known, latches, may_start_empty, owner_of, target_member, voters};
use super::{Verdict, is, rule};
use holdfast_base::seen::cluster::{Member, Observed};
use holdfast_base::{Act, Target, meta, pods};

/// The return that is under way.
fn under_way(seen: &Observed) -> Option<Returning> {
    latches(seen).returning
}

fn in_phase(seen: &Observed, phases: &[ReturnPhase]) -> Option<Returning> {
    under_way(seen).filter(|returning| phases.contains(&returning.phase()))
}

/// Whether clients are led away for a return.
pub(super) fn keeps_clients_away(seen: &Observed) -> bool {
    in_phase(seen, &[ReturnPhase::Saving, ReturnPhase::SettingAside]).is_some()
}

/// Checks a change of the record of a return, or of the timeline; `None`: the latches change neither.
pub(super) fn latch(seen: &Observed, old: &Latches, new: &Latches) -> Option<Verdict> {
    let same = old.returning == new.returning && old.timeline == new.timeline;
    // A cluster that forms records its timeline, which its members show.
    let stays = new.timeline.unwrap_or(timeline::FIRST) == seen.timeline();
    let forms = old.formed.is_none() && new.formed.is_some();
    if same || (forms && stays && old.returning == new.returning) {
        return None;
    }
    Some(change(seen, old, new))
}

fn change(seen: &Observed, old: &Latches, new: &Latches) -> Verdict {
    let moved = old.timeline != new.timeline;
    let rest = |it: &Latches| Latches {
        returning: None,
        timeline: None,
        formed: None,
        pending_member: None,
        restoring: None,
        log_since: None,
        defragmented: vec![],
        ..it.clone()
    };
    rule("I2", rest(old) == rest(new), "a step of a return changes no other latch")?;
    if !moved {
        let kept = old.formed == new.formed && old.restoring == new.restoring;
        rule("I2", kept, "the founding of a cluster changes with its timeline only")?;
    }
    match (&old.returning, &new.returning) {
        (None, Some(record)) => begin(seen, record),
        (Some(ended), None) => {
            let known = seen.returns.as_ref().is_some_and(|restore| is_of(restore, ended) && !has_ended(restore));
            rule(
                "I2",
                ended.phase().is_final() && !known && !moved,
                "a return's record goes after its EtcdRestore has the end",
            )
        }
        (Some(before), Some(after)) if before.uid == after.uid && before.timeline == after.timeline => {
            let forward = after.phases.starts_with(&before.phases);
            rule("I2", forward && after.earlier == before.earlier, "a return's record only grows")?;
            if moved { switch(seen, after, new) } else { Ok(()) }
        }
        _ => rule("I2", false, "one return is under way at a time, and a timeline is made by a return"),
    }
}

fn is_of(restore: &EtcdRestore, returning: &Returning) -> bool {
    meta::uid(&restore.metadata) == returning.uid
}

fn has_ended(restore: &EtcdRestore) -> bool {
    restore.status.as_ref().is_some_and(|status| status.phase.is_final())
}

/// Checks the first record: an EtcdRestore names the next timeline, or the members carry a record that was lost.
fn begin(seen: &Observed, record: &Returning) -> Verdict {
    let next = record.timeline == seen.timeline() + 1;
    let carried = seen.others.iter().filter_map(|m| m.object.spec.aside.as_ref());
    let carried = carried.into_iter().any(|it| it.restore_uid == record.uid && it.timeline == record.timeline);
    let asked = seen.returns.as_ref().is_some_and(|restore| {
        is_of(restore, record)
            && restore.spec.timeline == record.timeline
            && restore.spec.cluster_ref.name == meta::name(&seen.cluster.metadata)
            && !has_ended(restore)
            && !meta::deleting(&restore.metadata)
    });
    let first = if record.survivor().is_some() && record.phase() == ReturnPhase::SettingAside {
        // I1: with a quorum a snapshot and a safety snapshot are the way back.
        let named = seen.returns.as_ref().and_then(|restore| restore.spec.from_member.as_ref());
        let is_named = carried || named.map(|named| named.name.as_str()) == record.survivor();
        rule("I1", is_named && is_lost(seen, record), "a return to a member's data begins without a quorum")?;
        ReturnPhase::SettingAside
    } else {
        ReturnPhase::Preparing
    };
    let prepares = asked && record.phase() == first && latches(seen).formed.is_some();
    rule("I2", next && (prepares || carried), "a timeline is made by an EtcdRestore that names the next one")
}

/// Whether neither the operator nor kubelet finds a quorum, and the survivor of the return has its volume.
fn is_lost(seen: &Observed, returning: &Returning) -> bool {
    let named = returning.survivor();
    let survivor = seen.members.iter().chain(&seen.others).find(|m| named == Some(m.name()));
    let ready = seen.members.iter().any(|m| m.live_pod().is_some_and(pods::ready));
    let whole =
        |m: &Member| m.object.spec.joined.is_some() && m.object.spec.removed.is_none() && m.live_claim().is_some();
    seen.etcd.known().is_none() && !ready && survivor.is_some_and(whole)
}

/// Checks the change of the timeline: no Pod of another timeline is there.
fn switch(seen: &Observed, after: &Returning, new: &Latches) -> Verdict {
    let podless = |m: &Member| m.pod.is_none();
    rule("I2", seen.stray_pods.is_empty(), "two timelines never have a Pod at the same time")?;
    match after.phase() {
        ReturnPhase::Starting => {
            rule(
                "I2",
                new.timeline == Some(after.timeline) && new.formed.is_none(),
                "the next timeline has not formed",
            )?;
            rule(
                "I9",
                new.restoring == after.restoring && new.restoring.is_some(),
                "it is founded from the prepared data",
            )?;
            let set_aside = seen.members.iter().all(|m| m.object.spec.removed.is_some() && podless(m));
            let ended = seen.others.iter().filter(|m| m.object.spec.aside.is_some()).all(podless);
            rule("I2", set_aside && ended, "two timelines never have a Pod at the same time")
        }
        ReturnPhase::TurningBack => {
            rule("I2", new.formed == after.earlier, "the earlier timeline comes back as it had formed")?;
            let gone = !seen.members.iter().chain(&seen.others).any(|m| is_new(&m.object, after));
            rule("I2", gone, "the new timeline's member goes before the earlier ones start")
        }
        _ => rule("I2", false, "the timeline changes when all members are set aside, and back after a failure"),
    }
}

/// Whether the member belongs to the timeline that a return makes.
fn is_new(member: &EtcdMember, returning: &Returning) -> bool {
    timeline::of_member(member) == returning.timeline && member.spec.aside.is_none()
}

/// Checks the first member of the next timeline, prepared while the cluster serves; `None`: the member is no such one.
pub(super) fn create(seen: &Observed, member: &EtcdMember) -> Option<Verdict> {
    let returning = in_phase(seen, &[ReturnPhase::Preparing])?;
    let verdict = || {
        let named = returning.member.as_deref() == Some(meta::name(&member.metadata));
        rule("I11", named, "a member's name is latched before the member is made")?;
        rule(
            "I2",
            timeline::of_member(member) == returning.timeline,
            "a prepared member belongs to the next timeline",
        )?;
        let one = !seen.members.iter().chain(&seen.others).any(|m| is_new(&m.object, &returning));
        rule("I2", one, "there is one seed")?;
        let podless = seen.members.iter().chain(&seen.others).all(|m| m.pod.is_none()) && seen.stray_pods.is_empty();
        let rests = returning.survivor().is_none() || podless;
        rule("I2", rests, "a survivor's volume is read after each Pod of its timeline has ended")?;
        rule(
            "I9",
            member.spec.restore.is_some() && member.spec.restore == returning.restoring,
            "a restore is latched before its seed is made",
        )
    };
    Some(verdict())
}

/// Checks that a member is set aside for the return that is under way.
fn set_aside(seen: &Observed, target: &Target, aside: &Aside) -> Verdict {
    let object = &target_member(seen, target)?.object;
    let own = in_phase(seen, &[ReturnPhase::SettingAside])
        .is_some_and(|it| it.uid == aside.restore_uid && it.timeline == aside.timeline && it.restoring.is_some());
    rule("I2", own, "members are set aside for a return whose data is prepared")?;
    rule("I4", object.spec.removed.is_none(), "a removed member goes in its own way")?;
    let prepared = seen
        .others
        .iter()
        .any(|m| in_phase(seen, &[ReturnPhase::SettingAside]).is_some_and(|it| is_new(&m.object, &it)));
    let lost = under_way(seen).is_some_and(|it| it.survivor().is_some() && is_lost(seen, &it));
    rule("I2", prepared || lost, "the data of the next timeline is on a claim before a member is set aside")?;
    rule("I2", timeline::of_member(object) < aside.timeline, "a member is set aside for a later timeline")?;
    let admitted =
        |m: &Member| m.live_pod().is_some_and(|pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER));
    rule("I16", !seen.members.iter().any(admitted), "clients are led away before a member is set aside")
}

/// Checks that a member starts again after a return has failed.
fn take_back(seen: &Observed, target: &Target, parked: &Parked) -> Verdict {
    let member = seen.others.iter().find(|m| is(target, &m.object.metadata));
    let aside = member.and_then(|m| m.object.spec.aside.as_ref());
    let returning = in_phase(seen, &[ReturnPhase::TurningBack]);
    let own = returning.as_ref().zip(aside).is_some_and(|(it, aside)| it.uid == aside.restore_uid);
    rule("I2", own, "a member comes back after the return that set it aside has failed")?;
    let gone = returning.is_some_and(|it| !seen.members.iter().chain(&seen.others).any(|m| is_new(&m.object, &it)));
    rule("I2", gone, "two timelines never have a Pod at the same time")?;
    let same = aside.is_some_and(|aside| (aside.term, aside.index) == (parked.term, parked.index));
    rule("I3", same, "clients come when the leader has the index at which the member was set aside")
}

/// Checks the end of a member of another timeline; `None`: the member is no such one.
pub(super) fn delete(seen: &Observed, target: &Target) -> Option<Verdict> {
    let member = seen.others.iter().find(|m| is(target, &m.object.metadata))?;
    let latches = latches(seen);
    let Some(aside) = &member.object.spec.aside else {
        let preparing = in_phase(seen, &[ReturnPhase::TurningBack]).is_some() || latches.returning.is_none();
        let lost =
            in_phase(seen, &[ReturnPhase::Preparing]).is_some_and(|it| it.member.as_deref() != Some(member.name()));
        let preparing = preparing || lost;
        let unused = member.object.spec.joined.is_none() && timeline::of_member(&member.object) > seen.timeline();
        return Some(rule("I4", unused && preparing, "a prepared member goes when no return needs it"));
    };
    let ended = latches.returning.is_none() && latches.formed.is_some() && aside.timeline <= seen.timeline();
    Some(rule("I4", ended, "a member of an earlier timeline goes after the return has ended"))
}

/// Checks a step of a return; `None`: no return takes this step.
pub(super) fn check_step(seen: &Observed, act: &Act) -> Option<Verdict> {
    match act {
        Act::SetAside { member, aside } => return Some(set_aside(seen, member, aside)),
        Act::TakeBack { member, parked } => return Some(take_back(seen, member, parked)),
        _ => {}
    }
    let returning = in_phase(seen, &[ReturnPhase::Saving, ReturnPhase::SettingAside])?;
    match act {
        Act::DismissClients { pod } => Some(owner_of(seen, pod).map(drop)),
        Act::DeletePod { pod, .. } => Some(owner_of(seen, pod).and_then(|member| end_pod(seen, &returning, member))),
        Act::RequestSnapshot(snapshot) => Some(request(seen, snapshot)),
        _ => None,
    }
}

/// Checks the request: of this cluster, to the place that the EtcdRestore names, after clients lost their way.
fn request(seen: &Observed, snapshot: &EtcdSnapshot) -> Verdict {
    formed_as(seen, known(seen)?.cluster_id)?;
    let (meta, spec) = (&seen.cluster.metadata, &snapshot.spec);
    let own = spec.cluster_ref.as_ref().is_some_and(|cluster| cluster.name == meta::name(meta));
    rule("I13", own && snapshot.metadata.namespace == meta.namespace, "a cluster requests snapshots of itself alone")?;
    let place =
        seen.returns.as_ref().is_some_and(|restore| restore.spec.safety_snapshot.as_ref() == Some(&spec.template));
    rule("I13", place, "the safety snapshot goes where the EtcdRestore says")?;
    let owned = snapshot.metadata.owner_references.iter().flatten().next().is_some();
    rule(
        "I6",
        spec.deletion_policy == DeletionPolicy::Retain && !owned,
        "the safety snapshot stays when its object goes",
    )?;
    let admitted =
        |m: &Member| m.live_pod().is_some_and(|pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER));
    rule("I16", !seen.members.iter().any(admitted), "clients are led away before the safety snapshot")
}

/// Checks the end of a Pod with open connections: every voter keeps up, and the data is on a claim.
fn end_pod(seen: &Observed, returning: &Returning, member: &Member) -> Verdict {
    let etcd = known(seen)?;
    formed_as(seen, etcd.cluster_id)?;
    rule("I1", returning.phase() == ReturnPhase::Saving, "a Pod ends for the safety snapshot only before it is saved")?;
    rule("I3", !may_start_empty(member), "a first start is forbidden before its Pod ends")?;
    let on_claim = member.object.spec.joined.is_some() && member.live_claim().is_some();
    rule("I4", on_claim && !member.object.spec.storage.in_memory(), "the member's data are on its claim")?;
    let made = member.pod.as_ref().and_then(|pod| pod.metadata.creation_timestamp.as_ref());
    let since = returning.since().and_then(|at| at.parse::<Timestamp>().ok());
    rule(
        "I1",
        made.zip(since).is_some_and(|(made, since)| made.0 <= since),
        "a Pod ends once for the safety snapshot",
    )?;
    rule("I1", voters(etcd).iter().all(|l| is_healthy(seen, etcd, l)), "every voter answers and keeps up")
}
