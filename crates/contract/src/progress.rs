//! The answer of a running save or restore about its progress, for programs that ask over HTTP.
//!
//! This file decides the wire format only. The answer holds numbers and the name of a step: no object, no store, no secret.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Path of the answer.
pub const PROGRESS_PATH: &str = "/progress";

/// Step of a run before the first byte has moved.
pub const STARTING: &str = "starting";

/// Progress of the current step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressReport {
    /// The step: `starting`, `saving`, `reading back`, `reading the snapshot`, `copying the snapshot with etcdutl`.
    pub phase: String,
    /// Bytes that the step has moved.
    pub bytes_done: u64,
    /// Bytes of the whole step, where they are known: the size of the database as etcd reports it, or that of the stored
    /// object. The step may end a little earlier or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
    /// Start of the step.
    pub started_at: Timestamp,
    /// Bytes per second, over the last ten seconds or more.
    pub rate_per_second: u64,
}

impl ProgressReport {
    /// Returns the seconds until the end of the step at this rate. `None` without a total or a rate.
    pub fn seconds_left(&self) -> Option<u64> {
        let remaining = self.bytes_total?.saturating_sub(self.bytes_done);
        (self.rate_per_second > 0).then(|| remaining.div_ceil(self.rate_per_second))
    }

    /// Returns the part of the total in percent, at most 100.
    pub fn percent(&self) -> Option<u64> {
        let total = self.bytes_total.filter(|total| *total > 0)?;
        let percent = u128::from(self.bytes_done) * 100 / u128::from(total);
        Some(u64::try_from(percent.min(100)).unwrap_or(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_left_only_where_a_total_and_a_rate_are_known() {
        let report = |bytes_done, bytes_total, rate_per_second| ProgressReport {
            phase: "saving".to_owned(),
            bytes_done,
            bytes_total,
            started_at: Timestamp::UNIX_EPOCH,
            rate_per_second,
        };
        for (report, percent, seconds) in [
            (report(50, Some(100), 20), Some(50), Some(3)),
            (report(0, Some(100), 0), Some(0), None),
            (report(50, None, 20), None, None),
            (report(120, Some(100), 20), Some(100), Some(0)),
            (report(u64::MAX, Some(u64::MAX), 1), Some(100), Some(0)),
        ] {
            assert_eq!((report.percent(), report.seconds_left()), (percent, seconds), "{report:?}");
        }
        let text = serde_json::to_string(&report(1, None, 2)).unwrap();
        let expected = r#"{"phase":"saving","bytesDone":1,"startedAt":"1970-01-01T00:00:00Z","ratePerSecond":2}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<ProgressReport>(&text).unwrap(), report(1, None, 2));
    }
}
