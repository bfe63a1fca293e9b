//! Whether a snapshot or a restore may use a store.
//!
//! Decides from the store's own condition, for the current spec. Snapshots and restores wait for an unusable store: a store
//! applied after its snapshot, or a missing bucket, is no failure of the snapshot.

use holdfast_api::EtcdBackupStore;
use holdfast_api::backup_store::StoreRecord;
use holdfast_api::condition::{self, Reason, Type};

use crate::{meta, store_identity};

/// Returns the record of the store with this name, or why the store is not usable yet.
pub fn usable(name: &str, store: Option<&EtcdBackupStore>) -> Result<StoreRecord, (Reason, String)> {
    let wait = |reason, why: String| Err((reason, why));
    let Some(store) = store else {
        return wait(Reason::WaitingForReference, format!("there is no EtcdBackupStore {name} in this namespace yet"));
    };
    if meta::deleting(&store.metadata) {
        return wait(Reason::WaitingForReference, format!("EtcdBackupStore {name} is being deleted"));
    }
    let conditions = store.status.iter().flat_map(|s| &s.conditions);
    match condition::find(conditions, Type::Ready) {
        // The condition is about an earlier spec.
        Some(ready) if ready.observed_generation != store.metadata.generation => wait(
            Reason::WaitingForStore,
            format!("EtcdBackupStore {name} was changed, and Holdfast has not probed the new spec yet"),
        ),
        Some(ready) if ready.status == "True" => {
            Ok(StoreRecord { id: store_identity::known(store).map(|known| known.id.clone()), ..store.record() })
        }
        Some(ready) => wait(
            Reason::WaitingForStore,
            format!("EtcdBackupStore {name} is not ready ({}): {}", ready.reason, ready.message),
        ),
        None => wait(Reason::WaitingForStore, format!("EtcdBackupStore {name} has not been probed yet")),
    }
}
