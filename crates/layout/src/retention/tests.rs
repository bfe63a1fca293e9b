//! Single rules of retention, by example.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use crate::manifest::{Manifest, sample};
use holdfast_contract::Policy;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn good() -> Candidate {
    Candidate { proven: true, cluster_id: "cafe".to_owned(), keys: Some(5000), ..Candidate::default() }
}

fn entry(time: &str, is: Candidate) -> Entry {
    let at = at(time);
    let ended = at + SignedDuration::from_secs(5);
    Entry { key: format!("shop/orders/1a2b3c4d/{time}"), at, subject: Ok(Candidate { ended, ..is }), spared: None }
}

fn verdicts(entries: &[Entry], policy: &Policy, zone: &str, now: &str) -> Vec<String> {
    let verdicts = judge(entries, policy, &time_zone(zone).unwrap(), at(now));
    verdicts.iter().map(|verdict| format!("{}: {}", verdict.word(), verdict.why())).collect()
}

#[test]
fn an_hour_that_clocks_show_twice_is_two() {
    let times = ["2026-10-25T00:20:00Z", "2026-10-25T00:40:00Z", "2026-10-25T01:20:00Z", "2026-10-25T02:20:00Z"];
    let entries: Vec<_> = times.iter().map(|time| entry(time, good())).collect();
    let policy = Policy { keep_hourly: 3, ..Policy::default() };
    let told = verdicts(&entries, &policy, "Europe/Berlin", "2026-10-26T00:00:00Z");
    assert_eq!(
        told,
        [
            "drop: no rule keeps it",
            "keep: hourly",
            "keep: hourly, newest proven",
            "keep: hourly, newest proven, newest"
        ]
    );
}

#[test]
fn merged_snapshots_take_no_place_of_saved_ones() {
    let merged = Candidate { made_of: MadeOf::Log, ..good() };
    let mut entries: Vec<_> =
        ["2026-11-20T10:00:00Z", "2026-11-21T10:00:00Z", "2026-11-22T10:00:00Z"].map(|time| entry(time, good())).into();
    entries.extend((0..5).map(|n| entry(&format!("2026-11-22T1{}:00:00Z", n + 1), merged.clone())));
    let policy = Policy { keep_last: 2, keep_daily: 2, ..Policy::default() };
    let told = verdicts(&entries, &policy, "Etc/UTC", "2026-11-24T00:00:00Z");
    let dropped: Vec<bool> = told.iter().map(|verdict| verdict.starts_with("drop")).collect();
    assert_eq!(dropped, [true, false, false, true, true, true, false, false], "{told:?}");
    assert_eq!(told[1], "keep: last, daily, newest proven", "the newest two saves");
}

#[test]
fn a_day_ends_where_its_zone_says() {
    let entries = ["2026-11-20T22:30:00Z", "2026-11-20T23:30:00Z", "2026-11-21T22:30:00Z", "2026-11-21T22:40:00Z"]
        .map(|time| entry(time, good()));
    let policy = Policy { keep_daily: 2, ..Policy::default() };
    let dropped = |zone| {
        let told = verdicts(&entries, &policy, zone, "2026-11-25T00:00:00Z");
        told.iter().map(|verdict| verdict.starts_with("drop")).collect::<Vec<_>>()
    };
    assert_eq!(dropped("Etc/UTC"), [true, false, false, false]);
    assert_eq!(dropped("Europe/Berlin"), [false, true, false, false]);
}

#[test]
fn a_period_keeps_its_newest_proven_one_and_a_failure_counts_for_nothing() {
    let unproven = Candidate { proven: false, ..good() };
    let failed = Candidate { failed: true, drilled: true, ..good() };
    let entries = [
        entry("2026-11-17T10:00:00Z", failed.clone()),
        entry("2026-11-18T10:00:00Z", unproven.clone()),
        entry("2026-11-18T11:00:00Z", unproven.clone()),
        entry("2026-11-19T10:00:00Z", good()),
        entry("2026-11-19T11:00:00Z", unproven),
        entry("2026-11-20T10:00:00Z", good()),
        entry("2026-11-21T10:00:00Z", good()),
        entry("2026-11-21T11:00:00Z", failed),
    ];
    let policy = Policy { keep_daily: 5, keep_last: 1, ..Policy::default() };
    let told = verdicts(&entries, &policy, "Etc/UTC", "2026-12-01T00:00:00Z");
    assert_eq!(
        told,
        [
            "keep: daily",
            "drop: no rule keeps it",
            "keep: daily",
            "keep: daily",
            "drop: no rule keeps it",
            "keep: daily, newest proven",
            "keep: last, daily, newest proven",
            "keep: newest",
        ]
    );
    let narrow = Policy { keep_daily: 4, ..policy };
    let told = verdicts(&entries, &narrow, "Etc/UTC", "2026-12-01T00:00:00Z");
    assert_eq!(told[0], "drop: no rule keeps it", "four days with sound snapshots are newer");
    assert_eq!(told[2], "keep: daily", "and it takes no place of theirs");
}

#[test]
fn floors_stand_whatever_the_policy_says() {
    let drilled = Candidate { drilled: true, ..good() };
    let entries = [
        entry("2026-11-18T10:00:00Z", drilled),
        entry("2026-11-19T10:00:00Z", good()),
        entry("2026-11-20T10:00:00Z", good()),
        entry("2026-11-21T10:00:00Z", Candidate { proven: false, ..good() }),
        entry("2026-11-21T10:30:00Z", Candidate { proven: false, ..good() }),
    ];
    let policy = Policy { keep_yearly: 1, ..Policy::default() };
    let told = |now| verdicts(&entries, &policy, "Etc/UTC", now);
    assert_eq!(
        told("2026-11-21T10:50:00Z"),
        [
            "keep: newest drilled",
            "keep: newest proven",
            "keep: yearly, newest proven",
            "keep: younger than 1 h",
            "keep: newest, younger than 1 h",
        ]
    );
    assert_eq!(told("2026-11-21T11:00:00Z")[3], "drop: no rule keeps it");
    let none = verdicts(&entries, &Policy::default(), "Etc/UTC", "2027-01-01T00:00:00Z");
    assert!(none.iter().all(|verdict| verdict.starts_with("keep: ") && verdict.contains("no policy")), "{none:?}");
}

#[test]
fn only_runs_of_the_schedule_are_candidates() {
    let key = "shop/orders/1a2b3c4d/20261121T162233Z-11111111-aaaaaaaa";
    let uid = "1a2b3c4d-0000-4000-8000-000000000000";
    let own = json!({"name": "nightly-1", "uid": "j", "kind": "Job", "schedule": {"name": "nightly", "uid": "s1"}});
    let told = |other: serde_json::Value| {
        let manifest = sample::but(sample::manifest(key), &json!({"clusterUid": uid, "origin": own}));
        let manifest = sample::but(manifest, &other).to_string();
        let whose = Whose { cluster_uid: uid, schedule_uid: "s1" };
        candidate(&Manifest::parse(manifest.as_bytes()).unwrap(), key, whose)
    };
    assert_eq!(told(json!({})), Ok(()));
    for (other, why) in [
        (json!({"key": "shop/orders/1a2b3c4d/other"}), Untouched::Copied),
        (json!({"clusterUid": "1a2b3c4d-ffff"}), Untouched::OtherCluster),
        (json!({"clusterUid": null}), Untouched::OtherCluster),
        (json!({"origin": null}), Untouched::ByHand),
        (json!({"origin": {"name": "by-hand"}}), Untouched::ByHand),
        (json!({"origin": {"name": "wanted", "uid": "s1"}}), Untouched::OtherOrigin),
        (json!({"origin": {"name": "n", "uid": "j", "schedule": {"uid": "s2"}}}), Untouched::OtherOrigin),
        (json!({"origin": {"name": "n", "uid": "j", "kind": "final", "schedule": {"uid": "s1"}}}), Untouched::Final),
    ] {
        assert_eq!(told(other.clone()), Err(why), "{other}");
    }
}

#[test]
fn every_doubt_stops() {
    let with =
        |time: &str, revision, keys| entry(time, Candidate { revision: Some(revision), keys: Some(keys), ..good() });
    let sound = || {
        vec![
            with("2026-11-21T10:00:00Z", 10, 1000),
            with("2026-11-21T11:00:00Z", 20, 1000),
            with("2026-11-21T12:00:00Z", 20, 700),
        ]
    };
    let sight = || Sight { now: at("2026-11-21T12:30:00Z"), complete: true, ..Sight::default() };
    let reason = |entries: &[Entry], sight: &Sight<'_>| find_stop(entries, sight).map(|stop| stop.reason());
    assert_eq!(reason(&sound(), &sight()), None);
    assert_eq!(reason(&[], &sight()), None);

    let other = StoreMatch::Different("no".to_owned());
    assert_eq!(reason(&sound(), &Sight { store_match: other, ..sight() }), Some("StoreExchanged"));
    let unread = StoreMatch::Unreadable("403".to_owned());
    assert_eq!(reason(&sound(), &Sight { store_match: unread, ..sight() }), Some("StoreUnknown"));
    assert_eq!(reason(&sound(), &Sight { complete: false, ..sight() }), Some("ListingIncomplete"));
    let due = |time: &str| Sight { newest_after: Some(at(time)), ..sight() };
    assert_eq!(reason(&sound(), &due("2026-11-21T12:00:01Z")), Some("BackupOverdue"));
    assert_eq!(reason(&sound(), &due("2026-11-21T12:00:00Z")), None);
    let back = Sight { now: at("2026-11-21T11:40:00Z"), ..sight() };
    assert_eq!(reason(&sound(), &back), Some("DateAhead"));

    let mut later = sound();
    later.push(Entry { subject: Err(Untouched::LaterFormat), ..entry("2026-11-01T00:00:00Z", good()) });
    assert_eq!(reason(&later, &sight()), Some("LaterFormat"));

    let mut fallen = sound();
    fallen[1] = with("2026-11-21T11:00:00Z", 9, 1000);
    assert_eq!(reason(&fallen, &sight()), Some("RevisionFell"));
    let key = fallen[1].key.clone();
    assert_eq!(reason(&fallen, &Sight { accepted: Some(&key), ..sight() }), None);
    assert_eq!(reason(&fallen, &Sight { accepted: Some("another"), ..sight() }), Some("RevisionFell"));
    // Overlapping saves may have opened their streams in either order, and each etcd has its own revisions.
    fallen[1].at = at("2026-11-21T10:00:04Z");
    assert_eq!(reason(&fallen, &sight()), None);
    fallen[1] = entry(
        "2026-11-21T11:00:00Z",
        Candidate { keys: None, revision: Some(9), cluster_id: "f00d".to_owned(), ..good() },
    );
    assert_eq!(reason(&fallen, &sight()), None);

    let mut fewer = sound();
    fewer[2] = with("2026-11-21T12:00:00Z", 30, 699);
    assert_eq!(reason(&fewer, &sight()), Some("SnapshotAnomaly"));
    let key = fewer[2].key.clone();
    assert_eq!(reason(&fewer, &Sight { accepted: Some(&key), ..sight() }), None);
    assert_eq!(reason(&fewer, &Sight { accepted: Some("another"), ..sight() }), Some("SnapshotAnomaly"));
    // Neither later backups nor a hold on the fuller snapshot undo the loss.
    let last = with("2026-11-21T12:10:00Z", 31, 690);
    fewer.push(last.clone());
    assert_eq!(reason(&fewer, &sight()), Some("SnapshotAnomaly"));
    assert!(find_stop(&fewer, &sight()).unwrap().message().contains(&format!("{key} has 699 keys")));
    assert_eq!(reason(&fewer, &Sight { accepted: Some(&key), ..sight() }), None);
    assert_eq!(reason(&fewer, &Sight { accepted: Some(&last.key), ..sight() }), Some("SnapshotAnomaly"));
    for why in [Untouched::Held, Untouched::Protected] {
        let mut spared = fewer.clone();
        spared[0] = with("2026-11-21T10:00:00Z", 10, 999);
        spared[1].spared = spared[1].subject.clone().ok();
        spared[1].subject = Err(why);
        assert_eq!(reason(&spared, &sight()), Some("SnapshotAnomaly"), "{why:?}");
        spared[1].spared = None;
        assert_eq!(reason(&spared, &sight()), None, "what another object requested is not compared");
    }
    let mut back = with("2026-11-21T12:20:00Z", 32, 1000);
    back.subject.as_mut().unwrap().proven = false;
    fewer.push(back);
    assert_eq!(reason(&fewer, &sight()), Some("SnapshotAnomaly"), "no member confirms that the keys came back");
    fewer[4].subject.as_mut().unwrap().proven = true;
    assert_eq!(reason(&fewer, &sight()), None, "the keys came back");
    fewer[4] = with("2026-11-21T12:20:00Z", 32, 699);
    assert_eq!(reason(&fewer, &sight()), Some("SnapshotAnomaly"));
    fewer[1] = with("2026-11-21T11:00:00Z", 20, 999);
    assert_eq!(reason(&fewer, &sight()), None, "a small database may shrink");

    let mut failed = sound();
    for entry in &mut failed {
        entry.subject.as_mut().unwrap().failed = true;
    }
    assert_eq!(reason(&failed, &sight()), Some("NoSoundSnapshot"));
    failed[0].subject.as_mut().unwrap().failed = false;
    assert_eq!(reason(&failed, &sight()), None);
    failed[0].subject.as_mut().unwrap().proven = false;
    assert_eq!(reason(&failed, &sight()), Some("NoSoundSnapshot"));
    failed.truncate(1);
    assert_eq!(reason(&failed, &sight()), None, "no verification failed");
    let stop = find_stop(&later, &sight()).unwrap();
    assert!(stop.message().contains("Prune with that version"), "{stop:?}");
}

/// A wave of keys ends each night. After two nights whose keys came back the next one is expected, and named.
#[test]
fn a_wave_of_keys_stops_nothing_once_it_is_usual() {
    let saves = |counts: &[u64]| -> Vec<Entry> {
        let first = at("2026-11-01T00:00:00Z");
        let entries = counts.iter().zip(0..).map(|(keys, n)| {
            entry(&(first + SignedDuration::from_hours(12 * n)).to_string(), Candidate { keys: Some(*keys), ..good() })
        });
        entries.collect()
    };
    let sight = Sight { now: at("2026-12-01T00:00:00Z"), complete: true, ..Sight::default() };
    let judged = |entries: &[Entry]| {
        let key = |why: String| why.split(' ').next().unwrap().to_owned();
        (find_stop(entries, &sight).map(|stop| key(stop.message())), describe_usual_loss(entries, None).map(key))
    };
    let named = |place: usize, counts: &[u64]| Some(saves(counts)[place].key.clone());
    let day = [9000, 1000];
    let wave = |days: usize| day.repeat(days);
    // The first two nights stop the removals until the morning.
    for days in [1, 2] {
        let night = wave(days);
        assert_eq!(judged(&saves(&night)), (named(night.len() - 1, &night), None), "{days}");
        assert_eq!(judged(&saves(&[&night[..], &[8000]].concat())), (None, None), "{days}");
    }
    assert_eq!(judged(&saves(&wave(3))), (None, named(5, &wave(3))));
    // A deeper loss stops, and an earlier loss without an end is not forgotten behind the waves.
    let deeper = [&wave(3)[..5], &[100]].concat();
    assert_eq!(judged(&saves(&deeper)), (named(5, &deeper), None));
    let hidden = [&[900_000][..], &wave(3)].concat();
    assert_eq!(judged(&saves(&hidden)), (named(1, &hidden), named(6, &hidden)));
    // An accepted loss covers the earlier ones.
    let accepted = saves(&hidden)[1].key.clone();
    assert_eq!(find_stop(&saves(&hidden), &Sight { accepted: Some(&accepted), ..sight.clone() }), None);
    let two = saves(&[9000, 1000, 100]);
    assert_eq!(find_stop(&two, &Sight { accepted: Some(&two[2].key), ..sight }), None);
}

/// The example of `docs/retention.md`, computed.
#[test]
fn the_page_tells_what_is_kept_and_why() {
    let first = at("2026-08-01T00:07:00Z");
    let entries: Vec<Entry> = (0..354)
        .map(|run| {
            let time = first + SignedDuration::from_hours(6 * run);
            let found = entry(&time.to_string(), good());
            match time.to_string().as_str() {
                "2026-10-26T18:07:00Z" => Entry { subject: Ok(Candidate { proven: false, ..good() }), ..found },
                "2026-10-25T18:07:00Z" => Entry { subject: Ok(Candidate { failed: true, ..good() }), ..found },
                "2026-09-03T12:07:00Z" => Entry { subject: Err(Untouched::Held), ..found },
                _ => found,
            }
        })
        .collect();
    let zone = time_zone("Europe/Berlin").unwrap();
    let policy = Policy { keep_last: 3, keep_daily: 5, keep_weekly: 4, keep_monthly: 3, ..Policy::default() };
    let verdicts = judge(&entries, &policy, &zone, at("2026-10-28T08:00:00Z"));
    let mut told = String::new();
    for (entry, verdict) in entries.iter().zip(&verdicts).rev().filter(|(_, verdict)| !verdict.is_drop()) {
        let time = entry.at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M %:z");
        told.push_str(&format!("| {time} | {} | {} |\n", verdict.word(), verdict.why()));
    }
    let dropped = verdicts.iter().filter(|verdict| verdict.is_drop()).count();
    told.push_str(&format!("\nThe policy drops the other {dropped} of {} snapshots.\n", entries.len()));
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/retention.md")).unwrap();
    assert!(page.contains(&told), "docs/retention.md should say:\n{told}");
}
