//! Requests of a snapshot's Jobs.
//!
//! Decides the requests; `plan::objects::job` decides the shape of the Jobs.

use holdfast_api::snapshot::{External, Removal};
use holdfast_api::{EtcdSnapshot, key, name};
use holdfast_contract::{
    DEFAULT_INSPECT_DEADLINE_SECONDS, DEFAULT_PRUNE_DEADLINE_SECONDS, InspectRequest, RemoveRequest, Request,
    SaveRequest,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::Observed;
use super::latch::endangered;
use super::place::Place;
use holdfast_base::objects::job::{AgentJob, job};
use holdfast_base::removals::REMOVES_FOR;
use holdfast_base::saving::{self, Source};
use holdfast_base::{meta, objects, retries, valid};

/// Returns the Job that saves the snapshot.
pub(super) fn save(seen: &Observed, to: Place, source: Source) -> Job {
    let snapshot = &seen.snapshot;
    let (own_name, own_uid) = (meta::name(&snapshot.metadata), meta::uid(&snapshot.metadata));
    let namespace = snapshot.metadata.namespace.clone().unwrap_or_default();
    let store_id = to.record.as_ref().and_then(|record| record.id.clone());
    let place = (namespace, saving::filed_under(snapshot.spec.cluster_ref.as_ref()));
    let endpoints = source.endpoints.clone();
    let request = SaveRequest {
        owner_name: Some(own_name.to_owned()),
        owner_uid: Some(own_uid.to_owned()),
        ..saving::request(&snapshot.spec.template, place, seen.cluster.as_ref(), source, store_id)
    };
    let attempts = snapshot.status.as_ref().map_or(0, |s| s.attempts);
    let etcd = snapshot.spec.external.clone().or_else(|| saving::with_certificates(seen.cluster.as_ref(), endpoints));
    build_job(seen, to, name::job(own_name, own_uid), Request::Save(request), attempts, etcd)
}

/// Returns the Job that asks the store whether this snapshot exists. The Job needs no cluster: the cluster and its UID may be
/// gone, so the agent searches every lineage with the cluster's name. `number`: number of the earlier Jobs that asked.
pub(super) fn inspect(seen: &Observed, at: Place, number: i32) -> Job {
    let snapshot = &seen.snapshot;
    let request = InspectRequest {
        // Another store has no answer about a snapshot saved in this store.
        expect_store_id: at.record.as_ref().and_then(|record| record.id.clone()),
        namespace: snapshot.metadata.namespace.clone().unwrap_or_default(),
        cluster: saving::filed_under(snapshot.spec.cluster_ref.as_ref()),
        owner_uid: seen.owner_uid().to_owned(),
        deadline_seconds: DEFAULT_INSPECT_DEADLINE_SECONDS,
        ..InspectRequest::default()
    };
    build_job(seen, at, inspection(snapshot, seen.job.as_ref(), number), Request::Inspect(request), number, None)
}

/// Returns the Job that removes the stored snapshot, named by the latch.
pub(super) fn remove(
    seen: &Observed,
    at: Place,
    latch: &Removal,
    (key, manifest_sha256): (&str, &str),
    allow_last: bool,
) -> Job {
    let request = RemoveRequest {
        expect_store_id: at.record.as_ref().and_then(|record| record.id.clone()),
        key: key.to_owned(),
        manifest_sha256: manifest_sha256.to_owned(),
        owner_uid: Some(seen.owner_uid().to_owned()),
        allow_last,
        not_after: latch.latched_at.parse::<Timestamp>().ok().map(|at| at + REMOVES_FOR),
        deadline_seconds: DEFAULT_PRUNE_DEADLINE_SECONDS,
        ..RemoveRequest::default()
    };
    let mut job = build_job(seen, at, latch.job.clone(), Request::Remove(request), 0, None);
    // For restores that look after the object is gone. JSON of our own types cannot fail.
    let run = serde_json::to_string(&endangered(latch, key)).unwrap_or_default();
    job.metadata.annotations.get_or_insert_default().insert(key::PRUNE_RUN.to_owned(), run);
    job
}

/// Name of the Job that asks the store. The name depends on the saving Job, or its absence, and on the number of earlier
/// questions: an answer from before the saving Job tells nothing about the time after.
pub fn inspection(snapshot: &EtcdSnapshot, saving: Option<&Job>, number: i32) -> String {
    let attempts = snapshot.status.as_ref().map_or(0, |s| s.attempts);
    let question =
        saving.map_or_else(|| format!("after {attempts} attempts"), |job| meta::uid(&job.metadata).to_owned());
    let question = if number > 0 { format!("{question}/{number}") } else { question };
    name::inspection(meta::name(&snapshot.metadata), meta::uid(&snapshot.metadata), &question)
}

fn build_job(
    seen: &Observed,
    place: Place,
    name: String,
    work: Request,
    attempts_before: i32,
    external: Option<External>,
) -> Job {
    let snapshot = &seen.snapshot;
    let Place { location: destination, record } = place;
    let cluster = seen.cluster.as_ref();
    job(&AgentJob {
        namespace: snapshot.metadata.namespace.clone(),
        owner: Some(objects::owner(snapshot)),
        snapshot: Some(meta::name(&snapshot.metadata).to_owned()),
        record,
        external,
        spool: snapshot.spec.template.spool.clone(),
        agent: snapshot.spec.template.agent.clone().unwrap_or_default(),
        placement: cluster.map(|c| c.spec.placement.clone()).unwrap_or_default(),
        attempts_before,
        most_bytes: cluster.and_then(valid::most_bytes),
        proxies: seen.settings.proxies.clone(),
        run_as: seen.settings.pod_run_as,
        ..AgentJob::new(name, work, destination, seen.settings.agent_image.clone())
    })
}

/// Returns the number of Pods that tried: of this Job and of earlier Jobs; without a Job, the Pods that are still ending. The
/// number never decreases, although Kubernetes may remove Pods of a Job.
pub(super) fn attempts(seen: &Observed) -> i32 {
    let counted = seen.snapshot.status.as_ref().map_or(0, |s| s.attempts);
    let many = |pods: usize| i32::try_from(pods).unwrap_or(i32::MAX);
    let Some(job) = &seen.job else { return counted.max(many(seen.strays.len())) };
    let (before, there) = (retries::earlier_jobs(job), many(seen.pods.len()));
    let reported = job
        .status
        .as_ref()
        .map_or(0, |s| [s.active, s.failed, s.succeeded].into_iter().flatten().fold(0_i32, i32::saturating_add));
    counted.max(before.saturating_add(there.max(reported)))
}
