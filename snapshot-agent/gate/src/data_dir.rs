//! Paths in etcd's data directory (etcd: server/storage/datadir/datadir.go). Other files decide whether they may exist and what
//! they hold.

/// Snapshots of the membership, and the database.
pub const SNAP: &str = "member/snap";

/// The log.
pub const WAL: &str = "member/wal";

/// The database.
pub const DATABASE: &str = "member/snap/db";
