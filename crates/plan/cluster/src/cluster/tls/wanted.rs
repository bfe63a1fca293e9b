//! The certificates that a cluster needs, and the source of each.
//!
//! Decides names, users and sources from the spec alone. `source` and `ca` decide whether a certificate is available.

use std::collections::BTreeSet;

use holdfast_api::name::{self, LocalRef};
use holdfast_api::tls::{ClientPlane, IssuerRef, is_address};
use holdfast_api::{EtcdCluster, EtcdMember};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use holdfast_base::certificate::{Files, Leaf, Origin, Plane, ROOT, files};
use holdfast_base::{meta, objects};

/// Source of the certificates of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider<'a> {
    Auto,
    Own,
    CertManager(&'a IssuerRef),
}

impl Provider<'_> {
    /// Returns the provider's name in the status.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "Auto",
            Self::Own => "Secret",
            Self::CertManager(_) => "CertManager",
        }
    }
}

/// Returns the Secret with the user's own certificate that members show on a plane.
pub(super) fn own_secret(cluster: &EtcdCluster, plane: Plane) -> Option<&LocalRef> {
    match plane {
        Plane::Client => cluster.spec.client_tls()?.server_secret_ref.as_ref(),
        Plane::Peer => cluster.spec.peer_tls()?.secret_ref.as_ref(),
    }
}

pub(super) fn provider(cluster: &EtcdCluster, plane: Plane) -> Provider<'_> {
    let issuer = match plane {
        Plane::Client => cluster.spec.client_tls().and_then(|client| client.cert_manager.as_ref()),
        Plane::Peer => cluster.spec.peer_tls().and_then(|peer| peer.cert_manager.as_ref()),
    };
    match (own_secret(cluster, plane), issuer) {
        (Some(_), _) => Provider::Own,
        (None, Some(by)) => Provider::CertManager(&by.issuer_ref),
        (None, None) => Provider::Auto,
    }
}

/// Whether Holdfast's own CA signs the certificates of a plane.
pub fn is_auto(cluster: &EtcdCluster, plane: Plane) -> bool {
    provider(cluster, plane) == Provider::Auto
}

/// Returns the names that etcd or the operator requires of a certificate: the first two of a server or peer. The other names are
/// for clients. A certificate of a user or of cert-manager may lack them until its issuer has issued another certificate.
pub(super) fn needed(leaf: &Leaf) -> &[String] {
    leaf.names.get(..2).unwrap_or(&leaf.names)
}

/// Returns the certificates that a member needs, with names in the order of [`needed`].
pub(in crate::cluster) fn of_member(cluster: &EtcdCluster, member: &str, domain: Option<&String>) -> Vec<Leaf> {
    let (named, namespace) = (cluster_name(cluster), cluster.metadata.namespace.as_deref().unwrap_or_default());
    let host = name::host(member, named, namespace);
    let service = name::client_service(named);
    let in_namespace = format!("{service}.{namespace}.svc");
    let mut server = vec![host.clone(), in_namespace];
    if provider(cluster, Plane::Client) != Provider::Own {
        let more = [service.clone(), format!("{service}.{namespace}"), "localhost".to_owned()];
        server.extend(more);
        server.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
        // Some clients use fully qualified names. The issuer of a user may not sign for the cluster's domain.
        let domain = domain.filter(|_| is_auto(cluster, Plane::Client));
        let whole = |domain| [format!("{host}.{domain}"), format!("{service}.{namespace}.svc.{domain}")];
        server.extend(domain.into_iter().flat_map(whole));
        server.extend(cluster.spec.client_tls().into_iter().flat_map(ClientPlane::spelt_names));
    }
    let origin = |plane, request: String| match (own_secret(cluster, plane), provider(cluster, plane)) {
        (Some(secret), _) => Origin::Copied(secret.name.clone()),
        (None, Provider::CertManager(_)) => Origin::Copied(request),
        (None, Provider::Auto | Provider::Own) => Origin::Issued,
    };
    let peer_origin = origin(Plane::Peer, name::peer_request(member));
    let server_origin = origin(Plane::Client, name::server_request(member));
    let etcdctl = Leaf { files: files::ETCDCTL, ..of_operator(cluster) };
    vec![
        leaf(files::PEER, Plane::Peer, peer_origin, None, vec![host, objects::member::peer_marker(cluster)]),
        leaf(files::SERVER, Plane::Client, server_origin, None, server),
        etcdctl,
    ]
}

/// Returns the operator's own certificate, which its Jobs and etcdctl in members use too.
pub(super) fn of_operator(cluster: &EtcdCluster) -> Leaf {
    let origin = match provider(cluster, Plane::Client) {
        Provider::Auto => Origin::Issued,
        Provider::Own => {
            let secret = cluster.spec.client_tls().and_then(|client| client.operator_client_secret_ref.as_ref());
            Origin::Copied(secret.map(|secret| secret.name.clone()).unwrap_or_default())
        }
        Provider::CertManager(_) => Origin::Copied(name::operator_request(cluster_name(cluster))),
    };
    leaf(files::CLIENT, Plane::Client, origin, Some(ROOT), vec![])
}

/// Returns the certificate for applications, where Holdfast's CA signs. Another CA's owner issues the certificates of applications.
pub(super) fn of_applications(cluster: &EtcdCluster) -> Option<Leaf> {
    is_auto(cluster, Plane::Client).then(|| leaf(files::CLIENT, Plane::Client, Origin::Issued, None, vec![]))
}

/// Returns the Secrets that certificates are copied from.
pub fn sources<'a>(cluster: &EtcdCluster, members: impl Iterator<Item = &'a EtcdMember>) -> BTreeSet<String> {
    let members = members.filter(|member| cluster.has_certificates() || member.spec.transport().has_certificates());
    let leaves = members.flat_map(|member| of_member(cluster, meta::name(&member.metadata), None));
    leaves.chain([of_operator(cluster)]).filter_map(|leaf| leaf.copied_from().map(str::to_owned)).collect()
}

/// Returns the Certificates for cert-manager: metadata and spec. Each names its Secret after itself.
pub fn requests<'a>(
    cluster: &EtcdCluster,
    members: impl Iterator<Item = &'a EtcdMember>,
    domain: Option<&String>,
) -> Vec<(ObjectMeta, Value)> {
    let request = |leaf: &Leaf, owned: ObjectMeta| {
        let (Provider::CertManager(issuer), Origin::Copied(name)) = (provider(cluster, leaf.plane), &leaf.origin)
        else {
            return None;
        };
        Some((ObjectMeta { name: Some(name.clone()), ..owned }, spec(leaf, name, issuer)))
    };
    let of_cluster = objects::owned_by_cluster(String::new(), cluster);
    let mut all: Vec<_> = request(&of_operator(cluster), of_cluster.clone()).into_iter().collect();
    for member in members.filter(|_| cluster.has_certificates()) {
        let owned = ObjectMeta { owner_references: Some(vec![objects::owner(member)]), ..of_cluster.clone() };
        let leaves = of_member(cluster, meta::name(&member.metadata), domain);
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
