//! An edit of `spec.storage.retention` reaches every member before the cluster may go.

use holdfast_api::CLUSTER_FINALIZER;
use holdfast_api::cluster::Retention;

use super::*;

fn retained(mut seen: Observed) -> Observed {
    seen.cluster.spec.storage.retention = Retention::Retain;
    seen
}

fn deleted(mut seen: Observed) -> Observed {
    seen.cluster.metadata.deletion_timestamp = Some(earlier());
    seen
}

fn copies(seen: &Observed, n: usize) -> Option<Act> {
    Some(Act::CopyRetention { member: member_target(seen, n), retention: Retention::Retain })
}

#[test]
fn an_edit_is_copied_member_by_member_and_acknowledged_at_the_end() {
    let mut seen = retained(formed(2, 2));
    assert_eq!(seen.cluster.status.as_ref().unwrap().retention, Some(Retention::Delete));
    for n in 0..2 {
        assert_eq!(act(&seen), copies(&seen, n));
        assert_eq!(
            planned(&seen).status.retention,
            Some(Retention::Delete),
            "the earlier value until each member has the new one"
        );
        assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
        seen.members[n].object.spec.storage.retention = Retention::Retain;
    }
    assert_eq!((act(&seen), planned(&seen).status.retention), (None, Some(Retention::Retain)));
}

/// The member's pass reads the member's copy after the cluster is gone.
#[test]
fn a_cluster_that_is_deleted_right_after_the_edit_goes_after_its_members_know() {
    let mut seen = deleted(retained(formed(2, 2)));
    for n in 0..2 {
        assert_eq!(act(&seen), copies(&seen, n));
        assert_eq!(condition(&seen, "Progressing"), pair("True", "Deleting"));
        seen.members[n].object.spec.storage.retention = Retention::Retain;
    }
    let cluster = Target::from(&seen.cluster.metadata);
    assert_eq!(act(&seen), Some(Act::ReleaseCluster { cluster }));
    // A pause does not block a deletion.
    seen.cluster.spec.paused = true;
    assert!(matches!(act(&seen), Some(Act::ReleaseCluster { .. })));
    seen.cluster.metadata.finalizers = Some(vec!["example.com/other".to_owned()]);
    assert_eq!(waits(&seen), Some(Reason::Deleting));
}

#[test]
fn a_cluster_has_the_finalizer_before_its_first_member_and_gets_one_that_is_lost() {
    let mut seen = bare(1);
    seen.cluster.metadata.finalizers = None;
    let held = Some(Act::HoldCluster { cluster: Target::from(&seen.cluster.metadata) });
    assert_eq!(act(&seen), held);
    seen.cluster.metadata.finalizers = Some(vec![CLUSTER_FINALIZER.to_owned()]);
    assert!(matches!(act(&seen), Some(Act::Latch(_))));
    let mut seen = formed(1, 1);
    seen.cluster.metadata.finalizers = None;
    assert_eq!(act(&seen), held);
    assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
    // Clients and every act that keeps the cluster whole come first.
    let mut grows = formed(1, 3);
    grows.cluster.metadata.finalizers = None;
    assert!(matches!(act(&grows), Some(Act::Latch(_))));
}

/// After a lost quorum a person keeps the volumes: `Retain`, and then deletes the cluster.
#[test]
fn a_cluster_gets_the_finalizer_and_its_members_the_value_whatever_it_waits_for() {
    type Change = fn(&mut Observed);
    let waits: [Change; 4] = [
        |s| s.etcd = Seen::unknown("timed out"),
        |s| s.cluster.spec.version = "4.0.0".to_owned(),
        |s| s.client_service.as_mut().unwrap().metadata.owner_references = None,
        |s| drop(s.answers.remove(&named(1))),
    ];
    for (n, wait) in waits.into_iter().enumerate() {
        let mut seen = retained(formed(3, 3));
        wait(&mut seen);
        assert_eq!(act(&seen), copies(&seen, 0), "{n}");
        seen.cluster.metadata.finalizers = None;
        assert!(matches!(act(&seen), Some(Act::HoldCluster { .. })), "{n}: {:?}", act(&seen));
        seen.cluster.spec.paused = true;
        assert_eq!(act(&seen), None, "{n}");
    }
}

/// The same edit during the restore of the first member.
#[test]
fn an_edit_discards_no_seed() {
    let mut seen = retained(seeding(1));
    assert_eq!(act(&seen), copies(&seen, 0));
    seen.members[0].object.spec.storage.retention = Retention::Retain;
    assert!(matches!(act(&seen), Some(Act::LatchJoined { .. })), "{:?}", act(&seen));
    let mut other = seeding(1);
    other.cluster.spec.storage.storage_class_name = Some("fast".to_owned());
    assert!(matches!(act(&other), Some(Act::DeleteMember { .. })), "another volume is another member");
}
