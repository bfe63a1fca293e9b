//! `agent restore`: one seed member's data directory, rebuilt from one stored snapshot.
//!
//! It decides the order, and that nothing half done can ever start: everything happens in a staging folder that etcd
//! does not look at, and one rename at the end makes the volume startable. Every step can be repeated; a volume that is
//! complete ends the run before a Secret or a source is read. Hash checks are never skipped.
//!
//! What is on the volume is judged in `restore/volume.rs`, etcdutl is run in `restore/etcdutl.rs`.

mod etcdutl;
mod volume;

use std::time::{Duration, Instant};

use crate::contract::{MAY_START_EMPTY, RestoreRequest, RestoredReport};
use crate::crypt::Identities;
use crate::error::{Error, Result};
use crate::gate::{Annotations, differs, hex_id};
use crate::identity::{Identity, Restored};
use crate::layout::{Folder, Key};
use crate::manifest::{self, Encryption, Manifest};
use crate::progress::Progress;
use crate::store::{self, Ahead, Stat, Store};
use crate::{unpack, wal};

use etcdutl::Etcdutl;
use volume::{State, Volume};

/// What etcd's own files need beside the database: two preallocated WAL segments of 64 MiB.
const BESIDE_DATABASE: u64 = 128 << 20;

/// The copy of the snapshot and the database that etcdutl makes of it.
const COPIES: u64 = 2;

/// Rebuilds the data directory, or finds it complete.
pub async fn run(request: RestoreRequest) -> Result<RestoredReport> {
    let since = Instant::now();
    let volume = Volume::open(&request.volume)?;
    match volume.state()? {
        State::Ours(identity) => return already(&volume, &request, &identity, since),
        State::Foreign(names) => {
            return Err(Error::refused(format!(
                "the volume holds data that this restore has not put there ({}). Nothing was touched. Give the restore \
                 an empty volume",
                names.join(", ")
            )));
        }
        State::Empty => {}
    }
    permitted(&request)?;
    let initial = Initial::of(&request)?;
    let folder = folder(&request.key)?;
    let store = Store::open(&request.store)?;
    let etcdutl = Etcdutl::find(&request.etcdutl).await?;
    let source = Chosen::look(&store, folder, &request).await?;
    source.check_version(etcdutl.version())?;

    let rebuilt = rebuild(&request, &volume, &store, &source, &etcdutl, &initial).await;
    if rebuilt.is_err() {
        // The space may be what was missing, and nothing in it can be used.
        volume.tidy();
    }
    let report = report(rebuilt?, false, since);
    tracing::info!(uri = report.uri, db_bytes = report.db_bytes, millis = report.millis, "restored");
    Ok(report)
}

/// The steps that write: all in the staging folder, until the rename.
async fn rebuild(
    request: &RestoreRequest,
    volume: &Volume,
    store: &Store,
    source: &Chosen,
    etcdutl: &Etcdutl,
    initial: &Initial<'_>,
) -> Result<Restored> {
    let staging = volume.stage()?;
    volume.check_space(source.manifest.db_bytes.saturating_mul(COPIES).saturating_add(BESIDE_DATABASE))?;
    let (snapshot, file) = staging.snapshot()?;
    source.download(store, file, Duration::from_secs(request.stall_seconds.into())).await?;
    let data = staging.data();
    etcdutl.restore(&snapshot, &data, initial, source.manifest.db_bytes).await?;
    staging.drop_snapshot()?;
    let restored = source.restored(store, &request.restore_uid);
    identity(request, &data, restored.clone())?.write(&data)?;
    let published = tokio::task::spawn_blocking(move || staging.publish()).await;
    published.map_err(|error| crate::error::task_error(&error))??;
    Ok(restored)
}

/// A complete volume, if it is really this request's.
fn already(volume: &Volume, request: &RestoreRequest, found: &Identity, since: Instant) -> Result<RestoredReport> {
    if let Some((_, why)) = differs(found, &request.identity, Some(&request.restore_uid)) {
        return Err(Error::refused(format!(
            "the volume is complete, but not for this restore: {why}. Nothing was touched. Give the restore an empty \
             volume"
        )));
    }
    volume.tidy();
    // `differs` has compared the restore's UID, so there is one.
    let restored = found.restored.clone().ok_or_else(|| Error::refused("the volume was never restored"))?;
    tracing::info!("the volume is complete already: nothing to do");
    Ok(report(restored, true, since))
}

/// Whether the operator (still) wants this empty volume filled.
fn permitted(request: &RestoreRequest) -> Result<()> {
    let Some(annotations) = &request.annotations else { return Ok(()) };
    let claim = &request.identity.claim_uid;
    let told = Annotations::read(annotations);
    if told.permit_empty(claim) {
        return Ok(());
    }
    let why = match told.started {
        Ok(0) => format!("the Pod's annotation {MAY_START_EMPTY} does not allow to fill it"),
        Ok(number) => format!("Pod number {number} of this member has served"),
        Err(why) => format!("the Pod's annotations cannot be read: {why}"),
    };
    Err(Error::refused(format!(
        "the volume (claim {claim}) is empty and is not filled: {why}. A member that has served is replaced, never \
         restored again"
    )))
}

/// The snapshot's folder, or what is wrong with the key.
fn folder(key: &str) -> Result<Folder> {
    let folder = Folder::parse("key", key).map_err(|error| store::layout(&error))?;
    let name = folder.as_str().rsplit('/').next().unwrap_or_default();
    if name == crate::layout::MANIFEST || name.contains(".db") {
        return Err(Error::config(format!(
            "{key} names an object: give the folder that holds {}. Restoring a snapshot file without a manifest is not \
             supported yet",
            crate::layout::MANIFEST
        )));
    }
    Ok(folder)
}

/// The one member that the rebuilt data names.
struct Initial<'a> {
    name: &'a str,
    peer_url: &'a str,
    cluster: &'a str,
    token: &'a str,
}

impl<'a> Initial<'a> {
    fn of(request: &'a RestoreRequest) -> Result<Self> {
        let cluster = request.initial_cluster.as_str();
        let wrong = |what: &str| Error::config(format!("--initial-cluster={cluster:?} {what}"));
        let (name, peer_url) = cluster.split_once('=').ok_or_else(|| wrong("is not name=peerURL"))?;
        if peer_url.contains([',', '=']) {
            return Err(wrong("names more than one member: a restore makes one seed, the others join it"));
        }
        if name != request.identity.member_name {
            return Err(wrong(&format!("does not name the member {}", request.identity.member_name)));
        }
        if !(peer_url.starts_with("http://") || peer_url.starts_with("https://")) {
            return Err(wrong("has no http or https peer URL"));
        }
        Ok(Self { name, peer_url, cluster, token: &request.identity.cluster_token })
    }
}

/// The snapshot to restore, looked at and not read yet.
struct Chosen {
    manifest: Manifest,
    data: Key,
    stat: Stat,
    /// What it is decrypted with, when it is encrypted.
    identities: Option<Identities>,
}

impl Chosen {
    /// Reads the manifest and checks everything that can be checked without the data.
    async fn look(store: &Store, folder: Folder, request: &RestoreRequest) -> Result<Self> {
        let json = store.get_small(&folder.manifest(), manifest::MAX_BYTES).await.map_err(|error| {
            if error.class() == crate::contract::ExitClass::NotFound {
                return error.context("no complete snapshot is there");
            }
            error
        })?;
        let manifest = Manifest::parse(&json).map_err(|error| error.context(store.uri(&folder.manifest())))?;
        if let Some(expected) = &request.expect_sha256
            && !expected.eq_ignore_ascii_case(&manifest.sha256)
        {
            return Err(Error::corrupt(format!(
                "the manifest records sha256 {}, expected is {expected}: this is another snapshot",
                manifest.sha256
            )));
        }
        let identities = manifest.encryption.as_ref().map(|encryption| identities(encryption, request)).transpose()?;
        let data = folder.data(manifest.format());
        let stat = store.stat(&data).await?;
        if stat.bytes != manifest.stored_bytes {
            return Err(Error::corrupt(format!(
                "{} has {} bytes, its manifest says {}: it was cut or exchanged",
                store.uri(&data),
                stat.bytes,
                manifest.stored_bytes
            )));
        }
        Ok(Self { manifest, data, stat, identities })
    }

    /// Data is restored into the version it was written with, or a newer one.
    fn check_version(&self, target: Minor) -> Result<()> {
        let storage = self.manifest.storage_version.as_ref().unwrap_or(&self.manifest.etcd_version);
        match Minor::of(storage) {
            Some(minor) if minor <= target => Ok(()),
            Some(_) => Err(Error::config(format!(
                "the snapshot has storage version {storage}, etcdutl is {}.{}: restore into that version or a newer one",
                target.0, target.1
            ))),
            None => Err(Error::corrupt(format!("the manifest's storage version {storage:?} is no version"))),
        }
    }

    /// Reads the data into a file and compares everything that is known about it.
    async fn download(&self, store: &Store, file: std::fs::File, stall: Duration) -> Result<()> {
        let Manifest { db_bytes, stored_bytes, compression, .. } = self.manifest;
        let progress = Progress::new("reading the snapshot", stored_bytes);
        let stream = store.read(&self.data, &self.stat, Ahead::FAR, &progress);
        let unpacking = unpack::run(stream, compression, self.identities.clone(), db_bytes, file);
        let unpacked = progress.watch(stall, unpacking).await?;
        let found = [
            ("size", unpacked.stored_bytes.to_string(), stored_bytes.to_string()),
            ("sha256", hex::encode(unpacked.stored_sha256), self.manifest.stored_sha256.clone()),
            ("database size", unpacked.database.db_bytes.to_string(), db_bytes.to_string()),
            ("database sha256", hex::encode(unpacked.database.sha256), self.manifest.sha256.clone()),
        ];
        for (what, found, recorded) in found {
            if !found.eq_ignore_ascii_case(&recorded) {
                return Err(Error::corrupt(format!(
                    "{}: its {what} is {found}, its manifest says {recorded}",
                    store.uri(&self.data)
                )));
            }
        }
        Ok(())
    }

    fn restored(&self, store: &Store, restore_uid: &str) -> Restored {
        Restored {
            restore_uid: restore_uid.to_owned(),
            uri: store.uri(&self.data),
            db_bytes: self.manifest.db_bytes,
            sha256: self.manifest.sha256.clone(),
            taken_at: self.manifest.started_at.to_string(),
            from_cluster: self.manifest.from_cluster(),
            other: serde_json::Map::new(),
        }
    }
}

/// The identities given, one of which has to be a recipient's. They are not read for a snapshot that is not encrypted:
/// having keys does not say that all snapshots are, and encryption would not prove who wrote one either; that is what the
/// expected sha256 is for.
fn identities(encryption: &Encryption, request: &RestoreRequest) -> Result<Identities> {
    let recipients = encryption.recipients.join(", ");
    let remedy = "name a Secret with the identity file of one of these keys in spec.bootstrap.restore.identitySecretRefs \
                  (by hand: --age-identity-dir)";
    let found = Identities::read(&request.age_identity_dirs)?;
    if found.is_empty() {
        let none = if request.age_identity_dirs.is_empty() {
            "none is given"
        } else {
            "the Secrets hold none, or are missing"
        };
        return Err(Error::config(format!(
            "the snapshot is encrypted for {recipients}, and an identity is needed to read it: {none}. Please {remedy}"
        )));
    }
    if found.iter().any(|identity| encryption.recipients.contains(&identity.recipient().to_string())) {
        return Ok(found);
    }
    Err(Error::config(format!(
        "the snapshot is encrypted for {recipients}, and the identities given are those of {}: {remedy}",
        found.recipients()
    )))
}

/// `major.minor`: all that storage formats depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Minor(u32, u32);

impl Minor {
    fn of(version: &str) -> Option<Self> {
        let mut parts = version.trim().trim_start_matches('v').split('.');
        Some(Self(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

/// The identity of the rebuilt directory, with the IDs that etcdutl has given it.
fn identity(request: &RestoreRequest, data: &std::path::Path, restored: Restored) -> Result<Identity> {
    let log = wal::metadata_of(&data.join("member").join("wal"))
        .ok()
        .flatten()
        .ok_or_else(|| Error::transient("etcdutl has left no log"))?;
    Ok(Identity {
        restored: Some(restored),
        cluster_id: Some(hex_id(log.cluster_id)),
        member_id: Some(hex_id(log.member_id)),
        ..Identity::new(&request.identity)
    })
}

fn report(restored: Restored, already: bool, since: Instant) -> RestoredReport {
    let Restored { restore_uid, uri, db_bytes, sha256, taken_at, from_cluster, other: _ } = restored;
    let millis = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    RestoredReport { restore_uid, uri, db_bytes, sha256, taken_at, from_cluster, already, millis }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{ExitClass, IdentityFlags};

    #[test]
    fn a_restore_names_exactly_its_own_member() {
        let initial = |cluster: &str| {
            let identity = IdentityFlags { member_name: "m".to_owned(), ..IdentityFlags::default() };
            let request = RestoreRequest { initial_cluster: cluster.to_owned(), identity, ..RestoreRequest::default() };
            Initial::of(&request).map(|initial| initial.peer_url.to_owned()).map_err(|error| error.class())
        };
        assert_eq!(initial("m=http://m.db.ns.svc:2380"), Ok("http://m.db.ns.svc:2380".to_owned()));
        for bad in ["", "m", "m=", "x=http://m:1", "m=http://m:1,x=http://x:1", "m=ftp://m", "m=--force"] {
            assert_eq!(initial(bad), Err(ExitClass::Config), "{bad:?}");
        }
    }

    #[test]
    fn a_key_is_a_folder() {
        assert!(folder("a/b/c/20261121T162233Z-1-2").is_ok());
        for bad in ["a/../b", "", "a/b/snapshot.db", "a/snapshot.db.zst", "a/manifest.json", "/etc/../x"] {
            assert_eq!(folder(bad).unwrap_err().class(), ExitClass::Config, "{bad:?}");
        }
    }

    #[test]
    fn versions_compare_by_minor() {
        assert!(Minor::of("3.6.16") == Minor::of("3.6.0\n") && Minor::of("3.10.0") > Minor::of("v3.9.1"));
        assert_eq!(Minor::of("new"), None);
        assert_eq!(Minor::of("3"), None);
    }
}
