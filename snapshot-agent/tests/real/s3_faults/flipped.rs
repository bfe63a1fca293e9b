//! One bit that changes on the way from the store: the stored object is blamed only after a second reading, over another
//! connection, gave the same bytes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_contract::{
    CopyRequest, ExitClass, InspectRequest, LatestRequest, ListRequest, RemoveRequest, SnapshotFlags, StoreFlags,
    ToStore, VerifyRequest,
};

use super::{STREAM, request, rotten};
use crate::faults::{messages, save_stream};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::support::S3;
use futures::stream;
use holdfast_contract::error::Error;
use snapshot_agent::verbs::list::State;
use snapshot_agent::verbs::{copy, inspect, latest, list, remove, verify};

fn verification(store: StoreFlags, key: &str) -> VerifyRequest {
    VerifyRequest {
        snapshot: SnapshotFlags { store: Some(store), key: Some(key.to_owned()), ..SnapshotFlags::default() },
        deadline_seconds: 60,
        ..VerifyRequest::default()
    }
}

fn proofs(s3: &S3) -> Vec<String> {
    s3.files().into_iter().filter(|file| file.contains("/proofs/")).collect()
}

/// A rule that applies the fault to the first request of its kind only.
fn once(of: fn(&Asked) -> bool, fault: Fault) -> impl Fn(&Asked) -> Fault + Send + Sync {
    let done = AtomicBool::new(false);
    move |a| if of(a) && !done.swap(true, Ordering::Relaxed) { fault.clone() } else { Fault::Pass }
}

fn of_data(a: &Asked) -> bool {
    a.op == Op::Get && a.uri.contains("snapshot.db")
}

fn of_manifest(a: &Asked) -> bool {
    a.op == Op::Get && a.uri.contains("manifest.json")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_error_writes_no_proof_and_two_equal_readings_do() {
    let s3 = S3::start().await;
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&STREAM))).await.unwrap();

    for (what, of) in [("data", of_data as fn(&Asked) -> bool), ("manifest", of_manifest)] {
        let proxy = S3Proxy::before(&s3, once(of, Fault::Flip(300))).await;
        let error = verify::run(verification(proxy.flags(&s3), &saved.key)).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Transient, "{what}: {error}");
        assert_eq!(proofs(&s3), [] as [&str; 0], "{what}: {error}");
        let asked = proxy.asked();
        let first = asked.iter().position(of).unwrap();
        let again = asked.iter().rposition(of).unwrap();
        let connection = asked[again].connection;
        assert!(again > first, "{what}: {error}");
        assert_eq!(asked.iter().filter(|a| a.connection == connection).count(), 1, "{what}: it was used before");
    }
    // Each reading differs: that is no verdict either.
    let proxy = S3Proxy::before(&s3, |a| if of_data(a) { Fault::Flip(300 + a.before) } else { Fault::Pass }).await;
    let error = verify::run(verification(proxy.flags(&s3), &saved.key)).await.unwrap_err();
    assert_eq!((error.class(), proofs(&s3).len()), (ExitClass::Transient, 0), "{error}");

    let found = latest::run(of_cluster(s3.flags())).await.unwrap();
    assert!(found.key == saved.key && found.passed_over.is_empty(), "{found:?}");

    let proxy = S3Proxy::before(&s3, |a| rotten(a, 5_000_300)).await;
    let error = verify::run(verification(proxy.flags(&s3), &saved.key)).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
    assert!(matches!(proofs(&s3).as_slice(), [one] if one.ends_with("-failed.json")), "{:?}", proofs(&s3));
}

/// Like a large snapshot: the first reading uses up the deadline, and each range of the second takes a connection of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_broken_is_recorded_though_the_deadline_is_over_by_then() {
    const DEADLINE: u32 = 12;
    let s3 = S3::start().await;
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&STREAM))).await.unwrap();
    let data = s3.file(&saved.key, "snapshot.db");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[5_000_300] ^= 1;
    std::fs::write(&data, &bytes).unwrap();

    let (over, is_over) = tokio::sync::watch::channel(false);
    let begun = AtomicUsize::new(0);
    let range = |a: &Asked| a.headers.get("range").map(|range| range.to_str().unwrap().to_owned()).unwrap_or_default();
    let begins = move |a: &Asked| of_data(a) && range(a).starts_with("bytes=0-");
    let rule = move |a: &Asked| {
        let second = begins(a) && begun.fetch_add(1, Ordering::Relaxed) > 0;
        if second { Fault::When(is_over.clone()) } else { Fault::Pass }
    };
    let proxy = S3Proxy::before(&s3, rule).await;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(u64::from(DEADLINE) + 1)).await;
        over.send_replace(true);
    });
    let asked = VerifyRequest { deadline_seconds: DEADLINE, ..verification(proxy.flags(&s3), &saved.key) };
    let error = verify::run(asked).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
    assert!(matches!(proofs(&s3).as_slice(), [one] if one.ends_with("-failed.json")), "{:?}", proofs(&s3));
    let readings: Vec<_> = proxy.asked().iter().filter(|a| begins(a)).map(range).collect();
    let [first, .., second] = readings.as_slice() else { panic!("two readings: {readings:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("bytes=0-4194303", "bytes=0-8388607"));
}

/// A list while another run removes a snapshot: the manifest goes first.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_removed_meanwhile_hides_no_other() {
    let s3 = S3::start().await;
    let older = save_stream(request(s3.flags()), stream::iter(messages(&STREAM))).await.unwrap();
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&STREAM))).await.unwrap();
    // A manifest in a foreign place, and an unreadable one.
    let (lineage, name) = saved.key.rsplit_once('/').unwrap();
    let json = std::fs::read(s3.file(&saved.key, "manifest.json")).unwrap();
    let (long, mut going) = (vec![b' '; 2 << 20], vec![saved.key.clone()]);
    for (year, content) in [("2091", &json[..]), ("2092", &b"{"[..]), ("2093", &long[..])] {
        let key = format!("{lineage}/{}", name.replacen(&name[..4], year, 1));
        let manifest = s3.file(&key, "manifest.json");
        std::fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        std::fs::write(&manifest, content).unwrap();
        going.push(key);
    }
    let proxy = async || {
        let (going, seen) = (going.clone(), std::sync::Mutex::new(std::collections::HashSet::new()));
        S3Proxy::before(&s3, move |a| {
            let Some(key) = going.iter().find(|key| a.uri.contains(key.as_str())) else { return Fault::Pass };
            // Its first read succeeds.
            let gone = (of_manifest(a) && !seen.lock().unwrap().insert(key.clone()))
                || (a.op == Op::Head && a.uri.contains("snapshot.db"));
            if gone { Fault::Answer(404, error("NoSuchKey")) } else { Fault::Pass }
        })
        .await
    };
    let before = proxy().await;
    let all = ListRequest { store: before.flags(&s3), deadline_seconds: 60, ..ListRequest::default() };
    let mut listed: Vec<_> = list::run(all).await.unwrap().into_iter().map(|one| (one.key, one.state)).collect();
    listed.sort_by(|a, b| a.0.cmp(&b.0));
    let gone = going.iter().map(|key| (key.clone(), State::Incomplete));
    let mut expected: Vec<_> = gone.chain([(older.key.clone(), State::Complete)]).collect();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(listed, expected);

    let before = proxy().await;
    let found = latest::run(of_cluster(before.flags(&s3))).await.unwrap();
    assert_eq!(found.key, older.key);

    let before = proxy().await;
    let find = InspectRequest {
        store: before.flags(&s3),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        owner_uid: request(s3.flags()).owner_uid.unwrap_or_default(),
        deadline_seconds: 60,
        ..InspectRequest::default()
    };
    assert_eq!(inspect::run(find).await.unwrap().key, older.key);
}

fn of_cluster(store: StoreFlags) -> LatestRequest {
    LatestRequest {
        store,
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        deadline_seconds: 60,
        ..LatestRequest::default()
    }
}

/// Every verb reads the manifest again: two different readings are no verdict on the snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_broke_on_the_way_is_neither_broken_nor_missing() {
    let s3 = S3::start().await;
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&STREAM))).await.unwrap();
    let json = std::fs::read(s3.file(&saved.key, "manifest.json")).unwrap();
    // Each of these bytes: the JSON may still be valid, and name another snapshot.
    let passes = |error: &Error, at: usize| assert_eq!(error.class(), ExitClass::Transient, "byte {at}: {error}");
    for at in (0..json.len()).step_by(97) {
        let proxy = S3Proxy::before(&s3, once(of_manifest, Fault::Flip(at))).await;
        match latest::run(of_cluster(proxy.flags(&s3))).await {
            Ok(found) => assert!(found.key == saved.key && found.passed_over.is_empty(), "byte {at}: {found:?}"),
            Err(error) => passes(&error, at),
        }
        let proxy = S3Proxy::before(&s3, once(of_manifest, Fault::Flip(at))).await;
        let find = InspectRequest {
            store: proxy.flags(&s3),
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            owner_uid: request(s3.flags()).owner_uid.unwrap_or_default(),
            deadline_seconds: 60,
            ..InspectRequest::default()
        };
        match inspect::run(find).await {
            Ok(found) => assert_eq!(found.key, saved.key, "byte {at}"),
            Err(error) => passes(&error, at),
        }
        let proxy = S3Proxy::before(&s3, once(of_manifest, Fault::Flip(at))).await;
        let all = ListRequest { store: proxy.flags(&s3), deadline_seconds: 60, ..ListRequest::default() };
        match list::run(all).await {
            Ok(found) => {
                assert!(matches!(found.as_slice(), [one] if one.state == State::Complete), "byte {at}: {found:?}");
            }
            Err(error) => passes(&error, at),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_not_refused_for_what_broke_on_the_way() {
    let (s3, other) = (S3::start().await, S3::start().await);
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&STREAM))).await.unwrap();
    for (what, of) in [("data", of_data as fn(&Asked) -> bool), ("manifest", of_manifest)] {
        let proxy = S3Proxy::before(&s3, once(of, Fault::Flip(301))).await;
        let asked = CopyRequest {
            store: proxy.flags(&s3),
            to: ToStore(other.flags()),
            key: Some(saved.key.clone()),
            deadline_seconds: 60,
            ..CopyRequest::default()
        };
        let copied = copy::run(asked).await.unwrap();
        let failed = copied.failed.expect("what was read is not what was saved");
        assert_eq!(failed.class(), ExitClass::Transient, "{what}: {failed}");
        assert_eq!(other.files(), [] as [&str; 0], "{what}");
    }
}

/// The manifest that a removal names is compared with the stored one.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_is_not_refused_for_what_broke_on_the_way() {
    let s3 = S3::start().await;
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&STREAM))).await.unwrap();
    let proxy = S3Proxy::before(&s3, once(of_manifest, Fault::Flip(400))).await;
    let asked = RemoveRequest {
        store: proxy.flags(&s3),
        key: saved.key.clone(),
        manifest_sha256: saved.manifest_sha256.unwrap(),
        allow_last: true,
        deadline_seconds: 60,
        ..RemoveRequest::default()
    };
    let removed = remove::run(asked).await.unwrap();
    assert!(removed.refused.is_none(), "{removed:?}");
    assert!(!s3.files().iter().any(|file| file.contains("snapshot.db") || file.ends_with("manifest.json")));
}
