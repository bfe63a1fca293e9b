//! The way back of a return that failed: the earlier timeline serves again.
//!
//! Decides the order: the member of the new timeline goes first, so that two timelines never have a Pod of etcd at the same time (I2),
//! then each member that was set aside starts again. `park.rs` compares the raft indexes before clients come (I3).

use holdfast_api::cluster::Latches;
use holdfast_api::member::Parked;
use holdfast_api::timeline::{self, ReturnPhase, Returning};
use holdfast_api::{key, role};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::super::{Member, Observed, park};
use super::record::{self, wait};
use holdfast_base::{Act, Next, Target, meta};

/// Returns the next step; `None`: the members are awake, and other rules let clients in.
pub(super) fn next(seen: &Observed, returning: &Returning, now: Timestamp) -> Option<Next> {
    let new = |m: &&Member| timeline::of_member(&m.object) == returning.timeline && m.object.spec.aside.is_none();
    let switched = seen.latches().timeline == Some(returning.timeline);
    let made = seen.members.iter().chain(&seen.others).find(new);
    // Clients that were only led away come back first.
    let back = || seen.own_etcd().and_then(|etcd| super::super::promote::admit(seen, etcd));
    let serves = !switched && !seen.members.is_empty() && !park::wakes(seen);
    if let Some(next) = back().filter(|next| serves && matches!(next, Next::Do(..))) {
        return Some(next);
    }
    if let Some(member) = made.filter(|member| !member.joined()) {
        if member.deleting() {
            return Some(wait(format!("{}: {}", record::waits_for(returning), record::ends(member, now))));
        }
        return Some(Next::act(Act::DeleteMember {
            member: Target::from(&member.object.metadata),
            why: "the return to its data has failed".to_owned(),
        }));
    }
    if switched {
        let earlier = returning.earlier.clone();
        let record = Some(returning.clone());
        let restoring = earlier.as_ref().and_then(|formed| formed.restored_from.clone());
        let timeline = Some(returning.timeline - 1).filter(|number| *number > timeline::FIRST);
        return Some(record::latch(Latches {
            timeline,
            formed: earlier,
            pending_member: None,
            restoring,
            returning: record,
            ..seen.latches()
        }));
    }
    let own = |m: &&Member| m.object.spec.aside.as_ref().is_some_and(|aside| aside.restore_uid == returning.uid);
    if let Some((member, aside)) =
        seen.others.iter().find(own).and_then(|member| Some((member, member.object.spec.aside.as_ref()?)))
    {
        let parked = Parked { term: aside.term, index: aside.index, at: now.to_string() };
        return Some(Next::act(Act::TakeBack { member: Target::from(&member.object.metadata), parked }));
    }
    let admitted = |pod: &Pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
    let served = seen.members.iter().filter_map(Member::live_pod).any(admitted) && !park::wakes(seen);
    // A cluster without a quorum serves as little as before.
    let served = served || returning.survivor().is_some();
    served.then(|| record::write(seen, returning.clone().entering(ReturnPhase::Failed, now)))
}
