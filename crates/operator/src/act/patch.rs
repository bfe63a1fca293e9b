//! Changes one object with one small patch. Every patch carries the UID and the resourceVersion of the decision, so that the patch
//! of an object that changed since fails with a conflict (I12).

use holdfast_api::member::Resize;
use holdfast_api::template::Template;
use holdfast_api::{EtcdCluster, EtcdMember, EtcdUser, FIELD_MANAGER, key};
use holdfast_kube::requests;
use holdfast_plan::objects::container;
use holdfast_plan::patch::{Patched, replacing};
use holdfast_plan::{Act, Target, template};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::create::Written;
use super::{Actor, Done, read};
use crate::context::Context;
use crate::error::Error;

/// Carries out an act that is one merge patch.
pub(super) async fn send(ctx: &Context, actor: &Actor, act: &Act) -> Result<Done, Error> {
    match act.to_patch() {
        Some((Patched::Cluster(target), change)) => patch::<EtcdCluster>(ctx, actor, target, change).await,
        Some((Patched::Member(target), change)) => patch::<EtcdMember>(ctx, actor, target, change).await,
        Some((Patched::User(target), change)) => patch::<EtcdUser>(ctx, actor, target, change).await,
        Some((Patched::Pod(target), change)) => patch::<Pod>(ctx, actor, target, change).await,
        None => Err(Error::Internal("the act is no merge patch".to_owned())),
    }
}

/// Writes a template into a member's spec. A merge patch keeps the fields that it does not name, so the patch names each field that
/// the template lacks.
pub(super) async fn set_template(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    new: &Template,
    served: Option<&Template>,
) -> Result<Done, Error> {
    let Some(there) = get::<EtcdMember>(ctx, actor, target).await? else { return Ok(Done::Already) };
    let fields = |template: &Template, served: Option<&Template>| {
        let mut fields = serde_json::to_value(template).unwrap_or_default();
        fields["served"] = json!(served);
        fields
    };
    let old = fields(&there.spec.process, there.spec.served.as_ref());
    let mut change = replacing(&old, &fields(new, served));
    change["template"] = json!(template::fingerprint(new));
    patch::<EtcdMember>(ctx, actor, target, json!({"spec": change})).await
}

/// Lets a claim ask for a larger volume.
pub(super) async fn grow_claim(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    size: &Quantity,
    at: &str,
) -> Result<Done, Error> {
    let mut change = requests::larger_claim(size);
    change["metadata"] = json!({"annotations": {key::GROWTH_ASKED: at}});
    patch::<PersistentVolumeClaim>(ctx, actor, target, change).await
}

/// Changes the resources of etcd's container in a running Pod, and notes the API server's answer on the Pod. Kubernetes before 1.33
/// answers 404. Every version refuses a removed limit and another quality of service with 422.
pub(super) async fn resize(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    resources: &ResourceRequirements,
) -> Result<Done, Error> {
    let change = json!({
        "metadata": {"uid": target.uid, "resourceVersion": target.resource_version},
        "spec": {"containers": [{"name": container::ETCD, "resources": replacement(resources)}]},
    });
    let sent = requests::resize(&ctx.write.0, &actor.namespace, &target.name, &change);
    let (answer, version) = match ctx.writing("Pod", "resize", &target.name, sent).await {
        Ok(resized) => {
            ctx.own.note_changed(&resized);
            (Resize::Accepted, resized.resource_version().unwrap_or_default())
        }
        Err(Error::Kube { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if [404, 405, 422].contains(&status.code)) => {
            (Resize::Refused, target.resource_version.clone())
        }
        Err(error) => return Err(error),
    };
    let noted = json!({"metadata": {"annotations": {key::RESIZE: answer.as_str()}}});
    patch::<Pod>(ctx, actor, &Target { resource_version: version, ..target.clone() }, noted).await
}

/// Returns a strategic merge patch that replaces all resources of a container.
fn replacement(resources: &ResourceRequirements) -> Value {
    let mut value = serde_json::to_value(resources).unwrap_or_default();
    value["$patch"] = json!("replace");
    value
}

/// Removes Holdfast's finalizer, and no other.
pub(super) async fn release<K: Written>(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    finalizer: &str,
) -> Result<Done, Error> {
    let Some(there) = get::<K>(ctx, actor, target).await? else { return Ok(Done::Already) };
    let others: Vec<&String> = there.finalizers().iter().filter(|f| *f != finalizer).collect();
    if others.len() == there.finalizers().len() {
        return Ok(Done::Already);
    }
    // A merge patch replaces the list. The resourceVersion in the patch protects a finalizer that another writer adds meanwhile.
    patch::<K>(ctx, actor, target, json!({"metadata": {"finalizers": others}})).await
}

/// Adds Holdfast's finalizer.
pub(super) async fn hold<K: Written>(
    ctx: &Context,
    actor: &Actor,
    target: &Target,
    finalizer: &str,
) -> Result<Done, Error> {
    let Some(there) = get::<K>(ctx, actor, target).await? else { return Ok(Done::Already) };
    if there.finalizers().iter().any(|f| f == finalizer) {
        return Ok(Done::Already);
    }
    let all: Vec<&str> = there.finalizers().iter().map(String::as_str).chain([finalizer]).collect();
    patch::<K>(ctx, actor, target, json!({"metadata": {"finalizers": all}})).await
}

/// The object as it is now; `None` where it is gone or another object has the name.
async fn get<K: Written>(ctx: &Context, actor: &Actor, target: &Target) -> Result<Option<K>, Error> {
    let there = read::<K>(ctx, actor, &target.name).await?;
    Ok(there.filter(|there| there.uid().as_ref() == Some(&target.uid)))
}

async fn patch<K: Written>(ctx: &Context, actor: &Actor, target: &Target, change: Value) -> Result<Done, Error> {
    let (client, namespace) = (&ctx.write.0, actor.namespace.as_str());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let change = guarded(change, target);
    let written = ctx
        .writing(
            K::NAME,
            "patch",
            &target.name,
            requests::patch::<K>(client, namespace, &target.name, &params, &Patch::Merge(change)),
        )
        .await?;
    K::note_changed(&ctx.own, &written);
    // The API server stores nothing where a patch changes nothing, or where an admission policy removed the change.
    let changed = written.resource_version().as_ref() != Some(&target.resource_version);
    Ok(if changed { Done::Applied } else { Done::Already })
}

/// The change with UID and resourceVersion of the decision: another object of the name, or a newer version, gives a conflict.
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
