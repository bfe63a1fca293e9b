//! Restores from the volume of a stopped member, after its cluster has lost a majority for good.
//!
//! This file decides the order, and which facts refuse the survivor: damage of its log before the end, a database that is ahead
//! of the log, another version of etcd. The survivor's volume is opened for reading only. etcd applies the log to a copy, because
//! only the etcd of that version knows what an entry does; the engines then make the seed's data of the copy's database.
//! `from_volume/copy.rs` copies, `from_volume/replay.rs` runs etcd. `etcd/src/stopped/commit.rs` says why every entry counts.

mod copy;
mod replay;

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use holdfast_bbolt::scan::{HashKv, Proven, Reader, ScanError};
use holdfast_contract::error::{Error, Result, io_error, task_error};
use holdfast_contract::{Origin, RestoreRequest, SurvivorReport, hex_id};
use holdfast_etcd::etcdutl::version_of;
use holdfast_etcd::stopped::log::{Log, LogError};
use holdfast_etcd::stopped::{Database, Stopped, commit, read_database, read_log};
use holdfast_etcd::version::Minor;
use holdfast_gate::data_dir::{DATABASE, SNAP};
use holdfast_gate::volume_identity::Restored;
use holdfast_io::memory::file_budget;
use holdfast_io::process::{IMAGES_BIN, find_program};
use holdfast_verbs_common::unsound;

use super::volume::{Staging, trouble};
use super::{RestoreRun, bump, contents, disk_of, quota};

/// Returns how a restored volume names the survivor's volume.
pub(super) fn uri(folder: &Path) -> String {
    format!("volume:{}", folder.display())
}

/// Refuses a request that names a volume and a snapshot. The command line refuses it earlier.
pub(super) fn check(request: &RestoreRequest) -> Result<()> {
    let from_store = !request.store.url.is_empty()
        || !request.key.is_empty()
        || request.point().is_some()
        || request.expect_sha256.is_some()
        || request.expect_store_id.is_some();
    if request.from_volume.is_some() && from_store {
        return Err(Error::config(
            "--from-volume restores from a member's volume and no snapshot. Omit --store, --key and their flags",
        ));
    }
    Ok(())
}

/// A stopped member whose log and database fit each other.
pub(super) struct Survivor {
    member: Stopped,
    uri: String,
    log: Log,
    /// Bytes of its database, with that of a snapshot that etcd has not opened yet.
    db_bytes: u64,
    /// Raft index up to which the database has the entries.
    applied: u64,
    /// A database that the member got from another one, and that replaces its own.
    received: Option<String>,
    etcd: PathBuf,
    /// Version of etcd.
    version: Minor,
}

/// The database of the copy after the replay.
struct Replayed {
    found: Proven,
    /// Bytes up to the high-water mark.
    used: u64,
    hash_kv: Option<HashKv>,
    confirmed: bool,
}

impl Survivor {
    /// Reads the volume, and refuses damage. `version`: that of etcdutl.
    pub(super) async fn find(folder: &Path, request: &RestoreRequest, version: Minor) -> Result<Self> {
        let etcd = match &request.etcd {
            Some(etcd) => etcd.clone(),
            None => find_program("etcd").ok_or_else(|| {
                Error::config(format!(
                    "etcd is neither in PATH nor in {IMAGES_BIN}: it has to apply the survivor's log. Name it with --etcd"
                ))
            })?,
        };
        let found = version_of(&etcd, "etcd", "--version", "etcd Version:").await?;
        if found != version {
            return Err(Error::config(format!(
                "{} is etcd {found} and {} is etcdutl {version}: a restore needs the same minor version of both",
                etcd.display(),
                request.etcdutl.display()
            )));
        }
        let folder = folder.to_owned();
        let read = tokio::task::spawn_blocking(move || Self::read(&folder, (etcd, version)));
        read.await.map_err(|error| task_error(&error))?
    }

    fn read(folder: &Path, (etcd, version): (PathBuf, Minor)) -> Result<Self> {
        let member = Stopped::find(folder)?;
        let data = member.data();
        let damaged = |why: &str| damaged(folder, why);
        let log = read_log(data).map_err(|error| log_error(folder, error))?;
        let (own_bytes, applied) = match read_database(&data.join(DATABASE)) {
            Ok(Database { bytes, recorded }) => {
                let recorded = recorded.map_err(|why| damaged(&format!("the database: {why}")))?;
                (bytes, recorded.consistent_index.unwrap_or(0))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (0, 0),
            Err(error) => return Err(io_error("reading the survivor's database")(error)),
        };
        if applied > log.last_index {
            return Err(damaged(&format!(
                "the database has the entries up to index {applied}, and the log ends at {}: a part of the log is lost. The \
                 database alone can be restored as a file: --store file://..., --key .../{DATABASE} --allow-unverified",
                log.last_index
            )));
        }
        // etcd opens the database of such a snapshot at its next start (etcd: server/storage/backend.go).
        let received = log.snapshot_index.filter(|index| *index > applied).map(|index| format!("{index:016x}.snap.db"));
        let received_bytes = match &received {
            Some(name) => {
                let missing = |error| {
                    damaged(&format!(
                        "its log names a snapshot that the database does not have, and {name} is missing: {error}"
                    ))
                };
                fs::metadata(data.join(SNAP).join(name)).map_err(missing)?.len()
            }
            None if own_bytes == 0 => return Err(damaged("it has no database")),
            None => 0,
        };
        let db_bytes = own_bytes + received_bytes;
        Ok(Self { uri: uri(folder), log, db_bytes, applied, received, etcd, version, member })
    }

    /// Returns the bytes that the database may have after the replay: an entry adds what it holds.
    pub(super) fn likely_bytes(&self) -> u64 {
        self.db_bytes.saturating_add(self.log.bytes())
    }

    /// Returns the bytes of the log, which the copy has beside the database.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Makes the database at this path: copies the survivor's data, lets etcd apply the log, and proves the result. Returns the
    /// bump for etcdutl.
    pub(super) fn place<'a>(
        &'a self,
        run: &'a RestoreRun<'_>,
        staging: &'a Staging,
        to: &'a Path,
    ) -> BoxFuture<'a, Result<(Restored, u64, File)>> {
        Box::pin(self.place_once(run, staging, to))
    }

    async fn place_once(&self, run: &RestoreRun<'_>, staging: &Staging, to: &Path) -> Result<(Restored, u64, File)> {
        let RestoreRun { request, etcdutl, found: looked, .. } = run;
        let folder = staging.survivor();
        let sha256 = self.copy(&folder, request).await?;
        tracing::info!(sha256, db_bytes = self.db_bytes, log_bytes = self.log.bytes(), "copied the survivor's data");
        self.commit(&folder).await?;
        let asked = self.replay(&folder, request).await?;
        fs::rename(copy::data(&folder).join(DATABASE), to).map_err(trouble("moving the replayed database"))?;
        fs::remove_dir_all(&folder).map_err(trouble("removing the survivor's copy"))?;
        looked.whole.get_or_init(|| ());
        let file =
            OpenOptions::new().read(true).write(true).open(to).map_err(trouble("opening the replayed database"))?;
        let db_bytes = file.metadata().map_err(trouble("looking at the replayed database"))?.len();
        let Replayed { found, used, hash_kv, confirmed } = prove(to, request, asked).await?;
        quota::check(request, used)?;
        etcdutl.version().takes_database(&found)?;
        let bump = bump::for_etcdutl(request.revision_bump, Some(&found), &file, db_bytes)?;
        let restored = contents::without_manifest(run, self.uri.clone(), (db_bytes, sha256), (&found, &file))?;
        let restored = Restored { survivor: Some(Box::new(self.report(hash_kv, confirmed))), ..restored };
        Ok((restored, bump, file))
    }

    /// Commits the whole log of the copy, and reads it again.
    async fn commit(&self, folder: &Path) -> Result<()> {
        let (data, expected) = (copy::data(folder), self.log.clone());
        let work = move || {
            let copied = read_log(&data).map_err(|error| log_error(&data, error))?;
            let is_same = |log: &Log| {
                (log.ids, log.last_index, log.last_term) == (expected.ids, expected.last_index, expected.last_term)
            };
            if !is_same(&copied) || (copied.crc, copied.state) != (expected.crc, expected.state) {
                return Err(other_bytes(&data, "the copied log differs from the survivor's"));
            }
            let state = commit::state(&copied);
            commit::append(&data.join(holdfast_gate::data_dir::WAL), &copied, state)
                .map_err(trouble("writing to the copied log"))?;
            let written = read_log(&data).map_err(|error| log_error(&data, error))?;
            if !is_same(&written) || written.state != Some(state) {
                return Err(other_bytes(&data, "the written record differs"));
            }
            Ok(())
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| task_error(&error))?
    }

    fn report(&self, hash_kv: Option<HashKv>, hash_confirmed: bool) -> SurvivorReport {
        let Log { ids, state, last_index, last_term, end, .. } = &self.log;
        SurvivorReport {
            cluster_id: hex_id(ids.cluster_id),
            member_id: hex_id(ids.member_id),
            term: state.map(|state| state.term),
            last_index: *last_index,
            last_term: *last_term,
            commit_index: state.map(|state| state.commit),
            beyond_commit: self.log.beyond_commit(),
            log_end: *end,
            hash_kv: hash_kv.map(|found| found.hash),
            hash_confirmed,
        }
    }
}

/// Returns the error of a survivor that cannot be used.
fn damaged(folder: &Path, why: &str) -> Error {
    Error::corrupt(format!(
        "the survivor's volume {}: {why}. The agent changed nothing. Take another survivor, or the newest snapshot",
        folder.display()
    ))
}

fn log_error(folder: &Path, error: LogError) -> Error {
    match error {
        LogError::Io(error) => io_error(format!("reading the log below {}", folder.display()))(error),
        LogError::Missing | LogError::Damaged { .. } => damaged(folder, &format!("the log: {error}")),
    }
}

fn other_bytes(at: &Path, why: &str) -> Error {
    Error::refused(format!(
        "the disk below {} returns other bytes than were written: {why}. The survivor's volume is unchanged. Check the disk, \
         the memory of its node and the kernel's log, or use another volume",
        at.display()
    ))
}

/// Reads the whole database, and compares it with etcd's answer.
async fn prove(path: &Path, request: &RestoreRequest, asked: Option<HashKv>) -> Result<Replayed> {
    let (path, disk) = (path.to_owned(), disk_of(request));
    let prove = move || {
        let file = File::open(&path).map_err(trouble("opening the replayed database"))?;
        let read = facts(&file, asked).map_err(|error| unsound(&format!("{disk}, the replayed database"), &error));
        let (replayed, theirs) = read?;
        match (asked, theirs) {
            (Some(asked), Some(found)) if asked.hash != found.hash => Err(other_bytes(
                &path,
                &format!(
                    "etcd had HashKV {} at revision {}, the database has {}",
                    asked.hash, asked.revision, found.hash
                ),
            )),
            _ => Ok(replayed),
        }
    };
    tokio::task::spawn_blocking(prove).await.map_err(|error| task_error(&error))?
}

/// Proves the file; also returns its HashKV at the revision of etcd's answer, if memory suffices.
fn facts(file: &File, asked: Option<HashKv>) -> std::result::Result<(Replayed, Option<HashKv>), ScanError> {
    let bytes = file.metadata().map_err(|error| ScanError::Io(error.to_string()))?.len();
    let mut reader = Reader::open(file, bytes, file_budget())?;
    let used = reader.used_bytes();
    let found = reader.prove(None)?;
    let mut hash = |revision, compact| match reader.hash_kv(revision, compact) {
        Ok(hash) => Ok(Some(hash)),
        Err(ScanError::OverBudget { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let theirs = match asked {
        Some(asked) => match found.hash_kv {
            Ok(found) if (found.revision, found.compact_revision) == (asked.revision, asked.compact_revision) => {
                Some(found)
            }
            _ => hash(asked.revision, asked.compact_revision)?,
        },
        None => None,
    };
    let hash_kv = found.hash_kv.ok().or(theirs);
    Ok((Replayed { found, used, hash_kv, confirmed: theirs.is_some() }, theirs))
}

/// Sets the started etcd as the origin of an error.
fn own(error: Error) -> Error {
    error.with_origin(Origin::Own)
}
