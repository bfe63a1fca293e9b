//! A settled cluster costs no write, not even when the operator restarts or is upgraded (I17).

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::support::env::soak;
use crate::support::make;
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("calm", 3)).await?;
    w.step("three voters", w.wait_ready("calm", 3)).await?;
    w.fill("calm", 100).await?;
    // Conditions that follow Pods settle with the slowest probe.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let settled = versions(w).await?;
    let quiet = Duration::from_secs(if soak() { 300 } else { 25 });
    w.step("nothing is written while settled", async {
        tokio::time::sleep(quiet).await;
        let now = versions(w).await?;
        ensure!(now == settled, "something was written:\n{settled:?}\n{now:?}");
        Ok(())
    })
    .await?;

    let operator = w.names_with("Pod", "app.kubernetes.io/name=holdfast").await?;
    for pod in &operator {
        w.delete_and_wait("Pod", pod).await?;
    }
    w.wait("Deployment", "holdfast", "operator ready again", |d| d["status"]["readyReplicas"] == 1).await?;
    w.step("nothing is written after the operator's restart", async {
        tokio::time::sleep(quiet).await;
        let now = versions(w).await?;
        ensure!(now == settled, "something was written:\n{settled:?}\n{now:?}");
        Ok(())
    })
    .await?;

    // Another name for the same image: only Pods that are made from now on get it.
    let another = format!("HOLDFAST_IMAGE={}-next", w.env.image);
    w.env.kubectl(&["set", "env", "-n", &w.ns, "deployment/holdfast", &another])?;
    w.env.kubectl(&["rollout", "status", "-n", &w.ns, "deployment/holdfast", "--timeout=120s"])?;
    w.step("nothing is written by an operator that was upgraded", async {
        tokio::time::sleep(quiet).await;
        let now = versions(w).await?;
        ensure!(now == settled, "something was written:\n{settled:?}\n{now:?}");
        Ok(())
    })
    .await
}

/// UID and resourceVersion of everything that is ours.
async fn versions(w: &World) -> Result<Vec<(String, String, Value, Value)>> {
    let mut all = vec![];
    for kind in ["EtcdCluster", "EtcdMember", "Pod", "Service", "PodDisruptionBudget", "PersistentVolumeClaim"] {
        for name in w.names_with(kind, if kind == "EtcdCluster" { "" } else { "holdfast.dev/cluster=calm" }).await? {
            let object = w.get(kind, &name).await?;
            let meta = &object["metadata"];
            all.push((kind.to_owned(), name, meta["uid"].clone(), meta["resourceVersion"].clone()));
        }
    }
    Ok(all)
}
