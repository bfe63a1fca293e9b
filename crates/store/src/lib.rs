//! Stores for snapshots: one interface over buckets of three providers and a folder of a mounted volume.
//!
//! This file decides the promises of all stores: an upload is invisible until [`Upload::complete`], small objects are written
//! only when absent, a read returns the bytes of one object in order, and keys cannot leave the given prefix. The callers
//! decide the content of objects; `bucket.rs` holds the common part of the providers' protocols.

mod azure;
mod bucket;
mod error_class;
pub mod fingerprint;
mod folder;
mod gcs;
mod handle;
mod location;
mod locked;
pub mod removal;
mod s3;
mod start_upload;
pub mod trial;

use std::fmt::Display;

use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;

use crate::fingerprint::Fingerprint;
use location::Location;
use locked::Locked;

pub use bucket::NO_LOCK;
pub use bucket::{no_proxy, proxy};
pub use handle::Handle;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, Lock, S3Checksum, StoreFlags};
use holdfast_io::progress::Progress;
use holdfast_layout::{Folder, Key, LayoutError};

/// Bound for the difference between two nodes' clocks; larger differences break other things first. The agent leaves a dead
/// attempt's files alone for this long after the attempt's end.
const GRACE_SECONDS: i64 = 600;

/// An opened store.
#[derive(Clone, Debug)]
pub enum Store {
    /// A bucket or container, of any provider.
    Bucket(Box<bucket::Bucket>),
    /// A folder.
    Folder(folder::FolderStore),
}

/// Metadata of a stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Length.
    pub bytes: u64,
    /// ETag: a read is tied to it, so that two objects never mix.
    pub etag: Option<String>,
    /// Identity of a file without ETag, which tells it from a replacement; no read can be tied to it.
    pub written: Option<String>,
}

/// How much of an object a read requests in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Bytes of one request.
    range: u64,
    /// Number of concurrent requests.
    ranges: usize,
}

impl Ahead {
    /// Ranges large enough to hide the cost of a request, small enough to keep four in memory.
    pub const FAR: Self = Self { range: 8 << 20, ranges: 4 };

    /// Smaller ranges, for a process that unpacks and proves: all its steps together stay at about 100 MiB.
    pub const UNPACKING: Self = Self { range: 4 << 20, ranges: 4 };

    /// For a process that needs its memory for other work too. Measured: ranges of 1 MiB cost a store a fifth more.
    pub const LITTLE: Self = Self { range: 2 << 20, ranges: 3 };
}

/// Folders in a folder of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// Number of all folders.
    pub seen: usize,
    /// Number of wanted folders.
    pub wanted: usize,
    /// Names of the wanted folders that are kept.
    pub names: Vec<String>,
}

/// Limit for the listing of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Most {
    /// At most this many folders; more are an error, so that a listing without an end fails.
    Seen(usize),
    /// All folders, within the caller's time; keeps this many of the wanted names, those that sort last.
    Last(usize),
}

impl Children {
    /// Counts a folder, and keeps its name if the caller wants it.
    fn take(&mut self, name: &str, wanted: impl Fn(&str) -> bool, most: Most) -> std::result::Result<(), TooMany> {
        self.seen += 1;
        if let Most::Seen(limit) = most
            && self.seen > limit
        {
            return Err(TooMany(limit));
        }
        if wanted(name) {
            self.wanted += 1;
            self.names.push(name.to_owned());
        }
        // Sorts only at twice the kept number, not at every name.
        if let Most::Last(kept) = most
            && self.names.len() > kept.saturating_mul(2)
        {
            self.keep_last(kept);
        }
        Ok(())
    }

    /// Sorts the names, and drops all but the last `kept`.
    fn keep_last(&mut self, kept: usize) {
        self.names.sort_unstable();
        self.names.drain(..self.names.len().saturating_sub(kept));
    }
}

/// A folder with more folders than the limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the folder holds more than {0} folders")]
struct TooMany(usize);

/// Facts about an upload that its start needs.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Approximate number of bytes; only used to choose sizes.
    pub estimate: u64,
    /// The current time.
    pub at: Timestamp,
    /// Latest end of this attempt. Any run may remove its leftovers afterwards.
    pub until: Timestamp,
    /// Whether the upload is read back and compared before it counts.
    pub read_back: bool,
    /// Whether a slow store blocks nothing else, because the bytes come from a file or from another store: a slow line then
    /// gets the time it needs. A waiting stream from etcd pins pages that etcd could reuse, so it gets little time.
    pub patient: bool,
}

/// An open upload. Dropping it without [`Upload::abort`] may leave parts in the store.
#[derive(Debug)]
pub enum Upload {
    /// To a bucket.
    Bucket(Box<bucket::BucketUpload>),
    /// To a folder.
    Folder(folder::FolderUpload),
    /// For a dry run: drops all bytes.
    Nowhere,
}

/// Data of a dead run with which this run continues.
#[derive(Debug)]
pub enum Taken {
    /// In a bucket.
    Bucket(Box<bucket::Taken>),
    /// In a folder.
    Folder(folder::Taken),
}

impl Taken {
    /// Gives the data up: restores the earlier lease, or removes it after the publication; best effort.
    pub async fn let_go(self, published: bool) {
        match self {
            Self::Bucket(taken) => taken.let_go(published).await,
            Self::Folder(taken) => taken.let_go(published).await,
        }
    }
}

/// Refuses a folder with more names than the limit.
fn within(names: usize, limit: usize) -> Result<()> {
    if names > limit { Err(Error::config(format!("the folder holds more than {limit} files"))) } else { Ok(()) }
}

/// Logs the number of listed names that cannot belong to Holdfast.
fn pass_over(doing: &str, odd: usize) {
    if odd > 0 {
        tracing::warn!("{doing}: {odd} objects that are not Holdfast's were passed over");
    }
}

/// Returns the reason for which a key is left to another run.
pub fn busy_until(until: Timestamp) -> String {
    format!(
        "another run began this snapshot and may write until {until}; the first run after that time removes the \
         unfinished data"
    )
}

/// Returns the flags for objects that are removed later: without a lock, and with the checksum that a bucket requires whose own
/// rule locks new objects (Amazon S3: "Using Object Lock").
pub fn unlocked(flags: &StoreFlags) -> StoreFlags {
    let s3_checksum = flags.s3_checksum.or_else(|| flags.s3_object_lock.map(|_| S3Checksum::Sha256));
    StoreFlags { s3_object_lock: None, s3_object_lock_days: None, s3_checksum, ..flags.clone() }
}

/// Converts an invalid key into an error of the request.
pub fn layout(error: &LayoutError) -> Error {
    Error::config(error.to_string())
}

impl Store {
    /// Opens a store: reads its credentials, sends no request.
    pub fn open(flags: &StoreFlags) -> Result<Self> {
        match Location::from_flags(flags)? {
            Location::S3(place) => s3::open(flags, place).map(Box::new).map(Self::Bucket),
            Location::Azure(place) => azure::open(flags, place).map(Box::new).map(Self::Bucket),
            Location::Gcs(place) => gcs::open(flags, place).map(Box::new).map(Self::Bucket),
            Location::Folder(path) => folder::FolderStore::open(path, flags.mount.as_deref()).map(Self::Folder),
        }
    }

    /// Returns the same store with a new connection for each read.
    #[must_use]
    pub fn with_new_connections(&self) -> Self {
        match self {
            Self::Bucket(store) => Self::Bucket(Box::new(store.with_new_connections())),
            Self::Folder(store) => Self::Folder(store.clone()),
        }
    }

    /// Names these credentials in errors. A folder has none.
    #[must_use]
    pub fn with_named_credentials(self, whose: &str) -> Self {
        match self {
            Self::Bucket(store) => Self::Bucket(Box::new(store.with_named_credentials(whose))),
            folder @ Self::Folder(_) => folder,
        }
    }

    /// Starts the upload of one object. The first request shows wrong credentials or a missing bucket. Until the upload is
    /// complete, a second task removes the leftovers of dead attempts in a bucket.
    pub async fn begin(&self, key: &Key, plan: Plan) -> Result<Upload> {
        match self {
            Self::Bucket(store) => store.begin(key, plan).await.map(|upload| Upload::Bucket(Box::new(upload))),
            Self::Folder(store) => store.begin(key, plan).await.map(Upload::Folder),
        }
    }

    /// Returns the end of another run's lease on this attempt; `None`: no live lease.
    pub async fn held(&self, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>> {
        match self {
            Self::Bucket(store) => store.held(attempt, now).await,
            Self::Folder(store) => store.held(attempt, now).await,
        }
    }

    /// Continues with data that a dead run has left. Until `until` no other run removes the data. `None`: these credentials cannot
    /// remove objects.
    pub async fn take_over(&self, data: &Key, at: Timestamp, until: Timestamp) -> Result<Option<Taken>> {
        Ok(match self {
            Self::Bucket(store) => store.take_over(data, at, until).await?.map(|taken| Taken::Bucket(Box::new(taken))),
            Self::Folder(store) => Some(Taken::Folder(store.take_over(data, at, until).await?)),
        })
    }

    /// Writes a small object, only if there is none under this name. Our own, found after a lost answer, is fine. Any class
    /// but [`ExitClass::Transient`] says that none was written. Nothing is ever written over (I7).
    pub async fn put_new(&self, key: &Key, content: Bytes) -> Result<()> {
        match self {
            Self::Bucket(store) => store.put_new(key, content).await,
            Self::Folder(store) => store.put_new(key, content).await,
        }
    }

    /// Reads a small object; refuses an object longer than `limit`.
    pub async fn get_small(&self, key: &Key, limit: u64) -> Result<Bytes> {
        match self {
            Self::Bucket(store) => store.get_small(key, limit).await,
            Self::Folder(store) => store.get_small(key, limit).await,
        }
    }

    /// Does the same for an object that may be missing: `None`. A missing store is an error.
    pub async fn find_small(&self, key: &Key, limit: u64) -> Result<Option<Bytes>> {
        match self {
            Self::Bucket(store) => store.find_small(key, limit).await,
            Self::Folder(store) => match store.get_small(key, limit).await {
                Ok(content) => Ok(Some(content)),
                // The folder itself exists: it was opened.
                Err(error) if error.class() == ExitClass::NotFound => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Returns length and version of an object.
    pub async fn stat(&self, key: &Key) -> Result<Stat> {
        match self {
            Self::Bucket(store) => store.stat(key).await,
            Self::Folder(store) => store.stat(key).await,
        }
    }

    /// Drops the kernel's cache of an object, so that the next read comes from the disk.
    pub async fn forget(&self, key: &Key) -> Result<()> {
        match self {
            Self::Bucket(_) => Ok(()),
            Self::Folder(store) => store.forget(key).await,
        }
    }

    /// Returns the lock of a stored object; `None`: the flags ask for no lock.
    pub async fn lock_of(&self, key: &Key) -> Result<Option<Locked>> {
        match self {
            Self::Bucket(store) => store.lock_of(key).await,
            Self::Folder(_) => Ok(None),
        }
    }

    /// Returns an object's bytes in order; an error if the object is replaced meanwhile.
    pub fn read(&self, key: &Key, stat: &Stat, ahead: Ahead, progress: &Progress) -> BoxStream<'static, Result<Bytes>> {
        match self {
            Self::Bucket(store) => store.read(key, stat, ahead, progress),
            Self::Folder(store) => store.read(key, progress),
        }
    }

    /// Returns the names of the `wanted` folders in this folder; more than `limit` folders are an error. A missing folder is
    /// empty.
    pub async fn children(
        &self,
        folder: &Folder,
        limit: usize,
        wanted: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Children> {
        self.inside(folder, Most::Seen(limit), wanted).await
    }

    /// Returns the names of the `wanted` folders in this folder that sort last, in order: at most `most`. Only time bounds the
    /// listing. A missing folder is empty.
    pub async fn last_children(
        &self,
        folder: &Folder,
        most: usize,
        wanted: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Children> {
        let mut children = self.inside(folder, Most::Last(most), wanted).await?;
        children.keep_last(most);
        Ok(children)
    }

    async fn inside(
        &self,
        folder: &Folder,
        most: Most,
        wanted: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Children> {
        match self {
            Self::Bucket(store) => store.children(folder, most, wanted).await,
            Self::Folder(store) => store.children(folder, most, wanted).await,
        }
    }

    /// Returns the names of the objects in this folder; more than `limit` are an error. A missing folder is empty.
    pub async fn objects(&self, folder: &Folder, limit: usize) -> Result<Vec<String>> {
        match self {
            Self::Bucket(store) => store.objects(folder, limit).await,
            Self::Folder(store) => store.objects(folder, limit).await,
        }
    }

    /// Returns the address of an object or a folder for messages, without credentials.
    pub fn uri(&self, at: &(impl Display + Sync)) -> String {
        match self {
            Self::Bucket(store) => store.uri(at),
            Self::Folder(store) => store.uri(at),
        }
    }
}

impl Upload {
    /// Takes the next bytes; waits while too many are under way.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        match self {
            Self::Bucket(upload) => upload.write(bytes).await,
            Self::Folder(upload) => upload.write(bytes).await,
            Self::Nowhere => Ok(()),
        }
    }

    /// Waits until the store has all written bytes, not visible yet.
    pub async fn flush(&mut self) -> Result<()> {
        match self {
            Self::Bucket(upload) => upload.flush().await,
            Self::Folder(upload) => upload.flush().await,
            Self::Nowhere => Ok(()),
        }
    }

    /// Makes the object visible and durable, and compares its length with the store's.
    pub async fn complete(&mut self) -> Result<()> {
        match self {
            Self::Bucket(upload) => upload.complete().await,
            Self::Folder(upload) => upload.complete().await,
            Self::Nowhere => Ok(()),
        }
    }

    /// Returns the fingerprint of the bytes that were read back during the upload ([`Plan::read_back`]). A bucket can return
    /// bytes only after completion.
    pub fn given_back(&self) -> Option<Fingerprint> {
        match self {
            Self::Folder(upload) => upload.given_back(),
            Self::Bucket(_) | Self::Nowhere => None,
        }
    }

    /// Returns the metadata of the complete object, if a read can be tied to it.
    pub const fn seen(&self) -> Option<&Stat> {
        match self {
            Self::Bucket(upload) => upload.seen(),
            Self::Folder(_) | Self::Nowhere => None,
        }
    }

    /// Whether the upload has time limits of its own that are longer than a stall.
    pub const fn is_patient(&self) -> bool {
        match self {
            Self::Bucket(upload) => upload.is_patient(),
            Self::Folder(_) | Self::Nowhere => false,
        }
    }

    /// Whether each part's hash was sent with the part, so that the store has compared it.
    pub fn is_signed(&self) -> bool {
        match self {
            Self::Bucket(upload) => upload.is_signed(),
            Self::Folder(_) | Self::Nowhere => true,
        }
    }

    /// Whether the complete object can be removed again, as far as that is known before: nothing locks it, and the credentials
    /// may read. Without a read-back ([`Plan::read_back`]) that is unknown. If so, the upload may complete while other checks
    /// are still running. A folder's upload is durable and read back before that, so an early completion would gain nothing.
    pub const fn can_be_taken_back(&self) -> bool {
        match self {
            Self::Bucket(upload) => upload.can_be_taken_back(),
            Self::Folder(_) | Self::Nowhere => false,
        }
    }

    /// Returns the lock of the complete object.
    pub fn lock(&self) -> Option<Lock> {
        match self {
            Self::Bucket(upload) => upload.lock(),
            Self::Folder(_) | Self::Nowhere => None,
        }
    }

    /// Ends the upload after its manifest is written: no other run has to clean up.
    pub async fn published(&mut self) {
        match self {
            Self::Bucket(upload) => upload.published().await,
            Self::Folder(upload) => upload.published().await,
            Self::Nowhere => {}
        }
    }

    /// Removes the data after a failed write of its manifest, if the failure is certain. A folder shows its files; a bucket may
    /// still carry out a request whose answer was lost.
    pub async fn unpublished(&mut self, store: &Store, manifest: &Key) {
        if let Self::Folder(upload) = self
            && store.stat(manifest).await.is_err_and(|error| error.class() == ExitClass::NotFound)
        {
            upload.abort().await;
        }
    }

    /// Removes everything, best effort. Never after the manifest's write has started: the manifest may exist although the
    /// answer was lost, and then the data must stay.
    pub async fn abort(&mut self) {
        match self {
            Self::Bucket(upload) => upload.abort().await,
            Self::Folder(upload) => upload.abort().await,
            Self::Nowhere => {}
        }
    }
}
