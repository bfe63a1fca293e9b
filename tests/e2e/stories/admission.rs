//! Edits whose Pods admission refuses: the members serve on, and the earlier spec changes nothing. A quota, with the share of the
//! present Pod; a list of allowed images; a Pod that a lowered quota refuses gets the corrected spec.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, is_ready, until, wait_for};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// Longest time without a reason, on a slow machine.
const SOON: Duration = Duration::from_mins(2);

/// Time in which a wrong step would show: several passes.
const QUIET: Duration = Duration::from_secs(40);

pub async fn tell(w: &World) -> Result<()> {
    w.step("a quota and one member", quota(w)).await?;
    w.step("a list of images and two members", images(w)).await
}

async fn quota(w: &World) -> Result<()> {
    let mut cluster = make::cluster("one", 1);
    cluster["spec"]["resources"] = memory("64Mi");
    w.create(cluster).await?;
    w.wait_ready("one", 1).await?;
    w.fill("one", 50).await?;
    w.create(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight"},
        "spec": {"hard": {"requests.memory": "256Mi"}},
    }))
    .await?;
    counted(w, "256Mi").await?;
    let before = pods(w, "one").await?;

    let too_much = json!({"spec": {"resources": memory("512Mi"), "options": {"snapshotCount": 20_000}}});
    w.patch("EtcdCluster", "one", too_much).await?;
    refused(w, "one", "exceeded quota").await?;
    stands(w, "one", &before).await?;
    w.patch("EtcdCluster", "one", json!({"spec": {"resources": memory("64Mi"), "options": null}})).await?;
    w.wait_ready("one", 1).await?;
    stands(w, "one", &before).await?;

    // The operator's Pod has 64Mi of the quota. Beside the present Pod there is no room for the next one, and after its end there is.
    w.patch(
        "EtcdCluster",
        "one",
        json!({"spec": {"resources": memory("180Mi"), "options": {"snapshotCount": 20_000}}}),
    )
    .await?;
    updated(w, "one", 1).await?;
    ensure!(pods(w, "one").await? != before, "the member restarted");

    // The quota shrinks below the present Pod, which then ends.
    w.patch("ResourceQuota", "tight", json!({"spec": {"hard": {"requests.memory": "150Mi"}}})).await?;
    counted(w, "150Mi").await?;
    for name in pods(w, "one").await?.keys() {
        w.delete("Pod", name).await?;
    }
    until("the next Pod to be refused", SOON, async || {
        let cluster = w.get("EtcdCluster", "one").await?;
        let told = condition(&cluster, "Degraded").is_some_and(|(.., words)| words.contains("exceeded quota"));
        Ok(if told { Ok(()) } else { Err(cluster["status"]["conditions"].to_string()) })
    })
    .await?;
    w.patch("EtcdCluster", "one", json!({"spec": {"resources": memory("64Mi")}})).await?;
    updated(w, "one", 1).await?;
    w.digest("one").await?;
    w.delete("ResourceQuota", "tight").await?;
    w.delete_and_wait("EtcdCluster", "one").await
}

async fn images(w: &World) -> Result<()> {
    let (allowed, other) = ("3.6.11", "3.6.16");
    let name = format!("{}-images", w.ns);
    let metadata = json!({"name": name});
    let version = "admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": w.ns}},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }],
            },
            "validations": [{
                "expression": format!("object.spec.containers.all(c, !c.image.endsWith(':v{other}'))"),
                "message": "this image is not on the list",
            }],
        },
    });
    let binding = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    let mut cluster = make::cluster("two", 2);
    cluster["spec"]["version"] = json!(allowed);
    w.create(cluster).await?;
    w.wait_ready("two", 2).await?;
    for object in [&policy, &binding] {
        w.apply(&object.to_string()).await?;
    }
    let told = async {
        // The policy is in force some seconds after its creation.
        let pod = make::toolbox("unlisted", &format!("example.org/etcd:v{other}"), &[]);
        until("the policy to hold", SOON, async || {
            Ok(match w.try_create(&pod).await {
                Err(why) if format!("{why:#}").contains("not on the list") => Ok(()),
                other => Err(format!("Pods with any image: {other:?}")),
            })
        })
        .await?;
        let before = pods(w, "two").await?;
        w.patch("EtcdCluster", "two", json!({"spec": {"version": other}})).await?;
        refused(w, "two", "not on the list").await?;
        stands(w, "two", &before).await?;
        w.patch("EtcdCluster", "two", json!({"spec": {"version": allowed}})).await?;
        w.wait_ready("two", 2).await?;
        stands(w, "two", &before).await
    }
    .await;
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        w.env.kubectl(&["delete", kind, &name])?;
    }
    told?;
    w.delete_and_wait("EtcdCluster", "two").await
}

fn memory(amount: &str) -> Value {
    json!({"requests": {"memory": amount}})
}

/// Waits until Kubernetes counts with this quota.
async fn counted(w: &World, memory: &str) -> Result<()> {
    let hard = |quota: &Value| quota["status"]["hard"]["requests.memory"] == memory;
    w.wait("ResourceQuota", "tight", "counted", hard).await.map(drop)
}

/// UIDs of the members' Pods, by name.
async fn pods(w: &World, cluster: &str) -> Result<BTreeMap<String, Value>> {
    let selector = format!("holdfast.dev/cluster={cluster},app.kubernetes.io/component=etcd-member");
    let mut found = BTreeMap::new();
    for name in w.names_with("Pod", &selector).await? {
        let pod = w.get("Pod", &name).await?;
        found.insert(name, pod["metadata"]["uid"].clone());
    }
    Ok(found)
}

/// Waits until the cluster says that the API server would refuse its next Pod.
async fn refused(w: &World, cluster: &str, words: &str) -> Result<()> {
    let good = |object: &Value| {
        condition(object, "Degraded")
            .is_some_and(|(status, why, told)| status == "True" && why == "WriteRefused" && told.contains(words))
    };
    wait_for(&w.api("EtcdCluster"), cluster, &format!("WriteRefused: {words}"), SOON, good).await.map(drop)
}

/// Checks that the same Pods serve for a while.
async fn stands(w: &World, cluster: &str, before: &BTreeMap<String, Value>) -> Result<()> {
    tokio::time::sleep(QUIET).await;
    let now = pods(w, cluster).await?;
    ensure!(now == *before, "a Pod of {cluster} ended: {before:?}, {now:?}");
    let object = w.get("EtcdCluster", cluster).await?;
    let available = condition(&object, "Available").is_some_and(|(status, ..)| status == "True");
    ensure!(available, "{cluster} serves on: {}", object["status"]["conditions"]);
    Ok(())
}

/// Waits until every member serves with the spec.
async fn updated(w: &World, cluster: &str, members: usize) -> Result<()> {
    until("the changed spec", PATIENCE, async || {
        let object = w.get("EtcdCluster", cluster).await?;
        let updated = is_ready(&object, members) && object["status"]["updatedMembers"] == members;
        Ok(if updated { Ok(()) } else { Err(object["status"]["conditions"].to_string()) })
    })
    .await
}
