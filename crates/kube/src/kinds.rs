//! The kinds that the operator reads and writes: one line each.
//!
//! Decides which objects of a kind the operator watches, and which kinds may hold an unreadable object: the seven custom
//! resources. Kubernetes' own kinds are always readable.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use holdfast_api::{
    EtcdBackupStore, EtcdCluster, EtcdMember, EtcdRestore, EtcdSnapshot, EtcdSnapshotSchedule, EtcdUser,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ObjectList;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::caches::{Cache, CacheWriter, Indexed};
use crate::slim::{BY_HAND, LARGEST, Slim};

/// Selector of Kubernetes' own kinds: objects with Holdfast's label.
const MANAGED: &str = "app.kubernetes.io/managed-by=holdfast";

/// Kubernetes copies a Service's labels to its `EndpointSlice`s. No pass reads the slices of headless Services.
const CLIENT_SLICES: &str = "app.kubernetes.io/managed-by=holdfast,!service.kubernetes.io/headless";

/// A namespaced kind, with its JSON.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + Send + Sync + 'static
{
    /// Name of the kind.
    const NAME: &'static str;
    /// Reads an object.
    fn from_json(text: &str) -> serde_json::Result<Self>;
    /// Reads a list.
    fn list_from_json(text: &str) -> serde_json::Result<ObjectList<Self>>;
    /// Returns the object as JSON.
    fn to_json(&self) -> serde_json::Result<Value>;
}

/// Events of a watch. An object that cannot be read is an `InvalidObject` with its metadata.
pub type Events<K> = BoxStream<'static, watcher::Result<Event<Result<K, InvalidObject>>>>;

/// A watched kind.
pub trait Cached: Object + Indexed + Slim {
    /// Longest annotation that the cache keeps. Annotations that Holdfast writes have no bound.
    const LONGEST: usize;
    /// Largest object that the cache holds, in bytes of JSON.
    const LARGEST: usize;
    /// Whether an object is too large for the cache: its namespace is read from the API server instead.
    fn is_too_large(&self) -> bool {
        Self::LARGEST < usize::MAX && !self.to_json().is_ok_and(|json| json.to_string().len() <= Self::LARGEST)
    }
    /// Returns the cache of the kind.
    fn cache(caches: &Caches) -> &Cache<Self>;
    /// Selector of the watch.
    fn selector() -> watcher::Config;
    /// Starts a watch in this namespace, or in all.
    fn watch(client: Client, namespace: Option<&str>, selector: watcher::Config) -> Events<Self>;
}

fn api<K>(client: Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    }
}

fn events<K, W>(api: Api<W>, selector: watcher::Config, open: fn(W) -> Result<K, InvalidObject>) -> Events<K>
where
    K: 'static,
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let events = watcher(api, selector).default_backoff();
    Box::pin(events.map(move |event| {
        event.map(|event| match event {
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
            Event::InitApply(object) => Event::InitApply(open(object)),
            Event::Apply(object) => Event::Apply(open(object)),
            Event::Delete(object) => Event::Delete(open(object)),
        })
    }))
}

macro_rules! objects {
    ($($kind:ident),* $(,)?) => {
        $(impl Object for $kind {
            const NAME: &'static str = stringify!($kind);
            fn from_json(text: &str) -> serde_json::Result<Self> {
                serde_json::from_str(text)
            }
            fn list_from_json(text: &str) -> serde_json::Result<ObjectList<Self>> {
                serde_json::from_str(text)
            }
            fn to_json(&self) -> serde_json::Result<Value> {
                serde_json::to_value(self)
            }
        })*
    };
}

macro_rules! watched {
    (all) => {
        watcher::Config::default()
    };
    (only $labels:ident) => {
        watcher::Config::default().labels($labels)
    };
}

macro_rules! opened {
    (all $client:ident $namespace:ident $selector:ident) => {
        events(api::<DeserializeGuard<Self>>($client, $namespace), $selector, |guard| guard.0)
    };
    (only $client:ident $namespace:ident $selector:ident) => {
        events(api::<Self>($client, $namespace), $selector, Ok)
    };
}

macro_rules! longest {
    (all) => {
        BY_HAND
    };
    (only) => {
        usize::MAX
    };
}

macro_rules! largest {
    (all) => {
        usize::MAX
    };
    (only) => {
        LARGEST
    };
}

macro_rules! cached {
    ($($field:ident: $kind:ident, $which:ident $($labels:ident)?, $cluster:expr;)*) => {
        objects!($($kind),*);

        $(impl Indexed for $kind {
            fn cluster(&self) -> Option<&str> {
                let named: fn(&Self) -> Option<&str> = $cluster;
                named(self)
            }
        }

        impl Cached for $kind {
            const LONGEST: usize = longest!($which);
            const LARGEST: usize = largest!($which);
            fn cache(caches: &Caches) -> &Cache<Self> {
                &caches.$field
            }
            fn selector() -> watcher::Config {
                watched!($which $($labels)?)
            }
            fn watch(client: Client, namespace: Option<&str>, selector: watcher::Config) -> Events<Self> {
                opened!($which client namespace selector)
            }
        })*

        /// One cache for each watched kind.
        #[derive(Clone, Debug)]
        pub struct Caches {
            $(
                #[allow(missing_docs, reason = "the type is the kind")]
                pub $field: Cache<$kind>,
            )*
        }

        /// One writer for each cache.
        #[derive(Default)]
        pub struct CacheWriters {
            $(
                #[allow(missing_docs, reason = "the type is the kind")]
                pub $field: CacheWriter<$kind>,
            )*
        }

        impl CacheWriters {
            /// Returns the caches that the writers fill.
            pub fn caches(&self) -> Caches {
                Caches { $($field: self.$field.cache(),)* }
            }
        }
    };
}

cached! {
    clusters: EtcdCluster, all, |_| None;
    members: EtcdMember, all, |member| Some(&member.spec.cluster_ref.name);
    snapshots: EtcdSnapshot, all, |snapshot| snapshot.spec.cluster_ref.as_ref().map(|named| named.name.as_str());
    backup_stores: EtcdBackupStore, all, |_| None;
    schedules: EtcdSnapshotSchedule, all, |schedule| schedule.spec.cluster_ref.as_ref().map(|named| named.name.as_str());
    users: EtcdUser, all, |user| Some(&user.spec.cluster_ref.name);
    restores: EtcdRestore, all, |restore| Some(&restore.spec.cluster_ref.name);
    cron_jobs: CronJob, only MANAGED, |_| None;
    deployments: Deployment, only MANAGED, |_| None;
    pods: Pod, only MANAGED, |_| None;
    claims: PersistentVolumeClaim, only MANAGED, |_| None;
    services: Service, only MANAGED, |_| None;
    endpoints: EndpointSlice, only CLIENT_SLICES, |_| None;
    budgets: PodDisruptionBudget, only MANAGED, |_| None;
    jobs: Job, only MANAGED, |_| None;
}

impl Caches {
    /// Whether the caches hold every object of a namespace as the watches report them. What they lack is unknown, not absent.
    /// EndpointSlices guard no act. Roles of an earlier version forbid the watches of Deployments and of EtcdUsers: the one pass that
    /// needs Deployments looks at their cache itself, and a user is claimed after a live list.
    pub fn are_whole(&self, namespace: &str) -> bool {
        self.clusters.is_whole(namespace)
            && self.members.is_whole(namespace)
            && self.snapshots.is_whole(namespace)
            && self.backup_stores.is_whole(namespace)
            && self.schedules.is_whole(namespace)
            && self.pods.is_whole(namespace)
            && self.claims.is_whole(namespace)
            && self.services.is_whole(namespace)
            && self.budgets.is_whole(namespace)
            && self.jobs.is_whole(namespace)
            && self.cron_jobs.is_whole(namespace)
    }
}

// Written and read by name, and not watched. kube's own `Api` logs an answer that it cannot read, whole: of a Secret, its data.
objects!(ConfigMap, Secret);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_watch_of_deployments_leaves_the_caches_whole() {
        let writers = CacheWriters::default();
        writers.deployments.note_broken();
        assert!(writers.caches().are_whole("ns") && !writers.caches().deployments.is_whole("ns"));
        writers.jobs.note_broken();
        assert!(!writers.caches().are_whole("ns"));
    }
}
