//! The main case: three members, a history, a snapshot to S3 and one to a volume, the cluster deleted, a new cluster from each, and
//! every key, value, version and lease the same.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::env::ETCD_VERSION;
use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    on(w, ETCD_VERSION).await
}

/// On the oldest supported minor: one learner at a time, no storage version.
pub async fn on_3_5(w: &World) -> Result<()> {
    on(w, "3.5.35").await
}

/// On the newest supported minor.
pub async fn on_3_7(w: &World) -> Result<()> {
    on(w, "3.7.3").await
}

async fn on(w: &World, version: &str) -> Result<()> {
    let of_version = |mut cluster: Value| {
        cluster["spec"]["version"] = json!(version);
        cluster
    };
    w.create(of_version(make::cluster("alpha", 3))).await?;
    w.create(make::claim("backups", "1Gi")).await?;
    w.step("alpha has three voters", w.wait_ready("alpha", 3)).await?;
    // All members on the testbed's one node are a risk, not a failure.
    let sound = w.wait("EtcdCluster", "alpha", "not degraded", |c| {
        condition(c, "Degraded").is_some_and(|(status, ..)| status == "False") && condition(c, "AtRisk").is_some()
    });
    w.step("a healthy cluster is not degraded", sound).await?;
    w.step("fill alpha", w.fill("alpha", 5_000)).await?;
    let before = w.digest("alpha").await?;
    ensure!(before.leases > 0, "the history holds leases: {before:?}");

    w.create(make::snapshot("to-s3", "alpha", json!({ "s3": make::s3() }))).await?;
    w.create(make::snapshot("to-pvc", "alpha", json!({"pvc": {"claimName": "backups", "subPath": "house"}}))).await?;
    let s3 = w.step("snapshot to S3", w.wait_complete("to-s3")).await?;
    let pvc = w.step("snapshot to a volume", w.wait_complete("to-pvc")).await?;
    ensure!(s3["status"]["artifact"]["sha256"].as_str().is_some_and(|s| s.len() == 64), "{}", s3["status"]);

    let newest = [&s3, &pvc].map(|done| done["status"]["completedAt"].as_str().unwrap_or_default()).into_iter().max();
    let newest = newest.map(str::to_owned);
    let told = w.wait("EtcdCluster", "alpha", "its last snapshot", |c| {
        let last = &c["status"]["lastSnapshot"];
        last["completedAt"].as_str() == newest.as_deref() && last["level"] == "HashKV"
    });
    w.step("alpha tells of its newest snapshot", told).await?;

    for done in [&s3, &pvc] {
        let (artifact, verified) = (&done["status"]["artifact"], &done["status"]["verification"]);
        let said = (&artifact["keys"], &verified["level"]);
        ensure!(said == (&json!(before.keys), &json!("HashKV")), "{}", done["status"]);
        // A member that was too slow to be asked is named.
        let agreed = verified["agreedBy"].as_array().map_or(0, Vec::len);
        let named =
            verified["message"].as_str().is_some_and(|said| said.contains("; not compared with another member: "));
        ensure!(agreed == 2 || agreed == 1 && named, "{}", done["status"]);
        let pod = w.members("alpha").await?.members[0].name.clone();
        let at = format!("--rev={}", artifact["revision"]);
        let live = w.etcdctl(&pod, &["endpoint", "hashkv", "-w", "json", &at]).await?;
        let live: Value = serde_json::from_str(&live)?;
        ensure!(live[0]["HashKV"]["hash"] == artifact["hashKV"], "etcd says {live}, the snapshot {artifact}");
    }

    w.step("delete alpha", w.delete_and_wait("EtcdCluster", "alpha")).await?;

    w.create(of_version(make::restored("beta", 3, json!({"snapshotRef": {"name": "to-s3"}})))).await?;
    let source = json!({
        "pvc": {"claimName": "backups", "subPath": "house"},
        "key": pvc["status"]["artifact"]["key"],
    });
    w.create(of_version(make::restored("gamma", 3, json!({ "source": source })))).await?;
    w.step("beta restored from S3, three voters", w.wait_ready("beta", 3)).await?;
    w.step("gamma restored from the volume, three voters", w.wait_ready("gamma", 3)).await?;
    let beta = w.digest("beta").await?;
    let gamma = w.digest("gamma").await?;
    ensure!(beta == before, "beta holds {beta:?}, alpha held {before:?}");
    ensure!(gamma == before, "gamma holds {gamma:?}, alpha held {before:?}");

    let status = w.get("EtcdCluster", "beta").await?["status"].clone();
    ensure!(status["version"] == version, "the servers' own word: {status}");
    let lineage = &status["restore"];
    ensure!(
        lineage["fromCluster"] == format!("{}/alpha", w.ns) && lineage["snapshot"] == "to-s3",
        "lineage: {lineage}"
    );
    ensure!(lineage["revision"] == s3["status"]["artifact"]["revision"], "lineage: {lineage}");
    let pod = w.members("beta").await?.members[0].name.clone();
    // No client sees a revision twice: the revision has advanced, and earlier revisions count as compacted.
    let got: Value = serde_json::from_str(&w.etcdctl(&pod, &["get", "none", "-w", "json"]).await?)?;
    let now = got["header"]["revision"].as_i64().unwrap_or_default();
    ensure!(now >= lineage["revision"].as_i64().unwrap_or(i64::MAX).saturating_add(1_000_000_000), "{got}, {lineage}");
    let listed = w.etcdctl(&pod, &["member", "list"]).await?;
    ensure!(listed.lines().count() == 3, "etcdctl works in the Pod as it is: {listed}");
    Ok(())
}
