//! `agent copy`: complete snapshots from one store to another, under the same key, verified on the way.
//!
//! This file decides which objects may exist at the destination, and the order: the agent copies the stored bytes and compares
//! their hash with the manifest, reads them back from the destination, and then writes the manifest, byte for byte. It never
//! publishes or overwrites different data. It leaves an existing copy as it is, and reports an error if the copy lacks the
//! requested lock. It decrypts and unpacks nothing, so it needs no key. Proofs are not copied: they describe their own store.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use futures::StreamExt;
use futures::future::BoxFuture;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{CopyRequest, ExitClass};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::progress::{Progress, STALL};
use holdfast_io::sha256::Sha256;
use holdfast_io::table::align_columns;
use holdfast_layout::manifest::{self, Manifest};
use holdfast_layout::{Folder, Key, attempt_time};
use holdfast_store::fingerprint::{Fingerprint, Sum};
use holdfast_store::{Ahead, Plan, Store, Upload};
use indicatif::HumanBytes;
use jiff::Timestamp;
use serde::Serialize;

use holdfast_catalog::attempts::{attempts, lineages};
use holdfast_catalog::publish;
use holdfast_catalog::read_back;
use holdfast_catalog::reread;
use holdfast_catalog::store_id;
use holdfast_catalog::stored;
use holdfast_catalog::stored::Stored;

mod unfinished;

/// How one snapshot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Ended {
    /// The agent has copied the snapshot.
    Copied,
    /// The same snapshot existed at the destination.
    Already,
    /// The snapshot has no manifest: a save is running or has died.
    Incomplete,
    /// The copy failed.
    Failed,
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Copied {
    /// Folder below the prefix of both stores.
    pub key: String,
    /// Result.
    pub ended: Ended,
    /// Stored bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// Reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// All results, and the error of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// The results in order.
    pub copies: Vec<Copied>,
    /// The first error.
    pub failed: Option<Error>,
}

/// Copies the requested snapshots. A failed snapshot does not stop the others.
pub fn run(request: CopyRequest) -> BoxFuture<'static, Result<Copies>> {
    Box::pin(async move {
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        let (from, to) = (Store::open(&request.store)?, Store::open(&request.to.0)?);
        let at = clock::now();
        let until = clock::later(at, request.deadline_seconds)?;
        // Before the first upload, whose start removes dead uploads (I25).
        interrupt.unless(store_id::check_before_write(&request.to.0, request.to_expect_store_id.as_deref())).await?;
        let folders = match &request.key {
            Some(key) => vec![stored::folder(key)?],
            None => interrupt.unless(all(&from, &request)).await?,
        };
        let (mut copies, mut failed) = (Vec::new(), None);
        for folder in &folders {
            let one = CopyRun { from: &from, to: &to, folder, at, until };
            let mut copied =
                Copied { key: folder.to_string(), ended: Ended::Failed, stored_bytes: None, problem: None };
            match one.copy(&mut interrupt).await {
                Ok((ended, bytes)) => (copied.ended, copied.stored_bytes) = (ended, Some(bytes)),
                Err(Trouble::Incomplete(_)) if request.all => copied.ended = Ended::Incomplete,
                Err(Trouble::Incomplete(error) | Trouble::Failed(error)) => {
                    copied.problem = Some(error.message().to_owned());
                    failed.get_or_insert(error);
                }
            }
            copies.push(copied);
            // After a signal or the deadline the agent starts no other copy.
            if interrupt.came() {
                break;
            }
        }
        Ok(Copies { copies, failed })
    })
}

/// Returns every folder of a cluster that may be a snapshot, the oldest first.
async fn all(from: &Store, request: &CopyRequest) -> Result<Vec<Folder>> {
    let (Some(namespace), Some(cluster)) = (&request.namespace, &request.cluster) else {
        return Err(Error::config("--all needs --namespace and --cluster"));
    };
    let places = match &request.lineage {
        None => lineages(from, namespace, cluster, None).await?,
        Some(lineage) => {
            let place = Folder::of_cluster(namespace, cluster, None).and_then(|cluster| cluster.child(lineage));
            vec![place.map_err(|error| holdfast_store::layout(&error))?]
        }
    };
    let mut folders = Vec::new();
    for place in places {
        folders.extend(attempts(from, &place).await?.into_iter().map(|folder| (attempt_time(folder.name()), folder)));
    }
    if folders.is_empty() {
        return Err(Error::not_found(format!("there is no snapshot of {namespace}/{cluster} to copy")));
    }
    folders.sort();
    Ok(folders.into_iter().map(|(_, folder)| folder).collect())
}

/// Reason for which one snapshot was not copied.
enum Trouble {
    /// The snapshot has no manifest.
    Incomplete(Error),
    /// Anything else.
    Failed(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The copy of one snapshot.
struct CopyRun<'a> {
    from: &'a Store,
    to: &'a Store,
    folder: &'a Folder,
    at: Timestamp,
    until: Timestamp,
}

impl CopyRun<'_> {
    async fn copy(&self, interrupt: &mut Interrupt) -> Result<(Ended, u64), Trouble> {
        let found = interrupt.unless(stored::manifest_in_its_place(self.from, self.folder)).await;
        let (manifest, json) = found.map_err(|error| match error.class() {
            ExitClass::NotFound => Trouble::Incomplete(error),
            _ => Trouble::Failed(error),
        })?;
        let bytes = manifest.stored_bytes;
        let there = interrupt.unless(self.read_destination(&manifest, &json)).await?;
        if there == Destination::Complete {
            for key in [self.folder.data(manifest.format()), self.folder.manifest()] {
                interrupt.unless(self.locked(&key, there)).await?;
            }
            return Ok((Ended::Already, bytes));
        }
        // The writer of this data may still take it back (I6).
        if let Some(until) = interrupt.unless(self.to.held(self.folder, self.at)).await? {
            return Err(Error::transient(format!(
                "{}: {}",
                self.to.uri(self.folder),
                holdfast_store::busy_until(until)
            ))
            .into());
        }
        let stored = interrupt.unless(Stored::check(self.from, self.folder, manifest)).await?;
        if there == Destination::Data {
            self.publish_left(&stored, json, interrupt).await?;
            return Ok((Ended::Copied, bytes));
        }
        let plan = Plan { estimate: bytes, at: self.at, until: self.until, read_back: true, patient: true };
        let mut upload = self.to.begin_unless(&self.folder.data(stored.manifest.format()), plan, interrupt).await?;
        if let Err(error) = self.data(&stored, &json, &mut upload, interrupt).await {
            upload.abort().await;
            return Err(error.into());
        }
        publish::run(self.to, Some(&mut upload), &stored.data, json, interrupt).await?;
        tracing::info!(uri = self.to.uri(&stored.data), bytes, "copied");
        Ok((Ended::Copied, bytes))
    }

    /// Reads the state of the destination.
    async fn read_destination(&self, manifest: &Manifest, json: &Bytes) -> Result<Destination> {
        let data = self.folder.data(manifest.format());
        let size = match self.to.stat(&data).await {
            Ok(stat) => Some(stat.bytes),
            Err(error) if error.class() == ExitClass::NotFound => None,
            Err(error) => return Err(error),
        };
        let refused = |what: &str| {
            Error::refused(format!(
                "{}: {what}. The agent changed nothing: the agent never overwrites stored data",
                self.to.uri(self.folder)
            ))
        };
        let published = match self.to.get_small(&self.folder.manifest(), manifest::MAX_BYTES).await {
            Ok(there) if there == *json => true,
            Ok(there) => {
                let other = refused("the destination holds another manifest");
                return Err(reread::of_manifest(self.to, self.folder, &there, other).await);
            }
            Err(error) if error.class() == ExitClass::NotFound => false,
            Err(error) => return Err(error),
        };
        match (size, published) {
            (Some(bytes), _) if bytes != manifest.stored_bytes => {
                let recorded = manifest.stored_bytes;
                Err(refused(&format!(
                    "the destination holds data of {bytes} bytes, and the manifest records {recorded}"
                )))
            }
            (Some(_), true) => Ok(Destination::Complete),
            (Some(_), false) => Ok(Destination::Data),
            (None, true) => Err(refused("the destination holds this manifest without its data")),
            (None, false) => Ok(Destination::Nothing),
        }
    }

    /// Checks that an existing object has the requested lock: the agent cannot lock it later.
    async fn locked(&self, key: &Key, there: Destination) -> Result<()> {
        let Some(lock) = self.to.lock_of(key).await? else { return Ok(()) };
        // The retention time of a complete copy counts from its upload, that of unfinished data from now.
        let from = if there == Destination::Complete { lock.stored } else { self.at };
        if lock.lasts(from, self.at) {
            return Ok(());
        }
        let kept = lock.kept.map_or_else(
            || "not locked, or these credentials lack the right s3:GetObjectRetention".to_owned(),
            |kept| format!("locked until {kept} and no longer"),
        );
        Err(Error::config(format!(
            "{}: an earlier copy wrote this object, {kept}. --to-s3-object-lock asks for more, and the agent does not \
             lock existing objects. Remove the earlier copy and try again, or omit the lock",
            self.to.uri(key)
        )))
    }

    /// Copies the data, and reads it back.
    async fn data(&self, stored: &Stored, json: &Bytes, upload: &mut Upload, interrupt: &mut Interrupt) -> Result<()> {
        // Another copy may have ended between the first look at the destination and the start of this upload.
        if interrupt.unless(self.read_destination(&stored.manifest, json)).await? != Destination::Nothing {
            return Err(Error::transient(format!(
                "{}: another run has just copied this snapshot",
                self.to.uri(self.folder)
            )));
        }
        let progress = Progress::new("copying", stored.manifest.stored_bytes);
        let sending = async {
            let mut stream = stored.read(self.from, Ahead::FAR, &progress);
            let (mut hash, mut bytes) = (Sha256::new(), 0_u64);
            let mut crc = crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme);
            while let Some(piece) = stream.next().await {
                let piece = piece?;
                hash.update(&piece);
                crc.update(&piece);
                bytes += piece.len() as u64;
                progress.outlast(upload.is_patient(), upload.write(piece)).await?;
            }
            Ok((bytes, hash.finalize(), crc.finalize()))
        };
        let sent = interrupt.unless(progress.watch(STALL, sending)).await;
        let sent = sent.and_then(|(bytes, sha256, crc64)| {
            stored.agrees_with(self.from, (bytes, sha256)).map(|()| Fingerprint { bytes, crc64 })
        });
        let given = match sent {
            Ok(given) => given,
            Err(error) => {
                return interrupt.unless(async { Err(stored.confirm(self.from, error, STALL).await) }).await;
            }
        };
        interrupt.unless(upload.complete()).await?;
        interrupt.unless(read_back::uploaded(self.to, upload, &stored.data, given, STALL)).await
    }

    /// Reads back the data of an earlier copy and compares it with the manifest.
    async fn read_back(&self, stored: &Stored) -> Result<()> {
        let Manifest { stored_bytes, ref stored_sha256, .. } = stored.manifest;
        let mut sha256 = [0; 32];
        hex::decode_to_slice(stored_sha256, &mut sha256)
            .map_err(|_| Error::corrupt("the manifest's storedSha256 is no sha256"))?;
        read_back::compare(self.to, &stored.data, stored_bytes, Sum::Sha256(sha256), STALL).await
    }
}

/// State of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// The same snapshot, complete.
    Complete,
    /// Data of its size, and no manifest.
    Data,
    /// No objects.
    Nothing,
}

impl Copies {
    /// Formats the results for a terminal: a line for each snapshot, and their number.
    pub fn table(&self) -> String {
        let head = ["", "STORED", "KEY"].map(str::to_owned);
        let rows = self.copies.iter().map(|copied| {
            let ended = match copied.ended {
                Ended::Copied => "copied",
                Ended::Already => "already there",
                Ended::Incomplete => "incomplete",
                Ended::Failed => "FAILED",
            };
            let bytes = copied.stored_bytes.map_or_else(|| "-".to_owned(), |bytes| HumanBytes(bytes).to_string());
            let problem = copied.problem.as_ref().map(|problem| format!("  ({problem})")).unwrap_or_default();
            [ended.to_owned(), bytes, format!("{}{problem}", copied.key)]
        });
        let count = |ended| self.copies.iter().filter(|copied| copied.ended == ended).count();
        format!(
            "{}{} copied, {} already there, {} incomplete, {} failed\n",
            align_columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>()),
            count(Ended::Copied),
            count(Ended::Already),
            count(Ended::Incomplete),
            count(Ended::Failed)
        )
    }
}
