//! The volume of a restore: its contents, its missing parts, and bytes that it returns differently.

use std::fs;

use holdfast_contract::{Compression, DATA_DIR, Engine, ExitClass, MAY_START_EMPTY, RestoreRequest};

use crate::graft::ENGINES;
use crate::restore::Stored;
use crate::support::{CLAIM, Etcd, NOTE, bin, files, in_place_of, restore_request, save_request};
use snapshot_agent::verbs::{restore, save};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_the_volume_is_never_touched() {
    let etcd = Etcd::start().await;
    let stored = Stored::of(&etcd, Compression::Zstd).await;
    for foreign in ["default.etcd/member/wal/0.wal", "data/member/snap/db", "file", "data/x", "data"] {
        let volume = tempfile::tempdir().unwrap();
        let path = volume.path().join(foreign);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "precious").unwrap();
        let request = restore_request(stored.flags(), &stored.saved.key, volume.path());
        let error = restore::run(request).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Refused, "{foreign}: {error}");
        assert_eq!(files(volume.path()), [foreign]);
    }
    // Complete, but for another member or from another attempt.
    let volume = tempfile::tempdir().unwrap();
    let request = restore_request(stored.flags(), &stored.saved.key, volume.path());
    restore::run(request.clone()).await.unwrap();
    let before = files(volume.path());
    for change in [
        |r: &mut RestoreRequest| r.restore_uid = "another".to_owned(),
        |r: &mut RestoreRequest| r.identity.claim_uid = "another".to_owned(),
        |r: &mut RestoreRequest| r.identity.member_uid = "another".to_owned(),
        |r: &mut RestoreRequest| r.identity.cluster_token = "another".to_owned(),
    ] {
        let mut request = request.clone();
        change(&mut request);
        let error = restore::run(request).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Refused, "{error}");
        assert_eq!(files(volume.path()), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_volume_is_filled_only_while_that_is_allowed() {
    let etcd = Etcd::start().await;
    let stored = Stored::of(&etcd, Compression::Zstd).await;
    let volume = tempfile::tempdir().unwrap();
    let annotations = stored.mount.path().join("annotations");
    let request = RestoreRequest {
        annotations: Some(annotations.clone()),
        ..restore_request(stored.flags(), &stored.saved.key, volume.path())
    };
    for content in [String::new(), format!("{MAY_START_EMPTY}=\"another\"\n")] {
        fs::write(&annotations, content).unwrap();
        assert_eq!(restore::run(request.clone()).await.unwrap_err().class(), ExitClass::Refused);
        assert_eq!(files(volume.path()), [] as [&str; 0]);
    }
    fs::write(&annotations, format!("{MAY_START_EMPTY}=\"{CLAIM}\"\n")).unwrap();
    assert!(!restore::run(request.clone()).await.unwrap().already);
    // Complete: the restore needs no permission any more.
    fs::write(&annotations, "").unwrap();
    assert!(restore::run(request).await.unwrap().already);
}

/// By hand the same restore UID may be given twice: a complete volume counts only for the snapshot that it holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_complete_volume_is_not_taken_for_another_snapshots() {
    let etcd = Etcd::start().await;
    etcd.fill(1, 10).await;
    let stored = Stored::of(&etcd, Compression::Zstd).await;
    etcd.fill(2, 10).await;
    let second = save::run(save_request(etcd.flags(), stored.flags(), Compression::Zstd)).await.unwrap();
    let volume = tempfile::tempdir().unwrap();
    let first = RestoreRequest {
        expect_sha256: Some(stored.saved.sha256.clone()),
        ..restore_request(stored.flags(), &stored.saved.key, volume.path())
    };
    restore::run(first.clone()).await.unwrap();
    let upper = stored.saved.sha256.to_uppercase();
    assert!(restore::run(RestoreRequest { expect_sha256: Some(upper), ..first.clone() }).await.unwrap().already);
    let before = files(volume.path());
    for (request, why) in [
        (RestoreRequest { key: second.key.clone(), expect_sha256: None, ..first.clone() }, stored.saved.key.as_str()),
        (RestoreRequest { expect_sha256: Some(second.sha256.clone()), ..first.clone() }, "sha256"),
        (RestoreRequest { revision_bump: 7, ..first }, "by 7"),
    ] {
        let error = restore::run(request).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Refused, "{error}");
        assert!(error.message().contains(why), "{error}");
        assert_eq!(files(volume.path()), before);
    }
}

/// Bytes that were proven on their way and come back changed are the disk's fault, and another attempt may succeed.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_gives_other_bytes_back_is_told_and_the_snapshot_is_not_accused() {
    let etcd = Etcd::start().await;
    etcd.fill(3, 10).await;
    let stored = Stored::of(&etcd, Compression::None).await;
    fs::copy(stored.data(), stored.mount.path().join("raw.db")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let does = "/bin/sed -i s/k1/k9/ \"$3\"; exec $real \"$@\"";
    let etcdutl = in_place_of(&bin("etcdutl"), &folder.path().join("etcdutl"), does);
    let copied_by = |r: &mut RestoreRequest, key: &str| {
        (r.key, r.engine, r.etcdutl) = (key.to_owned(), Engine::Etcdutl, etcdutl.clone());
    };
    for key in [stored.saved.key.as_str(), "raw.db"] {
        let (class, message) = stored.refused_leaving(&[NOTE], |r| copied_by(r, key)).await;
        assert_eq!(class, ExitClass::Refused, "{key}: {message}");
        for word in ["the volume", "returns other bytes", "expected sha256"] {
            assert!(message.contains(word), "{key}: no {word:?} in {message}");
        }
    }
}

/// Reported before the data of a Holdfast snapshot are read, and of a raw file once the size of its used part is known.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_etcd_would_take_no_write_into_is_refused() {
    let etcd = Etcd::start().await;
    etcd.fill(20, 1 << 20).await;
    let stored = Stored::of(&etcd, Compression::None).await;
    let used = stored.saved.db_bytes;
    let snapshot = fs::read(stored.data()).unwrap();
    fs::write(stored.mount.path().join("raw.db"), &snapshot).unwrap();
    // A member's own file is larger than its used part.
    let mut file = snapshot[..snapshot.len() - 32].to_vec();
    file.resize(file.len() + (4 << 20), 0);
    fs::write(stored.mount.path().join("member.db"), file).unwrap();
    for engine in ENGINES {
        for key in [stored.saved.key.as_str(), "raw.db", "member.db"] {
            let change = |quota: u64| {
                move |r: &mut RestoreRequest| {
                    (r.key, r.engine, r.allow_unverified) = (key.to_owned(), engine, true);
                    r.quota_backend_bytes = Some(quota);
                }
            };
            let leaves: &[&str] = if key == stored.saved.key { &[] } else { &[NOTE] };
            let (class, message) = stored.refused_leaving(leaves, change(used)).await;
            assert_eq!(class, ExitClass::Config, "{engine:?}, {key}: {message}");
            assert!(message.contains(&format!("has {used} bytes")), "{engine:?}, {key}: {message}");
            let volume = tempfile::tempdir().unwrap();
            let mut request = restore_request(stored.flags(), key, volume.path());
            change(used + 1)(&mut request);
            restore::run(request).await.unwrap();
        }
        // The refusal deletes nothing.
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let request = RestoreRequest { engine, ..restore_request(stored.flags(), &stored.saved.key, &volume) };
        let initial = request.initial_cluster.clone();
        restore::run(request).await.unwrap();
        let (member, peer) = initial.split_once('=').unwrap();
        let quota = format!("--quota-backend-bytes={used}");
        let flags = ["--initial-cluster-state=existing", &quota];
        let etcd = Etcd::on(folder, &volume.join(DATA_DIR), member, peer, &flags).await;
        let error = etcd.client().await.put("key", "value", None).await.unwrap_err();
        assert!(error.to_string().contains("database space exceeded"), "{engine:?}: {error}");
    }
}
