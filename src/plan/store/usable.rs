//! Whether a store may be used by a snapshot or a restore.
//!
//! Decides it from the store's own condition, for the spec as it is now. Everything else is waited for: that a snapshot was
//! applied before its store, or that a bucket is missing, is no failure of the snapshot.

use super::identity;
use crate::api::EtcdBackupStore;
use crate::api::backup_store::StoreRecord;
use crate::api::condition::{Reason, Type};
use crate::plan::meta;

/// The store of this name as it is now, or why it cannot be used yet.
pub fn usable(name: &str, store: Option<&EtcdBackupStore>) -> Result<StoreRecord, (Reason, String)> {
    let wait = |reason, why: String| Err((reason, why));
    let Some(store) = store else {
        return wait(Reason::WaitingForReference, format!("there is no EtcdBackupStore {name} in this namespace yet"));
    };
    if meta::deleting(&store.metadata) {
        return wait(Reason::WaitingForReference, format!("EtcdBackupStore {name} is being deleted"));
    }
    let conditions = store.status.iter().flat_map(|s| &s.conditions);
    let ready = conditions.into_iter().find(|c| c.type_ == Type::Ready.as_str());
    match ready {
        // What was found out about another spec says nothing of this one.
        Some(ready) if ready.observed_generation != store.metadata.generation => wait(
            Reason::WaitingForStore,
            format!("EtcdBackupStore {name} was changed, and Holdfast has not probed the new spec yet"),
        ),
        Some(ready) if ready.status == "True" => {
            Ok(StoreRecord { id: identity::known(store).map(|known| known.id.clone()), ..store.record() })
        }
        Some(ready) => wait(
            Reason::WaitingForStore,
            format!("EtcdBackupStore {name} is not ready ({}): {}", ready.reason, ready.message),
        ),
        None => wait(Reason::WaitingForStore, format!("EtcdBackupStore {name} has not been probed yet")),
    }
}
