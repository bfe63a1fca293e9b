//! A Job whose agent has ended while another container of its Pod runs on: a service mesh or a policy has added the container.
//!
//! Decides when such a Job is deleted. Its result is recorded by then, and nothing else of the Pod concerns Holdfast. Without this
//! the Job of a schedule lives to its deadline, and the CronJob starts no other run meanwhile.

use jiff::{SignedDuration, Timestamp};

use super::Observed;
use crate::plan::jobs::{self, over};
use crate::plan::{Act, Next, Target, Wake, meta, pods};

/// A sidecar that ends by itself does so within seconds.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// What to do about the Job of a snapshot with a final status; `None` where its Pod has ended, or the agent has not.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    seen.snapshot.status.as_ref().filter(|status| status.phase.is_final())?;
    let job = seen.job.as_ref().filter(|job| seen.owns(job) && !over(job) && !meta::deleting(&job.metadata))?;
    let pod = seen.pods.last().filter(|pod| !pods::ended(pod) && !meta::deleting(&pod.metadata))?;
    let ended = jobs::end(pod)?.finished_at.as_ref()?.0;
    Some(match Wake::at(ended + ENDS_WITHIN, now) {
        Some(later) => Next::Settled(later),
        None => Next::act(Act::DeleteJob {
            job: Target::of(&job.metadata),
            why: format!(
                "the agent ended at {ended}, its result is recorded, and another container of the Pod {} runs on",
                meta::name(&pod.metadata)
            ),
        }),
    })
}
