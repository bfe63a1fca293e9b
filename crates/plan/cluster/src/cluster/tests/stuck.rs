//! Members that join and do not get their vote.

use holdfast_api::member::{Departure, Leaving};
use holdfast_api::repair::GivenUp;

use super::*;

fn ago(minutes: i64) -> Time {
    Time(noon() - SignedDuration::from_mins(minutes))
}

/// Returns three voters and a silent learner, with object and Pod of these ages in minutes.
fn joining(object: i64, pod: i64) -> Observed {
    let mut seen = with_learner(3, 4);
    seen.answers.insert(named(3), Seen::unknown("no"));
    seen.members[3].object.metadata.creation_timestamp = Some(ago(object));
    seen.members[3].pod.as_mut().unwrap().metadata.creation_timestamp = Some(ago(pod));
    seen
}

fn given_up(member: usize, count: u32, minutes: i64) -> Option<GivenUp> {
    Some(GivenUp { member: named(member), count, at: ago(minutes).0.to_string() })
}

#[test]
fn a_joiner_has_two_pods_of_ten_minutes() {
    for (object, pod) in [(19, 10), (20, 9), (120, 9)] {
        assert_eq!(waits(&joining(object, pod)), Some(Reason::WaitingForLearner), "{object}, {pod}");
    }
    let mut seen = joining(20, 10);
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    assert_eq!(latched.given_up, given_up(3, 1, 0));
    *latches(&mut seen) = *latched;
    let Some(Act::LatchLeaving { member, leaving }) = act(&seen) else { panic!() };
    assert_eq!((member.name, leaving.why), (named(3), Departure::NeverPromoted));
    seen.members[3].object.spec.leaving =
        Some(Leaving { why: Departure::NeverPromoted, evidence: None, at: noon().to_string() });
    assert!(matches!(act(&seen), Some(Act::RemoveMember { learner: true, member_id: 0x13, .. })));
    // Also during the alarm of a voter: the learner has no vote, and the voter's replacement waits for the learner's end.
    let mut alarmed = joining(20, 10);
    etcd(&mut alarmed).alarms.push(Alarm { member_id: 0x12, kind: AlarmKind::Corrupt });
    let Some(Act::Latch(latched)) = act(&alarmed) else { panic!() };
    *latches(&mut alarmed) = *latched;
    assert!(matches!(act(&alarmed), Some(Act::LatchLeaving { .. })));
    // A second learner in a row.
    let mut seen = joining(20, 10);
    latches(&mut seen).given_up = given_up(8, 1, 40);
    assert!(matches!(act(&seen), Some(Act::Latch(latched)) if latched.given_up == given_up(3, 2, 0)));
    // A silent voter is never given up.
    let mut seen = formed(3, 3);
    seen.members[2].object.metadata.creation_timestamp = Some(ago(600));
    seen.answers.insert(named(2), Seen::unknown("no"));
    running(seen.members[2].pod.as_mut().unwrap(), false);
    assert_eq!(waits(&seen), Some(Reason::MemberRestarting));
}

#[test]
fn the_next_one_comes_later_each_time() {
    for (count, minutes) in [(1, 10), (2, 20), (3, 40), (4, 60), (9, 60)] {
        let mut seen = formed(3, 4);
        latches(&mut seen).given_up = given_up(8, count, minutes - 1);
        assert_eq!(waits(&seen), Some(Reason::JoinerStuck), "{count}");
        assert_eq!(condition(&seen, "Degraded"), pair("True", "JoinerStuck"));
        latches(&mut seen).given_up = given_up(8, count, minutes);
        assert!(matches!(act(&seen), Some(Act::Latch(latched)) if latched.pending_member.is_some()), "{count}");
    }
    // The latch goes when every member is a voter, and not before.
    let mut seen = formed(3, 3);
    latches(&mut seen).given_up = given_up(8, 1, 1);
    assert!(matches!(act(&seen), Some(Act::Latch(latched)) if latched.given_up.is_none()));
    let mut seen = joining(1, 1);
    latches(&mut seen).given_up = given_up(8, 1, 20);
    assert_eq!(waits(&seen), Some(Reason::WaitingForLearner));
}
