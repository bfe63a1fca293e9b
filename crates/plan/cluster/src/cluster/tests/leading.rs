//! A user's request for another leader: in one table when the leadership moves, and how the request ends.

use super::*;
use holdfast_base::{Unelectable, meta};

fn asked(seen: &mut Observed, name: &str) {
    seen.cluster.metadata.annotations = labels(&[(key::MOVE_LEADER, name)]);
}

fn ended(seen: &Observed) -> Option<Option<Unelectable>> {
    match act(seen)? {
        Act::EndLeaderRequest { cluster, member, refused } => {
            assert_eq!(cluster, Target::from(&seen.cluster.metadata));
            assert_eq!(Some(member.as_str()), meta::annotation(&seen.cluster.metadata, key::MOVE_LEADER));
            Some(refused)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_leadership_moves_to_the_named_voter_when_every_voter_is_well() {
    for n in 1..3 {
        let mut seen = formed(3, 3);
        asked(&mut seen, &named(n));
        let to = [0x10, 0x11, 0x12][n];
        let over = Act::MoveLeader { name: named(0), from: 0x10, to, cluster_id: CLUSTER_ID };
        assert_eq!(act(&seen), Some(over), "{n}");
        assert_eq!(condition(&seen, "Progressing"), pair("False", "Idle"), "the spec asks for no leader");
        assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
    }
}

#[test]
fn a_request_waits_for_every_voter() {
    type Change = fn(&mut Observed);
    let changes: [(&str, Change); 4] = [
        ("the named one is silent", |s| drop(s.answers.insert(named(1), Seen::unknown("no")))),
        ("a third one is silent", |s| drop(s.answers.insert(named(2), Seen::unknown("no")))),
        ("the named one lags", |s| {
            let said = Answer { applied_index: 1, ..answer(1) };
            s.answers.insert(named(1), Seen::Known(said));
        }),
        ("no member leads", |s| etcd(s).leader = None),
    ];
    for (what, change) in changes {
        let mut seen = formed(3, 3);
        asked(&mut seen, &named(1));
        change(&mut seen);
        assert!(!matches!(act(&seen), Some(Act::MoveLeader { .. } | Act::EndLeaderRequest { .. })), "{what}");
    }
    let mut paused = formed(3, 3);
    asked(&mut paused, &named(1));
    paused.cluster.spec.paused = true;
    assert_eq!(act(&paused), None);
}

#[test]
fn a_request_ends_with_the_leader_or_with_a_refusal() {
    let mut seen = formed(3, 3);
    asked(&mut seen, &named(0));
    assert_eq!(ended(&seen), Some(None), "it leads");
    asked(&mut seen, "a-none");
    assert_eq!(ended(&seen), Some(Some(Unelectable::Absent)));
    asked(&mut seen, "");
    assert_eq!(ended(&seen), Some(Some(Unelectable::Absent)));
    seen.cluster.metadata.annotations = None;
    assert_eq!(act(&seen), None);
}
