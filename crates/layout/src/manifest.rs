//! The manifest: a small object written last beside a snapshot's data. Its presence means complete, and it is the truth.
//!
//! This file decides the recorded facts and the readable formats. An older version that writes a manifest again keeps the
//! fields of a later version. Manifests are never rewritten in a store.

#[cfg(test)]
pub(crate) mod sample;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::{Format, MAX_SEGMENT};
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{CameAlong, Compression, Lock, SavedReport, Verification};

/// Version of the format that this version writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// A manifest has about 1 KiB; a longer object under that name is something else.
pub const MAX_BYTES: u64 = 1 << 20;

/// Record of a stored snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Version of the manifest's format: 1.
    pub format_version: u32,
    /// The snapshot's folder below the store's prefix. A manifest in another folder is a copy.
    pub key: String,
    /// Namespace of the cluster.
    pub namespace: String,
    /// Name of the cluster.
    pub cluster: String,
    /// UID of the cluster, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// The object that requested this snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The snapshot and the log that this snapshot was merged from, without reading etcd (`agent compact`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<DerivedFrom>,
    /// Key of the snapshot from which the cluster was restored: connects the cluster with its earlier lineage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<String>,
    /// UID of the Pod that wrote this manifest; outside of Kubernetes a random UID.
    pub pod_uid: String,
    /// The `spec` of the cluster's custom resource without `bootstrap` and `paused`: enough to create the cluster again from the
    /// store alone. The spec names Secrets and holds none. Absent if the cluster has no custom resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_spec: Option<Map<String, Value>>,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// ID (hex) of the member that sent the snapshot.
    pub member_id: String,
    /// Name of the member that sent the snapshot.
    pub member: String,
    /// etcd version of that member.
    pub etcd_version: String,
    /// Storage version of the data; absent for etcd before 3.6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
    /// The member's raft term just before the stream.
    pub raft_term: u64,
    /// The member's applied index just before the stream: the snapshot holds at least this.
    pub raft_applied_index: u64,
    /// Bytes of the database, without etcd's 32-byte trailer.
    pub db_bytes: u64,
    /// sha256 (hex) of the database, equal to the trailer.
    pub sha256: String,
    /// Bytes of the stored object.
    pub stored_bytes: u64,
    /// sha256 (hex) of the stored object.
    pub stored_sha256: String,
    /// Compression of the stored object.
    pub compression: Compression,
    /// Contents of the database; absent if the structure was not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Contents>,
    /// Verification before the manifest was written; absent in manifests of agents without verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Whether the snapshot was saved by hand without a quorum: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Encryption of the stored object, applied after the compression; absent: not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// Lock of the data in the store of the save; absent: no lock. A copy keeps this record, and its own lock depends
    /// on its own store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
    /// Begin of the save, some seconds before the stream. The folder's name has the same time.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub started_at: Timestamp,
    /// Time at which the data was complete in the store.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub ended_at: Timestamp,
    /// Version of the agent that wrote this manifest.
    pub agent_version: String,
    /// sha256 (hex) of this manifest without this field, as JSON without white space and with sorted names; absent in
    /// manifests of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_sha256: Option<String>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Contents of a database, read from its pages during the save.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// Revision that a member reports when started on this database.
    pub revision: i64,
    /// Compact revision: history below is gone; absent without a compaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_revision: Option<i64>,
    /// Keys that exist at the revision; absent if there were too many to count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Records: every revision of every key, tombstones included.
    pub revisions: u64,
    /// etcd's HashKV at this revision and compact revision.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "hashKV")]
    pub hash_kv: Option<u32>,
    /// Raft index of the last applied entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistent_index: Option<u64>,
    /// IDs (hex) of the members; a restore replaces them.
    pub members: Vec<String>,
    /// Learners among the members. Absent in manifests of earlier versions.
    #[serde(default)]
    pub learners: u64,
    /// Leases.
    pub leases: u64,
    /// Raised alarms.
    pub alarms: u64,
    /// Whether authentication is enabled: a restored cluster asks for these users.
    pub auth_enabled: bool,
    /// Users.
    pub users: u64,
    /// Roles.
    pub roles: u64,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl From<&Contents> for CameAlong {
    fn from(contents: &Contents) -> Self {
        let Contents { learners, leases, alarms, users, roles, auth_enabled, .. } = *contents;
        let members = contents.members.len() as u64;
        Self { members, learners, leases, alarms, users, roles, auth_enabled, ..Self::default() }
    }
}

/// The object that requested a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// Name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// UID of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Kind of the object: `Job` for a run of a schedule, `compaction` for a merge of a snapshot and the log. Absent for an
    /// `EtcdSnapshot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The `EtcdSnapshotSchedule` that this snapshot is a run of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The schedule of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// Name of the `EtcdSnapshotSchedule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// UID of the `EtcdSnapshotSchedule`.
    pub uid: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The kind of an [`Origin`] that is a run of a schedule.
pub const JOB: &str = "Job";

/// The kind of an [`Origin`] that merged a snapshot and the log.
pub const COMPACTION: &str = "compaction";

/// The sources of a merged snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DerivedFrom {
    /// Key of the snapshot that the log continues.
    pub base: String,
    /// Its newest revision.
    pub base_revision: i64,
    /// Number of the segments of the log after it.
    pub segments: u64,
    /// Time of the merged state: that of the check, or of the last segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub until: Option<Timestamp>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Returns the manifest's JSON schema, for programs that read stores themselves.
pub fn schema() -> Value {
    schemars::schema_for!(Manifest).to_value()
}

/// Encryption of a stored object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// Format of the encryption: `age`.
    pub kind: String,
    /// Public keys of the recipients. The identity of any recipient decrypts the object.
    pub recipients: Vec<String>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The only kind of encryption: the age format.
pub const AGE: &str = "age";

impl Encryption {
    /// Returns the record for these recipients; `None` without recipients, so without encryption.
    pub fn for_recipients(recipients: Vec<String>) -> Option<Self> {
        (!recipients.is_empty()).then(|| Self { kind: AGE.to_owned(), recipients, other: Map::new() })
    }
}

impl Manifest {
    /// Parses a manifest, after a check of its format version.
    pub fn parse(json: &[u8]) -> Result<Self> {
        /// The field that every format has.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            format_version: u32,
        }
        let broken = |error: serde_json::Error| Error::corrupt(format!("the manifest cannot be read: {error}"));
        let head: Head = serde_json::from_slice(json).map_err(broken)?;
        if head.format_version == 0 || head.format_version > FORMAT_VERSION {
            return Err(Error::config(format!(
                "the manifest has format {}, this agent reads up to {FORMAT_VERSION}: use a newer agent",
                head.format_version
            )));
        }
        let manifest: Self = serde_json::from_slice(json).map_err(broken)?;
        if let Some(recorded) = &manifest.manifest_sha256 {
            let found = self_sha256(serde_json::from_slice(json).map_err(broken)?);
            if found != *recorded {
                return Err(Error::corrupt(format!(
                    "the manifest was changed after the save: its sha256 is {found}, and it records {recorded}. Use another \
                     snapshot, or a copy of this one"
                )));
            }
        }
        if let Some(other) = manifest.encryption.as_ref().filter(|encryption| encryption.kind != AGE) {
            return Err(Error::config(format!(
                "the snapshot is encrypted with {:?}, this agent knows only {AGE}: use a newer agent",
                other.kind
            )));
        }
        for (what, name) in [("namespace", &manifest.namespace), ("cluster", &manifest.cluster)] {
            if name.len() > MAX_SEGMENT {
                return Err(Error::corrupt(format!("the manifest's {what} is longer than {MAX_SEGMENT} bytes")));
            }
        }
        for (what, hash) in [("sha256", &manifest.sha256), ("storedSha256", &manifest.stored_sha256)] {
            if hex::decode(hash).is_ok_and(|bytes| bytes.len() == 32) {
                continue;
            }
            return Err(Error::corrupt(format!("the manifest's {what} is no sha256, so the data cannot be proven")));
        }
        Ok(manifest)
    }

    /// Returns the format of the stored object, which its name shows too.
    pub const fn format(&self) -> Format {
        Format { compression: self.compression, encrypted: self.encryption.is_some() }
    }

    /// Renders the manifest for the store: formatted JSON with its own sha256.
    pub fn render(&self) -> Result<Vec<u8>> {
        let broken = |error: serde_json::Error| Error::corrupt(format!("the manifest cannot be written: {error}"));
        let bare = Self { manifest_sha256: None, ..self.clone() };
        // Of the text as a reader parses it: serde_json does not read every fraction back exactly.
        let written = serde_json::to_vec(&bare).map_err(broken)?;
        let sha256 = self_sha256(serde_json::from_slice(&written).map_err(broken)?);
        let sealed = Self { manifest_sha256: Some(sha256), ..bare };
        let mut json = serde_json::to_vec_pretty(&sealed).map_err(broken)?;
        json.push(b'\n');
        Ok(json)
    }

    /// Returns the time of the state: the begin of the save, for a merge the earlier time of what it merged.
    pub fn taken_at(&self) -> Timestamp {
        let until = self.derived_from.as_ref().and_then(|derived| derived.until);
        until.map_or(self.started_at, |until| until.min(self.started_at))
    }

    /// Returns the report of this snapshot, whose data is at `uri`.
    pub fn saved(self, uri: String) -> SavedReport {
        let contents = self.contents.as_ref();
        let millis = self.ended_at.as_millisecond().saturating_sub(self.started_at.as_millisecond());
        SavedReport {
            key: self.key,
            uri,
            db_bytes: self.db_bytes,
            stored_bytes: self.stored_bytes,
            sha256: self.sha256,
            stored_sha256: self.stored_sha256,
            manifest_sha256: None,
            compression: self.compression,
            encrypted: self.encryption.is_some(),
            member: self.member,
            member_id: self.member_id,
            cluster_id: self.cluster_id,
            etcd_version: self.etcd_version,
            storage_version: self.storage_version,
            revision: contents.map(|contents| contents.revision),
            compact_revision: contents.and_then(|contents| contents.compact_revision),
            keys: contents.and_then(|contents| contents.keys),
            hash_kv: contents.and_then(|contents| contents.hash_kv),
            auth_enabled: contents.is_some_and(|contents| contents.auth_enabled),
            verification: self.verification,
            without_quorum: self.without_quorum,
            lock: self.lock,
            millis: u64::try_from(millis).unwrap_or(0),
            peak_rss_bytes: None,
        }
    }

    /// Returns `namespace/name` of the cluster.
    pub fn from_cluster(&self) -> String {
        format!("{}/{}", self.namespace, self.cluster)
    }
}

/// Returns the sha256 (hex) of a manifest without the field that holds it. `serde_json` sorts the names of a [`Value`].
fn self_sha256(mut manifest: Value) -> String {
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("manifestSha256");
    }
    hex::encode(Sha256::digest(manifest.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use holdfast_contract::ExitClass;

    fn good() -> Value {
        let other = json!({
            "key": "a/b/c/d", "namespace": "a", "cluster": "b", "member": "b-x", "storageVersion": "3.6.0",
            "raftAppliedIndex": u64::MAX, "storedBytes": 1000,
        });
        sample::but(sample::manifest(""), &other)
    }

    fn parse(value: &Value) -> Result<Manifest> {
        Manifest::parse(value.to_string().as_bytes())
    }

    /// Reads and renders again, without the checksum.
    fn rendered(value: &Value) -> Value {
        let mut again: Value = serde_json::from_slice(&parse(value).unwrap().render().unwrap()).unwrap();
        assert!(again.as_object_mut().unwrap().remove("manifestSha256").is_some());
        again
    }

    fn refused(change: impl FnOnce(&mut Value)) -> ExitClass {
        let mut value = good();
        change(&mut value);
        parse(&value).expect_err("was taken").class()
    }

    /// Manifests of the first version must stay readable, so no field may become required.
    #[test]
    fn what_format_1_requires_never_changes() {
        let mut required: Vec<String> = serde_json::from_value(schema()["required"].clone()).unwrap();
        required.sort();
        let first: Vec<String> =
            good().as_object().unwrap().keys().filter(|key| *key != "storageVersion").cloned().collect();
        assert_eq!(required, first);
        assert_eq!(parse(&good()).unwrap().verification, None);
    }

    /// These names appear in a restored cluster, and in reports that kubelet cuts at 4 KiB.
    #[test]
    fn no_name_is_longer_than_a_key_could_have_it() {
        for name in ["namespace", "cluster"] {
            let longest = "x".repeat(MAX_SEGMENT);
            assert!(
                parse(&{
                    let mut value = good();
                    value[name] = longest.clone().into();
                    value
                })
                .is_ok(),
                "{name}"
            );
            assert_eq!(refused(|value| value[name] = format!("{longest}x").into()), ExitClass::Corrupt, "{name}");
        }
    }

    #[test]
    fn unknown_fields_survive() {
        let mut value = good();
        value["hashKv"] = json!({"revision": 7, "list": [1, 2]});
        value["origin"] = json!({"uid": "u", "kind": "EtcdSnapshot"});
        assert_eq!(rendered(&value), value);
    }

    #[test]
    fn a_merge_has_the_time_of_what_it_merged() {
        let mut value = good();
        let began = parse(&value).unwrap().started_at;
        let earlier = began - jiff::SignedDuration::from_hours(1);
        for (until, at) in [
            (json!({}), began),
            (json!({"until": earlier}), earlier),
            (json!({"until": began + jiff::SignedDuration::from_hours(1)}), began),
        ] {
            value["derivedFrom"] = json!({"base": "a/b/c/e", "baseRevision": 2, "segments": 1});
            value["derivedFrom"].as_object_mut().unwrap().extend(until.as_object().unwrap().clone());
            assert_eq!(rendered(&value), value);
            assert_eq!(parse(&value).unwrap().taken_at(), at, "{until}");
        }
    }

    /// Each flipped bit is refused, or changes nothing: white space, or the name of the checksum.
    #[test]
    fn no_flipped_bit_changes_what_a_manifest_says() {
        let mut value = good();
        value["clusterUid"] = json!("3f1c1f0e");
        value["clusterSpec"] = json!({"replicas": 3, "version": "3.6.16", "options": {"a": [1, -2, 0.5, null, true]}});
        value["contents"] = json!({
            "revision": 7, "revisions": 9, "members": ["a1"], "leases": 0, "alarms": 0, "authEnabled": false, "users": 0,
            "roles": 0, "hashKV": 1
        });
        let json = parse(&value).unwrap().render().unwrap();
        let said = |manifest: Manifest| Manifest { manifest_sha256: None, other: Map::new(), ..manifest };
        let whole = said(Manifest::parse(&json).unwrap());
        let mut taken = 0;
        for (at, bit) in (0..json.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = json.clone();
            flipped[at] ^= 1 << bit;
            if let Ok(manifest) = Manifest::parse(&flipped) {
                taken += 1;
                let around = String::from_utf8_lossy(&json[at.saturating_sub(12)..(at + 12).min(json.len())]);
                assert_eq!(said(manifest), whole, "bit {bit} of byte {at} ({around})");
            }
        }
        assert!(taken < 200, "{taken} of {} flips were taken", json.len() * 8);
        // A manifest without a checksum, as earlier versions wrote it, is still read.
        assert_eq!(said(parse(&value).unwrap()), whole);
    }

    /// A fraction in a field of a later version, or of the cluster's spec, must not cost the backup.
    #[test]
    fn fractions_do_not_break_the_checksum() {
        // Of every size, with all their digits.
        let bits = (1..=2_000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for number in bits.map(f64::from_bits).filter(|number| number.is_finite()) {
            let mut value = good();
            value["later"] = json!(number);
            let json = parse(&value).unwrap().render().unwrap();
            let read = Manifest::parse(&json).unwrap_or_else(|error| panic!("{number}: {error}"));
            let again = read.render().unwrap();
            Manifest::parse(&again).unwrap_or_else(|error| panic!("{number}, written again: {error}"));
        }
    }

    #[test]
    fn what_says_nothing_of_encryption_is_not_encrypted() {
        let plain = parse(&good()).unwrap();
        assert_eq!(plain.format().name(), "snapshot.db.zst");
        assert!(!plain.saved(String::new()).encrypted);
        let mut value = good();
        value["encryption"] = json!({"kind": "age", "recipients": ["age1x"], "later": 1});
        let encrypted = parse(&value).unwrap();
        assert_eq!(encrypted.format().name(), "snapshot.db.zst.age");
        assert_eq!(rendered(&value), value);
        assert!(encrypted.saved(String::new()).encrypted);
    }

    #[test]
    fn what_says_nothing_of_a_quorum_had_one() {
        let plain = parse(&good()).unwrap();
        assert!(
            !plain.without_quorum && !String::from_utf8(plain.render().unwrap()).unwrap().contains("withoutQuorum")
        );
        let mut value = good();
        value["withoutQuorum"] = json!(true);
        let alone = parse(&value).unwrap();
        assert_eq!(rendered(&value), value);
        assert!(alone.saved(String::new()).without_quorum);
    }

    #[test]
    fn one_wrong_field_at_a_time() {
        assert_eq!(refused(|m| m["formatVersion"] = json!(2)), ExitClass::Config);
        assert_eq!(refused(|m| m["formatVersion"] = json!(0)), ExitClass::Config);
        assert_eq!(refused(|m| m["formatVersion"] = json!("1")), ExitClass::Corrupt);
        assert_eq!(refused(|m| m["compression"] = json!("xz")), ExitClass::Corrupt);
        assert_eq!(refused(|m| m["encryption"] = json!({"kind": "gpg", "recipients": []})), ExitClass::Config);
        assert_eq!(refused(|m| m["encryption"] = json!({"kind": "age"})), ExitClass::Corrupt);
        assert_eq!(refused(|m| m["sha256"] = json!("")), ExitClass::Corrupt);
        assert_eq!(refused(|m| m["storedSha256"] = json!("zz")), ExitClass::Corrupt);
        assert_eq!(refused(|m| m["dbBytes"] = json!(-1)), ExitClass::Corrupt);
        assert_eq!(Manifest::parse(b"{").unwrap_err().class(), ExitClass::Corrupt);
        assert_eq!(Manifest::parse(b"[]").unwrap_err().class(), ExitClass::Corrupt);
    }
}
