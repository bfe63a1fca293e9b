//! A scratch folder: created below a given folder, and removed when dropped.
//!
//! This file does not decide the content. It checks the free space before.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdfast_contract::error::{Error, Result, io_error};

use crate::files::free_bytes;
use crate::process::random_uid;

/// A folder for this process only, because it may hold decrypted data.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a folder, if this many bytes are free.
    pub fn new(below: &Path, needed: u64) -> Result<Self> {
        let doing = || format!("making a folder below --scratch={}", below.display());
        check_free(below, needed)?;
        let path = below.join(format!("holdfast-{}", random_uid()?));
        DirBuilder::new().mode(0o700).create(&path).map_err(io_error(doing()))?;
        Ok(Self(path))
    }

    /// Returns the path of this name in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a file.
    pub fn file(&self, name: &str) -> Result<(PathBuf, File)> {
        let path = self.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(io_error(format!("making {}", path.display())))?;
        Ok((path, file))
    }
}

/// Refuses a folder with less free space than this.
pub fn check_free(below: &Path, needed: u64) -> Result<()> {
    let doing = || format!("making a folder below --scratch={}", below.display());
    let free = free_bytes(below).map_err(io_error(doing()))?;
    if free >= needed {
        return Ok(());
    }
    Err(Error::full(format!(
        "{}: {} MiB of free space are needed and there are {} MiB: name another folder with --scratch",
        doing(),
        needed.div_ceil(1 << 20),
        free >> 20
    )))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the scratch folder stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn it_is_for_us_alone_and_gone_afterwards() {
        let below = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(below.path(), 1).unwrap();
        let (path, _file) = scratch.file("snapshot.db").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        drop(scratch);
        assert_eq!(fs::read_dir(below.path()).unwrap().count(), 0);
    }

    #[test]
    fn where_there_is_no_room_nothing_is_made() {
        let below = tempfile::tempdir().unwrap();
        let error = Scratch::new(below.path(), u64::MAX).unwrap_err();
        assert_eq!(error.class(), ExitClass::Full);
        assert!(error.message().contains("--scratch"), "{error}");
        assert_eq!(fs::read_dir(below.path()).unwrap().count(), 0);
        let error = Scratch::new(Path::new("/nonexistent"), 1).unwrap_err();
        assert!(error.class() == ExitClass::NotFound && error.message().contains("/nonexistent"), "{error}");
    }
}
