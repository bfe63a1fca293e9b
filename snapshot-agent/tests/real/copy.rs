//! Copies of snapshots between stores: whole and verified, or none.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use holdfast_contract::{Compression, CopyRequest, DATA_DIR, ExitClass, SavedReport, StoreFlags, ToStore};
use holdfast_layout::Folder;
use holdfast_store::{Plan, Store, Upload};
use jiff::{SignedDuration, Timestamp};

use crate::age::{PAIRS, secret};
use crate::front::Mischief;
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy};
use crate::support::{Etcd, S3, eventually, file_store, files, restore_request, save_request};
use snapshot_agent::verbs::copy::{Copied, Copies, Ended};
use snapshot_agent::verbs::{copy, restore, save};

async fn saved(etcd: &Etcd, store: StoreFlags, age: bool) -> SavedReport {
    let mut request = save_request(etcd.flags(), store, Compression::Zstd);
    request.age_recipients = if age { vec![PAIRS[0].0.to_owned()] } else { vec![] };
    save::run(request).await.unwrap()
}

fn request(from: StoreFlags, to: StoreFlags, key: Option<&str>) -> CopyRequest {
    CopyRequest {
        store: from,
        to: ToStore(to),
        key: key.map(str::to_owned),
        all: key.is_none(),
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        deadline_seconds: 60,
        ..CopyRequest::default()
    }
}

async fn copied(request: CopyRequest) -> Vec<Copied> {
    let Copies { copies, failed } = copy::run(request).await.unwrap();
    assert_eq!(failed, None);
    copies
}

/// Checks that a copy is refused, and that the destination stays unchanged.
async fn refused(from: &StoreFlags, to: &Path, key: &str) -> (ExitClass, String) {
    let before = files(to);
    let copies = copy::run(request(from.clone(), file_store(to), Some(key))).await.unwrap();
    let error = copies.failed.expect("was copied");
    assert_eq!(copies.copies[0].ended, Ended::Failed);
    assert_eq!(files(to), before, "{error}");
    (error.class(), error.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_the_same_byte_for_byte_and_restores() {
    let etcd = Etcd::start().await;
    etcd.fill(40, 100_000).await;
    let (s3, other, mount) = (S3::start().await, S3::start().await, tempfile::tempdir().unwrap());
    let mut elsewhere = other.flags();
    elsewhere.url = "s3://bkt/another/prefix".to_owned();
    for age in [false, true] {
        let saved = saved(&etcd, s3.flags(), age).await;
        let name = if age { "snapshot.db.zst.age" } else { "snapshot.db.zst" };
        // Bucket to folder, folder to bucket, in turn.
        for (from, to) in [(s3.flags(), file_store(mount.path())), (file_store(mount.path()), elsewhere.clone())] {
            let ask = request(from, to, Some(&saved.key));
            let done = copied(ask.clone()).await;
            assert_eq!((done[0].ended, done[0].stored_bytes), (Ended::Copied, Some(saved.stored_bytes)));
            let again = copied(ask).await;
            assert_eq!(again[0].ended, Ended::Already);
        }
        let there = other.folder.path().join("buckets/bkt/another/prefix").join(&saved.key);
        for file in [name, "manifest.json"] {
            let here = fs::read(s3.file(&saved.key, file)).unwrap();
            assert_eq!(fs::read(mount.path().join(&saved.key).join(file)).unwrap(), here);
            assert_eq!(fs::read(there.join(file)).unwrap(), here);
        }
        assert_eq!(files(&there), ["manifest.json", name]);
        let volume = tempfile::tempdir().unwrap();
        let identity = secret(&[0]);
        let mut ask = restore_request(elsewhere.clone(), &saved.key, volume.path());
        ask.age_identity_dirs = vec![identity.path().to_owned()];
        assert_eq!(restore::run(ask).await.unwrap().sha256, saved.sha256);
        assert!(volume.path().join(DATA_DIR).exists());
    }
    assert_eq!(other.files().len(), 4, "no parts and no intents: {:?}", other.files());
    assert_eq!(files(mount.path()).len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_differs_is_never_published() {
    let etcd = Etcd::start().await;
    etcd.fill(20, 10_000).await;
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = file_store(from.path());
    let saved = saved(&etcd, store.clone(), false).await;
    let data = from.path().join(&saved.key).join("snapshot.db.zst");
    let good = fs::read(&data).unwrap();

    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    fs::write(&data, &flipped).unwrap();
    let (class, message) = refused(&store, to.path(), &saved.key).await;
    assert!(class == ExitClass::Corrupt && message.contains("its sha256 is"), "{message}");
    // A bucket gets nothing of the broken snapshot either.
    let s3 = S3::start().await;
    let copies = copy::run(request(store.clone(), s3.flags(), Some(&saved.key))).await.unwrap();
    assert_eq!(copies.failed.unwrap().class(), ExitClass::Corrupt);
    assert_eq!(s3.files(), [] as [&str; 0]);

    fs::write(&data, &good[..good.len() - 1]).unwrap();
    let (class, message) = refused(&store, to.path(), &saved.key).await;
    assert!(class == ExitClass::Corrupt && message.contains("the object was cut"), "{message}");
    fs::remove_file(&data).unwrap();
    assert_eq!(refused(&store, to.path(), &saved.key).await.0, ExitClass::NotFound);
    fs::write(&data, &good).unwrap();
    let (class, _) = refused(&store, to.path(), "shop/orders/1a2b3c4d/20200101T000000Z-byhand-00000000").await;
    assert_eq!(class, ExitClass::NotFound);
    assert_eq!(files(to.path()), [] as [&str; 0]);
    fs::rename(from.path().join(&saved.key), from.path().join("elsewhere")).unwrap();
    let (class, message) = refused(&store, to.path(), "elsewhere").await;
    assert!(class == ExitClass::Corrupt && message.contains("did not write this manifest"), "{message}");
    fs::rename(from.path().join("elsewhere"), from.path().join(&saved.key)).unwrap();

    // Each read back is altered differently: the error does not blame the store.
    let proxy = Mischief::Spoil.before(&s3.address).await;
    let spoiled = s3.through(proxy.url());
    let copies = copy::run(request(store.clone(), spoiled, Some(&saved.key))).await.unwrap();
    let error = copies.failed.unwrap();
    assert!(error.class() == ExitClass::Transient && error.message().contains("two readings"), "{error}");
    assert_eq!(s3.files(), [] as [&str; 0]);

    let done = copied(request(store, s3.flags(), Some(&saved.key))).await;
    assert_eq!(done[0].ended, Ended::Copied);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_is_left_as_it_is() {
    let etcd = Etcd::start().await;
    etcd.fill(5, 1000).await;
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = file_store(from.path());
    let saved = saved(&etcd, store.clone(), false).await;
    let here = from.path().join(&saved.key);
    let there = to.path().join(&saved.key);
    let good = fs::read(here.join("snapshot.db.zst")).unwrap();
    let manifest = fs::read(here.join("manifest.json")).unwrap();

    // Another manifest; the same manifest without its data; with other data.
    fs::create_dir_all(&there).unwrap();
    fs::write(there.join("manifest.json"), [&manifest[..], b"\n"].concat()).unwrap();
    fs::write(there.join("snapshot.db.zst"), &good).unwrap();
    let (class, message) = refused(&store, to.path(), &saved.key).await;
    assert!(class == ExitClass::Refused && message.contains("another manifest"), "{message}");
    fs::write(there.join("manifest.json"), &manifest).unwrap();
    fs::remove_file(there.join("snapshot.db.zst")).unwrap();
    let (class, message) = refused(&store, to.path(), &saved.key).await;
    assert!(class == ExitClass::Refused && message.contains("without its data"), "{message}");
    fs::write(there.join("snapshot.db.zst"), b"short").unwrap();
    let (class, message) = refused(&store, to.path(), &saved.key).await;
    assert!(class == ExitClass::Refused && message.contains("data of 5 bytes"), "{message}");

    // A copy that died before its manifest: published only if it is what it has to be.
    fs::remove_file(there.join("manifest.json")).unwrap();
    let mut flipped = good.clone();
    flipped[3] ^= 1;
    fs::write(there.join("snapshot.db.zst"), &flipped).unwrap();
    let (class, message) = refused(&store, to.path(), &saved.key).await;
    assert!(class == ExitClass::Corrupt && message.contains("returns"), "{message}");
    fs::write(there.join("snapshot.db.zst"), &good).unwrap();
    let done = copied(request(store.clone(), file_store(to.path()), Some(&saved.key))).await;
    assert_eq!(done[0].ended, Ended::Copied);
    assert_eq!(fs::read(there.join("manifest.json")).unwrap(), manifest);
}

/// Copies of one snapshot share their keys: a copy disturbs no other copy, and removes nothing that a manifest names.
#[tokio::test(flavor = "multi_thread")]
async fn two_copies_of_one_snapshot_do_no_harm_to_each_other() {
    let etcd = Etcd::start().await;
    etcd.fill(5, 1000).await;
    let (from, s3, mount) = (tempfile::tempdir().unwrap(), S3::start().await, tempfile::tempdir().unwrap());
    let saved = saved(&etcd, file_store(from.path()), false).await;
    let here = from.path().join(&saved.key);
    let [good, manifest] =
        ["snapshot.db.zst", "manifest.json"].map(|name| Bytes::from(fs::read(here.join(name)).unwrap()));
    let folder = Folder::parse("key", &saved.key).unwrap();
    for flags in [s3.flags(), file_store(mount.path())] {
        let store = Store::open(&flags).unwrap();
        let all = || if flags.url.starts_with("s3:") { s3.files() } else { files(mount.path()) };
        let ask = || request(file_store(from.path()), flags.clone(), Some(&saved.key));
        let begin = async |until: Timestamp| begun(&store, &folder, good.clone(), until).await;
        let another = async |what: &str| {
            let before = all();
            let error = copy::run(ask()).await.unwrap().failed.expect(what);
            assert_eq!(error.class(), ExitClass::Transient, "{what}: {error}");
            assert!(error.message().contains("another run began this snapshot and may write until"), "{what}: {error}");
            assert_eq!(all(), before, "{what}");
        };

        let soon = Timestamp::now() + SignedDuration::from_mins(1);
        let mut first = begin(soon).await;
        another("while the first one uploads").await;
        first.complete().await.unwrap();
        another("while the first one reads back").await;
        first.abort().await;
        assert_eq!(all(), [] as [&str; 0], "the first one has failed");

        // Another copy published the snapshot meanwhile: the snapshot counts, and stays.
        let mut first = begin(soon).await;
        first.complete().await.unwrap();
        store.put_new(&folder.manifest(), manifest.clone()).await.unwrap();
        first.abort().await;
        assert_eq!(all().len(), 2, "{:?}", all());
        assert_eq!(copied(ask()).await[0].ended, Ended::Already);

        // A dead copy is not waited for.
        let there = if flags.url.starts_with("s3:") { s3.file(&saved.key, "") } else { mount.path().join(&saved.key) };
        let long_ago = Timestamp::now() - SignedDuration::from_hours(1);
        for completes in [false, true] {
            fs::remove_dir_all(&there).unwrap();
            let mut died = begin(long_ago).await;
            if completes {
                died.complete().await.unwrap();
            } else {
                died.flush().await.unwrap();
            }
            assert_eq!(copied(ask()).await[0].ended, Ended::Copied, "{completes}");
            assert_eq!(all().len(), 2, "{completes}: nothing says any more that it was begun: {:?}", all());
        }
    }
}

/// Uploads all of a copy's data, without a manifest, for a run with this deadline.
async fn begun(store: &Store, folder: &Folder, data: Bytes, until: Timestamp) -> Upload {
    let at = until - SignedDuration::from_mins(1);
    let plan = Plan { estimate: data.len() as u64, at, until, read_back: true, patient: false };
    let mut upload = store.begin(&folder.data(Compression::Zstd), plan).await.unwrap();
    upload.write(data).await.unwrap();
    upload
}

/// Whole data under this key, of a copy that died before its manifest and is dead for certain.
async fn die(store: &StoreFlags, key: &str, data: Bytes) {
    let folder = Folder::parse("key", key).unwrap();
    let long_ago = Timestamp::now() - SignedDuration::from_hours(1);
    begun(&Store::open(store).unwrap(), &folder, data, long_ago).await.complete().await.unwrap();
}

/// One run cleans up after a dead copy, and one publishes what that has left: never a manifest without its data.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_copy_goes_on_with_is_not_cleaned_up_under_it() {
    let etcd = Etcd::start().await;
    etcd.fill(5, 1000).await;
    let (from, s3) = (tempfile::tempdir().unwrap(), S3::start().await);
    let saved = saved(&etcd, file_store(from.path()), false).await;
    let key = saved.key.as_str();
    let good = Bytes::from(fs::read(from.path().join(key).join("snapshot.db.zst")).unwrap());
    let ask = |to: StoreFlags| request(file_store(from.path()), to, Some(key));
    let save_to = |store: StoreFlags| save::run(save_request(etcd.flags(), store, Compression::Zstd));
    let whole = || ["snapshot.db.zst", "manifest.json"].iter().all(|name| s3.file(key, name).exists());

    // The cleaning run has found no manifest, and removes the data last.
    die(&s3.flags(), key, good.clone()).await;
    let (go, held) = tokio::sync::watch::channel(false);
    let rule = move |a: &Asked| if a.op == Op::Abort { Fault::When(held.clone()) } else { Fault::Pass };
    let proxy = S3Proxy::before(&s3, rule).await;
    let publishing = async {
        eventually("the look at what is dead", async || (proxy.count(Op::Abort) > 0).then_some(())).await;
        let done = copied(ask(s3.flags())).await;
        go.send(true).unwrap();
        done
    };
    let (cleaned, done) = tokio::join!(save_to(proxy.flags(&s3)), publishing);
    cleaned.unwrap();
    assert_eq!(done[0].ended, Ended::Copied);
    assert!(whole(), "{:?}", s3.files());

    // It starts while the other run reads the data back.
    fs::remove_dir_all(s3.file(key, "")).unwrap();
    die(&s3.flags(), key, good).await;
    let (go, held) = tokio::sync::watch::channel(false);
    let reads = |a: &Asked| a.op == Op::Get && a.uri.contains("snapshot.db");
    let rule = move |a: &Asked| if reads(a) { Fault::When(held.clone()) } else { Fault::Pass };
    let proxy = S3Proxy::before(&s3, rule).await;
    let cleaning = async {
        eventually("a range", async || proxy.asked().iter().any(reads).then_some(())).await;
        save_to(s3.flags()).await.unwrap();
        go.send(true).unwrap();
    };
    let (done, ()) = tokio::join!(copied(ask(proxy.flags(&s3))), cleaning);
    assert_eq!(done[0].ended, Ended::Copied);
    assert!(whole(), "{:?}", s3.files());
    assert!(!s3.files().iter().any(|file| file.contains("/uploads/")), "{:?}", s3.files());
}

/// What a dead copy has left and is not the snapshot stays a dead one's, and goes as such.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_copy_does_not_publish_is_left_to_who_cleans_up() {
    let etcd = Etcd::start().await;
    etcd.fill(5, 1000).await;
    let (from, s3, mount) = (tempfile::tempdir().unwrap(), S3::start().await, tempfile::tempdir().unwrap());
    let saved = saved(&etcd, file_store(from.path()), false).await;
    let mut other = fs::read(from.path().join(&saved.key).join("snapshot.db.zst")).unwrap();
    other[3] ^= 1;
    for (flags, root, data) in [
        (s3.flags(), s3.bucket(), s3.file(&saved.key, "snapshot.db.zst")),
        (file_store(mount.path()), mount.path().to_owned(), mount.path().join(&saved.key).join("snapshot.db.zst")),
    ] {
        die(&flags, &saved.key, Bytes::from(other.clone())).await;
        let content = || -> Vec<_> { files(&root).iter().map(|file| fs::read(root.join(file)).unwrap()).collect() };
        let before = (files(&root), content());
        let copies = copy::run(request(file_store(from.path()), flags.clone(), Some(&saved.key))).await.unwrap();
        assert_eq!(copies.failed.unwrap().class(), ExitClass::Corrupt);
        assert!((files(&root), content()) == before, "{:?}", files(&root));
        save::run(save_request(etcd.flags(), flags, Compression::Zstd)).await.unwrap();
        assert!(!data.exists(), "{:?}", files(&root));
    }
}

/// A run that was killed at its start leaves an empty folder, and so may a person.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_folder_is_in_nobodys_way_and_one_that_is_not_is_named() {
    let etcd = Etcd::start().await;
    etcd.fill(5, 1000).await;
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = file_store(from.path());
    let saved = saved(&etcd, store.clone(), false).await;
    let there = to.path().join(&saved.key);
    fs::create_dir_all(there.join("proofs")).unwrap();
    let (class, message) = refused(&store, to.path(), &saved.key).await;
    let named = message.contains(&format!("the folder {} holds", saved.key)) && message.contains("remove the folder");
    assert!(class == ExitClass::Config && named, "{message}");
    fs::remove_dir(there.join("proofs")).unwrap();
    let done = copied(request(store, file_store(to.path()), Some(&saved.key))).await;
    assert_eq!(done[0].ended, Ended::Copied);
    assert_eq!(files(&there), ["manifest.json", "snapshot.db.zst"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_cluster_is_copied_and_one_broken_snapshot_does_not_keep_the_others() {
    let etcd = Etcd::start().await;
    etcd.fill(5, 1000).await;
    let (from, s3) = (tempfile::tempdir().unwrap(), S3::start().await);
    let store = file_store(from.path());
    let mut keys = vec![];
    for lineage in ["1a2b3c4d-0000", "1a2b3c4d-0000", "99999999-0000"] {
        let mut request = save_request(etcd.flags(), store.clone(), Compression::Zstd);
        request.cluster_uid = Some(lineage.to_owned());
        keys.push(save::run(request).await.unwrap().key);
    }
    fs::create_dir(from.path().join("shop/orders/1a2b3c4d/20200101T000000Z-byhand-00000000")).unwrap();
    let one = CopyRequest { lineage: Some("99999999".to_owned()), ..request(store.clone(), s3.flags(), None) };
    let done = copied(one).await;
    assert_eq!((done.len(), &done[0].key, done[0].ended), (1, &keys[2], Ended::Copied));

    let data = from.path().join(&keys[0]).join("snapshot.db.zst");
    let good = fs::read(&data).unwrap();
    fs::write(&data, vec![7; good.len()]).unwrap();
    let copies = copy::run(request(store.clone(), s3.flags(), None)).await.unwrap();
    assert_eq!(copies.failed.as_ref().unwrap().class(), ExitClass::Corrupt);
    let ended = |copies: &[Copied]| {
        let mut ended: Vec<_> = copies.iter().map(|c| (c.key.clone(), c.ended)).collect();
        ended.sort_by(|a, b| a.0.cmp(&b.0));
        ended.into_iter().map(|(_, ended)| ended).collect::<Vec<_>>()
    };
    let mut expected: Vec<_> = vec![
        ("shop/orders/1a2b3c4d/20200101T000000Z-byhand-00000000".to_owned(), Ended::Incomplete),
        (keys[0].clone(), Ended::Failed),
        (keys[1].clone(), Ended::Copied),
        (keys[2].clone(), Ended::Already),
    ];
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(ended(&copies.copies), expected.iter().map(|(_, ended)| *ended).collect::<Vec<_>>());
    assert!(copies.table().ends_with("1 copied, 1 already there, 1 incomplete, 1 failed\n"), "{}", copies.table());

    fs::write(&data, good).unwrap();
    assert_eq!(copied(request(store.clone(), s3.flags(), None)).await.len(), 4);
    let nothing = CopyRequest { cluster: Some("none".to_owned()), ..request(store, s3.flags(), None) };
    assert_eq!(copy::run(nothing).await.unwrap_err().class(), ExitClass::NotFound);
}
