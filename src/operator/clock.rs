//! The one file that reads time and waits. Everything else gets time as an argument.

#![allow(clippy::disallowed_methods, reason = "this is the file that the ban points to")]

use std::time::Duration;

use jiff::Timestamp;

pub(super) use tokio::time::Instant;

/// The time of day.
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

/// A time that only goes forward, for measuring.
pub(super) fn instant() -> Instant {
    Instant::now()
}

/// Waits.
pub(super) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// What `work` gives within `limit`; `None` when the time was up.
pub(super) async fn within<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    tokio::time::timeout(limit, work).await.ok()
}
