//! A point of the past as a database in a scratch folder, on its way to a comparison with a live etcd.
//!
//! This file decides which facts name the point. `rebuild/src/restore/undelete.rs` makes it, `verbs-live/src/undelete.rs` compares.

use std::path::PathBuf;
use std::time::Instant;

use holdfast_contract::PointProof;
use holdfast_io::scratch::Scratch;

/// A restored point. The scratch folder is removed with this value.
#[derive(Debug)]
pub struct PastState {
    /// Begin of the run, from which its time limit counts.
    pub began: Instant,
    /// The folder of the database, and of the comparison's own files.
    pub scratch: Scratch,
    /// The database.
    pub path: PathBuf,
    /// Bytes of the database, without a trailer.
    pub db_bytes: u64,
    /// The newest revision.
    pub revision: i64,
    /// ID of the etcd cluster; `None`: a file without a manifest does not name it.
    pub cluster_id: Option<u64>,
    /// URI of the snapshot that the point begins with.
    pub uri: String,
    /// Proof of the point with a log.
    pub proof: Option<PointProof>,
}
