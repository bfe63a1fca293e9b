//! Which member another one replaces, on which evidence, and when.
//!
//! Decides the limits: the quorum first (I1), then one member an hour, and no member while two members show the same evidence at the
//! same time (I29). A request of a person waits for the quorum alone. A member that is slow, restarts, or is silent is never replaced.
//! `shrink.rs` removes the member, and `grow.rs` makes the next one. Evidence is collected in `member/evidence.rs`.

use jiff::{SignedDuration, Timestamp};

use super::health::{in_doubt, voters};
use super::pace::POLL;
use super::{Listed, Member, Membership, Observed, diverged, grow, stuck};
use crate::api::cluster::Latches;
use crate::api::condition::Reason;
use crate::api::key;
use crate::api::member::{Birth, Departure, Leaving};
use crate::api::repair::{Evidence, Loss, Replaced};
use crate::plan::build::budget::quorum;
use crate::plan::{Act, Next, Target, Wake, meta, pods};

/// Between two members that are replaced on evidence: what destroys volumes one after the other is stopped by a person.
const ONE_IN: SignedDuration = SignedDuration::from_hours(1);

/// The same evidence on two members within this time has one cause, such as a bad image or storage class.
const COMMON_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// Why a member is to be replaced.
#[derive(Clone, Debug, PartialEq)]
enum Cause {
    /// etcd lists the member no more, for good: nothing is removed.
    NotListed,
    /// A person asks for it.
    Requested,
    /// Its data are lost.
    Lost(Evidence),
}

/// The evidence that a member's data are lost, where nothing that is there speaks against it: etcd's, or its own. While its
/// alarm stands no other evidence lets it go (I3).
pub(super) fn evidence(seen: &Observed, member: &Member, now: Timestamp) -> Option<Evidence> {
    diverged::evidence(seen, member, now).or_else(|| told(member).cloned())
}

/// Whether there is such evidence.
pub(super) fn is_lost(seen: &Observed, member: &Member) -> bool {
    told(member).is_some() || diverged::is_diverged(seen, member)
}

/// The evidence that a member's own pass has written down.
pub(super) fn told(member: &Member) -> Option<&Evidence> {
    let told = member.object.status.as_ref()?.evidence.as_ref()?;
    if !member.joined() && told.kind != Loss::MemoryGone {
        return None;
    }
    let holds = match told.kind {
        Loss::ClaimGone => member.claim.is_none(),
        Loss::VolumeRefused | Loss::DataCorrupt => !member.live_pod().is_some_and(pods::ready),
        Loss::MemoryGone => !member.pod.as_ref().is_some_and(|pod| pods::runs(pod) && !pods::ended(pod)),
        Loss::Diverged => false,
    };
    holds.then_some(told)
}

/// The next step towards a replacement, or its wait; `None` when no member is to be replaced. `beside`: another member waits to
/// leave, and may wait for this.
pub(super) fn next(seen: &Observed, etcd: &Membership, beside: bool, now: Timestamp) -> Option<Next> {
    if beside {
        return next_beside(seen, etcd, now);
    }
    start(seen, etcd, now).or_else(|| waiting(seen, etcd, now))
}

/// The replacement of a member that nothing holds up.
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
    Some(Next::act(Act::LatchLeaving { member: Target::of(&member.object.metadata), leaving }))
}

/// The replacement of a lost voter while another member waits to leave.
fn next_beside(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let causes = causes(seen, etcd, now);
    let (member, Cause::Lost(evidence)) = causes.first().filter(|_| leaves(seen))? else { return None };
    let listed = seen.listed(etcd, member.name()).filter(|_| !seen.cluster.spec.repairs_itself());
    if let Some(listed) = listed {
        let message = format!(
            "{}: {}. Another member waits to leave meanwhile, and spec.repair.mode is Manual. Remove this one from etcd, in any \
             other member's Pod: etcdctl member remove {:x}",
            member.name(),
            evidence.told(),
            listed.id
        );
        return Some(Next::wait(Reason::Replacing, message, POLL));
    }
    start(seen, etcd, now).or_else(|| waiting(seen, etcd, now))
}

/// Whether a member is on its way out.
fn leaves(seen: &Observed) -> bool {
    seen.members.iter().any(|m| !m.stays() && !m.removed())
}

/// What a replacement that does not come yet waits for.
fn waiting(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let causes = causes(seen, etcd, now);
    causes.iter().find_map(|(member, cause)| hold(seen, etcd, (member, cause), now))
}

/// Members that are to be replaced, the most certain first.
fn causes<'a>(seen: &'a Observed, etcd: &Membership, now: Timestamp) -> Vec<(&'a Member, Cause)> {
    let asked = meta::annotation(&seen.cluster.metadata, key::REPLACE);
    // I11: beside a member that leaves only a lost one goes, and beside a lost one none.
    let beside = leaves(seen);
    if seen.members.iter().any(|m| !m.stays() && !m.removed() && m.object.spec.is_lost()) {
        return vec![];
    }
    let cause = |member: &'a Member| {
        let unlisted = member.joined() && seen.listed(etcd, member.name()).is_none();
        match evidence(seen, member, now) {
            _ if unlisted && seen.cluster.spec.repairs_itself() => Some(Cause::NotListed),
            _ if !beside && (member.deleting() || asked == Some(member.name())) => Some(Cause::Requested),
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
        // What is decided comes before what a person asks for meanwhile.
        Cause::Lost(_) if decided.as_deref() == Some(member.name()) => (1, None),
        Cause::Requested => (2, None),
        Cause::Lost(evidence) => (3, evidence.since()),
    };
    all.sort_by_key(order);
    all
}

/// Whether a replacement is in flight already: a member is on its way to its vote, or is wanted and can be made now (I11).
fn in_flight(seen: &Observed, etcd: &Membership, now: Timestamp) -> bool {
    // A learner whose data are lost never gets its vote.
    let comes = |l: &Listed| l.learner && !seen.standing_for(l).is_some_and(|m| is_lost(seen, m));
    etcd.members.iter().any(comes) || grow::proceeds(seen, etcd, now)
}

/// Why a member is not replaced now.
fn hold(seen: &Observed, etcd: &Membership, (member, cause): (&Member, &Cause), now: Timestamp) -> Option<Next> {
    let voter = seen.listed(etcd, member.name()).filter(|l| !l.learner);
    if let Cause::Lost(evidence) = cause
        && let Some(held) = limited(seen, etcd, (member, evidence), now)
    {
        return Some(held);
    }
    // I3: the members that are left may be the corrupt ones, unless the alarm speaks of this one, or it never had a vote.
    let sure =
        matches!(cause, Cause::Lost(evidence) if evidence.kind == Loss::Diverged) || stuck::joins(seen, etcd, member);
    if let Some(doubt) = in_doubt(etcd).filter(|_| !sure) {
        return Some(doubt);
    }
    // A learner takes no vote with it, and may be what the others wait for.
    if voter.is_some() && in_flight(seen, etcd, now) {
        let message = format!("Holdfast replaces {} when no other member joins", member.name());
        return Some(Next::wait(Reason::Replacing, message, Wake::AfterMillis(1_000)));
    }
    voter.and_then(|voter| beside_too_few(seen, etcd, (member, cause), voter))
}

/// The limits of replacements that nobody has asked for.
fn limited(
    seen: &Observed,
    etcd: &Membership,
    (member, evidence): (&Member, &Evidence),
    now: Timestamp,
) -> Option<Next> {
    let latched = seen.latches().replaced;
    let name = member.name();
    let replacing = |message: String, wake| Some(Next::wait(Reason::Replacing, message, wake));
    // The status has it first.
    let new = evidence.kind == Loss::Diverged && diverged::known(seen, member).is_none();
    if latched.as_ref().is_some_and(|known| known.member == name) {
        return if new { replacing(format!("{name}: {}", evidence.told()), Wake::AfterMillis(1_000)) } else { None };
    }
    let votes = seen.listed(etcd, name).is_none_or(|l| !l.learner) || evidence.kind != Loss::MemoryGone;
    if !seen.cluster.spec.repairs_itself() || (votes && voters(etcd) < 2) {
        // The EtcdMember's condition names the remedy.
        return replacing(format!("{name}: {}", evidence.told()), POLL);
    }
    // The data in a Pod's memory are gone for certain, and with nothing to be saved.
    if evidence.kind == Loss::MemoryGone {
        return None;
    }
    let since = evidence.since()?;
    if let Some(other) = common(seen, (member, evidence), since, now) {
        let message = format!(
            "{name}: {}, and the same evidence on {other} within 10 minutes: the cause may be common. Holdfast waits. Check \
             image, StorageClass and nodes; then replace one: kubectl annotate etcdc {} --overwrite {}={name}",
            evidence.told(),
            meta::name(&seen.cluster.metadata),
            key::REPLACE
        );
        return Some(Next::wait(Reason::ReplacementHeld, message, POLL));
    }
    let due = since + seen.cluster.spec.repair().after();
    // A drained node's Pod is no reason to wait for an hour.
    let paced = latched.filter(|known| known.evidence.kind != Loss::MemoryGone);
    let next = paced.and_then(|known| known.at.parse::<Timestamp>().ok()).map(|at| at + ONE_IN);
    let from = next.map_or(due, |next| next.max(due));
    if let Some(later) = Wake::at(from, now).or(new.then_some(Wake::AfterMillis(1_000))) {
        return replacing(format!("{name}: {}. Holdfast replaces the member at {from}", evidence.told()), later);
    }
    None
}

/// Another member that shows the same evidence at the same time, or was just replaced for it.
fn common(seen: &Observed, (member, own): (&Member, &Evidence), since: Timestamp, now: Timestamp) -> Option<String> {
    let same = |other: &Evidence| {
        let apart = other.since().map(|at| at.duration_since(since).abs());
        other.kind == own.kind && apart.is_some_and(|apart| apart <= COMMON_WITHIN)
    };
    // One that was replaced on request tells the same for as long as its claim is kept.
    let told = |m: &&Member| {
        let gone = || m.object.status.as_ref().and_then(|status| status.evidence.clone());
        if m.stays() { evidence(seen, m, now) } else { gone() }.is_some_and(|other| same(&other))
    };
    let others = seen.members.iter().filter(|m| m.name() != member.name());
    let found = others.filter(told).map(|m| m.name().to_owned()).next();
    found.or_else(|| seen.latches().replaced.filter(|known| same(&known.evidence)).map(|known| known.member))
}

/// The wait for a quorum (I1). Of a voter that serves the whole rest has to be well: the next member comes afterwards.
fn beside_too_few(
    seen: &Observed,
    etcd: &Membership,
    (member, cause): (&Member, &Cause),
    voter: &Listed,
) -> Option<Next> {
    let (healthy, rest) = seen.without(etcd, voter);
    let serves = seen.answers.get(member.name()).is_some_and(|said| said.known().is_some());
    let staying = seen.staying().count();
    let whole = healthy == rest && etcd.members.iter().all(|l| !l.learner) && seen.wanted_at_most(staying);
    let spared = match cause {
        // Another voter comes first.
        Cause::Requested if rest == 0 => serves,
        Cause::Requested if serves => whole && seen.can_spare(etcd, voter),
        // Its Pod ends while it still counts.
        Cause::Lost(_) if serves => healthy >= quorum(rest + 1),
        _ => seen.can_spare(etcd, voter),
    };
    let message = format!(
        "Holdfast replaces {} when enough of the other {rest} voters are healthy: {healthy} are. Bring the silent voters back",
        member.name()
    );
    (!spared).then(|| Next::wait(Reason::Replacing, message, Wake::AfterMillis(1_000)))
}

impl Observed {
    /// The name of the member that comes next: the latched one, where no member has it.
    pub(super) fn next_name(&self) -> String {
        let free = |name: &String| self.members.iter().all(|m| m.name() != name);
        self.latches().pending_member.filter(free).unwrap_or_else(|| self.fresh_name())
    }

    /// Whether no more members are wanted than these.
    fn wanted_at_most(&self, there: usize) -> bool {
        usize::try_from(self.cluster.spec.replicas).is_ok_and(|wanted| wanted <= there)
    }
}
