//! Faults of single requests between the agent and a real S3 server: either the snapshot is stored, whole, or there is no manifest
//! and one reason.

use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use holdfast_contract::{Compression, EtcdFlags, ExitClass, SaveRequest, SavedReport, StoreFlags};

use crate::backends::Backend;
use crate::faults::{messages, save_stream, snapshot};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::support::{S3, Small, eventually, files, restore_request, run_rows, save_request};
use futures::stream::{self, StreamExt};
use holdfast_contract::error::Error;
use snapshot_agent::verbs::restore;

mod answers;
mod flipped;
mod listings;
mod manifests;
mod silences;
mod wire;

/// A stream of three parts.
static STREAM: LazyLock<Vec<u8>> = LazyLock::new(|| snapshot(5000));

type Rule = fn(&Asked) -> Fault;

fn request(store: StoreFlags) -> SaveRequest {
    save_request(EtcdFlags::default(), store, Compression::None)
}

async fn save_through(s3: &S3, rule: Rule) -> (Result<SavedReport, Error>, S3Proxy) {
    let proxy = S3Proxy::before(s3, rule).await;
    let saved = save_stream(request(proxy.flags(s3)), stream::iter(messages(&STREAM))).await;
    (saved, proxy)
}

/// A number that looks random and is the same every time.
fn dice(asked: &Asked) -> usize {
    let mut x = asked.before.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (asked.op as usize).wrapping_mul(0x5851_f42d);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 32)) % 100
}

fn first(asked: &Asked, op: Op, fault: Fault) -> Fault {
    if asked.op == op && asked.before == 0 { fault } else { Fault::Pass }
}

fn each(asked: &Asked, op: Op, fault: Fault) -> Fault {
    if asked.op == op { fault } else { Fault::Pass }
}

/// Applies the fault to the first answer with data; the intent is read before.
fn once_read(asked: &Asked, fault: Fault) -> Fault {
    if asked.op == Op::Get && asked.uri.contains("snapshot.db") && asked.before < 3 { fault } else { Fault::Pass }
}

/// Changes this byte of the stored data in every answer, whatever the range and however often.
fn rotten(asked: &Asked, at: usize) -> Fault {
    let range = asked.headers.get("range").and_then(|range| range.to_str().ok()?.strip_prefix("bytes="));
    let range = range.and_then(|range| range.split_once('-'));
    let range = range.and_then(|(from, to)| Some(from.parse::<usize>().ok()?..=to.parse().ok()?));
    match range {
        Some(range) if asked.uri.contains("snapshot.db") && range.contains(&at) => Fault::Flip(at - range.start()),
        _ => Fault::Pass,
    }
}

/// The row that has to be compared with a store without faults.
const ALONE: &str = "connections end after each answer";

fn busy(asked: &Asked) -> Fault {
    match dice(asked) {
        0..15 => Fault::Answer(500, error("InternalError")),
        15..30 => Fault::Answer(503, error("SlowDown")),
        _ => Fault::Pass,
    }
}

/// Transient faults: the snapshot is stored byte for byte, and no other object.
#[tokio::test(flavor = "multi_thread")]
async fn trouble_that_passes_leaves_a_whole_snapshot() {
    let rows: Vec<(&str, Rule)> =
        vec![
            ("nothing", |_| Fault::Pass),
            ("a third of all requests is answered with 5xx", busy),
            ("every part's connection breaks in its middle, once", |a| {
                if a.op == Op::Part && a.before % 2 == 0 { Fault::CutRequest(1 << 20) } else { Fault::Pass }
            }),
            ("a part is stored, and the answer is lost", |a| first(a, Op::Part, Fault::DoneHangup)),
            (ALONE, |_| Fault::CloseAfter),
            ("completed, and 500", |a| first(a, Op::Complete, Fault::Done(500, error("InternalError")))),
            ("completed, and 200 with an error in it", |a| {
                first(a, Op::Complete, Fault::Done(200, error("InternalError")))
            }),
            ("completed, and the answer is lost", |a| first(a, Op::Complete, Fault::DoneHangup)),
            ("the manifest is written, and the answer is lost", |a| {
                if a.op == Op::Put && a.uri.contains("manifest.json") && a.before < 2 {
                    Fault::DoneHangup
                } else {
                    Fault::Pass
                }
            }),
            ("somebody else writes under the same name, says the store, once", |a| {
                if a.uri.contains("manifest.json") {
                    first(&Asked { before: a.before.saturating_sub(1), ..a.clone() }, Op::Put, conflict())
                } else {
                    Fault::Pass
                }
            }),
            ("no condition is known: 501", |a| {
                let manifest = a.op == Op::Put && a.uri.contains("manifest.json") && a.before == 1;
                if manifest { Fault::Answer(501, error("NotImplemented")) } else { Fault::Pass }
            }),
            ("the manifest is written, the answer is lost, and then: 304", |a| match (a.op, a.before) {
                (Op::Put, 1) if a.uri.contains("manifest.json") => Fault::DoneHangup,
                (Op::Put, 2) if a.uri.contains("manifest.json") => Fault::Answer(304, String::new()),
                _ => Fault::Pass,
            }),
            ("nothing has an ETag", |a| {
                if matches!(a.op, Op::Get | Op::Head) { Fault::Without("etag") } else { Fault::Pass }
            }),
            ("a part's connection breaks after longer than a store is asked again", |a| {
                first(a, Op::Part, Fault::HangupAfter(Duration::from_millis(15_500)))
            }),
            ("the connection ends before anything is begun", |a| first(a, Op::Create, Fault::Hangup)),
            ("an answer is cut short while it is read back", |a| once_read(a, Fault::Cut(100_000))),
            ("a byte is changed on its way back, once", |a| once_read(a, Fault::Flip(5000))),
        ];
    let rows = rows.into_iter().map(async |(what, rule)| {
        let s3 = S3::start().await;
        let (saved, proxy) = save_through(&s3, rule).await;
        let saved = saved.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(what != ALONE || proxy.each_asked_alone(), "{what}: a connection was used again");
        assert!(fs::read(s3.file(&saved.key, "snapshot.db")).unwrap() == *STREAM, "{what}: other bytes");
        assert!(saved.verification.unwrap().read_back, "{what}");
        assert_eq!(s3.files().len(), 2, "{what}: {:?}", s3.files());
    });
    run_rows(rows).await;
}

fn conflict() -> Fault {
    Fault::Answer(409, error("ConditionalRequestConflict"))
}

/// Lasting faults: no manifest, one reason, and the next save removes the leftovers.
#[tokio::test(flavor = "multi_thread")]
async fn trouble_that_stays_publishes_nothing() {
    let rows: Vec<(&str, Rule, ExitClass, &str)> = vec![
        (
            "a byte is changed on its way up",
            |a| first(a, Op::Part, Fault::FlipRequest(5000)),
            ExitClass::Corrupt,
            "returns",
        ),
        (
            "a byte is changed on its way back, at each reading another one",
            |a| {
                if a.uri.contains("snapshot.db") { each(a, Op::Get, Fault::Flip(7000 + a.before)) } else { Fault::Pass }
            },
            ExitClass::Transient,
            "two readings",
        ),
        (
            "it was never completed, says 200 with an error",
            |a| each(a, Op::Complete, Fault::Answer(200, error("InternalError"))),
            ExitClass::Transient,
            "snapshot.db",
        ),
        (
            "the session ends after two parts",
            |a| {
                let over = a.op == Op::Part && a.before >= 2 || a.op == Op::Abort || a.op == Op::Head;
                if over { Fault::Answer(403, error("ExpiredToken")) } else { Fault::Pass }
            },
            ExitClass::Denied,
            "session token",
        ),
        (
            "it is completed, which is denied, and nobody may look for it",
            |a| match a.op {
                Op::Complete => Fault::Done(403, error("AccessDenied")),
                Op::Head if a.uri.contains("snapshot.db") => Fault::Answer(403, String::new()),
                _ => Fault::Pass,
            },
            ExitClass::Denied,
            "does not allow",
        ),
        (
            "somebody else writes under the manifest's name, says the store, and does not return the object",
            |a| if a.op == Op::Put && a.uri.contains("manifest.json") { conflict() } else { Fault::Pass },
            ExitClass::Transient,
            "does not return the object",
        ),
        (
            "the upload is unknown when it is to be completed",
            |a| each(a, Op::Complete, Fault::Answer(404, error("NoSuchUpload"))),
            ExitClass::Transient,
            "does not know this upload",
        ),
        (
            "the upload is unknown from the second part on",
            |a| if a.op == Op::Part && a.before >= 1 { Fault::Answer(404, error("NoSuchUpload")) } else { Fault::Pass },
            ExitClass::Transient,
            "does not know this upload",
        ),
        (
            "it is to go slower, for ever",
            |a| each(a, Op::Part, Fault::Answer(503, error("SlowDown"))),
            ExitClass::Transient,
            "slow down",
        ),
        (
            "the bucket goes away",
            |a| each(a, Op::Part, Fault::Answer(404, error("NoSuchBucket"))),
            ExitClass::NotFound,
            "bucket",
        ),
        (
            "the store is full",
            |a| each(a, Op::Part, Fault::Answer(507, error("XMinioStorageFull"))),
            ExitClass::Full,
            "no space",
        ),
        ("an endless answer", |a| each(a, Op::Part, Fault::Endless(400)), ExitClass::Config, "status 400"),
        ("too many headers", |a| each(a, Op::Create, Fault::Headers(20_000)), ExitClass::Transient, "snapshot.db"),
    ];
    let rows = rows.into_iter().map(async |(what, rule, class, word)| {
        let s3 = S3::start().await;
        let begun = Instant::now();
        let (failed, _proxy) = save_through(&s3, rule).await;
        let Err(error) = failed else { panic!("{what}: it was saved") };
        assert_eq!(error.class(), class, "{what}: {error}");
        assert!(error.message().contains(word), "{what}: no {word:?} in {error}");
        assert!(!error.message().contains("canary") && error.message().len() < 600, "{what}: {error}");
        assert!(begun.elapsed() < Duration::from_mins(1), "{what}: {:?}", begun.elapsed());
        let manifests = s3.files().iter().filter(|file| file.ends_with("manifest.json")).count();
        assert_eq!(manifests, 0, "{what}: {:?}", s3.files());
        // The deadline of the dead writer has passed.
        crate::kills::age(&s3.bucket());
        let (saved, _proxy) = save_through(&s3, |_| Fault::Pass).await;
        saved.unwrap_or_else(|error| panic!("after {what}: {error}"));
        assert_eq!(s3.files().len(), 2, "after {what}: {:?}", s3.files());
    });
    run_rows(rows).await;
}

/// All ranges belong to one and the same object.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_exchanged_while_it_is_read_is_refused() {
    let backend = Backend::s3().await;
    let s3 = backend.server();
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&STREAM))).await.unwrap();
    let (go, held) = tokio::sync::watch::channel(false);
    let later = |a: &Asked| {
        let range = a.headers.get("range").and_then(|range| range.to_str().ok());
        a.op == Op::Get && a.uri.contains("snapshot.db") && range.is_some_and(|range| !range.starts_with("bytes=0-"))
    };
    let proxy = S3Proxy::before(s3, move |a| if later(a) { Fault::When(held.clone()) } else { Fault::Pass }).await;
    let volume = tempfile::tempdir().unwrap();
    let restoring = tokio::spawn(restore::run(restore_request(proxy.flags(s3), &saved.key, volume.path())));
    eventually("a later range", async || proxy.asked().iter().any(later).then_some(())).await;
    let other = "x".repeat(usize::try_from(saved.stored_bytes).unwrap());
    backend.put(&format!("{}/snapshot.db", saved.key), &other).await;
    go.send(true).unwrap();
    let refused = restoring.await.unwrap().unwrap_err();
    assert!(matches!(refused.class(), ExitClass::Corrupt | ExitClass::Transient), "{refused}");
    assert_eq!(files(volume.path()), [] as [&str; 0], "{refused}");
    let asked = proxy.asked();
    let ranges: Vec<_> = asked.iter().filter(|a| a.headers.contains_key("range")).collect();
    assert!(ranges.len() > 1 && ranges.iter().all(|a| a.headers.contains_key("if-match")), "{ranges:?}");
}

/// A restore gets the same bytes from every store, or fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_download_is_whole_or_refused() {
    let s3 = S3::start().await;
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&STREAM))).await.unwrap();
    let rows: Vec<(&str, Rule, Option<ExitClass>)> = vec![
        ("a third of all requests is answered with 5xx", busy, None),
        ("an answer is cut short, once", |a| first(a, Op::Get, Fault::Cut(300)), None),
        (
            "every second answer is cut short",
            |a| {
                if a.op == Op::Get && a.before % 2 == 0 { Fault::Cut(1 << 20) } else { Fault::Pass }
            },
            None,
        ),
        (ALONE, |_| Fault::CloseAfter, None),
        (
            "cut short with headers that agree",
            |a| {
                if a.uri.contains("snapshot.db") { each(a, Op::Get, Fault::CutNeatly(1 << 20)) } else { Fault::Pass }
            },
            Some(ExitClass::Transient),
        ),
        ("a byte is another one", |a| rotten(a, 5_000_077), Some(ExitClass::Corrupt)),
        (
            "a byte is another one, once",
            |a| {
                if a.uri.contains("snapshot.db") && a.before < 2 {
                    each(a, Op::Get, Fault::Flip(77))
                } else {
                    Fault::Pass
                }
            },
            Some(ExitClass::Transient),
        ),
        (
            "a byte of the manifest is another one, once",
            |a| {
                if a.uri.contains("manifest") && a.before < 1 {
                    each(a, Op::Get, Fault::Flip(300))
                } else {
                    Fault::Pass
                }
            },
            Some(ExitClass::Transient),
        ),
        (
            "a byte of the manifest is another one",
            |a| {
                if a.uri.contains("manifest") { each(a, Op::Get, Fault::Flip(300)) } else { Fault::Pass }
            },
            Some(ExitClass::Corrupt),
        ),
    ];
    let (s3, saved) = (&s3, &saved);
    let rows = rows.into_iter().map(async |(what, rule, class)| {
        let proxy = S3Proxy::before(s3, rule).await;
        let volume = tempfile::tempdir().unwrap();
        let done = restore::run(restore_request(proxy.flags(s3), &saved.key, volume.path())).await;
        match class {
            None => {
                done.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(what != ALONE || proxy.each_asked_alone(), "{what}: a connection was used again");
            }
            Some(class) => {
                let error = done.map(|done| done.uri).unwrap_err();
                assert_eq!(error.class(), class, "{what}: {error}");
                assert_eq!(files(volume.path()), [] as [&str; 0], "{what}");
            }
        }
    });
    run_rows(rows).await;
}

/// A store that takes 10 KiB a second would pin etcd's read transaction for hours.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stands_still_is_told_in_time() {
    let s3 = S3::start().await;
    let begun = Instant::now();
    let (failed, _proxy) = save_through(&s3, |a| each(a, Op::Part, Fault::Silence)).await;
    let error = failed.map(|saved| saved.uri).unwrap_err();
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    assert_eq!(error.class(), ExitClass::Transient, "{error}");
    assert!(error.message().contains("too slow"), "{error}");
    assert_eq!(s3.files(), [] as [&str; 0]);
}

/// Real servers copy all parts before they answer. No stream waits for that, so the deadline of a part does not apply.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_gets_its_time_to_put_the_parts_together() {
    let s3 = S3::start().await;
    let (go, held) = tokio::sync::watch::channel(false);
    let proxy = S3Proxy::before(&s3, move |a| each(a, Op::Complete, Fault::When(held.clone()))).await;
    let slowly = async {
        eventually("the parts to be there", async || (proxy.count(Op::Complete) > 0).then_some(())).await;
        // A part would have timed out by then.
        tokio::time::sleep(Duration::from_secs(42)).await;
        go.send(true).unwrap();
    };
    let (saved, ()) = tokio::join!(save_stream(request(proxy.flags(&s3)), stream::iter(messages(&STREAM))), slowly);
    let saved = saved.unwrap();
    assert!(fs::read(s3.file(&saved.key, "snapshot.db")).unwrap() == *STREAM);
    assert_eq!((proxy.count(Op::Complete), s3.files().len()), (1, 2), "{:?}", s3.files());
}

/// A server that assembles the parts continues after its client has gone, and meanwhile answers that the upload does not exist: the
/// next save has to find the object.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_appears_after_its_save_has_ended_goes_with_the_next_one() {
    let s3 = S3::start().await;
    let (go, later) = tokio::sync::watch::channel(false);
    let rule = move |a: &Asked| match a.op {
        Op::Complete if a.before == 0 => Fault::DoneLater(later.clone()),
        Op::Complete => Fault::Answer(409, error("OperationAborted")),
        Op::Abort => Fault::Answer(404, error("NoSuchUpload")),
        _ => Fault::Pass,
    };
    let proxy = S3Proxy::before(&s3, rule).await;
    let failed = save_stream(request(proxy.flags(&s3)), stream::iter(messages(&STREAM))).await;
    let failed = failed.map(|saved| saved.uri).unwrap_err();
    let left = s3.files();
    assert!(left.iter().any(|file| file.contains("/uploads/")), "nothing points to it: {left:?} after {failed}");
    go.send(true).unwrap();
    eventually("the object beside its intent, and no parts", async || (s3.files().len() == 2).then_some(())).await;
    assert!(s3.files().iter().any(|file| file.ends_with("/snapshot.db")), "{:?}", s3.files());

    crate::kills::age(&s3.bucket());
    let (saved, _proxy) = save_through(&s3, |_| Fault::Pass).await;
    assert!(s3.file(&saved.unwrap().key, "snapshot.db").exists());
    assert_eq!(s3.files().len(), 2, "the last one's alone: {:?}", s3.files());
}

/// A spool releases etcd at etcd's own speed: no part is accepted before the stream has ended, and the stream exceeds the memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_spool_lets_etcd_go_before_the_store_is_ready() {
    let s3 = S3::start().await;
    let (release, released) = tokio::sync::watch::channel(false);
    let proxy = S3Proxy::before(&s3, move |a| each(a, Op::Part, Fault::When(released.clone()))).await;
    let spool = tempfile::tempdir().unwrap();
    let bytes = snapshot(20_000);
    let end = stream::once(async move {
        release.send(true).unwrap();
        Ok(bytes::Bytes::new())
    });
    let stream = stream::iter(messages(&bytes)).chain(end).boxed();
    let spooled =
        SaveRequest { spool_dir: Some(spool.path().to_owned()), spool_mib: Some(96), ..request(proxy.flags(&s3)) };
    let saved = save_stream(spooled, stream).await.unwrap();
    assert!(fs::read(s3.file(&saved.key, "snapshot.db")).unwrap() == bytes);
    assert_eq!(files(spool.path()), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spool_that_does_not_fit_is_told_before_anything_is_read() {
    let s3 = S3::start().await;
    let volume = Small::of("8m");
    let spooled = SaveRequest { spool_dir: Some(volume.path().to_owned()), spool_mib: Some(64), ..request(s3.flags()) };
    let error = save_stream(spooled, stream::pending()).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Full, "{error}");
    assert!(error.message().contains("--spool-dir"), "{error}");
    assert_eq!(s3.files(), [] as [&str; 0]);
    assert_eq!(files(volume.path()), [] as [&str; 0]);
}
