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
use holdfast_api::condition::Reason;
use holdfast_api::defragmentation::DefragmentationMode;
use holdfast_api::restore::Restoring;
use holdfast_contract::hex_id;
use jiff::Timestamp;

use super::space::{self, File};
use super::{Member, Membership, Observed, defragment, diverged, enlarge, raise_quota};
use holdfast_base::valid::{self, Wanted};
use holdfast_base::{Act, Alarm, AlarmKind, Next, Wake, template, volumes};

/// Pause between two alarms that Holdfast clears.
const NEXT_ONE: Wake = Wake::AfterMillis(1_000);

/// Returns the act that clears an alarm, if an alarm can be cleared.
pub(super) fn next(seen: &Observed, wanted: &Wanted, etcd: &Membership, now: Timestamp) -> Option<Next> {
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
    let own = |alarm: &&Alarm| {
        let listed = etcd.members.iter().find(|l| l.id == alarm.member_id);
        let member = listed.and_then(|listed| Some((listed, seen.standing_for(listed)?)));
        member.is_some_and(|(listed, member)| {
            let answer = seen.serving(etcd, listed, member.name());
            answer.is_some_and(|answer| space::has_room_in_force(member, answer))
        })
    };
    // The others would raise the alarm again at the next write: they give their space back first.
    let waits = defragment::may_end_alarm(seen, etcd, now) && defragment::why_not(seen, etcd, now).is_none();
    if let Some(over) = etcd.alarms_of(AlarmKind::NoSpace).find(own).filter(|_| !waits) {
        return answers.all(|answer| answer.is_some()).then(|| disarm(over));
    }
    let unlisted = etcd.alarms_of(AlarmKind::NoSpace).find(|a| a.member_id != 0 && !listed(etcd, a))?;
    let room = |bytes: i64| u64::try_from(bytes).is_ok_and(|bytes| space::has_room(bytes, wanted.server.quota));
    answers.all(|answer| answer.is_some_and(|answer| room(answer.db_bytes))).then(|| disarm(unlisted))
}

/// Returns all alarms in words, with the reason: `SpaceExhausted` where only a person makes room for writes.
pub(super) fn describe(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<(Reason, String)> {
    let in_doubt = etcd.alarms_of(AlarmKind::Corrupt).next().is_some();
    if let Some(message) = describe_exhausted(seen, etcd, now).filter(|_| !in_doubt) {
        return Some((Reason::SpaceExhausted, message));
    }
    let mut described: Vec<String> = etcd.alarms.iter().map(|a| describe_alarm(seen, etcd, a, now)).collect();
    described.sort();
    (!described.is_empty()).then(|| (Reason::AlarmRaised, described.join(", ")))
}

/// Returns the numbers and the ways out, where neither a defragmentation nor a larger quota ends a member's `NOSPACE` alarm.
fn describe_exhausted(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<String> {
    if defragment::may_end_alarm(seen, etcd, now) {
        return None;
    }
    let full = |alarm: &Alarm| {
        let listed = etcd.members.iter().find(|l| l.id == alarm.member_id)?;
        let member = seen.standing_for(listed)?;
        let answer = seen.serving(etcd, listed, member.name())?;
        let goes_on = space::has_room_in_force(member, answer) || gets_larger_quota(seen, member, now);
        if goes_on { None } else { Some((member, File::read(seen, member, answer)?)) }
    };
    let (member, file) = etcd.alarms_of(AlarmKind::NoSpace).filter_map(full).max_by_key(|(_, file)| file.bytes)?;
    let server = valid::member(&member.object).ok()?;
    let mib = |bytes: u64| bytes >> 20;
    let most = server.most_quota();
    let larger = if most > file.quota {
        format!(
            "spec.options.quotaBackendBytes or spec.defragmentation.growQuotaTo (the volume has room for a quota of {} MiB)",
            mib(most)
        )
    } else {
        let also = if seen.cluster.spec.defragmentation().grow_quota_to.is_some() {
            " and spec.defragmentation.growQuotaTo"
        } else {
            ""
        };
        format!("spec.storage.size{also} (the volume of {} MiB has no room for a larger quota)", mib(server.volume))
    };
    let free = why_not_freed(seen, &file).unwrap_or_default();
    Some(format!(
        "etcd refuses writes: the file of {} has {} MiB, of which {} MiB are in use, and the quota is {} MiB{free}. Compact old \
         revisions (etcdctl compact REVISION), delete keys (`holdfast agent contents --top` names the prefixes with the most bytes in \
         a snapshot), or raise {larger}; Holdfast then clears the alarm",
        member.name(),
        mib(file.bytes),
        mib(file.used),
        mib(file.quota),
    ))
}

/// Returns why the free space of a full file stays in the file; `None` where it would not end the alarm.
fn why_not_freed(seen: &Observed, file: &File) -> Option<&'static str> {
    let never = seen.cluster.spec.defragmentation().mode == Some(DefragmentationMode::Never);
    match () {
        () if !file.gets_room() => None,
        () if never => Some(
            "; a defragmentation would end the alarm, and spec.defragmentation.mode is Never: set WhenNeeded, or run \
             `holdfast agent defrag`",
        ),
        () if !file.fits_copy => {
            Some("; the volume has no room for the copy of a defragmentation: raise spec.storage.size")
        }
        () => Some("; a defragmentation just now gave hardly any space back, and Holdfast repeats it"),
    }
}

/// Whether the quota of a member's etcd grows without a person: its next Pod has a larger one.
fn gets_larger_quota(seen: &Observed, member: &Member, now: Timestamp) -> bool {
    let grows = enlarge::is_growing(seen, member, now);
    let storage = if grows { &seen.cluster.spec.storage } else { &member.object.spec.storage };
    let Ok(next) = valid::process(storage, &template::wanted(&seen.cluster)) else { return false };
    let in_force = member.live_pod().and_then(|pod| volumes::quota_in_force(pod, &member.object));
    in_force.is_none_or(|quota| quota < next.quota) || raise_quota::next_size(seen).is_some()
}

/// Returns the next step towards the end of a member's own `NOSPACE` alarm in words.
fn describe_full(seen: &Observed, etcd: &Membership, member: &Member, now: Timestamp) -> String {
    let name = member.name();
    let Some(answer) = seen.known_answer(name) else { return format!("{name} does not answer") };
    if File::read(seen, member, answer).is_some_and(|file| defragment::ends_alarm(seen, member, &file, now)) {
        let waits = defragment::why_not(seen, etcd, now).filter(|_| seen.latches().defragmenting.is_none());
        let when = waits.map_or_else(String::new, |why| format!(" afterwards: {why}"));
        return format!("Holdfast defragments {name}, and clears the alarm{when}");
    }
    if space::has_room_in_force(member, answer) {
        return format!("{name} has room: Holdfast clears the alarm when every member has room and answers");
    }
    if gets_larger_quota(seen, member, now) {
        return format!("{name} restarts with a larger quota, then Holdfast clears the alarm");
    }
    format!("the file of {name} has reached its quota")
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
fn describe_alarm(seen: &Observed, etcd: &Membership, alarm: &Alarm, now: Timestamp) -> String {
    let own = etcd.members.iter().find(|l| l.id == alarm.member_id).and_then(|l| seen.standing_for(l));
    match (alarm.kind, own) {
        (AlarmKind::Corrupt, _) => describe_corrupt(seen, etcd, alarm),
        (AlarmKind::NoSpace, Some(member)) => {
            format!("{} ({})", name_alarm(alarm), describe_full(seen, etcd, member, now))
        }
        (AlarmKind::NoSpace, None) if alarm.member_id != 0 && !listed(etcd, alarm) => format!(
            "{} (no member of this cluster: Holdfast clears the alarm when every member answers and is below nine tenths of its quota. \
             Compact and defragment the members, or raise spec.options.quotaBackendBytes)",
            name_alarm(alarm)
        ),
        (AlarmKind::NoSpace, None) => name_alarm(alarm),
    }
}

fn name_alarm(alarm: &Alarm) -> String {
    format!("{} on member {}", alarm.kind.as_str(), hex_id(alarm.member_id))
}

/// Returns a `CORRUPT` alarm in words, with the remedy where Holdfast does not clear the alarm.
pub(super) fn describe_corrupt(seen: &Observed, etcd: &Membership, alarm: &Alarm) -> String {
    let whose = name_alarm(alarm);
    let formed = seen.latches().formed.unwrap_or_default();
    if formed.restored_from.is_none() || listed(etcd, alarm) {
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
