//! The manifest: whether it was written is known, or reported as unknown, and an invalid manifest hides no other snapshot.

use std::fs;

use holdfast_contract::{ExitClass, LatestRequest, ListRequest};

use super::{Rule, request, save_through};
use crate::faults::{messages, save_stream, snapshot};
use crate::s3_proxy::{Asked, Fault, Op, error};
use crate::support::{S3, run_rows};
use futures::stream;
use holdfast_contract::error::Error;
use snapshot_agent::verbs::list::{Entry, State};
use snapshot_agent::verbs::{latest, list};

/// Number of this put of a manifest, from 1 on: the intent's put comes before.
fn tried(asked: &Asked) -> Option<usize> {
    (asked.op == Op::Put && asked.uri.contains("manifest.json")).then_some(asked.before)
}

/// object_store may repeat a put that was carried out, and get a refusal for the second one (I18).
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_manifest_is_looked_for_before_it_is_said_to_be_missing() {
    const WRITTEN: usize = 1;
    let rows: Vec<(&str, Rule, Option<ExitClass>, usize)> = vec![
        (
            "written, the answer is lost, and then the session is over for writing",
            |a| match tried(a) {
                Some(1) => Fault::DoneHangup,
                Some(_) => Fault::Answer(403, error("ExpiredToken")),
                None => Fault::Pass,
            },
            None,
            WRITTEN,
        ),
        (
            "written, said to be in trouble, and then the store is full",
            |a| match tried(a) {
                Some(1) => Fault::Done(500, error("InternalError")),
                Some(_) => Fault::Answer(507, error("XMinioStorageFull")),
                None => Fault::Pass,
            },
            None,
            WRITTEN,
        ),
        (
            "written, the answer is lost, and then the session is over for all",
            |a| match tried(a) {
                Some(1) => Fault::DoneHangup,
                Some(_) => Fault::Answer(403, error("ExpiredToken")),
                None if a.op == Op::Get && a.uri.contains("manifest.json") => Fault::Answer(403, error("ExpiredToken")),
                None => Fault::Pass,
            },
            Some(ExitClass::Transient),
            WRITTEN,
        ),
        (
            "never written, and then denied",
            |a| match tried(a) {
                Some(1) => Fault::Hangup,
                Some(_) => Fault::Answer(403, error("AccessDenied")),
                None => Fault::Pass,
            },
            Some(ExitClass::Denied),
            0,
        ),
        (
            "denied at once, to credentials that may only write",
            |a| match (tried(a), a.op) {
                (Some(_), _) | (None, Op::Get | Op::Head | Op::List | Op::Delete | Op::Abort) => {
                    Fault::Answer(403, error("AccessDenied"))
                }
                (None, _) => Fault::Pass,
            },
            Some(ExitClass::Denied),
            0,
        ),
    ];
    let rows = rows.into_iter().map(async |(what, rule, class, manifests)| {
        let s3 = S3::start().await;
        let (saved, _proxy) = save_through(&s3, rule).await;
        assert_eq!(saved.as_ref().err().map(Error::class), class, "{what}: {saved:?}");
        if let Err(error) = &saved {
            assert!(!error.message().contains("canary") && error.message().len() < 1000, "{what}: {error}");
        }
        let there = s3.files().iter().filter(|file| file.ends_with("manifest.json")).count();
        assert_eq!(there, manifests, "{what}: {:?}", s3.files());
        // Data without a manifest are no snapshot; the next save removes them.
        crate::kills::age(&s3.bucket());
        save_through(&s3, |_| Fault::Pass).await.0.unwrap();
        assert_eq!(s3.files().len(), 2 + 2 * manifests, "after {what}: {:?}", s3.files());
    });
    run_rows(rows).await;
}

/// Every writer of a cluster's folder can put any object under that name.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_too_long_or_empty_is_passed_over() {
    let s3 = S3::start().await;
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&snapshot(64)))).await.unwrap();
    let (lineage, name) = saved.key.rsplit_once('/').unwrap();
    // Longer than any answer that is no download, longer than a manifest, and empty.
    for (year, bytes) in [("2091", 17 << 20), ("2092", 2 << 20), ("2093", 0)] {
        let manifest = s3.file(&format!("{lineage}/{}", name.replacen(&name[..4], year, 1)), "manifest.json");
        fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        fs::write(&manifest, vec![b' '; bytes]).unwrap();
    }
    let wanted = ListRequest { store: s3.flags(), deadline_seconds: 30, ..ListRequest::default() };
    let listed = list::run(wanted).await.unwrap();
    let states: Vec<_> = listed.iter().map(|entry| entry.state).collect();
    assert_eq!(states, [State::Broken, State::Broken, State::Broken, State::Complete], "{listed:?}");
    let told = |entry: &&Entry| entry.problem.as_ref().is_some_and(|problem| problem.contains("more than 1048576"));
    assert_eq!(listed.iter().filter(told).count(), 2, "{listed:?}");
    let wanted = LatestRequest {
        store: s3.flags(),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        deadline_seconds: 30,
        ..LatestRequest::default()
    };
    assert_eq!(latest::run(wanted).await.unwrap().key, saved.key);
}
