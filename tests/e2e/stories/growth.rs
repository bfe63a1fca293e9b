//! Clusters of any size from one to nine, and growth while etcd serves.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::support::env::soak;
use crate::support::make;
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("g", 1)).await?;
    w.step("one voter", w.wait_ready("g", 1)).await?;
    w.fill("g", 500).await?;
    let digest = w.digest("g").await?;
    let first = w.members("g").await?;
    let sizes: &[usize] = if soak() { &[2, 3, 4, 5, 6, 7, 8, 9] } else { &[3, 5] };
    for &size in sizes {
        w.patch("EtcdCluster", "g", json!({"spec": {"replicas": size}})).await?;
        w.step(&format!("grown to {size} voters"), w.wait_ready("g", size)).await?;
    }
    let members = w.members("g").await?;
    ensure!(members.cluster_id == first.cluster_id, "another cluster: {members:?}");
    ensure!(members.members.contains(&first.members[0]), "the first member stayed: {members:?}");
    ensure!(w.digest("g").await? == digest, "data changed");
    let budget = w.get("PodDisruptionBudget", "g").await?;
    let quorum = sizes.last().map_or(0, |n| n / 2 + 1);
    ensure!(budget["spec"]["minAvailable"].as_u64() >= Some(quorum as u64), "budget {}", budget["spec"]);
    Ok(())
}
