//! How often a second voter is asked about much data: once a day.
//!
//! Pure. It decides which earlier save spares the others the hashing; where that is read is in `verbs/save/past.rs`. A source that
//! is compared with itself alone agrees always, also when it has lost or altered data: so only an agreement that this very
//! member was part of spares another one, and what is not known spares nobody.

use jiff::{SignedDuration, Timestamp};

use crate::contract::AskMembers;

/// For so long one agreement spares the others.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Whether one member's word is enough for now, as long as two have agreed within a day.
pub(super) const fn is_once_a_day(ask_members: AskMembers, large: bool) -> bool {
    large && matches!(ask_members, AskMembers::Auto)
}

/// Why nobody else was asked, when the save that two members agreed on began then.
pub(super) fn spared(last: Timestamp) -> String {
    let last = last.strftime("%Y-%m-%dT%H:%M:%SZ");
    format!("asked once a day from 1 GiB up; last agreed by two at {last}")
}

/// Whether a save that began then is less than a day old for one that begins now. One that is still to come is not: a
/// clock was wrong.
pub(crate) fn is_recent(began: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(began);
    !age.is_negative() && age < DAY
}

/// Whether a save that began then, and that these members agreed on, spares a second voter when this source is read now.
pub(crate) fn spares(began: Timestamp, agreed_by: &[String], source: &str, now: Timestamp) -> bool {
    is_recent(began, now) && agreed_by.len() > 1 && agreed_by.iter().any(|name| name == source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_data_is_hashed_by_a_second_one_once_a_day_unless_it_is_wanted_always() {
        for (ask_members, large, once) in [
            (AskMembers::Auto, true, true),
            (AskMembers::Auto, false, false),
            (AskMembers::Always, true, false),
            (AskMembers::Always, false, false),
        ] {
            assert_eq!(is_once_a_day(ask_members, large), once, "{ask_members:?} {large}");
        }
    }

    #[test]
    fn only_a_recent_agreement_with_this_source_spares_another_voter() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        for (began, agreed_by, spared) in [
            ("2026-11-21T11:59:59.999Z", &["m1", "m2"][..], true),
            ("2026-11-21T12:00:00Z", &["m1", "m2"], true),
            ("2026-11-20T12:00:01Z", &["m2", "m1"], true),
            ("2026-11-21T11:00:00Z", &["m3", "m2", "m1"], true),
            // A day old.
            ("2026-11-20T12:00:00Z", &["m1", "m2"], false),
            ("2020-01-01T00:00:00Z", &["m1", "m2"], false),
            // From a clock that was ahead, or before this one went back.
            ("2026-11-21T12:00:00.001Z", &["m1", "m2"], false),
            ("2030-01-01T00:00:00Z", &["m1", "m2"], false),
            // With itself alone, with nobody, or without it.
            ("2026-11-21T11:00:00Z", &["m1"], false),
            ("2026-11-21T11:00:00Z", &[], false),
            ("2026-11-21T11:00:00Z", &["m2", "m3"], false),
        ] {
            let agreed_by: Vec<_> = agreed_by.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(spares(began.parse().unwrap(), &agreed_by, "m1", now), spared, "{began} {agreed_by:?}");
        }
    }

    #[test]
    fn who_was_spared_is_told_since_when() {
        let told = spared("2026-11-21T11:00:00.123456789Z".parse().unwrap());
        assert_eq!(told, "asked once a day from 1 GiB up; last agreed by two at 2026-11-21T11:00:00Z");
    }
}
