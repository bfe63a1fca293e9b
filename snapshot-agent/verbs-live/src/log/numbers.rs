//! The state of a running log: as OpenMetrics text for Prometheus, and as JSON for the operator.
//!
//! This file decides names and units, and what counts as the lag: the age of the end of the stored log, which begins with the log that
//! an earlier run stored. `archive.rs` and `deliver.rs` count.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_contract::error::Error;
use holdfast_contract::{LAG_STEP_SECONDS, LogGap, LogProblem, LogReport, hex_id};
use holdfast_layout::SegmentName;
use jiff::Timestamp;

/// Minutes whose largest lag counts.
const MINUTES: i64 = 10;

/// State of one run.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The last recorded revision.
    pub(super) recorded: AtomicI64,
    /// Stored bytes of segments.
    pub(super) bytes: AtomicU64,
    /// Stored segments.
    pub(super) segments: AtomicU64,
    /// Gaps.
    pub(super) gaps: AtomicU64,
    /// Stored bytes that wait.
    pub(super) spool_bytes: AtomicU64,
    facts: Mutex<Facts>,
}

/// Facts that change together.
#[derive(Debug, Default)]
struct Facts {
    cluster_id: Option<String>,
    /// The last stored revision, and the time up to which the stored log is complete.
    stored: Option<(i64, Timestamp)>,
    /// The newest gap.
    gap: Option<LogGap>,
    of_store: Option<LogProblem>,
    of_watch: Option<LogProblem>,
    lags: Lags,
}

/// The largest lags of the last minutes: minute since 1970, and seconds.
#[derive(Debug, Default)]
struct Lags(VecDeque<(i64, u64)>);

impl Lags {
    fn note(&mut self, now: Timestamp, until: Timestamp) {
        let minute = now.as_second().div_euclid(60);
        let lag = u64::try_from(now.duration_since(until).as_secs()).unwrap_or_default();
        match self.0.back_mut().filter(|(last, _)| *last == minute) {
            Some((_, largest)) => *largest = lag.max(*largest),
            None => self.0.push_back((minute, lag)),
        }
        while self.0.front().is_some_and(|(first, _)| *first <= minute.saturating_sub(MINUTES)) {
            self.0.pop_front();
        }
    }

    fn largest(&self) -> Option<u64> {
        self.0.iter().map(|(_, lag)| *lag).max()
    }
}

/// Side on which a problem stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// etcd and the watch.
    Watch,
    /// The store.
    Store,
}

impl Numbers {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the log as this run finds it: its etcd cluster, its newest stored segment and its newest gap.
    pub(super) fn begin(&self, cluster_id: u64, stored: Option<&SegmentName>, gap: Option<LogGap>) {
        let mut facts = self.facts();
        facts.cluster_id = Some(hex_id(cluster_id));
        facts.stored = stored.map(|segment| (segment.last, segment.at));
        facts.gap = gap;
    }

    /// Counts a stored segment.
    pub(super) fn count(&self, segment: &SegmentName, bytes: u64, now: Timestamp) {
        let mut facts = self.facts();
        // Right before the end moves the lag is largest.
        let Facts { lags, stored, .. } = &mut *facts;
        if let Some((_, until)) = stored {
            lags.note(now, *until);
        }
        // The later revision decides, and not the later time: the clock of an earlier run may have been ahead.
        if stored.is_none_or(|(last, _)| segment.last >= last) {
            *stored = Some((segment.last, segment.at));
        }
        self.bytes.fetch_add(bytes, Relaxed);
        self.segments.fetch_add(1, Relaxed);
    }

    /// Counts a gap.
    pub(super) fn count_gap(&self, gap: LogGap) {
        self.facts().gap = Some(gap);
        self.gaps.fetch_add(1, Relaxed);
    }

    /// Notes a failure. The first message of a class stays: the following ones may differ in a number alone.
    pub(super) fn note_failure(&self, side: Side, error: &Error) {
        let mut facts = self.facts();
        let problem = facts.problem(side);
        if problem.as_ref().is_none_or(|known| known.class != error.class()) {
            *problem = Some(LogProblem { class: error.class(), message: error.message().to_owned() });
        }
    }

    /// Notes that a side works.
    pub(super) fn note_success(&self, side: Side) {
        *self.facts().problem(side) = None;
    }

    /// Returns the answer for the operator.
    pub(super) fn report(&self, now: Timestamp) -> LogReport {
        let mut facts = self.facts();
        let Facts { lags, stored, .. } = &mut *facts;
        if let Some((_, until)) = stored {
            lags.note(now, *until);
        }
        let recorded = self.recorded.load(Relaxed);
        LogReport {
            cluster_id: facts.cluster_id.clone(),
            recorded_revision: (recorded > 0).then_some(recorded),
            stored_revision: facts.stored.map(|(revision, _)| revision),
            stored_until: facts.stored.map(|(_, until)| until),
            largest_lag_seconds: facts.lags.largest().map(|lag| lag.next_multiple_of(LAG_STEP_SECONDS)),
            spool_bytes: self.spool_bytes.load(Relaxed),
            segments: self.segments.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            gap: facts.gap.clone(),
            problem: facts.of_store.clone().or_else(|| facts.of_watch.clone()),
        }
    }

    /// Renders the numbers. A log without a segment has no revision and no lag.
    pub(super) fn render(&self, now: Timestamp) -> String {
        let stored = self.facts().stored;
        let lag = stored.map(|(_, until)| now.duration_since(until).as_secs().max(0));
        let counted = |number: &AtomicU64| Some(number.load(Relaxed).cast_signed());
        let mut out = String::new();
        for (name, kind, help, value) in [
            ("revision", "gauge", "The last stored revision.", stored.map(|(revision, _)| revision)),
            ("recorded_revision", "gauge", "The last recorded revision.", Some(self.recorded.load(Relaxed))),
            ("lag_seconds", "gauge", "Age of the end of the stored log.", lag),
            ("bytes_total", "counter", "Stored bytes of segments.", counted(&self.bytes)),
            ("segments_total", "counter", "Stored segments.", counted(&self.segments)),
            ("gaps_total", "counter", "Gaps: etcd had compacted revisions.", counted(&self.gaps)),
            ("spool_bytes", "gauge", "Bytes that wait for the store.", counted(&self.spool_bytes)),
        ] {
            let Some(value) = value else { continue };
            let family = name.strip_suffix("_total").unwrap_or(name);
            let _ = writeln!(out, "# HELP holdfast_log_{family} {help}\n# TYPE holdfast_log_{family} {kind}");
            let _ = writeln!(out, "holdfast_log_{name} {value}");
        }
        out + "# EOF\n"
    }
}

impl Facts {
    const fn problem(&mut self, side: Side) -> &mut Option<LogProblem> {
        match side {
            Side::Watch => &mut self.of_watch,
            Side::Store => &mut self.of_store,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn segment(last: i64, second: i64) -> SegmentName {
        SegmentName { first: 2, last, at: at(second), run8: "aaaabbbb".to_owned(), encrypted: false, tail: None }
    }

    #[test]
    fn the_lag_is_the_age_of_the_stored_end_also_of_an_earlier_run() {
        let numbers = Numbers::default();
        let text = numbers.render(at(130));
        assert!(!text.contains("lag_seconds") && !text.contains("holdfast_log_revision"), "{text}");
        assert_eq!(numbers.report(at(130)), LogReport::default(), "nothing is known before the log is listed");
        numbers.begin(0xcafe, Some(&segment(7, 100)), None);
        let text = numbers.render(at(130));
        for line in ["holdfast_log_lag_seconds 30", "holdfast_log_revision 7", "# TYPE holdfast_log_bytes counter"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let report = numbers.report(at(130));
        assert_eq!((report.stored_revision, report.stored_until), (Some(7), Some(at(100))));
        assert_eq!(report.cluster_id, Some(hex_id(0xcafe)));
    }

    #[test]
    fn the_largest_lag_is_that_before_a_segment_and_counts_ten_minutes() {
        let numbers = Numbers::default();
        numbers.begin(1, Some(&segment(7, 0)), None);
        numbers.count(&segment(9, 40), 100, at(42));
        let largest = |second| numbers.report(at(second)).largest_lag_seconds;
        assert_eq!(largest(43), Some(45), "42 s, rounded up");
        numbers.count(&segment(9, 590), 100, at(42 + 9 * 60));
        numbers.count(&segment(9, 640), 100, at(642));
        assert_eq!(largest(42 + 9 * 60), Some(545));
        numbers.count(&segment(11, 1300), 100, at(1301));
        assert_eq!(largest(1301), Some(665), "an outage of the store");
        assert_eq!(largest(1301 + 10 * 60), Some(605), "the present lag, and not the earlier one");
        assert_eq!((numbers.report(at(1301)).segments, numbers.report(at(1301)).bytes), (4, 400));
    }

    #[test]
    fn the_log_ends_at_the_time_of_its_last_revision() {
        let numbers = Numbers::default();
        numbers.begin(1, Some(&segment(7, 9000)), None);
        for (last, second, end) in [(9, 100, (9, 100)), (9, 110, (9, 110)), (8, 200, (9, 110))] {
            numbers.count(&segment(last, second), 1, at(120));
            let report = numbers.report(at(120));
            assert_eq!((report.stored_revision, report.stored_until), (Some(end.0), Some(at(end.1))));
        }
    }

    #[test]
    fn a_problem_stands_until_its_side_works() {
        let numbers = Numbers::default();
        numbers.note_failure(Side::Watch, &Error::transient("no member answers"));
        numbers.note_failure(Side::Store, &Error::transient("request 1 failed"));
        numbers.note_failure(Side::Store, &Error::transient("request 2 failed"));
        let told = || numbers.report(at(0)).problem.map(|problem| problem.message);
        assert_eq!(told().as_deref(), Some("request 1 failed"));
        numbers.note_success(Side::Store);
        assert_eq!(told().as_deref(), Some("no member answers"));
        numbers.note_success(Side::Watch);
        assert_eq!(told(), None);
    }
}
