//! Finds the check of a log at a revision: the HashKV that a member had there.

use holdfast_contract::error::{Error, Result};
use holdfast_contract::hex_id;
use holdfast_layout::{Folder, check_key, check_revision};
use holdfast_store::Store;

use super::{Check, MAX_BYTES, MAX_OBJECTS};

/// Returns a check of this etcd cluster at this revision; `None`: no member was asked there.
pub async fn find_check(store: &Store, log: &Folder, revision: i64, cluster_id: u64) -> Result<Option<Check>> {
    let any = check_key(log, revision, "any").map_err(|error| holdfast_store::layout(&error))?;
    let folder = any.folder();
    for name in store.objects(folder, MAX_OBJECTS).await? {
        if check_revision(&format!("{}/{name}", folder.name())) != Some(revision) {
            continue;
        }
        let key = folder.object(&name).map_err(|error| holdfast_store::layout(&error))?;
        let json = store.get_small(&key, MAX_BYTES).await?;
        let check: Check = serde_json::from_slice(&json)
            .map_err(|_| Error::corrupt(format!("{} is no check of a log", store.uri(&key))))?;
        if check.cluster_id == hex_id(cluster_id) {
            return Ok(Some(check));
        }
    }
    Ok(None)
}
