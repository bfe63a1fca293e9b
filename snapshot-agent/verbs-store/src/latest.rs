//! `agent latest`: finds the newest snapshot of a cluster.
//!
//! This file decides from manifests. A cluster that was created again under the same name starts at revision 1, and its first,
//! empty snapshot must not replace the data that a user wants back. So the search first chooses one lineage, and then the newest
//! snapshot in this lineage, unless revisions contradict the times. A save by hand belongs to the lineage with the same etcd
//! cluster ID. A manifest that this version cannot read never leads to an older snapshot. If the request names a lineage, only
//! its snapshots count. In doubt the search fails with the reason (I2). It changes nothing; the operator passes key and hash to
//! the restore.

mod lineage;

use futures::future::LocalBoxFuture;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{LatestReport, LatestRequest};
use holdfast_layout::Folder;
use holdfast_store::Store;

use holdfast_catalog::attempts::lineages;
use holdfast_catalog::store_id;
use lineage::Lineage;

/// Maximum number of clusters that an error names.
const MAX_CLUSTERS: usize = 8;

/// Finds the newest complete snapshot.
pub fn run(request: LatestRequest) -> LocalBoxFuture<'static, Result<LatestReport>> {
    Box::pin(async move {
        let (expected, deadline) = (request.expect_store_id.as_deref(), request.deadline_seconds);
        let find = async |store: &Store| find(store, &request).await;
        store_id::read_checked(&request.store, expected, deadline, find).await
    })
}

async fn find(store: &Store, request: &LatestRequest) -> Result<LatestReport> {
    let LatestRequest { namespace, cluster, lineage, .. } = request;
    let place = Folder::of_cluster(namespace, cluster, None).map_err(|error| holdfast_store::layout(&error))?;
    let mut found = Vec::new();
    // All lineages, also beside a named one: only the manifests in a folder show which etcd the folder belongs to.
    for folder in lineages(store, namespace, cluster, None).await? {
        found.push(Lineage::read(store, folder, request).await?);
    }
    if found.is_empty() {
        return Err(nothing_of(store, request, &place).await?);
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

/// Returns the one lineage that no other lineage continues. With several of them only the user can choose (I2).
fn the_one(found: Vec<Lineage>, place: &str, wanted: Option<&str>) -> Result<Lineage> {
    let is_meant = |one: &Lineage| wanted.is_none_or(|wanted| one.is_called(wanted));
    let (found, others): (Vec<_>, Vec<_>) = lineage::joined(found).into_iter().partition(is_meant);
    if let Some(error) = found.iter().find_map(|one| one.unread(&others)) {
        return Err(error);
    }
    let is_past = |one: &&Lineage| found.iter().any(|other| one.is_past_of(other));
    let mut tips: Vec<&Lineage> = found.iter().filter(|one| one.holds_something() && !is_past(one)).collect();
    match tips.as_slice() {
        [] => {
            let of = wanted.map(|wanted| format!(" of {wanted}")).unwrap_or_default();
            return Err(Error::not_found(format!("no complete snapshot{of} is below {place}")));
        }
        [one] => return Ok((*one).clone()),
        _ => {}
    }
    tips.sort_by_key(|lineage| std::cmp::Reverse(lineage.newest_at()));
    let names: Vec<_> = tips.iter().map(|lineage| lineage.describe()).take(MAX_CLUSTERS).collect();
    Err(Error::unclear(format!(
        "below {place} are snapshots of {} clusters of this name, and no cluster continues another: {}. Name a lineage \
         (--lineage; bootstrap.restore.latest.lineage)",
        tips.len(),
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests;
