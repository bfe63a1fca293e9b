//! The time for a second reading.
//!
//! This file decides that the first reading does not use up the time of the second: otherwise the agent would never record a
//! fault of a large snapshot, however often it verifies. `catalog/reread.rs` judges the two readings.

use std::time::{Duration, Instant};

use holdfast_contract::error::Error;
use holdfast_io::interrupt::Interrupt;

use holdfast_catalog::reread;

/// Returns the seconds for a second reading and its records, when the first began at `since`: the rest of the deadline, and at
/// least twice the time of the first reading plus a minute, because each range opens a connection of its own.
pub(super) fn seconds(deadline_seconds: u32, since: Instant) -> u64 {
    after(deadline_seconds, since.elapsed())
}

fn after(deadline_seconds: u32, took: Duration) -> u64 {
    let took = took.as_secs();
    let remaining = u64::from(deadline_seconds).saturating_sub(took);
    remaining.max(took.saturating_mul(2).saturating_add(60))
}

/// Confirms an error by a second reading within this many seconds. If the second reading does not end in time, the error is
/// returned with that fact.
pub(super) async fn confirm(
    interrupt: &mut Interrupt,
    seconds: u64,
    error: &Error,
    confirming: impl Future<Output = Error>,
) -> Error {
    match Interrupt::after(seconds) {
        Ok(more) => *interrupt = more,
        Err(unheard) => return unheard,
    }
    let confirmed = interrupt.unless(async { Ok(confirming.await) }).await;
    confirmed.unwrap_or_else(|ended| reread::unfinished(error, &ended))
}

#[cfg(test)]
mod tests {
    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn a_second_reading_has_time_of_its_own() {
        for (deadline, took, seconds_for_it) in [(3600, 10, 3590), (3600, 3599, 7258), (60, 60, 180), (0, 0, 60)] {
            assert_eq!(after(deadline, Duration::from_secs(took)), seconds_for_it, "{deadline}, {took}");
        }
    }

    #[tokio::test]
    async fn a_second_reading_that_does_not_end_hides_no_first_one() {
        let first = Error::corrupt("s3://b/k: its sha256 is 1");
        let mut interrupt = Interrupt::after(0).unwrap();
        let error = confirm(&mut interrupt, 0, &first, std::future::pending()).await;
        assert_eq!(error.class(), ExitClass::Deadline);
        for part in ["s3://b/k: its sha256 is 1", "the deadline of 0 s passed", "--deadline-seconds"] {
            assert!(error.message().contains(part), "no {part:?} in {error}");
        }
        assert_eq!(confirm(&mut interrupt, 60, &first, async { first.clone() }).await, first);
    }
}
