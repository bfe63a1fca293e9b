//! Test objects: the YAML that a user would write, with the fewest possible fields.

use serde_json::{Value, json};

use super::env::ETCD_VERSION;

/// A cluster of `replicas` members with small volumes.
pub fn cluster(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "version": ETCD_VERSION,
            "storage": {"size": "1Gi"},
            "tls": {"insecure": true},
        }
    })
}

/// A cluster with certificates: its spec has no `tls`.
pub fn secured(name: &str, replicas: i32) -> Value {
    let mut cluster = cluster(name, replicas);
    if let Some(spec) = cluster["spec"].as_object_mut() {
        spec.remove("tls");
    }
    cluster
}

/// A cluster in plaintext that restores a snapshot.
pub fn restored(name: &str, replicas: i32, restore: Value) -> Value {
    let mut cluster = cluster(name, replicas);
    cluster["spec"]["bootstrap"] = json!({ "restore": restore });
    cluster
}

/// The bucket of the namespace's own S3 server.
pub fn s3() -> Value {
    json!({
        "bucket": "backups",
        "prefix": "house",
        "endpoint": "http://s3:7070",
        "credentialsSecretRef": {"name": "s3-credentials"},
    })
}

/// A store at a prefix of the bucket.
pub fn store(name: &str, prefix: &str) -> Value {
    let mut s3 = s3();
    s3["prefix"] = json!(prefix);
    let credentials = s3.as_object_mut().and_then(|s3| s3.remove("credentialsSecretRef"));
    let secret = credentials.map(|secret| secret["name"].clone());
    json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdBackupStore", "metadata": {"name": name},
        "spec": {"s3": s3, "credentials": {"write": secret}},
    })
}

/// A snapshot of `cluster` to `destination`.
pub fn snapshot(name: &str, cluster: &str, destination: Value) -> Value {
    json!({
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "EtcdSnapshot",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": cluster}, "destination": destination}
    })
}

/// A schedule that saves `cluster` to `destination`.
pub fn schedule(name: &str, cluster: &str, line: &str, destination: Value) -> Value {
    json!({
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "EtcdSnapshotSchedule",
        "metadata": {"name": name},
        "spec": {
            "clusterRef": {"name": cluster},
            "schedule": line,
            "spreadSeconds": 0,
            "snapshotTemplate": {"destination": destination},
        }
    })
}

/// A user of a cluster: how it logs in, and what it may do.
pub fn user(cluster: &str, name: &str, login: &Value, permissions: &Value) -> Value {
    let mut spec = json!({"clusterRef": {"name": cluster}, "permissions": permissions});
    if let (Some(spec), Some(login)) = (spec.as_object_mut(), login.as_object()) {
        spec.extend(login.clone());
    }
    json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdUser", "metadata": {"name": name}, "spec": spec})
}

/// A claim for backups or for reading files.
pub fn claim(name: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    })
}

/// A Pod that sleeps, with the probe in it and these claims mounted at `/mnt/<claim>`.
pub fn toolbox(name: &str, image: &str, claims: &[&str]) -> Value {
    let volumes: Vec<Value> =
        claims.iter().map(|c| json!({"name": c, "persistentVolumeClaim": {"claimName": c}})).collect();
    let mounts: Vec<Value> = claims.iter().map(|c| json!({"name": c, "mountPath": format!("/mnt/{c}")})).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"holdfast.dev/test": "toolbox"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "probe", "image": image, "imagePullPolicy": "IfNotPresent",
                "command": ["holdfast-probe", "sleep"],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
        }
    })
}
