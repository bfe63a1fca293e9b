//! The operator was down: snapshots that it had started, and snapshots that it never saw.

use super::*;
use holdfast_base::objects::job::{Kind, pod_spec};

/// Kind of the Job that the plan starts.
fn kind(seen: &Observed) -> Option<Kind> {
    Kind::of_pod(pod_spec(&started(seen)).unwrap())
}

/// A snapshot with a status from `seconds` ago, shortly before the creation of its Job.
fn about_to_start(seconds: i64) -> Observed {
    told_ago(written(fresh()), seconds)
}

/// The same, with conditions from `seconds` ago.
fn told_ago(mut seen: Observed, seconds: i64) -> Observed {
    let status = seen.snapshot.status.as_mut().unwrap();
    status.conditions.iter_mut().for_each(|c| c.last_transition_time = ago(seconds));
    seen
}

/// A snapshot created an hour ago, without any pass since.
fn unseen() -> Observed {
    let mut seen = fresh();
    seen.snapshot.metadata.creation_timestamp = Some(ago(3600));
    seen
}

fn denied() -> Vec<Pod> {
    vec![failed("p-ask", ExitClass::Denied, "only Put is allowed")]
}

/// The operator writes the Job's name, creates the Job, and dies before the next pass.
#[test]
fn a_job_that_may_have_come_and_gone_is_asked_for_before_another_is_made() {
    let named = about_to_start(0).snapshot.status.unwrap();
    assert_eq!((&named.job, named.started_at), (&started(&fresh()).metadata.name, None));
    for (seconds, does) in
        [(0, Kind::Save), (30, Kind::Save), (599, Kind::Save), (600, Kind::Inspect), (86_400, Kind::Inspect)]
    {
        let seen = about_to_start(seconds);
        assert_eq!(kind(&seen), Some(does), "{seconds} s");
        if does == Kind::Save {
            assert_eq!(started(&seen).metadata.name, named.job, "its Job is kept for longer: it was not made");
            assert_eq!(Some(planned(&seen).status), seen.snapshot.status, "a refusal is no reason to write again");
        }
    }
    // A Pod of the Job is still ending.
    let seen = Observed { strays: vec![running()], ..about_to_start(30) };
    assert_eq!((planned(&seen).act, told(&planned(&seen).status).2), (None, "AskingStore"));

    // The store holds the snapshot; the cluster may be gone.
    let mut seen = about_to_start(7200);
    seen.cluster = None;
    assert_eq!(planned(&asked(seen.clone(), vec![saved()])).status.phase, Phase::Complete);
    // The store does not hold the snapshot: the operator saves, or waits for a reference, and does not ask again and again.
    assert_eq!(kind(&asked(about_to_start(7200), nothing())), Some(Kind::Save));
    let waits = written(asked(written(seen), nothing()));
    assert_eq!(told(waits.snapshot.status.as_ref().unwrap()).2, "WaitingForReference");
    for seconds in [0, 7200] {
        let later = told_ago(Observed { inspections: vec![], ..waits.clone() }, seconds);
        let plan = planned(&later);
        assert_eq!((plan.act, Some(plan.status)), (None, later.snapshot.status), "{seconds} s");
    }
}

/// Write-only credentials are enough for a backup, also for a snapshot requested while the operator was down.
#[test]
fn a_store_that_tells_nothing_is_not_asked_for_ever_on_account_of_an_age() {
    for seen in [unseen(), about_to_start(7200)] {
        assert_eq!(kind(&seen), Some(Kind::Inspect));
        let asking = planned(&seen);
        assert!(!told(&asking.status).3.contains("report is gone"), "no Job is known of: {:?}", told(&asking.status));
        let answered = asked(written(seen), denied());
        assert_eq!((kind(&answered), planned(&answered).status.phase), (Some(Kind::Save), Phase::Pending));
        assert_eq!(started(&answered).metadata.name, started(&fresh()).metadata.name);
        assert!(!planned(&answered).notes[0].warning, "nothing is made again");
        let after = written(answered);
        assert_eq!((kind(&after), Some(planned(&after).status)), (Some(Kind::Save), after.snapshot.status));
    }
    // The operator repeats a question that may still get an answer, with a single Event.
    for class in ExitClass::ALL.into_iter().filter(|class| !matches!(class, ExitClass::Denied | ExitClass::NotFound)) {
        let silent = asked(written(unseen()), vec![failed("p-ask", class, "as the asker said")]);
        let plan = planned(&silent);
        let (phase, ready, reason, message) = told(&plan.status);
        assert_eq!((phase, ready, reason), (Phase::Running, "Unknown", "AskingStore"), "{class:?}");
        assert!(message.ends_with("as the asker said") && !message.contains("report is gone"), "{message}");
        assert_eq!((plan.act.as_ref(), plan.notes[0].reason.as_str()), (None, "AskingStore"));
        assert_eq!(planned(&written(silent)).notes, vec![], "{class:?}");
    }
}

/// For a snapshot whose Job was seen, only an answer is final.
#[test]
fn a_store_that_tells_nothing_is_asked_on_where_a_job_was_seen() {
    let mut begun = fresh();
    begun.snapshot.status = Some(planned(&with(vec![running()])).status);
    // A lost status, and a Pod that was seen ending without a Job.
    let ending = written(Observed { strays: vec![running()], ..unseen() });
    assert_eq!(ending.snapshot.status.as_ref().unwrap().attempts, 1);
    for seen in [begun, Observed { strays: vec![], ..ending }] {
        let plan = planned(&asked(seen.clone(), denied()));
        assert_eq!((plan.act, plan.status.phase), (None, Phase::Running));
        assert_eq!(plan.status.conditions.iter().find(|c| c.type_ == "Ready").unwrap().reason, "ReportLost");
        assert_eq!(kind(&asked(seen, nothing())), Some(Kind::Save));
    }
}
