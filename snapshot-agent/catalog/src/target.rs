//! A snapshot to remove: its folder, and the facts from its judgement.
//!
//! This file decides nothing: `verbs/` decides which snapshots to remove, `removal.rs` whether a snapshot is still the judged
//! snapshot.

use holdfast_layout::{Folder, Key};

use crate::announced::Named;

/// A snapshot to remove.
#[derive(Clone, Debug)]
pub struct Target {
    /// The snapshot's folder.
    pub folder: Folder,
    /// The snapshot, as it was judged.
    pub named: Named,
    /// Its data object.
    pub data: Key,
    /// ID of the store.
    pub store_id: Option<String>,
}

impl Target {
    /// Returns `None` if the data's name is not that of a data object.
    pub fn locate(folder: Folder, named: Named, store_id: Option<&str>) -> Option<Self> {
        let data = named.data(&folder)?;
        Some(Self { folder, named, data, store_id: store_id.map(str::to_owned) })
    }
}
