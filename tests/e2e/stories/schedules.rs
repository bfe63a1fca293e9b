//! Recurring backups by a schedule: they continue while the operator is dead, each run is recorded once, and status and alert
//! show the age of the newest backup.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::support::env::soak;
use crate::support::host_operator::{HostOperator, Seat};
use crate::support::kube_helpers::{condition, patiently, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// Number of runs, a minute apart: two before the operator dies, four meanwhile, and at least one more.
fn runs() -> usize {
    if soak() { 10 } else { 7 }
}

/// Time for which the operator is dead: longer than Kubernetes keeps the Jobs of a schedule of every minute.
const DEAD: Duration = Duration::from_mins(4);
/// Time that the alert adds to two due times.
const DEADLINE: SignedDuration = SignedDuration::from_mins(10);
/// Age at which the operator's own alert calls a backup overdue, for a schedule of every minute.
const OVERDUE: Duration = Duration::from_mins(16);

/// Creates a cluster and a volume for its backups.
async fn ground(w: &World) -> Result<()> {
    w.create(make::claim("backups", "1Gi")).await?;
    w.create(make::cluster("alpha", 1)).await?;
    w.step("a cluster", w.wait_ready("alpha", 1)).await?;
    w.fill("alpha", 200).await?;
    w.create(make::schedule("nightly", "alpha", "* * * * *", json!({"pvc": {"claimName": "backups"}}))).await?;
    Ok(())
}

/// A schedule saves every minute, and the operator is dead for four minutes.
pub async fn without_operator(w: &World) -> Result<()> {
    let seat = Seat::new(w, "first", None).await?;
    let mut operator = lead(&seat).await?;
    ground(w).await?;
    w.toolbox("shelf", &["backups"]).await?;
    w.step("two runs are recorded", recorded(w, 2)).await?;
    operator.kill()?;
    w.step("the operator is dead", async {
        tokio::time::sleep(DEAD).await;
        Ok(())
    })
    .await?;
    let stored = w.files("shelf", "/mnt/backups").await?;
    let before = manifests(&stored).len();
    ensure!(before >= 5, "backups go on without the operator: {before} manifests");
    operator = lead(&seat).await?;
    w.step("all runs are recorded", recorded(w, runs())).await?;
    w.patch("EtcdSnapshotSchedule", "nightly", json!({"spec": {"suspend": true}})).await?;
    let quiet = async || {
        let schedule = w.get("EtcdSnapshotSchedule", "nightly").await?;
        let active = schedule["status"]["active"].as_array().map_or(0, Vec::len);
        let suspended = condition(&schedule, "Ready").is_some_and(|(_, reason, _)| reason == "Suspended");
        Ok(if active == 0 && suspended { Ok(()) } else { Err(schedule["status"].to_string()) })
    };
    w.step("nothing runs any more", until("the end", PATIENCE, quiet)).await?;
    let stored = w.files("shelf", "/mnt/backups").await?;
    let keys: BTreeSet<String> = manifests(&stored).into_iter().collect();
    let mut recorded = BTreeSet::new();
    let mut runs = BTreeSet::new();
    for name in w.names("EtcdSnapshot").await? {
        let snapshot = w.get("EtcdSnapshot", &name).await?;
        ensure!(snapshot["status"]["phase"] == "Complete", "{name}: {}", snapshot["status"]);
        let key = snapshot["status"]["artifact"]["key"].as_str().context("a key")?;
        ensure!(recorded.insert(key.to_owned()), "{key} is recorded twice");
        ensure!(runs.insert(snapshot["spec"]["run"]["uid"].to_string()), "a Job is recorded twice: {name}");
    }
    ensure!(recorded == keys, "recorded {recorded:?}, stored {keys:?}");
    let cluster = w.get("EtcdCluster", "alpha").await?;
    ensure!(condition(&cluster, "BackupHealthy").is_some(), "the cluster tells of its backups: {}", cluster["status"]);
    operator.retire().await?;
    seat.no_defects()
}

/// A run that a person starts from the schedule's `CronJob` is recorded, and restores; the sample in `jobs/` runs unchanged.
pub async fn by_hand(w: &World) -> Result<()> {
    ground(w).await?;
    let cron = w.step("the CronJob", cron_job(w)).await?;
    w.patch("EtcdSnapshotSchedule", "nightly", json!({"spec": {"schedule": "0 0 1 1 *"}})).await?;
    w.wait("CronJob", &cron, "every year", |cron| cron["spec"]["schedule"] == "0 0 1 1 *").await?;
    w.env.kubectl(&["create", "job", "-n", &w.ns, &format!("--from=cronjob/{cron}"), "before-upgrade"])?;
    let snapshot = w.step("the run by hand", w.wait_complete("before-upgrade")).await?;
    ensure!(snapshot["spec"]["run"]["job"] == "before-upgrade", "{}", snapshot["spec"]);
    ensure!(snapshot["metadata"]["ownerReferences"].is_null(), "no deletion takes the record away");
    // A person edits the CronJob, and the operator restores it.
    w.patch("CronJob", &cron, json!({"spec": {"suspend": true}})).await?;
    w.wait("CronJob", &cron, "put back", |cron| cron["spec"]["suspend"] == false).await?;
    let digest = w.digest("alpha").await?;
    w.create(make::restored("again", 1, json!({"snapshotRef": {"name": "before-upgrade"}}))).await?;
    w.step("restored from it", w.wait_ready("again", 1)).await?;
    ensure!(w.digest("again").await? == digest, "it holds what was written before it");
    // The schedule is deleted, and its record stays.
    w.delete_and_wait("EtcdSnapshotSchedule", "nightly").await?;
    w.step(
        "the CronJob goes with it",
        until("no CronJob", PATIENCE, async || {
            let left = w.names("CronJob").await?;
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
        }),
    )
    .await?;
    ensure!(w.names("EtcdSnapshot").await?.contains(&"before-upgrade".to_owned()), "the record stays");
    samples(w).await
}

/// The `CronJob` alone shows an overdue backup, by the expression of the alert, while the operator is dead.
pub async fn alert_with_the_operator_dead(w: &World) -> Result<()> {
    let seat = Seat::new(w, "first", None).await?;
    let mut operator = lead(&seat).await?;
    ground(w).await?;
    w.step("a run is recorded", recorded(w, 1)).await?;
    operator.kill()?;
    let cron = cron_job(w).await?;
    // From now on every run fails: its volume does not exist.
    let volumes = "/spec/jobTemplate/spec/template/spec/volumes/0/persistentVolumeClaim/claimName";
    let missing = json!([{"op": "replace", "path": volumes, "value": "missing"}]);
    w.env.kubectl(&["patch", "cronjob", &cron, "-n", &w.ns, "--type=json", "-p", &missing.to_string()])?;
    if !soak() {
        w.step("the last success is set back by the deadline", set_back(w, &cron)).await?;
    }
    w.step("no run succeeds for two due times and the deadline", async {
        until("the alert", OVERDUE + PATIENCE, async || {
            let found = w.get("CronJob", &cron).await?;
            Ok(if fires(&found)? { Ok(()) } else { Err(found["status"].to_string()) })
        })
        .await
    })
    .await
}

/// `time() - last_successful > 2 * (next_schedule - last_schedule) + 600`, as in charts/alerts.yaml for every minute.
fn fires(cron: &Value) -> Result<bool> {
    let last = cron["status"]["lastSuccessfulTime"].as_str().context("it succeeded once")?;
    let now = Timestamp::now();
    Ok(now.duration_since(last.parse()?).as_secs() > 2 * 60 + DEADLINE.as_secs())
}

/// Backdates the last success. Its Job is deleted first: Kubernetes would read the time there again.
async fn set_back(w: &World, cron: &str) -> Result<()> {
    let succeeded = |cron: &Value| cron["status"]["lastSuccessfulTime"].is_string();
    let last =
        w.wait("CronJob", cron, "a run that succeeded", succeeded).await?["status"]["lastSuccessfulTime"].clone();
    let last: Timestamp = serde_json::from_value(last)?;
    let jobs = w.api("Job");
    patiently(async |_| jobs.delete_collection(&DeleteParams::background(), &ListParams::default()).await).await?;
    until("the Jobs that succeeded to go", PATIENCE, async || {
        let left = patiently(async |_| jobs.list(&ListParams::default()).await).await?.items;
        let succeeded = left.iter().filter(|job| job.data["status"]["succeeded"] == 1).count();
        Ok(if succeeded == 0 { Ok(()) } else { Err(format!("{succeeded} are there")) })
    })
    .await?;
    // Not further than so that both due times have yet to be missed.
    let earliest = Timestamp::now().checked_sub(DEADLINE)?;
    let back = last.checked_sub(DEADLINE)?.max(earliest);
    w.patch_status("CronJob", cron, json!({"lastSuccessfulTime": back.to_string()})).await?;
    ensure!(!fires(&w.get("CronJob", cron).await?)?, "the alert fires before a due time was missed");
    Ok(())
}

async fn lead(seat: &Seat) -> Result<HostOperator> {
    let operator = seat.start(&[])?;
    operator.until_leading().await?;
    Ok(operator)
}

async fn cron_job(w: &World) -> Result<String> {
    until("the CronJob", PATIENCE, async || {
        let schedule = w.get("EtcdSnapshotSchedule", "nightly").await?;
        Ok(schedule["status"]["cronJob"]["name"].as_str().map(str::to_owned).ok_or(schedule["status"].to_string()))
    })
    .await
}

/// Waits until this many runs are recorded as complete.
async fn recorded(w: &World, count: usize) -> Result<()> {
    let patience = PATIENCE + Duration::from_mins(u64::try_from(count)?);
    until(&format!("{count} runs"), patience, async || {
        let mut complete = 0;
        for name in w.names("EtcdSnapshot").await? {
            let snapshot = w.get("EtcdSnapshot", &name).await?;
            complete += usize::from(snapshot["status"]["phase"] == "Complete");
        }
        Ok(if complete >= count { Ok(()) } else { Err(format!("{complete}")) })
    })
    .await
}

/// The keys of complete snapshots on the backup volume.
fn manifests(files: &[String]) -> Vec<String> {
    let keys =
        files.iter().filter_map(|file| file.split_whitespace().find_map(|word| word.strip_suffix("/manifest.json")));
    keys.map(|folder| folder.trim_start_matches("/mnt/backups/").to_owned()).collect()
}

/// The `CronJob` of `jobs/` that needs no operator, with the names of this namespace.
async fn samples(w: &World) -> Result<()> {
    let alone = include_str!("../../../jobs/cronjob-save.yaml");
    let image = format!("image: {}", w.env.image);
    // One address is enough for one member.
    let others = |line: &&str| !line.contains("my-etcd-1.my-etcd") && !line.contains("my-etcd-2.my-etcd");
    let edited: Vec<&str> = alone.lines().filter(others).collect();
    let edited = edited
        .join("\n")
        .replace("image: holdfast:0.1.0", &image)
        .replace("my-etcd-0.my-etcd.prod.svc", &format!("alpha-client.{}.svc", w.ns))
        .replace("--store=s3://backups/etcd", "--store=s3://backups/house")
        .replace("--s3-endpoint=https://s3.example.com", "--s3-endpoint=http://s3:7070");
    w.apply(&edited).await?;
    w.run_now("my-etcd-save", "alone").await?;
    w.step("the sample without the operator", async {
        w.wait("Job", "alone", "complete", |job| job["status"]["succeeded"] == 1).await.map(drop)
    })
    .await
}
