//! Input of one pass over an `EtcdSnapshotSchedule`: the object, its cluster and store, its `CronJob`s, the Jobs of the `CronJob`s,
//! the records of its runs, and the answer of the agent that records its log.

use futures::TryFutureExt;
use holdfast_api::snapshot::Phase;
use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdSnapshot, EtcdSnapshotSchedule, key, name};
use holdfast_contract::LogReport;
use holdfast_plan::objects::port;
use holdfast_plan::schedule::{Observed, Recall, is_log_pod, running_log_pod};
use holdfast_plan::{Seen, meta};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::restores::restored;
use super::snapshot::pods_of;
use super::{labelled, owned_by};
use crate::error::Error;
use crate::log_state;
use crate::reader::{Only, Reader, View};

/// Reads the schedule of this name and UID with its parts; `None` when the schedule is gone.
pub(crate) async fn observe(reader: Reader<'_>, named: &str, uid: &str) -> Result<Option<Observed>, Error> {
    let found = reader.get::<EtcdSnapshotSchedule>(named).await?;
    let Some(schedule) = found.filter(|s| s.uid().as_deref() == Some(uid)) else { return Ok(None) };
    let label = name::label_value(named);
    let cron_name = name::cron_job(named, uid);
    let drill_name = name::drill_cron_job(named, uid);
    let compaction_name = name::compaction_cron_job(named, uid);
    let log_name = name::log_deployment(named, uid);
    let (cluster, store, cron_job, drill_cron_job, compaction_cron_job, of_log, all, snapshots) = futures::try_join!(
        async {
            match &schedule.spec.cluster_ref {
                Some(named) => reader.get::<EtcdCluster>(&named.name).await,
                None => Ok(None),
            }
        },
        async {
            match &schedule.spec.snapshot_template.destination.store_ref {
                Some(named) => reader.get::<EtcdBackupStore>(&named.name).await,
                None => Ok(None),
            }
        },
        reader.get::<CronJob>(&cron_name),
        reader.get::<CronJob>(&drill_name),
        reader.get::<CronJob>(&compaction_name),
        log_deployment(reader, &schedule, &log_name),
        // By owner: a user can remove labels. A Job without its owner reference is another's Job.
        reader.list::<Job>(Only::Everything, |job| job
            .owner_references()
            .iter()
            .any(|owner| owner.controller == Some(true))),
        reader.list::<EtcdSnapshot>(Only::Label(key::SCHEDULE, &label), |s| labelled(s, key::SCHEDULE_UID, uid)),
    )?;
    let complete = |snapshot: &&EtcdSnapshot| snapshot.status.as_ref().is_some_and(|s| s.phase == Phase::Complete);
    let surplus = snapshots.iter().filter(complete).count() > schedule.spec.successful_limit();
    let (restores, held) = match schedule.spec.retention {
        Some(_) => futures::try_join!(restored(reader).map_ok(|restored| restored.keys), held(reader))?,
        None if surplus => (restored(reader).await?.keys, vec![]),
        None => (vec![], vec![]),
    };
    let own = |cron: &Option<CronJob>| cron.as_ref().filter(|cron| owned_by(*cron, uid)).and_then(ResourceExt::uid);
    let of = |owner: Option<String>| {
        move |job: &Job| owner.as_ref().is_some_and(|uid| meta::controlled_by(&job.metadata, uid))
    };
    let (jobs, others): (Vec<Job>, Vec<Job>) = all.into_iter().partition(of(own(&cron_job)));
    let (drills, others): (Vec<Job>, Vec<Job>) = others.into_iter().partition(of(own(&drill_cron_job)));
    let (merges, others): (Vec<Job>, Vec<Job>) = others.into_iter().partition(of(own(&compaction_cron_job)));
    let recalls = with_pods(reader, others.into_iter().filter(|job| owned_by(job, uid)).collect()).await?;
    let (drills, merges) = (with_pods(reader, drills).await?, with_pods(reader, merges).await?);
    let strangers = strangers(reader, &jobs, &snapshots).await?;
    let snapshots = [snapshots, strangers].concat();
    let (log_deployment, log_forbidden) = match of_log {
        Seen::Known(found) => (found, false),
        Seen::Unknown(_) => (None, true),
    };
    let (log_pods, log_report) = log(reader, uid, log_deployment.as_ref()).await?;
    let settings = reader.ctx.settings.clone();
    Ok(Some(Observed {
        schedule,
        cluster,
        store,
        cron_job,
        jobs,
        drill_cron_job,
        compaction_cron_job,
        drills,
        merges,
        log_deployment,
        log_forbidden,
        log_pods,
        log_report,
        snapshots,
        recalls,
        restores,
        held,
        settings,
    }))
}

/// Reads the Deployment of the log where the schedule has or had one. Unknown where Roles of an earlier version forbid the read: then the
/// watch fails too, and its cache shows nothing.
async fn log_deployment(
    reader: Reader<'_>,
    schedule: &EtcdSnapshotSchedule,
    named: &str,
) -> Result<Seen<Option<Deployment>>, Error> {
    let status = schedule.status.as_ref().and_then(|status| status.log.as_ref());
    if schedule.spec.log.is_none() && status.is_none_or(|log| log.deployment.is_none()) {
        return Ok(Seen::Known(None));
    }
    let cache = &reader.ctx.caches.deployments;
    let complete = cache.is_filled() && cache.is_whole(reader.namespace);
    let view = if complete { reader.view } else { View::Live };
    match (Reader { view, ..reader }).get::<Deployment>(named).await {
        Ok(found) => Ok(Seen::Known(found)),
        Err(error) if error.is_forbidden() => Ok(Seen::unknown("the operator may not read Deployments")),
        Err(error) => Err(error),
    }
}

/// Reads the Pods that record the schedule's log, oldest first, and asks the agent in the newest one.
async fn log(
    reader: Reader<'_>,
    uid: &str,
    deployment: Option<&Deployment>,
) -> Result<(Vec<Pod>, Seen<LogReport>), Error> {
    let Some(deployment) = deployment.filter(|deployment| owned_by(*deployment, uid)) else {
        return Ok((vec![], Seen::unknown("the schedule has no Deployment")));
    };
    let own = |pod: &Pod| is_log_pod(pod, deployment, uid);
    let mut pods = reader.list::<Pod>(Only::Label(key::SCHEDULE_UID, uid), own).await?;
    pods.sort_by_key(|pod| (pod.creation_timestamp().map(|at| at.0), pod.name_any()));
    let Some(pod) = running_log_pod(&pods) else { return Ok((pods, Seen::unknown("no agent runs"))) };
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap_or_default();
    let answer = match log_state::address(ip, port::PROGRESS) {
        Some(at) => reader.ctx.logs.ask(&pod.uid().unwrap_or_default(), at).await,
        None => Err("the Pod has no address yet".to_owned()),
    };
    let report = answer.map_or_else(Seen::unknown, Seen::Known);
    Ok((pods, report))
}

/// Reads the Pods of these Jobs.
async fn with_pods(reader: Reader<'_>, jobs: Vec<Job>) -> Result<Vec<Recall>, Error> {
    let each = jobs.into_iter().map(|job| async move {
        let pods = pods_of(reader, Some(&job)).await?;
        Ok::<_, Error>(Recall { job, pods })
    });
    futures::future::try_join_all(each).await
}

async fn held(reader: Reader<'_>) -> Result<Vec<String>, Error> {
    let held = reader.list::<EtcdSnapshot>(Only::Everything, |snapshot| snapshot.spec.hold).await?;
    Ok(held.into_iter().filter_map(|snapshot| Some(snapshot.status?.artifact?.key)).collect())
}

/// Snapshots with the name of one of the schedule's Jobs: objects of other owners, or records without their labels.
async fn strangers(reader: Reader<'_>, jobs: &[Job], known: &[EtcdSnapshot]) -> Result<Vec<EtcdSnapshot>, Error> {
    let named = jobs.iter().map(async |job| reader.get::<EtcdSnapshot>(&job.name_any()).await);
    let found = futures::future::try_join_all(named).await?.into_iter().flatten();
    Ok(found.filter(|found| known.iter().all(|known| known.uid() != found.uid())).collect())
}

#[cfg(test)]
mod tests {
    use holdfast_api::log::{Log, LogStatus};
    use holdfast_kube::caches::CacheWriter;
    use holdfast_kube::kinds::{CacheWriters, Caches};
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{Fake, refusal};

    /// Observes a schedule through the caches, that of the Deployments empty; returns also the number of reads.
    async fn seen(
        change: impl FnOnce(&mut EtcdSnapshotSchedule),
        code: u16,
        said: Value,
    ) -> (Result<Observed, Error>, usize) {
        let mut schedule: EtcdSnapshotSchedule = serde_json::from_value(json!({
            "metadata": {"name": "nightly", "namespace": "ns", "uid": "u-s"},
            "spec": {"schedule": "7 * * * *", "snapshotTemplate": {"destination": {"pvc": {"claimName": "backups"}}}},
        }))
        .unwrap();
        change(&mut schedule);
        let mut schedules = CacheWriter::<EtcdSnapshotSchedule>::default();
        schedules.apply(&Event::Apply(schedule));
        let caches = Caches { schedules: schedules.cache(), ..CacheWriters::default().caches() };
        let fake = Fake::filled(caches, vec![("GET", "/deployments/nightly-log-", code, said)]).await;
        let found = observe(Reader { ctx: &fake.ctx, namespace: "ns", view: View::Cached }, "nightly", "u-s").await;
        (found.map(Option::unwrap), fake.reads().len())
    }

    #[tokio::test]
    async fn rights_of_an_earlier_version_do_not_fail_a_pass() {
        let forbidden = || refusal(403, "Forbidden");
        let (none, reads) = seen(|_| (), 403, forbidden()).await;
        assert!(!none.unwrap().log_forbidden && reads == 0, "a schedule without a log needs no Deployment");
        let wants = |schedule: &mut EtcdSnapshotSchedule| schedule.spec.log = Some(Log::default());
        let had = |schedule: &mut EtcdSnapshotSchedule| {
            let log = LogStatus { deployment: Some("x".to_owned()), ..LogStatus::default() };
            schedule.status.get_or_insert_default().log = Some(log);
        };
        assert!(seen(wants, 403, forbidden()).await.0.unwrap().log_forbidden);
        assert!(seen(had, 403, forbidden()).await.0.unwrap().log_forbidden);
        assert!(seen(wants, 500, refusal(500, "InternalError")).await.0.is_err(), "unknown is not absent");
    }
}
