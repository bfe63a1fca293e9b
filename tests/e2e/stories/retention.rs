//! The retention of a schedule: refused where it makes no sense, shown where it holds, and never applied to young snapshots.
//!
//! An announcement and a snapshot have to be an hour old, so no story of minutes sees a removal. Scenarios cover removals, and the
//! agent's own tests try them against stores.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::env::soak;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// Patience for the runs, a minute apart.
const RUNS: Duration = Duration::from_mins(4);

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::claim("backups", "1Gi")).await?;
    w.create(make::cluster("alpha", 1)).await?;
    w.step("a cluster", w.wait_ready("alpha", 1)).await?;
    w.fill("alpha", 50).await?;
    let to = json!({"pvc": {"claimName": "backups"}});
    let scheduled = |retention: Value| {
        let mut schedule = make::schedule("nightly", "alpha", "* * * * *", to.clone());
        schedule["spec"]["retention"] = retention;
        schedule
    };
    for (wrong, says) in [
        (json!({}), "a count above 0"),
        (json!({"keepLast": 0, "keepWithin": "6h"}), "a count above 0"),
        (json!({"keepLast": 1000, "keepHourly": 1000, "keepDaily": 1}), "must not exceed 2000"),
        (json!({"keepLast": 1001}), "1000"),
        (json!({"keepLast": 1, "keepWithin": "6 hours"}), "days, hours and minutes"),
    ] {
        let refused = w.create(scheduled(wrong.clone())).await.err().with_context(|| format!("{wrong} was taken"))?;
        ensure!(format!("{refused:#}").contains(says), "{wrong}: {refused:#}");
    }
    w.create(scheduled(json!({"keepLast": 1, "keepWithin": "1h30m"}))).await?;
    let runs = if soak() { 3 } else { 2 };
    let (last, schedule) = w
        .step("runs are recorded and stay", async {
            until("runs that are kept", PATIENCE + RUNS, async || {
                let schedule = w.get("EtcdSnapshotSchedule", "nightly").await?;
                let applied = told(&schedule);
                let kept = schedule["status"]["kept"].as_u64().unwrap_or_default();
                let last = schedule["status"]["lastSuccessful"]["name"].as_str().map(str::to_owned);
                Ok(match last {
                    Some(last) if kept >= runs && applied == ("True".to_owned(), "AsDesired".to_owned()) => {
                        Ok((last, schedule))
                    }
                    _ => Err(schedule["status"].to_string()),
                })
            })
            .await
        })
        .await?;
    ensure!(schedule["status"]["pruneRun"].is_null(), "nothing is to be removed: {}", schedule["status"]);

    w.step("a record is held and stays as it is otherwise", async {
        w.patch("EtcdSnapshot", &last, json!({"spec": {"hold": true}})).await?;
        w.patch("EtcdSnapshot", &last, json!({"spec": {"hold": false}})).await?;
        for change in [
            json!({"spec": {"clusterRef": {"name": "other"}}}),
            json!({"spec": {"run": null}}),
            json!({"spec": {"compression": "gzip"}}),
            json!({"spec": {"deadlineSeconds": 60}}),
            json!({"spec": {"destination": {"pvc": {"claimName": "other"}}}}),
        ] {
            let refused = w.patch("EtcdSnapshot", &last, change.clone()).await.err();
            let refused = refused.with_context(|| format!("{change} was taken"))?;
            ensure!(format!("{refused:#}").contains("immutable, except for hold"), "{change}: {refused:#}");
        }
        Ok(())
    })
    .await?;

    w.patch("EtcdSnapshotSchedule", "nightly", json!({"spec": {"suspendPruning": true}})).await?;
    let suspended = ("Unknown".to_owned(), "Suspended".to_owned());
    w.wait("EtcdSnapshotSchedule", "nightly", "suspended", |schedule| told(schedule) == suspended).await?;
    w.patch("EtcdSnapshotSchedule", "nightly", json!({"spec": {"retention": null}})).await?;
    w.wait("EtcdSnapshotSchedule", "nightly", "everything is kept", |schedule| {
        condition(schedule, "RetentionApplied").is_none() && schedule["status"]["kept"].is_null()
    })
    .await?;
    Ok(())
}

/// Status and reason of `RetentionApplied`.
fn told(schedule: &Value) -> (String, String) {
    condition(schedule, "RetentionApplied")
        .map(|(status, reason, _)| (status.to_owned(), reason.to_owned()))
        .unwrap_or_default()
}
