//! Which store this is: the mark that a probe found at its root, latched for the place where it was found (I25).
//!
//! Decides what is remembered and what is expected next. Credentials are no part of a place: that other ones lead to
//! another account's bucket of the same name is what a mark is for. What follows from another mark is the agent's to say.

use snapshot_agent::contract::{NEW_STORE, is_store_id};

use crate::api::backup_store::{Identity, Probe};
use crate::api::store::{AzureLocation, GcsLocation, Location, PvcLocation, S3Location};
use crate::api::{EtcdBackupStore, key};
use crate::plan::fingerprint;

/// What is known of the store at the place that the spec says now; what was known of another place says nothing.
pub fn known(store: &EtcdBackupStore) -> Option<&Identity> {
    let here = place(store);
    store.status.as_ref()?.identity.as_ref().filter(|identity| Some(&identity.place) == here.as_ref())
}

/// What a person has said that is to be accepted.
pub(super) fn said(store: &EtcdBackupStore) -> Option<&String> {
    store.metadata.annotations.as_ref()?.get(key::ACCEPT_STORE)
}

/// What is accepted in the place of what is known: what a person says now, once. A word that has had its effect would
/// otherwise accept the next exchange too.
pub(super) fn accepts(store: &EtcdBackupStore) -> Option<&String> {
    let spent = known(store)?.accepted.as_ref();
    said(store).filter(|said| Some(*said) != spent && (*said == NEW_STORE || is_store_id(said)))
}

/// What is known after this was found: the mark of a usable store. Everything else changes nothing.
pub(super) fn after(store: &EtcdBackupStore, found: Option<&Probe>) -> Option<Identity> {
    let said = said(store).cloned();
    let mark = found.filter(|probe| probe.usable).and_then(|probe| probe.store_id.clone());
    if let (Some(id), Some(place)) = (mark, place(store)) {
        return Some(Identity { id, place, accepted: said });
    }
    let old = store.status.as_ref()?.identity.clone()?;
    // Taken away, it may be said again.
    Some(Identity { accepted: old.accepted.filter(|spent| Some(spent) == said.as_ref()), ..old })
}

/// Stands for the place that the spec says: what leads there, not how it is spoken to, and no Secret.
pub fn place(store: &EtcdBackupStore) -> Option<String> {
    Some(place_of(&store.spec.place.location()?))
}

/// The same for a location.
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
    fingerprint::of(parts)
}

fn text(field: Option<&String>) -> &str {
    field.map(String::as_str).unwrap_or_default()
}
