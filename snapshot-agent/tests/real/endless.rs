//! Answers without an end: the memory of a verb is bounded, measured in a process of its own that does nothing else.

use futures::future::join_all;
use futures::stream;
use holdfast_contract::error::Error;
use holdfast_contract::{Compression, EtcdFlags, ListRequest, ProbeRequest, SnapshotFlags, StoreFlags, VerifyRequest};
use snapshot_agent::verbs::{list, probe, restore, verify};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::faults::{messages, save_stream, snapshot};
use crate::front::Front;
use crate::memory::high_water_mib;
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy};
use crate::support::{S3, child_input, restore_request, run_child, save_request, to_input};

/// Memory that a verb may use beyond the memory of its process at the start; the usual limit of a Job is 256 MiB. The answer to a
/// part has up to 1 MiB, every other one up to 16 MiB and briefly the buffer that it outgrew; the test data of a save take 50 MiB.
const BUDGET_MIB: u64 = 192;

const KEY: &str = "shop/orders/1a2b3c4d/20261121T162233Z-99887766-abcdef01";

/// A store whose answer never reaches its body.
async fn flood() -> Front {
    Front::of(async |mut client: TcpStream, _| {
        let _request = client.read(&mut [0; 16 << 10]).await?;
        client.write_all(b"HTTP/1.1 200 OK\r\n").await?;
        let lines = b"x-flood: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n".repeat(1000);
        loop {
            client.write_all(&lines).await?;
        }
    })
    .await
}

async fn run(verb: &str, store: StoreFlags) -> Option<Error> {
    let snapshot_flags =
        SnapshotFlags { store: Some(store.clone()), key: Some(KEY.to_owned()), ..SnapshotFlags::default() };
    match verb {
        "save" => {
            let request = save_request(EtcdFlags::default(), store, Compression::None);
            save_stream(request, stream::iter(messages(&snapshot(2200)))).await.err()
        }
        "restore" => {
            let volume = tempfile::tempdir().unwrap();
            restore::run(restore_request(store, KEY, volume.path())).await.err()
        }
        "list" => list::run(ListRequest { store, deadline_seconds: 50, ..ListRequest::default() }).await.err(),
        "verify" => {
            let request = VerifyRequest { snapshot: snapshot_flags, deadline_seconds: 50, ..VerifyRequest::default() };
            verify::run(request).await.err()
        }
        "probe" => {
            let request = ProbeRequest { store, deadline_seconds: 50, ..ProbeRequest::default() };
            match probe::run(request).await {
                Ok(ended) => ended.failed,
                Err(error) => Some(error),
            }
        }
        _ => panic!("{verb}"),
    }
}

/// The child half: the process that is measured.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn meets_an_endless_answer() {
    let input = child_input();
    let (verb, store) = input.split_once('\n').unwrap();
    let store = serde_json::from_str(store).unwrap();
    let before = high_water_mib();
    let error = run(verb, store).await.expect("what has no end is no success");
    let peak = high_water_mib();
    println!("VmHWM {before} -> {peak} MiB: {:?} {}", error.class(), error.message());
    assert!(peak - before <= BUDGET_MIB, "{before} -> {peak} MiB, budget {BUDGET_MIB}");
    assert!(error.message().len() < 600 && !error.message().contains("xxxx"), "{error}");
}

async fn bounded(what: &str, verb: &str, store: StoreFlags) {
    let input = format!("{verb}\n{}", to_input(&store));
    let run = move || run_child("endless::meets_an_endless_answer", &input);
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("VmHWM"));
    println!("{verb}, {what}: {}", line.unwrap_or_default());
}

/// One request of a save, and its answer.
type Row = (&'static str, Op, Fault);

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_end_does_not_fill_the_memory() {
    let s3 = S3::start().await;
    let s3 = &s3;
    for (what, fault) in [
        ("a refusal without end", Fault::Endless(403)),
        ("an error without end", Fault::Endless(500)),
        ("an answer without end", Fault::Endless(200)),
        ("more headers than there are", Fault::Headers(20_000)),
    ] {
        let always = {
            let fault = fault.clone();
            move |_: &Asked| fault.clone()
        };
        let proxy = S3Proxy::before(s3, always).await;
        let verbs = ["save", "restore", "list", "verify", "probe"];
        join_all(verbs.map(|verb| bounded(what, verb, proxy.flags(s3)))).await;
    }
    let rows: [Row; 5] = [
        ("a part's refusal", Op::Part, Fault::Endless(400)),
        ("a part's answer", Op::Part, Fault::Endless(200)),
        ("the answer at the end of an upload", Op::Complete, Fault::Endless(200)),
        ("what is read back", Op::Get, Fault::Endless(200)),
        ("the manifest's answer", Op::Put, Fault::Endless(200)),
    ];
    join_all(rows.map(|(what, op, fault)| async move {
        let only = move |asked: &Asked| if asked.op == op { fault.clone() } else { Fault::Pass };
        let proxy = S3Proxy::before(s3, only).await;
        bounded(what, "save", proxy.flags(s3)).await;
    }))
    .await;
    let flood = flood().await;
    for verb in ["save", "restore", "list", "verify", "probe"] {
        bounded("headers without end", verb, s3.through(flood.url())).await;
    }
}
