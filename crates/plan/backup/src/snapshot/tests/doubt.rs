//! The save has failed, and only the store knows whether the snapshot exists.

use super::*;
use holdfast_base::job_state;

/// A Job that gave up after these Pods, with this count of failed Pods.
fn gave_up(pods: Vec<Pod>, counted: i32) -> Observed {
    let mut seen = with(pods);
    ends(&mut seen, "Failed", "BackoffLimitExceeded", 60);
    seen.job.as_mut().unwrap().status.as_mut().unwrap().failed = Some(counted);
    seen
}

/// A store that is as silent for the asking Pod as for the saving Pod.
fn silence() -> Vec<Pod> {
    vec![failed("p-ask", ExitClass::Transient, "the store said 503")]
}

/// After a network failure, a deadline or a crash the last request may or may not have been carried out.
#[test]
fn a_failure_that_leaves_it_open_has_the_store_asked() {
    let deadline = gave_up;
    let sure = failed("p-1", ExitClass::Denied, "no");
    let open = [
        deadline(vec![failed("p-1", ExitClass::Transient, "503")], 1),
        deadline(vec![failed("p-1", ExitClass::Deadline, "late")], 1),
        deadline(vec![terminated("p-1", 137, "OOMKilled", None)], 1),
        deadline(vec![terminated("p-1", 101, "Error", None)], 1),
        deadline(vec![running()], 1),
        deadline(vec![sure.clone()], 2),
        deadline(vec![], 1),
        // No count shows whether the Job never had a Pod, or had a drained Pod.
        deadline(vec![], 0),
    ];
    for seen in open {
        assert_eq!(told(&planned(&seen).status).2, "AskingStore");
        assert_eq!(planned(&asked(seen.clone(), vec![saved()])).status.phase, Phase::Complete);
        let status = planned(&asked(long_over(seen.clone()), nothing())).status;
        assert_eq!(status.phase, Phase::Failed);
        let error = status.error.unwrap();
        assert!(!error.message.contains("no folder"), "how saving failed says more");

        let plan = planned(&asked(seen, silence()));
        let (phase, ready, reason, message) = told(&plan.status);
        assert_eq!((phase, ready), (Phase::Running, "Unknown"));
        let row = job_state::recorded(&error.class, error.origin.as_deref());
        assert_eq!(reason, job_state::reason_of(row).as_str());
        assert!(message.starts_with(&error.message) && message.ends_with("the store said 503"), "{message}");
        assert!(!message.contains("report is gone"), "{message}");
        assert_eq!((plan.notes[0].reason.as_str(), plan.notes[0].message.as_str()), (reason, message));
        assert_eq!((plan.act, plan.status.error.as_ref()), (None, Some(&error)), "it is known, and not the end yet");
    }
    for pods in [vec![sure.clone()], vec![sure, waiting("ImagePullBackOff", None)]] {
        assert_eq!(planned(&deadline(pods, 1)).status.phase, Phase::Failed);
    }
}

/// The Job counts no Pod that a drain ended, and Kubernetes soon removes that Pod with its report. The report of the replacing
/// Pod is only about the replacing Pod.
#[test]
fn a_pod_that_may_have_taken_anothers_place_does_not_speak_for_it() {
    for class in [ExitClass::Denied, ExitClass::Config, ExitClass::Full, ExitClass::Corrupt] {
        // Seconds from the creation of the Job to the creation of the Pod.
        for (after, first) in [(0, true), (9, true), (10, false), (40, false)] {
            let mut last = failed("p-2", class, "as the second said");
            last.metadata.creation_timestamp = Some(ago(60 - after));
            let mut seen = gave_up(vec![last], 1);
            assert_eq!(planned(&seen).status.phase == Phase::Failed, first, "{class:?}, {after} s");
            if !first {
                assert_eq!(planned(&asked(seen.clone(), vec![saved()])).status.phase, Phase::Complete);
                let status = planned(&asked(long_over(seen.clone()), nothing())).status;
                let error = Failure {
                    class: class.as_str().to_owned(),
                    origin: None,
                    message: "as the second said".to_owned(),
                };
                assert_eq!((status.phase, status.error), (Phase::Failed, Some(error)));
            }
            // A Pod that never ran, and still exists, is no evidence about a Pod between the two.
            seen.pods.insert(0, pod("p-0", "Failed", ContainerState::default()));
            assert_eq!(planned(&seen).status.phase == Phase::Failed, first, "{class:?}, {after} s, beside another");
        }
    }
    // If no Pod followed a drained Pod before the Job's deadline, only a Pod that never ran is left.
    let seen = gave_up(vec![pod("p-0", "Failed", ContainerState::default())], 0);
    assert_eq!(told(&planned(&seen).status).2, "AskingStore");
    // The creation time is unknown.
    let mut seen = gave_up(vec![failed("p-1", ExitClass::Denied, "no")], 1);
    seen.pods[0].metadata.creation_timestamp = None;
    assert_eq!(told(&planned(&seen).status).2, "AskingStore");
}

/// A missing bucket, another store under the same name, or wrong credentials: no such answer is about the saved snapshot, so
/// none is final (I18).
#[test]
fn nothing_but_not_found_is_an_answer() {
    let failing = long_over(gave_up(vec![failed("p-1", ExitClass::Transient, "the store said 502")], 1));
    let gone = Observed { job: None, pods: vec![], ..written(failing.clone()) };
    for class in ExitClass::ALL {
        for seen in [failing.clone(), gone.clone()] {
            let status = planned(&asked(seen, vec![failed("p-ask", class, "as the asker said")])).status;
            let (phase, ready, _, message) = told(&status);
            if class == ExitClass::NotFound {
                assert_eq!(phase, Phase::Failed);
            } else {
                assert_eq!((phase, ready), (Phase::Running, "Unknown"), "{class:?}");
                assert!(message.ends_with("as the asker said"), "{class:?}: {message}");
            }
        }
    }
}

/// Otherwise the message would change with each asking Job that gives up, and would rarely name the image.
#[test]
fn what_holds_up_the_pods_that_ask_is_told_until_one_runs() {
    let saves = [gave_up(vec![failed("p-1", ExitClass::Transient, "the store said 502")], 1), lost()];
    for saved in saves {
        let stuck = |name: &str, why: &str| {
            let mut pod = waiting("ErrImagePull", Some(why));
            pod.metadata.name = Some(name.to_owned());
            pod
        };
        let mut seen = asked(written(saved), vec![stuck("ask-0", "no such image")]);
        let first = planned(&seen).status;
        let message = told(&first).3;
        assert!(message.contains("Pod ask-0 does not run: ErrImagePull: no such image (attempt 1 of "), "{message}");
        seen.snapshot.status = Some(first.clone());
        for round in 1..4 {
            let last = seen.inspections.last_mut().unwrap();
            last.pods.clear();
            for seconds in [2, 12] {
                let last = seen.inspections.last_mut().unwrap();
                last.job.status = Some(world::ended("Failed", "DeadlineExceeded", seconds, 1));
                let plan = planned(&seen);
                assert_eq!((plan.act, plan.status), (None, first.clone()), "round {round}, {seconds} s");
            }
            seen = aged(seen, 130);
            assert_eq!(planned(&seen).status, first, "while the next Job is made, {round}");
            seen = asked(seen, vec![]);
            assert_eq!(planned(&seen).status, first, "before it has a Pod, {round}");
            seen.inspections.last_mut().unwrap().pods = vec![stuck(&format!("ask-{round}"), "no such image")];
            assert_eq!(planned(&seen).status, first, "a Pod of another name, {round}");
        }
        seen.inspections.last_mut().unwrap().pods = vec![stuck("ask-9", "no such registry")];
        assert!(told(&planned(&seen).status).3.contains("Pod ask-9 does not run: ErrImagePull: no such registry"));
        seen.inspections.last_mut().unwrap().pods = vec![running()];
        assert!(!told(&planned(&seen).status).3.contains("does not run"));
    }
}

/// A succeeded Job whose report is gone.
fn lost() -> Observed {
    let mut seen = with(vec![]);
    ends(&mut seen, "Complete", "", 60);
    seen
}

/// The store is down for a night. The save failed for that reason, and so does the question to the store: the operator repeats
/// the question until the store answers, and the answer is final.
#[test]
fn a_store_that_is_down_is_asked_until_it_answers() {
    let down = written(long_over(gave_up(vec![failed("p-1", ExitClass::Transient, "the store said 502")], 1)));
    assert!(told(down.snapshot.status.as_ref().unwrap()).3.starts_with("the store said 502. Holdfast asks the store"));
    let mut seen = written(asked(down, silence()));
    let first = seen.snapshot.status.clone().unwrap();
    assert_eq!(told(&first).2, "StoreUnavailable");
    let error = Failure { class: "Transient".to_owned(), origin: None, message: "the store said 502".to_owned() };
    assert_eq!(first.error, Some(error.clone()));
    // With growing pauses, but at least every two minutes.
    for wait in [28, 58, 118, 119, 119] {
        let early = planned(&aged(seen.clone(), wait - 1));
        assert!(matches!((early.act, early.wake), (None, Wake::AfterMillis(1..=2_000))), "{wait} {:?}", early.wake);
        seen = asked(aged(seen, wait + 2), vec![running()]);
        let asking = planned(&seen);
        assert_eq!((asking.act, asking.notes), (None, vec![]), "told once");
        assert_eq!(asking.status, first, "and in the same words while it is asked");
        let last = seen.inspections.last_mut().unwrap();
        last.pods = silence();
        last.job.status = Some(world::ended("Failed", "", 1, 1));
        assert_eq!(planned(&seen).status, first);
    }
    let due = aged(seen.clone(), 200);
    assert_eq!(planned(&asked(due.clone(), vec![saved()])).status.phase, Phase::Complete);
    let status = planned(&asked(due, nothing())).status;
    assert_eq!((status.phase, status.error, status.attempts), (Phase::Failed, Some(error.clone()), 1));

    // Kubernetes removed the Job, the asking Jobs and their Pods before the store is back.
    let gone = Observed { job: None, pods: vec![], inspections: vec![], ..seen };
    assert_eq!(planned(&asked(gone.clone(), vec![saved()])).status.phase, Phase::Complete);
    assert_eq!(planned(&asked(gone.clone(), silence())).status.error, Some(error.clone()));
    let plan = planned(&asked(gone, nothing()));
    assert_eq!((plan.status.phase, plan.status.error, plan.act), (Phase::Failed, Some(error), None));
}

/// A store that shows nothing, asked by a Job created `seconds` after the last end, which was `last_end` seconds ago.
fn nothing_after(saving: &Observed, last_end: i64, seconds: i64) -> Observed {
    // The asking Job was created 30 s ago.
    asked(saved_earlier(saving.clone(), seconds + 30 - last_end), nothing())
}

/// The store may carry out the last Pod's upload after the Pod is gone, and list the manifest later still.
#[test]
fn a_store_that_shows_nothing_is_believed_only_long_after_the_end() {
    let failing = gave_up(vec![failed("p-1", ExitClass::Transient, "the store said 502")], 1);
    // The Job ended 60 s ago. A Pod reports its end 5 s ago: its node's clock is ahead.
    for (saving, last_end) in [(failing, 60), (lost(), 60)] {
        for (seconds, counts) in [(0, false), (2, false), (89, false), (90, true), (3600, true)] {
            let plan = planned(&nothing_after(&saving, last_end, seconds));
            assert_eq!(plan.status.phase == Phase::Failed, counts, "{seconds} s after the end");
            if !counts {
                let (phase, ready, reason, message) = told(&plan.status);
                assert_eq!((phase, ready, reason), (Phase::Running, "False", "AskingStore"));
                assert!(
                    message.contains("the store shows no such snapshot so far. Holdfast asks again at 20"),
                    "{message}"
                );
                assert_eq!((plan.act.as_ref(), plan.notes.len()), (None, 0), "{seconds} s after the end");
            }
        }
    }
    // The time of the end is unknown.
    let mut seen = gave_up(vec![], 1);
    let job = seen.job.as_mut().unwrap();
    job.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_transition_time = None;
    assert_eq!(planned(&asked(seen, nothing())).status.phase, Phase::Failed);
}

/// The operator asks again after that time; until the answer, no pass writes anything (I17).
#[test]
fn what_a_store_shows_too_soon_is_told_once_and_asked_again() {
    let failing = gave_up(vec![failed("p-1", ExitClass::Transient, "the store said 502")], 1);
    let seen = written(nothing_after(&failing, 60, 2));
    let first = seen.snapshot.status.clone().unwrap();
    let words = "the store said 502. Holdfast asks the store whether the snapshot exists: the store shows no such \
                 snapshot so far. Holdfast asks again at 2026-11-21T12:00:58Z, because the store may carry out or list \
                 earlier requests late";
    assert_eq!(told(&first).3, words);
    let later = |seen: &Observed, seconds: i64| plan(seen, ago(-seconds).0);
    for (seconds, left) in [(0, 58_000), (20, 38_000), (57, 1_000)] {
        let plan = later(&seen, seconds);
        assert_eq!((plan.act, plan.notes, plan.wake), (None, vec![], Wake::AfterMillis(left)), "{seconds} s");
        assert_eq!(plan.status, first, "{seconds} s");
    }
    let due = later(&seen, 58);
    assert_eq!(due.status, first, "in the same words while it is asked");
    let Some(Act::StartJob(job)) = due.act else { panic!("it is not asked again") };
    let mut job = *job;
    assert_eq!(job.metadata.name, Some(inspection(&seen.snapshot, seen.job.as_ref(), 1)));
    job.metadata.uid = Some("asks-again".to_owned());
    job.metadata.creation_timestamp = Some(ago(-58));
    let again = |pods: Vec<Pod>, end: Option<&str>| {
        let (mut seen, mut job) = (seen.clone(), job.clone());
        job.status = end.map(|kind| world::ended(kind, "", -60, 1));
        seen.inspections.push(Inspection { number: 1, job, pods });
        later(&seen, 61).status
    };
    assert_eq!(again(vec![], None), first, "before it has a Pod");
    assert_eq!(again(vec![running()], None), first, "while that looks");
    assert_eq!(again(vec![saved()], Some("Complete")).phase, Phase::Complete, "it was there all the time");
    let status = again(nothing(), Some("Failed"));
    let error = Failure { class: "Transient".to_owned(), origin: None, message: "the store said 502".to_owned() };
    assert_eq!((status.phase, status.error), (Phase::Failed, Some(error)));
    let status = again(silence(), Some("Failed"));
    let (phase, ready, reason, message) = told(&status);
    assert_eq!((phase, ready, reason), (Phase::Running, "Unknown", "StoreUnavailable"));
    assert!(message.ends_with("the store said 503"), "{message}");
    // By the API server's clock the second question was too soon, too: the operator asks a third time, after a pause.
    job.metadata.creation_timestamp = Some(ago(-57));
    job.status = Some(world::ended("Failed", "", -60, 1));
    let mut behind = seen;
    behind.inspections.push(Inspection { number: 1, job, pods: nothing() });
    let plan = later(&behind, 61);
    assert_eq!((plan.act, plan.wake), (None, Wake::AfterMillis(89_000)));
}
