//! The possible losses in a power cut, by the order in which saves and restores write, sync and rename: the test judges every
//! moment of a run at once, by the rules of fsync(2) alone, whatever a file system guarantees beyond them. `cuts` tries some
//! moments on a real one.

mod trace;

use std::fs;
use std::path::Path;
use std::process::Command;

use holdfast_contract::{Compression, DATA_DIR, RestoreRequest, Verify};

use crate::graft::ENGINES;
use crate::support::{Etcd, child, file_store, files, finish_child, restore_request, save_request, to_input};
use trace::{CALLS, Trace};

/// Runs a child half of a test, and returns its calls below this folder.
fn traced(root: &Path, test: &str, input: &str) -> Trace {
    let told = tempfile::NamedTempFile::new().unwrap();
    let inner = child(test, input);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-y", "-s", "256", "-e", CALLS, "-o"]).arg(told.path());
    command.arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    finish_child(command);
    Trace::read(root, &fs::read_to_string(told.path()).unwrap())
}

/// I8: whenever etcd could start on the data, a power cut can take no part of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_is_startable_only_when_every_byte_and_name_of_it_is_on_the_disk() {
    let etcd = Etcd::start().await;
    etcd.fill(1000, 60 << 10).await;
    let mount = tempfile::tempdir().unwrap();
    let store = file_store(mount.path());
    let saved =
        snapshot_agent::verbs::save::run(save_request(etcd.flags(), store.clone(), Compression::Zstd)).await.unwrap();
    for engine in ENGINES {
        let volume = tempfile::tempdir().unwrap();
        let request = RestoreRequest { engine, ..restore_request(store.clone(), &saved.key, volume.path()) };
        let trace = traced(volume.path(), "restore::is_killed", &to_input(&request));
        let data = volume.path().join(DATA_DIR);
        let published = trace.rename_to(&data);
        assert_eq!(published.unsafe_in_it(), [] as [&str; 0], "{engine:?}: at the moment from which on etcd can start");
        let held = published.holds();
        for part in ["member/snap/db", "member/wal/0000000000000000-0000000000000000.wal", ".snap", "identity"] {
            assert!(held.iter().any(|name| name.contains(part)), "{engine:?}: nothing was seen of {part}: {held:?}");
        }
        let there = files(&data);
        assert!(!there.is_empty());
        for name in there {
            assert!(held.contains(&name), "{engine:?}: {name} came later, or another way");
            assert_eq!(trace.lost(&data.join(&name)), [] as [&str; 0], "{engine:?}: after it said that it is done");
        }
    }
}

/// I7: the objects that a manifest names are durable from its rename on. And data that it calls read back came from the disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_gets_its_name_only_when_its_data_and_all_their_folders_are_on_the_disk() {
    let etcd = Etcd::start().await;
    // Not compressed, so that the data take more than one step of the disk.
    etcd.fill(700, 60 << 10).await;
    for (verify, compression, data) in
        [(Verify::Stream, Compression::Zstd, "snapshot.db.zst"), (Verify::Stored, Compression::None, "snapshot.db")]
    {
        let mount = tempfile::tempdir().unwrap();
        let mut request = save_request(etcd.flags(), file_store(mount.path()), compression);
        request.verify = verify;
        let trace = traced(mount.path(), "orphans::is_killed_while_saving", &to_input(&request));
        let there = files(mount.path());
        let find = |end: &str| {
            let name = there.iter().find(|name| name.ends_with(end)).unwrap_or_else(|| panic!("no {end} in {there:?}"));
            mount.path().join(name)
        };
        let (data, manifest) = (find(data), find("manifest.json"));
        let published = trace.rename_to(&manifest);
        assert_eq!(published.unsafe_in_it(), [] as [&str; 0], "the manifest itself");
        assert_eq!(published.lost_before(mount.path(), &data), [] as [&str; 0], "when its manifest appeared");
        for path in [&data, &manifest] {
            assert_eq!(trace.lost(path), [] as [&str; 0], "after it said that it is done");
        }
        let read: Vec<_> = trace.read_back().into_iter().map(|(_, bytes)| bytes).collect();
        let stored = fs::metadata(&data).unwrap().len();
        match verify {
            Verify::Stream => assert_eq!(read, [] as [u64; 0]),
            Verify::Stored => assert_eq!((read, stored > 32 << 20), (vec![stored], true), "once, and in several steps"),
        }
    }
}
