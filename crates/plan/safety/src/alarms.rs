//! Rules for the end of alarms: no alarm ends that a member may still hold (I3, I12).

use super::facts::{answers, formed_as, id, latches, stands_for};
use super::{Verdict, replace, rule};
use holdfast_base::seen::cluster::{Member, Observed};
use holdfast_base::{Alarm, AlarmKind, Seen};

/// Checks that no member can hold the alarm any more: of the alarms of a listed member only `NOSPACE` ends, when its file is below
/// the quota again.
pub(super) fn disarm(seen: &Observed, alarm: &Alarm, cluster_id: u64) -> Verdict {
    let etcd = formed_as(seen, cluster_id)?;
    rule("I12", etcd.alarms.contains(alarm) && alarm.member_id != 0, "a cleared alarm is raised and names a member")?;
    let own = etcd.members.iter().find(|l| l.id == alarm.member_id).map(|l| stands_for(seen, l));
    let has_room = |member: &Member| {
        let bytes = seen.answers.get(member.name()).and_then(Seen::known).map(|answer| answer.db_bytes);
        let quota = member.live_pod().and_then(|pod| holdfast_base::volumes::quota_in_force(pod, &member.object));
        let is_below = |(bytes, quota)| u64::try_from(bytes).is_ok_and(|bytes: u64| bytes < quota);
        alarm.kind == AlarmKind::NoSpace && bytes.zip(quota).is_some_and(is_below)
    };
    let over = own.is_none_or(|own| own.is_some_and(has_room));
    rule("I12", over, "a member's own alarm is cleared only where its file is below the quota again")?;
    let formed = latches(seen).formed.filter(|formed| formed.restored_from.is_some());
    let before = formed.map(|formed| formed.corrupt_came_along).unwrap_or_default();
    let mut corrupt = etcd.alarms.iter().filter(|a| a.kind == AlarmKind::Corrupt);
    let listed = |a: &Alarm| etcd.members.iter().any(|l| l.id == a.member_id);
    let replaced = replace::outvoted(seen, etcd);
    let known = |alarm: &Alarm| before.contains(&id(alarm.member_id)) || replaced == Some(id(alarm.member_id));
    let foreign = corrupt.all(|a| a.member_id != 0 && !listed(a) && known(a));
    rule("I3", foreign, "no alarm is cleared while a CORRUPT alarm concerns this cluster's own data")?;
    let all = etcd.members.iter().all(|l| answers(seen, etcd, l));
    rule("I1", all, "every member reports its size before an alarm is cleared")
}
