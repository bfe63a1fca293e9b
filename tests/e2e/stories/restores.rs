//! Restores beyond the usual case: from each minor version into the next with three members, by both engines and on older
//! patches; a raw file; and users without a login, until the spec names another snapshot.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::probe::service;
use crate::support::world::{PATIENCE, World};

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::claim("backups", "1Gi")).await?;
    w.create(of_version("old", 1, "3.5.27", None)).await?;
    w.step("one voter of 3.5", w.wait_ready("old", 1)).await?;
    w.fill("old", 2_000).await?;
    let before = w.digest("old").await?;
    let first = w.step("a snapshot of 3.5", saved(w, "first", "old", json!("none"))).await?;
    // The node has room for the members of four stories, not for those of ten clusters.
    w.delete("EtcdCluster", "old").await?;

    let by_key = |key: &str| json!({"source": {"pvc": {"claimName": "backups"}, "key": key}});
    w.create(of_version("newer", 3, "3.6.16", Some(by_key(&first)))).await?;
    let mut copied = by_key(&format!("{first}/snapshot.db"));
    copied["engine"] = json!("etcdutl");
    w.create(of_version("raw", 1, "3.6.11", Some(copied))).await?;
    w.step("3.5 into 3.6 by grafting, three voters", w.wait_ready("newer", 3)).await?;
    w.step("nothing that was restored from stays mounted", let_go(w, "newer")).await?;
    w.step("a raw file", w.wait_ready("raw", 1)).await?;
    for name in ["newer", "raw"] {
        ensure!(w.digest(name).await? == before, "{name} holds what was saved");
    }
    let told = w.get("EtcdCluster", "newer").await?["status"]["restore"].clone();
    let facts = (&told["phase"], &told["engine"], told["fellBack"].is_null(), &told["cameAlong"]["members"]);
    ensure!(facts == (&json!("Formed"), &json!("graft"), true, &json!(1)), "{told}");
    let told = w.get("EtcdCluster", "raw").await?["status"]["restore"].clone();
    ensure!(told["engine"] == "etcdutl" && told["revision"].is_i64(), "{told}");

    let second = w.step("a snapshot of 3.6", saved(w, "second", "newer", json!("zstd"))).await?;
    w.delete("EtcdCluster", "newer").await?;
    w.create(of_version("newest", 3, "3.7.1", Some(by_key(&second)))).await?;
    written_meanwhile(w, "newest").await?;
    ensure!(w.digest("newest").await? == before, "newest holds what was saved");

    users(w, by_key(&first)).await
}

/// A client writes from the first answer on, while the cluster grows to three members and the restoring Pod is replaced: no
/// acknowledged write is lost. The client's keys are deleted at the end.
async fn written_meanwhile(w: &World, cluster: &str) -> Result<()> {
    let served = |c: &Value| condition(c, "Available").is_some_and(|(status, ..)| status == "True");
    w.step("the first member serves", w.wait("EtcdCluster", cluster, "Available", served)).await?;
    let endpoint = service(cluster);
    let writer = ["writer", "--endpoint", &endpoint, "--duration", "25s"];
    let writing = w.probe::<Value>(&writer);
    let growing = async {
        w.step("three voters under writes", w.wait_ready(cluster, 3)).await?;
        w.step("nothing that was restored from stays mounted", let_go(w, cluster)).await
    };
    let (wrote, grown) = tokio::join!(writing, growing);
    grown?;
    let wrote = wrote?;
    let last = wrote["lastAcked"].as_u64().filter(|last| *last > 0).with_context(|| format!("no write: {wrote}"))?;
    eprintln!("e2e: {}: {wrote}", w.story);
    let last = last.to_string();
    w.step("all is there", w.probe_text(&["written", "--endpoint", &endpoint, "--last", &last])).await?;
    let member = w.names_with("EtcdMember", &format!("holdfast.dev/cluster={cluster}")).await?.pop();
    w.etcdctl(&member.context("a member")?, &["del", "--prefix", "writer/"]).await.map(drop)
}

/// The restoring Pod of three was replaced once: no Pod has the restore step or the claim of the snapshot any more.
async fn let_go(w: &World, cluster: &str) -> Result<()> {
    let members = w.names_with("EtcdMember", &format!("holdfast.dev/cluster={cluster}")).await?;
    ensure!(members.len() == 3, "{members:?}");
    until("each Pod to hold its own volume alone", PATIENCE, async || {
        let mut starts = vec![];
        for member in &members {
            let spec = w.get("Pod", member).await?["spec"].clone();
            let steps = spec["initContainers"].as_array().context("steps")?;
            let volumes = spec["volumes"].as_array().context("volumes")?;
            let restores = steps.iter().any(|step| step["name"] == "restore");
            let source = volumes.iter().any(|v| v["persistentVolumeClaim"]["claimName"] == "backups");
            if restores || source {
                return Ok(Err(format!("{member} keeps {spec}")));
            }
            starts.push(w.get("EtcdMember", member).await?["spec"]["startCount"].as_u64().unwrap_or(0));
        }
        starts.sort_unstable();
        Ok(if starts == [1, 1, 2] { Ok(()) } else { Err(format!("Pods that have served: {starts:?}")) })
    })
    .await
}

/// The restore of a snapshot from an etcd that requires a login is refused before etcd starts, and the cluster continues with
/// another snapshot.
async fn users(w: &World, good: Value) -> Result<()> {
    for command in [
        &["user", "add", "root:canary-password"][..],
        &["role", "add", "root"],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        let pod = w.names_with("EtcdMember", "holdfast.dev/cluster=raw").await?.pop().context("a member of raw")?;
        w.etcdctl(&pod, command).await?;
    }
    w.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "root"},
        "stringData": {"username": "root", "password": "canary-password"},
    }))
    .await?;
    let mut snapshot = make::snapshot("locked", "raw", json!({"pvc": {"claimName": "backups"}}));
    let spec = snapshot["spec"].as_object_mut().context("a spec")?;
    spec.remove("clusterRef");
    let endpoint = format!("http://raw-client.{}.svc:2379", w.ns);
    spec.insert("external".to_owned(), json!({"endpoints": [endpoint], "authSecretRef": {"name": "root"}}));
    w.create(snapshot).await?;
    w.step("a snapshot with users", w.wait_complete("locked")).await?;

    w.create(of_version("locked", 1, "3.6.16", Some(json!({"snapshotRef": {"name": "locked"}})))).await?;
    let refused = w.wait("EtcdCluster", "locked", "AuthRequiredNotConfigured", |c| {
        // kubelet repeats the step now and then, and the step runs for a moment.
        c["status"]["restore"]["phase"] == "Failed"
            && condition(c, "Degraded")
                .is_some_and(|(status, reason, _)| status == "True" && reason == "AuthRequiredNotConfigured")
    });
    let refused = w.step("users that nobody can log in as are refused", refused).await?;
    ensure!(!refused.to_string().contains("canary"), "{refused}");
    w.patch(
        "EtcdCluster",
        "locked",
        json!({"spec": {"bootstrap": {"restore": {
            "snapshotRef": null, "source": good["source"],
        }}}}),
    )
    .await?;
    w.step("corrected, it goes on", w.wait_ready("locked", 1)).await
}

fn of_version(name: &str, replicas: i32, version: &str, restore: Option<Value>) -> Value {
    let mut cluster =
        restore.map_or_else(|| make::cluster(name, replicas), |from| make::restored(name, replicas, from));
    cluster["spec"]["version"] = json!(version);
    cluster
}

/// Saves a snapshot; returns its key on the volume.
async fn saved(w: &World, name: &str, cluster: &str, compression: Value) -> Result<String> {
    let mut snapshot = make::snapshot(name, cluster, json!({"pvc": {"claimName": "backups"}}));
    snapshot["spec"]["compression"] = compression;
    w.create(snapshot).await?;
    let done = w.wait_complete(name).await?;
    Ok(done["status"]["artifact"]["key"].as_str().context("a key")?.to_owned())
}
