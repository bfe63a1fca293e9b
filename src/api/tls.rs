//! Transport security of a cluster: where its certificates come from, and what is reported of them.
//!
//! Decides fields and what CEL refuses. Which certificate is issued when is decided in `plan::cluster::tls`.

use std::net::IpAddr;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type of every Secret that the operator writes. A Secret's type is immutable, so the admission policy can tell these
/// Secrets from everybody else's.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientPlane {
    /// Holdfast issues the certificates from a CA of this cluster (Secret `<cluster>-client-ca`) and renews them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<Auto>,
    /// DNS names and IP addresses for the server certificates besides those of the members and the client Service, at most
    /// 16, such as the name of a load balancer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9*][A-Za-z0-9.:_-]*$"))
    )]
    pub additional_names: Vec<String>,
}

impl ClientPlane {
    /// The additional names, addresses as certificates spell them.
    pub fn spelt_names(&self) -> Vec<String> {
        let spelt = |name: &String| name.parse::<IpAddr>().map_or_else(|_| name.clone(), |ip| ip.to_string());
        self.additional_names.iter().map(spelt).collect()
    }
}

/// Certificates of the members towards each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerPlane {
    /// Holdfast issues the certificates from a CA of this cluster (Secret `<cluster>-peer-ca`) and renews them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<Auto>,
}

/// Certificates that Holdfast issues: a CA for each plane, valid for ten years, and certificates for 90 days, renewed after
/// 60 days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Auto {}

/// TLS of one member. Absent on a member that serves plaintext.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberTls {
    /// Digest of the certificates that the operator last wrote to the Secret `<member>-tls`. The operator creates the Pod only
    /// after this write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
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

/// State of the certificates of one plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaneStatus {
    /// Source of the certificates: `Auto`.
    pub provider: String,
    /// Whether a connection needs a certificate on both sides.
    pub mutual: bool,
    /// Earliest end of a certificate (RFC 3339), the CA's excluded.
    pub not_after: String,
    /// End of the CA (RFC 3339).
    pub ca_not_after: String,
}
