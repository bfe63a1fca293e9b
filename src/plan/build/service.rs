//! The two Services of a cluster.
//!
//! Decides names, ports and selectors: members find each other through the headless one before they are ready, clients
//! reach members with a vote only.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};

use super::{owned_by_cluster, port, selector, voters};
use crate::api::{EtcdCluster, name};
use crate::plan::meta;

/// The headless Service. Names resolve before a Pod is ready: etcd needs its peers to become ready.
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

/// The Service for clients: voters only, since learners refuse reads and writes (I16).
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

/// Where the spec is silent the API server decides.
fn families(cluster: &EtcdCluster) -> Option<String> {
    cluster.spec.ip_family_policy.map(|policy| policy.as_str().to_owned())
}

/// Protocol and target are written out: what the API server adds by itself must not look like a difference (I17).
fn service_port(name: &str, port: i32) -> ServicePort {
    ServicePort { name: Some(name.to_owned()), port, protocol: Some("TCP".to_owned()), ..ServicePort::default() }
}
