//! Which store a snapshot goes to, or is in.
//!
//! Decides the place alone; what is done there is `job.rs`'s.

use super::Observed;
use crate::api::condition::Reason;
use crate::api::store::Location;

/// The place, or why it is not known.
pub(super) fn of(seen: &Observed) -> Result<Location, (Reason, String)> {
    seen.snapshot.spec.destination.place.location().ok_or_else(|| {
        (Reason::InvalidSpec, "spec.destination: needs exactly one of s3, azure, gcs and pvc".to_owned())
    })
}
