//! What stands in front of the members: two Services and a disruption budget.
//!
//! Decides which of them have to be applied, and that an object of somebody else under our name is never touched (I13).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::Observed;
use crate::plan::drift::differs;
use crate::plan::valid::Wanted;
use crate::plan::{Ensure, build, pods};

/// What has to be applied, and a conflict of names in words.
pub(super) fn ensures(seen: &Observed, wanted: &Wanted) -> (Vec<Ensure>, Option<String>) {
    let uid = pods::uid(&seen.cluster.metadata);
    let mut ensures = vec![];
    let mut conflicts = vec![];
    let peer = build::service::peer(&seen.cluster);
    match judge(&peer, seen.peer_service.as_ref().map(|s| (s, &s.metadata)), uid) {
        Verdict::Apply => ensures.push(Ensure::Service(Box::new(peer))),
        Verdict::Foreign => conflicts.push(format!("Service {}", pods::name(&peer.metadata))),
        Verdict::Same => {}
    }
    let client = build::service::client(&seen.cluster);
    match judge(&client, seen.client_service.as_ref().map(|s| (s, &s.metadata)), uid) {
        Verdict::Apply => ensures.push(Ensure::Service(Box::new(client))),
        Verdict::Foreign => conflicts.push(format!("Service {}", pods::name(&client.metadata))),
        Verdict::Same => {}
    }
    if let Some(budget) = build::budget::budget(&seen.cluster, voters(seen), wanted.replicas) {
        match judge(&budget, seen.budget.as_ref().map(|b| (b, &b.metadata)), uid) {
            Verdict::Apply => ensures.push(Ensure::Budget(Box::new(budget))),
            Verdict::Foreign => conflicts.push(format!("PodDisruptionBudget {}", pods::name(&budget.metadata))),
            Verdict::Same => {}
        }
    }
    let conflict = (!conflicts.is_empty()).then(|| {
        format!(
            "an object of this name that is not this cluster's is in the way and is not touched: {}. Delete or rename it, \
             or use another name for the cluster",
            conflicts.join(", ")
        )
    });
    (ensures, conflict)
}

/// Voters, also while etcd is silent: the budget must not fall with it.
fn voters(seen: &Observed) -> usize {
    let before = || seen.cluster.status.as_ref().map_or(0, |s| usize::try_from(s.voters).unwrap_or_default());
    seen.etcd.known().map_or_else(before, |etcd| etcd.members.iter().filter(|l| !l.learner).count())
}

enum Verdict {
    Apply,
    Same,
    Foreign,
}

fn judge<T: Serialize>(want: &T, live: Option<(&T, &ObjectMeta)>, owner: &str) -> Verdict {
    match live {
        None => Verdict::Apply,
        Some((_, meta)) if !pods::controlled_by(meta, owner) => Verdict::Foreign,
        // One of ours that is going away is made again when it is gone.
        Some((_, meta)) if pods::deleting(meta) => Verdict::Same,
        Some((live, _)) if differs(want, live) => Verdict::Apply,
        Some(_) => Verdict::Same,
    }
}
