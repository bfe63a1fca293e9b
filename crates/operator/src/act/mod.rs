//! The single writer: carries out one act, guarded by preconditions that hold at that moment, and decides nothing. Every act is
//! one call that changes one thing.
//!
//! | group | acts | verbs the operator needs |
//! |---|---|---|
//! | `certificates` | Secrets of certificates | `create`, `get`, `patch` |
//! | `create` | members, claims, Pods, Jobs, records of runs | `create`, `get` |
//! | `delete` | Pods, claims, members, disruption budgets, records of runs of which nothing is stored, Jobs whose result is recorded | `get`, `delete` |
//! | `patch` | latches on members, labels and annotations on Pods, finalizers of clusters, members and snapshots | `get`, `patch` |
//! | `membership` | learners, votes, leadership, removals, alarms and an empty entry in etcd | none |
//! | `ensure` | Services, budgets, `CronJob`s and the `ConfigMap` of the CA | `get`, `create`, `patch` |
//!
//! The latches of a cluster, of a snapshot and of a schedule are written with its status (`status`), under its resourceVersion.

mod certificates;
mod create;
mod delete;
mod ensure;
mod membership;
mod patch;
#[cfg(test)]
mod tests;

pub(super) use ensure::ensure;
use holdfast_api::restore::{Newest, Restoring};
use holdfast_api::schedule::PruneRun;
use holdfast_api::{
    ARTIFACT_FINALIZER, CLUSTER_FINALIZER, EtcdCluster, EtcdMember, EtcdSnapshot, MEMBER_FINALIZER, role,
};
use holdfast_plan::Act;
use holdfast_plan::cluster::{Alarm, AlarmKind};

use super::context::Context;
use super::error::Error;
use super::etcd::Address;

/// The object of the pass that carries out the act.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    /// Namespace of every object that the act may touch (I23).
    pub(super) namespace: String,
    /// Its UID.
    pub(super) uid: String,
}

/// Result of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// The operator carried the act out.
    Applied,
    /// An earlier pass had carried the act out.
    Already,
    /// etcd is not ready for the act; the text is the reason.
    NotYet(String),
}

/// Carries out one act. `leader` receives the changes of etcd's membership.
pub(super) async fn perform(ctx: &Context, actor: &Actor, leader: Option<&Address>, act: &Act) -> Result<Done, Error> {
    match act {
        Act::Latch(_) | Act::LatchPrune(_) | Act::LatchRemoval(_) => {
            Err(Error::Internal("latches are written with the status".to_owned()))
        }
        Act::HoldCluster { cluster } => patch::hold::<EtcdCluster>(ctx, actor, cluster, CLUSTER_FINALIZER).await,
        Act::CopyRetention { member, retention } => {
            patch::latch(ctx, actor, member, "storage", serde_json::json!({"retention": retention})).await
        }
        Act::ReleaseCluster { cluster } => patch::release::<EtcdCluster>(ctx, actor, cluster, CLUSTER_FINALIZER).await,
        Act::CreateMember(member) => create::owned(ctx, actor, member.as_ref()).await,
        Act::CreatePod(pod) => create::owned(ctx, actor, pod.as_ref()).await,
        Act::StartJob(job) => create::owned(ctx, actor, job.as_ref()).await,
        Act::RecordRun(record) => create::record(ctx, actor, record).await,
        Act::DeleteRecord { snapshot, removed, why: _ } => {
            delete::record(ctx, actor, snapshot, removed.as_deref()).await
        }
        Act::CreateClaim(claim) => create::claim(ctx, actor, claim).await,
        Act::DeletePod { pod, why: _ } => delete::pod(ctx, actor, pod).await,
        Act::DeleteClaim { claim, why: _ } => delete::claim(ctx, actor, claim).await,
        Act::DeleteMember { member, why: _ } => delete::member(ctx, actor, member).await,
        Act::SetInitialCluster { member, initial_cluster } => {
            patch::latch(ctx, actor, member, "initialCluster", initial_cluster).await
        }
        Act::LatchJoined { member, joined } => patch::latch(ctx, actor, member, "joined", joined).await,
        Act::ForbidEmptyStart { pod, joined } => patch::forbid_empty_start(ctx, actor, pod, joined).await,
        Act::AdmitClients { pod } => patch::set_role(ctx, actor, pod, role::VOTER).await,
        Act::Relabel { pod, labels } => patch::relabel(ctx, actor, pod, labels).await,
        Act::LatchLeaving { member, leaving } => patch::latch(ctx, actor, member, "leaving", leaving).await,
        Act::DismissClients { pod } => patch::set_role(ctx, actor, pod, role::LEARNER).await,
        Act::LatchRemoved { member, removed } => patch::latch(ctx, actor, member, "removed", removed).await,
        Act::Park { member, parked } => patch::latch(ctx, actor, member, "parked", parked).await,
        Act::Unpark { member } => patch::latch(ctx, actor, member, "parked", ()).await,
        Act::MoveLeader { name: _, from, to, cluster_id } => {
            membership::move_leader(ctx, leader, (*from, *to), *cluster_id).await
        }
        Act::RemoveMember { name: _, member_id, learner, cluster_id } => {
            membership::remove(ctx, leader, (*member_id, *learner), *cluster_id).await
        }
        Act::Issue(issue) => certificates::issue(ctx, actor, issue).await,
        Act::AnnounceCertificates { member, digest, trusts } => {
            patch::latch(ctx, actor, member, "tls", serde_json::json!({"staged": digest, "trusts": trusts})).await
        }
        Act::RefreshCertificates { pod, digest } => patch::announce(ctx, actor, pod, digest).await,
        Act::LatchStart { member, count } => patch::latch(ctx, actor, member, "startCount", count).await,
        Act::MarkStarted { pod, count, joined } => patch::mark_started(ctx, actor, pod, *count, joined).await,
        Act::ReleaseMember { member } => patch::release::<EtcdMember>(ctx, actor, member, MEMBER_FINALIZER).await,
        Act::DeleteJob { job, why: _ } => delete::job(ctx, actor, job).await,
        Act::KeepArtifact { snapshot } => patch::hold::<EtcdSnapshot>(ctx, actor, snapshot, ARTIFACT_FINALIZER).await,
        Act::ReleaseArtifact { snapshot } => {
            patch::release::<EtcdSnapshot>(ctx, actor, snapshot, ARTIFACT_FINALIZER).await
        }
        Act::AddLearner { name: _, peer_url, cluster_id } => {
            membership::add_learner(ctx, leader, peer_url, *cluster_id).await
        }
        Act::Promote { name: _, member_id, cluster_id } => {
            membership::promote(ctx, leader, *member_id, *cluster_id).await
        }
        Act::Disarm { alarm, cluster_id } => membership::disarm(ctx, leader, alarm, *cluster_id).await,
        Act::CommitEntry { cluster_id } => membership::commit_entry(ctx, leader, *cluster_id).await,
    }
}

/// Name of the act, for metrics and logs.
pub(super) const fn label(act: &Act) -> &'static str {
    match act {
        Act::Latch(_) => "Latch",
        Act::HoldCluster { .. } => "HoldCluster",
        Act::CopyRetention { .. } => "CopyRetention",
        Act::ReleaseCluster { .. } => "ReleaseCluster",
        Act::CreateMember(_) => "CreateMember",
        Act::AddLearner { .. } => "AddLearner",
        Act::SetInitialCluster { .. } => "SetInitialCluster",
        Act::LatchJoined { .. } => "LatchJoined",
        Act::ForbidEmptyStart { .. } => "ForbidEmptyStart",
        Act::Promote { .. } => "Promote",
        Act::Disarm { .. } => "Disarm",
        Act::CommitEntry { .. } => "CommitEntry",
        Act::AdmitClients { .. } => "AdmitClients",
        Act::Relabel { .. } => "Relabel",
        Act::LatchLeaving { .. } => "LatchLeaving",
        Act::DismissClients { .. } => "DismissClients",
        Act::MoveLeader { .. } => "MoveLeader",
        Act::RemoveMember { .. } => "RemoveMember",
        Act::LatchRemoved { .. } => "LatchRemoved",
        Act::Park { .. } => "Park",
        Act::Unpark { .. } => "Unpark",
        Act::Issue(_) => "Issue",
        Act::AnnounceCertificates { .. } => "AnnounceCertificates",
        Act::RefreshCertificates { .. } => "RefreshCertificates",
        Act::CreateClaim(_) => "CreateClaim",
        Act::CreatePod(_) => "CreatePod",
        Act::DeletePod { .. } => "DeletePod",
        Act::DeleteClaim { .. } => "DeleteClaim",
        Act::DeleteMember { .. } => "DeleteMember",
        Act::LatchStart { .. } => "LatchStart",
        Act::MarkStarted { .. } => "MarkStarted",
        Act::ReleaseMember { .. } => "ReleaseMember",
        Act::StartJob(_) => "StartJob",
        Act::RecordRun(_) => "RecordRun",
        Act::LatchPrune(_) => "LatchPrune",
        Act::KeepArtifact { .. } => "KeepArtifact",
        Act::LatchRemoval(_) => "LatchRemoval",
        Act::ReleaseArtifact { .. } => "ReleaseArtifact",
        Act::DeleteRecord { .. } => "DeleteRecord",
        Act::DeleteJob { .. } => "DeleteJob",
    }
}

/// The reason of the act's Event, in a user's words; `None` for steps that only the log shows.
pub(super) fn event_reason(act: &Act) -> Option<&'static str> {
    match act {
        Act::Latch(latches) if latches.orphan.is_some() => None,
        Act::Latch(latches) if latches.formed.is_some() && latches.pending_member.is_none() => Some("Formed"),
        Act::Latch(latches) if latches.restoring.is_some() => Some("RestoreStarted"),
        Act::AddLearner { .. } => Some("LearnerAdded"),
        Act::Promote { .. } => Some("LearnerPromoted"),
        Act::Disarm { .. } => Some("AlarmCleared"),
        Act::LatchLeaving { .. } => Some("MemberLeaving"),
        Act::MoveLeader { .. } => Some("LeaderMoved"),
        Act::RemoveMember { .. } => Some("MemberRemoved"),
        Act::CreateClaim(_) => Some("ClaimCreated"),
        Act::CreatePod(_) => Some("PodCreated"),
        Act::DeletePod { .. } => Some("PodDeleted"),
        Act::DeleteClaim { .. } => Some("ClaimDeleted"),
        Act::DeleteMember { .. } => Some("MemberDeleted"),
        Act::StartJob(_) => Some("JobCreated"),
        Act::RecordRun(_) => Some("RunRecorded"),
        Act::DeleteRecord { .. } => Some("RecordDeleted"),
        Act::DeleteJob { .. } => Some("JobDeleted"),
        Act::Issue(issue) if issue.replaces.is_some() => Some("CertificatesRenewed"),
        Act::Latch(_)
        | Act::LatchPrune(_)
        | Act::KeepArtifact { .. }
        | Act::LatchRemoval(_)
        | Act::ReleaseArtifact { .. }
        | Act::HoldCluster { .. }
        | Act::CopyRetention { .. }
        | Act::ReleaseCluster { .. }
        | Act::CreateMember(_)
        | Act::SetInitialCluster { .. }
        | Act::LatchJoined { .. }
        | Act::ForbidEmptyStart { .. }
        | Act::CommitEntry { .. }
        | Act::AdmitClients { .. }
        | Act::DismissClients { .. }
        | Act::LatchRemoved { .. }
        | Act::Park { .. }
        | Act::Unpark { .. }
        | Act::Issue(_)
        | Act::AnnounceCertificates { .. }
        | Act::RefreshCertificates { .. }
        | Act::Relabel { .. }
        | Act::LatchStart { .. }
        | Act::MarkStarted { .. }
        | Act::ReleaseMember { .. } => None,
    }
}

/// The name of the act's object, and one sentence about the act.
pub(super) fn describe(act: &Act) -> (String, String) {
    let named = |name: &Option<String>| name.clone().unwrap_or_default();
    match act {
        Act::Latch(latches) => (String::new(), latched(latches)),
        Act::CreateMember(it) => (named(&it.metadata.name), "created the member".to_owned()),
        Act::AddLearner { name, peer_url, .. } => (name.clone(), format!("added {peer_url} to etcd as a learner")),
        Act::SetInitialCluster { member, initial_cluster } => {
            (member.name.clone(), format!("may start with the member list {initial_cluster}"))
        }
        Act::LatchJoined { member, joined } => {
            (member.name.clone(), format!("joined etcd cluster {} as member {}", joined.cluster_id, joined.member_id))
        }
        Act::ForbidEmptyStart { pod, .. } => {
            (pod.name.clone(), "will not start on an empty volume any more".to_owned())
        }
        Act::Promote { name, member_id, .. } => (name.clone(), format!("member {member_id:x} has a vote now")),
        Act::Disarm { alarm, .. } => (String::new(), cleared(alarm)),
        Act::CommitEntry { .. } => {
            (String::new(), "committed an entry that changes nothing: a member that runs gives no answer".to_owned())
        }
        Act::LatchLeaving { member, .. } => (member.name.clone(), "leaves the cluster".to_owned()),
        Act::DismissClients { pod } => (pod.name.clone(), "serves no clients any more".to_owned()),
        Act::MoveLeader { name, to, .. } => (name.clone(), format!("hands the leadership to member {to:x}")),
        Act::RemoveMember { name, member_id, .. } => {
            (name.clone(), format!("etcd removed member {member_id:x} from its list"))
        }
        Act::LatchRemoved { member, .. } => (member.name.clone(), "etcd does not list the member any more".to_owned()),
        Act::Park { member, .. } => (member.name.clone(), "is parked: its Pod ends, its claim stays".to_owned()),
        Act::HoldCluster { cluster } => (cluster.name.clone(), "has the finalizer".to_owned()),
        Act::CopyRetention { member, retention } => {
            (member.name.clone(), format!("has spec.storage.retention {retention:?}"))
        }
        Act::ReleaseCluster { cluster } => {
            (cluster.name.clone(), "goes: every member has spec.storage.retention".to_owned())
        }
        Act::Unpark { member } => (member.name.clone(), "is back at the index at which it was parked".to_owned()),
        Act::Issue(it) => {
            let verb = if it.replaces.is_some() { "renewed" } else { "issued" };
            (named(&it.metadata.name), format!("{verb} the certificates in this Secret"))
        }
        Act::AnnounceCertificates { member, .. } => (member.name.clone(), "has new certificates".to_owned()),
        Act::RefreshCertificates { pod, .. } => (pod.name.clone(), "kubelet refreshes the certificates".to_owned()),
        Act::AdmitClients { pod } => (pod.name.clone(), "serves clients from now on".to_owned()),
        Act::Relabel { pod, labels } => {
            let keys: Vec<&str> = labels.keys().map(String::as_str).collect();
            (pod.name.clone(), format!("put back what selects it: {}", keys.join(", ")))
        }
        Act::CreateClaim(it) => (named(&it.metadata.name), "created the claim".to_owned()),
        Act::CreatePod(it) => (named(&it.metadata.name), "created the Pod".to_owned()),
        Act::DeletePod { pod, why } => (pod.name.clone(), format!("deleted the Pod: {why}")),
        Act::DeleteClaim { claim, why } => (claim.name.clone(), format!("deleted the claim and its data: {why}")),
        Act::DeleteMember { member, why } => (member.name.clone(), format!("deleted the member: {why}")),
        Act::LatchStart { member, count } => (member.name.clone(), format!("serves from its Pod number {count}")),
        Act::MarkStarted { pod, count, .. } => (pod.name.clone(), format!("knows that Pod number {count} has served")),
        Act::ReleaseMember { member } => (member.name.clone(), "all its parts are gone".to_owned()),
        Act::StartJob(it) => (named(&it.metadata.name), "created the Job".to_owned()),
        Act::RecordRun(it) => (named(&it.metadata.name), "recorded the run as an EtcdSnapshot".to_owned()),
        Act::LatchPrune(run) => (run.job.clone(), latched_prune(run)),
        Act::DeleteJob { job, why } => (job.name.clone(), format!("deleted the Job: {why}")),
        Act::DeleteRecord { snapshot, why, .. } => (snapshot.name.clone(), format!("deleted the EtcdSnapshot: {why}")),
        Act::KeepArtifact { snapshot } => {
            (snapshot.name.clone(), "takes its stored snapshot along when deleted".to_owned())
        }
        Act::LatchRemoval(removal) => (removal.job.clone(), "may remove the stored snapshot".to_owned()),
        Act::ReleaseArtifact { snapshot } => (snapshot.name.clone(), "holds nothing in the store any more".to_owned()),
    }
}

/// The progress of the latch that a Job needs before it removes snapshots.
fn latched_prune(run: &PruneRun) -> String {
    match &run.protects {
        None => format!("may remove snapshots of {}", run.lineage),
        Some(protects) => {
            format!("removes snapshots of {} and protects {} that are restored", run.lineage, protects.len())
        }
    }
}

/// The cleared alarm, and the reason why the alarm was obsolete.
fn cleared(alarm: &Alarm) -> String {
    let (kind, member) = (alarm.kind.as_str(), alarm.member_id);
    let why = match alarm.kind {
        AlarmKind::NoSpace => "which is no member: all have room",
        AlarmKind::Corrupt => {
            "which is no member: it came along with restored data, or was a replaced member's. If the restored data were \
             a copy of this very member's file, restore from another one's"
        }
    };
    format!("cleared the {kind} alarm of {member:x}, {why}")
}

/// The snapshot's rank as the newest, the data that may be missing in it, and newer snapshots that cannot be restored.
fn newest(restoring: &Restoring) -> String {
    let Some(Newest { taken_at, passed_over, without_quorum, .. }) = &restoring.newest else { return String::new() };
    let alone = if *without_quorum { " without a quorum: acknowledged writes may be missing" } else { "" };
    let newer = passed_over.join("; ");
    let newer = if newer.is_empty() { newer } else { format!(". Newer, and cannot be restored: {newer}") };
    format!(", the newest, taken at {taken_at}{alone}{newer}")
}

fn latched(latches: &holdfast_api::cluster::Latches) -> String {
    if let Some(id) = &latches.orphan {
        return format!("etcd lists member {id}, which has neither EtcdMember nor Pod");
    }
    if let Some(formed) = &latches.formed {
        return match &latches.pending_member {
            Some(member) => format!("the next member will be {member}"),
            None => format!("formed as etcd cluster {}", formed.cluster_id),
        };
    }
    match (&latches.pending_member, &latches.restoring) {
        (_, Some(restoring)) => format!("restores from {}{}", restoring.source.key, newest(restoring)),
        (Some(member), None) => format!("the first member will be {member}"),
        (None, None) => "nothing is pending".to_owned(),
    }
}
