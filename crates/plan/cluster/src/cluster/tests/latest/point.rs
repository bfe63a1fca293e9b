//! A restore to a point in time: the search names the lineage, every attempt asks for the same point, and the status says how the
//! log reached it.

use holdfast_api::cluster::MemberSummary;
use holdfast_api::restore::{PointStatus, RestorePoint};
use holdfast_api::schedule::PruneRun;
use holdfast_contract::{Point, PointProof, PointReport, RestoredReport};

use super::super::bootstrap::{named_snapshot, snapshot};
use super::*;

const LINEAGE: &str = "ns/a/1a2b3c4d";
const TIME: &str = "2026-01-01T12:59:07+02:00";

fn at_time(time: &str) -> RestorePoint {
    RestorePoint { time: Some(time.to_owned()), ..RestorePoint::default() }
}

fn set(seen: &mut Observed, at: Option<RestorePoint>) {
    seen.cluster.spec.bootstrap.as_mut().unwrap().restore.as_mut().unwrap().at = at;
}

fn latched(seen: &Observed) -> Restoring {
    let Some(Act::Latch(latches)) = act(seen) else { panic!("{:?}", act(seen)) };
    latches.restoring.unwrap()
}

/// Returns a cluster with the latched lineage of its latest snapshot, and the restore.
fn found_lineage() -> (Observed, Restoring) {
    let mut seen = asking(latest("b"));
    set(&mut seen, Some(at_time(TIME)));
    answered(seen)
}

#[test]
fn the_latest_with_a_point_is_a_lineage() {
    let (mut seen, restoring) = found_lineage();
    assert_eq!((restoring.source.key.as_str(), &restoring.sha256), (LINEAGE, &None));
    assert_eq!(restoring.at, Some(at_time(TIME)));
    let status = planned(&seen).status.restore.unwrap();
    // The newest snapshot is not the one before the point.
    assert_eq!((status.taken_at, status.revision, status.passed_over.len()), (None, None, 0));
    assert_eq!(status.uri.as_deref(), Some("s3://b/ns/a/1a2b3c4d"));
    assert_eq!(status.point, Some(PointStatus::requested(&at_time(TIME))));
    let doing = planned(&seen).status.conditions.into_iter().find(|c| c.type_ == "Progressing").unwrap().message;
    assert!(doing.contains(&format!("and its log, up to {TIME}")), "{doing}");

    // A retry asks for the same, also without the Job.
    seen.searches = vec![];
    let Some(Act::CreateMember(member)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(member.spec.restore, Some(restoring.clone()));
    // Another point is another attempt, and the same lineage.
    set(&mut seen, Some(RestorePoint { revision: Some(70), ..RestorePoint::default() }));
    let other = latched(&seen);
    assert_eq!((&other.source, &other.newest), (&restoring.source, &restoring.newest));
    assert_ne!(other.restore_uid, restoring.restore_uid);
    // Without a point the key of a snapshot is needed.
    set(&mut seen, None);
    started(&seen);
    let (_, plain) = answered(seen);
    assert_eq!((plain.source.key.as_str(), plain.sha256.is_some(), plain.at), (KEY, true, None));
}

#[test]
fn a_named_snapshot_stays_the_one_before_the_point() {
    let mut seen = bare(1);
    named_snapshot(&mut seen, Some(snapshot(Phase::Complete)));
    let plain = latched(&seen);
    set(&mut seen, Some(at_time(TIME)));
    let restoring = latched(&seen);
    assert_eq!((&restoring.source, &restoring.sha256), (&plain.source, &plain.sha256));
    assert_ne!(restoring.restore_uid, plain.restore_uid);
}

#[test]
fn a_time_in_the_future_is_refused_with_both_times() {
    let mut seen = asking(latest("b"));
    set(&mut seen, Some(at_time("2026-01-01T14:00:07+02:00")));
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.wake), (None, Wake::AfterMillis(7_000)));
    let waiting = plan.waiting.unwrap();
    assert_eq!(waiting.reason, Reason::InvalidSpec);
    for time in ["2026-01-01T12:00:07Z is in the future", "shows 2026-01-01T12:00Z"] {
        assert!(waiting.message.contains(time), "{time}: {}", waiting.message);
    }
    set(&mut seen, Some(at_time("2026-01-01T14:00:00+02:00")));
    started(&seen);
}

#[test]
fn the_report_says_how_the_log_reached_the_point() {
    let (mut seen, restoring) = found_lineage();
    let mut seed = seeding(1).members.remove(0);
    seed.object.spec.restore = Some(restoring.clone());
    let mut pod = pod_of(&seed.object);
    let uri = format!("s3://b/{LINEAGE}/20260101T100000Z-byhand-abcdef01/snapshot.db.zst");
    let point = PointReport {
        base_revision: 5,
        revision: 60,
        asked: Point::Time(TIME.parse().unwrap()),
        records: 55,
        segments: 3,
        proof: PointProof::HashKV,
        unknown_leases: 0,
        known_at: Some(TIME.parse().unwrap()),
        changed_by: None,
    };
    let report = RestoredReport {
        uri: uri.clone(),
        revision: Some(60),
        taken_at: "2026-01-01T10:00:00Z".to_owned(),
        db_bytes: 1 << 20,
        point: Some(Box::new(point)),
        ..RestoredReport::default()
    };
    let said = serde_json::to_string(&Report::Restored(report)).unwrap();
    crate::fixtures::failed(&mut pod, "restore", 0, &said, earlier());
    seed.pod = Some(pod);
    seen.members = vec![seed];
    let told = planned(&seen).status.restore.unwrap();
    assert_eq!(told.point, Some(PointStatus::reported(&point)));
    assert_eq!((told.uri.as_ref(), told.revision), (Some(&uri), Some(60)));
    assert_eq!(told.taken_at.as_deref(), Some("2026-01-01T10:00:00Z"), "of the snapshot");

    // The Pod is deleted, and its report with it.
    seen.cluster.status.as_mut().unwrap().restore = Some(told.clone());
    seen.members[0].pod = None;
    assert_eq!(planned(&seen).status.restore.unwrap().point, told.point);
    // A report for another point does not describe this attempt.
    let other = RestorePoint { revision: Some(60), ..RestorePoint::default() };
    latches(&mut seen).restoring.as_mut().unwrap().at = Some(other.clone());
    assert_eq!(planned(&seen).status.restore.unwrap().point, Some(PointStatus::requested(&other)));

    // Snapshots of the new cluster name the one before the point as their past, and without a report the lineage.
    let mut cluster = formed(1, 1).cluster;
    let status = cluster.status.as_mut().unwrap();
    status.latches.formed.as_mut().unwrap().restored_from = Some(restoring);
    status.members = vec![MemberSummary { role: Some(role::VOTER.to_owned()), ..MemberSummary::default() }];
    let from = |cluster: &holdfast_api::EtcdCluster| holdfast_base::saving::source(cluster).unwrap().restored_from;
    assert_eq!(from(&cluster).as_deref(), Some(LINEAGE));
    cluster.status.as_mut().unwrap().restore = Some(told);
    assert_eq!(from(&cluster), Some(format!("{LINEAGE}/20260101T100000Z-byhand-abcdef01")));
}

/// I25: the restore reads the log, and may begin with any snapshot of the lineage.
#[test]
fn nothing_is_removed_from_a_lineage_that_is_restored() {
    let (mut seen, _) = found_lineage();
    let made = planned(&seen);
    assert!(matches!(made.act, Some(Act::CreateMember(_))), "{:?}", made.act);
    let run = |lineage: &str, protects: Option<&[&str]>| PruneRun {
        lineage: lineage.to_owned(),
        protects: protects.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()),
        ..PruneRun::default()
    };
    for (prune, waits) in [
        (run(LINEAGE, None), true),
        (run(LINEAGE, Some(&[KEY])), true),
        (run(LINEAGE, Some(&[LINEAGE])), false),
        (run(KEY, None), true),
        (run("ns/a/1a2b3c4", None), false),
    ] {
        seen.prunes = vec![prune.clone()];
        let reason = planned(&seen).waiting.map(|waiting| waiting.reason);
        assert_eq!(reason, waits.then_some(Reason::WaitingForPrune), "{prune:?}");
        let breach = safety::cluster(&seen, &made).err().map(|violation| violation.invariant);
        assert_eq!(breach, waits.then_some("I25"), "{prune:?}");
    }
}
