//! A bucket as a store.
//!
//! It decides which request does what, and how much is on its way at a time; how the store is spoken to is decided in
//! `s3/client.rs`. Every request is signed and so is its payload: the store checks a sha256 of every part. Large objects
//! cannot be create-only, so data goes under keys that nobody else uses, and the manifest, which is small, is the
//! create-only one.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio_util::task::AbortOnDropHandle;

use super::class::classify;
use super::{Children, Plan, Stat};
use crate::contract::StoreFlags;
use crate::error::{Error, Result};
use crate::layout::{Folder, Key};
use crate::progress::Progress;

mod client;
mod intent;
mod upload;

use client::Clients;
pub use client::install_crypto;
pub(super) use upload::S3Upload;

/// Ranges of a download: large enough that the request's own cost vanishes, small enough to keep four in memory.
const RANGE: u64 = 8 << 20;
const RANGES_AT_A_TIME: usize = 4;

/// The most that S3 puts on one page of a listing.
const PAGE: usize = 1000;

/// A bucket and a prefix in it.
#[derive(Clone)]
pub struct S3Store {
    bucket: String,
    prefix: Option<Folder>,
    /// Endpoint and region, for people.
    at: String,
    clients: Clients,
}

/// object_store's own output holds the session token.
impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Store").field("bucket", &self.bucket).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl S3Store {
    pub(super) fn open(flags: &StoreFlags, bucket: String, prefix: Option<Folder>) -> Result<Self> {
        let clients = Clients::of(flags, &bucket)?;
        let region = client::region(flags);
        let at = match &flags.s3_endpoint {
            Some(endpoint) => format!("{endpoint}, region {region}"),
            None => format!("AWS, region {region}"),
        };
        Ok(Self { bucket, prefix, at, clients })
    }

    /// What is being done, and where: with this every error begins.
    fn doing(&self, what: &str, at: &impl fmt::Display) -> String {
        format!("{what} {} (at {})", self.uri(at), self.at)
    }

    fn path(&self, key: &impl fmt::Display) -> Result<Path> {
        let key = match &self.prefix {
            Some(prefix) => format!("{prefix}/{key}"),
            None => key.to_string(),
        };
        Path::parse(&key).map_err(|error| Error::config(format!("{key} is no key: {error}")))
    }

    pub(super) fn uri(&self, at: &impl fmt::Display) -> String {
        match &self.prefix {
            Some(prefix) => format!("s3://{}/{prefix}/{at}", self.bucket),
            None => format!("s3://{}/{at}", self.bucket),
        }
    }

    /// Page by page: what is not wanted is forgotten with its page.
    pub(super) async fn children(
        &self,
        folder: &Folder,
        limit: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Children> {
        let doing = self.doing("listing", folder);
        let prefix = format!("{}/", self.path(folder)?);
        let (mut children, mut page_token) = (Children::default(), None);
        loop {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                max_keys: Some(PAGE),
                page_token,
                ..PaginatedListOptions::default()
            };
            let page = self.clients.asker.list_paginated(Some(&prefix), options).await;
            let page = page.map_err(|error| classify(&doing, &error))?;
            for name in page.result.common_prefixes.iter().filter_map(Path::filename) {
                let taken = children.take(name, &wanted, limit);
                taken.map_err(|error| Error::config(format!("{doing}: {error}")))?;
            }
            page_token = page.page_token;
            if page_token.is_none() {
                return Ok(children);
            }
        }
    }

    pub(super) async fn begin(&self, key: &Key, plan: Plan) -> Result<S3Upload> {
        let mut upload = S3Upload::begin(self, key, plan).await?;
        if let Err(error) = intent::announce(self, key, upload.id(), plan).await {
            upload.abort().await;
            return Err(error);
        }
        // The store has shown that it works; what dead attempts have left is a courtesy.
        intent::clean_up(self, key, plan.at).await;
        Ok(upload)
    }

    pub(super) async fn put_new(&self, key: &Key, content: Bytes) -> Result<()> {
        let path = self.path(key)?;
        let doing = self.doing("writing", key);
        let options = PutOptions::from(PutMode::Create);
        let result = self.clients.asker.put_opts(&path, PutPayload::from_bytes(content.clone()), options).await;
        let Err(error) = result else { return Ok(()) };
        match &error {
            // Either somebody else wrote it, or we did and the answer was lost.
            object_store::Error::AlreadyExists { .. } => {
                let found = self.get_small(key, content.len() as u64 + 1).await?;
                if found == content {
                    return Ok(());
                }
                Err(Error::transient(format!("{doing}: another attempt has written it; try again under a new key")))
            }
            // A store that does not know the condition. Nobody else uses the key, so a look beforehand will do.
            object_store::Error::NotImplemented { .. } | object_store::Error::Generic { .. }
                if error.to_string().contains("NotImplemented") || error.to_string().contains("status code: 501") =>
            {
                match self.clients.asker.head(&path).await {
                    Err(object_store::Error::NotFound { .. }) => {
                        let put = self.clients.asker.put(&path, PutPayload::from_bytes(content)).await;
                        put.map(drop).map_err(|error| classify(&doing, &error))
                    }
                    Err(error) => Err(classify(&doing, &error)),
                    Ok(_) => Err(Error::transient(format!("{doing}: there is an object of that name already"))),
                }
            }
            _ => Err(classify(&doing, &error)),
        }
    }

    pub(super) async fn stat(&self, key: &Key) -> Result<Stat> {
        let meta = self.clients.asker.head(&self.path(key)?).await;
        let meta = meta.map_err(|error| classify(&self.doing("looking at", key), &error))?;
        Ok(Stat { bytes: meta.size, etag: meta.e_tag })
    }

    pub(super) async fn get_small(&self, key: &Key, limit: u64) -> Result<Bytes> {
        let doing = self.doing("reading", key);
        let result = self.clients.asker.get(&self.path(key)?).await.map_err(|error| classify(&doing, &error))?;
        if result.meta.size > limit {
            return Err(Error::corrupt(format!("{doing}: it has {} bytes, more than {limit}", result.meta.size)));
        }
        let mut content = BytesMut::new();
        let mut body = result.into_stream();
        while let Some(piece) = body.next().await {
            content.extend_from_slice(&piece.map_err(|error| classify(&doing, &error))?);
            if content.len() as u64 > limit {
                return Err(Error::corrupt(format!("{doing}: it is longer than the store said")));
            }
        }
        Ok(content.freeze())
    }

    /// Ranges are fetched a few at a time and handed on in order. A range whose connection breaks is taken up again
    /// where it broke, by object_store, tied to the same ETag.
    pub(super) fn read(&self, key: &Key, stat: &Stat, progress: &Progress) -> BoxStream<'static, Result<Bytes>> {
        let path = match self.path(key) {
            Ok(path) => path,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let doing = self.doing("reading", key);
        let (store, etag, size, progress) =
            (Arc::clone(&self.clients.reader), stat.etag.clone(), stat.bytes, progress.clone());
        stream::iter((0..size).step_by(usize::try_from(RANGE).unwrap_or(usize::MAX)))
            .map(move |from| {
                let options = GetOptions {
                    if_match: etag.clone(),
                    range: Some(GetRange::Bounded(from..size.min(from + RANGE))),
                    ..GetOptions::default()
                };
                let fetch = fetch(Arc::clone(&store), path.clone(), options, doing.clone(), progress.clone());
                // A task, so that it goes on while the consumer is busy.
                AbortOnDropHandle::new(tokio::spawn(fetch))
            })
            .buffered(RANGES_AT_A_TIME)
            .flat_map(|range| match range {
                Ok(Ok(pieces)) => stream::iter(pieces.into_iter().map(Ok)).boxed(),
                Ok(Err(error)) => stream::once(async { Err(error) }).boxed(),
                Err(error) => stream::once(async move { Err(crate::error::task_error(&error)) }).boxed(),
            })
            .boxed()
    }
}

async fn fetch(
    store: Arc<AmazonS3>,
    path: Path,
    options: GetOptions,
    doing: String,
    progress: Progress,
) -> Result<Vec<Bytes>> {
    let result = store.get_opts(&path, options).await.map_err(|error| classify(&doing, &error))?;
    let wanted = result.range.end - result.range.start;
    let mut body = result.into_stream();
    let (mut pieces, mut got) = (Vec::new(), 0_u64);
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| classify(&doing, &error))?;
        got += piece.len() as u64;
        progress.add(piece.len());
        pieces.push(piece);
    }
    if got == wanted { Ok(pieces) } else { Err(Error::transient(format!("{doing}: the answer was cut short"))) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["accessKeyID", "secretAccessKey", "sessionToken"] {
            fs::write(folder.path().join(name), "canary").unwrap();
        }
        let flags = StoreFlags { credentials_dir: Some(folder.path().to_owned()), ..StoreFlags::default() };
        let store = S3Store::open(&flags, "bkt".to_owned(), None).unwrap();
        assert!(!format!("{store:?}").contains("canary"));
    }
}
