//! The watch caches of every kind. How they are read, and read past, is in `reader.rs`.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use kube::runtime::reflector::Store;
use serde::de::DeserializeOwned;

use crate::api::{EtcdBackupStore, EtcdCluster, EtcdMember, EtcdSnapshot, EtcdSnapshotSchedule};

/// One cache for each kind we watch.
#[derive(Clone, Debug)]
pub(super) struct Caches {
    pub(super) clusters: Store<EtcdCluster>,
    pub(super) members: Store<EtcdMember>,
    pub(super) snapshots: Store<EtcdSnapshot>,
    pub(super) backup_stores: Store<EtcdBackupStore>,
    pub(super) schedules: Store<EtcdSnapshotSchedule>,
    pub(super) pods: Store<Pod>,
    pub(super) claims: Store<PersistentVolumeClaim>,
    pub(super) services: Store<Service>,
    pub(super) endpoints: Store<EndpointSlice>,
    pub(super) budgets: Store<PodDisruptionBudget>,
    pub(super) jobs: Store<Job>,
    pub(super) cron_jobs: Store<CronJob>,
}

/// A kind we read: namespaced, known at compile time.
pub(super) trait Cached:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// Its cache.
    fn cache(caches: &Caches) -> &Store<Self>;
}

macro_rules! cached {
    ($($kind:ty => $field:ident,)*) => {
        $(impl Cached for $kind {
            fn cache(caches: &Caches) -> &Store<Self> { &caches.$field }
        })*
    };
}

cached! {
    EtcdCluster => clusters,
    EtcdMember => members,
    EtcdSnapshot => snapshots,
    EtcdBackupStore => backup_stores,
    Pod => pods,
    PersistentVolumeClaim => claims,
    Service => services,
    EndpointSlice => endpoints,
    PodDisruptionBudget => budgets,
    Job => jobs,
    EtcdSnapshotSchedule => schedules,
    CronJob => cron_jobs,
}
