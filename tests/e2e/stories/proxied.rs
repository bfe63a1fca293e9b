//! A store whose name only a proxy can resolve: the Pods of that store use the proxy, and Pods of other stores do not.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::store_trouble::PROXY;
use crate::support::host_operator::Seat;
use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::stored::manifests;
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    w.apply(&PROXY.replace("localhost/holdfast-probe:1", &w.env.probe_image)).await?;
    let seat = Seat::new(w, "behind-a-proxy", None).await?;
    let mut operator = seat.start(&[
        ("HOLDFAST_AGENT_HTTP_PROXY", "http://s3-fault:7070".to_owned()),
        ("HOLDFAST_AGENT_NO_PROXY", ".svc".to_owned()),
    ])?;
    operator.until_leading().await?;
    w.create(make::cluster("orders", 1)).await?;
    w.step("a source", w.wait_ready("orders", 1)).await?;
    w.fill("orders", 500).await?;
    let digest = w.digest("orders").await?;
    w.wait("Deployment", "s3-fault", "ready", |d| d["status"]["readyReplicas"] == 1).await?;

    w.fault("ok").await?;
    let mut vault = at("http://store.invalid");
    let secret = vault.as_object_mut().and_then(|s3| s3.remove("credentialsSecretRef"));
    let keys = secret.map(|secret| secret["name"].clone());
    w.create(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdBackupStore", "metadata": {"name": "vault"},
        "spec": {"s3": vault, "credentials": {"write": keys}},
    }))
    .await?;
    let usable = |s: &Value| condition(s, "Ready").is_some_and(|(status, ..)| status == "True");
    w.step("it is probed", w.wait("EtcdBackupStore", "vault", "Ready", usable)).await?;
    w.create(make::snapshot("through", "orders", json!({"storeRef": {"name": "vault"}}))).await?;
    let saved = w.step("a snapshot goes through it", w.wait_complete("through")).await?;
    ensure!(manifests(&w.bucket().await?, &saved)?.len() == 1, "it is in the bucket");
    let latest = json!({"latest": {"cluster": "orders", "storeRef": {"name": "vault"}}});
    w.create(make::restored("again", 1, latest)).await?;
    w.step("the newest is found and restored through it", w.wait_ready("again", 1)).await?;
    ensure!(w.digest("again").await? == digest, "what was restored is what was saved");
    let through = w.fault("").await?["requests"].as_u64();
    ensure!(through > Some(20), "{through:?} requests");

    // A store in the no-proxy list is reached without the proxy.
    w.fault("down").await?;
    let near = json!({ "s3": at(&format!("http://s3.{}.svc:7070", w.ns)) });
    w.create(make::snapshot("beside", "orders", near)).await?;
    w.step("a store nearby is reached without it", w.wait_complete("beside")).await?;
    ensure!(w.fault("").await?["requests"] == 0, "nobody asked the proxy");
    w.create(make::snapshot("cut-off", "orders", json!({"s3": at("http://store.invalid")}))).await?;
    let told = |s: &Value| {
        condition(s, "Ready").is_some_and(|(.., words)| words.contains("through the proxy http://s3-fault"))
    };
    w.step("one that is down is told of", w.wait("EtcdSnapshot", "cut-off", "the proxy's name", told)).await?;
    operator.retire().await?;
    seat.no_defects()
}

/// The namespace's bucket, at this address.
fn at(endpoint: &str) -> Value {
    let mut s3 = make::s3();
    s3["endpoint"] = json!(endpoint);
    s3
}
