//! The data of three members, laid out as the chart bitnami/etcd does it, move into an EtcdCluster by the commands of
//! docs/migrate-bitnami.md: every acknowledged write is there, and the read-only window is printed.
//!
//! The members run etcd's own image: Bitnami's start script makes these very settings. Names, ports, Services, claims, the root user
//! and its Secret are those of a release `legacy` with the chart's defaults. Only the variable `ETCD_ROOT_PASSWORD` is left out: etcd
//! logs its value as that of an unknown setting, and no Secret may be in a log of a story.

use std::cell::Cell;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::env::ETCD_VERSION;
use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::probe::{Digest, Wrote, service};
use crate::support::world::World;

/// Name and password of the root user.
const ROOT: &str = "root:canary-of-bitnami";

pub async fn tell(w: &World) -> Result<()> {
    w.step("three members of a release of bitnami/etcd", furnish(w)).await?;
    w.create(make::store("vault", "moves")).await?;
    let legacy = format!("http://legacy-etcd.{}.svc:2379", w.ns);
    w.probe_text(&["fill", "--endpoint", &legacy, "--user", ROOT, "--keys", "2000", "--seed", "7"]).await?;

    let busy = Cell::new(true);
    let rehearsing = async {
        let mut rehearsal = external(w, "legacy-0");
        rehearsal["spec"]["external"]["authSecretRef"] = json!({"name": "legacy-login"});
        w.create(rehearsal).await?;
        let rehearsed = w.step("a snapshot beside the writers", w.wait_complete("legacy-0")).await;
        busy.set(false);
        rehearsed
    };
    let (wrote, rehearsed) = tokio::join!(write(w, &legacy, &busy), rehearsing);
    rehearsed?;
    let rounds = wrote?;

    let begun = Instant::now();
    etcdctl(w, &["--user", ROOT, "auth", "disable"]).await?;
    let before: Digest = w.probe(&["digest", "--endpoint", &legacy]).await?;
    w.create(external(w, "legacy-1")).await?;
    w.step("the snapshot", w.wait_complete("legacy-1")).await?;
    let values = "mode=restore,restore.snapshotRef.name=legacy-1,cluster.storage.size=1Gi,cluster.tls.insecure=true";
    w.step("helm install", w.helm(&["install", "alpha", "charts/holdfast-cluster", "--set", values])).await?;
    let serves = |c: &Value| condition(c, "Available").is_some_and(|(status, ..)| status == "True");
    w.step("the new cluster serves", w.wait("EtcdCluster", "alpha", "Available", serves)).await?;
    let after = w.digest("alpha").await?;
    w.probe_text(&["put", "--endpoint", &service("alpha"), "--key", "moved", "--value", "yes"]).await?;
    let window = begun.elapsed();
    ensure!(after == before, "other data: {before:?} before, {after:?} now");

    for (prefix, wrote) in &rounds {
        w.all_written_under("alpha", prefix, wrote).await?;
    }
    w.step("three voters", w.wait_ready("alpha", 3)).await?;
    w.step("helm test", w.helm(&["test", "alpha"])).await?;
    let total: u64 = rounds.iter().map(|(_, wrote)| wrote.total).sum();
    ensure!(total > 100, "hardly anything was written: {rounds:?}");
    eprintln!(
        "e2e: {}: {total} writes acknowledged, {} keys, read-only for {:.1} s",
        w.story,
        after.keys,
        window.as_secs_f64()
    );
    Ok(())
}

/// Four clients that log in and write until the rehearsal is done.
async fn write(w: &World, legacy: &str, busy: &Cell<bool>) -> Result<Vec<(String, Wrote)>> {
    let mut rounds = vec![];
    while busy.get() {
        let prefix = format!("round-{}/", rounds.len());
        let words =
            ["writers", "--endpoint", legacy, "--user", ROOT, "--writers", "4", "--rate", "10", "--duration", "5s"];
        rounds.push((prefix.clone(), w.probe(&[&words[..], &["--prefix", &prefix]].concat()).await?));
    }
    Ok(rounds)
}

/// A snapshot of the three members, by their names in the headless Service.
fn external(w: &World, name: &str) -> Value {
    let url = |n: usize| format!("http://legacy-etcd-{n}.legacy-etcd-headless.{}.svc:2379", w.ns);
    let mut snapshot = make::snapshot(name, "", json!({"storeRef": {"name": "vault"}}));
    snapshot["spec"]["external"] = json!({"endpoints": [url(0), url(1), url(2)]});
    if let Some(spec) = snapshot["spec"].as_object_mut() {
        spec.remove("clusterRef");
    }
    snapshot
}

async fn etcdctl(w: &World, words: &[&str]) -> Result<String> {
    w.exec("legacy-etcd-0", "etcd", &[&["etcdctl", "--command-timeout=60s"], words].concat()).await
}

/// The objects of the release, and its root user.
async fn furnish(w: &World) -> Result<()> {
    let labels = json!({"app.kubernetes.io/instance": "legacy", "app.kubernetes.io/name": "etcd"});
    let (name, password) = ROOT.split_once(':').context("a password")?;
    let ports = json!([{"name": "client", "port": 2379}, {"name": "peer", "port": 2380}]);
    let secret = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    let service = |name: &str, spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": spec});
    let objects = [
        secret("legacy-etcd", json!({"etcd-root-password": password})),
        // For the rehearsal: the Secret of the chart has one key, and another one.
        secret("legacy-login", json!({"username": name, "password": password})),
        service("legacy-etcd", json!({"selector": labels, "ports": ports})),
        service(
            "legacy-etcd-headless",
            json!({"clusterIP": "None", "publishNotReadyAddresses": true, "selector": labels, "ports": ports}),
        ),
        members(w, &labels),
    ];
    for object in objects {
        w.apply(&object.to_string()).await?;
    }
    let ready = |it: &Value| it["status"]["readyReplicas"] == 3;
    w.wait("StatefulSet", "legacy-etcd", "three members", ready).await?;
    for words in [
        &["user", "add", ROOT][..],
        &["role", "add", "root"],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcdctl(w, words).await?;
    }
    Ok(())
}

fn members(w: &World, labels: &Value) -> Value {
    let host = format!("legacy-etcd-headless.{}.svc.cluster.local", w.ns);
    let peer = |n: usize| format!("legacy-etcd-{n}=http://legacy-etcd-{n}.{host}:2380");
    let fixed = [
        ("ETCDCTL_API", "3".to_owned()),
        ("ETCD_NAME", "$(MY_POD_NAME)".to_owned()),
        ("ETCD_DATA_DIR", "/bitnami/etcd/data".to_owned()),
        ("ETCD_ADVERTISE_CLIENT_URLS", format!("http://$(MY_POD_NAME).{host}:2379")),
        ("ETCD_LISTEN_CLIENT_URLS", "http://0.0.0.0:2379".to_owned()),
        ("ETCD_INITIAL_ADVERTISE_PEER_URLS", format!("http://$(MY_POD_NAME).{host}:2380")),
        ("ETCD_LISTEN_PEER_URLS", "http://0.0.0.0:2380".to_owned()),
        ("ETCD_INITIAL_CLUSTER_TOKEN", "etcd-cluster-k8s".to_owned()),
        ("ETCD_INITIAL_CLUSTER_STATE", "new".to_owned()),
        ("ETCD_INITIAL_CLUSTER", [0, 1, 2].map(peer).join(",")),
    ];
    let mut env = vec![json!({"name": "MY_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})];
    env.extend(fixed.iter().map(|(name, value)| json!({"name": name, "value": value})));
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "legacy-etcd", "labels": labels},
        "spec": {
            "replicas": 3,
            "serviceName": "legacy-etcd-headless",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 5,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 1001, "runAsGroup": 1001, "fsGroup": 1001,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": "etcd",
                    "image": format!("gcr.io/etcd-development/etcd:v{ETCD_VERSION}"),
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["etcd"],
                    "env": env,
                    "ports": [{"name": "client", "containerPort": 2379}, {"name": "peer", "containerPort": 2380}],
                    "readinessProbe": {"httpGet": {"path": "/health", "port": "client"}, "periodSeconds": 2, "timeoutSeconds": 5},
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [{"name": "data", "mountPath": "/bitnami/etcd"}],
                }],
            }},
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
        },
    })
}
