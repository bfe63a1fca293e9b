//! A snapshot to remove: its folder, and the facts from its judgement.
//!
//! This file decides nothing: `verbs/` decides which snapshots to remove, `removal.rs` whether a snapshot is still the judged
//! snapshot.

use holdfast_layout::{Folder, Key};

use crate::catalog::announced::Named;

/// A snapshot to remove.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) folder: Folder,
    /// The snapshot, as it was judged.
    pub(crate) named: Named,
    /// Its data object.
    pub(crate) data: Key,
    /// ID of the store.
    pub(crate) store_id: Option<String>,
}

impl Target {
    /// Returns `None` if the data's name is not that of a data object.
    pub(crate) fn locate(folder: Folder, named: Named, store_id: Option<&str>) -> Option<Self> {
        let data = named.data(&folder)?;
        Some(Self { folder, named, data, store_id: store_id.map(str::to_owned) })
    }
}
