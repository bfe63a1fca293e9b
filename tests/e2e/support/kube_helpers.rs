//! Reads of the cluster and waits for it, with deadlines that report the last state, and retries of requests without an answer.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::Value;

/// An API for a kind by its usual name.
pub fn api(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = match kind {
        "EtcdBackupStore"
        | "EtcdCluster"
        | "EtcdMember"
        | "EtcdRestore"
        | "EtcdSnapshot"
        | "EtcdSnapshotSchedule"
        | "EtcdUser" => ("holdfast.dev", "v1alpha1"),
        "Job" | "CronJob" => ("batch", "v1"),
        "Deployment" | "StatefulSet" => ("apps", "v1"),
        "PodDisruptionBudget" => ("policy", "v1"),
        "EndpointSlice" => ("discovery.k8s.io", "v1"),
        "Certificate" => ("cert-manager.io", "v1"),
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
    let labelled = ListParams::default().labels(selector);
    let all = patiently(async |_| api.list(&labelled).await).await?;
    let mut names: Vec<String> = all.items.iter().map(ResourceExt::name_any).collect();
    names.sort();
    Ok(names)
}

/// Status of one condition, with reason and message.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|c| c["type"] == kind)?;
    Some((found["status"].as_str()?, found["reason"].as_str()?, found["message"].as_str().unwrap_or("")))
}

/// Whether a cluster is `Ready` with that many voters, by a status of its present spec.
pub fn is_ready(cluster: &Value, voters: usize) -> bool {
    condition(cluster, "Ready").is_some_and(|(status, ..)| status == "True")
        && cluster["status"]["voters"] == voters
        && cluster["metadata"]["generation"] == cluster["status"]["observedGeneration"]
}

/// Most patience that one read uses up: while the machine stands still, nothing else makes progress either.
const DEAREST: Duration = Duration::from_secs(2);

/// Reads four times a second until `good` accepts, or fails with the last state.
pub async fn until<T>(
    what: &str,
    patience: Duration,
    good: impl AsyncFnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    until_within(what, patience, Duration::from_millis(250), good).await
}

/// Reads with this pause between two reads. Slow reads extend the wait, up to three times the patience.
pub async fn until_within<T>(
    what: &str,
    patience: Duration,
    pause: Duration,
    mut good: impl AsyncFnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    let begun = Instant::now();
    let mut waited = Duration::ZERO;
    loop {
        let round = Instant::now();
        let last = match good().await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => seen,
            Err(why) => format!("{why:#}"),
        };
        if waited > patience || begun.elapsed() > 3 * patience {
            bail!("waited {} s for {what}; last seen: {last}", begun.elapsed().as_secs());
        }
        tokio::time::sleep(pause).await;
        waited += round.elapsed().min(DEAREST);
    }
}

/// Time in which the API server, or the way to it, may fail.
pub const TROUBLED: Duration = Duration::from_mins(1);

/// Repeats a request that got no answer, or that etcd did not answer for the API server; `ask` gets whether this is a repetition.
pub async fn patiently<T>(mut ask: impl AsyncFnMut(bool) -> kube::Result<T>) -> kube::Result<T> {
    let begun = Instant::now();
    let mut again = false;
    loop {
        match ask(again).await {
            Err(why) if is_hiccup(&why) && begun.elapsed() < TROUBLED => eprintln!("e2e: asked again: {why}"),
            answer => return answer,
        }
        again = true;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn is_hiccup(why: &kube::Error) -> bool {
    match why {
        kube::Error::Api(status) => status.code == 500 && status.message.contains("etcdserver:"),
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

/// Deletes this object and no later object of its name, with repetitions where needed.
pub async fn delete(api: &Api<DynamicObject>, name: &str) -> Result<()> {
    let uid = patiently(async |_| api.get(name).await).await?.metadata.uid;
    let this = DeleteParams::background().preconditions(Preconditions { uid, resource_version: None });
    patiently(async |again| match api.delete(name, &this).await {
        Err(kube::Error::Api(status)) if again && (status.is_not_found() || status.is_conflict()) => Ok(()),
        answer => answer.map(drop),
    })
    .await?;
    Ok(())
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
