//! The contents of a lineage for retention: one small record per folder, however large its manifest is.
//!
//! This file decides the state of a folder, from one listing and its manifest. The listing alone proves nothing: a manifest
//! counts only after the agent has read it, and a removal reads the folder again (`removal.rs`).

use std::collections::HashSet;
use std::mem;

use futures::stream::{self, StreamExt, TryStreamExt};
use holdfast_contract::error::Result;
use holdfast_contract::{ExitClass, Level, ProofLevel};
use holdfast_io::sha256::Sha256;
use holdfast_layout::manifest::{self, Manifest};
use holdfast_layout::retention::{self, Candidate, Entry, MadeOf, Untouched, Whose};
use holdfast_layout::{Folder, Format, MANIFEST, Proved, attempt_time};
use holdfast_store::removal::{File, Lasting};
use jiff::Timestamp;

use crate::attempts::AT_ONCE;
use crate::proof::{Proof, find_standing_failure};
use crate::removable_store::RemovableStore;

/// One folder, and the facts for its removal.
#[derive(Clone, Debug)]
pub struct Found {
    /// The snapshot's folder.
    pub folder: Folder,
    /// The record that retention judges.
    pub entry: Entry,
    /// The snapshot; `None`: the folder holds no complete snapshot in its own place.
    pub snapshot: Option<Snapshot>,
    /// Whether the folder holds data or proofs without a manifest.
    pub half: bool,
}

/// A complete snapshot of any owner.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// sha256 of its manifest.
    pub sha256: [u8; 32],
    /// The manifest's format.
    pub format: Format,
    /// Bytes in the store.
    pub stored_bytes: u64,
    /// Whether the snapshot is proven and no verification contradicts.
    pub proven: bool,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// Revision of the key space, if it is known.
    pub revision: Option<i64>,
    /// Time of the state.
    pub taken_at: Timestamp,
    /// Locks on the manifest. The locks on the data are read at the removal.
    pub lasting: Lasting,
}

/// All folders of a lineage.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// The snapshots.
    pub found: Vec<Found>,
    /// Whether the listing named every folder once.
    pub complete: bool,
}

/// Reads a lineage, the oldest folder first. A protected lineage protects every snapshot: a restore to a point in time reads
/// the lineage, and chooses the snapshot itself (I25).
#[allow(clippy::implicit_hasher, reason = "every caller has the usual one")]
pub async fn take(
    shelf: &impl RemovableStore,
    lineage: &Folder,
    whose: Whose<'_>,
    protected: &HashSet<Folder>,
) -> Result<Inventory> {
    let folders = shelf.attempts(lineage).await?;
    let complete = folders.windows(2).all(|pair| pair[0] != pair[1]);
    let looks = folders.iter().map(|folder| async move {
        let mut found = read_attempt(shelf, folder, whose).await?;
        let Entry { subject, spared, .. } = &mut found.entry;
        if [folder, lineage].iter().any(|it| protected.contains(*it))
            && matches!(subject, Ok(_) | Err(Untouched::Incomplete))
        {
            *spared = mem::replace(subject, Err(Untouched::Protected)).ok();
            found.half = false;
        }
        Ok(found)
    });
    let found = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
    Ok(Inventory { found, complete })
}

/// Reads one folder: a listing, and its manifest.
pub async fn read_attempt(shelf: &impl RemovableStore, folder: &Folder, whose: Whose<'_>) -> Result<Found> {
    let files = shelf.files(folder).await?;
    let at = attempt_time(folder.name()).unwrap_or_default();
    let nothing = |at, why| {
        let entry = Entry { key: folder.to_string(), at, subject: Err(why), spared: None };
        let half = why == Untouched::Incomplete && files.iter().any(is_left);
        Ok(Found { folder: folder.clone(), entry, snapshot: None, half })
    };
    if !files.iter().any(|file| file.path == MANIFEST) {
        return nothing(at, Untouched::Incomplete);
    }
    let small = match shelf.read(&folder.manifest(), manifest::MAX_BYTES).await {
        Ok(Some(small)) => small,
        Ok(None) => return nothing(at, Untouched::Incomplete),
        Err(error) if error.class() == ExitClass::Corrupt => return nothing(at, Untouched::Broken),
        Err(error) if error.is_archived() => return nothing(at, Untouched::Archived),
        Err(error) => return Err(error),
    };
    let manifest = match Manifest::parse(&small.content) {
        Ok(manifest) => manifest,
        Err(error) if error.class() == ExitClass::Config => return nothing(at, Untouched::LaterFormat),
        Err(_) => return nothing(at, Untouched::Broken),
    };
    if manifest.key != folder.as_str() {
        return nothing(manifest.started_at, Untouched::Copied);
    }
    let data = manifest.format().name();
    if !files.iter().any(|file| file.path == data && file.bytes == manifest.stored_bytes) {
        return nothing(manifest.started_at, Untouched::Broken);
    }
    let sha256 = Sha256::digest(&small.content);
    let proofs = proofs_among(&files);
    let failed = is_contradicted(shelf, folder, &hex::encode(sha256), proofs.clone()).await?;
    let is = facts(&manifest, &proofs, failed);
    // The data may be locked, although the store does not show the lock to these credentials.
    let recorded = manifest.lock.as_ref().map(|lock| lock.until);
    let snapshot = Snapshot {
        sha256,
        format: manifest.format(),
        stored_bytes: manifest.stored_bytes,
        proven: is.proven && !is.failed,
        cluster_id: is.cluster_id.clone(),
        revision: is.revision,
        taken_at: manifest.taken_at(),
        lasting: Lasting { until: small.lasting.until.max(recorded), ..small.lasting },
    };
    let judged = retention::candidate(&manifest, folder.as_str(), whose).map(|()| is);
    let (subject, spared) = if is_held(&files) { (Err(Untouched::Held), judged.ok()) } else { (judged, None) };
    let entry = Entry { key: manifest.key, at: manifest.started_at, subject, spared };
    Ok(Found { folder: folder.clone(), entry, snapshot: Some(snapshot), half: false })
}

/// Whether a user holds the folder with these files. The empty object that a web console creates for a folder is a hold too.
pub fn is_held(files: &[File]) -> bool {
    files.iter().any(|file| file.path == "holds" || file.path.starts_with("holds/"))
}

/// Whether the file belongs to a snapshot whose manifest may be gone: data or a proof.
pub fn is_left(file: &File) -> bool {
    file.proof_name().is_some() || Format::all().any(|format| format.name() == file.path)
}

/// Returns the proofs among these files, the newest last.
fn proofs_among(files: &[File]) -> Vec<Proved> {
    let mut proofs: Vec<Proved> = files.iter().filter_map(|file| Proved::of_name(file.proof_name()?)).collect();
    proofs.sort_by_key(|proved| proved.at);
    proofs
}

/// Whether a verification contradicts the snapshot. The proof's content counts: neither a file name alone nor a proof of
/// another manifest voids a snapshot.
async fn is_contradicted(
    shelf: &impl RemovableStore,
    folder: &Folder,
    manifest_sha256: &str,
    mut proofs: Vec<Proved>,
) -> Result<bool> {
    while let Some(failure) = find_standing_failure(&proofs) {
        let small = match shelf.read(&folder.proof(failure), manifest::MAX_BYTES).await {
            Ok(small) => small,
            // Too long for a proof.
            Err(error) if error.class() == ExitClass::Corrupt => None,
            Err(error) => return Err(error),
        };
        let proof = small.and_then(|small| Proof::parse(&small.content).ok());
        if proof.is_some_and(|proof| {
            !proof.passed && proof.key == folder.as_str() && proof.manifest_sha256.eq_ignore_ascii_case(manifest_sha256)
        }) {
            return Ok(true);
        }
        proofs.retain(|proved| *proved != failure);
    }
    Ok(false)
}

/// Returns the facts that retention compares.
fn facts(manifest: &Manifest, proofs: &[Proved], failed: bool) -> Candidate {
    let drilled = proofs.iter().any(|proved| proved.passed && proved.level == ProofLevel::Drill);
    let hash_kv = manifest.verification.as_ref().is_some_and(|found| found.level == Level::HashKV);
    let contents = manifest.contents.as_ref();
    Candidate {
        ended: manifest.ended_at,
        proven: hash_kv || drilled,
        drilled,
        failed,
        cluster_id: manifest.cluster_id.clone(),
        revision: contents.map(|contents| contents.revision),
        keys: contents.and_then(|contents| contents.keys),
        made_of: if manifest.derived_from.is_some() { MadeOf::Log } else { MadeOf::Etcd },
    }
}
