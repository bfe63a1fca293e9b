//! Input of one pass over an `EtcdSnapshot`: the object, its cluster, its Jobs and their Pods.

use std::collections::BTreeSet;

use holdfast_api::snapshot::Phase;
use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdSnapshot, key, name};
use holdfast_contract::Request;
use holdfast_plan::jobs::over;
use holdfast_plan::objects::job::CONTAINER;
use holdfast_plan::objects::request;
use holdfast_plan::snapshot::{Deletion, Inspection, Observed, holds, inspection, secrets};
use holdfast_plan::{Seen, meta, pods, retries};
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};

use super::labelled;
use super::restores::{Restored, restored};
use crate::clock;
use crate::error::Error;
use crate::reader::{Only, Reader, View};
use crate::unstarted::JOB_UID;

/// The Job controller creates a Job's first Pod within a second; a busy one within a few.
const HAS_MADE_ITS_POD: SignedDuration = SignedDuration::from_secs(5);

/// Reads the snapshot of this name and UID with its Job; `None` when the snapshot is gone.
pub(crate) async fn observe(reader: Reader<'_>, named: &str, uid: &str) -> Result<Option<Observed>, Error> {
    let Some(snapshot) = reader.get::<EtcdSnapshot>(named).await?.filter(|s| s.uid().as_deref() == Some(uid)) else {
        return Ok(None);
    };
    let job_name = snapshot.spec.run.as_ref().map_or_else(|| name::job(named, uid), |run| run.job.clone());
    let (cluster, store, job) = futures::try_join!(
        async {
            match &snapshot.spec.cluster_ref {
                Some(named) => reader.get::<EtcdCluster>(&named.name).await,
                None => Ok(None),
            }
        },
        async {
            match &snapshot.spec.template.destination.store_ref {
                Some(named) => reader.get::<EtcdBackupStore>(&named.name).await,
                None => Ok(None),
            }
        },
        reader.get::<Job>(&job_name),
    )?;
    // A Job of the name with another UID is not the run.
    let run = snapshot.spec.run.as_ref();
    let job = job.filter(|job| run.is_none_or(|run| job.uid().as_ref() == Some(&run.uid)));
    let cron_job = match (run, job.as_ref().and_then(controller)) {
        (Some(_), Some(cron)) => reader.get::<CronJob>(&cron).await?,
        _ => None,
    };
    let (pods, inspections) =
        futures::try_join!(pods_of(reader, job.as_ref()), inspections(reader, &snapshot, job.as_ref()))?;
    let needed = match (&job, run) {
        (Some(_), _) => pods.last().map(awaited_secrets).unwrap_or_default(),
        (None, Some(_)) => BTreeSet::new(),
        (None, None) => secrets(&snapshot),
    };
    let missing_secrets = missing_secrets(reader, &snapshot, needed).await?;
    let strays = match run {
        _ if job.is_some() => vec![],
        Some(run) => reader.list::<Pod>(Only::Label(JOB_UID, &run.uid), |pod| left_by(pod, &run.uid)).await?,
        None => strays(reader, named, uid).await?,
    };
    let refusal = refusal(reader, job.as_ref(), &pods).await;
    let unstarted = job.as_ref().and_then(ResourceExt::uid).map(|uid| reader.ctx.unstarted.of_job(&uid));
    let asking = inspections.iter().flat_map(|one| claim_users(reader, &one.pods));
    let claim_users = claim_users(reader, &pods).into_iter().chain(asking).collect();
    let deletion = if meta::deleting(&snapshot.metadata) && holds(&snapshot) {
        Some(deletion(reader, &snapshot).await?)
    } else {
        None
    };
    let settings = reader.ctx.settings.clone();
    Ok(Some(Observed {
        snapshot,
        cluster,
        store,
        missing_secrets,
        job,
        cron_job,
        pods,
        unstarted: unstarted.unwrap_or_default(),
        claim_users,
        refusal,
        strays,
        inspections,
        deletion,
        settings,
    }))
}

/// Facts for the deletion. The restores are read after the object with its latch.
async fn deletion(reader: Reader<'_>, snapshot: &EtcdSnapshot) -> Result<Deletion, Error> {
    let latched = snapshot.status.as_ref().and_then(|status| status.removal.as_ref());
    let job = async {
        match latched {
            Some(latched) => reader.get::<Job>(&latched.job).await,
            None => Ok(None),
        }
    };
    let (restored, job, terminating) = futures::join!(restored(reader), job, terminates(reader));
    let (Restored { keys: restores, searched }, job) = (restored?, job?);
    let pods = pods_of(reader, job.as_ref()).await?;
    Ok(Deletion { job: job.map(|job| Inspection { number: 0, job, pods }), restores, searched, terminating })
}

/// Whether the namespace is being deleted. The operator has no right to read namespaces; the API server refuses a create in
/// such a namespace (`dryRun`).
pub(super) async fn terminates(reader: Reader<'_>) -> bool {
    let api: Api<ConfigMap> = Api::namespaced(reader.ctx.read.0.clone(), reader.namespace);
    let mut probe = ConfigMap::default();
    probe.metadata.name = Some("holdfast-probe".to_owned());
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let asked =
        reader.ctx.reading(|| "ask whether the namespace is being deleted".to_owned(), api.create(&params, &probe));
    let Err(Error::Kube { source, .. }) = asked.await else { return false };
    let kube::Error::Api(status) = source.as_ref() else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Missing Secrets that an unfinished snapshot names. kubelet reports a missing Secret only in an Event of the Pod.
async fn missing_secrets(
    reader: Reader<'_>,
    snapshot: &EtcdSnapshot,
    named: BTreeSet<String>,
) -> Result<Vec<String>, Error> {
    if snapshot.status.as_ref().is_some_and(|s| s.phase.is_final()) {
        return Ok(vec![]);
    }
    let named = named.into_iter().map(async |name| Ok((reader.secret_version(&name).await?, name)));
    let seen = futures::future::try_join_all(named).await?;
    Ok(seen.into_iter().filter(|(version, _)| *version == Seen::Known(None)).map(|(_, name)| name).collect())
}

/// The Secrets without which kubelet does not start this Pod, while kubelet prepares the Pod.
fn awaited_secrets(pod: &Pod) -> BTreeSet<String> {
    let waits = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
    let volumes = pod.spec.iter().filter(|_| waits).flat_map(|spec| spec.volumes.iter().flatten());
    let secrets = volumes.filter_map(|volume| volume.secret.as_ref());
    secrets.filter(|secret| secret.optional != Some(true)).filter_map(|secret| secret.secret_name.clone()).collect()
}

/// The Jobs that ask the store about this snapshot, except the Job that saves it. Found by name, whatever their owner: a user
/// can remove labels.
async fn inspections(
    reader: Reader<'_>,
    snapshot: &EtcdSnapshot,
    saving: Option<&Job>,
) -> Result<Vec<Inspection>, Error> {
    // A Job that asked without an answer has set that phase, or the snapshot has a new attempt since.
    let asks = snapshot.status.as_ref().is_some_and(|s| match s.phase {
        Phase::Running => true,
        Phase::Pending => s.started_at.is_some(),
        Phase::Complete | Phase::Failed => false,
    });
    let name = |number| inspection(snapshot, saving, number);
    let jobs = if asks && saving.is_none_or(over) {
        // The names of all Jobs of a snapshot have the same prefix.
        let saves = name::job(&snapshot.name_any(), &snapshot.uid().unwrap_or_default());
        let head = saves.rsplit_once('-').map_or("", |(head, _)| head);
        let may_ask = |job: &Job| job.name_any().starts_with(head) && job.name_any() != saves;
        retries::consecutive_jobs(reader.list::<Job>(Only::Everything, may_ask).await?, |job| job, name)
    } else {
        reader.get::<Job>(&name(0)).await?.map(|job| (0, job)).into_iter().collect()
    };
    let with_pods = jobs.into_iter().map(|(number, job)| async move {
        let pods = pods_of(reader, Some(&job)).await?;
        Ok(Inspection { number, job, pods })
    });
    futures::future::try_join_all(with_pods).await
}

/// The Pods of a Job, oldest first.
pub(super) async fn pods_of(reader: Reader<'_>, job: Option<&Job>) -> Result<Vec<Pod>, Error> {
    let Some(uid) = job.and_then(ResourceExt::uid) else { return Ok(vec![]) };
    let made = |pod: &Pod| meta::controlled_by(&pod.metadata, &uid);
    let mut pods = reader.list::<Pod>(Only::Label(JOB_UID, &uid), made).await?;
    pods.sort_by_key(|pod| pod.creation_timestamp().map(|at| at.0));
    Ok(pods)
}

/// Other Pods with Holdfast's label that mount a claim of the last of these Pods, while that Pod waits. Only for messages: from
/// the cache.
pub(super) fn claim_users(reader: Reader<'_>, pods: &[Pod]) -> Vec<Pod> {
    let waits = |pod: &&Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Pending");
    let Some(pod) = pods.last().filter(waits) else { return vec![] };
    let found = reader.ctx.caches.pods.within(reader.namespace, |other| pods::shared_claim(pod, other).is_some());
    let mut found: Vec<Pod> = found.into_iter().map(|other| (*other).clone()).collect();
    found.sort_by_key(ResourceExt::name_any);
    found
}

/// Pods that save this snapshot and have not ended. Another snapshot may have had the name before, and a deleted Job cannot name
/// the owner of its Pods; the request of the Pod can.
async fn strays(reader: Reader<'_>, named: &str, uid: &str) -> Result<Vec<Pod>, Error> {
    let label = name::label_value(named);
    let saves = |pod: &Pod| {
        labelled(pod, key::SNAPSHOT, &label)
            && !pods::ended(pod)
            && matches!(
                request::of_container(pod.spec.as_ref(), CONTAINER),
                Some(Request::Save(save)) if save.owner_uid.as_deref() == Some(uid)
            )
    };
    reader.list::<Pod>(Only::Label(key::SNAPSHOT, &label), saves).await
}

/// Whether a Pod of a run has not ended, although its Job is gone.
fn left_by(pod: &Pod, run_uid: &str) -> bool {
    meta::controlled_by(&pod.metadata, run_uid) && !pods::ended(pod)
}

/// Name of the `CronJob` that controls a Job.
fn controller(job: &Job) -> Option<String> {
    let owners = job.owner_references();
    let cron = owners.iter().find(|owner| owner.controller == Some(true) && owner.kind == "CronJob");
    cron.map(|owner| owner.name.clone())
}

/// Whether a Job had time to create its first Pod, and its status does not explain the missing Pod.
fn waits(job: &Job) -> bool {
    let status = job.status.as_ref();
    let is_unfinished = status.is_none_or(|s| s.conditions.is_none() && s.failed.is_none() && s.succeeded.is_none());
    let suspended = job.spec.as_ref().and_then(|s| s.suspend) == Some(true);
    let old = job.creation_timestamp().is_some_and(|at| clock::now() >= at.0 + HAS_MADE_ITS_POD);
    is_unfinished && old && !suspended && job.meta().deletion_timestamp.is_none()
}

/// Reason why the API server refuses the Pods of this Job. The Job controller reports it only in Events, so the operator sends a
/// Pod that the API server judges and does not store (`dryRun`).
pub(super) async fn refusal(reader: Reader<'_>, job: Option<&Job>, pods: &[Pod]) -> Option<String> {
    let job = job.filter(|job| pods.is_empty() && waits(job))?;
    // The caches keep a part of the template.
    let whole = (Reader { view: View::Live, ..reader }).get::<Job>(&job.name_any()).await.ok().flatten();
    let template = whole.filter(|whole| whole.uid() == job.uid())?.spec?.template;
    let mut metadata = template.metadata.unwrap_or_default();
    // A fixed name: the message of a refusal contains it, and a message that differs on each pass would be written each time. The
    // Job controller gives its Pods other names.
    metadata.name = Some(format!("{}-pod", job.name_any()));
    let pod = Pod { metadata, spec: template.spec, status: None };
    let api: Api<Pod> = Api::namespaced(reader.ctx.read.0.clone(), reader.namespace);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match reader.ctx.reading(|| "judge a Pod".to_owned(), api.create(&params, &pod)).await {
        Ok(_) => None,
        Err(error) => error.refused(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    /// A user can remove labels, and the operator deletes the first of these Jobs before the last.
    #[tokio::test]
    async fn who_asks_the_store_is_found_by_name_also_when_the_first_is_gone() {
        let snapshot: EtcdSnapshot = serde_json::from_value(json!({
            "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdSnapshot",
            "metadata": {"name": "nightly", "namespace": "prod", "uid": "u"},
            "spec": {"clusterRef": {"name": "a"}, "destination": {"pvc": {"claimName": "backups"}}},
            "status": {"phase": "Running"},
        }))
        .unwrap();
        let job = |name: &str, number: &str| {
            let annotations = json!({key::ATTEMPTS_BEFORE: number});
            json!({"metadata": {"name": name, "namespace": "prod", "uid": name, "annotations": annotations}})
        };
        let [second, third, far] = [1, 2, 9].map(|number| inspection(&snapshot, None, number));
        let jobs = json!({"apiVersion": "batch/v1", "kind": "JobList", "metadata": {},
            "items": [job(&second, "1"), job(&third, "of no use"), job(&far, "3"), job("another", "0")]});
        let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []});
        let api = Fake::start(vec![("GET", "/jobs", 200, jobs), ("GET", "/pods", 200, pods)]).await;
        let reader = Reader { ctx: &api.ctx, namespace: "prod", view: View::Live };
        let found = inspections(reader, &snapshot, None).await.unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.number, one.job.name_any())).collect();
        assert_eq!(found, [(1, second), (2, third)]);
    }
}
