//! The record of a started removal, `<lineage>/prunes/<attempt>.json`: written right before the manifest is removed, and
//! removed after the last file.
//!
//! This file decides which folder without a manifest is a removal to finish. An announcement alone shows only that a snapshot
//! may be removed (I25); a copy or a user may have left the same files since.

use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_layout::{Folder, Key};
use serde::{Deserialize, Serialize};

use crate::announced::Named;
use crate::removable_store::RemovableStore;
use crate::target::Target;

/// Version of the format that this version writes and reads.
const FORMAT_VERSION: u32 = 1;

/// Enough for one key, two hashes and some words.
const MAX_BYTES: u64 = 16 << 10;

/// A started removal. It holds no time, so that a second attempt writes the same bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RemovalRecord {
    format_version: u32,
    /// The store's ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store_id: Option<String>,
    snapshot: Named,
}

/// Records the start of the removal.
pub async fn keep(shelf: &impl RemovableStore, target: &Target) -> Result<()> {
    let (key, store_id, snapshot) = (target.folder.removal_record(), target.store_id.clone(), target.named.clone());
    let json = serde_json::to_vec(&RemovalRecord { format_version: FORMAT_VERSION, store_id, snapshot });
    let json = json.map_err(|error| Error::config(format!("{}: cannot be written: {error}", shelf.uri(&key))))?;
    match shelf.put_new(&key, json.clone().into()).await {
        // Without the record an interrupted removal leaves files: better than a full store that no run can empty.
        Err(full) if full.class() == ExitClass::Full => Ok(()),
        Err(error) if error.class() == ExitClass::Transient && is_other(shelf, &key, &json).await? => {
            shelf.remove(&key).await?;
            shelf.put_new(&key, json.into()).await
        }
        put => put,
    }
}

/// Whether the record is of an earlier removal, after which the snapshot was restored.
async fn is_other(shelf: &impl RemovableStore, key: &Key, json: &[u8]) -> Result<bool> {
    match shelf.read(key, MAX_BYTES).await {
        Ok(small) => Ok(small.is_some_and(|small| small.content != json)),
        Err(error) if error.class() == ExitClass::Corrupt => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns the unfinished removal of this folder's snapshot in this store.
pub async fn find(shelf: &impl RemovableStore, folder: &Folder, store_id: Option<&str>) -> Result<Option<Target>> {
    let small = match shelf.read(&folder.removal_record(), MAX_BYTES).await {
        Ok(small) => small,
        // Too long for a record.
        Err(error) if error.class() == ExitClass::Corrupt => None,
        Err(error) => return Err(error),
    };
    let record = small.and_then(|small| serde_json::from_slice::<RemovalRecord>(&small.content).ok());
    let record = record.filter(|record| {
        record.format_version == FORMAT_VERSION
            && record.store_id.as_deref() == store_id
            && record.snapshot.key == folder.as_str()
    });
    Ok(record.and_then(|record| Target::locate(folder.clone(), record.snapshot, store_id)))
}
