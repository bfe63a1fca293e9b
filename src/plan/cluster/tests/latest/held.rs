//! Searches whose Pods cannot run: one Job after the other is given up, and what is told stays the same.

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

/// The last Job's time was over so many seconds ago, and its Pod went with it.
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
