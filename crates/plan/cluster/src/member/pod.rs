//! A member's Pod: one Pod on the member's own volume.
//!
//! Decides when the operator creates the Pod and when it replaces the Pod. It replaces a Pod
//! * that has ended;
//! * whose etcd does not run, of a member with another template or a larger volume;
//! * with an outdated request or a failed restore, of a member that has not joined;
//! * of a restored member that kubelet cannot start, because the restore's source is missing.
//!
//! This file never deletes the Pod of a member that runs (I1): only the cluster's pass knows
//! whether the other members can spare a restored member. The operator restores missing labels that select the Pod.

use std::collections::BTreeMap;

use holdfast_api::condition::Reason;
use holdfast_api::member::{Birth, Joined};
use holdfast_api::timeline::ReturnPhase;
use holdfast_api::{EtcdMember, key, role};
use holdfast_contract::{ExitClass, Failure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::facts::{cluster, is_prepared, own_pod, prepared_for, unformed};
use super::{Observed, evidence, pod_metadata};
use holdfast_base::objects::pod::{Start, pod, preparing, selected_by};
use holdfast_base::objects::{container, request};
use holdfast_base::valid::Server;
use holdfast_base::{Act, Next, Target, Wake, failure, meta, pods, template, volumes};

/// How long a failed restore step rests before the operator replaces its Pod. kubelet's back-off grows to five minutes, and a
/// corrected Secret or source must take effect sooner.
const RETRY_RESTORE: SignedDuration = SignedDuration::from_secs(30);

/// Failure classes of a restore step that a new Pod of the same attempt does not fix: a snapshot with authentication enabled,
/// for which a cluster has no credentials, and stored bytes that differ from the saved bytes. A corrected spec is another
/// attempt with its own Pod; until then each retry may download the whole snapshot.
const FINAL: [ExitClass; 2] = [ExitClass::AuthRequired, ExitClass::Corrupt];

/// How long a member that has served waits for the restore's source. After a node's restart kubelet needs some seconds to mount
/// existing objects.
const FORGET_RESTORE: SignedDuration = SignedDuration::from_secs(60);

/// Delay before a Pod that does not start becomes a condition (I22): binding a claim and finding a node take a few seconds.
const HELD_UP_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// Delay for a volume that another node held before: Kubernetes waits six minutes for a node that does not answer before it
/// attaches the volume elsewhere (kube-controller-manager: `maxWaitForUnmountDuration`).
const UNPREPARED_FOR: SignedDuration = SignedDuration::from_mins(8);

/// Pause between two writes of missing labels.
const RELABELLED: Wake = Wake::AfterMillis(10_000);

/// Minimum age of a Pod before the operator replaces the Pod at its end.
const REJECTED: SignedDuration = SignedDuration::from_secs(10);

/// Returns the next step for the Pod of a member with a claim.
pub(super) fn next(seen: &Observed, server: &Server, claim_uid: &str, now: Timestamp) -> Next {
    let member = &seen.member;
    let joined = member.spec.joined.as_ref();
    let Some(initial_cluster) = &member.spec.initial_cluster else {
        let message = "etcd does not list this member yet";
        return Next::wait(Reason::Growing, message, Wake::OnChange);
    };
    let preparation = prepared_for(seen);
    let prepares = preparation.is_some();
    let staged = member.spec.certificates().map(|tls| tls.staged.as_deref());
    if staged == Some(None) && seen.pod.is_none() && !prepares {
        // I15: without the certificates kubelet holds the Pod back for minutes.
        let message = "Holdfast has not written the member's certificates yet";
        return Next::wait(Reason::CertificatePending, message, Wake::OnChange);
    }
    let founds = joined.is_none() && member.spec.role == Birth::Seed;
    if founds && !unformed(seen) && !prepares {
        // I2: this is a second seed, or the seed of a cluster that formed without it.
        let message = "the cluster has formed, and this seed never joined. Holdfast does not start the seed";
        return Next::wait(Reason::SafetyStop, message, Wake::AfterMillis(10_000));
    }
    // I9: a seed gets restore steps only while the cluster is known not to have formed, and never after the seed has served.
    let restores = founds && !is_prepared(seen);
    let stored = member.spec.restore.as_ref().filter(|_| restores).map(|r| (r, r.source.place.location()));
    let restore = match &stored {
        None => None,
        Some((restoring, Some(store))) => Some((*restoring, store)),
        Some((_, None)) => {
            let message = "spec.restore.source: needs exactly one of s3, azure, gcs and pvc";
            return Next::wait(Reason::InvalidSpec, message, Wake::OnChange);
        }
    };
    // I3: only a member that has not joined may start empty.
    let start = Start { claim_uid, initial_cluster, may_start_empty: joined.is_none(), found: founds, restore };
    let placement = cluster(seen).map_or(&member.spec.placement, |c| &c.spec.placement);
    let want = pod(member, server, placement, &start, &seen.settings);
    let want = if prepares { preparing(member, want) } else { want };
    if let Some(returning) = preparation
        && returning.is_none_or(|returning| returning.phase() != ReturnPhase::Preparing)
    {
        return at_rest(seen, now);
    }
    let Some(there) = &seen.pod else {
        // A webhook that reads labels sees them at the creation.
        let act = pod_metadata::next(seen, None).unwrap_or_else(|| Act::CreatePod(Box::new(want)));
        return Next::act(act);
    };
    if !meta::controlled_by(&there.metadata, meta::uid(&member.metadata)) {
        let message = format!("the Pod {} does not belong to this member. Delete the Pod", meta::name(&there.metadata));
        return Next::wait(Reason::NameConflict, message, Wake::AfterMillis(10_000));
    }
    if meta::deleting(&there.metadata) {
        let message = "its Pod is being deleted; Holdfast creates a new Pod on the same volume";
        return going(there, (Reason::MemberRestarting, message), now);
    }
    if pods::prepares(there) && !prepares {
        return recreate(there, "the data is restored, and etcd starts on it");
    }
    if prepares && pods::ended(there) && pods::succeeded(there) {
        return Next::wait(
            Reason::Restoring,
            "the data is restored; etcd starts when the cluster returns",
            Wake::OnChange,
        );
    }
    if pods::ended(there) {
        // Not immediately: kubelet may reject each new Pod that the scheduler binds to the same node.
        let made = there.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
        return recreate_at(
            seen,
            made + REJECTED,
            there,
            "the Pod has ended: kubelet does not start an ended Pod again",
            now,
        );
    }
    let has_files = pods::transport(there).has_certificates();
    let has_files = has_files && !prepares;
    let news = |digest: &&str| has_files && meta::annotation(&there.metadata, key::TLS) != Some(*digest);
    if let Some(digest) = staged.flatten().filter(news) {
        return Next::act(Act::RefreshCertificates { pod: Target::from(&there.metadata), digest: digest.to_owned() });
    }
    if let Some(size) = seen.claim.as_ref().and_then(|claim| volumes::to_announce(claim, there)) {
        return Next::act(Act::RefreshVolume { pod: Target::from(&there.metadata), size: size.clone() });
    }
    let next = match own(seen, there, &want, now) {
        next @ Next::Do(..) => next,
        next if prepares => return next,
        next => pod_metadata::next(seen, Some(there)).map_or(next, Next::act),
    };
    let lost = missing_labels(there, member);
    // After all other steps, and with a pause: an admission policy may remove the labels each time.
    if lost.is_empty() || matches!(next, Next::Do(..)) {
        return next;
    }
    Next::Do(Act::Relabel { pod: Target::from(&there.metadata), labels: lost }, RELABELLED)
}

/// Returns the step for a prepared member while no Pod of it is wanted: the data waits on the claim.
fn at_rest(seen: &Observed, now: Timestamp) -> Next {
    let Some(there) = own_pod(seen) else {
        return Next::wait(
            Reason::Returning,
            "the data is restored; etcd starts when the cluster returns",
            Wake::OnChange,
        );
    };
    if meta::deleting(&there.metadata) {
        return going(there, (Reason::Returning, "its Pod ends"), now);
    }
    recreate(there, "the data is restored")
}

/// Returns the next step for the member's own Pod that has not ended.
fn own(seen: &Observed, there: &Pod, want: &Pod, now: Timestamp) -> Next {
    // No etcd ends with this Pod, so no vote is lost (I1). The data of a member in memory would go with the Pod.
    let holds_data = seen.member.spec.storage.in_memory() && seen.member.spec.joined.is_some();
    if !holds_data && !pods::runs(there) && !template::is_current(there, &seen.member) {
        return recreate(there, "etcd does not run in the Pod, and the member has another template now");
    }
    // A full volume may have ended every etcd, and without a quorum no roll makes another Pod.
    if !holds_data && !pods::runs(there) {
        if volumes::has_outgrown(there, &seen.member) {
            return recreate(there, "etcd does not run in the Pod, and the member's volume is larger now");
        }
        if let Some(at) = seen.claim.as_ref().and_then(|claim| volumes::remount_at(claim, there)) {
            let why = "etcd does not run in the Pod, and the file system of its volume grows when it is mounted";
            return recreate_at(seen, at, there, why, now);
        }
    }
    if let Some(joined) = &seen.member.spec.joined {
        return match pods::restore_held_since(there) {
            Some(since) => {
                let why = "the Pod waits for the restore's source, which the restored member does not need";
                recreate_at(seen, since + FORGET_RESTORE, there, why, now)
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
        return recreate(there, "the member has not joined yet, and its Pod has an outdated request");
    }
    if let Some(at) = second_pod_at(seen, there) {
        return recreate_at(
            seen,
            at,
            there,
            "the member does not join; a second Pod may find another node and volume",
            now,
        );
    }
    match retry_at(there) {
        Some(at) => recreate_at(seen, at, there, "the restore failed; a new Pod starts again from the beginning", now),
        None => standing(seen, there, now),
    }
}

/// Returns the labels that select the Pod and that the Pod lacks.
fn missing_labels(pod: &Pod, member: &EtcdMember) -> BTreeMap<String, String> {
    let mut labels = selected_by(member);
    // No selector uses this label, and users may set another value.
    labels.remove(key::NAME);
    labels.retain(|key, value| meta::label(&pod.metadata, key) != Some(value));
    labels
}

/// Latches the start count of a Pod that serves, and then writes the count onto the Pod. The gate wrote this number onto the
/// volume before etcd started, so from now on the gate detects an older copy of the volume (I27) and the log of another member
/// (I5). The count waits for the voter's label, which the cluster's pass sets.
fn count_start(seen: &Observed, joined: &Joined, pod: &Pod) -> Option<Next> {
    let counted = seen.member.spec.start_count;
    let admitted = meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER) && !pods::may_start_empty(pod);
    if !admitted || !pods::ready(pod) {
        return None;
    }
    if pods::start_number(pod) == Some(counted.saturating_add(1)) {
        let member = Target::from(&seen.member.metadata);
        return Some(Next::act(Act::LatchStart { member, count: counted.saturating_add(1) }));
    }
    let is_written = pods::knows_started(pod) >= counted && pods::knows_joined(pod, joined);
    let counts = pods::start_number(pod).is_some_and(|number| number <= counted);
    let record = || Act::MarkStarted { pod: Target::from(&pod.metadata), count: counted, joined: joined.clone() };
    (counts && !is_written).then(|| Next::act(record()))
}

/// Waits for a Pod that is being deleted. If its node never reports the Pod's end, only a person can confirm the end (I1).
pub(super) fn going(pod: &Pod, (reason, message): (Reason, &str), now: Timestamp) -> Next {
    match pods::lingers_from(pod).map(|from| Wake::at(from, now)) {
        Some(None) => Next::wait(Reason::NodeSilent, pods::who_holds(pod), Wake::OnChange),
        Some(Some(later)) => Next::wait(reason, message, later),
        None => Next::wait(reason, message, Wake::OnChange),
    }
}

fn recreate(pod: &Pod, why: &str) -> Next {
    Next::act(Act::DeletePod { pod: Target::from(&pod.metadata), why: why.to_owned() })
}

/// Replaces the Pod at that time; until then returns the step for the Pod as it stands, and wakes at that time.
fn recreate_at(seen: &Observed, at: Timestamp, pod: &Pod, why: &str, now: Timestamp) -> Next {
    match (Wake::at(at, now), standing(seen, pod, now)) {
        (None, _) => recreate(pod, why),
        (Some(later), Next::Wait(waiting, _)) => Next::Wait(waiting, later),
        (Some(_), other @ (Next::Do(..) | Next::Settled(_))) => other,
    }
}

/// Returns the wait for an acceptable Pod that serves or starts.
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
    let report_from = if held.stuck {
        pod.metadata.creation_timestamp.as_ref().map_or(now, |made| made.0) + HELD_UP_AFTER
    } else {
        // A restore step that runs for hours is no hold-up: kubelet has prepared that Pod.
        match pods::unprepared_since(pod) {
            Some(since) => since + UNPREPARED_FOR,
            None => return Next::wait(Reason::WaitingForPod, message, Wake::OnChange),
        }
    };
    match Wake::at(report_from, now) {
        Some(later) => Next::wait(Reason::WaitingForPod, message, later),
        None => Next::wait(Reason::PodHeldUp, message, Wake::OnChange),
    }
}

/// When the operator replaces the first Pod of a member that does not join; `None` for a later Pod.
fn second_pod_at(seen: &Observed, pod: &Pod) -> Option<Timestamp> {
    let born = seen.member.metadata.creation_timestamp.as_ref()?.0;
    let made = pod.metadata.creation_timestamp.as_ref()?.0;
    let first = seen.member.spec.role == Birth::Joiner && made < born + pods::JOINS_WITHIN;
    first.then(|| made.max(born) + pods::JOINS_WITHIN)
}

/// Whether a container that decides about data would run with an outdated request.
fn outdated(there: &Pod, want: &Pod) -> bool {
    let (there, want) = (there.spec.as_ref(), want.spec.as_ref());
    [container::RESTORE, container::ETCD].into_iter().any(|name| !request::is_same(there, want, name))
}

fn is_final(code: i32) -> bool {
    Failure::for_code(code).is_some_and(|failure| FINAL.contains(&failure.class))
}

/// When the operator retries a failed restore step that kubelet holds back; `None` for a class in [`FINAL`], which kubelet's
/// back-off retries.
fn retry_at(pod: &Pod) -> Option<Timestamp> {
    let status = pods::status(pod, container::RESTORE)?;
    status.state.as_ref()?.waiting.as_ref()?;
    let ended =
        pods::last_end(status).filter(|end| end.exit_code != 0 && !is_final(end.exit_code))?.finished_at.as_ref()?;
    // The node's clock may be behind, so the result is never earlier than the Pod's creation by the API server's clock.
    let made = pod.metadata.creation_timestamp.as_ref().map_or(ended.0, |made| made.0);
    Some(ended.0.max(made) + RETRY_RESTORE)
}
