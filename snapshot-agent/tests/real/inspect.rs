//! A lost report is found again in a real store, among more folders than fit on one page of a listing; and "not found" is reported
//! only of a store that exists and has the expected ID.

use std::fs;
use std::process::Command;

use holdfast_contract::{Compression, EtcdFlags, ExitClass, InspectRequest, SaveRequest, SavedReport, StoreFlags};

use crate::backends::Backend;
use crate::faults::{messages, save_stream, snapshot};
use crate::support::{S3, Small, file_store, save_request};
use futures::stream;
use serde_json::json;
use snapshot_agent::catalog::recall;
use snapshot_agent::verbs::inspect;

/// The operator's request after this save.
fn request(save: &SaveRequest) -> InspectRequest {
    InspectRequest {
        store: save.store.clone(),
        expect_store_id: None,
        namespace: save.namespace.clone(),
        cluster: save.cluster.clone(),
        cluster_uid: save.cluster_uid.clone(),
        owner_uid: save.owner_uid.clone().unwrap(),
        deadline_seconds: 30,
    }
}

async fn saved(store: StoreFlags, owner: &str) -> (SaveRequest, SavedReport) {
    let request = SaveRequest {
        owner_uid: Some(owner.to_owned()),
        ..save_request(EtcdFlags::default(), store, Compression::Zstd)
    };
    let report = save_stream(request.clone(), stream::iter(messages(&snapshot(64)))).await.unwrap();
    (request, report)
}

/// A report without the measurements of the save, which no manifest holds.
fn comparable(report: SavedReport) -> SavedReport {
    SavedReport { millis: 0, peak_rss_bytes: None, ..report }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_report_is_found_again() {
    let s3 = S3::start().await;
    let mount = tempfile::tempdir().unwrap();
    for store in [s3.flags(), file_store(mount.path())] {
        let (save, report) = saved(store.clone(), "99887766-0000-4000-8000-000000000001").await;
        // Another object's snapshot under the same mount, and a snapshot without an owner.
        saved(store.clone(), "99887766-0000-4000-8000-000000000002").await;
        saved(store.clone(), "0000aaaa-0000").await;
        let found = inspect::run(request(&save)).await.unwrap();
        assert_eq!(comparable(found), comparable(report.clone()));
        let any = InspectRequest { cluster_uid: None, ..request(&save) };
        assert_eq!(inspect::run(any).await.unwrap().key, report.key);

        let other_cluster = InspectRequest { cluster_uid: Some("ffffffff-0".to_owned()), ..request(&save) };
        let error = inspect::run(other_cluster).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::NotFound);
        assert!(error.message().contains("of 0 folders"), "{error}");
        let nobody = InspectRequest { owner_uid: "99887766-9".to_owned(), ..request(&save) };
        let error = inspect::run(nobody).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::NotFound);
        assert!(error.message().contains("of 3 folders, 2 have this UID in their names, and 0 of these"), "{error}");
    }
    // First the data are removed, then the manifest.
    let (save, report) = saved(s3.flags(), "99887766-0000-4000-8000-000000000003").await;
    fs::remove_file(s3.file(&report.key, "snapshot.db.zst")).unwrap();
    let error = inspect::run(request(&save)).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::NotFound);
    assert!(error.message().contains("its data does not"), "{error}");
    fs::remove_file(s3.file(&report.key, "manifest.json")).unwrap();
    inspect::run(request(&save)).await.unwrap_err();
}

/// A published snapshot must not be called lost because DNS names lead elsewhere for a while.
#[tokio::test(flavor = "multi_thread")]
async fn another_store_or_none_says_nothing_of_what_was_saved() {
    const MARK: &str = "holdfast-store.json";
    const OURS: &str = "0a1b2c3d-0000-4000-8000-000000000000";
    const THEIRS: &str = "ffffffff-0000-4000-8000-000000000000";
    for backend in Backend::all().await {
        let name = backend.name;
        let (save, report) = saved(backend.flags.clone(), "99887766-0000-4000-8000-000000000004").await;
        let expecting = |id: &str| InspectRequest { expect_store_id: Some(id.to_owned()), ..request(&save) };
        for asks in [request(&save), expecting(OURS)] {
            let error = inspect::run(InspectRequest { store: backend.missing.clone(), ..asks }).await.unwrap_err();
            assert_eq!(error.class(), ExitClass::Config, "{name}: {error}");
            assert!(error.message().contains(&backend.missing.url), "{name}: {error}");
        }

        let mark = |id: &str| json!({"formatVersion": 1, "id": id}).to_string();
        backend.put(MARK, &mark(OURS)).await;
        assert_eq!(inspect::run(expecting(OURS)).await.unwrap().key, report.key, "{name}");
        // For an owner with a snapshot, and for an owner without one.
        let nobody = InspectRequest { owner_uid: "77777777-9".to_owned(), ..expecting(OURS) };
        assert_eq!(inspect::run(nobody.clone()).await.unwrap_err().class(), ExitClass::NotFound, "{name}");
        for there in [Some(THEIRS), None] {
            match there {
                Some(id) => backend.put(MARK, &mark(id)).await,
                None => backend.delete(MARK).await,
            }
            for asks in [expecting(OURS), nobody.clone()] {
                let error = inspect::run(asks).await.unwrap_err();
                assert_eq!(error.class(), ExitClass::Refused, "{name}, {there:?}: {error}");
                for word in [OURS, there.unwrap_or("no store ID")] {
                    assert!(error.message().contains(word), "{name}: no {word:?} in {error}");
                }
            }
        }
    }
}

/// The operator mounts the volume read-only, and no save has created its folder yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_no_save_has_made_yet_has_nothing() {
    let volume = Small::of("1m");
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(volume.path()).status().unwrap();
    assert!(remounted.success());
    let store = StoreFlags { mount: Some(volume.path().to_owned()), ..file_store(&volume.path().join("etcd")) };
    let save = save_request(EtcdFlags::default(), store, Compression::Zstd);
    let error = inspect::run(request(&save)).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::NotFound, "{error}");
    assert!(error.message().contains("of 0 folders"), "{error}");

    // Where a store has an ID, a save has created its folder once.
    let marked = InspectRequest { expect_store_id: Some("0a1b2c3d-0000".to_owned()), ..request(&save) };
    assert_eq!(inspect::run(marked).await.unwrap_err().class(), ExitClass::Config);
}

/// The manifest alone suffices to create a cluster again.
#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_s_spec_is_in_the_store() {
    let mount = tempfile::tempdir().unwrap();
    let spec = serde_json::json!({"replicas": 3, "version": "3.6.16", "nodeSelector": {"a": "b"}});
    let request = SaveRequest {
        cluster_spec: Some(spec.to_string()),
        ..save_request(EtcdFlags::default(), file_store(mount.path()), Compression::Zstd)
    };
    let report = save_stream(request.clone(), stream::iter(messages(&snapshot(64)))).await.unwrap();
    let manifest = recall::manifest(&request.store, &report.key, 20).await.unwrap();
    assert_eq!(manifest.cluster_spec.map(serde_json::Value::Object), Some(spec));
    let nothing = recall::manifest(&request.store, "shop/orders/1a2b3c4d/x", 20).await.unwrap_err();
    assert_eq!(nothing.class(), ExitClass::NotFound);

    for bad in ["[]", "{", "\"canary\""] {
        let request = SaveRequest { cluster_spec: Some(bad.to_owned()), ..request.clone() };
        let error = save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap_err();
        assert!(error.class() == ExitClass::Config && error.message().contains("--cluster-spec"), "{error}");
    }
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(70_000));
    let request = SaveRequest { cluster_spec: Some(long), ..request };
    let error = save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap_err();
    assert!(error.message().contains("longer than"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_of_a_long_lineage_are_read() {
    let s3 = S3::start().await;
    // Among more folders than one page has, written where the server keeps its objects.
    let (save, report) = saved(s3.flags(), "99887766-0000").await;
    let lineage = s3.file(&report.key, "").parent().unwrap().to_owned();
    for number in 0..2300_u32 {
        let folder = lineage.join(format!("2024{number:04}T000000Z-0000aaaa-{number:08}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("manifest.json"), "{}").unwrap();
    }
    assert_eq!(inspect::run(request(&save)).await.unwrap().key, report.key);
    let nobody = InspectRequest { owner_uid: "77777777-9".to_owned(), ..request(&save) };
    let error = inspect::run(nobody).await.unwrap_err();
    assert!(error.message().contains("of 2301 folders, 0 have this UID in their names"), "{error}");
}
