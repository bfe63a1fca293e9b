//! A source that lives on beside its copy: clients write to it while it is saved and restored, and its members call the copy, which
//! has the name and the address of one of them. The two refuse each other, and neither changes the other's data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etcd_client::{GetOptions, MemberAddOptions};
use holdfast_contract::{Compression, DATA_DIR, Engine, EtcdFlags, RestoreRequest};
use snapshot_agent::verbs::{restore, save};

use crate::graft::ENGINES;
use crate::support::{Etcd, eventually, file_store, restore_request, save_request};

/// etcd's log message about a call from a member of another cluster.
const STRANGER: &str = "request cluster ID mismatch";

/// A client of the source that writes without pause.
struct Writer {
    enough: Arc<AtomicBool>,
    writing: tokio::task::JoinHandle<u64>,
}

impl Writer {
    async fn of(etcd: &Etcd) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let (stop, mut client) = (Arc::clone(&enough), etcd.client().await);
        let writing = tokio::spawn(async move {
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                // A lost leader is replaced within seconds; an unacknowledged key is written again.
                let key = format!("w{written:08}");
                if client.put(key, "by the source", None).await.is_ok() {
                    written += 1;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            written
        });
        Self { enough, writing }
    }

    async fn end(self) -> u64 {
        self.enough.store(true, Ordering::Relaxed);
        self.writing.await.unwrap()
    }
}

async fn count(etcd: &Etcd, prefix: &str) -> i64 {
    let all = Some(GetOptions::new().with_prefix().with_count_only());
    etcd.client().await.get(prefix, all).await.unwrap().count()
}

/// Names of the members, and the cluster's ID.
async fn members(etcd: &Etcd) -> (Vec<String>, u64) {
    let list = etcd.client().await.member_list().await.unwrap();
    let mut names: Vec<_> = list.members().iter().map(|member| member.name().to_owned()).collect();
    names.sort();
    (names, list.header().unwrap().cluster_id())
}

async fn beside_its_source(engine: Engine) {
    let mut source = Etcd::three().await;
    source[1].fill(50, 100).await;
    let list = source[1].client().await.member_list().await.unwrap();
    let peer = |name: &str| list.members().iter().find(|m| m.name() == name).unwrap().peer_urls()[0].clone();
    let (address, neighbour) = (peer("m0"), peer("m1"));
    let endpoints = source.iter().map(|member| member.url.clone()).collect();
    let writer = Writer::of(&source[1]).await;
    let mount = tempfile::tempdir().unwrap();
    let flags = EtcdFlags { endpoints, ..EtcdFlags::default() };
    let saved = save::run(save_request(flags, file_store(mount.path()), Compression::Zstd)).await.unwrap();

    // One member is lost with its data, and the copy starts under its name at its address.
    drop(source.remove(0));
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    let mut request = restore_request(file_store(mount.path()), &saved.key, &volume);
    "m0".clone_into(&mut request.identity.member_name);
    request.initial_cluster = format!("m0={address}");
    restore::run(RestoreRequest { engine, revision_bump: 0, ..request }).await.unwrap();
    let copy = Etcd::on(folder, &volume.join(DATA_DIR), "m0", &address, &["--initial-cluster-state=existing"]).await;
    eventually("that they meet", async || copy.log().contains(STRANGER).then_some(())).await;

    // All keys of the snapshot, and none that the source has written since.
    let mut client = copy.client().await;
    let hash = client.hash_kv(0).await.unwrap();
    assert_eq!((Some(hash.hash()), Some(hash.header().unwrap().revision())), (saved.hash_kv, saved.revision));
    let (names, id) = members(&copy).await;
    assert_eq!(names, ["m0"], "{engine:?}");
    let (names, of_source) = members(&source[0]).await;
    assert_eq!(names, ["m0", "m1", "m2"], "{engine:?}");
    assert_ne!(id, of_source, "another token makes another cluster");

    // The copy accepts writes too, and even adds the source's member as one of its own.
    for n in 0..20 {
        client.put(format!("c{n}"), "by the copy", None).await.unwrap();
    }
    let learner = Some(MemberAddOptions::new().with_is_learner());
    client.member_add([neighbour], learner).await.unwrap();
    eventually("that the neighbour refuses", async || source[0].log().contains(STRANGER).then_some(())).await;
    client.put("c20", "by the copy", None).await.unwrap();

    let written = writer.end().await;
    let at_the_snapshot = count(&copy, "w").await;
    assert!(u64::try_from(at_the_snapshot).unwrap() < written, "the source has gone on: {written}");
    for member in &source {
        let (all, foreign) = (count(member, "w").await, count(member, "c").await);
        // The last write may have been carried out and not acknowledged.
        assert!(u64::try_from(all).unwrap() >= written && foreign == 0, "{engine:?}: {all} of {written}, {foreign}");
        let wanted = all + 50;
        assert_eq!(count(member, "").await, wanted, "{engine:?}: nothing else is there");
    }
    assert_eq!((count(&copy, "c").await, count(&copy, "w").await), (21, at_the_snapshot), "{engine:?}");
    let hashes = source.iter().map(async |member| member.client().await.hash_kv(0).await.unwrap().hash());
    let hashes = futures::future::join_all(hashes).await;
    assert_eq!(hashes[0], hashes[1], "{engine:?}: the source's members agree");
    assert_eq!(members(&source[0]).await, (["m0", "m1", "m2"].map(str::to_owned).to_vec(), of_source), "{engine:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_the_source_and_the_copy_refuse_each_other() {
    for engine in ENGINES {
        beside_its_source(engine).await;
    }
}
