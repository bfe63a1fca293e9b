//! Later verification of a stored snapshot: read again, or restored and started, with a proof beside the snapshot.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_contract::{
    Compression, ExitClass, Level, ListRequest, ProofLevel, SavedReport, SnapshotFlags, StoreFlags, VerifyRequest,
};

use crate::age::{PAIRS, secret};
use crate::server::LINES;
use crate::support::{Etcd, S3, Small, bin, etcd_of, file_store, files, in_place_of, save_request, unsealed};
use holdfast_contract::error::Result;
use serde_json::json;
use snapshot_agent::catalog::proof::{Proof, Step};
use snapshot_agent::verbs::list::NewestProof;
use snapshot_agent::verbs::verify::{StoredVerified, Verified};
use snapshot_agent::verbs::{list, save, verify};

const READ: [Step; 4] = [Step::StoredSha256, Step::Trailer, Step::Structure, Step::HashKV];
const DRILLED: [Step; 7] = [
    Step::StoredSha256,
    Step::Trailer,
    Step::Structure,
    Step::HashKV,
    Step::Restored,
    Step::EtcdHashKV,
    Step::EtcdKeys,
];

/// Writes a history: overwritten and deleted keys on both sides of a compaction, and leases.
async fn lived(etcd: &Etcd) {
    etcd.fill(60, 4000).await;
    etcd.fill(20, 3000).await;
    let mut client = etcd.client().await;
    let revision = client.delete("k7", None).await.unwrap().header().unwrap().revision();
    let options = etcd_client::CompactionOptions::new().with_physical();
    client.compact(revision, Some(options)).await.unwrap();
    etcd.fill(10, 2000).await;
    client.delete("k8", None).await.unwrap();
    let lease = client.lease_grant(3600, None).await.unwrap().id();
    let options = etcd_client::PutOptions::new().with_lease(lease);
    client.put("leased", "x", Some(options)).await.unwrap();
}

async fn saved(etcd: &Etcd, store: StoreFlags, compression: Compression, age: bool) -> SavedReport {
    let mut request = save_request(etcd.flags(), store, compression);
    request.age_recipients = if age { vec![PAIRS[0].0.to_owned()] } else { vec![] };
    save::run(request).await.unwrap()
}

fn request(store: StoreFlags, key: &str, level: ProofLevel, scratch: &Path) -> VerifyRequest {
    VerifyRequest {
        snapshot: SnapshotFlags { store: Some(store), key: Some(key.to_owned()), ..SnapshotFlags::default() },
        level,
        bin_dir: Some(bin("etcd").parent().unwrap().to_owned()),
        scratch: scratch.to_owned(),
        deadline_seconds: 120,
        ..VerifyRequest::default()
    }
}

async fn verified(request: VerifyRequest) -> Result<StoredVerified> {
    match verify::run(request).await? {
        Verified::Stored(found) => Ok(*found),
        other => panic!("{other:?}"),
    }
}

async fn newest(store: StoreFlags) -> Option<NewestProof> {
    let request = ListRequest {
        store,
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        deadline_seconds: 20,
        ..ListRequest::default()
    };
    let entries = list::run(request).await.unwrap();
    assert_eq!(entries.len(), 1);
    // Missing or cut data have no level.
    assert!(matches!(entries[0].verified, Some(Level::HashKV) | None), "{entries:?}");
    entries[0].proof
}

/// A snapshot in a folder, whose bytes a test can change.
struct Kept {
    mount: tempfile::TempDir,
    saved: SavedReport,
    scratch: tempfile::TempDir,
}

impl Kept {
    async fn of(etcd: &Etcd, compression: Compression, age: bool) -> Self {
        let mount = tempfile::tempdir().unwrap();
        let saved = saved(etcd, file_store(mount.path()), compression, age).await;
        Self { mount, saved, scratch: tempfile::tempdir().unwrap() }
    }

    fn folder(&self) -> PathBuf {
        self.mount.path().join(&self.saved.key)
    }

    fn data(&self) -> PathBuf {
        let age = if self.saved.encrypted { ".age" } else { "" };
        self.folder().join(format!("snapshot.db{}{age}", self.saved.compression.suffix()))
    }

    fn store(&self) -> StoreFlags {
        file_store(self.mount.path())
    }

    fn request(&self, level: ProofLevel) -> VerifyRequest {
        request(self.store(), &self.saved.key, level, self.scratch.path())
    }

    /// Checks that a verification finds the snapshot broken and records that, and that the last of several proofs shows it.
    async fn broken(&self, request: VerifyRequest, says: &str) {
        let level = request.level;
        let error = verified(request).await.expect_err("was verified");
        assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
        assert!(error.message().contains(says), "{says:?} is not in: {error}");
        let proof = newest(self.store()).await;
        // For missing or cut data the list itself shows the fault.
        if let Some(proof) = proof {
            assert_eq!((proof.level, proof.passed), (level, false));
        }
        let kept = proofs(&self.folder());
        let failed = kept.last().unwrap();
        assert!(!failed.passed && failed.failure.as_deref() == Some(error.message()), "{failed:?}");
        assert_eq!(files(self.scratch.path()), [] as [&str; 0]);
    }
}

/// The proofs in a snapshot's folder, the oldest first.
fn proofs(folder: &Path) -> Vec<Proof> {
    let folder = folder.join("proofs");
    let names = if folder.exists() { files(&folder) } else { vec![] };
    names.iter().map(|name| Proof::parse(&fs::read(folder.join(name)).unwrap()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_good_is_proven_through_both_kinds_of_store() {
    let etcd = Etcd::start().await;
    lived(&etcd).await;
    let identity = secret(&[0]);
    for (compression, age) in
        [(Compression::Zstd, false), (Compression::Gzip, false), (Compression::None, true), (Compression::Zstd, true)]
    {
        let (s3, mount) = (S3::start().await, tempfile::tempdir().unwrap());
        for store in [s3.flags(), file_store(mount.path())] {
            let scratch = tempfile::tempdir().unwrap();
            let saved = saved(&etcd, store.clone(), compression, age).await;
            let folder =
                if store.url.starts_with("s3") { s3.file(&saved.key, "") } else { mount.path().join(&saved.key) };
            let manifest = fs::read(folder.join("manifest.json")).unwrap();
            let mut ask = request(store.clone(), &saved.key, ProofLevel::Stored, scratch.path());
            ask.snapshot.identities = vec![identity.path().join("key-0.txt")];
            let found = verified(ask.clone()).await.unwrap();
            assert_eq!(found.proof.proven, READ, "{found:?}");
            assert_eq!((found.proof.left_out.len(), found.proof.passed), (0, true));
            assert_eq!(found.uri, saved.uri);
            assert_eq!((found.proof.revision, found.proof.hash_kv), (saved.revision, saved.hash_kv));
            assert_eq!((found.proof.keys, found.proof.compact_revision), (saved.keys, saved.compact_revision));
            assert!(found.proof_uri.as_ref().unwrap().contains("/proofs/"), "{found:?}");
            let proof = newest(store.clone()).await.unwrap();
            assert_eq!((proof.level, proof.passed), (ProofLevel::Stored, true));

            ask.level = ProofLevel::Drill;
            let found = verified(ask.clone()).await.unwrap();
            assert_eq!((&found.proof.proven[..], &found.proof.left_out[..]), (&DRILLED[..], &[][..]));
            assert!(found.proof.etcd_version.as_ref().unwrap().starts_with("3."));
            assert!(found.proof.restore_seconds > Some(0) && found.proof.serve_seconds > Some(0), "{found:?}");
            assert_eq!(files(scratch.path()), [] as [&str; 0], "the scratch folder is gone");
            let proof = newest(store.clone()).await.unwrap();
            assert_eq!((proof.level, proof.passed), (ProofLevel::Drill, true));
            let kept = proofs(&folder);
            assert_eq!(kept.last().unwrap(), &found.proof, "read again");
            assert_eq!(kept.len(), 2);
            assert_eq!(fs::read(folder.join("manifest.json")).unwrap(), manifest, "never written again");

            ask.no_proof = true;
            let found = verified(ask).await.unwrap();
            assert_eq!((found.proof_uri, found.proof_not_kept), (None, None));
            assert_eq!(proofs(&folder).len(), 2);
        }
    }
}

/// Like a snapshot after a download with any tool.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_object_on_this_disk_is_read_as_it_was_stored() {
    let etcd = Etcd::start().await;
    lived(&etcd).await;
    let identity = secret(&[0]);
    for (compression, age, packed) in [
        (Compression::None, false, None),
        (Compression::Zstd, false, Some("zstd")),
        (Compression::Gzip, false, Some("gzip")),
        (Compression::Zstd, true, Some("age")),
    ] {
        let kept = Kept::of(&etcd, compression, age).await;
        let identities = if age { vec![identity.path().join("key-0.txt")] } else { vec![] };
        let snapshot = SnapshotFlags { file: Some(kept.data()), identities, ..SnapshotFlags::default() };
        let asked = VerifyRequest { snapshot, scratch: kept.scratch.path().to_owned(), ..VerifyRequest::default() };
        let Verified::File(found) = verify::run(asked).await.unwrap() else { panic!("{packed:?} is a file") };
        assert_eq!((found.packed, found.sha256.as_deref()), (packed, Some(kept.saved.sha256.as_str())));
        assert_eq!((Some(found.revision), found.hash_kv), (kept.saved.revision, kept.saved.hash_kv));
        assert_eq!(files(kept.scratch.path()), [] as [&str; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_damaged_at_rest_is_found_and_recorded() {
    let etcd = Etcd::start().await;
    lived(&etcd).await;
    let identity = secret(&[0]);
    for (compression, age) in [(Compression::None, false), (Compression::Zstd, false), (Compression::Zstd, true)] {
        let kept = Kept::of(&etcd, compression, age).await;
        let mut ask = kept.request(ProofLevel::Stored);
        ask.snapshot.identities = vec![identity.path().join("key-0.txt")];
        let drill = VerifyRequest { level: ProofLevel::Drill, ..ask.clone() };
        let good = fs::read(kept.data()).unwrap();
        let mut bytes = good.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(kept.data(), &bytes).unwrap();
        kept.broken(ask.clone(), "snapshot.db").await;
        kept.broken(drill.clone(), "snapshot.db").await;
        // Without a key as well.
        ask.snapshot.identities.clear();
        kept.broken(ask.clone(), "snapshot.db").await;
        fs::write(kept.data(), &good[..good.len() - 100]).unwrap();
        kept.broken(ask.clone(), "the object was cut or replaced").await;
        fs::remove_file(kept.data()).unwrap();
        kept.broken(ask.clone(), "its data does not").await;
        kept.broken(drill.clone(), "its data does not").await;
        fs::write(kept.data(), &good).unwrap();
        assert!(verified(drill).await.unwrap().proof.passed, "mended");
        assert_eq!(newest(kept.store()).await.map(|proof| proof.passed), Some(true));
        assert_eq!(proofs(&kept.folder()).len(), 7);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_claims_something_else_is_not_believed() {
    let etcd = Etcd::start().await;
    lived(&etcd).await;
    let kept = Kept::of(&etcd, Compression::Zstd, false).await;
    let at = kept.folder().join("manifest.json");
    let good = unsealed(&at);
    let number = |field: &str| good["contents"][field].as_i64().unwrap();
    for (field, value, says) in [
        ("hashKV", number("hashKV") ^ 1, "its HashKV is"),
        ("revision", number("revision") + 1, "its revision is"),
        ("compactRevision", number("compactRevision") - 1, "its compact revision is"),
        ("keys", number("keys") + 1, "its number of keys is"),
        ("revisions", number("revisions") + 1, "its number of records is"),
    ] {
        let mut claim = good.clone();
        claim["contents"][field] = json!(value);
        fs::write(&at, claim.to_string()).unwrap();
        kept.broken(kept.request(ProofLevel::Stored), says).await;
        kept.broken(kept.request(ProofLevel::Drill), says).await;
    }
    for (field, says) in [("storedSha256", "its sha256 is"), ("sha256", "its database sha256 is")] {
        let mut claim = good.clone();
        claim[field] = json!("ab".repeat(32));
        fs::write(&at, claim.to_string()).unwrap();
        kept.broken(kept.request(ProofLevel::Stored), says).await;
    }
    let mut elsewhere = good.clone();
    elsewhere["key"] = json!("shop/orders/1a2b3c4d/20200101T000000Z-byhand-00000000");
    fs::write(&at, elsewhere.to_string()).unwrap();
    let error = verified(kept.request(ProofLevel::Stored)).await.unwrap_err();
    assert!(error.class() == ExitClass::Corrupt && error.message().contains("did not write this manifest"), "{error}");

    // A manifest of the first version lacks the contents: the report says so, without a failure.
    let mut first = good.clone();
    first.as_object_mut().unwrap().remove("contents");
    fs::write(&at, first.to_string()).unwrap();
    let found = verified(kept.request(ProofLevel::Drill)).await.unwrap();
    assert_eq!(found.proof.proven.len(), DRILLED.len() - 1);
    assert!(found.proof.left_out[0].contains("records no contents"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_opened_is_told() {
    let etcd = Etcd::start().await;
    lived(&etcd).await;
    let kept = Kept::of(&etcd, Compression::Zstd, true).await;
    let wrong = secret(&[1]);
    for level in [ProofLevel::Stored, ProofLevel::Drill] {
        let mut ask = kept.request(level);
        ask.snapshot.identities = vec![wrong.path().join("key-1.txt")];
        let error = verified(ask).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Config);
        assert!(error.message().contains(PAIRS[0].0) && error.message().contains(PAIRS[1].0), "{error}");
        assert!(!error.message().contains(&PAIRS[1].1[16..28]), "{error}");
    }
    let error = verified(kept.request(ProofLevel::Drill)).await.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("--identity"), "{error}");
    assert_eq!(proofs(&kept.folder()), [], "nothing was found out");

    let found = verified(kept.request(ProofLevel::Stored)).await.unwrap();
    assert_eq!(found.proof.proven, [Step::StoredSha256]);
    assert!(found.proof.left_out[0].contains(PAIRS[0].0), "{found:?}");
    assert!(Verified::Stored(Box::new(found)).lines().contains("left out  content"));

    let mut ask = kept.request(ProofLevel::Stored);
    ask.snapshot.key = Some("shop/orders/1a2b3c4d/20200101T000000Z-byhand-00000000".to_owned());
    let error = verified(ask).await.unwrap_err();
    assert!(error.class() == ExitClass::NotFound && error.message().contains("no complete snapshot"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_takes_no_proof_does_not_make_the_snapshot_worse() {
    let etcd = Etcd::start().await;
    lived(&etcd).await;
    let scratch = tempfile::tempdir().unwrap();
    let mount = Small::of("64m");
    let saved_here = saved(&etcd, file_store(mount.path()), Compression::Zstd, false).await;
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(mount.path()).status().unwrap();
    assert!(remounted.success());
    let ask = request(file_store(mount.path()), &saved_here.key, ProofLevel::Stored, scratch.path());
    let found = verified(ask).await.unwrap();
    assert_eq!((found.proof.proven.len(), found.proof.passed, found.proof_uri.is_none()), (READ.len(), true, true));
    assert!(found.proof_not_kept.as_ref().unwrap().contains("Read-only"), "{found:?}");
    assert!(Verified::Stored(Box::new(found)).lines().contains("the proof could not be kept"));

    let s3 = S3::start().await;
    let saved = saved(&etcd, s3.flags(), Compression::Zstd, false).await;
    let port = crate::support::free_port();
    let buckets = s3.folder.path().join("buckets").display().to_string();
    let address = format!("127.0.0.1:{port}");
    let args =
        ["--access", "key", "--secret", "secret", "--readonly", "--quiet", "--port", &address, "posix", &buckets];
    let log = scratch.path().join("log");
    let _readonly = crate::support::start("versitygw", &args.map(str::to_owned), &log);
    crate::support::eventually("its port", async || tokio::net::TcpStream::connect(&address).await.ok()).await;
    let store = StoreFlags { s3_endpoint: Some(format!("http://{address}")), ..s3.flags() };
    let found = verified(request(store, &saved.key, ProofLevel::Stored, scratch.path())).await.unwrap();
    assert_eq!(found.proof.proven, READ);
    assert!(found.proof_not_kept.is_some() && found.proof_uri.is_none(), "{found:?}");
    assert_eq!(proofs(&s3.file(&saved.key, "")), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_etcd_is_drilled_and_one_with_users_too() {
    for line in LINES {
        let etcd = Etcd::of(line).await;
        lived(&etcd).await;
        let mut kept = Kept::of(&etcd, Compression::Zstd, false).await;
        let bin_dir = etcd_of(line).parent().unwrap().to_owned();
        let drill = |kept: &Kept| VerifyRequest { bin_dir: Some(bin_dir.clone()), ..kept.request(ProofLevel::Drill) };
        let found = verified(drill(&kept)).await.unwrap();
        assert_eq!(found.proof.proven, DRILLED, "{line}: {found:?}");
        assert!(found.proof.etcd_version.as_ref().unwrap().starts_with(line), "{found:?}");

        let secrets = tempfile::tempdir().unwrap();
        let file = secrets.path().join("password");
        let with_user = etcd.locked("password", &file).await;
        kept.saved = save::run(save_request(with_user, kept.store(), Compression::Zstd)).await.unwrap();
        let found = verified(drill(&kept)).await.unwrap();
        let read = [&DRILLED[..5], &[Step::RestoredHashKV]].concat();
        assert_eq!(found.proof.proven, read, "{line}: {found:?}");
        assert!(found.proof.left_out[0].contains("authentication enabled"), "{line}: {found:?}");
        assert_eq!(files(kept.scratch.path()), [] as [&str; 0]);
    }
    // An older etcd does not read the data of a newer one.
    let etcd = Etcd::of("3.7").await;
    etcd.fill(3, 10).await;
    let kept = Kept::of(&etcd, Compression::Zstd, false).await;
    let older = etcd_of("3.5").parent().unwrap().to_owned();
    let ask = VerifyRequest { bin_dir: Some(older), ..kept.request(ProofLevel::Drill) };
    let error = verified(ask).await.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("storage version"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_without_room_or_programs_is_refused_before_anything_is_read() {
    let etcd = Etcd::start().await;
    etcd.fill(3, 10).await;
    let kept = Kept::of(&etcd, Compression::Zstd, false).await;
    let small = Small::of("8m");
    let ask = VerifyRequest { scratch: small.path().to_owned(), ..kept.request(ProofLevel::Drill) };
    let error = verified(ask).await.unwrap_err();
    assert!(error.class() == ExitClass::Full && error.message().contains("--scratch"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let ask = VerifyRequest { bin_dir: Some(empty.path().to_owned()), ..kept.request(ProofLevel::Drill) };
    let error = verified(ask).await.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("etcdutl"), "{error}");
}

/// A folder with an etcd and an etcdutl that run these scripts, and print the versions of the real ones.
fn programs(etcd: &str, etcdutl: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, does) in [("etcd", etcd), ("etcdutl", etcdutl)] {
        in_place_of(&bin(name), &folder.path().join(name), does);
    }
    folder
}

/// Script in place of the first etcd of a drill: another etcd has its ports already, answers there, and ends after a while.
const COMES_SECOND: &str = r#"if [ ! -e OTHER ]; then
    for arg in "$@"; do
        case $arg in
        --listen-client-urls=*) client=${arg#*=} ;;
        --listen-peer-urls=*) peer=${arg#*=} ;;
        esac
    done
    $real --data-dir=OTHER --name=other --initial-cluster=other=$peer --unsafe-no-fsync \
        --listen-client-urls=$client --advertise-client-urls=$client \
        --listen-peer-urls=$peer --initial-advertise-peer-urls=$peer >/dev/null 2>&1 &
    other=$!
    (/bin/sleep 8; kill -9 $other) &
    /bin/sleep 6
    echo "listen tcp ${client#http://}: bind: address already in use" >&2
    exit 1
fi
exec $real "$@""#;

/// Drills run beside one another, and beside other programs: a free port may belong to another process a moment later.
#[tokio::test(flavor = "multi_thread")]
async fn a_drill_is_not_misled_by_another_s_etcd_at_its_port() {
    let etcd = Etcd::start().await;
    lived(&etcd).await;
    let kept = Kept::of(&etcd, Compression::Zstd, false).await;
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    let programs = programs(&COMES_SECOND.replace("OTHER", &other.display().to_string()), "exec $real \"$@\"");
    let bin_dir = Some(programs.path().to_owned());
    let found = verified(VerifyRequest { bin_dir, ..kept.request(ProofLevel::Drill) }).await.unwrap();
    assert!(other.join("member/snap/db").exists(), "nobody was in the way");
    assert_eq!((&found.proof.proven[..], found.proof.passed), (&DRILLED[..], true), "{found:?}");
}

/// A drill may fail for many reasons, and few of them concern the snapshot: only those are recorded against it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_drill_stumbles_over_is_not_held_against_the_snapshot() {
    const AS_IT_IS: &str = "exec $real \"$@\"";
    let etcd = Etcd::start().await;
    etcd.fill(3, 10).await;
    let kept = Kept::of(&etcd, Compression::Zstd, false).await;
    let drill = |bin_dir: &Path| VerifyRequest { bin_dir: Some(bin_dir.to_owned()), ..kept.request(ProofLevel::Drill) };
    let unharmed = async |programs: tempfile::TempDir, class: ExitClass, says: &[&str]| {
        let error = verified(drill(programs.path())).await.expect_err("was verified");
        assert_eq!(error.class(), class, "{error}");
        for says in says {
            assert!(error.message().contains(says), "{says:?} is not in: {error}");
        }
        assert_eq!(proofs(&kept.folder()), [], "{error}");
        assert_eq!(files(kept.scratch.path()), [] as [&str; 0], "{error}");
    };
    let does_not_start = "etcd does not start on the restored data";
    for (does, class, says) in [
        ("echo 'flag provided but not defined: -x' >&2; echo Usage: >&2; exit 2", ExitClass::Transient, "-x"),
        ("echo 'panic: it had a bad day' >&2; exit 2", ExitClass::Transient, "it had a bad day"),
        ("kill -9 $$", ExitClass::Transient, "signal: 9"),
        ("echo 'write wal: no space left on device' >&2; exit 1", ExitClass::Full, "no space"),
    ] {
        unharmed(programs(does, AS_IT_IS), class, &[does_not_start, says]).await;
    }
    for (does, class, says) in [
        ("echo 'Error: it had a bad day' >&2; exit 1", ExitClass::Transient, "it had a bad day"),
        ("echo 'Error: read snapshot.db: input/output error' >&2; exit 1", ExitClass::Transient, "input/output"),
        ("echo 'fatal error: runtime: out of memory' >&2; exit 2", ExitClass::Transient, "out of memory"),
        ("echo 'Error: unknown flag: --name' >&2; echo Usage: >&2; exit 1", ExitClass::Config, "unknown flag: --name"),
    ] {
        unharmed(programs(AS_IT_IS, does), class, &["etcdutl could not restore", says]).await;
    }

    // A disk that returns other bytes: of the snapshot, and of the restored database, which etcd serves as well as any.
    for does in [
        "/bin/sed -i s/k1/k9/ \"$3\"; exec $real \"$@\"",
        "$real \"$@\" && for arg; do case $arg in --data-dir=*) /bin/sed -i s/k1/k9/ \"${arg#*=}/member/snap/db\";; esac; done",
    ] {
        unharmed(programs(AS_IT_IS, does), ExitClass::Refused, &["returns other bytes", "is intact"]).await;
    }

    // Programs of different versions, or with wrong names, are reported before anything is read.
    let links = |etcd: PathBuf, etcdutl: PathBuf| {
        let folder = tempfile::tempdir().unwrap();
        symlink(etcd, folder.path().join("etcd")).unwrap();
        symlink(etcdutl, folder.path().join("etcdutl")).unwrap();
        folder
    };
    let mixed = links(etcd_of("3.7"), etcd_of("3.5").with_file_name("etcdutl"));
    unharmed(mixed, ExitClass::Config, &["is etcd 3.7 and", "is etcdutl 3.5", "--bin-dir"]).await;
    let other = links(bin("etcdctl"), bin("etcdutl"));
    unharmed(other, ExitClass::Config, &["prints no etcd version"]).await;

    // etcdutl hashes its own copy: where the file matches its proof, the disk is at fault.
    let copied = programs(AS_IT_IS, "echo 'Error: expected sha256 [1], got [2]' >&2; exit 1");
    unharmed(copied, ExitClass::Refused, &["expected sha256", "returns other bytes", "is intact"]).await;

    // Every other error of etcdutl about the bytes counts against the snapshot.
    let programs = programs(AS_IT_IS, "echo 'Error: snapshot missing hash but --skip-hash-check=false' >&2; exit 1");
    kept.broken(drill(programs.path()), "snapshot missing hash").await;
    assert_eq!(proofs(&kept.folder()).len(), 1);
}

/// The rehearsal of an upgrade writes, after all comparisons. An etcd that takes no write is no fault of the snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn a_drill_writes_when_asked_and_its_proof_is_the_same() {
    let etcd = Etcd::start().await;
    lived(&etcd).await;
    let kept = Kept::of(&etcd, Compression::Zstd, false).await;
    let writes = |kept: &Kept| VerifyRequest { write: true, no_proof: true, ..kept.request(ProofLevel::Drill) };
    let found = verified(writes(&kept)).await.unwrap();
    assert_eq!((found.proof.proven, found.proof.left_out), (DRILLED.to_vec(), vec![]));
    assert_eq!(proofs(&kept.folder()), []);

    let own = etcd.client().await.status().await.unwrap().header().unwrap().member_id();
    let mut of = etcd_client::AlarmOptions::new();
    of.with_member(own);
    let (raise, full) = (etcd_client::AlarmAction::Activate, etcd_client::AlarmType::Nospace);
    etcd.client().await.alarm(raise, full, Some(of)).await.unwrap();
    let kept = Kept::of(&etcd, Compression::Zstd, false).await;
    verified(kept.request(ProofLevel::Drill)).await.unwrap();
    let error = verified(writes(&kept)).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Transient, "{error}");
    assert!(error.message().contains("takes no write") && error.message().contains("space"), "{error}");
}
