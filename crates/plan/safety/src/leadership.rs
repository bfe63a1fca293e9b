//! Rules for the leadership: from which leader to which voter it goes, and when a user's request for a leader ends. Decides only
//! whether a plan keeps them.

use holdfast_api::key;
use jiff::SignedDuration;

use super::facts::{formed_as, is_healthy, known, listed_as, stands_for, voters};
use super::{Verdict, defragment, is, roll, rule};
use holdfast_base::Unelectable;
use holdfast_base::seen::cluster::{Listed, Member, Membership, Observed};
use holdfast_base::{Target, meta};

/// How long a leader refuses a new member before another one leads.
const REFUSED_FOR: SignedDuration = SignedDuration::from_mins(1);

/// Checks that the leader has a reason to go, and that the next one is a healthy voter.
pub(super) fn hand_over(seen: &Observed, name: &str, (from, to): (u64, u64), cluster_id: u64) -> Verdict {
    let etcd = formed_as(seen, cluster_id)?;
    let leads = etcd.members.iter().find(|l| l.id == from && etcd.leader == Some(from));
    let leader = leads.and_then(|l| stands_for(seen, l)).filter(|m| m.name() == name);
    let next = voters(etcd).into_iter().find(|l| l.id == to && to != from);
    let refuses =
        || seen.members.iter().any(|m| !m.joined()) && seen.refused_for.is_some_and(|lasted| lasted >= REFUSED_FOR);
    let goes = |m: &Member| {
        m.object.spec.leaving.is_some() || roll::is_outdated(m) || defragment::is_under_way(seen, m) || refuses()
    };
    let asked = || next.and_then(|l| stands_for(seen, l)).is_some_and(|m| requested(seen) == Some(m.name()));
    rule(
        "I11",
        leader.is_some_and(|m| goes(m) || asked()),
        "only a leader that leaves, restarts, is defragmented, refuses a new member or is to go at a user's request hands the \
         leadership over",
    )?;
    let healthy = next.is_some_and(|l| {
        is_healthy(seen, etcd, l) && stands_for(seen, l).is_some_and(|m| m.object.spec.leaving.is_none())
    });
    rule("I1", healthy, "the next leader is a healthy voter that stays")?;
    let all = || voters(etcd).into_iter().all(|l| is_healthy(seen, etcd, l));
    rule("I1", leader.is_some_and(goes) || all(), "a request waits until every voter is healthy")
}

/// Checks that a request is carried out before the annotation goes, or that its member cannot lead.
pub(super) fn end_request(seen: &Observed, cluster: &Target, member: &str, refused: Option<Unelectable>) -> Verdict {
    rule("I12", is(cluster, &seen.cluster.metadata), "the cluster is the one that was seen")?;
    rule("I12", requested(seen) == Some(member), "the request is the one that was seen")?;
    let etcd = known(seen)?;
    formed_as(seen, etcd.cluster_id)?;
    let listed = electable(seen, etcd, member);
    let ends = match refused {
        None => listed.is_some_and(|l| etcd.leader == Some(l.id)),
        Some(Unelectable::Absent) => listed.is_none(),
        Some(Unelectable::Learner) => listed.is_some_and(|l| l.learner),
    };
    rule("I11", ends, "a request for a leader ends when the member leads, or cannot lead")
}

/// Returns the entry of a member that stays.
fn electable<'a>(seen: &Observed, etcd: &'a Membership, member: &str) -> Option<&'a Listed> {
    let spec = seen.members.iter().find(|m| m.name() == member).map(|m| &m.object.spec)?;
    if spec.leaving.is_some() || spec.removed.is_some() { None } else { listed_as(seen, etcd, member) }
}

fn requested(seen: &Observed) -> Option<&str> {
    meta::annotation(&seen.cluster.metadata, key::MOVE_LEADER)
}
