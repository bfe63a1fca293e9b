//! Facts about one folder of a lineage, and its verdict.
//!
//! This file decides the vocabulary only.

use jiff::Timestamp;

/// One folder of a lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The folder below the store's prefix.
    pub key: String,
    /// `startedAt` of the manifest; without one, the time in the folder's name.
    pub at: Timestamp,
    /// The candidate that the policy judges, or the reason for which the folder stays.
    pub subject: Result<Candidate, Untouched>,
    /// Facts of a held or protected snapshot of the schedule: the policy does not judge it, and stops count it.
    pub spared: Option<Candidate>,
}

/// A complete snapshot of the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// `endedAt` of the manifest.
    pub ended: Timestamp,
    /// Whether HashKV was equal at the save, or a drill passed.
    pub proven: bool,
    /// Whether a drill passed.
    pub drilled: bool,
    /// Whether a verification failed, and no later verification of at least its level passed.
    pub failed: bool,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// Revision of the key space.
    pub revision: Option<i64>,
    /// Keys at that revision.
    pub keys: Option<u64>,
    /// Source of its bytes.
    pub made_of: MadeOf,
}

/// Source of a snapshot's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MadeOf {
    /// The Snapshot stream of an etcd.
    #[default]
    Etcd,
    /// Another snapshot and the log.
    Log,
}

/// Reason for which the policy does not judge a folder: no prune removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untouched {
    /// Another object requested the snapshot.
    OtherOrigin,
    /// A user saved the snapshot by hand.
    ByHand,
    /// The last snapshot of a deleted cluster.
    Final,
    /// The folder has a hold.
    Held,
    /// The request protects the snapshot.
    Protected,
    /// The folder has no manifest: a save is running or has died.
    Incomplete,
    /// The manifest cannot be read, or the data is missing or has another size.
    Broken,
    /// The store has archived the manifest.
    Archived,
    /// A later version of Holdfast wrote the manifest.
    LaterFormat,
    /// The manifest names another folder.
    Copied,
    /// The cluster has another UID.
    OtherCluster,
}

impl Untouched {
    /// Describes the reason for users.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherOrigin => "another object requested it",
            Self::ByHand => "saved by hand",
            Self::Final => "final snapshot",
            Self::Held => "held",
            Self::Protected => "protected",
            Self::Incomplete => "incomplete",
            Self::Broken => "broken",
            Self::Archived => "archived by the store",
            Self::LaterFormat => "written by a later version",
            Self::Copied => "manifest of another folder",
            Self::OtherCluster => "another cluster's UID",
        }
    }
}

/// Verdict on a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The snapshot stays, for each of these reasons.
    Keep(Vec<Reason>),
    /// No rule keeps the snapshot.
    Drop,
    /// The policy does not judge the folder.
    Untouched(Untouched),
}

/// Reason for which a snapshot is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// `keepLast`.
    Last,
    /// `keepHourly`.
    Hourly,
    /// `keepDaily`.
    Daily,
    /// `keepWeekly`.
    Weekly,
    /// `keepMonthly`.
    Monthly,
    /// `keepYearly`.
    Yearly,
    /// `keepWithin`.
    Within,
    /// One of the two newest proven snapshots.
    NewestProven,
    /// The newest snapshot with a passed drill.
    NewestDrilled,
    /// The newest snapshot.
    Newest,
    /// Younger than an hour.
    Young,
    /// The schedule has no policy.
    NoPolicy,
}

impl Reason {
    /// Describes the reason for users and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
            Self::Within => "within",
            Self::NewestProven => "newest proven",
            Self::NewestDrilled => "newest drilled",
            Self::Newest => "newest",
            Self::Young => "younger than 1 h",
            Self::NoPolicy => "no policy",
        }
    }
}

impl Verdict {
    /// Whether no rule keeps the snapshot.
    pub const fn is_drop(&self) -> bool {
        matches!(self, Self::Drop)
    }

    /// Returns the verdict as one word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Keep(_) => "keep",
            Self::Drop => "drop",
            Self::Untouched(_) => "untouched",
        }
    }

    /// Describes the reasons for users.
    pub fn why(&self) -> String {
        match self {
            Self::Keep(reasons) => reasons.iter().map(|reason| reason.as_str()).collect::<Vec<_>>().join(", "),
            Self::Drop => "no rule keeps it".to_owned(),
            Self::Untouched(why) => why.as_str().to_owned(),
        }
    }
}
