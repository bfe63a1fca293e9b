//! Leftovers of dead saves, and two saves of one object at once: no key twice, no manifest of half a snapshot, no leak.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use holdfast_contract::{Compression, EtcdFlags, ExitClass, InspectRequest, ProbeRequest, SaveRequest};

use crate::faults::{messages, save_stream, snapshot};
use crate::front::Mischief;
use crate::s3_proxy::{Fault, Op, S3Proxy};
use crate::support::{Etcd, S3, child, child_request, eventually, file_store, save_request, to_input};
use futures::stream;
use serde_json::{Value, json};
use snapshot_agent::verbs::{inspect, probe, save};

/// The child half: the process that is killed.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn is_killed_while_saving() {
    let request = child_request();
    save::run(request).await.unwrap();
}

fn intents(s3: &S3, lineage: &str) -> Vec<PathBuf> {
    let folder = s3.file("shop/orders", lineage).join("uploads");
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Number of uploads of which the server keeps parts, each in a folder of its own outside the prefix.
pub(crate) fn uploads_with_parts(s3: &S3) -> usize {
    let files = s3.files();
    let parts = files.iter().filter(|file| !file.contains("pre/fix"));
    parts.filter_map(|file| Path::new(file).parent()).collect::<BTreeSet<_>>().len()
}

fn objects(s3: &S3) -> usize {
    s3.files().iter().filter(|file| file.contains("pre/fix")).count()
}

/// Sets the deadline in an intent.
fn until(intent: &PathBuf, until: &str) {
    let mut json: Value = serde_json::from_slice(&fs::read(intent).unwrap()).unwrap();
    json["until"] = json!(until);
    fs::write(intent, json.to_string()).unwrap();
}

async fn save_small(request: &SaveRequest) {
    save_stream(request.clone(), stream::iter(messages(&snapshot(64)))).await.unwrap();
}

/// No later run looks for a probe's leftovers: a probe removes its own uploads, whenever its deadline passes.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_is_cut_short_leaves_no_upload() {
    let s3 = S3::start().await;
    let proxy = S3Proxy::before(&s3, |asked| match asked.op {
        Op::Part if asked.before > 0 => Fault::Silence,
        _ => Fault::Pass,
    })
    .await;
    let probing = ProbeRequest { store: proxy.flags(&s3), deadline_seconds: 15, ..ProbeRequest::default() };
    let ended = probe::run(probing).await.unwrap();
    assert!(proxy.count(Op::Part) > 1, "it was not in the middle of an upload: {}", ended.probed.table());
    assert!(!ended.probed.usable && ended.probed.left_behind.is_none(), "{}", ended.probed.table());
    assert_eq!(uploads_with_parts(&s3), 0, "{:?}", s3.files());
    assert!(s3.files().iter().all(|file| !file.contains(".holdfast-probe-")), "{:?}", s3.files());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_uploading_it_leaves_no_backup_and_the_next_run_cleans_up() {
    let etcd = Etcd::start().await;
    etcd.fill(40, 1 << 20).await;
    let s3 = S3::start().await;
    // The stream stops in its second half, after some parts were uploaded.
    let proxy = Mischief::Freeze(30 << 20).before(&etcd.url).await;
    let dies = SaveRequest {
        etcd: EtcdFlags { endpoints: vec![proxy.url()], ..EtcdFlags::default() },
        pod_uid: Some("dead-0000".to_owned()),
        ..save_request(etcd.flags(), s3.flags(), Compression::None)
    };
    // Encrypted: its data object has another name.
    let elsewhere = SaveRequest {
        cluster_uid: Some("ffff0000-0".to_owned()),
        age_recipients: vec![crate::age::PAIRS[0].0.to_owned()],
        ..dies.clone()
    };
    for (count, request, lineage) in [(1, &dies, "1a2b3c4d"), (2, &elsewhere, "ffff0000")] {
        let output = fs::File::create(s3.folder.path().join(lineage)).unwrap();
        let mut command = child("orphans::is_killed_while_saving", &to_input(request));
        let mut process = command.stdout(Stdio::null()).stderr(output).spawn().unwrap();
        eventually("the intent", async || (!intents(&s3, lineage).is_empty()).then_some(())).await;
        eventually("a part", async || (uploads_with_parts(&s3) == count).then_some(())).await;
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let find = InspectRequest {
        store: s3.flags(),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        owner_uid: dies.owner_uid.clone().unwrap(),
        deadline_seconds: 30,
        ..InspectRequest::default()
    };
    assert_eq!(inspect::run(find.clone()).await.unwrap_err().class(), ExitClass::NotFound, "no manifest, no backup");

    // The next run of that lineage leaves a writer that may still live alone: until its deadline, and ten minutes more.
    let next = SaveRequest {
        pod_uid: Some("next-0000".to_owned()),
        ..save_request(EtcdFlags::default(), s3.flags(), Compression::Zstd)
    };
    let [intent] = &intents(&s3, "1a2b3c4d")[..] else { panic!("one intent") };
    let json = fs::read_to_string(intent).unwrap();
    assert!(!json.contains("secret"), "{json}");
    save_small(&next).await;
    assert_eq!((objects(&s3), uploads_with_parts(&s3)), (4, 2), "data and manifest more, and nothing gone");

    // Its deadline has passed, and that of the other lineage too, which this run does not judge.
    until(intent, "2024-01-01T00:00:00Z");
    until(&intents(&s3, "ffff0000")[0], "2024-01-01T00:00:00Z");
    save_small(&SaveRequest { pod_uid: Some("later-000".to_owned()), ..next.clone() }).await;
    assert_eq!(intents(&s3, "1a2b3c4d").len(), 0);
    assert_eq!(intents(&s3, "ffff0000").len(), 1);
    assert_eq!(uploads_with_parts(&s3), 1, "the other lineage's: {:?}", s3.files());
    let there =
        SaveRequest { cluster_uid: elsewhere.cluster_uid.clone(), pod_uid: Some("there-00".to_owned()), ..next };
    save_small(&there).await;
    assert_eq!(uploads_with_parts(&s3), 0, "{:?}", s3.files());
    assert_eq!(s3.files().len(), 6, "three snapshots: {:?}", s3.files());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_was_forgotten_takes_no_backup_along() {
    let s3 = S3::start().await;
    let request = |pod: &str| SaveRequest {
        pod_uid: Some(pod.to_owned()),
        ..save_request(EtcdFlags::default(), s3.flags(), Compression::Zstd)
    };
    let published = save_stream(request("p1-0"), stream::iter(messages(&snapshot(64)))).await.unwrap();
    let orphan = save_stream(request("p2-0"), stream::iter(messages(&snapshot(64)))).await.unwrap();
    // The second save died between its data and its manifest.
    fs::remove_file(s3.file(&orphan.key, "manifest.json")).unwrap();
    let forget = |key: &str, name: &str| {
        let attempt = key.rsplit('/').next().unwrap();
        let folder = s3.file("shop/orders", "1a2b3c4d").join("uploads");
        fs::create_dir_all(&folder).unwrap();
        let intent = json!({"name": name, "uploadId": "gone", "until": "2024-01-01T00:00:00Z"});
        fs::write(folder.join(format!("{attempt}.json")), intent.to_string()).unwrap();
    };
    forget(&published.key, "snapshot.db.zst");
    forget(&orphan.key, "snapshot.db.zst");
    // An intent that names no data object, and one that belongs to no attempt.
    forget("x/20261121T162233Z-99887766-abcdef01", "../../precious");
    forget("x/precious", "snapshot.db.zst");
    // And an unreadable intent, before all the others.
    let torn = s3.file("shop/orders", "1a2b3c4d").join("uploads/20000101T000000Z-99887766-abcdef01.json");
    fs::write(torn, "{").unwrap();
    save_small(&request("p3-0")).await;
    let files = s3.files();
    assert!(s3.file(&published.key, "snapshot.db.zst").exists(), "{files:?}");
    assert!(!s3.file(&orphan.key, "snapshot.db.zst").exists(), "{files:?}");
    assert_eq!(intents(&s3, "1a2b3c4d").len(), 2, "only what says nothing stays: {files:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_of_one_job_save_under_two_keys() {
    let s3 = S3::start().await;
    let mount = tempfile::tempdir().unwrap();
    for store in [s3.flags(), file_store(mount.path())] {
        let request = |pod: &str| SaveRequest {
            pod_uid: Some(pod.to_owned()),
            ..save_request(EtcdFlags::default(), store.clone(), Compression::Zstd)
        };
        let bytes = snapshot(2000);
        let (one, two) = tokio::join!(
            save_stream(request("aaaaaaaa-1"), stream::iter(messages(&bytes))),
            save_stream(request("bbbbbbbb-2"), stream::iter(messages(&bytes))),
        );
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_ne!(one.key, two.key);
        let find = InspectRequest {
            expect_store_id: None,
            store: store.clone(),
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            cluster_uid: request("x").cluster_uid,
            owner_uid: request("x").owner_uid.unwrap(),
            deadline_seconds: 30,
        };
        let found = inspect::run(find.clone()).await.unwrap();
        assert!([&one.key, &two.key].contains(&&found.key));
        assert_eq!(inspect::run(find).await.unwrap(), found, "always the same one");
    }
}
