//! One watch for each kind of object. Its task fills the cache and queues the objects that an event concerns, deletions
//! included. Filters on unchanged fields and shared streams would lose deletions. After a broken watch the task queues every
//! object, because deletions during the gap have no event.
//!
//! Decides how the first objects arrive: one by one in a stream, so that memory holds a single object as JSON; in small pages where
//! the API server does not stream lists.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdMember, EtcdSnapshot, EtcdSnapshotSchedule};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::watcher::InitialListStrategy;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::caches::{CacheWriter, Cached, Caches};
use super::clock;
use super::context::Context;
use super::malformed;
use super::slim::{BY_HAND, slim};
use super::wake::{Concerned, Roots, Wakers};

/// Label selector of the operator's own children: the caches must not grow with other workloads in the namespaces.
const OURS: &str = "app.kubernetes.io/managed-by=holdfast";

/// Objects in a page of a list: one object may have 1.5 MiB, and a page is in memory three times.
const PAGE: u32 = 25;

/// Longest error text of an unreadable object: the text may repeat the object.
const TOLD: usize = 600;

/// A watched kind.
trait Watched: Cached {
    /// Name of the kind.
    const KIND: &'static str;
    /// Longest annotation that the cache keeps. Annotations that Holdfast writes have no bound.
    const LONGEST: usize = usize::MAX;
    /// Selector of the watch; by default the objects with Holdfast's label.
    fn selector() -> watcher::Config {
        watcher::Config::default().labels(OURS)
    }
    /// The objects that an event on this object concerns.
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_child(self)
    }
    /// Effects of a deletion beyond waking.
    fn gone(&self, ctx: &Context) {
        let _ = ctx;
    }
    /// Reports an unreadable object; runs in a task of its own.
    fn unreadable(ctx: &Context, invalid: &InvalidObject) -> impl Future<Output = ()> + Send {
        let _ = (ctx, invalid);
        async {}
    }
}

impl Watched for EtcdCluster {
    const KIND: &'static str = "EtcdCluster";
    const LONGEST: usize = BY_HAND;
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
    const LONGEST: usize = BY_HAND;
    fn selector() -> watcher::Config {
        watcher::Config::default()
    }
    fn concerns(&self, _roots: &Roots) -> Concerned {
        Roots::of_member(self)
    }
}

impl Watched for EtcdSnapshot {
    const KIND: &'static str = "EtcdSnapshot";
    const LONGEST: usize = BY_HAND;
    fn selector() -> watcher::Config {
        watcher::Config::default()
    }
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_snapshot(self)
    }
}

impl Watched for EtcdBackupStore {
    const KIND: &'static str = "EtcdBackupStore";
    const LONGEST: usize = BY_HAND;
    fn selector() -> watcher::Config {
        watcher::Config::default()
    }
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_backup_store(self)
    }
}

impl Watched for EtcdSnapshotSchedule {
    const KIND: &'static str = "EtcdSnapshotSchedule";
    const LONGEST: usize = BY_HAND;
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
        ctx.unstarted.note(self, clock::now());
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
    /// Kubernetes copies a Service's labels to its EndpointSlices. No pass reads the slices of headless Services.
    fn selector() -> watcher::Config {
        watcher::Config::default().labels("app.kubernetes.io/managed-by=holdfast,!service.kubernetes.io/headless")
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
    clusters: CacheWriter<EtcdCluster>,
    members: CacheWriter<EtcdMember>,
    snapshots: CacheWriter<EtcdSnapshot>,
    backup_stores: CacheWriter<EtcdBackupStore>,
    schedules: CacheWriter<EtcdSnapshotSchedule>,
    pods: CacheWriter<Pod>,
    claims: CacheWriter<PersistentVolumeClaim>,
    services: CacheWriter<Service>,
    endpoints: CacheWriter<EndpointSlice>,
    budgets: CacheWriter<PodDisruptionBudget>,
    jobs: CacheWriter<Job>,
    cron_jobs: CacheWriter<CronJob>,
}

impl CacheWriters {
    /// Returns the reading ends.
    pub(super) fn caches(&self) -> Caches {
        Caches {
            clusters: self.clusters.cache(),
            members: self.members.cache(),
            snapshots: self.snapshots.cache(),
            backup_stores: self.backup_stores.cache(),
            schedules: self.schedules.cache(),
            pods: self.pods.cache(),
            claims: self.claims.cache(),
            services: self.services.cache(),
            endpoints: self.endpoints.cache(),
            budgets: self.budgets.cache(),
            jobs: self.jobs.cache(),
            cron_jobs: self.cron_jobs.cache(),
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
        // The five kinds are guarded: an unreadable object must not hold up the others. Kubernetes' own kinds are always readable.
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

/// Watches one kind for ever. The wire type `W` may hold a readable `K`.
async fn watch<K, W>(
    api: Api<W>,
    open: fn(W) -> Result<K, InvalidObject>,
    mut cache: CacheWriter<K>,
    ctx: Arc<Context>,
    wakers: Wakers,
) -> anyhow::Result<()>
where
    K: Watched,
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let roots = Roots::of(&ctx.caches);
    let mut selector = K::selector().streaming_lists();
    loop {
        let events = watcher(api.clone(), selector.clone()).default_backoff();
        let mut events = std::pin::pin!(events);
        let streams = selector.initial_list_strategy == InitialListStrategy::StreamingList;
        loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) if streams && is_refused(&error) => break,
                Some(Err(error)) => {
                    ctx.metrics.watch_failed(K::KIND);
                    cache.note_broken();
                    tracing::warn!(kind = K::KIND, %error, "a watch broke and is begun again");
                    continue;
                }
                None => anyhow::bail!("the watch of {} ended", K::KIND),
            };
            let Some(event) = readable(event, open, &cache, &ctx) else { continue };
            cache.apply(&event);
            ctx.own.wake();
            match &event {
                watcher::Event::Apply(object) => wakers.wake(|| object.concerns(&roots)),
                watcher::Event::Delete(object) => {
                    object.gone(&ctx);
                    wakers.wake(|| object.concerns(&roots));
                }
                watcher::Event::InitDone => wakers.wake(|| roots.all()),
                watcher::Event::Init | watcher::Event::InitApply(_) => {}
            }
        }
        tracing::info!(kind = K::KIND, "the API server streams no lists: they are read in pages");
        selector = K::selector().page_size(PAGE);
    }
}

/// Whether the API server cannot stream lists: it refuses the parameter as invalid or as a bad request.
fn is_refused(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

/// The event with the object unwrapped and its metadata slim; one that cannot be read is told of and left out, so that it does not hold up the
/// others. The cache notes it: passes over its namespace read the API server, fail there and write nothing.
fn readable<K: Watched, W: Resource>(
    event: watcher::Event<W>,
    open: fn(W) -> Result<K, InvalidObject>,
    cache: &CacheWriter<K>,
    ctx: &Arc<Context>,
) -> Option<watcher::Event<K>> {
    let read = |wrapped: W| match open(wrapped) {
        Ok(mut object) => {
            slim(&mut object, K::LONGEST);
            Some(object)
        }
        Err(InvalidObject { error, metadata }) => {
            let named = ObjectMeta { name: metadata.name, namespace: metadata.namespace, ..ObjectMeta::default() };
            let (generation, creation_timestamp) = (metadata.generation, metadata.creation_timestamp);
            let metadata = ObjectMeta { generation, creation_timestamp, ..named };
            let invalid = InvalidObject { error: error.chars().take(TOLD).collect(), metadata };
            ctx.metrics.malformed(K::KIND);
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
            tracing::error!(kind = K::KIND, namespace, name, error = invalid.error, "an object cannot be read");
            cache.note_unreadable(namespace, name);
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
        watcher::Event::Delete(wrapped) => {
            let (namespace, name) = (wrapped.meta().namespace.clone(), wrapped.meta().name.clone());
            let read = read(wrapped);
            let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
            // Of one that the cache holds, an older version stays until the next list.
            if read.is_none() && cache.cache().named(&namespace, &name).is_none() {
                cache.note_readable(&namespace, &name);
            }
            watcher::Event::Delete(read?)
        }
    })
}

#[cfg(test)]
mod tests {
    use holdfast_api::key;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{Fake, refusal};

    fn store(name: &str) -> Value {
        let annotations = json!({"example.com/x": "y".repeat(250 << 10), key::ACCEPT_STORE: "id"});
        let metadata = json!({"name": name, "namespace": "ns", "resourceVersion": "3", "annotations": annotations,
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}]});
        json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdBackupStore", "metadata": metadata, "spec": {}})
    }

    async fn cached(answers: Vec<crate::fake::Answer>) -> (Vec<Arc<EtcdBackupStore>>, Fake) {
        let fake = Fake::start(answers).await;
        let writer = CacheWriter::<EtcdBackupStore>::default();
        let cache = writer.cache();
        let (wakers, _queues) = Wakers::new();
        let (api, ctx) = (api(&fake.ctx, Some("ns")), Arc::clone(&fake.ctx));
        let watched = tokio::spawn(watch(api, unguard, writer, ctx, wakers));
        let filled = clock::within(std::time::Duration::from_secs(20), cache.wait_until_ready()).await;
        assert!(filled.is_some_and(|filled| filled.is_ok()), "{:?}", fake.reads());
        watched.abort();
        (cache.state(), fake)
    }

    /// Whether the caches dropped the metadata that other writers added.
    fn is_slim(stores: &[Arc<EtcdBackupStore>]) -> bool {
        stores.iter().all(|store| {
            let text = serde_json::to_string(&**store).unwrap();
            text.len() < 1000 && store.annotations().contains_key(key::ACCEPT_STORE)
        })
    }

    #[tokio::test]
    async fn an_api_server_that_streams_no_lists_is_read_in_pages() {
        let list = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdBackupStoreList",
            "metadata": {"resourceVersion": "7"}, "items": [store("a"), store("b")]});
        let answers =
            vec![("GET", "sendInitialEvents=true", 422, refusal(422, "Invalid")), ("GET", "limit=25", 200, list)];
        let (stores, fake) = cached(answers).await;
        assert_eq!((stores.len(), is_slim(&stores)), (2, true), "{stores:?}");
        assert!(fake.reads()[0].contains("sendInitialEvents=true"), "{:?}", fake.reads());
    }

    /// Annotations of one tenant: 100 MB pass through, and a hundredth of that stays.
    #[tokio::test]
    async fn the_caches_do_not_grow_with_what_others_write_into_metadata() {
        let fake = Fake::start(vec![]).await;
        let mut writer = CacheWriter::<EtcdBackupStore>::default();
        let cache = writer.cache();
        for n in 0..400 {
            let line = store(&format!("s-{n}")).to_string();
            let wrapped = serde_json::from_str::<DeserializeGuard<EtcdBackupStore>>(&line).unwrap();
            let event = readable(watcher::Event::Apply(wrapped), unguard, &writer, &fake.ctx).unwrap();
            writer.apply(&event);
        }
        assert_eq!((cache.len(), is_slim(&cache.state())), (400, true));
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_told_in_few_words() {
        let fake = Fake::start(vec![]).await;
        let mut broken = store("a");
        broken["kind"] = json!("EtcdCluster");
        broken["spec"] = json!({"version": "3.6.16", "replicas": 1, "storage": {"medium": "x".repeat(1 << 20)}});
        let wrapped: DeserializeGuard<EtcdCluster> = serde_json::from_value(broken).unwrap();
        let writer = CacheWriter::<EtcdCluster>::default();
        let caches = Caches { clusters: writer.cache(), ..CacheWriters::default().caches() };
        assert!(readable(watcher::Event::Apply(wrapped), unguard, &writer, &fake.ctx).is_none());
        assert!(!caches.are_whole("ns"), "what is unknown is not absent");
        for _ in 0..500 {
            if let Some(told) = fake.writes().first() {
                assert!(told.path.contains("/etcdclusters/a/status"), "{told:?}");
                assert!(told.body.to_string().len() < 2000, "{}", told.body.to_string().len());
                return;
            }
            clock::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("its status tells nothing");
    }
}
