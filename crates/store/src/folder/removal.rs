//! A removal's calls in a folder: the files of one folder, one unlink, and the removal of empty folders.

use std::io::{self, Read};

use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_io::files::ignore_missing;
use holdfast_layout::{Folder, Key, attempt_time};
use jiff::Timestamp;
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::attempts::is_own;
use super::{FolderStore, sync};
use crate::removal::{File, Lasting, Small};
use crate::within;

impl FolderStore {
    pub(crate) async fn files(&self, folder: &Folder, limit: usize) -> Result<Vec<File>> {
        let (doing, path) = (format!("listing {}", self.uri(folder)), folder.to_string());
        let calls = move |root: &Dir| {
            let mut files = vec![];
            match root.open_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => collect(&opened?, "", limit, &mut files)?,
            }
            Ok(files)
        };
        let files = self.read_below(doing.clone(), calls).await?;
        within(files.len(), limit).map_err(|error| error.context(doing))?;
        Ok(files)
    }

    pub(crate) async fn read_small(&self, key: &Key, limit: u64) -> Result<Option<Small>> {
        let (doing, path) = (format!("reading {}", self.uri(key)), key.to_string());
        let calls = move |root: &Dir| {
            let file = match root.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            let mut content = Vec::new();
            let written = written(&file.metadata()?)?;
            file.take(limit + 1).read_to_end(&mut content)?;
            Ok(Some((content, written)))
        };
        let Some((content, stored)) = self.read_below(doing.clone(), calls).await? else { return Ok(None) };
        if content.len() as u64 > limit {
            return Err(Error::corrupt(format!("{doing}: the file is longer than {limit} bytes")));
        }
        Ok(Some(Small { content: content.into(), lasting: Lasting::default(), stored, now: None }))
    }

    pub(crate) async fn lasting(&self, key: &Key) -> Result<Option<Lasting>> {
        match self.stat(key).await {
            Ok(_) => Ok(Some(Lasting::default())),
            Err(error) if error.class() == ExitClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the time of the volume's clock, which for a network volume is the server's: sets the folder's time to now and
    /// reads it. A file would not fit on a full volume.
    pub(crate) async fn clock(&self, folder: &Folder) -> Result<Timestamp> {
        let path = folder.to_string();
        let calls = move |root: &Dir| {
            let folder = root.open_dir(&path)?;
            let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
            let now = Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) };
            rustix::fs::utimensat(&folder, ".", &now, AtFlags::empty())?;
            written(&folder.dir_metadata()?)
        };
        self.below(format!("asking the clock of {}", self.uri(folder)), calls).await
    }

    /// Removes a file durably. Also removes the attempt's folder if only empty folders of proofs and holds remain, and none
    /// above.
    pub(crate) async fn remove(&self, key: &Key) -> Result<()> {
        let (path, mut folder) = (key.to_string(), key.folder().clone());
        let calls = move |root: &Dir| {
            ignore_missing(root.remove_file(&path))?;
            match root.open_dir(folder.as_str()) {
                Ok(folder) => sync(&folder)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            if folder.is_proofs()
                && let Some(attempt) = folder.parent()
            {
                folder = attempt;
            }
            if attempt_time(folder.name()).is_some() {
                // Each call fails if files remain, as it should.
                for empty in [folder.proofs(), folder.holds(), folder] {
                    let _left = root.remove_dir(empty.as_str());
                }
            }
            Ok(())
        };
        self.below(format!("removing {}", self.uri(key)), calls).await
    }
}

/// Returns the time of a file's last write, by the volume's clock.
fn written(found: &Metadata) -> io::Result<Timestamp> {
    let nanoseconds = i32::try_from(found.mtime_nsec()).unwrap_or_default();
    Timestamp::new(found.mtime(), nanoseconds).map_err(io::Error::other)
}

/// Lists files in a folder and in its folders. Other kinds of entries are listed by name, so that they are seen. The store's
/// own files beside a snapshot are left out, but not those in a folder: a hold may have any name.
fn collect(folder: &Dir, above: &str, limit: usize, files: &mut Vec<File>) -> io::Result<()> {
    for entry in folder.entries()? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if above.is_empty() && is_own(&name) {
            continue;
        }
        let path = format!("{above}{name}");
        if entry.file_type()?.is_dir() && above.is_empty() {
            collect(&entry.open_dir()?, &format!("{path}/"), limit, files)?;
        } else {
            files.push(File { path, bytes: entry.metadata()?.len() });
        }
        if files.len() > limit {
            break;
        }
    }
    Ok(())
}
