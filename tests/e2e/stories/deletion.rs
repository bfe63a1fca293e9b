//! A deleted cluster leaves nothing but its backups, or its volumes where they are to be kept.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::world::{PATIENCE, World};

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("gone", 3)).await?;
    let mut kept = make::cluster("kept", 1);
    kept["spec"]["storage"]["retention"] = json!("Retain");
    w.create(kept).await?;
    w.step("both serve", async {
        w.wait_ready("gone", 3).await?;
        w.wait_ready("kept", 1).await
    })
    .await?;
    w.fill("gone", 50).await?;
    w.create(make::snapshot("stays", "gone", json!({ "s3": make::s3() }))).await?;
    w.wait_complete("stays").await?;

    w.step("gone goes", w.delete_and_wait("EtcdCluster", "gone")).await?;
    w.step("kept goes", w.delete_and_wait("EtcdCluster", "kept")).await?;
    for cluster in ["gone", "kept"] {
        for kind in ["EtcdMember", "Pod", "Service", "PodDisruptionBudget"] {
            nothing_left(
                w,
                kind,
                &format!("holdfast.dev/cluster={cluster},app.kubernetes.io/component!=snapshot-agent"),
            )
            .await?;
        }
    }
    nothing_left(w, "PersistentVolumeClaim", "holdfast.dev/cluster=gone").await?;
    let volumes = w.names_with("PersistentVolumeClaim", "holdfast.dev/cluster=kept").await?;
    ensure!(volumes.len() == 1, "the retained claim stays: {volumes:?}");
    let snapshot = w.get("EtcdSnapshot", "stays").await?;
    ensure!(snapshot["status"]["phase"] == "Complete", "deleting a cluster deletes no backup");
    Ok(())
}

async fn nothing_left(w: &World, kind: &str, selector: &str) -> Result<()> {
    until(&format!("no {kind} with {selector}"), PATIENCE, async || {
        let left = w.names_with(kind, selector).await?;
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
    })
    .await
}
