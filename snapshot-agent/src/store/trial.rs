//! Single requests to a store of any kind, for `agent probe`.
//!
//! It decides how each kind of store is asked; what the answers mean is `verbs/probe.rs`'. A folder gives its own promises
//! through the file system, so it is asked through the same calls as a save.

use bytes::Bytes;
use jiff::Timestamp;

use super::bucket::Bucket;
use super::bucket::http::Heard;
use super::location::Location;
use super::{Store, s3};
use crate::contract::{ExitClass, LockMode, S3Checksum, S3Sse, StoreFlags};
use crate::error::{Error, Result};
use crate::format::layout::{Folder, Key};

/// Whose credentials are asked with where those who read have their own: the field of an EtcdBackupStore.
pub(crate) const READERS: &str = "credentials.read";

/// How long a trial's object is locked: long enough to ask for it.
const TRIED_SECONDS: u32 = 30;

/// What a read can be tied to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pin {
    /// The object's content must be this.
    pub(crate) etag: Option<String>,
    /// The version that is meant, where versions are kept.
    pub(crate) version: Option<String>,
}

/// What became of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The store says that it has the object.
    Taken(Pin),
    /// The store says that there is one already.
    Refused,
}

/// What became of a read that was tied to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// These bytes.
    Bytes(Bytes),
    /// The object is another one by now.
    Exchanged,
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
                    Ok(()) => Ok(Put::Taken(Pin::default())),
                    // What is there has another content: the folder's one transient error of its own.
                    Err(_) if store.stat(key).await.is_ok() => Ok(Put::Refused),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Reads a part of an object, tied to a version of it; `None` for a folder, which has neither.
    pub(crate) async fn try_get(&self, key: &Key, from: u64, to: u64, pin: &Pin) -> Result<Option<Answer>> {
        match self {
            Self::Bucket(store) => store.try_get(key, from, to, pin).await.map(Some),
            Self::Folder(_) => Ok(None),
        }
    }

    /// Date and checksums that a store tells of an object; `None` for a folder.
    pub(crate) async fn try_head(&self, key: &Key) -> Result<Option<Heard>> {
        match self {
            Self::Bucket(store) => store.try_head(key).await.map(Some),
            Self::Folder(_) => Ok(None),
        }
    }

    /// Removes an object.
    pub(crate) async fn try_delete(&self, key: &Key) -> Result<()> {
        match self {
            Self::Bucket(store) => store.try_delete(key).await,
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
        let locking = s3::open_until(flags, place, None, Some((LockMode::Governance, until)))?;
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

/// S3 alone lets a client say which sha256 an object has to have.
#[derive(Debug)]
pub(crate) struct Checksums {
    /// Asks the store to keep a sha256.
    keeping: Bucket,
    /// Asks what it has kept.
    asking: Bucket,
    /// Says a wrong one.
    lying: Bucket,
}

impl Checksums {
    /// `None` where the protocol knows none, or what else is asked for goes without.
    pub(crate) fn of(flags: &StoreFlags, readers: Option<&StoreFlags>) -> Result<Option<Self>> {
        let Location::S3(place) = Location::of(flags)? else { return Ok(None) };
        if flags.s3_sse == Some(S3Sse::Customer) && !s3::has_checksum(flags) {
            return Ok(None);
        }
        let keeping = StoreFlags { s3_checksum: Some(S3Checksum::Sha256), ..flags.clone() };
        let plain = |flags: &StoreFlags| StoreFlags { s3_checksum: None, ..flags.clone() };
        let told = Some(("x-amz-checksum-mode", "ENABLED"));
        let asking = match readers {
            Some(readers) => s3::open_with(&plain(readers), place.clone(), told)?.by(READERS),
            None => s3::open_with(&plain(flags), place.clone(), told)?,
        };
        // sha256 of nothing, in base64: no object of a probe is empty.
        let wrong = ("x-amz-checksum-sha256", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        Ok(Some(Self {
            keeping: s3::open(&keeping, place.clone())?,
            asking,
            lying: s3::open_with(&plain(flags), place, Some(wrong))?,
        }))
    }

    /// What the store says is the sha256 (base64) of an object put with one.
    pub(crate) async fn kept(&self, key: &Key, content: Bytes) -> Result<Option<String>> {
        self.keeping.try_put(key, content, false).await?;
        let heard = self.asking.try_head(key).await?;
        Ok(heard.checksums.into_iter().find(|(name, _)| name.ends_with("sha256")).map(|(_, value)| value))
    }

    /// Whether an object with a wrong sha256 was kept out: by looking for it, whatever the answer was.
    pub(crate) async fn refuses_wrong(&self, key: &Key, content: Bytes) -> Result<bool> {
        let put = self.lying.try_put(key, content, false).await;
        match self.asking.try_head(key).await {
            Ok(_) => Ok(false),
            Err(error) if error.class() == ExitClass::NotFound => match put {
                Err(_) => Ok(true),
                Ok(_) => Err(Error::corrupt("the store took an object and does not have it")),
            },
            Err(error) => Err(error),
        }
    }
}
