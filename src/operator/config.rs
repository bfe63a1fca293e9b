//! What the operator was started with. Decides nothing: `cli` reads flags and environment, this is the plain result.

use std::net::SocketAddr;

use crate::api::pod_security::RunAs;
use crate::plan::{Proxies, Settings};

/// What the operator was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The one namespace to work in; `None`: all of them.
    pub watch_namespace: Option<String>,
    /// Namespace of the leader's Lease.
    pub lease_namespace: String,
    /// Name of the leader's Lease.
    pub lease_name: String,
    /// Who this process is in the Lease: the Pod's name, so that a restarted container takes its own lease up again.
    pub identity: String,
    /// Image of this very binary, for gate and agent.
    pub agent_image: String,
    /// Repository of etcd's image.
    pub etcd_repository: String,
    /// What stands between Pods and stores.
    pub proxies: Proxies,
    /// The domain of the Kubernetes cluster, where it is known.
    pub cluster_domain: Option<String>,
    /// The user of Pods, where no spec chooses.
    pub pod_run_as: RunAs,
    /// Where `/healthz`, `/readyz` and `/metrics` are served.
    pub listen: SocketAddr,
    /// For crash tests: the process ends hard right after this many successful writes.
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
    /// The same, with the domain of the Kubernetes cluster from this /etc/resolv.conf, where no flag names it.
    #[must_use]
    pub fn in_domain_of(mut self, resolv_conf: &str) -> Self {
        self.cluster_domain = self.cluster_domain.or_else(|| cluster_domain(resolv_conf));
        self
    }

    /// The part of it that plans may depend on.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            agent_image: self.agent_image.clone(),
            etcd_repository: self.etcd_repository.clone(),
            proxies: self.proxies.clone(),
            cluster_domain: self.cluster_domain.clone(),
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
