//! POSTs an object. One of the same name that is already ours counts as done; a stranger's is left alone (I13).

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Actor, Done};
use crate::api::{EtcdSnapshot, FIELD_MANAGER, key};
use crate::operator::context::Context;
use crate::operator::error::Error;
use crate::operator::observe::owned_by;

/// An object that the actor owns.
pub(super) async fn owned<K>(ctx: &Context, actor: &Actor, object: &K) -> Result<Done, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Serialize,
    K: std::fmt::Debug + Named,
{
    // An owner reference to anything but the object of this pass would let garbage collection take it away.
    if !owned_by(object, &actor.uid) {
        return Err(Error::Internal(format!("a new {} must belong to the object of its pass", K::KIND)));
    }
    post(ctx, actor, object, |there| owned_by(there, &actor.uid)).await
}

/// A claim: it has no owner reference, the member's UID stands in a label.
pub(super) async fn claim(ctx: &Context, actor: &Actor, claim: &PersistentVolumeClaim) -> Result<Done, Error> {
    let ours = |there: &PersistentVolumeClaim| there.labels().get(key::MEMBER_UID) == Some(&actor.uid);
    if !ours(claim) {
        return Err(Error::Internal("a new claim must carry the UID of the member of its pass".to_owned()));
    }
    post(ctx, actor, claim, ours).await
}

/// The record of a run: it has no owner reference, the UID of the schedule of this pass stands in a label.
pub(super) async fn record(ctx: &Context, actor: &Actor, record: &EtcdSnapshot) -> Result<Done, Error> {
    if record.spec.run.is_none() || record.labels().get(key::SCHEDULE_UID) != Some(&actor.uid) {
        return Err(Error::Internal("a new record must name its run and the schedule of its pass".to_owned()));
    }
    post(ctx, actor, record, |there: &EtcdSnapshot| there.spec.run == record.spec.run).await
}

async fn post<K>(ctx: &Context, actor: &Actor, object: &K, ours: impl Fn(&K) -> bool) -> Result<Done, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Serialize,
    K: std::fmt::Debug + Named,
{
    let api: Api<K> = Api::namespaced(ctx.write.0.clone(), &actor.namespace);
    let name = object.name_any();
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match ctx.writing(K::KIND, "create", &name, api.create(&params, object)).await {
        Ok(_) => Ok(Done::Applied),
        Err(Error::Kube { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.is_already_exists()) =>
        {
            let there = ctx.reading(|| format!("get {} {name}", K::KIND), api.get_opt(&name)).await?;
            match there {
                Some(there) if ours(&there) => Ok(Done::Already),
                Some(_) => Err(Error::NameConflict(format!(
                    "{} {name} exists and belongs to somebody else; delete or rename it if it is not needed",
                    K::KIND
                ))),
                None => Err(Error::Stale(format!("{} {name} was there and is gone again", K::KIND))),
            }
        }
        Err(error) => Err(error),
    }
}

/// The kind's name as a constant, for metrics and messages.
pub(super) trait Named {
    /// The kind.
    const KIND: &'static str;
}

impl Named for crate::api::EtcdMember {
    const KIND: &'static str = "EtcdMember";
}

impl Named for crate::api::EtcdCluster {
    const KIND: &'static str = "EtcdCluster";
}

impl Named for EtcdSnapshot {
    const KIND: &'static str = "EtcdSnapshot";
}

impl Named for k8s_openapi::api::batch::v1::CronJob {
    const KIND: &'static str = "CronJob";
}

impl Named for k8s_openapi::api::core::v1::Pod {
    const KIND: &'static str = "Pod";
}

impl Named for PersistentVolumeClaim {
    const KIND: &'static str = "PersistentVolumeClaim";
}

impl Named for k8s_openapi::api::batch::v1::Job {
    const KIND: &'static str = "Job";
}

impl Named for k8s_openapi::api::core::v1::ConfigMap {
    const KIND: &'static str = "ConfigMap";
}

impl Named for k8s_openapi::api::core::v1::Service {
    const KIND: &'static str = "Service";
}

impl Named for k8s_openapi::api::policy::v1::PodDisruptionBudget {
    const KIND: &'static str = "PodDisruptionBudget";
}
