//! Numbers about each cluster and each store, built anew from the caches for each scrape: the series of a deleted object vanish.
//!
//! Decides names and labels. Numbers about the operator itself are in `metrics.rs`.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::api::condition::Type;
use crate::api::tls::TlsStatus;
use crate::api::{EtcdBackupStore, EtcdCluster};

type Object = [(&'static str, String); 2];
type Leveled = [(&'static str, String); 3];
type Planed = [(&'static str, String); 4];

/// One series for each object.
pub(super) fn registry(clusters: &[Arc<EtcdCluster>], stores: &[Arc<EtcdBackupStore>]) -> Registry {
    let mut registry = Registry::with_prefix("holdfast");
    let mut gauge = |name: &str, help: &str| {
        let family = Family::<Object, Gauge>::default();
        registry.register(name, help, family.clone());
        family
    };
    let ready = gauge("cluster_ready", "1 while the condition Ready of the EtcdCluster is True");
    let degraded = gauge("cluster_degraded", "1 while the condition Degraded of the EtcdCluster is True");
    let at_risk = gauge("cluster_at_risk", "1 while the condition AtRisk of the EtcdCluster is True");
    let voters = gauge("cluster_voters", "Voters of the etcd cluster");
    let wanted = gauge("cluster_wanted_members", "Members that the spec asks for");
    let usable = gauge("store_usable", "1 while the condition Ready of the EtcdBackupStore is True");
    let last = Family::<Leveled, Gauge>::default();
    let help = "Completion of the newest complete EtcdSnapshot, and its level of proof";
    registry.register("cluster_last_snapshot_timestamp_seconds", help, last.clone());
    let expiry = Family::<Planed, Gauge>::default();
    let help = "Earliest end of a certificate, as seconds since 1970, by plane and kind (leaf or ca)";
    registry.register("tls_earliest_expiry_seconds", help, expiry.clone());
    for cluster in clusters {
        let object = labels(&**cluster);
        let status = cluster.status.as_ref();
        let conditions = status.map_or(&[][..], |s| &s.conditions);
        for (family, kind) in [(&ready, Type::Ready), (&degraded, Type::Degraded), (&at_risk, Type::AtRisk)] {
            family.get_or_create(&object).set(holds(conditions, kind));
        }
        voters.get_or_create(&object).set(status.map_or(0, |s| s.voters.into()));
        wanted.get_or_create(&object).set(cluster.spec.replicas.into());
        for (plane, kind, until) in status.and_then(|s| s.tls.as_ref()).map(ends).unwrap_or_default() {
            let [namespace, name] = object.clone();
            let series = [namespace, name, ("plane", plane.to_owned()), ("kind", kind.to_owned())];
            expiry.get_or_create(&series).set(until.as_second());
        }
        let saved = status.and_then(|s| s.last_snapshot.as_ref());
        if let Some((saved, at)) = saved.and_then(|s| Some((s, s.completed_at.parse::<Timestamp>().ok()?))) {
            let [namespace, name] = object;
            let level = ("level", saved.level.as_str().to_owned());
            last.get_or_create(&[namespace, name, level]).set(at.as_second());
        }
    }
    for store in stores {
        let conditions = store.status.as_ref().map_or(&[][..], |s| &s.conditions);
        usable.get_or_create(&labels(&**store)).set(holds(conditions, Type::Ready));
    }
    registry
}

/// When certificates end, by plane and kind.
fn ends(tls: &TlsStatus) -> Vec<(&'static str, &'static str, Timestamp)> {
    let planes = [("client", &tls.client), ("peer", &tls.peer)];
    let each = planes.into_iter().flat_map(|(plane, status)| {
        [(plane, "leaf", Some(&status.not_after)), (plane, "ca", status.ca_not_after.as_ref())]
    });
    each.filter_map(|(plane, kind, until)| Some((plane, kind, until?.parse().ok()?))).collect()
}

fn labels<K: ResourceExt>(object: &K) -> Object {
    [("namespace", object.namespace().unwrap_or_default()), ("name", object.name_any())]
}

fn holds(conditions: &[Condition], kind: Type) -> i64 {
    i64::from(conditions.iter().any(|c| c.type_ == kind.as_str() && c.status == "True"))
}

#[cfg(test)]
pub(super) mod tests {
    use prometheus_client::encoding::text::encode_registry;
    use snapshot_agent::contract::Level;

    use super::*;
    use crate::api::EtcdBackupStoreStatus;
    use crate::api::cluster::LastSnapshot;
    use crate::api::condition::{Reason, Wanted, merge};
    use crate::api::tls::PlaneStatus;
    use crate::plan::fixtures::{formed, noon};

    /// One cluster that was saved, and one usable store.
    pub(in crate::operator) fn example() -> Registry {
        let mut cluster = formed(3, 3).cluster;
        cluster.status.as_mut().unwrap().last_snapshot = Some(LastSnapshot {
            name: "s".to_owned(),
            level: Level::HashKV,
            completed_at: "2026-01-01T12:00:00Z".to_owned(),
        });
        cluster.status.as_mut().unwrap().tls = Some(TlsStatus {
            earliest_expiry: "2026-01-01T12:00:00Z".to_owned(),
            client: PlaneStatus { not_after: "2026-01-01T12:00:00Z".to_owned(), ..PlaneStatus::default() },
            peer: PlaneStatus::default(),
        });
        let mut store = EtcdBackupStore::default();
        (store.metadata.namespace, store.metadata.name) = (Some("ns".to_owned()), Some("vault".to_owned()));
        let ready = [Wanted::yes(Type::Ready, Reason::StoreUsable, "x")];
        let conditions = merge(&[], &ready, None, noon());
        store.status = Some(EtcdBackupStoreStatus { conditions, ..EtcdBackupStoreStatus::default() });
        registry(&[Arc::new(cluster)], &[Arc::new(store)])
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode_registry(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn each_cluster_and_each_store_has_its_series() {
        let text = text(&example());
        for line in [
            "holdfast_cluster_ready{namespace=\"ns\",name=\"a\"} 1",
            "holdfast_cluster_degraded{namespace=\"ns\",name=\"a\"} 0",
            "holdfast_cluster_at_risk{namespace=\"ns\",name=\"a\"} 0",
            "holdfast_cluster_voters{namespace=\"ns\",name=\"a\"} 3",
            "holdfast_cluster_wanted_members{namespace=\"ns\",name=\"a\"} 3",
            "holdfast_cluster_last_snapshot_timestamp_seconds{namespace=\"ns\",name=\"a\",level=\"HashKV\"} 1767268800",
            "holdfast_tls_earliest_expiry_seconds{namespace=\"ns\",name=\"a\",plane=\"client\",kind=\"leaf\"} 1767268800",
            "holdfast_store_usable{namespace=\"ns\",name=\"vault\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_cluster_without_a_snapshot_has_no_time_and_nothing_stays_of_deleted_objects() {
        let young = text(&registry(&[Arc::new(EtcdCluster::default())], &[]));
        assert!(young.contains("cluster_ready{") && !young.contains("timestamp_seconds{"), "{young}");
        let none = text(&registry(&[], &[]));
        assert!(!none.contains('{'), "{none}");
    }
}
