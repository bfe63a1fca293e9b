//! Place and Secrets with which the agent reads an `EtcdSnapshot` after its `EtcdBackupStore` was edited.
//!
//! Decides the Secrets. The place stands in the snapshot's status, and never changes (I7). While the store is still at that
//! place, the agent uses the Secrets that the store names now, so that a renamed Secret does not cost the backup. A store that was
//! moved or deleted has no Secrets for that place, and Holdfast sends no credentials of another place. Then the agent
//! uses the Secrets in the snapshot's status, or those of the attempt that is under way.

use holdfast_api::backup_store::{Right, StoreRecord};
use holdfast_api::condition::Reason;
use holdfast_api::restore::Restoring;
use holdfast_api::store::{AzureLocation, GcsLocation, Location, S3Location};

use super::Observed;
use holdfast_base::{Seen, Waiting, store_identity};

/// Returns the place with these Secrets. The result of a probe does not matter: the sha256 identifies the snapshot.
pub(super) fn saved_at(
    seen: &Observed,
    record: &StoreRecord,
    under_way: Option<&Restoring>,
    key: &str,
) -> Result<Option<Location>, Waiting> {
    let Some(was) = record.location(Right::Read) else { return Ok(None) };
    let there = |location: &Location| store_identity::place_of(location) == store_identity::place_of(&was);
    let now = match &seen.store {
        Some(Seen::Unknown(why)) => {
            let message = format!("the EtcdBackupStore {} cannot be read: {why}", record.name);
            return Err(Waiting { reason: Reason::WaitingForReference, message });
        }
        Some(Seen::Known(store)) => store.as_ref().and_then(|store| store.record().location(Right::Read)).filter(there),
        None => None,
    };
    if let Some(now) = now {
        return Ok(Some(reached_as(was, now)));
    }
    let in_progress =
        under_way.filter(|old| old.source.key == key).and_then(|old| old.source.place.location()).filter(there);
    Ok(in_progress.or(Some(was)))
}

/// Returns the place with the Secrets of `now`. The options that describe the stored data stay.
fn reached_as(place: Location, now: Location) -> Location {
    match (place, now) {
        (Location::S3(place), Location::S3(S3Location { ca_ref, credentials_secret_ref, .. })) => {
            Location::S3(S3Location { ca_ref, credentials_secret_ref, ..place })
        }
        (Location::Azure(place), Location::Azure(AzureLocation { ca_ref, credentials_secret_ref, .. })) => {
            Location::Azure(AzureLocation { ca_ref, credentials_secret_ref, ..place })
        }
        (Location::Gcs(place), Location::Gcs(GcsLocation { ca_ref, credentials_secret_ref, .. })) => {
            Location::Gcs(GcsLocation { ca_ref, credentials_secret_ref, ..place })
        }
        (place, _) => place,
    }
}
