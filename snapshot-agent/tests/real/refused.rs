//! A restore that was refused for the contents of the snapshot does not download it again until an input changes.

use std::fs;

use holdfast_contract::{Compression, DATA_DIR, Engine, ExitClass, RestoreRequest};

use crate::graft::ENGINES;
use crate::s3_proxy::{Fault, Op, S3Proxy};
use crate::support::{Etcd, NOTE, S3, Small, bin, file_store, files, in_place_of, restore_request, save_request};
use snapshot_agent::verbs::{restore, save};

/// The bytes of a snapshot of an etcd with `values` values of 64 KiB.
async fn snapshot(values: u64) -> Vec<u8> {
    let etcd = Etcd::start().await;
    etcd.fill(values, 64 << 10).await;
    let mount = tempfile::tempdir().unwrap();
    let saved = save::run(save_request(etcd.flags(), file_store(mount.path()), Compression::None)).await.unwrap();
    fs::read(mount.path().join(saved.key).join("snapshot.db")).unwrap()
}

/// The size of a raw file's used part is known only after its download.
#[tokio::test(flavor = "multi_thread")]
async fn for_its_size_and_another_file_or_quota_is_looked_at_at_once() {
    let (large, small) = tokio::join!(snapshot(40), snapshot(2));
    let db_bytes = (large.len() - 32) as u64;
    for engine in ENGINES {
        let s3 = S3::start().await;
        let file = s3.file("", "raw.db");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &large).unwrap();
        let proxy = S3Proxy::before(&s3, |_| Fault::Pass).await;
        let (volume, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let request = RestoreRequest {
            engine,
            quota_backend_bytes: Some(db_bytes),
            ..restore_request(proxy.flags(&s3), "raw.db", volume.path())
        };
        let refused = restore::run(request.clone()).await.unwrap_err();
        assert!(refused.class() == ExitClass::Config && refused.message().contains("quota"), "{engine:?}: {refused}");
        let downloads = proxy.count(Op::Get);
        assert!(downloads > 0, "{engine:?}");
        for _ in 0..3 {
            assert_eq!(restore::run(request.clone()).await, Err(refused.clone()), "{engine:?}");
        }
        assert_eq!(proxy.count(Op::Get), downloads, "{engine:?}: nothing was read again");
        assert_eq!(files(volume.path()), [NOTE], "{engine:?}");

        let mut elsewhere = RestoreRequest { volume: other.path().to_owned(), ..request.clone() };
        assert_eq!(restore::run(elsewhere.clone()).await.unwrap_err().class(), ExitClass::Config);
        elsewhere.quota_backend_bytes = Some(db_bytes + 1);
        assert!(!restore::run(elsewhere).await.unwrap().already, "{engine:?}: another quota");
        fs::write(&file, &small).unwrap();
        assert!(!restore::run(request).await.unwrap().already, "{engine:?}: another file");
        let left: Vec<_> = fs::read_dir(volume.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [DATA_DIR], "{engine:?}: the note has gone");
    }
}

/// A folder has no ETag; a file that replaces another one of the same length still counts as another.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_folder_and_another_file_of_the_same_size_is_looked_at() {
    let mut bytes = snapshot(2).await;
    let (mount, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = mount.path().join("raw.db");
    fs::write(&file, &bytes).unwrap();
    let request = RestoreRequest {
        quota_backend_bytes: Some(4096),
        ..restore_request(file_store(mount.path()), "raw.db", volume.path())
    };
    let refused = restore::run(request.clone()).await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Config, "{refused}");
    assert_eq!(restore::run(request.clone()).await, Err(refused));
    bytes[5000] ^= 1;
    fs::write(&file, &bytes).unwrap();
    assert_eq!(restore::run(request).await.unwrap_err().class(), ExitClass::Corrupt);
}

/// A failed graft falls back to etcdutl, which needs the space twice.
#[tokio::test(flavor = "multi_thread")]
async fn for_want_of_room_after_a_graft_and_more_room_is_used_at_once() {
    let s3 = S3::start().await;
    let etcd = Etcd::start().await;
    etcd.fill(40, 1 << 20).await;
    let saved = save::run(save_request(etcd.flags(), s3.flags(), Compression::Zstd)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let does = "case \"$3\" in */small.db) exit 1;; *) exec $real \"$@\";; esac";
    let etcdutl = in_place_of(&bin("etcdutl"), &folder.path().join("etcdutl"), does);
    let volume = Small::of(&format!("{}m", saved.db_bytes.div_ceil(1 << 20) + 128 + 17));
    let proxy = S3Proxy::before(&s3, |_| Fault::Pass).await;
    let request = RestoreRequest {
        etcdutl,
        engine: Engine::Graft,
        ..restore_request(proxy.flags(&s3), &saved.key, volume.path())
    };
    let refused = restore::run(request.clone()).await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Full, "{refused}");
    for word in ["the graft failed", "the restore with etcdutl failed too", "free space"] {
        assert!(refused.message().contains(word), "no {word:?} in {refused}");
    }
    let asked = proxy.asked().len();
    assert_eq!(restore::run(request.clone()).await, Err(refused));
    assert_eq!((proxy.asked().len(), files(volume.path())), (asked, vec![NOTE.to_owned()]), "the store was not asked");
    volume.grow("400m");
    let report = restore::run(request).await.unwrap();
    assert_eq!((report.engine, report.fell_back.is_some()), (Some(Engine::Etcdutl), true));
}
