//! Files of somebody else's: what `etcdctl snapshot save` wrote, and a copy of a member's own file.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Etcd, NOTE, S3, bin, etcd_of, file_store, files, restore_request};
use snapshot_agent::contract::{DATA_DIR, ExitClass, RestoreRequest, StoreFlags};
use snapshot_agent::{Error, restore};

/// A snapshot as etcdctl takes it.
fn etcdctl(etcd: &Etcd, to: &Path) {
    let mut command = Command::new(bin("etcdctl"));
    command.arg("--endpoints").arg(&etcd.url).args(["snapshot", "save"]).arg(to);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn restored(store: StoreFlags, key: &str, change: impl FnOnce(&mut RestoreRequest)) -> Result<Rebuilt, Error> {
    ended(store, key, change, &[]).await
}

/// A failure leaves these files.
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
    // Without its hash it is a copy of a member's file: that is taken only by somebody's word.
    let bare = &good[..good.len() - 32];
    let (class, message) = refused(bare, false).await;
    assert!(class == ExitClass::Config && message.contains("allowUnverified"), "{message}");
    fs::write(&path, bare).unwrap();
    let rebuilt = restored(file_store(mount.path()), "x.db", |r| r.allow_unverified = true).await.unwrap();
    assert_eq!(rebuilt.etcd.content().await, etcd.content().await);
    assert_eq!(rebuilt.sha256, "");
    // And never when it does not hold together.
    for bytes in [&bare[..bare.len() / 2 / 4096 * 4096], &bare[..4096], &[0; 8192], &[]] {
        let (class, message) = refused(bytes, true).await;
        assert_eq!(class, ExitClass::Corrupt, "{} bytes: {message}", bytes.len());
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
