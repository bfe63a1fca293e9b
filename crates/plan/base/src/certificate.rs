//! Certificates in plans: those that the cluster needs, and facts of those that exist.
//!
//! Holds names, dates and fingerprints. No key and no certificate is ever in these types: `operator::tls` alone reads and
//! writes them.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::tls::Trusts;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Target;

/// The user of the operator's certificate: etcd's user that may do everything (etcd: `rootUser`).
pub const ROOT: &str = "root";

/// Names of the data in Secrets.
pub mod files {
    use super::Files;

    /// A CA.
    pub const CA: Files = Files { ca: "tls.crt", certificate: "tls.crt", key: "tls.key" };
    /// The CA that follows, beside the CA that signs.
    pub const NEXT: Files = Files { ca: "next.crt", certificate: "next.crt", key: "next.key" };
    /// A client's certificate, in the Secrets for the operator and for applications.
    pub const CLIENT: Files = Files { ca: "ca.crt", certificate: "tls.crt", key: "tls.key" };
    /// The certificate that a member shows to its peers.
    pub const PEER: Files = Files { ca: "peer-ca.crt", certificate: "peer.crt", key: "peer.key" };
    /// The certificate that a member shows to its clients.
    pub const SERVER: Files = Files { ca: "client-ca.crt", certificate: "server.crt", key: "server.key" };
    /// The certificate that etcdctl in a member's container shows.
    pub const ETCDCTL: Files = Files { ca: "client-ca.crt", certificate: "etcdctl.crt", key: "etcdctl.key" };
}

/// File names of a certificate, its key and its CA in a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// The CA that signed the certificate.
    pub ca: &'static str,
    /// The certificate.
    pub certificate: &'static str,
    /// The certificate's key.
    pub key: &'static str,
}

/// Users of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plane {
    /// Clients and servers.
    Client,
    /// Members among each other.
    Peer,
}

impl Plane {
    /// Both planes.
    pub const ALL: [Self; 2] = [Self::Client, Self::Peer];

    /// Returns the files that a member shows on this plane.
    pub const fn shown(self) -> Files {
        match self {
            Self::Client => files::SERVER,
            Self::Peer => files::PEER,
        }
    }

    /// Returns the CA of this plane that a member trusts.
    pub const fn trusted(self, trusts: &Trusts) -> Option<&String> {
        match self {
            Self::Client => trusts.client.as_ref(),
            Self::Peer => trusts.peer.as_ref(),
        }
    }

    /// Returns the plane's name in field names.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Peer => "peer",
        }
    }
}

/// Source of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Holdfast makes a key, and the plane's CA signs.
    Issued,
    /// Holdfast copies certificate, key and CA from this Secret, which a person or cert-manager writes.
    Copied(String),
}

/// A certificate that a Secret has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The files in the Secret.
    pub files: Files,
    /// The plane, whose CA signs the certificate.
    pub plane: Plane,
    /// The source.
    pub origin: Origin,
    /// The subject's common name, which etcd uses as the user's name.
    pub common_name: Option<String>,
    /// DNS names and IP addresses.
    pub names: Vec<String>,
}

impl Leaf {
    /// Returns the Secret that the certificate is copied from.
    pub fn copied_from(&self) -> Option<&str> {
        match &self.origin {
            Origin::Issued => None,
            Origin::Copied(secret) => Some(secret),
        }
    }
}

/// Contents that a Secret has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A new CA.
    Ca {
        /// The plane.
        plane: Plane,
        /// The request of a person that the CA answers.
        request: Option<String>,
    },
    /// A CA that follows the CA of this plane, and signs nothing yet.
    NextCa {
        /// The plane.
        plane: Plane,
        /// The request of a person that the CA answers.
        request: Option<String>,
    },
    /// The CA that follows signs from now on.
    PromoteCa {
        /// The plane.
        plane: Plane,
        /// Fingerprint of the CA that follows.
        next: String,
    },
    /// Certificates, and the CAs that signed them.
    Leaves {
        /// The certificates to write. Other certificates of the Secret stay as they are.
        leaves: Vec<Leaf>,
        /// The CAs of each file of CAs, and where the certificate of each CA stands.
        trusts: BTreeMap<&'static str, Vec<CaPlace>>,
        /// Name of the CA's Secret and fingerprint of the CA that has to sign, for each plane.
        cas: BTreeMap<Plane, (String, String)>,
        /// Digest of the files to copy, by the Secret that they are copied from.
        copies: BTreeMap<String, String>,
        /// Whether a certificate comes from another CA than before.
        exchanges: bool,
    },
}

/// Place of a CA's certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaPlace {
    /// SHA-256 of the CA's certificate.
    pub fingerprint: String,
    /// The Secret.
    pub secret: String,
    /// The file in the Secret.
    pub file: &'static str,
}

impl CaPlace {
    /// Whether a file with these fingerprints holds exactly the CAs of these places.
    pub fn are_in_file<'a>(places: &'a [Self], file: impl IntoIterator<Item = &'a String>) -> bool {
        let file: BTreeSet<&String> = file.into_iter().collect();
        file == places.iter().map(|place| &place.fingerprint).collect()
    }
}

/// A Secret to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Issue {
    /// Name, namespace, labels and owner of the Secret.
    pub metadata: ObjectMeta,
    /// Contents that the Secret has to hold.
    pub contents: Contents,
    /// The Secret whose data Holdfast replaces; `None` if the Secret must not exist yet.
    pub replaces: Option<Target>,
}

/// An existing Secret of certificates, without its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The Secret.
    pub target: Target,
    /// UID of its controlling owner.
    pub owner: Option<String>,
    /// Whether the Secret has Holdfast's type.
    pub typed: bool,
    /// When Holdfast wrote the Secret, from its annotation.
    pub written: Option<Timestamp>,
    /// The request that the CA in the Secret, or the CA that follows, answers: from an annotation.
    pub rotated_for: Option<String>,
    /// When Holdfast last wrote a certificate of another CA than before, from an annotation.
    pub exchanged: Option<Timestamp>,
    /// Digest of all certificates in the Secret.
    pub digest: String,
    /// The certificates by the name of their file; with the flaw of an unusable certificate.
    pub leaves: BTreeMap<&'static str, Result<Known, String>>,
}

/// The longest time before its end at which a certificate counts as not renewed.
const WARN_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 30);

/// A CA in a file of CAs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ca {
    /// Digest of name and key: a CA that is renewed with the same key keeps its anchor.
    pub anchor: String,
    /// End of the certificate.
    pub not_after: Timestamp,
    /// SHA-256 of the certificate.
    pub fingerprint: String,
}

/// A certificate with a matching key, signed by the CA beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// SHA-256 of the certificate of the CA.
    pub ca: String,
    /// Digest of name and key of the CA: a CA that is renewed with the same key keeps its anchor.
    pub anchor: String,
    /// The CAs in the file beside the certificate.
    pub cas: Vec<Ca>,
    /// Digest of the files with the certificate and with the CA.
    pub contents: String,
    /// Whether a server may show the certificate.
    pub for_servers: bool,
    /// Whether a client may show the certificate.
    pub for_clients: bool,
    /// The subject's common name.
    pub common_name: Option<String>,
    /// DNS names and IP addresses.
    pub names: Vec<String>,
    /// Begin of its validity.
    pub not_before: Timestamp,
    /// End of its validity, or of a CA above it that ends earlier.
    pub not_after: Timestamp,
}

impl Known {
    /// Returns the fingerprints of the CAs in the file beside the certificate.
    pub fn fingerprints_of_cas(&self) -> impl Iterator<Item = &String> {
        self.cas.iter().map(|ca| &ca.fingerprint)
    }

    /// Returns when a certificate that Holdfast issues is due for renewal: at two thirds of its life.
    pub fn renewed_at(&self) -> Timestamp {
        self.not_before + self.not_after.duration_since(self.not_before) / 3 * 2
    }

    /// Whether less than a sixth of the certificate's life is left, or it is not valid yet.
    pub fn ends_at_once(&self, now: Timestamp) -> bool {
        let remaining = self.not_after.duration_since(now);
        now < self.not_before || remaining * 6 < self.not_after.duration_since(self.not_before)
    }

    /// Whether the certificate missed its renewal: a certificate of 90 days counts 20 days before its end, a longer one 30 days.
    pub fn ends_soon(&self, now: Timestamp) -> bool {
        let life = self.not_after.duration_since(self.not_before);
        now >= self.not_after - (life / 9 * 2).min(WARN_BEFORE)
    }
}

impl Kept {
    /// Whether the Secret has Holdfast's type, and the object of this UID controls it.
    pub fn belongs_to(&self, uid: &str) -> bool {
        self.typed && self.owner.as_deref() == Some(uid)
    }

    /// Returns a certificate of the Secret, if usable.
    pub fn leaf(&self, files: Files) -> Option<&Known> {
        self.leaves.get(files.certificate)?.as_ref().ok()
    }

    /// Returns the earliest end of a usable certificate of the Secret.
    pub fn earliest_end(&self) -> Option<Timestamp> {
        self.leaves.values().filter_map(|leaf| Some(leaf.as_ref().ok()?.not_after)).min()
    }
}

/// An existing Certificate of cert-manager.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its spec.
    pub spec: serde_json::Value,
    /// Whether cert-manager issues it now.
    pub issuing: bool,
    /// Why the Certificate is not ready, in cert-manager's words.
    pub unready: Option<String>,
}

/// Facts about the certificates of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Certificates {
    /// Holdfast's CAs.
    pub cas: BTreeMap<Plane, Kept>,
    /// The Secrets that certificates are copied from, by name; with the flaw of an unusable certificate. Missing Secrets are
    /// absent.
    pub sources: BTreeMap<String, Result<Known, String>>,
    /// The Certificates for cert-manager, by name.
    pub requests: BTreeMap<String, Request>,
    /// Whether the API server serves cert-manager's kinds; `true` where no cluster needs them.
    pub cert_manager: bool,
    /// The Secret under the name of the operator's Secret, of any owner.
    pub operator: Option<Kept>,
    /// The Secret under the name of the applications' Secret, of any owner.
    pub client: Option<Kept>,
    /// The object under the name of the CA's `ConfigMap`, of any owner: metadata, and fingerprints of the CAs.
    pub bundle: Option<(ObjectMeta, Vec<String>)>,
    /// The members' Secrets, by name of the member.
    pub members: BTreeMap<String, Kept>,
    /// Members that got new certificates while their Pod ran, and that do not show them yet.
    pub unserved: Vec<String>,
    /// The CAs, by their anchors, of which a member has accepted a certificate in a handshake. The operator asks only about a CA
    /// that the member is not known to trust, and only after its Pod was made with this CA.
    pub accepted: BTreeMap<String, BTreeSet<(Plane, String)>>,
    /// The certificates of `EtcdUser`s of this cluster.
    pub users: Vec<UserCertificate>,
}

/// The certificate of an `EtcdUser`, from its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserCertificate {
    /// Name of the `EtcdUser`.
    pub name: String,
    /// Anchor of the CA that signed the certificate.
    pub signed_by: Option<String>,
    /// Anchors of the CAs beside the certificate.
    pub trusts: Vec<String>,
}

impl Certificates {
    /// Whether a member has accepted a certificate of this CA in a handshake.
    pub fn has_accepted(&self, member: &str, plane: Plane, anchor: &str) -> bool {
        self.accepted.get(member).is_some_and(|accepted| accepted.contains(&(plane, anchor.to_owned())))
    }
}
