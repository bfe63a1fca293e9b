//! A removal's requests to a bucket: listings of one folder, an object's locks, one DELETE.

use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_layout::{Folder, Key};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta};

use super::http::{AtMost, Heard};
use super::{Bucket, unreadable};
use crate::error_class::{self, classify};
use crate::removal::{File, Lasting, Small};
use crate::within;

impl Bucket {
    pub(crate) async fn files(&self, folder: &Folder, limit: usize) -> Result<Vec<File>> {
        let prefix = self.below(folder)?;
        let mut files = vec![];
        let read_page = |page: ListResult| {
            for ObjectMeta { location, size, .. } in page.objects {
                if let Some(path) = path_in(&prefix, &location)? {
                    files.push(File { path: path.to_owned(), bytes: size });
                }
            }
            within(files.len(), limit)
        };
        self.pages(folder, false, read_page).await?;
        Ok(files)
    }

    pub(crate) async fn read_small(&self, key: &Key, limit: u64) -> Result<Option<Small>> {
        let doing = self.doing("reading", key);
        let path = self.path(key)?;
        let read = async {
            let mut options = self.options_of_read();
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

    pub(crate) async fn lasting(&self, key: &Key) -> Result<Option<Lasting>> {
        match self.head(&self.path(key)?).await {
            Ok((_, heard)) => Ok(Some(lasting(&heard))),
            Err(error) => match classify(&self.doing("looking at", key), &error) {
                missing if missing.class() == ExitClass::NotFound => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Removes an object; a missing object is no error.
    pub(crate) async fn remove(&self, key: &Key) -> Result<()> {
        let erased = self.erase(&self.path(key)?).await;
        erased.map_err(|error| classify(&self.doing("removing", key), &error))
    }
}

fn lasting(heard: &Heard) -> Lasting {
    Lasting { until: heard.locked_until, legal_hold: heard.legal_hold || heard.lock_unread }
}

/// Returns the path of an object below a folder's prefix; `None`: a web console's object for the folder itself. A listed key
/// outside the prefix is an error.
fn path_in<'a>(prefix: &str, location: &'a Path) -> Result<Option<&'a str>> {
    match location.as_ref().strip_prefix(prefix) {
        Some(path) => Ok(Some(path)),
        None if prefix.strip_suffix('/') == Some(location.as_ref()) => Ok(None),
        None => Err(Error::config(format!("the store lists {location}, which is in another folder"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folders_own_object_is_no_file_of_it_and_another_folders_is_refused() {
        let path = |key: &str| path_in("pre/a/b/", &Path::parse(key).unwrap()).map(|path| path.map(str::to_owned));
        assert_eq!(path("pre/a/b/manifest.json"), Ok(Some("manifest.json".to_owned())));
        assert_eq!(path("pre/a/b/"), Ok(None));
        assert_eq!(path("pre/a/b/holds/"), Ok(Some("holds".to_owned())), "an empty folder of holds holds");
        for other in ["pre/a/bc/manifest.json", "pre/a", "a/b/manifest.json"] {
            assert!(path(other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_lock_that_cannot_be_read_locks() {
        let now = Timestamp::UNIX_EPOCH;
        assert!(lasting(&Heard { lock_unread: true, ..Heard::default() }).locks(now));
        assert!(!lasting(&Heard::default()).locks(now));
    }
}
