//! A cluster goes back in place: clients keep its name, and the earlier data stays until its time is over.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// The EtcdRestore that the plugin makes for the first return of the cluster `a`.
const BACK: &str = "a-timeline-2";

/// Runs a command line of the plugin as an administrator; returns all that it printed.
async fn plugin(w: &World, line: &str) -> Result<String> {
    let mut command = tokio::process::Command::new(&w.env.holdfast);
    command.args(line.split_whitespace()).arg("--kubeconfig").arg(&w.env.kubeconfig).arg("-n").arg(&w.ns);
    let out = command.output().await?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{line}: {text}");
    Ok(text)
}

/// An EtcdRestore of `cluster`, with a safety snapshot to the store `vault`.
fn restore(name: &str, cluster: &str, timeline: u32, from: Value) -> Value {
    json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdRestore", "metadata": {"name": name},
        "spec": {
            "clusterRef": {"name": cluster}, "timeline": timeline, "from": from,
            "safetySnapshot": {"destination": {"storeRef": {"name": "vault"}}},
        },
    })
}

async fn ends(w: &World, name: &str, phase: &str) -> Result<Value> {
    w.wait("EtcdRestore", name, phase, |it| it["status"]["phase"] == phase).await
}

/// The members of a cluster whose Pod is asked for, and those that were set aside.
async fn members(w: &World, cluster: &str) -> Result<(Vec<String>, Vec<String>)> {
    let (mut present, mut aside) = (vec![], vec![]);
    for name in w.names_with("EtcdMember", &format!("holdfast.dev/cluster={cluster}")).await? {
        let member = w.get("EtcdMember", &name).await?;
        if member["spec"]["aside"].is_null() { present.push(name) } else { aside.push(name) }
    }
    Ok((present, aside))
}

/// Three members go back to a snapshot while clients write; the same EtcdRestore applied again changes nothing.
pub async fn in_place(w: &World) -> Result<()> {
    w.create(make::store("vault", "returns")).await?;
    w.create(make::cluster("a", 3)).await?;
    w.step("three voters", w.wait_ready("a", 3)).await?;
    w.fill("a", 2_000).await?;
    let before = w.digest("a").await?;
    w.create(make::snapshot("good", "a", json!({"storeRef": {"name": "vault"}}))).await?;
    w.step("the snapshot to return to", w.wait_complete("good")).await?;
    let (earlier, _) = members(w, "a").await?;
    let service = w.get("Service", "a-client").await?["spec"]["clusterIP"].clone();

    let writing = w.write_for("a", 25);
    let returning = async {
        // Clients write already.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let from = Instant::now();
        let line = "restore in-place a --snapshot=good --wait --timeout-seconds=900";
        let text = w.step("the cluster goes back", plugin(w, line)).await?;
        let took = from.elapsed();
        for word in ["Preparing ", "Saving ", "SettingAside ", "Starting ", "without a member for clients"] {
            ensure!(text.contains(word), "{line} does not say {word}: {text}");
        }
        anyhow::Ok((took, ends(w, BACK, "Complete").await?))
    };
    let (wrote, returned) = tokio::join!(writing, returning);
    let (wrote, (took, done)) = (wrote?, returned?);
    let told = &done["status"];
    eprintln!(
        "e2e: {}: back {:.1} s after the command; clients without a member for {} s; {} writes acknowledged; {}",
        w.story,
        took.as_secs_f64(),
        told["outageSeconds"],
        wrote.total,
        told["phases"]
    );
    w.step("three voters of the next timeline", w.wait_ready("a", 3)).await?;
    ensure!(w.get("EtcdCluster", "a").await?["status"]["timeline"] == 2, "the timeline");
    ensure!(w.get("Service", "a-client").await?["spec"]["clusterIP"] == service, "clients keep their address");
    let revisions = (told["firstRevision"].as_i64(), told["earlierRevision"].as_i64());
    ensure!(revisions.0 > revisions.1, "I10: no revision comes twice: {told}");
    let safety = told["safetySnapshot"].as_str().context("a safety snapshot")?.to_owned();

    let (present, aside) = members(w, "a").await?;
    ensure!(present.len() == 3 && !present.iter().any(|name| earlier.contains(name)), "{present:?}");
    ensure!(aside == earlier, "the earlier members are set aside: {aside:?}");
    for name in &aside {
        ensure!(w.get("EtcdMember", name).await?["status"]["state"] == "SetAside", "{name}");
        ensure!(w.get("PersistentVolumeClaim", &format!("data-{name}")).await?["status"]["phase"] == "Bound", "{name}");
        ensure!(w.get("Pod", name).await.is_err(), "{name} has a Pod");
    }

    // What was written until clients were led away is in the safety snapshot, and not in the cluster.
    w.create(make::restored("copy", 1, json!({"snapshotRef": {"name": safety}}))).await?;
    w.step("the safety snapshot, elsewhere", w.wait_ready("copy", 1)).await?;
    let acknowledged_before = written_under(w, "copy").await?;
    ensure!(acknowledged_before > 500, "hardly anything was written before: {acknowledged_before}");
    w.etcdctl(&present[0], &["del", "--prefix", "writers/"]).await?;
    ensure!(w.digest("a").await? == before, "a holds what was saved");

    w.step("GitOps applies it again", applied_again(w, &present)).await
}

/// Number of keys that the writers have put into a cluster.
async fn written_under(w: &World, cluster: &str) -> Result<usize> {
    let (present, _) = members(w, cluster).await?;
    let keys = w.etcdctl(present.first().context("a member")?, &["get", "writers/", "--prefix", "--keys-only"]).await?;
    Ok(keys.lines().filter(|line| !line.is_empty()).count())
}

async fn applied_again(w: &World, present: &[String]) -> Result<()> {
    let version = w.get("EtcdRestore", BACK).await?["metadata"]["resourceVersion"].clone();
    w.delete_and_wait("EtcdRestore", BACK).await?;
    w.create(restore(BACK, "a", 2, json!({"snapshotRef": {"name": "good"}}))).await?;
    let skipped = ends(w, BACK, "Skipped").await?;
    ensure!(
        condition(&skipped, "Ready").is_some_and(|(status, reason, _)| status == "True" && reason == "TimelineExists"),
        "{skipped}"
    );
    ensure!(skipped["metadata"]["resourceVersion"] != version, "another object");
    w.create(restore("far", "a", 9, json!({"snapshotRef": {"name": "good"}}))).await?;
    let refused = w.wait("EtcdRestore", "far", "InvalidSpec", |it| {
        condition(it, "Degraded").is_some_and(|(status, reason, words)| {
            status == "True" && reason == "InvalidSpec" && words.contains("next timeline") && words.contains('3')
        })
    });
    refused.await?;
    let (now, _) = members(w, "a").await?;
    ensure!(now == present, "{now:?}");
    Ok(())
}

/// The first member of the next timeline loses its volume after the earlier ones were set aside: the earlier timeline serves again with
/// every acknowledged write. A source that is missing leads nobody away.
pub async fn fails(w: &World) -> Result<()> {
    w.create(make::store("vault", "failures")).await?;
    w.create(make::cluster("f", 3)).await?;
    w.step("three voters", w.wait_ready("f", 3)).await?;
    w.create(make::snapshot("good", "f", json!({"storeRef": {"name": "vault"}}))).await?;
    w.step("the snapshot to return to", w.wait_complete("good")).await?;
    let (earlier, _) = members(w, "f").await?;

    // A key that no store has: the data is never prepared.
    let missing = json!({"source": {"storeRef": {"name": "vault"}, "key": "nobody/f/00000000/20260101T000000Z-00000000-00000000"}});
    let mut early = restore("early", "f", 2, missing);
    early["spec"]["deadlineSeconds"] = json!(30);
    w.create(early).await?;
    let wrote = w.write_for("f", 20).await?;
    let failed = w.step("a missing source", ends(w, "early", "Failed")).await?;
    ensure!(failed["status"]["phases"].to_string().contains("Preparing"), "{failed}");
    ensure!(!failed["status"]["phases"].to_string().contains("Saving"), "nobody was led away: {failed}");
    w.step("every acknowledged write is there", w.all_written("f", &wrote)).await?;
    w.delete_and_wait("EtcdRestore", "early").await?;
    until("the prepared member is gone", PATIENCE, async || {
        let (present, aside) = members(w, "f").await?;
        Ok(if present == earlier && aside.is_empty() { Ok(()) } else { Err(format!("{present:?} {aside:?}")) })
    })
    .await?;

    let mut late = restore("late", "f", 2, json!({"snapshotRef": {"name": "good"}}));
    late["spec"]["deadlineSeconds"] = json!(30);
    w.create(late).await?;
    w.step("the earlier members are set aside", async {
        until("a member that is set aside", PATIENCE, async || {
            let (_, aside) = members(w, "f").await?;
            Ok(if aside.is_empty() { Err(String::new()) } else { Ok(()) })
        })
        .await
    })
    .await?;
    // A quota that no Pod passes.
    w.create(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}},
    }))
    .await?;
    w.wait("EtcdRestore", "late", "TurningBack", |it| it["status"]["phase"] == "TurningBack").await?;
    w.delete("ResourceQuota", "none").await?;
    let failed = w.step("the earlier timeline serves again", ends(w, "late", "Failed")).await?;
    eprintln!("e2e: {}: {}", w.story, failed["status"]["phases"]);
    w.step("three voters", w.wait_ready("f", 3)).await?;
    let (present, aside) = members(w, "f").await?;
    ensure!(present == earlier && aside.is_empty(), "{present:?} {aside:?}");
    ensure!(w.get("EtcdCluster", "f").await?["status"]["timeline"].is_null(), "timeline 1");
    w.step("every acknowledged write is there", w.all_written("f", &wrote)).await
}

/// A return and its undo. A schedule with its log and an EtcdUser go on in each timeline, a point of before the return stays restorable,
/// and the undo, a return to the safety snapshot, brings every acknowledged write back.
pub async fn undone(w: &World) -> Result<()> {
    w.create(make::store("vault", "undo")).await?;
    w.create(make::cluster("u", 1)).await?;
    w.step("a voter", w.wait_ready("u", 1)).await?;
    let mut nightly = make::schedule("nightly", "u", "0 0 1 1 *", json!({"storeRef": {"name": "vault"}}));
    nightly["spec"]["log"] = json!({"everySeconds": 2});
    w.create(nightly).await?;
    w.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "till-login"}, "stringData": {"password": "canary-till"},
    }))
    .await?;
    let keys = json!([{"key": "writers/", "match": "Prefix", "access": "ReadWrite"}]);
    w.create(make::user("u", "till", &json!({"passwordSecretRef": {"name": "till-login"}}), &keys)).await?;
    w.step("a user and a log", goes_on(w, "u")).await?;
    w.fill("u", 300).await?;
    w.create(make::snapshot("good", "u", json!({"storeRef": {"name": "vault"}}))).await?;
    w.step("the snapshot to return to", w.wait_complete("good")).await?;
    let wrote = w.write_for("u", 5).await?;
    let last = revision(w, "u").await?;
    w.step("the log reaches the last write", recorded(w, last)).await?;

    w.create(restore("back", "u", 2, json!({"snapshotRef": {"name": "good"}}))).await?;
    let back = w.step("the cluster goes back", ends(w, "back", "Complete")).await?;
    ensure!(written_under(w, "u").await? == 0, "the writes are gone");
    w.step("the user and the log go on", goes_on(w, "u")).await?;
    w.step("the schedule saves at once", saved_by_schedule(w, "u")).await?;
    let folders = w.bucket().await?;
    ensure!(folders.iter().any(|file| file.contains("/log-")), "a log of its own: {folders:?}");

    let safety = back["status"]["safetySnapshot"].as_str().context("a safety snapshot")?;
    w.create(restore("undo", "u", 3, json!({"snapshotRef": {"name": safety}}))).await?;
    let undo = w.step("the return is undone", ends(w, "undo", "Complete")).await?;
    ensure!(undo["status"]["firstRevision"].as_i64() > back["status"]["firstRevision"].as_i64(), "I10: {undo}");
    w.step("every acknowledged write is there", w.all_written("u", &wrote)).await?;
    w.step("the user and the log go on", goes_on(w, "u")).await?;
    w.step("the schedule saves at once", saved_by_schedule(w, "u")).await?;

    let point = json!({"latest": {"storeRef": {"name": "vault"}, "cluster": "u"}, "at": {"revision": last}});
    w.create(make::restored("point", 1, point)).await?;
    w.step("a point of before the return", w.wait_ready("point", 1)).await?;
    w.all_written("point", &wrote).await
}

async fn revision(w: &World, cluster: &str) -> Result<i64> {
    let (present, _) = members(w, cluster).await?;
    let status = w.etcdctl(present.first().context("a member")?, &["endpoint", "status", "-w", "json"]).await?;
    let status: Value = serde_json::from_str(&status)?;
    status[0]["Status"]["header"]["revision"].as_i64().with_context(|| format!("a revision: {status}"))
}

/// Waits until a segment of a log ends at this revision or later.
async fn recorded(w: &World, revision: i64) -> Result<()> {
    until(&format!("revision {revision} in the store"), PATIENCE, async || {
        let last = |file: &String| {
            let path = file.split_whitespace().find(|word| word.ends_with(".seg.zst"))?;
            path.rsplit('/').next()?.split('-').nth(1)?.parse::<i64>().ok()
        };
        let end = w.bucket().await?.iter().filter_map(last).max();
        Ok(if end >= Some(revision) { Ok(()) } else { Err(format!("it ends at {end:?}")) })
    })
    .await
}

/// Waits until etcd has the user of the EtcdUser, by its claim in the present etcd cluster, and the log is current.
async fn goes_on(w: &World, cluster: &str) -> Result<()> {
    until("the user and the log", PATIENCE, async || {
        let object = w.get("EtcdCluster", cluster).await?;
        let id = object["status"]["clusterId"].as_str().unwrap_or("none").to_owned();
        let user = w.get("EtcdUser", "till").await?;
        let claim = user["metadata"]["annotations"]["holdfast.dev/etcd-user"].as_str().unwrap_or_default().to_owned();
        let schedule = w.get("EtcdSnapshotSchedule", "nightly").await?;
        let current = condition(&schedule, "LogCurrent").is_some_and(|(status, ..)| status == "True");
        // The claim has four parts after etcd was given the user.
        let given = claim.starts_with(&format!("{id}/")) && claim.split('/').count() == 4;
        Ok(if given && current { Ok(()) } else { Err(format!("{id} {claim} {}", schedule["status"]["conditions"])) })
    })
    .await?;
    let (present, _) = members(w, cluster).await?;
    let users = w.etcdctl(present.first().context("a member")?, &["user", "list"]).await?;
    ensure!(users.contains("till"), "{users}");
    Ok(())
}

/// Waits until the schedule has saved the present etcd cluster.
async fn saved_by_schedule(w: &World, cluster: &str) -> Result<()> {
    until("a snapshot of the present etcd cluster", PATIENCE, async || {
        let object = w.get("EtcdCluster", cluster).await?;
        let mut seen = vec![];
        for name in w.names_with("EtcdSnapshot", "holdfast.dev/schedule-uid").await? {
            let status = w.get("EtcdSnapshot", &name).await?["status"].take();
            if status["phase"] == "Complete" && status["source"]["clusterID"] == object["status"]["clusterId"] {
                return Ok(Ok(()));
            }
            seen.push(status.to_string());
        }
        Ok(Err(format!("{seen:?}")))
    })
    .await
}
