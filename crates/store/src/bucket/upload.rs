//! One multipart upload: parts of equal size, a few under way, and nothing visible before `complete`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_contract::error::{Error, Result, task_error};
use holdfast_contract::{ExitClass, Lock};
use holdfast_layout::Key;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::http::{Heard, PATIENT_WITHIN, WRITE_WITHIN, within};
use super::intent::Shown;
use super::{Bucket, Clients, Plan, RequestedLock, classify, intent};
use crate::Stat;
use crate::error_class;

/// Usual size of a part. Measured: above 8 MiB the size hardly matters for speed, and 16 MiB would exceed the memory budget.
pub(crate) const PART: u64 = 8 << 20;

/// Parts under way while the next part fills. Measured: four are half as fast again as one, eight are no faster.
pub(crate) const PARTS_UNDER_WAY: usize = 4;

/// Error of a requested lock that the store does not confirm.
pub const NO_LOCK: &str = "the store does not confirm the lock: the bucket was created without Object Lock, the \
                                  store does not support Object Lock, or the credentials lack the right \
                                  s3:GetObjectRetention. Correct the cause, or omit --s3-object-lock";

/// An abort is best effort; kubelet gives 30 s in all.
const ABORT_WITHIN: Duration = Duration::from_secs(10);

/// Time for parts that are under way at an abort: 32 MiB at 11 MiB/s.
const LAND_WITHIN: Duration = Duration::from_secs(3);

/// The largest part that every provider takes (Azure: 4000 MiB, S3 and Google: 5 GiB).
const MOST: u64 = 4000 << 20;

/// Returns the part size for about this many bytes: the usual size, or larger if the maximum number of parts requires that.
pub(crate) fn part_size(estimate: u64, most_parts: u64) -> u64 {
    // Twice the estimate: a database grows after its size was read, and incompressible data grows a little.
    estimate.saturating_mul(2).div_ceil(most_parts).next_multiple_of(1 << 20).clamp(PART, MOST)
}

/// Progress of the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completion {
    /// Not requested.
    Before,
    /// Requested, without a certain answer: a store may take minutes.
    Asked,
    /// The store reports an object.
    Done,
}

/// An open multipart upload.
pub struct BucketUpload {
    store: Bucket,
    key: Key,
    path: Path,
    id: String,
    part: u64,
    filling: Vec<Bytes>,
    filled: u64,
    under_way: JoinSet<(usize, object_store::Result<PartId>)>,
    parts: usize,
    stored: BTreeMap<usize, PartId>,
    total: u64,
    completion: Completion,
    /// Lock that the start of the upload requested.
    requested: Option<RequestedLock>,
    lock: Option<Lock>,
    /// Whether the intent belongs to this upload.
    announced: bool,
    /// Removes the leftovers of dead attempts during this upload.
    cleaning: Option<AbortOnDropHandle<()>>,
    /// Reads the intent back to see whether these credentials can read: the first part waits for it.
    showing: Option<AbortOnDropHandle<Shown>>,
    /// Result of that; set with the first part.
    shown: Shown,
    /// Metadata of the complete object.
    seen: Option<Stat>,
    /// Whether parts are sent with their hashes.
    signed: Arc<AtomicBool>,
    /// Whether a slow part blocks nothing else.
    patient: bool,
}

/// Without the upload's ID.
impl fmt::Debug for BucketUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketUpload").field("path", &self.path).field("total", &self.total).finish_non_exhaustive()
    }
}

/// Time after which a part is not sent again: the save gives a waiting stream up after a minute (`save::STALL`), and a second
/// attempt would take as long again.
const AGAIN_WITHIN: Duration = Duration::from_secs(20);

/// Whether to send a part once more. The client repeats a request for some seconds from its start, which on a slow line are
/// over before the first answer; and it does not repeat a part whose bytes were changed on the way.
fn is_worth_another(error: &object_store::Error, patient: bool, started: Instant) -> bool {
    let in_time = patient || started.elapsed() < AGAIN_WITHIN;
    in_time
        && !error_class::repeated(error)
        && !error_class::timed_out(error)
        && classify("", error).class() == ExitClass::Transient
}

impl BucketUpload {
    pub(super) async fn begin(store: &Bucket, key: &Key, plan: Plan) -> Result<Self> {
        let path = store.path(key)?;
        let (sealer, requested) = store.sealer()?;
        let id = store.create(&sealer, &path).await;
        let id = id.map_err(|error| store.error(&store.doing("beginning the upload of", key), &error))?;
        Ok(Self {
            store: store.clone(),
            key: key.clone(),
            path,
            id,
            part: part_size(plan.estimate, store.protocol.most_parts),
            filling: Vec::new(),
            filled: 0,
            under_way: JoinSet::new(),
            parts: 0,
            stored: BTreeMap::new(),
            total: 0,
            completion: Completion::Before,
            requested,
            lock: None,
            announced: false,
            cleaning: None,
            showing: None,
            shown: Shown::default(),
            seen: None,
            signed: Arc::new(AtomicBool::new(true)),
            patient: plan.patient,
        })
    }

    /// Sends parts without hashes, because all of them are read back and compared: hashing each part here for the signature and
    /// in the store for its check proves no more.
    fn unsigned(&mut self) {
        self.signed.store(self.store.clients.unsigned.is_none(), Ordering::Relaxed);
    }

    /// Whether every part was sent with the protocol's hash.
    pub fn is_signed(&self) -> bool {
        self.signed.load(Ordering::Relaxed)
    }

    /// See [`crate::Upload::can_be_taken_back`].
    pub const fn can_be_taken_back(&self) -> bool {
        self.shown.reads && !self.shown.locks && self.store.options.lock.is_none()
    }

    /// Marks the intent as written: the key belongs to this upload. Starts the clean-up and the read of the intent.
    pub(super) fn announced(&mut self, plan: Plan) {
        self.announced = true;
        let (store, key) = (self.store.clone(), self.key.clone());
        let cleaning = async move { intent::clean_up(&store, &key, plan.at).await };
        self.cleaning = Some(AbortOnDropHandle::new(tokio::spawn(cleaning)));
        if plan.read_back {
            let (store, key) = (self.store.clone(), self.key.clone());
            let shown = async move { intent::shown(&store, &key).await };
            self.showing = Some(AbortOnDropHandle::new(tokio::spawn(shown)));
        }
    }

    /// Whether parts get more time than a stream could wait.
    pub const fn is_patient(&self) -> bool {
        self.patient
    }

    /// Returns the store's name for this upload.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn doing(&self) -> String {
        self.store.doing("uploading", &self.key)
    }

    pub async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        self.total += bytes.len() as u64;
        while !bytes.is_empty() {
            // All parts but the last have the same size, as some stores require.
            let room = usize::try_from(self.part - self.filled).unwrap_or(usize::MAX);
            let piece = bytes.split_to(room.min(bytes.len()));
            self.filled += piece.len() as u64;
            self.filling.push(piece);
            if self.filled == self.part {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Sends the filled part, once fewer than the maximum are under way.
    async fn send(&mut self) -> Result<()> {
        // The task started with the announcement, so its result is usually known.
        if let Some(showing) = self.showing.take() {
            self.shown = showing.await.unwrap_or_default();
            if self.shown.reads {
                self.unsigned();
            }
        }
        while self.under_way.len() >= PARTS_UNDER_WAY {
            self.settle().await?;
        }
        let at = self.parts;
        self.parts += 1;
        let most = self.store.protocol.most_parts;
        if self.parts as u64 > most {
            return Err(Error::config(format!("{}: the upload needs more than {most} parts", self.doing())));
        }
        self.filled = 0;
        let payload: PutPayload = std::mem::take(&mut self.filling).into_iter().collect();
        let Clients { usual: writer, unsigned, .. } = self.store.clients.clone();
        let (signed, path, id) = (Arc::clone(&self.signed), self.path.clone(), self.id.clone());
        let (patient, started) = (self.patient, Instant::now());
        let limit = if patient { PATIENT_WITHIN } else { WRITE_WITHIN };
        self.under_way.spawn(within(limit, async move {
            let mut again = true;
            if let Some(unsigned) = unsigned.filter(|_| !signed.load(Ordering::Relaxed)) {
                match unsigned.put_part(&path, &id, at, payload.clone()).await {
                    // A bucket's policy may refuse unsigned bodies (AWS: the condition key s3:x-amz-content-sha256).
                    Err(error) if classify("", &error).class() == ExitClass::Denied => {
                        signed.store(true, Ordering::Relaxed);
                    }
                    Err(error) if is_worth_another(&error, patient, started) => again = false,
                    sent => return (at, sent),
                }
            }
            match writer.put_part(&path, &id, at, payload.clone()).await {
                Err(error) if again && is_worth_another(&error, patient, started) => {
                    (at, writer.put_part(&path, &id, at, payload).await)
                }
                sent => (at, sent),
            }
        }));
        Ok(())
    }

    /// Waits for one part.
    async fn settle(&mut self) -> Result<()> {
        match self.under_way.join_next().await {
            None => Ok(()),
            Some(Ok((at, Ok(part)))) => {
                self.stored.insert(at, part);
                Ok(())
            }
            Some(Ok((_, Err(error)))) if error_class::timed_out(&error) => {
                Err(Error::transient(format!("{}: {}", self.doing(), too_slow(self.patient, self.part))))
            }
            Some(Ok((_, Err(error)))) => Err(self.store.error(&self.doing(), &error)),
            Some(Err(error)) => Err(task_error(&error)),
        }
    }

    /// Sends the last part, and waits until the store has all parts.
    pub async fn flush(&mut self) -> Result<()> {
        if !self.filling.is_empty() {
            self.send().await?;
        }
        while !self.under_way.is_empty() {
            self.settle().await?;
        }
        Ok(())
    }

    pub async fn complete(&mut self) -> Result<()> {
        self.finish().await?;
        // Takes some seconds at most from its start, and never runs beside a manifest.
        if let Some(cleaning) = self.cleaning.take() {
            let _ended = cleaning.await;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        self.flush().await?;
        self.completion = Completion::Asked;
        let parts = std::mem::take(&mut self.stored).into_values().collect();
        // All parts are sent, so no stream waits: stores that assemble the parts byte by byte get their time.
        let completed = self.store.clients.usual.complete_multipart(&self.path, &self.id, parts);
        let completed = within(PATIENT_WITHIN, completed).await;
        if completed.is_ok() {
            self.completion = Completion::Done;
        }
        // The stored object decides, also after a lost answer to `complete`.
        match (self.store.head(&self.path).await, completed) {
            (Ok((meta, heard)), _) if meta.size == self.total => {
                let tied = meta.e_tag.is_some();
                self.seen = tied.then_some(Stat { bytes: meta.size, etag: meta.e_tag, written: None });
                self.locked(Some(&heard))
            }
            (Ok((meta, _)), Ok(_)) => Err(Error::corrupt(format!(
                "{}: {} bytes were sent and the store has {}",
                self.doing(),
                self.total,
                meta.size
            ))),
            (_, Err(error)) => Err(self.store.error(&self.doing(), &error)),
            // This request has no special options, so the upload's flags are not refused.
            (Err(error), Ok(_)) => match classify(&self.doing(), &error) {
                // Write-only credentials: the answer to `complete` is the only evidence.
                denied if denied.class() == ExitClass::Denied => self.locked(None),
                // Completed and then removed: another run took the upload for a dead run's.
                gone if gone.class() == ExitClass::NotFound => Err(Error::transient(gone.message())),
                error => Err(error),
            },
        }
    }

    /// Checks the requested lock; without it the object is no backup: real servers accept the request and do not lock.
    /// Credentials without the right to read the lock leave it unconfirmed.
    fn locked(&mut self, heard: Option<&Heard>) -> Result<()> {
        let Some((mode, until)) = self.requested else { return Ok(()) };
        let kept = heard.map(|heard| heard.locked_until.is_some_and(|kept| kept >= until));
        if kept == Some(false) {
            return Err(Error::config(format!("{}: {NO_LOCK}", self.doing())));
        }
        self.lock = Some(Lock { mode, until, confirmed: kept.is_some() });
        Ok(())
    }

    /// Returns the metadata of the complete object, if an ETag ties reads to it.
    pub const fn seen(&self) -> Option<&Stat> {
        self.seen.as_ref()
    }

    /// Returns the lock of the complete object.
    pub fn lock(&self) -> Option<Lock> {
        self.lock.clone()
    }

    /// Removes the intent. If that fails, the next run sees the manifest and removes only the intent.
    pub async fn published(&mut self) {
        let removed = tokio::time::timeout(ABORT_WITHIN, intent::remove(&self.store, self.key.folder())).await;
        if let Ok(Err(error)) = removed {
            tracing::debug!(%error, "the upload's intent stays behind");
        }
    }

    /// Removes the data, unless it has a manifest: copies of the same snapshot share a key (I6).
    async fn take_back(&self) -> Result<()> {
        let manifest = self.store.stat(&self.key.folder().manifest()).await;
        let unreferenced = match &manifest {
            Ok(_) => false,
            Err(error) => matches!(error.class(), ExitClass::NotFound | ExitClass::Denied),
        };
        // An upload with its own name can be aborted in any case.
        let mut aborted = false;
        if unreferenced || !self.store.protocol.parts_stay {
            let given_up = self.store.give_up(&self.path, &self.id).await;
            aborted = given_up.map_err(|error| classify("aborting the upload", &error))?;
        }
        if unreferenced && self.completion != Completion::Before {
            let erased = match self.store.clients.usual.head(&self.path).await {
                Ok(_) => self.store.erase(&self.path).await,
                // If the store does not know the upload, it may be making the object.
                Err(object_store::Error::NotFound { .. })
                    if self.completion == Completion::Asked && !aborted && !self.store.protocol.parts_stay =>
                {
                    return Err(Error::transient(
                        "the store has the request to complete the upload, and may still complete the upload",
                    ));
                }
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                // The object may exist: then only the intent points to it.
                Err(unknown) => Err(unknown),
            };
            erased.map_err(|error| classify("removing data without a manifest", &error))?;
        }
        match manifest {
            Err(error) if !unreferenced => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub async fn abort(&mut self) {
        let abort = async {
            // S3 may keep a part that is under way at the abort (S3: AbortMultipartUpload).
            let landed = async { while self.under_way.join_next().await.is_some() {} };
            if tokio::time::timeout(LAND_WITHIN, landed).await.is_err() {
                self.under_way.shutdown().await;
            }
            let taken_back = match self.take_back().await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(path = %self.path, %error, "the uploaded data stays for now");
                    false
                }
            };
            // If the removal failed, the intent stays, and names the upload that the next run removes.
            let intent = match (taken_back, self.announced) {
                (false, _) => Ok(()),
                (true, true) => intent::remove(&self.store, self.key.folder()).await,
                (true, false) => intent::remove_own(&self.store, self.key.folder(), &self.id).await,
            };
            if let Err(error) = intent {
                tracing::debug!(%error, "the upload's intent stays behind");
            }
        };
        if tokio::time::timeout(ABORT_WITHIN, abort).await.is_err() {
            tracing::warn!(path = %self.path, "the upload could not be aborted in time; the lineage's next save aborts \
                                               the upload");
        }
    }
}

/// Describes a part that did not arrive in time, with a remedy.
fn too_slow(patient: bool, part: u64) -> String {
    let mib = part >> 20;
    if patient {
        return format!(
            "the store is too slow: the store has not taken {mib} MiB in {} s, or no byte for {} s. The agent sends \
             {PARTS_UNDER_WAY} such parts at a time. Check the network to the store",
            PATIENT_WITHIN.as_secs(),
            WRITE_WITHIN.as_secs()
        );
    }
    format!(
        "the store is too slow: the store has not taken {mib} MiB in {} s. While a save waits for the store, etcd \
         cannot reuse the space of deleted data. Check the network to the store, or buffer the snapshot on a volume \
         (spec.spool, --spool-dir)",
        WRITE_WITHIN.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn etcd_never_needs_more_than_the_usual_part() {
        assert_eq!(part_size(0, 10_000), PART);
        assert_eq!(part_size(8 << 30, 10_000), PART);
        assert_eq!(part_size(39 << 30, 10_000), PART);
    }

    #[test]
    fn a_slow_store_is_told_by_who_waits() {
        let (copy, save) = (too_slow(true, PART), too_slow(false, PART));
        assert!(copy.contains("8 MiB in 600 s") && !copy.contains("etcd"), "no etcd waits for a copy: {copy}");
        assert!(save.contains("8 MiB in 40 s") && save.contains("spec.spool"), "{save}");
    }

    /// S3's limits: 5 TiB for an object, 5 MiB to 5 GiB for a part.
    const LARGEST_OBJECT: u64 = 5 << 40;
    const SMALLEST_PART: u64 = 5 << 20;
    const LARGEST_PART: u64 = 5 << 30;

    proptest! {
        #[test]
        fn there_are_never_too_many_parts(estimate in 0..=LARGEST_OBJECT, most in 10_000u64..=50_000) {
            let part = part_size(estimate, most);
            prop_assert!((estimate * 2).div_ceil(part) <= most);
            prop_assert!(part >= PART);
        }

        /// For any size that a member reports.
        #[test]
        fn a_part_is_always_one_that_a_store_takes(estimate: u64, most in 10_000u64..=50_000) {
            let part = part_size(estimate, most);
            prop_assert!((SMALLEST_PART..=LARGEST_PART).contains(&part), "{part}");
        }
    }
}
