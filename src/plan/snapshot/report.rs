//! What a Job and its Pods say about a snapshot.
//!
//! Decides how far a Job is and how it ended. A stored snapshot must never be called failed, and `Complete` must never be
//! said without a report: so a report that says *saved* wins over everything the Job says, and [`doubtful`] says when only
//! the store itself can tell.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use snapshot_agent::contract::{ExitClass, FailedReport, Report, SavedReport};

use crate::api::condition::Reason;
use crate::plan::build::job::{self, BACKOFF_LIMIT, CONTAINER};
use crate::plan::pods::{self, HoldUp};

/// The watch of Jobs may be ahead of the watch of Pods: so long after a Job's end a Pod's last words may still come.
pub(super) const PATIENCE_MILLIS: u64 = 10_000;

/// A Pod that takes another one's place is made this long after that one's end at the earliest: so long a Job pauses after
/// a failure, also after one that its policy ignores (Kubernetes: `DefaultJobPodFailureBackOff`).
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// Why a Job was given up whose time was over (Kubernetes: `JobReasonDeadlineExceeded`).
const DEADLINE: &str = "DeadlineExceeded";

/// Between a Pod's name and what holds it up.
const HELD: &str = " does not run: ";

/// Before the name of a Job that gets no Pod.
const NOT_MADE: &str = "no Pod can be made for Job ";

/// What is known of a Job.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) enum Fact {
    /// No Pod of it runs, and why.
    Pending(String),
    /// It works.
    Running(String),
    /// It cannot go on before somebody does something.
    Held(Reason, String),
    /// It ended, and the last words of a Pod may still be on their way.
    Settling,
    /// It ended well, and nobody knows with what.
    Lost,
    /// A Pod stored the snapshot.
    Stored {
        /// What it said.
        report: Box<SavedReport>,
        /// When it ended.
        at: Option<Timestamp>,
    },
    /// It was given up.
    Failed {
        /// The class, where the agent or the Job gave one.
        class: Option<ExitClass>,
        /// What happened.
        message: String,
        /// When.
        at: Option<Timestamp>,
    },
}

impl Fact {
    /// The reason a failure of this class is told by.
    pub(super) fn reason(class: Option<ExitClass>) -> Reason {
        match class {
            // A save touches no volume of a member's: what it refuses is a store with another mark.
            Some(ExitClass::Refused) => Reason::StoreExchanged,
            Some(class) => Reason::from(class),
            None => Reason::AgentCrashed,
        }
    }
}

/// Reads a Job of ours and its Pods, oldest first. `refusal`: why the API server takes no Pod of it.
pub(in crate::plan) fn read(job: &Job, all: &[Pod], refusal: Option<&str>, now: Timestamp) -> Fact {
    if let Some(stored) = all.iter().rev().find_map(stored) {
        return stored;
    }
    if let Some(end) = condition(job, "Complete") {
        let told = all.iter().any(|pod| phase(pod) == Some("Succeeded"));
        return if told || late(end, now) { Fact::Lost } else { Fact::Settling };
    }
    if let Some(end) = condition(job, "Failed") {
        let counted = job.status.as_ref().and_then(|s| s.failed).unwrap_or_default();
        let told = all.iter().filter(|pod| pods::ended(pod)).count();
        let told = told == all.len() && i32::try_from(told).is_ok_and(|told| told >= counted.max(1));
        return if told || late(end, now) { failed(job, end, all) } else { Fact::Settling };
    }
    progress(job, all, refusal)
}

/// Whether the snapshot may be stored although no report says so: the Job ended well, or a Pod of it is gone or may be, or
/// ended in a way that leaves open how far it had come.
pub(super) fn doubtful(fact: &Fact, job: &Job, all: &[Pod]) -> bool {
    match fact {
        Fact::Lost => true,
        Fact::Failed { .. } => {
            let counted = job.status.as_ref().and_then(|s| s.failed).unwrap_or_default();
            let there = i32::try_from(all.len()).is_ok_and(|there| there >= counted);
            // A Pod that a drain has ended is counted nowhere, and soon gone. There was no other only where none of these has
            // taken a place, and one of them says how it ended.
            let spoke = all.iter().any(|pod| end(pod).is_some());
            let first = all.iter().all(|pod| took_no_place(pod, job));
            !(there && spoke && first && all.iter().all(published_nothing))
        }
        Fact::Pending(_) | Fact::Running(_) | Fact::Held(..) | Fact::Settling | Fact::Stored { .. } => false,
    }
}

/// Whether a Pod was made too soon after its Job to have taken the place of one that had run.
fn took_no_place(pod: &Pod, job: &Job) -> bool {
    let made = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|t| t.0);
    made(&pod.metadata).zip(made(&job.metadata)).is_some_and(|(pod, job)| pod < job + PAUSE)
}

/// Whether a Pod has certainly published nothing: it never ran, or the agent itself says so. After trouble with the
/// network or a deadline not even the agent knows: the answer to its last request may be what was lost.
fn published_nothing(pod: &Pod) -> bool {
    let status = pods::status(pod, CONTAINER);
    let Some(end) = status.and_then(pods::last_end) else {
        let runs = status.and_then(|s| s.state.as_ref()).is_some_and(|s| s.running.is_some());
        return !runs;
    };
    match pods::report(pod, CONTAINER) {
        Some(Report::Failed(failed)) => match failed.class {
            ExitClass::Transient | ExitClass::Deadline => false,
            ExitClass::Config
            | ExitClass::Denied
            | ExitClass::NotFound
            | ExitClass::Corrupt
            | ExitClass::Full
            | ExitClass::Refused
            | ExitClass::AuthRequired => end.exit_code == i32::from(failed.class.code()),
        },
        Some(Report::Saved(_) | Report::Restored(_) | Report::Gate(_) | Report::Probed(_) | Report::Latest(_))
        | None => false,
    }
}

/// Whether a Job has ended, well or not.
pub fn over(job: &Job) -> bool {
    condition(job, "Complete").or_else(|| condition(job, "Failed")).is_some()
}

/// When a Job failed, if it did.
pub(super) fn ended(job: &Job) -> Option<Timestamp> {
    condition(job, "Failed")?.last_transition_time.as_ref().map(|t| t.0)
}

/// Whether the agent has run in one of these Pods.
pub(in crate::plan) fn ran(all: &[Pod]) -> bool {
    let runs = |pod| pods::status(pod, CONTAINER).and_then(|s| s.state.as_ref()).is_some_and(|s| s.running.is_some());
    all.iter().any(|pod| runs(pod) || end(pod).is_some())
}

/// Whether a Job's time was over and nobody has seen a Pod of it run: that says nothing of a store, and what held the Pod up
/// is still what a person has to know.
pub(in crate::plan) fn never_ran(job: &Job, all: &[Pod]) -> bool {
    condition(job, "Failed").is_some_and(|end| end.reason.as_deref() == Some(DEADLINE)) && !ran(all)
}

/// What a condition tells of a Pod that is held up, or not even made: the words of [`Fact::Held`].
pub(in crate::plan) fn held_in(told: &str) -> Option<&str> {
    let pod = || told.get(..told.find(HELD)?)?.rfind("Pod ");
    told.get(told.find(NOT_MADE).or_else(pod)?..)
}

/// What holds a Pod up, in the words that a condition has for it already: each Job has a Pod of another name, and nothing
/// else may be new (I17).
pub(in crate::plan) fn as_told(told: Option<&str>, words: String) -> String {
    let told = told.filter(|told| unnamed(told) == unnamed(&words)).map(str::to_owned);
    told.unwrap_or(words)
}

/// The words of [`Fact::Held`] without the name of the Pod, or of its Job.
fn unnamed(words: &str) -> String {
    let after = words.strip_prefix(NOT_MADE).or_else(|| words.strip_prefix("Pod ")).unwrap_or_default();
    match after.split([' ', ':']).next().filter(|name| !name.is_empty()) {
        Some(name) => words.replace(name, ""),
        None => words.to_owned(),
    }
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
        | Report::Failed(_) => None,
    }
}

/// How the agent's container ended, if it did.
fn end(pod: &Pod) -> Option<&ContainerStateTerminated> {
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

fn failed(job: &Job, end: &JobCondition, all: &[Pod]) -> Fact {
    let at = end.last_transition_time.as_ref().map(|t| t.0);
    let last = all.iter().rev().find_map(|pod| explain(pod, job));
    // The Job's own deadline says more than how its Pod took being killed.
    if end.reason.as_deref() == Some(DEADLINE) {
        let seconds = job.spec.as_ref().and_then(|s| s.active_deadline_seconds).unwrap_or_default();
        let before = last.map(|(_, words)| format!("; its last Pod: {words}")).unwrap_or_default();
        let remedy = match Does::of(job) {
            Does::Save => "Give spec.deadlineSeconds more in a new EtcdSnapshot, or see what held it up",
            Does::Search | Does::Probe => "See what held it up",
        };
        let message = format!("the Job's {seconds} s were over{before}. {remedy}");
        return Fact::Failed { class: Some(ExitClass::Deadline), message, at };
    }
    let (class, message) = last.unwrap_or_else(|| {
        let said = end.message.as_deref().unwrap_or("no Pod of it is left to say why");
        (None, format!("the Job failed: {said}"))
    });
    Fact::Failed { class, message, at }
}

/// How a Pod failed, in words; `None` while it has not.
fn explain(pod: &Pod, job: &Job) -> Option<(Option<ExitClass>, String)> {
    let name = pods::name(&pod.metadata);
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
    if let Some(Report::Failed(FailedReport { class, message })) = pods::report(pod, CONTAINER) {
        return Some((Some(class), message));
    }
    if end.reason.as_deref() == Some("OOMKilled") {
        let limit = memory_limit(job).unwrap_or("its node's");
        let remedy = match Does::of(job) {
            Does::Save => "spec.agent.resources more in a new EtcdSnapshot",
            Does::Search => "spec.bootstrap.restore.agent.resources more",
            Does::Probe => "spec.agent.resources more",
        };
        let message = format!("the agent ran out of memory (limit {limit}): give {remedy}");
        return Some((Some(ExitClass::Config), message));
    }
    let code = end.exit_code;
    (code != 0).then(|| {
        let message =
            format!("the agent ended with code {code} and no report; `kubectl logs {name}` has its last words");
        (ExitClass::from_code(code), message)
    })
}

/// What a Job is for.
enum Does {
    /// It saves a snapshot, or looks whether it is saved.
    Save,
    /// It looks for the latest snapshot, for a cluster.
    Search,
    /// It tries a store.
    Probe,
}

impl Does {
    fn of(job: &Job) -> Self {
        match job.spec.as_ref().and_then(|s| s.template.spec.as_ref()) {
            Some(pod) if job::probes(pod) => Self::Probe,
            Some(pod) if job::searches(pod) => Self::Search,
            Some(_) | None => Self::Save,
        }
    }

    const fn words(&self) -> &'static str {
        match self {
            Self::Save => "saves",
            Self::Search => "looks for the latest snapshot",
            Self::Probe => "tries the store",
        }
    }
}

fn memory_limit(job: &Job) -> Option<&str> {
    let agent = job.spec.as_ref()?.template.spec.as_ref()?.containers.iter().find(|c| c.name == CONTAINER)?;
    agent.resources.as_ref()?.limits.as_ref()?.get("memory").map(|quantity| quantity.0.as_str())
}

/// How far a Job is that has not ended. Times, never ages: the message must not change while nothing does (I17).
fn progress(job: &Job, all: &[Pod], refusal: Option<&str>) -> Fact {
    let name = pods::name(&job.metadata);
    if pods::deleting(&job.metadata) {
        return Fact::Pending(format!(
            "Job {name} is being deleted before it ended; another one is made when it is gone"
        ));
    }
    if job.spec.as_ref().and_then(|s| s.suspend) == Some(true) {
        return Fact::Pending(format!("Job {name} is suspended: set its spec.suspend to false"));
    }
    let before = all.iter().rev().find_map(|pod| explain(pod, job));
    let before = before.map(|(_, words)| format!("; the attempt before: {words}")).unwrap_or_default();
    let Some(pod) = all.last() else {
        if let Some(why) = refusal {
            return Fact::Held(Reason::WriteRefused, format!("{NOT_MADE}{name}: {why}"));
        }
        return Fact::Pending(format!(
            "Job {name} has no Pod yet; if that stays, `kubectl describe job {name}` says why"
        ));
    };
    let most = job.spec.as_ref().and_then(|s| s.backoff_limit).unwrap_or(BACKOFF_LIMIT) + 1;
    let attempt = format!("attempt {} of {most}", all.len());
    let does = Does::of(job).words();
    let running = pods::status(pod, CONTAINER).and_then(|s| s.state.as_ref()?.running.as_ref());
    if let Some(running) = running {
        let since = running.started_at.as_ref().map(|t| format!(" since {}", t.0)).unwrap_or_default();
        return Fact::Running(format!("Pod {} {does}{since} ({attempt}){before}", pods::name(&pod.metadata)));
    }
    if end(pod).is_some() || pods::ended(pod) {
        return Fact::Running(format!("Job {name} makes the next Pod after a pause ({attempt} is over){before}"));
    }
    let pod_name = pods::name(&pod.metadata);
    match pods::hold_up(pod) {
        Some(HoldUp { message, stuck: true }) => {
            Fact::Held(Reason::PodHeldUp, format!("Pod {pod_name}{HELD}{message} ({attempt}){before}"))
        }
        Some(HoldUp { message, stuck: false }) => {
            Fact::Pending(format!("Pod {pod_name} does not run yet: {message} ({attempt}){before}"))
        }
        None => Fact::Pending(format!(
            "Pod {pod_name} does not run yet: kubelet has not said anything of it ({attempt}){before}"
        )),
    }
}
