//! The answer of a running save and a running restore about its progress, over HTTP.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::time::{Duration, Instant};

use holdfast_contract::{Compression, EtcdFlags, ProgressReport, RestoreRequest, SaveRequest};
use snapshot_agent::verbs::{restore, save};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::front::Mischief;
use crate::narrow::{Slow, Way};
use crate::restore::in_s3;
use crate::support::{Etcd, eventually, file_store, free_port, restore_request, save_request};

/// Mebibytes that exceed the buffers between etcd and the agent.
const MIB: u64 = 64;

/// The status and the body of an answer. `None` while no server listens.
async fn ask(port: u16, request: &str) -> Option<(u16, String)> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    connection.write_all(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

async fn progress(port: u16) -> Option<ProgressReport> {
    let (status, body) = ask(port, "GET /progress").await?;
    assert_eq!(status, 200, "{body}");
    Some(serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

/// Waits until the run reports this many bytes of this step.
async fn reported(port: u16, phase: &str, bytes: u64) -> ProgressReport {
    let enough = |report: &ProgressReport| report.phase == phase && report.bytes_done > bytes;
    eventually(phase, async || progress(port).await.filter(enough)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_answers_with_its_bytes_until_its_end() {
    let etcd = Etcd::start().await;
    etcd.fill(MIB, 1 << 20).await;
    let (slow, mount) = (Slow::before(&etcd.url, Way::Down, 64 << 10).await, tempfile::tempdir().unwrap());
    let (port, flags) = (free_port(), EtcdFlags { endpoints: vec![slow.url()], ..EtcdFlags::default() });
    let request = save_request(flags, file_store(mount.path()), Compression::None);
    let saving = tokio::spawn(save::run(SaveRequest { progress_port: Some(port), ..request }));

    let first = reported(port, "saving", 1 << 20).await;
    let total = first.bytes_total.unwrap();
    assert!(total >= MIB << 20 && first.bytes_done < total, "{first:?}");
    assert!(first.rate_per_second > 0 && first.seconds_left().unwrap() > 0, "{first:?}");
    let second = reported(port, "saving", first.bytes_done).await;
    assert_eq!((second.started_at, second.bytes_total), (first.started_at, first.bytes_total));
    for other in ["GET /", "GET /metrics", "POST /progress", "GET /progress/x"] {
        assert_eq!(ask(port, other).await, Some((404, String::new())), "{other}");
    }
    // A client without a word keeps the next one out for two seconds at most.
    let silent = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    let asked = Instant::now();
    progress(port).await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    drop(silent);

    slow.hurry();
    let saved = saving.await.unwrap().unwrap();
    assert!(saved.db_bytes >= second.bytes_done, "{saved:?}");
    eventually("the port is closed", async || ask(port, "GET /progress").await.is_none().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_goes_on_without_a_port_of_its_own() {
    let (etcd, mount) = (Etcd::start().await, tempfile::tempdir().unwrap());
    etcd.fill(1, 1 << 20).await;
    let taken = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let progress_port = Some(taken.local_addr().unwrap().port());
    let request = save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd);
    let saved = save::run(SaveRequest { progress_port, ..request }).await.unwrap();
    assert!(saved.db_bytes >= 1 << 20, "{saved:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_answers_with_the_bytes_of_its_download() {
    let (s3, saved) = in_s3(4).await;
    let proxy = Mischief::Slow(640 << 10, u64::MAX).before(&s3.address).await;
    let (port, volume) = (free_port(), tempfile::tempdir().unwrap());
    let request = restore_request(s3.through(proxy.url()), &saved.key, volume.path());
    let restoring = tokio::spawn(restore::run(RestoreRequest { progress_port: Some(port), ..request }));
    let report = reported(port, "reading the snapshot", 64 << 10).await;
    assert_eq!(report.bytes_total, Some(saved.stored_bytes), "{report:?}");
    assert!(report.bytes_done <= saved.stored_bytes && report.rate_per_second > 0, "{report:?}");
    let restored = restoring.await.unwrap().unwrap();
    assert_eq!(restored.sha256, saved.sha256);
}
