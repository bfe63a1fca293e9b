//! No credentials of a store appear in the output of a verb, whatever the store answers, or in a stored object: checked in a
//! process of its own, with its whole log.

use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use holdfast_contract::error::Result;
use holdfast_contract::{
    Compression, ContentsRequest, CopyRequest, DATA_DIR, InspectRequest, LatestRequest, ListRequest, ProbeRequest,
    Report, S3Checksum, S3Sse, SaveRequest, SnapshotFlags, StoreFlags, ToStore, VerifyRequest,
};
use snapshot_agent::catalog::recall;
use snapshot_agent::gate::volume_identity::IDENTITY_FILE;
use snapshot_agent::verbs::save::dry_run;
use snapshot_agent::verbs::{contents, copy, inspect, latest, list, probe, report, restore, save, verify};

use crate::ear::Ear;
use crate::s3_proxy::{Fault, Op, S3Proxy};
use crate::support::{Etcd, S3, file_store, files, restore_request, run_child, save_request};

const ACCESS: &str = "canaryaccesskey00001";
const SECRET: &str = "canary-secret-of-the-store";
const TOKEN: &str = "canary-token-of-the-session";

/// Writes the result of a verb into `told`, in every formatting of the result.
fn tell<T: Debug>(told: &mut String, verb: &str, ended: Result<T>) -> Option<T> {
    match ended {
        Ok(done) => {
            writeln!(told, "{verb} {done:?}").unwrap();
            Some(done)
        }
        Err(error) => {
            writeln!(told, "{verb} {error} {error:?} {}", report::render(&Err(error.clone()))).unwrap();
            None
        }
    }
}

/// Limit between data and the small objects beside it.
const SMALL: u64 = 1 << 20;

/// All stored files below a folder except data, by name.
fn beside_the_data(folder: &Path) -> Vec<(String, String)> {
    let names = files(folder).into_iter().filter(|name| !name.contains("snapshot.db"));
    let small = names.filter(|name| fs::metadata(folder.join(name)).unwrap().len() <= SMALL);
    let read = small.map(|name| {
        let content = fs::read(folder.join(&name)).unwrap();
        (name, String::from_utf8_lossy(&content).into_owned())
    });
    read.collect()
}

/// Runs every verb that uses a store; returns the whole output, and the number of verbs that succeeded.
async fn everything(etcd: &Etcd, store: &StoreFlags, key: &str) -> (String, usize) {
    let (mut told, mut done) = (String::new(), 0);
    let mut count = |ended: bool| done += usize::from(ended);
    let saving = save_request(etcd.flags(), store.clone(), Compression::Zstd);
    let saved = save::run(saving.clone()).await.map(|saved| Report::Saved(Box::new(saved)));
    told.push_str(&report::render(&saved));
    if let Ok(Report::Saved(saved)) = &saved {
        told.push_str(&report::text::of_saved(saved, true));
    }
    count(tell(&mut told, "save", saved).is_some());
    let dry = SaveRequest { dry_run: true, ..saving };
    let rehearsed = tell(&mut told, "dry run", dry_run::run(dry).await);
    if let Some(rehearsed) = &rehearsed {
        told.push_str(&rehearsed.lines());
    }
    count(rehearsed.is_some());

    let (namespace, cluster) = ("shop".to_owned(), "orders".to_owned());
    let finding = InspectRequest {
        store: store.clone(),
        namespace: namespace.clone(),
        cluster: cluster.clone(),
        owner_uid: "99887766-0000".to_owned(),
        deadline_seconds: 60,
        ..InspectRequest::default()
    };
    count(tell(&mut told, "inspect", inspect::run(finding).await).is_some());
    let newest = LatestRequest {
        store: store.clone(),
        namespace: namespace.clone(),
        cluster: cluster.clone(),
        lineage: None,
        deadline_seconds: 60,
        ..LatestRequest::default()
    };
    count(tell(&mut told, "latest", latest::run(newest).await).is_some());
    let listing = ListRequest { store: store.clone(), deadline_seconds: 60, ..ListRequest::default() };
    let listed = tell(&mut told, "list", list::run(listing).await);
    if let Some(entries) = &listed {
        told.push_str(&list::table(entries));
    }
    count(listed.is_some());

    let scratch = tempfile::tempdir().unwrap();
    let snapshot =
        || SnapshotFlags { store: Some(store.clone()), key: Some(key.to_owned()), ..SnapshotFlags::default() };
    let verifying = VerifyRequest { snapshot: snapshot(), deadline_seconds: 60, ..VerifyRequest::default() };
    let verified = tell(&mut told, "verify", verify::run(verifying).await);
    if let Some(found) = &verified {
        told.push_str(&found.lines());
    }
    count(verified.is_some());
    let showing = ContentsRequest {
        snapshot: snapshot(),
        depth: 1,
        separator: "/".to_owned(),
        top: 20,
        scratch: scratch.path().to_owned(),
        deadline_seconds: 60,
        ..ContentsRequest::default()
    };
    count(tell(&mut told, "contents", contents::run(showing).await.map(|_| ())).is_some());
    let volume = tempfile::tempdir().unwrap();
    let restoring = restore_request(store.clone(), key, volume.path());
    let restored = tell(&mut told, "restore", restore::run(restoring.clone()).await);
    if let Some(restored) = &restored {
        told.push_str(&report::text::of_restored(restored, &restoring));
    }
    count(restored.is_some());
    let copying = CopyRequest {
        store: store.clone(),
        to: ToStore(file_store(scratch.path())),
        key: Some(key.to_owned()),
        deadline_seconds: 60,
        ..CopyRequest::default()
    };
    let copied = tell(&mut told, "copy", copy::run(copying).await);
    if let Some(copies) = &copied {
        told.push_str(&copies.table());
    }
    count(copied.is_some_and(|copies| copies.failed.is_none()));
    count(tell(&mut told, "render-restore", recall::manifest(store, key, 60).await).is_some());
    let probing = ProbeRequest { store: store.clone(), deadline_seconds: 120, ..ProbeRequest::default() };
    let probed = tell(&mut told, "probe", probe::run(probing).await);
    if let Some(ended) = &probed {
        told.push_str(&ended.probed.table());
    }
    count(probed.is_some_and(|ended| ended.failed.is_none()));
    // The files beside the copy's data, and the restored volume.
    for (name, content) in beside_the_data(scratch.path()) {
        writeln!(told, "{name} {content}").unwrap();
    }
    let identity = volume.path().join(DATA_DIR).join(IDENTITY_FILE);
    told.push_str(&fs::read_to_string(identity).unwrap_or_default());
    (told, done)
}

const VERBS: usize = 11;

#[test]
fn what_opens_a_store_is_never_told() {
    let output = run_child("canaries::every_verb_is_heard", "");
    let text = String::from_utf8_lossy(&output.stdout);
    for secret in [SECRET, TOKEN, &customer_key()] {
        assert!(!text.contains(secret) && !String::from_utf8_lossy(&output.stderr).contains(secret));
    }
}

fn customer_key() -> String {
    BASE64_STANDARD.encode(*b"canary-of-32-bytes-for-the-store")
}

/// Copies a folder of credentials with one file changed.
fn with(credentials: &Path, name: &str, content: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(credentials).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, folder.path().join(from.file_name().unwrap())).unwrap();
    }
    fs::write(folder.path().join(name), content).unwrap();
    folder
}

/// The child half: the process whose whole log the test checks.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn every_verb_is_heard() {
    let ear = Ear::alone();
    let etcd = Etcd::start().await;
    etcd.fill(20, 1000).await;
    let s3 = S3::keyed([ACCESS, SECRET]).await;
    let credentials = s3.folder.path().join("credentials");
    fs::write(credentials.join("sseCustomerKey"), customer_key()).unwrap();
    let passes = S3Proxy::before(&s3, |_| Fault::Pass).await;
    let (s3_sse, s3_checksum) = (Some(S3Sse::Customer), Some(S3Checksum::WhenRequired));
    let store = StoreFlags { s3_sse, s3_checksum, ..passes.flags(&s3) };
    let saved = save::run(save_request(etcd.flags(), store.clone(), Compression::Zstd)).await.unwrap();
    let (mut told, done) = everything(&etcd, &store, &saved.key).await;
    assert_eq!(done, VERBS, "all of them work: {told}");
    // Without the right to remove, the intent stays that a save writes first and removes at its end.
    let keeps = S3Proxy::before(&s3, |asked| match asked.op {
        Op::Delete => Fault::Answer(403, String::new()),
        _ => Fault::Pass,
    })
    .await;
    let kept = StoreFlags { s3_endpoint: keeps.flags(&s3).s3_endpoint, ..store.clone() };
    save::run(save_request(etcd.flags(), kept, Compression::Zstd)).await.unwrap();
    // This server knows no session tokens.
    fs::write(credentials.join("sessionToken"), TOKEN).unwrap();

    // The store echoes the request.
    for status in [200, 400, 403, 404, 409, 500] {
        let echo = S3Proxy::before(&s3, move |_| Fault::Echo(status)).await;
        let store = StoreFlags { s3_endpoint: echo.flags(&s3).s3_endpoint, ..store.clone() };
        let (more, done) = everything(&etcd, &store, &saved.key).await;
        // An answer of 200 or 404 that the client cannot parse may count as an empty listing.
        assert!(done == 0 || matches!(status, 200 | 404), "{status}: {more}");
        told.push_str(&more);
        for header in ["x-amz-security-token", "x-amz-server-side-encryption-customer-key"] {
            assert!(echo.asked().iter().any(|asked| asked.headers.contains_key(header)), "{header} was never sent");
        }
    }
    // Values that are no header value, no key, or the key of another user.
    for (name, content) in [
        ("sessionToken", format!("{TOKEN}\n{TOKEN}")),
        ("sessionToken", format!("{TOKEN}\u{1}")),
        ("sessionToken", format!("{TOKEN}é")),
        ("secretAccessKey", format!("{SECRET}\n{SECRET}")),
        ("secretAccessKey", format!("not-{SECRET}")),
        ("accessKeyID", format!("{SECRET}\u{1}")),
        ("sseCustomerKey", format!("{SECRET}\u{1}")),
    ] {
        let folder = with(&credentials, name, &content);
        let store = StoreFlags { credentials_dir: Some(folder.path().to_owned()), ..store.clone() };
        let (more, done) = everything(&etcd, &store, &saved.key).await;
        assert_eq!(done, 0, "{name} {content:?}: {more}");
        told.push_str(&more);
    }
    for store in [
        StoreFlags { s3_endpoint: Some(format!("http://{ACCESS}:{SECRET}@{}", s3.address)), ..store.clone() },
        StoreFlags { url: format!("s3://{ACCESS}:{SECRET}@bkt/pre/fix"), ..store.clone() },
    ] {
        let (more, done) = everything(&etcd, &store, &saved.key).await;
        assert_eq!(done, 0, "{more}");
        told.push_str(&more);
    }

    let heard = ear.heard();
    // The log of a retry names the host.
    assert!(heard.contains("host=\"127.0.0.1\" why=\"status 500"), "{heard}");
    assert!(heard.contains("reading from") && told.contains("restore "), "nothing was heard: {heard}\n{told}");
    let secrets = [SECRET, TOKEN, &customer_key(), "canary-of-32-bytes"];
    for secret in secrets {
        let line = told.lines().chain(heard.lines()).find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
    // Manifests are the only source of a rendered restore.
    let stored = beside_the_data(&s3.bucket());
    for kind in ["/manifest.json", "/proofs/", "/uploads/", "holdfast-store.json"] {
        assert!(stored.iter().any(|(name, _)| name.contains(kind)), "there is no {kind}: {:?}", s3.files());
    }
    for (name, content) in &stored {
        for secret in secrets {
            assert!(!content.contains(secret), "{secret} is in {name}: {content}");
        }
    }
}
