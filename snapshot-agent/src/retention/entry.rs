//! What retention knows of one folder of a lineage, and what it says of it.
//!
//! Decides the vocabulary only.

use jiff::Timestamp;

/// One folder of a lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The folder below the store's prefix.
    pub key: String,
    /// `startedAt` of the manifest; without one, the time in the folder's name.
    pub at: Timestamp,
    /// Whether a policy judges it.
    pub subject: Result<Candidate, Untouched>,
    /// What is known of a snapshot of the schedule that is held or protected: no policy judges it, and doubts count it.
    pub spared: Option<Candidate>,
}

/// A complete snapshot of the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// `endedAt` of the manifest.
    pub ended: Timestamp,
    /// Whether HashKV was equal when it was saved, or a drill passed.
    pub proven: bool,
    /// Whether a drill passed.
    pub drilled: bool,
    /// Whether a verification failed, and no later one of at least its level passed.
    pub failed: bool,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// Revision of the key space.
    pub revision: Option<i64>,
    /// Keys at that revision.
    pub keys: Option<u64>,
}

/// Why no policy judges a folder: nothing removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untouched {
    /// Another object requested the snapshot.
    OtherOrigin,
    /// A person saved it.
    ByHand,
    /// The last snapshot of a deleted cluster.
    Final,
    /// The folder `holds` beside it is not empty.
    Held,
    /// The request protects it.
    Protected,
    /// It has no manifest: a save is running or has died.
    Incomplete,
    /// Its manifest cannot be read, or its data is missing or has another size.
    Broken,
    /// A later version of this program wrote its manifest.
    LaterFormat,
    /// Its manifest names another folder.
    Copied,
    /// Its cluster has another UID.
    OtherCluster,
}

impl Untouched {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherOrigin => "another object requested it",
            Self::ByHand => "saved by hand",
            Self::Final => "final snapshot",
            Self::Held => "held",
            Self::Protected => "protected",
            Self::Incomplete => "incomplete",
            Self::Broken => "broken",
            Self::LaterFormat => "written by a later version",
            Self::Copied => "manifest of another folder",
            Self::OtherCluster => "another cluster's UID",
        }
    }
}

/// What becomes of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays, for each of these reasons.
    Keep(Vec<Reason>),
    /// No rule keeps it.
    Drop,
    /// No policy judges it.
    Untouched(Untouched),
}

/// Why a snapshot is kept.
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
    /// One of the newest two proven ones.
    NewestProven,
    /// The newest that a drill restored.
    NewestDrilled,
    /// The newest.
    Newest,
    /// Younger than an hour.
    Young,
    /// There is no policy.
    NoPolicy,
}

impl Reason {
    /// For people and records.
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
    /// Whether nothing keeps it.
    pub const fn is_drop(&self) -> bool {
        matches!(self, Self::Drop)
    }

    /// One word for people.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Keep(_) => "keep",
            Self::Drop => "drop",
            Self::Untouched(_) => "untouched",
        }
    }

    /// Why, for people.
    pub fn why(&self) -> String {
        match self {
            Self::Keep(reasons) => reasons.iter().map(|reason| reason.as_str()).collect::<Vec<_>>().join(", "),
            Self::Drop => "no rule keeps it".to_owned(),
            Self::Untouched(why) => why.as_str().to_owned(),
        }
    }
}
