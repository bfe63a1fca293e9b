//! Single requests to a store of any kind, for `agent probe`.
//!
//! This file decides which requests each kind of store gets; `verbs/probe.rs` judges the answers. A folder keeps its promises
//! through the file system, so a trial uses the same calls as a save.

use bytes::Bytes;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, LockMode, StoreFlags};
use holdfast_layout::{Folder, Key};

use super::bucket::Bucket;
use super::location::Location;
use super::locked::Term;
use super::{Store, s3};

/// Name of the reading credentials, if a store has separate ones: the field of an EtcdBackupStore.
pub const READERS: &str = "credentials.read";

/// Lock of a trial: removable, and long enough to read it, whatever lock snapshots get.
const TRIED: Term = Term { mode: LockMode::Governance, seconds: 30 };

/// Answer to a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The store has the object, and this is its version.
    Taken(Option<String>),
    /// The store reports an existing object.
    Refused,
}

impl Store {
    /// Writes an object once, with or without the create-only condition.
    pub async fn try_put(&self, key: &Key, content: Bytes, create: bool) -> Result<Put> {
        match self {
            Self::Bucket(store) => store.try_put(key, content, create).await,
            Self::Folder(store) => {
                if !create {
                    store.try_delete(key).await?;
                }
                match store.put_new(key, content).await {
                    Ok(()) => Ok(Put::Taken(None)),
                    // The existing object has another content: the folder's only transient error of its own.
                    Err(_) if store.stat(key).await.is_ok() => Ok(Put::Refused),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Reads a version of an object.
    pub async fn try_version(&self, key: &Key, version: String) -> Result<Bytes> {
        match self {
            Self::Bucket(store) => store.try_version(key, version).await,
            Self::Folder(_) => Err(Error::config("a folder keeps no versions")),
        }
    }

    /// Removes an object.
    pub async fn try_delete(&self, key: &Key) -> Result<()> {
        match self {
            Self::Bucket(store) => store.remove(key).await,
            Self::Folder(store) => store.try_delete(key).await,
        }
    }

    /// Removes a folder of Holdfast and everything in it.
    pub async fn try_clear(&self, folder: &Folder) -> Result<()> {
        match self {
            Self::Bucket(store) => store.try_clear(folder).await,
            Self::Folder(store) => store.try_clear(folder).await,
        }
    }
}

/// Locks of S3, the only store with locks.
#[derive(Debug)]
pub struct Locks {
    locking: Bucket,
    /// For the reading credentials, if they are separate.
    asking: Option<Bucket>,
}

impl Locks {
    /// Returns `None` if the flags ask for no lock.
    pub fn from_flags(flags: &StoreFlags, readers: Option<&StoreFlags>) -> Result<Option<Self>> {
        let Location::S3(place) = Location::from_flags(flags)? else { return Ok(None) };
        if flags.s3_object_lock.is_none() {
            return Ok(None);
        }
        let asking = readers.map(|readers| s3::open(readers, place.clone())).transpose()?;
        let asking = asking.map(|bucket| bucket.with_named_credentials(READERS));
        Ok(Some(Self { locking: s3::open_locking(flags, place, Some(TRIED))?, asking }))
    }

    /// Whether the store confirms the lock of a new object: to the saving credentials, which read it after a save too, or else
    /// to the reading credentials.
    pub async fn kept(&self, key: &Key, content: Bytes) -> Result<bool> {
        let least = TRIED.until()?;
        self.locking.put_new(key, content).await?;
        let heard = match (self.locking.try_head(key).await, &self.asking) {
            (Err(error), Some(asking)) if error.class() == ExitClass::Denied => asking.try_head(key).await?,
            (heard, _) => heard?,
        };
        Ok(heard.locked_until.is_some_and(|kept| kept >= least))
    }
}
