//! The source of a cluster's restore: its `EtcdRestore`, the objects that it names, the Jobs that search for it, and the runs that may
//! remove it.

use holdfast_api::restore::Restore;
use holdfast_api::schedule::PruneRun;
use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdMember, EtcdRestore, EtcdSnapshot, EtcdSnapshotSchedule, key};
use holdfast_kube::kinds::Cached;
use holdfast_plan::Seen;
use holdfast_plan::cluster::ClusterJob;
use holdfast_plan::cluster::timeline::find_turn;
use holdfast_plan::schedule::{live_job, live_run};
use holdfast_plan::snapshot::live_removal;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::owned_by;
use super::snapshot::{pods_of, refusal};
use crate::clock;
use crate::error::Error;
use crate::reader::{Only, Reader};

/// The objects that a restore names, and those that endanger it.
pub(super) struct Source {
    pub(super) snapshot: Option<Seen<Option<EtcdSnapshot>>>,
    pub(super) store: Option<Seen<Option<EtcdBackupStore>>>,
    pub(super) searches: Vec<ClusterJob>,
    pub(super) prunes: Vec<PruneRun>,
    pub(super) refusal: Option<String>,
}

/// Reads the source of a restore. `seeks`: the source is not latched yet.
pub(super) async fn read_source(
    reader: Reader<'_>,
    restore: Option<&Restore>,
    (restores, seeks): (bool, bool),
    uid: &str,
) -> Result<Source, Error> {
    let wanted_snapshot = restore.and_then(|r| r.snapshot_ref.as_ref()).map(|r| r.name.as_str());
    let wanted_store = restore.and_then(Restore::store);
    let searches = seeks && restore.is_some_and(|r| r.latest.is_some());
    let (snapshot, store, searches, prunes) = futures::try_join!(
        named_object::<EtcdSnapshot>(reader, wanted_snapshot),
        named_object::<EtcdBackupStore>(reader, wanted_store),
        async { if searches { cluster_jobs(reader, uid).await } else { Ok(vec![]) } },
        // After the cluster with its latch: a schedule that latches later reads that latch.
        async { if restores && restore.is_some() { removals(reader).await } else { Ok(vec![]) } },
    )?;
    let refusal = refused_search(reader, searches.last()).await;
    // Only the `EtcdSnapshot`, once read, names the store that it was saved to.
    let store = match (store, saved_to(snapshot.as_ref()).filter(|_| seeks)) {
        (None, Some(wanted)) => Some(Seen::Known(reader.get::<EtcdBackupStore>(wanted).await?)),
        (store, _) => store,
    };
    Ok(Source { snapshot, store, searches, prunes, refusal })
}

/// The `EtcdRestore` that is under way, or whose turn it is. From the cache, and then the one that was found by its name: its absence begins
/// nothing, and a later event wakes the pass.
pub(super) async fn returns(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    members: &[EtcdMember],
) -> Result<Option<EtcdRestore>, Error> {
    let all = reader.ctx.caches.restores.of_cluster(reader.namespace, &cluster.name_any());
    let members: Vec<&EtcdMember> = members.iter().collect();
    let Some(found) = find_turn(cluster, &members, all.iter().map(AsRef::as_ref)).cloned() else { return Ok(None) };
    let read = reader.get::<EtcdRestore>(&found.name_any()).await?;
    Ok(read.filter(|restore| restore.uid() == found.uid()))
}

/// Reads an object that the spec names; `None` where the spec names none.
async fn named_object<K: Cached>(reader: Reader<'_>, wanted: Option<&str>) -> Result<Option<Seen<Option<K>>>, Error> {
    match wanted {
        Some(wanted) => reader.get::<K>(wanted).await.map(|found| Some(Seen::Known(found))),
        None => Ok(None),
    }
}

/// Why the API server refuses the Pod of a search.
async fn refused_search(reader: Reader<'_>, search: Option<&ClusterJob>) -> Option<String> {
    refusal(reader, search.map(|s| &s.job), search.map_or(&[], |s| s.pods.as_slice())).await
}

/// The runs that may remove snapshots: of schedules, of snapshots that are being deleted, and of the Jobs that both leave behind.
async fn removals(reader: Reader<'_>) -> Result<Vec<PruneRun>, Error> {
    let removes = |job: &Job| job.annotations().contains_key(key::PRUNE_RUN);
    let goes = |snapshot: &EtcdSnapshot| snapshot.status.as_ref().is_some_and(|status| status.removal.is_some());
    let (schedules, snapshots, jobs) = futures::try_join!(
        reader.list::<EtcdSnapshotSchedule>(Only::Everything, |_| true),
        reader.list::<EtcdSnapshot>(Only::Everything, goes),
        reader.list::<Job>(Only::Everything, removes),
    )?;
    let now = clock::now();
    let latched = schedules.iter().filter_map(|schedule| live_run(schedule, now));
    let latched = latched.chain(snapshots.iter().filter_map(|snapshot| live_removal(snapshot, now)));
    Ok(latched.chain(jobs.iter().filter_map(|job| live_job(job, now))).collect())
}

/// Name of the `EtcdBackupStore` that a snapshot was saved to.
fn saved_to(snapshot: Option<&Seen<Option<EtcdSnapshot>>>) -> Option<&str> {
    let status = snapshot?.known()?.as_ref()?.status.as_ref()?;
    Some(status.store.as_ref()?.name.as_str())
}

/// The Jobs of a cluster, which look for the latest snapshot or rehearse an upgrade, and their Pods, oldest first.
pub(super) async fn cluster_jobs(reader: Reader<'_>, uid: &str) -> Result<Vec<ClusterJob>, Error> {
    let mut jobs = reader.list::<Job>(Only::Everything, |job| owned_by(job, uid)).await?;
    jobs.sort_by_key(|job| job.creation_timestamp().map(|at| at.0));
    let with_pods = jobs.into_iter().map(|job| async move {
        let pods = pods_of(reader, Some(&job)).await?;
        Ok(ClusterJob { job, pods })
    });
    futures::future::try_join_all(with_pods).await
}
