//! What lies in a lineage, as retention needs it: one small record for each folder, however large its manifest is.
//!
//! It decides what a folder is, by one listing of it and its manifest. The listing alone proves nothing: a manifest counts
//! when it was read, and what is removed is looked at again (`removal.rs`).

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::catalog::attempts::AT_ONCE;
use crate::catalog::proof::find_standing_failure;
use crate::catalog::shelf::Shelf;
use crate::contract::{ExitClass, Level, ProofLevel};
use crate::error::Result;
use crate::format::layout::{Folder, Format, MANIFEST, Proved, attempt_time};
use crate::format::manifest::{self, Manifest};
use crate::retention::{self, Candidate, Entry, Untouched, Whose};
use crate::store::removal::{File, Lasting};
use crate::util::sha256::Sha256;

/// One folder, and what its removal needs.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) folder: Folder,
    /// What retention judges.
    pub(crate) entry: Entry,
    /// What is removed with it; `None`: it is no complete snapshot in its place.
    pub(crate) snapshot: Option<Snapshot>,
}

/// A complete snapshot, whoever requested it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// sha256 of its manifest.
    pub(crate) sha256: [u8; 32],
    pub(crate) format: Format,
    pub(crate) stored_bytes: u64,
    /// Whether it is proven and no verification contradicts.
    pub(crate) proven: bool,
    /// What keeps its manifest from being removed. The data is asked for when it is to go.
    pub(crate) lasting: Lasting,
}

/// All folders of a lineage.
#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    pub(crate) found: Vec<Found>,
    /// Whether the listing named every folder once.
    pub(crate) complete: bool,
}

/// Reads a lineage, the oldest folder first.
pub(crate) async fn take(
    shelf: &impl Shelf,
    lineage: &Folder,
    whose: Whose<'_>,
    protected: &[String],
) -> Result<Inventory> {
    let folders = shelf.attempts(lineage).await?;
    let complete = folders.windows(2).all(|pair| pair[0] != pair[1]);
    let looks = folders.iter().map(|folder| async move {
        let mut found = look(shelf, folder, whose).await?;
        if found.entry.subject.is_ok() && protected.contains(&found.entry.key) {
            found.entry.subject = Err(Untouched::Protected);
        }
        Ok(found)
    });
    let found = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
    Ok(Inventory { found, complete })
}

/// Looks at one folder: a listing, and its manifest.
pub(crate) async fn look(shelf: &impl Shelf, folder: &Folder, whose: Whose<'_>) -> Result<Found> {
    let files = shelf.files(folder).await?;
    let at = attempt_time(folder.name()).unwrap_or_default();
    let nothing = |at, why| {
        let entry = Entry { key: folder.to_string(), at, subject: Err(why) };
        Ok(Found { folder: folder.clone(), entry, snapshot: None })
    };
    if !files.iter().any(|file| file.path == MANIFEST) {
        return nothing(at, Untouched::Incomplete);
    }
    let small = match shelf.read(&folder.manifest(), manifest::MAX_BYTES).await {
        Ok(Some(small)) => small,
        Ok(None) => return nothing(at, Untouched::Incomplete),
        Err(error) if error.class() == ExitClass::Corrupt => return nothing(at, Untouched::Broken),
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
    let is = facts(&manifest, &files);
    let snapshot = Snapshot {
        sha256: Sha256::digest(&small.content),
        format: manifest.format(),
        stored_bytes: manifest.stored_bytes,
        proven: is.proven && !is.failed,
        lasting: small.lasting,
    };
    let judged = retention::candidate(&manifest, folder.as_str(), whose).map(|()| is);
    let subject = if is_held(&files) { Err(Untouched::Held) } else { judged };
    let entry = Entry { key: manifest.key, at: manifest.started_at, subject };
    Ok(Found { folder: folder.clone(), entry, snapshot: Some(snapshot) })
}

/// Whether anybody holds the folder with these files.
pub(crate) fn is_held(files: &[File]) -> bool {
    files.iter().any(|file| file.path.starts_with("holds/"))
}

/// What is proven of a snapshot, and what else retention compares.
fn facts(manifest: &Manifest, files: &[File]) -> Candidate {
    let names = files.iter().filter_map(|file| file.path.strip_prefix("proofs/"));
    let mut proofs: Vec<Proved> = names.filter_map(Proved::of_name).collect();
    proofs.sort_by_key(|proved| proved.at);
    let drilled = proofs.iter().any(|proved| proved.passed && proved.level == ProofLevel::Drill);
    let hash_kv = manifest.verification.as_ref().is_some_and(|found| found.level == Level::HashKV);
    let contents = manifest.contents.as_ref();
    Candidate {
        ended: manifest.ended_at,
        proven: hash_kv || drilled,
        drilled,
        failed: find_standing_failure(&proofs).is_some(),
        cluster_id: manifest.cluster_id.clone(),
        revision: contents.map(|contents| contents.revision),
        keys: contents.and_then(|contents| contents.keys),
    }
}
