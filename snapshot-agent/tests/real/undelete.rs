//! Undeletes: a point of a real log, or one snapshot, against the etcd that lost keys since, and against writers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{
    Client, ConnectOptions, DeleteOptions, EventType, GetOptions, LeaseGrantOptions, Permission, PutOptions,
    RoleRevokePermissionOptions, WatchOptions,
};
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{
    Applied, Compression, EtcdFlags, ExitClass, KeyCount, Leases, Origin, PointProof, UndeleteReport, UndeleteRequest,
};
use snapshot_agent::verbs::restore::undelete as past;
use snapshot_agent::verbs::save;
use snapshot_agent::verbs::undelete::{self, Ended, Sort};

use crate::memory::high_water_mib;
use crate::point::{LINEAGE, Recorded, content, recorded};
use crate::server::{Dice, Server};
use crate::soak::soak;
use crate::support::{child, child_request, file_store, finish_child, save_request, to_input};

fn flags(server: &Server) -> EtcdFlags {
    EtcdFlags { endpoints: vec![server.endpoint().replace("--endpoints=", "http://")], ..EtcdFlags::default() }
}

/// The request for a prefix at a revision of a recorded etcd.
fn request(recorded: &Recorded, scratch: &Path, prefix: &str, revision: i64) -> UndeleteRequest {
    UndeleteRequest {
        etcd: flags(&recorded.server),
        store: file_store(recorded.store.path()),
        from: LINEAGE.to_owned(),
        at_revision: Some(revision),
        prefix: Some(prefix.to_owned()),
        scratch: scratch.to_owned(),
        ..UndeleteRequest::default()
    }
}

async fn run(request: &UndeleteRequest) -> Result<Ended> {
    undelete::run(request.clone(), past::run(request.clone()).await?).await
}

async fn report(request: &UndeleteRequest) -> UndeleteReport {
    let ended = run(request).await.unwrap();
    assert_eq!(ended.failed, None);
    assert_eq!(fs::read_dir(&request.scratch).unwrap().count(), 1, "one scratch folder while the list is in use");
    drop(ended.differences);
    assert_eq!(fs::read_dir(&request.scratch).unwrap().count(), 0, "the scratch folder is gone");
    ended.report
}

async fn applied(request: &UndeleteRequest) -> Applied {
    report(&UndeleteRequest { apply: true, ..request.clone() }).await.applied.unwrap()
}

/// The error of a run, of either half or of its end.
async fn refused(request: &UndeleteRequest) -> Error {
    match run(request).await {
        Err(error) => error,
        Ok(ended) => ended.failed.unwrap_or_else(|| panic!("{:?}", ended.report)),
    }
}

/// Loses a prefix, and gets back what it had, by each of the flags.
async fn a_prefix_comes_back(line: &str) {
    let recorded = recorded(line).await;
    let scratch = tempfile::tempdir().unwrap();
    let mut client = recorded.client().await;
    for lease in [7, 8] {
        client.lease_grant(5_000, Some(LeaseGrantOptions::new().with_id(lease))).await.unwrap();
    }
    for key in 0..300_usize {
        let lease = if key % 50 == 0 { 7 } else { 8 };
        let leased = (key % 10 == 0).then(|| PutOptions::new().with_lease(lease));
        client.put(format!("/orders/{key:03}"), vec![b'v'; 7 * key], leased).await.unwrap();
    }
    client.put("/orders/again", "first", None).await.unwrap();
    client.put("/other/1", "v", None).await.unwrap();
    let good = recorded.server.put(b"/orders/last", b"v");
    let before = content(&recorded.server).await;
    // Six keys have the lease 7, and 24 the lease 8, which ends.
    client.delete("/orders/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    client.lease_revoke(8).await.unwrap();
    client.delete("/other/1", None).await.unwrap();
    client.put("/orders/005", "another value", None).await.unwrap();
    client.put("/orders/again", "first", None).await.unwrap();
    let last = recorded.server.put(b"/orders/new", b"v");
    recorded.reaches(last).await;

    let asked = request(&recorded, scratch.path(), "/orders/", good);
    let ended = run(&asked).await.unwrap();
    let found = ended.report;
    assert_eq!((found.revision, found.compared_at, found.proof), (good, last, Some(PointProof::Chained)), "{line}");
    assert_eq!((found.point.keys, found.live.keys), (302, 3), "{line}");
    assert_eq!((found.missing.keys, found.changed.keys, found.added.keys), (300, 1, 1), "{line}");
    assert_eq!((found.with_lease.keys, found.applied), (30, None));
    assert_eq!((&found.missing_keys[0], found.missing_keys.len()), (&"/orders/000".to_owned(), 50));
    assert_eq!(
        (&found.changed_keys, &found.added_keys),
        (&vec!["/orders/005".to_owned()], &vec!["/orders/new".to_owned()])
    );
    let all: Vec<_> = ended.differences.read().unwrap().map(|found| found.unwrap()).collect();
    assert_eq!(all.len(), 302);
    assert_eq!(
        all.iter().filter(|found| found.difference == Sort::Missing).map(|it| it.point_bytes).sum::<u64>(),
        found.missing.bytes
    );
    drop(ended.differences);
    assert_eq!(content(&recorded.server).await.len(), 4, "nothing was written");

    let first = applied(&asked).await;
    assert_eq!((first.put_back.keys, first.leased.keys, first.outrun.keys), (270, 30, 0), "{line}");
    let second = applied(&UndeleteRequest { leases: Leases::Keep, ..asked.clone() }).await;
    assert_eq!(
        (second.put_back.keys, second.lease_ended.keys, second.leased.keys),
        (6, 24, 0),
        "{line}: only the lease 7 lives"
    );
    let third = applied(&UndeleteRequest { leases: Leases::Drop, changed: true, ..asked.clone() }).await;
    assert_eq!((third.put_back.keys, third.leased.keys), (25, 0), "{line}: 24 leases ended, and one key has changed");
    let fourth = applied(&UndeleteRequest { leases: Leases::Drop, changed: true, ..asked }).await;
    assert_eq!(fourth.put_back, KeyCount::default(), "nothing is missing any more");

    let mut expected = before;
    expected.remove(b"/other/1".as_slice());
    expected.insert(b"/orders/new".to_vec(), (b"v".to_vec(), 0));
    for (_, lease) in expected.values_mut() {
        *lease = if *lease == 7 { 7 } else { 0 };
    }
    assert!(content(&recorded.server).await == expected, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_keys_come_back_and_leases_decide_3_5() {
    a_prefix_comes_back("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_keys_come_back_and_leases_decide_3_6() {
    a_prefix_comes_back("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_keys_come_back_and_leases_decide_3_7() {
    a_prefix_comes_back("3.7").await;
}

/// Keys of the race: the first half is missing at the comparison, the second half changed.
const RACED: u64 = 20_000;

/// A client that writes random keys of the race, until it is stopped. Returns its acknowledged writes, with their revisions.
async fn write(endpoint: String, seed: u64, stop: Arc<AtomicBool>) -> Vec<(String, String, i64)> {
    let mut client = Client::connect([endpoint], None).await.unwrap();
    let (mut dice, mut ledger) = (Dice(seed), vec![]);
    while !stop.load(Ordering::Relaxed) {
        let (key, value) = (raced(dice.below(RACED)), format!("new-{seed}-{}", ledger.len()));
        let put = client.put(key.as_str(), value.as_str(), None).await.unwrap();
        ledger.push((key, value, put.header().unwrap().revision()));
    }
    ledger
}

fn raced(key: u64) -> String {
    format!("/race/{key:05}")
}

#[tokio::test(flavor = "multi_thread")]
async fn undelete_races_a_writer() {
    let recorded = recorded("3.6").await;
    let scratch = tempfile::tempdir().unwrap();
    let mut client = recorded.client().await;
    for batch in (0..RACED).step_by(500) {
        let ops: Vec<_> = (batch..batch + 500).map(|key| Server::put_op(raced(key).as_bytes(), b"old")).collect();
        recorded.server.txn(&ops);
    }
    let good = recorded.server.put(b"good", b"v");
    recorded.reaches(good).await;
    let half = DeleteOptions::new().with_range(raced(RACED / 2));
    client.delete(raced(0), Some(half)).await.unwrap();
    for batch in (RACED / 2..RACED).step_by(500) {
        let ops: Vec<_> = (batch..batch + 500).map(|key| Server::put_op(raced(key).as_bytes(), b"middle")).collect();
        recorded.server.txn(&ops);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let endpoint = flags(&recorded.server).endpoints.remove(0);
    let writers: Vec<_> = (1..=4).map(|seed| tokio::spawn(write(endpoint.clone(), seed, Arc::clone(&stop)))).collect();
    let seconds = soak(5_u32, 30);
    let asked = UndeleteRequest {
        apply: true,
        changed: true,
        rate: Some(u32::try_from(RACED).unwrap() / seconds),
        ..request(&recorded, scratch.path(), "/race/", good)
    };
    let began = Instant::now();
    let found = report(&asked).await;
    let took = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    let mut ledger = BTreeMap::new();
    for writer in writers {
        // A write before the comparison is a part of it.
        for (key, value, revision) in writer.await.unwrap() {
            if revision > found.compared_at {
                ledger.entry(key).or_insert_with(Vec::new).push(value);
            }
        }
    }
    let put = found.applied.clone().unwrap();
    println!("{took:?}: {} put back, {} outrun, {} keys written", put.put_back.keys, put.outrun.keys, ledger.len());
    assert!(put.put_back.keys > 0 && put.outrun.keys > 0, "a race with one side only: {put:?}");
    assert_eq!(put.outrun_keys.len(), 50);
    assert_eq!(put.put_back.keys + put.outrun.keys, found.missing.keys + found.changed.keys);
    // etcd's history since the comparison: where a writer has written, the old value never comes again.
    let options = WatchOptions::new().with_start_revision(found.compared_at + 1).with_prefix();
    let end = recorded.server.put(b"/race/~end", b"v");
    let mut watch = client.watch("/race/", Some(options)).await.unwrap();
    let (mut written, mut old, mut reached) = (BTreeMap::<Vec<u8>, Vec<u8>>::new(), 0, 0);
    while reached < end {
        for event in watch.message().await.unwrap().unwrap().events() {
            let kv = event.kv().unwrap();
            reached = kv.mod_revision();
            assert_eq!(event.event_type(), EventType::Put);
            if kv.value() == b"old" {
                old += 1;
                let key = String::from_utf8_lossy(kv.key()).into_owned();
                assert!(!written.contains_key(kv.key()), "{key} was overwritten at revision {reached}");
            } else {
                written.insert(kv.key().to_vec(), kv.value().to_vec());
            }
        }
    }
    assert_eq!(old, put.put_back.keys);
    // The ledger: each acknowledged write is the last value of its key, or an earlier one of a writer.
    let now = content(&recorded.server).await;
    for (key, values) in &ledger {
        let (value, _) = &now[key.as_bytes()];
        assert!(values.iter().any(|written| written.as_bytes() == value), "{key}");
    }
    assert_eq!(
        now.keys().filter(|key| key.starts_with(b"/race/0")).count() as u64,
        10_000,
        "the missing half is whole"
    );
}

async fn logged_in(server: &Server, name: &str) -> Client {
    let options = ConnectOptions::new().with_user(name, "secret");
    Client::connect(flags(server).endpoints, Some(options)).await.unwrap()
}

async fn a_role_is_enough(line: &str) {
    let recorded = recorded(line).await;
    let [scratch, secrets] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut client = recorded.client().await;
    for key in 0..10 {
        client.put(format!("/orders/{key}"), "v", None).await.unwrap();
    }
    let good = recorded.server.put(b"/other/1", b"v");
    recorded.reaches(good).await;
    client.delete("/orders/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    for (user, role) in [("root", "root"), ("shop", "orders")] {
        client.role_add(role).await.unwrap();
        client.user_add(user, "secret", None).await.unwrap();
        client.user_grant_role(user, role).await.unwrap();
    }
    client.role_grant_permission("orders", Permission::read("/orders/").with_prefix()).await.unwrap();
    client.auth_enable().await.unwrap();
    let password = secrets.path().join("password");
    fs::write(&password, "secret\n").unwrap();
    let mut asked = request(&recorded, scratch.path(), "/orders/", good);
    (asked.etcd.user, asked.etcd.password_file) = (Some("shop".to_owned()), Some(password));
    assert_eq!(report(&asked).await.missing.keys, 10, "{line}");
    // A role that may only read changes nothing.
    let denied = refused(&UndeleteRequest { apply: true, ..asked.clone() }).await;
    assert_eq!((denied.class(), denied.origin()), (ExitClass::Denied, Some(Origin::Etcd)), "{line}: {denied}");
    assert!(denied.message().contains("role grant-permission"), "{denied}");
    let mut root = logged_in(&recorded.server, "root").await;
    let orders = GetOptions::new().with_prefix().with_count_only();
    assert_eq!(root.get("/orders/", Some(orders.clone())).await.unwrap().count(), 0, "{line}");
    root.role_revoke_permission("orders", "/orders/", Some(RoleRevokePermissionOptions::new().with_prefix()))
        .await
        .unwrap();
    root.role_grant_permission("orders", Permission::read_write("/orders/").with_prefix()).await.unwrap();
    assert_eq!(applied(&asked).await.put_back.keys, 10, "{line}");
    assert_eq!(root.get("/orders/", Some(orders)).await.unwrap().count(), 10);
    let other = refused(&UndeleteRequest { prefix: Some("/other/".to_owned()), ..asked.clone() }).await;
    assert_eq!(other.class(), ExitClass::Denied, "{line}: {other}");
    let nobody = UndeleteRequest { etcd: flags(&recorded.server), ..asked };
    assert_eq!(refused(&nobody).await.class(), ExitClass::Denied, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_a_role_for_the_prefix_is_enough_3_5() {
    a_role_is_enough("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_a_role_for_the_prefix_is_enough_3_6() {
    a_role_is_enough("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_a_role_for_the_prefix_is_enough_3_7() {
    a_role_is_enough("3.7").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_is_run_again_and_has_less_to_do() {
    let recorded = recorded("3.6").await;
    let scratch = tempfile::tempdir().unwrap();
    let mut client = recorded.client().await;
    for batch in 0..10 {
        let ops: Vec<_> =
            (0..200).map(|key| Server::put_op(format!("/orders/{batch}-{key:03}").as_bytes(), &[b'v'; 100])).collect();
        recorded.server.txn(&ops);
    }
    let good = recorded.server.put(b"good", b"v");
    recorded.reaches(good).await;
    let before = content(&recorded.server).await;
    client.delete("/orders/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    let slow = UndeleteRequest { apply: true, rate: Some(200), ..request(&recorded, scratch.path(), "/orders/", good) };
    let mut killed =
        child("undelete::undeletes", &to_input(&slow)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let count = async || content(&recorded.server).await.len();
    while count().await < 600 {
        assert!(killed.try_wait().unwrap().is_none(), "the run ended too early");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let back = count().await as u64 - 2;
    let fast = UndeleteRequest { rate: None, scratch: tempfile::tempdir().unwrap().keep(), ..slow };
    let again = report(&fast).await;
    assert_eq!((again.missing.keys, again.applied.unwrap().put_back.keys), (2_000 - back, 2_000 - back));
    assert!((598..2_000).contains(&back), "{back}");
    assert!(content(&recorded.server).await == before);
    fs::remove_dir_all(fast.scratch).unwrap();
}

/// The child half: a process of its own, which is killed or measured.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undeletes() {
    let before = high_water_mib();
    let asked: UndeleteRequest = child_request();
    let ended = run(&asked).await.unwrap();
    assert_eq!(ended.failed, None);
    let put = ended.report.applied.unwrap();
    let rate = put.put_back.keys * 1_000 / put.millis.max(1);
    let peak = high_water_mib();
    println!("{} keys put back, {rate} keys a second, VmHWM {before} -> {peak} MiB", put.put_back.keys);
    assert!(peak - before <= UNDELETE_MIB, "{before} -> {peak} MiB, budget {UNDELETE_MIB}");
}

/// Memory that an undelete may use beyond the memory of its process at the start, whatever the number of keys: the keys that are
/// sorted in memory, and their runs' buffers.
const UNDELETE_MIB: u64 = 112;

#[tokio::test(flavor = "multi_thread")]
async fn memory_does_not_grow_with_the_keys() {
    let [store, scratch] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let server = Server::start("3.6", &["--quota-backend-bytes=8000000000"]);
    let mut client = Client::connect(flags(&server).endpoints, None).await.unwrap();
    let keys = soak(200_000_u64, 1_000_000);
    for batch in (0..keys).step_by(5_000) {
        let put = |key: u64| Server::put_op(format!("/orders/{key:07}").as_bytes(), &[b'v'; 200]);
        server.txn(&(batch..batch + 5_000).map(put).collect::<Vec<_>>());
    }
    let saved = save::run(save_request(flags(&server), file_store(store.path()), Compression::Zstd)).await.unwrap();
    client.delete("/orders/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    let asked = UndeleteRequest {
        etcd: flags(&server),
        store: file_store(store.path()),
        from: saved.key,
        prefix: Some("/orders/".to_owned()),
        apply: true,
        scratch: scratch.path().to_owned(),
        ..UndeleteRequest::default()
    };
    let output = finish_child(child("undelete::undeletes", &to_input(&asked)));
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let orders = GetOptions::new().with_prefix().with_count_only();
    assert_eq!(client.get("/orders/", Some(orders)).await.unwrap().count().cast_unsigned(), keys);
    // Over many ranges: keys between, before and after those of the point, and none of the point is missing.
    for key in ["/orders/", "/orders/0020000-", "/orders/0100000-", "/orders/~"] {
        client.put(key, "new", None).await.unwrap();
    }
    client.delete("/orders/0019999", None).await.unwrap();
    let found = report(&UndeleteRequest { apply: false, ..asked }).await;
    assert_eq!(found.missing_keys, ["/orders/0019999"]);
    assert_eq!((found.added.keys, found.changed.keys, found.live.keys), (4, 0, keys + 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_keys_another_cluster_and_another_history_are_refused() {
    let mut recorded = recorded("3.6").await;
    let scratch = tempfile::tempdir().unwrap();
    let (early, _) = recorded.server.save();
    for key in 0..20 {
        recorded.server.put(format!("/orders/{key}").as_bytes(), b"v");
    }
    let good = recorded.server.put(b"/orders/last", b"v");
    recorded.reaches(good).await;
    let asked = request(&recorded, scratch.path(), "/orders/", good);
    for prefix in [None, Some(String::new())] {
        let error = refused(&UndeleteRequest { prefix, ..asked.clone() }).await;
        assert!(error.class() == ExitClass::Config && error.message().contains("--all-keys"), "{error}");
    }
    let all = UndeleteRequest { prefix: None, all_keys: true, ..asked.clone() };
    let found = report(&all).await;
    assert_eq!((found.point.keys, found.live.keys, found.missing.keys), (22, 22, 0), "all keys are equal");

    let other = Server::start("3.6", &["--initial-cluster-token=another"]);
    let there = UndeleteRequest { etcd: flags(&other), apply: true, ..asked.clone() };
    let error = refused(&there).await;
    assert_eq!((error.class(), error.origin()), (ExitClass::Refused, Some(Origin::Request)), "{error}");
    assert!(error.message().contains("--from-another-cluster"), "{error}");
    assert_eq!(applied(&UndeleteRequest { from_another_cluster: true, ..there }).await.put_back.keys, 21);

    // The same etcd cluster ID, before the point and later.
    recorded.end();
    recorded.server.restore(&early, 0);
    recorded.server.launch();
    let error = refused(&asked).await;
    assert!(
        error.message().contains("--from-another-cluster") && error.message().contains("is at revision"),
        "{error}"
    );
    for key in 0..30 {
        recorded.server.put(format!("/orders/{key}").as_bytes(), b"w");
    }
    let error = refused(&UndeleteRequest { apply: true, ..asked.clone() }).await;
    assert!(error.message().contains("two histories: /orders/0"), "{error}");
    assert_eq!(report(&UndeleteRequest { from_another_cluster: true, ..asked }).await.changed.keys, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_snapshot_is_a_point_and_kubernetes_objects_are_selected_by_their_keys() {
    let [store, scratch] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut server = Server::start("3.6", &[]);
    let objects = [
        "configmaps/shop/a",
        "configmaps/shop/b",
        "configmaps/other/a",
        "secrets/shop/a",
        "services/specs/shop/a",
        "example.org/things/shop/a",
        "namespaces/shop",
    ];
    for object in objects {
        server.put(format!("/registry/{object}").as_bytes(), b"k8s\0\xff");
    }
    let saved = save::run(save_request(flags(&server), file_store(store.path()), Compression::Zstd)).await.unwrap();
    let (file, _) = server.save();
    server.delete_all();
    let asked = UndeleteRequest {
        etcd: flags(&server),
        store: file_store(store.path()),
        from: saved.key,
        scratch: scratch.path().to_owned(),
        ..UndeleteRequest::default()
    };
    let some = |kind: Option<&str>, namespace: Option<&str>| UndeleteRequest {
        kind: kind.map(str::to_owned),
        object_namespace: namespace.map(str::to_owned),
        ..asked.clone()
    };
    let missing = async |asked| report(&asked).await.missing_keys;
    assert_eq!(missing(some(Some("services"), None)).await, ["/registry/services/specs/shop/a"]);
    assert_eq!(missing(some(None, Some("shop"))).await.len(), 6);
    let configmaps = some(Some("configmaps"), Some("shop"));
    assert_eq!(applied(&configmaps).await.put_back.keys, 2);
    assert_eq!(content(&server).await.len(), 2);
    let text = undelete::text(&report(&configmaps).await, &configmaps);
    assert!(text.contains("controllers act") && text.contains("missing  no keys"), "{text}");

    // A file of etcdctl names no cluster.
    fs::copy(file, store.path().join("etcd-snapshot.db")).unwrap();
    let file = UndeleteRequest { from: "etcd-snapshot.db".to_owned(), ..some(None, Some("other")) };
    let error = refused(&file).await;
    assert!(error.message().contains("unknown etcd cluster"), "{error}");
    assert_eq!(missing(UndeleteRequest { from_another_cluster: true, ..file }).await, ["/registry/configmaps/other/a"]);
    let lineage = UndeleteRequest { from: LINEAGE.to_owned(), ..some(None, Some("shop")) };
    let error = refused(&lineage).await;
    assert!(error.message().contains("--at-time") && error.class() == ExitClass::NotFound, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_values_and_small_limits_of_etcd_lose_no_key() {
    let [store, scratch] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // More bytes than etcd takes in one request later, and fewer operations than the agent's transactions have.
    let mut server = Server::start("3.6", &[]);
    for key in 0..300 {
        let bytes = if key % 30 == 0 { 900_000 } else { 10 };
        server.put(format!("/orders/{key:03}").as_bytes(), &vec![b'v'; bytes]);
    }
    server.put(b"/orders/large", &vec![b'v'; 3_000_000]);
    let saved = save::run(save_request(flags(&server), file_store(store.path()), Compression::Zstd)).await.unwrap();
    server.delete_all();
    server.stop();
    let small = Server::again(server, &["--max-txn-ops=32", "--max-request-bytes=1500000"]);
    let asked = UndeleteRequest {
        etcd: flags(&small),
        store: file_store(store.path()),
        from: saved.key,
        prefix: Some("/orders/".to_owned()),
        scratch: scratch.path().to_owned(),
        ..UndeleteRequest::default()
    };
    let put = applied(&asked).await;
    assert_eq!((put.put_back.keys, put.too_large.keys), (300, 1));
    assert_eq!(put.too_large_keys, ["/orders/large"]);
    assert_eq!(report(&asked).await.missing_keys, ["/orders/large"]);
}
