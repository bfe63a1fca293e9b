//! Requests of a save to an S3 server: storage options, checksums, signatures.

use std::fs;

use holdfast_contract::{ExitClass, S3Checksum, S3Sse, SaveRequest, StoreFlags, Verify};

use super::{STREAM, each, first, request, save_through};
use crate::faults::{messages, save_stream};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::support::{S3, eventually};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::stream;
use sha2::{Digest, Sha256};

/// The request that starts an upload has the options.
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

    // Every request has the token, and its signature covers it.
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

/// Value of a header.
fn said<'a>(asked: &'a Asked, header: &str) -> Option<&'a str> {
    asked.headers.get(header).map(|value| value.to_str().unwrap())
}

/// A whole save, to a server that checks the signature of these headers and ignores them: every request that creates an object has
/// the options, and no other request has.
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
                // Objects beside the data are small, and stay in the usual class.
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

/// Every part has the requested checksum, and it is right; without the option no request has one.
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

/// Number of this part in its upload.
fn part_number(asked: &Asked) -> usize {
    let number = asked.uri.split(['?', '&']).find_map(|pair| pair.strip_prefix("partNumber="));
    number.unwrap().parse().unwrap()
}

/// With write-only credentials, a usual precaution for backups, the save succeeds and reports the missing proof.
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

/// A small snapshot mostly waits for answers: the end of a save repeats no request, and sends independent requests in parallel.
#[tokio::test(flavor = "multi_thread")]
async fn at_its_end_a_save_asks_once_and_not_in_a_row() {
    let s3 = S3::start().await;
    let (go, ready) = tokio::sync::watch::channel(false);
    let last = |a: &Asked| a.op == Op::Head && a.uri.contains("snapshot.db") && a.before > 0;
    let proxy = S3Proxy::before(&s3, move |a| if last(a) { Fault::When(ready.clone()) } else { Fault::Pass }).await;
    let removed = async {
        eventually("the intent's end", async || (proxy.count(Op::Delete) > 0).then_some(())).await;
        go.send(true).unwrap();
    };
    let saving = save_stream(request(proxy.flags(&s3)), stream::iter(messages(&STREAM)));
    let (saved, ()) = tokio::join!(saving, removed);
    saved.unwrap();
    assert_eq!(proxy.count(Op::Head), 2, "when it is complete, and beside its manifest");
    assert_eq!(s3.files().len(), 2, "{:?}", s3.files());
}

/// Number of parts that were sent, and of those whose hash the store got.
fn signed_parts(proxy: &S3Proxy) -> (usize, usize) {
    let asked = proxy.asked();
    let parts: Vec<_> = asked.iter().filter(|a| a.op == Op::Part).collect();
    let is_hash = |a: &&&Asked| a.headers.get("x-amz-content-sha256").is_some_and(|sha256| sha256.len() == 64);
    (parts.len(), parts.iter().filter(is_hash).count())
}

/// Data that are read back are not hashed for the signature. All other data are: the store refuses a byte that changes on its way
/// without TLS.
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
    // A bucket's policy may require signed parts: the agent sends them again, signed.
    let unsigned = |a: &Asked| a.headers.get("x-amz-content-sha256").is_some_and(|said| said == "UNSIGNED-PAYLOAD");
    let insists = move |a: &Asked| match a.op {
        Op::Part if unsigned(a) => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    };
    let proxy = S3Proxy::before(&s3, insists).await;
    let saved = save_stream(request(proxy.flags(&s3)), stream::iter(messages(&STREAM))).await.unwrap();
    assert!(saved.verification.unwrap().read_back);
    assert_eq!(signed_parts(&proxy).1, 3);
    // Readable when the upload starts, and not at its end: data without a comparison are no backup.
    let blind = |a: &Asked| match a.op {
        Op::Get if a.uri.contains("snapshot.db") => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    };
    let proxy = S3Proxy::before(&s3, blind).await;
    let refused = save_stream(request(proxy.flags(&s3)), stream::iter(messages(&STREAM))).await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Denied, "{refused}");

    // A part that changed once on its way is sent again.
    let proxy = S3Proxy::before(&s3, |a| first(a, Op::Part, Fault::FlipRequest(5000))).await;
    save_stream(unread(proxy.flags(&s3)), stream::iter(messages(&STREAM))).await.unwrap();
    let proxy = S3Proxy::before(&s3, |a| each(a, Op::Part, Fault::FlipRequest(5000))).await;
    let error = save_stream(unread(proxy.flags(&s3)), stream::iter(messages(&STREAM))).await.unwrap_err();
    assert!(error.class() == ExitClass::Transient && error.message().contains("bytes were changed"), "{error}");
}
