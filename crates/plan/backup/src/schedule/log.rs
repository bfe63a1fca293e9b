//! State of a schedule's log, and the condition `LogCurrent`.
//!
//! Decides when the log is behind or interrupted, and which numbers the status keeps. `log_deployment.rs` decides the Deployment,
//! `out_of_turn.rs` the save after an interruption. An agent that does not answer is unknown: the status stays, and only the age of the
//! stored log, or a Pod that cannot run, makes the condition False.

use holdfast_api::condition::{self, Reason, Type, Wanted};
use holdfast_api::log::{Interruption, Log, LogStatus};
use holdfast_api::schedule::LastSuccessful;
use holdfast_contract::LogReport;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;

use super::beside::Armed;
use super::facts::{self, Run};
use super::log_deployment;
use super::{Observed, log_pod, out_of_turn};
use holdfast_base::{Act, Ensure, Wake};

/// The status keeps the numbers for this long, unless the condition changes: no write for each answer.
const REFRESH: SignedDuration = SignedDuration::from_mins(5);

/// The log may be behind for this long beyond three segments: a member or the store answers again within that time.
const SLACK: SignedDuration = SignedDuration::from_secs(30);

/// Time between two questions to the agent, while the log is current and while it is not.
const ASK_MILLIS: u64 = 30_000;
const ASK_SOON_MILLIS: u64 = 10_000;

/// The log's part of a pass.
#[derive(Debug, Default)]
pub(super) struct Logging {
    /// The status; absent without `spec.log` and without its Deployment.
    pub(super) status: Option<LogStatus>,
    /// The condition; absent without `spec.log`.
    pub(super) condition: Option<Wanted>,
    /// The Deployment to apply.
    pub(super) ensure: Option<Ensure>,
    /// The save after an interruption, or the end of the Deployment.
    pub(super) act: Option<Act>,
    /// The next question.
    pub(super) wake: Option<Wake>,
    /// The condition `Merged`; absent without `spec.log.compaction`.
    pub(super) merged: Option<Wanted>,
    /// The next look at a merge whose report may still arrive.
    pub(super) merges_wake: Option<Wake>,
}

/// Returns the log's part of a pass. `newest`: the newest complete backup.
pub(super) fn decide(seen: &Observed, runs: &[Run<'_>], newest: Option<&LastSuccessful>, now: Timestamp) -> Logging {
    let Some(log) = &seen.schedule.spec.log else {
        let deployment = log_deployment::named(seen, None);
        let status = deployment.map(|name| LogStatus { deployment: Some(name), ..LogStatus::default() });
        return Logging { act: log_deployment::retire(seen), status, ..Logging::default() };
    };
    let armed = log_deployment::arm(seen, log);
    let before = seen.schedule.status.as_ref().and_then(|status| status.log.clone()).unwrap_or_default();
    let answer = seen.log_report.known().filter(|_| armed.runs);
    // An agent that has not reached etcd knows nothing of the log yet.
    let report = answer.filter(|answer| answer.cluster_id.is_some());
    let mut status = LogStatus {
        deployment: log_deployment::named(seen, armed.apply.as_ref()),
        active_since: match &armed {
            Armed { runs: true, .. } => Some(before.active_since.clone().unwrap_or_else(|| now.to_string())),
            Armed { wrong: Some(_), .. } => before.active_since.clone(),
            Armed { .. } => None,
        },
        interrupted: report.map_or_else(|| before.interrupted.clone(), gap),
        ..before.clone()
    };
    let covered =
        |gap: &Interruption| newest.and_then(|newest| newest.revision).is_some_and(|revision| revision >= gap.until);
    let open = status.interrupted.clone().filter(|gap| !covered(gap));
    let cause = answer.and_then(|answer| answer.problem.as_ref());
    let cause = cause.map(|problem| format!("{}: {}", problem.class.as_str(), problem.message));
    let state = judge(seen, log, (&armed, &status), (report, cause, open.as_ref()), now);
    let conditions = seen.schedule.status.iter().flat_map(|status| &status.conditions);
    let stands = condition::find(conditions, Type::LogCurrent);
    let is_new = stands.is_none_or(|c| c.reason != state.reason().as_str());
    if let Some(report) = report
        && (is_new || is_due(&before, report))
    {
        status.revision = report.stored_revision;
        status.time = report.stored_until.map(|at| at.to_string());
        status.rpo_seconds = report.largest_lag_seconds;
    }
    let condition = state.condition(log, &status);
    let asks = if state.reason() == Reason::LogStored { ASK_MILLIS } else { ASK_SOON_MILLIS };
    Logging {
        act: open.filter(|_| armed.runs).and_then(|gap| out_of_turn::save_after_gap(seen, runs, &gap)),
        wake: armed.runs.then_some(Wake::AfterMillis(asks)),
        ensure: armed.apply.map(|log| Ensure::Deployment(Box::new(log))),
        condition: Some(condition),
        status: Some(status),
        ..Logging::default()
    }
}

/// Returns the newest revisions that are missing, of an answer.
fn gap(report: &LogReport) -> Option<Interruption> {
    let gap = report.gap.as_ref()?;
    Some(Interruption { after: gap.after, until: gap.until, at: gap.at.map(|at| at.to_string()) })
}

/// Whether the numbers of the status are older than [`REFRESH`].
fn is_due(before: &LogStatus, report: &LogReport) -> bool {
    match (facts::time(before.time.as_ref()), report.stored_until) {
        (Some(known), Some(now)) => now.duration_since(known) >= REFRESH,
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

/// State of the log.
enum State {
    /// The log is stored up to a short time ago.
    Current,
    /// Nothing is recorded, although there is no fault; or the agent starts.
    Unknown(Reason, String),
    /// A mistake in the spec, or an object of another owner.
    Wrong(Reason, String),
    /// The stored log ends too long ago, for this cause where it is known.
    Behind(Option<String>),
    /// The log was behind when the agent last answered, with this message.
    StillBehind(String),
    /// Revisions are missing, and no later snapshot is complete.
    Interrupted(Interruption),
}

impl State {
    const fn reason(&self) -> Reason {
        match self {
            Self::Current => Reason::LogStored,
            Self::Unknown(reason, _) | Self::Wrong(reason, _) => *reason,
            Self::Behind(_) | Self::StillBehind(_) => Reason::LogBehind,
            Self::Interrupted(_) => Reason::LogInterrupted,
        }
    }

    /// Returns the condition. Its message names times of the status, never ages, and stays while nothing changes (I17).
    fn condition(&self, log: &Log, status: &LogStatus) -> Wanted {
        let reason = self.reason();
        match self {
            Self::Current => {
                let message = format!("the agent stores each revision within {} s", log.every());
                Wanted::yes(Type::LogCurrent, reason, message)
            }
            Self::Unknown(_, why) => Wanted::unknown(Type::LogCurrent, reason, why.clone()),
            Self::Wrong(_, why) | Self::StillBehind(why) => Wanted::no(Type::LogCurrent, reason, why.clone()),
            Self::Behind(cause) => {
                let end = match &status.time {
                    Some(time) => format!("the stored log ends at {time}"),
                    None => "the store holds no log yet".to_owned(),
                };
                let deployment = status.deployment.as_deref().unwrap_or_default();
                let check =
                    || format!("The agent does not answer. Check its Pod: kubectl logs deployment/{deployment}");
                let message = format!("{end}. {}", cause.clone().unwrap_or_else(check));
                Wanted::no(Type::LogCurrent, reason, message)
            }
            Self::Interrupted(gap) => {
                let at = gap.at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
                let message = format!(
                    "etcd had compacted the revisions {} to {}{at}, before the agent recorded them: no restore reaches them, and \
                     the log after them needs a snapshot. Holdfast saves one now; where that run fails, save another: kubectl \
                     holdfast schedule run",
                    gap.after.saturating_add(1),
                    gap.until
                );
                Wanted::no(Type::LogCurrent, reason, message)
            }
        }
    }
}

/// Returns the state of the log.
fn judge(
    seen: &Observed,
    log: &Log,
    (armed, status): (&Armed<Deployment>, &LogStatus),
    (report, cause, open): (Option<&LogReport>, Option<String>, Option<&Interruption>),
    now: Timestamp,
) -> State {
    if let Some((reason, why)) = &armed.wrong {
        return State::Wrong(*reason, why.clone());
    }
    if let Some((reason, why)) = &armed.waits {
        return State::Unknown(*reason, why.clone());
    }
    if let Some(gap) = open {
        return State::Interrupted(gap.clone());
    }
    let limit = SignedDuration::from_secs(3 * i64::from(log.every())) + SLACK;
    let began = facts::time(status.active_since.as_ref()).unwrap_or(now);
    let starts = || State::Unknown(Reason::LogStarting, "the agent that records the log starts".to_owned());
    let late = |end: Timestamp, limit| now.duration_since(end) > limit;
    if let Some(report) = report {
        return match report.stored_until {
            Some(end) if end.duration_since(now) > SLACK => {
                let why = "The clock of the agent's node is ahead. Correct the clock; the log is current when a segment has the right time";
                State::Behind(Some(why.to_owned()))
            }
            Some(end) if !late(end, limit) => State::Current,
            // A log that continues after a pause catches up first.
            _ if !late(began, limit) => starts(),
            _ => State::Behind(cause.or_else(|| Some("The agent catches up".to_owned()))),
        };
    }
    if let Some(why) = log_pod::trouble(seen) {
        return State::Behind(Some(why));
    }
    // The status may be older than the log by one period.
    let known = facts::time(status.time.as_ref()).map_or(began, |end| end.max(began));
    if late(known, limit + REFRESH) {
        return State::Behind(cause);
    }
    kept(seen).unwrap_or_else(starts)
}

/// Returns the state that stands, while the agent does not answer for a moment. The status keeps an interruption.
fn kept(seen: &Observed) -> Option<State> {
    let conditions = seen.schedule.status.iter().flat_map(|status| &status.conditions);
    let stands = condition::find(conditions, Type::LogCurrent)?;
    match Reason::named(&stands.reason)? {
        Reason::LogStored => Some(State::Current),
        Reason::LogBehind => Some(State::StillBehind(stands.message.clone())),
        _ => None,
    }
}
