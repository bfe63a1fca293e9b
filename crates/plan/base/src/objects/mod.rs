//! Builds Kubernetes objects from validated values; infallible.
//!
//! Decides the common parts of all Holdfast objects: labels, owners, security settings. The file of each kind decides the rest.

use std::collections::BTreeMap;

use holdfast_api::agent::PodMetadata;
use holdfast_api::cluster::Image;
use holdfast_api::pod_security::RunAs;
use holdfast_api::{EtcdCluster, component, key};
use k8s_openapi::api::core::v1::{Capabilities, ContainerPort, PodSecurityContext, SeccompProfile, SecurityContext};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::{meta, template};

pub mod budget;
pub mod cron_job;
pub mod deployment;
pub mod etcd_args;
pub mod external;
pub mod job;
pub mod member;
pub mod pod;
pub mod pvc;
pub mod request;
pub mod requested;
pub mod resources;
pub use resources::{drill_requests, kubernetes_drill_requests, member_requests};
pub mod service;
pub mod spool;
pub mod store;
#[cfg(test)]
mod tests;

/// Containers of a member's Pod.
pub mod container {
    /// Copies Holdfast's static binary onto a scratch volume.
    pub const INSTALL: &str = "install";
    /// Rebuilds the seed's data.
    pub const RESTORE: &str = "restore";
    /// Runs the gate, and then etcd.
    pub const ETCD: &str = "etcd";
    /// All containers, in the order in which they run.
    pub const ALL: [&str; 3] = [INSTALL, RESTORE, ETCD];
}

/// Ports of a member.
pub mod port {
    /// Port for clients.
    pub const CLIENT: i32 = 2379;
    /// Port for other members.
    pub const PEER: i32 = 2380;
    /// Port for probes and metrics, without a certificate: both must work while certificates are broken.
    pub const METRICS: i32 = 2381;
    /// Port on which a save or a restore answers with its progress, and a log with its state and its metrics.
    pub const PROGRESS: i32 = 2382;
}

/// User and group of all Holdfast Pods: the user of distroless images.
pub const USER: i64 = 65532;

/// Returns a TCP port of a container.
fn container_port(name: &str, port: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// Returns the port on which an agent answers about its progress.
fn progress_port() -> Option<u16> {
    u16::try_from(port::PROGRESS).ok()
}

/// Labels of every child of a cluster.
pub fn labels(cluster: &str, cluster_uid: &str) -> BTreeMap<String, String> {
    [
        (key::NAME, "etcd"),
        (key::COMPONENT, component::MEMBER),
        (key::MANAGED_BY, "holdfast"),
        (key::CLUSTER, cluster),
        (key::CLUSTER_UID, cluster_uid),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into()
}

/// Labels that select the members' Pods of this cluster, by its UID: a new cluster with the same name must not send clients to
/// Pods of the old cluster that still run (I3). No Job and no agent has this component.
pub fn selector(cluster: &EtcdCluster) -> BTreeMap<String, String> {
    [
        (key::COMPONENT, component::MEMBER),
        (key::CLUSTER, meta::name(&cluster.metadata)),
        (key::CLUSTER_UID, meta::uid(&cluster.metadata)),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into()
}

/// [`selector`], narrowed to the voters.
pub fn voters(cluster: &EtcdCluster) -> BTreeMap<String, String> {
    let mut selector = selector(cluster);
    selector.insert(key::ROLE.to_owned(), holdfast_api::role::VOTER.to_owned());
    selector
}

/// A label selector as text.
pub fn as_text(selector: &BTreeMap<String, String>) -> String {
    selector.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",")
}

/// Metadata of an object that a cluster owns.
pub fn owned_by_cluster(name: String, cluster: &EtcdCluster) -> ObjectMeta {
    let added = cluster.spec.metadata_of_objects();
    let print = template::fingerprint_metadata(&added).map(|print| (key::METADATA.to_owned(), print));
    let PodMetadata { labels: mut all, mut annotations } = added;
    all.extend(labels(meta::name(&cluster.metadata), meta::uid(&cluster.metadata)));
    annotations.extend(print);
    ObjectMeta {
        name: Some(name),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(all),
        annotations: (!annotations.is_empty()).then_some(annotations),
        owner_references: Some(vec![owner(cluster)]),
        ..ObjectMeta::default()
    }
}

/// Returns an owner reference with `controller: true`.
pub fn owner<K: Resource<DynamicType = ()>>(of: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: meta::name(of.meta()).to_owned(),
        uid: meta::uid(of.meta()).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Security settings of a Pod: Kubernetes' `restricted` level, and a volume group so that a fresh volume is writable.
pub fn pod_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        fs_group: Some(USER),
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..PodSecurityContext::default()
    }
}

/// [`pod_security`] with the chosen user and groups.
pub fn pod_security_as(run_as: RunAs) -> PodSecurityContext {
    let fixed = pod_security();
    match run_as {
        RunAs::Fixed => fixed,
        // OpenShift refuses a Pod with a user outside its namespace's range, and fills in an absent user.
        RunAs::Unset => PodSecurityContext { run_as_user: None, run_as_group: None, fs_group: None, ..fixed },
    }
}

/// Security settings of a container: Kubernetes' `restricted` level, and a read-only root file system.
pub fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}

/// Returns etcd's image: a digest wins over the version's tag.
pub fn etcd_image(image: Option<&Image>, version: &str, default_repository: &str) -> String {
    let repository = image.and_then(|i| i.repository.as_deref()).unwrap_or(default_repository);
    match image.and_then(|i| i.digest.as_deref()) {
        Some(digest) => format!("{repository}@{digest}"),
        None => format!("{repository}:v{version}"),
    }
}

/// Returns when kubelet pulls etcd's image.
pub fn pull_policy(image: Option<&Image>) -> &'static str {
    image.and_then(|image| image.pull_policy).map_or("IfNotPresent", |policy| policy.as_str())
}
