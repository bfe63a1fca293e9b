//! The turns of clusters at a defragmentation: each turn holds up a pass of the operator for as long as etcd takes.
//!
//! Decides from the latches of all clusters which of them have a turn. The oldest decision comes first, and a namespace has few
//! turns, so that the members of one tenant that hang delay no other. Without its turn a cluster keeps its clients. `defragment.rs`
//! decides the steps.

use holdfast_api::EtcdCluster;
use jiff::{SignedDuration, Timestamp};

use holdfast_base::meta;

/// Turns at the same time: half of the operator's passes over clusters.
const IN_ALL: usize = 8;

/// Turns at the same time in one namespace.
const IN_A_NAMESPACE: usize = 2;

/// How long etcd may take for one member, with a repetition: 8 GiB at 30 MB/s.
pub(super) const GIVE_UP: SignedDuration = SignedDuration::from_mins(10);

/// How long a decision waits for its turn, and for etcd, before Holdfast decides again.
pub(super) const WAITS: SignedDuration = SignedDuration::from_hours(1);

/// Returns a cluster's place in the row: begun ones first, then by age. `None`: the cluster has no decision, or an old one, whose
/// cluster waits for something else.
fn place(cluster: &EtcdCluster, now: Timestamp) -> Option<(bool, Timestamp, &str)> {
    let record = cluster.status.as_ref()?.latches.defragmenting.as_ref()?;
    let (at, lasts) = record.began.as_ref().map_or((&record.at, WAITS), |began| (began, GIVE_UP));
    let at: Timestamp = at.parse().ok()?;
    let counts = now < at + lasts && !meta::deleting(&cluster.metadata);
    counts.then(|| (record.began.is_none(), at, meta::uid(&cluster.metadata)))
}

/// Whether a cluster's defragmentation has its turn among those of all clusters.
pub fn has_turn<'a>(own: &EtcdCluster, all: impl IntoIterator<Item = &'a EtcdCluster>, now: Timestamp) -> bool {
    let record = own.status.as_ref().and_then(|status| status.latches.defragmenting.as_ref());
    // etcd may be at work.
    let Some(record) = record.filter(|record| record.began.is_none()) else { return true };
    let Some(own_place) = place(own, now) else { return record.at.parse::<Timestamp>().is_err() };
    let earlier = all.into_iter().filter(|other| place(other, now).is_some_and(|place| place < own_place));
    let (near, far): (Vec<_>, Vec<_>) = earlier.partition(|other| other.metadata.namespace == own.metadata.namespace);
    near.len() < IN_A_NAMESPACE && near.len() + far.len() < IN_ALL
}

#[cfg(test)]
mod tests {
    use holdfast_api::defragmentation::Defragmenting;

    use super::*;
    use crate::fixtures::{formed, noon};

    /// A cluster that decided so many minutes ago, and began so many minutes ago.
    fn decided(namespace: &str, name: &str, minutes: i64, began: Option<i64>) -> EtcdCluster {
        let mut cluster = formed(1, 1).cluster;
        (cluster.metadata.namespace, cluster.metadata.uid) = (Some(namespace.to_owned()), Some(name.to_owned()));
        let ago = |minutes| (noon() - SignedDuration::from_mins(minutes)).to_string();
        let record = Defragmenting { at: ago(minutes), began: began.map(ago), ..Defragmenting::default() };
        cluster.status.as_mut().unwrap().latches.defragmenting = Some(record);
        cluster
    }

    #[test]
    fn a_namespace_whose_members_hang_takes_no_turn_of_another() {
        let hung: Vec<_> = (0..4).map(|n| decided("busy", &format!("h{n}"), 9, Some(8))).collect();
        let healthy = decided("calm", "a", 0, None);
        assert!(has_turn(&healthy, &hung, noon()));
        let own = decided("busy", "b", 0, None);
        assert!(!has_turn(&own, &hung, noon()) && !has_turn(&own, &hung[..2], noon()));
        assert!(has_turn(&own, &hung[..1], noon()));
        assert!(has_turn(&hung[3], &hung, noon()), "etcd may be at work: the cluster goes on");
    }

    #[test]
    fn the_oldest_decisions_come_first_and_old_ones_take_no_turn() {
        let others: Vec<_> = (0..8).map(|n| decided(&format!("n{n}"), "x", 10, None)).collect();
        assert!(!has_turn(&decided("calm", "a", 9, None), &others, noon()));
        assert!(has_turn(&decided("calm", "a", 11, None), &others, noon()));
        let mut freed = others.clone();
        freed[0] = decided("n0", "x", 60, None);
        assert!(has_turn(&decided("calm", "a", 9, None), &freed, noon()), "a decision of an hour ago has ended");
        freed[0] = decided("n0", "x", 30, Some(10));
        assert!(has_turn(&decided("calm", "a", 9, None), &freed, noon()), "Holdfast has given this etcd up");
        assert!(!has_turn(&decided("calm", "a", 61, None), [], noon()), "the own decision is too old");
    }
}
