//! A Job that runs on after its snapshot has a final status: another container of its Pod, added by a service mesh or an admission
//! policy, runs on after the agent, or the Job waits for a subject that is gone.
//!
//! Decides when the operator deletes such a Job. The status has the Job's result by then, and the rest of the Pod does not
//! concern Holdfast. Without the deletion a schedule's Job lives to its deadline, and the CronJob starts no other run until
//! then.

use holdfast_api::condition::Reason;
use holdfast_api::snapshot::Phase;
use jiff::{SignedDuration, Timestamp};

use super::{Observed, subject};
use holdfast_base::jobs::{self, over};
use holdfast_base::{Act, Next, Target, Wake, meta, pods};

/// Time for a sidecar to end by itself, which takes seconds.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// Returns the next step for the Job of a snapshot with a final status; `None`: the Pod has ended, or the agent has not.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    let status = seen.snapshot.status.as_ref().filter(|status| status.phase.is_final())?;
    let job = seen.job.as_ref().filter(|job| seen.owns(job) && !over(job) && !meta::deleting(&job.metadata))?;
    let waits = || status.held_up.as_ref().is_some_and(|held| held.reason == Reason::WaitingForReference.as_str());
    let is_gone = status.phase == Phase::Failed && (waits() || subject::cluster(seen).is_some());
    if is_gone && !seen.pods.iter().any(subject::runs) {
        let why = "its snapshot has failed: what the Job waits for is gone".to_owned();
        return Some(Next::act(Act::DeleteJob { job: Target::from(&job.metadata), why }));
    }
    let pod = seen.pods.last().filter(|pod| !pods::ended(pod) && !meta::deleting(&pod.metadata))?;
    let ended = jobs::end(pod)?.finished_at.as_ref()?.0;
    Some(match Wake::at(ended + ENDS_WITHIN, now) {
        Some(later) => Next::Settled(later),
        None => Next::act(Act::DeleteJob {
            job: Target::from(&job.metadata),
            why: format!(
                "the agent ended at {ended}, its result is recorded, and another container of the Pod {} runs on",
                meta::name(&pod.metadata)
            ),
        }),
    })
}
