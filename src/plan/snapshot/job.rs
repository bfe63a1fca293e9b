//! What the Jobs of a snapshot are asked to do.
//!
//! Decides the requests; the Jobs' shape is `plan::build::job`'s.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use snapshot_agent::contract::{
    DEFAULT_INSPECT_DEADLINE_SECONDS, DEFAULT_MIN_THROUGHPUT_KIB, DEFAULT_SAVE_DEADLINE_SECONDS, EtcdFlags,
    InspectRequest, MAX_CLUSTER_SPEC, SaveRequest,
};

use super::Observed;
use super::place::Place;
use super::stage::Source;
use crate::api::cluster::EtcdClusterSpec;
use crate::api::name::{LocalRef, Scheme};
use crate::api::snapshot::{EXTERNAL, External};
use crate::api::{EtcdSnapshot, name};
use crate::plan::build::job::{AgentJob, Work, job};
use crate::plan::{build, meta, row, valid};

/// The Job that saves what was seen.
pub(super) fn save(seen: &Observed, to: Place, source: Source) -> Job {
    let snapshot = &seen.snapshot;
    let (own_name, own_uid) = (meta::name(&snapshot.metadata), meta::uid(&snapshot.metadata));
    let namespace = snapshot.metadata.namespace.clone().unwrap_or_default();
    let request = SaveRequest {
        etcd: EtcdFlags { endpoints: source.endpoints.clone(), ..EtcdFlags::default() },
        // Whatever its names lead to now has to be the store that was meant (I25).
        expect_store_id: to.record.as_ref().and_then(|record| record.id.clone()),
        namespace,
        cluster: filed_under(snapshot),
        cluster_uid: source.cluster_uid,
        cluster_spec: seen.cluster.as_ref().and_then(|cluster| recorded(&cluster.spec)),
        restored_from: source.restored_from,
        // Whatever answers at these names now has to be the etcd that was meant.
        expect_cluster_id: source.cluster_id,
        owner_name: Some(own_name.to_owned()),
        owner_uid: Some(own_uid.to_owned()),
        compression: snapshot.spec.compression,
        verify: snapshot.spec.verify,
        ask_members: snapshot.spec.ask_members.unwrap_or_default(),
        age_recipients: snapshot.spec.encryption.as_ref().map(|e| e.age.recipients.clone()).unwrap_or_default(),
        min_throughput_kib: least(snapshot.spec.minimum_throughput.as_ref()),
        deadline_seconds: snapshot.spec.deadline_seconds.unwrap_or(DEFAULT_SAVE_DEADLINE_SECONDS),
        ..SaveRequest::default()
    };
    let attempts = snapshot.status.as_ref().map_or(0, |s| s.attempts);
    let etcd = snapshot.spec.external.clone().or_else(|| with_certificates(seen, source.endpoints));
    of(seen, to, name::job(own_name, own_uid), Work::Save(request), attempts, etcd)
}

/// A cluster of ours that demands certificates: the agent shows the operator's.
fn with_certificates(seen: &Observed, endpoints: Vec<String>) -> Option<External> {
    let cluster = seen.cluster.as_ref().filter(|c| c.spec.scheme() == Scheme::Https)?;
    let tls_secret_ref = Some(LocalRef { name: name::operator_tls(meta::name(&cluster.metadata)) });
    Some(External { endpoints, tls_secret_ref, ..External::default() })
}

/// KiB a second, rounded up: what is asked for is not turned off. What is no size is refused at admission.
fn least(throughput: Option<&Quantity>) -> u64 {
    throughput.and_then(valid::bytes).map_or(DEFAULT_MIN_THROUGHPUT_KIB, |bytes| bytes.div_ceil(1 << 10))
}

/// What a manifest records of the cluster, so that the store alone is enough to make it again: all but where its own first
/// data came from, and whether somebody has paused it.
fn recorded(spec: &EtcdClusterSpec) -> Option<String> {
    let spec = EtcdClusterSpec { bootstrap: None, paused: false, ..spec.clone() };
    // One variable of a process takes 128 KiB at most: a longer spec is not worth a failed backup.
    serde_json::to_string(&spec).ok().filter(|json| json.len() <= MAX_CLUSTER_SPEC)
}

/// The Job that asks the store whether this snapshot is there. It needs no cluster: that may be gone by now, and its UID
/// with it, so every lineage of that name is looked through. `number`: how many Jobs have asked before.
pub(super) fn inspect(seen: &Observed, at: Place, number: i32) -> Job {
    let snapshot = &seen.snapshot;
    let request = InspectRequest {
        // Another store says nothing of what was saved in this one.
        expect_store_id: at.record.as_ref().and_then(|record| record.id.clone()),
        namespace: snapshot.metadata.namespace.clone().unwrap_or_default(),
        cluster: filed_under(snapshot),
        owner_uid: meta::uid(&snapshot.metadata).to_owned(),
        deadline_seconds: DEFAULT_INSPECT_DEADLINE_SECONDS,
        ..InspectRequest::default()
    };
    of(seen, at, inspection(snapshot, seen.job.as_ref(), number), Work::Inspect(request), number, None)
}

/// The name that stands for the etcd in the key.
fn filed_under(snapshot: &EtcdSnapshot) -> String {
    snapshot.spec.cluster_ref.as_ref().map_or(EXTERNAL, |cluster| &cluster.name).to_owned()
}

/// Name of the Job that asks the store, while this is (or is not) the Job that saves, after so many others: what was
/// answered before the Job that saves was made says nothing of what came after.
pub fn inspection(snapshot: &EtcdSnapshot, saving: Option<&Job>, number: i32) -> String {
    let attempts = snapshot.status.as_ref().map_or(0, |s| s.attempts);
    let question =
        saving.map_or_else(|| format!("after {attempts} attempts"), |job| meta::uid(&job.metadata).to_owned());
    let question = if number > 0 { format!("{question}/{number}") } else { question };
    name::inspection(meta::name(&snapshot.metadata), meta::uid(&snapshot.metadata), &question)
}

fn of(
    seen: &Observed,
    place: Place,
    name: String,
    work: Work,
    attempts_before: i32,
    external: Option<External>,
) -> Job {
    let snapshot = &seen.snapshot;
    let Place { location: destination, record } = place;
    let cluster = seen.cluster.as_ref();
    job(&AgentJob {
        namespace: snapshot.metadata.namespace.clone(),
        owner: Some(build::owner(snapshot)),
        snapshot: Some(meta::name(&snapshot.metadata).to_owned()),
        record,
        external,
        spool: snapshot.spec.spool.clone(),
        agent: snapshot.spec.agent.clone().unwrap_or_default(),
        placement: cluster.map(|c| c.spec.placement.clone()).unwrap_or_default(),
        attempts_before,
        most_bytes: cluster.and_then(valid::most_bytes),
        proxies: seen.settings.proxies.clone(),
        ..AgentJob::of(name, work, destination, seen.settings.agent_image.clone())
    })
}

/// Pods that were tried: by this Job, and by those before it; without a Job, those that are still ending. Never fewer than
/// were counted before: Pods of a Job may be cleaned away.
pub(super) fn attempts(seen: &Observed) -> i32 {
    let counted = seen.snapshot.status.as_ref().map_or(0, |s| s.attempts);
    let many = |pods: usize| i32::try_from(pods).unwrap_or(i32::MAX);
    let Some(job) = &seen.job else { return counted.max(many(seen.strays.len())) };
    let (before, there) = (row::said(job), many(seen.pods.len()));
    let said = job
        .status
        .as_ref()
        .map_or(0, |s| [s.active, s.failed, s.succeeded].into_iter().flatten().fold(0_i32, i32::saturating_add));
    counted.max(before.saturating_add(there.max(said)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::cluster::Placement;
    use crate::api::restore::Bootstrap;

    #[test]
    fn the_least_throughput_is_rounded_up_and_never_left_out() {
        let of = |text: &str| least(Some(&Quantity(text.to_owned())));
        for (text, kib) in [("1Mi", 1024), ("0.1Mi", 103), ("1500m", 1), ("1", 1), ("1.5Ki", 2)] {
            assert_eq!(of(text), kib, "{text}");
        }
        assert_eq!(least(None), DEFAULT_MIN_THROUGHPUT_KIB);
    }

    #[test]
    fn what_is_recorded_makes_the_same_cluster_and_not_its_past() {
        let spec = EtcdClusterSpec {
            replicas: 3,
            version: "3.6.16".to_owned(),
            bootstrap: Some(Bootstrap::default()),
            paused: true,
            ..EtcdClusterSpec::default()
        };
        let json: Value = serde_json::from_str(&recorded(&spec).unwrap()).unwrap();
        assert_eq!((&json["replicas"], &json["version"]), (&json!(3), &json!("3.6.16")));
        assert_eq!((json.get("bootstrap"), json.get("paused")), (None, None));
        let again: EtcdClusterSpec = serde_json::from_value(json).unwrap();
        assert_eq!(again, EtcdClusterSpec { bootstrap: None, paused: false, ..spec.clone() });

        let placement = Placement { priority_class_name: Some("x".repeat(MAX_CLUSTER_SPEC)), ..Placement::default() };
        assert_eq!(recorded(&EtcdClusterSpec { placement, ..spec }), None, "too long for a process");
    }
}
