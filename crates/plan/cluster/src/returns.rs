//! The status of an `EtcdRestore`: the record of the data that a cluster went back to, when, and how long it took.
//!
//! Decides the report, never an act. `cluster/timeline.rs` decides the steps, in the cluster's pass.

use holdfast_api::EtcdRestoreStatus;
use holdfast_api::condition::{Reason, Type, Wanted, merge};
use holdfast_api::restore::Restoring;
use holdfast_api::timeline::{EtcdRestoreSpec, PhaseStart, ReturnPhase, Returning};
use jiff::Timestamp;

use crate::cluster::{self, timeline};
use holdfast_base::{Plan, Wake, meta, objects};

pub use holdfast_base::seen::restore::Observed;

/// Against a missed event, while the cluster does not begin with the return.
const WAITED_FOR: Wake = Wake::AfterMillis(5_000);

/// The part of the status that differs from case to case.
struct Report {
    phase: ReturnPhase,
    reason: Reason,
    message: String,
}

/// Returns the plan, which is a status.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdRestoreStatus> {
    let object = &seen.restore;
    let old = object.status.clone().unwrap_or_default();
    let ends = |status| Plan { ensures: vec![], act: None, status, notes: vec![], waiting: None, wake: Wake::OnChange };
    if old.phase.is_final() {
        return ends(old);
    }
    let returning = latched(seen);
    let mut status = match &returning {
        Some(returning) => recorded(seen, returning, old.clone()),
        None => old.clone(),
    };
    let report = report(seen, returning.as_ref(), &status, now);
    if report.phase == ReturnPhase::Complete && status.phases.last().is_none_or(|last| last.phase != report.phase) {
        status.phases.push(PhaseStart { phase: report.phase, at: now.to_string() });
    }
    status.outage_seconds = outage(&status.phases);
    status.phase = report.phase;
    status.observed_generation = object.metadata.generation;
    status.conditions = merge(&old.conditions, &conditions(&report), object.metadata.generation, now);
    Plan { wake: if report.phase.is_final() { Wake::OnChange } else { WAITED_FOR }, ..ends(status) }
}

/// Returns the record of this return in the cluster's status.
fn latched(seen: &Observed) -> Option<Returning> {
    let returning = seen.cluster.as_ref()?.latches().returning?;
    (returning.uid == meta::uid(&seen.restore.metadata)).then_some(returning)
}

/// Returns the status with the facts of the record.
fn recorded(seen: &Observed, returning: &Returning, old: EtcdRestoreStatus) -> EtcdRestoreStatus {
    let uid = meta::uid(&seen.restore.metadata);
    let others = seen.cluster.iter().flat_map(|cluster| cluster.others.iter().chain(&cluster.members));
    let aside = others.filter_map(|m| Some((m.name(), m.object.spec.aside.as_ref()?)));
    let aside: Vec<_> = aside.filter(|(_, aside)| aside.restore_uid == uid).collect();
    let uri =
        |restoring: &Restoring| restoring.survivor.is_none().then(|| objects::store::uri(&restoring.source)).flatten();
    EtcdRestoreStatus {
        phases: returning.phases.clone(),
        uri: returning.restoring.as_ref().and_then(uri).or(old.uri),
        survivor_log: returning.survivor_log.clone().or(old.survivor_log),
        restored_revision: returning.restored_revision.or(old.restored_revision),
        first_revision: returning.first_revision.or(old.first_revision),
        earlier_revision: returning.earlier_revision.or(old.earlier_revision),
        safety_snapshot: returning.safety_snapshot.clone().or(old.safety_snapshot),
        open_connections: returning.open_connections.clone(),
        safety_snapshot_skipped: seen.restore.spec.skip_safety_snapshot.clone(),
        earlier_cluster_id: returning.earlier.as_ref().map(|it| it.cluster_id.clone()).or(old.earlier_cluster_id),
        earlier_members: aside.iter().map(|(name, _)| (*name).to_owned()).collect(),
        earlier_kept_until: aside
            .iter()
            .filter_map(|(_, aside)| aside.kept_until())
            .max()
            .map(|until| until.to_string()),
        ..old
    }
}

fn report(seen: &Observed, returning: Option<&Returning>, status: &EtcdRestoreStatus, now: Timestamp) -> Report {
    let spec = &seen.restore.spec;
    let named = &spec.cluster_ref.name;
    let waits = |reason, message| Report { phase: ReturnPhase::Pending, reason, message };
    let Some(cluster) = &seen.cluster else {
        return waits(Reason::WaitingForReference, format!("the EtcdCluster {named} does not exist"));
    };
    if let Some(returning) = returning {
        let phase = returning.phase();
        let reason = match phase {
            ReturnPhase::Complete => Reason::Returned,
            ReturnPhase::Failed | ReturnPhase::TurningBack => Reason::ReturnFailed,
            _ => Reason::Returning,
        };
        let message =
            if phase == ReturnPhase::Complete { complete(spec, status) } else { timeline::waits_for(returning) };
        return Report { phase, reason, message };
    }
    let present = cluster.timeline();
    if present >= spec.timeline {
        // The record went with the status of the cluster.
        if status.phases.is_empty() {
            let message =
                format!("the EtcdCluster {named} has timeline {present} already: this EtcdRestore changes nothing");
            return Report { phase: ReturnPhase::Skipped, reason: Reason::TimelineExists, message };
        }
        return Report { phase: ReturnPhase::Complete, reason: Reason::Returned, message: complete(spec, status) };
    }
    if spec.timeline > present + 1 {
        let message = format!(
            "spec.timeline is {}, and the next timeline of the EtcdCluster {named} is {}. Create an EtcdRestore with this timeline",
            spec.timeline,
            present + 1
        );
        return waits(Reason::InvalidSpec, message);
    }
    if let Some(message) = spec.from_member.as_ref().and_then(|_| no_loss(cluster)) {
        return Report { phase: ReturnPhase::Failed, reason: Reason::ReturnFailed, message };
    }
    if let Some(other) = cluster.latches().returning {
        return waits(Reason::Returning, format!("EtcdRestore {} comes first", other.name));
    }
    let first = cluster.returns.as_ref().map(|restore| &restore.metadata);
    if let Some(first) = first.filter(|first| meta::uid(first) != meta::uid(&seen.restore.metadata)) {
        return waits(Reason::Returning, format!("EtcdRestore {} comes first", meta::name(first)));
    }
    if cluster.cluster.spec.paused {
        return waits(Reason::Paused, format!("spec.paused of the EtcdCluster {named} is set"));
    }
    match cluster::timeline::held(cluster, now) {
        Some(waiting) => waits(waiting.reason, waiting.message),
        None if cluster.latches().formed.is_none() => {
            waits(Reason::WaitingForEtcd, format!("the EtcdCluster {named} has not formed yet"))
        }
        None if spec.from_member.is_some() => waits(
            Reason::Returning,
            format!("the EtcdCluster {named} begins with the return after its spec and its certificates are accepted"),
        ),
        None if cluster.own_etcd().is_none() => {
            waits(Reason::WaitingForEtcd, format!("no linearizable read of the EtcdCluster {named} succeeds"))
        }
        None => waits(Reason::Returning, format!("the EtcdCluster {named} begins with the return")),
    }
}

/// Returns why there is no loss to go on from. A person decides during each loss: an EtcdRestore that stays would act in the next short
/// silence.
fn no_loss(cluster: &cluster::Observed) -> Option<String> {
    let named = meta::name(&cluster.cluster.metadata);
    if cluster.etcd.known().is_some() {
        return Some(format!(
            "a linearizable read of the EtcdCluster {named} succeeds, so it has a quorum, and nothing was changed. To return to a \
             snapshot create another EtcdRestore with spec.from"
        ));
    }
    (cluster.cluster.spec.replicas == 0)
        .then(|| format!("spec.replicas of the EtcdCluster {named} is 0, and nothing was changed: raise spec.replicas"))
}

/// The message of a return that is complete.
fn complete(spec: &EtcdRestoreSpec, status: &EtcdRestoreStatus) -> String {
    let mut message = format!("the cluster serves timeline {}", spec.timeline);
    if let (Some(from), Some(log)) = (&spec.from_member, &status.survivor_log) {
        let term = log.last_term.map(|term| format!(" of term {term}")).unwrap_or_default();
        message.push_str(&format!(
            ", with each entry of {} up to raft index {}{term}, of which it did not know {} as committed",
            from.name, log.last_index, log.beyond_commit
        ));
    }
    if let (Some(restored), Some(first)) = (status.restored_revision, status.first_revision) {
        message.push_str(&format!(", with the data of revision {restored} as revision {first}"));
    }
    if let Some(seconds) = outage(&status.phases) {
        message.push_str(&format!("; clients were without a member for {seconds} s"));
    }
    if !status.open_connections.is_empty() {
        let open = status.open_connections.join(", ");
        message.push_str(&format!(
            ". The Pods of {open} had not ended before the safety snapshot: writes of clients with open connections may be on the \
             earlier claims alone"
        ));
    }
    if let Some(until) = &status.earlier_kept_until {
        message.push_str(&format!(". The claims of the earlier members stay until {until}"));
    }
    message
}

/// Returns the seconds between the first phase without clients and the end.
fn outage(phases: &[PhaseStart]) -> Option<i64> {
    let at = |start: &PhaseStart| start.at.parse::<Timestamp>().ok();
    let began = phases.iter().find(|start| start.phase.is_outage()).and_then(at)?;
    let ended = phases.last().filter(|last| last.phase.is_final()).and_then(at)?;
    Some(ended.duration_since(began).as_secs())
}

fn conditions(report: &Report) -> [Wanted; 3] {
    let Report { phase, reason, message } = report;
    let (reason, message) = (*reason, message.clone());
    let done = matches!(phase, ReturnPhase::Complete | ReturnPhase::Skipped);
    let stuck = reason.needs_a_person();
    [
        if done {
            Wanted::yes(Type::Ready, reason, message.clone())
        } else {
            Wanted::no(Type::Ready, reason, message.clone())
        },
        if phase.is_final() {
            Wanted::no(Type::Progressing, Reason::Idle, "nothing is in progress")
        } else if stuck && *phase == ReturnPhase::Pending {
            Wanted::no(Type::Progressing, reason, message.clone())
        } else {
            Wanted::yes(Type::Progressing, reason, message.clone())
        },
        if stuck && !done {
            Wanted::yes(Type::Degraded, reason, message)
        } else {
            Wanted::no(Type::Degraded, Reason::NothingWrong, "no fault is known")
        },
    ]
}
