//! Single requests that go wrong between the agent and a real S3 server: either the snapshot is there, whole, or there
//! is no manifest and one reason.

use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::backends::Backend;
use crate::faults::{messages, save_stream, snapshot};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::support::{S3, Small, eventually, files, restore_request, save_request};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use sha2::{Digest, Sha256};
use snapshot_agent::contract::{
    Compression, EtcdFlags, ExitClass, InspectRequest, ListRequest, S3Checksum, S3Sse, SaveRequest, SavedReport,
    StoreFlags, Verify,
};
use snapshot_agent::{Error, inspect, list, restore};

mod manifests;

/// Three parts.
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

/// The first answer with data in it; the intent is read before.
fn once_read(asked: &Asked, fault: Fault) -> Fault {
    if asked.op == Op::Get && asked.uri.contains("snapshot.db") && asked.before < 3 { fault } else { Fault::Pass }
}

fn busy(asked: &Asked) -> Fault {
    match dice(asked) {
        0..15 => Fault::Answer(500, error("InternalError")),
        15..30 => Fault::Answer(503, error("SlowDown")),
        _ => Fault::Pass,
    }
}

/// Trouble that passes: the snapshot is there, byte for byte, and nothing else is.
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
            ("connections end after each answer", |_| Fault::CloseAfter),
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
            ("the connection ends before anything is begun", |a| first(a, Op::Create, Fault::Hangup)),
            ("an answer is cut short while it is read back", |a| once_read(a, Fault::Cut(100_000))),
        ];
    let rows = rows.into_iter().map(async |(what, rule)| {
        let s3 = S3::start().await;
        let (saved, _proxy) = save_through(&s3, rule).await;
        let saved = saved.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(fs::read(s3.file(&saved.key, "snapshot.db")).unwrap() == *STREAM, "{what}: other bytes");
        assert!(saved.verification.unwrap().read_back, "{what}");
        assert_eq!(s3.files().len(), 2, "{what}: {:?}", s3.files());
    });
    join_all(rows).await;
}

fn conflict() -> Fault {
    Fault::Answer(409, error("ConditionalRequestConflict"))
}

/// Trouble that stays: no manifest, one reason, and the next save takes away what is left.
#[tokio::test(flavor = "multi_thread")]
async fn trouble_that_stays_publishes_nothing() {
    let rows: Vec<(&str, Rule, ExitClass, &str)> = vec![
        (
            "a byte is changed on its way up",
            |a| first(a, Op::Part, Fault::FlipRequest(5000)),
            ExitClass::Corrupt,
            "gives back",
        ),
        ("a byte is changed on its way back", |a| once_read(a, Fault::Flip(5000)), ExitClass::Corrupt, "gives back"),
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
        // The time of the dead one is over.
        crate::kills::age(&s3.bucket());
        let (saved, _proxy) = save_through(&s3, |_| Fault::Pass).await;
        saved.unwrap_or_else(|error| panic!("after {what}: {error}"));
        assert_eq!(s3.files().len(), 2, "after {what}: {:?}", s3.files());
    });
    join_all(rows).await;
}

/// All ranges are of one and the same object.
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

/// What is asked for is in the request that begins an upload.
#[tokio::test(flavor = "multi_thread")]
async fn options_are_on_the_wire() {
    let s3 = S3::start().await;
    let proxy = S3Proxy::before(&s3, |a| match a.op {
        Op::Create => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    })
    .await;
    let credentials = tempfile::tempdir().unwrap();
    let known = s3.flags().credentials_dir.unwrap();
    for name in ["accessKeyID", "secretAccessKey"] {
        fs::copy(known.join(name), credentials.path().join(name)).unwrap();
    }
    let store = StoreFlags {
        s3_sse: Some(S3Sse::AwsKms),
        s3_sse_kms_key_id: Some("alias/backups".to_owned()),
        s3_storage_class: Some("STANDARD_IA".to_owned()),
        credentials_dir: Some(credentials.path().to_owned()),
        ..proxy.flags(&s3)
    };
    let refused = save_stream(request(store), stream::iter(messages(&STREAM))).await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Denied, "{refused}");
    let asked = proxy.asked();
    let create = asked.iter().find(|a| a.op == Op::Create).unwrap();
    for (name, value) in [
        ("x-amz-server-side-encryption", "aws:kms"),
        ("x-amz-server-side-encryption-aws-kms-key-id", "alias/backups"),
        ("x-amz-storage-class", "STANDARD_IA"),
    ] {
        assert_eq!(create.headers.get(name).and_then(|said| said.to_str().ok()), Some(value), "{name}");
    }

    // A token is signed and sent with every request.
    fs::write(credentials.path().join("sessionToken"), "a-token").unwrap();
    let proxy = S3Proxy::before(&s3, |_| Fault::Answer(403, error("ExpiredToken"))).await;
    let store = StoreFlags { credentials_dir: Some(credentials.path().to_owned()), ..proxy.flags(&s3) };
    let refused = save_stream(request(store), stream::iter(messages(&STREAM))).await.unwrap_err();
    assert!(refused.class() == ExitClass::Denied && !refused.message().contains("a-token"), "{refused}");
    let all = proxy.asked();
    let signed = |a: &Asked| {
        let names = a.headers.get("authorization").and_then(|said| said.to_str().ok()).unwrap_or_default();
        a.headers.get("x-amz-security-token").is_some_and(|said| said == "a-token")
            && names.contains("x-amz-security-token")
    };
    assert!(!all.is_empty() && all.iter().all(signed), "{all:?}");
}

/// A header's value.
fn said<'a>(asked: &'a Asked, header: &str) -> Option<&'a str> {
    asked.headers.get(header).map(|value| value.to_str().unwrap())
}

/// A whole save, to a server that checks that these headers are signed and does nothing about them: whatever makes an
/// object says how it is to be kept, and nothing else does.
#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_a_save_says_how_it_is_to_be_kept() {
    const HEADERS: [&str; 3] =
        ["x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id", "x-amz-storage-class"];
    let s3 = S3::start().await;
    for (sse, key, class) in [
        (None, None, None),
        (Some(S3Sse::Aes256), None, None),
        (Some(S3Sse::AwsKms), None, Some("GLACIER_IR")),
        (Some(S3Sse::AwsKms), Some("arn:aws:kms:eu-1:1234:key/ab-cd"), Some("STANDARD_IA")),
        (None, None, Some("ONEZONE_IA")),
    ] {
        let proxy = S3Proxy::before(&s3, |_| Fault::Pass).await;
        let store = StoreFlags {
            s3_sse: sse,
            s3_sse_kms_key_id: key.map(str::to_owned),
            s3_storage_class: class.map(str::to_owned),
            ..proxy.flags(&s3)
        };
        let saved = save_stream(request(store), stream::iter(messages(&STREAM))).await.unwrap();
        assert!(fs::read(s3.file(&saved.key, "snapshot.db")).unwrap() == *STREAM);
        let asked = proxy.asked();
        for a in &asked {
            let wanted = match a.op {
                Op::Create => [sse.map(S3Sse::as_str), key, class],
                // What is written beside the data is small, and stays in the usual class.
                Op::Put => [sse.map(S3Sse::as_str), key, None],
                _ => [None; 3],
            };
            assert_eq!(HEADERS.map(|header| said(a, header)), wanted, "{:?} {}", a.op, a.uri);
        }
        let count = |op: Op, name: &str| asked.iter().filter(|a| a.op == op && a.uri.contains(name)).count();
        assert_eq!(count(Op::Create, "snapshot.db"), 1);
        assert_eq!((count(Op::Put, "/uploads/"), count(Op::Put, "manifest.json"), count(Op::Put, "")), (1, 1, 2));
    }
}

/// What is asked for is on every part, and right; without it there is none anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn the_checksum_that_is_asked_for_is_on_every_part() {
    type Sum = fn(&[u8]) -> String;
    let sha256: Sum = |part| BASE64_STANDARD.encode(Sha256::digest(part));
    let crc: Sum = |part| {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, part);
        BASE64_STANDARD.encode(crc.to_be_bytes())
    };
    let s3 = S3::start().await;
    for (checksum, on) in [
        (None, None),
        (Some(S3Checksum::WhenRequired), None),
        (Some(S3Checksum::Crc64nvme), Some(("x-amz-checksum-crc64nvme", "CRC64NVME", crc))),
        (Some(S3Checksum::Sha256), Some(("x-amz-checksum-sha256", "SHA256", sha256))),
    ] {
        let proxy = S3Proxy::before(&s3, |_| Fault::Pass).await;
        let store = StoreFlags { s3_checksum: checksum, ..proxy.flags(&s3) };
        save_stream(request(store), stream::iter(messages(&STREAM))).await.unwrap();
        let asked = proxy.asked();
        for a in &asked {
            let names: Vec<_> = a.headers.keys().filter(|name| name.as_str().starts_with("x-amz-checksum")).collect();
            let wanted: Vec<&str> = match (a.op, on) {
                (Op::Create, Some(_)) => vec!["x-amz-checksum-algorithm"],
                (Op::Part | Op::Put, Some((header, ..))) => vec![header],
                _ => vec![],
            };
            assert_eq!(names, wanted, "{checksum:?} {:?} {}", a.op, a.uri);
        }
        let Some((header, algorithm, sum)) = on else { continue };
        let create = asked.iter().find(|a| a.op == Op::Create).unwrap();
        assert_eq!(said(create, "x-amz-checksum-algorithm"), Some(algorithm));
        let mut parts: Vec<_> = asked.iter().filter(|a| a.op == Op::Part).map(|a| (part_number(a), a)).collect();
        parts.sort_by_key(|(number, _)| *number);
        assert_eq!(parts.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3], "{checksum:?}");
        for ((number, a), bytes) in parts.into_iter().zip(STREAM.chunks(8 << 20)) {
            assert_eq!(said(a, header), Some(sum(bytes).as_str()), "{checksum:?}, part {number}");
        }
    }
}

/// Which of an upload's parts this is.
fn part_number(asked: &Asked) -> usize {
    let number = asked.uri.split(['?', '&']).find_map(|pair| pair.strip_prefix("partNumber="));
    number.unwrap().parse().unwrap()
}

/// Credentials that may only write, as a careful person gives them to a backup: it is made, and says what is not proven.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_may_only_write_make_a_backup() {
    let s3 = S3::start().await;
    let (saved, proxy) = save_through(&s3, |a| match a.op {
        Op::Get | Op::Head | Op::List | Op::Delete | Op::Abort => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    })
    .await;
    let saved = saved.unwrap();
    let verification = saved.verification.unwrap();
    assert!(!verification.read_back);
    let reason = verification.read_back_reason.unwrap();
    assert!(reason.contains("does not allow"), "{reason}");
    assert!(fs::read(s3.file(&saved.key, "snapshot.db")).unwrap() == *STREAM);
    assert!(s3.file(&saved.key, "manifest.json").exists());
    assert_eq!(signed_parts(&proxy), (3, 3), "nobody has compared what is there");
}

/// How many parts were sent, and with how many the store was told their hash.
fn signed_parts(proxy: &S3Proxy) -> (usize, usize) {
    let asked = proxy.asked();
    let parts: Vec<_> = asked.iter().filter(|a| a.op == Op::Part).collect();
    let is_hash = |a: &&&Asked| a.headers.get("x-amz-content-sha256").is_some_and(|sha256| sha256.len() == 64);
    (parts.len(), parts.iter().filter(is_hash).count())
}

/// What is read back is not hashed for the signature too. Everything else is: a byte that changes on its way without TLS
/// is refused by the store.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_read_back_is_signed() {
    let s3 = S3::start().await;
    let (saved, proxy) = save_through(&s3, |_| Fault::Pass).await;
    assert!(saved.unwrap().verification.unwrap().read_back);
    assert_eq!(signed_parts(&proxy), (3, 0));
    let unread = |store| SaveRequest { verify: Verify::Stream, ..request(store) };
    let hashed = |store| request(StoreFlags { s3_checksum: Some(S3Checksum::Sha256), ..store });
    let proxy = S3Proxy::before(&s3, |_| Fault::Pass).await;
    for asked in [unread(proxy.flags(&s3)), hashed(proxy.flags(&s3))] {
        save_stream(asked, stream::iter(messages(&STREAM))).await.unwrap();
    }
    assert_eq!(signed_parts(&proxy), (6, 6));
    // A bucket's policy may insist on it: the parts are sent again, signed.
    let unsigned = |a: &Asked| a.headers.get("x-amz-content-sha256").is_some_and(|said| said == "UNSIGNED-PAYLOAD");
    let insists = move |a: &Asked| match a.op {
        Op::Part if unsigned(a) => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    };
    let proxy = S3Proxy::before(&s3, insists).await;
    let saved = save_stream(request(proxy.flags(&s3)), stream::iter(messages(&STREAM))).await.unwrap();
    assert!(saved.verification.unwrap().read_back);
    assert_eq!(signed_parts(&proxy).1, 3);
    // Read when the upload begins, and not at its end: what nobody has compared is no backup.
    let blind = |a: &Asked| match a.op {
        Op::Get if a.uri.contains("snapshot.db") => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    };
    let proxy = S3Proxy::before(&s3, blind).await;
    let refused = save_stream(request(proxy.flags(&s3)), stream::iter(messages(&STREAM))).await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Denied, "{refused}");

    let proxy = S3Proxy::before(&s3, |a| first(a, Op::Part, Fault::FlipRequest(5000))).await;
    let error = save_stream(unread(proxy.flags(&s3)), stream::iter(messages(&STREAM))).await.unwrap_err();
    assert!(error.class() == ExitClass::Transient && error.message().contains("bytes were changed"), "{error}");
}

/// Everything that reads: a listing without end, one that nests too deep, an error without end.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_answers_is_bounded() {
    fn deep() -> String {
        let (open, close) = ("<a>".repeat(200_000), "</a>".repeat(200_000));
        format!("<ListBucketResult>{open}{close}</ListBucketResult>")
    }
    fn again(_: &Asked) -> Fault {
        let page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken>\
                    <CommonPrefixes><Prefix>pre/fix/shop/orders/1a2b3c4d/</Prefix></CommonPrefixes></ListBucketResult>";
        Fault::Answer(200, page.to_owned())
    }
    let rows: Vec<(&str, Rule)> = vec![
        ("the same page again and again", again),
        ("a deep one", |_| Fault::Answer(200, deep())),
        ("an endless one", |_| Fault::Endless(200)),
        ("an endless error", |_| Fault::Endless(403)),
        ("entities", |_| {
            Fault::Answer(
                200,
                "<!DOCTYPE a [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>\
                 <ListBucketResult><Name>&b;</Name></ListBucketResult>"
                    .to_owned(),
            )
        }),
    ];
    let s3 = S3::start().await;
    for (what, rule) in rows {
        let proxy = S3Proxy::before(&s3, rule).await;
        let find = InspectRequest {
            store: proxy.flags(&s3),
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            owner_uid: "99887766-0000".to_owned(),
            deadline_seconds: 50,
            ..InspectRequest::default()
        };
        let begun = Instant::now();
        let error = inspect::run(find).await.unwrap_err();
        println!("{what}, {:.1} s: {:?} {}", begun.elapsed().as_secs_f32(), error.class(), error.message());
        assert!(error.message().len() < 600 && !error.message().contains("canary"), "{what}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(45), "{what}: {:?}", begun.elapsed());
        assert!(proxy.count(Op::List) < 20, "{what}: asked {} times", proxy.count(Op::List));
    }
}

/// Files are listed as folders are: a listing of proofs that never ends is given up too.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_of_proofs_that_repeats_itself_is_given_up() {
    let s3 = S3::start().await;
    save_stream(request(s3.flags()), stream::iter(messages(&snapshot(64)))).await.unwrap();
    let proxy = S3Proxy::before(&s3, |a| {
        let page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken>\
                    </ListBucketResult>";
        if a.uri.contains("proofs") { each(a, Op::List, Fault::Answer(200, page.to_owned())) } else { Fault::Pass }
    })
    .await;
    let wanted = ListRequest {
        store: proxy.flags(&s3),
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        deadline_seconds: 10,
        ..ListRequest::default()
    };
    let error = list::run(wanted).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Config, "{error}");
    assert!(error.message().contains("the same page again"), "{error}");
    assert!(proxy.count(Op::List) < 20, "asked {} times", proxy.count(Op::List));
}

/// A restore is told the same bytes by every store, or told no.
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
        ("connections end after each answer", |_| Fault::CloseAfter, None),
        (
            "cut short with headers that agree",
            |a| {
                if a.uri.contains("snapshot.db") { each(a, Op::Get, Fault::CutNeatly(1 << 20)) } else { Fault::Pass }
            },
            Some(ExitClass::Transient),
        ),
        (
            "a byte is another one",
            |a| {
                if a.uri.contains("snapshot.db") { each(a, Op::Get, Fault::Flip(77)) } else { Fault::Pass }
            },
            Some(ExitClass::Corrupt),
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
            }
            Some(class) => {
                let error = done.map(|done| done.uri).unwrap_err();
                assert_eq!(error.class(), class, "{what}: {error}");
                assert_eq!(files(volume.path()), [] as [&str; 0], "{what}");
            }
        }
    });
    join_all(rows).await;
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

/// Real servers copy all parts before they answer. No stream waits for that, so it is not given up like a part.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_gets_its_time_to_put_the_parts_together() {
    let s3 = S3::start().await;
    let (go, held) = tokio::sync::watch::channel(false);
    let proxy = S3Proxy::before(&s3, move |a| each(a, Op::Complete, Fault::When(held.clone()))).await;
    let slowly = async {
        eventually("the parts to be there", async || (proxy.count(Op::Complete) > 0).then_some(())).await;
        // A part would have been given up by then.
        tokio::time::sleep(Duration::from_secs(42)).await;
        go.send(true).unwrap();
    };
    let (saved, ()) = tokio::join!(save_stream(request(proxy.flags(&s3)), stream::iter(messages(&STREAM))), slowly);
    let saved = saved.unwrap();
    assert!(fs::read(s3.file(&saved.key, "snapshot.db")).unwrap() == *STREAM);
    assert_eq!((proxy.count(Op::Complete), s3.files().len()), (1, 2), "{:?}", s3.files());
}

/// A server that puts the parts together goes on when nobody waits for it any more, and says meanwhile that there is no
/// such upload: what it makes then has to be found by the next save.
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

/// A folder whose name begins like another's is another's.
#[tokio::test(flavor = "multi_thread")]
async fn a_sibling_is_not_listed() {
    let s3 = S3::start().await;
    for cluster in ["orders", "orders-2"] {
        let request = SaveRequest { cluster: cluster.to_owned(), verify: Verify::Stream, ..request(s3.flags()) };
        save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap();
    }
    let wanted = ListRequest {
        store: s3.flags(),
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        deadline_seconds: 30,
        ..ListRequest::default()
    };
    let listed = list::run(wanted).await.unwrap();
    let text = serde_json::to_string(&listed).unwrap();
    assert!(text.contains("shop/orders/") && !text.contains("orders-2"), "{text}");
}

/// A bucket is read by who knows nothing of it but its name, prefix or none.
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_store_is_listed() {
    let s3 = S3::start().await;
    for (url, namespace, cluster) in
        [("s3://bkt/pre/fix", "shop", "orders"), ("s3://bkt/pre/fix", "bank", "ledger"), ("s3://bkt", "top", "level")]
    {
        let store = StoreFlags { url: url.to_owned(), ..s3.flags() };
        let filed = (namespace.to_owned(), cluster.to_owned());
        let request = SaveRequest { namespace: filed.0, cluster: filed.1, ..request(store) };
        save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap();
    }
    for (url, expected) in [("s3://bkt/pre/fix", &["bank/ledger", "shop/orders"][..]), ("s3://bkt", &["top/level"])] {
        let store = StoreFlags { url: url.to_owned(), ..s3.flags() };
        let listed = list::run(ListRequest { store, deadline_seconds: 30, ..ListRequest::default() }).await.unwrap();
        let clusters = listed.iter().map(|entry| entry.key.splitn(3, '/').take(2).collect::<Vec<_>>().join("/"));
        let mut clusters: Vec<_> = clusters.collect();
        clusters.sort();
        assert_eq!(clusters, expected, "{url}");
    }
}

/// Listings of stores that promise less than S3 lag: they lack what is new and name what is gone.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_decided_by_a_listing_alone() {
    const NOTHING: &str = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    let s3 = S3::start().await;
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&snapshot(64)))).await.unwrap();

    // What is there and not listed: it is not lost for who knows its key, and the next save does not touch it.
    let blind = S3Proxy::before(&s3, |a| each(a, Op::List, Fault::Answer(200, NOTHING.to_owned()))).await;
    let manifest = snapshot_agent::recall::manifest(&blind.flags(&s3), &saved.key, 30).await.unwrap();
    assert_eq!(manifest.sha256, saved.sha256);
    let again = save_stream(request(blind.flags(&s3)), stream::iter(messages(&snapshot(64)))).await.unwrap();
    assert_ne!(again.key, saved.key);
    assert!(s3.file(&saved.key, "manifest.json").exists());

    // What is listed and gone: an upload that nobody has begun is not ended, and a folder without a manifest is no
    // snapshot.
    let (lineage, name) = saved.key.rsplit_once('/').unwrap();
    let (ghost, prefix) = (name.replace(&name[..4], "2001"), format!("pre/fix/{lineage}"));
    let zombies = format!(
        "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>{prefix}/uploads/{ghost}.json</Key>\
         <LastModified>2001-01-01T00:00:00Z</LastModified><Size>9</Size><ETag>x</ETag></Contents>\
         <CommonPrefixes><Prefix>{prefix}/{ghost}/</Prefix></CommonPrefixes></ListBucketResult>"
    );
    let haunted = S3Proxy::before(&s3, move |a| each(a, Op::List, Fault::Answer(200, zombies.clone()))).await;
    save_stream(request(haunted.flags(&s3)), stream::iter(messages(&snapshot(64)))).await.unwrap();
    assert_eq!((haunted.count(Op::Abort), haunted.count(Op::Delete)), (0, 1), "its own intent alone is removed");
    let wanted = ListRequest {
        store: haunted.flags(&s3),
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        cluster_uid: request(s3.flags()).cluster_uid,
        deadline_seconds: 30,
        ..ListRequest::default()
    };
    let listed = list::run(wanted).await.unwrap();
    assert_eq!(listed.iter().map(|entry| entry.state).collect::<Vec<_>>(), [list::State::Incomplete]);
}

/// etcd is let go at its own speed: no part is taken before the stream has ended, and memory alone would not hold it.
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
