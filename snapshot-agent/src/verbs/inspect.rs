//! `agent inspect`: finds the snapshot that an object asked for, and reports it again from its manifest.
//!
//! It decides which manifest is meant: the owner's first eight characters in a folder's name lead to it, the full UID in
//! the manifest decides, and data of the recorded size has to be there (I6). It reads no data and writes nothing. A
//! save's own report may be lost; what is in the store is the truth. "Not found" is the last word on a snapshot (I18), so
//! it is said of a store alone that is there, and is known to be the one that is meant.

use std::io;
use std::path::Path;

use crate::catalog::attempts::lineages;
use crate::catalog::look::{Looked, look};
use crate::catalog::store_id;
use crate::contract::{ExitClass, InspectRequest, SavedReport, StoreFlags};
use crate::error::{Error, Result};
use crate::format::layout::{Folder, Key, first8, owner8_of};
use crate::format::manifest::Manifest;
use crate::store::{self, Store};
use crate::util::interrupt::Interrupt;

/// Folders that bear one owner's mark: a Job makes a handful of Pods. More are somebody's trick. Of others there may be as
/// many as can be listed in time.
const MAX_MARKED: usize = 200;

/// Finds one complete snapshot and says where it is.
pub async fn run(request: InspectRequest) -> Result<SavedReport> {
    let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
    interrupt.unless(find(&request)).await
}

/// A complete snapshot.
struct Complete {
    folder: Folder,
    manifest: Manifest,
    /// Of the manifest's file.
    sha256: [u8; 32],
}

/// What was seen on the way.
#[derive(Default)]
struct Seen {
    folders: usize,
    marked: usize,
    without_manifest: usize,
    complete: Vec<Complete>,
    broken: Vec<Error>,
}

async fn find(request: &InspectRequest) -> Result<SavedReport> {
    let flags = &request.store;
    let doubt = store_id::check_before_query(flags, request.expect_store_id.as_deref())
        .await
        .map_err(|error| missing_store(flags, error))?;
    match (search(request).await, doubt) {
        (Err(error), Some(doubt)) if error.class() == ExitClass::NotFound => Err(unknown_store(flags, &error, &doubt)),
        // What is found is this object's by its UID, whichever store it is in.
        (found, _) => found,
    }
}

async fn search(request: &InspectRequest) -> Result<SavedReport> {
    let InspectRequest { store: flags, namespace, cluster, cluster_uid, owner_uid, .. } = request;
    let owner8 = first8("owner UID", owner_uid).map_err(|error| store::layout(&error))?;
    let place = Folder::of_cluster(namespace, cluster, cluster_uid.as_deref());
    let place = place.map_err(|error| store::layout(&error))?;
    let store = match Store::open(flags) {
        Err(error) if is_new_folder(flags, &error) => {
            return Err(Seen::default().nothing(&format!("{}/{place}", flags.url), owner_uid));
        }
        opened => opened.map_err(|error| missing_store(flags, error))?,
    };
    let mut seen = look_through(&store, request, &owner8, &place).await.map_err(|error| missing_store(flags, error))?;
    seen.oldest(&store).ok_or_else(|| seen.nothing(&store.uri(&place), owner_uid))
}

/// What is not found in a store that may be another one may be in the one that is meant.
fn unknown_store(flags: &StoreFlags, nothing: &Error, doubt: &Error) -> Error {
    Error::config(format!(
        "{} may be another store than the expected store, so Holdfast does not know whether the snapshot exists: {}; \
         and the store ID cannot be read: {}. Allow these credentials to read {}",
        flags.url,
        nothing.message(),
        doubt.message(),
        Key::of_store()
    ))
}

/// A place that is not there says nothing of what was stored in it.
fn missing_store(flags: &StoreFlags, error: Error) -> Error {
    if error.class() != ExitClass::NotFound {
        return error;
    }
    Error::config(format!(
        "{} does not exist or was replaced, so Holdfast does not know whether the snapshot exists: {}. Point the \
         names, the credentials or the volume to the store of the save",
        flags.url,
        error.message()
    ))
}

/// Whether the volume is there, and the store's folder on it is not: the first save makes that.
fn is_new_folder(flags: &StoreFlags, error: &Error) -> bool {
    let missing =
        |folder: &str| Path::new(folder).symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    error.class() == ExitClass::NotFound
        && flags.mount.as_deref().is_some_and(Path::is_dir)
        && flags.url.strip_prefix("file://").is_some_and(missing)
}

/// Looks into every folder that bears the owner's mark.
async fn look_through(store: &Store, request: &InspectRequest, owner8: &str, place: &Folder) -> Result<Seen> {
    let InspectRequest { namespace, cluster, cluster_uid, .. } = request;
    let mut seen = Seen::default();
    for lineage in lineages(store, namespace, cluster, cluster_uid.as_deref()).await? {
        let mark = owner8.to_owned();
        let children =
            store.last_children(&lineage, MAX_MARKED + 1, move |name| owner8_of(name) == Some(&mark)).await?;
        seen.folders += children.seen;
        for folder in children.names.iter().filter_map(|name| lineage.child(name).ok()) {
            seen.marked += 1;
            if seen.marked > MAX_MARKED {
                return Err(Error::config(format!(
                    "more than {MAX_MARKED} folders below {} have {owner8} in their names: name the cluster's UID",
                    store.uri(place)
                )));
            }
            match look(store, &folder, |manifest| is_wanted(manifest, &folder, request)).await? {
                Looked::Complete(manifest, sha256) => {
                    seen.complete.push(Complete { folder, manifest: *manifest, sha256 });
                }
                Looked::WithoutManifest => seen.without_manifest += 1,
                Looked::Unwanted => {}
                Looked::Broken(error) => seen.broken.push(error),
            }
        }
    }
    Ok(seen)
}

/// Whether this manifest stands in its place and was written for this object: eight characters prove nothing.
fn is_wanted(manifest: &Manifest, folder: &Folder, request: &InspectRequest) -> bool {
    let owner = manifest.origin.as_ref().and_then(|origin| origin.uid.as_deref());
    let cluster = request.cluster_uid.as_ref().is_none_or(|uid| manifest.cluster_uid.as_ref() == Some(uid));
    owner == Some(request.owner_uid.as_str())
        && cluster
        && manifest.key == folder.as_str()
        && (&manifest.namespace, &manifest.cluster) == (&request.namespace, &request.cluster)
}

impl Seen {
    /// The one that was complete first: of two Pods of one Job both may have published, and the answer must not change.
    fn oldest(&mut self, store: &Store) -> Option<SavedReport> {
        self.complete.sort_by_key(|one| (one.manifest.ended_at, one.folder.clone()));
        let complete = self.complete.len();
        let Complete { folder, manifest, sha256 } = self.complete.drain(..).next()?;
        let uri = store.uri(&folder.data(manifest.format()));
        tracing::info!(uri, complete, folders = self.folders, "found a complete snapshot; of several, the oldest");
        Some(SavedReport { manifest_sha256: Some(hex::encode(sha256)), ..manifest.saved(uri) })
    }

    /// Why there is none: something broken says more than that nothing is there.
    fn nothing(mut self, place: &str, owner_uid: &str) -> Error {
        if !self.broken.is_empty() {
            let count = self.broken.len();
            let first = self.broken.swap_remove(0);
            return first.context(format!("{count} broken and no complete snapshot of {owner_uid} below {place}"));
        }
        let Self { folders, marked, without_manifest, .. } = self;
        Error::not_found(format!(
            "no complete snapshot of {owner_uid} is below {place}: of {folders} folders, {marked} have this UID in \
             their names, and {without_manifest} of these have no manifest (a save that has not ended)"
        ))
    }
}

#[cfg(test)]
mod tests;
