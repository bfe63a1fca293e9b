//! Members that join and do not get their vote.
//!
//! Decides when Holdfast gives up such a member, and the pause before the next one: twice as long each time, at most an hour.
//! Voters stay. After half of the time the member's own pass creates its Pod again, once (`member/pod.rs`).

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::member::{Birth, Departure, Leaving};
use holdfast_api::repair::GivenUp;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Member, Membership, Observed};
use holdfast_base::pods::JOINS_WITHIN;
use holdfast_base::{Act, Next, Target, Wake};

/// The longest pause before the next member.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);

/// Returns the removal of a member that has joined for too long, also while an alarm is raised: the member has no vote (I3).
pub(super) fn next(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let member = seen.staying().find(|m| joins(seen, etcd, m) && is_late(m, now))?;
    let latches = seen.latches();
    let before = latches.given_up.as_ref();
    if before.is_none_or(|last| last.member != member.name()) {
        let count = before.map_or(0, |last| last.count).saturating_add(1);
        let given_up = Some(given_up(member, count, now));
        let latches = Latches { pending_member: Some(seen.next_name()), given_up, ..latches };
        return Some(Next::act(Act::Latch(Box::new(latches))));
    }
    let leaving = Leaving { why: Departure::NeverPromoted, evidence: None, at: now.to_string() };
    Some(Next::act(Act::LatchLeaving { member: Target::from(&member.object.metadata), leaving }))
}

fn given_up(member: &Member, count: u32, now: Timestamp) -> GivenUp {
    GivenUp { member: member.name().to_owned(), count, at: now.to_string() }
}

/// Returns the latch for a learner that lost the data in its Pod's memory. Holdfast replaces the first such learner at once. After
/// several in a row, as with a Pod that is evicted each time, the next learner waits.
pub(super) fn lost_again(seen: &Observed, member: &Member, now: Timestamp) -> GivenUp {
    given_up(member, seen.latches().given_up.map_or(0, |last| last.count.saturating_add(1)), now)
}

/// Returns the wait before the next member is created.
pub(super) fn paused(seen: &Observed, now: Timestamp) -> Option<Next> {
    let last = seen.latches().given_up.filter(|last| last.count > 0)?;
    let at: Timestamp = last.at.parse().ok()?;
    let from = at + (JOINS_WITHIN * (1 << last.count.saturating_sub(1).min(3))).min(LONGEST);
    let later = Wake::at(from, now)?;
    let message = format!(
        "{} did not get its vote in time (members given up in a row: {}). Holdfast makes the next one at {from}. Check the \
         Pods' events, the nodes, the StorageClass and the network",
        last.member, last.count
    );
    Some(Next::wait(Reason::JoinerStuck, message, later))
}

/// Whether a member has no vote yet.
pub(super) fn joins(seen: &Observed, etcd: &Membership, member: &Member) -> bool {
    let listed = seen.listed(etcd, member.name());
    member.object.spec.role == Birth::Joiner && listed.map_or(!member.joined(), |listed| listed.learner)
}

/// Whether the member has had its time twice, and its latest Pod once. A member without a Pod waits for another act, and is not
/// late.
fn is_late(member: &Member, now: Timestamp) -> bool {
    let older = |meta: &ObjectMeta, than| meta.creation_timestamp.as_ref().is_some_and(|at| now >= at.0 + than);
    older(&member.object.metadata, JOINS_WITHIN * 2)
        && member.pod.as_ref().is_some_and(|pod| older(&pod.metadata, JOINS_WITHIN))
}
