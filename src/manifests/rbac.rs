//! Rights: what the operator may do, and what people may do with our kinds.
//!
//! Decides every verb, each with its use. Not asked for, on purpose: lists of Secrets, exec, logs, nodes, and anything
//! that could hand out more rights.

use serde_json::{Value, json};

use super::{NAME, NAMESPACE, Scope, metadata};
use crate::api::GROUP;

struct Rule {
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

/// What the operator does, and so may do, in every namespace it works in. `get`, `list` and `watch` are its caches and
/// the live read before an act.
const OPERATOR: &[Rule] = &[
    // People's wishes: read only.
    Rule { group: GROUP, resources: &["etcdbackupstores", "etcdsnapshotschedules"], verbs: &["get", "list", "watch"] },
    // Patched: the finalizer alone.
    Rule { group: GROUP, resources: &["etcdclusters"], verbs: &["get", "list", "watch", "patch"] },
    // Made as records of a schedule's runs, and deleted where nothing is stored of them. Patched: the finalizer alone.
    Rule { group: GROUP, resources: &["etcdsnapshots"], verbs: &["get", "list", "watch", "create", "patch", "delete"] },
    // Ours alone: made, latched, released, deleted.
    Rule { group: GROUP, resources: &["etcdmembers"], verbs: &["get", "list", "watch", "create", "patch", "delete"] },
    Rule {
        group: GROUP,
        resources: &[
            "etcdbackupstores/status",
            "etcdmembers/status",
            "etcdsnapshots/status",
            "etcdsnapshotschedules/status",
        ],
        verbs: &["update"],
    },
    // Patched where the cluster cannot be read.
    Rule { group: GROUP, resources: &["etcdclusters/status"], verbs: &["update", "patch"] },
    // Owner references that block the owner's deletion, where the API server asks for this.
    Rule {
        group: GROUP,
        resources: &[
            "etcdbackupstores/finalizers",
            "etcdclusters/finalizers",
            "etcdmembers/finalizers",
            "etcdsnapshots/finalizers",
            "etcdsnapshotschedules/finalizers",
        ],
        verbs: &["update"],
    },
    // Patched: the voter's label, the leave to start on an empty volume.
    Rule { group: "", resources: &["pods"], verbs: &["get", "list", "watch", "create", "patch", "delete"] },
    Rule { group: "", resources: &["persistentvolumeclaims"], verbs: &["get", "list", "watch", "create", "delete"] },
    // Applied; what is applied goes with its cluster, by the owner reference.
    Rule { group: "", resources: &["services"], verbs: &["get", "list", "watch", "create", "patch"] },
    // Of the client Services: whether clients reach a member.
    Rule { group: "discovery.k8s.io", resources: &["endpointslices"], verbs: &["get", "list", "watch"] },
    // Deleted where one voter is left: the budget would block every drain.
    Rule {
        group: "policy",
        resources: &["poddisruptionbudgets"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    // Made once for each snapshot and each probe; they go with it. Deleted where a sidecar keeps the Pod of a recorded run alive.
    Rule { group: "batch", resources: &["jobs"], verbs: &["get", "list", "watch", "create", "delete"] },
    // Applied; they go with their schedules.
    Rule { group: "batch", resources: &["cronjobs"], verbs: &["get", "list", "watch", "create", "patch"] },
    // Secrets of certificates are read and written by name; of those that a store names only the version is read, so that a
    // corrected one is probed at once. The admission policy narrows writes to the Secrets of the operator's own type.
    Rule { group: "", resources: &["secrets"], verbs: &["get", "create", "patch"] },
    // One for each member and plane, where cert-manager issues.
    Rule { group: "cert-manager.io", resources: &["certificates"], verbs: &["get", "create", "patch"] },
    // The certificate of a cluster's CA.
    Rule { group: "", resources: &["configmaps"], verbs: &["get", "create", "patch"] },
    Rule { group: "events.k8s.io", resources: &["events"], verbs: &["create", "patch"] },
];

/// Leader election, in the operator's own namespace. `create` cannot be narrowed to a name.
fn lease_rules() -> Vec<Value> {
    let group = json!(["coordination.k8s.io"]);
    vec![
        json!({"apiGroups": group, "resources": ["leases"], "verbs": ["create"]}),
        json!({"apiGroups": group, "resources": ["leases"], "resourceNames": [NAME], "verbs": ["get", "update"]}),
    ]
}

/// Whether another install works in a namespace: its Lease says it.
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
        // The operator's Pod asks for its token itself; nothing else gets one.
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

/// A Role, which holds in its namespace alone (I23), or a `ClusterRole` where no namespace is given.
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

/// What people get through Kubernetes' own `view` and `edit` (and so `admin`) roles, in whichever namespace they have them.
/// Members are the operator's: to look at, not to touch.
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
            "resources": ["etcdbackupstores", "etcdclusters", "etcdsnapshots", "etcdsnapshotschedules"],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {"apiGroups": [GROUP], "resources": ["etcdclusters/scale"], "verbs": ["get", "update", "patch"]},
    ]);
    let view = json!([
        {"apiGroups": [GROUP], "resources": ["etcdbackupstores", "etcdclusters", "etcdmembers", "etcdsnapshots", "etcdsnapshotschedules"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [GROUP], "resources": ["etcdclusters/scale"], "verbs": ["get"]},
    ]);
    [role("holdfast-edit", "edit", edit), role("holdfast-view", "view", view)]
}
