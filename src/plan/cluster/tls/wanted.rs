//! The certificates that a cluster needs, and where each comes from.
//!
//! Decides names, users and origins from the spec alone. Whether a certificate can be had is decided in `source` and `ca`.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::api::name::{self, Scheme};
use crate::api::tls::{ClientPlane, IssuerRef, PeerPlane, is_address};
use crate::api::{EtcdCluster, EtcdMember};
use crate::plan::certificate::{Files, Leaf, Origin, Plane, files};
use crate::plan::{build, meta};

/// The user that etcd takes the operator for.
const ROOT: &str = "root";

/// Where the certificates of a plane come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider<'a> {
    Auto,
    Own,
    CertManager(&'a IssuerRef),
}

impl Provider<'_> {
    /// As the status says it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "Auto",
            Self::Own => "Secret",
            Self::CertManager(_) => "CertManager",
        }
    }
}

fn client_plane(cluster: &EtcdCluster) -> Option<&ClientPlane> {
    cluster.spec.tls.as_ref()?.client.as_ref()
}

fn peer_plane(cluster: &EtcdCluster) -> Option<&PeerPlane> {
    cluster.spec.tls.as_ref()?.peer.as_ref()
}

pub(super) fn provider(cluster: &EtcdCluster, plane: Plane) -> Provider<'_> {
    let (own, issuer) = match plane {
        Plane::Client => {
            let plane = client_plane(cluster);
            (plane.and_then(|p| p.server_secret_ref.as_ref()), plane.and_then(|p| p.cert_manager.as_ref()))
        }
        Plane::Peer => {
            let plane = peer_plane(cluster);
            (plane.and_then(|p| p.secret_ref.as_ref()), plane.and_then(|p| p.cert_manager.as_ref()))
        }
    };
    match (own, issuer) {
        (Some(_), _) => Provider::Own,
        (None, Some(by)) => Provider::CertManager(&by.issuer_ref),
        (None, None) => Provider::Auto,
    }
}

/// Whether Holdfast's own CA signs the certificates of a plane.
pub fn is_auto(cluster: &EtcdCluster, plane: Plane) -> bool {
    provider(cluster, plane) == Provider::Auto
}

/// What a member needs.
pub(in crate::plan::cluster) fn of_member(cluster: &EtcdCluster, member: &str) -> Vec<Leaf> {
    let (named, namespace) = (cluster_name(cluster), cluster.metadata.namespace.as_deref().unwrap_or_default());
    let host = name::host(member, named, namespace);
    let service = name::client_service(named);
    let in_namespace = format!("{service}.{namespace}.svc");
    let mut server = vec![host.clone(), in_namespace];
    if provider(cluster, Plane::Client) != Provider::Own {
        let more = [service.clone(), format!("{service}.{namespace}"), "localhost".to_owned()];
        server.extend(more);
        server.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
        server.extend(client_plane(cluster).into_iter().flat_map(ClientPlane::spelt_names));
    }
    let marker = build::member::peer_name(cluster).unwrap_or_else(|| name::peer_marker(named, namespace));
    let own = |plane: Option<&name::LocalRef>| plane.map(|secret| secret.name.clone()).unwrap_or_default();
    let peer_origin = match provider(cluster, Plane::Peer) {
        Provider::Auto => Origin::Issued,
        Provider::Own => Origin::Copied(own(peer_plane(cluster).and_then(|p| p.secret_ref.as_ref()))),
        Provider::CertManager(_) => Origin::Copied(name::peer_request(member)),
    };
    let server_origin = match provider(cluster, Plane::Client) {
        Provider::Auto => Origin::Issued,
        Provider::Own => Origin::Copied(own(client_plane(cluster).and_then(|p| p.server_secret_ref.as_ref()))),
        Provider::CertManager(_) => Origin::Copied(name::server_request(member)),
    };
    let etcdctl = Leaf { files: files::ETCDCTL, ..of_operator(cluster) };
    vec![
        leaf(files::PEER, Plane::Peer, peer_origin, None, vec![host, marker]),
        leaf(files::SERVER, Plane::Client, server_origin, None, server),
        etcdctl,
    ]
}

/// The operator's own, for its Jobs and for etcdctl in members too.
pub(super) fn of_operator(cluster: &EtcdCluster) -> Leaf {
    let origin = match provider(cluster, Plane::Client) {
        Provider::Auto => Origin::Issued,
        Provider::Own => {
            let secret = client_plane(cluster).and_then(|plane| plane.operator_client_secret_ref.as_ref());
            Origin::Copied(secret.map(|secret| secret.name.clone()).unwrap_or_default())
        }
        Provider::CertManager(_) => Origin::Copied(name::operator_request(cluster_name(cluster))),
    };
    leaf(files::CLIENT, Plane::Client, origin, Some(ROOT), vec![])
}

/// One for applications, where Holdfast's CA signs. Whoever has a CA issues certificates for applications there.
pub(super) fn of_applications(cluster: &EtcdCluster) -> Option<Leaf> {
    is_auto(cluster, Plane::Client).then(|| leaf(files::CLIENT, Plane::Client, Origin::Issued, None, vec![]))
}

/// The Secrets that certificates are copied from.
pub fn sources<'a>(cluster: &EtcdCluster, members: impl Iterator<Item = &'a EtcdMember>) -> BTreeSet<String> {
    let members = members.filter(|member| member.spec.scheme() == Scheme::Https);
    let leaves = members.flat_map(|member| of_member(cluster, meta::name(&member.metadata)));
    let named = |leaf: Leaf| match leaf.origin {
        Origin::Copied(secret) => Some(secret),
        Origin::Issued => None,
    };
    leaves.chain([of_operator(cluster)]).filter_map(named).collect()
}

/// The Certificates that cert-manager is asked for: metadata and spec. Their Secrets bear the same names.
pub fn requests<'a>(cluster: &EtcdCluster, members: impl Iterator<Item = &'a EtcdMember>) -> Vec<(ObjectMeta, Value)> {
    let request = |leaf: &Leaf, owned: ObjectMeta| {
        let (Provider::CertManager(issuer), Origin::Copied(name)) = (provider(cluster, leaf.plane), &leaf.origin)
        else {
            return None;
        };
        Some((ObjectMeta { name: Some(name.clone()), ..owned }, spec(leaf, name, issuer)))
    };
    let of_cluster = build::owned_by_cluster(String::new(), cluster);
    let mut all: Vec<_> = request(&of_operator(cluster), of_cluster.clone()).into_iter().collect();
    for member in members.filter(|member| member.spec.scheme() == Scheme::Https) {
        let owned = ObjectMeta { owner_references: Some(vec![build::owner(member)]), ..of_cluster.clone() };
        let leaves = of_member(cluster, meta::name(&member.metadata));
        let of_member = leaves.iter().filter(|leaf| leaf.files != files::ETCDCTL);
        all.extend(of_member.filter_map(|leaf| request(leaf, owned.clone())));
    }
    all
}

fn spec(leaf: &Leaf, secret: &str, issuer: &IssuerRef) -> Value {
    let (addresses, names): (Vec<_>, Vec<_>) = leaf.names.iter().partition(|name| is_address(name));
    let mut spec = json!({
        "secretName": secret,
        "usages": ["digital signature", "server auth", "client auth"],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "issuerRef": {
            "name": issuer.name,
            "kind": issuer.kind.as_deref().unwrap_or("Issuer"),
            "group": issuer.group.as_deref().unwrap_or("cert-manager.io"),
        },
    });
    let mut put = |key: &str, value: Value| drop(spec.as_object_mut().map(|spec| spec.insert(key.to_owned(), value)));
    if let Some(name) = &leaf.common_name {
        put("commonName", json!(name));
    }
    if !names.is_empty() {
        put("dnsNames", json!(names));
    }
    if !addresses.is_empty() {
        put("ipAddresses", json!(addresses));
    }
    spec
}

fn leaf(files: Files, plane: Plane, origin: Origin, common_name: Option<&str>, names: Vec<String>) -> Leaf {
    Leaf { files, plane, origin, common_name: common_name.map(str::to_owned), names }
}

fn cluster_name(cluster: &EtcdCluster) -> &str {
    meta::name(&cluster.metadata)
}
