//! The save after a return in place.

use holdfast_api::snapshot::Source;
use holdfast_api::timeline::{PhaseStart, ReturnPhase, Returning};

use super::*;

/// A schedule whose cluster has gone back, with the `CronJob` that names the present etcd.
fn returned() -> Observed {
    let mut seen = with_runs(&[(90, Phase::Complete)]);
    let latches = &mut seen.cluster.as_mut().unwrap().status.as_mut().unwrap().latches;
    latches.timeline = Some(2);
    latches.formed.as_mut().unwrap().cluster_id = "c2".to_owned();
    assert!(!matches!(planned(&seen).act, Some(Act::StartRun(_))), "the CronJob names the earlier etcd");
    let mut cron = applied(&planned(&seen)).unwrap();
    stored(&mut cron.metadata, "u-cron");
    seen.cron_job = Some(cron);
    seen
}

#[test]
fn a_return_is_followed_by_one_save() {
    let seen = returned();
    let Some(Act::StartRun(job)) = planned(&seen).act else { panic!("{:?}", planned(&seen).act) };
    let mut made = *job;
    stored(&mut made.metadata, "u-made");
    made.metadata.creation_timestamp = Some(Time(noon()));
    for phase in [Phase::Running, Phase::Failed, Phase::Complete] {
        let mut saved = seen.clone();
        saved.snapshots.push(record(&seen, &made, phase));
        assert!(!matches!(planned(&saved).act, Some(Act::StartRun(_))), "once, {phase:?}");
    }
    // A due time came first.
    let mut due = seen.clone();
    let other = self::job(&seen, "other", 1, Some(true));
    let mut record = record(&seen, &other, Phase::Complete);
    record.status.as_mut().unwrap().source = Some(Source { cluster_id: "c2".to_owned(), ..Source::default() });
    due.snapshots.push(record);
    assert!(!matches!(planned(&due).act, Some(Act::StartRun(_))));
}

#[test]
fn nothing_is_saved_out_of_turn_while_a_return_is_under_way_or_in_the_first_timeline() {
    let mut seen = returned();
    let phases = vec![PhaseStart { phase: ReturnPhase::Starting, at: noon().to_string() }];
    let mut under_way = seen.clone();
    let returning = Some(Returning { phases, ..Returning::default() });
    under_way.cluster.as_mut().unwrap().status.as_mut().unwrap().latches.returning = returning;
    assert!(!matches!(planned(&under_way).act, Some(Act::StartRun(_))));
    seen.cluster.as_mut().unwrap().status.as_mut().unwrap().latches.timeline = None;
    assert!(!matches!(planned(&seen).act, Some(Act::StartRun(_))));
}
