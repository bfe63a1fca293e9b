//! The merge of `agent compact`: the newest snapshot of a lineage and the log after it become one database in a scratch folder.
//!
//! This file decides the revision and the order. The merge is that of a restore to a point in time (`point.rs`, `replay.rs`); no
//! etcd is asked. The revision is that of the newest check of a member after the snapshot, so that the result can be compared with
//! a member, and without a check the end of the log. `verbs/save/merged.rs` publishes the database.

use futures::future::BoxFuture;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{CompactRequest, DEFAULT_RESTORE_STALL_SECONDS, Point, RestoreRequest};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_layout::manifest::{DerivedFrom, Manifest};
use holdfast_layout::{Folder, SegmentName, first8};
use holdfast_store::Store;
use jiff::Timestamp;

use super::passes::AuthChange;
use super::point::{self, Chosen};
use super::quota;
use super::replay::Continued;
use super::scratch::{self, Purpose};
use holdfast_catalog::attempts::lineages;
use holdfast_catalog::log::bases::find_bases;
use holdfast_catalog::log::cover::Cover;
use holdfast_catalog::log::{self, BoundLog};
use holdfast_catalog::merged::MergedSnapshot;
use holdfast_catalog::store_id;
use holdfast_catalog::stored;
use holdfast_format::crypt::{Identities, Recipients};

/// Attempts among which the newest snapshot is looked for.
const MOST_ATTEMPTS: usize = 1000;

/// Merges; `None`: the log holds nothing after the newest snapshot.
pub fn run(request: CompactRequest) -> BoxFuture<'static, Result<Option<MergedSnapshot>>> {
    Box::pin(async move {
        let at = clock::now();
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        Recipients::parse(&request.age_recipients)?;
        let store = Store::open(&request.store)?;
        let checked = store_id::check_before_write(&request.store, request.expect_store_id.as_deref());
        interrupt.unless(checked).await?;
        interrupt.unless(merge(&store, &request, at)).await
    })
}

async fn merge(store: &Store, request: &CompactRequest, at: Timestamp) -> Result<Option<MergedSnapshot>> {
    let lineage = find_lineage(store, request).await?;
    let Some(revision) = find_revision(store, &lineage, request).await? else { return Ok(None) };
    let asked = restoring(request, &lineage);
    let chosen = point::choose(store, &asked, Point::Revision(revision), None).await?;
    let (base, _) = stored::manifest_of(store, &chosen.base).await?;
    let place =
        Folder::of_lineage(&request.namespace, &request.cluster, base.cluster_uid.as_deref(), chosen.cluster_id);
    if place.as_ref() != Ok(&lineage) {
        return Err(Error::unclear(format!(
            "the manifest of {} is of another lineage than {lineage}. Move the snapshots of one cluster away",
            chosen.base
        )));
    }
    let quota = quota_of(request, &base);
    let purpose = Purpose {
        below: &request.scratch,
        identities: identities(&base, request)?,
        users: AuthChange::NeedsSnapshot,
        hashes: true,
        quota,
    };
    let (scratch, continued) = scratch::merge(store, &chosen, base.clone(), purpose).await?;
    let Continued { merged, proven, proof, segments, sha256, .. } = continued;
    quota::check_merged(quota, merged.bytes)?;
    let until = chosen.segments.last().map(|segment| segment.at);
    let Chosen { base: folder, base_revision, cluster_id, check, .. } = chosen;
    let until = check.as_ref().map(|check| check.at).or(until);
    // A save of the meantime: a later snapshot never has a lower revision.
    let newest = find_bases(store, &lineage, cluster_id, MOST_ATTEMPTS).await?;
    if newest.iter().any(|base| base.revision >= revision) {
        return Ok(None);
    }
    let base_key = folder.to_string();
    let derived_from = DerivedFrom { base: base_key, base_revision, segments, until, other: serde_json::Map::new() };
    let asked = check.map(|check| check.member_id);
    Ok(Some(MergedSnapshot { at, scratch, db_bytes: merged.bytes, sha256, base, derived_from, proven, proof, asked }))
}

/// Returns the lineage that the request names, or the only one with a log.
async fn find_lineage(store: &Store, request: &CompactRequest) -> Result<Folder> {
    let wanted = request.lineage.as_deref().map(|lineage| (lineage, first8("lineage", lineage)));
    let is_wanted = |folder: &Folder| {
        wanted.as_ref().is_none_or(|(whole, short)| folder.name() == *whole || short.as_deref() == Ok(folder.name()))
    };
    let mut found = vec![];
    for lineage in lineages(store, &request.namespace, &request.cluster, None).await? {
        if is_wanted(&lineage) && !log::logs_of(store, &lineage).await?.is_empty() {
            found.push(lineage);
        }
    }
    match (found.pop(), found.len()) {
        (Some(lineage), 0) => Ok(lineage),
        (Some(lineage), _) => Err(Error::config(format!(
            "several lineages have a log, such as {lineage}. Name one with --lineage: `holdfast agent log status` lists them"
        ))),
        (None, _) => {
            let place = format!("{}/{}", request.namespace, request.cluster);
            Err(Error::not_found(format!(
                "no log is below {}. `agent log` with the same --namespace and --cluster records one",
                store.uri(&place)
            )))
        }
    }
}

/// Returns the last revision of the new snapshot; `None`: there is nothing to merge.
async fn find_revision(store: &Store, lineage: &Folder, request: &CompactRequest) -> Result<Option<i64>> {
    let Some(BoundLog { folder: log, cluster_id }) = log::newest_log(store, lineage).await? else { return Ok(None) };
    let bases = find_bases(store, lineage, cluster_id, MOST_ATTEMPTS).await?;
    let Some(base) = bases.iter().map(|base| base.revision).max() else {
        // After a return in place the first snapshot of the present etcd cluster comes a moment after its log.
        if log::logs_of(store, lineage).await?.len() > 1 {
            return Ok(None);
        }
        return Err(Error::not_found(format!(
            "{} holds no complete snapshot of the log's etcd cluster. Save one with `holdfast agent save`",
            store.uri(lineage)
        )));
    };
    let listed = log::list(store, &log).await?;
    let names: Vec<SegmentName> = listed.segments.into_iter().map(|(name, _)| name).collect();
    let cover = Cover::join(names, &listed.gaps);
    let end = cover.range_after(base).map_or(base, |range| range.last);
    Ok(choose_revision(request.at_revision, base, end, &listed.checks))
}

/// Chooses among the revisions after the snapshot.
fn choose_revision(asked: Option<i64>, base: i64, end: i64, checks: &[i64]) -> Option<i64> {
    let checked = checks.iter().copied().filter(|check| base < *check && *check <= end).max();
    asked.or(checked).or(Some(end)).filter(|revision| *revision > base)
}

/// Returns the quota of the etcd that would restore the merged database; without the request's that of the snapshot's cluster, if
/// its spec names one.
fn quota_of(request: &CompactRequest, base: &Manifest) -> Option<u64> {
    let recorded = || base.cluster_spec.as_ref()?.get("options")?.get("quotaBackendBytes")?.as_u64();
    request.quota_backend_bytes.or_else(recorded)
}

/// Returns the request of a restore to a revision of this lineage, as far as the choice of the snapshot reads it.
fn restoring(request: &CompactRequest, lineage: &Folder) -> RestoreRequest {
    RestoreRequest {
        store: request.store.clone(),
        key: lineage.to_string(),
        age_identity_dirs: request.age_identity_dirs.clone(),
        stall_seconds: DEFAULT_RESTORE_STALL_SECONDS,
        ..RestoreRequest::default()
    }
}

fn identities(base: &Manifest, request: &CompactRequest) -> Result<Option<Identities>> {
    if base.encryption.is_none() {
        return Ok(None);
    }
    let read = Identities::read(&request.age_identity_dirs)?;
    if read.is_empty() {
        return Err(Error::config(format!(
            "{} is encrypted with age, and no identity is given: name a folder with --age-identity-dir (by the operator: \
             spec.log.compaction.identitySecretRefs)",
            base.key
        )));
    }
    Ok(Some(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_ends_where_a_member_was_asked() {
        assert_eq!(choose_revision(None, 10, 50, &[5, 20, 40, 60]), Some(40), "the newest check in the log");
        assert_eq!(choose_revision(None, 40, 50, &[5, 20, 40]), Some(50), "no check after the snapshot");
        assert_eq!(choose_revision(Some(45), 10, 50, &[40]), Some(45));
        assert_eq!(choose_revision(None, 50, 50, &[40]), None);
        assert_eq!(choose_revision(Some(50), 50, 60, &[]), None);
    }
}
