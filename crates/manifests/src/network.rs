//! NetworkPolicies for Holdfast's Pods: a template for namespaces that deny all other traffic.
//!
//! Decides the connections that Holdfast's Pods need. Printed only on request, because a policy that selects a Pod denies every
//! connection that the policy does not name: for a store on another port the user adds the port. `plan/build` decides the Pods'
//! labels.

use std::net::IpAddr;

use holdfast_api::{component, key};
use holdfast_base::objects::port;
use holdfast_contract::IDENTITY_NETWORKS;
use serde_json::{Value, json};

use super::{NAME, NAMESPACE, Scope, labels, metadata};

/// Ports of an API server: of its Service, and of the servers behind the Service in various distributions. Egress rules apply
/// to the latter.
const API: [i32; 4] = [443, 6443, 8443, 16443];

/// Ports of name servers: OpenShift's name servers listen on the second port behind their Service.
const NAMES: [i32; 2] = [53, 5353];

/// Port of a store.
const STORE: i32 = 443;

pub(super) fn objects(scope: &Scope) -> Vec<Value> {
    let home = scope.home();
    let operator = policy(
        NAME,
        home,
        &labels(),
        // For metrics and kubelet's probes.
        &json!([{"ports": ports(&[super::deployment::PORT.into()])}]),
        &json!([
            names(),
            // Without an address: an API server may run on a node, and in some networks (Cilium) an ipBlock does not contain
            // nodes.
            {"ports": ports(&API)},
            {"to": [{"namespaceSelector": {}, "podSelector": selector(component::MEMBER)}], "ports": ports(&[port::CLIENT, port::PEER])},
            // The state of a log.
            {"to": [{"namespaceSelector": {}, "podSelector": selector(component::SNAPSHOT_AGENT)}], "ports": ports(&[port::PROGRESS])},
        ]),
    );
    match scope {
        Scope::Cluster => vec![operator],
        Scope::Namespace(_) => vec![operator, members(home), agents(home), drills(home), creators(home)],
    }
}

/// Clients of the same namespace and the operator connect to members; a first member may fetch its data from a store.
fn members(namespace: &str) -> Value {
    let each_other = json!([{"podSelector": selector(component::MEMBER)}]);
    let operator = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "podSelector": {"matchLabels": labels()},
    });
    let clients = json!([{"podSelector": {}}, operator]);
    // The operator reads the certificate that a member shows to its peers. The operator may run in the members' namespace, too.
    let peers =
        json!([{"podSelector": selector(component::MEMBER)}, operator, {"podSelector": {"matchLabels": labels()}}]);
    policy(
        "holdfast-members",
        namespace,
        &component_labels(component::MEMBER),
        &json!([
            {"from": clients, "ports": ports(&[port::CLIENT])},
            {"from": peers, "ports": ports(&[port::PEER])},
            // The API server asks a restore about its progress, and no selector matches the API server.
            {"ports": ports(&[port::METRICS, port::PROGRESS])},
        ]),
        &json!([
            names(),
            {"to": each_other, "ports": ports(&[port::CLIENT, port::PEER, port::METRICS])},
            {"to": outside(), "ports": ports(&[STORE])},
        ]),
    )
}

/// The API server asks agents about their progress, from an address that no selector matches, and the operator and Prometheus ask
/// about a log at the same port; agents connect to members, external
/// etcds and stores.
fn agents(namespace: &str) -> Value {
    policy(
        "holdfast-agents",
        namespace,
        &component_labels(component::SNAPSHOT_AGENT),
        &json!([{"ports": ports(&[port::PROGRESS])}]),
        &json!([
            names(),
            {"to": [{"podSelector": selector(component::MEMBER)}], "ports": ports(&[port::CLIENT])},
            {"to": outside(), "ports": ports(&[port::CLIENT, STORE])},
        ]),
    )
}

/// No connection to drills, and none to members: drills connect to stores.
fn drills(namespace: &str) -> Value {
    let egress = json!([names(), {"to": outside(), "ports": ports(&[STORE])}]);
    policy("holdfast-drills", namespace, &component_labels(component::SNAPSHOT_DRILL), &json!([]), &egress)
}

/// No connection to Pods that request snapshots periodically (`jobs/cronjob-snapshot.yaml`); these Pods connect to the API
/// server.
fn creators(namespace: &str) -> Value {
    let egress = json!([names(), {"ports": ports(&API)}]);
    let creator = json!({(key::NAME): NAME, (key::COMPONENT): component::SNAPSHOT_CREATOR});
    policy("holdfast-creators", namespace, &creator, &json!([]), &egress)
}

fn policy(name: &str, namespace: &str, whose: &Value, ingress: &Value, egress: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name, Some(namespace)),
        "spec": {
            "podSelector": {"matchLabels": whose},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    })
}

/// Labels of the Holdfast Pods with this component.
fn component_labels(component: &str) -> Value {
    json!({(key::COMPONENT): component, (key::MANAGED_BY): NAME})
}

fn selector(component: &str) -> Value {
    json!({"matchLabels": component_labels(component)})
}

/// Name servers at any address: a name server on each node has a link-local address.
fn names() -> Value {
    let each = NAMES.iter().flat_map(|port| ["UDP", "TCP"].map(|protocol| json!({"port": port, "protocol": protocol})));
    json!({"ports": each.collect::<Vec<_>>()})
}

fn ports(ports: &[i32]) -> Value {
    ports.iter().map(|port| json!({"port": port, "protocol": "TCP"})).collect()
}

/// Every Pod, since some networks (Cilium) do not count Pods among addresses, and every address except the metadata servers
/// that hand out a node's identity.
fn outside() -> Value {
    let without = |all: &str, six: bool| {
        let networks = IDENTITY_NETWORKS.into_iter().filter(|(ip, _)| ip.is_ipv6() == six);
        json!({"ipBlock": {"cidr": all, "except": networks.map(network).collect::<Vec<_>>()}})
    };
    json!([{"namespaceSelector": {}}, without("0.0.0.0/0", false), without("::/0", true)])
}

fn network((first, length): (IpAddr, u32)) -> String {
    format!("{first}/{length}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::networking::v1::NetworkPolicy;

    use super::*;
    use crate::{IMAGE, jobs};

    fn policies() -> BTreeMap<String, NetworkPolicy> {
        let all = objects(&Scope::Namespace("shop".to_owned())).into_iter();
        all.map(|policy| {
            let typed: NetworkPolicy = serde_json::from_value(policy.clone()).unwrap();
            // A misspelt field would be lost on the way through the typed object.
            assert_eq!(serde_json::to_value(&typed).unwrap(), policy);
            (typed.metadata.name.clone().unwrap(), typed)
        })
        .collect()
    }

    fn selects(policy: &NetworkPolicy, labels: &BTreeMap<String, String>) -> bool {
        let selector = policy.spec.as_ref().unwrap().pod_selector.as_ref().unwrap().match_labels.as_ref().unwrap();
        !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Exactly one policy selects each Holdfast Pod, and no two policies widen each other.
    #[test]
    fn each_pod_of_ours_is_selected_by_its_own() {
        let member = holdfast_base::objects::labels("orders", "1a2b");
        let job: Value = serde_saphyr::from_str(&jobs::samples(Some(jobs::Sample::SaveToS3), IMAGE)).unwrap();
        let agent = serde_json::from_value(job["spec"]["template"]["metadata"]["labels"].clone()).unwrap();
        let operator: BTreeMap<String, String> = serde_json::from_value(labels()).unwrap();
        let text = jobs::samples(Some(jobs::Sample::CronjobSnapshot), IMAGE);
        let cron: Value = serde_saphyr::from_str(text.rsplit("---\n").next().unwrap()).unwrap();
        let creator = &cron["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"];
        let creator = serde_json::from_value(creator.clone()).unwrap();
        for (labels, whose) in [
            (member, "holdfast-members"),
            (agent, "holdfast-agents"),
            (operator, "holdfast"),
            (creator, "holdfast-creators"),
        ] {
            let by: Vec<_> = policies().into_iter().filter(|(_, policy)| selects(policy, &labels)).collect();
            assert_eq!(by.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [whose], "{labels:?}");
        }
    }

    /// S6: the network leads to no metadata server, for any name resolution: policies with stores exclude the addresses, and no
    /// policy opens the metadata port (80).
    #[test]
    fn no_way_leads_to_a_nodes_identity() {
        let closed: Vec<_> = IDENTITY_NETWORKS.map(network).into();
        for (name, policy) in policies() {
            let spec = policy.spec.unwrap();
            assert_eq!(spec.policy_types.unwrap(), ["Ingress", "Egress"], "{name}");
            for rule in spec.egress.unwrap() {
                let ports = serde_json::to_value(&rule.ports).unwrap();
                assert!(rule.ports.is_some() && !ports.to_string().contains("\"port\":80,"), "{name}: {ports}");
                let Some(to) = rule.to else {
                    let known = [names()["ports"].clone(), super::ports(&API)];
                    assert!(known.contains(&ports), "{name}: open to all: {ports}");
                    continue;
                };
                let blocks: Vec<_> = to.into_iter().filter_map(|peer| peer.ip_block).collect();
                let except: Vec<_> = blocks.iter().flat_map(|block| block.except.iter().flatten().cloned()).collect();
                assert!(blocks.is_empty() || except == closed, "{name}: {except:?}");
            }
        }
    }

    #[test]
    fn a_cluster_wide_install_has_its_own_in_its_own_namespace() {
        let all = objects(&Scope::Cluster);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0]["metadata"], metadata(NAME, Some(NAMESPACE)));
    }
}
