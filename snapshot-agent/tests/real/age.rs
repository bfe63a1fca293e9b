//! Encrypted snapshots: the owners of the public keys can read them, no other reader can, and no private key appears anywhere.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_contract::{
    Compression, DATA_DIR, EtcdFlags, ExitClass, InspectRequest, RestoreRequest, SavedReport, StoreFlags,
};

use crate::faults::{messages, save_stream, snapshot};
use crate::support::{Etcd, S3, bin, file_store, files, restore_request, save_request, unsealed};
use futures::stream;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use snapshot_agent::format::crypt::{self, CryptError, Decryptor, Identities, Recipients};
use snapshot_agent::verbs::{inspect, restore, save};
use tempfile::TempDir;

/// Pairs of public and private key, made for these tests with `age-keygen`.
pub(crate) const PAIRS: [(&str, &str); 3] = [
    (
        "age17d8qqcu7qa3vpa37td4rec44z33mmkyjz322cpeqh8rmt8rm2u3sdrkw4k",
        "AGE-SECRET-KEY-1UPT5TX46Z6PRC4FTMAM8N4MZ37J7L57XNFWWR8QTF3R5UJJLZ6VS5Q5TE4",
    ),
    (
        "age1ze5squxp3qjt2gsh6p8pzq8wk2nqr6g9y2vhql93uweejezldspq3rx3eq",
        "AGE-SECRET-KEY-1S0ATAU5WZJ208424SSKWEFPV24AQF0NQ5Z03FS2JASVAJ8J9CJ3QZ7CD6E",
    ),
    (
        "age1v6xfxesxqhct6uk0097hsgajv3mas0ev8revcqqp6pk4v7zgfsksesr76a",
        "AGE-SECRET-KEY-1QK4JVA049TYXUPAWHFHTKZ9670WF5FP3CAMZ9A9F2MRT9NRX7GMSKG0U6D",
    ),
];

/// A value that the database contains literally.
const MARKER: &str = "this-very-value-must-not-be-seen-in-the-store";

fn public(of: &[usize]) -> Vec<String> {
    of.iter().map(|i| PAIRS[*i].0.to_owned()).collect()
}

/// A folder like kubelet's mount of a Secret: one file for each key, with the comment that `age-keygen` writes.
pub(crate) fn secret(of: &[usize]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for i in of {
        let (public, private) = PAIRS[*i];
        fs::write(folder.path().join(format!("key-{i}.txt")), format!("# public key: {public}\n{private}\n")).unwrap();
    }
    folder
}

/// Checks that a text contains no private key.
fn shows_no_key(text: &str) {
    for (_, private) in PAIRS {
        let canary = &private["AGE-SECRET-KEY-1".len()..][..12];
        assert!(!text.to_uppercase().contains(canary), "a private key shows: {text}");
    }
}

/// A snapshot in a folder, encrypted for the first two pairs.
struct Stored {
    mount: TempDir,
    saved: SavedReport,
}

impl Stored {
    async fn of(etcd: &Etcd, compression: Compression) -> Self {
        let mount = tempfile::tempdir().unwrap();
        let mut request = save_request(etcd.flags(), file_store(mount.path()), compression);
        request.age_recipients = public(&[0, 1]);
        let saved = save::run(request).await.unwrap();
        assert!(saved.encrypted);
        Self { mount, saved }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.mount.path().join(&self.saved.key).join(name)
    }

    fn data(&self) -> PathBuf {
        self.file(&format!("snapshot.db{}.age", self.saved.compression.suffix()))
    }

    fn request(&self, volume: &Path, secrets: &[&TempDir]) -> RestoreRequest {
        RestoreRequest {
            age_identity_dirs: secrets.iter().map(|folder| folder.path().to_owned()).collect(),
            ..restore_request(file_store(self.mount.path()), &self.saved.key, volume)
        }
    }

    /// Restores onto an empty volume, and checks that the volume is empty again after the refusal.
    async fn refused(&self, secrets: &[&TempDir]) -> (ExitClass, String) {
        let volume = tempfile::tempdir().unwrap();
        let error = restore::run(self.request(volume.path(), secrets)).await.expect_err("was restored");
        assert_eq!(files(volume.path()), [] as [&str; 0], "{error}");
        shows_no_key(&format!("{error} {error:?}"));
        (error.class(), error.message().to_owned())
    }
}

/// Restores with one identity, and starts an etcd on the restored data.
async fn comes_back(etcd: &Etcd, store: StoreFlags, key: &str, secret: &TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let mut request = restore_request(store, key, &volume);
    request.age_identity_dirs = vec![secret.path().to_owned()];
    let (name, peer) = request.initial_cluster.split_once('=').unwrap();
    let (name, peer) = (name.to_owned(), peer.to_owned());
    let restored = restore::run(request.clone()).await.unwrap();
    shows_no_key(&format!("{restored:?} {request:?}"));
    for file in files(&volume) {
        shows_no_key(&String::from_utf8_lossy(&fs::read(volume.join(file)).unwrap()));
    }
    // The restore is complete: neither the Secret nor its folder is needed again.
    request.age_identity_dirs = vec!["/nonexistent".into()];
    assert!(restore::run(request).await.unwrap().already);
    let rebuilt = Etcd::on(folder, &volume.join(DATA_DIR), &name, &peer, &["--initial-cluster-state=existing"]).await;
    assert_eq!(rebuilt.content().await, etcd.content().await);
}

async fn filled() -> Etcd {
    let etcd = Etcd::start().await;
    etcd.fill(100, 4000).await;
    etcd.client().await.put("marker", MARKER, None).await.unwrap();
    etcd
}

#[tokio::test(flavor = "multi_thread")]
async fn each_recipient_reads_it_back_from_a_folder_and_so_does_the_common_tool() {
    let etcd = filled().await;
    for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
        let stored = Stored::of(&etcd, compression).await;
        let data = stored.data();
        let names = ["manifest.json", data.file_name().unwrap().to_str().unwrap()];
        assert_eq!(files(data.parent().unwrap()), names, "and no temporary file");
        let manifest: Value = serde_json::from_slice(&fs::read(stored.file("manifest.json")).unwrap()).unwrap();
        assert_eq!(manifest["encryption"], json!({"kind": "age", "recipients": public(&[0, 1])}));
        for i in [0, 1] {
            comes_back(&etcd, file_store(stored.mount.path()), &stored.saved.key, &secret(&[i])).await;
        }

        // No lock-in: `age -d`, the common tool and etcdutl suffice to read the snapshot.
        let keys = secret(&[1]);
        let mut by_hand = Command::new("age");
        by_hand.arg("-d").arg("-i").arg(keys.path().join("key-1.txt")).arg(&data);
        let opened = by_hand.output().expect("the command `age` is missing: `make test` installs it");
        assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
        let packed = stored.mount.path().join("packed");
        fs::write(&packed, opened.stdout).unwrap();
        let plain = match compression {
            Compression::Zstd => Command::new("zstd").arg("-dcf").arg(&packed).output().unwrap().stdout,
            Compression::Gzip => Command::new("gzip").arg("-dcf").arg(&packed).output().unwrap().stdout,
            Compression::None => fs::read(&packed).unwrap(),
        };
        assert_eq!(plain.len() as u64, stored.saved.db_bytes + 32);
        let shown = String::from_utf8_lossy(&plain).contains(MARKER);
        assert!(shown, "the marker is not where it is looked for");
        let hidden = fs::read(&data).unwrap();
        assert!(
            !hidden.windows(MARKER.len()).any(|bytes| bytes == MARKER.as_bytes()),
            "{compression:?}: not encrypted"
        );
        let file = stored.mount.path().join("plain.db");
        fs::write(&file, plain).unwrap();
        let target = stored.mount.path().join("by-hand");
        let restored = Command::new(bin("etcdutl"))
            .args(["snapshot", "restore"])
            .arg(&file)
            .arg(format!("--data-dir={}", target.display()))
            .output()
            .unwrap();
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_recipient_reads_it_back_from_s3_and_inspect_finds_it() {
    let etcd = filled().await;
    let s3 = S3::start().await;
    let mut request = save_request(etcd.flags(), s3.flags(), Compression::None);
    request.age_recipients = public(&[0, 1]);
    let saved = save::run(request).await.unwrap();
    assert_eq!(saved.uri, format!("s3://bkt/pre/fix/{}/snapshot.db.age", saved.key));
    let stored = fs::read(s3.file(&saved.key, "snapshot.db.age")).unwrap();
    assert!(!stored.windows(MARKER.len()).any(|bytes| bytes == MARKER.as_bytes()), "not encrypted");
    for i in [0, 1] {
        comes_back(&etcd, s3.flags(), &saved.key, &secret(&[i])).await;
    }
    let find = InspectRequest {
        store: s3.flags(),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        owner_uid: "99887766-0000".to_owned(),
        deadline_seconds: 30,
        ..InspectRequest::default()
    };
    let found = inspect::run(find).await.unwrap();
    assert!(found.encrypted);
    assert_eq!((found.uri, found.sha256), (saved.uri, saved.sha256));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_identity_that_fits_nothing_is_read_and_the_key_that_is_needed_is_named() {
    let etcd = filled().await;
    let stored = Stored::of(&etcd, Compression::Zstd).await;
    let says = async |secrets: &[&TempDir], class: ExitClass, words: &[&str]| {
        let (found, message) = stored.refused(secrets).await;
        assert_eq!(found, class, "{message}");
        for word in words {
            assert!(message.contains(word), "no {word:?} in {message}");
        }
    };
    let [first, second, third] = PAIRS.map(|pair| pair.0);
    says(&[], ExitClass::Config, &[first, second, "identitySecretRefs", "no identity is given"]).await;
    let missing = tempfile::tempdir().unwrap();
    says(&[&missing], ExitClass::Config, &[first, second, "do not exist"]).await;
    says(&[&secret(&[2])], ExitClass::Config, &[first, second, third, "identitySecretRefs"]).await;
    let broken = tempfile::tempdir().unwrap();
    fs::write(broken.path().join("key.txt"), &PAIRS[0].1[..60]).unwrap();
    says(&[&broken], ExitClass::Config, &["key.txt: line 1"]).await;
    // The manifest names a recipient that the object lacks.
    let manifest = stored.file("manifest.json");
    let good = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, unsealed(&manifest).to_string().replace(first, third)).unwrap();
    says(&[&secret(&[2])], ExitClass::Config, &["none of the identities"]).await;
    fs::write(&manifest, good).unwrap();
    // One matching identity is enough, in any position.
    let volume = tempfile::tempdir().unwrap();
    let (other, both) = (secret(&[2]), secret(&[2, 1]));
    let request = stored.request(volume.path(), &[&missing, &other, &both]);
    restore::run(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_not_encrypted_asks_for_no_identity_and_minds_none() {
    let etcd = filled().await;
    let mount = tempfile::tempdir().unwrap();
    let saved = save::run(save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd)).await.unwrap();
    assert!(!saved.encrypted);
    let volume = tempfile::tempdir().unwrap();
    let mut request = restore_request(file_store(mount.path()), &saved.key, volume.path());
    let keys = secret(&[0]);
    request.age_identity_dirs = vec![keys.path().to_owned(), "/nonexistent".into()];
    restore::run(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_recipient_ends_the_run_before_anything_is_asked_or_stored() {
    let mount = tempfile::tempdir().unwrap();
    for (bad, says) in [("age1oops", "--age-recipient \"age1oops\""), (PAIRS[0].1, "private key")] {
        let etcd = EtcdFlags { endpoints: vec!["http://127.0.0.1:1".to_owned()], ..EtcdFlags::default() };
        let mut request = save_request(etcd, file_store(mount.path()), Compression::Zstd);
        request.age_recipients = vec![PAIRS[1].0.to_owned(), bad.to_owned()];
        let error = save::run(request).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Config);
        assert!(error.message().contains(says), "{error}");
        shows_no_key(&format!("{error} {error:?}"));
    }
    assert_eq!(files(mount.path()), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_broken_thing_at_a_time() {
    let etcd = filled().await;
    let keys = secret(&[0]);
    for compression in [Compression::Zstd, Compression::None] {
        let stored = Stored::of(&etcd, compression).await;
        let good = fs::read(stored.data()).unwrap();
        let manifest = unsealed(&stored.file("manifest.json"));
        // Store and manifest agree on the wrong bytes, so that only the format can detect them.
        let refused = async |bytes: &[u8]| {
            fs::write(stored.data(), bytes).unwrap();
            let mut agreed = manifest.clone();
            agreed["storedBytes"] = json!(bytes.len());
            agreed["storedSha256"] = json!(hex::encode(Sha256::digest(bytes)));
            fs::write(stored.file("manifest.json"), agreed.to_string()).unwrap();
            let (class, message) = stored.refused(&[&keys]).await;
            assert!(!message.contains("its manifest says"), "found too late: {message}");
            (class, message)
        };
        for at in [0, 30, 200, 380, 420, good.len() / 2, good.len() - 1] {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            let (class, message) = refused(&bytes).await;
            // In the first recipient's wrapped key it looks like a snapshot for another recipient.
            let expected =
                if message.contains("none of the identities") { ExitClass::Config } else { ExitClass::Corrupt };
            assert_eq!(class, expected, "{compression:?}, a bit at {at}: {message}");
        }
        for length in [0, 20, 300, 420, 65_536, good.len() / 2, good.len() - 16, good.len() - 1] {
            let (class, message) = refused(&good[..length]).await;
            assert_eq!(class, ExitClass::Corrupt, "{compression:?}, cut at {length}: {message}");
        }
        let (class, _) = refused(&[&good[..], b"more"].concat()).await;
        assert_eq!(class, ExitClass::Corrupt, "{compression:?}, something behind the end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_every_size_come_back() {
    // Lengths around the format's pieces of 64 KiB, and an empty file.
    const PIECE: usize = 64 << 10;
    let recipients = Recipients::parse(&public(&[0])).unwrap();
    let identities = Identities::parse(PAIRS[0].1.as_bytes()).unwrap();
    for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 7] {
        let plain = crate::support::noise(7, length);
        for step in [1000, PIECE, 1 << 20] {
            let mut encryptor = crypt::encrypt(&recipients, vec![]).unwrap();
            for bytes in plain.chunks(step) {
                encryptor.write_all(bytes).unwrap();
                encryptor.flush().unwrap();
            }
            let sealed = encryptor.finish().unwrap();
            let mut opened = vec![];
            Decryptor::new(&identities, &sealed[..]).unwrap().read_to_end(&mut opened).unwrap();
            assert_eq!(opened, plain, "{length} in steps of {step}");
            let again = crypt::encrypt(&recipients, vec![]).unwrap().finish().unwrap();
            assert_ne!(sealed[..100], again[..100], "a key of its own for every file");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_wrote_is_read_or_refused_as_the_format_has_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/age");
    let names = files(&folder);
    assert_eq!(names.len(), 68, "{names:?}");
    let mut wrong = vec![];
    for name in names {
        let bytes = fs::read(folder.join(&name)).unwrap();
        let end = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap();
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let value = |key: &str| head.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        let mut file = bytes[end + 2..].to_vec();
        if value("compressed") == Some("zlib") {
            let mut whole = vec![];
            flate2::read::ZlibDecoder::new(&file[..]).read_to_end(&mut whole).unwrap();
            file = whole;
        }
        let identities: Vec<_> = head.lines().filter_map(|line| line.strip_prefix("identity: ")).collect();
        let identities = Identities::parse(identities.join("\n").as_bytes()).unwrap();
        let (mut plain, mut stubborn) = (vec![], vec![]);
        let found = match Decryptor::new(&identities, &file[..]) {
            Ok(mut decryptor) => {
                let whole = decryptor.read_to_end(&mut plain).is_ok();
                // A second read gives no more data.
                assert_eq!(decryptor.read_to_end(&mut stubborn).is_ok(), whole, "{name}");
                if whole { "success" } else { "payload failure" }
            }
            Err(CryptError::NotAge | CryptError::Header(_)) => "header failure",
            Err(CryptError::NoMatch) => "no match",
            Err(CryptError::Mac) => "HMAC failure",
            Err(CryptError::Piece(_)) => "payload failure",
            Err(CryptError::Io(_)) => "trouble",
        };
        // The crate still reads the output of its first versions: a stanza without the short line at its end. The HMAC covers the
        // bytes that were read, so no other header passes for this one.
        let older = ["stanza_missing_body", "stanza_missing_final_line"].contains(&name.as_str());
        let expected = if older { Some("success") } else { value("expect") };
        if Some(found) != expected || !stubborn.is_empty() {
            wrong.push(format!("{name}: {found}, expected {expected:?}"));
        }
        if let Some(payload) = value("payload")
            && hex::encode(Sha256::digest(&plain)) != payload
        {
            wrong.push(format!("{name}: {} bytes given away are not the ones expected", plain.len()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_not_proven_is_not_published_encrypted_either() {
    let mount = tempfile::tempdir().unwrap();
    let mut request = save_request(EtcdFlags::default(), file_store(mount.path()), Compression::Zstd);
    request.age_recipients = public(&[0]);
    let mut bytes = snapshot(64);
    bytes[5000] ^= 1;
    let error = save_stream(request, stream::iter(messages(&bytes))).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
    assert!(!files(mount.path()).iter().any(|file| file.contains("manifest") || file.contains("snapshot.db")));
}
