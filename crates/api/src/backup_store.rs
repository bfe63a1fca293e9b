//! `EtcdBackupStore`: one place for backups, named by many; probed, so that a wrong one is found before a backup needs it.
//!
//! Decides fields, defaults and what CEL refuses, and how a store becomes a place with credentials. The agent finds out
//! whether a store can be used, and `plan::store` reports the result.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::blocked_pod::BlockedPod;
use crate::name::{LocalRef, OBJECT_NAME};
use crate::store::{Location, Place};

/// A store for backups: location, options and credentials.
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
    doc = "A store for backups: location, options and credentials. The operator probes the store before the first save.",
    printcolumn(name = "TYPE", type_ = "string", json_path = ".status.type"),
    printcolumn(name = "WHERE", type_ = "string", json_path = ".status.uri"),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(
        name = "PROBED",
        type_ = "date",
        json_path = ".status.probe.at",
        description = "time of the last probe"
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.s3), has(self.azure), has(self.gcs), has(self.pvc)].exists_one(x, x)")
        .message("a store is exactly one of s3, azure, gcs and pvc"),
    validation = Rule::new("(!has(self.s3) || !has(self.s3.credentialsSecretRef)) && (!has(self.azure) || !has(self.azure.credentialsSecretRef)) && (!has(self.gcs) || !has(self.gcs.credentialsSecretRef))")
        .message("name the Secrets of a store in spec.credentials: leave credentialsSecretRef out"),
    validation = Rule::new("!has(self.pvc) || !has(self.credentials)")
        .message("a pvc store has no credentials: leave spec.credentials out"),
    validation = Rule::new("!has(self.azure) || has(self.azure.account) || has(self.credentials)")
        .message("azure needs account, or credentials with a Secret that has the key accountName")
)]
pub struct EtcdBackupStoreSpec {
    /// Location of the store. After an edit, new snapshots go to the new location, and earlier snapshots stay where
    /// their `EtcdSnapshot` records them. One location has to keep one store ID: see `status.identity`.
    #[serde(flatten)]
    pub place: Place,
    /// Secrets with the store's credentials. Default: the identity of the Pod's ServiceAccount or of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// Settings of the Pod that probes the store. For Pods that save, set `spec.agent` of the `EtcdSnapshot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

/// Names of Secrets in this namespace, with the keys that `credentialsSecretRef` of the same kind of store needs. The
/// operator never reads their data; kubelet mounts the Secrets into the agents' Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// Secret for saves (put, get, list and delete below `<prefix>/<namespace>/<cluster>/`, and get on
    /// `<prefix>/holdfast-store.json`) and for probes (put, get, list and delete below `<prefix>/`). Beside a separate
    /// `read` Secret, put alone is enough. The agent then neither reads snapshots back nor detects an exchanged store,
    /// and a lifecycle rule of the bucket has to remove the objects that probes and saves leave.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub write: String,
    /// Secret for restores, drills and searches of the store: get and list below `<prefix>/`, and for the proofs of drills
    /// put below `<prefix>/<namespace>/<cluster>/`. When this Secret differs from
    /// `write`, a probe reads with `read` the objects that the probe wrote with `write`. Default: `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub read: Option<String>,
    /// Secret for removing the snapshots that `spec.retention` of an `EtcdSnapshotSchedule` does not keep: get, list, put
    /// and delete below `<prefix>/<namespace>/<cluster>/`, and get on `<prefix>/holdfast-store.json`. Default: `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub prune: Option<String>,
}

/// An operation in a store that needs credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Save, or probe.
    Write,
    /// Restore, search, or read the objects of a probe.
    Read,
    /// Remove snapshots.
    Prune,
}

impl Credentials {
    /// Name of the Secret for this.
    pub fn secret(&self, right: Right) -> &str {
        match right {
            Right::Write => &self.write,
            Right::Read => self.read.as_deref().unwrap_or(&self.write),
            Right::Prune => self.prune.as_deref().unwrap_or(&self.write),
        }
    }
}

/// An `EtcdBackupStore` at the time of its use, so that a later edit does not lose earlier snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreRecord {
    /// Name of the `EtcdBackupStore`.
    pub name: String,
    /// Location at that time.
    #[serde(flatten)]
    pub place: Place,
    /// Names of its Secrets at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// Store ID, if known at that time. The agent saves nothing to a store with another store ID.
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
    /// The store as it is now, with any store ID.
    pub fn record(&self) -> StoreRecord {
        StoreRecord {
            name: self.metadata.name.clone().unwrap_or_default(),
            place: self.spec.place.clone(),
            credentials: self.spec.credentials.clone(),
            id: None,
        }
    }
}

/// State that the operator last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStoreStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Kind of store: `S3`, `Azure`, `GCS` or `PVC`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub kind: Option<String>,
    /// URI of the store, without credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Identity of the store, recorded by the first probe that found the store usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Result of the last probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The cause that keeps the Pods of the Job that probes the store from running; absent while a Pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up: Option<BlockedPod>,
    /// `Ready`: a probe of the current spec found that snapshots can be saved to this store and restored from this
    /// store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Identity of a store. When the location has another store ID later, Holdfast writes and removes nothing there, until
/// a person accepts the new store ID in the annotation `holdfast.dev/accept-store`, or the spec names another location.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Store ID, from `holdfast-store.json` at the store's root.
    pub id: String,
    /// Fingerprint of the location with this store ID: bucket, prefix, endpoint and the like, without Secrets.
    pub place: String,
    /// Annotation `holdfast.dev/accept-store` at the time of the last successful probe. The operator does not apply
    /// this value again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
}

/// Result of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// End of the probe (RFC 3339).
    pub at: String,
    /// Fingerprint of the probed spec and of the versions of its Secrets.
    pub inputs: String,
    /// Whether snapshots can be saved to this store and restored from this store.
    pub usable: bool,
    /// First of the consecutive failed probes of this spec and these Secrets (RFC 3339). The longer an error lasts that
    /// only a person can fix, the less often the operator probes. Absent when the operator may not look up a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// Class of the error: `Config`, `Denied`, `NotFound`, `Corrupt`, `Transient`, `Full`, `Deadline`, `Refused`
    /// (another store ID than before), or `Crashed` (the agent ended without a report). Absent when usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Origin of the error, if the runbook depends on the origin: `Request`, `Store`, `Volume`, `Etcd` or `Own`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Message of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Trials of the probe, with their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub trials: Vec<Tried>,
    /// Store ID that the probe found at the store's root.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "storeID")]
    pub store_id: Option<String>,
    /// URI of a folder that remains: remove the folder by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<String>,
}

/// One trial of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tried {
    /// Trial: `readAfterWrite`, `createOnly`, `listAfterWrite`, `multipart`, `versions`, `objectLock`, `delete`, `mark`
    /// (the store ID).
    pub name: String,
    /// `Yes`: the store passes the trial. `No`: the store fails the trial. `NotThere`: the trial does not apply to this
    /// kind of store. `NotTried`: the probe ended earlier.
    pub outcome: String,
    /// Whether saves and restores need this operation.
    #[serde(default)]
    pub needed: bool,
    /// Observation, and its consequence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{PvcLocation, S3Location};

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
