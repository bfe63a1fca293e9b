//! The contents of a snapshot are reported without etcd, and agree with etcd's own answers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_contract::{Compression, ContentsRequest, ExitClass, SavedReport, SnapshotFlags, StoreFlags};

use crate::age::{PAIRS, secret};
use crate::support::{Etcd, Small, bin, child, child_input, eventually, file_store, files, save_request, unsealed};
use holdfast_contract::error::Result;
use snapshot_agent::verbs::contents::{Contents, Found};
use snapshot_agent::verbs::{contents, save};

fn request(snapshot: SnapshotFlags, scratch: &Path) -> ContentsRequest {
    ContentsRequest {
        snapshot,
        depth: 1,
        separator: "/".to_owned(),
        top: 20,
        scratch: scratch.to_owned(),
        deadline_seconds: 60,
        ..ContentsRequest::default()
    }
}

fn stored(store: StoreFlags, key: &str) -> SnapshotFlags {
    SnapshotFlags { store: Some(store), key: Some(key.to_owned()), ..SnapshotFlags::default() }
}

async fn look(request: ContentsRequest) -> Result<Contents> {
    match contents::run(request).await? {
        Found::Contents(contents) => Ok(*contents),
        Found::Value(value) => panic!("{value:?}"),
    }
}

/// Starts an etcd with data like Kubernetes', with users, leases and history.
async fn filled() -> Etcd {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    for n in 0..30 {
        client.put(format!("/registry/pods/a/p{n}"), "x".repeat(100), None).await.unwrap();
        client.put(format!("/registry/pods/b/p{n}"), "x".repeat(10), None).await.unwrap();
    }
    for n in 0..5 {
        client.put("/registry/leases/one", format!("{n}"), None).await.unwrap();
    }
    client.delete("/registry/pods/b/p0", None).await.unwrap();
    let lease =
        client.lease_grant(3600, Some(etcd_client::LeaseGrantOptions::new().with_id(0x1234))).await.unwrap().id();
    for key in ["/events/1", "/events/2"] {
        client.put(key, "e", Some(etcd_client::PutOptions::new().with_lease(lease))).await.unwrap();
    }
    client.put(b"flat\xff".to_vec(), b"raw\0value".to_vec(), None).await.unwrap();
    client.put("health", "canary-value", None).await.unwrap();
    client.user_add("alice", "canary-password", None).await.unwrap();
    client.role_add("reader").await.unwrap();
    etcd
}

async fn saved(etcd: &Etcd, mount: &Path, compression: Compression, age: bool) -> SavedReport {
    let mut request = save_request(etcd.flags(), file_store(mount), compression);
    request.age_recipients = if age { vec![PAIRS[0].0.to_owned()] } else { vec![] };
    save::run(request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_leases_users_and_members_are_those_of_the_etcd() {
    let etcd = filled().await;
    let identity = secret(&[0]);
    let scratch = tempfile::tempdir().unwrap();
    let mut seen: Vec<Contents> = vec![];
    for (compression, age) in [(Compression::Zstd, false), (Compression::None, true), (Compression::Gzip, false)] {
        let mount = tempfile::tempdir().unwrap();
        let saved = saved(&etcd, mount.path(), compression, age).await;
        let mut ask = request(stored(file_store(mount.path()), &saved.key), scratch.path());
        ask.snapshot.identities = vec![identity.path().join("key-0.txt")];
        ask.depth = 2;
        let found = look(ask.clone()).await.unwrap();
        assert_eq!(files(scratch.path()), [] as [&str; 0], "the scratch folder is gone");
        assert_eq!((Some(found.revision), Some(found.total.keys)), (saved.revision, saved.keys));
        let counts: Vec<_> = found.prefixes.iter().map(|p| (p.prefix.as_str(), p.keys, p.bytes, p.records)).collect();
        assert_eq!(
            counts,
            [
                ("/registry/pods/", 59, 30 * 100 + 10 * 19 + 20 * 20 + 29 * 10 + 9 * 19 + 20 * 20, 61),
                ("", 2, 5 + 9 + 6 + 12, 2),
                ("/registry/leases/", 1, 20 + 1, 5),
                ("/events/", 2, 2 * (9 + 1), 2),
            ]
        );
        let mut client = etcd.client().await;
        for prefix in &found.prefixes[..1] {
            let count = etcd_client::GetOptions::new().with_prefix().with_count_only();
            let theirs = client.get(prefix.prefix.clone(), Some(count)).await.unwrap().count();
            assert_eq!(u64::try_from(theirs), Ok(prefix.keys), "{}", prefix.prefix);
        }
        assert_eq!(found.leases.len(), 1);
        assert_eq!(
            (found.leases[0].id.as_str(), found.leases[0].ttl, found.leases[0].keys),
            ("0000000000001234", 3600, 2)
        );
        assert_eq!((&found.users[..], &found.roles[..]), (&["alice".to_owned()][..], &["reader".to_owned()][..]));
        assert!(!found.auth_enabled && found.alarms.is_empty());
        assert_eq!((found.members.len(), found.members[0].name.as_str()), (1, "default"));
        let table = found.table();
        assert!(table.contains("/registry/pods/") && table.contains("alice"), "{table}");
        for shown in [table, serde_json::to_string(&found).unwrap()] {
            assert!(!shown.contains("canary"), "a value or a password shows: {shown}");
            assert!(!shown.contains("$2a$"), "a password's hash shows: {shown}");
        }
        seen.push(found);

        ask.value = Some("health".to_owned());
        assert_eq!(contents::run(ask.clone()).await.unwrap(), Found::Value(b"canary-value".to_vec()));
        ask.value = Some("/registry/leases/one".to_owned());
        assert_eq!(contents::run(ask.clone()).await.unwrap(), Found::Value(b"4".to_vec()), "the newest");
        ask.value = Some("/registry/pods/b/p0".to_owned());
        let error = contents::run(ask).await.unwrap_err();
        assert!(error.class() == ExitClass::NotFound && error.message().contains("p0"), "{error}");
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_looked_into_where_it_is() {
    let etcd = filled().await;
    let (mount, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let saved = saved(&etcd, mount.path(), Compression::None, false).await;
    let file = mount.path().join(&saved.key).join("snapshot.db");
    let local = SnapshotFlags { file: Some(file.clone()), ..SnapshotFlags::default() };
    let ask = ContentsRequest {
        prefix: "/registry/".to_owned(),
        top: 1,
        ..request(local.clone(), Path::new("/nonexistent"))
    };
    let found = look(ask).await.unwrap();
    assert_eq!((found.total.keys, found.prefixes.len(), found.more), (60, 1, 1));
    assert_eq!(found.prefixes[0].prefix, "/registry/pods/");
    assert_eq!(found.leases[0].keys, 0, "none of its keys is below the prefix");
    assert!(found.table().contains("1 more prefixes"), "{}", found.table());

    // The file of a restored and started member, which has no trailer and another membership.
    let data = scratch.path().join("data");
    let mut etcdutl = Command::new(bin("etcdutl"));
    let restored = etcdutl.args(["snapshot", "restore"]).arg(&file).arg("--data-dir").arg(&data);
    assert!(restored.output().unwrap().status.success());
    let own = SnapshotFlags { file: Some(data.join("member/snap/db")), ..SnapshotFlags::default() };
    assert_eq!(
        look(request(own, scratch.path())).await.unwrap().total,
        look(request(local, scratch.path())).await.unwrap().total
    );

    let mut bytes = fs::read(&file).unwrap();
    bytes.truncate(bytes.len() / 2);
    let cut = scratch.path().join("cut.db");
    fs::write(&cut, bytes).unwrap();
    let cut = SnapshotFlags { file: Some(cut), ..SnapshotFlags::default() };
    assert_eq!(look(request(cut, scratch.path())).await.unwrap_err().class(), ExitClass::Corrupt);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_or_has_no_room_is_not_shown() {
    let etcd = filled().await;
    let (mount, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let saved = saved(&etcd, mount.path(), Compression::Zstd, true).await;
    let ask = request(stored(file_store(mount.path()), &saved.key), scratch.path());
    let error = look(ask.clone()).await.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("--identity"), "{error}");
    let identity = secret(&[0]);
    let mut ask = ask;
    ask.snapshot.identities = vec![identity.path().join("key-0.txt")];
    let small = Small::of("16k");
    let error = look(ContentsRequest { scratch: small.path().to_owned(), ..ask.clone() }).await.unwrap_err();
    assert!(error.class() == ExitClass::Full && error.message().contains("--scratch"), "{error}");
    let data = mount.path().join(&saved.key).join("snapshot.db.zst.age");
    let mut bytes = fs::read(&data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&data, bytes).unwrap();
    let error = look(ask).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
    assert_eq!(files(scratch.path()), [] as [&str; 0]);
}

/// The child half: the process that gets the signal.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn is_stopped_while_it_unpacks() {
    let input = child_input();
    let (mount, rest) = input.split_once('\n').unwrap();
    let (key, scratch) = rest.split_once('\n').unwrap();
    let error = look(request(stored(file_store(Path::new(mount)), key), Path::new(scratch))).await.unwrap_err();
    assert!(error.message().contains("SIGTERM"), "{error}");
}

/// A verb that gets SIGTERM while it unpacks removes its scratch folder.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_leaves_nothing_unpacked() {
    let etcd = Etcd::start().await;
    etcd.fill(10, 10_000).await;
    let (mount, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let saved = saved(&etcd, mount.path(), Compression::None, false).await;
    // A pipe in place of the data: its length fits, and no byte comes.
    let data = mount.path().join(&saved.key).join("snapshot.db");
    fs::remove_file(&data).unwrap();
    assert!(Command::new("mkfifo").arg(&data).status().unwrap().success());
    let manifest = mount.path().join(&saved.key).join("manifest.json");
    let mut empty = unsealed(&manifest);
    empty["storedBytes"] = 0.into();
    fs::write(&manifest, empty.to_string()).unwrap();
    let writer = fs::OpenOptions::new().read(true).write(true).open(&data).unwrap();
    let input = format!("{}\n{}\n{}", mount.path().display(), saved.key, scratch.path().display());
    let running = child("contents::is_stopped_while_it_unpacks", &input).stdout(Stdio::piped()).spawn().unwrap();
    eventually("the scratch folder", async || {
        (fs::read_dir(scratch.path()).unwrap().count() == 1 && !files(scratch.path()).is_empty()).then_some(())
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap().success());
    let gone = async || (fs::read_dir(scratch.path()).unwrap().count() == 0).then_some(());
    eventually("its scratch folder to go", gone).await;
    // A thread that waits for the file system cannot be stopped, and delays the end of the process.
    drop(writer);
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success() && String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{ended:?}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}
