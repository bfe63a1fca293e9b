//! Result of a scan: the facts of a sound database, or the reason of a failure.

/// Number of users, learners and alarms with details beyond their count.
pub const MOST_NAMED: usize = 8;

/// A database with a sound structure, and its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The revision that a member reports after a start on this database: that of the last record, or of the compaction if that
    /// is newer; 1 without either.
    pub revision: i64,
    /// The revision of the last record; `None`: no record exists. It is below `revision` if a compaction has removed the record
    /// at its own revision, as etcd before 3.5.16 does with a tombstone (etcd pull request 18274).
    pub last_record: Option<i64>,
    /// Compact revision, also of a scheduled compaction: history below it is gone. `None`: never compacted.
    pub compact_revision: Option<i64>,
    /// Keys that exist at `revision`, without the record of a revision bump. `None`: the budget was too small to count.
    pub keys: Option<u64>,
    /// Records in the bucket `key`: every revision of every key, tombstones and revision bumps included.
    pub revisions: u64,
    /// etcd's HashKV at `revision`, or the reason for its absence.
    pub hash_kv: Result<HashKv, NoHashKv>,
    /// Raft index of the last applied entry.
    pub consistent_index: Option<u64>,
    /// Raft term of the last applied entry.
    pub term: Option<u64>,
    /// Storage version; written by etcd 3.6 and later.
    pub storage_version: Option<String>,
    /// Cluster version; absent before the first members have agreed on a version. `etcdutl` keeps it in restored data.
    pub cluster_version: Option<String>,
    /// Members, by ID as etcd sorts them (hexadecimal).
    pub members: Vec<Member>,
    /// IDs of members that were removed.
    pub removed_members: Vec<u64>,
    /// Whether authentication is enabled.
    pub auth_enabled: bool,
    /// Number of users.
    pub users: u64,
    /// Names of the first [`MOST_NAMED`] users in etcd's order, each at most 64 bytes long.
    pub first_users: Vec<Vec<u8>>,
    /// Number of roles.
    pub roles: u64,
    /// Leases, by ID.
    pub leases: Vec<Lease>,
    /// Active alarms.
    pub alarms: Vec<Alarm>,
    /// Scanned bytes.
    pub bytes: u64,
    /// Pages up to the high-water mark, free ones included.
    pub pages: u64,
    /// Pages that the tree reaches, the two meta pages included.
    pub pages_in_use: u64,
    /// Page size in bytes.
    pub page_size: u32,
}

impl Proven {
    /// Returns the facts of an empty database.
    pub const fn empty() -> Self {
        Self {
            revision: 1,
            last_record: None,
            compact_revision: None,
            keys: None,
            revisions: 0,
            hash_kv: Err(NoHashKv::OverBudget),
            consistent_index: None,
            term: None,
            storage_version: None,
            cluster_version: None,
            members: vec![],
            removed_members: vec![],
            auth_enabled: false,
            users: 0,
            first_users: vec![],
            roles: 0,
            leases: vec![],
            alarms: vec![],
            bytes: 0,
            pages: 0,
            pages_in_use: 0,
            page_size: 4096,
        }
    }
}

/// etcd's checksum of the key space, comparable with a member's answer for the same two revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKv {
    /// The checksum.
    pub hash: u32,
    /// The revision of the checksum.
    pub revision: i64,
    /// The compact revision of the checksum; -1 without a compaction, as in etcd.
    pub compact_revision: i64,
}

/// Reason for which a sound database has no HashKV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHashKv {
    /// The compact revision in the scan's options is not the file's.
    #[error("compaction moved from {asked} to {found} before the snapshot")]
    Moved {
        /// The compact revision in the options.
        asked: i64,
        /// The file's compact revision; -1 for none.
        found: i64,
    },
    /// A compaction was scheduled and not finished: some records that it will delete still exist.
    #[error("the compaction at {scheduled} is half done (finished: {finished})")]
    Unfinished {
        /// The revision being compacted.
        scheduled: i64,
        /// The last finished compaction; -1 for none.
        finished: i64,
    },
    /// The records exceed the memory budget.
    #[error("the records did not fit the memory budget")]
    OverBudget,
}

/// A member of the cluster, from the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Member ID.
    pub id: u64,
    /// Name; empty until the member has started once.
    pub name: String,
    /// Peer URLs.
    pub peer_urls: Vec<String>,
    /// Client URLs.
    pub client_urls: Vec<String>,
    /// Whether the member is a learner.
    pub learner: bool,
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Lease ID.
    pub id: i64,
    /// Granted time to live in seconds.
    pub ttl: i64,
}

/// An alarm of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Member ID.
    pub member: u64,
    /// Kind as etcd numbers it: 1 NOSPACE, 2 CORRUPT.
    pub kind: u64,
}

/// Reason for which a database is not proven.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Neither meta page is valid: no bbolt database, or its start was destroyed.
    #[error("{bytes} bytes without a valid meta page: not an etcd database, or its beginning is destroyed")]
    NoMeta {
        /// Number of scanned bytes.
        bytes: u64,
    },
    /// The end is missing.
    #[error("the database was cut short: {bytes} bytes, its meta page speaks of {needed}")]
    Cut {
        /// Number of scanned bytes.
        bytes: u64,
        /// Size of all pages up to the high-water mark.
        needed: u64,
    },
    /// A page of the tree is invalid.
    #[error("page {page} {what}")]
    Page {
        /// Page ID.
        page: u64,
        /// The defect, as text that follows the page's number.
        what: &'static str,
    },
    /// A bucket's content differs from etcd's format.
    #[error("bucket {bucket}: {what}")]
    Bucket {
        /// The bucket's name.
        bucket: String,
        /// The defect.
        what: &'static str,
    },
    /// The structure exceeds the memory budget: no fault is known. A reader with random access needs less memory.
    #[error("the page summaries do not fit the memory budget of {budget} bytes")]
    OverBudget {
        /// The budget.
        budget: usize,
    },
    /// The file could not be read (random access only).
    #[error("the database cannot be read: {0}")]
    Io(String),
}
