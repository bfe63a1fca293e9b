//! What a scan ends with: the facts of a sound database, or why it is none.

/// Users, learners and alarms of which more is told than their number.
pub const MOST_NAMED: usize = 8;

/// A database whose structure is sound, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The revision a member that starts on this database reports: that of the last record, or of the compaction when
    /// that is newer; 1 when there is neither.
    pub revision: i64,
    /// The revision of the last record; `None`: there is none. It lies behind `revision` where a compaction has removed the
    /// records that it came to, as etcd before 3.5.16 does with a tombstone (etcd pull request 18274).
    pub last_record: Option<i64>,
    /// The revision below which history is gone, also when the compaction has only been scheduled. `None`: never.
    pub compact_revision: Option<i64>,
    /// Keys that exist at `revision`, without the record of a revision bump. `None`: the budget was too small to count.
    pub keys: Option<u64>,
    /// Records in the bucket `key`: every revision of every key, tombstones and revision bumps included.
    pub revisions: u64,
    /// etcd's HashKV at `revision`, or why there is none.
    pub hash_kv: Result<HashKv, NoHashKv>,
    /// Raft index of the last applied entry.
    pub consistent_index: Option<u64>,
    /// Raft term of the last applied entry.
    pub term: Option<u64>,
    /// Storage version; written by etcd 3.6 and later.
    pub storage_version: Option<String>,
    /// Cluster version; absent before the first members have agreed on one. `etcdutl` keeps it in what it restores.
    pub cluster_version: Option<String>,
    /// Members, by ID as etcd sorts them (hexadecimal).
    pub members: Vec<Member>,
    /// IDs of members that were removed.
    pub removed_members: Vec<u64>,
    /// Whether authentication is on.
    pub auth_enabled: bool,
    /// Users.
    pub users: u64,
    /// Their names, the first [`MOST_NAMED`] as etcd sorts them, none longer than 64 bytes.
    pub first_users: Vec<Vec<u8>>,
    /// Roles.
    pub roles: u64,
    /// Leases, by ID.
    pub leases: Vec<Lease>,
    /// Alarms that are on.
    pub alarms: Vec<Alarm>,
    /// Bytes that were scanned.
    pub bytes: u64,
    /// Pages up to the high-water mark, free ones included.
    pub pages: u64,
    /// Pages that the tree reaches, the two meta pages included.
    pub pages_in_use: u64,
    /// Page size in bytes.
    pub page_size: u32,
}

#[cfg(test)]
impl Proven {
    /// An empty database, for tests that are about one of its facts.
    pub(crate) const fn of_nothing() -> Self {
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

/// etcd's checksum of the key space, comparable with what a member answers for the same two revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKv {
    /// The checksum.
    pub hash: u32,
    /// The revision it was taken at.
    pub revision: i64,
    /// The compact revision it was taken with; -1 when nothing was ever compacted, as etcd has it.
    pub compact_revision: i64,
}

/// Why there is no HashKV in a sound database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHashKv {
    /// The compact revision that the scan was told is not the file's.
    #[error("compaction moved from {asked} to {found} before the snapshot")]
    Moved {
        /// What the scan was told.
        asked: i64,
        /// The file's compact revision; -1 for none.
        found: i64,
    },
    /// A compaction was scheduled and not finished: what it will delete is still partly there.
    #[error("the compaction at {scheduled} is half done (finished: {finished})")]
    Unfinished {
        /// The revision being compacted.
        scheduled: i64,
        /// The last finished compaction; -1 for none.
        finished: i64,
    },
    /// Too many records for the memory budget.
    #[error("the records did not fit the memory budget")]
    OverBudget,
}

/// A member of the cluster, as the database has it.
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
    /// Whether it has no vote yet.
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

/// Why a database is not proven.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Neither meta page is valid: no bbolt database, or one that was destroyed at its beginning.
    #[error("{bytes} bytes without a valid meta page: not an etcd database, or its beginning is destroyed")]
    NoMeta {
        /// Bytes that were seen.
        bytes: u64,
    },
    /// The end is missing.
    #[error("the database was cut short: {bytes} bytes, its meta page speaks of {needed}")]
    Cut {
        /// Bytes that were seen.
        bytes: u64,
        /// Bytes that the pages in use take.
        needed: u64,
    },
    /// A page of the tree is not what it must be.
    #[error("page {page} {what}")]
    Page {
        /// Page ID.
        page: u64,
        /// What is wrong, to be read after the page's number.
        what: &'static str,
    },
    /// A bucket's content is not what etcd writes.
    #[error("bucket {bucket}: {what}")]
    Bucket {
        /// The bucket's name.
        bucket: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The structure could not be held in the memory budget: nothing is known to be wrong. A reader with random access
    /// needs less.
    #[error("the page summaries do not fit the memory budget of {budget} bytes")]
    OverBudget {
        /// The budget.
        budget: usize,
    },
    /// The file could not be read (random access only).
    #[error("the database cannot be read: {0}")]
    Io(String),
}
