//! A store for a process that lives for months: the process opens the store again, so that keys, tokens and CA may change.
//!
//! This file decides which files a store was opened with, and when they count as changed: by their content, because Kubernetes
//! exchanges all files of a mounted Secret by one link, and times prove nothing. The callers decide when to look at the files.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_contract::StoreFlags;
use holdfast_contract::error::Result;
use holdfast_io::files::names;
use holdfast_io::sha256::Sha256;

use super::Store;

/// An opened store that is opened again.
#[derive(Debug)]
pub struct Handle {
    flags: StoreFlags,
    opened: Mutex<Opened>,
}

/// A store, and the files that it was opened with.
#[derive(Debug)]
pub struct Opened {
    store: Arc<Store>,
    files: [u8; 32],
}

impl Opened {
    fn with_flags(flags: &StoreFlags) -> Result<Self> {
        // First the files: a change between the two readings shows at the next look.
        let files = hash_files(flags);
        Ok(Self { store: Arc::new(Store::open(flags)?), files })
    }
}

impl Handle {
    /// Opens a store: reads its files, sends no request.
    pub fn open(flags: &StoreFlags) -> Result<Self> {
        Ok(Self { flags: flags.clone(), opened: Mutex::new(Opened::with_flags(flags)?) })
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the store as it is open now.
    pub fn store(&self) -> Arc<Store> {
        Arc::clone(&self.opened().store)
    }

    /// Whether the files have another content than when the store was opened.
    pub fn files_changed(&self) -> bool {
        self.opened().files != hash_files(&self.flags)
    }

    /// Opens the store with its present files, and new connections. The caller checks the store ID, and then replaces the earlier
    /// store ([`Self::replace`]).
    pub fn open_again(&self) -> Result<Opened> {
        Opened::with_flags(&self.flags)
    }

    /// Replaces the earlier store.
    pub fn replace(&self, opened: Opened) {
        *self.opened() = opened;
    }
}

/// Returns a hash of the names and contents of the store's files: the mounted Secret, and the CA certificates. An unreadable file
/// counts as missing: opening the store then names the file.
fn hash_files(flags: &StoreFlags) -> [u8; 32] {
    let folder = flags.credentials_dir.as_deref();
    let listed = folder.and_then(|folder| names(folder).ok().flatten()).unwrap_or_default();
    let secret = listed.iter().filter_map(|name| Some(folder?.join(name)));
    let cas = [&flags.s3_ca_file, &flags.azure_ca_file, &flags.gcs_ca_file].into_iter().flatten();
    let mut hash = Sha256::new();
    for path in secret.chain(cas.map(PathBuf::clone)) {
        // Not the folders of a mounted Secret: `..data` and the folder of its present version.
        let Ok(content) = fs::read(&path) else { continue };
        for part in [path.as_os_str().as_encoded_bytes(), &content] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.finalize()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// Writes a Secret as kubelet mounts it: the files are links through `..data` to the folder of a version.
    fn mount(secret: &Path, version: &str, key: &str) {
        let folder = secret.join(version);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("accessKeyID"), "key").unwrap();
        fs::write(folder.join("secretAccessKey"), key).unwrap();
        let next = secret.join("..data_tmp");
        symlink(version, &next).unwrap();
        fs::rename(next, secret.join("..data")).unwrap();
    }

    #[test]
    fn an_exchanged_secret_and_another_ca_are_noticed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, ca) = (folder.path().join("secret"), folder.path().join("ca.crt"));
        let trusting = StoreFlags { s3_ca_file: Some(ca.clone()), ..StoreFlags::default() };
        let hashes = ["", "first", "second"].map(|text| {
            fs::write(&ca, text).unwrap();
            hash_files(&trusting)
        });
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
        fs::create_dir(&secret).unwrap();
        mount(&secret, "..1", "one");
        for name in ["accessKeyID", "secretAccessKey"] {
            symlink(format!("..data/{name}"), secret.join(name)).unwrap();
        }
        let flags =
            StoreFlags { url: "s3://bkt/p".to_owned(), credentials_dir: Some(secret.clone()), ..StoreFlags::default() };
        let handle = Handle::open(&flags).unwrap();
        assert!(!handle.files_changed());
        // The same content in another version of the mount, which kubelet makes for another key of the Secret.
        mount(&secret, "..2", "one");
        assert!(!handle.files_changed());
        mount(&secret, "..3", "two");
        assert!(handle.files_changed());
        let before = handle.store();
        handle.replace(handle.open_again().unwrap());
        assert!(!handle.files_changed() && !Arc::ptr_eq(&before, &handle.store()));
        fs::write(secret.join("sessionToken"), "token").unwrap();
        assert!(handle.files_changed());
        handle.replace(handle.open_again().unwrap());
        // Without its files the store does not open, and the earlier store stays.
        fs::remove_file(secret.join("..data")).unwrap();
        assert!(handle.files_changed());
        let error = handle.open_again().unwrap_err();
        assert!(error.message().contains("accessKeyID"), "{error}");
    }
}
