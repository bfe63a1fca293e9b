//! One folder of a store: whether it is a complete snapshot, by its manifest and the size of its data.
//!
//! It decides what a folder is. Which folders are looked at, and what is made of it, is for `inspect` and `list`.

use crate::contract::ExitClass;
use crate::error::{Error, Result};
use crate::format::layout::Folder;
use crate::format::manifest::{self, Manifest};
use crate::store::Store;
use crate::util::sha256::Sha256;

/// What one folder is.
#[derive(Debug)]
pub(crate) enum Looked {
    /// Manifest and data are there, and fit each other; with the sha256 of the manifest's file.
    Complete(Box<Manifest>, [u8; 32]),
    /// A save that has not ended, or never will.
    WithoutManifest,
    /// The manifest is not one that was asked for.
    Unwanted,
    /// Something is there and cannot be right.
    Broken(Error),
}

/// Looks at one folder. `Err`: the store could not be asked, so nothing is known.
pub(crate) async fn look(store: &Store, folder: &Folder, wanted: impl Fn(&Manifest) -> bool) -> Result<Looked> {
    let at = folder.manifest();
    let json = match store.get_small(&at, manifest::MAX_BYTES).await {
        Ok(json) => json,
        Err(error) if error.class() == ExitClass::NotFound => return Ok(Looked::WithoutManifest),
        Err(error) if error.class() == ExitClass::Corrupt => return Ok(Looked::Broken(error)),
        Err(error) => return Err(error),
    };
    let manifest = match Manifest::parse(&json) {
        Ok(manifest) => manifest,
        Err(error) => return Ok(Looked::Broken(error.context(store.uri(&at)))),
    };
    if !wanted(&manifest) {
        return Ok(Looked::Unwanted);
    }
    let data = folder.data(manifest.format());
    Ok(match store.stat(&data).await {
        Ok(stat) if stat.bytes == manifest.stored_bytes => Looked::Complete(Box::new(manifest), Sha256::digest(&json)),
        Ok(stat) => Looked::Broken(Error::corrupt(format!(
            "{} has {} bytes, its manifest says {}: the object was cut or replaced",
            store.uri(&data),
            stat.bytes,
            manifest.stored_bytes
        ))),
        Err(error) if error.class() == ExitClass::NotFound => {
            Looked::Broken(error.context("the manifest exists and its data does not"))
        }
        Err(error) => return Err(error),
    })
}
