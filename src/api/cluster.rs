//! `EtcdCluster`: what a user wants of one etcd cluster, and what is.
//!
//! Decides fields, defaults and what CEL refuses. What is wrong but invisible to CEL becomes a condition (`plan::valid`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::held::HeldUp;
use crate::api::restore::{Bootstrap, RestoreStatus, Restoring};

/// An etcd cluster: N members of version V with this storage, security and first data.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    shortname = "etcdc",
    category = "etcd",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "An etcd cluster: N members of version V with this storage, security and first data.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.readyMembers",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(
        name = "DEGRADED",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Degraded\")].status",
        description = "something is wrong or at risk, also while all is as desired: the condition says what"
    ),
    printcolumn(
        name = "SERVING",
        type_ = "integer",
        json_path = ".status.readyMembers",
        description = "members with a vote whose Pods are ready"
    ),
    printcolumn(name = "VOTERS", type_ = "integer", json_path = ".status.voters", description = "members with a vote"),
    printcolumn(name = "WANTED", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "VERSION", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "LEADER", type_ = "string", json_path = ".status.leader", priority = 1),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    validation = Rule::new("self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        "the name must be a DNS label that begins with a letter, of at most 52 characters: names of members, Services and Jobs are made from it"
    ),
    validation = Rule::new(
        "!has(self.status) || !has(self.status.latches) || !has(self.status.latches.formed) || !has(self.spec.bootstrap) || (has(oldSelf.spec.bootstrap) && self.spec.bootstrap == oldSelf.spec.bootstrap)"
    )
    .message("the cluster has formed: spec.bootstrap may only be removed now; to restore again, create a new cluster"),
    validation = Rule::new(
        "(has(self.status) && has(self.status.latches) && has(self.status.latches.formed)) || !has(oldSelf.spec.bootstrap) || !has(oldSelf.spec.bootstrap.restore) || (has(self.spec.bootstrap) && has(self.spec.bootstrap.restore))"
    )
    .message("the cluster has not formed: spec.bootstrap.restore may be corrected, not removed; for an empty cluster delete this one and create it anew")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.tls) && has(self.tls.insecure) && self.tls.insecure")
        .message("TLS is not supported yet: plaintext has to be asked for with spec.tls.insecure: true"),
    validation = Rule::new("self.replicas >= oldSelf.replicas")
        .message("scaling in is not supported yet: spec.replicas may only grow"),
    validation = Rule::new("self.version == oldSelf.version")
        .message("version changes are not supported yet: spec.version is immutable"),
    validation = Rule::new("self.storage.size == oldSelf.storage.size && has(self.storage.storageClassName) == has(oldSelf.storage.storageClassName) && (!has(self.storage.storageClassName) || self.storage.storageClassName == oldSelf.storage.storageClassName) && self.storage.retention == oldSelf.storage.retention")
        .message("spec.storage is immutable: resizing and changes of retention are not supported yet"),
    validation = Rule::new("has(self.image) == has(oldSelf.image) && (!has(self.image) || self.image == oldSelf.image)")
        .message("spec.image is immutable: rolling changes are not supported yet"),
    validation = Rule::new("has(self.options) == has(oldSelf.options) && (!has(self.options) || self.options == oldSelf.options)")
        .message("spec.options is immutable: rolling changes are not supported yet"),
    validation = Rule::new("has(self.resources) == has(oldSelf.resources) && (!has(self.resources) || self.resources == oldSelf.resources)")
        .message("spec.resources is immutable: rolling changes are not supported yet")
)]
pub struct EtcdClusterSpec {
    /// Number of members, 1 to 9; default 3. May grow, not shrink yet. Even numbers work and get a warning: they
    /// tolerate no more failures than one member fewer.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 9))]
    pub replicas: i32,
    /// etcd's version, `X.Y.Z`. Immutable for now.
    #[schemars(length(max = 16), regex(pattern = r"^3\.(5|6|7)\.[0-9]{1,3}$"))]
    pub version: String,
    /// Where etcd's image comes from. Default: the operator's `--etcd-image-repository`, tag `v<version>`. Immutable
    /// for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Each member's volume.
    #[serde(default)]
    pub storage: Storage,
    /// etcd's own settings. Immutable for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
    /// Resources of each member's container; default requests of 100m CPU and 256Mi memory, so that a member is never
    /// the first to be evicted. Immutable for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Where Pods may run. Applies to Pods made from then on.
    #[serde(flatten)]
    pub placement: Placement,
    /// Transport security. Only `{insecure: true}` for now, and it has to be written: plaintext is never a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Where the first data comes from; absent: an empty cluster. May be corrected until the cluster has formed, after
    /// that only removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// Observe and report, change nothing. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

const fn three() -> i32 {
    3
}

/// Where an image comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Repository without tag and digest, for example a mirror's: `registry.example.com:5000/etcd`. Default: the
    /// operator's `--etcd-image-repository`. The tag is always `v<version>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[a-z0-9][A-Za-z0-9._:/-]*$"))]
    #[x_kube(validation = Rule::new("self.matches('^([^/:@]+(:[0-9]+)?/)?([^/:@]+/)*[^/:@]+$')").message("image.repository is a repository alone, such as registry.example.com:5000/etcd: leave out the tag (it is v<version>), the digest (it stands in image.digest) and a slash at the end; a colon is only for a port"))]
    pub repository: Option<String>,
    /// Digest, `sha256:...`; takes the place of the tag. It has to be that of `version`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80), regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// `Always`, `IfNotPresent` (default) or `Never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PullPolicy")]
    pub pull_policy: Option<PullPolicy>,
}

/// When kubelet pulls an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Before every start.
    Always,
    /// When the node lacks it.
    IfNotPresent,
    /// Never.
    Never,
}

/// Whether this names a repository alone, as the rule beside [`Image::repository`] says it: no tag, no digest, and a colon
/// only before a port.
pub fn is_repository(text: &str) -> bool {
    let part = |part: &str| !part.is_empty() && !part.contains([':', '@']);
    let port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('/') {
        Some((registry, path)) => {
            let registry = registry.split_once(':').map_or_else(|| part(registry), |(host, n)| part(host) && port(n));
            registry && path.split('/').all(part)
        }
        None => part(text),
    }
}

impl PullPolicy {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// A member's volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of each member's claim; default 8Gi, at least 256Mi (etcd at rest needs about 170 MiB). Immutable for now.
    #[serde(default = "eight_gib")]
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity('256Mi')) >= 0").message("storage.size must be at least 256Mi: etcd preallocates its log"))]
    pub size: Quantity,
    /// Storage class of the claims; absent: the Kubernetes cluster's default class; empty: volumes without a class.
    /// Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')").message("storage.storageClassName is the name of a StorageClass: a-z, 0-9, '-' and '.' (kubectl get storageclass); leave it out for the default class"))]
    pub storage_class_name: Option<String>,
    /// What happens to the claims when the cluster goes: `Delete` (default) or `Retain`. Immutable for now.
    #[serde(default)]
    pub retention: Retention,
}

fn eight_gib() -> Quantity {
    Quantity("8Gi".to_owned())
}

impl Default for Storage {
    fn default() -> Self {
        Self { size: eight_gib(), storage_class_name: None, retention: Retention::Delete }
    }
}

/// What happens to claims when a member or the cluster goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Retention {
    /// They are deleted, after the Pod is gone.
    #[default]
    Delete,
    /// They stay, for a person to look at.
    Retain,
}

/// etcd's own settings, rendered for the minor in use. Names as in etcd's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.autoCompactionMode) == has(self.autoCompactionRetention)")
        .message("options.autoCompactionMode and options.autoCompactionRetention belong together: set both, or leave both out"),
    validation = Rule::new("!has(self.autoCompactionMode) || !has(self.autoCompactionRetention) || (self.autoCompactionMode == 'revision') == self.autoCompactionRetention.matches('^[0-9]+$')")
        .message("options.autoCompactionRetention does not fit options.autoCompactionMode: periodic takes a duration with its unit, such as 1h; revision takes a number of revisions, such as 1000"),
    validation = Rule::new("(has(self.electionTimeout) ? self.electionTimeout : 1000) >= 5 * (has(self.heartbeatInterval) ? self.heartbeatInterval : 100)")
        .message("options.electionTimeout (default 1000 ms) must be at least five times options.heartbeatInterval (default 100 ms), or etcd does not start")
)]
pub struct Options {
    /// Largest size of the database in bytes; default half of what the volume leaves above 1 GiB, at most 8 GiB: a
    /// follower that lags far behind writes the received snapshot beside its own database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16_777_216))]
    pub quota_backend_bytes: Option<i64>,
    /// `periodic` (by age) or `revision` (by count); needs `autoCompactionRetention`. Default: no automatic compaction
    /// (Kubernetes API servers compact by themselves).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CompactionMode")]
    pub auto_compaction_mode: Option<CompactionMode>,
    /// How much history is kept: a duration with its unit (`1h`; ms, s, m, h) for `periodic`, a number of revisions
    /// (`1000`) for `revision`. Goes with `autoCompactionMode`; no default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[0-9]+(ms|s|m|h)?$"))]
    pub auto_compaction_retention: Option<String>,
    /// Entries between two raft snapshots, after which older ones leave memory; etcd's default is 100000 in 3.5, and 10000
    /// from 3.6 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub snapshot_count: Option<i64>,
    /// Milliseconds between heartbeats; etcd's default is 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 5000))]
    pub heartbeat_interval: Option<i64>,
    /// Milliseconds without a heartbeat until an election, at least five heartbeats; etcd's default is 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 50, max = 50_000))]
    pub election_timeout: Option<i64>,
    /// Largest request in bytes; etcd's default is 1.5 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024))]
    pub max_request_bytes: Option<i64>,
    /// Largest number of operations in one transaction; etcd's default is 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_txn_ops: Option<i64>,
}

/// How old revisions are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CompactionMode {
    /// By age.
    Periodic,
    /// By count.
    Revision,
}

impl CompactionMode {
    /// The flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Revision => "revision",
        }
    }
}

/// Where Pods may run, handed through to them. Agents (of snapshots of this cluster, and of the search for the latest one to
/// restore) get tolerations, node selector, priority and pull secrets too, never the members' affinity: an anti-affinity
/// between members must not keep a backup from running.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Affinity of the members' Pods; agents do not get it. Default: members prefer different nodes and zones. May be
    /// changed; applies to Pods made from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Spread of the members' Pods over failure domains, at most 16 rules; agents do not get them. Default: none. May be
    /// changed; applies to Pods made from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Tolerations of the members' Pods and of this cluster's agents (Jobs that save it, or look for what it restores; not
    /// those that probe a store), at most 64. Default: none. May be changed; applies to Pods made from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels that a node needs for the members' Pods and for this cluster's agents. Default: none. May be changed; applies
    /// to Pods made from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// `PriorityClass` of the members' Pods and of this cluster's agents. Default: the Kubernetes cluster's own. May be
    /// changed; applies to Pods made from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// Secrets of this namespace to pull images with, etcd's and Holdfast's, for the members' Pods and for this cluster's
    /// agents, at most 16. Default: those of the Pod's service account. May be changed; applies to Pods made from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
}

/// Transport security.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Plaintext between members and for clients. Has to be `true` until TLS is supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
}

/// What the operator has observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// The generation of the spec this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// etcd's cluster ID, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// etcd's cluster token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_token: Option<String>,
    /// Voters whose Pod is ready.
    #[serde(default)]
    pub ready_members: i32,
    /// Members with a vote.
    #[serde(default)]
    pub voters: i32,
    /// Label selector of the voters' Pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Name of the leading member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The etcd version that runs (the lowest, while they differ).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The members, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub members: Vec<MemberSummary>,
    /// Facts written once, before the step that depends on them.
    #[serde(default)]
    pub latches: Latches,
    /// What the cluster's data was restored from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreStatus>,
    /// What keeps the Pods of the Job that looks for the latest snapshot from running; absent while a Pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up: Option<HeldUp>,
    /// `Ready`, `Available`, `Progressing`, `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// One member, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberSummary {
    /// Name of the `EtcdMember` and its Pod.
    pub name: String,
    /// etcd's member ID, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "memberID")]
    pub member_id: Option<String>,
    /// `voter` or `learner`; absent while etcd does not list it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The etcd version it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it answered.
    #[serde(default)]
    pub healthy: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Facts written once with optimistic concurrency before a point of no return; never un-written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Latches {
    /// Name of the next member, before its create: a lost answer or a crash never makes two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_member: Option<String>,
    /// The restore that is under way, before the seed's Pod. A corrected attempt replaces it as long as nothing formed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<Restoring>,
    /// The cluster has formed: set when the cluster ID is first read, never undone. From then on no member is ever
    /// seeded or restored again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formed: Option<Formed>,
}

/// The moment the cluster ID was first read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Formed {
    /// etcd's cluster ID, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// When (RFC 3339).
    pub at: String,
    /// The restore attempt the data came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<Restoring>,
    /// Members that a `CORRUPT` alarm named already when the restored cluster formed, by ID (hexadecimal; `0`: nobody), and
    /// that were none of its own: these alarms came along with the data, and are cleared. Empty where it is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrupt_came_along: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::is_repository;

    #[test]
    fn a_repository_has_neither_tag_nor_digest() {
        for fine in
            ["etcd", "quay.io/coreos/etcd", "localhost:5000/etcd", "r.example.com:443/a/b-c/etcd", "localhost/x"]
        {
            assert!(is_repository(fine), "{fine}");
        }
        let digest = "quay.io/coreos/etcd@sha256:0123";
        for wrong in [
            "",
            "/",
            "etcd/",
            "/etcd",
            "a//b",
            "etcd:v3.6.16",
            "quay.io/coreos/etcd:v3.6.16",
            "quay.io/a:1/etcd",
            digest,
        ] {
            assert!(!is_repository(wrong), "{wrong}");
        }
        for wrong in ["r:port/etcd", "r:/etcd", ":5000/etcd", "localhost:5000"] {
            assert!(!is_repository(wrong), "{wrong}");
        }
    }
}
