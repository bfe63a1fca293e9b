//! Volumes without room: the reason is `Full` with the sizes, and what was there before is there after.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::faults::{messages, save_stream, snapshot};
use crate::support::{Etcd, Small, bin, file_store, files, restore_request, save_request};
use futures::stream;
use snapshot_agent::contract::{Compression, Engine, EtcdFlags, ExitClass, RestoreRequest};
use snapshot_agent::{restore, save};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_volume_gets_no_snapshot_and_keeps_none_of_it() {
    let mount = Small::of("2m");
    fs::write(mount.path().join("other"), "here before").unwrap();
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let request = save_request(EtcdFlags::default(), file_store(mount.path()), compression);
        let error = save_stream(request, stream::iter(messages(&snapshot(1000)))).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Full, "{error}");
        assert!(error.message().contains("file://"), "says where: {error}");
        assert_eq!(files(mount.path()), ["other"]);
    }
}

/// The data fits, its manifest does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_full_at_the_manifest_keeps_nothing_either() {
    let (mut full, mut saved) = (0, 0);
    for kib in [1024, 1028, 1032, 1036, 1040, 1044, 1048, 1052, 1056] {
        let mount = Small::of(&format!("{kib}k"));
        let request = save_request(EtcdFlags::default(), file_store(mount.path()), Compression::None);
        // 255 pages and a trailer: 1020 KiB and a page.
        match save_stream(request, stream::iter(messages(&snapshot(255)))).await {
            Ok(_) => {
                saved += 1;
                assert_eq!(files(mount.path()).len(), 2);
            }
            Err(error) => {
                assert_eq!(error.class(), ExitClass::Full, "{kib}: {error}");
                full += usize::from(error.message().contains("manifest"));
                assert_eq!(files(mount.path()), [] as [&str; 0], "{kib}: {error}");
            }
        }
    }
    assert!(saved > 0 && full > 0, "{saved} {full}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_too_small_for_a_restore_is_said_before_anything_is_read() {
    let etcd = Etcd::start().await;
    etcd.fill(20, 1 << 20).await;
    let store = tempfile::tempdir().unwrap();
    let saved = save::run(save_request(etcd.flags(), file_store(store.path()), Compression::None)).await.unwrap();
    let volume = Small::of("100m");
    fs::create_dir(volume.path().join("lost+found")).unwrap();
    let request = restore_request(file_store(store.path()), &saved.key, volume.path());
    // Whoever read the data would find it broken.
    let data = store.path().join(&saved.key).join("snapshot.db");
    let good = fs::read(&data).unwrap();
    fs::write(&data, vec![0; good.len()]).unwrap();
    let error = restore::run(request).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{error}");
    let needed = (2 * saved.db_bytes + (128 << 20)).div_ceil(1 << 20);
    assert!(error.message().contains(&format!("needs {needed} MiB")), "{error}");
    assert!(error.message().contains("there are 100 MiB"), "what is free: {error}");
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 1, "only lost+found");

    // There was room when it began, and somebody else took it.
    fs::write(&data, good).unwrap();
    let volume = Small::of("300m");
    let filling = store.path().join("etcdutl");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = snapshot ] && /bin/dd if=/dev/zero of={}/.holdfast-staging/x bs=1M 2>/dev/null\nexec {} \"$@\"\n",
        volume.path().display(),
        bin("etcdutl").display()
    );
    fs::write(&filling, script).unwrap();
    fs::set_permissions(&filling, fs::Permissions::from_mode(0o755)).unwrap();
    let request =
        RestoreRequest { etcdutl: filling, ..restore_request(file_store(store.path()), &saved.key, volume.path()) };
    let error = restore::run(request).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{error}");
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0, "the staging folder is gone");
    // With that room back it restores.
    let request = restore_request(file_store(store.path()), &saved.key, volume.path());
    restore::run(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graft_needs_the_space_once() {
    let etcd = Etcd::start().await;
    etcd.fill(60, 1 << 20).await;
    let store = tempfile::tempdir().unwrap();
    let saved = save::run(save_request(etcd.flags(), file_store(store.path()), Compression::Zstd)).await.unwrap();
    let mib = saved.db_bytes.div_ceil(1 << 20);
    let request = |volume: &Small, engine: Engine| RestoreRequest {
        engine,
        ..restore_request(file_store(store.path()), &saved.key, volume.path())
    };
    // Room for one of it and what etcd has beside it, not for two.
    let volume = Small::of(&format!("{}m", mib + 128 + 17));
    fs::create_dir(volume.path().join("lost+found")).unwrap();
    let error = restore::run(request(&volume, Engine::Etcdutl)).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{error}");
    let report = restore::run(request(&volume, Engine::Graft)).await.unwrap();
    assert_eq!((report.engine, report.fell_back), (Some(Engine::Graft), None));
    // Less than that is said before anything is read.
    let volume = Small::of("100m");
    let error = restore::run(request(&volume, Engine::Graft)).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{error}");
    let needed = (saved.db_bytes + (144 << 20)).div_ceil(1 << 20);
    assert!(error.message().contains(&format!("needs {needed} MiB")), "{error}");
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0, "the staging folder is gone");
}
