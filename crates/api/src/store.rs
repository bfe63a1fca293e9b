//! Places for backups, as a snapshot's destination and as a restore's source.
//!
//! Decides the shape and what CEL can refuse. `plan::valid` turns it into checked values, the agent opens it.

use holdfast_contract as contract;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{LocalRef, OBJECT_NAME};

/// Prefixes in stores of every kind, as the agent takes them (`layout::PREFIX_CHARS`); a rule beside it refuses `.` and `..`.
const PREFIX: &str = r"^[A-Za-z0-9!_.*'()=+@~-]+(/[A-Za-z0-9!_.*'()=+@~-]+)*$";

/// Store for a snapshot: exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.storeRef), has(self.s3), has(self.azure), has(self.gcs), has(self.pvc)].exists_one(x, x)")
        .message("destination needs exactly one of storeRef, s3, azure, gcs and pvc"),
    validation = Rule::new("!has(self.azure) || has(self.azure.account) || has(self.azure.credentialsSecretRef)")
        .message("azure needs account, or credentialsSecretRef with a Secret that has the key accountName")
)]
pub struct Destination {
    /// `EtcdBackupStore` in this namespace. The snapshot waits until the store exists and a probe has found the store
    /// usable. `status.store` records the location at the start of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_ref: Option<LocalRef>,
    /// Location of the store.
    #[serde(flatten)]
    pub place: Place,
}

/// A stored snapshot: exactly one store, and the key of its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.storeRef), has(self.s3), has(self.azure), has(self.gcs), has(self.pvc)].exists_one(x, x)")
        .message("source needs exactly one of storeRef, s3, azure, gcs and pvc"),
    validation = Rule::new("!has(self.azure) || has(self.azure.account) || has(self.azure.credentialsSecretRef)")
        .message("azure needs account, or credentialsSecretRef with a Secret that has the key accountName")
)]
pub struct StoredSnapshot {
    /// `EtcdBackupStore` in this namespace. The cluster waits until the store exists and a probe has found the store
    /// usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_ref: Option<LocalRef>,
    /// Location of the store.
    #[serde(flatten)]
    pub place: Place,
    /// Folder of the snapshot below the prefix or subPath, with `manifest.json` inside:
    /// `<namespace>/<cluster>/<lineage>/<time>-<owner>-<pod>`, as `status.artifact.key` of an `EtcdSnapshot` shows. Or
    /// the key of a file from `etcdctl snapshot save` or another operator, whatever its name is: plain, or packed with
    /// gzip, zstd or age.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[^/\x00-\x1f\x7f]+(/[^/\x00-\x1f\x7f]+)*$"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(p, p == '.' || p == '..')").message("key must not contain the parts '.' or '..'"))]
    pub key: String,
}

/// Location of a store: one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Bucket of S3, or of a server with the S3 protocol.
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

impl Location {
    /// Names of the Secrets that this location names: credentials and CA.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let (credentials, ca) = match self {
            Self::S3(s3) => (&s3.credentials_secret_ref, &s3.ca_ref),
            Self::Azure(azure) => (&azure.credentials_secret_ref, &azure.ca_ref),
            Self::Gcs(gcs) => (&gcs.credentials_secret_ref, &gcs.ca_ref),
            Self::Pvc(_) => (&None, &None),
        };
        credentials.iter().chain(ca).map(|secret| secret.name.as_str())
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

/// An S3 bucket and its connection settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.bucket.matches('^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$') || (has(self.forcePathStyle) ? self.forcePathStyle : has(self.endpoint))").message("bucket has 3 to 63 lower-case letters, digits, dots and dashes; other names need forcePathStyle: true"))]
pub struct S3Location {
    /// Name of an existing bucket; Holdfast never creates buckets. Capitals, underscores, a tenant (`tenant:bucket`) and
    /// more than 63 characters need the bucket in the path (`forcePathStyle`).
    #[schemars(length(min = 3, max = 255), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*(:[A-Za-z0-9._-]+)?$"))]
    pub bucket: String,
    /// Folder in the bucket that holds all objects of Holdfast, without leading or trailing slash. Default: the
    /// bucket's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = PREFIX))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(p, p == '.' || p == '..')").message("prefix must not contain the parts '.' or '..'"))]
    pub prefix: Option<String>,
    /// Endpoint URL, `https://host[:port]` (or `http://` inside a trusted network). Default: AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+/?$"))]
    pub endpoint: Option<String>,
    /// Region. Default: `us-east-1`. Most other servers ignore the region, but need the same value in signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9-]+$"))]
    pub region: Option<String>,
    /// Whether requests name the bucket in the path (`endpoint/bucket`) instead of in the host name
    /// (`bucket.endpoint`). Default: in the path, except with AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_path_style: Option<bool>,
    /// Secret in this namespace with the key `ca.crt`: CA certificates to trust for the endpoint instead of the public
    /// CAs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<LocalRef>,
    /// Server-side encryption. Default: the bucket's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sse: Option<S3Encryption>,
    /// Storage class of the data, for example `STANDARD_IA`. Default: the bucket's class, also used for the small
    /// manifest. Archive classes without immediate reads are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_-]+$"))]
    #[x_kube(validation = Rule::new("!(self in ['GLACIER', 'DEEP_ARCHIVE'])").message("storageClass must not be an archive: a restore would wait for hours. Use GLACIER_IR, and move older snapshots with a lifecycle rule of the bucket"))]
    pub storage_class: Option<String>,
    /// Tags of every object, at most 10. Needs the right to tag.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub tags: Vec<S3Tag>,
    /// S3 Object Lock: the store refuses to remove or overwrite objects for some days, even with full credentials.
    /// Needs a bucket with Object Lock. A snapshot fails when the store does not confirm the lock; credentials that
    /// permit only writes skip this check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_lock: Option<S3ObjectLock>,
    /// Checksum that the store keeps with every object: `WhenRequired` (default: only the signed sha256 of each
    /// request, which every store accepts), `CRC64NVME` or `SHA256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "S3Checksum")]
    pub checksum: Option<S3Checksum>,
    /// Secret in this namespace with `accessKeyID`, `secretAccessKey` and, for temporary credentials, `sessionToken`;
    /// `sse.type: SSE-C` needs `sseCustomerKey` (32 bytes in base64). kubelet mounts the Secret into the agent's Pod;
    /// the operator never reads the values. Default: the identity of the Pod's ServiceAccount or of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalRef>,
}

/// Server-side encryption of an S3 store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.kmsKeyId) || self.type == 'aws:kms'").message("sse.kmsKeyId needs sse.type: aws:kms"))]
pub struct S3Encryption {
    /// `AES256`: the store's own keys. `aws:kms`: a key of the key management service. `SSE-C`: your key in
    /// `sseCustomerKey` of the credentials, which the store does not keep; without this key no restore is possible.
    #[serde(rename = "type")]
    pub kind: S3Sse,
    /// ID, ARN or alias of the KMS key (not a secret). Default: the account's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^[!-~]+$"))]
    pub kms_key_id: Option<String>,
}

/// Owner of the keys for server-side encryption.
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

/// S3 Object Lock of the stored objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3ObjectLock {
    /// `GOVERNANCE`: credentials with the right `s3:BypassGovernanceRetention` may remove objects earlier.
    /// `COMPLIANCE`: no credentials may.
    pub mode: contract::LockMode,
    /// Days of the lock from the snapshot's start, 1 to 36500.
    #[schemars(range(min = 1, max = 36500))]
    pub days: u32,
}

/// A tag of an S3 object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Tag {
    /// Key of the tag.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[\p{L}\p{N} +._:/@-]+$"))]
    pub name: String,
    /// Value of the tag; default empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256), regex(pattern = r"^[\p{L}\p{N} +=._:/@-]*$"))]
    pub value: String,
}

/// Checksum that an S3 store keeps with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum S3Checksum {
    /// None, unless the protocol requires a checksum.
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

/// A container of Azure Blob Storage and its connection settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureLocation {
    /// Name of an existing container; Holdfast never creates containers.
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9](-?[a-z0-9])*$"))]
    pub container: String,
    /// Folder in the container that holds all objects of Holdfast, without leading or trailing slash. Default: the
    /// container's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = PREFIX))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(p, p == '.' || p == '..')").message("prefix must not contain the parts '.' or '..'"))]
    pub prefix: Option<String>,
    /// Storage account. Default: `accountName` of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 24), regex(pattern = r"^[a-z0-9]+$"))]
    pub account: Option<String>,
    /// Endpoint URL. Default: `https://ACCOUNT.blob.core.windows.net`. For an address that serves several accounts,
    /// append the account as the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9-]+)?/?$"))]
    pub endpoint: Option<String>,
    /// Secret in this namespace with the key `ca.crt`: CA certificates to trust for the endpoint instead of the public
    /// CAs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<LocalRef>,
    /// Secret in this namespace with the keys `accountName`, and `accountKey` or `sasToken`. kubelet mounts the Secret
    /// into the agent's Pod; the operator never reads the values. Default: the identity of the workload or of the node,
    /// which needs `account`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalRef>,
}

/// A bucket of Google Cloud Storage and its connection settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsLocation {
    /// Name of an existing bucket; Holdfast never creates buckets.
    #[schemars(length(min = 3, max = 222), regex(pattern = r"^[a-z0-9][a-z0-9._-]*[a-z0-9]$"))]
    pub bucket: String,
    /// Folder in the bucket that holds all objects of Holdfast, without leading or trailing slash. Default: the
    /// bucket's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = PREFIX))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(p, p == '.' || p == '..')").message("prefix must not contain the parts '.' or '..'"))]
    pub prefix: Option<String>,
    /// Endpoint URL, `https://host[:port]`. Default: Google's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+/?$"))]
    pub endpoint: Option<String>,
    /// Secret in this namespace with the key `ca.crt`: CA certificates to trust for the endpoint instead of the public
    /// CAs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<LocalRef>,
    /// Secret in this namespace with the key `serviceAccountJSON`, a service account's key file. kubelet mounts the
    /// Secret into the agent's Pod; the operator never reads the values. Default: the workload's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalRef>,
}

/// A folder on a volume in this namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcLocation {
    /// Name of an existing `PersistentVolumeClaim`; Holdfast never creates or deletes this claim.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub claim_name: String,
    /// Folder in the volume that holds all files of Holdfast, without leading or trailing slash. Default: the volume's
    /// root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = PREFIX))]
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
