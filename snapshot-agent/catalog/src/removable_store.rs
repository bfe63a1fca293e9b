//! The requests of a store that judging and removing snapshots needs.
//!
//! This file decides nothing. A trait lets a test fail, lose and deny each request over a real store, and end the run before
//! and after each.

use bytes::Bytes;
use holdfast_contract::error::Result;
use holdfast_layout::{Folder, Key};
use holdfast_store::Store;
use holdfast_store::removal::{File, Lasting, Small};
use jiff::Timestamp;

use crate::attempts;
use crate::log;

/// Maximum number of files of a folder: years of proofs or announcements.
const MAX_FILES: usize = 100_000;

/// A store, as a removal uses it.
#[allow(async_fn_in_trait, reason = "no caller needs a future that moves between threads")]
pub trait RemovableStore {
    /// Returns the folders of a lineage's saves, the oldest first.
    async fn attempts(&self, lineage: &Folder) -> Result<Vec<Folder>>;

    /// Returns every file of a folder.
    async fn files(&self, folder: &Folder) -> Result<Vec<File>>;

    /// Returns the logs of a lineage.
    async fn logs_of(&self, lineage: &Folder) -> Result<Vec<log::BoundLog>>;

    /// Returns the ID of the etcd cluster of a log; `None`: there is no log.
    async fn log_cluster(&self, log: &Folder) -> Result<Option<u64>>;

    /// Returns the names of a log's folders: the days in order, then those of gaps and checks.
    async fn log_folders(&self, log: &Folder) -> Result<Vec<String>>;

    /// Returns every object in one folder of a log, with its path below the log.
    async fn log_files(&self, log: &Folder, name: &str) -> Result<Vec<File>>;

    /// Reads a small object; `None`: it does not exist.
    async fn read(&self, key: &Key, limit: u64) -> Result<Option<Small>>;

    /// Reads the locks of an object; `None`: it does not exist.
    async fn lasting(&self, key: &Key) -> Result<Option<Lasting>>;

    /// Returns the time of the clock that dates the files of a folder; `None`: each answer holds the time.
    async fn clock(&self, folder: &Folder) -> Result<Option<Timestamp>>;

    /// Returns the end of another run's lease on an attempt.
    async fn held(&self, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>>;

    /// Writes a small object, if no object has its name.
    async fn put_new(&self, key: &Key, content: Bytes) -> Result<()>;

    /// Removes one object.
    async fn remove(&self, key: &Key) -> Result<()>;

    /// Returns the address for messages.
    fn uri(&self, key: &Key) -> String;
}

impl RemovableStore for Store {
    async fn attempts(&self, lineage: &Folder) -> Result<Vec<Folder>> {
        attempts::attempts(self, lineage).await
    }

    async fn files(&self, folder: &Folder) -> Result<Vec<File>> {
        Self::files(self, folder, MAX_FILES).await
    }

    async fn logs_of(&self, lineage: &Folder) -> Result<Vec<log::BoundLog>> {
        log::logs_of(self, lineage).await
    }

    async fn log_cluster(&self, log: &Folder) -> Result<Option<u64>> {
        log::bound_cluster(self, log).await
    }

    async fn log_folders(&self, log: &Folder) -> Result<Vec<String>> {
        log::folders(self, log).await
    }

    async fn log_files(&self, log: &Folder, name: &str) -> Result<Vec<File>> {
        log::files_in(self, log, name).await
    }

    async fn read(&self, key: &Key, limit: u64) -> Result<Option<Small>> {
        self.read_small(key, limit).await
    }

    async fn lasting(&self, key: &Key) -> Result<Option<Lasting>> {
        Self::lasting(self, key).await
    }

    async fn clock(&self, folder: &Folder) -> Result<Option<Timestamp>> {
        Self::clock(self, folder).await
    }

    async fn held(&self, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>> {
        Self::held(self, attempt, now).await
    }

    async fn put_new(&self, key: &Key, content: Bytes) -> Result<()> {
        Self::put_new(self, key, content).await
    }

    async fn remove(&self, key: &Key) -> Result<()> {
        Self::remove(self, key).await
    }

    fn uri(&self, key: &Key) -> String {
        Self::uri(self, key)
    }
}
