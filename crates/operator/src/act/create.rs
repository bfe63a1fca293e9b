//! POSTs an object. An object of the same name that belongs to the actor counts as done; an object of another owner stays
//! untouched (I13).

use holdfast_api::{EtcdCluster, EtcdMember, EtcdSnapshot, EtcdUser, FIELD_MANAGER, key};
use holdfast_kube::kinds::Object;
use holdfast_kube::requests;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::PostParams;

use super::{Actor, Done, read};
use crate::context::Context;
use crate::error::Error;
use crate::observe::owned_by;
use crate::own_writes::OwnWrites;

/// Creates an object that the actor owns.
pub(super) async fn owned<K: Written>(ctx: &Context, actor: &Actor, object: &K) -> Result<Done, Error> {
    // With another owner in its reference the object would go with that owner: the garbage collector deletes it.
    if !owned_by(object, &actor.uid) {
        return Err(Error::Internal(format!("a new {} must belong to the object of its pass", K::NAME)));
    }
    post(ctx, actor, object, |there| owned_by(there, &actor.uid)).await
}

/// Creates a claim. A claim has no owner reference; a label holds the member's UID.
pub(super) async fn claim(ctx: &Context, actor: &Actor, claim: &PersistentVolumeClaim) -> Result<Done, Error> {
    let is_owned = |there: &PersistentVolumeClaim| there.labels().get(key::MEMBER_UID) == Some(&actor.uid);
    if !is_owned(claim) {
        return Err(Error::Internal("a new claim must carry the UID of the member of its pass".to_owned()));
    }
    post(ctx, actor, claim, is_owned).await
}

/// Creates the record of a run. A record has no owner reference; a label holds the UID of the schedule of this pass.
pub(super) async fn record(ctx: &Context, actor: &Actor, record: &EtcdSnapshot) -> Result<Done, Error> {
    if record.spec.run.is_none() || record.labels().get(key::SCHEDULE_UID) != Some(&actor.uid) {
        return Err(Error::Internal("a new record must name its run and the schedule of its pass".to_owned()));
    }
    post(ctx, actor, record, |there: &EtcdSnapshot| there.spec.run == record.spec.run).await
}

/// Creates a run of the actor's `CronJob`. The `CronJob` owns the run, as it owns a run of a due time.
pub(super) async fn run(ctx: &Context, actor: &Actor, job: &Job) -> Result<Done, Error> {
    let cron = job.owner_references().iter().find(|owner| owner.controller == Some(true));
    let Some(cron) = cron else { return Err(Error::Internal("a new run must name its CronJob".to_owned())) };
    let there = read::<CronJob>(ctx, actor, &cron.name).await?;
    if !there.is_some_and(|there| there.uid().as_ref() == Some(&cron.uid) && owned_by(&there, &actor.uid)) {
        return Err(Error::Stale(format!("CronJob {} is gone, or belongs to another owner", cron.name)));
    }
    post(ctx, actor, job, |there| owned_by(there, &cron.uid)).await
}

/// Creates the snapshot that an upgrade needs. The snapshot has no owner reference: its record outlives the cluster.
pub(super) async fn snapshot(ctx: &Context, actor: &Actor, snapshot: &EtcdSnapshot) -> Result<Done, Error> {
    post(ctx, actor, snapshot, |there: &EtcdSnapshot| there.spec.cluster_ref == snapshot.spec.cluster_ref).await
}

async fn post<K: Written>(
    ctx: &Context,
    actor: &Actor,
    object: &K,
    is_owned: impl Fn(&K) -> bool,
) -> Result<Done, Error> {
    let (client, namespace) = (&ctx.write.0, actor.namespace.as_str());
    let name = object.name_any();
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match ctx.writing(K::NAME, "create", &name, requests::create(client, namespace, &params, object)).await {
        Ok(created) => {
            K::note_created(&ctx.own, &created);
            Ok(Done::Applied)
        }
        Err(Error::Kube { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.is_already_exists()) => {
            match read::<K>(ctx, actor, &name).await? {
                Some(there) if is_owned(&there) => Ok(Done::Already),
                Some(_) => Err(Error::NameConflict(format!(
                    "{} {name} exists and belongs to another owner; delete the object, or rename it",
                    K::NAME
                ))),
                None => Err(Error::Stale(format!("{} {name} was there and is gone again", K::NAME))),
            }
        }
        Err(error) => Err(error),
    }
}

/// A kind that the operator writes, with the cache that shows the write.
pub(super) trait Written: Object {
    /// Lets the next pass wait until the cache shows the new object.
    fn note_created(own: &OwnWrites, written: &Self);
    /// Lets the next pass wait until the cache shows the change.
    fn note_changed(own: &OwnWrites, written: &Self);
    /// Lets the next pass wait until the cache shows the deletion.
    fn note_gone(own: &OwnWrites, namespace: &str, name: &str, uid: &str);
}

macro_rules! written {
    ($($kind:ty),* $(,)?) => {
        $(impl Written for $kind {
            fn note_created(own: &OwnWrites, written: &Self) {
                own.note_created(written);
            }
            fn note_changed(own: &OwnWrites, written: &Self) {
                own.note_changed(written);
            }
            fn note_gone(own: &OwnWrites, namespace: &str, name: &str, uid: &str) {
                own.note_gone::<Self>(namespace, name, uid);
            }
        })*
    };
}

written!(
    EtcdCluster,
    EtcdMember,
    EtcdSnapshot,
    EtcdUser,
    CronJob,
    Deployment,
    Pod,
    PersistentVolumeClaim,
    Job,
    Service,
    PodDisruptionBudget,
);

/// No cache: each pass that needs the object reads it live.
impl Written for ConfigMap {
    fn note_created(_: &OwnWrites, _: &Self) {}
    fn note_changed(_: &OwnWrites, _: &Self) {}
    fn note_gone(_: &OwnWrites, _: &str, _: &str, _: &str) {}
}
