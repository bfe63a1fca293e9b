//! What a Job of ours and its Pods say: for snapshots, probes of stores and searches for the latest snapshot alike.
//!
//! Decides how far a Job is and how it ended. A report of its work that got through wins over everything the Job says.
//! Causes that keep a Pod from running are values of `held.rs`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use snapshot_agent::contract::{ExitClass, Failure, Report};

pub(in crate::plan) use super::fact::Fact;
use super::held::HeldUp;
use super::{failure, meta, pods};
use crate::api::condition::Reason;
use crate::api::key;
use crate::plan::build::job::{self, BACKOFF_LIMIT, CONTAINER};

/// The watch of Jobs may be ahead of the watch of Pods: so long after a Job's end a Pod's last words may still come.
pub(in crate::plan) const PATIENCE_MILLIS: u64 = 10_000;

/// A store that gave no answer is asked again: soon at first.
const SOON: SignedDuration = SignedDuration::from_secs(15);
/// And later not less often than this.
const LATER: SignedDuration = SignedDuration::from_secs(120);

/// Why a Job was given up whose time was over (Kubernetes: `JobReasonDeadlineExceeded`).
const DEADLINE: &str = "DeadlineExceeded";

/// Reads a Job of ours and its Pods, oldest first. `refusal`: why the API server takes no Pod of it. `before`: what the
/// status keeps of a Pod that did not run; when the Job's time is over, kubelet has removed the Pod.
pub(in crate::plan) fn read(
    job: &Job,
    all: &[Pod],
    refusal: Option<&str>,
    before: Option<&HeldUp>,
    now: Timestamp,
) -> Fact {
    if let Some(stored) = all.iter().rev().find_map(stored) {
        return stored;
    }
    if let Some(end) = condition(job, "Complete") {
        let spoke = all.iter().any(|pod| phase(pod) == Some("Succeeded"));
        return if spoke || late(end, now) { Fact::Lost } else { Fact::Settling };
    }
    if let Some(end) = condition(job, "Failed") {
        let counted = job.status.as_ref().and_then(|s| s.failed).unwrap_or_default();
        let ended = all.iter().filter(|pod| pods::ended(pod)).count();
        let spoke = ended == all.len() && i32::try_from(ended).is_ok_and(|ended| ended >= counted.max(1));
        return if spoke || late(end, now) { failed(job, end, all, before) } else { Fact::Settling };
    }
    progress(job, all, refusal, before, now)
}

/// Whether a Job has ended, well or not.
pub fn over(job: &Job) -> bool {
    last_word(job).is_some()
}

/// The condition that says that a Job has ended.
fn last_word(job: &Job) -> Option<&JobCondition> {
    condition(job, "Complete").or_else(|| condition(job, "Failed"))
}

/// The pause before a store is asked again: as long as it has been failing already, between [`SOON`] and [`LATER`].
pub(in crate::plan) fn pause(since: Timestamp, failed_at: Timestamp) -> SignedDuration {
    failed_at.duration_since(since).clamp(SOON, LATER)
}

/// When a Job was made.
pub(in crate::plan) fn created(job: &Job) -> Option<Timestamp> {
    job.metadata.creation_timestamp.as_ref().map(|at| at.0)
}

/// When a Job failed, if it did.
pub(in crate::plan) fn ended(job: &Job) -> Option<Timestamp> {
    condition(job, "Failed")?.last_transition_time.as_ref().map(|t| t.0)
}

/// When the Job controller gave a Job up: it deletes the Pods then, and the Job has failed when they have ended.
pub(in crate::plan) fn given_up(job: &Job) -> Option<Timestamp> {
    let word = condition(job, "FailureTarget").or_else(|| condition(job, "Failed"))?;
    word.last_transition_time.as_ref().map(|t| t.0)
}

/// When a Job and its Pods ended, as far as that is known. The Job's own word comes after its last Pod's end; a Pod's is of
/// its node's clock, which may be wrong.
pub(in crate::plan) fn last_end(job: &Job, all: &[Pod]) -> Option<Timestamp> {
    let over = last_word(job).and_then(|over| over.last_transition_time.as_ref());
    let pods = || all.iter().filter_map(|pod| end(pod)?.finished_at.as_ref()).max();
    over.or_else(pods).map(|t| t.0)
}

/// Whether the agent has run in one of these Pods.
pub(in crate::plan) fn ran(all: &[Pod]) -> bool {
    let runs = |pod| pods::status(pod, CONTAINER).and_then(|s| s.state.as_ref()).is_some_and(|s| s.running.is_some());
    all.iter().any(|pod| runs(pod) || end(pod).is_some_and(pods::had_begun))
}

/// From when on the last of these Pods has been waited for too long: its node does not say that it has ended. Where it only
/// asks, another one may ask beside it.
pub(in crate::plan) fn silent_since(all: &[Pod]) -> Option<Timestamp> {
    pods::lingers_from(all.last()?)
}

/// The cause that a status keeps after this fact. `ran`: whether a Pod of the Job has run. `first`: whether no Job asked
/// before; later, a Pod that merely waits changes nothing that a person reads.
pub(in crate::plan) fn still_held_up(before: Option<HeldUp>, fact: &Fact, ran: bool, first: bool) -> Option<HeldUp> {
    match fact {
        // In the same words, so that nothing is written while nothing changes (I17).
        Fact::HeldUp(next) => HeldUp::after(before, next, first),
        _ if ran => None,
        Fact::Failed { failure, .. } => before.filter(|_| failure.is_some_and(|row| row.class == ExitClass::Deadline)),
        Fact::Pending(_) | Fact::Settling => before,
        Fact::Running(_) | Fact::Lost | Fact::Stored { .. } => None,
    }
}

/// Whether a Job's time was over and nobody has seen a Pod of it run: that says nothing of a store, and what held the Pod up
/// is still what a person has to know.
pub(in crate::plan) fn never_ran(job: &Job, all: &[Pod]) -> bool {
    condition(job, "Failed").is_some_and(|end| end.reason.as_deref() == Some(DEADLINE)) && !ran(all)
}

/// A snapshot's Pod that stored it.
fn stored(pod: &Pod) -> Option<Fact> {
    let end = end(pod)?;
    match pods::report(pod, CONTAINER)? {
        Report::Saved(report) if end.exit_code == 0 => {
            Some(Fact::Stored { report, at: end.finished_at.as_ref().map(|t| t.0) })
        }
        Report::Saved(_)
        | Report::Restored(_)
        | Report::Gate(_)
        | Report::Probed(_)
        | Report::Latest(_)
        | Report::Recalled(_)
        | Report::Failed(_) => None,
    }
}

/// How the agent's container ended, if it did.
pub(in crate::plan) fn end(pod: &Pod) -> Option<&ContainerStateTerminated> {
    pods::last_end(pods::status(pod, CONTAINER)?)
}

/// The condition of this type, if it holds.
fn condition<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    job.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == "True")
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Whether a Pod that has not been seen to end will not be: it is gone.
fn late(end: &JobCondition, now: Timestamp) -> bool {
    let patience = SignedDuration::from_millis(PATIENCE_MILLIS.cast_signed());
    end.last_transition_time.as_ref().is_none_or(|t| now >= t.0 + patience)
}

/// How a Job failed, if it did, by what is known of its Pods now.
pub(in crate::plan) fn failure(job: &Job, all: &[Pod], before: Option<&HeldUp>) -> Option<Fact> {
    Some(failed(job, condition(job, "Failed")?, all, before))
}

fn failed(job: &Job, end: &JobCondition, all: &[Pod], before: Option<&HeldUp>) -> Fact {
    let at = end.last_transition_time.as_ref().map(|t| t.0);
    let last = all.iter().rev().find_map(|pod| explain(pod, job));
    // The Job's own deadline says more than how its Pod took being killed.
    if end.reason.as_deref() == Some(DEADLINE) {
        let seconds = job.spec.as_ref().and_then(|s| s.active_deadline_seconds).unwrap_or_default();
        let does = Does::of(job);
        let began = |held: &HeldUp| {
            let name = held.pod.as_deref();
            all.iter().any(|pod| Some(meta::name(&pod.metadata)) == name && ran(std::slice::from_ref(pod)))
        };
        let why = if let Some(held) = before.filter(|held| !began(held)) {
            format!(". Correct the cause of the delay{}: {}", does.then(), held.last_words())
        } else {
            let last = last.map(|(_, words)| format!("; its last Pod: {words}")).unwrap_or_default();
            format!("{last}. {}", does.late())
        };
        let message = format!("the Job passed its deadline of {seconds} s{why}");
        return Fact::Failed { failure: Some(Failure::of(ExitClass::Deadline, None)), message, at, held: None };
    }
    let (failure, message) = last.unwrap_or_else(|| {
        let said = end.message.as_deref().unwrap_or("no Pod is left that names the cause");
        (None, format!("the Job failed: {said}"))
    });
    Fact::Failed { failure, message, at, held: None }
}

/// How a Pod failed, in words; `None` while it has not.
fn explain(pod: &Pod, job: &Job) -> Option<(Option<&'static Failure>, String)> {
    let name = meta::name(&pod.metadata);
    let Some(end) = end(pod) else {
        // Evicted before the agent ran, for example.
        let why = pod
            .status
            .as_ref()
            .filter(|_| phase(pod) == Some("Failed"))?
            .reason
            .as_deref()
            .unwrap_or("no reason given");
        return Some((None, format!("Pod {name} failed before the agent ran: {why}")));
    };
    if let Some(Report::Failed(failed)) = pods::report(pod, CONTAINER) {
        return Some((Some(failed.failure()), failed.message));
    }
    if end.reason.as_deref() == Some("OOMKilled") {
        let limit = memory_limit(job).unwrap_or("its node's");
        let remedy = match Does::of(job) {
            Does::Save | Does::Remove => "raise spec.agent.resources in a new EtcdSnapshot",
            Does::Run | Does::Prune => "raise spec.snapshotTemplate.agent.resources of the EtcdSnapshotSchedule",
            Does::Inspect => {
                "spec.agent.resources is immutable. `holdfast agent list` shows the stored snapshots. Delete this \
                 EtcdSnapshot, and create an EtcdSnapshot with a larger limit"
            }
            Does::Search => "raise spec.bootstrap.restore.agent.resources",
            Does::Probe => "raise spec.agent.resources",
        };
        let message = format!("the agent ran out of memory (limit {limit}): {remedy}");
        return Some((Some(Failure::of(ExitClass::Config, None)), message));
    }
    let code = end.exit_code;
    (code != 0).then(|| {
        let message = format!("the agent ended with code {code} and no report; see `kubectl logs {name}`");
        (Failure::of_code(code), message)
    })
}

/// What a Job is for.
enum Does {
    /// It saves a snapshot.
    Save,
    /// It is a run of a schedule, and saves a snapshot.
    Run,
    /// It looks whether one is saved.
    Inspect,
    /// It looks for the latest snapshot, for a cluster.
    Search,
    /// It removes snapshots that a schedule does not keep.
    Prune,
    /// It removes the snapshot of an object that is being deleted.
    Remove,
    /// It tries a store.
    Probe,
}

impl Does {
    fn of(job: &Job) -> Self {
        match job::pod_spec(job) {
            Some(pod) if job::probes(pod) => Self::Probe,
            Some(pod) if job::inspects(pod) => Self::Inspect,
            Some(pod) if job::searches(pod) => Self::Search,
            Some(pod) if job::prunes(pod) => Self::Prune,
            Some(pod) if job::removes(pod) => Self::Remove,
            Some(_) | None if meta::label(&job.metadata, key::SCHEDULE).is_some() => Self::Run,
            Some(_) | None => Self::Save,
        }
    }

    const fn words(&self) -> &'static str {
        match self {
            Self::Save | Self::Run => "saves",
            Self::Inspect => "searches the store",
            Self::Search => "looks for the latest snapshot",
            Self::Prune => "removes snapshots",
            Self::Remove => "removes the snapshot",
            Self::Probe => "probes the store",
        }
    }

    /// What comes after what held it up is mended.
    const fn then(&self) -> &'static str {
        match self {
            Self::Save => ", and create another EtcdSnapshot",
            Self::Run => " before the next run",
            Self::Inspect | Self::Search | Self::Prune | Self::Remove => "; Holdfast then starts another Job",
            Self::Probe => "; Holdfast then starts another probe",
        }
    }

    /// What helps where nothing is known that held it up. Only who saves may be given more time.
    const fn late(&self) -> &'static str {
        match self {
            Self::Save => "Raise spec.deadlineSeconds in a new EtcdSnapshot, or correct the cause of the delay",
            Self::Run => {
                "Raise spec.snapshotTemplate.deadlineSeconds of the EtcdSnapshotSchedule, or correct the cause of the delay"
            }
            Self::Inspect | Self::Search | Self::Prune | Self::Remove | Self::Probe => "Correct the cause of the delay",
        }
    }
}

fn memory_limit(job: &Job) -> Option<&str> {
    let agent = job.spec.as_ref()?.template.spec.as_ref()?.containers.iter().find(|c| c.name == CONTAINER)?;
    agent.resources.as_ref()?.limits.as_ref()?.get("memory").map(|quantity| quantity.0.as_str())
}

/// How far a Job is that has not ended. Times, never ages: the message must not change while nothing does (I17).
fn progress(job: &Job, all: &[Pod], refusal: Option<&str>, before: Option<&HeldUp>, now: Timestamp) -> Fact {
    let name = meta::name(&job.metadata);
    if meta::deleting(&job.metadata) {
        return Fact::Pending(format!(
            "Job {name} is being deleted before it ended; Holdfast creates another Job afterwards"
        ));
    }
    if job.spec.as_ref().and_then(|s| s.suspend) == Some(true) {
        return Fact::Pending(format!("Job {name} is suspended: set its spec.suspend to false"));
    }
    let Some(pod) = all.last() else {
        if let Some(why) = refusal {
            return Fact::HeldUp(HeldUp::job(Reason::WriteRefused, name, why.to_owned()));
        }
        // When a Job's time is over kubelet removes its Pod a moment before the Job reports its end.
        if let Some(last) =
            before.filter(|held| held.pod.is_some() && (held.job == name || held.reason != Reason::NodeSilent))
        {
            return Fact::HeldUp(last.clone());
        }
        let message = format!("if the Pod stays missing, `kubectl describe job {name}` names the cause");
        return Fact::HeldUp(HeldUp::job(Reason::JobPending, name, message));
    };
    let earlier = all.iter().rev().find_map(|pod| explain(pod, job));
    let earlier = earlier.map(|(_, words)| format!("; the previous attempt: {words}")).unwrap_or_default();
    // On a node that is gone it is neither ended nor replaced, and its Job's own deadline waits for it too (Kubernetes since
    // 1.31: a Job has failed when all of its Pods have ended).
    if pods::lingers(pod, now) && !pods::ended(pod) {
        return Fact::HeldUp(HeldUp::pod(Reason::NodeSilent, name, pod, pods::who_holds(pod)));
    }
    let most = job.spec.as_ref().and_then(|s| s.backoff_limit).unwrap_or(BACKOFF_LIMIT) + 1;
    let attempt = format!("attempt {} of {most}", all.len());
    let does = Does::of(job).words();
    let running = pods::status(pod, CONTAINER).and_then(|s| s.state.as_ref()?.running.as_ref());
    if let Some(running) = running {
        let since = running.started_at.as_ref().map(|t| format!(" since {}", t.0)).unwrap_or_default();
        return Fact::Running(format!("Pod {} {does}{since} ({attempt}){earlier}", meta::name(&pod.metadata)));
    }
    if end(pod).is_some() || pods::ended(pod) {
        return Fact::Running(format!(
            "the Job controller creates the next Pod of Job {name} after a pause ({attempt} is over){earlier}"
        ));
    }
    // kubelet reports a container that it never started as being prepared when the Pod is deleted: the cause before stands.
    let same = |held: &&HeldUp| meta::deleting(&pod.metadata) && held.pod.as_deref() == Some(meta::name(&pod.metadata));
    if let Some(stands) = before.filter(same) {
        return Fact::HeldUp(stands.clone());
    }
    let (reason, cause) = match failure::hold_up(pod, None) {
        Some(failure::HoldUp { message, stuck: true }) => (Reason::PodHeldUp, message),
        Some(failure::HoldUp { message, stuck: false }) => (Reason::JobPending, message),
        None => (Reason::JobPending, "kubelet has reported nothing".to_owned()),
    };
    Fact::HeldUp(HeldUp::pod(reason, name, pod, format!("{cause} ({attempt}){earlier}")))
}
