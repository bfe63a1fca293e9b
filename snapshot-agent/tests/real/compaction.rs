//! Merges of a snapshot and the log: the new snapshot is one of the lineage, restores with both engines, and answers as the live
//! etcd did.

use std::fs;
use std::path::Path;

use holdfast_contract::error::Result;
use holdfast_contract::{
    CompactRequest, DATA_DIR, Engine, ExitClass, Level, Point, ProofLevel, RestoreRequest, SavedReport, SnapshotFlags,
    VerifyRequest,
};
use holdfast_layout::manifest::Manifest;
use holdfast_layout::{Folder, check_revision};
use holdfast_store::Store;
use snapshot_agent::verbs::restore::{self, compact};
use snapshot_agent::verbs::save::merged;
use snapshot_agent::verbs::verify;

use crate::graft::ENGINES;
use crate::memory::high_water_mib;
use crate::point::{LINEAGE, Recorded, content, recorded};
use crate::server::{Server, folder};
use crate::support::{child_input, eventually, file_store, files, free_port, restore_request, run_child};

/// Flags of members that elect themselves at once.
const QUICK: [&str; 2] = ["--heartbeat-interval=10", "--election-timeout=100"];

pub(crate) fn request(store: &Path, scratch: &Path) -> CompactRequest {
    CompactRequest {
        store: file_store(store),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        lineage: Some("1a2b3c4d-0000".to_owned()),
        scratch: scratch.to_owned(),
        deadline_seconds: 120,
        ..CompactRequest::default()
    }
}

/// Merges and publishes, as the command does.
pub(crate) async fn compacted(request: CompactRequest) -> Result<Option<SavedReport>> {
    match compact::run(request.clone()).await? {
        Some(database) => merged::run(request, database).await.map(Some),
        None => Ok(None),
    }
}

pub(crate) async fn manifest(store: &Path, key: &str) -> Manifest {
    let (store, folder) = (Store::open(&file_store(store)).unwrap(), Folder::parse("key", key).unwrap());
    Manifest::parse(&store.get_small(&folder.manifest(), 1 << 20).await.unwrap()).unwrap()
}

/// Writes until the log has a check after this revision, and returns the newest.
async fn checked_after(recorded: &Recorded, revision: i64) -> i64 {
    let at = eventually("a check", async || {
        recorded.server.put(b"busy", b"v");
        recorded.paths().iter().filter_map(|path| check_revision(path)).find(|at| *at > revision)
    })
    .await;
    recorded.reaches(at).await;
    at
}

/// Restores a snapshot by its key, and starts an etcd.
async fn restored(recorded: &Recorded, line: &str, key: &str, engine: Engine) -> (Server, tempfile::TempDir) {
    let temporary = tempfile::tempdir().unwrap();
    let volume = temporary.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let mut request = restore_request(file_store(recorded.store.path()), key, &volume);
    "m1".clone_into(&mut request.identity.member_name);
    let request = RestoreRequest {
        engine,
        revision_bump: 0,
        etcdutl: folder(line).join("etcdutl"),
        initial_cluster: format!("m1=http://127.0.0.1:{}", free_port()),
        ..request
    };
    let report = restore::run(request.clone()).await.unwrap_or_else(|error| panic!("{engine:?}: {error}"));
    assert_eq!((report.engine, report.fell_back, report.not_compared), (Some(engine), None, None));
    let peer = request.initial_cluster.rsplit_once(':').unwrap().1.parse().unwrap();
    (Server::on(line, &volume.join(DATA_DIR), peer, None, &QUICK), temporary)
}

async fn verified(recorded: &Recorded, line: &str, key: &str, level: ProofLevel) {
    let scratch = tempfile::tempdir().unwrap();
    let request = VerifyRequest {
        snapshot: SnapshotFlags {
            store: Some(file_store(recorded.store.path())),
            key: Some(key.to_owned()),
            ..SnapshotFlags::default()
        },
        level,
        bin_dir: Some(folder(line)),
        scratch: scratch.path().to_owned(),
        deadline_seconds: 120,
        ..VerifyRequest::default()
    };
    let found = verify::run(request).await.unwrap_or_else(|error| panic!("{level:?}: {error}"));
    assert!(found.lines().contains("proven"), "{}", found.lines());
}

async fn a_snapshot_and_the_log_become_a_snapshot(line: &str) {
    let mut recorded = recorded(line).await;
    let scratch = tempfile::tempdir().unwrap();
    let mut client = recorded.client().await;
    client.lease_grant(5_000, Some(etcd_client::LeaseGrantOptions::new().with_id(7))).await.unwrap();
    for key in 0..200 {
        let lease = (key % 10 == 0).then(|| etcd_client::PutOptions::new().with_lease(7));
        client.put(format!("/orders/{key:03}"), vec![b'v'; 3 * key], lease).await.unwrap();
        if key % 5 == 0 {
            client.delete(format!("/orders/{:03}", key / 2), None).await.unwrap();
        }
    }
    checked_after(&recorded, 200).await;
    let store = recorded.store.path().to_owned();
    let ask = || request(&store, scratch.path());
    let first = compacted(ask()).await.unwrap().unwrap();
    let at = first.revision.unwrap();
    assert!(at > 200 && recorded.paths().iter().any(|path| check_revision(path) == Some(at)), "{at}");
    let live = recorded.server.hash_kv(at);
    assert_eq!(first.hash_kv, Some(live.hash));
    let proof = first.verification.clone().unwrap();
    assert_eq!((proof.level, proof.agreed_by.len(), proof.read_back), (Level::HashKV, 1, true));
    assert!(first.key.starts_with(LINEAGE), "{}", first.key);
    let written = manifest(recorded.store.path(), &first.key).await;
    let derived = written.derived_from.clone().unwrap();
    assert_eq!((derived.base_revision, written.origin.unwrap().kind.as_deref()), (2, Some("compaction")));
    assert!(derived.segments > 0 && derived.base.starts_with(LINEAGE), "{derived:?}");

    // The next one continues the first.
    checked_after(&recorded, at).await;
    let second = compacted(ask()).await.unwrap().unwrap();
    let derived = manifest(recorded.store.path(), &second.key).await.derived_from.unwrap();
    assert_eq!((derived.base, derived.base_revision), (first.key.clone(), at));
    let last = second.revision.unwrap();
    recorded.end();
    // Without a later check the rest has no comparison.
    let end = recorded.segments().iter().map(|segment| segment.last).max().unwrap();
    let newest = recorded.paths().iter().filter_map(|path| check_revision(path)).max().unwrap();
    if let Some(third) = compacted(ask()).await.unwrap() {
        assert_eq!(third.revision, Some(if newest > last { newest } else { end }));
        let fourth = compacted(ask()).await.unwrap();
        if let Some(fourth) = &fourth {
            let proof = fourth.verification.clone().unwrap();
            assert_eq!((fourth.revision, proof.level), (Some(end), Level::Structure));
            assert!(proof.reason.unwrap().contains("is in the log"));
        }
    }
    assert_eq!(compacted(ask()).await.unwrap(), None, "nothing to do");
    assert_eq!(files(scratch.path()), [] as [&str; 0]);

    for key in [&first.key, &second.key] {
        for level in [ProofLevel::Stored, ProofLevel::Drill] {
            verified(&recorded, line, key, level).await;
        }
    }
    for engine in ENGINES {
        let (server, _volume) = restored(&recorded, line, &first.key, engine).await;
        assert_eq!(server.hash_kv(0), live, "{engine:?}");
        let keys = content(&server).await;
        assert!(keys.contains_key(&b"/orders/199"[..]) && keys[&b"/orders/190"[..]].1 == 7, "{engine:?}");
    }
    // A restore to a point in time begins with the newest snapshot before the point.
    let point = recorded.restored(line, Point::Revision(last), Engine::Graft).await;
    let point = *point.report.point.unwrap();
    assert_eq!((point.base_revision, point.records), (last, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_5_a_snapshot_and_the_log_become_a_snapshot() {
    a_snapshot_and_the_log_become_a_snapshot("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_6_a_snapshot_and_the_log_become_a_snapshot() {
    a_snapshot_and_the_log_become_a_snapshot("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_7_a_snapshot_and_the_log_become_a_snapshot() {
    a_snapshot_and_the_log_become_a_snapshot("3.7").await;
}

/// Whatever is wrong: the merge names it, and publishes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_that_is_refused_publishes_nothing() {
    let mut recorded = recorded("3.6").await;
    let scratch = tempfile::tempdir().unwrap();
    let mut before = 0;
    while recorded.segments().iter().filter(|segment| segment.last >= segment.first).count() < 2 {
        before = recorded.server.put(b"k", b"v");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    recorded.reaches(before).await;
    recorded.server.post("/v3/auth/user/add", &serde_json::json!({"name": "u", "password": "secret"}));
    let mut last = 0;
    for _ in 0..3 {
        last = recorded.server.put(b"after", b"v");
        recorded.reaches(last).await;
    }
    recorded.end();
    let attempts = || fs::read_dir(recorded.store.path().join(LINEAGE)).unwrap().count();
    let count = attempts();
    let ask = |at_revision| CompactRequest { at_revision, ..request(recorded.store.path(), scratch.path()) };

    let users = compacted(ask(Some(last))).await.unwrap_err();
    assert_eq!(users.class(), ExitClass::Config, "{users}");
    assert!(users.message().contains("users or roles changed") && users.message().contains("agent save"), "{users}");
    let late = compacted(ask(Some(last + 1_000_000))).await.unwrap_err();
    assert!(late.class() == ExitClass::NotFound && late.message().contains("the log ends"), "{late}");
    let other = CompactRequest { lineage: Some("ffffffff".to_owned()), ..ask(None) };
    assert_eq!(compacted(other).await.unwrap_err().class(), ExitClass::NotFound);
    let id = CompactRequest { expect_store_id: Some("another".to_owned()), ..ask(None) };
    assert_ne!(compacted(id).await.unwrap_err().class(), ExitClass::Corrupt);

    let mut segments = recorded.segments();
    segments.retain(|segment| segment.last >= segment.first);
    segments.sort();
    let key = segments[0].key(&Folder::parse("key", LINEAGE).unwrap().log()).unwrap();
    let place = recorded.store.path().join(key.to_string());
    let mut bytes = fs::read(&place).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&place, bytes).unwrap();
    let damaged = compacted(ask(Some(segments[0].last))).await.unwrap_err();
    assert_eq!(damaged.class(), ExitClass::Corrupt, "{damaged}");
    assert!(damaged.message().contains(key.name()), "{damaged}");
    assert_eq!((attempts(), files(scratch.path())), (count, vec![]));
}

/// Two segments as they are stored and the facts of the scan, and then the buffers of a save (`memory.rs`), which the allocator
/// does not share.
const BUDGET_MIB: u64 = 160;

/// The merge holds two segments and no part of the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_stays_within_the_budget() {
    let mut recorded = recorded("3.6").await;
    let mut client = recorded.client().await;
    let mut last = 0;
    for key in 0..1500_u32 {
        // Bytes that do not compress.
        let value: Vec<u8> = (0..48 << 10)
            .map(|at: u32| (key.wrapping_mul(0x9e37) ^ at.wrapping_mul(at >> 3)).to_le_bytes()[1])
            .collect();
        let put = client.put(format!("/large/{key:05}"), value, None).await.unwrap();
        last = put.header().unwrap().revision();
    }
    recorded.reaches(last).await;
    recorded.end();
    let output = run_child("compaction::merges", recorded.store.path().to_str().unwrap());
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(text.contains("MiB at most"), "{text}");
}

/// The child half: the process that is measured.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merges() {
    let input = child_input();
    let scratch = tempfile::tempdir().unwrap();
    let before = high_water_mib();
    let request = request(Path::new(&input), scratch.path());
    let database = compact::run(request.clone()).await.unwrap().unwrap();
    let merge = high_water_mib() - before;
    let saved = merged::run(request, database).await.unwrap();
    let (used, budget) = (high_water_mib() - before, BUDGET_MIB);
    let megabytes = saved.db_bytes >> 20;
    println!(
        "a merge of {megabytes} MiB used {merge} MiB at most, and with its publication {used} MiB of {budget} MiB"
    );
    assert!(used <= budget, "{used} MiB");
}
