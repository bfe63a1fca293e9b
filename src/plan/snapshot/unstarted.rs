//! Jobs whose agent certainly never ran: the claim, the image or a node was missing until the Job's deadline.
//!
//! Decides when such a Job has stored nothing, so that the snapshot fails without a question to the store. A deleted Pod may
//! have run, unless a pass saw its last state; `doubt.rs` handles every uncertain case.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::doubt::PAUSE;
use super::{Observed, job as asks};
use crate::plan::build::job::CONTAINER;
use crate::plan::fact::Fact;
use crate::plan::held::HeldUp;
use crate::plan::pods::Unstarted;
use crate::plan::{jobs, meta, row};

/// Returns the failure of a Job whose agent never ran. `before`: the status's hold-up of its Pod.
pub(super) fn failure(seen: &Observed, job: &Job, before: Option<&HeldUp>, now: Timestamp) -> Option<Fact> {
    let fact = jobs::failure(job, &seen.pods, before)?;
    if !no_pod_ran(seen, job, now) && !had_no_pod(seen, job) {
        return None;
    }
    Some(match fact {
        Fact::Failed { failure, message, at, held: _ } => Fact::Failed { failure, message, at, held: before.cloned() },
        other => other,
    })
}

/// Whether the Job had a single Pod from its start to its end, and the Pod never ran. The Job counts no Pod that a drain ended:
/// no Pod came before this Pod if this Pod replaced none, and none came after if the Job ended before a replacement.
fn no_pod_ran(seen: &Observed, job: &Job, now: Timestamp) -> bool {
    let gone = seen.unstarted.iter().filter(|gone| seen.pods.iter().all(|pod| meta::name(&pod.metadata) != gone.name));
    let there = seen.pods.iter().map(|pod| Unstarted::of(pod, CONTAINER, now));
    let known: Vec<Option<Unstarted>> = there.chain(gone.cloned().map(Some)).collect();
    let [Some(pod)] = known.as_slice() else { return false };
    let first = jobs::created(job).is_some_and(|job| pod.created < job + PAUSE);
    let last = jobs::given_up(job).is_some_and(|job| job < pod.deleted + PAUSE);
    first && last && ended_pods(job).is_some_and(|counted| counted <= 1)
}

/// Whether the Job never had a Pod: the Job counts none, no pass has seen one, and the status recorded the missing Pod before a
/// replacement was possible.
fn had_no_pod(seen: &Observed, job: &Job) -> bool {
    let held = seen.snapshot.status.as_ref().and_then(|status| status.held_up.as_ref());
    let none = held.filter(|held| held.job == meta::name(&job.metadata) && held.pod.is_none());
    let since = none.and_then(|held| held.since.parse::<Timestamp>().ok());
    let early = since.zip(jobs::created(job)).is_some_and(|(since, made)| since < made + PAUSE);
    let unseen = seen.pods.is_empty() && seen.unstarted.is_empty() && asks::attempts(seen) == row::said(job);
    early && unseen && ended_pods(job) == Some(0)
}

/// Returns the number of ended Pods that the Job counts; `None`: one Pod succeeded.
fn ended_pods(job: &Job) -> Option<usize> {
    let status = job.status.as_ref()?;
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let waiting = |pods: Option<&Vec<String>>| pods.map_or(0, Vec::len);
    let succeeded = uncounted.and_then(|pods| pods.succeeded.as_ref());
    if status.succeeded.unwrap_or_default() > 0 || waiting(succeeded) > 0 {
        return None;
    }
    let failed = usize::try_from(status.failed.unwrap_or_default()).ok()?;
    Some(failed + waiting(uncounted.and_then(|pods| pods.failed.as_ref())))
}
