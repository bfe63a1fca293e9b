//! The manifests are well formed, grant few rights, and contain valid command lines.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, PodSpec, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

fn options(scope: Scope) -> Options {
    Options { image: "r/holdfast:1".to_owned(), scope, pod_run_as: RunAs::Fixed, only: None }
}

fn namespaced() -> Options {
    options(Scope::Namespace("etcd".to_owned()))
}

fn kinds(options: &Options) -> Vec<String> {
    objects(options).unwrap().iter().map(|o| o["kind"].as_str().unwrap().to_owned()).collect()
}

/// A misspelt field would be lost on the way through the typed object.
fn same<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(&serde_json::to_value(typed).unwrap(), object);
}

#[test]
fn every_field_is_one_that_kubernetes_knows() {
    for options in [options(Scope::Cluster), namespaced()] {
        for object in objects(&options).unwrap() {
            match object["kind"].as_str().unwrap() {
                "Namespace" => same::<Namespace>(&object),
                "ServiceAccount" => same::<ServiceAccount>(&object),
                "Role" => same::<Role>(&object),
                "RoleBinding" => same::<RoleBinding>(&object),
                "ClusterRole" => same::<ClusterRole>(&object),
                "ClusterRoleBinding" => same::<ClusterRoleBinding>(&object),
                "Deployment" => same::<Deployment>(&object),
                "ValidatingAdmissionPolicy" => same::<ValidatingAdmissionPolicy>(&object),
                "ValidatingAdmissionPolicyBinding" => same::<ValidatingAdmissionPolicyBinding>(&object),
                "Service" => same::<Service>(&object),
                "CustomResourceDefinition" => {}
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_namespaced_install_stays_in_its_namespace() {
    assert_eq!(kinds(&namespaced()), ["ServiceAccount", "Role", "RoleBinding", "Service", "Deployment"]);
    for object in objects(&namespaced()).unwrap() {
        assert_eq!(object["metadata"]["namespace"], "etcd", "{object}");
    }
}

/// The operator's Pod has no identity for a cloud or a store: the operator connects to no store, and a user who names a bucket
/// uses the identity of a service account of the user's namespace.
#[test]
fn the_operator_has_no_identity_outside_of_kubernetes() {
    for options in [options(Scope::Cluster), namespaced()] {
        let all = objects(&options).unwrap();
        let of = |kind: &str| all.iter().find(|o| o["kind"] == kind).unwrap();
        // A cloud's webhook would look here for a role.
        assert_eq!(of("ServiceAccount")["metadata"].get("annotations"), None);
        let template = &of("Deployment")["spec"]["template"];
        assert_eq!(template["metadata"].get("annotations"), None);
        let spec: PodSpec = serde_json::from_value(template["spec"].clone()).unwrap();
        assert_eq!((spec.volumes, spec.init_containers, spec.containers.len()), (None, None, 1));
        let operator = &spec.containers[0];
        assert_eq!((&operator.volume_mounts, &operator.env_from), (&None, &None));
        let names: Vec<_> = operator.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
        assert_eq!(names, ["HOLDFAST_IMAGE", "HOLDFAST_IDENTITY"]);
    }
}

#[test]
fn the_whole_cluster_gets_definitions_first() {
    let all = kinds(&options(Scope::Cluster));
    assert_eq!(all[..7], ["CustomResourceDefinition"; 7]);
    assert_eq!(all[7..9], ["Namespace", "ServiceAccount"]);
    assert_eq!(all.last().unwrap(), "Deployment");
    let one = |part| kinds(&Options { only: Some(part), ..namespaced() });
    let policy = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    assert_eq!(
        one(Part::Crds),
        [["CustomResourceDefinition"; 7].as_slice(), &["ClusterRole"; 2], &policy, &policy, &policy].concat()
    );
    assert_eq!(one(Part::Rbac), ["ServiceAccount", "Role", "RoleBinding"]);
    assert_eq!(one(Part::Deployment), ["Service", "Deployment"]);
    assert_eq!(one(Part::NetworkPolicies), ["NetworkPolicy"; 5]);
    assert_eq!(one(Part::PodMonitor), ["PodMonitor"]);
}

/// Otherwise Prometheus finds no target, without an error.
#[test]
fn the_metrics_are_found_by_label_and_port() {
    let deployment = deployment::object(&namespaced());
    let template = &deployment["spec"]["template"];
    let port = &template["spec"]["containers"][0]["ports"][0];
    let service = monitoring::service(&namespaced().scope);
    assert_eq!(service["spec"]["selector"], template["metadata"]["labels"]);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    let monitor = monitoring::pod_monitor(&namespaced().scope);
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], port["name"]);
    for object in [service, monitor] {
        assert_eq!(object["metadata"]["namespace"], "etcd", "{object}");
    }
}

/// A user with `view` or `edit` in a namespace may use Holdfast's kinds there, for each kind of install.
#[test]
fn people_get_their_rights_once_with_every_install() {
    let people = |options: &Options| -> Vec<String> {
        let roles = objects(options).unwrap().into_iter().filter(|o| o["kind"] == "ClusterRole");
        roles.map(|o| o["metadata"]["name"].as_str().unwrap().to_owned()).filter(|name| name != NAME).collect()
    };
    let only = |part, scope| Options { only: Some(part), ..options(scope) };
    let both = ["holdfast-edit", "holdfast-view"];
    assert_eq!(people(&options(Scope::Cluster)), both);
    assert_eq!(people(&only(Part::Rbac, Scope::Cluster)), both);
    assert_eq!(people(&only(Part::Crds, Scope::Cluster)), both);
    assert_eq!(people(&namespaced()), [] as [String; 0], "they stand above namespaces");
}

fn rules(options: &Options) -> Vec<PolicyRule> {
    objects(options)
        .unwrap()
        .into_iter()
        .filter(|o| matches!(o["kind"].as_str(), Some("Role" | "ClusterRole")))
        .flat_map(|o| serde_json::from_value::<Vec<PolicyRule>>(o["rules"].clone()).unwrap())
        .collect()
}

#[test]
fn rights_are_few() {
    let forbidden = ["pods/exec", "pods/log", "pods/attach", "pods/portforward", "nodes", "serviceaccounts"];
    for options in [options(Scope::Cluster), namespaced()] {
        for rule in rules(&options) {
            let resources = rule.resources.unwrap();
            for resource in &resources {
                assert!(!forbidden.contains(&resource.as_str()), "{resource}");
                assert!(!resource.contains('*'), "{resource}");
            }
            // By name, one at a time: never a list, which would contain the data of all objects, and never a deletion.
            if resources.iter().any(|r| r == "secrets" || r == "configmaps") {
                assert_eq!((resources.len(), rule.verbs.join(" ").as_str()), (1, "get create patch"));
            }
            let groups = rule.api_groups.unwrap();
            assert!(groups.iter().all(|g| g != "*" && g != "rbac.authorization.k8s.io"), "{groups:?}");
            for verb in &rule.verbs {
                assert!(!["*", "escalate", "bind", "impersonate"].contains(&verb.as_str()), "{verb}");
            }
        }
    }
}

/// I4, I12: no right of the operator deletes by selector or writes the specs of people.
#[test]
fn the_operator_deletes_one_by_one_and_only_what_it_makes() {
    for rule in rules(&namespaced()) {
        let resources = rule.resources.unwrap();
        assert!(!rule.verbs.contains(&"deletecollection".to_owned()), "{resources:?}");
        if rule.verbs.contains(&"delete".to_owned()) {
            // Records of failed runs, beyond the limit. The Deployment of a log that a schedule asks for no more.
            let allowed = [
                "deployments",
                "etcdmembers",
                "etcdsnapshots",
                "jobs",
                "pods",
                "persistentvolumeclaims",
                "poddisruptionbudgets",
            ];
            assert!(resources.iter().all(|r| allowed.contains(&r.as_str())), "{resources:?}");
        }
        for wish in ["etcdbackupstores", "etcdclusters", "etcdsnapshotschedules"] {
            if resources.contains(&wish.to_owned()) {
                // `patch` only for the finalizer.
                let verbs: Vec<_> = rule.verbs.iter().filter(|v| wish != "etcdclusters" || *v != "patch").collect();
                assert_eq!(verbs, ["get", "list", "watch"], "{wish}");
            }
        }
    }
}

#[test]
fn the_deployment_is_restricted_and_never_runs_twice() {
    let deployment = deployment::object(&namespaced());
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(spec["strategy"]["type"], "Recreate");
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
}

#[test]
fn yaml_reads_back_as_what_was_written() {
    for object in objects(&options(Scope::Cluster)).unwrap() {
        let text = yaml(std::slice::from_ref(&object)).unwrap();
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, object);
    }
    let text = yaml(&[json!({"a": 1}), json!({"b": "yes"})]).unwrap();
    assert_eq!(text, "a: 1\n---\nb: \"yes\"\n");
}
