//! The member's whole status, computed on every pass.
//!
//! Decides what the status reports; `plan.rs` decides the step.

use holdfast_api::EtcdMemberStatus;
use holdfast_api::condition::{Reason, Type, Wanted, merge};
use holdfast_api::key;
use holdfast_api::member::{LastFailure, ObjectIdentity};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::facts::{cluster, prepared_for};
use super::{Observed, end, evidence, park};
use holdfast_base::objects::budget::quorum;
use holdfast_base::{Next, failure, meta, pods};

/// State of a member whose Pod is ready.
const SERVING: &str = "Serving";

/// Returns the status before the next step.
pub(super) fn whole(seen: &Observed, next: &Next, now: Timestamp) -> EtcdMemberStatus {
    let meta = &seen.member.metadata;
    let old = seen.member.status.clone().unwrap_or_default();
    let uid = meta::uid(meta);
    let pod = seen.pod.as_ref().filter(|p| meta::controlled_by(&p.metadata, uid));
    let claim = seen.claim.as_ref().filter(|c| meta::label(&c.metadata, key::MEMBER_UID) == Some(uid));
    // etcd has served since that failure: a Pod that ends for another reason does not repeat it.
    let before = || old.last_failure.clone().filter(|_| old.state.as_deref() != Some(SERVING));
    let failure = match pod.filter(|pod| !meta::deleting(&pod.metadata)) {
        Some(pod) => failure::find_last(pod).or_else(|| before().filter(|_| !pods::ready(pod))),
        None => before(),
    };
    let ready = pod.is_some_and(pods::ready);
    let aside = seen.member.spec.aside.as_ref();
    let rests = (park::is_parked(seen) || aside.is_some()) && pod.is_none();
    let failure = failure.filter(|_| !rests);
    let good = if let Some(aside) = aside.filter(|_| rests) {
        let message =
            format!("EtcdRestore {} has set the member aside; its claim holds the earlier data", aside.restore);
        (Reason::SetAside, message)
    } else if rests {
        (Reason::Parked, "parked: its claim holds the data".to_owned())
    } else {
        (Reason::AsDesired, serves(seen, pod))
    };
    let refusals = evidence::refusals(seen, pod, now);
    // The failure of a removed member needs no attention any more.
    let fails = failure.as_ref().filter(|_| seen.member.spec.removed.is_none());
    let conditions = conditions(next, ready || rests, good, fails, end::stays(seen));
    EtcdMemberStatus {
        observed_generation: meta.generation,
        role: role(seen),
        state: Some(state(seen, pod, ready).to_owned()),
        claim: claim.map(|c| identity(&c.metadata)),
        pod: pod.map(|p| identity(&p.metadata)),
        last_failure: failure,
        received_pod_uid: evidence::received(seen),
        evidence: evidence::evidence(seen, &refusals, now),
        refusals,
        conditions: merge(&old.conditions, &conditions, meta.generation, now),
    }
}

/// Returns the member's role from the cluster's status.
fn role(seen: &Observed) -> Option<String> {
    let listed = &cluster(seen)?.status.as_ref()?.members;
    listed.iter().find(|m| m.name == meta::name(&seen.member.metadata))?.role.clone()
}

/// Returns the member's state in a single word.
fn state(seen: &Observed, pod: Option<&Pod>, ready: bool) -> &'static str {
    let spec = &seen.member.spec;
    match () {
        () if spec.removed.is_some() => "Removed",
        () if spec.leaving.is_some() => "Leaving",
        () if spec.aside.is_some() => "SetAside",
        () if prepared_for(seen).is_some() => {
            if pod.is_some_and(pods::succeeded) {
                "Prepared"
            } else {
                "Preparing"
            }
        }
        () if park::is_parked(seen) => "Parked",
        () if spec.joined.is_none() => "Joining",
        () if ready => SERVING,
        () => "NotServing",
    }
}

fn identity(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> ObjectIdentity {
    ObjectIdentity { name: meta::name(meta).to_owned(), uid: meta::uid(meta).to_owned() }
}

/// Message for a Pod that serves. A restored member's Pod keeps the restore's source mounted until the Pod ends. If the
/// cluster's pass never ends the Pod, the message names the command.
fn serves(seen: &Observed, pod: Option<&Pod>) -> String {
    let few = |replicas: i32| usize::try_from(replicas).is_ok_and(|size| quorum(size) >= size);
    let restored = seen.member.spec.joined.is_some() && pod.is_some_and(pods::restores);
    if !restored {
        return "its Pod serves".to_owned();
    }
    let keeps = "its Pod serves, and still mounts the restore's source";
    let own = pod.is_some_and(|pod| pods::agent_image(pod) == Some(&seen.settings.agent_image));
    let (why, how) = if cluster(seen).is_some_and(|c| few(c.spec.replicas)) {
        ("Without this member there is no quorum", ", with a short interruption")
    } else if own {
        return format!("{keeps} until Holdfast replaces the Pod");
    } else {
        ("Another version of the operator created the Pod, and an upgrade restarts no Pod", "")
    };
    format!(
        "{keeps}. {why}, so Holdfast replaces the Pod only after its end. To replace the Pod now{how}: kubectl delete \
         pod {}",
        meta::name(&seen.member.metadata)
    )
}

fn conditions(
    next: &Next,
    ready: bool,
    good: (Reason, String),
    failure: Option<&LastFailure>,
    stays: bool,
) -> [Wanted; 3] {
    let waiting = match next {
        Next::Wait(waiting, _) => Some((waiting.reason, waiting.message.clone())),
        Next::Do(..) => Some((Reason::WaitingForPod, "Holdfast creates its claim and its Pod".to_owned())),
        Next::Settled(_) => None,
    };
    // Also while an act on its Pod is planned.
    let mistake = || stays.then(|| (Reason::MemberStillListed, end::STAYS.to_owned()));
    let trouble = trouble(waiting.as_ref(), ready, failure).or_else(mistake);
    let (reason, message) = trouble.clone().or_else(|| waiting.clone()).unwrap_or_else(|| good.clone());
    [
        if ready && trouble.is_none() {
            Wanted::yes(Type::Ready, good.0, good.1)
        } else {
            Wanted::no(Type::Ready, reason, message)
        },
        match waiting {
            Some((reason, message)) if reason.needs_a_person() => Wanted::no(Type::Progressing, reason, message),
            Some((reason, message)) => Wanted::yes(Type::Progressing, reason, message),
            None => Wanted::no(Type::Progressing, Reason::Idle, "nothing is in progress"),
        },
        match trouble {
            Some((reason, message)) => Wanted::yes(Type::Degraded, reason, message),
            None => Wanted::no(Type::Degraded, Reason::NothingWrong, "no fault is known"),
        },
    ]
}

/// Returns the fault: the wait that needs a person, else the Pod's failure that persists.
fn trouble(waiting: Option<&(Reason, String)>, ready: bool, failure: Option<&LastFailure>) -> Option<(Reason, String)> {
    if let Some((reason, message)) = waiting.filter(|(reason, _)| reason.needs_a_person()) {
        return Some((*reason, message.clone()));
    }
    let failure = failure.filter(|_| !ready)?;
    Some((failure::reason(failure), failure::explain(failure)))
}
