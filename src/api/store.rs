//! Places for backups, as a snapshot's destination and as a restore's source.
//!
//! Decides the shape and what CEL can refuse. `plan::valid` turns it into checked values, the agent opens it.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use snapshot_agent::contract;

use crate::api::name::{LocalRef, OBJECT_NAME};

/// Prefixes in a container of Azure or a bucket of Google: object_store's `Path` takes these as they are.
const BLOB_PREFIX: &str = r"^[A-Za-z0-9_][A-Za-z0-9._=+@~-]*(/[A-Za-z0-9_][A-Za-z0-9._=+@~-]*)*$";

/// Where a snapshot goes: exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.storeRef), has(self.s3), has(self.azure), has(self.gcs), has(self.pvc)].exists_one(x, x)")
        .message("destination needs exactly one of storeRef, s3, azure, gcs and pvc"),
    validation = Rule::new("!has(self.azure) || has(self.azure.account) || has(self.azure.credentialsSecretRef)")
        .message("azure needs account, or credentialsSecretRef with a Secret that names it")
)]
pub struct Destination {
    /// An `EtcdBackupStore` of this namespace. One that does not exist yet, or that no probe has found usable yet, is
    /// waited for. Where it was when the snapshot was made stands in `status.store`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_ref: Option<LocalRef>,
    /// The place itself.
    #[serde(flatten)]
    pub place: Place,
}

/// A stored snapshot by its place: exactly one store, and the key of its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.storeRef), has(self.s3), has(self.azure), has(self.gcs), has(self.pvc)].exists_one(x, x)")
        .message("source needs exactly one of storeRef, s3, azure, gcs and pvc"),
    validation = Rule::new("!has(self.azure) || has(self.azure.account) || has(self.azure.credentialsSecretRef)")
        .message("azure needs account, or credentialsSecretRef with a Secret that names it")
)]
pub struct StoredSnapshot {
    /// An `EtcdBackupStore` of this namespace. One that does not exist yet, or that no probe has found usable yet, is
    /// waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_ref: Option<LocalRef>,
    /// The place itself.
    #[serde(flatten)]
    pub place: Place,
    /// The snapshot's folder below the prefix or subPath, the one that holds `manifest.json`:
    /// `<namespace>/<cluster>/<lineage>/<time>-<owner>-<pod>`, as `status.artifact.key` of an `EtcdSnapshot` says. Or a
    /// file that `etcdctl snapshot save` or another operator wrote, by its path, which ends with `.db`.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(p, p == '.' || p == '..')").message("key must not contain the parts '.' or '..'"))]
    pub key: String,
}

/// One place for backups, as it stands on the wire: one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// An S3 bucket, or anything that speaks the S3 protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Location>,
    /// A container of Azure Blob Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureLocation>,
    /// A bucket of Google Cloud Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsLocation>,
    /// A volume of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcLocation>,
}

/// One place for backups, whichever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// An S3 bucket.
    S3(S3Location),
    /// A container of Azure.
    Azure(AzureLocation),
    /// A bucket of Google.
    Gcs(GcsLocation),
    /// A volume.
    Pvc(PvcLocation),
}

impl Place {
    /// The one that is given; `None` where none is, or more than one (CEL refuses that at admission).
    pub fn location(&self) -> Option<Location> {
        match (&self.s3, &self.azure, &self.gcs, &self.pvc) {
            (Some(s3), None, None, None) => Some(Location::S3(s3.clone())),
            (None, Some(azure), None, None) => Some(Location::Azure(azure.clone())),
            (None, None, Some(gcs), None) => Some(Location::Gcs(gcs.clone())),
            (None, None, None, Some(pvc)) => Some(Location::Pvc(pvc.clone())),
            _ => None,
        }
    }

    /// Whether this, or the `EtcdBackupStore` that is named beside it, is exactly one store.
    pub fn is_the_only_one(&self, store_ref: Option<&LocalRef>) -> bool {
        match store_ref {
            Some(_) => *self == Self::default(),
            None => self.location().is_some(),
        }
    }
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        let none = Self::default();
        match location {
            Location::S3(s3) => Self { s3: Some(s3), ..none },
            Location::Azure(azure) => Self { azure: Some(azure), ..none },
            Location::Gcs(gcs) => Self { gcs: Some(gcs), ..none },
            Location::Pvc(pvc) => Self { pvc: Some(pvc), ..none },
        }
    }
}

impl From<Location> for Destination {
    fn from(location: Location) -> Self {
        Self { store_ref: None, place: location.into() }
    }
}

impl StoredSnapshot {
    /// A snapshot folder `key` in this place.
    pub fn at(location: Location, key: String) -> Self {
        Self { store_ref: None, place: location.into(), key }
    }

    /// Whether it names exactly one store (CEL refuses everything else at admission).
    pub fn names_a_store(&self) -> bool {
        self.place.is_the_only_one(self.store_ref.as_ref())
    }
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
    /// How the store encrypts what it keeps; absent: as the bucket is set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sse: Option<S3Encryption>,
    /// Storage class of the data, for example `STANDARD_IA`; absent: the bucket's. The manifest, which is small, stays in
    /// the usual one. An archive that is not read at once is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_-]+$"))]
    #[x_kube(validation = Rule::new("!(self in ['GLACIER', 'DEEP_ARCHIVE'])").message("storageClass must not be an archive: a restore would wait for hours. Take GLACIER_IR, and move older snapshots with a lifecycle rule of the bucket"))]
    pub storage_class: Option<String>,
    /// Tags of every object, at most 10; needs the right to tag.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub tags: Vec<S3Tag>,
    /// Keep what is stored from being removed or overwritten for some days, whoever has the credentials. The bucket has to
    /// be made for it (S3 Object Lock); a snapshot whose lock the store does not confirm fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_lock: Option<S3ObjectLock>,
    /// Checksum that the store keeps with every object: `WhenRequired` (default: none but the signed sha256 of each
    /// request, which every store takes), `CRC64NVME` or `SHA256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "S3Checksum")]
    pub checksum: Option<S3Checksum>,
    /// Secret of this namespace with the keys `accessKeyID`, `secretAccessKey` and, for temporary credentials,
    /// `sessionToken`, or `sseCustomerKey` (32 bytes in base64) for `sse.type: SSE-C`. The operator never reads them; they
    /// are mounted into the agent's Pod as files. Absent: what the Pod's surroundings provide (a role of its service account
    /// or node).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalRef>,
}

/// How an S3 store encrypts what it keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.kmsKeyId) || self.type == 'aws:kms'").message("sse.kmsKeyId needs sse.type: aws:kms"))]
pub struct S3Encryption {
    /// `AES256`: with keys of the store's own. `aws:kms`: with a key of the key management service. `SSE-C`: with a key of
    /// yours, the credentials' `sseCustomerKey`, that the store forgets; without it nobody restores.
    #[serde(rename = "type")]
    pub kind: S3Sse,
    /// The key, by its ID, ARN or alias; absent: the account's own. It is a name, and no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^[!-~]+$"))]
    pub kms_key_id: Option<String>,
}

/// Whose keys an S3 store encrypts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum S3Sse {
    /// The store's own.
    #[serde(rename = "AES256")]
    Aes256,
    /// The key management service's.
    #[serde(rename = "aws:kms")]
    AwsKms,
    /// The customer's.
    #[serde(rename = "SSE-C")]
    Customer,
}

impl From<S3Sse> for contract::S3Sse {
    fn from(sse: S3Sse) -> Self {
        match sse {
            S3Sse::Aes256 => Self::Aes256,
            S3Sse::AwsKms => Self::AwsKms,
            S3Sse::Customer => Self::Customer,
        }
    }
}

/// How long an S3 store keeps what is stored from being removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3ObjectLock {
    /// `GOVERNANCE`: whoever has the right `s3:BypassGovernanceRetention` may remove it earlier. `COMPLIANCE`: nobody.
    pub mode: contract::LockMode,
    /// Days from the snapshot's beginning.
    #[schemars(range(min = 1, max = 36500))]
    pub days: u32,
}

/// A tag of an S3 object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Tag {
    /// Its key.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[\p{L}\p{N} +._:/@-]+$"))]
    pub name: String,
    /// Its value; default empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256), regex(pattern = r"^[\p{L}\p{N} +=._:/@-]*$"))]
    pub value: String,
}

/// Which checksum an S3 store keeps with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum S3Checksum {
    /// None where the protocol does not need one.
    WhenRequired,
    /// CRC-64/NVME.
    #[serde(rename = "CRC64NVME")]
    Crc64nvme,
    /// SHA-256.
    #[serde(rename = "SHA256")]
    Sha256,
}

impl From<S3Checksum> for contract::S3Checksum {
    fn from(checksum: S3Checksum) -> Self {
        match checksum {
            S3Checksum::WhenRequired => Self::WhenRequired,
            S3Checksum::Crc64nvme => Self::Crc64nvme,
            S3Checksum::Sha256 => Self::Sha256,
        }
    }
}

/// A container of Azure Blob Storage and how to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureLocation {
    /// Name of the container. It must exist; it is never created.
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9](-?[a-z0-9])*$"))]
    pub container: String,
    /// Folder inside the container below which Holdfast's own layout begins. Without leading or trailing slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = BLOB_PREFIX))]
    pub prefix: Option<String>,
    /// Storage account; absent: the Secret's `accountName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 24), regex(pattern = r"^[a-z0-9]+$"))]
    pub account: Option<String>,
    /// Endpoint URL; absent: `https://ACCOUNT.blob.core.windows.net`. Where one address serves several accounts, with the
    /// account as its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9-]+)?/?$"))]
    pub endpoint: Option<String>,
    /// Secret of this namespace with the key `ca.crt`: the CA certificates to trust for the endpoint instead of the
    /// public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<LocalRef>,
    /// Secret of this namespace with the keys `accountName`, and `accountKey` or `sasToken`. The operator never reads
    /// them; they are mounted into the agent's Pod as files. Absent: a workload's or the node's identity; `account` is
    /// needed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalRef>,
}

/// A bucket of Google Cloud Storage and how to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsLocation {
    /// Name of the bucket. It must exist; it is never created.
    #[schemars(length(min = 3, max = 222), regex(pattern = r"^[a-z0-9][a-z0-9._-]*[a-z0-9]$"))]
    pub bucket: String,
    /// Folder inside the bucket below which Holdfast's own layout begins. Without leading or trailing slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = BLOB_PREFIX))]
    pub prefix: Option<String>,
    /// Endpoint URL, `https://host[:port]`; absent: Google's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+/?$"))]
    pub endpoint: Option<String>,
    /// Secret of this namespace with the key `ca.crt`: the CA certificates to trust for the endpoint instead of the
    /// public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<LocalRef>,
    /// Secret of this namespace with the key `serviceAccountJSON`, a service account's key file. The operator never
    /// reads it; it is mounted into the agent's Pod as a file. Absent: the workload's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalRef>,
}

/// A folder on a volume of this namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcLocation {
    /// Name of the `PersistentVolumeClaim`. It must exist; it is never created and never deleted.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub claim_name: String,
    /// Folder on the volume below which Holdfast's own layout begins. Without leading or trailing slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(p, p == '.' || p == '..')").message("subPath must not contain the parts '.' or '..'"))]
    pub sub_path: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn each() -> [Location; 4] {
        [
            Location::S3(S3Location { bucket: "b".to_owned(), ..S3Location::default() }),
            Location::Azure(AzureLocation { container: "c".to_owned(), ..AzureLocation::default() }),
            Location::Gcs(GcsLocation { bucket: "b".to_owned(), ..GcsLocation::default() }),
            Location::Pvc(PvcLocation { claim_name: "c".to_owned(), sub_path: None }),
        ]
    }

    #[test]
    fn a_place_is_exactly_one_location() {
        assert_eq!(Place::default().location(), None);
        for one in each() {
            let place = Place::from(one.clone());
            assert_eq!(place.location(), Some(one.clone()));
            let mut stored = StoredSnapshot::at(one.clone(), "k".to_owned());
            assert!(stored.names_a_store());
            stored.store_ref = Some(LocalRef { name: "s".to_owned() });
            assert!(!stored.names_a_store(), "a store and a place");
            stored.place = Place::default();
            assert!(stored.names_a_store());
            assert_eq!(StoredSnapshot::at(one.clone(), "k".to_owned()).place, place);
            for other in each().into_iter().filter(|other| *other != one) {
                let (mut two, other) = (place.clone(), Place::from(other));
                two.s3 = two.s3.or(other.s3);
                two.azure = two.azure.or(other.azure);
                two.gcs = two.gcs.or(other.gcs);
                two.pvc = two.pvc.or(other.pvc);
                assert_eq!(two.location(), None, "{two:?}");
            }
        }
    }

    #[test]
    fn the_wire_has_one_field_for_the_store() {
        let wire: Vec<Value> =
            each().into_iter().map(|one| serde_json::to_value(Destination::from(one)).unwrap()).collect();
        let expected = [
            json!({"s3": {"bucket": "b"}}),
            json!({"azure": {"container": "c"}}),
            json!({"gcs": {"bucket": "b"}}),
            json!({"pvc": {"claimName": "c"}}),
        ];
        assert_eq!(wire, expected);
        for (wire, one) in expected.into_iter().zip(each()) {
            assert_eq!(serde_json::from_value::<Destination>(wire).unwrap().place.location(), Some(one));
        }
    }

    #[test]
    fn what_an_s3_store_is_asked_for_reads_as_documented() {
        let wire = json!({
            "bucket": "b",
            "sse": {"type": "aws:kms", "kmsKeyId": "alias/etcd"},
            "storageClass": "STANDARD_IA",
            "tags": [{"name": "team", "value": "storage"}, {"name": "empty"}],
            "checksum": "CRC64NVME",
        });
        let s3: S3Location = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(s3.sse.as_ref().map(|sse| sse.kind), Some(S3Sse::AwsKms));
        assert_eq!(s3.checksum, Some(S3Checksum::Crc64nvme));
        assert_eq!(serde_json::to_value(&s3).unwrap(), wire);
    }
}
