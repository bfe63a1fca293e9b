//! Files of attempts in a lineage's folders: their names, which hold the end of the writer's time, and their removal.

use std::io;

use cap_std::fs::{Dir, File, OpenOptions};
use holdfast_contract::error::Result;
use holdfast_io::files::ignore_missing;
use holdfast_io::process::random_uid;
use holdfast_layout::{Folder, Format, MANIFEST};
use jiff::Timestamp;

use super::in_the_way;
use crate::{GRACE_SECONDS, busy_until};

const TEMPORARY_PREFIX: &str = ".upload-until-";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Prefix of an empty file beside data without a manifest.
const LEASE_PREFIX: &str = ".stored-until-";
/// Prefix of an empty file beside data without a manifest that no dead run claims: a run works on the data, and no run removes it.
const TAKEN_PREFIX: &str = ".taken-until-";
/// Prefix of a small object during its write.
const SMALL_PREFIX: &str = ".small";

/// Returns the name of a file that becomes the object at completion.
pub(super) fn temporary_name(until: i64) -> String {
    format!("{TEMPORARY_PREFIX}{until}{TEMPORARY_SUFFIX}")
}

/// Returns the name of the file that stays beside data until its manifest exists.
pub(super) fn lease_name(until: i64) -> String {
    format!("{LEASE_PREFIX}{until}{TEMPORARY_SUFFIX}")
}

/// Returns the name of the file beside data that no run claims.
pub(super) fn taken_name(until: i64) -> String {
    format!("{TAKEN_PREFIX}{until}{TEMPORARY_SUFFIX}")
}

/// Returns the name of a file that becomes a small object; several writers may run at once.
pub(super) fn small_name() -> Result<String> {
    Ok(format!("{SMALL_PREFIX}-{}{TEMPORARY_SUFFIX}", random_uid()?))
}

fn is_small(name: &str) -> bool {
    name.starts_with(SMALL_PREFIX) && name.ends_with(TEMPORARY_SUFFIX)
}

/// Whether the store itself makes and removes this file.
pub(super) fn is_own(name: &str) -> bool {
    is_small(name) || lives_until(name).is_some()
}

/// Returns the end of the writer's time, if this is a temporary file or a lease.
pub(super) fn lives_until(name: &str) -> Option<i64> {
    let rest = [TEMPORARY_PREFIX, LEASE_PREFIX, TAKEN_PREFIX].iter().find_map(|prefix| name.strip_prefix(prefix))?;
    rest.strip_suffix(TEMPORARY_SUFFIX)?.parse().ok()
}

/// Whether this file is the lease of data without a manifest.
pub(super) fn is_lease(name: &str) -> bool {
    name.starts_with(LEASE_PREFIX) && lives_until(name).is_some()
}

/// Whether this file is the lease of data that no run claims.
pub(super) fn is_taken(name: &str) -> bool {
    name.starts_with(TAKEN_PREFIX) && lives_until(name).is_some()
}

/// Returns the time from which the writers of these files are certainly dead.
pub(super) fn over<'a>(names: impl Iterator<Item = &'a str>) -> Option<Timestamp> {
    let until = names.filter_map(lives_until).max()?;
    Timestamp::from_second(until.saturating_add(GRACE_SECONDS)).ok()
}

/// Returns the end of another run's lease on this attempt.
pub(super) fn held(root: &Dir, attempt: &Folder, now: Timestamp) -> io::Result<Option<Timestamp>> {
    let names = match root.open_dir(attempt.as_str()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => names(&opened?)?,
    };
    Ok(over(names.iter().map(String::as_str)).filter(|over| *over >= now))
}

/// Returns the names in a folder.
pub(super) fn names(folder: &Dir) -> io::Result<Vec<String>> {
    let files = folder.entries()?.collect::<io::Result<Vec<_>>>()?;
    Ok(files.into_iter().map(|file| file.file_name().to_string_lossy().into_owned()).collect())
}

/// Creates an attempt's folder with the upload's temporary file. An existing folder belongs to another run or another snapshot,
/// unless it is empty: a run has died before its first file, or a user has removed the rest.
pub(super) fn claim(root: &Dir, attempt: &Folder, temporary: &str) -> io::Result<(Dir, File)> {
    let made = root.create_dir(attempt.as_str());
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    let folder = root.open_dir(attempt.as_str()).map_err(in_the_way)?;
    let there = names(&folder)?;
    if !there.is_empty() {
        return Err(taken(attempt, &there));
    }
    let file = folder.open_with(temporary, OpenOptions::new().read(true).write(true).create_new(true))?;
    // Another run may have found the folder empty at the same time: at least one of two runs sees the other's file.
    let others = names(&folder).map(|names| names.into_iter().filter(|name| name != temporary).collect::<Vec<_>>());
    let why = match others {
        Ok(others) if others.is_empty() => return Ok((folder, file)),
        Ok(others) => taken(attempt, &others),
        Err(error) => error,
    };
    let _gone = folder.remove_file(temporary);
    Err(why)
}

/// Returns the reason for which an attempt's folder with these files is left alone. Copies use the same key again.
fn taken(attempt: &Folder, names: &[String]) -> io::Error {
    let for_now = |why: String| io::Error::new(io::ErrorKind::AlreadyExists, why);
    match over(names.iter().map(String::as_str)) {
        _ if names.iter().any(|name| name == MANIFEST) => for_now("the folder already holds a snapshot".to_owned()),
        Some(until) => for_now(busy_until(until)),
        // Waiting does not help.
        None => io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "the folder {attempt} holds files of no running attempt, and no run removes these files. Check the \
                 files, remove the folder, and try again"
            ),
        ),
    }
}

/// Removes the leftovers of this lineage's dead attempts (I21), best effort: old leftovers do not fail a backup.
pub(super) fn clean_up(root: &Dir, lineage: &Folder, now: i64) {
    let attempts = root.open_dir(lineage.as_str()).and_then(|attempts| Ok((attempts.entries()?, attempts)));
    let (entries, attempts) = match attempts {
        Ok(found) => found,
        Err(error) => return tracing::warn!(%error, "the unfinished data of dead attempts stays"),
    };
    for entry in entries {
        // A folder of another owner does not stop the others.
        let clean = || -> io::Result<()> {
            let entry = entry?;
            if entry.file_type()?.is_dir() && bury(&entry.open_dir()?, lineage, now)? {
                tracing::info!(attempt = ?entry.file_name(), "removed the unfinished data of a dead attempt");
                // Fails if other files remain, as it should.
                let _kept = attempts.remove_dir(entry.file_name());
            }
            Ok(())
        };
        if let Err(error) = clean() {
            tracing::warn!(%error, "the data of an attempt could not be read, and stays");
        }
    }
}

/// Removes Holdfast's files of an attempt whose writer is dead by the name of its file. Beside a manifest it removes only that
/// file and unfinished small files. It removes nothing if another writer lives: that writer may continue with the data.
fn bury(attempt: &Dir, lineage: &Folder, now: i64) -> io::Result<bool> {
    let (mut dead, mut lives) = (Vec::new(), false);
    for file in attempt.entries()? {
        let name = file?.file_name();
        let until = name.to_str().and_then(lives_until);
        match until.map(|until| until.saturating_add(GRACE_SECONDS) < now) {
            Some(true) => dead.push(name),
            Some(false) => lives = true,
            None => {}
        }
    }
    if dead.is_empty() || lives {
        return Ok(false);
    }
    let manifest = attempt.symlink_metadata(lineage.manifest().name());
    let is_snapshot = !manifest.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let small = names(attempt)?.into_iter().filter(|name| is_small(name));
    let claimed = dead.iter().any(|name| !name.to_str().is_some_and(is_taken));
    for name in Format::all().map(Format::name).filter(|_| claimed && !is_snapshot).chain(small) {
        ignore_missing(attempt.remove_file(name))?;
    }
    for name in dead {
        ignore_missing(attempt.remove_file(name))?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use cap_std::ambient_authority;

    use super::*;

    fn open(volume: &Path) -> Dir {
        Dir::open_ambient_dir(volume, ambient_authority()).unwrap()
    }

    #[test]
    fn an_empty_folder_is_free_and_any_other_is_not() {
        let volume = tempfile::tempdir().unwrap();
        let root = open(volume.path());
        let attempt = Folder::parse("key", "c/a").unwrap();
        fs::create_dir_all(volume.path().join("c/a")).unwrap();
        let temporary = temporary_name(1);
        drop(claim(&root, &attempt, &temporary).unwrap());
        assert!(volume.path().join("c/a").join(&temporary).exists());
        let other = claim(&root, &attempt, &temporary_name(2)).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::AlreadyExists, "another run has it: {other}");
        fs::remove_file(volume.path().join("c/a").join(&temporary)).unwrap();

        fs::create_dir(volume.path().join("c/a/proofs")).unwrap();
        let kept = claim(&root, &attempt, &temporary).unwrap_err();
        assert_eq!(kept.kind(), io::ErrorKind::InvalidInput, "no time changes that: {kept}");
        let said = kept.to_string();
        assert!(said.contains("folder c/a holds") && said.contains("remove the folder"), "{said}");
        assert_eq!(fs::read_dir(volume.path().join("c/a")).unwrap().count(), 1, "nothing was touched");

        fs::write(volume.path().join("c/file"), "").unwrap();
        let file = claim(&root, &Folder::parse("key", "c/file").unwrap(), &temporary).unwrap_err();
        assert_eq!(file.kind(), io::ErrorKind::PermissionDenied, "{file}");
    }

    #[test]
    fn what_a_living_run_goes_on_with_is_not_buried() {
        let volume = tempfile::tempdir().unwrap();
        let (root, lineage) = (open(volume.path()), Folder::parse("key", "c").unwrap());
        let attempt = volume.path().join("c/a");
        fs::create_dir_all(&attempt).unwrap();
        let data = Format::all().next().unwrap().name();
        let now = 1_800_000_000;
        let (dead, own) = (lease_name(now - GRACE_SECONDS - 1), lease_name(now));
        for name in [&data, &dead, &own] {
            fs::write(attempt.join(name), "x").unwrap();
        }
        clean_up(&root, &lineage, now);
        assert!(attempt.join(&data).exists() && attempt.join(&own).exists());
        fs::remove_file(attempt.join(&own)).unwrap();
        clean_up(&root, &lineage, now);
        assert!(!attempt.exists());

        // Data that no run claimed before stays; only the lease of the dead run goes.
        fs::create_dir_all(&attempt).unwrap();
        for name in [&data, &taken_name(now - GRACE_SECONDS - 1)] {
            fs::write(attempt.join(name), "x").unwrap();
        }
        clean_up(&root, &lineage, now);
        assert_eq!(names(&open(&attempt)).unwrap(), [data]);
    }
}
