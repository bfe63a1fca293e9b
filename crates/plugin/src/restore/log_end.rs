//! End of the log that continues a snapshot, as the operator last saw it: whether a point can be restored, and the nearest point that can.
//!
//! PURE. Decides from the statuses of schedules, which are up to five minutes old. The agent reads the log itself and has the last word.

use holdfast_api::EtcdSnapshotSchedule;
use holdfast_api::condition::{self, Type};
use holdfast_api::log::LogStatus;
use holdfast_api::restore::RestorePoint;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::time::{grouped, parse};

/// Age up to which a status of a log that goes on says nothing about a later point: the operator writes it every five minutes, and the
/// agent stores a segment at most five minutes later.
const FRESH: SignedDuration = SignedDuration::from_mins(10);

/// The end of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogEnd {
    /// The last revision without a hole after the snapshot.
    pub revision: i64,
    /// Time up to which the log is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// Whether the log reaches the point.
    pub reach: Reach,
}

/// Whether a log reaches a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Reach {
    /// The point is in the log.
    Reached,
    /// The log goes on, and may have the point by now.
    Soon,
    /// The log ended before the point.
    #[default]
    Ended,
}

impl LogEnd {
    /// Finds the log of a cluster that goes furthest from a snapshot of this revision.
    pub fn find(
        schedules: &[EtcdSnapshotSchedule],
        cluster: &str,
        (base, point): (i64, &RestorePoint),
        now: Timestamp,
    ) -> Option<Self> {
        let of_cluster = |schedule: &&EtcdSnapshotSchedule| {
            schedule.spec.cluster_ref.as_ref().is_some_and(|named| named.name == cluster)
        };
        let ends = schedules.iter().filter(of_cluster).filter_map(|schedule| {
            let status = schedule.status.as_ref()?;
            let goes_on = schedule.spec.log.is_some() && condition::is_true(&status.conditions, Type::LogCurrent);
            Self::of_status(status.log.as_ref()?, goes_on, (base, point), now)
        });
        ends.max_by_key(|end| (end.reach == Reach::Reached, end.revision))
    }

    fn of_status(log: &LogStatus, goes_on: bool, (base, point): (i64, &RestorePoint), now: Timestamp) -> Option<Self> {
        let time = |text: &Option<String>| text.as_deref().and_then(parse);
        // From a snapshot before a gap the log ends there.
        let gap = log.interrupted.as_ref().filter(|gap| base <= gap.after);
        let (revision, time) = match gap {
            Some(gap) => (gap.after, time(&gap.at)),
            None => (log.revision?, time(&log.time)),
        };
        let asked = point.time.as_deref().and_then(parse);
        let is_reached = match (point.revision, asked) {
            (Some(asked), _) => revision >= asked,
            (None, Some(asked)) if time.is_some_and(|time| time >= asked) => {
                // The time of a gap is that of its discovery: an earlier time may be in the gap or before it.
                if gap.is_some() {
                    return None;
                }
                true
            }
            (None, _) => false,
        };
        let is_fresh = asked.is_none_or(|asked| now.duration_since(asked) < FRESH);
        let reach = match is_reached {
            true => Reach::Reached,
            false if goes_on && gap.is_none() && is_fresh => Reach::Soon,
            false => Reach::Ended,
        };
        Some(Self { revision, time, reach })
    }

    /// Returns the end for a person.
    pub fn describe(&self) -> String {
        let time = self.time.map(|time| format!(", {time}")).unwrap_or_default();
        format!("revision {}{time}", grouped(self.revision))
    }

    /// Returns the sentence about a point.
    pub fn sentence(&self, point: &str) -> String {
        let end = self.describe();
        match self.reach {
            Reach::Reached => format!("up to {point}; it is stored up to {end}"),
            Reach::Soon => {
                format!("up to {point}; it was stored up to {end} when the operator last looked, and goes on")
            }
            Reach::Ended => format!("ends at {end}, before {point}: the restore is refused. {}", self.nearest()),
        }
    }

    /// Names the nearest point that can be restored.
    fn nearest(&self) -> String {
        format!("The nearest point is --at-revision {}", self.revision)
    }
}
