//! EFFECTS: the only place with a client, a timer, a clock.
//!
//! [`run`] fills the caches, takes the lease, and works on the queues of the five kinds until SIGTERM or SIGINT. `reconcile`
//! makes one pass, `observe` reads, and `act` writes. `plan` alone decides the next step.
//!
//! RBAC rights in the watched namespaces: `get`, `list`, `watch` on the five kinds, Pods, `PersistentVolumeClaim`s, Services,
//! `EndpointSlice`s, `PodDisruptionBudget`s, Jobs, `CronJob`s and Deployments; `update` and `patch` on the status of the five kinds; `create`,
//! `patch` and `delete` on `EtcdMember`s and `EtcdSnapshot`s; `patch` on `EtcdCluster`s for the finalizer; `update` on the
//! finalizers of the kinds that own others; the rights that `act` lists for the rest; `create` and `patch` on Events of
//! `events.k8s.io`. In its own namespace: `get`, `create`, `update` on Leases. Where the operator watches all namespaces: `get`
//! on the Leases of its name in the others. The operator reads and writes Secrets of certificates by name; of the Secrets that
//! an `EtcdBackupStore` names it reads the version. It needs no exec and no logs.

#![cfg_attr(
    test,
    allow(
        missing_docs,
        unreachable_pub,
        clippy::pedantic,
        clippy::unwrap_in_result,
        reason = "tests favour plain words"
    )
)]
#![allow(clippy::disallowed_types, reason = "this is the place that the ban of clients points to")]

mod act;
mod aged;
mod backoff;
mod clock;
mod config;
mod context;
mod elsewhere;
mod error;
mod etcd;
mod events;
#[cfg(test)]
mod fake;
mod http;
mod judgements;
mod kinds;
mod leader;
mod log_state;
mod malformed;
mod metrics;
mod object_metrics;
mod observe;
mod own_writes;
mod queues;
mod reader;
mod reconcile;
mod repeats;
mod shares;
mod skew;
mod status;
mod tls;
mod unstarted;
mod wake;
mod watches;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use kube::{Client, ResourceExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use config::Config;
use holdfast_api::{GROUP, VERSION};
use holdfast_contract::BuildInfo;

use self::context::{Context, ReadClient, WriteClient, Writes};
use self::kinds::{BackupStores, Clusters, Members, Restores, Schedules, Snapshots, Users};
use self::metrics::Metrics;
use self::wake::{Queues, Roots, Wakers};
use holdfast_kube::api_server::Way;
use holdfast_kube::kinds::CacheWriters;
use holdfast_kube::kinds::Caches;

/// Time for running passes to end after SIGTERM or SIGINT.
const DRAIN: Duration = Duration::from_secs(8);
/// Interval between two questions whether the API server serves the custom resources.
const CRD_POLL: Duration = Duration::from_secs(2);
/// Interval between two sweeps of connections to deleted Pods.
const SWEEP: Duration = Duration::from_mins(1);

/// Runs the operator until SIGTERM or SIGINT, then finishes the running passes, gives the lease back, and returns. After the loss of
/// the lease the process breaks off its passes, stands by, and leads again when it gets the lease.
///
/// # Errors
/// Fails without an API server, and with a listen address that cannot be bound.
pub fn run(config: Config, build: BuildInfo) -> BoxFuture<'static, anyhow::Result<()>> {
    // Boxed: the code of the future is compiled here, not in the crate that awaits it.
    Box::pin(work(config, build))
}

async fn work(config: Config, build: BuildInfo) -> anyhow::Result<()> {
    tracing::info!(
        version = build.version,
        commit = build.commit,
        architecture = build.architecture,
        namespace = config.watch_namespace.as_deref().unwrap_or("(all)"),
        agent_image = config.agent_image,
        "holdfast begins"
    );
    let stop = CancellationToken::new();
    tokio::spawn(until_stopped(stop.clone())?);

    let (read, write, lease) = clients().await?;

    let metrics = Arc::new(Metrics::new(build));
    let writers = CacheWriters::default();
    let caches = writers.caches();
    let ready = Arc::new(AtomicBool::new(false));
    let (leading_in, leading) = watch::channel(false);
    let leading_in = Arc::new(leading_in);
    let wakers = Wakers::default();
    let own_lease = (config.lease_namespace.clone(), config.lease_name.clone());
    let own_lease = config.watch_namespace.is_none().then_some(own_lease);
    let ctx = Arc::new(Context {
        read: ReadClient(read.clone()),
        write: WriteClient(write.clone()),
        caches: caches.clone(),
        wakers: wakers.clone(),
        passes: TaskTracker::new(),
        etcd: etcd::Pool::default(),
        unstarted: unstarted::UnstartedPods::default(),
        tls: tls::Memory::default(),
        events: events::Events::start(write, config.identity.clone(), Arc::clone(&metrics)),
        metrics: Arc::clone(&metrics),
        settings: config.settings(),
        backoff: backoff::Backoff::default(),
        repeats: repeats::Repeats::default(),
        skew: skew::Skew::default(),
        own: own_writes::OwnWrites::default(),
        leading: leading.clone(),
        judgements: judgements::Judgements::default(),
        logs: log_state::LogStates::default(),
        elsewhere: elsewhere::Elsewhere::new(own_lease),
        writes: Writes::new(config.die_after_writes),
    });

    // Tasks that run until the process ends. Dropping the set aborts them.
    let mut background: JoinSet<anyhow::Result<()>> = JoinSet::new();
    let pages = http::Pages { metrics: Arc::clone(&metrics), ready: Arc::clone(&ready), caches: caches.clone() };
    background.spawn(http::serve(config.listen, pages));

    if !served(&read, &stop, &mut background).await? {
        return Ok(());
    }
    watches::watch_all(writers, &mut background, &ctx, &wakers, config.watch_namespace.as_deref());
    background.spawn(sweep(Arc::clone(&ctx)));

    // Standbys fill their caches before they ask for the lease, so that a new leader plans at once.
    tokio::select! {
        filled = filled(&caches) => filled?,
        ended = background.join_next() => return ended_early(ended),
        () = stop.cancelled() => return Ok(()),
    }
    ready.store(true, Ordering::Release);
    tracing::info!("the caches are filled");

    loop {
        let lease_stop = CancellationToken::new();
        let mut election = {
            let (lease, config, leading_in) = (lease.clone(), config.clone(), Arc::clone(&leading_in));
            let lease_stop = lease_stop.clone();
            tokio::spawn(async move { leader::run(lease, &config, &leading_in, lease_stop).await })
        };
        let mut became = leading.clone();
        let led = tokio::select! {
            led = became.wait_for(|yes| *yes) => led.is_ok(),
            ended = &mut election => {
                ended.context("the election broke off")?;
                continue;
            }
            ended = background.join_next() => return ended_early(ended),
            () = stop.cancelled() => false,
        };
        if led {
            metrics.leading(true);
            let mut work = begin(&ctx, &caches, wakers.lead(), &stop);
            wakers.wake(|| Roots::from(&caches).all());
            tokio::select! {
                ended = &mut election => {
                    ended.context("the election broke off")?;
                    stand_down(&ctx, work).await;
                    continue;
                }
                ended = background.join_next() => return ended_early(ended),
                () = stop.cancelled() => {}
            }
            drain(&mut work).await;
            metrics.leading(false);
        }
        lease_stop.cancel();
        election.await.context("the election broke off")?;
        return Ok(());
    }
}

/// Returns the clients for reads, for writes and for the lease.
async fn clients() -> anyhow::Result<(Client, Client, Client)> {
    let mut to_read = Way::find().await.context("no Kubernetes to talk to")?;
    // kube retries calls by itself. A write that got no answer is read back first, so writes are not retried.
    let mut to_write = to_read.clone();
    to_write.config.default_retry = false;
    to_write.config.connect_timeout = Some(Duration::from_secs(5));
    to_read.config.connect_timeout = Some(Duration::from_secs(5));
    let read = to_read.client().context("the Kubernetes client")?;
    let write = to_write.client().context("the Kubernetes client")?;
    // The lease has connections of its own: a flood of passes must not delay its renewal.
    let lease = to_write.client().context("the Kubernetes client")?;
    Ok((read, write, lease))
}

/// Waits for the passes that run, for a while.
async fn drain(work: &mut JoinSet<()>) {
    tracing::info!("stopping: passes that run are finished");
    let drained = async { while work.join_next().await.is_some() {} };
    if clock::within(DRAIN, drained).await.is_none() {
        tracing::warn!("passes did not end in time and are broken off; the next leader goes on from what stands");
    }
}

/// Breaks off every pass after the loss of the lease, and returns when none runs: the next leader must not meet writes of this process,
/// and no pass of this term may write in a later one (I19). The process asks for the lease only afterwards.
async fn stand_down(ctx: &Context, mut work: JoinSet<()>) {
    ctx.wakers.stand_by();
    work.shutdown().await;
    ctx.passes.close();
    ctx.passes.wait().await;
    ctx.passes.reopen();
    ctx.metrics.leading(false);
}

/// Starts the workers of the seven queues.
fn begin(ctx: &Arc<Context>, caches: &Caches, queues: Queues, stop: &CancellationToken) -> JoinSet<()> {
    let Queues { clusters, members, snapshots, backup_stores, schedules, users, restores } = queues;
    let mut work = JoinSet::new();
    work.spawn(queues::work::<Clusters>(Arc::clone(ctx), (*caches.clusters).clone(), clusters, stop.clone()));
    work.spawn(queues::work::<Members>(Arc::clone(ctx), (*caches.members).clone(), members, stop.clone()));
    work.spawn(queues::work::<Snapshots>(Arc::clone(ctx), (*caches.snapshots).clone(), snapshots, stop.clone()));
    work.spawn(queues::work::<BackupStores>(
        Arc::clone(ctx),
        (*caches.backup_stores).clone(),
        backup_stores,
        stop.clone(),
    ));
    work.spawn(queues::work::<Restores>(Arc::clone(ctx), (*caches.restores).clone(), restores, stop.clone()));
    work.spawn(queues::work::<Users>(Arc::clone(ctx), (*caches.users).clone(), users, stop.clone()));
    work.spawn(queues::work::<Schedules>(Arc::clone(ctx), (*caches.schedules).clone(), schedules, stop.clone()));
    work
}

/// Returns a future that cancels `stop` at SIGTERM or SIGINT.
fn until_stopped(stop: CancellationToken) -> anyhow::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate()).context("SIGTERM cannot be awaited")?;
    let mut int = signal(SignalKind::interrupt()).context("SIGINT cannot be awaited")?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        stop.cancel();
    })
}

/// The error of a background task that ended before the process.
fn ended_early(ended: Option<Result<anyhow::Result<()>, tokio::task::JoinError>>) -> anyhow::Result<()> {
    match ended {
        Some(Ok(Err(error))) => Err(error),
        Some(Err(error)) => Err(error).context("a task broke off"),
        Some(Ok(Ok(()))) | None => anyhow::bail!("a task that should not end has ended"),
    }
}

/// Waits until the API server serves the kinds; `false` where `stop` is cancelled first.
async fn served(
    client: &Client,
    stop: &CancellationToken,
    background: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<bool> {
    // Definitions and roles of an earlier version have no EtcdUsers and no EtcdRestores; clusters and backups go on.
    let wanted = ["etcdbackupstores", "etcdclusters", "etcdmembers", "etcdsnapshots", "etcdsnapshotschedules"];
    let mut logged = String::new();
    loop {
        let missing = match client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await {
            Ok(list) => {
                let there = |name: &&str| list.resources.iter().any(|r| r.name == **name);
                let missing: Vec<&str> = wanted.iter().filter(|name| !there(name)).copied().collect();
                if missing.is_empty() {
                    return Ok(true);
                }
                format!("not served yet: {}", missing.join(", "))
            }
            Err(error) => error.to_string(),
        };
        if missing != logged {
            tracing::warn!("waiting for the custom resources of {GROUP}/{VERSION}: {missing}");
            logged = missing;
        }
        tokio::select! {
            () = clock::sleep(CRD_POLL) => {}
            ended = background.join_next() => return ended_early(ended).map(|()| false),
            () = stop.cancelled() => return Ok(false),
        }
    }
}

/// Waits until every cache is filled (I26).
async fn filled(caches: &Caches) -> anyhow::Result<()> {
    let gone = "a watch ended before its cache was filled";
    caches.clusters.wait_until_ready().await.context(gone)?;
    caches.members.wait_until_ready().await.context(gone)?;
    caches.snapshots.wait_until_ready().await.context(gone)?;
    caches.backup_stores.wait_until_ready().await.context(gone)?;
    caches.schedules.wait_until_ready().await.context(gone)?;
    caches.cron_jobs.wait_until_ready().await.context(gone)?;
    caches.pods.wait_until_ready().await.context(gone)?;
    caches.claims.wait_until_ready().await.context(gone)?;
    caches.services.wait_until_ready().await.context(gone)?;
    // Neither the EndpointSlices, the Deployments, the EtcdUsers nor the EtcdRestores: roles of an earlier version forbid the operator to read them. No act needs the
    // former; a pass that needs a Deployment reads it from the API server until the cache is complete.
    caches.budgets.wait_until_ready().await.context(gone)?;
    caches.jobs.wait_until_ready().await.context(gone)
}

/// Closes connections to Pods whose deletion no watch reported.
async fn sweep(ctx: Arc<Context>) -> anyhow::Result<()> {
    loop {
        clock::sleep(SWEEP).await;
        let there: HashSet<String> = ctx.caches.pods.state().iter().filter_map(|pod| pod.uid()).collect();
        ctx.etcd.keep(&there);
    }
}
