//! One watch for each kind of object, whose task fills its cache and wakes whoever the object concerns, also when it was
//! deleted. Filters on unchanged fields and shared streams would lose deletions. After a broken watch everything is
//! looked at once, since deletions in the gap have no event.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::caches::{Cached, Caches};
use super::context::Context;
use super::malformed;
use super::wake::{Concerned, Roots, Wakers};
use crate::api::{EtcdBackupStore, EtcdCluster, EtcdMember, EtcdSnapshot, EtcdSnapshotSchedule};

/// Of children only what we made: the caches must not grow with what else runs in the namespaces.
const OURS: &str = "app.kubernetes.io/managed-by=holdfast";

/// A kind that is watched.
trait Watched: Cached {
    /// Its name.
    const KIND: &'static str;
    /// Which of them: only what is labelled as ours, unless it says otherwise.
    fn selector() -> watcher::Config {
        watcher::Config::default().labels(OURS)
    }
    /// Whom an object of it concerns.
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_child(self)
    }
    /// What a deletion means beyond waking.
    fn gone(&self, ctx: &Context) {
        let _ = ctx;
    }
    /// What one gets that cannot be read; in a task of its own.
    fn unreadable(ctx: &Context, invalid: &InvalidObject) -> impl Future<Output = ()> + Send {
        let _ = (ctx, invalid);
        async {}
    }
}

impl Watched for EtcdCluster {
    const KIND: &'static str = "EtcdCluster";
    fn selector() -> watcher::Config {
        watcher::Config::default()
    }
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_cluster(self)
    }
    async fn unreadable(ctx: &Context, invalid: &InvalidObject) {
        malformed::tell(ctx, invalid).await;
    }
}

impl Watched for EtcdMember {
    const KIND: &'static str = "EtcdMember";
    fn selector() -> watcher::Config {
        watcher::Config::default()
    }
    fn concerns(&self, _roots: &Roots) -> Concerned {
        Roots::of_member(self)
    }
}

impl Watched for EtcdSnapshot {
    const KIND: &'static str = "EtcdSnapshot";
    fn selector() -> watcher::Config {
        watcher::Config::default()
    }
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_snapshot(self)
    }
}

impl Watched for EtcdBackupStore {
    const KIND: &'static str = "EtcdBackupStore";
    fn selector() -> watcher::Config {
        watcher::Config::default()
    }
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_backup_store(self)
    }
}

impl Watched for EtcdSnapshotSchedule {
    const KIND: &'static str = "EtcdSnapshotSchedule";
    fn selector() -> watcher::Config {
        watcher::Config::default()
    }
    fn concerns(&self, _roots: &Roots) -> Concerned {
        Roots::of_schedule(self)
    }
}

impl Watched for CronJob {
    const KIND: &'static str = "CronJob";
}

impl Watched for Pod {
    const KIND: &'static str = "Pod";
    fn gone(&self, ctx: &Context) {
        if let Some(uid) = self.uid() {
            ctx.etcd.forget(&uid);
        }
    }
}

impl Watched for PersistentVolumeClaim {
    const KIND: &'static str = "PersistentVolumeClaim";
}

impl Watched for Service {
    const KIND: &'static str = "Service";
}

impl Watched for EndpointSlice {
    const KIND: &'static str = "EndpointSlice";
    /// Kubernetes copies a Service's labels to its EndpointSlices. Nobody asks for those of the headless Services.
    fn selector() -> watcher::Config {
        watcher::Config::default().labels(&format!("{OURS},!service.kubernetes.io/headless"))
    }
}

impl Watched for PodDisruptionBudget {
    const KIND: &'static str = "PodDisruptionBudget";
}

impl Watched for Job {
    const KIND: &'static str = "Job";
}

/// The writing ends of the caches.
#[derive(Default)]
pub(super) struct CacheWriters {
    clusters: Writer<EtcdCluster>,
    members: Writer<EtcdMember>,
    snapshots: Writer<EtcdSnapshot>,
    backup_stores: Writer<EtcdBackupStore>,
    schedules: Writer<EtcdSnapshotSchedule>,
    pods: Writer<Pod>,
    claims: Writer<PersistentVolumeClaim>,
    services: Writer<Service>,
    endpoints: Writer<EndpointSlice>,
    budgets: Writer<PodDisruptionBudget>,
    jobs: Writer<Job>,
    cron_jobs: Writer<CronJob>,
}

impl CacheWriters {
    /// The reading ends.
    pub(super) fn caches(&self) -> Caches {
        Caches {
            clusters: self.clusters.as_reader(),
            members: self.members.as_reader(),
            snapshots: self.snapshots.as_reader(),
            backup_stores: self.backup_stores.as_reader(),
            schedules: self.schedules.as_reader(),
            pods: self.pods.as_reader(),
            claims: self.claims.as_reader(),
            services: self.services.as_reader(),
            endpoints: self.endpoints.as_reader(),
            budgets: self.budgets.as_reader(),
            jobs: self.jobs.as_reader(),
            cron_jobs: self.cron_jobs.as_reader(),
        }
    }

    /// Starts one watch for each kind, in one namespace or in all.
    pub(super) fn watch(
        self,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        ctx: &Arc<Context>,
        wakers: &Wakers,
        namespace: Option<&str>,
    ) {
        // Our own kinds are guarded: one that cannot be read must not hold up the others. Kubernetes' kinds can be read.
        tasks.spawn(watch(api(ctx, namespace), unguard, self.clusters, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), unguard, self.members, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), unguard, self.snapshots, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), unguard, self.backup_stores, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), unguard, self.schedules, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), Ok, self.cron_jobs, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), Ok, self.pods, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), Ok, self.claims, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), Ok, self.services, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), Ok, self.endpoints, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), Ok, self.budgets, Arc::clone(ctx), wakers.clone()));
        tasks.spawn(watch(api(ctx, namespace), Ok, self.jobs, Arc::clone(ctx), wakers.clone()));
    }
}

fn unguard<K>(guard: DeserializeGuard<K>) -> Result<K, InvalidObject> {
    guard.0
}

fn api<W>(ctx: &Context, namespace: Option<&str>) -> Api<W>
where
    W: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(ctx.read.0.clone(), namespace),
        None => Api::all(ctx.read.0.clone()),
    }
}

/// Watches one kind for ever. What comes over the wire is a `W`, which may hold a readable `K`.
async fn watch<K, W>(
    api: Api<W>,
    open: fn(W) -> Result<K, InvalidObject>,
    mut cache: Writer<K>,
    ctx: Arc<Context>,
    wakers: Wakers,
) -> anyhow::Result<()>
where
    K: Watched,
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let roots = Roots::of(&ctx.caches);
    let events = watcher(api, K::selector()).default_backoff();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                ctx.metrics.watch_failed(K::KIND);
                tracing::warn!(kind = K::KIND, %error, "a watch broke and is begun again");
                continue;
            }
        };
        let Some(event) = readable(event, open, &ctx) else { continue };
        cache.apply_watcher_event(&event);
        match &event {
            watcher::Event::Apply(object) => wakers.wake(object.concerns(&roots)),
            watcher::Event::Delete(object) => {
                object.gone(&ctx);
                wakers.wake(object.concerns(&roots));
            }
            watcher::Event::InitDone => wakers.wake(roots.all()),
            watcher::Event::Init | watcher::Event::InitApply(_) => {}
        }
    }
    anyhow::bail!("the watch of {} ended", K::KIND)
}

/// The event with the object unwrapped; one that cannot be read is told of and left out, so that it does not hold up the
/// others. The cache keeps what it said before: passes over it fail at their live look and write nothing.
fn readable<K: Watched, W>(
    event: watcher::Event<W>,
    open: fn(W) -> Result<K, InvalidObject>,
    ctx: &Arc<Context>,
) -> Option<watcher::Event<K>> {
    let read = |wrapped: W| match open(wrapped) {
        Ok(object) => Some(object),
        Err(invalid) => {
            ctx.metrics.malformed(K::KIND);
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
            tracing::error!(kind = K::KIND, namespace, name, error = invalid.error, "an object cannot be read");
            let ctx = Arc::clone(ctx);
            tokio::spawn(async move { K::unreadable(&ctx, &invalid).await });
            None
        }
    };
    Some(match event {
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitDone => watcher::Event::InitDone,
        watcher::Event::InitApply(wrapped) => watcher::Event::InitApply(read(wrapped)?),
        watcher::Event::Apply(wrapped) => watcher::Event::Apply(read(wrapped)?),
        watcher::Event::Delete(wrapped) => watcher::Event::Delete(read(wrapped)?),
    })
}
