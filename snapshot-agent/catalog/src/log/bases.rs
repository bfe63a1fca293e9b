//! The snapshots that a log can continue.
//!
//! This file decides which snapshots count: complete ones of the log's etcd cluster, with a known revision.

use std::collections::HashMap;

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

/// The snapshots among some attempts of a lineage.
#[derive(Debug, Default)]
pub struct Bases {
    /// Complete ones, by the ID (hex) of their etcd cluster, the newest first.
    pub of: HashMap<String, Vec<Base>>,
    /// Keys of those that the store has archived, whose revisions are unknown.
    pub archived: Vec<String>,
}

/// Returns the complete snapshots of an etcd cluster among the newest `most` attempts of a lineage, the newest first.
pub async fn find_bases(store: &Store, lineage: &Folder, cluster_id: u64, most: usize) -> Result<Vec<Base>> {
    let mut found = find_bases_of(store, lineage, &[cluster_id], most).await?;
    Ok(found.of.remove(&hex_id(cluster_id)).unwrap_or_default())
}

/// Returns the snapshots of some etcd clusters among the newest `most` attempts of a lineage. Each manifest is read once.
pub async fn find_bases_of(store: &Store, lineage: &Folder, clusters: &[u64], most: usize) -> Result<Bases> {
    let (_, folders) = last_attempts(store, lineage, most, None).await?;
    let wanted: Vec<String> = clusters.iter().copied().map(hex_id).collect();
    let reads = folders.into_iter().rev().map(|folder| read_base(store, folder, &wanted));
    let read: Vec<Option<Result<(String, Base), String>>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    let mut found = Bases::default();
    for one in read.into_iter().flatten() {
        match one {
            Ok((cluster_id, base)) => found.of.entry(cluster_id).or_default().push(base),
            Err(key) => found.archived.push(key),
        }
    }
    Ok(found)
}

/// Reads a folder; `None`: it holds no complete snapshot of these etcd clusters with a known revision; `Err`: the key of an archived
/// snapshot.
async fn read_base(
    store: &Store,
    folder: Folder,
    clusters: &[String],
) -> Result<Option<Result<(String, Base), String>>> {
    let is_wanted = |manifest: &Manifest| manifest.key == folder.as_str() && clusters.contains(&manifest.cluster_id);
    Ok(match read_folder(store, &folder, is_wanted).await? {
        FolderState::Complete(manifest, _) => manifest.contents.as_ref().map(|contents| {
            let base = Base {
                key: manifest.key.clone(),
                revision: contents.revision,
                started_at: manifest.started_at,
                ended_at: manifest.ended_at,
                least: i64::try_from(manifest.raft_applied_index).unwrap_or(i64::MAX).saturating_sub(contents.revision),
            };
            Ok((manifest.cluster_id.clone(), base))
        }),
        FolderState::Archived(_) => Some(Err(folder.to_string())),
        FolderState::WithoutManifest | FolderState::Unwanted | FolderState::Broken(_) => None,
    })
}
