//! What the operator was started with. Decides nothing: `cli` reads flags and environment, this is the plain result.

use std::net::SocketAddr;

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
    /// Where `/healthz`, `/readyz` and `/metrics` are served.
    pub listen: SocketAddr,
    /// For crash tests: the process ends hard right after this many successful writes.
    pub die_after_writes: Option<u64>,
}

impl Config {
    /// The part of it that plans may depend on.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            agent_image: self.agent_image.clone(),
            etcd_repository: self.etcd_repository.clone(),
            proxies: self.proxies.clone(),
        }
    }
}
