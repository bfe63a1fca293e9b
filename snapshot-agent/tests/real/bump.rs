//! A restored cluster whose revision was raised: no client misses a change without a notice.

use std::time::Duration;

use holdfast_contract::{Compression, DATA_DIR, DEFAULT_REVISION_BUMP, Engine, RestoreRequest};

use crate::server::LINES;
use crate::support::{Etcd, bin, etcd_of, file_store, restore_request, save_request};
use etcd_client::{EventType, GetOptions, KeyValue, WatchOptions};
use snapshot_agent::verbs::{restore, save};

/// Answer of the new cluster to a client that watched the old cluster up to `seen`.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// The watched revisions are compacted as of this revision.
    Compacted(i64),
    /// No event, although a key was written.
    Nothing,
}

async fn told(etcd: &Etcd, seen: i64, patience: Duration) -> Told {
    let options = WatchOptions::new().with_start_revision(seen + 1);
    let mut watch = etcd.client().await.watch("watched", Some(options)).await.unwrap();
    etcd.client().await.put("watched", "after", None).await.unwrap();
    let told = async {
        while let Some(answer) = watch.message().await.unwrap() {
            if answer.canceled() {
                return Told::Compacted(answer.compact_revision());
            }
            let new = answer.events().iter().any(|event| event.event_type() == EventType::Put);
            assert!(!new, "an event after revision {seen} that is none: {answer:?}");
        }
        Told::Nothing
    };
    tokio::time::timeout(patience, told).await.unwrap_or(Told::Nothing)
}

/// All of etcd's metadata of keys.
fn facts(kvs: &[KeyValue]) -> Vec<(Vec<u8>, Vec<u8>, [i64; 4])> {
    let of = |kv: &KeyValue| [kv.create_revision(), kv.mod_revision(), kv.version(), kv.lease()];
    kvs.iter().map(|kv| (kv.key().to_vec(), kv.value().to_vec(), of(kv))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_of_what_was_lost_are_told_so() {
    for line in LINES {
        let etcd = Etcd::of(line).await;
        etcd.fill(30, 100).await;
        let mount = tempfile::tempdir().unwrap();
        let store = file_store(mount.path());
        let saved = save::run(save_request(etcd.flags(), store.clone(), Compression::Zstd)).await.unwrap();
        let revision = saved.revision.unwrap();
        // Written after the snapshot, seen by a client, and lost with the cluster.
        let mut seen = revision;
        for value in 0..5 {
            seen =
                etcd.client().await.put("watched", value.to_string(), None).await.unwrap().header().unwrap().revision();
        }
        let before = etcd.client().await;
        let all = GetOptions::new().with_all_keys().with_revision(revision);
        let before = before.kv_client().get("", Some(all)).await.unwrap();
        for (engine, bump) in
            [(Engine::Etcdutl, 0), (Engine::Etcdutl, DEFAULT_REVISION_BUMP), (Engine::Graft, DEFAULT_REVISION_BUMP)]
        {
            let folder = tempfile::tempdir().unwrap();
            let volume = folder.path().join("volume");
            std::fs::create_dir(&volume).unwrap();
            let etcdutl = etcd_of(line).with_file_name("etcdutl");
            let request = RestoreRequest {
                etcdutl: if etcdutl.exists() { etcdutl } else { bin("etcdutl") },
                revision_bump: bump,
                engine,
                ..restore_request(store.clone(), &saved.key, &volume)
            };
            let (member, peer) = request.initial_cluster.split_once('=').unwrap();
            let (member, peer) = (member.to_owned(), peer.to_owned());
            let restored = restore::run(request).await.unwrap();
            assert_eq!((restored.revision, restored.revision_bump), (Some(revision), bump), "{line}");
            let data = volume.join(DATA_DIR);
            let more = ["--initial-cluster-state=existing"];
            let rebuilt = Etcd::on_line(line, folder, &data, &member, &peer, &more).await;
            let all = GetOptions::new().with_all_keys();
            let after = rebuilt.client().await.get("", Some(all)).await.unwrap();
            assert_eq!(facts(after.kvs()), facts(before.kvs()), "{line}: keys, values, revisions and versions stay");
            let now = after.header().unwrap().revision();
            if bump == 0 {
                assert_eq!(now, revision, "{line}");
                let short = Duration::from_secs(3);
                assert_eq!(told(&rebuilt, seen, short).await, Told::Nothing, "{line}: this is what the bump is for");
            } else {
                assert!(now >= revision + bump.cast_signed(), "{line}: {now}");
                let Told::Compacted(compacted) = told(&rebuilt, seen, Duration::from_mins(1)).await else {
                    panic!("{line}: a watcher of revision {seen} waits for ever");
                };
                assert!(compacted > seen, "{line}: {compacted}");
            }
        }
    }
}
