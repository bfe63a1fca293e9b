//! Pods go, members stay: the same ID on the same volume, and no membership call.

use std::time::Duration;

use anyhow::{Result, ensure};

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
    let back = |pod: &serde_json::Value| {
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

/// All three Pods are deleted at once: they find each other again, and nobody touches the membership.
pub async fn all_at_once(w: &World) -> Result<()> {
    w.create(make::cluster("trio", 3)).await?;
    w.step("three voters", w.wait_ready("trio", 3)).await?;
    w.fill("trio", 500).await?;
    let before = w.members("trio").await?;
    let digest = w.digest("trio").await?;

    for member in &before.members {
        w.delete("Pod", &member.name).await?;
    }
    w.step(
        "served again",
        until("all three Pods to serve again", PATIENCE, async || {
            Ok(match w.digest("trio").await {
                Ok(now) if now == digest => Ok(()),
                Ok(now) => anyhow::bail!("other data: {now:?}"),
                Err(why) => Err(format!("{why:#}")),
            })
        }),
    )
    .await?;
    w.step("three voters again", w.wait_ready("trio", 3)).await?;
    ensure!(w.members("trio").await? == before, "the membership changed");
    // A membership call that came late would show within a few passes.
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(w.members("trio").await? == before, "the membership changed after all were back");
    Ok(())
}
