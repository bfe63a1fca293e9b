//! Stores: where snapshots are kept. One interface over buckets of three providers and a folder of a mounted volume.
//!
//! It decides what all kinds promise: an upload is invisible until [`Upload::complete`], small objects are written only
//! when absent, reads are in order and of one object, and nothing outside of the given prefix can be named. What is
//! stored is not its business, and what the providers' protocols have in common is in `bucket.rs`.

mod azure;
mod beginning;
mod bucket;
mod error_class;
pub(crate) mod fingerprint;
mod folder;
mod gcs;
mod location;
mod locked;
pub(crate) mod removal;
mod s3;
pub(crate) mod trial;

use std::fmt::Display;

use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;

use crate::contract::{ExitClass, Lock, S3Checksum, StoreFlags};
use crate::error::{Error, Result};
use crate::format::layout::{Folder, Key, LayoutError};
use crate::store::fingerprint::Fingerprint;
use crate::util::progress::Progress;
use location::Location;
use locked::Locked;

pub(crate) use bucket::NO_LOCK;
pub use bucket::{exceptions, no_proxy, proxy};

/// Clocks of two nodes differ by less than this, or nothing else works either: so much longer than its own time a dead
/// attempt's garbage is left alone.
const GRACE_SECONDS: i64 = 600;

/// An opened store.
#[derive(Clone, Debug)]
pub enum Store {
    /// A bucket, or a container, whoever the provider is.
    Bucket(Box<bucket::Bucket>),
    /// A folder.
    Folder(folder::FolderStore),
}

/// What is known about a stored object without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its length.
    pub bytes: u64,
    /// What a read can be tied to, so that two objects are never mixed.
    pub etag: Option<String>,
    /// What tells a file from one that was put in its place, where there is no ETag; no read can be tied to it.
    pub written: Option<String>,
}

/// How much of an object is asked for before it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Bytes of one request.
    range: u64,
    /// Requests at a time.
    ranges: usize,
}

impl Ahead {
    /// Ranges large enough that a request's own cost vanishes, small enough to keep four in memory.
    pub const FAR: Self = Self { range: 8 << 20, ranges: 4 };

    /// Less, for a process that unpacks and proves what it reads: all its steps together stay at some 100 MiB.
    pub const UNPACKING: Self = Self { range: 4 << 20, ranges: 4 };

    /// For a process that needs its memory for something else too. Measured: ranges of 1 MiB cost a store a fifth more.
    pub const LITTLE: Self = Self { range: 2 << 20, ranges: 3 };
}

/// What a folder of a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// How many folders are in it.
    pub seen: usize,
    /// How many of them were wanted.
    pub wanted: usize,
    /// The names of those that were wanted and are kept.
    pub names: Vec<String>,
}

/// How much of a folder is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Most {
    /// So many folders. More are an error: nobody waits for the end of a folder that may have none.
    Seen(usize),
    /// All of it, for as long as the caller has time; of the wanted names the so many that sort last are kept.
    Last(usize),
}

impl Children {
    /// Counts one more, and keeps its name if it is wanted.
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
        // Twice as many as are kept, so that they are not sorted at every name.
        if let Most::Last(kept) = most
            && self.names.len() > kept.saturating_mul(2)
        {
            self.keep_last(kept);
        }
        Ok(())
    }

    /// Sorts the names, and forgets all but the last so many.
    fn keep_last(&mut self, kept: usize) {
        self.names.sort_unstable();
        self.names.drain(..self.names.len().saturating_sub(kept));
    }
}

/// A folder with more folders in it than anybody looks at.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the folder holds more than {0} folders")]
struct TooMany(usize);

/// What an upload should know beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// About how many bytes will come; only ever used to choose sizes.
    pub estimate: u64,
    /// Now.
    pub at: Timestamp,
    /// When this attempt is over at the latest: what it leaves behind is garbage then.
    pub until: Timestamp,
    /// Whether all of it is read back and compared before it counts.
    pub read_back: bool,
    /// Whether nobody is kept from anything meanwhile, as what comes lies in a file or in another store: a slow line gets
    /// the time that it needs. A stream from etcd that waits pins what etcd could reuse, so it is given up soon.
    pub patient: bool,
}

/// An upload on its way. Dropping it without a word may leave garbage: call [`Upload::abort`].
#[derive(Debug)]
pub enum Upload {
    /// To a bucket.
    Bucket(Box<bucket::BucketUpload>),
    /// To a folder.
    Folder(folder::FolderUpload),
    /// For a rehearsal: what is written is dropped.
    Nowhere,
}

/// What a dead run has left, and this one goes on with.
#[derive(Debug)]
pub(crate) enum Taken {
    /// In a bucket.
    Bucket(Box<bucket::Taken>),
    /// In a folder.
    Folder(folder::Taken),
}

impl Taken {
    /// Leaves it as the dead run's again, or as nobody's since it is a snapshot now; best effort.
    pub(crate) async fn let_go(self, published: bool) {
        match self {
            Self::Bucket(taken) => taken.let_go(published).await,
            Self::Folder(taken) => taken.let_go(published).await,
        }
    }
}

/// No more names than anybody looks at.
fn within(names: usize, limit: usize) -> Result<()> {
    if names > limit { Err(Error::config(format!("the folder holds more than {limit} files"))) } else { Ok(()) }
}

/// Says how many names in a listing can be none of Holdfast's.
fn pass_over(doing: &str, odd: usize) {
    if odd > 0 {
        tracing::warn!("{doing}: {odd} objects that are not Holdfast's were passed over");
    }
}

/// Why a key is left to another run.
pub(crate) fn busy_until(until: Timestamp) -> String {
    format!(
        "another run began this snapshot and may write until {until}; the first run after that time removes the \
         unfinished data"
    )
}

/// The same store for objects that are to go again: without a lock of their own, and with the checksum that a bucket whose
/// own rule locks what is put there takes nothing without (Amazon S3: "Using Object Lock").
pub(crate) fn unlocked(flags: &StoreFlags) -> StoreFlags {
    let s3_checksum = flags.s3_checksum.or_else(|| flags.s3_object_lock.map(|_| S3Checksum::Sha256));
    StoreFlags { s3_object_lock: None, s3_object_lock_days: None, s3_checksum, ..flags.clone() }
}

/// A key that cannot be is the request's fault.
pub(crate) fn layout(error: &LayoutError) -> Error {
    Error::config(error.to_string())
}

impl Store {
    /// Opens a store: reads its credentials, contacts nobody.
    pub fn open(flags: &StoreFlags) -> Result<Self> {
        match Location::of(flags)? {
            Location::S3(place) => s3::open(flags, place).map(Box::new).map(Self::Bucket),
            Location::Azure(place) => azure::open(flags, place).map(Box::new).map(Self::Bucket),
            Location::Gcs(place) => gcs::open(flags, place).map(Box::new).map(Self::Bucket),
            Location::Folder(path) => folder::FolderStore::open(path, flags.mount.as_deref()).map(Self::Folder),
        }
    }

    /// The same store, where each read of a bucket has a connection of its own.
    #[must_use]
    pub(crate) fn anew(&self) -> Self {
        match self {
            Self::Bucket(store) => Self::Bucket(Box::new(store.anew())),
            Self::Folder(store) => Self::Folder(store.clone()),
        }
    }

    /// Asked with these credentials: errors say so. A folder knows none.
    #[must_use]
    pub(crate) fn by(self, whose: &str) -> Self {
        match self {
            Self::Bucket(store) => Self::Bucket(Box::new(store.by(whose))),
            folder @ Self::Folder(_) => folder,
        }
    }

    /// Begins to upload one object. A first request goes out: wrong credentials or a missing bucket show here. What dead
    /// attempts have left in a bucket is cleaned up beside what comes, until it is complete.
    pub async fn begin(&self, key: &Key, plan: Plan) -> Result<Upload> {
        match self {
            Self::Bucket(store) => store.begin(key, plan).await.map(|upload| Upload::Bucket(Box::new(upload))),
            Self::Folder(store) => store.begin(key, plan).await.map(Upload::Folder),
        }
    }

    /// Until when another run may be at this attempt's data; `None`: nobody who could still live says that he is.
    pub async fn held(&self, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>> {
        match self {
            Self::Bucket(store) => store.held(attempt, now).await,
            Self::Folder(store) => store.held(attempt, now).await,
        }
    }

    /// Goes on with data that a dead run has left: it is this run's until then, so nobody takes it back meanwhile. `None`:
    /// these credentials may remove nothing.
    pub(crate) async fn take_over(&self, data: &Key, at: Timestamp, until: Timestamp) -> Result<Option<Taken>> {
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

    /// Reads a small object whole; a longer one than `limit` is refused.
    pub async fn get_small(&self, key: &Key, limit: u64) -> Result<Bytes> {
        match self {
            Self::Bucket(store) => store.get_small(key, limit).await,
            Self::Folder(store) => store.get_small(key, limit).await,
        }
    }

    /// The same, of an object that may be missing: `None`. That the whole store is missing is an error.
    pub async fn find_small(&self, key: &Key, limit: u64) -> Result<Option<Bytes>> {
        match self {
            Self::Bucket(store) => store.find_small(key, limit).await,
            Self::Folder(store) => match store.get_small(key, limit).await {
                Ok(content) => Ok(Some(content)),
                // The folder itself is there: it was opened.
                Err(error) if error.class() == ExitClass::NotFound => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Length and version of an object.
    pub async fn stat(&self, key: &Key) -> Result<Stat> {
        match self {
            Self::Bucket(store) => store.stat(key).await,
            Self::Folder(store) => store.stat(key).await,
        }
    }

    /// Has what this machine still holds of an object in memory read from where it is stored the next time.
    pub(crate) async fn forget(&self, key: &Key) -> Result<()> {
        match self {
            Self::Bucket(_) => Ok(()),
            Self::Folder(store) => store.forget(key).await,
        }
    }

    /// Until when a stored object is locked; `None`: no lock was asked for at this store.
    pub(crate) async fn lock_of(&self, key: &Key) -> Result<Option<Locked>> {
        match self {
            Self::Bucket(store) => store.lock_of(key).await,
            Self::Folder(_) => Ok(None),
        }
    }

    /// An object's bytes in order; if it is exchanged meanwhile, an error.
    pub fn read(&self, key: &Key, stat: &Stat, ahead: Ahead, progress: &Progress) -> BoxStream<'static, Result<Bytes>> {
        match self {
            Self::Bucket(store) => store.read(key, stat, ahead, progress),
            Self::Folder(store) => store.read(key, progress),
        }
    }

    /// Names of the folders in this folder that are `wanted`; at most `limit` are looked at. A missing folder is empty.
    pub async fn children(
        &self,
        folder: &Folder,
        limit: usize,
        wanted: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Children> {
        self.inside(folder, Most::Seen(limit), wanted).await
    }

    /// The names of those folders in this folder that are `wanted` and sort last, in order: at most `most` of however many
    /// there are. Only time bounds how many are looked at. A missing folder is empty.
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

    /// Names of the objects in this folder; more than `limit` are an error. A missing folder is empty.
    pub async fn objects(&self, folder: &Folder, limit: usize) -> Result<Vec<String>> {
        match self {
            Self::Bucket(store) => store.objects(folder, limit).await,
            Self::Folder(store) => store.objects(folder, limit).await,
        }
    }

    /// Where an object or a folder is, for people. Holds no credentials.
    pub fn uri(&self, at: &(impl Display + Sync)) -> String {
        match self {
            Self::Bucket(store) => store.uri(at),
            Self::Folder(store) => store.uri(at),
        }
    }
}

impl Upload {
    /// Takes the next bytes; waits while too much is on its way.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        match self {
            Self::Bucket(upload) => upload.write(bytes).await,
            Self::Folder(upload) => upload.write(bytes).await,
            Self::Nowhere => Ok(()),
        }
    }

    /// What was written is in the store, and not visible yet.
    pub async fn flush(&mut self) -> Result<()> {
        match self {
            Self::Bucket(upload) => upload.flush().await,
            Self::Folder(upload) => upload.flush().await,
            Self::Nowhere => Ok(()),
        }
    }

    /// Makes the object visible and durable, and checks with the store that it has its full length.
    pub async fn complete(&mut self) -> Result<()> {
        match self {
            Self::Bucket(upload) => upload.complete().await,
            Self::Folder(upload) => upload.complete().await,
            Self::Nowhere => Ok(()),
        }
    }

    /// What the store has given back of what was written, where that is read while more is coming ([`Plan::read_back`]).
    /// A bucket has nothing to give before the upload is complete.
    pub(crate) fn given_back(&self) -> Option<Fingerprint> {
        match self {
            Self::Folder(upload) => upload.given_back(),
            Self::Bucket(_) | Self::Nowhere => None,
        }
    }

    /// What the store says of what is complete, where a read can be tied to it.
    pub(crate) const fn seen(&self) -> Option<&Stat> {
        match self {
            Self::Bucket(upload) => upload.seen(),
            Self::Folder(_) | Self::Nowhere => None,
        }
    }

    /// Whether what is on its way has time limits of its own that are longer than a stall.
    pub(crate) const fn is_patient(&self) -> bool {
        match self {
            Self::Bucket(upload) => upload.is_patient(),
            Self::Folder(_) | Self::Nowhere => false,
        }
    }

    /// Whether what was sent was compared on its way: a store that was told each part's hash has looked.
    pub fn is_signed(&self) -> bool {
        match self {
            Self::Bucket(upload) => upload.is_signed(),
            Self::Folder(_) | Self::Nowhere => true,
        }
    }

    /// Whether what is complete can be taken back, as far as that is known beforehand: nothing locks it, and the credentials
    /// are not those that may only write; where nothing is read back ([`Plan::read_back`]), nobody has found that out. Then
    /// it may be completed while there is still something to find out.
    /// A folder's upload is durable and read back before that, so nothing would be gained.
    pub(crate) const fn can_be_taken_back(&self) -> bool {
        match self {
            Self::Bucket(upload) => upload.can_be_taken_back(),
            Self::Folder(_) | Self::Nowhere => false,
        }
    }

    /// Until when the store keeps what is complete from being removed.
    pub fn lock(&self) -> Option<Lock> {
        match self {
            Self::Bucket(upload) => upload.lock(),
            Self::Folder(_) | Self::Nowhere => None,
        }
    }

    /// The manifest is written: nothing is under way any more, and nobody has to clean up.
    pub async fn published(&mut self) {
        match self {
            Self::Bucket(upload) => upload.published().await,
            Self::Folder(upload) => upload.published().await,
            Self::Nowhere => {}
        }
    }

    /// Takes the data back after its manifest could not be written, where that is certain: a folder says what is in it,
    /// a bucket may yet carry out a request whose answer was lost.
    pub async fn unpublished(&mut self, store: &Store, manifest: &Key) {
        if let Self::Folder(upload) = self
            && store.stat(manifest).await.is_err_and(|error| error.class() == ExitClass::NotFound)
        {
            upload.abort().await;
        }
    }

    /// Takes everything back, best effort. Never after the manifest was begun: that one may be there although the
    /// answer was lost, and then so must the data be.
    pub async fn abort(&mut self) {
        match self {
            Self::Bucket(upload) => upload.abort().await,
            Self::Folder(upload) => upload.abort().await,
            Self::Nowhere => {}
        }
    }
}
