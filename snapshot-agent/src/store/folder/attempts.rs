//! What attempts leave in a lineage's folders: names that say until when their writers live, and what is removed after that.

use std::io;

use cap_std::fs::Dir;
use jiff::Timestamp;

use super::ignore_missing;
use crate::error::Result;
use crate::layout::{Folder, Format, MANIFEST};
use crate::save::random_uid;
use crate::store::{GRACE_SECONDS, at_it};

const TEMPORARY_PREFIX: &str = ".upload-until-";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Of an empty file beside data that has no manifest yet.
const MARK_PREFIX: &str = ".stored-until-";
/// Of a small object that is being written.
const SMALL_PREFIX: &str = ".small";

/// A file that becomes the object when it is complete.
pub(super) fn temporary_name(until: i64) -> String {
    format!("{TEMPORARY_PREFIX}{until}{TEMPORARY_SUFFIX}")
}

/// The file that stands beside data until its manifest does.
pub(super) fn mark_name(until: i64) -> String {
    format!("{MARK_PREFIX}{until}{TEMPORARY_SUFFIX}")
}

/// A file that becomes a small object; several writers may be at it.
pub(super) fn small_name() -> Result<String> {
    Ok(format!("{SMALL_PREFIX}-{}{TEMPORARY_SUFFIX}", random_uid()?))
}

fn is_small(name: &str) -> bool {
    name.starts_with(SMALL_PREFIX) && name.ends_with(TEMPORARY_SUFFIX)
}

/// Until when the writer of this file may live, if it is a temporary file or a mark of ours.
fn lives_until(name: &str) -> Option<i64> {
    let rest = name.strip_prefix(TEMPORARY_PREFIX).or_else(|| name.strip_prefix(MARK_PREFIX))?;
    rest.strip_suffix(TEMPORARY_SUFFIX)?.parse().ok()
}

/// Until when the writers of these files may live, and so much longer that they are dead for certain.
fn over<'a>(names: impl Iterator<Item = &'a str>) -> Option<Timestamp> {
    let until = names.filter_map(lives_until).max()?;
    Timestamp::from_second(until.saturating_add(GRACE_SECONDS)).ok()
}

/// Until when another run may be at this attempt.
pub(super) fn held(root: &Dir, attempt: &Folder, now: Timestamp) -> io::Result<Option<Timestamp>> {
    let names = match root.open_dir(attempt.as_str()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => names(&opened?)?,
    };
    Ok(over(names.iter().map(String::as_str)).filter(|over| *over >= now))
}

fn names(folder: &Dir) -> io::Result<Vec<String>> {
    let files = folder.entries()?.collect::<io::Result<Vec<_>>>()?;
    Ok(files.into_iter().filter_map(|file| file.file_name().into_string().ok()).collect())
}

/// Why an attempt's folder cannot be made: another run is at it, or died there. A copy comes back to the same key.
pub(super) fn taken(root: &Dir, folder: &Folder, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::AlreadyExists {
        return error;
    }
    let names = root.open_dir(folder.as_str()).and_then(|folder| names(&folder)).unwrap_or_default();
    let why = match over(names.iter().map(String::as_str)) {
        _ if names.iter().any(|name| name == MANIFEST) => "a snapshot is there already".to_owned(),
        Some(until) => at_it(until),
        None => "what is in that folder is nobody's who could still be at it".to_owned(),
    };
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

/// Removes what dead attempts of this lineage have left (I21), best effort: a backup does not fail because of old
/// garbage.
pub(super) fn clean_up(root: &Dir, lineage: &Folder, now: i64) {
    let clean = || -> io::Result<()> {
        let attempts = root.open_dir(lineage.as_str())?;
        for entry in attempts.entries()? {
            let entry = entry?;
            if entry.file_type()?.is_dir() && bury(&entry.open_dir()?, lineage, now)? {
                tracing::info!(attempt = ?entry.file_name(), "removed what a dead attempt had left");
                // Fails when there is anything else in it, as it should.
                let _kept = attempts.remove_dir(entry.file_name());
            }
        }
        Ok(())
    };
    if let Err(error) = clean() {
        tracing::debug!(%error, "old garbage stays");
    }
}

/// Removes what is ours of an attempt whose writer is dead by its file's name; with a manifest no more than that file.
fn bury(attempt: &Dir, lineage: &Folder, now: i64) -> io::Result<bool> {
    let mut dead = Vec::new();
    for file in attempt.entries()? {
        let name = file?.file_name();
        let until = name.to_str().and_then(lives_until);
        if until.is_some_and(|until| until.saturating_add(GRACE_SECONDS) < now) {
            dead.push(name);
        }
    }
    if dead.is_empty() {
        return Ok(false);
    }
    if attempt.symlink_metadata(lineage.manifest().name()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        let small = names(attempt)?.into_iter().filter(|name| is_small(name));
        for name in Format::all().map(Format::name).chain(small) {
            ignore_missing(attempt.remove_file(name))?;
        }
    }
    for name in dead {
        ignore_missing(attempt.remove_file(name))?;
    }
    Ok(true)
}
