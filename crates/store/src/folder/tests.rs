//! A folder on this disk: its files after each call, and the files that stay untouched.

use std::fs;
use std::os::unix::fs::symlink;

use holdfast_contract::Compression;

use super::*;
use crate::GRACE_SECONDS;

fn plan() -> Plan {
    let at = "2026-11-21T16:22:33Z".parse().unwrap();
    Plan { estimate: 1, at, until: "2026-11-21T17:22:33Z".parse().unwrap(), read_back: true, patient: false }
}

fn folder(path: &str) -> Folder {
    Folder::parse("key", path).unwrap()
}

#[test]
fn a_missing_folder_is_made_beneath_the_mount_and_nowhere_else() {
    let mount = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), mount.path().join("planted")).unwrap();
    FolderStore::open(mount.path().join("house/attic"), Some(mount.path())).unwrap();
    assert!(mount.path().join("house/attic").is_dir());
    FolderStore::open(mount.path().join("planted"), Some(mount.path())).unwrap_err();
    FolderStore::open(mount.path().join("planted/x"), Some(mount.path())).unwrap_err();
    let error = FolderStore::open(outside.path().to_owned(), Some(mount.path())).unwrap_err();
    assert_eq!(error.class(), ExitClass::Config);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let error = FolderStore::open(mount.path().join("elsewhere"), None).unwrap_err();
    assert_eq!(error.class(), ExitClass::NotFound);
    let path = mount.path().join("elsewhere");
    assert!(error.message().contains(&format!("create it (mkdir -p {})", path.display())), "{error}");
}

#[test]
fn a_volume_that_does_not_answer_is_not_opened_for_ever() {
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let waits = move || held.recv().map_err(io::Error::other);
    let error = promptly("opening the folder /x", Duration::from_secs(1), waits).unwrap_err();
    assert_eq!(error.class(), ExitClass::Transient);
    assert!(error.message().contains("/x: the volume has not answered for 1 s"), "{error}");
    drop(let_go);
    assert_eq!(promptly("x", ANSWERS_WITHIN, || Ok(7)), Ok(7));
}

#[tokio::test]
async fn an_upload_is_invisible_until_it_is_complete() {
    let mount = tempfile::tempdir().unwrap();
    let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
    let key = folder("ns/c/l/t").data(Compression::None);
    let mut upload = store.begin(&key, plan()).await.unwrap();
    upload.write(Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(store.stat(&key).await.unwrap_err().class(), ExitClass::NotFound);
    let taken = store.begin(&key, plan()).await.unwrap_err();
    assert_eq!(taken.class(), ExitClass::Transient);
    assert!(taken.message().contains("may write until 2026-11-21T"), "{taken}");
    upload.complete().await.unwrap();
    assert_eq!(store.stat(&key).await.unwrap().bytes, 5);
    let pieces: Vec<_> = store.read(&key, &Progress::silent()).collect().await;
    assert_eq!(pieces, [Ok(Bytes::from_static(b"hello"))]);
    let taken = store.begin(&key, plan()).await.unwrap_err();
    assert_eq!(taken.class(), ExitClass::Transient, "keys are never reused");
    assert!(taken.message().contains("may write until"), "its manifest is missing: {taken}");
    store.put_new(&key.folder().manifest(), Bytes::from_static(b"{}")).await.unwrap();
    let taken = store.begin(&key, plan()).await.unwrap_err();
    assert!(taken.message().contains("the folder already holds a snapshot"), "{taken}");
}

/// Reads without waiting for the disk: fails for bytes that are not in memory (preadv2(2), `RWF_NOWAIT`).
#[tokio::test]
async fn what_is_read_back_comes_from_the_disk() {
    let mount = tempfile::tempdir().unwrap();
    let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
    let key = folder("ns/c/l/t").data(Compression::None);
    let mut upload = store.begin(&key, Plan { read_back: false, ..plan() }).await.unwrap();
    let piece = Bytes::from(vec![7; 1 << 20]);
    upload.write(piece.clone()).await.unwrap();
    upload.complete().await.unwrap();
    let file = fs::File::open(mount.path().join(key.to_string())).unwrap();
    let in_memory = || {
        let mut into = [0; 1];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        rustix::io::preadv2(&file, &mut [std::io::IoSliceMut::new(&mut into)], 1 << 19, flags)
    };
    // A file system in memory (tmpfs) has no disk, and refuses this flag.
    if in_memory() != Err(rustix::io::Errno::OPNOTSUPP) {
        assert_eq!(in_memory(), Ok(1));
        // A page that another process reads at that moment stays (posix_fadvise(2)). A failed read makes the kernel fetch the
        // page, so only the first read after each call counts.
        let mut seen = Ok(1);
        for _ in 0..100 {
            store.forget(&key).await.unwrap();
            seen = in_memory();
            if seen.is_err() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(seen, Err(rustix::io::Errno::AGAIN));
    }
    let pieces: Vec<_> = store.read(&key, &Progress::silent()).map(Result::unwrap).collect().await;
    assert_eq!(pieces.concat(), piece);
}

#[tokio::test]
async fn an_aborted_upload_leaves_nothing() {
    let mount = tempfile::tempdir().unwrap();
    let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
    let mut upload = store.begin(&folder("ns/c/l/t").data(Compression::Zstd), plan()).await.unwrap();
    upload.write(Bytes::from_static(b"hello")).await.unwrap();
    upload.abort().await;
    assert_eq!(fs::read_dir(mount.path().join("ns/c/l")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_small_object_is_written_once() {
    let mount = tempfile::tempdir().unwrap();
    fs::create_dir(mount.path().join("a")).unwrap();
    let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
    let key = folder("a").manifest();
    store.put_new(&key, Bytes::from_static(b"1")).await.unwrap();
    store.put_new(&key, Bytes::from_static(b"1")).await.unwrap();
    assert_eq!(store.put_new(&key, Bytes::from_static(b"2")).await.unwrap_err().class(), ExitClass::Transient);
    assert_eq!(store.get_small(&key, 10).await.unwrap(), "1");
    assert_eq!(store.get_small(&key, 0).await.unwrap_err().class(), ExitClass::Corrupt);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_writers_of_one_manifest_one_wins() {
    let mount = tempfile::tempdir().unwrap();
    let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
    for round in 0..20 {
        let attempt = round.to_string();
        fs::create_dir(mount.path().join(&attempt)).unwrap();
        let key = folder(&attempt).manifest();
        let puts = (0..8).map(|writer| store.put_new(&key, Bytes::from(format!("content {writer}"))));
        let ended = futures::future::join_all(puts).await;
        let won: Vec<_> = (0..8).filter(|writer| ended[*writer].is_ok()).collect();
        assert_eq!(won.len(), 1, "{ended:?}");
        for error in ended.iter().filter_map(|put| put.as_ref().err()) {
            assert_eq!(error.class(), ExitClass::Transient, "{error}");
            assert!(error.message().contains("another attempt has written this object"), "{error}");
        }
        assert_eq!(store.get_small(&key, 100).await.unwrap(), format!("content {}", won[0]));
        let left = fs::read_dir(mount.path().join(&attempt)).unwrap().count();
        assert_eq!(left, 1, "nothing temporary stays");
    }
}

#[tokio::test]
async fn a_planted_link_leads_nowhere() {
    let mount = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("manifest.json"), "secret").unwrap();
    let up = format!("../{}", outside.path().file_name().unwrap().to_str().unwrap());
    symlink(outside.path(), mount.path().join("absolute")).unwrap();
    symlink(up, mount.path().join("relative")).unwrap();
    fs::create_dir(mount.path().join("real")).unwrap();
    symlink(outside.path().join("manifest.json"), mount.path().join("real/manifest.json")).unwrap();
    let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
    for name in ["absolute", "relative", "real"] {
        let error = store.get_small(&folder(name).manifest(), 100).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Denied, "{name}: {error}");
    }
    for name in ["absolute/x", "relative/x"] {
        store.begin(&folder(name).data(Compression::None), plan()).await.unwrap_err();
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// An attempt of another user, or with unexpected files.
#[tokio::test]
async fn what_cannot_be_cleaned_up_keeps_nothing_else() {
    let mount = tempfile::tempdir().unwrap();
    let lineage = mount.path().join("ns/c/l");
    let dead = temporary_name(plan().at.as_second() - GRACE_SECONDS - 1);
    // Enough that in any order some attempts follow one that stays.
    for attempt in 0..40 {
        let attempt = lineage.join(attempt.to_string());
        fs::create_dir_all(&attempt).unwrap();
        fs::write(attempt.join(&dead), "x").unwrap();
    }
    // A folder with a file's name cannot be removed as a file.
    for attempt in ["a", "c"] {
        fs::create_dir_all(lineage.join(attempt).join(&dead)).unwrap();
    }
    let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
    store.begin(&folder("ns/c/l/new").data(Compression::None), plan()).await.unwrap().abort().await;
    let mut left: Vec<_> = fs::read_dir(&lineage).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a", "c"]);
}

#[tokio::test]
async fn only_what_a_dead_attempt_left_is_removed() {
    let mount = tempfile::tempdir().unwrap();
    let lineage = mount.path().join("ns/c/l");
    let now = plan().at.as_second();
    let dead = temporary_name(now - GRACE_SECONDS - 1);
    let alive = temporary_name(now - GRACE_SECONDS + 1);
    let lease = lease_name(now - GRACE_SECONDS - 1);
    for (attempt, name) in [
        ("dead", dead.as_str()),
        ("alive", &alive),
        ("other", ".upload-until-x.tmp"),
        ("kept", &dead),
        ("kept", "manifest.json"),
        ("stored", &lease),
        ("stored", "snapshot.db.zst.age"),
        ("stored", ".small-0a1b2c3d.tmp"),
        ("stored", ".small.tmp"),
        ("published", &lease),
        ("published", "snapshot.db.zst"),
        ("published", "manifest.json"),
        ("published", ".small-0a1b2c3d.tmp"),
        ("foreign", &lease),
        ("foreign", "notes.txt"),
    ] {
        fs::create_dir_all(lineage.join(attempt)).unwrap();
        fs::write(lineage.join(attempt).join(name), "x").unwrap();
    }
    let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
    store.begin(&folder("ns/c/l/new").data(Compression::None), plan()).await.unwrap().abort().await;
    assert!(!lineage.join("dead").exists());
    assert!(lineage.join("alive").join(&alive).exists());
    assert!(lineage.join("other").exists());
    assert!(lineage.join("kept/manifest.json").exists() && !lineage.join("kept").join(&dead).exists());
    assert!(!lineage.join("stored").exists());
    assert_eq!(fs::read_dir(lineage.join("published")).unwrap().count(), 2);
    assert_eq!(fs::read_dir(lineage.join("foreign")).unwrap().count(), 1);
}

#[tokio::test]
async fn data_without_a_mark_is_marked_while_a_copy_is_at_it() {
    let volume = tempfile::tempdir().unwrap();
    let store = FolderStore::open(volume.path().to_owned(), None).unwrap();
    let attempt = folder("a/b/c/20261121T162233Z-1-2");
    let data = attempt.data(holdfast_contract::Compression::Zstd);
    let path = volume.path().join(data.to_string());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "12345").unwrap();
    let (at, until) = (plan().at, plan().until);
    for published in [false, true] {
        let taken = store.take_over(&data, at, until).await.unwrap();
        assert!(store.held(&attempt, at).await.unwrap().is_some());
        store.take_over(&data, at, until).await.expect_err("two at once");
        taken.let_go(published).await;
        assert_eq!(store.held(&attempt, at).await.unwrap(), None);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}

/// Whoever mounts a volume may keep things of his own on it.
#[tokio::test]
async fn an_odd_name_keeps_nobody_from_the_snapshots() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let mount = tempfile::tempdir().unwrap();
    fs::create_dir_all(mount.path().join("shop/orders")).unwrap();
    for odd in [&b"\xff\xfe"[..], b"lost+found", b"a b:c", b".hidden"] {
        fs::create_dir(mount.path().join(OsStr::from_bytes(odd))).unwrap();
        fs::write(mount.path().join("shop").join(OsStr::from_bytes(odd)), "x").unwrap();
    }
    let store = FolderStore::open(mount.path().to_owned(), None).unwrap();
    let found = store.children(&Folder::top(), Most::Seen(10), Folder::is_name).await.unwrap();
    assert_eq!(found.names, ["shop"], "mkfs's own folder is nobody's");
    assert_eq!(store.files(&folder("shop"), 10).await.unwrap().len(), 4, "what nobody knows is seen");
    // A folder is no file, whatever its name is.
    let missing = store.stat(&Key::of_object("shop/orders").unwrap()).await.unwrap_err();
    assert_eq!(missing.class(), ExitClass::NotFound);
}
