//! Reads the objects of one cluster with the person's rights, and makes facts of them.
//!
//! Decides the order: custom resources first, then Pods. A list that is refused becomes one line; only the EtcdCluster itself is
//! necessary. [`facts`] is PURE.

use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::member::EtcdMember;
use holdfast_api::snapshot::{EtcdSnapshot, Phase};
use holdfast_api::timeline::{FIRST, of_cluster as timeline_of};
use holdfast_api::{
    EtcdCluster, EtcdClusterStatus, EtcdRestore, EtcdSnapshotSchedule, EtcdSnapshotScheduleStatus, EtcdUser, key,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as ApiCondition;
use kube::ResourceExt;

use super::facts::{
    Backups, Certificates, Condition, Drill, Facts, Log, Member, Merge, Restore, Schedule, Snapshot, State, Unread,
    Upgrade,
};
use super::{identity, next, runbook, timeline};
use crate::access::{Only, Session};
use crate::time::parse;

/// A list, or why it could not be read.
pub type Read<T> = Result<Vec<T>, String>;

/// The objects of one cluster as the API server has them.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The cluster.
    pub cluster: EtcdCluster,
    /// Its members.
    pub members: Read<EtcdMember>,
    /// Its snapshots.
    pub snapshots: Read<EtcdSnapshot>,
    /// Its schedules.
    pub schedules: Read<EtcdSnapshotSchedule>,
    /// The Pods of its members.
    pub pods: Read<Pod>,
    /// The users of the namespace, those of other clusters included.
    pub users: Read<EtcdUser>,
    /// The EtcdRestores of the namespace, those of other clusters included.
    pub restores: Read<EtcdRestore>,
}

/// Reads the objects of a cluster.
pub async fn observe(session: &Session, name: &str) -> anyhow::Result<Objects> {
    let cluster = session.named::<EtcdCluster>(name).await?;
    let labels = format!("{}={name}", key::CLUSTER);
    let labelled = Only { labels: Some(&labels), ..Only::default() };
    let fields = format!("spec.clusterRef.name={name}");
    let of_cluster = Only { fields: Some(&fields), ..Only::default() };
    let (members, snapshots, schedules, pods, users, restores) = tokio::join!(
        session.list::<EtcdMember>(labelled),
        session.list::<EtcdSnapshot>(of_cluster),
        session.list::<EtcdSnapshotSchedule>(of_cluster),
        session.list::<Pod>(labelled),
        // The API server selects EtcdUsers and EtcdRestores by no field.
        session.list::<EtcdUser>(Only::default()),
        session.list::<EtcdRestore>(Only::default()),
    );
    let describe = |error: anyhow::Error| format!("{error:#}");
    Ok(Objects {
        cluster,
        members: members.map_err(describe),
        snapshots: snapshots.map_err(describe),
        schedules: schedules.map_err(describe),
        pods: pods.map_err(describe),
        users: users.map_err(describe),
        restores: restores.map_err(describe),
    })
}

/// Makes facts of the objects.
pub fn facts(objects: &Objects, at: Timestamp) -> Facts {
    let Objects { cluster, members, snapshots, schedules, pods, users, restores } = objects;
    let objects_of_members = members.as_deref().unwrap_or_default();
    let present = timeline_of(cluster, objects_of_members.iter());
    let status = cluster.status.clone().unwrap_or_default();
    let ready = condition::find(&status.conditions, Type::Ready);
    let mut facts = Facts {
        at,
        name: cluster.name_any(),
        namespace: cluster.namespace().unwrap_or_default(),
        state: state(cluster, &status),
        message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
        paused: cluster.spec.paused,
        is_current: cluster.metadata.generation == status.observed_generation,
        wanted: cluster.spec.replicas,
        serving: status.ready_members,
        voters: status.voters,
        updated: status.updated_members,
        version: cluster.spec.version.clone(),
        running_version: status.version.clone(),
        endpoint: status.endpoint.clone(),
        formed: status.latches.formed.as_ref().and_then(|formed| parse(&formed.at)),
        certificates: certificates(&status),
        cas: status.tls.as_ref().map(identity::cas).unwrap_or_default(),
        authentication: status.auth_enabled,
        timeline: Some(present).filter(|present| *present > FIRST),
        in_place: timeline::find_return(cluster, objects_of_members, restores.as_deref().unwrap_or_default()),
        members: all_members(&status, (objects_of_members, present), pods.as_deref().ok()),
        set_aside: timeline::set_aside(objects_of_members),
        conditions: conditions(&status),
        upgrade: status.latches.upgrade.as_ref().map(|record| Upgrade {
            from: record.from.clone(),
            to: record.to.clone(),
            reversible: record.reversible,
            at: parse(&record.at),
        }),
        restore: restore(&status),
        users: users.as_deref().ok().map(|users| identity::users(users, &cluster.name_any())),
        backups: backups(cluster, &status, snapshots.as_deref().ok(), schedules.as_deref().ok()),
        next: vec![],
        unread: unread(objects),
    };
    facts.next = next::steps(&facts, cluster);
    facts
}

fn unread(objects: &Objects) -> Vec<Unread> {
    let row = |kind: &str, why: Option<&String>| Some(Unread { kind: kind.to_owned(), why: why?.clone() });
    [
        row("EtcdMembers", objects.members.as_ref().err()),
        row("EtcdSnapshots", objects.snapshots.as_ref().err()),
        row("EtcdSnapshotSchedules", objects.schedules.as_ref().err()),
        row("Pods", objects.pods.as_ref().err()),
        row("EtcdUsers", objects.users.as_ref().err()),
        row("EtcdRestores", objects.restores.as_ref().err()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the state of a cluster in one word.
pub fn state(cluster: &EtcdCluster, status: &EtcdClusterStatus) -> State {
    let is = |kind| condition::is_true(&status.conditions, kind);
    let reason = |kind| condition::find(&status.conditions, kind).and_then(|found| Reason::named(&found.reason));
    match status {
        _ if cluster.metadata.deletion_timestamp.is_some() => State::Deleting,
        _ if status.conditions.is_empty() => State::Unseen,
        _ if is(Type::Ready) && reason(Type::Ready) == Some(Reason::Parked) => State::Parked,
        _ if status.latches.formed.is_none() && !is(Type::Degraded) => State::Forming,
        _ if !is(Type::Available) && is(Type::Degraded) => State::Down,
        _ if !is(Type::Available) && !is(Type::Progressing) => State::Down,
        _ if is(Type::Degraded) => State::Degraded,
        _ if !is(Type::Ready) => State::Progressing,
        _ if is(Type::AtRisk) => State::AtRisk,
        _ => State::Ready,
    }
}

fn certificates(status: &EtcdClusterStatus) -> Option<Certificates> {
    let tls = status.tls.as_ref()?;
    let ca = [&tls.client.ca_not_after, &tls.peer.ca_not_after].into_iter().flatten();
    Some(Certificates {
        client: parse(&tls.client.not_after),
        peer: parse(&tls.peer.not_after),
        ca: ca.filter_map(|end| parse(end)).min(),
        provider: tls.client.provider.clone(),
    })
}

/// Returns every member of the present timeline that the cluster's status or an EtcdMember names.
fn all_members(
    status: &EtcdClusterStatus,
    (objects, present): (&[EtcdMember], u32),
    pods: Option<&[Pod]>,
) -> Vec<Member> {
    let mut names: Vec<String> = status.members.iter().map(|member| member.name.clone()).collect();
    names.extend(objects.iter().map(ResourceExt::name_any));
    names.sort();
    names.dedup();
    names.retain(|name| objects.iter().all(|it| it.name_any() != *name || timeline::is_present(it, present)));
    names.into_iter().map(|name| member(status, objects, pods, name)).collect()
}

fn member(status: &EtcdClusterStatus, objects: &[EtcdMember], pods: Option<&[Pod]>, name: String) -> Member {
    let summary = status.members.iter().find(|member| member.name == name);
    let object = objects.iter().find(|object| object.name_any() == name);
    let own = object.and_then(|object| object.status.as_ref());
    let pod = pods.and_then(|pods| pods.iter().find(|pod| pod.name_any() == name));
    let condition = own.and_then(|own| condition::find(&own.conditions, Type::Ready)).filter(|c| c.status != "True");
    // The member's own message names the container's failure; the cluster's names the silence.
    let why = condition.map(|condition| format!("{}: {}", condition.reason, condition.message));
    Member {
        leads: status.leader.as_ref() == Some(&name),
        role: summary.and_then(|summary| summary.role.clone()),
        state: own.and_then(|own| own.state.clone()),
        ready: pods.is_some().then(|| pod.is_some_and(is_ready)),
        healthy: summary.is_some_and(|summary| summary.healthy),
        since: summary.and_then(|summary| summary.since.as_deref()).and_then(parse),
        why: why.or_else(|| summary.and_then(|summary| summary.reason.clone())),
        version: summary.and_then(|summary| summary.version.clone()),
        certificates_until: summary.and_then(|summary| parse(summary.certificates_not_after.as_deref()?)),
        node: pod.and_then(|pod| pod.spec.as_ref()?.node_name.clone()),
        restarts: pod.map_or(0, restarts),
        claim: own.and_then(|own| own.claim.as_ref()).map(|claim| claim.name.clone()),
        lost: summary.is_some_and(|summary| summary.evidence.is_some()),
        name,
    }
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none() && conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

/// Returns the conditions that are not as they have to be, each cause once, the most pressing first.
fn conditions(status: &EtcdClusterStatus) -> Vec<Condition> {
    let order = [
        (Type::Degraded, "True"),
        (Type::Available, "False"),
        (Type::Progressing, "True"),
        (Type::Ready, "False"),
        (Type::BackupHealthy, "False"),
        (Type::AtRisk, "True"),
    ];
    let mut found: Vec<Condition> = vec![];
    for (kind, wrong) in order {
        let Some(condition) = condition::find(&status.conditions, kind).filter(|it| it.status == wrong) else {
            continue;
        };
        let reason = Reason::named(&condition.reason);
        // The state tells it.
        if reason == Some(Reason::Parked) {
            continue;
        }
        // One cause shows in several conditions; the first one tells most.
        let repeats = |earlier: &Condition| {
            earlier.reason == condition.reason || earlier.message.contains(condition.message.as_str())
        };
        if found.iter().any(repeats) || (kind == Type::Ready && !found.is_empty()) {
            continue;
        }
        found.push(Condition {
            kind: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: condition.last_transition_time.0,
            runbook: runbook::page(&condition.reason),
        });
    }
    found
}

fn restore(status: &EtcdClusterStatus) -> Option<Restore> {
    let restore = status.restore.as_ref()?;
    Some(Restore {
        phase: restore.phase.map(|phase| format!("{phase:?}")).unwrap_or_default(),
        from: restore.from_cluster.clone(),
        taken_at: restore.taken_at.as_deref().and_then(parse),
        revision: restore.revision,
        point: restore
            .point
            .as_ref()
            .and_then(|point| point.time.clone().or_else(|| Some(format!("revision {}", point.revision?)))),
        db_bytes: restore.db_bytes,
    })
}

fn backups(
    cluster: &EtcdCluster,
    status: &EtcdClusterStatus,
    snapshots: Option<&[EtcdSnapshot]>,
    schedules: Option<&[EtcdSnapshotSchedule]>,
) -> Backups {
    // A snapshot of an earlier cluster of the name is no backup of this one. Until its start a snapshot names no cluster by UID.
    let is_own = |object: &&EtcdSnapshot| {
        let status = object.status.as_ref();
        let saved = status.and_then(|status| status.cluster_uid.as_ref());
        let is_complete = status.is_some_and(|status| status.phase == Phase::Complete);
        saved.map_or(!is_complete, |saved| cluster.metadata.uid.as_ref() == Some(saved))
    };
    let all: Vec<Snapshot> = snapshots.unwrap_or_default().iter().filter(is_own).map(snapshot).collect();
    let of = |phase: Phase| all.iter().filter(move |snapshot| snapshot.phase == phase.as_str());
    let newest = |phase| of(phase).max_by_key(|snapshot| snapshot.at).cloned();
    let recorded = status.last_snapshot.as_ref().map(|last| Snapshot {
        name: last.name.clone(),
        phase: Phase::Complete.as_str().to_owned(),
        at: parse(&last.completed_at),
        level: Some(last.level.as_str().to_owned()),
        ..Snapshot::default()
    });
    // The object has more facts; the status remembers a deleted one.
    let last = match (newest(Phase::Complete), recorded) {
        (Some(object), Some(recorded)) if recorded.at > object.at => Some(recorded),
        (object, recorded) => object.or(recorded),
    };
    let is_newer = |failed: &Snapshot| failed.at > last.as_ref().and_then(|last| last.at);
    Backups {
        failed: newest(Phase::Failed).filter(is_newer),
        last,
        running: of(Phase::Pending).chain(of(Phase::Running)).cloned().collect(),
        complete: snapshots.map(|_| of(Phase::Complete).count()),
        schedules: schedules.map(|all| all.iter().map(schedule).collect()),
    }
}

/// Returns the facts about a snapshot.
pub fn snapshot(object: &EtcdSnapshot) -> Snapshot {
    let status = object.status.clone().unwrap_or_default();
    let ready = condition::find(&status.conditions, Type::Ready).filter(|_| status.phase != Phase::Complete);
    let error = status.error.as_ref().map(|error| error.message.clone());
    let at = status.completed_at.as_ref().or(status.started_at.as_ref());
    Snapshot {
        name: object.name_any(),
        phase: status.phase.as_str().to_owned(),
        at: at.and_then(|at| parse(at)).or_else(|| object.creation_timestamp().map(|at| at.0)),
        level: status.verification.as_ref().map(|proof| proof.level.as_str().to_owned()),
        revision: status.artifact.as_ref().and_then(|artifact| artifact.revision),
        db_bytes: status.artifact.as_ref().map(|artifact| artifact.db_bytes),
        store: status.store.as_ref().map(|store| store.name.clone()),
        message: error.or_else(|| ready.map(|ready| format!("{}: {}", ready.reason, ready.message))),
    }
}

fn schedule(object: &EtcdSnapshotSchedule) -> Schedule {
    let status = object.status.clone().unwrap_or_default();
    let fresh = condition::find(&status.conditions, Type::Fresh);
    Schedule {
        name: object.name_any(),
        line: object.spec.schedule.clone(),
        zone: object.spec.time_zone.clone().unwrap_or_else(|| "Etc/UTC".to_owned()),
        suspended: object.spec.suspend,
        next: status.next_time.as_deref().and_then(parse),
        last: status.last_successful.as_ref().and_then(|last| parse(&last.taken_at)),
        fresh: fresh.and_then(state_of),
        reason: fresh.map(|it| it.reason.clone()),
        failures: status.consecutive_failures,
        kept: status.kept,
        drill: object.spec.drill.is_some().then(|| drill(&status)),
        log: object
            .spec
            .log
            .as_ref()
            .map(|spec| Log { merge: spec.compaction.is_some().then(|| merge(&status)), ..log(&status) }),
    }
}

fn merge(status: &EtcdSnapshotScheduleStatus) -> Merge {
    let merged = condition::find(&status.conditions, Type::Merged);
    let merges = status.log.as_ref().and_then(|log| log.merges.as_ref());
    Merge {
        merged: merged.and_then(state_of),
        reason: merged.map(|it| it.reason.clone()),
        succeeded: merges.and_then(|merges| parse(merges.last_succeeded.as_ref()?)),
        failures: merges.map_or(0, |merges| merges.consecutive_failures),
    }
}

fn drill(status: &EtcdSnapshotScheduleStatus) -> Drill {
    let rehearsed = condition::find(&status.conditions, Type::Rehearsed);
    let passed = status.drill.as_ref().and_then(|drill| drill.last_passed.as_ref());
    Drill {
        rehearsed: rehearsed.and_then(state_of),
        reason: rehearsed.map(|it| it.reason.clone()),
        passed: passed.and_then(|passed| parse(&passed.at)),
        rto_seconds: passed.map(|passed| passed.rto_seconds),
    }
}

fn log(status: &EtcdSnapshotScheduleStatus) -> Log {
    let current = condition::find(&status.conditions, Type::LogCurrent);
    Log {
        current: current.and_then(state_of),
        reason: current.map(|it| it.reason.clone()),
        revision: status.log.as_ref().and_then(|log| log.revision),
        rpo_seconds: status.log.as_ref().and_then(|log| log.rpo_seconds),
        merge: None,
    }
}

fn state_of(condition: &ApiCondition) -> Option<bool> {
    match condition.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}
