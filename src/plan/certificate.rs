//! Certificates as plans speak of them: what is wanted of one, and what is known of one that is there.
//!
//! Holds names, dates and fingerprints. No key and no certificate is ever in these types: `operator::tls` alone reads and
//! writes them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Target;
use crate::api::tls::Trusts;

/// Names of the data in Secrets.
pub mod files {
    use super::Files;

    /// A CA.
    pub const CA: Files = Files { ca: "tls.crt", certificate: "tls.crt", key: "tls.key" };
    /// A client's certificate, in the Secrets for the operator and for applications.
    pub const CLIENT: Files = Files { ca: "ca.crt", certificate: "tls.crt", key: "tls.key" };
    /// What a member shows to its peers.
    pub const PEER: Files = Files { ca: "peer-ca.crt", certificate: "peer.crt", key: "peer.key" };
    /// What a member shows to its clients.
    pub const SERVER: Files = Files { ca: "client-ca.crt", certificate: "server.crt", key: "server.key" };
    /// What etcdctl in a member's container shows.
    pub const ETCDCTL: Files = Files { ca: "client-ca.crt", certificate: "etcdctl.crt", key: "etcdctl.key" };
}

/// Where a certificate, its key and its CA are in a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// The CA that signed the certificate.
    pub ca: &'static str,
    /// The certificate.
    pub certificate: &'static str,
    /// The certificate's key.
    pub key: &'static str,
}

/// Who uses a certificate towards whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plane {
    /// Clients and servers.
    Client,
    /// Members among each other.
    Peer,
}

impl Plane {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Client, Self::Peer];

    /// What a member shows on this plane.
    pub const fn shown(self) -> Files {
        match self {
            Self::Client => files::SERVER,
            Self::Peer => files::PEER,
        }
    }

    /// The CA of this plane among those that a member trusts.
    pub const fn trusted(self, trusts: &Trusts) -> Option<&String> {
        match self {
            Self::Client => trusts.client.as_ref(),
            Self::Peer => trusts.peer.as_ref(),
        }
    }

    /// As in field names.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Peer => "peer",
        }
    }
}

/// Where a certificate comes from.
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
    /// Where it is put.
    pub files: Files,
    /// Whose CA signs it.
    pub plane: Plane,
    /// Where it comes from.
    pub origin: Origin,
    /// The subject's common name: etcd takes it for a user's.
    pub common_name: Option<String>,
    /// DNS names and IP addresses.
    pub names: Vec<String>,
}

impl Leaf {
    /// The Secret that the certificate is copied from.
    pub fn copied_from(&self) -> Option<&str> {
        match &self.origin {
            Origin::Issued => None,
            Origin::Copied(secret) => Some(secret),
        }
    }
}

/// What a Secret has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A new CA of its own.
    Ca(Plane),
    /// Certificates, and the CAs that signed them.
    Leaves {
        /// The certificates.
        leaves: Vec<Leaf>,
        /// Name of the CA's Secret and fingerprint of the CA that is to sign, for each plane.
        cas: BTreeMap<Plane, (String, String)>,
        /// Digest of the files that are to be copied, by the Secret they are copied from.
        copies: BTreeMap<String, String>,
    },
}

/// A Secret to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Issue {
    /// Name, namespace, labels and owner of the Secret.
    pub metadata: ObjectMeta,
    /// What it has to hold.
    pub contents: Contents,
    /// The Secret that this replaces the data of; `None` where there must not be one.
    pub replaces: Option<Target>,
}

/// A Secret of certificates as it is, without what is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The Secret.
    pub target: Target,
    /// UID of its controlling owner.
    pub owner: Option<String>,
    /// Whether it has our type.
    pub typed: bool,
    /// When Holdfast wrote it, as it says itself.
    pub written: Option<Timestamp>,
    /// Digest of all certificates in it.
    pub digest: String,
    /// Its certificates by the name of their file; with the flaw where one cannot be used.
    pub leaves: BTreeMap<&'static str, Result<Known, String>>,
}

/// A certificate whose key fits and that leads to the CA beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// SHA-256 of the certificate of the CA.
    pub ca: String,
    /// Digest of name and key of the CA: a CA that is renewed with its key stays the same.
    pub anchor: String,
    /// Digest of the files with the certificate and with the CA.
    pub contents: String,
    /// Whether a server may show it.
    pub for_servers: bool,
    /// Whether a client may show it.
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

impl Kept {
    /// A certificate of it, if it can be used.
    pub fn leaf(&self, files: Files) -> Option<&Known> {
        self.leaves.get(files.certificate)?.as_ref().ok()
    }
}

/// A Certificate of cert-manager's as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its spec.
    pub spec: serde_json::Value,
    /// Why it is not ready, in cert-manager's words.
    pub unready: Option<String>,
}

/// All that is known of the certificates of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Certificates {
    /// The CAs of Holdfast.
    pub cas: BTreeMap<Plane, Kept>,
    /// The Secrets that certificates are copied from, by name; with the flaw where one cannot be used. Absent ones are not there.
    pub sources: BTreeMap<String, Result<Known, String>>,
    /// What cert-manager was asked for, by name of the Certificate.
    pub requests: BTreeMap<String, Request>,
    /// Whether the API server serves cert-manager's kinds; `true` where nobody asks for them.
    pub cert_manager: bool,
    /// What stands where the operator's Secret belongs.
    pub operator: Option<Kept>,
    /// What stands where the applications' Secret belongs.
    pub client: Option<Kept>,
    /// What stands where the CA's `ConfigMap` belongs: metadata, and fingerprint of the CA in it.
    pub bundle: Option<(ObjectMeta, Option<String>)>,
    /// The members' Secrets, by name of the member.
    pub members: BTreeMap<String, Kept>,
    /// Members that were given new certificates while their Pod ran, and that do not show them yet.
    pub unserved: Vec<String>,
}
