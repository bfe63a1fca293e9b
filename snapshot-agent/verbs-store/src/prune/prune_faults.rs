//! Each request of a prune fails, is denied, loses its answer, or is the run's last. Every time the prune removes only
//! announced snapshots, leaves no manifest without data, and later runs reach the same result.

use std::collections::BTreeSet;
use std::fs;

use holdfast_contract::ExitClass;
use holdfast_layout::record_time;
use serde_json::json;

use super::world::{Fault, LINEAGE, Watched, World, keeping, prune_on};
use holdfast_catalog::announced::Record;

const NOW: &str = "2026-11-25T12:00:00Z";

/// A store with four announced snapshots, one half-removed snapshot, and more to announce.
async fn world() -> World {
    let world = World::new();
    let keys = world.save_hourly(6);
    for key in &keys[..2] {
        fs::create_dir(world.path(key).join("proofs")).unwrap();
        fs::write(world.path(key).join("proofs/20261121T110000.000000Z-stored.json"), "{}").unwrap();
    }
    world.save("2026-11-20T10:00:00Z", &json!({"origin": null}));
    world.prune(keeping(2), NOW).await;
    world.cut(&keys[0]).await;
    world.save("2026-11-21T06:07:00Z", &json!({}));
    world
}

/// Returns the keys that any announcement names.
fn announced(world: &World) -> BTreeSet<String> {
    let files = world.files();
    let records =
        files.iter().filter(|(file, _)| file.starts_with(&format!("{LINEAGE}/prunes/")) && !is_removal_record(file));
    let records = records.map(|(_, json)| serde_json::from_slice::<Record>(json).unwrap());
    records.flat_map(|record| record.snapshots).map(|named| named.key).collect()
}

/// Whether the file records a started removal. The removal deletes this file with the snapshot.
fn is_removal_record(file: &str) -> bool {
    file.strip_prefix(&format!("{LINEAGE}/prunes/")).is_some_and(|name| record_time(name).is_none())
}

fn check(world: &World, before: &std::collections::BTreeMap<String, Vec<u8>>, allowed: &BTreeSet<String>, what: &str) {
    let after = world.files();
    for (file, bytes) in before {
        let key = file.split('/').take(4).collect::<Vec<_>>().join("/");
        match after.get(file) {
            Some(kept) => assert_eq!(kept, bytes, "{what}: {file} was changed"),
            None => {
                assert!(
                    allowed.contains(&key) || is_removal_record(file),
                    "{what}: {file} is gone and was not announced before"
                );
            }
        }
    }
    for manifest in after.keys().filter(|file| file.ends_with("/manifest.json")) {
        let data = manifest.replace("manifest.json", "snapshot.db.zst");
        assert!(after.contains_key(&data), "{what}: {manifest} stands without its data");
    }
}

#[tokio::test]
async fn prune_faults() {
    let undisturbed = world().await;
    let watched = Watched::new(&undisturbed.store, None);
    let pruned = prune_on(&watched, undisturbed.run(keeping(2), NOW)).await;
    let requests = watched.asked.get();
    assert_eq!((pruned.failed.as_ref(), pruned.report.removed), (None, 4));
    undisturbed.prune(keeping(2), NOW).await;
    let settled = snapshots(&undisturbed);
    println!("{requests} requests in one run");
    assert!(requests > 40, "{requests}");

    for fault in [Fault::Failed, Fault::Lost, Fault::Denied, Fault::DiesBefore, Fault::DiesAfter] {
        for at in 0..requests {
            let what = format!("{fault:?} at request {at}");
            let world = world().await;
            let (before, allowed) = (world.files(), announced(&world));
            let watched = Watched::new(&world.store, Some((at, fault)));
            let pruned = prune_on(&watched, world.run(keeping(2), NOW)).await;
            check(&world, &before, &allowed, &what);
            let gone = allowed.iter().filter(|key| !world.path(key).exists()).count();
            assert!(pruned.report.removed <= gone as u64, "{what}: {:?}", pruned.report);
            if let Some(failed) = &pruned.report.failed {
                assert_eq!(failed.class == ExitClass::Denied, fault == Fault::Denied, "{what}");
            } else {
                // A denied snapshot is locked. The last request asks for the log.
                let is_locked = fault == Fault::Denied && pruned.report.locked.is_some();
                let of_log = at + 1 == requests && pruned.report.log.as_ref().is_some_and(|log| log.kept.is_some());
                assert!(is_locked || of_log, "{what}: {:?}", pruned.report);
            }
            for removed in watched.removals.borrow().iter().filter(|removed| !is_removal_record(removed)) {
                assert!(allowed.iter().any(|key| removed.starts_with(&format!("{key}/"))), "{what}: {removed}");
            }

            for _ in 0..3 {
                let (before, allowed) = (world.files(), announced(&world));
                world.prune(keeping(2), NOW).await;
                check(&world, &before, &allowed, &what);
            }
            assert_eq!(snapshots(&world), settled, "{what}: later runs come to another end");
        }
    }
}

/// Returns every file except the announcements, which may be more.
fn snapshots(world: &World) -> Vec<String> {
    let prunes = format!("{LINEAGE}/prunes/");
    world.files().into_keys().filter(|file| !file.starts_with(&prunes)).collect()
}
