//! A member never starts on a volume that is not its own: an emptied volume, and another member's.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    three(w).await?;
    alone(w).await
}

/// A cluster of one: its volume without the identity file is the last copy of its data, and the reported cause stays stable.
async fn alone(w: &World) -> Result<()> {
    w.create(make::cluster("solo", 1)).await?;
    w.step("one voter", w.wait_ready("solo", 1)).await?;
    w.fill("solo", 100).await?;
    let digest = w.digest("solo").await?;
    let before = w.members("solo").await?;
    let name = before.members[0].name.clone();
    let volume = format!("data-{name}");
    w.toolbox("hands", &[&volume]).await?;
    let hands = async |args: &[&str]| w.exec("hands", "probe", &[&["holdfast-probe"], args].concat()).await;
    let (identity, aside) = (format!("/mnt/{volume}/data/holdfast-identity.json"), format!("/mnt/{volume}/aside"));
    hands(&["mv", &identity, &aside]).await?;
    w.delete("Pod", &name).await?;
    w.step("data without its identity file is not called foreign", refused(w, &name, "do not move or delete them"))
        .await?;
    stands(w, "its volume lacks Holdfast's identity file (IdentityLost)").await?;
    hands(&["mv", &aside, &identity]).await?;
    w.delete("Pod", &name).await?;
    w.step("with the file put back it serves", w.wait_ready("solo", 1)).await?;
    ensure!(w.digest("solo").await? == digest, "the same data");

    // Renamed first: a running etcd must not write into half of the folder.
    hands(&["mv", &format!("/mnt/{volume}/data"), &aside]).await?;
    w.delete("Pod", &name).await?;
    w.step("nor is the renamed data", refused(w, &name, "the volume holds aside")).await?;
    hands(&["rm", &aside]).await?;
    w.delete("Pod", &name).await?;
    w.step("the emptied volume is refused", refused(w, &name, "has lost its data")).await?;
    stands(w, "its volume has lost its data (EmptiedVolume)").await?;
    w.delete_and_wait("Pod", "hands").await?;
    w.delete_and_wait("EtcdCluster", "solo").await
}

/// The conditions name the lost quorum and its cause in the same words for 15 s.
async fn stands(w: &World, why: &str) -> Result<()> {
    let told = |c: &Value| {
        ["Ready", "Progressing", "Degraded"].map(|kind| {
            condition(c, kind).map(|(status, reason, message)| [status, reason, message].map(str::to_owned))
        })
    };
    let lost = w.wait("EtcdCluster", "solo", "QuorumLost", |c| {
        condition(c, "Ready").is_some_and(|(_, reason, message)| reason == "QuorumLost" && message.contains(why))
    });
    let first = told(&lost.await?);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = told(&w.get("EtcdCluster", "solo").await?);
        ensure!(now == first, "told {first:?}, and a moment later {now:?}");
    }
    Ok(())
}

async fn three(w: &World) -> Result<()> {
    // Without automatic repair, because the test repairs the volume by hand.
    let mut cluster = make::cluster("keep", 3);
    cluster["spec"]["repair"] = json!({"mode": "Manual"});
    w.create(cluster).await?;
    w.step("three voters", w.wait_ready("keep", 3)).await?;
    w.fill("keep", 300).await?;
    let before = w.members("keep").await?;
    let digest = w.digest("keep").await?;
    let [a, b, _] = &before.members[..] else { anyhow::bail!("{before:?}") };

    // This Pod mounts both volumes while the members' Pods live: all of them are on one node.
    let (va, vb) = (format!("data-{}", a.name), format!("data-{}", b.name));
    w.create(make::claim("spare", "1Gi")).await?;
    w.toolbox("hands", &[&va, &vb, "spare"]).await?;
    let hands = async |args: &[&str]| w.exec("hands", "probe", &[&["holdfast-probe"], args].concat()).await;
    // Copied beside the folder and renamed: kubelet restarts the refused member, and the gate must not find half a copy.
    let copy = async |from: &str, to: &str| {
        let half = format!("/mnt/{va}/half");
        hands(&["cp", from, &half]).await?;
        hands(&["mv", &half, to]).await
    };
    let (data_a, data_b) = (format!("/mnt/{va}/data"), format!("/mnt/{vb}/data"));

    // Renamed, not copied: a running etcd's later writes go along; else its log would lose acknowledged entries.
    let aside = format!("/mnt/{va}/aside");
    hands(&["mv", &data_a, &aside]).await?;
    w.delete("Pod", &a.name).await?;
    w.step("a volume with data of nobody is refused", refused(w, &a.name, "do not move or delete them")).await?;
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

/// Waits until the member reports that the gate refused, for this reason and no earlier reason.
pub(super) async fn refused(w: &World, member: &str, why: &str) -> Result<Value> {
    w.wait("EtcdMember", member, "VolumeRefused", |m| {
        condition(m, "Degraded").is_some_and(|(status, reason, message)| {
            status == "True" && reason == "VolumeRefused" && message.contains(why)
        })
    })
    .await
}
