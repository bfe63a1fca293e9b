//! Drills of a schedule: one passes and shows how long a restore takes, one without memory leaves the proof as it is, one finds a
//! flipped bit, and a newer snapshot clears the failure. The sample of `jobs/` runs without the operator's CronJob.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// Never due while the story lasts: it starts each Job itself.
const YEARLY: &str = "0 0 1 1 *";

/// The whole story.
pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("alpha", 1)).await?;
    w.step("a cluster", w.wait_ready("alpha", 1)).await?;
    w.fill("alpha", 500).await?;
    let mut schedule = make::schedule("nightly", "alpha", YEARLY, json!({"s3": make::s3()}));
    schedule["spec"]["drill"] = json!({"schedule": YEARLY, "scratch": {"size": "1Gi"}});
    w.create(schedule).await?;
    let (backup, drill) = w.step("both CronJobs", cron_jobs(w)).await?;
    w.run_now(&backup, "first").await?;
    let first = w.step("a backup", w.wait_complete("first")).await?["status"]["artifact"]["key"].clone();

    w.run_now(&drill, "passes").await?;
    let schedule = w.step("a drill passes", rehearsed(w, "True", "DrillPassed")).await?;
    let passed = schedule["status"]["drill"]["lastPassed"].clone();
    ensure!(passed["key"] == first && passed["job"] == "passes", "{passed}");
    ensure!(passed["proofNotKept"].is_null(), "the store has the proof: {passed}");
    let seconds = |field: &str| passed[field].as_u64().with_context(|| format!("{field}: {passed}"));
    let (restore, serve, rto) = (seconds("restoreSeconds")?, seconds("serveSeconds")?, seconds("rtoSeconds")?);
    ensure!(restore > 0 && serve > 0 && rto == restore + serve, "{passed}");
    ensure!(passed["keys"].as_u64().is_some_and(|keys| keys > 0), "{passed}");
    let wide = w.env.kubectl(&["get", "etcdsched", "nightly", "-n", &w.ns, "-o", "wide"])?;
    ensure!(wide.contains("REHEARSED") && wide.contains("RTO"), "{wide}");
    eprintln!("e2e: {}: restored in {restore} s, served after {serve} s\n{wide}", w.story);

    without_memory(w, &drill, &passed).await?;

    w.step("one bit flipped", w.flip_a_bit("first")).await?;
    w.run_now(&drill, "finds-it").await?;
    let schedule = w.step("a drill finds it", rehearsed(w, "False", "DrillFailed")).await?;
    let failed = &schedule["status"]["drill"]["lastFailed"];
    ensure!(failed["key"] == first && failed["class"] == "Corrupt", "{failed}");
    ensure!(schedule["status"]["drill"]["lastPassed"] == passed, "the earlier proof stays");
    let (_, _, message) = condition(&schedule, "Rehearsed").context("Rehearsed")?;
    ensure!(message.contains(first.as_str().context("a key")?), "the condition names the key: {message}");
    let sick = |cluster: &Value| {
        condition(cluster, "BackupHealthy").is_some_and(|(s, r, _)| s == "False" && r == "DrillFailed")
    };
    w.wait("EtcdCluster", "alpha", "BackupHealthy False", sick).await?;

    w.run_now(&backup, "second").await?;
    let second = w.step("another backup", w.wait_complete("second")).await?["status"]["artifact"]["key"].clone();
    w.run_now(&drill, "passes-again").await?;
    let schedule = w.step("a drill of it passes", rehearsed(w, "True", "DrillPassed")).await?;
    ensure!(schedule["status"]["drill"]["lastPassed"]["key"] == second, "{}", schedule["status"]["drill"]);
    ensure!(schedule["status"]["drill"]["lastFailed"]["key"] == first, "{}", schedule["status"]["drill"]);

    sample(w).await?;
    w.delete_and_wait("EtcdSnapshotSchedule", "nightly").await?;
    w.step(
        "the CronJobs go with the schedule",
        until("no CronJob of the schedule", PATIENCE, async || {
            let left = w.names("CronJob").await?;
            Ok(if left.iter().any(|name| name.starts_with("nightly-")) { Err(format!("{left:?}")) } else { Ok(()) })
        }),
    )
    .await
}

/// A drill with too little memory has no result, and the last proof stands.
async fn without_memory(w: &World, drill: &str, passed: &Value) -> Result<()> {
    let starved = json!({"limits": {"memory": "4Mi"}, "requests": {"cpu": "50m", "memory": "4Mi"}});
    w.patch("EtcdSnapshotSchedule", "nightly", json!({"spec": {"drill": {"resources": starved}}})).await?;
    w.wait("CronJob", drill, "little memory", |cron| limit(cron) == "4Mi").await?;
    w.run_now(drill, "starves").await?;
    let schedule = w.step("a drill without memory", rehearsed(w, "True", "DrillIncomplete")).await?;
    let drills = &schedule["status"]["drill"];
    ensure!(drills["lastPassed"] == *passed && drills["lastFailed"].is_null(), "{drills}");
    ensure!(drills["lastIncomplete"]["job"] == "starves", "{drills}");
    let (_, _, message) = condition(&schedule, "Rehearsed").context("Rehearsed")?;
    eprintln!("e2e: {}: {message}", w.story);
    w.patch("EtcdSnapshotSchedule", "nightly", json!({"spec": {"drill": {"resources": null}}})).await?;
    w.wait("CronJob", drill, "no limit", |cron| limit(cron).is_null()).await.map(drop)
}

fn limit(cron: &Value) -> Value {
    cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"].clone()
}

/// Waits until the condition has this status and reason, and returns the schedule.
pub(super) async fn rehearsed(w: &World, status: &str, reason: &str) -> Result<Value> {
    let words = format!("Rehearsed {status}/{reason}");
    let is = |schedule: &Value| condition(schedule, "Rehearsed").is_some_and(|(s, r, _)| s == status && r == reason);
    w.wait("EtcdSnapshotSchedule", "nightly", &words, is).await
}

/// Names of the CronJobs of backups and of drills.
pub(super) async fn cron_jobs(w: &World) -> Result<(String, String)> {
    let both = |schedule: &Value| {
        schedule["status"]["cronJob"]["name"].is_string() && schedule["status"]["drill"]["cronJob"]["name"].is_string()
    };
    let status = w.wait("EtcdSnapshotSchedule", "nightly", "CronJobs", both).await?["status"].clone();
    let name = |value: &Value| value["name"].as_str().map(str::to_owned).context("a name");
    Ok((name(&status["cronJob"])?, name(&status["drill"]["cronJob"])?))
}

/// The `CronJob` of `jobs/` that needs no operator, with the names of this namespace.
async fn sample(w: &World) -> Result<()> {
    let edited = include_str!("../../../jobs/cronjob-drill.yaml")
        .replace("image: holdfast:0.1.0", &format!("image: {}", w.env.image))
        .replace("--store=s3://backups/etcd", "--store=s3://backups/house")
        .replace("--s3-endpoint=https://s3.example.com", "--s3-endpoint=http://s3:7070")
        .replace("--namespace=prod", &format!("--namespace={}", w.ns))
        .replace("--cluster=my-etcd", "--cluster=alpha")
        .replace("sizeLimit: 20Gi", "sizeLimit: 1Gi");
    w.apply(&edited).await?;
    w.run_now("my-etcd-drill", "alone").await?;
    w.step("the sample without the operator", async {
        w.wait("Job", "alone", "complete", |job| job["status"]["succeeded"] == 1).await.map(drop)
    })
    .await
}
