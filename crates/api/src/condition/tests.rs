//! Tests of conditions and reasons.

use holdfast_contract::FAILURES;
use jiff::SignedDuration;

use super::*;

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

#[test]
fn what_keeps_failing_is_why_something_is_not_ready() {
    let why = (Reason::WriteRefused, "exceeded quota");
    let plan = |ready| merge(&[], &[ready, Wanted::no(Type::Degraded, Reason::NothingWrong, "")], Some(1), noon());
    let later = noon() + SignedDuration::from_secs(60);
    let told = |ready: Wanted, writes| {
        let before = plan(ready);
        let mut conditions = before.clone();
        degrade(&mut conditions, &before, writes, why, Some(1), later);
        let of = |kind: Type| conditions.iter().find(|c| c.type_ == kind.as_str()).cloned().unwrap();
        let (ready, degraded) = (of(Type::Ready), of(Type::Degraded));
        assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "WriteRefused"));
        assert_eq!((degraded.last_transition_time, conditions.len()), (Time(later), 2));
        assert_eq!(ready.last_transition_time, Time(noon()), "its state is what it was");
        (ready.status, ready.reason, ready.message)
    };
    let is = |status: &str, reason: &str, message: &str| (status.to_owned(), reason.to_owned(), message.to_owned());
    let pending = Wanted::no(Type::Ready, Reason::JobPending, "its Job is being made");
    assert_eq!(told(pending.clone(), true), is("False", "WriteRefused", "exceeded quota"));
    assert_eq!(told(pending, false), is("False", "JobPending", "its Job is being made"));
    let doubt = Wanted::unknown(Type::Ready, Reason::JobRunning, "it has ended");
    assert_eq!(told(doubt, true), is("Unknown", "WriteRefused", "exceeded quota"));
    let lost = Wanted::no(Type::Ready, Reason::QuorumLost, "2 of 3 are away");
    assert_eq!(told(lost.clone(), true), is("False", "QuorumLost", "2 of 3 are away"));
    let lost = [lost, Wanted::yes(Type::Degraded, Reason::QuorumLost, "2 of 3 are away")];
    let before = merge(&[], &lost, Some(1), noon());
    let after = |why| {
        let mut conditions = before.clone();
        degrade(&mut conditions, &before, true, why, Some(1), later);
        let of = |n: usize| (conditions[n].reason.clone(), conditions[n].message.clone());
        (of(0), of(1))
    };
    let both = "2 of 3 are away; besides, WriteRefused: exceeded quota".to_owned();
    let quorum = || "QuorumLost".to_owned();
    assert_eq!(after(why), ((quorum(), both), (quorum(), "2 of 3 are away".to_owned())));
    let stopped = after((Reason::SafetyStop, "I1"));
    let stop = || ("SafetyStop".to_owned(), "I1".to_owned());
    assert_eq!(stopped, (stop(), stop()));
    let ready = Wanted::yes(Type::Ready, Reason::AsDesired, "3 of 3");
    assert_eq!(told(ready, true), is("True", "AsDesired", "3 of 3"));
}

#[test]
fn the_time_moves_with_the_state_only() {
    let later = noon() + SignedDuration::from_secs(60);
    let first = merge(&[], &[Wanted::no(Type::Ready, Reason::Seeding, "a")], Some(1), noon());
    let reworded = merge(&first, &[Wanted::no(Type::Ready, Reason::Growing, "b")], Some(2), later);
    assert_eq!(reworded[0].last_transition_time, Time(noon()));
    assert_eq!((reworded[0].reason.as_str(), reworded[0].observed_generation), ("Growing", Some(2)));
    for other in [Wanted::yes(Type::Ready, Reason::AsDesired, ""), Wanted::unknown(Type::Ready, Reason::Seeding, "")] {
        assert_eq!(merge(&reworded, &[other], Some(2), later)[0].last_transition_time, Time(later));
    }
}

#[test]
fn merging_twice_changes_nothing_and_conditions_of_others_stay() {
    let mut foreign = merge(&[], &[Wanted::yes(Type::Ready, Reason::AsDesired, "x")], None, noon());
    foreign[0].type_ = "example.org/Audited".to_owned();
    let wanted =
        [Wanted::yes(Type::Ready, Reason::AsDesired, "y"), Wanted::no(Type::Degraded, Reason::NothingWrong, "")];
    let once = merge(&foreign, &wanted, Some(1), noon());
    assert_eq!(once.len(), 3);
    assert!(once.contains(&foreign[0]));
    assert_eq!(merge(&once, &wanted, Some(1), noon() + SignedDuration::from_secs(1)), once);
}

#[test]
fn long_messages_are_cut_between_characters() {
    let long = "ä".repeat(MAX_MESSAGE);
    let list = merge(&[], &[Wanted::yes(Type::Ready, Reason::AsDesired, long)], None, noon());
    assert!(list[0].message.len() <= MAX_MESSAGE + '…'.len_utf8());
    assert!(list[0].message.ends_with('…'));
}

#[test]
fn every_reason_is_found_by_its_name() {
    assert!(Reason::ALL.iter().all(|reason| Reason::named(reason.as_str()) == Some(*reason)));
    assert_eq!(Reason::named("Nonsense"), None);
}

#[test]
fn every_failure_of_the_agent_has_a_reason_with_a_runbook() {
    for failure in &FAILURES {
        let reason = Reason::named(failure.reason);
        assert!(reason.is_some_and(Reason::needs_a_person), "{failure:?}");
    }
}
