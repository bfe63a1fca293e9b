//! Alarms that came along with restored data, or that a member left when it was removed.
//!
//! Decides which of them nobody can hold any more: a `NOSPACE` of somebody whom etcd does not list, while every member has
//! room. etcd refuses all writes while one is raised, whosever it is (etcd: server/etcdserver/apply, `restoreAlarms`). A
//! `CORRUPT` is never cleared: whose data are right is for a person to say.

use super::{Membership, Observed};
use crate::plan::valid::Wanted;
use crate::plan::{Act, Next};

/// The alarm to clear, if there is one.
pub(super) fn next(seen: &Observed, wanted: &Wanted, etcd: &Membership) -> Option<Next> {
    let listed = |id: u64| etcd.members.iter().any(|l| l.id == id);
    let left = etcd.alarms.iter().find(|a| a.kind == "NOSPACE" && a.member_id != 0 && !listed(a.member_id))?;
    let has_room = |bytes: i64| u64::try_from(bytes).is_ok_and(|bytes| bytes < wanted.server.quota / 10 * 9);
    let members = || etcd.members.iter().map(|l| seen.serving(etcd, l, seen.standing_for(l)?.name()));
    let all = members().all(|answer| answer.is_some_and(|answer| has_room(answer.db_bytes)));
    all.then(|| Next::act(Act::Disarm { member_id: left.member_id, cluster_id: etcd.cluster_id }))
}
