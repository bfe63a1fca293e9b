//! Saves that are killed at any moment: every manifest has a snapshot that verifies, leftovers are gone after the next run, and
//! objects of other owners are untouched.
//!
//! Ten moments, two hundred with HOLDFAST_SOAK=1; the moments look random and are the same every time. And each request at the end
//! of a save, before the store has carried it out and after.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_contract::{Compression, SaveRequest, StoreFlags};

use crate::backends::hands;
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy};
use crate::soak::soak;
use crate::support::{Etcd, S3, child, eventually, file_store, files, noise, save_request, to_input};
use object_store::multipart::MultipartStore;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use snapshot_agent::verbs::save;

/// Number of folders with a manifest; checks that the data of each have the manifest's hash.
fn complete(store: &Path) -> usize {
    let manifests: Vec<_> = files(store).into_iter().filter(|file| file.ends_with("manifest.json")).collect();
    for path in &manifests {
        let path = store.join(path);
        let manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let data = fs::read(path.with_file_name("snapshot.db.zst")).unwrap();
        assert_eq!(hex::encode(Sha256::digest(&data)), manifest["storedSha256"], "{}", path.display());
        let db = zstd::decode_all(&data[..]).unwrap();
        assert_eq!(hex::encode(Sha256::digest(&db[..db.len() - 32])), manifest["sha256"], "{}", path.display());
    }
    manifests.len()
}

/// Moves the deadlines of dead writers into the past.
pub(crate) fn age(store: &Path) {
    for path in files(store).into_iter().map(|file| store.join(file)) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.parent().unwrap().ends_with("uploads") {
            let Ok(mut intent) = serde_json::from_slice::<Value>(&fs::read(&path).unwrap()) else { continue };
            intent["until"] = json!("2024-01-01T00:00:00Z");
            fs::write(&path, intent.to_string()).unwrap();
        } else if let Some((kind, _)) = name.split_once("-until-") {
            fs::rename(&path, path.with_file_name(format!("{kind}-until-1700000000.tmp"))).unwrap();
        }
    }
}

/// Plants files of other owners, in and around the store's folder.
fn plant(store: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = [
        "precious.db",
        "shop/orders/notes.txt",
        "shop/orders-2/1a2b3c4d/20240101T000000Z-99887766-aaaaaaaa/snapshot.db.zst",
        "shop/orders/ffffffff/20240101T000000Z-99887766-aaaaaaaa/snapshot.db.zst",
        "shop/orders/1a2b3c4d/20240101T000000Z-99887766-aaaaaaaa/theirs.txt",
    ];
    let planted = names.iter().enumerate().map(|(i, name)| {
        let path = store.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, noise(i as u64, 100)).unwrap();
        (path, noise(i as u64, 100))
    });
    planted.collect()
}

/// Number of undisturbed runs, which measure the duration of a run.
const UNDISTURBED: usize = 3;

async fn killed_anywhere(etcd: &Etcd, flags: StoreFlags, everything: &Path, store: &Path) {
    let foreign = plant(store);
    let request = |pod: String| SaveRequest {
        pod_uid: Some(pod),
        ..save_request(etcd.flags(), flags.clone(), Compression::Zstd)
    };
    let run = |request: &SaveRequest| {
        let mut command = child("orphans::is_killed_while_saving", &to_input(request));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // The shortest of three: the first run is cold, and a kill after the end of a run kills nothing.
    let mut whole = Duration::MAX;
    for undisturbed in 0..UNDISTURBED {
        let begun = Instant::now();
        assert!(run(&request(format!("f000000{undisturbed}-0"))).wait().unwrap().success());
        whole = whole.min(begun.elapsed());
    }
    let moments = soak(10_u64, 200) / 2;
    for moment in 0..moments {
        // Each part of the run occurs once; the moment's number gives the position in it.
        let part = u32::try_from(moment).unwrap();
        let within = u32::from(noise(moment, 1)[0]);
        let after = whole * (part * 256 + within) / (u32::try_from(moments).unwrap() * 256);
        let mut process = run(&request(format!("{moment:08x}-1")));
        tokio::time::sleep(after).await;
        process.kill().unwrap();
        process.wait().unwrap();
        complete(store);
    }
    let survived = complete(store);
    let moments = usize::try_from(moments).unwrap();
    println!("{moments} kills within {whole:?}: {survived} complete, {} files", files(everything).len());
    assert!(survived >= UNDISTURBED);
    assert!(survived - UNDISTURBED < moments, "all were killed too late to be killed in their middle");
    age(store);
    let (mut saves, mut left) = (0, vec![]);
    while saves < 5 {
        let begun = Instant::now();
        let save = save::run(request(format!("ffffffff-{saves}")));
        tokio::time::timeout(Duration::from_mins(3), save).await.unwrap().unwrap();
        saves += 1;
        left = files(everything);
        // A save cleans for 5 s at most; on a slow machine the next save cleans the rest.
        if left.len() == 2 * (survived + saves) + foreign.len() || begun.elapsed() < Duration::from_secs(5) {
            break;
        }
    }
    assert_eq!(complete(store), survived + saves, "what was complete stays");
    // Data and manifest of each snapshot, and the planted files.
    assert_eq!(left.len(), 2 * (survived + saves) + foreign.len(), "{left:#?}");
    for (path, content) in foreign {
        assert_eq!(fs::read(&path).unwrap(), content, "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_a_save_is_nothing_or_complete() {
    let etcd = Etcd::start().await;
    etcd.fill(24, 1 << 20).await;
    let s3 = S3::start().await;
    killed_anywhere(&etcd, s3.flags(), &s3.bucket(), &s3.bucket().join("pre/fix")).await;
    let mount = tempfile::tempdir().unwrap();
    killed_anywhere(&etcd, file_store(mount.path()), mount.path(), mount.path()).await;
}

type Point = fn(&Asked) -> bool;

/// The requests at the end of a save, with the number of manifests after a kill before the store has carried the request out, and
/// after.
const POINTS: [(&str, Point, [usize; 2]); 4] = [
    ("the parts are put together", |a| a.op == Op::Complete, [0, 0]),
    ("it is read back", |a| a.op == Op::Get && a.uri.contains("snapshot.db"), [0, 0]),
    ("its manifest is written", |a| a.op == Op::Put && a.uri.contains("manifest.json"), [0, 1]),
    ("its intent is removed", |a| a.op == Op::Delete && a.uri.contains("/uploads/"), [1, 1]),
];

/// Kills one save when the store sees this request; the save gets no answer from then on.
async fn killed_at(etcd: &Etcd, s3: &S3, point: Point, carried_out: bool, pod: String) {
    let met = AtomicBool::new(false);
    let rule = move |asked: &Asked| match (point(asked), met.load(Ordering::SeqCst)) {
        (false, false) => Fault::Pass,
        (_, true) => Fault::Silence,
        (true, false) => {
            met.store(true, Ordering::SeqCst);
            if carried_out { Fault::DoneHangup } else { Fault::Silence }
        }
    };
    let proxy = S3Proxy::before(s3, rule).await;
    let request = SaveRequest { pod_uid: Some(pod), ..save_request(etcd.flags(), proxy.flags(s3), Compression::Zstd) };
    let mut command = child("orphans::is_killed_while_saving", &to_input(&request));
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Without an answer the save retries or continues: the request was carried out by then.
    let wanted = if carried_out { 2 } else { 1 };
    let seen = || proxy.asked().into_iter().filter(point).count();
    eventually("the request that it is killed at", async || {
        (seen() >= wanted || process.try_wait().unwrap().is_some()).then_some(())
    })
    .await;
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(seen() > 0, "it did not come to that");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_request_of_its_end_a_save_is_nothing_or_complete() {
    let etcd = Etcd::start().await;
    etcd.fill(4, 1 << 20).await;
    let s3 = S3::start().await;
    let store = s3.bucket().join("pre/fix");
    // An upload of another owner, among these saves: no intent names it.
    let hands = hands(&s3);
    let theirs = "shop/orders/1a2b3c4d/20240101T000000Z-99887766-cccccccc";
    let path = object_store::path::Path::from(format!("pre/fix/{theirs}/snapshot.db.zst"));
    let upload = hands.create_multipart(&path).await.unwrap();
    let part = hands.put_part(&path, &upload, 0, noise(1, 100).into()).await.unwrap();
    let foreign = s3.files().len();
    assert!(foreign > 0);

    let mut survived = 0;
    for (number, (what, point, manifests)) in POINTS.into_iter().enumerate() {
        for (carried_out, there) in [false, true].into_iter().zip(manifests) {
            let pod = format!("{number:07x}{}-0", u8::from(carried_out));
            killed_at(&etcd, &s3, point, carried_out, pod).await;
            survived += there;
            assert_eq!(complete(&store), survived, "{what}, carried out: {carried_out}: {:?}", s3.files());
        }
    }
    age(&s3.bucket());
    let (mut saves, mut left) = (0, vec![]);
    while saves < 5 {
        let pod = format!("ffffffff-{saves}");
        let request = save_request(etcd.flags(), s3.flags(), Compression::Zstd);
        save::run(SaveRequest { pod_uid: Some(pod), ..request }).await.unwrap();
        saves += 1;
        left = s3.files();
        // A save cleans for 5 s at most; on a slow machine the next save cleans the rest.
        if left.len() == 2 * (survived + saves) + foreign {
            break;
        }
    }
    assert_eq!(complete(&store), survived + saves, "what was complete stays");
    assert_eq!(left.len(), 2 * (survived + saves) + foreign, "{left:#?}");
    hands.complete_multipart(&path, &upload, vec![part]).await.expect("their upload was given up");
    assert_eq!(fs::read(s3.file(theirs, "snapshot.db.zst")).unwrap(), noise(1, 100));
}
