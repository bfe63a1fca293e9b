//! The choices after a lost quorum: their order, what is unknown, and the object to apply.

use serde_json::{Value, from_value, json};

use super::*;

const SCREEN: Screen = Screen { width: 100, coloured: false, is_terminal: false };

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// Term, index and revision of a member that has answered.
type End = Option<(u64, u64, i64)>;

/// A cluster whose members have these ends.
fn cluster(ends: &[(&str, End)]) -> EtcdCluster {
    let members = ends.iter().map(|(name, end)| {
        let end = end.map(|(term, index, revision)| json!({"term": term, "index": index, "revision": revision}));
        json!({"name": name, "role": "voter", "healthy": end.is_some(), "reason": "its node is silent", "dataEnd": end})
    });
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster", "metadata": {"name": "a", "namespace": "prod"},
        "spec": {"replicas": 3, "version": "3.6.16", "storage": {"size": "1Gi"}},
        "status": {"members": members.collect::<Vec<_>>()},
    }))
    .unwrap()
}

fn member(name: &str, has_claim: bool) -> EtcdMember {
    let claim = has_claim.then(|| json!({"name": format!("data-{name}"), "uid": "c"}));
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdMember", "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "a", "uid": "u"}, "role": "seed", "version": "3.6.16", "clusterToken": "t",
                 "joined": {"clusterID": "c0", "memberID": "1"}},
        "status": {"claim": claim},
    }))
    .unwrap()
}

/// An attempt that has failed, and keeps its name.
fn failed() -> EtcdRestore {
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdRestore", "metadata": {"name": "a-timeline-2"},
        "spec": {"clusterRef": {"name": "a"}, "timeline": 2, "fromMember": {"name": "a-1"}}, "status": {"phase": "Failed"},
    }))
    .unwrap()
}

fn saved(name: &str, phase: &str, completed: &str, revision: i64) -> EtcdSnapshot {
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdSnapshot", "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "a"}, "destination": {"storeRef": {"name": "vault"}}},
        "status": {"phase": phase, "completedAt": completed,
                   "artifact": {"uri": "s3://b/k", "key": "k", "dbBytes": 7, "size": "7 B", "compression": "zstd", "storedBytes": 5, "sha256": "aa", "etcdVersion": "3.6.16",
                                "revision": revision}},
    }))
    .unwrap()
}

fn ways(recovery: &Recovery) -> Vec<(Way, &str)> {
    recovery.choices.iter().map(|choice| (choice.way, choice.name.as_str())).collect()
}

#[test]
fn of_several_survivors_none_is_called_the_best() {
    let ends = [("a-1", Some((3, 90, 40))), ("a-2", Some((3, 91, 41))), ("a-3", None)];
    let members = [member("a-1", true), member("a-2", true), member("a-3", false)];
    let recovery = Recovery::plan(&cluster(&ends), &members, &[], (&[], &[]), now());
    assert_eq!(ways(&recovery), [(Way::Wait, ""), (Way::Member, "a-2"), (Way::Member, "a-1")]);
    assert_eq!(recovery.voters, Voters { all: 3, with_volume: 2, needed: 2 });
    let [_, best, other] = &recovery.choices[..] else { panic!("{recovery:?}") };
    assert_eq!(best.revision, Some(41));
    assert!(best.loses.contains("a-1 (term 3, applied 90) and a-3 (unknown)"), "{}", best.loses);
    assert!(other.loses.contains("a-2 (term 3, applied 91) and a-3 (unknown)"), "{}", other.loses);
    // The log of a-1 may go further than that of a-2.
    assert_eq!((&recovery.survivor, recovery.object().unwrap().as_str()), (&None, ""));
    assert!(recovery.render(SCREEN).unwrap().contains("holdfast agent survey"), "{}", recovery.render(SCREEN).unwrap());
}

#[test]
fn without_the_volumes_of_a_majority_nobody_is_waited_for() {
    let ends = [("a-1", Some((3, 90, 40))), ("a-2", None), ("a-3", None)];
    let members = [member("a-1", true), member("a-2", false), member("a-3", false)];
    let snapshots = [
        saved("old", "Complete", "2026-11-30T10:00:00Z", 30),
        saved("newest", "Complete", "2026-11-30T11:30:00Z", 38),
        saved("failed", "Failed", "2026-11-30T11:50:00Z", 39),
    ];
    let recovery = Recovery::plan(&cluster(&ends), &members, &[failed()], (&snapshots, &[]), now());
    assert_eq!(ways(&recovery), [(Way::Member, "a-1"), (Way::Snapshot, "newest")]);
    let text = recovery.render(SCREEN).unwrap();
    for said in ["2 of 3 voters are needed, and 1 of them has", "30m ago", "3/90"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let object: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(object["metadata"], json!({"name": "a-timeline-2-2", "namespace": "prod"}));
    assert_eq!(object["spec"]["fromMember"], json!({"name": "a-1", "acceptLoss": true}));
    let spec: holdfast_api::EtcdRestoreSpec = from_value(object["spec"].clone()).unwrap();
    assert_eq!((spec.timeline, spec.cluster_ref.name.as_str()), (2, "a"));
}

#[test]
fn a_member_that_is_set_aside_or_removed_is_no_survivor() {
    let mut aside = member("a-0", true);
    aside.spec.aside = Some(holdfast_api::timeline::Aside::default());
    let mut removed = member("a-9", true);
    removed.spec.removed = Some(holdfast_api::member::Removed::default());
    let recovery = Recovery::plan(&cluster(&[]), &[aside, removed], &[], (&[], &[]), now());
    assert_eq!((recovery.survivor.as_deref(), recovery.object().unwrap().as_str()), (None, ""));
    assert!(recovery.choices.is_empty(), "{recovery:?}");
}

#[test]
fn voters_without_a_member_count_and_a_pending_return_comes_first() {
    let mut of = cluster(&[("a-1", Some((3, 90, 40)))]);
    of.status.as_mut().unwrap().voters = 3;
    let mut open = failed();
    open.status = None;
    let recovery = Recovery::plan(&of, &[member("a-1", true)], &[open], (&[], &[]), now());
    assert_eq!(recovery.voters, Voters { all: 3, with_volume: 1, needed: 2 });
    assert!(recovery.choices[0].loses.contains("2 voters without an EtcdMember"), "{recovery:?}");
    let text = recovery.render(SCREEN).unwrap();
    assert!(text.contains("EtcdRestore a-timeline-2 comes first") && !text.contains("kind: EtcdRestore"), "{text}");
}
