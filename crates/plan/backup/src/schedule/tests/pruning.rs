//! A schedule with a retention: one mutation at a time, and the acts that the rules refuse.

use holdfast_api::drill::{Drill, DrillStatus, PassedDrill};
use holdfast_api::log::Log;
use holdfast_api::schedule::{PruneRun, Retention};
use holdfast_api::snapshot::Source;
use holdfast_base::objects::job::{Kind, pod_spec};
use holdfast_contract::{Announced, ExitClass, FailedReport, PruneReport, PrunedLog, RemovalReport, Stopped};
use k8s_openapi::api::batch::v1::Job;

use super::*;
use crate::fixtures::flags_of_job;
use holdfast_base::Target;

const LINEAGE: &str = "ns/a/u-a";

fn key(ago: i64) -> String {
    let at = (noon() - minutes(ago)).strftime("%Y%m%dT%H%M%SZ");
    format!("{LINEAGE}/{at}-{ago:08}-0000beef")
}

/// Four backups, of which the policy keeps the newest two.
fn retained() -> Observed {
    let mut seen = with_runs(&[53, 113, 173, 233].map(|ago| (ago, Phase::Complete)));
    seen.schedule.spec.retention = Some(Retention { keep_last: Some(1), ..Retention::default() });
    seen.schedule.status.as_mut().unwrap().recalled_through = Some((noon() - minutes(53)).to_string());
    for (record, ago) in seen.snapshots.iter_mut().zip([53, 113, 173, 233]) {
        let status = record.status.as_mut().unwrap();
        status.cluster_uid = Some("u-a".to_owned());
        status.source = Some(Source { cluster_id: "c1".to_owned(), ..Source::default() });
        let artifact = status.artifact.as_mut().unwrap();
        (artifact.key, artifact.keys, artifact.stored_bytes) = (key(ago), Some(5000), 3);
    }
    seen
}

fn record_of(seen: &mut Observed, ago: i64) -> &mut EtcdSnapshot {
    let of = |s: &&mut EtcdSnapshot| s.status.as_ref().unwrap().artifact.as_ref().is_some_and(|a| a.key == key(ago));
    seen.snapshots.iter_mut().find(of).unwrap()
}

fn hold(seen: &mut Observed, ago: i64) {
    record_of(seen, ago).spec.hold = true;
    seen.held.push(key(ago));
}

/// The world after a plan: its status, with the latch that the act writes.
fn after(mut seen: Observed, plan: Plan<EtcdSnapshotScheduleStatus>) -> Observed {
    let mut status = plan.status;
    if let Some(Act::LatchPrune(run)) = plan.act {
        status.prune_run = Some(*run);
    }
    seen.schedule.status = Some(status);
    seen
}

/// The world with a latched run, and the latched snapshots of restores.
fn latched(seen: Observed) -> Observed {
    let plan = planned(&seen);
    assert!(matches!(&plan.act, Some(Act::LatchPrune(run)) if run.protects.is_none()), "{:?}", plan.act);
    let seen = after(seen, plan);
    let plan = planned(&seen);
    assert!(matches!(&plan.act, Some(Act::LatchPrune(run)) if run.protects.is_some()), "{:?}", plan.act);
    after(seen, plan)
}

fn started(seen: &Observed) -> Job {
    match planned(seen).act {
        Some(Act::StartJob(job)) => *job,
        other => panic!("{other:?}"),
    }
}

fn arguments(job: &Job) -> Vec<String> {
    flags_of_job(job)
}

/// A Job of the schedule that has ended with this report.
fn ended(mut job: Job, ago: i64, code: i32, words: String) -> Recall {
    stored(&mut job.metadata, &format!("u-{ago}"));
    job.metadata.creation_timestamp = Some(Time(noon() - minutes(ago)));
    let kind = if code == 0 { "Complete" } else { "Failed" };
    let over = JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(Time(noon() - minutes(ago))),
        ..JobCondition::default()
    };
    job.status = Some(JobStatus { conditions: Some(vec![over]), failed: Some(1), ..JobStatus::default() });
    let end = ContainerStateTerminated { exit_code: code, message: Some(words), ..ContainerStateTerminated::default() };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let agent = ContainerStatus { name: "agent".to_owned(), state, ..ContainerStatus::default() };
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let status =
        PodStatus { phase: Some(phase.to_owned()), container_statuses: Some(vec![agent]), ..PodStatus::default() };
    Recall { pods: vec![Pod { status: Some(status), ..Pod::default() }], job }
}

fn reported(seen: &Observed, report: PruneReport) -> Observed {
    let report = PruneReport { newest: Some(key(53)), ..report };
    let code = report.failed.as_ref().map_or(0, |failed| failed.failure().code.into());
    let words = serde_json::to_string(&RemovalReport::Pruned(Box::new(report))).unwrap();
    let mut seen = seen.clone();
    let job = started(&seen);
    seen.recalls.push(ended(job, 0, code, words));
    seen
}

#[test]
fn a_run_is_latched_before_restores_are_read_and_both_before_its_job() {
    let mut seen = retained();
    seen.restores = vec![key(173), "ns/b/u-b/20260101T000000Z-00000001-x".to_owned()];
    hold(&mut seen, 113);
    let plan = planned(&seen);
    // One snapshot is held and another is restored, so the newest two proven snapshots are the others.
    assert_eq!((plan.status.kept, plan.status.bytes), (Some(2), Some(6)));
    assert_eq!(told(&plan, Type::RetentionApplied), ("True", "AsDesired"));

    let mut seen = retained();
    let plan = planned(&seen);
    assert_eq!(plan.status.kept, Some(2));
    assert_eq!(told(&plan, Type::RetentionApplied), ("True", "RemovalAnnounced"));
    seen = after(seen, plan);
    seen.restores = vec![key(233)];
    hold(&mut seen, 53);
    // With any labels on the object, and only in this lineage.
    seen.held.extend(["ns/a/u-a/20250101T000000Z-00000001-x".to_owned(), "ns/b/u-b/1".to_owned()]);
    let Some(Act::LatchPrune(run)) = planned(&seen).act else { panic!() };
    assert_eq!((run.lineage.as_str(), run.protects.as_deref()), (LINEAGE, Some(&[key(233)][..])));
    let latched = after(seen.clone(), planned(&seen));
    seen = latched.clone();
    seen.restores = vec![key(173)];
    let args = arguments(&started(&seen));
    for arg in [
        "--cluster-uid=u-a".to_owned(),
        "--schedule-uid=u-s".to_owned(),
        "--keep-last=1".to_owned(),
        "--newest-after=2026-01-01T10:07:00Z".to_owned(),
        format!("--protect={}", key(233)),
        format!("--protect={}", key(53)),
        "--protect=ns/a/u-a/20250101T000000Z-00000001-x".to_owned(),
        format!("--announced-after={}", noon()),
        format!("--not-after={}", noon() + minutes(30)),
    ] {
        assert!(args.contains(&arg), "{arg} is missing in {args:?}");
    }
    let others = [key(173), "ns/b/u-b/1".to_owned()];
    assert!(others.iter().all(|key| !args.contains(&format!("--protect={key}"))), "a later restore waits: {args:?}");
}

#[test]
fn a_restore_knows_the_run_by_its_latch_or_its_job() {
    let seen = latched(retained());
    let job = started(&seen);
    let at = |later: i64| noon() + minutes(later);
    for (later, live) in [(-16, false), (0, true), (39, true), (40, false)] {
        assert_eq!(live_run(&seen.schedule, at(later)).is_some(), live, "{later}");
        assert_eq!(live_job(&job, at(later)), live_run(&seen.schedule, at(later)), "{later}");
    }
    let over = ended(job.clone(), 0, 0, String::new()).job;
    assert_eq!((live_job(&over, noon()), live_job(&Job::default(), noon())), (None, None));
    let mut garbled = seen.clone();
    garbled.schedule.status.as_mut().unwrap().prune_run.as_mut().unwrap().latched_at = "soon".to_owned();
    assert_eq!(live_run(&garbled.schedule, noon()), None, "nobody waits for ever");
    // The status keeps a run without a visible Job, because the Job may exist.
    let changes: [fn(&mut Observed); 2] =
        [|seen| seen.schedule.spec.suspend_pruning = true, |seen| seen.cluster = None];
    for change in changes {
        let mut seen = seen.clone();
        change(&mut seen);
        assert!(planned_at(&seen, at(39)).status.prune_run.is_some());
        assert!(planned_at(&seen, at(40)).status.prune_run.is_none());
    }
}

#[test]
fn every_count_of_the_policy_reaches_the_agent_under_its_name() {
    let mut seen = retained();
    seen.schedule.spec.retention = Some(Retention {
        log_within: Some("7d".to_owned()),
        keep_last: Some(1),
        keep_hourly: Some(2),
        keep_daily: Some(3),
        keep_weekly: Some(4),
        keep_monthly: Some(5),
        keep_yearly: Some(6),
        keep_within: Some("7m".to_owned()),
    });
    let policy = super::super::forecast::policy(seen.schedule.spec.retention.as_ref().unwrap()).unwrap();
    let counts = policy.counts().map(|(_, count)| count);
    assert_eq!((counts, policy.keep_within), ([1, 2, 3, 4, 5, 6], Some(minutes(7))));
    assert_eq!(policy.log_within, Some(minutes(7 * 24 * 60)));
}

#[test]
fn a_policy_that_was_set_back_announces_anew() {
    let seen = latched(retained());
    let since = |seen: &Observed| seen.schedule.status.as_ref().unwrap().policy.clone().unwrap().since;
    assert_eq!(since(&seen), noon().to_string());
    let later = after(seen.clone(), planned_at(&seen, noon() + minutes(3)));
    assert_eq!(since(&later), noon().to_string(), "it stands");
    let mut changed = seen.clone();
    changed.schedule.spec.suspend_pruning = true;
    changed = after(changed.clone(), planned_at(&changed, noon() + minutes(1)));
    changed.schedule.spec.suspend_pruning = false;
    changed = after(changed.clone(), planned_at(&changed, noon() + minutes(2)));
    assert_eq!(since(&changed), (noon() + minutes(2)).to_string());
}

/// A volume that is not mounted is no proof that all snapshots are gone.
#[test]
fn an_empty_store_leaves_the_records() {
    for newest in [None, Some(key(10_000))] {
        let seen = latched(retained());
        let report = PruneReport { newest, ..PruneReport::default() };
        let words = serde_json::to_string(&RemovalReport::Pruned(Box::new(report))).unwrap();
        let mut reported = seen.clone();
        reported.recalls.push(ended(started(&seen), 0, 0, words));
        let plan = planned(&reported);
        assert_eq!(plan.act, None, "the store is not even asked");
        assert_eq!(plan.status.last_prune.as_ref().unwrap().class.as_deref(), Some("ListingIncomplete"));
        assert_eq!(told(&plan, Type::RetentionApplied), ("False", "RetentionBlocked"));
    }
}

#[test]
fn a_schedule_that_is_suspended_blocks_nothing() {
    let mut seen = retained();
    seen.schedule.spec.suspend = true;
    let plan = planned_at(&seen, noon() + minutes(180));
    assert_eq!(told(&plan, Type::RetentionApplied), ("Unknown", "Suspended"));
}

/// A name, and a change to a schedule that is about to prune.
type Case = (&'static str, fn(&mut Observed));

#[test]
fn nothing_that_deletes_starts_while_it_must_not() {
    let begins = |seen: &Observed| planned(seen).act.is_some();
    assert!(begins(&retained()));
    let cases: [Case; 7] = [
        ("everything is kept", |seen| seen.schedule.spec.retention = None),
        ("suspended", |seen| seen.schedule.spec.suspend_pruning = true),
        ("the cluster is gone", |seen| seen.cluster = None),
        ("another cluster of the name", |seen| seen.cluster.as_mut().unwrap().metadata.uid = Some("u-b".to_owned())),
        ("being deleted", |seen| seen.schedule.metadata.deletion_timestamp = Some(Time(noon()))),
        ("few keys", |seen| {
            let newest = record_of(seen, 53).status.as_mut().unwrap();
            newest.artifact.as_mut().unwrap().keys = Some(100);
        }),
        ("the store is not there", |seen| {
            let vault = Some(LocalRef { name: "vault".to_owned() });
            seen.schedule.spec.snapshot_template.destination =
                holdfast_api::store::Destination { store_ref: vault, ..Default::default() };
        }),
    ];
    for (why, change) in cases {
        let mut seen = retained();
        change(&mut seen);
        let act = planned(&seen).act;
        assert!(!matches!(act, Some(Act::LatchPrune(_) | Act::StartJob(_))), "{why}: {act:?}");
        // Nor does an earlier latch start a Job.
        let mut seen = latched(retained());
        change(&mut seen);
        assert!(!matches!(planned(&seen).act, Some(Act::StartJob(_))), "{why}");
    }
    let stopped = planned_at(&retained(), noon() + minutes(180));
    assert_eq!(told(&stopped, Type::RetentionApplied), ("False", "RetentionBlocked"), "two due times without a backup");
    assert!(!matches!(stopped.act, Some(Act::LatchPrune(_))));
    // The protected snapshots are not latched yet: no Job can exist.
    let stale = after(retained(), planned(&retained()));
    let back = planned_at(&stale, noon() + minutes(11));
    assert_eq!((back.act.clone(), back.status.prune_run.clone()), (None, None), "a stale latch starts no Job");
    assert!(matches!(planned_at(&after(stale, back), noon() + minutes(11)).act, Some(Act::LatchPrune(_))));
    let mut few = retained();
    record_of(&mut few, 53).status.as_mut().unwrap().artifact.as_mut().unwrap().keys = Some(100);
    let plan = planned(&few);
    assert_eq!(told(&plan, Type::RetentionApplied), ("False", "SnapshotAnomaly"));
    let said = &plan.status.conditions.iter().find(|c| c.type_ == "RetentionApplied").unwrap().message;
    assert!(said.contains(&key(53)) && said.contains("accept-anomaly"), "{said}");
    few.schedule.metadata.annotations = Some([(key::ACCEPT_ANOMALY.to_owned(), key(53))].into());
    assert!(matches!(planned(&few).act, Some(Act::LatchPrune(_))));
}

#[test]
fn what_a_job_says_is_taken_over_once_and_the_next_one_waits() {
    let announced = Announced {
        count: 2,
        bytes: 6,
        oldest: noon() - minutes(233),
        newest: noon() - minutes(173),
        not_before: noon() + minutes(60),
    };
    let report = PruneReport {
        announced: Some(announced),
        earlier_lineages: vec!["ns/a/u-0".to_owned()],
        unknown_files: vec!["notes.txt".to_owned()],
        ..PruneReport::default()
    };
    let mut seen = reported(&latched(retained()), report);
    let plan = planned(&seen);
    assert_eq!(plan.status.earlier_lineages, ["ns/a/u-0"]);
    assert_eq!(plan.status.last_prune.as_ref().unwrap().unknown_files, ["notes.txt"]);
    assert_eq!((plan.act.clone(), plan.status.prune_run.clone()), (None, None), "nothing is gone");
    assert_eq!(plan.status.announced.as_ref().map(|pile| pile.count), Some(2));
    assert_eq!(told(&plan, Type::RetentionApplied), ("True", "RemovalAnnounced"));
    seen = after(seen, plan);
    assert_eq!(planned_at(&seen, noon() + minutes(7)).act, None, "an hour is left to hold something");

    for (report, class, reason) in [
        (PruneReport { failed: Some(denied()), ..PruneReport::default() }, "Denied", "RetentionBlocked"),
        (
            PruneReport { stopped: Some(stopped("LaterFormat")), ..PruneReport::default() },
            "LaterFormat",
            "RetentionBlocked",
        ),
        (
            PruneReport { stopped: Some(stopped("SnapshotAnomaly")), ..PruneReport::default() },
            "SnapshotAnomaly",
            "SnapshotAnomaly",
        ),
    ] {
        let seen = reported(&latched(retained()), report);
        let plan = planned(&seen);
        assert_eq!(plan.act, None, "{class}");
        assert_eq!(plan.status.last_prune.as_ref().unwrap().class.as_deref(), Some(class));
        assert_eq!(told(&plan, Type::RetentionApplied), ("False", reason));
        let seen = after(seen, plan);
        assert_eq!(planned_at(&seen, noon() + minutes(6)).act, None, "ten minutes are between two Jobs");
    }
}

fn denied() -> FailedReport {
    FailedReport { class: ExitClass::Denied, origin: None, message: "no right to remove".to_owned() }
}

fn stopped(reason: &str) -> Stopped {
    Stopped { reason: reason.to_owned(), message: "why".to_owned() }
}

/// The Job removed one snapshot, and the store's answer about the rest.
fn asked(left: &[i64]) -> Observed {
    let mut seen = asked_early(left);
    seen.jobs.retain(|job| job.metadata.name.as_deref() == Some("run-53"));
    seen
}

/// The same while the Jobs of all runs exist.
fn asked_early(left: &[i64]) -> Observed {
    let mut seen = reported(&latched(retained()), PruneReport { removed: 1, ..PruneReport::default() });
    seen = after(seen.clone(), planned(&seen));
    assert_eq!(seen.schedule.status.as_ref().unwrap().pruned, 1);
    let Some(Act::StartJob(job)) = planned(&seen).act else { panic!("the store is asked") };
    assert!(Kind::Recall.runs_in(pod_spec(&job)));
    let run =
        |ago: &i64| RecalledRun { job: format!("run-{ago}"), uid: format!("u-run-{ago}"), at: noon() - minutes(*ago) };
    let report = RecallReport { runs: left.iter().map(run).collect(), through: noon() - minutes(173) };
    seen.recalls.push(ended(*job, 0, 0, serde_json::to_string(&Report::Recalled(report)).unwrap()));
    seen
}

#[test]
fn the_record_of_what_is_gone_goes_and_no_other() {
    let seen = asked(&[173]);
    let plan = planned(&seen);
    let Some(Act::DeleteRecord { snapshot, removed, .. }) = &plan.act else { panic!("{:?}", plan.act) };
    assert_eq!((snapshot.name.as_str(), removed.as_deref()), ("run-233", Some(key(233).as_str())));
    let mut seen = after(seen, plan);
    seen.snapshots.retain(|s| s.metadata.name.as_deref() != Some("run-233"));
    let plan = planned(&seen);
    assert_eq!((plan.act.clone(), plan.status.prune_run.clone(), plan.status.pruned), (None, None, 1));
    assert_eq!(planned(&asked(&[233, 173])).act, None, "the store holds both");
    let early = planned(&asked_early(&[173]));
    assert_eq!((early.act, early.status.prune_run), (None, None), "its Job would be recorded again");
}

#[test]
fn the_rules_refuse_what_no_plan_wants() {
    let seen = retained();
    let refused = |seen: &Observed, act: Act, invariant: &str| {
        let plan = Plan { act: Some(act.clone()), ..plan(seen, noon()) };
        let verdict = safety::schedule(seen, &plan);
        assert_eq!(verdict.as_ref().err().map(|v| v.invariant), Some(invariant), "{act:?}: {verdict:?}");
    };
    let ready = latched(seen.clone());
    let job = started(&ready);
    let start = |job: &Job| Act::StartJob(Box::new(job.clone()));
    refused(&seen, start(&job), "I25");
    let run = ready.schedule.status.as_ref().unwrap().prune_run.clone().unwrap();
    refused(&ready, Act::LatchPrune(Box::new(PruneRun { protects: Some(vec!["x".to_owned()]), ..run.clone() })), "I25");
    refused(&seen, Act::LatchPrune(Box::new(run.clone())), "I25");
    let mut first = ready.clone();
    first.schedule.status.as_mut().unwrap().prune_run = Some(PruneRun { protects: None, ..run.clone() });
    first.restores = vec![key(233)];
    refused(&first, Act::LatchPrune(Box::new(run)), "I25");
    let mut suspended = ready.clone();
    suspended.schedule.spec.suspend_pruning = true;
    refused(&suspended, start(&job), "I25");
    let mut held = ready.clone();
    held.held.push(key(233));
    refused(&held, start(&job), "I25");
    let mut other = ready.clone();
    other.cluster.as_mut().unwrap().metadata.uid = Some("u-b".to_owned());
    refused(&other, start(&job), "I25");
    let mut named = ready;
    named.schedule.spec.snapshot_template.destination.store_ref = Some(LocalRef { name: "vault".to_owned() });
    refused(&named, start(&job), "I25");

    let delete = |seen: &Observed, ago: i64, removed: Option<String>| {
        let record = record_of(&mut seen.clone(), ago).clone();
        Act::DeleteRecord { snapshot: Target::from(&record.metadata), removed, why: String::new() }
    };
    let mut bare = seen.clone();
    bare.jobs.clear();
    refused(&bare, delete(&bare, 233, None), "I18");
    refused(&bare, delete(&bare, 233, Some(key(233))), "I18");
    let there = asked(&[233]);
    refused(&there, delete(&there, 233, Some(key(233))), "I18");
    refused(&there, delete(&there, 113, Some(key(113))), "I18");
    let early = asked_early(&[173]);
    refused(&early, delete(&early, 233, Some(key(233))), "I7");
    let mut last = asked(&[173]);
    for record in &mut last.snapshots {
        record.status.as_mut().unwrap().verification = None;
    }
    refused(&last, delete(&last, 233, Some(key(233))), "I25");
}

/// The agent keeps the newest snapshot with a proof of a drill, by the proofs in the store.
#[test]
fn the_newest_drilled_snapshot_counts_as_kept() {
    let mut seen = retained();
    let passed = PassedDrill { key: key(173), ..PassedDrill::default() };
    let drill = DrillStatus { last_passed: Some(passed), ..DrillStatus::default() };
    let kept = |seen: &Observed| planned(seen).status.kept;
    assert_eq!(kept(&seen), Some(2));
    seen.schedule.spec.drill = Some(Drill { schedule: "0 3 * * *".to_owned(), ..Drill::default() });
    seen.schedule.status.as_mut().unwrap().drill = Some(drill);
    assert_eq!(kept(&seen), Some(3));
    let status = seen.schedule.status.as_mut().unwrap().drill.as_mut().unwrap();
    status.last_passed.as_mut().unwrap().proof_not_kept = Some("403".to_owned());
    assert_eq!(kept(&seen), Some(2), "the store knows nothing of the drill");
}

/// No record says what the store holds of a log: Jobs look at it twice in the time of an announcement.
#[test]
fn a_log_is_looked_at_every_twelve_hours_and_when_its_announcement_is_ripe() {
    let mut seen = retained();
    // No backup is due in the time of this test.
    seen.schedule.spec.schedule = "7 11 1 1 *".to_owned();
    seen.schedule.spec.retention = Some(Retention { keep_last: Some(10), ..Retention::default() });
    assert!(planned(&seen).status.prune_run.is_none() && planned(&seen).act.is_none(), "nothing to remove");
    seen.schedule.spec.log = Some(Log::default());
    let seen = latched(seen);
    let log = PrunedLog {
        segments: 9,
        bytes: 100,
        announced: 4,
        not_before: Some(noon() + minutes(60)),
        ..PrunedLog::default()
    };
    let report = |log| PruneReport { kept: 4, log: Some(log), ..PruneReport::default() };
    let seen = reported(&seen, report(log.clone()));
    let plan = planned(&seen);
    assert_eq!(plan.status.bytes, Some(4 * 3 + 100), "the log counts");
    let due = |seen: &Observed, later: i64| {
        let plan = planned_at(seen, noon() + minutes(later));
        matches!(plan.act, Some(Act::LatchPrune(_)))
    };
    let idle = |seen: Observed, plan: Plan<EtcdSnapshotScheduleStatus>| {
        let mut seen = after(seen, plan);
        let plan = planned(&seen);
        seen = after(seen, plan);
        assert_eq!(seen.schedule.status.as_ref().unwrap().prune_run, None);
        seen
    };
    let announced = idle(seen.clone(), plan);
    assert_eq!((due(&announced, 59), due(&announced, 60)), (false, true));
    let mut locked = seen;
    locked.recalls.clear();
    let mut unread = locked.clone();
    let before = announced.schedule.status.as_ref().unwrap().last_prune.clone();
    unread.schedule.status.as_mut().unwrap().last_prune = before;
    let locked = reported(&locked, report(PrunedLog { locked: 4, ..log }));
    let plan = planned(&locked);
    let locked = idle(locked, plan);
    assert_eq!((due(&locked, 60), due(&locked, 12 * 60)), (false, true), "the store locks the segments");
    let unread = reported(&unread, report(PrunedLog { kept: Some("503".to_owned()), ..PrunedLog::default() }));
    let status = planned(&unread).status;
    assert_eq!(status.bytes, Some(4 * 3 + 100), "the Job has not read the log");
    assert_eq!(status.last_prune.unwrap().log.unwrap().kept.as_deref(), Some("503"));
}
