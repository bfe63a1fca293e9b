//! `EtcdRestore`: the return of one cluster, in place, to a stored snapshot or to the data of one member; and the records of a return on
//! the cluster and its members.
//!
//! Decides fields, defaults and what CEL refuses. `plan::cluster::timeline` decides the steps, `plan::restore` the object's status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::formed::Formed;
use crate::name::{LocalRef, OBJECT_NAME};
use crate::restore::{Restore, Restoring};
use crate::snapshot::SnapshotTemplate;
use crate::{EtcdCluster, EtcdMember};

/// The timeline of a new cluster.
pub const FIRST: u32 = 1;

/// Where `deadlineSeconds` is absent.
const DEADLINE_SECONDS: u32 = 3600;

/// Where `keepEarlierSeconds` is absent: a day.
const KEEP_EARLIER_SECONDS: u32 = 86400;

/// Where the safety snapshot's `deadlineSeconds` is absent.
const SAFETY_DEADLINE_SECONDS: u32 = 3600;

/// The return of a cluster, in place, to a stored snapshot or to a point in time. Names for clients, certificates, schedules and the
/// EtcdCluster stay; members, claims and data are new.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "EtcdRestore",
    plural = "etcdrestores",
    shortname = "etcdrestore",
    category = "etcd",
    namespaced,
    status = "EtcdRestoreStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "The return of a cluster, in place, to a stored snapshot or to a point in time. Names for clients, certificates and schedules stay; members, claims and data are new.",
    printcolumn(name = "CLUSTER", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(
        name = "TIMELINE",
        type_ = "integer",
        json_path = ".spec.timeline",
        description = "the timeline that this object makes; a new cluster has timeline 1"
    ),
    printcolumn(name = "PHASE", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "REVISION",
        type_ = "integer",
        json_path = ".status.restoredRevision",
        description = "revision of the restored data, before the bump"
    ),
    printcolumn(
        name = "OUTAGE",
        type_ = "integer",
        json_path = ".status.outageSeconds",
        description = "seconds without a member for clients"
    ),
    printcolumn(name = "REASON", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 200").message("the name has at most 200 characters"),
    validation = Rule::new("self.spec == oldSelf.spec").message("an EtcdRestore is immutable: create another EtcdRestore")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.from) != has(self.fromMember)")
        .message("set exactly one of from (a stored snapshot) and fromMember (a member of a cluster that has lost its quorum for good)"),
    validation = Rule::new("has(self.fromMember) || has(self.safetySnapshot) != has(self.skipSafetySnapshot)")
        .message("set exactly one of safetySnapshot (the destination of a last snapshot of the present data) and skipSafetySnapshot (the reason for which none is needed)"),
    validation = Rule::new("!has(self.fromMember) || (!has(self.safetySnapshot) && !has(self.skipSafetySnapshot))")
        .message("omit safetySnapshot and skipSafetySnapshot with fromMember: without a quorum there is nothing else to save, and every earlier claim stays for keepEarlierSeconds after the return")
)]
pub struct EtcdRestoreSpec {
    /// The `EtcdCluster` in this namespace.
    pub cluster_ref: LocalRef,
    /// The timeline that this object makes: one more than `status.timeline` of the EtcdCluster, 2 for the first return. An
    /// EtcdRestore whose timeline the cluster has already made changes nothing, so that it can be applied again.
    #[schemars(range(min = 2, max = 1_000_000))]
    pub timeline: u32,
    /// The data to return to, as in `bootstrap.restore` of an EtcdCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Restore>,
    /// The member to go on from, after a majority of the members is lost for good. Holdfast ends all Pods, copies this member's data
    /// with its whole log, and makes the next timeline from the copy. It begins only while no linearizable read succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_member: Option<FromMember>,
    /// The last snapshot of the present data: destination and form, as in an EtcdSnapshot. Holdfast leads the clients away, ends
    /// their connections, and saves; without a complete snapshot the return fails, and the cluster goes on as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_snapshot: Option<SnapshotTemplate>,
    /// Why the present data needs no last snapshot. The earlier members keep their claims for `keepEarlierSeconds` in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 4, max = 400))]
    pub skip_safety_snapshot: Option<String>,
    /// Seconds for which the members of the earlier timeline keep their claims, from the moment when they are set aside; default
    /// 86400, a day. With `fromMember` three times `deadlineSeconds` are added, so that they stay after the return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub keep_earlier_seconds: Option<u32>,
    /// The end of a return that fails before the first member of the new timeline has joined. `Return` (default): the earlier
    /// timeline serves again. `Stay`: Holdfast goes on trying; it has no effect with `fromMember`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OnReturnFailure")]
    pub on_failure: Option<OnReturnFailure>,
    /// Seconds for the preparation of the data before the return has failed; default 3600. The phases `SettingAside` and `Starting`,
    /// in which no member serves, have the same limit, without `fromMember` at most 600 s each. The safety snapshot has its own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 86400))]
    pub deadline_seconds: Option<u32>,
}

/// The member of a cluster without a quorum whose data the next timeline begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FromMember {
    /// Name of the `EtcdMember`. Its claim is read, and never written.
    #[schemars(length(min = 1, max = 63), regex(pattern = OBJECT_NAME))]
    pub name: String,
    /// Whether to go on although the other members may have acknowledged writes that this one lacks. Default: false, and the condition
    /// names these members.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_loss: bool,
}

/// The end of a return that failed before the first member of the new timeline had joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnReturnFailure {
    /// The earlier timeline serves again.
    #[default]
    Return,
    /// Holdfast goes on trying.
    Stay,
}

impl EtcdRestoreSpec {
    /// Seconds before the preparation, or the first member, has failed.
    pub fn deadline(&self) -> u32 {
        self.deadline_seconds.unwrap_or(DEADLINE_SECONDS)
    }

    /// Seconds before the safety snapshot has failed.
    pub fn safety_deadline(&self) -> u32 {
        let template = self.safety_snapshot.as_ref();
        template.and_then(|template| template.deadline_seconds).unwrap_or(SAFETY_DEADLINE_SECONDS)
    }

    /// Seconds for which the earlier claims stay.
    pub fn keep_earlier(&self) -> u32 {
        self.keep_earlier_seconds.unwrap_or(KEEP_EARLIER_SECONDS)
    }
}

/// Phase of a return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ReturnPhase {
    /// The cluster has not begun with the return.
    #[default]
    Pending,
    /// A Pod restores the data onto a new claim. The cluster serves.
    Preparing,
    /// Clients are led away, and the safety snapshot is saved.
    Saving,
    /// The Pods of the present members end.
    SettingAside,
    /// The first member of the new timeline starts on the restored data.
    Starting,
    /// The return has failed, and the earlier timeline is made to serve again.
    TurningBack,
    /// The new timeline serves.
    Complete,
    /// The return has failed. The earlier timeline serves.
    Failed,
    /// The cluster has this timeline, or a later one, already.
    Skipped,
}

impl ReturnPhase {
    /// Whether the phase stays.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Skipped)
    }

    /// Whether clients are led away, or no member serves.
    pub const fn is_outage(self) -> bool {
        matches!(self, Self::Saving | Self::SettingAside | Self::Starting | Self::TurningBack)
    }
}

/// When a phase began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseStart {
    /// The phase.
    pub phase: ReturnPhase,
    /// Time (RFC 3339).
    pub at: String,
}

/// The log of a survivor, as the restore read it on its volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SurvivorLog {
    /// Raft index of the last entry. Every entry up to this one is in the restored data.
    pub last_index: u64,
    /// Raft term of that entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_term: Option<u64>,
    /// Number of entries at the end that the survivor did not know as committed. A lost leader may have acknowledged them, so the
    /// restored data have them.
    pub beyond_commit: u64,
}

/// A return that is under way: a latch of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Returning {
    /// Name of the `EtcdRestore`.
    pub name: String,
    /// UID of the `EtcdRestore`.
    pub uid: String,
    /// The timeline that the return makes.
    #[schemars(range(min = 2))]
    pub timeline: u32,
    /// Each phase so far with its beginning, the present one last.
    #[schemars(length(max = 8))]
    pub phases: Vec<PhaseStart>,
    /// Seconds of `spec.deadlineSeconds`.
    pub deadline_seconds: u32,
    /// Seconds of `spec.keepEarlierSeconds`.
    pub keep_earlier_seconds: u32,
    /// Whether `spec.onFailure` is `Stay`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
    /// The restore, written before its member exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<Restoring>,
    /// Name of the first member of the new timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// UID of the claim with the restored data.
    #[serde(rename = "claimUID", default, skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// Highest revision that the new timeline begins with: that of the restored data with the bump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub first_revision: Option<i64>,
    /// Revision of the restored data, before the bump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub restored_revision: Option<i64>,
    /// The log of the survivor, for `fromMember`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivor_log: Option<SurvivorLog>,
    /// Name of the safety snapshot's `EtcdSnapshot`, after it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_snapshot: Option<String>,
    /// Members whose Pods did not end before the safety snapshot: a client with an open connection may have written later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9))]
    pub open_connections: Vec<String>,
    /// Highest known revision of the earlier timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub earlier_revision: Option<i64>,
    /// `latches.formed` of the earlier timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Formed>,
    /// Why the return failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2000))]
    pub failure: Option<String>,
}

impl Returning {
    /// Returns the member of a cluster without a quorum whose data the return goes on from.
    pub fn survivor(&self) -> Option<&str> {
        self.restoring.as_ref()?.survivor.as_deref()
    }

    /// Returns the present phase.
    pub fn phase(&self) -> ReturnPhase {
        self.phases.last().map_or(ReturnPhase::Pending, |last| last.phase)
    }

    /// Returns when the present phase began (RFC 3339).
    pub fn since(&self) -> Option<&str> {
        self.phases.last().map(|last| last.at.as_str())
    }

    /// Returns the record in the next phase.
    #[must_use]
    pub fn entering(mut self, phase: ReturnPhase, at: jiff::Timestamp) -> Self {
        self.phases.push(PhaseStart { phase, at: at.to_string() });
        self
    }
}

/// A member of an earlier timeline: a field of the member's spec. The member has no Pod; its claim stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Aside {
    /// Name of the `EtcdRestore`.
    pub restore: String,
    /// UID of the `EtcdRestore`.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// The timeline that the return makes.
    #[schemars(range(min = 2))]
    pub timeline: u32,
    /// Raft term; absent where the member did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// Applied raft index; absent where the member did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Time of the decision (RFC 3339).
    pub at: String,
    /// Seconds from that time for which the claim stays.
    pub keep_seconds: u32,
}

impl Aside {
    /// Returns the time until which the claim stays; `None`: the time of the decision is none.
    pub fn kept_until(&self) -> Option<jiff::Timestamp> {
        let at: jiff::Timestamp = self.at.parse().ok()?;
        Some(at + jiff::SignedDuration::from_secs(self.keep_seconds.into()))
    }
}

/// State that the operator last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Phase of the return. `Complete`, `Failed` and `Skipped` stay.
    #[serde(default)]
    pub phase: ReturnPhase,
    /// Each phase so far with its beginning: the differences are the parts of the time that the return took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseStart>,
    /// Seconds from the moment when clients were led away to the moment when a member served them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub outage_seconds: Option<i64>,
    /// URI of the snapshot that the data came from; for `latest` with a point in time, of its lineage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// The log of the survivor, for `fromMember`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivor_log: Option<SurvivorLog>,
    /// Revision of the restored data, before the bump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub restored_revision: Option<i64>,
    /// Revision with which the new timeline begins. Earlier revisions count as compacted, so that every watcher lists again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub first_revision: Option<i64>,
    /// Highest known revision of the earlier timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub earlier_revision: Option<i64>,
    /// `EtcdSnapshot` with the data of the earlier timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_snapshot: Option<String>,
    /// Members whose Pods did not end before the safety snapshot: a client with an open connection may have written later. These
    /// writes are on the earlier claims alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9))]
    pub open_connections: Vec<String>,
    /// `spec.skipSafetySnapshot`, where it was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_snapshot_skipped: Option<String>,
    /// etcd's cluster ID in the earlier timeline, hexadecimal.
    #[serde(default, rename = "earlierClusterID", skip_serializing_if = "Option::is_none")]
    pub earlier_cluster_id: Option<String>,
    /// Members of the earlier timeline whose claims are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18))]
    pub earlier_members: Vec<String>,
    /// Time (RFC 3339) until which the claims of the earlier timeline are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_kept_until: Option<String>,
    /// `Ready`, `Progressing`, `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Returns the timeline of a member.
pub fn of_member(member: &EtcdMember) -> u32 {
    member.spec.timeline.unwrap_or(FIRST)
}

/// Returns the timeline that a cluster is in: by its latch, else the latest one in which a member has served. A member of the next one
/// serves only after that one has begun.
pub fn of_cluster<'a>(cluster: &EtcdCluster, members: impl Iterator<Item = &'a EtcdMember>) -> u32 {
    let latched = cluster.status.as_ref().and_then(|status| status.latches.timeline);
    let served = |member: &&EtcdMember| member.spec.joined.is_some();
    latched.unwrap_or_else(|| members.filter(served).map(of_member).max().unwrap_or(FIRST))
}
