//! The deletion of an EtcdSnapshot with `deletionPolicy: Delete` removes its stored snapshot, and no other; needed snapshots stay.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::stored::manifests;
use crate::support::world::{PATIENCE, World};

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::store("vault", "house")).await?;
    w.create(make::cluster("alpha", 1)).await?;
    w.step("a cluster", w.wait_ready("alpha", 1)).await?;
    w.fill("alpha", 50).await?;
    let to_store = json!({"storeRef": {"name": "vault"}});
    let going = |name: &str| {
        let mut snapshot = make::snapshot(name, "alpha", to_store.clone());
        snapshot["spec"]["deletionPolicy"] = json!("Delete");
        snapshot
    };
    let mut record = going("record");
    record["spec"]["run"] = json!({"job": "j", "uid": "u", "startedAt": "2026-01-01T00:00:00Z"});
    let refused = w.create(record).await.err().context("a record with a policy of its own was taken")?;
    ensure!(format!("{refused:#}").contains("spec.retention of the schedule"), "{refused:#}");

    let mut objects = vec![];
    for name in ["first", "second", "third"] {
        w.create(going(name)).await?;
        objects.push(w.step(&format!("a backup, {name}"), w.wait_complete(name)).await?);
    }
    let [first, second, third] = objects.as_slice() else { unreachable!("three names") };
    w.step("one goes, and its snapshot with it", w.delete_and_wait("EtcdSnapshot", "first")).await?;
    left_nothing(w, first).await?;
    ensure!(stored(w, second).await? == 1 && stored(w, third).await? == 1, "{:?}", w.bucket().await?);

    w.patch("EtcdSnapshot", "second", json!({"spec": {"hold": true}})).await?;
    w.delete("EtcdSnapshot", "second").await?;
    w.step("a held one stays", told(w, "second", "spec.hold")).await?;
    ensure!(stored(w, second).await? == 1, "a held snapshot went");
    let retained = json!({"spec": {"deletionPolicy": "Retain"}});
    w.patch("EtcdSnapshot", "second", retained).await?;
    w.step("its object goes alone", gone(w, "second")).await?;
    ensure!(stored(w, second).await? == 1, "the snapshot of an object with Retain went");

    // The second snapshot is proven too: only after its removal the third one is the last.
    let key = second["status"]["artifact"]["key"].as_str().context("a key")?;
    let folder = format!("/data/backups/house/{key}");
    w.exec(&w.s3_pod().await?, "versitygw", &["holdfast-probe", "mv", &folder, "/data/aside"]).await?;
    w.delete("EtcdSnapshot", "third").await?;
    w.step("the last proven one stays", told(w, "third", "holdfast.dev/remove-last=true")).await?;
    ensure!(stored(w, third).await? == 1, "the last proven snapshot went");
    w.patch("EtcdSnapshot", "third", json!({"metadata": {"annotations": {"holdfast.dev/remove-last": "true"}}}))
        .await?;
    w.step("until a person says so", gone(w, "third")).await?;
    left_nothing(w, third).await?;
    let events =
        w.env.kubectl(&["get", "events.v1.events.k8s.io", "-n", &w.ns, "-o", "jsonpath={.items[*].reason}"])?;
    ensure!(events.contains("SnapshotRemoved") && !events.contains("SnapshotLeft"), "{events}");
    Ok(())
}

/// Number of manifests of this object in the bucket.
async fn stored(w: &World, object: &Value) -> Result<usize> {
    Ok(manifests(&w.bucket().await?, object)?.len())
}

/// Waits for the end of an object that is being deleted.
async fn gone(w: &World, name: &str) -> Result<()> {
    until(&format!("{name} to go"), PATIENCE, async || {
        let left = w.names("EtcdSnapshot").await?;
        Ok(if left.iter().any(|there| there == name) { Err(format!("{left:?}")) } else { Ok(()) })
    })
    .await
}

/// Checks that manifest, data, proofs and the record of a started removal are gone.
async fn left_nothing(w: &World, object: &Value) -> Result<()> {
    let key = object["status"]["artifact"]["key"].as_str().context("a key")?;
    let attempt = key.rsplit('/').next().context("an attempt")?;
    let files = w.bucket().await?;
    let left: Vec<&String> = files.iter().filter(|file| file.contains(attempt)).collect();
    ensure!(left.is_empty(), "something of it is left: {left:?}");
    Ok(())
}

async fn told(w: &World, name: &str, words: &str) -> Result<()> {
    let said = |s: &Value| {
        condition(s, "Ready").is_some_and(|(_, reason, message)| reason == "RemovalRefused" && message.contains(words))
    };
    w.wait("EtcdSnapshot", name, words, said).await.map(drop)
}
