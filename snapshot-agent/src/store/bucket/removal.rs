//! The requests of a removal to a bucket: listings of one folder, what is said beside an object, one DELETE.

use jiff::Timestamp;
use object_store::path::Path;
use object_store::{GetOptions, ListResult, ObjectMeta};

use super::http::{AtMost, Heard};
use super::{Bucket, unreadable};
use crate::contract::ExitClass;
use crate::error::{Error, Result};
use crate::format::layout::{Folder, Key};
use crate::store::error_class::{self, classify};
use crate::store::removal::{File, Lasting, Small};
use crate::store::within;

impl Bucket {
    pub(in crate::store) async fn files(&self, folder: &Folder, limit: usize) -> Result<Vec<File>> {
        let prefix = self.below(folder)?;
        let mut files = vec![];
        let look = |page: ListResult| {
            for ObjectMeta { location, size, .. } in page.objects {
                // A store that lists what lies elsewhere is not believed.
                let path = location.as_ref().strip_prefix(&prefix).ok_or_else(|| elsewhere(&location))?;
                files.push(File { path: path.to_owned(), bytes: size });
            }
            within(files.len(), limit)
        };
        self.pages(folder, false, look).await?;
        Ok(files)
    }

    pub(in crate::store) async fn read_small(&self, key: &Key, limit: u64) -> Result<Option<Small>> {
        let doing = self.doing("reading", key);
        let path = self.path(key)?;
        let read = async {
            let mut options = GetOptions::default();
            options.extensions.insert(AtMost(limit));
            let mut result = self.clients.usual.get_opts(&path, options).await?;
            let heard: Heard = result.extensions.remove().unwrap_or_default();
            let stored = result.meta.last_modified.timestamp();
            Ok::<_, object_store::Error>((result.bytes().await?, heard, stored))
        };
        match read.await {
            Ok((content, heard, stored)) => {
                let stored = Timestamp::from_second(stored)
                    .map_err(|_| Error::config(format!("{doing}: the object's date is out of range")))?;
                Ok(Some(Small { content, lasting: lasting(&heard), stored, now: heard.now }))
            }
            Err(error) if error_class::is_absent(&error) => Ok(None),
            Err(error) => Err(unreadable(&doing, &error)),
        }
    }

    pub(in crate::store) async fn lasting(&self, key: &Key) -> Result<Option<Lasting>> {
        match self.look(&self.path(key)?).await {
            Ok((_, heard)) => Ok(Some(lasting(&heard))),
            Err(error) => match classify(&self.doing("looking at", key), &error) {
                missing if missing.class() == ExitClass::NotFound => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Removes an object; one that is not there is removed already.
    pub(in crate::store) async fn remove(&self, key: &Key) -> Result<()> {
        let erased = self.erase(&self.path(key)?).await;
        erased.map_err(|error| classify(&self.doing("removing", key), &error))
    }
}

fn lasting(heard: &Heard) -> Lasting {
    Lasting { until: heard.locked_until, legal_hold: heard.legal_hold }
}

fn elsewhere(location: &Path) -> Error {
    Error::config(format!("the store lists {location}, which is in another folder"))
}
