//! The revisions that the segments of a log hold together.
//!
//! This file decides from names: segments of any writer are joined by their revisions, and may overlap. Contents are not
//! compared here; `agent verify --log` reads them.

use holdfast_layout::{GapName, SegmentName};
use jiff::Timestamp;
use serde::Serialize;

/// Revisions without a hole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    /// First revision.
    pub first: i64,
    /// Last revision; `first - 1`: the log has begun, and nothing has happened since.
    pub last: i64,
    /// Time up to which the range is known to be complete.
    pub until: Timestamp,
    /// Number of segments.
    pub segments: usize,
}

/// Revisions that no segment holds, between two ranges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hole {
    /// The revision before.
    pub after: i64,
    /// The last missing revision.
    pub until: i64,
    /// Whether the agent recorded that etcd had compacted these revisions.
    pub compacted: bool,
    /// Whether a prune recorded that it removed these revisions, or those that etcd had not compacted.
    pub removed: bool,
}

/// The joined segments of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// Ranges, in order; between two of them is a hole.
    pub ranges: Vec<Range>,
    /// Holes, in order.
    pub holes: Vec<Hole>,
    /// All segments, by their revisions.
    segments: Vec<SegmentName>,
}

impl Cover {
    /// Joins segments in any order.
    pub fn join(mut segments: Vec<SegmentName>, gaps: &[GapName]) -> Self {
        segments.sort_unstable();
        let mut ranges: Vec<Range> = Vec::new();
        for segment in &segments {
            match ranges.last_mut() {
                Some(range) if segment.first <= range.last.saturating_add(1) => {
                    range.last = range.last.max(segment.last);
                    range.until = range.until.max(segment.at);
                    range.segments += 1;
                }
                _ => {
                    let SegmentName { first, last, at, .. } = *segment;
                    ranges.push(Range { first, last, until: at, segments: 1 });
                }
            }
        }
        let hole = |pair: &[Range]| {
            let (after, until) = (pair[0].last, pair[1].first.saturating_sub(1));
            let compacted = explains(gaps, |gap| !gap.removed, after, until);
            let removed = !compacted && explains(gaps, |_| true, after, until);
            Hole { after, until, compacted, removed }
        };
        let holes = ranges.windows(2).map(hole).collect();
        Self { ranges, holes, segments }
    }

    /// Returns the cover of the other segments. Which of its holes had been compacted is not known.
    #[must_use]
    pub fn without(&self, segment: &SegmentName) -> Self {
        Self::join(self.segments.iter().filter(|other| *other != segment).cloned().collect(), &[])
    }

    /// Returns the range that continues a snapshot of this revision; `None`: the next revision is missing.
    pub fn range_after(&self, base: i64) -> Option<&Range> {
        self.ranges.iter().find(|range| range.first <= base.saturating_add(1) && base <= range.last)
    }

    /// Returns segments that hold every revision after `base` up to `target`, in order; `None`: a revision is missing. The
    /// first segment may begin earlier, the last may end later, and segments may overlap.
    pub fn chain(&self, base: i64, target: i64) -> Option<Vec<&SegmentName>> {
        let mut chain = Vec::new();
        let (mut reached, mut rest) = (base, self.segments.as_slice());
        while reached < target {
            let next = reached.saturating_add(1);
            let possible = rest.partition_point(|segment| segment.first <= next);
            let longest = rest.get(..possible)?.iter().max_by_key(|segment| segment.last)?;
            if longest.last < next {
                return None;
            }
            chain.push(longest);
            reached = longest.last;
            rest = rest.get(possible..)?;
        }
        Some(chain)
    }
}

/// Whether these gaps name every missing revision together.
fn explains(gaps: &[GapName], counts: fn(&GapName) -> bool, after: i64, until: i64) -> bool {
    let mut counted: Vec<&GapName> = gaps.iter().filter(|gap| counts(gap)).collect();
    counted.sort_unstable();
    let explained = |reached: i64, gap: &&GapName| if gap.after <= reached { reached.max(gap.until) } else { reached };
    counted.iter().fold(after, explained) >= until
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(first: i64, last: i64) -> SegmentName {
        let at = Timestamp::from_second(last).unwrap();
        SegmentName { first, last, at, run8: "a".to_owned(), encrypted: false, tail: None }
    }

    #[test]
    fn segments_are_joined_whoever_wrote_them() {
        let segments = vec![segment(21, 30), segment(2, 9), segment(10, 9), segment(5, 15), segment(41, 50)];
        let cover = Cover::join(segments, &[GapName { after: 30, until: 40, removed: false }]);
        let ranges: Vec<_> = cover.ranges.iter().map(|range| (range.first, range.last, range.segments)).collect();
        assert_eq!(ranges, [(2, 15, 3), (21, 30, 1), (41, 50, 1)]);
        let holes: Vec<_> = cover.holes.iter().map(|hole| (hole.after, hole.until, hole.compacted)).collect();
        assert_eq!(holes, [(15, 20, false), (30, 40, true)]);
        assert_eq!(cover.range_after(1).map(|range| range.last), Some(15));
        assert_eq!(cover.range_after(15).map(|range| range.last), Some(15), "nothing is missing yet");
        assert_eq!(cover.range_after(0), None);
        assert_eq!(cover.range_after(16), None);
        let chain = |base, target| {
            let chain = cover.chain(base, target)?;
            Some(chain.into_iter().map(|segment| (segment.first, segment.last)).collect::<Vec<_>>())
        };
        assert_eq!(chain(1, 12), Some(vec![(2, 9), (5, 15)]));
        assert_eq!(chain(4, 12), Some(vec![(5, 15)]), "the longest");
        assert_eq!(chain(7, 7), Some(vec![]));
        assert_eq!((chain(1, 16), chain(0, 3), chain(45, 51)), (None, None, None));
        assert_eq!(cover.without(&segment(5, 15)).chain(1, 12), None);
        assert_eq!(cover.without(&segment(2, 9)).chain(4, 12), Some(vec![&segment(5, 15)]));
    }

    #[test]
    fn several_gaps_explain_a_hole_together() {
        let gap = |after, until, removed| GapName { after, until, removed };
        let hole = |gaps: &[GapName]| {
            let hole = Cover::join(vec![segment(2, 9), segment(51, 60)], gaps).holes.remove(0);
            (hole.compacted, hole.removed)
        };
        assert_eq!(hole(&[gap(30, 50, false), gap(9, 30, false)]), (true, false));
        assert_eq!(hole(&[gap(9, 20, false), gap(5, 40, true), gap(30, 50, true)]), (false, true));
        assert_eq!(hole(&[gap(9, 20, false), gap(21, 50, true)]), (false, false), "revision 21");
        assert_eq!(hole(&[gap(9, 49, true)]), (false, false));
    }

    #[test]
    fn a_log_in_which_nothing_happened_continues_its_snapshot() {
        let cover = Cover::join(vec![segment(8, 7)], &[]);
        assert_eq!(cover.range_after(7).map(|range| (range.first, range.last)), Some((8, 7)));
        assert_eq!(cover.range_after(6), None);
    }

    proptest! {
        /// The cover against a list of all revisions.
        #[test]
        fn a_chain_is_there_exactly_if_every_revision_is(
            pieces in prop::collection::vec((1..40_i64, 0..8_i64), 0..10), base in 0..45_i64, length in 0..20_i64,
        ) {
            let segments: Vec<_> = pieces.iter().map(|(first, length)| segment(*first, first + length - 1)).collect();
            let holds = |revision: i64| segments.iter().any(|s| s.first <= revision && revision <= s.last);
            let cover = Cover::join(segments.clone(), &[]);
            let chain = cover.chain(base, base + length);
            prop_assert_eq!(chain.is_some(), (base + 1..=base + length).all(holds));
            for segment in chain.iter().flatten() {
                prop_assert!(segments.contains(segment));
            }
            let mut reached = base;
            for segment in chain.into_iter().flatten() {
                prop_assert!(segment.first <= reached + 1 && reached < segment.last);
                reached = segment.last;
            }
            for hole in &cover.holes {
                prop_assert!((hole.after + 1..=hole.until).all(|revision| !holds(revision)));
            }
        }
    }
}
