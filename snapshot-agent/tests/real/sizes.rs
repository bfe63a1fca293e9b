//! Objects whose sizes are at the limits of an upload's parts, and stores that accept them too slowly.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use etcd_client::CompactionOptions;
use futures::stream;
use holdfast_contract::{Compression, CopyRequest, EtcdFlags, ExitClass, Level, SaveRequest, StoreFlags, ToStore};
use serde_json::json;
use sha2::{Digest, Sha256};
use snapshot_agent::verbs::{copy, save};

use crate::age::PAIRS;
use crate::faults::{messages, save_stream, snapshot};
use crate::narrow::{Slow, Way};
use crate::s3_proxy::{Fault, Op, S3Proxy};
use crate::support::{Etcd, S3, eventually, file_store, noise, save_request, unsealed};

/// Size of a usual part.
const PART: usize = 8 << 20;

/// Name of the data object.
const NAME: &str = "snapshot.db.zst.age";

/// Stores a snapshot of exactly these bytes, as far as a reader without a key can tell; returns its key.
async fn stored_as(mount: &Path, bytes: &[u8]) -> String {
    let request = save_request(EtcdFlags::default(), file_store(mount), Compression::Zstd);
    let request = SaveRequest { age_recipients: vec![PAIRS[0].0.to_owned()], ..request };
    let saved = save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap();
    let folder = mount.join(&saved.key);
    fs::write(folder.join(NAME), bytes).unwrap();
    let manifest = folder.join("manifest.json");
    let mut json = unsealed(&manifest);
    json["storedBytes"] = json!(bytes.len());
    json["storedSha256"] = json!(hex::encode(Sha256::digest(bytes)));
    fs::write(manifest, json.to_string()).unwrap();
    saved.key
}

/// S3 accepts no part of 0 bytes, and only as the last part one of less than 5 MiB; some stores want equal parts except the last.
#[tokio::test(flavor = "multi_thread")]
async fn parts_end_where_objects_end() {
    let s3 = S3::start().await;
    let rows: [(usize, &[usize]); 6] = [
        (1, &[1]),
        (PART - 1, &[PART - 1]),
        (PART, &[PART]),
        (PART + 1, &[PART, 1]),
        (2 * PART, &[PART, PART]),
        (2 * PART + 1, &[PART, PART, 1]),
    ];
    for (bytes, parts) in rows {
        let (mount, content) = (tempfile::tempdir().unwrap(), noise(bytes as u64, bytes));
        let key = stored_as(mount.path(), &content).await;
        let proxy = S3Proxy::before(&s3, |_| Fault::Pass).await;
        let request = CopyRequest {
            store: file_store(mount.path()),
            to: ToStore(proxy.flags(&s3)),
            key: Some(key.clone()),
            deadline_seconds: 60,
            ..CopyRequest::default()
        };
        assert_eq!(copy::run(request).await.unwrap().failed, None, "{bytes}");
        assert!(fs::read(s3.file(&key, NAME)).unwrap() == content, "{bytes}");
        let mut sent: Vec<_> = proxy.asked().iter().filter(|asked| asked.op == Op::Part).map(numbered).collect();
        sent.sort_unstable();
        let sizes: Vec<_> = sent.iter().map(|(_, size)| *size).collect();
        assert_eq!(sizes, parts, "{bytes}");
    }
}

/// A part's number and size.
fn numbered(asked: &crate::s3_proxy::Asked) -> (u32, usize) {
    let number = asked.uri.split(['?', '&']).find_map(|pair| pair.strip_prefix("partNumber="));
    let length = asked.headers.get("content-length").and_then(|length| length.to_str().ok());
    (number.unwrap().parse().unwrap(), length.unwrap().parse().unwrap())
}

/// A slow network is no error where no stream waits: in a copy, and in a save behind a spool, which releases etcd.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_line_is_given_its_time_where_no_stream_waits() {
    let s3 = S3::start().await;
    // A part takes 45 s, longer than a stream may wait; each connection has its own share of the rate.
    let slow = Slow::before(&s3.address, Way::Up, PART / 450).await;
    let through = || StoreFlags { s3_endpoint: Some(slow.url()), ..s3.flags() };
    let (mount, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let content = noise(1, 2 * PART + 1);
    let key = stored_as(mount.path(), &content).await;
    let request = CopyRequest {
        store: file_store(mount.path()),
        to: ToStore(through()),
        key: Some(key.clone()),
        deadline_seconds: 120,
        ..CopyRequest::default()
    };
    let save = |spool_dir: Option<PathBuf>| {
        let request = save_request(EtcdFlags::default(), through(), Compression::None);
        let spool_mib = spool_dir.is_some().then_some(32);
        let request = SaveRequest { spool_mib, spool_dir, deadline_seconds: 120, ..request };
        save_stream(request, stream::iter(messages(&snapshot(2200))))
    };
    let begun = Instant::now();
    let (copied, behind_a_spool, without) =
        tokio::join!(copy::run(request), save(Some(spool.path().to_owned())), save(None));
    println!("{:.1} s", begun.elapsed().as_secs_f32());
    assert_eq!(copied.unwrap().failed, None);
    assert!(fs::read(s3.file(&key, NAME)).unwrap() == content);
    assert!(behind_a_spool.unwrap().stored_bytes > PART as u64);
    let error = without.unwrap_err();
    assert_eq!(error.class(), ExitClass::Transient, "{error}");
    assert!(error.message().contains("the store is too slow") && error.message().contains("--spool-dir"), "{error}");
}

/// Kubernetes compacts every five minutes, and a slow store takes longer to empty a spool: the save asks the members while they
/// still have the revision of the snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_store_behind_a_spool_does_not_cost_the_members_word() {
    let (etcd, s3) = (Etcd::start().await, S3::start().await);
    // Twice as much as an upload holds in memory and on its way.
    etcd.fill(80, 1 << 20).await;
    // 20 KiB a second for each of four parts: the test does not wait for all of it.
    let slow = Slow::before(&s3.address, Way::Up, 2 << 10).await;
    let (spool, before) = (tempfile::tempdir().unwrap(), etcd.calls("RoleList").await);
    let request = SaveRequest {
        spool_dir: Some(spool.path().to_owned()),
        spool_mib: Some(160),
        ..save_request(etcd.flags(), s3.through(slow.url()), Compression::None)
    };
    let saving = tokio::spawn(save::run(request));
    // The last call; etcd answers HashKV before.
    eventually("the member is asked", async || (etcd.calls("RoleList").await > before).then_some(())).await;
    assert!(slow.passed() < 32 << 20, "most of it is in the spool still");
    let mut client = etcd.client().await;
    let newest = client.put("later", "", None).await.unwrap().header().unwrap().revision();
    client.compact(newest, Some(CompactionOptions::new().with_physical())).await.unwrap();
    assert!(client.hash_kv(newest - 1).await.is_err(), "what was compared cannot be asked for any more");
    slow.hurry();
    let saved = saving.await.unwrap().unwrap();
    let verification = saved.verification.unwrap();
    assert_eq!((saved.revision, verification.level), (Some(newest - 1), Level::HashKV), "{:?}", verification.reason);
    assert_eq!(verification.agreed_by, ["default"]);
    assert!(verification.read_back && verification.agreed_by_reason.is_none());
}

/// A store that is too slow would pin etcd's read transaction for hours: the save ends, and releases etcd.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_trickles_is_given_up_and_etcd_is_let_go() {
    let etcd = Etcd::start().await;
    // More than can be on its way in the time that the verdict takes.
    etcd.fill(200, 1 << 20).await;
    let at_rest = etcd.open_reads().await;
    let (etcd, at_rest) = (&etcd, &at_rest);
    // 10 KiB a second: no part completes. 280 KiB a second for each of four: parts complete, and the whole is too slow.
    let rows = [
        (1 << 10, 512, ExitClass::Transient, "the store is too slow", 60),
        (28 << 10, 4096, ExitClass::Deadline, "less than the 4096 KiB of --min-throughput-kib", 90),
    ];
    let rows = rows.map(|(bytes, least, class, word, seconds)| async move {
        let s3 = S3::start().await;
        let slow = Slow::before(&s3.address, Way::Up, bytes).await;
        let mut store = s3.flags();
        store.s3_endpoint = Some(slow.url());
        let request = SaveRequest {
            min_throughput_kib: least,
            deadline_seconds: 300,
            ..save_request(etcd.flags(), store, Compression::None)
        };
        let begun = Instant::now();
        let saving = tokio::spawn(save::run(request));
        eventually("the stream", async || (etcd.open_reads().await > *at_rest).then_some(())).await;
        let error = saving.await.unwrap().unwrap_err();
        println!("{bytes} bytes in 0.1 s, {:.1} s: {:?} {error}", begun.elapsed().as_secs_f32(), error.class());
        assert_eq!(error.class(), class, "{error}");
        assert!(error.message().contains(word), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(seconds), "{:?}", begun.elapsed());
        slow.hurry();
        eventually("nothing is left", async || s3.files().is_empty().then_some(())).await;
    });
    futures::future::join_all(rows).await;
    eventually("etcd is let go", async || (etcd.open_reads().await <= *at_rest).then_some(())).await;
}
