//! Free space of the members' databases: it comes back while clients write, and a full database serves again after a compaction.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, is_ready, until};
use crate::support::make;
use crate::support::probe::service;
use crate::support::world::{PATIENCE, World};

/// Values that the stories write and delete again.
const BULK: &str = "120MiB";

/// Bytes of each member's file and bytes in use, from etcd itself.
async fn files(w: &World, cluster: &str) -> Result<Vec<(String, i64, i64)>> {
    let mut all = vec![];
    for member in w.names_with("EtcdMember", &format!("holdfast.dev/cluster={cluster}")).await? {
        let said = w.etcdctl(&member, &["endpoint", "status", "-w", "json"]).await?;
        let said: Value = serde_json::from_str(&said).with_context(|| format!("{member} said {said}"))?;
        let status = &said[0]["Status"];
        let bytes = status["dbSize"].as_i64().context("dbSize")?;
        all.push((member, bytes, status["dbSizeInUse"].as_i64().unwrap_or(0)));
    }
    Ok(all)
}

/// Keys that a full database still lets go.
const LAST: [&str; 2] = ["last/1", "last/2"];

/// Deletes the values and compacts, as a person does: free pages remain in the files. etcd counts them after two more commits.
async fn clear(w: &World, member: &str) -> Result<()> {
    w.etcdctl(member, &["del", "bulk/", "--prefix"]).await?;
    let said = w.etcdctl(member, &["endpoint", "status", "-w", "json"]).await?;
    let said: Value = serde_json::from_str(&said)?;
    let revision = said[0]["Status"]["header"]["revision"].as_i64().context("a revision")?;
    w.etcdctl(member, &["compact", "--physical", &revision.to_string()]).await?;
    for key in LAST {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        w.etcdctl(member, &["del", key]).await?;
    }
    Ok(())
}

async fn bulk(w: &World, cluster: &str) -> Result<String> {
    let members = w.names_with("EtcdMember", &format!("holdfast.dev/cluster={cluster}")).await?;
    for key in LAST {
        w.etcdctl(members.first().context("a member")?, &["put", key, "x"]).await?;
    }
    w.probe_text(&["bulk", "--endpoint", &service(cluster), "--bytes", BULK, "--value-bytes", "65536"]).await
}

/// Three members give their free space back, one after the other, while a hundred clients write.
pub async fn comes_back(w: &World) -> Result<()> {
    let mut cluster = make::cluster("d", 3);
    // Off until the free space is there.
    cluster["spec"]["defragmentation"] = json!({"mode": "Never"});
    w.create(cluster).await?;
    w.step("three voters", w.wait_ready("d", 3)).await?;
    w.step("values come and go", async {
        bulk(w, "d").await?;
        let first = w.names_with("EtcdMember", "holdfast.dev/cluster=d").await?;
        clear(w, first.first().context("a member")?).await
    })
    .await?;
    let before = files(w, "d").await?;
    ensure!(before.iter().all(|(_, bytes, used)| bytes - used > 64 << 20), "there is free space: {before:?}");

    let writing = w.write_for("d", 45);
    let freeing = async {
        // Clients write already.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let from = std::time::Instant::now();
        let wanted = json!({"mode": "WhenNeeded", "freePercent": 30, "freeBytes": "32Mi", "pauseSeconds": 2});
        w.patch("EtcdCluster", "d", json!({"spec": {"defragmentation": wanted}})).await?;
        until("every member is defragmented", PATIENCE, async || {
            let status = w.get("EtcdCluster", "d").await?["status"]["latches"].clone();
            let done = status["defragmented"].as_array().map_or(0, Vec::len);
            Ok(if done == 3 && status["defragmenting"].is_null() { Ok(()) } else { Err(status.to_string()) })
        })
        .await?;
        anyhow::Ok(from.elapsed())
    };
    let (wrote, took) = tokio::join!(writing, freeing);
    let (wrote, took) = (wrote?, took?);
    let after = files(w, "d").await?;
    eprintln!(
        "e2e: {}: three members in {:.1} s; {} writes acknowledged, {} attempts failed, longest gap {:.0} ms; {before:?} to {after:?}",
        w.story,
        took.as_secs_f64(),
        wrote.total,
        wrote.failed,
        wrote.longest_gap_ms
    );
    for ((member, was, _), (_, now, _)) in before.iter().zip(&after) {
        ensure!(now + (64 << 20) < *was, "{member} gave its space back: {was} to {now} bytes");
    }
    w.step("every acknowledged write is there", w.all_written("d", &wrote)).await?;
    ensure!(wrote.total > 1_000, "hardly anything was written: {wrote:?}");
    w.step("clients reach all members again", w.wait("EtcdCluster", "d", "ready", |c| is_ready(c, 3))).await?;
    for pod in w.names_with("Pod", "holdfast.dev/cluster=d").await? {
        let role = w.get("Pod", &pod).await?["metadata"]["labels"]["holdfast.dev/role"].clone();
        ensure!(role == "voter", "{pod} is {role}");
    }
    Ok(())
}

/// Fills a cluster with a quota of 64 MiB by live keys, and checks the numbers and the ways out in `Degraded`.
async fn fill_up(w: &World, cluster: &str) -> Result<()> {
    let refused = bulk(w, cluster).await;
    ensure!(refused.as_ref().is_err_and(|error| format!("{error:#}").contains("space exceeded")), "{refused:?}");
    let exhausted =
        |c: &Value| condition(c, "Degraded").is_some_and(|(s, reason, _)| s == "True" && reason == "SpaceExhausted");
    let told =
        w.step("the condition says the numbers", w.wait("EtcdCluster", cluster, "SpaceExhausted", exhausted)).await?;
    let words = condition(&told, "Degraded").context("Degraded")?.2;
    let said = ["MiB are in use", "the quota is 64 MiB", "has room for a quota of 512 MiB"];
    let ways = ["etcdctl compact", "contents --top", "quotaBackendBytes", "growQuotaTo"];
    for part in said.into_iter().chain(ways) {
        ensure!(words.contains(part), "{part}: {words}");
    }
    Ok(())
}

/// A database that live keys have filled up to its quota: the user lets the quota grow, and the members restart with
/// twice the quota while etcd refuses writes. Then writes succeed, and the spec is as the user wrote it.
pub async fn quota_grows(w: &World) -> Result<()> {
    let mut cluster = make::cluster("g", 3);
    cluster["spec"]["options"] = json!({"quotaBackendBytes": 67_108_864});
    w.create(cluster).await?;
    w.step("three voters", w.wait_ready("g", 3)).await?;
    fill_up(w, "g").await?;
    let from = std::time::Instant::now();
    w.patch("EtcdCluster", "g", json!({"spec": {"defragmentation": {"growQuotaTo": "256Mi"}}})).await?;
    let granted = |c: &Value| is_ready(c, 3) && c["status"]["latches"]["grantedQuota"] == 134_217_728;
    let after = w.step("it serves with twice the quota", w.wait("EtcdCluster", "g", "a larger quota", granted)).await?;
    ensure!(after["spec"]["options"]["quotaBackendBytes"] == 67_108_864, "{}", after["spec"]);
    w.fill("g", 20).await?;
    let members = w.names_with("EtcdMember", "holdfast.dev/cluster=g").await?;
    let alarms = w.etcdctl(members.first().context("a member")?, &["alarm", "list"]).await?;
    ensure!(alarms.trim().is_empty(), "no alarm is left: {alarms}");
    eprintln!("e2e: {}: writes again after {:.1} s: {:?}", w.story, from.elapsed().as_secs_f64(), files(w, "g").await?);
    Ok(())
}

/// A database that has reached its quota: the condition says the ways out; after a person's compaction the rest happens by itself.
pub async fn full(w: &World) -> Result<()> {
    let mut cluster = make::cluster("n", 3);
    cluster["spec"]["options"] = json!({"quotaBackendBytes": 67_108_864});
    w.create(cluster).await?;
    w.step("three voters", w.wait_ready("n", 3)).await?;
    fill_up(w, "n").await?;

    let members = w.names_with("EtcdMember", "holdfast.dev/cluster=n").await?;
    let from = std::time::Instant::now();
    clear(w, members.first().context("a member")?).await?;
    w.step("it serves again by itself", w.wait("EtcdCluster", "n", "ready", |c| is_ready(c, 3))).await?;
    w.fill("n", 20).await?;
    let after = files(w, "n").await?;
    eprintln!("e2e: {}: writes again after {:.1} s: {after:?}", w.story, from.elapsed().as_secs_f64());
    let alarms = w.etcdctl(members.first().context("a member")?, &["alarm", "list"]).await?;
    ensure!(alarms.trim().is_empty(), "no alarm is left: {alarms}");
    Ok(())
}
