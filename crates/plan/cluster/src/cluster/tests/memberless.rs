//! A cluster that has formed by its status, and that has no member: for example, restored with its status.

use super::*;

/// Returns a cluster of three that has formed by its status, and has no member.
fn memberless(token: Option<&str>) -> Observed {
    let mut seen = formed(3, 3);
    seen.members.clear();
    seen.answers.clear();
    seen.etcd = Seen::unknown("there is no Pod to ask");
    seen.cluster.status.as_mut().unwrap().cluster_token = token.map(str::to_owned);
    seen
}

#[test]
fn a_status_of_another_life_is_told_as_such_and_nothing_is_made_of_it() {
    let mut seen = memberless(Some("ns-a-u-old"));
    for paused in [false, true] {
        seen.cluster.spec.paused = paused;
        let plan = planned(&seen);
        assert_eq!((plan.act, plan.ensures), (None, vec![]));
        for (kind, status) in [("Ready", "False"), ("Degraded", "True")] {
            assert_eq!(condition(&seen, kind), pair(status, "ForeignStatusFound"), "paused: {paused}");
        }
    }
    seen.cluster.spec.paused = false;
    assert_eq!(condition(&seen, "Available"), pair("False", "ForeignStatusFound"));
    let message = planned(&seen).waiting.unwrap().message;
    for said in ["u-old", "u-a", "etcd cluster c1", "none of its members and claims is here"] {
        assert!(message.contains(said), "{said}: {message}");
    }
    // The status keeps the token and the names of the earlier members.
    let before = seen.cluster.status.clone();
    let status = planned(&seen).status;
    assert_eq!(status.cluster_token.as_deref(), Some("ns-a-u-old"));
    let names: Vec<_> = status.members.iter().map(|m| (m.name.as_str(), m.healthy, m.role.is_some())).collect();
    assert_eq!(names, [("a-m0", false, false), ("a-m1", false, false), ("a-m2", false, false)]);
    assert_eq!(status.latches, before.unwrap().latches);
    seen.cluster.status = Some(status.clone());
    assert_eq!(planned(&seen).status, status, "and nothing is written again");
    // Holdfast does not restore over the remaining data either.
    restore(&mut seen, Some("k1"));
    assert_eq!((act(&seen), condition(&seen, "Ready")), (None, pair("False", "ForeignStatusFound")));
}

/// Where an earlier version has overwritten the token, only the remaining objects prove the earlier cluster.
#[test]
fn what_is_left_of_another_life_is_told() {
    let volume = || vec![ForeignVolume { claim: "data-a-old".to_owned(), going: false }];
    let member = || vec!["a-old".to_owned()];
    for (members, volumes, says) in [
        (member(), vec![], "no claim is here, and these EtcdMembers: a-old"),
        (vec![], volume(), "no EtcdMember is here, and these claims: data-a-old"),
        (member(), volume(), "these EtcdMembers are here: a-old; and these claims: data-a-old"),
    ] {
        let mut seen = memberless(Some("ns-a-u-a"));
        (seen.foreign_members, seen.foreign) = (members, volumes);
        assert_eq!(waits(&seen), Some(Reason::ForeignStatusFound));
        let message = planned(&seen).waiting.unwrap().message;
        assert!(message.ends_with(says), "{message}");
    }
}

/// Lost members alone do not prove an earlier cluster: the status is the object's own, or an earlier version wrote it.
#[test]
fn a_cluster_that_lost_its_members_has_lost_its_quorum() {
    for token in [Some("ns-a-u-a"), None] {
        let seen = memberless(token);
        assert_eq!(waits(&seen), Some(Reason::QuorumLost));
        let message = planned(&seen).waiting.unwrap().message;
        assert!(message.contains("EtcdMembers were removed"), "{message}");
        assert_eq!(planned(&seen).status.cluster_token.as_deref(), Some("ns-a-u-a"));
    }
}
