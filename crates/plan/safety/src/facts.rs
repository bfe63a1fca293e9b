//! Facts about a cluster for several rules, read with code of their own.
//!
//! Decides only how a rule reads a fact (I1).

use holdfast_api::cluster::Latches;
use holdfast_api::repair::{Evidence, Loss};

use super::{Violation, is, rule};
use holdfast_base::seen::cluster::{Listed, Member, Membership, Observed};
use holdfast_base::{Seen, Target, meta, objects, pods};

/// Raft entries that a healthy voter may lack.
const LAG: u64 = 1_000;

pub(super) fn latches(seen: &Observed) -> Latches {
    seen.cluster.status.as_ref().map(|s| s.latches.clone()).unwrap_or_default()
}

pub(super) fn known(seen: &Observed) -> Result<&Membership, Violation> {
    match &seen.etcd {
        Seen::Known(etcd) => Ok(etcd),
        Seen::Unknown(why) => Err(Violation {
            invariant: "I1",
            message: format!("nothing about the membership is decided without a linearizable read ({why})"),
        }),
    }
}

pub(super) fn formed_as(seen: &Observed, cluster_id: u64) -> Result<&Membership, Violation> {
    let etcd = known(seen)?;
    let formed = latches(seen).formed;
    let same = etcd.cluster_id == cluster_id && formed.is_some_and(|f| f.cluster_id == id(cluster_id));
    rule("I2", same, "the cluster that is changed is the one that formed")?;
    Ok(etcd)
}

pub(super) fn stands_for<'a>(seen: &'a Observed, listed: &Listed) -> Option<&'a Member> {
    let is_own = |m: &Member, url: &String| objects::member::is_peer_url_of(&seen.cluster, m.name(), url);
    seen.members.iter().find(|m| m.name() == listed.name || listed.peer_urls.iter().any(|url| is_own(m, url)))
}

pub(super) fn voters(etcd: &Membership) -> Vec<&Listed> {
    etcd.members.iter().filter(|l| !l.learner).collect()
}

/// The members that are not removed.
pub(super) fn staying(seen: &Observed) -> impl Iterator<Item = &Member> {
    seen.members.iter().filter(|m| m.object.spec.removed.is_none())
}

/// Whether the membership is not changing (I11): etcd lists the members that stay, all of them voters, and none leaves.
pub(super) fn is_whole(seen: &Observed, etcd: &Membership) -> bool {
    let voters = voters(etcd).len();
    let stays = |m: &Member| m.object.spec.leaving.is_none();
    voters == etcd.members.len() && staying(seen).count() == voters && staying(seen).all(stays)
}

pub(super) fn answers(seen: &Observed, etcd: &Membership, listed: &Listed) -> bool {
    let answer = stands_for(seen, listed).and_then(|m| seen.answers.get(m.name())).and_then(Seen::known);
    answer.is_some_and(|a| a.cluster_id == etcd.cluster_id && a.member_id == listed.id)
}

/// Returns etcd's entry for a member.
pub(super) fn listed_as<'a>(seen: &Observed, etcd: &'a Membership, name: &str) -> Option<&'a Listed> {
    etcd.members.iter().find(|l| stands_for(seen, l).is_some_and(|m| m.name() == name))
}

/// Whether a voter is healthy (I1): it answers for itself, follows the leader that etcd lists, and lags little.
pub(super) fn is_healthy(seen: &Observed, etcd: &Membership, listed: &Listed) -> bool {
    let answer_of = |listed: &Listed| {
        let member = stands_for(seen, listed)?;
        let answer = seen.answers.get(member.name()).and_then(Seen::known);
        answer.filter(|_| answers(seen, etcd, listed) && member.live_pod().is_some())
    };
    let leader = etcd.leader.and_then(|id| etcd.members.iter().find(|l| l.id == id));
    let (Some(leader), Some(own)) = (leader, answer_of(listed)) else { return false };
    let level = answer_of(leader).is_some_and(|ahead| ahead.applied_index.saturating_sub(own.applied_index) <= LAG);
    own.leader == leader.id && level
}

pub(super) fn id(id: u64) -> String {
    format!("{id:x}")
}

pub(super) fn named<'a>(seen: &'a Observed, name: &str) -> Result<&'a Member, Violation> {
    let there = seen.members.iter().find(|m| m.name() == name && !meta::deleting(&m.object.metadata));
    there.ok_or_else(|| Violation { invariant: "I12", message: format!("there is no member {name} that stays") })
}

pub(super) fn target_member<'a>(seen: &'a Observed, target: &Target) -> Result<&'a Member, Violation> {
    seen.members.iter().find(|m| is(target, &m.object.metadata)).ok_or_else(|| Violation {
        invariant: "I12",
        message: format!("{} is not a member as it was seen", target.name),
    })
}

pub(super) fn owner_of<'a>(seen: &'a Observed, target: &Target) -> Result<&'a Member, Violation> {
    let own = |m: &&Member| {
        m.pod
            .as_ref()
            .is_some_and(|p| is(target, &p.metadata) && meta::controlled_by(&p.metadata, meta::uid(&m.object.metadata)))
    };
    seen.members.iter().find(own).ok_or_else(|| Violation {
        invariant: "I13",
        message: format!("{} is not the Pod of one of the members as it was seen", target.name),
    })
}

pub(super) fn may_start_empty(member: &Member) -> bool {
    member.pod.as_ref().is_some_and(|p| pods::may_start_empty(p) && !meta::deleting(&p.metadata))
}

/// Returns the evidence in the member's status, while the present facts do not contradict it.
pub(super) fn own_evidence(member: &Member) -> Option<&Evidence> {
    let joined = member.object.spec.joined.is_some();
    let evidence = member.object.status.as_ref().and_then(|s| s.evidence.as_ref())?;
    let there = match evidence.kind {
        // A member that joins can lose only the data in its Pod's memory.
        Loss::ClaimGone | Loss::VolumeRefused | Loss::DataCorrupt if !joined => false,
        Loss::ClaimGone => member.claim.is_none(),
        Loss::VolumeRefused | Loss::DataCorrupt => !member.live_pod().is_some_and(pods::ready),
        Loss::MemoryGone => {
            let runs = |pod| pods::runs(pod) && !pods::ended(pod);
            member.object.spec.storage.in_memory() && !member.pod.as_ref().is_some_and(runs)
        }
        Loss::Diverged => false,
    };
    there.then_some(evidence)
}
