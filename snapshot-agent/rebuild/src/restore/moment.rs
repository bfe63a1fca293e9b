//! The revision of a time: the newest revision that etcd is known to have had then.
//!
//! This file decides from the samples of segments. A time without a revision of its own is refused with the nearest points, and
//! so is a time that a clock has shown twice. `point.rs` finds the snapshot and the segments for the revision.

use std::time::Duration;

use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result, task_error};
use holdfast_io::progress::Progress;
use holdfast_layout::{Folder, SegmentName};
use holdfast_segment::Entry;
use holdfast_store::Store;
use jiff::{SignedDuration, Timestamp};

use super::segments::{nearest, open_segment, points_near};
use holdfast_catalog::log::bases::Base;
use holdfast_catalog::log::cover::Cover;
use holdfast_catalog::log::read::{fetch, unreadable};
use holdfast_format::crypt::Identities;

/// Longest time between two samples of a log that is written: the archiver takes one each second, and connects again within
/// half a minute.
const MOST_BETWEEN_SAMPLES: SignedDuration = SignedDuration::from_mins(1);

/// Larger differences of times are no differences of the clocks of two writers.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(5);

/// A revision, and the known times around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) revision: i64,
    /// The latest time before the requested one at which etcd is known to have had the revision.
    pub(super) known_at: Timestamp,
    /// The next known time, if etcd had a later revision there.
    pub(super) changed_by: Option<Timestamp>,
}

/// The samples of a log.
pub(super) struct Samples<'a> {
    pub(super) store: &'a Store,
    pub(super) log: &'a Folder,
    pub(super) cluster_id: u64,
    pub(super) bases: &'a [Base],
    pub(super) identities: Option<&'a Identities>,
    pub(super) stall: Duration,
}

impl Samples<'_> {
    /// Returns the newest revision that etcd is known to have had at a time.
    pub(super) async fn find(&self, names: &[SegmentName], cover: &Cover, time: Timestamp) -> Result<Moment> {
        let moment = self.revision_at(names, cover, time).await?;
        refuse_ambiguous(names, time, moment.revision)?;
        Ok(moment)
    }

    async fn revision_at(&self, names: &[SegmentName], cover: &Cover, time: Timestamp) -> Result<Moment> {
        let mut by_time: Vec<&SegmentName> = names.iter().filter(|name| name.is_timed()).collect();
        by_time.sort_by_key(|name| (name.at, name.last));
        // A name holds whole seconds.
        let until = by_time.partition_point(|name| name.at.as_second() < time.as_second());
        let (before, rest) = by_time.split_at_checked(until).unwrap_or_default();
        let mut found = None;
        for name in rest {
            let Some(samples) = self.read(name, cover).await? else { continue };
            let earlier = samples.iter().rev().find(|(at, _)| *at <= time);
            found = found.max(earlier.map(|(at, revision)| (*revision, *at)));
            let Some(next) = samples.iter().find(|(at, _)| *at > time) else { continue };
            let Some((first_at, _)) = samples.first() else { continue };
            if let Some(found) = found {
                return between(found, *next, time);
            }
            // The time lies between two segments.
            let reached = name.first.saturating_sub(1);
            return match self.last_of(before, cover).await? {
                Some((last, known, name)) if cover.chain(name.last, reached).is_some() => {
                    between((last, known), *next, time)
                }
                Some((.., SegmentName { last, at, .. })) => Err(Error::not_found(format!(
                    "the log has a hole at {time}: it ends at {at} with revision {last}, and goes on at {first_at} after revision \
                     {reached}. {}",
                    self.nearest(cover, *last).await?
                ))),
                None => Err(Error::not_found(format!(
                    "the log begins at {first_at} after revision {reached}, which is later than {time}. {}",
                    self.nearest(cover, reached).await?
                ))),
            };
        }
        match (found, by_time.last()) {
            // Within the second of the last sample.
            (Some((revision, known_at)), _) => Ok(Moment { revision, known_at, changed_by: None }),
            (None, Some(last)) => Err(Error::not_found(format!(
                "the log ends at {} with revision {}, which is earlier than {time}. Try again if the log is still recorded. {}",
                last.at,
                last.last,
                self.nearest(cover, last.last).await?
            ))),
            (None, None) => Err(Error::not_found("the log has no segment. Name one snapshot, and leave the time out")),
        }
    }

    /// Names the points next to a revision.
    async fn nearest(&self, cover: &Cover, revision: i64) -> Result<String> {
        Ok(nearest(&points_near(self.store, cover, self.bases, revision).await?))
    }

    /// Returns revision and time of the last sample in segments that are sorted by time, and its segment.
    async fn last_of<'n>(
        &self,
        names: &[&'n SegmentName],
        cover: &Cover,
    ) -> Result<Option<(i64, Timestamp, &'n SegmentName)>> {
        for name in names.iter().rev() {
            let samples = self.read(name, cover).await?;
            if let Some((at, revision)) = samples.and_then(|samples| samples.last().copied()) {
                return Ok(Some((revision, at, name)));
            }
        }
        Ok(None)
    }

    /// Reads the samples of a segment: times and revisions. `None`: it is damaged, and others hold its revisions.
    async fn read(&self, name: &SegmentName, cover: &Cover) -> Result<Option<Vec<(Timestamp, i64)>>> {
        match self.read_whole(name).await {
            Err(error) if error.class() == ExitClass::Corrupt && has_twins(cover, name) => {
                tracing::warn!("a segment is damaged, and others hold its revisions: {error}");
                Ok(None)
            }
            samples => samples.map(Some),
        }
    }

    async fn read_whole(&self, name: &SegmentName) -> Result<Vec<(Timestamp, i64)>> {
        let key = name.key(self.log).map_err(|error| holdfast_store::layout(&error))?;
        let uri = self.store.uri(&key);
        let progress = Progress::new("reading the log", 0);
        let stored = progress.watch(self.stall, fetch(self.store, self.log, name)).await?;
        let (name, cluster_id, identities) = (name.clone(), self.cluster_id, self.identities.cloned());
        let reading = tokio::task::spawn_blocking(move || {
            let mut reader = open_segment(&uri, (&name, cluster_id), stored, identities.as_ref())?;
            let mut samples = Vec::new();
            while let Some(entry) = reader.next().map_err(|error| unreadable(&uri, &error))? {
                if let Entry::Sample { revision, at } = entry
                    && let Ok(at) = Timestamp::from_millisecond(at)
                {
                    samples.push((at, revision));
                }
            }
            Ok(samples)
        });
        reading.await.map_err(|error| task_error(&error))?
    }
}

/// Returns the revision of a time between two samples, if the archiver was there: revisions of a pause have no times of their own.
fn between((revision, known): (i64, Timestamp), (next_at, next): (Timestamp, i64), time: Timestamp) -> Result<Moment> {
    if next <= revision || time.duration_since(known) <= MOST_BETWEEN_SAMPLES {
        return Ok(Moment { revision, known_at: known, changed_by: (next > revision).then_some(next_at) });
    }
    Err(Error::not_found(format!(
        "the archiver was away between {known} (revision {revision}) and {next_at} (revision {next}), so the log does not say which \
         revision is of {time}. The nearest points are the time {known} and revision {next} (at.time and at.revision, by hand \
         --at-time and --at-revision)"
    )))
}

/// Whether other segments hold the revisions of this one.
fn has_twins(cover: &Cover, name: &SegmentName) -> bool {
    name.first <= name.last && cover.without(name).chain(name.first.saturating_sub(1), name.last).is_some()
}

/// Refuses a time that names another revision too: the clock of a writer went back.
fn refuse_ambiguous(names: &[SegmentName], time: Timestamp, revision: i64) -> Result<()> {
    let contradicts = |name: &&SegmentName| {
        // A segment without a sample is later than its time. A segment may go on after its last sample.
        let behind = name.is_timed() && name.at < time && time.duration_since(name.at) > CLOCKS_DIFFER;
        let ahead = name.at > time && name.at.duration_since(time) > CLOCKS_DIFFER;
        (behind && name.first.saturating_sub(1) > revision)
            || (ahead && name.last < revision && name.first <= name.last)
    };
    let Some(other) = names.iter().find(contradicts) else { return Ok(()) };
    Err(Error::unclear(format!(
        "{time} names revision {revision}, and the revisions {} to {} too, because a clock of an archiver went back. Choose a \
         revision of one of both (at.revision, by hand --at-revision)",
        other.first, other.last
    )))
}

#[cfg(test)]
mod tests {
    use holdfast_layout::Tail;

    use super::*;

    fn segment(first: i64, last: i64) -> SegmentName {
        let at = Timestamp::from_second(last).unwrap();
        SegmentName { first, last, at, run8: "a".to_owned(), encrypted: false, tail: None }
    }

    #[test]
    fn a_time_in_a_pause_of_the_archiver_is_refused_with_both_ends() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let moment = |changed_by| Moment { revision: 5, known_at: at(100), changed_by };
        assert_eq!(between((5, at(100)), (at(102), 9), at(101)), Ok(moment(Some(at(102)))));
        assert_eq!(between((5, at(100)), (at(400), 5), at(390)), Ok(moment(None)), "nothing had changed");
        let error = between((5, at(100)), (at(400), 9), at(161)).unwrap_err();
        for part in ["the time 1970-01-01T00:01:40Z", "and revision 9", "away"] {
            assert!(error.message().contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn a_time_that_a_clock_has_shown_twice_is_refused_with_both_revisions() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let written = |first, last, seconds| SegmentName { at: at(seconds), ..segment(first, last) };
        // The clock shows 130, then 110 again.
        let names = [
            written(1, 50, 100),
            written(51, 90, 120),
            written(91, 110, 130),
            written(111, 150, 120),
            written(151, 170, 140),
        ];
        for (time, revision, other) in [(126, 95, "111 to 150"), (114, 120, "51 to 90")] {
            let error = refuse_ambiguous(&names, at(time), revision).unwrap_err();
            let says = format!("names revision {revision}, and the revisions {other} too");
            assert!(error.message().contains(&says), "{says}: {error}");
        }
        refuse_ambiguous(&names, at(150), 170).unwrap();
        refuse_ambiguous(&names, at(90), 40).unwrap();
        // Two writers whose clocks differ, and an idle log.
        let two = [written(1, 50, 100), written(40, 55, 97), written(51, 90, 110), written(91, 90, 200)];
        refuse_ambiguous(&two, at(101), 52).unwrap();
        refuse_ambiguous(&two, at(150), 90).unwrap();
        // An archiver that lags: revisions of later times in a segment of the time before.
        let tail = Some(Tail { serial: 1, sum: None, is_timed: false });
        let lags = [written(1, 30, 100), SegmentName { tail, ..written(31, 60, 100) }, written(61, 90, 130)];
        refuse_ambiguous(&lags, at(115), 15).unwrap();
    }

    #[test]
    fn a_damaged_segment_has_twins_if_others_hold_its_revisions() {
        let names = vec![segment(1, 10), segment(5, 12), segment(11, 20), segment(21, 20)];
        let cover = Cover::join(names.clone(), &[]);
        let has: Vec<bool> = names.iter().map(|name| has_twins(&cover, name)).collect();
        assert_eq!(has, [false, true, false, false]);
    }
}
