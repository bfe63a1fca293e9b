//! The objects that clients and drains meet: two Services and a disruption budget.
//!
//! Decides which of these objects Holdfast applies, and that Holdfast never touches an object of another owner (I13). Kubernetes'
//! garbage collector deletes the objects of an earlier cluster of the name, and Holdfast waits for that first.

use holdfast_api::condition::Reason;
use holdfast_api::{EtcdCluster, GROUP, key};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::Serialize;

use super::intervals::{COLLECTED, POLL};
use super::{Observed, health, tls};
use holdfast_base::drift::differs;
use holdfast_base::valid::Wanted;
use holdfast_base::{Ensure, Next, Target, Wake, meta, objects};

/// Returns the objects to apply, and the wait for objects of other owners under Holdfast's names.
pub(super) fn ensures(seen: &Observed, wanted: &Wanted, now: Timestamp) -> (Vec<Ensure>, Option<Next>) {
    let meta = &seen.cluster.metadata;
    let mut ensures = vec![];
    let (mut conflicts, mut leftovers) = (vec![], vec![]);
    let mut judged = |kind: &str, own: &ObjectMeta, verdict: Verdict, ensure: Ensure| match verdict {
        Verdict::Apply => ensures.push(ensure),
        Verdict::Foreign => conflicts.push(format!("{kind} {}", meta::name(own))),
        Verdict::Leftover => leftovers.push(format!("{kind} {}", meta::name(own))),
        Verdict::Same => {}
    };
    let peer = objects::service::peer(&seen.cluster);
    let verdict = judge(&peer, seen.peer_service.as_ref().map(|s| (s, &s.metadata)), meta);
    judged("Service", &peer.metadata.clone(), verdict, Ensure::Service(Box::new(peer)));
    let client = objects::service::client(&seen.cluster);
    let verdict = judge(&client, seen.client_service.as_ref().map(|s| (s, &s.metadata)), meta);
    judged("Service", &client.metadata.clone(), verdict, Ensure::Service(Box::new(client)));
    // The budget of a parked cluster stays as it is: there is no Pod to evict.
    if wanted.replicas > 0 {
        let there = seen.budget.as_ref().map(|b| (b, &b.metadata));
        if let Some(budget) = objects::budget::budget(&seen.cluster, voters(seen), wanted.replicas) {
            let verdict = judge(&budget, there, meta);
            judged("PodDisruptionBudget", &budget.metadata.clone(), verdict, Ensure::Budget(Box::new(budget)));
        } else if let Some((_, own)) = there.filter(|(_, own)| may_go(seen, own)) {
            judged("PodDisruptionBudget", own, Verdict::Apply, Ensure::DropBudget(Target::from(own)));
        }
    }
    ensures.extend(tls::bundle(seen, now));
    ensures.extend(tls::asks(seen, now));
    let until = meta.creation_timestamp.as_ref().and_then(|made| Wake::at(made.0 + COLLECTED, now));
    if let (Some(later), true, false) = (until, conflicts.is_empty(), leftovers.is_empty()) {
        let message =
            format!("Kubernetes deletes objects of the earlier cluster of this name: {}", leftovers.join(", "));
        return (ensures, Some(Next::wait(Reason::WaitingForReference, message, later)));
    }
    conflicts.extend(leftovers);
    let conflict = (!conflicts.is_empty()).then(|| {
        let message = format!(
            "an object of this name does not belong to this cluster: {}. Holdfast does not change the object. Delete \
             the object, or use another name for the cluster",
            conflicts.join(", ")
        );
        Next::wait(Reason::NameConflict, message, POLL)
    });
    (ensures, conflict)
}

/// Whether Holdfast may delete its budget because one voter is left. Only etcd's answer proves the number of voters.
fn may_go(seen: &Observed, budget: &ObjectMeta) -> bool {
    let is_owned = meta::controlled_by(budget, meta::uid(&seen.cluster.metadata)) && !meta::deleting(budget);
    is_owned && seen.etcd.known().is_some()
}

/// Returns the number of voters; while etcd is silent, the last known number, so that the budget does not fall.
fn voters(seen: &Observed) -> usize {
    let before = || seen.cluster.status.as_ref().map_or(0, |s| usize::try_from(s.voters).unwrap_or_default());
    seen.etcd.known().map_or_else(before, health::voters)
}

enum Verdict {
    Apply,
    Same,
    Foreign,
    /// The object of an earlier cluster of this name.
    Leftover,
}

fn judge<T: Clone + Resource + Serialize>(want: &T, live: Option<(&T, &ObjectMeta)>, cluster: &ObjectMeta) -> Verdict {
    match live {
        None => Verdict::Apply,
        Some((_, meta)) if !meta::controlled_by(meta, meta::uid(cluster)) => {
            if of_an_earlier(meta, meta::name(cluster)) { Verdict::Leftover } else { Verdict::Foreign }
        }
        // Holdfast applies its object again after the deletion.
        Some((_, meta)) if meta::deleting(meta) => Verdict::Same,
        Some((live, there)) if differs(&without_added(want), live) || added(want.meta()) != added(there) => {
            Verdict::Apply
        }
        Some(_) => Verdict::Same,
    }
}

/// Returns the fingerprint of the labels and annotations that the cluster's spec adds.
fn added(object: &ObjectMeta) -> Option<&str> {
    meta::annotation(object, key::METADATA)
}

/// Returns the object with Holdfast's own labels and annotations only: the watch caches keep no other ones.
fn without_added<T: Clone + Resource>(want: &T) -> T {
    let mut own = want.clone();
    let all = own.meta_mut();
    for keys in [&mut all.labels, &mut all.annotations].into_iter().flatten() {
        keys.retain(|name, _| key::ALL.contains(&name.as_str()));
    }
    own
}

/// Whether another cluster of this name controls the object. An object that was deleted with `--cascade=orphan` has no controller,
/// and no garbage collector deletes it.
fn of_an_earlier(meta: &ObjectMeta, name: &str) -> bool {
    let cluster =
        |r: &&OwnerReference| r.controller == Some(true) && r.kind == EtcdCluster::kind(&()) && r.name == name;
    let is_of_holdfast = |r: &OwnerReference| r.api_version.split('/').next() == Some(GROUP);
    meta.owner_references.iter().flatten().find(cluster).is_some_and(is_of_holdfast)
}

#[cfg(test)]
mod tests {
    use holdfast_api::agent::PodMetadata;
    use k8s_openapi::api::core::v1::Service;

    use super::*;
    use crate::fixtures::etcd_cluster;
    use holdfast_base::objects::service;

    fn labelled(value: Option<&str>) -> EtcdCluster {
        let mut cluster = etcd_cluster(3);
        let labels = value.into_iter().map(|value| ("team".to_owned(), value.to_owned())).collect();
        cluster.spec.additional_metadata = Some(PodMetadata { labels, ..PodMetadata::default() });
        cluster
    }

    /// The caches keep no label of a user's, so the fingerprint alone shows a change.
    #[test]
    fn added_labels_are_applied_once_and_taken_back() {
        let judged = |want: Option<&str>, live: Option<&str>| {
            let cached: Service = without_added(&service::peer(&labelled(live)));
            let want = labelled(want);
            matches!(judge(&service::peer(&want), Some((&cached, &cached.metadata)), &want.metadata), Verdict::Apply)
        };
        assert!(!judged(None, None) && !judged(Some("a"), Some("a")));
        assert!(judged(Some("a"), None) && judged(Some("b"), Some("a")) && judged(None, Some("a")));
    }
}
