//! Members that received the leader's snapshot, and do not serve until the next entry.
//!
//! Decides when Holdfast commits an entry that changes nothing, for a member whose etcd runs and gives no answer. etcd 3.5 to 3.7
//! do not count a snapshot that they install as applied (`applySnapshot` leaves `appliedIndex`). After a snapshot of more than
//! 5,000 entries etcd therefore refuses its own request to publish itself, thousands of times a second, until the next entry is
//! committed. A cluster without writes commits none. Holdfast cannot see whether a silent member waits for that, so the entries
//! get rarer the longer the member is silent.

use jiff::{SignedDuration, Timestamp};

use super::{Member, Observed};
use holdfast_base::objects::container;
use holdfast_base::{Act, Seen, meta, pods};

/// Shortest pause from the start of etcd to the first entry, and between two entries: etcd serves within a second.
const EVERY: SignedDuration = SignedDuration::from_secs(2);

/// Shortest pause for a container that restarts again and again: none of its runs lives that long.
const EVERY_OF_A_CRASHER: SignedDuration = SignedDuration::from_secs(60);

/// Restarts after which a container counts as one of these.
const CRASHES: i32 = 3;

/// Returns the entry that is due, where the leader answers.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Act> {
    let etcd = seen.own_etcd().filter(|_| seen.latches().formed.is_some())?;
    if seen.cluster.spec.paused || meta::deleting(&seen.cluster.metadata) {
        return None;
    }
    let leader = etcd.members.iter().find(|l| Some(l.id) == etcd.leader)?;
    seen.serving(etcd, leader, seen.standing_for(leader)?.name())?;
    let recorded = seen.cluster.status.as_ref().and_then(|status| status.last_empty_entry.as_ref()?.parse().ok());
    let due = |member: &Member| {
        let silent = matches!(seen.answers.get(member.name()), Some(Seen::Unknown(_)));
        let pod = member.live_pod().filter(|_| silent && seen.listed(etcd, member.name()).is_some())?;
        let crashes = pods::status(pod, container::ETCD).is_some_and(|status| status.restart_count >= CRASHES);
        let (since, every) = (pods::running_since(pod)?, if crashes { EVERY_OF_A_CRASHER } else { EVERY });
        let last: Timestamp = recorded.unwrap_or(since);
        Some(last.max(since) + (last.duration_since(since) / 4).max(every))
    };
    (now >= seen.members.iter().filter_map(due).min()?).then_some(Act::CommitEntry { cluster_id: etcd.cluster_id })
}
