//! Table tests of a member's plan: a good value, one mutation, the exact answer.

mod end;
mod evidence;
mod memory;
mod paused;
mod silent;
mod standing;
mod unbound;
mod volume;

use holdfast_api::agent::Agent;
use holdfast_api::cluster::Retention;
use holdfast_api::condition::Reason;
use holdfast_api::member::Birth;
use holdfast_api::restore::Restoring;
use holdfast_api::{EtcdCluster, EtcdMemberStatus, key, role};
use holdfast_contract::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, PodCondition, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::fixtures::{
    change_request, earlier, etcd_cluster, failed, flags_in, labels, noon, pod_of, restoring, running, serving, unborn,
};
use crate::safety;
use holdfast_base::objects::container;
use holdfast_base::{Act, Plan, Seen, Target, Wake, meta, pods};

fn planned_at(seen: &Observed, now: Timestamp) -> Plan<EtcdMemberStatus> {
    let plan = plan(seen, now);
    safety::member(seen, &plan).unwrap();
    plan
}

fn planned(seen: &Observed) -> Plan<EtcdMemberStatus> {
    planned_at(seen, noon())
}

fn act(seen: &Observed) -> Option<Act> {
    planned(seen).act
}

fn waits(seen: &Observed) -> Option<Reason> {
    let plan = planned(seen);
    assert_eq!(plan.act, None);
    plan.waiting.map(|w| w.reason)
}

fn cluster(seen: &mut Observed) -> &mut EtcdCluster {
    match &mut seen.cluster {
        Seen::Known(Some(cluster)) => cluster,
        Seen::Known(None) | Seen::Unknown(_) => panic!("no cluster"),
    }
}

fn degraded(seen: &Observed) -> (String, String) {
    let all = planned(seen).status.conditions;
    all.into_iter().find(|c| c.type_ == "Degraded").map(|c| (c.reason, c.message)).unwrap()
}
