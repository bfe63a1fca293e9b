//! A log whose old segments and snapshots a rule of the bucket has moved to an archive.

use std::fs;

use holdfast_contract::{Compression, ExitClass, RestoreRequest};
use snapshot_agent::verbs::verify::{self, Verified};
use snapshot_agent::verbs::{restore, save};

use super::archiver::Log;
use super::verify_request;
use crate::archived::Shelved;
use crate::support::{Etcd, S3, restore_request, save_request};

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_segment_and_an_archived_base_are_named() {
    let (etcd, s3) = (Etcd::start().await, S3::start().await);
    let mut client = etcd.client().await;
    client.put("a", "1", None).await.unwrap();
    let saved = save::run(save_request(etcd.flags(), s3.flags(), Compression::Zstd)).await.unwrap();
    let mut log = Log::prepare(etcd.flags(), s3.flags(), &s3.bucket().join("pre/fix"));
    log.request.from_revision = None;
    log.start();
    let mut last = 0;
    for number in 0..3 {
        last = client.put("b", format!("{number}"), None).await.unwrap().header().unwrap().revision();
        log.has(last).await;
    }
    log.end();
    let (mut names, shelved) = (log.segments(), Shelved::before(&s3).await);
    names.sort_by_key(|name| (name.last, name.at));
    log.request.store = shelved.proxy.flags(&s3);
    let path = |name: &holdfast_layout::SegmentName| {
        let lineage = holdfast_layout::Folder::parse("key", "shop/orders/1a2b3c4d").unwrap();
        name.key(&lineage.log()).unwrap().to_string()
    };

    let (oldest, newest) = (path(&names[0]), path(names.last().unwrap()));
    shelved.archive(&[&oldest]);
    let verified = verify::run(verify_request(&log, vec![])).await.unwrap();
    assert!(verified.lines().contains(&oldest), "{}", verified.lines());
    let Verified::Log(found) = verified else { panic!() };
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.archived.len(), found.segments), (1, names.len() - 1));
    assert_eq!(found.ranges, [(saved.revision.unwrap() + 1, last)]);
    // A damaged one beside the archived one.
    let damaged = s3.bucket().join("pre/fix").join(path(&names[1]));
    let whole = fs::read(&damaged).unwrap();
    fs::write(&damaged, "x").unwrap();
    let error = verify::run(verify_request(&log, vec![])).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
    fs::write(&damaged, whole).unwrap();
    shelved.archive(&[&newest]);
    let error = verify::run(verify_request(&log, vec![])).await.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains(&newest), "{error}");

    shelved.archive(&[&format!("{}/", saved.key)]);
    let volume = tempfile::tempdir().unwrap();
    let request = restore_request(log.request.store.clone(), "shop/orders/1a2b3c4d", volume.path());
    let error = restore::run(RestoreRequest { at_revision: Some(last), ..request }).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::NotFound, "{error}");
    assert!(error.message().contains("archived") && error.message().contains(&saved.key), "{error}");
    assert!(!error.message().contains("is later"), "{error}");
}
