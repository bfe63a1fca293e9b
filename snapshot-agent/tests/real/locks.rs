//! Options of S3 for an object's life: a lock against removal, and the key of its encryption.

use std::fs;
use std::process::Command;

use holdfast_contract::{
    Compression, CopyRequest, EtcdFlags, ExitClass, LockMode, S3Checksum, S3Sse, SavedReport, StoreFlags, ToStore,
};
use holdfast_layout::Folder;
use holdfast_store::{Plan, Store};

use crate::faults::{messages, save_stream, snapshot};
use crate::s3_proxy::{Fault, Op, S3Proxy};
use crate::stores::{outcome, probed};
use crate::support::{Etcd, S3, files, restore_request, save_request};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::stream;
use holdfast_contract::error::Error;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use snapshot_agent::verbs::copy::Ended;
use snapshot_agent::verbs::probe::{Outcome, Trial};
use snapshot_agent::verbs::{copy, restore, save};

/// Sends one signed request with curl: an independent program; returns status and headers.
fn curl(s3: &S3, method: &str, path: &str, headers: &[&str]) -> String {
    let url = format!("http://{}/{path}", s3.address);
    let mut command = Command::new("curl");
    command.args(["-sS", "-D", "-", "-o", "/dev/null", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", "key:secret"]);
    if method == "HEAD" {
        command.arg("--head")
    } else {
        command.args(["-X", method])
    };
    for header in headers {
        command.args(["-H", header]);
    }
    // Part of the signature, which old versions of curl do not send by themselves.
    command.args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", &url]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().to_lowercase()
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::trim)
}

/// Starts a store whose bucket `locked` can lock.
pub(crate) async fn lockable() -> S3 {
    let s3 = S3::versioned().await;
    let made = curl(&s3, "PUT", "locked", &["x-amz-bucket-object-lock-enabled: true"]);
    assert!(made.starts_with("http/1.1 200"), "{made}");
    s3
}

pub(crate) fn locking(flags: StoreFlags) -> StoreFlags {
    StoreFlags {
        url: flags.url.replace("/bkt/", "/locked/"),
        s3_object_lock: Some(LockMode::Governance),
        s3_object_lock_days: Some(7),
        ..flags
    }
}

async fn save_small(store: StoreFlags) -> Result<SavedReport, Error> {
    let request = save_request(EtcdFlags::default(), store, Compression::None);
    save_stream(request, stream::iter(messages(&snapshot(64)))).await
}

/// Bytes of the versions that the server keeps of removed or overwritten objects.
fn kept(s3: &S3) -> u64 {
    let folder = s3.folder.path().join("versions");
    files(&folder).iter().map(|file| fs::metadata(folder.join(file)).unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_locked_stays() {
    let s3 = lockable().await;
    let store = locking(s3.flags());
    let saved = save_small(store.clone()).await.unwrap();
    let lock = saved.lock.clone().unwrap();
    assert!(lock.confirmed && lock.mode == LockMode::Governance, "{lock:?}");
    for name in ["snapshot.db", "manifest.json"] {
        let path = format!("locked/pre/fix/{}/{name}", saved.key);
        let told = curl(&s3, "HEAD", &path, &[]);
        assert_eq!(header(&told, "x-amz-object-lock-mode"), Some("governance"), "{told}");
        let until = header(&told, "x-amz-object-lock-retain-until-date").unwrap().to_uppercase();
        let until: Timestamp = until.parse().unwrap();
        // The days of each object count from its own beginning.
        assert!(if name == "manifest.json" { until >= lock.until } else { until == lock.until }, "{name}: {until}");
        let version = header(&told, "x-amz-version-id").unwrap().to_uppercase();
        let removed = curl(&s3, "DELETE", &format!("{path}?versionId={version}"), &[]);
        assert!(removed.starts_with("http/1.1 403"), "{name} was removed: {removed}");
    }
    let manifest = fs::read(s3.folder.path().join("buckets/locked/pre/fix").join(&saved.key).join("manifest.json"));
    let manifest: Value = serde_json::from_slice(&manifest.unwrap()).unwrap();
    assert_eq!(manifest["lock"]["until"], lock.until.to_string());
    assert_eq!(manifest["lock"]["mode"], "GOVERNANCE");
    // The intent is never locked: it has to be removable, and only its delete marker stays in a versioned bucket.
    let (lineage, attempt) = saved.key.rsplit_once('/').unwrap();
    let intent = format!("locked/pre/fix/{lineage}/uploads/{attempt}.json");
    assert!(s3.folder.path().join("buckets").join(&intent).exists(), "{intent} is not where it is looked for");
    let told = curl(&s3, "HEAD", &intent, &[]);
    assert!(told.starts_with("http/1.1 404"), "{told}");

    let ended = probed(&store, None).await;
    let table = ended.probed.table();
    assert!(ended.probed.usable && outcome(&ended, Trial::ObjectLock) == Outcome::Yes, "{table}");
    assert_eq!(outcome(&ended, Trial::Versions), Outcome::Yes, "{table}");
    assert_eq!(ended.probed.left_behind, None);
    // Listings are empty, but the versions stay: the report says so, with the remedy.
    assert!(kept(&s3) > 8 << 20, "{} bytes of old versions", kept(&s3));
    assert!(table.contains("lifecycle rule of the bucket removes noncurrent versions"), "{table}");
}

/// A store stays open for months under a log.
#[tokio::test(flavor = "multi_thread")]
async fn the_days_of_a_lock_count_from_each_object() {
    let s3 = lockable().await;
    let store = Store::open(&locking(s3.flags())).unwrap();
    let folder = Folder::parse("key", "shop/orders/1a2b3c4d/20261121T162233Z-1-2").unwrap();
    for round in 0..2 {
        let day = folder.child(&format!("{round}")).unwrap();
        let before = Timestamp::from_second(Timestamp::now().as_second()).unwrap() + SignedDuration::from_hours(7 * 24);
        store.put_new(&day.manifest(), "small".into()).await.unwrap();
        let told = curl(&s3, "HEAD", &format!("locked/pre/fix/{}", day.manifest()), &[]);
        let until: Timestamp =
            header(&told, "x-amz-object-lock-retain-until-date").unwrap().to_uppercase().parse().unwrap();
        assert!(until >= before, "round {round}: {until} is before {before}");
        let at = Timestamp::now();
        let plan = Plan { estimate: 1, at, until: at, read_back: false, patient: false };
        let mut upload = store.begin(&day.data(Compression::None), plan).await.unwrap();
        upload.write("large".into()).await.unwrap();
        upload.complete().await.unwrap();
        let lock = upload.lock().unwrap();
        assert!(lock.confirmed && lock.until >= before, "round {round}: {lock:?}");
        assert!(store.lock_of(&day.manifest()).await.unwrap().unwrap().asked >= until);
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_not_kept_is_no_backup() {
    let s3 = lockable().await;
    // A bucket without object lock.
    let store = StoreFlags { url: s3.flags().url, ..locking(s3.flags()) };
    let error = save_small(store.clone()).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Config, "{error}");
    assert!(error.message().contains("--s3-object-lock"), "{error}");
    assert_eq!(s3.files(), [] as [&str; 0]);
    let ended = probed(&store, None).await;
    assert!(!ended.probed.usable, "{}", ended.probed.table());
    assert!(ended.failed.unwrap().message().contains("--s3-object-lock"));

    // A store that accepts the option and ignores it.
    let proxy = S3Proxy::before(&s3, |_| Fault::Without("x-amz-object-lock")).await;
    let error = save_small(locking(proxy.flags(&s3))).await.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("--s3-object-lock"), "{error}");
    let manifests = |asked: &crate::s3_proxy::Asked| asked.op == Op::Put && asked.uri.contains("manifest.json");
    assert!(!proxy.asked().iter().any(manifests), "published without its lock");
    // Such a store is probed again and again: the probe does not fill it with versions of the large object.
    let ended = probed(&locking(proxy.flags(&s3)), None).await;
    assert_eq!(ended.failed.as_ref().map(Error::class), Some(ExitClass::Config));
    assert_eq!(outcome(&ended, Trial::Versions), Outcome::Yes, "{}", ended.probed.table());
    assert_eq!(outcome(&ended, Trial::Multipart), Outcome::NotTried, "{}", ended.probed.table());
    assert!(kept(&s3) < 1 << 20, "{} bytes of old versions", kept(&s3));

    // Credentials that may not read: the lock was requested, and no answer confirms it.
    let proxy = S3Proxy::before(&s3, |asked| match asked.op {
        Op::Head => Fault::Answer(403, String::new()),
        _ => Fault::Pass,
    })
    .await;
    let saved = save_small(locking(proxy.flags(&s3))).await.unwrap();
    assert!(!saved.lock.unwrap().confirmed);
}

/// The object of an earlier copy counts only if its lock is as requested.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_locked_as_asked_or_it_is_none() {
    let s3 = lockable().await;
    let locked = locking(s3.flags());
    let plain = StoreFlags { url: locked.url.clone(), ..s3.flags() };
    let longer = StoreFlags { s3_object_lock_days: Some(30), ..locked.clone() };
    let copied = async |key: &str, to: &StoreFlags| {
        let (store, to, key) = (s3.flags(), ToStore(to.clone()), Some(key.to_owned()));
        let asked = CopyRequest { store, to, key, deadline_seconds: 60, ..CopyRequest::default() };
        let copies = copy::run(asked).await.unwrap();
        (copies.copies[0].ended, copies.failed)
    };
    let refused = async |key: &str, to: &StoreFlags, says: &str| {
        let (ended, error) = copied(key, to).await;
        let error = error.unwrap();
        assert_eq!((ended, error.class()), (Ended::Failed, ExitClass::Config), "{error}");
        assert!(error.message().contains("--to-s3-object-lock") && error.message().contains(says), "{error}");
    };

    // Copied without a requested lock.
    let key = save_small(s3.flags()).await.unwrap().key;
    assert_eq!(copied(&key, &plain).await, (Ended::Copied, None));
    refused(&key, &locked, "this object, not locked").await;
    assert_eq!(copied(&key, &plain).await, (Ended::Already, None));

    // The same, and it died before its manifest.
    let key = save_small(s3.flags()).await.unwrap().key;
    let data = Folder::parse("key", &key).unwrap().data(Compression::None);
    let until = Timestamp::now() - SignedDuration::from_hours(1);
    let plan = Plan { estimate: 1, at: until, until, read_back: true, patient: false };
    let mut died = Store::open(&plain).unwrap().begin(&data, plan).await.unwrap();
    died.write(fs::read(s3.file(&key, "snapshot.db")).unwrap().into()).await.unwrap();
    died.complete().await.unwrap();
    refused(&key, &locked, "this object, not locked").await;
    let manifest = s3.folder.path().join("buckets/locked/pre/fix").join(&key).join("manifest.json");
    assert!(!manifest.exists(), "published without its lock");

    // Locked, and asked for again, and for longer.
    let key = save_small(s3.flags()).await.unwrap().key;
    assert_eq!(copied(&key, &locked).await, (Ended::Copied, None));
    assert_eq!(copied(&key, &locked).await, (Ended::Already, None));
    assert_eq!(copied(&key, &plain).await, (Ended::Already, None));
    refused(&key, &longer, "locked until").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_is_refused_before_anything_is_asked() {
    let s3 = S3::start().await;
    let refused = |change: fn(&mut StoreFlags), says: &'static str| {
        let mut store = locking(s3.flags());
        change(&mut store);
        async move {
            let error = save_small(store).await.unwrap_err();
            assert!(error.class() == ExitClass::Config && error.message().contains(says), "{error}");
        }
    };
    refused(|store| store.s3_object_lock_days = Some(0), "--s3-object-lock-days").await;
    refused(|store| store.s3_object_lock_days = Some(u32::MAX), "--s3-object-lock-days").await;
    refused(|store| store.s3_object_lock_days = None, "--s3-object-lock-days").await;
    refused(|store| store.s3_object_lock = None, "--s3-object-lock").await;
    refused(|store| store.s3_checksum = Some(S3Checksum::WhenRequired), "--s3-checksum").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_ones_own_goes_with_every_request_and_is_never_told() {
    let etcd = Etcd::start().await;
    etcd.fill(20, 64 << 10).await;
    let s3 = S3::start().await;
    let key = BASE64_STANDARD.encode([7; 32]);
    let file = s3.folder.path().join("credentials/sseCustomerKey");
    fs::write(&file, format!("{key}\n")).unwrap();
    let proxy = S3Proxy::before(&s3, |_| Fault::Pass).await;
    let store = StoreFlags { s3_sse: Some(S3Sse::Customer), ..proxy.flags(&s3) };
    let saved = save::run(save_request(etcd.flags(), store.clone(), Compression::Zstd)).await.unwrap();
    let volume = tempfile::tempdir().unwrap();
    restore::run(restore_request(store.clone(), &saved.key, volume.path())).await.unwrap();
    let asked = proxy.asked();
    for op in [Op::Create, Op::Part, Op::Put, Op::Get, Op::Head] {
        let mut requests = asked.iter().filter(|asked| asked.op == op).peekable();
        assert!(requests.peek().is_some(), "{op:?} was never asked");
        for asked in requests {
            let given = asked.headers.get("x-amz-server-side-encryption-customer-key");
            assert_eq!(given.and_then(|value| value.to_str().ok()), Some(key.as_str()), "{op:?} {}", asked.uri);
        }
    }

    for (bad, says) in [("", "sseCustomerKey"), ("c2hvcnQ=", "32 bytes"), ("canary-that-is-no-base64!", "32 bytes")] {
        fs::write(&file, bad).unwrap();
        let error = save_small(store.clone()).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Config);
        assert!(error.message().contains(says) && (bad.is_empty() || !error.message().contains(bad)), "{error}");
    }
    fs::write(&file, &key).unwrap();
    for with in [
        StoreFlags { s3_checksum: Some(S3Checksum::Sha256), ..store.clone() },
        StoreFlags { s3_object_lock: Some(LockMode::Governance), s3_object_lock_days: Some(1), ..store.clone() },
    ] {
        let error = save_small(with).await.unwrap_err();
        assert!(
            error.class() == ExitClass::Config && error.message().contains("does not support --s3-sse=SSE-C"),
            "{error}"
        );
    }
    let open = StoreFlags { s3_endpoint: Some("http://192.0.2.1:9000".to_owned()), ..store };
    let error = save_small(open).await.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("https"), "{error}");
}
