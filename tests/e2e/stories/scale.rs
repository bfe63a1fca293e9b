//! Fewer members, no members, and back, with unchanged data and identity of the cluster.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::env::soak;
use crate::support::host_operator::Seat;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

async fn scale(w: &World, cluster: &str, replicas: usize) -> Result<()> {
    let scale = json!({"spec": {"replicas": replicas}});
    // Like `kubectl scale` and an autoscaler.
    w.env.kubectl(&[
        "patch",
        "etcdc",
        cluster,
        "-n",
        &w.ns,
        "--subresource=scale",
        "--type=merge",
        "-p",
        &scale.to_string(),
    ])?;
    let what = format!("{cluster} scaled to {replicas}");
    if replicas > 0 {
        w.step(&what, w.wait_ready(cluster, replicas)).await?;
        return only(w, cluster, replicas).await;
    }
    let parked = w.wait("EtcdCluster", cluster, "Parked", |c| {
        condition(c, "Ready").is_some_and(|(status, reason, _)| status == "True" && reason == "Parked")
    });
    w.step(&what, parked).await?;
    let pods = member_pods(w, cluster).await?;
    ensure!(pods.is_empty(), "a parked cluster has no Pods: {pods:?}");
    Ok(())
}

async fn member_pods(w: &World, cluster: &str) -> Result<Vec<String>> {
    w.names_with("Pod", &format!("holdfast.dev/cluster={cluster},app.kubernetes.io/component=etcd-member")).await
}

/// Waits until members that etcd does not list left nothing behind.
async fn only(w: &World, cluster: &str, members: usize) -> Result<()> {
    until(&format!("{members} members, Pods and claims"), PATIENCE, async || {
        let mut found = vec![];
        for kind in ["EtcdMember", "Pod", "PersistentVolumeClaim"] {
            let selector = format!("holdfast.dev/cluster={cluster},app.kubernetes.io/component!=snapshot-agent");
            found.push((kind, w.names_with(kind, &selector).await?.len()));
        }
        Ok(if found.iter().all(|(_, count)| *count == members) { Ok(()) } else { Err(format!("{found:?}")) })
    })
    .await
}

/// Five voters become three and one; the disruption budget goes with the second voter.
pub async fn shrink(w: &World) -> Result<()> {
    // 3.5 accepts one learner at a time, so growing to five voters takes long.
    for (version, size) in [("3.5.35", 3), ("3.6.16", 3), ("3.7.3", 5)] {
        let name = format!("s{}", version.replace('.', ""));
        let mut cluster = make::cluster(&name, size);
        cluster["spec"]["version"] = json!(version);
        w.create(cluster).await?;
        let size = usize::try_from(size)?;
        w.step(&format!("{size} voters of {version}"), w.wait_ready(&name, size)).await?;
        w.fill(&name, 300).await?;
        let (digest, before) = (w.digest(&name).await?, w.members(&name).await?);
        if size == 5 {
            scale(w, &name, 3).await?;
        }
        scale(w, &name, 1).await?;
        let after = w.members(&name).await?;
        ensure!(after.cluster_id == before.cluster_id, "another cluster: {after:?}");
        ensure!(before.members.contains(&after.members[0]), "an old member is left: {after:?}");
        ensure!(w.digest(&name).await? == digest, "data changed");
        until("no disruption budget for one voter", PATIENCE, async || {
            let left = w.names("PodDisruptionBudget").await?;
            Ok(if left.contains(&name) { Err(format!("{left:?}")) } else { Ok(()) })
        })
        .await?;
        // Claims are kept where the spec retains them, even after a recent edit.
        w.patch("EtcdCluster", &name, json!({"spec": {"storage": {"retention": "Retain"}}})).await?;
        w.patch("EtcdCluster", &name, json!({"spec": {"replicas": 2}})).await?;
        w.step("grown again", w.wait_ready(&name, 2)).await?;
        w.patch("EtcdCluster", &name, json!({"spec": {"replicas": 1}})).await?;
        w.step("and smaller", w.wait_ready(&name, 1)).await?;
        until("one member, two claims", PATIENCE, async || {
            let selector = format!("holdfast.dev/cluster={name}");
            let members = w.names_with("EtcdMember", &selector).await?.len();
            let claims = w.names_with("PersistentVolumeClaim", &selector).await?.len();
            Ok(if (members, claims) == (1, 2) { Ok(()) } else { Err(format!("{members} and {claims}")) })
        })
        .await?;
        w.delete_and_wait("EtcdCluster", &name).await?;
    }
    Ok(())
}

/// Scales to zero and back: the same members on the same volumes. A snapshot waits meanwhile.
pub async fn park(w: &World) -> Result<()> {
    w.create(make::cluster("p", 3)).await?;
    w.step("three voters", w.wait_ready("p", 3)).await?;
    w.fill("p", 300).await?;
    let (digest, members, claims) = (w.digest("p").await?, w.members("p").await?, claims(w).await?);
    scale(w, "p", 0).await?;
    ensure!(claims == self::claims(w).await?, "every claim stays");
    w.create(make::snapshot("waits", "p", json!({ "s3": make::s3() }))).await?;
    let told = w.wait("EtcdSnapshot", "waits", "told why", |s| {
        condition(s, "Ready").is_some_and(|(_, _, message)| message.contains("is parked"))
    });
    w.step("a snapshot waits", told).await?;
    let unavailable = w.get("EtcdCluster", "p").await?;
    let available = condition(&unavailable, "Available").context("Available")?;
    ensure!((available.0, available.1) == ("False", "Parked"), "{available:?}");
    let versions = versions(w).await?;
    tokio::time::sleep(std::time::Duration::from_secs(if soak() { 600 } else { 20 })).await;
    ensure!(self::versions(w).await? == versions, "nothing is written while parked");
    scale(w, "p", 3).await?;
    ensure!(w.members("p").await? == members, "the members are the same");
    ensure!(w.digest("p").await? == digest, "data changed");
    w.step("the snapshot is saved", w.wait_complete("waits")).await?;

    w.create(make::cluster("later", 0)).await?;
    let parked = w.wait("EtcdCluster", "later", "Parked", |c| {
        condition(c, "Ready").is_some_and(|(status, reason, _)| status == "True" && reason == "Parked")
    });
    w.step("zero at creation", parked).await?;
    scale(w, "later", 1).await
}

async fn claims(w: &World) -> Result<BTreeSet<String>> {
    Ok(w.names_with("PersistentVolumeClaim", "holdfast.dev/cluster=p").await?.into_iter().collect())
}

async fn versions(w: &World) -> Result<Vec<Value>> {
    let mut all = vec![w.get("EtcdCluster", "p").await?["metadata"]["resourceVersion"].clone()];
    for member in w.names_with("EtcdMember", "holdfast.dev/cluster=p").await? {
        all.push(w.get("EtcdMember", &member).await?["metadata"]["resourceVersion"].clone());
    }
    Ok(all)
}

/// A hundred writers through the client Service while the cluster goes 3 → 5 → 3 → 1 → 3: no acknowledged write is lost.
pub async fn under_writers(w: &World) -> Result<()> {
    w.create(make::cluster("w", 3)).await?;
    w.step("three voters", w.wait_ready("w", 3)).await?;
    let sizes: &[usize] = if soak() { &[5, 3, 1, 3, 2, 5, 1, 3] } else { &[5, 3, 1, 3] };
    let writing = w.write_for("w", if soak() { 180 } else { 75 });
    let scaling = async {
        for size in sizes {
            scale(w, "w", *size).await?;
        }
        anyhow::Ok(())
    };
    let (wrote, scaled) = tokio::join!(writing, scaling);
    scaled?;
    let wrote = wrote?;
    w.step("every acknowledged write is there", w.all_written("w", &wrote)).await?;
    ensure!(wrote.total > 1_000, "hardly anything was written: {wrote:?}");
    eprintln!(
        "e2e: {}: {} writes acknowledged, {} attempts failed, longest gap {:.0} ms",
        w.story, wrote.total, wrote.failed, wrote.longest_gap_ms
    );
    Ok(())
}

/// Milliseconds between the edit to five voters, or to three, and the kill of the operator.
const DELAYS: [u64; 10] = [0, 100, 300, 700, 1200, 2000, 3000, 4500, 6500, 9000];

/// The operator is killed at ten moments of 3 → 5 and 5 → 3, and restarted: each time the cluster reaches its size, with its data.
pub async fn killed(w: &World) -> Result<()> {
    let seat = Seat::new(w, "host", None).await?;
    let mut operator = seat.start(&[])?;
    w.create(make::cluster("k", 3)).await?;
    w.step("three voters", w.wait_ready("k", 3)).await?;
    w.fill("k", 300).await?;
    let digest = w.digest("k").await?;
    let rounds = if soak() { &DELAYS[..] } else { &[DELAYS[1], DELAYS[4], DELAYS[7]] };
    for delay in rounds {
        for size in [5, 3] {
            w.patch("EtcdCluster", "k", json!({"spec": {"replicas": size}})).await?;
            tokio::time::sleep(std::time::Duration::from_millis(*delay)).await;
            operator.kill()?;
            operator = seat.start(&[])?;
            w.step(&format!("{size} voters, killed after {delay} ms"), w.wait_ready("k", size)).await?;
            only(w, "k", size).await?;
        }
        ensure!(w.digest("k").await? == digest, "data changed");
    }
    seat.no_defects()
}
