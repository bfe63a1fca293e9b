//! Resources of a running Pod.
//!
//! Decides when changed resources reach the etcd that runs, without a restart: the member's template differs in nothing else from the
//! one that its Pod was made with. `roll.rs` decides whose turn it is, and ends the Pod where the API server or the node refuses the
//! resources. The Pod carries the progress, so a crash continues.

use holdfast_api::condition::Reason;
use holdfast_api::member::Resize;
use holdfast_api::template::Template;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition, ResourceRequirements};

use super::Member;
use holdfast_base::objects::{container, request, resources};
use holdfast_base::{Act, Next, Target, Wake, drift, pods, template};

/// Interval while kubelet changes the resources; the watch reports the Pod.
const WAITED_FOR: Wake = Wake::AfterMillis(2_000);

/// How long kubelet may fail to apply resources until their template counts as failed.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);

/// Whether the Pod of a member can get this template without a restart, as soon as the Pod is ready.
pub(super) fn fits(member: &Member, wanted: &Template) -> bool {
    member.live_pod().is_some_and(|pod| template::has_process(pod, wanted) && !is_refused(pod, wanted))
}

/// Whether the API server or kubelet has refused the resources of this template for good.
fn is_refused(pod: &Pod, wanted: &Template) -> bool {
    let tried = template::made_with(pod).is_some_and(|made| made == template::fingerprint(wanted));
    tried && (template::resize(pod) == Some(Resize::Refused) || pending(pod) == Some("Infeasible"))
}

/// Returns kubelet's condition about the present resources of the Pod. A condition of an earlier generation is about earlier ones.
fn verdict<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let present = |c: &&PodCondition| c.observed_generation.is_none_or(|seen| Some(seen) >= pod.metadata.generation);
    pods::condition(pod, kind, "True").filter(present).filter(|_| template::resize(pod) == Some(Resize::Accepted))
}

/// Returns kubelet's words where it cannot apply the resources, for a while: kubelet does not lower a memory limit below the memory
/// that etcd uses, and tries again.
pub(super) fn failure(member: &Member, now: Timestamp) -> Option<String> {
    let pod = member.live_pod().filter(|pod| template::is_marked(pod, &member.object))?;
    let applies = verdict(pod, "PodResizeInProgress").filter(|c| c.reason.as_deref() == Some("Error"))?;
    let since = applies.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0);
    (now >= since + PATIENCE).then(|| applies.message.clone().unwrap_or_default())
}

/// Returns why kubelet has not begun to change the resources.
fn pending(pod: &Pod) -> Option<&str> {
    let pending = verdict(pod, "PodResizePending")?;
    Some(pending.reason.as_deref().unwrap_or_default())
}

/// Returns the next step for a member that has its template, in the reason of the roll; `None` where its Pod has to end.
pub(super) fn next(member: &Member, reason: Reason) -> Option<Next> {
    let own = &member.object.spec.process;
    let pod = member.live_pod().filter(|pod| pods::ready(pod)).filter(|_| fits(member, own))?;
    let target = || Target::from(&pod.metadata);
    let marked = template::is_marked(pod, &member.object);
    Some(match template::resize(pod) {
        Some(Resize::Asked) if marked => {
            let resources = Box::new(resources::of_member(&member.object));
            Next::act(Act::ResizePod { pod: target(), resources })
        }
        Some(Resize::Accepted) if marked => match unfinished(member, pod) {
            None => Next::act(Act::EndResize { pod: target(), differs: changed_by_others(member, pod) }),
            Some(wait) => Next::wait(reason, wait, WAITED_FOR),
        },
        _ => Next::act(Act::BeginResize { pod: target(), template: member.object.spec.template.clone()? }),
    })
}

/// Returns the wait while kubelet has not applied the resources.
fn unfinished(member: &Member, pod: &Pod) -> Option<String> {
    let name = member.name();
    if pending(pod).is_some() {
        return Some(format!(
            "the node of {name} has no room for the changed resources: kubelet resizes the Pod when there is room. Make room on the \
             node, or set smaller resources"
        ));
    }
    let applies = pods::condition(pod, "PodResizeInProgress", "True").is_some();
    // Of the Pod: a webhook may have changed the resources that Holdfast asked for, and kubelet never has those.
    let wanted = resources_of(pod)?;
    let actual = pods::status(pod, container::ETCD).and_then(|status| status.resources.as_ref());
    let applied = actual.is_some_and(|actual| has_all(actual, &wanted));
    (applies || !applied).then(|| format!("kubelet changes the resources of {name}, whose etcd runs on"))
}

/// Whether kubelet reports each wanted request and limit.
fn has_all(actual: &ResourceRequirements, wanted: &ResourceRequirements) -> bool {
    !drift::differs(&wanted.requests, &actual.requests) && !drift::differs(&wanted.limits, &actual.limits)
}

/// Returns the requests and limits of the Pod that differ from those of its member's template, for a person.
fn changed_by_others(member: &Member, pod: &Pod) -> Option<String> {
    let wanted = resources::of_member(&member.object);
    let own = resources_of(pod)?;
    let differing = [("requests", wanted.requests, own.requests), ("limits", wanted.limits, own.limits)]
        .into_iter()
        .flat_map(|(kind, wanted, own)| {
            let own = own.unwrap_or_default();
            wanted.unwrap_or_default().into_iter().filter_map(move |(name, wanted)| {
                let found = own.get(&name).map_or("nothing", |found| &found.0);
                drift::differs(&Some(&wanted), &own.get(&name))
                    .then(|| format!("{kind}.{name} is {found}, and the spec has {}", wanted.0))
            })
        });
    let all: Vec<String> = differing.collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Returns the requests and limits in the Pod's spec.
fn resources_of(pod: &Pod) -> Option<ResourceRequirements> {
    Some(request::find_container(pod.spec.as_ref(), container::ETCD)?.resources.clone().unwrap_or_default())
}
