//! An install of `holdfast manifests` moves over to Helm, is upgraded, removed and installed again, while a cluster of one member
//! serves.
//!
//! The operator watches the story's namespace alone. The release has the CRDs, as a user's release has: Helm only adds labels and
//! annotations to them, and before `helm uninstall` the story sees that each of them says `keep`. The roles for people and the
//! admission policies stay out of the release: `helm uninstall` would take them from the other stories.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::helm::image_values;
use crate::support::kube_helpers::{condition, is_ready, patiently};
use crate::support::make;
use crate::support::probe::{Wrote, service};
use crate::support::world::World;

/// Annotation by which `helm uninstall` leaves an object.
const KEEP: &str = "helm.sh/resource-policy";

/// Label that the upgrade adds to every object.
const UPGRADED: &str = "holdfast.dev/story";

/// Name of the release, which is that of the objects.
const RELEASE: &str = "holdfast";

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("alpha", 1)).await?;
    w.step("one voter, by the operator of `holdfast manifests`", w.wait_ready("alpha", 1)).await?;
    let member = w.members("alpha").await?.members.remove(0).name;
    let pod = w.get("Pod", &member).await?["metadata"]["uid"].clone();
    let definitions = uids(w).await?;

    let busy = Cell::new(true);
    let working = async {
        let worked = moved(w, &definitions).await;
        busy.set(false);
        worked
    };
    let (wrote, worked) = tokio::join!(write(w, &busy), working);
    // Before anything else: other users of this Kubernetes cluster have their CRDs as before.
    let released = released(w).await;
    worked?;
    released?;
    let rounds = wrote?;
    for (prefix, wrote) in &rounds {
        w.all_written_under("alpha", prefix, wrote).await?;
    }
    let longest = rounds.iter().map(|(_, wrote)| wrote.longest_gap_ms).fold(0.0, f64::max);
    let total: u64 = rounds.iter().map(|(_, wrote)| wrote.total).sum();
    let failed: u64 = rounds.iter().map(|(_, wrote)| wrote.failed).sum();
    // A machine that stands still for some seconds delays a write, and no more.
    ensure!(total > 500 && longest < 20_000.0, "{total} writes acknowledged, longest gap {longest:.0} ms: {rounds:?}");
    ensure!(w.get("Pod", &member).await?["metadata"]["uid"] == pod, "the member has another Pod");
    by_chart(w).await?;
    eprintln!("e2e: {}: {total} writes acknowledged, {failed} attempts failed, longest gap {longest:.0} ms", w.story);
    Ok(())
}

/// Four clients that write until the work is done.
async fn write(w: &World, busy: &Cell<bool>) -> Result<Vec<(String, Wrote)>> {
    let (endpoint, mut rounds) = (service("alpha"), vec![]);
    while busy.get() {
        let prefix = format!("round-{}/", rounds.len());
        let words = ["writers", "--endpoint", &endpoint, "--writers", "4", "--rate", "10", "--duration", "10s"];
        rounds.push((prefix.clone(), w.probe(&[&words[..], &["--prefix", &prefix]].concat()).await?));
    }
    Ok(rounds)
}

/// Install over what is there, upgrade, uninstall, install again.
async fn moved(w: &World, definitions: &[(String, String)]) -> Result<()> {
    let image = image_values(&w.env.image)?;
    let watch = format!("watch.namespace={}", w.ns);
    let mut values =
        vec!["--set", &watch, "--set", "rbac.aggregateClusterRoles=false", "--set", "admissionPolicies.enabled=false"];
    values.extend(image.iter().flat_map(|value| ["--set", value]));
    let install =
        [&["install", RELEASE, "charts/holdfast", "--take-ownership", "--force-conflicts", "--wait"], &values[..]]
            .concat();
    let refused = w.helm(&[&["install", RELEASE, "charts/holdfast"], &values[..]].concat()).await;
    let why = format!("{:#}", refused.err().context("Helm took the objects of another owner without being asked")?);
    ensure!(why.contains("take-ownership") || why.contains("invalid ownership metadata"), "{why}");
    w.step("helm install --take-ownership", w.helm(&install)).await?;
    ensure!(uids(w).await? == definitions, "Helm made the CRDs anew");
    serves(w, 1).await?;

    let label = format!("commonLabels.{}=upgraded", UPGRADED.replace('.', "\\."));
    let upgrade =
        ["upgrade", RELEASE, "charts/holdfast", "--reset-then-reuse-values", "--wait", "--set", &label, "--set"];
    let two = [&upgrade[..], &["replicaCount=2"]].concat();
    // docs/operations.md says so: the fields belong to the manager that applied `holdfast manifests`, too.
    let why = format!("{:#}", w.helm(&two).await.err().context("Helm takes a field of another manager")?);
    ensure!(why.contains("conflict"), "{why}");
    let forced = [&two[..], &["--force-conflicts"]].concat();
    w.step("helm upgrade: two operators, and the CRDs", w.helm(&forced)).await?;
    serves(w, 2).await?;
    for crd in crds(w).await? {
        ensure!(crd.labels().get(UPGRADED).is_some_and(|it| it == "upgraded"), "{} is not upgraded", crd.name_any());
        // Otherwise `helm uninstall` would take every cluster of every story.
        ensure!(crd.annotations().get(KEEP).is_some_and(|it| it == "keep"), "{} is not kept", crd.name_any());
    }
    w.step("the second operator takes over", takes_over(w)).await?;

    let one = [&upgrade[..], &["replicaCount=1"]].concat();
    w.step("helm upgrade: back to one operator", w.helm(&one)).await?;
    serves(w, 1).await?;

    let told = w.step("helm uninstall", w.helm(&["uninstall", RELEASE, "--wait"])).await?;
    ensure!(
        told.contains("[CustomResourceDefinition] etcdclusters.holdfast.dev"),
        "Helm does not say what it keeps: {told}"
    );
    ensure!(uids(w).await? == definitions, "helm uninstall took the CRDs");
    ensure!(!w.names("Deployment").await?.contains(&RELEASE.to_owned()), "the operator is left");
    let cluster = w.get("EtcdCluster", "alpha").await?;
    ensure!(cluster["metadata"].get("deletionTimestamp").is_none(), "the cluster goes: {cluster}");

    w.step("helm install again", w.helm(&install)).await?;
    serves(w, 1).await
}

/// A cluster with certificates, of the chart holdfast-cluster: `helm test` puts and gets, no upgrade exchanges the cluster for an
/// empty one, and cluster, store and schedule stay after an uninstall.
async fn by_chart(w: &World) -> Result<()> {
    let values = "cluster.replicas=1,cluster.storage.size=1Gi,store.create=true,store.spec.pvc.claimName=none";
    let schedules = r#"schedules=[{"name":"a","schedule":"@daily","suspend":true}]"#;
    let words = ["beta", "charts/holdfast-cluster", "--set", values, "--set-json", schedules];
    w.step("helm install of a cluster", w.helm(&[&["install"], &words[..]].concat())).await?;
    let ready = |it: &Value| is_ready(it, 1);
    w.step("one voter", w.wait("EtcdCluster", "beta", "Ready with one voter", ready)).await?;
    let told = w.step("helm test", w.helm(&["test", "beta", "--logs"])).await?;
    ensure!(told.contains("Phase:") && told.contains("Succeeded"), "{told}");
    // A test that a cluster without an answer passes proves nothing.
    let broken = [&["upgrade"], &words[..], &["--set", "test.secretName=s3-credentials"]].concat();
    w.helm(&broken).await?;
    let failed = w.helm(&["test", "beta", "--timeout", "20s"]).await;
    ensure!(failed.is_err(), "helm test succeeds without a certificate");
    let before = w.get("EtcdCluster", "beta").await?["metadata"]["uid"].clone();
    let renamed = w.helm(&[&["upgrade"], &words[..], &["--set", "nameOverride=z"]].concat()).await;
    let why = format!("{:#}", renamed.err().context("an upgrade exchanges the cluster for an empty one")?);
    ensure!(why.contains("its name is fixed at install") && why.contains("Set nameOverride=beta"), "{why}");
    ensure!(w.names("EtcdCluster").await? == ["alpha", "beta"], "{:?}", w.names("EtcdCluster").await?);
    // Its own name is no other name. A schedule that the values no longer have goes on, and Helm says so.
    let shorter = ["--set", "nameOverride=beta", "--set-json", "schedules=[]"];
    let told = w.helm(&[&["upgrade"], &words[..4], &shorter].concat()).await?;
    ensure!(told.contains("no longer have the EtcdSnapshotSchedule beta-a"), "{told}");
    w.helm(&["uninstall", "beta", "--wait"]).await?;
    let cluster = w.get("EtcdCluster", "beta").await?;
    ensure!(is_ready(&cluster, 1) && cluster["metadata"]["uid"] == before, "the cluster was not kept: {cluster}");
    ensure!(cluster["spec"]["storage"]["retention"] == "Retain", "{cluster}");
    for (kind, name) in [("EtcdBackupStore", "beta"), ("EtcdSnapshotSchedule", "beta-a")] {
        let kept = w.get(kind, name).await?;
        ensure!(kept["metadata"].get("deletionTimestamp").is_none(), "{kind} {name} goes: {kept}");
    }
    // The release continues with the objects of the one before.
    w.helm(&[&["install"], &words[..]].concat()).await?;
    ensure!(w.get("EtcdCluster", "beta").await?["metadata"]["uid"] == before, "another cluster");
    Ok(())
}

/// The operator that has the Lease is deleted: the other one leads, and acts.
async fn takes_over(w: &World) -> Result<()> {
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(w.client.clone(), &w.ns);
    let holder = async || {
        let lease = patiently(async |_| leases.get(RELEASE).await).await?;
        lease.spec.and_then(|spec| spec.holder_identity).filter(|it| !it.is_empty()).context("nobody leads")
    };
    let first = holder().await?;
    let begun = Instant::now();
    w.delete("Pod", &first).await?;
    let second = loop {
        match holder().await {
            Ok(holder) if holder != first => break holder,
            _ if begun.elapsed() > Duration::from_mins(1) => bail!("{first} leads after its end"),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    eprintln!("e2e: {}: {second} leads {} ms after the deletion of {first}", w.story, begun.elapsed().as_millis());
    Ok(())
}

/// So many operators are ready, and one of them writes the status of the cluster's present spec.
async fn serves(w: &World, operators: i32) -> Result<()> {
    let ready = |it: &Value| {
        it["status"]["readyReplicas"] == operators && it["status"]["observedGeneration"] == it["metadata"]["generation"]
    };
    let deployment = w.wait("Deployment", RELEASE, "its operators ready", ready).await?;
    ensure!(deployment["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE, "not Helm's: {deployment}");
    // An edit that changes nothing of a running member.
    let seconds = 600 + operators + i32::try_from(deployment["metadata"]["generation"].as_i64().unwrap_or(0))?;
    let edited = w.patch("EtcdCluster", "alpha", json!({"spec": {"progressDeadlineSeconds": seconds}})).await?;
    let generation = edited["metadata"]["generation"].clone();
    let seen = |it: &Value| {
        it["status"]["observedGeneration"] == generation
            && condition(it, "Ready").is_some_and(|(status, ..)| status == "True")
    };
    w.wait("EtcdCluster", "alpha", "seen by the operator of Helm", seen).await.map(drop)
}

async fn crds(w: &World) -> Result<Vec<CustomResourceDefinition>> {
    let all: Api<CustomResourceDefinition> = Api::all(w.client.clone());
    let ours = patiently(async |_| all.list(&ListParams::default()).await).await?.items.into_iter();
    Ok(ours.filter(|crd| crd.spec.group == "holdfast.dev").collect())
}

/// Names and UIDs of the CRDs, sorted.
async fn uids(w: &World) -> Result<Vec<(String, String)>> {
    let mut all: Vec<_> = crds(w).await?.iter().map(|crd| (crd.name_any(), crd.uid().unwrap_or_default())).collect();
    all.sort();
    ensure!(all.len() == 7, "{all:?}");
    Ok(all)
}

/// Takes Helm's marks from the CRDs, which are everybody's.
async fn released(w: &World) -> Result<()> {
    let all: Api<CustomResourceDefinition> = Api::all(w.client.clone());
    let nothing = json!({"metadata": {
        "annotations": {KEEP: null, "meta.helm.sh/release-name": null, "meta.helm.sh/release-namespace": null},
        "labels": {UPGRADED: null, "helm.sh/chart": null, "app.kubernetes.io/instance": null,
            "app.kubernetes.io/managed-by": null, "app.kubernetes.io/version": null},
    }});
    for (name, _) in uids(w).await? {
        let patch = Patch::Merge(nothing.clone());
        patiently(async |_| all.patch(&name, &PatchParams::default(), &patch).await).await?;
    }
    Ok(())
}
