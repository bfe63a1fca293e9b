//! Fills the `Observed` of each kind from caches, live reads and etcd. Decides nothing.

mod acceptance;
pub(super) mod backup_store;
mod certificates;
pub(super) mod cluster;
mod growth;
pub(super) mod member;
pub(super) mod restore;
mod restores;
pub(super) mod schedule;
pub(super) mod snapshot;
mod source;
mod successor;
pub(super) mod user;

use kube::ResourceExt;

pub(super) use certificates::cert_manager;

/// Whether an object has an owner of this UID.
pub(super) fn owned_by<K: ResourceExt>(object: &K, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == uid)
}

/// Whether an object has this label.
fn labelled<K: ResourceExt>(object: &K, key: &str, value: &str) -> bool {
    object.labels().get(key).is_some_and(|there| there == value)
}
