//! Rights of the operator, and rights of people on Holdfast's kinds.
//!
//! Decides every verb, each with its use. Deliberately absent: lists of Secrets, exec, logs, nodes, and every right that could
//! grant further rights.

use holdfast_api::GROUP;
use serde_json::{Value, json};

use super::{NAME, NAMESPACE, Scope, metadata};

struct Rule {
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

/// Rights of the operator in every namespace of its scope. `get`, `list` and `watch` serve its caches and the live read before
/// an act.
const OPERATOR: &[Rule] = &[
    // Specs of people: read only.
    Rule {
        group: GROUP,
        resources: &["etcdbackupstores", "etcdrestores", "etcdsnapshotschedules"],
        verbs: &["get", "list", "watch"],
    },
    // `patch` only for the finalizer.
    Rule { group: GROUP, resources: &["etcdclusters"], verbs: &["get", "list", "watch", "patch"] },
    // `patch` for the finalizer and for the claim of a user.
    Rule { group: GROUP, resources: &["etcdusers"], verbs: &["get", "list", "watch", "patch"] },
    // The operator creates records of a schedule's runs, and deletes a record whose snapshot is gone. `patch` only for the
    // finalizer.
    Rule { group: GROUP, resources: &["etcdsnapshots"], verbs: &["get", "list", "watch", "create", "patch", "delete"] },
    // The operator's own objects: created, latched, released, deleted.
    Rule { group: GROUP, resources: &["etcdmembers"], verbs: &["get", "list", "watch", "create", "patch", "delete"] },
    Rule {
        group: GROUP,
        resources: &[
            "etcdbackupstores/status",
            "etcdmembers/status",
            "etcdrestores/status",
            "etcdsnapshots/status",
            "etcdsnapshotschedules/status",
            "etcdusers/status",
        ],
        verbs: &["update"],
    },
    // `patch` if the cluster is unreadable.
    Rule { group: GROUP, resources: &["etcdclusters/status"], verbs: &["update", "patch"] },
    // Owner references that block the owner's deletion, if the API server checks this right.
    Rule {
        group: GROUP,
        resources: &[
            "etcdbackupstores/finalizers",
            "etcdclusters/finalizers",
            "etcdmembers/finalizers",
            "etcdrestores/finalizers",
            "etcdsnapshots/finalizers",
            "etcdsnapshotschedules/finalizers",
            "etcdusers/finalizers",
        ],
        verbs: &["update"],
    },
    // `patch` for the voter's label and the permission to start on an empty volume.
    Rule { group: "", resources: &["pods"], verbs: &["get", "list", "watch", "create", "patch", "delete"] },
    // Rolling changes: the API server asks the disruption budget.
    Rule { group: "", resources: &["pods/eviction"], verbs: &["create"] },
    // Changed resources of running Pods (Kubernetes 1.33).
    Rule { group: "", resources: &["pods/resize"], verbs: &["patch"] },
    // `patch` for a larger request after `spec.storage.size` has grown.
    Rule {
        group: "",
        resources: &["persistentvolumeclaims"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    // Applied; the garbage collector deletes the Services with their cluster, by the owner reference.
    Rule { group: "", resources: &["services"], verbs: &["get", "list", "watch", "create", "patch"] },
    // For the client Services: whether clients reach a member.
    Rule { group: "discovery.k8s.io", resources: &["endpointslices"], verbs: &["get", "list", "watch"] },
    // Deleted when one voter is left: the budget would block every drain.
    Rule {
        group: "policy",
        resources: &["poddisruptionbudgets"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    // One for each snapshot and each probe, deleted with its owner. `delete` if a sidecar keeps the Pod of a recorded run
    // alive.
    Rule { group: "batch", resources: &["jobs"], verbs: &["get", "list", "watch", "create", "delete"] },
    // Applied; deleted with their schedules.
    Rule { group: "batch", resources: &["cronjobs"], verbs: &["get", "list", "watch", "create", "patch"] },
    // Applied; deleted where a schedule asks for no log any more.
    Rule { group: "apps", resources: &["deployments"], verbs: &["get", "list", "watch", "create", "patch", "delete"] },
    // The operator reads and writes Secrets of certificates by name; from a store's Secret the operator reads only the version,
    // so that a corrected Secret causes a probe at once. The admission policy restricts writes to Secrets of the operator's own
    // type.
    Rule { group: "", resources: &["secrets"], verbs: &["get", "create", "patch"] },
    // One for each member and plane, if cert-manager issues the certificates.
    Rule { group: "cert-manager.io", resources: &["certificates"], verbs: &["get", "create", "patch"] },
    // cert-manager does not issue certificates again after its issuer's CA has changed.
    Rule { group: "cert-manager.io", resources: &["certificates/status"], verbs: &["update"] },
    // For the certificate of a cluster's CA.
    Rule { group: "", resources: &["configmaps"], verbs: &["get", "create", "patch"] },
    Rule { group: "events.k8s.io", resources: &["events"], verbs: &["create", "patch"] },
];

/// Rights for leader election, in the operator's own namespace. RBAC cannot restrict `create` to a name.
fn lease_rules() -> Vec<Value> {
    let group = json!(["coordination.k8s.io"]);
    vec![
        json!({"apiGroups": group, "resources": ["leases"], "verbs": ["create"]}),
        json!({"apiGroups": group, "resources": ["leases"], "resourceNames": [NAME], "verbs": ["get", "update"]}),
    ]
}

/// Right to read the Lease of another install in a namespace.
fn other_leases() -> Value {
    json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [NAME], "verbs": ["get"]})
}

fn operator_rules() -> Vec<Value> {
    OPERATOR
        .iter()
        .map(|Rule { group, resources, verbs }| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
        .collect()
}

pub(super) fn objects(scope: &Scope) -> Vec<Value> {
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(NAME, Some(scope.home())),
        // The operator's Pod mounts its token itself; no other Pod gets a token.
        "automountServiceAccountToken": false,
    });
    match scope {
        Scope::Cluster => {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": NAMESPACE,
                "labels": {"app.kubernetes.io/name": NAME, "pod-security.kubernetes.io/enforce": "restricted"},
            }});
            let mut all = vec![namespace, account];
            let rules = [operator_rules(), vec![other_leases()]].concat();
            all.extend([role(None, &rules), binding(None, NAMESPACE)]);
            all.extend([role(Some(NAMESPACE), &lease_rules()), binding(Some(NAMESPACE), NAMESPACE)]);
            all.extend(people());
            all
        }
        Scope::Namespace(name) => {
            let rules = [operator_rules(), lease_rules()].concat();
            vec![account, role(Some(name), &rules), binding(Some(name), name)]
        }
    }
}

/// Returns a Role, which holds only in its namespace (I23), or without a namespace a `ClusterRole`.
fn role(namespace: Option<&str>, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if namespace.is_some() { "Role" } else { "ClusterRole" },
        "metadata": metadata(NAME, namespace),
        "rules": rules,
    })
}

fn binding(namespace: Option<&str>, account_namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" },
        "metadata": metadata(NAME, namespace),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": if namespace.is_some() { "Role" } else { "ClusterRole" },
            "name": NAME,
        },
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": account_namespace}],
    })
}

/// Rights of people through Kubernetes' own `view` and `edit` (and thus `admin`) roles, in the namespaces of those roles.
/// Members belong to the operator: people may only read them.
pub(super) fn people() -> [Value; 2] {
    let role = |name: &str, into: &str, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": {
                "app.kubernetes.io/name": NAME,
                (format!("rbac.authorization.k8s.io/aggregate-to-{into}")): "true",
            }},
            "rules": rules,
        })
    };
    let edit = json!([
        {
            "apiGroups": [GROUP],
            "resources": ["etcdbackupstores", "etcdclusters", "etcdrestores", "etcdsnapshots", "etcdsnapshotschedules", "etcdusers"],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {"apiGroups": [GROUP], "resources": ["etcdclusters/scale"], "verbs": ["get", "update", "patch"]},
    ]);
    let view = json!([
        {"apiGroups": [GROUP], "resources": ["etcdbackupstores", "etcdclusters", "etcdmembers", "etcdrestores", "etcdsnapshots", "etcdsnapshotschedules", "etcdusers"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [GROUP], "resources": ["etcdclusters/scale"], "verbs": ["get"]},
    ]);
    [role("holdfast-edit", "edit", edit), role("holdfast-view", "view", view)]
}
