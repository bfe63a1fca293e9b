//! Resolves a key of the store to a snapshot of Holdfast, or to a snapshot file without a manifest (etcdctl's, another operator's).
//!
//! This file decides by the store's contents: a folder with a manifest, or an object of exactly this name. The data object of a
//! snapshot counts as such a file when its manifest is lost or broken. Which proofs a file needs, the verbs decide.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result, io_error, task_error};
use holdfast_io::progress::Progress;
use holdfast_io::sha256::Sha256;
use holdfast_layout::{Folder, Format, Key, MANIFEST, attempt_time};
use holdfast_store::{Ahead, Stat, Store};

use crate::reread::Reading;
use crate::stored;
use holdfast_format::unpack;

/// Usual ending of a file that etcdctl writes.
const SUFFIX: &str = ".db";

/// A key's snapshot or file.
pub enum Named {
    /// A snapshot of Holdfast, or the folder of a running save.
    Folder(Folder),
    /// A snapshot file without a manifest.
    File(Key, Stat),
}

/// Refuses a key that can name neither a folder nor a file.
pub fn check(key: &str) -> Result<()> {
    Key::of_object(key).map(drop).map_err(|error| holdfast_store::layout(&error))
}

/// Resolves a key.
pub async fn find(store: &Store, key: &str) -> Result<Named> {
    let file = Key::of_object(key).map_err(|error| holdfast_store::layout(&error))?;
    let is_of_snapshot = file.name() == MANIFEST || Format::all().any(|format| format.name() == file.name());
    if is_of_snapshot && attempt_time(file.folder().name()).is_some() {
        return find_snapshot_data(store, file).await;
    }
    let folder = Folder::parse("key", key).ok().filter(|_| !key.ends_with(SUFFIX));
    let Some(folder) = folder else { return store.stat(&file).await.map(|stat| Named::File(file, stat)) };
    // The verb that opens the folder reports a missing object.
    if attempt_time(folder.name()).is_some() {
        return Ok(Named::Folder(folder));
    }
    let none = match store.stat(&folder.manifest()).await {
        Ok(_) => return Ok(Named::Folder(folder)),
        // S3 denies a missing object to credentials that may not list.
        Err(none) if matches!(none.class(), ExitClass::NotFound | ExitClass::Denied) => none,
        Err(error) => return Err(error),
    };
    match store.stat(&file).await {
        Ok(stat) => Ok(Named::File(file, stat)),
        Err(error) if error.class() != ExitClass::NotFound => Err(error),
        Err(_) => Err(none.context(format!(
            "the key {key} names neither a folder with {MANIFEST} nor an object: `agent list` shows the folders"
        ))),
    }
}

/// Resolves a snapshot's own object. With a manifest the result is the folder, because the manifest records more than the data.
/// Without a readable manifest only the data is left of the snapshot. A plain database is the same format as etcdctl's, with
/// etcd's own hash, and always counts as a file.
async fn find_snapshot_data(store: &Store, file: Key) -> Result<Named> {
    let name_the_folder = || stored::folder(&file.to_string()).map(Named::Folder);
    if file.name() == MANIFEST {
        return name_the_folder();
    }
    if file.name().ends_with(SUFFIX) {
        return store.stat(&file).await.map(|stat| Named::File(file, stat));
    }
    let lost = match stored::manifest_of(store, file.folder()).await {
        Err(lost) if matches!(lost.class(), ExitClass::NotFound | ExitClass::Corrupt) => lost,
        // A later version of Holdfast can read such a manifest.
        Err(error) if error.class() != ExitClass::Config => return Err(error),
        Ok(_) | Err(_) => return name_the_folder(),
    };
    match store.stat(&file).await {
        Ok(stat) => {
            tracing::warn!(why = %lost, uri = store.uri(&file), "no manifest: the data is read as a file of another tool");
            Ok(Named::File(file, stat))
        }
        Err(error) if error.class() == ExitClass::NotFound => Err(lost),
        Err(error) => Err(error),
    }
}

/// Writes the object to a file without changes, and returns the file.
pub async fn download(store: &Store, (key, stat): (&Key, &Stat), to: File, stall: Duration) -> Result<File> {
    let progress = Progress::new("reading the snapshot", stat.bytes);
    let stream = store.read(key, stat, Ahead::FAR, &progress);
    let (_, file) = progress.watch(stall, unpack::plain(stream, stat.bytes, (to, &progress))).await?;
    let arrived = file.metadata().map_err(io_error("looking at the snapshot's file"))?.len();
    if arrived != stat.bytes {
        let (uri, announced) = (store.uri(key), stat.bytes);
        return Err(Error::transient(format!("{uri}: {arrived} bytes arrived, the store announced {announced}")));
    }
    Ok(file)
}

/// Computes length and sha256 of a file.
pub async fn digest_of(file: File) -> Result<Reading> {
    let digest = move || -> io::Result<Reading> {
        let (mut hash, mut piece, mut bytes) = (Sha256::new(), vec![0; 1 << 20], 0_u64);
        loop {
            match file.read_at(&mut piece, bytes)? {
                0 => return Ok((bytes, hash.finalize())),
                got => {
                    hash.update(piece.get(..got).unwrap_or_default());
                    bytes += got as u64;
                }
            }
        }
    };
    let digest = tokio::task::spawn_blocking(digest).await.map_err(|error| task_error(&error))?;
    digest.map_err(io_error("reading the snapshot's file"))
}
