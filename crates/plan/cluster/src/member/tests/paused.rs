//! Members of a paused cluster.

use super::*;

#[test]
fn nothing_of_a_paused_cluster_is_changed() {
    let mut seen = serving();
    seen.pod.as_mut().unwrap().metadata.labels.as_mut().unwrap().remove(key::MEMBER);
    assert!(matches!(act(&seen), Some(Act::Relabel { .. })));
    cluster(&mut seen).spec.paused = true;
    assert_eq!(waits(&seen), Some(Reason::Paused));
    // A person deleted the Pod.
    seen.pod = None;
    assert_eq!(waits(&seen), Some(Reason::Paused));
}

#[test]
fn a_member_whose_pod_a_roll_has_ended_comes_back_in_a_paused_cluster() {
    let mut seen = serving();
    cluster(&mut seen).spec.paused = true;
    seen.member.spec.served = Some(seen.member.spec.process.clone());
    assert_eq!(waits(&seen), Some(Reason::Paused), "its Pod stands");
    seen.pod = None;
    assert!(matches!(act(&seen), Some(Act::CreatePod(_))));
    seen.claim = None;
    assert_eq!(waits(&seen), Some(Reason::Paused));
    let mut parked = serving();
    parked.pod = None;
    parked.member.spec.served = Some(parked.member.spec.process.clone());
    parked.member.spec.parked = Some(holdfast_api::member::Parked::default());
    (cluster(&mut parked).spec.paused, cluster(&mut parked).spec.replicas) = (true, 0);
    assert_eq!(waits(&parked), Some(Reason::Paused), "spec.replicas asks for no Pod");
}
