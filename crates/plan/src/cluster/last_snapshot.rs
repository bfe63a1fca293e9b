//! The last snapshot of a cluster that is being deleted: `spec.finalSnapshot`.
//!
//! Decides the steps between the deletion and the release of the cluster: lead new clients away, end each Pod once, because a client
//! keeps an open connection to a Pod that has left the Service, request the snapshot, wait until it is complete. The agent reads
//! linearizably before it saves, so the snapshot has every write that a client saw acknowledged. Without the snapshot
//! `spec.finalSnapshot.onFailure` decides: the cluster stays, with its members and volumes (I4), or goes. A parked cluster starts
//! for its snapshot, without clients. `snapshot/` decides the save, `member/` keeps the Pods meanwhile.

use holdfast_api::condition::Reason;
use holdfast_api::final_snapshot::{FinalSnapshot, OnFailure};
use holdfast_api::name::{self, LocalRef};
use holdfast_api::snapshot::{DeletionPolicy, Phase};
use holdfast_api::{EtcdCluster, EtcdSnapshot, EtcdSnapshotSpec, key, role};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::health::is_level;
use super::intervals::POLL;
use super::{Member, Membership, Observed, identity, park};
use crate::{Act, Next, Note, Seen, Target, Wake, ending, meta, pods};

/// Interval while a Pod comes back or the snapshot is saved: nothing reports a member's etcd.
const RETRY: Wake = Wake::AfterMillis(1_000);

/// How long after the deletion a Pod is still ended for its connections. Later the snapshot counts for more.
const ENDS_CONNECTIONS: SignedDuration = SignedDuration::from_mins(3);

/// Remedy of each message about a cluster that stays.
const REMEDY: &str = "The members and their volumes stay. To let the cluster go without the snapshot, annotate the EtcdCluster with \
                      holdfast.dev/skip-final-snapshot=true";

/// Returns the next step before a deleted cluster may go; `None`: no snapshot keeps the cluster.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    let asked = ending::final_snapshot(&seen.cluster)?;
    if seen.latches().formed.is_none() {
        // A cluster that never formed has no data. A lost status is not the proof of that (I4).
        let lost = "status.latches.formed is lost, and a member has served, so Holdfast saves no snapshot";
        return seen.members.iter().any(Member::joined).then(|| give_up(asked, lost)).flatten();
    }
    let Some(facts) = &seen.ending else {
        return Some(Next::wait(Reason::SavingFinalSnapshot, "the EtcdSnapshots are not read yet", RETRY));
    };
    if facts.terminating {
        return None;
    }
    let deadline = SignedDuration::from_secs(asked.deadline_seconds().into());
    let over = deleted_at(seen).is_some_and(|at| now >= at + deadline);
    let wait = |message: String| {
        if over { give_up(asked, &message) } else { Some(Next::wait(Reason::SavingFinalSnapshot, message, RETRY)) }
    };
    let Some(snapshot) = &facts.snapshot else {
        return match prepare(seen, now) {
            Ok(()) => Some(Next::act(request(&seen.cluster, asked))),
            Err(Next::Wait(waiting, _)) if waiting.reason.needs_a_person() => give_up(asked, &waiting.message),
            Err(Next::Wait(waiting, _)) => wait(waiting.message),
            Err(act) => Some(act),
        };
    };
    let named = meta::name(&snapshot.metadata);
    match snapshot.status.as_ref().map_or(Phase::Pending, |status| status.phase) {
        Phase::Complete if is_of(snapshot, &seen.cluster) => None,
        Phase::Complete => {
            give_up(asked, &format!("the EtcdSnapshot {named} is of another cluster: delete the EtcdSnapshot"))
        }
        Phase::Failed => give_up(
            asked,
            &format!(
                "the EtcdSnapshot {named} has failed: correct the cause that its conditions name, and delete it; Holdfast requests \
                 another"
            ),
        ),
        // The Job has a deadline of its own.
        Phase::Running => {
            Some(Next::wait(Reason::SavingFinalSnapshot, format!("the EtcdSnapshot {named} is being saved"), RETRY))
        }
        Phase::Pending => wait(format!("the EtcdSnapshot {named} has not started; its conditions name the cause")),
    }
}

/// Returns the Event about the end of a cluster with `spec.finalSnapshot`.
pub(super) fn note(seen: &Observed) -> Option<Note> {
    seen.cluster.spec.final_snapshot.as_ref()?;
    let facts = seen.ending.as_ref();
    let saved = facts.and_then(|facts| facts.snapshot.as_ref()).filter(|snapshot| is_of(snapshot, &seen.cluster));
    let artifact = saved.and_then(|snapshot| Some((snapshot, snapshot.status.as_ref()?.artifact.as_ref()?)));
    let (warning, reason, message) = match artifact {
        Some((snapshot, artifact)) => {
            let named = meta::name(&snapshot.metadata);
            (
                false,
                "FinalSnapshotSaved",
                format!("EtcdSnapshot {named}, revision {}", artifact.revision.unwrap_or_default()),
            )
        }
        None if seen.latches().formed.is_none() => return None,
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

/// The wait of a cluster whose snapshot failed; `None` where the cluster goes all the same.
fn give_up(asked: &FinalSnapshot, why: &str) -> Option<Next> {
    let holds = asked.on_failure.unwrap_or_default() == OnFailure::Hold;
    holds.then(|| Next::wait(Reason::FinalSnapshotHeld, format!("{why}. {REMEDY}"), POLL))
}

/// Prepares the members for the snapshot. `Err`: the step or the wait before.
fn prepare(seen: &Observed, now: Timestamp) -> Result<(), Next> {
    let wait = |message: String| Next::wait(Reason::SavingFinalSnapshot, message, RETRY);
    if meta::has_finalizer(&seen.cluster.metadata, meta::FOREGROUND) {
        let message = "the EtcdCluster was deleted with --cascade=foreground, so Kubernetes deletes the members' Pods and Secrets \
                       first, and no etcd runs that could be saved. The runbook FinalSnapshotHeld saves from a volume";
        return Err(Next::wait(Reason::FinalSnapshotHeld, message, POLL));
    }
    if let Some(stop) = identity::another_etcd(seen) {
        return Err(stop);
    }
    let etcd = match &seen.etcd {
        Seen::Known(etcd) => etcd,
        Seen::Unknown(why) => {
            return Err(match park::silent(seen, why, now) {
                Next::Wait(waiting, _) if park::wakes(seen) => {
                    wait(format!("the parked cluster starts for its snapshot: {}", waiting.message))
                }
                Next::Wait(waiting, _) => wait(waiting.message),
                other => other,
            });
        }
    };
    if let Some(lags) = park::lag(seen, etcd, now) {
        return Err(lags);
    }
    let admitted = |pod: &&Pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
    if let Some(pod) = seen.members.iter().filter_map(Member::live_pod).find(admitted) {
        return Err(Next::act(Act::DismissClients { pod: Target::from(&pod.metadata) }));
    }
    end_connections(seen, etcd, now)
}

/// Ends each Pod that is older than the deletion, one at a time while every voter follows the leader, the leader last. A voter that
/// does not come back leaves the quorum of the others for the snapshot.
fn end_connections(seen: &Observed, etcd: &Membership, now: Timestamp) -> Result<(), Next> {
    let Some(deleted) = deleted_at(seen).filter(|at| now < *at + ENDS_CONNECTIONS) else { return Ok(()) };
    let voters = || etcd.members.iter().filter(|l| !l.learner);
    let lags = voters().find_map(|l| {
        let member = seen.standing_for(l)?;
        (!is_level(seen, etcd, l, member)).then_some(member)
    });
    if let Some(member) = lags {
        // A voter that was down before is not waited for.
        let returns = pods::starting(member.live_pod(), now);
        let message = || format!("{} comes back without clients", member.name());
        return if returns { Err(Next::wait(Reason::SavingFinalSnapshot, message(), RETRY)) } else { Ok(()) };
    }
    let due = |member: &&Member| {
        let old = |pod| made_by(pod, deleted) && !pods::may_start_empty(pod);
        // The data of a member in memory end with its Pod. A parked member starts without clients.
        let serves = member.joined() && member.object.spec.parked.is_none();
        serves && !member.object.spec.storage.in_memory() && member.live_pod().is_some_and(old)
    };
    let leads = |member: &&Member| seen.listed(etcd, member.name()).is_some_and(|l| Some(l.id) == etcd.leader);
    let Some(pod) = seen.staying().filter(due).min_by_key(leads).and_then(Member::live_pod) else { return Ok(()) };
    let why = "open connections end before the last snapshot".to_owned();
    Err(Next::act(Act::DeletePod { pod: Target::from(&pod.metadata), why }))
}

/// Whether a Pod was created by this time.
fn made_by(pod: &Pod, at: Timestamp) -> bool {
    pod.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 <= at)
}

fn deleted_at(seen: &Observed) -> Option<Timestamp> {
    seen.cluster.metadata.deletion_timestamp.as_ref().map(|at| at.0)
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

/// Builds the request. The snapshot has no owner: it outlives the cluster.
fn request(cluster: &EtcdCluster, asked: &FinalSnapshot) -> Act {
    let named = meta::name(&cluster.metadata);
    let labels = [(key::MANAGED_BY, "holdfast".to_owned()), (key::CLUSTER, name::label_value(named))];
    Act::RequestSnapshot(Box::new(EtcdSnapshot {
        metadata: ObjectMeta {
            name: Some(name_of(cluster)),
            namespace: cluster.metadata.namespace.clone(),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
            ..ObjectMeta::default()
        },
        spec: EtcdSnapshotSpec {
            cluster_ref: Some(LocalRef { name: named.to_owned() }),
            deletion_policy: DeletionPolicy::Retain,
            template: asked.template.clone(),
            ..EtcdSnapshotSpec::default()
        },
        status: None,
    }))
}
