//! `EtcdMember`: one member's identity, its Pod and its claim. Written by the operator alone.
//!
//! Decides the shape. The cluster pass writes the spec's latches, the member pass the status.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::cluster::{Image, Options, Placement, Storage};
use crate::api::restore::Restoring;

/// One member of an `EtcdCluster`. Made and deleted by the operator; its name is never used twice.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "EtcdMember",
    plural = "etcdmembers",
    shortname = "etcdm",
    category = "etcd",
    namespaced,
    status = "EtcdMemberStatus",
    derive = "PartialEq",
    derive = "Default",
    selectable = ".spec.clusterRef.uid",
    doc = "One member of an EtcdCluster. Made and deleted by the operator; its name is never used twice.",
    printcolumn(name = "CLUSTER", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(
        name = "JOINED",
        type_ = "string",
        json_path = ".spec.joined.memberID",
        description = "member ID in etcd, once it has joined"
    ),
    printcolumn(name = "VERSION", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "CLAIM", type_ = "string", json_path = ".status.claim.name", priority = 1),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberSpec {
    /// The cluster it belongs to.
    pub cluster_ref: ClusterIdentity,
    /// How it was born.
    pub role: Birth,
    /// etcd's version.
    pub version: String,
    /// Where etcd's image comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Its volume.
    #[serde(default)]
    pub storage: Storage,
    /// etcd's own settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
    /// Resources of etcd's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Where its Pod may run.
    #[serde(flatten)]
    pub placement: Placement,
    /// etcd's cluster token.
    pub cluster_token: String,
    /// etcd's `--initial-cluster`; absent until etcd knows this member, and no Pod is made before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_cluster: Option<String>,
    /// The restore its first data comes from (seeds only, and only while the cluster has not formed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restoring>,
    /// Latched when it was first seen serving under its ID: from then on it never starts on an empty volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
    /// Number of the latest of its Pods that was seen serving, 1 for the first. A volume on which that one has not run is
    /// an older copy, and is refused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A cluster, by name and UID: a new cluster of the same name is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// Name of the `EtcdCluster`.
    pub name: String,
    /// UID of the `EtcdCluster`.
    pub uid: String,
}

/// How a member was born.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Birth {
    /// The first one: founds the cluster, or carries the restored data.
    Seed,
    /// Added to a running cluster as a learner.
    #[default]
    Joiner,
}

/// The identity under which a member first served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// etcd's member ID, hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// etcd's cluster ID, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
}

impl Joined {
    /// The value of [`super::key::JOINED`].
    pub fn annotation(&self) -> String {
        snapshot_agent::contract::joined_as(&self.cluster_id, &self.member_id)
    }
}

/// What the operator has observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberStatus {
    /// The generation of the spec this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Its claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ObjectIdentity>,
    /// Its Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectIdentity>,
    /// What the gate, the restore or etcd last ended with, where that was not success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// `Ready`, `Progressing`, `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// An object by name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectIdentity {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// How a container of the member's Pod last failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    /// Which container: `install`, `restore` or `etcd`.
    pub container: String,
    /// Exit code.
    pub exit_code: i32,
    /// A reason of the closed list of conditions, where the code has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it said, without secrets.
    pub message: String,
}
