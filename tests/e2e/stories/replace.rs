//! Members that are lost and come back whole, and members that only look so: a claim that is gone, a volume that was emptied, many
//! restarts, two volumes of three.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::env::soak;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::probe::Members;
use crate::support::world::{PATIENCE, World};

/// Three voters whose lost members are replaced at once.
async fn three(w: &World, name: &str) -> Result<Members> {
    let mut cluster = make::cluster(name, 3);
    cluster["spec"]["repair"] = json!({"afterSeconds": 0, "keepClaimSeconds": 20});
    w.create(cluster).await?;
    w.step("three voters", w.wait_ready(name, 3)).await?;
    w.fill(name, 300).await?;
    w.members(name).await
}

/// Deletes a member's claim and then its Pod, which has held the claim.
async fn lose(w: &World, member: &str) -> Result<()> {
    w.delete("PersistentVolumeClaim", &format!("data-{member}")).await?;
    w.delete("Pod", member).await
}

/// Waits until etcd lists three voters, and not this one.
async fn replaced(w: &World, cluster: &str, member: &str) -> Result<Members> {
    until(&format!("{member} is replaced"), PATIENCE, async || {
        let now = w.members(cluster).await.map_err(|why| format!("{why:#}"));
        Ok(now.and_then(|now| {
            let gone = now.members.len() == 3 && now.members.iter().all(|m| m.name != member);
            if gone { Ok(()) } else { Err(format!("{now:?}")) }
        }))
    })
    .await?;
    w.wait_ready(cluster, 3).await?;
    w.members(cluster).await
}

/// A claim is deleted with its Pod while clients write; then a volume is emptied.
pub async fn lost_volume(w: &World) -> Result<()> {
    let before = three(w, "heal").await?;
    let lost = before.members[0].name.clone();
    let losing = async {
        lose(w, &lost).await?;
        w.step("a lost claim is replaced", replaced(w, "heal", &lost)).await
    };
    let (wrote, after) = tokio::join!(w.write_for("heal", if soak() { 120 } else { 45 }), losing);
    let (wrote, after) = (wrote?, after?);
    w.step("every acknowledged write is there", w.all_written("heal", &wrote)).await?;
    let digest = w.digest("heal").await?;
    ensure!(after.cluster_id == before.cluster_id, "another cluster: {after:?}");
    let kept = before.members.iter().filter(|m| after.members.contains(m)).count();
    ensure!(kept == 2, "the other two stay: {after:?}");
    let status = w.get("EtcdCluster", "heal").await?["status"].clone();
    ensure!(status["latches"]["replaced"]["member"] == lost, "{status}");
    ensure!(status["latches"]["replaced"]["evidence"]["kind"] == "ClaimGone", "{status}");

    // Within the hour a person decides; two Pods are asked meanwhile.
    let emptied = after.members[1].name.clone();
    let volume = format!("data-{emptied}");
    w.toolbox("hands", &[&volume]).await?;
    w.exec("hands", "probe", &["holdfast-probe", "rm", &format!("/mnt/{volume}/data")]).await?;
    w.delete("Pod", &emptied).await?;
    w.delete_and_wait("Pod", "hands").await?;
    let evidence = w.wait("EtcdMember", &emptied, "two refusals", |m| {
        m["status"]["evidence"]["kind"] == "VolumeRefused"
            && m["status"]["refusals"].as_array().is_some_and(|all| all.len() == 2)
    });
    w.step("an emptied volume is refused in two Pods", evidence).await?;
    ensure!(w.members("heal").await? == after, "one member an hour");
    w.patch("EtcdCluster", "heal", json!({"metadata": {"annotations": {"holdfast.dev/replace": emptied}}})).await?;
    w.step("an emptied volume is replaced", replaced(w, "heal", &emptied)).await?;
    // For 20 s, which reach beyond the replacement or end before on a slow machine.
    until("the kept claim to go", PATIENCE, async || {
        let left = w.names("PersistentVolumeClaim").await?;
        Ok(if left.contains(&volume) { Err(format!("{left:?}")) } else { Ok(()) })
    })
    .await?;
    ensure!(w.digest("heal").await? == digest, "data changed");
    Ok(())
}

/// Pods end again and again, by deletion and by eviction: the members stay who they are.
pub async fn many_restarts(w: &World) -> Result<()> {
    let before = three(w, "firm").await?;
    let digest = w.digest("firm").await?;
    for round in 0..if soak() { 20 } else { 4 } {
        let member = &before.members[round % 3].name;
        if round % 2 == 0 {
            w.delete("Pod", member).await?;
        } else {
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": member}});
            let path = format!("/api/v1/namespaces/{}/pods/{member}/eviction", w.ns);
            let file = tempfile_with(&eviction)?;
            // As `kubectl drain` does: the budget is counted again a moment after a Pod is ready.
            until("the budget allows the eviction", PATIENCE, async || {
                let said = w.env.kubectl(&["create", "--raw", &path, "-f", &file.path().to_string_lossy()]);
                Ok(said.map(drop).map_err(|error| format!("{error:#}")))
            })
            .await?;
        }
        w.step(&format!("{member} is back"), w.wait_ready("firm", 3)).await?;
    }
    ensure!(w.members("firm").await? == before, "the membership changed");
    ensure!(w.digest("firm").await? == digest, "data changed");
    let status = w.get("EtcdCluster", "firm").await?["status"].clone();
    ensure!(status["latches"]["replaced"].is_null() && status["brokenMembers"].is_null(), "{status}");
    Ok(())
}

fn tempfile_with(object: &Value) -> Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), object.to_string())?;
    Ok(file)
}

/// Two volumes of three are gone: the status names each voter, and nothing is removed.
pub async fn two_of_three(w: &World) -> Result<()> {
    let before = three(w, "last").await?;
    let names = w.names("EtcdMember").await?;
    let lost: Vec<&str> = before.members[..2].iter().map(|m| m.name.as_str()).collect();
    for member in &lost {
        lose(w, member).await?;
    }
    let told = w.wait("EtcdCluster", "last", "QuorumLost", |c| {
        let said = condition(c, "Ready").map(|(_, reason, message)| (reason, message));
        said.is_some_and(|(reason, message)| {
            reason == "QuorumLost" && lost.iter().all(|m| message.contains(&format!("{m}: its claim is gone")))
        })
    });
    let told = w.step("each voter is named", told).await?;
    let message = condition(&told, "Ready").context("Ready")?.2;
    ensure!(message.contains(&before.members[2].name) && message.contains("2 of 3 voters are needed"), "{message}");
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    ensure!(w.names("EtcdMember").await? == names, "nobody was removed, and nobody came");
    let status = w.get("EtcdCluster", "last").await?["status"].clone();
    ensure!(status["latches"]["replaced"].is_null(), "{status}");
    Ok(())
}
