//! Saved snapshots come back: through both kinds of store, with every compression, of each minor, into an etcd that starts.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use holdfast_contract::{Compression, DATA_DIR, SavedReport, StoreFlags};

use crate::support::{Etcd, RESTORE, S3, etcd_of, eventually, file_store, restore_request, save_request};
use serde_json::Value;
use snapshot_agent::gate::volume_identity::Identity;
use snapshot_agent::verbs::{restore, save};

fn etcdutl(line: &str) -> PathBuf {
    etcd_of(line).with_file_name("etcdutl")
}

/// An etcd with data, once it has recorded its storage version, which 3.5 never does.
async fn filled(line: &str) -> Etcd {
    let etcd = Etcd::of(line).await;
    etcd.fill(200, 4000).await;
    eventually("the storage version", async || {
        let status = etcd.client().await.status().await.ok()?;
        (line == "3.5" || status.storage_version().starts_with(line)).then_some(())
    })
    .await;
    etcd
}

async fn round_trip(line: &str, etcd: &Etcd, store: StoreFlags, compression: Compression) -> SavedReport {
    let mut request = save_request(etcd.flags(), store.clone(), compression);
    request.pod_uid = Some(format!("{compression:?}-{}", store.url.len()));
    let saved = save::run(request).await.unwrap();
    assert_eq!(saved.compression, compression);
    let storage_version = saved.storage_version.as_deref();
    assert_eq!(storage_version.is_some_and(|version| version.starts_with(line)), line != "3.5", "{storage_version:?}");
    assert!(saved.etcd_version.starts_with(line), "{}", saved.etcd_version);
    assert!(saved.key.starts_with("shop/orders/1a2b3c4d/2"), "{}", saved.key);
    assert!(!format!("{saved:?}").contains("secret"));

    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::create_dir_all(volume.join("lost+found")).unwrap();
    let mut request = restore_request(store, &saved.key, &volume);
    request.expect_sha256 = Some(saved.sha256.clone());
    request.etcdutl = etcdutl(line);
    let peer = request.initial_cluster.split_once('=').unwrap().1.to_owned();
    let restored = restore::run(request.clone()).await.unwrap();
    assert!(!restored.already);
    assert_eq!((&restored.uri, &restored.sha256, restored.db_bytes), (&saved.uri, &saved.sha256, saved.db_bytes));
    assert_eq!(restored.from_cluster, "shop/orders");
    let identity = Identity::read(&volume.join(DATA_DIR)).unwrap().unwrap();
    assert_eq!(identity.restore_uid(), Some(RESTORE));
    assert_ne!(identity.cluster_id.as_deref(), Some(saved.cluster_id.as_str()), "a new cluster, not the old one");

    // A second run, without store and credentials.
    request.store = StoreFlags {
        url: "s3://gone-bucket".to_owned(),
        credentials_dir: Some("/nonexistent".into()),
        ..StoreFlags::default()
    };
    let again = restore::run(request).await.unwrap();
    assert!(again.already);
    assert_eq!((again.uri, again.taken_at), (restored.uri, restored.taken_at));

    let data = volume.join(DATA_DIR);
    let member = &identity.member_name;
    let rebuilt = Etcd::on_line(line, folder, &data, member, &peer, &["--initial-cluster-state=existing"]).await;
    assert_eq!(rebuilt.content().await, etcd.content().await);
    let members = rebuilt.client().await.member_list().await.unwrap();
    let ids: Vec<_> = members.members().iter().map(|m| format!("{:x}", m.id())).collect();
    assert_eq!(ids, [identity.member_id.unwrap()]);
    saved
}

async fn through_a_folder(line: &str) {
    let etcd = filled(line).await;
    let mount = tempfile::tempdir().unwrap();
    for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
        let saved = round_trip(line, &etcd, file_store(mount.path()), compression).await;
        let folder = mount.path().join(&saved.key);
        let data = format!("snapshot.db{}", compression.suffix());
        assert_eq!(crate::support::files(&folder), ["manifest.json", data.as_str()], "and no temporary file");
        let manifest: Value = serde_json::from_slice(&fs::read(folder.join("manifest.json")).unwrap()).unwrap();
        assert_eq!(manifest["sha256"], saved.sha256.as_str());
        assert_eq!(manifest["origin"]["uid"], "99887766-0000");
        assert_eq!(manifest["storedBytes"], fs::metadata(folder.join(&data)).unwrap().len());
        assert_eq!(manifest["member"], "default");

        // No lock-in: the common tool and etcdutl suffice to read the snapshot.
        let plain = mount.path().join("plain.db");
        let data = folder.join(data);
        let tool = match compression {
            Compression::Zstd => Command::new("zstd").arg("-dcf").arg(&data).output().unwrap().stdout,
            Compression::Gzip => Command::new("gzip").arg("-dcf").arg(&data).output().unwrap().stdout,
            Compression::None => fs::read(&data).unwrap(),
        };
        assert_eq!(tool.len() as u64, saved.db_bytes + 32);
        fs::write(&plain, tool).unwrap();
        let target = mount.path().join("by-hand");
        let status = Command::new(etcdutl(line))
            .args(["snapshot", "restore"])
            .arg(&plain)
            .arg(format!("--data-dir={}", target.display()))
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
        fs::remove_dir_all(target).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_5_through_a_folder() {
    through_a_folder("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_6_through_a_folder() {
    through_a_folder("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_7_through_a_folder() {
    through_a_folder("3.7").await;
}

async fn through_s3(line: &str) {
    let etcd = filled(line).await;
    let s3 = S3::start().await;
    for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
        let saved = round_trip(line, &etcd, s3.flags(), compression).await;
        assert_eq!(saved.uri, format!("s3://bkt/pre/fix/{}/snapshot.db{}", saved.key, compression.suffix()));
    }
    assert_eq!(s3.files().len(), 6, "three snapshots, three manifests, no parts: {:?}", s3.files());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_5_through_s3() {
    through_s3("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_6_through_s3() {
    through_s3("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_7_through_s3() {
    through_s3("3.7").await;
}

/// More than one part and more than one range: 50 MiB that do not compress.
#[tokio::test(flavor = "multi_thread")]
async fn many_parts_and_ranges() {
    let etcd = Etcd::of("3.6").await;
    etcd.fill(50, 1 << 20).await;
    let s3 = S3::start().await;
    let saved = round_trip("3.6", &etcd, s3.flags(), Compression::Zstd).await;
    assert!(saved.stored_bytes > 3 * (16 << 20), "{}", saved.stored_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_does_no_harm_and_another_cluster_is_refused() {
    let etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let mut request = save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd);
    request.etcd.endpoints.push(format!("http://127.0.0.1:{}", crate::support::free_port()));
    request.cluster_uid = None;
    let saved = save::run(request.clone()).await.unwrap();
    assert!(saved.key.contains(&format!("/etcd-{:0>16}/", saved.cluster_id)), "{}", saved.key);
    request.expect_cluster_id = Some(saved.cluster_id.clone());
    save::run(request.clone()).await.unwrap();
    request.expect_cluster_id = Some("1".to_owned());
    let error = save::run(request).await.unwrap_err();
    assert_eq!(error.class(), holdfast_contract::ExitClass::Config, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_members_a_follower_is_read() {
    let members = Etcd::three().await;
    let leader = async || members[0].client().await.status().await.unwrap().leader();
    let mount = tempfile::tempdir().unwrap();
    let mut request = save_request(members[0].flags(), file_store(mount.path()), Compression::Zstd);
    request.etcd.endpoints = members.iter().map(|member| member.url.clone()).collect();
    let (leads, saved) = eventually("a save under one leader", async || {
        let leads = leader().await;
        let saved = save::run(request.clone()).await.unwrap();
        (leader().await == leads).then_some((leads, saved))
    })
    .await;
    assert_ne!(saved.member_id, format!("{leads:x}"));
    assert!(["m0", "m1", "m2"].contains(&saved.member.as_str()));

    // Without a quorum no member can give a current snapshot.
    let mut members = members;
    members.truncate(1);
    request.etcd.endpoints.truncate(1);
    let error = save::run(request).await.unwrap_err();
    assert_eq!(error.class(), holdfast_contract::ExitClass::Transient, "{error}");
}
