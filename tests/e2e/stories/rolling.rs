//! Rolling changes under a hundred writers: options, resources, patch version, restart on request; and changes that do not start.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use holdfast_plan::pods;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::support::env::soak;
use crate::support::kube_helpers::{condition, is_ready, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// The oldest patch of 3.6 without known defects.
const OLDER: &str = "3.6.11";
const NEWER: &str = "3.6.16";

/// The members' Pods, by name.
async fn pods(w: &World, cluster: &str) -> Result<BTreeMap<String, Value>> {
    let selector = format!("holdfast.dev/cluster={cluster},app.kubernetes.io/component=etcd-member");
    let mut found = BTreeMap::new();
    for name in w.names_with("Pod", &selector).await? {
        let pod = w.get("Pod", &name).await?;
        found.insert(name, pod);
    }
    Ok(found)
}

fn etcd(pod: &Value) -> &Value {
    &pod["spec"]["containers"][0]
}

/// Whether etcd has this flag, by the request of the gate.
pub(super) fn has_flag(pod: &Value, flag: &str) -> bool {
    let pod: Option<Pod> = serde_json::from_value(pod.clone()).ok();
    pod.and_then(|pod| pods::gate(&pod)).is_some_and(|gate| gate.exec.iter().any(|word| word == flag))
}

/// Waits until every member serves with the changed spec, and returns the seconds since `from`.
async fn rolled(w: &World, what: &str, from: Instant, changed: impl Fn(&Value) -> bool) -> Result<f64> {
    until(what, PATIENCE, async || {
        let cluster = w.get("EtcdCluster", "r").await?;
        let updated = is_ready(&cluster, 3) && cluster["status"]["updatedMembers"] == 3;
        let changed = pods(w, "r").await?.values().all(&changed);
        Ok(if updated && changed { Ok(()) } else { Err(format!("{}", cluster["status"]["conditions"])) })
    })
    .await?;
    Ok(from.elapsed().as_secs_f64())
}

/// Other resources and labels reach the running Pods: none ends, and no container restarts.
async fn in_place(w: &World) -> Result<f64> {
    let before = pods(w, "r").await?;
    let from = Instant::now();
    let requests = json!({"cpu": "60m", "memory": "220Mi"});
    let change = json!({"spec": {
        "resources": {"requests": requests},
        "podMetadata": {"labels": {"team": "storage"}},
        "additionalMetadata": {"labels": {"team": "everybody", "cost": "42"}},
    }});
    w.patch("EtcdCluster", "r", change).await?;
    let applied = |pod: &Value| {
        let status = &pod["status"]["containerStatuses"][0];
        let labelled = pod["metadata"]["labels"]["team"] == "storage" && pod["metadata"]["labels"]["cost"] == "42";
        etcd(pod)["resources"]["requests"] == requests && status["resources"]["requests"] == requests && labelled
    };
    let took = rolled(w, "resources of running Pods", from, applied).await?;
    for (name, pod) in pods(w, "r").await? {
        let same = |path: &str| pod.pointer(path) == before[&name].pointer(path);
        let unmarked = pod["metadata"]["annotations"]["holdfast.dev/resize"].is_null();
        let kept = same("/metadata/uid") && same("/status/containerStatuses/0/restartCount");
        ensure!(kept && unmarked, "{name} runs on: {}", pod["metadata"]);
    }
    let services = [("Service", "r"), ("Service", "r-client"), ("PodDisruptionBudget", "r")];
    for (kind, name) in services {
        let labels = w.get(kind, name).await?["metadata"]["labels"].clone();
        ensure!(labels["team"] == "everybody" && labels["cost"] == "42", "{kind} {name}: {labels}");
    }
    w.patch("EtcdCluster", "r", json!({"spec": {"podMetadata": null, "additionalMetadata": null}})).await?;
    until("the labels go", PATIENCE, async || {
        let mut all: Vec<Value> = pods(w, "r").await?.into_values().collect();
        for (kind, name) in services {
            all.push(w.get(kind, name).await?);
        }
        let bare = |object: &&Value| ["team", "cost"].iter().all(|key| object["metadata"]["labels"][key].is_null());
        let labelled = all.iter().find(|object| !bare(object)).map(|object| object["metadata"]["labels"].to_string());
        Ok(labelled.map_or(Ok(()), Err))
    })
    .await?;
    Ok(took)
}

/// Options, resources, the patch version in both directions and a restart on request roll under load. Members keep their names, IDs
/// and volumes, and no acknowledged write is lost.
pub async fn tell(w: &World) -> Result<()> {
    let mut cluster = make::cluster("r", 3);
    cluster["spec"]["version"] = json!(OLDER);
    w.create(cluster).await?;
    w.step("three voters", w.wait_ready("r", 3)).await?;
    let before = w.members("r").await?;
    let first = pods(w, "r").await?;

    let writing = w.write_for("r", if soak() { 180 } else { 75 });
    let rolling = async {
        let mut took = vec![];
        let begin = async |change: Value| {
            w.patch("EtcdCluster", "r", change).await?;
            anyhow::Ok(Instant::now())
        };
        let from = begin(json!({"spec": {"options": {"snapshotCount": 20_000, "maxTxnOps": 256}}})).await?;
        took.push(("options", rolled(w, "options", from, |pod| has_flag(pod, "--snapshot-count=20000")).await?));
        // A field that is removed goes from the members too.
        let change = json!({"spec": {"options": {"maxTxnOps": null}, "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}}}});
        let from = begin(change).await?;
        let requests = |pod: &Value| {
            let requests = &etcd(pod)["resources"]["requests"];
            requests == &json!({"cpu": "50m", "memory": "200Mi"}) && !has_flag(pod, "--max-txn-ops=256")
        };
        took.push(("an option less", rolled(w, "resources and an option", from, requests).await?));
        took.push(("resources alone", in_place(w).await?));
        let runs = |version: &'static str| {
            move |pod: &Value| etcd(pod)["image"].as_str().is_some_and(|image| image.ends_with(version))
        };
        let from = begin(json!({"spec": {"version": NEWER}})).await?;
        took.push(("version", rolled(w, "the later patch", from, runs(NEWER)).await?));
        if soak() {
            let from = begin(json!({"spec": {"version": OLDER}})).await?;
            took.push(("version back", rolled(w, "the earlier patch", from, runs(OLDER)).await?));
        }
        let from = begin(json!({"metadata": {"annotations": {"holdfast.dev/restart": "asked"}}})).await?;
        let old = pods(w, "r").await?;
        let restarted = |pod: &Value| {
            let was = &old[pod["metadata"]["name"].as_str().unwrap_or_default()]["metadata"]["uid"];
            &pod["metadata"]["uid"] != was
        };
        took.push(("restart", rolled(w, "a restart on request", from, restarted).await?));
        anyhow::Ok(took)
    };
    let (wrote, took) = tokio::join!(writing, rolling);
    let (wrote, took) = (wrote?, took?);
    w.step("every acknowledged write is there", w.all_written("r", &wrote)).await?;
    ensure!(wrote.total > 1_000, "hardly anything was written: {wrote:?}");
    ensure!(w.members("r").await? == before, "the members are the same");
    let last = pods(w, "r").await?;
    ensure!(first.keys().eq(last.keys()), "other Pods: {:?}", last.keys());
    let seconds: Vec<String> = took.iter().map(|(what, seconds)| format!("{what} {seconds:.1} s")).collect();
    eprintln!(
        "e2e: {}: {}; {} writes acknowledged, {} attempts failed, longest gap {:.0} ms",
        w.story,
        seconds.join(", "),
        wrote.total,
        wrote.failed,
        wrote.longest_gap_ms
    );
    let version = w.get("EtcdCluster", "r").await?["status"]["version"].clone();
    ensure!(version == if soak() { OLDER } else { NEWER }, "{version}");
    Ok(())
}

/// Resources that kubelet cannot apply, resources with which etcd does not start, and an image that does not exist: one member stops, and gets its earlier settings back.
/// A version that does not exist waits for the next edit.
pub async fn bad(w: &World) -> Result<()> {
    let mut cluster = make::cluster("r", 3);
    // etcd with too little memory may also hang instead of ending.
    cluster["spec"]["progressDeadlineSeconds"] = json!(45);
    w.create(cluster).await?;
    w.step("three voters", w.wait_ready("r", 3)).await?;
    let before = pods(w, "r").await?;
    let stuck = async |what: &str| {
        let held = w.wait("EtcdCluster", "r", what, |c| {
            condition(c, "Degraded").is_some_and(|(status, reason, _)| status == "True" && reason == "RolloutStuck")
        });
        w.step(what, held).await
    };
    let writing = w.write_for("r", 120);
    let breaking = async {
        let starved = json!({"limits": {"memory": "6Mi"}, "requests": {"memory": "6Mi", "cpu": "50m"}});
        w.patch("EtcdCluster", "r", json!({"spec": {"resources": starved}})).await?;
        let cluster = stuck("a memory limit below the memory that etcd uses").await?;
        let why = cluster["status"]["latches"]["failedTemplate"]["why"].as_str().unwrap_or_default();
        ensure!(why.contains("memory"), "{why}");
        for (name, pod) in pods(w, "r").await? {
            ensure!(pod["metadata"]["uid"] == before[&name]["metadata"]["uid"], "{name} runs on");
        }
        // Another option needs another process.
        w.patch("EtcdCluster", "r", json!({"spec": {"options": {"snapshotCount": 20_000}}})).await?;
        w.wait("EtcdCluster", "r", "the latch goes", |c| c["status"]["latches"]["failedTemplate"].is_null()).await?;
        let cluster = stuck("memory with which etcd does not start").await?;
        let failed = cluster["status"]["latches"]["failedTemplate"]["member"].as_str().context("a failed member")?;
        let failed = failed.to_owned();
        until("it serves again", PATIENCE, async || {
            let ready = w.get("EtcdCluster", "r").await?["status"]["readyMembers"] == 3;
            Ok(if ready { Ok(()) } else { Err("not yet".to_owned()) })
        })
        .await?;
        for (name, pod) in pods(w, "r").await? {
            let same = pod["metadata"]["uid"] == before[&name]["metadata"]["uid"];
            ensure!(same == (name != failed), "{name}: only the Pod of {failed} ended");
        }
        let digest = format!("sha256:{}", "0".repeat(64));
        w.patch("EtcdCluster", "r", json!({"spec": {"resources": null, "options": null, "image": {"digest": digest}}}))
            .await?;
        until("the image is held back", PATIENCE, async || {
            let cluster = w.get("EtcdCluster", "r").await?;
            let why = cluster["status"]["latches"]["failedTemplate"]["why"].as_str().unwrap_or_default();
            let held = why.contains("mage") && cluster["status"]["readyMembers"] == 3;
            Ok(if held { Ok(()) } else { Err(format!("{}", cluster["status"]["latches"])) })
        })
        .await
    };
    let (wrote, broken) = tokio::join!(writing, breaking);
    broken?;
    let wrote = wrote?;
    w.step("every acknowledged write is there", w.all_written("r", &wrote)).await?;
    eprintln!(
        "e2e: {}: {} writes acknowledged, {} attempts failed, longest gap {:.0} ms",
        w.story, wrote.total, wrote.failed, wrote.longest_gap_ms
    );
    w.patch("EtcdCluster", "r", json!({"spec": {"image": null, "version": "3.6.99"}})).await?;
    let waits = w.wait("EtcdCluster", "r", "a version that does not exist", |c| {
        condition(c, "Degraded").is_some_and(|(_, reason, message)| {
            reason == "RolloutStuck" && message.contains("a version is not rolled back by itself")
        })
    });
    let waits = w.step("a version that does not exist", waits).await?;
    ensure!(waits["status"]["latches"]["failedTemplate"].is_null(), "{}", waits["status"]["latches"]);
    ensure!(waits["status"]["readyMembers"] == 2, "one member has it: {}", waits["status"]);
    w.patch("EtcdCluster", "r", json!({"spec": {"version": "3.6.16", "options": {"snapshotCount": 30_000}}})).await?;
    let from = Instant::now();
    rolled(w, "the corrected spec", from, |pod| has_flag(pod, "--snapshot-count=30000")).await.map(drop)
}
