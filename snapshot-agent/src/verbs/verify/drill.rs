//! A drill: the snapshot is restored into a scratch folder, an etcd is started on it, and asked what it holds.
//!
//! It decides what that etcd has to answer: the HashKV that was worked out from the bytes, at the same revision, and as
//! many keys. Where the snapshot asks for users, nobody can ask the etcd: then the database that it ran on is read again
//! after it has stopped. What is wrong with the programs is looked for before, and with the disk after: neither says
//! anything of the snapshot. How etcd is started is in `etcd.rs`, beside this.

use std::fs::File;
use std::path::{Path, PathBuf};

use etcd_client::{Client, GetOptions};

use super::compare::compare;
use super::etcd::Etcd;
use crate::catalog::proof::{Proof, Step};
use crate::catalog::stored::Stored;
use crate::contract::{ExitClass, Origin, VerifyRequest};
use crate::error::{Error, Result, io_error, task_error};
use crate::etcd::connect::etcd_error;
use crate::etcd::data_dir::DATABASE;
use crate::etcd::etcdutl::disk::{OnDisk, other_bytes};
use crate::etcd::etcdutl::{BESIDE_DATABASE, COPIES, Etcdutl, Initial, version_of};
use crate::etcd::hash_kv::{Answer, ask};
use crate::etcd::member::Voter;
use crate::etcd::version::check_version;
use crate::format::crypt::Identities;
use crate::format::manifest::Manifest;
use crate::scan::{HashKv, Proven, Reader, ScanError};
use crate::store::Store;
use crate::util::memory::file_budget;
use crate::util::process::{IMAGES_BIN, find_program, random_uid};
use crate::util::progress::STALL;
use crate::util::scratch::Scratch;
use crate::verbs::common::unsound;

/// The one member of the restored cluster; nobody but us ever sees it.
const MEMBER: &str = "drill";
const PEER_URL: &str = "http://127.0.0.1:2380";
const INITIAL_CLUSTER: &str = "drill=http://127.0.0.1:2380";

/// What a drill needs, and what runs while it does.
pub(super) struct Drill {
    etcdutl: Etcdutl,
    program: PathBuf,
    scratch: Scratch,
    etcd: Option<Etcd>,
}

impl Drill {
    /// Finds the programs and the room, before anything is read.
    pub(super) async fn prepare(request: &VerifyRequest, manifest: &Manifest) -> Result<Self> {
        let restores = program(request.bin_dir.as_deref(), "etcdutl")?;
        let program = program(request.bin_dir.as_deref(), "etcd")?;
        let etcdutl = Etcdutl::find(&restores).await?;
        // They are looked for one by one. etcd starts on what was made for another version, or it does not.
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
        let scratch = Scratch::new(&request.scratch, needed)?;
        Ok(Self { etcdutl, program, scratch, etcd: None })
    }

    /// Restores, starts, asks.
    pub(super) async fn run(
        &mut self,
        store: &Store,
        stored: &Stored,
        identities: Option<Identities>,
        proof: &mut Proof,
    ) -> Result<()> {
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
        std::fs::remove_file(&snapshot).map_err(io_error("removing the snapshot's file"))?;
        let served = self.served(&data, stored.manifest.db_bytes, (&found, hash_kv), proof).await;
        let Err(error) = served else { return Ok(()) };
        if error.class() == ExitClass::Corrupt {
            // What it was asked about is no longer what was proven.
            self.holds(&data, hash_kv, error.message()).await?;
        }
        Err(error)
    }

    /// Reads it from the disk, and restores it there.
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
        // etcd works its IDs out from it: by these our etcd is known from that of a drill beside this one.
        let token = random_uid()?;
        let initial = Initial { name: MEMBER, peer_url: PEER_URL, cluster: INITIAL_CLUSTER, token: &token };
        self.etcdutl.restore(snapshot, data, &initial, db_bytes, 0, true).await?;
        Ok((found, hash_kv))
    }

    /// Starts an etcd on it, and asks.
    async fn served(
        &mut self,
        data: &Path,
        db_bytes: u64,
        (found, hash_kv): (&Proven, HashKv),
        proof: &mut Proof,
    ) -> Result<()> {
        let etcd = self.etcd.insert(Etcd::spawn(&self.program, data, self.scratch.join("etcd.log"))?);
        let ready = etcd.ready(db_bytes).await?;
        proof.etcd_version = Some(ready.version.clone());
        proof.proven.push(Step::Restored);
        let (false, Some(client)) = (found.auth_enabled, ready.client) else {
            proof.left_out.push(
                "HashKV and keys, reported by etcd: the snapshot has authentication enabled. The agent read the \
                 database of that etcd instead"
                    .to_owned(),
            );
            self.holds(data, hash_kv, "the snapshot has authentication enabled, so the agent cannot query this etcd")
                .await?;
            proof.proven.push(Step::RestoredHashKV);
            return Ok(());
        };
        asked(&client, (&ready.endpoint, ready.member_id), hash_kv, proof).await?;
        counted(&client, &ready.endpoint, found, proof).await
    }

    /// Whether the database that etcd ran on, after it has stopped, is still what was proven on its way: if not, that is
    /// this disk's doing, or etcdutl's, and no fault of the snapshot.
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
            // Nothing is known by these but themselves.
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

    /// Stops what runs; the scratch folder goes with this.
    pub(super) async fn end(self) {
        if let Some(etcd) = self.etcd {
            etcd.stop().await;
        }
    }
}

/// What is in the file, and the HashKV that a member which starts on it has to have.
fn facts(file: &File, db_bytes: u64) -> std::result::Result<(Proven, HashKv), ScanError> {
    let mut reader = Reader::open(file, db_bytes, file_budget())?;
    let found = reader.prove(None)?;
    if let Ok(hash_kv) = found.hash_kv {
        return Ok((found, hash_kv));
    }
    // A compaction that is half done is finished by whoever starts on it.
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

/// Where a program is: in the folder that was named, or in PATH, or where etcd's own image has it.
fn program(bin_dir: Option<&Path>, name: &str) -> Result<PathBuf> {
    if let Some(folder) = bin_dir {
        let path = folder.join(name);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(Error::config(format!("--bin-dir={} holds no {name}", folder.display())))
        };
    }
    // Not clap's: a flag for it would only be another --bin-dir.
    find_program(name).ok_or_else(|| {
        Error::config(format!(
            "{name} is neither in PATH nor in {IMAGES_BIN}: a drill needs this program. Name the folder of etcd and \
             etcdutl with --bin-dir"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ExitClass;
    use crate::util::process::in_folders;

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
