//! Restores a snapshot with a manifest: downloads it to a file of the volume and proves it meanwhile.
//!
//! This file decides which facts must match before the data is used: the stored bytes with the manifest, and the database's
//! contents with those at the time of the save. The page scan runs beside the download. Facts that exceeded its memory budget
//! are compared by reading the file again; the report names the facts that remain uncompared.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use holdfast_bbolt::scan::{HashKv, NEVER, Options, Proven, Reader, ScanError};
use holdfast_contract::error::{Error, Result, task_error};
use holdfast_contract::{CameAlong, RestoreRequest};
use holdfast_io::memory::file_budget;
use holdfast_io::writeback::Writeback;
use holdfast_layout::Folder;
use holdfast_layout::manifest::{Encryption, Manifest};
use holdfast_store::Store;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::volume::trouble;
use super::{MAX_REASON, RestoreRun, bump, contents, disk_of};
use holdfast_catalog::reread;
use holdfast_catalog::stored::{self, Stored};
use holdfast_etcd::etcdutl::disk::OnDisk;
use holdfast_format::crypt::Identities;
use holdfast_format::snapshot_scan::SnapshotScan;
use holdfast_format::unpack::Sink;
use holdfast_gate::volume_identity::Restored;
use holdfast_verbs_common::unsound;

/// Pieces waiting for the disk.
const PIECES: usize = 4;

/// The current step, for errors.
pub(super) const WRITING: &str = "writing the snapshot";

/// End of the written file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// Keeps etcd's sha256 at the end. etcdutl reads the file once, usually from memory, and the agent then removes it, so it
    /// need not be durable.
    Hashed,
    /// Cuts the sha256 off: the file is the database. The agent writes back meanwhile, because etcdutl and the last sync would
    /// otherwise wait for the whole file.
    Bare,
}

/// A snapshot in its file.
pub(super) struct Placed {
    pub(super) restored: Restored,
    /// The bump for etcdutl.
    pub(super) bump: u64,
    /// Bytes of the database.
    pub(super) db_bytes: u64,
    pub(super) file: Arc<File>,
    /// Writes the file to the disk, if the file must be durable.
    pub(super) writeback: Option<Writeback<Arc<File>>>,
}

/// The snapshot to restore. Its data is not read yet.
pub(super) struct ManifestSnapshot {
    stored: Stored,
    /// The key in the manifest, if it differs from the folder's.
    moved_from: Option<String>,
    /// Identities that decrypt the data, if it is encrypted.
    identities: Option<Identities>,
    /// Memory for reading the file again: the maximum for a scan, for any size of the database.
    again: usize,
}

impl ManifestSnapshot {
    /// Reads the manifest and checks every fact that needs no data.
    pub(super) async fn open(store: &Store, folder: &Folder, request: &RestoreRequest) -> Result<Self> {
        let (manifest, json) = stored::manifest_of(store, folder).await?;
        if let Some(expected) = &request.expect_sha256
            && !expected.eq_ignore_ascii_case(&manifest.sha256)
        {
            let error = Error::corrupt(format!(
                "the manifest records sha256 {}, expected is {expected}: this is another snapshot",
                manifest.sha256
            ));
            return Err(reread::of_manifest(store, folder, &json, error).await);
        }
        let moved_from = (manifest.key != folder.as_str()).then(|| manifest.key.clone());
        // A user may have moved the folder, and confirms that with the sha256 or with allowUnverified.
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
            return Err(reread::of_manifest(store, folder, &json, error).await);
        }
        if let Some(contents) = &manifest.contents
            && let Err(error) = contents::check_auth(request, &contents.into())
        {
            return Err(reread::of_manifest(store, folder, &json, error).await);
        }
        let identities = manifest.encryption.as_ref().map(|encryption| identities(encryption, request)).transpose()?;
        let stored = Stored::check(store, folder, manifest).await?;
        Ok(Self { stored, moved_from, identities, again: file_budget() })
    }

    pub(super) const fn manifest(&self) -> &Manifest {
        &self.stored.manifest
    }

    pub(super) const fn db_bytes(&self) -> u64 {
        self.stored.manifest.db_bytes
    }

    /// Downloads the snapshot into a file, and compares the bytes and their contents with the manifest (I8).
    pub(super) async fn download(&self, run: &RestoreRun<'_>, file: File, ends: Ends) -> Result<Placed> {
        match self.download_once(run, file, ends).await {
            Err(error) => {
                let stall = Duration::from_secs(run.request.stall_seconds.into());
                Err(self.stored.confirm(run.store()?, error, stall).await)
            }
            placed => placed,
        }
    }

    async fn download_once(&self, run: &RestoreRun<'_>, file: File, ends: Ends) -> Result<Placed> {
        let RestoreRun { request, etcdutl, found: looked, .. } = run;
        let (store, file) = (run.store()?, Arc::new(file));
        let placing = Placing::begin(&file, self.db_bytes(), ends, self.stored.scan_options());
        let stall = Duration::from_secs(request.stall_seconds.into());
        let placing = self.stored.unpack(store, self.identities.clone(), placing, stall).await?;
        looked.whole.get_or_init(|| ());
        let Placing { to_place, written, failed } = placing;
        // The stream has ended. Without a limit on time, the queued pieces are now written.
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
            taken_at: manifest.taken_at().to_string(),
            from_cluster: manifest.from_cluster(),
            without_quorum: manifest.without_quorum,
            revision: manifest.contents.as_ref().map(|contents| contents.revision),
            revision_bump: request.revision_bump,
            point: None,
            survivor: None,
            came_along: manifest.contents.as_ref().map(CameAlong::from),
            not_compared,
            other: serde_json::Map::new(),
        };
        // The bytes decide, not the manifest.
        contents::record(run, &mut restored, proven.as_ref(), &file)?;
        let bump = bump::for_etcdutl(request.revision_bump, proven.as_ref(), &*file, manifest.db_bytes);
        let bump = match bump.map_err(|error| error.context(&restored.uri)) {
            Ok(bump) => bump,
            Err(error) => return Err(self.on_disk(&file, request).blame(error).await),
        };
        Ok(Placed { restored, bump, db_bytes: manifest.db_bytes, file, writeback })
    }

    /// Adds the key to the list of uncompared facts, if the folder has another key.
    fn with_the_move(&self, not_compared: Option<String>) -> Option<String> {
        let Some(key) = &self.moved_from else { return not_compared };
        let moved = format!("key: the manifest is that of {key}");
        let both = [Some(moved), not_compared].into_iter().flatten().collect::<Vec<_>>().join("; ");
        Some(both.chars().take(MAX_REASON).collect())
    }

    /// Compares the database's contents with the manifest, after the sha256. Also returns the facts that were not compared,
    /// with the reason.
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

    /// Whether the manifest records a fact that the scan did not compute.
    fn records_more_than(&self, found: &Proven) -> bool {
        self.stored.manifest.contents.as_ref().is_some_and(|recorded| {
            recorded.hash_kv.is_some() && found.hash_kv.is_err() || recorded.keys.is_some() && found.keys.is_none()
        })
    }

    /// Compares the scan with the manifest, and returns the facts that were not compared, with the reason. `hash_kv`: HashKV
    /// from the second method, if the scan had too little memory for it.
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
            // The sha256 matched: the bytes are the saved bytes, and no more is known.
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

    /// Describes the expected file, for an error about a damaged file.
    fn on_disk(&self, file: &Arc<File>, request: &RestoreRequest) -> OnDisk {
        let Manifest { db_bytes, sha256, .. } = &self.stored.manifest;
        let (file, sha256, disk) = (Arc::clone(file), sha256.clone(), disk_of(request));
        OnDisk { file, db_bytes: *db_bytes, sha256, trailer: false, disk }
    }
}

/// Reads the file with random access: pages outside the trees then take no memory. If HashKV does not fit the memory budget, a
/// second method computes it at this revision and compact revision; its memory grows with the keys, not with the records.
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

/// Converts an exceeded memory budget into `None`.
fn fits<T>(read: std::result::Result<T, ScanError>) -> std::result::Result<Option<T>, ScanError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(ScanError::OverBudget { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the identities from the mounted Secrets.
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

/// Writes a snapshot to its file while its pages are scanned and the disk syncs; the sender hashes meanwhile.
struct Placing {
    to_place: mpsc::Sender<Bytes>,
    /// `None`: writing failed.
    written: JoinHandle<Option<Written>>,
    failed: Arc<Mutex<Option<io::Error>>>,
}

/// The whole snapshot is in its file, possibly not yet on the disk.
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
            // Before the channel closes, because the sender sees the closed channel first.
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

/// Returns the reason for which writing stopped.
fn why(failed: &Mutex<Option<io::Error>>) -> io::Error {
    let error = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
}

/// Writes and scans until the channel closes.
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
