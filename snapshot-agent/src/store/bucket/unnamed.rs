//! Uploads that no intent names: what a writer leaves that dies between an upload's beginning and its intent.
//!
//! It decides which of them are dead: a living writer's intent follows its upload within half a minute, and the first part
//! follows the intent. So one that has neither an hour later has no writer, and whoever else may write here under such a
//! name would have sent something (I21). Both times are the store's own. How a store is asked is its protocol's business
//! (`s3/uploads.rs`); where it cannot be, a lifecycle rule of the bucket has to do it.

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

use super::{Bucket, intent};
use crate::error::Result;
use crate::layout::{Folder, Format, Key, owner8_of};
use crate::store::class::classify;

/// Far more than an intent takes to follow, with all that a store may hesitate.
const UNNAMED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// An upload that a store says is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct UnderWay {
    /// Of the object that it is to become, with the store's prefix.
    pub(in crate::store) key: String,
    /// The store's name for it.
    pub(in crate::store) id: String,
    /// When it was begun, by the store's clock.
    pub(in crate::store) since: Timestamp,
}

/// What is under way, and what time the store has.
#[derive(Debug)]
pub(in crate::store) struct Uploads {
    pub(in crate::store) under_way: Vec<UnderWay>,
    pub(in crate::store) now: Timestamp,
}

/// What a protocol tells of uploads, beyond what object_store asks for.
pub(in crate::store) trait Registry: Send + Sync {
    /// What is under way below a prefix.
    fn under_way<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, object_store::Result<Uploads>>;

    /// Whether anything was sent yet.
    fn has_parts<'a>(&'a self, upload: &'a UnderWay) -> BoxFuture<'a, object_store::Result<bool>>;
}

/// Gives up what dead attempts of this lineage have begun and never named.
pub(super) async fn clean(store: &Bucket, lineage: &Folder) -> Result<()> {
    let Some(registry) = &store.registry else { return Ok(()) };
    let prefix = store.below(lineage)?;
    let doing = store.doing("listing the uploads of", lineage);
    let failed = |error: object_store::Error| classify(&doing, &error);
    let Uploads { under_way, now } = registry.under_way(&prefix).await.map_err(failed)?;
    for upload in under_way.iter().filter(|upload| now.duration_since(upload.since) >= UNNAMED_FOR) {
        // No name but those of an attempt's data, so that nobody else's is ever given up (I25).
        let Some(data) = upload.key.strip_prefix(&prefix).and_then(|below| data_of(lineage, below)) else { continue };
        // One that has an intent is judged by that.
        if intent::is_there(store, data.folder()).await? || registry.has_parts(upload).await.map_err(failed)? {
            continue;
        }
        let doing = store.doing("aborting", &data);
        store.give_up(&store.path(&data)?, &upload.id).await.map_err(|error| classify(&doing, &error))?;
        tracing::info!(attempt = %data.folder(), "gave up an upload that a dead attempt had begun");
    }
    Ok(())
}

/// The data of an attempt of this lineage, by what follows the lineage in its key.
fn data_of(lineage: &Folder, below: &str) -> Option<Key> {
    let (attempt, name) = below.split_once('/')?;
    owner8_of(attempt)?;
    let attempt = lineage.child(attempt).ok()?;
    Format::all().map(|format| attempt.data(format)).find(|data| data.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_data_of_attempts_is_ours() {
        let lineage = Folder::parse("key", "shop/orders/1a2b3c4d").unwrap();
        let attempt = "20240101T000000Z-99887766-aaaaaaaa";
        let data = data_of(&lineage, &format!("{attempt}/snapshot.db.zst")).unwrap();
        assert_eq!(data.to_string(), format!("shop/orders/1a2b3c4d/{attempt}/snapshot.db.zst"));
        for other in [
            attempt.to_owned(),
            "snapshot.db.zst".to_owned(),
            format!("{attempt}/theirs.db"),
            format!("{attempt}/manifest.json"),
            format!("{attempt}/proofs/snapshot.db.zst"),
            format!("uploads/{attempt}/snapshot.db.zst"),
            "theirs/snapshot.db.zst".to_owned(),
            "../snapshot.db.zst".to_owned(),
        ] {
            assert_eq!(data_of(&lineage, &other), None, "{other}");
        }
    }
}
