//! A schedule with a week of backups: snapshots that its retention does not keep are announced, and removed an hour later, except
//! for held, restored or suspicious snapshots, and snapshots in another store.
//!
//! The story waits neither a week nor an hour: the probe copies a snapshot into the past, and backdates announcements.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// Backups of the past, half a day apart.
const PAST: usize = 12;
/// A Job reads the store for each of them.
const RECALL: Duration = Duration::from_mins(6);
/// The S3 server's folder of the store's prefix.
const ROOT: &str = "/data/backups/house";
const SCHEDULE: &str = "EtcdSnapshotSchedule";

/// Retention removes exactly the old backups: not the held snapshot, and not the snapshot that a restore reads.
pub async fn accelerated(w: &World) -> Result<()> {
    let lineage = history(w, None).await?;
    let records = complete(w).await?;
    let all: BTreeSet<String> = records.keys().cloned().collect();
    let mut kept = by_hand(&all)?;
    let drops: Vec<&String> = all.difference(&kept).collect();
    ensure!(drops.len() >= 6, "too few to tell anything: {drops:?}");
    let (held, restored) = (drops[0].clone(), drops[2].clone());
    kept.extend([held.clone(), restored.clone()]);

    w.patch("EtcdSnapshot", &records[&held], json!({"spec": {"hold": true}})).await?;
    // Its members never start, so that the restore lasts as long as the story needs.
    let mut again = make::restored("again", 1, json!({"snapshotRef": {"name": records[&restored]}}));
    again["spec"]["storage"]["storageClassName"] = json!("not-there");
    w.create(again).await?;
    let restoring = |c: &Value| c["status"]["latches"]["restoring"]["source"]["key"] == restored;
    w.step("a restore has begun", w.wait("EtcdCluster", "again", "restoring", restoring)).await?;

    retain(w).await?;
    let count = all.len() - kept.len();
    w.step("the rest is announced", announced(w, count)).await?;
    ensure!(stored(w, &lineage).await? == all, "an announcement removes nothing");
    ripen(w, &lineage).await?;
    w.step("an hour later it is gone, and its records", emptied(w, &lineage, &kept)).await?;
    let files = w.bucket().await?;
    let gone = files.iter().filter(|file| all.difference(&kept).any(|key| file.contains(key.as_str())));
    let left: Vec<_> = gone.filter(|file| file.contains("snapshot.db") || file.contains("manifest")).collect();
    ensure!(left.is_empty(), "half of a snapshot is left: {left:?}");
    let told = w.get(SCHEDULE, "nightly").await?;
    ensure!(told["status"]["pruned"] == count, "{}", told["status"]);

    let class = json!({"spec": {"storage": {"storageClassName": null}}});
    w.patch("EtcdCluster", "again", class).await?;
    w.step("the restore finds its snapshot", w.wait_ready("again", 1)).await?;
    ensure!(w.digest("again").await? == w.digest("alpha").await?, "what was restored is what was saved");
    Ok(())
}

/// The newest backup lost nearly all keys, or the store was exchanged: retention removes nothing until a person accepts that.
pub async fn stopped(w: &World) -> Result<()> {
    let lineage = history(w, None).await?;
    let pod = w.names_with("Pod", "holdfast.dev/cluster=alpha").await?.into_iter().next().context("a member")?;
    w.exec(&pod, "etcd", &["etcdctl", "del", "", "--prefix"]).await?;
    run(w, "wiped").await?;
    retain(w).await?;
    let anomaly = w.step("a wiped database stops the removal", applied(w, "False", "SnapshotAnomaly")).await?;
    let (.., message) = condition(&anomaly, "RetentionApplied").context("told above")?;
    let newest = w.get("EtcdSnapshot", "wiped").await?["status"]["artifact"]["key"].clone();
    let newest = newest.as_str().context("a key")?.to_owned();
    let remedy = format!("holdfast.dev/accept-anomaly={newest}");
    ensure!(message.contains(&remedy), "the remedy {remedy} is not in {message:?}");
    let all = stored(w, &lineage).await?;
    ensure!(all.len() == PAST + 2 && prunes(w, &lineage).await? == 0, "nothing is announced: {all:?}");

    w.env.kubectl(&["annotate", "-n", &w.ns, "etcdsnapshotschedule", "nightly", &remedy])?;
    let kept = by_hand(&all)?;
    w.step("accepted, the rest is announced", announced(w, all.len() - kept.len())).await?;

    // The bucket is exchanged for a copy with a store ID of its own, without the operator's knowledge.
    let (s3, mark) = (w.s3_pod().await?, format!("{ROOT}/holdfast-store.json"));
    w.create(make::store("other", "other")).await?;
    w.step("another store", ready(w, "other")).await?;
    for (verb, from, to) in [
        ("mv", mark.clone(), format!("{ROOT}/../mark.json")),
        ("mv", format!("{ROOT}/../other/holdfast-store.json"), mark.clone()),
    ] {
        w.exec(&s3, "versitygw", &["holdfast-probe", verb, &from, &to]).await?;
    }
    ripen(w, &lineage).await?;
    let refused = w.step("an exchanged store stops it", applied(w, "False", "RetentionBlocked")).await?;
    ensure!(stored(w, &lineage).await? == all, "a snapshot of an exchanged store went: {}", refused["status"]);
    w.exec(&s3, "versitygw", &["holdfast-probe", "mv", &format!("{ROOT}/../mark.json"), &mark]).await?;
    let probed = json!({"metadata": {"annotations": {"holdfast.dev/accept-store": "again"}}});
    w.patch("EtcdBackupStore", "vault", probed).await?;
    w.step("the store is back", ready(w, "vault")).await?;
    hurry(w).await?;
    w.step("and the rest goes", emptied(w, &lineage, &kept)).await
}

/// The status shows the end of a lock. A locked snapshot is neither announced nor removed before; all others go.
pub async fn locked(w: &World) -> Result<()> {
    let until = Timestamp::from_second(Timestamp::now().as_second())? + SignedDuration::from_hours(24 * 30);
    let lineage = history(w, Some((2, until))).await?;
    let all = stored(w, &lineage).await?;
    let mut kept = by_hand(&all)?;
    // The name of a folder starts with the time of its snapshot.
    let locked: Vec<String> = all.iter().take(2).cloned().collect();
    ensure!(locked.iter().all(|key| !kept.contains(key)), "the policy keeps {locked:?} anyway");
    kept.extend(locked);
    retain(w).await?;
    w.step("the others are announced", announced(w, all.len() - kept.len())).await?;
    let shown = |s: &Value| s["status"]["locked"] == json!({"count": 2, "until": until.to_string()});
    w.step("the locks are shown", w.wait(SCHEDULE, "nightly", "two locks", shown)).await?;
    ripen(w, &lineage).await?;
    w.step("all but those goes", emptied(w, &lineage, &kept)).await?;
    let told = w.step("and that is told", applied(w, "True", "SnapshotsLocked")).await?;
    let (.., message) = condition(&told, "RetentionApplied").context("told above")?;
    ensure!(message.contains(&until.to_string()) && shown(&told), "{message}: {}", told["status"]);
    ensure!(stored(w, &lineage).await? == kept, "a locked one went");
    Ok(())
}

/// Creates a cluster, a schedule in a store, a backup and its past, all recorded; returns the lineage's folder.
async fn history(w: &World, lock: Option<(usize, Timestamp)>) -> Result<String> {
    w.create(make::store("vault", "house")).await?;
    w.create(make::cluster("alpha", 1)).await?;
    w.step("a cluster", w.wait_ready("alpha", 1)).await?;
    w.fill("alpha", 1_500).await?;
    let mut schedule = make::schedule("nightly", "alpha", "30 5,17 * * *", json!({"storeRef": {"name": "vault"}}));
    // The story starts runs by hand.
    schedule["spec"]["suspend"] = json!(true);
    w.create(schedule).await?;
    w.step("its CronJob", w.wait(SCHEDULE, "nightly", "a CronJob", |s| s["status"]["cronJob"]["name"].is_string()))
        .await?;
    let first = w.step("a backup", run(w, "first")).await?;
    let key = first["status"]["artifact"]["key"].as_str().context("a key")?;
    let (lineage, _) = key.rsplit_once('/').context("a lineage")?;
    let count = PAST.to_string();
    let (locked, end) = lock.map(|(count, until)| (count.to_string(), until.to_string())).unwrap_or_default();
    let mut past =
        vec!["holdfast-probe", "history", "--root", ROOT, "--lineage", lineage, "--count", &count, "--step", "12h"];
    if lock.is_some() {
        past.extend(["--locked", &locked, "--until", &end]);
    }
    w.exec(&w.s3_pod().await?, "versitygw", &past).await?;
    // As after a week without an operator.
    let since = Timestamp::now() - SignedDuration::from_hours(8 * 24);
    w.patch_status(SCHEDULE, "nightly", json!({"recalledThrough": since.to_string()})).await?;
    let all = until("all backups to be recorded", PATIENCE + RECALL, async || {
        let there = complete(w).await?;
        Ok(if there.len() > PAST { Ok(()) } else { Err(format!("{} of {}", there.len(), PAST + 1)) })
    });
    w.step("the past is recorded", all).await?;
    Ok(lineage.to_owned())
}

/// Starts a run of the schedule by hand.
async fn run(w: &World, name: &str) -> Result<Value> {
    let cron = w.get(SCHEDULE, "nightly").await?["status"]["cronJob"]["name"].clone();
    w.run_now(cron.as_str().context("a CronJob")?, name).await?;
    w.wait_complete(name).await
}

/// Names of the complete records by key.
async fn complete(w: &World) -> Result<BTreeMap<String, String>> {
    let mut complete = BTreeMap::new();
    for name in w.names("EtcdSnapshot").await? {
        let snapshot = w.get("EtcdSnapshot", &name).await?;
        if let Some(key) =
            snapshot["status"]["artifact"]["key"].as_str().filter(|_| snapshot["status"]["phase"] == "Complete")
        {
            complete.insert(key.to_owned(), name);
        }
    }
    Ok(complete)
}

async fn retain(w: &World) -> Result<()> {
    w.patch(SCHEDULE, "nightly", json!({"spec": {"retention": {"keepLast": 2, "keepDaily": 3}}})).await.map(drop)
}

/// Keys that the policy keeps, computed independently.
fn by_hand(all: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let name = |key: &str| key.rsplit('/').next().map(str::to_owned).context("a key");
    let mut newest: Vec<&String> = all.iter().collect();
    newest.sort_by_key(|key| std::cmp::Reverse(key.rsplit('/').next()));
    let mut kept: BTreeSet<String> = newest.iter().take(2).map(|key| (*key).clone()).collect();
    let mut days = BTreeSet::new();
    for key in newest {
        let day = name(key)?.get(..8).context("a day")?.to_owned();
        if days.len() < 3 && days.insert(day) {
            kept.insert(key.clone());
        }
    }
    Ok(kept)
}

/// Keys of the complete snapshots in the bucket.
async fn stored(w: &World, lineage: &str) -> Result<BTreeSet<String>> {
    let files = w.bucket().await?;
    let paths = files.iter().filter_map(|file| file.split_whitespace().next()?.strip_suffix("/manifest.json"));
    let keys = paths.filter_map(|folder| folder.strip_prefix(&format!("{ROOT}/")));
    Ok(keys.filter(|key| key.starts_with(lineage)).map(str::to_owned).collect())
}

/// Number of announcements in the bucket.
async fn prunes(w: &World, lineage: &str) -> Result<usize> {
    let below = format!("{ROOT}/{lineage}/prunes/");
    Ok(w.bucket().await?.iter().filter(|file| file.starts_with(&below) && file.contains(".json")).count())
}

async fn applied(w: &World, status: &str, reason: &str) -> Result<Value> {
    let said = |s: &Value| condition(s, "RetentionApplied").is_some_and(|(is, why, _)| is == status && why == reason);
    w.wait(SCHEDULE, "nightly", reason, said).await
}

async fn announced(w: &World, count: usize) -> Result<()> {
    let said = |s: &Value| s["status"]["announced"]["count"] == count && s["status"]["pruneRun"].is_null();
    w.wait(SCHEDULE, "nightly", &format!("{count} announced"), said).await.map(drop)
}

/// Backdates the announcements by two hours.
async fn ripen(w: &World, lineage: &str) -> Result<()> {
    let folder = format!("{ROOT}/{lineage}/prunes");
    let ripen = ["holdfast-probe", "ripen", "--folder", &folder, "--by", "2h"];
    w.exec(&w.s3_pod().await?, "versitygw", &ripen).await?;
    hurry(w).await
}

/// Backdates the operator's record of the announcements.
async fn hurry(w: &World) -> Result<()> {
    let ago = |hours| (Timestamp::now() - SignedDuration::from_hours(hours)).to_string();
    let noted = json!({"announced": {"notBefore": ago(1)}, "lastPrune": {"at": ago(1)}, "policy": {"since": ago(3)}});
    w.patch_status(SCHEDULE, "nightly", noted).await
}

/// Waits until the bucket and the records hold exactly these snapshots.
async fn emptied(w: &World, lineage: &str, kept: &BTreeSet<String>) -> Result<()> {
    until("only what is kept", PATIENCE, async || {
        let (stored, recorded) = (stored(w, lineage).await?, complete(w).await?);
        let same = stored == *kept && recorded.keys().eq(kept);
        Ok(if same { Ok(()) } else { Err(format!("stored {stored:?}, recorded {:?}", recorded.keys())) })
    })
    .await
}

async fn ready(w: &World, name: &str) -> Result<()> {
    let said = |s: &Value| condition(s, "Ready").is_some_and(|(is, ..)| is == "True");
    w.wait("EtcdBackupStore", name, "Ready", said).await.map(drop)
}
