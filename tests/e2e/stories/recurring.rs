//! Recurring backups without a schedule object: the unchanged sample `CronJob`, every minute, and a restore from the last run.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::support::env::soak;
use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::probe::service;
use crate::support::world::{PATIENCE, World};

const SAMPLE: &str = include_str!("../../../jobs/cronjob-snapshot.yaml");

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("my-etcd", 1)).await?;
    w.create(make::claim("backups", "1Gi")).await?;
    w.step("the sample's cluster", w.wait_ready("my-etcd", 1)).await?;
    w.fill("my-etcd", 100).await?;
    // Every user has to set the image; the test edits the schedule as a user would.
    w.apply(&SAMPLE.replace("image: holdfast:0.1.0", &format!("image: {}", w.env.image))).await?;
    w.patch("CronJob", "my-etcd-snapshot", json!({"spec": {"schedule": "* * * * *", "suspend": true}})).await?;
    let runs = if soak() { 3 } else { 2 };
    for nth in 1..=runs {
        let (n, key) = (nth.to_string(), "written-before-the-nth-run");
        w.probe_text(&["put", "--endpoint", &service("my-etcd"), "--key", key, "--value", &n]).await?;
        // Resumed after its write, and suspended until the next write.
        w.patch("CronJob", "my-etcd-snapshot", json!({"spec": {"suspend": false}})).await?;
        w.step(&format!("run {nth} begins"), begun(w, nth)).await?;
        w.patch("CronJob", "my-etcd-snapshot", json!({"spec": {"suspend": true}})).await?;
        w.step(&format!("run {nth}"), complete(w, nth)).await?;
    }
    let digest = w.digest("my-etcd").await?;
    let last = complete(w, runs).await?;
    let jobs = w.names("Job").await?;
    ensure!(jobs.contains(&last), "the snapshot {last} has the name of its Job: {jobs:?}");
    w.create(make::restored("again", 1, json!({"snapshotRef": {"name": last}}))).await?;
    w.step("restored from the last", w.wait_ready("again", 1)).await?;
    ensure!(w.digest("again").await? == digest, "the last holds what was written before it");
    Ok(())
}

/// Waits for the n-th snapshot; returns its name.
async fn begun(w: &World, nth: usize) -> Result<String> {
    until(&format!("run {nth}"), PATIENCE, async || {
        let mut names = w.names("EtcdSnapshot").await?;
        names.sort();
        Ok(names.get(nth - 1).cloned().ok_or(format!("{names:?}")))
    })
    .await
}

/// Waits until the n-th snapshot and its Job are complete; returns its name.
async fn complete(w: &World, nth: usize) -> Result<String> {
    let name = begun(w, nth).await?;
    w.wait_complete(&name).await?;
    w.wait("Job", &name, "complete", |j| j["status"]["succeeded"] == 1).await.context("the Job that asked for it")?;
    Ok(name)
}
