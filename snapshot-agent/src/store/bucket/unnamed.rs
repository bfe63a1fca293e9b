//! Uploads that no intent names: what a writer leaves that dies between an upload's beginning and its intent.
//!
//! It decides which of them are dead: a living writer's intent follows its upload within minutes, and the first part follows
//! the intent. So one that has neither an hour later has no writer, and whoever else may write here under such a name would
//! have sent something (I21). It is an hour by the store's clock, and by ours. How a store is asked is its protocol's
//! business (`s3/uploads.rs`); where it cannot be, or does not tell, a lifecycle rule of the bucket has to do it.

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

use super::{Bucket, intent};
use crate::error::Result;
use crate::format::layout::{Folder, Format, Key, owner8_of};
use crate::store::error_class::classify;

/// Far more than an intent takes to follow, with all that a store may hesitate.
const UNNAMED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// An upload that a store says is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct UnderWay {
    /// Of the object that it is to become, with the store's prefix.
    pub(in crate::store) key: String,
    /// The store's name for it.
    pub(in crate::store) id: String,
    /// When it was begun, as the store says.
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
pub(super) async fn clean(store: &Bucket, lineage: &Folder, now: Timestamp) -> Result<()> {
    let Some(registry) = &store.registry else { return Ok(()) };
    let prefix = store.below(lineage)?;
    let doing = store.doing("listing the uploads of", lineage);
    let uploads = registry.under_way(&prefix).await.map_err(|error| classify(&doing, &error))?;
    // Whoever stands between may have a clock of his own.
    let now = uploads.now.min(now);
    for upload in uploads.under_way.iter().filter(|upload| now.duration_since(upload.since) >= UNNAMED_FOR) {
        // No name but those of an attempt's data, so that nobody else's is ever given up (I25).
        let Some(data) = upload.key.strip_prefix(&prefix).and_then(|below| data_of(lineage, below)) else { continue };
        // One that cannot be judged does not keep the others.
        match judge(store, registry.as_ref(), upload, &data).await {
            Ok(true) => tracing::info!(attempt = %data.folder(), "gave up an upload that a dead attempt had begun"),
            Ok(false) => {}
            Err(error) => tracing::debug!(attempt = %data.folder(), %error, "its upload is left alone"),
        }
    }
    Ok(())
}

/// Gives an upload up if nobody has named it and nothing was sent, and says whether that was so.
async fn judge(store: &Bucket, registry: &dyn Registry, upload: &UnderWay, data: &Key) -> Result<bool> {
    // One that has an intent is judged by that.
    if intent::is_there(store, data.folder()).await? {
        return Ok(false);
    }
    let parts = registry.has_parts(upload).await;
    if parts.map_err(|error| classify(&store.doing("listing the parts of", data), &error))? {
        return Ok(false);
    }
    let given_up = store.give_up(&store.path(data)?, &upload.id).await;
    given_up.map(|_| true).map_err(|error| classify(&store.doing("aborting", data), &error))
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
