//! Templates: what a member's process runs with, by the cluster's spec, by the member's spec, and by its Pod.
//!
//! Decides whether they are equal. Only inputs of users count: what webhooks, a VerticalPodAutoscaler and defaults of another
//! version of Holdfast change in a Pod restarts no member.

use holdfast_api::agent::PodMetadata;
use holdfast_api::member::Resize;
use holdfast_api::template::Template;
use holdfast_api::transport::Transport;
use holdfast_api::{EtcdCluster, EtcdMember, key};
use k8s_openapi::api::core::v1::Pod;

use crate::{fingerprint, meta, valid};

/// Returns the template that the cluster's spec asks for, with the quota that Holdfast has granted.
pub fn wanted(cluster: &EtcdCluster) -> Template {
    let spec = &cluster.spec;
    Template {
        version: spec.version.clone(),
        image: spec.image.clone(),
        options: valid::options(cluster),
        resources: spec.resources.clone(),
        service_account_name: spec.service_account_name.clone(),
        restart: meta::annotation(&cluster.metadata, key::RESTART).map(str::to_owned),
        transport: transport(cluster),
    }
}

/// Returns the transport for a template. A cluster in plaintext that never changed has none: `EtcdMemberSpec::transport` knows.
fn transport(cluster: &EtcdCluster) -> Option<Transport> {
    let has_changed = cluster.status.as_ref().is_some_and(|status| status.latches.transport.is_some());
    match cluster.transport() {
        Transport::Tls => None,
        Transport::Plaintext if !has_changed => None,
        transport => Some(transport),
    }
}

/// Writes a template into the member's spec.
pub fn put(member: &mut EtcdMember, new: &Template) {
    member.spec.template = Some(fingerprint(new));
    member.spec.process = new.clone();
}

/// Returns the fingerprint of a template. Serializing Holdfast's own types to JSON cannot fail.
pub fn fingerprint(template: &Template) -> String {
    // Earlier versions of Holdfast wrote no transport, and their members in plaintext need no restart to get it.
    let transport = template.transport.filter(|transport| *transport != Transport::Plaintext);
    fingerprint::hash_parts([serde_json::to_string(&Template { transport, ..template.clone() }).unwrap_or_default()])
}

/// Returns the fingerprint of a member's template without its resources, which alone may change in a running Pod.
pub fn fingerprint_process(member: &EtcdMember) -> String {
    fingerprint(&Template { resources: None, ..member.spec.process.clone() })
}

/// Whether a template differs at most in its resources from the one that the Pod was made with.
pub fn has_process(pod: &Pod, new: &Template) -> bool {
    let made = meta::annotation(&pod.metadata, key::PROCESS);
    made.is_some_and(|made| made == fingerprint(&Template { resources: None, ..new.clone() }))
}

/// Returns the progress of a change of the Pod's resources.
pub fn resize(pod: &Pod) -> Option<Resize> {
    meta::annotation(&pod.metadata, key::RESIZE).map(Resize::parse)
}

/// Returns the fingerprint of labels and annotations for Pods; `None` for none.
pub fn fingerprint_metadata(all: &PodMetadata) -> Option<String> {
    (!all.is_empty()).then(|| fingerprint::hash_parts([serde_json::to_string(all).unwrap_or_default()]))
}

/// Returns the fingerprint of the template that the Pod was made with.
pub fn made_with(pod: &Pod) -> Option<&str> {
    meta::annotation(&pod.metadata, key::TEMPLATE)
}

/// Whether the Pod was made with this template. A Pod without a fingerprint is of an earlier version of Holdfast, which knew no
/// other template.
pub fn may_be_of(pod: &Pod, template: &Template) -> bool {
    made_with(pod).is_none_or(|made| made == fingerprint(template))
}

/// Whether the Pod's annotation names the template in its member's spec; the resources of that template may still be on their way.
pub fn is_marked(pod: &Pod, member: &EtcdMember) -> bool {
    made_with(pod) == member.spec.template.as_deref()
}

/// Whether the Pod has the template in its member's spec, and no change of its resources is under way. Neither has a fingerprint where an earlier version of Holdfast
/// made both.
pub fn is_current(pod: &Pod, member: &EtcdMember) -> bool {
    is_marked(pod, member) && resize(pod).is_none()
}

#[cfg(test)]
mod tests {
    use holdfast_api::cluster::Options;

    use super::*;
    use crate::fixtures::{etcd_cluster, pod_of};
    use crate::objects::member::joiner;

    #[test]
    fn a_new_member_has_the_template_of_its_cluster_and_its_pod_too() {
        let mut cluster = etcd_cluster(3);
        let member = joiner(&cluster, "a-x");
        assert_eq!(member.spec.process, wanted(&cluster));
        let pod = pod_of(&member);
        assert!(is_current(&pod, &member));
        cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
        assert_ne!(member.spec.process, wanted(&cluster));
    }

    #[test]
    fn a_pod_of_an_earlier_version_is_current_until_the_template_changes() {
        let mut member = joiner(&etcd_cluster(3), "a-x");
        member.spec.template = None;
        let mut pod = pod_of(&member);
        pod.metadata.annotations.get_or_insert_default().remove(key::TEMPLATE);
        assert!(is_current(&pod, &member));
        member.spec.template = Some("another".to_owned());
        assert!(!is_current(&pod, &member));
    }

    #[test]
    fn objects_hold_the_fingerprint() {
        let template = Template { version: "3.6.16".to_owned(), ..Template::default() };
        assert_eq!(fingerprint(&template), "83d70f44d19f2437");
    }
}
