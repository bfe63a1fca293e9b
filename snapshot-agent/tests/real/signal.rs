//! SIGTERM in the middle of a save, and at its start. In a process of its own: the signal reaches every save of the process.

use std::time::Duration;

use holdfast_contract::{Compression, EtcdFlags, ExitClass};

use crate::faults::save_stream;
use crate::front::Mischief;
use crate::orphans::uploads_with_parts;
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy};
use crate::support::{Etcd, S3, child_input, eventually, run_child, save_request};
use futures::stream;
use snapshot_agent::verbs::save;

/// Sends SIGTERM to this process.
fn stop() {
    let pid = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
}

#[test]
fn a_save_that_is_told_to_stop_takes_its_upload_back() {
    run_child("signal::is_told_to_stop", "");
}

/// The child half: the process that gets the signal.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn is_told_to_stop() {
    child_input();
    let etcd = Etcd::start().await;
    etcd.fill(40, 1 << 20).await;
    let s3 = S3::start().await;
    // The stream stops in its second half, after a part was uploaded.
    let proxy = Mischief::Freeze(30 << 20).before(&etcd.url).await;
    let mut request = save_request(etcd.flags(), s3.flags(), Compression::None);
    request.etcd.endpoints = vec![proxy.url()];
    let saving = tokio::spawn(save::run(request));
    eventually("the first part", async || (uploads_with_parts(&s3) == 1).then_some(())).await;
    stop();
    let error = saving.await.unwrap().unwrap_err();
    assert_eq!(error.class(), ExitClass::Transient);
    assert!(error.message().contains("SIGTERM"), "{error}");
    assert_eq!(s3.files(), [] as [&str; 0], "no part stays behind");
}

#[test]
fn a_save_that_is_told_to_stop_at_its_beginning_leaves_nothing() {
    run_child("signal::is_told_to_stop_at_its_beginning", "");
}

/// Selects a request.
type Picks = fn(&Asked) -> bool;

/// Requests at the start of a save that the store has not answered when the signal comes.
const HELD: [(&str, Picks); 4] = [
    ("the upload", |a| a.op == Op::Create),
    ("its intent", |a| a.op == Op::Put && a.uri.contains("/uploads/")),
    ("the unfinished data of dead attempts", |a| a.op == Op::List),
    ("whether it may be read", |a| a.op == Op::Get && a.uri.contains("/uploads/")),
];

/// The child half: the process that gets the signal.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn is_told_to_stop_at_its_beginning() {
    child_input();
    let s3 = S3::start().await;
    for (what, held) in HELD {
        let (go, ready) = tokio::sync::watch::channel(false);
        let rule = move |a: &Asked| if held(a) { Fault::When(ready.clone()) } else { Fault::Pass };
        let proxy = S3Proxy::before(&s3, rule).await;
        let request = save_request(EtcdFlags::default(), proxy.flags(&s3), Compression::None);
        let saving = tokio::spawn(save_stream(request, stream::pending()));
        eventually(what, async || proxy.asked().iter().any(held).then_some(())).await;
        stop();
        // The store carries the request out all the same, somewhat later.
        tokio::time::sleep(Duration::from_millis(300)).await;
        go.send(true).unwrap();
        let error = saving.await.unwrap().unwrap_err();
        assert_eq!(error.class(), ExitClass::Transient, "{what}: {error}");
        assert!(error.message().contains("SIGTERM"), "{what}: {error}");
        assert_eq!((proxy.count(Op::Create), proxy.count(Op::Abort)), (1, 1), "{what}: its upload is given up");
        assert_eq!(s3.files(), [] as [&str; 0], "{what}: nothing stays behind");
    }
}

/// Strings name the child halves: a renamed half must not pass as one that ran.
#[test]
#[should_panic(expected = "0 passed")]
fn a_child_half_that_does_not_exist_fails_its_test() {
    run_child("signal::is_no_test", "");
}
