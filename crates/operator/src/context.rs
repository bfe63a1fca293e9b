//! Resources of every pass: clients, caches, connections, settings without a clock, and the single path for writes.
//!
//! Decides that only the leader writes (I19), and how long a call may take. It keeps no facts about objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_plan::Settings;
use kube::Client;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::backoff::Backoff;
use super::clock;
use super::elsewhere::Elsewhere;
use super::error::Error;
use super::etcd::Pool;
use super::events::Events;
use super::judgements::Judgements;
use super::log_state::LogStates;
use super::metrics::Metrics;
use super::own_writes::OwnWrites;
use super::repeats::Repeats;
use super::skew::Skew;
use super::tls::Memory;
use super::unstarted::UnstartedPods;
use super::wake::Wakers;
use holdfast_kube::kinds::Caches;

/// Deadline of one call to the API server: longer than the API server's storage takes when slow, shorter than a lease.
const CALL: Duration = Duration::from_secs(10);

/// Resources of every pass.
#[derive(Debug)]
pub(super) struct Context {
    /// Client of reads and watches; it retries calls that the API server could not answer.
    pub(super) read: ReadClient,
    /// Client of writes; it never retries: a POST that was carried out and not answered has to be read back first.
    pub(super) write: WriteClient,
    /// The watch caches.
    pub(super) caches: Caches,
    /// The queues, for changes that no watch reports.
    pub(super) wakers: Wakers,
    /// The passes that run.
    pub(super) passes: TaskTracker,
    /// Connections to etcd members.
    pub(super) etcd: Pool,
    /// Pods of Jobs that were deleted before their agent ran.
    pub(super) unstarted: UnstartedPods,
    /// Certificates that were read.
    pub(super) tls: Memory,
    /// The sender of Events.
    pub(super) events: Events,
    /// The operator's metrics.
    pub(super) metrics: Arc<Metrics>,
    /// The part of the configuration that plans may depend on.
    pub(super) settings: Settings,
    /// Failures in a row of each object.
    pub(super) backoff: Backoff,
    /// Difference between this clock and the API server's.
    pub(super) skew: Skew,
    /// Writes whose effect does not stay.
    pub(super) repeats: Repeats,
    /// Writes that the caches do not show yet.
    pub(super) own: OwnWrites,
    /// Whether this process holds the lease.
    pub(super) leading: watch::Receiver<bool>,
    /// Namespaces in which other installs work.
    pub(super) elsewhere: Elsewhere,
    /// The API server's judgements of larger claims and next Pods.
    pub(super) judgements: Judgements,
    /// The answers of agents that record logs.
    pub(super) logs: LogStates,
    /// The count of successful writes.
    pub(super) writes: Writes,
}

/// A client that retries reads.
#[derive(Clone)]
pub(super) struct ReadClient(pub(super) Client);

/// A client that never retries.
#[derive(Clone)]
pub(super) struct WriteClient(pub(super) Client);

impl std::fmt::Debug for ReadClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadClient")
    }
}

impl std::fmt::Debug for WriteClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriteClient")
    }
}

/// Counts successful writes, and ends the process after the n-th where a crash test requests it.
#[derive(Debug, Default)]
pub(super) struct Writes {
    done: AtomicU64,
    die_after: Option<u64>,
}

impl Writes {
    /// Starts counting.
    pub(super) fn new(die_after: Option<u64>) -> Self {
        Self { done: AtomicU64::new(0), die_after }
    }

    fn count(&self) {
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        if self.die_after == Some(done) {
            // Like a crash: the process finishes nothing, gives nothing back and reports nothing.
            std::process::abort();
        }
    }
}

impl Context {
    /// Makes one read of the API server, within its deadline.
    pub(super) async fn reading<T>(
        &self,
        what: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        match clock::within(CALL, call).await {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(Error::read(what(), error)),
            None => Err(Error::Timeout { what: what(), writes: false }),
        }
    }

    /// Makes one write to the API server: only as the leader, within its deadline, counted.
    pub(super) async fn writing<T>(
        &self,
        kind: &'static str,
        verb: &'static str,
        name: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        self.may_write()?;
        match clock::within(CALL, call).await {
            Some(Ok(value)) => {
                self.wrote(kind, verb);
                Ok(value)
            }
            Some(Err(error)) => Err(Error::write(format!("{verb} {kind} {name}"), error)),
            None => Err(Error::Timeout { what: format!("{verb} {kind} {name}"), writes: true }),
        }
    }

    /// Whether this process may write now (I19).
    pub(super) fn may_write(&self) -> Result<(), Error> {
        if *self.leading.borrow() { Ok(()) } else { Err(Error::NotLeader) }
    }

    /// Counts a write that was carried out.
    pub(super) fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.metrics.write(kind, verb);
        self.writes.count();
    }
}
