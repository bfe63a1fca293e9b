//! Edits of a cluster while its restore still runs: another version, more members, and a deletion. And an alarm in the restored
//! data: the member that raised it is gone, so etcd accepts writes again without a person.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::store_trouble::{PROXY, through};
use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::probe::service;
use crate::support::world::{PATIENCE, World};

pub async fn tell(w: &World) -> Result<()> {
    w.apply(&PROXY.replace("localhost/holdfast-probe:1", &w.env.probe_image)).await?;
    let mut source = make::cluster("source", 1);
    source["spec"]["options"] = json!({"quotaBackendBytes": 16_777_216});
    w.create(source).await?;
    w.step("a source", w.wait_ready("source", 1)).await?;
    let more = ["bulk", "--endpoint", &service("source"), "--bytes", "24MiB", "--value-bytes", "8192"];
    // etcd checks the quota against committed data, a tenth of a second later: the first write may fit in whole.
    let mut full = w.probe_text(&more).await.err();
    if full.is_none() {
        full = w.probe_text(&more).await.err();
    }
    let full = format!("{:#}", full.context("it took more than its quota")?);
    ensure!(full.contains("space exceeded"), "not for its quota: {full}");
    let raised = etcdctl(w, "source", &["alarm", "list"]).await?;
    ensure!(raised.contains("NOSPACE"), "no alarm: {raised}");
    let digest = w.digest("source").await?;
    w.create(make::snapshot("full", "source", json!({ "s3": make::s3() }))).await?;
    w.step("a snapshot with an alarm", w.wait_complete("full")).await?;
    w.wait("Deployment", "s3-fault", "ready", |d| d["status"]["readyReplicas"] == 1).await?;

    // Slow enough to be interrupted in the middle.
    w.fault("slow:20000").await?;
    let key = w.get("EtcdSnapshot", "full").await?["status"]["artifact"]["key"].clone();
    for (name, replicas) in [("grows", 1), ("goes", 3)] {
        w.create(make::restored(name, replicas, json!({"source": {"s3": through(), "key": key}}))).await?;
    }
    for name in ["grows", "goes"] {
        w.step("its data is on its way", w.wait("EtcdCluster", name, "Rebuilding", rebuilds)).await?;
    }
    let first = w.names_with("EtcdMember", "holdfast.dev/cluster=grows").await?;
    w.patch("EtcdCluster", "grows", json!({"spec": {"version": "3.7.3"}})).await?;
    let anew = w.wait("EtcdCluster", "grows", "Rebuilding anew", |c| {
        let members = c["status"]["members"].as_array().filter(|all| !all.is_empty());
        rebuilds(c) && members.is_some_and(|all| all.iter().all(|m| m["name"] != first[0]))
    });
    w.step("another version: its data is on its way again", anew).await?;
    w.patch("EtcdCluster", "grows", json!({"spec": {"replicas": 3}})).await?;
    w.delete_and_wait("EtcdCluster", "goes").await?;
    w.step("deleted meanwhile, it goes without a trace", gone(w, "goes")).await?;
    let under_way = w.get("EtcdCluster", "grows").await?;
    ensure!(rebuilds(&under_way), "it was to be met in the middle: {}", under_way["status"]);
    ensure!(under_way["status"]["latches"].get("formed").is_none(), "{}", under_way["status"]);
    let first = w.names_with("EtcdMember", "holdfast.dev/cluster=grows").await?;
    ensure!(first.len() == 1, "nobody joins what is not there yet: {first:?}");
    w.fault("ok").await?;

    w.step("then it grows", w.wait_ready("grows", 3)).await?;
    let members = w.names_with("EtcdMember", "holdfast.dev/cluster=grows").await?;
    ensure!(members.contains(&first[0]), "the one that was restored is one of them: {members:?}");
    let told = w.get("EtcdCluster", "grows").await?["status"]["restore"].clone();
    let facts = (&told["phase"], &told["cameAlong"]["alarms"], &told["cameAlong"]["learners"]);
    ensure!(facts == (&json!("Formed"), &json!(1), &json!(0)), "{told}");
    let raised = told["cameAlong"]["raised"][0].as_str().unwrap_or_default();
    ensure!(raised.starts_with("NOSPACE of member "), "{told}");
    let cleared = until("the alarm to be cleared", PATIENCE, async || {
        let raised = etcdctl(w, "grows", &["alarm", "list"]).await?;
        Ok(if raised.trim().is_empty() { Ok(()) } else { Err(raised) })
    });
    w.step("an alarm that nobody holds is cleared", cleared).await?;
    ensure!(w.digest("grows").await? == digest, "what was restored is what was saved");
    etcdctl(w, "grows", &["put", "new", "value"]).await?;
    let raised = etcdctl(w, "source", &["alarm", "list"]).await?;
    ensure!(raised.contains("NOSPACE"), "the source's own stays: {raised}");
    ensure!(w.get("EtcdSnapshot", "full").await?["status"]["phase"] == "Complete", "nothing is deleted with a restore");
    Ok(())
}

fn rebuilds(cluster: &Value) -> bool {
    cluster["status"]["restore"]["phase"] == "Rebuilding"
}

async fn gone(w: &World, cluster: &str) -> Result<()> {
    for kind in ["EtcdMember", "Pod", "PersistentVolumeClaim", "Service", "PodDisruptionBudget"] {
        until(&format!("no {kind} of {cluster}"), PATIENCE, async || {
            let left = w.names_with(kind, &format!("holdfast.dev/cluster={cluster}")).await?;
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
        })
        .await?;
    }
    Ok(())
}

async fn etcdctl(w: &World, cluster: &str, args: &[&str]) -> Result<String> {
    let pods = w.names_with("EtcdMember", &format!("holdfast.dev/cluster={cluster}")).await?;
    let pod = pods.first().context("a member")?;
    w.etcdctl(pod, args).await
}
