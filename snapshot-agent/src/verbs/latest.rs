//! `agent latest`: finds the newest snapshot of a cluster.
//!
//! This file decides by the manifests. A cluster that was recreated under the same name starts at revision 1 again, and its
//! first, empty snapshot must not replace the data that a user wants back. So if a store holds several lineages, the search
//! refuses and lists them, and reads the lineage that the user names. In a lineage the newest time wins, as long as no revision
//! contradicts. A manifest that this version cannot read is never a reason for an older snapshot (I2). The verb writes nothing;
//! a restore then gets the key and the hash.

mod lineage;

use crate::catalog::attempts::lineages;
use crate::catalog::store_id;
use crate::contract::{LatestReport, LatestRequest};
use crate::error::{Error, Result};
use crate::format::layout::Folder;
use crate::store::{self, Store};
use crate::util::interrupt::Interrupt;
use lineage::Lineage;

/// Maximum number of lineages, or other clusters, in a message.
const MAX_CLUSTERS: usize = 8;

/// Finds the newest complete snapshot.
pub async fn run(request: LatestRequest) -> Result<LatestReport> {
    let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
    let store = Store::open(&request.store)?;
    interrupt
        .unless(async {
            store_id::check_before_restore(&request.store, request.expect_store_id.as_deref()).await?;
            find(&store, &request).await
        })
        .await
}

async fn find(store: &Store, request: &LatestRequest) -> Result<LatestReport> {
    let LatestRequest { namespace, cluster, lineage, .. } = request;
    let place = Folder::of_cluster(namespace, cluster, None).map_err(|error| store::layout(&error))?;
    let folders = lineages(store, namespace, cluster, None).await?;
    if folders.is_empty() {
        return Err(nothing_of(store, request, &place).await?);
    }
    let mut found = Vec::new();
    for folder in folders {
        if lineage.as_deref().is_none_or(|wanted| lineage::is_called(&folder, wanted)) {
            found.push(Lineage::of(store, folder, request).await?);
        }
    }
    let place = store.uri(&place);
    the_one(found, &place, lineage.as_deref())?.newest(store, &place).await
}

/// Returns the error for a cluster without saves: for a restore under a new name the request has to name the old cluster.
async fn nothing_of(store: &Store, request: &LatestRequest, place: &Folder) -> Result<Error> {
    let LatestRequest { namespace, cluster, .. } = request;
    let beside = match place.parent() {
        Some(namespace) => store.last_children(&namespace, MAX_CLUSTERS, Folder::is_name).await?.names,
        None => vec![],
    };
    let there = match beside.as_slice() {
        [] => format!("no cluster of the namespace {namespace} has any there"),
        _ => format!("of the namespace {namespace} the store has snapshots of {}", beside.join(", ")),
    };
    Ok(Error::not_found(format!(
        "no snapshot of the cluster {cluster} is below {}; {there}. Set latest.cluster and latest.namespace to those of the \
         saved cluster (--cluster, --namespace)",
        store.uri(place)
    )))
}

/// Returns the only lineage with a snapshot. With several, a user chooses (I2).
fn the_one(mut found: Vec<Lineage>, place: &str, wanted: Option<&str>) -> Result<Lineage> {
    found.retain(Lineage::holds_something);
    if found.len() > 1 {
        found.sort_by_key(|lineage| std::cmp::Reverse(lineage.newest_at()));
        let names: Vec<_> = found.iter().map(Lineage::describe).take(MAX_CLUSTERS).collect();
        return Err(Error::unclear(format!(
            "below {place} are snapshots of {} lineages, the newest first: {}. Name a lineage (--lineage; \
             bootstrap.restore.latest.lineage)",
            found.len(),
            names.join(", ")
        )));
    }
    found.pop().ok_or_else(|| {
        let of = wanted.map(|wanted| format!(" of {wanted}")).unwrap_or_default();
        Error::not_found(format!("no complete snapshot{of} is below {place}"))
    })
}

#[cfg(test)]
mod tests;
