//! The memory budgets of a save and of a restore, each measured in a process of its own with the shipped allocator.

use std::fs;
use std::io::Read;

use holdfast_contract::{Compression, Engine, EtcdFlags, RestoreRequest, Verify};

use crate::faults::snapshot;
use crate::support::{
    Etcd, S3, child_input, child_request, file_store, restore_request, run_child, save_request, to_input,
};
use bytes::Bytes;
use futures::stream;
use snapshot_agent::etcd::member::{Candidate, Member};
use snapshot_agent::verbs::{restore, save};

/// Memory that a save with default settings may use beyond the memory of its process at the start, whatever the database's size:
/// with the 16 MiB of HTTP/2 windows, which this test lacks, it makes 96 MiB. 16 MiB more for each gigabyte.
const BUDGET_MIB: u64 = 80 + 8;

/// Budget of a save that reads back: by then the upload's memory is free, but mostly still held by the allocator. The usual limit
/// of a Job is 256 MiB.
const READ_BACK_MIB: u64 = 128;

/// etcd's own message size.
const MESSAGE: usize = 32 << 10;
const PAGES: usize = (512 << 20) / 4096;

pub(crate) fn high_water_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn half_a_gibibyte_that_does_not_compress_stays_within_the_budget() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), snapshot(PAGES)).unwrap();
    // One process for each, like an agent: memory that one run leaves to the allocator must not serve the next.
    for how in ["zstd", "none", "none+age", "zstd+stored"] {
        let input = format!("{how}:{}", file.path().display());
        let output = run_child("memory::saves_half_a_gibibyte", &input);
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}");
    }
}

/// The child half: the process that is measured.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saves_half_a_gibibyte() {
    let input = child_input();
    let (how, file) = input.split_once(':').unwrap();
    let (compression, more) = how.split_once('+').unwrap_or((how, ""));
    let compression = <Compression as clap::ValueEnum>::from_str(compression, false).unwrap();
    let s3 = S3::start().await;
    // A new buffer for each message, as from the network.
    let messages = || {
        let mut file = fs::File::open(file).unwrap();
        std::iter::from_fn(move || {
            let mut message = Vec::with_capacity(MESSAGE);
            let got = file.by_ref().take(MESSAGE as u64).read_to_end(&mut message).unwrap();
            (got > 0).then(|| Ok(Bytes::from(message)))
        })
    };
    let facts = Candidate {
        used_bytes: 0,
        endpoint: String::new(),
        cluster_id: 1,
        member_id: 2,
        leader: 2,
        applied: 3,
        term: 4,
        learner: false,
        corrupt: false,
        db_bytes: 512 << 20,
        version: "3.6.16".to_owned(),
        storage_version: "3.6.0".to_owned(),
    };
    let before = high_water_mib();
    let mut request = save_request(EtcdFlags::default(), s3.flags(), compression);
    request.age_recipients.extend((more == "age").then(|| crate::age::PAIRS[0].0.to_owned()));
    let budget = if more == "stored" { READ_BACK_MIB } else { BUDGET_MIB };
    request.verify = if more == "stored" { Verify::Stored } else { Verify::Stream };
    let member = Member { facts, name: "m".to_owned(), without_quorum: false };
    let saved = save::from_stream(request, member, Ok((String::new(), stream::iter(messages())))).await.unwrap();
    let peak = high_water_mib();
    let rate = 512_000 / saved.millis.max(1);
    println!("{how}: {rate} MiB/s, stored {} MiB, VmHWM {before} -> {peak} MiB", saved.stored_bytes >> 20);
    assert_eq!(saved.keys, Some(u64::try_from(PAGES - 5 - PAGES / 60).unwrap()));
    assert!(peak - before <= budget, "{how}: {before} -> {peak} MiB, budget {budget}");
}

/// Memory that a graft may use beyond the memory of its process at the start: the ranges of a download, the page scan, the queues.
/// Measured: 92 to 100 MiB from S3, 53 MiB from a folder. A member requests 256 MiB.
const GRAFT_MIB: u64 = 112;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graft_of_300_mebibytes_stays_within_the_budget() {
    let etcd = Etcd::start().await;
    etcd.fill(300, 1 << 20).await;
    let (s3, mount) = (S3::start().await, tempfile::tempdir().unwrap());
    for store in [s3.flags(), file_store(mount.path())] {
        let saved = save::run(save_request(etcd.flags(), store.clone(), Compression::Zstd)).await.unwrap();
        let volume = tempfile::tempdir().unwrap();
        let request = RestoreRequest { engine: Engine::Graft, ..restore_request(store, &saved.key, volume.path()) };
        let output = run_child("memory::restores", &to_input(&request));
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}");
    }
}

/// The child half: the process that is measured.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restores() {
    let request = child_request();
    let before = high_water_mib();
    let report = restore::run(request).await.unwrap();
    let peak = high_water_mib();
    assert_eq!(report.engine, Some(Engine::Graft));
    println!("{}: {} ms, VmHWM {before} -> {peak} MiB", report.uri, report.millis);
    assert!(peak - before <= GRAFT_MIB, "{before} -> {peak} MiB, budget {GRAFT_MIB}");
}
