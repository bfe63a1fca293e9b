//! The volume before a restore, and the staging folder that the restore works in.
//!
//! This file decides which volume counts as empty, as the member's own, or as foreign, and that one restore runs at a time. It
//! deletes only the staging folder, by its name.

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_contract::error::{Error, Result, io_error};
use holdfast_contract::{DATA_DIR, ExitClass, Origin};
use holdfast_io::files::{self, ignore_missing};
use holdfast_io::process::random_uid;

use holdfast_gate::data_dir::{DATABASE, SNAP, WAL};
use holdfast_gate::volume_identity::{Identity, Unread};

/// Folder for unfinished data; each attempt has its own folder inside. The name belongs to Holdfast, so its content may be
/// deleted.
pub(super) const STAGING: &str = ".holdfast-staging";

const ADOPTING: &str = "putting etcd's log beside the database";

/// Time that a lock may outlast its owner.
const LETTING_GO: Duration = Duration::from_secs(3);

/// A mounted volume that this restore has locked.
pub(super) struct Volume {
    root: PathBuf,
    /// The open folder with the lock. The lock leaves no file for etcd to find, and ends with this process. (On NFS other nodes
    /// do not see the lock.)
    alone: File,
}

/// Content of a volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No files, or a staging folder of a dead or refused attempt.
    Empty,
    /// A data directory with an identity file, of this member or another.
    Identified(Box<Identity>),
    /// Other files: some of their names.
    Foreign(Vec<String>),
}

/// Converts an error of the volume's file system, for `map_err`.
pub(super) fn trouble(doing: impl Display) -> impl FnOnce(io::Error) -> Error {
    move |error| {
        let failure = io_error(doing)(error);
        if !matches!(failure.class(), ExitClass::Denied | ExitClass::NotFound) {
            return failure;
        }
        let message = format!(
            "the volume: {}. The volume has to exist, be writable for the agent's user and group (in a Pod 65532, by \
             fsGroup), and not be mounted read-only",
            failure.message()
        );
        Error::new(failure.class(), message).with_origin(Origin::Volume)
    }
}

impl Volume {
    /// Opens and locks the volume. Waits a moment for the lock: a killed process keeps it until the kernel has ended the
    /// process, and a forked child until its exec.
    pub(super) async fn alone(root: &Path) -> Result<Self> {
        let until = Instant::now() + LETTING_GO;
        loop {
            match Self::open(root) {
                Err(busy) if busy.class() == ExitClass::Transient && Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                opened => return opened,
            }
        }
    }

    fn open(root: &Path) -> Result<Self> {
        if !root.is_dir() {
            let path = root.display();
            return Err(Error::config(format!(
                "there is no folder {path} (--volume): create it (mkdir -p {path}), or mount the volume there"
            )));
        }
        let alone = File::open(root).map_err(trouble("opening the volume"))?;
        match alone.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::transient(
                    "another restore is running on this volume. The agent changed nothing. If no other restore should \
                     run, look for a Pod that was deleted by force and may still run on its node, or for an etcdutl \
                     whose agent was killed",
                )
                .with_origin(Origin::Volume));
            }
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, "the volume cannot be locked: two restores at a time would remove each other's \
                                        files");
            }
        }
        Ok(Self { root: root.to_owned(), alone })
    }

    /// Returns the same lock for a child process that works on the volume: the lock lasts until both have ended.
    pub(super) fn lock(&self) -> Result<File> {
        self.alone.try_clone().map_err(trouble("handing on the volume's lock"))
    }

    /// Reads the volume's state. Writes nothing. Only an empty volume may be filled (I9).
    pub(super) fn state(&self) -> Result<State> {
        let names = files::names(&self.root).map_err(trouble("looking at the volume"))?.unwrap_or_default();
        let names: Vec<_> = names.into_iter().filter(|name| !is_staging(name)).collect();
        if names.is_empty() {
            return Ok(State::Empty);
        }
        Ok(match Identity::read(&self.root.join(DATA_DIR)) {
            Ok(Some(identity)) => State::Identified(Box::new(identity)),
            Ok(None) => State::Foreign(names.into_iter().take(3).collect()),
            Err(Unread::Nonsense(why)) => State::Foreign(vec![why]),
            Err(Unread::Io(kind, text)) => {
                return Err(trouble("reading the identity of the volume")(io::Error::new(kind, text)));
            }
        })
    }

    /// Makes a folder for this attempt in an emptied staging folder: leftovers of earlier attempts are removed. Each attempt
    /// needs its own name: where locks do not work, one attempt could otherwise publish the unfinished data of another.
    pub(super) fn stage(&self) -> Result<Staging> {
        let staging = self.root.join(STAGING);
        let path = staging.join(random_uid()?);
        let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        let made = remove(&self.root).and_then(|()| make(&staging)).and_then(|()| make(&path));
        made.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists => taken_over(&error),
            _ => trouble("making the staging folder")(error),
        })?;
        Ok(Staging { path, root: self.root.clone() })
    }

    /// Whether a staging folder exists.
    pub(super) fn is_staged(&self) -> bool {
        self.root.join(STAGING).symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
    }

    /// Returns the path of a refusal's note.
    pub(super) fn refusal(&self) -> PathBuf {
        self.root.join(STAGING).join("refused.json")
    }

    /// Makes the staging folder, for a note.
    pub(super) fn keep(&self) -> Result<()> {
        let made = DirBuilder::new().mode(0o700).recursive(true).create(self.root.join(STAGING));
        made.map_err(trouble("making the staging folder"))
    }

    /// Ends an attempt whose folder is removed. The folder of another attempt stays: that attempt may be running.
    pub(super) fn end(&self) {
        let _more_is_in_it = fs::remove_dir(self.root.join(STAGING));
    }

    /// Removes the staging folder that a finished restore left.
    pub(super) fn tidy(&self) {
        tidy(&self.root);
    }

    /// Returns the bytes that can still be written.
    pub(super) fn free_bytes(&self) -> Result<u64> {
        files::free_bytes(&self.root).map_err(trouble("asking for the volume's free space"))
    }

    /// Checks the free space after the removal of a file: a file system may free its blocks a moment later.
    pub(super) async fn await_space(&self, room: Room, written: u64) -> Result<()> {
        for _ in 0..FREES_WITHIN {
            if self.check_space(room, written).is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.check_space(room, written)
    }

    /// Checks the free space; `written` bytes of the needed space are used already.
    pub(super) fn check_space(&self, room: Room, written: u64) -> Result<()> {
        let free = self.free_bytes()?.saturating_add(written);
        if free >= room.bytes {
            return Ok(());
        }
        Err(Error::full(format!(
            "the restore needs {} MiB of free space on the volume and there are {} MiB: {}",
            room.bytes.div_ceil(1 << 20),
            free >> 20,
            room.remedy()
        )))
    }
}

/// Tenths of a second that a file system may take to free the blocks of a removed file.
const FREES_WITHIN: u32 = 20;

/// The free space that a restore needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) bytes: u64,
    /// The space that a graft would need, if the request did not choose it.
    pub(super) grafted: Option<u64>,
}

impl Room {
    fn remedy(self) -> String {
        let graft = self.grafted.map(|bytes| {
            let mib = bytes.div_ceil(1 << 20);
            format!(", or engine: graft (--engine=graft), which needs {mib} MiB")
        });
        format!("use a larger volume{}", graft.unwrap_or_default())
    }
}

/// Adds the needed space to an error of a full volume, also where the space was free at the start.
pub(super) fn ran_out(room: Room, error: Error) -> Error {
    if error.class() != ExitClass::Full {
        return error;
    }
    error.context(format!(
        "the restore needs {} MiB of free space on the volume, which were free at the start and are used up now: {}",
        room.bytes.div_ceil(1 << 20),
        room.remedy()
    ))
}

/// Returns the error of an attempt whose folder another restore has removed or made.
fn taken_over(why: &dyn Display) -> Error {
    Error::transient(format!(
        "another restore has taken over this volume ({why}). Look for a Pod that was deleted by force and may still \
         run on its node"
    ))
    .with_origin(Origin::Volume)
}

fn tidy(root: &Path) {
    if let Err(error) = remove(root) {
        tracing::warn!(%error, "the staging folder stays behind");
    }
}

/// Deletes the staging folder. Where locks do not work, another attempt may be running inside, so renames come first: the
/// staging folder's name, by which the other attempt finds its own folder, then the data directory's name, which the other
/// attempt would publish. The other attempt has then either finished before or fails, and etcd never gets half-deleted data.
fn remove(root: &Path) -> io::Result<()> {
    let nameless = || random_uid().map_err(io::Error::other);
    ignore_missing(fs::rename(root.join(STAGING), root.join(format!("{STAGING}-{}", nameless()?))))?;
    // Leftovers of a killed removal go too.
    for name in files::names(root)?.unwrap_or_default().iter().filter(|name| is_staging(name)) {
        let aside = root.join(name);
        // The target of a link belongs to another owner.
        let is_folder = aside.symlink_metadata().is_ok_and(|found| found.is_dir());
        let attempts = if is_folder { files::names(&aside)? } else { None };
        for attempt in attempts.unwrap_or_default() {
            let attempt = aside.join(attempt);
            if attempt.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                ignore_missing(fs::rename(attempt.join(DATA_DIR), attempt.join(nameless()?)))?;
            }
        }
        ignore_missing(fs::remove_dir_all(&aside))?;
    }
    Ok(())
}

/// Whether the name is that of the staging folder, or of a staging folder under removal.
fn is_staging(name: &str) -> bool {
    name.strip_prefix(STAGING).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The staging folder of one attempt; dropping it removes the folder.
pub(super) struct Staging {
    path: PathBuf,
    root: PathBuf,
}

impl Staging {
    /// Creates the file for the downloaded snapshot.
    pub(super) fn snapshot(&self) -> Result<(PathBuf, File)> {
        let path = self.path.join("snapshot.db");
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        Ok((path, file.map_err(trouble("making the snapshot's file"))?))
    }

    /// Returns the folder for the copy of a survivor's data.
    pub(super) fn survivor(&self) -> PathBuf {
        self.path.join("survivor")
    }

    /// Returns the data directory, which etcdutl insists on creating.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join(DATA_DIR)
    }

    /// Creates the database's file in the data directory, for writing and reading.
    pub(super) fn database(&self) -> Result<(PathBuf, File)> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(self.data().join(SNAP));
        made.map_err(trouble("making the data directory"))?;
        let path = self.data().join(DATABASE);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        Ok((path, file.map_err(trouble("making the database's file"))?))
    }

    /// Writes the small database, which etcdutl restores for a graft.
    pub(super) fn small(&self, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.path.join("small.db");
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(trouble("writing the small database"))?;
        Ok(path)
    }

    /// Returns the data directory that etcdutl makes of the small database.
    pub(super) fn small_data(&self) -> PathBuf {
        self.path.join("small")
    }

    /// Returns the database in that directory.
    pub(super) fn small_database(&self) -> PathBuf {
        self.small_data().join(DATABASE)
    }

    /// Moves the files beside the small database (etcd's log and its snapshot of the membership) to the large database, and
    /// removes the rest.
    pub(super) fn adopt(&self) -> Result<()> {
        let (from, to) = (self.small_data(), self.data());
        let adopt = || -> io::Result<()> {
            for entry in fs::read_dir(from.join(SNAP))? {
                let name = entry?.file_name();
                if from.join(SNAP).join(&name) != from.join(DATABASE) {
                    fs::rename(from.join(SNAP).join(&name), to.join(SNAP).join(&name))?;
                }
            }
            fs::rename(from.join(WAL), to.join(WAL))?;
            fs::remove_dir_all(&from)?;
            fs::remove_file(self.path.join("small.db"))
        };
        // A missing file was never made, so the volume is not the cause.
        adopt().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io_error(ADOPTING)(error),
            _ => trouble(ADOPTING)(error),
        })
    }

    /// Removes the snapshot's file, whose space is needed.
    pub(super) fn drop_snapshot(&self) -> Result<()> {
        fs::remove_file(self.path.join("snapshot.db")).map_err(trouble("removing the snapshot's file"))
    }

    /// Syncs everything, then renames: the rename is the moment at which the volume becomes startable.
    pub(super) fn publish(self) -> Result<()> {
        let database = self.data().join(DATABASE);
        // An I/O error does not show that the file is missing.
        let is_gone = || matches!(database.try_exists(), Ok(false));
        self.rename(&database).map_err(|error| if is_gone() { taken_over(&error) } else { error })?;
        files::sync_folder(&self.root).map_err(trouble("syncing the volume"))?;
        tidy(&self.root);
        Ok(())
    }

    fn rename(&self, database: &Path) -> Result<()> {
        files::sync_tree(&self.path).map_err(trouble("syncing the restored data"))?;
        let target = self.root.join(DATA_DIR);
        // A rename onto an empty folder would succeed. The folder did not exist before, so another program created it.
        if target.symlink_metadata().is_ok() {
            return Err(Error::refused("another program has written to the volume during the restore"));
        }
        // As late as possible: another restore may be taking the volume over.
        database.symlink_metadata().map_err(trouble("looking at the restored database"))?;
        fs::rename(self.data(), &target).map_err(trouble("putting the restored data in its place"))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = ignore_missing(fs::remove_dir_all(&self.path)) {
            tracing::warn!(%error, "the attempt's folder stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_contract::IdentityFlags;

    use super::*;

    fn volume() -> (tempfile::TempDir, Volume) {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::open(folder.path()).unwrap();
        (folder, volume)
    }

    #[test]
    fn what_counts_as_what() {
        let (folder, volume) = volume();
        assert_eq!(volume.state(), Ok(State::Empty));
        fs::create_dir(folder.path().join("lost+found")).unwrap();
        fs::create_dir_all(folder.path().join(STAGING).join("data/member")).unwrap();
        assert_eq!(volume.state(), Ok(State::Empty));
        fs::create_dir(folder.path().join(DATA_DIR)).unwrap();
        assert_eq!(volume.state(), Ok(State::Foreign(vec!["data".to_owned()])));
        let identity = Identity::new(&IdentityFlags::default());
        identity.write(&folder.path().join(DATA_DIR)).unwrap();
        assert_eq!(volume.state(), Ok(State::Identified(Box::new(identity))));
        fs::write(folder.path().join(DATA_DIR).join(holdfast_gate::volume_identity::IDENTITY_FILE), "{").unwrap();
        assert!(matches!(volume.state(), Ok(State::Foreign(_))));
    }

    #[tokio::test]
    async fn one_restore_at_a_time_and_no_file_says_so() {
        let (folder, volume) = volume();
        let error = Volume::open(folder.path()).err().unwrap();
        assert_eq!(error.class(), ExitClass::Transient);
        assert!(error.message().contains("another restore is running on this volume"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(volume);
        assert_eq!(Volume::alone(folder.path()).await.unwrap().state(), Ok(State::Empty));
    }

    /// On NFS each node may have its own locks.
    #[test]
    fn two_that_do_not_see_each_others_lock_never_publish_each_others_halves() {
        let made = |staging: &Staging, content: &str| {
            let (path, _) = staging.database().unwrap();
            fs::write(path, content).unwrap();
        };
        let published =
            |folder: &tempfile::TempDir| fs::read_to_string(folder.path().join(DATA_DIR).join(DATABASE)).ok();
        for (what, first_is_late, whole) in [
            ("the first one is slow", true, "second"),
            ("the first one is done when the second is half way", false, "first"),
        ] {
            let (folder, volume) = volume();
            let first = volume.stage().unwrap();
            made(&first, "first");
            if first_is_late {
                let second = volume.stage().unwrap();
                made(&second, "half");
                let error = first.publish().unwrap_err();
                assert_eq!(error.class(), ExitClass::Transient, "{what}: {error}");
                let words = ["another restore has taken over this volume", "deleted by force"];
                assert!(words.iter().all(|words| error.message().contains(words)), "{error}");
                assert_eq!(published(&folder), None, "{what}");
                fs::write(second.data().join(DATABASE), "second").unwrap();
                second.publish().unwrap();
            } else {
                // The second attempt started earlier and sees no lock.
                let second = Staging { path: folder.path().join(STAGING).join("2"), root: folder.path().to_owned() };
                made(&second, "half");
                first.publish().unwrap();
                assert!(second.publish().is_err(), "{what}");
            }
            assert_eq!(published(&folder).as_deref(), Some(whole), "{what}");
            assert_eq!(files::names(folder.path()).unwrap().unwrap(), [DATA_DIR], "{what}");
        }
    }

    /// One attempt removes another attempt's folder, and that attempt is still alive.
    #[test]
    fn what_is_being_taken_away_cannot_be_published() {
        let (folder, volume) = volume();
        let staging = volume.stage().unwrap();
        staging.database().unwrap();
        remove(folder.path()).unwrap();
        // The attempt goes on and creates the missing folders.
        fs::create_dir_all(staging.data().join(WAL)).unwrap();
        fs::write(staging.data().join(WAL).join("0.wal"), "x").unwrap();
        assert_eq!(staging.publish().unwrap_err().class(), ExitClass::Transient);
        assert!(!folder.path().join(DATA_DIR).exists());
    }

    #[test]
    fn one_that_ends_leaves_what_another_one_makes() {
        let (folder, volume) = volume();
        let first = volume.stage().unwrap();
        let second = volume.stage().unwrap();
        second.database().unwrap();
        assert!(first.snapshot().is_err(), "it finds its own no more");
        drop(first);
        volume.end();
        second.publish().unwrap();
        assert_eq!(files::names(folder.path()).unwrap().unwrap(), [DATA_DIR]);
    }

    /// An attempt died while it removed the leftovers of another.
    #[test]
    fn what_was_half_removed_is_no_data_and_goes() {
        let (folder, volume) = volume();
        for name in ["holdfast-staging-1", ".holdfast-staging-1/a/data/member", ".holdfast-staging/data/member"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        assert_eq!(volume.state(), Ok(State::Foreign(vec!["holdfast-staging-1".to_owned()])));
        fs::remove_dir(folder.path().join("holdfast-staging-1")).unwrap();
        assert_eq!(volume.state(), Ok(State::Empty));
        let staging = volume.stage().unwrap();
        assert_eq!(files::names(folder.path()).unwrap().unwrap(), [STAGING]);
        drop(staging);
        volume.end();
        assert_eq!(files::names(folder.path()).unwrap().unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn staging_begins_empty_and_a_link_in_its_place_is_not_followed() {
        let (folder, volume) = volume();
        let precious = tempfile::tempdir().unwrap();
        fs::write(precious.path().join("f"), "x").unwrap();
        std::os::unix::fs::symlink(precious.path(), folder.path().join(STAGING)).unwrap();
        let _refused_or_replaced = volume.stage();
        assert!(precious.path().join("f").exists());
    }

    #[test]
    fn space_is_asked_for_before_anything_is_written() {
        let (_folder, volume) = volume();
        let room = |bytes, grafted| volume.check_space(Room { bytes, grafted }, 0);
        assert_eq!(room(0, None), Ok(()));
        let error = room(u64::MAX, None).unwrap_err();
        assert_eq!(error.class(), ExitClass::Full);
        // The error does not suggest a graft to a request that chose a graft.
        assert!(error.message().ends_with("use a larger volume"), "{error}");
        let error = room(u64::MAX, Some(300 << 20)).unwrap_err();
        assert!(error.message().contains("engine: graft") && error.message().contains("needs 300 MiB"), "{error}");
        let error = ran_out(Room { bytes: 1, grafted: Some(300 << 20) }, error);
        assert!(error.message().contains("used up now: use a larger volume, or engine: graft"), "{error}");
        let missing = Volume::open(Path::new("/nonexistent")).err().unwrap();
        assert_eq!(missing.class(), ExitClass::Config);
        assert!(missing.message().contains("create it (mkdir -p /nonexistent)"), "{missing}");
    }
}
