//! How an `EtcdSnapshot` is read whose `EtcdBackupStore` may have been edited since.
//!
//! Decides with which Secrets; the place is where it was saved, and never changes (I7). The Secrets are those that the store
//! names now, as long as it is at that place: one that was renamed must not cost the backup. A store that was moved, or is
//! gone, says nothing of that place, and the credentials of another place are never shown to it. There the Secrets are those
//! of then, or of the attempt that is under way.

use super::Observed;
use crate::api::backup_store::{Right, StoreRecord};
use crate::api::condition::Reason;
use crate::api::restore::Restoring;
use crate::api::store::{AzureLocation, GcsLocation, Location, S3Location};
use crate::plan::{Seen, Waiting, store};

/// Where it was saved, with those Secrets. Whether a probe has found them good does not matter: a hash says what is meant.
pub(super) fn saved_at(
    seen: &Observed,
    record: &StoreRecord,
    under_way: Option<&Restoring>,
    key: &str,
) -> Result<Option<Location>, Waiting> {
    let Some(was) = record.location(Right::Read) else { return Ok(None) };
    let there = |location: &Location| store::place_of(location) == store::place_of(&was);
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
    let begun = under_way.filter(|old| old.source.key == key).and_then(|old| old.source.place.location()).filter(there);
    Ok(begun.or(Some(was)))
}

/// The place with other Secrets. How what is stored there was written stays.
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
