//! The report of a run, as JSON.
//!
//! Decides the wire shape only. Exit codes are in `failure.rs`.

use serde::{Deserialize, Serialize};

use super::{Compression, Engine, ExitClass, Failure, LatestReport, Lock, Origin, Probed, RecallReport};

/// What an agent leaves in its container's termination message: JSON of less than [`MAX_REPORT_BYTES`].
/// It is a hint; the manifest in the store is the truth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Report {
    /// A snapshot was published.
    Saved(Box<SavedReport>),
    /// A data directory was rebuilt, or was found complete.
    Restored(RestoredReport),
    /// The gate let etcd's process start, or refused.
    Gate(GateReport),
    /// A store was tried, whatever came of it.
    Probed(Probed),
    /// The newest snapshot was found.
    Latest(LatestReport),
    /// Runs of a schedule were listed.
    Recalled(RecallReport),
    /// Nothing was published and nothing became startable.
    Failed(FailedReport),
}

/// kubelet cuts termination messages at 4096 bytes (Kubernetes: `containerStatuses[].state.terminated.message`).
pub const MAX_REPORT_BYTES: usize = 4000;

/// How far a snapshot was proven before it was published; each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Level {
    /// The bytes equal the bytes that etcd sent: the sha256 at the end of the stream.
    #[default]
    Trailer,
    /// The bytes are a sound database: the structure of every page in use.
    Structure,
    /// The key space equals that of a live member: HashKV, computed from the bytes, equals the member's HashKV.
    HashKV,
}

impl Level {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trailer => "Trailer",
            Self::Structure => "Structure",
            Self::HashKV => "HashKV",
        }
    }
}

/// What was proven of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Level of the proof.
    pub level: Level,
    /// Members whose HashKV was equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agreed_by: Vec<String>,
    /// Why members that the agent asked, or should have asked, are missing from `agreedBy`; absent if `agreedBy` is
    /// empty, because `reason` holds the cause then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed_by_reason: Option<String>,
    /// Whether the agent read back from the store the bytes that the agent sent.
    #[serde(default)]
    pub read_back: bool,
    /// Why the agent did not read back the bytes, although requested: the credentials permit only writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_back_reason: Option<String>,
    /// Differences between the snapshot and the member that HashKV does not cover: members, alarms, users, roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// Why the proof has no higher level; absent at `HashKV`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Verification {
    /// All that is said in words, whose length somebody else decides.
    fn words(&mut self) -> impl Iterator<Item = &mut String> {
        let Self { agreed_by, agreed_by_reason, read_back_reason, differences, reason, .. } = self;
        let reasons = [agreed_by_reason, read_back_reason, reason].into_iter().flatten();
        reasons.chain(differences).chain(agreed_by)
    }
}

/// What was saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedReport {
    /// Folder below the store's prefix.
    pub key: String,
    /// URI of the data object, without credentials.
    pub uri: String,
    /// Bytes of the database, without etcd's 32-byte trailer.
    pub db_bytes: u64,
    /// Bytes of the stored object.
    pub stored_bytes: u64,
    /// sha256 (hex) of the database, the same that etcd's trailer holds.
    pub sha256: String,
    /// sha256 (hex) of the stored object.
    pub stored_sha256: String,
    /// sha256 (hex) of `manifest.json`; absent in reports of versions before this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_sha256: Option<String>,
    /// How it is compressed.
    pub compression: Compression,
    /// Whether the stored object is encrypted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    /// Name of the member it came from.
    pub member: String,
    /// ID (hex) of the member it came from.
    pub member_id: String,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// The member's etcd version.
    pub etcd_version: String,
    /// Storage version of the data; absent before 3.6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
    /// The revision of the key space; absent where the structure was not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The revision below which history is gone; absent when there was no compaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_revision: Option<i64>,
    /// Keys that exist at that revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// etcd's HashKV at that revision.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "hashKV")]
    pub hash_kv: Option<u32>,
    /// How far it is proven; absent for what was saved before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Whether no quorum answered: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Until when nobody may remove it; absent: it is not locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
    /// Milliseconds from the first byte to the manifest.
    pub millis: u64,
    /// The most memory the agent's process held (kernel: `VmHWM`), for choosing a Job's limit; absent where unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
}

impl SavedReport {
    /// Makes it shorter, where a store or a member was long-winded; `false` when there is nothing left to cut.
    pub(crate) fn cut(&mut self) -> bool {
        let Self { member, etcd_version, storage_version, verification, .. } = self;
        let told = verification.iter_mut().flat_map(Verification::words);
        let words = [member, etcd_version].into_iter().chain(storage_version).chain(told);
        if words.max_by_key(|words| words.len()).is_some_and(halve) {
            return true;
        }
        // There may be many short ones.
        let found = self.verification.as_mut();
        found.is_some_and(|found| found.differences.pop().is_some() || found.agreed_by.pop().is_some())
    }
}

/// Cuts words to half of them; `false` when they are too few for that.
pub(super) fn halve(words: &mut String) -> bool {
    if words.len() <= 16 {
        return false;
    }
    words.truncate(words.floor_char_boundary(words.len() / 2));
    words.push('…');
    true
}

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoredReport {
    /// UID of the restore attempt.
    pub restore_uid: String,
    /// URI of the data object, without credentials.
    pub uri: String,
    /// Bytes of the database.
    pub db_bytes: u64,
    /// sha256 (hex) of the database.
    pub sha256: String,
    /// When the snapshot was taken (RFC 3339).
    pub taken_at: String,
    /// `namespace/name` of the cluster it was taken from.
    pub from_cluster: String,
    /// Whether no quorum answered when it was saved: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// The snapshot's revision; absent where its contents were not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// How far the revision was moved on.
    #[serde(default)]
    pub revision_bump: u64,
    /// What the snapshot holds beside keys; absent where its contents were not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_along: Option<CameAlong>,
    /// What of the contents was not compared with what was recorded when it was saved, and why. Absent: all of it was,
    /// or it is a raw file, of which nothing was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
    /// How the data directory was made; absent when it was there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// Why it is etcdutl's, where another engine was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<String>,
    /// Whether the volume was complete already and nothing was read.
    pub already: bool,
    /// Milliseconds it took.
    pub millis: u64,
}

impl RestoredReport {
    /// Makes it shorter; `false` when there is nothing left to cut.
    pub(crate) fn cut(&mut self) -> bool {
        self.came_along.as_mut().is_some_and(CameAlong::cut) || self.not_compared.as_mut().is_some_and(halve)
    }
}

/// What is in a snapshot beside its keys, and so in a cluster that was restored from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CameAlong {
    /// Members it names. They are no members of the restored cluster.
    #[serde(default)]
    pub members: u64,
    /// How many of these were learners.
    #[serde(default)]
    pub learners: u64,
    /// IDs (hex) of the first eight learners. Like the other names: absent where only a manifest could be asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learner_ids: Vec<String>,
    /// Leases. They begin anew: none ends before its whole time is over.
    #[serde(default)]
    pub leases: u64,
    /// Alarms that were on.
    #[serde(default)]
    pub alarms: u64,
    /// The first eight of these: what is the matter, and with which member (hex).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raised: Vec<String>,
    /// Users.
    #[serde(default)]
    pub users: u64,
    /// Names of the first eight users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_names: Vec<String>,
    /// Roles.
    #[serde(default)]
    pub roles: u64,
    /// Whether clients have to log in.
    #[serde(default)]
    pub auth_enabled: bool,
}

impl CameAlong {
    /// Makes it shorter; `false` when there is nothing left to cut.
    pub(crate) fn cut(&mut self) -> bool {
        let Self { learner_ids, raised, user_names, .. } = self;
        [user_names, raised, learner_ids].into_iter().any(|names| names.pop().is_some())
    }
}

/// What the gate saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateReport {
    /// Closed list, for conditions: see [`crate::verbs::gate`].
    pub verdict: String,
    /// What a person can do about it.
    pub message: String,
}

/// Why it failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedReport {
    /// The class of the failure.
    pub class: ExitClass,
    /// Where the failure comes from; absent in reports of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What happened and what to do; never a secret.
    pub message: String,
}

impl FailedReport {
    /// The row of the table of failures.
    pub fn failure(&self) -> &'static Failure {
        Failure::of(self.class, self.origin)
    }
}
