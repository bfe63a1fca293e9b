//! Rules for defragmentation: at most one member stands still, without clients, while every other voter is well (I1, I16).

use holdfast_api::cluster::Latches;
use holdfast_api::{key, role};

use super::facts::{formed_as, is_whole, latches, listed_as, owner_of, voters};
use super::{Verdict, roll, rule};
use holdfast_base::seen::cluster::{Member, Observed};
use holdfast_base::{AlarmKind, Target, meta};

/// Whether the latch names this member, and the cluster has its turn.
pub(super) fn is_under_way(seen: &Observed, member: &Member) -> bool {
    seen.has_turn && latches(seen).defragmenting.is_some_and(|record| record.member == member.name())
}

/// Checks a change of the latch.
pub(super) fn latch(seen: &Observed, old: &Latches, new: &Latches) -> Verdict {
    match (&old.defragmenting, &new.defragmenting) {
        (None, Some(record)) => {
            let member = seen.members.iter().any(|m| m.name() == record.member && m.joined());
            rule("I1", member && record.began.is_none(), "a defragmentation begins with a decision about a member")
        }
        (Some(before), Some(after)) if before != after => {
            let begins = before.member == after.member && before.began.is_none() && after.began.is_some();
            rule("I1", begins, "one member is defragmented at a time")
        }
        (Some(_), Some(_)) | (_, None) => Ok(()),
    }
}

/// Checks that a member may stand still.
pub(super) fn stand_still(seen: &Observed, pod: &Target, name: &str, (member_id, cluster_id): (u64, u64)) -> Verdict {
    let etcd = formed_as(seen, cluster_id)?;
    let member = owner_of(seen, pod)?;
    let listed = listed_as(seen, etcd, name).filter(|l| l.id == member_id && !l.learner);
    rule("I12", member.name() == name && listed.is_some(), "the member is the voter that was seen")?;
    let began = latches(seen).defragmenting.is_some_and(|record| record.member == name && record.began.is_some());
    rule("I1", began, "the beginning is latched before a member stands still")?;
    let admitted = member.live_pod().is_none_or(|pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER));
    rule("I16", !admitted, "clients are led elsewhere before a member stands still")?;
    rule(
        "I3",
        etcd.alarms.iter().all(|a| a.kind != AlarmKind::Corrupt),
        "no member stands still while data are in doubt",
    )?;
    let voters = voters(etcd);
    rule("I11", is_whole(seen, etcd), "the membership is not changing")?;
    rule("I1", roll::others_are_well(seen, etcd, member), "every other voter serves and keeps up")?;
    rule("I1", voters.len() == 1 || etcd.leader != Some(member_id), "a leader hands the leadership over first")?;
    // etcd waits for open reads of its file, and serves nothing meanwhile.
    rule("I1", seen.saving.is_empty(), "no snapshot is being saved")
}
