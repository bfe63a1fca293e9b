//! The store ID: a small object at the store's root, written once, by the first probe that finds the store usable.
//!
//! This file decides the content of the ID, and the consequences of a different or missing ID where one is expected: the agent
//! neither writes nor removes there (I25). The same names may later lead to another account's bucket or to an emptied volume.
//! The callers decide which ID they expect.

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, NEW_STORE, S3Sse, StoreFlags, is_store_id};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::process::random_uid;
use holdfast_layout::Key;
use holdfast_layout::retention::StoreMatch;
use holdfast_store::Store;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Version of the format that this version writes.
const FORMAT_VERSION: u32 = 1;

/// Maximum size. An ID's object has about 120 bytes; later versions may add to it.
const MAX_BYTES: u64 = 4096;

/// The ID's object. Fields of later versions are ignored: the object is never written again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    format_version: u32,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
}

/// The ID that the store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The store has no ID.
    Nothing,
    /// This ID.
    Id(String),
    /// The ID's object is invalid, with the reason.
    Nonsense(String),
}

impl Found {
    /// Returns the ID, if the store has a valid one.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Id(id) => Some(id),
            Self::Nothing | Self::Nonsense(_) => None,
        }
    }

    /// Describes the ID for messages.
    pub fn says(&self) -> String {
        match self {
            Self::Nothing => "the store has no store ID".to_owned(),
            Self::Id(id) => format!("the store ID is {id}"),
            Self::Nonsense(why) => {
                format!("the store ID is not valid ({why}): remove this object if the store is the right store")
            }
        }
    }
}

/// The expected ID.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The recorded ID.
    pub id: &'a str,
    /// A second accepted ID; [`NEW_STORE`]: a store without an ID is accepted.
    pub or: Option<&'a str>,
}

/// Opens the store of the ID's object: without a customer's key, which may change while the store stays the same, and without
/// locks. The ID is no secret.
pub fn store(flags: &StoreFlags) -> Result<Store> {
    let s3_sse = flags.s3_sse.filter(|sse| *sse != S3Sse::Customer);
    Store::open(&StoreFlags { s3_sse, ..holdfast_store::unlocked(flags) })
}

/// Reads a store's ID.
pub async fn read(store: &Store) -> Result<Found> {
    let content = match store.find_small(&Key::of_store(), MAX_BYTES).await {
        Ok(Some(content)) => content,
        Ok(None) => return Ok(Found::Nothing),
        // Too long for an ID.
        Err(error) if error.class() == ExitClass::Corrupt => return Ok(Found::Nonsense(error.message().to_owned())),
        Err(error) => return Err(error),
    };
    Ok(match serde_json::from_slice::<Written>(&content) {
        Ok(Written { id, .. }) if is_store_id(&id) => Found::Id(id),
        Ok(_) => Found::Nonsense("the id is no store ID".to_owned()),
        Err(error) => Found::Nonsense(error.to_string()),
    })
}

/// Result of the comparison with the expected ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The store has the expected or the accepted ID.
    Right(Found),
    /// The store has another ID, with the error.
    Another(Found, Error),
    /// These credentials may not read the ID.
    Unknown(Error),
}

/// Reads a store's ID, and a wrong ID a second time by another connection: a single bit changed on the way would make another
/// store of the right store.
async fn read_surely(store: &Store, is_right: impl Fn(&Found) -> bool) -> Result<Found> {
    let found = read(store).await?;
    if is_right(&found) || read(&store.with_new_connections()).await? == found {
        return Ok(found);
    }
    Err(Error::transient(format!(
        "{}: two readings of the store ID differ: the bytes were changed on the way from the store. Try again",
        store.uri(&Key::of_store())
    )))
}

/// Compares a store's ID with the expected ID.
pub async fn judge(store: &Store, expected: Expected<'_>) -> Result<Verdict> {
    let is_right = |found: &Found| match found {
        Found::Id(id) => id == expected.id || Some(id.as_str()) == expected.or,
        Found::Nothing => expected.or == Some(NEW_STORE),
        Found::Nonsense(_) => false,
    };
    let found = match read_surely(store, is_right).await {
        Ok(found) => found,
        Err(error) if error.class() == ExitClass::Denied => return Ok(Verdict::Unknown(error)),
        Err(error) => return Err(error),
    };
    if is_right(&found) {
        return Ok(Verdict::Right(found));
    }
    let error = other_store(store, expected.id, &found);
    Ok(Verdict::Another(found, error))
}

/// Refuses to write to another store, if the caller expects an ID.
pub async fn check_before_write(flags: &StoreFlags, id: Option<&str>) -> Result<()> {
    // Write-only credentials are a careful choice, and a backup is worth more than a refusal.
    if let Some(error) = check_before_query(flags, id).await? {
        tracing::warn!(%error, "the store ID could not be read: this may be another store than the expected store");
    }
    Ok(())
}

/// Refuses to restore from another store. The error is one of the configuration: volume and lineage are right, and the request
/// names a wrong place.
pub async fn check_before_restore(flags: &StoreFlags, id: Option<&str>) -> Result<()> {
    check_before_write(flags, id).await.map_err(|error| match error.class() {
        ExitClass::Refused => Error::config(error.message()),
        _ => error,
    })
}

/// Opens a store, checks its ID as before a restore, and reads the store within the deadline.
pub async fn read_checked<T>(
    flags: &StoreFlags,
    id: Option<&str>,
    deadline_seconds: u32,
    read: impl AsyncFnOnce(&Store) -> Result<T>,
) -> Result<T> {
    let mut interrupt = Interrupt::after(deadline_seconds.into())?;
    let store = Store::open(flags)?;
    let checked = async {
        check_before_restore(flags, id).await?;
        read(&store).await
    };
    interrupt.unless(checked).await
}

/// Refuses to search another store. Returns the error that leaves the ID unknown, if these credentials may not read the ID.
pub async fn check_before_query(flags: &StoreFlags, id: Option<&str>) -> Result<Option<Error>> {
    let Some(id) = id else { return Ok(None) };
    match judge(&store(flags)?, Expected { id, or: None }).await? {
        Verdict::Right(_) => Ok(None),
        Verdict::Another(_, error) => Err(error),
        Verdict::Unknown(error) => Ok(Some(error)),
    }
}

/// Returns whether a removal has the right store, and the store's ID for its records. An unreadable ID counts as wrong.
pub async fn read_before_removal(flags: &StoreFlags, id: Option<&str>) -> Result<(StoreMatch, Option<String>)> {
    let store = store(flags)?;
    let is_right = |found: &Found| match (found, id) {
        (Found::Nonsense(_), _) => false,
        (found, Some(id)) => found.id() == Some(id),
        (_, None) => true,
    };
    let found = match read_surely(&store, is_right).await {
        Ok(found) => found,
        Err(error) if error.class() == ExitClass::Denied => {
            return Ok((StoreMatch::Unreadable(error.message().to_owned()), None));
        }
        Err(error) => return Err(error),
    };
    let right = id.is_none_or(|id| found.id() == Some(id));
    Ok(match (found, id) {
        (Found::Nonsense(why), _) => (StoreMatch::Unreadable(why), None),
        (found, Some(id)) if !right => {
            (StoreMatch::Different(other_store(&store, id, &found).message().to_owned()), None)
        }
        (found, _) => (StoreMatch::Same, found.id().map(str::to_owned)),
    })
}

fn other_store(store: &Store, expected: &str, found: &Found) -> Error {
    Error::exchanged(format!(
        "{}: this is another store: the store ID {expected} is expected, and {}. The agent wrote and removed nothing. \
         Point the endpoint, the credentials or the volume to the earlier store, or accept this store",
        store.uri(&Key::of_store()),
        found.says()
    ))
}

/// Reads the ID, or creates it. Reading and writing may need different credentials. `create_only`: whether the store has
/// refused to overwrite an object.
pub async fn create(reads: &Store, writes: &Store, create_only: bool) -> Result<Found> {
    match read(reads).await {
        Ok(Found::Nothing) => {}
        // S3 denies a missing object too, to credentials that may not list. But the ID may exist, and must not be overwritten.
        Err(error) if error.class() == ExitClass::Denied && create_only => {}
        known => return known,
    }
    let written = Written { format_version: FORMAT_VERSION, id: random_uid()?, created_at: Some(clock::now()) };
    let mut json = serde_json::to_vec(&written)
        .map_err(|error| Error::config(format!("the store ID cannot be written: {error}")))?;
    json.push(b'\n');
    let put = writes.put_new(&Key::of_store(), json.into()).await;
    // Of two concurrent probes the stored ID counts, whichever wrote it.
    match (read(reads).await?, put) {
        (Found::Nothing, Err(error)) => Err(error),
        (Found::Nothing, Ok(())) => Err(Error::corrupt("the store ID was written and does not exist")),
        (found, _) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ID: &str = "0a1b2c3d-0000-4000-8000-000000000000";
    const OTHER: &str = "ffffffff-0000-4000-8000-000000000000";

    fn folder() -> (tempfile::TempDir, StoreFlags, Store) {
        let mount = tempfile::tempdir().unwrap();
        let flags = StoreFlags { url: format!("file://{}", mount.path().display()), ..StoreFlags::default() };
        let store = Store::open(&flags).unwrap();
        (mount, flags, store)
    }

    #[tokio::test]
    async fn a_mark_is_made_once_and_says_the_same_for_ever() {
        let (mount, _, store) = folder();
        assert_eq!(read(&store).await, Ok(Found::Nothing));
        let (one, two) = tokio::join!(create(&store, &store, true), create(&store, &store, true));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(one == two && one.id().is_some_and(is_store_id), "{one:?} {two:?}");
        assert_eq!(create(&store, &store, true).await, Ok(one));
        let json: serde_json::Value =
            serde_json::from_slice(&fs::read(mount.path().join("holdfast-store.json")).unwrap()).unwrap();
        assert!(json["formatVersion"] == 1 && json["createdAt"].is_string(), "{json}");
    }

    #[tokio::test]
    async fn another_mark_is_refused_and_so_is_none() {
        let (mount, flags, store) = folder();
        let write = |content: &str| fs::write(mount.path().join("holdfast-store.json"), content).unwrap();
        let later = format!(r#"{{"formatVersion":7,"id":"{ID}","createdAt":"2026-11-21T12:00:00Z","more":{{"x":1}}}}"#);
        let other = format!(r#"{{"formatVersion":1,"id":"{OTHER}"}}"#);
        let long = format!(r#"{{"formatVersion":1,"id":"{ID}","more":"{}"}}"#, "x".repeat(5000));
        let nonsense = r#"{"formatVersion":1,"id":"new"}"#;
        // The stored ID, and whether it is accepted besides `ID`: without an alternative, with the other ID, with no ID.
        let rows = [
            (Some(later.as_str()), [true, true, true], "never said"),
            (Some(&other), [false, true, false], OTHER),
            (None, [false, false, true], "no store ID"),
            (Some("{"), [false, false, false], "is not valid"),
            (Some(nonsense), [false, false, false], "is not valid"),
            (Some(&long), [false, false, false], "is not valid"),
        ];
        for (content, taken, words) in rows {
            match content {
                Some(content) => write(content),
                None => fs::remove_file(mount.path().join("holdfast-store.json")).unwrap(),
            }
            for (or, taken) in [None, Some(OTHER), Some(NEW_STORE)].into_iter().zip(taken) {
                match judge(&store, Expected { id: ID, or }).await.unwrap() {
                    Verdict::Right(_) => assert!(taken, "{content:?} was taken with {or:?}"),
                    Verdict::Unknown(error) => panic!("{error}"),
                    Verdict::Another(_, error) => {
                        assert!(!taken, "{content:?} was refused with {or:?}: {error}");
                        assert_eq!(error.class(), ExitClass::Refused, "{error}");
                        for word in [ID, words, "The agent wrote and removed nothing", "accept this store"] {
                            assert!(error.message().contains(word), "no {word:?} in {error}");
                        }
                    }
                }
            }
            assert_eq!(check_before_write(&flags, None).await, Ok(()), "nobody expects anything");
            assert_eq!(check_before_write(&flags, Some(ID)).await.is_ok(), taken[0]);
        }
    }
}
