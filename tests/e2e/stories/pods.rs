//! Pods are deleted and members stay: the same ID on the same volume, and no membership call.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// One Pod is deleted: the same member comes back.
pub async fn one(w: &World) -> Result<()> {
    w.create(make::cluster("solo", 3)).await?;
    w.step("three voters", w.wait_ready("solo", 3)).await?;
    w.fill("solo", 200).await?;
    let before = w.members("solo").await?;
    let digest = w.digest("solo").await?;
    let victim = before.members[1].name.clone();
    let old = w.get("Pod", &victim).await?["metadata"]["uid"].clone();

    w.delete("Pod", &victim).await?;
    let back = |pod: &Value| {
        pod["metadata"]["uid"] != old
            && pod["status"]["conditions"]
                .as_array()
                .is_some_and(|c| c.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
    };
    w.step("the Pod is back", w.wait("Pod", &victim, "made anew and ready", back)).await?;
    w.step("three voters again", w.wait_ready("solo", 3)).await?;
    ensure!(w.members("solo").await? == before, "member IDs changed: {before:?}");
    ensure!(w.digest("solo").await? == digest, "data changed");
    Ok(())
}

/// Labels are removed from a Pod: the operator restores them, selectors find the Pod again, and the Pod is not replaced.
pub async fn relabelled(w: &World) -> Result<()> {
    w.create(make::cluster("named", 1)).await?;
    w.step("one voter", w.wait_ready("named", 1)).await?;
    let before = w.members("named").await?;
    let name = before.members[0].name.clone();
    let pod = w.get("Pod", &name).await?;
    let (uid, labels) = (&pod["metadata"]["uid"], &pod["metadata"]["labels"]);
    for key in [
        "app.kubernetes.io/component",
        "app.kubernetes.io/managed-by",
        "holdfast.dev/cluster",
        "holdfast.dev/cluster-uid",
        "holdfast.dev/member",
        "holdfast.dev/role",
    ] {
        w.patch("Pod", &name, json!({"metadata": {"labels": {key: null}}})).await?;
        let back = |pod: &Value| pod["metadata"]["labels"] == *labels;
        w.step(&format!("{key} is back"), w.wait("Pod", &name, "as it was labelled", back)).await?;
    }
    ensure!(w.get("Pod", &name).await?["metadata"]["uid"] == *uid, "another Pod");
    ensure!(w.members("named").await? == before, "the membership changed");
    w.step("ready", w.wait_ready("named", 1)).await
}

/// All three Pods are deleted at once: the members find each other again, without a change of the membership.
pub async fn all_at_once(w: &World) -> Result<()> {
    w.create(make::cluster("trio", 3)).await?;
    w.step("three voters", w.wait_ready("trio", 3)).await?;
    w.fill("trio", 500).await?;
    let before = w.members("trio").await?;
    let digest = w.digest("trio").await?;

    for member in &before.members {
        w.delete("Pod", &member.name).await?;
    }
    let serving = until("all three Pods to serve again", PATIENCE, async || {
        Ok(w.digest("trio").await.map_err(|why| format!("{why:#}")))
    });
    // The first answer: etcd must not serve older or other data even for a moment.
    let now = w.step("served again", serving).await?;
    ensure!(now == digest, "other data: {now:?}");
    w.step("three voters again", w.wait_ready("trio", 3)).await?;
    ensure!(w.members("trio").await? == before, "the membership changed");
    // A late membership call would show within a few passes.
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(w.members("trio").await? == before, "the membership changed after all were back");
    Ok(())
}
