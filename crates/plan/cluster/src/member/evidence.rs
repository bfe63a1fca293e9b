//! Evidence that a member's data is lost (I29).
//!
//! Decides which facts are evidence, and when a second Pod tries a refused volume. A member that is slow, killed for its
//! memory, or silent shows no evidence. The cluster's pass (`cluster/replace.rs`) decides whether and when Holdfast replaces
//! the member.

use holdfast_api::condition::Reason;
use holdfast_api::member::Birth;
use holdfast_api::repair::{Evidence, Loss, Refusal};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::Observed;
use super::facts::own_pod;
use holdfast_base::{Act, Next, Target, Wake, failure, meta, pods};

/// Verdicts of the gate after which no later start succeeds: the data is lost, or belongs to another member. A lost identity
/// file or an unreadable annotation is no evidence about the data.
const LOST: [&str; 7] =
    ["EmptyVolume", "EmptiedVolume", "ForeignVolume", "OlderVolume", "WrongClaim", "WrongMember", "WrongWal"];

/// Verdicts for data that etcd, or the gate on behalf of etcd, cannot read.
const CORRUPT: [&str; 3] = [failure::CORRUPT_LOG, failure::CORRUPT_DATABASE, "UnreadableWal"];

/// How long a Pod that refuses its volume stays before a second Pod mounts the volume again.
const SECOND_POD: SignedDuration = SignedDuration::from_secs(60);

/// Returns the refusals of the member's latest two Pods.
pub(super) fn refusals(seen: &Observed, pod: Option<&Pod>, now: Timestamp) -> Vec<Refusal> {
    if pod.is_some_and(pods::ready) {
        return vec![];
    }
    let mut all = seen.member.status.as_ref().map(|old| old.refusals.clone()).unwrap_or_default();
    let verdict = pod.filter(|_| seen.member.spec.joined.is_some()).and_then(failure::verdict);
    if let Some((pod, verdict)) = pod.zip(verdict) {
        let uid = meta::uid(&pod.metadata);
        if all.iter().all(|known| known.pod_uid != uid) {
            all.push(Refusal { pod_uid: uid.to_owned(), verdict, at: now.to_string() });
        }
    }
    let old = all.len().saturating_sub(2);
    all.split_off(old)
}

/// Returns the evidence that the member's data is lost.
pub(super) fn evidence(seen: &Observed, refusals: &[Refusal], now: Timestamp) -> Option<Evidence> {
    let known = seen.member.status.as_ref().and_then(|old| old.evidence.clone());
    // Effects of a decided replacement are no evidence.
    if seen.member.spec.leaving.is_some() {
        return known;
    }
    let in_memory = seen.member.spec.storage.in_memory();
    if seen.member.spec.joined.is_none() {
        return known.or_else(|| learner_gone(seen, now)).filter(|_| in_memory);
    }
    if in_memory {
        let new = memory_gone(seen, now)?;
        return Some(known.filter(|known| known.kind == Loss::MemoryGone).unwrap_or(new));
    }
    if seen.claim.is_none() {
        let before = known.filter(|known| known.kind == Loss::ClaimGone);
        return before.or_else(|| Some(Evidence { kind: Loss::ClaimGone, detail: None, at: now.to_string() }));
    }
    let [first, second] = refusals else { return None };
    let kind = if CORRUPT.contains(&second.verdict.as_str()) { Loss::DataCorrupt } else { Loss::VolumeRefused };
    let detail = if first.verdict == second.verdict {
        first.verdict.clone()
    } else {
        format!("{}, {}", first.verdict, second.verdict)
    };
    let all = refusals.iter().all(|refusal| counts(&refusal.verdict));
    all.then(|| Evidence { kind, detail: Some(detail), at: second.at.clone() })
}

/// UID of the Pod in which etcd runs, or has run, for a member in memory that joins. Its data ends with this Pod, and the
/// leader never resends entries that the member confirmed.
pub(super) fn received(seen: &Observed) -> Option<String> {
    let known = seen.member.status.as_ref().and_then(|old| old.received_pod_uid.clone());
    let joins = seen.member.spec.joined.is_none() && seen.member.spec.role == Birth::Joiner;
    let runs = || own_pod(seen).filter(|pod| pods::runs(pod)).map(|pod| meta::uid(&pod.metadata).to_owned());
    if joins && seen.member.spec.storage.in_memory() { known.or_else(runs) } else { None }
}

/// Evidence that the Pod of a joining member in memory is gone, or is going.
fn learner_gone(seen: &Observed, now: Timestamp) -> Option<Evidence> {
    let received = received(seen)?;
    let goes = |pod: &Pod| meta::uid(&pod.metadata) != received || pods::ended(pod) || meta::deleting(&pod.metadata);
    own_pod(seen).is_none_or(goes).then(|| found(None, now))
}

fn found(detail: Option<String>, now: Timestamp) -> Evidence {
    Evidence { kind: Loss::MemoryGone, detail, at: now.to_string() }
}

/// Evidence that a member's memory data is gone: with its Pod, or in a Pod that runs on after a restart of its node.
fn memory_gone(seen: &Observed, now: Timestamp) -> Option<Evidence> {
    let Some(there) = own_pod(seen).filter(|pod| !pods::ended(pod)) else { return Some(found(None, now)) };
    // The exit of an earlier container is no evidence about data on which etcd runs, or has run since.
    let refused = if pods::runs(there) { None } else { failure::verdict(there) };
    refused.filter(|verdict| counts(verdict)).map(|verdict| found(Some(verdict), now))
}

/// Whether a verdict shows that the data is lost.
fn counts(verdict: &str) -> bool {
    LOST.contains(&verdict) || CORRUPT.contains(&verdict)
}

/// Deletes the first Pod that refused its volume: another mount may show another volume.
pub(super) fn second_pod(seen: &Observed, there: &Pod, now: Timestamp) -> Option<Next> {
    let refusals = refusals(seen, Some(there), now);
    let [first] = refusals.as_slice() else { return None };
    if seen.member.spec.storage.in_memory() {
        return None;
    }
    if !counts(&first.verdict) || first.pod_uid != meta::uid(&there.metadata) || pods::runs(there) {
        return None;
    }
    let at: Timestamp = first.at.parse().ok()?;
    let why = format!("the member's data were refused ({}); a second Pod mounts the volume anew", first.verdict);
    match Wake::at(at + SECOND_POD, now) {
        None => Some(Next::act(Act::DeletePod { pod: Target::from(&there.metadata), why })),
        Some(later) => {
            let message =
                format!("the member's data were refused ({}); a second Pod mounts the volume anew soon", first.verdict);
            Some(Next::wait(Reason::MemberRestarting, message, later))
        }
    }
}
