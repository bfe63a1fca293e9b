//! One watch for each kind of object. Its task fills the cache and queues the objects that an event concerns, deletions
//! included. Filters on unchanged fields and shared streams would lose deletions. After a broken watch the task queues every
//! object, because deletions during the gap have no event.
//!
//! Decides how the first objects arrive: one by one in a stream, so that memory holds a single object as JSON; in small pages where
//! the API server does not stream lists.

use std::sync::Arc;

use futures::StreamExt;
use holdfast_api::{
    EtcdBackupStore, EtcdCluster, EtcdMember, EtcdRestore, EtcdSnapshot, EtcdSnapshotSchedule, EtcdUser,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ObjectMeta;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::watcher::InitialListStrategy;
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use tokio::task::JoinSet;

use super::clock;
use super::context::Context;
use super::malformed;
use super::wake::{Concerned, Roots, Wakers};
use holdfast_kube::caches::CacheWriter;
use holdfast_kube::kinds::CacheWriters;
use holdfast_kube::kinds::Cached;
use holdfast_kube::slim::slim;

/// Objects in a page of a list: one object may have 1.5 MiB, and a page is in memory three times.
const PAGE: u32 = 25;

/// Longest error text of an unreadable object: the text may repeat the object.
const LONGEST_ERROR: usize = 600;

/// A watched kind.
trait Watched: Cached {
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
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_cluster(self)
    }
    async fn unreadable(ctx: &Context, invalid: &InvalidObject) {
        malformed::report_unreadable(ctx, invalid).await;
    }
}

impl Watched for EtcdMember {
    fn concerns(&self, _roots: &Roots) -> Concerned {
        Roots::of_member(self)
    }
}

impl Watched for EtcdSnapshot {
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_snapshot(self)
    }
}

impl Watched for EtcdBackupStore {
    fn concerns(&self, roots: &Roots) -> Concerned {
        roots.of_backup_store(self)
    }
}

impl Watched for EtcdSnapshotSchedule {
    fn concerns(&self, _roots: &Roots) -> Concerned {
        Roots::of_schedule(self)
    }
}

impl Watched for EtcdUser {
    fn concerns(&self, _roots: &Roots) -> Concerned {
        Roots::of_user(self)
    }
}

impl Watched for EtcdRestore {
    fn concerns(&self, _roots: &Roots) -> Concerned {
        Roots::of_restore(self)
    }
}

impl Watched for CronJob {}

impl Watched for Deployment {}

impl Watched for Pod {
    fn gone(&self, ctx: &Context) {
        if let Some(uid) = self.uid() {
            ctx.etcd.forget(&uid);
        }
        ctx.unstarted.note(self, clock::now());
    }
}

impl Watched for PersistentVolumeClaim {}

impl Watched for Service {}

impl Watched for EndpointSlice {}

impl Watched for PodDisruptionBudget {}

impl Watched for Job {}

/// Starts the watches of all kinds. A task that ends, ends the operator.
pub(super) fn watch_all(
    writers: CacheWriters,
    tasks: &mut JoinSet<anyhow::Result<()>>,
    ctx: &Arc<Context>,
    wakers: &Wakers,
    namespace: Option<&str>,
) {
    let namespace = namespace.map(str::to_owned);
    tasks.spawn(watch(writers.clusters, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.members, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.snapshots, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.backup_stores, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.schedules, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.users, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.restores, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.cron_jobs, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.deployments, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.pods, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.claims, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.services, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.endpoints, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.budgets, Arc::clone(ctx), wakers.clone(), namespace.clone()));
    tasks.spawn(watch(writers.jobs, Arc::clone(ctx), wakers.clone(), namespace));
}

/// Watches one kind for ever.
async fn watch<K: Watched>(
    mut cache: CacheWriter<K>,
    ctx: Arc<Context>,
    wakers: Wakers,
    namespace: Option<String>,
) -> anyhow::Result<()> {
    let roots = Roots::from(&ctx.caches);
    let mut selector = K::selector().streaming_lists();
    loop {
        let mut events = K::watch(ctx.read.0.clone(), namespace.as_deref(), selector.clone());
        let streams = selector.initial_list_strategy == InitialListStrategy::StreamingList;
        loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) if streams && is_refused(&error) => break,
                Some(Err(error)) => {
                    ctx.metrics.watch_failed(K::NAME);
                    cache.note_broken();
                    tracing::warn!(kind = K::NAME, %error, "a watch broke and is begun again");
                    continue;
                }
                None => anyhow::bail!("the watch of {} ended", K::NAME),
            };
            let Some(event) = readable(event, &cache, &ctx) else { continue };
            cache.apply(&event);
            ctx.own.wake();
            match &event {
                Event::Apply(object) => wakers.wake(|| object.concerns(&roots)),
                Event::Delete(object) => {
                    object.gone(&ctx);
                    wakers.wake(|| object.concerns(&roots));
                }
                Event::InitDone => wakers.wake(|| roots.all()),
                Event::Init | Event::InitApply(_) => {}
            }
        }
        tracing::info!(kind = K::NAME, "the API server streams no lists: they are read in pages");
        selector = K::selector().page_size(PAGE);
    }
}

/// Whether the API server cannot stream lists: it refuses the parameter as invalid or as a bad request.
fn is_refused(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

/// Returns the event with the parts that plans read; `None` for an unreadable object, which is reported and must not hold up the
/// others, and for one that is too large. The cache records both: passes over the namespace read the API server, where a pass that
/// meets the unreadable object fails, and writes nothing.
fn readable<K: Watched>(
    event: Event<Result<K, InvalidObject>>,
    cache: &CacheWriter<K>,
    ctx: &Arc<Context>,
) -> Option<Event<K>> {
    let read = |read: Result<K, InvalidObject>| match read {
        Ok(mut object) => {
            slim(&mut object, K::LONGEST);
            if !object.is_too_large() {
                return Some(object);
            }
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            tracing::warn!(
                kind = K::NAME,
                namespace,
                name,
                "an object with Holdfast's label is too large for the cache"
            );
            cache.note_unreadable(&namespace, &name);
            None
        }
        Err(InvalidObject { error, metadata }) => {
            let named = ObjectMeta { name: metadata.name, namespace: metadata.namespace, ..ObjectMeta::default() };
            let (generation, creation_timestamp) = (metadata.generation, metadata.creation_timestamp);
            let metadata = ObjectMeta { generation, creation_timestamp, ..named };
            let invalid = InvalidObject { error: error.chars().take(LONGEST_ERROR).collect(), metadata };
            ctx.metrics.malformed(K::NAME);
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
            tracing::error!(kind = K::NAME, namespace, name, error = invalid.error, "an object cannot be read");
            cache.note_unreadable(namespace, name);
            let ctx = Arc::clone(ctx);
            tokio::spawn(async move { K::unreadable(&ctx, &invalid).await });
            None
        }
    };
    Some(match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(read(object)?),
        Event::Apply(object) => Event::Apply(read(object)?),
        Event::Delete(deleted) => {
            let metadata = deleted.as_ref().map_or_else(|invalid| &invalid.metadata, Resource::meta);
            let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
            let read = read(deleted);
            let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
            // Of one that the cache holds, an older version stays until the next list.
            if read.is_none() && cache.cache().named(&namespace, &name).is_none() {
                cache.note_readable(&namespace, &name);
            }
            Event::Delete(read?)
        }
    })
}

#[cfg(test)]
mod tests {
    use holdfast_api::key;
    use holdfast_kube::kinds::Caches;
    use kube::core::DeserializeGuard;
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
        let wakers = Wakers::default();
        let ctx = Arc::clone(&fake.ctx);
        let watched = tokio::spawn(watch(writer, ctx, wakers, Some("ns".to_owned())));
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
            let event = readable(Event::Apply(wrapped.0), &writer, &fake.ctx).unwrap();
            writer.apply(&event);
        }
        assert_eq!((cache.len(), is_slim(&cache.state())), (400, true));
    }

    /// Jobs of one tenant with Holdfast's label, whatever field is large: 54 MB pass through, and a hundredth of that stays.
    #[tokio::test]
    async fn the_caches_do_not_grow_with_the_specs_of_foreign_jobs() {
        let fake = Fake::start(vec![]).await;
        let mut writer = CacheWriter::<Job>::default();
        let caches = Caches { jobs: writer.cache(), ..CacheWriters::default().caches() };
        let fat = "x".repeat(900 << 10);
        let templates = [
            json!({"containers": [{"name": "c", "env": [{"name": "A", "value": fat}]}]}),
            json!({"containers": [{"name": "c"}], "volumes": [{"name": "v", "hostPath": {"path": fat}}]}),
            json!({"containers": [{"name": "c", "args": [fat]}]}),
            json!({"containers": [{"name": "c", "env": [{"name": "HOLDFAST_REQUEST", "value": fat}]}]}),
        ];
        for n in 0..60 {
            let metadata = json!({"name": format!("j-{n}"), "namespace": "ns", "uid": n.to_string()});
            let spec =
                json!({"backoffLimit": 3, "template": {"spec": templates[if n % 3 == 2 { 2 + n % 2 } else { n % 3 }]}});
            let job: Job = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
            if let Some(event) = readable(Event::Apply(Ok(job)), &writer, &fake.ctx) {
                writer.apply(&event);
            }
        }
        let kept: usize = caches.jobs.state().iter().map(|job| serde_json::to_string(&**job).unwrap().len()).sum();
        assert!(kept < 540 << 10, "{kept}");
        assert_eq!(caches.jobs.len(), 40);
        assert!(caches.jobs.state().iter().all(|job| job.spec.as_ref().unwrap().backoff_limit == Some(3)));
        assert!(!caches.are_whole("ns") && caches.are_whole("other"), "what is too large is unknown, not absent");
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
        assert!(readable(Event::Apply(wrapped.0), &writer, &fake.ctx).is_none());
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
