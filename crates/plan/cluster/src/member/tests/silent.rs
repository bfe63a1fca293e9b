//! Pods on silent nodes, for every wait of a member's plan.

use super::*;

/// The Pod is being deleted since noon, on node `n7`.
fn ending(mut seen: Observed) -> Observed {
    let pod = seen.pod.as_mut().unwrap();
    pod.metadata.deletion_timestamp = Some(Time(noon()));
    pod.spec.as_mut().unwrap().node_name = Some("n7".to_owned());
    seen
}

fn deleted() -> Observed {
    let mut seen = serving();
    seen.member.metadata.deletion_timestamp = Some(earlier());
    seen.cluster = Seen::Known(None);
    seen
}

/// A user deleted the member's claim before the member joined.
fn unclaimed() -> Observed {
    let mut seen = unborn(None);
    seen.claim.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier());
    seen
}

/// Otherwise a deleted cluster on a dead node would stay `Deleting` for ever without a cause in its conditions.
#[test]
fn a_silent_node_is_told_of_every_pod_that_is_waited_for() {
    let cases =
        [(serving(), Reason::MemberRestarting), (deleted(), Reason::Deleting), (unclaimed(), Reason::WaitingForPod)];
    for (seen, reason) in cases {
        let mut seen = ending(seen);
        let plan = planned_at(&seen, noon() + SignedDuration::from_secs(29));
        assert_eq!(plan.waiting.map(|w| w.reason), Some(reason));
        assert_eq!((plan.act, plan.wake), (None, Wake::AfterMillis(1_000)), "{reason:?}");
        let late = noon() + SignedDuration::from_secs(30);
        let plan = planned_at(&seen, late);
        let waiting = plan.waiting.unwrap();
        assert_eq!((plan.act, waiting.reason), (None, Reason::NodeSilent), "{reason:?}");
        assert!(waiting.message.contains("kubectl taint nodes n7 "), "{}", waiting.message);
        seen.member.status = Some(plan.status.clone());
        let told = plan.status.conditions.iter().find(|c| c.type_ == "Degraded").unwrap();
        assert_eq!((told.status.as_str(), told.reason.as_str()), ("True", "NodeSilent"));
        let hours = planned_at(&seen, noon() + SignedDuration::from_hours(5));
        assert_eq!(hours.status, plan.status, "nothing changes, and nothing is written");
    }
}
