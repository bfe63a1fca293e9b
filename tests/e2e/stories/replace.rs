//! Members that are lost and are replaced, and members that only appear lost: a missing claim, an emptied volume, a corrupt log,
//! data that differ from the others', many restarts, two volumes of three.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::env::soak;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::probe::Members;
use crate::support::world::{PATIENCE, World};

/// Creates three voters whose lost members are replaced at once, and whose claims are kept for `keep` seconds.
async fn three(w: &World, name: &str, keep: u32) -> Result<Members> {
    let mut cluster = make::cluster(name, 3);
    cluster["spec"]["repair"] = json!({"afterSeconds": 0, "keepClaimSeconds": keep});
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
    let before = three(w, "heal", 20).await?;
    let lost = before.members[0].name.clone();
    let losing = async {
        lose(w, &lost).await?;
        w.step("a lost claim is replaced", replaced(w, "heal", &lost)).await
    };
    let (wrote, after) = tokio::join!(w.write_for("heal", if soak() { 120 } else { 45 }), losing);
    let (wrote, after) = (wrote?, after?);
    w.step("every acknowledged write is there", w.all_written("heal", &wrote)).await?;
    let digest = w.digest("heal").await?;
    judge(w, "heal", &lost, "ClaimGone", (&before, &after)).await?;

    // Within the hour a person decides; before that, two Pods meet the volume.
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
    // The claim is kept for 20 s, which end after the replacement or, on a slow machine, before.
    until("the kept claim to go", PATIENCE, async || {
        let left = w.names("PersistentVolumeClaim").await?;
        Ok(if left.contains(&volume) { Err(format!("{left:?}")) } else { Ok(()) })
    })
    .await?;
    ensure!(w.digest("heal").await? == digest, "data changed");
    Ok(())
}

/// A value that each member holds, in its log and in its database.
const VALUE: &str = "a value that one member has otherwise";

/// Writes the value; returns its revision.
async fn put_value(w: &World, member: &str) -> Result<u64> {
    let said = w.etcdctl(member, &["put", "/holdfast/value", VALUE, "--write-out=json"]).await?;
    let said: Value = serde_json::from_str(said.trim())?;
    // From the log to the database etcd takes a tenth of a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    said["header"]["revision"].as_u64().with_context(|| format!("no revision: {said}"))
}

/// Inverts a bit of the value in a file below a member's data folder, while its etcd runs.
async fn spoil(w: &World, member: &str, folder: &str, ends: &str) -> Result<()> {
    let volume = format!("data-{member}");
    w.toolbox("hands", &[&volume]).await?;
    let files = w.files("hands", &format!("/mnt/{volume}/data/member/{folder}")).await?;
    let paths = files.iter().filter_map(|file| file.split(' ').next());
    let path = paths.into_iter().find(|path| path.ends_with(ends)).with_context(|| format!("{files:?}"))?;
    w.exec("hands", "probe", &["holdfast-probe", "flip", "--file", path, "--text", VALUE]).await?;
    w.delete_and_wait("Pod", "hands").await
}

/// Checks that the other two members stayed, and that this one was replaced for this loss.
async fn judge(w: &World, cluster: &str, lost: &str, kind: &str, (before, after): (&Members, &Members)) -> Result<()> {
    ensure!(after.cluster_id == before.cluster_id, "another cluster: {after:?}");
    let kept = before.members.iter().filter(|m| after.members.contains(m)).count();
    ensure!(kept == 2, "the other two stay: {after:?}");
    let latched = w.get("EtcdCluster", cluster).await?["status"]["latches"]["replaced"].clone();
    ensure!(latched["member"] == lost && latched["evidence"]["kind"] == kind, "{latched}");
    Ok(())
}

/// One bit of a member's log is inverted: etcd fails on it in two Pods, and another member takes its place while clients write.
pub async fn corrupt_log(w: &World) -> Result<()> {
    let before = three(w, "torn", 3_600).await?;
    let lost = before.members[0].name.clone();
    put_value(w, &lost).await?;
    w.step("a bit of a log is inverted", spoil(w, &lost, "wal", ".wal")).await?;
    let losing = async {
        w.delete("Pod", &lost).await?;
        // The first Pod that refuses is kept for a minute.
        let evidence = w.wait("EtcdMember", &lost, "two refusals", |m| {
            let refusals = m["status"]["refusals"].as_array();
            m["status"]["evidence"]["kind"] == "DataCorrupt"
                && refusals.is_some_and(|all| all.len() == 2 && all.iter().all(|r| r["verdict"] == "CorruptLog"))
        });
        w.step("etcd ends over its log in two Pods", evidence).await?;
        w.step("a member with a corrupt log is replaced", replaced(w, "torn", &lost)).await
    };
    let (wrote, after) = tokio::join!(w.write_for("torn", if soak() { 240 } else { 120 }), losing);
    let (wrote, after) = (wrote?, after?);
    w.step("every acknowledged write is there", w.all_written("torn", &wrote)).await?;
    judge(w, "torn", &lost, "DataCorrupt", (&before, &after)).await?;
    let stays = w.wait("EtcdMember", &lost, "ClaimKept", |m| {
        condition(m, "Ready").is_some_and(|(_, reason, _)| reason == "ClaimKept")
    });
    w.step("its claim is kept", stays).await?;
    ensure!(w.names("PersistentVolumeClaim").await?.contains(&format!("data-{lost}")), "its claim is gone");
    Ok(())
}

/// One bit of a member's database is inverted: etcd raises CORRUPT for it, another member takes its place, and the alarm ends.
pub async fn corrupt_alarm(w: &World) -> Result<()> {
    let before = three(w, "split", 20).await?;
    let (lost, other) = (before.members[0].name.clone(), before.members[1].name.clone());
    let wrote = w.write_for("split", 5).await?;
    let revision = put_value(w, &other).await?;
    let digest = w.digest("split").await?;
    w.step("a bit of a database is inverted", spoil(w, &lost, "snap", "/db")).await?;
    // etcd hashes the rest of a compaction, and compares once a minute.
    w.etcdctl(&other, &["compact", &revision.to_string()]).await?;
    let latched = w.wait("EtcdCluster", "split", "evidence", |c| {
        let replaced = &c["status"]["latches"]["replaced"];
        replaced["member"] == lost && replaced["evidence"]["kind"] == "Diverged"
    });
    w.step("etcd and a majority call its data wrong", latched).await?;
    let after = w.step("a diverged member is replaced", replaced(w, "split", &lost)).await?;
    judge(w, "split", &lost, "Diverged", (&before, &after)).await?;
    let alarms = w.etcdctl(&other, &["alarm", "list"]).await?;
    ensure!(alarms.trim().is_empty(), "alarms are left: {alarms}");
    ensure!(w.digest("split").await? == digest, "data changed");
    w.step("every acknowledged write is there", w.all_written("split", &wrote)).await?;
    let more = w.write_for("split", 5).await?;
    ensure!(more.total > 0, "nobody can write: {more:?}");
    Ok(())
}

/// Pods end again and again, by deletion and by eviction: the members keep their identity.
pub async fn many_restarts(w: &World) -> Result<()> {
    let before = three(w, "firm", 20).await?;
    let digest = w.digest("firm").await?;
    for round in 0..if soak() { 20 } else { 4 } {
        let member = &before.members[round % 3].name;
        if round % 2 == 0 {
            w.delete("Pod", member).await?;
        } else {
            // Like `kubectl drain`: Kubernetes updates the budget a moment after a Pod is ready.
            until("the budget allows the eviction", PATIENCE, async || {
                Ok(w.evict(member).await.map_err(|error| format!("{error:#}")))
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

/// Two volumes of three are gone: the status names each voter, and Holdfast removes no member.
pub async fn two_of_three(w: &World) -> Result<()> {
    let before = three(w, "last", 20).await?;
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
    tokio::time::sleep(Duration::from_secs(20)).await;
    ensure!(w.names("EtcdMember").await? == names, "nobody was removed, and nobody came");
    let status = w.get("EtcdCluster", "last").await?["status"].clone();
    ensure!(status["latches"]["replaced"].is_null(), "{status}");
    Ok(())
}
