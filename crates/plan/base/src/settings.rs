//! The part of the operator's configuration that plans depend on. Decides nothing.

use holdfast_api::pod_security::RunAs;

/// The settings of the operator's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of this binary, for gate and agent.
    pub agent_image: String,
    /// Repository of etcd's image.
    pub etcd_repository: String,
    /// Proxies between Pods and stores.
    pub proxies: Proxies,
    /// The domain of the Kubernetes cluster, such as `cluster.local`; `None` if unknown.
    pub cluster_domain: Option<String>,
    /// Names that a `ClusterIssuer` may sign outside a cluster's namespace: `etcd.example.org`, `*.example.org`, `*`.
    pub allowed_names: Vec<String>,
    /// The user of Pods, where the spec does not choose.
    pub pod_run_as: RunAs,
}

/// Proxies between Pods and stores, for the Pods that connect to a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For stores with TLS.
    pub https: Option<String>,
    /// For stores without TLS.
    pub http: Option<String>,
    /// Names, domains and networks that Pods reach without a proxy, separated by commas.
    pub except: Option<String>,
}
