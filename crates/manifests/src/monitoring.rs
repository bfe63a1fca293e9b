//! Ways to scrape the operator's metrics: a Service, and a `PodMonitor` for clusters with the Prometheus operator.
//!
//! The `PodMonitor` is printed only on request: without the Prometheus operator's definitions `kubectl apply` refuses it.

use serde_json::{Value, json};

use super::deployment::PORT;
use super::{NAME, Scope, labels, metadata};

/// Differs from the operator's plain name: an `EtcdCluster` with that name has a Service with that name.
const SERVICE: &str = "holdfast-metrics";

pub(super) fn service(scope: &Scope) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(SERVICE, Some(scope.home())),
        "spec": {
            "selector": labels(),
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP", "targetPort": "http"}],
        },
    })
}

/// The labels `namespace` and `name` belong to the user's object, so Prometheus must not replace the labels by those of its
/// target.
pub(super) fn pod_monitor(scope: &Scope) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(NAME, Some(scope.home())),
        "spec": {
            "selector": {"matchLabels": labels()},
            "podMetricsEndpoints": [{"port": "http", "path": "/metrics", "honorLabels": true}],
        },
    })
}
