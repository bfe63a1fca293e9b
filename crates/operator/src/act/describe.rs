//! Words for each act: the name in metrics and logs, the reason of its Event, its object, and one sentence.
//!
//! Decides which acts have an Event; the log shows all of them.

use holdfast_api::cluster::Latches;
use holdfast_api::key;
use holdfast_api::restore::{Newest, Restoring};
use holdfast_api::schedule::PruneRun;
use holdfast_api::timeline::{ReturnPhase, Returning};
use holdfast_plan::cluster::timeline::waits_for;
use holdfast_plan::{Act, Target, Unelectable};
use holdfast_plan::{Alarm, AlarmKind};
use kube::api::ObjectMeta;

/// An act in words.
pub(crate) struct Description {
    /// Name of the act, for metrics and logs.
    pub(crate) label: &'static str,
    /// Reason of the Event, in a user's words; `None` for steps that only the log shows.
    pub(crate) event: Option<&'static str>,
    /// Name of the object; empty for the object of the pass.
    pub(crate) object: String,
    /// One sentence.
    pub(crate) sentence: String,
    /// Whether the Event is a warning: Holdfast does not carry a request out.
    pub(crate) warning: bool,
}

impl Description {
    fn with_event(self, reason: &'static str) -> Self {
        Self { event: Some(reason), ..self }
    }

    fn with_warning(self, reason: &'static str) -> Self {
        Self { event: Some(reason), warning: true, ..self }
    }
}

fn end_leader_request(member: &str, refused: Option<Unelectable>) -> Description {
    let why = match refused {
        None => return step("EndLeaderRequest", "", format!("{member} leads, as requested")),
        Some(Unelectable::Absent) => "the cluster has no such member, or the member leaves",
        Some(Unelectable::Learner) => "the member has no vote yet",
    };
    let sentence = format!(
        "the leadership does not move to {member}: {why}. Name a voter of kubectl get etcdm with the annotation {}",
        key::MOVE_LEADER
    );
    step("EndLeaderRequest", "", sentence).with_warning("LeaderRequestRefused")
}

/// An act without an Event.
fn step(label: &'static str, object: &str, sentence: impl Into<String>) -> Description {
    Description { label, event: None, object: object.to_owned(), sentence: sentence.into(), warning: false }
}

/// Returns the act in words.
#[allow(clippy::too_many_lines, reason = "one arm for each act")]
pub(crate) fn describe(act: &Act) -> Description {
    let on = |target: &Target| target.name.clone();
    let named = |metadata: &ObjectMeta| metadata.name.clone().unwrap_or_default();
    match act {
        Act::Latch(latches) => {
            if let Some(record) = &latches.returning {
                return returning(record);
            }
            let described = step("Latch", "", latched(latches));
            if latches.orphan.is_some() || latches.failed_template.is_some() || latches.upgrade.is_some() {
                described
            } else if is_only_formed(latches) {
                described.with_event("Formed")
            } else if latches.restoring.is_some() {
                described.with_event("RestoreStarted")
            } else {
                described
            }
        }
        Act::HoldCluster { cluster } => step("HoldCluster", &on(cluster), "has the finalizer"),
        Act::CopyRetention { member, retention } => {
            step("CopyRetention", &on(member), format!("has spec.storage.retention {retention:?}"))
        }
        Act::ReleaseCluster { cluster } => {
            step("ReleaseCluster", &on(cluster), "goes: every member has spec.storage.retention")
        }
        Act::CreateMember(it) => step("CreateMember", &named(&it.metadata), "created the member"),
        Act::AddLearner { name, peer_url, .. } => {
            step("AddLearner", name, format!("added {peer_url} to etcd as a learner")).with_event("LearnerAdded")
        }
        Act::SetPeerUrl { name, peer_url, .. } => {
            step("SetPeerUrl", name, format!("other members reach it at {peer_url} now")).with_event("PeerUrlChanged")
        }
        Act::SetInitialCluster { member, initial_cluster } => {
            let sentence = format!("may start with the member list {initial_cluster}");
            step("SetInitialCluster", &on(member), sentence)
        }
        Act::LatchJoined { member, joined } => {
            let sentence = format!("joined etcd cluster {} as member {}", joined.cluster_id, joined.member_id);
            step("LatchJoined", &on(member), sentence)
        }
        Act::ForbidEmptyStart { pod, .. } => {
            step("ForbidEmptyStart", &on(pod), "will not start on an empty volume any more")
        }
        Act::Promote { name, member_id, .. } => {
            step("Promote", name, format!("member {member_id:x} has a vote now")).with_event("LearnerPromoted")
        }
        Act::Disarm { alarm, .. } => step("Disarm", "", cleared(alarm)).with_event("AlarmCleared"),
        Act::HoldUser { user } => step("HoldUser", &on(user), "keeps the object until etcd has lost the user"),
        Act::ReleaseUser { user } => step("ReleaseUser", &on(user), "let the object go"),
        Act::ClaimUser { user, claim } => {
            step("ClaimUser", &on(user), format!("etcd cluster {claim} is about to get the user"))
        }
        Act::PutUser { user, change, .. } => {
            step("PutUser", &on(user), format!("gave etcd the user {} and its role", change.name))
                .with_event("UserApplied")
        }
        Act::DropUser { user, name, .. } => {
            step("DropUser", &on(user), format!("deleted the user {name} and its role in etcd"))
                .with_event("UserDeleted")
        }
        Act::SetAuth { enabled: true, .. } => {
            step("SetAuth", "", "turned etcd's authentication on: each request needs a user").with_event("AuthEnabled")
        }
        Act::SetAuth { enabled: false, .. } => {
            step("SetAuth", "", "turned etcd's authentication off").with_event("AuthDisabled")
        }
        Act::CommitEntry { .. } => {
            step("CommitEntry", "", "committed an entry that changes nothing: a member that runs gives no answer")
        }
        Act::FillLog { entries, .. } => {
            step("FillLog", "", format!("committed {entries} entries that change nothing, before the upgrade to 3.7"))
        }
        Act::AdmitClients { pod } => step("AdmitClients", &on(pod), "serves clients from now on"),
        Act::Relabel { pod, labels } => {
            let keys: Vec<&str> = labels.keys().map(String::as_str).collect();
            step("Relabel", &on(pod), format!("put back what selects it: {}", keys.join(", ")))
        }
        Act::LatchLeaving { member, .. } => {
            step("LatchLeaving", &on(member), "leaves the cluster").with_event("MemberLeaving")
        }
        Act::DismissClients { pod } => step("DismissClients", &on(pod), "serves no clients any more"),
        Act::MoveLeader { name, to, .. } => {
            step("MoveLeader", name, format!("hands the leadership to member {to:x}")).with_event("LeaderMoved")
        }
        Act::EndLeaderRequest { member, refused, .. } => end_leader_request(member, *refused),
        Act::Defragment { name, .. } => {
            step("Defragment", name, "gave free space of its file back").with_event("Defragmented")
        }
        Act::RemoveMember { name, member_id, .. } => {
            let sentence = format!("etcd removed member {member_id:x} from its list");
            step("RemoveMember", name, sentence).with_event("MemberRemoved")
        }
        Act::LatchRemoved { member, .. } => step("LatchRemoved", &on(member), "etcd does not list the member any more"),
        Act::Park { member, .. } => step("Park", &on(member), "is parked: its Pod ends, its claim stays"),
        Act::SetAside { member, aside } => {
            let sentence = format!("is set aside for timeline {}: its Pod ends, its claim stays", aside.timeline);
            step("SetAside", &on(member), sentence).with_event("MemberSetAside")
        }
        Act::TakeBack { member, .. } => {
            step("TakeBack", &on(member), "starts again: the return has failed").with_event("MemberTakenBack")
        }
        Act::Unpark { member } => step("Unpark", &on(member), "is back at the index at which it was parked"),
        Act::Issue(it) => {
            let object = named(&it.metadata);
            if it.replaces.is_some() {
                step("Issue", &object, "renewed the certificates in this Secret").with_event("CertificatesRenewed")
            } else {
                step("Issue", &object, "issued the certificates in this Secret")
            }
        }
        Act::AnnounceCertificates { member, .. } => step("AnnounceCertificates", &on(member), "has new certificates"),
        Act::RefreshCertificates { pod, .. } => {
            step("RefreshCertificates", &on(pod), "kubelet refreshes the certificates")
        }
        Act::CreateClaim(it) => {
            step("CreateClaim", &named(&it.metadata), "created the claim").with_event("ClaimCreated")
        }
        Act::CreatePod(it) => step("CreatePod", &named(&it.metadata), "created the Pod").with_event("PodCreated"),
        Act::DeletePod { pod, why } => {
            step("DeletePod", &on(pod), format!("deleted the Pod: {why}")).with_event("PodDeleted")
        }
        Act::SetTemplate { member, template, served } => {
            let (sentence, event) = match served {
                Some(served) if served == template => {
                    ("gets its earlier settings back: it failed with the changed spec", "RolledBack")
                }
                Some(_) => ("gets the changed spec", "SpecChanged"),
                None => ("serves with the changed spec", "SpecChanged"),
            };
            step("SetTemplate", &on(member), sentence).with_event(event)
        }
        Act::BeginResize { pod, .. } => step("BeginResize", &on(pod), "gets other resources while it runs"),
        Act::ResizePod { pod, .. } => {
            step("ResizePod", &on(pod), "asked for other resources of the running Pod").with_event("PodResized")
        }
        Act::EndResize { pod, differs: Some(differs) } => {
            let sentence =
                format!("a webhook or another controller has changed the resources of the running Pod: {differs}");
            step("EndResize", &on(pod), sentence).with_event("ResourcesChanged")
        }
        Act::EndResize { pod, differs: None } => {
            step("EndResize", &on(pod), "runs with the resources of the changed spec")
        }
        Act::SetPodMetadata { pod, .. } => {
            step("SetPodMetadata", &on(pod), "gets the labels and annotations of the spec")
        }
        Act::CopyPodMetadata { member, .. } => {
            step("CopyPodMetadata", &on(member), "has the labels and annotations of the spec")
        }
        Act::GrowClaim { claim, size, at: _ } => {
            step("GrowClaim", &on(claim), format!("asks for a volume of {}", size.0)).with_event("ClaimGrown")
        }
        Act::SetVolumeSize { member, size } => {
            step("SetVolumeSize", &on(member), format!("has a volume of {}", size.0)).with_event("VolumeGrown")
        }
        Act::RefreshVolume { pod, .. } => step("RefreshVolume", &on(pod), "kubelet grows the file system"),
        Act::EvictPod { pod, why } => {
            step("EvictPod", &on(pod), format!("evicted the Pod: {why}")).with_event("PodEvicted")
        }
        Act::DeleteClaim { claim, why } => {
            let sentence = format!("deleted the claim and its data: {why}");
            step("DeleteClaim", &on(claim), sentence).with_event("ClaimDeleted")
        }
        Act::DeleteMember { member, why } => {
            step("DeleteMember", &on(member), format!("deleted the member: {why}")).with_event("MemberDeleted")
        }
        Act::LatchStart { member, count } => {
            step("LatchStart", &on(member), format!("serves from its Pod number {count}"))
        }
        Act::MarkStarted { pod, count, .. } => {
            step("MarkStarted", &on(pod), format!("knows that Pod number {count} has served"))
        }
        Act::ReleaseMember { member } => step("ReleaseMember", &on(member), "all its parts are gone"),
        Act::StartJob(it) => step("StartJob", &named(&it.metadata), "created the Job").with_event("JobCreated"),
        Act::RequestSnapshot(it) => {
            let sentence = "requested this EtcdSnapshot";
            step("RequestSnapshot", &named(&it.metadata), sentence).with_event("SnapshotRequested")
        }
        Act::RecordRun(it) => {
            step("RecordRun", &named(&it.metadata), "recorded the run as an EtcdSnapshot").with_event("RunRecorded")
        }
        Act::LatchPrune(run) => step("LatchPrune", &run.job, latched_prune(run)),
        Act::KeepArtifact { snapshot } => {
            step("KeepArtifact", &on(snapshot), "takes its stored snapshot along when deleted")
        }
        Act::LatchRemoval(removal) => step("LatchRemoval", &removal.job, "may remove the stored snapshot"),
        Act::ReleaseArtifact { snapshot } => {
            step("ReleaseArtifact", &on(snapshot), "holds nothing in the store any more")
        }
        Act::DeleteRecord { snapshot, why, .. } => {
            step("DeleteRecord", &on(snapshot), format!("deleted the EtcdSnapshot: {why}")).with_event("RecordDeleted")
        }
        Act::StartRun(it) => {
            let sentence = "created the Job of a run, because revisions are missing from the log";
            step("StartRun", &named(&it.metadata), sentence).with_event("RunStarted")
        }
        Act::DeleteDeployment { deployment, why } => {
            let sentence = format!("deleted the Deployment: {why}");
            step("DeleteDeployment", &on(deployment), sentence).with_event("DeploymentDeleted")
        }
        Act::DeleteJob { job, why } => {
            step("DeleteJob", &on(job), format!("deleted the Job: {why}")).with_event("JobDeleted")
        }
    }
}

/// The progress of the latch that a Job needs before it removes snapshots.
fn latched_prune(run: &PruneRun) -> String {
    match &run.protects {
        None => format!("may remove snapshots of {}", run.lineage),
        Some(protects) => {
            format!("removes snapshots of {} and protects {} that are restored", run.lineage, protects.len())
        }
    }
}

/// The cleared alarm, and the reason why the alarm was obsolete.
fn cleared(alarm: &Alarm) -> String {
    let (kind, member) = (alarm.kind.as_str(), alarm.member_id);
    let why = match alarm.kind {
        AlarmKind::NoSpace => "which has room again, or is no member",
        AlarmKind::Corrupt => {
            "which is no member: it came along with restored data, or was a replaced member's. If the restored data were \
             a copy of this very member's file, restore from another one's"
        }
    };
    format!("cleared the {kind} alarm of {member:x}, {why}")
}

/// The point up to which the log is added; otherwise the snapshot's rank as the newest, the data that may be missing in it, and newer snapshots that cannot be restored.
fn newest(restoring: &Restoring) -> String {
    if let Some(at) = &restoring.at {
        return format!(" and its log, up to {at}");
    }
    let Some(Newest { taken_at, passed_over, without_quorum, .. }) = &restoring.newest else { return String::new() };
    let alone = if *without_quorum { " without a quorum: acknowledged writes may be missing" } else { "" };
    let newer = passed_over.join("; ");
    let newer = if newer.is_empty() { newer } else { format!(". Newer, and cannot be restored: {newer}") };
    format!(", the newest, taken at {taken_at}{alone}{newer}")
}

/// Whether the latch is that of a cluster which forms at this moment.
fn is_only_formed(latches: &Latches) -> bool {
    let Latches { formed, restoring, timeline, .. } = latches;
    formed.is_some()
        && *latches
            == Latches {
                formed: formed.clone(),
                restoring: restoring.clone(),
                timeline: *timeline,
                ..Latches::default()
            }
}

/// Returns the step of a return in words, with its Event.
fn returning(returning: &Returning) -> Description {
    let described = step("Latch", "", waits_for(returning));
    match returning.phase() {
        ReturnPhase::Preparing => described.with_event("ReturnStarted"),
        ReturnPhase::Complete => described.with_event("Returned"),
        ReturnPhase::TurningBack | ReturnPhase::Failed => described.with_warning("ReturnFailed"),
        _ => described.with_event("Returning"),
    }
}

fn latched(latches: &Latches) -> String {
    if let Some(record) = &latches.defragmenting {
        let step = if record.began.is_some() { "is defragmented" } else { "is to be defragmented" };
        return format!("{} {step}: {} bytes, of which {} are in use", record.member, record.bytes, record.used_bytes);
    }
    if let Some(id) = &latches.orphan {
        return format!("etcd lists member {id}, which has neither EtcdMember nor Pod");
    }
    if let Some(formed) = &latches.formed {
        return match &latches.pending_member {
            Some(member) => format!("the next member will be {member}"),
            None if is_only_formed(latches) => format!("formed as etcd cluster {}", formed.cluster_id),
            None => "a step is done".to_owned(),
        };
    }
    match (&latches.pending_member, &latches.restoring) {
        (_, Some(restoring)) => format!("restores from {}{}", restoring.source.key, newest(restoring)),
        (Some(member), None) => format!("the first member will be {member}"),
        (None, None) => "nothing is pending".to_owned(),
    }
}
