//! What a prune does to a folder store, run by run.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::catalog::proof::Proof;
use crate::contract::{ExitClass, MAX_REPORT_BYTES, Policy, ProofLevel, RemovalReport, StoreFlags};
use crate::format::layout::Key;
use crate::format::manifest::{Manifest, sample};
use crate::store::removal::{File, Lasting, Small};

pub(super) const LINEAGE: &str = "shop/orders/1a2b3c4d";
const STORE_ID: &str = "0a1b2c3d-0000";
pub(super) const UID: &str = "1a2b3c4d-0000-4000-8000-000000000000";

/// A store in a folder, and how often it was pruned.
pub(super) struct World {
    mount: tempfile::TempDir,
    pub(super) store: Store,
    runs: Cell<u32>,
}

impl World {
    pub(super) fn new() -> Self {
        let mount = tempfile::tempdir().unwrap();
        let flags = StoreFlags { url: format!("file://{}", mount.path().display()), ..StoreFlags::default() };
        Self { store: Store::open(&flags).unwrap(), mount, runs: Cell::default() }
    }

    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.mount.path().join(below)
    }

    /// A run of the schedule at this time, with what else its manifest says: its key.
    pub(super) fn save(&self, time: &str, other: &Value) -> String {
        let at: Timestamp = time.parse().unwrap();
        let key = format!("{LINEAGE}/{}-11111111-aaaaaaaa", at.strftime("%Y%m%dT%H%M%SZ"));
        let own = json!({
            "clusterUid": UID, "startedAt": at, "endedAt": at + SignedDuration::from_secs(5),
            "origin": {"name": "n", "uid": "j", "kind": "Job", "schedule": {"name": "nightly", "uid": "s1"}},
            "verification": {"level": "HashKV"},
            "contents": {
                "revision": at.as_second(), "keys": 1000, "revisions": 6, "members": [], "leases": 0, "alarms": 0,
                "authEnabled": false, "users": 0, "roles": 0,
            },
        });
        let manifest = sample::but(sample::but(sample::manifest(&key), &own), other);
        // As a save writes it, with its own sha256.
        let rendered = Manifest::parse(manifest.to_string().as_bytes()).unwrap().render().unwrap();
        let folder = sample::put(self.mount.path(), &key, &manifest);
        fs::write(folder.join("manifest.json"), rendered).unwrap();
        key
    }

    /// One run an hour of the first so many hours of 2026-11-21 and the days after: their keys.
    pub(super) fn save_hourly(&self, hours: i64) -> Vec<String> {
        let first: Timestamp = "2026-11-21T00:07:00Z".parse().unwrap();
        let times = (0..hours).map(|hour| first + SignedDuration::from_hours(hour));
        times.map(|time| self.save(&time.to_string(), &json!({}))).collect()
    }

    pub(super) fn run(&self, request: PruneRequest, now: &str) -> Run {
        self.runs.set(self.runs.get() + 1);
        Run {
            zone: time_zone(&request.time_zone).unwrap(),
            protected: protected(&request).unwrap(),
            request,
            lineage: Folder::parse("key", LINEAGE).unwrap(),
            pod_uid: format!("{:08x}-0000", self.runs.get()),
            mark: Mark::Same,
            store_id: Some(STORE_ID.to_owned()),
            now: now.parse().unwrap(),
            seen: Seen::default(),
        }
    }

    pub(super) async fn prune(&self, request: PruneRequest, now: &str) -> Pruned {
        let pruned = prune_on(&self.store, self.run(request, now)).await;
        assert_eq!(pruned.failed, None);
        pruned
    }

    /// Every file of the lineage and its bytes.
    pub(super) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.path(LINEAGE), LINEAGE, &mut files);
        files
    }

    /// Files below a key.
    pub(super) fn left(&self, key: &str) -> Vec<String> {
        let files = self.files().into_keys();
        files.filter_map(|file| Some(file.strip_prefix(&format!("{key}/"))?.to_owned())).collect()
    }

    /// A removal ends when the manifest is gone.
    pub(super) async fn cut(&self, key: &str) {
        let folder = Folder::parse("key", key).unwrap();
        let whose = Whose { cluster_uid: UID, schedule_uid: "s1" };
        let found = inventory::look(&self.store, &folder, whose).await.unwrap();
        let target = Target::of(folder, Named::of(&found, "x").unwrap(), Some(STORE_ID)).unwrap();
        begun::keep(&self.store, &target).await.unwrap();
        fs::remove_file(self.path(key).join("manifest.json")).unwrap();
    }

    /// Writes a file beside a snapshot.
    fn put(&self, key: &str, file: &str, content: &str) {
        let path = self.path(key).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Makes all announcements as old as that by the clock of the volume.
    fn age_records(&self, age: Duration) {
        for record in fs::read_dir(self.path(LINEAGE).join("prunes")).unwrap() {
            let file = fs::File::options().write(true).open(record.unwrap().path()).unwrap();
            file.set_modified(real_now() - age).unwrap();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "files are dated by the real clock")]
fn real_now() -> SystemTime {
    SystemTime::now()
}

fn collect(folder: &Path, below: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = format!("{below}/{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            collect(&path, &name, files);
        } else {
            files.insert(name, fs::read(path).unwrap());
        }
    }
}

pub(super) async fn prune_on(shelf: &impl Shelf, mut run: Run) -> Pruned {
    let failed = run.prune(shelf).await.err();
    run.told(vec![], failed)
}

/// The last so many, and announcements need no age.
pub(super) fn keeping(last: u32) -> PruneRequest {
    PruneRequest {
        cluster_uid: UID.to_owned(),
        schedule_uid: "s1".to_owned(),
        policy: Policy { keep_last: last, ..Policy::default() },
        time_zone: "Etc/UTC".to_owned(),
        ..PruneRequest::default()
    }
}

/// Where one request goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not carried out.
    Failed,
    /// It is carried out, and its answer is lost.
    Lost,
    /// The store refuses.
    Denied,
    /// The run ends before it.
    DiesBefore,
    /// The run ends after it.
    DiesAfter,
}

/// A real store whose requests are counted, and one of which goes wrong.
pub(super) struct Watched<'a> {
    store: &'a Store,
    fault: Option<(usize, Fault)>,
    pub(super) asked: Cell<usize>,
    dead: Cell<bool>,
    /// Keys of objects that the store locks.
    locks: HashMap<String, Lasting>,
    /// How the names of objects begin that nobody may remove.
    denied: Vec<String>,
    /// Whether nothing more can be written.
    full: bool,
    /// Every object that was asked to be removed.
    pub(super) removals: RefCell<Vec<String>>,
}

impl<'a> Watched<'a> {
    pub(super) fn new(store: &'a Store, fault: Option<(usize, Fault)>) -> Self {
        let (asked, dead) = (Cell::default(), Cell::default());
        let (locks, denied) = (HashMap::new(), vec![]);
        Self { store, fault, asked, dead, locks, denied, full: false, removals: RefCell::default() }
    }

    async fn ask<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let number = self.asked.replace(self.asked.get() + 1);
        let fault = self.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        if matches!(fault, Some(Fault::DiesBefore | Fault::DiesAfter)) && self.dead.replace(true)
            || self.dead.get() && fault.is_none()
        {
            return Err(Error::transient("the run is over"));
        }
        match fault {
            None => request.await,
            Some(Fault::Denied) => Err(Error::denied("403")),
            Some(Fault::Failed | Fault::DiesBefore) => Err(Error::transient("503")),
            Some(Fault::Lost | Fault::DiesAfter) => {
                request.await?;
                Err(Error::transient("the answer is lost"))
            }
        }
    }

    fn locked(&self, key: &Key) -> Lasting {
        self.locks.get(&key.to_string()).copied().unwrap_or_default()
    }
}

impl Shelf for Watched<'_> {
    async fn attempts(&self, lineage: &Folder) -> Result<Vec<Folder>> {
        self.ask(Shelf::attempts(self.store, lineage)).await
    }

    async fn files(&self, folder: &Folder) -> Result<Vec<File>> {
        self.ask(Shelf::files(self.store, folder)).await
    }

    async fn read(&self, key: &Key, limit: u64) -> Result<Option<Small>> {
        let small = self.ask(Shelf::read(self.store, key, limit)).await?;
        Ok(small.map(|small| Small { lasting: self.locked(key), ..small }))
    }

    async fn lasting(&self, key: &Key) -> Result<Option<Lasting>> {
        let lasting = self.ask(Shelf::lasting(self.store, key)).await?;
        Ok(lasting.map(|_| self.locked(key)))
    }

    async fn clock(&self, folder: &Folder) -> Result<Option<Timestamp>> {
        self.ask(Shelf::clock(self.store, folder)).await
    }

    async fn held(&self, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>> {
        self.ask(Shelf::held(self.store, attempt, now)).await
    }

    async fn put_new(&self, key: &Key, content: Bytes) -> Result<()> {
        if self.full {
            return Err(Error::full("507"));
        }
        self.ask(Shelf::put_new(self.store, key, content)).await
    }

    async fn remove(&self, key: &Key) -> Result<()> {
        self.removals.borrow_mut().push(key.to_string());
        if self.denied.iter().any(|denied| key.to_string().starts_with(denied)) {
            return Err(Error::denied("403"));
        }
        self.ask(Shelf::remove(self.store, key)).await
    }

    fn uri(&self, key: &Key) -> String {
        Shelf::uri(self.store, key)
    }
}

const NOW: &str = "2026-11-25T12:00:00Z";

#[tokio::test]
async fn what_is_dropped_is_announced_and_goes_after_an_hour_by_both_clocks() {
    let world = World::new();
    let keys = world.save_hourly(4);
    let hour = || PruneRequest { announced_seconds: 3600, ..keeping(2) };
    // What looks like an announcement and is none permits nothing, and keeps nobody.
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

    // By the agent's clock the hour is over, by the store's it is not, and the other way round.
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
        assert_eq!(world.left(key), ["manifest.json", "snapshot.db.zst"]);
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
    // Somebody has held it once.
    fs::create_dir(world.path(&keys[3]).join("holds")).unwrap();
    fs::write(world.path(&keys[3]).join("proofs/20261121T110000.000000Z-stored.json"), "{}").unwrap();
    let request = || PruneRequest { protect: vec![keys[1].clone()], ..keeping(2) };
    let mut before = world.files();
    assert_eq!(world.prune(request(), NOW).await.report.announced.unwrap().count, 2);
    let pruned = world.prune(request(), NOW).await;
    assert_eq!((pruned.report.removed, pruned.report.untouched, pruned.report.kept), (2, 6, 2));
    assert_eq!(pruned.report.unknown_files, [format!("{}/proofs/notes.txt", keys[2])]);
    assert_eq!(world.left(&keys[2]), ["proofs/notes.txt"]);
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
    // A wider policy keeps what was announced.
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
    other.mark = Mark::Different("another store".to_owned());
    let other = prune_on(&world.store, other).await;
    assert_eq!(other.failed.unwrap().failure().reason, "StoreExchanged");
    assert_eq!(other.report.failed.unwrap().failure().code, 73);
    let mut unread = world.run(keeping(2), NOW);
    unread.mark = Mark::Unreadable("403".to_owned());
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
    // A removal that had begun, and the snapshot was brought back.
    let manifest = fs::read(world.path(&keys[3]).join("manifest.json")).unwrap();
    world.cut(&keys[3]).await;
    fs::write(world.path(&keys[3]).join("manifest.json"), manifest).unwrap();
    // Somebody copies this one back at the moment.
    let later = "2026-11-27T12:00:00Z";
    let until = later.parse::<Timestamp>().unwrap().as_second();
    fs::write(world.path(&keys[1]).join(format!(".stored-until-{until}.tmp")), "").unwrap();
    let protect = PruneRequest { protect: vec![keys[3].clone()], ..keeping(3) };
    let report = world.prune(protect, later).await.report;
    assert!(!world.path(&keys[0]).exists(), "its removal had begun, however long ago");
    assert!(world.path(&keys[1]).join("snapshot.db.zst").exists(), "a run is at it");
    assert!(world.path(&keys[2]).join("snapshot.db.zst").exists(), "it was announced, and no removal has begun");
    assert!(world.path(&keys[6]).join("snapshot.db.zst").exists(), "it was not announced");
    assert_eq!(world.left(&keys[3]), ["manifest.json", "snapshot.db.zst"], "it is a snapshot again");
    // What is finished is counted once: untouched are the three without a manifest, and the protected one.
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

/// A verification of the snapshot as it is, or of another one.
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
    // By its name alone, of another manifest, of another key.
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
    assert_eq!(world.left(&keys[0]), ["manifest.json", "snapshot.db.zst"]);
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
    let report = crate::contract::PruneReport {
        newest: Some("k".repeat(300)),
        record: Some("k".repeat(300)),
        unknown_files: vec![long(); 5],
        earlier_lineages: vec![long(); 5],
        stopped: Some(crate::contract::Stopped { reason: "SnapshotAnomaly".to_owned(), message: long() }),
        failed: Some(crate::contract::FailedReport { class: ExitClass::Denied, origin: None, message: long() }),
        removed: 20,
        ..crate::contract::PruneReport::default()
    };
    let json = crate::verbs::report::render_removal(&RemovalReport::Pruned(Box::new(report)));
    assert!(json.len() <= MAX_REPORT_BYTES, "{}", json.len());
    let Ok(RemovalReport::Pruned(read)) = serde_json::from_str(&json) else { panic!("{json}") };
    assert!(read.removed == 20 && read.stopped.unwrap().reason == "SnapshotAnomaly", "{json}");
}
