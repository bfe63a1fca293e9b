//! An object that removes its stored snapshot: the steps, the obstacles, and the bounded duration of each deletion.

use holdfast_api::ARTIFACT_FINALIZER;
use holdfast_api::backup_store::StoreRecord;
use holdfast_api::snapshot::{DeletionPolicy, Removal, Run};
use holdfast_contract::{RemovalReport, RemovedReport, Request, Stopped};

use super::*;

use crate::fixtures::change_request;
use crate::safety;
use crate::schedule::live_job;
use crate::snapshot::live_removal;
use holdfast_base::{Plan, Target};

const KEY: &str = "prod/a/cluster-/20261121T110000Z-snap-uid-11111111";

/// A complete snapshot with the policy and the finalizer, not deleted.
fn complete() -> Observed {
    let mut seen = fresh();
    let artifact = Artifact {
        uri: format!("file:///backup/{KEY}/snapshot.db.zst"),
        key: KEY.to_owned(),
        manifest_sha256: Some("ab".repeat(32)),
        ..Artifact::default()
    };
    seen.snapshot.status = Some(EtcdSnapshotStatus {
        phase: Phase::Complete,
        artifact: Some(artifact),
        completed_at: Some(ago(7200).0.to_string()),
        ..EtcdSnapshotStatus::default()
    });
    seen.snapshot.spec.deletion_policy = DeletionPolicy::Delete;
    seen.snapshot.metadata.resource_version = Some("7".to_owned());
    seen.snapshot.metadata.finalizers = Some(vec![ARTIFACT_FINALIZER.to_owned()]);
    seen
}

/// The same, deleted some seconds ago.
fn deleted(seconds: i64) -> Observed {
    let mut seen = complete();
    seen.snapshot.metadata.deletion_timestamp = Some(ago(seconds));
    seen.deletion = Some(Deletion { job: None, restores: vec![], searched: false, terminating: false });
    seen
}

/// Returns the plan after checks that the plan keeps the rules and is stable after its status is written.
fn lawful(seen: &Observed) -> Plan<EtcdSnapshotStatus> {
    let plan = planned(seen);
    safety::snapshot(seen, &plan, now()).unwrap();
    let mut again = seen.clone();
    again.snapshot.status = Some(plan.status.clone());
    assert_eq!(planned(&again).status, plan.status, "a written status is not written again");
    plan
}

/// The same, with its removal latched.
fn latched(mut seen: Observed) -> Observed {
    let plan = lawful(&seen);
    let Some(Act::LatchRemoval(removal)) = plan.act else { panic!("{plan:?}") };
    let status = EtcdSnapshotStatus { removal: Some(removal), ..plan.status };
    seen.snapshot.status = Some(status);
    seen
}

/// The same, with the Job that removes, and these Pods.
fn tried(seen: Observed, kind: &str, pods: Vec<Pod>) -> Observed {
    let mut seen = if seen.snapshot.status.as_ref().unwrap().removal.is_some() { seen } else { latched(seen) };
    let Some(Act::StartJob(mut job)) = lawful(&seen).act else { panic!("no Job is started") };
    job.metadata.creation_timestamp = Some(ago(30));
    job.status = (!kind.is_empty()).then(|| ended(kind, "", 1, 1));
    seen.deletion.as_mut().unwrap().job = Some(Inspection { number: 0, job: *job, pods });
    seen
}

fn said(report: RemovedReport) -> Vec<Pod> {
    let message = serde_json::to_string(&RemovalReport::Removed(report)).unwrap();
    vec![terminated("p-1", 0, "Completed", Some(message))]
}

fn refused(reason: &str) -> Vec<Pod> {
    let stopped = Stopped { reason: reason.to_owned(), message: format!("{KEY}: because of {reason}") };
    said(RemovedReport { refused: Some(stopped), ..RemovedReport::default() })
}

fn releases(plan: &Plan<EtcdSnapshotStatus>) -> bool {
    matches!(plan.act, Some(Act::ReleaseArtifact { .. }))
}

fn note(plan: &Plan<EtcdSnapshotStatus>) -> Option<(&str, bool)> {
    plan.notes.first().map(|note| (note.reason.as_str(), note.warning))
}

#[test]
fn the_finalizer_follows_the_policy() {
    let mut seen = complete();
    assert_eq!(lawful(&seen).act, None);
    seen.snapshot.metadata.finalizers = Some(vec!["other".to_owned()]);
    let target = Target::from(&seen.snapshot.metadata);
    assert_eq!(lawful(&seen).act, Some(Act::KeepArtifact { snapshot: target.clone() }));
    let mut begins = seen.clone();
    begins.snapshot.status = None;
    assert_eq!(lawful(&begins).act, Some(Act::KeepArtifact { snapshot: target }), "before its Job");
    seen.snapshot.spec.run = Some(Run::default());
    assert_eq!(lawful(&seen).act, None, "the retention of the schedule decides");
    for seconds in [None, Some(5)] {
        let mut kept = seconds.map_or_else(complete, deleted);
        kept.snapshot.spec.deletion_policy = DeletionPolicy::Retain;
        assert!(releases(&lawful(&kept)), "a person may think better of it");
    }
    let mut bare = deleted(5);
    bare.snapshot.metadata.finalizers = None;
    assert_eq!(lawful(&bare).act, None);
}

#[test]
fn the_removal_is_latched_then_started_then_over() {
    let seen = latched(deleted(5));
    let told = told(seen.snapshot.status.as_ref().unwrap());
    assert_eq!((told.0, told.1, told.2), (Phase::Complete, "False", "Removing"), "the phase is final");
    let Some(Act::StartJob(job)) = lawful(&seen).act else { panic!() };
    assert_eq!(job.metadata.name, seen.snapshot.status.as_ref().unwrap().removal.clone().map(|latch| latch.job));
    let until = format!("--not-after={}", now() + SignedDuration::from_mins(30));
    let sha256 = format!("--manifest-sha256={}", "ab".repeat(32));
    for arg in [&format!("--key={KEY}"), &sha256, "--owner-uid=snap-uid", &until, "--store=file:///backup"] {
        assert!(args(&job).contains(&arg.to_owned()), "{arg} is missing in {:?}", args(&job));
    }
    assert!(!args(&job).contains(&"--allow-last".to_owned()));
    // A new restore waits, with a view of the object or of the Job alone.
    let run = live_removal(&seen.snapshot, now()).unwrap();
    assert_eq!((run.lineage.as_str(), live_job(&job, now())), (KEY, Some(run.clone())));
    assert!(holdfast_base::removals::endangers(&run, &format!("backups/{KEY}/snapshot.db.zst")));
    assert!(!holdfast_base::removals::endangers(&run, &KEY.replace("11111111", "22222222")));
    assert_eq!(live_removal(&seen.snapshot, now() + SignedDuration::from_mins(41)), None);

    let runs = tried(seen, "", vec![running()]);
    let plan = lawful(&runs);
    assert_eq!((plan.act, plan.waiting.unwrap().reason), (None, Reason::Removing));
    let mut retained = runs.clone();
    retained.snapshot.spec.deletion_policy = DeletionPolicy::Retain;
    assert_eq!(lawful(&retained).act, None, "too late: half of it may be gone");
    let report = RemovedReport { bytes: 5, unknown_files: vec!["x/y".to_owned()], ..RemovedReport::default() };
    let plan = lawful(&tried(deleted(5), "Complete", said(report)));
    assert!(releases(&plan) && note(&plan) == Some(("SnapshotRemoved", false)), "{plan:?}");
    assert!(plan.notes[0].message.contains("x/y"), "{}", plan.notes[0].message);
}

/// Each obstacle lasts ten minutes; then the object goes, and the snapshot stays.
#[test]
fn what_stands_in_the_way_is_told_and_nothing_is_removed() {
    type Case = (&'static str, fn(&mut Observed));
    let cases: [Case; 5] = [
        ("spec.hold", |s| s.snapshot.spec.hold = true),
        ("restores this snapshot", |s| s.deletion.as_mut().unwrap().restores = vec![KEY.to_owned()]),
        ("looks for its latest", |s| s.deletion.as_mut().unwrap().searched = true),
        ("spec.destination", |s| s.snapshot.spec.template.destination = holdfast_api::store::Destination::default()),
        ("no store ID", |s| {
            let store_ref = Some(LocalRef { name: "vault".to_owned() });
            s.snapshot.spec.template.destination = holdfast_api::store::Destination { store_ref, ..Default::default() };
            let place = holdfast_api::store::Location::Pvc(holdfast_api::store::PvcLocation::default()).into();
            s.snapshot.status.as_mut().unwrap().store = Some(StoreRecord { place, ..StoreRecord::default() });
        }),
    ];
    for (words, change) in cases {
        for seconds in [5, 601] {
            let mut seen = deleted(seconds);
            change(&mut seen);
            // Without the earlier latch: a restore must not wait for this removal.
            seen.snapshot.status.as_mut().unwrap().removal =
                Some(Removal { job: "j".to_owned(), latched_at: ago(5).0.to_string() });
            let plan = lawful(&seen);
            if seconds == 5 {
                let (.., reason, message) = told(&plan.status);
                assert_eq!((plan.act.as_ref(), reason, plan.status.removal.as_ref()), (None, "RemovalRefused", None));
                assert!(message.contains(words) && message.contains("2026-11-21T12:09:55Z"), "{message}");
            } else {
                assert!(releases(&plan) && note(&plan) == Some(("SnapshotLeft", true)), "{words}");
                assert!(plan.notes[0].message.contains(words) && plan.notes[0].message.contains(KEY));
            }
        }
    }
    let mut old = deleted(5);
    old.snapshot.status.as_mut().unwrap().artifact.as_mut().unwrap().manifest_sha256 = None;
    assert_eq!(note(&lawful(&old)), Some(("SnapshotLeft", true)), "nothing can be waited for");
    let mut ends = deleted(5);
    ends.deletion.as_mut().unwrap().terminating = true;
    assert_eq!(note(&lawful(&ends)), Some(("SnapshotLeft", true)), "no Job can be made");
}

#[test]
fn what_the_agent_refuses_is_told_once_and_a_person_may_let_the_last_one_go() {
    for reason in ["Held", "Locked", "NotTheSnapshot", "LastProven"] {
        let seen = tried(deleted(5), "Complete", refused(reason));
        let plan = lawful(&seen);
        let words = if reason == "LastProven" { "holdfast.dev/remove-last=true" } else { "because of" };
        let (.., ready, message) = told(&plan.status);
        assert_eq!((plan.act.as_ref(), ready), (None, "RemovalRefused"), "{reason}");
        assert!(message.contains(words), "{message}");
        let mut late = seen.clone();
        late.snapshot.metadata.deletion_timestamp = Some(ago(601));
        assert_eq!(note(&lawful(&late)), Some(("SnapshotLeft", true)), "{reason}");
    }
    let mut seen = tried(deleted(5), "Complete", refused("LastProven"));
    seen.snapshot.metadata.annotations = Some([(key::REMOVE_LAST.to_owned(), "true".to_owned())].into());
    let first = seen.snapshot.status.as_ref().unwrap().removal.clone().unwrap();
    seen.snapshot.status.as_mut().unwrap().removal = Some(Removal { job: "the first".to_owned(), ..first });
    let mut again = latched(seen);
    again.deletion.as_mut().unwrap().job = None;
    let Some(Act::StartJob(job)) = lawful(&again).act else { panic!() };
    assert!(args(&job).contains(&"--allow-last".to_owned()));
    let again = tried(again, "Complete", refused("LastProven"));
    assert_eq!(lawful(&again).act, None, "that one was asked to");
}

#[test]
fn a_job_that_fails_is_tried_again_after_a_pause() {
    let failed = vec![failed("p-1", ExitClass::Transient, "the store is away")];
    let seen = tried(deleted(5), "Failed", failed);
    let plan = lawful(&seen);
    let (.., reason, message) = told(&plan.status);
    assert_eq!((plan.act.as_ref(), reason), (None, "RemovalRefused"));
    assert!(message.contains("the store is away"), "{message}");
    assert!(matches!(plan.wake, Wake::AfterMillis(14_000..=30_000)), "{:?}", plan.wake);
    let later = now() + SignedDuration::from_secs(60);
    let Some(Act::LatchRemoval(again)) = plan_at(&seen, later).act else { panic!() };
    assert_ne!(Some(again), seen.snapshot.status.as_ref().unwrap().removal);
    assert!(releases(&plan_at(&seen, now() + SignedDuration::from_mins(11))), "and not for ever");
    let mut silent_node = tried(deleted(60), "", vec![silent()]);
    assert_eq!(lawful(&silent_node).act, None);
    silent_node.snapshot.metadata.deletion_timestamp = Some(ago(2460));
    assert_eq!(lawful(&silent_node).act, None, "it may remove something yet");
    silent_node.snapshot.status.as_mut().unwrap().removal.as_mut().unwrap().latched_at = ago(2401).0.to_string();
    assert!(releases(&lawful(&silent_node)), "its node may never answer");
    // The operator renews a latch without a Job.
    let mut stale = latched(deleted(5));
    stale.snapshot.status.as_mut().unwrap().removal.as_mut().unwrap().latched_at = ago(301).0.to_string();
    stale.snapshot.status.as_mut().unwrap().removal.as_mut().unwrap().job = "old".to_owned();
    assert!(matches!(lawful(&stale).act, Some(Act::LatchRemoval(_))));
}

fn plan_at(seen: &Observed, now: jiff::Timestamp) -> Plan<EtcdSnapshotStatus> {
    let plan = crate::snapshot::plan(seen, now);
    safety::snapshot(seen, &plan, now).unwrap();
    plan
}

/// A save that runs during the deletion is followed by the removal; no save starts any more.
#[test]
fn a_save_that_runs_goes_on_and_none_is_begun() {
    let going = |mut seen: Observed, seconds: i64| {
        let Observed { snapshot, deletion, .. } = deleted(seconds);
        seen.snapshot.metadata = snapshot.metadata;
        seen.snapshot.spec.deletion_policy = DeletionPolicy::Delete;
        seen.deletion = deletion;
        seen
    };
    assert!(releases(&lawful(&going(fresh(), 5))), "nothing was begun");
    let mut blocked = going(fresh(), 5);
    blocked.cluster = None;
    assert!(releases(&lawful(&blocked)));
    let runs = going(written(with(vec![running()])), 601);
    let plan = lawful(&runs);
    assert_eq!((plan.act.clone(), plan.status.phase), (None, Phase::Running), "its Job has a deadline");
    let mut seen = Observed { pods: vec![saved()], ..runs };
    ends(&mut seen, "Complete", "", 1);
    assert_eq!((lawful(&seen).act, lawful(&seen).status.phase), (None, Phase::Complete));
    let mut fails = seen.clone();
    fails.snapshot.status.as_mut().unwrap().phase = Phase::Failed;
    assert!(releases(&lawful(&fails)));
    // The Job is gone, and the operator asks the store, for a limited time.
    let mut open = going(written(with(vec![running()])), 5);
    (open.job, open.pods) = (None, vec![]);
    open.snapshot.status.as_mut().unwrap().attempts = 1;
    assert!(matches!(lawful(&open).act, Some(Act::StartJob(_))), "it asks");
    open.snapshot.metadata.deletion_timestamp = Some(ago(601));
    assert_eq!(note(&lawful(&open)), Some(("SnapshotLeft", true)));
}

/// The safety check refuses plans that break a rule.
#[test]
fn the_rules_refuse_a_removal_that_is_not_wanted() {
    let ready = latched(deleted(5));
    let act = lawful(&ready).act.unwrap();
    let (Act::StartJob(job), latch) = (act, ready.snapshot.status.clone().unwrap().removal.unwrap()) else { panic!() };
    let broken = |seen: &Observed, act: Act| {
        let plan = Plan { act: Some(act), ..planned(seen) };
        safety::snapshot(seen, &plan, now()).err().map(|violation| violation.invariant)
    };
    let start = || Act::StartJob(job.clone());
    assert_eq!(broken(&ready, start()), None);
    type Change = fn(&mut Observed);
    let changes: [(&str, Change); 9] = [
        ("not deleted", |s| s.snapshot.metadata.deletion_timestamp = None),
        ("kept", |s| s.snapshot.spec.deletion_policy = DeletionPolicy::Retain),
        ("a record", |s| s.snapshot.spec.run = Some(Run::default())),
        ("held", |s| s.snapshot.spec.hold = true),
        ("restored", |s| s.deletion.as_mut().unwrap().restores = vec![KEY.to_owned()]),
        ("searched", |s| s.deletion.as_mut().unwrap().searched = true),
        ("not looked", |s| s.deletion = None),
        ("not latched", |s| s.snapshot.status.as_mut().unwrap().removal = None),
        ("another snapshot", |s| {
            s.snapshot.status.as_mut().unwrap().artifact.as_mut().unwrap().key = "prod/a/cluster-/other".to_owned();
        }),
    ];
    for (why, change) in changes {
        let mut seen = ready.clone();
        change(&mut seen);
        assert_eq!(broken(&seen, start()), Some("I25"), "{why}");
    }
    let mut last = job.clone();
    change_request(&mut last.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[0], |request| {
        if let Request::Remove(request) = request {
            request.allow_last = true;
        }
    });
    assert_eq!(broken(&ready, Act::StartJob(last)), Some("I25"));
    assert_eq!(broken(&ready, Act::LatchRemoval(latch)), Some("I25"), "twice");
    assert_eq!(broken(&complete(), Act::LatchRemoval(Removal::default())), Some("I25"));
    let snapshot = Target::from(&ready.snapshot.metadata);
    assert_eq!(broken(&ready, Act::ReleaseArtifact { snapshot: snapshot.clone() }), Some("I25"), "not gone yet");
    let stranger = Target { uid: "another".to_owned(), ..snapshot };
    assert_eq!(broken(&ready, Act::ReleaseArtifact { snapshot: stranger.clone() }), Some("I12"));
    assert_eq!(broken(&complete(), Act::KeepArtifact { snapshot: stranger }), Some("I12"));
    let mut saving = fresh();
    let save = started(&saving);
    saving.snapshot.metadata.deletion_timestamp = Some(ago(5));
    assert_eq!(broken(&saving, Act::StartJob(Box::new(save))), Some("I18"));
}
