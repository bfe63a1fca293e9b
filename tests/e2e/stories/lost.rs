//! Lost objects are read back: a Job with its report, a snapshot's status, a cluster's status, and a cluster that was deleted
//! beside its volumes. Nothing is created twice.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("kept", 1)).await?;
    w.create(make::claim("backups", "1Gi")).await?;
    w.toolbox("shelf", &["backups"]).await?;
    w.step("one voter", w.wait_ready("kept", 1)).await?;
    w.fill("kept", 500).await?;
    let to = json!({"pvc": {"claimName": "backups"}});
    w.create(make::snapshot("first", "kept", to.clone())).await?;
    let first = w.step("a snapshot", w.wait_complete("first")).await?;
    ensure!(manifests(w).await?.len() == 1);

    w.operator(0).await?;
    delete_jobs(w, "first").await?;
    w.patch_status(
        "EtcdSnapshot",
        "first",
        json!({"phase": "Running", "completedAt": null, "artifact": null, "source": null}),
    )
    .await?;
    w.operator(1).await?;
    let again = w.step("job, Pod and report gone: the store is asked", w.wait_complete("first")).await?;
    same_artifact(&first, &again)?;
    ensure!(manifests(w).await?.len() == 1, "nothing was saved again: {:?}", manifests(w).await?);

    w.step("a minute, so that the object is no fresh one", async {
        until("the snapshot to be older than a minute", PATIENCE, async || {
            let made: jiff::Timestamp = first["metadata"]["creationTimestamp"].as_str().context("created")?.parse()?;
            let age = jiff::Timestamp::now().duration_since(made).as_secs();
            Ok(if age > 62 { Ok(()) } else { Err(format!("{age} s")) })
        })
        .await
    })
    .await?;
    delete_jobs(w, "first").await?;
    w.patch_status("EtcdSnapshot", "first", Value::Null).await?;
    let again = w.step("a lost status is read back from the store", w.wait_complete("first")).await?;
    same_artifact(&first, &again)?;
    ensure!(manifests(w).await?.len() == 1, "nothing was saved again");

    w.delete_and_wait("EtcdSnapshot", "first").await?;
    w.create(make::snapshot("first", "kept", to)).await?;
    let other = w.step("made again under the same name: another artifact", w.wait_complete("first")).await?;
    ensure!(other["status"]["artifact"]["key"] != first["status"]["artifact"]["key"], "{}", other["status"]);
    ensure!(manifests(w).await?.len() == 2, "what was stored stays");

    let before = w.members("kept").await?;
    let objects = w.names("EtcdMember").await?;
    w.patch_status("EtcdCluster", "kept", Value::Null).await?;
    w.step("the cluster's status is read back", w.wait_ready("kept", 1)).await?;
    ensure!(w.members("kept").await? == before && w.names("EtcdMember").await? == objects, "nothing was made anew");
    let status = w.get("EtcdCluster", "kept").await?["status"].clone();
    ensure!(status["latches"]["formed"]["clusterID"] == before.cluster_id, "{status}");
    Ok(())
}

/// A new cluster beside the volumes of an earlier cluster of its name waits for a person.
pub async fn beside_volumes(w: &World) -> Result<()> {
    let mut kept = make::cluster("house", 1);
    kept["spec"]["storage"]["retention"] = json!("Retain");
    w.create(kept.clone()).await?;
    w.step("one voter", w.wait_ready("house", 1)).await?;
    w.fill("house", 50).await?;
    let formed = w.get("EtcdCluster", "house").await?;
    let goes = async {
        w.delete_and_wait("EtcdCluster", "house").await?;
        until("its member to go", PATIENCE, async || {
            let left = w.names("EtcdMember").await?;
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("still there: {left:?}")) })
        })
        .await
    };
    w.step("it goes, its volume stays", goes).await?;
    w.create(kept.clone()).await?;
    let waits = w.wait("EtcdCluster", "house", "ForeignVolumesFound", |c| {
        condition(c, "Ready").is_some_and(|(status, reason, _)| status == "False" && reason == "ForeignVolumesFound")
    });
    let waits = w.step("made anew, it waits", waits).await?;
    let claims = w.names_with("PersistentVolumeClaim", "holdfast.dev/cluster=house").await?;
    let [claim] = &claims[..] else { anyhow::bail!("{claims:?}") };
    ensure!(condition(&waits, "Ready").is_some_and(|(.., words)| words.contains(claim)), "{}", waits["status"]);
    ensure!(w.names("EtcdMember").await?.is_empty(), "nothing was founded");

    w.step("brought back with its status, it says so", brought_back(w, &formed, claim)).await?;
    w.delete_and_wait("EtcdCluster", "house").await?;
    w.create(kept).await?;

    let unlabelled = json!({"metadata": {"labels": {"holdfast.dev/cluster": null}}});
    w.patch("PersistentVolumeClaim", claim, unlabelled).await?;
    w.step("with the label off it is founded", w.wait_ready("house", 1)).await?;
    let still = w.get("PersistentVolumeClaim", claim).await?;
    ensure!(still["metadata"]["deletionTimestamp"].is_null(), "the old volume stays");
    Ok(())
}

/// A tool writes the status of the earlier cluster into the new cluster.
async fn brought_back(w: &World, formed: &Value, claim: &str) -> Result<()> {
    w.patch_status("EtcdCluster", "house", formed["status"].clone()).await?;
    let told = |c: &Value| condition(c, "Ready").is_some_and(|(_, reason, _)| reason == "ForeignStatusFound");
    let told = w.wait("EtcdCluster", "house", "ForeignStatusFound", told).await?;
    let uid = formed["metadata"]["uid"].as_str().context("a UID")?;
    let words = condition(&told, "Available").context("Available")?.2;
    ensure!(words.contains(uid) && words.contains(claim), "{words}");
    ensure!(w.names("EtcdMember").await?.is_empty(), "nothing was founded");
    let names =
        |c: &Value| c["status"]["members"].as_array().map(|all| all.iter().map(|m| m["name"].clone()).collect());
    let names: [Option<Vec<Value>>; 2] = [formed, &told].map(names);
    ensure!(names[0].is_some() && names[0] == names[1], "{names:?}");
    Ok(())
}

fn same_artifact(before: &Value, after: &Value) -> Result<()> {
    for field in ["key", "uri", "sha256", "storedBytes", "dbBytes", "etcdVersion"] {
        let (old, new) = (&before["status"]["artifact"][field], &after["status"]["artifact"][field]);
        ensure!(old == new && !old.is_null(), "{field}: {old} became {new}");
    }
    Ok(())
}

/// The manifests on the backup volume.
async fn manifests(w: &World) -> Result<Vec<String>> {
    let mut files = w.files("shelf", "/mnt/backups").await?;
    files.retain(|file| file.contains("manifest.json"));
    Ok(files)
}

async fn delete_jobs(w: &World, snapshot: &str) -> Result<()> {
    for job in w.names_with("Job", &format!("holdfast.dev/snapshot={snapshot}")).await? {
        w.delete_and_wait("Job", &job).await?;
    }
    let selector = format!("holdfast.dev/snapshot={snapshot}");
    until("the Jobs' Pods to go", PATIENCE, async || {
        let left = w.names_with("Pod", &selector).await?;
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
    })
    .await
}

impl World {
    /// Scales the operator, and waits until its Deployment has that size.
    pub async fn operator(&self, replicas: u32) -> Result<()> {
        self.patch("Deployment", "holdfast", json!({"spec": {"replicas": replicas}})).await?;
        let there = |d: &Value| d["status"]["readyReplicas"].as_u64().unwrap_or(0) == u64::from(replicas);
        self.wait("Deployment", "holdfast", &format!("{replicas} operators"), there).await?;
        until("the other operators to go", PATIENCE, async || {
            let there = self.names_with("Pod", "app.kubernetes.io/name=holdfast").await?;
            Ok(if there.len() == replicas as usize { Ok(()) } else { Err(format!("{there:?}")) })
        })
        .await
    }
}
