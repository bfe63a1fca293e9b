//! Lists the folders of a cluster in a store: its lineages, and the attempts of one lineage.
//!
//! This file reads names only. `read_folder.rs` reads a folder's contents.

use holdfast_contract::error::{Error, Result};
use holdfast_layout::{Folder, attempt_time};
use holdfast_store::Store;

/// Maximum number of folders of one lineage, each with three requests: a snapshot every ten minutes for almost two years.
const MAX_FOLDERS: usize = 100_000;

/// Maximum number of lineages of one name.
const MAX_LINEAGES: usize = 1_000;

/// Number of concurrent requests: a distant store answers in tens of milliseconds.
pub const AT_ONCE: usize = 16;

/// Returns the folders that hold one cluster's snapshots: of one incarnation, or of all.
pub async fn lineages(store: &Store, namespace: &str, cluster: &str, cluster_uid: Option<&str>) -> Result<Vec<Folder>> {
    let place = Folder::of_cluster(namespace, cluster, cluster_uid).map_err(|error| holdfast_store::layout(&error))?;
    if cluster_uid.is_some() {
        return Ok(vec![place]);
    }
    let names = store.children(&place, MAX_LINEAGES, |_| true).await?.names;
    Ok(names.iter().filter_map(|name| place.child(name).ok()).collect())
}

/// Returns the folders of a lineage's saves, the oldest first.
pub async fn attempts(store: &Store, lineage: &Folder) -> Result<Vec<Folder>> {
    all_attempts(store, lineage, MAX_FOLDERS).await
}

async fn all_attempts(store: &Store, lineage: &Folder, limit: usize) -> Result<Vec<Folder>> {
    let (total, folders) = last_attempts(store, lineage, limit, None).await?;
    if total > limit {
        return Err(Error::config(format!(
            "{} holds {total} snapshots, and the agent reads at most {limit}. Remove old snapshots (of each the \
             manifest.json first; a lifecycle rule of the bucket may do this), or name a snapshot by its key. `agent \
             latest` finds the newest of any number of snapshots",
            store.uri(lineage)
        )));
    }
    Ok(folders)
}

/// Returns the newest `most` folders, the oldest first, and the number of all; with `before`, counts only the folders before
/// it. A folder's name begins with the time of its save, so names sort by time.
pub async fn last_attempts(
    store: &Store,
    lineage: &Folder,
    most: usize,
    before: Option<&Folder>,
) -> Result<(usize, Vec<Folder>)> {
    let before = before.map(|folder| folder.name().to_owned());
    let wanted = move |name: &str| attempt_time(name).is_some() && before.as_deref().is_none_or(|before| name < before);
    let found = store.last_children(lineage, most, wanted).await?;
    Ok((found.wanted, found.names.iter().filter_map(|name| lineage.child(name).ok()).collect()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_contract::{ExitClass, StoreFlags};

    use super::*;

    const LINEAGE: &str = "shop/orders/1a2b3c4d";

    #[tokio::test]
    async fn more_than_can_be_looked_at_says_what_helps() {
        let mount = tempfile::tempdir().unwrap();
        for second in 10..14 {
            let name = format!("20261121T1000{second}Z-11111111-aaaaaaaa");
            fs::create_dir_all(mount.path().join(LINEAGE).join(name)).unwrap();
        }
        fs::create_dir_all(mount.path().join(LINEAGE).join("uploads")).unwrap();
        let url = format!("file://{}", mount.path().display());
        let store = Store::open(&StoreFlags { url, ..StoreFlags::default() }).unwrap();
        let lineage = Folder::parse("key", LINEAGE).unwrap();
        assert_eq!(all_attempts(&store, &lineage, 4).await.unwrap().len(), 4, "what is no snapshot does not count");
        let error = all_attempts(&store, &lineage, 3).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Config);
        for words in ["1a2b3c4d holds 4 snapshots", "at most 3", "Remove old snapshots", "by its key", "agent latest"] {
            assert!(error.message().contains(words), "{words}: {error}");
        }

        let (begun, last) = last_attempts(&store, &lineage, 2, None).await.unwrap();
        let seconds =
            |folders: &[Folder]| folders.iter().map(|folder| folder.name()[13..15].to_owned()).collect::<Vec<_>>();
        assert_eq!((begun, seconds(&last)), (4, vec!["12".to_owned(), "13".to_owned()]), "the newest of any number");
        let (begun, before) = last_attempts(&store, &lineage, 2, last.first()).await.unwrap();
        assert_eq!((begun, seconds(&before)), (2, vec!["10".to_owned(), "11".to_owned()]), "and those before them");
    }
}
