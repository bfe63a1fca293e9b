//! Transport security of a cluster: where its certificates come from, and what is reported of them.
//!
//! Decides fields and what CEL refuses. Which certificate is issued when is decided in `plan::cluster::tls`.

use std::net::IpAddr;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{LocalRef, OBJECT_NAME};

/// Type of every Secret that the operator writes. A Secret's type is immutable, so the admission policy can tell these
/// Secrets from those of other writers.
pub const SECRET_TYPE: &str = "holdfast.dev/tls";

/// Transport security. A plane that is left out uses certificates that Holdfast issues and renews.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.insecure) || !self.insecure || (!has(self.client) && !has(self.peer))").message(
    "tls.insecure: true means plaintext on both planes: remove tls.client and tls.peer, or remove tls.insecure"
))]
pub struct Tls {
    /// Whether members and clients communicate in plaintext. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
    /// Certificates towards clients. Default: `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientPlane>,
    /// Certificates of the members towards each other. Default: `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerPlane>,
}

/// Certificates towards clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "(has(self.auto) ? 1 : 0) + (has(self.serverSecretRef) ? 1 : 0) + (has(self.certManager) ? 1 : 0) <= 1"
    ).message("tls.client has several sources: keep one of auto, serverSecretRef and certManager"),
    validation = Rule::new("has(self.serverSecretRef) == has(self.operatorClientSecretRef)").message(
        "tls.client.serverSecretRef and operatorClientSecretRef belong together: the operator and its Jobs connect with the latter"
    ),
    validation = Rule::new("!has(self.serverSecretRef) || !has(self.additionalNames)").message(
        "tls.client.additionalNames is for certificates that are issued: put the names into your own certificate"
    )
)]
pub struct ClientPlane {
    /// Holdfast issues the certificates from a CA of this cluster (Secret `<cluster>-client-ca`) and renews them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<Auto>,
    /// Secret with your own server certificate, one for all members: `tls.crt`, `tls.key`, and in `ca.crt` the CA that signs
    /// the certificates of servers and clients. The certificate needs the DNS names `*.CLUSTER.NAMESPACE.svc` and
    /// `CLUSTER-client.NAMESPACE.svc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_secret_ref: Option<LocalRef>,
    /// Secret with your own client certificate for the operator and its Jobs: `tls.crt`, `tls.key`, `ca.crt`; of the same CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_client_secret_ref: Option<LocalRef>,
    /// cert-manager issues the certificates of the members and of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<CertManager>,
    /// DNS names and IP addresses for the server certificates besides those of the members and the client Service, at most
    /// 16, such as the name of a load balancer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9*][A-Za-z0-9.:_-]*$"))
    )]
    pub additional_names: Vec<String>,
    /// Seconds that applications have to read a changed file of CAs, and later a changed certificate, while the CA of this plane is
    /// exchanged. Default: 86400, a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub rotation_grace_seconds: Option<u32>,
    /// Whether members also serve clients that connect in plaintext, on the same port. The way from `insecure` to TLS and back:
    /// clients move while both work. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_plaintext: Option<bool>,
}

/// Whether a name in a certificate is an IP address.
pub fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok()
}

impl ClientPlane {
    /// The additional names, addresses as certificates spell them.
    pub fn spelt_names(&self) -> Vec<String> {
        let spelt = |name: &String| name.parse::<IpAddr>().map_or_else(|_| name.clone(), |ip| ip.to_string());
        self.additional_names.iter().map(spelt).collect()
    }
}

/// Certificates of the members towards each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "(has(self.auto) ? 1 : 0) + (has(self.secretRef) ? 1 : 0) + (has(self.certManager) ? 1 : 0) <= 1"
    ).message("tls.peer has several sources: keep one of auto, secretRef and certManager"),
    validation = Rule::new("!has(self.allowedHostname) || has(self.secretRef)").message(
        "tls.peer.allowedHostname is for your own certificate: remove the field, or set secretRef"
    )
)]
pub struct PeerPlane {
    /// Holdfast issues the certificates from a CA of this cluster (Secret `<cluster>-peer-ca`) and renews them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<Auto>,
    /// Secret with your own certificate, one for all members: `tls.crt`, `tls.key`, and in `ca.crt` the CA. The certificate
    /// needs the DNS name `*.CLUSTER.NAMESPACE.svc` and the usages of servers and of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
    /// DNS name that your certificate holds and no other certificate of its CA: members accept no peer without this name.
    /// Default: `peer.CLUSTER.NAMESPACE.svc`, which `*.CLUSTER.NAMESPACE.svc` covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"))]
    pub allowed_hostname: Option<String>,
    /// cert-manager issues the certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<CertManager>,
}

/// Certificates that cert-manager issues and renews. Holdfast creates a Certificate for each member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertManager {
    /// Issuer of the certificates. It has to be one that puts its CA into `ca.crt` of the Secrets, such as a `ca` or `vault`
    /// issuer, and signs for servers and clients.
    pub issuer_ref: IssuerRef,
}

/// An issuer of cert-manager's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuerRef {
    /// Name of the issuer.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
    /// `Issuer`, `ClusterIssuer`, or a kind of an external issuer. Default: `Issuer`, in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// API group of the issuer. Default: `cert-manager.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub group: Option<String>,
}

/// Certificates that Holdfast issues: a CA for each plane, valid for ten years, and certificates for 90 days, renewed after
/// 60 days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Auto {}

/// Certificates of one member. Absent on a member that never had any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberTls {
    /// DNS name without which the member accepts no peer. Default: `peer.CLUSTER.NAMESPACE.svc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_name: Option<String>,
    /// Digest of the certificates that the operator last wrote to the Secret `<member>-tls`. The operator creates the Pod only
    /// after this write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
    /// CAs that the member's etcd is known to trust. The operator writes no certificate of another CA.
    #[serde(default, skip_serializing_if = "Trusts::is_empty")]
    pub trusts: Trusts,
    /// Digest of the CAs in these files. etcd loads them when it starts, so a Pod that was made with other CAs ends in its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cas: Option<String>,
    /// Fingerprint of `spec.tls` of the cluster when the operator created the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_for: Option<String>,
}

/// CAs that a member trusts: digests of their names and keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trusts {
    /// CA of the certificates towards clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// CA of the members' certificates towards each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

impl Trusts {
    /// Whether nothing is known.
    pub const fn is_empty(&self) -> bool {
        self.client.is_none() && self.peer.is_none()
    }
}

/// State of the certificates of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsStatus {
    /// Earliest end of a certificate of this cluster (RFC 3339), CAs included.
    pub earliest_expiry: String,
    /// Certificates towards clients.
    pub client: PlaneStatus,
    /// Certificates of the members towards each other.
    pub peer: PlaneStatus,
}

/// Step of the exchange of a CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Rotation {
    /// Members start with the next CA beside the present one.
    Trusting,
    /// Applications read the next CA.
    Waiting,
    /// Certificates come from the next CA.
    Issuing,
    /// Applications read the new certificates, then members start without the earlier CA.
    Retiring,
}

/// State of the certificates of one plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaneStatus {
    /// Source of the certificates: `Auto`, `Secret` or `CertManager`.
    pub provider: String,
    /// Why the source's newest certificate is not used. Members go on with the certificates they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Step of the exchange of the CA: `Trusting` (members start with the next CA beside the present one), `Waiting` (applications
    /// read the next CA), `Issuing` (certificates come from the next CA), `Retiring` (members start without the earlier CA). Absent
    /// while no CA is exchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
    /// The token of the annotation `holdfast.dev/rotate-ca` that was answered last; absent where the CA is not Holdfast's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated_for: Option<String>,
    /// Whether a connection needs a certificate on both sides.
    pub mutual: bool,
    /// Earliest end of a certificate (RFC 3339), the CA's excluded.
    pub not_after: String,
    /// End of the CA (RFC 3339); absent where the CA is not Holdfast's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_not_after: Option<String>,
}
