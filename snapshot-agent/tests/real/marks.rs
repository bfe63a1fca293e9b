//! A store's ID: created once; another ID, or a missing one where one is expected, is refused before anything is written.

use std::collections::HashSet;
use std::fs;
use std::sync::Mutex;

use holdfast_contract::{
    Compression, CopyRequest, EtcdFlags, ExitClass, InspectRequest, LatestRequest, NEW_STORE, ProbeRequest,
    RestoreRequest, SaveRequest, SavedReport, StoreFlags, ToStore, is_store_id,
};

use crate::backends::Backend;
use crate::faults::{messages, save_stream, snapshot};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::support::{S3, file_store, files, restore_request, save_request};
use futures::stream;
use holdfast_contract::error::Error;
use serde_json::{Value, json};
use snapshot_agent::verbs::probe::{Ended, Outcome, Trial};
use snapshot_agent::verbs::{copy, inspect, latest, probe};

const MARK: &str = "holdfast-store.json";
const OTHER: &str = "ffffffff-0000-4000-8000-000000000000";

async fn probed(store: &StoreFlags, expected: Option<&str>, accepted: Option<&str>) -> Ended {
    let request = ProbeRequest {
        store: store.clone(),
        expect_store_id: expected.map(str::to_owned),
        accept_store_id: accepted.map(str::to_owned),
        deadline_seconds: 60,
        ..ProbeRequest::default()
    };
    probe::run(request).await.unwrap()
}

/// The ID of a usable store.
async fn mark_of(store: &StoreFlags) -> String {
    let ended = probed(store, None, None).await;
    assert!(ended.failed.is_none(), "{:?}", ended.failed);
    ended.probed.store_id.unwrap()
}

async fn saved(store: &StoreFlags, expected: &str, pod: &str) -> Result<SavedReport, Error> {
    let request = SaveRequest {
        expect_store_id: Some(expected.to_owned()),
        pod_uid: Some(pod.to_owned()),
        ..save_request(EtcdFlags::default(), store.clone(), Compression::Zstd)
    };
    save_stream(request, stream::iter(messages(&snapshot(64)))).await
}

/// Leaves the garbage of a writer that died years ago: the next save of its lineage removes it.
async fn leave_garbage(backend: &Backend) -> String {
    let (lineage, attempt) = ("shop/orders/1a2b3c4d", "20240101T000000Z-99887766-dead0000");
    if backend.name == "folder" {
        let temporary = format!("{lineage}/{attempt}/.upload-until-1704067200.tmp");
        backend.put(&temporary, "x").await;
        return temporary;
    }
    let intent = json!({"name": "snapshot.db.zst", "uploadId": "gone", "until": "2024-01-01T00:00:00Z"});
    let name = format!("{lineage}/uploads/{attempt}.json");
    backend.put(&format!("{lineage}/{attempt}/snapshot.db.zst"), "x").await;
    backend.put(&name, &intent.to_string()).await;
    name
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_exchanged_is_not_touched() {
    for backend in Backend::all().await {
        let name = backend.name;
        let (one, two) = tokio::join!(mark_of(&backend.flags), mark_of(&backend.flags));
        assert!(one == two && is_store_id(&one), "{name}: {one} {two}: two at once make one mark");
        assert_eq!(backend.objects().await, [MARK], "{name}");
        let mark = backend.get(MARK).await;
        let said: Value = serde_json::from_slice(&mark).unwrap();
        assert_eq!((&said["formatVersion"], &said["id"]), (&json!(1), &json!(one)), "{name}");
        saved(&backend.flags, &one, "aaaa0000-1").await.unwrap();
        let again = probed(&backend.flags, Some(&one), None).await;
        assert!(again.probed.usable && again.probed.store_id.as_ref() == Some(&one), "{name}: {:?}", again.failed);
        assert_eq!(backend.get(MARK).await, mark, "{name}: a mark is never written again");

        let garbage = leave_garbage(&backend).await;
        let theirs = json!({"formatVersion": 1, "id": OTHER, "createdAt": "2026-11-21T16:22:33Z"}).to_string();
        for (there, words) in [(Some(theirs.as_str()), OTHER), (None, "no store ID"), (Some("?"), "is not valid")] {
            match there {
                Some(content) => backend.put(MARK, content).await,
                None => backend.delete(MARK).await,
            }
            let before = backend.objects().await;
            let refused = saved(&backend.flags, &one, "bbbb0000-2").await.unwrap_err();
            let ended = probed(&backend.flags, Some(&one), None).await;
            let found = (there == Some(theirs.as_str())).then(|| OTHER.to_owned());
            assert_eq!((ended.probed.usable, ended.probed.store_id.clone()), (false, found), "{name}");
            assert_eq!(ended.probed.left_behind, None, "{name}");
            for finding in &ended.probed.findings {
                let wanted = if finding.trial == Trial::StoreId { Outcome::No } else { Outcome::NotTried };
                assert_eq!(finding.outcome, wanted, "{name}: {finding:?}");
            }
            for error in [refused, ended.failed.unwrap()] {
                assert_eq!(error.class(), ExitClass::Refused, "{name}: {error}");
                for word in [&one, words, MARK, "The agent wrote and removed nothing"] {
                    assert!(error.message().contains(word), "{name}: no {word:?} in {error}");
                }
            }
            assert_eq!(backend.objects().await, before, "{name}: nothing written, nothing removed");
            assert!(before.contains(&garbage), "{name}: {before:?}");
            if there.is_none() {
                let other = probed(&backend.flags, Some(&one), Some(OTHER)).await;
                assert!(!other.probed.usable && backend.objects().await == before, "{name}: not what is accepted");
            }
        }

        // Accepted by name; an exchange in the other direction is detected again, and a place without an ID gets one of its own.
        backend.put(MARK, &theirs).await;
        let ended = probed(&backend.flags, Some(&one), Some(OTHER)).await;
        assert!(ended.probed.usable && ended.probed.store_id.as_deref() == Some(OTHER), "{name}: {:?}", ended.failed);
        assert!(!probed(&backend.flags, Some(&one), Some(NEW_STORE)).await.probed.usable, "{name}: it is not new");
        backend.delete(MARK).await;
        let ended = probed(&backend.flags, Some(OTHER), Some(NEW_STORE)).await;
        let new = ended.probed.store_id.unwrap_or_else(|| panic!("{name}: {:?}", ended.failed));
        assert!(new != one && new != OTHER, "{name}");

        // With the right ID, the save cleans up after dead writers.
        saved(&backend.flags, &new, "cccc0000-3").await.unwrap();
        assert!(!backend.objects().await.contains(&garbage), "{name}: {:?}", backend.objects().await);

        // A missing bucket is reported as before.
        let missing = saved(&backend.missing, &one, "dddd0000-4").await.unwrap_err();
        assert_eq!(missing.class(), ExitClass::NotFound, "{name}: {missing}");
    }
}

/// A restore by a key, and the search for the newest, read nothing from a store with another ID.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_restored_from_a_store_that_was_exchanged() {
    let volume = tempfile::tempdir().unwrap();
    for backend in Backend::all().await {
        let name = backend.name;
        let mark = mark_of(&backend.flags).await;
        let SavedReport { key, .. } = saved(&backend.flags, &mark, "aaaa0000-1").await.unwrap();
        let newest = |id: &str| LatestRequest {
            store: backend.flags.clone(),
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            expect_store_id: Some(id.to_owned()),
            deadline_seconds: 60,
            ..LatestRequest::default()
        };
        assert_eq!(latest::run(newest(&mark)).await.unwrap().key, key, "{name}");
        let request = RestoreRequest {
            expect_store_id: Some(OTHER.to_owned()),
            ..restore_request(backend.flags.clone(), &key, volume.path())
        };
        let other = tempfile::tempdir().unwrap();
        let right =
            RestoreRequest { expect_store_id: Some(mark.clone()), volume: other.path().to_owned(), ..request.clone() };
        assert!(!snapshot_agent::verbs::restore::run(right).await.unwrap().already, "{name}: from the right one");
        for refused in [
            latest::run(newest(OTHER)).await.unwrap_err(),
            snapshot_agent::verbs::restore::run(request).await.unwrap_err(),
        ] {
            assert_eq!(refused.class(), ExitClass::Config, "{name}: {refused}");
            assert!([OTHER, &mark, MARK].iter().all(|word| refused.message().contains(word)), "{name}: {refused}");
        }
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0, "{name}: nothing was downloaded");
    }
}

/// The endpoint's name leads to another server that has a bucket of the same name, and uses it.
#[tokio::test(flavor = "multi_thread")]
async fn another_accounts_bucket_of_the_same_name_is_refused() {
    let (ours, theirs) = (S3::start().await, S3::start().await);
    let mark = mark_of(&ours.flags()).await;
    mark_of(&theirs.flags()).await;
    let exchanged = StoreFlags { s3_endpoint: theirs.flags().s3_endpoint, ..ours.flags() };
    let refused = saved(&exchanged, &mark, "aaaa0000-1").await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Refused, "{refused}");
    assert_eq!(theirs.files(), [format!("pre/fix/{MARK}")]);

    // No snapshot is copied there either.
    let mount = tempfile::tempdir().unwrap();
    let mark = mark_of(&file_store(mount.path())).await;
    let kept = saved(&file_store(mount.path()), &mark, "aaaa0000-1").await.unwrap();
    let request = |mark: String| CopyRequest {
        store: file_store(mount.path()),
        to: ToStore(exchanged.clone()),
        to_expect_store_id: Some(mark),
        key: Some(kept.key.clone()),
        deadline_seconds: 60,
        ..CopyRequest::default()
    };
    let refused = copy::run(request(mark)).await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Refused, "{refused}");
    assert_eq!(theirs.files(), [format!("pre/fix/{MARK}")]);
    let copies = copy::run(request(mark_of(&exchanged).await)).await.unwrap();
    assert_eq!((copies.failed, theirs.files().len()), (None, 3));
}

/// Write-only credentials are a careful choice: they make backups, and cannot tell one store from another.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_may_only_write_cannot_look_and_go_on() {
    let s3 = S3::start().await;
    let mark = mark_of(&s3.flags()).await;
    let proxy = S3Proxy::before(&s3, |asked| match asked.op {
        Op::Get | Op::Head | Op::List | Op::Delete | Op::Abort => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    })
    .await;
    let saved = saved(&proxy.flags(&s3), &mark, "aaaa0000-1").await.unwrap();
    assert!(s3.file(&saved.key, "manifest.json").exists());
}

/// A store whose ID these credentials cannot read does not count as another store; a store that gets no ID is usable as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_cannot_be_read_or_made_only_weakens_a_probe() {
    let s3 = S3::start().await;
    let mark = mark_of(&s3.flags()).await;
    let proxy = S3Proxy::before(&s3, |asked| match asked.op {
        Op::Get | Op::Put if asked.uri.contains(MARK) => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    })
    .await;
    for expected in [Some(mark.as_str()), None] {
        let ended = probed(&proxy.flags(&s3), expected, None).await;
        let finding = ended.probed.findings.iter().find(|finding| finding.trial == Trial::StoreId).unwrap();
        assert_eq!(finding.outcome, Outcome::No, "{finding:?}");
        assert!(ended.probed.usable && ended.probed.store_id.is_none(), "{:?}", ended.failed);
    }
}

/// Without the right to read the ID the agent cannot know whether there is one: it does not overwrite it, even if the server
/// ignores conditions.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_cannot_be_read_is_not_written_over() {
    let s3 = S3::start().await;
    let mark = mark_of(&s3.flags()).await;
    let path = s3.bucket().join("pre/fix").join(MARK);
    let before = fs::read(&path).unwrap();
    let hidden = |asked: &Asked| asked.op == Op::Get && asked.uri.contains(MARK);
    let tried = Mutex::new(HashSet::new());
    let proxy = S3Proxy::before(&s3, move |asked| match asked.op {
        _ if hidden(asked) => Fault::Answer(403, error("AccessDenied")),
        // The second conditional put is refused, but not for its condition: such a server does not prove that it keeps conditions.
        Op::Put if asked.uri.ends_with("/try/manifest.json") && !tried.lock().unwrap().insert(asked.uri.clone()) => {
            Fault::Answer(400, error("InvalidArgument"))
        }
        _ => Fault::Pass,
    })
    .await;
    let marks = |proxy: &S3Proxy| {
        let all = proxy.asked();
        all.iter().filter(|asked| asked.op == Op::Put && asked.uri.contains(MARK)).count()
    };
    let trial = |ended: &Ended, trial: Trial| {
        ended.probed.findings.iter().find(|finding| finding.trial == trial).unwrap().outcome
    };
    for _ in 0..2 {
        let ended = probed(&proxy.flags(&s3), None, None).await;
        let table = ended.probed.table();
        assert!(ended.probed.usable && ended.probed.store_id.is_none(), "{:?}\n{table}", ended.failed);
        assert_eq!([Trial::CreateOnly, Trial::StoreId].map(|one| trial(&ended, one)), [Outcome::No; 2], "{table}");
    }
    assert_eq!((marks(&proxy), fs::read(&path).unwrap()), (0, before.clone()), "nobody tried to");
    saved(&s3.flags(), &mark, "aaaa0000-1").await.unwrap();

    // Where the server keeps conditions nothing can be lost: without the right to list, S3 answers the same for a missing ID.
    let careful =
        S3Proxy::before(
            &s3,
            move |asked| {
                if hidden(asked) { Fault::Answer(403, error("AccessDenied")) } else { Fault::Pass }
            },
        )
        .await;
    let ended = probed(&careful.flags(&s3), None, None).await;
    assert_eq!(trial(&ended, Trial::CreateOnly), Outcome::Yes, "{}", ended.probed.table());
    assert!(marks(&careful) > 0 && fs::read(&path).unwrap() == before);
    fs::remove_file(&path).unwrap();
    probed(&careful.flags(&s3), None, None).await;
    assert!(is_store_id(&mark_of(&s3.flags()).await) && path.exists());
}

/// "Not found" is final for the operator, so the agent never reports it of a store that may be another one.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_called_lost_in_a_store_whose_mark_cannot_be_read() {
    let s3 = S3::start().await;
    let mark = mark_of(&s3.flags()).await;
    let proxy = S3Proxy::before(&s3, |asked| match asked.op {
        Op::Get if asked.uri.contains(MARK) => Fault::Answer(403, error("AccessDenied")),
        _ => Fault::Pass,
    })
    .await;
    let save = save_request(EtcdFlags::default(), proxy.flags(&s3), Compression::Zstd);
    let asks = InspectRequest {
        store: save.store,
        expect_store_id: Some(mark.clone()),
        namespace: save.namespace,
        cluster: save.cluster,
        cluster_uid: save.cluster_uid,
        owner_uid: save.owner_uid.unwrap(),
        deadline_seconds: 30,
    };
    let unknown = inspect::run(asks.clone()).await.unwrap_err();
    assert_eq!(unknown.class(), ExitClass::Config, "{unknown}");
    for word in [asks.store.url.as_str(), "another store", "Allow these credentials to read", MARK] {
        assert!(unknown.message().contains(word), "no {word:?} in {unknown}");
    }
    // Credentials that can read the ID, and a request without an expected ID, get "not found".
    for sure in
        [InspectRequest { store: s3.flags(), ..asks.clone() }, InspectRequest { expect_store_id: None, ..asks.clone() }]
    {
        let error = inspect::run(sure).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::NotFound, "{error}");
    }
    // An existing snapshot is found.
    let report = saved(&s3.flags(), &mark, "aaaa0000-1").await.unwrap();
    assert_eq!(inspect::run(asks).await.unwrap().key, report.key);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_cannot_be_asked_for_now_is_trouble_that_passes() {
    let s3 = S3::start().await;
    let mark = mark_of(&s3.flags()).await;
    let proxy = S3Proxy::before(&s3, |asked| match asked.op {
        Op::Get if asked.uri.contains(MARK) => Fault::Answer(503, error("SlowDown")),
        _ => Fault::Pass,
    })
    .await;
    let failed = saved(&proxy.flags(&s3), &mark, "aaaa0000-1").await.unwrap_err();
    assert_eq!(failed.class(), ExitClass::Transient, "{failed}");
    assert_eq!((proxy.count(Op::Create), proxy.count(Op::Put), proxy.count(Op::Delete)), (0, 0, 0));
}

/// A volume that was exchanged for an empty one: no snapshot is found there, and none is written there.
#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_volume_is_refused() {
    let mount = tempfile::tempdir().unwrap();
    let mark = mark_of(&file_store(mount.path())).await;
    saved(&file_store(mount.path()), &mark, "aaaa0000-1").await.unwrap();
    let empty = tempfile::tempdir().unwrap();
    let refused = saved(&file_store(empty.path()), &mark, "aaaa0000-1").await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Refused, "{refused}");
    assert_eq!(files(empty.path()), [] as [&str; 0]);
}
