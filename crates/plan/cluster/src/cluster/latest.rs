//! The search for the newest snapshot of a store, where a restore asks for the latest.
//!
//! Decides when a Job searches the store, and the effect of its report on the cluster. Holdfast latches the report at once and
//! never searches again, so that no retry picks another snapshot. Without a report Holdfast never founds an empty cluster (I2).
//! The agent decides which snapshot is the newest (`snapshot_agent::verbs::latest`).

use holdfast_api::condition::Reason;
use holdfast_api::name;
use holdfast_api::restore::Latest;
use holdfast_api::store::{Location, Place};
use holdfast_contract::{DEFAULT_INSPECT_DEADLINE_SECONDS, LatestReport, LatestRequest, Report, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::read_access::readers;
use super::{ClusterJob, Observed};
use holdfast_base::jobs::{self, JobState};
use holdfast_base::objects::job::{AgentJob, CONTAINER, job};
use holdfast_base::pod_cause::PodCause;
use holdfast_base::{Act, Next, Wake, fingerprint, job_state, meta, objects, pods, retries};

/// Pause between two searches after a doubtful result: only an edit of the spec (which starts another search) or a person at the
/// store can resolve the doubt. Kubernetes keeps Jobs for much longer, so the last result stays visible during the next search.
pub(super) const RARELY: SignedDuration = SignedDuration::from_mins(10);

/// Against a missed event, while a Job runs.
const WAITED_FOR: Wake = Wake::AfterMillis(15_000);

/// Returns the report; `Err` has the act or the wait until there is a report.
pub(super) fn find(
    seen: &Observed,
    asked: &Latest,
    store: (&Location, Option<&str>),
    now: Timestamp,
) -> Result<LatestReport, Box<Next>> {
    let question = question(seen, asked, store);
    let numbered = retries::consecutive_jobs(
        seen.searches.iter().collect(),
        |search| &search.job,
        |number| named(seen, &question, number),
    );
    let ask = |number| Err(Box::new(Next::act(Act::StartJob(Box::new(start(seen, asked, store, &question, number))))));
    let Some((number, last)) = numbered.last().copied() else { return ask(0) };
    let searches: Vec<&ClusterJob> = numbered.into_iter().map(|(_, search)| search).collect();
    if let Some(found) = search_report(last) {
        return Ok(found);
    }
    let kept = kept(seen);
    let (state, held) = read(seen, last, kept.as_ref(), now);
    let stuck = held.filter(PodCause::needs_a_person);
    let (reason, message, wake) = match state {
        ended @ (JobState::Failed { .. }
        | JobState::Lost
        | JobState::Stored { .. }
        | JobState::HeldUp(PodCause { reason: Reason::NodeSilent, .. })) => {
            let failure = Failure::from_job(ended, last, now).unwrap_or_else(|| Failure::silent(now));
            match (Wake::at(due(&searches, &failure), now), stuck) {
                (Some(later), Some(stuck)) => (stuck.reason, stuck.words(), later),
                (Some(later), None) => (failure.reason, failure.message, later),
                (None, _) => return ask(number.saturating_add(1)),
            }
        }
        state => match (stuck, state) {
            (Some(stuck), _) => (stuck.reason, stuck.words(), WAITED_FOR),
            (None, JobState::HeldUp(held)) => still(&searches, kept.as_ref(), now, held.words()),
            (None, JobState::Pending(words)) => still(&searches, kept.as_ref(), now, words),
            // The cause that held up the earlier Job is over.
            (None, JobState::Running(words)) => still(&searches, None, now, words),
            (None, _) => {
                let words = "the Job that searches the store has ended; its report is on its way".to_owned();
                still(&searches, kept.as_ref(), now, words)
            }
        },
    };
    Err(Box::new(Next::wait(reason, message, wake)))
}

/// Returns reason and message while Holdfast creates a Job: the same as [`find`] gives before and after.
pub(super) fn asking(seen: &Observed, now: Timestamp) -> (Reason, String) {
    let kept = kept(seen);
    let searches: Vec<&ClusterJob> = seen.searches.iter().collect();
    if let Some(stuck) =
        kept.as_ref().filter(|held| held.needs_a_person() && searches.last().is_some_and(|last| never_ran(last)))
    {
        return (stuck.reason, stuck.words());
    }
    let words = "a Job searches the store for the latest snapshot".to_owned();
    let (reason, message, _) = still(&searches, kept.as_ref(), now, words);
    (reason, message)
}

/// Returns the cause that keeps the search Pods from running, for the status.
pub(super) fn held_up(seen: &Observed, next: &Next, now: Timestamp) -> Option<PodCause> {
    // The first Job of a new search: the cause that held up the earlier search is over.
    if matches!(next, Next::Do(Act::StartJob(job), _) if retries::earlier_jobs(job) == 0) {
        return None;
    }
    read(seen, seen.searches.last()?, kept(seen).as_ref(), now).1
}

/// Returns the state of the last Job, and the cause that keeps its Pods from running.
fn read(seen: &Observed, last: &ClusterJob, kept: Option<&PodCause>, now: Timestamp) -> (JobState, Option<PodCause>) {
    let state = jobs::read(&last.job, &last.pods, seen.refusal.as_deref(), kept, now);
    let held = jobs::still_held_up(kept.cloned(), &state, jobs::ran(&last.pods), seen.searches.len() == 1);
    (state, held)
}

fn kept(seen: &Observed) -> Option<PodCause> {
    PodCause::kept(seen.cluster.status.as_ref()?.held_up.as_ref())
}

fn never_ran(search: &ClusterJob) -> bool {
    jobs::never_ran(&search.job, &search.pods)
}

/// Returns reason, message and interval during a further search: the last failure stays in the message, in the same words, so that
/// Holdfast writes nothing while nothing changes (I17).
fn still(searches: &[&ClusterJob], kept: Option<&PodCause>, now: Timestamp, words: String) -> (Reason, String, Wake) {
    let failure = |search: &&ClusterJob| {
        let state = jobs::read(&search.job, &search.pods, None, kept, now);
        Failure::from_job(state, search, now)
    };
    match searches.iter().rev().find_map(failure) {
        Some(failure) => (failure.reason, failure.message, WAITED_FOR),
        None => (Reason::AskingStore, words, WAITED_FOR),
    }
}

/// End of a Job without a report, or a Pod on a silent node. Such a Pod only reads, so Holdfast does not wait for its end.
struct Failure {
    reason: Reason,
    message: String,
    at: Timestamp,
}

impl Failure {
    fn silent(at: Timestamp) -> Self {
        let message =
            "the Job that searched the store succeeded, but its report is gone. Holdfast starts another Job".to_owned();
        Self { reason: Reason::AskingStore, message, at }
    }

    /// Returns the failure of a Job; `None` where the Job has not failed.
    fn from_job(state: JobState, search: &ClusterJob, now: Timestamp) -> Option<Self> {
        match state {
            JobState::Failed { failure, message, at, held: _ } => {
                Some(Self { reason: job_state::reason_of(failure), message, at: at.unwrap_or(now) })
            }
            JobState::Lost => Some(Self::silent(jobs::created(&search.job).unwrap_or(now))),
            JobState::HeldUp(held) if held.reason == Reason::NodeSilent => Some(Self {
                reason: held.reason,
                message: held.words(),
                at: jobs::silent_since(&search.pods).unwrap_or(now),
            }),
            JobState::Pending(_)
            | JobState::Running(_)
            | JobState::HeldUp(_)
            | JobState::Settling
            | JobState::Stored { .. } => None,
        }
    }
}

/// Returns the time of the next search. No watch event reports a corrected Secret or store here.
fn due(searches: &[&ClusterJob], failure: &Failure) -> Timestamp {
    let first = searches.first().and_then(|search| jobs::created(&search.job)).unwrap_or(failure.at);
    let left_alone = match failure.reason {
        Reason::LineageUnclear => RARELY,
        _ => jobs::pause(first, failure.at),
    };
    failure.at + left_alone
}

fn search_report(search: &ClusterJob) -> Option<LatestReport> {
    search.pods.iter().rev().find_map(|pod| match pods::report(pod, CONTAINER)? {
        Report::Latest(found) => Some(found),
        _ => None,
    })
}

/// Returns the name of the Job for this search with this number.
fn named(seen: &Observed, question: &str, number: i32) -> String {
    let meta = &seen.cluster.metadata;
    name::search(meta::name(meta), meta::uid(meta), question, number)
}

/// Returns the hash of the search: its spec, the place, the Pod's settings and the store ID. A change of any of these starts
/// another search. The options for writing to the store are not part of the hash.
fn question(seen: &Observed, asked: &Latest, (store, id): (&Location, Option<&str>)) -> String {
    let (place, agent) = (Place::from(readers(store.clone())), super::read_access::agent(seen));
    match id {
        Some(id) => fingerprint::short(&(asked, place, agent, id)),
        None => fingerprint::short(&(asked, place, agent)),
    }
}

fn start(seen: &Observed, asked: &Latest, (store, id): (&Location, Option<&str>), question: &str, number: i32) -> Job {
    let meta = &seen.cluster.metadata;
    let own_name = meta::name(meta);
    let request = LatestRequest {
        namespace: asked.namespace.clone().or_else(|| meta.namespace.clone()).unwrap_or_default(),
        cluster: asked.cluster.clone().unwrap_or_else(|| own_name.to_owned()),
        lineage: asked.lineage.clone(),
        expect_store_id: id.map(str::to_owned),
        deadline_seconds: DEFAULT_INSPECT_DEADLINE_SECONDS,
        ..LatestRequest::default()
    };
    job(&AgentJob {
        namespace: meta.namespace.clone(),
        owner: Some(objects::owner(&seen.cluster)),
        cluster: Some(own_name.to_owned()),
        agent: super::read_access::agent(seen).cloned().unwrap_or_default(),
        placement: seen.cluster.spec.placement.clone(),
        attempts_before: number,
        proxies: seen.settings.proxies.clone(),
        run_as: seen.settings.pod_run_as,
        ..AgentJob::new(
            named(seen, question, number),
            Request::Latest(request),
            store.clone(),
            seen.settings.agent_image.clone(),
        )
    })
}
