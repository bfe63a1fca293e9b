//! `agent inspect`: finds the snapshot that an object requested, and rebuilds the report from the manifest.
//!
//! This file decides which manifest belongs to the object. The owner's first eight characters in a folder's name select
//! candidates, the full UID in the manifest decides, and data of the recorded size must exist (I6). The verb reads no data and
//! writes nothing. The report of a save may be lost; the store holds the truth. "Not found" is final for a snapshot (I18), so
//! the agent returns it only for a store that exists and has the expected ID.

use futures::future::BoxFuture;
use std::io;
use std::path::Path;

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, InspectRequest, SavedReport, StoreFlags};
use holdfast_io::interrupt::Interrupt;
use holdfast_layout::manifest::Manifest;
use holdfast_layout::{Folder, Key, first8, owner8_of};
use holdfast_store::Store;

use holdfast_catalog::attempts::lineages;
use holdfast_catalog::read_folder::{FolderState, read_folder};
use holdfast_catalog::store_id;

/// Maximum number of folders with one owner's characters: a Job creates a handful of Pods, so more folders are forged. The
/// number of other folders has no limit but time.
const MAX_MARKED: usize = 200;

/// Finds one complete snapshot and returns its report.
pub fn run(request: InspectRequest) -> BoxFuture<'static, Result<SavedReport>> {
    Box::pin(async move {
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        interrupt.unless(find(&request)).await
    })
}

/// A complete snapshot.
struct Complete {
    folder: Folder,
    manifest: Manifest,
    /// sha256 of the manifest's file.
    sha256: [u8; 32],
}

/// Folders and manifests seen in the search.
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
        // The UID shows that the snapshot belongs to the object, whichever store holds it.
        (found, _) => found,
    }
}

async fn search(request: &InspectRequest) -> Result<SavedReport> {
    let InspectRequest { store: flags, namespace, cluster, cluster_uid, owner_uid, .. } = request;
    let owner8 = first8("owner UID", owner_uid).map_err(|error| holdfast_store::layout(&error))?;
    let place = Folder::of_cluster(namespace, cluster, cluster_uid.as_deref());
    let place = place.map_err(|error| holdfast_store::layout(&error))?;
    let store = match Store::open(flags) {
        Err(error) if is_new_folder(flags, &error) => {
            return Err(Seen::default().nothing(&format!("{}/{place}", flags.url), owner_uid));
        }
        opened => opened.map_err(|error| missing_store(flags, error))?,
    };
    let mut seen = read_folders(&store, request, &owner8, &place).await.map_err(|error| missing_store(flags, error))?;
    seen.oldest(&store).ok_or_else(|| seen.nothing(&store.uri(&place), owner_uid))
}

/// Returns the error of an unsuccessful search in a store with an unconfirmed ID: the expected store may hold the snapshot.
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

/// Converts "not found" for the store itself: a missing store does not show whether the snapshot exists.
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

/// Whether the volume exists, and the store's folder on it does not: the first save creates that folder.
fn is_new_folder(flags: &StoreFlags, error: &Error) -> bool {
    let missing =
        |folder: &str| Path::new(folder).symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    error.class() == ExitClass::NotFound
        && flags.mount.as_deref().is_some_and(Path::is_dir)
        && flags.url.strip_prefix("file://").is_some_and(missing)
}

/// Reads every folder with the owner's characters.
async fn read_folders(store: &Store, request: &InspectRequest, owner8: &str, place: &Folder) -> Result<Seen> {
    let InspectRequest { namespace, cluster, cluster_uid, .. } = request;
    let mut seen = Seen::default();
    for lineage in lineages(store, namespace, cluster, cluster_uid.as_deref()).await? {
        let owner = owner8.to_owned();
        let children =
            store.last_children(&lineage, MAX_MARKED + 1, move |name| owner8_of(name) == Some(&owner)).await?;
        seen.folders += children.seen;
        for folder in children.names.iter().filter_map(|name| lineage.child(name).ok()) {
            seen.marked += 1;
            if seen.marked > MAX_MARKED {
                return Err(Error::config(format!(
                    "more than {MAX_MARKED} folders below {} have {owner8} in their names: name the cluster's UID",
                    store.uri(place)
                )));
            }
            match read_folder(store, &folder, |manifest| is_wanted(manifest, &folder, request)).await? {
                FolderState::Complete(manifest, sha256) => {
                    seen.complete.push(Complete { folder, manifest: *manifest, sha256 });
                }
                FolderState::WithoutManifest => seen.without_manifest += 1,
                FolderState::Unwanted => {}
                FolderState::Broken(error) | FolderState::Archived(error) => seen.broken.push(error),
            }
        }
    }
    Ok(seen)
}

/// Whether the manifest is in its own folder and belongs to this object: eight characters prove nothing.
fn is_wanted(manifest: &Manifest, folder: &Folder, request: &InspectRequest) -> bool {
    let owner = manifest.origin.as_ref().and_then(|origin| origin.uid.as_deref());
    let cluster = request.cluster_uid.as_ref().is_none_or(|uid| manifest.cluster_uid.as_ref() == Some(uid));
    owner == Some(request.owner_uid.as_str())
        && cluster
        && manifest.key == folder.as_str()
        && (&manifest.namespace, &manifest.cluster) == (&request.namespace, &request.cluster)
}

impl Seen {
    /// Returns the snapshot that was complete first: two Pods of one Job may both have published, and the answer must be
    /// stable.
    fn oldest(&mut self, store: &Store) -> Option<SavedReport> {
        self.complete.sort_by_key(|one| (one.manifest.ended_at, one.folder.clone()));
        let complete = self.complete.len();
        let Complete { folder, manifest, sha256 } = self.complete.drain(..).next()?;
        let uri = store.uri(&folder.data(manifest.format()));
        tracing::info!(uri, complete, folders = self.folders, "found a complete snapshot; of several, the oldest");
        Some(SavedReport { manifest_sha256: Some(hex::encode(sha256)), ..manifest.saved(uri) })
    }

    /// Returns the reason for an empty result: a broken snapshot has precedence over "not found".
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
