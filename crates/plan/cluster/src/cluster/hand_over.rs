//! Moves the leadership to another member.
//!
//! Decides which voter leads next. `shrink.rs`, `roll.rs`, `defragment.rs` and `grow.rs` decide whether the leader keeps it;
//! `move_leader.rs` obeys a user.

use super::{Listed, Membership, Observed, health};
use holdfast_base::{Act, Next};

/// Moves the leadership to the healthy voter with the longest log, so that no election stops writes. `None`: no other voter that
/// stays is healthy.
pub(super) fn hand_over(seen: &Observed, etcd: &Membership, leader: &Listed, name: &str) -> Option<Next> {
    let others = health::healthy(seen, etcd).into_iter().filter(|(l, m)| l.id != leader.id && m.stays());
    let index = |name: &str| seen.known_answer(name).map(|answer| answer.applied_index);
    let (to, _) = others.max_by_key(|(l, m)| (index(m.name()), l.id))?;
    let (from, to) = (leader.id, to.id);
    Some(Next::act(Act::MoveLeader { name: name.to_owned(), from, to, cluster_id: etcd.cluster_id }))
}
