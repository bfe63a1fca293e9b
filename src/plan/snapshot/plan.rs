//! The order of decisions about one snapshot.
//!
//! A snapshot is one Job, made once; its Pod's report is what becomes the status. It decides nothing about where the
//! bytes come from: the agent picks the member.

use jiff::Timestamp;

use super::report::{self, Fact};
use super::{Observed, job, status};
use crate::api::condition::Reason;
use crate::api::{EtcdCluster, EtcdSnapshotStatus, name};
use crate::plan::{Act, Next, Plan, Wake, pods};

/// While something is waited for that the operator watches anyway: against a missed event.
const SLOW: Wake = Wake::AfterMillis(15_000);

/// What stands, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// Nothing is to be done and nothing changes: final (I18), or being deleted.
    Rest,
    /// What has to be there first is not, or something stands in the way.
    Blocked(Reason, String),
    /// No Job stands: this one is made.
    Start(Box<k8s_openapi::api::batch::v1::Job>),
    /// Its Job stands, and this is known of it.
    Job(Fact),
}

/// What to do next.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdSnapshotStatus> {
    let stage = stage(seen, now);
    let status = status::whole(seen, &stage, now);
    let notes = status::notes(seen, &stage);
    let (act, waiting, wake) = next(stage).into_parts();
    Plan { ensures: vec![], act, status, notes, waiting, wake }
}

fn stage(seen: &Observed, now: Timestamp) -> Stage {
    let meta = &seen.snapshot.metadata;
    let final_already = seen.snapshot.status.as_ref().is_some_and(|s| s.phase.is_final());
    if final_already || pods::deleting(meta) {
        return Stage::Rest;
    }
    match &seen.job {
        Some(job) if !pods::controlled_by(&job.metadata, pods::uid(meta)) => Stage::Blocked(
            Reason::NameConflict,
            format!(
                "a Job {} stands here that is not this snapshot's: delete it, or create the snapshot under another name",
                pods::name(&job.metadata)
            ),
        ),
        Some(job) => Stage::Job(report::read(job, &seen.pods, now)),
        None => match ready_cluster(seen) {
            Ok((cluster, source)) => Stage::Start(Box::new(job::build(seen, cluster, source))),
            Err(why) => Stage::Blocked(Reason::WaitingForReference, why),
        },
    }
}

fn next(stage: Stage) -> Next {
    match stage {
        Stage::Rest | Stage::Job(Fact::Stored { .. } | Fact::Failed { .. }) => Next::Settled(Wake::OnChange),
        Stage::Blocked(reason, message) => Next::wait(reason, message, SLOW),
        Stage::Start(job) => Next::act(Act::StartJob(job)),
        Stage::Job(Fact::Pending(message)) => Next::wait(Reason::JobPending, message, SLOW),
        Stage::Job(Fact::Running(message)) => Next::wait(Reason::JobRunning, message, SLOW),
        Stage::Job(Fact::Settling) => {
            Next::wait(Reason::JobRunning, status::SETTLING, Wake::AfterMillis(report::PATIENCE_MILLIS))
        }
        Stage::Job(Fact::Lost) => Next::wait(Reason::ReportLost, status::LOST, Wake::OnChange),
    }
}

/// What a Job needs to know of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Client URLs of the members with a vote.
    pub(super) endpoints: Vec<String>,
    /// etcd's cluster ID, hexadecimal.
    pub(super) cluster_id: String,
}

/// The cluster and its members with a vote, or what is missing. Something missing is waited for: that a snapshot was
/// applied before its cluster is no failure.
fn ready_cluster(seen: &Observed) -> Result<(&EtcdCluster, Source), String> {
    let wanted = &seen.snapshot.spec.cluster_ref.name;
    let Some(cluster) = &seen.cluster else {
        return Err(format!("there is no EtcdCluster {wanted} in this namespace yet"));
    };
    if pods::deleting(&cluster.metadata) {
        return Err(format!("EtcdCluster {wanted} is being deleted"));
    }
    let status = cluster.status.as_ref();
    let Some(formed) = status.and_then(|s| s.latches.formed.as_ref()) else {
        return Err(format!("EtcdCluster {wanted} has not formed yet; its conditions say what it waits for"));
    };
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
    let endpoints: Vec<String> = status
        .iter()
        .flat_map(|s| &s.members)
        .filter(|m| m.role.as_deref() == Some(crate::api::role::VOTER))
        .map(|m| name::client_url(&m.name, wanted, namespace))
        .collect();
    if endpoints.is_empty() {
        return Err(format!("EtcdCluster {wanted} lists no member with a vote now; its conditions say why"));
    }
    Ok((cluster, Source { endpoints, cluster_id: formed.cluster_id.clone() }))
}
