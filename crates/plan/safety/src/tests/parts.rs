//! Breach tables of scaling, a member's pass: when its Pod, its claim and its object are deleted, and when no object is created
//! any more.

use holdfast_api::member::{Departure, Leaving, Parked, Removed};

use super::*;
use crate::fixtures::noon;

fn parked() -> Option<Parked> {
    Some(Parked { term: None, index: None, at: noon().to_string() })
}

fn leaving() -> Option<Leaving> {
    Some(Leaving { why: Departure::ScaledIn, evidence: None, at: noon().to_string() })
}

fn removed() -> Option<Removed> {
    Some(Removed { cluster_id: "c1".to_owned(), member_id: Some("10".to_owned()), at: noon().to_string() })
}

fn newer(meta: &mut ObjectMeta) {
    meta.resource_version = Some("8".to_owned());
}

type Twist = fn(&mut Member);

fn refused(good: &Member, act: &Act, changes: &[(&str, &'static str, Twist)]) {
    assert_eq!(wrong(good, act.clone()), None, "the good value");
    for (what, invariant, change) in changes {
        let mut seen = good.clone();
        change(&mut seen);
        assert_eq!(wrong(&seen, act.clone()), Some(*invariant), "{what}");
    }
}

/// Returns the cluster of a member, to change.
fn its_cluster(seen: &mut Member) -> &mut holdfast_api::EtcdCluster {
    match &mut seen.cluster {
        Seen::Known(Some(cluster)) => cluster,
        Seen::Known(None) | Seen::Unknown(_) => panic!("there is no cluster"),
    }
}

/// Returns a member that etcd does not list any more, and that is being deleted.
fn going() -> Member {
    let mut seen = serving();
    seen.member.metadata.deletion_timestamp = Some(earlier());
    seen.member.spec.leaving = leaving();
    seen.member.spec.removed = removed();
    seen
}

/// Changes after which a cluster may still need the member.
const COUNTED_ON: [(&str, Twist); 5] = [
    ("there is no proof", |s| s.member.spec.removed = None),
    ("the cluster is unknown", |s| s.cluster = Seen::unknown("no")),
    ("it never joined, and etcd may list it", |s| {
        s.member.spec.removed = None;
        s.member.spec.joined = None;
        s.member.spec.role = Birth::Joiner;
    }),
    ("it is parked", |s| {
        s.member.spec.removed = None;
        s.member.spec.parked = parked();
    }),
    ("it was deleted by hand while it leaves", |s| {
        s.member.spec.removed = None;
        s.member.spec.leaving = leaving();
    }),
];

/// Changes after which no cluster needs the member, also without the proof.
const EXPENDABLE: [Twist; 3] = [
    |s| s.cluster = Seen::Known(None),
    |s| its_cluster(s).metadata.deletion_timestamp = Some(earlier()),
    |s| {
        s.member.spec.joined = None;
        its_cluster(s).status = None;
    },
];

fn counted_on(good: &Member, act: &Act) {
    for (what, change) in COUNTED_ON {
        let mut seen = good.clone();
        change(&mut seen);
        assert_eq!(wrong(&seen, act.clone()), Some("I4"), "{what}");
    }
    for (n, change) in EXPENDABLE.into_iter().enumerate() {
        let mut seen = good.clone();
        seen.member.spec.removed = None;
        change(&mut seen);
        assert_eq!(wrong(&seen, act.clone()), None, "expendable {n}");
    }
}

#[test]
fn a_pod_ends_when_its_member_is_removed_or_parked() {
    let good = going();
    let act = Act::DeletePod { pod: target(&good.pod.as_ref().unwrap().metadata), why: String::new() };
    refused(
        &good,
        &act,
        &[
            ("there is no proof", "I1", |s| s.member.spec.removed = None),
            ("the cluster is unknown", "I1", |s| s.cluster = Seen::unknown("no")),
            ("the cluster is paused", "I13", |s| its_cluster(s).spec.paused = true),
            ("it has changed", "I12", |s| newer(&mut s.pod.as_mut().unwrap().metadata)),
            ("it is another's", "I13", |s| s.pod.as_mut().unwrap().metadata.owner_references = None),
        ],
    );
    let mut early = good.clone();
    early.member.metadata.deletion_timestamp = None;
    assert_eq!(wrong(&early, act.clone()), None, "its object stays until the operator deletes the object");
    let mut good = serving();
    good.member.spec.parked = parked();
    its_cluster(&mut good).spec.replicas = 0;
    refused(
        &good,
        &act,
        &[
            ("it is not latched as parked", "I1", |s| s.member.spec.parked = None),
            ("one is wanted again", "I1", |s| its_cluster(s).spec.replicas = 1),
            ("the cluster is unknown", "I1", |s| s.cluster = Seen::unknown("no")),
        ],
    );
}

#[test]
fn a_claim_goes_by_proof_after_its_pod_and_as_the_policy_says() {
    let mut good = going();
    good.pod = None;
    let act = Act::DeleteClaim { claim: target(&good.claim.as_ref().unwrap().metadata), why: String::new() };
    counted_on(&good, &act);
    refused(
        &good,
        &act,
        &[
            ("the object stays", "I4", |s| s.member.metadata.deletion_timestamp = None),
            ("the cluster is paused", "I13", |s| its_cluster(s).spec.paused = true),
            ("it is another's", "I4", |s| s.claim.as_mut().unwrap().metadata.labels = None),
            ("it has changed", "I12", |s| newer(&mut s.claim.as_mut().unwrap().metadata)),
            ("it was made anew", "I12", |s| s.claim.as_mut().unwrap().metadata.uid = Some("x".to_owned())),
            ("its Pod is there", "I4", |s| s.pod = Some(pod_of(&s.member))),
            ("it is kept", "I4", |s| its_cluster(s).spec.storage.retention = Retention::Retain),
        ],
    );
}

#[test]
fn a_member_is_let_go_by_proof_when_its_parts_are_gone() {
    let mut good = going();
    (good.pod, good.claim) = (None, None);
    let act = Act::ReleaseMember { member: target(&good.member.metadata) };
    counted_on(&good, &act);
    let claim = |s: &mut Member| s.claim = Some(claim_of(&s.member));
    refused(
        &good,
        &act,
        &[
            ("it stays", "I4", |s| s.member.metadata.deletion_timestamp = None),
            ("the cluster is paused", "I13", |s| its_cluster(s).spec.paused = true),
            ("it has changed", "I12", |s| newer(&mut s.member.metadata)),
            ("its Pod is there", "I21", |s| s.pod = Some(pod_of(&s.member))),
            ("its claim is there", "I21", claim),
        ],
    );
    let mut kept = good.clone();
    claim(&mut kept);
    its_cluster(&mut kept).spec.storage.retention = Retention::Retain;
    assert_eq!(wrong(&kept, act), None);
}

#[test]
fn nothing_is_made_for_a_member_that_is_removed_or_parked() {
    let mut good = serving();
    good.pod = None;
    let Some(pod) = holdfast_cluster::member::plan(&good, noon()).act else { panic!("a Pod is made") };
    refused(
        &good,
        &pod,
        &[
            ("it is removed", "I11", |s| s.member.spec.removed = removed()),
            ("it is parked", "I11", |s| {
                s.member.spec.parked = parked();
                its_cluster(s).spec.replicas = 0;
            }),
        ],
    );
    let mut good = unborn(None);
    (good.pod, good.claim) = (None, None);
    let Some(claim) = holdfast_cluster::member::plan(&good, noon()).act else { panic!("a claim is made") };
    refused(&good, &claim, &[("it is removed", "I11", |s| s.member.spec.removed = removed())]);
}
