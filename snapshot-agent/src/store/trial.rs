//! Single requests to a store of any kind, for `agent probe`.
//!
//! It decides how each kind of store is asked; what the answers mean is `verbs/probe.rs`'. A folder gives its own promises
//! through the file system, so it is asked through the same calls as a save.

use bytes::Bytes;
use jiff::Timestamp;

use super::bucket::Bucket;
use super::location::Location;
use super::{Store, s3};
use crate::contract::{ExitClass, LockMode, StoreFlags};
use crate::error::{Error, Result};
use crate::format::layout::{Folder, Key};

/// Whose credentials are asked with where those who read have their own: the field of an EtcdBackupStore.
pub(crate) const READERS: &str = "credentials.read";

/// How long a trial's object is locked: long enough to ask for it.
const TRIED_SECONDS: u32 = 30;

/// What became of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The store says that it has the object, and which version of it this is.
    Taken(Option<String>),
    /// The store says that there is one already.
    Refused,
}

impl Store {
    /// Puts an object once, with or without the condition that there is none.
    pub(crate) async fn try_put(&self, key: &Key, content: Bytes, create: bool) -> Result<Put> {
        match self {
            Self::Bucket(store) => store.try_put(key, content, create).await,
            Self::Folder(store) => {
                if !create {
                    store.try_delete(key).await?;
                }
                match store.put_new(key, content).await {
                    Ok(()) => Ok(Put::Taken(None)),
                    // What is there has another content: the folder's one transient error of its own.
                    Err(_) if store.stat(key).await.is_ok() => Ok(Put::Refused),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Reads a version of an object.
    pub(crate) async fn try_version(&self, key: &Key, version: String) -> Result<Bytes> {
        match self {
            Self::Bucket(store) => store.try_version(key, version).await,
            Self::Folder(_) => Err(Error::config("a folder keeps no versions")),
        }
    }

    /// Removes an object.
    pub(crate) async fn try_delete(&self, key: &Key) -> Result<()> {
        match self {
            Self::Bucket(store) => store.remove(key).await,
            Self::Folder(store) => store.try_delete(key).await,
        }
    }

    /// Removes a folder of ours and everything in it.
    pub(crate) async fn try_clear(&self, folder: &Folder) -> Result<()> {
        match self {
            Self::Bucket(store) => store.try_clear(folder).await,
            Self::Folder(store) => store.try_clear(folder).await,
        }
    }
}

/// S3 alone can keep an object from being removed.
#[derive(Debug)]
pub(crate) struct Locks {
    locking: Bucket,
    /// For those who read, where they have credentials of their own.
    asking: Option<Bucket>,
    until: Timestamp,
}

impl Locks {
    /// `None` where no lock is asked for. A trial's lock is short and can be taken away, whatever snapshots get.
    pub(crate) fn of(flags: &StoreFlags, readers: Option<&StoreFlags>) -> Result<Option<Self>> {
        let Location::S3(place) = Location::of(flags)? else { return Ok(None) };
        if flags.s3_object_lock.is_none() {
            return Ok(None);
        }
        let asking = readers.map(|readers| s3::open(readers, place.clone())).transpose()?;
        let asking = asking.map(|bucket| bucket.by(READERS));
        let until = s3::locked_for(TRIED_SECONDS)?;
        let locking = s3::open_until(flags, place, Some((LockMode::Governance, until)))?;
        Ok(Some(Self { locking, asking, until }))
    }

    /// Whether the store says that it keeps the lock of an object put with one: to those who save, as these look for it
    /// too; where they may not look, to those who read.
    pub(crate) async fn kept(&self, key: &Key, content: Bytes) -> Result<bool> {
        self.locking.put_new(key, content).await?;
        let heard = match (self.locking.try_head(key).await, &self.asking) {
            (Err(error), Some(asking)) if error.class() == ExitClass::Denied => asking.try_head(key).await?,
            (heard, _) => heard?,
        };
        Ok(heard.locked_until.is_some_and(|kept| kept >= self.until))
    }
}
