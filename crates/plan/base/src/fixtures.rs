//! Good values for tests of plans: each test takes one value, changes one field, and expects one exact result.

#![allow(clippy::unwrap_used, clippy::panic, reason = "fixtures of tests")]

use std::collections::BTreeMap;

use holdfast_api::cluster::{Medium, Storage};
use holdfast_api::member::{Birth, Joined};
use holdfast_api::restore::Restoring;
use holdfast_api::store::{Location, PvcLocation, StoredSnapshot};
use holdfast_api::tls::Tls;
use holdfast_api::{CLUSTER_FINALIZER, EtcdCluster, EtcdClusterSpec, EtcdMember, key, name, role};
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

use crate::objects::job::pod_spec;
use crate::objects::pod::{Start, pod};
use crate::objects::request;
use crate::seen::cluster::Answer;
use crate::{Proxies, Settings, meta, objects, valid};

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
        allowed_names: vec![],
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
pub const BUMP: i64 = 1_000_000_000;

/// A restore of this key that runs.
pub fn restoring(key: &str) -> Restoring {
    let backups = Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None });
    let source = StoredSnapshot::at(backups, key.to_owned());
    Restoring { restore_uid: "0123456789abcdef".to_owned(), source, revision_bump: Some(BUMP), ..Restoring::default() }
}

/// Returns the nth member's name: `a-m0`, `a-m1`, …
pub fn named(n: usize) -> String {
    name::member("a", &format!("m{n}"))
}

/// Returns the nth member's ID.
pub fn id(n: usize) -> u64 {
    0x10 + u64::try_from(n).unwrap()
}

/// Returns a member that has joined (the first member as seed).
pub fn joined_member(cluster: &EtcdCluster, n: usize) -> EtcdMember {
    let mut member = match n {
        0 => objects::member::seed(cluster, &named(0), None),
        _ => objects::member::joiner(cluster, &named(n)),
    };
    stored(&mut member.metadata, &format!("u-{}", named(n)));
    let list: Vec<String> =
        (0..=n).map(|i| format!("{}={}", named(i), objects::member::peer_url(cluster, &named(i)))).collect();
    member.spec.initial_cluster = Some(list.join(","));
    member.spec.joined = Some(Joined { member_id: format!("{:x}", id(n)), cluster_id: format!("{CLUSTER_ID:x}") });
    member.spec.start_count = 1;
    member
}

/// The claim of a member.
pub fn claim_of(member: &EtcdMember) -> PersistentVolumeClaim {
    let mut claim = objects::pvc::claim(member);
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
/// Returns an object as the API server stores it.
pub fn applied<T: Clone>(object: &T, meta: impl FnOnce(&mut T) -> &mut ObjectMeta) -> T {
    let mut object = object.clone();
    stored(meta(&mut object), "u-front");
    object
}

/// Returns a Service as the API server stores it.
pub fn service(object: &Service) -> Service {
    applied(object, |s| &mut s.metadata)
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
        revision: 1_000,
    }
}

/// Puts the data in memory.
pub fn keep_in_memory(storage: &mut Storage) {
    (storage.medium, storage.size) = (Medium::Memory, Some(Quantity("1Gi".to_owned())));
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
