//! The part of a log that no restore to a point in time needs any more.
//!
//! This file decides from the names of a log's objects and from the snapshots that stay. The log after the oldest of these
//! snapshots stays; an age limit removes more, but nothing after the newest proven snapshot (I25), and nothing between a held
//! snapshot and the next proven one. The limit is that of the lineage, whichever schedule has it. Times count as well as revisions:
//! the segments of an idle etcd all end at one revision, and the later ones hold the times after a snapshot.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{GapName, SegmentName, check_revision};

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
    /// Whether a user holds the snapshot, or the request protects it.
    pub held: bool,
}

/// The beginning of a log that may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogCut {
    /// A segment that ends at a later revision stays.
    pub revision: i64,
    /// A segment of this time or a later one stays.
    pub before: Timestamp,
    /// Parts that stay, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptLog>,
}

/// The log between a held snapshot and the next proven one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptLog {
    /// Revision of the held snapshot.
    pub after: i64,
    /// Time of the held snapshot.
    pub since: Timestamp,
    /// Revision of the next one.
    pub until: i64,
    /// Time of the next one.
    pub before: Timestamp,
}

impl KeptLog {
    fn has(&self, segment: &SegmentName) -> bool {
        let is_earlier = segment.last <= self.after && segment.at < self.since;
        let is_later = segment.first > self.until && segment.at >= self.before;
        !is_earlier && !is_later
    }
}

impl LogCut {
    /// Whether the segment may go.
    pub fn removes(&self, segment: &SegmentName) -> bool {
        let is_before = segment.last <= self.revision && segment.at < self.before;
        is_before && !self.kept.iter().any(|kept| kept.has(segment))
    }

    /// Whether the gap or the check of this path below the log may go. A check of a snapshot's own revision stays, and a gap behind
    /// a part that stays.
    pub fn removes_record(&self, path: &str) -> bool {
        let behind = |gap: &GapName| self.kept.iter().any(|kept| gap.until > kept.after);
        let gap = GapName::parse(path).is_some_and(|gap| gap.until <= self.revision && !behind(&gap));
        let needed = |at: i64| self.kept.iter().any(|kept| (kept.after..=kept.until).contains(&at));
        gap || check_revision(path).is_some_and(|at| at < self.revision && !needed(at))
    }

    /// Returns the holes behind the parts that stay, when the log is removed up to this revision.
    pub fn holes(&self, removed: i64) -> impl Iterator<Item = GapName> {
        let next = self.kept.iter().skip(1).map(|kept| kept.after).chain([i64::MAX]);
        let hole = move |(kept, next): (&KeptLog, i64)| {
            let gap = GapName { after: kept.until, until: removed.min(next), removed: true };
            (gap.after < gap.until).then_some(gap)
        };
        self.kept.iter().zip(next).filter_map(hole)
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
    let by_base = LogCut { revision: oldest.revision, before: oldest.started_at, kept: vec![] };
    let by_age = age.and_then(|age| cut_by_age(bases, age));
    Some(by_age.filter(|cut| cut.revision >= by_base.revision && cut.before > by_base.before).unwrap_or(by_base))
}

/// Returns the beginning of a log that is older than its end by more than the limit.
fn cut_by_age(bases: &[LogBase], age: &LogAge) -> Option<LogCut> {
    let limit = age.limit.filter(|_| age.wrongly_dated().is_none())?;
    let newest = bases.iter().filter(|base| base.proven).max_by_key(|base| (base.revision, base.started_at))?;
    // Clocks of two writers may differ: whatever an older segment shares with a younger one stays.
    let old = age.young.map_or(newest.revision, |first| first.saturating_sub(1));
    let revision = old.min(newest.revision);
    Some(LogCut { revision, before: limit.min(newest.started_at), kept: kept_before(bases, revision) })
}

/// Returns the log after each held snapshot of an earlier revision.
fn kept_before(bases: &[LogBase], revision: i64) -> Vec<KeptLog> {
    let place = |base: &LogBase| (base.revision, base.started_at);
    let mut held: Vec<&LogBase> = bases.iter().filter(|base| base.held && base.revision <= revision).collect();
    held.sort_by_key(|base| place(base));
    let kept = |base: &LogBase| {
        let later = bases.iter().filter(|next| next.proven && place(next) > place(base)).map(place);
        let (until, before) = later.min()?;
        Some(KeptLog { after: base.revision, since: base.started_at, until, before })
    };
    held.into_iter().filter_map(kept).collect()
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
        LogBase { revision, started_at: at(second), proven: true, held: false }
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
        let goes = |segment: &SegmentName| cut.as_ref().is_some_and(|cut| cut.removes(segment));
        segments.iter().filter(|segment| !goes(segment)).map(|it| it.last).collect()
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
    fn the_log_between_a_held_snapshot_and_the_next_one_stays() {
        let log: Vec<_> = (0..9).map(|n| segment(n * 10 + 1, n * 10 + 10, n * 10 + 10)).collect();
        let held = |revision| LogBase { held: true, ..base(revision, revision) };
        let left = |bases: &[LogBase], within| left_at(bases, &log, within, 90);
        assert_eq!(left(&[base(5, 5), base(25, 25), base(45, 45), base(85, 85)], Some(20)), [70, 80, 90]);
        let bases = [base(5, 5), held(25), base(45, 45), base(85, 85)];
        assert_eq!(left(&bases, Some(20)), [30, 40, 50, 70, 80, 90]);
        assert_eq!(left(&bases, None), [10, 20, 30, 40, 50, 60, 70, 80, 90], "the oldest snapshot counts");
        // The next snapshot has to be proven: otherwise the held one is the way to what follows.
        let unproven = LogBase { proven: false, ..base(45, 45) };
        assert_eq!(left(&[base(5, 5), held(25), unproven, base(85, 85)], Some(0)), [30, 40, 50, 60, 70, 80, 90]);
        assert_eq!(left(&[base(5, 5), held(85)], Some(0)), [90], "it is the newest");
        let two = cut(&[held(5), base(15, 15), held(45), base(55, 55), base(85, 85)], &log, Some(20), 90).unwrap();
        let kept: Vec<_> = log.iter().filter(|segment| !two.removes(segment)).map(|it| it.last).collect();
        assert_eq!(kept, [10, 20, 50, 60, 70, 80, 90]);
        let holes = |removed| two.holes(removed).map(|gap| (gap.after, gap.until)).collect::<Vec<_>>();
        assert_eq!(holes(40), [(15, 40)]);
        assert_eq!(holes(60), [(15, 45), (55, 60)]);
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
        let cut = LogCut { revision: 30, before: at(30), kept: vec![] };
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
        let kept = KeptLog { after: 10, since: at(10), until: 20, before: at(20) };
        let cut = LogCut { kept: vec![kept], ..cut };
        for (path, goes) in [
            (name("gaps", &[5, 9]), true),
            (name("gaps", &[5, 12]), false),
            (name("gaps", &[20, 30]), false),
            (name("checks", &[9]), true),
            (name("checks", &[10]), false),
            (name("checks", &[20]), false),
            (name("checks", &[21]), true),
        ] {
            assert_eq!(cut.removes_record(&path), goes, "{path}");
        }
    }

    proptest! {
        /// Any log that writers with wrong clocks wrote, any snapshots: what continues a snapshot that stays is never removed,
        /// and with an age limit what continues the newest proven one.
        #[test]
        fn a_snapshot_that_stays_is_continued_as_far_as_before(
            pieces in prop::collection::vec((1..40_i64, 0..8_i64, 0..60_i64), 1..12),
            bases in prop::collection::vec((1..45_i64, 0..60_i64, any::<bool>(), any::<bool>()), 1..5),
            within in prop::option::of(0..40_i64), until in 0..12_usize, now in -1000..100_i64,
        ) {
            let mut log: Vec<_> = pieces.iter().map(|(first, length, second)| segment(*first, first + length - 1, *second)).collect();
            log.sort_by_key(|segment| (segment.last, segment.first));
            let bases: Vec<_> = bases.into_iter().map(|(revision, second, proven, held)| LogBase { revision, started_at: at(second), proven, held }).collect();
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
            // No new hole between two revisions that stay, unless a record names it.
            if let Some(last) = gone.iter().map(|segment| segment.last).max() {
                for revision in last + 1..60 {
                    prop_assert_eq!(holds(&rest, revision), holds(&log, revision), "{}", revision);
                }
                let first = cut.kept.first().map_or(last, |kept| kept.after);
                for revision in first + 1..=last {
                    let is_named = cut.holes(last).any(|gap| gap.after < revision && revision <= gap.until);
                    prop_assert!(is_named || holds(&rest, revision) == holds(&log, revision), "{}", revision);
                }
            }
            // A held snapshot is continued up to the next proven one.
            let place = |base: &LogBase| (base.revision, base.started_at);
            for base in bases.iter().filter(|base| base.held) {
                let next = bases.iter().filter(|next| next.proven && place(next) > place(base)).map(place).min();
                for revision in base.revision + 1..=next.map_or(60, |(revision, _)| revision) {
                    prop_assert_eq!(holds(&rest, revision), holds(&log, revision), "{}", revision);
                }
            }
        }
    }
}
