//! A snapshot with a manifest: looked at, brought to a file of the volume, and proven on the way.
//!
//! It decides what has to agree before anything of it is used: the stored bytes with the manifest, and what is in the
//! database with what was in it when it was saved. The page scan runs beside the download; what it had too little
//! memory for is compared by reading the file again, and what cannot be compared even then is told.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::volume::trouble;
use super::{MAX_REASON, RestoreRun, bump, contents, disk_of};
use crate::catalog::second_look;
use crate::catalog::stored::{self, Stored};
use crate::contract::{CameAlong, RestoreRequest};
use crate::error::{Error, Result, task_error};
use crate::etcd::etcdutl::disk::OnDisk;
use crate::etcd::volume_identity::Restored;
use crate::format::crypt::Identities;
use crate::format::layout::Folder;
use crate::format::manifest::{Encryption, Manifest};
use crate::format::unpack::Sink;
use crate::scan::{HashKv, NEVER, Options, Proven, Reader, ScanError, SnapshotScan};
use crate::store::Store;
use crate::util::memory::file_budget;
use crate::util::writeback::Writeback;
use crate::verbs::common::unsound;

/// Pieces waiting to be written.
const PIECES: usize = 4;

/// What is being done, for an error.
pub(super) const WRITING: &str = "writing the snapshot";

/// What becomes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// etcd's sha256 stays at its end: etcdutl reads it once, from memory as a rule, and then it goes. It need not be
    /// durable.
    Hashed,
    /// It is cut off: this is the database. The disk is kept busy meanwhile, etcdutl and the last sync would wait for all
    /// of it otherwise.
    Bare,
}

/// A snapshot in its file.
pub(super) struct Placed {
    pub(super) restored: Restored,
    /// How far etcdutl is to move the revision on.
    pub(super) bump: u64,
    pub(super) file: Arc<File>,
    /// What still takes it to the disk, where it has to get there.
    pub(super) writeback: Option<Writeback<Arc<File>>>,
}

/// The snapshot to restore, looked at and not read yet.
pub(super) struct ManifestSnapshot {
    stored: Stored,
    /// The key in the manifest, where it is not that of the folder.
    moved_from: Option<String>,
    /// What it is decrypted with, when it is encrypted.
    identities: Option<Identities>,
    /// Memory for reading the file again: all that a scan may take, whatever the database's size.
    again: usize,
}

impl ManifestSnapshot {
    /// Reads the manifest and checks everything that can be checked without the data.
    pub(super) async fn open(store: &Store, folder: &Folder, request: &RestoreRequest) -> Result<Self> {
        let (manifest, json) = stored::manifest_of(store, folder).await?;
        if let Some(expected) = &request.expect_sha256
            && !expected.eq_ignore_ascii_case(&manifest.sha256)
        {
            let error = Error::corrupt(format!(
                "the manifest records sha256 {}, expected is {expected}: this is another snapshot",
                manifest.sha256
            ));
            return Err(second_look::of_manifest(store, folder, &json, error).await);
        }
        let moved_from = (manifest.key != folder.as_str()).then(|| manifest.key.clone());
        // A person may have moved the folder, and says so: by the sha256, or by taking any.
        if let Some(key) = &moved_from
            && request.expect_sha256.is_none()
            && !request.allow_unverified
        {
            let error = Error::corrupt(format!(
                "the manifest in {folder} is that of the snapshot {key}: somebody moved or exchanged the folders. Restore \
                 another snapshot; or, if this one is meant, give its sha256 (--expect-sha256 {}), or set allowUnverified \
                 (--allow-unverified)",
                manifest.sha256
            ));
            return Err(second_look::of_manifest(store, folder, &json, error).await);
        }
        if let Some(contents) = &manifest.contents
            && let Err(error) = contents::check_auth(request, &contents.into())
        {
            return Err(second_look::of_manifest(store, folder, &json, error).await);
        }
        let identities = manifest.encryption.as_ref().map(|encryption| identities(encryption, request)).transpose()?;
        let stored = Stored::of(store, folder, manifest).await?;
        Ok(Self { stored, moved_from, identities, again: file_budget() })
    }

    pub(super) const fn manifest(&self) -> &Manifest {
        &self.stored.manifest
    }

    pub(super) const fn db_bytes(&self) -> u64 {
        self.stored.manifest.db_bytes
    }

    /// Downloads it into a file, and compares all that its manifest says (I8): of the bytes, and of what is in them.
    pub(super) async fn download(&self, run: &RestoreRun<'_>, file: File, ends: Ends) -> Result<Placed> {
        match self.download_once(run, file, ends).await {
            Err(error) => {
                let stall = Duration::from_secs(run.request.stall_seconds.into());
                Err(self.stored.confirm(run.store, error, stall).await)
            }
            placed => placed,
        }
    }

    async fn download_once(&self, run: &RestoreRun<'_>, file: File, ends: Ends) -> Result<Placed> {
        let RestoreRun { request, store, etcdutl, found: looked, .. } = run;
        let file = Arc::new(file);
        let placing = Placing::begin(&file, self.db_bytes(), ends, self.stored.scan_options());
        let stall = Duration::from_secs(request.stall_seconds.into());
        let placing = self.stored.unpack(store, self.identities.clone(), placing, stall).await?;
        looked.whole.get_or_init(|| ());
        let Placing { to_place, written, failed } = placing;
        // There is no more. What is not yet in its place goes there now, and nobody watches how long that takes.
        drop(to_place);
        let written = written.await.map_err(|error| task_error(&error))?;
        let Written { scanned, writeback } = written.ok_or_else(|| trouble(WRITING)(why(&failed)))?;
        let (proven, not_compared) = self.prove(store, scanned, &file, request).await?;
        let not_compared = self.with_the_move(not_compared);
        if let Some(found) = &proven {
            etcdutl.version().takes_database(found)?;
        }
        let Stored { manifest, data, .. } = &self.stored;
        let mut restored = Restored {
            restore_uid: request.restore_uid.clone(),
            uri: store.uri(data),
            db_bytes: manifest.db_bytes,
            sha256: manifest.sha256.clone(),
            taken_at: manifest.started_at.to_string(),
            from_cluster: manifest.from_cluster(),
            without_quorum: manifest.without_quorum,
            revision: manifest.contents.as_ref().map(|contents| contents.revision),
            revision_bump: request.revision_bump,
            came_along: manifest.contents.as_ref().map(CameAlong::from),
            not_compared,
            other: serde_json::Map::new(),
        };
        // By the bytes, whatever the manifest says.
        contents::record(run, &mut restored, proven.as_ref(), &file)?;
        let bump = bump::for_etcdutl(request.revision_bump, proven.as_ref(), &*file, manifest.db_bytes);
        let bump = match bump.map_err(|error| error.context(&restored.uri)) {
            Ok(bump) => bump,
            Err(error) => return Err(self.on_disk(&file, request).blame(error).await),
        };
        Ok(Placed { restored, bump, file, writeback })
    }

    /// What was not compared, with the key where the folder has another one.
    fn with_the_move(&self, not_compared: Option<String>) -> Option<String> {
        let Some(key) = &self.moved_from else { return not_compared };
        let moved = format!("key: the manifest is that of {key}");
        let both = [Some(moved), not_compared].into_iter().flatten().collect::<Vec<_>>().join("; ");
        Some(both.chars().take(MAX_REASON).collect())
    }

    /// Whether what is in the database is what its manifest says. Its sha256 has been compared. Gives what was not
    /// compared too, and why.
    async fn prove(
        &self,
        store: &Store,
        scanned: std::result::Result<Proven, ScanError>,
        file: &Arc<File>,
        request: &RestoreRequest,
    ) -> Result<(Option<Proven>, Option<String>)> {
        let uri = store.uri(&self.stored.data);
        let scanned = fits(scanned).map_err(|error| unsound(&uri, &error))?;
        if let Some(found) = scanned.as_ref().filter(|found| !self.records_more_than(found)) {
            let not_compared = self.agrees(store, Some(found), None)?;
            return Ok((scanned, not_compared));
        }
        let (reading, db_bytes, budget) = (Arc::clone(file), self.db_bytes(), self.again);
        let recorded = self.stored.manifest.contents.as_ref();
        let at = recorded.filter(|recorded| recorded.hash_kv.is_some());
        let at = at.map(|recorded| (recorded.revision, recorded.compact_revision.unwrap_or(NEVER)));
        let read = spawn_blocking(move || read_again(&reading, db_bytes, budget, at)).await;
        let read = read.map_err(|error| task_error(&error))?.map_err(|error| unsound(&uri, &error));
        let compared = read.and_then(|(proven, hash_kv)| {
            let proven = proven.or(scanned);
            self.agrees(store, proven.as_ref(), hash_kv).map(|not_compared| (proven, not_compared))
        });
        match compared {
            Err(error) => Err(self.on_disk(file, request).blame(error).await),
            compared => compared,
        }
    }

    /// Whether something is recorded that a scan did not come to.
    fn records_more_than(&self, found: &Proven) -> bool {
        self.stored.manifest.contents.as_ref().is_some_and(|recorded| {
            recorded.hash_kv.is_some() && found.hash_kv.is_err() || recorded.keys.is_some() && found.keys.is_none()
        })
    }

    /// Whether what was found is what is recorded; gives what was not compared, and why. `hash_kv`: what was worked out
    /// where there was too little memory to come to it with the rest.
    fn agrees(&self, store: &Store, found: Option<&Proven>, hash_kv: Option<HashKv>) -> Result<Option<String>> {
        let stored = &self.stored;
        let recorded = stored.manifest.contents.as_ref();
        let by_itself = hash_kv.zip(recorded.and_then(|recorded| recorded.hash_kv));
        if let Some(found) = found {
            stored.structure_agrees(store, found)?;
        }
        if let Some((found, recorded)) = by_itself {
            stored.agrees(store, &[("HashKV", found.hash.to_string(), recorded.to_string())])?;
        }
        let not_compared = match found {
            // The bytes are those that were saved, and that is what is known.
            None => {
                let what = if by_itself.is_some() { "structure" } else { "structure and HashKV" };
                Some((what, "the pages did not fit the memory budget".to_owned()))
            }
            Some(_) if by_itself.is_some() => None,
            Some(found) => stored.hash_agrees(store, found)?.map(|why| {
                let keys = found.keys.is_none() && recorded.is_some_and(|recorded| recorded.keys.is_some());
                (if keys { "HashKV and the number of keys" } else { "HashKV" }, why)
            }),
        };
        Ok(not_compared.map(|(what, why)| {
            tracing::warn!(uri = store.uri(&stored.data), why, "{what} was not compared");
            format!("{what}: {why}").chars().take(MAX_REASON).collect()
        }))
    }

    /// The file as it has to be, for whoever finds it broken.
    fn on_disk(&self, file: &Arc<File>, request: &RestoreRequest) -> OnDisk {
        let Manifest { db_bytes, sha256, .. } = &self.stored.manifest;
        let (file, sha256, disk) = (Arc::clone(file), sha256.clone(), disk_of(request));
        OnDisk { file, db_bytes: *db_bytes, sha256, trailer: false, disk }
    }
}

/// Reads the file any part at a time: pages that are in no tree take no memory then. HashKV is worked out a second way
/// where the first has no room, at this revision and compact revision: it takes memory for each key, and not for each
/// record.
fn read_again(
    file: &File,
    db_bytes: u64,
    budget: usize,
    at: Option<(i64, i64)>,
) -> std::result::Result<(Option<Proven>, Option<HashKv>), ScanError> {
    let mut reader = Reader::open(file, db_bytes, budget)?;
    let proven = fits(reader.prove(None))?;
    let hash_kv = match (proven.as_ref().map(|proven| proven.hash_kv), at) {
        (Some(Ok(_)), _) | (_, None) => None,
        (_, Some((revision, compact_revision))) => fits(reader.hash_kv(revision, compact_revision))?,
    };
    Ok((proven, hash_kv))
}

/// `None`: there was too little memory for it.
fn fits<T>(read: std::result::Result<T, ScanError>) -> std::result::Result<Option<T>, ScanError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(ScanError::OverBudget { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The identities that the mounted Secrets hold.
fn identities(encryption: &Encryption, request: &RestoreRequest) -> Result<Identities> {
    let none = if request.age_identity_dirs.is_empty() {
        "no identity is given"
    } else {
        "the Secrets hold no identity, or do not exist"
    };
    let remedy = "name a Secret with the identity file of one of these keys in spec.bootstrap.restore.identitySecretRefs \
                  (by hand: --age-identity-dir)";
    stored::fitting(encryption, Identities::read(&request.age_identity_dirs)?, none, remedy)
}

/// Takes a snapshot to its place, while its pages are looked at and the disk writes; whoever gives it hashes meanwhile.
struct Placing {
    to_place: mpsc::Sender<Bytes>,
    /// `None`: it has failed.
    written: JoinHandle<Option<Written>>,
    failed: Arc<Mutex<Option<io::Error>>>,
}

/// All of it is in its file, and some of it perhaps not yet on the disk.
struct Written {
    scanned: std::result::Result<Proven, ScanError>,
    writeback: Option<Writeback<Arc<File>>>,
}

impl Placing {
    fn begin(file: &Arc<File>, db_bytes: u64, ends: Ends, options: Options) -> Self {
        let (to_place, mut pieces) = mpsc::channel(PIECES);
        let failed: Arc<Mutex<Option<io::Error>>> = Arc::default();
        let (writing, failing) = (Arc::clone(file), Arc::clone(&failed));
        let written = spawn_blocking(move || match write(&writing, db_bytes, ends, options, &mut pieces) {
            Ok(written) => Some(written),
            // Before the channel ends, which is what whoever gives it sees first.
            Err(error) => {
                failing.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
                None
            }
        });
        Self { to_place, written, failed }
    }
}

impl Sink for Placing {
    fn take(&mut self, bytes: &Bytes) -> io::Result<()> {
        self.to_place.blocking_send(bytes.clone()).map_err(|_| why(&self.failed))
    }
}

/// Why nothing more was written.
fn why(failed: &Mutex<Option<io::Error>>) -> io::Error {
    let error = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
}

/// Writes and scans until there is no more.
fn write(
    file: &Arc<File>,
    db_bytes: u64,
    ends: Ends,
    options: Options,
    pieces: &mut mpsc::Receiver<Bytes>,
) -> io::Result<Written> {
    let mut writing = &**file;
    let mut writeback = (ends == Ends::Bare).then(|| Writeback::begin(Arc::clone(file), |file| file.sync_data()));
    let mut scan = SnapshotScan::new(options);
    while let Some(piece) = pieces.blocking_recv() {
        writing.write_all(&piece)?;
        if let Some(writeback) = &mut writeback {
            writeback.wrote(piece.len());
        }
        scan.push(&piece);
    }
    if let Some(writeback) = &mut writeback {
        file.set_len(db_bytes)?;
        writeback.hurry();
    }
    Ok(Written { scanned: scan.finish(), writeback })
}
