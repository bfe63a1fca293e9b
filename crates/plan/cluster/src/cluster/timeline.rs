//! The return of a formed cluster to a stored snapshot, in place: an `EtcdRestore` makes the next timeline.
//!
//! Decides which part of a return comes next, and when its record goes. `timeline/prepare.rs` restores the data while the cluster
//! serves, `save.rs` leads clients away and saves the safety snapshot, `set_aside.rs` ends the members of the present timeline,
//! `start.rs` begins the next one and waits for it, and `turn_back.rs` makes the earlier one serve again. `survivor.rs` begins the return of
//! a cluster without a quorum: it ends the Pods before it restores. `bootstrap.rs` founds the next timeline from
//! the prepared member, as it founds any cluster (I2).

mod prepare;
mod record;
mod save;
mod set_aside;
mod start;
mod survivor;
mod turn_back;

use holdfast_api::cluster::Latches;
use holdfast_api::timeline::{self, PhaseStart, ReturnPhase, Returning};
use holdfast_api::{EtcdCluster, EtcdRestore};
use jiff::Timestamp;

use super::{Member, Membership, Observed};
use holdfast_base::{Act, Next, Target, Waiting, meta};

pub use record::waits_for;

/// Returns the `EtcdRestore` that is under way, else the one whose turn it is: the oldest that names the next timeline and has not
/// ended.
pub fn find_turn<'a>(
    cluster: &EtcdCluster,
    members: &[&holdfast_api::EtcdMember],
    restores: impl Iterator<Item = &'a EtcdRestore>,
) -> Option<&'a EtcdRestore> {
    let latched = cluster.status.as_ref().and_then(|status| status.latches.returning.as_ref());
    let now = timeline::of_cluster(cluster, members.iter().copied());
    let set_aside = members.iter().filter_map(|member| member.spec.aside.as_ref());
    let set_aside = set_aside.filter(|aside| aside.timeline > now).max_by_key(|aside| aside.timeline);
    let under_way = latched.map(|latched| &latched.uid).or(set_aside.map(|aside| &aside.restore_uid));
    let own = restores.filter(|restore| Some(&restore.spec.cluster_ref.name) == cluster.metadata.name.as_ref());
    match under_way {
        Some(uid) => own.into_iter().find(|restore| restore.metadata.uid.as_ref() == Some(uid)),
        None => own.filter(|restore| is_due(restore, now)).min_by_key(|restore| {
            (restore.metadata.creation_timestamp.as_ref().map(|at| at.0), restore.metadata.uid.clone())
        }),
    }
}

fn is_due(restore: &EtcdRestore, timeline: u32) -> bool {
    restore.spec.timeline == timeline + 1 && !record::has_ended(restore) && !meta::deleting(&restore.metadata)
}

/// Returns the step of a return that leaves no other rule a turn; `None`: no such return is under way.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    let Some(returning) = seen.latches().returning else { return recover(seen, now) };
    match returning.phase() {
        ReturnPhase::Pending | ReturnPhase::Preparing => prepare::give_up(seen, &returning, now),
        ReturnPhase::Saving => Some(save::next(seen, &returning, now)),
        ReturnPhase::SettingAside => Some(set_aside::next(seen, &returning, now)),
        ReturnPhase::Starting => start::next(seen, &returning, now),
        ReturnPhase::TurningBack => turn_back::next(seen, &returning, now),
        ReturnPhase::Complete | ReturnPhase::Failed | ReturnPhase::Skipped => close(seen, &returning),
    }
}

/// Returns the step that prepares a return, while the cluster serves: other changes wait.
/// `is_sound`: nothing refuses the spec, and no certificate is missing.
pub(super) fn prepare(seen: &Observed, etcd: Option<&Membership>, is_sound: bool, now: Timestamp) -> Option<Next> {
    match seen.latches().returning {
        Some(returning) if returning.phase() == ReturnPhase::Preparing => {
            Some(prepare::next(seen, &returning, is_sound, now))
        }
        Some(_) => None,
        None => prepare::begin(seen, etcd.filter(|_| is_sound)?, now),
    }
}

/// Returns the step of a return to the data of one member: its beginning, or its preparation. It needs no etcd.
pub(super) fn survive(seen: &Observed, is_sound: bool, now: Timestamp) -> Option<Next> {
    match seen.latches().returning {
        Some(returning) if returning.phase() == ReturnPhase::Preparing && returning.survivor().is_some() => {
            Some(prepare::next(seen, &returning, is_sound, now))
        }
        None if is_sound && seen.latches().formed.is_some() => survivor::begin(seen, now),
        Some(_) | None => None,
    }
}

/// Whether a return to the data of one member waits only for a spec and for certificates that are accepted.
pub(super) fn waits_for_spec(seen: &Observed, now: Timestamp) -> bool {
    let latches = seen.latches();
    let due = latches.formed.is_some() && latches.returning.is_none() && survivor::asked(seen).is_some();
    due && survivor::hindrance(seen, now).is_none()
}

/// Returns why the return whose turn it is does not begin yet.
pub fn held(seen: &Observed, now: Timestamp) -> Option<Waiting> {
    let idle = seen.latches().returning.is_none() && seen.latches().formed.is_some();
    if idle && survivor::asked(seen).is_some() {
        return survivor::hindrance(seen, now);
    }
    let etcd = seen.own_etcd().filter(|_| idle)?;
    prepare::hindrance(seen, etcd, now)
}

/// Brings back the record of a return that was lost with the status: members that are set aside carry it.
fn recover(seen: &Observed, now: Timestamp) -> Option<Next> {
    let present = seen.timeline();
    let aside = seen.others.iter().filter_map(|m| m.object.spec.aside.as_ref());
    let aside = aside.filter(|aside| aside.timeline > present).max_by_key(|aside| aside.timeline)?;
    let prepared = seen.others.iter().find(|m| timeline::of_member(&m.object) == aside.timeline && !m.deleting());
    let restore = seen.returns.as_ref().filter(|restore| restore.metadata.uid.as_ref() == Some(&aside.restore_uid));
    let open = restore.filter(|restore| !record::has_ended(restore));
    // Without a quorum the Pods end before the data is restored.
    if let Some(record) = open.and_then(|restore| survivor::first_record(seen, restore, now)) {
        return Some(record::latch(Latches { returning: Some(record), ..seen.latches() }));
    }
    let goes_on = open.is_some() && prepared.is_some();
    let phase = if goes_on { ReturnPhase::SettingAside } else { ReturnPhase::TurningBack };
    let spec = restore.map(|restore| restore.spec.clone()).unwrap_or_default();
    let returning = Returning {
        name: aside.restore.clone(),
        uid: aside.restore_uid.clone(),
        timeline: aside.timeline,
        phases: vec![PhaseStart { phase, at: now.to_string() }],
        deadline_seconds: spec.deadline(),
        keep_earlier_seconds: aside.keep_seconds,
        restoring: prepared.and_then(|member| member.object.spec.restore.clone()),
        member: prepared.map(|member| member.name().to_owned()),
        earlier: seen.latches().formed,
        failure: (!goes_on).then(|| "the status of the EtcdCluster was lost during the return".to_owned()),
        ..Returning::default()
    };
    Some(record::latch(Latches { returning: Some(returning), ..seen.latches() }))
}

/// Removes the record after the `EtcdRestore` has recorded the end, or is gone.
fn close(seen: &Observed, returning: &Returning) -> Option<Next> {
    let restore = seen.returns.as_ref().filter(|restore| restore.metadata.uid.as_ref() == Some(&returning.uid));
    let recorded = restore.is_none_or(record::has_ended);
    recorded.then(|| record::latch(Latches { returning: None, ..seen.latches() }))
}

/// Deletes a member of an earlier timeline after its time, and a prepared member that no return knows any more.
pub(super) fn clear(seen: &Observed, now: Timestamp) -> Option<Act> {
    let latches = seen.latches();
    let idle = seen.cluster.spec.paused || meta::deleting(&seen.cluster.metadata) || latches.formed.is_none();
    if idle || latches.returning.is_some() {
        return None;
    }
    let present = seen.timeline();
    let ends = |member: &&Member| match &member.object.spec.aside {
        Some(aside) => aside.timeline <= present && aside.kept_until().is_some_and(|until| now >= until),
        None => !member.joined() && timeline::of_member(&member.object) > present,
    };
    let member = seen.others.iter().filter(|member| !member.deleting()).find(ends)?;
    let why = if member.joined() {
        "keepEarlierSeconds of the EtcdRestore that set it aside are over"
    } else {
        "the return that it was prepared for has ended"
    };
    Some(Act::DeleteMember { member: Target::from(&member.object.metadata), why: why.to_owned() })
}
