//! The store of a snapshot.
//!
//! Decides only the place; `job.rs` decides the request. The operator resolves an `EtcdBackupStore` once, at the first Job:
//! afterwards the record in the status, or on a Job, is the snapshot's place (I7).

use std::collections::BTreeSet;

use holdfast_api::EtcdSnapshot;
use holdfast_api::backup_store::{Right, StoreRecord};
use holdfast_api::condition::Reason;
use holdfast_api::key;
use holdfast_api::store::Location;
use k8s_openapi::api::batch::v1::Job;

use super::Observed;
use crate::store;
use holdfast_base::meta;

/// Names of the Secrets in the spec that the agent's Pod mounts. The store's plan checks the Secrets of an `EtcdBackupStore`.
pub fn secrets(snapshot: &EtcdSnapshot) -> BTreeSet<String> {
    let location = snapshot.spec.template.destination.place.location();
    let external = snapshot.spec.external.iter().flat_map(|etcd| [&etcd.tls_secret_ref, &etcd.auth_secret_ref]);
    let external = external.flatten().map(|secret| secret.name.as_str());
    location.iter().flat_map(Location::secrets).chain(external).map(str::to_owned).collect()
}

/// A place and its origin.
pub(super) struct Place {
    /// The place.
    pub(super) location: Location,
    /// The `EtcdBackupStore` of the place.
    pub(super) record: Option<StoreRecord>,
}

/// Returns the place, or why the place is unknown.
pub(super) fn resolve(seen: &Observed, right: Right) -> Result<Place, (Reason, String)> {
    let destination = &seen.snapshot.spec.template.destination;
    let wrong = || {
        let message = "spec.destination: needs exactly one of storeRef, s3, azure, gcs and pvc";
        (Reason::InvalidSpec, message.to_owned())
    };
    let Some(named) = &destination.store_ref else {
        let location = destination.place.location().ok_or_else(wrong)?;
        return Ok(Place { location, record: None });
    };
    let record = match recorded(seen) {
        Some(record) => record,
        None => store::usable(&named.name, seen.store.as_ref())?,
    };
    let location = record.location(right).ok_or_else(wrong)?;
    Ok(Place { location, record: Some(record) })
}

/// Returns the store as recorded at the first Job.
pub(super) fn recorded(seen: &Observed) -> Option<StoreRecord> {
    let recorded = seen.snapshot.status.as_ref().and_then(|s| s.store.clone());
    // A Job of another owner under the same name is no record.
    let own = |job: &&Job| meta::controlled_by(&job.metadata, meta::uid(&seen.snapshot.metadata));
    let saves = seen.job.iter().filter(|job| seen.owns(job));
    let jobs = saves.chain(seen.inspections.iter().map(|one| &one.job).filter(own));
    recorded.or_else(|| jobs.into_iter().find_map(on))
}

/// Returns the store in the Job's annotation.
pub(super) fn on(job: &Job) -> Option<StoreRecord> {
    serde_json::from_str(meta::annotation(&job.metadata, key::STORE_RECORD)?).ok()
}
