//! A snapshot of ours: looked at, brought to a file of the volume, and proven on the way.
//!
//! It decides what has to agree before anything of it is used: the stored bytes with the manifest, and what is in the
//! database with what was in it when it was saved. The page scan runs beside the download.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{Job, bump, contents, disk_of};
use crate::contract::{CameAlong, RestoreRequest};
use crate::crypt::Identities;
use crate::error::{Error, Result, io_error, task_error};
use crate::identity::Restored;
use crate::layout::Folder;
use crate::manifest::{Encryption, Manifest};
use crate::pipe::scan_budget;
use crate::reread::OnDisk;
use crate::scan::{Options, Proven, Reader, ScanError, SnapshotScan};
use crate::store::Store;
use crate::stored::{self, Stored};
use crate::unpack::Sink;
use crate::verify::unsound;
use crate::writeback::Writeback;

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
pub(super) struct Chosen {
    stored: Stored,
    /// What it is decrypted with, when it is encrypted.
    identities: Option<Identities>,
}

impl Chosen {
    /// Reads the manifest and checks everything that can be checked without the data.
    pub(super) async fn look(store: &Store, folder: &Folder, request: &RestoreRequest) -> Result<Self> {
        let (manifest, _) = stored::manifest_of(store, folder).await?;
        if let Some(expected) = &request.expect_sha256
            && !expected.eq_ignore_ascii_case(&manifest.sha256)
        {
            return Err(Error::corrupt(format!(
                "the manifest records sha256 {}, expected is {expected}: this is another snapshot",
                manifest.sha256
            )));
        }
        if let Some(contents) = &manifest.contents {
            contents::admit(request, &contents.into())?;
        }
        let identities = manifest.encryption.as_ref().map(|encryption| identities(encryption, request)).transpose()?;
        Ok(Self { stored: Stored::of(store, folder, manifest).await?, identities })
    }

    pub(super) const fn manifest(&self) -> &Manifest {
        &self.stored.manifest
    }

    pub(super) const fn db_bytes(&self) -> u64 {
        self.stored.manifest.db_bytes
    }

    /// Downloads it into a file, and compares everything that its manifest says: of the bytes, and of what is in them.
    pub(super) async fn place(&self, job: &Job<'_>, file: File, ends: Ends) -> Result<Placed> {
        let Job { request, store, etcdutl, found: looked, .. } = job;
        let file = Arc::new(file);
        let placing = Placing::begin(&file, self.db_bytes(), ends, self.stored.scan_options());
        let stall = Duration::from_secs(request.stall_seconds.into());
        let placing = self.stored.unpack(store, self.identities.clone(), placing, stall).await?;
        looked.whole.get_or_init(|| ());
        let Placing { to_place, written, failed } = placing;
        // There is no more. What is not yet in its place goes there now, and nobody watches how long that takes.
        drop(to_place);
        let written = written.await.map_err(|error| task_error(&error))?;
        let Written { scanned, writeback } = written.ok_or_else(|| io_error(WRITING)(why(&failed)))?;
        let proven = self.prove(store, scanned, &file, request).await?;
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
            other: serde_json::Map::new(),
        };
        // By the bytes, whatever the manifest says.
        contents::found(request, &mut restored, proven.as_ref(), &file)?;
        let bump = bump(request.revision_bump, proven.as_ref());
        Ok(Placed { restored, bump, file, writeback })
    }

    /// Whether what is in the database is what its manifest says. Its sha256 has been compared.
    async fn prove(
        &self,
        store: &Store,
        scanned: std::result::Result<Proven, ScanError>,
        file: &Arc<File>,
        request: &RestoreRequest,
    ) -> Result<Option<Proven>> {
        let db_bytes = self.db_bytes();
        let Err(ScanError::OverBudget { .. }) = scanned else { return self.agrees(store, scanned) };
        let reading = Arc::clone(file);
        let read = move || Reader::open(&*reading, db_bytes, scan_budget(db_bytes)).and_then(|mut r| r.prove(None));
        let read = spawn_blocking(read).await.map_err(|error| task_error(&error))?;
        match self.agrees(store, read) {
            Err(error) => {
                let sha256 = self.stored.manifest.sha256.clone();
                Err(OnDisk { file: Arc::clone(file), db_bytes, sha256, trailer: false, disk: disk_of(request) }
                    .blame(error)
                    .await)
            }
            agrees => agrees,
        }
    }

    /// Whether what was found is what is recorded.
    fn agrees(&self, store: &Store, proven: std::result::Result<Proven, ScanError>) -> Result<Option<Proven>> {
        let stored = &self.stored;
        let uri = store.uri(&stored.data);
        match proven {
            Ok(found) => {
                stored.structure_agrees(store, &found)?;
                if let Some(why) = stored.hash_agrees(store, &found)? {
                    tracing::warn!(uri, why, "HashKV was not compared");
                }
                Ok(Some(found))
            }
            // The bytes are those that were saved, and that is what is known.
            Err(error @ ScanError::OverBudget { .. }) => {
                tracing::warn!(uri, %error, "neither structure nor HashKV was proven again: only its sha256 is");
                Ok(None)
            }
            Err(error) => Err(unsound(&uri, &error)),
        }
    }
}

/// The identities that the mounted Secrets hold.
fn identities(encryption: &Encryption, request: &RestoreRequest) -> Result<Identities> {
    let none =
        if request.age_identity_dirs.is_empty() { "none is given" } else { "the Secrets hold none, or are missing" };
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
