//! Why no linearizable read succeeds in a cluster that has formed.
//!
//! Decides between three causes: etcd requires a login, members are still starting, or the quorum is lost; and names each voter's
//! own cause. A member that cannot come back by itself (its claim is gone, or the gate refuses its volume) does not count as
//! starting, however often kubelet starts its container. No cause leads to an act (I1).

use holdfast_api::cluster::{DataEnd, MemberSummary};
use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::member::LastFailure;
use holdfast_api::repair::Loss;
use holdfast_api::role;
use jiff::{SignedDuration, Timestamp};

use super::intervals::{POLL, SOON};
use super::{Answer, Member, Membership, Observed, auth, memberless, recorded, tls};
use holdfast_base::objects::budget::quorum;
use holdfast_base::objects::container;
use holdfast_base::{Next, Seen, Unread, Wake, failure, meta, pods};

/// A member that has not served for longer than this does not count as starting, even if its Pod is young: a Pod that is
/// rejected or ends again and again is always young.
const STARTS_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// The gate refuses a volume within a second, so a container that has run for longer than this runs etcd.
const GATE_DECIDES_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// Returns since when a member has not served, from the member's own status.
fn unready_since(member: &Member) -> Option<Timestamp> {
    let conditions = &member.object.status.as_ref()?.conditions;
    let ready = condition::find(conditions, Type::Ready).filter(|ready| ready.status != "True")?;
    // An EtcdMember that a user deleted keeps serving.
    (ready.reason != Reason::MemberStillListed.as_str()).then_some(ready.last_transition_time.0)
}

/// Whether etcd runs in this Pod and never restarted there: Holdfast may have admitted the member only now.
fn runs_from_its_first(member: &Member) -> bool {
    let status = member.pod.as_ref().filter(|pod| pods::runs(pod)).and_then(|pod| pods::status(pod, container::ETCD));
    status.is_some_and(|status| status.restart_count == 0)
}

/// Returns why a member that has joined cannot come back by itself; `None` if no obstacle is known.
pub(super) fn lost(member: &Member, now: Timestamp) -> Option<String> {
    if !member.joined() {
        return None;
    }
    if let Some(gone) = member.lost_volume() {
        return Some(gone.to_owned());
    }
    let pod = member.live_pod();
    if pod.and_then(pods::running_since).is_some_and(|since| now >= since + GATE_DECIDES_WITHIN) {
        return None;
    }
    // The member's own status keeps a refusal while the Pod is created again.
    let recorded = || member.object.status.as_ref()?.last_failure.clone();
    let failure = pod.and_then(failure::find_last).or_else(recorded)?;
    (failure::reason(&failure) == Reason::VolumeRefused).then(|| refused(&failure))
}

fn refused(failure: &LastFailure) -> String {
    let Some(verdict) = failure.verdict.as_deref() else { return "the gate refuses its volume".to_owned() };
    let why = match verdict {
        "EmptyVolume" => "its volume is empty",
        "EmptiedVolume" => "its volume has lost its data",
        "OlderVolume" => "its volume is an older copy",
        "IdentityLost" => "its volume lacks Holdfast's identity file",
        _ => "the gate refuses its volume",
    };
    format!("{why} ({verdict})")
}

/// Returns the wait while etcd requires a login: etcd answers, so the quorum is not lost.
pub(super) fn locked_out(seen: &Observed) -> Option<Next> {
    let Seen::Unknown(Unread::LoginRequired(_)) = &seen.etcd else { return None };
    Some(Next::wait(Reason::AuthRequiredNotConfigured, auth::locked_out(seen), POLL))
}

/// Returns why etcd is silent: etcd requires a login, members start, or the quorum is lost.
pub(super) fn wait(seen: &Observed, why: &Unread, now: Timestamp) -> Next {
    if let Some(next) = locked_out(seen) {
        return next;
    }
    if seen.members.is_empty() {
        return memberless::next(seen);
    }
    if let Some(why) = &seen.unread_certificates {
        return Next::wait(Reason::RightsMissing, tls::unreadable(why), POLL);
    }
    if let Some(next) = data_lost(seen) {
        return next;
    }
    let voters = last_voters(seen);
    let lost: Vec<Option<String>> = voters.iter().map(|member| lost(member, now)).collect();
    let whole = lost.iter().filter(|lost| lost.is_none()).count();
    if whole < quorum(voters.len()) {
        return without_a_majority(seen, &voters, &lost, whole, now);
    }
    // The member's pass creates a missing Pod at once, unless the member's claim is lost. A Pod that is being deleted is soon
    // gone, unless its node is dead.
    let starts = |m: &&Member| match &m.pod {
        _ if lost_or_late(m, now) => false,
        Some(pod) if meta::deleting(&pod.metadata) => !pods::lingers(pod, now),
        Some(pod) => pods::starting(Some(pod), now),
        None => (m.claim.is_some() || m.object.spec.storage.in_memory()) && !m.deleting() && !seen.cluster.spec.paused,
    };
    if let Some(first) = seen.members.iter().find(starts) {
        let soon = seen.members.iter().filter(starts).any(|m| m.live_pod().is_some_and(pods::runs));
        let state = if first.pod.is_some() { "is starting" } else { "has no Pod yet" };
        let message = format!("{} {state}; no linearizable read succeeds yet", first.name());
        return Next::wait(Reason::WaitingForEtcd, message, if soon { SOON } else { Wake::AfterMillis(500) });
    }
    let descriptions =
        voters.iter().zip(&lost).map(|(member, lost)| describe_member(seen, member, lost.as_deref(), true, now));
    let message = format!(
        "no linearizable read succeeds ({why}): {}. {} of {} voters are needed; bring their Pods and volumes back, nothing \
         is removed",
        descriptions.collect::<Vec<_>>().join(", "),
        quorum(voters.len()),
        voters.len()
    );
    // A watch reports a Pod that comes back, but no watch reports an election.
    Next::wait(Reason::QuorumLost, message, Wake::AfterMillis(2_000))
}

/// Returns the wait of a cluster in memory that has lost every copy of its data. Holdfast founds no other cluster in its
/// place (I2).
pub(super) fn data_lost(seen: &Observed) -> Option<Next> {
    let mut had = seen.members.iter().filter(|m| m.joined() && !m.removed()).peekable();
    let first = had.peek()?.object.spec.joined.as_ref()?;
    let message = format!(
        "spec.storage.medium is Memory, and every member of etcd cluster {} has lost its Pod and with it its data. Holdfast \
         founds no empty cluster in its place. Restore the last snapshot into a new EtcdCluster with claims, or delete \
         this EtcdCluster and create it again, empty (runbook DataLost)",
        first.cluster_id
    );
    let all = seen.cluster.spec.storage.in_memory()
        && had.all(|member| {
            // The member's pass reads the Pod by name; a list of Pods by label may lack a running Pod.
            recorded::recorded_evidence(member).is_some_and(|evidence| evidence.kind == Loss::MemoryGone)
        });
    all.then(|| Next::wait(Reason::DataLost, message, Wake::AfterMillis(10_000)))
}

/// Returns the wait while too few voters can come back by themselves. The message stays the same from pass to pass.
fn without_a_majority(
    seen: &Observed,
    voters: &[&Member],
    lost: &[Option<String>],
    whole: usize,
    now: Timestamp,
) -> Next {
    let descriptions =
        voters.iter().zip(lost).map(|(member, lost)| describe_member(seen, member, lost.as_deref(), false, now));
    let remedy = if seen.cluster.spec.storage.in_memory() {
        "What was in memory does not come back: save the survivor before its Pod ends, and restore that or the last \
         snapshot as a new cluster with claims"
    } else {
        "Bring the data of the others back, go on from a survivor's volume with spec.fromMember of an EtcdRestore, or restore \
         the last snapshot as a new cluster"
    };
    let message = format!(
        "{}. {} of {} voters are needed, and {whole} can come back. Nothing is removed. {}{remedy} (runbook QuorumLost)",
        descriptions.collect::<Vec<_>>().join("; "),
        quorum(voters.len()),
        voters.len(),
        savable(seen, voters)
    );
    Next::wait(Reason::QuorumLost, message, Wake::AfterMillis(2_000))
}

/// Returns whether a snapshot without a quorum can be saved now, and from which member: the longest log wins.
fn savable(seen: &Observed, voters: &[&Member]) -> String {
    let log_end = |m: &&Member| Some((seen.known_answer(m.name())?.applied_index, m.name().to_owned()));
    match voters.iter().filter_map(log_end).max() {
        Some((_, name)) => format!("`holdfast agent save --no-quorum` can save the data of {name}. "),
        None => "No voter answers, so no snapshot can be saved now. ".to_owned(),
    }
}

/// Returns the end of a member's data by its last answer without a leader: with one, each pass would write another index.
pub(super) fn data_end(
    etcd: Option<&Membership>,
    answer: Option<&Answer>,
    before: Option<&MemberSummary>,
) -> Option<DataEnd> {
    match (etcd, answer.filter(|answer| answer.leader == 0)) {
        (Some(_), _) => None,
        (None, Some(Answer { term, applied_index: index, revision, .. })) => {
            Some(DataEnd { term: *term, index: *index, revision: *revision })
        }
        (None, None) => before.and_then(|summary| summary.data_end.clone()),
    }
}

/// Returns a voter with its own cause; with the error of its silence only where that error is stable.
fn describe_member(seen: &Observed, member: &Member, lost: Option<&str>, cause: bool, now: Timestamp) -> String {
    let name = member.name();
    match (lost, seen.answers.get(name)) {
        (Some(why), _) => format!("{name}: {why}"),
        (None, None) => match member.pod.as_ref().filter(|pod| pods::lingers(pod, now)) {
            Some(pod) => format!("{name}: {}", pods::who_holds(pod)),
            None => format!("{name} does not run"),
        },
        (None, Some(Seen::Unknown(why))) if cause => format!("{name} does not answer ({why})"),
        (None, Some(Seen::Unknown(_))) => format!("{name} does not answer"),
        (None, Some(Seen::Known(answer))) => {
            format!("{name} answers (term {}, index {})", answer.term, answer.applied_index)
        }
    }
}

/// Returns the voters that etcd listed at the last read; all members if there was no read.
fn last_voters(seen: &Observed) -> Vec<&Member> {
    let listed = seen.cluster.status.as_ref().map(|status| status.members.as_slice()).unwrap_or_default();
    let votes =
        |m: &&Member| listed.iter().any(|known| known.name == m.name() && known.role.as_deref() == Some(role::VOTER));
    let voters: Vec<&Member> = seen.members.iter().filter(votes).collect();
    if voters.is_empty() { seen.members.iter().filter(|m| !m.removed()).collect() } else { voters }
}

/// Whether a member cannot come back by itself, or had enough time to come back.
fn lost_or_late(member: &Member, now: Timestamp) -> bool {
    let late = unready_since(member).is_some_and(|since| now >= since + STARTS_WITHIN) && !runs_from_its_first(member);
    late || lost(member, now).is_some()
}
