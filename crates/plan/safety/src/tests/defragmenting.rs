//! Defragmentation: deliberate breaches.

use holdfast_api::defragmentation::Defragmenting;
use holdfast_api::role;

use super::*;
use crate::fixtures::CLUSTER_ID;
use holdfast_base::seen::cluster::Saving;
use holdfast_base::{Alarm, AlarmKind};

/// A cluster whose last member has no clients, and whose latch names it.
fn under_way() -> Cluster {
    let mut seen = formed(3, 3);
    let record = Defragmenting { member: named(2), began: Some(noon().to_string()), ..Defragmenting::default() };
    latches(&mut seen).defragmenting = Some(record);
    set_role(&mut seen, 2, role::LEARNER);
    seen
}

fn set_role(seen: &mut Cluster, n: usize, role: &str) {
    let labels = seen.members[n].pod.as_mut().unwrap().metadata.labels.as_mut().unwrap();
    labels.insert(key::ROLE.to_owned(), role.to_owned());
}

fn defragment(seen: &Cluster, n: usize) -> Act {
    let member_id = 0x10 + u64::try_from(n).unwrap();
    Act::Defragment { pod: pod_target(seen, n), name: named(n), member_id, cluster_id: CLUSTER_ID }
}

#[test]
fn a_member_stands_still_only_beside_voters_that_are_well() {
    let seen = under_way();
    assert_eq!(broken(&seen, defragment(&seen, 2)), None);
    assert_eq!(broken(&seen, defragment(&seen, 1)), Some("I1"), "the latch names another member");
    let breach = |change: fn(&mut Cluster)| {
        let mut seen = under_way();
        change(&mut seen);
        broken(&seen, defragment(&seen, 2))
    };
    assert_eq!(breach(|seen| drop(seen.answers.insert(named(1), Seen::unknown("refused")))), Some("I1"));
    assert_eq!(breach(|seen| running(seen.members[1].pod.as_mut().unwrap(), false)), Some("I1"));
    assert_eq!(breach(|seen| set_role(seen, 1, role::LEARNER)), Some("I1"));
    assert_eq!(breach(|seen| seen.etcd = Seen::unknown("timed out")), Some("I1"));
    assert_eq!(breach(|seen| seen.saving.push(Saving { name: "s".to_owned(), since: noon() })), Some("I1"));
    assert_eq!(breach(|seen| latches(seen).defragmenting.as_mut().unwrap().began = None), Some("I1"));
    assert_eq!(breach(|seen| set_role(seen, 2, role::VOTER)), Some("I16"));
    assert_eq!(breach(|seen| etcd(seen).members[1].learner = true), Some("I11"));
    let corrupt = |seen: &mut Cluster| etcd(seen).alarms.push(Alarm { member_id: 0x11, kind: AlarmKind::Corrupt });
    assert_eq!(breach(corrupt), Some("I3"));
    let leads = |seen: &mut Cluster| {
        etcd(seen).leader = Some(0x12);
        for said in seen.answers.values_mut() {
            if let Seen::Known(said) = said {
                said.leader = 0x12;
            }
        }
    };
    assert_eq!(breach(leads), Some("I1"));
}

#[test]
fn a_defragmentation_is_decided_and_begun_before_etcd_is_asked() {
    let latch = |seen: &Cluster, record: Option<Defragmenting>| {
        let mut latches = seen.latches();
        latches.defragmenting = record;
        broken(seen, Act::Latch(Box::new(latches)))
    };
    let idle = formed(3, 3);
    let decided = Defragmenting { member: named(2), ..Defragmenting::default() };
    let begun = Defragmenting { began: Some(noon().to_string()), ..decided.clone() };
    assert_eq!(latch(&idle, Some(decided.clone())), None);
    assert_eq!(latch(&idle, Some(begun)), Some("I1"), "without a decision");
    assert_eq!(latch(&idle, Some(Defragmenting { member: "b-m0".to_owned(), ..decided.clone() })), Some("I1"));
    let seen = under_way();
    assert_eq!(latch(&seen, Some(Defragmenting { member: named(1), ..decided })), Some("I1"), "one at a time");
    assert_eq!(latch(&seen, None), None);
    let clients = |seen: &Cluster, n: usize| broken(seen, Act::AdmitClients { pod: pod_target(seen, n) });
    assert_eq!(clients(&seen, 2), Some("I16"));
    let dismiss = |n: usize| broken(&seen, Act::DismissClients { pod: pod_target(&seen, n) });
    assert_eq!((dismiss(2), dismiss(1)), (None, Some("I16")));
}
