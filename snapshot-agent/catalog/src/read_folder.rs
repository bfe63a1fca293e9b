//! Reads one folder of a store: whether the folder holds a complete snapshot, by its manifest and the size of its data.
//!
//! This file decides the state of a folder. `inspect` and `list` decide which folders are read and how the result is used.

use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_io::sha256::Sha256;
use holdfast_layout::Folder;
use holdfast_layout::manifest::{self, Manifest};
use holdfast_store::Store;

use crate::reread;

/// State of a folder.
#[derive(Debug)]
pub enum FolderState {
    /// Manifest and data exist and match; with the sha256 of the manifest's file.
    Complete(Box<Manifest>, [u8; 32]),
    /// A running or dead save, or a started removal.
    WithoutManifest,
    /// The manifest is not a wanted manifest.
    Unwanted,
    /// The store has moved the manifest to an archive: the snapshot is complete, and unreadable for now.
    Archived(Error),
    /// The folder holds an invalid manifest or wrong data.
    Broken(Error),
}

/// Reads one folder. `Err`: the store did not answer, so the state is unknown.
pub async fn read_folder(store: &Store, folder: &Folder, wanted: impl Fn(&Manifest) -> bool) -> Result<FolderState> {
    let at = folder.manifest();
    let json = match store.get_small(&at, manifest::MAX_BYTES).await {
        Ok(json) => json,
        Err(error) if error.class() == ExitClass::NotFound => return Ok(FolderState::WithoutManifest),
        Err(error) => {
            let error = reread::of_unreadable_unless_gone(store, &at, manifest::MAX_BYTES, error).await;
            return judged(error);
        }
    };
    let manifest = match Manifest::parse(&json) {
        Ok(manifest) => manifest,
        Err(error) => {
            let error = error.context(store.uri(&at));
            return judged(reread::of_manifest_unless_gone(store, folder, &json, error).await);
        }
    };
    if !wanted(&manifest) {
        // A single wrong bit in a UID makes another object's manifest, and "not found" may be final.
        let other = Error::corrupt(format!("{}: the manifest is another snapshot's", store.uri(&at)));
        return match reread::of_manifest_unless_gone(store, folder, &json, other).await {
            None => Ok(FolderState::WithoutManifest),
            Some(confirmed) if confirmed.class() == ExitClass::Corrupt => Ok(FolderState::Unwanted),
            Some(unread) => Err(unread),
        };
    }
    let data = folder.data(manifest.format());
    let (length, error) = match store.stat(&data).await {
        Ok(stat) if stat.bytes == manifest.stored_bytes => {
            return Ok(FolderState::Complete(Box::new(manifest), Sha256::digest(&json)));
        }
        Ok(stat) => {
            let (uri, recorded) = (store.uri(&data), manifest.stored_bytes);
            let why =
                format!("{uri} has {} bytes, its manifest says {recorded}: the object was cut or replaced", stat.bytes);
            (Some(stat.bytes), Error::corrupt(why))
        }
        Err(error) if error.class() == ExitClass::NotFound => {
            (None, error.context("the manifest exists and its data does not"))
        }
        Err(error) => return Err(error),
    };
    match reread::of_manifest_unless_gone(store, folder, &json, error).await {
        None => Ok(FolderState::WithoutManifest),
        Some(error) => judged(Some(reread::of_length(store, &data, length, error).await)),
    }
}

/// Judges an error: two equal readings condemn the snapshot, any other error proves nothing. `None`: a removal has
/// started and has deleted the manifest first.
fn judged(error: Option<Error>) -> Result<FolderState> {
    let Some(error) = error else { return Ok(FolderState::WithoutManifest) };
    if error.is_archived() {
        return Ok(FolderState::Archived(error));
    }
    match error.class() {
        ExitClass::Corrupt | ExitClass::Config | ExitClass::NotFound => Ok(FolderState::Broken(error)),
        _ => Err(error),
    }
}
