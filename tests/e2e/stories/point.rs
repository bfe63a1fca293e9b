//! Back to the second before a mistake: a snapshot and the log of an archiver, into new clusters by a time and by a revision, and
//! a point that nothing reaches.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::world::World;

const SAMPLE: &str = include_str!("../../../jobs/deployment-log.yaml");

/// The archiver samples the time each second.
const SAMPLED: Duration = Duration::from_secs(3);

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("orders", 1)).await?;
    w.step("one voter", w.wait_ready("orders", 1)).await?;
    w.fill("orders", 500).await?;
    w.create(make::snapshot("base", "orders", json!({"s3": make::s3()}))).await?;
    let base = w.step("a snapshot", w.wait_complete("base")).await?["status"]["artifact"].clone();
    record(w).await?;

    let etcd = w.names_with("EtcdMember", "holdfast.dev/cluster=orders").await?.pop().context("a member")?;
    let granted = w.etcdctl(&etcd, &["lease", "grant", "3600"]).await?;
    let lease = granted.split_whitespace().nth(1).context("a lease")?;
    w.etcdctl(&etcd, &["put", "/paid/1", "yes", &format!("--lease={lease}")]).await?;
    w.etcdctl(&etcd, &["put", "/paid/2", "no"]).await?;
    w.etcdctl(&etcd, &["put", "/paid/2", "yes"]).await?;
    w.step("many writes", w.write_for("orders", 5)).await?;
    let before = w.digest("orders").await?;
    let good = revision(w, &etcd).await?;
    tokio::time::sleep(SAMPLED).await;
    let second = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    tokio::time::sleep(SAMPLED).await;
    w.etcdctl(&etcd, &["del", "--prefix", "/paid/"]).await?;
    w.etcdctl(&etcd, &["put", "later", "1"]).await?;

    let latest = |at: Value| json!({"latest": {"s3": make::s3(), "cluster": "orders"}, "at": at});
    let begun = Instant::now();
    w.create(make::restored("again", 3, latest(json!({ "time": second })))).await?;
    w.step("back to the second before", w.wait_ready("again", 3)).await?;
    eprintln!("e2e: {}: RTO, from the creation to Ready with three voters: {:?}", w.story, begun.elapsed());
    ensure!(w.digest("again").await? == before, "again holds every key, value, version and lease of {second}");
    let told = w.get("EtcdCluster", "again").await?["status"]["restore"].clone();
    let point = &told["point"];
    ensure!(
        point["time"] == second && point["revision"] == good && point["baseRevision"] == base["revision"],
        "{told}"
    );
    ensure!(point["records"].as_u64() > Some(3) && point["segments"].as_u64() > Some(0), "{told}");
    ensure!(point["proof"].is_string() && told["takenAt"] != second, "{told}");

    let named = json!({"snapshotRef": {"name": "base"}, "at": {"revision": good}});
    w.create(make::restored("named", 1, named)).await?;
    w.create(make::restored("early", 1, latest(json!({"revision": 1})))).await?;
    w.step("a named snapshot, up to a revision", w.wait_ready("named", 1)).await?;
    ensure!(w.digest("named").await? == before, "named holds what revision {good} held");
    let told = w.wait("EtcdCluster", "early", "refused", |c| {
        condition(c, "Degraded").is_some_and(|(status, reason, _)| status == "True" && reason == "ArtifactNotFound")
    });
    let told = w.step("before the first snapshot", told).await?;
    let message = condition(&told, "Degraded").context("Degraded")?.2;
    let nearest = format!("every snapshot is later. The nearest point is revision {}", base["revision"]);
    ensure!(message.contains(&nearest), "{message}");
    Ok(())
}

/// Starts an archiver: the sample's Deployment, edited as a user would.
async fn record(w: &World) -> Result<()> {
    let uid = w.get("EtcdCluster", "orders").await?["metadata"]["uid"].as_str().context("a UID")?.to_owned();
    let mut deployment: Value = serde_saphyr::from_str(SAMPLE)?;
    deployment["metadata"]["namespace"] = json!(w.ns);
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    container["image"] = json!(w.env.image);
    container["args"] = json!([
        "--endpoints=http://orders-client:2379",
        "--store=s3://backups/house",
        "--s3-endpoint=http://s3:7070",
        "--credentials-dir=/etc/holdfast/credentials",
        format!("--namespace={}", w.ns),
        "--cluster=orders",
        format!("--cluster-uid={uid}"),
        "--every-seconds=2",
        "--spool-dir=/spool",
        "--spool-mib=256",
    ]);
    w.apply(&deployment.to_string()).await?;
    let name = deployment["metadata"]["name"].as_str().context("a name")?;
    w.step("an archiver", w.wait("Deployment", name, "ready", |d| d["status"]["readyReplicas"] == 1)).await.map(drop)
}

/// Returns etcd's present revision.
async fn revision(w: &World, member: &str) -> Result<i64> {
    let answer: Value = serde_json::from_str(&w.etcdctl(member, &["get", "none", "-w", "json"]).await?)?;
    answer["header"]["revision"].as_i64().context("a revision")
}
