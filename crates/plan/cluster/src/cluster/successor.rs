//! Whether a member's next Pod may exist: quotas, limit ranges, admission policies and Pod security judge each new Pod.
//!
//! Decides which Pods the operator sends for a judgement, and that no Pod which serves ends before the API server permits the next one:
//! a refused Pod would leave the member without etcd. An unknown judgement permits nothing. `roll.rs`, `replace.rs` and `seed.rs` wait;
//! `rollback.rs` and `roll.rs` give a member without a Pod another template. A cluster without changes needs no judgement.

use holdfast_api::condition::Reason;
use holdfast_api::{EtcdCluster, key};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;

use super::intervals::POLL;
use super::{Judgement, Member, Observed, restored_pod};
use holdfast_base::objects::pod::{Start, pod};
use holdfast_base::{Next, Seen, Settings, Wake, meta, pods, template, valid, volumes};

/// How long the API server refuses the Pod of a member without a Pod until the template counts as failed: Kubernetes counts an ended
/// Pod in a quota for some seconds.
const LASTS: SignedDuration = SignedDuration::from_secs(30);

/// Returns the Pods that the API server has to judge, each with its member: the next Pod of a member whose Pod is about to end, and the
/// Pod that a member lacks.
pub fn next_pods<'a>(cluster: &EtcdCluster, members: &'a [Member], settings: &Settings) -> Vec<(&'a Member, Pod)> {
    let formed = cluster.status.as_ref().is_some_and(|status| status.latches.formed.is_some());
    if !formed || cluster.spec.paused || cluster.spec.replicas == 0 || meta::deleting(&cluster.metadata) {
        return vec![];
    }
    let hosts = |m: &&Member| m.joined() && m.stays();
    members.iter().filter(hosts).filter_map(|m| Some((m, next_pod(cluster, m, settings)?))).collect()
}

fn next_pod(cluster: &EtcdCluster, member: &Member, settings: &Settings) -> Option<Pod> {
    let own = &member.object.spec.process;
    let new = if member.pod.is_none() {
        own.clone()
    } else {
        let present = member.live_pod().filter(|pod| pods::runs(pod))?;
        let wanted = template::wanted(cluster);
        let failed = cluster.status.as_ref().and_then(|status| status.latches.failed_template.as_ref());
        let failed = failed.is_some_and(|failed| failed.bars(&template::fingerprint(&wanted)));
        let new = if failed { own.clone() } else { wanted };
        (new != *own || may_end(cluster, member, present, settings)).then_some(new)?
    };
    let with = |new: &holdfast_api::template::Template| {
        let mut object = member.object.clone();
        template::put(&mut object, new);
        object.spec.pod_metadata = cluster.spec.metadata_of_pods();
        valid::member(&object).ok().map(|server| (object, server))
    };
    // A new template may need the larger volume that the member does not have yet.
    let (object, server) = with(&new).or_else(|| with(own))?;
    let start = Start {
        claim_uid: meta::uid(member.claim.as_ref().map_or(&object.metadata, |claim| &claim.metadata)),
        initial_cluster: object.spec.initial_cluster.as_deref()?,
        may_start_empty: false,
        found: false,
        restore: None,
    };
    Some(pod(&object, &server, &cluster.spec.placement, &start, settings))
}

/// Whether a Pod of the member's template may end although its member serves.
fn may_end(cluster: &EtcdCluster, member: &Member, pod: &Pod, settings: &Settings) -> bool {
    let grows = || member.claim.as_ref().and_then(|claim| volumes::remount_at(claim, pod)).is_some();
    let leaves = || meta::annotation(&cluster.metadata, key::REPLACE) == Some(member.name()) || member.deleting();
    let outdated = !template::is_current(pod, &member.object)
        || volumes::has_outgrown(pod, &member.object)
        || pods::has_other_cas(pod, &member.object);
    outdated || restored_pod::may_end(cluster, member, settings) || grows() || leaves()
}

/// Returns the wait until the API server permits the next Pod of a member whose etcd runs.
pub(super) fn hold(seen: &Observed, member: &Member) -> Option<Next> {
    member.live_pod().filter(|pod| pods::runs(pod))?;
    let name = member.name();
    match seen.next_pods.get(name) {
        Some(Seen::Known(Judgement::Permitted)) => None,
        Some(Seen::Known(Judgement::Refused { words, .. })) => {
            let message = format!(
                "the API server would refuse the next Pod of {name}: {words}. {name} serves with its present Pod. Correct the spec, or \
                 let the namespace admit the Pod"
            );
            Some(Next::wait(Reason::WriteRefused, message, POLL))
        }
        unknown => {
            let why = match unknown {
                Some(Seen::Unknown(why)) => format!(": {why}"),
                _ => String::new(),
            };
            let message = format!(
                "the API server has not judged the next Pod of {name}{why}. {name} serves with its present Pod"
            );
            Some(Next::wait(Reason::Rolling, message, Wake::AfterMillis(2_000)))
        }
    }
}

/// Returns the API server's words where it refuses the Pod of a member that has none.
pub(super) fn refusal<'a>(seen: &'a Observed, member: &Member) -> Option<&'a str> {
    judged(seen, member).map(|(words, _)| words)
}

/// Returns the words of a refusal that lasts.
pub(super) fn lasting_refusal<'a>(seen: &'a Observed, member: &Member) -> Option<&'a str> {
    judged(seen, member).filter(|(_, lasted)| *lasted >= LASTS).map(|(words, _)| words)
}

fn judged<'a>(seen: &'a Observed, member: &Member) -> Option<(&'a str, SignedDuration)> {
    match seen.next_pods.get(member.name()).filter(|_| member.pod.is_none()) {
        Some(Seen::Known(Judgement::Refused { words, lasted })) => Some((words, *lasted)),
        _ => None,
    }
}
