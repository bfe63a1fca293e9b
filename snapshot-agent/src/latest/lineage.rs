//! The snapshots of one incarnation of a cluster, the newest of them, and what was there before.
//!
//! It decides the order of snapshots that one cluster has made, and when that order is in doubt.

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;

use crate::contract::{ExitClass, LatestReport, LatestRequest};
use crate::error::{Error, Result};
use crate::layout::{Folder, attempt_time};
use crate::list::{AT_ONCE, last_attempts};
use crate::look::{Looked, look};
use crate::manifest::Manifest;
use crate::proof;
use crate::store::Store;

/// Complete ones that are compared with the newest one. A folder's name says when its save began, and a manifest stands
/// only in its own: so the newest are looked at first, and all the older ones need not be.
const NEIGHBOURS: usize = 32;

/// Names that are kept at a time, of however many there are: about a megabyte. Where none of these was ever completed, the
/// next so many are looked for.
const NAMES: usize = 10_000;

/// Newer ones that are told with why they were passed over.
const MAX_TOLD: usize = 5;

/// One complete snapshot.
#[derive(Clone, Debug, PartialEq)]
struct Taken {
    at: Timestamp,
    folder: Folder,
    uri: String,
    sha256: String,
    revision: Option<i64>,
    cluster_id: String,
    restored_from: Option<String>,
    without_quorum: bool,
}

/// What cannot be restored.
#[derive(Clone, Debug, PartialEq)]
struct Unfit {
    at: Option<Timestamp>,
    why: String,
}

/// The snapshots of one incarnation of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lineage {
    /// Where they are; more than one where snapshots by hand were joined.
    folders: Vec<Folder>,
    /// All that were begun.
    attempts: usize,
    /// Complete ones, the newest first, [`NEIGHBOURS`] or a few more.
    complete: Vec<Taken>,
    /// What has a manifest and cannot be restored.
    broken: Vec<Unfit>,
    /// Saves that are under way or died, and what somebody has put there: never a backup.
    others: Vec<Unfit>,
}

impl Lineage {
    pub(super) async fn of(store: &Store, folder: Folder, request: &LatestRequest) -> Result<Self> {
        Self::seen_by(store, folder, request, NAMES).await
    }

    /// The same, keeping so many names at a time.
    pub(super) async fn seen_by(store: &Store, folder: Folder, request: &LatestRequest, names: usize) -> Result<Self> {
        let (attempts, mut begun) = last_attempts(store, &folder, names, None).await?;
        let empty = Self { folders: vec![folder.clone()], attempts, complete: vec![], broken: vec![], others: vec![] };
        let mut lineage = empty;
        let mut left = attempts;
        loop {
            lineage.look_at(store, &begun, request).await?;
            let older = begun.first().filter(|_| left > begun.len() && lineage.complete.is_empty());
            let Some(oldest) = older else { break };
            (left, begun) = last_attempts(store, &folder, names, Some(oldest)).await?;
        }
        lineage.sort();
        Ok(lineage)
    }

    /// Looks at some that were begun, the newest of them first, until enough complete ones are found.
    async fn look_at(&mut self, store: &Store, begun: &[Folder], request: &LatestRequest) -> Result<()> {
        for some in begun.rchunks(2 * AT_ONCE) {
            let looks = some.iter().map(|folder| async move {
                look(store, folder, |manifest| is_wanted(manifest, folder, request))
                    .await
                    .map(|looked| (folder, looked))
            });
            let looked: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await?;
            for (folder, looked) in looked {
                self.add(store, folder, looked)?;
            }
            if self.complete.len() >= NEIGHBOURS {
                break;
            }
        }
        Ok(())
    }

    fn add(&mut self, store: &Store, folder: &Folder, looked: Looked) -> Result<()> {
        let at = attempt_time(folder.name());
        let unfit = |why: &str| Unfit { at, why: format!("{folder}: {why}") };
        match looked {
            Looked::Complete(manifest) => self.complete.push(Taken::of(store, folder.clone(), *manifest)),
            // A later version of this program wrote it: an older snapshot is no answer.
            Looked::Broken(error) if error.class() == ExitClass::Config => return Err(error),
            Looked::Broken(error) => self.broken.push(unfit(error.message())),
            Looked::WithoutManifest => self.others.push(unfit("a save that is under way, or died")),
            Looked::Unwanted => self.others.push(unfit("its manifest is that of another place or another cluster")),
        }
        Ok(())
    }

    fn sort(&mut self) {
        self.complete.sort_by(|a, b| (b.at, &b.folder).cmp(&(a.at, &a.folder)));
    }

    /// Whether anything here was a snapshot once.
    pub(super) const fn holds_something(&self) -> bool {
        !self.complete.is_empty() || !self.broken.is_empty()
    }

    /// When the newest one was taken.
    pub(super) fn newest_at(&self) -> Option<Timestamp> {
        self.complete.first().map(|taken| taken.at)
    }

    /// Whether this is the past of the other one: that was restored from one of these, and from the last of them. A cluster
    /// that has saved more since lives on, or what it wrote after that was lost by the restore; both are a doubt.
    pub(super) fn is_past_of(&self, other: &Self) -> bool {
        let from = other.complete.iter().find_map(|taken| taken.restored_from.as_deref());
        let Some(from) = from.and_then(|key| Folder::parse("key", key).ok()) else { return false };
        let ours = from.parent().is_some_and(|parent| self.folders.contains(&parent));
        let began = |folder: &Folder| attempt_time(folder.name());
        let last_one = self.complete.first().is_none_or(|newest| began(&newest.folder) <= began(&from));
        self.folders != other.folders && ours && last_one
    }

    /// For people who have to choose.
    pub(super) fn told(&self) -> String {
        let (name, count) = (self.folders.first().map(Folder::name).unwrap_or_default(), self.attempts);
        match self.complete.first() {
            Some(newest) => {
                let revision = newest.revision.map(|revision| format!(" at revision {revision}")).unwrap_or_default();
                format!("{name} ({count} saved, the newest on {}{revision})", newest.at)
            }
            None => format!("{name} ({count} saved, none of which can be restored)"),
        }
    }

    /// The newest that nothing speaks against, and what is newer.
    pub(super) async fn newest(self, store: &Store, place: &str) -> Result<LatestReport> {
        if let Some((newer, higher)) = self.falls() {
            return Err(Error::refused(format!(
                "below {place}, {newer} was taken after {higher}, and has a lower revision: an etcd was made anew under \
                 the same identity, or a clock was wrong. Name the one that is meant by its key \
                 (bootstrap.restore.source)"
            )));
        }
        let (mut newer, mut complete) = (self.broken, self.complete.into_iter());
        let chosen = loop {
            let Some(taken) = complete.next() else {
                let why = newer.into_iter().map(|unfit| unfit.why).take(MAX_TOLD).collect::<Vec<_>>().join("; ");
                return Err(Error::corrupt(format!("no snapshot below {place} can be restored: {why}")));
            };
            let Some(failed) = proof::standing_failure(store, &taken.folder).await? else { break taken };
            let why = format!("{}: {} verification failed at {}", taken.folder, failed.level.as_str(), failed.at);
            newer.push(Unfit { at: Some(taken.at), why });
        };
        newer.extend(self.others);
        Ok(chosen.report(newer))
    }

    /// The newest one, and one that was taken before it with a higher revision, of the same etcd: revisions never fall.
    fn falls(&self) -> Option<(&Folder, &Folder)> {
        let newest = self.complete.first()?;
        let higher = |taken: &&Taken| taken.cluster_id == newest.cluster_id && taken.revision > newest.revision;
        let higher = self.complete.iter().filter(|_| newest.revision.is_some()).find(higher)?;
        Some((&newest.folder, &higher.folder))
    }
}

/// Lineages of one and the same etcd are one: what was saved of it by hand lies under its own ID.
pub(super) fn joined(found: Vec<Lineage>) -> Vec<Lineage> {
    let mut joined: Vec<Lineage> = Vec::new();
    for lineage in found {
        let id = lineage.complete.first().map(|taken| &taken.cluster_id);
        let same = |there: &&mut Lineage| id.is_some() && there.complete.first().map(|taken| &taken.cluster_id) == id;
        match joined.iter_mut().find(same) {
            Some(there) => {
                there.folders.extend(lineage.folders);
                there.attempts += lineage.attempts;
                there.complete.extend(lineage.complete);
                there.broken.extend(lineage.broken);
                there.others.extend(lineage.others);
                there.sort();
            }
            None => joined.push(lineage),
        }
    }
    joined
}

/// Whether a manifest stands in its place, and is of the cluster that is meant: eight characters prove nothing.
fn is_wanted(manifest: &Manifest, folder: &Folder, request: &LatestRequest) -> bool {
    let lineage = folder.parent();
    let is_its_name = |wanted: &str| lineage.as_ref().is_some_and(|lineage| lineage.name() == wanted);
    // A whole UID, not just the part of it that stands in the key.
    let uid = request.lineage.as_ref().filter(|wanted| wanted.len() > 8 && !is_its_name(wanted));
    manifest.key == folder.as_str()
        && (&manifest.namespace, &manifest.cluster) == (&request.namespace, &request.cluster)
        && uid.is_none_or(|uid| manifest.cluster_uid.as_ref() == Some(uid))
}

impl Taken {
    fn of(store: &Store, folder: Folder, manifest: Manifest) -> Self {
        Self {
            at: manifest.started_at,
            uri: store.uri(&folder.data(manifest.format())),
            folder,
            sha256: manifest.sha256,
            revision: manifest.contents.map(|contents| contents.revision),
            cluster_id: manifest.cluster_id,
            restored_from: manifest.restored_from,
            without_quorum: manifest.without_quorum,
        }
    }

    fn report(self, mut newer: Vec<Unfit>) -> LatestReport {
        newer.retain(|unfit| unfit.at.is_none_or(|at| at > self.at));
        newer.sort_by_key(|unfit| std::cmp::Reverse(unfit.at));
        let passed_over: Vec<_> = newer.into_iter().map(|unfit| unfit.why).take(MAX_TOLD).collect();
        if !passed_over.is_empty() {
            tracing::warn!(?passed_over, "newer ones cannot be restored");
        }
        if self.without_quorum {
            tracing::warn!(key = %self.folder, "the newest was saved without a quorum: acknowledged writes may be missing");
        }
        tracing::info!(key = %self.folder, taken_at = %self.at, revision = self.revision, "the newest");
        LatestReport {
            key: self.folder.to_string(),
            uri: self.uri,
            sha256: self.sha256,
            taken_at: self.at.to_string(),
            revision: self.revision,
            without_quorum: self.without_quorum,
            passed_over,
        }
    }
}
