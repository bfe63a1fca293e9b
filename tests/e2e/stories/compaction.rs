//! A merge of a snapshot and the log: the CronJob of the schedule publishes a snapshot without reading etcd, and a new cluster that
//! restores it has the keys that the log alone held.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::stored::manifests;
use crate::support::world::{PATIENCE, World};

/// Never due while the story lasts: it starts each Job itself.
const YEARLY: &str = "0 0 1 1 *";

/// The whole story.
pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("alpha", 1)).await?;
    w.step("a cluster", w.wait_ready("alpha", 1)).await?;
    w.fill("alpha", 200).await?;
    let mut schedule = make::schedule("nightly", "alpha", YEARLY, json!({"s3": make::s3()}));
    schedule["spec"]["log"] = json!({
        "everySeconds": 1, "compaction": {"schedule": YEARLY, "scratch": {"size": "1Gi"}},
    });
    w.create(schedule).await?;
    let stands = |schedule: &Value| {
        schedule["status"]["cronJob"]["name"].is_string() && schedule["status"]["log"]["compaction"]["name"].is_string()
    };
    let status = w.wait("EtcdSnapshotSchedule", "nightly", "both CronJobs", stands).await?["status"].clone();
    let name = |value: &Value| value["name"].as_str().map(str::to_owned).context("a name");
    let (backup, merge) = (name(&status["cronJob"])?, name(&status["log"]["compaction"])?);
    w.run_now(&backup, "full").await?;
    let full = w.step("a backup", w.wait_complete("full")).await?["status"]["artifact"].clone();

    let member = w.names_with("EtcdMember", "holdfast.dev/cluster=alpha").await?;
    let member = member.into_iter().next().context("a member")?;
    w.etcdctl(&member, &["put", "after-the-backup", "only-in-the-log"]).await?;
    w.step("the key is in the log", logged(w)).await?;
    w.run_now(&merge, "merge").await?;
    let job = w.wait("Job", "merge", "complete", |job| job["status"]["succeeded"] == 1).await?;
    let key = w.step("a merged snapshot", published(w, &job)).await?;
    ensure!(full["key"] != key.as_str(), "{key}");

    w.create(make::restored("beta", 1, json!({"source": {"s3": make::s3(), "key": key}}))).await?;
    w.step("a restore of the merged snapshot", w.wait_ready("beta", 1)).await?;
    let (live, copy) = (w.digest("alpha").await?, w.digest("beta").await?);
    ensure!(live == copy, "{live:?} {copy:?}");
    Ok(())
}

/// Waits for three segments that were stored from now on.
async fn logged(w: &World) -> Result<()> {
    let segments = async || anyhow::Ok(w.bucket().await?.into_iter().filter(|file| file.contains(".seg.zst")).count());
    let before = segments().await?;
    until("segments", PATIENCE, async || {
        let now = segments().await?;
        Ok(if now >= before + 3 { Ok(()) } else { Err(format!("{now} segments, {before} before")) })
    })
    .await
}

/// The key of the snapshot that this Job published: the name of its folder contains the Job's UID.
async fn published(w: &World, job: &Value) -> Result<String> {
    let files = w.bucket().await?;
    let [manifest] = manifests(&files, job)?[..] else { anyhow::bail!("one manifest of the Job: {files:?}") };
    let path = manifest.split_whitespace().find_map(|word| word.strip_suffix("/manifest.json")).context("a path")?;
    let at = path.find(&w.ns).context("the namespace in the key")?;
    path.get(at..).map(str::to_owned).context("a key")
}
