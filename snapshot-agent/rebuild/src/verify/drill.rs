//! A drill: restores the snapshot into a scratch folder, starts an etcd on it and compares the etcd's answers, and lets a
//! kube-apiserver decode every object where the request names one.
//!
//! This file decides which answers the etcd must give: the HashKV computed from the bytes, at the same revision, and the same
//! number of keys. If the snapshot has authentication enabled, the agent cannot ask: it reads the etcd's database after the
//! etcd has stopped. The agent checks the programs before and the disk after the drill, because faults of either are no faults
//! of the snapshot. `etcd/src/server/etcd.rs` starts etcd; `kubernetes.rs` decides what a kube-apiserver proves.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use etcd_client::{Client, GetOptions};
use holdfast_bbolt::scan::{HashKv, Proven, Reader, ScanError};
use holdfast_contract::error::{Error, Result, io_error, task_error};
use holdfast_contract::{ExitClass, Origin, VerifyRequest};
use holdfast_io::memory::file_budget;
use holdfast_io::process::{IMAGES_BIN, find_program, random_uid};
use holdfast_io::progress::STALL;
use holdfast_io::scratch::Scratch;
use holdfast_layout::manifest::Manifest;
use holdfast_store::Store;

use super::compare::compare;
use super::kubernetes::{self, Decoder};
use holdfast_catalog::proof::{Proof, Step};
use holdfast_catalog::stored::Stored;
use holdfast_etcd::connect::etcd_error;
use holdfast_etcd::etcdutl::disk::{OnDisk, other_bytes};
use holdfast_etcd::etcdutl::{BESIDE_DATABASE, COPIES, Etcdutl, Initial, version_of};
use holdfast_etcd::hash_kv::{Answer, ask};
use holdfast_etcd::member::Voter;
use holdfast_etcd::server::etcd::{Etcd, Work, starts_within};
use holdfast_etcd::version::check_version;
use holdfast_format::crypt::Identities;
use holdfast_gate::data_dir::DATABASE;
use holdfast_verbs_common::{seconds_since, unsound};

/// The only member of the restored cluster, visible only to the agent.
const MEMBER: &str = "drill";
const PEER_URL: &str = "http://127.0.0.1:2380";
const INITIAL_CLUSTER: &str = "drill=http://127.0.0.1:2380";

/// The programs and the folder of a drill, and its running etcd.
pub(super) struct Drill {
    etcdutl: Etcdutl,
    program: PathBuf,
    scratch: Scratch,
    etcd: Option<Etcd>,
    /// Whether the etcd has to take a write.
    write: bool,
    /// The kube-apiserver that decodes the objects.
    decoder: Option<Decoder>,
}

impl Drill {
    /// Finds the programs and checks the space, before the agent reads the snapshot.
    pub(super) async fn prepare(request: &VerifyRequest, manifest: &Manifest) -> Result<Self> {
        let restores = program(request.bin_dir.as_deref(), "etcdutl")?;
        let program = program(request.bin_dir.as_deref(), "etcd")?;
        let etcdutl = Etcdutl::find(&restores).await?;
        // The programs are found separately and may differ in version. etcd may not start on data made for another version.
        let etcd = version_of(&program, "etcd", "--version", "etcd Version:").await?;
        if etcd != etcdutl.version() {
            return Err(Error::config(format!(
                "{} is etcd {etcd} and {} is etcdutl {}: a drill needs the same minor version of both. Name the folder \
                 of both programs with --bin-dir",
                program.display(),
                restores.display(),
                etcdutl.version()
            )));
        }
        check_version(manifest, etcdutl.version())?;
        let needed = manifest.db_bytes.saturating_mul(COPIES).saturating_add(BESIDE_DATABASE);
        let decoder = Decoder::of_request(request)?;
        let scratch = Scratch::new(&request.scratch, needed)?;
        Ok(Self { etcdutl, program, scratch, etcd: None, write: request.write, decoder })
    }

    /// Restores, starts etcd and compares.
    pub(super) async fn run(
        &mut self,
        store: &Store,
        stored: &Stored,
        identities: Option<Identities>,
        proof: &mut Proof,
    ) -> Result<()> {
        let began = Instant::now();
        let (snapshot, file) = self.scratch.file("snapshot.db")?;
        stored.unpack_once(store, identities, file, STALL).await?;
        proof.proven.extend([Step::StoredSha256, Step::Trailer]);
        let data = self.scratch.join("data");
        let (found, hash_kv) = match self.restored(store, stored, (&snapshot, &data), proof).await {
            Ok(restored) => restored,
            Err(error) => {
                let Manifest { db_bytes, sha256, .. } = &stored.manifest;
                return Err(OnDisk::at(&snapshot, *db_bytes, sha256.clone(), true, self.disk())?.blame(error).await);
            }
        };
        proof.restore_seconds = Some(seconds_since(began));
        std::fs::remove_file(&snapshot).map_err(io_error("removing the snapshot's file"))?;
        let served = self.served(&data, stored.manifest.db_bytes, (&found, hash_kv), proof).await;
        let Err(error) = served else { return Ok(()) };
        if error.class() == ExitClass::Corrupt {
            // The database on the disk may have changed since its proof.
            self.holds(&data, hash_kv, error.message()).await?;
        }
        Err(error)
    }

    /// Proves the database on the disk, and restores it.
    async fn restored(
        &self,
        store: &Store,
        stored: &Stored,
        (snapshot, data): (&Path, &Path),
        proof: &mut Proof,
    ) -> Result<(Proven, HashKv)> {
        let uri = store.uri(&stored.data);
        let db_bytes = stored.manifest.db_bytes;
        let read = off_thread(snapshot, move |file| facts(file, db_bytes)).await?;
        let (found, hash_kv) = read.map_err(|error| unsound(&uri, &error))?;
        compare(store, stored, &found, proof)?;
        self.etcdutl.version().takes_database(&found)?;
        // etcd derives its IDs from the token, so the agent can tell its own etcd from that of a concurrent drill.
        let token = random_uid()?;
        let initial = Initial { name: MEMBER, peer_url: PEER_URL, cluster: INITIAL_CLUSTER, token: &token };
        self.etcdutl.restore(snapshot, data, &initial, db_bytes, 0, true).await?;
        Ok((found, hash_kv))
    }

    /// Starts an etcd on the data and compares its answers.
    async fn served(
        &mut self,
        data: &Path,
        db_bytes: u64,
        (found, hash_kv): (&Proven, HashKv),
        proof: &mut Proof,
    ) -> Result<()> {
        let began = Instant::now();
        let etcd = self.etcd.insert(Etcd::spawn(Work::Serve, &self.program, data, self.scratch.join("etcd.log"))?);
        let ready = etcd.ready(starts_within(db_bytes), 0).await?;
        proof.serve_seconds = Some(seconds_since(began));
        proof.etcd_version = Some(ready.version.clone());
        proof.proven.push(Step::Restored);
        proof.auth_enabled = found.auth_enabled;
        let (false, Some(client)) = (found.auth_enabled, ready.client) else {
            proof.left_out.push(
                "HashKV and keys, reported by etcd: the snapshot has authentication enabled. The agent read the \
                 database of that etcd instead"
                    .to_owned(),
            );
            self.holds(data, hash_kv, "the snapshot has authentication enabled, so the agent cannot query this etcd")
                .await?;
            proof.proven.push(Step::RestoredHashKV);
            return if self.decoder.is_some() { Err(closed()) } else { Ok(()) };
        };
        asked(&client, (&ready.endpoint, ready.member_id), hash_kv, proof).await?;
        counted(&client, &ready.endpoint, found, proof).await?;
        // From here on the revision rises.
        if self.write {
            written(&client, &ready.endpoint).await?;
        }
        let Some(decoder) = &self.decoder else { return Ok(()) };
        let folder = self.scratch.join("kube-apiserver");
        let (objects, left_out) = decoder.decode((&client, &ready.endpoint), found.revision, folder).await?;
        proof.left_out.extend(left_out);
        let judged = kubernetes::judge(&objects);
        proof.kubernetes = Some(objects);
        judged.map(|()| proof.proven.push(Step::Decoded))
    }

    /// Compares the database with its earlier proof, after its etcd has stopped. A difference is a fault of this disk or of
    /// etcdutl, not of the snapshot.
    async fn holds(&mut self, data: &Path, expected: HashKv, after: &str) -> Result<()> {
        if let Some(etcd) = self.etcd.take() {
            etcd.stop().await;
        }
        let HashKv { hash, revision, compact_revision } = expected;
        let read = move |file: &File| {
            let bytes = file.metadata().map_err(|error| ScanError::Io(error.to_string()))?.len();
            Reader::open(file, bytes, file_budget())?.hash_kv(revision, compact_revision)
        };
        let why = match off_thread(&data.join(DATABASE), read).await? {
            Ok(found) if found.hash == hash => return Ok(()),
            Ok(found) => format!("HashKV {} instead of {hash}", found.hash),
            // These errors show nothing about the restored data.
            Err(error @ ScanError::OverBudget { .. }) => return Err(unsound(&self.disk(), &error)),
            Err(error @ ScanError::Io(_)) => {
                let message = format!("{}: reading the restored database: {error}", self.disk());
                return Err(Error::transient(message).with_origin(Origin::Volume));
            }
            Err(error) => error.to_string(),
        };
        Err(other_bytes(&self.disk(), &format!("the restored database: {why}; {after}")))
    }

    fn disk(&self) -> String {
        format!("the disk below {}", self.scratch.join("").display())
    }

    /// Stops etcd; dropping `self` removes the scratch folder.
    pub(super) async fn end(self) {
        if let Some(etcd) = self.etcd {
            etcd.stop().await;
        }
    }
}

/// Returns the error of a drill with a kube-apiserver that cannot log in to etcd.
fn closed() -> Error {
    Error::config(
        "the snapshot has authentication enabled, so no kube-apiserver can read the restored etcd. Drill without \
         --kubernetes (spec.drill.kubernetes)",
    )
}

/// Proves the file, and computes the HashKV that a member must have after a start on it.
fn facts(file: &File, db_bytes: u64) -> std::result::Result<(Proven, HashKv), ScanError> {
    let mut reader = Reader::open(file, db_bytes, file_budget())?;
    let found = reader.prove(None)?;
    if let Ok(hash_kv) = found.hash_kv {
        return Ok((found, hash_kv));
    }
    // A member that starts on the file finishes a half-done compaction.
    let compact = reader.compact_revision()?;
    let hash_kv = reader.hash_kv(found.revision, compact)?;
    Ok((found, hash_kv))
}

async fn off_thread<T: Send + 'static>(path: &Path, read: impl FnOnce(&File) -> T + Send + 'static) -> Result<T> {
    let file = File::open(path).map_err(io_error(format!("reading {}", path.display())))?;
    tokio::task::spawn_blocking(move || read(&file)).await.map_err(|error| task_error(&error))
}

async fn asked(client: &Client, (endpoint, member_id): (&str, u64), expected: HashKv, proof: &mut Proof) -> Result<()> {
    let (client, endpoint, name) = (client.clone(), endpoint.to_owned(), MEMBER.to_owned());
    let voter = Voter { client, endpoint, member_id, name, leader: true };
    match ask(&voter, expected).await? {
        Answer::Equal => same(expected.hash, expected, proof),
        Answer::Different(theirs) => same(theirs, expected, proof),
        Answer::None(why) => {
            proof.left_out.push(format!("HashKV, reported by etcd: {why}"));
            Ok(())
        }
    }
}

fn same(theirs: u32, expected: HashKv, proof: &mut Proof) -> Result<()> {
    let HashKv { hash, revision, .. } = expected;
    if theirs == hash {
        proof.proven.push(Step::EtcdHashKV);
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "the restored etcd has HashKV {theirs} at revision {revision}, the snapshot's bytes have {hash}"
    )))
}

async fn counted(client: &Client, endpoint: &str, found: &Proven, proof: &mut Proof) -> Result<()> {
    let Some(keys) = found.keys else {
        proof.left_out.push("keys: there are too many to count in memory".to_owned());
        return Ok(());
    };
    let all = GetOptions::new().with_all_keys().with_count_only().with_revision(found.revision);
    let answer = client.kv_client().get("", Some(all)).await;
    let theirs = answer.map_err(|error| etcd_error(endpoint, &error))?.count();
    if u64::try_from(theirs) == Ok(keys) {
        proof.proven.push(Step::EtcdKeys);
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "the restored etcd counts {theirs} keys at revision {}, the snapshot's bytes hold {keys}",
        found.revision
    )))
}

/// Key of the write; its value differs in each drill.
const WRITTEN: &str = "holdfast.dev/drill";

/// Writes a key and reads it back. A failure shows no fault of the snapshot, whose comparison is over.
async fn written(client: &Client, endpoint: &str) -> Result<()> {
    let (mut client, value) = (client.kv_client(), random_uid()?);
    let refused = |error: &etcd_client::Error| {
        let error = etcd_error(endpoint, error);
        Error::transient(format!("the restored etcd takes no write: {}", error.message())).with_origin(Origin::Own)
    };
    client.put(WRITTEN, value.as_str(), None).await.map_err(|error| refused(&error))?;
    let answer = client.get(WRITTEN, None).await.map_err(|error| refused(&error))?;
    if answer.kvs().first().is_some_and(|kv| kv.value() == value.as_bytes()) {
        return Ok(());
    }
    Err(Error::transient("the restored etcd lost a write that it had acknowledged").with_origin(Origin::Own))
}

/// Finds a program in the given folder, or in PATH, or at its path in etcd's image.
fn program(bin_dir: Option<&Path>, name: &str) -> Result<PathBuf> {
    if let Some(folder) = bin_dir {
        let path = folder.join(name);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(Error::config(format!("--bin-dir={} holds no {name}", folder.display())))
        };
    }
    // Not clap's error: a separate flag would only be another --bin-dir.
    find_program(name).ok_or_else(|| {
        Error::config(format!(
            "{name} is neither in PATH nor in {IMAGES_BIN}: a drill needs this program. Name the folder of etcd and \
             etcdutl with --bin-dir"
        ))
    })
}

#[cfg(test)]
mod tests {
    use holdfast_contract::ExitClass;
    use holdfast_io::process::in_folders;

    use super::*;

    #[test]
    fn programs_are_where_they_are_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let named = program(Some(folder.path()), "etcd").unwrap_err();
        assert_eq!(named.class(), ExitClass::Config);
        assert!(named.message().contains("--bin-dir"), "{named}");
        let etcd = folder.path().join("etcd");
        std::fs::write(&etcd, "").unwrap();
        assert_eq!(program(Some(folder.path()), "etcd"), Ok(etcd.clone()));
        let path = std::env::join_paths([Path::new("."), Path::new("/nonexistent"), folder.path()]).unwrap();
        assert_eq!(in_folders(&path, "etcd"), Some(etcd));
        assert_eq!(in_folders(&path, "no-such-program"), None);
    }
}
