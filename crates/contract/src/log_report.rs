//! The answer of a running `agent log`, for the operator.
//!
//! This file decides the wire format only. Everything that reaches the port gets the answer, so it holds revisions, times, sizes and
//! the agent's own sentence about a problem: no key, no value, no secret.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ExitClass;

/// Path of the answer.
pub const LOG_PATH: &str = "/log";

/// The largest lag is rounded up to a multiple of so many seconds.
pub const LAG_STEP_SECONDS: u64 = 5;

/// State of a log and of the run that records it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogReport {
    /// etcd cluster ID (hex); absent until the run has reached etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The last recorded revision; absent until the run knows where the log continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_revision: Option<i64>,
    /// The last stored revision; absent: the log has no segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_revision: Option<i64>,
    /// Time up to which the stored log is complete; absent: the log has no segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_until: Option<Timestamp>,
    /// Largest age of the end of the stored log in the last ten minutes, rounded up; absent: the log has no segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_lag_seconds: Option<u64>,
    /// Bytes that wait for the store.
    #[serde(default)]
    pub spool_bytes: u64,
    /// Segments that this run has stored.
    #[serde(default)]
    pub segments: u64,
    /// Their stored bytes.
    #[serde(default)]
    pub bytes: u64,
    /// The newest revisions that are missing from the log, of this run or an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<LogGap>,
    /// Why the log does not go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<LogProblem>,
}

/// Revisions that are missing from a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogGap {
    /// The last recorded revision before.
    pub after: i64,
    /// The last missing revision.
    pub until: i64,
    /// Time at which etcd refused the watch; absent where the object in the store cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A problem that stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogProblem {
    /// Class of the failure.
    pub class: ExitClass,
    /// The agent's sentence, of the first failure of this class.
    pub message: String,
}
