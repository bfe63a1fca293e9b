//! Volumes without room: the reason is `Full` with the sizes, and earlier files stay.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use holdfast_contract::{Compression, DATA_DIR, Engine, EtcdFlags, ExitClass, RestoreRequest};

use crate::faults::{messages, save_stream, snapshot};
use crate::front::Mischief;
use crate::support::{Etcd, S3, Small, bin, eventually, file_store, files, in_place_of, restore_request, save_request};
use futures::stream;
use snapshot_agent::verbs::{restore, save};

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

/// The data fit, the manifest does not.
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
    let copied_to = |volume: &Path| {
        let request = restore_request(file_store(store.path()), &saved.key, volume);
        RestoreRequest { engine: Engine::Etcdutl, ..request }
    };
    let volume = Small::of("100m");
    fs::create_dir(volume.path().join("lost+found")).unwrap();
    let request = copied_to(volume.path());
    // A verb that reads the data would find them broken.
    let data = store.path().join(&saved.key).join("snapshot.db");
    let good = fs::read(&data).unwrap();
    fs::write(&data, vec![0; good.len()]).unwrap();
    let error = restore::run(request).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{error}");
    let needed = (2 * saved.db_bytes + (128 << 20)).div_ceil(1 << 20);
    assert!(error.message().contains(&format!("needs {needed} MiB")), "{error}");
    assert!(error.message().contains("there are 100 MiB"), "what is free: {error}");
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 1, "only lost+found");

    // There was room at the start, and another writer took it.
    fs::write(&data, good).unwrap();
    let volume = Small::of("300m");
    let fill = "[ -z \"$3\" ] || /bin/dd if=/dev/zero of=\"${3%/*}/x\" bs=1M 2>/dev/null";
    let does = format!("{fill}; exec $real \"$@\"");
    let filling = in_place_of(&bin("etcdutl"), &store.path().join("etcdutl"), &does);
    let request = RestoreRequest { etcdutl: filling, ..copied_to(volume.path()) };
    let error = restore::run(request).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{error}");
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0, "the staging folder is gone");
    // With that room back the snapshot restores.
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
    // Room for one database and for the files that etcd has beside it, not for two databases. These files are two segments of its
    // log: etcd preallocates the next one while it writes the first (etcd: server/storage/wal/file_pipeline.go).
    let volume = Small::of(&format!("{}m", mib + 128 + 17));
    fs::create_dir(volume.path().join("lost+found")).unwrap();
    let error = restore::run(request(&volume, Engine::Etcdutl)).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{error}");
    let needed = (saved.db_bytes + (144 << 20)).div_ceil(1 << 20);
    assert!(error.message().contains(&format!("engine: graft (--engine=graft), which needs {needed} MiB")), "{error}");
    let report = restore::run(request(&volume, Engine::Graft)).await.unwrap();
    assert_eq!((report.engine, report.fell_back), (Some(Engine::Graft), None));
    // Only one segment and some pages stay of the additional room.
    let taken = |file: &String| fs::metadata(volume.path().join(file)).unwrap().blocks() * 512;
    let taken: u64 = files(volume.path()).iter().map(taken).sum();
    assert!(taken <= saved.db_bytes / 20 * 21 + (80 << 20), "{taken} bytes for {}", saved.db_bytes);
    // Less room is reported before anything is read.
    let volume = Small::of("100m");
    let error = restore::run(request(&volume, Engine::Graft)).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{error}");
    assert!(error.message().contains(&format!("needs {needed} MiB")), "{error}");
    assert!(!error.message().contains("engine"), "{error}");
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0, "the staging folder is gone");
}

/// Moment at which another writer takes all the room that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Downloading,
    BeforeEtcdutl,
    /// The pages of a graft have no room from then on.
    AfterEtcdutl,
}

/// A command that fills a file system; its file is in a folder that a restore ignores.
fn filling(volume: &Path) -> String {
    format!("/bin/dd if=/dev/zero of={}/lost+found/x bs=1M 2>/dev/null", volume.display())
}

async fn filled_at(stage: Stage, engine: Engine) {
    let what = format!("{stage:?}, {engine:?}");
    let etcd = Etcd::start().await;
    etcd.fill(20, 1 << 20).await;
    let s3 = S3::start().await;
    let saved = save::run(save_request(etcd.flags(), s3.flags(), Compression::Zstd)).await.unwrap();
    let volume = Small::of("220m");
    fs::create_dir(volume.path().join("lost+found")).unwrap();
    let fill = filling(volume.path());
    let folder = tempfile::tempdir().unwrap();
    let does = match stage {
        Stage::Downloading => "exec $real \"$@\"".to_owned(),
        Stage::BeforeEtcdutl => format!("{fill}; exec $real \"$@\""),
        Stage::AfterEtcdutl => format!("$real \"$@\" && {{ {fill} || true; }}"),
    };
    let wrapper = in_place_of(&bin("etcdutl"), &folder.path().join("etcdutl"), &does);
    // Slow enough to be interrupted in the middle.
    let rate = if stage == Stage::Downloading { 2 << 20 } else { 1 << 30 };
    let proxy = Mischief::Slow(rate, u64::MAX).before(&s3.address).await;
    let store = s3.through(proxy.url());
    let request = RestoreRequest { engine, ..restore_request(store, &saved.key, volume.path()) };
    let wrapped = RestoreRequest { etcdutl: wrapper, ..request.clone() };
    let restoring = tokio::spawn(restore::run(wrapped));
    if stage == Stage::Downloading {
        let downloads = async || {
            let size = |file: &String| fs::metadata(volume.path().join(file)).map_or(0, |file| file.len());
            files(volume.path()).iter().any(|file| size(file) > 1 << 20).then_some(())
        };
        eventually("its first bytes", downloads).await;
        Command::new("sh").args(["-c", &fill]).status().unwrap();
    }
    let error = restoring.await.unwrap().unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{what}: {error}");
    let more = if engine == Engine::Graft { saved.db_bytes + (144 << 20) } else { 2 * saved.db_bytes + (128 << 20) };
    let needed = format!("needs {} MiB", more.div_ceil(1 << 20));
    assert!(error.message().contains(&needed), "{what}: no {needed:?} in {error}");
    assert_eq!(files(volume.path()), ["lost+found/x"], "{what}: the staging folder is gone");

    // The other writer keeps the room: reported before anything is read, until the volume grows.
    Command::new("sh").args(["-c", &fill]).status().unwrap();
    let again = restore::run(request.clone()).await.unwrap_err();
    assert!(again.class() == ExitClass::Full && again.message().contains(&needed), "{what}: {again}");
    volume.grow("500m");
    assert_eq!(restore::run(request.clone()).await.unwrap().engine, Some(engine), "{what}");
    let (member, peer) = request.initial_cluster.split_once('=').unwrap();
    let data = volume.path().join(DATA_DIR);
    let rebuilt = Etcd::on(folder, &data, member, peer, &["--initial-cluster-state=existing"]).await;
    assert_eq!(rebuilt.content().await, etcd.content().await, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn room_that_goes_while_it_downloads_is_told_with_what_is_needed() {
    for engine in [Engine::Etcdutl, Engine::Graft] {
        filled_at(Stage::Downloading, engine).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn room_that_goes_before_etcdutl_writes_is_told_with_what_is_needed() {
    for engine in [Engine::Etcdutl, Engine::Graft] {
        filled_at(Stage::BeforeEtcdutl, engine).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn room_that_goes_in_the_middle_of_a_graft_is_told_with_what_is_needed() {
    filled_at(Stage::AfterEtcdutl, Engine::Graft).await;
}
