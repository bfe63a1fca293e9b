//! One suite for every kind of store: the promises of `crates/store`, and the findings of `agent probe`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use holdfast_contract::{
    Compression, EtcdFlags, ExitClass, InspectRequest, LatestRequest, ListRequest, ProbeRequest, S3Checksum,
    SaveRequest, StoreFlags,
};

use crate::backends::Backend;
use crate::faults::{messages, save_stream, snapshot};
use crate::front::Front;
use crate::support::{Etcd, child, child_input, finish_child, restore_request, save_request};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use snapshot_agent::verbs::probe::{Outcome, Trial};
use snapshot_agent::verbs::{inspect, latest, list, probe, restore, save};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn request(store: &StoreFlags, pod: &str) -> SaveRequest {
    SaveRequest {
        pod_uid: Some(pod.to_owned()),
        ..save_request(EtcdFlags::default(), store.clone(), Compression::None)
    }
}

async fn save_small(store: &StoreFlags, pod: &str) -> holdfast_contract::SavedReport {
    save_stream(request(store, pod), stream::iter(messages(&snapshot(64)))).await.unwrap()
}

fn find(store: &StoreFlags) -> InspectRequest {
    let request = request(store, "x");
    InspectRequest {
        store: request.store,
        expect_store_id: None,
        namespace: request.namespace,
        cluster: request.cluster,
        cluster_uid: request.cluster_uid,
        owner_uid: request.owner_uid.unwrap(),
        deadline_seconds: 30,
    }
}

fn newest(store: &StoreFlags) -> LatestRequest {
    let InspectRequest { store, namespace, cluster, deadline_seconds, .. } = find(store);
    LatestRequest { store, namespace, cluster, deadline_seconds, ..LatestRequest::default() }
}

/// Waits until the server keeps no part of an upload: servers write their state every few seconds.
async fn no_parts(backend: &Backend) {
    let until = Instant::now() + Duration::from_secs(20);
    while !backend.parts().is_empty() {
        assert!(Instant::now() < until, "{} keeps {:?}", backend.name, backend.parts());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Real etcd, more parts than an upload has in flight, and a restore.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_saved_comes_back() {
    let etcd = Etcd::start().await;
    etcd.fill(50, 1 << 20).await;
    for backend in Backend::all().await {
        let name = backend.name;
        let mut request = save_request(etcd.flags(), backend.flags.clone(), Compression::Zstd);
        request.pod_uid = Some("aaaa0000-1".to_owned());
        let first = save::run(request.clone()).await.unwrap();
        assert!(first.stored_bytes > 5 * (8 << 20), "{name}: {}", first.stored_bytes);
        request.pod_uid = Some("bbbb0000-2".to_owned());
        let second = save::run(request).await.unwrap();
        assert_ne!(first.key, second.key, "{name}");
        assert_eq!(backend.objects().await.len(), 4, "{name}: two snapshots, two manifests and nothing else");

        let found = inspect::run(find(&backend.flags)).await.unwrap();
        assert_eq!(found.key, first.key, "{name}: the oldest of one owner");
        let found = latest::run(newest(&backend.flags)).await.unwrap();
        assert_eq!(
            (found.key, found.uri, found.sha256),
            (second.key.clone(), second.uri.clone(), second.sha256.clone())
        );
        let volume = tempfile::tempdir().unwrap();
        let restored = restore::run(restore_request(backend.flags.clone(), &second.key, volume.path())).await.unwrap();
        assert_eq!((restored.sha256, restored.uri), (second.sha256, second.uri), "{name}");

        // Exchanged under the same name, with the same length.
        let data = format!("{}/snapshot.db.zst", first.key);
        let mut content = backend.get(&data).await.to_vec();
        content.truncate(1000);
        backend.put(&data, &String::from_utf8_lossy(&content)).await;
        let volume = tempfile::tempdir().unwrap();
        let error = restore::run(restore_request(backend.flags.clone(), &first.key, volume.path())).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Corrupt, "{name}: {error}");
        backend.delete(&format!("{}/manifest.json", first.key)).await;
        assert_eq!(inspect::run(find(&backend.flags)).await.unwrap().key, restored_key(&backend).await, "{name}");
    }
}

/// The key of the only snapshot with a manifest.
async fn restored_key(backend: &Backend) -> String {
    let objects = backend.objects().await;
    let manifest = objects.iter().find_map(|object| object.strip_suffix("/manifest.json"));
    manifest.unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_there_is_not_overwritten() {
    for backend in Backend::all().await {
        let name = backend.name;
        // Another writer's manifest appears during the upload of the data.
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let bytes = snapshot(64);
        let (early, late) = bytes.split_at(100_000);
        let late = messages(late);
        let held_up = stream::once(receiver).flat_map(move |_| stream::iter(late.clone()));
        let stream = stream::iter(messages(early)).chain(held_up).boxed();
        let saving = tokio::spawn(save_stream(request(&backend.flags, "aaaa0000-1"), stream));
        // The intent, or a folder's temporary file, shows the attempt's folder.
        let attempt = crate::support::eventually("the attempt", async || {
            let objects = backend.objects().await;
            objects.iter().find_map(|object| {
                let intent = object.strip_suffix(".json").map(|object| object.replace("/uploads/", "/"));
                intent.or_else(|| Some(object.rsplit_once("/.upload-")?.0.to_owned()))
            })
        })
        .await;
        let manifest = format!("{attempt}/manifest.json");
        backend.put(&manifest, "somebody else's").await;
        sender.send(()).unwrap();
        let error = saving.await.unwrap().unwrap_err();
        assert_eq!(error.class(), ExitClass::Transient, "{name}: {error}");
        assert_eq!(backend.get(&manifest).await, Bytes::from_static(b"somebody else's"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_save_leaves_nothing() {
    for backend in Backend::all().await {
        let name = backend.name;
        backend.put("shop/orders/1a2b3c4d/theirs/precious", "x").await;
        // Three whole parts are in the store when the stream breaks; then a save that reaches its deadline.
        let mut broken = messages(&snapshot(7000)[..27 << 20]);
        broken.push(Err(holdfast_contract::error::Error::transient("the member is gone")));
        let error = save_stream(request(&backend.flags, "aaaa0000-1"), stream::iter(broken)).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Transient, "{name}: {error}");
        let mut late = request(&backend.flags, "bbbb0000-2");
        late.deadline_seconds = 2;
        let stream = stream::iter(messages(&snapshot(5000))).chain(stream::pending());
        let error = save_stream(late, stream).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Deadline, "{name}: {error}");
        assert_eq!(backend.objects().await, ["shop/orders/1a2b3c4d/theirs/precious"], "{name}");
        no_parts(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_run_left_is_cleaned_by_the_next_and_nothing_else() {
    for backend in Backend::all().await.into_iter().skip(1) {
        let name = backend.name;
        let lineage = "shop/orders/1a2b3c4d";
        let foreign = ["shop/orders/1a2b3c4d/theirs", "shop/orders/ffff0000/uploads/x.json", "other"];
        for object in foreign {
            backend.put(object, "x").await;
        }
        // Dropped without a cleanup, like a killed process: parts and the intent are in the store.
        let stream = stream::iter(messages(&snapshot(7000)[..27 << 20])).chain(stream::pending());
        let dead = tokio::spawn(save_stream(request(&backend.flags, "dead0000-1"), stream));
        crate::support::eventually("the first part", async || (!backend.parts().is_empty()).then_some(())).await;
        dead.abort();
        let _dropped = dead.await;
        let intent = backend.objects().await.into_iter().find(|object| object.contains("-dead0000.json")).unwrap();

        // While the writer may live, its files stay.
        save_small(&backend.flags, "next0000-2").await;
        assert!(backend.objects().await.contains(&intent), "{name}");
        // Its deadline has passed; so has that of an attempt whose manifest was written, and that is a backup.
        let mut said: Value = serde_json::from_slice(&backend.get(&intent).await).unwrap();
        said["until"] = json!("2024-01-01T00:00:00Z");
        backend.put(&intent, &said.to_string()).await;
        let kept = save_small(&backend.flags, "kept0000-3").await;
        said["name"] = json!("snapshot.db");
        let kept_name = kept.key.rsplit('/').next().unwrap();
        backend.put(&format!("{lineage}/uploads/{kept_name}.json"), &said.to_string()).await;
        save_small(&backend.flags, "last0000-4").await;
        let objects = backend.objects().await;
        assert!(
            !objects.iter().any(|object| object.starts_with(&format!("{lineage}/uploads/"))),
            "{name}: {objects:?}"
        );
        assert!(!objects.iter().any(|object| object.contains("-dead0000/")), "{name}: {objects:?}");
        assert_eq!(objects.len(), foreign.len() + 3 * 2, "{name}: {objects:?}");
        assert!(foreign.iter().all(|object| objects.iter().any(|there| there == object)), "{name}: {objects:?}");
        no_parts(&backend).await;
    }
}

/// Errors of save and inspect with a store, each within 30 s. A missing store is "not found" only to save: to inspect, that would
/// be an answer about the snapshot.
async fn classes(store: &StoreFlags) -> [(ExitClass, String); 2] {
    let begun = Instant::now();
    let save = save_stream(request(store, "aaaa0000-1"), stream::pending()).await.unwrap_err();
    let inspect = inspect::run(find(store)).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_mins(1), "took {:?}", begun.elapsed());
    [save, inspect].map(|error| (error.class(), error.message().to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_has_the_same_class_everywhere() {
    for backend in Backend::all().await {
        let name = backend.name;
        for (store, expected) in [
            (backend.wrong.as_ref(), [ExitClass::Denied; 2]),
            (Some(&backend.missing), [ExitClass::NotFound, ExitClass::Config]),
            (backend.unreachable.as_ref(), [ExitClass::Transient; 2]),
        ] {
            let Some(store) = store else { continue };
            for ((class, message), wanted) in classes(store).await.into_iter().zip(expected) {
                assert_eq!(class, wanted, "{name}: {message}");
                assert!(!message.contains("canary") && !message.contains("Y2FuYXJ5"), "{name}: {message}");
            }
        }
        assert_eq!(backend.objects().await, [] as [&str; 0], "{name}");
        let gone = restore_request(backend.flags.clone(), "shop/orders/1a2b3c4d/none", backend.scratch());
        let error = restore::run(RestoreIn::fresh(gone)).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::NotFound, "{name}: {error}");
    }
}

/// A restore into an empty folder.
struct RestoreIn;

impl RestoreIn {
    fn fresh(mut request: holdfast_contract::RestoreRequest) -> holdfast_contract::RestoreRequest {
        request.volume = request.volume.join("volume");
        std::fs::create_dir(&request.volume).unwrap();
        request
    }
}

/// Trials that a usable store has to pass: all but the removal of what was written.
pub(crate) const NEEDED: [Trial; 5] =
    [Trial::ReadAfterWrite, Trial::CreateOnly, Trial::ListAfterWrite, Trial::Multipart, Trial::StoreId];

pub(crate) fn probing(store: &StoreFlags, readers: Option<&Path>) -> ProbeRequest {
    let read_credentials_dir = readers.map(Path::to_owned);
    ProbeRequest { store: store.clone(), read_credentials_dir, deadline_seconds: 60, ..ProbeRequest::default() }
}

pub(crate) async fn probed(store: &StoreFlags, readers: Option<&Path>) -> probe::Ended {
    probe::run(probing(store, readers)).await.unwrap()
}

pub(crate) fn outcome(ended: &probe::Ended, trial: Trial) -> Outcome {
    ended.probed.findings.iter().find(|found| found.trial == trial).unwrap().outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_says_what_a_store_does_and_leaves_its_mark_alone() {
    for backend in Backend::all().await {
        let name = backend.name;
        backend.put("shop/precious", "x").await;
        let ended = probed(&backend.flags, None).await;
        let table = ended.probed.table();
        assert!(!table.contains("is no key"), "{name}: {table}");
        assert!(ended.failed.is_none() && ended.probed.usable, "{name}: {:?}\n{table}", ended.failed);
        assert_eq!(ended.probed.left_behind, None, "{name}");
        assert_eq!(backend.objects().await, ["holdfast-store.json", "shop/precious"], "{name}");
        for trial in NEEDED.into_iter().chain([Trial::Delete]) {
            assert_eq!(outcome(&ended, trial), Outcome::Yes, "{name}:\n{table}");
        }

        for (store, wanted) in
            [(backend.wrong.as_ref(), ExitClass::Denied), (Some(&backend.missing), ExitClass::NotFound)]
        {
            let Some(store) = store else { continue };
            match probe::run(probing(store, None)).await {
                Err(error) => assert_eq!(error.class(), wanted, "{name}: {error}"),
                Ok(ended) => {
                    let error = ended.failed.as_ref().unwrap();
                    assert_eq!(error.class(), wanted, "{name}: {error}");
                    assert_eq!(outcome(&ended, Trial::ReadAfterWrite), Outcome::No, "{name}");
                    assert_eq!(outcome(&ended, Trial::Multipart), Outcome::NotTried, "{name}");
                }
            }
        }
    }
}

/// A proxy that hides a put's condition from the server, by renaming the header: the server then ignores conditions.
async fn deaf(server: &str) -> Front {
    let server = server.to_owned();
    Front::of(move |client, _| {
        let server = server.clone();
        async move {
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = TcpStream::connect(server).await?.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let mut buffer = vec![0; 64 << 10];
            loop {
                let got = from_client.read(&mut buffer).await?;
                if got == 0 {
                    return Ok(());
                }
                let said = &mut buffer[..got];
                if let Some(at) = said.windows(13).position(|window| window == b"if-none-match") {
                    said[at..at + 13].copy_from_slice(b"x-passed-over");
                }
                to_server.write_all(said).await?;
            }
        }
    })
    .await
}

/// With a signature instead of the key, because the headers are not signed then.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_overwrites_is_found_out_and_a_signature_will_do() {
    let backend = Backend::azure().await;
    let signed = backend.with_signature();
    save_small(&signed, "aaaa0000-1").await;
    let ended = probed(&signed, None).await;
    assert_eq!(outcome(&ended, Trial::CreateOnly), Outcome::Yes, "{}", ended.probed.table());
    assert_eq!(outcome(&ended, Trial::Delete), Outcome::Yes, "{}", ended.probed.table());

    let endpoint = signed.azure_endpoint.clone().unwrap();
    let (server, account) = endpoint.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let deaf = deaf(server).await;
    let store = StoreFlags { azure_endpoint: Some(format!("{}/{account}", deaf.url())), ..signed };
    let ended = probed(&store, None).await;
    let table = ended.probed.table();
    assert_eq!(outcome(&ended, Trial::CreateOnly), Outcome::No, "{table}");
    assert!(table.contains("a second put overwrote the first"), "{table}");
    assert!(ended.failed.is_none() && ended.probed.usable, "it only weakens:\n{table}");
    assert!(!table.contains("sig="), "{table}");
    assert_eq!(backend.objects().await.len(), 3, "the probe leaves nothing but the store's mark");
}

/// Options that a real S3 server accepts are in the object.
#[tokio::test(flavor = "multi_thread")]
async fn options_of_s3_reach_the_store() {
    let backend = Backend::s3().await;
    for checksum in [S3Checksum::WhenRequired, S3Checksum::Crc64nvme, S3Checksum::Sha256] {
        let store = StoreFlags { s3_checksum: Some(checksum), ..backend.flags.clone() };
        let pod = format!("{}-0000", checksum.as_str().replace('-', ""));
        save_stream(request(&store, &pod), stream::iter(messages(&snapshot(5000)))).await.unwrap();
    }
    let store = StoreFlags { s3_tag: vec!["kept-by=holdfast".to_owned(), "a=".to_owned()], ..backend.flags.clone() };
    let saved = save_small(&store, "tagged00-0").await;
    for name in ["snapshot.db", "manifest.json"] {
        let about = backend.attributes(&saved.key, name);
        assert!(about.contains("kept-by") && about.contains("holdfast"), "{name}: {about}");
    }
}

/// An address at which a node would hand out its identity, of a network that is not used otherwise.
const IDENTITY: &str = "169.254.77.77";

/// The child half: the process in whose network a name leads to that address.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn is_led_to_a_nodes_identity() {
    let name = child_input();
    let listener = TcpListener::bind((IDENTITY, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // The name does lead there, and a server listens.
    drop(TcpStream::connect((name.as_str(), port)).await.unwrap());
    listener.accept().await.unwrap();

    let credentials = tempfile::tempdir().unwrap();
    for file in ["accessKeyID", "secretAccessKey"] {
        fs::write(credentials.path().join(file), "canary").unwrap();
    }
    let store = StoreFlags {
        url: "s3://bkt/pre/fix".to_owned(),
        s3_endpoint: Some(format!("http://{name}:{port}")),
        s3_force_path_style: Some(true),
        credentials_dir: Some(credentials.path().to_owned()),
        ..StoreFlags::default()
    };
    let volume = tempfile::tempdir().unwrap();
    let key = "shop/orders/1a2b3c4d/20240101T000000Z-99887766-aaaaaaaa";
    let listing = ListRequest { store: store.clone(), deadline_seconds: 60, ..ListRequest::default() };
    let errors = [
        list::run(listing).await.unwrap_err(),
        save_stream(request(&store, "aaaa0000-1"), stream::iter(messages(&snapshot(64)))).await.unwrap_err(),
        restore::run(restore_request(store, key, volume.path())).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.class(), ExitClass::Config, "{error}");
        assert!(error.message().contains(&format!("{name} leads to {IDENTITY}")), "{error}");
    }
    let connected = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(connected.is_err(), "somebody was asked there: {connected:?}");
}

/// A user who may write an endpoint may write a name, and have the name lead anywhere.
#[test]
fn a_name_that_leads_to_a_nodes_identity_is_not_connected_to() {
    const ROOM: &str =
        "mount --bind \"$1\" /etc/hosts; ip link set lo up; ip addr add \"$2\" dev lo; shift 2; exec \"$@\"";
    let (name, hosts) = ("store.example.com", tempfile::NamedTempFile::new().unwrap());
    fs::write(hosts.path(), format!("127.0.0.1 localhost\n{IDENTITY} {name}\n")).unwrap();
    let inner = child("stores::is_led_to_a_nodes_identity", name);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-ec", ROOM, "sh"]).arg(hosts.path()).arg(format!("{IDENTITY}/32"));
    command.arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // As root, like the testbed.
    finish_child(command);
}
