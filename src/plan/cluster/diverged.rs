//! Members whose data etcd itself calls corrupt (alarm `CORRUPT`), while a majority of the voters has other data.
//!
//! Decides when such an alarm is evidence: it names one member, no other `CORRUPT` alarm is raised, and a quorum of the voters
//! without this one has the same hash at one revision and compact revision. An alarm for member 0 names nobody, and whose
//! data are right is then for a person to say. Also decides when the alarm of the replaced member may be cleared.

use jiff::Timestamp;

use super::health::voters;
use super::{Alarm, AlarmKind, KeyHash, Listed, Member, Membership, Observed};
use crate::api::repair::{Evidence, Loss};
use crate::plan::build::budget::quorum;
use snapshot_agent::contract::hex_id;

/// The evidence as the cluster's status has it, where it still holds.
pub(super) fn evidence<'a>(seen: &'a Observed, member: &Member) -> Option<&'a Evidence> {
    let told = &seen.cluster.status.as_ref()?.members;
    let known = told.iter().find(|known| known.name == member.name())?.evidence.as_ref()?;
    (known.kind == Loss::Diverged && is_diverged(seen, member)).then_some(known)
}

/// What the cluster's status says of it: since when, with the ID that the alarm names. While hashes are missing it says what
/// it said before.
pub(super) fn told(seen: &Observed, member: &Member, now: Timestamp) -> Option<Evidence> {
    let etcd = seen.own_etcd()?;
    let listed = seen.listed(etcd, member.name())?;
    if is_diverged(seen, member) {
        return Some(Evidence { kind: Loss::Diverged, detail: Some(hex_id(listed.id)), at: now.to_string() });
    }
    let old = seen.cluster.status.as_ref()?.members.iter().find(|known| known.name == member.name())?;
    let silent = others(seen, etcd, listed).len() < quorum(voters(etcd));
    old.evidence.clone().filter(|known| known.kind == Loss::Diverged && silent && is_named(etcd, listed))
}

/// Whether the only `CORRUPT` alarms are those of this member, and a quorum of the other voters agrees.
pub(super) fn is_diverged(seen: &Observed, member: &Member) -> bool {
    let Some(etcd) = seen.own_etcd() else { return false };
    let Some(listed) = seen.listed(etcd, member.name()).filter(|_| member.joined()) else { return false };
    let most = others(seen, etcd, listed).into_iter().max_by_key(|(_, count)| *count);
    let own = seen.hashes.get(member.name());
    is_named(etcd, listed) && most.is_some_and(|(hash, count)| count >= quorum(voters(etcd)) && own != Some(&hash))
}

/// Whether the `CORRUPT` alarms name this member and no other.
fn is_named(etcd: &Membership, listed: &Listed) -> bool {
    let mut corrupt = corrupt(etcd).peekable();
    corrupt.peek().is_some() && corrupt.all(|alarm| alarm.member_id == listed.id)
}

/// Whether this is the alarm of a member that was replaced for it, and everybody left has the same data.
pub(super) fn is_over(seen: &Observed, etcd: &Membership, alarm: &Alarm) -> bool {
    let replaced = seen.latches().replaced.map(|last| last.evidence).filter(|known| known.kind == Loss::Diverged);
    let own = replaced.and_then(|known| known.detail).is_some_and(|id| id == hex_id(alarm.member_id));
    let hash = |l: &Listed| seen.hashes.get(seen.standing_for(l)?.name());
    let mut hashes = etcd.members.iter().map(hash);
    let agree = hashes.next().flatten().is_some_and(|first| hashes.all(|other| other == Some(first)));
    own && agree && etcd.members.iter().all(|l| l.id != alarm.member_id)
}

/// The hashes of the other voters, and how many have each.
fn others(seen: &Observed, etcd: &Membership, except: &Listed) -> Vec<(KeyHash, usize)> {
    let rest = etcd.members.iter().filter(|l| !l.learner && l.id != except.id);
    let hashes: Vec<KeyHash> = rest.filter_map(|l| seen.hashes.get(seen.standing_for(l)?.name()).copied()).collect();
    hashes.iter().map(|hash| (*hash, hashes.iter().filter(|other| *other == hash).count())).collect()
}

fn corrupt(etcd: &Membership) -> impl Iterator<Item = &Alarm> {
    etcd.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::Corrupt)
}

impl Membership {
    /// Whether a `CORRUPT` alarm names a member, so that the members' hashes say whose data are right.
    pub fn asks_for_hashes(&self) -> bool {
        corrupt(self).any(|alarm| alarm.member_id != 0)
    }
}
