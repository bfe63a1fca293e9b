//! An `EtcdMember`, built by the cluster's pass.
//!
//! Decides the fields that the member copies from the cluster at birth. The cluster's pass decides which member to create, and
//! when.

use holdfast_api::member::{Birth, ClusterIdentity};
use holdfast_api::restore::Restoring;
use holdfast_api::template::Template;
use holdfast_api::tls::MemberTls;
use holdfast_api::transport::Transport;
use holdfast_api::{EtcdCluster, EtcdMember, EtcdMemberSpec, MEMBER_FINALIZER, key, name};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{fingerprint, meta, template};

/// Returns the first member, which founds the cluster or carries the restored data.
pub fn seed(cluster: &EtcdCluster, member: &str, restore: Option<Restoring>) -> EtcdMember {
    let url = peer_url(cluster, member);
    born(cluster, member, Birth::Seed, Some(format!("{member}={url}")), restore)
}

/// Returns a member that joins. After etcd lists the member, the member gets its initial cluster, and then a Pod.
pub fn joiner(cluster: &EtcdCluster, member: &str) -> EtcdMember {
    let mut joiner = born(cluster, member, Birth::Joiner, None, None);
    let formed = cluster.status.as_ref().and_then(|status| status.latches.formed.as_ref());
    joiner.spec.restored_from = formed.and_then(|formed| formed.restored_from.clone());
    joiner
}

/// Whether a member was created for an earlier spec of its cluster: another version, image, volume, transport security, or
/// other settings.
pub fn is_outdated(member: &EtcdMember, cluster: &EtcdCluster) -> bool {
    let (is, wanted) = (&member.spec, &cluster.spec);
    member.spec.process != template::wanted(cluster)
        || !is.storage.is_same_volume(&wanted.storage)
        || is.transport() != cluster.transport()
        || is.tls.as_ref().is_some_and(|tls| tls.made_for != made_for(cluster))
}

/// Returns the peer URL of a new member of this cluster.
pub fn peer_url(cluster: &EtcdCluster, member: &str) -> String {
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
    name::peer_url(cluster.transport().peers(), member, meta::name(&cluster.metadata), namespace)
}

/// Returns the peer URL that a member has, by its template.
pub fn own_peer_url(member: &EtcdMember) -> String {
    let namespace = member.metadata.namespace.as_deref().unwrap_or_default();
    let peers = member.spec.transport().peers();
    name::peer_url(peers, meta::name(&member.metadata), &member.spec.cluster_ref.name, namespace)
}

/// Whether a peer URL belongs to a member of this cluster.
pub fn is_peer_url(cluster: &EtcdCluster, url: &str) -> bool {
    let name = url.split_once("://").and_then(|(_, rest)| rest.split_once('.')).map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && is_peer_url_of(cluster, name, url))
}

/// Whether a peer URL is the one of this member, with TLS or in plaintext.
pub fn is_peer_url_of(cluster: &EtcdCluster, member: &str, url: &str) -> bool {
    let own = peer_url(cluster, member);
    let place = |url: &str| url.split_once("://").map(|(_, place)| place.to_owned());
    let scheme = url.strip_suffix(&place(url).unwrap_or_default());
    place(url) == place(&own) && matches!(scheme, Some("http://" | "https://"))
}

/// Returns etcd's cluster token. The token contains the UID, so that members of two incarnations never talk to each other.
pub fn token(cluster: &EtcdCluster) -> String {
    let meta = &cluster.metadata;
    name::cluster_token(meta.namespace.as_deref().unwrap_or_default(), meta::name(meta), meta::uid(meta))
}

fn born(
    cluster: &EtcdCluster,
    member: &str,
    role: Birth,
    initial_cluster: Option<String>,
    restore: Option<Restoring>,
) -> EtcdMember {
    let meta = &cluster.metadata;
    let spec = &cluster.spec;
    let wanted = template::wanted(cluster);
    let added = spec.metadata_of_objects();
    let mut labels = added.labels;
    labels.extend(super::labels(meta::name(meta), meta::uid(meta)));
    labels.insert(key::MEMBER.to_owned(), member.to_owned());
    let mut object = EtcdMember {
        metadata: ObjectMeta {
            name: Some(member.to_owned()),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: (!added.annotations.is_empty()).then_some(added.annotations),
            owner_references: Some(vec![super::owner(cluster)]),
            finalizers: Some(vec![MEMBER_FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: EtcdMemberSpec {
            cluster_ref: ClusterIdentity { name: meta::name(meta).to_owned(), uid: meta::uid(meta).to_owned() },
            role,
            storage: spec.storage.clone(),
            pod_metadata: spec.metadata_of_pods(),
            placement: spec.placement.clone(),
            cluster_token: token(cluster),
            timeline: cluster.status.as_ref().and_then(|status| status.latches.timeline),
            initial_cluster,
            restore,
            tls: cluster.transport().has_certificates().then(|| certificates(cluster)),
            ..EtcdMemberSpec::default()
        },
        status: None,
    };
    template::put(&mut object, &wanted);
    object
}

/// Gives a new member another template than the spec's, with certificates where it needs them.
pub fn give(member: &mut EtcdMember, other: &Template, cluster: &EtcdCluster) {
    template::put(member, other);
    let needs = other.transport.is_some_and(Transport::has_certificates);
    if needs && member.spec.tls.is_none() {
        member.spec.tls = Some(certificates(cluster));
    }
}

fn certificates(cluster: &EtcdCluster) -> MemberTls {
    MemberTls { peer_name: peer_name(cluster), made_for: made_for(cluster), ..MemberTls::default() }
}

/// Returns the name that members require in a peer's certificate, if the spec has a name.
pub fn peer_name(cluster: &EtcdCluster) -> Option<String> {
    cluster.spec.peer_tls()?.allowed_hostname.clone()
}

/// Returns the DNS name that members require of a peer.
pub fn peer_marker(cluster: &EtcdCluster) -> String {
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
    peer_name(cluster).unwrap_or_else(|| name::peer_marker(meta::name(&cluster.metadata), namespace))
}

/// Returns the fingerprint of the certificate sources, if the spec has any.
fn made_for(cluster: &EtcdCluster) -> Option<String> {
    let tls = cluster.spec.tls.as_ref().and_then(|tls| serde_json::to_string(tls).ok())?;
    Some(fingerprint::hash_parts([tls]))
}
