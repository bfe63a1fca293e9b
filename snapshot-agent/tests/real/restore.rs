//! Restores of broken snapshots, and restores after every interruption. `volumes.rs` covers the volume.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_contract::{
    Compression, DATA_DIR, Engine, EtcdFlags, ExitClass, RestoreRequest, SaveRequest, SavedReport, StoreFlags,
};

use crate::faults::{messages, save_stream, snapshot};
use crate::front::Mischief;
use crate::graft::ENGINES;
use crate::support::{
    Etcd, NOTE, RESTORE, S3, child, child_request, etcd_of, eventually, file_store, files, restore_request,
    save_request, to_input, unsealed,
};
use futures::stream;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use snapshot_agent::gate::volume_identity::Identity;
use snapshot_agent::verbs::{restore, save};
use tempfile::TempDir;

/// A snapshot in S3, of an etcd with `mib` MiB.
pub(crate) async fn in_s3(mib: u64) -> (S3, SavedReport) {
    let (etcd, s3) = (Etcd::start().await, S3::start().await);
    etcd.fill(mib, 1 << 20).await;
    let saved = save::run(save_request(etcd.flags(), s3.flags(), Compression::Zstd)).await.unwrap();
    (s3, saved)
}

/// A snapshot in a folder, for tests that break it.
pub(crate) struct Stored {
    pub(crate) mount: TempDir,
    pub(crate) saved: SavedReport,
}

impl Stored {
    pub(crate) async fn of(etcd: &Etcd, compression: Compression) -> Self {
        let mount = tempfile::tempdir().unwrap();
        let saved = save::run(save_request(etcd.flags(), file_store(mount.path()), compression)).await.unwrap();
        Self { mount, saved }
    }

    pub(crate) fn flags(&self) -> StoreFlags {
        file_store(self.mount.path())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder().join(format!("snapshot.db{}", self.saved.compression.suffix()))
    }

    fn folder(&self) -> PathBuf {
        self.mount.path().join(&self.saved.key)
    }

    /// Restores onto an empty volume, and checks that the volume is empty again after the refusal.
    async fn refused(&self, change: impl FnOnce(&mut RestoreRequest)) -> (ExitClass, String) {
        self.refused_leaving(&[], change).await
    }

    /// Restores onto an empty volume, and checks that these files stay: the note of a refusal that took a download.
    pub(crate) async fn refused_leaving(
        &self,
        leaves: &[&str],
        change: impl FnOnce(&mut RestoreRequest),
    ) -> (ExitClass, String) {
        let volume = tempfile::tempdir().unwrap();
        let mut request = restore_request(self.flags(), &self.saved.key, volume.path());
        change(&mut request);
        let error = restore::run(request).await.expect_err("was restored");
        assert_eq!(files(volume.path()), leaves, "{error}");
        (error.class(), error.message().to_owned())
    }

    /// Restores once with a changed manifest.
    async fn with_manifest(&self, change: impl FnOnce(&mut Value)) -> (ExitClass, String) {
        self.with(change, &[], |_| ()).await
    }

    async fn with(
        &self,
        change: impl FnOnce(&mut Value),
        leaves: &[&str],
        request: impl FnOnce(&mut RestoreRequest),
    ) -> (ExitClass, String) {
        let path = self.folder().join("manifest.json");
        let good = fs::read(&path).unwrap();
        let mut manifest = unsealed(&path);
        change(&mut manifest);
        fs::write(&path, manifest.to_string()).unwrap();
        let refused = self.refused_leaving(leaves, request).await;
        fs::write(&path, good).unwrap();
        refused
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_broken_thing_at_a_time() {
    let etcd = Etcd::start().await;
    etcd.fill(100, 4000).await;
    for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
        let stored = Stored::of(&etcd, compression).await;
        let good = fs::read(stored.data()).unwrap();
        for at in [0, 20, good.len() / 2, good.len() - 40, good.len() - 1] {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            fs::write(stored.data(), bytes).unwrap();
            let (class, message) = stored.refused(|_| ()).await;
            assert_eq!(class, ExitClass::Corrupt, "{compression:?}, a bit at {at}: {message}");
        }
        for length in [0, 31, 4096, good.len() / 2, good.len() - 32, good.len() - 1] {
            fs::write(stored.data(), &good[..length]).unwrap();
            let (class, message) = stored.refused(|_| ()).await;
            assert_eq!(class, ExitClass::Corrupt, "{compression:?}, cut at {length}: {message}");
            // Store and manifest agree on the wrong length: the hash still detects it.
            let (class, message) = stored.with_manifest(|m| m["storedBytes"] = json!(length)).await;
            assert_eq!(class, ExitClass::Corrupt, "{compression:?}, cut at {length}, manifest too: {message}");
        }
        fs::write(stored.data(), [&good[..], b"more"].concat()).unwrap();
        let (class, _) = stored.with_manifest(|m| m["storedBytes"] = json!(good.len() + 4)).await;
        assert_eq!(class, ExitClass::Corrupt, "{compression:?}, something behind the end");
        fs::write(stored.data(), &good).unwrap();

        let manifests: [(&str, Value, ExitClass); 9] = [
            ("sha256", json!("00".repeat(32)), ExitClass::Corrupt),
            ("storedSha256", json!("00".repeat(32)), ExitClass::Corrupt),
            ("sha256", json!(null), ExitClass::Corrupt),
            ("dbBytes", json!(stored.saved.db_bytes - 4096), ExitClass::Corrupt),
            ("dbBytes", json!(stored.saved.db_bytes + 4096), ExitClass::Corrupt),
            ("dbBytes", json!(1_u64 << 60), ExitClass::Full),
            ("storageVersion", json!("9.9.0"), ExitClass::Config),
            ("formatVersion", json!(2), ExitClass::Config),
            ("compression", json!("lzma"), ExitClass::Corrupt),
        ];
        for (field, value, expected) in manifests {
            let (class, message) = stored.with_manifest(|m| m[field] = value).await;
            assert_eq!(class, expected, "{compression:?}, {field}: {message}");
        }
        // The contents are compared too, with both engines.
        let contents: [(&str, Value); 5] = [
            ("hashKV", json!(1)),
            ("revision", json!(1)),
            ("compactRevision", json!(1)),
            ("keys", json!(1)),
            ("revisions", json!(1)),
        ];
        for (field, value) in contents {
            for engine in [Engine::Etcdutl, Engine::Graft] {
                let (class, message) =
                    stored.with(|m| m["contents"][field] = value.clone(), &[], |r| r.engine = engine).await;
                assert_eq!(class, ExitClass::Corrupt, "{compression:?}, {engine:?}, {field}: {message}");
                assert!(message.contains("its manifest says 1"), "{field}: {message}");
            }
        }
        // The untouched snapshot restores.
        let volume = tempfile::tempdir().unwrap();
        restore::run(restore_request(stored.flags(), &stored.saved.key, volume.path())).await.unwrap();
    }
}

/// Two snapshots of one cluster with exchanged folders: each folder has the manifest of the other snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn an_exchanged_folder_is_not_restored_unless_a_person_says_so() {
    let etcd = Etcd::start().await;
    etcd.fill(10, 100).await;
    let first = Stored::of(&etcd, Compression::Zstd).await;
    let save = save_request(etcd.flags(), file_store(first.mount.path()), Compression::Zstd);
    etcd.fill(10, 100).await;
    let second = save::run(SaveRequest { owner_uid: Some("aabbccdd-0000".to_owned()), ..save }).await.unwrap();
    let [a, b, aside] = [&first.saved.key, &second.key, "aside"].map(|key| first.mount.path().join(key));
    for (from, to) in [(&a, &aside), (&b, &a), (&aside, &b)] {
        fs::rename(from, to).unwrap();
    }
    let (class, message) = first.refused(|_| ()).await;
    assert_eq!(class, ExitClass::Corrupt, "{message}");
    for said in [&first.saved.key, &second.key, &format!("--expect-sha256 {}", second.sha256), "allowUnverified"] {
        assert!(message.contains(said), "no {said} in {message}");
    }
    let (class, message) = first.refused(|r| r.expect_sha256 = Some(first.saved.sha256.clone())).await;
    assert!(class == ExitClass::Corrupt && message.contains("this is another snapshot"), "{message}");
    let says = async |change: &dyn Fn(&mut RestoreRequest)| {
        let volume = tempfile::tempdir().unwrap();
        let mut request = restore_request(first.flags(), &first.saved.key, volume.path());
        change(&mut request);
        let report = restore::run(request).await.unwrap();
        assert_eq!(report.sha256, second.sha256, "that of the bytes, whatever the folder");
        report.not_compared.unwrap()
    };
    let told = format!("key: the manifest is that of {}", second.key);
    assert_eq!(says(&|r| r.expect_sha256 = Some(second.sha256.clone())).await, told);
    assert_eq!(says(&|r| r.allow_unverified = true).await, told);
}

/// A manifest records its own sha256: a changed manifest is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_manifest_is_refused() {
    let etcd = Etcd::start().await;
    let stored = Stored::of(&etcd, Compression::Zstd).await;
    let path = stored.folder().join("manifest.json");
    let good = fs::read_to_string(&path).unwrap();
    for field in ["namespace", "clusterId", "memberId", "etcdVersion", "agentVersion", "manifestSha256"] {
        let mut manifest: Value = serde_json::from_str(&good).unwrap();
        let changed = manifest[field].as_str().unwrap().replace(|c: char| c.is_ascii_alphanumeric(), "0");
        assert_ne!(manifest[field], changed, "{field}");
        manifest[field] = json!(changed);
        fs::write(&path, manifest.to_string()).unwrap();
        let (class, message) = stored.refused(|_| ()).await;
        assert!(class == ExitClass::Corrupt && message.contains("was changed after the save"), "{field}: {message}");
    }
    // White space and order do not count.
    let manifest: Value = serde_json::from_str(&good).unwrap();
    fs::write(&path, manifest.to_string()).unwrap();
    let volume = tempfile::tempdir().unwrap();
    let report = restore::run(restore_request(stored.flags(), &stored.saved.key, volume.path())).await.unwrap();
    assert_eq!(report.not_compared, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_wrong_request_at_a_time() {
    let etcd = Etcd::start().await;
    let stored = Stored::of(&etcd, Compression::Zstd).await;
    let class = async |change: fn(&mut RestoreRequest)| stored.refused(change).await.0;
    assert_eq!(class(|r| r.expect_sha256 = Some("00".repeat(32))).await, ExitClass::Corrupt);
    assert_eq!(class(|r| r.key.push_str("/../x")).await, ExitClass::Config);
    assert_eq!(class(|r| r.key = "../../etc".to_owned()).await, ExitClass::Config);
    assert_eq!(class(|r| r.key.push_str("/snapshot.db.zst")).await, ExitClass::Config);
    assert_eq!(class(|r| r.key.push('x')).await, ExitClass::NotFound);
    assert_eq!(class(|r| r.initial_cluster = "other=http://x:1".to_owned()).await, ExitClass::Config);
    assert_eq!(class(|r| r.etcdutl = "/nonexistent".into()).await, ExitClass::Config);
    assert_eq!(class(|r| r.etcdutl = "/bin/true".into()).await, ExitClass::Config);
    assert_eq!(class(|r| r.annotations = Some("/nonexistent".into())).await, ExitClass::Refused);
    fs::remove_file(stored.folder().join("manifest.json")).unwrap();
    let (class, message) = stored.refused(|_| ()).await;
    assert_eq!(class, ExitClass::NotFound, "a folder without a manifest is no backup: {message}");
}

fn restored(volume: &Path) -> bool {
    Identity::read(&volume.join(DATA_DIR)).unwrap().is_some_and(|identity| identity.restore_uid() == Some(RESTORE))
}

/// The child half: the process that is killed.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn is_killed() {
    let request = child_request();
    restore::run(request).await.unwrap();
}

/// Starts a restore in a process group of its own: etcdutl ends with it, as in a container.
pub(crate) fn begin(request: &RestoreRequest) -> Child {
    let mut command = child("restore::is_killed", &to_input(request));
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Sends a signal to the process group.
pub(crate) fn signal(process: &Child, name: &str) {
    let group = format!("-{}", process.id());
    Command::new("kill").args([name, "--", &group]).stderr(Stdio::null()).status().unwrap();
}

pub(crate) fn end(mut process: Child) {
    signal(&process, "-KILL");
    process.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_anywhere_it_is_nothing_or_complete_and_can_be_repeated() {
    let etcd = Etcd::start().await;
    etcd.fill(60, 1 << 20).await;
    let stored = Stored::of(&etcd, Compression::Zstd).await;
    let (mut complete, mut nothing) = (0, 0);
    let mut delay = Duration::from_millis(5);
    while complete < 2 {
        let volume = tempfile::tempdir().unwrap();
        let request = restore_request(stored.flags(), &stored.saved.key, volume.path());
        let process = begin(&request);
        tokio::time::sleep(delay).await;
        end(process);
        // Either the data directory is complete with its identity, or it does not exist.
        if volume.path().join(DATA_DIR).exists() {
            assert!(restored(volume.path()), "after {delay:?}");
            complete += 1;
        } else {
            nothing += 1;
        }
        restore::run(request.clone()).await.unwrap_or_else(|error| panic!("after {delay:?}: {error}"));
        assert!(restored(volume.path()));
        assert!(restore::run(request).await.unwrap().already);
        delay = delay * 3 / 2;
    }
    assert!(nothing > 3, "the kills came too late: {nothing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_attempt_has_left_does_no_harm() {
    let etcd = Etcd::start().await;
    etcd.fill(10, 1000).await;
    let stored = Stored::of(&etcd, Compression::Gzip).await;
    let leftovers: [&[&str]; 4] = [
        &[".holdfast-staging/1/snapshot.db"],
        &[".holdfast-staging/1/snapshot.db", ".holdfast-staging/1/data/member/snap/db"],
        &[
            ".holdfast-staging/1/data/member/snap/db",
            ".holdfast-staging/2/data/member/wal/0-0.wal",
            ".holdfast-staging/x",
        ],
        &[".holdfast-staging/1/data/holdfast-identity.json", ".holdfast-staging/1/data/member/snap/db"],
    ];
    for leftover in leftovers {
        let volume = tempfile::tempdir().unwrap();
        for path in leftover {
            let path = volume.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "half").unwrap();
        }
        let request = restore_request(stored.flags(), &stored.saved.key, volume.path());
        restore::run(request.clone()).await.unwrap_or_else(|error| panic!("{leftover:?}: {error}"));
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 1, "only the data directory");
        // The restore died between the rename and the cleanup.
        fs::create_dir_all(volume.path().join(".holdfast-staging")).unwrap();
        assert!(restore::run(request).await.unwrap().already);
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_breaks_is_taken_up_again() {
    let (s3, saved) = in_s3(40).await;
    // Every connection breaks after 3 MiB, and a range has 8.
    let proxy = Mischief::Cut(3 << 20).before(&s3.address).await;
    let volume = tempfile::tempdir().unwrap();
    let store = s3.through(proxy.url());
    restore::run(restore_request(store, &saved.key, volume.path())).await.unwrap();
    let connections = proxy.connections();
    assert!(connections > saved.stored_bytes >> 22, "{connections}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_stands_still_is_given_up() {
    let (s3, saved) = in_s3(40).await;
    let proxy = Mischief::Freeze(2 << 20).before(&s3.address).await;
    let volume = tempfile::tempdir().unwrap();
    let store = s3.through(proxy.url());
    let mut request = restore_request(store, &saved.key, volume.path());
    request.stall_seconds = 2;
    let begun = std::time::Instant::now();
    let error = restore::run(request).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Deadline, "{error}");
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    assert_eq!(files(volume.path()), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_object_in_s3_is_refused() {
    let (s3, saved) = in_s3(20).await;
    let file = s3.file(&saved.key, "snapshot.db.zst");
    let good = fs::read(&file).unwrap();
    let volume = tempfile::tempdir().unwrap();
    let request = restore_request(s3.flags(), &saved.key, volume.path());

    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    fs::write(&file, flipped).unwrap();
    assert_eq!(restore::run(request.clone()).await.unwrap_err().class(), ExitClass::Corrupt);
    fs::write(&file, &good[..good.len() / 2]).unwrap();
    assert_eq!(restore::run(request.clone()).await.unwrap_err().class(), ExitClass::Corrupt);
    let refused = async |class: ExitClass, words: &[&str]| {
        let error = restore::run(request.clone()).await.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
        for word in words {
            assert!(error.message().contains(word), "no {word:?} in {error}");
        }
        assert_eq!(files(volume.path()), [] as [&str; 0]);
    };
    // The same length with other contents.
    let mut other = good.clone();
    other.rotate_left(good.len() / 3);
    fs::write(&file, other).unwrap();
    refused(ExitClass::Corrupt, &[]).await;
    fs::remove_file(&file).unwrap();
    refused(ExitClass::NotFound, &["snapshot.db.zst", "s3://bkt/", &s3.address]).await;
    fs::write(&file, good).unwrap();
    let manifest = s3.file(&saved.key, "manifest.json");
    let mut newer = unsealed(&manifest);
    newer["formatVersion"] = json!(2);
    fs::write(&manifest, newer.to_string()).unwrap();
    refused(ExitClass::Config, &["format 2", "newer"]).await;
    fs::remove_file(&manifest).unwrap();
    refused(ExitClass::NotFound, &["no complete snapshot", "manifest.json", &s3.address]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_exchanged_for_that_of_another_snapshot_is_refused() {
    let etcd = Etcd::start().await;
    etcd.fill(20, 4000).await;
    let (mut first, mut second) =
        (Stored::of(&etcd, Compression::None).await, Stored::of(&etcd, Compression::None).await);
    // etcd's file grows in steps: some writes fall between two of them.
    for write in 0..20 {
        etcd.client().await.put("k0", format!("changed {write}"), None).await.unwrap();
        first = std::mem::replace(&mut second, Stored::of(&etcd, Compression::None).await);
        if first.saved.stored_bytes == second.saved.stored_bytes {
            break;
        }
    }
    assert_eq!(first.saved.stored_bytes, second.saved.stored_bytes);
    assert_ne!(first.saved.sha256, second.saved.sha256);
    fs::copy(second.data(), first.data()).unwrap();
    let (class, message) = first.refused(|_| ()).await;
    assert_eq!(class, ExitClass::Corrupt, "{message}");
    assert!(message.contains("its manifest says"), "{message}");
}

/// An object of a few KiB that would fill a volume: refused once it unpacks to more than the saved size.
#[tokio::test(flavor = "multi_thread")]
async fn what_unpacks_to_more_than_was_saved_is_refused() {
    let etcd = Etcd::start().await;
    etcd.fill(5, 100).await;
    for compression in [Compression::Zstd, Compression::Gzip] {
        let stored = Stored::of(&etcd, compression).await;
        let zeros = std::io::repeat(0).take(1 << 30);
        let mut bomb = Vec::new();
        match compression {
            Compression::Zstd => zstd::stream::copy_encode(zeros, &mut bomb, 1).unwrap(),
            _ => drop(flate2::read::GzEncoder::new(zeros, flate2::Compression::fast()).read_to_end(&mut bomb).unwrap()),
        }
        fs::write(stored.data(), &bomb).unwrap();
        let fits = |manifest: &mut Value| {
            manifest["storedBytes"] = json!(bomb.len());
            manifest["storedSha256"] = json!(hex::encode(Sha256::digest(&bomb)));
        };
        for engine in [Engine::Etcdutl, Engine::Graft] {
            let (class, message) = stored.with(fits, &[], |request| request.engine = engine).await;
            assert_eq!(class, ExitClass::Corrupt, "{compression:?}, {engine:?}: {message}");
            assert!(message.contains("unpacks to more than"), "{compression:?}, {engine:?}: {message}");
        }
    }
}

/// A value was changed in place, and all hashes of bytes were adapted: the facts proven at the save do not match the contents.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_snapshot_is_refused_by_what_was_in_it() {
    let mount = tempfile::tempdir().unwrap();
    let request = save_request(EtcdFlags::default(), file_store(mount.path()), Compression::None);
    let saved = save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap();
    let stored = Stored { mount, saved };
    let mut bytes = fs::read(stored.data()).unwrap();
    let end = bytes.len() - 32;
    // In the middle of a value, on a leaf.
    let leaf = |page: &usize| bytes[page * 4096 + 8] == 2 && bytes[page * 4096 + 2000] != 0;
    let at = (2..end / 4096).find(leaf).unwrap() * 4096 + 2000;
    bytes[at] ^= 1;
    let (database, trailer) = bytes.split_at_mut(end);
    let sha256 = Sha256::digest(&*database);
    trailer.copy_from_slice(&sha256);
    let whole = hex::encode(Sha256::digest(&bytes));
    let good = fs::read(stored.data()).unwrap();
    fs::write(stored.data(), &bytes).unwrap();
    for engine in [Engine::Etcdutl, Engine::Graft] {
        let forge = |manifest: &mut Value| {
            manifest["sha256"] = json!(hex::encode(sha256));
            manifest["storedSha256"] = json!(whole);
        };
        let (class, message) = stored.with(forge, &[], |request| request.engine = engine).await;
        assert_eq!(class, ExitClass::Corrupt, "{engine:?}: {message}");
        assert!(message.contains("HashKV") || message.contains("sound"), "{engine:?}: {message}");
    }
    fs::write(stored.data(), good).unwrap();
}

/// No hash covers the versions in a manifest, and an older etcd would start on newer bytes: the restore reads the bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_lies_about_the_version_is_not_believed() {
    let lies: [fn(&mut Value); 2] = [
        |manifest| manifest["storageVersion"] = json!("3.4.0"),
        // Without a recorded version, the member's version counts.
        |manifest| {
            manifest["storageVersion"] = Value::Null;
            manifest["etcdVersion"] = json!("3.4.0");
        },
    ];
    for (line, older) in [("3.6", "3.5"), ("3.7", "3.6"), ("3.7", "3.5")] {
        let etcd = Etcd::of(line).await;
        etcd.fill(5, 100).await;
        // etcd records the version some time after its start.
        eventually("the storage version", async || {
            let status = etcd.client().await.status().await.ok()?;
            status.storage_version().starts_with(line).then_some(())
        })
        .await;
        let stored = Stored::of(&etcd, Compression::Zstd).await;
        for engine in ENGINES {
            for lie in lies {
                let into_older = |request: &mut RestoreRequest| {
                    request.engine = engine;
                    request.etcdutl = etcd_of(older).with_file_name("etcdutl");
                };
                let (class, message) = stored.with(lie, &[NOTE], into_older).await;
                assert_eq!(class, ExitClass::Config, "{line} into {older}, {engine:?}: {message}");
                let says = format!("has storage version {line}.0, etcdutl is {older}");
                assert!(message.contains(&says), "no {says:?} in {message}");
            }
        }
    }
}

/// The log names a hash that could not be compared, with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_whose_hash_is_not_compared_says_so() {
    let etcd = Etcd::start().await;
    let stored = Stored::of(&etcd, Compression::Zstd).await;
    let path = stored.folder().join("manifest.json");
    let mut manifest = unsealed(&path);
    manifest.as_object_mut().unwrap().remove("contents");
    fs::write(&path, manifest.to_string()).unwrap();
    for engine in ENGINES {
        let volume = tempfile::tempdir().unwrap();
        let request = RestoreRequest { engine, ..restore_request(stored.flags(), &stored.saved.key, volume.path()) };
        let said = crate::slow::said(&request).await;
        assert!(restored(volume.path()), "{engine:?}: {said}");
        let warned = |line: &str| line.contains("WARN") && line.contains("HashKV was not compared");
        let line = said.lines().find(|line| warned(line)).unwrap_or_else(|| panic!("{engine:?}: {said}"));
        assert!(line.contains("the manifest records no contents"), "{line}");
    }
}
