//! A Job's deadline is over, and the user still needs the hold-up of its Pod.

use holdfast_api::condition::Reason;

use super::*;

/// The world with the status of the last pass, the Job's deadline passed `seconds` ago, and the Pods gone.
fn over(seen: Observed, seconds: i64) -> Observed {
    let mut seen = written(seen);
    seen.pods.clear();
    ends(&mut seen, "Failed", "DeadlineExceeded", seconds);
    seen
}

/// The same for the Job that asks the store.
fn asked_in_vain(seen: Observed, seconds: i64) -> Observed {
    let mut seen = written(seen);
    let last = seen.inspections.last_mut().unwrap();
    last.pods.clear();
    last.job.status = Some(ended("Failed", "DeadlineExceeded", seconds, 0));
    seen
}

#[test]
fn what_held_a_saving_pod_up_is_told_to_the_end() {
    let refused = Observed { refusal: Some("exceeded quota: tight".to_owned()), ..with(vec![]) };
    let cases = [
        (
            with(vec![waiting("ErrImagePull", Some("no such image"))]),
            "Pod p-1 does not run: ErrImagePull: no such image",
        ),
        (with(vec![unschedulable()]), "Pod p-1 does not run: Unschedulable: 0/3 nodes are available"),
        (with(vec![waiting("ContainerCreating", None)]), "`kubectl describe pod p-1` names the missing object"),
        (refused, "exceeded quota: tight"),
        (with(vec![]), "has no Pod yet; if the Pod stays missing, `kubectl describe job"),
        (
            with(vec![silent()]),
            "kubelet does not report the end of Pod p-1: its Pod is being deleted, and the kubelet of node n7 does not \
             report its end",
        ),
    ];
    for (seen, says) in cases {
        let before = planned(&seen).status.conditions;
        // The Pod disappears a moment before the Job reports its deadline.
        if !seen.pods.is_empty() {
            let gone = Observed { pods: vec![], ..written(seen.clone()) };
            assert_eq!(planned(&gone).status.conditions, before, "{says}");
        }
        let settling = over(seen, 9);
        let settling = Observed { refusal: None, ..settling };
        assert_eq!(planned(&settling).status.conditions, before, "{says}");
        let seen = over(settling, 10);
        let plan = planned(&seen);
        let (phase, _, reason, message) = told(&plan.status);
        assert_eq!((phase, reason), (Phase::Running, "AskingStore"), "{says}");
        assert!(message.starts_with("the Job passed its deadline of 3720 s") && message.contains(says), "{message}");
        let seen = asked(long_over(written(seen)), nothing());
        let status = planned(&written(seen)).status;
        assert_eq!((status.phase, told(&status).2), (Phase::Failed, "AgentTimedOut"), "{says}");
        let error = status.error.unwrap();
        assert!(
            error.message.contains(says) && error.message.contains("create another EtcdSnapshot"),
            "{}",
            error.message
        );
        assert!(!error.message.contains("deadlineSeconds") && !error.message.contains("taint"), "{}", error.message);
    }
    // kubelet reports an unknown end for a container that never started.
    let mut seen = written(with(vec![waiting("ErrImagePull", Some("no such image"))]));
    seen.pods = vec![terminated("p-1", 137, "ContainerStatusUnknown", Some("could not be located".to_owned()))];
    ends(&mut seen, "Failed", "DeadlineExceeded", 1);
    assert!(told(&planned(&seen).status).3.contains("Pod p-1 does not run: ErrImagePull: no such image"));
    // Or kubelet reports that the container ran, with an unknown end.
    let lost = "The container could not be located when the pod was deleted.  The container used to be Running";
    seen.pods = vec![terminated("p-1", 137, "ContainerStatusUnknown", Some(lost.to_owned()))];
    assert!(!told(&planned(&seen).status).3.contains("does not run"));
    // A Pod that ran needs more time.
    let seen = over(with(vec![running()]), 10);
    assert!(told(&planned(&seen).status).3.contains("Raise spec.deadlineSeconds in a new EtcdSnapshot"));
}

#[test]
fn who_asks_the_store_is_told_of_as_such_and_needs_no_new_snapshot() {
    let lost = || {
        let mut seen = with(vec![]);
        ends(&mut seen, "Complete", "", 200);
        seen
    };
    let plan = planned(&asked(lost(), vec![running()]));
    assert!(told(&plan.status).3.starts_with("Pod p-1 searches the store since"), "{}", told(&plan.status).3);
    let plan = planned(&asked_in_vain(asked(lost(), vec![running()]), 10));
    let message = told(&plan.status).3;
    assert!(
        message.contains("the Job passed its deadline") && message.ends_with("Correct the cause of the delay"),
        "{message}"
    );
    let seen = asked_in_vain(asked(lost(), vec![waiting("ContainerCreating", None)]), 10);
    let first = planned(&seen).status.conditions;
    let seen = written(seen);
    assert_eq!(planned(&seen).status.conditions, first);
    let message = told(seen.snapshot.status.as_ref().unwrap()).3;
    assert!(message.contains("Holdfast then starts another Job: Pod p-1 does not run yet: "), "{message}");
    let killed = terminated("p-1", 137, "OOMKilled", None);
    let message = told(&planned(&asked(lost(), vec![killed])).status).3.to_owned();
    assert!(message.contains("limit 256Mi") && message.contains("spec.agent.resources is immutable"), "{message}");
}

/// The hold-up of the saving Pod is independent of the hold-up of the asking Pod.
#[test]
fn what_held_one_pod_up_is_not_told_of_another() {
    let seen = over(with(vec![waiting("ErrImagePull", Some("no such image"))]), 10);
    let saved = "Pod p-1 does not run: ErrImagePull: no such image";
    let seen = written(seen);
    let second = asked_in_vain(asked(seen.clone(), vec![running()]), 10);
    let plan = planned(&second);
    let message = told(&plan.status).3;
    assert_eq!(message.matches(saved).count(), 1, "{message}");
    assert!(message.ends_with("Correct the cause of the delay"), "{message}");
    let held = asked_in_vain(asked(seen, vec![waiting("ErrImagePull", Some("no such registry"))]), 10);
    let plan = planned(&held);
    let message = told(&plan.status).3;
    assert_eq!(message.matches(saved).count(), 1, "{message}");
    assert!(message.ends_with("Pod p-1 does not run: ErrImagePull: no such registry (attempt 1 of 4)"), "{message}");
}

/// The asking Pod only reads.
#[test]
fn who_asks_on_a_silent_node_is_asked_beside() {
    let mut lost = with(vec![]);
    ends(&mut lost, "Complete", "", 200);
    let mut seen = asked(lost, vec![silent()]);
    seen.inspections[0].job.metadata.creation_timestamp = Some(ago(600));
    let next = started(&seen);
    assert_ne!(next.metadata.name, seen.inspections[0].job.metadata.name);
    let plan = planned(&seen);
    let (phase, ready, reason, message) = told(&plan.status);
    assert_eq!((phase, ready, reason), (Phase::Running, "Unknown", Reason::ReportLost.as_str()));
    assert!(message.contains("kubectl taint nodes n7 "), "{message}");
    let asks = asked(seen.clone(), vec![running()]);
    assert_eq!((planned(&asks).act, planned(&asks).status.conditions), (None, plan.status.conditions));
    assert_eq!(planned(&asked(seen.clone(), vec![saved()])).status.phase, Phase::Complete);
    // The second asking Pod fails, and the first one's Pod is gone before its Job reports that: the first Job may get another
    // Pod.
    let mut both = aged(asked(seen, vec![failed("p-ask", ExitClass::Transient, "the store is down")]), 1_200);
    assert!(matches!(planned(&both).act, Some(Act::StartJob(_))), "the third asks");
    both.inspections[0].pods.clear();
    let plan = planned(&both);
    assert_eq!(plan.act, None, "one after the other");
    assert!(told(&plan.status).3.contains("the store is down"), "{}", told(&plan.status).3);
    both.inspections[0].job.status = Some(ended("Failed", "DeadlineExceeded", 1, 0));
    assert!(matches!(planned(&both).act, Some(Act::StartJob(_))));
}

/// The Pod may still publish: no other Job saves, and the message names the node.
#[test]
fn a_pod_without_its_job_is_waited_for_and_its_silent_node_is_told() {
    let mut seen = written(with(vec![running()]));
    seen.job = None;
    seen.pods.clear();
    for (pod, reason) in [(running(), "AskingStore"), (silent(), "NodeSilent")] {
        seen.strays = vec![pod];
        let plan = planned(&seen);
        let (phase, _, why, message) = told(&plan.status);
        assert_eq!((phase, why, plan.act.as_ref()), (Phase::Running, reason, None));
        assert!(message.contains("the Job is gone") && message.contains("p-1"), "{message}");
        assert_eq!(message.contains("kubectl taint nodes n7 "), why == "NodeSilent", "{message}");
        assert_eq!(plan.notes.len(), usize::from(why == "NodeSilent"), "people hear of it");
        assert_eq!(planned(&written(seen.clone())).notes, vec![], "once");
    }
}
