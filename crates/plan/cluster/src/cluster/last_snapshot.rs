//! The last snapshot of a cluster that is being deleted: `spec.finalSnapshot`.
//!
//! Decides the steps between the deletion and the release of the cluster: lead new clients away, end each Pod once, because a client
//! keeps an open connection to a Pod that has left the Service, request the snapshot, wait until it is complete. The agent reads
//! linearizably before it saves, so the snapshot has every write that a client saw acknowledged. Without the snapshot
//! `spec.finalSnapshot.onFailure` decides: the cluster stays, with its members and volumes (I4), or goes. A parked cluster starts
//! for its snapshot, without clients. `snapshot/` decides the save, `member/` keeps the Pods meanwhile.

use holdfast_api::cluster::Latches;
use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::final_snapshot::{FinalSnapshot, OnFailure};
use holdfast_api::snapshot::Phase;
use holdfast_api::timeline::{ReturnPhase, Returning};
use holdfast_api::{EtcdCluster, EtcdSnapshot, key, name};
use jiff::{SignedDuration, Timestamp};

use super::intervals::POLL;
use super::{Member, Observed, lead_away};
use holdfast_base::objects::requested;
use holdfast_base::{Act, Next, Note, Wake, ending, meta};

/// Interval while a Pod comes back or the snapshot is saved: nothing reports a member's etcd.
const RETRY: Wake = Wake::AfterMillis(1_000);

/// How long Pods are ended for their connections. Later the snapshot counts for more.
const ENDS_CONNECTIONS: SignedDuration = SignedDuration::from_mins(3);

/// How long after its Job's deadline the outcome of a save may be unknown.
const OUTCOME: SignedDuration = SignedDuration::from_mins(10);

/// Remedy of each message about a cluster that stays.
const REMEDY: &str = "The members and their volumes stay. To let the cluster go without the snapshot, annotate the EtcdCluster with \
                      holdfast.dev/skip-final-snapshot=true";

/// Returns the next step before a deleted cluster may go; `None`: no snapshot keeps the cluster.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    let asked = ending::final_snapshot(&seen.cluster)?;
    if let Some(returning) = seen.returning().filter(has_left) {
        // The safety snapshot was saved after clients had been led away.
        let lost = format!(
            "EtcdRestore {} has set members aside without a safety snapshot, so no etcd runs that could be saved",
            returning.name
        );
        return if returning.safety_snapshot.is_some() { None } else { give_up(asked, &lost) };
    }
    if seen.latches().formed.is_none() {
        // A cluster that never formed has no data. A lost status is not the proof of that (I4).
        let lost = "status.latches.formed is lost, and a member has served, so Holdfast saves no snapshot";
        return seen.members.iter().chain(&seen.others).any(Member::joined).then(|| give_up(asked, lost)).flatten();
    }
    let Some(facts) = &seen.ending else {
        return Some(wait("the EtcdSnapshots are not read yet".to_owned()));
    };
    if facts.terminating {
        return None;
    }
    let Some(since) = first_step_at(seen) else {
        let latches = Latches { final_snapshot_since: Some(now.to_string()), ..seen.latches() };
        return Some(Next::act(Act::Latch(Box::new(latches))));
    };
    let deadline = SignedDuration::from_secs(asked.deadline_seconds().into());
    match &facts.snapshot {
        Some(snapshot) => await_snapshot(seen, asked, snapshot, (deadline, now)),
        None => before_request(seen, asked, (since + ENDS_CONNECTIONS, deadline), now),
    }
}

/// Whether the present members of a return leave, or have left.
fn has_left(returning: &Returning) -> bool {
    let leads_away = [ReturnPhase::SettingAside, ReturnPhase::Starting, ReturnPhase::TurningBack];
    (leads_away.contains(&returning.phase()) || returning.survivor().is_some())
        && returning.phases.iter().any(|start| start.phase == ReturnPhase::SettingAside)
}

/// Returns the step or the wait until the snapshot is requested. The API server may refuse a step for ever, so the second deadline
/// ends these too.
fn before_request(
    seen: &Observed,
    asked: &FinalSnapshot,
    (ready, deadline): (Timestamp, SignedDuration),
    now: Timestamp,
) -> Option<Next> {
    let (over, refused) = (now >= ready + deadline, now >= ready + deadline + deadline);
    match prepare(seen, asked, now) {
        Err(Next::Wait(waiting, _)) if over || (waiting.reason.needs_a_person() && holds(asked)) => {
            give_up(asked, &waiting.message)
        }
        Err(Next::Wait(waiting, _)) => Some(wait(waiting.message)),
        Ok(()) | Err(_) if refused && !holds(asked) => None,
        Ok(()) => Some(Next::act(request(&seen.cluster, asked))),
        Err(act) => Some(act),
    }
}

/// Returns the wait for the requested snapshot. `None`: the snapshot is complete, or `onFailure` is `Proceed` and the snapshot failed
/// or is late.
fn await_snapshot(
    seen: &Observed,
    asked: &FinalSnapshot,
    snapshot: &EtcdSnapshot,
    (deadline, now): (SignedDuration, Timestamp),
) -> Option<Next> {
    let named = meta::name(&snapshot.metadata);
    let phase = snapshot.status.as_ref().map_or(Phase::Pending, |status| status.phase);
    if !is_last(snapshot, seen) || (phase == Phase::Complete && !is_of(snapshot, &seen.cluster)) {
        let why = format!(
            "the EtcdSnapshot {named} is older than the deletion, or of another cluster: delete the EtcdSnapshot, and Holdfast \
             requests another"
        );
        return give_up(asked, &why);
    }
    let created = snapshot.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let over = |limit: SignedDuration| created.is_some_and(|at| now >= at + limit);
    let waits = |message: String, limit| if over(limit) { give_up(asked, &message) } else { Some(wait(message)) };
    match phase {
        Phase::Complete => None,
        Phase::Failed => {
            let why = format!(
                "the EtcdSnapshot {named} has failed: correct the cause that its conditions name, and delete it; Holdfast requests \
                 another"
            );
            give_up(asked, &why)
        }
        Phase::Running => waits(
            format!("the EtcdSnapshot {named} is being saved; its conditions name the state"),
            deadline + deadline + OUTCOME,
        ),
        Phase::Pending => {
            waits(format!("the EtcdSnapshot {named} has not started; its conditions name the cause"), deadline)
        }
    }
}

/// Returns the fault of the snapshot that the deleted cluster waits for, with the words of the snapshot's own status: its saves fail and
/// are tried again, or a person has to act.
pub(super) fn fault(seen: &Observed) -> Option<(Reason, String)> {
    let asked = ending::final_snapshot(&seen.cluster)?;
    let snapshot = seen.ending.as_ref()?.snapshot.as_ref()?;
    let status = snapshot.status.as_ref().filter(|status| !status.phase.is_final())?;
    let ready = condition::find(&status.conditions, Type::Ready)?;
    let stuck = Reason::named(&ready.reason).is_some_and(Reason::needs_a_person);
    let named = meta::name(&snapshot.metadata);
    (stuck || status.attempts > 1 || status.error.is_some()).then(|| {
        let remedy = if holds(asked) { format!(". {REMEDY}") } else { String::new() };
        let message =
            format!("the EtcdSnapshot {named} is not saved yet ({}): {}{remedy}", ready.reason, ready.message);
        (Reason::FinalSnapshotHeld, message)
    })
}

/// Returns the Event about the end of a cluster with `spec.finalSnapshot`.
pub(super) fn note(seen: &Observed) -> Option<Note> {
    seen.cluster.spec.final_snapshot.as_ref()?;
    let facts = seen.ending.as_ref();
    let saved = facts.and_then(|facts| facts.snapshot.as_ref());
    let saved = saved.filter(|snapshot| is_of(snapshot, &seen.cluster) && is_last(snapshot, seen));
    let artifact = saved.and_then(|snapshot| Some((snapshot, snapshot.status.as_ref()?.artifact.as_ref()?)));
    let (warning, reason, message) = match artifact {
        Some((snapshot, artifact)) => {
            let named = meta::name(&snapshot.metadata);
            let mut message = format!("EtcdSnapshot {named}, revision {}", artifact.revision.unwrap_or_default());
            let open = first_step_at(seen).map(|since| open_connections(seen, since)).unwrap_or_default();
            if !open.is_empty() {
                message.push_str(&format!(
                    "; the Pods of {} were not ended before, and clients with an open connection to them may have written later",
                    open.join(", ")
                ));
            }
            (!open.is_empty(), "FinalSnapshotSaved", message)
        }
        None if seen.latches().formed.is_none() && !seen.members.iter().any(Member::joined) => return None,
        None => {
            let why = if facts.is_some_and(|facts| facts.terminating) {
                "the namespace is being deleted"
            } else if ending::final_snapshot(&seen.cluster).is_none() {
                "the annotation holdfast.dev/skip-final-snapshot is set"
            } else {
                "spec.finalSnapshot.onFailure is Proceed"
            };
            (true, "FinalSnapshotSkipped", format!("the cluster goes without its last snapshot: {why}"))
        }
    };
    Some(Note { warning, reason: reason.to_owned(), message })
}

/// Returns the wait of a cluster without its snapshot. `None`: `onFailure` is `Proceed`.
fn give_up(asked: &FinalSnapshot, why: &str) -> Option<Next> {
    holds(asked).then(|| Next::wait(Reason::FinalSnapshotHeld, format!("{why}. {REMEDY}"), POLL))
}

fn holds(asked: &FinalSnapshot) -> bool {
    asked.on_failure.unwrap_or_default() == OnFailure::Hold
}

fn wait(message: String) -> Next {
    Next::wait(Reason::SavingFinalSnapshot, message, RETRY)
}

/// Prepares the members for the snapshot. `Err`: the step or the wait before.
fn prepare(seen: &Observed, asked: &FinalSnapshot, now: Timestamp) -> Result<(), Next> {
    if meta::has_finalizer(&seen.cluster.metadata, meta::FOREGROUND) {
        let message = "the EtcdCluster was deleted with --cascade=foreground, so Kubernetes deletes the members' Pods and Secrets \
                       first, and no etcd runs that could be saved. The runbook FinalSnapshotHeld saves from a volume";
        return Err(Next::wait(Reason::FinalSnapshotHeld, message, POLL));
    }
    let since = first_step_at(seen).unwrap_or(now);
    lead_away::prepare(seen, (since, since + ENDS_CONNECTIONS), holds(asked), now)
}

/// Returns the members whose Pods are as old as the first step.
fn open_connections(seen: &Observed, since: Timestamp) -> Vec<&str> {
    seen.hosting().filter(|member| lead_away::is_open(member, since)).map(Member::name).collect()
}

/// When the operator began with the last snapshot.
fn first_step_at(seen: &Observed) -> Option<Timestamp> {
    seen.latches().final_snapshot_since?.parse().ok()
}

/// Whether a snapshot is younger than the deletion: an earlier one lacks later writes.
fn is_last(snapshot: &EtcdSnapshot, seen: &Observed) -> bool {
    let made = snapshot.metadata.creation_timestamp.as_ref();
    made.zip(seen.cluster.metadata.deletion_timestamp.as_ref()).is_some_and(|(made, deleted)| made.0 >= deleted.0)
}

/// Whether a snapshot is one of this cluster (I25).
fn is_of(snapshot: &EtcdSnapshot, cluster: &EtcdCluster) -> bool {
    let uid = snapshot.status.as_ref().and_then(|status| status.cluster_uid.as_deref());
    uid == Some(meta::uid(&cluster.metadata))
}

/// Returns the name of the last snapshot.
pub fn name_of(cluster: &EtcdCluster) -> String {
    name::final_snapshot(meta::name(&cluster.metadata), meta::uid(&cluster.metadata))
}

/// Builds the request. The snapshot has no owner, because it outlives the cluster, and the label of its cluster's UID, because a
/// later cluster of this name is not meant (I25).
fn request(cluster: &EtcdCluster, asked: &FinalSnapshot) -> Act {
    let mut snapshot = requested::snapshot(cluster, name_of(cluster), &asked.template);
    let uid = meta::uid(&cluster.metadata).to_owned();
    snapshot.metadata.labels.get_or_insert_default().insert(key::CLUSTER_UID.to_owned(), uid);
    Act::RequestSnapshot(Box::new(snapshot))
}
