//! Places for backups, as a snapshot's destination and as a restore's source.
//!
//! Decides the shape and what CEL can refuse. `plan::valid` turns it into checked values, the agent opens it.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::name::LocalRef;

/// Where a snapshot goes: exactly one of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Destination {
    /// An S3 bucket, or anything that speaks the S3 protocol.
    S3(S3Location),
    /// A volume of this namespace.
    Pvc(PvcLocation),
}

/// An S3 bucket and how to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Location {
    /// Name of the bucket. It must exist; it is never created.
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$"))]
    pub bucket: String,
    /// Folder inside the bucket below which Holdfast's own layout begins. Without leading or trailing slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*$"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(p, p == '.' || p == '..')").message("prefix must not contain the parts '.' or '..'"))]
    pub prefix: Option<String>,
    /// Endpoint URL, `https://host[:port]` (or `http://` inside a trusted network). Absent: AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+/?$"))]
    pub endpoint: Option<String>,
    /// Region; default `us-east-1`. Servers other than AWS mostly ignore it, but sign with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9-]+$"))]
    pub region: Option<String>,
    /// Address the bucket as a path (`endpoint/bucket`) instead of a host name (`bucket.endpoint`). Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force_path_style: bool,
    /// Secret of this namespace with the key `ca.crt`: the CA certificates to trust for the endpoint instead of the
    /// public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<LocalRef>,
    /// Secret of this namespace with the keys `accessKeyID`, `secretAccessKey` and, for temporary credentials,
    /// `sessionToken`. The operator never reads it; it is mounted into the agent's Pod.
    pub credentials_secret_ref: LocalRef,
}

/// A folder on a volume of this namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcLocation {
    /// Name of the `PersistentVolumeClaim`. It must exist; it is never created and never deleted.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))]
    pub claim_name: String,
    /// Folder on the volume below which Holdfast's own layout begins. Without leading or trailing slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(p, p == '.' || p == '..')").message("subPath must not contain the parts '.' or '..'"))]
    pub sub_path: Option<String>,
}

/// A stored snapshot by its place: exactly one of `s3` and `pvc`, and the key of its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.s3) != has(self.pvc)").message("source needs exactly one of s3 and pvc"))]
pub struct StoredSnapshot {
    /// In an S3 bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Location>,
    /// On a volume of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcLocation>,
    /// The snapshot's folder below the prefix or subPath, the one that holds `manifest.json`:
    /// `<namespace>/<cluster>/<lineage>/<time>-<owner>-<pod>`, as `status.artifact.key` of an `EtcdSnapshot` says.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(p, p == '.' || p == '..')").message("key must not contain the parts '.' or '..'"))]
    pub key: String,
}

impl StoredSnapshot {
    /// The store this is in; `None` where neither or both are given (CEL refuses that at admission).
    pub fn store(&self) -> Option<Destination> {
        match (&self.s3, &self.pvc) {
            (Some(s3), None) => Some(Destination::S3(s3.clone())),
            (None, Some(pvc)) => Some(Destination::Pvc(pvc.clone())),
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    /// A snapshot folder `key` in `store`.
    pub fn at(store: &Destination, key: String) -> Self {
        match store {
            Destination::S3(s3) => Self { s3: Some(s3.clone()), pvc: None, key },
            Destination::Pvc(pvc) => Self { s3: None, pvc: Some(pvc.clone()), key },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_snapshot_is_in_exactly_one_store() {
        let (s3, pvc) = (S3Location::default(), PvcLocation::default());
        let at = |s3, pvc| StoredSnapshot { s3, pvc, key: "k".to_owned() }.store();
        assert_eq!(at(Some(s3.clone()), None), Some(Destination::S3(s3.clone())));
        assert_eq!(at(None, Some(pvc.clone())), Some(Destination::Pvc(pvc.clone())));
        assert_eq!(at(None, None), None);
        assert_eq!(at(Some(s3.clone()), Some(pvc.clone())), None);
        for store in [Destination::S3(s3), Destination::Pvc(pvc)] {
            assert_eq!(StoredSnapshot::at(&store, "k".to_owned()).store(), Some(store));
        }
    }

    #[test]
    fn the_wire_has_one_field_for_the_store() {
        let store = Destination::Pvc(PvcLocation { claim_name: "c".to_owned(), sub_path: None });
        assert_eq!(serde_json::to_value(&store).unwrap(), serde_json::json!({"pvc": {"claimName": "c"}}));
        assert!(serde_json::from_str::<Destination>(r#"{"pvc":{"claimName":"c"},"s3":{}}"#).is_err());
    }
}
