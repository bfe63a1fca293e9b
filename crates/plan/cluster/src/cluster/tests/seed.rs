//! Deletion of the Pod that restored, so that the claim of the restore's source is free.

use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, PersistentVolumeClaimCondition, PersistentVolumeClaimStatus,
    PersistentVolumeClaimVolumeSource, Pod, Volume,
};

use super::*;
use holdfast_base::objects::container;

/// Returns healthy voters; the Pod of the first still has its restore step.
fn restored(voters: usize) -> Observed {
    let mut seen = formed(voters, i32::try_from(voters).unwrap());
    add_step(&mut seen);
    seen
}

fn add_step(seen: &mut Observed) {
    let step = Container { name: container::RESTORE.to_owned(), ..Container::default() };
    let pod = seen.members[0].pod.as_mut().unwrap();
    let spec = pod.spec.as_mut().unwrap();
    spec.init_containers.get_or_insert_default().push(step);
    spec.volumes.get_or_insert_default().push(Volume {
        name: "store".to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: "backups".to_owned(),
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    });
    made_with(pod, "agent:1");
}

/// Sets the annotation with the agent image of the Pod.
fn made_with(pod: &mut Pod, image: &str) {
    pod.metadata.annotations.get_or_insert_default().insert(key::AGENT_IMAGE.to_owned(), image.to_owned());
}

fn claim(seen: &mut Observed, member: usize) -> &mut PersistentVolumeClaim {
    seen.members[member].claim.as_mut().unwrap()
}

fn ends_a_pod(seen: &Observed) -> bool {
    matches!(act(seen), Some(Act::DeletePod { .. }))
}

#[test]
fn it_ends_once_where_the_others_are_a_quorum() {
    for (voters, spared) in [(1, false), (2, false), (3, true), (4, true), (5, true)] {
        let seen = restored(voters);
        let plan = planned(&seen);
        let ended = match plan.act {
            Some(Act::DeletePod { pod, .. }) => Some(pod),
            None => None,
            Some(other) => panic!("{other:?}"),
        };
        assert_eq!(ended, spared.then(|| pod_target(&seen, 0)), "{voters}");
    }
    // Restored from a bucket: the Pod mounts no claim that another Pod needs.
    let mut seen = restored(3);
    seen.members[0].pod.as_mut().unwrap().spec.as_mut().unwrap().volumes.as_mut().unwrap().pop();
    assert_eq!((act(&seen), waits(&seen)), (None, None));
    // Until the Pod is back the cluster is not ready, but available.
    let mut seen = restored(3);
    assert_eq!(condition(&seen, "Ready"), pair("False", "MemberRestarting"));
    assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
    let told = |seen: &Observed| planned(seen).status.conditions;
    let before = told(&seen);
    let pod = seen.members[0].pod.as_mut().unwrap();
    pod.metadata.deletion_timestamp = Some(earlier());
    assert_eq!(told(&seen), before, "in the same words while it goes");
    assert_eq!(act(&seen), None);
    seen.members[0].pod = None;
    assert_eq!((act(&seen), told(&seen)), (None, before));
    // The next Pod is the member's second.
    let object = &mut seen.members[0].object;
    object.spec.start_count = 2;
    seen.members[0].pod = Some(pod_of(&seen.members[0].object));
    assert_eq!((act(&seen), waits(&seen)), (None, None));
    add_step(&mut seen);
    assert_eq!(act(&seen), None, "whoever puts such a step into Pods here: it would be ended again and again");
}

#[test]
fn it_stays_while_somebody_may_miss_it() {
    type Change = fn(&mut Observed);
    let changes: [(&str, Change); 24] = [
        ("another has no Pod", |s| s.members[1].pod = None),
        ("another is not ready", |s| running(s.members[2].pod.as_mut().unwrap(), false)),
        ("it is not ready itself", |s| running(s.members[0].pod.as_mut().unwrap(), false)),
        ("another's Pod goes", |s| s.members[1].pod.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier())),
        ("a member was deleted", |s| s.members[1].object.metadata.deletion_timestamp = Some(earlier())),
        ("it was deleted", |s| s.members[0].object.metadata.deletion_timestamp = Some(earlier())),
        ("another is silent", |s| drop(s.answers.remove(&named(1)))),
        ("another etcd answers", |s| {
            s.answers.insert(named(2), Seen::Known(Answer { cluster_id: 9, ..answer(2) }));
        }),
        ("another lags", |s| {
            s.answers.insert(named(2), Seen::Known(Answer { applied_index: 998_999, ..answer(2) }));
        }),
        ("another is cut off", |s| drop(s.answers.insert(named(2), Seen::Known(Answer { leader: 0, ..answer(2) })))),
        ("the others are ahead", |s| {
            s.answers.insert(named(0), Seen::Known(Answer { applied_index: 998_999, ..answer(0) }));
        }),
        ("it grows", |s| s.cluster.spec.replicas = 5),
        ("fewer are wanted", |s| s.cluster.spec.replicas = 1),
        ("one is a learner", |s| etcd(s).members[2].learner = true),
        ("etcd lists one less", |s| drop(etcd(s).members.pop())),
        ("no write is taken", |s| etcd(s).alarms.push(Alarm { member_id: 0x11, kind: AlarmKind::NoSpace })),
        ("the membership is unknown", |s| s.etcd = Seen::unknown("timed out")),
        ("it is paused", |s| s.cluster.spec.paused = true),
        ("the spec makes no sense", |s| s.cluster.spec.version = "4.0.0".to_owned()),
        ("its start has not been counted", |s| s.members[0].object.spec.start_count = 0),
        ("its claim goes when its Pod does", |s| claim(s, 0).metadata.deletion_timestamp = Some(earlier())),
        ("another's claim goes", |s| claim(s, 2).metadata.deletion_timestamp = Some(earlier())),
        ("another's claim is gone", |s| s.members[1].claim = None),
        ("another operator made it", |s| s.settings.agent_image = "agent:2".to_owned()),
    ];
    for (what, change) in changes {
        let mut seen = restored(3);
        change(&mut seen);
        assert!(!ends_a_pod(&seen), "{what}");
    }
    let mut close = restored(3);
    close.answers.insert(named(2), Seen::Known(Answer { applied_index: 999_000, ..answer(2) }));
    assert!(ends_a_pod(&close), "nearly as far as the others");
}

/// A webhook makes Pods pull from a mirror, or by a digest: the image in the spec then proves no version.
#[test]
fn whose_version_a_pod_is_does_not_depend_on_what_became_of_its_image() {
    let with = |asked_for: Option<&str>, image: &str| {
        let mut seen = restored(3);
        let pod = seen.members[0].pod.as_mut().unwrap();
        match asked_for {
            Some(asked_for) => made_with(pod, asked_for),
            None => drop(pod.metadata.annotations.get_or_insert_default().remove(key::AGENT_IMAGE)),
        }
        let install = pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap().first_mut().unwrap();
        install.image = Some(image.to_owned());
        ends_a_pod(&seen)
    };
    assert!(with(Some("agent:1"), "mirror.example.org/agent@sha256:5a"));
    assert!(!with(Some("agent:0"), "agent:1"), "another version's, whatever runs in it by now");
    // Earlier versions wrote no annotation.
    assert!(with(None, "agent:1"));
    assert!(!with(None, "agent:0"));
}

/// That Pod leads, and its volume grows at the next mount: the safety rules permit its end as that of the Pod that restored.
#[test]
fn it_ends_also_while_its_file_system_waits_for_a_mount() {
    let mut seen = restored(3);
    let condition = PersistentVolumeClaimCondition {
        type_: "FileSystemResizePending".to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(Time(noon())),
        ..PersistentVolumeClaimCondition::default()
    };
    let status =
        PersistentVolumeClaimStatus { conditions: Some(vec![condition]), ..PersistentVolumeClaimStatus::default() };
    claim(&mut seen, 0).status = Some(status);
    assert!(ends_a_pod(&seen));
}
