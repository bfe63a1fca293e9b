//! Where etcd has its parts in a data directory (etcd: server/storage/datadir/datadir.go). Whether they may be there, and
//! what is in them, is decided elsewhere.

/// Snapshots of the membership, and the database.
pub(crate) const SNAP: &str = "member/snap";

/// The log.
pub(crate) const WAL: &str = "member/wal";

/// The database.
pub(crate) const DATABASE: &str = "member/snap/db";
