//! Rules for rolling changes: one member at a time, and never a template that has failed or that the data cannot carry (I30).
//! Also for the only other Pod that ends while its member serves: the one that restored.

use holdfast_api::member::Resize;
use holdfast_api::template::Template;
use holdfast_api::{key, role};

use super::facts::{
    formed_as, id, is_healthy, known, latches, listed_as, may_start_empty, own_evidence, stands_for, staying, voters,
};
use super::{Verdict, rule, transport, upgrade, volumes};
use k8s_openapi::api::core::v1::{ContainerStatus, ResourceRequirements};

use holdfast_base::objects::resources::of_member;
use holdfast_base::seen::cluster::{Judgement, Listed, Member, Membership, Observed};
use holdfast_base::{AlarmKind, Seen, meta, pods, template};

/// Checks a template that is written into a member's spec.
pub(super) fn set(seen: &Observed, member: &Member, new: &Template, served: Option<&Template>) -> Verdict {
    let spec = &member.object.spec;
    let (own, wanted) = (&member.object.spec.process, template::wanted(&seen.cluster));
    let runs = spec.removed.is_none() && !spec.is_lost() && !meta::deleting(&member.object.metadata);
    rule("I11", runs, "a member that is removed, lost or deleted stays as it is")?;
    let serves = member.live_pod().is_some_and(|pod| pods::ready(pod) && template::is_current(pod, &member.object));
    let kept = match served {
        Some(served) => spec.served.as_ref().map_or(served == own, |kept| kept == served),
        None => spec.served.is_none() || serves,
    };
    rule("I1", kept, "the template with which a member served is forgotten only when it serves with the next one")?;
    if new == own {
        return Ok(());
    }
    let back = spec.served.as_ref() == Some(new);
    rule("I13", *new == wanted || back, "a member gets the template of the spec, or the one with which it served")?;
    upgrade::set(seen, member, &new.version)?;
    transport::set(seen, member, new)?;
    if back {
        return Ok(());
    }
    let failed = latches(seen).failed_template.is_some_and(|failed| failed.bars(&template::fingerprint(new)));
    rule("I1", !failed, "no member gets a template with which another one did not start")?;
    let runs = |m: &Member| m.pod.as_ref().is_some_and(|pod| pods::runs(pod) && template::is_current(pod, &m.object));
    // A member without its data starts with no template.
    let has_data = |m: &Member| m.claim.is_some() && own_evidence(m).is_none();
    let tries = |m: &Member| {
        let counts = m.joined() && has_data(m) && m.object.spec.removed.is_none() && !m.object.spec.is_lost();
        counts && m.object.spec.process == *new && !runs(m)
    };
    rule("I1", !seen.members.iter().any(tries), "one member at a time tries a template")?;
    let well = known(seen).is_ok_and(|etcd| others_are_well(seen, etcd, member));
    rule(
        "I1",
        well || stops(seen, member),
        "a template goes to a member in its turn, or to one that does not start anyway",
    )
}

/// Checks that the API server permits the Pod that follows a Pod in which etcd runs.
pub(super) fn permitted(seen: &Observed, member: &Member) -> Verdict {
    let permitted = seen.next_pods.get(member.name()) == Some(&Seen::Known(Judgement::Permitted));
    let runs = member.pod.as_ref().is_some_and(pods::runs);
    rule("I1", permitted || !runs, "no Pod that serves ends before the API server permits the next one")
}

/// Whether etcd does not run in the member's Pod, and has ended twice there or cannot be started; or the API server refuses the Pod.
fn stops(seen: &Observed, member: &Member) -> bool {
    let judged = seen.next_pods.get(member.name()).filter(|_| member.pod.is_none());
    if matches!(judged, Some(Seen::Known(Judgement::Refused { .. }))) {
        return true;
    }
    let Some(pod) = member.live_pod().filter(|pod| !pods::ready(pod)) else { return false };
    let statuses = pod.status.iter().flat_map(|status| {
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
    });
    let stuck = |reason: &str| !["", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"].contains(&reason);
    let held = |status: &ContainerStatus| {
        let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        status.restart_count >= 2 || waiting.and_then(|waiting| waiting.reason.as_deref()).is_some_and(stuck)
    };
    pods::is_unscheduled(pod) || statuses.into_iter().any(held)
}

/// Whether every other voter serves clients and keeps up.
pub(super) fn others_are_well(seen: &Observed, etcd: &Membership, member: &Member) -> bool {
    let own = |l: &Listed| stands_for(seen, l).is_some_and(|m| m.name() == member.name());
    let serves = |m: &Member| {
        let admitted = |pod| pods::ready(pod) && meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
        !m.deleting() && m.live_pod().is_some_and(admitted)
    };
    let well = |l: &Listed| is_healthy(seen, etcd, l) && stands_for(seen, l).is_some_and(serves);
    voters(etcd).iter().filter(|l| !own(l)).all(|l| well(l))
}

/// Whether the Pod of a member was made for another template, a smaller volume or other CAs than the member has.
pub(super) fn is_outdated(member: &Member) -> bool {
    if member.pod.as_ref().is_some_and(|pod| pods::has_other_cas(pod, &member.object)) {
        return true;
    }
    let larger = |pod| volumes::is_outgrown(pod, &member.object, member.live_claim());
    member.pod.as_ref().is_some_and(|pod| !template::is_current(pod, &member.object) || larger(pod))
}

/// Checks the end of the Pod of a member that has joined: every other voter is well, and the membership does not change.
pub(super) fn end(seen: &Observed, member: &Member, evicts: bool) -> Verdict {
    let etcd = known(seen)?;
    formed_as(seen, etcd.cluster_id)?;
    rule("I3", !may_start_empty(member), "a first start is forbidden before its Pod ends")?;
    rule(
        "I1",
        is_outdated(member),
        "only a Pod with another template, a smaller volume or other CAs than its member's is ended",
    )?;
    rule("I3", !member.object.spec.storage.in_memory(), "the data of a member in memory end with its Pod")?;
    rule("I3", member.object.spec.joined.is_some(), "the member has joined")?;
    let staying: Vec<_> = staying(seen).filter(|m| !is_uncertified(seen, etcd, m)).collect();
    rule("I4", staying.iter().all(|m| m.live_claim().is_some()), "every member has its claim, and none is going")?;
    rule("I3", etcd.alarms.iter().all(|a| a.kind != AlarmKind::Corrupt), "no Pod ends while data are in doubt")?;
    let voters = voters(etcd);
    let stands = staying.len() == voters.len() && staying.iter().all(|m| m.object.spec.leaving.is_none());
    rule("I11", stands && voters.len() == etcd.members.len(), "the membership is not changing")?;
    rule("I1", others_are_well(seen, etcd, member), "every other voter serves and keeps up")?;
    let own = |l: &Listed| stands_for(seen, l).is_some_and(|m| m.name() == member.name());
    let leads = voters.len() > 1 && voters.iter().any(|l| own(l) && etcd.leader == Some(l.id));
    rule("I1", !leads, "the leadership goes elsewhere before the Pod of the leader ends")?;
    permitted(seen, member)?;
    rule("I1", evicts || voters.len() < 3, "the disruption budget is asked where one is")
}

/// Whether etcd does not list a member, which waits for certificates that its peers trust.
fn is_uncertified(seen: &Observed, etcd: &Membership, member: &Member) -> bool {
    let staged = member.object.spec.certificates().is_none_or(|tls| tls.staged.is_some());
    !staged && member.object.spec.joined.is_none() && listed_as(seen, etcd, member.name()).is_none()
}

/// Checks the mark on a Pod whose resources change: the Pod runs with all else of its member's template.
pub(super) fn begin_resize(member: &Member, template: &str) -> Verdict {
    let own = member.object.spec.template.as_deref();
    rule("I1", own == Some(template), "a Pod is marked with the template of its member")?;
    rule("I1", has_process(member), "only resources change in a running Pod")
}

/// Checks the change of a running Pod's resources. etcd may end where its memory shrinks, so the others are well (I1).
pub(super) fn resize(seen: &Observed, member: &Member, resources: &ResourceRequirements) -> Verdict {
    let etcd = known(seen)?;
    formed_as(seen, etcd.cluster_id)?;
    let asked = member.pod.as_ref().and_then(template::resize) == Some(Resize::Asked);
    let marked = member.pod.as_ref().is_some_and(|pod| template::is_marked(pod, &member.object));
    rule("I1", asked && marked && has_process(member), "a Pod is marked before its resources change")?;
    rule("I1", *resources == of_member(&member.object), "a Pod gets the resources of its member")?;
    rule("I1", others_are_well(seen, etcd, member), "every other voter serves and keeps up")
}

/// Checks the end of the mark: the API server has the new resources.
pub(super) fn end_resize(member: &Member) -> Verdict {
    let accepted = member.pod.as_ref().and_then(template::resize) == Some(Resize::Accepted);
    rule("I1", accepted, "the mark goes after the API server has the new resources")
}

fn has_process(member: &Member) -> bool {
    let own = &member.object.spec.process;
    member.pod.as_ref().is_some_and(|pod| pods::ready(pod) && template::has_process(pod, own))
}

/// Checks a deleted Pod: outdated, or the one that restored, which may be outdated too.
pub(super) fn delete(seen: &Observed, member: &Member) -> Verdict {
    let restores = member.pod.as_ref().is_some_and(pods::restores);
    match (is_outdated(member), restores) {
        (false, _) => spare(seen, member),
        (true, false) => end(seen, member, false),
        (true, true) => end(seen, member, false).or_else(|_| spare(seen, member)),
    }
}

/// Checks the only Pod with its member's template that the operator deletes while its member serves: with a restore step, while no other member is missing.
pub(super) fn spare(seen: &Observed, member: &Member) -> Verdict {
    let etcd = known(seen)?;
    let formed = latches(seen).formed;
    let same = formed.is_some_and(|f| f.cluster_id == id(etcd.cluster_id));
    rule("I2", same, "only the formed cluster ends the Pod that still mounts the restore's source")?;
    rule("I1", member.pod.as_ref().is_some_and(pods::restores), "no Pod but one with a restore step is ended")?;
    // Without the latch the member might be restored again, or started empty.
    rule("I9", member.object.spec.joined.is_some(), "a member that has not joined may need its restore step")?;
    rule("I3", !may_start_empty(member), "a first start is forbidden before its Pod ends")?;
    // A claim that is being deleted goes with the Pod that uses it, and the data goes with the claim.
    rule("I4", seen.members.iter().all(|m| m.live_claim().is_some()), "every member has its claim, and none is going")?;
    let serves = |m: &Member| !m.deleting() && m.live_pod().is_some_and(pods::ready);
    let mut others = seen.members.iter().filter(|m| m.name() != member.name());
    rule("I1", !member.deleting() && others.all(serves), "no other member is missing, unready or being deleted")?;
    let voters = voters(etcd);
    let changing = voters.len() != etcd.members.len() || latches(seen).pending_member.is_some();
    rule("I11", !changing, "the membership is not changing")?;
    let healthy = voters.iter().filter(|l| {
        let other = stands_for(seen, l).is_some_and(|m| m.name() != member.name() && serves(m));
        other && is_healthy(seen, etcd, l)
    });
    permitted(seen, member)?;
    rule("I1", 2 * healthy.count() > voters.len(), "a quorum is healthy without this member")
}
