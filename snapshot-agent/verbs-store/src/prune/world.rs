//! A folder store under test: simulated saves, prunes, and requests that fail one at a time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::sample;
use bytes::Bytes;
use holdfast_contract::{Policy, StoreFlags};
use holdfast_layout::Key;
use holdfast_layout::manifest::Manifest;
use holdfast_store::removal::{File, Lasting, Small};
use serde_json::{Value, json};

use super::*;
use holdfast_catalog::log::BoundLog;

pub(super) const LINEAGE: &str = "shop/orders/1a2b3c4d";
const STORE_ID: &str = "0a1b2c3d-0000";
pub(super) const UID: &str = "1a2b3c4d-0000-4000-8000-000000000000";

/// A store in a folder, and the number of its prunes.
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

    /// Writes the snapshot of a run at this time, with these changes to its manifest. Returns its key.
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
        // As a save writes the manifest, with the sha256 of the rendered text.
        let rendered = Manifest::parse(manifest.to_string().as_bytes()).unwrap().render().unwrap();
        let folder = sample::put(self.mount.path(), &key, &manifest);
        fs::write(folder.join("manifest.json"), rendered).unwrap();
        key
    }

    /// Writes one snapshot per hour from 2026-11-21 on. Returns their keys.
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
            store_match: StoreMatch::Same,
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

    /// Returns every file of the lineage with its bytes.
    pub(super) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.path(LINEAGE), LINEAGE, &mut files);
        files
    }

    /// Returns the files below a key.
    pub(super) fn files_of(&self, key: &str) -> Vec<String> {
        let files = self.files().into_keys();
        files.filter_map(|file| Some(file.strip_prefix(&format!("{key}/"))?.to_owned())).collect()
    }

    /// Starts a removal that ends after it has removed the manifest.
    pub(super) async fn cut(&self, key: &str) {
        let folder = Folder::parse("key", key).unwrap();
        let whose = Whose { cluster_uid: UID, schedule_uid: "s1" };
        let found = inventory::read_attempt(&self.store, &folder, whose).await.unwrap();
        let target = Target::locate(folder, Named::from_found(&found, "x").unwrap(), Some(STORE_ID)).unwrap();
        removal_record::keep(&self.store, &target).await.unwrap();
        fs::remove_file(self.path(key).join("manifest.json")).unwrap();
    }

    /// Writes a file beside a snapshot.
    pub(super) fn put(&self, key: &str, file: &str, content: &str) {
        let path = self.path(key).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Sets the age of all announcements, by the clock of the volume.
    pub(super) fn age_records(&self, age: Duration) {
        for record in fs::read_dir(self.path(LINEAGE).join("prunes")).unwrap() {
            let file = fs::File::options().write(true).open(record.unwrap().path()).unwrap();
            file.set_modified(real_now() - age).unwrap();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "files are dated by the real clock")]
pub(super) fn real_now() -> SystemTime {
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

pub(super) async fn prune_on(shelf: &impl RemovableStore, mut run: Run) -> Pruned {
    let failed = run.prune(shelf).await.err();
    let log = run.prune_logs(shelf).await;
    run.end_log(log);
    run.into_pruned(vec![], failed)
}

/// A policy that keeps this many snapshots. Announcements need no age.
pub(super) fn keeping(last: u32) -> PruneRequest {
    PruneRequest {
        cluster_uid: UID.to_owned(),
        schedule_uid: "s1".to_owned(),
        policy: Policy { keep_last: last, ..Policy::default() },
        time_zone: "Etc/UTC".to_owned(),
        ..PruneRequest::default()
    }
}

/// Failure of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The request is not carried out.
    Failed,
    /// The request is carried out, and its answer is lost.
    Lost,
    /// The store refuses.
    Denied,
    /// The run ends before the request.
    DiesBefore,
    /// The run ends after the request.
    DiesAfter,
}

/// A real store that counts its requests and fails one of them.
pub(super) struct Watched<'a> {
    store: &'a Store,
    fault: Option<(usize, Fault)>,
    pub(super) asked: Cell<usize>,
    dead: Cell<bool>,
    /// Keys of objects that the store locks.
    pub(super) locks: HashMap<String, Lasting>,
    /// Prefixes of the objects that the store refuses to remove.
    pub(super) denied: Vec<String>,
    /// Whether the store refuses every write.
    pub(super) full: bool,
    /// Every object of a removal request.
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

impl RemovableStore for Watched<'_> {
    async fn attempts(&self, lineage: &Folder) -> Result<Vec<Folder>> {
        self.ask(RemovableStore::attempts(self.store, lineage)).await
    }

    async fn files(&self, folder: &Folder) -> Result<Vec<File>> {
        self.ask(RemovableStore::files(self.store, folder)).await
    }

    async fn logs_of(&self, lineage: &Folder) -> Result<Vec<BoundLog>> {
        self.ask(RemovableStore::logs_of(self.store, lineage)).await
    }

    async fn log_cluster(&self, log: &Folder) -> Result<Option<u64>> {
        self.ask(RemovableStore::log_cluster(self.store, log)).await
    }

    async fn log_folders(&self, log: &Folder) -> Result<Vec<String>> {
        self.ask(RemovableStore::log_folders(self.store, log)).await
    }

    async fn log_files(&self, log: &Folder, name: &str) -> Result<Vec<File>> {
        self.ask(RemovableStore::log_files(self.store, log, name)).await
    }

    async fn read(&self, key: &Key, limit: u64) -> Result<Option<Small>> {
        let small = self.ask(RemovableStore::read(self.store, key, limit)).await?;
        Ok(small.map(|small| Small { lasting: self.locked(key), ..small }))
    }

    async fn lasting(&self, key: &Key) -> Result<Option<Lasting>> {
        let lasting = self.ask(RemovableStore::lasting(self.store, key)).await?;
        Ok(lasting.map(|_| self.locked(key)))
    }

    async fn clock(&self, folder: &Folder) -> Result<Option<Timestamp>> {
        self.ask(RemovableStore::clock(self.store, folder)).await
    }

    async fn held(&self, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>> {
        self.ask(RemovableStore::held(self.store, attempt, now)).await
    }

    async fn put_new(&self, key: &Key, content: Bytes) -> Result<()> {
        if self.full {
            return Err(Error::full("507"));
        }
        self.ask(RemovableStore::put_new(self.store, key, content)).await
    }

    async fn remove(&self, key: &Key) -> Result<()> {
        self.removals.borrow_mut().push(key.to_string());
        if self.denied.iter().any(|denied| key.to_string().starts_with(denied)) {
            return Err(Error::denied("403"));
        }
        self.ask(RemovableStore::remove(self.store, key)).await
    }

    fn uri(&self, key: &Key) -> String {
        RemovableStore::uri(self.store, key)
    }
}
