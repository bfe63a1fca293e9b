//! A store with credentials that only write and others that read: a probe tries both, and its findings name the credentials.

use std::fs;

use holdfast_contract::ExitClass;

use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::stores::{NEEDED, outcome, probed, probing};
use crate::support::{S3, files};
use serde_json::json;
use snapshot_agent::verbs::probe::{self, Outcome, Trial};
use tempfile::TempDir;

/// Access key of the test server's owner, whose credentials write here.
const WRITERS: &str = "key";
/// Access key of another user, whose credentials read.
const READERS: &str = "reads";

/// Starts a server with both users; returns it with the folder of the second one's credentials.
async fn two_users() -> (S3, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (users, secret) = (folder.path().join("users"), "secret-of-those-who-read");
    let reader = json!({
        "access": READERS, "secret": secret, "role": "admin", "userID": 0, "groupID": 0, "projectID": 0,
    });
    fs::create_dir(&users).unwrap();
    fs::write(users.join("users.json"), json!({ "accessAccounts": { READERS: reader } }).to_string()).unwrap();
    for (name, content) in [("accessKeyID", READERS), ("secretAccessKey", secret)] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    (S3::with(&["--iam-dir".to_owned(), users.display().to_string()]).await, folder)
}

/// Whether a request is signed with this access key.
fn by(asked: &Asked, key: &str) -> bool {
    let signed = asked.headers.get("authorization").and_then(|said| said.to_str().ok());
    signed.is_some_and(|said| said.contains(&format!("Credential={key}/")))
}

fn denied() -> Fault {
    Fault::Answer(403, error("AccessDenied"))
}

/// The writing user may only write, and the reading user may only read.
fn each_its_own(asked: &Asked) -> Fault {
    let reading = matches!(asked.op, Op::Get | Op::Head | Op::List);
    let writing = matches!(asked.op, Op::Create | Op::Part | Op::Complete | Op::Put);
    if reading && by(asked, READERS) || writing && by(asked, WRITERS) { Fault::Pass } else { denied() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_writes_makes_a_usable_store_with_what_reads() {
    let (s3, readers) = two_users().await;
    let proxy = S3Proxy::before(&s3, each_its_own).await;
    let ended = probed(&proxy.flags(&s3), Some(readers.path())).await;
    let table = ended.probed.table();
    assert!(ended.failed.is_none() && ended.probed.usable, "{:?}\n{table}", ended.failed);
    assert!(ended.probed.store_id.is_some(), "who reads finds the mark that the other has made:\n{table}");
    for trial in NEEDED {
        assert_eq!(outcome(&ended, trial), Outcome::Yes, "{trial:?}:\n{table}");
    }
    // The findings equal those of full credentials, except for the removal.
    let whole = probed(&s3.flags(), None).await;
    for found in &ended.probed.findings {
        let wanted = if found.trial == Trial::Delete { Outcome::No } else { outcome(&whole, found.trial) };
        assert_eq!(found.outcome, wanted, "{found:?}");
        assert!(!found.detail.contains("credentials.read"), "{found:?}");
    }
    assert!(table.contains("the objects of each probe stay"), "{table}");
    let left = ended.probed.left_behind.clone().unwrap();
    let folder = left.rsplit('/').next().unwrap();
    assert!(folder.starts_with(".holdfast-probe-") && !folder.contains('*'), "{left}");
    assert!(files(&s3.bucket().join("pre/fix")).iter().any(|file| file.starts_with(folder)), "{left}");
    assert!(!ended.probed.findings.iter().any(|found| found.detail.contains(folder)), "{table}");
    assert!(table.contains(".holdfast-probe-*/"), "{table}");

    // The writing credentials alone do not make the store usable.
    let alone = probed(&proxy.flags(&s3), None).await;
    assert!(!alone.probed.usable, "{}", alone.probed.table());
    assert_eq!(alone.failed.unwrap().class(), ExitClass::Denied);
}

/// Restores depend on reads: without them the store is not usable, whatever the other credentials may do. Each probe reports that
/// in the same words (I17).
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_and_may_not_is_told_by_name() {
    let (s3, readers) = two_users().await;
    let proxy = S3Proxy::before(&s3, |asked| if by(asked, READERS) { denied() } else { Fault::Pass }).await;
    let first = probed(&proxy.flags(&s3), Some(readers.path())).await;
    let failed = first.probed.failed.clone().unwrap();
    assert_eq!((failed.class, first.probed.usable), (ExitClass::Denied, false), "{failed:?}");
    assert!(failed.message.contains("with credentials.read"), "{}", failed.message);
    assert!(failed.message.contains(".holdfast-probe-*/try/manifest.json"), "{}", failed.message);
    assert_eq!(first.probed.left_behind, None, "the other side takes it back");
    let second = probed(&proxy.flags(&s3), Some(readers.path())).await;
    assert_eq!(second.probed.failed, Some(failed));
    assert_eq!(second.probed.findings, first.probed.findings);

    // Unknown credentials, and no credentials.
    fs::write(readers.path().join("secretAccessKey"), "another").unwrap();
    let ended = probed(&s3.flags(), Some(readers.path())).await;
    let failed = ended.failed.unwrap();
    assert_eq!(failed.class(), ExitClass::Denied, "{failed}");
    assert!(failed.message().contains("with credentials.read"), "{failed}");
    fs::remove_file(readers.path().join("secretAccessKey")).unwrap();
    let failed = probe::run(probing(&s3.flags(), Some(readers.path()))).await.unwrap_err();
    assert_eq!(failed.class(), ExitClass::Config, "{failed}");
    for word in ["credentials.read: ", "secretAccessKey"] {
        assert!(failed.message().contains(word), "no {word:?} in {failed}");
    }
    assert_eq!(s3.files(), [] as [&str; 0], "all is taken back, and no store is marked that is of no use");
}
