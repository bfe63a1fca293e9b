//! `EtcdCluster`: what a user wants of one etcd cluster, and what is.
//!
//! Decides fields, defaults and what CEL refuses. What is wrong but invisible to CEL becomes a condition (`plan::valid`).

use std::collections::BTreeMap;
use std::fmt;

use holdfast_contract::Level;
use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::PodMetadata;
use crate::auth::Auth;
use crate::blocked_pod::BlockedPod;
use crate::cluster_rules::{
    FORMED, SOURCES, allows_plaintext, grows, issues_on_the_way, once_formed, same, same_below, same_security,
    stays_in_memory,
};
use crate::defragmentation::{Defragmentation, Defragmented, Defragmenting};
use crate::family::IpFamilyPolicy;
use crate::final_snapshot::FinalSnapshot;
use crate::name::{OBJECT_NAME, Scheme};
use crate::pod_security::PodSecurity;
use crate::repair::{Evidence, GivenUp, Repair, RepairMode, Replaced};
use crate::restore::{Bootstrap, RestoreStatus, Restoring};
use crate::template::{FailedTemplate, Rollback};
use crate::timeline::Returning;
use crate::tls::{ClientPlane, PeerPlane, Tls, TlsStatus};
use crate::transport::Transport;
use crate::upgrade::{Upgrade, UpgradeRecord};

pub use crate::formed::Formed;
pub use crate::storage::{Medium, Retention, Storage};
pub use crate::template::{CompactionMode, ExtraEnv, Image, LogLevel, Options, PullPolicy, is_repository};

/// An etcd cluster that Holdfast runs: members, version, storage, security and initial data.
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
    doc = "An etcd cluster that Holdfast runs: members, version, storage, security and initial data.",
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
        description = "a fault exists, possibly while READY is True: see the condition's message"
    ),
    printcolumn(
        name = "SERVING",
        type_ = "integer",
        json_path = ".status.readyMembers",
        description = "voters with a ready Pod"
    ),
    printcolumn(name = "WANTED", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(
        name = "UPDATED",
        type_ = "integer",
        json_path = ".status.updatedMembers",
        description = "members that run with the present spec"
    ),
    printcolumn(name = "VERSION", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "LAST BACKUP",
        type_ = "date",
        json_path = ".status.lastSnapshot.completedAt",
        description = "age of the newest complete EtcdSnapshot"
    ),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "ENDPOINT",
        type_ = "string",
        json_path = ".status.endpoint",
        priority = 1,
        description = "client URL"
    ),
    printcolumn(
        name = "BACKUP",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"BackupHealthy\")].status",
        priority = 1,
        description = "whether the backups of the EtcdSnapshotSchedules are fresh; Unknown without a schedule"
    ),
    printcolumn(
        name = "CERTS UNTIL",
        type_ = "string",
        json_path = ".status.tls.earliestExpiry",
        priority = 1,
        description = "earliest end of a certificate; empty in plaintext"
    ),
    validation = Rule::new("self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        "the name must be a DNS label of at most 52 characters that begins with a letter: names of members, Services and Jobs contain this name"
    ),
    validation = once_formed("!has(self.spec.bootstrap) || (has(oldSelf.spec.bootstrap) && self.spec.bootstrap == oldSelf.spec.bootstrap)")
    .message("the cluster has formed: spec.bootstrap may only be removed now; to return to a snapshot, create an EtcdRestore or a new cluster"),
    validation = Rule::new(format!("{FORMED} || !has(oldSelf.spec.bootstrap) || !has(oldSelf.spec.bootstrap.restore) || (has(self.spec.bootstrap) && has(self.spec.bootstrap.restore))"))
    .message("the cluster has not formed: spec.bootstrap.restore may be changed, not removed; for an empty cluster, delete this EtcdCluster and create a new EtcdCluster"),
    validation = Rule::new(
        "!has(self.spec.auth) || !self.spec.auth.enabled || !has(self.spec.tls) || !has(self.spec.tls.insecure) || !self.spec.tls.insecure"
    )
    .message("spec.auth.enabled needs TLS: the operator logs in by its certificate. Remove spec.tls.insecure, or set auth.enabled to false"),
    validation = once_formed("int(self.spec.version.split('.')[1]) <= int(oldSelf.spec.version.split('.')[1]) + 1")
    .message("the cluster has formed: spec.version may go to the next minor only, one after the other"),
    validation = Rule::new("self.spec.storage.medium != 'Memory' || self.spec.replicas > 0")
    .message("spec.storage.medium is Memory: replicas 0 would end every Pod, and the data with them; delete the cluster instead"),
    validation = Rule::new("self.spec.storage.medium != 'Memory' || !has(self.spec.bootstrap) || !has(self.spec.bootstrap.restore)")
    .message("spec.storage.medium Memory refuses spec.bootstrap.restore: restore into a cluster with claims"),
    validation = once_formed(&grows())
    .message("the cluster has formed: spec.storage.size may grow, or return to status.volumeSize after a refused growth; volumes do not shrink. For smaller volumes, restore a snapshot into a new EtcdCluster"),
    validation = once_formed(&stays_in_memory())
    .message("the cluster has formed: with spec.storage.medium Memory the size is immutable; save the data, and create another cluster"),
    validation = once_formed(&same("storage.storageClassName"))
    .message("the cluster has formed: spec.storage.storageClassName is immutable; restore a snapshot into a new EtcdCluster of another class"),
    validation = once_formed(&format!("!has(oldSelf.spec.podSecurity) || ({})", same("podSecurity")))
    .message("the cluster has formed: spec.podSecurity can be set, not changed, the files of the volumes belong to the user of the Pods"),
    validation = once_formed(&format!("{} || {}", same_security(), ["self", "oldSelf"].map(allows_plaintext).join(" || ")))
    .message("the cluster has formed: TLS is turned on and off while both work, so that no client is locked out. First set spec.tls to {client: {allowPlaintext: true}}, and the last step when all clients have moved"),
    validation = once_formed(&issues_on_the_way())
    .message("the cluster has formed: TLS is turned off, and on again before status.latches.transport is Plaintext, only with certificates that Holdfast issues. For certificates of your own or of cert-manager keep tls.client.allowPlaintext: true, or restore a snapshot into a new cluster"),
    validation = once_formed(&format!("!({}) || ({})", same_security(), SOURCES.map(same_below).join(" && ")))
    .message("the cluster has formed: in spec.tls only insecure, client.allowPlaintext, client.additionalNames and client.rotationGraceSeconds may change, another source of certificates is not supported yet")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// Number of members, 0 to 9; default 3. 0 parks the cluster: Holdfast ends every Pod and keeps the members and
    /// their volumes. An even number gets a warning, because one member fewer tolerates as many failures.
    #[serde(default = "three")]
    #[schemars(range(min = 0, max = 9))]
    pub replicas: i32,
    /// etcd version `X.Y.Z`, from 3.5 to 3.7. After the cluster has formed the patch may change, in either direction, not
    /// below 3.5.26, 3.6.11 or 3.7.1, and the minor to the next one after a rehearsal (`upgrade`). Holdfast restarts the
    /// members with the new version, one after the other. Back to the earlier minor while
    /// `status.latches.upgrade.reversible` is true.
    // Not a pattern: of a pattern the API server shows the expression only.
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = Rule::new("!self.startsWith('v')").message("spec.version: write the number only, such as 3.6.16, without v"),
        validation = Rule::new("self.startsWith('v') || self.matches('^3[.](5|6|7)[.][0-9]{1,3}$')").message("spec.version must be X.Y.Z from 3.5 to 3.7, such as 3.6.16")
    )]
    pub version: String,
    /// Source of etcd's image. Default: the operator's `--etcd-image-repository` with the tag `v<version>`. After a change
    /// Holdfast restarts the members, one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Volume of each member.
    #[serde(default)]
    pub storage: Storage,
    /// Settings of etcd. After a change Holdfast restarts the members, one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
    /// Resources of each member's container. Default: requests of 100m CPU and 256Mi memory, so that kubelet never
    /// evicts a member first. After a change Holdfast resizes the running Pods, one after the other. A member whose Pod
    /// cannot be resized (another quality of service, a removed limit, a node without room, Kubernetes before 1.33)
    /// restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// ServiceAccount of the members' Pods, for example for its pull secrets; Pods get no token for the Kubernetes API.
    /// Default: the namespace's `default`. After a change Holdfast restarts the members, one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub service_account_name: Option<String>,
    /// Labels and annotations to add to the members' Pods, for example for cost reports. Holdfast changes them on running
    /// Pods, without a restart. Keys of `holdfast.dev` are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_metadata: Option<PodMetadata>,
    /// Labels and annotations to add to the objects of the cluster, for example for cost reports, and not to its claims: these
    /// have no owner, and a tool that prunes by such a label would delete the data. Services, the disruption budget and Pods
    /// follow a change without a restart, Secrets and Certificates when they are next written; EtcdMembers keep those of their
    /// creation. In Pods `podMetadata` takes precedence. Keys of `holdfast.dev` are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<PodMetadata>,
    /// Scheduling of Pods. Changes apply to Pods created afterwards.
    #[serde(flatten)]
    pub placement: Placement,
    /// Transport security. Default: TLS with certificates on both sides, towards clients and among members, issued and
    /// renewed by Holdfast. `{insecure: true}` selects plaintext. After the cluster has formed `insecure` may change while
    /// `client.allowPlaintext` is true before or after the edit, and `client.additionalNames` and
    /// `client.rotationGraceSeconds` at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// etcd's authentication. Default: as it is, off in a new cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Families of addresses of the Services. Default: the API server's, one family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// Source of the initial data; default: an empty cluster. May be changed until the cluster has formed, and only
    /// removed afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// Seconds after which `Degraded` reports `DeadlineExceeded` while `Progressing` stays True, and after which a member
    /// that does not start with a changed spec counts as failed (`rollback`); default 600. The time of a restore does not
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 86400))]
    pub progress_deadline_seconds: Option<u32>,
    /// Whether Holdfast takes back a changed version, image, options or resources with which a member did not start within
    /// `progressDeadlineSeconds`, or crashed twice. No other member gets the change. `Automatic` (default): the member
    /// gets its earlier settings back, except after a change of the version. `Manual`: the member waits for another edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rollback")]
    pub rollback: Option<Rollback>,
    /// Conditions of a change of `version` to the next minor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// When members give free space of their databases back. Default: when half of a file is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defragmentation: Option<Defragmentation>,
    /// The last snapshot: after `kubectl delete`, Holdfast leads the clients away, saves a snapshot and lets the cluster go only
    /// when the snapshot is complete. A cluster that never formed has none. May be set and removed at any time, also during the
    /// deletion. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_snapshot: Option<FinalSnapshot>,
    /// Replacement of members whose data are lost. Default: automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
    /// Whether the operator only observes and reports, and lets clients in again that it led away before. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

const fn three() -> i32 {
    3
}

impl EtcdCluster {
    /// Which ports of the members are to speak TLS now: the step of a change that is under way, else as the spec says.
    pub fn transport(&self) -> Transport {
        let step = self.status.as_ref().and_then(|status| status.latches.transport);
        step.unwrap_or_else(|| self.spec.transport())
    }

    /// Scheme of URLs that every member serves to clients, also those that have not restarted for the present step yet.
    pub fn scheme(&self) -> Scheme {
        // Before this step a member may still be without certificates.
        if self.transport() >= Transport::ClientsPlaintext { Scheme::Https } else { Scheme::Http }
    }

    /// Whether members have certificates, or get them.
    pub fn has_certificates(&self) -> bool {
        self.transport().has_certificates() || self.spec.transport().has_certificates()
    }
}

impl EtcdClusterSpec {
    /// Which ports are to speak TLS: all, unless the spec asks for plaintext.
    pub fn transport(&self) -> Transport {
        let allows = |client: &ClientPlane| client.allow_plaintext == Some(true);
        match &self.tls {
            Some(tls) if tls.insecure == Some(true) => Transport::Plaintext,
            Some(tls) if tls.client.as_ref().is_some_and(allows) => Transport::ClientsPlaintext,
            Some(_) | None => Transport::Tls,
        }
    }

    /// Labels and annotations to add to the objects that the cluster owns, without Holdfast's own keys.
    pub fn metadata_of_objects(&self) -> PodMetadata {
        self.additional_metadata.clone().unwrap_or_default().foreign()
    }

    /// Labels and annotations to add to the members' Pods, without Holdfast's own keys.
    pub fn metadata_of_pods(&self) -> PodMetadata {
        self.metadata_of_objects().with(self.pod_metadata.clone().unwrap_or_default().foreign())
    }

    /// Source of the certificates towards clients, where the spec names one.
    pub fn client_tls(&self) -> Option<&ClientPlane> {
        self.tls.as_ref()?.client.as_ref()
    }

    /// Source of the members' certificates towards each other, where the spec names one.
    pub fn peer_tls(&self) -> Option<&PeerPlane> {
        self.tls.as_ref()?.peer.as_ref()
    }

    /// Whether Holdfast's own CA signs the certificates of clients.
    pub fn issues_client_certificates(&self) -> bool {
        let own = |client: &ClientPlane| client.server_secret_ref.is_some() || client.cert_manager.is_some();
        self.transport().has_certificates() && !self.client_tls().is_some_and(own)
    }

    /// How lost members are replaced.
    pub fn repair(&self) -> Repair {
        self.repair.clone().unwrap_or_default()
    }

    /// Seconds until a wait is overdue, and until a member that does not start counts as failed; as in a Deployment.
    pub fn progress_deadline(&self) -> u32 {
        self.progress_deadline_seconds.unwrap_or(600)
    }

    /// Conditions of a change to the next minor.
    pub fn upgrade(&self) -> Upgrade {
        self.upgrade.clone().unwrap_or_default()
    }

    /// When members are defragmented.
    pub fn defragmentation(&self) -> Defragmentation {
        self.defragmentation.clone().unwrap_or_default()
    }

    /// Whether Holdfast replaces a lost member without a person.
    pub fn repairs_itself(&self) -> bool {
        self.repair().mode == RepairMode::Automatic
    }
}

/// Scheduling of Pods. Agents (Jobs that save this cluster or search for the latest snapshot to restore) also get
/// tolerations, node selector, priority and pull secrets. Agents never get the members' affinity: an anti-affinity
/// between members must not block a backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Affinity of the members' Pods, not of agents. Default: members prefer different nodes and zones. Changes apply
    /// to Pods created afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Topology spread constraints of the members' Pods, not of agents; at most 16. Default: none. Changes apply to
    /// Pods created afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Tolerations of the members' Pods and of this cluster's agents (Jobs that save the cluster or search for the
    /// snapshot to restore, unless their own spec.agent has some; not probes of a store); at most 64. Default: none. Changes apply to Pods created
    /// afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels that a node needs for the members' Pods and for this cluster's agents. Default: none. Changes apply to
    /// Pods created afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// `PriorityClass` of the members' Pods and of this cluster's agents. Default: the Kubernetes cluster's default.
    /// Changes apply to Pods created afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// Secrets in this namespace to pull etcd's and Holdfast's images, for the members' Pods and for this cluster's
    /// agents; at most 16. Default: those of the Pod's ServiceAccount. Changes apply to Pods created afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// User of the members' Pods and of this cluster's agents. On an EtcdCluster immutable after the cluster has formed,
    /// because the files of a volume belong to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurity>,
}

/// State that the operator last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// etcd's cluster ID, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// etcd's cluster token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_token: Option<String>,
    /// Number of voters with a ready Pod.
    #[serde(default)]
    pub ready_members: i32,
    /// Number of voters.
    #[serde(default)]
    pub voters: i32,
    /// Number of members with evidence that their data are lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub broken_members: i32,
    /// Number of members that run with the present version, image, options and resources.
    #[serde(default)]
    pub updated_members: i32,
    /// `spec.storage.retention` as every member has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Size that the volume of each member has at least. `spec.storage.size` may not be less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<Quantity>,
    /// Label selector of the voters' Pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// URL for clients in this Kubernetes cluster: the client Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Newest complete `EtcdSnapshot` of this cluster. Stays when that object is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<LastSnapshot>,
    /// Name of the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Running etcd version; the lowest, while the members' versions differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The members, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub members: Vec<MemberSummary>,
    /// Facts that the operator writes once, before the step that depends on them.
    #[serde(default)]
    pub latches: Latches,
    /// Source and progress of the restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreStatus>,
    /// The timeline of the cluster: 1 at birth (then absent), one more after each return by an `EtcdRestore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2))]
    pub timeline: Option<u32>,
    /// Which ports of every member speak TLS. Absent while members differ or one does not serve, and in a cluster whose `spec.tls`
    /// never turned TLS on or off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// State of the certificates; absent in plaintext.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsStatus>,
    /// Whether etcd's authentication is on; absent until the operator knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_enabled: Option<bool>,
    /// Last time (RFC 3339) at which the operator committed an entry that changes nothing in etcd's log, since a member with a
    /// running Pod gave no answer: etcd serves no client after it received a snapshot from the leader, until the next entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_empty_entry: Option<String>,
    /// The cause that keeps the Pods of the Job that looks for the latest snapshot from running; absent while a Pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up: Option<BlockedPod>,
    /// `Ready`, `Available`, `Progressing`, `Degraded` (a fault exists), `AtRisk` (everything works, and a foreseeable
    /// fault would stop the cluster or lose data).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_zero(count: &i32) -> bool {
    *count == 0
}

/// Newest complete snapshot of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastSnapshot {
    /// Name of the `EtcdSnapshot`.
    pub name: String,
    /// Level of proof: `Trailer`, `Structure` or `HashKV`.
    pub level: Level,
    /// Time of completion (RFC 3339).
    pub completed_at: String,
}

/// Summary of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberSummary {
    /// Name of the `EtcdMember` and of its Pod.
    pub name: String,
    /// etcd's member ID, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "memberID")]
    pub member_id: Option<String>,
    /// `voter` or `learner`; absent while etcd does not list the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// etcd version of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether the member answered.
    #[serde(default)]
    pub healthy: bool,
    /// Time at which `healthy` last changed (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Earliest end of the certificates in the member's Secret (RFC 3339); absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates_not_after: Option<String>,
    /// Evidence that the member's data are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// End of the member's data by its last answer without a leader; absent while a linearizable read succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_end: Option<DataEnd>,
}

/// How far a member has applied its log. The log itself may go further: `holdfast agent survey` reads its end on the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataEnd {
    /// Raft term.
    pub term: u64,
    /// Applied raft index.
    pub index: u64,
    /// Revision of the key space.
    pub revision: i64,
}

impl fmt::Display for DataEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {}, applied {}", self.term, self.index)
    }
}

/// Facts that the operator writes with optimistic concurrency, before the step that depends on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Latches {
    /// Name of the next member, written before its create, so that a lost answer or a crash never creates two members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_member: Option<String>,
    /// Defragmentation that is under way, written before the member loses its clients. Removed after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defragmenting: Option<Defragmenting>,
    /// Last defragmentation of each member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defragmented: Vec<Defragmented>,
    /// Quota in bytes that Holdfast has chosen for a full database, at most `defragmentation.growQuotaTo`. In force while that
    /// field is set and the quota of the spec is smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub granted_quota: Option<i64>,
    /// Time at which the operator began with the last snapshot of the deleted cluster (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_snapshot_since: Option<String>,
    /// Restore in progress, written before the seed's Pod exists. A corrected restore replaces this entry until the
    /// cluster has formed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<Restoring>,
    /// The cluster has formed: the operator has read the cluster ID for the first time, and never seeds or restores a
    /// member again. Never removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formed: Option<Formed>,
    /// Last member that Holdfast replaced on evidence, written before the member leaves. At most one is replaced per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// ID (hexadecimal) of a member that etcd lists, and that has neither `EtcdMember` nor Pod; written before etcd removes
    /// the member. Removed after etcd does not list the member any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphan: Option<String>,
    /// Members that did not get their vote in time, one after the other. Removed after every member has its vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<GivenUp>,
    /// Template with which a member did not start, written before the member gets its earlier template back. No member
    /// gets this template again. Removed after another edit of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_template: Option<FailedTemplate>,
    /// Upgrade to the next minor version, written after its conditions are met and before the first member gets the
    /// version. Removed after every member serves with one minor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradeRecord>,
    /// Time at which the last upgrade ended, forward or back (RFC 3339). A rehearsal before this time does not count for the next
    /// upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_ended_at: Option<String>,
    /// Raft index from which on no member wrote an entry of etcd 3.5, written when an upgrade from 3.5 is over. etcd 3.7 does
    /// not read such entries, so before an upgrade to 3.7 every member has to take a raft snapshot after this index. Removed
    /// by that upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub log_since: Option<i64>,
    /// Step of a change between plaintext and TLS: members get this transport, one after the other. Written before the first
    /// member gets the step. Absent: as `spec.tls` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// The timeline of the cluster: 1 at birth, one more after each return by an `EtcdRestore`. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2))]
    pub timeline: Option<u32>,
    /// Return by an `EtcdRestore` that is under way, written before its first step. Removed after the `EtcdRestore` has recorded the
    /// end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returning: Option<Returning>,
}
