//! Keys, passwords and stores that change under a running archiver: no revision is lost, and no other store gets a segment.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::archiver::{Log, assert_same, page, stopping, stored_by_etcd, write};
use super::spooled;
use crate::support::{Etcd, S3, eventually, file_store, free_port};

/// Access key and secret of two users.
const FIRST: [&str; 2] = ["first", "secret-of-the-first"];
const SECOND: [&str; 2] = ["second", "secret-of-the-second"];

/// Mounts a Secret as kubelet does: files are links through `..data` to the folder of one version.
fn mount(secret: &Path, version: &str, [access, key]: [&str; 2]) {
    let folder = secret.join(version);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("accessKeyID"), access).unwrap();
    fs::write(folder.join("secretAccessKey"), key).unwrap();
    symlink(version, secret.join("..next")).unwrap();
    fs::rename(secret.join("..next"), secret.join("..data")).unwrap();
    for name in ["accessKeyID", "secretAccessKey"] {
        if !secret.join(name).is_symlink() {
            symlink(format!("..data/{name}"), secret.join(name)).unwrap();
        }
    }
}

fn ranges(log: &Log) -> Vec<(i64, i64)> {
    log.cover().ranges.iter().map(|range| (range.first, range.last)).collect()
}

/// The store forgets the keys while the archiver runs, and the Secret gets the new ones later.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_loses_nothing() {
    let mut etcd = Etcd::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (users, secret) = (folder.path().join("users"), folder.path().join("secret"));
    fs::create_dir(&users).unwrap();
    let admit = |[access, secret]: [&str; 2]| {
        let user = json!({
            "access": access, "secret": secret, "role": "admin", "userID": 0, "groupID": 0, "projectID": 0,
        });
        let next = folder.path().join("next.json");
        fs::write(&next, json!({ "accessAccounts": { access: user } }).to_string()).unwrap();
        fs::rename(next, users.join("users.json")).unwrap();
    };
    admit(FIRST);
    mount(&secret, "..1", FIRST);
    let iam = ["--iam-dir".to_owned(), users.display().to_string(), "--iam-cache-disable".to_owned()];
    let s3 = S3::with(&iam).await;
    let mut flags = s3.flags();
    flags.credentials_dir = Some(secret.clone());
    let mut log = Log::prepare(etcd.flags(), flags, &s3.bucket().join("pre/fix"));
    let port = free_port();
    log.request.metrics_port = Some(port);
    log.start();
    let (stop, end_writes) = stopping();
    let writer = write(&etcd, stop);
    log.has(20).await;

    admit(SECOND);
    eventually("the refusal", async || page(port, "/log").await.contains("\"Denied\"").then_some(())).await;
    eventually("waiting segments", async || (spooled(log.spool.path()).len() > 2).then_some(())).await;
    let stored = log.last();
    mount(&secret, "..2", SECOND);
    eventually("the first segment by the new key", async || (log.last() > stored).then_some(())).await;
    end_writes();
    let last = writer.await.unwrap();
    log.has(last).await;
    let shown = page(port, "/log").await;
    assert!(!shown.contains("problem"), "{shown}");
    let ended = log.end();
    println!("stored {stored} by the first key, {last} by the second; {ended}");
    assert_eq!((ranges(&log), &ended["gaps"]), (vec![(2, last)], &Value::from(0)));
    assert!(spooled(log.spool.path()).is_empty());
    assert_same(&log.read().records, &stored_by_etcd(&mut etcd, 1));
}

/// The name of the store leads to another store, which has another store ID (I25).
#[tokio::test(flavor = "multi_thread")]
async fn an_exchanged_store_gets_no_segment() {
    const ID: &str = "0a1b2c3d-0000-4000-8000-000000000000";
    const OTHER: &str = "ffffffff-0000-4000-8000-000000000000";
    let (etcd, s3) = (Etcd::start().await, S3::start().await);
    let mut client = etcd.client().await;
    let store = s3.bucket().join("pre/fix");
    fs::create_dir_all(&store).unwrap();
    let exchange = |id: &str, key: &str| {
        fs::write(store.join("holdfast-store.json"), json!({ "formatVersion": 1, "id": id }).to_string()).unwrap();
        fs::write(s3.folder.path().join("credentials/accessKeyID"), key).unwrap();
    };
    exchange(ID, "key");
    let mut log = Log::prepare(etcd.flags(), s3.flags(), &store);
    let port = free_port();
    log.request.metrics_port = Some(port);
    log.request.expect_store_id = Some(ID.to_owned());
    log.start();
    log.has(client.put("a", "1", None).await.unwrap().header().unwrap().revision()).await;

    // The Secret changes with the store.
    exchange(OTHER, "key\n");
    let revision = client.put("b", "1", None).await.unwrap().header().unwrap().revision();
    eventually("the refusal", async || page(port, "/log").await.contains(OTHER).then_some(())).await;
    eventually("waiting segments", async || (spooled(log.spool.path()).len() > 2).then_some(())).await;
    assert!(log.last() < revision, "the other store has a segment");
    exchange(ID, "key");
    log.has(revision).await;
    assert_eq!((log.end()["gaps"].as_i64(), ranges(&log)), (Some(0), vec![(2, revision)]));
}

/// etcd ends the sessions of a user whose password changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_password_of_etcd_loses_nothing() {
    let etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let password = mount.path().join("password");
    let mut log = Log::prepare(etcd.locked("one", &password).await, file_store(mount.path()), mount.path());
    let port = free_port();
    log.request.metrics_port = Some(port);
    log.start();
    log.is_alive().await;
    let connect = async |password: &str| {
        let options = etcd_client::ConnectOptions::new().with_user("root", password);
        etcd_client::Client::connect([&etcd.url], Some(options)).await.unwrap()
    };
    connect("one").await.user_change_password("root", "two").await.unwrap();
    let revision = connect("two").await.put("a", "1", None).await.unwrap().header().unwrap().revision();
    eventually("the refusal", async || page(port, "/log").await.contains("\"Denied\"").then_some(())).await;
    fs::write(&password, "two").unwrap();
    log.has(revision).await;
    log.is_alive().await;
    assert_eq!((log.end()["gaps"].as_i64(), ranges(&log)), (Some(0), vec![(2, revision)]));
}
