//! The intent: a small object that names a running upload, and the end of its writer's time.
//!
//! The agent writes the intent as soon as the store has named the upload, before the first byte of data, and removes it at the
//! end. A later run of the same lineage removes the leftovers of a dead writer (I21), judged by the time in the intent and by
//! the absence of a manifest, never by the store's dates. If a writer dies between the upload's start and its intent, a
//! lifecycle rule of the bucket aborts the upload.

use std::time::Duration;

use bytes::Bytes;
use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_io::clock;
use holdfast_layout::manifest;
use holdfast_layout::{Folder, Format, Key};
use jiff::Timestamp;
use object_store::list::PaginatedListOptions;
use serde::{Deserialize, Serialize};

use super::super::{GRACE_SECONDS, busy_until};
use super::{Bucket, PAGE, Plan};
use crate::error_class::classify;

/// A running upload.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    /// The data object's name in the attempt's folder.
    name: String,
    /// The store's name for the upload.
    upload_id: String,
    /// Latest end of the attempt.
    until: Timestamp,
}

impl Intent {
    /// Parses an attempt's intent.
    fn parse(store: &Bucket, attempt: &Folder, json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json)
            .map_err(|error| Error::corrupt(format!("{} is not valid: {error}", store.uri(&attempt.intent()))))
    }

    /// Renders the intent.
    fn json(&self) -> Result<Bytes> {
        let json = serde_json::to_vec(self);
        let json = json.map_err(|error| Error::config(format!("the upload's intent cannot be written: {error}")))?;
        Ok(json.into())
    }

    /// Returns the object of the upload: only names of data count, so that the agent removes no other object (I25).
    fn data(&self, attempt: &Folder) -> Option<Key> {
        Format::all().map(|format| attempt.data(format)).find(|data| data.name() == self.name)
    }

    /// Returns the time from which the writer is dead.
    fn over(&self) -> Result<Timestamp> {
        clock::later(self.until, GRACE_SECONDS)
    }
}

/// Maximum size. An intent has about 200 bytes, and an upload's name can be long.
const MAX_BYTES: u64 = 4096;

/// Time that a save spends on the leftovers of others, from the start of its own upload.
const CLEAN_WITHIN: Duration = Duration::from_secs(5);

/// Writes the intent of this upload.
pub(super) async fn announce(store: &Bucket, data: &Key, upload_id: &str, plan: Plan) -> Result<()> {
    let intent = Intent { name: data.name().to_owned(), upload_id: upload_id.to_owned(), until: plan.until };
    // Never locked, because it is removed later.
    store.put_by(&store.clients.usual, &data.folder().intent(), intent.json()?).await
}

/// Time that a part waits for this answer: etcd waits as long.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Facts about the store from the intent of this run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    /// These credentials can read objects that they have written.
    pub(super) reads: bool,
    /// The bucket itself locks new objects.
    pub(super) locks: bool,
}

/// Reads the facts, as far as time allows.
pub(super) async fn shown(store: &Bucket, data: &Key) -> Shown {
    let read = async {
        let (_, heard) = store.small_with_headers(&store.path(&data.folder().intent())?, MAX_BYTES).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Shown { reads: true, locks: heard.locked_until.is_some() })
    };
    tokio::time::timeout(READ_WITHIN, read).await.ok().and_then(std::result::Result::ok).unwrap_or_default()
}

/// Removes the leftovers of this lineage's dead attempts, best effort: old leftovers do not fail a backup.
pub(super) async fn clean_up(store: &Bucket, data: &Key, now: Timestamp) {
    let Some(lineage) = data.folder().parent() else { return };
    match tokio::time::timeout(CLEAN_WITHIN, clean(store, &lineage, now)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the uploads of dead attempts stay"),
        Err(_) => tracing::debug!("the uploads of dead attempts stay: the store is slow"),
    }
}

async fn clean(store: &Bucket, lineage: &Folder, now: Timestamp) -> Result<()> {
    let doing = store.doing("listing the intents of", lineage);
    let prefix = store.below(&lineage.intents())?;
    let options = PaginatedListOptions { max_keys: Some(PAGE), ..PaginatedListOptions::default() };
    let page = store.clients.usual.list_paginated(Some(&prefix), options).await;
    for object in page.map_err(|error| classify(&doing, &error))?.result.objects {
        // The object's name identifies the attempt; any user with write access may have chosen its content.
        let Some(attempt) = object.location.filename().and_then(|name| lineage.of_intent(name)) else { continue };
        // An unreadable intent does not stop the others.
        if let Err(error) = judge(store, &attempt, now).await {
            tracing::debug!(attempt = %attempt, %error, "the agent cannot judge this upload, which stays");
        }
    }
    Ok(())
}

/// Removes the leftovers of an attempt if it is dead, and returns whether it was.
pub(super) async fn judge(store: &Bucket, attempt: &Folder, now: Timestamp) -> Result<bool> {
    let json = store.get_small(&attempt.intent(), MAX_BYTES).await?;
    let intent = Intent::parse(store, attempt, &json)?;
    let dead = intent.over()? < now;
    if dead {
        take_back(store, attempt, &intent).await?;
        tracing::info!(attempt = %attempt, "removed the unfinished data of a dead attempt");
    }
    Ok(dead)
}

/// Returns the end of the writer's lease on this attempt; `None`: no intent, or the writer is dead.
pub(super) async fn held(store: &Bucket, attempt: &Folder, now: Timestamp) -> Result<Option<Timestamp>> {
    let Some(json) = store.find_small(&attempt.intent(), MAX_BYTES).await? else { return Ok(None) };
    let over = Intent::parse(store, attempt, &json)?.over()?;
    Ok(Some(over).filter(|over| *over >= now))
}

/// Removes an attempt's intent if it belongs to this upload. Copies of the same snapshot share a key.
pub(super) async fn remove_own(store: &Bucket, attempt: &Folder, upload_id: &str) -> Result<()> {
    let Some(json) = store.find_small(&attempt.intent(), MAX_BYTES).await? else { return Ok(()) };
    if Intent::parse(store, attempt, &json)?.upload_id == upload_id { remove(store, attempt).await } else { Ok(()) }
}

/// Aborts the upload of an attempt of this run, whatever time its intent names.
pub(super) async fn abandon(store: &Bucket, attempt: &Folder) -> Result<()> {
    let json = store.get_small(&attempt.intent(), MAX_BYTES).await?;
    let intent = Intent::parse(store, attempt, &json)?;
    let Some(data) = intent.data(attempt) else { return Ok(()) };
    ended(&store.doing("aborting", &data), store.give_up(&store.path(&data)?, &intent.upload_id).await.map(drop))
}

async fn take_back(store: &Bucket, attempt: &Folder, intent: &Intent) -> Result<()> {
    // By GET: the answer to HEAD has no body that shows its origin.
    match store.find_small(&attempt.manifest(), manifest::MAX_BYTES).await {
        // Published: only the intent was left.
        Ok(Some(_)) => {}
        Ok(None) => {
            if let Some(data) = intent.data(attempt) {
                let path = store.path(&data)?;
                if store.protocol.parts_stay {
                    // On Azure this removes the object too.
                    stands(store, attempt, intent).await?;
                }
                ended(&store.doing("aborting", &data), store.give_up(&path, &intent.upload_id).await.map(drop))?;
                stands(store, attempt, intent).await?;
                ended(&store.doing("removing", &data), store.erase(&path).await)?;
            }
        }
        Err(error) => return Err(error),
    }
    remove(store, attempt).await
}

/// Fails if the attempt's intent has changed: another run has removed the leftovers, or continues with the data.
async fn stands(store: &Bucket, attempt: &Folder, intent: &Intent) -> Result<()> {
    let json = store.find_small(&attempt.intent(), MAX_BYTES).await?;
    let there = json.map(|json| Intent::parse(store, attempt, &json)).transpose()?;
    if there.as_ref() == Some(intent) {
        return Ok(());
    }
    Err(Error::transient(format!("{}: another run writes this snapshot", store.uri(attempt))))
}

/// An intent that replaces the intent of a dead run.
#[derive(Debug)]
pub struct Taken {
    store: Bucket,
    attempt: Folder,
    own: Intent,
    before: Option<Bytes>,
}

impl Bucket {
    /// Continues with data that a dead run has left. An intent of this run replaces the intent of the dead run, so that no other run
    /// removes the data meanwhile. Without an earlier intent, the intent of this run names no data: after its time nothing is
    /// removed. `None`: these credentials cannot remove objects.
    pub async fn take_over(&self, data: &Key, at: Timestamp, until: Timestamp) -> Result<Option<Taken>> {
        let attempt = data.folder();
        let Some(before) = self.find_small(&attempt.intent(), MAX_BYTES).await? else {
            let own = Intent { name: String::new(), upload_id: String::new(), until };
            self.put_by(&self.clients.usual, &attempt.intent(), own.json()?).await?;
            return Ok(Some(Taken { store: self.clone(), attempt: attempt.clone(), own, before: None }));
        };
        let dead = Intent::parse(self, attempt, &before)?;
        let over = dead.over()?;
        if over >= at {
            return Err(Error::transient(format!("{}: {}", self.uri(attempt), busy_until(over))));
        }
        // The intent still names the upload of the dead run: a cleanup after this run aborts it too.
        let own = Intent { until, ..dead };
        match remove(self, attempt).await {
            // Credentials that cannot remove objects cannot remove the data of this run either.
            Err(denied) if denied.class() == ExitClass::Denied => return Ok(None),
            removed => removed?,
        }
        self.put_by(&self.clients.usual, &attempt.intent(), own.json()?).await?;
        Ok(Some(Taken { store: self.clone(), attempt: attempt.clone(), own, before: Some(before) }))
    }
}

impl Taken {
    /// Removes the intent of a published snapshot, or restores the earlier intent; best effort.
    pub async fn let_go(self, published: bool) {
        let Self { store, attempt, own, before } = self;
        let let_go = async {
            stands(&store, &attempt, &own).await?;
            remove(&store, &attempt).await?;
            match before.filter(|_| !published) {
                None => Ok(()),
                Some(before) => store.put_by(&store.clients.usual, &attempt.intent(), before).await,
            }
        };
        match tokio::time::timeout(CLEAN_WITHIN, let_go).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the intent stays behind"),
            Err(_) => tracing::debug!("the intent stays behind: the store is slow"),
        }
    }
}

/// Removes an attempt's intent.
pub(super) async fn remove(store: &Bucket, attempt: &Folder) -> Result<()> {
    let at = attempt.intent();
    ended(&store.doing("removing", &at), store.erase(&store.path(&at)?).await)
}

fn ended(doing: &str, result: object_store::Result<()>) -> Result<()> {
    result.map_err(|error| classify(doing, &error))
}
