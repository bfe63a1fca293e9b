//! `CORRUPT` alarms that are evidence: the named member, the other voters' hashes, and the end of the alarm.

use holdfast_api::member::{Departure, Leaving};
use holdfast_api::repair::{Evidence, Loss, Repair, Replaced};

use super::*;

const RIGHT: KeyHash = KeyHash { revision: 9, compact_revision: 5, hash: 1 };
const WRONG: KeyHash = KeyHash { hash: 2, ..RIGHT };

fn evidence(minutes: i64) -> Evidence {
    let at = (noon() - SignedDuration::from_mins(minutes)).to_string();
    Evidence { kind: Loss::Diverged, detail: Some("12".to_owned()), at }
}

/// Returns voters with these hashes, and `CORRUPT` alarms for these member IDs.
fn alarmed(hashes: &[Option<KeyHash>], ids: &[u64]) -> Observed {
    let mut seen = formed(hashes.len(), i32::try_from(hashes.len()).unwrap());
    seen.hashes = (0..).zip(hashes).filter_map(|(n, hash)| Some((named(n), (*hash)?))).collect();
    etcd(&mut seen).alarms = ids.iter().map(|id| Alarm { member_id: *id, kind: AlarmKind::Corrupt }).collect();
    seen
}

/// Returns the third member's evidence in the status.
fn told(seen: &Observed) -> Option<Evidence> {
    planned(seen).status.members[2].evidence.clone()
}

/// Returns a cluster with evidence in its status for long enough.
fn waited() -> Observed {
    let mut seen = alarmed(&[Some(RIGHT), Some(RIGHT), Some(WRONG)], &[0x12]);
    seen.cluster.status.as_mut().unwrap().members = planned(&seen).status.members;
    seen.cluster.status.as_mut().unwrap().members[2].evidence = Some(evidence(5));
    seen
}

#[test]
fn a_majority_with_one_hash_against_one_alarm_is_evidence() {
    let (right, wrong, none) = (Some(RIGHT), Some(WRONG), None);
    let older = Some(KeyHash { revision: 8, ..RIGHT });
    let other = Some(KeyHash { compact_revision: 4, ..RIGHT });
    type Row<'a> = (&'a str, &'a [Option<KeyHash>], &'a [u64], bool);
    let rows: [Row<'_>; 13] = [
        ("the two others agree", &[right, right, wrong], &[0x12], true),
        ("it says nothing itself", &[right, right, none], &[0x12], true),
        ("it has the same data", &[right, right, right], &[0x12], false),
        ("one of two says nothing", &[right, none, wrong], &[0x12], false),
        ("at another revision", &[right, older, wrong], &[0x12], false),
        ("at another compact revision", &[right, other, wrong], &[0x12], false),
        ("the alarm names nobody", &[right, right, wrong], &[0], false),
        ("another alarm names nobody", &[right, right, wrong], &[0x12, 0], false),
        ("the alarm names another one", &[right, right, wrong], &[0x11], false),
        ("two alarms", &[right, right, wrong], &[0x12, 0x11], false),
        ("no alarm", &[right, right, wrong], &[], false),
        ("three of five", &[right, right, wrong, right, none], &[0x12], true),
        ("two of five", &[right, right, wrong, none, none], &[0x12], false),
    ];
    for (what, hashes, ids, expected) in rows {
        let seen = alarmed(hashes, ids);
        assert_eq!(told(&seen), expected.then(|| evidence(0)), "{what}");
        assert_eq!(condition(&seen, "Degraded").1, if ids.is_empty() { "NothingWrong" } else { "AlarmRaised" });
        assert_eq!(act(&seen), None, "{what}: the status names the evidence first");
    }
}

#[test]
fn it_waits_and_keeps_its_time_while_hashes_are_missing() {
    let mut new = alarmed(&[Some(RIGHT), Some(RIGHT), Some(WRONG)], &[0x12]);
    new.cluster.spec.repair = Some(Repair { after_seconds: Some(0), ..Repair::default() });
    assert_eq!(waits(&new), Some(Reason::Replacing), "the status has it first");
    new.cluster.status = Some(planned(&new).status);
    assert!(matches!(act(&new), Some(Act::Latch(_))));
    let seen = waited();
    assert_eq!(told(&seen), Some(evidence(5)));
    let mut silent = seen.clone();
    silent.hashes.clear();
    assert_eq!(told(&silent), Some(evidence(5)));
    assert_eq!(act(&silent), None, "nothing is done without hashes");
    let mut agrees = seen.clone();
    agrees.hashes.insert(named(2), RIGHT);
    assert_eq!((told(&agrees), act(&agrees)), (None, None));
}

/// Latched, decided, fenced, removed while the alarm is raised; then Holdfast clears the alarm, and the next member comes.
#[test]
fn the_member_leaves_and_its_alarm_after_it() {
    let mut seen = waited();
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    assert_eq!(latched.replaced.as_ref().unwrap().evidence, evidence(5));
    *latches(&mut seen) = *latched;
    let Some(Act::LatchLeaving { member, leaving }) = act(&seen) else { panic!() };
    assert_eq!((member.name.as_str(), leaving.why), (named(2).as_str(), Departure::Lost));
    seen.members[2].object.spec.leaving = Some(leaving);
    assert_eq!(waits(&seen), Some(Reason::Replacing), "its Pod ends first");
    seen.members[2].pod = None;
    seen.answers.remove(&named(2));
    seen.hashes.remove(&named(2));
    assert!(matches!(act(&seen), Some(Act::RemoveMember { member_id: 0x12, learner: false, .. })));
    let mut unsure = seen.clone();
    unsure.hashes.clear();
    assert_eq!(waits(&unsure), Some(Reason::AlarmRaised), "no voter goes while data are in doubt");
    etcd(&mut seen).members.pop();
    let alarm = Alarm { member_id: 0x12, kind: AlarmKind::Corrupt };
    assert_eq!(act(&seen), Some(Act::Disarm { alarm: alarm.clone(), cluster_id: CLUSTER_ID }));
    // A learner gives no hash.
    let mut joins = with_learner(2, 3);
    (joins.hashes, joins.cluster.status) = (seen.hashes.clone(), seen.cluster.status.clone());
    joins.members[2].object.spec.joined = joined_member(&joins.cluster, 2).spec.joined;
    joins.members[2].pod.as_mut().unwrap().metadata.annotations = None;
    etcd(&mut joins).members[2].id = 0x99;
    joins
        .answers
        .insert(named(2), Seen::Known(Answer { member_id: 0x99, learner: true, applied_index: 1, ..answer(2) }));
    etcd(&mut joins).alarms = vec![alarm.clone()];
    assert_eq!(act(&joins), Some(Act::Disarm { alarm, cluster_id: CLUSTER_ID }));
    let mut unsure = seen.clone();
    unsure.hashes.insert(named(1), WRONG);
    assert!(!matches!(act(&unsure), Some(Act::Disarm { .. })), "those that are left differ");
    let mut other = seen.clone();
    let replaced = latches(&mut other).replaced.as_mut().unwrap();
    *replaced = Replaced { evidence: Evidence { detail: Some("99".to_owned()), ..evidence(5) }, ..replaced.clone() };
    assert!(!matches!(act(&other), Some(Act::Disarm { .. })), "another one was replaced");
    etcd(&mut seen).alarms.clear();
    seen.hashes.clear();
    assert!(matches!(act(&seen), Some(Act::LatchRemoved { .. })));
}

/// The Pod or the claim is lost too: while an alarm is raised, that alone is no evidence.
#[test]
fn a_corrupt_member_that_is_lost_too_is_replaced_for_its_alarm() {
    let told = |kind| {
        let evidence = Some(Evidence { kind, detail: None, at: noon().to_string() });
        Some(holdfast_api::EtcdMemberStatus { evidence, ..Default::default() })
    };
    let mut claimless = waited();
    claimless.members[2].claim = None;
    claimless.members[2].object.status = told(Loss::ClaimGone);
    let mut podless = waited();
    crate::fixtures::keep_in_memory(&mut podless.cluster.spec.storage);
    for member in &mut podless.members {
        crate::fixtures::keep_in_memory(&mut member.object.spec.storage);
        member.claim = None;
    }
    podless.members[2].object.status = told(Loss::MemoryGone);
    for mut seen in [claimless, podless] {
        seen.members[2].pod = None;
        seen.answers.remove(&named(2));
        seen.hashes.remove(&named(2));
        let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
        assert_eq!(latched.replaced.as_ref().unwrap().evidence, evidence(5));
        *latches(&mut seen) = *latched;
        let mut new = seen.clone();
        new.cluster.status.as_mut().unwrap().members[2].evidence = None;
        assert!(!matches!(act(&new), Some(Act::LatchLeaving { .. })), "the status has it first");
        let Some(Act::LatchLeaving { leaving, .. }) = act(&seen) else { panic!() };
        assert_eq!(leaving.evidence, Some(evidence(5)));
        seen.members[2].object.spec.leaving = Some(leaving);
        assert!(matches!(act(&seen), Some(Act::RemoveMember { member_id: 0x12, learner: false, .. })));
    }
}

#[test]
fn hashes_are_asked_for_where_they_decide_something() {
    let asks = |seen: &Observed| {
        let replaced = seen.latches().replaced;
        asks_for_hashes(seen.own_etcd().unwrap(), replaced.as_ref())
    };
    let right = Some(RIGHT);
    assert_eq!(asks(&alarmed(&[right, right, right], &[0x12])).as_deref(), Some("12"));
    assert_eq!(asks(&alarmed(&[right, right, right], &[0x12, 0x11])).as_deref(), Some("11,12"));
    for (hashes, ids) in [(3, vec![]), (3, vec![0]), (3, vec![0x99]), (2, vec![0x11]), (1, vec![0x10])] {
        assert_eq!(asks(&alarmed(&vec![right; hashes], &ids)), None, "{hashes} voters, {ids:?}");
    }
    // The alarm of the replaced member, while the remaining voters have one hash.
    let mut gone = alarmed(&[right, right], &[0x12]);
    latches(&mut gone).replaced = Some(Replaced { member: named(2), evidence: evidence(5), at: evidence(5).at });
    assert_eq!(asks(&gone).as_deref(), Some("12"));
}

#[test]
fn a_drained_pod_before_it_costs_no_hour() {
    let mut seen = waited();
    let before =
        |kind| Some(Replaced { member: named(9), evidence: Evidence { kind, ..evidence(30) }, at: evidence(30).at });
    latches(&mut seen).replaced = before(Loss::ClaimGone);
    assert_eq!(waits(&seen), Some(Reason::Replacing));
    latches(&mut seen).replaced = before(Loss::MemoryGone);
    assert!(matches!(act(&seen), Some(Act::Latch(latched)) if latched.replaced.as_ref().unwrap().member == named(2)));
}

/// The remaining members may be the corrupt ones.
#[test]
fn nothing_else_leaves_while_an_alarm_is_raised() {
    for ids in [[0], [0x12], [0x99]] {
        let alarmed = || alarmed(&[Some(RIGHT), Some(RIGHT), Some(WRONG)], &ids);
        let mut asked = alarmed();
        asked.cluster.metadata.annotations = labels(&[(key::REPLACE, &named(2))]);
        assert_eq!(waits(&asked), Some(Reason::AlarmRaised));
        let mut leaves = alarmed();
        let leaving = Leaving { why: Departure::Requested, evidence: None, at: noon().to_string() };
        leaves.members[2].object.spec.leaving = Some(leaving);
        assert_eq!(waits(&leaves), Some(Reason::AlarmRaised));
    }
    let mut unlisted = alarmed(&[Some(RIGHT), Some(RIGHT), Some(WRONG)], &[0]);
    etcd(&mut unlisted).members.remove(1);
    assert_eq!(waits(&unlisted), Some(Reason::AlarmRaised));
}
