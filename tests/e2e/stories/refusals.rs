//! Refusals of the API server or kubelet appear soon in a condition, and the object continues by itself once the cause is gone: a
//! quota, a policy on Pods, an image that does not exist, names of the longest length.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, until, until_within, wait_for};
use crate::support::make;
use crate::support::world::World;

/// Longest time without a reason, on a slow machine.
const SOON: Duration = Duration::from_mins(2);

/// Longest time until kube-scheduler looks again at a Pod for which a busy node had no CPU: five minutes, if no event comes before.
const RESCHEDULED: Duration = Duration::from_mins(7);

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("one", 1)).await?;
    w.create(make::claim("backups", "1Gi")).await?;
    w.step("one voter", w.wait_ready("one", 1)).await?;
    w.fill("one", 50).await?;
    let to = json!({"pvc": {"claimName": "backups"}});

    let longest = "n".repeat(253);
    for name in ["with.dots.2026-11", &longest] {
        w.create(make::snapshot(name, "one", to.clone())).await?;
    }
    w.step("dotted and longest names", async {
        w.wait_complete("with.dots.2026-11").await?;
        w.wait_complete(&longest).await
    })
    .await?;

    // Its deadline passes two minutes from now.
    let mut hopeless = make::snapshot("hopeless", "one", json!({"pvc": {"claimName": "never"}}));
    hopeless["spec"]["deadlineSeconds"] = json!(10);
    w.create(hopeless).await?;

    // Running Pods stay; admission refuses every new Pod.
    w.create(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight"}, "spec": {"hard": {"pods": "0"}},
    }))
    .await?;
    w.wait("ResourceQuota", "tight", "counted", |q| q["status"]["hard"]["pods"] == "0").await?;
    w.create(make::snapshot("squeezed", "one", to.clone())).await?;
    w.create(make::cluster("two", 1)).await?;
    w.step("a quota is told of the snapshot", told(w, "EtcdSnapshot", "squeezed", "WriteRefused", "exceeded quota"))
        .await?;
    w.step("and of the cluster", told(w, "EtcdCluster", "two", "WriteRefused", "exceeded quota")).await?;
    w.delete("ResourceQuota", "tight").await?;
    w.step("both go on without it", async {
        w.wait_complete("squeezed").await?;
        w.wait_ready("two", 1).await
    })
    .await?;

    w.step("a policy on Pods", policy_on_pods(w, &to)).await?;

    let mut unknown = make::cluster("unknown", 1);
    unknown["spec"]["image"] = json!({"repository": "localhost/nobody-has-this"});
    w.create(unknown).await?;
    w.step("an image that cannot be pulled is told", told(w, "EtcdCluster", "unknown", "PodHeldUp", "nobody-has-this"))
        .await?;
    w.step("and the cluster can be deleted", w.delete_and_wait("EtcdCluster", "unknown")).await?;

    w.create(make::snapshot("nowhere", "one", json!({"pvc": {"claimName": "later"}}))).await?;
    w.step("a claim that is not there is told", told(w, "EtcdSnapshot", "nowhere", "PodHeldUp", "later")).await?;
    w.create(make::claim("later", "1Gi")).await?;
    w.step("and is waited for", w.wait_complete("nowhere")).await?;

    let mut secretless = make::s3();
    secretless["credentialsSecretRef"]["name"] = json!("not-there-yet");
    w.create(make::snapshot("secretless", "one", json!({ "s3": secretless }))).await?;
    let waits = w.step(
        "a Secret that is not there is told",
        told(w, "EtcdSnapshot", "secretless", "WaitingForReference", "not-there-yet"),
    );
    waits.await?;
    let there = w.get("Secret", "s3-credentials").await?;
    w.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "not-there-yet"}, "data": there["data"],
    }))
    .await?;
    w.step("and is waited for too", w.wait_complete("secretless")).await?;

    w.step("what held a Pod up is told when its time is over", hopeless_to_the_end(w)).await
}

/// Its claim never existed. The snapshot fails only once the store could be asked, and keeps the cause of its failure.
async fn hopeless_to_the_end(w: &World) -> Result<()> {
    let says = |words: &str| {
        words.starts_with("the Job passed its deadline of 130 s. Correct the cause of the delay")
            && words.contains("never")
    };
    let over = |s: &Value| condition(s, "Ready").is_some_and(|(.., words)| says(words));
    w.wait("EtcdSnapshot", "hopeless", "its time to be over", over).await?;
    w.create(make::claim("never", "1Gi")).await?;
    let failed =
        |s: &Value| s["status"]["phase"] == "Failed" && s["status"]["error"]["message"].as_str().is_some_and(says);
    until_within("hopeless to have failed for it", RESCHEDULED, Duration::from_secs(1), async || {
        let snapshot = w.get("EtcdSnapshot", "hopeless").await?;
        Ok(if failed(&snapshot) { Ok(()) } else { Err(snapshot["status"].to_string()) })
    })
    .await
}

/// A rule such as Pod security or a company's own: admission refuses every Pod without a label, and admits a Pod with the label.
async fn policy_on_pods(w: &World, to: &Value) -> Result<()> {
    let name = format!("{}-labelled", w.ns);
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
                "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
                "message": "every Pod names its team",
            }],
        },
    });
    let binding = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    for object in [&policy, &binding] {
        w.apply(&object.to_string()).await?;
    }
    let told = async {
        // The policy is in force some seconds after its creation.
        let pod = make::toolbox("unlabelled", &w.env.probe_image, &[]);
        until("the policy to hold", SOON, async || {
            Ok(match w.try_create(&pod).await {
                Err(why) if format!("{why:#}").contains("every Pod names its team") => Ok(()),
                other => Err(format!("Pods without a team: {other:?}")),
            })
        })
        .await?;
        w.create(make::snapshot("no-team", "one", to.clone())).await?;
        w.create(make::cluster("no-team", 1)).await?;
        told(w, "EtcdSnapshot", "no-team", "WriteRefused", "every Pod names its team").await?;
        told(w, "EtcdCluster", "no-team", "WriteRefused", "every Pod names its team").await?;
        let mut labelled = make::snapshot("labelled", "one", to.clone());
        labelled["spec"]["agent"] = json!({"podMetadata": {"labels": {"team": "storage"}}});
        w.create(labelled).await?;
        w.wait_complete("labelled").await
    }
    .await;
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        w.env.kubectl(&["delete", kind, &name])?;
    }
    told?;
    w.wait_complete("no-team").await?;
    w.wait_ready("no-team", 1).await?;
    w.delete_and_wait("EtcdCluster", "no-team").await
}

/// Waits a short time until the `Ready` condition of an object has this reason and these words.
async fn told(w: &World, kind: &str, name: &str, reason: &str, words: &str) -> Result<Value> {
    let good = |object: &Value| {
        condition(object, "Ready")
            .is_some_and(|(status, why, message)| status == "False" && why == reason && message.contains(words))
    };
    wait_for(&w.api(kind), name, &format!("{reason}: {words}"), SOON, good).await
}
