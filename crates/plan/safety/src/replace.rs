//! Rules for the replacement of members (I29): evidence or a request first, and one member an hour on evidence alone.

use holdfast_api::cluster::Latches;
use holdfast_api::key;
use holdfast_api::member::{Departure, Leaving};
use holdfast_api::repair::{Evidence, Loss, RepairMode, Replaced};
use jiff::{SignedDuration, Timestamp};

use super::facts::{answers, is_healthy, latches, listed_as, own_evidence, stands_for, voters};
use super::{Verdict, rule};
use holdfast_base::seen::cluster::{KeyHash, Listed, Member, Membership, Observed};
use holdfast_base::{AlarmKind, Seen, meta, template};

/// Pause between two members that are replaced on evidence.
const ONE_IN: SignedDuration = SignedDuration::from_hours(1);
/// The same evidence within this time has one cause.
const COMMON_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// Returns the evidence in the cluster's status or in the member's status, while the present facts do not contradict it.
fn evidence<'a>(seen: &'a Observed, member: &'a Member) -> Option<&'a Evidence> {
    let status = seen.cluster.status.as_ref();
    let known = || status?.members.iter().find(|m| m.name == member.name())?.evidence.as_ref();
    let corrupt = || known().filter(|e| e.kind == Loss::Diverged && is_outvoted(seen, member));
    corrupt().or_else(|| own_evidence(member))
}

/// Whether all `CORRUPT` alarms name this member, and a majority of all voters has the same data without it.
pub(super) fn is_outvoted(seen: &Observed, member: &Member) -> bool {
    let Seen::Known(etcd) = &seen.etcd else { return false };
    let Some(own) = listed_as(seen, etcd, member.name()).map(|l| l.id) else { return false };
    let corrupt: Vec<u64> = etcd.alarms.iter().filter(|a| a.kind == AlarmKind::Corrupt).map(|a| a.member_id).collect();
    let hash = |id: u64| {
        let listed = etcd.members.iter().find(|l| l.id == id)?;
        seen.hashes.get(stands_for(seen, listed)?.name())
    };
    let all = voters(etcd);
    let agree = |with: &KeyHash| all.iter().filter(|l| l.id != own && hash(l.id) == Some(with)).count();
    let outvoted = |with: &KeyHash| 2 * agree(with) > all.len() && hash(own) != Some(with);
    !corrupt.is_empty() && corrupt.iter().all(|id| *id == own) && all.iter().filter_map(|l| hash(l.id)).any(outvoted)
}

/// Returns the ID of the member that was replaced for its `CORRUPT` alarm, where all remaining voters have the same data.
pub(super) fn outvoted(seen: &Observed, etcd: &Membership) -> Option<String> {
    let last = latches(seen).replaced.map(|last| last.evidence).filter(|e| e.kind == Loss::Diverged)?;
    let hash = |l: &Listed| Some(*seen.hashes.get(stands_for(seen, l)?.name())?);
    let hashes: Option<Vec<KeyHash>> = voters(etcd).into_iter().map(hash).collect();
    let same = hashes.is_some_and(|all| !all.is_empty() && all.windows(2).all(|two| two.first() == two.last()));
    last.detail.filter(|_| same)
}

/// Checks the latch of a replacement on evidence.
pub(super) fn latch(seen: &Observed, old: &Latches, new: &Latches) -> Verdict {
    if new.replaced == old.replaced {
        return Ok(());
    }
    let Some(replaced) = &new.replaced else {
        return rule("I29", false, "the latch of the last replacement is not removed");
    };
    let repair = seen.cluster.spec.repair();
    rule("I29", repair.mode == RepairMode::Automatic, "in mode Manual a person decides")?;
    let stays = |m: &&Member| m.object.spec.leaving.is_none() && m.object.spec.removed.is_none();
    let staying = || seen.members.iter().filter(stays);
    let own = staying().find(|m| m.name() == replaced.member).and_then(|m| evidence(seen, m));
    rule(
        "I29",
        own == Some(&replaced.evidence),
        "a member is replaced on the evidence that the member has written down",
    )?;
    // Data in memory is lost for certain, even if other members have lost theirs.
    if replaced.evidence.kind == Loss::MemoryGone {
        return Ok(());
    }
    let (at, since) = (time(&replaced.at), replaced.evidence.since());
    let waited = at.zip(since).is_some_and(|(at, since)| at >= since + repair.after());
    rule("I29", waited, "between evidence and replacement lies spec.repair.afterSeconds")?;
    let paces = |last: &&Replaced| last.evidence.kind != Loss::MemoryGone;
    let last = old.replaced.as_ref().filter(paces).map(|last| time(&last.at));
    let paced = last.is_none_or(|last| last.zip(at).is_some_and(|(last, at)| at >= last + ONE_IN));
    rule("I29", paced, "one member an hour is replaced on evidence")?;
    let common = |other: &Evidence| {
        let apart = other.since().zip(since).map(|(a, b)| a.duration_since(b).abs());
        other.kind == replaced.evidence.kind && apart.is_none_or(|apart| apart <= COMMON_WITHIN)
    };
    let others = staying().filter(|m| m.name() != replaced.member).filter_map(|m| evidence(seen, m));
    let alone = !others.chain(old.replaced.iter().map(|last| &last.evidence)).any(common);
    rule("I29", alone, "no member is replaced while another one shows the same evidence")
}

fn time(at: &str) -> Option<Timestamp> {
    at.parse().ok()
}

/// Checks the decision to replace a member. Returns whether the member may be the last voter: then its successor comes first.
pub(super) fn leave(
    seen: &Observed,
    etcd: &Membership,
    member: &Member,
    leaving: &Leaving,
) -> Result<bool, super::Violation> {
    let listed = listed_as(seen, etcd, member.name());
    let joined = member.object.spec.joined.is_some();
    match leaving.why {
        Departure::ScaledIn => Ok(false),
        Departure::NotListed => {
            rule("I29", joined && listed.is_none(), "etcd lists the member still, or never did").map(|()| false)
        }
        Departure::NeverPromoted => {
            rule("I29", listed.is_none_or(|l| l.learner), "a voter was promoted").map(|()| false)
        }
        Departure::Requested => {
            let asked = meta::annotation(&seen.cluster.metadata, key::REPLACE) == Some(member.name());
            let in_memory = member.object.spec.storage.in_memory();
            let outdated = || member.object.spec.process != template::wanted(&seen.cluster);
            let changed = in_memory && (outdated() || super::roll::is_outdated(member));
            rule("I29", asked || changed || member.deleting(), "no person asked for the replacement")?;
            if listed.is_some_and(|l| !l.learner) {
                super::roll::permitted(seen, member)?;
            }
            Ok(true)
        }
        Departure::Lost => {
            let latched = latches(seen).replaced.is_some_and(|last| last.member == member.name());
            rule("I29", latched, "a replacement on evidence is latched first")?;
            let own = evidence(seen, member);
            rule("I29", own.is_some() && own == leaving.evidence.as_ref(), "the member shows no such evidence")?;
            // The Pod ends while etcd still counts its vote.
            let own = listed.filter(|l| !l.learner && answers(seen, etcd, l));
            let rest = voters(etcd).into_iter().filter(|l| Some(l.id) != own.map(|own| own.id));
            let healthy = rest.filter(|l| is_healthy(seen, etcd, l)).count();
            rule("I1", own.is_none() || 2 * healthy > voters(etcd).len(), "a quorum is healthy without the member")
                .map(|()| false)
        }
    }
}

/// Checks that the Pod of a lost member has ended before etcd removes the member.
pub(super) fn remove(member: &Member) -> Verdict {
    rule("I29", !member.object.spec.is_lost() || member.pod.is_none(), "the Pod of a lost member ends first")
}
