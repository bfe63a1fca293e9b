//! Alarms that came along with restored data, that a removed member left, or whose member has room again.
//!
//! Decides which alarms no member can hold any more. etcd refuses all writes while an alarm of any member is raised (etcd:
//! server/etcdserver/apply, `restoreAlarms`). Holdfast clears four: a `NOSPACE` of a member that etcd does not list, while every
//! member has room; a `NOSPACE` of a member whose file is below nine tenths of its quota (etcd: the file counts, with its free
//! pages); a `CORRUPT` of another cluster's member, which was raised when the restored cluster formed and whose ID etcd
//! did not list then and does not list now; and the `CORRUPT` of a member that was replaced for it, when all remaining members
//! have the same data (`diverged.rs`). Every other `CORRUPT` stays: etcd keeps the alarm of a removed member, and a person decides
//! which data is right.

use holdfast_api::cluster::Formed;
use holdfast_api::restore::Restoring;
use holdfast_contract::hex_id;

use super::defragment::HAS_ROOM;
use super::{Alarm, AlarmKind, Member, Membership, Observed, defragment, diverged};
use crate::valid::{self, Wanted};
use crate::{Act, Next, Wake, volumes};

/// Pause between two alarms that Holdfast clears.
const NEXT_ONE: Wake = Wake::AfterMillis(1_000);

/// Returns the act that clears an alarm, if an alarm can be cleared.
pub(super) fn next(seen: &Observed, wanted: &Wanted, etcd: &Membership) -> Option<Next> {
    let mut answers = etcd.members.iter().map(|l| seen.serving(etcd, l, seen.standing_for(l)?.name()));
    let (clear, stay): (Vec<&Alarm>, Vec<&Alarm>) =
        etcd.alarms_of(AlarmKind::Corrupt).partition(|a| foreign(seen, etcd, a) || diverged::is_over(seen, etcd, a));
    // etcd 3.5 accepts writes again when the last alarm of either kind is cleared, even if an alarm of the other kind is raised.
    if !stay.is_empty() {
        return None;
    }
    // With a pause: a member that lags behind the others still reports an alarm that is cleared.
    let disarm = |alarm: &Alarm| Next::Do(Act::Disarm { alarm: alarm.clone(), cluster_id: etcd.cluster_id }, NEXT_ONE);
    if let Some(corrupt) = clear.first() {
        return answers.all(|answer| answer.is_some()).then(|| disarm(corrupt));
    }
    let has_room = |bytes: i64, quota: u64| u64::try_from(bytes).is_ok_and(|bytes| bytes < quota / 100 * HAS_ROOM);
    let own = |alarm: &&Alarm| {
        let listed = etcd.members.iter().find(|l| l.id == alarm.member_id);
        let member = listed.and_then(|listed| Some((listed, seen.standing_for(listed)?)));
        member.is_some_and(|(listed, member)| {
            // An etcd with an earlier quota would raise the alarm again.
            let quota = member.live_pod().and_then(|pod| volumes::quota_in_force(pod, &member.object));
            let answer = seen.serving(etcd, listed, member.name());
            answer.zip(quota).is_some_and(|(answer, quota)| has_room(answer.db_bytes, quota))
        })
    };
    // The others would raise the alarm again at the next write: they give their space back first.
    let waits = defragment::may_end_alarm(seen, etcd) && defragment::why_not(seen, etcd).is_none();
    if let Some(over) = etcd.alarms_of(AlarmKind::NoSpace).find(own).filter(|_| !waits) {
        return answers.all(|answer| answer.is_some()).then(|| disarm(over));
    }
    let unlisted = etcd.alarms_of(AlarmKind::NoSpace).find(|a| a.member_id != 0 && !listed(etcd, a))?;
    let room = |bytes: i64| has_room(bytes, wanted.server.quota);
    answers.all(|answer| answer.is_some_and(|answer| room(answer.db_bytes))).then(|| disarm(unlisted))
}

/// The ways out of a `NOSPACE` alarm, for a person.
const WAYS_OUT: &str = "compact old revisions (etcdctl compact), delete keys (`holdfast agent contents` names the prefixes with the most \
                        bytes in a snapshot), or raise spec.options.quotaBackendBytes and, where the volume is too small, \
                        spec.storage.size. Holdfast then gives the free space back, and clears the alarm";

/// Returns a member's own `NOSPACE` alarm in words.
fn describe_full(seen: &Observed, etcd: &Membership, whose: &str, member: &Member) -> String {
    let answer = seen.known_answer(member.name());
    if answer.is_some_and(|answer| defragment::ends_alarm(seen, member, answer)) {
        let waits = defragment::why_not(seen, etcd).filter(|_| seen.latches().defragmenting.is_none());
        let when = waits.map_or_else(String::new, |why| format!(" afterwards: {why}"));
        return format!("{whose} (Holdfast defragments {}, and clears the alarm{when})", member.name());
    }
    let quota = valid::member(&member.object).map_or(0, |server| server.quota) >> 20;
    format!("{whose} (the file of {} has reached its quota of {quota} MiB: {WAYS_OUT})", member.name())
}

/// Returns the member IDs of the `CORRUPT` alarms in the restored data: alarms that are raised when the restored seed starts to
/// serve, alone, and that do not name the seed. No other member existed by then, and etcd never uses an ID twice. Where the
/// status was lost, this moment is unknown, and the result is empty.
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

/// Returns an alarm in words, with the remedy where Holdfast does not clear the alarm.
pub(super) fn describe_alarm(seen: &Observed, etcd: &Membership, alarm: &Alarm) -> String {
    let whose = format!("{} on member {}", alarm.kind.as_str(), hex_id(alarm.member_id));
    if alarm.kind == AlarmKind::NoSpace && alarm.member_id != 0 && !listed(etcd, alarm) {
        return format!(
            "{whose} (no member of this cluster: Holdfast clears the alarm when every member answers and is below nine \
             tenths of its quota. Compact and defragment the members, or raise spec.options.quotaBackendBytes)"
        );
    }
    let own = etcd.members.iter().find(|l| l.id == alarm.member_id).and_then(|l| seen.standing_for(l));
    if let Some(member) = own.filter(|_| alarm.kind == AlarmKind::NoSpace) {
        return describe_full(seen, etcd, &whose, member);
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

/// Whether an alarm names another cluster's member.
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
