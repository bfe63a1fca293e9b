//! Snapshots that cannot start yet wait with a reason; snapshots that can never start fail with a reason.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::policies::{agent, holds, on_agents, under};
use crate::support::host_operator::Seat;
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

/// A Job whose Pod never runs, for lack of a node or of an image, has stored nothing: the snapshot fails at the Job's deadline,
/// with the cause, and no Job asks the store.
pub async fn never_ran(w: &World) -> Result<()> {
    let seat = Seat::new(w, "never-ran", None).await?;
    let mut operator = seat.start(&[])?;
    operator.until_leading().await?;
    w.create(make::cluster("orders", 1)).await?;
    w.step("a source", w.wait_ready("orders", 1)).await?;
    let exchange = "[JSONPatch{op: 'replace', path: '/spec/containers/0/image', value: 'localhost/no-such-image:1'}]";
    under(w, &format!("{}-exchanges-images", w.ns), on_agents(w, exchange), async {
        holds(w, &agent(w), |made| made["spec"]["containers"][0]["image"] == "localhost/no-such-image:1").await?;
        for (name, selector) in [("no-node", json!({"example.com/none": "x"})), ("no-image", json!({}))] {
            let mut snapshot = make::snapshot(name, "orders", json!({ "s3": make::s3() }));
            snapshot["spec"]["deadlineSeconds"] = json!(10);
            snapshot["spec"]["agent"] = json!({"nodeSelector": selector});
            w.create(snapshot).await?;
        }
        for (name, cause) in [("no-node", "Unschedulable"), ("no-image", "no-such-image")] {
            let failed = w.step(&format!("{name}: told at the end"), w.wait_failed(name)).await?;
            ensure!(reason(&failed) == Some("PodHeldUp"), "{}", failed["status"]);
            let message = failed["status"]["error"]["message"].as_str().unwrap_or_default();
            ensure!(message.contains(cause) && message.contains("does not run"), "{message}");
        }
        let jobs = w.names("Job").await?;
        ensure!(jobs.len() == 2, "no Job asks the store: {jobs:?}");
        Ok(())
    })
    .await?;
    operator.retire().await?;
    seat.no_defects()
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
