//! The snapshots of one incarnation of a cluster, and the newest of them.
//!
//! This file decides the order of one cluster's snapshots, and when that order is in doubt, also when only a later version of
//! Holdfast can read some of them. `latest.rs` decides which lineage is read.

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};

use crate::catalog::attempts::{AT_ONCE, last_attempts};
use crate::catalog::look::{Looked, look};
use crate::catalog::proof;
use crate::contract::{ExitClass, LatestReport, LatestRequest};
use crate::error::{Error, Result};
use crate::format::layout::{Folder, attempt_time, first8};
use crate::format::manifest::Manifest;
use crate::store::Store;
use crate::util::clock;

/// Complete snapshots that are compared with the newest. A folder's name holds the time of its save, and a manifest counts only
/// in its own folder, so the search reads the newest folders first and need not read all older ones.
const NEIGHBOURS: usize = 32;

/// Maximum difference of clocks. In one Kubernetes cluster clocks differ by seconds, and stores refuse signatures that are a
/// quarter of an hour off.
const MOST_AHEAD: SignedDuration = SignedDuration::from_mins(15);

/// Names in memory at a time, about a megabyte, for any number of folders. If none of these is complete, the search continues
/// with the names before them.
const NAMES: usize = 10_000;

/// Maximum number of newer snapshots in a report, each with the reason for which it was passed over.
const MAX_TOLD: usize = 5;

/// One complete snapshot.
#[derive(Clone, Debug, PartialEq)]
struct Taken {
    /// Start of the save; its stream was opened some seconds later.
    at: Timestamp,
    /// End of the save.
    ended: Timestamp,
    folder: Folder,
    uri: String,
    sha256: String,
    revision: Option<i64>,
    cluster_id: String,
    without_quorum: bool,
}

/// A snapshot that cannot be restored.
#[derive(Clone, Debug, PartialEq)]
struct Unfit {
    at: Option<Timestamp>,
    why: String,
}

/// The snapshots of one incarnation of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lineage {
    folder: Folder,
    /// Number of all saves.
    attempts: usize,
    /// Complete snapshots, the newest first: [`NEIGHBOURS`] or a few more.
    complete: Vec<Taken>,
    /// Snapshots with a manifest that cannot be restored.
    broken: Vec<Unfit>,
    /// Running or dead saves, and objects of other owners: never a backup.
    others: Vec<Unfit>,
    /// Error of a manifest from a later version of Holdfast: the search reads no older folder then.
    unread: Option<Error>,
    /// Whether at least one complete snapshot has no failed verification.
    sound: bool,
}

impl Lineage {
    pub(super) async fn of(store: &Store, folder: Folder, request: &LatestRequest) -> Result<Self> {
        Self::seen_by(store, folder, request, NAMES).await
    }

    /// Reads the lineage with at most `names` names in memory.
    pub(super) async fn seen_by(store: &Store, folder: Folder, request: &LatestRequest, names: usize) -> Result<Self> {
        let (attempts, mut begun) = last_attempts(store, &folder, names, None).await?;
        let mut lineage =
            Self { folder, attempts, complete: vec![], broken: vec![], others: vec![], unread: None, sound: false };
        let mut left = attempts;
        loop {
            lineage.look_at(store, &begun, request).await?;
            let enough = lineage.sound || lineage.unread.is_some();
            let older = begun.first().filter(|_| left > begun.len() && !enough);
            let Some(oldest) = older else { break };
            (left, begun) = last_attempts(store, &lineage.folder, names, Some(oldest)).await?;
        }
        lineage.sort();
        Ok(lineage)
    }

    /// Reads some folders, the newest first, until enough complete snapshots are found with a sound one among them, or until
    /// this version cannot read a manifest.
    async fn look_at(&mut self, store: &Store, begun: &[Folder], request: &LatestRequest) -> Result<()> {
        for some in begun.rchunks(2 * AT_ONCE) {
            let looks = some.iter().map(|folder| async move {
                look(store, folder, |manifest| is_wanted(manifest, folder, request))
                    .await
                    .map(|looked| (folder, looked))
            });
            let looked: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await?;
            let before = self.complete.len();
            for (folder, looked) in looked {
                self.add(store, folder, looked);
            }
            for taken in self.complete.iter().skip(before) {
                self.sound = self.sound || proof::standing_failure(store, &taken.folder).await?.is_none();
            }
            if (self.complete.len() >= NEIGHBOURS && self.sound) || self.unread.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn add(&mut self, store: &Store, folder: &Folder, looked: Looked) {
        let at = attempt_time(folder.name());
        let unfit = |why: &str| Unfit { at, why: format!("{folder}: {why}") };
        match looked {
            Looked::Complete(manifest, _) => self.complete.push(Taken::of(store, folder.clone(), *manifest)),
            // A later version of Holdfast wrote the manifest: an older snapshot is no answer.
            Looked::Broken(error) if error.class() == ExitClass::Config => self.unread = Some(error),
            Looked::Broken(error) => self.broken.push(unfit(error.message())),
            Looked::WithoutManifest => self.others.push(unfit("a save that is running or has died")),
            Looked::Unwanted => self.others.push(unfit("its manifest belongs to another folder or another cluster")),
        }
    }

    fn sort(&mut self) {
        self.complete.sort_by(|a, b| (b.at, &b.folder).cmp(&(a.at, &a.folder)));
    }

    /// Whether the lineage has ever held a snapshot.
    pub(super) const fn holds_something(&self) -> bool {
        !self.complete.is_empty() || !self.broken.is_empty() || self.unread.is_some()
    }

    fn newest_one(&self) -> Option<&Taken> {
        newest_of(self.complete.iter())
    }

    /// Returns the time of the newest snapshot.
    pub(super) fn newest_at(&self) -> Option<Timestamp> {
        self.newest_one().map(|taken| taken.at)
    }

    /// Describes the lineage for a user who has to choose.
    pub(super) fn describe(&self) -> String {
        let (name, count) = (self.folder.name(), self.attempts);
        match self.newest_one() {
            _ if self.unread.is_some() => format!("{name} ({count} saved, the newest by a later version of Holdfast)"),
            Some(newest) => {
                format!("{name} ({count} saved, the newest on {})", newest.when())
            }
            None => format!("{name} ({count} saved, none of which can be restored)"),
        }
    }

    /// Returns the newest snapshot without a failed verification, and the newer snapshots.
    pub(super) async fn newest(self, store: &Store, place: &str) -> Result<LatestReport> {
        if let Some(later_version) = self.unread {
            return Err(later_version);
        }
        let Self { complete, broken, others, .. } = self;
        let (mut left, mut failed) = (complete.iter().collect::<Vec<_>>(), Vec::new());
        let chosen = loop {
            let Some(taken) = newest_of(left.iter().copied()) else {
                let why = broken.into_iter().chain(failed).map(|unfit| unfit.why).take(MAX_TOLD).collect::<Vec<_>>();
                return Err(Error::corrupt(format!("no snapshot below {place} can be restored: {}", why.join("; "))));
            };
            let Some(found) = proof::standing_failure(store, &taken.folder).await? else { break taken };
            let why = format!("{}: {} verification failed at {}", taken.folder, found.level.as_str(), found.at);
            failed.push(Unfit { at: Some(taken.at), why });
            left.retain(|other| other.folder != taken.folder);
        };
        if let Some((newer, higher)) = find_lower_revision(chosen, &complete) {
            let alone = if newer.without_quorum {
                "the later snapshot was saved without a quorum and lacks writes, or "
            } else {
                ""
            };
            let why = format!(
                "{} was taken after {}, and has a lower revision: {alone}an etcd was created again under the same \
                 identity, or a clock was wrong",
                newer.folder, higher.folder
            );
            return Err(unclear_order(place, &why, &complete));
        }
        if let Some(ahead) = ahead(&complete, clock::now()) {
            let why = format!(
                "{} was taken at {}, which is in the future: a clock was wrong, and later snapshots may have earlier \
                 names",
                ahead.folder, ahead.at
            );
            return Err(unclear_order(place, &why, &complete));
        }
        Ok(chosen.report(failed, broken.into_iter().chain(others)))
    }
}

/// Returns the newest snapshot. The input is sorted by the start of the saves, the latest first. Of overlapping saves either
/// may have opened its stream first: the higher revision is the later stream.
fn newest_of<'a>(mut sorted: impl Iterator<Item = &'a Taken>) -> Option<&'a Taken> {
    let last = sorted.next()?;
    // An incomparable revision is no reason for an earlier snapshot.
    let beside =
        |taken: &&Taken| last.revision.is_some() && taken.cluster_id == last.cluster_id && taken.ended > last.at;
    let higher = |most: &'a Taken, taken: &'a Taken| if taken.revision > most.revision { taken } else { most };
    Some(sorted.filter(beside).fold(last, higher))
}

/// Returns the error that asks for a key, with some candidates, the latest first.
fn unclear_order(place: &str, why: &str, complete: &[Taken]) -> Error {
    let some: Vec<_> = complete.iter().take(MAX_TOLD).map(|one| format!("{} ({})", one.folder, one.when())).collect();
    Error::unclear(format!(
        "below {place}, {why}. Name a snapshot by its key (--key; bootstrap.restore.source), the last first: {}",
        some.join(", ")
    ))
}

/// Returns the latest snapshot if its time is in the future. Many of these may hide all saves since the clock was corrected, so
/// that no fall of the revision is visible.
fn ahead(complete: &[Taken], now: Timestamp) -> Option<&Taken> {
    complete.first().filter(|last| last.at.duration_since(now) > MOST_AHEAD)
}

/// Returns a pair that contradicts the order: a snapshot that began no earlier than the chosen snapshot, often the chosen one,
/// and a snapshot of the same etcd that ended before with a higher revision. Revisions never fall. Passed-over snapshots count
/// too.
fn find_lower_revision<'a>(chosen: &Taken, complete: &'a [Taken]) -> Option<(&'a Taken, &'a Taken)> {
    let same: Vec<&Taken> = complete.iter().filter(|taken| taken.cluster_id == chosen.cluster_id).collect();
    same.iter().filter(|later| later.at >= chosen.at && later.revision.is_some()).find_map(|later| {
        let higher = same.iter().find(|one| one.ended <= later.at && one.revision > later.revision)?;
        Some((*later, *higher))
    })
}

/// Whether the lineage's folder has this name, or is the folder of this UID or its first characters.
pub(super) fn is_called(lineage: &Folder, wanted: &str) -> bool {
    let name = lineage.name();
    name == wanted || first8("lineage", wanted).is_ok_and(|short| short == name)
}

/// Whether the manifest is in its own folder and belongs to the requested cluster: eight characters prove nothing.
fn is_wanted(manifest: &Manifest, folder: &Folder, request: &LatestRequest) -> bool {
    let is_cut = |wanted: &str| folder.parent().is_some_and(|it| it.name() != wanted && is_called(&it, wanted));
    // Only a whole UID, because the key holds a part.
    let uid = request.lineage.as_ref().filter(|wanted| wanted.len() > 8 && is_cut(wanted));
    manifest.key == folder.as_str()
        && (&manifest.namespace, &manifest.cluster) == (&request.namespace, &request.cluster)
        && uid.is_none_or(|uid| manifest.cluster_uid.as_ref() == Some(uid))
}

impl Taken {
    fn of(store: &Store, folder: Folder, manifest: Manifest) -> Self {
        Self {
            at: manifest.started_at,
            ended: manifest.ended_at,
            uri: store.uri(&folder.data(manifest.format())),
            folder,
            sha256: manifest.sha256,
            revision: manifest.contents.map(|contents| contents.revision),
            cluster_id: manifest.cluster_id,
            without_quorum: manifest.without_quorum,
        }
    }

    /// Formats time and revision.
    fn when(&self) -> String {
        let revision = self.revision.map(|revision| format!(" at revision {revision}")).unwrap_or_default();
        format!("{}{revision}", self.at)
    }

    /// Returns the report: with all snapshots that were passed over, and those of the rest that are newer.
    fn report(&self, mut newer: Vec<Unfit>, rest: impl Iterator<Item = Unfit>) -> LatestReport {
        newer.extend(rest.filter(|unfit| unfit.at.is_none_or(|at| at > self.at)));
        newer.sort_by_key(|unfit| std::cmp::Reverse(unfit.at));
        let passed_over: Vec<_> = newer.into_iter().map(|unfit| unfit.why).take(MAX_TOLD).collect();
        if !passed_over.is_empty() {
            tracing::warn!(?passed_over, "newer snapshots cannot be restored");
        }
        if self.without_quorum {
            tracing::warn!(key = %self.folder, "the newest snapshot was saved without a quorum: acknowledged writes \
                                                may be missing");
        }
        tracing::info!(key = %self.folder, taken_at = %self.at, revision = self.revision, "the newest");
        LatestReport {
            key: self.folder.to_string(),
            uri: self.uri.clone(),
            sha256: self.sha256.clone(),
            taken_at: self.at.to_string(),
            revision: self.revision,
            without_quorum: self.without_quorum,
            passed_over,
        }
    }
}

#[cfg(test)]
mod tests;
