//! A prune beside a log: what snapshots need stays at each failure, and the rest goes in the order of its revisions.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use holdfast_contract::{Policy, PruneRequest, PrunedLog};
use holdfast_layout::{GapName, SegmentName, check_key};
use holdfast_store::removal::Lasting;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::world::{Fault, LINEAGE, UID, Watched, World, keeping, prune_on};
use super::*;

const NOW: &str = "2026-11-25T12:00:00Z";

/// The first snapshot of `World::save_hourly`, whose revisions are the seconds of their times.
const FIRST: &str = "2026-11-21T00:07:00Z";

fn second(hour: i64) -> i64 {
    FIRST.parse::<Timestamp>().unwrap().as_second() + hour * 3600
}

/// A store with hourly snapshots, and a log with a segment for each half hour, a gap and two checks.
fn world(hours: i64) -> World {
    let world = World::new();
    world.save_hourly(hours);
    log(&world, hours, "cafe");
    world
}

fn log(world: &World, hours: i64, cluster_id: &str) {
    log_in(world, &Folder::parse("key", LINEAGE).unwrap().log(), hours, cluster_id);
}

fn log_in(world: &World, folder: &Folder, hours: i64, cluster_id: &str) {
    let put = |key: String, content: &str| {
        let path = world.path(&key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    put(folder.log_cluster().to_string(), &json!({"formatVersion": 1, "clusterId": cluster_id}).to_string());
    put(format!("{folder}/notes.txt"), "theirs");
    for half in 0..hours * 2 {
        let first = second(0) + half * 1800 + 1;
        let last = first + 1799;
        let at = Timestamp::from_second(last).unwrap() - SignedDuration::from_secs(1);
        let name = SegmentName { first, last, at, run8: "a".to_owned(), encrypted: false, tail: None };
        put(name.key(folder).unwrap().to_string(), "segment");
    }
    put(GapName { after: 5, until: 9, removed: false }.key(folder, "a").unwrap().to_string(), "{}");
    for at in [9, second(hours)] {
        put(check_key(folder, at, "a").unwrap().to_string(), "{}");
    }
}

/// Last revisions of the segments, as hours after the first snapshot.
fn ends(world: &World) -> Vec<f64> {
    let below = format!("{LINEAGE}/log/");
    let names = world.files().into_keys().filter_map(|file| SegmentName::parse(file.strip_prefix(&below)?));
    let mut ends: Vec<f64> =
        names.map(|name| f64::from(u32::try_from(name.last - second(0)).unwrap()) / 3600.0).collect();
    ends.sort_by(f64::total_cmp);
    ends
}

fn records(world: &World) -> usize {
    world.files().keys().filter(|file| file.contains("/log/gaps/") || file.contains("/log/checks/")).count()
}

#[tokio::test]
async fn what_no_snapshot_needs_goes_after_an_hour_and_after_the_snapshots() {
    let world = world(4);
    let hour = || PruneRequest { announced_seconds: 3600, ..keeping(2) };
    let first = world.prune(hour(), NOW).await;
    let log = first.report.log.clone().unwrap();
    assert_eq!((log.segments, log.bytes, log.unneeded, log.announced), (8, 56, 0, 0), "all snapshots stand yet");
    world.age_records(Duration::from_secs(3700));
    let second = world.prune(hour(), "2026-11-25T13:00:00Z").await;
    let log = second.report.log.clone().unwrap();
    assert_eq!((second.report.removed, log.unneeded, log.announced, log.removed), (2, 4, 4, 0));
    assert_eq!(log.not_before.unwrap().to_string(), "2026-11-25T14:00:00Z");
    assert!(
        second.report.record.is_some() && second.table().contains("no snapshot needs 4, 4 announced"),
        "{}",
        second.table()
    );
    assert_eq!((ends(&world).len(), records(&world)), (8, 3));
    // Too early, by either clock.
    for (later, age) in [("2026-11-25T14:00:00Z", 0), ("2026-11-25T13:59:59Z", 3700)] {
        world.age_records(Duration::from_secs(age));
        let again = world.prune(hour(), later).await.report;
        assert_eq!((again.log.unwrap().removed, again.record), (0, None), "{later}");
    }
    world.age_records(Duration::from_secs(3700));
    let last = world.prune(hour(), "2026-11-25T14:00:00Z").await.report;
    assert_eq!((last.removed, last.record), (0, None));
    let log = last.log.unwrap();
    assert_eq!(log, PrunedLog { segments: 4, bytes: 28, removed: 4, removed_bytes: 28, ..PrunedLog::default() });
    assert_eq!(ends(&world), [2.5, 3.0, 3.5, 4.0]);
    assert_eq!(records(&world), 1, "the gap and the check before the oldest snapshot are gone");
    assert!(
        world.path(LINEAGE).join("log/notes.txt").exists() && world.path(LINEAGE).join("log/cluster.json").exists()
    );
}

#[tokio::test]
async fn an_age_limit_removes_more_and_never_what_follows_the_newest_snapshot() {
    let within = |hours| PruneRequest {
        policy: Policy { log_within: Some(SignedDuration::from_hours(hours)), keep_last: 10, ..Policy::default() },
        ..keeping(10)
    };
    for (hours, left) in
        [(2, &[2.0, 2.5, 3.0, 3.5, 4.0][..]), (0, &[3.5, 4.0]), (100, &[0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0])]
    {
        let world = world(4);
        let announced = world.prune(within(hours), NOW).await.report;
        assert_eq!(announced.log.unwrap().announced, 8 - left.len() as u64);
        world.prune(within(hours), NOW).await;
        assert_eq!(ends(&world), left, "{hours}");
        let other = world.prune(keeping(10), NOW).await.report;
        assert_eq!(other.log.unwrap().unneeded, 0, "another policy");
    }
}

/// The snapshot is of another schedule, which has no age limit of its own.
#[tokio::test]
async fn an_age_limit_leaves_the_log_after_a_held_snapshot() {
    let other = json!({"origin": {"name": "n", "uid": "k", "schedule": {"name": "other", "uid": "s2"}}});
    let within = || PruneRequest {
        policy: Policy { log_within: Some(SignedDuration::from_mins(30)), keep_last: 10, ..Policy::default() },
        ..keeping(10)
    };
    let key = format!("{LINEAGE}/20261121T020700Z-11111111-aaaaaaaa");
    for by_file in [true, false] {
        let world = world(6);
        world.save("2026-11-21T02:07:00Z", &other);
        let protect = if by_file { vec![] } else { vec![key.clone()] };
        let request = || PruneRequest { protect: protect.clone(), ..within() };
        if by_file {
            world.put(&key, "holds/me.json", "");
        }
        for _ in 0..2 {
            world.prune(request(), NOW).await;
        }
        assert_eq!(ends(&world), [2.5, 3.0, 5.5, 6.0], "{by_file}");
        let below = format!("{LINEAGE}/log/");
        let gaps: Vec<_> =
            world.files().into_keys().filter_map(|file| GapName::parse(file.strip_prefix(&below)?)).collect();
        let hole = GapName { after: second(3), until: second(5), removed: true };
        assert_eq!(gaps, [hole], "the log says what is missing");
        // Without the hold the rest goes too, an hour after its announcement.
        let late = world.files().into_keys().find(|file| file.ends_with("holds/me.json"));
        if let Some(file) = late {
            fs::remove_file(world.path(&file)).unwrap();
        }
        let announced = world.prune(within(), NOW).await.report.log.unwrap();
        assert_eq!((announced.announced, announced.removed), (2, 0), "{by_file}");
        world.prune(within(), NOW).await;
        assert_eq!((ends(&world), records(&world)), (vec![5.5, 6.0], 1), "{by_file}");
    }
}

#[tokio::test]
async fn a_log_in_doubt_stays() {
    // A protected lineage: a restore to a point in time chooses the snapshot itself.
    let lineage = world(4);
    let protected = PruneRequest { protect: vec![LINEAGE.to_owned()], ..keeping(2) };
    let before = lineage.files();
    let pruned = lineage.prune(protected, NOW).await;
    assert_eq!((pruned.report.untouched, pruned.report.announced.as_ref(), &pruned.report.record), (4, None, &None));
    assert!(pruned.table().contains("It stays: the request protects the lineage"), "{}", pruned.table());
    assert_eq!(lineage.files(), before);

    // An announcement of the time before the protection permits nothing.
    let late = world(4);
    for _ in 0..2 {
        late.prune(keeping(2), NOW).await;
    }
    assert_eq!(late.prune(PruneRequest { dry_run: true, ..keeping(2) }, NOW).await.report.log.unwrap().announced, 4);
    let protected = PruneRequest { protect: vec![LINEAGE.to_owned()], ..keeping(2) };
    assert_eq!(late.prune(protected, NOW).await.report.log.unwrap().removed, 0);
    assert_eq!(ends(&late).len(), 8);

    let none = World::new();
    log(&none, 4, "cafe");
    for _ in 0..3 {
        let report = none.prune(keeping(2), NOW).await.report;
        assert!(report.log.unwrap().kept.unwrap().contains("no snapshot of its etcd cluster"));
    }
    assert_eq!(ends(&none).len(), 8);

    // A stop keeps the log too.
    let fallen = world(4);
    fallen.save("2026-11-21T08:07:00Z", &json!({"contents": {"revision": 1, "revisions": 6, "members": [], "leases": 0, "alarms": 0, "authEnabled": false, "users": 0, "roles": 0}}));
    for _ in 0..3 {
        assert_eq!(fallen.prune(keeping(2), NOW).await.report.stopped.unwrap().reason, "RevisionFell");
    }
    assert_eq!((ends(&fallen).len(), fallen.files().keys().any(|file| file.contains("/prunes/"))), (8, false));
}

/// After a return in place each etcd cluster has a log: the earlier one goes with the time of its snapshots, and the present one stays
/// before its first snapshot too.
#[tokio::test]
async fn the_log_of_an_earlier_etcd_cluster_goes_with_its_snapshots() {
    let returned = world(4);
    let lineage = Folder::parse("key", LINEAGE).unwrap();
    let later = lineage.later_log(0xbeef);
    let count = |folder: &Folder| {
        let below = format!("{folder}/");
        let files = returned.files().into_keys();
        files.filter(|file| file.strip_prefix(&below).and_then(SegmentName::parse).is_some()).count()
    };
    let bound = json!({"formatVersion": 1, "clusterId": "beef"}).to_string();
    returned.put(later.as_str(), "cluster.json", &bound);
    let last = second(6);
    let at = Timestamp::from_second(last).unwrap();
    let name = SegmentName { first: last, last, at, run8: "a".to_owned(), encrypted: false, tail: None };
    let place = name.key(&later).unwrap();
    returned.put(&place.to_string().replace(&format!("/{}", place.name()), ""), place.name(), "segment");
    for _ in 0..3 {
        returned.prune(keeping(2), NOW).await;
    }
    assert_eq!((ends(&returned), count(&later)), (vec![2.5, 3.0, 3.5, 4.0], 1), "before its first snapshot");
    for hour in ["07", "08"] {
        let more = json!({"keys": 1000, "revisions": 6, "members": [], "leases": 0, "alarms": 0, "authEnabled": false,
            "users": 0, "roles": 0, "revision": 2 * last});
        returned.save(&format!("2026-11-21T{hour}:07:00Z"), &json!({"clusterId": "beef", "contents": more}));
    }
    // A manifest that the agent cannot read names no etcd cluster.
    let unread = format!("{LINEAGE}/20261121T030900Z-11111111-bbbbbbbb");
    returned.put(&unread, "manifest.json", "{");
    for _ in 0..4 {
        returned.prune(keeping(2), NOW).await;
    }
    assert_eq!(ends(&returned), [2.5, 3.0, 3.5, 4.0]);
    fs::remove_dir_all(returned.path(&unread)).unwrap();
    for _ in 0..4 {
        let report = returned.prune(keeping(2), NOW).await.report;
        assert_eq!(report.stopped, None);
    }
    assert_eq!(
        (ends(&returned).len(), count(&later)),
        (0, 0),
        "no restore begins in the one, and none needs the other"
    );
}

/// An error of the log is one of the log alone.
#[tokio::test]
async fn a_log_that_cannot_be_read_holds_no_snapshot_back() {
    let world = world(4);
    let bound = world.path(LINEAGE).join("log/cluster.json");
    let whole = fs::read(&bound).unwrap();
    fs::write(&bound, "{}").unwrap();
    let announced = world.prune(keeping(2), NOW).await.report;
    assert_eq!((announced.announced.map(|pile| pile.count), announced.failed), (Some(2), None));
    let report = world.prune(keeping(2), NOW).await.report;
    assert_eq!((report.removed, report.failed), (2, None));
    let kept = report.log.unwrap().kept.unwrap();
    assert!(kept.contains("log/cluster.json") && kept.contains("Put an earlier version"), "{kept}");
    fs::write(&bound, whole).unwrap();
    for _ in 0..2 {
        world.prune(keeping(2), NOW).await;
    }
    assert_eq!(ends(&world), [2.5, 3.0, 3.5, 4.0]);
}

/// The announcements of the snapshots and of the log are two: a run that ends between them has announced the snapshots.
#[tokio::test]
async fn a_run_announces_the_log_beside_snapshots() {
    let world = world(4);
    world.prune(keeping(2), NOW).await;
    world.save("2026-11-21T04:07:00Z", &json!({}));
    let report = world.prune(keeping(2), NOW).await.report;
    assert_eq!((report.announced.unwrap().count, report.log.unwrap().announced), (1, 4));
    world.prune(keeping(2), NOW).await;
    assert_eq!(ends(&world), [2.5, 3.0, 3.5, 4.0]);
}

#[tokio::test]
async fn a_segment_of_the_future_ends_no_log() {
    let within = || PruneRequest {
        policy: Policy { log_within: Some(SignedDuration::from_hours(2)), keep_last: 10, ..Policy::default() },
        ..keeping(10)
    };
    let world = world(4);
    let folder = Folder::parse("key", LINEAGE).unwrap().log();
    let (first, at) = (second(4) + 1, "2027-11-21T04:37:00Z".parse().unwrap());
    let name = SegmentName { first, last: first + 1799, at, run8: "b".to_owned(), encrypted: false, tail: None };
    world.put(&folder.child("20271121").unwrap().to_string(), name.key(&folder).unwrap().name(), "segment");
    for _ in 0..2 {
        let pruned = world.prune(within(), NOW).await;
        let log = pruned.report.log.unwrap();
        assert_eq!((log.announced, log.removed), (0, 0));
        let kept = log.kept.unwrap();
        assert!(kept.starts_with("logWithin removes nothing") && kept.contains("/log/20271121/"), "{kept}");
    }
    // In the middle of the log it only stays itself.
    let later =
        SegmentName { first: first + 1800, last: first + 3599, at: at - SignedDuration::from_hours(365 * 24), ..name };
    world.put(&folder.child("20261121").unwrap().to_string(), later.key(&folder).unwrap().name(), "segment");
    world.prune(within(), NOW).await;
    world.prune(within(), NOW).await;
    assert_eq!(ends(&world), [3.0, 3.5, 4.0, 4.5, 5.0]);
}

/// The merge may run long after the times that it holds.
#[tokio::test]
async fn the_times_after_the_state_of_a_merge_stay() {
    let world = world(4);
    let until = "2026-11-21T03:07:00Z";
    let derived = json!({"base": format!("{LINEAGE}/x"), "baseRevision": 2, "segments": 1, "until": until});
    let key = world.save("2026-11-21T05:07:00Z", &json!({"derivedFrom": derived}));
    let whose = Whose { cluster_uid: UID, schedule_uid: "s1" };
    let found = inventory::read_attempt(&world.store, &Folder::parse("key", &key).unwrap(), whose).await.unwrap();
    assert_eq!(found.entry.at.to_string(), "2026-11-21T05:07:00Z", "the order of the snapshots");
    let bases = super::log::bases(std::iter::once(&found), 0xcafe, &HashSet::new()).unwrap();
    assert_eq!(bases.own[0].started_at, until.parse().unwrap());
}

#[tokio::test]
async fn locked_segments_stay_and_are_counted() {
    let world = world(4);
    for _ in 0..2 {
        world.prune(keeping(2), NOW).await;
    }
    let until = Some("2026-12-01T00:00:00Z".parse().unwrap());
    let below = format!("{LINEAGE}/log/2");
    let segments: Vec<String> = world.files().into_keys().filter(|file| file.starts_with(&below)).collect();
    let mut watched = Watched::new(&world.store, None);
    watched.locks.insert(segments[1].clone(), Lasting { until, legal_hold: false });
    watched.denied.push(segments[2].clone());
    let pruned = prune_on(&watched, world.run(keeping(2), NOW)).await;
    let log = pruned.report.log.unwrap();
    assert_eq!((pruned.failed, log.removed, log.locked), (None, 2, 2));
    assert_eq!(ends(&world), [1.0, 1.5, 2.5, 3.0, 3.5, 4.0]);
}

/// Each request fails, is denied, loses its answer, or is the run's last: no segment goes that a snapshot needs or that was not
/// announced, none before an older one, and later runs reach the same end.
#[tokio::test]
async fn a_log_after_each_failed_request() {
    let prepared = async || {
        let world = world(4);
        world.prune(keeping(2), NOW).await;
        world.prune(keeping(2), NOW).await;
        world.save("2026-11-21T04:07:00Z", &json!({}));
        world
    };
    let undisturbed = prepared().await;
    let watched = Watched::new(&undisturbed.store, None);
    let pruned = prune_on(&watched, undisturbed.run(keeping(2), NOW)).await;
    assert_eq!((pruned.failed, pruned.report.log.unwrap().removed), (None, 4));
    let requests = watched.asked.get();
    for fault in [Fault::Failed, Fault::Lost, Fault::Denied, Fault::DiesBefore, Fault::DiesAfter] {
        for at in 0..requests {
            let what = format!("{fault:?} at request {at}");
            let world = prepared().await;
            let watched = Watched::new(&world.store, Some((at, fault)));
            prune_on(&watched, world.run(keeping(2), NOW)).await;
            let left = ends(&world);
            let needed: BTreeSet<u64> = left.iter().map(|end| end.to_bits()).collect();
            assert!([2.5_f64, 3.0, 3.5, 4.0].iter().all(|end| needed.contains(&end.to_bits())), "{what}: {left:?}");
            if fault != Fault::Denied {
                assert!(left.windows(2).all(|pair| (pair[1] - pair[0] - 0.5).abs() < 0.01), "{what}: a hole: {left:?}");
            }
            for _ in 0..4 {
                world.prune(keeping(2), NOW).await;
            }
            assert_eq!(ends(&world), [3.5, 4.0], "{what}");
        }
    }
}
