//! Files of other programs: the output of `etcdctl snapshot save`, and a copy of a member's own file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_contract::{
    Compression, DATA_DIR, Engine, ExitClass, RestoreRequest, SnapshotFlags, StoreFlags, VerifyRequest,
};

use crate::age::{PAIRS, secret};
use crate::graft::ENGINES;
use crate::s3_proxy::{Fault, Op, S3Proxy};
use crate::server::bolt::{self, Bolt, Entry};
use crate::support::{Etcd, NOTE, S3, Small, bin, etcd_of, file_store, files, restore_request, save_request};
use holdfast_contract::error::Error;
use sha2::{Digest as _, Sha256};
use snapshot_agent::verbs::verify::Verified;
use snapshot_agent::verbs::{restore, save, verify};

/// Takes a snapshot with etcdctl.
fn etcdctl(etcd: &Etcd, to: &Path) {
    let mut command = Command::new(bin("etcdctl"));
    command.arg("--endpoints").arg(&etcd.url).args(["snapshot", "save"]).arg(to);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn restored(store: StoreFlags, key: &str, change: impl FnOnce(&mut RestoreRequest)) -> Result<Rebuilt, Error> {
    ended(store, key, change, &[]).await
}

/// Restores; a failure leaves these files.
async fn ended(
    store: StoreFlags,
    key: &str,
    change: impl FnOnce(&mut RestoreRequest),
    leaves: &[&str],
) -> Result<Rebuilt, Error> {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let mut request = restore_request(store, key, &volume);
    change(&mut request);
    let initial = request.initial_cluster.clone();
    let ended = restore::run(request).await;
    if let Err(error) = &ended {
        assert_eq!(files(&volume), leaves, "{error}");
    }
    let report = ended?;
    let (member, peer) = initial.split_once('=').unwrap();
    let etcd = Etcd::on(folder, &volume.join(DATA_DIR), member, peer, &["--initial-cluster-state=existing"]).await;
    Ok(Rebuilt { etcd, sha256: report.sha256, revision: report.revision })
}

struct Rebuilt {
    etcd: Etcd,
    sha256: String,
    revision: Option<i64>,
}

#[tokio::test(flavor = "multi_thread")]
async fn what_etcdctl_saved_is_restored_by_its_name() {
    let etcd = Etcd::start().await;
    etcd.fill(50, 4000).await;
    let s3 = S3::start().await;
    let bucket = s3.bucket().join("pre/fix");
    fs::create_dir_all(bucket.join("old")).unwrap();
    etcdctl(&etcd, &bucket.join("old/monday.db"));
    fs::copy(bucket.join("old/monday.db"), bucket.join("top.db")).unwrap();
    for (store, key) in [(s3.flags(), "old/monday.db"), (s3.flags(), "top.db"), (file_store(&bucket), "old/monday.db")]
    {
        let rebuilt = restored(store, key, |_| ()).await.unwrap();
        assert_eq!(rebuilt.etcd.content().await, etcd.content().await, "{key}");
        assert_eq!((rebuilt.sha256.len(), rebuilt.revision), (64, Some(51)), "{key}");
        let expected = rebuilt.sha256;
        restored(file_store(&bucket), "top.db", |r| r.expect_sha256 = Some(expected)).await.unwrap();
    }
    let refused = restored(file_store(&bucket), "none.db", |_| ()).await.err().unwrap();
    assert_eq!(refused.class(), ExitClass::NotFound);
    let other = |r: &mut RestoreRequest| r.expect_sha256 = Some("00".repeat(32));
    assert_eq!(restored(file_store(&bucket), "top.db", other).await.err().unwrap().class(), ExitClass::Corrupt);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_broken_is_refused_and_what_has_no_hash_needs_a_word() {
    let etcd = Etcd::start().await;
    etcd.fill(50, 4000).await;
    let mount = tempfile::tempdir().unwrap();
    let path = mount.path().join("x.db");
    etcdctl(&etcd, &path);
    let good = fs::read(&path).unwrap();
    let refused = async |bytes: &[u8], allow: bool| {
        fs::write(&path, bytes).unwrap();
        let error = restored(file_store(mount.path()), "x.db", |r| r.allow_unverified = allow).await;
        let error = error.err().unwrap();
        (error.class(), error.message().to_owned())
    };
    for at in [0, 20, good.len() / 2, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        for allow in [false, true] {
            let (class, message) = refused(&bytes, allow).await;
            assert_eq!(class, ExitClass::Corrupt, "a bit at {at}: {message}");
        }
    }
    // Without its hash it is a copy of a member's file: a restore accepts that only if the request allows it.
    let bare = &good[..good.len() - 32];
    let (class, message) = refused(bare, false).await;
    assert!(class == ExitClass::Config && message.contains("allowUnverified"), "{message}");
    fs::write(&path, bare).unwrap();
    let rebuilt = restored(file_store(mount.path()), "x.db", |r| r.allow_unverified = true).await.unwrap();
    assert_eq!(rebuilt.etcd.content().await, etcd.content().await);
    assert_eq!(rebuilt.sha256, "");
    // A broken file is never accepted.
    for bytes in [&bare[..bare.len() / 2 / 4096 * 4096], &bare[..4096], &[0; 8192], &[]] {
        let (class, message) = refused(bytes, true).await;
        assert_eq!(class, ExitClass::Corrupt, "{} bytes: {message}", bytes.len());
    }
}

/// Encrypts bytes with age for this public key.
fn sealed(recipient: &str, bytes: &[u8]) -> Vec<u8> {
    let mut age = Command::new("age");
    age.args(["-r", recipient]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = age.spawn().unwrap();
    let (mut input, bytes) = (child.stdin.take().unwrap(), bytes.to_vec());
    let writing = std::thread::spawn(move || std::io::Write::write_all(&mut input, &bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, bytes).unwrap();
    gzip.finish().unwrap()
}

/// The manifest holds more facts than the data, but the data alone are better than nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_whose_manifest_is_lost_or_broken_is_restored_as_a_file() {
    let etcd = Etcd::start().await;
    etcd.fill(50, 4000).await;
    let expected = etcd.content().await;
    for (compression, name) in [(Compression::None, "snapshot.db"), (Compression::Zstd, "snapshot.db.zst")] {
        let (s3, mount) = (S3::start().await, tempfile::tempdir().unwrap());
        for store in [s3.flags(), file_store(mount.path())] {
            let saved = save::run(save_request(etcd.flags(), store.clone(), compression)).await.unwrap();
            let folder =
                if store.url.starts_with("s3") { s3.file(&saved.key, "") } else { mount.path().join(&saved.key) };
            let (data, manifest) = (format!("{}/{name}", saved.key), folder.join("manifest.json"));
            // A plain database is what etcdctl writes, with or without a manifest beside it.
            let whole = restored(store.clone(), &data, |_| ()).await;
            if compression == Compression::None {
                assert_eq!(whole.unwrap().etcd.content().await, expected, "{data}");
            } else {
                let error = whole.err().unwrap();
                let says = format!("give the folder that holds manifest.json ({})", saved.key);
                assert!(error.class() == ExitClass::Config && error.message().contains(&says), "{error}");
            }
            fs::write(&manifest, "{").unwrap();
            let broken = restored(store.clone(), &data, |_| ()).await.unwrap_or_else(|error| panic!("{data}: {error}"));
            assert_eq!(broken.etcd.content().await, expected, "{data}");
            fs::remove_file(&manifest).unwrap();
            let lost = restored(store.clone(), &data, |_| ()).await.unwrap_or_else(|error| panic!("{data}: {error}"));
            assert_eq!((lost.etcd.content().await, lost.sha256), (expected.clone(), saved.sha256.clone()), "{data}");
            let manifest = format!("{}/manifest.json", saved.key);
            let error = restored(store.clone(), &manifest, |_| ()).await.err().unwrap();
            assert_eq!(error.class(), ExitClass::Config, "{error}");
            fs::remove_file(folder.join(name)).unwrap();
            let error = restored(store, &data, |_| ()).await.err().unwrap();
            assert_eq!(error.class(), ExitClass::NotFound, "{error}");
        }
    }
}

/// Without a note each start would download and unpack the file again, for the same result.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_out_of_a_packed_file_is_refused_once() {
    let etcd = Etcd::start().await;
    etcd.fill(50, 4000).await;
    let mount = tempfile::tempdir().unwrap();
    let plain = mount.path().join("plain.db");
    etcdctl(&etcd, &plain);
    let bytes = fs::read(&plain).unwrap();
    let tar = [&[b'x'; 257][..], b"ustar\0", &bytes[..]].concat();
    for (content, says) in [(&bytes[..bytes.len() - 32], "no sha256 at its end"), (&tar[..], "(tar -xf FILE)")] {
        for packed in [gzipped(content), zstd::encode_all(content, 1).unwrap()] {
            fs::write(mount.path().join("x"), packed).unwrap();
            let error = ended(file_store(mount.path()), "x", |_| (), &[NOTE]).await.err().unwrap();
            assert!(error.class() == ExitClass::Config && error.message().contains(says), "{error}");
        }
    }
    // No fact is known of a file that was not unpacked: the right key may be in the Secret a moment later.
    fs::write(mount.path().join("x"), sealed(PAIRS[0].0, &bytes)).unwrap();
    let wrong = secret(&[1]);
    let opened = |r: &mut RestoreRequest| r.age_identity_dirs = vec![wrong.path().to_owned()];
    let error = restored(file_store(mount.path()), "x", opened).await.err().unwrap();
    assert!(error.class() == ExitClass::Config && error.message().contains("none of the identities"), "{error}");
}

/// Bytes that a restore of a database of this size needs.
fn needed(engine: Engine, bytes: u64) -> u64 {
    match engine {
        Engine::Etcdutl => 2 * bytes + (128 << 20),
        Engine::Graft => bytes + (144 << 20),
    }
}

/// Size of a volume with this much room, and some for the file system's own data.
fn room(bytes: u64) -> String {
    format!("{}k", (bytes >> 10) + (6 << 10))
}

/// A packed file of the size of its database: while it is unpacked both are on the volume, and then the database's own room is
/// free again.
#[tokio::test(flavor = "multi_thread")]
async fn a_packed_file_needs_no_more_room_than_a_plain_one() {
    let etcd = Etcd::start().await;
    etcd.fill(20, 1 << 20).await;
    let mount = tempfile::tempdir().unwrap();
    etcdctl(&etcd, &mount.path().join("plain.db"));
    let bytes = fs::read(mount.path().join("plain.db")).unwrap();
    let packed = gzipped(&bytes);
    assert!(packed.len() > 16 << 20, "{}", packed.len());
    fs::write(mount.path().join("x"), packed).unwrap();
    for engine in ENGINES {
        let volume = Small::of(&room(needed(engine, bytes.len() as u64)));
        let request = RestoreRequest { engine, ..restore_request(file_store(mount.path()), "x", volume.path()) };
        let report = restore::run(request).await.unwrap_or_else(|error| panic!("{engine:?}: {error}"));
        assert_eq!((report.engine, report.fell_back), (Some(engine), None));
    }
}

/// A few kilobytes may unpack to more than a disk holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_packed_file_fills_no_disk() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    for key in 0..30 {
        client.put(format!("k{key}"), vec![0; 1 << 20], None).await.unwrap();
    }
    let mount = tempfile::tempdir().unwrap();
    let (plain, at) = (mount.path().join("plain.db"), mount.path().join("x"));
    etcdctl(&etcd, &plain);
    let bytes = fs::read(&plain).unwrap();
    let packed = gzipped(&bytes);
    assert!(packed.len() < 2 << 20, "{}", packed.len());
    for engine in ENGINES {
        fs::write(&at, &packed).unwrap();
        // Room for a database of half the size.
        let volume = Small::of(&room(needed(engine, bytes.len() as u64 / 2)));
        let request = RestoreRequest { engine, ..restore_request(file_store(mount.path()), "x", volume.path()) };
        let error = restore::run(request.clone()).await.unwrap_err();
        assert!(error.class() == ExitClass::Full && error.message().contains("unpacks to more than"), "{error}");
        assert!(!error.message().contains("used up"), "there was never room for it: {error}");
        assert_eq!(files(volume.path()), [NOTE], "{error}");
        // The note refuses the next start, which does not read the file again.
        fs::remove_file(&at).unwrap();
        assert_eq!(restore::run(request.clone()).await.unwrap_err(), error);
        fs::write(&at, &packed).unwrap();
        volume.grow(&room(needed(engine, bytes.len() as u64)));
        assert_eq!(restore::run(request).await.unwrap().engine, Some(engine));
    }

    // etcd's quota is a limit too, whatever the volume's size; and bbolt's file may be larger than its used part.
    fs::write(&at, gzipped(&vec![0; 80 << 20])).unwrap();
    let small = |r: &mut RestoreRequest| r.quota_backend_bytes = Some(1 << 20);
    let error = ended(file_store(mount.path()), "x", small, &[NOTE]).await.err().unwrap();
    assert!(error.class() == ExitClass::Config && error.message().contains("etcd's quota is 1048576"), "{error}");

    let scratch = Small::of("16m");
    let snapshot = SnapshotFlags { file: Some(at), ..SnapshotFlags::default() };
    let asked = VerifyRequest { snapshot, scratch: scratch.path().to_owned(), ..VerifyRequest::default() };
    let error = verify::run(asked).await.unwrap_err();
    assert!(error.class() == ExitClass::Full && error.message().contains("unpacks to more than 14 MiB"), "{error}");
    assert_eq!(files(scratch.path()), [] as [&str; 0]);
}

/// Any name and any packing: the first bytes decide.
#[tokio::test(flavor = "multi_thread")]
async fn any_object_is_restored_and_verified_by_its_key() {
    let etcd = Etcd::start().await;
    etcd.fill(50, 4000).await;
    let s3 = S3::start().await;
    let bucket = s3.bucket().join("pre/fix");
    fs::create_dir_all(bucket.join("a b")).unwrap();
    let plain = bucket.join("db.snapshot");
    etcdctl(&etcd, &plain);
    let bytes = fs::read(&plain).unwrap();
    let zstd = zstd::encode_all(&bytes[..], 1).unwrap();
    let (public, _) = PAIRS[0];
    let keys = secret(&[0]);
    let identity = keys.path().join("key-0.txt");
    for (name, content) in [
        ("etcd-snapshot-node1-1700000000", bytes.clone()),
        ("a b/2026-11-21T10:00:00 (etcd).zip", bytes.clone()),
        ("x.db", zstd.clone()),
        ("etcd.db.gz", gzipped(&bytes)),
        ("etcd.age", sealed(public, &zstd)),
    ] {
        fs::write(bucket.join(name), content).unwrap();
    }
    let expected = etcd.content().await;
    for (number, key) in [
        "db.snapshot",
        "etcd-snapshot-node1-1700000000",
        "a b/2026-11-21T10:00:00 (etcd).zip",
        "x.db",
        "etcd.db.gz",
        "etcd.age",
    ]
    .into_iter()
    .enumerate()
    {
        for store in [s3.flags(), file_store(&bucket)] {
            let engine = ENGINES[number % ENGINES.len()];
            let opened = |r: &mut RestoreRequest| {
                r.engine = engine;
                r.age_identity_dirs = vec![keys.path().to_owned()];
            };
            let rebuilt = restored(store.clone(), key, opened).await.unwrap_or_else(|error| panic!("{key}: {error}"));
            assert_eq!(rebuilt.etcd.content().await, expected, "{key}");
            assert_eq!((rebuilt.sha256.len(), rebuilt.revision), (64, Some(51)), "{key}");
            let snapshot = SnapshotFlags {
                store: Some(store),
                key: Some(key.to_owned()),
                identities: vec![identity.clone()],
                ..SnapshotFlags::default()
            };
            let scratch = tempfile::tempdir().unwrap();
            let asked = VerifyRequest {
                snapshot,
                scratch: scratch.path().to_owned(),
                deadline_seconds: 60,
                ..VerifyRequest::default()
            };
            let Verified::File(found) = verify::run(asked).await.unwrap_or_else(|error| panic!("{key}: {error}"))
            else {
                panic!("{key}: it has no manifest")
            };
            assert_eq!((found.sha256, found.revision), (Some(rebuilt.sha256), 51), "{key}");
            assert_eq!(files(scratch.path()), [] as [&str; 0], "{key}");
        }
    }
    let error = restored(s3.flags(), "etcd.age", |_| ()).await.err().unwrap();
    assert!(error.class() == ExitClass::Config && error.message().contains("identitySecretRefs"), "{error}");
    // Cut on its way to the store: two readings are equal.
    fs::write(bucket.join("cut"), &zstd[..zstd.len() / 2]).unwrap();
    let error = restored(s3.flags(), "cut", |_| ()).await.err().unwrap();
    assert!(error.class() == ExitClass::Corrupt && error.message().contains("broken or was cut"), "{error}");
    fs::write(bucket.join("all.db"), [b"PK\x03\x04", &bytes[..]].concat()).unwrap();
    let error = restored(s3.flags(), "all.db", |_| ()).await.err().unwrap();
    assert!(error.class() == ExitClass::Config && error.message().contains("(unzip FILE)"), "{error}");
    for key in ["none", "a b", "a b/none"] {
        for store in [s3.flags(), file_store(&bucket)] {
            let error = restored(store, key, |_| ()).await.err().unwrap();
            assert_eq!(error.class(), ExitClass::NotFound, "{key}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_newer_etcd_is_not_given_to_an_older_one() {
    let etcd = Etcd::of("3.7").await;
    etcd.fill(5, 100).await;
    let mount = tempfile::tempdir().unwrap();
    etcdctl(&etcd, &mount.path().join("x.db"));
    let older = |r: &mut RestoreRequest| r.etcdutl = etcd_of("3.5").with_file_name("etcdutl");
    let error = ended(file_store(mount.path()), "x.db", older, &[NOTE]).await.err().unwrap();
    assert!(error.class() == ExitClass::Config && error.message().contains("storage version 3."), "{error}");
}

/// etcdutl would overflow its numbers without an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_revision_could_not_move_on_is_refused() {
    let mount = tempfile::tempdir().unwrap();
    let written = |revision: i64, compacted: i64| {
        let records: [Entry; 1] = [(bolt::rev(revision, 0, false), bolt::key_value(b"k", b"v"))];
        let rev = bolt::rev(compacted, 0, false);
        let meta = ["finishedCompactRev", "scheduledCompactRev"].map(|name| (name.as_bytes().to_vec(), rev.clone()));
        let mut bolt = Bolt::new(4096);
        let trees = [("key", bolt.tree(&records, |_| ())), ("meta", bolt.tree(&meta, |_| ()))];
        let mut bytes = bolt.finish(&trees, &[]);
        let sha256 = Sha256::digest(&bytes);
        bytes.extend(sha256);
        fs::write(mount.path().join("x.db"), bytes).unwrap();
    };
    for (revision, compacted) in [(5, i64::MAX), (i64::MAX, 5), (i64::MAX - 1_000_000_000, 5)] {
        written(revision, compacted);
        for engine in ENGINES {
            let moved = |r: &mut RestoreRequest| (r.engine, r.revision_bump) = (engine, 1_000_000_000);
            let error = restored(file_store(mount.path()), "x.db", moved).await.err().unwrap();
            assert_eq!(error.class(), ExitClass::Corrupt, "{revision}, {compacted}, {engine:?}: {error}");
            assert!(error.message().contains("--revision-bump"), "{error}");
        }
    }
    written(5, 4);
    let too_far = |r: &mut RestoreRequest| r.revision_bump = 1 << 62;
    let error = ended(file_store(mount.path()), "x.db", too_far, &[NOTE]).await.err().unwrap();
    assert!(error.class() == ExitClass::Config && error.message().contains("revisionBump"), "{error}");
}

/// An etcdutl that prints its version only once this file exists.
fn waiting(folder: &Path, until: &Path) -> PathBuf {
    let (at, real) = (folder.join("etcdutl"), bin("etcdutl"));
    let wait = format!("[ $1 != version ] || until [ -e {} ]; do /bin/sleep 0.1; done", until.display());
    fs::write(&at, format!("#!/bin/sh\n{wait}\nexec {} \"$@\"\n", real.display())).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
    at
}

/// The checks before the first read of data run in parallel; their errors are reported in a fixed order, and no data are requested
/// after an error.
#[tokio::test(flavor = "multi_thread")]
async fn the_etcdutl_the_store_and_the_file_are_looked_at_together() {
    const MARK: &str = "0a1b2c3d-0000-4000-8000-000000000000";
    let etcd = Etcd::start().await;
    etcd.fill(5, 100).await;
    let s3 = S3::start().await;
    let bucket = s3.bucket().join("pre/fix");
    fs::create_dir_all(&bucket).unwrap();
    etcdctl(&etcd, &bucket.join("x.db"));
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    let touched = asked.clone();
    let proxy = S3Proxy::before(&s3, move |request| {
        if request.op == Op::Head && request.uri.contains("x.db") {
            fs::write(&touched, "").unwrap();
        }
        Fault::Pass
    })
    .await;
    let etcdutl = waiting(folder.path(), &asked);
    restored(proxy.flags(&s3), "x.db", |r| r.etcdutl = etcdutl.clone()).await.unwrap();

    let none = folder.path().join("no-etcdutl");
    let wrong = |etcdutl: bool, mark: bool| {
        let none = none.clone();
        move |r: &mut RestoreRequest| {
            if etcdutl {
                r.etcdutl = none;
            }
            r.expect_store_id = mark.then(|| MARK.to_owned());
        }
    };
    let data = |proxy: &S3Proxy| {
        let asked = proxy.asked();
        asked.iter().filter(|asked| asked.op == Op::Get && asked.uri.contains("x.db")).count()
    };
    let read = data(&proxy);
    assert!(read > 0);
    for (etcdutl, mark, key, says) in [
        (true, true, "missing.db", "no-etcdutl"),
        (true, true, "x.db", "no-etcdutl"),
        (true, false, "missing.db", "no-etcdutl"),
        (false, true, "missing.db", MARK),
        (false, true, "x.db", MARK),
        (false, false, "missing.db", "missing.db"),
    ] {
        let error = restored(proxy.flags(&s3), key, wrong(etcdutl, mark)).await.err().unwrap();
        assert!(error.message().contains(says), "{etcdutl}, {mark}, {key}: {error}");
    }
    assert_eq!(data(&proxy), read, "no data was asked for");
}
