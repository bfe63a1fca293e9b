//! A member's claim.
//!
//! Decides its labels and size. The claim has no owner reference: garbage collection would delete the data if the owner came
//! back under another UID (a restored management cluster; I4). The member's pass deletes the claim, by label and UID. For the same
//! reason the claim has no label of a user: a tool that prunes objects without an owner by its label would delete the data.

use holdfast_api::{EtcdMember, key, name};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;

/// Returns the claim.
pub fn claim(member: &EtcdMember) -> PersistentVolumeClaim {
    let spec = &member.spec;
    let mut labels = super::labels(&spec.cluster_ref.name, &spec.cluster_ref.uid);
    labels.insert(key::MEMBER.to_owned(), meta::name(&member.metadata).to_owned());
    labels.insert(key::MEMBER_UID.to_owned(), meta::uid(&member.metadata).to_owned());
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name::claim(meta::name(&member.metadata))),
            namespace: member.metadata.namespace.clone(),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: spec.storage.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), spec.storage.size())].into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}
