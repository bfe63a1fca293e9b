//! Restores that end at any moment, with either engine: killed, killed again and again, cut off from power, with a flipped byte in
//! the snapshot or without its end; and a restore that meets another one.
//! A data directory exists only if it is exactly the snapshot, and the next run creates one.
//!
//! The power cut happens on a real ext4: the test shows what the kernel has written by then. `syncs` judges what any file system
//! may lose.
//!
//! HOLDFAST_SOAK=1 raises the counts; the moments look random and are the same every time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use holdfast_contract::{Compression, DATA_DIR, Engine, ExitClass, RestoreRequest, SavedReport};

use crate::age::{PAIRS, secret};
use crate::gate::Member;
use crate::graft::ENGINES;
use crate::restore::{begin, end, signal};
use crate::server::{Server, run};
use crate::soak::soak;
use crate::support::{
    CLAIM, Etcd, RESTORE, etcd_of, eventually, file_store, files, free_port, in_place_of, noise, restore_request,
    save_request, unsealed,
};
use snapshot_agent::verbs::{restore, save};
use tempfile::TempDir;

/// A snapshot of some megabytes.
struct Stored {
    mount: TempDir,
    saved: SavedReport,
}

impl Stored {
    async fn of(mib: u64, compression: Compression, age: bool) -> Self {
        let etcd = Etcd::start().await;
        etcd.fill(mib * 16, 60 << 10).await;
        let mount = tempfile::tempdir().unwrap();
        let mut request = save_request(etcd.flags(), file_store(mount.path()), compression);
        if age {
            request.age_recipients = vec![PAIRS[0].0.to_owned()];
        }
        let saved = save::run(request).await.unwrap();
        Self { mount, saved }
    }

    fn request(&self, volume: &Path, engine: Engine) -> RestoreRequest {
        let mut request = restore_request(file_store(self.mount.path()), &self.saved.key, volume);
        "m1".clone_into(&mut request.identity.member_name);
        request.initial_cluster = format!("m1=http://127.0.0.1:{}", free_port());
        RestoreRequest { engine, ..request }
    }

    /// Starts a restore and stops it in the middle of its work.
    async fn halfway(&self, engine: Engine) -> (TempDir, RestoreRequest, Child) {
        loop {
            let volume = tempfile::tempdir().unwrap();
            let request = RestoreRequest { revision_bump: 0, ..self.request(volume.path(), engine) };
            let mut process = begin(&request);
            let (staging, data) = (volume.path().join(".holdfast-staging"), volume.path().join(DATA_DIR));
            eventually("its staging folder", async || (staging.exists() || data.exists()).then_some(())).await;
            signal(&process, "-STOP");
            if !data.exists() && process.try_wait().unwrap().is_none() {
                return (volume, request, process);
            }
            // The restore ended before it could be stopped.
            end(process);
        }
    }

    /// Checks that an etcd, started by hand on a volume, serves the snapshot.
    fn serves(&self, volume: &Path, request: &RestoreRequest) {
        let peer = request.initial_cluster.rsplit(':').next().unwrap().parse().unwrap();
        let quick = ["--heartbeat-interval=10", "--election-timeout=100"];
        let server = Server::on("3.6", &volume.join(DATA_DIR), peer, None, &quick);
        let found = server.hash_kv(0);
        assert_eq!((Some(found.hash), Some(found.revision)), (self.saved.hash_kv, self.saved.revision));
        let count = server.ctl(&["get", "", "--prefix", "--count-only", "-w", "fields"]);
        assert!(count.contains(&format!("\"Count\" : {}", self.saved.keys.unwrap())), "{count}");
    }
}

/// A moment within the n-th part of a duration.
fn moment(whole: Duration, n: u64, of: u64) -> Duration {
    within(whole, n, of, n)
}

/// A moment within the n-th part of a duration, by its own seed.
fn within(whole: Duration, n: u64, of: u64, seed: u64) -> Duration {
    let within = u64::from(noise(seed, 1)[0]);
    whole * u32::try_from(n * 256 + within).unwrap() / u32::try_from(of * 256).unwrap()
}

/// Duration of a restore. The machine may be busy: the shortest of three counts.
fn whole(stored: &Stored, engine: Engine) -> Duration {
    let runs = [(); 3].map(|()| {
        let volume = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        assert!(begin(&stored.request(volume.path(), engine)).wait().unwrap().success());
        assert!(volume.path().join(DATA_DIR).exists(), "the child half did not run");
        begun.elapsed()
    });
    runs.into_iter().min().unwrap()
}

async fn killed(engine: Engine) {
    let stored = Stored::of(100, Compression::Zstd, false).await;
    let mut whole = whole(&stored, engine);
    let kills = soak(12, 300);
    let mut complete = 0;
    for n in 0..kills {
        let volume = tempfile::tempdir().unwrap();
        let request = RestoreRequest { revision_bump: 0, ..stored.request(volume.path(), engine) };
        let after = moment(whole, n, kills);
        let process = begin(&request);
        tokio::time::sleep(after).await;
        end(process);
        if volume.path().join(DATA_DIR).exists() {
            complete += 1;
            // The machine may have been slower during the measurement.
            whole = whole.min(after);
            stored.serves(volume.path(), &request);
        }
        restore::run(request.clone()).await.unwrap_or_else(|error| panic!("after {after:?}: {error}"));
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 1, "only the data directory");
        stored.serves(volume.path(), &request);
    }
    println!("{engine:?}: {kills} kills within {whole:?}, {complete} of them after the end");
    assert!(complete < kills * 2 / 3, "the kills came too late: {complete}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_a_restore_by_etcdutl_is_nothing_or_the_snapshot() {
    killed(Engine::Etcdutl).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_a_graft_is_nothing_or_the_snapshot() {
    killed(Engine::Graft).await;
}

/// Kills several restores in a row on one volume, each at another moment, without starting etcd in between.
async fn killed_again_and_again(engine: Engine) {
    const IN_A_ROW: u64 = 6;
    let stored = Stored::of(100, Compression::Zstd, false).await;
    let mut whole = whole(&stored, engine);
    let (volumes, mut refused, mut early) = (soak(2, 25), 0, 0);
    for n in 0..volumes {
        let mut member = Member::of(stored.request(Path::new(""), engine).identity);
        member.request.restore_uid = Some(RESTORE.to_owned());
        member.allow(CLAIM);
        let volume = member.request.volume.clone();
        let request = RestoreRequest { revision_bump: 0, ..stored.request(&volume, engine) };
        for kill in 0..IN_A_ROW {
            let process = begin(&request);
            // Every part of the duration occurs, in an order that does not depend on the kill.
            let part = (n + kill * 5) % IN_A_ROW;
            let after = within(whole, part, IN_A_ROW, n * IN_A_ROW + kill);
            tokio::time::sleep(after).await;
            end(process);
            if volume.join(DATA_DIR).exists() {
                early += 1;
                whole = whole.min(after);
                break;
            }
            // Half a database belongs into the staging folder, never where etcd looks.
            let mut names = fs::read_dir(&volume).unwrap().map(|entry| entry.unwrap().file_name());
            let left = names.any(|name| name.to_string_lossy().starts_with(".holdfast-staging"));
            let verdict = if left { "ForeignVolume" } else { "RestoreIncomplete" };
            assert_eq!(member.refused(), verdict, "volume {n}, death {kill}");
            refused += 1;
        }
        restore::run(request.clone()).await.unwrap_or_else(|error| panic!("volume {n}: {error}"));
        let mut names: Vec<_> = fs::read_dir(&volume).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [DATA_DIR, "lost+found"], "volume {n}");
        stored.serves(&volume, &request);
    }
    println!("{engine:?}: {volumes} volumes, {refused} refused starts, {early} complete before the last death");
    assert!(refused > volumes, "the kills came too late: {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_a_restore_by_etcdutl_ends_as_the_snapshot() {
    killed_again_and_again(Engine::Etcdutl).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_a_graft_ends_as_the_snapshot() {
    killed_again_and_again(Engine::Graft).await;
}

/// Every page in a soak. A snapshot of Holdfast, with a manifest that has the right length and with a manifest changed to the cut
/// length; and a raw file without a manifest.
#[tokio::test(flavor = "multi_thread")]
async fn cut_at_any_page_a_snapshot_is_refused() {
    let stored = Stored::of(1, Compression::None, false).await;
    let folder = stored.mount.path().join(&stored.saved.key);
    let (data, manifest) = (folder.join("snapshot.db"), folder.join("manifest.json"));
    let (good, said) = (fs::read(&data).unwrap(), fs::read(&manifest).unwrap());
    let pages = (good.len() - 32) / 4096;
    // Whole pages look like a file without a hash, and 32 bytes more look like a file with one.
    let mut lengths: Vec<_> = (0..pages).flat_map(|page| [page * 4096, page * 4096 + 32]).collect();
    lengths.extend([1, 31, good.len() - 32, good.len() - 1]);
    let step = soak(lengths.len() / 14, 1);
    let mut refused = 0;
    for length in lengths.iter().copied().skip(step / 2).step_by(step).chain([0, 32, good.len() - 32, good.len() - 1]) {
        for engine in ENGINES {
            let refuse = async |key: &str, allow_unverified: bool| {
                let volume = tempfile::tempdir().unwrap();
                let request =
                    RestoreRequest { key: key.to_owned(), allow_unverified, ..stored.request(volume.path(), engine) };
                let error = restore::run(request).await.err();
                let what = format!("{length} of {} bytes, {engine:?}, {key}, {allow_unverified}", good.len());
                let error = error.unwrap_or_else(|| panic!("{what}: was restored"));
                let classes = [ExitClass::Corrupt, ExitClass::Config];
                let bare = key == "raw.db" && length % 4096 != 32 && !allow_unverified;
                assert!(classes[..=usize::from(bare)].contains(&error.class()), "{what}: {error}");
                assert_eq!(files(volume.path()), [] as [&str; 0], "{what}: {error}");
            };
            fs::write(&data, &good[..length]).unwrap();
            refuse(&stored.saved.key, false).await;
            let mut fits = unsealed(&manifest);
            fits["storedBytes"] = length.into();
            fits["dbBytes"] = length.saturating_sub(32).into();
            fs::write(&manifest, fits.to_string()).unwrap();
            refuse(&stored.saved.key, false).await;
            fs::write(&manifest, &said).unwrap();
            fs::write(stored.mount.path().join("raw.db"), &good[..length]).unwrap();
            refuse("raw.db", false).await;
            // A file that only lacks its hash is what the request allows.
            if length != good.len() - 32 {
                refuse("raw.db", true).await;
            }
            refused += 1;
        }
    }
    println!("{refused} cuts of {pages} pages, four ways each");
    fs::write(&data, &good).unwrap();
    fs::write(stored.mount.path().join("raw.db"), &good).unwrap();
    for key in [&stored.saved.key, "raw.db"] {
        let volume = tempfile::tempdir().unwrap();
        let key = key.to_owned();
        restore::run(RestoreRequest { key, ..stored.request(volume.path(), Engine::Graft) }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_anywhere_is_refused() {
    let each = soak(6, 167);
    for (compression, age) in [(Compression::None, false), (Compression::Zstd, false), (Compression::Zstd, true)] {
        let stored = Stored::of(1, compression, age).await;
        let folder = stored.mount.path().join(&stored.saved.key);
        let data = files(&folder).into_iter().find(|name| name.starts_with("snapshot.db")).unwrap();
        let data = folder.join(data);
        let good = fs::read(&data).unwrap();
        let secret = secret(&[0]);
        for engine in ENGINES {
            for n in 0..each {
                let random = noise(n * 7 + u64::from(engine == Engine::Graft), 9);
                let at = u64::from_le_bytes(*random.first_chunk().unwrap()) % good.len() as u64;
                let mut bytes = good.clone();
                bytes[usize::try_from(at).unwrap()] ^= random[8] | 1;
                fs::write(&data, bytes).unwrap();
                let volume = tempfile::tempdir().unwrap();
                let mut request = stored.request(volume.path(), engine);
                request.age_identity_dirs = vec![secret.path().to_owned()];
                let error = restore::run(request).await.expect_err("was restored");
                // The start of an encrypted snapshot names its recipients.
                let classes = [ExitClass::Corrupt, ExitClass::Config];
                assert!(classes[..=usize::from(age)].contains(&error.class()), "byte {at}, {engine:?}: {error}");
                assert_eq!(files(volume.path()), [] as [&str; 0], "byte {at}, {engine:?}: {error}");
            }
        }
        fs::write(&data, good).unwrap();
    }
}

/// An ext4 in a file, mounted.
struct Disk {
    image: PathBuf,
    mount: PathBuf,
    _folder: TempDir,
}

impl Disk {
    fn of(mib: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (image, mount) = (folder.path().join("disk.img"), folder.path().join("mount"));
        fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        run(Path::new("mkfs.ext4"), &["-q", image.to_str().unwrap()]).unwrap();
        Self::mounted(image, mount, folder)
    }

    fn mounted(image: PathBuf, mount: PathBuf, folder: TempDir) -> Self {
        fs::create_dir(&mount).unwrap();
        run(Path::new("mount"), &["-o", "loop", image.to_str().unwrap(), mount.to_str().unwrap()]).unwrap();
        Self { image, mount, _folder: folder }
    }

    /// A copy of the disk as a power cut leaves it: without the data that the file system has not written. The writer is stopped
    /// meanwhile.
    fn without_power(&self, writer: Option<&Child>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (image, mount) = (folder.path().join("disk.img"), folder.path().join("mount"));
        if let Some(writer) = writer {
            signal(writer, "-STOP");
        }
        run(Path::new("cp"), &["--sparse=always", self.image.to_str().unwrap(), image.to_str().unwrap()]).unwrap();
        if let Some(writer) = writer {
            signal(writer, "-CONT");
        }
        Self::mounted(image, mount, folder)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(&self.mount).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_power_at_any_moment_a_restore_is_nothing_or_the_snapshot() {
    let stored = Stored::of(40, Compression::None, false).await;
    for engine in ENGINES {
        let disk = Disk::of(400);
        let request = |volume: &Path| RestoreRequest { revision_bump: 0, ..stored.request(volume, engine) };
        let first = request(&disk.mount);
        let begun = Instant::now();
        assert!(begin(&first).wait().unwrap().success());
        let mut whole = begun.elapsed();
        // The restore reported success: from now on the data are durable.
        stored.serves(&disk.without_power(None).mount, &first);
        let cuts = soak(3, 50);
        let (mut n, mut early, mut complete) = (0, 0, 0);
        // The machine may have been slower during the measurement: then the test cuts more often, within a shorter time.
        while n < cuts || (early * 2 < cuts && n < cuts * 5) {
            let disk = Disk::of(400);
            let request = request(&disk.mount);
            let process = begin(&request);
            let at = within(whole, n % cuts, cuts, n);
            n += 1;
            tokio::time::sleep(at).await;
            let after = disk.without_power(Some(&process));
            end(process);
            if after.mount.join(DATA_DIR).exists() {
                complete += 1;
                whole = whole.min(at);
                stored.serves(&after.mount, &request);
            } else {
                early += 1;
                // The next attempt, on the volume after the cut.
                let request = RestoreRequest { volume: after.mount.clone(), ..request };
                restore::run(request.clone()).await.unwrap();
                stored.serves(&after.mount, &request);
            }
        }
        println!("{engine:?}: {n} cuts, the last within {whole:?}; {early} before the end, {complete} after it");
        assert!(early * 2 >= cuts, "{engine:?}: the cuts came too late: {early} of {n} before the end");
    }
}

/// Like a Pod that was deleted by force and still runs: the second restore waits until the first one is dead.
#[tokio::test(flavor = "multi_thread")]
async fn two_restores_of_one_volume_do_not_meet() {
    let stored = Stored::of(100, Compression::Zstd, false).await;
    for engine in ENGINES {
        for dies in [false, true] {
            let (volume, request, mut first) = stored.halfway(engine).await;
            let before = files(volume.path());
            let error = restore::run(request.clone()).await.expect_err("both are at work");
            assert_eq!(error.class(), ExitClass::Transient, "{engine:?}: {error}");
            assert!(error.message().contains("another restore is running on this volume"), "{engine:?}: {error}");
            let now = files(volume.path());
            assert!(before.iter().all(|file| now.contains(file)), "{engine:?}: {before:?} became {now:?}");
            if dies {
                end(first);
            } else {
                signal(&first, "-CONT");
                assert!(first.wait().unwrap().success(), "{engine:?}: the first one was disturbed");
            }
            assert_eq!(restore::run(request.clone()).await.unwrap().already, !dies, "{engine:?}");
            assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 1, "only the data directory");
            stored.serves(volume.path(), &request);
        }
    }
}

/// Outside a container an agent can be killed alone: its etcdutl continues, on a volume that no other process may touch.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcdutl_that_outlives_its_agent_keeps_the_volume() {
    let stored = Stored::of(5, Compression::Zstd, false).await;
    for engine in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let request = RestoreRequest { revision_bump: 0, ..stored.request(&volume, engine) };
        let (slow, works) = (folder.path().join("etcdutl"), folder.path().join("works"));
        let does =
            format!("if [ $1 = snapshot ]; then : >{}; exec /bin/sleep 600; fi; exec $real \"$@\"", works.display());
        let etcdutl = in_place_of(&etcd_of("3.6").with_file_name("etcdutl"), &slow, &does);
        let mut first = begin(&RestoreRequest { etcdutl, ..request.clone() });
        eventually("etcdutl at work", async || works.exists().then_some(())).await;
        first.kill().unwrap();
        first.wait().unwrap();
        let error = restore::run(request.clone()).await.expect_err("etcdutl is at work");
        assert_eq!(error.class(), ExitClass::Transient, "{engine:?}: {error}");
        assert!(error.message().contains("an etcdutl whose agent was killed"), "{engine:?}: {error}");
        signal(&first, "-KILL");
        assert!(!restore::run(request.clone()).await.unwrap().already, "{engine:?}");
        stored.serves(&volume, &request);
    }
}
