//! The only place that reads the wall clock. Everything else is told the time, or measures with `Instant`.

use jiff::Timestamp;

/// Now.
#[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
