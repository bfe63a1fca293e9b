//! Reports of stored snapshots: taken over unchanged, recorded once, and final.

use super::*;

#[test]
fn a_report_makes_it_complete_at_once() {
    let seen = with(vec![saved()]);
    let plan = planned(&seen);
    let status = &plan.status;
    assert_eq!(
        told(status),
        (
            Phase::Complete,
            "True",
            "Stored",
            "3.0 MiB of member a-3 at revision 40 are stored at file:///backup/prod/a/cluster/x/snapshot.db.zst"
        )
    );
    assert_eq!(
        status.completed_at.as_deref(),
        Some("2026-11-21T11:59:55Z"),
        "when the agent ended, not when we looked"
    );
    let artifact = status.artifact.as_ref().unwrap();
    assert_eq!((artifact.key.as_str(), artifact.db_bytes), ("prod/a/cluster/x", 3 * 1024 * 1024));
    assert!(artifact.encrypted);
    assert_eq!(status.source.as_ref().unwrap().member, "a-3");
    assert_eq!(status.error, None);
    assert_eq!((plan.notes[0].reason.as_str(), plan.wake), ("SnapshotStored", Wake::OnChange));
}

#[test]
fn how_far_it_is_proven_is_told() {
    let proven = |pod| {
        let plan = planned(&with(vec![pod]));
        let verified = plan.status.conditions.iter().find(|c| c.type_ == "Verified").cloned().unwrap();
        assert_eq!(plan.status.phase, Phase::Complete);
        let notes: Vec<_> = plan.notes.iter().map(|note| note.reason.clone()).collect();
        (verified.status, verified.reason, plan.status.verification.unwrap().message, notes.join(" "))
    };
    let agreed = "HashKV 4294967295 at revision 40 equals that of a-3 and a-1; the agent read back the stored bytes";
    let both = ["True", "MembersAgree", agreed, "SnapshotStored"].map(str::to_owned);
    assert_eq!(<[String; 4]>::from(proven(saved())), both);
    // One member's hash is proof; the message names the missing second hash.
    let alone = Verification {
        level: Level::HashKV,
        agreed_by: vec!["a-3".to_owned()],
        agreed_by_reason: Some("a-1: no answer".to_owned()),
        ..Verification::default()
    };
    let (status, _, message, notes) = proven(saved_and(alone));
    assert_eq!((status.as_str(), notes.as_str()), ("True", "SnapshotStored"));
    assert!(message.contains("equals that of a-3; not compared with another member: a-1: no answer"), "{message}");
    for (level, words) in [(Level::Structure, "the database is sound"), (Level::Trailer, "the bytes equal the bytes")] {
        let why = Some("a-3: it has gone on".to_owned());
        let (status, reason, message, notes) =
            proven(saved_and(Verification { level, reason: why, ..Verification::default() }));
        assert_eq!(
            (status.as_str(), reason.as_str(), notes.as_str()),
            ("False", "NotCompared", "SnapshotStored NotCompared")
        );
        assert!(message.starts_with(words) && message.ends_with("a-3: it has gone on"), "{message}");
    }
    let plan = planned(&with(vec![running()]));
    assert!(plan.status.conditions.iter().all(|c| c.type_ != "Verified"), "nothing is stored yet");
}

/// I6, I18: a snapshot in a Pod's report is stored, for each state of the Job.
#[test]
fn a_stored_snapshot_is_never_called_failed() {
    for (kind, reason) in [("Failed", "DeadlineExceeded"), ("Failed", "BackoffLimitExceeded"), ("Complete", "")] {
        let mut seen = with(vec![saved(), failed("p-2", ExitClass::Transient, "later trouble")]);
        ends(&mut seen, kind, reason, 60);
        assert_eq!(planned(&seen).status.phase, Phase::Complete, "{kind}/{reason}");
    }
}

#[test]
fn only_the_agents_own_success_counts() {
    let mut other = saved();
    other.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].name = "sidecar".to_owned();
    let report = Report::Saved(Box::default());
    let killed = terminated("p-1", 137, "Error", Some(serde_json::to_string(&report).unwrap()));
    for pod in [other, killed, terminated("p-1", 0, "Completed", None)] {
        let plan = planned(&with(vec![pod]));
        assert_ne!(plan.status.phase, Phase::Complete);
        assert_eq!(plan.status.artifact, None);
    }
}

/// Write-only credentials make a backup, and the status shows that the agent did not read the backup back.
#[test]
fn what_could_not_be_read_back_is_stored_and_says_so() {
    let why = Some("the store does not allow this with these credentials".to_owned());
    let found = Verification {
        level: Level::HashKV,
        agreed_by: vec!["a-3".to_owned()],
        read_back_reason: why,
        ..Verification::default()
    };
    let status = planned(&with(vec![saved_and(found)])).status;
    let verification = status.verification.as_ref().unwrap();
    assert_eq!((told(&status).0, verification.read_back), (Phase::Complete, false));
    let end = "; the agent did not read back the stored bytes: the store does not allow this with these credentials";
    assert!(verification.message.ends_with(end), "{}", verification.message);
}

/// Name, contents and proof of the artifact come from a single report.
fn whole(status: &EtcdSnapshotStatus) -> (String, String, Option<i64>) {
    let artifact = status.artifact.as_ref().unwrap();
    (artifact.key.clone(), artifact.uri.clone(), artifact.revision)
}

/// A Job runs its Pods at least once: two Pods may store the snapshot, each under its own key (I7). The status records one
/// report as a whole, and nothing of the other report later (I18).
#[test]
fn of_two_pods_that_stored_it_one_is_recorded_for_good() {
    let stored = |name: &str| {
        let report = SavedReport {
            key: format!("prod/a/cluster/{name}"),
            uri: format!("s3://b/prod/a/cluster/{name}/snapshot.db.zst"),
            revision: Some(if name == "p-1" { 40 } else { 41 }),
            ..SavedReport::default()
        };
        terminated(name, 0, "Completed", Some(serde_json::to_string(&Report::Saved(Box::new(report))).unwrap()))
    };
    let (first, second) = (stored("p-1"), stored("p-2"));
    let of = |name: &str, revision| {
        let key = format!("prod/a/cluster/{name}");
        (key.clone(), format!("s3://b/{key}/snapshot.db.zst"), Some(revision))
    };
    let both = with(vec![first.clone(), second.clone()]);
    assert_eq!(whole(&planned(&both).status), of("p-2", 41));

    let mut seen = with(vec![first]);
    let recorded = planned(&seen).status;
    assert_eq!(whole(&recorded), of("p-1", 40));
    seen.pods.push(second);
    seen.snapshot.status = Some(recorded.clone());
    let plan = planned(&seen);
    assert_eq!((plan.status, plan.act, plan.notes), (recorded, None, vec![]));
}

pub(super) fn in_phase(phase: Phase) -> EtcdSnapshotStatus {
    EtcdSnapshotStatus {
        observed_generation: Some(1),
        phase,
        artifact: (phase == Phase::Complete).then(Artifact::default),
        error: (phase == Phase::Failed).then(Failure::default),
        completed_at: Some("2020-01-01T00:00:00Z".to_owned()),
        ..EtcdSnapshotStatus::default()
    }
}

/// Tools that use kstatus wait until the status is of the present spec.
#[test]
fn the_status_of_a_final_snapshot_follows_a_hold() {
    for phase in [Phase::Complete, Phase::Failed] {
        let mut seen = fresh();
        seen.snapshot.status = Some(in_phase(phase));
        seen.snapshot.spec.hold = true;
        seen.snapshot.metadata.generation = Some(2);
        let held = EtcdSnapshotStatus { observed_generation: Some(2), ..in_phase(phase) };
        assert_eq!(planned(&seen).status, held);
    }
}

/// I18.
#[test]
fn what_is_final_stays_as_it_is() {
    for phase in [Phase::Complete, Phase::Failed] {
        for pods in [None, Some(vec![saved()]), Some(vec![running()])] {
            let mut seen = pods.map_or_else(fresh, with);
            seen.snapshot.status = Some(in_phase(phase));
            let plan = planned(&seen);
            assert_eq!(plan.status, in_phase(phase));
            assert_eq!((plan.act, plan.notes, plan.waiting), (None, vec![], None));
        }
    }
}

#[test]
fn a_snapshot_of_which_no_cluster_can_be_made_says_so() {
    let report = Report::Saved(Box::new(SavedReport { auth_enabled: true, ..SavedReport::default() }));
    let pod = terminated("p-1", 0, "Completed", Some(serde_json::to_string(&report).unwrap()));
    let status = planned(&with(vec![pod])).status;
    assert!(told(&status).3.contains("no EtcdCluster can be restored from it"), "{}", told(&status).3);
    assert!(status.artifact.unwrap().auth_enabled);
}
