//! Alarms that came along with restored data, or that a member left when it was removed.
//!
//! Decides which of them nobody can hold any more. etcd refuses all writes while one is raised, whosever it is (etcd:
//! server/etcdserver/apply, `restoreAlarms`). Three are cleared: a `NOSPACE` of somebody whom etcd does not list, while every
//! member has room; and a `CORRUPT` that was raised already when the restored cluster formed, of somebody who was no member
//! then and is none now: it speaks of another cluster's data; and the `CORRUPT` of a member that was replaced for it, when all
//! that are left have the same data (`diverged.rs`). Every other `CORRUPT` stays: etcd does not forget the alarm of
//! a member that is removed, and whose data are right is for a person to say.

use super::{Alarm, AlarmKind, Member, Membership, Observed, diverged};
use crate::api::cluster::Formed;
use crate::api::restore::Restoring;
use crate::plan::valid::Wanted;
use crate::plan::{Act, Next, Wake};
use snapshot_agent::contract::hex_id;

/// Between two alarms that are cleared.
const NEXT_ONE: Wake = Wake::AfterMillis(1_000);

/// The alarm to clear, if there is one.
pub(super) fn next(seen: &Observed, wanted: &Wanted, etcd: &Membership) -> Option<Next> {
    let mut answers = etcd.members.iter().map(|l| seen.serving(etcd, l, seen.standing_for(l)?.name()));
    let (clear, stay): (Vec<&Alarm>, Vec<&Alarm>) =
        etcd.alarms_of(AlarmKind::Corrupt).partition(|a| foreign(seen, etcd, a) || diverged::is_over(seen, etcd, a));
    // etcd 3.5 lets writes through again when the last alarm of either kind is cleared, whatever the other kind says.
    if !stay.is_empty() {
        return None;
    }
    // Not at once again: a member that lags behind the others still tells of an alarm that is cleared.
    let disarm = |alarm: &Alarm| Next::Do(Act::Disarm { alarm: alarm.clone(), cluster_id: etcd.cluster_id }, NEXT_ONE);
    if let Some(corrupt) = clear.first() {
        return answers.all(|answer| answer.is_some()).then(|| disarm(corrupt));
    }
    let left = etcd.alarms_of(AlarmKind::NoSpace).find(|a| a.member_id != 0 && !listed(etcd, a))?;
    let has_room = |bytes: i64| u64::try_from(bytes).is_ok_and(|bytes| bytes < wanted.server.quota / 10 * 9);
    answers.all(|answer| answer.is_some_and(|answer| has_room(answer.db_bytes))).then(|| disarm(left))
}

/// Whose `CORRUPT` alarms came along with the data: they were raised when the restored seed had just begun to serve, alone, and
/// are not its own. Nobody else had been a member by then, and an ID never comes back. Where it is not certain that this is
/// that moment (the status was lost), nothing is known of them.
pub(super) fn came_along(seen: &Observed, etcd: &Membership, restored_from: Option<&Restoring>) -> Vec<String> {
    let first = restored_from.is_some() && seen.latches().restoring.as_ref() == restored_from;
    if !first || seen.members.len() != 1 || etcd.members.len() != 1 {
        return vec![];
    }
    let mut ids: Vec<String> =
        etcd.alarms_of(AlarmKind::Corrupt).filter(|a| !listed(etcd, a)).map(|a| hex_id(a.member_id)).collect();
    ids.sort();
    ids
}

/// An alarm in words, and what a person can do where the operator does not clear it.
pub(super) fn told(seen: &Observed, etcd: &Membership, alarm: &Alarm) -> String {
    let whose = format!("{} on member {}", alarm.kind.as_str(), hex_id(alarm.member_id));
    if alarm.kind == AlarmKind::NoSpace && alarm.member_id != 0 && !listed(etcd, alarm) {
        return format!(
            "{whose} (no member of this cluster: Holdfast clears the alarm when every member answers and is below nine \
             tenths of its quota. Compact and defragment the members until then; spec.options.quotaBackendBytes is \
             immutable)"
        );
    }
    let formed = seen.latches().formed.unwrap_or_default();
    if alarm.kind != AlarmKind::Corrupt || formed.restored_from.is_none() || listed(etcd, alarm) {
        return whose;
    }
    if foreign(seen, etcd, alarm) {
        return format!(
            "{whose} (the alarm is part of the restored data. Holdfast clears the alarm when every member answers and \
             no other CORRUPT alarm is raised)"
        );
    }
    let member = seen.members.first().map_or("MEMBER", Member::name);
    let clear = format!("`kubectl exec {member} -- etcdctl alarm disarm` clears this alarm and every other alarm");
    if alarm.member_id != 0 {
        return format!(
            "{whose} (no member of this cluster: the alarm is part of the restored data, or was left by a removed \
             member. If the alarm is part of the restored data, {clear})"
        );
    }
    let was = known(&formed, alarm);
    let when = if was { "was raised before this cluster formed from" } else { "may be part of" };
    format!(
        "{whose} (the alarm names no member, and {when} the restored data. If the alarm is part of the restored data \
         and was not raised again, {clear})"
    )
}

/// Whether an alarm speaks of another cluster's member.
fn foreign(seen: &Observed, etcd: &Membership, alarm: &Alarm) -> bool {
    let formed = seen.latches().formed.filter(|formed| formed.restored_from.is_some());
    alarm.member_id != 0 && !listed(etcd, alarm) && formed.is_some_and(|formed| known(&formed, alarm))
}

fn known(formed: &Formed, alarm: &Alarm) -> bool {
    formed.corrupt_came_along.contains(&hex_id(alarm.member_id))
}

fn listed(etcd: &Membership, alarm: &Alarm) -> bool {
    etcd.members.iter().any(|l| l.id == alarm.member_id)
}
