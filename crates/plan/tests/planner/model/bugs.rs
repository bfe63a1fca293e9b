//! Operators with one mistake each, which the search has to find. A mistake falsifies the view of a pass or replaces its order, and
//! no safety rule stops it.
//!
//! Decides the mistake. The table in `model.rs` names the rule that it breaks.

use super::facts::{Facts, Log};
use super::requests::Order;
use super::sight::{File, Heard, List, MemberSight, Part, Sight};

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Every voter counts as healthy.
    AllAreHealthy,
    /// A voter that is cut off and answers counts as healthy.
    CutOffIsHealthy,
    /// The leader is removed without a move of the leadership.
    RemovesTheLeader,
    /// A learner that does not answer gets its vote.
    PromotesTheSilent,
    /// `spec.replicas: 0` ends Pods before the latch `parked`.
    EndsPodsUnparked,
    /// A learner gets its vote before it is latched as joined.
    PromotesStrangers,
    /// A Pod keeps the permission to start on an empty volume for ever.
    AllowsEmptyStarts,
    /// A member's Pod may always start on an empty volume.
    ForgetsWhoJoined,
    /// Clients reach a parked cluster before a member with a whole log has started.
    ForgetsWhoIsParked,
    /// The object of a leaving member goes before etcd has removed the member.
    DeletesTheObjectFirst,
    /// The claim of a leaving member goes first.
    DeletesTheClaimFirst,
    /// A list that could not be read counts as empty.
    UnknownIsAbsent,
    /// A member that had joined and is not listed is added again.
    AddsAgain,
    /// The cluster's pass ignores the latch of the leaving member.
    ForgetsWhoLeaves,
    /// A member is removed before the decision is latched.
    RemovesUnlatched,
    /// Members that have not joined are not counted.
    ForgetsNewcomers,
    /// A member is removed while clients reach it.
    KeepsClients,
    /// Silence counts as evidence of loss.
    ReplacesTheSilent,
    /// A lost member is removed while its Pod exists.
    RemovesUnfenced,
    /// A member in memory that has joined gets a second Pod.
    MakesASecondPod,
    /// A changed template reaches all members at once.
    RollsAllAtOnce,
    /// The next member is defragmented before etcd has answered for the first one.
    DefragmentsTwoAtOnce,
    /// A member is defragmented while another one joins.
    DefragmentsBesideAJoiner,
    /// A member is defragmented while clients reach it.
    DefragmentsWithClients,
    /// An alarm is cleared while the file of its member is full.
    ClearsAlarmsOfFullFiles,
}

fn parts(sight: &mut Sight) -> impl Iterator<Item = &mut Part> {
    sight.kube.parts.iter_mut()
}

impl Bug {
    /// Falsifies the view of the cluster's pass.
    pub fn lies(self, sight: &mut Sight) {
        match self {
            Self::AllAreHealthy => {
                let Some(list) = &sight.list else { return };
                for (n, entry) in list.entries.iter().enumerate() {
                    let Some(entry) = entry.filter(|e| e.votes) else { continue };
                    let (log, leader, file) = (Log::Whole, list.leader, File::Small);
                    sight.answers[n] = Heard::Says { id: entry.id, log, leader, learner: false, file };
                }
            }
            Self::CutOffIsHealthy => {
                let known = sight.list.as_ref().and_then(|list| list.leader);
                for heard in &mut sight.answers {
                    if let Heard::Says { leader, .. } = heard {
                        *leader = known;
                    }
                }
            }
            Self::AllowsEmptyStarts => {
                for pod in parts(sight).filter_map(|p| p.pod.as_mut()) {
                    pod.may_start_empty = false;
                }
            }
            Self::KeepsClients => {
                for part in parts(sight).filter(|p| p.object.is_some_and(|o| o.leaving)) {
                    part.pod.iter_mut().for_each(|pod| pod.voter = false);
                }
            }
            Self::ForgetsWhoIsParked => {
                for object in parts(sight).filter_map(|p| p.object.as_mut()) {
                    object.parked = None;
                }
            }
            Self::ForgetsWhoLeaves => {
                for object in parts(sight).filter_map(|p| p.object.as_mut()) {
                    object.leaving &= object.removed;
                }
            }
            Self::ForgetsNewcomers => {
                let made = |n: &u8| sight.kube.parts[usize::from(*n)].object.is_none();
                sight.kube.pending = sight.kube.pending.filter(made);
                parts(sight)
                    .filter(|p| p.object.is_some_and(|o| o.joined.is_none()))
                    .for_each(|p| *p = Part::default());
            }
            Self::ReplacesTheSilent => {
                for part in parts(sight).filter(|p| p.pod.is_none_or(|pod| !pod.serving)) {
                    part.object.iter_mut().for_each(|object| object.evidence = true);
                }
            }
            Self::RemovesUnfenced => {
                for part in parts(sight).filter(|p| p.object.is_some_and(|o| o.lost)) {
                    part.pod = None;
                }
            }
            Self::UnknownIsAbsent => {
                let empty = List { leader: None, entries: Default::default(), alarms: 0 };
                sight.list.get_or_insert(empty);
            }
            Self::DeletesTheObjectFirst
            | Self::RemovesTheLeader
            | Self::PromotesTheSilent
            | Self::PromotesStrangers
            | Self::EndsPodsUnparked
            | Self::ForgetsWhoJoined
            | Self::DeletesTheClaimFirst
            | Self::AddsAgain
            | Self::RemovesUnlatched
            | Self::RollsAllAtOnce
            | Self::DefragmentsTwoAtOnce
            | Self::DefragmentsBesideAJoiner
            | Self::DefragmentsWithClients
            | Self::ClearsAlarmsOfFullFiles
            | Self::MakesASecondPod => {}
        }
    }

    /// Replaces the order of the cluster's pass.
    pub fn twists(self, sight: &Sight, order: Option<Order>) -> Option<Order> {
        let entry = |n: u8| sight.list.as_ref().and_then(|list| list.entries[usize::from(n)]);
        let object = |n: u8| sight.kube.parts[usize::from(n)].object;
        let learner = |n: &u8| entry(*n).is_some_and(|e| !e.votes);
        let promote = |n: u8| Some(Order::Promote(n, entry(n)?.id));
        let of_each = |n: &dyn Fn(&u8) -> bool| Facts::numbers().find(|m| n(m));
        match (self, order) {
            (Self::RemovesTheLeader, Some(Order::Lead(n, _))) | (Self::RemovesUnlatched, Some(Order::Leave(n, _))) => {
                entry(n).map(|e| Order::Remove { n, id: e.id, learner: !e.votes })
            }
            (Self::DeletesTheObjectFirst, Some(Order::Dismiss(n))) => Some(Order::DeleteMember(n)),
            (Self::PromotesStrangers, _) => of_each(&learner).and_then(promote).or(order),
            (Self::PromotesTheSilent, _) => {
                let joined = |n: &u8| {
                    let safe = sight.kube.parts[usize::from(*n)].pod.is_none_or(|p| !p.may_start_empty);
                    learner(n) && safe && object(*n).is_some_and(|o| o.joined.is_some())
                };
                of_each(&joined).and_then(promote).or(order)
            }
            (Self::AddsAgain, _) => {
                let gone = |n: &u8| {
                    sight.list.is_some() && entry(*n).is_none() && object(*n).is_some_and(|o| o.joined.is_some())
                };
                of_each(&gone).map(Order::Add).or(order)
            }
            (Self::RollsAllAtOnce, None) => {
                let part = |n: u8| sight.kube.parts[usize::from(n)];
                let to = sight.kube.template;
                let stale = |n: &u8| part(*n).object.is_some_and(|o| o.template != to);
                let outdated = |n: &u8| {
                    part(*n).object.zip(part(*n).pod).is_some_and(|(o, p)| o.template != p.template && p.serving)
                };
                let served = |n: u8| part(n).object.map(|o| o.template);
                let give = of_each(&stale).map(|n| Order::Template { n, to, served: served(n) });
                give.or_else(|| of_each(&outdated).map(Order::Evict))
            }
            (Self::DefragmentsTwoAtOnce, None) => {
                let began = |n: &u8| sight.kube.defragmenting.is_some_and(|(m, began)| began && m != *n);
                of_each(&|n| began(n) && entry(*n).is_some()).map(Order::Defragment)
            }
            (Self::DefragmentsBesideAJoiner, _) => {
                let joins = Facts::numbers().any(|n| learner(&n));
                let voter = |n: &u8| joins && entry(*n).is_some_and(|e| e.votes);
                of_each(&voter).map(Order::Defragment).or(order)
            }
            (Self::DefragmentsWithClients, Some(Order::Dismiss(n))) => Some(Order::Defragment(n)),
            (Self::ClearsAlarmsOfFullFiles, None) => {
                let raised = |n: &u8| sight.list.as_ref().is_some_and(|list| list.alarms & (1 << n) != 0);
                of_each(&raised).map(Order::Disarm)
            }
            (_, order) => order,
        }
    }

    /// Replaces the order of a member's pass.
    pub fn twists_member(self, sight: &MemberSight, order: Option<Order>) -> Option<Order> {
        let n = sight.n;
        let leaves = sight.part.object.is_some_and(|o| o.leaving);
        match (self, order) {
            (Self::EndsPodsUnparked, _) if sight.replicas == 0 && sight.part.pod.is_some() => Some(Order::DeletePod(n)),
            (Self::DeletesTheClaimFirst, _) if leaves && sight.part.claim == Some(false) => Some(Order::DeleteClaim(n)),
            (Self::ForgetsWhoJoined, Some(Order::CreatePod { n, told, .. })) => {
                Some(Order::CreatePod { n, may_start_empty: true, told })
            }
            (Self::MakesASecondPod, None) if sight.part.in_memory && sight.part.pod.is_none() => {
                let told = sight.part.object.and_then(|o| o.told)?;
                Some(Order::CreatePod { n, may_start_empty: true, told })
            }
            (_, order) => order,
        }
    }
}
