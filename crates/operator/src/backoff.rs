//! Retry delays per object, and how long a failure must last before it becomes a condition.
//!
//! Decides both. `error` has the classes of failures; `reconcile` writes the conditions.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdfast_api::condition::Reason;
use holdfast_kube::kinds::Object;

use super::clock::Instant;
use super::error::{Class, Error, Verdict};

/// Failures in a row of each object's passes, with their class. The only memory between passes of these counts; losing it makes
/// retries come sooner.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    entries: Mutex<HashMap<String, Entry>>,
}

/// Returns the key of an object's entry.
pub(super) fn key<K: Object>(namespace: &str, name: &str) -> String {
    format!("{}/{namespace}/{name}", K::NAME)
}

/// One failure.
struct Failure<'a> {
    class: Class,
    verdict: Verdict,
    words: &'a str,
    /// Delay that the API server requested; zero without a request.
    asked: Duration,
}

/// One object's failures in a row.
#[derive(Debug)]
struct Entry {
    class: Class,
    times: u32,
    /// First failure of this class in the row.
    since: Instant,
    /// Time of the next try.
    due: Instant,
    trouble: Option<Trouble>,
}

/// The lasting failure of an object's writes.
#[derive(Debug)]
struct Trouble {
    reason: Reason,
    message: String,
    since: Instant,
    /// Whether the failure is a condition: a person has to act, or it has lasted [`REPORTED_AFTER`].
    is_reported: bool,
}

/// For this long etcd is asked again at once: a learner is typically in sync 50 ms after it starts to serve.
const SOON_READY: Duration = Duration::from_secs(1);

/// For this long a refusal is ordinary, and the operator asks every half second: etcd calls a peer unhealthy for its first five
/// seconds (server/etcdserver: HealthInterval).
const ORDINARY: Duration = Duration::from_secs(6);

/// A transient failure becomes a condition once it has lasted this long.
const REPORTED_AFTER: Duration = Duration::from_secs(15);

/// Longest message of a failure in a condition.
const MAX_TROUBLE: usize = 600;

impl Backoff {
    /// Notes a failure and returns the delay of the next try. `luck` is in `0.0..1.0`.
    pub(super) fn failed(&self, object: &str, error: &Error, now: Instant, luck: f64) -> Duration {
        let words = match error {
            Error::Internal(_) => format!("a defect of the operator keeps it from going on: {error}"),
            _ => error.to_string(),
        };
        let asked = error.asked_to_wait().unwrap_or_default();
        self.note(object, &Failure { class: error.class(), verdict: error.verdict(), words: &words, asked }, now, luck)
    }

    /// Notes a step that etcd was not ready for, and returns the delay of the next try.
    pub(super) fn not_yet(&self, object: &str, why: &str, now: Instant, luck: f64) -> Duration {
        let words = format!("etcd is not ready for the next step: {why}");
        let (class, verdict) = (Class::NotYet, Class::NotYet.verdict());
        self.note(object, &Failure { class, verdict, words: &words, asked: Duration::ZERO }, now, luck)
    }

    /// Notes an act that the API server does not allow yet, and returns the delay of the next try.
    pub(super) fn held(&self, object: &str, why: &str, now: Instant, luck: f64) -> Duration {
        let verdict = Verdict::Passes(Reason::WriteRefused);
        self.note(object, &Failure { class: Class::NotYet, verdict, words: why, asked: Duration::ZERO }, now, luck)
    }

    fn note(&self, object: &str, failure: &Failure<'_>, now: Instant, luck: f64) -> Duration {
        let class = failure.class;
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry =
            entries.entry(object.to_owned()).or_insert(Entry { class, times: 0, since: now, due: now, trouble: None });
        entry.trouble = trouble(entry.trouble.take(), failure, now);
        // An event woke the pass before the next try was due: no further failure in the row.
        if entry.class == class && entry.times > 0 && now < entry.due {
            return entry.due - now;
        }
        // Another class starts a new row.
        if entry.class != class {
            (entry.class, entry.times, entry.since) = (class, 0, now);
        }
        let lasted = now.saturating_duration_since(entry.since);
        let wait = match class {
            Class::NotYet if lasted < SOON_READY => class.bounds().0,
            Class::NotYet if lasted < ORDINARY => Duration::from_millis(500),
            _ => {
                entry.times = entry.times.saturating_add(1);
                wait(class, entry.times - 1, luck)
            }
        };
        let wait = failure.asked.max(wait);
        entry.due = now + wait;
        wait
    }

    /// The lasting failure of an object's passes, as reason and message of a condition.
    pub(super) fn trouble(&self, object: &str) -> Option<(Reason, String)> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let trouble = entries.get(object)?.trouble.as_ref().filter(|trouble| trouble.is_reported)?;
        Some((trouble.reason, trouble.message.clone()))
    }

    /// How long etcd has not been ready for an object's next step.
    pub(super) fn refused_for(&self, object: &str, now: Instant) -> Option<Duration> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(object).filter(|entry| entry.class == Class::NotYet)?;
        Some(now.saturating_duration_since(entry.since))
    }

    /// Forgets an object's failures.
    pub(super) fn clear(&self, object: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
    }
}

/// The lasting failure of an object's writes after this failure.
fn trouble(before: Option<Trouble>, failure: &Failure<'_>, now: Instant) -> Option<Trouble> {
    let (reason, at_once) = match failure.verdict {
        Verdict::Nothing => return before,
        Verdict::Over => return None,
        Verdict::Needs(reason) => (reason, true),
        Verdict::Passes(reason) => (reason, false),
    };
    let message = failure.words.chars().take(MAX_TROUBLE).collect();
    let Some(before) = before.filter(|before| before.reason == reason) else {
        return Some(Trouble { reason, message, since: now, is_reported: at_once });
    };
    // An API server in trouble words each failure differently, and each text would be a write: the first reported text stays.
    let settled = before.is_reported && !at_once && failure.class != Class::NotYet;
    let is_reported = before.is_reported || at_once || now.saturating_duration_since(before.since) >= REPORTED_AFTER;
    Some(Trouble { message: if settled { before.message } else { message }, is_reported, ..before })
}

/// The delay after `before` earlier failures in a row: doubled each time, up to the longest of the class.
fn wait(class: Class, before: u32, luck: f64) -> Duration {
    let (first, longest) = class.bounds();
    let grown = first.saturating_mul(2_u32.saturating_pow(before.min(16)));
    jitter(grown.min(longest), luck)
}

/// Adds or subtracts up to a fifth, so that objects that failed together do not retry together.
pub(super) fn jitter(wait: Duration, luck: f64) -> Duration {
    wait.mul_f64(0.8 + 0.4 * luck.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::clock;

    fn api(code: u16) -> Error {
        let status = Status { code, ..Default::default() };
        Error::write("test", kube::Error::Api(Box::new(status)))
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
        // Each try comes when it is due; the tries are far apart.
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
            assert_eq!(table.trouble("a").is_some(), waited >= REPORTED_AFTER, "{waited:?}");
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

    /// A fail-closed webhook that is down, and an API server that does not answer writes.
    #[test]
    fn what_may_pass_is_told_when_it_has_lasted_and_in_the_same_words() {
        let down = |n: u32| {
            let message =
                format!("failed calling webhook \"w.example.org\": dial tcp 10.0.0.1:{n}: connection refused");
            let status = Status { code: 500, message, ..Default::default() };
            Error::write("create Pod a", kube::Error::Api(Box::new(status)))
        };
        let slow = |_: u32| Error::Timeout { what: "create Pod a".to_owned(), writes: true };
        let busy = |_: u32| api(429);
        let defect = |_: u32| Error::Internal("no latches".to_owned());
        let both = |n: u32| if n.is_multiple_of(2) { down(n) } else { slow(n) };
        let cases: [(&str, &dyn Fn(u32) -> Error); 5] =
            [("down", &down), ("slow", &slow), ("busy", &busy), ("defect", &defect), ("both", &both)];
        for (case, fails) in cases {
            let (table, start) = (Backoff::default(), clock::instant());
            let at = |seconds: u64| start + Duration::from_secs(seconds);
            for n in 0..15 {
                table.failed("a", &fails(n), at(u64::from(n)), 0.5);
                assert_eq!(table.trouble("a"), None, "{case}, {n} s");
            }
            table.failed("a", &fails(15), at(15), 0.5);
            let told = table.trouble("a").unwrap();
            assert_eq!(told.0, Reason::WriteRefused, "{case}");
            for n in 16..99 {
                table.failed("a", &fails(n), at(u64::from(n)), 0.5);
                assert_eq!(table.trouble("a").as_ref(), Some(&told), "{case}, {n} s: nothing is written anew");
            }
            // A conflict with another writer mends nothing.
            table.failed("a", &api(409), at(100), 0.5);
            assert_eq!(table.trouble("a"), Some(told), "{case}");
            table.clear("a");
            table.failed("a", &fails(0), at(101), 0.5);
            assert_eq!(table.trouble("a"), None, "{case}: it begins anew");
        }
        let (table, start) = (Backoff::default(), clock::instant());
        table.failed("a", &down(1), start, 0.5);
        table.failed("a", &down(2), start + REPORTED_AFTER, 0.5);
        let (_, message) = table.trouble("a").unwrap();
        assert!(message.starts_with("create Pod a: failed calling webhook \"w.example.org\": dial"), "{message}");
    }

    #[test]
    fn a_read_that_failed_is_never_told_as_a_refused_write() {
        let read = |code| {
            let status = Status { code, ..Default::default() };
            Error::read("get Pod a", kube::Error::Api(Box::new(status)))
        };
        let late = || Error::Timeout { what: "get Pod a".to_owned(), writes: false };
        let (table, start) = (Backoff::default(), clock::instant());
        for (n, error) in [read(403), read(401), read(500), late(), read(403)].into_iter().enumerate() {
            table.failed("a", &error, start + REPORTED_AFTER * u32::try_from(n).unwrap(), 0.5);
            assert_eq!(table.trouble("a"), None, "{error}");
        }
        // A failed read does not clear the trouble with writes.
        table.failed("a", &api(403), start, 0.5);
        let told = table.trouble("a");
        table.failed("a", &read(500), start, 0.5);
        assert_eq!((told.is_some(), table.trouble("a")), (true, told));
    }

    #[test]
    fn the_servers_wish_counts_when_it_is_longer() {
        let mut status = Status { code: 429, ..Default::default() };
        status.details = serde_json::from_str("{\"retryAfterSeconds\": 7}").unwrap();
        let error = Error::write("test", kube::Error::Api(Box::new(status)));
        assert_eq!(Backoff::default().failed("a", &error, clock::instant(), 0.5), Duration::from_secs(7));
    }
}
