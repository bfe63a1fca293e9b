//! What every pass may use: clients, caches, connections, clock-free settings, and the one door for writes.
//!
//! Decides who may write (only the leader, I19) and how long a call may take. It keeps no facts about objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;

use super::backoff::Backoff;
use super::caches::Caches;
use super::clock;
use super::elsewhere::Elsewhere;
use super::error::Error;
use super::etcd::Pool;
use super::events::Events;
use super::metrics::Metrics;
use super::own_writes::OwnWrites;
use super::repeats::Repeats;
use super::skew::Skew;
use super::tls::Memory;
use super::unstarted::UnstartedPods;
use super::wake::Wakers;
use crate::plan::Settings;

/// Deadline of one call to the API server: longer than its own storage takes on a bad day, shorter than a lease.
const CALL: Duration = Duration::from_secs(10);

/// What every pass may use.
#[derive(Debug)]
pub(super) struct Context {
    /// For reads and watches; repeats by itself what the server could not answer.
    pub(super) read: ReadClient,
    /// For writes; never repeats by itself: a POST that was carried out and not answered must be looked at first.
    pub(super) write: WriteClient,
    /// The watch caches.
    pub(super) caches: Caches,
    /// The queues, for what no watch tells of.
    pub(super) wakers: Wakers,
    /// Connections to etcd members.
    pub(super) etcd: Pool,
    /// Pods of Jobs that were deleted before their agent ran.
    pub(super) unstarted: UnstartedPods,
    /// What was read of certificates.
    pub(super) tls: Memory,
    /// Where Events go.
    pub(super) events: Events,
    /// Numbers.
    pub(super) metrics: Arc<Metrics>,
    /// What plans may know of our configuration.
    pub(super) settings: Settings,
    /// How often each object failed in a row.
    pub(super) backoff: Backoff,
    /// How far this clock is from the API server's.
    pub(super) skew: Skew,
    /// Writes whose effect does not stay.
    pub(super) repeats: Repeats,
    /// Writes that the caches do not show yet.
    pub(super) own: OwnWrites,
    /// Whether this process holds the lease.
    pub(super) leading: watch::Receiver<bool>,
    /// Which namespaces other installs work in.
    pub(super) elsewhere: Elsewhere,
    /// Counts writes.
    pub(super) writes: Writes,
}

/// A client that repeats reads by itself.
#[derive(Clone)]
pub(super) struct ReadClient(pub(super) Client);

/// A client that never repeats anything by itself.
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

/// Counts successful writes, and ends the process after the n-th where a crash test asks for it.
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
            // As hard as a crash: nothing is finished, given back or said.
            std::process::abort();
        }
    }
}

impl Context {
    /// One read of the API server, within its deadline.
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

    /// One write to the API server: by the leader only, within its deadline, counted.
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

    /// A write was carried out.
    pub(super) fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.metrics.write(kind, verb);
        self.writes.count();
    }
}
