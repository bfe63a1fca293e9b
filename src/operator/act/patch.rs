//! Small changes to one object each. Every patch carries the UID and the resourceVersion of the decision, so that it
//! fails with a conflict when the object has changed since.

use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::create::Named;
use super::{Actor, Done};
use crate::api::member::{Joined, Leaving, Parked, Removed};
use crate::api::{EtcdMember, FIELD_MANAGER, MEMBER_FINALIZER, key, role};
use crate::operator::context::Context;
use crate::operator::error::Error;
use crate::plan::Target;

/// Latches a member's `spec.initialCluster`.
pub(super) async fn set_initial_cluster(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    initial_cluster: &str,
) -> Result<Done, Error> {
    patch::<EtcdMember>(ctx, actor, target, json!({"spec": {"initialCluster": initial_cluster}})).await
}

/// Latches a member's `spec.joined`.
pub(super) async fn latch_joined(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    joined: &Joined,
) -> Result<Done, Error> {
    patch::<EtcdMember>(ctx, actor, target, json!({"spec": {"joined": joined}})).await
}

/// Latches a member's `spec.startCount`.
pub(super) async fn latch_start(ctx: &Context, actor: &Actor, target: &Target, count: u64) -> Result<Done, Error> {
    patch::<EtcdMember>(ctx, actor, target, json!({"spec": {"startCount": count}})).await
}

/// Tells a Pod of its member's `spec.startCount` and `spec.joined`.
pub(super) async fn mark_started(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    count: u64,
    joined: &Joined,
) -> Result<Done, Error> {
    let annotations = json!({key::STARTED: count.to_string(), key::JOINED: joined.annotation()});
    patch::<Pod>(ctx, actor, target, json!({"metadata": {"annotations": annotations}})).await
}

/// Removes the permission to start on an empty volume from a Pod, and says why: its member has joined.
pub(super) async fn forbid_empty_start(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    joined: &Joined,
) -> Result<Done, Error> {
    let annotations = json!({key::MAY_START_EMPTY: null, key::JOINED: joined.annotation()});
    patch::<Pod>(ctx, actor, target, json!({"metadata": {"annotations": annotations}})).await
}

/// Latches a member's `spec.leaving`.
pub(super) async fn latch_leaving(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    leaving: &Leaving,
) -> Result<Done, Error> {
    patch::<EtcdMember>(ctx, actor, target, json!({"spec": {"leaving": leaving}})).await
}

/// Latches a member's `spec.removed`.
pub(super) async fn latch_removed(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    removed: &Removed,
) -> Result<Done, Error> {
    patch::<EtcdMember>(ctx, actor, target, json!({"spec": {"removed": removed}})).await
}

/// Latches a member's `spec.parked`, or removes it.
pub(super) async fn park(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    parked: Option<&Parked>,
) -> Result<Done, Error> {
    patch::<EtcdMember>(ctx, actor, target, json!({"spec": {"parked": parked}})).await
}

/// Takes a voter's label from a Pod, so that Services do not select it.
pub(super) async fn dismiss_clients(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    patch::<Pod>(ctx, actor, target, json!({"metadata": {"labels": {key::ROLE: role::LEARNER}}})).await
}

/// Labels a Pod as a voter's, so that Services select it.
pub(super) async fn admit_clients(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    patch::<Pod>(ctx, actor, target, json!({"metadata": {"labels": {key::ROLE: role::VOTER}}})).await
}

/// Puts labels of a Pod back.
pub(super) async fn relabel(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    labels: &BTreeMap<String, String>,
) -> Result<Done, Error> {
    patch::<Pod>(ctx, actor, target, json!({"metadata": {"labels": labels}})).await
}

/// Removes our finalizer, and no other, from a member.
pub(super) async fn release_member(ctx: &Context, actor: &Actor, target: &Target) -> Result<Done, Error> {
    let api: Api<EtcdMember> = Api::namespaced(ctx.write.0.clone(), &actor.namespace);
    let name = &target.name;
    let there = ctx.reading(|| format!("get EtcdMember {name}"), api.get_opt(name)).await?;
    let Some(there) = there.filter(|m| m.uid().as_ref() == Some(&target.uid)) else { return Ok(Done::Already) };
    let others: Vec<&String> = there.finalizers().iter().filter(|f| *f != MEMBER_FINALIZER).collect();
    if others.len() == there.finalizers().len() {
        return Ok(Done::Already);
    }
    // A merge patch replaces the list: the version in it keeps a finalizer that somebody adds meanwhile.
    patch::<EtcdMember>(ctx, actor, target, json!({"metadata": {"finalizers": others}})).await
}

async fn patch<K>(ctx: &Context, actor: &Actor, target: &Target, change: Value) -> Result<Done, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug + Named,
{
    let api: Api<K> = Api::namespaced(ctx.write.0.clone(), &actor.namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let change = guarded(change, target);
    ctx.writing(K::KIND, "patch", &target.name, api.patch(&target.name, &params, &Patch::Merge(&change))).await?;
    Ok(Done::Applied)
}

/// The change with the identity it was decided on: another object of the name, or a newer version, is a conflict.
fn guarded(mut change: Value, target: &Target) -> Value {
    if !change["metadata"].is_object() {
        change["metadata"] = json!({});
    }
    change["metadata"]["uid"] = json!(target.uid);
    change["metadata"]["resourceVersion"] = json!(target.resource_version);
    change
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_names_what_it_was_decided_on() {
        let target = Target { name: "a".to_owned(), uid: "u".to_owned(), resource_version: "7".to_owned() };
        assert_eq!(
            guarded(json!({"spec": {"x": 1}}), &target),
            json!({"spec": {"x": 1}, "metadata": {"uid": "u", "resourceVersion": "7"}})
        );
        assert_eq!(
            guarded(json!({"metadata": {"labels": {"a": "b"}}}), &target),
            json!({"metadata": {"labels": {"a": "b"}, "uid": "u", "resourceVersion": "7"}})
        );
    }
}
