//! Retention in real stores: an announced snapshot goes after its time by the store's clock, a locked or denied snapshot stays.

use std::time::Duration;

use bytes::Bytes;
use holdfast_contract::{ExitClass, Policy, PruneRequest, RemoveRequest, StoreFlags};
use holdfast_layout::manifest::{Contents, Manifest};
use holdfast_layout::{Folder, GapName, Key, SegmentName, check_key};
use holdfast_store::{Plan, Store};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::backends::Backend;
use crate::locks::{lockable, locking};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::support::{S3, files};
use snapshot_agent::verbs::prune::{self, Pruned};
use snapshot_agent::verbs::remove;

const UID: &str = "1a2b3c4d-0000-4000-8000-000000000000";
const LINEAGE: &str = "shop/orders/1a2b3c4d";
const DATA: &[u8] = b"12345";

/// Stores a run of the schedule of this hour, on a day long ago; returns its key.
async fn put(flags: &StoreFlags, hour: u8) -> String {
    put_at(flags, hour, None).await
}

/// Does the same, with a revision.
async fn put_at(flags: &StoreFlags, hour: u8, revision: Option<i64>) -> String {
    let key = format!("{LINEAGE}/20260121T{hour:02}0700Z-11111111-aaaaaaaa");
    let mut manifest = manifest(&key, format!("2026-01-21T{hour:02}:07:00Z").parse().unwrap());
    manifest.contents = revision.map(|revision| Contents { revision, ..Contents::default() });
    let (store, folder) = (Store::open(flags).unwrap(), Folder::parse("key", &key).unwrap());
    let now = Timestamp::now();
    let plan = Plan { estimate: 5, at: now, until: now, read_back: true, patient: false };
    let mut upload = store.begin(&folder.data(manifest.format()), plan).await.unwrap();
    upload.write(Bytes::from_static(DATA)).await.unwrap();
    upload.complete().await.unwrap();
    store.put_new(&folder.manifest(), manifest.render().unwrap().into()).await.unwrap();
    upload.published().await;
    key
}

/// The manifest of a proven run of the schedule.
fn manifest(key: &str, at: Timestamp) -> Manifest {
    let manifest = json!({
        "formatVersion": 1, "key": key, "namespace": "shop", "cluster": "orders", "clusterUid": UID, "podUid": "p",
        "origin": {"name": "n", "uid": "j", "kind": "Job", "schedule": {"name": "nightly", "uid": "s1"}},
        "clusterId": "cafe", "memberId": "1", "member": "m", "etcdVersion": "3.6.16", "raftTerm": 2,
        "raftAppliedIndex": 3, "dbBytes": 4096, "sha256": "00".repeat(32), "storedBytes": DATA.len(),
        "storedSha256": "11".repeat(32), "compression": "zstd", "verification": {"level": "HashKV"},
        "startedAt": at, "endedAt": at, "agentVersion": "0.1.0",
    });
    Manifest::parse(manifest.to_string().as_bytes()).unwrap()
}

fn request(store: StoreFlags, announced_seconds: u32) -> PruneRequest {
    PruneRequest {
        store,
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        cluster_uid: UID.to_owned(),
        schedule_uid: "s1".to_owned(),
        policy: Policy { keep_last: 2, ..Policy::default() },
        time_zone: "Etc/UTC".to_owned(),
        announced_seconds,
        deadline_seconds: 60,
        ..PruneRequest::default()
    }
}

async fn pruned(store: &StoreFlags, announced_seconds: u32) -> Pruned {
    let pruned = prune::run(request(store.clone(), announced_seconds)).await.unwrap();
    assert_eq!(pruned.failed, None);
    pruned
}

async fn announce(store: &StoreFlags) {
    let announced = pruned(store, 0).await.report.announced;
    assert!(announced.is_some_and(|announced| announced.count > 0));
    pass_the_announcement().await;
}

/// Waits until the announcement is older than zero by the server's clock: versitygw renews its `Date` once a second.
async fn pass_the_announcement() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

/// The server's objects of the lineage, without announcements and leftovers of uploads.
fn stored(s3: &S3, bucket: &str) -> Vec<String> {
    let all = files(&s3.folder.path().join(format!("buckets/{bucket}/pre/fix")).join(LINEAGE));
    all.into_iter().filter(|file| file.starts_with("2026")).collect()
}

/// Keys below the prefix of a store of any kind, without announcements and leftovers of uploads.
async fn stored_in(backend: &Backend) -> Vec<String> {
    let all = backend.objects().await;
    all.into_iter().filter(|key| key.contains(&format!("{LINEAGE}/2026"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_snapshots_go_by_the_stores_clock() {
    for backend in Backend::all().await {
        let (flags, what) = (&backend.flags, backend.name);
        let mut keys = vec![];
        for hour in 0..5 {
            keys.push(put(flags, hour).await);
        }
        let store = Store::open(flags).unwrap();
        let proof = Folder::parse("key", &format!("{}/proofs", keys[0])).unwrap();
        let proof = proof.object("20260122T000000.000000Z-stored.json").unwrap();
        store.put_new(&proof, Bytes::from_static(b"{}")).await.unwrap();
        let before = stored_in(&backend).await;
        assert_eq!(before.len(), 11, "{what}: {before:?}");

        let first = pruned(flags, 3).await.report;
        assert_eq!((first.kept, first.removed, first.announced.unwrap().count), (2, 0, 3), "{what}");
        let early = pruned(flags, 3).await.report;
        assert_eq!((early.removed, early.record), (0, None), "{what}");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let last = pruned(flags, 3).await;
        assert_eq!((last.report.removed, last.report.removed_bytes), (3, 15), "{what}: {}", last.table());
        let left = stored_in(&backend).await;
        assert!(left.len() == 4 && left.iter().all(|file| keys[3..].iter().any(|key| file.contains(key))), "{left:?}");

        // Snapshots are named one by one, and never the last.
        let mut asked = vec![];
        for key in &keys[3..] {
            let manifest = store.get_small(&Folder::parse("key", key).unwrap().manifest(), 10_000).await.unwrap();
            asked.push(RemoveRequest {
                store: flags.clone(),
                key: key.clone(),
                manifest_sha256: hex_of(&manifest),
                deadline_seconds: 60,
                ..RemoveRequest::default()
            });
        }
        assert_eq!(remove::run(asked[0].clone()).await.unwrap().bytes, 5, "{what}");
        assert_eq!(remove::run(asked[0].clone()).await.unwrap().bytes, 0, "{what}");
        assert_eq!(remove::run(asked[1].clone()).await.unwrap().refused.unwrap().reason, "LastProven", "{what}");
        assert_eq!(stored_in(&backend).await.len(), 2, "{what}");
    }
}

fn hex_of(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_locks_is_shown_and_left() {
    let s3 = lockable().await;
    let store = locking(s3.flags());
    for hour in 0..4 {
        put(&store, hour).await;
    }
    let before = stored(&s3, "locked");
    // versitygw reports a lock only to HEAD: the lock shows when the snapshots are about to go.
    announce(&store).await;
    for _ in 0..2 {
        let pruned = pruned(&store, 0).await;
        let locked = pruned.report.locked.clone().unwrap();
        assert_eq!((locked.count, pruned.report.removed, pruned.report.record.as_ref()), (2, 0, None));
        assert!(locked.until.is_some_and(|until| until > Timestamp::now()), "{locked:?}");
        assert!(pruned.table().contains("no rule keeps it; locked until 20"), "{}", pruned.table());
    }
    assert_eq!(stored(&s3, "locked"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_removals_are_all_denied_fails_and_a_cut_listing_removes_nothing() {
    let s3 = S3::start().await;
    for hour in 0..4 {
        put(&s3.flags(), hour).await;
    }
    announce(&s3.flags()).await;
    let before = stored(&s3, "bkt");
    let denied = |asked: &Asked| match asked.op {
        Op::Delete => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    };
    let cut = |asked: &Asked| match asked.op {
        Op::List => Fault::Answer(
            200,
            "<ListBucketResult><IsTruncated>true</IsTruncated><Name>bkt</Name></ListBucketResult>".to_owned(),
        ),
        _ => Fault::Pass,
    };
    let proxy = S3Proxy::before(&s3, denied).await;
    let ended = prune::run(request(proxy.flags(&s3), 0)).await.unwrap();
    let failed = ended.failed.unwrap();
    assert_eq!(
        (failed.class(), failed.failure().reason, ended.report.removed),
        (ExitClass::Denied, "StoreAccessDenied", 0)
    );
    assert_eq!(proxy.count(Op::Delete), 2, "each snapshot is tried once");
    let proxy = S3Proxy::before(&s3, cut).await;
    let told = prune::run(request(proxy.flags(&s3), 0)).await.unwrap_err();
    assert!(told.message().contains("truncated and has no continuation token"), "{told}");
    assert_eq!(stored(&s3, "bkt"), before);
    assert_eq!(pruned(&s3.flags(), 0).await.report.removed, 2);
}

/// Number of requests for each snapshot of a run, independent of the number of snapshots.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_snapshots_cost_two_requests_each() {
    const SNAPSHOTS: usize = 1_000;
    let s3 = S3::start().await;
    for number in 0..SNAPSHOTS {
        let at: Timestamp = "2025-01-21T00:07:00Z".parse().unwrap();
        let at = at + SignedDuration::from_hours(i64::try_from(number).unwrap());
        let key = format!("{LINEAGE}/{}-11111111-aaaaaaaa", at.strftime("%Y%m%dT%H%M%SZ"));
        std::fs::create_dir_all(s3.file(&key, "")).unwrap();
        std::fs::write(s3.file(&key, "snapshot.db.zst"), DATA).unwrap();
        std::fs::write(s3.file(&key, "manifest.json"), manifest(&key, at).render().unwrap()).unwrap();
    }
    let proxy = S3Proxy::before(&s3, |_| Fault::Pass).await;
    let mut asked = 0;
    for (run, removed) in [("judges and announces", 0), ("removes 20", 20)] {
        let begun = std::time::Instant::now();
        let report = pruned(&proxy.flags(&s3), 0).await.report;
        assert_eq!(report.removed, removed);
        let requests = proxy.asked().len() - asked;
        asked += requests;
        println!(
            "{run}: {SNAPSHOTS} snapshots, {}.{:03} requests each, {:.1} s",
            requests / SNAPSHOTS,
            requests % SNAPSHOTS,
            begun.elapsed().as_secs_f64()
        );
        assert!(requests < SNAPSHOTS * 22 / 10, "{requests} requests");
        pass_the_announcement().await;
    }
}

/// Segments, a gap and a check of a log go in every kind of store: after the snapshot that needed them, and an announcement.
#[tokio::test(flavor = "multi_thread")]
async fn an_announced_part_of_a_log_goes_by_the_stores_clock() {
    for backend in Backend::all().await {
        let (flags, what) = (&backend.flags, backend.name);
        let store = Store::open(flags).unwrap();
        for hour in 0..4 {
            put_at(flags, hour, Some(i64::from(hour) * 100 + 100)).await;
        }
        let log = Folder::parse("key", LINEAGE).unwrap().log();
        let write = async |key: Key| {
            store.put_new(&key, Bytes::from_static(b"{\"clusterId\": \"cafe\", \"formatVersion\": 1}")).await
        };
        write(log.log_cluster()).await.unwrap();
        for end in [150, 200, 250, 300, 350, 400] {
            let hour = end / 100 - 1;
            let at = format!("2026-01-21T{hour:02}:06:00Z").parse().unwrap();
            let name =
                SegmentName { first: end - 49, last: end, at, run8: "a".to_owned(), encrypted: end > 300, tail: None };
            write(name.key(&log).unwrap()).await.unwrap();
        }
        write(GapName { after: 20, until: 50, removed: false }.key(&log, "a").unwrap()).await.unwrap();
        for at in [60, 380] {
            write(check_key(&log, at, "a").unwrap()).await.unwrap();
        }
        let policy =
            Policy { log_within: Some(SignedDuration::from_hours(10_000)), ..request(flags.clone(), 0).policy };
        let run = async || {
            let pruned =
                prune::run(PruneRequest { policy: policy.clone(), ..request(flags.clone(), 0) }).await.unwrap();
            assert_eq!(pruned.failed, None, "{what}");
            pass_the_announcement().await;
            pruned.report
        };
        let objects = async || {
            let all = backend.objects().await;
            all.iter().filter(|key| key.contains(&format!("{LINEAGE}/log/"))).count()
        };
        // Announces the snapshots; removes them and announces the log; removes the log.
        let first = run().await;
        assert_eq!((first.announced.unwrap().count, first.log.unwrap().unneeded), (2, 0), "{what}");
        let second = run().await;
        let part = second.log.unwrap();
        assert_eq!((second.removed, part.segments, part.announced, part.removed), (2, 6, 4, 0), "{what}");
        assert_eq!(objects().await, 10, "{what}");
        let third = run().await.log.unwrap();
        assert_eq!((third.segments, third.removed, third.locked), (2, 4, 0), "{what}");
        assert_eq!(objects().await, 4, "{what}: the cluster, two segments and the later check");
    }
}
