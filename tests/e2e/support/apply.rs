//! Server-side apply of manifests, all objects of a text in parallel. Namespaces come first; the other objects need no order.

use anyhow::{Context, Result, anyhow};
use futures::future::try_join_all;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::kube_helpers::patiently;

/// Kinds without a namespace that stories apply.
const CLUSTERED: [&str; 9] = [
    "Namespace",
    "ClusterIssuer",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// Applies each object of a YAML or JSON text, the items of a List included. `namespace` is for objects that name none.
pub async fn apply(client: &Client, namespace: &str, text: &str) -> Result<()> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|why| anyhow!("{why}: {text}"))?;
    let objects = documents.into_iter().flat_map(|document| match &document["items"] {
        Value::Array(items) if document["kind"] == "List" => items.clone(),
        _ => vec![document],
    });
    let (first, rest): (Vec<Value>, Vec<Value>) = objects.partition(|it| it["kind"] == "Namespace");
    for objects in [first, rest] {
        try_join_all(objects.into_iter().map(|object| apply_one(client, namespace, object))).await?;
    }
    Ok(())
}

async fn apply_one(client: &Client, namespace: &str, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("an object without a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = if CLUSTERED.contains(&types.kind.as_str()) {
        Api::all_with(client.clone(), &resource)
    } else {
        let namespace = object.namespace().unwrap_or_else(|| namespace.to_owned());
        Api::namespaced_with(client.clone(), &namespace, &resource)
    };
    let (name, params) = (object.name_any(), PatchParams::apply("e2e").force());
    patiently(async |_| api.patch(&name, &params, &Patch::Apply(&object)).await)
        .await
        .with_context(|| format!("apply {} {name}", types.kind))?;
    Ok(())
}
