//! The log of revisions beside a real etcd: every record is the byte of etcd's own database, and no revision is missing without
//! a word about it, whatever ends, stops or goes away meanwhile.
//!
//! The archiver runs in a child of this program, and ends by a signal as in a Pod.

mod archived;
mod archiver;
mod histories;
mod keys;
mod trials;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{DeleteOptions, PutOptions, Txn, TxnOp};
use holdfast_contract::{Compression, EtcdFlags, ExitClass, LogStatusRequest, SnapshotFlags, VerifyRequest};
use holdfast_layout::{GapName, SegmentName, check_revision};
use serde_json::Value;
use snapshot_agent::verbs::log::{self, status};
use snapshot_agent::verbs::save;
use snapshot_agent::verbs::verify::{self, Verified};

use crate::age::{PAIRS, secret};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::support::{Etcd, S3, child_request, eventually, file_store, files, free_port, noise, save_request};
use archiver::{Log, assert_same, metrics, stopping, stored_by_etcd, write};

const LOGGED: &str = "logged ";
const FAILED: &str = "failed ";

/// The child half: the process that records.
#[ignore = "the child half of a test"]
#[tokio::test]
async fn records() {
    match log::run(child_request()).await {
        Ok(logged) => println!("{LOGGED}{}", serde_json::to_string(&logged).unwrap()),
        Err(error) => println!("{FAILED}{:?} {error}", error.class()),
    }
}

async fn recorded_as_etcd_stores_it(line: &str) {
    let mut etcd = Etcd::of(line).await;
    let mount = tempfile::tempdir().unwrap();
    let mut client = etcd.client().await;
    // Before the archiver starts, and while it records.
    client.put("before", "1", None).await.unwrap();
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    let port = free_port();
    log.request.metrics_port = Some(port);
    log.start();
    log.is_alive().await;

    let lease = client.lease_grant(600, None).await.unwrap().id();
    let short = client.lease_grant(500, None).await.unwrap().id();
    client.put("leased", "1", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    client.put("short", "1", Some(PutOptions::new().with_lease(short))).await.unwrap();
    log.has(client.put("empty", "", None).await.unwrap().header().unwrap().revision()).await;
    client.lease_revoke(short).await.unwrap();
    // More than one answer of a watch holds: two transactions of 1.2 MB, and one deletion of many keys.
    for round in 0..2_u64 {
        let ops: Vec<_> =
            (0..12).map(|i| TxnOp::put(format!("large/{i}"), noise(round * 100 + i, 100_000), None)).collect();
        client.txn(Txn::new().and_then(ops)).await.unwrap();
    }
    for i in 0..300_u64 {
        client.put(format!("many/{i}"), noise(i, 50), None).await.unwrap();
    }
    client.delete("many/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    client.put("many/1", "again", None).await.unwrap();
    let revision = client.put("last", "1", None).await.unwrap().header().unwrap().revision();
    log.has(revision).await;
    // A cluster in which nothing happens is covered too.
    log.is_alive().await;
    eventually("a check", async || log.paths().iter().any(|path| check_revision(path).is_some()).then_some(())).await;
    let shown = metrics(port).await;
    for line in [format!("holdfast_log_revision {revision}\n"), "holdfast_log_gaps_total 0\n".to_owned()] {
        assert!(shown.contains(&line), "{line}: {shown}");
    }
    let ended = log.end();
    assert_eq!((ended["revision"].as_i64(), ended["gaps"].as_i64()), (Some(revision), Some(0)), "{ended}");
    assert_eq!(ended["waitingBytes"], 0);

    let recorded = log.read();
    let cover = log.cover();
    assert_eq!(cover.ranges.iter().map(|range| (range.first, range.last)).collect::<Vec<_>>(), [(2, revision)]);
    assert_eq!(recorded.leases, BTreeMap::from([(lease, 600), (short, 500)]));
    assert!(recorded.samples.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
    let check = log.paths().into_iter().find(|path| check_revision(path).is_some()).unwrap();
    let check: Value = serde_json::from_slice(&fs::read(log.folder().join(&check)).unwrap()).unwrap();
    let hash = client.hash_kv(check["revision"].as_i64().unwrap()).await.unwrap();
    assert_eq!((check["hashKV"].as_u64(), check["compactRevision"].as_i64()), (Some(hash.hash().into()), Some(-1)));
    let stored = stored_by_etcd(&mut etcd, 1);
    println!("etcd {line}: {} records of {} bytes", stored.len(), stored.values().map(Vec::len).sum::<usize>());
    assert_same(&recorded.records, &stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_record_is_etcds_own_in_3_5() {
    recorded_as_etcd_stores_it("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_record_is_etcds_own_in_3_6() {
    recorded_as_etcd_stores_it("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_record_is_etcds_own_in_3_7() {
    recorded_as_etcd_stores_it("3.7").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_the_log_has_no_hole() {
    let mut etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    let (stop, end_writes) = stopping();
    let writer = write(&etcd, stop);
    let kills = crate::soak::soak(8, 100);
    for kill in 0..kills {
        log.start();
        let moment = 300 + u64::from(noise(kill, 2)[1]) * 10;
        tokio::time::sleep(Duration::from_millis(moment)).await;
        log.kill();
    }
    end_writes();
    let last = writer.await.unwrap();
    log.start();
    log.has(last).await;
    let ended = log.end();
    assert_eq!(ended["revision"], last);
    let (cover, segments) = (log.cover(), log.segments().len());
    assert_eq!(cover.ranges.iter().map(|range| (range.first, range.last)).collect::<Vec<_>>(), [(2, last)]);
    println!("{kills} kills: {last} revisions in {segments} segments");
    assert_same(&log.read().records, &stored_by_etcd(&mut etcd, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_overtakes_the_log_is_a_gap() {
    let etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let mut client = etcd.client().await;
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    log.start();
    log.has(client.put("a", "1", None).await.unwrap().header().unwrap().revision()).await;

    // Stopped: more is written than the connection and etcd hold for a watch.
    log.signal("-STOP");
    let mut revision = 0;
    for number in 0..700 {
        let value = noise(number, 60_000);
        revision = client.put(format!("k{}", number % 20), value, None).await.unwrap().header().unwrap().revision();
    }
    client.compact(revision, None).await.unwrap();
    log.signal("-CONT");
    eventually("the first gap", async || log.gaps().first().copied()).await;
    log.has(client.put("b", "1", None).await.unwrap().header().unwrap().revision()).await;

    // Killed, and started after a compaction.
    log.kill();
    let before = log.last();
    for _ in 0..5 {
        revision = client.delete("b", None).await.unwrap().header().unwrap().revision();
        revision = client.put("b", "2", None).await.unwrap().header().unwrap().revision().max(revision);
    }
    client.compact(revision, None).await.unwrap();
    log.start();
    log.has(client.put("c", "1", None).await.unwrap().header().unwrap().revision()).await;
    let ended = log.end();
    assert_eq!(ended["gaps"], 1, "of this run: {ended}");
    assert!(log.gaps().contains(&GapName { after: before, until: revision, removed: false }), "{:?}", log.gaps());
    let cover = log.cover();
    println!("gaps {:?}", log.gaps());
    assert!(cover.ranges.len() == 3 && cover.holes.iter().all(|hole| hole.compacted), "{cover:?}");
    let recorded = log.read();
    for range in &cover.ranges {
        let has = |revision: i64| recorded.records.keys().any(|key| key.starts_with(&revision.to_be_bytes()));
        assert!((range.first..=range.last).all(has), "{range:?}");
    }
}

/// A compaction at the last recorded revision leaves no gap, also if that revision was a deletion, whose tombstone is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_at_the_end_of_the_log_is_no_gap() {
    let etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let mut client = etcd.client().await;
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    log.start();
    client.put("a", "1", None).await.unwrap();
    let revision = client.delete("a", None).await.unwrap().header().unwrap().revision();
    log.has(revision).await;
    log.kill();
    client.compact(revision, None).await.unwrap();
    log.start();
    let last = client.put("b", "1", None).await.unwrap().header().unwrap().revision();
    log.has(last).await;
    assert_eq!(log.end()["gaps"], 0);
    let ranges: Vec<_> = log.cover().ranges.iter().map(|range| (range.first, range.last)).collect();
    assert_eq!(ranges, [(2, last)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_leaves_no_hole() {
    let mut etcd = Etcd::start().await;
    let s3 = S3::start().await;
    let away = Arc::new(AtomicBool::new(false));
    let is_away = Arc::clone(&away);
    let rule = move |_: &_| {
        if is_away.load(Ordering::Relaxed) { Fault::Answer(403, error("AccessDenied")) } else { Fault::Pass }
    };
    let proxy = S3Proxy::before(&s3, rule).await;
    let mut log = Log::prepare(etcd.flags(), proxy.flags(&s3), &s3.bucket().join("pre/fix"));
    log.request.spool_mib = 1;
    log.start();
    log.is_alive().await;
    let (stop, end_writes) = stopping();
    let writer = write(&etcd, stop);
    log.has(20).await;
    away.store(true, Ordering::Relaxed);
    // More than the spool takes: the watch ends, and begins again.
    etcd.fill(60, 64 << 10).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stored = log.last();
    let waiting: u64 = spooled(log.spool.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(waiting > 0, "nothing waits");
    away.store(false, Ordering::Relaxed);
    end_writes();
    let last = writer.await.unwrap();
    log.has(last).await;
    let ended = log.end();
    println!("stored {stored} before, {last} after; {waiting} bytes waited; {ended}");
    let ranges: Vec<_> = log.cover().ranges.iter().map(|range| (range.first, range.last)).collect();
    assert_eq!((ranges, &ended["gaps"]), (vec![(2, last)], &Value::from(0)));
    assert_eq!(spooled(log.spool.path()), Vec::<PathBuf>::new());
    assert_same(&log.read().records, &stored_by_etcd(&mut etcd, 1));
}

/// A link on which a segment takes longer than a small object may.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_store_takes_a_large_segment_at_once() {
    let etcd = Etcd::start().await;
    let s3 = S3::start().await;
    let is_large = |asked: &Asked| {
        let length = asked.headers.get("content-length").and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        asked.op == Op::Put && length.is_some_and(|length| length > 1 << 20)
    };
    let rule = move |asked: &Asked| {
        if !is_large(asked) {
            return Fault::Pass;
        }
        let (go, gone) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(13)).await;
            go.send_replace(true);
        });
        Fault::When(gone)
    };
    let proxy = S3Proxy::before(&s3, rule).await;
    let mut log = Log::prepare(etcd.flags(), proxy.flags(&s3), &s3.bucket().join("pre/fix"));
    etcd.fill(40, 100_000).await;
    let revision = etcd.client().await.get("x", None).await.unwrap().header().unwrap().revision();
    log.start();
    log.has(revision).await;
    log.end();
    let asked = proxy.asked();
    let large: Vec<&str> = asked.iter().filter(|asked| is_large(asked)).map(|asked| asked.uri.as_str()).collect();
    let names: BTreeSet<&str> = large.iter().copied().collect();
    assert!(!large.is_empty() && large.len() == names.len(), "{large:?}");
}

/// Objects in the spool.
fn spooled(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| path.contains('~')).map(|path| folder.join(path)).collect()
}

/// Killed while the store is away, the next run stores the segments of the spool, although etcd has compacted them.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_archiver_leaves_its_segments_to_the_next() {
    let etcd = Etcd::start().await;
    let s3 = S3::start().await;
    let away = Arc::new(AtomicBool::new(false));
    let is_away = Arc::clone(&away);
    let rule = move |_: &_| if is_away.load(Ordering::Relaxed) { Fault::Hangup } else { Fault::Pass };
    let proxy = S3Proxy::before(&s3, rule).await;
    let mut client = etcd.client().await;
    let mut log = Log::prepare(etcd.flags(), proxy.flags(&s3), &s3.bucket().join("pre/fix"));
    log.start();
    log.has(client.put("a", "1", None).await.unwrap().header().unwrap().revision()).await;
    away.store(true, Ordering::Relaxed);
    let revision = client.put("b", "1", None).await.unwrap().header().unwrap().revision();
    let waits = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().split_once('~').unwrap().1.replace('~', "/");
        SegmentName::parse(&name).is_some_and(|segment| segment.last >= revision)
    };
    eventually("the segment in the spool", async || spooled(log.spool.path()).iter().any(waits).then_some(())).await;
    log.kill();
    client.compact(revision, None).await.unwrap();
    away.store(false, Ordering::Relaxed);
    log.start();
    log.has(revision).await;
    assert_eq!(log.end()["gaps"], 0);
    assert!(log.cover().holes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_ends_is_left_for_another() {
    let mut members = Etcd::three().await;
    let endpoints = members.iter().map(|member| member.url.clone()).collect();
    let mount = tempfile::tempdir().unwrap();
    let flags = EtcdFlags { endpoints, ..EtcdFlags::default() };
    let mut log = Log::prepare(flags, file_store(mount.path()), mount.path());
    log.start();
    log.is_alive().await;
    let (stop, end_writes) = stopping();
    let mut clients = vec![];
    for member in &members {
        let id = member.client().await.status().await.unwrap().header().unwrap().member_id();
        clients.push((id, member.leads().await));
    }
    let watched = log.read().headers.last().unwrap().member_id;
    let place = clients.iter().position(|(id, _)| *id == watched).unwrap();
    assert!(!clients[place].1, "a follower is watched");
    let writer = write(&members[(place + 1) % 3], stop);
    log.has(50).await;
    // Once it stands still with its connections open, and once it ends.
    let paused = members[place].paused();
    eventually("another member", async || {
        log.read().headers.last().filter(|header| header.member_id != watched).map(|_| ())
    })
    .await;
    drop(paused);
    let watched = log.read().headers.last().unwrap().member_id;
    let second = clients.iter().position(|(id, _)| *id == watched).unwrap();
    if second == (place + 1) % 3 {
        // The writer's own member stays: the other one ends.
        members[place].kill();
    } else {
        members[second].kill();
    }
    log.is_alive().await;
    end_writes();
    let last = writer.await.unwrap();
    log.has(last).await;
    assert_eq!(log.end()["gaps"], 0);
    let ranges: Vec<_> = log.cover().ranges.iter().map(|range| (range.first, range.last)).collect();
    assert_eq!(ranges.first().map(|range| range.0), Some(2));
    assert!(ranges.len() == 1 && ranges[0].1 >= last, "{ranges:?}");
    let survivor = &mut members[(place + 1) % 3];
    assert_same(&log.read().records, &stored_by_etcd(survivor, 1));
}

/// A cluster that goes back in place keeps its UID, and has another etcd cluster with higher revisions.
#[tokio::test(flavor = "multi_thread")]
async fn another_etcd_never_comes_into_the_log() {
    let (etcd, mount) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    log.start();
    log.is_alive().await;
    log.end();
    let before = log.paths();
    // etcd makes the cluster's ID of names and URLs: another port is another cluster.
    let other = Etcd::start().await;
    log.request.etcd = other.flags();
    log.start();
    let lineage = log.folder().parent().unwrap().to_owned();
    let later = || fs::read_dir(&lineage).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let begun = async || later().find(|name| name.starts_with("log-"));
    let name = eventually("a log of its own", begun).await;
    // Before its first segment an archiver that is ended has recorded nothing, and says so with an error.
    let segments = || files(&lineage.join(&name)).iter().any(|path| SegmentName::parse(path).is_some());
    eventually("its first segment", async || segments().then_some(())).await;
    log.end();
    assert_eq!(log.paths(), before, "the first log is as it was");
    let bound = fs::read_to_string(lineage.join(&name).join("cluster.json")).unwrap();
    assert!(bound.contains(name.strip_prefix("log-").unwrap().trim_start_matches('0')), "{bound}");
}

/// A watch does not show users: each segment names their revision, and a change is an entry.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_users_is_recorded() {
    let etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let password = mount.path().join("password");
    let flags = etcd.locked("secret", &password).await;
    let mut log = Log::prepare(flags, file_store(mount.path()), mount.path());
    log.start();
    log.is_alive().await;
    let options = etcd_client::ConnectOptions::new().with_user("root", "secret");
    let mut client = etcd_client::Client::connect([&etcd.url], Some(options)).await.unwrap();
    let revision = client.put("a", "1", None).await.unwrap().header().unwrap().revision();
    log.has(revision).await;
    let before = log.read().headers.last().unwrap().auth_revision.unwrap();
    client.user_add("reader", "other", None).await.unwrap();
    eventually("the change", async || log.read().auth_changes.first().copied()).await;
    log.end();
    let recorded = log.read();
    assert_eq!(recorded.auth_changes, [revision]);
    assert!(recorded.headers.last().unwrap().auth_revision.unwrap() > before);
    assert_eq!(recorded.records.len(), 1);
}

fn verify_request(log: &Log, identities: Vec<PathBuf>) -> VerifyRequest {
    VerifyRequest {
        snapshot: SnapshotFlags { store: Some(log.request.store.clone()), identities, ..SnapshotFlags::default() },
        log: true,
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        deadline_seconds: 120,
        ..VerifyRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_log_is_shown_and_verified() {
    let etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let mut client = etcd.client().await;
    client.put("a", "1", None).await.unwrap();
    let saved = save::run(save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd)).await.unwrap();
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    // The log continues the snapshot.
    log.request.from_revision = None;
    log.request.age_recipients = vec![PAIRS[0].0.to_owned()];
    log.start();
    let mut last = 0;
    for number in 0..3 {
        last = client.put("b", format!("{number}"), None).await.unwrap().header().unwrap().revision();
        log.has(last).await;
    }
    log.end();

    let status = LogStatusRequest {
        store: log.request.store.clone(),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        deadline_seconds: 60,
        ..LogStatusRequest::default()
    };
    let shown = status::run(status).await.unwrap();
    let text = status::table(&shown);
    assert_eq!((shown[0].bases[0].base.key.as_str(), shown[0].bases[0].reaches), (saved.key.as_str(), last), "{text}");
    assert!(shown[0].seconds_behind.unwrap() < 120 && shown[0].holes.is_empty(), "{text}");

    let key = secret(&[0]);
    let identities = vec![key.path().to_owned()];
    let Verified::Log(found) = verify::run(verify_request(&log, identities.clone())).await.unwrap() else { panic!() };
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.records, found.ranges.as_slice()), (3, &[(saved.revision.unwrap() + 1, last)][..]));
    let closed = verify::run(verify_request(&log, vec![])).await.unwrap_err();
    assert!(closed.class() == ExitClass::Config && closed.message().contains("--identity"), "{closed}");

    // A changed byte, a missing segment.
    let with_records =
        log.paths().into_iter().filter(|path| SegmentName::parse(path).is_some_and(|s| s.first <= s.last));
    let paths: Vec<_> = with_records.map(|path| log.folder().join(path)).collect();
    let whole = fs::read(&paths[0]).unwrap();
    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut broken = whole.clone();
        broken[at] ^= 4;
        fs::write(&paths[0], &broken).unwrap();
        let error = verify::run(verify_request(&log, identities.clone())).await.unwrap_err();
        let name = paths[0].file_name().unwrap().to_str().unwrap();
        assert!(error.class() == ExitClass::Corrupt && error.message().contains(name), "{at}: {error}");
    }
    fs::write(&paths[0], &whole).unwrap();
    fs::remove_file(&paths[1]).unwrap();
    let error = verify::run(verify_request(&log, identities)).await.unwrap_err();
    assert!(error.class() == ExitClass::Corrupt && error.message().contains("are missing"), "{error}");
}

/// Two archivers at once: their segments overlap and agree.
#[tokio::test(flavor = "multi_thread")]
async fn two_archivers_write_one_log() {
    let mut etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let mut logs = [0, 1].map(|_| Log::prepare(etcd.flags(), file_store(mount.path()), mount.path()));
    let (stop, end_writes) = stopping();
    let writer = write(&etcd, stop);
    for log in &mut logs {
        log.start();
    }
    logs[0].has(100).await;
    end_writes();
    let last = writer.await.unwrap();
    logs[0].has(last).await;
    for log in &mut logs {
        log.end();
    }
    let Verified::Log(found) = verify::run(verify_request(&logs[0], vec![])).await.unwrap() else { panic!() };
    let [found] = &found[..] else { panic!("{found:?}") };
    println!("{last} revisions, {} changes in {} segments", found.records, found.segments);
    assert_eq!(found.ranges, [(2, last)]);
    assert_same(&logs[0].read().records, &stored_by_etcd(&mut etcd, 1));
}

/// Prints the rate and the memory of an archiver that catches up, and of one beside a busy writer.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded() {
    const REVISIONS: u32 = 40_000;
    let etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let writes = (0..8_u64).map(|writer| {
        let url = etcd.url.clone();
        tokio::spawn(async move {
            let mut client = etcd_client::Client::connect([url], None).await.unwrap();
            for number in 0..u64::from(REVISIONS) / 8 {
                let value = noise(number * 8 + writer, 300);
                client.put(format!("r/{writer}/{}", number % 500), value, None).await.unwrap();
            }
        })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap();
    }
    let last = etcd.client().await.get("x", None).await.unwrap().header().unwrap().revision();
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    let begun = Instant::now();
    log.start();
    log.has(last).await;
    let took = begun.elapsed();
    let status = fs::read_to_string(format!("/proc/{}/status", log.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB");
    let peak: u64 = peak.parse().unwrap();
    let segments: u64 = log.segments().len().try_into().unwrap();
    log.end();
    let rate = f64::from(REVISIONS) / took.as_secs_f64();
    println!(
        "{REVISIONS} revisions of 300 bytes in {took:?}: {rate:.0}/s; {segments} segments; peak RSS {} MiB",
        peak >> 10
    );
    assert!(peak < 96 << 10, "{peak} KiB");
}
