//! Until when a stored object cannot be removed, and whether that is what is asked for.
//!
//! Nothing is locked here after it was stored, so a shorter lock stays one. S3 alone has locks.

use jiff::{SignedDuration, Timestamp};

/// All that one run stores is locked until the same time, and the last of it is stored so much later than the first. Locks
/// are asked for in days: one of a day less is told apart all the same.
const LATE: SignedDuration = SignedDuration::from_hours(23);

/// The lock of an object that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locked {
    /// Until when it would be locked if it were stored now.
    pub(crate) asked: Timestamp,
    /// Until when it is, as far as these credentials may know.
    pub(crate) kept: Option<Timestamp>,
    /// When it was stored, says the store.
    pub(crate) stored: Timestamp,
}

impl Locked {
    /// Whether it is kept from then on for as long as what is asked for now, at this time.
    pub(crate) fn lasts(&self, from: Timestamp, now: Timestamp) -> bool {
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
            // Stored late in a run that was to lock for as long, and one that was to lock for a day less.
            (7, Some(in_days(7)), now + SignedDuration::from_hours(20), true),
            (7, Some(in_days(6)), now, false),
            (1, Some(now), now, false),
            (1, Some(in_days(1)), now + SignedDuration::from_hours(11), true),
            // It has had its time: from when it was stored that is enough, from now it is not.
            (30, Some(ago(24)), ago(31 * 24), true),
            (30, Some(ago(24)), now, false),
        ] {
            assert_eq!(lasts(days, kept, from), enough, "{days} days, until {kept:?} from {from}");
        }
    }
}
