//! A template with which a member does not start.
//!
//! Decides when a member has served with a changed template, and when the member counts as failed: two crashes, a Pod that kubelet
//! cannot start, or `spec.progressDeadlineSeconds`. The failed template is latched first, so that no second member gets it (I1);
//! then the member gets the template back with which it last served. A version is never rolled back: an older etcd may refuse the
//! data of a newer one (I30).

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::key;
use holdfast_api::template::{FailedTemplate, Rollback, Template};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::intervals::POLL;
use super::{Member, Observed};
use crate::build::container;
use crate::valid::Wanted;
use crate::{Act, Next, Target, failure, meta, pods, template};

/// Restarts of etcd's container after which the template counts as failed.
const CRASHES: i32 = 2;

/// How long kubelet may report that it cannot start the container: a registry may answer the second time.
const UNSTARTED: SignedDuration = SignedDuration::from_mins(1);

/// The default of `spec.progressDeadlineSeconds`.
const DEADLINE: u32 = 600;

/// Whether a member has failed with this template, by the latch.
pub(super) fn has_failed(seen: &Observed, wanted: &Template) -> bool {
    let fingerprint = template::fingerprint(wanted);
    seen.latches().failed_template.is_some_and(|failed| failed.template == fingerprint)
}

/// Returns the wait for another edit after a rollback.
pub(super) fn wait(seen: &Observed, wanted: &Template) -> Option<Next> {
    let failed = seen.latches().failed_template.filter(|_| has_failed(seen, wanted))?;
    let message = format!(
        "{} did not start with the changed spec: {}. {} has its earlier settings again, and no other member gets the change. Correct \
         the spec; to try the same spec again: kubectl annotate etcdc {} --overwrite {}=again",
        failed.member,
        failed.why,
        failed.member,
        meta::name(&seen.cluster.metadata),
        key::RESTART
    );
    Some(Next::wait(Reason::RolloutStuck, message, POLL))
}

/// Returns the next step of a rollback, or the wait where a person decides.
pub(super) fn next(seen: &Observed, _: &Wanted, now: Timestamp) -> Option<Next> {
    let wanted = template::wanted(&seen.cluster);
    if let Some(proven) = seen.hosting().find(|m| has_served(m)) {
        return Some(Next::act(Act::SetTemplate {
            member: Target::of(&proven.object.metadata),
            template: Box::new(template::of_member(&proven.object)),
            served: None,
        }));
    }
    let latches = seen.latches();
    if has_failed(seen, &wanted) {
        return restore(seen, &wanted);
    }
    if latches.failed_template.is_some() {
        return Some(Next::act(Act::Latch(Box::new(Latches { failed_template: None, ..latches }))));
    }
    let (member, why) = seen.hosting().find_map(|m| Some((m, failure(seen, m, &wanted, now)?)))?;
    let automatic = seen.cluster.spec.rollback.unwrap_or_default() == Rollback::Automatic;
    let served = member.object.spec.served.as_ref().filter(|served| **served != wanted);
    if !automatic || served.is_none_or(|served| served.version != wanted.version) {
        let why_not = if automatic { "a version is not rolled back by itself" } else { "spec.rollback is Manual" };
        let message = format!(
            "{} does not start with the changed spec: {why}. No other member gets the change, and {why_not}. Correct the spec",
            member.name()
        );
        return Some(Next::wait(Reason::RolloutStuck, message, POLL));
    }
    let failed = FailedTemplate {
        template: template::fingerprint(&wanted),
        member: member.name().to_owned(),
        why,
        at: now.to_string(),
    };
    Some(Next::act(Act::Latch(Box::new(Latches { failed_template: Some(failed), ..latches }))))
}

/// Whether a member serves with a template for which it still keeps the earlier one. From now on no failure blames the template.
fn has_served(member: &Member) -> bool {
    let current = |pod| pods::ready(pod) && template::is_current(pod, &member.object);
    member.object.spec.served.is_some() && member.live_pod().is_some_and(current)
}

/// Writes the earlier template to each member that has the failed one and does not serve.
fn restore(seen: &Observed, wanted: &Template) -> Option<Next> {
    let fails = |m: &&Member| {
        let has_it = template::of_member(&m.object) == *wanted;
        has_it && m.object.spec.served.is_some() && !m.deleting() && !m.live_pod().is_some_and(pods::ready)
    };
    let member = seen.hosting().find(fails)?;
    let served = member.object.spec.served.clone()?;
    Some(Next::act(Act::SetTemplate {
        member: Target::of(&member.object.metadata),
        template: Box::new(served.clone()),
        served: Some(Box::new(served)),
    }))
}

/// Returns why a member has failed with this template; `None` while it may still start.
fn failure(seen: &Observed, member: &Member, wanted: &Template, now: Timestamp) -> Option<String> {
    let changed = member.object.spec.served.as_ref().is_some_and(|served| served != wanted);
    // A member that joins ends as long as its member list is outdated.
    if !changed || !member.joined() || template::of_member(&member.object) != *wanted {
        return None;
    }
    let pod = member.live_pod().filter(|pod| template::is_current(pod, &member.object) && !pods::ready(pod))?;
    let age = now.duration_since(pod.metadata.creation_timestamp.as_ref().map_or(now, |made| made.0));
    if crashes(pod) >= CRASHES {
        // Without the number of crashes, which changes (I17).
        let last = failure::of(pod).map(|last| format!(", with code {}: {}", last.exit_code, last.message.trim()));
        return Some(format!("etcd ends again and again{}", last.unwrap_or_default()));
    }
    let held = failure::hold_up(pod, member.claim.as_ref()).filter(|held| held.stuck);
    if let Some(held) = held.filter(|_| age >= UNSTARTED) {
        return Some(held.message);
    }
    let deadline = seen.cluster.spec.progress_deadline_seconds.unwrap_or(DEADLINE);
    (age >= SignedDuration::from_secs(deadline.into())).then(|| format!("the Pod is not ready after {deadline} s"))
}

fn crashes(pod: &Pod) -> i32 {
    pods::status(pod, container::ETCD).map_or(0, |status| status.restart_count)
}
