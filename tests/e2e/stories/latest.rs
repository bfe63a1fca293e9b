//! The newest snapshot of a cluster that is gone: found by what the manifests say, through a line of restores, never the
//! empty cluster that was made by mistake, and never nothing at all; and a cluster from what is printed of a snapshot.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::probe::Digest;
use crate::support::world::World;

/// A condition has the reason by then. Scheduling a Pod alone may take half a minute where four stories share two processors;
/// `store_trouble` measures how soon the agent's own report appears.
const SOON: Duration = Duration::from_mins(2);

pub async fn tell(w: &World) -> Result<()> {
    // Before there is a snapshot: a reason, and no member.
    w.create(of_the_latest("early", json!({"cluster": "orders"}))).await?;
    w.step("an empty store is no empty cluster", refused(w, "early", "ArtifactNotFound")).await?;

    w.create(make::cluster("orders", 1)).await?;
    w.step("one voter", w.wait_ready("orders", 1)).await?;
    w.fill("orders", 500).await?;
    let at_first = w.digest("orders").await?;
    w.step("a first snapshot", saved(w, "first")).await?;
    w.fill("orders", 1_000).await?;
    let before = w.digest("orders").await?;
    let second = w.step("a second one", saved(w, "second")).await?;
    w.step("what waited goes on by itself", w.wait_ready("early", 1)).await?;
    let early = w.digest("early").await?;
    // Either of the two may have been the newest when the Job asked.
    ensure!([&at_first, &before].contains(&&early), "early holds one of the two: {early:?}");
    w.delete_and_wait("EtcdCluster", "early").await?;
    w.step("without its Secret nobody is asked", keyless(w, &before)).await?;

    w.step("the newest of its own name", again(w, json!({}), &second, &before)).await?;
    let told = w.get("EtcdCluster", "orders").await?["status"]["restore"].clone();
    ensure!(told["takenAt"].is_string() && told["phase"] == "Formed" && told["passedOver"].is_null(), "{told}");

    put(w, "later", "1").await?;
    let grown = w.digest("orders").await?;
    let third = w.step("a snapshot of the restored one", saved(w, "third")).await?;
    w.step("what it was restored from is its past", again(w, json!({}), &third, &grown)).await?;

    w.delete_and_wait("EtcdCluster", "orders").await?;
    w.create(make::cluster("orders", 1)).await?;
    w.step("made anew by mistake", w.wait_ready("orders", 1)).await?;
    put(w, "mistake", "1").await?;
    let fourth = w.step("and saved", saved(w, "fourth")).await?;
    w.delete_and_wait("EtcdCluster", "orders").await?;
    w.create(of_the_latest("orders", json!({}))).await?;
    let told = w.step("nobody guesses", refused(w, "orders", "LineageUnclear")).await?;
    ensure!([&third, &fourth].iter().all(|key| told.contains(lineage(key))), "{told}");
    let patch = json!({"spec": {"bootstrap": {"restore": {"latest": {"lineage": lineage(&third)}}}}});
    w.patch("EtcdCluster", "orders", patch).await?;
    w.step("until somebody says which", w.wait_ready("orders", 1)).await?;
    ensure!(restored_key(w).await? == third && w.digest("orders").await? == grown, "what was lost is back");
    w.step("the bucket alone is enough", rendered(w, &third, &grown)).await
}

/// Applies the output of `agent render-restore` for a snapshot: no object records the spec of the cluster.
async fn rendered(w: &World, key: &str, digest: &Digest) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let secret = w.get("Secret", "s3-credentials").await?;
    let data: BTreeMap<String, ByteString> = serde_json::from_value(secret["data"].clone())?;
    for (name, value) in &data {
        fs::write(folder.path().join(name), &value.0)?;
    }
    // The node cannot resolve the name, but every process can reach a Service by its address.
    let service = w.get("Service", "s3").await?;
    let address = service["spec"]["clusterIP"].as_str().context("the S3 server's address")?;
    let printed = Command::new(&w.env.holdfast)
        .args(["agent", "render-restore", "--store=s3://backups/house", "--s3-force-path-style", "--name=rendered"])
        .arg(format!("--s3-endpoint=http://{address}:7070"))
        .args([format!("--credentials-dir={}", folder.path().display()), format!("--key={key}")])
        .arg(format!("--namespace={}", w.ns))
        .output()?;
    let yaml = String::from_utf8(printed.stdout)?;
    ensure!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let needs = "kubectl create secret generic s3-credentials";
    ensure!(yaml.contains(needs) && data.keys().all(|name| yaml.contains(&format!("--from-file={name}"))), "{yaml}");
    for value in data.values() {
        ensure!(!yaml.contains(str::from_utf8(&value.0)?), "a secret is printed: {yaml}");
    }
    w.env.kubectl_with(&["apply", "-f", "-"], Some(&yaml))?;
    w.wait_ready("rendered", 1).await?;
    ensure!(w.digest("rendered").await? == *digest, "rendered holds what was saved");
    Ok(())
}

/// A missing Secret becomes a condition soon, and the cluster continues once the Secret exists.
async fn keyless(w: &World, before: &Digest) -> Result<()> {
    let mut s3 = make::s3();
    s3["credentialsSecretRef"]["name"] = json!("not-there-yet");
    w.create(of_the_latest("keyless", json!({"cluster": "orders", "s3": s3}))).await?;
    let told = tokio::time::timeout(SOON, refused(w, "keyless", "AgentMisconfigured")).await;
    let told = told.context("what is missing is told too late")??;
    ensure!(told.contains("accessKeyID"), "{told}");
    let there = w.get("Secret", "s3-credentials").await?;
    w.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "not-there-yet"}, "data": there["data"],
    }))
    .await?;
    w.wait_ready("keyless", 1).await?;
    ensure!(w.digest("keyless").await? == *before, "keyless holds what was saved");
    w.delete_and_wait("EtcdCluster", "keyless").await
}

/// Deletes the cluster and creates it again from the newest snapshot, which has to be this one.
async fn again(w: &World, more: Value, key: &str, digest: &Digest) -> Result<()> {
    w.delete_and_wait("EtcdCluster", "orders").await?;
    w.create(of_the_latest("orders", more)).await?;
    w.wait_ready("orders", 1).await?;
    let found = restored_key(w).await?;
    ensure!(found == key, "{found} was restored, not {key}");
    ensure!(w.digest("orders").await? == *digest, "orders holds what was saved");
    Ok(())
}

fn of_the_latest(name: &str, more: Value) -> Value {
    let mut latest = json!({"s3": make::s3()});
    for (field, value) in more.as_object().into_iter().flatten() {
        latest[field] = value.clone();
    }
    make::restored(name, 1, json!({"latest": latest}))
}

async fn restored_key(w: &World) -> Result<String> {
    let cluster = w.get("EtcdCluster", "orders").await?;
    let key = cluster["status"]["latches"]["formed"]["restoredFrom"]["source"]["key"].as_str();
    Ok(key.context("a restored cluster")?.to_owned())
}

/// Waits for the reason and checks that no object was created; returns the message.
async fn refused(w: &World, name: &str, reason: &str) -> Result<String> {
    let told = w.wait("EtcdCluster", name, reason, |c| condition(c, "Ready").is_some_and(|(_, why, _)| why == reason));
    let told = told.await?;
    let members = w.names_with("EtcdMember", &format!("holdfast.dev/cluster={name}")).await?;
    ensure!(members.is_empty() && told["status"]["latches"]["restoring"].is_null(), "{members:?}: {told}");
    Ok(condition(&told, "Ready").context("Ready")?.2.to_owned())
}

/// Saves a snapshot; returns its key in the bucket.
async fn saved(w: &World, name: &str) -> Result<String> {
    w.create(make::snapshot(name, "orders", json!({"s3": make::s3()}))).await?;
    let done = w.wait_complete(name).await?;
    Ok(done["status"]["artifact"]["key"].as_str().context("a key")?.to_owned())
}

fn lineage(key: &str) -> &str {
    key.split('/').nth(2).unwrap_or_default()
}

async fn put(w: &World, key: &str, value: &str) -> Result<()> {
    let pod = w.names_with("EtcdMember", "holdfast.dev/cluster=orders").await?.pop().context("a member")?;
    w.etcdctl(&pod, &["put", key, value]).await.map(drop)
}
