//! A member never starts on a volume that is not its own: emptied, and another member's.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("keep", 3)).await?;
    w.step("three voters", w.wait_ready("keep", 3)).await?;
    w.fill("keep", 300).await?;
    let before = w.members("keep").await?;
    let digest = w.digest("keep").await?;
    let [a, b, _] = &before.members[..] else { anyhow::bail!("{before:?}") };

    // These hands hold both volumes while their Pods live: everything is on one node.
    let (va, vb) = (format!("data-{}", a.name), format!("data-{}", b.name));
    w.create(make::claim("spare", "1Gi")).await?;
    w.toolbox("hands", &[&va, &vb, "spare"]).await?;
    let hands = async |args: &[&str]| w.exec("hands", "probe", &[&["holdfast-probe"], args].concat()).await;
    // Beside it and renamed: the refused member is started again and again, and must not find half of it.
    let copy = async |from: &str, to: &str| {
        let half = format!("/mnt/{va}/half");
        hands(&["cp", from, &half]).await?;
        hands(&["mv", &half, to]).await
    };
    let (data_a, data_b) = (format!("/mnt/{va}/data"), format!("/mnt/{vb}/data"));

    // Renamed, not copied: what a running etcd still writes goes along, or its log would lose what it has acknowledged.
    let aside = format!("/mnt/{va}/aside");
    hands(&["mv", &data_a, &aside]).await?;
    w.delete("Pod", &a.name).await?;
    w.step("a volume with data of nobody is refused", refused(w, &a.name, "has not put there")).await?;
    hands(&["cp", &aside, "/mnt/spare/a"]).await?;
    hands(&["rm", &aside]).await?;
    w.delete("Pod", &a.name).await?;
    w.step("the emptied volume is refused", refused(w, &a.name, "has lost its data")).await?;
    ensure!(w.digest("keep").await? == digest, "the other two serve");
    ensure!(w.members("keep").await? == before, "nobody was removed");

    copy(&data_b, &data_a).await?;
    w.delete("Pod", &a.name).await?;
    w.step("another member's volume is refused", refused(w, &a.name, "belongs to another member")).await?;
    ensure!(w.members("keep").await? == before, "nobody was removed");

    hands(&["rm", &data_a]).await?;
    copy("/mnt/spare/a", &data_a).await?;
    w.delete("Pod", &a.name).await?;
    w.step("its own volume is taken", w.wait_ready("keep", 3)).await?;
    w.wait("EtcdMember", &a.name, "its second start counted", |m| m["spec"]["startCount"].as_u64() > Some(1)).await?;

    let newest = format!("/mnt/{va}/newest");
    hands(&["mv", &data_a, &newest]).await?;
    copy("/mnt/spare/a", &data_a).await?;
    w.delete("Pod", &a.name).await?;
    w.step("an older copy of its own volume is refused", refused(w, &a.name, "older copy")).await?;
    ensure!(w.members("keep").await? == before, "nobody was removed");
    ensure!(w.digest("keep").await? == digest, "the other two serve");

    hands(&["rm", &data_a]).await?;
    hands(&["mv", &newest, &data_a]).await?;
    w.delete("Pod", &a.name).await?;
    w.delete_and_wait("Pod", "hands").await?;
    w.step("the newest is taken", w.wait_ready("keep", 3)).await?;
    ensure!(w.members("keep").await? == before, "the same members as ever");
    ensure!(w.digest("keep").await? == digest, "the same data as ever");
    Ok(())
}

/// Waits until the member says that the gate refused, for this reason and no earlier one.
pub(super) async fn refused(w: &World, member: &str, why: &str) -> Result<Value> {
    w.wait("EtcdMember", member, "VolumeRefused", |m| {
        condition(m, "Degraded").is_some_and(|(status, reason, message)| {
            status == "True" && reason == "VolumeRefused" && message.contains(why)
        })
    })
    .await
}
