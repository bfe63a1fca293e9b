//! A probe whose Pods cannot run: one Job after the other gives up, and the message stays the same.

use k8s_openapi::api::core::v1::ContainerStateRunning;

use super::*;

/// A Pod with this name that kubelet holds back for this reason.
fn held(name: &str, why: &str) -> Pod {
    let waiting = ContainerStateWaiting { reason: Some("ErrImagePull".to_owned()), message: Some(why.to_owned()) };
    let mut pod = pod(ContainerState { waiting: Some(waiting), ..ContainerState::default() }, "Pending");
    pod.metadata.name = Some(name.to_owned());
    pod
}

/// A Pod with this name in `ContainerCreating`, without a cause from kubelet.
fn creating(name: &str) -> Pod {
    let waiting = ContainerStateWaiting { reason: Some("ContainerCreating".to_owned()), message: None };
    let mut pod = pod(ContainerState { waiting: Some(waiting), ..ContainerState::default() }, "Pending");
    pod.metadata.name = Some(name.to_owned());
    pod
}

fn runs(name: &str) -> Pod {
    let running = Some(ContainerStateRunning::default());
    let mut pod = pod(ContainerState { running, ..ContainerState::default() }, "Running");
    pod.metadata.name = Some(name.to_owned());
    pod
}

/// The Job's deadline passed `seconds` ago, and its Pod is gone.
fn given_up(mut seen: Observed, seconds: i64) -> Observed {
    let end = JobCondition {
        type_: "Failed".to_owned(),
        status: "True".to_owned(),
        reason: Some("DeadlineExceeded".to_owned()),
        last_transition_time: Some(Time(ago(seconds))),
        ..JobCondition::default()
    };
    let status = JobStatus { conditions: Some(vec![end]), failed: Some(1), ..JobStatus::default() };
    seen.job.as_mut().unwrap().status = Some(status);
    seen.pods.clear();
    seen
}

/// The same object, with the status of the last pass, beside the same Job.
fn next(seen: &Observed) -> Observed {
    let mut next = seen.clone();
    next.store.status = Some(planned(seen).status);
    next
}

#[test]
fn what_holds_up_the_pods_of_a_probe_is_told_until_one_runs() {
    let mut seen = with(fresh(), vec![held("p-1", "no such image")]);
    let first = ready(&planned(&seen)).clone();
    assert_eq!(first.reason, "PodHeldUp");
    assert!(first.message.contains("Pod p-1 does not run: ErrImagePull: no such image"), "{}", first.message);
    for round in 2..5 {
        // The Job's end may be visible before its Pod's end.
        for seconds in [2, 90] {
            seen = given_up(next(&seen), seconds);
            assert_eq!(ready(&planned(&seen)), &first, "round {round}, {seconds} s");
        }
        let plan = planned(&seen);
        assert_eq!(probe(&plan).class.as_deref(), Some("Deadline"), "how it ended is not hidden");
        assert_eq!(plan.notes, vec![], "said once");
        seen = written(seen, &plan);
        assert_eq!(ready(&planned(&seen)), &first, "while the next Job is made, {round}");
        seen = with(seen, vec![]);
        assert_eq!(ready(&planned(&seen)), &first, "before it has a Pod, {round}");
        seen.pods = vec![held(&format!("p-{round}"), "no such image")];
        assert_eq!(ready(&planned(&seen)), &first, "a Pod of another name, {round}");
    }
    // Another hold-up now.
    let mut other = seen.clone();
    other.pods = vec![held("p-9", "no such registry")];
    assert!(ready(&planned(&other)).message.contains("Pod p-9 does not run: ErrImagePull: no such registry"));
    // The Pod runs: the hold-up is over, and the agent's deadline is about the store.
    seen.pods = vec![runs("p-4")];
    assert_ne!(ready(&planned(&seen)).reason, "PodHeldUp");
    let late = ended(71, Some(&Report::Failed(failed_report(ExitClass::Deadline, "x"))));
    assert_eq!(told(&planned(&with(written(next(&seen), &planned(&seen)), vec![late]))), ("False", "AgentTimedOut"));
}

#[test]
fn what_a_probe_has_waited_for_is_told_when_its_time_is_over() {
    let mut seen = given_up(next(&with(fresh(), vec![creating("p-1")])), 90);
    let first = ready(&planned(&seen)).clone();
    assert_eq!(first.reason, "AgentTimedOut");
    assert!(
        first.message.contains("Holdfast then starts another probe: Pod p-1 does not run yet: "),
        "{}",
        first.message
    );
    assert!(!first.message.contains("network"), "{}", first.message);
    for round in 2..4 {
        let plan = planned(&seen);
        seen = with(written(seen, &plan), vec![creating(&format!("p-{round}"))]);
        assert_eq!(ready(&planned(&seen)), &first, "the next one waits for the same, {round}");
        seen = given_up(next(&seen), 90);
        assert_eq!(ready(&planned(&seen)), &first, "its time is over too, {round}");
    }
}

/// Only this message shows that Holdfast does not probe the store any more.
#[test]
fn a_usable_store_whose_probe_is_on_a_silent_node_says_so() {
    let found = with(fresh(), vec![answered(&[], None)]);
    let plan = planned(&found);
    let mut again = written(found, &plan);
    again.store.status.as_mut().unwrap().probe.as_mut().unwrap().at = ago(90_000).to_string();
    let mut silent = runs("p-2");
    silent.metadata.deletion_timestamp = Some(Time(ago(60)));
    silent.spec.get_or_insert_default().node_name = Some("n7".to_owned());
    let seen = with(again, vec![silent]);
    let plan = planned(&seen);
    assert_eq!((told(&plan), plan.act.as_ref()), (("True", "StoreUsable"), None));
    assert!(ready(&plan).message.contains("kubectl taint nodes n7 "), "{}", ready(&plan).message);
}

/// The Pod is gone after its Job has ended: the next probe starts, and the node is no longer a fault of the store.
#[test]
fn a_silent_pod_is_forgotten_with_its_job() {
    let mut silent = runs("p-1");
    silent.metadata.deletion_timestamp = Some(Time(ago(60)));
    silent.spec.get_or_insert_default().node_name = Some("n7".to_owned());
    let seen = with(fresh(), vec![silent]);
    assert_eq!(told(&planned(&seen)), ("False", "NodeSilent"));
    let mut seen = given_up(next(&seen), 50);
    let first = ready(&planned(&seen)).clone();
    assert_eq!(first.reason, "AgentTimedOut");
    assert!(
        first.message.contains("kubelet does not report the end of Pod p-1") && !first.message.contains("taint"),
        "{first:?}"
    );
    for _ in 0..2 {
        seen = next(&seen);
        assert_eq!(ready(&planned(&seen)), &first, "each pass says the same");
    }
    let over = given_up(seen, 90);
    let plan = planned(&over);
    let again = with(written(over, &plan), vec![creating("p-2")]);
    assert_eq!(told(&planned(&again)), ("False", "AgentTimedOut"), "the next Pod waits for something else");
}
