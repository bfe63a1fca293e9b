//! A removal's requests to a store, and the only way to remove a part of a snapshot: one object by its name.
//!
//! No call removes a prefix or a tree (I25). `catalog/removal.rs` decides which objects go, and in which order.

use bytes::Bytes;
use holdfast_contract::error::Result;
use holdfast_layout::{Folder, Key, Proved};
use jiff::Timestamp;

use super::Store;

/// Locks of an object, as far as these credentials may read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    /// End of the store's lock.
    pub until: Option<Timestamp>,
    /// Whether the object has a legal hold, or a lock that cannot be parsed.
    pub legal_hold: bool,
}

impl Lasting {
    /// Whether the object cannot be removed now. A versioned bucket would accept the request, and hide the object.
    pub fn locks(self, now: Timestamp) -> bool {
        self.legal_hold || self.until.is_some_and(|until| until > now)
    }
}

/// A small object with the facts from its answer.
#[derive(Clone, Debug)]
pub struct Small {
    /// The object.
    pub content: Bytes,
    /// The locks on the object.
    pub lasting: Lasting,
    /// Time of the upload, by the store's clock.
    pub stored: Timestamp,
    /// Time of the store's clock; `None`: the store does not report it.
    pub now: Option<Timestamp>,
}

/// A file in a folder, or in a folder inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path below the folder.
    pub path: String,
    /// Length of the object.
    pub bytes: u64,
}

impl File {
    /// Returns the name of a proof; `None`: the file is no proof.
    pub fn proof_name(&self) -> Option<&str> {
        self.path.strip_prefix("proofs/").filter(|name| Proved::of_name(name).is_some())
    }
}

impl Store {
    /// Returns every file in a folder and in its folders; more than `limit` is an error. A missing folder is empty. The own
    /// files of a folder store are left out.
    pub async fn files(&self, folder: &Folder, limit: usize) -> Result<Vec<File>> {
        match self {
            Self::Bucket(store) => store.files(folder, limit).await,
            Self::Folder(store) => store.files(folder, limit).await,
        }
    }

    /// Reads a small object with the facts from its answer; `None`: it does not exist.
    pub async fn read_small(&self, key: &Key, limit: u64) -> Result<Option<Small>> {
        match self {
            Self::Bucket(store) => store.read_small(key, limit).await,
            Self::Folder(store) => store.read_small(key, limit).await,
        }
    }

    /// Reads the locks of an object; `None`: it does not exist.
    pub async fn lasting(&self, key: &Key) -> Result<Option<Lasting>> {
        match self {
            Self::Bucket(store) => store.lasting(key).await,
            Self::Folder(store) => store.lasting(key).await,
        }
    }

    /// Returns the time of the clock that dates a folder's files; `None`: each answer of the store holds the time.
    pub async fn clock(&self, folder: &Folder) -> Result<Option<Timestamp>> {
        match self {
            Self::Bucket(_) => Ok(None),
            Self::Folder(store) => store.clock(folder).await.map(Some),
        }
    }

    /// Removes one object; a missing object is no error.
    pub async fn remove(&self, key: &Key) -> Result<()> {
        match self {
            Self::Bucket(store) => store.remove(key).await,
            Self::Folder(store) => store.remove(key).await,
        }
    }
}
