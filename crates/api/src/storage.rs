//! Where a member of an `EtcdCluster` keeps its data, and for how long.
//!
//! Decides fields, defaults and what CEL refuses. What depends on other fields of the cluster stands in `cluster.rs`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A member's volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.medium == oldSelf.medium")
        .message("storage.medium is immutable: save the data, and create another cluster"),
    validation = Rule::new("self.medium != 'Memory' || has(self.size)")
        .message("storage.medium Memory needs storage.size: each member takes so much of its node's memory"),
    validation = Rule::new("self.medium != 'Memory' || !has(self.storageClassName)")
        .message("storage.medium Memory has no claims: leave out storage.storageClassName")
)]
pub struct Storage {
    /// Where each member keeps its data: empty (default) for a claim, `Memory` for a file system in the memory of its
    /// Pod. Data in memory end with their Pod: Holdfast then replaces the member, and a cluster that loses all of its
    /// Pods has lost its data. `Memory` needs `size`, and refuses `replicas: 0` and `bootstrap.restore`. Immutable.
    #[serde(default)]
    pub medium: Medium,
    /// Size of each member's volume; default 8Gi, at least 256Mi (an idle etcd needs about 170 MiB). After the cluster has
    /// formed the size may grow: all claims grow at the same time, without a restart where the volume driver can. The
    /// members then restart one after the other for a larger default of `options.quotaBackendBytes`. No size below
    /// `status.volumeSize`. With `medium: Memory` the size is added to the memory of `resources`, members without a memory
    /// limit get one, and after the cluster has formed the size is immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity('256Mi')) >= 0").message("storage.size must be at least 256Mi: etcd preallocates its log"))]
    pub size: Option<Quantity>,
    /// StorageClass of the claims. Default: the Kubernetes cluster's default class; an empty string selects volumes
    /// without a class. Immutable after the cluster has formed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')").message("storage.storageClassName must be the name of a StorageClass (kubectl get storageclass): a-z, 0-9, '-' and '.'; leave the field out for the default class"))]
    pub storage_class_name: Option<String>,
    /// Handling of a member's claim when the member is removed or the cluster deleted: `Delete` (default) or `Retain`. May be
    /// changed at any time, and holds at once; `status.retention` shows the value that every member has.
    #[serde(default)]
    pub retention: Retention,
}

impl Storage {
    /// Size of each member's volume.
    pub fn size(&self) -> Quantity {
        self.size.clone().unwrap_or_else(|| Quantity("8Gi".to_owned()))
    }

    /// Whether the other field describes the same volume, whatever its retention.
    pub fn is_same_volume(&self, other: &Self) -> bool {
        Self { retention: other.retention, ..self.clone() } == *other
    }

    /// Whether the data end with the Pod.
    pub fn in_memory(&self) -> bool {
        self.medium == Medium::Memory
    }
}

/// Where a member keeps its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Medium {
    /// On the volume of a claim.
    #[default]
    #[serde(rename = "")]
    Disk,
    /// In the memory of its Pod.
    Memory,
}

/// Handling of the claims when a member or the cluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Retention {
    /// The operator deletes the claims after the Pod.
    #[default]
    Delete,
    /// The claims stay for inspection.
    Retain,
}
