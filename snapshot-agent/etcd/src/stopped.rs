//! A stopped member: its folders, its log and its database.
//!
//! This file decides where etcd's data directory is, and that no etcd runs on it: etcd holds a lock on its database (bbolt:
//! bolt_unix.go, `flock`). Everything is opened for reading only, because the volume may be the last copy. `stopped/segment.rs`
//! and `stopped/log.rs` read the log; `stopped/commit.rs` writes to the copy of a log. A verb decides what it does with the facts.

pub mod commit;
pub mod log;
mod segment;

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use holdfast_bbolt::graft::{self, Reached, Recorded};
use holdfast_contract::error::{Error, Result, io_error};
use holdfast_contract::{DATA_DIR, Origin};
use holdfast_gate::data_dir::{DATABASE, WAL};
use holdfast_io::progress::Progress;

use log::{Log, LogError};

/// A member whose etcd has stopped. While this exists, no etcd of this machine starts on its data.
#[derive(Debug)]
pub struct Stopped {
    data: PathBuf,
    /// The open database, with a shared lock. `None`: there is no database.
    _lock: Option<File>,
    lock_unknown: Option<String>,
}

impl Stopped {
    /// Finds the data directory: `data` in the folder, or the folder itself.
    pub fn find(volume: &Path) -> Result<Self> {
        let looked = [volume.join(DATA_DIR), volume.to_owned()];
        let data = looked.into_iter().find(|data| data.join(MEMBER).is_dir()).ok_or_else(|| {
            let path = volume.display();
            Error::not_found(format!(
                "{path} holds no data of etcd: neither {path}/{DATA_DIR}/{MEMBER} nor {path}/{MEMBER} is a folder. Name the \
                 folder at which the member's volume is mounted"
            ))
            .with_origin(Origin::Volume)
        })?;
        let database = data.join(DATABASE);
        let file = match File::open(&database) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { data, _lock: None, lock_unknown: None });
            }
            Err(error) => return Err(io_error(format!("opening {}", database.display()))(error)),
        };
        let lock_unknown = match file.try_lock_shared() {
            Ok(()) => None,
            Err(TryLockError::WouldBlock) => {
                return Err(Error::refused(format!(
                    "an etcd runs on {}: it holds the lock of the database. Nothing was read. Stop that etcd first",
                    data.display()
                )));
            }
            // Some file systems have no locks, and some none for a mount that is read-only.
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, "the database cannot be locked: the agent cannot see whether an etcd runs on it");
                Some(error.to_string())
            }
        };
        Ok(Self { data, _lock: Some(file), lock_unknown })
    }

    /// Returns etcd's data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the reason for which the file system cannot say whether an etcd runs on the data.
    pub fn lock_unknown(&self) -> Option<&str> {
        self.lock_unknown.as_deref()
    }
}

/// The folder of a member in etcd's data directory.
const MEMBER: &str = "member";

/// Reads the log of a data directory.
pub fn read_log(data: &Path) -> std::result::Result<Log, LogError> {
    let folder = data.join(WAL);
    let progress = Progress::new("reading the member's log", log::size(&folder)?);
    log::read(&folder, &progress)
}

/// A database's file.
pub struct Database {
    /// Its bytes.
    pub bytes: u64,
    /// Its state, or the reason for which it cannot be read.
    pub recorded: std::result::Result<Recorded, String>,
}

/// Reads a few pages of a database.
pub fn read_database(path: &Path) -> io::Result<Database> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    Ok(Database { bytes, recorded: graft::recorded(&file, bytes).map_err(|why| why.to_string()) })
}

/// Returns the revision from which a member would start (etcd: server/storage/mvcc/kvstore.go, `restore`).
pub fn revision(Reached { last_record, compact_revision }: Reached) -> i64 {
    last_record.max(compact_revision).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn the_data_are_in_the_volume_or_are_the_volume() {
        let volume = tempfile::tempdir().unwrap();
        let missing = Stopped::find(volume.path()).unwrap_err();
        assert_eq!((missing.class(), missing.failure().code), (ExitClass::NotFound, 78), "{missing}");
        fs::create_dir_all(volume.path().join("member/snap")).unwrap();
        assert_eq!(Stopped::find(volume.path()).unwrap().data(), volume.path());
        let data = volume.path().join(DATA_DIR);
        fs::create_dir_all(data.join("member/snap")).unwrap();
        assert_eq!(Stopped::find(volume.path()).unwrap().data(), data);
    }

    #[test]
    fn a_locked_database_is_refused_and_two_readers_are_not() {
        let volume = tempfile::tempdir().unwrap();
        fs::create_dir_all(volume.path().join("member/snap")).unwrap();
        fs::write(volume.path().join(DATABASE), "x").unwrap();
        let etcd = File::open(volume.path().join(DATABASE)).unwrap();
        etcd.lock().unwrap();
        let refused = Stopped::find(volume.path()).unwrap_err();
        assert!(refused.class() == ExitClass::Refused && refused.message().contains("an etcd runs"), "{refused}");
        etcd.unlock().unwrap();
        let reader = Stopped::find(volume.path()).unwrap();
        let second = Stopped::find(volume.path()).unwrap();
        assert_eq!((reader.lock_unknown(), second.lock_unknown()), (None, None));
        assert!(etcd.try_lock().is_err(), "no etcd starts meanwhile");
        drop((reader, second));
        etcd.try_lock().unwrap();
    }
}
