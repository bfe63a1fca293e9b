//! `EtcdBackupStore`: one place for backups, named by many; probed, so that a wrong one is found before a backup needs it.
//!
//! Decides fields, defaults and what CEL refuses, and how a store becomes a place with credentials. Whether a store can be
//! used is found out by the agent and told by `plan::store`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::agent::Agent;
use crate::api::held::HeldUp;
use crate::api::name::{LocalRef, OBJECT_NAME};
use crate::api::store::{Location, Place};

/// One place for backups: where, how, and with which credentials.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "EtcdBackupStore",
    plural = "etcdbackupstores",
    shortname = "etcdstore",
    category = "etcd",
    namespaced,
    status = "EtcdBackupStoreStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "One place for backups: where, how, and with which credentials. Probed before anything is saved there.",
    printcolumn(name = "TYPE", type_ = "string", json_path = ".status.type"),
    printcolumn(name = "WHERE", type_ = "string", json_path = ".status.uri"),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(
        name = "PROBED",
        type_ = "date",
        json_path = ".status.probe.at",
        description = "when it was last found out what this store really does"
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.s3), has(self.azure), has(self.gcs), has(self.pvc)].exists_one(x, x)")
        .message("a store is exactly one of s3, azure, gcs and pvc"),
    validation = Rule::new("(!has(self.s3) || !has(self.s3.credentialsSecretRef)) && (!has(self.azure) || !has(self.azure.credentialsSecretRef)) && (!has(self.gcs) || !has(self.gcs.credentialsSecretRef))")
        .message("a store's Secrets are named in spec.credentials: leave credentialsSecretRef out"),
    validation = Rule::new("!has(self.pvc) || !has(self.credentials)")
        .message("a volume has no credentials: leave spec.credentials out"),
    validation = Rule::new("!has(self.azure) || has(self.azure.account) || has(self.credentials)")
        .message("azure needs account, or credentials with a Secret that names it")
)]
pub struct EtcdBackupStoreSpec {
    /// The place itself. May be edited: what is saved from then on goes there, and what was saved before stays where its
    /// `EtcdSnapshot` says. The same place has to stay the same store: see `status.identity`.
    #[serde(flatten)]
    pub place: Place,
    /// Secrets with credentials. Absent: what the Pods' surroundings provide (a role of their service account or node).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// The Pod that probes the store. Pods that save say their own in their `EtcdSnapshot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

/// Secrets of this namespace, by name, with the keys that `credentialsSecretRef` of the same kind of store would have. The
/// operator never asks for what is in them; they are mounted into agents' Pods as files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// To save: put, get, list and delete below `<prefix>/<namespace>/<cluster>/`, and get `<prefix>/holdfast-store.json`.
    /// To probe: put, get, list and delete below `<prefix>/` (the first probe leaves that mark).
    /// With a `read` of its own put alone will do to save. Then what is saved is not read back, whoever saves does not notice
    /// an exchanged store, and what probes and killed saves leave stays until a lifecycle rule of the bucket removes it.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub write: String,
    /// To restore and to look for what was saved: get and list below `<prefix>/`. Where it is another one than `write`, a
    /// probe reads with it what it has written with that one. Default: the one to save.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub read: Option<String>,
    /// To delete what is no longer kept: get, list and delete. Default: the one to save. That it exists is checked;
    /// nothing is deleted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub prune: Option<String>,
}

/// What somebody is going to do in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Save, or probe.
    Write,
    /// Restore, look for what was saved, or read what a probe has written.
    Read,
}

impl Credentials {
    /// Name of the Secret for this.
    pub fn secret(&self, right: Right) -> &str {
        match right {
            Right::Write => &self.write,
            Right::Read => self.read.as_deref().unwrap_or(&self.write),
        }
    }
}

/// An `EtcdBackupStore` as it was when it was used: a later edit of it does not lose what was saved before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreRecord {
    /// Name of the `EtcdBackupStore`.
    pub name: String,
    /// Where it was.
    #[serde(flatten)]
    pub place: Place,
    /// The Secrets it named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// Its mark, where that was known: nothing is saved to a store with another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl StoreRecord {
    /// The place, with the Secret for what is going to be done there. `None`: the store names no place, or more than one.
    pub fn location(&self, right: Right) -> Option<Location> {
        let named = self.credentials.as_ref().map(|c| LocalRef { name: c.secret(right).to_owned() });
        let mut location = self.place.location()?;
        match &mut location {
            Location::S3(s3) => s3.credentials_secret_ref = named,
            Location::Azure(azure) => azure.credentials_secret_ref = named,
            Location::Gcs(gcs) => gcs.credentials_secret_ref = named,
            Location::Pvc(_) => {}
        }
        Some(location)
    }
}

impl EtcdBackupStore {
    /// The store as it is now, whichever mark it has.
    pub fn record(&self) -> StoreRecord {
        StoreRecord {
            name: self.metadata.name.clone().unwrap_or_default(),
            place: self.spec.place.clone(),
            credentials: self.spec.credentials.clone(),
            id: None,
        }
    }
}

/// What the operator has observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStoreStatus {
    /// The generation of the spec this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `S3`, `Azure`, `GCS` or `PVC`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub kind: Option<String>,
    /// Where it is, without credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Which store this is, since a probe found it usable for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// What this store really does, and when that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// What keeps the Pods of the Job that probes the store from running; absent while a Pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up: Option<HeldUp>,
    /// `Ready`: a probe of what is asked for now has found that snapshots can be saved there and restored from there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Which store this is. Where the same names lead to another one, nothing is written and nothing removed there, until a
/// person names that one in the annotation `holdfast.dev/accept-store`, or the spec says another place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The mark at the store's root, `holdfast-store.json`.
    pub id: String,
    /// Stands for the place where it was found: bucket, prefix, endpoint and the like, without Secrets.
    pub place: String,
    /// The annotation `holdfast.dev/accept-store` as it was when the store was last found usable: it has had its effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
}

/// What a probe has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// When it ended (RFC 3339).
    pub at: String,
    /// Stands for the spec and the versions of the Secrets that were probed.
    pub inputs: String,
    /// Whether snapshots can be saved there and restored from there.
    pub usable: bool,
    /// Since when each probe of the same spec and the same Secrets has found it not usable (RFC 3339): what only a
    /// person can mend is tried the more rarely the longer it lasts. Absent where a Secret may not be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// Why not: `Config`, `Denied`, `NotFound`, `Corrupt`, `Transient`, `Full`, `Deadline`, `Refused` where it is another
    /// store than before, or `Crashed` where the agent ended without saying why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The origin of the failure, where the runbook depends on it: `Request`, `Store`, `Volume`, `Etcd`, `Own`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What was tried, and how it went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub trials: Vec<Tried>,
    /// The mark that was found at the store's root.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "storeID")]
    pub store_id: Option<String>,
    /// What could not be taken back: remove it by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<String>,
}

/// One thing that was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tried {
    /// What: `readAfterWrite`, `createOnly`, `listAfterWrite`, `multipart`, `versions`, `objectLock`, `delete`, `mark`.
    pub name: String,
    /// `Yes`: the store does it. `No`: it does not. `NotThere`: this kind of store has no such thing. `NotTried`: the
    /// probe had ended before.
    pub outcome: String,
    /// Whether nothing can be saved or restored without it.
    #[serde(default)]
    pub needed: bool,
    /// What was seen, and what follows from it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::store::{PvcLocation, S3Location};

    fn record(credentials: Option<Credentials>) -> StoreRecord {
        let s3 = S3Location { bucket: "b".to_owned(), ..S3Location::default() };
        StoreRecord { name: "s".to_owned(), place: Location::S3(s3).into(), credentials, id: None }
    }

    fn secret(record: &StoreRecord, right: Right) -> Option<String> {
        match record.location(right)? {
            Location::S3(s3) => s3.credentials_secret_ref.map(|secret| secret.name),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_reads_gets_what_reads() {
        let one = Credentials { write: "w".to_owned(), ..Credentials::default() };
        let two = Credentials { read: Some("r".to_owned()), ..one.clone() };
        assert_eq!(secret(&record(None), Right::Write), None);
        assert_eq!(secret(&record(Some(one.clone())), Right::Write).as_deref(), Some("w"));
        assert_eq!(secret(&record(Some(one)), Right::Read).as_deref(), Some("w"));
        assert_eq!(secret(&record(Some(two.clone())), Right::Write).as_deref(), Some("w"));
        assert_eq!(secret(&record(Some(two)), Right::Read).as_deref(), Some("r"));
        let volume = Location::Pvc(PvcLocation::default());
        let record = StoreRecord { place: volume.clone().into(), ..StoreRecord::default() };
        assert_eq!(record.location(Right::Read), Some(volume));
        assert_eq!(StoreRecord::default().location(Right::Read), None);
    }
}
