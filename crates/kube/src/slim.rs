//! The part of an object that stays in memory: the labels, annotations and fields that plans read. Every writer of an object may add
//! labels and annotations, 256 KiB and more, and field managers add their own records; every tenant may create objects with
//! Holdfast's label and a spec of more than 1 MiB.
//!
//! Decides the keys, the fields, and which object of Kubernetes' own kinds is too large for a cache. Writes name single keys, or are
//! of a status: there the API server keeps the rest.

use holdfast_api::key;
use holdfast_api::{
    EtcdBackupStore, EtcdCluster, EtcdMember, EtcdRestore, EtcdSnapshot, EtcdSnapshotSchedule, EtcdUser,
};
use holdfast_contract::REQUEST;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, Pod, PodSpec, PodTemplateSpec, ResourceRequirements, Service, Volume,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;

/// Keys of Kubernetes that plans read.
const KUBERNETES: [&str; 6] = [
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "kubernetes.io/service-name",
    "topology.kubernetes.io/zone",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-provisioner",
];

/// Longest annotation that a person sets: a key in a store has up to 1 KiB. A longer annotation is not Holdfast's.
pub const BY_HAND: usize = 4 << 10;

/// Largest object of Kubernetes' own kinds that a cache holds. Holdfast's own are a tenth of that.
pub const LARGEST: usize = 64 << 10;

/// A kind whose objects may have fields that no plan reads.
pub trait Slim {
    /// Drops these fields.
    fn drop_unread(&mut self) {}
}

/// Keeps the metadata and the fields that plans read. Drops annotations longer than `longest`, whatever their key.
pub fn slim<K: Resource + Slim>(object: &mut K, longest: usize) {
    object.drop_unread();
    let metadata = object.meta_mut();
    metadata.managed_fields = None;
    let read = |name: &str| key::ALL.contains(&name) || KUBERNETES.contains(&name);
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|name, _| read(name));
    }
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|name, value| read(name) && value.len() <= longest);
    }
}

impl Slim for EtcdCluster {}
impl Slim for EtcdMember {}
impl Slim for EtcdSnapshot {}
impl Slim for EtcdBackupStore {}
impl Slim for EtcdSnapshotSchedule {}
impl Slim for EtcdUser {}
impl Slim for EtcdRestore {}
// Plans compare these with the wanted ones, field by field.
impl Slim for CronJob {}
impl Slim for Deployment {}
impl Slim for Service {}
impl Slim for PodDisruptionBudget {}

impl Slim for Pod {
    fn drop_unread(&mut self) {
        self.spec = self.spec.take().map(of_pod);
    }
}

impl Slim for Job {
    fn drop_unread(&mut self) {
        self.spec = self.spec.take().map(|spec| JobSpec {
            active_deadline_seconds: spec.active_deadline_seconds,
            backoff_limit: spec.backoff_limit,
            suspend: spec.suspend,
            template: PodTemplateSpec { spec: spec.template.spec.map(of_pod), ..PodTemplateSpec::default() },
            ..JobSpec::default()
        });
    }
}

impl Slim for PersistentVolumeClaim {
    fn drop_unread(&mut self) {
        if let Some(spec) = &mut self.spec {
            (spec.selector, spec.data_source, spec.data_source_ref) = (None, None, None);
        }
    }
}

impl Slim for EndpointSlice {
    fn drop_unread(&mut self) {
        self.ports = None;
        for endpoint in &mut self.endpoints {
            let (conditions, target_ref) = (endpoint.conditions.take(), endpoint.target_ref.take());
            *endpoint = Endpoint { conditions, target_ref, ..Endpoint::default() };
        }
    }
}

fn of_pod(spec: PodSpec) -> PodSpec {
    PodSpec {
        node_name: spec.node_name,
        containers: spec.containers.into_iter().map(of_container).collect(),
        init_containers: spec.init_containers.map(|all| all.into_iter().map(of_container).collect()),
        volumes: spec.volumes.map(|all| all.into_iter().map(of_volume).collect()),
        overhead: spec.overhead,
        ..PodSpec::default()
    }
}

fn of_container(container: Container) -> Container {
    let Container { name, image, command, args, env, resources, restart_policy, .. } = container;
    let request = env.into_iter().flatten().find(|variable| variable.name == REQUEST);
    // A quota counts requests and limits.
    let resources = resources.map(|ResourceRequirements { limits, requests, .. }| ResourceRequirements {
        limits,
        requests,
        ..ResourceRequirements::default()
    });
    let env = request.map(|request| vec![request]);
    Container { name, image, command, args, env, resources, restart_policy, ..Container::default() }
}

fn of_volume(volume: Volume) -> Volume {
    let Volume { name, persistent_volume_claim, secret, .. } = volume;
    let secret = secret.map(|secret| k8s_openapi::api::core::v1::SecretVolumeSource {
        secret_name: secret.secret_name,
        optional: secret.optional,
        ..Default::default()
    });
    Volume { name, persistent_volume_claim, secret, ..Volume::default() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

    use super::*;

    #[test]
    fn what_is_read_stays_and_all_else_goes() {
        let mut pod = Pod::default();
        let all = |more: &[(&str, &str)]| -> BTreeMap<String, String> {
            let read = key::ALL.iter().chain(&KUBERNETES).map(|name| (*name, "x"));
            read.chain(more.iter().copied()).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let long = "x".repeat(250 << 10);
        let foreign = [("kubectl.kubernetes.io/last-applied-configuration", long.as_str()), ("holdfast.dev/x", &long)];
        (pod.metadata.labels, pod.metadata.annotations) = (Some(all(&foreign)), Some(all(&foreign)));
        pod.metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
        pod.metadata.annotations.as_mut().unwrap().insert(key::REPLACE.to_owned(), long.clone());
        slim(&mut pod, BY_HAND);
        let mut short = all(&[]);
        assert_eq!((pod.metadata.managed_fields, pod.metadata.labels), (None, Some(short.clone())));
        short.remove(key::REPLACE);
        assert_eq!(pod.metadata.annotations, Some(short));
    }

    /// A cache would never show a key that plans read and `slim` drops.
    #[test]
    fn every_key_of_the_wire_contract_is_kept() {
        let text = include_str!("../../api/src/lib.rs");
        let (_, keys) = text.split_once("pub mod key {").unwrap();
        let (keys, _) = keys.split_once("pub const ALL:").unwrap();
        assert_eq!(keys.matches("pub const ").count(), key::ALL.len());
        for name in ["../plan", "src", "../operator/src"] {
            let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            every_key_is_known(&root);
        }
    }

    /// These files contain keys of other projects as text.
    fn every_key_is_known(folder: &std::path::Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                every_key_is_known(&path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let product = text.split("#[cfg(test)]").next().unwrap();
            if path.to_string_lossy().contains("/objects/") || path.to_string_lossy().contains("test") {
                continue;
            }
            for word in product.split('"').skip(1).step_by(2) {
                let Some((domain, _)) = word.split_once('/') else { continue };
                let label = domain.ends_with("kubernetes.io") && !word.contains(' ') && !word.contains('=');
                assert!(!label || KUBERNETES.contains(&word) || key::ALL.contains(&word), "{}: {word}", path.display());
            }
        }
    }

    /// A quota counts requests and the overhead of a runtime class.
    #[test]
    fn the_amounts_of_a_pod_stay() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "overhead": {"memory": "1Mi"},
            "containers": [{"name": "etcd", "resources": {"requests": {"memory": "2Mi"}, "limits": {"memory": "3Mi"}}}],
            "initContainers": [{"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        }}))
        .unwrap();
        let mut slim = pod.clone();
        slim.drop_unread();
        assert_eq!(slim, pod);
    }
}
