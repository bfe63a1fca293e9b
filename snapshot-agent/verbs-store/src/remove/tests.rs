//! Refusals of a removal, and its continuation after a crash.

use std::fs;
use std::path::PathBuf;

use crate::sample;
use holdfast_contract::{ExitClass, Policy, StoreFlags};
use holdfast_io::sha256::Sha256;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use holdfast_catalog::announced::Judge;

const LINEAGE: &str = "shop/orders/1a2b3c4d";
const KEY: &str = "shop/orders/1a2b3c4d/20261121T100000Z-11111111-aaaaaaaa";
const OTHER: &str = "shop/orders/1a2b3c4d/20261120T100000Z-22222222-aaaaaaaa";

struct World {
    mount: tempfile::TempDir,
    request: RemoveRequest,
}

impl World {
    /// A proven snapshot, beside another proven snapshot.
    fn new() -> Self {
        let mount = tempfile::tempdir().unwrap();
        let url = format!("file://{}", mount.path().display());
        let store = StoreFlags { url, ..StoreFlags::default() };
        let mut world = Self {
            mount,
            request: RemoveRequest { store, key: KEY.to_owned(), deadline_seconds: 60, ..RemoveRequest::default() },
        };
        let proven = json!({"verification": {"level": "HashKV"}, "origin": {"name": "n", "uid": "owner-1"}});
        world.put(OTHER, &proven);
        world.request.manifest_sha256 = world.put(KEY, &proven);
        world
    }

    fn path(&self, below: &str) -> PathBuf {
        self.mount.path().join(below)
    }

    /// Stores a snapshot. Returns the sha256 of its manifest.
    fn put(&self, key: &str, other: &Value) -> String {
        let folder = sample::put(self.mount.path(), key, &sample::but(sample::manifest(key), other));
        hex::encode(Sha256::digest(fs::read(folder.join("manifest.json")).unwrap()))
    }

    async fn reason(&self, change: impl FnOnce(&mut RemoveRequest)) -> Option<String> {
        let mut request = self.request.clone();
        change(&mut request);
        let removed = run(request).await.unwrap();
        removed.refused.map(|refused| refused.reason)
    }
}

#[tokio::test]
async fn one_snapshot_goes_and_its_record_stays() {
    let world = World::new();
    fs::create_dir(world.path(KEY).join("proofs")).unwrap();
    fs::write(world.path(KEY).join("proofs/20261121T110000.000000Z-stored.json"), "{}").unwrap();
    let removed = run(RemoveRequest { owner_uid: Some("owner-1".to_owned()), ..world.request.clone() }).await.unwrap();
    assert_eq!((removed.bytes, removed.refused), (5, None));
    assert!(!world.path(KEY).exists() && world.path(OTHER).join("manifest.json").exists());
    assert_eq!(fs::read_dir(world.path(LINEAGE).join("prunes")).unwrap().count(), 1);
    let again = run(world.request.clone()).await.unwrap();
    assert_eq!((again.bytes, again.refused), (0, None), "what is gone is gone");
}

#[tokio::test]
async fn what_is_held_or_the_last_or_another_one_is_refused() {
    let world = World::new();
    let hold = world.path(KEY).join("holds");
    fs::create_dir(&hold).unwrap();
    fs::write(hold.join("12345678.json"), "{}").unwrap();
    assert_eq!(world.reason(|_| {}).await.as_deref(), Some("Held"));
    fs::remove_dir_all(&hold).unwrap();
    let owner = world.reason(|request| request.owner_uid = Some("owner-2".to_owned())).await;
    assert_eq!(owner.as_deref(), Some("NotTheSnapshot"));
    let sha256 = world.reason(|request| request.manifest_sha256 = "00".repeat(32)).await;
    assert_eq!(sha256.as_deref(), Some("NotTheSnapshot"));
    assert!(!world.path(LINEAGE).join("prunes").exists());
    world.put(OTHER, &json!({"verification": {"level": "Structure"}}));
    assert_eq!(world.reason(|_| {}).await.as_deref(), Some("LastProven"));
    assert!(world.path(KEY).join("manifest.json").exists() && world.path(KEY).join("snapshot.db.zst").exists());
    assert_eq!(world.reason(|request| request.allow_last = true).await, None);
    assert!(!world.path(KEY).exists());
    let wrong = run(RemoveRequest { manifest_sha256: "x".to_owned(), ..world.request.clone() }).await.unwrap_err();
    assert!(wrong.message().contains("64 hex digits"), "{wrong}");
    let late = RemoveRequest { not_after: Some(clock::now()), ..world.request.clone() };
    assert_eq!(run(late).await.unwrap_err().class(), ExitClass::Deadline);
    let elsewhere = RemoveRequest { expect_store_id: Some("0a1b2c3d-0000".to_owned()), ..world.request.clone() };
    assert_eq!(run(elsewhere).await.unwrap_err().failure().reason, "StoreExchanged");
}

#[tokio::test]
async fn a_removal_that_was_cut_is_finished_by_its_record_alone() {
    let world = World::new();
    let manifest = world.path(KEY).join("manifest.json");
    let content = fs::read(&manifest).unwrap();
    fs::remove_file(&manifest).unwrap();
    assert_eq!(world.reason(|_| {}).await.as_deref(), Some("NotTheSnapshot"), "a save may be running");
    fs::write(&manifest, content).unwrap();
    let store = Store::open(&world.request.store).unwrap();
    let folder = Folder::parse("key", KEY).unwrap();
    let found = inventory::read_attempt(&store, &folder, NO_SCHEDULE).await.unwrap();
    let lineage = folder.parent().unwrap();
    let named = named(&found, found.snapshot.as_ref().unwrap());
    let record = Record::of_one(&lineage, named.clone(), None, clock::now());
    record.keep(&store, &lineage, clock::now(), "12345678").await.unwrap();
    fs::remove_file(&manifest).unwrap();
    assert_eq!(
        world.reason(|_| {}).await.as_deref(),
        Some("NotTheSnapshot"),
        "its removal was asked for, and not begun"
    );
    removal_record::keep(&store, &Target::locate(folder, named, None).unwrap()).await.unwrap();
    let other = world.reason(|request| request.manifest_sha256 = "00".repeat(32)).await;
    assert_eq!(other.as_deref(), Some("NotTheSnapshot"));
    // An upload of this snapshot is under way.
    let mark = world.path(KEY).join(format!(".stored-until-{}.tmp", clock::now().as_second() + 60));
    fs::write(&mark, "").unwrap();
    let busy = run(world.request.clone()).await.unwrap_err();
    assert!(busy.message().contains("a run may be writing to its folder"), "{busy}");
    assert!(world.path(KEY).join("snapshot.db.zst").exists());
    fs::remove_file(mark).unwrap();
    assert_eq!(run(world.request.clone()).await.unwrap().bytes, 5);
    assert!(!world.path(KEY).exists());
}

#[tokio::test]
async fn a_snapshot_that_is_about_to_go_does_not_count_as_another() {
    for (scheduled, hours, refused) in
        [(false, 0, true), (false, 2, false), (true, 0, true), (true, 2, true), (true, 25, false)]
    {
        let world = World::new();
        let (store, folder) = (Store::open(&world.request.store).unwrap(), Folder::parse("key", OTHER).unwrap());
        let lineage = folder.parent().unwrap();
        let found = inventory::read_attempt(&store, &folder, NO_SCHEDULE).await.unwrap();
        let named = named(&found, found.snapshot.as_ref().unwrap());
        let at = clock::now() - SignedDuration::from_hours(hours);
        if scheduled {
            let policy = Policy { keep_last: 1, ..Policy::default() };
            let judge =
                Judge { lineage: &lineage, schedule_uid: "s1", policy: &policy, time_zone: "Etc/UTC", store_id: None };
            judge.announce(&store, (vec![named], None), at, "12345678").await.unwrap();
        } else {
            Record::of_one(&lineage, named, None, at).keep(&store, &lineage, at, "12345678").await.unwrap();
        }
        let reason = world.reason(|_| {}).await;
        assert_eq!(reason.as_deref(), refused.then_some("LastProven"), "{scheduled}, {hours} h");
        assert_eq!(world.path(KEY).exists(), refused);
    }
}

/// Each run writes before it reads, so at least one sees the other.
#[tokio::test]
async fn two_at_once_leave_one() {
    let world = World::new();
    let other = hex::encode(Sha256::digest(fs::read(world.path(OTHER).join("manifest.json")).unwrap()));
    let other = RemoveRequest { key: OTHER.to_owned(), manifest_sha256: other, ..world.request.clone() };
    let (one, two) = tokio::join!(run(world.request.clone()), run(other));
    let removed = [one, two].into_iter().filter(|ended| ended.as_ref().unwrap().refused.is_none()).count();
    assert!(removed <= 1, "{removed}");
    assert!(world.path(KEY).join("manifest.json").exists() || world.path(OTHER).join("manifest.json").exists());
}
