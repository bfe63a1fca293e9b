//! Records of runs beyond the limits of the spec.
//!
//! Decides which EtcdSnapshot goes next. The store keeps the snapshot of a complete run: an EtcdSnapshot with `deletionPolicy: Retain`
//! takes nothing along. A run's Job must be gone, or the next pass would record the run again.

use holdfast_api::snapshot::{DeletionPolicy, Phase};
use jiff::Timestamp;

use super::Observed;
use super::facts::Run;
use holdfast_base::restores::is_read;
use holdfast_base::{Act, Target, meta};

/// Returns the deletion of the oldest record beyond a limit. `recalled`: up to this time all runs are recorded, and a missing record
/// is no gap.
pub(super) fn next(seen: &Observed, runs: &[Run<'_>], recalled: Option<Timestamp>) -> Option<Act> {
    let spec = &seen.schedule.spec;
    let failed = beyond(runs, Phase::Failed, spec.failed_limit());
    let complete = beyond(runs, Phase::Complete, spec.successful_limit());
    let gone = |run: &&&Run<'_>| {
        let stands = seen.jobs.iter().any(|job| meta::uid(&job.metadata) == run.job.uid);
        !stands && !meta::deleting(&run.snapshot.metadata)
    };
    let delete = |run: &Run<'_>, field: &str, limit: usize, beyond: usize| {
        let why = format!("{beyond} more than spec.{field} ({limit}) record such runs");
        Some(Act::DeleteRecord { snapshot: Target::from(&run.snapshot.metadata), removed: None, why })
    };
    if let Some(one) = failed.iter().find(gone) {
        return delete(one, "failedHistoryLimit", spec.failed_limit(), failed.len());
    }
    let spare = |run: &&&Run<'_>| recalled.is_some_and(|through| run.at <= through) && may_go(seen, run);
    let one = complete.iter().filter(gone).find(spare)?;
    delete(one, "successfulHistoryLimit", spec.successful_limit(), complete.len())
}

/// Returns the oldest runs of a phase beyond the limit.
fn beyond<'a>(runs: &'a [Run<'a>], phase: Phase, limit: usize) -> Vec<&'a Run<'a>> {
    let mut all: Vec<&Run<'_>> = runs.iter().filter(|run| run.phase() == phase).collect();
    all.truncate(all.len().saturating_sub(limit));
    all
}

/// Whether the record of a complete run is no more than a record: no person holds it, no restore names it, and its deletion takes no
/// stored snapshot along.
fn may_go(seen: &Observed, run: &Run<'_>) -> bool {
    let spec = &run.snapshot.spec;
    let key = run.snapshot.status.as_ref().and_then(|status| status.artifact.as_ref()).map(|it| &it.key);
    let restored = key.is_none_or(|key| is_read(&seen.restores, key));
    !spec.hold && spec.deletion_policy == DeletionPolicy::Retain && !restored
}
