//! Resources of a running Pod.
//!
//! Decides when changed resources reach the etcd that runs, without a restart: the member's template differs in nothing else from the
//! one that its Pod was made with. `roll.rs` decides whose turn it is, and ends the Pod where the API server or the node refuses the
//! resources. The Pod carries the progress, so a crash continues.

use holdfast_api::condition::Reason;
use holdfast_api::member::Resize;
use holdfast_api::template::Template;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};

use super::Member;
use crate::build::{container, resources};
use crate::{Act, Next, Target, Wake, drift, pods, template};

/// Interval while kubelet changes the resources; the watch reports the Pod.
const WAITED_FOR: Wake = Wake::AfterMillis(2_000);

/// How long kubelet may fail to apply resources until their template counts as failed.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);

/// Whether the running Pod of a member can get this template without a restart.
pub(super) fn fits(member: &Member, wanted: &Template) -> bool {
    member.live_pod().is_some_and(|pod| runs_process(pod, wanted) && !is_refused(pod))
}

fn runs_process(pod: &Pod, wanted: &Template) -> bool {
    pods::ready(pod) && template::has_process(pod, wanted)
}

/// Whether the API server or kubelet has refused the resources for good.
fn is_refused(pod: &Pod) -> bool {
    template::resize(pod) == Some(Resize::Refused) || pending(pod) == Some("Infeasible")
}

/// Returns kubelet's words where it cannot apply the resources, for a while: kubelet does not lower a memory limit below the memory
/// that etcd uses, and tries again.
pub(super) fn failure(pod: &Pod, now: Timestamp) -> Option<String> {
    let applies =
        pods::condition(pod, "PodResizeInProgress", "True").filter(|c| c.reason.as_deref() == Some("Error"))?;
    let since = applies.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0);
    let fails = template::resize(pod).is_some() && now >= since + PATIENCE;
    fails.then(|| applies.message.clone().unwrap_or_default())
}

/// Returns why kubelet has not begun to change the resources.
fn pending(pod: &Pod) -> Option<&str> {
    let pending = pods::condition(pod, "PodResizePending", "True").filter(|_| template::resize(pod).is_some())?;
    Some(pending.reason.as_deref().unwrap_or_default())
}

/// Returns the next step for a member that has its template, in the reason of the roll; `None` where its Pod has to end.
pub(super) fn next(member: &Member, reason: Reason) -> Option<Next> {
    let own = &member.object.spec.process;
    let pod = member.live_pod().filter(|pod| runs_process(pod, own) && !is_refused(pod))?;
    let target = || Target::of(&pod.metadata);
    let marked = template::made_with(pod) == member.object.spec.template.as_deref();
    Some(match template::resize(pod) {
        Some(Resize::Asked) if marked => {
            let resources = Box::new(resources::of_member(&member.object));
            Next::act(Act::ResizePod { pod: target(), resources })
        }
        Some(Resize::Accepted) if marked => match unfinished(member, pod) {
            None => Next::act(Act::EndResize { pod: target() }),
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
            "the node of {name} has no room for the changed resources; kubelet resizes the Pod when there is room. To move the Pod: \
             kubectl delete pod {name}"
        ));
    }
    let applies = pods::condition(pod, "PodResizeInProgress", "True").is_some();
    let wanted = resources::of_member(&member.object);
    let actual = pods::status(pod, container::ETCD).and_then(|status| status.resources.as_ref());
    let applied = actual.is_some_and(|actual| has_all(actual, &wanted));
    (applies || !applied).then(|| format!("kubelet changes the resources of {name}, whose etcd runs on"))
}

/// Whether kubelet reports each wanted request and limit.
fn has_all(actual: &ResourceRequirements, wanted: &ResourceRequirements) -> bool {
    !drift::differs(&wanted.requests, &actual.requests) && !drift::differs(&wanted.limits, &actual.limits)
}
