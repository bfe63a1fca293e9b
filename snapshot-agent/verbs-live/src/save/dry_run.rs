//! `agent save --dry-run`: a save that stores nothing.
//!
//! This file decides which steps are left out. If the request names a store, the agent opens an upload there and sends no byte.
//! The agent reads, proves and compresses the member's snapshot and compares it with the members as in a save. Nothing stays in
//! the store.

use futures::future::BoxFuture;
use std::time::Instant;

use holdfast_contract::error::Result;
use holdfast_contract::{Compression, SaveRequest, Verification, hex_id};
use holdfast_io::interrupt::Interrupt;
use holdfast_io::process::peak_rss_bytes;
use holdfast_io::progress::Progress;
use holdfast_store::{Store, Upload};
use serde::Serialize;

use crate::save::{self, Ask, Passed, Saving};
use holdfast_etcd::source;
use holdfast_format::crypt::Recipients;
use holdfast_verbs_common::{bytes, lines, proven, revision, seconds};

/// Facts of the snapshot that a save would have stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsed {
    /// Name of the member that was read.
    pub member: String,
    /// Its ID (hex).
    pub member_id: String,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// The member's etcd version.
    pub etcd_version: String,
    /// Bytes of the database.
    pub db_bytes: u64,
    /// Bytes that would be stored.
    pub stored_bytes: u64,
    /// Compression of those bytes.
    pub compression: Compression,
    /// The revision of the key space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Keys that exist at that revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Level of proof.
    pub verification: Verification,
    /// Whether no quorum answered: acknowledged writes may be missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Milliseconds from the first byte to the members' answers.
    pub millis: u64,
    /// The most memory the process held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
}

impl Rehearsed {
    /// Formats the result for a terminal.
    pub fn lines(&self) -> String {
        let (version, cluster) = (&self.etcd_version, &self.cluster_id);
        let mut rows = vec![
            ("read", format!("{} of member {} (etcd {version}, cluster {cluster})", bytes(self.db_bytes), self.member)),
            ("to", "nowhere: this was a dry run".to_owned()),
            ("packed", format!("{}, compression {}", bytes(self.stored_bytes), self.compression.as_str())),
            ("revision", revision(self.revision, self.keys)),
            ("proven", proven(&self.verification)),
        ];
        if self.without_quorum {
            rows.push(("beware", "no quorum answered: acknowledged writes may be missing".to_owned()));
        }
        rows.push(("took", seconds(self.millis)));
        lines(&rows)
    }
}

/// Reads and proves one snapshot, and stores nothing.
pub fn run(request: SaveRequest) -> BoxFuture<'static, Result<Rehearsed>> {
    Box::pin(async move {
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        let store = if request.store.url.is_empty() { None } else { Some(Store::open(&request.store)?) };
        let mut source = interrupt.unless(Box::pin(source::choose(&request))).await?;
        let (recipients, spool) = match &store {
            Some(store) => Saving::begin(&request, store, source.member(), &mut interrupt).await?.abandon().await,
            None => (Recipients::parse(&request.age_recipients)?, save::spool(&request)?),
        };

        let since = Instant::now();
        let (_, stream) = interrupt.unless(source.open()).await?;
        let progress = Progress::new("reading", source.facts.db_bytes);
        let mut nowhere = Upload::Nowhere;
        let ask = Ask::for_source(&source);
        let passing = save::pass(stream, &request, (&recipients, spool), &mut nowhere, None, &progress, &ask);
        let Passed { streamed, sent, verification, .. } = interrupt.unless(passing).await?;
        let proven = streamed.scanned.as_ref().ok();
        Ok(Rehearsed {
            member: source.name.clone(),
            member_id: hex_id(source.facts.member_id),
            cluster_id: hex_id(source.facts.cluster_id),
            etcd_version: source.facts.version.clone(),
            db_bytes: streamed.database.db_bytes,
            stored_bytes: sent.bytes,
            compression: request.compression,
            revision: proven.map(|proven| proven.revision),
            keys: proven.and_then(|proven| proven.keys),
            verification,
            without_quorum: source.without_quorum,
            millis: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            peak_rss_bytes: peak_rss_bytes(),
        })
    })
}
