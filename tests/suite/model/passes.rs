//! The operator in the model: what a pass sees, what the real plans make of it, and what comes of the request.
//!
//! Decides how facts look as objects of Kubernetes and answers of etcd, and the judgement of each act by the facts, independently of
//! `plan` and `safety`. Equal sights are planned once: a plan depends on nothing else.

use std::collections::{BTreeMap, HashMap};

use holdfast::api::cluster::{Formed, Latches, Tls};
use holdfast::api::condition::Reason;
use holdfast::api::member::{Departure, Joined, Leaving, Parked, Removed};
use holdfast::api::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus, EtcdMember, key, role};
use holdfast::plan::build::pod::{Start, pod};
use holdfast::plan::cluster::{Answer, Listed, Membership};
use holdfast::plan::{Act, Plan, Proxies, Seen, Settings, build, cluster, member, meta, pods, safety, valid};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStatus, PersistentVolumeClaim, PodCondition, PodSpec,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::facts::{Breach, Claim, Entry, Facts, Log, Object, Pod, SLOTS, Slot, quorum};
use super::search::Mixed;

/// A member as Kubernetes has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    pub object: Option<Object>,
    pub pod: Option<Pod>,
    /// Its claim, and whether that is being deleted.
    pub claim: Option<bool>,
}

/// All that Kubernetes has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kube {
    pub replicas: u8,
    pub pending: Option<u8>,
    pub fresh: u8,
    pub parts: [Part; SLOTS],
}

/// What a member's server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    Nobody,
    Silent,
    Says { id: u8, log: Log, leader: Option<u8>, learner: bool },
}

/// etcd's list, from a linearizable read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List {
    pub leader: Option<u8>,
    pub entries: [Option<Entry>; SLOTS],
}

/// What a pass over the cluster sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sight {
    pub kube: Kube,
    pub list: Option<List>,
    pub answers: [Heard; SLOTS],
}

/// What a pass over a member sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberSight {
    pub n: u8,
    pub part: Part,
    pub replicas: u8,
}

/// An act, by slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    Pending(Option<u8>),
    Create(u8),
    Add(u8),
    Tell(u8, u8),
    Join(u8, u8),
    Forbid(u8),
    Promote(u8, u8),
    Admit(u8),
    Leave(u8),
    Dismiss(u8),
    Lead(u8, u8),
    Remove { n: u8, id: u8, learner: bool },
    Prove(u8),
    Park(u8, Option<Log>),
    Unpark(u8),
    DeleteMember(u8),
    CreateClaim(u8),
    CreatePod { n: u8, may_start_empty: bool, told: u8 },
    DeletePod(u8),
    DeleteClaim(u8),
    Release(u8),
}

/// The precondition of a request: the version of the object that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    None,
    Cluster(u8, Option<u8>),
    Object(u8, Option<Object>),
    Pod(u8, Option<Pod>),
    Claim(u8, Option<bool>),
}

/// An act with its precondition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub order: Order,
    guard: Guard,
}

/// What a pass decides.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    pub order: Option<Order>,
    pub waits: Option<Reason>,
    /// The safety rule that refuses.
    pub refused: Option<&'static str>,
}

impl Kube {
    pub fn of(facts: &Facts) -> Self {
        let part = |n: usize| {
            let slot = &facts.slots[n];
            Part { object: slot.object, pod: slot.pod, claim: slot.claim.map(|c| c.deleting) }
        };
        Self {
            replicas: facts.replicas,
            pending: facts.pending,
            fresh: facts.fresh,
            parts: std::array::from_fn(|n| if facts.slots[n].object.is_some() { part(n) } else { Part::default() }),
        }
    }

    /// The request for an order that was decided on these objects.
    pub fn request(&self, order: Order) -> Request {
        let part = |n: u8| &self.parts[usize::from(n)];
        let guard = match order {
            Order::Pending(_) => Guard::Cluster(self.replicas, self.pending),
            Order::Create(_)
            | Order::Add(_)
            | Order::Promote(..)
            | Order::Lead(..)
            | Order::Remove { .. }
            | Order::CreateClaim(_)
            | Order::CreatePod { .. } => Guard::None,
            Order::Tell(n, _)
            | Order::Join(n, _)
            | Order::Leave(n)
            | Order::Prove(n)
            | Order::Park(n, _)
            | Order::Unpark(n)
            | Order::DeleteMember(n)
            | Order::Release(n) => Guard::Object(n, part(n).object),
            Order::Forbid(n) | Order::Admit(n) | Order::Dismiss(n) | Order::DeletePod(n) => Guard::Pod(n, part(n).pod),
            Order::DeleteClaim(n) => Guard::Claim(n, part(n).claim),
        };
        Request { order, guard }
    }
}

impl Sight {
    /// With Kubernetes as it was read before, or as it is now. etcd is always read after it.
    pub fn of(facts: &Facts, kube: Kube) -> Self {
        let entries = std::array::from_fn(|n| facts.slots[n].entry);
        let heard = |n: usize| {
            let (slot, n) = (&facts.slots[n], n as u8);
            let Some(pod) = slot.pod.filter(|p| !p.deleting) else { return Heard::Nobody };
            match slot.claim.and_then(|c| c.data) {
                Some(data) if pod.serving => Heard::Says {
                    id: data.id,
                    log: data.log,
                    leader: facts.leader.filter(|_| facts.connected(n)),
                    learner: !facts.votes(n),
                },
                _ => Heard::Silent,
            }
        };
        Self {
            kube,
            list: facts.leader.map(|leader| List { leader: Some(leader), entries }),
            answers: std::array::from_fn(heard),
        }
    }
}

/// The real plans, and what they have decided.
#[derive(Default)]
pub struct Planner {
    clusters: HashMap<Sight, Decision, Mixed>,
    members: HashMap<MemberSight, Decision, Mixed>,
    /// Members as objects: to make them takes longer than to plan.
    made: HashMap<(u8, Part), cluster::Member, Mixed>,
}

impl Planner {
    pub fn cluster(&mut self, sight: Sight) -> Decision {
        if let Some(decision) = self.clusters.get(&sight) {
            return *decision;
        }
        let seen = self.observed(&sight);
        let plan = cluster::plan(&seen, noon());
        *self.clusters.entry(sight).or_insert(decision(safety::cluster(&seen, &plan), &plan))
    }

    pub fn member(&mut self, sight: MemberSight) -> Decision {
        if let Some(decision) = self.members.get(&sight) {
            return *decision;
        }
        let seen = self.observed_member(sight);
        let plan = member::plan(&seen, noon());
        *self.members.entry(sight).or_insert(decision(safety::member(&seen, &plan), &plan))
    }

    /// How many different sights were planned.
    pub fn plans(&self) -> usize {
        self.clusters.len() + self.members.len()
    }
}

fn decision<S>(verdict: Result<(), safety::Violation>, plan: &Plan<S>) -> Decision {
    Decision {
        order: plan.act.as_ref().map(order),
        waits: plan.waiting.as_ref().map(|w| w.reason),
        refused: verdict.err().map(|v| v.invariant),
    }
}

const CLUSTER_ID: u64 = 0xc1;

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn earlier() -> Time {
    Time("2026-01-01T11:58:00Z".parse().unwrap())
}

fn settings() -> Settings {
    Settings { agent_image: "agent:1".to_owned(), etcd_repository: "etcd".to_owned(), proxies: Proxies::default() }
}

fn named(n: u8) -> String {
    format!("a-m{n}")
}

fn slot_of(name: &str) -> u8 {
    name.strip_prefix("a-m").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name} is no member"))
}

/// The member ID of the nth add of a slot.
fn id(n: u8, add: u8) -> u64 {
    0x1000 + 0x100 * u64::from(n) + u64::from(add)
}

fn of_id(id: u64) -> (u8, u8) {
    (((id - 0x1000) / 0x100) as u8, (id % 0x100) as u8)
}

fn stored(meta: &mut ObjectMeta, deleting: bool) {
    meta.namespace = Some("ns".to_owned());
    meta.uid = Some(format!("u-{}", meta::name(meta)));
    meta.resource_version = Some("1".to_owned());
    meta.generation = Some(1);
    meta.creation_timestamp = Some(earlier());
    meta.deletion_timestamp = deleting.then(|| Time(noon()));
}

fn cluster_object(replicas: u8, pending: Option<u8>) -> EtcdCluster {
    let spec = EtcdClusterSpec {
        replicas: replicas.into(),
        version: "3.6.16".to_owned(),
        tls: Some(Tls { insecure: Some(true) }),
        ..EtcdClusterSpec::default()
    };
    let mut object = EtcdCluster::new("a", spec);
    stored(&mut object.metadata, false);
    let formed = Formed { cluster_id: format!("{CLUSTER_ID:x}"), at: noon().to_string(), ..Formed::default() };
    let latches = Latches { pending_member: pending.map(named), formed: Some(formed), ..Latches::default() };
    object.status = Some(EtcdClusterStatus { latches, ..EtcdClusterStatus::default() });
    object
}

fn initial_cluster(cluster: &EtcdCluster, told: u8) -> String {
    let listed = Facts::numbers().filter(|n| told & (1 << n) != 0).map(named);
    let all: Vec<String> = listed.map(|name| format!("{name}={}", build::member::peer_url(cluster, &name))).collect();
    all.join(",")
}

fn told_by(initial_cluster: &str) -> u8 {
    let names = initial_cluster.split(',').filter_map(|entry| entry.split_once('='));
    names.map(|(name, _)| 1 << slot_of(name)).sum()
}

fn index(log: Log) -> u64 {
    match log {
        Log::Whole => 1_000_000,
        Log::Near => 999_500,
        Log::Far => 900_000,
    }
}

fn log_of(index: u64) -> Log {
    [Log::Whole, Log::Near, Log::Far].into_iter().find(|log| self::index(*log) == index).unwrap()
}

fn member_object(cluster: &EtcdCluster, n: u8, facts: &Object) -> EtcdMember {
    let name = named(n);
    let mut object = match n {
        0 => build::member::seed(cluster, &name, None),
        _ => build::member::joiner(cluster, &name),
    };
    stored(&mut object.metadata, facts.deleting);
    let at = noon().to_string();
    let spec = &mut object.spec;
    spec.initial_cluster = facts.told.map(|told| initial_cluster(cluster, told));
    spec.joined = facts
        .joined
        .map(|add| Joined { member_id: format!("{:x}", id(n, add)), cluster_id: format!("{CLUSTER_ID:x}") });
    // Starts are counted, and every Pod knows the count: I27 is no part of the model.
    spec.start_count = u64::from(spec.joined.is_some());
    spec.leaving = facts.leaving.then(|| Leaving { why: Departure::ScaledIn, at: at.clone() });
    spec.removed = facts.removed.then(|| Removed {
        member_id: spec.joined.as_ref().map(|j| j.member_id.clone()),
        cluster_id: format!("{CLUSTER_ID:x}"),
        at: at.clone(),
    });
    spec.parked = facts.parked.map(|log| Parked { term: log.map(|_| 3), index: log.map(index), at });
    object
}

fn claim_object(object: &EtcdMember, deleting: bool) -> PersistentVolumeClaim {
    let mut claim = build::pvc::claim(object);
    stored(&mut claim.metadata, deleting);
    claim
}

fn pod_object(cluster: &EtcdCluster, object: &EtcdMember, facts: &Pod) -> k8s_openapi::api::core::v1::Pod {
    let server = valid::member(object).unwrap();
    let told = initial_cluster(cluster, facts.told);
    let claim_uid = meta::uid(&claim_object(object, false).metadata).to_owned();
    let start = Start {
        claim_uid: &claim_uid,
        initial_cluster: &told,
        may_start_empty: facts.may_start_empty,
        found: false,
        restore: None,
    };
    // It was made when none of its member's Pods had been counted.
    let mut first = object.clone();
    first.spec.start_count = 0;
    let mut made = pod(&first, &server, &object.spec.placement, &start, &settings());
    // What no plan reads is left out: it would be copied for every plan.
    let bare = |all: Vec<Container>| {
        let bare = |c: Container| Container { name: c.name, image: c.image, args: c.args, ..Container::default() };
        all.into_iter().map(bare).collect()
    };
    made.spec = made.spec.map(|spec| PodSpec {
        containers: bare(spec.containers),
        init_containers: spec.init_containers.map(bare),
        ..PodSpec::default()
    });
    stored(&mut made.metadata, facts.deleting);
    if facts.voter {
        made.metadata.labels.get_or_insert_default().insert(key::ROLE.to_owned(), role::VOTER.to_owned());
    }
    let annotations = made.metadata.annotations.get_or_insert_default();
    if let Some(joined) = object.spec.joined.as_ref().filter(|_| !facts.may_start_empty) {
        annotations.insert(key::STARTED.to_owned(), "1".to_owned());
        annotations.insert(key::JOINED.to_owned(), joined.annotation());
    }
    let running = || ContainerState {
        running: Some(ContainerStateRunning { started_at: Some(earlier()) }),
        ..ContainerState::default()
    };
    let etcd = ContainerStatus { name: "etcd".to_owned(), state: Some(running()), ..ContainerStatus::default() };
    let ready = PodCondition {
        type_: "Ready".to_owned(),
        status: if facts.serving { "True" } else { "False" }.to_owned(),
        ..PodCondition::default()
    };
    made.status = Some(PodStatus {
        phase: Some(if facts.serving { "Running" } else { "Pending" }.to_owned()),
        conditions: Some(vec![ready]),
        container_statuses: facts.serving.then(|| vec![etcd]),
        ..PodStatus::default()
    });
    made
}

impl Planner {
    fn made(&mut self, n: u8, part: Part) -> cluster::Member {
        let make = || {
            let cluster = cluster_object(1, None);
            let object = member_object(&cluster, n, &part.object.expect("a member has an object"));
            cluster::Member {
                pod: part.pod.map(|pod| pod_object(&cluster, &object, &pod)),
                claim: part.claim.map(|deleting| claim_object(&object, deleting)),
                object,
            }
        };
        self.made.entry((n, part)).or_insert_with(make).clone()
    }

    fn observed(&mut self, sight: &Sight) -> cluster::Observed {
        let kube = &sight.kube;
        let object = cluster_object(kube.replicas, kube.pending);
        let parts = Facts::numbers().zip(kube.parts).filter(|(_, part)| part.object.is_some());
        let members: Vec<cluster::Member> = parts.map(|(n, part)| self.made(n, part)).collect();
        let leader_id = |list: &List, n: u8| list.entries[usize::from(n)].map_or(0, |entry| id(n, entry.id));
        let etcd = sight.list.as_ref().map_or_else(
            || Seen::unknown("timed out"),
            |list| {
                let listed = Facts::numbers().filter_map(|n| Some((n, list.entries[usize::from(n)]?)));
                let listed = listed.map(|(n, entry)| Listed {
                    id: id(n, entry.id),
                    name: if entry.booted { named(n) } else { String::new() },
                    peer_urls: vec![build::member::peer_url(&object, &named(n))],
                    learner: !entry.votes,
                });
                Seen::Known(Membership {
                    cluster_id: CLUSTER_ID,
                    leader: list.leader.map(|n| leader_id(list, n)),
                    members: listed.collect(),
                    alarms: vec![],
                })
            },
        );
        let mut answers = BTreeMap::new();
        for n in Facts::numbers().filter(|n| kube.parts[usize::from(*n)].object.is_some()) {
            match sight.answers[usize::from(n)] {
                Heard::Nobody => {}
                Heard::Silent => drop(answers.insert(named(n), Seen::unknown("refused"))),
                Heard::Says { id: add, log, leader, learner } => {
                    let answer = Answer {
                        member_id: id(n, add),
                        cluster_id: CLUSTER_ID,
                        version: "3.6.16".to_owned(),
                        db_bytes: 1 << 20,
                        term: 3,
                        applied_index: index(log),
                        learner,
                        leader: leader.zip(sight.list.as_ref()).map_or(0, |(n, list)| leader_id(list, n)),
                    };
                    answers.insert(named(n), Seen::Known(answer));
                }
            }
        }
        cluster::Observed {
            cluster: object,
            members,
            // The Services and the budget are applied beside any act, and no part of the model.
            peer_service: None,
            client_service: None,
            budget: None,
            etcd,
            answers,
            snapshot: None,
            store: None,
            foreign: vec![],
            foreign_members: vec![],
            searches: vec![],
            refusal: None,
            last_snapshot: None,
            fresh_suffix: format!("m{}", kube.fresh),
            settings: settings(),
        }
    }

    fn observed_member(&mut self, sight: MemberSight) -> member::Observed {
        let cluster::Member { object, pod, claim } = self.made(sight.n, sight.part);
        let cluster = Seen::Known(Some(cluster_object(sight.replicas, None)));
        member::Observed { member: object, cluster, pod, claim, settings: settings() }
    }
}

/// An act by slots. What the model has no facts for never happens in it.
fn order(act: &Act) -> Order {
    let parse = |hex: &str| of_id(u64::from_str_radix(hex, 16).unwrap());
    match act {
        Act::Latch(latches) => Order::Pending(latches.pending_member.as_deref().map(slot_of)),
        Act::CreateMember(object) => Order::Create(slot_of(meta::name(&object.metadata))),
        Act::AddLearner { name, .. } => Order::Add(slot_of(name)),
        Act::SetInitialCluster { member, initial_cluster } => {
            Order::Tell(slot_of(&member.name), told_by(initial_cluster))
        }
        Act::LatchJoined { member, joined } => Order::Join(slot_of(&member.name), parse(&joined.member_id).1),
        Act::ForbidEmptyStart { pod, .. } => Order::Forbid(slot_of(&pod.name)),
        Act::Promote { name, member_id, .. } => Order::Promote(slot_of(name), of_id(*member_id).1),
        Act::LatchLeaving { member, .. } => Order::Leave(slot_of(&member.name)),
        Act::DismissClients { pod } => Order::Dismiss(slot_of(&pod.name)),
        Act::MoveLeader { from, to, .. } => Order::Lead(of_id(*from).0, of_id(*to).0),
        Act::RemoveMember { member_id, learner, .. } => {
            let (n, id) = of_id(*member_id);
            Order::Remove { n, id, learner: *learner }
        }
        Act::LatchRemoved { member, .. } => Order::Prove(slot_of(&member.name)),
        Act::Park { member, parked } => Order::Park(slot_of(&member.name), parked.index.map(log_of)),
        Act::Unpark { member } => Order::Unpark(slot_of(&member.name)),
        Act::AdmitClients { pod } => Order::Admit(slot_of(&pod.name)),
        Act::CreateClaim(claim) => Order::CreateClaim(slot_of(meta::label(&claim.metadata, key::MEMBER).unwrap())),
        Act::CreatePod(pod) => {
            let flag = |arg: &String| arg.strip_prefix("--initial-cluster=").map(told_by);
            Order::CreatePod {
                n: slot_of(meta::name(&pod.metadata)),
                may_start_empty: pods::may_start_empty(pod),
                told: pods::arguments(pod, "etcd").unwrap_or_default().iter().find_map(flag).unwrap_or_default(),
            }
        }
        Act::DeletePod { pod, .. } => Order::DeletePod(slot_of(&pod.name)),
        Act::DeleteClaim { claim, .. } => Order::DeleteClaim(slot_of(claim.name.trim_start_matches("data-"))),
        Act::DeleteMember { member, .. } => Order::DeleteMember(slot_of(&member.name)),
        Act::ReleaseMember { member } => Order::Release(slot_of(&member.name)),
        Act::LatchStart { .. }
        | Act::MarkStarted { .. }
        | Act::Disarm { .. }
        | Act::Relabel { .. }
        | Act::StartJob(_) => panic!("the model has no facts for {act:?}"),
    }
}

/// How a request reaches the API server or etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// At once, decided on what is so. It is judged by the facts, and etcd helps with nothing.
    Direct,
    /// On what was so before. Preconditions and etcd's own rules guard it.
    Late,
}

fn need(invariant: &'static str, holds: bool, broken: &'static str) -> Result<(), Breach> {
    if holds { Ok(()) } else { Err((invariant, broken)) }
}

impl Facts {
    fn met(&self, guard: Guard) -> bool {
        match guard {
            Guard::None => true,
            Guard::Cluster(replicas, pending) => (self.replicas, self.pending) == (replicas, pending),
            Guard::Object(n, object) => object.is_some() && self.at(n).object == object,
            Guard::Pod(n, pod) => pod.is_some() && self.at(n).pod == pod,
            Guard::Claim(n, claim) => claim.is_some() && self.at(n).claim.map(|c| c.deleting) == claim,
        }
    }

    /// What comes of a request. `Err`: it should not have been made.
    pub fn perform(&mut self, request: Request, way: Way) -> Result<(), Breach> {
        if !self.met(request.guard) {
            return Ok(());
        }
        let direct = way == Way::Direct;
        match request.order {
            Order::Pending(pending) => {
                self.pending = pending;
                if pending == Some(self.fresh) {
                    self.fresh += 1;
                }
            }
            Order::Create(n) => self.create(n, direct)?,
            Order::Add(n) => self.add(n, direct)?,
            Order::Promote(n, id) => self.promote(n, id, direct)?,
            Order::Lead(from, to) => self.lead(from, to, direct)?,
            Order::Remove { n, id, learner } => self.remove(n, id, learner, direct)?,
            Order::Forbid(n) => self.change_pod(n, |p| p.may_start_empty = false),
            Order::Dismiss(n) => self.change_pod(n, |p| p.voter = false),
            Order::Admit(n) => {
                let parked = self.slots.iter().any(|s| s.object.is_some_and(|o| o.parked.is_some()));
                need("I3", !direct || !parked, "clients reached a cluster that is not back yet")?;
                let object = self.at(n).object;
                let serves = self.votes(n) && object.is_some_and(|o| o.joined.is_some() && !o.leaving);
                need("I16", !direct || serves, "clients reached a member that does not serve, or leaves")?;
                self.change_pod(n, |p| p.voter = true);
            }
            Order::Prove(n) => {
                need("I4", !direct || self.at(n).entry.is_none(), "a member that etcd lists was latched as removed")?;
                self.change(n, |o| o.removed = true);
            }
            Order::Leave(n) => {
                let leaves = |s: &Slot| s.object.is_some_and(|o| o.leaving && !o.removed);
                let others = self.slots.iter().filter(|s| leaves(s)).count();
                need("I11", !direct || others == 0, "two members leave")?;
                self.change(n, |o| o.leaving = true);
            }
            Order::DeleteMember(n) => {
                need("I4", !direct || self.at(n).entry.is_none(), "a member that etcd lists was deleted")?;
                self.change(n, |o| o.deleting = true);
            }
            Order::Tell(n, told) => self.change(n, |o| o.told = Some(told)),
            Order::Join(n, id) => self.change(n, |o| o.joined = Some(id)),
            Order::Park(n, log) => self.change(n, |o| o.parked = Some(log)),
            Order::Unpark(n) => self.change(n, |o| o.parked = None),
            Order::Release(n) => self.slot(n).object = None,
            Order::CreateClaim(n) => {
                if self.at(n).claim.is_none() {
                    self.slot(n).claim = Some(Claim { deleting: false, data: None });
                }
            }
            Order::CreatePod { n, may_start_empty, told } => {
                // Where its owner is gone, Kubernetes collects it.
                if self.at(n).pod.is_none() && self.at(n).object.is_some() {
                    self.slot(n).pod =
                        Some(Pod { deleting: false, serving: false, voter: false, may_start_empty, told });
                }
            }
            Order::DeletePod(n) => {
                let parked = self.replicas == 0 && self.at(n).object.is_some_and(|o| o.parked.is_some());
                let counts = self.votes(n) && self.connected(n);
                need("I1", !direct || parked || !counts, "the Pod of a voter that serves was deleted")?;
                self.delete_pod(n);
            }
            Order::DeleteClaim(n) => {
                let slot = self.at(n);
                let data = slot.claim.and_then(|c| c.data);
                // What is listed again after the proof has no vote, and copies of the others' data.
                let proven = slot.object.is_some_and(|o| o.removed);
                let live = slot.entry.is_some_and(|e| data.is_some_and(|d| d.id == e.id) && (e.votes || !proven));
                need("I4", !live, "the volume of a member that etcd lists was deleted")?;
                if let Some(claim) = self.slot(n).claim.as_mut() {
                    claim.deleting = true;
                }
            }
        }
        Ok(())
    }

    fn change(&mut self, n: u8, change: impl FnOnce(&mut Object)) {
        if let Some(object) = self.slot(n).object.as_mut() {
            change(object);
        }
    }

    fn change_pod(&mut self, n: u8, change: impl FnOnce(&mut Pod)) {
        if let Some(pod) = self.slot(n).pod.as_mut().filter(|p| !p.deleting) {
            change(pod);
        }
    }

    fn create(&mut self, n: u8, direct: bool) -> Result<(), Breach> {
        if self.at(n).object.is_some() {
            return Ok(());
        }
        let object = Object { deleting: false, joined: None, leaving: false, removed: false, parked: None, told: None };
        self.slot(n).object = Some(object);
        let counted = self.slots.iter().filter(|s| s.object.is_some_and(|o| !o.leaving && !o.removed)).count();
        need("I11", !direct || counted <= usize::from(self.replicas), "more members than are wanted")
    }

    fn add(&mut self, n: u8, direct: bool) -> Result<(), Breach> {
        let (voters, healthy) = (self.voters(), self.healthy().len());
        if self.leader.is_none() || self.at(n).entry.is_some() {
            return Ok(());
        }
        let again = self.at(n).object.is_some_and(|o| o.joined.is_some());
        need("I5", !direct || !again, "a member that had joined was added again")?;
        let enough = healthy >= quorum(voters + 1).min(voters);
        need("I1", !direct || enough, "a member was added beside too few healthy voters")?;
        // etcd itself: a quorum of the grown cluster is connected.
        if voters > 1 && self.up().len() < quorum(voters + 1) {
            return Ok(());
        }
        self.commit();
        let slot = self.slot(n);
        slot.entry = Some(Entry { id: slot.ids, votes: false, booted: false });
        slot.ids += 1;
        Ok(())
    }

    fn promote(&mut self, n: u8, id: u8, direct: bool) -> Result<(), Breach> {
        let slot = *self.at(n);
        let Some(entry) = slot.entry.filter(|e| e.id == id && !e.votes && self.leader.is_some()) else { return Ok(()) };
        let joined = slot.object.is_some_and(|o| o.joined == Some(id));
        need("I3", !direct || joined, "a member got its vote before it was latched as joined")?;
        let permitted = slot.pod.is_some_and(|p| p.may_start_empty);
        need("I3", !direct || !permitted, "a voter may start on an empty volume")?;
        let enough = self.up().len() + usize::from(self.connected(n)) >= quorum(self.voters() + 1);
        need("I1", !direct || enough, "a vote was given that the quorum lacks")?;
        // etcd itself: the learner has most of the log.
        if slot.claim.and_then(|c| c.data).is_none_or(|d| d.log == Log::Far) {
            return Ok(());
        }
        self.commit();
        self.slot(n).entry = Some(Entry { votes: true, ..entry });
        Ok(())
    }

    fn lead(&mut self, from: u8, to: u8, direct: bool) -> Result<(), Breach> {
        if self.leader != Some(from) {
            return Ok(());
        }
        let stays = self.at(to).object.is_some_and(|o| !o.leaving);
        need(
            "I1",
            !direct || (stays && self.healthy().contains(&to)),
            "leadership went to a voter that is not healthy",
        )?;
        // The leader waits until the next one has everything.
        if self.up().contains(&to) {
            self.catch_up(to);
            self.leader = Some(to);
        }
        Ok(())
    }

    fn remove(&mut self, n: u8, id: u8, learner: bool, direct: bool) -> Result<(), Breach> {
        let slot = *self.at(n);
        let Some(entry) = slot.entry.filter(|e| e.id == id && e.votes != learner && self.leader.is_some()) else {
            return Ok(());
        };
        let never_served = slot.object.is_none() && learner && !entry.booted;
        let latched = slot.object.is_some_and(|o| o.leaving);
        need("I11", !direct || latched || never_served, "a member was removed without a latch")?;
        let (up, voters) = (self.up(), self.voters());
        if !learner {
            let clients = slot.pod.is_some_and(|p| p.voter && !p.deleting);
            need("I16", !direct || !clients, "a voter was removed that clients reach")?;
            need("I1", !direct || self.leader != Some(n), "the leader was removed")?;
            let rest = self.healthy().into_iter().filter(|other| *other != n).count();
            let enough = voters > 1 && rest >= quorum(voters - 1);
            need("I1", !direct || enough, "a voter was removed, and a quorum of the rest is not healthy")?;
            // etcd itself (mayRemoveMember), where the decision is an old one.
            if !direct && (voters < 2 || (up.contains(&n) && voters > 2 && up.len() < 2 + (voters - 1) / 2)) {
                return Ok(());
            }
        }
        self.commit();
        self.slot(n).entry = None;
        Ok(())
    }
}
