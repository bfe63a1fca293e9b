//! Rolling changes: whose turn it is, what holds a roll up, and the way back from a template that does not start.

use holdfast_api::cluster::Medium;
use holdfast_api::member::{Departure, Removed, Resize};
use holdfast_api::template::Rollback;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, PodCondition, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use holdfast_base::template;

/// A formed cluster of this size whose spec asks for another snapshot count.
fn edited(voters: usize) -> Observed {
    let mut seen = formed(voters, i32::try_from(voters).unwrap());
    edit(&mut seen, 7);
    seen
}

fn edit(seen: &mut Observed, snapshot_count: i64) {
    seen.cluster.spec.options = Some(Options { snapshot_count: Some(snapshot_count), ..Options::default() });
}

/// Carries out the act that gives a member a template.
fn give(seen: &mut Observed) -> usize {
    let act = act(seen);
    let Some(Act::SetTemplate { member, template, served }) = act else { panic!("{act:?}") };
    let n = seen.members.iter().position(|m| m.name() == member.name).unwrap();
    template::put(&mut seen.members[n].object, &template);
    seen.members[n].object.spec.served = served.map(|served| *served);
    n
}

/// Gives a member its next Pod, which serves or does not.
fn restart(seen: &mut Observed, n: usize, serves: bool) {
    let mut pod = pod_of(&seen.members[n].object);
    pod.metadata.uid = Some(format!("u-next-{n}"));
    running(&mut pod, serves);
    seen.members[n].pod = Some(pod);
    if !serves {
        seen.answers.insert(named(n), Seen::unknown("refused"));
    }
}

/// Moves the data of all members into their Pods.
fn hold_in_memory(seen: &mut Observed) {
    let size = Some(Quantity("1Gi".to_owned()));
    (seen.cluster.spec.storage.medium, seen.cluster.spec.storage.size) = (Medium::Memory, size.clone());
    for member in &mut seen.members {
        let storage = &mut member.object.spec.storage;
        (storage.medium, storage.size, member.claim) = (Medium::Memory, size.clone(), None);
    }
}

/// Lets etcd's container end this many times.
fn crash(seen: &mut Observed, n: usize, times: i32) {
    let status = seen.members[n].pod.as_mut().unwrap().status.as_mut().unwrap();
    let etcd = status.container_statuses.as_mut().unwrap().first_mut().unwrap();
    etcd.restart_count = times;
    let waiting = ContainerStateWaiting { reason: Some("CrashLoopBackOff".to_owned()), message: None };
    etcd.state.as_mut().unwrap().running = None;
    etcd.state.as_mut().unwrap().waiting = Some(waiting);
}

#[test]
fn followers_restart_one_by_one_and_the_leader_last() {
    let mut seen = edited(3);
    let mut order = vec![];
    for _ in 0..3 {
        let n = give(&mut seen);
        order.push(n);
        if n == 0 {
            let Some(Act::MoveLeader { name, from, to, .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
            assert_eq!((name, from, to), (named(0), 0x10, 0x12));
            etcd(&mut seen).leader = Some(to);
            seen.answers.values_mut().for_each(|said| {
                let Seen::Known(answer) = said else { return };
                answer.leader = to;
            });
        }
        let ended = pod_target(&seen, n);
        assert!(matches!(act(&seen), Some(Act::EvictPod { pod, .. }) if pod == ended));
        restart(&mut seen, n, false);
        assert_eq!(waits(&seen), Some(Reason::Rolling), "the next one waits for this one");
        running(seen.members[n].pod.as_mut().unwrap(), true);
        let leader = etcd(&mut seen).leader.unwrap();
        seen.answers.insert(named(n), Seen::Known(Answer { leader, ..answer(n) }));
        assert_eq!(give(&mut seen), n, "the member serves with its template");
        assert_eq!(seen.members[n].object.spec.served, None);
    }
    assert_eq!(order, [1, 2, 0]);
    assert_eq!((act(&seen), waits(&seen)), (None, None));
    assert_eq!(planned(&seen).status.updated_members, 3);
    seen.client_endpoints = None;
    assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
}

#[test]
fn the_status_counts_members_with_the_present_spec() {
    let mut seen = edited(3);
    assert_eq!(planned(&seen).status.updated_members, 0);
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Rolling"));
    assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
    let n = give(&mut seen);
    assert_eq!(planned(&seen).status.updated_members, 0, "its Pod is outdated");
    restart(&mut seen, n, true);
    assert_eq!(planned(&seen).status.updated_members, 1);
}

#[test]
fn a_restart_on_request_is_a_roll() {
    let mut seen = formed(3, 3);
    seen.cluster.metadata.annotations = Some([(key::RESTART.to_owned(), "now".to_owned())].into());
    let n = give(&mut seen);
    assert_eq!(seen.members[n].object.spec.process.restart.as_deref(), Some("now"));
}

#[test]
fn a_roll_waits_for_every_other_voter_and_for_the_membership() {
    let wait = |change: fn(&mut Observed)| {
        let mut seen = edited(3);
        give(&mut seen);
        change(&mut seen);
        let act = act(&seen);
        assert!(!matches!(act, Some(Act::EvictPod { .. } | Act::DeletePod { .. })), "{act:?}");
        planned(&seen).waiting.map(|waiting| waiting.reason)
    };
    assert_eq!(wait(|seen| running(seen.members[2].pod.as_mut().unwrap(), false)), Some(Reason::Rolling));
    assert_eq!(wait(|seen| drop(seen.answers.insert(named(2), Seen::unknown("refused")))), Some(Reason::Rolling));
    assert_eq!(
        wait(|seen| {
            let far = Answer { applied_index: answer(2).applied_index.saturating_sub(5_000), ..answer(2) };
            seen.answers.insert(named(2), Seen::Known(far));
        }),
        Some(Reason::Rolling)
    );
    assert_eq!(wait(|seen| seen.members[2].claim = None), Some(Reason::Rolling));
    assert_eq!(
        wait(|seen| {
            etcd(seen).alarms.push(Alarm { member_id: 0x11, kind: AlarmKind::Corrupt });
        }),
        Some(Reason::AlarmRaised)
    );
    assert_eq!(wait(|seen| seen.cluster.spec.paused = true), Some(Reason::Paused));
}

/// The claim of a replaced member is kept for a day.
#[test]
fn a_removed_member_whose_claim_is_kept_holds_no_roll_up() {
    let mut seen = edited(3);
    let mut gone = joined_member(&seen.cluster, 5);
    let at = noon().to_string();
    gone.spec.leaving =
        Some(holdfast_api::member::Leaving { why: Departure::Requested, evidence: None, at: at.clone() });
    gone.spec.removed = Some(Removed { member_id: None, cluster_id: "c1".to_owned(), at });
    gone.metadata.deletion_timestamp = Some(earlier());
    seen.members.push(Member { claim: Some(claim_of(&gone)), object: gone, pod: None });
    let n = give(&mut seen);
    assert_eq!(n, 1);
    assert!(matches!(act(&seen), Some(Act::EvictPod { .. })));
}

#[test]
fn one_or_two_members_restart_without_a_budget() {
    for voters in [1, 2] {
        let mut seen = edited(voters);
        let n = give(&mut seen);
        assert_eq!(n, voters - 1);
        assert!(matches!(act(&seen), Some(Act::DeletePod { .. })), "{voters}");
        let progressing = planned(&seen).status.conditions.into_iter().find(|c| c.type_ == "Progressing").unwrap();
        assert!(
            progressing.message.contains("with fewer than three members, no quorum answers clients while one restarts"),
            "{}",
            progressing.message
        );
    }
}

#[test]
fn two_crashes_bring_the_earlier_template_back() {
    let mut seen = edited(3);
    let n = give(&mut seen);
    restart(&mut seen, n, false);
    crash(&mut seen, n, 1);
    assert_eq!(waits(&seen), Some(Reason::Rolling));
    crash(&mut seen, n, 2);
    let Some(Act::Latch(latched)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    let failed = latched.failed_template.clone().unwrap();
    assert_eq!((failed.member, failed.template), (named(n), template::fingerprint(&template::wanted(&seen.cluster))));
    *latches(&mut seen) = *latched;
    assert_eq!(give(&mut seen), n);
    assert_eq!(seen.members[n].object.spec.process.options, None);
    assert_eq!(waits(&seen), Some(Reason::RolloutStuck), "the member's own pass makes the next Pod");
    restart(&mut seen, n, true);
    seen.answers.insert(named(n), Seen::Known(answer(n)));
    give(&mut seen);
    assert_eq!(waits(&seen), Some(Reason::RolloutStuck));
    assert_eq!(condition(&seen, "Degraded"), pair("True", "RolloutStuck"));
    assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
    // Another edit is tried again.
    edit(&mut seen, 8);
    let Some(Act::Latch(latched)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(latched.failed_template, None);
    *latches(&mut seen) = *latched;
    assert_eq!(give(&mut seen), n);
}

#[test]
fn a_person_decides_where_the_version_changed_or_the_spec_says_so() {
    let stuck = |change: fn(&mut Observed)| {
        let mut seen = formed(3, 3);
        change(&mut seen);
        let n = give(&mut seen);
        restart(&mut seen, n, false);
        crash(&mut seen, n, 2);
        waits(&seen)
    };
    assert_eq!(stuck(|seen| seen.cluster.spec.version = "3.6.17".to_owned()), Some(Reason::RolloutStuck));
    let manual = |seen: &mut Observed| {
        edit(seen, 7);
        seen.cluster.spec.rollback = Some(Rollback::Manual);
    };
    assert_eq!(stuck(manual), Some(Reason::RolloutStuck));
}

/// Months later etcd may crash for another reason.
#[test]
fn a_template_that_has_served_is_not_blamed() {
    let mut seen = edited(3);
    let n = give(&mut seen);
    restart(&mut seen, n, true);
    give(&mut seen);
    crash(&mut seen, n, 9);
    seen.answers.insert(named(n), Seen::unknown("refused"));
    running(seen.members[n].pod.as_mut().unwrap(), false);
    assert_eq!(planned(&seen).status.latches.failed_template, None);
    assert_eq!(waits(&seen), Some(Reason::Rolling));
}

/// A bad template may have cost the quorum, so no membership can be read.
#[test]
fn a_member_that_does_not_run_gets_a_corrected_spec_without_a_quorum() {
    let mut seen = edited(1);
    give(&mut seen);
    restart(&mut seen, 0, false);
    crash(&mut seen, 0, 1);
    seen.etcd = Seen::unknown("timed out");
    assert_eq!(act(&seen), None);
    edit(&mut seen, 8);
    assert_eq!(act(&seen), None, "it may start yet");
    crash(&mut seen, 0, 2);
    give(&mut seen);
    assert_eq!(seen.members[0].object.spec.process.options.as_ref().unwrap().snapshot_count, Some(8));
    assert_eq!(seen.members[0].object.spec.served.as_ref().unwrap().options, None, "the template that served");
}

#[test]
fn a_second_idle_member_waits_until_the_first_has_started() {
    let mut seen = edited(3);
    for n in [1, 2] {
        running(seen.members[n].pod.as_mut().unwrap(), false);
        crash(&mut seen, n, 2);
    }
    seen.etcd = Seen::unknown("timed out");
    assert_eq!(give(&mut seen), 1);
    assert_eq!(act(&seen), None);
    restart(&mut seen, 1, false);
    assert_eq!(give(&mut seen), 2, "etcd runs there, and waits for a quorum");
}

#[test]
fn versions_change_within_their_minor_and_not_below_the_floor() {
    let with = |version: &str| {
        let mut seen = formed(3, 3);
        version.clone_into(&mut seen.cluster.spec.version);
        (act(&seen).is_some(), planned(&seen).waiting.map(|waiting| waiting.reason))
    };
    assert_eq!(with("3.6.17"), (true, None));
    assert_eq!(with("3.6.11"), (true, None), "backwards");
    assert_eq!(with("3.6.10"), (false, Some(Reason::InvalidSpec)));
    assert_eq!(with("3.7.1"), (false, Some(Reason::SnapshotNeeded)));
    assert_eq!(with("3.8.0"), (false, Some(Reason::InvalidSpec)));
    assert_eq!(with("3.5.35"), (false, Some(Reason::InvalidSpec)));
}

#[test]
fn a_quota_below_the_database_is_refused() {
    let with = |quota: i64| {
        let mut seen = formed(3, 3);
        seen.cluster.spec.options = Some(Options { quota_backend_bytes: Some(quota), ..Options::default() });
        let Some(Seen::Known(said)) = seen.answers.get_mut(&named(1)) else { panic!() };
        said.db_bytes = 90 << 20;
        planned(&seen).waiting.map(|waiting| waiting.reason)
    };
    assert_eq!(with(99 << 20), Some(Reason::InvalidSpec));
    assert_eq!(with(101 << 20), None);
}

/// The end of the Pod would be the end of the data.
#[test]
fn a_member_in_memory_is_replaced() {
    let mut seen = formed(3, 3);
    hold_in_memory(&mut seen);
    assert_eq!(act(&seen), None);
    edit(&mut seen, 7);
    let Some(Act::LatchLeaving { leaving, .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(leaving.why, Departure::Requested);
}

/// A container that ends once starts again with the template that has served; a quorum may need it at once.
#[test]
fn a_member_that_restarts_by_chance_gets_no_untried_template() {
    let mut seen = edited(3);
    running(seen.members[2].pod.as_mut().unwrap(), false);
    crash(&mut seen, 2, 1);
    seen.answers.insert(named(2), Seen::unknown("refused"));
    seen.members[1].pod = None;
    assert_eq!(act(&seen), None);
    assert_eq!(waits(&seen), Some(Reason::Rolling));
}

/// restartCount never falls within a Pod.
#[test]
fn pods_that_restarted_long_ago_and_serve_wait_for_their_turn() {
    let mut seen = edited(2);
    for n in [0, 1] {
        let status = seen.members[n].pod.as_mut().unwrap().status.as_mut().unwrap();
        status.container_statuses.as_mut().unwrap().first_mut().unwrap().restart_count = 5;
    }
    assert_eq!(give(&mut seen), 1);
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })), "{:?}", act(&seen));
    // Beside a voter that is down.
    let mut seen = edited(3);
    let status = seen.members[1].pod.as_mut().unwrap().status.as_mut().unwrap();
    status.container_statuses.as_mut().unwrap().first_mut().unwrap().restart_count = 5;
    seen.members[2].pod = None;
    assert_eq!(give(&mut seen), 2, "the one that does not serve");
}

/// Such a member never starts, whatever the template is.
#[test]
fn a_member_without_its_claim_does_not_keep_the_turn() {
    let mut seen = edited(3);
    for n in [1, 2] {
        running(seen.members[n].pod.as_mut().unwrap(), false);
        crash(&mut seen, n, 2);
    }
    seen.members[1].claim = None;
    seen.etcd = Seen::unknown("timed out");
    assert_eq!(give(&mut seen), 2);
}

#[test]
fn a_stuck_template_holds_nothing_else_up() {
    let mut seen = edited(3);
    seen.cluster.spec.rollback = Some(Rollback::Manual);
    let n = give(&mut seen);
    restart(&mut seen, n, false);
    crash(&mut seen, n, 2);
    assert_eq!(waits(&seen), Some(Reason::RolloutStuck));
    // A person asks for another member in its place.
    seen.cluster.metadata.annotations = Some([(key::REPLACE.to_owned(), named(n))].into());
    assert!(matches!(act(&seen), Some(Act::LatchLeaving { .. })), "{:?}", act(&seen));
}

/// The failed template is known; a member that joins has the template of one that serves.
#[test]
fn a_new_member_gets_no_failed_template() {
    let mut seen = edited(3);
    let failed = template::fingerprint(&template::wanted(&seen.cluster));
    latches(&mut seen).failed_template =
        Some(holdfast_api::template::FailedTemplate { template: failed, ..Default::default() });
    seen.cluster.spec.replicas = 4;
    latches(&mut seen).pending_member = Some("a-next".to_owned());
    let Some(Act::CreateMember(new)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(new.spec.process, seen.members[1].object.spec.process);
}

/// etcd may run out of memory under load.
#[test]
fn a_template_is_proven_after_a_while() {
    let mut seen = edited(3);
    let n = give(&mut seen);
    restart(&mut seen, n, true);
    let ready = |seen: &mut Observed, seconds: i64| {
        let status = seen.members[n].pod.as_mut().unwrap().status.as_mut().unwrap();
        let at = Time(noon() - SignedDuration::from_secs(seconds));
        status.conditions.as_mut().unwrap().first_mut().unwrap().last_transition_time = Some(at);
    };
    ready(&mut seen, 19);
    let other = give(&mut seen.clone());
    assert_ne!(other, n, "the roll goes on");
    ready(&mut seen, 20);
    assert_eq!(give(&mut seen), n);
    assert_eq!(seen.members[n].object.spec.served, None);
}

#[test]
fn the_way_back_to_the_version_that_served_is_never_refused() {
    let mut seen = formed(1, 1);
    with_version(&mut seen, "3.6.8");
    seen.cluster.spec.version = "3.6.61".to_owned();
    give(&mut seen);
    restart(&mut seen, 0, false);
    crash(&mut seen, 0, 2);
    seen.etcd = Seen::unknown("timed out");
    assert_eq!(waits(&seen), Some(Reason::RolloutStuck));
    seen.cluster.spec.version = "3.6.8".to_owned();
    give(&mut seen);
    assert_eq!(seen.members[0].object.spec.process.version, "3.6.8");
}

/// A formed cluster of three whose spec asks for other resources, and whose first member has them in its spec.
fn resizing(note: Option<Resize>) -> (Observed, usize) {
    let mut seen = formed(3, 3);
    let requests = [("cpu".to_owned(), Quantity("300m".to_owned()))].into();
    seen.cluster.spec.resources = Some(ResourceRequirements { requests: Some(requests), ..Default::default() });
    let n = give(&mut seen);
    if let Some(note) = note {
        let template = seen.members[n].object.spec.template.clone().unwrap();
        let annotations = seen.members[n].pod.as_mut().unwrap().metadata.annotations.get_or_insert_default();
        annotations.insert(key::TEMPLATE.to_owned(), template);
        annotations.insert(key::RESIZE.to_owned(), note.as_str().to_owned());
    }
    (seen, n)
}

/// Kubelet's condition of the Pod.
fn kubelet(seen: &mut Observed, n: usize, kind: &str, reason: &str) {
    let status = seen.members[n].pod.as_mut().unwrap().status.as_mut().unwrap();
    status.conditions.get_or_insert_default().push(PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some("usage is larger".to_owned()),
        last_transition_time: Some(Time(earlier().0)),
        ..PodCondition::default()
    });
}

#[test]
fn changed_resources_reach_the_running_pod_in_steps() {
    let (seen, n) = resizing(None);
    assert!(matches!(act(&seen), Some(Act::BeginResize { pod, .. }) if pod == pod_target(&seen, n)));
    let (mut seen, n) = resizing(Some(Resize::Asked));
    let Some(Act::ResizePod { resources, .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(resources.requests.as_ref().unwrap()["cpu"].0, "300m");
    let annotations = |seen: &mut Observed| {
        seen.members[n]
            .pod
            .as_mut()
            .unwrap()
            .metadata
            .annotations
            .as_mut()
            .unwrap()
            .insert(key::RESIZE.to_owned(), Resize::Accepted.as_str().to_owned());
    };
    annotations(&mut seen);
    assert_eq!((act(&seen), waits(&seen)), (None, Some(Reason::Rolling)), "kubelet has not reported them");
    let reports = |seen: &mut Observed, resources: &ResourceRequirements| {
        let pod = seen.members[n].pod.as_mut().unwrap();
        pod.spec.as_mut().unwrap().containers[0].resources = Some(resources.clone());
        let status = pod.status.as_mut().unwrap();
        status.container_statuses.as_mut().unwrap()[0].resources = Some(resources.clone());
    };
    // A webhook put another request in the place of the asked one.
    let mut other = (*resources).clone();
    other.requests.as_mut().unwrap().insert("cpu".to_owned(), Quantity("50m".to_owned()));
    reports(&mut seen, &other);
    let Some(Act::EndResize { differs: Some(differs), .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(differs, "requests.cpu is 50m, and the spec has 300m");
    reports(&mut seen, &resources);
    assert!(matches!(act(&seen), Some(Act::EndResize { differs: None, .. })), "{:?}", act(&seen));
    kubelet(&mut seen, n, "PodResizePending", "Deferred");
    assert_eq!((act(&seen), waits(&seen)), (None, Some(Reason::Rolling)), "the node has no room");
}

#[test]
fn a_pod_that_cannot_be_resized_ends() {
    let ends = |seen: &Observed| matches!(act(seen), Some(Act::EvictPod { .. }));
    let (seen, _) = resizing(Some(Resize::Refused));
    assert!(ends(&seen), "{:?}", act(&seen));
    let (mut seen, n) = resizing(Some(Resize::Accepted));
    kubelet(&mut seen, n, "PodResizePending", "Infeasible");
    assert!(ends(&seen), "{:?}", act(&seen));
    // A Pod of an earlier Holdfast says nothing about the rest of its template.
    let (mut seen, n) = resizing(None);
    seen.members[n].pod.as_mut().unwrap().metadata.annotations.as_mut().unwrap().remove(key::PROCESS);
    assert!(ends(&seen), "{:?}", act(&seen));
    // Another option needs another process.
    let (mut seen, n) = resizing(None);
    edit(&mut seen, 7);
    assert_eq!(give(&mut seen), n);
    assert!(ends(&seen), "{:?}", act(&seen));
}

#[test]
fn resources_that_kubelet_cannot_apply_are_taken_back() {
    let (mut seen, n) = resizing(Some(Resize::Accepted));
    kubelet(&mut seen, n, "PodResizeInProgress", "Error");
    let Some(Act::Latch(latches)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(latches.failed_template.as_ref().map(|failed| failed.why.as_str()), Some("usage is larger"));
    seen.cluster.status.as_mut().unwrap().latches = *latches;
    let before = seen.members[n].object.spec.template.clone();
    assert_eq!(give(&mut seen), n);
    assert_ne!(seen.members[n].object.spec.template, before, "the earlier template");
    let Some(Act::BeginResize { template, .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(Some(template), seen.members[n].object.spec.template);
}

#[test]
fn a_member_in_memory_keeps_its_pod_when_its_resources_change() {
    let (mut seen, n) = resizing(None);
    hold_in_memory(&mut seen);
    assert!(matches!(act(&seen), Some(Act::BeginResize { .. })), "{:?}", act(&seen));
    let template = seen.members[n].object.spec.template.clone().unwrap();
    let annotations = seen.members[n].pod.as_mut().unwrap().metadata.annotations.as_mut().unwrap();
    annotations.insert(key::TEMPLATE.to_owned(), template);
    annotations.insert(key::RESIZE.to_owned(), Resize::Refused.as_str().to_owned());
    let Some(Act::LatchLeaving { leaving, .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(leaving.why, Departure::Requested, "its data would go with the Pod");
}

/// The condition of the earlier resources is about another template.
#[test]
fn corrected_resources_reach_a_pod_that_could_not_be_resized() {
    let (mut seen, n) = resizing(Some(Resize::Accepted));
    seen.cluster.spec.rollback = Some(Rollback::Manual);
    kubelet(&mut seen, n, "PodResizeInProgress", "Error");
    assert_eq!((act(&seen), waits(&seen)), (None, Some(Reason::RolloutStuck)));
    let requests = [("cpu".to_owned(), Quantity("200m".to_owned()))].into();
    seen.cluster.spec.resources = Some(ResourceRequirements { requests: Some(requests), ..Default::default() });
    assert_eq!(give(&mut seen), n);
    let Some(Act::BeginResize { template, .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    // kubelet has not looked at the corrected resources yet.
    let pod = seen.members[n].pod.as_mut().unwrap();
    pod.metadata.generation = Some(3);
    pod.status.as_mut().unwrap().conditions.as_mut().unwrap().last_mut().unwrap().observed_generation = Some(2);
    let annotations = pod.metadata.annotations.as_mut().unwrap();
    annotations.insert(key::TEMPLATE.to_owned(), template);
    annotations.insert(key::RESIZE.to_owned(), Resize::Accepted.as_str().to_owned());
    assert_eq!((act(&seen), waits(&seen)), (None, Some(Reason::Rolling)));
}

#[test]
fn a_member_in_memory_that_is_not_ready_for_a_moment_is_not_replaced() {
    let (mut seen, n) = resizing(None);
    hold_in_memory(&mut seen);
    running(seen.members[n].pod.as_mut().unwrap(), false);
    assert_eq!((act(&seen), waits(&seen)), (None, Some(Reason::Rolling)));
}
