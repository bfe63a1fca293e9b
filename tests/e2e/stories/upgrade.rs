//! Upgrades to the next minor: from 3.5 to 3.7 under a hundred writers, back before the last member, and a rehearsal that fails.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, is_ready, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

async fn member_pods(w: &World) -> Result<Vec<Value>> {
    let selector = "holdfast.dev/cluster=u,app.kubernetes.io/component=etcd-member";
    let mut found = vec![];
    for name in w.names_with("Pod", selector).await? {
        found.push(w.get("Pod", &name).await?);
    }
    Ok(found)
}

fn runs(pod: &Value, version: &str) -> bool {
    pod["spec"]["containers"][0]["image"].as_str().is_some_and(|image| image.ends_with(version))
}

/// Waits until every member serves with this version and the upgrade is over.
async fn upgraded(w: &World, version: &str) -> Result<()> {
    until(&format!("three members of {version}"), PATIENCE, async || {
        let cluster = w.get("EtcdCluster", "u").await?;
        let status = &cluster["status"];
        let over = is_ready(&cluster, 3) && status["updatedMembers"] == 3 && status["latches"]["upgrade"].is_null();
        let pods = member_pods(w).await?;
        let all = status["version"] == version && pods.iter().all(|pod| runs(pod, version));
        Ok(if over && all { Ok(()) } else { Err(format!("{}", status["conditions"])) })
    })
    .await
}

async fn degraded(w: &World, wanted: &'static str) -> Result<String> {
    let cluster = w.wait("EtcdCluster", "u", wanted, |c| {
        condition(c, "Degraded").is_some_and(|(status, reason, _)| status == "True" && reason == wanted)
    });
    let cluster = w.step(wanted, cluster).await?;
    Ok(condition(&cluster, "Degraded").context("Degraded")?.2.to_owned())
}

async fn save(w: &World, name: &str, destination: Value) -> Result<()> {
    w.create(make::snapshot(name, "u", destination)).await?;
    w.step(&format!("snapshot {name}"), w.wait_complete(name)).await.map(drop)
}

async fn ask(w: &World, version: &str) -> Result<()> {
    w.patch("EtcdCluster", "u", json!({"spec": {"version": version}})).await.map(drop)
}

/// One cluster goes all the way. No acknowledged write is lost, and members keep their IDs.
pub async fn tell(w: &World) -> Result<()> {
    let mut cluster = make::cluster("u", 3);
    cluster["spec"]["version"] = json!("3.5.35");
    w.create(cluster).await?;
    w.step("three voters of 3.5", w.wait_ready("u", 3)).await?;
    w.fill("u", 300).await?;
    let before = w.members("u").await?;

    let writing = w.write_for("u", 100);
    let upgrading = async {
        let two = w.patch("EtcdCluster", "u", json!({"spec": {"version": "3.7.3"}})).await;
        let two = format!("{:#}", two.err().context("two minors at once were accepted")?);
        ensure!(two.contains("next minor only"), "{two}");
        let mut took = vec![];
        ask(w, "3.6.16").await?;
        let needed = degraded(w, "SnapshotNeeded").await?;
        ensure!(needed.contains("clusterRef u"), "{needed}");
        save(w, "first", json!({ "s3": make::s3() })).await?;
        // The first snapshot is of 3.5: Holdfast saves another one before 3.7.
        for version in ["3.6.16", "3.7.3"] {
            let from = Instant::now();
            ask(w, version).await?;
            w.step(&format!("upgraded to {version}"), upgraded(w, version)).await?;
            took.push(format!("to {version} with its rehearsal {:.1} s", from.elapsed().as_secs_f64()));
        }
        anyhow::Ok(took)
    };
    let (wrote, took) = tokio::join!(writing, upgrading);
    let (wrote, took) = (wrote?, took?);
    w.step("every acknowledged write is there", w.all_written("u", &wrote)).await?;
    ensure!(wrote.total > 1_000, "hardly anything was written: {wrote:?}");
    ensure!(w.members("u").await? == before, "the members are the same");
    let rehearsals = w.names("Job").await?.len();
    ensure!(rehearsals >= 4, "two saves and two rehearsals: {rehearsals}");
    eprintln!(
        "e2e: {}: {}; {} writes acknowledged, {} attempts failed, longest gap {:.0} ms",
        w.story,
        took.join(", "),
        wrote.total,
        wrote.failed,
        wrote.longest_gap_ms
    );
    Ok(())
}

/// A person goes back after the first member, and the members are as before. A rehearsal on a broken snapshot touches no member.
pub async fn back(w: &World) -> Result<()> {
    w.create(make::cluster("u", 3)).await?;
    w.step("three voters", w.wait_ready("u", 3)).await?;
    w.fill("u", 300).await?;
    let (digest, members) = (w.digest("u").await?, w.members("u").await?);
    save(w, "broken", json!({ "s3": make::s3() })).await?;
    w.step("one bit flipped", w.flip_a_bit("broken")).await?;
    let untouched = member_pods(w).await?;
    ask(w, "3.7.3").await?;
    let why = degraded(w, "PreflightFailed").await?;
    ensure!(why.contains("no member was touched"), "{why}");
    let uid = |pod: &Value| pod["metadata"]["uid"].clone();
    let (was, is): (Vec<Value>, Vec<Value>) =
        (untouched.iter().map(uid).collect(), member_pods(w).await?.iter().map(uid).collect());
    ensure!(was == is, "a member was touched");
    ask(w, "3.6.16").await?;
    w.step("as before", w.wait_ready("u", 3)).await?;

    // Another value of the annotation is another rehearsal.
    save(w, "sound", json!({ "s3": make::s3() })).await?;
    let again = json!({"metadata": {"annotations": {"holdfast.dev/restart": "again"}}, "spec": {"version": "3.7.3"}});
    w.patch("EtcdCluster", "u", again).await?;
    until("one member of 3.7", PATIENCE, async || {
        let pods = member_pods(w).await?;
        let newer = pods.iter().filter(|pod| runs(pod, "3.7.3")).count();
        Ok(if newer >= 1 { Ok(()) } else { Err("none yet".to_owned()) })
    })
    .await?;
    ask(w, "3.6.16").await?;
    w.step("back on 3.6", upgraded(w, "3.6.16")).await?;
    ensure!(w.members("u").await? == members, "the members are the same");
    ensure!(w.digest("u").await? == digest, "data changed");
    Ok(())
}
