//! Judges every folder of a lineage.
//!
//! Rules count from the newest candidate, not from the current time: when backups stop, no snapshot expires. A period without a
//! snapshot does not count, so an outage does not shorten the retention either. Folders that are no candidates change nothing.
//! Snapshots that were merged from the log are judged by themselves, by the same policy: however many there are, they take no place
//! of a snapshot that was read from etcd, and the log after such a snapshot stays.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::entry::{Candidate, Entry, MadeOf, Reason, Verdict};
use super::period::Period;
use holdfast_contract::Policy;

/// A user who inspects a recent run must find its snapshot.
const YOUNG: SignedDuration = SignedDuration::from_hours(1);

/// Proven snapshots that stay under every policy (I25): the newest may turn out broken.
const PROVEN: usize = 2;

/// Judges every entry, in order.
pub fn judge(entries: &[Entry], policy: &Policy, zone: &TimeZone, now: Timestamp) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = entries
        .iter()
        .map(|entry| match &entry.subject {
            Ok(_) => Verdict::Drop,
            Err(why) => Verdict::Untouched(*why),
        })
        .collect();
    let [saved, merged] = [MadeOf::Etcd, MadeOf::Log].map(|made_of| Candidates::from_entries(entries, made_of));
    let kept = |all: &Candidates<'_>| all.floors(now).chain(all.by_rules(policy, zone)).collect::<Vec<_>>();
    for (at, reason) in kept(&saved).into_iter().chain(kept(&merged)) {
        match verdicts.get_mut(at) {
            Some(Verdict::Keep(reasons)) if reasons.contains(&reason) => {}
            Some(Verdict::Keep(reasons)) => reasons.push(reason),
            Some(verdict) => *verdict = Verdict::Keep(vec![reason]),
            None => {}
        }
    }
    for verdict in &mut verdicts {
        if let Verdict::Keep(reasons) = verdict {
            reasons.sort_unstable();
        }
    }
    verdicts
}

/// A candidate, and its index in the entries.
#[derive(Clone, Copy)]
struct Placed<'a> {
    place: usize,
    at: Timestamp,
    key: &'a str,
    is: &'a Candidate,
}

/// The candidates, the newest first.
struct Candidates<'a>(Vec<Placed<'a>>);

impl<'a> Candidates<'a> {
    fn from_entries(entries: &'a [Entry], made_of: MadeOf) -> Self {
        let placed = |(place, entry): (usize, &'a Entry)| {
            let is = entry.subject.as_ref().ok().filter(|is| is.made_of == made_of)?;
            Some(Placed { place, at: entry.at, key: &entry.key, is })
        };
        let mut all: Vec<_> = entries.iter().enumerate().filter_map(placed).collect();
        all.sort_unstable_by(|a, b| (b.at, b.key).cmp(&(a.at, a.key)));
        Self(all)
    }

    /// Returns the candidates without a contradicting verification.
    fn sound(&self) -> impl Iterator<Item = Placed<'a>> {
        self.0.iter().copied().filter(|one| !one.is.failed)
    }

    /// Returns the snapshots that stay under every policy.
    fn floors(&self, now: Timestamp) -> impl Iterator<Item = (usize, Reason)> {
        let proven = self.sound().filter(|one| one.is.proven).take(PROVEN);
        let drilled = self.sound().find(|one| one.is.drilled);
        let young = self.0.iter().filter(move |one| now.duration_since(one.at) < YOUNG);
        let named = |reason| move |one: Placed<'_>| (one.place, reason);
        let newest = self.0.first().copied().map(named(Reason::Newest));
        newest
            .into_iter()
            .chain(proven.map(named(Reason::NewestProven)))
            .chain(drilled.map(named(Reason::NewestDrilled)))
            .chain(young.copied().map(named(Reason::Young)))
    }

    fn by_rules(&self, policy: &Policy, zone: &TimeZone) -> Vec<(usize, Reason)> {
        let Policy { keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly, keep_within, .. } =
            *policy;
        let Some(newest) = self.0.first() else { return vec![] };
        if policy.counts().iter().all(|(_, count)| *count == 0) && keep_within.is_none() {
            return self.0.iter().map(|one| (one.place, Reason::NoPolicy)).collect();
        }
        let mut kept: Vec<_> = self.sound().take(count(keep_last)).map(|one| (one.place, Reason::Last)).collect();
        if let Some(within) = keep_within {
            let near = self.0.iter().filter(|one| newest.at.duration_since(one.at) <= within);
            kept.extend(near.map(|one| (one.place, Reason::Within)));
        }
        for (period, most) in [
            (Period::Hour, keep_hourly),
            (Period::Day, keep_daily),
            (Period::Week, keep_weekly),
            (Period::Month, keep_monthly),
            (Period::Year, keep_yearly),
        ] {
            kept.extend(self.of_periods(period, count(most), zone).map(|place| (place, period.reason())));
        }
        kept
    }

    /// Returns one snapshot for each of the newest `most` periods: the newest proven one, or else the newest without a
    /// contradicting verification. A period in which all failed keeps its newest, and does not use up another period's place.
    fn of_periods(&self, period: Period, most: usize, zone: &TimeZone) -> impl Iterator<Item = usize> {
        let mut chosen: BTreeMap<_, Placed<'_>> = BTreeMap::new();
        for one in &self.0 {
            let best = chosen.entry(period.name(one.at, zone)).or_insert(*one);
            if rank(one.is) > rank(best.is) {
                *best = *one;
            }
        }
        let counts = |one: &Placed<'_>| usize::from(!one.is.failed);
        let newest_first = chosen.into_values().rev();
        let counted = newest_first.scan(0, move |periods, one| {
            let room = *periods < most;
            *periods += counts(&one);
            room.then_some(one)
        });
        counted.map(|one| one.place)
    }
}

/// Ranks a snapshot within its period.
const fn rank(is: &Candidate) -> u8 {
    match (is.failed, is.proven) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => 2,
    }
}

/// Converts a count of the policy.
fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
