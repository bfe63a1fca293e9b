//! The lock of a stored object: when it ends, and whether it lasts as long as requested.
//!
//! The days of a lock count from the moment in which the object's own request begins: a store may stay open for months. The
//! agent does not lock an object after its upload, so a short lock stays short. Only S3 has locks.

use holdfast_contract::LockMode;
use holdfast_contract::error::{Error, Result};
use holdfast_io::clock;
use jiff::{SignedDuration, Timestamp};

/// Bound for the time between the start of an upload, from which its lock counts, and the date of the object. Locks are
/// requested in days, so a lock that is a day shorter is still detected.
const LATE: SignedDuration = SignedDuration::from_hours(23);

/// A requested lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// Credentials that may remove the lock.
    pub(crate) mode: LockMode,
    /// Duration.
    pub(crate) seconds: u32,
}

impl Term {
    /// Returns the end of a lock that begins now, in whole seconds: stores round.
    pub(crate) fn until(self) -> Result<Timestamp> {
        let until = clock::later(clock::now(), self.seconds)?;
        Timestamp::from_second(until.as_second()).map_err(|_| Error::config("the lock's end is out of range"))
    }
}

/// The lock of an existing object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locked {
    /// End of the lock that a new object would get.
    pub asked: Timestamp,
    /// End of the lock, as far as these credentials may read it.
    pub kept: Option<Timestamp>,
    /// Time of the upload, from the store.
    pub stored: Timestamp,
}

impl Locked {
    /// Whether the lock lasts from `from` for as long as a lock requested now.
    pub fn lasts(&self, from: Timestamp, now: Timestamp) -> bool {
        let asked = self.asked.duration_since(now);
        let least = asked.saturating_sub(LATE.min(asked / 2));
        self.kept.is_some_and(|kept| kept.duration_since(from) >= least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_as_long_as_asked_or_too_short() {
        let now: Timestamp = "2026-11-21T16:22:33Z".parse().unwrap();
        let ago = |hours| now - SignedDuration::from_hours(hours);
        let in_days = |days: i64| now + SignedDuration::from_hours(24 * days);
        let lasts = |days, kept, from| Locked { asked: in_days(days), kept, stored: from }.lasts(from, now);
        for (days, kept, from, enough) in [
            (7, None, now, false),
            (7, Some(in_days(7)), now, true),
            // An object stored late in a run with this lock, and one in a run with a lock that is a day shorter.
            (7, Some(in_days(7)), now + SignedDuration::from_hours(20), true),
            (7, Some(in_days(6)), now, false),
            (1, Some(now), now, false),
            (1, Some(in_days(1)), now + SignedDuration::from_hours(11), true),
            // An old lock: long enough from its upload on, too short from now on.
            (30, Some(ago(24)), ago(31 * 24), true),
            (30, Some(ago(24)), now, false),
        ] {
            assert_eq!(lasts(days, kept, from), enough, "{days} days, until {kept:?} from {from}");
        }
    }
}
