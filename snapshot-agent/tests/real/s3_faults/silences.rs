//! The end of a save at a store that stops answering, or carries requests out late: the save ends in time and reports the known
//! facts, and its leftovers go with the next save, or are a whole snapshot.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_contract::{ExitClass, InspectRequest, SaveRequest};

use super::{STREAM, request, save_through};
use crate::faults::{messages, save_stream};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::support::{S3, eventually, run_rows};
use futures::stream;
use snapshot_agent::verbs::inspect;

fn is_manifest(asked: &Asked) -> bool {
    asked.op == Op::Put && asked.uri.contains("manifest.json")
}

/// The request at which a store stops answering, and the result.
struct Row {
    what: &'static str,
    point: fn(&Asked) -> bool,
    /// Whether the store answers no later request either, or only not this one.
    onwards: bool,
    deadline_seconds: u32,
    /// Class and message of the error; `None`: the save succeeds.
    ends: Option<(ExitClass, &'static str)>,
    manifests: usize,
}

const ROWS: [Row; 5] = [
    Row {
        what: "when the parts are to be put together",
        point: |a| a.op == Op::Complete,
        onwards: true,
        deadline_seconds: 25,
        ends: Some((ExitClass::Deadline, "the deadline of 25 s passed")),
        manifests: 0,
    },
    Row {
        what: "when the manifest is written",
        point: is_manifest,
        onwards: true,
        deadline_seconds: 600,
        ends: Some((ExitClass::Transient, "the manifest could not be written")),
        manifests: 0,
    },
    Row {
        what: "when the manifest is written, and the time is over before that is told",
        point: is_manifest,
        onwards: true,
        // Less than the 10 s of a manifest's put, and time enough on a busy machine to reach it.
        deadline_seconds: 9,
        ends: Some((ExitClass::Deadline, "the manifest could not be written")),
        manifests: 0,
    },
    Row {
        // The first HEAD checks the assembled object.
        what: "when the data is looked at once more",
        point: |a| a.op == Op::Head && a.uri.contains("snapshot.db") && a.before > 0,
        onwards: true,
        deadline_seconds: 600,
        ends: Some((ExitClass::Transient, "its data could not be checked")),
        manifests: 1,
    },
    Row {
        what: "when the intent is removed",
        point: |a| a.op == Op::Delete,
        onwards: false,
        deadline_seconds: 600,
        ends: None,
        manifests: 1,
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_falls_silent_at_the_end_is_told_in_time() {
    let rows = ROWS.into_iter().map(async |row| {
        let Row { what, point, onwards, deadline_seconds, ends, manifests } = row;
        let s3 = S3::start().await;
        // A busy machine may use up the save's deadline before that request.
        let mut tries = 0;
        let saved = loop {
            let silent = AtomicBool::new(false);
            let rule = move |asked: &Asked| {
                let here = point(asked);
                if here && onwards {
                    silent.store(true, Ordering::SeqCst);
                }
                if here || silent.load(Ordering::SeqCst) { Fault::Silence } else { Fault::Pass }
            };
            let proxy = S3Proxy::before(&s3, rule).await;
            let request = SaveRequest { deadline_seconds, ..request(proxy.flags(&s3)) };
            let begun = Instant::now();
            let saved = save_stream(request, stream::iter(messages(&STREAM))).await;
            println!("{what}, {:.1} s: {saved:?}", begun.elapsed().as_secs_f32());
            assert!(begun.elapsed() < Duration::from_secs(100), "{what}: {:?}", begun.elapsed());
            if proxy.asked().iter().any(point) {
                break saved;
            }
            tries += 1;
            assert!(tries < 5, "{what}: it did not come to that: {saved:?}");
        };
        match (saved, ends) {
            (Ok(_), None) => {}
            (Err(error), Some((class, word))) => {
                assert_eq!(error.class(), class, "{what}: {error}");
                assert!(error.message().contains(word), "{what}: no {word:?} in {error}");
            }
            (saved, _) => panic!("{what}: {saved:?}"),
        }
        let there = s3.files().iter().filter(|file| file.ends_with("manifest.json")).count();
        assert_eq!(there, manifests, "{what}: {:?}", s3.files());
        crate::kills::age(&s3.bucket());
        // On a busy machine one save may not have the time to remove all leftovers.
        for saves in 1.. {
            save_through(&s3, |_| Fault::Pass).await.0.unwrap_or_else(|error| panic!("after {what}: {error}"));
            if s3.files().len() == 2 * (saves + manifests) {
                break;
            }
            assert!(saves < 5, "after {what}: {:?}", s3.files());
        }
    });
    run_rows(rows).await;
}

/// The answer to the manifest is lost, and the store writes the manifest after the save has ended. Readers report the present
/// state: no snapshot at first, and then a whole one, which the next save leaves alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_appears_after_its_save_has_ended_makes_a_snapshot() {
    let s3 = S3::start().await;
    let (go, later) = tokio::sync::watch::channel(false);
    let asked_before = AtomicBool::new(false);
    let rule = move |asked: &Asked| {
        if !is_manifest(asked) {
            Fault::Pass
        } else if asked_before.swap(true, Ordering::SeqCst) {
            Fault::Answer(503, error("SlowDown"))
        } else {
            Fault::DoneLater(later.clone())
        }
    };
    let proxy = S3Proxy::before(&s3, rule).await;
    let saving = request(proxy.flags(&s3));
    let find = InspectRequest {
        store: s3.flags(),
        namespace: saving.namespace.clone(),
        cluster: saving.cluster.clone(),
        cluster_uid: saving.cluster_uid.clone(),
        owner_uid: saving.owner_uid.clone().unwrap(),
        deadline_seconds: 30,
        ..InspectRequest::default()
    };
    let failed = save_stream(saving, stream::iter(messages(&STREAM))).await.unwrap_err();
    assert_eq!(failed.class(), ExitClass::Transient, "nobody knows: {failed}");
    assert!(failed.message().contains("the manifest could not be written"), "{failed}");
    let nothing = inspect::run(find.clone()).await.unwrap_err();
    assert_eq!(nothing.class(), ExitClass::NotFound, "{nothing}");
    assert!(nothing.message().contains("1 of these have no manifest"), "{nothing}");

    go.send(true).unwrap();
    let has_manifest = || s3.files().iter().any(|file| file.ends_with("manifest.json"));
    eventually("the manifest", async || has_manifest().then_some(())).await;
    let found = inspect::run(find.clone()).await.unwrap();
    assert!(fs::read(s3.file(&found.key, "snapshot.db")).unwrap() == *STREAM);
    assert_eq!(found.stored_bytes, STREAM.len() as u64);

    crate::kills::age(&s3.bucket());
    save_through(&s3, |_| Fault::Pass).await.0.unwrap();
    assert_eq!(inspect::run(find).await.unwrap(), found);
    assert_eq!(s3.files().len(), 4, "both are there, and no intent: {:?}", s3.files());
}
