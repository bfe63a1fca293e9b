//! A bucket as a store, of any provider.
//!
//! This file decides which requests each operation sends, and how much is under way at a time. `bucket/http.rs` decides the
//! protocol's limits; `s3.rs`, `azure.rs` and `gcs.rs` decide the credentials and the address. Large objects cannot be
//! create-only, so data gets unique keys, and the small manifest is the create-only object.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, LockMode};
use holdfast_io::pool::Pool;
use holdfast_io::progress::Progress;
use holdfast_layout::{Folder, Key};
use jiff::Timestamp;
use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, ListResult, ObjectMeta, ObjectStoreExt, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, TagSet,
};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::location::Place;
use super::locked::{Locked, Term};
use super::{Ahead, Children, Most, Plan, Stat};
use crate::error_class;
use crate::error_class::classify;

pub(super) mod address;
pub(super) mod http;
mod intent;
pub(super) mod listing;
pub(super) mod proxy;
mod removal;
mod trial;
mod upload;

use http::{
    AtMost, Client, Clients, Download, Eraser, Fresh, Heard, PATIENT_WITHIN, READ_WITHIN, RETRY_FOR, TooLong, late,
    within,
};
pub(super) use intent::Taken;
pub use proxy::{no_proxy, proxy};
pub(super) use upload::BucketUpload;
pub use upload::NO_LOCK;

/// Size in bytes from which one request gets the time of a part.
const LARGE: usize = 1 << 20;

/// Maximum page of a listing in S3 and Google Cloud Storage; Azure takes 5000.
const PAGE: usize = 1000;

/// Pauses between attempts to write a small object that the store reports as existing but does not return.
const CONFLICTS: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800), Duration::from_millis(1600)];

/// Differences between the providers' protocols.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    /// The URL's scheme.
    pub(super) scheme: &'static str,
    /// Maximum number of parts of one object.
    pub(super) most_parts: u64,
    /// Whether the parts of an unfinished upload belong to the object's name and cannot be aborted (Azure's blocks): committing
    /// an object without parts discards them, and that object is then removed.
    pub(super) parts_stay: bool,
}

/// Options for stored objects, and their flags.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    /// Tags of every object.
    pub(super) tags: TagSet,
    /// Storage class of the data only: a manifest is small, and read soon.
    pub(super) storage_class: Option<String>,
    /// Lock for every object that stays.
    pub(super) lock: Option<Term>,
    /// Given flags that a store may refuse.
    pub(super) flags: Vec<&'static str>,
}

/// Mode and end of an object's lock.
type RequestedLock = (LockMode, Timestamp);

/// A bucket with a prefix.
#[derive(Clone)]
pub struct Bucket {
    place: Place,
    /// Endpoint, account and region, for messages.
    at: String,
    protocol: Protocol,
    options: Options,
    clients: Clients,
    /// Replaces object_store's removal of one object where that needs more rights.
    eraser: Option<Eraser>,
    /// Whether each read uses a new connection.
    fresh: bool,
}

/// Written by hand: object_store's own output holds the session token.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("place", &self.place).field("at", &self.at).finish_non_exhaustive()
    }
}

impl Bucket {
    pub(super) fn new(place: Place, at: String, protocol: Protocol, options: Options, clients: Clients) -> Self {
        Self { place, at, protocol, options, clients, eraser: None, fresh: false }
    }

    /// Replaces the removal of one object.
    pub(super) fn erasing(self, eraser: Eraser) -> Self {
        Self { eraser: Some(eraser), ..self }
    }

    /// Returns the same bucket with a new connection for each read.
    pub(super) fn with_new_connections(&self) -> Self {
        Self { fresh: true, ..self.clone() }
    }

    /// Returns the options of every read.
    fn options_of_read(&self) -> GetOptions {
        let mut options = GetOptions::default();
        if self.fresh {
            options.extensions.insert(Fresh);
        }
        options
    }

    /// Names these credentials in errors.
    pub(super) fn with_named_credentials(self, whose: &str) -> Self {
        Self { at: format!("{}, with {whose}", self.at), ..self }
    }

    /// Removes an object; a missing object is no error.
    async fn erase(&self, path: &Path) -> object_store::Result<()> {
        gone(match &self.eraser {
            Some(eraser) => eraser(path.clone()).await,
            None => self.clients.usual.delete(path).await,
        })
    }

    /// Returns the options.
    #[cfg(test)]
    pub(super) const fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the operation and its place, with which every error starts.
    fn doing(&self, what: &str, at: &impl fmt::Display) -> String {
        format!("{what} {} (at {})", self.uri(at), self.at)
    }

    /// Converts an answer into an error; a refusal names the flags with special options.
    fn error(&self, doing: &str, error: &object_store::Error) -> Error {
        error_class::with_options(doing, error, &self.options.flags)
    }

    fn path(&self, key: &impl fmt::Display) -> Result<Path> {
        let key = match &self.place.prefix {
            Some(prefix) => format!("{prefix}/{key}"),
            None => key.to_string(),
        };
        Path::parse(&key).map_err(|error| Error::config(format!("{key} is no key: {error}")))
    }

    /// Returns the prefix of all keys in a folder.
    fn below(&self, folder: &Folder) -> Result<String> {
        Ok(match &self.place.prefix {
            None if folder.is_top() => String::new(),
            Some(prefix) if folder.is_top() => format!("{prefix}/"),
            _ => format!("{}/", self.path(folder)?),
        })
    }

    pub(super) fn uri(&self, at: &impl fmt::Display) -> String {
        let (scheme, name) = (self.protocol.scheme, &self.place.name);
        match &self.place.prefix {
            Some(prefix) => format!("{scheme}://{name}/{prefix}/{at}"),
            None => format!("{scheme}://{name}/{at}"),
        }
    }

    /// Returns names of folders in a folder; drops other names with their page.
    pub(super) async fn children(
        &self,
        folder: &Folder,
        most: Most,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Children> {
        let mut children = Children::default();
        let read_page = |page: ListResult| {
            let mut names = page.common_prefixes.iter().filter_map(Path::filename);
            names
                .try_for_each(|name| children.take(name, &wanted, most))
                .map_err(|error| Error::config(error.to_string()))
        };
        self.pages(folder, true, read_page).await?;
        Ok(children)
    }

    /// Returns the names of the objects in a folder.
    pub(super) async fn objects(&self, folder: &Folder, limit: usize) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let read_page = |page: ListResult| {
            names.extend(page.objects.iter().filter_map(|object| object.location.filename().map(str::to_owned)));
            super::within(names.len(), limit)
        };
        self.pages(folder, true, read_page).await?;
        Ok(names)
    }

    /// Reads a folder page by page; `right`: without the objects in its folders.
    async fn pages(
        &self,
        folder: &Folder,
        right: bool,
        mut read_page: impl FnMut(ListResult) -> Result<()>,
    ) -> Result<()> {
        let doing = self.doing("listing", folder);
        let prefix = self.below(folder)?;
        let (mut page_token, mut odd) = (None, 0_usize);
        loop {
            let options = PaginatedListOptions {
                delimiter: right.then(|| "/".into()),
                max_keys: Some(PAGE),
                page_token: page_token.clone(),
                ..PaginatedListOptions::default()
            };
            let page = self.clients.usual.list_paginated(Some(&prefix), options).await;
            let page = page.map_err(|error| classify(&doing, &error))?;
            let listed = page.result.objects.iter().map(|object| &object.location).chain(&page.result.common_prefixes);
            odd += listed.filter(|path| listing::is_odd(path)).count();
            read_page(page.result).map_err(|error| error.context(&doing))?;
            match page.page_token {
                None => {
                    super::pass_over(&doing, odd);
                    return Ok(());
                }
                // The listing would never end.
                next if next == page_token => {
                    return Err(Error::config(format!(
                        "{doing}: the store returns the same page of the listing again and again"
                    )));
                }
                next => page_token = next,
            }
        }
    }

    /// Returns the client that creates a permanent object now, and the object's lock.
    fn sealer(&self) -> Result<(Arc<dyn Client>, Option<RequestedLock>)> {
        let (Some(term), Some(sealer)) = (self.options.lock, &self.clients.sealer) else {
            return Ok((Arc::clone(&self.clients.usual), None));
        };
        let until = term.until()?;
        Ok((sealer(until)?, Some((term.mode, until))))
    }

    /// Starts an upload in the store, without an announcement.
    async fn create(&self, sealer: &Arc<dyn Client>, path: &Path) -> object_store::Result<String> {
        let class = self.options.storage_class.iter().map(|class| (Attribute::StorageClass, class.clone()));
        let options = PutMultipartOptions {
            tags: self.options.tags.clone(),
            attributes: class.collect::<Attributes>(),
            ..PutMultipartOptions::default()
        };
        sealer.create_multipart_opts(path, options).await
    }

    /// Aborts an unfinished upload and its parts. `false`: the store does not know the upload, which is no error.
    async fn give_up(&self, path: &Path, id: &str) -> object_store::Result<bool> {
        let usual = &self.clients.usual;
        let was_there = match usual.abort_multipart(path, &id.to_owned()).await {
            Err(object_store::Error::NotFound { .. }) => false,
            aborted => aborted.map(|()| true)?,
        };
        if self.protocol.parts_stay {
            usual.complete_multipart(path, &id.to_owned(), Vec::new()).await?;
            self.erase(path).await?;
        }
        Ok(was_there)
    }

    pub(super) async fn begin(&self, key: &Key, plan: Plan) -> Result<BucketUpload> {
        let mut upload = BucketUpload::begin(self, key, plan).await?;
        let mut announced = intent::announce(self, key, upload.id(), plan).await;
        // A copy uses the same key again, where a dead copy may have left its intent.
        if announced.is_err() && intent::judge(self, key.folder(), plan.at).await.is_ok_and(|dead| dead) {
            announced = intent::announce(self, key, upload.id(), plan).await;
        }
        if let Err(error) = announced {
            // An Azure upload exists only after its first part.
            if !self.protocol.parts_stay {
                upload.abort().await;
            }
            return Err(error);
        }
        // The store has shown that it works. From now on an interrupted run has this upload to abort.
        upload.announced(plan);
        Ok(upload)
    }

    /// Returns the end of another run's lease on this attempt.
    pub(super) async fn held(&self, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>> {
        intent::held(self, attempt, now).await
    }

    /// Writes a small object that stays. A segment of a log may have some MiB, for which a slow link needs time.
    pub(super) async fn put_new(&self, key: &Key, content: Bytes) -> Result<()> {
        let large = content.len() > LARGE;
        let (sealer, _) = self.sealer()?;
        let putting = self.put_by(&sealer, key, content);
        if large { within(PATIENT_WITHIN, putting).await } else { putting.await }
    }

    async fn put_by(&self, client: &Arc<dyn Client>, key: &Key, content: Bytes) -> Result<()> {
        let (mut pauses, mut conflicted) = (CONFLICTS.into_iter(), false);
        loop {
            let put = self.put_once(client, key, content.clone()).await;
            // The earlier attempt may still be carried out, whatever this answer is.
            let put = put.map_err(|error| if conflicted { Error::transient(error.message()) } else { error });
            match (put?, pauses.next()) {
                (None, _) => return Ok(()),
                (Some(_), Some(pause)) => {
                    conflicted = true;
                    tokio::time::sleep(pause).await;
                }
                // The object may still exist, so this error is not final (I18).
                (Some(conflict), None) => {
                    return Err(Error::transient(format!(
                        "{}: the store reports that the object exists, but does not return the object: {conflict}",
                        self.doing("writing", key)
                    )));
                }
            }
        }
    }

    /// Writes the object if none exists. `Some`: the store reports the object as existing, but does not return it. A store may
    /// refuse both of two concurrent writers (S3: 409 ConditionalRequestConflict).
    async fn put_once(&self, client: &Arc<dyn Client>, key: &Key, content: Bytes) -> Result<Option<Error>> {
        let path = self.path(key)?;
        let doing = self.doing("writing", key);
        let options = PutOptions { mode: PutMode::Create, tags: self.options.tags.clone(), ..PutOptions::default() };
        let result = client.put_opts(&path, PutPayload::from_bytes(content.clone()), options).await;
        let Err(error) = result else { return Ok(None) };
        match &error {
            // Either another run wrote the object, or this run did and the answer was lost.
            object_store::Error::AlreadyExists { .. } if !error_class::says_more(&error) => {
                match self.get_small(key, content.len() as u64 + 1).await {
                    Ok(found) if found == content => Ok(None),
                    Ok(_) => {
                        let another = "another attempt has written this object; try again under a new key";
                        Err(Error::transient(format!("{doing}: {another}")))
                    }
                    Err(gone) if gone.class() == ExitClass::NotFound => Ok(Some(gone)),
                    // For example write-only credentials. The object may be this run's, so the error is not final.
                    Err(unread) => Err(Error::transient(format!(
                        "{doing}: the object exists, and the agent cannot read whether this run wrote the object: \
                         {unread}"
                    ))),
                }
            }
            // A store without this condition. No other run uses the key, so a check before the write is enough.
            object_store::Error::NotImplemented { .. } | object_store::Error::Generic { .. }
                if error.to_string().contains("NotImplemented") || error.to_string().contains("status code: 501") =>
            {
                match self.clients.usual.head(&path).await {
                    // Write-only credentials cannot check, and each key is used once.
                    Err(error) if !absent_or_hidden(&error) => Err(classify(&doing, &error)),
                    Err(_) => match client.put(&path, PutPayload::from_bytes(content.clone())).await {
                        Ok(_) => Ok(None),
                        Err(error) => self.refused(key, &content, &error).await.map(|()| None),
                    },
                    Ok(_) => Err(Error::transient(format!("{doing}: an object of this name exists already"))),
                }
            }
            _ => self.refused(key, &content, &error).await.map(|()| None),
        }
    }

    /// Judges the refusal of a small object. The refusal is final only if certain: the store may have carried out a request
    /// whose answer was lost, and refuse object_store's repetition, for example after a session has expired (I18).
    async fn refused(&self, key: &Key, content: &Bytes, error: &object_store::Error) -> Result<()> {
        let refusal = self.error(&self.doing("writing", key), error);
        if matches!(refusal.class(), ExitClass::Transient | ExitClass::Deadline) {
            return Err(refusal);
        }
        match self.get_small(key, content.len() as u64).await {
            Ok(found) if found == *content => Ok(()),
            // These credentials cannot read. The refusal of a single request still counts: otherwise the agent would repeat
            // every refusal of write-only credentials. After a repetition the result is unknown.
            Err(unread) if unread.class() != ExitClass::NotFound && error_class::repeated(error) => {
                Err(Error::transient(format!(
                    "{refusal}; the agent sent the request more than once, and cannot read whether the object is \
                     written: {unread}"
                )))
            }
            Ok(_) | Err(_) => Err(refusal),
        }
    }

    /// Returns the object's metadata, and the facts from the answer's headers.
    async fn head(&self, path: &Path) -> object_store::Result<(ObjectMeta, Heard)> {
        let options = GetOptions { head: true, ..self.options_of_read() };
        let mut result = self.clients.usual.get_opts(path, options).await?;
        Ok((result.meta, result.extensions.remove().unwrap_or_default()))
    }

    pub(super) async fn stat(&self, key: &Key) -> Result<Stat> {
        let looked = self.head(&self.path(key)?).await;
        let (meta, _) = looked.map_err(|error| classify(&self.doing("looking at", key), &error))?;
        Ok(Stat { bytes: meta.size, etag: meta.e_tag, written: None })
    }

    /// Returns the lock of a stored object, if the flags ask for locks.
    pub(super) async fn lock_of(&self, key: &Key) -> Result<Option<Locked>> {
        let Some(term) = self.options.lock else { return Ok(None) };
        let doing = self.doing("looking at", key);
        let looked = self.head(&self.path(key)?).await;
        let (meta, heard) = looked.map_err(|error| classify(&doing, &error))?;
        let stored = Timestamp::from_second(meta.last_modified.timestamp())
            .map_err(|_| Error::config(format!("{doing}: the object's date is out of range")))?;
        Ok(Some(Locked { asked: term.until()?, kept: heard.locked_until, stored }))
    }

    pub(super) async fn get_small(&self, key: &Key, limit: u64) -> Result<Bytes> {
        let small = self.small(&self.path(key)?, limit).await;
        small.map_err(|error| unreadable(&self.doing("reading", key), &error))
    }

    /// Does the same for an object that may be missing. A missing bucket is an error.
    pub(super) async fn find_small(&self, key: &Key, limit: u64) -> Result<Option<Bytes>> {
        match self.small(&self.path(key)?, limit).await {
            Ok(content) => Ok(Some(content)),
            Err(error) if error_class::is_absent(&error) => Ok(None),
            Err(error) => Err(unreadable(&self.doing("reading", key), &error)),
        }
    }

    /// Returns the bytes of a small object; reads only enough of a longer object to see that it is too long.
    async fn small(&self, path: &Path, limit: u64) -> object_store::Result<Bytes> {
        self.small_with_headers(path, limit).await.map(|(content, _)| content)
    }

    /// Does the same, and also returns the facts from the answer's headers.
    async fn small_with_headers(&self, path: &Path, limit: u64) -> object_store::Result<(Bytes, Heard)> {
        // Without a range: stores refuse a range of an empty object.
        let mut options = self.options_of_read();
        options.extensions.insert(AtMost(limit));
        let mut result = self.clients.usual.get_opts(path, options).await?;
        let heard = result.extensions.remove().unwrap_or_default();
        Ok((result.bytes().await?, heard))
    }

    /// Fetches a few ranges at a time and returns them in order. A range whose connection breaks continues at the break
    /// ([`fetch`]), tied to the same ETag.
    pub(super) fn read(
        &self,
        key: &Key,
        stat: &Stat,
        ahead: Ahead,
        progress: &Progress,
    ) -> BoxStream<'static, Result<Bytes>> {
        let path = match self.path(key) {
            Ok(path) => path,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let doing = self.doing("reading", key);
        let options = GetOptions { if_match: stat.etag.clone(), ..self.options_of_read() };
        let (store, size, progress) = (Arc::clone(&self.clients.usual), stat.bytes, progress.clone());
        let pool = Pool::default();
        stream::iter((0..size).step_by(usize::try_from(ahead.range).unwrap_or(usize::MAX)))
            .map(move |from| {
                let range = from..size.min(from + ahead.range);
                let (store, path, options) = (Arc::clone(&store), path.clone(), options.clone());
                let fetch = fetch(store, path, options, range, doing.clone(), progress.clone(), pool.clone());
                // A task, so that the download goes on while the consumer is busy.
                AbortOnDropHandle::new(tokio::spawn(fetch))
            })
            .buffered(ahead.ranges)
            .flat_map(|range| match range {
                Ok(Ok(pieces)) => stream::iter(pieces.into_iter().map(Ok)).boxed(),
                Ok(Err(error)) => stream::once(async { Err(error) }).boxed(),
                Err(error) => stream::once(async move { Err(holdfast_contract::error::task_error(&error)) }).boxed(),
            })
            .boxed()
    }
}

/// Converts the error of a small object: a longer object is damaged.
fn unreadable(doing: &str, error: &object_store::Error) -> Error {
    match error_class::beneath::<TooLong>(error) {
        Some(long) => Error::corrupt(format!("{doing}: {long}")),
        None => error_class::foreign(doing, error).unwrap_or_else(|| classify(doing, error)),
    }
}

/// Fetches one range. After a broken connection object_store continues at the break for as long as it repeats a request;
/// afterwards, which a slow connection may well reach, this function sends another request.
async fn fetch(
    store: Arc<dyn Client>,
    path: Path,
    with: GetOptions,
    range: Range<u64>,
    doing: String,
    progress: Progress,
    pool: Pool,
) -> Result<Vec<Bytes>> {
    let (mut pieces, mut from, mut buffer) = (Vec::new(), range.start, pool.take());
    loop {
        let (asked, before) = (Instant::now(), from);
        let mut options = GetOptions { range: Some(GetRange::Bounded(from..range.end)), ..with.clone() };
        options.extensions.insert(Download);
        let result = store.get_opts(&path, options).await.map_err(|error| classify(&doing, &error))?;
        let end = result.range.end;
        let mut body = result.into_stream();
        let mut broken = None;
        loop {
            let next = timeout(READ_WITHIN, body.next()).await.unwrap_or_else(|_| {
                let source = Box::new(late(READ_WITHIN));
                Some(Err(object_store::Error::Generic { store: "store", source }))
            });
            let piece = match next {
                None => break,
                Some(Ok(piece)) => piece,
                Some(Err(error)) => {
                    broken = Some(error);
                    break;
                }
            };
            from += piece.len() as u64;
            progress.add(piece.len());
            // A piece of the HTTP client keeps its whole read buffer, which is several times as large.
            let mut rest = piece.as_ref();
            while let Some(full) = buffer.fill(&mut rest) {
                pieces.push(full.freeze());
            }
        }
        match broken.map(|error| classify(&doing, &error)) {
            // Only with an ETag, and only after progress.
            Some(error)
                if error.class() == ExitClass::Transient
                    && with.if_match.is_some()
                    && from > before
                    && asked.elapsed() > RETRY_FOR =>
            {
                tracing::info!(%error, from, "requesting the rest of the object");
            }
            Some(error) => return Err(error),
            None if from == end => break,
            None => return Err(Error::transient(format!("{doing}: the answer was cut short"))),
        }
    }
    if !buffer.is_empty() {
        pieces.push(buffer.freeze());
    }
    Ok(pieces)
}

/// Ignores a missing object.
fn gone(result: object_store::Result<()>) -> object_store::Result<()> {
    match result {
        Err(object_store::Error::NotFound { .. }) => Ok(()),
        other => other,
    }
}

/// Whether the object is missing, or hidden from these credentials.
fn absent_or_hidden(error: &object_store::Error) -> bool {
    matches!(classify("", error).class(), ExitClass::NotFound | ExitClass::Denied)
}
