//! The report of a run, as JSON.
//!
//! This file decides the wire format only. `failure.rs` holds the exit codes.

use serde::{Deserialize, Serialize};

use super::{
    ComparedReport, Compression, DrilledReport, Engine, ExitClass, Failure, LatestReport, Lock, Origin, PointReport,
    Probed, RecallReport, SurveyReport, SurvivorReport,
};

/// Report of an agent in its container's termination message: JSON of less than [`MAX_REPORT_BYTES`]. It is a hint; the
/// manifest in the store is the truth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Report {
    /// The agent has published a snapshot.
    Saved(Box<SavedReport>),
    /// The agent has rebuilt a data directory, or found it complete.
    Restored(RestoredReport),
    /// The gate has started etcd, or refused.
    Gate(GateReport),
    /// The agent has probed a store, with any result.
    Probed(Probed),
    /// The agent has found the newest snapshot.
    Latest(LatestReport),
    /// The agent has listed runs of a schedule.
    Recalled(RecallReport),
    /// The agent has compared the members' databases with etcd's member list, with any result.
    Compared(ComparedReport),
    /// The agent has drilled a snapshot, with any result.
    Drilled(DrilledReport),
    /// The agent has read a stopped member's volume, with any result.
    Surveyed(Box<SurveyReport>),
    /// The agent has published nothing and made nothing startable.
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
    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trailer => "Trailer",
            Self::Structure => "Structure",
            Self::HashKV => "HashKV",
        }
    }
}

/// The proof of a snapshot.
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
    /// Returns the texts, whose length depends on the store or the members.
    fn words(&mut self) -> impl Iterator<Item = &mut String> {
        let Self { agreed_by, agreed_by_reason, read_back_reason, differences, reason, .. } = self;
        let reasons = [agreed_by_reason, read_back_reason, reason].into_iter().flatten();
        reasons.chain(differences).chain(agreed_by)
    }
}

/// Facts of a saved snapshot.
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
    /// sha256 (hex) of the database, equal to etcd's trailer.
    pub sha256: String,
    /// sha256 (hex) of the stored object.
    pub stored_sha256: String,
    /// sha256 (hex) of `manifest.json`; absent in reports of versions before this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_sha256: Option<String>,
    /// Compression of the stored object.
    pub compression: Compression,
    /// Whether the stored object is encrypted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    /// Name of the member that sent the snapshot.
    pub member: String,
    /// ID (hex) of the member that sent the snapshot.
    pub member_id: String,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// The member's etcd version.
    pub etcd_version: String,
    /// Storage version of the data; absent before 3.6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
    /// The revision of the key space; absent if the structure was not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The compact revision: history below it is gone; absent without a compaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_revision: Option<i64>,
    /// Keys that exist at that revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// etcd's HashKV at that revision.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "hashKV")]
    pub hash_kv: Option<u32>,
    /// Whether authentication is on: no `EtcdCluster` can be restored from the snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auth_enabled: bool,
    /// Level of proof; absent in old manifests that do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Whether no quorum answered: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Lock of the stored data; absent: no lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
    /// Milliseconds from the first byte to the manifest.
    pub millis: u64,
    /// Peak memory of the agent's process (kernel: `VmHWM`), for the choice of a Job's limit; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
}

impl SavedReport {
    /// Shortens long texts of a store or a member; `false` when nothing is left to cut.
    pub fn cut(&mut self) -> bool {
        let Self { member, etcd_version, storage_version, verification, .. } = self;
        let texts = verification.iter_mut().flat_map(Verification::words);
        let words = [member, etcd_version].into_iter().chain(storage_version).chain(texts);
        if words.max_by_key(|words| words.len()).is_some_and(halve) {
            return true;
        }
        // Many short texts are possible.
        let found = self.verification.as_mut();
        found.is_some_and(|found| found.differences.pop().is_some() || found.agreed_by.pop().is_some())
    }
}

/// Cuts a text to half of its length; `false` for a short text.
pub(super) fn halve(words: &mut String) -> bool {
    if words.len() <= 16 {
        return false;
    }
    words.truncate(words.floor_char_boundary(words.len() / 2));
    words.push('…');
    true
}

/// Facts of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoredReport {
    /// UID of the restore attempt.
    pub restore_uid: String,
    /// URI of the data object, without credentials; `volume:DIR` for a survivor's volume.
    pub uri: String,
    /// Bytes of the database.
    pub db_bytes: u64,
    /// sha256 (hex) of the database; for a survivor's volume of the database on it, before the log was replayed.
    pub sha256: String,
    /// Time of the snapshot (RFC 3339).
    pub taken_at: String,
    /// `namespace/name` of the snapshot's cluster.
    pub from_cluster: String,
    /// Whether no quorum answered at the save: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// The restored revision, before it is raised; absent if the contents were not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Number by which the restore raised the revision.
    #[serde(default)]
    pub revision_bump: u64,
    /// The point in time, if the restore continued the snapshot with a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Box<PointReport>>,
    /// The survivor's volume, if the restore used one instead of a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivor: Option<Box<SurvivorReport>>,
    /// Contents beside keys; absent if the contents were not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_along: Option<CameAlong>,
    /// Contents that were not compared with the manifest, with the reason. Absent: all were compared, or the file has no
    /// manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
    /// Engine that made the data directory; absent if the directory existed already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// Reason for which etcdutl took over from the requested engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<String>,
    /// Whether the volume was complete already, so that the agent read nothing.
    pub already: bool,
    /// Duration in milliseconds.
    pub millis: u64,
}

impl RestoredReport {
    /// Shortens the report; `false` when nothing is left to cut.
    pub fn cut(&mut self) -> bool {
        self.came_along.as_mut().is_some_and(CameAlong::cut) || self.not_compared.as_mut().is_some_and(halve)
    }
}

/// Contents of a snapshot beside its keys; a cluster restored from the snapshot has them too.
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
    /// Leases. Each starts again with its whole time.
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
    /// Shortens the lists; `false` when nothing is left to cut.
    pub fn cut(&mut self) -> bool {
        let Self { learner_ids, raised, user_names, .. } = self;
        [user_names, raised, learner_ids].into_iter().any(|names| names.pop().is_some())
    }
}

/// Verdict of the gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateReport {
    /// Closed list, for conditions: see [`crate::verbs::gate`].
    pub verdict: String,
    /// The problem and the remedy.
    pub message: String,
}

/// Reason of a failed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedReport {
    /// The class of the failure.
    pub class: ExitClass,
    /// Source of the failure; absent in reports of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The problem and the remedy; never a secret.
    pub message: String,
}

impl FailedReport {
    /// Returns the row of the table of failures.
    pub fn failure(&self) -> &'static Failure {
        Failure::for_class(self.class, self.origin)
    }
}
