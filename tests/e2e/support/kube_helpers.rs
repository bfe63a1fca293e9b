//! Reading the cluster and waiting for it, with deadlines that say what was last seen.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

/// An API for a kind we name as people do.
pub fn api(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = match kind {
        "EtcdBackupStore" | "EtcdCluster" | "EtcdMember" | "EtcdSnapshot" => ("holdfast.dev", "v1alpha1"),
        "Job" | "CronJob" => ("batch", "v1"),
        "Deployment" => ("apps", "v1"),
        "PodDisruptionBudget" => ("policy", "v1"),
        "EndpointSlice" => ("discovery.k8s.io", "v1"),
        _ => ("", "v1"),
    };
    Api::namespaced_with(
        client.clone(),
        namespace,
        &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
    )
}

/// The object as plain JSON.
pub fn json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// The names in a list, sorted.
pub async fn names(api: &Api<DynamicObject>, selector: &str) -> Result<Vec<String>> {
    let mut names: Vec<String> =
        api.list(&ListParams::default().labels(selector)).await?.items.iter().map(ResourceExt::name_any).collect();
    names.sort();
    Ok(names)
}

/// Status of one condition, with reason and message.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|c| c["type"] == kind)?;
    Some((found["status"].as_str()?, found["reason"].as_str()?, found["message"].as_str().unwrap_or("")))
}

/// Whether a cluster is `Ready` with that many voters, and says so of its present spec.
pub fn is_ready(cluster: &Value, voters: usize) -> bool {
    condition(cluster, "Ready").is_some_and(|(status, ..)| status == "True")
        && cluster["status"]["voters"] == voters
        && cluster["metadata"]["generation"] == cluster["status"]["observedGeneration"]
}

/// Asks four times a second until `good` answers, or fails with what was last seen.
pub async fn until<T>(
    what: &str,
    patience: Duration,
    mut good: impl AsyncFnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        let last = match good().await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => seen,
            Err(why) => format!("{why:#}"),
        };
        if begun.elapsed() > patience {
            bail!("waited {} s for {what}; last seen: {last}", patience.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Waits until an object satisfies `good`, and returns it.
pub async fn wait_for(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    patience: Duration,
    good: impl Fn(&Value) -> bool,
) -> Result<Value> {
    until(&format!("{name}: {what}"), patience, async || {
        let object = api.get_opt(name).await?.context("it does not exist")?;
        let object = json(&object);
        Ok(if good(&object) { Ok(object) } else { Err(object["status"].to_string()) })
    })
    .await
}
