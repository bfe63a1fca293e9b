//! A Job of which no agent ran has stored nothing; all that leaves room for doubt is asked of the store.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodCondition, PodSpec};

use super::*;
use holdfast_base::pods::Unstarted;

/// The Job's time was over a second ago, and it counts so many Pods as failed.
fn over(seen: Observed, failed: i32) -> Observed {
    let mut seen = written(seen);
    seen.job.as_mut().unwrap().status = Some(ended("Failed", "DeadlineExceeded", 1, failed));
    seen
}

/// Deleted on a node: kubelet reports the end of a container that it never had.
fn ended_on_a_node(pod: Pod) -> Pod {
    let lost = "The container could not be located when the pod was terminated".to_owned();
    let mut last = terminated("p-1", 137, "ContainerStatusUnknown", Some(lost));
    last.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0]
        .state
        .as_mut()
        .unwrap()
        .terminated
        .as_mut()
        .unwrap()
        .finished_at = None;
    last.spec = Some(PodSpec { node_name: Some("n1".to_owned()), ..pod.spec.unwrap_or_default() });
    last.metadata =
        ObjectMeta { deletion_timestamp: Some(ago(-29)), deletion_grace_period_seconds: Some(30), ..pod.metadata };
    last
}

fn deleted(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(ago(1));
    pod
}

fn gone(pods: &[Pod]) -> Vec<Unstarted> {
    pods.iter().filter_map(|pod| Unstarted::prove(pod, "agent", now())).collect()
}

#[test]
fn a_job_of_which_no_pod_ran_fails_at_once_with_the_cause() {
    let image = || waiting("ErrImagePull", Some("no such image"));
    let cases = [
        (unschedulable(), deleted(unschedulable()), "PodHeldUp", "Pod p-1 does not run: Unschedulable: 0/3 nodes"),
        (image(), ended_on_a_node(image()), "PodHeldUp", "Pod p-1 does not run: ErrImagePull: no such image"),
        (
            waiting("ContainerCreating", None),
            ended_on_a_node(waiting("ContainerCreating", None)),
            "PodHeldUp",
            "Pod p-1 does not run yet: kubelet prepares its image",
        ),
    ];
    for (before, last, reason, says) in cases {
        let held = with(vec![before]);
        let there = Observed { pods: vec![last.clone()], ..over(held.clone(), 1) };
        let gone = Observed { pods: vec![], unstarted: gone(&[last]), ..over(held, 1) };
        assert_eq!(gone.unstarted.len(), 1, "{says}");
        for seen in [there, gone] {
            let plan = planned(&seen);
            let (phase, ready, why, message) = told(&plan.status);
            assert_eq!((phase, ready, why, plan.act.as_ref()), (Phase::Failed, "False", reason, None), "{says}");
            assert!(message.contains(says) && message.contains("create another EtcdSnapshot"), "{message}");
            assert_eq!(plan.status.error.unwrap().class, "Deadline");
            assert_eq!(plan.status.held_up.unwrap().reason, seen.snapshot.status.unwrap().held_up.unwrap().reason);
        }
    }
}

/// A Pod may have come, saved and been drained while the operator was away.
#[test]
fn a_job_that_counts_no_pod_is_asked_of_the_store() {
    let mut refused = Observed { refusal: Some("exceeded quota: tight".to_owned()), ..with(vec![]) };
    refused.job.as_mut().unwrap().metadata.creation_timestamp = Some(ago(6));
    assert_eq!(told(&planned(&over(refused, 0)).status).0, Phase::Running);
}

#[test]
fn all_that_leaves_room_for_a_run_is_asked_of_the_store() {
    let held = || with(vec![unschedulable()]);
    let change = |how: &dyn Fn(&mut Pod)| {
        let mut pod = ended_on_a_node(unschedulable());
        how(&mut pod);
        pod
    };
    let container = |how: &dyn Fn(&mut ContainerStatus)| {
        change(&|pod| how(&mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0]))
    };
    let ran = ContainerState {
        terminated: Some(ContainerStateTerminated { exit_code: 1, ..ContainerStateTerminated::default() }),
        ..ContainerState::default()
    };
    let used_to_run = "The container could not be located when the pod was deleted.  The container used to be Running";
    let disrupted =
        PodCondition { type_: "DisruptionTarget".to_owned(), status: "True".to_owned(), ..PodCondition::default() };
    let doubtful = [
        ("it is not deleted", unschedulable()),
        ("it ended by itself", change(&|pod| pod.metadata.deletion_timestamp = None)),
        ("it may start yet", change(&|pod| pod.status.as_mut().unwrap().phase = Some("Pending".to_owned()))),
        ("kubelet answers late", change(&|pod| pod.metadata.deletion_timestamp = Some(ago(31)))),
        ("disrupted", change(&|pod| pod.status.as_mut().unwrap().conditions = Some(vec![disrupted.clone()]))),
        ("it was made", container(&|status| status.container_id = Some("containerd://1".to_owned()))),
        ("it ran before", container(&|status| status.last_state = Some(ran.clone()))),
        ("it restarted", container(&|status| status.restart_count = 1)),
        ("it ended", container(&|status| status.state = Some(ran.clone()))),
        (
            "it used to run",
            container(&|status| {
                status.state.as_mut().unwrap().terminated.as_mut().unwrap().message = Some(used_to_run.to_owned());
            }),
        ),
        ("it runs", deleted(running())),
    ];
    for (why, pod) in doubtful {
        assert_eq!(gone(std::slice::from_ref(&pod)), [], "{why}");
        let seen = Observed { pods: vec![pod], ..over(held(), 1) };
        assert_ne!(told(&planned(&seen).status).0, Phase::Failed, "{why}");
    }
    // The sound case, and what else of the Job leaves room.
    let sound = || Observed { pods: vec![], unstarted: gone(&[deleted(unschedulable())]), ..over(held(), 1) };
    assert_eq!(told(&planned(&sound()).status).0, Phase::Failed);
    let unseen = Observed { unstarted: vec![], ..sound() };
    let mut two = sound();
    two.job.as_mut().unwrap().status.as_mut().unwrap().failed = Some(2);
    let mut replaced = sound();
    replaced.unstarted[0].created = ago(49).0;
    let mut followed = sound();
    followed.unstarted[0].deleted = ago(11).0;
    let mut succeeded = sound();
    succeeded.job.as_mut().unwrap().status.as_mut().unwrap().succeeded = Some(1);
    let beside = Observed { pods: vec![Pod { metadata: meta("p-2", "p-2"), ..running() }], ..sound() };
    for seen in [unseen, two, replaced, followed, succeeded, beside] {
        assert_ne!(told(&planned(&seen).status).0, Phase::Failed);
    }
}

/// When the Job's time is over, kubelet reports the container as being prepared for a moment.
#[test]
fn a_deleted_pod_keeps_the_cause_that_held_it_up() {
    let held = written(with(vec![waiting("ErrImagePull", Some("no such image"))]));
    let ending = Observed { pods: vec![deleted(waiting("ContainerCreating", None))], ..held.clone() };
    assert_eq!(planned(&ending).status, held.snapshot.status.clone().unwrap());
    // The Pod is gone before the Job controller ends the Job.
    let last = ended_on_a_node(waiting("ErrImagePull", Some("no such image")));
    let there = Observed { pods: vec![last.clone()], ..held.clone() };
    assert_eq!(planned(&there).status, held.snapshot.status.clone().unwrap());
    let gone = Observed { pods: vec![], unstarted: gone(&[last]), ..held.clone() };
    assert_eq!((gone.unstarted.len(), planned(&gone).status), (1, held.snapshot.status.unwrap()));
}

/// Of one whose asking Pod waits for the same claim, the reason says so.
#[test]
fn a_held_up_pod_that_asks_the_store_is_the_reason() {
    let mut lost = with(vec![]);
    ends(&mut lost, "Complete", "", 200);
    let seen = asked(lost, vec![unschedulable()]);
    let (phase, _, reason, message) = {
        let status = planned(&seen).status;
        let (phase, ready, reason, message) = told(&status);
        (phase, ready.to_owned(), reason.to_owned(), message.to_owned())
    };
    assert_eq!((phase, reason.as_str()), (Phase::Running, "PodHeldUp"));
    assert!(message.contains("Pod p-1 does not run: Unschedulable"), "{message}");
}

#[test]
fn the_pod_that_uses_the_claim_is_named() {
    let mounts = |mut pod: Pod, claim: &str, node: Option<&str>| {
        let spec = serde_json::json!({
            "containers": [], "nodeName": node,
            "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": claim}}],
        });
        pod.spec = Some(serde_json::from_value(spec).unwrap());
        pod
    };
    let user = |claim, node| {
        let mut pod = mounts(running(), claim, node);
        (pod.metadata.name, pod.metadata.uid) = (Some("rival".to_owned()), Some("rival".to_owned()));
        pod
    };
    let one_pod = |mut pod: Pod| {
        pod.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].message = Some(
            "0/3 nodes are available: 3 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access \
             mode already in-use by another pod"
                .to_owned(),
        );
        pod
    };
    let alone = || mounts(unschedulable(), "backups", None);
    let exclusive = || one_pod(alone());
    let attaching = || mounts(waiting("ContainerCreating", None), "backups", Some("n1"));
    let mut over = user("backups", Some("n2"));
    over.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    let named = "; Pod rival on node n2 uses claim backups";
    for (pod, other, says) in [
        (exclusive(), user("backups", Some("n2")), named),
        (attaching(), user("backups", Some("n2")), named),
        (exclusive(), user("other", Some("n2")), ""),
        (exclusive(), user("backups", None), ""),
        (exclusive(), over, ""),
        (attaching(), user("backups", Some("n1")), ""),
        (alone(), user("backups", Some("n2")), ""),
    ] {
        let seen = Observed { claim_users: vec![other], ..with(vec![pod]) };
        let status = planned(&seen).status;
        let message = told(&status).3;
        assert_eq!(message.contains("rival"), !says.is_empty(), "{message}");
        assert!(message.ends_with(says), "{message}");
    }
}

/// The cause of a Pod that is deleted comes from the status, with the names of the Pods that use the claim.
#[test]
fn the_user_of_the_claim_of_a_deleted_pod_is_named_once() {
    let volumes = |claim: &str, node: &str| {
        serde_json::from_value::<PodSpec>(serde_json::json!({
            "containers": [], "nodeName": node,
            "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": claim}}],
        }))
        .unwrap()
    };
    let attaching = Pod { spec: Some(volumes("backups", "n1")), ..waiting("ContainerCreating", None) };
    let rival = Pod { metadata: meta("rival", "rival"), spec: Some(volumes("backups", "n2")), ..running() };
    let held = written(Observed { claim_users: vec![rival], ..with(vec![attaching.clone()]) });
    assert!(told(&held.snapshot.status.clone().unwrap()).3.contains("rival"));
    let ending = Observed { pods: vec![deleted(attaching)], ..held.clone() };
    assert_eq!(planned(&ending).status, held.snapshot.status.unwrap());
}
