//! The single writer: carries out one act, guarded by preconditions that hold at that moment, and decides nothing. Every act is
//! one call that changes one thing.
//!
//! | group | acts | verbs the operator needs |
//! |---|---|---|
//! | `certificates` | Secrets of certificates | `create`, `get`, `patch` |
//! | `create` | members, claims, Pods, Jobs, records of runs | `create`, `get` |
//! | `delete` | Pods (also by eviction), claims, members, disruption budgets, records of runs of which nothing is stored, Jobs whose result is recorded | `get`, `delete` |
//! | `patch` | latches on members, labels and annotations on Pods, requests of claims, finalizers of clusters, members and snapshots | `get`, `patch` |
//! | `membership` | learners, votes, leadership, removals, alarms and an empty entry in etcd | none |
//! | `ensure` | Services, budgets, `CronJob`s, Deployments and the `ConfigMap` of the CA | `get`, `create`, `patch` |
//!
//! The latches of a cluster, of a snapshot and of a schedule are written with its status (`status`), under its resourceVersion.

mod certificates;
mod create;
mod delete;
mod describe;
mod ensure;
mod membership;
mod patch;
#[cfg(test)]
mod tests;
mod users;

pub(super) use describe::{Description, describe};
pub(super) use ensure::ensure;
use holdfast_api::{
    ARTIFACT_FINALIZER, CLUSTER_FINALIZER, EtcdCluster, EtcdMember, EtcdSnapshot, EtcdUser, MEMBER_FINALIZER,
    USER_FINALIZER,
};
use holdfast_kube::kinds::Object;
use holdfast_kube::requests;
use holdfast_plan::Act;

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
    /// The API server does not allow the act at this time, for this reason.
    Held(String),
}

/// Reads an object from the API server, right before a write. `None`: absent.
async fn read<K: Object>(ctx: &Context, actor: &Actor, name: &str) -> Result<Option<K>, Error> {
    let found = requests::get_opt(&ctx.write.0, &actor.namespace, name);
    ctx.reading(|| format!("get {} {name}", K::NAME), found).await
}

/// Carries out one act. `server` receives the changes of etcd.
pub(super) async fn perform(ctx: &Context, actor: &Actor, server: Option<&Address>, act: &Act) -> Result<Done, Error> {
    match act {
        Act::Latch(_) | Act::LatchPrune(_) | Act::LatchRemoval(_) => {
            Err(Error::Internal("latches are written with the status".to_owned()))
        }
        Act::HoldCluster { cluster } => patch::hold::<EtcdCluster>(ctx, actor, cluster, CLUSTER_FINALIZER).await,
        Act::ReleaseCluster { cluster } => patch::release::<EtcdCluster>(ctx, actor, cluster, CLUSTER_FINALIZER).await,
        Act::CreateMember(member) => create::owned(ctx, actor, member.as_ref()).await,
        Act::CreatePod(pod) => create::owned(ctx, actor, pod.as_ref()).await,
        Act::StartJob(job) => create::owned(ctx, actor, job.as_ref()).await,
        Act::StartRun(job) => create::run(ctx, actor, job).await,
        Act::RequestSnapshot(snapshot) => create::snapshot(ctx, actor, snapshot).await,
        Act::RecordRun(record) => create::record(ctx, actor, record).await,
        Act::DeleteRecord { snapshot, removed, why: _ } => {
            delete::record(ctx, actor, snapshot, removed.as_deref()).await
        }
        Act::CreateClaim(claim) => create::claim(ctx, actor, claim).await,
        Act::DeletePod { pod, why: _ } => delete::pod(ctx, actor, pod).await,
        Act::DeleteClaim { claim, why: _ } => delete::claim(ctx, actor, claim).await,
        Act::DeleteMember { member, why: _ } => delete::member(ctx, actor, member).await,
        Act::MoveLeader { name: _, from, to, cluster_id } => {
            membership::move_leader(ctx, server, (*from, *to), *cluster_id).await
        }
        Act::Defragment { pod, name: _, member_id, cluster_id } => {
            membership::defragment(ctx, actor, server, pod, (*member_id, *cluster_id)).await
        }
        Act::RemoveMember { name: _, member_id, learner, cluster_id } => {
            membership::remove(ctx, server, (*member_id, *learner), *cluster_id).await
        }
        Act::Issue(issue) => certificates::issue(ctx, actor, issue).await,
        Act::ReleaseMember { member } => patch::release::<EtcdMember>(ctx, actor, member, MEMBER_FINALIZER).await,
        Act::DeleteJob { job, why: _ } => delete::job(ctx, actor, job).await,
        Act::DeleteDeployment { deployment, why: _ } => delete::deployment(ctx, actor, deployment).await,
        Act::KeepArtifact { snapshot } => patch::hold::<EtcdSnapshot>(ctx, actor, snapshot, ARTIFACT_FINALIZER).await,
        Act::ReleaseArtifact { snapshot } => {
            patch::release::<EtcdSnapshot>(ctx, actor, snapshot, ARTIFACT_FINALIZER).await
        }
        Act::SetTemplate { member, template, served } => {
            patch::set_template(ctx, actor, member, template, served.as_deref()).await
        }
        Act::ResizePod { pod, resources } => patch::resize(ctx, actor, pod, resources).await,
        Act::GrowClaim { claim, size, at } => patch::grow_claim(ctx, actor, claim, size, at).await,
        Act::EvictPod { pod, why: _ } => delete::evict(ctx, actor, pod).await,
        Act::AddLearner { name: _, peer_url, cluster_id } => {
            membership::add_learner(ctx, server, peer_url, *cluster_id).await
        }
        Act::SetPeerUrl { name: _, member_id, peer_url, cluster_id } => {
            membership::set_peer_url(ctx, server, (*member_id, peer_url), *cluster_id).await
        }
        Act::Promote { name: _, member_id, cluster_id } => {
            membership::promote(ctx, server, *member_id, *cluster_id).await
        }
        Act::Disarm { alarm, cluster_id } => membership::disarm(ctx, server, alarm, *cluster_id).await,
        Act::HoldUser { user } => patch::hold::<EtcdUser>(ctx, actor, user, USER_FINALIZER).await,
        Act::ReleaseUser { user } => patch::release::<EtcdUser>(ctx, actor, user, USER_FINALIZER).await,
        Act::PutUser { user, change, cluster_id } => users::put(ctx, actor, server, user, change, *cluster_id).await,
        Act::DropUser { user, name, cluster_id } => {
            users::drop_user(ctx, actor, server, (user, name), *cluster_id).await
        }
        Act::SetAuth { enabled, cluster_id } => membership::set_auth(ctx, server, *enabled, *cluster_id).await,
        Act::CommitEntry { cluster_id } => membership::commit_entry(ctx, server, *cluster_id).await,
        Act::FillLog { entries, cluster_id } => membership::fill_log(ctx, server, *entries, *cluster_id).await,
        Act::CopyRetention { .. }
        | Act::SetInitialCluster { .. }
        | Act::LatchJoined { .. }
        | Act::ForbidEmptyStart { .. }
        | Act::AdmitClients { .. }
        | Act::Relabel { .. }
        | Act::LatchLeaving { .. }
        | Act::DismissClients { .. }
        | Act::LatchRemoved { .. }
        | Act::Park { .. }
        | Act::Unpark { .. }
        | Act::SetAside { .. }
        | Act::TakeBack { .. }
        | Act::EndLeaderRequest { .. }
        | Act::ClaimUser { .. }
        | Act::AnnounceCertificates { .. }
        | Act::RefreshCertificates { .. }
        | Act::LatchStart { .. }
        | Act::MarkStarted { .. }
        | Act::BeginResize { .. }
        | Act::EndResize { .. }
        | Act::SetPodMetadata { .. }
        | Act::CopyPodMetadata { .. }
        | Act::SetVolumeSize { .. }
        | Act::RefreshVolume { .. } => patch::send(ctx, actor, act).await,
    }
}
