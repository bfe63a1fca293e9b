//! Objects of the log that wait for the store, as files of one folder, in the order in which they were made.
//!
//! This file decides the names of the files and what counts as full. A file is complete when it has its name, so a later run
//! stores the files that a killed run leaves behind; two runs at the same time never share a folder. It does not decide when an object is stored (`deliver.rs`).

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use holdfast_contract::error::{Error, Result, io_error, task_error};
use holdfast_io::files;
use holdfast_io::process::random_uid;
use holdfast_layout::{Folder, GapName, Key, SegmentName, check_key, check_revision, first8};
use holdfast_store::layout;
use tokio::sync::Notify;

use super::entries::Entries;

/// Locked while a run uses the folder.
const LOCK: &str = "lock";

/// Stands for the slash of a key: no name of a log has this character.
const SLASH: char = '~';

/// An object that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    path: PathBuf,
    /// Its place in the store.
    pub(super) key: Key,
    /// The segment's name, if the object is a segment.
    pub(super) segment: Option<SegmentName>,
    pub(super) bytes: u64,
}

/// The folder, and its files in order.
pub(super) struct Spool {
    folder: PathBuf,
    log: Folder,
    limit: u64,
    queue: Mutex<Queue>,
    changed: Notify,
    _lock: File,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    next: u64,
}

impl Spool {
    /// Opens the folder for this log, and finds the files of an earlier run.
    pub(super) fn open(folder: PathBuf, log: Folder, limit: u64) -> Result<Self> {
        let doing = || format!("opening the folder {} (--spool-dir)", folder.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(io_error(doing()))?;
        let lock = File::create(folder.join(LOCK)).map_err(io_error(doing()))?;
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Err(Error::config(format!(
                "another run of agent log uses the folder {}. Name another --spool-dir",
                folder.display()
            )));
        }
        let mut queue = Queue::default();
        for name in files::names(&folder).map_err(io_error(doing()))?.unwrap_or_default() {
            let path = folder.join(&name);
            if name.starts_with('.') {
                // The run that wrote it has ended before its end.
                fs::remove_file(&path).map_err(io_error(doing()))?;
                continue;
            }
            let Some((number, key, segment)) = parse(&name, &log) else { continue };
            let bytes = fs::metadata(&path).map_err(io_error(doing()))?.len();
            queue.next = queue.next.max(number.saturating_add(1));
            queue.bytes = queue.bytes.saturating_add(bytes);
            queue.waiting.push_back(Waiting { path, key, segment, bytes });
        }
        Ok(Self { folder, log, limit, queue: Mutex::new(queue), changed: Notify::new(), _lock: lock })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        let result = work(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_waiters();
        result
    }

    /// Returns the waiting segment with the last revision.
    pub(super) fn newest(&self) -> Option<(SegmentName, Waiting)> {
        self.with(|queue| {
            let segments = queue.waiting.iter().filter_map(|waiting| Some((waiting.segment.clone()?, waiting)));
            segments
                .max_by_key(|(segment, _)| (segment.last, segment.tail))
                .map(|(name, waiting)| (name, waiting.clone()))
        })
    }

    /// Prepares the entries of a segment, of which at most `most` bytes are in memory and the rest is on this volume.
    pub(super) fn entries(&self, most: usize) -> Entries {
        Entries::in_folder(&self.folder, most)
    }

    /// Gives the oldest object another place in the store.
    pub(super) fn rename_oldest(&self, oldest: &Waiting, key: Key) -> Result<()> {
        let below = key.to_string();
        let below = below.strip_prefix(self.log.as_str()).unwrap_or(&below).trim_start_matches('/');
        let number = oldest.path.file_name().and_then(|name| name.to_str()?.split_once(SLASH)).map_or("0", |(n, _)| n);
        let path = self.folder.join(format!("{number}{SLASH}{}", below.replace('/', &SLASH.to_string())));
        fs::rename(&oldest.path, &path).map_err(io_error(format!("renaming {}", oldest.path.display())))?;
        let segment = SegmentName::parse(below);
        self.with(|queue| {
            if let Some(first) = queue.waiting.front_mut() {
                *first = Waiting { path, key, segment, bytes: first.bytes };
            }
        });
        Ok(())
    }

    /// Adds an object, whose content `write` writes.
    pub(super) async fn push(
        &self,
        key: Key,
        write: impl FnOnce(&mut File) -> io::Result<()> + Send + 'static,
    ) -> Result<()> {
        let number = self.with(|queue| {
            let number = queue.next;
            queue.next = number.saturating_add(1);
            number
        });
        let below = key.to_string();
        let below = below.strip_prefix(self.log.as_str()).unwrap_or(&below).trim_start_matches('/');
        let path = self.folder.join(format!("{number:020}{SLASH}{}", below.replace('/', &SLASH.to_string())));
        let writing = {
            let path = path.clone();
            move || -> Result<u64> {
                files::put(&path, 0o600, write)?;
                fs::metadata(&path).map(|meta| meta.len()).map_err(io_error(format!("looking at {}", path.display())))
            }
        };
        let bytes = tokio::task::spawn_blocking(writing).await.map_err(|error| task_error(&error))??;
        let segment = SegmentName::parse(below);
        self.with(|queue| {
            queue.bytes = queue.bytes.saturating_add(bytes);
            queue.waiting.push_back(Waiting { path, key, segment, bytes });
        });
        Ok(())
    }

    /// Waits until this is true of the number of waiting bytes.
    pub(super) async fn wait_until(&self, wanted: impl Fn(u64) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if wanted(self.bytes()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits for the oldest object.
    pub(super) async fn oldest(&self) -> Waiting {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).waiting.front().cloned();
            match queue {
                Some(oldest) => return oldest,
                None => changed.await,
            }
        }
    }

    /// Removes the oldest object, which is stored.
    pub(super) fn remove_oldest(&self, oldest: &Waiting) -> Result<()> {
        let removed = files::ignore_missing(fs::remove_file(&oldest.path));
        removed.map_err(io_error(format!("removing {}", oldest.path.display())))?;
        self.with(|queue| {
            queue.waiting.pop_front();
            queue.bytes = queue.bytes.saturating_sub(oldest.bytes);
        });
        Ok(())
    }

    /// Returns the waiting bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// Whether no further segment may be made.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= self.limit
    }

    /// Waits until the store has taken half of the waiting bytes.
    pub(super) async fn wait_for_room(&self) {
        self.wait_until(|bytes| bytes <= self.limit / 2).await;
    }
}

impl Waiting {
    /// Returns another place for the object.
    pub(super) fn another_key(&self) -> Result<Key> {
        let run8 = first8("run", &random_uid()?).map_err(|error| layout(&error))?;
        let folder = self.key.folder();
        let log = folder.parent().ok_or_else(|| Error::config(format!("{} is no object of a log", self.key)))?;
        let below = format!("{}/{}", folder.name(), self.key.name());
        let key = match (&self.segment, GapName::parse(&below), check_revision(&below)) {
            (Some(segment), ..) => SegmentName { run8, ..segment.clone() }.key(&log),
            (None, Some(gap), _) => gap.key(&log, &run8),
            (None, None, revision) => check_key(&log, revision.unwrap_or_default(), &run8),
        };
        key.map_err(|error| layout(&error))
    }

    /// Reads the object.
    pub(super) async fn read(&self) -> Result<Bytes> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || fs::read(path)).await.map_err(|error| task_error(&error))?;
        read.map(Bytes::from).map_err(io_error(format!("reading {}", self.path.display())))
    }
}

/// Returns number and place of an object, and its segment; `None`: the file is another owner's.
fn parse(name: &str, log: &Folder) -> Option<(u64, Key, Option<SegmentName>)> {
    let (number, below) = name.split_once(SLASH)?;
    let below = below.replace(SLASH, "/");
    let (folder, file) = below.split_once('/')?;
    let key = log.child(folder).ok()?.object(file).ok()?;
    Some((number.parse().ok()?, key, SegmentName::parse(&below)))
}

/// Returns the folder of a log's objects: two logs on one machine never share it.
pub(super) fn folder_of(spool_dir: &Path, uri: &str) -> Result<PathBuf> {
    let sum = hex::encode(holdfast_io::sha256::Sha256::digest(uri.as_bytes()));
    let short = sum.get(..16).ok_or_else(|| Error::config("a sha256 has 64 digits"))?;
    Ok(spool_dir.join(format!("holdfast-log-{short}")))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn segment(first: i64, last: i64) -> SegmentName {
        let at = "2026-11-28T10:42:07Z".parse().unwrap();
        SegmentName { first, last, at, run8: "aaaabbbb".to_owned(), encrypted: true, tail: None }
    }

    #[tokio::test]
    async fn a_later_run_finds_the_objects_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let log = Folder::parse("key", "shop/orders/1a2b3c4d").unwrap().log();
        let open = || Spool::open(folder.path().join("spool"), log.clone(), 10).unwrap();
        let spool = open();
        let keys = [segment(2, 9).key(&log).unwrap(), log.child("gaps").unwrap().object("x.json").unwrap()];
        for key in &keys {
            spool.push(key.clone(), |file| file.write_all(b"12345")).await.unwrap();
        }
        let failed = spool.push(segment(10, 11).key(&log).unwrap(), |_| Err(io::ErrorKind::StorageFull.into())).await;
        assert_eq!(failed.unwrap_err().class(), holdfast_contract::ExitClass::Full);
        let last = |spool: &Spool| spool.newest().map(|(segment, _)| segment.last);
        assert!(spool.is_full() && last(&spool) == Some(9));
        let second = Spool::open(folder.path().join("spool"), log.clone(), 10).err().unwrap();
        assert!(second.message().contains("--spool-dir"), "{second}");
        drop(spool);
        // Killed in the middle of a file.
        fs::write(folder.path().join("spool/.x.new"), "half").unwrap();

        let spool = open();
        assert_eq!((spool.bytes(), last(&spool)), (10, Some(9)));
        for key in keys {
            let oldest = spool.oldest().await;
            assert_eq!((&oldest.key, &oldest.read().await.unwrap()[..]), (&key, &b"12345"[..]));
            spool.remove_oldest(&oldest).unwrap();
        }
        assert_eq!(files::names(&folder.path().join("spool")).unwrap().unwrap(), [LOCK]);
        spool.wait_for_room().await;
    }
}
