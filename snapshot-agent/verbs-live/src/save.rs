//! `agent save`: one snapshot of one etcd, proven before it is published.
//!
//! This file decides the order. The store must have the expected ID. The upload begins before etcd sends a byte, so that wrong
//! credentials show early. The agent completes the upload only when etcd's own hash at the end of the stream matches and the
//! database's structure is sound, then reads the object back if the request asks for that. The manifest, which makes the data a
//! backup, comes last and only when no member contradicts. The agent asks the members when the stream has ended, not when a
//! slow store has all bytes: until then they may have compacted the revision. While the members hash, the agent completes an
//! upload that is read back and can be taken back (`Upload::can_be_taken_back`). Every failure aborts the upload.
//!
//! `save/pipe.rs` decides how bytes flow, `crates/store` where they go, `save/ask.rs` how members are asked meanwhile.

mod ask;
pub mod dry_run;
pub mod merged;
mod pipe;
mod read_upload;

use futures::future::BoxFuture;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::Stream;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{DEFAULT_SPOOL_MIB, MAX_CLUSTER_SPEC, SaveRequest, SavedReport, Verification, Verify, hex_id};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::process::{peak_rss_bytes, random_uid};
use holdfast_io::progress::{Progress, STALL};
use holdfast_io::sha256::Sha256;
use holdfast_io::spool::Spool;
use holdfast_layout::manifest::{COMPACTION, Encryption, FORMAT_VERSION, JOB, Manifest, Origin, Schedule};
use holdfast_layout::{Attempt, Folder, Format};
use holdfast_store::{Plan, Store, Upload};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::{oneshot, watch};

use crate::save::pipe::{Sent, Streamed};
pub(crate) use ask::Ask;
use holdfast_catalog::merged::{MergedSnapshot, check_published};
use holdfast_catalog::publish;
use holdfast_catalog::recorded::recorded_contents;
use holdfast_catalog::store_id;
use holdfast_etcd::hash_kv::LARGE;
use holdfast_etcd::member::Member;
use holdfast_etcd::source;
use holdfast_format::crypt::Recipients;
use holdfast_verbs_common::progress_server;
use read_upload::{Found, UploadReader};

/// Saves one snapshot and returns its report.
pub fn run(request: SaveRequest) -> BoxFuture<'static, Result<SavedReport>> {
    Box::pin(async move { progress_server::serve_beside(request.progress_port, run_with(request, LARGE)).await })
}

/// [`run`] with a threshold, in bytes, for a large database. For tests of how seldom members hash such a database.
pub async fn run_with(request: SaveRequest, large: u64) -> Result<SavedReport> {
    if request.delay_seconds > 0 {
        let waited = async {
            tokio::time::sleep(Duration::from_secs(request.delay_seconds.into())).await;
            Ok(())
        };
        Interrupt::by_signal()?.unless(waited).await?;
    }
    let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
    // Before any request to etcd or the store.
    Recipients::parse(&request.age_recipients)?;
    let store = Store::open(&request.store)?;
    let mut source = interrupt.unless(Box::pin(source::choose(&request))).await?;
    let attempt = Saving::begin(&request, &store, source.member(), &mut interrupt).await?;
    let opened = interrupt.unless(source.open()).await;
    attempt.finish(opened, Ask::for_source(&source).about(large), &mut interrupt).await
}

/// A proven stream, and the state of its upload.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) streamed: Streamed,
    pub(crate) sent: Sent,
    pub(crate) verification: Verification,
    /// Result of the read-back, if the upload is complete already.
    pub(crate) found: Option<Found>,
}

/// Sends a stream into an upload, and asks the members about it. On any error the caller aborts the upload.
///
/// `early`: completes the upload and reads it back while the members hash, if the upload can be taken back.
pub(crate) async fn pass(
    stream: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    request: &SaveRequest,
    (recipients, spool): (&Recipients, Option<Spool>),
    upload: &mut Upload,
    early: Option<&UploadReader<'_>>,
    progress: &Progress,
    ask: &Ask,
) -> Result<Passed> {
    let (proven, streamed) = oneshot::channel();
    let least = request.min_throughput_kib.saturating_mul(1 << 10);
    let (being_made, _) = watch::channel(false);
    let sending = async {
        let pipe = pipe::run(stream, request.compression, recipients, spool, upload, progress, proven);
        let sent = progress.watch_pace(STALL, least, pipe).await?;
        // Buffered bytes go out while the members compute their hashes.
        upload.flush().await?;
        let Some(early) = early.filter(|_| upload.can_be_taken_back()) else { return Ok((sent, None)) };
        being_made.send_replace(true);
        let made = upload.complete().await;
        being_made.send_replace(false);
        made?;
        tracing::debug!("the upload is complete");
        let found = early.read(upload, &sent).await?;
        Ok((sent, Some(found)))
    };
    let asked = ask.beside(sending, streamed, request.ask_members, &being_made).await?;
    let (streamed, (sent, found), verification) = asked;
    Ok(Passed { streamed, sent, verification, found })
}

/// Saves one snapshot from any stream of bytes: [`run`] without etcd, for tests of broken streams. Asks no member.
pub async fn from_stream<S>(request: SaveRequest, member: Member, stream: Result<(String, S)>) -> Result<SavedReport>
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin,
{
    let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
    let store = Store::open(&request.store)?;
    let attempt = Saving::begin(&request, &store, member, &mut interrupt).await?;
    attempt.finish(stream, Ask::without_members(), &mut interrupt).await
}

/// Opens the spool, if the request names a folder for it.
fn spool(request: &SaveRequest) -> Result<Option<Spool>> {
    let size = request.spool_mib.unwrap_or(DEFAULT_SPOOL_MIB) << 20;
    request.spool_dir.as_ref().map(|folder| Spool::open(folder, size)).transpose()
}

/// Data that is complete in the store, and the facts for its manifest.
struct Data {
    storage_version: Option<String>,
    passed: Passed,
}

/// One attempt with an open upload.
pub(crate) struct Saving<'a> {
    request: &'a SaveRequest,
    store: &'a Store,
    member: Member,
    folder: Folder,
    format: Format,
    recipients: Recipients,
    pod_uid: String,
    spool: Option<Spool>,
    cluster_spec: Option<Map<String, Value>>,
    upload: Upload,
    at: Timestamp,
    since: Instant,
    /// The merge that publishes; `None`: a save.
    merged: Option<&'a MergedSnapshot>,
}

impl<'a> Saving<'a> {
    /// Checks the store's ID and opens the upload.
    pub(crate) async fn begin(
        request: &'a SaveRequest,
        store: &'a Store,
        member: Member,
        interrupt: &mut Interrupt,
    ) -> Result<Self> {
        Self::begin_at(clock::now(), request, store, member, interrupt).await
    }

    /// Does the same for an attempt that began at this time.
    async fn begin_at(
        at: Timestamp,
        request: &'a SaveRequest,
        store: &'a Store,
        member: Member,
        interrupt: &mut Interrupt,
    ) -> Result<Self> {
        let since = Instant::now();
        let recipients = Recipients::parse(&request.age_recipients)?;
        let spool = spool(request)?;
        let cluster_spec = request.cluster_spec.as_deref().map(cluster_spec).transpose()?;
        let pod_uid = match &request.pod_uid {
            Some(uid) => uid.clone(),
            None => random_uid()?,
        };
        let folder = Folder::of_attempt(&Attempt {
            namespace: &request.namespace,
            cluster: &request.cluster,
            cluster_uid: request.cluster_uid.as_deref(),
            cluster_id: member.facts.cluster_id,
            owner_uid: request.owner_uid.as_deref(),
            pod_uid: &pod_uid,
            at,
        })
        .map_err(|error| holdfast_store::layout(&error))?;
        let until = clock::later(at, request.deadline_seconds)?;
        let read_back = request.verify == Verify::Stored;
        let patient = spool.is_some();
        let plan = Plan { estimate: member.facts.db_bytes, at, until, read_back, patient };
        let format = Format { compression: request.compression, encrypted: !recipients.is_empty() };
        // Before the first write, and before the upload's start removes dead attempts (I25).
        interrupt.unless(store_id::check_before_write(&request.store, request.expect_store_id.as_deref())).await?;
        let upload = store.begin_unless(&folder.data(format), plan, interrupt).await?;
        Ok(Self {
            request,
            store,
            member,
            folder,
            format,
            recipients,
            pod_uid,
            spool,
            cluster_spec,
            upload,
            at,
            since,
            merged: None,
        })
    }

    /// Aborts the upload, and returns its recipients and its spool.
    pub(crate) async fn abandon(mut self) -> (Recipients, Option<Spool>) {
        self.upload.abort().await;
        (self.recipients, self.spool)
    }

    async fn finish<S>(
        mut self,
        stream: Result<(String, S)>,
        ask: Ask,
        interrupt: &mut Interrupt,
    ) -> Result<SavedReport>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin,
    {
        let data = match self.data(stream, ask, interrupt).await {
            Ok(data) => data,
            Err(error) => {
                self.upload.abort().await;
                return Err(error);
            }
        };
        let manifest = self.manifest(data);
        let content = manifest.render()?;
        let sha256 = hex::encode(Sha256::digest(&content));
        let data = self.folder.data(manifest.format());
        publish::run(self.store, Some(&mut self.upload), &data, content.into(), interrupt).await?;
        Ok(self.report(manifest, sha256))
    }

    /// Streams, proves and completes. Afterwards the data is complete in the store, but not yet a backup.
    async fn data<S>(&mut self, stream: Result<(String, S)>, ask: Ask, interrupt: &mut Interrupt) -> Result<Data>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin,
    {
        let (version, stream) = stream?;
        let progress = Progress::new("saving", self.member.facts.db_bytes);
        let spool = self.spool.take();
        let waits = (&self.recipients, spool);
        let back = UploadReader { store: self.store, key: self.folder.data(self.format), verify: self.request.verify };
        let passing = pass(stream, self.request, waits, &mut self.upload, Some(&back), &progress, &ask);
        let mut passed = interrupt.unless(passing).await?;
        if let Some(merged) = self.merged {
            check_published(merged.sha256, passed.streamed.database.sha256)?;
        }
        let passed_in = self.since.elapsed();
        let Found { read_back, reason } = match passed.found.take() {
            Some(found) => found,
            None => interrupt.unless(self.complete(&back, &passed.sent)).await?,
        };
        passed.verification.read_back = read_back;
        passed.verification.read_back_reason = reason;
        tracing::debug!(?passed_in, whole = ?self.since.elapsed(), "how the time went");
        let recorded = &self.member.facts.storage_version;
        let storage_version = [&version, recorded].into_iter().find(|version| !version.is_empty()).cloned();
        Ok(Data { storage_version, passed })
    }

    /// Completes the upload and reads it back.
    async fn complete(&mut self, back: &UploadReader<'_>, sent: &Sent) -> Result<Found> {
        self.upload.complete().await?;
        back.read(&self.upload, sent).await
    }

    fn manifest(&self, data: Data) -> Manifest {
        let Data { storage_version, passed: Passed { streamed, sent, verification, .. } } = data;
        let Verification { read_back, read_back_reason, .. } = verification.clone();
        let merged = self.merged.map(MergedSnapshot::verification);
        let verification = merged.map_or(verification, |own| Verification { read_back, read_back_reason, ..own });
        // A merge has read its database with more memory.
        let proven = streamed.scanned.as_ref().ok().or(self.merged.map(|merged| &merged.proven));
        let (request, facts) = (self.request, &self.member.facts);
        let is_owned = request.owner_name.is_some() || request.owner_uid.is_some() || self.merged.is_some();
        let kind = match self.merged {
            Some(_) => Some(COMPACTION),
            None => request.schedule_uid.as_ref().map(|_| JOB),
        };
        let origin = is_owned.then(|| Origin {
            name: request.owner_name.clone(),
            uid: request.owner_uid.clone(),
            kind: kind.map(str::to_owned),
            schedule: request.schedule_uid.clone().map(|uid| Schedule {
                name: request.schedule_name.clone(),
                uid,
                other: serde_json::Map::new(),
            }),
            other: serde_json::Map::new(),
        });
        Manifest {
            format_version: FORMAT_VERSION,
            key: self.folder.to_string(),
            namespace: request.namespace.clone(),
            cluster: request.cluster.clone(),
            cluster_uid: request.cluster_uid.clone(),
            cluster_spec: self.cluster_spec.clone(),
            derived_from: self.merged.map(|merged| merged.derived_from.clone()),
            restored_from: request.restored_from.clone(),
            origin,
            pod_uid: self.pod_uid.clone(),
            cluster_id: hex_id(facts.cluster_id),
            member_id: hex_id(facts.member_id),
            member: self.member.name.clone(),
            etcd_version: facts.version.clone(),
            storage_version,
            raft_term: facts.term,
            raft_applied_index: facts.applied,
            db_bytes: streamed.database.db_bytes,
            sha256: hex::encode(streamed.database.sha256),
            stored_bytes: sent.bytes,
            stored_sha256: hex::encode(sent.sha256),
            compression: request.compression,
            contents: proven.map(recorded_contents),
            verification: Some(verification),
            without_quorum: self.member.without_quorum,
            encryption: Encryption::for_recipients(self.recipients.iter().map(ToString::to_string).collect()),
            lock: self.upload.lock(),
            started_at: self.at,
            ended_at: clock::now(),
            manifest_sha256: None,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            other: serde_json::Map::new(),
        }
    }

    fn report(self, manifest: Manifest, manifest_sha256: String) -> SavedReport {
        let uri = self.store.uri(&self.folder.data(manifest.format()));
        let report = SavedReport {
            millis: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            peak_rss_bytes: peak_rss_bytes(),
            manifest_sha256: Some(manifest_sha256),
            ..manifest.saved(uri)
        };
        tracing::info!(
            uri = report.uri,
            db_bytes = report.db_bytes,
            stored_bytes = report.stored_bytes,
            revision = report.revision,
            keys = report.keys,
            verified = report.verification.as_ref().map(|verification| verification.level.as_str()),
            millis = report.millis,
            peak_rss_bytes = report.peak_rss_bytes,
            "saved"
        );
        report
    }
}

/// Parses the cluster's spec. The agent does not interpret the spec; the reader who creates a cluster from it does.
fn cluster_spec(json: &str) -> Result<Map<String, Value>> {
    if json.len() > MAX_CLUSTER_SPEC {
        return Err(Error::config(format!("--cluster-spec is longer than {MAX_CLUSTER_SPEC} bytes")));
    }
    // The error names the position only: the text may be long.
    serde_json::from_str(json).map_err(|error| Error::config(format!("--cluster-spec is no JSON object: {error}")))
}
