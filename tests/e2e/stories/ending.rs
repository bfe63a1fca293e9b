//! A deleted cluster with `spec.finalSnapshot`: its last snapshot has every acknowledged write, and without it the cluster stays.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, is_ready, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// The last snapshot of a cluster.
async fn last_snapshot(w: &World, cluster: &str) -> Result<Value> {
    let names = w.names_with("EtcdSnapshot", &format!("holdfast.dev/cluster={cluster}")).await?;
    let [name] = names.as_slice() else { anyhow::bail!("the snapshots of {cluster}: {names:?}") };
    ensure!(name.starts_with(&format!("{cluster}-final-")), "{name}");
    w.get("EtcdSnapshot", name).await
}

fn ending(name: &str, replicas: i32, store: &str) -> Value {
    let mut cluster = make::cluster(name, replicas);
    cluster["spec"]["finalSnapshot"] = json!({"destination": {"storeRef": {"name": store}}, "deadlineSeconds": 120});
    cluster
}

/// Three members are deleted while clients write; one is parked, and one has a store that is missing.
pub async fn tell(w: &World) -> Result<()> {
    w.create(make::store("vault", "last")).await?;
    w.create(ending("e", 3, "vault")).await?;
    w.create(ending("parked", 1, "vault")).await?;
    let mut held = ending("held", 1, "nowhere");
    held["spec"]["finalSnapshot"]["deadlineSeconds"] = json!(10);
    // With certificates.
    held["spec"]["tls"] = json!({});
    w.create(held).await?;
    w.step("all serve", async {
        w.wait_ready("e", 3).await?;
        w.wait_ready("parked", 1).await?;
        w.wait("EtcdCluster", "held", "Ready", |c| is_ready(c, 1)).await
    })
    .await?;
    foreground_is_refused(w)?;
    w.fill("parked", 20).await?;
    let parked = w.digest("parked").await?;
    w.patch("EtcdCluster", "parked", json!({"spec": {"replicas": 0}})).await?;
    w.delete("EtcdCluster", "held").await?;

    let writing = w.write_for("e", 25);
    let deleting = async {
        // Clients write already.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let from = Instant::now();
        w.delete("EtcdCluster", "e").await?;
        until("e is gone", PATIENCE, async || {
            let left = w.names("EtcdCluster").await?;
            Ok(if left.iter().any(|name| name == "e") { Err(format!("{left:?}")) } else { Ok(()) })
        })
        .await?;
        anyhow::Ok(from.elapsed())
    };
    let (wrote, took) = tokio::join!(writing, deleting);
    let (wrote, took) = (wrote?, took?);
    let snapshot = last_snapshot(w, "e").await?;
    ensure!(snapshot["status"]["phase"] == "Complete", "{}", snapshot["status"]);
    ensure!(snapshot["metadata"]["ownerReferences"].is_null(), "the snapshot outlives the cluster: {snapshot}");
    ensure!(wrote.total > 500, "hardly anything was written: {wrote:?}");
    eprintln!(
        "e2e: {}: gone {:.1} s after kubectl delete, with {} writes acknowledged; revision {}",
        w.story,
        took.as_secs_f64(),
        wrote.total,
        snapshot["status"]["artifact"]["revision"]
    );
    let told = w.env.kubectl(&["get", "events.v1.events.k8s.io", "-n", &w.ns, "-o", "jsonpath={.items[*].note}"])?;
    ensure!(told.contains("-final-") && !told.contains("were not ended"), "every Pod was ended before: {told}");
    let name = snapshot["metadata"]["name"].as_str().context("a name")?.to_owned();
    w.create(make::restored("again", 1, json!({"snapshotRef": {"name": name}}))).await?;
    w.step("restored elsewhere", w.wait_ready("again", 1)).await?;
    w.step("every acknowledged write is there", w.all_written("again", &wrote)).await?;

    w.step("the parked one has no Pod", async {
        until("no Pod of parked", PATIENCE, async || {
            let pods = w.names_with("Pod", "holdfast.dev/cluster=parked").await?;
            Ok(if pods.is_empty() { Ok(()) } else { Err(format!("{pods:?}")) })
        })
        .await
    })
    .await?;
    w.step("the parked one starts for its snapshot", w.delete_and_wait("EtcdCluster", "parked")).await?;
    let name = last_snapshot(w, "parked").await?["metadata"]["name"].as_str().context("a name")?.to_owned();
    w.create(make::restored("woken", 1, json!({"snapshotRef": {"name": name}}))).await?;
    w.step("and is restored", w.wait_ready("woken", 1)).await?;
    ensure!(w.digest("woken").await? == parked, "woken holds what parked held");

    w.step("without a store the cluster stays", stays(w)).await?;
    w.create(make::store("nowhere", "late")).await?;
    w.step("until the store is there", w.delete_and_wait("EtcdCluster", "held")).await?;
    let snapshot = last_snapshot(w, "held").await?;
    ensure!(snapshot["status"]["phase"] == "Complete", "{}", snapshot["status"]);
    Ok(())
}

/// The cluster that cannot be saved keeps its member, also after the member's Pod ends.
async fn stays(w: &World) -> Result<()> {
    let degraded = |c: &Value| {
        let told = condition(c, "Degraded");
        told.is_some_and(|(status, reason, words)| {
            status == "True" && reason == "FinalSnapshotHeld" && words.contains("skip-final-snapshot")
        })
    };
    w.wait("EtcdCluster", "held", "FinalSnapshotHeld", degraded).await?;
    let pods = w.names_with("Pod", "holdfast.dev/cluster=held,holdfast.dev/role").await?;
    let before = w.get("Pod", pods.first().context("a Pod")?).await?["metadata"]["uid"].clone();
    w.delete("Pod", pods.first().context("a Pod")?).await?;
    until("the member has another Pod", PATIENCE, async || {
        let pods = w.names_with("Pod", "holdfast.dev/cluster=held,holdfast.dev/role").await?;
        let Some(pod) = pods.first() else { return Ok(Err("no Pod".to_owned())) };
        let pod = w.get("Pod", pod).await?;
        let ready = pod["status"]["containerStatuses"][0]["ready"] == true;
        Ok(if ready && pod["metadata"]["uid"] != before { Ok(()) } else { Err(pod["status"]["phase"].to_string()) })
    })
    .await
}

/// Kubernetes' garbage collector would delete the Pods first.
fn foreground_is_refused(w: &World) -> Result<()> {
    let kubectl = |args: &[&str]| w.env.kubectl(&[args, &["-n", &w.ns]].concat());
    let delete = ["delete", "etcdc", "e", "--dry-run=server"];
    let refused =
        kubectl(&[&delete[..], &["--cascade=foreground"]].concat()).err().context("a foreground deletion was taken")?;
    ensure!(format!("{refused:#}").contains("finalSnapshot"), "{refused:#}");
    kubectl(&delete)?;
    Ok(())
}
