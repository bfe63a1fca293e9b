//! Restores a snapshot file without a manifest (from etcdctl or another operator), given by its key.
//!
//! This file decides the proof that such a file needs before etcdutl reads it: etcd's sha256 at its end, unless a user allows a
//! file without it, and always the structure of the database, which etcdutl does not check. The first bytes, not the name,
//! decide whether the agent unpacks the file; for other formats the error names the command.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use holdfast_bbolt::scan::{Proven, Reader};
use holdfast_contract::error::{Error, Result, task_error};
use holdfast_contract::{Engine, ExitClass, RestoreRequest};
use holdfast_io::memory::file_budget;
use holdfast_io::progress::Progress;
use holdfast_layout::Key;
use holdfast_store::{Ahead, Stat};

use super::volume::trouble;
use super::{RestoreRun, bump, contents, disk_of, largest, quota};
use holdfast_catalog::foreign::digest_of;
use holdfast_catalog::reread;
use holdfast_etcd::etcdutl::disk::OnDisk;
use holdfast_format::crypt::Identities;
use holdfast_format::packed::{Limit, Packed, refuse_archive, refuse_packed_archive, unpack_file};
use holdfast_format::trailer::{Hasher, database_of};
use holdfast_format::unpack;
use holdfast_gate::volume_identity::Restored;
use holdfast_verbs_common::unsound;

/// Free space counts as grown from this difference on; the file system causes smaller changes.
const NO_LESS: u64 = 1 << 20;

/// A file whose metadata is known and whose data is not read yet.
pub(super) struct FileSnapshot {
    key: Key,
    stat: Stat,
    /// Size of the database and whether etcd's sha256 follows it, once known.
    database: OnceLock<(u64, bool)>,
}

impl FileSnapshot {
    pub(super) const fn new(key: Key, stat: Stat) -> Self {
        Self { key, stat, database: OnceLock::new() }
    }

    pub(super) const fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Returns the database's size. For a packed file that is not read yet: a lower bound.
    pub(super) fn db_bytes(&self) -> u64 {
        self.facts().0
    }

    pub(super) fn has_trailer(&self) -> bool {
        self.facts().1
    }

    fn facts(&self) -> (u64, bool) {
        self.database.get().copied().unwrap_or_else(|| database_of(self.stat.bytes))
    }

    /// Records the database's size, or returns the reason for a refusal.
    fn note(&self, uri: &str, bytes: u64, request: &RestoreRequest) -> Result<()> {
        let (_, trailer) = *self.database.get_or_init(|| database_of(bytes));
        if !trailer && !request.allow_unverified {
            return Err(Error::config(format!(
                "{uri} has no sha256 at its end: {bytes} bytes are not whole pages and 32 bytes more. The file was cut \
                 short, or is a copy of a member's own database. To restore such a copy, set allowUnverified \
                 (--allow-unverified): the agent then proves the structure, but not the values"
            )));
        }
        if !trailer && request.expect_sha256.is_some() {
            return Err(Error::config(format!("{uri} has no sha256 at its end to compare with the expected sha256")));
        }
        Ok(())
    }

    /// Writes the database to this file, and returns the file's hash.
    async fn fetch(&self, run: &RestoreRun<'_>, (path, file): (&Path, File)) -> Result<(Hasher, File)> {
        let (request, store) = (run.request, run.store()?);
        let uri = store.uri(&self.key);
        let progress = Progress::new("reading the snapshot", self.stat.bytes);
        let stall = Duration::from_secs(request.stall_seconds.into());
        let mut stream = store.read(&self.key, &self.stat, Ahead::FAR, &progress).fuse();
        let first = progress.watch(stall, async { stream.next().await.transpose() }).await?;
        let head = first.clone().unwrap_or_default();
        refuse_archive(&uri, &head)?;
        let stream = stream::iter(first.map(Ok)).chain(stream).boxed();
        // No sync here: etcdutl reads the file from memory, and a graft syncs the file before a page refers to it.
        let Some(packed) = Packed::recognize(&head) else {
            self.note(&uri, self.stat.bytes, request)?;
            return self.write(&uri, stream, (file, &progress), stall).await;
        };
        let identities = Identities::read(&request.age_identity_dirs)?;
        if packed == Packed::Age && identities.is_empty() {
            return Err(Error::config(format!(
                "{uri} is encrypted with age, and no identity is given: name a Secret with the identity file in \
                 spec.bootstrap.restore.identitySecretRefs (by hand: --age-identity-dir)"
            )));
        }
        let (_, from) = self.write(&uri, stream, (nameless(path)?, &progress), stall).await?;
        let (what, again) = (uri.clone(), from.try_clone().map_err(trouble("reading the packed file"))?);
        let room = run.volume.free_bytes()?.saturating_add(self.stat.bytes);
        let limit = self.limit(run, &uri, room);
        let beyond = limit.beyond.clone();
        let unpacking = tokio::task::spawn_blocking(move || {
            let mut file = file;
            unpack_file(&what, packed, &from, &identities, (&mut file, &limit)).map(|()| file)
        });
        let file = match unpacking.await.map_err(|error| task_error(&error))? {
            Ok(file) => file,
            Err(error) if error.class() == ExitClass::Corrupt => {
                let first = digest_of(again).await?;
                return Err(reread::of_data(store, &self.key, (Some(first), None), error, stall).await);
            }
            Err(error) => {
                if error == beyond {
                    run.found.whole.get_or_init(|| ());
                    run.found.short.get_or_init(|| room.saturating_add(NO_LESS));
                }
                return Err(error);
            }
        };
        // Frees its space.
        drop(again);
        // From here on a refusal concerns the unpacked bytes.
        run.found.whole.get_or_init(|| ());
        refuse_packed_archive(&uri, &file)?;
        let bytes = file.metadata().map_err(trouble("looking at the snapshot's file"))?.len();
        self.note(&uri, bytes, request)?;
        let needs = run.needs(request.engine);
        let room = run.volume.await_space(needs, bytes).await;
        room.inspect_err(|_| _ = run.found.short.get_or_init(|| needs.bytes))?;
        let hashing = tokio::task::spawn_blocking(move || hashed(&file).map(|hasher| (hasher, file)));
        hashing.await.map_err(|error| task_error(&error))?.map_err(trouble("reading the snapshot's file"))
    }

    /// Returns the maximum size of the unpacked file: the limit of etcd's quota, and the limit of this space, which also holds
    /// the packed file.
    fn limit(&self, run: &RestoreRun<'_>, uri: &str, room: u64) -> Limit {
        let RestoreRun { request, .. } = run;
        let fits = largest(request.engine, room).min(room.saturating_sub(self.stat.bytes));
        if let Some((bytes, beyond)) = quota::longest(request).filter(|(longest, _)| *longest < fits) {
            return Limit { bytes, beyond: beyond.context(uri) };
        }
        let or = match request.engine {
            Engine::Etcdutl => ", or engine: graft (--engine=graft), which needs less",
            Engine::Graft => "",
        };
        let beyond = Error::full(format!(
            "{uri} unpacks to more than {} MiB, and a restore of that needs more than the {} MiB of free space on the volume: \
             use a larger volume{or}",
            fits >> 20,
            room >> 20
        ));
        Limit { bytes: fits, beyond }
    }

    /// Writes the stored bytes unchanged.
    async fn write(
        &self,
        uri: &str,
        stream: BoxStream<'static, Result<Bytes>>,
        (file, progress): (File, &Progress),
        stall: Duration,
    ) -> Result<(Hasher, File)> {
        let reading = unpack::plain(stream, self.stat.bytes, (file, progress));
        let (hasher, file) = progress.watch(stall, reading).await?;
        let written = file.metadata().map_err(trouble("looking at the snapshot's file"))?.len();
        if written != self.stat.bytes {
            return Err(Error::transient(format!(
                "{uri}: {written} bytes arrived, the store announced {}",
                self.stat.bytes
            )));
        }
        Ok((hasher, file))
    }

    /// Downloads and proves the file, and returns the bump for etcdutl.
    pub(super) async fn download(&self, run: &RestoreRun<'_>, (path, file): (&Path, File)) -> Result<(Restored, u64)> {
        let RestoreRun { request, etcdutl, found: looked, .. } = run;
        let uri = run.store()?.uri(&self.key);
        let (hasher, file) = self.fetch(run, (path, file)).await?;
        let (db_bytes, trailer) = self.facts();
        let sha256 = if trailer {
            match hasher.finish() {
                Ok(proven) => hex::encode(proven.sha256),
                Err(error) => {
                    let error = Error::corrupt(format!("{uri}: {error}"));
                    return Err(self.confirm(run, file, error).await);
                }
            }
        } else {
            tracing::warn!(
                uri,
                "the file has no sha256 at its end: the agent proves only the structure, as allowUnverified permits"
            );
            String::new()
        };
        if let Some(expected) = &request.expect_sha256
            && !expected.eq_ignore_ascii_case(&sha256)
        {
            let error = Error::corrupt(format!("{uri}: its sha256 is {sha256}, expected is {expected}"));
            return Err(self.confirm(run, file, error).await);
        }
        looked.whole.get_or_init(|| ());
        let proven = self.prove(path, &uri).await.and_then(|(found, used)| {
            let bump = bump::for_etcdutl(request.revision_bump, Some(&found), &file, db_bytes);
            bump.map(|bump| (found, used, bump)).map_err(|error| error.context(&uri))
        });
        let (found, used, bump) = match proven {
            Ok(proven) => proven,
            Err(error) => {
                let error = OnDisk::at(path, db_bytes, sha256, false, disk_of(request))?.blame(error).await;
                return Err(self.confirm(run, file, error).await);
            }
        };
        // A member's own file may be longer than its used part.
        quota::check(request, used)?;
        etcdutl.version().takes_database(&found)?;
        let restored = contents::without_manifest(run, uri, (db_bytes, sha256), (&found, &file))?;
        Ok((restored, bump))
    }

    /// Returns the error about the file's content, if a second download gives the same bytes. The bytes of a packed file are
    /// not kept, so two more downloads are compared.
    async fn confirm(&self, run: &RestoreRun<'_>, file: File, error: Error) -> Error {
        let stall = Duration::from_secs(run.request.stall_seconds.into());
        let store = match run.store() {
            Ok(store) => store,
            Err(error) => return error,
        };
        let first = match digest_of(file).await {
            Ok(first) => Some(first).filter(|(bytes, _)| *bytes == self.stat.bytes),
            Err(unread) => return unread,
        };
        reread::of_data(store, &self.key, (first, None), error, stall).await
    }

    /// Reads the whole tree. Also returns its bytes up to the high-water mark.
    async fn prove(&self, path: &Path, uri: &str) -> Result<(Proven, u64)> {
        let (path, uri, db_bytes) = (path.to_owned(), uri.to_owned(), self.db_bytes());
        let prove = move || {
            let file = File::open(&path).map_err(trouble("opening the snapshot's file"))?;
            let mut reader = Reader::open(&file, db_bytes, file_budget()).map_err(|error| unsound(&uri, &error))?;
            let used = reader.used_bytes();
            reader.prove(None).map(|found| (found, used)).map_err(|error| unsound(&uri, &error))
        };
        tokio::task::spawn_blocking(prove).await.map_err(|error| task_error(&error))?
    }
}

/// Opens a file beside this path without a name, which vanishes with its handle.
fn nameless(beside: &Path) -> Result<File> {
    let path = beside.with_extension("packed");
    let made = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = made.map_err(trouble("making the packed snapshot's file"))?;
    fs::remove_file(&path).map_err(trouble("making the packed snapshot's file"))?;
    Ok(file)
}

/// Hashes a file from its start.
fn hashed(file: &File) -> io::Result<Hasher> {
    let (mut hasher, mut piece, mut at) = (Hasher::default(), vec![0; 1 << 20], 0_u64);
    loop {
        match file.read_at(&mut piece, at)? {
            0 => return Ok(hasher),
            got => {
                hasher.update(piece.get(..got).unwrap_or_default());
                at += got as u64;
            }
        }
    }
}
