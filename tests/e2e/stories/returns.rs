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
