//! A namespace with a running cluster, a cluster that is being restored, and a snapshot in flight is deleted like any other: no
//! finalizer of Holdfast delays it.
//!
//! The operator runs in another namespace, like an install for the whole cluster, and is limited to this one.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::support::apply::apply;
use crate::support::kube_helpers::{api, condition, until, wait_for};
use crate::support::leftovers;
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// Longest time for which a finalizer of Holdfast may delay the deletion.
const LET_GO_WITHIN: Duration = Duration::from_mins(1);

/// Namespace of an install for the whole cluster.
const HOME: &str = "holdfast-system";

pub async fn tell(w: &World) -> Result<()> {
    let doomed = format!("{}-doomed", w.ns);
    let told = w.step("a namespace with everything in it", furnish(w, &doomed)).await;
    let swept = w.step("nothing of ours holds it up", gone(w, &doomed)).await;
    w.env.kubectl(&["-n", HOME, "delete", "deployment", "holdfast", "--ignore-not-found"])?;
    told.and(swept)
}

async fn furnish(w: &World, doomed: &str) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": doomed, "labels": {
        "holdfast.dev/test": "e2e", leftovers::RUN: std::process::id().to_string(),
    }}});
    w.apply(&namespace.to_string()).await?;
    w.apply(&w.env.manifests(&["--only", "rbac"])?).await?;
    let only_here = format!("- operator\n        - --watch-namespace={doomed}\n");
    let deployment = w.env.manifests(&["--only", "deployment"])?.replacen("- operator\n", &only_here, 1);
    ensure!(deployment.contains("--watch-namespace"), "{deployment}");
    w.apply(&deployment).await?;
    apply(&w.client, doomed, &std::fs::read_to_string(&w.env.s3_manifest)?).await?;

    let put = async |object: Value| apply(&w.client, doomed, &object.to_string()).await;
    put(make::cluster("alpha", 3)).await?;
    let clusters = api(&w.client, doomed, "EtcdCluster");
    let ready = |c: &Value| condition(c, "Ready").is_some_and(|(status, ..)| status == "True");
    wait_for(&clusters, "alpha", "Ready", PATIENCE, ready).await?;
    let mut done = make::snapshot("done", "alpha", json!({ "s3": make::s3() }));
    done["spec"]["deletionPolicy"] = json!("Delete");
    put(done).await?;
    let snapshots = api(&w.client, doomed, "EtcdSnapshot");
    wait_for(&snapshots, "done", "Complete", PATIENCE, |s| s["status"]["phase"] == "Complete").await?;
    put(make::restored("beta", 3, json!({"snapshotRef": {"name": "done"}}))).await?;
    put(make::snapshot("in-flight", "alpha", json!({ "s3": make::s3() }))).await?;
    let begun = |s: &Value| s["status"]["phase"].as_str().is_some_and(|phase| phase != "Pending");
    wait_for(&snapshots, "in-flight", "begun", PATIENCE, begun).await.map(drop)
}

async fn gone(w: &World, doomed: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(w.client.clone());
    let begun = Instant::now();
    namespaces.delete(doomed, &DeleteParams::background()).await?;
    let (mut since, mut longest) = (None, Duration::ZERO);
    until("the namespace to go", PATIENCE, async || {
        let Some(there) = namespaces.get_opt(doomed).await? else { return Ok(Ok(())) };
        // Kubernetes needs time for Pods and volumes; only Holdfast's finalizer holds an object without them.
        if held(w, doomed).await? {
            longest = longest.max(since.get_or_insert_with(Instant::now).elapsed());
        } else {
            since = None;
        }
        Ok(Err(json!(there.status).to_string()))
    })
    .await?;
    eprintln!("e2e: {}: the namespace was gone after {} s", w.story, begun.elapsed().as_secs());
    ensure!(longest <= LET_GO_WITHIN, "our finalizer held it up for {} s", longest.as_secs());
    Ok(())
}

/// Whether a member without Pod and claim, or a deleted snapshot, still has Holdfast's finalizer.
async fn held(w: &World, doomed: &str) -> Result<bool> {
    let there = async |kind, name: &str| anyhow::Ok(api(&w.client, doomed, kind).get_opt(name).await?.is_some());
    for member in api(&w.client, doomed, "EtcdMember").list(&ListParams::default()).await?.items {
        let name = member.name_any();
        let ours = member.finalizers().iter().any(|finalizer| finalizer == "holdfast.dev/member");
        if ours && !there("Pod", &name).await? && !there("PersistentVolumeClaim", &format!("data-{name}")).await? {
            return Ok(true);
        }
    }
    let snapshots = api(&w.client, doomed, "EtcdSnapshot").list(&ListParams::default()).await?.items;
    let goes = |snapshot: &DynamicObject| snapshot.metadata.deletion_timestamp.is_some();
    Ok(snapshots
        .iter()
        .any(|snapshot| goes(snapshot) && snapshot.finalizers().iter().any(|f| f == "holdfast.dev/artifact")))
}
