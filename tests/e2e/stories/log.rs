//! The log of a schedule: it goes on while the operator is dead and while the store is away, and a gap ends with a new snapshot.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::store_trouble::{PROXY, through};
use crate::support::env::soak;
use crate::support::host_operator::Seat;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// Creates a cluster, and a schedule whose one run is years away, with a log every two seconds. Waits until the log is current.
async fn ground(w: &World, s3: Value) -> Result<()> {
    w.create(make::cluster("alpha", 1)).await?;
    w.step("a cluster", w.wait_ready("alpha", 1)).await?;
    w.fill("alpha", 200).await?;
    let began = Timestamp::now();
    let mut schedule = make::schedule("nightly", "alpha", "0 0 1 1 *", json!({ "s3": s3 }));
    schedule["spec"]["log"] = json!({"everySeconds": 2});
    w.create(schedule).await?;
    w.step("a log", current(w)).await?;
    eprintln!("e2e: {}: LogCurrent {} s after the creation", w.story, Timestamp::now().duration_since(began).as_secs());
    Ok(())
}

/// Waits until the log is current; returns the schedule.
async fn current(w: &World) -> Result<Value> {
    w.wait("EtcdSnapshotSchedule", "nightly", "LogCurrent", |s| is(s, "True", "LogStored")).await
}

fn is(schedule: &Value, status: &str, reason: &str) -> bool {
    condition(schedule, "LogCurrent").is_some_and(|(state, why, _)| state == status && why == reason)
}

/// The operator is dead while clients write. Suspended, the log has no Pod; without `spec.log`, no Deployment.
pub async fn without_operator(w: &World) -> Result<()> {
    let seat = Seat::new(w, "first", None).await?;
    let mut operator = seat.start(&[])?;
    operator.until_leading().await?;
    ground(w, make::s3()).await?;
    let deployment = deployment(w).await?;
    w.patch("Deployment", &deployment, json!({"spec": {"replicas": 2}})).await?;
    w.wait("Deployment", &deployment, "put back", |d| d["spec"]["replicas"] == 1).await?;
    operator.kill()?;
    w.fill("alpha", 300).await?;
    let written = revision(w).await?;
    w.step("the log reaches what was written without the operator", covered(w, written)).await?;
    operator = seat.start(&[])?;
    operator.until_leading().await?;
    let schedule = w.step("the log is current", current(w)).await?;
    let log = &schedule["status"]["log"];
    ensure!(log["rpoSeconds"].as_u64().is_some_and(|rpo| rpo > 0), "{log}");
    eprintln!("e2e: {}: RPO {} s", w.story, log["rpoSeconds"]);
    let cluster = w.get("EtcdCluster", "alpha").await?;
    ensure!(condition(&cluster, "BackupHealthy").is_some_and(|(state, ..)| state != "False"), "{}", cluster["status"]);

    w.patch("EtcdSnapshotSchedule", "nightly", json!({"spec": {"suspend": true}})).await?;
    w.wait("Deployment", &deployment, "suspended", |d| d["spec"]["replicas"] == 0).await?;
    w.wait("EtcdSnapshotSchedule", "nightly", "LogCurrent Unknown", |s| is(s, "Unknown", "Suspended")).await?;
    w.patch("EtcdSnapshotSchedule", "nightly", json!({"spec": {"log": null}})).await?;
    until("the Deployment to go", PATIENCE, async || {
        let left = w.names("Deployment").await?;
        Ok(if left.contains(&deployment) { Err(format!("{left:?}")) } else { Ok(()) })
    })
    .await?;
    operator.retire().await?;
    seat.no_defects()
}

/// The store is down for a while. The log waits in the Pod's volume, and has no hole afterwards.
pub async fn store_away(w: &World) -> Result<()> {
    w.apply(&PROXY.replace("localhost/holdfast-probe:1", &w.env.probe_image)).await?;
    w.wait("Deployment", "s3-fault", "ready", |d| d["status"]["readyReplicas"] == 1).await?;
    ground(w, through()).await?;
    let before = revision(w).await?;
    w.step("the log is stored", covered(w, before)).await?;
    w.fault("down").await?;
    let down = Timestamp::now();
    w.fill("alpha", 300).await?;
    let behind = |s: &Value| is(s, "False", "LogBehind");
    let behind = w.wait("EtcdSnapshotSchedule", "nightly", "LogBehind", behind);
    let schedule = w.step("LogCurrent names the store that is down", behind).await?;
    let names = condition(&schedule, "LogCurrent").is_some_and(|(.., words)| words.contains("s3-fault"));
    ensure!(names, "{}", schedule["status"]);
    let away = if soak() { 600 } else { 60 };
    until("the store's return", PATIENCE + std::time::Duration::from_secs(away), async || {
        let gone = Timestamp::now().duration_since(down).as_secs().cast_unsigned();
        Ok(if gone >= away { Ok(()) } else { Err(format!("{gone} s")) })
    })
    .await?;
    w.fault("ok").await?;
    let written = revision(w).await?;
    w.step("the log has no hole", covered(w, written)).await?;
    w.step("the log is current", current(w)).await?;
    Ok(())
}

/// etcd compacts while no agent records: LogCurrent names the gap, and one snapshot continues with the log after it.
pub async fn compaction_overtakes(w: &World) -> Result<()> {
    let seat = Seat::new(w, "first", None).await?;
    let mut operator = seat.start(&[])?;
    operator.until_leading().await?;
    ground(w, make::s3()).await?;
    let schedule = w.get("EtcdSnapshotSchedule", "nightly").await?;
    let cron = schedule["status"]["cronJob"]["name"].as_str().context("a CronJob")?.to_owned();
    w.run_now(&cron, "base").await?;
    w.step("a snapshot", w.wait_complete("base")).await?;
    let deployment = deployment(w).await?;
    operator.kill()?;
    w.patch("Deployment", &deployment, json!({"spec": {"replicas": 0}})).await?;
    until("the agent to end", PATIENCE, async || {
        let pods = w.names_with("Pod", "holdfast.dev/schedule-uid").await?;
        Ok(if pods.is_empty() { Ok(()) } else { Err(format!("{pods:?}")) })
    })
    .await?;
    w.fill("alpha", 300).await?;
    let written = revision(w).await?;
    w.etcdctl(&member(w).await?, &["compact", &written.to_string()]).await?;
    operator = seat.start(&[])?;
    operator.until_leading().await?;
    let interrupted = until("the interruption", PATIENCE, async || {
        let schedule = w.get("EtcdSnapshotSchedule", "nightly").await?;
        let gap = &schedule["status"]["log"]["interrupted"];
        Ok(if gap["until"].as_i64() == Some(written) { Ok(gap.clone()) } else { Err(schedule["status"].to_string()) })
    });
    let gap = w.step("LogCurrent names the gap", interrupted).await?;
    ensure!(gap["after"].as_i64().is_some_and(|after| after < written), "{gap}");
    w.step("the log is current again", current(w)).await?;
    let mut later = vec![];
    for name in w.names("EtcdSnapshot").await?.into_iter().filter(|name| name != "base") {
        later.push(w.wait_complete(&name).await?["status"]["artifact"]["revision"].as_i64());
    }
    ensure!(matches!(later[..], [Some(revision)] if revision >= written), "one snapshot after the gap: {later:?}");
    until("its Event", PATIENCE, async || {
        let events = w.env.kubectl(&["get", "events", "-n", &w.ns, "-o", "jsonpath={.items[*].reason}"])?;
        Ok(if events.contains("LogInterrupted") { Ok(()) } else { Err(events) })
    })
    .await?;
    operator.retire().await?;
    seat.no_defects()
}

async fn deployment(w: &World) -> Result<String> {
    let schedule = w.get("EtcdSnapshotSchedule", "nightly").await?;
    schedule["status"]["log"]["deployment"].as_str().map(str::to_owned).context("a Deployment")
}

async fn member(w: &World) -> Result<String> {
    w.names_with("Pod", "app.kubernetes.io/component=etcd-member").await?.into_iter().next().context("a member")
}

/// The newest revision of etcd.
async fn revision(w: &World) -> Result<i64> {
    let status = w.etcdctl(&member(w).await?, &["endpoint", "status", "-w", "json"]).await?;
    let status: Value = serde_json::from_str(&status)?;
    status[0]["Status"]["header"]["revision"].as_i64().with_context(|| format!("a revision: {status}"))
}

/// Waits until the stored segments hold every revision up to this one, from the first on.
async fn covered(w: &World, revision: i64) -> Result<()> {
    until(&format!("revision {revision} in the store"), PATIENCE, async || {
        let files = w.bucket().await?;
        let mut segments: Vec<(i64, i64)> = files.iter().filter_map(|file| segment(file)).collect();
        segments.sort_unstable();
        let mut end = segments.first().map_or(0, |(first, _)| first - 1);
        for (first, last) in &segments {
            ensure!(*first <= end + 1, "the log has a hole after {end}: {segments:?}");
            end = end.max(*last);
        }
        Ok(if end >= revision { Ok(()) } else { Err(format!("it ends at {end}")) })
    })
    .await
}

/// The revisions in the name of a segment.
fn segment(file: &str) -> Option<(i64, i64)> {
    let path = file.split_whitespace().find(|word| word.ends_with(".seg.zst"))?;
    let mut parts = path.rsplit('/').next()?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
