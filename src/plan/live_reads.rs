//! The objects that the operator reads from the API server before an act (I26).
//!
//! Decides one of three classes for each act. The operator plans on its watch caches, after they show its own writes; a
//! cache may still lag behind other writers. Does not decide the preconditions of the act: every write carries the UID and the
//! resourceVersion of the object (I12), and each change of etcd's membership follows a linearizable read.

use super::Act;

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
            // Founding depends on the absence of volumes, a restore on the absence of removals (I2, I25). A replacement and
            // an orphan are the first steps of a removal.
            Self::Latch(latches) => {
                let removes = latches.replaced.is_some() || latches.orphan.is_some();
                if latches.formed.is_none() || removes { LiveReads::Everything } else { LiveReads::None }
            }
            Self::CreateMember(member) if member.spec.restore.is_some() => LiveReads::Everything,
            // Whether a Pod may start on an empty volume depends on the other objects under its name (I3, I5).
            Self::CreatePod(_)
            // A Job that saves, probes or removes has no undo.
            | Self::StartJob(_)
            | Self::LatchPrune(_)
            | Self::LatchRemoval(_)
            | Self::RecordRun(_)
            | Self::LatchLeaving { .. }
            | Self::RemoveMember { .. }
            | Self::LatchRemoved { .. }
            | Self::Park { .. }
            | Self::Unpark { .. }
            | Self::DeletePod { .. }
            | Self::DeleteClaim { .. }
            | Self::DeleteMember { .. }
            | Self::DeleteRecord { .. }
            | Self::DeleteJob { .. }
            | Self::ReleaseCluster { .. }
            | Self::ReleaseMember { .. }
            | Self::ReleaseArtifact { .. }
            | Self::Disarm { .. } => LiveReads::Everything,
            Self::CreateMember(_)
            | Self::CreateClaim(_)
            | Self::AddLearner { .. }
            | Self::Promote { .. }
            | Self::MoveLeader { .. }
            | Self::LatchStart { .. }
            | Self::MarkStarted { .. }
            // Holdfast creates a CA only for a cluster that has not formed (I15).
            | Self::Issue(_) => LiveReads::Guards,
            Self::HoldCluster { .. }
            | Self::KeepArtifact { .. }
            | Self::CopyRetention { .. }
            | Self::SetInitialCluster { .. }
            | Self::LatchJoined { .. }
            | Self::ForbidEmptyStart { .. }
            | Self::CommitEntry { .. }
            | Self::AdmitClients { .. }
            | Self::DismissClients { .. }
            | Self::Relabel { .. }
            | Self::AnnounceCertificates { .. }
            | Self::RefreshCertificates { .. } => LiveReads::None,
        }
    }

    /// Returns the name of the member that an act on a cluster concerns, if the act has no resourceVersion of the member.
    pub fn member_by_name(&self) -> Option<&str> {
        match self {
            Self::AddLearner { name, .. }
            | Self::Promote { name, .. }
            | Self::MoveLeader { name, .. }
            | Self::RemoveMember { name, .. } => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cluster::{Formed, Latches};
    use crate::api::repair::Replaced;
    use crate::plan::Target;

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

    /// A restored seed starts from a stored snapshot that a retention run must not remove meanwhile.
    #[test]
    fn a_restored_seed_needs_everything() {
        let mut seed = crate::api::EtcdMember::default();
        assert_eq!(Act::CreateMember(Box::new(seed.clone())).live_reads(), LiveReads::Guards);
        seed.spec.restore = Some(crate::api::restore::Restoring::default());
        assert_eq!(Act::CreateMember(Box::new(seed)).live_reads(), LiveReads::Everything);
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
