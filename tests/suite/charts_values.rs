//! The effects of the charts' values: two tables, which `charts.rs` reads.

/// A value, and the part of the printed objects that the value decides.
pub struct Row {
    /// The value's keys, separated by dots.
    pub path: &'static str,
    /// Other values, without which this one does nothing; the comparison has them too.
    pub beside: &'static [&'static str],
    /// The value that is set, as JSON or as a word.
    pub value: &'static str,
    /// `KIND` or `KIND/NAME` of an object.
    pub object: &'static str,
    /// Place in the object.
    pub pointer: &'static str,
    /// JSON that is there with the value, and is not there without; `null`: nothing is there.
    pub expected: &'static str,
}

/// No definitions: most rows print faster.
const PLAIN: &[&str] = &["crds.enabled=false"];
const NAMED: &[&str] = &["crds.enabled=false", "serviceAccount.name=x"];
const POLICIES: &[&str] = &["crds.enabled=false", "networkPolicy.enabled=true", "watch.namespace=etcd"];
const MONITOR: &[&str] = &["crds.enabled=false", "monitoring.podMonitor.enabled=true"];
const RULE: &[&str] = &["crds.enabled=false", "monitoring.prometheusRule.enabled=true"];
const DASHBOARD: &[&str] = &["crds.enabled=false", "monitoring.grafanaDashboard.enabled=true"];

const fn row(
    path: &'static str,
    beside: &'static [&'static str],
    value: &'static str,
    object: &'static str,
    pointer: &'static str,
    expected: &'static str,
) -> Row {
    Row { path, beside, value, object, pointer, expected }
}

/// A row about the operator's Pod.
const fn pod(path: &'static str, value: &'static str, pointer: &'static str, expected: &'static str) -> Row {
    row(path, PLAIN, value, "Deployment", pointer, expected)
}

/// Digest of an image.
const DIGEST: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

/// Every value of the chart holdfast, each with one of its effects.
#[rustfmt::skip]
pub const OPERATOR: &[Row] = &[
    pod("image.repository", "r/h", "/spec/template/spec/containers/0/image", r#""r/h:0.1.0""#),
    pod("image.tag", "x", "/spec/template/spec/containers/0/env/0/value", r#""holdfast:x""#),
    pod("image.digest", DIGEST, "/spec/template/spec/containers/0/image",
        r#""holdfast@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a""#),
    pod("image.pullPolicy", "Always", "/spec/template/spec/containers/0/imagePullPolicy", r#""Always""#),
    pod("imagePullSecrets", r#"[{"name":"x"}]"#, "/spec/template/spec/imagePullSecrets", r#"[{"name":"x"}]"#),
    pod("replicaCount", "2", "/spec/strategy", r#"{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}"#),
    pod("nameOverride", "x", "/metadata/name", r#""holdfast-x""#),
    pod("fullnameOverride", "x", "/metadata/name", r#""x""#),
    pod("namespaceOverride", "x", "/metadata/namespace", r#""x""#),
    row("commonLabels", &[], r#"{"a":"b"}"#, "CustomResourceDefinition", "/metadata/labels/a", r#""b""#),
    row("commonAnnotations", &[], r#"{"a":"b"}"#, "CustomResourceDefinition", "/metadata/annotations",
        r#"{"a":"b","helm.sh/resource-policy":"keep"}"#),
    row("crds.enabled", &[], "false", "CustomResourceDefinition", "/kind", "null"),
    row("rbac.create", PLAIN, "false", "RoleBinding", "/kind", "null"),
    row("rbac.aggregateClusterRoles", PLAIN, "false", "ClusterRole/holdfast-edit", "/kind", "null"),
    row("serviceAccount.create", NAMED, "false", "ServiceAccount", "/kind", "null"),
    row("serviceAccount.name", PLAIN, "x", "ClusterRoleBinding", "/subjects", r#"[{"kind":"ServiceAccount","name":"x","namespace":"home"}]"#),
    row("serviceAccount.annotations", PLAIN, r#"{"a":"b"}"#, "ServiceAccount", "/metadata/annotations", r#"{"a":"b"}"#),
    row("watch.namespace", PLAIN, "x", "Role/holdfast", "/metadata/namespace", r#""x""#),
    pod("logLevel", "debug", "/spec/template/spec/containers/0/args/2", r#""--log-level=debug""#),
    pod("logFormat", "text", "/spec/template/spec/containers/0/args/1", r#""--log-format=text""#),
    pod("extraArgs", r#"["--cluster-domain=x"]"#, "/spec/template/spec/containers/0/args/5", r#""--cluster-domain=x""#),
    pod("extraEnv", r#"[{"name":"A","value":"1"}]"#, "/spec/template/spec/containers/0/env/2", r#"{"name":"A","value":"1"}"#),
    pod("agent.image", "a:1", "/spec/template/spec/containers/0/env/0", r#"{"name":"HOLDFAST_IMAGE","value":"a:1"}"#),
    pod("agent.proxy.https", "http://p:1", "/spec/template/spec/containers/0/env/2", r#"{"name":"HOLDFAST_AGENT_HTTPS_PROXY","value":"http://p:1"}"#),
    pod("agent.proxy.http", "http://p:1", "/spec/template/spec/containers/0/env/2", r#"{"name":"HOLDFAST_AGENT_HTTP_PROXY","value":"http://p:1"}"#),
    pod("agent.proxy.no", ".svc", "/spec/template/spec/containers/0/env/2", r#"{"name":"HOLDFAST_AGENT_NO_PROXY","value":".svc"}"#),
    pod("etcd.image.repository", "e", "/spec/template/spec/containers/0/env/2", r#"{"name":"HOLDFAST_ETCD_IMAGE_REPOSITORY","value":"e"}"#),
    pod("podRunAs", "Unset", "/spec/template/spec/securityContext", r#"{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}"#),
    pod("allowedNames", r#"["a.example.org","*.b.org"]"#, "/spec/template/spec/containers/0/env/2", r#"{"name":"HOLDFAST_ALLOWED_NAMES","value":"a.example.org,*.b.org"}"#),
    pod("resources", r#"{"limits":{"memory":"1Gi"}}"#, "/spec/template/spec/containers/0/resources/limits", r#"{"memory":"1Gi"}"#),
    pod("podSecurityContext", "null", "/spec/template/spec/securityContext", "null"),
    pod("containerSecurityContext", "null", "/spec/template/spec/containers/0/securityContext", "null"),
    pod("nodeSelector", r#"{"a":"b"}"#, "/spec/template/spec/nodeSelector", r#"{"a":"b"}"#),
    pod("tolerations", r#"[{"key":"a"}]"#, "/spec/template/spec/tolerations", r#"[{"key":"a"}]"#),
    pod("affinity", r#"{"nodeAffinity":{}}"#, "/spec/template/spec/affinity", r#"{"nodeAffinity":{}}"#),
    pod("topologySpreadConstraints", r#"[{"maxSkew":1}]"#, "/spec/template/spec/topologySpreadConstraints", r#"[{"maxSkew":1}]"#),
    pod("priorityClassName", "x", "/spec/template/spec/priorityClassName", r#""x""#),
    pod("podLabels", r#"{"a":"b"}"#, "/spec/template/metadata/labels/a", r#""b""#),
    pod("podAnnotations", r#"{"a":"b"}"#, "/spec/template/metadata/annotations", r#"{"a":"b"}"#),
    row("podDisruptionBudget.enabled", PLAIN, "true", "PodDisruptionBudget", "/spec/maxUnavailable", "1"),
    row("admissionPolicies.enabled", PLAIN, "false", "ValidatingAdmissionPolicy", "/kind", "null"),
    row("networkPolicy.enabled", PLAIN, "true", "NetworkPolicy/holdfast", "/metadata/namespace", r#""home""#),
    row("networkPolicy.clusterInstallNamespace", POLICIES, "x", "NetworkPolicy/holdfast-members",
        "/spec/ingress/0/from/1/namespaceSelector/matchLabels", r#"{"kubernetes.io/metadata.name":"x"}"#),
    row("networkPolicy.apiServer.ports", POLICIES, "[1]", "NetworkPolicy/holdfast-creators", "/spec/egress/1", r#"{"ports":[{"port":1,"protocol":"TCP"}]}"#),
    row("networkPolicy.apiServer.to", POLICIES, r#"[{"podSelector":{}}]"#, "NetworkPolicy/holdfast", "/spec/egress/1/to", r#"[{"podSelector":{}}]"#),
    row("networkPolicy.stores.ports", POLICIES, "[9000]", "NetworkPolicy/holdfast-members", "/spec/egress/2/ports", r#"[{"port":9000,"protocol":"TCP"}]"#),
    row("networkPolicy.stores.to", POLICIES, r#"[{"podSelector":{}}]"#, "NetworkPolicy/holdfast-agents", "/spec/egress/3",
        r#"{"to":[{"podSelector":{}}],"ports":[{"port":443,"protocol":"TCP"}]}"#),
    row("networkPolicy.etcd.ports", POLICIES, "[1]", "NetworkPolicy/holdfast-agents", "/spec/egress/2/ports",
        r#"[{"port":1,"protocol":"TCP"},{"port":443,"protocol":"TCP"}]"#),
    row("networkPolicy.etcd.to", POLICIES, r#"[{"podSelector":{}}]"#, "NetworkPolicy/holdfast-agents", "/spec/egress/2",
        r#"{"to":[{"podSelector":{}}],"ports":[{"port":2379,"protocol":"TCP"}]}"#),
    row("monitoring.podMonitor.enabled", PLAIN, "true", "PodMonitor", "/spec/podMetricsEndpoints/0/port", r#""http""#),
    row("monitoring.podMonitor.labels", MONITOR, r#"{"a":"b"}"#, "PodMonitor", "/metadata/labels/a", r#""b""#),
    row("monitoring.podMonitor.annotations", MONITOR, r#"{"a":"b"}"#, "PodMonitor", "/metadata/annotations", r#"{"a":"b"}"#),
    row("monitoring.prometheusRule.enabled", PLAIN, "true", "PrometheusRule", "/spec/groups/0/name", r#""holdfast-backups""#),
    row("monitoring.prometheusRule.labels", RULE, r#"{"a":"b"}"#, "PrometheusRule", "/metadata/labels/a", r#""b""#),
    row("monitoring.prometheusRule.annotations", RULE, r#"{"a":"b"}"#, "PrometheusRule", "/metadata/annotations", r#"{"a":"b"}"#),
    row("monitoring.grafanaDashboard.enabled", PLAIN, "true", "ConfigMap", "/metadata/labels/grafana_dashboard", r#""1""#),
    row("monitoring.grafanaDashboard.labels", DASHBOARD, r#"{"a":"b"}"#, "ConfigMap", "/metadata/labels/a", r#""b""#),
    row("monitoring.grafanaDashboard.annotations", DASHBOARD, r#"{"a":"b"}"#, "ConfigMap", "/metadata/annotations", r#"{"a":"b"}"#),
    row("extraObjects", PLAIN, r#"[{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"{{ .Release.Name }}-x"}}]"#, "ConfigMap", "/metadata/name", r#""holdfast-x""#),
];

const STORE: &[&str] = &["store.create=true", "store.spec.s3.bucket=abc"];
const SCHEDULES: &str = r#"[{"name":"a","schedule":"@daily"}]"#;

/// The same of the chart holdfast-cluster. Without its value a row may be refused.
#[rustfmt::skip]
pub const CLUSTER: &[Row] = &[
    row("nameOverride", &[], "x", "EtcdCluster", "/metadata/name", r#""x""#),
    row("commonLabels", &[], r#"{"a":"b"}"#, "EtcdCluster", "/metadata/labels/a", r#""b""#),
    row("commonAnnotations", &[], r#"{"a":"b"}"#, "EtcdCluster", "/metadata/annotations", r#"{"a":"b","helm.sh/resource-policy":"keep"}"#),
    row("keep", &[], "false", "EtcdCluster", "/metadata/annotations", "null"),
    row("mode", &["restore.snapshotRef.name=a"], "restore", "EtcdCluster", "/spec/bootstrap", r#"{"restore":{"snapshotRef":{"name":"a"}}}"#),
    row("restore", &["mode=restore"], r#"{"snapshotRef":{"name":"a"}}"#, "EtcdCluster", "/spec/bootstrap", r#"{"restore":{"snapshotRef":{"name":"a"}}}"#),
    row("cluster", &[], r#"{"replicas":5}"#, "EtcdCluster", "/spec", r#"{"replicas":5,"version":"3.6.16","storage":{"retention":"Retain","size":"8Gi"}}"#),
    row("store.create", &["store.spec.s3.bucket=abc"], "true", "EtcdBackupStore", "/metadata/name", r#""holdfast""#),
    row("store.name", STORE, "x", "EtcdBackupStore", "/metadata/name", r#""x""#),
    row("store.spec", &["store.create=true"], r#"{"pvc":{"claimName":"x"}}"#, "EtcdBackupStore", "/spec", r#"{"pvc":{"claimName":"x"}}"#),
    row("schedules", STORE, SCHEDULES, "EtcdSnapshotSchedule/holdfast-a", "/spec",
        r#"{"clusterRef":{"name":"holdfast"},"schedule":"@daily","snapshotTemplate":{"destination":{"storeRef":{"name":"holdfast"}}}}"#),
    row("test.image", &[], "x:1", "Pod", "/spec/containers/0/image", r#""x:1""#),
    row("test.secretName", &[], "x", "Pod", "/spec/volumes/0/secret/secretName", r#""x""#),
    row("test.key", &[], "x", "Pod", "/spec/containers/0/command/6", r#""x""#),
];
