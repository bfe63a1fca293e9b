//! The operator was away: what it had begun, and what it never came to.

use super::*;

/// What the Job is to do that is started.
fn verb(seen: &Observed) -> String {
    let pod = started(seen).spec.unwrap().template.spec.unwrap();
    pod.containers[0].command.clone().unwrap()[2].clone()
}

/// A snapshot whose Job was about to be made so many seconds ago, with the status that says so.
fn about_to_start(seconds: i64) -> Observed {
    told_ago(written(fresh()), seconds)
}

/// The same, with conditions of so many seconds ago.
fn told_ago(mut seen: Observed, seconds: i64) -> Observed {
    let status = seen.snapshot.status.as_mut().unwrap();
    status.conditions.iter_mut().for_each(|c| c.last_transition_time = ago(seconds));
    seen
}

/// A snapshot that was created an hour ago, and nobody has looked at since.
fn unseen() -> Observed {
    let mut seen = fresh();
    seen.snapshot.metadata.creation_timestamp = Some(ago(3600));
    seen
}

fn denied() -> Vec<Pod> {
    vec![failed("p-ask", ExitClass::Denied, "only Put is allowed")]
}

/// Its name is written, it is made, and the operator dies before it has looked again.
#[test]
fn a_job_that_may_have_come_and_gone_is_asked_for_before_another_is_made() {
    let named = about_to_start(0).snapshot.status.unwrap();
    assert_eq!((&named.job, named.started_at), (&started(&fresh()).metadata.name, None));
    for (seconds, does) in [(0, "save"), (30, "save"), (599, "save"), (600, "inspect"), (86_400, "inspect")] {
        let seen = about_to_start(seconds);
        assert_eq!(verb(&seen), does, "{seconds} s");
        if does == "save" {
            assert_eq!(started(&seen).metadata.name, named.job, "its Job is kept for longer: it was not made");
            assert_eq!(Some(planned(&seen).status), seen.snapshot.status, "a refusal is no reason to write again");
        }
    }
    // A Pod of it is still ending.
    let seen = Observed { strays: vec![running()], ..about_to_start(30) };
    assert_eq!((planned(&seen).act, told(&planned(&seen).status).2), (None, "AskingStore"));

    // The store has it; the cluster may be gone by now.
    let mut seen = about_to_start(7200);
    seen.cluster = None;
    assert_eq!(planned(&asked(seen.clone(), vec![saved()])).status.phase, Phase::Complete);
    // The store has nothing: it is saved, or what it needs is waited for; and then nobody asks again and again.
    assert_eq!(verb(&asked(about_to_start(7200), nothing())), "save");
    let waits = written(asked(written(seen), nothing()));
    assert_eq!(told(waits.snapshot.status.as_ref().unwrap()).2, "WaitingForReference");
    for seconds in [0, 7200] {
        let later = told_ago(Observed { inspections: vec![], ..waits.clone() }, seconds);
        let plan = planned(&later);
        assert_eq!((plan.act, Some(plan.status)), (None, later.snapshot.status), "{seconds} s");
    }
}

/// Credentials that may only write are enough for a backup, also for one that was asked for while nobody was there.
#[test]
fn a_store_that_tells_nothing_is_not_asked_for_ever_on_account_of_an_age() {
    for seen in [unseen(), about_to_start(7200)] {
        assert_eq!(verb(&seen), "inspect");
        let asking = planned(&seen);
        assert!(!told(&asking.status).3.contains("report is gone"), "no Job is known of: {:?}", told(&asking.status));
        let answered = asked(written(seen), denied());
        assert_eq!((verb(&answered), planned(&answered).status.phase), ("save".to_owned(), Phase::Pending));
        assert_eq!(started(&answered).metadata.name, started(&fresh()).metadata.name);
        assert!(!planned(&answered).notes[0].warning, "nothing is made again");
        let after = written(answered);
        assert_eq!((verb(&after), Some(planned(&after).status)), ("save".to_owned(), after.snapshot.status));
    }
    // Those that may tell yet are asked again, and people hear of it once.
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

/// Of what somebody has seen running, only an answer is the end.
#[test]
fn a_store_that_tells_nothing_is_asked_on_where_a_job_was_seen() {
    let mut begun = fresh();
    begun.snapshot.status = Some(planned(&with(vec![running()])).status);
    // A lost status, and a Pod that was seen to end without a Job.
    let ending = written(Observed { strays: vec![running()], ..unseen() });
    assert_eq!(ending.snapshot.status.as_ref().unwrap().attempts, 1);
    for seen in [begun, Observed { strays: vec![], ..ending }] {
        let plan = planned(&asked(seen.clone(), denied()));
        assert_eq!((plan.act, plan.status.phase), (None, Phase::Running));
        assert_eq!(plan.status.conditions.iter().find(|c| c.type_ == "Ready").unwrap().reason, "ReportLost");
        assert_eq!(verb(&asked(seen, nothing())), "save");
    }
}
