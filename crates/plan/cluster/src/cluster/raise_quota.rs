//! A larger quota for a full database, where `spec.defragmentation.growQuotaTo` allows one.
//!
//! Decides when the quota in force grows, and to which size: it doubles when a `NOSPACE` alarm ends with no defragmentation, or when a
//! file is nearly full of data. The size is latched, and `valid::options` puts it into the template of the members; the spec stays as
//! the user wrote it. `roll.rs` restarts the members for it, which needs no write; `alarms.rs` then clears the alarm.

use jiff::Timestamp;

use super::health::{changes_members, in_doubt, voters};
use super::space::{self, File};
use super::{Listed, Membership, Observed, defragment, roll};
use holdfast_base::valid::Wanted;
use holdfast_base::{Act, AlarmKind, Next, valid};

/// Returns the larger quota that the spec and each volume have room for; `None` where the present quota is the largest.
pub(super) fn next_size(seen: &Observed) -> Option<u64> {
    let most = seen.cluster.spec.defragmentation().grow_quota_to.as_ref().and_then(valid::bytes)?;
    let present = valid::cluster(&seen.cluster).ok()?.server.quota;
    let rooms = seen.staying().filter_map(|m| valid::member(&m.object).ok()).map(|server| server.most_quota());
    let next = present.saturating_mul(2).min(most).min(rooms.min()?);
    (next > present).then_some(next)
}

/// Latches a larger quota for a full database.
pub(super) fn next(seen: &Observed, spec: &Wanted, etcd: &Membership, now: Timestamp) -> Option<Next> {
    // Each member runs with the present quota before the next larger one.
    let changes = roll::is_due(seen, now) || roll::forbidden(seen, spec).is_some() || changes_members(seen, etcd);
    if changes || in_doubt(etcd).is_some() || !is_full(seen, etcd, now) {
        return None;
    }
    let mut latches = seen.latches();
    latches.granted_quota = i64::try_from(next_size(seen)?).ok();
    Some(Next::act(Act::Latch(Box::new(latches))))
}

/// Whether the data need more than the quota of a member.
fn is_full(seen: &Observed, etcd: &Membership, now: Timestamp) -> bool {
    let stays = !defragment::may_end_alarm(seen, etcd, now);
    let window = seen.cluster.spec.defragmentation().window;
    // The restart of one of two members stops writes: before the alarm the user chooses the time.
    let early = voters(etcd) > 2 || window.is_some_and(|window| defragment::is_open(&window, now));
    let full = |listed: &Listed| {
        let member = seen.standing_for(listed)?;
        let file = File::read(seen, member, seen.serving(etcd, listed, member.name())?)?;
        let raised = etcd.alarms_of(AlarmKind::NoSpace).any(|alarm| alarm.member_id == listed.id);
        let refuses = raised && stays && !space::has_room(file.bytes, file.quota);
        Some(refuses || (early && file.is_nearly_full() && !file.has_free(defragment::FREE_WHEN_NEARLY_FULL)))
    };
    etcd.members.iter().any(|listed| full(listed) == Some(true))
}
