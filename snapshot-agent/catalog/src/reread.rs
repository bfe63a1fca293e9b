//! Decides whether a bad reading shows a fault of the stored object, or of the way from the store to this process.
//!
//! A second reading decides, with a new connection for each request. If both readings are equal, the object has the fault and
//! the error stands. If they differ, the bytes were changed on the way: the error is then transient, and the agent records
//! nothing about the object.

use std::time::Duration;

use bytes::Bytes;
use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_io::progress::Progress;
use holdfast_layout::manifest;
use holdfast_layout::{Folder, Key};
use holdfast_store::{Ahead, Store};

use crate::digest::digest;

/// Length and sha256 of an object from one reading.
pub type Reading = (u64, [u8; 32]);

/// Confirms the error of a bad manifest, if a second reading gives the same bytes.
pub async fn of_manifest(store: &Store, folder: &Folder, first: &Bytes, error: Error) -> Error {
    if !is_verdict(&error) {
        return error;
    }
    judge(error, is_same_manifest(store, folder, first).await)
}

/// Does the same where another run may remove the snapshot meanwhile. `None`: the manifest is gone.
pub async fn of_manifest_unless_gone(store: &Store, folder: &Folder, first: &Bytes, error: Error) -> Option<Error> {
    if !is_verdict(&error) {
        return Some(error);
    }
    unless_gone(error, is_same_manifest(store, folder, first).await)
}

async fn is_same_manifest(store: &Store, folder: &Folder, first: &Bytes) -> Result<bool> {
    let again = store.with_new_connections().get_small(&folder.manifest(), manifest::MAX_BYTES).await?;
    Ok(again == *first)
}

/// Confirms the error of an unreadable small object, if a second reading fails the same way.
pub async fn of_unreadable(store: &Store, key: &Key, limit: u64, error: Error) -> Error {
    if error.class() != ExitClass::Corrupt {
        return error;
    }
    judge(error, is_unreadable_again(store, key, limit).await)
}

/// Does the same where another run may remove the object meanwhile. `None`: the object is gone.
pub async fn of_unreadable_unless_gone(store: &Store, key: &Key, limit: u64, error: Error) -> Option<Error> {
    if error.class() != ExitClass::Corrupt {
        return Some(error);
    }
    unless_gone(error, is_unreadable_again(store, key, limit).await)
}

async fn is_unreadable_again(store: &Store, key: &Key, limit: u64) -> Result<bool> {
    match store.with_new_connections().get_small(key, limit).await {
        Ok(_) => Ok(false),
        Err(again) if again.class() == ExitClass::Corrupt => Ok(true),
        Err(again) => Err(again),
    }
}

/// Judges an error by the second reading; `None`: the object is gone.
fn unless_gone(error: Error, same: Result<bool>) -> Option<Error> {
    match same {
        Err(gone) if gone.class() == ExitClass::NotFound => None,
        same => Some(judge(error, same)),
    }
}

/// Confirms the error of an object with a wrong length (`None`: it is missing), if a second request gives the same length.
pub async fn of_length(store: &Store, key: &Key, first: Option<u64>, error: Error) -> Error {
    let again = match store.with_new_connections().stat(key).await {
        Ok(stat) => Ok(Some(stat.bytes)),
        Err(missing) if missing.class() == ExitClass::NotFound => Ok(None),
        Err(unread) => Err(unread),
    };
    judge(error, again.map(|again| again == first))
}

/// Confirms the error of data that is not `expected`, if a second reading gives the same bytes. If the first reading broke off,
/// a third reading is compared with the second.
pub async fn of_data(
    store: &Store,
    key: &Key,
    (first, expected): (Option<Reading>, Option<Reading>),
    error: Error,
    stall: Duration,
) -> Error {
    if error.class() != ExitClass::Corrupt || (expected.is_some() && first == expected) {
        return error;
    }
    tracing::warn!(%error, uri = store.uri(key), "reading the object again, by new connections");
    let same = async {
        let again = read(store, key, stall).await?;
        if expected == Some(again) {
            return Ok(false);
        }
        match first {
            Some(first) => Ok(again == first),
            None => Ok(again == read(store, key, stall).await?),
        }
    };
    judge(error, same.await)
}

async fn read(store: &Store, key: &Key, stall: Duration) -> Result<Reading> {
    let store = store.with_new_connections();
    store.forget(key).await?;
    let stat = store.stat(key).await?;
    let progress = Progress::new("reading again", stat.bytes);
    // Nothing is unpacked here, so there is memory for this; each range opens a connection of its own.
    let stream = store.read(key, &stat, Ahead::FAR, &progress);
    progress.watch(stall, digest(stream)).await
}

/// Whether the error would be final.
fn is_verdict(error: &Error) -> bool {
    !matches!(error.class(), ExitClass::Transient | ExitClass::Deadline)
}

/// Returns the error of a second reading that a deadline or a signal has ended.
pub fn unfinished(error: &Error, ended: &Error) -> Error {
    Error::new(
        ended.class(),
        format!(
            "a bad reading could not be repeated ({}), so nothing is recorded of the object. Try again with a longer \
             deadline (--deadline-seconds). The bad reading: {error}",
            ended.message()
        ),
    )
}

/// Judges an error by the second reading.
pub fn judge(error: Error, same: Result<bool>) -> Error {
    match same {
        Ok(true) => error,
        Ok(false) => Error::transient(format!(
            "two readings of the same object differ, so the bytes were changed on the way from the store, and nothing is \
             known against the object. Try again; if this recurs, check the network and every proxy before the store. The \
             bad reading: {error}"
        )),
        Err(unread) => Error::transient(format!(
            "a bad reading could not be repeated, so nothing is known against the object: {error}; the second reading: \
             {unread}"
        )),
    }
}
