//! A deleted cluster leaves only its backups, and its volumes where the spec retains them.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::world::{PATIENCE, World};

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("gone", 3)).await?;
    let mut kept = make::cluster("kept", 1);
    kept["spec"]["storage"]["retention"] = json!("Retain");
    w.create(kept).await?;
    w.create(make::cluster("edited", 1)).await?;
    w.step("all serve", async {
        w.wait_ready("gone", 3).await?;
        w.wait_ready("kept", 1).await?;
        w.wait_ready("edited", 1).await
    })
    .await?;
    // Members are deleted after their cluster: they need the value before that.
    w.patch("EtcdCluster", "edited", json!({"spec": {"storage": {"retention": "Retain"}}})).await?;
    w.step("edited goes right after the edit", w.delete_and_wait("EtcdCluster", "edited")).await?;
    let about = "regarding.kind=EtcdCluster,regarding.name=gone";
    let told =
        w.env.kubectl(&["get", "events.v1.events.k8s.io", "-n", &w.ns, "--field-selector", about, "-o", "name"])?;
    ensure!((1..=10).contains(&told.lines().count()), "Events about a cluster that has formed: {told}");
    w.fill("gone", 50).await?;
    w.step("members are not for people to delete", async { members_are_protected(w) }).await?;
    w.create(make::snapshot("stays", "gone", json!({ "s3": make::s3() }))).await?;
    w.wait_complete("stays").await?;

    w.step("gone goes", w.delete_and_wait("EtcdCluster", "gone")).await?;
    w.step("kept goes", w.delete_and_wait("EtcdCluster", "kept")).await?;
    for cluster in ["gone", "kept", "edited"] {
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
    for cluster in ["kept", "edited"] {
        let volumes = w.names_with("PersistentVolumeClaim", &format!("holdfast.dev/cluster={cluster}")).await?;
        ensure!(volumes.len() == 1, "the retained claim of {cluster} stays: {volumes:?}");
    }
    let snapshot = w.get("EtcdSnapshot", "stays").await?;
    ensure!(snapshot["status"]["phase"] == "Complete", "deleting a cluster deletes no backup");
    Ok(())
}

/// The admission policy refuses the deletion of members, except for an annotated member. The test deletes nothing.
fn members_are_protected(w: &World) -> Result<()> {
    let kubectl = |args: &[&str]| w.env.kubectl(&[args, &["-n", &w.ns, "-l", "holdfast.dev/cluster=kept"]].concat());
    let delete = ["delete", "etcdm", "--dry-run=server"];
    let why = kubectl(&delete).err().context("a person deletes a member")?;
    ensure!(format!("{why:#}").contains("does not shrink the cluster"), "{why:#}");
    kubectl(&["annotate", "etcdm", "holdfast.dev/allow-deletion=true"])?;
    kubectl(&delete)?;
    Ok(())
}

async fn nothing_left(w: &World, kind: &str, selector: &str) -> Result<()> {
    until(&format!("no {kind} with {selector}"), PATIENCE, async || {
        let left = w.names_with(kind, selector).await?;
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
    })
    .await
}
