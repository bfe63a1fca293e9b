//! Writes a status: whole, only when it differs, and under the resourceVersion that was read, so that a stale writer gets a
//! conflict. The operator needs `update` on the status of its kinds.
//!
//! Decides that an API server with an older CRD ends the pass: it drops fields that it does not know, and a latch that is not
//! stored protects nothing.

use holdfast_api::condition::{self, Type};
use holdfast_api::{EtcdCluster, FIELD_MANAGER};
use holdfast_kube::requests;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::PostParams;

use super::context::Context;
use super::error::Error;
use super::kinds::Kind;

/// Whether the object's status differs from the wanted status.
pub(super) fn differs<K: Kind>(object: &K::Object, wanted: &K::Status) -> bool {
    K::status(object) != Some(wanted)
}

/// Writes the status, and returns the stored object. Fails where the API server stored less than was sent.
pub(super) async fn write<K: Kind>(ctx: &Context, object: &K::Object, status: K::Status) -> Result<K::Object, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    // As JSON, where a time has the precision in which it is stored.
    let sent = serde_json::to_value(&status).ok();
    let mut object = object.clone();
    K::put_status(&mut object, status);
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let written = ctx
        .writing(K::NAME, "status", &name, requests::replace_status(&ctx.write.0, &namespace, &name, &params, &object))
        .await?;
    ctx.own.note_changed(&written);
    if K::status(&written).and_then(|stored| serde_json::to_value(stored).ok()) == sent {
        Ok(written)
    } else {
        Err(Error::DefinitionOutdated(K::NAME))
    }
}

/// The conditions of an object as it was read.
pub(super) fn conditions<K: Kind>(object: &K::Object) -> &[Condition] {
    K::status(object).map_or(&[], K::conditions)
}

/// A cluster's state in one word, for a metric.
pub(super) fn cluster_state(cluster: &EtcdCluster) -> &'static str {
    let holds = |kind: Type| condition::is_true(cluster.status.iter().flat_map(|s| &s.conditions), kind);
    if holds(Type::Degraded) {
        "degraded"
    } else if holds(Type::Ready) {
        "ready"
    } else {
        "progressing"
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::condition::{self, Reason, Wanted};

    use super::*;
    use crate::kinds::Clusters;
    use jiff::Timestamp;

    fn cluster(wanted: &[Wanted]) -> EtcdCluster {
        let conditions = condition::merge(&[], wanted, Some(1), Timestamp::UNIX_EPOCH);
        let status = holdfast_api::EtcdClusterStatus { conditions, ..Default::default() };
        EtcdCluster { status: Some(status), ..EtcdCluster::default() }
    }

    #[test]
    fn a_status_is_written_only_when_it_differs() {
        let object = cluster(&[Wanted::yes(Type::Ready, Reason::AsDesired, "x")]);
        let mut wanted = object.status.clone().unwrap();
        assert!(!differs::<Clusters>(&object, &wanted));
        wanted.voters = 3;
        assert!(differs::<Clusters>(&object, &wanted));
        assert!(differs::<Clusters>(&EtcdCluster::default(), &holdfast_api::EtcdClusterStatus::default()));
    }

    #[test]
    fn trouble_wins_over_readiness() {
        let ready = Wanted::yes(Type::Ready, Reason::AsDesired, "x");
        let degraded = Wanted::yes(Type::Degraded, Reason::AlarmRaised, "x");
        assert_eq!(cluster_state(&cluster(&[ready.clone(), degraded])), "degraded");
        let risk = Wanted::yes(Type::AtRisk, Reason::MembersColocated, "x");
        assert_eq!(cluster_state(&cluster(&[ready, risk])), "ready");
        assert_eq!(cluster_state(&EtcdCluster::default()), "progressing");
    }
}
