//! State of a Job of Holdfast's and its Pods: for snapshots, probes of stores and searches for the latest snapshot.
//!
//! Decides how far a Job is and how it ended. A report of the agent wins over the Job's own conditions. `pod_cause.rs` holds the
//! causes that keep a Pod from running.

use holdfast_contract::{ComparedReport, ExitClass, Failure, Report};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};

pub use super::job_state::JobState;
use holdfast_api::condition::{self, Reason};

use super::pod_cause::PodCause;
use super::{failure, meta, pods};
use crate::objects::job::{self, BACKOFF_LIMIT, COMPARE, CONTAINER, Kind};

/// The watch of Jobs may be ahead of the watch of Pods: for this long after a Job's end the report of a Pod may still arrive.
pub const PATIENCE_MILLIS: u64 = 10_000;

/// The shortest pause before Holdfast asks a store again that gave no answer.
const SOON: SignedDuration = SignedDuration::from_secs(15);
/// The longest pause.
const LATER: SignedDuration = SignedDuration::from_secs(120);

/// The reason of a Job that passed its deadline (Kubernetes: `JobReasonDeadlineExceeded`).
const DEADLINE: &str = "DeadlineExceeded";

/// Returns the state of a Job from the Job and its Pods, oldest first. `refusal`: why the API server refuses its Pod. `before`: the
/// cause in the status for a Pod that did not run; after the Job's deadline kubelet has removed the Pod.
pub fn read(job: &Job, all: &[Pod], refusal: Option<&str>, before: Option<&PodCause>, now: Timestamp) -> JobState {
    if let Some(stored) = all.iter().rev().find_map(stored) {
        return stored;
    }
    if let Some(end) = condition(job, "Complete") {
        let spoke = all.iter().any(|pod| phase(pod) == Some("Succeeded"));
        return if spoke || late(end, now) { JobState::Lost } else { JobState::Settling };
    }
    if let Some(end) = condition(job, "Failed") {
        let counted = job.status.as_ref().and_then(|s| s.failed).unwrap_or_default();
        let ended = all.iter().filter(|pod| pods::ended(pod)).count();
        let spoke = ended == all.len() && i32::try_from(ended).is_ok_and(|ended| ended >= counted.max(1));
        return if spoke || late(end, now) { failed(job, end, all, before) } else { JobState::Settling };
    }
    progress(job, all, refusal, before, now)
}

/// Whether a Job has succeeded or failed.
pub fn over(job: &Job) -> bool {
    last_word(job).is_some()
}

/// Returns the condition that reports a Job's end.
fn last_word(job: &Job) -> Option<&JobCondition> {
    condition(job, "Complete").or_else(|| condition(job, "Failed"))
}

/// Returns the pause before a store is asked again: as long as the store has been failing, between [`SOON`] and [`LATER`].
pub fn pause(since: Timestamp, failed_at: Timestamp) -> SignedDuration {
    failed_at.duration_since(since).clamp(SOON, LATER)
}

/// Returns when a Job was created.
pub fn created(job: &Job) -> Option<Timestamp> {
    job.metadata.creation_timestamp.as_ref().map(|at| at.0)
}

/// Returns when a Job failed.
pub fn ended(job: &Job) -> Option<Timestamp> {
    condition(job, "Failed")?.last_transition_time.as_ref().map(|t| t.0)
}

/// Returns when the Job controller gave a Job up. The controller then deletes the Pods; the Job has failed when they have ended.
pub fn given_up(job: &Job) -> Option<Timestamp> {
    let word = condition(job, "FailureTarget").or_else(|| condition(job, "Failed"))?;
    word.last_transition_time.as_ref().map(|t| t.0)
}

/// Returns when a Job and its Pods ended, as far as known. The Job's condition comes after the end of its last Pod. A Pod's time
/// comes from its node's clock, which may be wrong.
pub fn last_end(job: &Job, all: &[Pod]) -> Option<Timestamp> {
    let over = last_word(job).and_then(|over| over.last_transition_time.as_ref());
    let pods = || all.iter().filter_map(|pod| end(pod)?.finished_at.as_ref()).max();
    over.or_else(pods).map(|t| t.0)
}

/// Whether the agent has run in any of these Pods.
pub fn ran(all: &[Pod]) -> bool {
    let ran = |pod: &Pod, container: &str| {
        let status = pods::status(pod, container);
        let runs = status.and_then(|s| s.state.as_ref()).is_some_and(|s| s.running.is_some());
        runs || status.and_then(pods::last_end).is_some_and(pods::had_started)
    };
    all.iter().any(|pod| [CONTAINER, COMPARE].into_iter().any(|container| ran(pod, container)))
}

/// Returns from when on the last of these Pods counts as silent: kubelet does not report its end. Beside a Job that only reads,
/// another Job may start.
pub fn silent_since(all: &[Pod]) -> Option<Timestamp> {
    pods::lingers_from(all.last()?)
}

/// Returns the cause that a status keeps after this fact. `ran`: whether a Pod of the Job has run. `first`: whether the Job is the
/// first one; later, a Pod that only waits does not replace the cause in the status.
pub fn still_held_up(before: Option<PodCause>, state: &JobState, ran: bool, first: bool) -> Option<PodCause> {
    match state {
        // The same words, so that Holdfast writes nothing while nothing changes (I17).
        JobState::HeldUp(next) => PodCause::after(before, next, first),
        _ if ran => None,
        JobState::Failed { failure, .. } => {
            before.filter(|_| failure.is_some_and(|row| row.class == ExitClass::Deadline))
        }
        JobState::Pending(_) | JobState::Settling => before,
        JobState::Running(_) | JobState::Lost | JobState::Stored { .. } => None,
    }
}

/// Whether a Job passed its deadline without a Pod that ran: such a Job proves nothing about the store, and the cause that held its
/// Pod up stays in the status.
pub fn never_ran(job: &Job, all: &[Pod]) -> bool {
    condition(job, "Failed").is_some_and(|end| end.reason.as_deref() == Some(DEADLINE)) && !ran(all)
}

/// Returns the report of a Pod that stored its snapshot.
fn stored(pod: &Pod) -> Option<JobState> {
    let end = end(pod)?;
    match pods::report(pod, CONTAINER)? {
        Report::Saved(report) if end.exit_code == 0 => {
            Some(JobState::Stored { report, at: end.finished_at.as_ref().map(|t| t.0) })
        }
        Report::Saved(_)
        | Report::Restored(_)
        | Report::Gate(_)
        | Report::Probed(_)
        | Report::Latest(_)
        | Report::Recalled(_)
        | Report::Compared(_)
        | Report::Drilled(_)
        | Report::Surveyed(_)
        | Report::Failed(_) => None,
    }
}

/// Returns the end of the agent's container.
pub fn end(pod: &Pod) -> Option<&ContainerStateTerminated> {
    pods::last_end(pods::status(pod, CONTAINER)?)
}

/// Returns the condition of this type, if its status is True.
fn condition<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    condition::find_with_status(job.status.as_ref()?.conditions.iter().flatten(), kind, "True")
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Whether the report of a Pod does not arrive any more: the Pod is gone.
fn late(end: &JobCondition, now: Timestamp) -> bool {
    let patience = SignedDuration::from_millis(PATIENCE_MILLIS.cast_signed());
    end.last_transition_time.as_ref().is_none_or(|t| now >= t.0 + patience)
}

/// Returns how a Job failed, from its present Pods.
pub fn failure(job: &Job, all: &[Pod], before: Option<&PodCause>) -> Option<JobState> {
    Some(failed(job, condition(job, "Failed")?, all, before))
}

fn failed(job: &Job, end: &JobCondition, all: &[Pod], before: Option<&PodCause>) -> JobState {
    let at = end.last_transition_time.as_ref().map(|t| t.0);
    let last = all.iter().rev().find_map(|pod| explain(pod, job));
    // The Job's deadline explains more than the exit of a killed Pod.
    if end.reason.as_deref() == Some(DEADLINE) {
        let seconds = job.spec.as_ref().and_then(|s| s.active_deadline_seconds).unwrap_or_default();
        let row = Kind::of_job(job).row();
        let began = |held: &PodCause| {
            let name = held.pod.as_deref();
            all.iter().any(|pod| Some(meta::name(&pod.metadata)) == name && ran(std::slice::from_ref(pod)))
        };
        let why = if let Some(held) = before.filter(|held| !began(held)) {
            format!(". Correct the cause of the delay{}: {}", row.then, held.last_words())
        } else {
            let last = last.map(|(_, words)| format!("; its last Pod: {words}")).unwrap_or_default();
            format!("{last}. {}", row.late)
        };
        let message = format!("the Job passed its deadline of {seconds} s{why}");
        return JobState::Failed {
            failure: Some(Failure::for_class(ExitClass::Deadline, None)),
            message,
            at,
            held: None,
        };
    }
    let (failure, message) = last.unwrap_or_else(|| {
        let cause = end.message.as_deref().unwrap_or("no Pod is left that names the cause");
        (None, format!("the Job failed: {cause}"))
    });
    JobState::Failed { failure, message, at, held: None }
}

/// Returns a Pod's failure in words; `None` while the Pod has not failed.
fn explain(pod: &Pod, job: &Job) -> Option<(Option<&'static Failure>, String)> {
    let name = meta::name(&pod.metadata);
    if let Some(compared) = compared(pod) {
        return Some(compared);
    }
    let Some(end) = end(pod) else {
        // For example, kubelet evicted the Pod before the agent ran.
        let why = pod
            .status
            .as_ref()
            .filter(|_| phase(pod) == Some("Failed"))?
            .reason
            .as_deref()
            .unwrap_or("no reason given");
        return Some((None, format!("Pod {name} failed before the agent ran: {why}")));
    };
    if let Some(failed) = pods::failed_report(pod, CONTAINER) {
        return Some((Some(failed.failure()), failed.message));
    }
    if end.reason.as_deref() == Some("OOMKilled") {
        let limit = pods::memory_limit(job::pod_spec(job), CONTAINER).unwrap_or("its node's");
        let remedy = Kind::of_job(job).row().more_memory;
        let message = format!("the agent ran out of memory (limit {limit}): {remedy}");
        return Some((Some(Failure::for_class(ExitClass::Config, None)), message));
    }
    let code = end.exit_code;
    (code != 0).then(|| {
        let message = format!("the agent ended with code {code} and no report; see `kubectl logs {name}`");
        (Failure::for_code(code), message)
    })
}

/// Returns the report of a comparison that found differences.
pub fn differences(pod: &Pod) -> Option<ComparedReport> {
    match pods::report(pod, COMPARE)? {
        Report::Compared(report) if !report.agrees() => Some(report),
        _ => None,
    }
}

/// Returns why the comparison of the members ended the Pod, from its report; `None` where the comparison has not failed.
fn compared(pod: &Pod) -> Option<(Option<&'static Failure>, String)> {
    let end = pods::last_end(pods::status(pod, COMPARE)?).filter(|end| end.exit_code != 0)?;
    let failure = Failure::for_code(end.exit_code);
    if let Some(report) = differences(pod) {
        return Some((Some(Failure::for_class(ExitClass::MembersDiffer, None)), report.sentences().join("; ")));
    }
    if let Some(Report::Failed(failed)) = pods::report_of(end) {
        return Some((Some(failed.failure()), failed.message));
    }
    let (name, code) = (meta::name(&pod.metadata), end.exit_code);
    let why = end.reason.as_deref().unwrap_or("no reason given");
    let message =
        format!("the comparison of the members ended with code {code} ({why}); see `kubectl logs {name} -c {COMPARE}`");
    Some((failure, message))
}

/// Returns the progress of a Job that has not ended. The message has times, never ages, and stays the same while nothing changes
/// (I17).
fn progress(job: &Job, all: &[Pod], refusal: Option<&str>, before: Option<&PodCause>, now: Timestamp) -> JobState {
    let name = meta::name(&job.metadata);
    if meta::deleting(&job.metadata) {
        return JobState::Pending(format!(
            "Job {name} is being deleted before it ended; Holdfast creates another Job afterwards"
        ));
    }
    if job.spec.as_ref().and_then(|s| s.suspend) == Some(true) {
        return JobState::Pending(format!("Job {name} is suspended: set its spec.suspend to false"));
    }
    let Some(pod) = all.last() else {
        if let Some(why) = refusal {
            return JobState::HeldUp(PodCause::job(Reason::WriteRefused, name, why.to_owned()));
        }
        // After the Job's deadline kubelet removes its Pod a moment before the Job reports its end.
        if let Some(last) =
            before.filter(|held| held.pod.is_some() && (held.job == name || held.reason != Reason::NodeSilent))
        {
            return JobState::HeldUp(last.clone());
        }
        let message = format!("if the Pod stays missing, `kubectl describe job {name}` names the cause");
        return JobState::HeldUp(PodCause::job(Reason::JobPending, name, message));
    };
    let earlier = all.iter().rev().find_map(|pod| explain(pod, job));
    let earlier = earlier.map(|(_, words)| format!("; the previous attempt: {words}")).unwrap_or_default();
    // A Pod on a dead node neither ends nor gets a successor, and its Job's own deadline waits for the Pod too (Kubernetes since
    // 1.31: a Job has failed when all of its Pods have ended).
    if pods::lingers(pod, now) && !pods::ended(pod) {
        return JobState::HeldUp(PodCause::pod(Reason::NodeSilent, name, pod, pods::who_holds(pod)));
    }
    let most = job.spec.as_ref().and_then(|s| s.backoff_limit).unwrap_or(BACKOFF_LIMIT) + 1;
    let attempt = format!("attempt {} of {most}", all.len());
    let does = Kind::of_job(job).row().words;
    let running = |container| pods::status(pod, container).and_then(|s| s.state.as_ref()?.running.as_ref());
    let works = running(CONTAINER).map(|running| (running, does));
    if let Some((running, does)) = works.or_else(|| Some((running(COMPARE)?, "compares the members' databases"))) {
        let since = running.started_at.as_ref().map(|t| format!(" since {}", t.0)).unwrap_or_default();
        return JobState::Running(format!("Pod {} {does}{since} ({attempt}){earlier}", meta::name(&pod.metadata)));
    }
    if end(pod).is_some() || pods::ended(pod) {
        return JobState::Running(format!(
            "the Job controller creates the next Pod of Job {name} after a pause ({attempt} is over){earlier}"
        ));
    }
    // During a deletion kubelet reports a container that it never started as being prepared: the earlier cause stays.
    let same =
        |held: &&PodCause| meta::deleting(&pod.metadata) && held.pod.as_deref() == Some(meta::name(&pod.metadata));
    if let Some(stands) = before.filter(same) {
        return JobState::HeldUp(stands.clone());
    }
    let (reason, cause) = match failure::hold_up(pod, None) {
        Some(failure::HoldUp { message, stuck: true, .. }) => (Reason::PodHeldUp, message),
        Some(failure::HoldUp { message, stuck: false, .. }) => (Reason::JobPending, message),
        None => (Reason::JobPending, "kubelet has reported nothing".to_owned()),
    };
    JobState::HeldUp(PodCause::pod(reason, name, pod, format!("{cause} ({attempt}){earlier}")))
}
