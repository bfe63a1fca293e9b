//! Options and Pod with which the agent reads stored data: for the search of the latest snapshot and for the restore.

use holdfast_api::agent::Agent;
use holdfast_api::restore::Restore;
use holdfast_api::store::{Location, S3Location, S3Sse};
use holdfast_api::timeline::FIRST;

use super::Observed;

/// Returns the location without the options that matter only for writing: storage class, tags, locks, checksums and the
/// store's own encryption.
pub(super) fn readers(location: Location) -> Location {
    match location {
        Location::S3(s3) => {
            let sse = s3.sse.filter(|sse| sse.kind == S3Sse::Customer);
            // With a customer's key the agent takes no checksum in any case.
            let checksum = s3.checksum.filter(|_| sse.is_some());
            Location::S3(S3Location { sse, checksum, storage_class: None, tags: vec![], object_lock: None, ..s3 })
        }
        other @ (Location::Azure(_) | Location::Gcs(_) | Location::Pvc(_)) => other,
    }
}

/// Returns the spec's settings of the Pods that search for a snapshot and restore it.
pub(super) fn agent(seen: &Observed) -> Option<&Agent> {
    asked(seen)?.agent.as_ref().filter(|agent| **agent != Agent::default())
}

/// Returns the restore that is asked for: of a cluster that has formed, `spec.from` of its EtcdRestore, else `spec.bootstrap.restore`.
pub(super) fn asked(seen: &Observed) -> Option<&Restore> {
    if seen.latches().formed.is_some() || seen.timeline() > FIRST {
        return seen.returns.as_ref().and_then(|restore| restore.spec.from.as_ref());
    }
    seen.cluster.spec.bootstrap.as_ref()?.restore.as_ref()
}
