//! The two Services of a cluster.
//!
//! Decides names, ports and selectors: members find each other through the headless Service before readiness, and clients reach
//! only voters.

use holdfast_api::{EtcdCluster, name};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};

use super::{owned_by_cluster, port, selector, voters};
use crate::meta;

/// Returns the headless Service. Names resolve before a Pod is ready: etcd needs its peers to become ready.
pub fn peer(cluster: &EtcdCluster) -> Service {
    Service {
        metadata: owned_by_cluster(name::peer_service(meta::name(&cluster.metadata)), cluster),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(selector(cluster)),
            ports: Some(vec![service_port("client", port::CLIENT), service_port("peer", port::PEER)]),
            ip_family_policy: families(cluster),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Returns the Service for clients: voters only, since learners refuse reads and writes (I16).
pub fn client(cluster: &EtcdCluster) -> Service {
    Service {
        metadata: owned_by_cluster(name::client_service(meta::name(&cluster.metadata)), cluster),
        spec: Some(ServiceSpec {
            selector: Some(voters(cluster)),
            ports: Some(vec![service_port("client", port::CLIENT)]),
            ip_family_policy: families(cluster),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Returns the IP family policy; `None`: the API server decides.
fn families(cluster: &EtcdCluster) -> Option<String> {
    cluster.spec.ip_family_policy.map(|policy| policy.as_str().to_owned())
}

/// Returns a port with protocol and target: a default that the API server adds must not look like a difference (I17).
fn service_port(name: &str, port: i32) -> ServicePort {
    ServicePort { name: Some(name.to_owned()), port, protocol: Some("TCP".to_owned()), ..ServicePort::default() }
}
