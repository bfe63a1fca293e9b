//! A point as a database in a scratch folder: a snapshot with a manifest, and the log after it.
//!
//! This file decides the checks before the merge, and the room. No etcd starts on the result. `compact.rs` publishes it,
//! `undelete.rs` compares it with a live etcd.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_contract::DEFAULT_RESTORE_STALL_SECONDS;
use holdfast_contract::error::{Result, io_error};
use holdfast_io::scratch::{Scratch, check_free};
use holdfast_layout::manifest::Manifest;
use holdfast_store::Store;

use super::passes::AuthChange;
use super::point::Chosen;
use super::quota;
use super::replay::{self, Base, Continued, Settings, Size};
use holdfast_catalog::merged::DATABASE;
use holdfast_catalog::stored::Stored;
use holdfast_format::crypt::Identities;

/// Bytes beside the database and the log.
pub(super) const BESIDE: u64 = 128 << 20;

/// Time without progress after which the merge ends.
pub(super) const STALL: Duration = Duration::from_secs(DEFAULT_RESTORE_STALL_SECONDS as u64);

/// Purpose of the merged database, for the caller.
pub(super) struct Purpose<'a> {
    /// The folder below which the database lies.
    pub(super) below: &'a Path,
    /// Identities that decrypt the snapshot.
    pub(super) identities: Option<Identities>,
    pub(super) users: AuthChange,
    /// Whether the result is hashed.
    pub(super) hashes: bool,
    /// Quota of the etcd that would restore the result.
    pub(super) quota: Option<u64>,
}

/// Merges the snapshot and the segments of a choice.
pub(super) async fn merge(
    store: &Store,
    chosen: &Chosen,
    base: Manifest,
    purpose: Purpose<'_>,
) -> Result<(Scratch, Continued)> {
    let Purpose { below, identities, users, hashes, quota } = purpose;
    let base_bytes = base.db_bytes;
    let stored = Stored::check(store, &chosen.base, base).await?;
    let scratch = Scratch::new(below, base_bytes.saturating_add(BESIDE))?;
    let (path, file) = scratch.file(DATABASE)?;
    let file = match stored.unpack_once(store, identities, file, STALL).await {
        Ok(file) => file,
        Err(error) => return Err(stored.confirm(store, error, STALL).await),
    };
    // Without etcd's sha256.
    file.set_len(base_bytes).map_err(io_error("cutting the snapshot in --scratch"))?;
    let judge = |size: Size| {
        // The snapshot's file is there.
        let more = size.likely.saturating_add(size.beside).saturating_sub(base_bytes);
        let room = check_free(below, more.saturating_add(BESIDE));
        quota::check_beside(quota::check_merged(quota, size.least), room)
    };
    let settings = Settings { users, hashes, stall: STALL, judge: &judge };
    let database = Base { file: Arc::new(file), db_bytes: base_bytes, path: &path };
    let continued = replay::merge(store, chosen, database, &settings).await?;
    Ok((scratch, continued))
}
