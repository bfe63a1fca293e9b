//! A member's Pod: there is one, on the member's own volume.
//!
//! Decides when it is made, and when it is made anew: after it has ended, or while the member has never joined and the
//! Pod is not what it has to be; or when it cannot start for want of what the member was restored from. The Pod of a
//! member that runs is never deleted here (I1): only the cluster's pass sees whether the others can spare one that
//! restored. Labels by which it is found are put back.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use snapshot_agent::contract::{ExitClass, Failure};

use super::facts::{cluster, unformed};
use super::{Observed, evidence};
use crate::api::condition::Reason;
use crate::api::member::{Birth, Joined};
use crate::api::{EtcdMember, key, role};
use crate::plan::build::container;
use crate::plan::build::pod::{Start, pod, selected_by};
use crate::plan::valid::Server;
use crate::plan::{Act, Next, Target, Wake, failure, meta, pods};

/// How long a failed restore step is left alone before its Pod is made anew. kubelet's own back-off grows to five
/// minutes, and a corrected Secret or source must show sooner.
const RETRY_RESTORE: SignedDuration = SignedDuration::from_secs(30);

/// Classes of a restore step's failure that a new Pod of the same attempt does not mend: users that nobody can log in as, and
/// bytes that are not those that were saved. A corrected spec is another attempt with a Pod of its own; until then each try
/// may download all of it.
const FINAL: [ExitClass; 2] = [ExitClass::AuthRequired, ExitClass::Corrupt];

/// How long a member that has served waits for what it was restored from. After a node's restart kubelet needs some seconds
/// for what is there.
const FORGET_RESTORE: SignedDuration = SignedDuration::from_secs(60);

/// Until then nobody is told that a Pod is held up (I22): a claim is bound, and a node found, within a few seconds.
const HELD_UP_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// So long a volume may take that was on another node before: Kubernetes waits six minutes for a node that does not answer,
/// and only then attaches it elsewhere (kube-controller-manager: `maxWaitForUnmountDuration`).
const UNPREPARED_FOR: SignedDuration = SignedDuration::from_mins(8);

/// Between two times that labels are put back.
const RELABELLED: Wake = Wake::AfterMillis(10_000);

/// A Pod that has ended sooner than this after it was made is not followed by another at once.
const REJECTED: SignedDuration = SignedDuration::from_secs(10);

/// What to do about the Pod of a member whose claim is there.
pub(super) fn next(seen: &Observed, server: &Server, claim_uid: &str, now: Timestamp) -> Next {
    let member = &seen.member;
    let joined = member.spec.joined.as_ref();
    let Some(initial_cluster) = &member.spec.initial_cluster else {
        let message = "etcd does not list this member yet";
        return Next::wait(Reason::Growing, message, Wake::OnChange);
    };
    let staged = member.spec.tls.as_ref().map(|tls| tls.staged.as_deref());
    if staged == Some(None) && seen.pod.is_none() {
        // I15: kubelet would hold the Pod back for minutes, and nothing starts without its certificates.
        let message = "Holdfast has not written the member's certificates yet";
        return Next::wait(Reason::CertificatePending, message, Wake::OnChange);
    }
    let founds = joined.is_none() && member.spec.role == Birth::Seed;
    if founds && !unformed(seen) {
        // I2: a second seed, or the seed of a cluster that has formed without it.
        let message = "the cluster has formed, and this seed never joined. Holdfast does not start the seed";
        return Next::wait(Reason::SafetyStop, message, Wake::AfterMillis(10_000));
    }
    // I9: restore steps only while the cluster is known not to have formed, and never for a member that has served.
    let stored = member.spec.restore.as_ref().filter(|_| founds).map(|r| (r, r.source.place.location()));
    let restore = match &stored {
        None => None,
        Some((restoring, Some(store))) => Some((*restoring, store)),
        Some((_, None)) => {
            let message = "spec.restore.source: needs exactly one of s3, azure, gcs and pvc";
            return Next::wait(Reason::InvalidSpec, message, Wake::OnChange);
        }
    };
    // I3: the permission to start empty is for a member that has not joined.
    let start = Start { claim_uid, initial_cluster, may_start_empty: joined.is_none(), found: founds, restore };
    let placement = cluster(seen).map_or(&member.spec.placement, |c| &c.spec.placement);
    let want = pod(member, server, placement, &start, &seen.settings);
    let Some(there) = &seen.pod else {
        return Next::act(Act::CreatePod(Box::new(want)));
    };
    if !meta::controlled_by(&there.metadata, meta::uid(&member.metadata)) {
        let message = format!("the Pod {} does not belong to this member. Delete the Pod", meta::name(&there.metadata));
        return Next::wait(Reason::NameConflict, message, Wake::AfterMillis(10_000));
    }
    if meta::deleting(&there.metadata) {
        let message = "its Pod is being deleted; Holdfast creates a new Pod on the same volume";
        return going(there, (Reason::MemberRestarting, message), now);
    }
    if pods::ended(there) {
        // Not in a row: kubelet may reject at once what the scheduler puts onto its node again and again.
        let made = there.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
        return anew_at(
            seen,
            made + REJECTED,
            there,
            "the Pod has ended: kubelet does not start an ended Pod again",
            now,
        );
    }
    if let Some(digest) = staged.flatten().filter(|digest| meta::annotation(&there.metadata, key::TLS) != Some(*digest))
    {
        return Next::act(Act::RefreshCertificates { pod: Target::of(&there.metadata), digest: digest.to_owned() });
    }
    let next = own(seen, there, &want, now);
    let lost = missing_labels(there, member);
    // After everything else, and not at once again: a policy of somebody's may take them each time.
    if lost.is_empty() || matches!(next, Next::Do(..)) {
        return next;
    }
    Next::Do(Act::Relabel { pod: Target::of(&there.metadata), labels: lost }, RELABELLED)
}

/// What to do about the member's own Pod, which has not ended.
fn own(seen: &Observed, there: &Pod, want: &Pod, now: Timestamp) -> Next {
    if let Some(joined) = &seen.member.spec.joined {
        return match pods::restore_held_since(there) {
            Some(since) => {
                let why = "the Pod waits for the restore's source, which the restored member does not need";
                anew_at(seen, since + FORGET_RESTORE, there, why, now)
            }
            None => count_start(seen, joined, there)
                .or_else(|| evidence::second_pod(seen, there, now))
                .unwrap_or_else(|| standing(seen, there, now)),
        };
    }
    if evidence::received(seen).is_some() {
        return standing(seen, there, now);
    }
    if outdated(there, want) {
        return anew(there, "the member has not joined yet, and its Pod has outdated arguments");
    }
    if let Some(at) = second_pod_at(seen, there) {
        return anew_at(
            seen,
            at,
            there,
            "the member does not join; a second Pod may find another node and volume",
            now,
        );
    }
    match retry_at(there) {
        Some(at) => anew_at(seen, at, there, "the restore failed; a new Pod starts again from the beginning", now),
        None => standing(seen, there, now),
    }
}

/// Labels by which the Pod is selected, and which it lacks.
fn missing_labels(pod: &Pod, member: &EtcdMember) -> BTreeMap<String, String> {
    let mut labels = selected_by(member);
    // Nothing selects by this one, and others may have their own word for it.
    labels.remove(key::NAME);
    labels.retain(|key, value| meta::label(&pod.metadata, key) != Some(value));
    labels
}

/// Counts the start of a Pod that serves, and then tells the Pod the count. Its gate wrote this number onto the volume before
/// etcd started, so an older copy of the volume is recognized from now on (I27), and another member's log too (I5). It waits
/// for the voter's label, which the cluster's pass sets.
fn count_start(seen: &Observed, joined: &Joined, pod: &Pod) -> Option<Next> {
    let counted = seen.member.spec.start_count;
    let admitted = meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER) && !pods::may_start_empty(pod);
    if !admitted || !pods::ready(pod) {
        return None;
    }
    if pods::start_number(pod) == Some(counted.saturating_add(1)) {
        let member = Target::of(&seen.member.metadata);
        return Some(Next::act(Act::LatchStart { member, count: counted.saturating_add(1) }));
    }
    let told = pods::knows_started(pod) >= counted && pods::knows_joined(pod, joined);
    let counts = pods::start_number(pod).is_some_and(|number| number <= counted);
    let mark = || Act::MarkStarted { pod: Target::of(&pod.metadata), count: counted, joined: joined.clone() };
    (counts && !told).then(|| Next::act(mark()))
}

/// A Pod on its way out, and what is told of that meanwhile. Where its node never says that it has ended, only a person can
/// know that it has (I1).
pub(super) fn going(pod: &Pod, (reason, message): (Reason, &str), now: Timestamp) -> Next {
    match pods::lingers_from(pod).map(|from| Wake::at(from, now)) {
        Some(None) => Next::wait(Reason::NodeSilent, pods::who_holds(pod), Wake::OnChange),
        Some(Some(later)) => Next::wait(reason, message, later),
        None => Next::wait(reason, message, Wake::OnChange),
    }
}

fn anew(pod: &Pod, why: &str) -> Next {
    Next::act(Act::DeletePod { pod: Target::of(&pod.metadata), why: why.to_owned() })
}

/// Has the Pod made anew at that time; until then it is judged as it stands, and looked at again then.
fn anew_at(seen: &Observed, at: Timestamp, pod: &Pod, why: &str, now: Timestamp) -> Next {
    match (Wake::at(at, now), standing(seen, pod, now)) {
        (None, _) => anew(pod, why),
        (Some(later), Next::Wait(waiting, _)) => Next::Wait(waiting, later),
        (Some(_), other @ (Next::Do(..) | Next::Settled(_))) => other,
    }
}

/// A Pod that is as it has to be: serving, or on its way.
fn standing(seen: &Observed, pod: &Pod, now: Timestamp) -> Next {
    if pods::ready(pod) {
        return Next::Settled(Wake::OnChange);
    }
    if pods::runs(pod) {
        return Next::wait(Reason::WaitingForEtcd, "etcd runs and is not ready yet", Wake::OnChange);
    }
    if pods::ended(pod) {
        let message = format!("its Pod has ended{}; Holdfast creates another Pod", pods::why_ended(pod));
        return Next::wait(Reason::WaitingForPod, message, Wake::OnChange);
    }
    let Some(held) = failure::hold_up(pod, seen.claim.as_ref()) else {
        return Next::wait(Reason::WaitingForPod, "its Pod does not run yet", Wake::OnChange);
    };
    let message = format!("its Pod does not run yet: {}", held.message);
    let told_from = if held.stuck {
        pod.metadata.creation_timestamp.as_ref().map_or(now, |made| made.0) + HELD_UP_AFTER
    } else {
        // A restore step that runs for hours is nothing of the kind: that Pod is prepared.
        match pods::unprepared_since(pod) {
            Some(since) => since + UNPREPARED_FOR,
            None => return Next::wait(Reason::WaitingForPod, message, Wake::OnChange),
        }
    };
    match Wake::at(told_from, now) {
        Some(later) => Next::wait(Reason::WaitingForPod, message, later),
        None => Next::wait(Reason::PodHeldUp, message, Wake::OnChange),
    }
}

/// When the first Pod of a member that does not join is made anew; a Pod that was made later is not.
fn second_pod_at(seen: &Observed, pod: &Pod) -> Option<Timestamp> {
    let born = seen.member.metadata.creation_timestamp.as_ref()?.0;
    let made = pod.metadata.creation_timestamp.as_ref()?.0;
    let first = seen.member.spec.role == Birth::Joiner && made < born + pods::JOINS_WITHIN;
    first.then(|| made.max(born) + pods::JOINS_WITHIN)
}

/// Whether a container that decides about data would run with other arguments than it has to.
fn outdated(there: &Pod, want: &Pod) -> bool {
    [container::RESTORE, container::ETCD]
        .into_iter()
        .any(|name| pods::arguments(there, name) != pods::arguments(want, name))
}

fn is_final(code: i32) -> bool {
    Failure::of_code(code).is_some_and(|failure| FINAL.contains(&failure.class))
}

/// When a restore step that has failed, and that kubelet holds back, is tried again; one of [`FINAL`] is left to kubelet's
/// own back-off.
fn retry_at(pod: &Pod) -> Option<Timestamp> {
    let status = pods::status(pod, container::RESTORE)?;
    status.state.as_ref()?.waiting.as_ref()?;
    let ended =
        pods::last_end(status).filter(|end| end.exit_code != 0 && !is_final(end.exit_code))?.finished_at.as_ref()?;
    // By its node's clock, which may be behind: never before the Pod itself, which the API server has dated.
    let made = pod.metadata.creation_timestamp.as_ref().map_or(ended.0, |made| made.0);
    Some(ended.0.max(made) + RETRY_RESTORE)
}
