//! One bit of a stored snapshot is flipped: the restore fails with a reason and leaves the volume untouched, and a corrected
//! reference then works.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::gate;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::probe::Digest;
use crate::support::world::{PATIENCE, World};

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("source", 1)).await?;
    w.step("a source", w.wait_ready("source", 1)).await?;
    w.fill("source", 2_000).await?;
    let digest = w.digest("source").await?;
    w.create(make::snapshot("good", "source", json!({ "s3": make::s3() }))).await?;
    w.create(make::snapshot("bad", "source", json!({ "s3": make::s3() }))).await?;
    w.step("two snapshots", async {
        w.wait_complete("good").await?;
        w.wait_complete("bad").await
    })
    .await?;
    w.step("one bit flipped", w.flip_a_bit("bad")).await?;

    w.create(make::restored("copy", 3, json!({"snapshotRef": {"name": "bad"}}))).await?;
    let refused = w
        .step(
            "the restore is refused",
            w.wait("EtcdCluster", "copy", "Degraded/ArtifactCorrupt", |c| {
                condition(c, "Degraded")
                    .is_some_and(|(status, reason, _)| status == "True" && reason == "ArtifactCorrupt")
            }),
        )
        .await?;
    ensure!(refused["status"]["latches"].get("formed").is_none(), "formed from corrupt data: {}", refused["status"]);
    let seed = seed(w, "copy").await?;
    w.toolbox("look-inside", &[&format!("data-{seed}")]).await?;
    // kubelet repeats the restore step now and then, and a running step has its files there.
    let clean = until("nothing left behind by the refused restore", PATIENCE, async || {
        let files = w.files("look-inside", &format!("/mnt/data-{seed}")).await?;
        let left = files.iter().any(|f| f.contains("/data ") || f.contains("/data/") || f.contains(".db"));
        Ok(if left { Err(format!("{files:?}")) } else { Ok(()) })
    });
    clean.await?;
    w.delete_and_wait("Pod", "look-inside").await?;

    let corrected = json!({"spec": {"bootstrap": {"restore": {"snapshotRef": {"name": "good"}}}}});
    w.patch("EtcdCluster", "copy", corrected).await?;
    w.step("the corrected restore works", w.wait_ready("copy", 3)).await?;
    ensure!(w.digest("copy").await? == digest, "copy differs from its source");
    let late = json!({"spec": {"bootstrap": {"restore": {"snapshotRef": {"name": "bad"}}}}});
    let refused = w.patch("EtcdCluster", "copy", late).await.err().context("a formed cluster took another restore")?;
    ensure!(format!("{refused:#}").contains("has formed"), "{refused:#}");
    emptied(w, &digest).await
}

/// The first member's volume is emptied and the status lost, while the spec still names the snapshot: Holdfast treats that as a
/// lost member, and neither restores nor founds (I2, I9).
async fn emptied(w: &World, digest: &Digest) -> Result<()> {
    let before = w.members("copy").await?;
    let mut first = None;
    for member in &before.members {
        if w.get("EtcdMember", &member.name).await?["spec"]["role"] == "seed" {
            first = Some(member.name.clone());
        }
    }
    let first = first.context("the first member")?;
    w.toolbox("hands", &[&format!("data-{first}")]).await?;
    w.exec("hands", "probe", &["holdfast-probe", "rm", &format!("/mnt/data-{first}/data")]).await?;
    w.patch_status("EtcdCluster", "copy", Value::Null).await?;
    w.delete("Pod", &first).await?;
    w.step("an emptied seed is a lost member", gate::refused(w, &first, "has lost its data")).await?;
    let pod = w.get("Pod", &first).await?;
    let steps = pod["spec"]["initContainers"].as_array().context("steps")?;
    ensure!(steps.iter().all(|step| step["name"] != "restore"), "it would be restored again: {steps:?}");
    ensure!(w.members("copy").await? == before, "nobody was removed, and it is the same cluster");
    ensure!(w.digest("copy").await? == *digest, "the other two serve");
    let formed = w.wait("EtcdCluster", "copy", "formed again", |c| c["status"]["latches"]["formed"].is_object());
    let formed = formed.await?["status"]["latches"]["formed"].clone();
    ensure!(formed["restoredFrom"].is_object(), "where it came from is read back: {formed}");
    w.patch("EtcdCluster", "copy", json!({"spec": {"bootstrap": null}})).await?;
    w.delete_and_wait("Pod", "hands").await
}

async fn seed(w: &World, cluster: &str) -> Result<String> {
    let names = w.names_with("EtcdMember", &format!("holdfast.dev/cluster={cluster}")).await?;
    names.into_iter().next().context("a seed")
}

impl World {
    /// Flips one bit in the middle of a snapshot's data object, on the S3 server's own disk.
    pub(super) async fn flip_a_bit(&self, snapshot: &str) -> Result<()> {
        let artifact: Value = self.get("EtcdSnapshot", snapshot).await?["status"]["artifact"].clone();
        let uri = artifact["uri"].as_str().context("uri")?;
        let path = format!("/data/{}", uri.strip_prefix("s3://").context("an s3 URI")?);
        let size = artifact["storedBytes"].as_u64().context("storedBytes")?;
        let pod = self.s3_pod().await?;
        let offset = (size / 2).to_string();
        self.exec(&pod, "versitygw", &["holdfast-probe", "flip", "--file", &path, "--offset", &offset]).await.map(drop)
    }
}
