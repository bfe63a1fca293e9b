//! A settled cluster costs no write, even when the operator restarts or is upgraded (I17).

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use crate::support::env::soak;
use crate::support::make;
use crate::support::world::World;

/// Conditions that follow Pods settle with the slowest probe.
const SETTLES: Duration = Duration::from_secs(5);

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("calm", 3)).await?;
    w.step("three voters", w.wait_ready("calm", 3)).await?;
    w.fill("calm", 100).await?;
    tokio::time::sleep(SETTLES).await;
    let mut settled = Seen::now(w).await?;
    w.step("nothing is written while settled", settled.stays(w)).await?;

    let operator = w.names_with("Pod", "app.kubernetes.io/name=holdfast").await?;
    for pod in &operator {
        w.delete_and_wait("Pod", pod).await?;
    }
    w.wait("Deployment", "holdfast", "operator ready again", |d| d["status"]["readyReplicas"] == 1).await?;
    // The new operator counts from zero.
    settled.writes.clear();
    w.step("nothing is written after the operator's restart", settled.stays(w)).await?;

    // Another name for the same image: only Pods created from now on get it.
    let another = format!("HOLDFAST_IMAGE={}-next", w.env.image);
    w.env.kubectl(&["set", "env", "-n", &w.ns, "deployment/holdfast", &another])?;
    w.env.kubectl(&["rollout", "status", "-n", &w.ns, "deployment/holdfast", "--timeout=120s"])?;
    settled.writes.clear();
    w.step("nothing is written by an operator that was upgraded", settled.stays(w)).await
}

/// State of the namespace.
#[derive(Debug, PartialEq)]
struct Seen {
    /// UID and version of every object of Holdfast.
    versions: Vec<(String, String, Value, Value)>,
    /// kubelet's status of Pods: writes that follow its changes are correct.
    pods: Vec<Value>,
    /// The operator's writes by its own count, including writes that changed nothing.
    writes: Vec<String>,
}

impl Seen {
    async fn now(w: &World) -> Result<Self> {
        let pods = w.names_with("Pod", "holdfast.dev/cluster=calm").await?;
        let mut said = vec![];
        for pod in pods {
            said.push(w.get("Pod", &pod).await?["status"].clone());
        }
        Ok(Self { versions: versions(w).await?, pods: said, writes: writes(w).await? })
    }

    /// Waits, and checks that nothing was written meanwhile; starts again when kubelet changed the status of a Pod, as it does
    /// when the machine stands still for some seconds.
    async fn stays(&mut self, w: &World) -> Result<()> {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(if soak() { 300 } else { 25 })).await;
            let now = Self::now(w).await?;
            if now.pods == self.pods {
                ensure!(now == *self, "something was written:\n{self:?}\n{now:?}");
                return Ok(());
            }
            eprintln!("e2e: {}: kubelet saw a Pod otherwise:\n{:?}\n{:?}", w.story, self.pods, now.pods);
            tokio::time::sleep(SETTLES).await;
            *self = Self::now(w).await?;
        }
        bail!("kubelet never sees the Pods alike for long enough")
    }
}

/// The running operator's counters of writes.
async fn writes(w: &World) -> Result<Vec<String>> {
    let operators = w.names_with("Pod", "app.kubernetes.io/name=holdfast").await?;
    ensure!(operators.len() == 1, "{operators:?}");
    let path = format!("/api/v1/namespaces/{}/pods/{}:8080/proxy/metrics", w.ns, operators[0]);
    let metrics = w.get_raw(&path).await?;
    ensure!(metrics.contains("holdfast_passes_total"), "no metrics of the operator: {metrics}");
    let series = format!("holdfast_cluster_ready{{namespace=\"{}\",name=\"calm\"}} ", w.ns);
    ensure!(metrics.contains(&series), "no {series}in {metrics}");
    Ok(metrics.lines().filter(|line| line.starts_with("holdfast_writes_total{")).map(str::to_owned).collect())
}

/// UID and version of every object of Holdfast; objects of other writers do not count.
async fn versions(w: &World) -> Result<Vec<(String, String, Value, Value)>> {
    let mut all = vec![];
    for kind in ["EtcdCluster", "EtcdMember", "Pod", "Service", "PodDisruptionBudget", "PersistentVolumeClaim"] {
        for name in w.names_with(kind, if kind == "EtcdCluster" { "" } else { "holdfast.dev/cluster=calm" }).await? {
            let object = w.get(kind, &name).await?;
            let meta = &object["metadata"];
            let version = match kind {
                "Pod" | "PodDisruptionBudget" => not_by_kubernetes(&meta["managedFields"]),
                _ => meta["resourceVersion"].clone(),
            };
            all.push((kind.to_owned(), name, meta["uid"].clone(), version));
        }
    }
    Ok(all)
}

/// Field managers with their times, without kubelet and Kubernetes' controllers.
fn not_by_kubernetes(managed: &Value) -> Value {
    let kubernetes = |entry: &&Value| entry["manager"].as_str().is_some_and(|name| name.starts_with("kube"));
    managed.as_array().into_iter().flatten().filter(|entry| !kubernetes(entry)).cloned().collect()
}
