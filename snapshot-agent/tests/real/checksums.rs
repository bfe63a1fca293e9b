//! Stores without S3's newer checksums: the agent sends no checksum unless requested, and refuses a requested one by name.

use futures::stream;
use holdfast_contract::{Compression, EtcdFlags, ExitClass, S3Checksum, SaveRequest, StoreFlags};
use snapshot_agent::verbs::restore;

use crate::faults::{messages, save_stream, snapshot};
use crate::s3_proxy::{Asked, Fault, S3Proxy, error};
use crate::support::{S3, restore_request, save_request};

/// Whether a request has a checksum: beside the data, behind the data, or requested for the answer.
fn has_checksum(asked: &Asked) -> bool {
    let names = ["x-amz-checksum", "x-amz-sdk-checksum", "x-amz-trailer"];
    let coded = asked.headers.get("content-encoding").is_some_and(|how| how == "aws-chunked");
    let trailed = asked.headers.get("x-amz-content-sha256").and_then(|said| said.to_str().ok());
    coded
        || trailed.is_some_and(|said| said.starts_with("STREAMING-"))
        || asked.headers.keys().any(|name| names.iter().any(|known| name.as_str().starts_with(known)))
}

fn request(store: StoreFlags) -> SaveRequest {
    save_request(EtcdFlags::default(), store, Compression::None)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_knows_no_checksums_is_asked_for_none() {
    let stream = snapshot(5000);
    for (status, body) in [
        (501, error("NotImplemented")),
        (400, error("InvalidRequest")),
        (400, error("InvalidArgument")),
        (400, String::new()),
        (501, String::new()),
    ] {
        let s3 = S3::start().await;
        let what = format!("{status} {body}");
        let (said, answer) = (what.clone(), body.clone());
        let old = move |asked: &Asked| {
            if has_checksum(asked) { Fault::Answer(status, answer.clone()) } else { Fault::Pass }
        };
        let proxy = S3Proxy::before(&s3, old).await;
        for checksum in [None, Some(S3Checksum::WhenRequired)] {
            let store = StoreFlags { s3_checksum: checksum, ..proxy.flags(&s3) };
            let saved = save_stream(request(store.clone()), stream::iter(messages(&stream))).await;
            let saved = saved.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(saved.verification.unwrap().read_back, "{what}");
            let volume = tempfile::tempdir().unwrap();
            restore::run(restore_request(store, &saved.key, volume.path())).await.unwrap();
        }
        assert!(!proxy.asked().iter().any(has_checksum), "{what}");

        let kept = s3.files();
        for checksum in [S3Checksum::Crc64nvme, S3Checksum::Sha256] {
            let store = StoreFlags { s3_checksum: Some(checksum), ..proxy.flags(&s3) };
            let error = save_stream(request(store), stream::iter(messages(&stream))).await.unwrap_err();
            println!("{said}, {checksum:?}: {:?} {error}", error.class());
            assert_eq!(error.class(), ExitClass::Config, "{what}: {error}");
            assert!(error.message().contains("not support --s3-checksum."), "{what}: {error}");
            assert_eq!(s3.files(), kept, "{what}: nothing of it stays");
        }
    }
}

/// A store may accept checksums and not return them: the store still has the bytes, and the agent compares the bytes. The agent
/// refuses by name a store that then misses its own checksums.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_keeps_checksums_to_itself_is_read_back_or_refuses() {
    let (s3, stream) = (S3::start().await, snapshot(5000));
    let proxy = S3Proxy::before(&s3, |_| Fault::Without("x-amz-checksum")).await;
    for checksum in [None, Some(S3Checksum::Crc64nvme), Some(S3Checksum::Sha256)] {
        let (before, kept) = (proxy.asked().len(), s3.files());
        let store = StoreFlags { s3_checksum: checksum, ..proxy.flags(&s3) };
        match save_stream(request(store), stream::iter(messages(&stream))).await {
            Ok(saved) => {
                assert!(saved.verification.unwrap().read_back, "{checksum:?}");
                assert!(std::fs::read(s3.file(&saved.key, "snapshot.db")).unwrap() == stream, "{checksum:?}");
            }
            Err(error) => {
                println!("{checksum:?}: {error}");
                assert!(checksum.is_some() && error.class() == ExitClass::Config, "{checksum:?}: {error}");
                assert!(error.message().contains("not support --s3-checksum."), "{error}");
                assert_eq!(s3.files(), kept, "{checksum:?}");
            }
        }
        assert_eq!(proxy.asked()[before..].iter().any(has_checksum), checksum.is_some(), "{checksum:?}");
    }
}
