//! SIGTERM in the middle of a save. A process of its own: the signal reaches every save that runs in it.

use std::time::Duration;

use crate::front::Mischief;
use crate::support::{Etcd, S3, child, child_input, eventually, save_request};
use snapshot_agent::contract::{Compression, ExitClass};
use snapshot_agent::save;

#[test]
fn a_save_that_is_told_to_stop_takes_its_upload_back() {
    let output = child("signal::is_told_to_stop", "").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Not a test by itself: the process that gets the signal.
#[tokio::test(flavor = "multi_thread")]
async fn is_told_to_stop() {
    if child_input().is_none() {
        return;
    }
    let etcd = Etcd::start().await;
    etcd.fill(40, 1 << 20).await;
    let s3 = S3::start().await;
    // The stream stands still in its second half, with a part uploaded already.
    let proxy = Mischief::Freeze(30 << 20).before(&etcd.url).await;
    let mut request = save_request(etcd.flags(), s3.flags(), Compression::None);
    request.etcd.endpoints = vec![proxy.url()];
    let saving = tokio::spawn(save::run(request));
    eventually("the first part", async || (!s3.files().is_empty()).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let pid = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let error = saving.await.unwrap().unwrap_err();
    assert_eq!(error.class(), ExitClass::Transient);
    assert!(error.message().contains("SIGTERM"), "{error}");
    assert_eq!(s3.files(), [] as [&str; 0], "no part stays behind");
}
