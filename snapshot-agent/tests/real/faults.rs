//! Streams and stores that fail: nothing is published, nothing stays behind, and the class shows the remedy.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use holdfast_contract::{Compression, EtcdFlags, ExitClass, SaveRequest, StoreFlags, Verify};

use crate::bolt::{Bolt, key_value, rev};
use crate::front::Mischief;
use crate::support::{Etcd, S3, file_store, noise, save_request};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use holdfast_contract::error::{Error, Result};
use sha2::{Digest, Sha256};
use snapshot_agent::etcd::member::{Candidate, Member};
use snapshot_agent::verbs::save;

/// A snapshot like etcd's: `pages` pages of a sound database that does not compress, and the trailer.
pub(crate) fn snapshot(pages: usize) -> Vec<u8> {
    with_trailer(database(pages))
}

pub(crate) fn with_trailer(mut bytes: Vec<u8>) -> Vec<u8> {
    let hash = Sha256::digest(&bytes);
    bytes.extend_from_slice(&hash);
    bytes
}

/// A database of `pages` pages (4 or more), with a key on each page that the tree does not need.
pub(crate) fn database(pages: usize) -> Vec<u8> {
    // Two meta pages, the root bucket and the top of the tree; branches of some eighty children.
    let keys = pages.saturating_sub(5 + pages / 60);
    let entries: Vec<_> = (0..keys)
        .map(|i| {
            (
                rev(i64::try_from(i + 2).unwrap(), 0, false),
                key_value(format!("k{i:07}").as_bytes(), &noise(i as u64, 3900)),
            )
        })
        .collect();
    let mut bolt = Bolt::new(4096);
    let root = bolt.tree(&entries, |_| {});
    while bolt.pages() + 1 < pages as u64 {
        bolt.garbage(&noise(pages as u64, 4096));
    }
    let bytes = bolt.finish(&[("key", root)], &[("lease", &[]), ("meta", &[])]);
    assert_eq!(bytes.len(), pages * 4096);
    bytes
}

pub(crate) fn messages(bytes: &[u8]) -> Vec<Result<Bytes>> {
    bytes.chunks(32 << 10).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect()
}

fn member(db_bytes: usize) -> Member {
    let facts = Candidate {
        used_bytes: 0,
        endpoint: String::new(),
        cluster_id: 1,
        member_id: 2,
        leader: 2,
        applied: 3,
        term: 4,
        learner: false,
        corrupt: false,
        db_bytes: db_bytes as u64,
        version: "3.6.16".to_owned(),
        storage_version: "3.6.0".to_owned(),
    };
    Member { facts, name: "m".to_owned(), without_quorum: false }
}

pub(crate) async fn save_stream(
    request: SaveRequest,
    stream: impl Stream<Item = Result<Bytes>> + Send + Unpin,
) -> Result<holdfast_contract::SavedReport> {
    save::from_stream(request, member(1 << 20), Ok(("3.6.0".to_owned(), stream))).await
}

/// Every way in which a stream can be wrong, with its class.
fn broken_streams(good: &[u8]) -> Vec<(&'static str, Vec<Result<Bytes>>, ExitClass)> {
    let flipped = |at: usize| {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        messages(&bytes)
    };
    let mut broke = messages(&good[..good.len() / 2]);
    broke.push(Err(Error::transient("the member is gone")));
    vec![
        ("a bit in the trailer", flipped(good.len() - 1), ExitClass::Corrupt),
        ("a bit in the first page", flipped(0), ExitClass::Corrupt),
        ("a bit in the middle", flipped(good.len() / 2), ExitClass::Corrupt),
        ("no trailer", messages(&good[..good.len() - 32]), ExitClass::Transient),
        ("half a trailer", messages(&good[..good.len() - 16]), ExitClass::Transient),
        (
            "the last page is missing",
            messages(&[&good[..good.len() - 32 - 4096], &good[good.len() - 32..]].concat()),
            ExitClass::Corrupt,
        ),
        ("a clean end in the middle", messages(&good[..good.len() / 2]), ExitClass::Transient),
        ("only a trailer", messages(&good[good.len() - 32..]), ExitClass::Transient),
        ("nothing", vec![], ExitClass::Transient),
        ("a page of the tree is overwritten, and hashed so", messages(&overwritten(good)), ExitClass::Corrupt),
        ("no database, and hashed so", messages(&with_trailer(noise(1, good.len() - 32))), ExitClass::Corrupt),
        ("an error in the middle", broke, ExitClass::Transient),
        ("padded by a sector", messages(&[good, &[0; 512]].concat()), ExitClass::Corrupt),
        ("padded by a byte", messages(&[good, &[0]].concat()), ExitClass::Transient),
    ]
}

/// The stream of an etcd whose disk has lost a page: the trailer is right.
fn overwritten(good: &[u8]) -> Vec<u8> {
    let mut bytes = good[..good.len() - 32].to_vec();
    bytes[3 * 4096..4 * 4096].fill(0);
    with_trailer(bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_publishes_nothing() {
    let small = snapshot(64);
    // The store has three whole parts before the end shows the fault.
    let large = snapshot(13_000);
    let s3 = S3::start().await;
    let mount = tempfile::tempdir().unwrap();
    for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
        for (what, stream, class) in broken_streams(&small) {
            let request = save_request(EtcdFlags::default(), file_store(mount.path()), compression);
            let error = save_stream(request, stream::iter(stream)).await.unwrap_err();
            assert_eq!(error.class(), class, "{what}: {error}");
            assert_eq!(crate::support::files(mount.path()), [] as [&str; 0], "{what}");
        }
    }
    for (what, stream, class) in broken_streams(&small).into_iter().chain(broken_streams(&large).into_iter().take(4)) {
        let request = save_request(EtcdFlags::default(), s3.flags(), Compression::None);
        let error = save_stream(request, stream::iter(stream)).await.unwrap_err();
        assert_eq!(error.class(), class, "{what}: {error}");
        assert_eq!(s3.files(), [] as [&str; 0], "{what}: no object, no part of one");
    }
    let request = save_request(EtcdFlags::default(), s3.flags(), Compression::None);
    save_stream(request, stream::iter(messages(&large))).await.unwrap();
    assert_eq!(s3.files().len(), 2);
}

/// Empty messages are no progress, however many there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_nothing_is_given_up() {
    let mount = tempfile::tempdir().unwrap();
    let request = save_request(EtcdFlags::default(), file_store(mount.path()), Compression::Zstd);
    let nothing = stream::unfold((), |()| async {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        Some((Ok(Bytes::new()), ()))
    });
    let small = snapshot(64);
    let stream = stream::iter(messages(&small[..small.len() / 2])).chain(nothing).boxed();
    let error = save_stream(request, stream).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Deadline, "{error}");
    assert_eq!(crate::support::files(mount.path()), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_out_of_time_leaves_nothing() {
    let s3 = S3::start().await;
    let mount = tempfile::tempdir().unwrap();
    for store in [s3.flags(), file_store(mount.path())] {
        let mut request = save_request(EtcdFlags::default(), store, Compression::None);
        request.deadline_seconds = 1;
        // More than a whole part, then silence.
        let stream = stream::iter(messages(&snapshot(5000))).chain(stream::pending());
        let error = save_stream(request, stream).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Deadline, "{error}");
    }
    assert_eq!(crate::support::files(mount.path()), [] as [&str; 0]);
    assert_eq!(s3.files(), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_etcd_that_breaks_is_transient() {
    let etcd = Etcd::start().await;
    etcd.fill(20, 1 << 20).await;
    let mount = tempfile::tempdir().unwrap();
    for limit in [100, 1000, 100_000, 5_000_000, 15_000_000] {
        let proxy = Mischief::Cut(limit).before(&etcd.url).await;
        let mut request = save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd);
        request.etcd.endpoints = vec![proxy.url()];
        let error = save::run(request).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Transient, "cut after {limit}: {error}");
        assert_eq!(crate::support::files(mount.path()), [] as [&str; 0], "cut after {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_gives_back_something_else_is_found_out() {
    let s3 = S3::start().await;
    let proxy = Mischief::Spoil.before(&s3.address).await;
    let store = s3.through(proxy.url());
    let stream = || stream::iter(messages(&snapshot(2000)));
    let request = save_request(EtcdFlags::default(), store.clone(), Compression::None);
    let error = save_stream(request.clone(), stream()).await.unwrap_err();
    // Each reading differs: the error does not blame the store, and the snapshot is not published.
    assert_eq!(error.class(), ExitClass::Transient, "{error}");
    assert!(error.message().contains("two readings") && error.message().contains("the store returns"), "{error}");
    assert_eq!(s3.files(), [] as [&str; 0], "nothing is published, and the data is taken back");
    save_stream(SaveRequest { verify: Verify::Stream, ..request }, stream()).await.unwrap();
}

async fn class_of(store: StoreFlags) -> (ExitClass, String) {
    let request = save_request(EtcdFlags::default(), store, Compression::Zstd);
    let begun = Instant::now();
    // A stream without a message: the store's refusal must appear without it.
    let error = save_stream(request, stream::pending()).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(50), "took {:?}", begun.elapsed());
    (error.class(), error.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_refuses_says_why_and_says_it_early() {
    let s3 = S3::start().await;
    let wrong = tempfile::tempdir().unwrap();
    fs::write(wrong.path().join("accessKeyID"), "key").unwrap();
    fs::write(wrong.path().join("secretAccessKey"), "canary").unwrap();
    let credentials_dir = Some(wrong.path().to_owned());

    let (class, message) = class_of(StoreFlags { credentials_dir: credentials_dir.clone(), ..s3.flags() }).await;
    assert_eq!(class, ExitClass::Denied, "a wrong secret: {message}");
    assert!(!message.contains("canary"), "{message}");
    fs::write(wrong.path().join("accessKeyID"), "nobody").unwrap();
    let (class, message) = class_of(StoreFlags { credentials_dir, ..s3.flags() }).await;
    assert_eq!(class, ExitClass::Denied, "a wrong key: {message}");
    let (class, message) = class_of(StoreFlags { url: "s3://nobody-has-this".to_owned(), ..s3.flags() }).await;
    assert_eq!(class, ExitClass::NotFound, "a missing bucket: {message}");
    assert!(message.contains("bucket"), "{message}");
    let nobody = format!("http://127.0.0.1:{}", crate::support::free_port());
    let (class, message) = class_of(StoreFlags { s3_endpoint: Some(nobody), ..s3.flags() }).await;
    assert_eq!(class, ExitClass::Transient, "nobody listens: {message}");
    let (class, message) = class_of(StoreFlags { s3_region: Some("mars-1".to_owned()), ..s3.flags() }).await;
    assert!(matches!(class, ExitClass::Config | ExitClass::Denied), "a wrong region: {class:?} {message}");
    let (class, _) = class_of(file_store("/nonexistent/mount".as_ref())).await;
    assert_eq!(class, ExitClass::NotFound, "a missing mount");
    assert_eq!(s3.files(), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_never_leads_elsewhere() {
    let outside = tempfile::tempdir().unwrap();
    let mount = tempfile::tempdir().unwrap();
    for bad in ["..", "a/b", "", ".hidden", "a\0", "-x"] {
        for part in 0..2 {
            let mut request = save_request(EtcdFlags::default(), file_store(mount.path()), Compression::Zstd);
            *[&mut request.namespace, &mut request.cluster][part] = bad.to_owned();
            let error = save_stream(request, stream::empty()).await.unwrap_err();
            assert_eq!(error.class(), ExitClass::Config, "{bad:?}: {error}");
        }
    }
    // A user with access to the volume plants links at the place of the next backup.
    let lineage = "shop/orders/1a2b3c4d";
    for planted in ["shop", "shop/orders", lineage] {
        let link = mount.path().join(planted);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(outside.path(), &link).unwrap();
        let request = save_request(EtcdFlags::default(), file_store(mount.path()), Compression::Zstd);
        let error = save_stream(request, stream::iter(messages(&snapshot(4)))).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Denied, "{planted}: {error}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{planted}");
        fs::remove_file(link).unwrap();
    }
    let request = save_request(EtcdFlags::default(), file_store(mount.path()), Compression::Zstd);
    save_stream(request, stream::iter(messages(&snapshot(4)))).await.unwrap();
}
