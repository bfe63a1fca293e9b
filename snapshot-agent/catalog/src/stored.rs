//! One stored snapshot, given by its key: its manifest, and its bytes compared with the manifest.
//!
//! This file decides which facts must match before the read data may be used. The verbs decide how to use the data.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use holdfast_bbolt::scan::{NEVER, Options, Proven};
use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_io::memory::scan_budget;
use holdfast_io::progress::Progress;
use holdfast_layout::manifest::{Encryption, Manifest};
use holdfast_layout::{Folder, Key, MANIFEST};
use holdfast_store::{Ahead, Stat, Store};

use crate::digest::digest;
use crate::reread::{self, Reading};
use holdfast_format::crypt::Identities;
use holdfast_format::unpack;
use holdfast_format::unpack::Sink;
use holdfast_layout::manifest;

/// A snapshot whose metadata is known and whose data is not read yet.
pub struct Stored {
    /// The manifest.
    pub manifest: Manifest,
    /// The data object.
    pub data: Key,
    stat: Stat,
    /// Length and sha256 from a reading of the data.
    read: OnceLock<Reading>,
    /// Set when a second reading has confirmed the fault.
    confirmed: OnceLock<()>,
}

/// Returns the snapshot's folder, or an error about the key.
pub fn folder(key: &str) -> Result<Folder> {
    let folder = Folder::parse("key", key).map_err(|error| holdfast_store::layout(&error))?;
    let name = folder.name();
    if name == MANIFEST || name.contains(".db") {
        let parent = folder.parent().map(|folder| format!(" ({folder})")).unwrap_or_default();
        return Err(Error::config(format!(
            "{key} names an object of a snapshot: give the folder that holds {MANIFEST}{parent}"
        )));
    }
    Ok(folder)
}

/// Reads a snapshot's manifest; also returns its bytes.
pub async fn manifest_of(store: &Store, folder: &Folder) -> Result<(Manifest, Bytes)> {
    let at = folder.manifest();
    let json = match store.get_small(&at, manifest::MAX_BYTES).await {
        Ok(json) => json,
        Err(error) if error.class() == ExitClass::NotFound => {
            return Err(error.context("the folder holds no complete snapshot"));
        }
        Err(error) => return Err(reread::of_unreadable(store, &at, manifest::MAX_BYTES, error).await),
    };
    match Manifest::parse(&json) {
        Ok(manifest) => Ok((manifest, json)),
        Err(error) => Err(reread::of_manifest(store, folder, &json, error.context(store.uri(&at))).await),
    }
}

/// Reads the manifest of a snapshot in its own folder; also returns its bytes. A moved manifest describes another snapshot;
/// only a restore accepts it, on a user's request.
pub async fn manifest_in_its_place(store: &Store, folder: &Folder) -> Result<(Manifest, Bytes)> {
    let (manifest, json) = manifest_of(store, folder).await?;
    if manifest.key != folder.as_str() {
        let error = Error::corrupt(format!(
            "the manifest in {folder} names the folder {}: Holdfast did not write this manifest here",
            manifest.key
        ));
        return Err(reread::of_manifest(store, folder, &json, error).await);
    }
    Ok((manifest, json))
}

impl Stored {
    /// Checks every fact that needs no data.
    pub async fn check(store: &Store, folder: &Folder, manifest: Manifest) -> Result<Self> {
        let data = folder.data(manifest.format());
        let stat = store.stat(&data).await?;
        if stat.bytes != manifest.stored_bytes {
            let error = Error::corrupt(format!(
                "{} has {} bytes, its manifest says {}: the object was cut or replaced",
                store.uri(&data),
                stat.bytes,
                manifest.stored_bytes
            ));
            let error = reread::of_length(store, &data, Some(stat.bytes), error).await;
            return Err(confirm_manifest(store, folder, &manifest, error).await);
        }
        Ok(Self { manifest, data, stat, read: OnceLock::new(), confirmed: OnceLock::new() })
    }

    /// Confirms an error about this snapshot, if a second reading of its manifest and of its data gives the same.
    pub async fn confirm(&self, store: &Store, error: Error, stall: Duration) -> Error {
        if self.confirmed.get().is_some() {
            return error;
        }
        let error = confirm_manifest(store, self.data.folder(), &self.manifest, error).await;
        let readings = (self.read.get().copied(), self.recorded());
        let error = reread::of_data(store, &self.data, readings, error, stall).await;
        if error.class() == ExitClass::Corrupt {
            self.confirmed.get_or_init(|| ());
        }
        error
    }

    /// Returns length and sha256 of the data from the manifest.
    fn recorded(&self) -> Option<Reading> {
        let mut sha256 = [0; 32];
        hex::decode_to_slice(&self.manifest.stored_sha256, &mut sha256).ok()?;
        Some((self.manifest.stored_bytes, sha256))
    }

    /// Returns the stored bytes, in order.
    pub fn read(&self, store: &Store, ahead: Ahead, progress: &Progress) -> BoxStream<'static, Result<Bytes>> {
        store.read(&self.data, &self.stat, ahead, progress)
    }

    /// Reads the stored bytes and compares only their hash. The caller confirms an error.
    pub async fn digest_once(&self, store: &Store, stall: Duration) -> Result<()> {
        let progress = Progress::new("reading the snapshot", self.manifest.stored_bytes);
        let stream = self.read(store, Ahead::FAR, &progress);
        let found = progress.watch(stall, digest(stream)).await?;
        self.agrees_with(store, found)
    }

    /// Compares a reading of the data with the manifest.
    pub fn agrees_with(&self, store: &Store, found: Reading) -> Result<()> {
        let (bytes, sha256) = *self.read.get_or_init(|| found);
        self.agrees(
            store,
            &[
                ("size", bytes.to_string(), self.manifest.stored_bytes.to_string()),
                ("sha256", hex::encode(sha256), self.manifest.stored_sha256.clone()),
            ],
        )
    }

    /// Reads the data, unpacks it into a sink and compares every recorded fact.
    pub async fn unpack<S: Sink>(
        &self,
        store: &Store,
        identities: Option<Identities>,
        sink: S,
        stall: Duration,
    ) -> Result<S> {
        match self.unpack_once(store, identities, sink, stall).await {
            Err(error) => Err(self.confirm(store, error, stall).await),
            unpacked => unpacked,
        }
    }

    /// Does the same with one reading; the caller confirms an error.
    pub async fn unpack_once<S: Sink>(
        &self,
        store: &Store,
        identities: Option<Identities>,
        sink: S,
        stall: Duration,
    ) -> Result<S> {
        let Manifest { db_bytes, stored_bytes, compression, .. } = self.manifest;
        let progress = Progress::new("reading the snapshot", stored_bytes);
        let stream = self.read(store, Ahead::UNPACKING, &progress);
        let unpacking = unpack::run(stream, (compression, identities), db_bytes, (sink, &progress), &self.read);
        let (unpacked, sink) = progress.watch(stall, unpacking).await.map_err(|error| match error.class() {
            ExitClass::Corrupt => error.context(store.uri(&self.data)),
            // An age header that was damaged on the way fits no identity.
            ExitClass::Config if self.read.get().is_some_and(|read| Some(*read) != self.recorded()) => {
                Error::corrupt(error.message()).context(store.uri(&self.data))
            }
            _ => error,
        })?;
        self.agrees(
            store,
            &[
                ("size", unpacked.stored_bytes.to_string(), stored_bytes.to_string()),
                ("sha256", hex::encode(unpacked.stored_sha256), self.manifest.stored_sha256.clone()),
                ("database size", unpacked.database.db_bytes.to_string(), db_bytes.to_string()),
                ("database sha256", hex::encode(unpacked.database.sha256), self.manifest.sha256.clone()),
            ],
        )?;
        Ok(sink)
    }

    /// Compares revisions and numbers with the manifest, if it records them.
    pub fn structure_agrees(&self, store: &Store, found: &Proven) -> Result<()> {
        let Some(recorded) = &self.manifest.contents else { return Ok(()) };
        let compact = |revision: Option<i64>| revision.unwrap_or(NEVER).to_string();
        let mut pairs = vec![
            ("revision", found.revision.to_string(), recorded.revision.to_string()),
            ("compact revision", compact(found.compact_revision), compact(recorded.compact_revision)),
            ("number of records", found.revisions.to_string(), recorded.revisions.to_string()),
        ];
        if let (Some(found), Some(recorded)) = (found.keys, recorded.keys) {
            pairs.push(("number of keys", found.to_string(), recorded.to_string()));
        }
        self.agrees(store, &pairs)
    }

    /// Compares HashKV with the manifest; returns the reason if that is not possible.
    pub fn hash_agrees(&self, store: &Store, found: &Proven) -> Result<Option<String>> {
        let Some(recorded) = &self.manifest.contents else {
            return Ok(Some("the manifest records no contents to compare with".to_owned()));
        };
        match (found.hash_kv, recorded.hash_kv) {
            (Ok(found), Some(recorded)) => {
                self.agrees(store, &[("HashKV", found.hash.to_string(), recorded.to_string())])?;
                Ok(None)
            }
            (Ok(_), None) => Ok(Some("the manifest records no HashKV to compare with".to_owned())),
            (Err(why), _) => Ok(Some(why.to_string())),
        }
    }

    /// Returns the options for a scan of the data.
    pub fn scan_options(&self) -> Options {
        let contents = self.manifest.contents.as_ref();
        let compact_revision = contents.map(|contents| contents.compact_revision.unwrap_or(NEVER));
        Options { compact_revision, budget_bytes: scan_budget(self.manifest.db_bytes) }
    }

    /// Compares pairs of found and recorded values.
    pub fn agrees(&self, store: &Store, pairs: &[(&str, String, String)]) -> Result<()> {
        match pairs.iter().find(|(_, found, recorded)| !found.eq_ignore_ascii_case(recorded)) {
            None => Ok(()),
            Some((what, found, recorded)) => Err(Error::corrupt(format!(
                "{}: its {what} is {found}, its manifest says {recorded}",
                store.uri(&self.data)
            ))),
        }
    }
}

/// Confirms an error that depends on the manifest, if a second reading gives the same manifest.
pub async fn confirm_manifest(store: &Store, folder: &Folder, manifest: &Manifest, error: Error) -> Error {
    if error.class() != ExitClass::Corrupt {
        return error;
    }
    let again = store.with_new_connections().get_small(&folder.manifest(), manifest::MAX_BYTES).await;
    let again = again.map(|json| Manifest::parse(&json).is_ok_and(|again| again == *manifest));
    reread::judge(error, again)
}

/// Returns the given identities, if one of them belongs to a recipient. Identities are not read for a plain snapshot: owning
/// keys does not mean that all snapshots are encrypted, and encryption would not prove the writer either; the expected sha256
/// proves the data.
pub fn fitting(encryption: &Encryption, found: Identities, none: &str, remedy: &str) -> Result<Identities> {
    let recipients = encryption.recipients.join(", ");
    if found.is_empty() {
        return Err(Error::config(format!("the snapshot is encrypted for {recipients}, and {none}: {remedy}")));
    }
    let given = found.recipients();
    if given.iter().any(|recipient| encryption.recipients.contains(recipient)) {
        return Ok(found);
    }
    Err(Error::config(format!(
        "the snapshot is encrypted for {recipients}, and the given identities belong to {}: {remedy}",
        given.join(", ")
    )))
}

/// Reads the identities of `--identity`, one of which must belong to a recipient.
pub fn identities(encryption: &Encryption, files: &[PathBuf]) -> Result<Identities> {
    let none = if files.is_empty() { "no identity is given" } else { "the given files hold no identity" };
    let remedy = "name the identity file of one of these keys with --identity";
    fitting(encryption, Identities::read_files(files)?, none, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_folder() {
        assert!(folder("a/b/c/20261121T162233Z-1-2").is_ok());
        for bad in ["a/../b", "", "a/b/snapshot.db", "a/snapshot.db.zst", "a/manifest.json", "/etc/../x"] {
            assert_eq!(folder(bad).unwrap_err().class(), ExitClass::Config, "{bad:?}");
        }
        for packed in ["a/b/c/d/snapshot.db.zst", "a/b/c/d/snapshot.db.gz", "a/b/c/d/snapshot.db.zst.age"] {
            let error = folder(packed).unwrap_err();
            assert!(error.message().contains("(a/b/c/d)"), "{error}");
        }
    }
}
