//! Single requests to a bucket for `agent probe`: no repetition and no workaround.

use bytes::Bytes;
use holdfast_contract::error::Result;
use holdfast_layout::{Folder, Key};
use object_store::list::PaginatedListOptions;
use object_store::{GetOptions, ObjectStore, PutMode, PutOptions, PutPayload};

use super::http::Heard;
use super::{Bucket, PAGE, intent};
use crate::error_class::classify;
use crate::trial::Put;

impl Bucket {
    /// Writes an object, with or without the create-only condition.
    pub(crate) async fn try_put(&self, key: &Key, content: Bytes, create: bool) -> Result<Put> {
        let mode = if create { PutMode::Create } else { PutMode::Overwrite };
        let options = PutOptions { mode, tags: self.options.tags.clone(), ..PutOptions::default() };
        let put = self.clients.usual.put_opts(&self.path(key)?, PutPayload::from_bytes(content), options).await;
        match put {
            Ok(put) => Ok(Put::Taken(put.version)),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(Put::Refused)
            }
            Err(error) => Err(self.error(&self.doing("writing", key), &error)),
        }
    }

    /// Reads a version of an object.
    pub(crate) async fn try_version(&self, key: &Key, version: String) -> Result<Bytes> {
        let options = GetOptions { version: Some(version), ..GetOptions::default() };
        let path = self.path(key)?;
        let read = async { self.clients.usual.get_opts(&path, options).await?.bytes().await };
        read.await.map_err(|error| classify(&self.doing("reading", key), &error))
    }

    /// Returns the facts from an answer's headers.
    pub(crate) async fn try_head(&self, key: &Key) -> Result<Heard> {
        let looked = self.head(&self.path(key)?).await;
        looked.map(|(_, heard)| heard).map_err(|error| classify(&self.doing("looking at", key), &error))
    }

    /// Removes all objects below a folder: one page of them, which is more than a probe writes.
    pub(crate) async fn try_clear(&self, folder: &Folder) -> Result<()> {
        let doing = self.doing("clearing", folder);
        let prefix = self.below(folder)?;
        let options = PaginatedListOptions { max_keys: Some(PAGE), ..PaginatedListOptions::default() };
        let page = self.clients.usual.list_paginated(Some(&prefix), options).await;
        let objects = page.map_err(|error| classify(&doing, &error))?.result.objects;
        // Of an interrupted upload only the intent is listed.
        for attempt in objects.iter().filter_map(|object| folder.whatever_of_intent(object.location.filename()?)) {
            if let Err(error) = intent::abandon(self, &attempt).await {
                tracing::debug!(attempt = %attempt, %error, "the attempt's upload may stay unfinished");
            }
        }
        for object in objects {
            self.erase(&object.location).await.map_err(|error| classify(&doing, &error))?;
        }
        Ok(())
    }
}
