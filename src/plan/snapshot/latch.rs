//! What a snapshot's own object says of the removal of what it stored.
//!
//! Decides whether the stored snapshot goes along, and until when a restore waits for a latched removal. What is done next is
//! `removal.rs`'s.

use jiff::{SignedDuration, Timestamp};

use crate::api::schedule::PruneRun;
use crate::api::snapshot::{DeletionPolicy, Removal};
use crate::api::{ARTIFACT_FINALIZER, EtcdSnapshot};
use crate::plan::schedule::{attempt_of, may_remove};

/// So long a deletion waits for the removal, from the deletion or the end of the save on.
pub(in crate::plan) const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// Whether the deletion of this object waits for something of ours.
pub fn holds(snapshot: &EtcdSnapshot) -> bool {
    snapshot.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == ARTIFACT_FINALIZER)
}

/// Whether the stored snapshot is to go with this object.
pub(in crate::plan) fn goes_along(snapshot: &EtcdSnapshot) -> bool {
    snapshot.spec.deletion_policy == DeletionPolicy::Delete && snapshot.spec.run.is_none()
}

/// The removal that a snapshot is latched for, for the restores that look.
pub fn live_removal(snapshot: &EtcdSnapshot, now: Timestamp) -> Option<PruneRun> {
    let status = snapshot.status.as_ref()?;
    let run = endangered(status.removal.as_ref()?, &status.artifact.as_ref()?.key);
    may_remove(&run, now).then_some(run)
}

/// The removal as restores know such runs: of this one folder.
pub(super) fn endangered(removal: &Removal, key: &str) -> PruneRun {
    let Removal { job, latched_at } = removal.clone();
    PruneRun { job, latched_at, lineage: attempt_of(key), ..PruneRun::default() }
}
