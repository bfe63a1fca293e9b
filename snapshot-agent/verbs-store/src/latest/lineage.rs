//! The snapshots of one incarnation of a cluster, the newest of them, and what was there before.
//!
//! This file decides the order of a cluster's snapshots, and when the order is in doubt: also if only a later version of Holdfast
//! can read some of the manifests, or if the store has archived a newer snapshot. Older archived snapshots are passed over.

use futures::stream::{self, StreamExt, TryStreamExt};
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, LatestReport, LatestRequest};
use holdfast_io::clock;
use holdfast_layout::manifest::Manifest;
use holdfast_layout::{Folder, attempt_time, first8};
use holdfast_store::Store;
use jiff::{SignedDuration, Timestamp};

use holdfast_catalog::attempts::{AT_ONCE, last_attempts};
use holdfast_catalog::fallen::{Saved, find_fallen};
use holdfast_catalog::proof;
use holdfast_catalog::read_folder::{FolderState, read_folder};

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
const MAX_NAMED_UNFIT: usize = 5;

/// One complete snapshot.
#[derive(Clone, Debug, PartialEq)]
struct Taken {
    /// Start of the save; its stream was opened some seconds later.
    at: Timestamp,
    /// Time of the state: of a merge that of what it merged.
    state_at: Timestamp,
    /// End of the save.
    ended: Timestamp,
    folder: Folder,
    uri: String,
    sha256: String,
    revision: Option<i64>,
    cluster_id: String,
    restored_from: Option<String>,
    without_quorum: bool,
}

/// A snapshot that cannot be restored.
#[derive(Clone, Debug, PartialEq)]
struct Unfit {
    at: Option<Timestamp>,
    why: String,
}

/// A snapshot that the store has archived.
#[derive(Clone, Debug, PartialEq)]
struct Archived {
    /// Start of the save, from the folder's name.
    at: Timestamp,
    folder: Folder,
    error: Error,
}

/// The snapshots of one incarnation of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lineage {
    /// Folders of the lineage; several if snapshots by hand were joined.
    folders: Vec<Folder>,
    /// Number of attempts.
    attempts: usize,
    /// Complete snapshots, the newest first: [`NEIGHBOURS`] or a few more.
    complete: Vec<Taken>,
    /// Snapshots with a manifest that cannot be restored.
    broken: Vec<Unfit>,
    /// Running or dead saves, and objects of other owners: never a backup.
    others: Vec<Unfit>,
    /// Snapshots that the store has archived.
    archived: Vec<Archived>,
    /// Error of a manifest from a later version of Holdfast: the search reads no older folder then.
    unread: Option<Error>,
    /// Whether at least one complete snapshot has no failed verification.
    sound: bool,
}

impl Lineage {
    pub(super) async fn read(store: &Store, folder: Folder, request: &LatestRequest) -> Result<Self> {
        Self::seen_by(store, folder, request, NAMES).await
    }

    /// Reads the lineage with at most `names` names in memory.
    pub(super) async fn seen_by(store: &Store, folder: Folder, request: &LatestRequest, names: usize) -> Result<Self> {
        let (attempts, mut newest) = last_attempts(store, &folder, names, None).await?;
        let folders = vec![folder.clone()];
        let mut lineage = Self {
            folders,
            attempts,
            complete: vec![],
            broken: vec![],
            others: vec![],
            archived: vec![],
            unread: None,
            sound: false,
        };
        let mut remaining = attempts;
        loop {
            lineage.read_attempts(store, &newest, request).await?;
            let enough = lineage.sound || lineage.unread.is_some();
            let older = newest.first().filter(|_| remaining > newest.len() && !enough);
            let Some(oldest) = older else { break };
            (remaining, newest) = last_attempts(store, &folder, names, Some(oldest)).await?;
        }
        lineage.sort();
        Ok(lineage)
    }

    /// Reads some folders, the newest first, until enough complete snapshots are found with a sound one among them, or until
    /// this version cannot read a manifest.
    async fn read_attempts(&mut self, store: &Store, newest: &[Folder], request: &LatestRequest) -> Result<()> {
        for some in newest.rchunks(2 * AT_ONCE) {
            let looks = some.iter().map(|folder| async move {
                read_folder(store, folder, |manifest| is_wanted(manifest, folder, request))
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

    fn add(&mut self, store: &Store, folder: &Folder, looked: FolderState) {
        let at = attempt_time(folder.name());
        let unfit = |why: &str| Unfit { at, why: format!("{folder}: {why}") };
        match looked {
            FolderState::Complete(manifest, _) => {
                self.complete.push(Taken::from_manifest(store, folder.clone(), *manifest));
            }
            FolderState::Archived(error) => {
                self.archived.push(Archived { at: at.unwrap_or(Timestamp::MAX), folder: folder.clone(), error });
            }
            // A later version of Holdfast wrote the manifest: an older snapshot is no answer.
            FolderState::Broken(error) if error.class() == ExitClass::Config => self.unread = Some(error),
            FolderState::Broken(error) => self.broken.push(unfit(error.message())),
            FolderState::WithoutManifest => self.others.push(unfit("a save that is running or has died")),
            FolderState::Unwanted => {
                self.others.push(unfit("its manifest belongs to another folder or another cluster"));
            }
        }
    }

    fn sort(&mut self) {
        self.complete.sort_by(|a, b| (b.at, &b.folder).cmp(&(a.at, &a.folder)));
    }

    /// Whether the lineage has ever held a snapshot.
    pub(super) const fn holds_something(&self) -> bool {
        !self.complete.is_empty() || !self.broken.is_empty() || !self.archived.is_empty()
    }

    /// Whether one of the folders has this name.
    pub(super) fn is_called(&self, wanted: &str) -> bool {
        self.folders.iter().any(|folder| is_called(folder, wanted))
    }

    /// Returns the error that forbids a choice: this version cannot read a manifest of this lineage, or of another lineage that may
    /// belong to the same etcd.
    pub(super) fn unread(&self, others: &[Self]) -> Option<Error> {
        if let Some(own) = &self.unread {
            return Some(own.clone());
        }
        // Two clusters never share an etcd. Only the manifests of a cluster show that a save by hand belongs to it.
        let mut clusters = others.iter().filter(|other| self.is_by_hand() && !other.is_by_hand());
        let is_archived = |other: &Self| {
            // A readable manifest names the etcd.
            let newer = newest_archived(&other.archived, self.newest_at()).filter(|_| other.complete.is_empty());
            newer.map(|newer| newer.error.clone())
        };
        let unread = |other: &Self| other.unread.clone().or_else(|| is_archived(other));
        let (other, error) = clusters.find_map(|other| Some((other, unread(other)?)))?;
        let names: Vec<_> = other.folders.iter().map(Folder::as_str).collect();
        Some(error.context(format!(
            "{} may hold newer snapshots of the same etcd (name the snapshot by its key: bootstrap.restore.source)",
            names.join(" with ")
        )))
    }

    /// Whether all snapshots were saved by hand.
    fn is_by_hand(&self) -> bool {
        self.folders.iter().all(|folder| etcd_of(folder).is_some())
    }

    /// The cluster ID of its etcd: from the newest manifest, or from the folder's name if no manifest is readable.
    fn etcd(&self) -> Option<&str> {
        let recorded = self.complete.first().map(|taken| taken.cluster_id.as_str());
        let is_unread = self.unread.is_some() || !self.archived.is_empty();
        let named = || self.folders.iter().filter(|_| is_unread).find_map(etcd_of);
        recorded.or_else(named).map(|id| id.trim_start_matches('0'))
    }

    fn newest_one(&self) -> Option<&Taken> {
        newest_of(self.complete.iter())
    }

    /// Returns the time of the newest snapshot.
    pub(super) fn newest_at(&self) -> Option<Timestamp> {
        self.newest_one().map(|taken| taken.at)
    }

    /// Whether the other lineage continues this one: it was restored from the last snapshot of this lineage. If this lineage has
    /// later snapshots, either its cluster still lives or the restore lost its later writes; both are a doubt.
    pub(super) fn is_past_of(&self, other: &Self) -> bool {
        let from = other.complete.iter().find_map(|taken| taken.restored_from.as_deref());
        let Some(from) = from.and_then(|key| Folder::parse("key", key).ok()) else { return false };
        let is_within = from.parent().is_some_and(|parent| self.folders.contains(&parent));
        self.folders != other.folders && is_within && self.ends_with(&from)
    }

    /// Whether no snapshot is later than this one, and no overlapping one has a higher revision.
    fn ends_with(&self, last: &Folder) -> bool {
        let there = self.complete.iter().find(|taken| taken.folder == *last);
        // The name of a removed snapshot still holds its time.
        let began = there.map(|taken| taken.at).or_else(|| attempt_time(last.name()));
        if newest_archived(&self.archived, began).is_some_and(|newer| newer.folder != *last) {
            return false;
        }
        let Some(newest) = self.newest_one() else { return true };
        let after = |taken: &Taken| Some(taken.at) > began;
        let less = |taken: &Taken| taken.folder == *last && taken.revision < newest.revision;
        newest.folder == *last || !self.complete.iter().any(|taken| after(taken) || less(taken))
    }

    /// Describes the lineage for a user who has to choose. Each of its folders names the same lineage.
    pub(super) fn describe(&self) -> String {
        let (names, count) = (self.folders.iter().map(Folder::name).collect::<Vec<_>>(), self.attempts);
        let name = names.join(" with ");
        match self.newest_one() {
            Some(newest) => {
                let revision = newest.revision.map(|revision| format!(" at revision {revision}")).unwrap_or_default();
                format!("{name} ({count} saved, the newest on {}{revision})", newest.at)
            }
            None => format!("{name} ({count} saved, none of which can be restored)"),
        }
    }

    /// Returns the newest snapshot without a failed verification, and the newer snapshots.
    pub(super) async fn newest(self, store: &Store, place: &str) -> Result<LatestReport> {
        let Self { complete, broken, others, archived, .. } = self;
        let (mut remaining, mut failed) = (complete.iter().collect::<Vec<_>>(), Vec::new());
        let chosen = loop {
            let Some(taken) = newest_of(remaining.iter().copied()) else {
                if let Some(newest) = newest_archived(&archived, None) {
                    return Err(newest.error.clone().context("no other snapshot can be restored"));
                }
                let why =
                    broken.into_iter().chain(failed).map(|unfit| unfit.why).take(MAX_NAMED_UNFIT).collect::<Vec<_>>();
                return Err(Error::corrupt(format!("no snapshot below {place} can be restored: {}", why.join("; "))));
            };
            let Some(found) = proof::standing_failure(store, &taken.folder).await? else { break taken };
            let why = format!("{}: {} verification failed at {}", taken.folder, found.level.as_str(), found.at);
            failed.push(Unfit { at: Some(taken.at), why });
            remaining.retain(|other| other.folder != taken.folder);
        };
        if let Some(newer) = newest_archived(&archived, Some(chosen.at)) {
            let older = format!(
                "{} is archived and is newer than {}, the newest snapshot that the store returns. Restore it in the store, or name \
                 a snapshot by its key (bootstrap.restore.source)",
                newer.folder, chosen.folder
            );
            return Err(newer.error.clone().context(older));
        }
        if !archived.is_empty() {
            let keys: Vec<_> = archived.iter().map(|one| one.folder.as_str()).take(MAX_NAMED_UNFIT).collect();
            tracing::warn!(
                number = archived.len(),
                ?keys,
                "the store has archived older snapshots, which were passed over"
            );
        }
        if let Some((newer, higher)) = find_lower_revision(chosen, &complete) {
            let alone = if newer.without_quorum {
                "the later snapshot was saved without a quorum and lacks writes, or "
            } else {
                ""
            };
            return Err(Error::unclear(format!(
                "below {place}, {} was taken after {}, and has a lower revision: {alone}an etcd was created again \
                 under the same identity, or a clock was wrong. Name the snapshot by its key (bootstrap.restore.source)",
                newer.folder, higher.folder
            )));
        }
        if let Some(ahead) = ahead(&complete, clock::now()) {
            return Err(Error::unclear(format!(
                "below {place}, {} was taken at {}, which is in the future: a clock was wrong, and later snapshots may \
                 have earlier names. Name the snapshot by its key (bootstrap.restore.source)",
                ahead.folder, ahead.at
            )));
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

/// Returns the newest archived snapshot that is not older than this time. Names of folders hold whole seconds.
fn newest_archived(archived: &[Archived], than: Option<Timestamp>) -> Option<&Archived> {
    let is_newer = |one: &&Archived| than.is_none_or(|than| one.at.as_second() >= than.as_second());
    archived.iter().filter(is_newer).max_by_key(|one| (one.at, &one.folder))
}

/// Returns the latest snapshot with a time in the future. Such snapshots can hide all later saves, made after the clock was
/// corrected, so that no lower revision shows.
fn ahead(complete: &[Taken], now: Timestamp) -> Option<&Taken> {
    complete.first().filter(|last| last.at.duration_since(now) > MOST_AHEAD)
}

/// Returns a pair that contradicts the order: a snapshot that began no earlier than the chosen snapshot, often the chosen one,
/// and a snapshot of the same etcd that ended before with a higher revision. Passed-over snapshots count too.
fn find_lower_revision<'a>(chosen: &Taken, complete: &'a [Taken]) -> Option<(&'a Taken, &'a Taken)> {
    let same: Vec<&Taken> = complete.iter().filter(|taken| taken.cluster_id == chosen.cluster_id).collect();
    let later = same.iter().copied().filter(|later| later.at >= chosen.at);
    find_fallen(later, &same, |taken| Saved { began: taken.at, ended: taken.ended, revision: taken.revision })
}

/// Joins the lineages of one etcd: saves by hand are in a folder named after the etcd cluster ID.
pub(super) fn joined(found: Vec<Lineage>) -> Vec<Lineage> {
    let mut joined: Vec<Lineage> = Vec::new();
    for lineage in found {
        let id = lineage.etcd();
        let same = |there: &&mut Lineage| id.is_some() && there.etcd() == id;
        match joined.iter_mut().find(same) {
            Some(there) => {
                there.folders.extend(lineage.folders);
                there.folders.sort();
                there.attempts += lineage.attempts;
                there.complete.extend(lineage.complete);
                there.broken.extend(lineage.broken);
                there.others.extend(lineage.others);
                there.archived.extend(lineage.archived);
                there.unread = there.unread.take().or(lineage.unread);
                there.sort();
            }
            None => joined.push(lineage),
        }
    }
    joined
}

/// Returns the etcd cluster ID from the name of a folder with saves by hand.
fn etcd_of(lineage: &Folder) -> Option<&str> {
    lineage.name().strip_prefix("etcd-")
}

/// Whether a lineage's folder has this name, or the first 8 characters of this UID as its name.
fn is_called(lineage: &Folder, wanted: &str) -> bool {
    let name = lineage.name();
    name == wanted || first8("lineage", wanted).is_ok_and(|short| short == name)
}

/// Whether the manifest is in its own folder and belongs to the requested cluster: eight characters prove nothing.
fn is_wanted(manifest: &Manifest, folder: &Folder, request: &LatestRequest) -> bool {
    let is_cut = |wanted: &str| folder.parent().is_some_and(|it| it.name() != wanted && is_called(&it, wanted));
    // A whole UID, longer than the part in the key. It does not select saves by hand: they have no UID, and belong by their etcd
    // cluster ID.
    let uid = request.lineage.as_ref().filter(|wanted| wanted.len() > 8 && is_cut(wanted));
    manifest.key == folder.as_str()
        && (&manifest.namespace, &manifest.cluster) == (&request.namespace, &request.cluster)
        && uid.is_none_or(|uid| manifest.cluster_uid.as_ref() == Some(uid))
}

impl Taken {
    fn from_manifest(store: &Store, folder: Folder, manifest: Manifest) -> Self {
        Self {
            at: manifest.started_at,
            state_at: manifest.taken_at(),
            ended: manifest.ended_at,
            uri: store.uri(&folder.data(manifest.format())),
            folder,
            sha256: manifest.sha256,
            revision: manifest.contents.map(|contents| contents.revision),
            cluster_id: manifest.cluster_id,
            restored_from: manifest.restored_from,
            without_quorum: manifest.without_quorum,
        }
    }

    /// Returns the report: the snapshot, the passed-over snapshots, and the newer ones among the rest.
    fn report(&self, mut newer: Vec<Unfit>, rest: impl Iterator<Item = Unfit>) -> LatestReport {
        newer.extend(rest.filter(|unfit| unfit.at.is_none_or(|at| at > self.at)));
        newer.sort_by_key(|unfit| std::cmp::Reverse(unfit.at));
        let passed_over: Vec<_> = newer.into_iter().map(|unfit| unfit.why).take(MAX_NAMED_UNFIT).collect();
        if !passed_over.is_empty() {
            tracing::warn!(?passed_over, "newer snapshots cannot be restored");
        }
        if self.without_quorum {
            tracing::warn!(key = %self.folder, "the newest snapshot was saved without a quorum: acknowledged writes \
                                                may be missing");
        }
        tracing::info!(key = %self.folder, taken_at = %self.state_at, revision = self.revision, "the newest");
        LatestReport {
            key: self.folder.to_string(),
            uri: self.uri.clone(),
            sha256: self.sha256.clone(),
            taken_at: self.state_at.to_string(),
            revision: self.revision,
            without_quorum: self.without_quorum,
            passed_over,
        }
    }
}

#[cfg(test)]
mod tests;
