//! Notices a write whose effect does not stay: an admission policy or another controller undoes it.
//!
//! Decides when the same write of the same object counts as reverted, and how long the operator waits before the next try. The
//! message is in `error.rs`. Losing this memory costs three more tries.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdfast_plan::{Act, Ensure, Target};

use super::clock::Instant;

/// Number of equal writes in a row that is ordinary: a lost answer or a stale cache causes them.
const ORDINARY: u32 = 3;

/// Equal writes further apart than this start a new row.
const KEPT_FOR: Duration = Duration::from_mins(5);

/// Longest wait before the next try.
const LONGEST: Duration = Duration::from_mins(1);

/// Equal writes in a row.
#[derive(Debug)]
struct Entry {
    fingerprint: u64,
    times: u32,
    last: Instant,
}

/// The last write of each kind that the passes over an object made.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    entries: Mutex<HashMap<(String, String), Entry>>,
}

/// A write in a form that can be compared with the write before.
#[derive(Debug)]
pub(super) struct Write {
    kind: String,
    fingerprint: u64,
}

impl Write {
    /// The act without the resourceVersion of its object. `None` for changes of etcd, which have delays of their own, and for
    /// creations and deletions, which concern another object each time.
    pub(super) fn of_act(label: &str, act: &Act) -> Option<Self> {
        let mut act = act.clone();
        let target = patched(&mut act)?;
        target.resource_version.clear();
        Some(Self { kind: format!("{label} {}", target.name), fingerprint: hash(&format!("{act:?}")) })
    }

    /// The applied object. `None` where another guard suffices.
    pub(super) fn of_ensure(ensure: &Ensure) -> Option<Self> {
        let (kind, name) = match ensure {
            Ensure::Service(service) => ("Service", &service.metadata.name),
            Ensure::Budget(budget) => ("PodDisruptionBudget", &budget.metadata.name),
            Ensure::CaBundle { metadata, .. } => ("ConfigMap", &metadata.name),
            // A Certificate that goes on coming from the earlier CA is asked for with a pause.
            Ensure::Reissue(request) => {
                let kind = format!("issue Certificate {} again", request.name);
                return Some(Self { kind, fingerprint: hash(&request.uid) });
            }
            Ensure::Certificate { metadata, .. } => ("Certificate", &metadata.name),
            Ensure::CronJob(cron) => ("CronJob", &cron.metadata.name),
            Ensure::Deployment(log) => ("Deployment", &log.metadata.name),
            // The resourceVersion guards a Secret, and the UID a deletion.
            Ensure::Secret(_) | Ensure::DropBudget(_) => return None,
        };
        let name = name.as_deref().unwrap_or_default();
        Some(Self { kind: format!("apply {kind} {name}"), fingerprint: hash(&format!("{ensure:?}")) })
    }

    /// The act and its object, for messages.
    pub(super) fn describe(&self) -> &str {
        &self.kind
    }
}

/// The target of an act that patches one object.
pub(super) const fn patched(act: &mut Act) -> Option<&mut Target> {
    match act {
        Act::HoldCluster { cluster: target }
        | Act::HoldUser { user: target }
        | Act::ReleaseUser { user: target }
        | Act::ClaimUser { user: target, .. }
        | Act::PutUser { user: target, .. }
        | Act::DropUser { user: target, .. }
        | Act::EndLeaderRequest { cluster: target, .. }
        | Act::ReleaseCluster { cluster: target }
        | Act::CopyRetention { member: target, .. }
        | Act::ReleaseMember { member: target }
        | Act::KeepArtifact { snapshot: target }
        | Act::ReleaseArtifact { snapshot: target }
        | Act::SetInitialCluster { member: target, .. }
        | Act::LatchStart { member: target, .. }
        | Act::LatchLeaving { member: target, .. }
        | Act::LatchRemoved { member: target, .. }
        | Act::SetTemplate { member: target, .. }
        | Act::CopyPodMetadata { member: target, .. }
        | Act::BeginResize { pod: target, .. }
        | Act::ResizePod { pod: target, .. }
        | Act::EndResize { pod: target, .. }
        | Act::SetPodMetadata { pod: target, .. }
        | Act::Park { member: target, .. }
        | Act::Unpark { member: target }
        | Act::SetAside { member: target, .. }
        | Act::TakeBack { member: target, .. }
        | Act::AnnounceCertificates { member: target, .. }
        | Act::LatchJoined { member: target, .. }
        | Act::ForbidEmptyStart { pod: target, .. }
        | Act::MarkStarted { pod: target, .. }
        | Act::GrowClaim { claim: target, .. }
        | Act::SetVolumeSize { member: target, .. }
        | Act::RefreshVolume { pod: target, .. }
        | Act::RefreshCertificates { pod: target, .. }
        | Act::DismissClients { pod: target }
        | Act::AdmitClients { pod: target }
        | Act::Relabel { pod: target, .. } => Some(target),
        Act::Latch(_)
        | Act::LatchPrune(_)
        | Act::LatchRemoval(_)
        | Act::Issue(_)
        | Act::CreateMember(_)
        | Act::AddLearner { .. }
        | Act::SetPeerUrl { .. }
        | Act::Promote { .. }
        | Act::Disarm { .. }
        | Act::SetAuth { .. }
        | Act::CommitEntry { .. }
        | Act::FillLog { .. }
        | Act::MoveLeader { .. }
        | Act::Defragment { .. }
        | Act::RemoveMember { .. }
        | Act::CreateClaim(_)
        | Act::CreatePod(_)
        | Act::DeletePod { .. }
        | Act::EvictPod { .. }
        | Act::DeleteClaim { .. }
        | Act::DeleteMember { .. }
        | Act::RecordRun(_)
        | Act::RequestSnapshot(_)
        | Act::DeleteRecord { .. }
        | Act::DeleteJob { .. }
        | Act::DeleteDeployment { .. }
        | Act::StartRun(_)
        | Act::StartJob(_) => None,
    }
}

impl Repeats {
    /// The remaining wait of a write whose equals had no lasting effect.
    pub(super) fn held(&self, object: &str, write: &Write, now: Instant) -> Option<Duration> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(&key(object, write)).filter(|entry| entry.fingerprint == write.fingerprint)?;
        let pause = pause(entry.times)?;
        pause.checked_sub(now.saturating_duration_since(entry.last)).filter(|remaining| !remaining.is_zero())
    }

    /// Notes a write; returns whether the write counts as reverted.
    pub(super) fn note(&self, object: &str, write: &Write, now: Instant) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, entry| now.saturating_duration_since(entry.last) < KEPT_FOR);
        let fresh = Entry { fingerprint: write.fingerprint, times: 0, last: now };
        let entry = entries.entry(key(object, write)).or_insert(fresh);
        if entry.fingerprint != write.fingerprint {
            (entry.fingerprint, entry.times) = (write.fingerprint, 0);
        }
        entry.times = entry.times.saturating_add(1);
        entry.last = now;
        pause(entry.times).is_some()
    }
}

/// The wait after this many equal writes in a row; `None` while they are ordinary.
fn pause(times: u32) -> Option<Duration> {
    let more = times.checked_sub(ORDINARY + 1)?;
    Some(Duration::from_secs(2).saturating_mul(2_u32.saturating_pow(more.min(8))).min(LONGEST))
}

fn key(object: &str, write: &Write) -> (String, String) {
    (object.to_owned(), write.kind.clone())
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn refresh(version: u32, digest: &str) -> Act {
        let pod = Target { name: "a-1".to_owned(), uid: "u1".to_owned(), resource_version: version.to_string() };
        Act::RefreshCertificates { pod, digest: digest.to_owned() }
    }

    #[test]
    fn the_fourth_equal_write_in_a_row_is_reverted_and_waits_longer_each_time() {
        let (table, start) = (Repeats::default(), clock::instant());
        let write = |n| Write::of_act("RefreshCertificates", &refresh(n, "d1")).unwrap();
        for n in 1..=3 {
            assert!(!table.note("a", &write(n), start), "{n}");
            assert_eq!(table.held("a", &write(n), start), None);
        }
        assert!(table.note("a", &write(4), start));
        assert_eq!(table.held("a", &write(5), start), Some(Duration::from_secs(2)));
        assert_eq!(table.held("a", &write(5), start + Duration::from_secs(2)), None);
        assert!(table.note("a", &write(5), start + Duration::from_secs(2)));
        assert_eq!(table.held("a", &write(6), start + Duration::from_secs(2)), Some(Duration::from_secs(4)));
        // Another object, another value, or a later day starts a row of its own.
        assert!(!table.note("b", &write(6), start));
        let other = Write::of_act("RefreshCertificates", &refresh(6, "d2")).unwrap();
        assert_eq!(table.held("a", &other, start + Duration::from_secs(2)), None);
        assert!(!table.note("a", &write(7), start + Duration::from_mins(20)));
    }

    #[test]
    fn pauses_grow_to_a_minute() {
        assert_eq!(pause(3), None);
        assert_eq!(pause(40), Some(LONGEST));
    }
}
