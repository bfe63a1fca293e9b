//! Pauses follow the API server's clock, for any clock of a node.

use super::*;

/// A probe whose Pod ended `seconds` ago by its node's clock; its Job was created 30 s ago by the API server's clock.
fn ended_by_its_node(class: Option<ExitClass>, seconds: i64) -> Observed {
    let mut pod = answered(&[], class);
    let container = &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
    container.state.as_mut().unwrap().terminated.as_mut().unwrap().finished_at = Some(Time(ago(seconds)));
    with(fresh(), vec![pod])
}

#[test]
fn a_node_whose_clock_is_behind_makes_no_probes_back_to_back() {
    for class in [
        Some(ExitClass::Transient),
        Some(ExitClass::Deadline),
        Some(ExitClass::Config),
        Some(ExitClass::Denied),
        Some(ExitClass::NotFound),
        None,
    ] {
        for (by_its_node, at) in [(5, 5), (29, 29), (31, 30), (90, 30), (400, 30), (100_000, 30)] {
            let seen = ended_by_its_node(class, by_its_node);
            let plan = planned(&seen);
            assert_eq!(probe(&plan).at, ago(at).to_string(), "{class:?}, {by_its_node} s");
            let after = planned(&written(seen, &plan));
            assert!(after.act.is_none(), "{class:?}, {by_its_node} s: it is due the moment it has ended");
            assert_eq!(after.status, plan.status, "and is told once");
        }
    }
}

#[test]
fn a_job_that_began_later_than_it_was_made_counts_from_then() {
    let mut seen = ended_by_its_node(Some(ExitClass::Transient), 3600);
    seen.job.as_mut().unwrap().status.as_mut().unwrap().start_time = Some(Time(ago(20)));
    assert_eq!(probe(&planned(&seen)).at, ago(20).to_string());
}

#[test]
fn a_node_whose_clock_is_ahead_puts_no_probe_off() {
    for class in [None, Some(ExitClass::Transient), Some(ExitClass::Denied)] {
        for by_its_node in [-1, -6 * 3600] {
            let plan = planned(&ended_by_its_node(class, by_its_node));
            assert_eq!(probe(&plan).at, ago(4).to_string(), "{class:?}: its Job was over by then");
        }
    }
}
