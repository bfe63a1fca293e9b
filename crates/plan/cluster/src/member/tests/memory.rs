//! A member in memory: no claim, one Pod after the member has joined, and the effects of a lost Pod.

use holdfast_api::member::{Departure, Leaving, Removed};
use holdfast_api::repair::{Evidence, Loss, Repair, RepairMode};

use super::*;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateRunning};

use crate::fixtures::{flags_in, keep_in_memory, serving_in_memory};

fn gone(detail: Option<&str>) -> Option<Evidence> {
    Some(Evidence { kind: Loss::MemoryGone, detail: detail.map(str::to_owned), at: noon().to_string() })
}

fn evidence(seen: &Observed) -> Option<Evidence> {
    planned(seen).status.evidence
}

#[test]
fn a_member_that_has_not_joined_gets_a_pod_and_no_claim() {
    let mut seen = unborn(None);
    keep_in_memory(&mut seen.member.spec.storage);
    (seen.claim, seen.pod) = (None, None);
    let Some(Act::CreatePod(made)) = act(&seen) else { panic!() };
    let told = made.metadata.annotations.as_ref().and_then(|all| all.get(key::MAY_START_EMPTY));
    assert_eq!(told.map(String::as_str), Some("u-a-m0"), "there is no claim to name");
    let args = flags_in(&made, container::ETCD).unwrap();
    assert!(args.iter().any(|arg| arg == "--claim-uid=u-a-m0"), "{args:?}");
    let volumes = made.spec.unwrap().volumes.unwrap();
    let data = volumes.iter().find(|v| v.name == "data").unwrap();
    let memory = data.empty_dir.as_ref().unwrap();
    assert_eq!(
        (memory.medium.as_deref(), memory.size_limit.as_ref().map(|q| q.0.as_str())),
        (Some("Memory"), Some("1Gi"))
    );
    assert_eq!(data.persistent_volume_claim, None);
    // Until the member has joined, another Pod may start again.
    seen.pod = Some(pod_of(&seen.member));
    seen.pod.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Failed".to_owned());
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })));
}

#[test]
fn a_joined_member_never_gets_a_second_pod() {
    let serves = serving_in_memory();
    assert_eq!((planned(&serves).waiting, evidence(&serves)), (None, None));
    let mut seen = serves.clone();
    seen.pod = None;
    assert_eq!(waits(&seen), Some(Reason::MemoryLost));
    assert_eq!(evidence(&seen), gone(None));
    let (reason, message) = degraded(&seen);
    assert_eq!(reason, "MemoryLost");
    assert!(message.contains("while a quorum of the other members is healthy"), "{message}");
    let mut two = seen.clone();
    cluster(&mut two).spec.replicas = 2;
    let (_, message) = degraded(&two);
    assert!(message.contains("Save the data of the other member before its Pod ends"), "{message}");
    // An ended Pod does not restart, and stays for inspection.
    let mut seen = serves.clone();
    seen.pod.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Failed".to_owned());
    running(seen.pod.as_mut().unwrap(), false);
    seen.pod.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Failed".to_owned());
    assert_eq!(waits(&seen), Some(Reason::MemoryLost));
    assert_eq!(evidence(&seen), gone(None));
    // While the Pod ends, the data exists.
    let mut seen = serves.clone();
    seen.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(noon()));
    assert_eq!((waits(&seen), evidence(&seen)), (Some(Reason::MemberRestarting), None));
    // A member that a user deleted gets no second Pod either.
    let mut seen = serves;
    seen.pod = None;
    seen.member.metadata.deletion_timestamp = Some(earlier());
    assert_eq!(waits(&seen), Some(Reason::MemoryLost));
}

/// A learner in memory with a Pod in which etcd runs.
fn joining() -> Observed {
    let mut seen = serving_in_memory();
    seen.member.spec.role = Birth::Joiner;
    (seen.member.spec.joined, seen.member.spec.start_count) = (None, 0);
    seen.pod = Some(pod_of(&seen.member));
    running(seen.pod.as_mut().unwrap(), false);
    seen
}

#[test]
fn a_learner_in_memory_gets_a_second_pod_only_before_its_etcd_runs() {
    let joins = joining();
    assert_eq!((waits(&joins), evidence(&joins)), (Some(Reason::WaitingForEtcd), None));
    // The Pod is being deleted.
    let mut going = joins.clone();
    going.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(noon()));
    assert_eq!((waits(&going), evidence(&going)), (Some(Reason::MemberRestarting), gone(None)));
    // The Pod is gone, with or without a pass in between.
    for before in [&joins, &going] {
        let mut seen = before.clone();
        seen.member.status = Some(planned(before).status);
        seen.pod = None;
        assert_eq!((waits(&seen), evidence(&seen)), (Some(Reason::Replacing), gone(None)));
        assert_eq!(degraded(&seen).0, "NothingWrong", "its cluster is whole without it");
    }
    let mut ended = joins.clone();
    ended.member.status = Some(planned(&joins).status);
    let status = ended.pod.as_mut().unwrap().status.as_mut().unwrap();
    (status.phase, status.container_statuses) = (Some("Failed".to_owned()), None);
    assert_eq!((waits(&ended), evidence(&ended)), (Some(Reason::Replacing), gone(None)));
    // No etcd ran in this Pod.
    let mut early = joins.clone();
    early.pod.as_mut().unwrap().status = None;
    early.member.status = Some(planned(&early).status);
    early.pod = None;
    assert_eq!(evidence(&early), None);
    assert!(matches!(act(&early), Some(Act::CreatePod(_))));
    // On a volume the loss of a Pod loses no data.
    let mut on_disk = serving();
    on_disk.member.spec.role = Birth::Joiner;
    (on_disk.member.spec.joined, on_disk.member.spec.start_count) = (None, 0);
    on_disk.pod = Some(pod_of(&on_disk.member));
    running(on_disk.pod.as_mut().unwrap(), false);
    on_disk.member.status = Some(planned(&on_disk).status);
    on_disk.pod = None;
    assert_eq!(evidence(&on_disk), None);
    assert!(matches!(act(&on_disk), Some(Act::CreatePod(_))));
    // Nor does the operator end the Pod for another list of members, or for a late join.
    let mut late = joins.clone();
    late.member.spec.initial_cluster = Some("a-m0=http://x:2380".to_owned());
    assert_eq!(planned_at(&late, noon() + SignedDuration::from_mins(30)).act, None);
    // Also if etcd ends again and again, with any conditions of the Pod.
    let mut crashes = joins;
    crashes.member.status = Some(planned(&crashes).status);
    failed(crashes.pod.as_mut().unwrap(), container::ETCD, 1, "panic", earlier());
    crashes.member.status = Some(planned(&crashes).status);
    crashes.member.spec.initial_cluster = late.member.spec.initial_cluster;
    assert_eq!(planned_at(&crashes, noon() + SignedDuration::from_mins(30)).act, None);
    crashes.pod = None;
    assert_eq!((waits(&crashes), evidence(&crashes)), (Some(Reason::Replacing), gone(None)));
    let mut leaves = crashes.clone();
    leaves.member.spec.leaving = Some(Leaving { why: Departure::ScaledIn, evidence: None, at: noon().to_string() });
    assert_eq!((planned(&leaves).act, evidence(&leaves)), (None, None), "one that leaves gets no other Pod either");
    // In mode Manual the message names the annotation.
    if let Seen::Known(Some(cluster)) = &mut crashes.cluster {
        cluster.spec.repair = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
    }
    let message = planned(&crashes).waiting.unwrap().message;
    assert!(message.contains("kubectl annotate etcdc"), "{message}");
}

#[test]
fn a_restart_in_the_same_pod_is_the_same_member_unless_its_memory_is_empty() {
    let ended = |code: i32, words: &str| {
        let mut seen = serving_in_memory();
        let pod = seen.pod.as_mut().unwrap();
        failed(pod, container::ETCD, code, words, earlier());
        let status = pod.status.as_mut().unwrap();
        (status.container_statuses, status.init_container_statuses) = (status.init_container_statuses.take(), None);
        seen
    };
    let killed = ended(137, "");
    assert_eq!((act(&killed), evidence(&killed)), (None, None));
    // The node was restarted: kubelet starts the same Pod on an empty file system. A single refusal is enough.
    let verdict = |verdict: &str| format!(r#"{{"kind":"gate","verdict":"{verdict}","message":"m"}}"#);
    let emptied = ended(71, &verdict("EmptiedVolume"));
    assert_eq!((act(&emptied), evidence(&emptied)), (None, gone(Some("EmptiedVolume"))));
    let unclear = ended(71, &verdict("UnreadableAnnotations"));
    assert_eq!((act(&unclear), evidence(&unclear)), (None, None));
    // A verdict of an earlier container ends when etcd runs, also after etcd's next end.
    let mut runs = emptied.clone();
    runs.member.status = Some(planned(&emptied).status);
    let statuses = runs.pod.as_mut().unwrap().status.as_mut().unwrap().container_statuses.as_mut().unwrap();
    let started = ContainerStateRunning { started_at: Some(earlier()) };
    statuses[0].state = Some(ContainerState { running: Some(started), ..ContainerState::default() });
    assert_eq!(evidence(&runs), None);
    let mut again = ended(137, "");
    again.member.status = Some(planned(&emptied).status);
    assert_eq!(evidence(&again), None);
    // A minute later the operator creates no second Pod.
    let mut later = emptied.clone();
    later.member.status = Some(planned(&emptied).status);
    let plan = planned_at(&later, noon() + SignedDuration::from_mins(5));
    assert_eq!((plan.act, plan.status.evidence), (None, gone(Some("EmptiedVolume"))));
}

#[test]
fn a_removed_member_in_memory_leaves_nothing() {
    let mut seen = serving_in_memory();
    let at = noon().to_string();
    seen.member.spec.leaving = Some(Leaving { why: Departure::Lost, evidence: None, at: at.clone() });
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })), "its Pod ends first");
    seen.pod = None;
    seen.member.spec.removed = Some(Removed { at, ..Removed::default() });
    seen.member.metadata.deletion_timestamp = Some(earlier());
    assert!(matches!(act(&seen), Some(Act::ReleaseMember { .. })));
}
