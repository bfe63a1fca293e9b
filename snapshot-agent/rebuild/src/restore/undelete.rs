//! The point of `agent undelete`: a snapshot, and the log up to a revision or a time, as a database in a scratch folder.
//!
//! This file decides which point the flags name. A point with a log is the merge of a restore; without a log it is one snapshot,
//! whose pages are proven before a key counts. `verbs-live/src/undelete.rs` compares the point with the live etcd.

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use futures::future::BoxFuture;
use holdfast_contract::error::{Error, Result, io_error, task_error};
use holdfast_contract::{DEFAULT_RESTORE_STALL_SECONDS, Point, RestoreRequest, UndeleteRequest};
use holdfast_io::interrupt::Interrupt;
use holdfast_io::memory::file_budget;
use holdfast_io::scratch::Scratch;
use holdfast_layout::manifest::Manifest;
use holdfast_layout::{Folder, Key};
use holdfast_store::{Stat, Store};

use super::passes::AuthChange;
use super::point;
use super::replay::Continued;
use super::scratch::{self, BESIDE, Purpose, STALL};
use holdfast_bbolt::scan::Reader;
use holdfast_catalog::foreign::{self, Named};
use holdfast_catalog::merged::DATABASE;
use holdfast_catalog::past::PastState;
use holdfast_catalog::store_id;
use holdfast_catalog::stored::{self, Stored};
use holdfast_etcd::source::parse_id;
use holdfast_format::crypt::Identities;
use holdfast_format::packed::Plain;
use holdfast_format::trailer::database_of;
use holdfast_verbs_common::{progress_server, unsound};

/// Restores the point.
pub fn run(request: UndeleteRequest) -> BoxFuture<'static, Result<PastState>> {
    Box::pin(async move {
        let began = Instant::now();
        request.checked_prefix()?;
        let mut interrupt = match request.deadline_seconds {
            Some(seconds) => Interrupt::after(seconds.into())?,
            None => Interrupt::by_signal()?,
        };
        let store = Store::open(&request.store)?;
        let checked = store_id::check_before_restore(&request.store, request.expect_store_id.as_deref());
        interrupt.unless(checked).await?;
        let port = request.progress_port;
        progress_server::serve_beside(port, interrupt.unless(restore(&store, &request, began))).await
    })
}

async fn restore(store: &Store, request: &UndeleteRequest, began: Instant) -> Result<PastState> {
    let past = match (request.point(), foreign::find(store, &request.from).await) {
        (Some(asked), _) => from_log(store, request, asked).await,
        (None, Ok(Named::Folder(folder))) => from_snapshot(store, request, &folder).await,
        (None, Ok(Named::File(key, stat))) => from_file(store, request, (&key, &stat)).await,
        (None, Err(error)) => Err(error.context("--from without --at-time and --at-revision has to name one snapshot")),
    };
    Ok(PastState { began, ..past? })
}

/// Continues the newest snapshot before the point with the log.
async fn from_log(store: &Store, request: &UndeleteRequest, asked: Point) -> Result<PastState> {
    let restoring = RestoreRequest {
        store: request.store.clone(),
        key: request.from.clone(),
        age_identity_dirs: request.age_identity_dirs.clone(),
        stall_seconds: DEFAULT_RESTORE_STALL_SECONDS,
        ..RestoreRequest::default()
    };
    let chosen = point::choose(store, &restoring, asked, None).await?;
    let (base, _) = stored::manifest_of(store, &chosen.base).await?;
    let purpose = Purpose {
        below: &request.scratch,
        identities: identities(&base, request)?,
        // No user comes back: the keys alone do.
        users: AuthChange::Allowed,
        hashes: false,
        quota: None,
    };
    let uri = store.uri(&chosen.base.data(base.format()));
    let (scratch, continued) = scratch::merge(store, &chosen, base, purpose).await?;
    let Continued { merged, proof, .. } = continued;
    tracing::info!(%asked, revision = merged.revision, records = merged.records, "the point is restored");
    Ok(PastState {
        began: Instant::now(),
        path: scratch.join(DATABASE),
        scratch,
        db_bytes: merged.bytes,
        revision: merged.revision,
        cluster_id: Some(chosen.cluster_id),
        uri,
        proof: Some(proof),
    })
}

/// Unpacks one snapshot.
async fn from_snapshot(store: &Store, request: &UndeleteRequest, folder: &Folder) -> Result<PastState> {
    let (manifest, _) = stored::manifest_in_its_place(store, folder).await?;
    let identities = identities(&manifest, request)?;
    let cluster_id = parse_id(&manifest.cluster_id)?;
    let scratch = Scratch::new(&request.scratch, manifest.db_bytes.saturating_add(BESIDE))?;
    let (path, file) = scratch.file(DATABASE)?;
    let uri = store.uri(&folder.data(manifest.format()));
    let stored = Stored::check(store, folder, manifest).await?;
    stored.unpack(store, identities, file, STALL).await?;
    prove(scratch, path, (Some(cluster_id), uri)).await
}

/// Downloads and unpacks a file without a manifest.
async fn from_file(store: &Store, request: &UndeleteRequest, (key, stat): (&Key, &Stat)) -> Result<PastState> {
    let scratch = Scratch::new(&request.scratch, stat.bytes.saturating_add(BESIDE))?;
    let (packed, to) = scratch.file("stored")?;
    foreign::download(store, (key, stat), to, STALL).await?;
    let plain = Plain::unpack(&packed, &request.age_identity_dirs, &request.scratch).await?;
    let path = scratch.join(DATABASE);
    std::fs::rename(&plain.path, &path).map_err(io_error("moving the unpacked snapshot"))?;
    prove(scratch, path, (None, store.uri(key))).await
}

/// Proves the database of one snapshot: keys of a damaged tree mean nothing.
async fn prove(scratch: Scratch, path: PathBuf, (cluster_id, uri): (Option<u64>, String)) -> Result<PastState> {
    let at = path.clone();
    let proving = tokio::task::spawn_blocking(move || {
        let doing = || format!("reading {}", at.display());
        let file = File::open(&at).map_err(io_error(doing()))?;
        let (db_bytes, _) = database_of(file.metadata().map_err(io_error(doing()))?.len());
        let wrong = |error| unsound(&at.display().to_string(), &error);
        let proven = Reader::open(&file, db_bytes, file_budget()).map_err(wrong)?.prove(None).map_err(wrong)?;
        Ok::<_, Error>((db_bytes, proven.revision))
    });
    let (db_bytes, revision) = proving.await.map_err(|error| task_error(&error))??;
    tracing::info!(uri, revision, "the snapshot is unpacked and proven");
    Ok(PastState { began: Instant::now(), scratch, path, db_bytes, revision, cluster_id, uri, proof: None })
}

/// Returns the identities for an encrypted snapshot.
fn identities(manifest: &Manifest, request: &UndeleteRequest) -> Result<Option<Identities>> {
    let Some(encryption) = &manifest.encryption else { return Ok(None) };
    let read = Identities::read(&request.age_identity_dirs)?;
    let remedy = "name a folder with the identity file of one of these keys with --age-identity-dir";
    stored::fitting(encryption, read, "no identity is given", remedy).map(Some)
}
