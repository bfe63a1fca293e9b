//! Growth of volumes under a hundred writers: while the volumes are in use, when they are mounted again, and refused.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::rolling::has_flag;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::probe::Wrote;
use crate::support::world::{PATIENCE, World};

/// etcd's default quota on a volume of 2Gi; on 1Gi it is half of that.
const QUOTA_OF_2GI: u64 = 512 << 20;

/// The StorageClass whose claims the API server does not let grow.
const FIXED: &str = "fixed";

/// Volumes that grow in use: no Pod ends before its volume is larger, and each ends once, for its quota.
pub async fn online(w: &World) -> Result<()> {
    grow(w, Some("standard-xfs"), 60).await
}

/// File systems that grow when they are mounted: kubelet's 90 s pass, and each Pod ends for the mount, and for its quota.
pub async fn at_the_roll(w: &World) -> Result<()> {
    grow(w, None, 170).await
}

async fn grow(w: &World, class: Option<&str>, seconds: u64) -> Result<()> {
    let mut cluster = make::cluster("v", 3);
    if let Some(class) = class {
        cluster["spec"]["storage"]["storageClassName"] = json!(class);
    }
    w.create(cluster).await?;
    w.step("three voters", w.wait_ready("v", 3)).await?;
    let (members, claims) = (w.members("v").await?, uids(w, "PersistentVolumeClaim").await?);
    let starts = starts(w).await?;

    let writing = w.write_for("v", seconds);
    let growing = async {
        w.patch("EtcdCluster", "v", json!({"spec": {"storage": {"size": "2Gi"}}})).await?;
        let from = Instant::now();
        let capacity = |claim: &Value| claim["status"]["capacity"]["storage"] == "2Gi";
        let claims = all(w, "every claim has 2Gi", "PersistentVolumeClaim", capacity);
        w.step("every claim has 2Gi", claims).await?;
        let grown = from.elapsed().as_secs_f64();
        let quota = format!("--quota-backend-bytes={QUOTA_OF_2GI}");
        let has_quota = |pod: &Value| has_flag(pod, &quota);
        w.step("every Pod has the quota of 2Gi", all(w, "the quota of 2Gi", "Pod", has_quota)).await?;
        w.step("settled", w.wait_ready("v", 3)).await?;
        anyhow::Ok((grown, from.elapsed().as_secs_f64()))
    };
    let (wrote, grown) = tokio::join!(writing, growing);
    let (wrote, (grown, settled)) = (wrote?, grown?);
    w.step("every acknowledged write is there", w.all_written("v", &wrote)).await?;
    ensure!(wrote.total > 1_000, "hardly anything was written: {wrote:?}");
    ensure!(w.members("v").await? == members, "the members are the same");
    ensure!(uids(w, "PersistentVolumeClaim").await? == claims, "the claims are the same");
    ensure!(w.get("EtcdCluster", "v").await?["status"]["volumeSize"] == "2Gi", "the size that every volume has");
    for pod in w.names_with("Pod", SELECTOR).await? {
        let bytes = etcds_quota(w, &pod).await?;
        ensure!(bytes == QUOTA_OF_2GI, "{pod}: etcd counts on {bytes} bytes");
    }
    w.step("every file system has 2Gi", file_systems(w)).await?;
    let counted = starts_after(w, &starts).await?;
    report(w, &wrote, &format!("volumes after {grown:.1} s, quotas after {settled:.1} s, starts {counted}"));
    // A new member has the size at once.
    w.patch("EtcdCluster", "v", json!({"spec": {"replicas": 4}})).await?;
    w.step("a fourth voter", w.wait_ready("v", 4)).await?;
    all(w, "the fourth claim", "PersistentVolumeClaim", |claim| {
        claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    })
    .await
}

/// A class that forbids growth, and a size that the driver refuses: the clusters serve and roll, and their size goes back.
pub async fn refused(w: &World) -> Result<()> {
    let mut cluster = make::cluster("v", 1);
    cluster["spec"]["storage"]["storageClassName"] = json!(FIXED);
    w.create(cluster).await?;
    w.step("one voter", w.wait_ready("v", 1)).await?;
    w.patch("EtcdCluster", "v", json!({"spec": {"storage": {"size": "2Gi"}}})).await?;
    let degraded = async |what: &str, words: &str| {
        let refused = w.wait("EtcdCluster", "v", what, |c| {
            condition(c, "Degraded")
                .is_some_and(|(_, reason, message)| reason == "ResizeRefused" && message.contains(words))
        });
        let cluster = w.step(what, refused).await?;
        ensure!(condition(&cluster, "Ready").is_some_and(|(status, ..)| status == "True"), "{}", cluster["status"]);
        let version = cluster["metadata"]["resourceVersion"].clone();
        anyhow::Ok(version)
    };
    let version =
        degraded("refused by the API server", "storageclass that provisions the pvc must support resize").await?;
    tokio::time::sleep(std::time::Duration::from_secs(35)).await;
    let later = w.get("EtcdCluster", "v").await?["metadata"]["resourceVersion"].clone();
    ensure!(later == version, "the status is written again and again");
    w.patch("EtcdCluster", "v", json!({"spec": {"options": {"snapshotCount": 20_000}}})).await?;
    all(w, "another change takes effect", "Pod", |pod| has_flag(pod, "--snapshot-count=20000")).await?;
    w.step("the other change", w.wait_ready("v", 1)).await?;
    back(w).await?;
    w.delete_and_wait("EtcdCluster", "v").await?;

    w.create(make::cluster("v", 1)).await?;
    w.step("one voter", w.wait_ready("v", 1)).await?;
    w.patch("EtcdCluster", "v", json!({"spec": {"storage": {"size": "100Gi"}}})).await?;
    degraded("refused by the driver", "a volume has at most").await?;
    back(w).await?;
    let smaller = w.patch("EtcdCluster", "v", json!({"spec": {"storage": {"size": "512Mi"}}})).await;
    let why = smaller.err().context("a smaller volume is refused")?;
    ensure!(format!("{why:#}").contains("status.volumeSize"), "{why:#}");
    Ok(())
}

/// Sets the size back, after which nothing is wrong.
async fn back(w: &World) -> Result<()> {
    w.patch("EtcdCluster", "v", json!({"spec": {"storage": {"size": "1Gi"}}})).await?;
    let fine = w.wait("EtcdCluster", "v", "the size is back", |c| {
        condition(c, "Degraded").is_some_and(|(status, ..)| status == "False")
    });
    w.step("the size is back", fine).await.map(drop)
}

const SELECTOR: &str = "holdfast.dev/cluster=v,app.kubernetes.io/component=etcd-member";

/// Waits until all of the cluster's objects of a kind are `good`.
async fn all(w: &World, what: &str, kind: &str, good: impl Fn(&Value) -> bool) -> Result<()> {
    until(what, PATIENCE, async || {
        let mut wrong = vec![];
        for name in w.names_with(kind, SELECTOR).await? {
            // A Pod may have ended meanwhile.
            let Ok(object) = w.get(kind, &name).await else { return Ok(Err(format!("{name} is gone"))) };
            if !good(&object) {
                wrong.push(format!("{name}: {}", object["status"]["conditions"]));
            }
        }
        Ok(if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) })
    })
    .await
}

async fn uids(w: &World, kind: &str) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for name in w.names_with(kind, SELECTOR).await? {
        let object = w.get(kind, &name).await?;
        found.insert(name, object["metadata"]["uid"].clone());
    }
    Ok(found)
}

/// How often each member has served from a new Pod.
async fn starts(w: &World) -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for name in w.names("EtcdMember").await? {
        let count = w.get("EtcdMember", &name).await?["spec"]["startCount"].as_u64().unwrap_or(0);
        found.insert(name, count);
    }
    Ok(found)
}

/// Counts the Pods from which the members have served since.
async fn starts_after(w: &World, before: &BTreeMap<String, u64>) -> Result<String> {
    let after = starts(w).await?;
    let counts: Vec<u64> =
        after.iter().map(|(name, count)| count.saturating_sub(before.get(name).copied().unwrap_or(0))).collect();
    ensure!(counts.iter().all(|count| (1..=2).contains(count)), "starts: {counts:?}");
    Ok(format!("{counts:?}"))
}

/// The quota that etcd itself reports.
async fn etcds_quota(w: &World, pod: &str) -> Result<u64> {
    let text = w.get_raw(&format!("/api/v1/namespaces/{}/pods/{pod}:2381/proxy/metrics", w.ns)).await?;
    let line = text.lines().find_map(|line| line.strip_prefix("etcd_server_quota_backend_bytes "));
    let bytes: f64 = line.context("etcd reports its quota")?.trim().parse()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
    Ok(bytes as u64)
}

/// Measures the file systems that the members use, from another Pod: more than 1.8 GiB each.
async fn file_systems(w: &World) -> Result<()> {
    let claims = w.names_with("PersistentVolumeClaim", SELECTOR).await?;
    let names: Vec<&str> = claims.iter().map(String::as_str).collect();
    w.toolbox("look", &names).await?;
    let folders: Vec<String> = claims.iter().map(|claim| format!("/mnt/{claim}")).collect();
    let command: Vec<&str> = ["holdfast-probe", "df"].into_iter().chain(folders.iter().map(String::as_str)).collect();
    let sizes = w.exec("look", "probe", &command).await?;
    let bytes: Vec<u64> = sizes.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    ensure!(bytes.len() == claims.len() && bytes.iter().all(|b| *b > 18 * (1 << 30) / 10), "{sizes}");
    w.delete_and_wait("Pod", "look").await
}

fn report(w: &World, wrote: &Wrote, what: &str) {
    eprintln!(
        "e2e: {}: {what}; {} writes acknowledged, {} attempts failed, longest gap {:.0} ms",
        w.story, wrote.total, wrote.failed, wrote.longest_gap_ms
    );
}
