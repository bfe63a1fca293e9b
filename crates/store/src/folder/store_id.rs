//! Writes the store ID at the root of a folder store, where two writers may run at once, unlike in an attempt's folder.
//!
//! Each writer has its own temporary file, and the first file stays (`rename.rs`).

use std::io::{self, Write};

use bytes::Bytes;
use cap_std::fs::{Dir, OpenOptions};
use holdfast_contract::error::{Error, Result};
use holdfast_layout::Key;

use super::{FolderStore, rename, sync};

/// Prefix of the temporary file.
const TEMPORARY_PREFIX: &str = ".holdfast-store-";

impl FolderStore {
    /// Writes a small file directly below the root, only if no file has its name.
    pub(super) async fn put_store_id(&self, key: &Key, content: Bytes) -> Result<()> {
        let doing = format!("writing {}", self.uri(key));
        let name = key.name().to_owned();
        let temporary = format!("{TEMPORARY_PREFIX}{}.tmp", holdfast_io::process::random_uid()?);
        let calls = move |root: &Dir| -> io::Result<bool> {
            let write = || {
                let mut file = root.open_with(&temporary, OpenOptions::new().write(true).create_new(true))?;
                file.write_all(&content)?;
                file.sync_all()
            };
            let published = write().and_then(|()| rename::name(root, &temporary, &name));
            let _gone = root.remove_file(&temporary);
            sync(root)?;
            match published {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                Ok(()) | Err(_) => Ok(root.read(&name)? == content),
            }
        };
        if self.below(doing.clone(), calls).await? {
            return Ok(());
        }
        Err(Error::transient(format!("{doing}: another run has written this file first")))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_contract::ExitClass;

    use super::*;

    #[tokio::test]
    async fn what_is_there_first_stays() {
        let mount = tempfile::tempdir().unwrap();
        let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
        let key = Key::of_store();
        let puts = (0..8).map(|i| store.put_new(&key, Bytes::from(format!("content {i}"))));
        let ended = futures::future::join_all(puts).await;
        assert_eq!(ended.iter().filter(|put| put.is_ok()).count(), 1, "{ended:?}");
        let others = ended.iter().filter_map(|put| put.as_ref().err());
        assert!(others.map(Error::class).all(|class| class == ExitClass::Transient), "{ended:?}");
        let first = ended.iter().position(std::result::Result::is_ok).unwrap();
        assert_eq!(store.get_small(&key, 100).await.unwrap(), format!("content {first}"));
        store.put_new(&key, Bytes::from(format!("content {first}"))).await.unwrap();
        assert_eq!(std::fs::read_dir(mount.path()).unwrap().count(), 1, "nothing temporary stays");
    }
}
