//! The store is down, cut off, returns wrong data, or its credentials are wrong: a condition has one clear reason soon, nothing
//! half published stays, and the objects continue by themselves once the cause is gone, without a deletion.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::probe::service;
use crate::support::stored::manifests;
use crate::support::world::{PATIENCE, World};

/// Most seconds until the agent has a reason, without the time that its Pod needs to start.
const SOON: i64 = 30;

/// Most seconds between the failure of a restore step and its reason in the `EtcdCluster`.
const TOLD: i64 = 30;

pub(super) const PROXY: &str = include_str!("../../testbed/manifests/s3fault.yaml");

pub async fn tell(w: &World) -> Result<()> {
    w.apply(&PROXY.replace("localhost/holdfast-probe:1", &w.env.probe_image)).await?;
    w.create(make::cluster("source", 1)).await?;
    w.step("a source", w.wait_ready("source", 1)).await?;
    w.fill("source", 500).await?;
    w.probe_text(&["bulk", "--endpoint", &service("source"), "--bytes", "24MiB", "--value-bytes", "8192"]).await?;
    let digest = w.digest("source").await?;
    w.wait("Deployment", "s3-fault", "ready", |d| d["status"]["readyReplicas"] == 1).await?;

    saving(w).await?;
    restoring(w, &digest).await
}

async fn saving(w: &World) -> Result<()> {
    w.fault("down").await?;
    w.create(make::snapshot("patient", "source", json!({ "s3": through() }))).await?;
    let said = |s: &Value| condition(s, "Ready").is_some_and(|(.., words)| words.contains("the previous attempt"));
    let told = w.wait("EtcdSnapshot", "patient", "a reason", said);
    let told = w.step("a store that is down is told", told).await?;
    w.step("soon", soon(w, "holdfast.dev/snapshot=patient", "agent")).await?;
    ensure!(told["status"]["phase"] == "Running", "{}", told["status"]);
    ensure!(condition(&told, "Ready").is_some_and(|(.., words)| words.contains("s3-fault:7070")), "{}", told["status"]);
    w.fault("ok").await?;
    w.step("it goes on by itself", w.wait_complete("patient")).await?;

    for (name, how) in [("deleted", Way::Delete), ("evicted", Way::Evict)] {
        // Slow enough to be interrupted in the middle of an upload, and each part fast enough for the agent's patience.
        w.fault("slow:300000").await?;
        w.create(make::snapshot(name, "source", json!({ "s3": through() }))).await?;
        let pod = w.step("its Pod uploads", uploading(w, name)).await?;
        until("bytes on their way", PATIENCE, async || {
            let seen = w.fault("").await?;
            Ok(if seen["up"].as_u64() > Some(2_000_000) { Ok(()) } else { Err(seen.to_string()) })
        })
        .await?;
        match how {
            Way::Delete => w.delete("Pod", &pod).await?,
            Way::Evict => w.evict(&pod).await?,
        }
        until("the Pod to go", PATIENCE, async || {
            let there = w.names_with("Pod", &format!("holdfast.dev/snapshot={name}")).await?;
            let ended = w.get("Pod", &pod).await.map_or(true, |p| p["status"]["phase"] == "Failed");
            Ok(if ended { Ok(()) } else { Err(format!("{there:?}")) })
        })
        .await?;
        w.fault("ok").await?;
        let done = w.step("another Pod saves it", w.wait_complete(name)).await?;
        let files = w.bucket().await?;
        ensure!(manifests(&files, &done)?.len() == 1, "{name}: one artifact, and nothing half published: {files:?}");
    }
    Ok(())
}

enum Way {
    Delete,
    Evict,
}

async fn restoring(w: &World, digest: &crate::support::probe::Digest) -> Result<()> {
    let snapshot = w.get("EtcdSnapshot", "patient").await?;
    let key = snapshot["status"]["artifact"]["key"].clone();
    let source = |s3: Value| json!({"source": {"s3": s3, "key": key}});

    w.fault("down").await?;
    w.create(make::restored("cut-off", 1, json!({"snapshotRef": {"name": "patient"}}))).await?;
    w.step("a store that is down is told of the cluster", degraded(w, "cut-off", "StoreUnavailable")).await?;
    w.fault("cut:100000").await?;
    until("a download to be cut", PATIENCE, async || {
        let seen = w.fault("").await?;
        Ok(if seen["broken"].as_u64() > Some(0) { Ok(()) } else { Err(seen.to_string()) })
    })
    .await?;
    w.fault("ok").await?;
    w.step("it goes on by itself", w.wait_ready("cut-off", 1)).await?;
    ensure!(w.digest("cut-off").await? == *digest, "what was restored is what was saved");
    w.delete("EtcdCluster", "cut-off").await?;

    w.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mistyped"},
        "stringData": {"accessKeyID": "testbed-access", "secretAccessKey": "mistyped-canary"},
    }))
    .await?;
    let mut mistyped = make::s3();
    mistyped["credentialsSecretRef"]["name"] = json!("mistyped");
    w.create(make::restored("mistyped", 1, source(mistyped))).await?;
    let mut elsewhere = make::s3();
    elsewhere["bucket"] = json!("no-such-bucket");
    w.create(make::restored("elsewhere", 1, source(elsewhere))).await?;
    // In parallel: each restore is measured from its first attempt.
    let denied = w.step("wrong credentials are told", degraded(w, "mistyped", "StoreAccessDenied"));
    let missing = w.step("a bucket that is not there is told", degraded(w, "elsewhere", "ArtifactNotFound"));
    let (told, _) = tokio::try_join!(denied, missing)?;
    ensure!(!told.to_string().contains("mistyped-canary"), "a secret leaked: {told}");
    let right = w.get("Secret", "s3-credentials").await?["data"].clone();
    w.patch("Secret", "mistyped", json!({ "data": right })).await?;
    w.patch("EtcdCluster", "elsewhere", json!({"spec": {"bootstrap": {"restore": source(make::s3())}}})).await?;
    w.step("a corrected Secret is enough", w.wait_ready("mistyped", 1)).await?;
    w.step("so is a corrected bucket", w.wait_ready("elsewhere", 1)).await?;
    for cluster in ["mistyped", "elsewhere"] {
        ensure!(w.digest(cluster).await? == *digest, "{cluster} holds what was saved");
    }
    Ok(())
}

/// The bucket of the namespace's own S3 server, through the proxy that breaks connections.
pub(super) fn through() -> Value {
    let mut s3 = make::s3();
    s3["endpoint"] = json!("http://s3-fault:7070");
    s3
}

/// Checks that the agent, in this container of these Pods, failed soon after its start; returns the time of the failure.
async fn soon(w: &World, pods: &str, container: &str) -> Result<Timestamp> {
    let (began, ended) = until("an attempt that failed", PATIENCE, async || {
        for pod in w.names_with("Pod", pods).await? {
            if let Some(times) = failed(&w.get("Pod", &pod).await?["status"], container)? {
                return Ok(Ok(times));
            }
        }
        Ok(Err("none has".to_owned()))
    })
    .await?;
    let took = ended.duration_since(began).as_secs();
    eprintln!("e2e: {}: the agent had its reason after {took} s", w.story);
    ensure!(took <= SOON, "the agent left a person {took} s without a reason");
    Ok(ended)
}

/// Start and end of a container that failed; of two known attempts the earlier one.
fn failed(pod: &Value, container: &str) -> Result<Option<(Timestamp, Timestamp)>> {
    let all = ["containerStatuses", "initContainerStatuses"].iter().filter_map(|all| pod[all].as_array()).flatten();
    for one in all.filter(|one| one["name"] == container) {
        for state in ["lastState", "state"] {
            let ended = &one[state]["terminated"];
            if ended["exitCode"].as_i64().is_some_and(|code| code != 0) {
                return Ok(Some((time(&ended["startedAt"])?, time(&ended["finishedAt"])?)));
            }
        }
    }
    Ok(None)
}

fn time(when: &Value) -> Result<Timestamp> {
    Ok(when.as_str().context("a time")?.parse()?)
}

/// Time of a condition's last transition; another reason or message does not change it.
fn since(object: &Value, kind: &str) -> Result<Timestamp> {
    let conditions = object["status"]["conditions"].as_array().context("conditions")?;
    let one = conditions.iter().find(|c| c["type"] == kind).with_context(|| format!("{kind} in {conditions:?}"))?;
    time(&one["lastTransitionTime"])
}

/// Waits until a cluster is `Degraded` with this reason, and checks that the agent failed soon, that the condition followed soon,
/// and that no cluster has formed.
async fn degraded(w: &World, cluster: &str, reason: &str) -> Result<Value> {
    let good = |c: &Value| condition(c, "Degraded").is_some_and(|(status, why, _)| status == "True" && why == reason);
    let pods = format!("holdfast.dev/cluster={cluster}");
    // In parallel: a Pod shows only its last attempts, and `Degraded` has the time of the first one.
    let (told, ended) = tokio::try_join!(w.wait("EtcdCluster", cluster, reason, good), soon(w, &pods, "restore"))?;
    // Negative where the machine stood still and only a later attempt is known: the condition came before that attempt.
    let later = since(&told, "Degraded")?.duration_since(ended).as_secs();
    eprintln!("e2e: {}: {cluster} said {reason} {later} s after the attempt", w.story);
    ensure!(later <= TOLD, "{cluster} left a person {later} s without the reason of a failed attempt: {told}");
    ensure!(
        told["status"]["latches"].get("formed").is_none(),
        "an empty cluster in place of a restore: {}",
        told["status"]
    );
    Ok(told)
}

/// Waits for the running Pod that saves a snapshot; returns its name.
async fn uploading(w: &World, snapshot: &str) -> Result<String> {
    until("its Pod to run", PATIENCE, async || {
        for name in w.names_with("Pod", &format!("holdfast.dev/snapshot={snapshot}")).await? {
            if w.get("Pod", &name).await?["status"]["phase"] == "Running" {
                return Ok(Ok(name));
            }
        }
        Ok(Err("no Pod runs".to_owned()))
    })
    .await
}

impl World {
    /// Sets the failure of connections to the S3 server; an empty mode returns the number of connections that met the present one.
    pub(super) async fn fault(&self, mode: &str) -> Result<Value> {
        let query = if mode.is_empty() { String::new() } else { format!("?mode={mode}") };
        let path = format!("/api/v1/namespaces/{}/services/s3-fault:control/proxy/_fault{query}", self.ns);
        Ok(serde_json::from_str(&self.get_raw(&path).await?)?)
    }
}
