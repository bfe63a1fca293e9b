//! The end of the present timeline: each member is set aside, and its Pod ends. Its claim stays.
//!
//! Decides the order, and when the next timeline begins: only when no Pod of the present one is left, so that two timelines never have
//! a Pod of etcd at the same time (I2).

use holdfast_api::timeline::{Aside, ReturnPhase, Returning};
use holdfast_api::{key, role};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::super::leader_last::{self, NextEnd};
use super::super::{Member, Observed};
use super::prepare::{is_there, revision};
use super::record::{self, fail, wait};
use super::{start, survivor};
use holdfast_base::{Act, Next, Target, meta};

/// Returns the next step.
pub(super) fn next(seen: &Observed, returning: &Returning, now: Timestamp) -> Next {
    let none_aside = !seen.others.iter().any(|member| is_set_aside(member, returning));
    let survives = returning.survivor().is_some();
    if (none_aside || survives) && !record::is_wanted(seen, returning) {
        return fail(seen, returning, "the EtcdRestore was deleted", now);
    }
    if let Some(seconds) = record::is_late(returning, now) {
        return fail(seen, returning, &format!("the Pods did not end within {seconds} s"), now);
    }
    let admitted = |pod: &&Pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
    if let Some(pod) = seen.members.iter().filter_map(Member::live_pod).find(admitted) {
        return Next::act(Act::DismissClients { pod: Target::from(&pod.metadata) });
    }
    if let Some(present) = revision(seen).filter(|_| none_aside) {
        if returning.first_revision.is_some_and(|first| present >= first) {
            let why = "the cluster has written more revisions than the restored data was raised by";
            return fail(seen, returning, why, now);
        }
        // Without a safety snapshot the answers name the last revision. Once: clients with open connections write on.
        if returning.earlier_revision.is_none() {
            return record::write(seen, Returning { earlier_revision: Some(present), ..returning.clone() });
        }
    }
    let data = if survives {
        survivor::still_lost(seen, returning)
    } else if none_aside && !is_there(seen, returning) {
        Err("the restored data is gone: its EtcdMember or its claim was deleted")
    } else {
        Ok(())
    };
    if let Err(why) = data {
        return fail(seen, returning, why, now);
    }
    let ends = |member| wait(format!("{}: {}", record::waits_for(returning), record::ends(member, now)));
    // A removed member has no Pod, and keeps its claim in its own way.
    let stays = seen.members.iter().filter(|member| !member.removed());
    let mut with_pod = seen.others.iter().filter(|m| is_set_aside(m, returning) && m.pod.is_some());
    match leader_last::next(seen, stays, with_pod.clone(), now) {
        Some(NextEnd::Now(member)) => {
            let answer = seen.known_answer(member.name());
            let aside = Aside {
                restore: returning.name.clone(),
                restore_uid: returning.uid.clone(),
                timeline: returning.timeline,
                term: answer.map(|answer| answer.term),
                index: answer.map(|answer| answer.applied_index),
                at: now.to_string(),
                keep_seconds: returning.keep_earlier_seconds,
            };
            return Next::act(Act::SetAside { member: Target::from(&member.object.metadata), aside });
        }
        Some(NextEnd::After(other)) => return ends(other),
        None => {}
    }
    if let Some(member) = with_pod.next() {
        return ends(member);
    }
    if let Some(pod) = seen.stray_pods.first() {
        return wait(format!(
            "{}: the Pod {pod} belongs to no member, and may run etcd. Delete the Pod",
            record::waits_for(returning)
        ));
    }
    if survives {
        // Only now no etcd holds the survivor's volume.
        return record::write(seen, returning.clone().entering(ReturnPhase::Preparing, now));
    }
    start::begin(seen, returning.clone(), now)
}

/// Whether this return has set the member aside.
fn is_set_aside(member: &Member, returning: &Returning) -> bool {
    member.object.spec.aside.as_ref().is_some_and(|aside| aside.restore_uid == returning.uid)
}
