//! An `EtcdSnapshot` that the operator requests of a cluster.
//!
//! Decides its form: labelled, without an owner, and stored until a person removes it. The rules that request one decide name and
//! template.

use holdfast_api::name::{self, LocalRef};
use holdfast_api::snapshot::{DeletionPolicy, SnapshotTemplate};
use holdfast_api::{EtcdCluster, EtcdSnapshot, EtcdSnapshotSpec, key};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;

/// Returns the request for a snapshot of this cluster.
pub fn snapshot(cluster: &EtcdCluster, name: String, template: &SnapshotTemplate) -> EtcdSnapshot {
    let named = meta::name(&cluster.metadata);
    let labels = [(key::MANAGED_BY, "holdfast".to_owned()), (key::CLUSTER, name::label_value(named))];
    EtcdSnapshot {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: cluster.metadata.namespace.clone(),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
            ..ObjectMeta::default()
        },
        spec: EtcdSnapshotSpec {
            cluster_ref: Some(LocalRef { name: named.to_owned() }),
            deletion_policy: DeletionPolicy::Retain,
            template: template.clone(),
            ..EtcdSnapshotSpec::default()
        },
        status: None,
    }
}
