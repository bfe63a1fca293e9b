//! Identity of a store: the store ID that a probe found at the store's root, latched for its place (I25).
//!
//! Decides what the status remembers and which store ID the next probe expects. Credentials are no part of a place: the store
//! ID reveals that other credentials lead to another account's bucket with the same name. The agent decides what follows from
//! another store ID.

use holdfast_api::backup_store::{Identity, Probe};
use holdfast_api::store::{AzureLocation, GcsLocation, Location, PvcLocation, S3Location};
use holdfast_api::{EtcdBackupStore, key};
use holdfast_contract::{NEW_STORE, is_store_id};

use crate::fingerprint;

/// Returns the identity of the store at the spec's current place; the identity of another place does not count.
pub fn known(store: &EtcdBackupStore) -> Option<&Identity> {
    let here = place(store);
    store.status.as_ref()?.identity.as_ref().filter(|identity| Some(&identity.place) == here.as_ref())
}

/// Returns the store ID in the user's annotation.
pub fn accepted_id(store: &EtcdBackupStore) -> Option<&String> {
    store.metadata.annotations.as_ref()?.get(key::ACCEPT_STORE)
}

/// Returns the store ID that the user accepts in place of the known store ID, once. A used annotation would otherwise accept
/// the next exchange too.
pub fn accepts(store: &EtcdBackupStore) -> Option<&String> {
    let spent = known(store)?.accepted.as_ref();
    accepted_id(store).filter(|id| Some(*id) != spent && (*id == NEW_STORE || is_store_id(id)))
}

/// Returns the identity after a probe: the store ID of a usable store. Any other result keeps the known identity.
pub fn after(store: &EtcdBackupStore, found: Option<&Probe>) -> Option<Identity> {
    let accepted = accepted_id(store).cloned();
    let store_id = found.filter(|probe| probe.usable).and_then(|probe| probe.store_id.clone());
    if let (Some(id), Some(place)) = (store_id, place(store)) {
        return Some(Identity { id, place, accepted });
    }
    let old = store.status.as_ref()?.identity.clone()?;
    // After the user removed the annotation, the same store ID may be accepted again.
    Some(Identity { accepted: old.accepted.filter(|spent| Some(spent) == accepted.as_ref()), ..old })
}

/// Fingerprint of the spec's place: the address, without protocol settings and Secrets.
pub fn place(store: &EtcdBackupStore) -> Option<String> {
    Some(place_of(&store.spec.place.location()?))
}

/// Fingerprint of a location.
pub fn place_of(location: &Location) -> String {
    let parts = match location {
        Location::S3(S3Location { bucket, prefix, endpoint, region, .. }) => {
            vec!["s3", bucket, text(prefix.as_ref()), text(endpoint.as_ref()), text(region.as_ref())]
        }
        Location::Azure(AzureLocation { account, container, prefix, endpoint, .. }) => {
            vec!["azure", text(account.as_ref()), container, text(prefix.as_ref()), text(endpoint.as_ref())]
        }
        Location::Gcs(GcsLocation { bucket, prefix, endpoint, .. }) => {
            vec!["gcs", bucket, text(prefix.as_ref()), text(endpoint.as_ref())]
        }
        Location::Pvc(PvcLocation { claim_name, sub_path }) => vec!["pvc", claim_name, text(sub_path.as_ref())],
    };
    fingerprint::hash_parts(parts)
}

fn text(field: Option<&String>) -> &str {
    field.map(String::as_str).unwrap_or_default()
}
