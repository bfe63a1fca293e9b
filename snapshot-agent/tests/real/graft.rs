//! The graft beside etcdutl: both make the same data directory from the same snapshot, in contents and for etcd.
//!
//! Databases of each line, restored by the etcdutl of that line and of the next, with and without a revision bump.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_bbolt::scan::{Names, Reader};
use holdfast_contract::{
    Compression, DATA_DIR, Engine, EtcdFlags, ExitClass, RestoreRequest, RestoredReport, StoreFlags,
};

use crate::dump::{dump, with_pages};
use crate::server::{Dice, Server, folder, minor, run};
use crate::soak::soak;
use crate::support::{NOTE, file_store, files, free_port, in_place_of, noise, restore_request, save_request};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use snapshot_agent::gate::volume_identity::Identity;
use snapshot_agent::verbs::{restore, save};
use tempfile::TempDir;

pub(crate) const ENGINES: [Engine; 2] = [Engine::Etcdutl, Engine::Graft];

/// Flags of members that elect themselves at once.
const QUICK: [&str; 2] = ["--heartbeat-interval=10", "--election-timeout=100"];

/// bbolt's own checker.
fn bbolt() -> PathBuf {
    let path = std::env::var_os("HOLDFAST_BBOLT").unwrap_or_else(|| {
        panic!("HOLDFAST_BBOLT is not set: `make test` sets it, and eval \"$(tests/bin/stores)\" does")
    });
    PathBuf::from(path)
}

/// A stored snapshot.
struct Snapshot {
    name: &'static str,
    mount: TempDir,
    key: String,
    /// The user who has to log in to the restored etcd.
    user: Option<&'static str>,
}

impl Snapshot {
    /// A snapshot that the agent saved.
    async fn saved(name: &'static str, server: &Server, user: Option<&'static str>) -> Self {
        let mount = tempfile::tempdir().unwrap();
        let password = mount.path().join("password");
        fs::write(&password, user.and_then(|user| user.split_once(':')).map_or("", |(_, password)| password)).unwrap();
        let flags = EtcdFlags {
            endpoints: vec![server.endpoint().replace("--endpoints=", "http://")],
            user: user.and_then(|user| user.split_once(':')).map(|(name, _)| name.to_owned()),
            password_file: user.map(|_| password),
            ..EtcdFlags::default()
        };
        let saved = save::run(save_request(flags, file_store(mount.path()), Compression::Zstd)).await;
        let saved = saved.unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name, mount, key: saved.key, user }
    }

    /// A file that another program made.
    fn raw(name: &'static str, database: &[u8], trailer: bool) -> Self {
        let mount = tempfile::tempdir().unwrap();
        let mut bytes = database.to_vec();
        if trailer {
            bytes.extend(Sha256::digest(database));
        }
        fs::write(mount.path().join("raw.db"), bytes).unwrap();
        Self { name, mount, key: "raw.db".to_owned(), user: None }
    }

    fn store(&self) -> StoreFlags {
        file_store(self.mount.path())
    }
}

fn tiny(line: &str) -> Server {
    Server::start(line, &QUICK)
}

/// A server with a history, a compaction, tombstones, large values and leases.
fn history(line: &str) -> Server {
    let server = Server::start(line, &QUICK);
    let mut dice = Dice(5);
    for batch in 0..8 {
        let ops: Vec<_> = (0..500)
            .map(|i| {
                let length = usize::try_from(dice.below(400)).unwrap();
                let value = noise(dice.below(1_000), length);
                Server::put_op(format!("/registry/things/{:06}", batch * 500 + i).as_bytes(), &value)
            })
            .collect();
        server.txn(&ops);
    }
    let mut revision = 0;
    for _ in 0..150 {
        let key = format!("/registry/things/{:06}", dice.below(4_000));
        revision = match dice.below(3) {
            0 => server.delete(key.as_bytes()),
            _ => server.put(key.as_bytes(), b"again"),
        };
    }
    server.compact(revision - 60);
    for (id, ttl) in [(5, 6_000), (77, 36_000)] {
        server.post("/v3/lease/grant", &json!({"ID": id.to_string(), "TTL": ttl.to_string()}));
    }
    server.post("/v3/kv/put", &json!({"key": "bQ==", "value": "bQ==", "lease": "77"}));
    for (key, size) in [("a", 1_500_000), ("b", 60_000), ("c", 1_500_000), ("a", 1_499_999)] {
        server.put(key.as_bytes(), &noise(dice.below(1_000), size));
    }
    server.delete(b"/registry/things/000001");
    server
}

/// A server with users, roles, alarms, a learner and a removed member; authentication is on.
fn everything(line: &str) -> Server {
    let mut server = Server::start(line, &QUICK);
    server.put(b"k", b"v");
    let add = |port: u16| {
        let url = format!("http://127.0.0.1:{port}");
        server.post("/v3/cluster/member/add", &json!({"peerURLs": [url], "isLearner": true}))
    };
    let gone = add(1)["member"]["ID"].as_str().unwrap().to_owned();
    server.post("/v3/cluster/member/remove", &json!({"ID": gone}));
    add(3);
    for user in ["root", "platform_operator", "u3"] {
        server.post("/v3/auth/user/add", &json!({"name": user, "password": "secret"}));
    }
    for role in ["root", "readers"] {
        server.post("/v3/auth/role/add", &json!({"name": role}));
    }
    server.post("/v3/auth/user/grant", &json!({"user": "root", "role": "root"}));
    server.post("/v3/auth/user/grant", &json!({"user": "u3", "role": "readers"}));
    let me = server.post("/v3/maintenance/status", &json!({}))["header"]["member_id"].as_str().unwrap().to_owned();
    server.post("/v3/maintenance/alarm", &json!({"action": "ACTIVATE", "memberID": me, "alarm": "NOSPACE"}));
    server.post("/v3/auth/enable", &json!({}));
    server.user = Some("root:secret".to_owned());
    server
}

/// A server whose compaction is scheduled and half done.
fn unfinished(line: &str) -> Server {
    let prefix = if minor(line) == "3.5" { "--experimental-" } else { "--" };
    let slow = [format!("{prefix}compaction-batch-limit=10"), format!("{prefix}compaction-sleep-interval=500ms")];
    let args: Vec<&str> = QUICK.into_iter().chain(slow.iter().map(String::as_str)).collect();
    let server = Server::start(line, &args);
    let mut revision = 0;
    for i in 0..300 {
        revision = server.put(format!("k{}", i % 40).as_bytes(), b"value");
    }
    server.post("/v3/kv/compaction", &json!({"revision": (revision - 10).to_string()}));
    std::thread::sleep(std::time::Duration::from_millis(700));
    server
}

async fn snapshots(line: &str) -> Vec<Snapshot> {
    let mut all = vec![
        Snapshot::saved("tiny", &tiny(line), None).await,
        Snapshot::saved("everything", &everything(line), Some("root:secret")).await,
        Snapshot::saved("unfinished compaction", &unfinished(line), None).await,
    ];
    let mut server = history(line);
    all.push(Snapshot::saved("history", &server, None).await);
    let (path, bytes) = server.save();
    all.push(Snapshot::raw("a file with its hash", &bytes, true));
    all.push(Snapshot::raw("pages of 16 KiB", &with_pages(&dump(&path), 16 << 10), true));
    server.stop();
    // With the free space that bbolt allocated at its end, and the meta pages as a member leaves them.
    all.push(Snapshot::raw("a member's own database", &fs::read(server.db()).unwrap(), false));
    all
}

/// A restored directory.
struct Made {
    report: RestoredReport,
    folder: TempDir,
    peer: u16,
}

impl Made {
    async fn of(snapshot: &Snapshot, line: &str, engine: Engine, bump: u64, peer: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let mut request = restore_request(snapshot.store(), &snapshot.key, &volume);
        "m1".clone_into(&mut request.identity.member_name);
        let request = RestoreRequest {
            etcdutl: crate::server::folder(line).join("etcdutl"),
            engine,
            revision_bump: bump,
            allow_unverified: true,
            initial_cluster: format!("m1=http://127.0.0.1:{peer}"),
            ..request
        };
        let report = restore::run(request).await;
        let report = report.unwrap_or_else(|error| panic!("{}, {engine:?}: {error}", snapshot.name));
        assert_eq!((report.engine, &report.fell_back), (Some(engine), &None), "{}", snapshot.name);
        Self { report, folder, peer }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("volume").join(DATA_DIR)
    }

    fn db(&self) -> PathBuf {
        self.data().join("member/snap/db")
    }

    /// The output of programs about the file, before an etcd has started on it.
    fn looked_at(&self, lease: bool) -> Vec<String> {
        let db = self.db();
        let db = db.to_str().unwrap();
        run(&bbolt(), &["check", db]).unwrap_or_else(|error| panic!("{error}"));
        // The newest line reads all of them, and counts only keys.
        let etcdutl = folder("3.7").join("etcdutl");
        let status: Value =
            serde_json::from_str(&run(&etcdutl, &["snapshot", "status", db, "-w", "json"]).unwrap()).unwrap();
        // bbolt opens the file for writing.
        let copy = self.folder.path().join("copy.db");
        fs::copy(db, &copy).unwrap();
        let hash = match run(&etcdutl, &["hashkv", copy.to_str().unwrap(), "-w", "json"]) {
            Err(error) if lease && error.contains("no lessor to attach lease") => "no lessor".to_owned(),
            hash => hash.unwrap(),
        };
        let identity = Identity::read(&self.data()).unwrap().unwrap();
        let wal = crate::support::files(&self.data().join("member/wal"));
        vec![
            ["hash", "revision", "totalKey", "version"].map(|field| status[field].to_string()).join(" "),
            hash,
            format!("{:?} {:?}", identity.cluster_id, identity.member_id),
            format!("{wal:?} {:?}", identity.restored.map(|restored| restored.revision)),
        ]
    }

    /// Answers of an etcd that starts on it.
    fn started(&self, line: &str, user: Option<&str>) -> Vec<String> {
        let mut said = Vec::new();
        let mut server = Server::on(line, &self.data(), self.peer, user, &QUICK);
        let hash = |server: &Server| format!("{:?}", server.hash_kv(0));
        let members = |server: &Server| {
            let list: Value = serde_json::from_str(&server.ctl(&["member", "list", "-w", "json"])).unwrap();
            let of =
                |member: &Value| [&member["ID"], &member["name"], &member["peerURLs"]].map(Value::to_string).join(" ");
            let members: Vec<_> = list["members"].as_array().unwrap().iter().map(of).collect();
            format!("{} {members:?}", list["header"]["cluster_id"])
        };
        let keys = |server: &Server| {
            let all: Value = serde_json::from_str(&server.ctl(&["get", "", "--prefix", "-w", "json"])).unwrap();
            hex::encode(Sha256::digest(all["kvs"].to_string()))
        };
        let puts = |server: &Server| server.tries(&["put", "new", "value"]).is_ok();
        said.extend([hash(&server), members(&server), keys(&server), server.ctl(&["lease", "list"])]);
        said.extend(["alarm list", "user list", "role list"].map(|args| {
            let args: Vec<_> = args.split(' ').collect();
            server.ctl(&args)
        }));
        said.push(format!("writes: {}", puts(&server)));
        server.ctl(&["alarm", "disarm"]);
        assert!(puts(&server));
        said.push(hash(&server));
        server.stop();
        server.launch();
        said.extend([hash(&server), members(&server)]);
        assert!(puts(&server));
        server.ctl(&["defrag"]);
        assert!(puts(&server));
        said.extend([hash(&server), keys(&server)]);
        server.stop();
        run(&bbolt(), &["check", self.db().to_str().unwrap()]).unwrap();
        said
    }
}

/// Steps of the revision: the usual run tries one of them with each snapshot.
const BUMPS: [u64; 2] = [0, 1_000_000_000];

/// Compares both engines on every kind of snapshot of one line, for an etcd of this line or the next.
async fn the_same(from: &str, to: &str) {
    for (n, snapshot) in snapshots(from).await.into_iter().enumerate() {
        for bump in soak(&BUMPS[n % 2..=n % 2], &BUMPS[..]).iter().copied() {
            let what = format!("{from} to {to}, {}, bump {bump}", snapshot.name);
            let peer = free_port();
            let copied = Made::of(&snapshot, to, Engine::Etcdutl, bump, peer).await;
            let grafted = Made::of(&snapshot, to, Engine::Graft, bump, peer).await;
            let (one, other) = (dump(&copied.db()), dump(&grafted.db()));
            assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>(), "{what}");
            for (bucket, entries) in &one {
                let name = String::from_utf8_lossy(bucket);
                assert!(entries == &other[bucket], "{what}: bucket {name} is another");
            }
            let lease = !one[b"lease".as_slice()].is_empty();
            assert_eq!(grafted.looked_at(lease), copied.looked_at(lease), "{what}");
            let report = |made: &Made| RestoredReport { engine: None, millis: 0, ..made.report.clone() };
            assert_eq!(report(&grafted), report(&copied), "{what}");
            assert_eq!(grafted.started(to, snapshot.user), copied.started(to, snapshot.user), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_5_is_what_etcdutl_makes() {
    the_same("3.5", "3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_6_is_what_etcdutl_makes() {
    the_same("3.6", "3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_7_is_what_etcdutl_makes() {
    the_same("3.7", "3.7").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_older_patches_is_what_etcdutl_makes() {
    the_same("3.5.27", "3.5.27").await;
    the_same("3.5.27", "3.6.11").await;
    the_same("3.6.11", "3.7.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_5_for_3_6_is_what_etcdutl_makes() {
    the_same("3.5", "3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_6_for_3_7_is_what_etcdutl_makes() {
    the_same("3.6", "3.7").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_5_for_3_7_is_what_etcdutl_makes() {
    the_same("3.5", "3.7").await;
}

/// An etcdutl beside this volume that treats the small database differently, or not at all.
fn strange(volume: &Path, does: &str) -> PathBuf {
    let restores = "data=\"${3%.db}\"\nrestore() { $real \"$@\"; }";
    let does = format!("{restores}\ncase \"$3\" in */small.db) {does};; *) exec $real \"$@\";; esac");
    in_place_of(&folder("3.6").join("etcdutl"), &volume.with_file_name("etcdutl"), &does)
}

/// Whatever happens to the small database: the real etcdutl then restores everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_graft_that_is_not_understood_is_etcdutls_restore() {
    let server = history("3.6");
    let snapshot = Snapshot::saved("history", &server, None).await;
    let cases = [
        ("exit 1", "etcdutl could not restore"),
        ("exit 0", "small database"),
        ("echo 'Error: expected sha256 [1], got [2]' >&2; exit 1", "expected sha256"),
        ("echo 'Error: it had a bad day' >&2; exit 1", "it had a bad day"),
        ("echo 'Error: read small.db: input/output error' >&2; exit 1", "input/output error"),
        ("kill -9 $$", "signal: 9"),
        // Its output is no database, or has no log beside it.
        ("restore \"$@\"; /bin/cp /dev/null $data/member/snap/db", "meta page"),
        ("restore \"$@\"; /bin/rm -r $data/member/wal", "etcd's log"),
    ];
    for (does, says) in cases {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let request = restore_request(snapshot.store(), &snapshot.key, &volume);
        let request = RestoreRequest { etcdutl: strange(&volume, does), engine: Engine::Graft, ..request };
        let report = restore::run(request.clone()).await.unwrap_or_else(|error| panic!("{does}: {error}"));
        assert_eq!(report.engine, Some(Engine::Etcdutl), "{does}");
        let why = report.fell_back.unwrap();
        assert!(why.contains(says), "no {says:?} in {why:?}");
        assert_eq!(fs::read_dir(&volume).unwrap().count(), 1, "only the data directory");
        // The volume is complete: the engine that made it is not recorded.
        let again = restore::run(request).await.unwrap();
        assert_eq!((again.already, again.engine, again.fell_back), (true, None, None));
    }
}

/// etcdutl cannot restore the large database either: the snapshot is not read twice for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_graft_that_lacks_what_a_copy_needs_too_is_refused() {
    let snapshot = Snapshot::saved("tiny", &tiny("3.6"), None).await;
    for (does, class, says) in [
        ("echo 'Error: write db: no space left on device' >&2; exit 1", ExitClass::Full, "free space on the volume"),
        ("echo 'Error: unknown flag: --bump-revision' >&2; exit 1", ExitClass::Config, "cannot raise the revision"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let request = restore_request(snapshot.store(), &snapshot.key, &volume);
        let request = RestoreRequest { etcdutl: strange(&volume, does), engine: Engine::Graft, ..request };
        let error = restore::run(request).await.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
        assert!(error.message().contains(says) && !error.message().contains("the graft failed"), "{error}");
        // A Config failure of this etcdutl recurs, so its note stays.
        let left: &[&str] = if class == ExitClass::Config { &[NOTE] } else { &[] };
        assert_eq!(files(&volume), left, "{error}");
    }
}

/// Keys that users can read, and the users.
fn digest(db: &Path) -> String {
    let file = fs::File::open(db).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut reader = Reader::open(&file, bytes, 96 << 20).unwrap();
    let mut hash = Sha256::new();
    let live = |record: holdfast_bbolt::scan::Record<'_>| {
        for part in [record.key, record.value] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        for number in [record.create_revision, record.main, record.sub, record.version, record.lease] {
            hash.update(number.to_le_bytes());
        }
    };
    reader.live(i64::MAX, live).unwrap();
    for whose in [Names::Users, Names::Roles] {
        hash.update(format!("{:?}", reader.names(whose).unwrap()));
    }
    // Times to live, hashes of passwords, grants.
    let all = dump(db);
    for bucket in ["lease", "authUsers", "authRoles"] {
        hash.update(format!("{bucket}: {:?}", all.get(bucket.as_bytes())));
    }
    hex::encode(hash.finalize())
}

/// Saves, restores, starts and saves again, and compares the users' view with the first one each time.
async fn three_times_around(line: &str) {
    for (make, user) in [(history as fn(&str) -> Server, None), (everything, Some("root:secret"))] {
        let ways = [(Engine::Graft, 1_000_000_000), (Engine::Graft, 0), (Engine::Etcdutl, 1_000_000_000)];
        for (engine, bump) in ways.into_iter().take(soak(1, 3)) {
            let mut server = make(line);
            let expected = {
                let (path, _) = server.save();
                let bytes = fs::read(&path).unwrap();
                let bare = path.with_extension("bare");
                fs::write(&bare, &bytes[..bytes.len() - 32]).unwrap();
                digest(&bare)
            };
            let mut held = Vec::new();
            for round in 0..3 {
                let snapshot = Snapshot::saved("round", &server, user).await;
                server.stop();
                let made = Made::of(&snapshot, line, engine, bump, free_port()).await;
                assert_eq!(digest(&made.db()), expected, "{line}, round {round}, {engine:?}, bump {bump}");
                server = Server::on(line, &made.data(), made.peer, user, &QUICK);
                held.push(made);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_times_around_3_5_nothing_is_lost() {
    three_times_around("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_times_around_3_6_nothing_is_lost() {
    three_times_around("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_times_around_3_7_nothing_is_lost() {
    three_times_around("3.7").await;
}
