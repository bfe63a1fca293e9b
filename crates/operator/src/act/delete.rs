//! Deletes an object, gracefully: a live read first, then a DELETE with the UID and the resourceVersion of that read (I12).
//! An absent object, or another object of the name, stays untouched.

use holdfast_api::snapshot::{DeletionPolicy, Phase};
use holdfast_api::{EtcdMember, EtcdSnapshot, FIELD_MANAGER, key};
use holdfast_kube::requests;
use holdfast_plan::Target;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{DeleteParams, Preconditions};
use kube::core::{Selector, SelectorExt, Status};

use super::create::Written;
use super::{Actor, Done, read};
use crate::context::Context;
use crate::error::{Class, Error};
use crate::observe::owned_by;
use crate::reader::{Only, Reader, View};

/// Deletes a Pod of the actor, or of one of its members.
pub(super) async fn pod(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    delete::<Pod>(ctx, actor, target, |pod| owned_by(pod, &actor.uid) || has(pod, key::CLUSTER_UID, &actor.uid)).await
}

/// Evicts a Pod of one of the actor's members. A disruption budget counts a Pod some moments after the Pod is ready, so the next pass
/// asks again. A user's budget may never allow an eviction, and then the answer becomes a condition.
pub(super) async fn evict(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    let Some(there) = read::<Pod>(ctx, actor, &target.name).await? else { return Ok(Done::Already) };
    if there.uid().as_ref() != Some(&target.uid) || there.metadata.deletion_timestamp.is_some() {
        return Ok(Done::Already);
    }
    if !has(&there, key::CLUSTER_UID, &actor.uid) {
        return Err(Error::NameConflict(format!(
            "Pod {} belongs to no member of this EtcdCluster and is not evicted",
            target.name
        )));
    }
    let evicted = requests::evict(&ctx.write.0, &actor.namespace, &target.name, &target.uid, &target.resource_version);
    match ctx.writing("Pod", "evict", &target.name, evicted).await {
        Ok(()) => {
            // The answer does not show the Pod, and the next pass waits for the cache.
            match read::<Pod>(ctx, actor, &target.name).await? {
                Some(going) => ctx.own.note_changed(&going),
                None => ctx.own.note_gone::<Pod>(&actor.namespace, &target.name, &target.uid),
            }
            Ok(Done::Applied)
        }
        Err(Error::Kube { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if is_of_a_budget(status)) =>
        {
            let budgets = budgets(ctx, actor, &there).await.unwrap_or_default().join(", ");
            Ok(Done::Held(format!(
                "a disruption budget allows no eviction of Pod {} (PodDisruptionBudget {budgets}; kubectl get pdb). The roll continues \
                 when every budget allows the eviction",
                target.name
            )))
        }
        // The answer has no reason, and names no budget (Kubernetes: registry/core/pod/storage/eviction.go).
        Err(error) if error.class() == Class::Unavailable => match budgets(ctx, actor, &there).await {
            Ok(several) if several.len() > 1 => Ok(Done::Held(format!(
                "Kubernetes evicts no Pod that several disruption budgets select, and Pod {} has {}: PodDisruptionBudget {}. Delete \
                 all but one, or narrow their selectors",
                target.name,
                several.len(),
                several.join(", PodDisruptionBudget ")
            ))),
            Ok(_) | Err(_) => Err(error),
        },
        Err(Error::Kube { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.is_not_found()) => {
            Ok(Done::Already)
        }
        Err(error) => Err(error),
    }
}

/// Names of the disruption budgets that select a Pod.
async fn budgets(ctx: &Context, actor: &Actor, pod: &Pod) -> Result<Vec<String>, Error> {
    let reader = Reader { ctx, namespace: &actor.namespace, view: View::Live };
    let labels = pod.labels();
    let selects = |budget: &PodDisruptionBudget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        selector.and_then(|selector| Selector::try_from(selector).ok()).is_some_and(|selector| selector.matches(labels))
    };
    let all = reader.list::<PodDisruptionBudget>(Only::Everything, selects).await?;
    Ok(all.iter().map(ResourceExt::name_any).collect())
}

/// Whether an eviction was refused by a disruption budget. An API server under load answers with the same code.
fn is_of_a_budget(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 429 && causes.into_iter().any(|cause| cause.reason == "DisruptionBudget")
}

/// Deletes a claim of the actor, or of one of its members (I4).
pub(super) async fn claim(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    delete::<PersistentVolumeClaim>(ctx, actor, target, |claim| {
        has(claim, key::MEMBER_UID, &actor.uid) || has(claim, key::CLUSTER_UID, &actor.uid)
    })
    .await
}

/// Deletes a disruption budget of the actor.
pub(super) async fn budget(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    delete::<PodDisruptionBudget>(ctx, actor, target, |budget| owned_by(budget, &actor.uid)).await
}

/// Deletes the Deployment that records the actor's log. Its Pod goes with it, and stores what waits before its end.
pub(super) async fn deployment(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    delete::<Deployment>(ctx, actor, target, |deployment| owned_by(deployment, &actor.uid)).await
}

/// Deletes a member of the actor.
pub(super) async fn member(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    delete::<EtcdMember>(ctx, actor, target, |member| owned_by(member, &actor.uid)).await
}

/// Deletes a Job of the actor, or the run that the actor records: the `CronJob` owns the run, which has Holdfast's label.
pub(super) async fn job(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    delete::<Job>(ctx, actor, target, |job| {
        let run = has(job, key::MANAGED_BY, FIELD_MANAGER) && job.labels().contains_key(key::SCHEDULE);
        owned_by(job, &actor.uid) || run
    })
    .await
}

/// Deletes the record of a run that takes no stored snapshot along: the run failed, this snapshot of the run was removed, or the
/// snapshot stays in the store.
pub(super) async fn record(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    removed: Option<&str>,
) -> Result<Done, Error> {
    delete::<EtcdSnapshot>(ctx, actor, target, |snapshot| {
        let stays = !snapshot.spec.hold && snapshot.spec.deletion_policy == DeletionPolicy::Retain;
        let nothing_lost = snapshot.status.as_ref().is_some_and(|status| match removed {
            None => status.phase == Phase::Failed || (status.phase == Phase::Complete && stays),
            Some(key) => status.artifact.as_ref().is_some_and(|artifact| artifact.key == key),
        });
        nothing_lost && snapshot.spec.run.is_some() && has(snapshot, key::SCHEDULE_UID, &actor.uid)
    })
    .await
}

fn has<K: ResourceExt>(object: &K, key: &str, value: &str) -> bool {
    object.labels().get(key).is_some_and(|there| there == value)
}

async fn delete<K: Written>(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    is_owned: impl Fn(&K) -> bool,
) -> Result<Done, Error> {
    let (client, namespace) = (&ctx.write.0, actor.namespace.as_str());
    let name = &target.name;
    let Some(there) = read::<K>(ctx, actor, name).await? else { return Ok(Done::Already) };
    if there.uid().as_ref() != Some(&target.uid) || there.meta().deletion_timestamp.is_some() {
        return Ok(Done::Already);
    }
    if !is_owned(&there) {
        return Err(Error::NameConflict(format!("{} {name} belongs to another owner and is not deleted", K::NAME)));
    }
    let params = DeleteParams::background().preconditions(Preconditions {
        uid: Some(target.uid.clone()),
        resource_version: Some(target.resource_version.clone()),
    });
    match ctx.writing(K::NAME, "delete", name, requests::delete::<K>(client, namespace, name, &params)).await {
        Ok(answer) => {
            match answer {
                Some(going) => K::note_changed(&ctx.own, &going),
                None => K::note_gone(&ctx.own, &actor.namespace, name, &target.uid),
            }
            Ok(Done::Applied)
        }
        Err(Error::Kube { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.is_not_found()) => {
            Ok(Done::Already)
        }
        Err(error) => Err(error),
    }
}
