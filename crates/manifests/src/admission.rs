//! Requests that the API server refuses before the operator sees them.
//!
//! Decides who may delete an `EtcdMember`, how an `EtcdCluster` with `spec.finalSnapshot` may be deleted, and which Secrets the operator may write. An `EtcdMember` is the operator's record
//! of one etcd member: deleting the record removes no member, and the object stays `Terminating` while etcd lists the member.
//! RBAC cannot restrict cluster administrators, and cannot restrict writes of Secrets to a type.

use holdfast_api::tls::SECRET_TYPE;
use holdfast_api::{GROUP, key};
use serde_json::{Value, json};

use super::{NAME, labels};

/// Name of the policy about members and of its binding.
const MEMBERS: &str = "holdfast-members";

/// Name of the policy about Secrets and of its binding.
const SECRETS: &str = "holdfast-secrets";

/// Name of the policy about the deletion of clusters and of its binding.
const CLUSTERS: &str = "holdfast-clusters";

/// Names of all policies.
pub(super) const NAMES: [&str; 3] = [CLUSTERS, MEMBERS, SECRETS];

/// The Kubernetes controllers that delete the objects of a deleted owner or namespace.
const DELETERS: [&str; 3] = [
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    // A controller manager without a ServiceAccount for each controller.
    "system:kube-controller-manager",
];

/// Returns each policy, and the binding that enables the policy.
pub(super) fn objects() -> [Value; 6] {
    let [clusters, clusters_binding] = clusters();
    let [members, members_binding] = members();
    let [secrets, secrets_binding] = secrets();
    [clusters, clusters_binding, members, members_binding, secrets, secrets_binding]
}

/// Refuses the foreground deletion of a cluster that shall be saved first: Kubernetes' garbage collector would delete its Pods and
/// Secrets before the operator can save.
fn clusters() -> [Value; 2] {
    let skipped = annotated(key::SKIP_FINAL_SNAPSHOT);
    let foreground = "has(request.options.propagationPolicy) && request.options.propagationPolicy == 'Foreground'";
    let message = format!(
        "spec.finalSnapshot is set, and a foreground deletion deletes the Pods and the Secrets before the last snapshot. Delete with \
         --cascade=background, or annotate the EtcdCluster with {}=true first",
        key::SKIP_FINAL_SNAPSHOT
    );
    let permitted = format!("!({foreground}) || !has(oldObject.spec.finalSnapshot) || ({skipped})");
    of_deletions(CLUSTERS, "etcdclusters", &permitted, &message)
}

/// Restricts the operator to Secrets of its own type, owned by its own kinds. A Secret's type is immutable.
fn secrets() -> [Value; 2] {
    let condition = format!("request.userInfo.username.matches('^system:serviceaccount:[^:]+:{NAME}$')");
    let owned = format!(
        "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.apiVersion.startsWith('{GROUP}/'))"
    );
    let rules = json!([{
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["secrets"],
    }]);
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": SECRETS, "labels": labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "operator", "expression": condition}],
            "validations": [{
                "expression": format!("has(object.type) && object.type == '{SECRET_TYPE}' && {owned}"),
                "message": format!("the operator may only write Secrets of type {SECRET_TYPE} that belong to its own objects"),
                "reason": "Forbidden",
            }],
        },
    });
    [policy, binding(SECRETS)]
}

fn binding(policy: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": policy, "labels": labels()},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    })
}

fn members() -> [Value; 2] {
    let users: Vec<String> = DELETERS.iter().map(|user| format!("'{user}'")).collect();
    let operator = format!("request.userInfo.username.matches('^system:serviceaccount:[^:]+:{NAME}$')");
    let controller = format!("request.userInfo.username in [{}]", users.join(", "));
    let released = annotated(key::ALLOW_DELETION);
    let message = format!(
        "an EtcdMember is the operator's record of an etcd member, and deleting the record does not shrink the cluster. To \
         delete the cluster, delete its EtcdCluster. If the EtcdCluster is gone already (runbook ClusterGone), annotate the \
         EtcdMember with {}=true first",
        key::ALLOW_DELETION
    );
    of_deletions(MEMBERS, "etcdmembers", &format!("{operator} || {controller} || ({released})"), &message)
}

/// CEL: whether a person set this annotation to `true` before the deletion.
fn annotated(key: &str) -> String {
    format!(
        "has(oldObject.metadata.annotations) && '{key}' in oldObject.metadata.annotations && \
         oldObject.metadata.annotations['{key}'] == 'true'"
    )
}

/// Returns a policy, with its binding, that refuses every deletion but the permitted ones (CEL).
fn of_deletions(name: &str, resource: &str, permitted: &str, message: &str) -> [Value; 2] {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [GROUP],
                "apiVersions": ["*"],
                "operations": ["DELETE"],
                "resources": [resource],
            }]},
            "validations": [{"expression": permitted, "message": message, "reason": "Forbidden"}],
        },
    });
    [policy, binding(name)]
}
