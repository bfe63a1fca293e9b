//! The part of a log that no restore to a point in time needs any more.
//!
//! This file decides from the names of a log's objects and from the snapshots that stay. The log after the oldest of these
//! snapshots stays; an age limit removes more, but nothing after the newest proven snapshot (I25). Times count as well as revisions:
//! the segments of an idle etcd all end at one revision, and the later ones hold the times after a snapshot.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::layout::{GapName, SegmentName, check_revision};

/// A segment whose time is later than now by more was written with a wrong clock.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(15);

/// A snapshot that stays, with a revision of the log's etcd cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBase {
    /// Newest revision in the snapshot.
    pub revision: i64,
    /// Beginning of the save; of a merge the time of its state.
    pub started_at: Timestamp,
    /// Whether the snapshot is proven, and no verification contradicts.
    pub proven: bool,
}

/// The beginning of a log that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogCut {
    /// A segment that ends at a later revision stays.
    pub revision: i64,
    /// A segment of this time or a later one stays.
    pub before: Timestamp,
}

impl LogCut {
    /// Returns what both cuts remove.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { revision: self.revision.min(other.revision), before: self.before.min(other.before) }
    }

    /// Whether the segment may go.
    pub fn removes(&self, segment: &SegmentName) -> bool {
        segment.last <= self.revision && segment.at < self.before
    }

    /// Whether the gap or the check of this path below the log may go. A check of the snapshot's own revision stays.
    pub fn removes_record(&self, path: &str) -> bool {
        let gap = GapName::parse(path).is_some_and(|gap| gap.until <= self.revision);
        gap || check_revision(path).is_some_and(|at| at < self.revision)
    }
}

/// The young part of a log under an age limit, added one folder at a time, so that no run holds all names of a long log.
#[derive(Clone, Debug)]
pub struct LogAge {
    within: SignedDuration,
    /// A segment of a later time was written with a wrong clock.
    ahead: Timestamp,
    /// Time before which a segment is old; `None`: no segment has a time that counts.
    limit: Option<Timestamp>,
    /// Lowest first revision of the young segments.
    young: Option<i64>,
    /// The segment with the newest revision.
    newest: Option<SegmentName>,
    is_complete: bool,
}

impl LogAge {
    /// Begins without a segment.
    pub fn new(within: SignedDuration, now: Timestamp) -> Self {
        let ahead = now.checked_add(CLOCKS_DIFFER).unwrap_or(Timestamp::MAX);
        Self { within, ahead, limit: None, young: None, newest: None, is_complete: false }
    }

    /// Adds the segments of a folder. The folder of the last day comes first: it holds the end of the log.
    pub fn add(&mut self, segments: &[SegmentName]) {
        let dated = || segments.iter().filter(|segment| segment.at <= self.ahead);
        let end = dated().map(|segment| segment.at).max();
        let limit = self.limit.or_else(|| end?.checked_sub(self.within).ok());
        let young = dated().filter(|segment| limit.is_some_and(|limit| segment.at >= limit));
        let young = young.map(|segment| segment.first).chain(self.young).min();
        let newest = self.newest.iter().chain(segments);
        // At one revision a right clock counts.
        let newest = newest.max_by_key(|segment| (segment.last, segment.at <= self.ahead)).cloned();
        self.is_complete = end.zip(limit).is_some_and(|(end, limit)| end < limit);
        (self.limit, self.young, self.newest) = (limit, young, newest);
    }

    /// Whether every earlier folder is old.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the segment with the newest revision, if a wrong clock dated it: then the end of the log has no time.
    pub fn wrongly_dated(&self) -> Option<&SegmentName> {
        self.newest.as_ref().filter(|newest| newest.at > self.ahead)
    }
}

/// Decides the beginning of a log that may go. `None`: the whole log stays, because no snapshot precedes it.
pub fn find_log_cut(bases: &[LogBase], age: Option<&LogAge>) -> Option<LogCut> {
    let oldest = bases.iter().min_by_key(|base| (base.revision, base.started_at))?;
    let by_base = LogCut { revision: oldest.revision, before: oldest.started_at };
    let by_age = age.and_then(|age| cut_by_age(bases, age));
    Some(by_age.filter(|cut| cut.revision >= by_base.revision && cut.before > by_base.before).unwrap_or(by_base))
}

/// Returns the beginning of a log that is older than its end by more than the limit.
fn cut_by_age(bases: &[LogBase], age: &LogAge) -> Option<LogCut> {
    let limit = age.limit.filter(|_| age.wrongly_dated().is_none())?;
    let newest = bases.iter().filter(|base| base.proven).max_by_key(|base| (base.revision, base.started_at))?;
    // Clocks of two writers may differ: whatever an older segment shares with a younger one stays.
    let old = age.young.map_or(newest.revision, |first| first.saturating_sub(1));
    Some(LogCut { revision: old.min(newest.revision), before: limit.min(newest.started_at) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn segment(first: i64, last: i64, second: i64) -> SegmentName {
        SegmentName { first, last, at: at(second), run8: "a".to_owned(), encrypted: false, tail: None }
    }

    fn base(revision: i64, second: i64) -> LogBase {
        LogBase { revision, started_at: at(second), proven: true }
    }

    /// Decides as a run does at this second: one folder for each hour, the last one first.
    fn cut(bases: &[LogBase], segments: &[SegmentName], within: Option<i64>, now: i64) -> Option<LogCut> {
        let hour = |segment: &SegmentName| segment.at.as_second() / 3600;
        let mut hours: Vec<i64> = segments.iter().map(hour).collect();
        hours.sort_unstable();
        hours.dedup();
        let age = within.map(|within| {
            let mut age = LogAge::new(SignedDuration::from_secs(within), at(now));
            for one in hours.iter().rev() {
                if age.is_complete() {
                    break;
                }
                age.add(&segments.iter().filter(|segment| hour(segment) == *one).cloned().collect::<Vec<_>>());
            }
            age
        });
        find_log_cut(bases, age.as_ref())
    }

    fn left(bases: &[LogBase], segments: &[SegmentName], within: Option<i64>) -> Vec<i64> {
        left_at(bases, segments, within, 40)
    }

    fn left_at(bases: &[LogBase], segments: &[SegmentName], within: Option<i64>, now: i64) -> Vec<i64> {
        let cut = cut(bases, segments, within, now);
        segments.iter().filter(|segment| !cut.is_some_and(|cut| cut.removes(segment))).map(|it| it.last).collect()
    }

    #[test]
    fn the_log_after_the_oldest_snapshot_stays() {
        let log = [segment(2, 10, 10), segment(11, 20, 20), segment(21, 30, 30), segment(31, 40, 40)];
        let all = vec![10, 20, 30, 40];
        assert_eq!(left(&[], &log, None), all, "without a snapshot all stays");
        assert_eq!(left(&[base(25, 25), base(35, 35)], &log, None), [30, 40]);
        assert_eq!(left(&[base(30, 30)], &log, None), [30, 40], "its time is that of the save");
        assert_eq!(left(&[base(30, 31)], &log, None), [40]);
        // The age limit removes more, and nothing after the newest proven snapshot.
        assert_eq!(left(&[base(1, 1), base(35, 35)], &log, Some(15)), [30, 40]);
        assert_eq!(left(&[base(1, 1), base(35, 35)], &log, Some(1000)), all);
        assert_eq!(left(&[base(1, 1), base(15, 15)], &log, Some(0)), [20, 30, 40]);
        let unproven = LogBase { proven: false, ..base(35, 35) };
        assert_eq!(left(&[base(1, 1), unproven], &log, Some(0)), all, "the newest proven one is the oldest");
        assert_eq!(left(&[unproven], &log, Some(0)), [40]);
    }

    #[test]
    fn the_times_after_the_snapshot_of_an_idle_etcd_stay() {
        let idle = [segment(8, 7, 10), segment(8, 7, 20), segment(8, 7, 30)];
        let left = |bases: &[LogBase], within: Option<i64>| {
            let cut = cut(bases, &idle, within, 40).unwrap();
            idle.iter().filter(|segment| !cut.removes(segment)).map(|it| it.at.as_second()).collect::<Vec<_>>()
        };
        assert_eq!(left(&[base(7, 15)], None), [20, 30]);
        assert_eq!(left(&[base(7, 15)], Some(0)), [20, 30], "they follow the newest proven snapshot");
    }

    /// A segment of the year after is neither the end of the log nor young.
    #[test]
    fn a_wrong_clock_does_not_age_the_log() {
        let (bases, year) = ([base(1, 1), base(35, 35 * 3600)], 365 * 24 * 3600);
        let hourly = |last: i64| segment(last - 9, last, last * 3600);
        let right = [hourly(10), hourly(20), hourly(30), hourly(40)];
        let left = |log: &[SegmentName]| left_at(&bases, log, Some(15 * 3600), 40 * 3600);
        assert_eq!(left(&right), [30, 40]);
        // Its clock is wrong by a year.
        let wrong = |segment: &SegmentName| SegmentName { at: at(segment.at.as_second() + year), ..segment.clone() };
        let [one, two, three, four] = &right;
        assert_eq!(left(&[one.clone(), wrong(two), three.clone(), four.clone()]), [20, 30, 40], "only this one stays");
        let newest = [one.clone(), two.clone(), three.clone(), wrong(four)];
        assert_eq!(left(&newest), [10, 20, 30, 40], "the end of the log has no time");
        let mut age = LogAge::new(SignedDuration::from_hours(15), at(40 * 3600));
        age.add(&newest);
        assert_eq!(age.wrongly_dated(), newest.last());
        // The next segment of an idle etcd, by a right clock.
        let next = segment(41, 40, 40 * 3600 + 60);
        let continued: Vec<_> = newest.iter().cloned().chain([next]).collect();
        assert_eq!(left(&continued), [30, 40, 40]);
        // A clock that differs by less counts.
        let little = SegmentName { at: at(40 * 3600 + 900), ..four.clone() };
        assert_eq!(left(&[one.clone(), two.clone(), three.clone(), little]), [30, 40]);
    }

    #[test]
    fn gaps_and_checks_go_with_the_revisions_that_they_explain() {
        let cut = LogCut { revision: 30, before: at(30) };
        let name = |folder: &str, numbers: &[i64]| {
            let digits: Vec<String> = numbers.iter().map(|number| format!("{number:020}")).collect();
            format!("{folder}/{}-a.json", digits.join("-"))
        };
        for (path, goes) in [
            (name("gaps", &[20, 30]), true),
            (name("gaps", &[20, 31]), false),
            (name("checks", &[29]), true),
            (name("checks", &[30]), false),
            ("cluster.json".to_owned(), false),
            ("closed.json".to_owned(), false),
        ] {
            assert_eq!(cut.removes_record(&path), goes, "{path}");
        }
        let later = LogCut { revision: 20, before: at(40) };
        assert_eq!(cut.and(later), LogCut { revision: 20, before: at(30) });
    }

    proptest! {
        /// Any log that writers with wrong clocks wrote, any snapshots: what continues a snapshot that stays is never removed,
        /// and with an age limit what continues the newest proven one.
        #[test]
        fn a_snapshot_that_stays_is_continued_as_far_as_before(
            pieces in prop::collection::vec((1..40_i64, 0..8_i64, 0..60_i64), 1..12),
            bases in prop::collection::vec((1..45_i64, 0..60_i64, any::<bool>()), 1..4),
            within in prop::option::of(0..40_i64), until in 0..12_usize, now in -1000..100_i64,
        ) {
            let mut log: Vec<_> = pieces.iter().map(|(first, length, second)| segment(*first, first + length - 1, *second)).collect();
            log.sort_by_key(|segment| (segment.last, segment.first));
            let bases: Vec<_> = bases.into_iter().map(|(revision, second, proven)| LogBase { revision, started_at: at(second), proven }).collect();
            let cut = cut(&bases, &log, within, now).unwrap();
            let holds = |log: &[SegmentName], revision: i64| log.iter().any(|s| s.first <= revision && revision <= s.last);
            // A removal that ends anywhere, in the order of the last revisions.
            let gone: Vec<_> = log.iter().filter(|segment| cut.removes(segment)).take(until).collect();
            let rest: Vec<_> = log.iter().filter(|segment| !gone.contains(segment)).cloned().collect();
            let from = match within {
                None => bases.iter().map(|base| base.revision).min(),
                Some(_) => bases.iter().filter(|base| base.proven).map(|base| base.revision).max(),
            };
            for revision in from.into_iter().flat_map(|from| from + 1..60) {
                prop_assert_eq!(holds(&rest, revision), holds(&log, revision), "{}", revision);
            }
            // No new hole between two revisions that stay.
            if let Some(last) = gone.iter().map(|segment| segment.last).max() {
                for revision in last + 1..60 {
                    prop_assert_eq!(holds(&rest, revision), holds(&log, revision), "{}", revision);
                }
            }
        }
    }
}
