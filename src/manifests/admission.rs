//! Which requests the API server refuses before the operator sees them.
//!
//! Decides who may delete an `EtcdMember`. The object is the operator's record of one etcd member: deleting it shrinks
//! nothing, the object stays `Terminating` while etcd lists the member. RBAC cannot say this to cluster administrators.

use serde_json::{Value, json};

use super::{NAME, labels};
use crate::api::{GROUP, key};

/// Name of the policy and of its binding.
const MEMBERS: &str = "holdfast-members";

/// The Kubernetes controllers that delete the objects of an owner or a namespace that is gone.
const DELETERS: [&str; 3] = [
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    // A controller manager without a ServiceAccount for each controller.
    "system:kube-controller-manager",
];

/// The policy, and the binding that turns it on.
pub(super) fn objects() -> [Value; 2] {
    let users: Vec<String> = DELETERS.iter().map(|user| format!("'{user}'")).collect();
    let operator = format!("request.userInfo.username.matches('^system:serviceaccount:[^:]+:{NAME}$')");
    let controller = format!("request.userInfo.username in [{}]", users.join(", "));
    let released = format!(
        "has(oldObject.metadata.annotations) && '{key}' in oldObject.metadata.annotations && \
         oldObject.metadata.annotations['{key}'] == 'true'",
        key = key::ALLOW_DELETION
    );
    let message = format!(
        "an EtcdMember is the operator's record of an etcd member, and deleting the record does not shrink the cluster. To \
         delete the cluster, delete its EtcdCluster. If the EtcdCluster is gone already (runbook ClusterGone), annotate the \
         EtcdMember with {}=true first",
        key::ALLOW_DELETION
    );
    let metadata = json!({"name": MEMBERS, "labels": labels()});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [GROUP],
                "apiVersions": ["*"],
                "operations": ["DELETE"],
                "resources": ["etcdmembers"],
            }]},
            "validations": [{
                "expression": format!("{operator} || {controller} || ({released})"),
                "message": message,
                "reason": "Forbidden",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": MEMBERS, "validationActions": ["Deny"]},
    });
    [policy, binding]
}
