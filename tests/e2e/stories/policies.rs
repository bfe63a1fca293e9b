//! What a quota or an admission policy of a namespace takes away holds up nothing else: clients reach the members, and the operator
//! does not write the same change again and again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// No Secret may be made while the only member's Pod is made again.
pub async fn quota_on_secrets(w: &World) -> Result<()> {
    w.create(make::secured("alpha", 1)).await?;
    super::tls::ready(w, "alpha", 1).await?;
    w.create(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-secrets"},
        "spec": {"hard": {"count/secrets": "0"}},
    }))
    .await?;
    w.wait("ResourceQuota", "no-secrets", "counted", |q| q["status"]["hard"]["count/secrets"] == "0").await?;
    w.delete("Secret", "alpha-client-tls").await?;
    let member = super::tls::members(w, "alpha").await?.pop().context("a member")?;
    let before = w.get("Pod", &member).await?["metadata"]["uid"].clone();
    w.delete("Pod", &member).await?;
    let admitted = w.wait("Pod", &member, "another Pod, a voter's", |pod| {
        pod["metadata"]["uid"] != before && pod["metadata"]["labels"]["holdfast.dev/role"] == "voter"
    });
    w.step("clients are let in although a Secret is refused", admitted).await?;
    w.step("the client Service has an endpoint", has_endpoint(w, "alpha-client")).await?;
    let refused = |c: &Value| {
        condition(c, "Degraded").is_some_and(|(status, reason, message)| {
            status == "True" && reason == "WriteRefused" && message.contains("exceeded quota")
        }) && condition(c, "Available").is_some_and(|(status, ..)| status == "True")
    };
    let shown = w.wait("EtcdCluster", "alpha", "Available, and the refused Secret", refused);
    w.step("the refusal is shown beside", shown).await?;
    w.delete("ResourceQuota", "no-secrets").await?;
    let issued = until("the Secret for applications", PATIENCE, async || {
        let there = w.names("Secret").await?.contains(&"alpha-client-tls".to_owned());
        Ok(if there { Ok(()) } else { Err("not there".to_owned()) })
    });
    w.step("the Secret is issued after the quota is gone", issued).await
}

async fn has_endpoint(w: &World, service: &str) -> Result<()> {
    until("a ready endpoint", PATIENCE, async || {
        let slices = w.names_with("EndpointSlice", &format!("kubernetes.io/service-name={service}")).await?;
        for slice in slices {
            let slice = w.get("EndpointSlice", &slice).await?;
            let mut endpoints = slice["endpoints"].as_array().into_iter().flatten();
            if endpoints.any(|endpoint| endpoint["conditions"]["ready"] == true) {
                return Ok(Ok(()));
            }
        }
        Ok(Err("none".to_owned()))
    })
    .await
}

/// A policy takes the operator's annotation from each Pod, at its creation and at each patch.
pub async fn taken_back(w: &World) -> Result<()> {
    let policy = format!("{}-drops-annotations", w.ns);
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": policy},
        "spec": {
            "reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": w.ns}},
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}],
            },
            "matchConditions": [{
                "name": "annotated",
                "expression": "has(object.metadata.annotations) && 'holdfast.dev/tls' in object.metadata.annotations",
            }],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {
                "expression": "[JSONPatch{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey('holdfast.dev/tls')}]",
            }}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": policy}, "spec": {"policyName": policy},
    });
    for object in [&object, &binding] {
        w.env.apply(None, &object.to_string())?;
    }
    let told = under_policy(w).await;
    for kind in ["mutatingadmissionpolicybinding", "mutatingadmissionpolicy"] {
        w.env.kubectl(&["delete", kind, &policy])?;
    }
    told?;
    let over = w.wait("EtcdCluster", "alpha", "Ready without the policy", |c| {
        condition(c, "Ready").is_some_and(|(status, ..)| status == "True")
            && condition(c, "Degraded").is_some_and(|(status, ..)| status == "False")
    });
    w.step("the operator goes on without the policy", over).await.map(drop)
}

async fn under_policy(w: &World) -> Result<()> {
    // It holds some seconds after it was made.
    let mut pod = make::toolbox("annotated", &w.env.probe_image, &[]);
    pod["metadata"]["annotations"] = json!({"holdfast.dev/tls": "x"});
    until("the policy to hold", PATIENCE, async || {
        let create = ["-n", &w.ns, "create", "--dry-run=server", "-o", "json", "-f", "-"];
        let made: Value = serde_json::from_str(&w.env.kubectl_with(&create, Some(&pod.to_string()))?)?;
        let there = &made["metadata"]["annotations"]["holdfast.dev/tls"];
        Ok(if there.is_null() { Ok(()) } else { Err(there.to_string()) })
    })
    .await?;
    w.create(make::secured("alpha", 1)).await?;
    let named = until("the write that is taken back", PATIENCE, async || {
        let members = super::tls::members(w, "alpha").await?;
        let Some(member) = members.first() else { return Ok(Err("no member yet".to_owned())) };
        let member = w.get("EtcdMember", member).await?;
        let degraded = condition(&member, "Degraded");
        let named = degraded.is_some_and(|(status, reason, message)| {
            status == "True" && reason == "WriteReverted" && message.contains("RefreshCertificates")
        });
        Ok(if named { Ok(()) } else { Err(format!("{degraded:?}")) })
    });
    w.step("the change that is taken back is named", named).await?;
    let writes = writes_of_pods(w)?;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let more = writes_of_pods(w)? - writes;
    ensure!(more <= 8, "{more} writes of a Pod within 15 s");
    println!("e2e: {more} writes of a Pod within 15 s under the policy");
    Ok(())
}

/// Answered patches of Pods in this namespace, by the API server's audit log.
fn writes_of_pods(w: &World) -> Result<usize> {
    let log = std::env::var("HOLDFAST_TESTBED_AUDIT").context("HOLDFAST_TESTBED_AUDIT")?;
    let log = std::fs::read_to_string(log)?;
    let of_pod = format!("/api/v1/namespaces/{}/pods/", w.ns);
    let patches =
        log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(|it| it["verb"] == "patch");
    let paths = patches.filter_map(|it| it["requestURI"].as_str().map(str::to_owned));
    Ok(paths.filter(|path| path.starts_with(&of_pod) && !path.contains("/status")).count())
}
