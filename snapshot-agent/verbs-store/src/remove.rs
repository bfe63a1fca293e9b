//! `agent remove`: removes one snapshot, given by its key and by the sha256 of its manifest.
//!
//! This file decides the conditions beyond those of every removal (`catalog/removal.rs`): the snapshot is in its own folder,
//! belongs to the requesting object, and is not the last proven snapshot of its lineage. The agent writes a record before the
//! last check: of two concurrent runs at least one sees the other's record.

use futures::future::LocalBoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, MAX_NAMED, RemoveRequest, RemovedReport, Stopped};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::process::random_uid;
use holdfast_layout::Folder;
use holdfast_layout::manifest::{self, Manifest};
use holdfast_layout::retention::{StoreMatch, Untouched, Whose};
use holdfast_store::Store;
use holdfast_store::removal::Lasting;
use jiff::Timestamp;

use holdfast_catalog::announced::{self, Named, Record};
use holdfast_catalog::attempts::AT_ONCE;
use holdfast_catalog::inventory::{self, Found, Snapshot};
use holdfast_catalog::removable_store::RemovableStore;
use holdfast_catalog::removal::{self, Removal};
use holdfast_catalog::removal_record;
use holdfast_catalog::store_id;
use holdfast_catalog::stored;
use holdfast_catalog::target::Target;

/// Removes the snapshot, or finishes the removal of an earlier run.
pub fn run(request: RemoveRequest) -> LocalBoxFuture<'static, Result<RemovedReport>> {
    Box::pin(async move {
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        let folder = stored::folder(&request.key)?;
        if !hex::decode(&request.manifest_sha256).is_ok_and(|bytes| bytes.len() == 32) {
            return Err(Error::config("--manifest-sha256 is no sha256: 64 hex digits"));
        }
        let store = Store::open(&holdfast_store::unlocked(&request.store))?;
        let pod_uid = request.pod_uid.clone().map_or_else(random_uid, Ok)?;
        interrupt
            .unless(async {
                let store_id =
                    match store_id::read_before_removal(&request.store, request.expect_store_id.as_deref()).await? {
                        (StoreMatch::Same, store_id) => store_id,
                        (StoreMatch::Different(why), _) => return Err(Error::exchanged(why)),
                        (StoreMatch::Unreadable(why), _) => {
                            return Err(Error::denied(format!("the store ID could not be read: {why}")));
                        }
                    };
                let asked =
                    Asked { request: &request, folder: &folder, store_id: store_id.as_deref(), pod_uid: &pod_uid };
                let removed = asked.remove(&store, clock::now()).await;
                // One bit changed on the way makes another manifest of the right manifest: a second download decides.
                let in_doubt = match &removed {
                    Ok(removed) => removed.refused.as_ref().is_some_and(|refused| refused.reason == NOT_THE_SNAPSHOT),
                    Err(error) => error.class() == ExitClass::Corrupt,
                };
                if in_doubt { asked.remove(&store.with_new_connections(), clock::now()).await } else { removed }
            })
            .await
    })
}

/// The snapshot to remove, and the requesting object.
struct Asked<'a> {
    request: &'a RemoveRequest,
    folder: &'a Folder,
    store_id: Option<&'a str>,
    pod_uid: &'a str,
}

/// Reason of a refusal by the manifest's content.
const NOT_THE_SNAPSHOT: &str = "NotTheSnapshot";

/// Reason for which the agent removes nothing.
enum Refusal {
    Held,
    Locked(Lasting),
    LastProven,
    /// The snapshot is not the requested snapshot, with the reason.
    Other(String),
}

impl Refusal {
    fn stopped(self, folder: &Folder) -> Stopped {
        let (reason, why) = match self {
            Self::Held => ("Held", "the snapshot is held. Remove the hold first".to_owned()),
            Self::Locked(Lasting { until: Some(until), legal_hold: false }) => {
                ("Locked", format!("the store locks it until {until}. Try again then"))
            }
            Self::Locked(_) => ("Locked", "the store keeps a legal hold on it. Remove the legal hold first".to_owned()),
            Self::LastProven => (
                "LastProven",
                "it is the last proven snapshot of its lineage; those whose removal is announced, or was requested within an \
                 hour, do not count. Give --allow-last to remove it all the same"
                    .to_owned(),
            ),
            Self::Other(why) => (NOT_THE_SNAPSHOT, why),
        };
        Stopped { reason: reason.to_owned(), message: format!("{folder}: {why}. The agent removed nothing") }
    }
}

impl Asked<'_> {
    async fn remove(&self, shelf: &impl RemovableStore, now: Timestamp) -> Result<RemovedReport> {
        if let Some(until) = self.request.not_after.filter(|until| now >= *until) {
            return Err(Error::deadline(format!("the Pod has started too late: it removes nothing after {until}")));
        }
        let key = self.request.key.clone();
        let refused =
            |why: Refusal| RemovedReport { refused: Some(why.stopped(self.folder)), ..RemovedReport::default() };
        let ended = match self.decide(shelf, now).await? {
            Ok(ended) => ended,
            Err(why) => return Ok(RemovedReport { key, ..refused(why) }),
        };
        Ok(match ended {
            None => RemovedReport { key, ..RemovedReport::default() },
            Some(Removal::Removed { bytes, unknown: mut unknown_files }) => {
                unknown_files.truncate(MAX_NAMED);
                RemovedReport { key, bytes, unknown_files, refused: None }
            }
            Some(Removal::Held) => RemovedReport { key, ..refused(Refusal::Held) },
            Some(Removal::Locked(lasting)) => RemovedReport { key, ..refused(Refusal::Locked(lasting)) },
            Some(Removal::Changed(why)) => return Err(Error::transient(format!("{}: {why}. Try again", self.folder))),
        })
    }

    /// Removes the snapshot, or returns the reason for a refusal; `None`: the snapshot is already gone.
    async fn decide(&self, shelf: &impl RemovableStore, now: Timestamp) -> Result<Result<Option<Removal>, Refusal>> {
        let Self { request, folder, .. } = *self;
        let Some(lineage) = folder.parent() else {
            return Err(Error::config(format!("{folder} is no snapshot's key")));
        };
        let found = inventory::read_attempt(shelf, folder, NO_SCHEDULE).await?;
        let snapshot = match (&found.snapshot, &found.entry.subject) {
            (Some(_), Err(Untouched::Held)) => return Ok(Err(Refusal::Held)),
            (Some(snapshot), _) => snapshot,
            (None, Err(why)) if *why != Untouched::Incomplete => {
                let why = format!("the folder holds no complete snapshot ({})", why.as_str());
                return Ok(Err(Refusal::Other(why)));
            }
            (None, _) => return self.finish(shelf, now).await,
        };
        let own = hex::encode(snapshot.sha256);
        if !own.eq_ignore_ascii_case(&request.manifest_sha256) {
            return Ok(Err(Refusal::Other(format!("the sha256 of its manifest is {own}"))));
        }
        if let Some(why) = self.find_other_owner(shelf).await? {
            return Ok(Err(Refusal::Other(why)));
        }
        if snapshot.lasting.locks(now) {
            return Ok(Err(Refusal::Locked(snapshot.lasting)));
        }
        let named = named(&found, snapshot);
        let record = Record::of_one(&lineage, named.clone(), self.store_id, now);
        record.keep(shelf, &lineage, now, self.pod_uid).await?;
        if snapshot.proven && !request.allow_last && !self.has_other(shelf, &lineage, now).await? {
            return Ok(Err(Refusal::LastProven));
        }
        let data = folder.data(snapshot.format);
        let target = Target { folder: folder.clone(), named, data, store_id: self.store_id.map(str::to_owned) };
        removal::remove(shelf, &target, now).await.map(|ended| Ok(Some(ended)))
    }

    /// Returns the reason for which the requesting object is not the snapshot's owner.
    async fn find_other_owner(&self, shelf: &impl RemovableStore) -> Result<Option<String>> {
        let Some(owner) = &self.request.owner_uid else { return Ok(None) };
        let small = shelf.read(&self.folder.manifest(), manifest::MAX_BYTES).await?;
        let manifest = small.map(|small| Manifest::parse(&small.content)).transpose()?;
        let uid = manifest.and_then(|manifest| manifest.origin).and_then(|origin| origin.uid);
        if uid.as_ref() == Some(owner) {
            return Ok(None);
        }
        Ok(Some(uid.map_or_else(
            || format!("its manifest does not name {owner} as the object that requested it"),
            |uid| format!("the object {uid} requested it, not {owner}"),
        )))
    }

    /// Whether the lineage has another proven snapshot that no run is about to remove. Checks the newest first.
    async fn has_other(&self, shelf: &impl RemovableStore, lineage: &Folder, now: Timestamp) -> Result<bool> {
        let leaving = announced::leaving(shelf, lineage, self.store_id, now).await?;
        let attempts = shelf.attempts(lineage).await?;
        let others = attempts.iter().rev().filter(|other| *other != self.folder && !leaving.contains(other.as_str()));
        let looks =
            stream::iter(others.map(|other| inventory::read_attempt(shelf, other, NO_SCHEDULE))).buffered(AT_ONCE);
        let proven = looks.try_filter(|found| {
            let proven = found.snapshot.as_ref().is_some_and(|snapshot| snapshot.proven);
            std::future::ready(proven)
        });
        let mut proven = std::pin::pin!(proven);
        Ok(proven.try_next().await?.is_some())
    }

    /// Finishes the removal of an earlier run: its record names the deleted manifest. `None`: no file is left.
    async fn finish(&self, shelf: &impl RemovableStore, now: Timestamp) -> Result<Result<Option<Removal>, Refusal>> {
        let Self { request, folder, store_id, .. } = *self;
        if shelf.files(folder).await?.is_empty() {
            return Ok(Ok(None));
        }
        let target = removal_record::find(shelf, folder, store_id).await?;
        let meant = |target: &Target| target.named.manifest_sha256.eq_ignore_ascii_case(&request.manifest_sha256);
        let Some(target) = target.filter(meant) else {
            let why = "the folder has files and no manifest, and no removal of this manifest has begun: a save or a copy may \
                       be running";
            return Ok(Err(Refusal::Other(why.to_owned())));
        };
        removal::finish(shelf, &target, now).await.map(Ok)
    }
}

/// Matches no schedule: the request names the snapshot itself.
const NO_SCHEDULE: Whose<'static> = Whose { cluster_uid: "", schedule_uid: "" };

fn named(found: &Found, snapshot: &Snapshot) -> Named {
    Named {
        key: found.entry.key.clone(),
        manifest_sha256: hex::encode(snapshot.sha256),
        data: snapshot.format.name(),
        stored_bytes: snapshot.stored_bytes,
        reason: "its removal was requested".to_owned(),
    }
}

#[cfg(test)]
mod tests;
