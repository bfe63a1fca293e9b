//! Proofs: the record of a later verification beside a snapshot, `proofs/<time>-<level>.json`, written once.
//!
//! This file decides the content and the name of a proof. The manifest never changes: it records the proof at the time of the
//! save, and a proof records a later verification. A failed verification leaves a proof too, `<time>-<level>-failed.json`, so
//! that a list need not read it.

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{KubernetesReport, ProofLevel};
use holdfast_io::sha256::Sha256;
use holdfast_layout::{Folder, Key, Proved};
use holdfast_store::Store;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The format this version writes.
pub const FORMAT_VERSION: u32 = 1;

/// Maximum number of files that the agent reads of a folder: a drill every hour for a year.
const MAX_PROOFS: usize = 10_000;

/// A proven fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Step {
    /// The stored object has the length and the sha256 that its manifest records.
    StoredSha256,
    /// The sha256 of the database equals etcd's trailer at the end of the stream and the manifest.
    Trailer,
    /// The pages in use form a sound database with the revision and the keys that the manifest records.
    Structure,
    /// HashKV, computed from the bytes, equals the manifest's HashKV.
    HashKV,
    /// etcdutl restored the snapshot, and etcd started on the restored data.
    Restored,
    /// The HashKV that the started etcd reports at the same revision is equal.
    EtcdHashKV,
    /// The started etcd requires a user, so the agent stopped etcd and computed an equal HashKV from the bytes of the
    /// restored database.
    RestoredHashKV,
    /// The started etcd counts the same number of keys.
    EtcdKeys,
    /// A kube-apiserver on the started etcd decoded every object of the resources that it serves.
    Decoded,
}

impl Step {
    /// Describes the step for a terminal.
    pub const fn says(self) -> &'static str {
        match self {
            Self::StoredSha256 => "the stored bytes equal the saved bytes",
            Self::Trailer => "etcd's own sha256 of the database",
            Self::Structure => "the structure and the content of every page in use",
            Self::HashKV => "HashKV, computed from the bytes",
            Self::Restored => "restored by etcdutl, and etcd started on the restored data",
            Self::EtcdHashKV => "HashKV, reported by that etcd",
            Self::RestoredHashKV => "HashKV, computed from the database of that etcd",
            Self::EtcdKeys => "keys, counted by that etcd",
            Self::Decoded => "every object of the served resources, decoded by a kube-apiserver",
        }
    }
}

/// A verification of a stored snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proof {
    /// Version of the proof's format: 1.
    pub format_version: u32,
    /// The snapshot's folder below the store's prefix.
    pub key: String,
    /// Requested level of the verification.
    pub level: ProofLevel,
    /// Whether the verification passed.
    pub passed: bool,
    /// Proven facts, in the order of the checks.
    pub proven: Vec<Step>,
    /// Checks that were not possible, each with its cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Cause of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// sha256 (hex) of the compared manifest.
    pub manifest_sha256: String,
    /// Revision of the key space in the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Compact revision of the database: history below is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_revision: Option<i64>,
    /// Keys at the revision of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// etcd's HashKV at the revision of the database.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "hashKV")]
    pub hash_kv: Option<u32>,
    /// Version of the started etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// Seconds from the first byte of the store to the restored data directory, rounded up; of a drill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_seconds: Option<u64>,
    /// Seconds from the start of etcd to its first answer, rounded up; of a drill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_seconds: Option<u64>,
    /// Whether authentication is on: no `EtcdCluster` can be restored from the snapshot; of a drill.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auth_enabled: bool,
    /// Objects that a kube-apiserver decoded; of a drill that named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesReport>,
    /// Begin of the verification.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub started_at: Timestamp,
    /// End of the verification.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub ended_at: Timestamp,
    /// Version of the agent that wrote this proof.
    pub agent_version: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Proof {
    /// Returns a proof without steps.
    pub fn begin(key: &Folder, level: ProofLevel, manifest: &[u8], at: Timestamp) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            key: key.to_string(),
            level,
            passed: false,
            proven: Vec::new(),
            left_out: Vec::new(),
            failure: None,
            manifest_sha256: hex::encode(Sha256::digest(manifest)),
            revision: None,
            compact_revision: None,
            keys: None,
            hash_kv: None,
            etcd_version: None,
            restore_seconds: None,
            serve_seconds: None,
            auth_enabled: false,
            kubernetes: None,
            started_at: at,
            ended_at: at,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            other: Map::new(),
        }
    }

    /// Parses a proof.
    pub fn parse(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json).map_err(|error| Error::corrupt(format!("the proof cannot be read: {error}")))
    }

    /// Writes the proof beside the snapshot, and returns its key.
    pub async fn keep(&self, store: &Store, folder: &Folder) -> Result<Key> {
        let key = folder.proof(Proved { at: self.ended_at, level: self.level, passed: self.passed });
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::corrupt(format!("the proof cannot be written: {error}")))?;
        json.push(b'\n');
        store.put_new(&key, json.into()).await?;
        Ok(key)
    }
}

/// Returns all proofs beside a snapshot, by their names, the newest last.
async fn beside(store: &Store, folder: &Folder) -> Result<Vec<Proved>> {
    let names = store.objects(&folder.proofs(), MAX_PROOFS).await?;
    let mut proofs: Vec<_> = names.iter().filter_map(|name| Proved::of_name(name)).collect();
    proofs.sort_by_key(|proved| proved.at);
    Ok(proofs)
}

/// Returns the newest proof beside a snapshot, by its name.
pub async fn newest(store: &Store, folder: &Folder) -> Result<Option<Proved>> {
    Ok(beside(store, folder).await?.pop())
}

/// Returns the failed verification that no later passed verification of at least its level has superseded: a second reading of
/// the bytes does not refute that etcd could not start on them.
pub async fn standing_failure(store: &Store, folder: &Folder) -> Result<Option<Proved>> {
    Ok(find_standing_failure(&beside(store, folder).await?))
}

/// Does the same for a list of proofs, the newest last.
pub fn find_standing_failure(proofs: &[Proved]) -> Option<Proved> {
    proofs
        .iter()
        .rev()
        .try_fold(None, |passed: Option<ProofLevel>, proved| {
            if proved.passed {
                Ok(passed.max(Some(proved.level)))
            } else if passed >= Some(proved.level) {
                Ok(passed)
            } else {
                Err(*proved)
            }
        })
        .err()
}

/// Returns the JSON schema of proofs, for programs that read stores themselves.
pub fn schema() -> Value {
    schemars::schema_for!(Proof).to_value()
}

#[cfg(test)]
mod tests {
    use holdfast_contract::{ExitClass, StoreFlags};

    use super::*;

    #[tokio::test]
    async fn a_proof_is_written_once_and_found_again() {
        let mount = tempfile::tempdir().unwrap();
        let flags = StoreFlags { url: format!("file://{}", mount.path().display()), ..StoreFlags::default() };
        let store = Store::open(&flags).unwrap();
        let folder = Folder::parse("key", "a/b/c/d").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let mut proof = Proof::begin(&folder, ProofLevel::Stored, b"{}", at("2026-11-21T10:00:00Z"));
        assert_eq!(newest(&store, &folder).await, Ok(None));
        // A missing snapshot's folder is not created.
        assert_eq!(proof.keep(&store, &folder).await.unwrap_err().class(), ExitClass::NotFound);
        assert!(!mount.path().join("a").exists());

        std::fs::create_dir_all(mount.path().join("a/b/c/d")).unwrap();
        proof.passed = true;
        let key = proof.keep(&store, &folder).await.unwrap();
        assert_eq!(key.to_string(), "a/b/c/d/proofs/20261121T100000.000000Z-stored.json");
        let json = store.get_small(&key, 1 << 20).await.unwrap();
        assert_eq!(Proof::parse(&json).unwrap(), proof);
        let mut other = proof.clone();
        other.left_out.push("x".to_owned());
        other.keep(&store, &folder).await.expect_err("an older proof was overwritten");

        let failed = Proof { passed: false, ended_at: at("2026-11-21T11:00:00Z"), ..proof.clone() };
        failed.keep(&store, &folder).await.unwrap();
        let drill = Proof { level: ProofLevel::Drill, ended_at: at("2026-11-21T09:00:00Z"), ..proof };
        drill.keep(&store, &folder).await.unwrap();
        std::fs::write(mount.path().join("a/b/c/d/proofs/zzz.json"), "not ours").unwrap();
        let found = newest(&store, &folder).await.unwrap().unwrap();
        assert_eq!((found.level, found.passed, found.at), (ProofLevel::Stored, false, at("2026-11-21T11:00:00Z")));
    }
}
