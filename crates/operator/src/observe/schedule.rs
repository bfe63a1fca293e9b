//! Input of one pass over an `EtcdSnapshotSchedule`: the object, its cluster and store, its `CronJob`s, the Jobs of the `CronJob`s,
//! and the records of its runs.

use futures::TryFutureExt;
use holdfast_api::snapshot::Phase;
use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdSnapshot, EtcdSnapshotSchedule, key, name};
use holdfast_plan::meta;
use holdfast_plan::schedule::{Observed, Recall};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;

use super::restores::restored;
use super::snapshot::pods_of;
use super::{labelled, owned_by};
use crate::error::Error;
use crate::reader::{Only, Reader};

/// Reads the schedule of this name and UID with its parts; `None` when the schedule is gone.
pub(crate) async fn observe(reader: Reader<'_>, named: &str, uid: &str) -> Result<Option<Observed>, Error> {
    let found = reader.get::<EtcdSnapshotSchedule>(named).await?;
    let Some(schedule) = found.filter(|s| s.uid().as_deref() == Some(uid)) else { return Ok(None) };
    let label = name::label_value(named);
    let cron_name = name::cron_job(named, uid);
    let drill_name = name::drill_cron_job(named, uid);
    let compaction_name = name::compaction_cron_job(named, uid);
    let (cluster, store, cron_job, drill_cron_job, compaction_cron_job, all, snapshots) = futures::try_join!(
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
    let (cron_uid, drill_uid) = (own(&cron_job).unwrap_or_default(), own(&drill_cron_job));
    let (jobs, others): (Vec<Job>, Vec<Job>) =
        all.into_iter().partition(|job| meta::controlled_by(&job.metadata, &cron_uid));
    let (drills, others): (Vec<Job>, Vec<Job>) = others
        .into_iter()
        .partition(|job| drill_uid.as_ref().is_some_and(|uid| meta::controlled_by(&job.metadata, uid)));
    let recalls = with_pods(reader, others.into_iter().filter(|job| owned_by(job, uid)).collect()).await?;
    let drills = with_pods(reader, drills).await?;
    let strangers = strangers(reader, &jobs, &snapshots).await?;
    let snapshots = [snapshots, strangers].concat();
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
        snapshots,
        recalls,
        restores,
        held,
        settings,
    }))
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
