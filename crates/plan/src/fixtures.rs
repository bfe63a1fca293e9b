//! Good values for tests of plans: each test takes one value, changes one field, and expects one exact result.

#![allow(clippy::unwrap_used, clippy::panic, reason = "fixtures of tests")]

use std::collections::BTreeMap;

use holdfast_api::cluster::{Formed, Latches, Medium, Storage};
use holdfast_api::member::{Birth, Joined};
use holdfast_api::restore::Restoring;
use holdfast_api::store::{Location, PvcLocation, StoredSnapshot};
use holdfast_api::tls::Tls;
use holdfast_api::{CLUSTER_FINALIZER, EtcdCluster, EtcdClusterSpec, EtcdClusterStatus, EtcdMember, key, name, role};
use holdfast_contract::{REQUEST, Request};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    PersistentVolumeClaim, Pod, PodCondition, PodStatus, Service,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;

use crate::build::job::pod_spec;
use crate::build::pod::{Start, pod};
use crate::build::request;
use crate::cluster::{Answer, Listed, Membership};
use crate::{Proxies, Seen, Settings, build, cluster, member, meta, valid};

/// etcd's cluster ID.
pub const CLUSTER_ID: u64 = 0xc1;

/// Returns noon.
pub fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// Returns two minutes before noon: no Pod counts as starting any more.
pub fn earlier() -> Time {
    Time("2026-01-01T11:58:00Z".parse().unwrap())
}

/// Settings of an operator.
pub fn settings() -> Settings {
    Settings {
        agent_image: "agent:1".to_owned(),
        etcd_repository: "example.org/etcd".to_owned(),
        proxies: Proxies::default(),
        cluster_domain: None,
        pod_run_as: holdfast_api::pod_security::RunAs::default(),
    }
}

/// Fills in the fields that the API server sets.
pub fn stored(meta: &mut ObjectMeta, uid: &str) {
    meta.namespace = Some("ns".to_owned());
    meta.uid = Some(uid.to_owned());
    meta.resource_version = Some("7".to_owned());
    meta.generation = Some(1);
    meta.creation_timestamp = Some(earlier());
}

/// A cluster of this size, as a user writes it.
pub fn etcd_cluster(replicas: i32) -> EtcdCluster {
    let spec = EtcdClusterSpec {
        replicas,
        version: "3.6.16".to_owned(),
        tls: Some(Tls { insecure: Some(true), ..Tls::default() }),
        ..EtcdClusterSpec::default()
    };
    let mut cluster = EtcdCluster::new("a", spec);
    stored(&mut cluster.metadata, "u-a");
    cluster.metadata.finalizers = Some(vec![CLUSTER_FINALIZER.to_owned()]);
    cluster
}

/// The default bump.
const BUMP: i64 = 1_000_000_000;

/// A restore of this key that runs.
pub fn restoring(key: &str) -> Restoring {
    let backups = Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None });
    let source = StoredSnapshot::at(backups, key.to_owned());
    Restoring {
        restore_uid: cluster::restore_uid(
            "u-a",
            cluster::Of { source: &source, sha256: None, store_id: None },
            cluster::How { revision_bump: BUMP, ..cluster::How::default() },
            &[],
        ),
        source,
        revision_bump: Some(BUMP),
        ..Restoring::default()
    }
}

/// Returns the nth member's name: `a-m0`, `a-m1`, …
pub fn named(n: usize) -> String {
    name::member("a", &format!("m{n}"))
}

fn id(n: usize) -> u64 {
    0x10 + u64::try_from(n).unwrap()
}

/// Returns a member that has joined (the first member as seed).
pub fn joined_member(cluster: &EtcdCluster, n: usize) -> EtcdMember {
    let mut member = match n {
        0 => build::member::seed(cluster, &named(0), None),
        _ => build::member::joiner(cluster, &named(n)),
    };
    stored(&mut member.metadata, &format!("u-{}", named(n)));
    let list: Vec<String> =
        (0..=n).map(|i| format!("{}={}", named(i), build::member::peer_url(cluster, &named(i)))).collect();
    member.spec.initial_cluster = Some(list.join(","));
    member.spec.joined = Some(Joined { member_id: format!("{:x}", id(n)), cluster_id: format!("{CLUSTER_ID:x}") });
    member.spec.start_count = 1;
    member
}

/// The claim of a member.
pub fn claim_of(member: &EtcdMember) -> PersistentVolumeClaim {
    let mut claim = build::pvc::claim(member);
    stored(&mut claim.metadata, &format!("u-data-{}", meta::name(&member.metadata)));
    claim
}

/// Returns the Pod of a member, running and ready, with the voter label if the member has joined.
pub fn pod_of(member: &EtcdMember) -> Pod {
    let joined = member.spec.joined.is_some();
    let mut member = member.clone();
    let started = std::mem::take(&mut member.spec.start_count);
    // The Pod was created when one Pod fewer had served.
    member.spec.start_count = started.saturating_sub(1);
    let member = &member;
    let server = valid::member(member).unwrap();
    let claim_uid = format!("u-data-{}", meta::name(&member.metadata));
    let founds = !joined && member.spec.role == Birth::Seed;
    let stored_at =
        member.spec.restore.as_ref().filter(|_| founds).map(|r| (r.clone(), r.source.place.location().unwrap()));
    let start = Start {
        claim_uid: &claim_uid,
        initial_cluster: member.spec.initial_cluster.as_deref().unwrap_or_default(),
        may_start_empty: !joined,
        found: founds,
        restore: stored_at.as_ref().map(|(r, s)| (r, s)),
    };
    let mut pod = pod(member, &server, &member.spec.placement, &start, &settings());
    stored(&mut pod.metadata, &format!("u-pod-{}", meta::name(&member.metadata)));
    if joined {
        pod.metadata.labels.get_or_insert_default().insert(key::ROLE.to_owned(), role::VOTER.to_owned());
        pod.metadata.annotations.get_or_insert_default().insert(key::STARTED.to_owned(), started.to_string());
    }
    running(&mut pod, true);
    pod
}

/// Sets the status of a Pod with an etcd container that has run for a while.
pub fn running(pod: &mut Pod, ready: bool) {
    let state = ContainerState {
        running: Some(ContainerStateRunning { started_at: Some(earlier()) }),
        ..ContainerState::default()
    };
    let etcd = ContainerStatus { name: "etcd".to_owned(), state: Some(state), ..ContainerStatus::default() };
    pod.status = Some(PodStatus {
        phase: Some("Running".to_owned()),
        conditions: Some(vec![PodCondition {
            type_: "Ready".to_owned(),
            status: if ready { "True" } else { "False" }.to_owned(),
            ..PodCondition::default()
        }]),
        container_statuses: Some(vec![etcd]),
        ..PodStatus::default()
    });
}

/// Sets the status of a Pod with a failed container, while kubelet waits before the next start.
pub fn failed(pod: &mut Pod, container: &str, code: i32, message: &str, at: Time) {
    let end = ContainerStateTerminated {
        exit_code: code,
        message: Some(message.to_owned()),
        finished_at: Some(at),
        ..ContainerStateTerminated::default()
    };
    let waiting = ContainerStateWaiting { reason: Some("CrashLoopBackOff".to_owned()), message: None };
    let status = ContainerStatus {
        name: container.to_owned(),
        state: Some(ContainerState { waiting: Some(waiting), ..ContainerState::default() }),
        last_state: Some(ContainerState { terminated: Some(end), ..ContainerState::default() }),
        ..ContainerStatus::default()
    };
    pod.status = Some(PodStatus {
        phase: Some("Pending".to_owned()),
        init_container_statuses: Some(vec![status]),
        ..PodStatus::default()
    });
}

/// Returns an applied object with the fields that the API server sets.
fn applied<T: Clone>(object: &T, meta: impl FnOnce(&mut T) -> &mut ObjectMeta) -> T {
    let mut object = object.clone();
    stored(meta(&mut object), "u-front");
    object
}

fn service(object: &Service) -> Service {
    applied(object, |s| &mut s.metadata)
}

/// Returns a formed cluster with `there` voters of `wanted`, all of them well, and the status that a pass computes.
pub fn formed(there: usize, wanted: i32) -> cluster::Observed {
    let mut object = etcd_cluster(wanted);
    object.status = Some(EtcdClusterStatus {
        latches: Latches {
            formed: Some(Formed {
                cluster_id: format!("{CLUSTER_ID:x}"),
                at: "2026-01-01T11:00:00Z".to_owned(),
                ..Formed::default()
            }),
            ..Latches::default()
        },
        ..EtcdClusterStatus::default()
    });
    let members: Vec<cluster::Member> = (0..there)
        .map(|n| {
            let member = joined_member(&object, n);
            cluster::Member { pod: Some(pod_of(&member)), claim: Some(claim_of(&member)), object: member }
        })
        .collect();
    let listed = (0..there).map(|n| Listed {
        id: id(n),
        name: named(n),
        peer_urls: vec![build::member::peer_url(&object, &named(n))],
        learner: false,
    });
    let etcd = Membership { cluster_id: CLUSTER_ID, leader: Some(id(0)), members: listed.collect(), alarms: vec![] };
    let replicas = usize::try_from(wanted).unwrap();
    let mut seen = cluster::Observed {
        peer_service: Some(service(&build::service::peer(&object))),
        client_service: Some(service(&build::service::client(&object))),
        client_endpoints: Some((0..there).map(|n| format!("u-pod-{}", named(n))).collect()),
        budget: build::budget::budget(&object, there, replicas).map(|b| applied(&b, |b| &mut b.metadata)),
        answers: (0..there).map(|n| (named(n), Seen::Known(answer(n)))).collect(),
        etcd: Seen::Known(etcd),
        cluster: object,
        members,
        snapshot: None,
        store: None,
        foreign: vec![],
        foreign_members: vec![],
        prunes: vec![],
        stray_pods: vec![],
        hashes: BTreeMap::new(),
        searches: vec![],
        rehearsals: vec![],
        requested: None,
        ending: None,
        backup: None,
        refusal: None,
        refused_growth: BTreeMap::new(),
        next_pods: (0..there).map(|n| (named(n), Seen::Known(cluster::Judgement::Permitted))).collect(),
        certificates: None,
        unread_certificates: None,
        last_snapshot: None,
        saving: vec![],
        has_turn: true,
        refused_for: None,
        backups: crate::schedule::healthy([]),
        fresh_suffix: "fresh".to_owned(),
        settings: settings(),
    };
    seen.cluster.status = Some(cluster::plan(&seen, noon()).status);
    seen
}

/// The answer of the n-th member.
pub fn answer(n: usize) -> Answer {
    Answer {
        member_id: id(n),
        cluster_id: CLUSTER_ID,
        version: "3.6.16".to_owned(),
        db_bytes: 1 << 20,
        used_bytes: 1 << 20,
        term: 3,
        applied_index: 1_000_000,
        learner: false,
        leader: id(0),
    }
}

/// Returns [`formed`] with one more member, which etcd lists as a learner and which serves, but is not latched as joined yet.
pub fn with_learner(there: usize, wanted: i32) -> cluster::Observed {
    let mut seen = formed(there, wanted);
    let mut object = joined_member(&seen.cluster, there);
    object.spec.joined = None;
    object.spec.start_count = 0;
    let mut pod = pod_of(&object);
    running(&mut pod, false);
    seen.members.push(cluster::Member { pod: Some(pod), claim: Some(claim_of(&object)), object });
    let url = build::member::peer_url(&seen.cluster, &named(there));
    etcd(&mut seen).members.push(Listed { id: id(there), name: named(there), peer_urls: vec![url], learner: true });
    seen.answers.insert(named(there), Seen::Known(Answer { learner: true, ..answer(there) }));
    seen
}

/// Returns etcd's membership, to change.
pub fn etcd(seen: &mut cluster::Observed) -> &mut Membership {
    match &mut seen.etcd {
        Seen::Known(etcd) => etcd,
        Seen::Unknown(why) => panic!("{why}"),
    }
}

/// Returns the latches, to change.
pub fn latches(seen: &mut cluster::Observed) -> &mut Latches {
    &mut seen.cluster.status.get_or_insert_default().latches
}

/// Returns a cluster with its Services and no other object.
pub fn bare(wanted: i32) -> cluster::Observed {
    let mut seen = formed(0, wanted);
    seen.etcd = Seen::unknown("there is no Pod to ask");
    seen.cluster.status = None;
    seen
}

/// Returns a cluster with a seed that serves, where only the seed's name is latched.
pub fn seeding(wanted: i32) -> cluster::Observed {
    let mut seen = formed(1, wanted);
    *latches(&mut seen) = Latches { pending_member: Some(named(0)), ..Latches::default() };
    let member = &mut seen.members[0];
    member.object.spec.joined = None;
    member.object.spec.start_count = 0;
    member.pod = Some(pod_of(&member.object));
    seen
}

/// Returns a member that has joined and serves.
pub fn serving() -> member::Observed {
    let seen = formed(1, 1);
    let one = &seen.members[0];
    member::Observed {
        member: one.object.clone(),
        cluster: Seen::Known(Some(seen.cluster.clone())),
        pod: one.pod.clone(),
        claim: one.claim.clone(),
        settings: settings(),
    }
}

/// Returns [`serving`] with its data in the memory of its Pod.
pub fn serving_in_memory() -> member::Observed {
    let mut seen = serving();
    keep_in_memory(&mut seen.member.spec.storage);
    if let Seen::Known(Some(cluster)) = &mut seen.cluster {
        keep_in_memory(&mut cluster.spec.storage);
        cluster.spec.replicas = 3;
    }
    seen.claim = None;
    seen
}

/// Returns [`formed`] with the members' data in the memory of their Pods.
pub fn formed_in_memory(there: usize, wanted: i32) -> cluster::Observed {
    let mut seen = formed(there, wanted);
    keep_in_memory(&mut seen.cluster.spec.storage);
    for member in &mut seen.members {
        keep_in_memory(&mut member.object.spec.storage);
        member.claim = None;
    }
    seen
}

/// Puts the data in memory.
pub fn keep_in_memory(storage: &mut Storage) {
    (storage.medium, storage.size) = (Medium::Memory, Some(Quantity("1Gi".to_owned())));
}

/// Returns a seed that has not joined, in a cluster that has not formed; with a restore if given.
pub fn unborn(restore: Option<Restoring>) -> member::Observed {
    let mut seen = serving();
    if let Seen::Known(Some(cluster)) = &mut seen.cluster {
        cluster.status = None;
    }
    seen.member.spec.joined = None;
    seen.member.spec.start_count = 0;
    seen.member.spec.restore = restore;
    seen.pod = Some(pod_of(&seen.member));
    seen
}

/// Returns a map of labels.
pub fn labels(pairs: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
    Some(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
}

/// Returns the request of a container as a person would give it: `--key=k`. The command of a gate follows its flags.
pub fn flags(container: &Container) -> Vec<String> {
    let request = serde_json::to_value(request::read(container).unwrap()).unwrap();
    let mut flags = vec![];
    request.as_object().unwrap().values().for_each(|fields| add_flags(fields, &mut flags));
    flags
}

/// Returns [`flags`] of a container of a Pod.
pub fn flags_in(pod: &Pod, name: &str) -> Option<Vec<String>> {
    request::find_container(pod.spec.as_ref(), name).map(flags)
}

/// Returns [`flags`] of a Job's agent.
pub fn flags_of_job(job: &Job) -> Vec<String> {
    flags(&pod_spec(job).unwrap().containers[0])
}

/// Changes the request of a container.
pub fn change_request(container: &mut Container, change: impl FnOnce(&mut Request)) {
    let mut request = request::read(container).unwrap();
    change(&mut request);
    let variable = container.env.iter_mut().flatten().find(|variable| variable.name == REQUEST).unwrap();
    variable.value = Some(request.to_text());
}

fn add_flags(fields: &Value, flags: &mut Vec<String>) {
    for (name, value) in fields.as_object().unwrap() {
        let name = match name.as_str() {
            "url" => "store".to_owned(),
            "identities" => "identity".to_owned(),
            "ageRecipients" => "age-recipient".to_owned(),
            "ageIdentityDirs" => "age-identity-dir".to_owned(),
            _ => name.chars().fold(String::new(), |flag, c| {
                if c.is_uppercase() { format!("{flag}-{}", c.to_lowercase()) } else { format!("{flag}{c}") }
            }),
        };
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::Bool(true) => flags.push(format!("--{name}")),
            Value::Object(_) => add_flags(value, flags),
            Value::Array(words) if name == "exec" => flags.extend(words.iter().map(plain)),
            Value::Array(all) => flags.extend(all.iter().map(|value| format!("--{name}={}", plain(value)))),
            value => flags.push(format!("--{name}={}", plain(value))),
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
