//! A database that was merged from a snapshot and the log, on its way into the store.
//!
//! This file decides the proof that the manifest records. `verbs/restore/compact.rs` merges, `verbs/save/merged.rs` publishes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use holdfast_bbolt::scan::Proven;
use holdfast_contract::error::{Error, Result, io_error};
use holdfast_contract::{Level, PointProof, Verification};
use holdfast_io::scratch::Scratch;
use holdfast_io::sha256::Sha256;
use holdfast_layout::manifest::{DerivedFrom, Manifest};
use jiff::Timestamp;

/// A merged database in a scratch folder, which is removed with this value.
#[derive(Debug)]
pub struct MergedSnapshot {
    /// Begin of the run: the begin of the snapshot too, so that a save of the meantime does not count as the earlier one.
    pub at: Timestamp,
    /// The folder of the database, which has no trailer.
    pub scratch: Scratch,
    /// Bytes of the database.
    pub db_bytes: u64,
    /// sha256 of the database, from before its proof.
    pub sha256: Option<[u8; 32]>,
    /// Manifest of the snapshot that the log continues.
    pub base: Manifest,
    /// The snapshot and the segments.
    pub derived_from: DerivedFrom,
    /// Contents of the database.
    pub proven: Proven,
    /// The comparison with a member.
    pub proof: PointProof,
    /// ID (hex) of the member that was asked at this revision.
    pub asked: Option<String>,
}

/// Bytes that are hashed at a time.
const PIECE: usize = 1 << 20;

/// Hashes a database of this size. The stream that publishes it hashes what it reads itself, so only this hash shows a change.
pub fn hash_database(file: &File, bytes: u64) -> Result<[u8; 32]> {
    let (mut hash, mut piece, mut at) = (Sha256::new(), vec![0; PIECE], 0);
    while at < bytes {
        let length = usize::try_from(bytes - at).unwrap_or(PIECE).min(PIECE);
        let part = &mut piece[..length];
        file.read_exact_at(part, at).map_err(io_error("reading the merged database in --scratch"))?;
        hash.update(part);
        at += length as u64;
    }
    Ok(hash.finalize())
}

/// Refuses a stream whose database is not the proven one.
pub fn check_published(proven: Option<[u8; 32]>, streamed: [u8; 32]) -> Result<()> {
    if proven == Some(streamed) {
        return Ok(());
    }
    Err(Error::corrupt(
        "the merged database in --scratch changed between its proof and the upload; nothing was published. Check the memory and \
         the disk of this node, and merge again",
    ))
}

/// Name of the database in the scratch folder.
pub const DATABASE: &str = "snapshot.db";

impl MergedSnapshot {
    /// Returns the path of the database.
    pub fn path(&self) -> PathBuf {
        self.scratch.join(DATABASE)
    }

    /// Returns the verification for the manifest: the comparison of a save does not repeat for a merge.
    pub fn verification(&self) -> Verification {
        if self.proof == PointProof::HashKV {
            let agreed_by = self.asked.iter().cloned().collect();
            return Verification { level: Level::HashKV, agreed_by, ..Verification::default() };
        }
        let base_level = self.base.verification.as_ref().map_or("not proven", |found| found.level.as_str());
        let reason = format!(
            "no member was asked at revision {}: each revision after {} ({base_level}) is in the log, with its checksum",
            self.proven.revision, self.derived_from.base
        );
        Verification { level: Level::Structure, reason: Some(reason), ..Verification::default() }
    }
}
