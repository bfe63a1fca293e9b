//! Many restores of one snapshot at once, from a store that limits its requests.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::future::join_all;
use holdfast_contract::{Compression, DATA_DIR, Engine, RestoreRequest};
use snapshot_agent::verbs::{restore, save};

use crate::dump::dump;
use crate::s3_proxy::{Fault, S3Proxy, error};
use crate::support::{Etcd, S3, bin, restore_request, save_request};

/// Number of clusters that are restored at once after a disaster.
const CROWD: usize = 50;

/// An etcdutl that prints its version from a file: fifty real ones at once would answer later than the agent waits.
fn known(folder: &Path) -> PathBuf {
    let (real, wrapper, version) = (bin("etcdutl"), folder.join("etcdutl"), folder.join("version"));
    fs::write(&version, Command::new(&real).arg("version").output().unwrap().stdout).unwrap();
    let (real, version) = (real.display(), version.display());
    let script = format!("#!/bin/sh\ncase $1 in version) exec /bin/cat {version};; *) exec {real} \"$@\";; esac\n");
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    wrapper
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_restores_of_one_snapshot_are_all_the_same() {
    let (etcd, s3) = (Etcd::start().await, S3::start().await);
    etcd.fill(500, 4000).await;
    let saved = save::run(save_request(etcd.flags(), s3.flags(), Compression::Zstd)).await.unwrap();
    // The store refuses every third request with SlowDown.
    let limited = |asked: &crate::s3_proxy::Asked| match asked.before % 3 {
        2 => Fault::Answer(503, error("SlowDown")),
        _ => Fault::Pass,
    };
    let proxy = S3Proxy::before(&s3, limited).await;
    let volumes: Vec<_> = (0..CROWD).map(|_| tempfile::tempdir().unwrap()).collect();
    let tools = tempfile::tempdir().unwrap();
    let like = RestoreRequest {
        etcdutl: known(tools.path()),
        ..restore_request(proxy.flags(&s3), &saved.key, volumes[0].path())
    };
    let restores = volumes.iter().enumerate().map(|(n, volume)| {
        let engine = if n % 2 == 0 { Engine::Graft } else { Engine::Etcdutl };
        restore::run(RestoreRequest { volume: volume.path().to_owned(), engine, ..like.clone() })
    });
    for (n, restored) in join_all(restores).await.into_iter().enumerate() {
        let report = restored.unwrap_or_else(|error| panic!("restore {n}: {error}"));
        assert_eq!((report.sha256, report.fell_back), (saved.sha256.clone(), None), "restore {n}");
    }
    let all = volumes.iter().map(|volume| dump(&volume.path().join(DATA_DIR).join("member/snap/db")));
    assert_eq!(all.collect::<BTreeSet<_>>().len(), 1, "they do not hold the same");
    assert!(proxy.asked().len() > 3 * CROWD, "the store was hardly asked: {}", proxy.asked().len());
}
