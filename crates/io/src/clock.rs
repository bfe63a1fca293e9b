//! The only file that reads the wall clock. Other code gets the time as an argument, or measures with `Instant`.

use holdfast_contract::error::{Error, Result};
use jiff::{SignedDuration, Timestamp};

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// So many seconds later.
pub fn later(at: Timestamp, seconds: impl Into<i64>) -> Result<Timestamp> {
    at.checked_add(SignedDuration::from_secs(seconds.into())).map_err(|_| Error::config("the deadline is out of range"))
}
