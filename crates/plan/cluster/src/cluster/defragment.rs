//! Defragmentation: a member's etcd rewrites its file, and free pages go back to the volume.
//!
//! etcd serves nothing on the member meanwhile, and its file would not shrink while a snapshot is read from it. This file decides
//! which member is next, and the order for one member: latch the decision, wait for the cluster's turn (`turn.rs`), move the
//! leadership away, lead new clients away, latch the beginning, wait until clients are gone, defragment, let clients in, latch the
//! result. At most one member stands still, and only while every voter is well (I1), no member joins or leaves (I11), nothing rolls
//! or grows, and no snapshot is being saved. A defragmentation that loses these conditions before etcd was asked is given up. The
//! facts are the latch and the Pod's role, so an interrupted one continues; etcd does no harm to its data in a second run.

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::defragmentation::{Defragmentation, DefragmentationMode, Defragmented, Defragmenting, Window};
use holdfast_api::{key, role};
use jiff::{SignedDuration, Timestamp};

use super::hand_over::hand_over;
use super::health::{changes_members, in_doubt, is_level, is_well, voters};
use super::space::File;
use super::turn::{GIVE_UP, WAITS};
use super::{Answer, Listed, Member, Membership, Observed, enlarge, roll, space};
use holdfast_base::due_times::Line;
use holdfast_base::valid::Wanted;
use holdfast_base::{Act, AlarmKind, Next, Target, Wake, meta, pods, valid, volumes};

/// How long a member whose file hardly shrank is left alone.
const AFTER_A_FAILURE: SignedDuration = SignedDuration::from_hours(24);

/// The same while an alarm stops all writes: etcd frees the pages of a compaction on each member at another time, and the defragmentation
/// may have come too early on this one.
const AGAIN_FOR_AN_ALARM: SignedDuration = SignedDuration::from_mins(2);

/// How long new connections may still go to a Pod that has left the Service: kube-proxy follows within a second.
const CLIENTS_LEAVE: SignedDuration = SignedDuration::from_secs(2);

/// For this long etcd may refuse the request before clients come back: it refuses for a moment while it elects a leader.
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(3);

/// Interval while a defragmentation is under way.
const SOON: Wake = Wake::AfterMillis(500);

/// Interval while the members of other clusters are defragmented.
const RETRY: Wake = Wake::AfterMillis(5_000);

/// Free part of a nearly full file in percent that is enough.
pub(super) const FREE_WHEN_NEARLY_FULL: u64 = 20;

/// Whether a member is being defragmented: it gets no clients. Before its turn the member keeps them.
pub(super) fn is_under_way(seen: &Observed, member: &str) -> bool {
    seen.has_turn && seen.latches().defragmenting.is_some_and(|record| record.member == member)
}

/// Gives a defragmentation up whose conditions are lost. `hindered`: another rule blocks its next steps.
pub(super) fn stop(seen: &Observed, etcd: Option<&Membership>, hindered: bool, now: Timestamp) -> Option<Next> {
    let record = seen.latches().defragmenting?;
    let member = seen.staying().find(|m| m.name() == record.member);
    let stays = member.is_some_and(|m| !m.deleting() && m.live_pod().is_some());
    // etcd may be at work: only the loss of the member or of the cluster's shape ends that.
    let lost = match etcd {
        Some(etcd) => changes_members(seen, etcd) || (record.began.is_none() && why_not(seen, etcd, now).is_some()),
        None => record.began.is_none(),
    };
    let parks = seen.cluster.spec.replicas == 0;
    let late = record.at.parse::<Timestamp>().is_ok_and(|at| now >= at + WAITS);
    (parks || !stays || lost || ((hindered || late) && record.began.is_none())).then(|| give_up(seen))
}

/// Gives a defragmentation up; clients come back. etcd may be at work, and does no harm to its data.
pub(super) fn give_up(seen: &Observed) -> Next {
    latch(seen, |latches| latches.defragmenting = None)
}

/// Returns the next step of the defragmentation that is under way.
pub(super) fn go_on(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let record = seen.latches().defragmenting.filter(|_| seen.has_turn)?;
    let member = seen.staying().find(|m| m.name() == record.member)?;
    let (listed, pod) = (seen.listed(etcd, member.name())?, member.live_pod()?);
    let wait = |why: &str| Some(Next::wait(Reason::Defragmenting, format!("{} {why}", member.name()), SOON));
    let admitted = meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
    let leads = etcd.leader == Some(listed.id) && voters(etcd) > 1;
    let moves = || hand_over(seen, etcd, listed, member.name()).or_else(|| wait("waits for another leader"));
    let Some(began) = record.began.as_deref().and_then(|at| at.parse::<Timestamp>().ok()) else {
        if leads {
            return moves();
        }
        if admitted {
            return Some(Next::act(Act::DismissClients { pod: Target::from(&pod.metadata) }));
        }
        let started = Defragmenting { began: Some(now.to_string()), ..record };
        return Some(latch(seen, |latches| latches.defragmenting = Some(started)));
    };
    // The act lets clients in again after etcd's answer. An etcd that ended meanwhile (its disk is full, or kubelet ended it) would end
    // again.
    let restarted = pods::running_since(pod).is_some_and(|since| since > began);
    let refused = seen.refused_for.is_some_and(|lasted| lasted >= REFUSED_FOR);
    if admitted || restarted || refused || now >= began + GIVE_UP {
        let answer = seen.serving(etcd, listed, member.name());
        let after_bytes = answer.map_or(record.bytes, |answer| answer.db_bytes);
        return Some(finish(seen, record, (after_bytes, refused), now));
    }
    let have_left = now >= began + CLIENTS_LEAVE;
    if let Some(why) = why_not(seen, etcd, now) {
        // etcd was not asked yet, or the clients of a single member have no other.
        if !have_left || voters(etcd) < 2 {
            return Some(give_up(seen));
        }
        return wait(&format!("waits with its defragmentation: {why}"));
    }
    // The leader ended meanwhile, and etcd chose this member.
    if leads {
        return moves();
    }
    if !have_left {
        return wait("waits until its clients have left");
    }
    Some(Next::Do(
        Act::Defragment {
            pod: Target::from(&pod.metadata),
            name: member.name().to_owned(),
            member_id: listed.id,
            cluster_id: etcd.cluster_id,
        },
        SOON,
    ))
}

/// Records the result. `refused`: etcd has not defragmented, so the size says nothing.
fn finish(seen: &Observed, record: Defragmenting, (after_bytes, refused): (i64, bool), now: Timestamp) -> Next {
    let ineffective = !refused && !is_effective(&record, after_bytes);
    let Defragmenting { member, bytes, .. } = record;
    let done = Defragmented { member, at: now.to_string(), before_bytes: bytes, after_bytes, ineffective };
    latch(seen, |latches| {
        latches.defragmenting = None;
        let stays =
            |known: &Defragmented| seen.staying().any(|m| m.name() == known.member && known.member != done.member);
        latches.defragmented.retain(stays);
        latches.defragmented.push(done);
    })
}

/// Whether at least half of the free space came back.
const fn is_effective(record: &Defragmenting, after_bytes: i64) -> bool {
    record.bytes - after_bytes >= (record.bytes - record.used_bytes) / 2
}

/// Decides about the member that is next, and waits for the cluster's turn; other changes come first meanwhile.
pub(super) fn begin(seen: &Observed, spec: &Wanted, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let wanted = seen.cluster.spec.defragmentation();
    let waits = seen.latches().defragmenting;
    if waits.is_some() && seen.has_turn {
        return None;
    }
    let never = wanted.mode.unwrap_or_default() == DefragmentationMode::Never;
    let is_full = etcd.alarms_of(AlarmKind::NoSpace).next().is_some();
    let known = seen.latches().defragmented;
    let ended = |done: &Defragmented| done.at.parse::<Timestamp>().unwrap_or(now);
    let pause = SignedDuration::from_secs(wanted.pause_seconds().into());
    let rests = known.iter().any(|done| now < ended(done) + pause);
    let open = match &wanted.window {
        Some(window) => is_open(window, now),
        // Clients of a single member wait: the user chooses the time.
        None => voters(etcd) > 1,
    };
    // A changed spec rolls first, unless a forbidden one waits for the space, or etcd takes no write.
    let rolls = roll::is_due(seen, now) && roll::forbidden(seen, spec).is_none();
    if never || !is_full && (rests || !open || rolls) || why_not(seen, etcd, now).is_some() {
        return waits.map(|_| give_up(seen));
    }
    if let Some(record) = waits {
        // A larger quota needs no turn.
        if is_full {
            return None;
        }
        let message = format!("{} waits for its turn: members of other clusters are being defragmented", record.member);
        return Some(Next::wait(Reason::Defragmenting, message, RETRY));
    }
    let candidates = etcd.members.iter().filter_map(|listed| {
        let member = seen.standing_for(listed)?;
        let answer = seen.serving(etcd, listed, member.name())?;
        let file = File::read(seen, member, answer)?;
        is_due(seen, &wanted, member, &file, now).then_some((listed, member, answer, file))
    });
    let order = |(listed, _, _, file): &(&Listed, &Member, &Answer, File)| {
        (etcd.leader == Some(listed.id), std::cmp::Reverse(file.free()), listed.id)
    };
    let (_, member, answer, _) = candidates.min_by_key(order)?;
    let record = Defragmenting {
        member: member.name().to_owned(),
        at: now.to_string(),
        bytes: answer.db_bytes,
        used_bytes: space::used(seen, answer),
        began: None,
    };
    Some(latch(seen, |latches| latches.defragmenting = Some(record)))
}

/// Returns why no member may stand still; `None` where one may.
pub(super) fn why_not(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<&'static str> {
    let latches = seen.latches();
    let own = |m: &Member| latches.defragmenting.as_ref().is_some_and(|record| record.member == m.name());
    let well = |l: &Listed| {
        let member = seen.standing_for(l);
        member.is_some_and(|m| if own(m) { is_level(seen, etcd, l, m) } else { is_well(seen, etcd, l, m) })
    };
    let busy = latches.pending_member.is_some() || latches.upgrade.is_some() || latches.orphan.is_some();
    match () {
        () if in_doubt(etcd).is_some() => Some("a CORRUPT alarm is raised"),
        () if busy || changes_members(seen, etcd) => Some("the membership or the version changes"),
        () if !etcd.members.iter().all(well) => Some("a member is not well"),
        () if seen.staying().any(|m| restarts(m) || enlarge::is_growing(seen, m, now)) => {
            Some("a member restarts with a changed spec, or its volume grows")
        }
        () if !seen.saving.is_empty() => Some("a snapshot is being saved"),
        () => None,
    }
}

/// Whether a member is in its turn of a roll, or its Pod has another template or quota than the member.
fn restarts(member: &Member) -> bool {
    let present = |pod| volumes::has_present_quota(pod, &member.object);
    member.object.spec.served.is_some() || !member.live_pod().is_some_and(present)
}

/// Whether a member's file has enough free space, and the volume room for its copy.
fn is_due(seen: &Observed, wanted: &Defragmentation, member: &Member, file: &File, now: Timestamp) -> bool {
    let last = last_within(seen, member, AFTER_A_FAILURE, now);
    let least = valid::bytes(&wanted.free_bytes()).unwrap_or(u64::MAX);
    // A file that has grown back would grow back again.
    let grew_back = |done: &Defragmented| u64::try_from(done.before_bytes / 10 * 8).is_ok_and(|b| file.bytes >= b);
    let rests = last.as_ref().is_some_and(|done| grew_back(done) && !file.is_nearly_full());
    let usual = !rests && file.free() >= least && file.has_free(wanted.free_percent().into());
    let urgent = file.is_nearly_full() && file.has_free(FREE_WHEN_NEARLY_FULL);
    (shrinks(file, last.as_ref()) && (usual || urgent)) || ends_alarm(seen, member, file, now)
}

/// Whether a defragmentation is likely to make the file smaller.
fn shrinks(file: &File, last: Option<&Defragmented>) -> bool {
    file.fits_copy && !last.is_some_and(|done| done.ineffective)
}

/// Whether the alarm of a member ends with a defragmentation.
pub(super) fn ends_alarm(seen: &Observed, member: &Member, file: &File, now: Timestamp) -> bool {
    let never = seen.cluster.spec.defragmentation().mode == Some(DefragmentationMode::Never);
    let is_full = seen.own_etcd().is_some_and(|etcd| etcd.alarms_of(AlarmKind::NoSpace).next().is_some());
    let last = last_within(seen, member, AGAIN_FOR_AN_ALARM, now);
    !never && is_full && file.gets_room() && shrinks(file, last.as_ref())
}

/// Whether a defragmentation of some member ends an alarm, as far as the files tell.
pub(super) fn may_end_alarm(seen: &Observed, etcd: &Membership, now: Timestamp) -> bool {
    let ends = |listed: &Listed| {
        let member = seen.standing_for(listed)?;
        let file = File::read(seen, member, seen.serving(etcd, listed, member.name())?)?;
        Some(ends_alarm(seen, member, &file, now))
    };
    etcd.members.iter().any(|listed| ends(listed) == Some(true))
}

/// Returns the last defragmentation of a member, if it ended within this time. A member whose file hardly shrank is left alone for
/// that time.
fn last_within(seen: &Observed, member: &Member, time: SignedDuration, now: Timestamp) -> Option<Defragmented> {
    let is_recent = |done: &Defragmented| done.at.parse::<Timestamp>().is_ok_and(|at| now < at + time);
    seen.latches().defragmented.into_iter().find(|done| done.member == member.name()).filter(is_recent)
}

/// Whether a period is under way.
pub(super) fn is_open(window: &Window, now: Timestamp) -> bool {
    let length = SignedDuration::from_secs(window.seconds.into());
    let line = Line::parse(&window.schedule, window.time_zone.as_deref()).ok();
    line.and_then(|line| line.next(now - length)).is_some_and(|began| began <= now)
}

/// Returns the latch after this change.
fn latch(seen: &Observed, change: impl FnOnce(&mut Latches)) -> Next {
    let mut latches = seen.latches();
    change(&mut latches);
    Next::act(Act::Latch(Box::new(latches)))
}

/// Returns the progress in words, which stay the same to its end (I17).
pub(super) fn describe_progress(record: &Defragmenting) -> (Reason, String) {
    let mib = |bytes: i64| bytes >> 20;
    let message = format!(
        "{} gives free space back: {} MiB of its file, of which {} MiB are in use",
        record.member,
        mib(record.bytes),
        mib(record.used_bytes)
    );
    (Reason::Defragmenting, message)
}
