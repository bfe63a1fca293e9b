//! The questions of a trial: a restore to a revision or a time, and its two possible answers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_contract::error::Error;
use holdfast_contract::{DATA_DIR, ExitClass, Point, RestoreRequest, RestoredReport};
use holdfast_layout::SegmentName;
use jiff::{SignedDuration, Timestamp};
use snapshot_agent::verbs::restore;
use tempfile::TempDir;

use super::Trial;
use crate::log::histories::LINEAGE;
use crate::log::truth::{Moment, State, hash_of, newest, stored};
use crate::server::Dice;
use crate::support::{Etcd, file_store, free_port, restore_request};

/// Parts of an error's message that say which points there are.
const REMEDIES: [&str; 5] =
    ["The nearest point", "Try again", "Save a snapshot", "Choose a revision", "Restore one of"];

impl Trial {
    /// Each snapshot's revision, and the last one that the log reaches from there.
    pub(super) fn reaches(&self) -> Vec<(i64, i64)> {
        let cover = self.logs[0].cover();
        let reach = |base: i64| cover.range_after(base).map_or(base, |range| range.last);
        self.bases.values().map(|(_, base)| (*base, reach(*base))).collect()
    }

    /// Whether a refusal of this point is a fault.
    fn has_to_succeed(&self, at: Point) -> bool {
        let (is_one, cover) = (self.histories.len() == 1, self.logs[0].cover());
        let reaches = match (&self.at_fork, is_one) {
            (_, true) => self.reaches(),
            (Some((bases, reaches)), _) if *bases == self.bases.len() => reaches.clone(),
            _ => vec![],
        };
        match at {
            Point::Revision(revision) => reaches.iter().any(|(base, last)| *base <= revision && revision <= *last),
            Point::Time(time) => {
                let timed = self.logs[0].segments().into_iter().filter(SegmentName::is_timed).map(|segment| segment.at);
                let begins = timed.min().is_some_and(|first| first + SignedDuration::from_secs(1) <= time);
                // A pause of a minute is refused.
                let has_no_pause = self.begun.elapsed() < Duration::from_mins(1);
                is_one
                    && !self.is_shifted
                    && has_no_pause
                    && cover.ranges.len() == 1
                    && begins
                    && time < cover.ranges[0].until
            }
        }
    }

    /// Asks for any revision or time.
    pub(super) async fn ask_any(&mut self, dice: &mut Dice) {
        let last = self.histories.iter().filter_map(|history| history.keys().next_back()).max().unwrap();
        let at = if dice.below(4) == 0 {
            let first = self.histories[0][&1].began;
            let passed = u64::try_from(Timestamp::now().duration_since(first).as_millis()).unwrap();
            Point::Time(first + SignedDuration::from_millis(dice.below(passed + 2000).cast_signed()))
        } else {
            Point::Revision(1 + dice.below(last.cast_unsigned() + 1).cast_signed())
        };
        self.ask(at, LINEAGE).await;
    }

    pub(super) async fn ask(&mut self, at: Point, key: &str) {
        let has_to = self.has_to_succeed(at);
        match self.restore(at, key).await {
            Ok((volume, report)) => drop(self.answered(at, volume, &report, &self.histories_of_base(&report))),
            Err(error) => self.refused(&error, has_to).await,
        }
    }

    pub(super) async fn restore(&self, at: Point, key: &str) -> Result<(TempDir, RestoredReport), Error> {
        let volume = tempfile::tempdir().unwrap();
        let request = restore_request(file_store(self.mount.path()), key, volume.path());
        let (at_revision, at_time) = match at {
            Point::Revision(revision) => (Some(revision), None),
            Point::Time(time) => (None, Some(time)),
        };
        let report = restore::run(RestoreRequest { at_revision, at_time, revision_bump: 0, ..request }).await?;
        Ok((volume, report))
    }

    /// The histories that a snapshot belongs to.
    pub(super) fn histories_of(&self, key: &str) -> Vec<usize> {
        let (history, revision) = self.bases[key];
        let state = |of: usize| self.histories[of].get(&revision).map(|moment| &moment.state);
        (0..self.histories.len()).filter(|other| state(*other) == state(history)).collect()
    }

    /// Compares a restored database with the truth of these histories, and returns the history.
    pub(super) fn answered(&mut self, at: Point, volume: TempDir, report: &RestoredReport, of: &[usize]) -> usize {
        let point = report.point.as_deref().unwrap();
        let (found, hash) = stored(&database(volume.path()), point.revision);
        let moments = of.iter().filter_map(|of| Some((*of, self.histories[*of].get(&point.revision)?)));
        let moments: Vec<(usize, &Moment)> = moments.collect();
        let Some((history, truth)) = moments.iter().find(|(_, moment)| moment.state == found) else {
            let other = self.histories.iter().position(|history| history.values().any(|moment| moment.state == found));
            let truth: Vec<&State> = moments.iter().map(|(_, moment)| &moment.state).collect();
            panic!("{at}: {point:?} of the histories {of:?} is {found:?}\nof {other:?}, and not {truth:?}");
        };
        if let Point::Time(time) = at {
            assert!(self.is_shifted || truth.began <= time, "{point:?} is later");
        }
        let is_comparable = truth.hash.compact_revision == hash.compact_revision;
        assert!(!is_comparable || truth.hash == hash, "{at}: {point:?}");
        self.answers += 1;
        self.hashed += usize::from(is_comparable);
        let history = *history;
        self.restored = Some((volume, point.revision));
        history
    }

    /// The histories of the snapshot that a restore has continued.
    fn histories_of_base(&self, report: &RestoredReport) -> Vec<usize> {
        self.histories_of(self.bases.keys().find(|key| report.uri.contains(*key)).unwrap())
    }

    /// Judges a refusal, and asks for the points that it names.
    pub(super) async fn refused(&mut self, error: &Error, is_fault: bool) {
        let classes = [ExitClass::NotFound, ExitClass::Refused, ExitClass::Corrupt];
        assert!(!is_fault && classes.contains(&error.class()), "{:?}: {error}", error.class());
        assert!(has_remedy(error), "{error}");
        self.refusals += 1;
        let mut named: Vec<(i64, u32)> = named_points(error).map(|revision| (revision, 0)).collect();
        while let Some((revision, round)) = named.pop() {
            let at = Point::Revision(revision);
            match self.restore(at, LINEAGE).await {
                Ok((volume, report)) => drop(self.answered(at, volume, &report, &self.histories_of_base(&report))),
                Err(next) => {
                    // The names of segments do not show that they are of two histories.
                    let is_of_two = self.histories.len() > 1 && round < 2 && has_remedy(&next);
                    let is_other = named_points(&next).all(|point| point != revision);
                    assert!(is_of_two && is_other, "{error}\nnames revision {revision}: {next}");
                    named.extend(named_points(&next).map(|revision| (revision, round + 1)));
                }
            }
        }
    }

    /// Starts an etcd on the last restored volume.
    pub(super) async fn compare_with_etcd(&mut self) {
        let Some((volume, revision)) = self.restored.take() else { return };
        let (expected, hash) = stored(&database(volume.path()), revision);
        let data = volume.path().join(DATA_DIR);
        let request = restore_request(file_store(self.mount.path()), LINEAGE, volume.path());
        let peer = format!("http://127.0.0.1:{}", free_port());
        let etcd = Etcd::on(tempfile::tempdir().unwrap(), &data, &request.identity.member_name, &peer, &[]).await;
        let mut client = etcd.client().await;
        assert_eq!(newest(&mut client).await, (revision, expected));
        assert_eq!(hash_of(&mut client, revision).await, hash);
    }
}

fn has_remedy(error: &Error) -> bool {
    REMEDIES.iter().any(|remedy| error.message().contains(remedy))
}

/// The revisions that an error names as the nearest points.
fn named_points(error: &Error) -> impl Iterator<Item = i64> {
    let named = error.message().split_once("The nearest point").map_or("", |(_, rest)| rest);
    let named = named.split(" (at.").next().unwrap_or_default().split("revision ").skip(1);
    named.filter_map(|text| text.split(' ').next()?.parse().ok())
}

fn database(volume: &Path) -> PathBuf {
    volume.join(DATA_DIR).join("member/snap/db")
}
