//! Removes one snapshot: its manifest first, so that a half-removed snapshot is no snapshot, then its data by the recorded
//! name, then its proofs.
//!
//! This file decides the conditions right before a removal: the manifest is the judged manifest, the folder has no hold, and
//! nothing is locked. Unknown files stay. `verbs/` decides which snapshots to remove.

use holdfast_contract::error::{Error, Result};
use holdfast_io::sha256::Sha256;
use holdfast_layout::MANIFEST;
use holdfast_layout::manifest;
use holdfast_store::removal::{File, Lasting};
use jiff::Timestamp;

use crate::inventory::{is_held, is_left};
use crate::removable_store::RemovableStore;
use crate::removal_record;
use crate::target::Target;

/// Result of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The snapshot is removed.
    Removed {
        /// Removed stored bytes.
        bytes: u64,
        /// Unknown files in the folder, which stay.
        unknown: Vec<String>,
    },
    /// The store locks the snapshot.
    Locked(Lasting),
    /// The folder has a hold.
    Held,
    /// The snapshot is not the judged snapshot, with the reason.
    Changed(&'static str),
}

/// Removes a complete snapshot.
pub async fn remove(shelf: &impl RemovableStore, target: &Target, now: Timestamp) -> Result<Removal> {
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
    removal_record::keep(shelf, target).await?;
    shelf.remove(&manifest).await?;
    if shelf.read(&manifest, manifest::MAX_BYTES).await?.is_some() {
        return Err(Error::transient(format!(
            "{}: the store confirmed the removal and still returns the object. The next run tries again",
            shelf.uri(&manifest)
        )));
    }
    clear(shelf, target, &files).await
}

/// Finishes a started removal (`removal_record.rs`). `None`: no file is left.
pub async fn finish(shelf: &impl RemovableStore, target: &Target, now: Timestamp) -> Result<Option<Removal>> {
    let Target { folder, data, .. } = target;
    // In this order: a copy that was running at the listing has a lease or a manifest afterwards.
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

/// Removes data and proofs, and last the record of the removal.
async fn clear(shelf: &impl RemovableStore, target: &Target, files: &[File]) -> Result<Removal> {
    let Target { folder, data, .. } = target;
    let bytes = files.iter().find(|file| file.path == data.name()).map_or(0, |file| file.bytes);
    shelf.remove(data).await?;
    let mut unknown = vec![];
    for file in files.iter().filter(|file| file.path != MANIFEST && file.path != data.name()) {
        match file.proof_name() {
            Some(name) => {
                let proof = folder.proofs().object(name).map_err(|error| holdfast_store::layout(&error))?;
                shelf.remove(&proof).await?;
            }
            None => unknown.push(format!("{folder}/{}", file.path)),
        }
    }
    shelf.remove(&folder.removal_record()).await?;
    Ok(Removal::Removed { bytes, unknown })
}
