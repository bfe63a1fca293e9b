//! One snapshot that may go: its folder, and what a judgement read of it.
//!
//! It decides nothing: whether the snapshot goes is decided in `verbs/`, whether it still is what was judged in `removal.rs`.

use crate::catalog::announced::Named;
use crate::format::layout::{Folder, Key};

/// One snapshot that may go.
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
    /// `None`: the data's name is none of a data object's.
    pub(crate) fn of(folder: Folder, named: Named, store_id: Option<&str>) -> Option<Self> {
        let data = named.data(&folder)?;
        Some(Self { folder, named, data, store_id: store_id.map(str::to_owned) })
    }
}
