//! A member with its claim and its Pod: when each is made, counted, ended and made again, and what the status says meanwhile.

use super::*;

#[test]
fn a_member_that_serves_costs_nothing() {
    let mut seen = serving();
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.waiting, plan.wake), (None, None, Wake::OnChange));
    let status = plan.status.clone();
    assert_eq!(status.claim.as_ref().map(|c| c.uid.as_str()), Some("u-data-a-m0"));
    assert_eq!(status.pod.as_ref().map(|c| c.uid.as_str()), Some("u-pod-a-m0"));
    seen.member.status = Some(status.clone());
    assert_eq!(planned_at(&seen, noon() + SignedDuration::from_hours(1)).status, status);
}

#[test]
fn claim_then_pod() {
    let mut seen = unborn(None);
    let (claim, pod) = (seen.claim.take(), seen.pod.take());
    let Some(Act::CreateClaim(made)) = act(&seen) else { panic!() };
    assert_eq!(made.metadata.name.as_deref(), Some("data-a-m0"));
    assert_eq!(made.metadata.owner_references, None);
    assert_eq!(meta::label(&made.metadata, key::MEMBER_UID), Some("u-a-m0"));
    seen.claim = claim;
    let Some(Act::CreatePod(made)) = act(&seen) else { panic!() };
    let told = made.metadata.annotations.as_ref().and_then(|all| all.get(key::MAY_START_EMPTY));
    assert_eq!(told.map(String::as_str), Some("u-data-a-m0"));
    assert_eq!(meta::label(&made.metadata, key::ROLE), Some(role::LEARNER));
    assert_eq!(flags_in(&made, "restore"), None);
    assert!(flags_in(&made, "etcd").unwrap().iter().any(|a| a == "--seed"));
    seen.pod = pod;
    assert_eq!(planned(&seen).waiting, None);
}

#[test]
fn a_pod_that_serves_is_counted_and_told_so() {
    let mut seen = serving();
    let member = Target::from(&seen.member.metadata);
    seen.member.spec.start_count = 0;
    let pod = seen.pod.as_mut().unwrap();
    pod.metadata.annotations = None;
    let pod_target = Target::from(&pod.metadata);
    assert_eq!(act(&seen), Some(Act::LatchStart { member, count: 1 }));
    for not_yet in [
        |s: &mut Observed| running(s.pod.as_mut().unwrap(), false),
        |s: &mut Observed| s.pod.as_mut().unwrap().metadata.annotations = labels(&[(key::MAY_START_EMPTY, "x")]),
        |s: &mut Observed| {
            let labels = s.pod.as_mut().unwrap().metadata.labels.as_mut().unwrap();
            labels.insert(key::ROLE.to_owned(), role::LEARNER.to_owned());
        },
    ] {
        let mut seen = seen.clone();
        not_yet(&mut seen);
        assert_eq!(act(&seen), None);
    }
    seen.member.spec.start_count = 1;
    let joined = seen.member.spec.joined.clone().unwrap();
    let mark = Act::MarkStarted { pod: pod_target, count: 1, joined: joined.clone() };
    let ids = joined.annotation();
    for half in [&[][..], &[(key::STARTED, "1")], &[(key::JOINED, &ids)], &[(key::STARTED, "1"), (key::JOINED, "c/m")]]
    {
        seen.pod.as_mut().unwrap().metadata.annotations = labels(half);
        assert_eq!(act(&seen), Some(mark.clone()), "{half:?}");
    }
    seen.pod.as_mut().unwrap().metadata.annotations = labels(&[(key::STARTED, "1"), (key::JOINED, &ids)]);
    assert_eq!(act(&seen), None);
    // The next Pod, and the arguments of its gate.
    seen.pod = None;
    let Some(Act::CreatePod(made)) = act(&seen) else { panic!() };
    assert_eq!((pods::start_number(&made), pods::knows_started(&made)), (Some(2), 1));
    assert!(pods::knows_joined(&made, &joined));
    // A Pod from before start counts: the operator does not count this Pod.
    let mut old = serving();
    old.member.spec.start_count = 0;
    let pod = old.pod.as_mut().unwrap();
    let etcd = &mut pod.spec.as_mut().unwrap().containers[0];
    change_request(etcd, |request| {
        if let Request::Gate(gate) = request {
            gate.start = 0;
        }
    });
    pod.metadata.annotations = None;
    assert_eq!(act(&old), None);
}

#[test]
fn labels_that_somebody_took_from_a_pod_are_put_back() {
    for key in [key::COMPONENT, key::MANAGED_BY, key::CLUSTER, key::CLUSTER_UID, key::MEMBER] {
        for mut seen in [serving(), unborn(None)] {
            let pod = seen.pod.as_mut().unwrap();
            let ours = pod.metadata.labels.as_mut().unwrap().remove(key).unwrap();
            let (target, lost) = (Target::from(&pod.metadata), labels(&[(key, &ours)]).unwrap());
            let relabel = Act::Relabel { pod: target, labels: lost };
            assert_eq!(act(&seen), Some(relabel.clone()));
            let there = seen.pod.as_mut().unwrap().metadata.labels.as_mut().unwrap();
            there.insert(key.to_owned(), "another's".to_owned());
            assert_eq!(act(&seen), Some(relabel));
        }
    }
    // The cluster's pass decides about clients, and labels of other owners stay.
    let mut seen = serving();
    let there = seen.pod.as_mut().unwrap().metadata.labels.as_mut().unwrap();
    there.remove(key::ROLE);
    there.remove(key::NAME);
    there.insert("team".to_owned(), "blue".to_owned());
    assert_eq!(act(&seen), None);
    // A Pod that has ended, or is being deleted, needs no label.
    let mut seen = serving();
    let pod = seen.pod.as_mut().unwrap();
    pod.metadata.labels = None;
    pod.metadata.deletion_timestamp = Some(earlier());
    assert_eq!(act(&seen), None);
}

#[test]
fn a_pod_that_is_held_up_says_by_what() {
    let mut seen = serving();
    let held = |reason: &str, message: &str| {
        let waiting = k8s_openapi::api::core::v1::ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
        };
        k8s_openapi::api::core::v1::ContainerStatus {
            name: "install".to_owned(),
            state: Some(k8s_openapi::api::core::v1::ContainerState { waiting: Some(waiting), ..Default::default() }),
            ..Default::default()
        }
    };
    let mut with = |status| {
        let pod = seen.pod.as_mut().unwrap();
        pod.status = Some(k8s_openapi::api::core::v1::PodStatus {
            phase: Some("Pending".to_owned()),
            init_container_statuses: Some(vec![status]),
            ..Default::default()
        });
        pod.metadata.creation_timestamp = Some(Time(noon() - SignedDuration::from_secs(10)));
        seen.clone()
    };
    let preparing = with(held("ContainerCreating", ""));
    assert_eq!(waits(&preparing), Some(Reason::WaitingForPod));
    let message = planned(&preparing).waiting.unwrap().message;
    assert!(message.contains("volumes (data-a-m0)") && message.contains("kubectl describe pod a-m0"), "{message}");
    // A volume that stays attached elsewhere delays the Pod without a message from kubelet.
    let unprepared = |seconds: i64| {
        let mut seen = preparing.clone();
        seen.pod.as_mut().unwrap().status.as_mut().unwrap().conditions = Some(vec![PodCondition {
            type_: "PodReadyToStartContainers".to_owned(),
            status: "False".to_owned(),
            last_transition_time: Some(Time(noon() - SignedDuration::from_secs(seconds))),
            ..PodCondition::default()
        }]);
        (waits(&seen), planned(&seen).wake)
    };
    assert_eq!(unprepared(479), (Some(Reason::WaitingForPod), Wake::AfterMillis(1_000)));
    assert_eq!(unprepared(480), (Some(Reason::PodHeldUp), Wake::OnChange));
    let pulling = with(held("ImagePullBackOff", "no such image"));
    assert_eq!((waits(&pulling), planned(&pulling).wake), (Some(Reason::WaitingForPod), Wake::AfterMillis(5_000)));
    let later = planned_at(&pulling, noon() + SignedDuration::from_secs(5));
    assert_eq!(later.waiting.unwrap().reason, Reason::PodHeldUp);
    let told = later.status.conditions.into_iter().find(|c| c.type_ == "Degraded").unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("True", "PodHeldUp"));
    assert!(told.message.ends_with("ImagePullBackOff: no such image"), "{}", told.message);
}

#[test]
fn no_pod_before_etcd_knows_the_member() {
    let mut seen = unborn(None);
    seen.pod = None;
    seen.member.spec.initial_cluster = None;
    assert_eq!(waits(&seen), Some(Reason::Growing));
}

#[test]
fn a_pod_made_anew_for_a_joined_member_starts_on_its_own_data_only() {
    let mut seen = serving();
    seen.pod = None;
    let Some(Act::CreatePod(made)) = act(&seen) else { panic!() };
    assert!(!pods::may_start_empty(&made));
    assert!(!flags_in(&made, "etcd").unwrap().iter().any(|a| a == "--seed" || a.starts_with("--after")));
    // Also while the cluster is unreadable.
    seen.cluster = Seen::unknown("timeout");
    assert_eq!(act(&seen), Some(Act::CreatePod(made)));
}

#[test]
fn restore_steps_only_before_anything_has_formed() {
    let mut seen = unborn(Some(restoring("k")));
    seen.pod = None;
    let Some(Act::CreatePod(made)) = act(&seen) else { panic!() };
    assert!(flags_in(&made, "restore").unwrap().contains(&"--key=k".to_owned()));
    seen.cluster = Seen::unknown("timeout");
    assert_eq!(waits(&seen), Some(Reason::WaitingForReference));
    let mut seen = unborn(Some(restoring("k")));
    seen.pod = None;
    *cluster(&mut seen) = match serving().cluster {
        Seen::Known(Some(formed)) => formed,
        Seen::Known(None) | Seen::Unknown(_) => panic!(),
    };
    assert_eq!(waits(&seen), Some(Reason::SafetyStop));
    // Joined: the volume must hold this restore's data, and no container reads the store again.
    seen.member.spec.joined = serving().member.spec.joined;
    let Some(Act::CreatePod(made)) = act(&seen) else { panic!() };
    assert_eq!(flags_in(&made, "restore"), None);
    let uid = format!("--restore-uid={}", restoring("k").restore_uid);
    assert!(flags_in(&made, "etcd").unwrap().contains(&uid));
}

/// The backup's volume, or an identity, is gone years later, and the node has restarted.
#[test]
fn a_member_that_has_served_does_not_wait_for_what_it_was_restored_from() {
    let held = |seen: &mut Observed, seconds: i64| {
        let pod = seen.pod.as_mut().unwrap();
        running(pod, false);
        let status = pod.status.as_mut().unwrap();
        status.container_statuses = None;
        status.conditions = Some(vec![PodCondition {
            type_: "PodReadyToStartContainers".to_owned(),
            status: "False".to_owned(),
            last_transition_time: Some(Time(noon() - SignedDuration::from_secs(seconds))),
            ..PodCondition::default()
        }]);
    };
    let restored = || {
        let mut seen = serving();
        let step = Container { name: container::RESTORE.to_owned(), ..Container::default() };
        seen.pod.as_mut().unwrap().spec.as_mut().unwrap().init_containers.get_or_insert_default().push(step);
        seen
    };
    let mut seen = restored();
    held(&mut seen, 59);
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.wake), (None, Wake::AfterMillis(1_000)));
    held(&mut seen, 60);
    let target = Target::from(&seen.pod.as_ref().unwrap().metadata);
    assert!(matches!(act(&seen), Some(Act::DeletePod { pod, .. }) if pod == target));
    let mut without = serving();
    held(&mut without, 600);
    assert_eq!(act(&without), None, "another Pod would wait for the same");
    assert_eq!(act(&restored()), None, "etcd runs");
}

/// With too few other members, only a person can decide when the Pod may end.
#[test]
fn a_member_without_which_there_is_no_quorum_says_what_its_pod_keeps() {
    let ready = |replicas: i32, with_step: bool| {
        let mut seen = serving();
        cluster(&mut seen).spec.replicas = replicas;
        if with_step {
            let step = Container { name: container::RESTORE.to_owned(), ..Container::default() };
            let spec = seen.pod.as_mut().unwrap().spec.as_mut().unwrap();
            spec.init_containers.get_or_insert_default().push(step);
        }
        let plan = planned(&seen);
        assert_eq!((plan.act, plan.waiting), (None, None));
        let all = plan.status.conditions;
        all.into_iter().find(|c| c.type_ == "Ready" && c.status == "True").unwrap().message
    };
    for few in [1, 2] {
        let said = ready(few, true);
        assert!(said.contains("mounts the restore's source") && said.ends_with("kubectl delete pod a-m0"), "{said}");
    }
    assert!(ready(3, true).ends_with("until Holdfast replaces the Pod"), "{}", ready(3, true));
    assert_eq!(ready(1, false), "its Pod serves");
}

/// An upgrade ends no Pod, so the cluster's pass keeps the Pod; a webhook may have added other images to the Pod.
#[test]
fn a_pod_that_another_version_made_says_what_it_keeps() {
    let mut seen = unborn(Some(restoring("k")));
    seen.pod = None;
    let Some(Act::CreatePod(made)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(pods::agent_image(&made), Some("agent:1"));
    assert!(made.metadata.annotations.unwrap().contains_key(key::AGENT_IMAGE));
    let said = |image: &str| {
        let mut seen = serving();
        cluster(&mut seen).spec.replicas = 3;
        let step = Container { name: container::RESTORE.to_owned(), ..Container::default() };
        let pod = seen.pod.as_mut().unwrap();
        let init = pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap();
        init[0].image = Some("mirror.example.org/agent:1".to_owned());
        init.push(step);
        pod.metadata.annotations.get_or_insert_default().insert(key::AGENT_IMAGE.to_owned(), image.to_owned());
        let all = planned(&seen).status.conditions;
        all.into_iter().find(|c| c.type_ == "Ready" && c.status == "True").unwrap().message
    };
    assert!(said("agent:1").ends_with("until Holdfast replaces the Pod"), "{}", said("agent:1"));
    let other = said("agent:0");
    assert!(other.contains("Another version") && other.ends_with("kubectl delete pod a-m0"), "{other}");
}

#[test]
fn what_belongs_to_others_is_left_alone() {
    let mut seen = unborn(None);
    seen.pod.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(waits(&seen), Some(Reason::NameConflict));
    let mut seen = unborn(None);
    seen.claim.as_mut().unwrap().metadata.labels = labels(&[(key::MEMBER_UID, "another")]);
    assert_eq!(waits(&seen), Some(Reason::NameConflict));
    assert_eq!(degraded(&seen).0, "NameConflict");
    assert_eq!(planned(&seen).status.claim, None);
}

#[test]
fn a_lost_claim_is_never_made_anew() {
    let mut seen = serving();
    seen.claim.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier());
    assert_eq!(waits(&seen), Some(Reason::ClaimLost));
    seen.claim = None;
    assert_eq!(waits(&seen), Some(Reason::ClaimLost));
    seen.pod = None;
    assert_eq!(waits(&seen), Some(Reason::ClaimLost));
    assert_eq!(degraded(&seen).0, "ClaimLost");
}

#[test]
fn before_it_has_joined_a_claim_that_goes_is_let_go() {
    let mut seen = unborn(None);
    seen.claim.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier());
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })));
    seen.pod = None;
    assert_eq!(waits(&seen), Some(Reason::WaitingForPod));
}

#[test]
fn pods_are_made_anew_when_they_have_ended_and_never_when_they_run() {
    for phase in ["Failed", "Succeeded"] {
        let mut seen = serving();
        seen.pod.as_mut().unwrap().status.as_mut().unwrap().phase = Some(phase.to_owned());
        let target = Target::from(&seen.pod.as_ref().unwrap().metadata);
        assert!(matches!(act(&seen), Some(Act::DeletePod { pod, .. }) if pod == target));
    }
    let mut seen = serving();
    running(seen.pod.as_mut().unwrap(), false);
    seen.member.spec.initial_cluster = Some("other".to_owned());
    assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd), "a joined member keeps its Pod, whatever it was made for");
    seen.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(noon()));
    assert_eq!(waits(&seen), Some(Reason::MemberRestarting));
}

/// kubelet may immediately reject each Pod that the scheduler binds to the same node: a full disk, or no room for another
/// Pod.
#[test]
fn a_pod_that_was_rejected_is_not_followed_by_another_at_once() {
    let mut seen = serving();
    let pod = seen.pod.as_mut().unwrap();
    pod.metadata.creation_timestamp = Some(Time(noon() - SignedDuration::from_secs(1)));
    let status = pod.status.as_mut().unwrap();
    (status.phase, status.reason) = (Some("Failed".to_owned()), Some("OutOfpods".to_owned()));
    (status.conditions, status.container_statuses) = (None, None);
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.wake), (None, Wake::AfterMillis(9_000)));
    let message = plan.waiting.unwrap().message;
    assert!(message.contains("has ended (OutOfpods)"), "{message}");
    let later = noon() + SignedDuration::from_secs(9);
    assert!(matches!(planned_at(&seen, later).act, Some(Act::DeletePod { .. })));
}

/// Only a person can confirm that the machine is off, and therefore that its etcd has ended (I1).
#[test]
fn a_pod_whose_node_never_says_that_it_has_ended_is_told_and_left_alone() {
    let mut seen = serving();
    let pod = seen.pod.as_mut().unwrap();
    pod.metadata.deletion_timestamp = Some(Time(noon()));
    pod.spec.as_mut().unwrap().node_name = Some("n7".to_owned());
    let plan = planned_at(&seen, noon() + SignedDuration::from_secs(29));
    assert_eq!(plan.waiting.map(|w| w.reason), Some(Reason::MemberRestarting));
    assert_eq!(plan.wake, Wake::AfterMillis(1_000));
    let plan = planned_at(&seen, noon() + SignedDuration::from_secs(30));
    assert_eq!((plan.act, plan.waiting.as_ref().map(|w| w.reason)), (None, Some(Reason::NodeSilent)));
    assert!(plan.waiting.unwrap().message.contains("kubectl taint nodes n7 "));
    seen.pod.as_mut().unwrap().metadata.finalizers = Some(vec!["example.com/mesh".to_owned()]);
    let message = planned_at(&seen, noon() + SignedDuration::from_secs(30)).waiting.unwrap().message;
    assert!(message.contains("finalizers remain: example.com/mesh.") && !message.contains("taint"), "{message}");
}

#[test]
fn before_it_has_joined_a_pod_for_other_arguments_is_made_anew() {
    let mut seen = unborn(None);
    seen.member.spec.role = Birth::Joiner;
    seen.pod = Some(pod_of(&seen.member));
    assert_eq!(act(&seen), None);
    seen.member.spec.initial_cluster = Some("a-m0=http://a-m0.a.ns.svc:2380,x=http://x:2380".to_owned());
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })));
}

#[test]
fn a_failed_restore_is_tried_again_after_a_while() {
    let mut seen = unborn(Some(restoring("k")));
    let at = |seconds| Time(noon() - SignedDuration::from_secs(seconds));
    failed(seen.pod.as_mut().unwrap(), "restore", 66, "no such key", at(29));
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.wake), (None, Wake::AfterMillis(1_000)));
    failed(seen.pod.as_mut().unwrap(), "restore", 66, "no such key", at(30));
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })));
    // The node reports the end, and its clock may be behind: the operator never replaces a new Pod immediately.
    seen.pod.as_mut().unwrap().metadata.creation_timestamp = Some(at(10));
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.wake), (None, Wake::AfterMillis(20_000)));
    for (code, words) in [(72, "users nobody can log in as"), (67, "the sha256 is another one")] {
        failed(seen.pod.as_mut().unwrap(), "restore", code, words, at(30));
        assert_eq!(act(&seen), None, "trying again mends nothing: {words}");
    }
}

#[test]
fn a_failure_is_told_with_its_class_until_it_is_over() {
    let mut seen = unborn(Some(restoring("k")));
    let report = r#"{"kind":"failed","class":"Denied","message":"the store says 403"}"#;
    failed(seen.pod.as_mut().unwrap(), "restore", 65, report, Time(noon()));
    let (reason, message) = degraded(&seen);
    assert_eq!(reason, "StoreAccessDenied");
    assert!(message.contains("the store says 403") && message.contains("credentials"), "{message}");
    let status = planned(&seen).status;
    let told = status.last_failure.clone().unwrap();
    assert_eq!(
        (told.container.as_str(), told.exit_code, told.reason.as_deref()),
        ("restore", 65, Some("StoreAccessDenied"))
    );
    // The Pod is gone: the failure stays until the next Pod is ready.
    seen.member.status = Some(status);
    seen.pod = None;
    assert_eq!(planned(&seen).status.last_failure, Some(told));
    seen.pod = Some(pod_of(&seen.member));
    assert_eq!(planned(&seen).status.last_failure, None);
    assert_eq!(degraded(&seen).0, "NothingWrong");
}

/// The remedy names no field that a user cannot edit.
#[test]
fn what_a_person_can_do_about_a_restore_is_told() {
    let mut seen = unborn(Some(restoring("k")));
    let mut told = |container, code| {
        failed(seen.pod.as_mut().unwrap(), container, code, "what happened", Time(noon()));
        degraded(&seen).1
    };
    let newer = told("restore", 64);
    for part in ["spec.bootstrap.restore", "spec.version", "may be changed until the cluster has formed"] {
        assert!(newer.contains(part), "no {part:?} in {newer}");
    }
    let full = told("restore", 69);
    for part in ["Enlarge spec.storage.size", "spec.bootstrap.restore", "until the cluster has formed"] {
        assert!(full.contains(part), "no {part:?} in {full}");
    }
    assert!(!full.contains("twice"), "how much is needed, the agent knows: {full}");
    for code in [64, 69] {
        let gate = told("etcd", code);
        assert!(!gate.contains("restore") && !gate.contains("delete this cluster"), "{gate}");
    }
}

/// kubelet reports that the kernel killed the Pod's container for its memory.
fn killed(seen: &mut Observed, container: &str, code: i32, words: &str) {
    let pod = seen.pod.as_mut().unwrap();
    failed(pod, container, code, words, Time(noon()));
    let statuses = pod.status.as_mut().unwrap().init_container_statuses.as_mut().unwrap();
    let end = statuses[0].last_state.as_mut().unwrap().terminated.as_mut().unwrap();
    end.reason = Some("OOMKilled".to_owned());
}

#[test]
fn a_restore_that_ran_out_of_memory_says_what_it_needs() {
    let limits = Some([("memory".to_owned(), Quantity("512Mi".to_owned()))].into());
    let resources = Some(ResourceRequirements { limits, ..ResourceRequirements::default() });
    let agent = Some(Agent { resources, ..Agent::default() });
    let mut seen = unborn(Some(Restoring { agent, ..restoring("k") }));
    // Without a report, kubelet has the last lines of the log. The kernel may also have killed etcdutl.
    let log = "INFO reading the snapshot: 812 of about 4096 MiB";
    let report = r#"{"kind":"failed","class":"Transient","message":"etcdutl could not restore (signal: 9)"}"#;
    for (code, words) in [(137, log), (68, report)] {
        killed(&mut seen, "restore", code, words);
        let (reason, message) = degraded(&seen);
        assert_eq!(reason, "AgentMisconfigured", "{message}");
        for part in ["limit 512Mi", "spec.bootstrap.restore.agent.resources", "starts the container again"] {
            assert!(message.contains(part), "no {part:?} in {message}");
        }
        let told = planned(&seen).status.last_failure.unwrap();
        assert_eq!((told.exit_code, told.reason.as_deref()), (code, Some("AgentMisconfigured")));
        // After the Pod is gone, the status keeps the reason.
        let mut gone = seen.clone();
        gone.member.status = Some(planned(&seen).status);
        gone.pod = None;
        assert_eq!(degraded(&gone), (reason, message));
    }
    // A failure that the agent reports is no lack of memory.
    killed(&mut seen, "restore", 65, r#"{"kind":"failed","class":"Denied","message":"the store says 403"}"#);
    assert_eq!(degraded(&seen).0, "StoreAccessDenied");
}

#[test]
fn an_etcd_that_ran_out_of_memory_is_not_the_agents() {
    let mut seen = unborn(Some(restoring("k")));
    killed(&mut seen, "etcd", 137, "the last line of etcd's log");
    let (reason, message) = degraded(&seen);
    assert_eq!(reason, "MemberRestarting");
    assert!(message.contains("out of memory") && message.contains("spec.resources"), "{message}");
    assert!(message.contains("limit its node's") && !message.contains("restore.agent"), "{message}");
}

/// The gate connects to no store.
#[test]
fn trouble_with_the_members_own_volume_is_not_a_stores() {
    for (class, code) in [("Denied", 77), ("NotFound", 78), ("Transient", 79)] {
        let mut seen = unborn(None);
        let words =
            format!(r#"{{"kind":"failed","class":"{class}","message":"/var/lib/etcd: read-only file system"}}"#);
        failed(seen.pod.as_mut().unwrap(), "etcd", code, &words, Time(noon()));
        let (reason, message) = degraded(&seen);
        assert_eq!(reason, "VolumeUnusable", "{message}");
        assert!(message.contains("read-only") && message.contains("Check the member's claim"), "{message}");
        assert!(!message.contains("credentials") && !message.contains("store"), "{message}");
    }
}

#[test]
fn a_cluster_that_is_gone_or_going_or_paused_gets_nothing_new() {
    let mut seen = unborn(None);
    seen.pod = None;
    let mut gone = seen.clone();
    gone.cluster = Seen::Known(None);
    assert_eq!(waits(&gone), Some(Reason::Deleting));
    // Without an owner the garbage collector deletes nothing.
    gone.member.metadata.owner_references = None;
    assert_eq!(waits(&gone), Some(Reason::ClusterGone));
    assert_eq!(degraded(&gone).0, "ClusterGone");
    let mut going = seen.clone();
    cluster(&mut going).metadata.deletion_timestamp = Some(earlier());
    assert_eq!(waits(&going), Some(Reason::Deleting));
    cluster(&mut seen).spec.paused = true;
    assert_eq!(waits(&seen), Some(Reason::Paused));
    seen.member.spec.process.version = "4".to_owned();
    cluster(&mut seen).spec.paused = false;
    assert_eq!(waits(&seen), Some(Reason::InvalidSpec));
}
