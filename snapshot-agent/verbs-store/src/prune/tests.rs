//! Effects of a prune on a folder store, run by run.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use holdfast_contract::{ExitClass, MAX_REPORT_BYTES, ProofLevel, RemovalReport};
use holdfast_store::removal::Lasting;
use serde_json::{Value, json};

use super::world::{LINEAGE, Watched, World, keeping, prune_on, real_now};
use super::*;
use holdfast_catalog::proof::Proof;

const NOW: &str = "2026-11-25T12:00:00Z";

#[tokio::test]
async fn what_is_dropped_is_announced_and_goes_after_an_hour_by_both_clocks() {
    let world = World::new();
    let keys = world.save_hourly(4);
    let hour = || PruneRequest { announced_seconds: 3600, ..keeping(2) };
    // Invalid announcements permit nothing and do not stop a prune.
    fs::create_dir(world.path(LINEAGE).join("prunes")).unwrap();
    for (name, bytes) in [("20261125T110000Z-a.json", 3 << 20), ("20261125T110001Z-a.json", 2), ("notes.txt", 2)] {
        fs::write(world.path(LINEAGE).join("prunes").join(name), "{".repeat(bytes)).unwrap();
    }
    let first = world.prune(hour(), NOW).await.report;
    let pile = first.announced.unwrap();
    assert_eq!((first.kept, first.bytes, first.removed, pile.count, pile.bytes), (2, 10, 0, 2, 10));
    assert_eq!(pile.not_before.to_string(), "2026-11-25T13:00:00Z");
    assert_eq!(
        (pile.oldest.to_string(), pile.newest.to_string()),
        ("2026-11-21T00:07:00Z".into(), "2026-11-21T01:07:00Z".into())
    );
    let record: Value = serde_json::from_slice(&fs::read(world.path(first.record.as_ref().unwrap())).unwrap()).unwrap();
    assert!(record["policy"]["keepLast"] == 2 && record["storeId"] == "0a1b2c3d-0000", "{record}");
    let named = &record["snapshots"][0];
    assert!(named["key"] == keys[0].as_str() && named["data"] == "snapshot.db.zst", "{record}");
    assert!(named["reason"] == "no rule keeps it" && named["manifestSha256"].as_str().unwrap().len() == 64, "{record}");

    // The hour is over by the agent's clock and not by the store's, and the other way round.
    for (later, age) in [("2026-11-25T13:00:00Z", 0), ("2026-11-25T12:59:59Z", 3600)] {
        world.age_records(Duration::from_secs(age));
        let again = world.prune(hour(), later).await.report;
        assert_eq!((again.removed, again.record, again.announced.unwrap().count), (0, None, 2), "{later}");
    }
    let last = world.prune(hour(), "2026-11-25T13:00:00Z").await;
    assert_eq!((last.report.removed, last.report.removed_bytes, &last.report.announced), (2, 10, &None));
    for key in &keys[..2] {
        assert!(!world.path(key).exists(), "{key}");
    }
    for key in &keys[2..] {
        assert_eq!(world.files_of(key), ["manifest.json", "snapshot.db.zst"]);
    }
    assert!(world.path(first.record.as_ref().unwrap()).exists(), "the audit stays");
    let table = last.table();
    assert!(table.contains("removed  2026-11-21T00:07:00Z  5 B     announced, and no rule keeps it"), "{table}");
    assert!(
        table.contains("2 kept (10 B), 0 announced, 0 not announced, 0 locked, 0 untouched, 2 removed (10 B)"),
        "{table}"
    );
    let idle = world.prune(hour(), "2026-11-25T14:00:00Z").await.report;
    assert_eq!((idle.kept, idle.removed, idle.record), (2, 0, None), "nothing is left to do");
}

#[tokio::test]
async fn what_is_not_the_schedules_or_is_held_or_unknown_stays() {
    let world = World::new();
    let keys = world.save_hourly(6);
    let by_hand = world.save("2026-11-20T10:00:00Z", &json!({"origin": null}));
    let other = world.save("2026-11-20T11:00:00Z", &json!({"origin": {"uid": "x", "schedule": {"uid": "s2"}}}));
    let broken = world.save("2026-11-20T12:00:00Z", &json!({"storedBytes": 4}));
    let incomplete = world.save("2026-11-20T13:00:00Z", &json!({}));
    fs::remove_file(world.path(&incomplete).join("manifest.json")).unwrap();
    fs::create_dir(world.path(&keys[0]).join("holds")).unwrap();
    fs::write(world.path(&keys[0]).join("holds/12345678.json"), "{}").unwrap();
    fs::create_dir(world.path(&keys[2]).join("proofs")).unwrap();
    for proof in ["20261121T110000.000000Z-stored.json", "notes.txt"] {
        fs::write(world.path(&keys[2]).join("proofs").join(proof), "{}").unwrap();
    }
    fs::create_dir(world.path(&keys[3]).join("proofs")).unwrap();
    // The folder of a hold that was released.
    fs::create_dir(world.path(&keys[3]).join("holds")).unwrap();
    fs::write(world.path(&keys[3]).join("proofs/20261121T110000.000000Z-stored.json"), "{}").unwrap();
    let request = || PruneRequest { protect: vec![keys[1].clone()], ..keeping(2) };
    let mut before = world.files();
    assert_eq!(world.prune(request(), NOW).await.report.announced.unwrap().count, 2);
    let pruned = world.prune(request(), NOW).await;
    assert_eq!((pruned.report.removed, pruned.report.untouched, pruned.report.kept), (2, 6, 2));
    assert_eq!(pruned.report.unknown_files, [format!("{}/proofs/notes.txt", keys[2])]);
    assert_eq!(world.files_of(&keys[2]), ["proofs/notes.txt"]);
    assert!(!world.path(&keys[3]).exists());
    before.retain(|file, _| !file.starts_with(&keys[2]) && !file.starts_with(&keys[3]));
    let after = world.files();
    for (file, bytes) in before {
        assert_eq!(after.get(&file), Some(&bytes), "{file}");
    }
    let why = |key: &str| pruned.snapshots.iter().find(|row| row.key == key).map(|row| row.why.as_str());
    for (key, said) in [
        (&keys[0], "held"),
        (&keys[1], "protected"),
        (&by_hand, "saved by hand"),
        (&other, "another object requested it"),
        (&broken, "broken"),
        (&incomplete, "incomplete"),
    ] {
        assert_eq!(why(key), Some(said), "{key}");
    }
    let idle = world.prune(request(), NOW).await.report;
    assert_eq!((idle.removed, idle.record), (0, None), "what is left of a removed one is nobody's");
}

#[tokio::test]
async fn a_run_removes_twenty_and_announces_all() {
    let world = World::new();
    world.save_hourly(48);
    let first = world.prune(keeping(2), NOW).await.report;
    assert_eq!(first.announced.unwrap().count, 46);
    for (removed, left) in [(20, 26), (20, 6), (6, 0)] {
        let report = world.prune(keeping(2), NOW).await.report;
        assert_eq!((report.removed, report.announced.map_or(0, |pile| pile.count)), (removed, left));
        assert_eq!(report.record, None);
    }
}

#[tokio::test]
async fn another_policy_or_another_manifest_is_announced_anew() {
    let world = World::new();
    let keys = world.save_hourly(5);
    world.prune(keeping(3), NOW).await;
    let narrower = world.prune(keeping(2), NOW).await.report;
    assert_eq!((narrower.removed, narrower.announced.unwrap().count), (0, 3));
    world.save("2026-11-21T00:07:00Z", &json!({"member": "m2"}));
    let report = world.prune(keeping(2), NOW).await.report;
    assert_eq!((report.removed, report.announced.unwrap().count), (2, 1));
    assert!(world.path(&keys[0]).exists() && !world.path(&keys[1]).exists());
    // A wider policy keeps announced snapshots.
    assert_eq!(world.prune(keeping(3), NOW).await.report.kept, 3);
    assert!(world.path(&keys[0]).exists());

    let mut other = world.run(keeping(2), NOW);
    other.store_id = Some("ffffffff-0000".to_owned());
    let report = prune_on(&world.store, other).await.report;
    assert_eq!((report.removed, report.announced.unwrap().count), (0, 1), "another store's announcement");
}

#[tokio::test]
async fn any_doubt_about_the_whole_removes_nothing() {
    let world = World::new();
    world.save_hourly(4);
    world.prune(keeping(2), NOW).await;
    let fewer = world.save(
        "2026-11-21T04:07:00Z",
        &json!({"contents": {
            "revision": 4_000_000_000_i64, "keys": 600, "revisions": 6, "members": [], "leases": 0, "alarms": 0,
            "authEnabled": false, "users": 0, "roles": 0,
        }}),
    );
    let before = world.files();
    let stopped = world.prune(keeping(2), NOW).await;
    assert_eq!(stopped.report.stopped.as_ref().unwrap().reason, "SnapshotAnomaly");
    assert!(stopped.table().contains("nothing is removed (SnapshotAnomaly): "), "{}", stopped.table());
    let overdue = PruneRequest { newest_after: Some("2026-11-22T00:00:00Z".parse().unwrap()), ..keeping(2) };
    let overdue = PruneRequest { accept_anomaly: Some(fewer.clone()), ..overdue };
    assert_eq!(world.prune(overdue, NOW).await.report.stopped.unwrap().reason, "BackupOverdue");
    let mut other = world.run(keeping(2), NOW);
    other.store_match = StoreMatch::Different("another store".to_owned());
    let other = prune_on(&world.store, other).await;
    assert_eq!(other.failed.unwrap().failure().reason, "StoreExchanged");
    assert_eq!(other.report.failed.unwrap().failure().code, 73);
    let mut unread = world.run(keeping(2), NOW);
    unread.store_match = StoreMatch::Unreadable("403".to_owned());
    assert_eq!(prune_on(&world.store, unread).await.report.stopped.unwrap().reason, "StoreUnknown");
    let dry = world.prune(PruneRequest { dry_run: true, accept_anomaly: Some(fewer.clone()), ..keeping(2) }, NOW).await;
    assert_eq!((dry.report.stopped, dry.report.removed), (None, 0));
    assert!(world.files() == before, "something was written or removed");

    let accepted = PruneRequest { accept_anomaly: Some(fewer), ..keeping(2) };
    let accepted = world.prune(accepted, NOW).await.report;
    assert_eq!((accepted.stopped, accepted.removed, accepted.announced.unwrap().count), (None, 2, 1));
}

#[tokio::test]
async fn only_a_removal_that_has_begun_is_finished() {
    let world = World::new();
    let keys = world.save_hourly(7);
    world.prune(keeping(2), NOW).await;
    for key in &keys[..2] {
        world.cut(key).await;
    }
    for key in [&keys[2], &keys[6]] {
        fs::remove_file(world.path(key).join("manifest.json")).unwrap();
    }
    // A removal that had started, and a user who restored the snapshot.
    let manifest = fs::read(world.path(&keys[3]).join("manifest.json")).unwrap();
    world.cut(&keys[3]).await;
    fs::write(world.path(&keys[3]).join("manifest.json"), manifest).unwrap();
    // An upload of this snapshot is under way.
    let later = "2026-11-27T12:00:00Z";
    let until = later.parse::<Timestamp>().unwrap().as_second();
    fs::write(world.path(&keys[1]).join(format!(".stored-until-{until}.tmp")), "").unwrap();
    let protect = PruneRequest { protect: vec![keys[3].clone()], ..keeping(3) };
    let report = world.prune(protect, later).await.report;
    assert!(!world.path(&keys[0]).exists(), "its removal had begun, however long ago");
    assert!(world.path(&keys[1]).join("snapshot.db.zst").exists(), "a run is at it");
    assert!(world.path(&keys[2]).join("snapshot.db.zst").exists(), "it was announced, and no removal has begun");
    assert!(world.path(&keys[6]).join("snapshot.db.zst").exists(), "it was not announced");
    assert_eq!(world.files_of(&keys[3]), ["manifest.json", "snapshot.db.zst"], "it is a snapshot again");
    // Each finished removal counts once. Untouched are the three without a manifest, and the protected snapshot.
    assert_eq!((report.removed, report.removed_bytes, report.untouched, report.kept), (1, 5, 4, 2));
}

#[tokio::test]
async fn an_announcement_permits_for_a_day() {
    let world = World::new();
    world.save_hourly(4);
    world.prune(keeping(2), NOW).await;
    let late = world.prune(keeping(2), "2026-11-26T12:00:01Z").await.report;
    assert_eq!((late.removed, late.announced.unwrap().count), (0, 2));
    assert!(late.record.is_some(), "it is announced anew");
    assert_eq!(world.prune(keeping(2), "2026-11-27T12:00:01Z").await.report.removed, 2);
}

#[tokio::test]
async fn what_is_protected_stays_however_its_key_is_written() {
    let world = World::new();
    let keys = world.save_hourly(5);
    world.prune(keeping(2), NOW).await;
    world.cut(&keys[1]).await;
    let before = world.files();
    let protect = vec![format!("/{}/", keys[0]), keys[1].clone(), format!("{}/", keys[2])];
    let report = world.prune(PruneRequest { protect, ..keeping(2) }, NOW).await.report;
    assert_eq!((report.removed, report.untouched), (0, 3));
    assert!(world.files() == before);
    for wrong in ["s3://bucket/x", "", "../x", "shop/orders/1a2b3c4d/x/manifest.json"] {
        let request = PruneRequest { protect: vec![wrong.to_owned()], deadline_seconds: 60, ..keeping(2) };
        let error = run(request).await.unwrap_err();
        assert!(error.class() == ExitClass::Config && error.message().contains("--protect"), "{wrong}: {error}");
    }
}

#[tokio::test]
async fn whatever_lies_in_holds_holds() {
    let world = World::new();
    let keys = world.save_hourly(5);
    world.prune(keeping(2), NOW).await;
    world.put(&keys[0], "holds/.keep", "");
    world.put(&keys[1], "holds", "");
    world.put(&keys[2], ".small-0a1b2c3d.tmp", "");
    let before = world.files();
    let report = world.prune(keeping(2), NOW).await.report;
    assert_eq!((report.removed, report.untouched, report.unknown_files.len()), (1, 2, 0));
    for key in &keys[..2] {
        assert!(before.keys().filter(|file| file.starts_with(key)).all(|file| world.path(file).exists()), "{key}");
    }
}

/// Writes a failed verification for this manifest, or for another manifest.
fn failure(world: &World, key: &str, manifest: &[u8]) {
    let folder = Folder::parse("key", key).unwrap();
    let at: Timestamp = "2026-11-25T11:00:00Z".parse().unwrap();
    let proof = Proof::begin(&folder, ProofLevel::Stored, manifest, at);
    world.put(key, "proofs/20261125T110000.000000Z-stored-failed.json", &serde_json::to_string(&proof).unwrap());
}

#[tokio::test]
async fn a_failure_counts_by_what_its_proof_says() {
    let world = World::new();
    let keys = world.save_hourly(5);
    let manifest = |key: &str| fs::read(world.path(key).join("manifest.json")).unwrap();
    world.prune(keeping(2), NOW).await;
    // A file that only has the right name, a failure of another manifest, a failure of another key.
    world.put(&keys[4], "proofs/20261125T110000.000000Z-stored-failed.json", "{}");
    failure(&world, &keys[3], b"another");
    let pruned = world.prune(PruneRequest { dry_run: true, ..keeping(2) }, NOW).await;
    assert_eq!((pruned.report.kept, pruned.report.announced.clone().unwrap().count), (2, 3));
    assert!(pruned.snapshots[1].key == keys[3] && pruned.snapshots[1].why == "last, newest proven", "{pruned:?}");

    failure(&world, &keys[3], &manifest(&keys[3]));
    let pruned = world.prune(PruneRequest { dry_run: true, ..keeping(2) }, NOW).await;
    assert_eq!((pruned.snapshots[1].verdict, pruned.snapshots[2].verdict), ("drop", "keep"));

    for key in &keys {
        failure(&world, key, &manifest(key));
    }
    let before = world.files();
    let stopped = world.prune(keeping(2), NOW).await.report;
    assert_eq!((stopped.removed, stopped.stopped.unwrap().reason.as_str()), (0, "NoSoundSnapshot"));
    assert!(world.files() == before);
}

#[tokio::test]
async fn a_denial_of_one_snapshot_keeps_no_other() {
    let world = World::new();
    let keys = world.save_hourly(5);
    world.prune(keeping(2), NOW).await;
    let mut watched = Watched::new(&world.store, None);
    watched.denied = vec![keys[0].clone()];
    let pruned = prune_on(&watched, world.run(keeping(2), NOW)).await;
    assert_eq!((pruned.failed.as_ref(), pruned.report.removed), (None, 2));
    let locked = pruned.report.locked.clone().unwrap();
    assert_eq!((locked.count, locked.until), (1, None));
    assert!(pruned.table().contains("no rule keeps it; the store denies the removal"), "{}", pruned.table());
    let last = prune_on(&watched, world.run(keeping(2), NOW)).await;
    assert_eq!((last.failed.unwrap().class(), last.report.removed), (ExitClass::Denied, 0), "each try was denied");
    assert_eq!(world.files_of(&keys[0]), ["manifest.json", "snapshot.db.zst"]);
}

#[tokio::test]
async fn a_dry_run_and_a_stopped_one_touch_nothing() {
    let world = World::new();
    let keys = world.save_hourly(4);
    world.prune(keeping(2), NOW).await;
    let prunes = world.path(LINEAGE).join("prunes");
    let long_ago = real_now() - Duration::from_hours(2);
    fs::File::open(&prunes).unwrap().set_modified(long_ago).unwrap();
    let touched = || fs::metadata(&prunes).unwrap().modified().unwrap() != long_ago;
    world.prune(PruneRequest { dry_run: true, ..keeping(2) }, NOW).await;
    let overdue = PruneRequest { newest_after: Some("2026-11-22T00:00:00Z".parse().unwrap()), ..keeping(2) };
    world.prune(overdue, NOW).await;
    assert!(!touched());
    assert_eq!(world.prune(keeping(2), NOW).await.report.removed, 2);
    assert!(touched() && !world.path(&keys[0]).exists());
}

#[tokio::test]
async fn a_lock_that_the_manifest_records_is_believed() {
    let world = World::new();
    let lock = json!({"lock": {"mode": "GOVERNANCE", "until": "2026-12-01T00:00:00Z", "confirmed": false}});
    let key = world.save("2026-11-20T10:00:00Z", &lock);
    world.save_hourly(3);
    assert_eq!(world.prune(keeping(2), NOW).await.report.locked.unwrap().count, 1);
    let pruned = world.prune(keeping(2), NOW).await.report;
    assert_eq!((pruned.removed, pruned.locked.unwrap().count), (1, 1));
    let over = "2026-12-01T00:00:01Z";
    assert_eq!(world.prune(keeping(2), over).await.report.announced.unwrap().count, 1);
    assert_eq!(world.prune(keeping(2), over).await.report.removed, 1);
    assert!(!world.path(&key).exists());
}

#[tokio::test]
async fn what_is_locked_is_shown_until_when_and_not_fought() {
    let world = World::new();
    let keys = world.save_hourly(6);
    world.prune(keeping(2), NOW).await;
    let until = Some("2026-12-01T00:00:00Z".parse().unwrap());
    let mut watched = Watched::new(&world.store, None);
    watched.locks = HashMap::from([
        (format!("{}/manifest.json", keys[0]), Lasting { until, legal_hold: false }),
        (format!("{}/snapshot.db.zst", keys[1]), Lasting { until, legal_hold: false }),
        (format!("{}/snapshot.db.zst", keys[2]), Lasting { until: None, legal_hold: true }),
    ]);
    let before = world.files();
    let pruned = prune_on(&watched, world.run(keeping(2), NOW)).await;
    assert_eq!((pruned.failed.as_ref(), pruned.report.removed), (None, 1));
    let locked = pruned.report.locked.clone().unwrap();
    assert_eq!((locked.count, locked.until), (3, until));
    let removals = watched.removals.borrow();
    let [.., begun] = &removals[..] else { panic!("nothing was removed") };
    assert!(begun.contains("/prunes/") && removals.len() == 3, "{removals:?}");
    assert!(removals[..2].iter().all(|key| key.starts_with(&keys[3])), "{removals:?}");
    let after = world.files();
    assert!(before.keys().filter(|file| !file.starts_with(&keys[3])).all(|file| after.contains_key(file)));
    let table = pruned.table();
    assert!(table.contains("no rule keeps it; locked until 2026-12-01T00:00:00Z"), "{table}");
    assert!(table.contains("no rule keeps it; legal hold"), "{table}");
}

#[tokio::test]
async fn a_full_store_gets_room_by_what_was_announced_alone() {
    let world = World::new();
    let keys = world.save_hourly(4);
    world.prune(keeping(3), NOW).await;
    world.save("2026-11-21T04:07:00Z", &json!({}));
    let mut watched = Watched::new(&world.store, None);
    watched.full = true;
    let pruned = prune_on(&watched, world.run(keeping(3), NOW)).await;
    assert_eq!(
        (pruned.failed.unwrap().class(), pruned.report.removed, pruned.report.unannounced),
        (ExitClass::Full, 1, 1)
    );
    assert!(!world.path(&keys[0]).exists() && world.path(&keys[1]).exists());
}

#[test]
fn a_report_always_fits() {
    let long = || "\"".repeat(3000);
    let report = holdfast_contract::PruneReport {
        newest: Some("k".repeat(300)),
        record: Some("k".repeat(300)),
        unknown_files: vec![long(); 5],
        earlier_lineages: vec![long(); 5],
        stopped: Some(holdfast_contract::Stopped { reason: "SnapshotAnomaly".to_owned(), message: long() }),
        failed: Some(holdfast_contract::FailedReport { class: ExitClass::Denied, origin: None, message: long() }),
        removed: 20,
        ..holdfast_contract::PruneReport::default()
    };
    let json = crate::report::render_removal(&RemovalReport::Pruned(Box::new(report)));
    assert!(json.len() <= MAX_REPORT_BYTES, "{}", json.len());
    let Ok(RemovalReport::Pruned(read)) = serde_json::from_str(&json) else { panic!("{json}") };
    assert!(read.removed == 20 && read.stopped.unwrap().reason == "SnapshotAnomaly", "{json}");
}
