//! Renames a written file to its name if the name is free: of several concurrent writers one wins, and an existing file stays.
//!
//! This file decides which call to use, because file systems differ. The caller compares the content of the existing file.

use std::io;

use cap_std::fs::Dir;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

/// Renames a file in this folder. [`io::ErrorKind::AlreadyExists`]: another file has the name, and this file keeps its own.
pub(super) fn name(folder: &Dir, temporary: &str, name: &str) -> io::Result<()> {
    match rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
        Err(unknown) if is_unknown(unknown) => link(folder, temporary, name),
        renamed => renamed.map_err(io::Error::from),
    }
}

/// Whether the file system has no rename that spares an existing file (renameat2(2), for example NFS), or a sandbox blocks the
/// call.
const fn is_unknown(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM)
}

/// Adds a hard link, which does not replace a file either.
fn link(folder: &Dir, temporary: &str, name: &str) -> io::Result<()> {
    match folder.hard_link(temporary, folder, name) {
        Ok(()) => {
            // The file has its name; if this removal fails, the temporary name goes with the attempt's other files.
            let _gone = folder.remove_file(temporary);
            Ok(())
        }
        Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => Err(taken),
        Err(_) => check_and_rename(folder, temporary, name),
    }
}

/// Checks before the rename, for a file system without links.
fn check_and_rename(folder: &Dir, temporary: &str, name: &str) -> io::Result<()> {
    match folder.symlink_metadata(name) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => folder.rename(temporary, folder, name),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Barrier;
    use std::thread;

    use cap_std::ambient_authority;

    use super::*;

    type Way = fn(&Dir, &str, &str) -> io::Result<()>;

    fn open(volume: &tempfile::TempDir) -> Dir {
        Dir::open_ambient_dir(volume.path(), ambient_authority()).unwrap()
    }

    #[test]
    fn every_way_spares_what_is_there() {
        for (which, way) in [name as Way, link, check_and_rename].into_iter().enumerate() {
            let volume = tempfile::tempdir().unwrap();
            let folder = open(&volume);
            for written in ["one", "two"] {
                fs::write(volume.path().join(written), written).unwrap();
            }
            way(&folder, "one", "named").unwrap();
            assert!(!volume.path().join("one").exists(), "way {which}");
            let taken = way(&folder, "two", "named").unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists, "way {which}: {taken}");
            assert_eq!(fs::read_to_string(volume.path().join("named")).unwrap(), "one", "way {which}");
            assert!(volume.path().join("two").exists(), "way {which}: it is the caller's to remove");
        }
    }

    #[test]
    fn of_many_at_once_one_wins() {
        const WRITERS: usize = 8;
        for (which, way) in [name as Way, link].into_iter().enumerate() {
            for _ in 0..50 {
                let volume = tempfile::tempdir().unwrap();
                let (folder, together) = (open(&volume), Barrier::new(WRITERS));
                for writer in 0..WRITERS {
                    fs::write(volume.path().join(writer.to_string()), writer.to_string()).unwrap();
                }
                let (folder, together) = (&folder, &together);
                let won = thread::scope(|scope| {
                    let writers: Vec<_> = (0..WRITERS)
                        .map(|writer| {
                            scope.spawn(move || {
                                together.wait();
                                way(folder, &writer.to_string(), "named")
                            })
                        })
                        .collect();
                    writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
                });
                let winners: Vec<_> = (0..WRITERS).filter(|writer| won[*writer].is_ok()).collect();
                assert_eq!(winners.len(), 1, "way {which}: {won:?}");
                assert_eq!(fs::read_to_string(volume.path().join("named")).unwrap(), winners[0].to_string());
            }
        }
    }

    #[test]
    fn what_is_wrong_with_the_volume_is_no_missing_call() {
        for (error, unknown) in [
            (Errno::INVAL, true),
            (Errno::NOSYS, true),
            (Errno::OPNOTSUPP, true),
            (Errno::PERM, true),
            (Errno::EXIST, false),
            (Errno::NOSPC, false),
            (Errno::ROFS, false),
            (Errno::IO, false),
        ] {
            assert_eq!(is_unknown(error), unknown, "{error}");
        }
    }
}
