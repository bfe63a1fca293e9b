//! Members in memory: a deleted Pod is a lost member, and another member takes its place while clients write; after the deletion of
//! all Pods the data are lost, and Holdfast creates nothing in their place.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::robustness::etcd_of;
use crate::support::env::soak;
use crate::support::host_operator::send;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::probe::Members;
use crate::support::world::{PATIENCE, World};

pub async fn tell(w: &World) -> Result<()> {
    let mut cluster = make::cluster("quick", 3);
    cluster["spec"]["storage"] = json!({"medium": "Memory", "size": "256Mi"});
    w.create(cluster).await?;
    w.step("three voters in memory", w.wait_ready("quick", 3)).await?;
    w.fill("quick", 300).await?;
    let before = w.members("quick").await?;
    let claims = w.names_with("PersistentVolumeClaim", "holdfast.dev/cluster=quick").await?;
    ensure!(claims.is_empty(), "members in memory have no claims: {claims:?}");
    immutable(w).await?;
    restarted(w, &before).await?;
    let after = replaced(w, &before).await?;
    all_lost(w, &after).await
}

/// The API server refuses changes of immutable fields.
async fn immutable(w: &World) -> Result<()> {
    for (spec, word) in [
        (json!({"storage": {"medium": ""}}), "storage.medium is immutable"),
        (json!({"replicas": 0}), "replicas 0 would end every Pod"),
    ] {
        let refused = w.patch("EtcdCluster", "quick", json!({"spec": spec})).await.err().context("it was accepted")?;
        ensure!(format!("{refused:#}").contains(word), "{refused:#}");
    }
    Ok(())
}

/// etcd ends, and kubelet restarts the container in the same Pod: the member continues with its data.
async fn restarted(w: &World, before: &Members) -> Result<()> {
    let name = &before.members[0].name;
    let uid = w.get("Pod", name).await?["metadata"]["uid"].clone();
    let digest = w.digest("quick").await?;
    send("KILL", etcd_of(&w.ns, name)?)?;
    let again = w.wait("Pod", name, "a second start", |pod| {
        let etcd =
            pod["status"]["containerStatuses"].as_array().and_then(|all| all.iter().find(|c| c["name"] == "etcd"));
        etcd.is_some_and(|etcd| etcd["restartCount"].as_u64() > Some(0) && etcd["ready"] == true)
    });
    let again = w.step("etcd starts again in its Pod", again).await?;
    ensure!(again["metadata"]["uid"] == uid, "it is another Pod");
    w.wait_ready("quick", 3).await?;
    ensure!(w.members("quick").await? == *before, "the membership changed");
    ensure!(w.digest("quick").await? == digest, "data changed");
    Ok(())
}

/// A Pod is deleted while clients write: no acknowledged write is missing, and three members vote again, one of them new.
async fn replaced(w: &World, before: &Members) -> Result<Members> {
    let lost = before.members[1].name.clone();
    let losing = async {
        w.delete("Pod", &lost).await?;
        let gone = until("another member votes", PATIENCE, async || {
            let now = w.members("quick").await.map_err(|why| format!("{why:#}"));
            Ok(now.and_then(|now| {
                let whole = now.members.len() == 3 && now.members.iter().all(|m| m.name != lost && !m.is_learner);
                if whole { Ok(now) } else { Err(format!("{now:?}")) }
            }))
        });
        let now = w.step("a lost Pod is a lost member", gone).await?;
        w.wait_ready("quick", 3).await?;
        anyhow::Ok(now)
    };
    let (wrote, after) = tokio::join!(w.write_for("quick", if soak() { 90 } else { 30 }), losing);
    let (wrote, after) = (wrote?, after?);
    w.step("every acknowledged write is there", w.all_written("quick", &wrote)).await?;
    ensure!(after.cluster_id == before.cluster_id, "another cluster: {after:?}");
    let kept = before.members.iter().filter(|m| after.members.contains(m)).count();
    ensure!(kept == 2, "the other two stay: {after:?}");
    let latched = w.get("EtcdCluster", "quick").await?["status"]["latches"]["replaced"].clone();
    ensure!(latched["member"] == lost && latched["evidence"]["kind"] == "MemoryGone", "{latched}");
    Ok(after)
}

/// All Pods are deleted at once.
async fn all_lost(w: &World, before: &Members) -> Result<()> {
    let names = w.names("EtcdMember").await?;
    let pods: Vec<&str> = before.members.iter().map(|m| m.name.as_str()).collect();
    let delete = ["delete", "pods", "-n", &w.ns, "--wait=false"];
    w.env.kubectl(&[&delete, pods.as_slice()].concat())?;
    let told = w.wait("EtcdCluster", "quick", "DataLost", |c| {
        condition(c, "Ready").is_some_and(|(status, reason, _)| status == "False" && reason == "DataLost")
    });
    w.step("the loss of all is told", told).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    ensure!(w.names("EtcdMember").await? == names, "nobody was removed, and nobody came");
    let left = w.names_with("Pod", "holdfast.dev/cluster=quick,app.kubernetes.io/component=etcd-member").await?;
    ensure!(left.is_empty(), "Pods were made anew: {left:?}");
    w.delete_and_wait("EtcdCluster", "quick").await
}
