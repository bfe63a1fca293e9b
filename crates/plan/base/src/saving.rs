//! The request to an agent that saves, for one snapshot and for every run of a schedule.
//!
//! Decides the request from a template and the facts about etcd. `objects/job.rs` decides the Job's shape.

use holdfast_api::cluster::EtcdClusterSpec;
use holdfast_api::condition::Reason;
use holdfast_api::name::{LocalRef, Scheme};
use holdfast_api::snapshot::{EXTERNAL, External, SnapshotTemplate};
use holdfast_api::{EtcdCluster, name};
use holdfast_contract::{
    DEFAULT_MIN_THROUGHPUT_KIB, DEFAULT_SAVE_DEADLINE_SECONDS, EtcdFlags, MAX_CLUSTER_SPEC, SaveRequest,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::stored_key::attempt_of;
use super::{meta, valid};

/// Facts about the cluster for a Job; empty for an external etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Client URLs of the voters.
    pub endpoints: Vec<String>,
    /// UID of the cluster.
    pub cluster_uid: Option<String>,
    /// etcd's cluster ID, hexadecimal.
    pub cluster_id: Option<String>,
    /// Key of the snapshot that the cluster was restored from.
    pub restored_from: Option<String>,
}

/// Returns the facts about a formed cluster with voters, or the missing condition.
pub fn source(cluster: &EtcdCluster) -> Result<Source, (Reason, String)> {
    let name = meta::name(&cluster.metadata);
    let status = cluster.status.as_ref();
    let Some(formed) = status.and_then(|s| s.latches.formed.as_ref()) else {
        let why = format!("EtcdCluster {name} has not formed yet; its conditions name the cause");
        return Err((Reason::WaitingForCluster, why));
    };
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
    let endpoints: Vec<String> = status
        .iter()
        .flat_map(|s| &s.members)
        .filter(|m| m.role.as_deref() == Some(holdfast_api::role::VOTER))
        .map(|m| name::client_url(cluster.scheme(), &m.name, name, namespace))
        .collect();
    if endpoints.is_empty() {
        let why = format!("EtcdCluster {name} lists no voter now; its conditions name the cause");
        return Err((Reason::WaitingForCluster, why));
    }
    let cluster_uid = Some(meta::uid(&cluster.metadata).to_owned());
    let point = status.and_then(|s| s.restore.as_ref()).filter(|r| r.point.as_ref().is_some_and(|p| p.proof.is_some()));
    let base = point.and_then(|restore| restore.uri.as_deref()).map(attempt_of);
    let stored = formed.restored_from.as_ref().filter(|restoring| restoring.survivor.is_none());
    let restored_from = stored.map(|restoring| match &restoring.at {
        None => restoring.source.key.clone(),
        // Without a report the lineage: a search for the latest snapshot then asks a person.
        Some(_) => base.unwrap_or_else(|| restoring.source.key.clone()),
    });
    Ok(Source { endpoints, cluster_uid, cluster_id: Some(formed.cluster_id.clone()), restored_from })
}

/// Returns the request, without the owner of the Job.
pub fn request(
    template: &SnapshotTemplate,
    (namespace, filed_under): (String, String),
    cluster: Option<&EtcdCluster>,
    source: Source,
    store_id: Option<String>,
) -> SaveRequest {
    SaveRequest {
        etcd: EtcdFlags { endpoints: source.endpoints, ..EtcdFlags::default() },
        // The store behind these names must be the intended store (I25).
        expect_store_id: store_id,
        namespace,
        cluster: filed_under,
        cluster_uid: source.cluster_uid,
        cluster_spec: cluster.and_then(|cluster| recorded(&cluster.spec)),
        restored_from: source.restored_from,
        // The etcd behind these names must be the intended etcd.
        expect_cluster_id: source.cluster_id,
        compression: template.compression,
        verify: template.verify,
        ask_members: template.ask_members.unwrap_or_default(),
        age_recipients: template.encryption.as_ref().map(|e| e.age.recipients.clone()).unwrap_or_default(),
        min_throughput_kib: least(template.minimum_throughput.as_ref()),
        deadline_seconds: template.deadline_seconds.unwrap_or(DEFAULT_SAVE_DEADLINE_SECONDS),
        ..SaveRequest::default()
    }
}

/// Returns the folder name of the etcd in the key.
pub fn filed_under(cluster: Option<&LocalRef>) -> String {
    cluster.map_or(EXTERNAL, |cluster| &cluster.name).to_owned()
}

/// Returns the connection to an EtcdCluster with TLS: the agent uses the operator's certificate.
pub fn with_certificates(cluster: Option<&EtcdCluster>, endpoints: Vec<String>) -> Option<External> {
    let cluster = cluster.filter(|c| c.scheme() == Scheme::Https)?;
    let tls_secret_ref = Some(LocalRef { name: name::operator_tls(meta::name(&cluster.metadata)) });
    Some(External { endpoints, tls_secret_ref, ..External::default() })
}

/// Returns KiB a second, rounded up, so that a small value does not turn the limit off. Admission refuses an invalid quantity.
fn least(throughput: Option<&Quantity>) -> u64 {
    throughput.and_then(valid::bytes).map_or(DEFAULT_MIN_THROUGHPUT_KIB, |bytes| bytes.div_ceil(1 << 10))
}

/// Returns the spec for the manifest, so that the store alone is enough to create the cluster again: without `bootstrap` and
/// `paused`.
fn recorded(spec: &EtcdClusterSpec) -> Option<String> {
    let spec = EtcdClusterSpec { bootstrap: None, paused: false, ..spec.clone() };
    // One environment variable takes 128 KiB at most, and a longer spec must not fail the backup.
    serde_json::to_string(&spec).ok().filter(|json| json.len() <= MAX_CLUSTER_SPEC)
}

#[cfg(test)]
mod tests {
    use holdfast_api::cluster::Placement;
    use holdfast_api::restore::Bootstrap;
    use serde_json::{Value, json};

    use super::*;

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
