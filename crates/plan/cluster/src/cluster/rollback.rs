//! A template with which a member does not start.
//!
//! Decides when a member has served with a changed template, and when the member counts as failed: two crashes, a Pod that kubelet
//! cannot start for a minute or resize, a Pod that the API server refuses, or `spec.progressDeadlineSeconds`. A refused volume and a missing node are not the template's fault. The failed template is latched first, so that no second member gets it (I1);
//! then the member gets the template back with which it last served. A cause that may pass, such as a registry that does not answer, is tried again. A version is never rolled back: an older etcd may refuse the
//! data of a newer one (I30).

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::key;
use holdfast_api::template::{FailedTemplate, Rollback, Template};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::intervals::POLL;
use super::{Member, Observed, resize, successor, upgrade};
use holdfast_base::objects::container;
use holdfast_base::{Act, Next, Target, failure, meta, pods, template};

/// Restarts of etcd's container after which the template counts as failed.
const CRASHES: i32 = 2;

/// How long kubelet may report that it cannot start the container: a registry may answer the second time.
const UNSTARTED: SignedDuration = SignedDuration::from_mins(1);

/// How long a member serves with a template until no failure blames the template: etcd may run out of memory under load.
const PROVEN: SignedDuration = SignedDuration::from_secs(20);

/// Whether a member has failed with this template, by the latch.
pub(super) fn has_failed(seen: &Observed, wanted: &Template) -> bool {
    let fingerprint = template::fingerprint(wanted);
    seen.latches().failed_template.is_some_and(|failed| failed.bars(&fingerprint))
}

/// Returns the wait for another edit after a rollback.
fn wait(seen: &Observed, failed: &FailedTemplate) -> Next {
    let member = seen.hosting().find(|m| m.name() == failed.member);
    // Without a quorum Holdfast ends no Pod in which etcd runs.
    let runs_on = |m: &Member| m.live_pod().is_some_and(|pod| pods::runs(pod) && !template::is_current(pod, &m.object));
    // The data of a member in memory end with its Pod, and a Pod that can be resized keeps etcd running.
    let keeps_pod = |m: &Member| m.object.spec.storage.in_memory() || resize::fits(m, &m.object.spec.process);
    let ends = if member.is_some_and(|m| runs_on(m) && keeps_pod(m)) {
        "gets its earlier settings back when the other members serve".to_owned()
    } else if member.is_some_and(runs_on) {
        format!("gets its earlier settings back when its Pod ends (kubectl delete pod {})", failed.member)
    } else {
        "has its earlier settings again".to_owned()
    };
    let remedy = match retry_at(failed) {
        Some(at) => format!("Holdfast tries the same spec again at {at}"),
        None => format!(
            "Correct the spec; to try the same spec again: kubectl annotate etcdc {} --overwrite {}=\"$(date +%s)\"",
            meta::name(&seen.cluster.metadata),
            key::RESTART
        ),
    };
    let message = format!(
        "{} failed with the changed spec: {}. {} {ends}, and no other member gets the change. {remedy}",
        failed.member, failed.why, failed.member
    );
    Next::wait(Reason::RolloutStuck, message, POLL)
}

/// Returns the next step of a rollback, or the wait where a person decides.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    let wanted = template::wanted(&seen.cluster);
    let hosting = || seen.hosting().filter(|m| !m.deleting());
    if let Some(proven) = hosting().find(|m| is_proven(m, now)) {
        return Some(Next::act(Act::SetTemplate {
            member: Target::from(&proven.object.metadata),
            template: Box::new(proven.object.spec.process.clone()),
            served: None,
        }));
    }
    let latches = seen.latches();
    let latch = |failed: Option<FailedTemplate>| {
        Some(Next::act(Act::Latch(Box::new(Latches { failed_template: failed, ..latches.clone() }))))
    };
    let fingerprint = template::fingerprint(&wanted);
    let known = latches.failed_template.as_ref().filter(|failed| failed.template == fingerprint);
    let has_it = |m: &Member| m.object.spec.process == wanted;
    let has_served = |m: &Member| has_it(m) && m.object.spec.served.is_none();
    match known {
        None if latches.failed_template.is_some() => return latch(None),
        Some(failed) if !failed.retrying => {
            // A member that has served with the template keeps it.
            let tries = |m: &Member| has_it(m) && !has_served(m);
            let again = retry_at(failed).is_some_and(|at| now >= at) && !hosting().any(tries);
            if again {
                return latch(Some(FailedTemplate { retrying: true, ..failed.clone() }));
            }
            return hosting().find_map(|m| restore(seen, m, &wanted, now)).or_else(|| Some(wait(seen, failed)));
        }
        // The member that failed has served with the template, or all have.
        Some(failed) if hosting().any(|m| m.name() == failed.member && has_served(m)) || hosting().all(has_served) => {
            return latch(None);
        }
        Some(_) | None => {}
    }
    let (member, failure) = hosting().find_map(|m| Some((m, failure(seen, m, &wanted, now)?)))?;
    let automatic = seen.cluster.spec.rollback.unwrap_or_default() == Rollback::Automatic;
    let served = member.object.spec.served.as_ref();
    if !automatic || served.is_none_or(|served| served.version != wanted.version) {
        let why_not = if automatic { "a version is not rolled back by itself" } else { "spec.rollback is Manual" };
        let remedy = if failure.passes { "kubelet tries again" } else { "Correct the spec" };
        let message = format!(
            "{} fails with the changed spec: {}. No other member gets the change, and {why_not}. {remedy}",
            member.name(),
            failure.kind
        );
        return Some(Next::wait(Reason::RolloutStuck, message, POLL));
    }
    let before = known.and_then(|failed| failed.attempts).unwrap_or_default();
    latch(Some(FailedTemplate {
        template: fingerprint,
        member: member.name().to_owned(),
        why: failure.words,
        at: now.to_string(),
        attempts: failure.passes.then(|| before.saturating_add(1)),
        retrying: false,
    }))
}

/// Returns when a member tries a failed template again: after a minute, and twice as long each time up to ten minutes. `None` where
/// only a person ends the cause.
fn retry_at(failed: &FailedTemplate) -> Option<Timestamp> {
    let minutes = 1_i64 << failed.attempts?.saturating_sub(1).min(4);
    Some(failed.at.parse::<Timestamp>().ok()? + SignedDuration::from_mins(minutes.min(10)))
}

/// Whether a member has served for a while with a template for which it still keeps the earlier one.
fn is_proven(member: &Member, now: Timestamp) -> bool {
    let current = |pod: &Pod| {
        let since = pods::ready_since(pod);
        since.is_some_and(|since| now >= since + PROVEN) && template::is_current(pod, &member.object)
    };
    member.object.spec.served.is_some() && member.live_pod().is_some_and(current)
}

/// Returns the earlier template for a member that has the failed one and does not serve, or whose Pod has not ended in its turn.
fn restore(seen: &Observed, member: &Member, wanted: &Template, now: Timestamp) -> Option<Next> {
    let own = &member.object.spec.process;
    let served = member
        .object
        .spec
        .served
        .as_ref()
        .filter(|served| *served != own && upgrade::may_have(seen, member, served))?;
    let well = |pod| pods::ready(pod) && resize::failure(member, now).is_none();
    let fails = own == wanted && !member.live_pod().is_some_and(well);
    let turn_taken =
        |pod: &Pod| pods::runs(pod) && !template::is_current(pod, &member.object) && template::may_be_of(pod, served);
    (fails || member.live_pod().is_some_and(turn_taken)).then(|| {
        Next::act(Act::SetTemplate {
            member: Target::from(&member.object.metadata),
            template: Box::new(served.clone()),
            served: Some(Box::new(served.clone())),
        })
    })
}

/// Why a member does not start.
struct Failure {
    /// In words that stay the same while the member fails (I17).
    kind: String,
    /// With the words of kubelet or etcd.
    words: String,
    /// Whether the cause may pass by itself.
    passes: bool,
}

/// Returns why a member has failed with this template; `None` while it may still start, or where the template is not the cause.
fn failure(seen: &Observed, member: &Member, wanted: &Template, now: Timestamp) -> Option<Failure> {
    let served = member.object.spec.served.as_ref().filter(|served| *served != wanted)?;
    // A member that joins ends as long as its member list is outdated.
    if !member.joined() || member.object.spec.process != *wanted {
        return None;
    }
    if let Some(words) = resize::failure(member, now) {
        let kind = "kubelet cannot change the resources of its Pod".to_owned();
        return Some(Failure { kind, words, passes: false });
    }
    if let Some(words) = successor::lasting_refusal(seen, member) {
        let kind = format!("the API server refuses its Pod: {words}");
        return Some(Failure { kind, words: words.to_owned(), passes: false });
    }
    let pod = member.live_pod().filter(|pod| template::is_current(pod, &member.object) && !pods::ready(pod))?;
    let deadline = SignedDuration::from_secs(seen.cluster.spec.progress_deadline().into());
    let age = now.duration_since(pods::prepared_at(pod).unwrap_or(now));
    // A Pod that has served for long fails for another reason.
    let counted = pods::start_number(pod).is_some_and(|number| member.object.spec.start_count >= number);
    if counted && age >= deadline {
        return None;
    }
    let held = failure::hold_up(pod, member.claim.as_ref());
    let passes = crashes(pod) < CRASHES && held.as_ref().is_some_and(|held| held.passes);
    if let Some(words) = stops(member, pod, now) {
        let placed = served.resources == wanted.resources;
        return (!pods::is_unscheduled(pod) || (!placed && age >= deadline)).then(|| Failure {
            kind: if crashes(pod) >= CRASHES {
                "etcd ends again and again".to_owned()
            } else {
                format!("kubelet cannot start its Pod: {words}")
            },
            words,
            passes,
        });
    }
    let others = seen.staying().filter(|m| m.name() != member.name());
    let alone_unwell = others.into_iter().all(|m| m.live_pod().is_some_and(pods::ready)) || seen.staying().count() == 1;
    let kind = || format!("its Pod is not ready after {} s", deadline.as_secs());
    let held = held.map(|held| format!("{}: {}", kind(), held.message));
    (age >= deadline && alone_unwell).then(|| Failure { kind: kind(), words: held.unwrap_or_else(kind), passes })
}

/// Whether a member does not start with the template that it has, in kubelet's words; etcd does not run in its Pod.
pub(super) fn stops(member: &Member, pod: &Pod, now: Timestamp) -> Option<String> {
    // The gate refuses the volume, whatever the template is.
    let volume = failure::verdict(pod).is_some() || member.lost_volume().is_some();
    if pods::ready(pod) || (pods::runs(pod) && crashes(pod) < CRASHES) || volume {
        return None;
    }
    if crashes(pod) >= CRASHES {
        let last =
            failure::find_last(pod).map(|last| format!(", with code {}: {}", last.exit_code, last.message.trim()));
        return Some(format!("etcd ends again and again{}", last.unwrap_or_default()));
    }
    let held = failure::hold_up(pod, member.claim.as_ref()).filter(|held| held.stuck)?;
    let since = pods::prepared_at(pod)?;
    (now >= since + UNSTARTED).then_some(held.message)
}

fn crashes(pod: &Pod) -> i32 {
    pods::status(pod, container::ETCD).map_or(0, |status| status.restart_count)
}
