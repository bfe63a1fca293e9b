//! The operator in the model: the real plans, applied to the view of a pass.
//!
//! Decides how facts appear as objects of Kubernetes and as answers of etcd. Equal views are planned once, because a plan depends
//! on nothing else.

use std::collections::{BTreeMap, HashMap};

use holdfast_api::cluster::{Formed, Latches, Medium, Options};
use holdfast_api::condition::Reason;
use holdfast_api::defragmentation::{Defragmentation, Defragmenting};
use holdfast_api::member::{Departure, Joined, Leaving, Parked, Removed};
use holdfast_api::repair::{Evidence, Loss, Repair, Replaced};
use holdfast_api::storage::Storage;
use holdfast_api::template::{FailedTemplate, Template};
use holdfast_api::tls::Tls;
use holdfast_api::{
    CLUSTER_FINALIZER, EtcdCluster, EtcdClusterSpec, EtcdClusterStatus, EtcdMember, EtcdMemberStatus, key, role,
};
use holdfast_plan::cluster::{Answer, Listed, Membership};
use holdfast_plan::objects::pod::{Start, pod};
use holdfast_plan::{
    Act, Alarm, AlarmKind, Plan, Proxies, Seen, Settings, cluster, member, meta, objects, pods, safety, valid,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStatus, PersistentVolumeClaim, PodCondition, PodSpec,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::facts::{BAD, Facts, Log, Object, Pod};
use super::requests::Order;
use super::search::Mixed;
use super::sight::{File, Heard, List, MemberSight, Part, Sight};

/// Decision of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    pub order: Option<Order>,
    pub waits: Option<Reason>,
    /// The safety rule that rejects the plan.
    pub refused: Option<&'static str>,
}

/// The real plans, and their decisions so far.
#[derive(Default)]
pub struct Planner {
    clusters: HashMap<Sight, Decision, Mixed>,
    members: HashMap<MemberSight, Decision, Mixed>,
    /// Members as objects: building one takes longer than planning.
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

    /// Number of different views that were planned.
    pub fn plans(&self) -> usize {
        self.clusters.len() + self.members.len()
    }
}

fn decision<S>(verdict: Result<(), safety::Violation>, plan: &Plan<S>) -> Decision {
    Decision {
        // Without acts that change no member and no data.
        order: plan.act.as_ref().filter(|act| !matches!(act, Act::CommitEntry { .. })).map(order),
        waits: plan.waiting.as_ref().map(|w| w.reason),
        refused: verdict.err().map(|v| v.invariant),
    }
}

const CLUSTER_ID: u64 = 0xc1;

/// Number of an add that no member has: etcd keeps the alarm of a removed member.
const UNLISTED: u8 = 0x7f;

/// Bytes of a file at the quota of a volume of 8Gi, and of one far below.
const FULL: i64 = 3584 << 20;
const SMALL: i64 = 1 << 20;

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn earlier() -> Time {
    Time("2026-01-01T11:58:00Z".parse().unwrap())
}

fn settings() -> Settings {
    Settings {
        agent_image: "agent:1".to_owned(),
        etcd_repository: "etcd".to_owned(),
        proxies: Proxies::default(),
        cluster_domain: None,
        allowed_names: vec![],
        pod_run_as: holdfast_api::pod_security::RunAs::default(),
    }
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

/// The evidence of a slot; each slot's evidence has its own time.
fn evidence(n: u8, in_memory: bool) -> Evidence {
    let at = noon() - SignedDuration::from_mins(5 + 20 * i64::from(n));
    Evidence { kind: if in_memory { Loss::MemoryGone } else { Loss::VolumeRefused }, detail: None, at: at.to_string() }
}

/// The latches of a cluster: the next member, the last replaced member, an ID without an object, a template that failed.
/// A member that is defragmented is the last one.
type Latched = (Option<u8>, Option<u8>, Option<(u8, u8)>, Option<u8>, Option<(u8, bool)>);

const NO_LATCH: Latched = (None, None, None, None, None);

/// The template of a number.
fn template_of(number: u8) -> Template {
    let options = Options { snapshot_count: Some(1000 + i64::from(number)), ..Options::default() };
    Template { version: "3.6.16".to_owned(), options: Some(options), ..Template::default() }
}

fn number_of(template: &Template) -> u8 {
    template.options.as_ref().and_then(|o| o.snapshot_count).and_then(|n| u8::try_from(n - 1000).ok()).unwrap_or(0)
}

fn cluster_object(
    (replicas, template): (u8, u8),
    in_memory: bool,
    (pending, replaced, orphan, failed, defragmenting): Latched,
) -> EtcdCluster {
    let storage = if in_memory {
        Storage { medium: Medium::Memory, size: Some(Quantity("1Gi".to_owned())), ..Storage::default() }
    } else {
        Storage::default()
    };
    let spec = EtcdClusterSpec {
        replicas: replicas.into(),
        version: "3.6.16".to_owned(),
        storage,
        options: template_of(template).options,
        tls: Some(Tls { insecure: Some(true), ..Tls::default() }),
        // The model has no time.
        repair: Some(Repair { after_seconds: Some(0), keep_claim_seconds: Some(0), ..Repair::default() }),
        defragmentation: Some(Defragmentation { pause_seconds: Some(0), ..Defragmentation::default() }),
        ..EtcdClusterSpec::default()
    };
    let mut object = EtcdCluster::new("a", spec);
    object.metadata.finalizers = Some(vec![CLUSTER_FINALIZER.to_owned()]);
    stored(&mut object.metadata, false);
    let formed = Formed { cluster_id: format!("{CLUSTER_ID:x}"), at: noon().to_string(), ..Formed::default() };
    let at = (noon() - SignedDuration::from_hours(1)).to_string();
    let replaced = replaced.map(|n| Replaced { member: named(n), evidence: evidence(n, in_memory), at });
    let orphan = orphan.map(|(n, add)| format!("{:x}", id(n, add)));
    let failed_template = failed.map(|number| FailedTemplate {
        template: holdfast_plan::template::fingerprint(&template_of(number)),
        member: named(0),
        why: "it ended".to_owned(),
        at: noon().to_string(),
        ..FailedTemplate::default()
    });
    // Clients have left, and the model has no time in which etcd takes too long.
    let defragmenting = defragmenting.map(|(n, began)| Defragmenting {
        member: named(n),
        at: earlier().0.to_string(),
        bytes: FULL,
        used_bytes: SMALL,
        began: began.then(|| (noon() - SignedDuration::from_mins(1)).to_string()),
    });
    let latches = Latches {
        pending_member: pending.map(named),
        formed: Some(formed),
        replaced,
        orphan,
        failed_template,
        defragmenting,
        ..Latches::default()
    };
    object.status = Some(EtcdClusterStatus { latches, ..EtcdClusterStatus::default() });
    object
}

fn initial_cluster(cluster: &EtcdCluster, told: u8) -> String {
    let listed = Facts::numbers().filter(|n| told & (1 << n) != 0).map(named);
    let all: Vec<String> = listed.map(|name| format!("{name}={}", objects::member::peer_url(cluster, &name))).collect();
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
    let evidence = |n| evidence(n, cluster.spec.storage.in_memory());
    let name = named(n);
    let mut object = match n {
        0 => objects::member::seed(cluster, &name, None),
        _ => objects::member::joiner(cluster, &name),
    };
    stored(&mut object.metadata, facts.deleting);
    let at = noon().to_string();
    let spec = &mut object.spec;
    let template = template_of(facts.template);
    spec.template = Some(holdfast_plan::template::fingerprint(&template));
    spec.process.options = template.options;
    spec.served = facts.served.map(template_of);
    spec.initial_cluster = facts.told.map(|told| initial_cluster(cluster, told));
    spec.joined = facts
        .joined
        .map(|add| Joined { member_id: format!("{:x}", id(n, add)), cluster_id: format!("{CLUSTER_ID:x}") });
    // Starts are counted, and every Pod has the count: the model omits I27.
    spec.start_count = u64::from(spec.joined.is_some());
    let why = if facts.lost { Departure::Lost } else { Departure::ScaledIn };
    spec.leaving = facts.leaving.then(|| Leaving { why, evidence: facts.lost.then(|| evidence(n)), at: at.clone() });
    spec.removed = facts.removed.then(|| Removed {
        member_id: spec.joined.as_ref().map(|j| j.member_id.clone()),
        cluster_id: format!("{CLUSTER_ID:x}"),
        at: at.clone(),
    });
    object.status =
        facts.evidence.then(|| EtcdMemberStatus { evidence: Some(evidence(n)), ..EtcdMemberStatus::default() });
    let spec = &mut object.spec;
    spec.parked = facts.parked.map(|log| Parked { term: log.map(|_| 3), index: log.map(index), at });
    object
}

fn claim_object(object: &EtcdMember, deleting: bool) -> PersistentVolumeClaim {
    let mut claim = objects::pvc::claim(object);
    stored(&mut claim.metadata, deleting);
    claim
}

fn pod_object(cluster: &EtcdCluster, object: &EtcdMember, facts: &Pod) -> k8s_openapi::api::core::v1::Pod {
    let server = valid::member(object).unwrap();
    let told = initial_cluster(cluster, facts.told);
    let volume =
        if object.spec.storage.in_memory() { object.metadata.clone() } else { claim_object(object, false).metadata };
    let claim_uid = meta::uid(&volume).to_owned();
    let start = Start {
        claim_uid: &claim_uid,
        initial_cluster: &told,
        may_start_empty: facts.may_start_empty,
        found: false,
        restore: None,
    };
    // The Pod was made before any of its member's Pods was counted.
    let mut first = object.clone();
    first.spec.start_count = 0;
    let mut made = pod(&first, &server, &object.spec.placement, &start, &settings());
    // Without the fields that no plan reads: each plan would copy them.
    let bare = |all: Vec<Container>| {
        let bare = |c: Container| Container {
            name: c.name,
            image: c.image,
            command: c.command,
            env: c.env,
            ..Container::default()
        };
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
    let template = holdfast_plan::template::fingerprint(&template_of(facts.template));
    annotations.insert(key::TEMPLATE.to_owned(), template);
    // The model has no resources: a changed template needs another Pod.
    annotations.remove(key::PROCESS);
    if let Some(joined) = object.spec.joined.as_ref().filter(|_| !facts.may_start_empty) {
        annotations.insert(key::STARTED.to_owned(), "1".to_owned());
        annotations.insert(key::JOINED.to_owned(), joined.annotation());
    }
    let running = || ContainerState {
        running: Some(ContainerStateRunning { started_at: Some(earlier()) }),
        ..ContainerState::default()
    };
    let etcd = ContainerStatus {
        name: "etcd".to_owned(),
        state: facts.serving.then(running),
        restart_count: if facts.crashes { 2 } else { 0 },
        ..ContainerStatus::default()
    };
    let ready = PodCondition {
        type_: "Ready".to_owned(),
        status: if facts.serving { "True" } else { "False" }.to_owned(),
        ..PodCondition::default()
    };
    made.status = Some(PodStatus {
        phase: Some(if facts.serving { "Running" } else { "Pending" }.to_owned()),
        conditions: Some(vec![ready]),
        container_statuses: (facts.serving || facts.crashes).then(|| vec![etcd]),
        ..PodStatus::default()
    });
    made
}

impl Planner {
    fn made(&mut self, n: u8, part: Part) -> cluster::Member {
        let make = || {
            let cluster = cluster_object((1, 0), part.in_memory, NO_LATCH);
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
        let latched = (kube.pending, kube.replaced, kube.orphan, kube.failed, kube.defragmenting);
        let object = cluster_object((kube.replicas, kube.template), kube.in_memory, latched);
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
                    peer_urls: vec![objects::member::peer_url(&object, &named(n))],
                    learner: !entry.votes,
                });
                Seen::Known(Membership {
                    cluster_id: CLUSTER_ID,
                    leader: list.leader.map(|n| leader_id(list, n)),
                    members: listed.collect(),
                    alarms: Facts::numbers()
                        .filter(|n| list.alarms & (1 << n) != 0)
                        .map(|n| (n, list.entries[usize::from(n)].map_or(UNLISTED, |entry| entry.id)))
                        .map(|(n, add)| Alarm { member_id: id(n, add), kind: AlarmKind::NoSpace })
                        .collect(),
                })
            },
        );
        let mut answers = BTreeMap::new();
        for n in Facts::numbers().filter(|n| kube.parts[usize::from(*n)].object.is_some()) {
            match sight.answers[usize::from(n)] {
                Heard::Nobody => {}
                Heard::Silent => drop(answers.insert(named(n), Seen::unknown("refused"))),
                Heard::Says { id: add, log, leader, learner, file } => {
                    let answer = Answer {
                        member_id: id(n, add),
                        cluster_id: CLUSTER_ID,
                        version: "3.6.16".to_owned(),
                        db_bytes: if file == File::Small { SMALL } else { FULL },
                        used_bytes: if file == File::Full { FULL } else { SMALL },
                        term: 3,
                        applied_index: index(log),
                        learner,
                        leader: leader.zip(sight.list.as_ref()).map_or(0, |(n, list)| leader_id(list, n)),
                        revision: 1,
                    };
                    answers.insert(named(n), Seen::Known(answer));
                }
            }
        }
        let permitted = |m: &cluster::Member| (m.name().to_owned(), Seen::Known(cluster::Judgement::Permitted));
        let permitted = members.iter().map(permitted).collect();
        cluster::Observed {
            cluster: object,
            members,
            // The operator applies the Services and the budget beside any act; the model omits them.
            peer_service: None,
            client_service: None,
            client_endpoints: None,
            budget: None,
            etcd,
            answers,
            snapshot: None,
            store: None,
            foreign: vec![],
            foreign_members: vec![],
            others: vec![],
            returns: None,
            safety_snapshot: None,
            prunes: vec![],
            stray_pods: vec![],
            hashes: BTreeMap::new(),
            auth: None,
            searches: vec![],
            rehearsals: vec![],
            requested: None,
            ending: None,
            backup: None,
            refusal: None,
            refused_growth: std::collections::BTreeMap::new(),
            next_pods: permitted,
            certificates: None,
            unread_certificates: None,
            last_snapshot: None,
            saving: vec![],
            has_turn: true,
            refused_for: None,
            backups: holdfast_plan::schedule::healthy([]),
            fresh_suffix: format!("m{}", kube.fresh),
            settings: settings(),
        }
    }

    fn observed_member(&mut self, sight: MemberSight) -> member::Observed {
        let cluster::Member { object, pod, claim } = self.made(sight.n, sight.part);
        let cluster = Seen::Known(Some(cluster_object((sight.replicas, 0), sight.part.in_memory, NO_LATCH)));
        member::Observed { member: object, cluster, pod, claim, settings: settings() }
    }
}

fn failed_number(fingerprint: &str) -> u8 {
    let own = |number: &u8| holdfast_plan::template::fingerprint(&template_of(*number)) == fingerprint;
    (0..=BAD).find(own).unwrap_or_else(|| panic!("{fingerprint} is no template"))
}

/// An act in terms of slots. Acts that concern no fact of the model never occur in it.
fn order(act: &Act) -> Order {
    let parse = |hex: &str| of_id(u64::from_str_radix(hex, 16).unwrap());
    match act {
        Act::Latch(latches) => Order::Pending(
            latches.pending_member.as_deref().map(slot_of),
            latches.replaced.as_ref().map(|replaced| slot_of(&replaced.member)),
            latches.orphan.as_deref().map(parse),
            latches.failed_template.as_ref().map(|failed| failed_number(&failed.template)),
            latches.defragmenting.as_ref().map(|record| (slot_of(&record.member), record.began.is_some())),
        ),
        Act::CreateMember(object) => Order::Create(slot_of(meta::name(&object.metadata))),
        Act::AddLearner { name, .. } => Order::Add(slot_of(name)),
        Act::SetInitialCluster { member, initial_cluster } => {
            Order::Tell(slot_of(&member.name), told_by(initial_cluster))
        }
        Act::LatchJoined { member, joined } => Order::Join(slot_of(&member.name), parse(&joined.member_id).1),
        Act::ForbidEmptyStart { pod, .. } => Order::Forbid(slot_of(&pod.name)),
        Act::Promote { name, member_id, .. } => Order::Promote(slot_of(name), of_id(*member_id).1),
        Act::LatchLeaving { member, leaving } => Order::Leave(slot_of(&member.name), leaving.why == Departure::Lost),
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
            let gate = pods::gate(pod).unwrap();
            Order::CreatePod {
                n: slot_of(meta::name(&pod.metadata)),
                may_start_empty: pods::may_start_empty(pod),
                told: gate.exec.iter().find_map(flag).unwrap_or_default(),
            }
        }
        Act::DeletePod { pod, .. } => Order::DeletePod(slot_of(&pod.name)),
        Act::DeleteClaim { claim, .. } => Order::DeleteClaim(slot_of(claim.name.trim_start_matches("data-"))),
        Act::DeleteMember { member, .. } => Order::DeleteMember(slot_of(&member.name)),
        Act::ReleaseMember { member } => Order::Release(slot_of(&member.name)),
        Act::EvictPod { pod, .. } => Order::Evict(slot_of(&pod.name)),
        Act::Defragment { name, .. } => Order::Defragment(slot_of(name)),
        Act::Disarm { alarm, .. } => Order::Disarm(of_id(alarm.member_id).0),
        Act::SetTemplate { member, template, served } => Order::Template {
            n: slot_of(&member.name),
            to: number_of(template),
            served: served.as_deref().map(number_of),
        },
        Act::SetAside { .. }
        | Act::TakeBack { .. }
        | Act::HoldCluster { .. }
        | Act::EndLeaderRequest { .. }
        | Act::CopyRetention { .. }
        | Act::ReleaseCluster { .. }
        | Act::LatchStart { .. }
        | Act::BeginResize { .. }
        | Act::ResizePod { .. }
        | Act::EndResize { .. }
        | Act::SetPodMetadata { .. }
        | Act::CopyPodMetadata { .. }
        | Act::MarkStarted { .. }
        | Act::FillLog { .. }
        | Act::SetAuth { .. }
        | Act::SetPeerUrl { .. }
        | Act::HoldUser { .. }
        | Act::ReleaseUser { .. }
        | Act::ClaimUser { .. }
        | Act::PutUser { .. }
        | Act::DropUser { .. }
        | Act::CommitEntry { .. }
        | Act::Relabel { .. }
        | Act::Issue(_)
        | Act::AnnounceCertificates { .. }
        | Act::RefreshCertificates { .. }
        | Act::GrowClaim { .. }
        | Act::SetVolumeSize { .. }
        | Act::RefreshVolume { .. }
        | Act::RecordRun(_)
        | Act::RequestSnapshot(_)
        | Act::DeleteRecord { .. }
        | Act::DeleteJob { .. }
        | Act::DeleteDeployment { .. }
        | Act::StartRun(_)
        | Act::LatchPrune(_)
        | Act::KeepArtifact { .. }
        | Act::LatchRemoval(_)
        | Act::ReleaseArtifact { .. }
        | Act::StartJob(_) => panic!("the model has no facts for {act:?}"),
    }
}
