//! A Job whose agent has ended while another container of its Pod runs on, added by a service mesh or an admission policy.
//!
//! Decides when the operator deletes such a Job. The status has the Job's result by then, and the rest of the Pod does not
//! concern Holdfast. Without the deletion a schedule's Job lives to its deadline, and the CronJob starts no other run until
//! then.

use jiff::{SignedDuration, Timestamp};

use super::Observed;
use crate::jobs::{self, over};
use crate::{Act, Next, Target, Wake, meta, pods};

/// Time for a sidecar to end by itself, which takes seconds.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// Returns the next step for the Job of a snapshot with a final status; `None`: the Pod has ended, or the agent has not.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    seen.snapshot.status.as_ref().filter(|status| status.phase.is_final())?;
    let job = seen.job.as_ref().filter(|job| seen.owns(job) && !over(job) && !meta::deleting(&job.metadata))?;
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
