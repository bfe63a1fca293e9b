//! A claim that gets no volume: the message names its StorageClass.

use super::*;

/// The scheduler names neither the claim nor the class.
#[test]
fn a_storage_class_that_does_not_exist_is_named() {
    let mut seen = unborn(None);
    let pod = seen.pod.as_mut().unwrap();
    pod.status = Some(k8s_openapi::api::core::v1::PodStatus {
        phase: Some("Pending".to_owned()),
        conditions: Some(vec![PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("Unschedulable".to_owned()),
            message: Some(
                "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found".to_owned(),
            ),
            ..PodCondition::default()
        }]),
        ..Default::default()
    });
    let told = |seen: &Observed| {
        assert_eq!(waits(seen), Some(Reason::PodHeldUp));
        planned(seen).waiting.unwrap().message
    };
    fn claim(seen: &mut Observed) -> &mut k8s_openapi::api::core::v1::PersistentVolumeClaim {
        seen.claim.as_mut().unwrap()
    }
    for (class, named) in [
        (Some("no-such-class"), "data-a-m0 has no volume: StorageClass no-such-class does not exist"),
        (Some(""), "data-a-m0 has no volume: no free PersistentVolume without a class"),
        (None, "data-a-m0 has no volume: spec.storage.storageClassName is not set"),
    ] {
        claim(&mut seen).spec.as_mut().unwrap().storage_class_name = class.map(str::to_owned);
        let message = told(&seen);
        assert!(message.contains(named) && !message.contains("unbound"), "{message}");
    }
    // A provisioner works on the claim: the class exists.
    let key = "volume.kubernetes.io/storage-provisioner".to_owned();
    claim(&mut seen).metadata.annotations.get_or_insert_default().insert(key, "csi.example.com".to_owned());
    assert!(told(&seen).contains("unbound immediate"));
}
