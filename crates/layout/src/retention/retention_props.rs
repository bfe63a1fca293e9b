//! Retention against a naive reference, and properties for every policy and every time zone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use holdfast_contract::Policy;

/// Zones whose clocks jump by an hour, by half an hour, at midnight, over a whole day, and never.
const ZONES: [&str; 8] = [
    "Etc/UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "America/Sao_Paulo",
    "Africa/Casablanca",
];

/// Seconds around which times are drawn: clock changes of these zones, a leap day, the end of a year.
const AROUND: [i64; 8] = [
    1_792_886_400, // 2026-10-25T00:00Z, Berlin
    1_774_746_000, // 2026-03-29T01:00Z, Berlin
    1_320_541_260, // 2011-11-06T01:01Z, St. John's at one minute past midnight
    1_325_239_200, // 2011-12-30T10:00Z, Apia leaves a day out
    1_550_368_800, // 2019-02-17T02:00Z, Sao Paulo at midnight
    1_775_311_200, // 2026-04-04T14:00Z, Lord Howe
    1_835_438_400, // 2028-02-29T12:00Z
    1_798_761_600, // 2027-01-01T00:00Z
];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

prop_compose! {
    fn entry()(
        around in prop::sample::select(&AROUND[..]),
        // Near a clock change, or within some years.
        off in prop_oneof![-40 * 3600..40 * 3600_i64, -3 * 365 * 86_400..3 * 365 * 86_400_i64],
        proven: bool, drill in 0..8_u8, fail in 0..8_u8, foreign in 0..10_u8, key in 0..1_000_000_u32,
    ) -> Entry {
        let is = Candidate { proven, drilled: drill == 0, failed: fail == 0, ..Candidate::default() };
        let subject = match foreign {
            0 => Err(Untouched::ByHand),
            1 => Err(Untouched::Held),
            _ => Ok(is),
        };
        Entry { key: format!("shop/orders/1a2b3c4d/{key}"), at: at(around + off), subject, spared: None }
    }
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    proptest::collection::vec(entry(), 0..60).prop_map(|mut entries| {
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        entries.dedup_by(|a, b| a.key == b.key);
        entries
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let within = prop::option::of((0..2000_i64).prop_map(SignedDuration::from_hours));
    ([0..6_u32, 0..30, 0..10, 0..6, 0..14, 0..4], within).prop_map(|(counts, keep_within)| {
        let [keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly] = counts;
        let drawn = Policy {
            keep_last,
            keep_hourly,
            keep_daily,
            keep_weekly,
            keep_monthly,
            keep_yearly,
            keep_within,
            log_within: None,
        };
        if drawn.check().is_err() { Policy { keep_last: 1, ..drawn } } else { drawn }
    })
}

fn zone() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&ZONES[..])
}

/// Long after everything, so that no snapshot is young.
fn late() -> Timestamp {
    at(4_000_000_000)
}

fn judged(entries: &[Entry], policy: &Policy, zone: &str) -> Vec<Verdict> {
    judge(entries, policy, &time_zone(zone).unwrap(), late())
}

fn keys_of<'a>(entries: &'a [Entry], verdicts: &[Verdict], wanted: fn(&Verdict) -> bool) -> BTreeSet<&'a str> {
    let pairs = entries.iter().zip(verdicts);
    pairs.filter(|(_, verdict)| wanted(verdict)).map(|(entry, _)| entry.key.as_str()).collect()
}

fn kept<'a>(entries: &'a [Entry], verdicts: &[Verdict]) -> BTreeSet<&'a str> {
    keys_of(entries, verdicts, |verdict| matches!(verdict, Verdict::Keep(_)))
}

/// Returns the snapshots of each rule, by a search over all candidates for every period: periods are texts, as a clock shows
/// them.
fn reference<'a>(entries: &'a [Entry], policy: &Policy, zone: &str) -> BTreeSet<&'a str> {
    let zone = time_zone(zone).unwrap();
    let all: Vec<(&Entry, &Candidate)> = entries.iter().filter_map(|e| Some((e, e.subject.as_ref().ok()?))).collect();
    let sound: Vec<_> = all.iter().copied().filter(|(_, is)| !is.failed).collect();
    let mut keep = BTreeSet::new();
    let newest = |mut some: Vec<(&'a Entry, &'a Candidate)>, count: usize| {
        some.sort_by(|a, b| (b.0.at, &b.0.key).cmp(&(a.0.at, &a.0.key)));
        some.into_iter().take(count).map(|(entry, _)| entry.key.as_str()).collect::<Vec<_>>()
    };
    keep.extend(newest(all.clone(), 1));
    keep.extend(newest(sound.iter().copied().filter(|(_, is)| is.proven).collect(), 2));
    keep.extend(newest(sound.iter().copied().filter(|(_, is)| is.drilled).collect(), 1));
    keep.extend(newest(sound.clone(), policy.keep_last as usize));
    if let (Some(within), Some(last)) = (policy.keep_within, all.iter().map(|(entry, _)| entry.at).max()) {
        keep.extend(all.iter().filter(|(e, _)| last.duration_since(e.at) <= within).map(|(e, _)| e.key.as_str()));
    }
    for (count, format) in [
        (policy.keep_hourly, "%Y-%m-%dT%H"),
        (policy.keep_daily, "%Y-%m-%d"),
        (policy.keep_weekly, "%G-%V"),
        (policy.keep_monthly, "%Y-%m"),
        (policy.keep_yearly, "%Y"),
    ] {
        let mut periods: BTreeMap<(String, i32), Vec<_>> = BTreeMap::new();
        for (entry, is) in &all {
            let time = entry.at.to_zoned(zone.clone());
            let offset = if format.ends_with("%H") { -time.offset().seconds() } else { 0 };
            periods.entry((time.strftime(format).to_string(), offset)).or_default().push((*entry, *is));
        }
        let of = |wanted: fn(&Candidate) -> bool, inside: &[(&'a Entry, &'a Candidate)]| {
            inside.iter().copied().filter(|(_, is)| wanted(is)).collect::<Vec<_>>()
        };
        let mut sound_periods = 0;
        for inside in periods.into_values().rev() {
            if sound_periods == count {
                break;
            }
            let (proven, sound) = (of(|is| is.proven && !is.failed, &inside), of(|is| !is.failed, &inside));
            sound_periods += u32::from(!sound.is_empty());
            let best = [proven, sound, inside].into_iter().find(|some| !some.is_empty()).unwrap();
            keep.extend(newest(best, 1));
        }
    }
    keep
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_reference_keeps_the_same(entries in entries(), policy in policy(), zone in zone()) {
        let verdicts = judged(&entries, &policy, zone);
        prop_assert_eq!(kept(&entries, &verdicts), reference(&entries, &policy, zone));
        for (entry, verdict) in entries.iter().zip(&verdicts) {
            match (&entry.subject, verdict) {
                (Err(why), Verdict::Untouched(reason)) => prop_assert_eq!(why, reason),
                (Ok(_), Verdict::Keep(reasons)) => prop_assert!(!reasons.is_empty()),
                (Ok(_), Verdict::Drop) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn the_order_of_the_listing_does_not_matter(
        (entries, shuffled) in entries().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        policy in policy(), zone in zone(),
    ) {
        let by_key = |entries: &[Entry]| {
            let verdicts = judged(entries, &policy, zone);
            entries.iter().map(|entry| entry.key.clone()).zip(verdicts).collect::<BTreeMap<_, _>>()
        };
        prop_assert_eq!(by_key(&entries), by_key(&shuffled));
    }

    /// Whatever part of the dropped snapshots is removed, no kept snapshot is dropped afterwards.
    #[test]
    fn a_second_run_drops_nothing_more(
        entries in entries(), policy in policy(), zone in zone(), gone in proptest::collection::vec(any::<bool>(), 60),
    ) {
        let verdicts = judged(&entries, &policy, zone);
        let remaining = entries.iter().zip(&verdicts).zip(gone).filter(|((_, verdict), gone)| !verdict.is_drop() || !gone);
        let remaining: Vec<Entry> = remaining.map(|((entry, _), _)| entry.clone()).collect();
        let again = judged(&remaining, &policy, zone);
        prop_assert_eq!(kept(&remaining, &again), kept(&entries, &verdicts));
    }

    #[test]
    fn a_wider_policy_keeps_no_less(
        entries in entries(), policy in policy(), zone in zone(), more in any::<[bool; 6]>(), hours in 0..100_i64,
    ) {
        let wide = |count: u32, more: bool| if more { count + 3 } else { count };
        let wider = Policy {
            keep_last: wide(policy.keep_last, more[0]),
            keep_hourly: wide(policy.keep_hourly, more[1]),
            keep_daily: wide(policy.keep_daily, more[2]),
            keep_weekly: wide(policy.keep_weekly, more[3]),
            keep_monthly: wide(policy.keep_monthly, more[4]),
            keep_yearly: wide(policy.keep_yearly, more[5]),
            keep_within: Some(policy.keep_within.unwrap_or_default() + SignedDuration::from_hours(hours)),
            log_within: None,
        };
        let (narrow, wide) = (judged(&entries, &policy, zone), judged(&entries, &wider, zone));
        prop_assert!(kept(&entries, &narrow).is_subset(&kept(&entries, &wide)));
    }

    #[test]
    fn what_is_not_the_schedules_changes_nothing(entries in entries(), policy in policy(), zone in zone()) {
        let own: Vec<Entry> = entries.iter().filter(|entry| entry.subject.is_ok()).cloned().collect();
        let (all, alone) = (judged(&entries, &policy, zone), judged(&own, &policy, zone));
        prop_assert_eq!(kept(&entries, &all), kept(&own, &alone));
        let dropped = keys_of(&entries, &all, Verdict::is_drop);
        prop_assert_eq!(dropped, keys_of(&own, &alone, Verdict::is_drop));
    }

    #[test]
    fn the_newest_and_the_newest_proven_always_stay(entries in entries(), policy in policy(), zone in zone()) {
        let keep = judged(&entries, &policy, zone);
        let keep = kept(&entries, &keep);
        let own = entries.iter().filter_map(|entry| Some((entry, entry.subject.as_ref().ok()?)));
        let newest = |wanted: fn(&Candidate) -> bool| {
            own.clone().filter(|(_, is)| wanted(is)).map(|(e, _)| (e.at, e.key.as_str())).max()
        };
        for newest in [newest(|_| true), newest(|is| is.proven && !is.failed), newest(|is| is.drilled && !is.failed)] {
            prop_assert!(newest.is_none_or(|(_, key)| keep.contains(key)));
        }
    }

    /// However old the last backup is.
    #[test]
    fn nothing_ages_out(entries in entries(), policy in policy(), zone in zone(), later in 1..4_000_000_000_i64) {
        let zone = time_zone(zone).unwrap();
        let after = late() + SignedDuration::from_secs(later);
        prop_assert_eq!(judge(&entries, &policy, &zone, late()), judge(&entries, &policy, &zone, after));
    }
}
