//! The operator's configuration. Decides nothing: `cli` reads flags and environment into it.

use std::net::SocketAddr;

use holdfast_api::pod_security::RunAs;
use holdfast_plan::{Proxies, Settings};

/// The operator's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The one watched namespace; `None`: all namespaces.
    pub watch_namespace: Option<String>,
    /// Namespace of the leader's Lease.
    pub lease_namespace: String,
    /// Name of the leader's Lease.
    pub lease_name: String,
    /// Holder identity of this process in the Lease: the Pod's name, so that a restarted container keeps its own lease.
    pub identity: String,
    /// Image of this binary, for gate and agent.
    pub agent_image: String,
    /// Repository of etcd's image.
    pub etcd_repository: String,
    /// Proxies between Pods and stores.
    pub proxies: Proxies,
    /// Domain of the Kubernetes cluster, if known.
    pub cluster_domain: Option<String>,
    /// Names that a `ClusterIssuer` may sign outside a cluster's namespace.
    pub allowed_names: Vec<String>,
    /// User of Pods whose spec names none.
    pub pod_run_as: RunAs,
    /// Listen address of `/healthz`, `/readyz` and `/metrics`.
    pub listen: SocketAddr,
    /// For crash tests: the process aborts right after this many successful writes.
    pub die_after_writes: Option<u64>,
}

/// The domain of the Kubernetes cluster, out of the search list that kubelet writes into a Pod's /etc/resolv.conf:
/// `ns.svc.cluster.local svc.cluster.local cluster.local`.
fn cluster_domain(resolv_conf: &str) -> Option<String> {
    let last = resolv_conf.lines().filter_map(|line| line.strip_prefix("search")).next_back()?;
    let domain = last.split_whitespace().find_map(|domain| domain.strip_prefix("svc."))?;
    Some(domain.trim_end_matches('.').to_owned())
}

impl Config {
    /// Sets the domain of the Kubernetes cluster from this /etc/resolv.conf, where no flag names it.
    #[must_use]
    pub fn in_domain_of(mut self, resolv_conf: &str) -> Self {
        self.cluster_domain = self.cluster_domain.or_else(|| cluster_domain(resolv_conf));
        self
    }

    /// The part of the configuration that plans may depend on.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            agent_image: self.agent_image.clone(),
            etcd_repository: self.etcd_repository.clone(),
            proxies: self.proxies.clone(),
            cluster_domain: self.cluster_domain.clone(),
            allowed_names: self.allowed_names.clone(),
            pod_run_as: self.pod_run_as,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clusters_domain_is_in_the_search_list_of_a_pod() {
        let pod = "search holdfast.svc.example.org svc.example.org example.org host.net\nnameserver 10.96.0.10\n";
        assert_eq!(cluster_domain(pod).as_deref(), Some("example.org"));
        assert_eq!(cluster_domain("search svc.cluster.local.\n").as_deref(), Some("cluster.local"));
        assert_eq!(cluster_domain("search example.org\nnameserver 10.0.0.1\n"), None, "a host's");
        assert_eq!(cluster_domain(""), None);
    }
}
