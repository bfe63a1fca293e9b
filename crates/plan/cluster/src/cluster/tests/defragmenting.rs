//! Defragmentation: which member, when, and in which steps.

use holdfast_api::defragmentation::{Defragmentation, DefragmentationMode, Defragmented, Defragmenting, Window};

use super::*;

/// Gives a member's file this size, and all files this part in use, in MiB: the members have the same data.
fn file(seen: &mut Observed, number: usize, mib: i64, used: i64) {
    for (name, answer) in &mut seen.answers {
        let Seen::Known(answer) = answer else { continue };
        answer.used_bytes = used << 20;
        if *name == named(number) {
            answer.db_bytes = mib << 20;
        }
    }
}

/// Moves the leadership.
fn lead(seen: &mut Observed, id: u64) {
    etcd(seen).leader = Some(id);
    for said in seen.answers.values_mut() {
        if let Seen::Known(said) = said {
            said.leader = id;
        }
    }
}

fn message(seen: &Observed, kind: &str) -> String {
    planned(seen).status.conditions.into_iter().find(|c| c.type_ == kind).unwrap().message
}

fn chosen(seen: &Observed) -> Option<String> {
    match act(seen) {
        Some(Act::Latch(latches)) => latches.defragmenting.map(|record| record.member),
        _ => None,
    }
}

fn wants(seen: &mut Observed, change: impl FnOnce(&mut Defragmentation)) {
    change(seen.cluster.spec.defragmentation.get_or_insert_default());
}

/// Member 0 leads.
fn half_free() -> Observed {
    let mut seen = formed(3, 3);
    for number in 0..3 {
        file(&mut seen, number, 1000, 100);
    }
    seen
}

#[test]
fn followers_come_first_and_the_most_free_space_first() {
    let mut seen = half_free();
    file(&mut seen, 2, 1200, 100);
    assert_eq!(chosen(&seen), Some(named(2)));
    file(&mut seen, 2, 100, 100);
    assert_eq!(chosen(&seen), Some(named(1)));
    file(&mut seen, 1, 100, 100);
    assert_eq!(chosen(&seen), Some(named(0)), "the leader is last");
    file(&mut seen, 0, 100, 100);
    assert_eq!(act(&seen), None);
}

#[test]
fn both_limits_hold_or_the_file_is_nearly_full() {
    let chosen = |mib, used| {
        let mut seen = formed(3, 3);
        file(&mut seen, 1, mib, used);
        chosen(&seen).is_some()
    };
    assert!(chosen(512, 256) && !chosen(512, 257) && !chosen(400, 150));
    // The quota of 8Gi is 3584 MiB.
    assert!(chosen(2900, 2300) && !chosen(2900, 2400) && !chosen(2800, 2200));
}

/// A follower counts the pages that a compaction has freed only after the next two writes to its file.
#[test]
fn the_member_that_uses_the_fewest_bytes_tells_the_size_of_the_data() {
    let mut seen = formed(3, 3);
    file(&mut seen, 1, 1000, 990);
    assert_eq!(chosen(&seen), None);
    let Some(Seen::Known(leader)) = seen.answers.get_mut(&named(0)) else { panic!() };
    leader.used_bytes = 100 << 20;
    assert_eq!(chosen(&seen), Some(named(1)));
}

#[test]
fn nothing_begins_beside_a_change_or_a_save() {
    let held = |change: fn(&mut Observed)| {
        let mut seen = half_free();
        change(&mut seen);
        chosen(&seen)
    };
    assert_eq!(held(|seen| wants(seen, |w| w.mode = Some(DefragmentationMode::Never))), None);
    assert_eq!(held(|seen| drop(seen.answers.insert(named(2), Seen::unknown("refused")))), None);
    assert_eq!(held(|seen| seen.members[2].claim = None), None);
    assert_eq!(held(|seen| etcd(seen).alarms.push(Alarm { member_id: 0x12, kind: AlarmKind::Corrupt })), None);
    assert_eq!(held(|seen| seen.saving.push(Saving { name: "s".to_owned(), since: noon() })), None);
    assert_eq!(held(|seen| seen.cluster.spec.paused = true), None);
    assert_eq!(held(|seen| seen.cluster.spec.replicas = 4), None);
}

#[test]
fn one_member_at_a_time_with_a_pause_and_in_its_window() {
    let mut seen = half_free();
    let done = |ago: SignedDuration, ineffective| Defragmented {
        member: named(1),
        at: (noon() - ago).to_string(),
        before_bytes: 5000 << 20,
        ineffective,
        ..Defragmented::default()
    };
    let with = |seen: &mut Observed, last: Defragmented| {
        seen.cluster.status.as_mut().unwrap().latches.defragmented = vec![last];
        chosen(seen)
    };
    assert_eq!(with(&mut seen, done(SignedDuration::from_mins(9), false)), None);
    assert_eq!(with(&mut seen, done(SignedDuration::from_mins(10), false)), Some(named(1)));
    assert_eq!(with(&mut seen, done(SignedDuration::from_hours(23), true)), Some(named(2)), "left alone for a day");
    assert_eq!(with(&mut seen, done(SignedDuration::from_hours(24), true)), Some(named(1)));
    let grew_back = Defragmented { before_bytes: 1200 << 20, ..done(SignedDuration::from_hours(23), false) };
    assert_eq!(with(&mut seen, grew_back), Some(named(2)), "another one would not last either");
    seen.cluster.status.as_mut().unwrap().latches.defragmented.clear();
    let window = |schedule: &str| Some(Window { schedule: schedule.to_owned(), seconds: 3600, time_zone: None });
    wants(&mut seen, |w| w.window = window("30 11 * * *"));
    assert!(chosen(&seen).is_some(), "noon is in it");
    wants(&mut seen, |w| w.window = window("0 11 * * *"));
    assert_eq!(chosen(&seen), None, "it has ended");
    wants(&mut seen, |w| w.window = window("1 12 * * *"));
    assert_eq!(chosen(&seen), None, "it has not begun");
}

#[test]
fn a_single_member_needs_a_window() {
    let mut seen = formed(1, 1);
    file(&mut seen, 0, 1000, 100);
    assert_eq!(chosen(&seen), None);
    let window = Window { schedule: "0 12 * * *".to_owned(), seconds: 3600, time_zone: None };
    wants(&mut seen, |w| w.window = Some(window));
    assert_eq!(chosen(&seen), Some(named(0)));
}

fn record(seen: &mut Observed) -> &mut Defragmenting {
    seen.cluster.status.as_mut().unwrap().latches.defragmenting.as_mut().unwrap()
}

fn gives_up(seen: &Observed) -> bool {
    matches!(act(seen), Some(Act::Latch(latches)) if latches.defragmenting.is_none())
}

/// A single member whose window is open, with this latch; a defragmentation that began has led the clients away.
fn single(began: Option<SignedDuration>) -> Observed {
    let mut seen = formed(1, 1);
    file(&mut seen, 0, 1000, 100);
    wants(&mut seen, |w| {
        w.window = Some(Window { schedule: "0 12 * * *".to_owned(), seconds: 3600, time_zone: None });
    });
    latched(&mut seen).unwrap();
    if let Some(ago) = began {
        record(&mut seen).began = Some((noon() - ago).to_string());
        set_role(&mut seen, 0, role::LEARNER);
    }
    seen
}

/// Members of another namespace that hang hold the operator's passes.
#[test]
fn a_member_keeps_its_clients_until_the_cluster_has_its_turn() {
    let mut seen = single(None);
    seen.has_turn = false;
    assert_eq!(act(&seen), None);
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Defragmenting"));
    assert!(message(&seen, "Progressing").contains("waits for its turn"));
    assert_eq!(condition(&seen, "Ready").0, "True");
    set_role(&mut seen, 0, role::LEARNER);
    assert!(matches!(act(&seen), Some(Act::AdmitClients { .. })), "the operator restarted, and others came first");
    set_role(&mut seen, 0, role::VOTER);
    record(&mut seen).at = (noon() - SignedDuration::from_hours(1)).to_string();
    assert!(gives_up(&seen), "another decision comes after an hour");
    let mut rolls = single(None);
    rolls.has_turn = false;
    rolls.cluster.spec.options = Some(Options { snapshot_count: Some(5000), ..Options::default() });
    assert!(gives_up(&rolls), "a changed spec comes first");
    seen = single(None);
    assert!(matches!(act(&seen), Some(Act::DismissClients { .. })));
}

#[test]
fn clients_come_back_when_etcd_cannot_be_asked_at_once() {
    let soon = || single(Some(SignedDuration::from_secs(5)));
    assert!(matches!(act(&soon()), Some(Act::Defragment { .. })));
    let mut seen = soon();
    seen.saving.push(Saving { name: "s".to_owned(), since: noon() });
    assert!(gives_up(&seen), "a save began at the same moment");
    let mut seen = soon();
    seen.refused_for = Some(SignedDuration::from_secs(3));
    assert!(gives_up(&seen), "etcd refuses");
    latched(&mut seen);
    assert!(matches!(act(&seen), Some(Act::AdmitClients { .. })));
    let mut three = half_free();
    latched(&mut three).unwrap();
    set_role(&mut three, 1, role::LEARNER);
    record(&mut three).began = Some(noon().to_string());
    three.answers.insert(named(2), Seen::unknown("refused"));
    assert!(gives_up(&three), "etcd is asked two seconds later");
}

#[test]
fn a_pause_gives_clients_back() {
    for began in [None, Some(SignedDuration::from_secs(1)), Some(SignedDuration::from_mins(1))] {
        let mut seen = single(began);
        set_role(&mut seen, 0, role::LEARNER);
        seen.cluster.spec.paused = true;
        assert!(gives_up(&seen), "{began:?}");
        latched(&mut seen);
        assert_eq!(act(&seen), Some(Act::AdmitClients { pod: pod_target(&seen, 0) }), "{began:?}");
        set_role(&mut seen, 0, role::VOTER);
        assert_eq!((act(&seen), waits(&seen)), (None, Some(Reason::Paused)));
    }
}

#[test]
fn no_cluster_without_a_client_endpoint_has_no_fault() {
    let mut seen = single(Some(SignedDuration::from_mins(5)));
    seen.client_endpoints = Some(vec![]);
    let conditions = &mut seen.cluster.status.as_mut().unwrap().conditions;
    let available = conditions.iter_mut().find(|c| c.type_ == "Available").unwrap();
    (available.status, available.last_transition_time) =
        ("False".to_owned(), Time(noon() - SignedDuration::from_secs(59)));
    assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"), "one member restarts in less");
    let conditions = &mut seen.cluster.status.as_mut().unwrap().conditions;
    let available = conditions.iter_mut().find(|c| c.type_ == "Available").unwrap();
    available.last_transition_time = Time(noon() - SignedDuration::from_mins(1));
    assert_eq!(condition(&seen, "Degraded"), pair("True", "NoClientEndpoint"));
    seen.cluster.spec.paused = true;
    assert_eq!(condition(&seen, "Degraded"), pair("True", "NoClientEndpoint"));
    seen.client_endpoints = Some(vec![format!("u-pod-{}", named(0))]);
    assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"));
}

/// Carries the latch of an act into the status.
fn latched(seen: &mut Observed) -> Option<Act> {
    let next = act(seen);
    if let Some(Act::Latch(latches)) = &next {
        seen.cluster.status.as_mut().unwrap().latches = (**latches).clone();
    }
    next
}

fn set_role(seen: &mut Observed, number: usize, role: &str) {
    let pod = seen.members[number].pod.as_mut().unwrap();
    pod.metadata.labels.get_or_insert_default().insert(key::ROLE.to_owned(), role.to_owned());
}

#[test]
fn a_leader_moves_the_leadership_and_loses_its_clients_first() {
    let mut seen = formed(3, 3);
    file(&mut seen, 0, 1000, 100);
    latched(&mut seen).unwrap();
    assert!(matches!(act(&seen), Some(Act::MoveLeader { name, .. }) if name == named(0)));
    lead(&mut seen, 0x11);
    assert!(matches!(act(&seen), Some(Act::DismissClients { pod }) if pod.name == named(0)));
    set_role(&mut seen, 0, role::LEARNER);
    latched(&mut seen).unwrap();
    assert_eq!(act(&seen), None, "its clients leave");
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Defragmenting"));
    assert_eq!(condition(&seen, "Ready").0, "True");
    record(&mut seen).began = Some((noon() - SignedDuration::from_secs(2)).to_string());
    assert!(matches!(act(&seen), Some(Act::Defragment { name, member_id: 0x10, .. }) if name == named(0)));
    // etcd has answered, and the act has let clients in.
    file(&mut seen, 0, 100, 100);
    set_role(&mut seen, 0, role::VOTER);
    latched(&mut seen).unwrap();
    let latches = &seen.cluster.status.as_ref().unwrap().latches;
    assert_eq!(latches.defragmenting, None);
    let [done] = &latches.defragmented[..] else { panic!("{latches:?}") };
    assert_eq!((done.before_bytes >> 20, done.after_bytes >> 20, done.ineffective), (1000, 100, false));
    assert_eq!(act(&seen), None);
}

#[test]
fn a_defragmentation_without_its_conditions_is_given_up_before_etcd_is_asked() {
    let under_way = || {
        let mut seen = half_free();
        latched(&mut seen).unwrap();
        set_role(&mut seen, 1, role::LEARNER);
        seen
    };
    let mut seen = under_way();
    assert!(!gives_up(&seen));
    seen.answers.insert(named(2), Seen::unknown("refused"));
    assert!(gives_up(&seen));
    latched(&mut seen);
    assert!(matches!(act(&seen), Some(Act::AdmitClients { pod }) if pod.name == named(1)), "clients come back");

    // etcd may be at work: another member that is not well holds up a repetition only.
    let mut seen = under_way();
    record(&mut seen).began = Some((noon() - SignedDuration::from_secs(2)).to_string());
    seen.answers.insert(named(2), Seen::unknown("refused"));
    assert!(!gives_up(&seen) && !matches!(act(&seen), Some(Act::Defragment { .. })), "{:?}", act(&seen));
    let record = seen.cluster.status.as_mut().unwrap().latches.defragmenting.as_mut().unwrap();
    record.began = Some((noon() - SignedDuration::from_mins(10)).to_string());
    assert!(gives_up(&seen), "after ten minutes");

    // The leader ended, and etcd chose the member: the leadership moves once more.
    let mut seen = under_way();
    let record = seen.cluster.status.as_mut().unwrap().latches.defragmenting.as_mut().unwrap();
    record.began = Some(noon().to_string());
    lead(&mut seen, 0x11);
    assert!(matches!(act(&seen), Some(Act::MoveLeader { name, .. }) if name == named(1)), "{:?}", act(&seen));

    // An etcd that ended while it defragmented would end again.
    let mut seen = under_way();
    let record = seen.cluster.status.as_mut().unwrap().latches.defragmenting.as_mut().unwrap();
    record.began = Some((noon() - SignedDuration::from_mins(1)).to_string());
    assert!(matches!(act(&seen), Some(Act::Defragment { .. })), "{:?}", act(&seen));
    let status = seen.members[1].pod.as_mut().unwrap().status.as_mut().unwrap();
    let state = status.container_statuses.as_mut().unwrap()[0].state.as_mut().unwrap();
    state.running.as_mut().unwrap().started_at = Some(Time(noon() - SignedDuration::from_secs(30)));
    assert!(gives_up(&seen));
    latched(&mut seen);
    assert!(seen.cluster.status.as_ref().unwrap().latches.defragmented[0].ineffective);
}

#[test]
fn a_full_database_waits_for_no_window_and_its_alarm_ends_below_the_quota() {
    let mut seen = formed(3, 3);
    wants(&mut seen, |w| {
        w.window = Some(Window { schedule: "0 2 * * *".to_owned(), seconds: 60, time_zone: None });
    });
    etcd(&mut seen).alarms.push(Alarm { member_id: 0x11, kind: AlarmKind::NoSpace });
    file(&mut seen, 1, 3600, 3500);
    assert_eq!(act(&seen), None, "no free page");
    assert_eq!(condition(&seen, "Degraded"), pair("True", "SpaceExhausted"));
    for part in
        ["3600 MiB", "3500 MiB are in use", "quota is 3584 MiB", "7168 MiB", "etcdctl compact", "contents --top"]
    {
        let told = message(&seen, "Degraded");
        assert!(told.contains(part), "{part}: {told}");
    }
    file(&mut seen, 1, 3600, 3000);
    assert_eq!(chosen(&seen), Some(named(1)));
    assert_eq!(condition(&seen, "Degraded"), pair("True", "AlarmRaised"));
    assert!(message(&seen, "Degraded").contains("Holdfast defragments"));
    file(&mut seen, 1, 3000, 3000);
    let alarm = Alarm { member_id: 0x11, kind: AlarmKind::NoSpace };
    assert_eq!(act(&seen), Some(Act::Disarm { alarm, cluster_id: CLUSTER_ID }));
}

/// The condition and the choice of the member follow the same facts.
#[test]
fn free_space_that_stays_in_a_full_file_is_told_with_its_cause() {
    let full = || {
        let mut seen = formed(3, 3);
        etcd(&mut seen).alarms.push(Alarm { member_id: 0x11, kind: AlarmKind::NoSpace });
        file(&mut seen, 1, 3600, 3000);
        seen
    };
    let told = |seen: &Observed, part: &str| {
        assert_eq!(act(seen), None);
        assert_eq!(condition(seen, "Degraded"), pair("True", "SpaceExhausted"));
        let message = message(seen, "Degraded");
        assert!(message.contains(part), "{part}: {message}");
    };
    let mut never = full();
    wants(&mut never, |w| w.mode = Some(DefragmentationMode::Never));
    told(&never, "mode is Never");

    let mut failed = full();
    let done = |seconds| Defragmented {
        member: named(1),
        at: (noon() - SignedDuration::from_secs(seconds)).to_string(),
        before_bytes: 3600 << 20,
        after_bytes: 3600 << 20,
        ineffective: true,
    };
    let latches = |seen: &mut Observed, done| seen.cluster.status.as_mut().unwrap().latches.defragmented = vec![done];
    latches(&mut failed, done(119));
    told(&failed, "hardly any space back");
    // The alarm of another member that has room ends: no defragmentation would come first.
    etcd(&mut failed).alarms.push(Alarm { member_id: 0x12, kind: AlarmKind::NoSpace });
    assert!(matches!(act(&failed), Some(Act::Disarm { alarm, .. }) if alarm.member_id == 0x12));
    latches(&mut failed, done(120));
    assert_eq!(chosen(&failed), Some(named(1)), "etcd may have freed the pages of the compaction later");
    assert_eq!(condition(&failed, "Degraded"), pair("True", "AlarmRaised"));
}
