//! `agent probe`: tests a store's abilities by using them.
//!
//! This file decides which trials run and what follows from each. Real servers answer 200 to requests that they ignore, so
//! every result comes from reading back. A failed required trial makes the store unusable; a failed optional trial weakens a
//! promise and is a warning. Every trial works below one folder of the probe's own, which the probe removes at every end. Two
//! things stay: the store ID of a usable store, and old versions that the store keeps of removed objects, which the report
//! names. If the store ID is not the expected ID, no trial runs (I25). `probe/credentials.rs` decides which credentials each request uses.

mod credentials;

use futures::future::BoxFuture;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{Compression, ExitClass, FailedReport, ProbeRequest};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::progress::Progress;
use holdfast_layout::{Folder, Key};
use holdfast_store::trial::Put;
use holdfast_store::{Ahead, NO_LOCK, Plan, Store, Upload};
use tokio::time::timeout;

use credentials::StoreCredentials;
use holdfast_catalog::store_id::{self, Expected, Found, Verdict};
pub use holdfast_contract::{Finding, Outcome, Probed, Trial};

/// One part of the usual size and the first bytes of a second part.
const LARGE: usize = (8 << 20) + (64 << 10);

/// Note on a store that keeps versions: the probe asks for no right to remove them.
const STAYS: &str = "removed objects stay as old versions, more than 8 MiB after each whole probe, until a lifecycle \
                     rule of the bucket removes noncurrent versions";

/// Note on a store that denies removals: a careful choice for credentials that only save.
const GARBAGE: &str = "the objects of each probe stay, more than 8 MiB, and so does the data of killed saves: remove \
                       this data by hand, or with a lifecycle rule of the bucket (a probe's keys begin with \
                       .holdfast-probe- below the prefix)";

/// Placeholder for the folder of any probe.
const ANY_FOLDER: &str = ".holdfast-probe-*";

/// Time to remove all objects, however the probe ended.
const CLEAR_WITHIN: Duration = Duration::from_secs(20);

/// Lifetime of a probe's upload. Afterwards any run may remove the leftovers.
const TRIED_SECONDS: u32 = 3600;

/// Findings, and the first failure that makes the store unusable.
#[derive(Debug)]
pub struct Ended {
    /// The findings up to the failure.
    pub probed: Probed,
    /// Reason for which the store is not usable.
    pub failed: Option<Error>,
}

/// Runs the trials. An error means that the agent could not open the store.
pub fn run(request: ProbeRequest) -> BoxFuture<'static, Result<Ended>> {
    Box::pin(async move {
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        let sides = StoreCredentials::open(&request)?;
        let folder =
            Folder::of_probe(&holdfast_io::process::random_uid()?).map_err(|error| holdfast_store::layout(&error))?;
        let uri = sides.writes.uri(&folder);
        let mut probe = Probe {
            sides,
            attempt: folder.child("try").map_err(|error| holdfast_store::layout(&error))?,
            folder,
            findings: Vec::new(),
            store_id: None,
            wrote: false,
        };
        let expected = request.expect_store_id.as_deref();
        let expected = expected.map(|id| Expected { id, or: request.accept_store_id.as_deref() });
        let failed = interrupt.unless(probe.everything(expected)).await.err();
        // In a store with another ID no trial ran, so nothing is cleared (I25).
        let refused = failed.as_ref().is_some_and(|error| error.class() == ExitClass::Refused);
        let cleared =
            refused || matches!(timeout(CLEAR_WITHIN, probe.sides.writes.try_clear(&probe.folder)).await, Ok(Ok(())));
        let left_behind = (!cleared && probe.wrote).then_some(uri);
        let Probe { mut findings, store_id, folder, .. } = probe;
        for found in &mut findings {
            found.detail = mask_folder(&found.detail, &folder);
        }
        for trial in Trial::ALL {
            if !findings.iter().any(|found| found.trial == trial) {
                let detail = "not tried".to_owned();
                findings.push(Finding { trial, outcome: Outcome::NotTried, needed: trial.needed(), detail });
            }
        }
        let order = |trial| Trial::ALL.iter().position(|other| *other == trial);
        findings.sort_by_key(|found| order(found.trial));
        let report = failed.as_ref().map(|e| FailedReport {
            class: e.class(),
            origin: e.origin(),
            message: mask_folder(e.message(), &folder),
        });
        let usable = failed.is_none();
        let probed = Probed { store: request.store.url, usable, findings, store_id, left_behind, failed: report };
        Ok(Ended { probed, failed })
    })
}

/// Replaces the random name of the probe's folder. Conditions quote the message, on the store and on every object that waits
/// for the store; a changing name would change them at each probe (I17).
fn mask_folder(text: &str, folder: &Folder) -> String {
    text.replace(folder.name(), ANY_FOLDER)
}

struct Probe {
    sides: StoreCredentials,
    folder: Folder,
    attempt: Folder,
    findings: Vec<Finding>,
    store_id: Option<String>,
    /// Whether the store may hold objects of this probe.
    wrote: bool,
}

impl Probe {
    /// Order of the trials: first the store ID, then the trials that show wrong credentials.
    async fn everything(&mut self, expected: Option<Expected<'_>>) -> Result<()> {
        let marked = self.same(expected).await?;
        self.small_objects().await?;
        // A store that keeps versions keeps a large object for long: trials that can end the probe come before the large
        // object.
        self.versions().await;
        self.lock().await?;
        self.large_objects().await?;
        self.delete().await;
        if !marked {
            let create_only = |found: &Finding| (found.trial, found.outcome) == (Trial::CreateOnly, Outcome::Yes);
            let create_only = self.findings.iter().any(create_only);
            let made = store_id::create(&self.sides.id_reads, &self.sides.id_writes, create_only).await;
            if expected.is_some() && !matches!(made, Ok(Found::Id(_))) {
                // A save expects a store ID: a store without an ID is of no use.
                let error = made.err().unwrap_or_else(|| Error::corrupt("the store ID is not valid"));
                self.add_finding(Trial::StoreId, Outcome::No, error.message());
                return Err(error);
            }
            let made = made.map(|found| self.known(&found));
            self.record(Trial::StoreId, made);
        }
        Ok(())
    }

    /// Whether the store has the expected ID; `false`: the probe still has to read or create the ID.
    async fn same(&mut self, expected: Option<Expected<'_>>) -> Result<bool> {
        let Some(expected) = expected else { return Ok(false) };
        let (ended, (outcome, detail)) = match store_id::judge(&self.sides.id_reads, expected).await {
            Ok(Verdict::Right(Found::Nothing)) => return Ok(false),
            Ok(Verdict::Right(found)) => (Ok(true), self.known(&found)),
            Ok(Verdict::Unknown(error)) => {
                let detail = format!("Holdfast would not notice another store in this place: {}", error.message());
                (Ok(true), (Outcome::No, detail))
            }
            // The finding names the other ID, so that a user can accept it.
            Ok(Verdict::Another(found, error)) => {
                let (_, detail) = self.known(&found);
                (Err(error), (Outcome::No, detail))
            }
            Err(error) => {
                let detail = error.message().to_owned();
                (Err(error), (Outcome::No, detail))
            }
        };
        self.add_finding(Trial::StoreId, outcome, detail);
        ended
    }

    /// Converts a store ID into a finding.
    fn known(&mut self, found: &Found) -> (Outcome, String) {
        self.store_id = found.id().map(str::to_owned);
        let outcome = if self.store_id.is_some() { Outcome::Yes } else { Outcome::No };
        (outcome, found.says())
    }

    fn add_finding(&mut self, trial: Trial, outcome: Outcome, detail: impl Into<String>) {
        self.findings.push(Finding { trial, outcome, needed: trial.needed(), detail: detail.into() });
    }

    /// Records an optional trial; an error of the store becomes a `No` with the error's message.
    fn record(&mut self, trial: Trial, tried: Result<(Outcome, String)>) {
        match tried {
            Ok((outcome, detail)) => self.add_finding(trial, outcome, detail),
            Err(error) => self.add_finding(trial, Outcome::No, error.message()),
        }
    }

    /// Records a required trial, and returns its error.
    fn require(&mut self, trial: Trial, detail: &str, tried: Result<()>) -> Result<()> {
        match &tried {
            Ok(()) => self.add_finding(trial, Outcome::Yes, detail),
            Err(error) => self.add_finding(trial, Outcome::No, error.message()),
        }
        tried
    }

    async fn small_objects(&mut self) -> Result<()> {
        // The large object's upload creates the folder that a mounted volume needs.
        let began = self.upload(Compression::Gzip, 1).await;
        let (key, first) = (self.attempt.manifest(), Bytes::from_static(b"first"));
        let wrote = async {
            began?;
            self.sides.writes.put_new(&key, first.clone()).await?;
            let read = self.sides.reads.get_small(&key, 100).await?;
            same(&self.sides.reads, &key, &read, &first)
        };
        let wrote = wrote.await;
        self.require(Trial::ReadAfterWrite, "a new object can be read at once", wrote)?;
        let created = self.create_only(&key, &first).await;
        self.record(Trial::CreateOnly, created);
        let listed = self.sides.reads.children(&self.folder, 1000, |_| true).await.map(|children| {
            if children.names.iter().any(|name| name == "try") {
                (Outcome::Yes, "a new object is listed at once".to_owned())
            } else {
                (
                    Outcome::No,
                    "a listing lacks a new object: Holdfast may not find a snapshot whose report is lost".to_owned(),
                )
            }
        });
        self.record(Trial::ListAfterWrite, listed);
        Ok(())
    }

    async fn create_only(&self, key: &Key, first: &Bytes) -> Result<(Outcome, String)> {
        let put = self.sides.writes.try_put(key, Bytes::from_static(b"second"), true).await;
        let kept = self.sides.reads.get_small(key, 100).await? == first;
        let unsafe_ = "keys are unique, so only another program could overwrite a manifest";
        Ok(match (put, kept) {
            (Ok(Put::Refused), true) => {
                (Outcome::Yes, "a second put was refused and the first content kept".to_owned())
            }
            (Ok(Put::Taken(_)), true) => {
                (Outcome::No, format!("a second put was answered with success and not carried out: {unsafe_}"))
            }
            (Ok(Put::Refused), false) => (Outcome::No, format!("a second put was refused and carried out: {unsafe_}")),
            (Ok(Put::Taken(_)), false) => (Outcome::No, format!("a second put overwrote the first: {unsafe_}")),
            (Err(error), _) => (Outcome::No, format!("{}: {unsafe_}", error.message())),
        })
    }

    async fn large_objects(&mut self) -> Result<()> {
        let content = self.upload(Compression::None, LARGE).await;
        let key = self.place(Compression::None)?.data(Compression::None);
        let whole = async {
            let content = content?;
            let store = &self.sides.reads;
            let stat = store.stat(&key).await?;
            // In several ranges.
            let pieces: Vec<Bytes> = store.read(&key, &stat, Ahead::LITTLE, &Progress::silent()).try_collect().await?;
            same(store, &key, &pieces.concat(), &content)
        };
        let whole = whole.await;
        self.require(Trial::Multipart, "two parts, read back whole", whole)
    }

    async fn begin(&self, compression: Compression, bytes: usize) -> Result<(Upload, Bytes)> {
        let at = clock::now();
        let until = clock::later(at, TRIED_SECONDS)?;
        let plan = Plan { estimate: bytes as u64, at, until, read_back: true, patient: false };
        let mut upload = self.sides.writes.begin(&self.place(compression)?.data(compression), plan).await?;
        let content = noise(bytes);
        if let Err(error) = upload.write(content.clone()).await {
            upload.abort().await;
            return Err(error);
        }
        Ok((upload, content))
    }

    /// Returns the folder for an upload. A folder is created once: each upload has its own, the manifest shares that of the
    /// first upload.
    fn place(&self, compression: Compression) -> Result<Folder> {
        if compression == Compression::Gzip {
            return Ok(self.attempt.clone());
        }
        self.folder.child(compression.as_str()).map_err(|error| holdfast_store::layout(&error))
    }

    async fn upload(&mut self, compression: Compression, bytes: usize) -> Result<Bytes> {
        // After a lost answer, or one cut off by the deadline, the objects may exist.
        let before = std::mem::replace(&mut self.wrote, true);
        let upload_and_content = self.begin(compression, bytes).await;
        if upload_and_content
            .as_ref()
            .is_err_and(|error| !matches!(error.class(), ExitClass::Transient | ExitClass::Deadline))
        {
            self.wrote = before;
        }
        let (mut upload, content) = upload_and_content?;
        if let Err(error) = upload.complete().await {
            upload.abort().await;
            return Err(error);
        }
        upload.published().await;
        Ok(content)
    }

    async fn versions(&mut self) {
        let key = self.folder.manifest();
        let tried = async {
            let older = self.sides.writes.try_put(&key, Bytes::from_static(b"older"), false).await?;
            self.sides.writes.try_put(&key, Bytes::from_static(b"newer"), false).await?;
            let Put::Taken(Some(version)) = older else { return Ok::<_, Error>(None) };
            Ok(Some(self.sides.reads.try_version(&key, version).await))
        };
        let tried = tried.await.map(|kept| match kept {
            Some(Ok(bytes)) if bytes == "older" => {
                (Outcome::Yes, format!("the older content is read by its version: {STAYS}"))
            }
            // Reading a version needs a separate right (S3: s3:GetObjectVersion); an existing version ID is enough.
            Some(Err(error)) if error.class() == ExitClass::Denied => {
                (Outcome::No, format!("{}: {STAYS}", error.message()))
            }
            // Google Cloud Storage gives each content an ID, and keeps older contents only on request.
            Some(Err(error)) if error.class() != ExitClass::NotFound => (Outcome::No, error.message().to_owned()),
            None | Some(Ok(_) | Err(_)) => (Outcome::NotThere, "the store keeps no versions here".to_owned()),
        });
        self.record(Trial::Versions, tried);
    }

    /// Required: users of object lock rely on the lock.
    async fn lock(&mut self) -> Result<()> {
        let Some(locks) = &self.sides.locks else {
            self.add_finding(Trial::ObjectLock, Outcome::NotThere, "not requested (--s3-object-lock)");
            return Ok(());
        };
        let kept = locks.kept(&self.folder.data(Compression::Zstd), Bytes::from_static(b"locked")).await;
        let kept = kept.and_then(|kept| if kept { Ok(()) } else { Err(Error::config(NO_LOCK)) });
        self.require(Trial::ObjectLock, "the store says until when an object is locked", kept)
    }

    async fn delete(&mut self) {
        let tried = self.removed(&self.attempt.manifest()).await;
        self.record(Trial::Delete, tried);
    }

    async fn removed(&self, key: &Key) -> Result<(Outcome, String)> {
        match self.sides.writes.try_delete(key).await {
            Err(error) if error.class() == ExitClass::Denied => {
                return Ok((Outcome::No, format!("{}: {GARBAGE}", error.message())));
            }
            tried => tried?,
        }
        Ok(match self.sides.reads.get_small(key, 100).await {
            Err(error) if error.class() == ExitClass::NotFound => (Outcome::Yes, "a removed object is gone".to_owned()),
            Err(error) => return Err(error),
            Ok(_) => (Outcome::No, "an object exists after its removal: the data of dead saves stays".to_owned()),
        })
    }
}

fn same(store: &Store, key: &Key, read: &[u8], written: &[u8]) -> Result<()> {
    if read == written {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{}: the agent wrote {} bytes and read back {} other bytes",
        store.uri(key),
        written.len(),
        read.len()
    )))
}

/// Returns bytes that no store could guess.
fn noise(bytes: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out.into()
}

#[cfg(test)]
mod tests {
    use holdfast_contract::StoreFlags;

    use super::*;

    #[test]
    fn what_is_said_of_one_probe_s_folder_is_said_of_any() {
        let said = |random: &str| {
            let folder = Folder::of_probe(random).unwrap();
            mask_folder(&format!("reading s3://b/{folder}/try/manifest.json: no; {folder}"), &folder)
        };
        assert_eq!(said("0a1b2c3d-0000"), "reading s3://b/.holdfast-probe-*/try/manifest.json: no; .holdfast-probe-*");
        assert_eq!(said("0a1b2c3d-0000"), said("ffffffff-0000"));
    }

    #[tokio::test]
    async fn a_folder_does_all_that_a_folder_can() {
        let mount = tempfile::tempdir().unwrap();
        let url = format!("file://{}", mount.path().display());
        let flags = StoreFlags { url, ..StoreFlags::default() };
        let request = ProbeRequest { store: flags, deadline_seconds: 60, ..ProbeRequest::default() };
        let ended = run(request.clone()).await.unwrap();
        assert!(ended.failed.is_none() && ended.probed.usable, "{:?}", ended.failed);
        for found in &ended.probed.findings {
            assert!(matches!(found.outcome, Outcome::Yes | Outcome::NotThere), "{found:?}");
        }
        assert_eq!(ended.probed.findings.len(), Trial::ALL.len());
        let left: Vec<_> = std::fs::read_dir(mount.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["holdfast-store.json"], "all but the mark is taken back");
        let id = ended.probed.store_id.clone().unwrap();
        let known = ProbeRequest { expect_store_id: Some(id), ..request };
        assert_eq!(run(known).await.unwrap().probed.findings, ended.probed.findings, "the same store is as usable");
        assert!(ended.probed.table().contains("create-only put    yes"), "{}", ended.probed.table());
    }
}
