//! The operator's Deployment.
//!
//! Decides how the operator runs. One replica, and Kubernetes stops the old Pod before the new Pod starts: two Pods that wait
//! for a single lease gain nothing, and clusters serve without an operator.

use holdfast_api::pod_security::RunAs;
use holdfast_base::objects::USER;
use serde_json::{Value, json};

use super::{NAME, Options, Scope, labels, metadata};

/// Port of `/healthz`, `/readyz` and `/metrics`.
pub(super) const PORT: u16 = 8080;

/// Enough to finish an act and release the lease.
const GRACE_SECONDS: u32 = 15;

/// Memory for a fleet of the size in docs/operations.md, and for the largest load that a single tenant can create.
const MEMORY: &str = "512Mi";

pub(super) fn object(options: &Options) -> Value {
    let home = options.scope.home();
    let mut args = vec![
        "operator".to_owned(),
        "--log-format=json".to_owned(),
        format!("--leader-election-namespace={home}"),
        format!("--leader-election-name={NAME}"),
        format!("--listen=0.0.0.0:{PORT}"),
    ];
    if let Scope::Namespace(name) = &options.scope {
        args.push(format!("--watch-namespace={name}"));
    }
    let mut security = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    match options.pod_run_as {
        RunAs::Fixed => {
            security["runAsUser"] = json!(USER);
            security["runAsGroup"] = json!(USER);
        }
        RunAs::Unset => args.push("--pod-run-as=unset".to_owned()),
    }
    let probe = |path: &str, seconds: u32| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": seconds, "timeoutSeconds": 3});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, Some(home)),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": labels()},
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {"labels": labels()},
                "spec": {
                    "serviceAccountName": NAME,
                    "automountServiceAccountToken": true,
                    "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    "securityContext": security,
                    "containers": [{
                        "name": "operator",
                        "image": options.image,
                        "imagePullPolicy": "IfNotPresent",
                        "args": args,
                        "env": [
                            {"name": "HOLDFAST_IMAGE", "value": options.image},
                            {"name": "HOLDFAST_IDENTITY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        ],
                        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
                        "livenessProbe": probe("/healthz", 10),
                        "readinessProbe": probe("/readyz", 2),
                        "resources": {
                            "requests": {"cpu": "50m", "memory": "64Mi"},
                            "limits": {"memory": MEMORY},
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": true,
                            "runAsNonRoot": true,
                        },
                    }],
                },
            },
        },
    })
}
