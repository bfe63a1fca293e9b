//! A volume that is too small for the restored data, a quota that the data would fill, and a full backup volume: conditions with
//! sizes, nothing half done, and success at the next try with room.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::probe::service;
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("large", 1)).await?;
    w.create(make::claim("backups", "512Mi")).await?;
    w.toolbox("shelf", &["backups"]).await?;
    w.step("a source", w.wait_ready("large", 1)).await?;
    w.step("200 MiB in it", async {
        w.probe_text(&["bulk", "--endpoint", &service("large"), "--bytes", "200MiB", "--value-bytes", "65536"]).await
    })
    .await?;
    let digest = w.digest("large").await?;
    let to = json!({"pvc": {"claimName": "backups"}});

    w.exec("shelf", "probe", &["holdfast-probe", "occupy", "--dir", "/mnt/backups", "--leave", "5MiB"]).await?;
    w.create(make::snapshot("squeezed", "large", to.clone())).await?;
    let failed = w.step("a full backup volume is told", w.wait_failed("squeezed")).await?;
    ensure!(failed["status"]["error"]["class"] == "Full", "{}", failed["status"]);
    let left = w.files("shelf", "/mnt/backups").await?;
    let half = |file: &String| file.contains("snapshot.db") || file.contains("manifest.json");
    ensure!(!left.iter().any(half), "something half is left: {left:?}");
    w.exec("shelf", "probe", &["holdfast-probe", "rm", "/mnt/backups/occupied"]).await?;
    w.create(make::snapshot("roomy", "large", to)).await?;
    w.step("with room it is saved", w.wait_complete("roomy")).await?;

    let mut small = make::restored("small", 1, json!({"snapshotRef": {"name": "roomy"}}));
    small["spec"]["storage"]["size"] = json!("320Mi");
    small["spec"]["options"] = json!({"quotaBackendBytes": 310_000_000});
    w.create(small).await?;
    let told = w
        .step(
            "a volume that is too small is told",
            w.wait("EtcdCluster", "small", "NoSpace", |c: &Value| {
                condition(c, "Degraded").is_some_and(|(status, reason, _)| status == "True" && reason == "NoSpace")
            }),
        )
        .await?;
    let words = condition(&told, "Degraded").context("Degraded")?.2;
    ensure!(words.contains("MiB"), "it names sizes: {words}");
    ensure!(told["status"]["latches"].get("formed").is_none(), "{}", told["status"]);

    let mut tight = make::restored("tight", 1, json!({"snapshotRef": {"name": "roomy"}}));
    tight["spec"]["options"] = json!({"quotaBackendBytes": 67_108_864});
    w.create(tight).await?;
    let told = w
        .step(
            "a quota that it would fill is told",
            w.wait("EtcdCluster", "tight", "AgentMisconfigured", |c: &Value| {
                condition(c, "Degraded").is_some_and(|(_, reason, _)| reason == "AgentMisconfigured")
            }),
        )
        .await?;
    let words = condition(&told, "Degraded").context("Degraded")?.2;
    ensure!(words.contains("67108864") && words.contains("quotaBackendBytes"), "it names the quota: {words}");
    ensure!(told["status"]["latches"].get("formed").is_none(), "{}", told["status"]);

    w.create(make::restored("fits", 1, json!({"snapshotRef": {"name": "roomy"}}))).await?;
    w.step("with room it is restored", w.wait_ready("fits", 1)).await?;
    ensure!(w.digest("fits").await? == digest, "what was restored is what was saved");
    Ok(())
}
