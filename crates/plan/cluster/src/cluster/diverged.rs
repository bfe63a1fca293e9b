//! Members that etcd's alarm `CORRUPT` names, while a majority of the voters has other data.
//!
//! Decides when such an alarm is evidence: it names one member, no other `CORRUPT` alarm is raised, and a quorum of the voters
//! without this member has the same hash at one revision and compact revision. An alarm for member 0 names no member, and a person
//! decides which data is right. Also decides when Holdfast may clear the alarm of the replaced member.

use holdfast_api::repair::{Evidence, Loss, Replaced};
use holdfast_contract::hex_id;
use jiff::Timestamp;

use super::health::voters;
use super::{KeyHash, Listed, Member, Membership, Observed};
use holdfast_base::objects::budget::quorum;
use holdfast_base::{Alarm, AlarmKind};

/// Returns the evidence, dated by its first record in the cluster's status.
pub(super) fn evidence(seen: &Observed, member: &Member, now: Timestamp) -> Option<Evidence> {
    let listed = seen.listed(seen.own_etcd()?, member.name()).filter(|_| is_diverged(seen, member))?;
    let new = || Evidence { kind: Loss::Diverged, detail: Some(hex_id(listed.id)), at: now.to_string() };
    Some(known(seen, member).cloned().unwrap_or_else(new))
}

/// Returns the evidence in the cluster's status, while hashes are missing.
pub(super) fn kept(seen: &Observed, member: &Member) -> Option<Evidence> {
    let etcd = seen.own_etcd()?;
    let listed = seen.listed(etcd, member.name())?;
    let silent = others(seen, etcd, listed).len() < quorum(voters(etcd));
    known(seen, member).filter(|_| silent && is_named(etcd, listed)).cloned()
}

/// Returns the evidence in the cluster's status.
pub(super) fn known<'a>(seen: &'a Observed, member: &Member) -> Option<&'a Evidence> {
    let listed = &seen.cluster.status.as_ref()?.members;
    let known = listed.iter().find(|known| known.name == member.name())?.evidence.as_ref();
    known.filter(|known| known.kind == Loss::Diverged)
}

/// Whether a member leaves because of the only `CORRUPT` alarm that is raised.
pub(super) fn leaves(seen: &Observed, member: &Member) -> bool {
    let why = member.object.spec.leaving.as_ref().and_then(|leaving| leaving.evidence.as_ref());
    why.is_some_and(|why| why.kind == Loss::Diverged) && is_diverged(seen, member)
}

/// Whether all `CORRUPT` alarms name this member, and a quorum of the other voters has one hash, which this member lacks.
pub(super) fn is_diverged(seen: &Observed, member: &Member) -> bool {
    let Some(etcd) = seen.own_etcd() else { return false };
    let Some(listed) = seen.listed(etcd, member.name()).filter(|_| member.joined()) else { return false };
    let most = others(seen, etcd, listed).into_iter().max_by_key(|(_, count)| *count);
    let own = seen.hashes.get(member.name());
    is_named(etcd, listed) && most.is_some_and(|(hash, count)| count >= quorum(voters(etcd)) && own != Some(&hash))
}

/// Whether the `CORRUPT` alarms name this member and no other.
fn is_named(etcd: &Membership, listed: &Listed) -> bool {
    let mut corrupt = etcd.alarms_of(AlarmKind::Corrupt).peekable();
    corrupt.peek().is_some() && corrupt.all(|alarm| alarm.member_id == listed.id)
}

/// Whether the alarm names a member that was replaced for it, and all remaining voters have the same data.
pub(super) fn is_over(seen: &Observed, etcd: &Membership, alarm: &Alarm) -> bool {
    let replaced = seen.latches().replaced.map(|last| last.evidence).filter(|known| known.kind == Loss::Diverged);
    let own = replaced.and_then(|known| known.detail).is_some_and(|id| id == hex_id(alarm.member_id));
    let hash = |l: &Listed| seen.hashes.get(seen.standing_for(l)?.name());
    // A learner gives no hash, and gets its data from the voters.
    let mut hashes = etcd.members.iter().filter(|l| !l.learner).map(hash);
    let agree = hashes.next().flatten().is_some_and(|first| hashes.all(|other| other == Some(first)));
    own && agree && etcd.members.iter().all(|l| l.id != alarm.member_id)
}

/// Returns the hashes of the other voters, each with the number of voters that have it.
fn others(seen: &Observed, etcd: &Membership, except: &Listed) -> Vec<(KeyHash, usize)> {
    let rest = etcd.members.iter().filter(|l| !l.learner && l.id != except.id);
    let hashes: Vec<KeyHash> = rest.filter_map(|l| seen.hashes.get(seen.standing_for(l)?.name()).copied()).collect();
    hashes.iter().map(|hash| (*hash, hashes.iter().filter(|other| *other == hash).count())).collect()
}

/// Returns the member IDs of the `CORRUPT` alarms, where hashes can decide which data is right: an alarm names a voter that
/// two others can outvote, or the member that was replaced for the alarm.
pub fn asks_for_hashes(etcd: &Membership, replaced: Option<&Replaced>) -> Option<String> {
    let replaced = replaced.map(|last| &last.evidence).filter(|known| known.kind == Loss::Diverged);
    let gone = |id: u64| replaced.and_then(|known| known.detail.as_ref()).is_some_and(|known| *known == hex_id(id));
    let listed = |id: u64| voters(etcd) >= 3 && etcd.members.iter().any(|l| l.id == id && !l.learner);
    let mut ids: Vec<u64> = etcd.alarms_of(AlarmKind::Corrupt).map(|alarm| alarm.member_id).collect();
    ids.sort_unstable();
    let asks = ids.iter().any(|id| listed(*id) || gone(*id));
    asks.then(|| ids.into_iter().map(hex_id).collect::<Vec<_>>().join(","))
}
