//! The removal of one snapshot: its manifest first, so that what is half removed is no snapshot, then its data by its
//! recorded name, then its proofs.
//!
//! It decides what has to hold right before: the manifest is the one that was judged, nobody holds the folder, nothing is
//! locked. A file that is not known stays. Which snapshots go is decided in `verbs/`.

use jiff::Timestamp;

use crate::catalog::begun;
use crate::catalog::inventory::{is_held, is_left};
use crate::catalog::shelf::Shelf;
use crate::catalog::target::Target;
use crate::error::{Error, Result};
use crate::format::layout::MANIFEST;
use crate::format::manifest;
use crate::store;
use crate::store::removal::{File, Lasting};
use crate::util::sha256::Sha256;

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is gone.
    Removed {
        /// Stored bytes that are gone with it.
        bytes: u64,
        /// Files in its folder that are not known, and stay.
        unknown: Vec<String>,
    },
    /// The store locks it.
    Locked(Lasting),
    /// Somebody holds it.
    Held,
    /// It is not what was judged, and why.
    Changed(&'static str),
}

/// Removes a complete snapshot.
pub(crate) async fn remove(shelf: &impl Shelf, target: &Target, now: Timestamp) -> Result<Removal> {
    let Target { folder, named, data, .. } = target;
    let manifest = folder.manifest();
    let Some(small) = shelf.read(&manifest, manifest::MAX_BYTES).await? else {
        return Ok(Removal::Changed("its manifest is gone"));
    };
    if !hex::encode(Sha256::digest(&small.content)).eq_ignore_ascii_case(&named.manifest_sha256) {
        return Ok(Removal::Changed("its manifest is another one"));
    }
    if small.lasting.locks(now) {
        return Ok(Removal::Locked(small.lasting));
    }
    let files = shelf.files(folder).await?;
    if is_held(&files) {
        return Ok(Removal::Held);
    }
    match shelf.lasting(data).await? {
        None => return Ok(Removal::Changed("its data is missing")),
        Some(lasting) if lasting.locks(now) => return Ok(Removal::Locked(lasting)),
        Some(_) => {}
    }
    begun::keep(shelf, target).await?;
    shelf.remove(&manifest).await?;
    if shelf.read(&manifest, manifest::MAX_BYTES).await?.is_some() {
        return Err(Error::transient(format!(
            "{}: the store confirmed the removal and still returns the object. The next run tries again",
            shelf.uri(&manifest)
        )));
    }
    clear(shelf, target, &files).await
}

/// Removes what is left of a snapshot whose removal has begun (`begun.rs`). `None`: nothing is.
pub(crate) async fn finish(shelf: &impl Shelf, target: &Target, now: Timestamp) -> Result<Option<Removal>> {
    let Target { folder, data, .. } = target;
    // In this order: a copy that was at it when its files were listed has its mark or its manifest after that.
    let files = shelf.files(folder).await?;
    if files.iter().any(|file| file.path == MANIFEST) {
        return Ok(Some(Removal::Changed("its manifest exists")));
    }
    if !files.iter().any(is_left) {
        return Ok(None);
    }
    if is_held(&files) {
        return Ok(Some(Removal::Held));
    }
    if shelf.held(folder, now).await?.is_some() {
        return Ok(Some(Removal::Changed("a run may be writing to its folder")));
    }
    if shelf.read(&folder.manifest(), manifest::MAX_BYTES).await?.is_some() {
        return Ok(Some(Removal::Changed("its manifest exists")));
    }
    match shelf.lasting(data).await? {
        Some(lasting) if lasting.locks(now) => Ok(Some(Removal::Locked(lasting))),
        _ => clear(shelf, target, &files).await.map(Some),
    }
}

/// Removes data and proofs, and in the end the record that says so.
async fn clear(shelf: &impl Shelf, target: &Target, files: &[File]) -> Result<Removal> {
    let Target { folder, data, .. } = target;
    let bytes = files.iter().find(|file| file.path == data.name()).map_or(0, |file| file.bytes);
    shelf.remove(data).await?;
    let mut unknown = vec![];
    for file in files.iter().filter(|file| file.path != MANIFEST && file.path != data.name()) {
        match file.proof_name() {
            Some(name) => {
                let proof = folder.proofs().object(name).map_err(|error| store::layout(&error))?;
                shelf.remove(&proof).await?;
            }
            None => unknown.push(format!("{folder}/{}", file.path)),
        }
    }
    shelf.remove(&folder.begun()).await?;
    Ok(Removal::Removed { bytes, unknown })
}
