//! Breaches of the rules for the end of a cluster.

use super::*;

fn deleted(voters: usize) -> Cluster {
    let mut seen = formed(voters, i32::try_from(voters).unwrap());
    seen.cluster.metadata.deletion_timestamp = Some(earlier());
    seen
}

#[test]
fn a_cluster_goes_after_each_member_has_the_newest_retention() {
    let release = |seen: &Cluster| Act::ReleaseCluster { cluster: target(&seen.cluster.metadata) };
    let good = deleted(2);
    assert_eq!(broken(&good, release(&good)), None);
    type Change = fn(&mut Cluster);
    let changes: [(&str, Change); 3] = [
        ("I4", |s| s.cluster.spec.storage.retention = Retention::Retain),
        ("I4", |s| s.members[1].object.spec.storage.retention = Retention::Retain),
        ("I4", |s| s.cluster.metadata.deletion_timestamp = None),
    ];
    for (n, (invariant, change)) in changes.into_iter().enumerate() {
        let mut seen = good.clone();
        change(&mut seen);
        assert_eq!(broken(&seen, release(&seen)), Some(invariant), "{n}");
    }
    let stale = Act::ReleaseCluster { cluster: target(&good.members[0].object.metadata) };
    assert_eq!(broken(&good, stale), Some("I12"));
}

#[test]
fn a_member_gets_the_clusters_own_value() {
    let copy =
        |seen: &Cluster, retention| Act::CopyRetention { member: target(&seen.members[0].object.metadata), retention };
    let mut seen = formed(1, 1);
    assert_eq!(broken(&seen, copy(&seen, Retention::Retain)), Some("I4"));
    seen.cluster.spec.storage.retention = Retention::Retain;
    assert_eq!(broken(&seen, copy(&seen, Retention::Retain)), None);
    assert_eq!(broken(&seen, copy(&seen, Retention::Delete)), Some("I4"));
    seen.cluster.spec.paused = true;
    assert_eq!(broken(&seen, copy(&seen, Retention::Retain)), Some("I13"));
}

#[test]
fn the_first_member_is_made_for_a_cluster_that_is_held() {
    let mut seen = bare(1);
    latches(&mut seen).pending_member = Some(named(0));
    let create = |seen: &Cluster| Act::CreateMember(Box::new(objects::member::seed(&seen.cluster, &named(0), None)));
    assert_eq!(broken(&seen, create(&seen)), None);
    let hold = |seen: &Cluster| Act::HoldCluster { cluster: target(&seen.cluster.metadata) };
    assert_eq!(broken(&seen, hold(&seen)), None);
    seen.cluster.metadata.finalizers = None;
    assert_eq!(broken(&seen, create(&seen)), Some("I4"));
    seen.cluster.metadata.deletion_timestamp = Some(earlier());
    assert_eq!(broken(&seen, hold(&seen)), Some("I13"), "what is deleted gets no finalizer");
}
