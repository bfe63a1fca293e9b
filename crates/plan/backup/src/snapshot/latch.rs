//! The latch for the removal of a stored snapshot, in the status of its `EtcdSnapshot`.
//!
//! Decides whether the stored snapshot goes with the object, and until when a restore waits for a latched removal. `removal.rs`
//! decides the next step.

use holdfast_api::schedule::PruneRun;
use holdfast_api::snapshot::{DeletionPolicy, Removal};
use holdfast_api::{ARTIFACT_FINALIZER, EtcdSnapshot};
use jiff::Timestamp;

use holdfast_base::removals::may_remove;
use holdfast_base::stored_key::attempt_of;

/// Whether the object has Holdfast's finalizer.
pub fn holds(snapshot: &EtcdSnapshot) -> bool {
    snapshot.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == ARTIFACT_FINALIZER)
}

/// Whether the stored snapshot goes with this object.
pub(crate) fn goes_along(snapshot: &EtcdSnapshot) -> bool {
    snapshot.spec.deletion_policy == DeletionPolicy::Delete && snapshot.spec.run.is_none()
}

/// Returns the latched removal that a restore must wait for.
pub fn live_removal(snapshot: &EtcdSnapshot, now: Timestamp) -> Option<PruneRun> {
    let status = snapshot.status.as_ref()?;
    let run = endangered(status.removal.as_ref()?, &status.artifact.as_ref()?.key);
    may_remove(&run, now).then_some(run)
}

/// Returns the removal as a prune run of this one folder, the form that restores read.
pub(super) fn endangered(removal: &Removal, key: &str) -> PruneRun {
    let Removal { job, latched_at } = removal.clone();
    PruneRun { job, latched_at, lineage: attempt_of(key), ..PruneRun::default() }
}
