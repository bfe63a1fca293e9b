//! `agent latest`: which snapshot "the newest one of this cluster" is.
//!
//! It decides by what manifests say, never by names or revisions: a cluster that was made anew under the same name begins at
//! revision 1 again, and its first, empty snapshot must not take the place of the data that somebody wants back. So one
//! lineage is chosen first, and then the time counts. It changes nothing; a restore is then told the key and the hash.

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;

use crate::contract::{LatestReport, LatestRequest};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::layout::{Folder, attempt_time, first8};
use crate::list::{AT_ONCE, attempts, lineages};
use crate::look::{Looked, look};
use crate::manifest::{Manifest, RestoredFrom};
use crate::proof;
use crate::store::{self, Store};

/// Newer ones that are told with why they were passed over.
const MAX_TOLD: usize = 5;

/// Clusters that are told where there is a doubt.
const MAX_CLUSTERS: usize = 8;

/// Finds the newest complete snapshot.
pub async fn run(request: LatestRequest) -> Result<LatestReport> {
    let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
    let store = Store::open(&request.store)?;
    interrupt.unless(find(&store, &request)).await
}

async fn find(store: &Store, request: &LatestRequest) -> Result<LatestReport> {
    let LatestRequest { namespace, cluster, lineage, .. } = request;
    let place = Folder::of_cluster(namespace, cluster, None).map_err(|error| store::layout(&error))?;
    let place = store.uri(&place);
    let mut found = Vec::new();
    for folder in lineages(store, namespace, cluster, None).await? {
        if lineage.as_deref().is_none_or(|wanted| may_be(&folder, wanted)) {
            found.push(Lineage::of(store, folder, request).await?);
        }
    }
    let lineage = the_one(found, &place, lineage.as_deref())?;
    lineage.newest(store, &place).await
}

/// Whether a lineage's folder is the one of this UID, of its first characters, or called so.
fn may_be(folder: &Folder, wanted: &str) -> bool {
    let name = last(folder);
    name == wanted || first8("lineage", wanted).is_ok_and(|short| short == name)
}

fn last(folder: &Folder) -> &str {
    folder.as_str().rsplit('/').next().unwrap_or_default()
}

/// One complete snapshot.
#[derive(Clone, Debug, PartialEq)]
struct Taken {
    at: Timestamp,
    folder: Folder,
    uri: String,
    sha256: String,
    revision: Option<i64>,
    restored_from: Option<RestoredFrom>,
}

/// The snapshots of one incarnation of a cluster.
#[derive(Clone, Debug, PartialEq)]
struct Lineage {
    folder: Folder,
    /// Complete ones, the newest first; never empty once it is a candidate.
    complete: Vec<Taken>,
    /// What has a manifest and cannot be restored.
    broken: Vec<(Option<Timestamp>, String)>,
}

impl Lineage {
    async fn of(store: &Store, folder: Folder, request: &LatestRequest) -> Result<Self> {
        let looks = attempts(store, &folder).await?;
        let looks = looks.into_iter().map(|folder| async move {
            let looked = look(store, &folder, |manifest| is_wanted(manifest, &folder, request)).await?;
            Ok::<_, Error>((folder, looked))
        });
        let looked: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await?;
        let mut lineage = Self { folder, complete: vec![], broken: vec![] };
        for (folder, looked) in looked {
            match looked {
                Looked::Complete(manifest) => lineage.complete.push(Taken::of(store, folder, *manifest)),
                Looked::Broken(error) => {
                    lineage.broken.push((attempt_time(last(&folder)), format!("{folder}: {}", error.message())));
                }
                // A save that is under way, or one that died: never a backup.
                Looked::WithoutManifest | Looked::Unwanted => {}
            }
        }
        lineage.complete.sort_by(|a, b| (b.at, &b.folder).cmp(&(a.at, &a.folder)));
        Ok(lineage)
    }

    /// When the newest one was taken.
    fn newest_at(&self) -> Option<Timestamp> {
        self.complete.first().map(|taken| taken.at)
    }

    /// Whether this is the past of the other one: that was restored from one of these, and nothing was saved here since. A
    /// cluster that lives on beside its copy has a future of its own.
    fn is_past_of(&self, other: &Self) -> bool {
        let Some(from) = other.complete.first().and_then(|taken| taken.restored_from.as_ref()) else { return false };
        let ours = from.key.strip_prefix(self.folder.as_str()).is_some_and(|rest| rest.starts_with('/'));
        self.folder != other.folder && ours && self.newest_at().is_none_or(|newest| newest <= from.at)
    }

    /// For people who have to choose.
    fn told(&self) -> Option<String> {
        let newest = self.complete.first()?;
        let (name, count) = (last(&self.folder), self.complete.len());
        let revision = newest.revision.map(|revision| format!(" at revision {revision}")).unwrap_or_default();
        Some(format!("{name} ({count}, the newest of {}{revision})", newest.at))
    }

    /// The newest that nothing speaks against, and what is newer.
    async fn newest(self, store: &Store, place: &str) -> Result<LatestReport> {
        let mut newer = Vec::new();
        for taken in self.complete {
            match proof::newest(store, &taken.folder).await? {
                Some(proved) if !proved.passed => {
                    let level = proved.level.as_str();
                    newer.push((
                        Some(taken.at),
                        format!("{}: {level} verification failed at {}", taken.folder, proved.at),
                    ));
                }
                Some(_) | None => return Ok(taken.report(newer, self.broken)),
            }
        }
        newer.extend(self.broken);
        let why = newer.into_iter().map(|(_, why)| why).take(MAX_TOLD).collect::<Vec<_>>().join("; ");
        Err(Error::corrupt(format!("no snapshot below {place} can be restored: {why}")))
    }
}

/// Whether a manifest stands in its place, and is of the cluster that is meant: eight characters prove nothing.
fn is_wanted(manifest: &Manifest, folder: &Folder, request: &LatestRequest) -> bool {
    // A whole UID, not just the part of it that stands in the key.
    let uid = request.lineage.as_ref().filter(|wanted| wanted.len() > 8 && wanted.as_str() != lineage_of(folder));
    manifest.key == folder.as_str()
        && (&manifest.namespace, &manifest.cluster) == (&request.namespace, &request.cluster)
        && uid.is_none_or(|uid| manifest.cluster_uid.as_ref() == Some(uid))
}

fn lineage_of(attempt: &Folder) -> &str {
    attempt.as_str().rsplit('/').nth(1).unwrap_or_default()
}

impl Taken {
    fn of(store: &Store, folder: Folder, manifest: Manifest) -> Self {
        Self {
            at: manifest.started_at,
            uri: store.uri(&folder.data(manifest.format())),
            folder,
            sha256: manifest.sha256,
            revision: manifest.contents.map(|contents| contents.revision),
            restored_from: manifest.restored_from,
        }
    }

    fn report(
        self,
        mut newer: Vec<(Option<Timestamp>, String)>,
        broken: Vec<(Option<Timestamp>, String)>,
    ) -> LatestReport {
        newer.extend(broken.into_iter().filter(|(at, _)| at.is_none_or(|at| at > self.at)));
        newer.sort_by(|(a, _), (b, _)| b.cmp(a));
        let passed_over: Vec<_> = newer.into_iter().map(|(_, why)| why).take(MAX_TOLD).collect();
        if !passed_over.is_empty() {
            tracing::warn!(?passed_over, "newer ones cannot be restored");
        }
        tracing::info!(key = %self.folder, taken_at = %self.at, revision = self.revision, "the newest");
        LatestReport {
            key: self.folder.to_string(),
            uri: self.uri,
            sha256: self.sha256,
            taken_at: self.at.to_string(),
            revision: self.revision,
            passed_over,
        }
    }
}

/// The lineage that is meant: the only one that is nobody's past. Else nobody but a person knows (I2).
fn the_one(mut found: Vec<Lineage>, place: &str, wanted: Option<&str>) -> Result<Lineage> {
    let broken: usize = found.iter().map(|lineage| lineage.broken.len()).sum();
    found.retain(|lineage| !lineage.complete.is_empty());
    let mut tips: Vec<Lineage> =
        found.iter().filter(|one| !found.iter().any(|other| one.is_past_of(other))).cloned().collect();
    if tips.len() == 1 {
        return Ok(tips.remove(0));
    }
    if found.is_empty() {
        let of = wanted.map(|wanted| format!(" of {wanted}")).unwrap_or_default();
        let besides =
            if broken == 0 { String::new() } else { format!(", and {broken} broken ones; `agent list` tells") };
        return Err(Error::not_found(format!("no complete snapshot{of} is below {place}{besides}")));
    }
    tips.sort_by_key(|lineage| std::cmp::Reverse(lineage.newest_at()));
    let names: Vec<_> = tips.iter().filter_map(Lineage::told).take(MAX_CLUSTERS).collect();
    Err(Error::refused(format!(
        "below {place} are snapshots of {} clusters that had this name, and none of them is another one's past: {}. Say \
         which is meant (--lineage; bootstrap.restore.latest.lineage)",
        tips.len(),
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests;
