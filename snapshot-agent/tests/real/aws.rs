//! An independent reader: AWS' own client lists and gets the objects of a save, and finds the facts of the manifest.

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::types::{ChecksumMode, ObjectLockMode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use holdfast_contract::{Compression, S3Checksum, StoreFlags};
use holdfast_io::sha256::Sha256;
use serde_json::Value;
use snapshot_agent::verbs::save;

use crate::locks::{lockable, locking};
use crate::support::{Etcd, S3, save_request};

/// Size of a part of an upload (`crates/store/src/bucket/upload.rs`).
const PART: usize = 8 << 20;

/// Only plain HTTP, so that no second TLS is compiled.
fn client(s3: &S3) -> Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(format!("http://{}", s3.address))
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
        .force_path_style(true)
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    Client::from_conf(config)
}

async fn get(client: &Client, bucket: &str, key: &str) -> (GetObjectOutput, Vec<u8>) {
    let asked = client.get_object().bucket(bucket).key(key).checksum_mode(ChecksumMode::Enabled);
    let mut object = asked.send().await.unwrap();
    // The client compares the checksum of a whole object by itself.
    let body = std::mem::take(&mut object.body).collect().await.unwrap();
    (object, body.to_vec())
}

/// The checksum that S3 keeps of these bytes, by S3's documentation.
fn checksum_of(bytes: &[u8], checksum: S3Checksum) -> String {
    if checksum == S3Checksum::Crc64nvme {
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
        return BASE64_STANDARD.encode(sum.to_be_bytes());
    }
    let parts: Vec<[u8; 32]> = bytes.chunks(PART).map(Sha256::digest).collect();
    format!("{}-{}", BASE64_STANDARD.encode(Sha256::digest(parts.concat())), parts.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn awss_own_client_reads_the_facts_of_the_manifest() {
    let etcd = Etcd::start().await;
    etcd.fill(12, 1 << 20).await;
    let s3 = lockable().await;
    let client = client(&s3);
    for checksum in [S3Checksum::Crc64nvme, S3Checksum::Sha256] {
        let store = StoreFlags { s3_checksum: Some(checksum), ..locking(s3.flags()) };
        let saved = save::run(save_request(etcd.flags(), store, Compression::None)).await.unwrap();
        let folder = format!("pre/fix/{}/", saved.key);
        let listed = client.list_objects_v2().bucket("locked").prefix(&folder).send().await.unwrap();
        let mut listed: Vec<(String, i64)> =
            listed.contents().iter().map(|object| (object.key().unwrap().to_owned(), object.size().unwrap())).collect();
        listed.sort();
        let names: Vec<&str> = listed.iter().map(|(key, _)| key.strip_prefix(&folder).unwrap()).collect();
        assert_eq!(names, ["manifest.json", "snapshot.db"], "{checksum:?}");

        let (_, json) = get(&client, "locked", &listed[0].0).await;
        let manifest: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(manifest["key"], saved.key, "{checksum:?}");
        let (object, bytes) = get(&client, "locked", &listed[1].0).await;
        assert_eq!(manifest["storedBytes"].as_u64(), Some(bytes.len() as u64));
        let length = i64::try_from(bytes.len()).unwrap();
        assert_eq!((listed[1].1, object.content_length()), (length, Some(length)));
        assert_eq!(manifest["storedSha256"], hex::encode(Sha256::digest(&bytes)));
        assert!(bytes.len() > PART && object.e_tag().is_some_and(|tag| !tag.is_empty()));
        assert!(object.metadata().is_none_or(std::collections::HashMap::is_empty), "{:?}", object.metadata());
        let kept = match checksum {
            S3Checksum::Crc64nvme => object.checksum_crc64_nvme(),
            _ => object.checksum_sha256(),
        };
        assert_eq!(kept, Some(checksum_of(&bytes, checksum).as_str()), "{checksum:?}");

        // By HEAD: versitygw answers GET without the lock.
        let seconds = |time: &Value| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
        let lock_ends = seconds(&manifest["lock"]["until"]);
        for (number, name) in ["manifest.json", "snapshot.db"].into_iter().enumerate() {
            let head = client.head_object().bucket("locked").key(&listed[number].0).send().await.unwrap();
            assert_eq!(head.object_lock_mode(), Some(&ObjectLockMode::Governance), "{name}");
            let until = head.object_lock_retain_until_date().unwrap().secs();
            assert!(until == lock_ends || (name == "manifest.json" && until > lock_ends), "{name}: {until}");
            let stored = head.last_modified().unwrap().secs();
            let saved = seconds(&manifest["startedAt"]) - 1..=seconds(&manifest["endedAt"]) + 1;
            assert!(saved.contains(&stored), "{name}: {stored} is not in {saved:?}");
        }
    }
}
