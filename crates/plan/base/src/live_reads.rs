//! The objects that the operator reads from the API server before an act (I26).
//!
//! Decides one of three classes for each act. The operator plans on its watch caches, after they show its own writes; a
//! cache may still lag behind other writers. Does not decide the preconditions of the act: every write carries the UID and the
//! resourceVersion of the object (I12), and each change of etcd's membership follows a linearizable read.

use holdfast_api::EtcdMember;
use holdfast_api::member::Birth;
use jiff::{SignedDuration, Timestamp};

use super::Act;

/// A member that has not joined gets its claim and its Pod within this time, where nothing holds them up.
const YOUNG: SignedDuration = SignedDuration::from_secs(30);

/// Whether a view lacks the Pod or the claim of a member that should have both. The caches hold only objects with Holdfast's
/// labels: a label that a policy has changed hides an object that is there, and a hidden volume is not a lost one (I29).
pub fn lacks_parts(member: &EtcdMember, has_pod: bool, has_claim: bool, now: Timestamp) -> bool {
    let spec = &member.spec;
    let goes = member.metadata.deletion_timestamp.is_some() || spec.removed.is_some();
    let made = member.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let is_young = spec.joined.is_none() && made.is_some_and(|at| now.duration_since(at) < YOUNG);
    let (wants_pod, wants_claim) = (spec.parked.is_none() && spec.aside.is_none(), !spec.storage.in_memory());
    !goes && !is_young && (wants_pod && !has_pod || wants_claim && !has_claim)
}

/// Live reads before an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveReads {
    /// No read: a decision on an old view ends in a conflict, or in a write that a later pass corrects.
    None,
    /// The version of the object of the pass, and of the member that the act names. After a change the operator reads
    /// everything and plans again.
    Guards,
    /// Everything, and the operator plans again: the act destroys data, or cannot be taken back, or depends on the absence of
    /// an object.
    Everything,
}

impl Act {
    /// Returns the live reads before this act.
    pub fn live_reads(&self) -> LiveReads {
        match self {
            // An upgrade has no way back. Founding depends on the absence of volumes, a restore on the absence of removals (I2, I25). A replacement and
            // an orphan are the first steps of a removal.
            Self::Latch(latches) => {
                let removes = latches.replaced.is_some() || latches.orphan.is_some() || latches.upgrade.is_some();
                // A return depends on its EtcdRestore, and on the absence of Pods (I2).
                let removes = removes || latches.returning.is_some();
                if latches.formed.is_none() || removes { LiveReads::Everything } else { LiveReads::None }
            }
            Self::CreateMember(member) if member.spec.role == Birth::Seed => LiveReads::Everything,
            // Whether a Pod may start on an empty volume depends on the other objects under its name (I3, I5).
            Self::CreatePod(_)
            // A Job that saves, probes or removes has no undo.
            | Self::StartJob(_)
            | Self::StartRun(_)
            | Self::LatchPrune(_)
            | Self::LatchRemoval(_)
            | Self::RecordRun(_)
            | Self::RequestSnapshot(_)
            | Self::LatchLeaving { .. }
            | Self::RemoveMember { .. }
            | Self::LatchRemoved { .. }
            | Self::Park { .. }
            | Self::Unpark { .. }
            | Self::SetAside { .. }
            | Self::TakeBack { .. }
            | Self::DeletePod { .. }
            // A volume never shrinks again.
            | Self::GrowClaim { .. }
            // The others may have lost a voter meanwhile (I1).
            | Self::EvictPod { .. }
            | Self::Defragment { .. }
            // A member with less memory may end.
            | Self::ResizePod { .. }
            | Self::DeleteClaim { .. }
            | Self::DeleteMember { .. }
            | Self::DeleteRecord { .. }
            | Self::DeleteJob { .. }
            | Self::DeleteDeployment { .. }
            | Self::ReleaseCluster { .. }
            | Self::ReleaseMember { .. }
            | Self::ReleaseArtifact { .. }
            // What etcd is given depends on the claim and on the Secret.
            | Self::ClaimUser { .. }
            | Self::PutUser { .. }
            | Self::DropUser { .. }
            | Self::ReleaseUser { .. }
            // Clients without a user lose their access.
            | Self::SetAuth { .. }
            | Self::Disarm { .. } => LiveReads::Everything,
            Self::CreateMember(_)
            | Self::CreateClaim(_)
            | Self::AddLearner { .. }
            | Self::SetPeerUrl { .. }
            | Self::Promote { .. }
            | Self::MoveLeader { .. }
            | Self::SetTemplate { .. }
            | Self::SetVolumeSize { .. }
            | Self::FillLog { .. }
            | Self::MarkStarted { .. }
            // Holdfast creates a CA only for a cluster that has not formed (I15).
            | Self::Issue(_) => LiveReads::Guards,
            Self::HoldCluster { .. }
            | Self::HoldUser { .. }
            | Self::EndLeaderRequest { .. }
            | Self::KeepArtifact { .. }
            | Self::CopyRetention { .. }
            | Self::BeginResize { .. }
            | Self::EndResize { .. }
            | Self::SetPodMetadata { .. }
            | Self::CopyPodMetadata { .. }
            | Self::SetInitialCluster { .. }
            | Self::LatchJoined { .. }
            // The version of the member is the patch's own precondition.
            | Self::LatchStart { .. }
            | Self::ForbidEmptyStart { .. }
            | Self::CommitEntry { .. }
            | Self::AdmitClients { .. }
            | Self::DismissClients { .. }
            | Self::Relabel { .. }
            | Self::AnnounceCertificates { .. }
            | Self::RefreshCertificates { .. }
            | Self::RefreshVolume { .. } => LiveReads::None,
        }
    }

    /// Returns the name of the member that guards an act on a cluster, if the act has no resourceVersion of the member.
    pub fn member_by_name(&self) -> Option<&str> {
        match self {
            Self::AddLearner { name, .. }
            | Self::SetPeerUrl { name, .. }
            | Self::Promote { name, .. }
            | Self::MoveLeader { name, .. } => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::cluster::{Formed, Latches};
    use holdfast_api::repair::Replaced;

    use super::*;
    use crate::Target;

    fn target() -> Target {
        Target { name: "a".to_owned(), uid: "u".to_owned(), resource_version: "1".to_owned() }
    }

    #[test]
    fn founding_and_the_first_step_of_a_removal_need_everything() {
        let formed = || Some(Formed::default());
        let latch = |latches: Latches| Act::Latch(Box::new(latches)).live_reads();
        assert_eq!(
            latch(Latches { pending_member: Some("a-x".to_owned()), ..Latches::default() }),
            LiveReads::Everything
        );
        let grown = Latches { formed: formed(), pending_member: Some("a-x".to_owned()), ..Latches::default() };
        assert_eq!(latch(grown), LiveReads::None);
        let replaced = Latches { formed: formed(), replaced: Some(Replaced::default()), ..Latches::default() };
        assert_eq!(latch(replaced), LiveReads::Everything);
        let orphan = Latches { formed: formed(), orphan: Some("1f".to_owned()), ..Latches::default() };
        assert_eq!(latch(orphan), LiveReads::Everything);
    }

    /// A seed founds: volumes of an earlier cluster may have come since its name was latched.
    #[test]
    fn a_seed_needs_everything_and_a_joiner_its_cluster() {
        let member = |role| {
            let mut member = holdfast_api::EtcdMember::default();
            member.spec.role = role;
            Act::CreateMember(Box::new(member)).live_reads()
        };
        assert_eq!((member(Birth::Seed), member(Birth::Joiner)), (LiveReads::Everything, LiveReads::Guards));
    }

    #[test]
    fn a_member_without_its_pod_or_claim_is_looked_at_live() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let member = |seconds: i64| {
            let mut member = EtcdMember::default();
            let made = now - SignedDuration::from_secs(seconds);
            member.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(made));
            member
        };
        assert!(!lacks_parts(&member(29), false, false, now), "they are about to be made");
        assert!(lacks_parts(&member(31), false, true, now) && lacks_parts(&member(31), true, false, now));
        assert!(!lacks_parts(&member(31), true, true, now));
        let mut joined = member(1);
        joined.spec.joined = Some(holdfast_api::member::Joined::default());
        assert!(lacks_parts(&joined, false, true, now));
        let mut parked = member(31);
        parked.spec.parked = Some(holdfast_api::member::Parked::default());
        assert!(!lacks_parts(&parked, false, true, now) && lacks_parts(&parked, false, false, now));
        let mut memory = member(31);
        memory.spec.storage.medium = holdfast_api::storage::Medium::Memory;
        assert!(!lacks_parts(&memory, true, false, now) && lacks_parts(&memory, false, false, now));
        let mut removed = member(31);
        removed.spec.removed = Some(holdfast_api::member::Removed::default());
        assert!(!lacks_parts(&removed, false, false, now));
    }

    #[test]
    fn what_destroys_needs_everything() {
        let why = || "because".to_owned();
        for act in [
            Act::DeletePod { pod: target(), why: why() },
            Act::DeleteClaim { claim: target(), why: why() },
            Act::DeleteMember { member: target(), why: why() },
            Act::ReleaseMember { member: target() },
            Act::ReleaseCluster { cluster: target() },
            Act::ReleaseArtifact { snapshot: target() },
            Act::RemoveMember { name: "a".to_owned(), member_id: 1, learner: false, cluster_id: 1 },
        ] {
            assert_eq!(act.live_reads(), LiveReads::Everything, "{act:?}");
        }
    }
}
