//! Repair of lost members: what a user may set, and what counts as evidence that a member is lost.
//!
//! Decides the shape. Evidence is collected by the member's pass (`plan::member::evidence`), and judged by the cluster's pass
//! (`plan::cluster::replace`).

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where `spec.repair.afterSeconds` is absent.
const AFTER_SECONDS: u32 = 300;
/// Where `spec.repair.keepClaimSeconds` is absent: a day.
const KEEP_CLAIM_SECONDS: u32 = 86_400;

/// Replacement of lost members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Repair {
    /// `Automatic` (default): Holdfast replaces a member on evidence that its data are lost, at most one member per hour.
    /// `Manual`: Holdfast reports the evidence, and replaces only the member that the annotation `holdfast.dev/replace`
    /// names.
    #[serde(default)]
    pub mode: RepairMode,
    /// Seconds between the evidence and the replacement; default 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub after_seconds: Option<u32>,
    /// Seconds for which Holdfast keeps the claim of a replaced member; default 86400 (a day), at most 30 days. Without
    /// effect when `spec.storage.retention` is `Retain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub keep_claim_seconds: Option<u32>,
}

/// The authority that decides on the replacement of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RepairMode {
    /// Holdfast, on evidence.
    #[default]
    Automatic,
    /// A person, by annotation.
    Manual,
}

impl Repair {
    /// From the evidence to the replacement.
    pub fn after(&self) -> SignedDuration {
        SignedDuration::from_secs(self.after_seconds.unwrap_or(AFTER_SECONDS).into())
    }

    /// How long the claim of a replaced member stays.
    pub fn keep_claim(&self) -> SignedDuration {
        SignedDuration::from_secs(self.keep_claim_seconds.unwrap_or(KEEP_CLAIM_SECONDS).into())
    }
}

/// Evidence that a member's data are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The lost data.
    pub kind: Loss,
    /// Verdicts of the gate, or other details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Time at which the evidence was complete (RFC 3339).
    pub at: String,
}

impl Evidence {
    /// When the evidence was complete.
    pub fn since(&self) -> Option<Timestamp> {
        self.at.parse().ok()
    }

    /// In words, about the member.
    pub fn describe(&self) -> String {
        let what = match self.kind {
            Loss::ClaimGone => "its claim is gone",
            Loss::VolumeRefused => "the gate refused its volume in two Pods",
            Loss::DataCorrupt => "etcd found its data corrupt in two Pods",
            Loss::MemoryGone => "the data in its memory are gone",
            Loss::Diverged => "etcd raised CORRUPT for it, and a majority of the voters agrees on other data",
        };
        self.detail.as_ref().map_or_else(|| what.to_owned(), |detail| format!("{what} ({detail})"))
    }
}

/// How a member's data were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Loss {
    /// The claim of a member that has served is gone.
    #[default]
    ClaimGone,
    /// The gate refused the volume in two Pods of the member: emptied, foreign, older, or another member's.
    VolumeRefused,
    /// etcd ended in two Pods of the member because its write-ahead log or its database is corrupt.
    DataCorrupt,
    /// The Pod of a member that kept its data in memory is gone, has ended, or has lost its memory in a restart of its node.
    MemoryGone,
    /// etcd raised the alarm CORRUPT for the member, and a majority of the voters has another hash of its data.
    Diverged,
}

/// A Pod in which the gate or etcd refused the member's data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// UID of the Pod.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Verdict of the gate, or `CorruptLog` or `CorruptDatabase` by etcd's own words.
    pub verdict: String,
    /// Time at which Holdfast first saw the refusal (RFC 3339).
    pub at: String,
}

/// Joining members that Holdfast gave up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GivenUp {
    /// Name of the last one.
    pub member: String,
    /// Number of members in a row.
    pub count: u32,
    /// Time of the last decision (RFC 3339). The next member is made later each time, at most an hour.
    pub at: String,
}

/// Replacement of a member on evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replaced {
    /// Name of the member that goes.
    pub member: String,
    /// Evidence that its data are lost.
    pub evidence: Evidence,
    /// Time of the decision (RFC 3339).
    pub at: String,
}
