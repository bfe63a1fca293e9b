//! What the Job of a snapshot is asked to do.
//!
//! Decides the request; the Job's shape is `plan::build::job`'s.

use k8s_openapi::api::batch::v1::Job;
use snapshot_agent::contract::{DEFAULT_SAVE_DEADLINE_SECONDS, EtcdFlags, SaveRequest};

use super::Observed;
use super::plan::Source;
use crate::api::{EtcdCluster, key, name};
use crate::plan::build::job::{SaveJob, save};
use crate::plan::{build, pods};

/// The Job for what was seen.
pub(super) fn build(seen: &Observed, cluster: &EtcdCluster, source: Source) -> Job {
    let snapshot = &seen.snapshot;
    let (own_name, own_uid) = (pods::name(&snapshot.metadata), pods::uid(&snapshot.metadata));
    let namespace = snapshot.metadata.namespace.clone().unwrap_or_default();
    save(&SaveJob {
        name: name::job(own_name, own_uid),
        namespace: snapshot.metadata.namespace.clone(),
        owner: Some(build::owner(snapshot)),
        snapshot: Some(own_name.to_owned()),
        request: SaveRequest {
            etcd: EtcdFlags { endpoints: source.endpoints },
            namespace,
            cluster: snapshot.spec.cluster_ref.name.clone(),
            cluster_uid: Some(pods::uid(&cluster.metadata).to_owned()),
            // Whatever answers at these names now has to be the etcd that was meant.
            expect_cluster_id: Some(source.cluster_id),
            owner_name: Some(own_name.to_owned()),
            owner_uid: Some(own_uid.to_owned()),
            compression: snapshot.spec.compression,
            deadline_seconds: snapshot.spec.deadline_seconds.unwrap_or(DEFAULT_SAVE_DEADLINE_SECONDS),
            ..SaveRequest::default()
        },
        destination: snapshot.spec.destination.clone(),
        image: seen.settings.agent_image.clone(),
        agent: snapshot.spec.agent.clone().unwrap_or_default(),
        placement: cluster.spec.placement.clone(),
        attempts_before: snapshot.status.as_ref().map_or(0, |s| s.attempts),
    })
}

/// Pods that were tried: by this Job, and by those before it. Never fewer than were counted before: Pods of a Job may
/// be cleaned away.
pub(super) fn attempts(seen: &Observed) -> i32 {
    let counted = seen.snapshot.status.as_ref().map_or(0, |s| s.attempts);
    let Some(job) = &seen.job else { return counted };
    let before =
        job.metadata.annotations.as_ref().and_then(|a| a.get(key::ATTEMPTS_BEFORE)?.parse::<i32>().ok()).unwrap_or(0);
    let there = i32::try_from(seen.pods.len()).unwrap_or(i32::MAX);
    let said = job
        .status
        .as_ref()
        .map_or(0, |s| [s.active, s.failed, s.succeeded].into_iter().flatten().fold(0_i32, i32::saturating_add));
    counted.max(before.saturating_add(there.max(said)))
}
