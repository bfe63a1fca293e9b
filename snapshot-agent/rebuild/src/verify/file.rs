//! Verifies a snapshot file on this disk.
//!
//! This file decides which proofs a file gets: etcd's sha256 if the file ends with one, and always the structure of the
//! database and etcd's HashKV, recomputed from the bytes (`scan.rs`). It changes no file and asks no etcd. It unpacks
//! compressed and encrypted files first (`format/packed.rs`).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use holdfast_bbolt::scan::{NoHashKv, Reader};
use holdfast_contract::error::{Error, Result, io_error, of_request, task_error};
use holdfast_contract::{ExitClass, VerifyRequest, hex_id};
use holdfast_io::interrupt::Interrupt;
use holdfast_io::memory::file_budget;
use holdfast_io::progress::STALL;
use holdfast_io::scratch::Scratch;
use holdfast_layout::Key;
use holdfast_store::{Stat, Store};
use serde::Serialize;

use super::second_reading;
use holdfast_catalog::foreign;
use holdfast_catalog::reread;
use holdfast_format::packed::{Packed, Plain};
use holdfast_format::trailer::{Hasher, database_of};
use holdfast_verbs_common::unsound;

/// Size of a piece for the hash.
const PIECE: usize = 1 << 20;

/// Result for a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileVerified {
    /// Format of the packed file: `zstd`, `gzip` or `age`; absent for a plain file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed: Option<&'static str>,
    /// Bytes of the database, without etcd's trailer.
    pub db_bytes: u64,
    /// sha256 (hex) of the database, equal to the trailer's. Absent without a trailer, as in a copy of a member's own file;
    /// then only the structure is proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The revision that a member reports after a start on this file.
    pub revision: i64,
    /// The compact revision: history below it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_revision: Option<i64>,
    /// Keys that exist at that revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Records: every revision of every key, tombstones included.
    pub revisions: u64,
    /// etcd's HashKV at that revision, as `etcdctl endpoint hashkv` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_kv: Option<u32>,
    /// Reason for which there is no HashKV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_hash_kv: Option<String>,
    /// Storage version (etcd 3.6 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
    /// Members by ID (hex) and name; a restore replaces them.
    pub members: Vec<String>,
    /// Number of leases.
    pub leases: usize,
    /// Whether authentication is enabled: a restored cluster then requires these users.
    pub auth_enabled: bool,
    /// Number of users.
    pub users: u64,
}

impl FileVerified {
    /// Formats the result for a terminal.
    pub(super) fn lines(&self) -> String {
        let optional = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let sha256 = match &self.sha256 {
            Some(sha256) => format!("{sha256} (equals the sha256 at the end of the file)"),
            None => "- (the file has no sha256 at its end: only the structure is proven)".to_owned(),
        };
        let hash_kv = self.hash_kv.map(|hash| hash.to_string()).or_else(|| self.no_hash_kv.clone());
        let lines = [
            ("packed", self.packed.unwrap_or("no").to_owned()),
            ("database", format!("{} bytes, sound", self.db_bytes)),
            ("sha256", sha256),
            ("HashKV", optional(hash_kv)),
            ("revision", self.revision.to_string()),
            ("compacted", optional(self.compact_revision.map(|revision| revision.to_string()))),
            ("keys", optional(self.keys.map(|keys| keys.to_string()))),
            ("records", self.revisions.to_string()),
            ("storage", optional(self.storage_version.clone())),
            ("members", self.members.join(", ")),
            ("leases", self.leases.to_string()),
            ("users", format!("{}, authentication {}", self.users, if self.auth_enabled { "on" } else { "off" })),
        ];
        let lines = lines.map(|(what, value)| format!("{what:<10} {value}\n"));
        lines.concat()
    }
}

/// Unpacks the file if it is packed, and proves the database.
pub(super) async fn run(path: &Path, identities: &[PathBuf], scratch: &Path) -> Result<FileVerified> {
    let plain = Plain::unpack(path, identities, scratch).await?;
    let (named, unpacked, packed) = (path.to_owned(), plain.path.clone(), plain.packed.map(Packed::as_str));
    let found = tokio::task::spawn_blocking(move || verify(&named, &unpacked)).await;
    drop(plain);
    found.map_err(|error| task_error(&error))?.map(|found| FileVerified { packed, ..found })
}

/// Does the same for a file in a store, which has no manifest to compare with and no place for a proof.
pub(super) async fn run_stored(
    request: &VerifyRequest,
    store: &Store,
    (key, stat): (&Key, &Stat),
    mut interrupt: Interrupt,
) -> Result<FileVerified> {
    let VerifyRequest { scratch, snapshot, .. } = request;
    let since = Instant::now();
    let room = Scratch::new(scratch, stat.bytes)?;
    let (path, to) = room.file("stored")?;
    let file = interrupt.unless(foreign::download(store, (key, stat), to, STALL)).await?;
    let named = PathBuf::from(store.uri(key));
    let verified = async {
        let plain = Plain::unpack(&path, &snapshot.identities, scratch).await?;
        let (named, unpacked, packed) = (named.clone(), plain.path.clone(), plain.packed.map(Packed::as_str));
        let found = tokio::task::spawn_blocking(move || verify(&named, &unpacked)).await;
        drop(plain);
        found.map_err(|error| task_error(&error))?.map(|found| FileVerified { packed, ..found })
    };
    let error = match interrupt.unless(verified).await {
        Err(error) => Error::new(error.class(), error.message().replace(&path.display().to_string(), &store.uri(key))),
        found => return found,
    };
    if error.class() != ExitClass::Corrupt {
        return Err(error);
    }
    let first = foreign::digest_of(file).await?;
    let seconds = second_reading::seconds(request.deadline_seconds, since);
    let confirming = reread::of_data(store, key, (Some(first), None), error.clone(), STALL);
    Err(second_reading::confirm(&mut interrupt, seconds, &error, confirming).await)
}

/// Proves the database of a file, and reports it under another name.
fn verify(named: &Path, path: &Path) -> Result<FileVerified> {
    let reading = || format!("reading {}", named.display());
    let mut file = File::open(path).map_err(io_error(reading())).map_err(of_request)?;
    let bytes = file.metadata().map_err(io_error(reading()))?.len();
    let (db_bytes, trailer) = database_of(bytes);
    let sha256 = if trailer { Some(hashed(&mut file, &reading())?) } else { None };
    let at = named.display().to_string();
    let mut reader = Reader::open(&file, db_bytes, file_budget()).map_err(|error| unsound(&at, &error))?;
    let proven = reader.prove(None).map_err(|error| unsound(&at, &error))?;
    Ok(FileVerified {
        packed: None,
        db_bytes,
        sha256,
        revision: proven.revision,
        compact_revision: proven.compact_revision,
        keys: proven.keys,
        revisions: proven.revisions,
        hash_kv: proven.hash_kv.as_ref().ok().map(|found| found.hash),
        no_hash_kv: proven.hash_kv.as_ref().err().map(NoHashKv::to_string),
        storage_version: proven.storage_version,
        members: proven.members.iter().map(|m| format!("{} {}", hex_id(m.id), m.name)).collect(),
        leases: proven.leases.len(),
        auth_enabled: proven.auth_enabled,
        users: proven.users,
    })
}

/// Returns the sha256 of the database, which must equal the trailer.
fn hashed(file: &mut File, reading: &str) -> Result<String> {
    let (mut hasher, mut piece) = (Hasher::default(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece).map_err(io_error(reading))? {
            0 => break,
            got => hasher.update(piece.get(..got).unwrap_or_default()),
        }
    }
    let proven = hasher.finish().map_err(|error| Error::corrupt(format!("{reading}: {error}")))?;
    Ok(hex::encode(proven.sha256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_database_is_refused_in_its_own_words() {
        let at = |bytes: &[u8]| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            file
        };
        for (bytes, says) in [
            (vec![], "not an etcd database"),
            (vec![0; 8192], "not an etcd database"),
            (vec![0; 8192 + 32], "does not match the sha256 at its end"),
        ] {
            let file = at(&bytes);
            let error = verify(file.path(), file.path()).unwrap_err();
            assert_eq!(error.class(), ExitClass::Corrupt);
            assert!(error.message().contains(says), "{error}");
        }
        let nowhere = Path::new("/nonexistent/snapshot.db");
        let error = verify(nowhere, nowhere).unwrap_err();
        assert!(error.message().contains("/nonexistent/snapshot.db"), "{error}");
    }
}
