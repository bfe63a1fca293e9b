//! A folder as a store: a mounted volume with the layout of a bucket.
//!
//! Every path is opened beneath the given folder; for a link or a name that leads out of it the open call itself fails, not a
//! check before. An upload is a temporary file in its final folder, and then data with a lease beside it until its manifest is
//! written. Both names hold the end of their writer's time, so that a later run can clean up after a dead writer without
//! guessing from dates.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _, OpenOptions};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result, io_error, of_store, task_error};
use holdfast_io::files::{LOST_AND_FOUND, ignore_missing};
use holdfast_io::pool::Pool;
use holdfast_io::progress::Progress;
use holdfast_layout::{Folder, Key, MANIFEST};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Children, Most, Plan, Stat};
use crate::fingerprint::Fingerprint;
use attempts::{claim, clean_up, lease_name, small_name, temporary_name};
pub(super) use takeover::Taken;
use write::Written;

mod attempts;
mod removal;
mod rename;
mod store_id;
mod takeover;
mod write;

/// Pieces under way to or from the disk.
const PIECES: usize = 8;

/// Time for a call without data. A network volume that is gone never answers and gives no error.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// Waits at most this long for these calls, like [`FolderStore::look`], before a folder is open. Blocks this thread.
fn promptly<T: Send + 'static>(
    doing: &str,
    within: Duration,
    calls: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let (done, answer) = std::sync::mpsc::sync_channel(1);
    let calling = std::thread::Builder::new().spawn(move || {
        // The receiver may be gone.
        let _receiver_is_gone = done.send(calls());
    });
    calling.map_err(folder_error(doing))?;
    answer.recv_timeout(within).map_err(|_| silent(doing, within))?.map_err(folder_error(doing))
}

fn silent(doing: &str, within: Duration) -> Error {
    Error::transient(format!(
        "{doing}: the volume has not answered for {} s. Check the server or the disk behind the mount",
        within.as_secs()
    ))
}

/// Opens a folder of a volume, and creates it if missing. On a read-only volume it stays missing.
fn beneath(volume: Dir, folder: &std::path::Path) -> io::Result<Dir> {
    if folder.as_os_str().is_empty() {
        return Ok(volume);
    }
    match volume.open_dir(folder) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => match volume.create_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Err(missing),
            Err(error) => Err(error),
            Ok(()) => volume.open_dir(folder),
        },
        opened => opened,
    }
}

/// Time that a run waits at its end for its removals.
const TIDY_WITHIN: Duration = Duration::from_secs(20);

/// A folder that contains the whole store.
#[derive(Clone, Debug)]
pub struct FolderStore {
    path: PathBuf,
    root: Arc<Dir>,
}

impl FolderStore {
    pub(super) fn open(path: PathBuf, mount: Option<&std::path::Path>) -> Result<Self> {
        let folder = mount.map(|mount| path.strip_prefix(mount).map(PathBuf::from)).transpose().map_err(|_| {
            let mount = mount.unwrap_or(&path).display();
            Error::config(format!("--store={} is not below --mount={mount}", path.display()))
        })?;
        let volume = mount.unwrap_or(&path).to_owned();
        let open = move || {
            let volume = Dir::open_ambient_dir(volume, ambient_authority())?;
            match folder {
                None => Ok(volume),
                Some(folder) => beneath(volume, &folder),
            }
        };
        let root = promptly(&format!("opening the folder {}", path.display()), ANSWERS_WITHIN, open);
        let root = root.map_err(|error| match (error.class(), mount) {
            (ExitClass::NotFound, None) => {
                let path = path.display();
                of_store(Error::not_found(format!(
                    "there is no folder {path} (--store): create it (mkdir -p {path}), or mount the volume there"
                )))
            }
            _ => error,
        })?;
        Ok(Self { path, root: Arc::new(root) })
    }

    pub(super) fn uri(&self, at: &impl Display) -> String {
        format!("file://{}/{at}", self.path.display())
    }

    pub(super) async fn children(
        &self,
        folder: &Folder,
        most: Most,
        wanted: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Children> {
        let (doing, path) = (format!("listing {}", self.uri(folder)), inside(folder));
        let calls = move |root: &Dir| {
            let (mut children, mut odd) = (Children::default(), 0_usize);
            let folder = match root.open_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok((children, odd))),
                folder => folder?,
            };
            for entry in folder.entries()? {
                let entry = entry?;
                // Links are no folders, wherever they lead (I28), and mkfs's own folder does not count.
                if !entry.file_type()?.is_dir() || entry.file_name() == LOST_AND_FOUND {
                    continue;
                }
                let name = entry.file_name();
                let Some(name) = name.to_str() else {
                    odd += 1;
                    continue;
                };
                if let Err(error) = children.take(name, &wanted, most) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok((children, odd)))
        };
        let listed = self.read_below(doing.clone(), calls).await?;
        let (children, odd) = listed.map_err(|error| Error::config(format!("{doing}: {error}")))?;
        super::pass_over(&doing, odd);
        Ok(children)
    }

    pub(super) async fn objects(&self, folder: &Folder, limit: usize) -> Result<Vec<String>> {
        let (doing, path) = (format!("listing {}", self.uri(folder)), inside(folder));
        let calls = move |root: &Dir| {
            let mut names = Vec::new();
            let folder = match root.open_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
                folder => folder?,
            };
            for entry in folder.entries()? {
                let entry = entry?;
                if entry.file_type()?.is_file()
                    && let Ok(name) = entry.file_name().into_string()
                {
                    names.push(name);
                }
                if names.len() > limit {
                    break;
                }
            }
            Ok(names)
        };
        let names = self.read_below(doing.clone(), calls).await?;
        super::within(names.len(), limit).map_err(|error| error.context(doing))?;
        Ok(names)
    }

    /// Runs file system calls off the async threads, below the root.
    async fn below<T: Send + 'static>(
        &self,
        doing: String,
        calls: impl FnOnce(&Dir) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let root = Arc::clone(&self.root);
        let result = tokio::task::spawn_blocking(move || calls(&root)).await;
        result.map_err(|error| task_error(&error))?.map_err(folder_error(doing))
    }

    /// Does the same for calls that change nothing, with a time limit. A writing call has none, because it may still complete.
    async fn read_below<T: Send + 'static>(
        &self,
        doing: String,
        calls: impl FnOnce(&Dir) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let looking = tokio::time::timeout(ANSWERS_WITHIN, self.below(doing.clone(), calls));
        looking.await.unwrap_or_else(|_| Err(silent(&doing, ANSWERS_WITHIN)))
    }

    pub(super) async fn begin(&self, key: &Key, plan: Plan) -> Result<FolderUpload> {
        let folder = key.folder().clone();
        let temporary = temporary_name(plan.until.as_second());
        let lease = lease_name(plan.until.as_second());
        let opened = {
            let temporary = temporary.clone();
            self.below(format!("beginning {}", self.uri(key)), move |root| {
                if let Some(lineage) = folder.parent() {
                    root.create_dir_all(lineage.as_str()).map_err(in_the_way)?;
                    clean_up(root, &lineage, plan.at.as_second());
                }
                claim(root, &folder, &temporary)
            })
        };
        let (folder, file) = opened.await?;
        let (pieces, received) = mpsc::channel(PIECES);
        let given_up = Arc::<AtomicBool>::default();
        let gone = Arc::clone(&given_up);
        let writing = move || write::all(file, received, plan.read_back, &gone);
        Ok(FolderUpload {
            store: self.clone(),
            key: key.clone(),
            folder: Arc::new(folder),
            temporary,
            lease,
            writer: Some((pieces, tokio::task::spawn_blocking(writing))),
            given_up,
            written: None,
        })
    }

    pub(super) async fn put_new(&self, key: &Key, content: Bytes) -> Result<()> {
        if key.is_at_root() {
            return self.put_store_id(key, content).await;
        }
        let doing = format!("writing {}", self.uri(key));
        let (folder, name, temporary) = (key.folder().clone(), key.name().to_owned(), small_name()?);
        let calls = move |root: &Dir| -> io::Result<bool> {
            if folder.is_of_log() {
                root.create_dir_all(folder.as_str()).map_err(in_the_way)?;
            } else if folder.is_made_on_demand() {
                // Its parent is an attempt or a lineage, and must exist.
                match root.create_dir(folder.as_str()) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            let folder = root.open_dir(folder.as_str())?;
            if folder.symlink_metadata(&name).is_ok() {
                return Ok(folder.read(&name)? == content);
            }
            let write = || {
                let mut file = folder.open_with(&temporary, OpenOptions::new().write(true).create_new(true))?;
                file.write_all(&content)?;
                file.sync_all()?;
                rename::name(&folder, &temporary, &name)
            };
            let wrote = write();
            if wrote.is_err() {
                // Returns the last bytes to a full volume.
                let _gone = folder.remove_file(&temporary);
            }
            let own = match wrote {
                // Another writer came first, and is not overwritten (I7).
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => folder.read(&name)? == content,
                wrote => wrote.map(|()| true)?,
            };
            // The name exists already, and may not be durable: after any disk error the result is uncertain.
            sync(&folder).map_err(io::Error::other)?;
            Ok(own)
        };
        if self.below(doing.clone(), calls).await? {
            return Ok(());
        }
        Err(Error::transient(format!("{doing}: another attempt has written this object; try again under a new key")))
    }

    /// Returns the end of another run's lease on this attempt.
    pub(super) async fn held(&self, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>> {
        let (doing, attempt) = (format!("looking at {}", self.uri(attempt)), attempt.clone());
        self.read_below(doing, move |root| attempts::held(root, &attempt, now)).await
    }

    /// Removes a file; a missing file is no error.
    pub(super) async fn try_delete(&self, key: &Key) -> Result<()> {
        let path = key.to_string();
        self.below(format!("removing {}", self.uri(key)), move |root| ignore_missing(root.remove_file(&path))).await
    }

    /// Removes a folder and everything in it.
    pub(super) async fn try_clear(&self, folder: &Folder) -> Result<()> {
        let path = folder.to_string();
        let calls = move |root: &Dir| ignore_missing(root.remove_dir_all(&path));
        self.below(format!("clearing {}", self.uri(folder)), calls).await
    }

    pub(super) async fn stat(&self, key: &Key) -> Result<Stat> {
        let path = key.to_string();
        let looking = format!("looking at {}", self.uri(key));
        let calls = move |root: &Dir| match root.open(&path)?.metadata()? {
            folder if folder.is_dir() => Err(io::Error::new(io::ErrorKind::NotFound, "this is a folder, and no file")),
            found => Ok(found),
        };
        let found = self.read_below(looking, calls).await?;
        let written = format!("{} {}.{}", found.ino(), found.mtime(), found.mtime_nsec());
        Ok(Stat { bytes: found.len(), etag: None, written: Some(written) })
    }

    /// Drops the file from the kernel's cache.
    pub(super) async fn forget(&self, key: &Key) -> Result<()> {
        let path = key.to_string();
        self.below(format!("reading {} anew", self.uri(key)), move |root| {
            write::forget(&root.open(&path)?, 0, None);
            Ok(())
        })
        .await
    }

    pub(super) async fn get_small(&self, key: &Key, limit: u64) -> Result<Bytes> {
        let doing = format!("reading {}", self.uri(key));
        let path = key.to_string();
        let calls = move |root: &Dir| {
            let file = root.open(&path)?;
            // Of its size at once: a vector that grows is there twice while its bytes move.
            let size = file.metadata()?.len().min(limit);
            let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
            file.take(limit + 1).read_to_end(&mut content)?;
            Ok(content)
        };
        let content = self.read_below(doing.clone(), calls).await?;
        if content.len() as u64 > limit {
            return Err(Error::corrupt(format!("{doing}: the file is longer than {limit} bytes")));
        }
        Ok(content.into())
    }

    pub(super) fn read(&self, key: &Key, progress: &Progress) -> BoxStream<'static, Result<Bytes>> {
        let doing = format!("reading {}", self.uri(key));
        let (root, path, progress) = (Arc::clone(&self.root), key.to_string(), progress.clone());
        let (pieces, received) = mpsc::channel(PIECES);
        tokio::task::spawn_blocking(move || {
            let read = || -> io::Result<()> {
                let mut file = root.open(&path)?;
                let pool = Pool::default();
                loop {
                    let mut piece = pool.take();
                    let got = file.read(piece.room())?;
                    piece.advance(got);
                    // A send error means that the reader is gone.
                    if got == 0 || pieces.blocking_send(Ok(piece.freeze())).is_err() {
                        return Ok(());
                    }
                    progress.add(got);
                }
            };
            if let Err(error) = read() {
                let _reader_is_gone = pieces.blocking_send(Err(folder_error(doing)(error)));
            }
        });
        stream::unfold(received, |mut received| async move { Some((received.recv().await?, received)) }).boxed()
    }
}

/// A temporary file that becomes the object at completion.
#[derive(Debug)]
pub struct FolderUpload {
    store: FolderStore,
    key: Key,
    folder: Arc<Dir>,
    temporary: String,
    lease: String,
    writer: Option<(mpsc::Sender<Bytes>, JoinHandle<io::Result<Written>>)>,
    /// Tells the writer to stop, because the file is no longer needed.
    given_up: Arc<AtomicBool>,
    /// The durable file, once the writer has ended.
    written: Option<Written>,
}

impl FolderUpload {
    fn doing(&self) -> String {
        format!("writing {}", self.store.uri(&self.key))
    }

    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if let Some((pieces, _)) = &self.writer
            && pieces.send(bytes).await.is_ok()
        {
            return Ok(());
        }
        // The writer has ended early with an error.
        self.flush().await?;
        Err(Error::transient(format!("{}: the writing thread has ended", self.doing())))
    }

    /// Ends the writer: the file's content is durable afterwards.
    pub(super) async fn flush(&mut self) -> Result<()> {
        if let Some((pieces, writer)) = self.writer.take() {
            drop(pieces);
            let written = writer.await.map_err(|error| task_error(&error))?.map_err(folder_error(self.doing()))?;
            self.written = Some(written);
        }
        Ok(())
    }

    /// Returns the fingerprint of the read-back bytes, if requested and the writer has ended.
    pub(super) fn given_back(&self) -> Option<Fingerprint> {
        self.written?.given_back
    }

    pub(super) async fn complete(&mut self) -> Result<()> {
        self.flush().await?;
        let Some(Written { bytes: written, .. }) = self.written else {
            return Err(Error::transient(format!("{}: the upload has already ended", self.doing())));
        };
        let (folder, key) = (Arc::clone(&self.folder), self.key.clone());
        let (temporary, lease) = (self.temporary.clone(), self.lease.clone());
        let calls = move |root: &Dir| -> io::Result<u64> {
            folder.open_with(&lease, OpenOptions::new().write(true).create(true))?;
            folder.rename(&temporary, &folder, key.name())?;
            sync(&folder)?;
            // The folders above may be new too.
            let mut above = key.folder().parent();
            while let Some(folder) = above {
                sync(&root.open_dir(folder.as_str())?)?;
                above = folder.parent();
            }
            sync(root)?;
            Ok(folder.metadata(key.name())?.len())
        };
        let found = self.store.below(self.doing(), calls).await?;
        if found != written {
            return Err(Error::corrupt(format!(
                "{}: {written} bytes were written, the file has {found}",
                self.doing()
            )));
        }
        Ok(())
    }

    /// Removes the lease. If that fails, a later run sees the manifest and removes only the lease.
    pub(super) async fn published(&mut self) {
        let (folder, lease) = (Arc::clone(&self.folder), self.lease.clone());
        let removed = self.store.below(self.doing(), move |_| ignore_missing(folder.remove_file(&lease)));
        match tokio::time::timeout(TIDY_WITHIN, removed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the upload's lease stays behind"),
            Err(_) => tracing::debug!("the upload's lease stays behind: the volume does not answer"),
        }
    }

    pub(super) async fn abort(&mut self) {
        // The result of the write does not matter; the writer must have ended.
        self.given_up.store(true, Ordering::Release);
        // A volume that does not answer must not block the run: its error is known, and the next run cleans up.
        if tokio::time::timeout(TIDY_WITHIN, self.take_away()).await.is_err() {
            tracing::warn!(upload = self.doing(), "the unfinished upload stays behind: the volume does not answer");
        }
    }

    async fn take_away(&mut self) {
        let _written = self.flush().await;
        let (folder, key) = (Arc::clone(&self.folder), self.key.clone());
        let (temporary, lease) = (self.temporary.clone(), self.lease.clone());
        let calls = move |root: &Dir| {
            if folder.symlink_metadata(MANIFEST).is_ok() {
                // Another run took the data for a dead run's leftovers, and has published its own.
                return ignore_missing(folder.remove_file(&lease));
            }
            for name in [temporary.as_str(), key.name(), lease.as_str()] {
                ignore_missing(folder.remove_file(name))?;
            }
            root.remove_dir(key.folder().as_str())
        };
        if let Err(error) = self.store.below(self.doing(), calls).await {
            tracing::warn!(%error, "the unfinished upload stays behind");
        }
    }
}

/// Returns a folder's path below the root.
fn inside(folder: &Folder) -> String {
    if folder.is_top() { ".".to_owned() } else { folder.to_string() }
}

/// Converts an operating system error: the folder is the store, not a volume of the agent's own.
fn folder_error(doing: impl Display) -> impl FnOnce(io::Error) -> Error {
    move |error| of_store(io_error(doing)(error))
}

/// Reports a file or a link where a folder should be, planted or by mistake: a repetition does not help.
fn in_the_way(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a file, or a link that leads out of the volume, has the name of a folder",
        ),
        _ => error,
    }
}

/// Makes the names in a folder durable.
fn sync(folder: &Dir) -> io::Result<()> {
    folder.open(".")?.sync_all()
}

#[cfg(test)]
mod tests;
