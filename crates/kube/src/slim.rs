//! The part of an object's metadata that stays in memory: the labels and annotations that plans read. Every writer of an object
//! may add labels and annotations, 256 KiB and more, and field managers add their own records.
//!
//! Decides the keys. Writes name single keys, or are of a status: there the API server keeps the metadata that it has.

use holdfast_api::key;
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

/// Keeps the metadata that plans read. Drops annotations longer than `longest`, whatever their key.
pub fn slim<K: Resource>(object: &mut K, longest: usize) {
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
        for name in ["../plan/src", "src", "../operator/src"] {
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
            if path.to_string_lossy().contains("/build/") || path.to_string_lossy().contains("test") {
                continue;
            }
            for word in product.split('"').skip(1).step_by(2) {
                let Some((domain, _)) = word.split_once('/') else { continue };
                let label = domain.ends_with("kubernetes.io") && !word.contains(' ') && !word.contains('=');
                assert!(!label || KUBERNETES.contains(&word) || key::ALL.contains(&word), "{}: {word}", path.display());
            }
        }
    }
}
