//! What can go wrong with effects: each error knows its class, and each class when to try again.
//!
//! Decides classes and the back-off table. Nothing here is a verdict about a cluster: those are `Waiting` and conditions.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::core::Status;

use super::clock::Instant;
use crate::api::condition::Reason;

/// A failed effect, and what was being done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server answered no, or could not be reached.
    #[error("{what}: {}", said(source))]
    Kube {
        /// What was being done.
        what: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time. The call may have been carried out all the same: the next pass looks.
    #[error("{what}: no answer in time")]
    Timeout {
        /// What was being done.
        what: String,
    },
    /// etcd answered no, or could not be reached.
    #[error("{what}: {message}")]
    Etcd {
        /// What was being done.
        what: String,
        /// The cause.
        message: String,
    },
    /// Something of somebody else stands where ours belongs (I13).
    #[error("{0}")]
    NameConflict(String),
    /// The world is no longer as the decision saw it: nothing was done.
    #[error("{0}")]
    Stale(String),
    /// This process does not hold the lease (any more): nothing was done (I19).
    #[error("not the leader: nothing was written")]
    NotLeader,
    /// A defect of ours.
    #[error("{0}")]
    Internal(String),
}

/// Classes of errors: the label of a metric, and a row of the back-off table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// Somebody wrote in between.
    Conflict,
    /// The API server asked us to slow down.
    Throttled,
    /// The API server could not be reached or is in trouble.
    Unavailable,
    /// No answer in time.
    Timeout,
    /// We may not do this.
    Denied,
    /// The API server finds the object invalid.
    Invalid,
    /// What we wanted to change is gone.
    Gone,
    /// Somebody else's object has the name.
    NameConflict,
    /// etcd said no or was silent.
    Etcd,
    /// etcd was not ready for what it was asked to do, and said why.
    NotYet,
    /// Not the leader.
    NotLeader,
    /// A defect of ours.
    Internal,
}

impl Class {
    /// Every class.
    #[cfg(test)]
    pub(super) const ALL: [Self; 12] = [
        Self::Conflict,
        Self::Throttled,
        Self::Unavailable,
        Self::Timeout,
        Self::Denied,
        Self::Invalid,
        Self::Gone,
        Self::NameConflict,
        Self::Etcd,
        Self::NotYet,
        Self::NotLeader,
        Self::Internal,
    ];

    /// The metric's label.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Gone => "gone",
            Self::NameConflict => "name_conflict",
            Self::Etcd => "etcd",
            Self::NotYet => "not_yet",
            Self::NotLeader => "not_leader",
            Self::Internal => "internal",
        }
    }

    /// First and longest wait. A conflict is cured by looking again; what a person has to change is asked for rarely.
    const fn bounds(self) -> (Duration, Duration) {
        match self {
            Self::NotYet => (Duration::from_millis(100), Duration::from_secs(10)),
            // Somebody wrote in between: the next look sees it.
            Self::Conflict | Self::Gone => (Duration::from_millis(100), Duration::from_secs(2)),
            Self::Etcd => (Duration::from_millis(200), Duration::from_secs(10)),
            Self::Unavailable | Self::Timeout => (Duration::from_millis(200), Duration::from_secs(30)),
            Self::Throttled => (Duration::from_secs(1), Duration::from_mins(1)),
            // Until a person changes something: roles, quotas, a name.
            Self::Denied | Self::Invalid | Self::NameConflict | Self::Internal => {
                (Duration::from_secs(2), Duration::from_secs(20))
            }
            Self::NotLeader => (Duration::from_secs(5), Duration::from_secs(5)),
        }
    }

    /// Whether it is part of daily life and not worth a warning in the log.
    pub(super) const fn is_ordinary(self) -> bool {
        matches!(self, Self::Conflict | Self::Gone | Self::NotLeader)
    }
}

impl Error {
    /// A failed call to the API server.
    pub(super) fn kube(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Kube { what: what.into(), source: Box::new(source) }
    }

    /// Its class.
    pub(super) fn class(&self) -> Class {
        match self {
            Self::Kube { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => by_status(status),
                _ => Class::Unavailable,
            },
            Self::Timeout { .. } => Class::Timeout,
            Self::Etcd { .. } => Class::Etcd,
            Self::NameConflict(_) => Class::NameConflict,
            Self::Stale(_) => Class::Conflict,
            Self::NotLeader => Class::NotLeader,
            Self::Internal(_) => Class::Internal,
        }
    }

    /// What the API server said where it refuses until somebody changes something: a quota, a policy, a wrong field.
    pub(super) fn refused(&self) -> Option<String> {
        match self {
            Self::Kube { source, .. } if matches!(self.class(), Class::Denied | Class::Invalid) => Some(said(source)),
            _ => None,
        }
    }

    /// How long the API server asked us to wait, if it did.
    fn asked_to_wait(&self) -> Option<Duration> {
        let Self::Kube { source, .. } = self else { return None };
        let kube::Error::Api(status) = source.as_ref() else { return None };
        let seconds = u64::from(status.details.as_ref()?.retry_after_seconds);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

/// What the API server said, for people: its own sentence where there is one.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

fn by_status(status: &Status) -> Class {
    match status.code {
        409 => Class::Conflict,
        404 | 410 => Class::Gone,
        429 => Class::Throttled,
        401 | 403 => Class::Denied,
        400 | 405 | 406 | 413 | 415 | 422 => Class::Invalid,
        504 => Class::Timeout,
        _ => Class::Unavailable,
    }
}

/// How often each object's passes failed in a row, and of which class: the only memory between passes, and losing it
/// only makes us try sooner.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    rows: Mutex<HashMap<String, Row>>,
}

/// One object's failures in a row.
#[derive(Debug)]
struct Row {
    class: Class,
    times: u32,
    message: String,
    /// When the row began, and whether it has lasted [`TOLD`].
    since: Instant,
    lasts: bool,
    /// When the next try is due.
    due: Instant,
}

/// So long etcd is asked again at once: a learner is typically in sync 50 ms after it serves.
const SOON_READY: Duration = Duration::from_secs(1);

/// So long a refusal is daily life, and asked about every half second: etcd calls a peer unhealthy for its first five seconds
/// (server/etcdserver: HealthInterval).
const ORDINARY: Duration = Duration::from_secs(6);

/// From then on etcd's words are told.
const TOLD: Duration = Duration::from_secs(15);

/// Longest message of a failure in a condition.
const MAX_TROUBLE: usize = 600;

impl Backoff {
    /// Notes a failure and says when to try again. `luck` is in `0.0..1.0`.
    pub(super) fn failed(&self, object: &str, error: &Error, now: Instant, luck: f64) -> Duration {
        self.note(object, error.class(), &error.to_string(), error.asked_to_wait(), now, luck)
    }

    /// The same of what etcd was not ready for.
    pub(super) fn not_yet(&self, object: &str, why: &str, now: Instant, luck: f64) -> Duration {
        self.note(object, Class::NotYet, &format!("etcd is not ready for the next step: {why}"), None, now, luck)
    }

    fn note(
        &self,
        object: &str,
        class: Class,
        message: &str,
        asked: Option<Duration>,
        now: Instant,
        luck: f64,
    ) -> Duration {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let row = rows.entry(object.to_owned()).or_insert(Row {
            class,
            times: 0,
            message: String::new(),
            since: now,
            lasts: false,
            due: now,
        });
        row.message = message.chars().take(MAX_TROUBLE).collect();
        // Woken by an event before the next try was due: that is no further failure in the row.
        if row.class == class && row.times > 0 && now < row.due {
            return row.due - now;
        }
        // Another class is another trouble: it starts anew.
        if row.class != class {
            (row.class, row.times, row.since) = (class, 0, now);
        }
        let lasted = now.saturating_duration_since(row.since);
        row.lasts = lasted >= TOLD;
        let wait = match class {
            Class::NotYet if lasted < SOON_READY => class.bounds().0,
            Class::NotYet if lasted < ORDINARY => Duration::from_millis(500),
            _ => {
                row.times = row.times.saturating_add(1);
                wait(class, row.times - 1, luck)
            }
        };
        let wait = asked.map_or(wait, |asked| asked.max(wait));
        row.due = now + wait;
        wait
    }

    /// What keeps an object's passes from getting on, and does not pass by itself soon: told in its conditions.
    pub(super) fn trouble(&self, object: &str) -> Option<(Reason, String)> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let row = rows.get(object)?;
        let reason = match row.class {
            Class::NameConflict => Reason::NameConflict,
            Class::Denied | Class::Invalid => Reason::WriteRefused,
            Class::NotYet if row.lasts => Reason::WaitingForEtcd,
            Class::NotYet
            | Class::Conflict
            | Class::Throttled
            | Class::Unavailable
            | Class::Timeout
            | Class::Gone
            | Class::Etcd
            | Class::NotLeader
            | Class::Internal => return None,
        };
        Some((reason, row.message.clone()))
    }

    /// Forgets an object's failures.
    pub(super) fn clear(&self, object: &str) {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
    }
}

/// The wait after `before` earlier failures in a row: doubled each time, up to the longest of the class.
fn wait(class: Class, before: u32, luck: f64) -> Duration {
    let (first, longest) = class.bounds();
    let grown = first.saturating_mul(2_u32.saturating_pow(before.min(16)));
    jitter(grown.min(longest), luck)
}

/// A fifth more or less, so that many objects that failed together do not come back together.
pub(super) fn jitter(wait: Duration, luck: f64) -> Duration {
    wait.mul_f64(0.8 + 0.4 * luck.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::clock;

    fn api(code: u16) -> Error {
        let status = Status { code, ..Default::default() };
        Error::kube("test", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn codes_have_classes() {
        for (code, class) in [
            (409, Class::Conflict),
            (404, Class::Gone),
            (429, Class::Throttled),
            (403, Class::Denied),
            (422, Class::Invalid),
            (504, Class::Timeout),
            (500, Class::Unavailable),
            (503, Class::Unavailable),
        ] {
            assert_eq!(api(code).class(), class, "{code}");
        }
    }

    #[test]
    fn people_read_the_servers_own_sentence() {
        let status = Status { code: 403, message: "exceeded quota: q".to_owned(), ..Default::default() };
        let error = Error::kube("create Pod a", kube::Error::Api(Box::new(status)));
        assert_eq!(error.to_string(), "create Pod a: exceeded quota: q");
    }

    #[test]
    fn waits_double_up_to_a_bound() {
        for class in Class::ALL {
            let (first, longest) = class.bounds();
            assert_eq!(wait(class, 0, 0.5), first, "{class:?}");
            assert_eq!(wait(class, 40, 0.5), longest, "{class:?}");
            assert!(longest <= Duration::from_mins(1) && first >= Duration::from_millis(100), "{class:?}");
        }
        assert_eq!(wait(Class::Etcd, 1, 0.5), Duration::from_millis(400));
        assert_eq!(wait(Class::Etcd, 3, 0.0), Duration::from_millis(1280));
    }

    #[test]
    fn success_and_another_class_start_anew() {
        let table = Backoff::default();
        let conflict = api(409);
        let start = clock::instant();
        // Each try happens when it is due, far apart.
        let at = |n: u64| start + Duration::from_mins(n);
        assert_eq!(table.failed("a", &conflict, at(1), 0.5), Duration::from_millis(100));
        assert_eq!(table.failed("a", &conflict, at(2), 0.5), Duration::from_millis(200));
        assert_eq!(table.failed("b", &conflict, at(3), 0.5), Duration::from_millis(100));
        assert_eq!(table.failed("a", &api(500), at(4), 0.5), Duration::from_millis(200));
        assert_eq!(table.failed("a", &conflict, at(5), 0.5), Duration::from_millis(100));
        table.clear("a");
        assert_eq!(table.failed("a", &conflict, at(6), 0.5), Duration::from_millis(100));
    }

    #[test]
    fn what_etcd_is_not_ready_for_is_asked_soon_then_ever_more_rarely_and_told() {
        let (table, start) = (Backoff::default(), clock::instant());
        let (mut waited, mut asked) = (Duration::ZERO, 0);
        while waited < Duration::from_mins(2) {
            let wait = table.not_yet("a", "etcdserver: unhealthy cluster", start + waited, 0.5);
            assert_eq!(table.trouble("a").is_some(), waited >= TOLD, "{waited:?}");
            assert!(wait <= Duration::from_millis(500) || waited >= ORDINARY, "{waited:?}");
            (waited, asked) = (waited + wait, asked + 1);
        }
        assert!((20..50).contains(&asked), "{asked} times in two minutes");
        assert_eq!(table.not_yet("a", "no", start + waited, 0.5), Duration::from_secs(10));
        let (reason, message) = table.trouble("a").unwrap();
        assert_eq!((reason, message.as_str()), (Reason::WaitingForEtcd, "etcd is not ready for the next step: no"));
    }

    #[test]
    fn events_in_between_are_no_further_failures() {
        let table = Backoff::default();
        let start = clock::instant();
        assert_eq!(table.failed("a", &api(403), start, 0.5), Duration::from_secs(2));
        assert_eq!(table.failed("a", &api(403), start + Duration::from_millis(500), 0.5), Duration::from_millis(1500));
        assert_eq!(table.failed("a", &api(403), start + Duration::from_secs(2), 0.5), Duration::from_secs(4));
    }

    #[test]
    fn what_needs_a_person_is_told_until_it_works() {
        let table = Backoff::default();
        table.failed("a", &api(409), clock::instant(), 0.5);
        assert_eq!(table.trouble("a"), None);
        table.failed("a", &api(403), clock::instant(), 0.5);
        assert_eq!(table.trouble("a").map(|t| t.0), Some(Reason::WriteRefused));
        table.failed("a", &Error::NameConflict("Pod a belongs to somebody else".to_owned()), clock::instant(), 0.5);
        assert_eq!(table.trouble("a"), Some((Reason::NameConflict, "Pod a belongs to somebody else".to_owned())));
        table.clear("a");
        assert_eq!(table.trouble("a"), None);
    }

    #[test]
    fn the_servers_wish_counts_when_it_is_longer() {
        let mut status = Status { code: 429, ..Default::default() };
        status.details = serde_json::from_str("{\"retryAfterSeconds\": 7}").unwrap();
        let error = Error::kube("test", kube::Error::Api(Box::new(status)));
        assert_eq!(Backoff::default().failed("a", &error, clock::instant(), 0.5), Duration::from_secs(7));
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::HashSet<_> = Class::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(labels.len(), Class::ALL.len());
    }
}
