//! `EtcdMember`: one member's identity, its Pod and its claim. Written by the operator alone.
//!
//! Decides the shape. The cluster pass writes the spec's latches, the member pass the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::PodMetadata;
use crate::cluster::{Placement, Storage};
use crate::repair::{Evidence, Refusal};
use crate::restore::Restoring;
use crate::template::Template;
use crate::timeline::Aside;
use crate::tls::MemberTls;
use crate::transport::Transport;

/// CEL: a field that is there stays as it is.
fn set_once(field: &str) -> String {
    format!("!has(oldSelf.{field}) || (has(self.{field}) && self.{field} == oldSelf.{field})")
}

/// One member of an `EtcdCluster`. The operator creates and deletes the object, and never reuses its name.
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
    doc = "One member of an EtcdCluster. The operator creates and deletes the object, and never reuses its name.",
    printcolumn(name = "CLUSTER", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(
        name = "JOINED",
        type_ = "string",
        json_path = ".spec.joined.memberID",
        description = "member ID in etcd, after the member has joined"
    ),
    printcolumn(name = "ROLE", type_ = "string", json_path = ".status.role", description = "voter or learner"),
    printcolumn(
        name = "STATE",
        type_ = "string",
        json_path = ".status.state",
        description = "Joining, Serving, NotServing, Leaving, Removed, Parked, Preparing, Prepared or SetAside"
    ),
    printcolumn(name = "VERSION", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "CLAIM", type_ = "string", json_path = ".status.claim.name", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(set_once("joined")).message("joined is written once"),
    validation = Rule::new(set_once("leaving")).message("leaving is written once: a member that leaves never stays"),
    validation = Rule::new(set_once("removed")).message("removed is written once"),
    validation = Rule::new("!has(oldSelf.tls) || has(self.tls)").message("a member keeps the record of its certificates")
)]
pub struct EtcdMemberSpec {
    /// Cluster of this member.
    pub cluster_ref: ClusterIdentity,
    /// Origin: `seed` or `joiner`.
    pub role: Birth,
    /// The template that the Pod has or gets.
    #[serde(flatten)]
    pub process: Template,
    /// The member's volume.
    #[serde(default)]
    pub storage: Storage,
    /// Fingerprint of version, image, options, resources, ServiceAccount and restart. A Pod with another fingerprint is outdated. Absent
    /// for a member that an earlier Holdfast created, until the first change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The template with which the member served before the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Template>,
    /// Labels and annotations of the cluster's `podMetadata` and `additionalMetadata` that the Pod has or gets.
    #[serde(default, skip_serializing_if = "PodMetadata::is_empty")]
    pub pod_metadata: PodMetadata,
    /// Scheduling of the Pod.
    #[serde(flatten)]
    pub placement: Placement,
    /// etcd's cluster token.
    pub cluster_token: String,
    /// etcd's `--initial-cluster`. Absent until etcd lists this member; the operator creates the Pod only afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_cluster: Option<String>,
    /// Restore that provides the initial data; only for a seed, and only until the cluster has formed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restoring>,
    /// IDs under which the operator first saw the member serve. With these IDs set, the member never starts on an empty
    /// volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
    /// Decision to remove this member from etcd, written before the first request to etcd and never undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Leaving>,
    /// Proof that etcd does not list this member any more, from a linearizable read. Holdfast deletes the member's Pod
    /// and claim only with this proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Removed>,
    /// Certificates; absent where the member never had any. `transport` says which ports use them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<MemberTls>,
    /// State of etcd's log when Holdfast parked the member. Removed after the cluster serves again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Parked>,
    /// Timeline of the cluster that the member belongs to; absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2))]
    pub timeline: Option<u32>,
    /// Return by an `EtcdRestore` that set the member aside: the member has no Pod, and keeps its claim. Removed when the return
    /// fails and the member serves again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<Aside>,
    /// Restore that the cluster's data came from, copied from the cluster to members that join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<Restoring>,
    /// Number of the member's latest Pod that the operator saw serve; the first Pod is 1. The gate refuses a volume on
    /// which this Pod has not run, because the volume is an older copy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_count: u64,
}

impl EtcdMemberSpec {
    /// Which ports speak TLS, by the template that the Pod has or gets.
    pub fn transport(&self) -> Transport {
        self.transport_of(&self.process)
    }

    /// Which ports of this member speak TLS with a template. A member in plaintext that never had certificates was created with a
    /// template that names no transport.
    pub fn transport_of(&self, template: &Template) -> Transport {
        let default = if self.tls.is_some() { Transport::Tls } else { Transport::Plaintext };
        template.transport.unwrap_or(default)
    }

    /// Returns the record of the certificates that the member's etcd uses; `None` in plaintext.
    pub fn certificates(&self) -> Option<&MemberTls> {
        self.tls.as_ref().filter(|_| self.transport().has_certificates())
    }

    /// Whether the member leaves because its data are lost: its Pod ends, and none is made again.
    pub fn is_lost(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.why == Departure::Lost)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A cluster by name and UID; a new cluster of the same name has another UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// Name of the `EtcdCluster`.
    pub name: String,
    /// UID of the `EtcdCluster`.
    pub uid: String,
}

/// Progress of a change of the resources of a member's running Pod: values of the annotation `holdfast.dev/resize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// The operator asks the API server next.
    Asked,
    /// The API server has the new resources, and kubelet applies them.
    Accepted,
    /// The API server does not change the resources of this Pod: the Pod ends instead.
    Refused,
}

impl Resize {
    /// Returns the annotation's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
        }
    }

    /// Returns the progress that the annotation's value names. An unknown value is a refusal: the Pod ends in its turn.
    pub fn parse(value: &str) -> Self {
        [Self::Asked, Self::Accepted].into_iter().find(|state| state.as_str() == value).unwrap_or(Self::Refused)
    }
}

/// Origin of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Birth {
    /// First member: founds the cluster, or contains the restored data.
    Seed,
    /// Added to a running cluster as a learner.
    #[default]
    Joiner,
}

/// IDs under which a member first served.
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

/// Why and since when a member leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Leaving {
    /// Cause.
    pub why: Departure,
    /// Evidence that the member's data are lost, for the cause `Lost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Time of the decision (RFC 3339).
    pub at: String,
}

/// Cause of a member's removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Departure {
    /// `spec.replicas` of the cluster is smaller than the number of members.
    #[default]
    ScaledIn,
    /// Evidence shows that the member's data are lost. Its Pod ends before etcd removes the member.
    Lost,
    /// A person asked for the replacement of this member, or deleted its `EtcdMember`.
    Requested,
    /// The member had joined, and etcd does not list the member any more.
    NotListed,
    /// The learner was not promoted in time.
    NeverPromoted,
}

impl Departure {
    /// Whether another member takes this one's place, so that the claim is kept for a while.
    pub const fn replaces(self) -> bool {
        matches!(self, Self::Lost | Self::Requested | Self::NotListed)
    }
}

/// Proof of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// Member ID that etcd listed, hexadecimal; absent for a member that etcd never listed under an ID.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "memberID")]
    pub member_id: Option<String>,
    /// ID of the etcd cluster whose member list lacks the member, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Time of that read (RFC 3339).
    pub at: String,
}

/// State of a member's log when Holdfast parked the member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parked {
    /// Raft term; absent where the member did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// Applied raft index; absent where the member did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Time of the decision (RFC 3339).
    pub at: String,
}

impl Joined {
    /// The value of [`super::key::JOINED`].
    pub fn annotation(&self) -> String {
        holdfast_contract::joined_as(&self.cluster_id, &self.member_id)
    }
}

/// State that the operator last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `voter` or `learner`, as the cluster's status has it; absent while etcd does not list the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// `Joining`, `Serving`, `NotServing`, `Leaving`, `Removed`, `Parked`; `Preparing` or `Prepared` before a return; `SetAside` after
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The member's claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ObjectIdentity>,
    /// The member's Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectIdentity>,
    /// Last failure of the gate, of the restore or of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// The latest Pods of different UID in which the gate or etcd refused the member's data, at most 2. Empty after the
    /// member serves again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub refusals: Vec<Refusal>,
    /// UID of the Pod in which etcd has run for a member that joins and keeps its data in memory. What etcd received there ends
    /// with that Pod, so the member gets no other.
    #[serde(default, rename = "receivedPodUID", skip_serializing_if = "Option::is_none")]
    pub received_pod_uid: Option<String>,
    /// Evidence that the member's data are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
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

/// Last failure of a container of the member's Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    /// Container: `install`, `restore` or `etcd`.
    pub container: String,
    /// Exit code.
    pub exit_code: i32,
    /// Condition reason for this exit code, if the code has a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Verdict of the gate, if the gate refused the volume: `EmptiedVolume`, `OlderVolume`, `IdentityLost` and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Message of the container, without secrets.
    pub message: String,
}
