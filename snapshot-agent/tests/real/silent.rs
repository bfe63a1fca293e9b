//! A volume that does not answer, like a network volume without its server: no error comes either.
//!
//! A pipe behaves like such a file for a reader, until another process opens its other end.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use holdfast_contract::{
    Compression, ExitClass, LatestRequest, ListRequest, RestoreRequest, SnapshotFlags, VerifyRequest,
};

use crate::support::{Etcd, file_store, files, restore_request, save_request};
use holdfast_contract::error::Error;
use snapshot_agent::verbs::{latest, list, restore, save, verify};

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_silent_volume() {
    let etcd = Etcd::start().await;
    let (mount, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = file_store(mount.path());
    let saving = save_request(etcd.flags(), store.clone(), Compression::Zstd);
    let (namespace, cluster) = (saving.namespace.clone(), saving.cluster.clone());
    let saved = save::run(saving).await.unwrap();
    let manifest = mount.path().join(&saved.key).join("manifest.json");
    fs::remove_file(&manifest).unwrap();
    assert!(Command::new("mkfifo").arg(&manifest).status().unwrap().success());
    let _at_the_end = Opened(manifest.clone());

    let restoring =
        RestoreRequest { deadline_seconds: None, ..restore_request(store.clone(), &saved.key, volume.path()) };
    let snapshot =
        SnapshotFlags { store: Some(store.clone()), key: Some(saved.key.clone()), ..SnapshotFlags::default() };
    let verifying = VerifyRequest { snapshot, deadline_seconds: 300, ..VerifyRequest::default() };
    let listing = ListRequest { store: store.clone(), deadline_seconds: 300, ..ListRequest::default() };
    let newest = LatestRequest { store, namespace, cluster, deadline_seconds: 300, ..LatestRequest::default() };
    let asked = async {
        tokio::join!(restore::run(restoring), verify::run(verifying), list::run(listing), latest::run(newest))
    };
    // Each verb ends by itself, long before its deadline.
    let ended = tokio::time::timeout(Duration::from_secs(200), asked).await;
    let (restored, verified, listed, found) = ended.expect("somebody waits");
    let said: [(&str, Error); 4] = [
        ("restore", restored.unwrap_err()),
        ("verify", verified.unwrap_err()),
        ("list", listed.unwrap_err()),
        ("latest", found.unwrap_err()),
    ];
    for (verb, error) in said {
        assert_eq!(error.class(), ExitClass::Transient, "{verb}: {error}");
        for word in ["manifest.json", "has not answered for"] {
            assert!(error.message().contains(word), "{verb}: no {word:?} in {error}");
        }
    }
    assert_eq!(files(volume.path()), [] as [&str; 0], "nothing is on the volume that was to be filled");
}

/// Opens the pipe when dropped: threads that wait for the file system cannot be stopped, and would delay the end of the test.
struct Opened(PathBuf);

impl Drop for Opened {
    fn drop(&mut self) {
        drop(fs::OpenOptions::new().read(true).write(true).open(&self.0));
    }
}
