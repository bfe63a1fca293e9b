//! The snapshots that a log can continue.
//!
//! This file decides which snapshots count: complete ones of the log's etcd cluster, with a known revision.

use futures::stream::{self, StreamExt, TryStreamExt};
use holdfast_contract::error::Result;
use holdfast_contract::hex_id;
use holdfast_layout::Folder;
use holdfast_layout::manifest::Manifest;
use holdfast_store::Store;
use jiff::Timestamp;
use serde::Serialize;

use crate::attempts::{AT_ONCE, last_attempts};
use crate::read_folder::{FolderState, read_folder};

/// A complete snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Base {
    /// The snapshot's folder below the store's prefix.
    pub key: String,
    /// Newest revision in the snapshot.
    pub revision: i64,
    /// Beginning of the save.
    pub started_at: Timestamp,
    /// End of the save.
    pub ended_at: Timestamp,
    /// Least number of entries of etcd's raft without a revision, from the index before the save: a log that continues the
    /// snapshot has no fewer.
    #[serde(skip)]
    pub least: i64,
}

/// Returns the complete snapshots among the newest `most` attempts of a lineage, the newest first.
pub async fn find_bases(store: &Store, lineage: &Folder, cluster_id: u64, most: usize) -> Result<Vec<Base>> {
    find_bases_and_archived(store, lineage, cluster_id, most).await.map(|(bases, _)| bases)
}

/// Returns the same, and the keys of the snapshots that the store has archived, whose revisions are unknown.
pub async fn find_bases_and_archived(
    store: &Store,
    lineage: &Folder,
    cluster_id: u64,
    most: usize,
) -> Result<(Vec<Base>, Vec<String>)> {
    let (_, folders) = last_attempts(store, lineage, most, None).await?;
    let wanted = hex_id(cluster_id);
    let reads = folders.into_iter().rev().map(|folder| read_base(store, folder, &wanted));
    let found: Vec<Option<Result<Base, String>>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    let (mut bases, mut archived) = (Vec::new(), Vec::new());
    for one in found.into_iter().flatten() {
        match one {
            Ok(base) => bases.push(base),
            Err(key) => archived.push(key),
        }
    }
    Ok((bases, archived))
}

/// Reads a folder; `None`: it holds no complete snapshot of this etcd cluster with a known revision; `Err`: the key of an archived
/// snapshot.
async fn read_base(store: &Store, folder: Folder, cluster_id: &str) -> Result<Option<Result<Base, String>>> {
    let is_wanted = |manifest: &Manifest| manifest.key == folder.as_str() && manifest.cluster_id == cluster_id;
    Ok(match read_folder(store, &folder, is_wanted).await? {
        FolderState::Complete(manifest, _) => manifest.contents.as_ref().map(|contents| {
            Ok(Base {
                key: manifest.key.clone(),
                revision: contents.revision,
                started_at: manifest.started_at,
                ended_at: manifest.ended_at,
                least: i64::try_from(manifest.raft_applied_index).unwrap_or(i64::MAX).saturating_sub(contents.revision),
            })
        }),
        FolderState::Archived(_) => Some(Err(folder.to_string())),
        FolderState::WithoutManifest | FolderState::Unwanted | FolderState::Broken(_) => None,
    })
}
