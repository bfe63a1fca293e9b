//! Applies Services, disruption budgets, `CronJob`s and Deployments with server-side apply, and writes Secrets of certificates. Objects of
//! other owners stay untouched (I13).

use holdfast_api::FIELD_MANAGER;
use holdfast_kube::requests;
use holdfast_plan::{Ensure, Target};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::create::Written;
use super::{Actor, certificates, delete, read};
use crate::clock;
use crate::context::Context;
use crate::error::Error;
use crate::observe::{cert_manager, owned_by};

/// Applies one object.
pub(crate) async fn ensure(ctx: &Context, actor: &Actor, ensure: &Ensure) -> Result<(), Error> {
    match ensure {
        Ensure::Service(service) => apply(ctx, actor, service.as_ref()).await,
        Ensure::Budget(budget) => apply(ctx, actor, budget.as_ref()).await,
        Ensure::CronJob(cron) => apply(ctx, actor, cron.as_ref()).await,
        Ensure::Deployment(log) => apply(ctx, actor, log.as_ref()).await,
        Ensure::Secret(issue) => certificates::issue(ctx, actor, issue).await.map(drop),
        Ensure::Reissue(request) => issue_again(ctx, actor, request).await,
        Ensure::CaBundle { metadata, cas } => {
            let bundle = certificates::bundle(ctx, actor, metadata, cas).await?;
            apply(ctx, actor, &bundle).await
        }
        Ensure::Certificate { metadata, spec } => ask_cert_manager(ctx, actor, metadata, spec).await,
        Ensure::DropBudget(budget) => delete::budget(ctx, actor, budget).await.map(drop),
    }
}

async fn apply<K: Written>(ctx: &Context, actor: &Actor, wanted: &K) -> Result<(), Error> {
    let (client, namespace) = (&ctx.write.0, actor.namespace.as_str());
    let name = wanted.name_any();
    let mut wanted = wanted.clone();
    let params = match read::<K>(ctx, actor, &name).await? {
        Some(there) if !owned_by(&there, &actor.uid) => {
            return Err(Error::NameConflict(format!(
                "{} {name} exists and belongs to another owner; delete the object, or rename it",
                K::NAME
            )));
        }
        Some(there) => {
            // With the UID, an object that was replaced meanwhile gives a conflict, and is never taken for the operator's own.
            wanted.meta_mut().uid = there.uid();
            PatchParams::apply(FIELD_MANAGER).force()
        }
        // Not by force: an object of another owner that appears at this moment keeps its fields.
        None => PatchParams::apply(FIELD_MANAGER),
    };
    let is_new = wanted.uid().is_none();
    let wanted = wanted.to_json().map_err(|error| Error::Internal(format!("{} {name} as JSON: {error}", K::NAME)))?;
    let wanted = Patch::Apply(wanted);
    let written = requests::patch::<K>(client, namespace, &name, &params, &wanted);
    let written = ctx.writing(K::NAME, "apply", &name, written).await?;
    if is_new {
        K::note_created(&ctx.own, &written);
    } else {
        K::note_changed(&ctx.own, &written);
    }
    Ok(())
}

/// Applies the Certificate of cert-manager. The plan saw that the object is absent, or that it belongs to this owner; the API
/// server then compares the UID.
async fn ask_cert_manager(ctx: &Context, actor: &Actor, metadata: &ObjectMeta, spec: &Value) -> Result<(), Error> {
    let kind = cert_manager();
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.write.0.clone(), &actor.namespace, &kind);
    let name = metadata.name.clone().unwrap_or_default();
    let wanted = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec});
    // Not by force where the plan saw no object: an object of another owner keeps its fields.
    let params = PatchParams::apply(FIELD_MANAGER);
    let params = if metadata.uid.is_some() { params.force() } else { params };
    ctx.writing("Certificate", "apply", &name, api.patch(&name, &params, &Patch::Apply(&wanted))).await?;
    Ok(())
}

/// Has cert-manager issue a Certificate again, as its own command `cmctl renew` does: by the condition `Issuing`.
async fn issue_again(ctx: &Context, actor: &Actor, request: &Target) -> Result<(), Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.write.0.clone(), &actor.namespace, &cert_manager());
    let name = &request.name;
    let mut there = ctx.reading(|| format!("get Certificate {name}"), api.get(name)).await?;
    let same = there.uid().as_deref() == Some(&request.uid)
        && there.resource_version().as_deref() == Some(&request.resource_version);
    if !same {
        return Err(Error::Stale(format!("Certificate {name} has changed since")));
    }
    let issuing = json!({
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "the issuer has another CA: Holdfast asks for another certificate",
        "lastTransitionTime": clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "observedGeneration": there.metadata.generation,
    });
    let status = there.data.as_object_mut().map(|data| data.entry("status").or_insert_with(|| json!({})));
    let conditions = status
        .and_then(|status| status.as_object_mut())
        .map(|status| status.entry("conditions").or_insert_with(|| json!([])));
    if let Some(all) = conditions.and_then(Value::as_array_mut) {
        all.retain(|condition| condition["type"] != "Issuing");
        all.push(issuing);
    }
    ctx.tls.forget(&actor.namespace, name);
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    ctx.writing("Certificate", "update", name, api.replace_status(name, &params, &there)).await?;
    Ok(())
}
