//! Larger volumes: deliberate breaches.

use holdfast_api::cluster::Options;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimCondition, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn quantity(size: &str) -> Quantity {
    Quantity(size.to_owned())
}

/// A formed cluster with volumes of 8Gi whose spec asks for 16Gi.
fn growing() -> Cluster {
    let mut seen = formed(3, 3);
    seen.cluster.spec.storage.size = Some(quantity("16Gi"));
    seen
}

fn arrive(seen: &mut Cluster, n: usize, size: &str) {
    let capacity = Some([("storage".to_owned(), quantity(size))].into());
    let status = PersistentVolumeClaimStatus { capacity, ..PersistentVolumeClaimStatus::default() };
    seen.members[n].claim.as_mut().unwrap().status = Some(status);
}

fn grow(seen: &Cluster, n: usize, size: &str) -> Act {
    Act::GrowClaim {
        claim: target(&seen.members[n].claim.as_ref().unwrap().metadata),
        size: quantity(size),
        at: noon().to_string(),
    }
}

fn set(seen: &Cluster, n: usize, size: &str) -> Act {
    Act::SetVolumeSize { member: target(&seen.members[n].object.metadata), size: quantity(size) }
}

#[test]
fn a_claim_asks_only_for_the_larger_size_of_the_spec() {
    let seen = growing();
    assert_eq!(broken(&seen, grow(&seen, 1, "16Gi")), None);
    assert_eq!(broken(&seen, grow(&seen, 1, "32Gi")), Some("I13"));
    let breach = |change: fn(&mut Cluster)| {
        let mut seen = growing();
        change(&mut seen);
        let size = seen.cluster.spec.storage.size().0;
        broken(&seen, grow(&seen, 1, &size))
    };
    assert_eq!(breach(|seen| seen.cluster.spec.storage.size = Some(quantity("8Gi"))), Some("I3"), "as it is");
    assert_eq!(breach(|seen| seen.cluster.spec.storage.size = Some(quantity("4Gi"))), Some("I3"), "less");
    assert_eq!(breach(|seen| latches(seen).formed = None), Some("I2"));
    assert_eq!(breach(|seen| seen.cluster.spec.paused = true), Some("I13"));
    assert_eq!(breach(|seen| seen.cluster.metadata.deletion_timestamp = Some(earlier())), Some("I13"));
    assert_eq!(breach(|seen| seen.members[1].object.metadata.deletion_timestamp = Some(earlier())), Some("I13"));
    assert_eq!(
        breach(|seen| seen.members[1].claim.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier())),
        Some("I3")
    );
    assert_eq!(
        breach(|seen| {
            let labels = seen.members[1].claim.as_mut().unwrap().metadata.labels.as_mut().unwrap();
            labels.insert(key::MEMBER_UID.to_owned(), "of another member".to_owned());
        }),
        Some("I13")
    );
    let mut other = seen.clone();
    other.members[1].claim.as_mut().unwrap().metadata.resource_version = Some("8".to_owned());
    assert_eq!(broken(&other, grow(&seen, 1, "16Gi")), Some("I13"), "changed since");
}

#[test]
fn a_member_counts_only_on_a_volume_that_has_grown() {
    let mut seen = growing();
    assert_eq!(broken(&seen, set(&seen, 1, "16Gi")), Some("I3"), "no capacity is known");
    arrive(&mut seen, 1, "15Gi");
    assert_eq!(broken(&seen, set(&seen, 1, "16Gi")), Some("I3"));
    arrive(&mut seen, 1, "17Gi");
    assert_eq!(broken(&seen, set(&seen, 1, "16Gi")), None);
    assert_eq!(broken(&seen, set(&seen, 1, "17Gi")), Some("I13"));
    seen.members[1].object.spec.storage.size = Some(quantity("16Gi"));
    assert_eq!(broken(&seen, set(&seen, 1, "16Gi")), Some("I3"), "written once");
    seen.cluster.spec.storage.size = Some(quantity("8Gi"));
    assert_eq!(broken(&seen, set(&seen, 1, "8Gi")), Some("I3"), "never less");
}

#[test]
fn a_pod_ends_for_a_larger_volume_only_beside_voters_that_are_well() {
    let mut seen = growing();
    let evict = |seen: &Cluster| Act::EvictPod { pod: pod_target(seen, 1), why: String::new() };
    assert_eq!(broken(&seen, evict(&seen)), Some("I1"));
    seen.members[1].object.spec.storage.size = Some(quantity("16Gi"));
    assert_eq!(broken(&seen, evict(&seen)), None);
    let mut named = seen.clone();
    named.members[1].object.spec.process.options =
        Some(Options { quota_backend_bytes: Some(1 << 30), ..Options::default() });
    assert_eq!(broken(&named, evict(&named)), Some("I1"), "its quota stays");
    running(seen.members[2].pod.as_mut().unwrap(), false);
    assert_eq!(broken(&seen, evict(&seen)), Some("I1"));
    // A file system that waits for a mount.
    let mut waits = growing();
    arrive(&mut waits, 1, "8Gi");
    let since = |at: Time| PersistentVolumeClaimCondition {
        type_: "FileSystemResizePending".to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(at),
        ..PersistentVolumeClaimCondition::default()
    };
    let pending = |seen: &mut Cluster, at: Time| {
        seen.members[1].claim.as_mut().unwrap().status.as_mut().unwrap().conditions = Some(vec![since(at)]);
    };
    pending(&mut waits, Time(noon()));
    assert_eq!(broken(&waits, evict(&waits)), None);
    pending(&mut waits, Time("2026-01-01T11:00:00Z".parse().unwrap()));
    assert_eq!(broken(&waits, evict(&waits)), Some("I1"), "the Pod has mounted the larger volume");
}

#[test]
fn a_members_pass_calls_kubelet_for_its_own_claim() {
    let cluster = formed(1, 1);
    let seen = Member {
        pod: cluster.members[0].pod.clone(),
        claim: cluster.members[0].claim.clone(),
        cluster: Seen::Known(Some(cluster.cluster.clone())),
        settings: cluster.settings.clone(),
        member: cluster.members[0].object.clone(),
    };
    let refresh =
        |size: &str| Act::RefreshVolume { pod: target(&seen.pod.as_ref().unwrap().metadata), size: quantity(size) };
    assert_eq!(wrong(&seen, refresh("8Gi")), None);
    assert_eq!(wrong(&seen, refresh("16Gi")), Some("I13"));
    assert_eq!(broken(&cluster, refresh("8Gi")), Some("I1"), "only the member's own pass");
}

#[test]
fn a_granted_quota_fits_the_spec_and_each_volume() {
    let granted = |most: &str, gib: i64, change: fn(&mut Cluster)| {
        let mut seen = formed(3, 3);
        seen.cluster.spec.defragmentation.get_or_insert_default().grow_quota_to = Some(quantity(most));
        change(&mut seen);
        let mut latches = seen.latches();
        latches.granted_quota = Some(gib << 30);
        broken(&seen, Act::Latch(Box::new(latches)))
    };
    assert_eq!(granted("7Gi", 7, |_| {}), None);
    assert_eq!(granted("6Gi", 7, |_| {}), Some("I13"), "above the limit of the spec");
    assert_eq!(granted("7Gi", 7, |seen| seen.cluster.spec.defragmentation = None), Some("I13"));
    assert_eq!(granted("7Gi", 5, |seen| latches(seen).granted_quota = Some(6 << 30)), Some("I13"), "less than before");
    let small = |seen: &mut Cluster| seen.members[2].object.spec.storage.size = Some(quantity("7Gi"));
    assert_eq!(granted("7Gi", 7, small), Some("I3"), "no room for the log");
}
