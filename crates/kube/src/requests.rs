//! Requests for one object. The answers are read by the kind's own functions, and nothing else here depends on the kind.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DeleteParams, GetParams, ListParams, ObjectList, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, PartialObjectMeta, Request};
use kube::{Client, Error, Result};
use serde_json::{Value, json};

use holdfast_api::FIELD_MANAGER;

use crate::kinds::Object;

/// A request as kube builds it.
type Built = std::result::Result<hyper::Request<Vec<u8>>, kube::core::request::Error>;

fn to<K: Object>(namespace: &str) -> Request {
    Request::new(K::url_path(&(), Some(namespace)))
}

fn read<K: Object>(text: &str) -> Result<K> {
    K::from_json(text).map_err(Error::SerdeError)
}

/// Sends a request whose answer is an object.
async fn send<K: Object>(client: &Client, request: Built) -> Result<K> {
    read(&client.request_text(request.map_err(Error::BuildRequest)?).await?)
}

fn body<K: Object>(object: &K) -> Result<Vec<u8>> {
    object.to_json().and_then(|json| serde_json::to_vec(&json)).map_err(Error::SerdeError)
}

/// Reads an object.
pub async fn get<K: Object>(client: &Client, namespace: &str, name: &str) -> Result<K> {
    send(client, to::<K>(namespace).get(name, &GetParams::default())).await
}

/// Reads an object; `None` after the answer 404.
pub async fn get_opt<K: Object>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>> {
    match get(client, namespace, name).await {
        Ok(object) => Ok(Some(object)),
        Err(Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the metadata of an object.
pub async fn get_metadata<K: Object>(client: &Client, namespace: &str, name: &str) -> Result<ObjectMeta> {
    let request = to::<K>(namespace).get_metadata(name, &GetParams::default()).map_err(Error::BuildRequest)?;
    let found: PartialObjectMeta<DynamicObject> = client.request(request).await?;
    Ok(found.metadata)
}

/// Reads a page of a list: its length in bytes, and the page.
pub async fn list<K: Object>(client: &Client, namespace: &str, params: &ListParams) -> Result<(usize, ObjectList<K>)> {
    let request = to::<K>(namespace).list(params).map_err(Error::BuildRequest)?;
    let text = client.request_text(request).await?;
    Ok((text.len(), K::list_from_json(&text).map_err(Error::SerdeError)?))
}

/// Creates an object.
pub async fn create<K: Object>(client: &Client, namespace: &str, params: &PostParams, object: &K) -> Result<K> {
    send(client, to::<K>(namespace).create(params, body(object)?)).await
}

/// Patches an object.
pub async fn patch<K: Object>(
    client: &Client,
    namespace: &str,
    name: &str,
    params: &PatchParams,
    patch: &Patch<Value>,
) -> Result<K> {
    send(client, to::<K>(namespace).patch(name, params, patch)).await
}

/// Changes the resources of a running Pod by a strategic merge patch (Kubernetes 1.33: `pods/resize`).
pub async fn resize(client: &Client, namespace: &str, name: &str, change: &Value) -> Result<Pod> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    send(client, to::<Pod>(namespace).patch_subresource("resize", name, &params, &Patch::Strategic(change))).await
}

/// Returns the change of a claim that asks for a volume of this size.
pub fn larger_claim(size: &Quantity) -> Value {
    json!({"spec": {"resources": {"requests": {"storage": size}}}})
}

/// Replaces the status of an object.
pub async fn replace_status<K: Object>(
    client: &Client,
    namespace: &str,
    name: &str,
    params: &PostParams,
    object: &K,
) -> Result<K> {
    send(client, to::<K>(namespace).replace_subresource("status", name, params, body(object)?)).await
}

/// Evicts a Pod with this UID and resourceVersion: the API server asks the disruption budgets and deletes the Pod in one step.
/// Not by kube's own request, whose options the API server ignores (kube-core 5: `delete_options`).
pub async fn evict(client: &Client, namespace: &str, name: &str, uid: &str, resource_version: &str) -> Result<()> {
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid, "resourceVersion": resource_version}},
    });
    let body = serde_json::to_vec(&eviction).map_err(Error::SerdeError)?;
    let request = to::<Pod>(namespace).create_subresource("eviction", name, &PostParams::default(), body);
    client.request_text(request.map_err(Error::BuildRequest)?).await.map(drop)
}

/// Deletes an object. Returns the object where the API server still has it, for example because of a finalizer.
pub async fn delete<K: Object>(
    client: &Client,
    namespace: &str,
    name: &str,
    params: &DeleteParams,
) -> Result<Option<K>> {
    let request = to::<K>(namespace).delete(name, params).map_err(Error::BuildRequest)?;
    let text = client.request_text(request).await?;
    let json: Value = serde_json::from_str(&text).map_err(Error::SerdeError)?;
    if json["kind"] == "Status" { Ok(None) } else { read(&text).map(Some) }
}
