//! `EtcdUser`: a user of one etcd cluster with a role of the same name, so that an application's chart brings its own user.
//!
//! Decides fields, defaults and what CEL refuses. `crates/plan/users` decides when etcd gets the user.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{LocalRef, OBJECT_NAME};

/// Names that etcd accepts for users and roles, as far as they fit into a certificate.
const USER_NAME: &str = "^[A-Za-z0-9]([-A-Za-z0-9._@:]*[A-Za-z0-9])?$";

/// A user of an etcd cluster, and the keys that this user reads and writes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "EtcdUser",
    plural = "etcdusers",
    shortname = "etcduser",
    category = "etcd",
    namespaced,
    status = "EtcdUserStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A user of an etcd cluster, and the keys that this user reads and writes. Holdfast makes the user and a role of the same name.",
    printcolumn(name = "CLUSTER", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "KEYS", type_ = "string", json_path = ".status.keys"),
    printcolumn(
        name = "CERT UNTIL",
        type_ = "string",
        json_path = ".status.certificateNotAfter",
        description = "end of the user's certificate; empty with a password"
    ),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("has(self.spec.name) || (self.metadata.name != 'root' && self.metadata.name.size() <= 64)")
        .message("set spec.name: the name of the object is root or longer than 64 characters"),
    validation = Rule::new("self.metadata.name.size() <= 200").message("the name has at most 200 characters: a Secret's name contains it"),
    validation = Rule::new("(has(self.spec.name) ? self.spec.name : self.metadata.name) == (has(oldSelf.spec.name) ? oldSelf.spec.name : self.metadata.name)")
        .message("spec.name is immutable: create another EtcdUser"),
    validation = Rule::new("self.spec.clusterRef == oldSelf.spec.clusterRef")
        .message("spec.clusterRef is immutable: create another EtcdUser")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.certificate) != has(self.passwordSecretRef)")
        .message("a user logs in by exactly one of certificate and passwordSecretRef"),
    validation = Rule::new("has(self.certificate) == has(oldSelf.certificate)")
        .message("a certificate stays valid until its end: to log in in another way, create another EtcdUser")
)]
pub struct EtcdUserSpec {
    /// The `EtcdCluster`.
    pub cluster_ref: LocalRef,
    /// Name of the user and of its role in etcd; default: the name of this object. `root` is the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = USER_NAME))]
    #[x_kube(validation = Rule::new("self != 'root'").message("spec.name: the user root is the operator's"))]
    pub name: Option<String>,
    /// Keys that the user reads and writes. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub permissions: Vec<Permission>,
    /// The user logs in by a certificate with its name as common name, in the Secret `<name of this object>-etcd-tls` (`ca.crt`,
    /// `tls.crt`, `tls.key`). Holdfast renews it. For clusters whose client certificates Holdfast issues (`tls.client.auto`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<UserCertificate>,
    /// The user logs in by the password in this Secret. Holdfast changes the password in etcd within five minutes after a change
    /// of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_secret_ref: Option<PasswordRef>,
    /// Whether Holdfast changes a user and a role of this name that etcd has already, such as those of a restored snapshot. Default:
    /// false, and the condition says `NameTaken`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take_over: bool,
    /// Fate of the user and the role in etcd when this object is deleted. Default: `Delete`.
    #[serde(default)]
    pub reclaim_policy: ReclaimPolicy,
}

/// A certificate that Holdfast issues. It has no settings yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserCertificate {}

/// A password in a Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PasswordRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
    /// Key of the password in the Secret; default `password`.
    #[serde(default = "password")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn password() -> String {
    "password".to_owned()
}

/// Keys, and what the user may do with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(self.match == 'Range') == has(self.rangeEnd)")
        .message("rangeEnd belongs to match Range, and match Range needs rangeEnd"),
    validation = Rule::new("!has(self.rangeEnd) || self.key < self.rangeEnd")
        .message("rangeEnd is the first key behind the range: it comes after key"),
    validation = Rule::new("self.match == 'Prefix' || self.key.size() > 0")
        .message("an empty key belongs to match Prefix: it is the prefix of all keys")
)]
pub struct Permission {
    /// The key, the prefix, or the first key of the range. An empty prefix is the prefix of all keys.
    #[schemars(length(max = 1024))]
    pub key: String,
    /// Which keys are meant; default `Exact`.
    #[serde(default, rename = "match")]
    pub matching: Matching,
    /// The first key behind the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub range_end: Option<String>,
    /// Access of the user.
    pub access: KeyAccess,
}

/// Which keys a permission means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Matching {
    /// One key.
    #[default]
    Exact,
    /// All keys that begin with `key`.
    Prefix,
    /// The keys from `key` to `rangeEnd`, without the latter.
    Range,
}

/// Access to keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum KeyAccess {
    /// Read and watch.
    #[default]
    Read,
    /// Put and delete.
    Write,
    /// Both.
    ReadWrite,
}

/// Fate of a user in etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimPolicy {
    /// Holdfast deletes the user and its role in etcd.
    #[default]
    Delete,
    /// The user and its role stay in etcd.
    Retain,
}

/// Observed state of an `EtcdUser`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdUserStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The first permission in short, as etcd has it, and the number of the others: `rw /shop/* +1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// End of the user's certificate (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_not_after: Option<String>,
    /// CA that signed the certificate: digest of its name and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// CAs of the servers in the Secret of the certificate: digests of their names and keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusts: Vec<String>,
    /// `Ready`: the user can log in, and may do what `permissions` say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl EtcdUser {
    /// Name of the user and of its role in etcd.
    pub fn user_name(&self) -> &str {
        self.spec.name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

impl Permission {
    /// Returns key and end of the range as etcd has them (etcd: `RangeRequest`): no end for one key, `\0` for all keys from the
    /// first one on.
    pub fn range(&self) -> (Vec<u8>, Vec<u8>) {
        let key = self.key.as_bytes().to_vec();
        match self.matching {
            Matching::Exact => (key, vec![]),
            Matching::Range => (key, self.range_end.clone().unwrap_or_default().into_bytes()),
            Matching::Prefix if key.is_empty() => (vec![0], vec![0]),
            Matching::Prefix => {
                // UTF-8 has no byte 255, so the last byte has a successor.
                let mut end = key.clone();
                if let Some(last) = end.last_mut() {
                    *last = last.saturating_add(1);
                }
                (key, end)
            }
        }
    }

    /// Returns the permission in short.
    pub fn in_short(&self) -> String {
        let access = match self.access {
            KeyAccess::Read => "r",
            KeyAccess::Write => "w",
            KeyAccess::ReadWrite => "rw",
        };
        match self.matching {
            Matching::Exact => format!("{access} {}", self.key),
            Matching::Prefix => format!("{access} {}*", self.key),
            Matching::Range => format!("{access} {}..{}", self.key, self.range_end.as_deref().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_has_etcds_range() {
        let of = |key: &str, matching, range_end: Option<&str>| {
            let range_end = range_end.map(str::to_owned);
            Permission { key: key.to_owned(), matching, range_end, access: KeyAccess::ReadWrite }
        };
        for (permission, key, end, short) in [
            (of("/a", Matching::Exact, None), "/a", "", "rw /a"),
            (of("/a/", Matching::Prefix, None), "/a/", "/a0", "rw /a/*"),
            (of("", Matching::Prefix, None), "\0", "\0", "rw *"),
            (of("/a", Matching::Range, Some("/c")), "/a", "/c", "rw /a../c"),
        ] {
            assert_eq!(permission.range(), (key.as_bytes().to_vec(), end.as_bytes().to_vec()), "{short}");
            assert_eq!(permission.in_short(), short);
        }
    }
}
