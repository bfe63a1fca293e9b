//! What a removal asks of a store, and the one way in which anything of a snapshot is removed: a single object by its name.
//!
//! There is no call for a prefix or a tree (I25). Which objects go, and in which order, is decided in `catalog/removal.rs`.

use bytes::Bytes;
use jiff::Timestamp;

use super::Store;
use crate::error::Result;
use crate::format::layout::{Folder, Key, Proved};

/// What keeps an object from being removed, as far as these credentials may know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lasting {
    /// Until when the store locks it.
    pub(crate) until: Option<Timestamp>,
    /// Whether somebody holds it for as long as that takes, or the store says something of a lock that cannot be read.
    pub(crate) legal_hold: bool,
}

impl Lasting {
    /// Whether it cannot be removed now. A versioned bucket would take the request, and hide the object.
    pub(crate) fn locks(self, now: Timestamp) -> bool {
        self.legal_hold || self.until.is_some_and(|until| until > now)
    }
}

/// A small object, and what the store says beside it.
#[derive(Clone, Debug)]
pub(crate) struct Small {
    pub(crate) content: Bytes,
    pub(crate) lasting: Lasting,
    /// When it was stored, by the store's clock.
    pub(crate) stored: Timestamp,
    /// What the store's clock shows; `None`: it does not say.
    pub(crate) now: Option<Timestamp>,
}

/// A file in a folder, or in a folder of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    /// Its path below the folder.
    pub(crate) path: String,
    pub(crate) bytes: u64,
}

impl File {
    /// The name of a proof; `None`: the file is none.
    pub(crate) fn proof_name(&self) -> Option<&str> {
        self.path.strip_prefix("proofs/").filter(|name| Proved::of_name(name).is_some())
    }
}

impl Store {
    /// Everything in a folder and in its folders; more than `limit` is an error. A missing folder is empty. What a folder
    /// store keeps for itself is left out.
    pub(crate) async fn files(&self, folder: &Folder, limit: usize) -> Result<Vec<File>> {
        match self {
            Self::Bucket(store) => store.files(folder, limit).await,
            Self::Folder(store) => store.files(folder, limit).await,
        }
    }

    /// Reads a small object with what is said beside it; `None`: there is none.
    pub(crate) async fn read_small(&self, key: &Key, limit: u64) -> Result<Option<Small>> {
        match self {
            Self::Bucket(store) => store.read_small(key, limit).await,
            Self::Folder(store) => store.read_small(key, limit).await,
        }
    }

    /// What keeps an object; `None`: there is none.
    pub(crate) async fn lasting(&self, key: &Key) -> Result<Option<Lasting>> {
        match self {
            Self::Bucket(store) => store.lasting(key).await,
            Self::Folder(store) => store.lasting(key).await,
        }
    }

    /// What the clock shows that dates a folder's files; `None`: each answer of the store says it.
    pub(crate) async fn clock(&self, folder: &Folder) -> Result<Option<Timestamp>> {
        match self {
            Self::Bucket(_) => Ok(None),
            Self::Folder(store) => store.clock(folder).await.map(Some),
        }
    }

    /// Removes one object; one that is not there is removed already.
    pub(crate) async fn remove(&self, key: &Key) -> Result<()> {
        match self {
            Self::Bucket(store) => store.remove(key).await,
            Self::Folder(store) => store.remove(key).await,
        }
    }
}
