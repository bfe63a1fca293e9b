//! Alarms of members that etcd does not list: which are cleared, and the message for the others.

use holdfast_api::defragmentation::{Defragmentation, DefragmentationMode};

use super::*;

fn raised(kind: AlarmKind, member_id: u64) -> Alarm {
    Alarm { member_id, kind }
}

fn corrupt(member_id: u64) -> Alarm {
    raised(AlarmKind::Corrupt, member_id)
}

fn clears(seen: &Observed) -> Option<Alarm> {
    match act(seen) {
        Some(Act::Disarm { alarm, cluster_id: CLUSTER_ID }) => Some(alarm),
        None => None,
        other => panic!("{other:?}"),
    }
}

/// Returns the message of `Degraded`.
fn degraded(seen: &Observed) -> String {
    assert_eq!(condition(seen, "Degraded"), pair("True", "AlarmRaised"));
    let all = planned(seen).status.conditions;
    all.into_iter().find(|c| c.type_ == "Degraded").unwrap().message
}

/// An alarm that came along with restored data, or that a removed member left, makes etcd refuse every write.
#[test]
fn an_alarm_that_nobody_holds_is_cleared_while_all_have_room() {
    let full = raised(AlarmKind::NoSpace, 0xdead);
    let mut seen = formed(3, 3);
    etcd(&mut seen).alarms.push(full.clone());
    assert_eq!(clears(&seen), Some(full));
    let db_bytes = |seen: &mut Observed, bytes| match seen.answers.get_mut(&named(1)) {
        Some(Seen::Known(answer)) => answer.db_bytes = bytes,
        other => panic!("{other:?}"),
    };
    let mut large = seen.clone();
    db_bytes(&mut large, i64::MAX);
    large.cluster.spec.defragmentation =
        Some(Defragmentation { mode: Some(DefragmentationMode::Never), ..Defragmentation::default() });
    assert_eq!(clears(&large), None);
    let message = degraded(&large);
    assert!(message.contains("no member of this cluster") && message.contains("nine tenths"), "{message}");
    let mut silent = seen.clone();
    silent.answers.remove(&named(1));
    assert_eq!(clears(&silent), None);
    // etcd 3.5 forgets a raised CORRUPT alarm until its next start when the last NOSPACE alarm is cleared.
    etcd(&mut seen).alarms.push(corrupt(0x11));
    assert_eq!(clears(&seen), None);
    for alarm in [raised(AlarmKind::NoSpace, 0), corrupt(0xdead)] {
        let mut seen = formed(3, 3);
        etcd(&mut seen).alarms.push(alarm.clone());
        assert_eq!(clears(&seen), None, "{alarm:?}");
    }
}

/// Returns a seed that was restored and serves alone, with these alarms in its data.
fn restored(alarms: Vec<Alarm>) -> Observed {
    let mut seen = formed(1, 3);
    restore(&mut seen, Some("k"));
    *latches(&mut seen) =
        Latches { pending_member: Some(named(0)), restoring: Some(restoring("k")), ..Latches::default() };
    seen.members[0].object.spec.restore = Some(restoring("k"));
    etcd(&mut seen).alarms = alarms;
    seen
}

/// Returns the latches after the cluster has formed.
fn forms(seen: &Observed) -> Latches {
    match act(seen) {
        Some(Act::Latch(latches)) if latches.formed.is_some() => *latches,
        other => panic!("{other:?}"),
    }
}

/// Alarms are replicated: the snapshot of a good member contains the alarm of a corrupt member.
#[test]
fn a_corrupt_alarm_that_came_along_is_cleared_before_the_cluster_grows() {
    let mut seen = restored(vec![corrupt(0xdead), corrupt(0x10), corrupt(0), raised(AlarmKind::NoSpace, 0xf)]);
    let latched = forms(&seen);
    let formed = latched.formed.as_ref().unwrap();
    assert_eq!(formed.corrupt_came_along, ["0", "dead"], "the seed's own is not among them");
    etcd(&mut seen).alarms = vec![corrupt(0xdead), raised(AlarmKind::NoSpace, 0xf)];
    *latches(&mut seen) = latched;
    assert_eq!(clears(&seen), Some(corrupt(0xdead)));
    etcd(&mut seen).alarms.remove(0);
    assert_eq!(clears(&seen), Some(raised(AlarmKind::NoSpace, 0xf)));
    etcd(&mut seen).alarms.clear();
    assert!(matches!(act(&seen), Some(Act::Latch(grows)) if grows.pending_member.is_some()));
}

/// Only at that moment is it certain that no other member existed yet.
#[test]
fn what_came_along_is_known_only_of_a_seed_that_has_just_been_restored() {
    let came_along = |seen: &Observed| forms(seen).formed.unwrap().corrupt_came_along;
    let mut lost = restored(vec![corrupt(0xdead)]);
    assert_eq!(came_along(&lost), ["dead"]);
    // The status was lost: this cluster may have had other members.
    latches(&mut lost).restoring = None;
    assert_eq!(came_along(&lost), [] as [String; 0]);
    let mut empty = restored(vec![corrupt(0xdead)]);
    empty.members[0].object.spec.restore = None;
    latches(&mut empty).restoring = None;
    assert_eq!(came_along(&empty), [] as [String; 0]);
}

/// etcd keeps the alarm of a removed member. The operator cannot decide which data was right.
#[test]
fn a_corrupt_alarm_that_may_be_this_clusters_own_stays_and_is_explained() {
    let with = |alarms: &[Alarm]| {
        let mut seen = formed(3, 3);
        let there = latches(&mut seen).formed.as_mut().unwrap();
        there.restored_from = Some(restoring("k"));
        there.corrupt_came_along = vec!["0".to_owned(), "dead".to_owned()];
        etcd(&mut seen).alarms = alarms.to_vec();
        seen
    };
    let good = with(&[corrupt(0xdead)]);
    assert_eq!(clears(&good), Some(corrupt(0xdead)));
    let mut silent = good.clone();
    silent.answers.remove(&named(1));
    assert_eq!(clears(&silent), None);
    let message = degraded(&silent);
    assert!(
        message.contains("part of the restored data") && message.contains("clears the alarm when every member answers"),
        "{message}"
    );

    // A member's own alarm, an alarm without a member, and an alarm that was not raised when the cluster formed.
    for (alarm, says) in [
        (corrupt(0x11), "CORRUPT on member 11"),
        (corrupt(0), "was raised before this cluster formed"),
        (corrupt(0xbeef), "or was left by a removed member"),
    ] {
        let alone = with(std::slice::from_ref(&alarm));
        assert_eq!(clears(&alone), None, "{alarm:?}");
        assert!(degraded(&alone).contains(says), "{}", degraded(&alone));
        let command = degraded(&alone).contains("`kubectl exec a-m0 -- etcdctl alarm disarm`");
        assert_eq!(command, alarm.member_id != 0x11, "{}", degraded(&alone));
        assert_eq!(clears(&with(&[corrupt(0xdead), alarm.clone()])), None, "beside {alarm:?}");
    }
    let mut listed = good.clone();
    etcd(&mut listed).members[1].id = 0xdead;
    assert_eq!(clears(&listed), None);

    // Unknown origin: the cluster was formed by an earlier version, or not restored.
    let mut earlier = good.clone();
    latches(&mut earlier).formed.as_mut().unwrap().corrupt_came_along.clear();
    assert_eq!(clears(&earlier), None);
    assert!(degraded(&earlier).contains("the alarm is part of the restored data, or"), "{}", degraded(&earlier));
    latches(&mut earlier).formed.as_mut().unwrap().restored_from = None;
    assert_eq!(degraded(&earlier), "CORRUPT on member dead");

    // The wait for members has the same message.
    let mut short = formed(1, 3);
    latches(&mut short).formed.as_mut().unwrap().restored_from = Some(restoring("k"));
    etcd(&mut short).alarms = vec![corrupt(0xbeef)];
    assert_eq!(waits(&short), Some(Reason::AlarmRaised));
    assert!(degraded(&short).contains("etcdctl alarm disarm"), "{}", degraded(&short));
}
