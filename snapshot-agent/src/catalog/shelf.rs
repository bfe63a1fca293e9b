//! The few requests that judging and removing snapshots make of a store.
//!
//! It decides nothing. It is a trait so that a test can fail, lose and deny each request, and end the run before and after
//! it, over a real store.

use bytes::Bytes;
use jiff::Timestamp;

use crate::catalog::attempts;
use crate::error::Result;
use crate::format::layout::{Folder, Key};
use crate::store::Store;
use crate::store::removal::{File, Lasting, Small};

/// Files of a folder that are looked at: ten thousand proofs, or announcements, are years of them.
const MAX_FILES: usize = 100_000;

/// A store, as far as a removal needs it.
pub(crate) trait Shelf {
    /// The folders of a lineage that a save has begun, the oldest first.
    async fn attempts(&self, lineage: &Folder) -> Result<Vec<Folder>>;

    /// Everything in a folder.
    async fn files(&self, folder: &Folder) -> Result<Vec<File>>;

    /// A small object; `None`: there is none.
    async fn read(&self, key: &Key, limit: u64) -> Result<Option<Small>>;

    /// What keeps an object; `None`: there is none.
    async fn lasting(&self, key: &Key) -> Result<Option<Lasting>>;

    /// What the clock shows that dates the files of a folder; `None`: each answer says it.
    async fn clock(&self, folder: &Folder) -> Result<Option<Timestamp>>;

    /// Until when another run may be at an attempt.
    async fn held(&self, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>>;

    /// Writes a small object if there is none of its name.
    async fn put_new(&self, key: &Key, content: Bytes) -> Result<()>;

    /// Removes one object.
    async fn remove(&self, key: &Key) -> Result<()>;

    /// Where something is, for people.
    fn uri(&self, key: &Key) -> String;
}

impl Shelf for Store {
    async fn attempts(&self, lineage: &Folder) -> Result<Vec<Folder>> {
        attempts::attempts(self, lineage).await
    }

    async fn files(&self, folder: &Folder) -> Result<Vec<File>> {
        Self::files(self, folder, MAX_FILES).await
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
