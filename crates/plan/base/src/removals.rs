//! Removals of stored snapshots: by a run of a schedule, and with the `EtcdSnapshot`.
//!
//! Decides how long a run may remove objects, and which snapshots the run endangers.

use holdfast_api::schedule::PruneRun;
use jiff::{SignedDuration, Timestamp};

use crate::restores::is_within;
use crate::stored_key::attempt_of;

/// Time after the latch from which the agent removes nothing, by the agent's clock, however late its Pod starts.
pub const REMOVES_FOR: SignedDuration = SignedDuration::from_mins(30);

/// How long after the latch a restore waits: a removal that has started ends by then, and clocks differ. The limit frees the
/// restore from a Pod on a silent node.
const OVER_AFTER: SignedDuration = SignedDuration::from_mins(40);

/// A latch further in the future does not come from Holdfast.
const MOST_AHEAD: SignedDuration = SignedDuration::from_mins(15);

/// How long a deletion waits for the removal, counted from the deletion or from the end of the save.
pub const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// Whether a run may still remove objects.
pub fn may_remove(run: &PruneRun, now: Timestamp) -> bool {
    run.latched_at.parse::<Timestamp>().is_ok_and(|at| now < at + OVER_AFTER && at < now + MOST_AHEAD)
}

/// Whether a run may remove this snapshot, or a snapshot of this lineage.
pub fn endangers(run: &PruneRun, key: &str) -> bool {
    let key = attempt_of(key);
    let touches = is_within(&key, &run.lineage) || is_within(&run.lineage, &key);
    let protects = run.protects.as_ref().is_some_and(|protects| protects.contains(&key));
    touches && !protects
}
