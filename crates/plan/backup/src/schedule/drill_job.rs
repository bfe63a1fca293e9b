//! The `CronJob` of a schedule's drills.
//!
//! Decides when there is one, and its Job: the agent in etcd's image of the cluster's version, or in kube-apiserver's image, which
//! chooses the newest snapshot of the cluster's lineage when the Job runs. Nothing in the Pod reaches a member. `drill.rs` reads the results.

use std::path::PathBuf;

use holdfast_api::agent::Agent;
use holdfast_api::backup_store::Right;
use holdfast_api::cluster::Placement;
use holdfast_api::condition::Reason;
use holdfast_api::drill::Drill;
use holdfast_api::{EtcdCluster, name};
use holdfast_contract::{APISERVER, DEFAULT_READ_DEADLINE_SECONDS, ProofLevel, Request, SnapshotFlags, VerifyRequest};
use k8s_openapi::api::batch::v1::CronJob;

use super::arm::{self, Place};
use super::beside::{Armed, Live};
use super::{Line, Observed, UTC};
use holdfast_base::objects::cron_job::{Recurring, cron_job};
use holdfast_base::objects::job::{self, AgentJob, SCRATCH};
use holdfast_base::{meta, objects, saving};

/// Folder of etcd and etcdutl in etcd's own image.
const PROGRAMS: &str = "/usr/local/bin";

/// Number of failed Jobs that Kubernetes keeps.
const FAILURES: usize = 3;

/// Compares the standing `CronJob` with the spec.
pub(super) fn arm(seen: &Observed, drill: &Drill, line: Result<&Line, (Reason, String)>) -> Armed<CronJob> {
    let begins = (Reason::NoDrillYet, "Holdfast creates the CronJob of the drills".to_owned());
    let (live, rendered) = (live(seen), |suspend| line.and_then(|_| rendered(seen, drill, suspend)));
    live.arm(seen, begins, |suspend| live.suspended(agent_job(seen), suspend), rendered)
}

/// Returns the `CronJob` without drills, where the spec asks for none any more.
pub(super) fn retire(seen: &Observed) -> Option<CronJob> {
    live(seen).retire(agent_job(seen))
}

fn live(seen: &Observed) -> Live<'_, CronJob> {
    Live { any: seen.drill_cron_job.as_ref(), own: seen.own_drill_cron_job() }
}

fn rendered(seen: &Observed, drill: &Drill, suspend: bool) -> Result<CronJob, (Reason, String)> {
    let spec = &seen.schedule.spec;
    let Place { location, record } = arm::place(seen, Right::Read)?;
    let cluster = seen.cluster.as_ref().ok_or_else(|| {
        let named = saving::filed_under(spec.cluster_ref.as_ref());
        (Reason::WaitingForReference, format!("there is no EtcdCluster {named} in this namespace"))
    })?;
    let request = VerifyRequest {
        namespace: Some(seen.schedule.metadata.namespace.clone().unwrap_or_default()),
        cluster: Some(saving::filed_under(spec.cluster_ref.as_ref())),
        lineage: Some(meta::uid(&cluster.metadata).to_owned()),
        expect_store_id: record.as_ref().and_then(|record| record.id.clone()),
        ..request_of(drill)
    };
    let zone = drill.time_zone.clone().or_else(|| spec.time_zone.clone());
    Ok(cron_job(&Recurring {
        job: AgentJob {
            work: Request::Verify(request),
            destination: location,
            record,
            etcd_image: Some(etcd_image(seen, cluster)),
            apiserver: drill.kubernetes.clone(),
            spool: drill.scratch.clone(),
            identities: drill.identity_secret_refs.clone(),
            ..agent_job(seen)
        },
        template: None,
        schedule: drill.schedule.clone(),
        time_zone: zone.unwrap_or_else(|| UTC.to_owned()),
        suspend,
        starting_deadline: spec.starting_deadline(),
        failed_limit: FAILURES,
    }))
}

fn request() -> VerifyRequest {
    VerifyRequest {
        snapshot: SnapshotFlags::default(),
        level: ProofLevel::Drill,
        latest: true,
        bin_dir: Some(PathBuf::from(PROGRAMS)),
        scratch: PathBuf::from(SCRATCH),
        deadline_seconds: DEFAULT_READ_DEADLINE_SECONDS,
        ..VerifyRequest::default()
    }
}

/// Returns the request with the places of programs and files in the Pod.
fn request_of(drill: &Drill) -> VerifyRequest {
    let Some(kubernetes) = &drill.kubernetes else { return request() };
    let encrypted = kubernetes.encryption_config_secret_ref.is_some();
    VerifyRequest {
        bin_dir: Some(PathBuf::from(job::PROGRAMS)),
        kubernetes: Some(PathBuf::from(APISERVER)),
        encryption_config: encrypted.then(|| PathBuf::from(job::ENCRYPTION_CONFIG)),
        ..request()
    }
}

fn etcd_image(seen: &Observed, cluster: &EtcdCluster) -> (String, String) {
    let spec = &cluster.spec;
    let image = objects::etcd_image(spec.image.as_ref(), &spec.version, &seen.settings.etcd_repository);
    (image, objects::pull_policy(spec.image.as_ref()).to_owned())
}

/// Returns the settings that the `CronJob` shares with the backups': without the members' priority, which drills must not have.
fn agent_job(seen: &Observed) -> AgentJob {
    let shared = arm::agent_job(seen);
    let meta = &seen.schedule.metadata;
    let drill = seen.schedule.spec.drill.as_ref();
    let resources = drill.and_then(|drill| drill.resources.clone());
    let decodes = drill.is_some_and(|drill| drill.kubernetes.is_some());
    let requests = if decodes { objects::kubernetes_drill_requests } else { objects::drill_requests };
    AgentJob {
        name: name::drill_cron_job(meta::name(meta), meta::uid(meta)),
        work: Request::Verify(request()),
        agent: Agent { resources: Some(resources.unwrap_or_else(requests)), ..shared.agent.clone() },
        placement: Placement { priority_class_name: None, ..shared.placement.clone() },
        ..shared
    }
}
