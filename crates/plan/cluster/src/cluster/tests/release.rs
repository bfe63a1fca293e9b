//! The entry for a member that runs and gives no answer.

use jiff::Timestamp;

use super::*;

/// Returns a cluster with a silent third member that has run for `runs` seconds, and an entry committed `last` seconds ago.
fn silent(runs: i64, last: Option<i64>) -> Observed {
    let mut seen = formed(3, 3);
    seen.answers.insert(named(2), Seen::unknown("connection refused"));
    let pod = seen.members[2].pod.as_mut().unwrap();
    running(pod, false);
    let state = pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].state.as_mut().unwrap();
    state.running.as_mut().unwrap().started_at = Some(Time(ago(runs)));
    seen.cluster.status.as_mut().unwrap().last_empty_entry = last.map(|seconds| ago(seconds).to_string());
    seen
}

fn ago(seconds: i64) -> Timestamp {
    noon() - SignedDuration::from_secs(seconds)
}

#[test]
fn the_longer_a_member_is_silent_the_rarer_are_the_entries() {
    for (runs, last, due) in [
        (1, None, false),
        (2, None, true),
        (3, Some(1), false),
        (4, Some(2), true),
        // A quarter of the silence.
        (100, Some(19), false),
        (100, Some(20), true),
        // The container started again after the entry.
        (1, Some(60), false),
        (2, Some(60), true),
    ] {
        let seen = silent(runs, last);
        let plan = planned(&seen);
        assert_eq!(plan.act.is_some(), due, "{runs} {last:?}: {:?}", plan.act);
        let before = seen.cluster.status.as_ref().unwrap().last_empty_entry.clone();
        let told = if due { Some(noon().to_string()) } else { before };
        assert_eq!(plan.status.last_empty_entry, told);
        assert_eq!(plan.waiting.map(|w| w.reason), Some(Reason::MemberRestarting), "what is waited for is told");
    }
}

/// Otherwise each start would reset the interval.
#[test]
fn a_container_that_ends_again_and_again_gets_few_entries() {
    for (restarts, runs, due) in [(2, 2, true), (3, 2, false), (3, 59, false), (3, 60, true)] {
        let mut seen = silent(runs, Some(90));
        let pod = seen.members[2].pod.as_mut().unwrap();
        pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].restart_count = restarts;
        assert_eq!(planned(&seen).act.is_some(), due, "{restarts} {runs}");
    }
    // Another silent member does not wait for that interval.
    let mut two = silent(2, Some(90));
    let pod = two.members[2].pod.as_mut().unwrap();
    pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].restart_count = 3;
    let long = silent(100, None).members[2].pod.clone().unwrap().status;
    two.members[1].pod.as_mut().unwrap().status = long;
    two.answers.insert(named(1), Seen::unknown("connection refused"));
    assert!(matches!(planned(&two).act, Some(Act::CommitEntry { .. })));
}

#[test]
fn an_entry_is_committed_only_where_it_can_help() {
    let good = silent(60, None);
    assert_eq!(planned(&good).act, Some(Act::CommitEntry { cluster_id: etcd(&mut good.clone()).cluster_id }));
    type Change = fn(&mut Observed);
    let changes: [(&str, Change); 6] = [
        ("it answers", |s| *s = formed(3, 3)),
        ("its etcd does not run", |s| s.members[2].pod.as_mut().unwrap().status = None),
        ("its Pod goes", |s| s.members[2].pod.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier())),
        ("the leader does not answer", |s| drop(s.answers.remove(&named(0)))),
        ("there is no quorum", |s| s.etcd = Seen::unknown("timed out")),
        ("paused", |s| s.cluster.spec.paused = true),
    ];
    for (why, change) in changes {
        let mut seen = good.clone();
        change(&mut seen);
        let committed = planned(&seen).act.is_some_and(|act| matches!(act, Act::CommitEntry { .. }));
        assert!(!committed, "{why}");
    }
    // Every other act comes first.
    let mut fewer = good;
    fewer.cluster.spec.replicas = 2;
    assert!(matches!(act(&fewer), Some(Act::LatchLeaving { .. })));
}
