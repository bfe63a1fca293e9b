//! A template whose failure may pass: the member gets its earlier template back, and tries the failed one again.

use k8s_openapi::api::core::v1::ContainerStateWaiting;

use super::*;
use holdfast_base::template;

const AWAY: &str = "failed to resolve reference: dial tcp 10.0.0.1:5000: connect: connection refused";

/// Three voters; kubelet has not pulled the image of the last one's changed template for a minute, for this reason.
fn unpulled(message: &str) -> Observed {
    let mut seen = formed(3, 3);
    seen.cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
    give(&mut seen, message);
    seen
}

/// Gives the last member the template of the spec, with a Pod whose image kubelet does not pull.
fn give(seen: &mut Observed, message: &str) {
    let wanted = template::wanted(&seen.cluster);
    let member = &mut seen.members[2];
    member.object.spec.served = Some(member.object.spec.process.clone());
    template::put(&mut member.object, &wanted);
    let mut pod = pod_of(&member.object);
    running(&mut pod, false);
    let etcd = &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
    let waiting = ContainerStateWaiting { reason: Some("ErrImagePull".to_owned()), message: Some(message.to_owned()) };
    (etcd.state.as_mut().unwrap().running, etcd.state.as_mut().unwrap().waiting) = (None, Some(waiting));
    member.pod = Some(pod);
    seen.answers.insert(named(2), Seen::unknown("refused"));
}

/// Carries out the latch of the plan, and returns its attempts and whether a member tries again.
fn latch(seen: &mut Observed) -> Option<(Option<u32>, bool)> {
    let Some(Act::Latch(new)) = act(seen) else { panic!("{:?}", act(seen)) };
    *latches(seen) = *new;
    latches(seen).failed_template.as_ref().map(|failed| (failed.attempts, failed.retrying))
}

/// Gives the last member its earlier template back, with which it serves.
fn restored(seen: &mut Observed) {
    let Some(Act::SetTemplate { template, .. }) = act(seen) else { panic!("{:?}", act(seen)) };
    let member = &mut seen.members[2];
    template::put(&mut member.object, &template);
    member.object.spec.served = None;
    member.pod = Some(pod_of(&member.object));
    seen.answers.insert(named(2), Seen::Known(answer(2)));
}

/// Sets the time of the failure back.
fn ago(seen: &mut Observed, seconds: i64) {
    latches(seen).failed_template.as_mut().unwrap().at = (noon() - SignedDuration::from_secs(seconds)).to_string();
}

#[test]
fn a_cause_that_passes_is_tried_again_ever_more_rarely() {
    let mut seen = unpulled(AWAY);
    for (attempt, minutes) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10)] {
        assert_eq!(latch(&mut seen), Some((Some(attempt), false)));
        restored(&mut seen);
        ago(&mut seen, minutes * 60 - 1);
        assert_eq!(waits(&seen), Some(Reason::RolloutStuck), "attempt {attempt}");
        let message = planned(&seen).waiting.unwrap().message;
        assert!(
            message.contains("connection refused") && message.contains("tries the same spec again at"),
            "{message}"
        );
        ago(&mut seen, minutes * 60);
        assert_eq!(latch(&mut seen), Some((Some(attempt), true)));
        let Some(Act::SetTemplate { template, .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
        assert_eq!(*template, template::wanted(&seen.cluster));
        give(&mut seen, AWAY);
    }
    // kubelet pulls the image.
    let member = &mut seen.members[2];
    member.pod = Some(pod_of(&member.object));
    member.object.spec.served = None;
    seen.answers.insert(named(2), Seen::Known(answer(2)));
    assert_eq!(latch(&mut seen), None);
    assert!(matches!(act(&seen), Some(Act::SetTemplate { .. })), "the next member");
}

#[test]
fn members_that_have_the_change_already_end_no_retry() {
    let mut seen = unpulled(AWAY);
    let wanted = template::wanted(&seen.cluster);
    let updated = &mut seen.members[0];
    template::put(&mut updated.object, &wanted);
    updated.pod = Some(pod_of(&updated.object));
    for attempt in [1, 2] {
        assert_eq!(latch(&mut seen), Some((Some(attempt), false)));
        restored(&mut seen);
        ago(&mut seen, 600);
        assert_eq!(latch(&mut seen), Some((Some(attempt), true)));
        let Some(Act::SetTemplate { .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
        give(&mut seen, AWAY);
    }
}

#[test]
fn an_image_that_is_not_there_is_not_tried_again() {
    let mut seen = unpulled("manifest unknown");
    assert_eq!(latch(&mut seen), Some((None, false)));
    restored(&mut seen);
    ago(&mut seen, 86_400);
    assert_eq!(waits(&seen), Some(Reason::RolloutStuck));
    assert!(planned(&seen).waiting.unwrap().message.contains("Correct the spec"));
    // Another edit is another template.
    seen.cluster.spec.options = Some(Options { snapshot_count: Some(8), ..Options::default() });
    assert_eq!(latch(&mut seen), None);
}

#[test]
fn the_words_of_the_registry_stay_where_nothing_is_taken_back() {
    let mut seen = unpulled(AWAY);
    seen.cluster.spec.rollback = Some(holdfast_api::template::Rollback::Manual);
    let waiting = planned(&seen).waiting.unwrap();
    assert_eq!(waiting.reason, Reason::RolloutStuck);
    assert!(waiting.message.contains(AWAY) && waiting.message.contains("kubelet tries again"), "{}", waiting.message);
}
