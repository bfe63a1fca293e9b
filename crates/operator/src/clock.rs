//! The one file that reads the clock and sleeps. All other code takes the time as an argument.

#![allow(clippy::disallowed_methods, reason = "this is the file that the ban points to")]

use std::time::Duration;

use jiff::Timestamp;

pub(super) use tokio::time::Instant;

/// Returns the wall-clock time.
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

/// Returns the monotonic time, for measuring.
pub(super) fn instant() -> Instant {
    Instant::now()
}

/// Sleeps.
pub(super) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Returns the result of `work` within `limit`; `None` after the limit.
pub(super) async fn within<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    tokio::time::timeout(limit, work).await.ok()
}
