//! Snapshots that cannot be made yet wait and say for what; those that never can say why.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::snapshot("early", "late", json!({ "s3": make::s3() }))).await?;
    w.step(
        "it waits for its cluster",
        w.wait("EtcdSnapshot", "early", "Pending", |s| {
            s["status"]["phase"] == "Pending" && reason(s) == Some("WaitingForReference")
        }),
    )
    .await?;
    w.create(make::cluster("late", 1)).await?;
    w.wait_ready("late", 1).await?;
    w.fill("late", 100).await?;
    w.step("it is made once the cluster is there", w.wait_complete("early")).await?;

    w.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong"},
        "stringData": {"accessKeyID": "holdfast", "secretAccessKey": "not-the-secret-canary"},
    }))
    .await?;
    let mut wrong = make::s3();
    wrong["credentialsSecretRef"]["name"] = json!("wrong");
    w.create(make::snapshot("denied", "late", json!({ "s3": wrong }))).await?;
    let mut missing = make::s3();
    missing["bucket"] = json!("no-such-bucket");
    w.create(make::snapshot("nowhere", "late", json!({ "s3": missing }))).await?;
    let denied = w.step("a wrong secret is told", w.wait_failed("denied")).await?;
    let nowhere = w.step("a missing bucket is told", w.wait_failed("nowhere")).await?;
    ensure!(denied["status"]["error"]["class"] == "Denied", "{}", denied["status"]);
    ensure!(nowhere["status"]["error"]["class"] == "NotFound", "{}", nowhere["status"]);
    ensure!(!denied.to_string().contains("not-the-secret-canary"), "a secret leaked into {denied}");

    let edit = json!({"spec": {"compression": "none"}});
    let edited = w.patch("EtcdSnapshot", "early", edit).await.err().context("a snapshot's spec was changed")?;
    ensure!(format!("{edited:#}").contains("immutable"), "{edited:#}");
    Ok(())
}

fn reason(object: &Value) -> Option<&str> {
    condition(object, "Ready").map(|(_, reason, _)| reason)
}

impl World {
    /// Waits until a snapshot is complete; a failed one ends the wait at once.
    pub async fn wait_complete(&self, snapshot: &str) -> Result<Value> {
        let done = self.wait("EtcdSnapshot", snapshot, "Complete", is_final).await?;
        ensure!(done["status"]["phase"] == "Complete", "{snapshot} failed: {}", done["status"]);
        Ok(done)
    }

    /// Waits until a snapshot has failed; a complete one ends the wait at once.
    pub async fn wait_failed(&self, snapshot: &str) -> Result<Value> {
        let done = self.wait("EtcdSnapshot", snapshot, "Failed", is_final).await?;
        ensure!(done["status"]["phase"] == "Failed", "{snapshot} should have failed: {}", done["status"]);
        Ok(done)
    }
}

fn is_final(object: &Value) -> bool {
    object["status"]["phase"] == "Complete" || object["status"]["phase"] == "Failed"
}
