//! Restores to a point in time: a snapshot and the log of a real archiver, through both engines, into an etcd that starts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etcd_client::{DeleteOptions, GetOptions, PutOptions};
use holdfast_contract::{
    Compression, DATA_DIR, Engine, EtcdFlags, ExitClass, LogRequest, Point, PointProof, RestoreRequest, RestoredReport,
};
use holdfast_layout::{SegmentName, check_revision};
use jiff::Timestamp;
use snapshot_agent::verbs::{restore, save};
use tempfile::TempDir;

use crate::graft::ENGINES;
use crate::server::{Server, folder};
use crate::support::{
    child, eventually, file_store, files, free_port, restore_request, save_request, to_input, unsealed,
};

/// Flags of members that elect themselves at once.
const QUICK: [&str; 2] = ["--heartbeat-interval=10", "--election-timeout=100"];

pub(crate) const LINEAGE: &str = "shop/orders/1a2b3c4d";

/// A live etcd with an archiver, and its store.
pub(crate) struct Recorded {
    pub(crate) server: Server,
    pub(crate) store: TempDir,
    spool: TempDir,
    archiver: Child,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _gone = self.archiver.kill();
        let _status = self.archiver.wait();
    }
}

/// Starts an etcd with a key, saves a snapshot of it, and records from there on.
pub(crate) async fn recorded(line: &str) -> Recorded {
    let server = Server::start(line, &QUICK);
    server.put(b"first", b"v");
    let [store, spool] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let saved = save::run(save_request(etcd_flags(&server), file_store(store.path()), Compression::Zstd)).await;
    assert!(saved.unwrap().key.starts_with(LINEAGE));
    let archiver = archive(&server, store.path(), spool.path(), 1);
    Recorded { server, store, spool, archiver }
}

fn etcd_flags(server: &Server) -> EtcdFlags {
    EtcdFlags { endpoints: vec![server.endpoint().replace("--endpoints=", "http://")], ..EtcdFlags::default() }
}

fn archive(server: &Server, store: &Path, spool: &Path, check_seconds: u32) -> Child {
    let request = LogRequest {
        etcd: etcd_flags(server),
        store: file_store(store),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        cluster_uid: Some("1a2b3c4d-0000".to_owned()),
        every_seconds: 1,
        check_seconds,
        spool_dir: spool.to_owned(),
        ..LogRequest::default()
    };
    let mut command: Command = child("log::records", &to_input(&request));
    command.stdout(Stdio::null()).spawn().unwrap()
}

pub(crate) type Content = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;

/// Every key of an etcd, with value and lease.
pub(crate) async fn content(server: &Server) -> Content {
    let mut client = etcd_client::Client::connect(etcd_flags(server).endpoints, None).await.unwrap();
    let all = client.get("", Some(GetOptions::new().with_all_keys())).await.unwrap();
    all.kvs().iter().map(|kv| (kv.key().to_vec(), (kv.value().to_vec(), kv.lease()))).collect()
}

/// The restored etcd, and the report.
pub(crate) struct Restored {
    pub(crate) server: Server,
    pub(crate) report: RestoredReport,
    _folder: TempDir,
}

impl Recorded {
    pub(crate) async fn client(&self) -> etcd_client::Client {
        etcd_client::Client::connect(etcd_flags(&self.server).endpoints, None).await.unwrap()
    }

    fn log(&self) -> PathBuf {
        let lineage = self.store.path().join(LINEAGE);
        let is_later = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-"));
        let folders = fs::read_dir(&lineage).into_iter().flatten().map(|entry| entry.unwrap().path());
        folders.filter(is_later).max().unwrap_or_else(|| lineage.join("log"))
    }

    /// Paths below the log.
    pub(crate) fn paths(&self) -> Vec<String> {
        if self.log().exists() { files(&self.log()) } else { vec![] }
    }

    pub(crate) fn segments(&self) -> Vec<SegmentName> {
        self.paths().iter().filter_map(|path| SegmentName::parse(path)).collect()
    }

    /// Waits until the log has a revision, and a later sample.
    pub(crate) async fn reaches(&self, revision: i64) {
        let now = Timestamp::now();
        eventually("the log of the revision", async || {
            let is_later = |segment: &SegmentName| segment.at > now;
            let segments = self.segments();
            let last = segments.iter().map(|segment| segment.last).max()?;
            (last >= revision && segments.iter().any(is_later)).then_some(())
        })
        .await;
    }

    /// Records again, and asks no member for its HashKV.
    pub(crate) fn record_without_checks(&mut self) {
        self.archiver = archive(&self.server, self.store.path(), self.spool.path(), 0);
    }

    /// Ends the archiver as kubelet does.
    pub(crate) fn end(&mut self) {
        let pid = self.archiver.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.archiver.wait().unwrap().success());
    }

    pub(crate) fn request(&self, line: &str, volume: &Path, at: Point) -> RestoreRequest {
        let mut request = restore_request(file_store(self.store.path()), LINEAGE, volume);
        "m1".clone_into(&mut request.identity.member_name);
        let (at_revision, at_time) = match at {
            Point::Revision(revision) => (Some(revision), None),
            Point::Time(time) => (None, Some(time)),
        };
        RestoreRequest {
            at_revision,
            at_time,
            etcdutl: folder(line).join("etcdutl"),
            initial_cluster: format!("m1=http://127.0.0.1:{}", free_port()),
            ..request
        }
    }

    /// Restores to a point, and starts an etcd there.
    pub(crate) async fn restored(&self, line: &str, at: Point, engine: Engine) -> Restored {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let request = RestoreRequest { engine, revision_bump: 0, ..self.request(line, &volume, at) };
        let report = restore::run(request.clone()).await.unwrap_or_else(|error| panic!("{at}, {engine:?}: {error}"));
        assert_eq!((report.engine, &report.fell_back), (Some(engine), &None));
        // Another run finds the same restore complete, and refuses another point.
        let again = restore::run(request.clone()).await.unwrap();
        assert!(again.already && again.point == report.point, "{again:?}");
        let other = RestoreRequest { at_revision: Some(1_000_000), at_time: None, ..request.clone() };
        let error = restore::run(other).await.unwrap_err();
        assert!(error.class() == ExitClass::Refused && error.message().contains("not revision 1000000"), "{error}");
        let peer = request.initial_cluster.rsplit_once(':').unwrap().1.parse().unwrap();
        let server = Server::on(line, &volume.join(DATA_DIR), peer, None, &QUICK);
        Restored { server, report, _folder: folder }
    }

    /// Returns the message of a refused restore.
    async fn refused(&self, at: Point) -> String {
        let folder = tempfile::tempdir().unwrap();
        let error = restore::run(self.request("3.6", folder.path(), at)).await.unwrap_err();
        let is_empty = files(folder.path()).iter().all(|file| file.starts_with(".holdfast-staging"));
        assert!(is_empty, "{:?}", files(folder.path()));
        error.message().to_owned()
    }
}

/// Writes, deletes by mistake, and goes back to the moment before.
async fn back_to_the_moment_before(line: &str) {
    let mut recorded = recorded(line).await;
    let mut client = recorded.client().await;
    client.lease_grant(5_000, Some(etcd_client::LeaseGrantOptions::new().with_id(7))).await.unwrap();
    for key in 0..300 {
        let lease = (key % 10 == 0).then(|| PutOptions::new().with_lease(7));
        client.put(format!("/orders/{key:03}"), vec![b'v'; 3 * key], lease).await.unwrap();
    }
    let before = content(&recorded.server).await;
    let good = recorded.server.put(b"last", b"v");
    let with_last = content(&recorded.server).await;
    recorded.reaches(good).await;
    let moment = Timestamp::now();
    // The archiver samples each second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let gone = client.delete("/orders/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    let gone = gone.header().unwrap().revision();
    let mut last = gone;
    // A check names the hash of a member at a revision of its own.
    let checked = eventually("a check after the deletion", async || {
        last = recorded.server.put(b"later", b"v");
        recorded.paths().iter().filter_map(|path| check_revision(path)).find(|at| *at > gone)
    })
    .await;
    recorded.reaches(last).await;
    recorded.end();

    for engine in ENGINES {
        let Restored { server, report, .. } = recorded.restored(line, Point::Revision(good), engine).await;
        assert_eq!(content(&server).await, with_last);
        let point = *report.point.unwrap();
        assert_eq!((point.revision, point.asked, report.revision), (good, Point::Revision(good), Some(good)));
        assert_eq!((point.base_revision, point.records, point.unknown_leases), (2, 301, 0));
        let hash = server.hash_kv(0);
        assert_eq!(hash, recorded.server.hash_kv(good));
    }
    let at_time = recorded.restored(line, Point::Time(moment), Engine::Graft).await;
    assert_eq!((content(&at_time.server).await, at_time.report.revision), (with_last, Some(good)));
    let earlier = recorded.restored(line, Point::Revision(good - 1), Engine::Graft).await;
    assert_eq!(content(&earlier.server).await, before);
    assert_eq!(earlier.report.point.unwrap().proof, PointProof::Chained);
    let proven = recorded.restored(line, Point::Revision(checked), Engine::Graft).await;
    assert_eq!(proven.report.point.unwrap().proof, PointProof::HashKV);
    assert_eq!(proven.server.hash_kv(0), recorded.server.hash_kv(checked));
    let of_base = recorded.restored(line, Point::Revision(2), Engine::Graft).await;
    assert_eq!(of_base.report.point.unwrap().records, 0);

    // The nearest points of a request out of reach.
    let end = recorded.segments().iter().map(|segment| segment.last).max().unwrap();
    let later = recorded.refused(Point::Revision(end + 1)).await;
    assert!(later.contains(&format!("the log ends at revision {end}. The nearest point is revision {end}")), "{later}");
    let never = recorded.refused(Point::Revision(1)).await;
    assert!(never.contains("every snapshot is later. The nearest point is revision 2 "), "{never}");
    let future = recorded.refused(Point::Time(Timestamp::now() + Duration::from_hours(1))).await;
    assert!(
        future.contains(&format!("with revision {end}")) && future.contains("Try again if the log is still recorded"),
        "{future}"
    );
    // The first sample may come after some of the first revisions.
    let past = recorded.refused(Point::Time(Timestamp::UNIX_EPOCH)).await;
    let nearest =
        past.split_once("The nearest point is revision ").and_then(|(_, text)| text.split(' ').next()?.parse().ok());
    assert!(
        past.contains("the log begins at") && nearest.is_some_and(|near: i64| (2..=good).contains(&near)),
        "{past}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_5_back_to_the_moment_before() {
    back_to_the_moment_before("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_6_back_to_the_moment_before() {
    back_to_the_moment_before("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_7_back_to_the_moment_before() {
    back_to_the_moment_before("3.7").await;
}

/// A cluster goes back in place: the lineage has two etcd clusters and two logs, and each point is in the log of its time.
#[tokio::test(flavor = "multi_thread")]
async fn points_of_two_timelines_in_one_lineage() {
    let mut recorded = recorded("3.6").await;
    let good = recorded.server.put(b"good", b"v");
    let before = content(&recorded.server).await;
    let mistake = recorded.server.put(b"mistake", b"v");
    recorded.reaches(mistake).await;
    let moment = Timestamp::now();
    // A sample after the moment.
    recorded.reaches(mistake).await;
    recorded.end();

    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let back = RestoreRequest { revision_bump: 1000, ..recorded.request("3.6", &volume, Point::Revision(good)) };
    let report = restore::run(back.clone()).await.unwrap();
    assert_eq!((report.revision, report.revision_bump), (Some(good), 1000));
    let peer = back.initial_cluster.rsplit_once(':').unwrap().1.parse().unwrap();
    recorded.server = Server::on("3.6", &volume.join(DATA_DIR), peer, None, &QUICK);
    assert_eq!(content(&recorded.server).await, before);
    let first = recorded.server.put(b"first of the next", b"v");
    assert!(first > good + 1000, "{first}");
    let saved =
        save::run(save_request(etcd_flags(&recorded.server), file_store(recorded.store.path()), Compression::Zstd));
    assert!(saved.await.unwrap().key.starts_with(LINEAGE));
    recorded.record_without_checks();
    let later = recorded.server.put(b"later", b"v");
    recorded.reaches(later).await;
    let after = content(&recorded.server).await;
    let end = Timestamp::now();
    tokio::time::sleep(Duration::from_secs(2)).await;
    recorded.reaches(recorded.server.put(b"last", b"v")).await;
    recorded.end();

    for (at, wanted, revision) in [
        (Point::Revision(good), Some(&before), good),
        (Point::Revision(mistake), None, mistake),
        (Point::Time(moment), None, mistake),
        (Point::Revision(later), Some(&after), later),
        (Point::Time(end), Some(&after), later),
    ] {
        let restored = recorded.restored("3.6", at, Engine::Graft).await;
        assert_eq!(restored.report.revision, Some(revision), "{at}");
        let found = content(&restored.server).await;
        assert!(wanted.is_none_or(|wanted| *wanted == found), "{at}");
    }
    let between = recorded.refused(Point::Revision(mistake + 1)).await;
    assert!(between.contains(&format!("the log ends at revision {mistake}")), "{between}");
}

/// Returns the stored bytes of a changed segment, with the right checksum.
pub(crate) fn pack(mut plain: Vec<u8>) -> Vec<u8> {
    let end = plain.len() - 4;
    let crc = crc_fast::crc32_iscsi(&plain[..end]);
    plain[end..].copy_from_slice(&crc.to_le_bytes());
    zstd::encode_all(&plain[..], 1).unwrap()
}

/// Whatever is wrong with a log: a restore names it, and leaves the volume without a data directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_missing_damaged_or_of_another_cluster() {
    let mut recorded = recorded("3.6").await;
    let mut revision = 0;
    // Segments with records, one after the other.
    while recorded.segments().iter().filter(|segment| segment.last >= segment.first).count() < 3 {
        revision = recorded.server.put(b"k", b"v");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    recorded.reaches(revision).await;
    recorded.end();
    let mut segments = recorded.segments();
    segments.retain(|segment| segment.last >= segment.first);
    segments.sort();
    let second = segments[1].clone();
    let place = |segment: &SegmentName| {
        let key = segment.key(&holdfast_layout::Folder::parse("key", LINEAGE).unwrap().log()).unwrap();
        recorded.store.path().join(key.to_string())
    };
    let place = place(&second);
    let sound = fs::read(&place).unwrap();
    let target = Point::Revision(second.last);

    let mut flipped = sound.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    fs::write(&place, flipped).unwrap();
    let damaged = recorded.refused(target).await;
    assert!(damaged.contains(place.file_name().unwrap().to_str().unwrap()), "{damaged}");

    fs::remove_file(&place).unwrap();
    let missing = recorded.refused(target).await;
    let (before, after) = (second.first - 1, second.last);
    let says = format!(
        "the revisions {} to {after} are missing from the log. The nearest point is revision {before} ",
        before + 1
    );
    assert!(missing.contains(&says), "{missing}");
    fs::write(&place, &sound).unwrap();

    // A segment of another etcd under the name of this one.
    let mut plain = zstd::decode_all(&sound[..]).unwrap();
    plain[12] ^= 0xff;
    fs::write(&place, pack(plain)).unwrap();
    let mixed = recorded.refused(target).await;
    assert!(mixed.contains("two clusters have written to one place"), "{mixed}");
    fs::write(&place, &sound).unwrap();
    recorded.restored("3.6", target, Engine::Graft).await;

    // A segment whose archiver could not ask etcd for the revision of its users.
    let mut plain = zstd::decode_all(&sound[..]).unwrap();
    plain[68..76].copy_from_slice(&(-1_i64).to_le_bytes());
    fs::write(&place, pack(plain)).unwrap();
    let unknown = recorded.refused(target).await;
    assert!(unknown.contains("users or roles are unknown") && unknown.contains("--allow-auth-changed"), "{unknown}");
    let folder = tempfile::tempdir().unwrap();
    let allowed = RestoreRequest { allow_auth_changed: true, ..recorded.request("3.6", folder.path(), target) };
    assert_eq!(restore::run(allowed).await.unwrap().revision, Some(second.last));
    fs::write(&place, &sound).unwrap();

    // A damaged segment beside an intact one of another archiver, whichever comes first.
    for run8 in ["00000000", "zzzzzzzz"] {
        let twin = place.with_file_name(place.file_name().unwrap().to_str().unwrap().replace(&second.run8, run8));
        for damaged in [&place, &twin] {
            fs::write(&place, &sound).unwrap();
            fs::write(&twin, &sound).unwrap();
            let mut flipped = sound.clone();
            flipped[middle] ^= 1;
            fs::write(damaged, flipped).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let request = recorded.request("3.6", folder.path(), target);
            let report = restore::run(request).await.unwrap_or_else(|error| panic!("{}: {error}", damaged.display()));
            assert_eq!(report.revision, Some(second.last), "{}", damaged.display());
            let folder = tempfile::tempdir().unwrap();
            let request = recorded.request("3.6", folder.path(), Point::Time(second.at));
            restore::run(request).await.unwrap_or_else(|error| panic!("{}: {error}", damaged.display()));
        }
        fs::remove_file(&twin).unwrap();
    }
    fs::write(&place, &sound).unwrap();

    fs::remove_dir_all(recorded.log()).unwrap();
    let none = recorded.refused(target).await;
    assert!(none.contains("holds no log") && none.contains("agent log status"), "{none}");
}

/// The newest snapshot was saved after an upgrade, and the restore is into the version before.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_later_version_is_passed_over() {
    let mut recorded = recorded("3.6").await;
    // The log begins with the first snapshot.
    recorded.reaches(recorded.server.put(b"before", b"v")).await;
    let request = save_request(etcd_flags(&recorded.server), file_store(recorded.store.path()), Compression::Zstd);
    let saved = save::run(request).await.unwrap();
    let last = recorded.server.put(b"after", b"v");
    recorded.reaches(last).await;
    recorded.end();
    let place = recorded.store.path().join(&saved.key).join("manifest.json");
    let mut manifest = unsealed(&place);
    manifest["storageVersion"] = serde_json::json!("3.7.0");
    fs::write(&place, manifest.to_string()).unwrap();
    let at = Point::Revision(last);
    let restored = recorded.restored("3.6", at, Engine::Graft).await;
    assert_eq!(restored.report.point.unwrap().base_revision, 2);
    // A snapshot that the request names is the only one.
    let folder = tempfile::tempdir().unwrap();
    let named = RestoreRequest { key: saved.key, ..recorded.request("3.6", folder.path(), at) };
    let error = restore::run(named).await.unwrap_err();
    assert!(error.message().contains("restore into that version or later"), "{error}");
}

/// A watch does not show users.
#[tokio::test(flavor = "multi_thread")]
async fn users_that_changed_meanwhile_are_refused_unless_allowed() {
    let mut recorded = recorded("3.6").await;
    let good = recorded.server.put(b"before", b"v");
    recorded.reaches(good).await;
    recorded.server.post("/v3/auth/user/add", &serde_json::json!({"name": "u", "password": "secret"}));
    let mut last = 0;
    for _ in 0..3 {
        last = recorded.server.put(b"after", b"v");
        recorded.reaches(last).await;
    }
    recorded.end();
    let refused = recorded.refused(Point::Revision(last)).await;
    for words in ["users or roles changed", "--allow-auth-changed", "--at-revision"] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let folder = tempfile::tempdir().unwrap();
    let request =
        RestoreRequest { allow_auth_changed: true, ..recorded.request("3.6", folder.path(), Point::Revision(last)) };
    assert_eq!(restore::run(request).await.unwrap().revision, Some(last));
    recorded.restored("3.6", Point::Revision(good), Engine::Graft).await;
}
