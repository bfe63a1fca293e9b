//! Searches with Pods that cannot run: Holdfast gives up one Job after the other, and the message stays the same.

use k8s_openapi::api::core::v1::{ContainerStateRunning, ContainerStateWaiting};

use super::*;

fn pod(name: &str, state: ContainerState) -> Pod {
    let container = ContainerStatus { name: "agent".to_owned(), state: Some(state), ..ContainerStatus::default() };
    let status = PodStatus { container_statuses: Some(vec![container]), ..PodStatus::default() };
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Pod { metadata, status: Some(status), ..Pod::default() }
}

fn stuck(name: &str, why: &str) -> Pod {
    let waiting = ContainerStateWaiting { reason: Some("ErrImagePull".to_owned()), message: Some(why.to_owned()) };
    pod(name, ContainerState { waiting: Some(waiting), ..ContainerState::default() })
}

fn creating(name: &str) -> Pod {
    let waiting = ContainerStateWaiting { reason: Some("ContainerCreating".to_owned()), message: None };
    pod(name, ContainerState { waiting: Some(waiting), ..ContainerState::default() })
}

/// Ends the last Job by its deadline, this many seconds ago, and removes its Pod.
fn give_up(seen: &mut Observed, seconds: i64) {
    let last = seen.searches.last_mut().unwrap();
    let end = JobCondition {
        type_: "Failed".to_owned(),
        status: "True".to_owned(),
        reason: Some("DeadlineExceeded".to_owned()),
        last_transition_time: Some(Time(ago(seconds))),
        ..JobCondition::default()
    };
    last.job.status = Some(JobStatus { conditions: Some(vec![end]), failed: Some(1), ..JobStatus::default() });
    last.job.metadata.creation_timestamp = Some(Time(ago(seconds + 1)));
    last.pods.clear();
}

#[test]
fn what_holds_up_the_pods_that_ask_is_told_until_one_runs() {
    let mut seen = asking(latest("b"));
    seen.searches = vec![search(&seen, None)];
    seen.searches[0].pods = vec![stuck("p-0", "no such image")];
    seen.cluster.status = Some(planned(&seen).status);
    let told = |seen: &Observed| planned(seen).status.conditions;
    let first = told(&seen);
    assert_eq!(condition(&seen, "Ready"), pair("False", "PodHeldUp"));
    for round in 1..4 {
        for seconds in [2, 12] {
            give_up(&mut seen, seconds);
            assert_eq!((act(&seen), told(&seen)), (None, first.clone()), "round {round}, {seconds} s");
        }
        give_up(&mut seen, 130);
        let next = search(&seen, None);
        assert_eq!(told(&seen), first, "while the next Job is made, {round}");
        seen.searches.push(next);
        assert_eq!(told(&seen), first, "before it has a Pod, {round}");
        seen.searches.last_mut().unwrap().pods = vec![stuck(&format!("p-{round}"), "no such image")];
        assert_eq!(told(&seen), first, "a Pod of another name, {round}");
    }
    let with = |pod| {
        let mut seen = seen.clone();
        seen.searches.last_mut().unwrap().pods = vec![pod];
        planned(&seen).waiting.unwrap()
    };
    assert!(with(stuck("p-9", "no such registry")).message.contains("Pod p-9 does not run: ErrImagePull: no such reg"));
    let running = ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() };
    assert_ne!(with(pod("p-9", running)).reason, Reason::PodHeldUp);
}

/// For example, a volume is not attached: kubelet reports no cause that needs a person.
#[test]
fn what_a_search_has_waited_for_is_told_when_its_time_is_over() {
    let mut seen = asking(latest("b"));
    seen.searches = vec![search(&seen, None)];
    seen.searches[0].pods = vec![creating("p-0")];
    assert_eq!(waits(&seen), Some(Reason::AskingStore));
    seen.cluster.status = Some(planned(&seen).status);
    let told = |seen: &Observed| planned(seen).status.conditions;
    give_up(&mut seen, 12);
    let waiting = planned(&seen).waiting.unwrap();
    assert_eq!(waiting.reason, Reason::AgentTimedOut);
    for said in ["Pod p-0 does not run yet: ", "`kubectl describe pod p-0`", "Holdfast then starts another Job"] {
        assert!(waiting.message.contains(said), "{}", waiting.message);
    }
    let first = told(&seen);
    for round in 1..4 {
        seen.cluster.status = Some(planned(&seen).status);
        give_up(&mut seen, 130);
        let next = search(&seen, None);
        assert_eq!(told(&seen), first, "while the next Job is made, {round}");
        seen.searches.push(next);
        assert_eq!(told(&seen), first, "before it has a Pod, {round}");
        seen.searches.last_mut().unwrap().pods = vec![creating(&format!("p-{round}"))];
        assert_eq!(told(&seen), first, "a Pod of another name, {round}");
        give_up(&mut seen, 12);
        assert_eq!(told(&seen), first, "its time is over too, {round}");
    }
}

/// The Job only reads, so another Job may search beside it.
#[test]
fn who_asks_on_a_silent_node_is_not_waited_for() {
    let mut seen = asking(latest("b"));
    let silent = |seconds: i64| {
        let mut pod = pod("p-0", ContainerState::default());
        pod.metadata.deletion_timestamp = Some(Time(ago(seconds)));
        pod.spec.get_or_insert_default().node_name = Some("n7".to_owned());
        pod
    };
    seen.searches = vec![search(&seen, None)];
    seen.searches[0].job.metadata.creation_timestamp = Some(Time(ago(600)));
    for (seconds, reason) in [(29, Reason::AskingStore), (30, Reason::NodeSilent), (149, Reason::NodeSilent)] {
        seen.searches[0].pods = vec![silent(seconds)];
        assert_eq!(waits(&seen), Some(reason), "{seconds} s");
    }
    let before = planned(&seen).status.conditions;
    seen.searches[0].pods = vec![silent(150)];
    let next = search(&seen, None);
    assert_ne!(next.job.metadata.name, seen.searches[0].job.metadata.name);
    assert_eq!(planned(&seen).status.conditions, before, "while the next Job is made");
    seen.searches.push(next);
    assert_eq!((waits(&seen), planned(&seen).status.conditions), (Some(Reason::NodeSilent), before), "while it asks");
    let mut answered = search(&Observed { searches: seen.searches[..1].to_vec(), ..seen.clone() }, Some((1, &found())));
    std::mem::swap(&mut seen.searches[1], &mut answered);
    assert!(matches!(act(&seen), Some(Act::Latch(_))));
}
