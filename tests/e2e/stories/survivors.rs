//! A majority of the volumes is gone for good: the cluster goes on from the volume of one member, under its name.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::world::World;

/// An EtcdRestore of `cluster` to the data of a member.
fn from_member(name: &str, cluster: &str, from: &Value) -> Value {
    json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdRestore", "metadata": {"name": name},
        "spec": {"clusterRef": {"name": cluster}, "timeline": 2, "fromMember": from},
    })
}

/// Deletes the claims and the Pods of these members.
async fn lose(w: &World, members: &[String]) -> Result<()> {
    for member in members {
        w.delete("PersistentVolumeClaim", &format!("data-{member}")).await?;
    }
    for member in members {
        w.delete("Pod", member).await?;
    }
    Ok(())
}

async fn quorum_lost(w: &World, cluster: &str) -> Result<()> {
    let lost = |c: &Value| condition(c, "Ready").is_some_and(|(_, reason, _)| reason == "QuorumLost");
    w.step("the quorum is lost", w.wait("EtcdCluster", cluster, "QuorumLost", lost)).await.map(drop)
}

/// Waits until the EtcdRestore refuses its field, and returns the words.
async fn refused(w: &World, name: &str) -> Result<String> {
    let invalid = |it: &Value| {
        condition(it, "Degraded").is_some_and(|(status, reason, _)| status == "True" && reason == "InvalidSpec")
    };
    let told = w.wait("EtcdRestore", name, "InvalidSpec", invalid).await?;
    Ok(condition(&told, "Degraded").context("Degraded")?.2.to_owned())
}

/// Two of three claims are deleted after clients have written: every acknowledged write is on the third.
pub async fn from_a_member(w: &World) -> Result<()> {
    w.create(make::cluster("q", 3)).await?;
    w.step("three voters", w.wait_ready("q", 3)).await?;
    w.fill("q", 1_000).await?;
    let wrote = w.write_for("q", 10).await?;
    let (before, digest) = (w.members("q").await?, w.digest("q").await?);
    let service = w.get("Service", "q-client").await?["spec"]["clusterIP"].clone();
    let names: Vec<String> = before.members.iter().map(|member| member.name.clone()).collect();
    let [first, second, survivor] = &names[..] else { anyhow::bail!("{names:?}") };

    // With a quorum the EtcdRestore fails, and changes no member.
    w.create(from_member("early", "q", &json!({"name": survivor, "acceptLoss": true}))).await?;
    let early = w.wait("EtcdRestore", "early", "Failed", |it| it["status"]["phase"] == "Failed");
    let early = w.step("the EtcdRestore fails while etcd has a quorum", early).await?;
    ensure!(condition(&early, "Ready").is_some_and(|(.., words)| words.contains("has a quorum")), "{early}");
    w.delete_and_wait("EtcdRestore", "early").await?;

    lose(w, &[first.clone(), second.clone()]).await?;
    quorum_lost(w, "q").await?;
    w.create(from_member("careless", "q", &json!({"name": survivor}))).await?;
    let words = w.step("the others are unknown", refused(w, "careless")).await?;
    ensure!(words.contains("acceptLoss") && words.contains(first) && words.contains(second), "{words}");
    w.delete_and_wait("EtcdRestore", "careless").await?;
    w.create(from_member("gone", "q", &json!({"name": first, "acceptLoss": true}))).await?;
    let words = w.step("a member without a volume", refused(w, "gone")).await?;
    ensure!(words.contains("no volume") && words.contains(survivor), "{words}");
    w.delete_and_wait("EtcdRestore", "gone").await?;

    w.create(from_member("back", "q", &json!({"name": survivor, "acceptLoss": true}))).await?;
    let ended = w.wait("EtcdRestore", "back", "Complete", |it| it["status"]["phase"] == "Complete");
    let told = w.step("the survivor's data serves", ended).await?["status"].take();
    eprintln!(
        "e2e: {}: {} s without a member; {}; {}",
        w.story, told["outageSeconds"], told["phases"], told["survivorLog"]
    );
    ensure!(told["survivorLog"]["lastIndex"].as_u64() > Some(1_000), "{told}");
    ensure!(told["firstRevision"].as_i64() > told["earlierRevision"].as_i64(), "I10: {told}");
    w.step("three voters of the next timeline", w.wait_ready("q", 3)).await?;
    ensure!(w.digest("q").await? == digest, "other data");
    w.step("every acknowledged write is there", w.all_written("q", &wrote)).await?;
    ensure!(w.get("Service", "q-client").await?["spec"]["clusterIP"] == service, "clients keep their address");
    let kept = w.get("PersistentVolumeClaim", &format!("data-{survivor}")).await?;
    ensure!(kept["metadata"]["deletionTimestamp"].is_null(), "the survivor's claim stays");
    let more = w.write_for("q", 5).await?;
    ensure!(more.total > 0, "no write was acknowledged: {more:?}");
    Ok(())
}

/// The survivor was away while the others acknowledged writes: the user accepts their loss, and gets what the survivor has.
pub async fn is_behind(w: &World) -> Result<()> {
    w.create(make::cluster("b", 3)).await?;
    w.step("three voters", w.wait_ready("b", 3)).await?;
    w.fill("b", 300).await?;
    let old = w.write_for("b", 5).await?;
    let before = w.members("b").await?;
    let names: Vec<String> = before.members.iter().map(|member| member.name.clone()).collect();
    let survivor = names.last().context("a member")?;
    // A quota that no new Pod passes keeps the survivor away.
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}},
    });
    w.create(quota).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    w.delete_and_wait("Pod", survivor).await?;
    let (present, _) = names.split_at(2);
    w.etcdctl(&present[0], &["put", "late", "1"]).await?;
    lose(w, present).await?;
    w.delete("ResourceQuota", "none").await?;
    quorum_lost(w, "b").await?;

    w.create(from_member("back", "b", &json!({"name": survivor, "acceptLoss": true}))).await?;
    let ended = w.wait("EtcdRestore", "back", "Complete", |it| it["status"]["phase"] == "Complete");
    let told = w.step("the survivor's data serves", ended).await?["status"].take();
    eprintln!("e2e: {}: {} s without a member; {}", w.story, told["outageSeconds"], told["phases"]);
    w.step("three voters of the next timeline", w.wait_ready("b", 3)).await?;
    w.step("its writes are there", w.all_written("b", &old)).await?;
    let after = w.members("b").await?;
    let late = w.etcdctl(&after.members[0].name, &["get", "late"]).await?;
    ensure!(late.trim().is_empty(), "the others' write is lost: {late}");
    Ok(())
}
