//! `agent log`: records every revision of an etcd beside its snapshots, until SIGTERM.
//!
//! This file decides the order: the member, the store's ID, the log's etcd cluster, the first revision; then the watch and the
//! store side by side. A failure before the watch ends the run. Afterwards only a wrong cluster or a broken spool does: etcd
//! and the store may be away for any time, and come back with other keys and certificates. `log/archive.rs` decides what a segment holds, `log/deliver.rs` how it is stored,
//! `log/status.rs` shows what a log covers.

mod archive;
mod begin;
mod deliver;
mod entries;
mod history;
mod numbers;
mod pack;
mod spool;
pub mod status;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use holdfast_contract::error::Result;
use holdfast_contract::{ExitClass, LogRequest, hex_id};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::process::random_uid;
use holdfast_layout::{Folder, first8};
use holdfast_store::{Handle, layout};
use serde::Serialize;
use tokio::sync::watch;

use archive::{Archiver, Place};
use holdfast_catalog::log;
use holdfast_catalog::store_id;
use holdfast_etcd::source::choose_for_watch;
use holdfast_format::crypt::Recipients;
use holdfast_verbs_common::progress_server;
use numbers::Numbers;
use spool::Spool;

/// Time for the last segments to reach the store. Kubernetes kills a Pod 30 s after its SIGTERM.
const LAST_SEGMENTS: Duration = Duration::from_secs(20);

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Logged {
    /// URI of the log.
    pub uri: String,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// The last recorded revision.
    pub revision: i64,
    /// Segments that this run has stored.
    pub segments: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Gaps that this run has recorded: etcd had compacted revisions.
    pub gaps: u64,
    /// Bytes that wait in the spool for a later run.
    pub waiting_bytes: u64,
}

/// Records until a signal.
pub fn run(request: LogRequest) -> LocalBoxFuture<'static, Result<Logged>> {
    Box::pin(async move {
        let numbers = Arc::<Numbers>::default();
        progress_server::serve_log_beside(request.metrics_port, pages(&numbers), record(&request, &numbers)).await
    })
}

/// Returns the metrics and the state of the run, as its port answers them.
fn pages(numbers: &Arc<Numbers>) -> [progress_server::Render; 2] {
    let (metrics, state) = (Arc::clone(numbers), Arc::clone(numbers));
    // JSON of our own types cannot fail.
    let state = move || serde_json::to_string(&state.report(clock::now())).unwrap_or_default();
    [Box::new(move || metrics.render(clock::now())), Box::new(state)]
}

async fn record(request: &LogRequest, numbers: &Numbers) -> Result<Logged> {
    let mut interrupt = Interrupt::by_signal()?;
    // Before any request to etcd or the store.
    let recipients = Arc::new(Recipients::parse(&request.age_recipients)?);
    let handle = Handle::open(&request.store)?;
    let store = handle.store();
    let source = interrupt.unless(choose_for_watch(&request.etcd, request.expect_cluster_id.as_deref())).await?;
    let LogRequest { namespace, cluster, cluster_uid, .. } = request;
    let cluster_id = source.facts.cluster_id;
    let lineage = Folder::of_lineage(namespace, cluster, cluster_uid.as_deref(), cluster_id);
    let lineage = lineage.map_err(|error| layout(&error))?;
    interrupt.unless(store_id::check_before_write(&request.store, request.expect_store_id.as_deref())).await?;
    let folder = interrupt.unless(log::find_folder(&store, &lineage, cluster_id)).await?;
    interrupt.unless(log::bind(&store, &folder, cluster_id)).await?;
    let uri = store.uri(&folder);
    let spool = Spool::open(spool::folder_of(&request.spool_dir, &uri)?, folder.clone(), request.spool_mib << 20)?;
    let beginning = async {
        log::check_open(&store, &folder).await?;
        begin::find(request, &store, (&lineage, &folder), &spool, &source).await
    };
    let begin = match interrupt.unless(beginning).await {
        Err(error) if error.class() == ExitClass::Refused => {
            // A closed log: the waiting segments are of its own history.
            tokio::select! {
                delivered = deliver::run(request, &handle, &spool, numbers) => delivered?,
                () = tokio::time::sleep(LAST_SEGMENTS) => {}
                () = spool.wait_until(|bytes| bytes == 0) => {}
            }
            return Err(error);
        }
        begin => begin?,
    };
    let gap = interrupt.unless(log::newest_gap(&store, &folder)).await?;
    tracing::info!(uri, after = begin.after, "recording");
    numbers.begin(cluster_id, begin.stored.as_ref(), gap);
    let run8 = first8("run", &random_uid()?).map_err(|error| layout(&error))?;
    let place = Place { store: &handle, log: folder, spool: &spool, numbers, recipients, run8 };
    let mut archiver = Archiver::new(&begin, request, place, &source);

    let (stop, mut stopped) = watch::channel(false);
    let recording = async {
        let ended = archiver.run(source, &mut stopped).await;
        let emptied = tokio::time::timeout(LAST_SEGMENTS, spool.wait_until(|bytes| bytes == 0)).await;
        if emptied.is_err() {
            tracing::warn!(
                waiting_bytes = spool.bytes(),
                "the store has not taken all segments: they stay in the spool"
            );
        }
        ended
    };
    let stopping = async {
        // A signal is the usual end of a run.
        let _came: Result<()> = interrupt.unless(std::future::pending()).await;
        stop.send_replace(true);
        std::future::pending::<Result<()>>().await
    };
    tokio::select! {
        recorded = recording => recorded?,
        delivered = deliver::run(request, &handle, &spool, numbers) => delivered?,
        never = stopping => never?,
    }
    Ok(Logged {
        uri,
        cluster_id: hex_id(cluster_id),
        revision: numbers.recorded.load(Relaxed),
        segments: numbers.segments.load(Relaxed),
        bytes: numbers.bytes.load(Relaxed),
        gaps: numbers.gaps.load(Relaxed),
        waiting_bytes: spool.bytes(),
    })
}
