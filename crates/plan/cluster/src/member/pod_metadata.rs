//! `spec.podMetadata` and `spec.additionalMetadata` of the cluster on a member's Pod.
//!
//! Decides which labels and annotations a running Pod gets and loses. The member's spec names those that the Pod got earlier: the
//! Pod changes first, then the member's spec. Keys that Holdfast writes itself stay out.

use std::collections::BTreeMap;

use holdfast_api::key;
use k8s_openapi::api::core::v1::Pod;

use super::Observed;
use super::facts::cluster;
use holdfast_base::{Act, Target, meta, template, valid};

/// Returns the next step.
pub(super) fn next(seen: &Observed, pod: Option<&Pod>) -> Option<Act> {
    let old = &seen.member.spec.pod_metadata;
    // The API server would refuse the Pod: it keeps the earlier labels and annotations.
    cluster(seen).filter(|cluster| valid::check_metadata(&cluster.spec).is_ok())?;
    let new = cluster(seen)?.spec.metadata_of_pods();
    let print = template::fingerprint_metadata(&new);
    if let Some(pod) = pod.filter(|pod| meta::annotation(&pod.metadata, key::POD_METADATA) != print.as_deref()) {
        let mut annotations = change(&old.annotations, &new.annotations);
        annotations.insert(key::POD_METADATA.to_owned(), print);
        let labels = change(&old.labels, &new.labels);
        return Some(Act::SetPodMetadata { pod: Target::from(&pod.metadata), labels, annotations });
    }
    (*old != new).then(|| Act::CopyPodMetadata {
        member: Target::from(&seen.member.metadata),
        old: Box::new(old.clone()),
        new: Box::new(new),
    })
}

/// Returns the value of each key, and `None` for each key that goes.
fn change(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> BTreeMap<String, Option<String>> {
    let gone = old.keys().map(|name| (name.clone(), None));
    gone.chain(new.iter().map(|(name, value)| (name.clone(), Some(value.clone())))).collect()
}
