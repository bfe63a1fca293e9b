//! Runs that no due time starts.
//!
//! Decides the save after a gap in the log, and the save after a return in place: from then on etcd has another cluster ID, and
//! neither the log nor a restore goes on from an earlier snapshot. Each is started once, and beside no other run; the next due time
//! comes after a run that failed.

use holdfast_api::log::Interruption;
use holdfast_api::name;
use holdfast_api::snapshot::Phase;
use holdfast_api::timeline::{self, ReturnPhase};
use holdfast_contract::Request;
use k8s_openapi::api::batch::v1::CronJob;

use super::Observed;
use super::facts::{self, Run};
use holdfast_base::objects::cron_job::run_now;
use holdfast_base::objects::job::CONTAINER;
use holdfast_base::objects::request;
use holdfast_base::{Act, meta};

/// Returns the save after a gap in the log.
pub(super) fn save_after_gap(seen: &Observed, runs: &[Run<'_>], gap: &Interruption) -> Option<Act> {
    start(seen, runs, name::after_gap(meta::name(&seen.schedule.metadata), seen.uid(), gap.until))
}

/// Returns the save after a return in place.
pub(super) fn save_after_return(seen: &Observed, runs: &[Run<'_>]) -> Option<Act> {
    let latches = &seen.cluster.as_ref()?.status.as_ref()?.latches;
    let under_way = latches.returning.as_ref().is_some_and(|returning| returning.phase() != ReturnPhase::Complete);
    let formed = latches.formed.as_ref().filter(|_| !under_way)?;
    let cluster_id = latches.timeline.filter(|timeline| *timeline > timeline::FIRST).map(|_| &formed.cluster_id)?;
    let is_of_it = |run: &Run<'_>| {
        let status = run.snapshot.status.as_ref().filter(|status| status.phase == Phase::Complete);
        status.and_then(|status| status.source.as_ref()).is_some_and(|source| source.cluster_id == *cluster_id)
    };
    // A CronJob that still names the earlier etcd would save nothing.
    let saves = seen.own_cron_job().and_then(saved_cluster);
    if runs.iter().any(is_of_it) || saves.as_ref() != Some(cluster_id) {
        return None;
    }
    start(seen, runs, name::after_return(meta::name(&seen.schedule.metadata), seen.uid(), cluster_id))
}

/// Returns the etcd cluster ID that the Jobs of a `CronJob` expect.
fn saved_cluster(cron: &CronJob) -> Option<String> {
    let job = cron.spec.as_ref()?.job_template.spec.as_ref()?;
    match request::of_container(job.template.spec.as_ref(), CONTAINER)? {
        Request::Save(request) => request.expect_cluster_id,
        _ => None,
    }
}

/// Starts a run: once, and beside no other run.
fn start(seen: &Observed, runs: &[Run<'_>], name: String) -> Option<Act> {
    let cron = seen.own_cron_job()?;
    let starts = cron.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true));
    let is_active = runs.iter().any(|run| !run.phase().is_final());
    let is_made =
        seen.jobs.iter().any(|job| meta::name(&job.metadata) == name) || runs.iter().any(|run| run.job.job == name);
    let idle = starts && !is_active && facts::unrecorded(seen).is_empty();
    (idle && !is_made).then(|| Act::StartRun(Box::new(run_now(cron, name))))
}
