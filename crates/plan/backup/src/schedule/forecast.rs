//! Forecast: the recorded snapshots that a schedule's retention keeps.
//!
//! Decides with the agent's own function (`holdfast_layout::retention::judge`), from the records, whether a Job has something to
//! do, and what the status announces. The agent decides what to remove, from the contents of the store.

use holdfast_api::backup_store::Right;
use holdfast_api::key;
use holdfast_api::schedule::Retention;
use holdfast_api::store::Location;
use holdfast_contract::{Level, Policy};
use holdfast_layout::attempt_of_key;
use holdfast_layout::retention::{
    Candidate, Entry, MadeOf, Sight, Stop, StoreMatch, Untouched, Verdict, describe_usual_loss, find_stop, judge,
    time_zone,
};
use jiff::{SignedDuration, Timestamp};

use super::facts::Run;
use super::{Line, Observed, UTC};
use crate::store;
use holdfast_base::meta;
use holdfast_base::restores::is_read;

/// The agent's limit: no policy removes a younger snapshot.
const YOUNG: SignedDuration = SignedDuration::from_hours(1);

/// Forecast for the recorded snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Forecast {
    /// Number of the snapshots that stay.
    pub(super) kept: u64,
    /// Stored bytes of the snapshots that stay.
    pub(super) bytes: u64,
    /// Snapshots that no rule and no known lock keeps, oldest first: start of the save, and key.
    pub(super) dropped: Vec<(Timestamp, String)>,
    /// The newest snapshot: start of its save, and the common folder of all snapshots.
    pub(super) newest: Option<(Timestamp, String)>,
    /// Why the agent may remove nothing.
    pub(super) stop: Option<Stop>,
    /// A loss of keys that stops nothing, because such losses are usual.
    pub(super) usual_loss: Option<String>,
    /// When time alone changes the forecast.
    pub(super) changes_at: Option<Timestamp>,
}

/// Converts the retention into the agent's policy, or returns the mistake.
pub(super) fn policy(retention: &Retention) -> Result<Policy, String> {
    let Retention {
        keep_last,
        keep_hourly,
        keep_daily,
        keep_weekly,
        keep_monthly,
        keep_yearly,
        keep_within,
        log_within,
    } = retention;
    let within = |field: &str, text: &Option<String>| {
        let wrong = |text: &str| format!("spec.retention.{field}: {text:?} is no time such as 6h or 2d12h");
        text.as_deref().map(|text| duration(text).ok_or_else(|| wrong(text))).transpose()
    };
    let count = |count: &Option<u32>| count.unwrap_or_default();
    let policy = Policy {
        keep_last: count(keep_last),
        keep_hourly: count(keep_hourly),
        keep_daily: count(keep_daily),
        keep_weekly: count(keep_weekly),
        keep_monthly: count(keep_monthly),
        keep_yearly: count(keep_yearly),
        keep_within: within("keepWithin", keep_within)?,
        log_within: within("logWithin", log_within)?,
    };
    policy.check().map_err(|why| format!("spec.retention: {why}"))?;
    Ok(policy)
}

/// Parses days, hours and minutes, each at most once and in this order.
fn duration(text: &str) -> Option<SignedDuration> {
    let (mut rest, mut minutes) = (text, 0_i64);
    for (unit, of_unit) in [('d', 24 * 60), ('h', 60), ('m', 1)] {
        if let Some((number, after)) = rest.split_once(unit) {
            let number: i64 = number.parse::<u32>().ok()?.into();
            (minutes, rest) = (minutes + number * of_unit, after);
        }
    }
    (rest.is_empty() && !text.is_empty()).then(|| SignedDuration::from_mins(minutes))
}

/// Returns the policy's effect on the snapshots at this place.
pub(super) fn forecast(
    seen: &Observed,
    runs: &[Run<'_>],
    (policy, line): (&Policy, &Line),
    (place, store_id): (&Location, Option<&str>),
    now: Timestamp,
) -> Forecast {
    let here: Vec<(&Run<'_>, &str, Timestamp)> = runs
        .iter()
        .filter(|run| !meta::deleting(&run.snapshot.metadata) && lies_at(run, place, store_id))
        .filter_map(|run| {
            let key = run.snapshot.status.as_ref()?.artifact.as_ref()?.key.as_str();
            Some((run, key, attempt_of_key(key)?.1))
        })
        .collect();
    let cluster = seen.cluster.as_ref().map(|cluster| meta::uid(&cluster.metadata));
    let entries: Vec<Entry> = here.iter().map(|(run, key, at)| entry(seen, run, (key, *at), cluster)).collect();
    let zone = seen.schedule.spec.time_zone.as_deref().unwrap_or(UTC);
    // An invalid zone has no valid line either.
    let verdicts = time_zone(zone).map(|zone| judge(&entries, policy, &zone, now)).unwrap_or_default();
    let sight = Sight {
        now,
        complete: true,
        store_match: StoreMatch::Same,
        newest_after: line.before_last(now),
        accepted: meta::annotation(&seen.schedule.metadata, key::ACCEPT_ANOMALY),
    };
    let newest = entries.iter().filter(|entry| entry.subject.is_ok()).max_by_key(|entry| entry.at);
    let mut forecast = Forecast {
        stop: find_stop(&entries, &sight),
        usual_loss: describe_usual_loss(&entries, sight.accepted),
        newest: newest.and_then(|entry| Some((entry.at, entry.key.rsplit_once('/')?.0.to_owned()))),
        ..Forecast::default()
    };
    let mut changes = vec![];
    for ((run, key, at), verdict) in here.iter().zip(verdicts) {
        let locked = locked_until(run).filter(|until| *until > now);
        changes.extend(locked.into_iter().chain([*at + YOUNG]));
        match verdict {
            Verdict::Keep(_) => {
                forecast.kept += 1;
                let artifact = run.snapshot.status.as_ref().and_then(|status| status.artifact.as_ref());
                forecast.bytes += artifact.map_or(0, |artifact| artifact.stored_bytes);
            }
            Verdict::Drop if locked.is_none() => forecast.dropped.push((*at, (*key).to_owned())),
            Verdict::Drop | Verdict::Untouched(_) => {}
        }
    }
    forecast.dropped.sort();
    forecast.changes_at = changes.into_iter().filter(|at| *at > now).min();
    forecast
}

/// Whether a snapshot lies at this place: a moved store leaves the earlier snapshots at the old place.
fn lies_at(run: &Run<'_>, place: &Location, store_id: Option<&str>) -> bool {
    let record = run.snapshot.status.as_ref().and_then(|status| status.store.as_ref());
    let at = match record {
        Some(record) => record.location(Right::Read),
        None => run.snapshot.spec.template.destination.place.location(),
    };
    let same_store = record.and_then(|record| record.id.as_deref()).zip(store_id).is_none_or(|(was, is)| was == is);
    same_store && at.is_some_and(|at| store::place_of(&at) == store::place_of(place))
}

fn locked_until(run: &Run<'_>) -> Option<Timestamp> {
    run.snapshot.status.as_ref()?.artifact.as_ref()?.locked_until.as_ref()?.parse().ok()
}

/// Returns the agent's entry for a snapshot, as far as the record knows.
fn entry(seen: &Observed, run: &Run<'_>, (key, at): (&str, Timestamp), cluster: Option<&str>) -> Entry {
    let judged = candidate(run, cluster).map(|it| Candidate { drilled: is_drilled(seen, key), ..it });
    let spared = if run.snapshot.spec.hold {
        Some(Untouched::Held)
    } else {
        is_read(&seen.restores, key).then_some(Untouched::Protected)
    };
    let (subject, spared) = match spared {
        Some(why) => (Err(why), judged.ok()),
        None => (judged, None),
    };
    Entry { key: key.to_owned(), at, subject, spared }
}

/// Whether the store has the proof of the newest passed drill beside this snapshot.
fn is_drilled(seen: &Observed, key: &str) -> bool {
    let drills = seen.schedule.status.as_ref().and_then(|status| status.drill.as_ref());
    let passed = drills.and_then(|drills| drills.last_passed.as_ref());
    passed.is_some_and(|passed| passed.key == key && passed.proof_not_kept.is_none())
}

fn candidate(run: &Run<'_>, cluster: Option<&str>) -> Result<Candidate, Untouched> {
    let status = run.snapshot.status.clone().unwrap_or_default();
    if status.cluster_uid.is_none() || status.cluster_uid.as_deref() != cluster {
        return Err(Untouched::OtherCluster);
    }
    let ended = status.completed_at.and_then(|at| at.parse().ok()).unwrap_or(run.at);
    let artifact = status.artifact.unwrap_or_default();
    Ok(Candidate {
        ended,
        proven: status.verification.is_some_and(|proof| proof.level == Level::HashKV),
        drilled: false,
        failed: false,
        cluster_id: status.source.map(|source| source.cluster_id).unwrap_or_default(),
        revision: artifact.revision,
        keys: artifact.keys.and_then(|keys| u64::try_from(keys).ok()),
        // No run records a merge.
        made_of: MadeOf::Etcd,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        let of = |within: &str| {
            let keep_within = Some(within.to_owned());
            policy(&Retention { keep_last: Some(2), keep_within, ..Retention::default() })
                .map(|p| p.keep_within.unwrap())
        };
        assert_eq!(of("6h").unwrap(), SignedDuration::from_hours(6));
        assert_eq!(of("2d12h5m").unwrap(), SignedDuration::from_mins(60 * 60 + 5));
        let log = Retention { keep_last: Some(2), log_within: Some("7d".to_owned()), ..Retention::default() };
        assert_eq!(policy(&log).unwrap().log_within, Some(SignedDuration::from_hours(7 * 24)));
        let wrong = Retention { log_within: Some("7".to_owned()), ..log };
        assert!(policy(&wrong).unwrap_err().contains("spec.retention.logWithin"));
        for wrong in ["", "h", "6", "6h2d", "-6h", "6 h", "1h1h"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(policy(&Retention::default()).unwrap_err().contains("no count"));
    }
}
