//! Which member Holdfast replaces, on which evidence, and when.
//!
//! Decides the limits: the quorum first (I1), then one member an hour, and no member while two members show the same evidence at
//! the same time (I29). A person's request waits for the quorum alone. A member that is slow, restarts, or is silent is never
//! replaced. `shrink.rs` removes the member, and `grow.rs` adds the next one. `member/evidence.rs` collects the evidence.

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::key;
use holdfast_api::member::{Birth, Departure, Leaving};
use holdfast_api::repair::{Evidence, Loss, Replaced};
use jiff::{SignedDuration, Timestamp};

use super::health::{in_doubt, voters};
use super::intervals::POLL;
use super::recorded::recorded_evidence;
use super::{Listed, Member, Membership, Observed, diverged, grow, health, roll, stuck, successor};
use holdfast_base::objects::budget::quorum;
use holdfast_base::{Act, Next, Target, Wake, meta};

/// Pause between two members that are replaced on evidence, so that a person can stop a fault that destroys one volume after
/// another.
const ONE_IN: SignedDuration = SignedDuration::from_hours(1);

/// The same evidence on two members within this time has one cause, such as a bad image or storage class.
const COMMON_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// Reason to replace a member.
#[derive(Clone, Debug, PartialEq)]
enum Cause {
    /// etcd does not list the member any more, so Holdfast removes nothing from etcd.
    NotListed,
    /// A person requests the replacement, or has changed the template of a member in memory.
    Requested,
    /// The member's data is lost.
    Lost(Evidence),
}

/// Returns the evidence that a member's data is lost: etcd's CORRUPT alarm, else the evidence in the member's status. While the
/// member's alarm is raised no other evidence lets the member go (I3).
pub(super) fn evidence(seen: &Observed, member: &Member, now: Timestamp) -> Option<Evidence> {
    diverged::evidence(seen, member, now).or_else(|| recorded_evidence(member).cloned())
}

/// Whether there is evidence that the member's data is lost.
pub(super) fn is_lost(seen: &Observed, member: &Member) -> bool {
    recorded_evidence(member).is_some() || diverged::is_diverged(seen, member)
}

/// Returns the next step towards a replacement, or its wait; `None` when there is no member to replace. `beside`: another member
/// waits to leave, and may wait for this replacement.
pub(super) fn next(seen: &Observed, etcd: &Membership, beside: bool, now: Timestamp) -> Option<Next> {
    if beside {
        return next_beside(seen, etcd, now);
    }
    start(seen, etcd, now).or_else(|| waiting(seen, etcd, now))
}

/// Returns the replacement of the first member without a wait.
fn start(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let (member, cause) =
        causes(seen, etcd, now).into_iter().find(|(m, cause)| hold(seen, etcd, (m, cause), now).is_none())?;
    let latches = seen.latches();
    if let Cause::Lost(evidence) = &cause
        && latches.replaced.as_ref().is_none_or(|known| known.member != member.name())
    {
        let replaced = Replaced { member: member.name().to_owned(), evidence: evidence.clone(), at: now.to_string() };
        let again = stuck::joins(seen, etcd, member).then(|| stuck::lost_again(seen, member, now));
        let given_up = again.or(latches.given_up.clone());
        let latches = Latches { pending_member: Some(seen.next_name()), replaced: Some(replaced), given_up, ..latches };
        return Some(Next::act(Act::Latch(Box::new(latches))));
    }
    let (why, evidence) = match cause {
        Cause::NotListed => (Departure::NotListed, None),
        Cause::Requested => (Departure::Requested, None),
        Cause::Lost(evidence) => (Departure::Lost, Some(evidence)),
    };
    let leaving = Leaving { why, evidence, at: now.to_string() };
    Some(Next::act(Act::LatchLeaving { member: Target::from(&member.object.metadata), leaving }))
}

/// Returns the replacement of a lost voter while another member waits to leave.
fn next_beside(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let causes = causes(seen, etcd, now);
    let (member, Cause::Lost(evidence)) = causes.first().filter(|_| leaves(seen))? else { return None };
    let listed = seen.listed(etcd, member.name()).filter(|_| !seen.cluster.spec.repairs_itself());
    if let Some(listed) = listed {
        let message = format!(
            "{}: {}. Another member waits to leave meanwhile, and spec.repair.mode is Manual. Remove this one from etcd, in any \
             other member's Pod: etcdctl member remove {:x}",
            member.name(),
            evidence.describe(),
            listed.id
        );
        return Some(Next::wait(Reason::Replacing, message, POLL));
    }
    start(seen, etcd, now).or_else(|| waiting(seen, etcd, now))
}

/// Whether a member leaves and etcd has not removed that member yet.
fn leaves(seen: &Observed) -> bool {
    seen.members.iter().any(|m| !m.stays() && !m.removed())
}

/// Returns the wait of a replacement that may not start yet.
fn waiting(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let causes = causes(seen, etcd, now);
    causes.iter().find_map(|(member, cause)| hold(seen, etcd, (member, cause), now))
}

/// Returns the members to replace, the most certain first.
fn causes<'a>(seen: &'a Observed, etcd: &Membership, now: Timestamp) -> Vec<(&'a Member, Cause)> {
    let asked = meta::annotation(&seen.cluster.metadata, key::REPLACE);
    // I11: beside a member that leaves, only a lost member goes, and beside a lost member none goes.
    let beside = leaves(seen);
    if seen.members.iter().any(|m| !m.stays() && !m.removed() && m.object.spec.is_lost()) {
        return vec![];
    }
    let cause = |member: &'a Member| {
        let unlisted = member.joined() && seen.listed(etcd, member.name()).is_none();
        match evidence(seen, member, now) {
            _ if unlisted && seen.cluster.spec.repairs_itself() => Some(Cause::NotListed),
            _ if !beside
                && (member.deleting() || asked == Some(member.name()) || roll::wants_replacement(seen, member)) =>
            {
                Some(Cause::Requested)
            }
            Some(evidence) if !unlisted => Some(Cause::Lost(evidence)),
            _ => None,
        }
    };
    // A seed that never joined is no member of this cluster.
    let counts = |m: &&Member| m.joined() || m.object.spec.role == Birth::Joiner;
    let mut all: Vec<_> = seen.staying().filter(counts).filter_map(|m| Some((m, cause(m)?))).collect();
    let decided = seen.latches().replaced.map(|last| last.member);
    let order = |(member, cause): &(&Member, Cause)| match cause {
        Cause::NotListed => (0, None),
        // A latched replacement comes before a request that a person makes meanwhile.
        Cause::Lost(_) if decided.as_deref() == Some(member.name()) => (1, None),
        Cause::Requested => (2, None),
        Cause::Lost(evidence) => (3, evidence.since()),
    };
    all.sort_by_key(order);
    all
}

/// Whether a replacement is in flight: a learner waits for its promotion, or a missing member can be created now (I11).
fn in_flight(seen: &Observed, etcd: &Membership, now: Timestamp) -> bool {
    // A learner whose data is lost is never promoted.
    let comes = |l: &Listed| l.learner && !seen.standing_for(l).is_some_and(|m| is_lost(seen, m));
    etcd.members.iter().any(comes) || grow::proceeds(seen, etcd, now)
}

/// Returns the wait of a replacement that may not start now.
fn hold(seen: &Observed, etcd: &Membership, (member, cause): (&Member, &Cause), now: Timestamp) -> Option<Next> {
    let voter = seen.listed(etcd, member.name()).filter(|l| !l.learner);
    if let Cause::Lost(evidence) = cause
        && let Some(held) = limited(seen, etcd, (member, evidence), now)
    {
        return Some(held);
    }
    // I3: the remaining members may be the corrupt ones, unless the alarm names this member, or this member is a learner.
    let sure =
        matches!(cause, Cause::Lost(evidence) if evidence.kind == Loss::Diverged) || stuck::joins(seen, etcd, member);
    if let Some(doubt) = in_doubt(etcd).filter(|_| !sure) {
        return Some(doubt);
    }
    // Removing a learner costs no vote, and the other members may wait for its removal.
    if voter.is_some() && in_flight(seen, etcd, now) {
        let message = format!("Holdfast replaces {} when no other member joins", member.name());
        return Some(Next::wait(Reason::Replacing, message, Wake::AfterMillis(1_000)));
    }
    // The next member gets the same Pod under another name.
    let refused = || successor::hold(seen, member).filter(|_| *cause == Cause::Requested);
    voter.and_then(|voter| beside_too_few(seen, etcd, (member, cause), voter).or_else(refused))
}

/// Returns the limit of a replacement on evidence alone.
fn limited(
    seen: &Observed,
    etcd: &Membership,
    (member, evidence): (&Member, &Evidence),
    now: Timestamp,
) -> Option<Next> {
    let latched = seen.latches().replaced;
    let name = member.name();
    let replacing = |message: String, wake| Some(Next::wait(Reason::Replacing, message, wake));
    // The status records new evidence first.
    let new = evidence.kind == Loss::Diverged && diverged::known(seen, member).is_none();
    if latched.as_ref().is_some_and(|known| known.member == name) {
        return if new {
            replacing(format!("{name}: {}", evidence.describe()), Wake::AfterMillis(1_000))
        } else {
            None
        };
    }
    let votes = seen.listed(etcd, name).is_none_or(|l| !l.learner) || evidence.kind != Loss::MemoryGone;
    if !seen.cluster.spec.repairs_itself() || (votes && voters(etcd) < 2) {
        // The EtcdMember's condition names the remedy.
        return replacing(format!("{name}: {}", evidence.describe()), POLL);
    }
    // The data in a Pod's memory is gone for certain, and there is no volume to save.
    if evidence.kind == Loss::MemoryGone {
        return None;
    }
    let since = evidence.since()?;
    if let Some(other) = common(seen, (member, evidence), since, now) {
        let message = format!(
            "{name}: {}, and the same evidence on {other} within 10 minutes: the cause may be common. Holdfast waits. Check \
             image, StorageClass and nodes; then replace one: kubectl annotate etcdc {} --overwrite {}={name}",
            evidence.describe(),
            meta::name(&seen.cluster.metadata),
            key::REPLACE
        );
        return Some(Next::wait(Reason::ReplacementHeld, message, POLL));
    }
    let due = since + seen.cluster.spec.repair().after();
    // A Pod that ended because of a drained node does not cost an hour.
    let paced = latched.filter(|known| known.evidence.kind != Loss::MemoryGone);
    let next = paced.and_then(|known| known.at.parse::<Timestamp>().ok()).map(|at| at + ONE_IN);
    let from = next.map_or(due, |next| next.max(due));
    if let Some(later) = Wake::at(from, now).or(new.then_some(Wake::AfterMillis(1_000))) {
        return replacing(format!("{name}: {}. Holdfast replaces the member at {from}", evidence.describe()), later);
    }
    None
}

/// Returns another member that shows the same evidence at the same time, or was just replaced for it.
fn common(seen: &Observed, (member, own): (&Member, &Evidence), since: Timestamp, now: Timestamp) -> Option<String> {
    let same = |other: &Evidence| {
        let apart = other.since().map(|at| at.duration_since(since).abs());
        other.kind == own.kind && apart.is_some_and(|apart| apart <= COMMON_WITHIN)
    };
    // A member that was replaced on request shows its evidence for as long as its claim is kept.
    let has_evidence = |m: &&Member| {
        let gone = || m.object.status.as_ref().and_then(|status| status.evidence.clone());
        if m.stays() { evidence(seen, m, now) } else { gone() }.is_some_and(|other| same(&other))
    };
    let others = seen.members.iter().filter(|m| m.name() != member.name());
    let found = others.filter(has_evidence).map(|m| m.name().to_owned()).next();
    found.or_else(|| seen.latches().replaced.filter(|known| same(&known.evidence)).map(|known| known.member))
}

/// Returns the wait for a quorum (I1). To replace a voter that serves, all other members have to be well: the next member
/// comes afterwards.
fn beside_too_few(
    seen: &Observed,
    etcd: &Membership,
    (member, cause): (&Member, &Cause),
    voter: &Listed,
) -> Option<Next> {
    let (healthy, rest) = health::without(seen, etcd, voter);
    let serves = seen.known_answer(member.name()).is_some();
    let staying = seen.staying().count();
    let whole = healthy == rest && etcd.members.iter().all(|l| !l.learner) && wanted_at_most(seen, staying);
    let spared = match cause {
        // Another voter has to come first.
        Cause::Requested if rest == 0 => serves,
        Cause::Requested if serves => whole && health::can_spare(seen, etcd, voter),
        // The Pod ends while etcd still counts its vote.
        Cause::Lost(_) if serves => healthy >= quorum(rest + 1),
        _ => health::can_spare(seen, etcd, voter),
    };
    let message = format!(
        "Holdfast replaces {} when enough of the other {rest} voters are healthy: {healthy} are. Bring the silent voters back",
        member.name()
    );
    (!spared).then(|| Next::wait(Reason::Replacing, message, Wake::AfterMillis(1_000)))
}

/// Whether the spec asks for at most this many members.
fn wanted_at_most(seen: &Observed, there: usize) -> bool {
    usize::try_from(seen.cluster.spec.replicas).is_ok_and(|wanted| wanted <= there)
}
