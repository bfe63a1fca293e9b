//! A return keeps its rules: one founding for each timeline, and never two timelines with a Pod of etcd.

use holdfast_api::member::Parked;
use holdfast_api::timeline::{Aside, PhaseStart, ReturnPhase, Returning};
use holdfast_api::{EtcdRestore, EtcdRestoreSpec};

use super::*;

fn record(phase: ReturnPhase) -> Returning {
    let phases = [ReturnPhase::Preparing, ReturnPhase::SettingAside, ReturnPhase::Starting, ReturnPhase::TurningBack];
    let until = phases.iter().position(|it| *it == phase).unwrap_or(0);
    let start = |phase: &ReturnPhase| PhaseStart { phase: *phase, at: noon().to_string() };
    Returning {
        name: "back".to_owned(),
        uid: "u-back".to_owned(),
        timeline: 2,
        phases: phases[..=until].iter().map(start).collect(),
        restoring: Some(restoring("k")),
        member: Some("a-next".to_owned()),
        ..Returning::default()
    }
}

fn aside() -> Aside {
    Aside {
        restore: "back".to_owned(),
        restore_uid: "u-back".to_owned(),
        timeline: 2,
        term: Some(3),
        index: Some(7),
        at: noon().to_string(),
        keep_seconds: 60,
    }
}

/// A cluster with an EtcdRestore whose record is in a phase.
fn returns(phase: Option<ReturnPhase>) -> Cluster {
    let mut seen = formed(1, 1);
    let mut restore = EtcdRestore::new("back", EtcdRestoreSpec { timeline: 2, ..EtcdRestoreSpec::default() });
    "a".clone_into(&mut restore.spec.cluster_ref.name);
    restore.metadata.uid = Some("u-back".to_owned());
    seen.returns = Some(restore);
    let earlier = latches(&mut seen).formed.clone();
    latches(&mut seen).returning = phase.map(|phase| Returning { earlier, ..record(phase) });
    seen
}

fn not_admitted(seen: &mut Cluster) {
    let labels = seen.members[0].pod.as_mut().unwrap().metadata.labels.as_mut().unwrap();
    labels.insert(key::ROLE.to_owned(), "learner".to_owned());
}

/// The same cluster after its member was set aside and its Pod has ended.
fn set_aside(phase: ReturnPhase) -> Cluster {
    let mut seen = returns(Some(phase));
    let mut member = seen.members.remove(0);
    member.object.spec.aside = Some(aside());
    member.pod = None;
    seen.others.push(member);
    seen
}

fn with(seen: &Cluster, change: impl FnOnce(&mut Latches)) -> Act {
    let mut latches = seen.cluster.status.clone().unwrap().latches;
    change(&mut latches);
    Act::Latch(Box::new(latches))
}

/// The latch of the next timeline.
fn switch(seen: &Cluster) -> Act {
    with(seen, |latches| {
        latches.timeline = Some(2);
        latches.formed = None;
        latches.restoring = Some(restoring("k"));
        let returning = latches.returning.as_mut().unwrap();
        returning.phases.push(PhaseStart { phase: ReturnPhase::Starting, at: noon().to_string() });
    })
}

#[test]
fn a_timeline_is_made_by_an_etcd_restore_that_names_the_next_one() {
    let seen = returns(None);
    let begin = |seen: &Cluster| with(seen, |latches| latches.returning = Some(record(ReturnPhase::Preparing)));
    assert_eq!(broken(&seen, begin(&seen)), None);
    let mut gone = seen.clone();
    gone.returns = None;
    assert_eq!(broken(&gone, begin(&gone)), Some("I2"));
    let mut far = seen.clone();
    far.returns.as_mut().unwrap().spec.timeline = 3;
    assert_eq!(broken(&far, begin(&far)), Some("I2"));
    assert_eq!(broken(&seen, with(&seen, |latches| latches.timeline = Some(2))), Some("I2"));
    assert_eq!(broken(&seen, with(&seen, |latches| latches.formed = None)), Some("I2"));
    let under_way = returns(Some(ReturnPhase::Preparing));
    let other = |latches: &mut Latches| latches.returning.as_mut().unwrap().uid = "u-other".to_owned();
    assert_eq!(broken(&under_way, with(&under_way, other)), Some("I2"));
    assert_eq!(broken(&under_way, with(&under_way, |latches| latches.returning = None)), Some("I2"), "not ended");
}

#[test]
fn members_are_set_aside_when_no_client_is_led_to_them() {
    let act = |seen: &Cluster| Act::SetAside { member: target(&seen.members[0].object.metadata), aside: aside() };
    let mut seen = returns(Some(ReturnPhase::SettingAside));
    let mut new = returns(None).members.remove(0);
    new.object.metadata.name = Some("a-next".to_owned());
    (new.object.spec.timeline, new.object.spec.joined) = (Some(2), None);
    seen.others.push(new);
    assert_eq!(broken(&seen, act(&seen)), Some("I16"));
    not_admitted(&mut seen);
    assert_eq!(broken(&seen, act(&seen)), None);
    let unprepared = Cluster { others: vec![], ..seen };
    assert_eq!(broken(&unprepared, act(&unprepared)), Some("I2"));
    let mut early = returns(Some(ReturnPhase::Preparing));
    not_admitted(&mut early);
    assert_eq!(broken(&early, act(&early)), Some("I2"));
}

#[test]
fn the_timeline_changes_when_no_pod_of_the_present_one_is_there() {
    let seen = set_aside(ReturnPhase::SettingAside);
    assert_eq!(broken(&seen, switch(&seen)), None);
    let mut runs = seen.clone();
    runs.others[0].pod = formed(1, 1).members[0].pod.clone();
    assert_eq!(broken(&runs, switch(&runs)), Some("I2"));
    let mut stray = seen.clone();
    stray.stray_pods = vec!["a-m9".to_owned()];
    assert_eq!(broken(&stray, switch(&stray)), Some("I2"));
    let mut stays = seen.clone();
    stays.members.push(returns(None).members.remove(0));
    assert_eq!(broken(&stays, switch(&stays)), Some("I2"));
}

#[test]
fn earlier_members_come_back_after_the_new_one_is_gone() {
    let back = |seen: &Cluster| Act::TakeBack {
        member: target(&seen.others[0].object.metadata),
        parked: Parked { term: Some(3), index: Some(7), at: noon().to_string() },
    };
    let seen = set_aside(ReturnPhase::TurningBack);
    assert_eq!(broken(&seen, back(&seen)), None);
    let mut beside = seen.clone();
    let mut new = returns(None).members.remove(0);
    new.object.metadata.name = Some("a-next".to_owned());
    new.object.spec.timeline = Some(2);
    beside.others.push(new);
    assert_eq!(broken(&beside, back(&beside)), Some("I2"));
    let mut forward = seen.clone();
    latches(&mut forward).returning = Some(record(ReturnPhase::Starting));
    assert_eq!(broken(&forward, back(&forward)), Some("I2"));
    let mut lower = back(&seen);
    if let Act::TakeBack { parked, .. } = &mut lower {
        parked.index = Some(6);
    }
    assert_eq!(broken(&seen, lower), Some("I3"));
}

#[test]
fn an_earlier_member_goes_after_the_return_has_ended() {
    let delete =
        |seen: &Cluster| Act::DeleteMember { member: target(&seen.others[0].object.metadata), why: String::new() };
    let mut seen = set_aside(ReturnPhase::TurningBack);
    assert_eq!(broken(&seen, delete(&seen)), Some("I4"));
    latches(&mut seen).returning = None;
    assert_eq!(broken(&seen, delete(&seen)), Some("I4"), "the cluster is in its timeline still");
    latches(&mut seen).timeline = Some(2);
    assert_eq!(broken(&seen, delete(&seen)), None);
}

#[test]
fn a_member_of_another_timeline_runs_no_etcd() {
    let mut seen = serving();
    let pod = seen.pod.take().unwrap();
    let create = |pod: &k8s_openapi::api::core::v1::Pod| Act::CreatePod(Box::new(pod.clone()));
    let mut fresh = pod.clone();
    fresh.metadata.labels.as_mut().unwrap().insert(key::ROLE.to_owned(), "learner".to_owned());
    assert_eq!(wrong(&seen, create(&fresh)), None);
    seen.member.spec.aside = Some(aside());
    assert_eq!(wrong(&seen, create(&fresh)), Some("I2"));
    seen.member.spec.aside = None;
    seen.member.spec.joined = None;
    seen.member.spec.timeline = Some(2);
    assert_eq!(wrong(&seen, create(&fresh)), Some("I2"));
}
