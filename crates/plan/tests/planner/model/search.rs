//! The search: every state that some order of steps reaches, shortest histories first, and from each state the way to rest.
//!
//! Decides the possible steps. A fingerprint of 64 bits identifies a state.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use holdfast_api::condition::Reason;

use super::bugs::Bug;
use super::facts::{BAD, Breach, Facts, Luck, SLOTS, Slot};
use super::passes::{Decision, Planner};
use super::requests::Way;
use super::sight::{Kube, MemberSight, Part, Sight};
use super::walk::history;

/// A hash of small numbers that is fast without compiler optimisation too.
#[derive(Default)]
pub struct Mix(u64);

pub type Mixed = BuildHasherDefault<Mix>;

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }
}

fn fingerprint(facts: &Facts) -> u64 {
    let mut hasher = Mix::default();
    facts.hash(&mut hasher);
    hasher.finish()
}

/// The predecessor of each state.
type Origins = HashMap<u64, (u64, Option<Step>), Mixed>;

/// One step of a person, of etcd, of kubelet, of the operator, or of bad luck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A person edits `spec.replicas`.
    Scale(u8),
    /// A person edits the template.
    Edit(u8),
    Crash(u8),
    EndPod(u8),
    Cut(u8),
    Heal,
    Wipe(u8),
    /// The member's pass records the loss of its data.
    Notice(u8),
    /// A client's write; one connected voter may lack it.
    Write(Option<u8>),
    /// Clients fill the database up to its quota.
    Fill,
    /// A person deletes keys and compacts.
    Compact,
    /// etcd has rewritten a member's file; `false`: the operator crashed before it let clients in.
    Freed(u8, bool),
    CatchUp(u8),
    Boot(u8),
    Clear(u8),
    /// A whole pass. A lost answer changes nothing, because the operator remembers nothing between passes.
    Pass,
    MemberPass(u8),
    /// A pass reads Kubernetes, and pauses for long.
    Begin,
    /// The paused pass reads etcd and acts.
    Finish,
    /// A pass sends its request, and the operator crashes.
    Send,
    MemberSend(u8),
    /// The request arrives.
    Deliver,
}

/// A broken rule, and the steps that led to it.
#[derive(Debug)]
pub struct Found {
    pub breach: Breach,
    pub history: String,
}

/// A breach on the way to rest, and its history.
pub(super) type Unrest = (Breach, String);

/// Extent of a search.
#[derive(Debug, Default)]
pub struct Searched {
    pub states: usize,
    pub steps: usize,
    pub depth: usize,
    /// Whether the search looked at every reachable state.
    pub whole: bool,
    /// States for which the model has too few members.
    pub too_small: usize,
    /// The ends of the ways to rest, with the number of each.
    pub ends: BTreeMap<String, usize>,
}

/// The real plans in the model, with one bug or none.
#[derive(Default)]
pub struct Model {
    pub planner: Planner,
    pub bug: Option<Bug>,
    /// States from which the world comes to rest.
    rests: HashSet<u64, Mixed>,
}

impl Model {
    pub fn with(bug: Option<Bug>) -> Self {
        Self { bug, ..Self::default() }
    }

    pub(super) fn decide(&mut self, facts: &Facts, kube: Kube) -> Decision {
        let mut sight = Sight::of(facts, kube);
        let Some(bug) = self.bug else { return self.planner.cluster(sight) };
        bug.lies(&mut sight);
        let order = self.planner.cluster(sight.clone()).order;
        Decision { order: bug.twists(&sight, order), waits: None, refused: None }
    }

    pub(super) fn decide_member(&mut self, facts: &Facts, n: u8) -> Option<Decision> {
        facts.at(n).object?;
        let part = Part::of(facts, n);
        let sight = MemberSight { n, part, replicas: facts.replicas };
        let decision = self.planner.member(sight);
        Some(match self.bug {
            None => decision,
            Some(bug) => Decision { order: bug.twists_member(&sight, decision.order), waits: None, refused: None },
        })
    }

    /// The state after a step; `None` where the step changes nothing or is impossible.
    pub(super) fn after(&mut self, facts: &Facts, step: Step) -> Result<Option<Facts>, Breach> {
        let mut next = facts.clone();
        let luck = &mut next.luck;
        let spend = |left: &mut u8| left.checked_sub(1).map(|rest| *left = rest).is_some();
        let done = match step {
            Step::Scale(replicas) => {
                spend(&mut luck.edits) && std::mem::replace(&mut next.replicas, replicas) != replicas
            }
            Step::Edit(template) => {
                spend(&mut luck.rolls) && std::mem::replace(&mut next.template, template) != template
            }
            Step::Crash(n) => spend(&mut luck.crashes) && next.crash(n),
            Step::EndPod(n) => spend(&mut luck.crashes) && next.delete_pod(n),
            Step::Cut(n) => {
                let serves = facts.cut.is_none() && facts.votes(n) && facts.connected(n);
                next.cut = Some(n);
                serves && spend(&mut next.luck.cuts)
            }
            Step::Heal => next.cut.take().is_some(),
            Step::Wipe(n) => spend(&mut luck.wipes) && next.wipe(n),
            Step::Notice(n) => next.notice(n),
            Step::Write(lags) => spend(&mut luck.writes) && next.write(lags),
            Step::Fill => spend(&mut luck.fills) && next.fill(),
            Step::Compact => next.compact(),
            Step::Freed(n, true) => next.free(n, true),
            Step::Freed(n, false) => spend(&mut luck.crashes) && next.free(n, false),
            Step::CatchUp(n) => next.catch_up(n),
            Step::Boot(n) => next.boot(n)?,
            Step::Clear(n) => next.clear(n),
            Step::Pass => {
                let kube = Kube::of(facts);
                let decision = self.decide(facts, kube.clone());
                act(&mut next, decision, &kube, Way::Direct)?
            }
            Step::MemberPass(n) => {
                let Some(decision) = self.decide_member(facts, n) else { return Ok(None) };
                act(&mut next, decision, &Kube::of(facts), Way::Direct)?
            }
            Step::Begin => {
                next.begun = Some(Box::new(Kube::of(facts)));
                facts.begun.is_none() && spend(&mut next.luck.stale)
            }
            Step::Finish => {
                let Some(kube) = next.begun.take() else { return Ok(None) };
                let decision = self.decide(facts, (*kube).clone());
                act(&mut next, decision, &kube, Way::Late)?;
                true
            }
            Step::Send | Step::MemberSend(_) => {
                if facts.late.is_some() || !spend(&mut luck.late) {
                    return Ok(None);
                }
                let kube = Kube::of(facts);
                let decision = match step {
                    Step::MemberSend(n) => self.decide_member(facts, n),
                    _ => Some(self.decide(facts, kube.clone())),
                };
                next.late = decision.and_then(|d| d.order).map(|order| kube.request(order));
                next.late.is_some()
            }
            Step::Deliver => match next.late.take() {
                Some(request) => {
                    next.perform(request, Way::Late)?;
                    true
                }
                None => false,
            },
        };
        if !done {
            return Ok(None);
        }
        next.settle()?;
        Ok((next != *facts).then_some(next))
    }

    /// Searches the states that these reach, at most `most` of them.
    pub fn search(&mut self, starts: &[Facts], sizes: &[u8], most: usize) -> Result<Searched, Found> {
        let mut searched = Searched { whole: true, ..Searched::default() };
        let (bug, mut known) = (self.bug, Origins::default());
        let mut front: Vec<Facts> = starts.to_vec();
        for start in starts {
            known.insert(fingerprint(start), (0, None));
        }
        while !front.is_empty() {
            searched.depth += 1;
            let mut beyond = vec![];
            for facts in front {
                let from = fingerprint(&facts);
                searched.states += 1;
                // An operator with a mistake need not come to rest.
                let rests = if self.bug.is_none() { self.comes_to_rest(&facts, &mut searched) } else { Ok(()) };
                if let Err((breach, end)) = rests {
                    return Err(Found { breach, history: tell(bug, starts, &known, (from, None)) + &end });
                }
                if usize::from(facts.fresh) >= SLOTS {
                    continue;
                }
                for step in steps(&facts, sizes) {
                    let next = match self.after(&facts, step) {
                        Ok(Some(next)) => next,
                        Ok(None) => continue,
                        Err(breach) => {
                            return Err(Found { breach, history: tell(bug, starts, &known, (from, Some(step))) });
                        }
                    };
                    searched.steps += 1;
                    if known.len() >= most {
                        searched.whole = false;
                        continue;
                    }
                    known.entry(fingerprint(&next)).or_insert_with(|| {
                        beyond.push(next);
                        (from, Some(step))
                    });
                }
            }
            front = beyond;
        }
        Ok(searched)
    }

    /// Checks that the world comes to rest as its spec demands, or reports why not, once bad luck ends and every actor works in
    /// turn.
    pub(super) fn comes_to_rest(&mut self, facts: &Facts, searched: &mut Searched) -> Result<(), Unrest> {
        let mut now = facts.clone();
        now.luck = Luck::default();
        let mut way = vec![];
        for _ in 0..PATIENCE {
            if usize::from(now.fresh) >= SLOTS {
                searched.too_small += 1;
                return Ok(());
            }
            let here = fingerprint(&now);
            if self.rests.contains(&here) {
                self.rests.extend(way);
                return Ok(());
            }
            way.push(here);
            let before = now.clone();
            for step in everybody(&now) {
                let next = self
                    .after(&now, step)
                    .map_err(|breach| (breach, format!("\nthen, without any more bad luck: {step:?} in {now:#?}")))?;
                now = next.unwrap_or(now);
            }
            if now == before {
                let kube = Kube::of(&now);
                let waits = self.decide(&now, kube).waits;
                let end =
                    rest(&now, waits).map_err(|breach| (breach, format!("\nand rests: {waits:?} in {now:#?}")))?;
                *searched.ends.entry(end).or_default() += 1;
                self.rests.extend(way);
                return Ok(());
            }
        }
        Err((("liveness", "the world does not come to rest"), format!("{now:#?}")))
    }
}

/// Rounds in which every actor works once: more than any world needs.
const PATIENCE: usize = 200;

/// The steps of one round without bad luck.
pub(super) fn everybody(facts: &Facts) -> Vec<Step> {
    let mut steps = vec![Step::Deliver, Step::Finish, Step::Heal];
    for n in Facts::numbers().take_while(|n| *n <= facts.fresh) {
        steps.extend(facts.is_still(n).then_some(Step::Freed(n, true)));
        steps.extend([Step::Clear(n), Step::Boot(n), Step::CatchUp(n), Step::Notice(n), Step::MemberPass(n)]);
    }
    steps.push(Step::Pass);
    steps
}

/// The state in which a world came to rest.
fn rest(facts: &Facts, waits: Option<Reason>) -> Result<String, Breach> {
    let members: Vec<u8> = Facts::numbers().filter(|n| facts.at(*n).object.is_some()).collect();
    let whole = members.len() == usize::from(facts.replicas);
    let listed = facts.listed() == members.iter().map(|n| 1 << n).sum::<u8>();
    // A claim has no owner, so that no garbage collector deletes data by mistake. A claim that a crashed operator's late request
    // made after the end of its member stays, and is empty.
    let left = |s: &&Slot| s.object.is_none() && s.claim.is_some();
    let tidy = facts.slots.iter().filter(left).all(|s| s.claim.is_some_and(|c| c.data.is_none()));
    let with = if facts.slots.iter().any(|s| left(&s)) { ", with an empty claim left" } else { "" };
    // No step of Holdfast brings back a voter without its data; the wait has a reason then.
    let lost = members.iter().any(|n| facts.wiped & (1 << n) != 0 && facts.votes(*n));
    // A latch is ended by reads that need a quorum.
    let halted = lost && facts.leader.is_none();
    if (facts.defragmenting.is_some() && !halted) || facts.still != 0 {
        return Err(("liveness", "a defragmentation never ends"));
    }
    if facts.replicas == 0 && waits.is_none() {
        let parked = members.iter().all(|n| facts.at(*n).object.is_some_and(|o| o.parked.is_some()));
        let still = facts.slots.iter().all(|s| s.pod.is_none());
        return if parked && still && tidy {
            Ok(format!("parked{with}"))
        } else {
            Err(("liveness", "parked is not parked"))
        };
    }
    let serves = |n: &u8| {
        let slot = facts.at(*n);
        let object = slot.object.is_some_and(|o| o.parked.is_none() && !o.leaving && !o.deleting);
        object && facts.votes(*n) && facts.connected(*n) && slot.pod.is_some_and(|p| p.voter && !p.may_start_empty)
    };
    let all_serve = whole && listed && tidy && facts.pending.is_none() && members.iter().all(serves);
    let has = |n: &u8| facts.at(*n).object.zip(facts.at(*n).pod).map(|(o, p)| (o.template, p.template, o.served));
    let rolled = |n: &u8| has(n) == Some((facts.template, facts.template, None));
    if waits.is_none() && all_serve && members.iter().all(rolled) {
        if facts.alarms != 0 {
            let full = facts.needed && members.iter().any(|n| facts.large & (1 << n) != 0);
            return if full { Ok("full".to_owned()) } else { Err(("liveness", "an alarm stays without a full file")) };
        }
        return Ok(format!("complete{with}"));
    }
    let kept = |n: &u8| has(n).is_some_and(|(own, made, served)| own == made && own != BAD && served.is_none());
    if waits == Some(Reason::RolloutStuck) && facts.template == BAD && all_serve && members.iter().all(kept) {
        return Ok("a bad template is held back".to_owned());
    }
    // A member that joins with a template that does not start: no voter is lost, and the next edit corrects it.
    let joins = |n: &u8| facts.at(*n).object.is_some_and(|o| o.joined.is_none() && o.template == BAD);
    if waits.is_some() && facts.template == BAD && members.iter().any(joins) {
        return Ok("a bad template holds a joiner up".to_owned());
    }
    // No object owns a learner that was added late and started beside the last of its member's Pod.
    let stranger = facts.slots.iter().any(|s| s.object.is_none() && s.entry.is_some_and(|e| !e.votes));
    match waits {
        Some(Reason::UnknownMember) if stranger => Ok(Reason::UnknownMember.as_str().to_owned()),
        Some(reason) if lost => Ok(reason.as_str().to_owned()),
        _ => Err(("liveness", "the world rests and is not what is asked for")),
    }
}

/// Carries an order out, if the plan has one and keeps the rules; returns whether there was one.
fn act(next: &mut Facts, decision: Decision, kube: &Kube, way: Way) -> Result<bool, Breach> {
    if let Some(invariant) = decision.refused {
        return Err((invariant, "the plan breaks a rule of safety"));
    }
    let Some(order) = decision.order else { return Ok(false) };
    next.perform(kube.request(order), way)?;
    Ok(true)
}

/// The possible steps.
pub(super) fn steps(facts: &Facts, sizes: &[u8]) -> Vec<Step> {
    let mut steps = vec![Step::Pass, Step::Deliver, Step::Finish, Step::Heal];
    let luck = facts.luck;
    if luck.edits > 0 {
        steps.extend(sizes.iter().copied().map(Step::Scale));
    }
    if luck.rolls > 0 {
        steps.extend((0..=BAD).map(Step::Edit));
    }
    if luck.writes > 0 {
        steps.push(Step::Write(None));
    }
    if luck.fills > 0 {
        steps.push(Step::Fill);
    }
    if facts.needed {
        steps.push(Step::Compact);
    }
    if luck.stale > 0 {
        steps.push(Step::Begin);
    }
    if luck.late > 0 {
        steps.push(Step::Send);
    }
    for n in Facts::numbers().filter(|n| *n <= facts.fresh && usize::from(*n) < SLOTS) {
        if *facts.at(n) == Slot::default() {
            continue;
        }
        steps.extend([Step::MemberPass(n), Step::Boot(n), Step::CatchUp(n), Step::Clear(n), Step::Notice(n)]);
        let times = |left: u8, step: Step| (left > 0).then_some(step);
        steps.extend(times(luck.crashes, Step::Crash(n)));
        steps.extend(times(luck.crashes, Step::EndPod(n)));
        if facts.is_still(n) {
            steps.push(Step::Freed(n, true));
            steps.extend(times(luck.crashes, Step::Freed(n, false)));
        }
        steps.extend(times(luck.cuts, Step::Cut(n)));
        steps.extend(times(luck.wipes, Step::Wipe(n)));
        steps.extend(times(luck.late, Step::MemberSend(n)));
        steps.extend(times(luck.writes, Step::Write(Some(n))));
    }
    steps
}

/// The steps that led to a state, with a last one.
fn tell(bug: Option<Bug>, starts: &[Facts], known: &Origins, (mut at, last): (u64, Option<Step>)) -> String {
    let mut way: Vec<Step> = last.into_iter().collect();
    while let Some((from, Some(step))) = known.get(&at) {
        way.push(*step);
        at = *from;
    }
    way.reverse();
    let start = starts.iter().find(|start| fingerprint(start) == at);
    start.map_or_else(String::new, |start| history(bug, start, &way))
}
