//! A quota or an admission policy of a namespace blocks one write and no other step: clients reach the members, and the operator
//! does not repeat the same write without end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::audit;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// A quota forbids new Secrets while the only member's Pod is replaced.
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
    // The operator accepts a reading of a Secret for three seconds before it ends a Pod, and for five minutes otherwise.
    tokio::time::sleep(Duration::from_secs(4)).await;
    w.patch("EtcdCluster", "alpha", json!({"metadata": {"annotations": {"holdfast.dev/restart": "asked"}}})).await?;
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

/// A policy adds a container that never ends to each Pod of the agent, as a service mesh does.
pub async fn sidecar(w: &World) -> Result<()> {
    w.create(make::cluster("alpha", 1)).await?;
    w.wait_ready("alpha", 1).await?;
    let image = &w.env.probe_image;
    let of = "Object.spec.containers";
    let security = format!(
        "{of}.securityContext{{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: \
         {of}.securityContext.capabilities{{drop: ['ALL']}}}}"
    );
    let add = format!(
        "[JSONPatch{{op: 'add', path: '/spec/containers/-', value: {of}{{name: 'mesh', image: '{image}', imagePullPolicy: \
         'IfNotPresent', command: ['holdfast-probe', 'sleep'], securityContext: {security}}}}}]"
    );
    let name = format!("{}-adds-sidecars", w.ns);
    under(w, &name, on_agents(w, &add), async {
        holds(w, &agent(w), |made| made["spec"]["containers"].as_array().is_some_and(|all| all.len() == 2)).await?;
        w.create(make::schedule("nightly", "alpha", "0 0 1 1 *", json!({ "s3": make::s3() }))).await?;
        let cron =
            w.wait("EtcdSnapshotSchedule", "nightly", "its CronJob", |s| !s["status"]["cronJob"]["name"].is_null());
        let cron = cron.await?["status"]["cronJob"]["name"].as_str().context("a CronJob")?.to_owned();
        w.run_now(&cron, "by-hand").await?;
        w.step("the run is recorded", w.wait_complete("by-hand")).await?;
        let gone = until("its Job to go", PATIENCE, async || {
            let jobs = w.names("Job").await?;
            Ok(if jobs.contains(&"by-hand".to_owned()) { Err(format!("{jobs:?}")) } else { Ok(()) })
        });
        w.step("the Job goes although the sidecar runs", gone).await?;
        let record = w.get("EtcdSnapshot", "by-hand").await?;
        ensure!(record["status"]["phase"] == "Complete", "{}", record["status"]);
        Ok(())
    })
    .await
}

/// Pods of this story's namespace.
fn pods(w: &World, operations: &[&str]) -> Value {
    json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": w.ns}},
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["pods"]}],
    })
}

/// A policy that changes each new Pod of the agent.
pub(super) fn on_agents(w: &World, patch: &str) -> Value {
    json!({
        "matchConstraints": pods(w, &["CREATE"]),
        "matchConditions": [{
            "name": "agent",
            "expression": "has(object.metadata.labels) && 'app.kubernetes.io/component' in object.metadata.labels && \
                           object.metadata.labels['app.kubernetes.io/component'] == 'snapshot-agent'",
        }],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    })
}

/// A Pod with the agent's label, to try such a policy.
pub(super) fn agent(w: &World) -> Value {
    let mut pod = make::toolbox("agent", &w.env.probe_image, &[]);
    pod["metadata"]["labels"]["app.kubernetes.io/component"] = json!("snapshot-agent");
    pod
}

/// Runs a test under a policy, and deletes the policy in any case.
pub(super) async fn under(
    w: &World,
    name: &str,
    mut spec: Value,
    story: impl Future<Output = Result<()>>,
) -> Result<()> {
    spec["reinvocationPolicy"] = json!("Never");
    spec["failurePolicy"] = json!("Fail");
    let version = "admissionregistration.k8s.io/v1";
    let metadata = json!({"name": name});
    let policy = json!({"apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": metadata, "spec": spec});
    let binding = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": metadata, "spec": {"policyName": name},
    });
    for object in [&policy, &binding] {
        w.apply(&object.to_string()).await?;
    }
    let told = story.await;
    for kind in ["mutatingadmissionpolicybinding", "mutatingadmissionpolicy"] {
        w.env.kubectl(&["delete", kind, name])?;
    }
    told
}

/// Waits until a policy is in force, which takes some seconds: a dry-run Pod shows its change.
pub(super) async fn holds(w: &World, pod: &Value, changed: impl Fn(&Value) -> bool) -> Result<()> {
    until("the policy to hold", PATIENCE, async || {
        let made = w.try_create(pod).await?;
        Ok(if changed(&made) { Ok(()) } else { Err(made["metadata"].to_string()) })
    })
    .await
}

/// A policy removes the operator's annotation from each Pod, at its creation and at each patch.
pub async fn taken_back(w: &World) -> Result<()> {
    let policy = json!({
        "matchConstraints": pods(w, &["CREATE", "UPDATE"]),
        "matchConditions": [{
            "name": "annotated",
            "expression": "has(object.metadata.annotations) && 'holdfast.dev/tls' in object.metadata.annotations",
        }],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {
            "expression": "[JSONPatch{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey('holdfast.dev/tls')}]",
        }}],
    });
    under(w, &format!("{}-drops-annotations", w.ns), policy, under_policy(w)).await?;
    let over = w.wait("EtcdCluster", "alpha", "Ready without the policy", |c| {
        condition(c, "Ready").is_some_and(|(status, ..)| status == "True")
            && condition(c, "Degraded").is_some_and(|(status, ..)| status == "False")
    });
    w.step("the operator goes on without the policy", over).await.map(drop)
}

async fn under_policy(w: &World) -> Result<()> {
    let mut pod = make::toolbox("annotated", &w.env.probe_image, &[]);
    pod["metadata"]["annotations"] = json!({"holdfast.dev/tls": "x"});
    holds(w, &pod, |made| made["metadata"]["annotations"]["holdfast.dev/tls"].is_null()).await?;
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

/// Number of answered patches of Pods in this namespace, by the API server's audit log.
fn writes_of_pods(w: &World) -> Result<usize> {
    let log = audit::read()?.context("HOLDFAST_TESTBED_AUDIT")?;
    let of_pod = format!("/api/v1/namespaces/{}/pods/", w.ns);
    // The log is long, and this build does not optimise the parser.
    let of_pods = log.lines().filter(|line| memchr::memmem::find(line.as_bytes(), of_pod.as_bytes()).is_some());
    let patches =
        of_pods.filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(|it| it["verb"] == "patch");
    let paths = patches.filter_map(|it| it["requestURI"].as_str().map(str::to_owned));
    Ok(paths.filter(|path| path.starts_with(&of_pod) && !path.contains("/status")).count())
}
