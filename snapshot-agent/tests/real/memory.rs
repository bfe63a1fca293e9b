//! The memory budget of a save, measured in a process of its own with the allocator that ships.

use std::fs;

use crate::support::{S3, child, child_input, noise, save_request};
use bytes::Bytes;
use futures::stream;
use sha2::{Digest, Sha256};
use snapshot_agent::contract::{Compression, EtcdFlags};
use snapshot_agent::save::{self, Member};
use snapshot_agent::source::Candidate;

/// What a save may take with default settings above what the process has at its start, whatever the database's size:
/// with the 16 MiB of HTTP/2 windows that this test has not, it makes 96 MiB.
const BUDGET_MIB: u64 = 80;

/// etcd's own message size.
const MESSAGE: usize = 32 << 10;
const MESSAGES: usize = (512 << 20) / MESSAGE;

fn high_water_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn half_a_gibibyte_that_does_not_compress_stays_within_the_budget() {
    let output = child("memory::saves_half_a_gibibyte", "").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    print!("{text}");
}

/// Not a test by itself: the process that is measured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saves_half_a_gibibyte() {
    if child_input().is_none() {
        return;
    }
    let s3 = S3::start().await;
    let page = Bytes::from(noise(1, 2 * MESSAGE));
    let mut hash = Sha256::new();
    let messages = (0..=MESSAGES).map(move |i| {
        if i == MESSAGES {
            return Ok(Bytes::copy_from_slice(&hash.finalize_reset()));
        }
        // Another view and a copy of its own for each message, as from the network.
        let message = Bytes::copy_from_slice(&page[i % MESSAGE..i % MESSAGE + MESSAGE]);
        hash.update(&message);
        Ok(message)
    });
    let facts = Candidate {
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
    let encrypted = vec![crate::age::PAIRS[0].0.to_owned()];
    for (compression, age_recipients) in
        [(Compression::Zstd, vec![]), (Compression::None, vec![]), (Compression::None, encrypted)]
    {
        let mut request = save_request(EtcdFlags::default(), s3.flags(), compression);
        request.age_recipients = age_recipients;
        let member = Member { facts: facts.clone(), name: "m".to_owned() };
        let saved =
            save::from_stream(request, member, Ok((String::new(), stream::iter(messages.clone())))).await.unwrap();
        let peak = high_water_mib();
        let rate = 512_000 / saved.millis.max(1);
        println!(
            "{compression:?}, encrypted: {}: {rate} MiB/s, stored {} MiB, VmHWM {before} -> {peak} MiB",
            saved.encrypted,
            saved.stored_bytes >> 20
        );
        assert!(peak - before <= BUDGET_MIB, "{compression:?}: {before} -> {peak} MiB, budget {BUDGET_MIB}");
    }
}
