//! One row for each verdict, and a property: no other start is allowed.

use std::collections::BTreeSet;
use std::fs;

use holdfast_contract::{DATA_DIR, ExitClass};
use proptest::prelude::*;

use super::run::{is_known, observe};
use super::*;
use crate::volume_identity::Restored;

const CLAIM: &str = "claim-1";
const WAL: Metadata = Metadata { cluster_id: 0xc1, member_id: 0xa1 };

fn flags() -> IdentityFlags {
    IdentityFlags {
        cluster_token: "token-1".to_owned(),
        member_name: "db-x".to_owned(),
        member_uid: "member-1".to_owned(),
        claim_uid: CLAIM.to_owned(),
    }
}

fn request() -> GateRequest {
    GateRequest { identity: flags(), exec: vec!["etcd".to_owned()], ..GateRequest::default() }
}

fn empty() -> Facts {
    Facts { beside: vec![], data: vec![], identity: Ok(None), wal: Ok(None), database: false }
}

fn restored() -> Restored {
    Restored {
        revision: Some(9),
        revision_bump: 0,
        point: None,
        survivor: None,
        came_along: None,
        not_compared: None,
        restore_uid: "restore-1".to_owned(),
        uri: String::new(),
        db_bytes: 1,
        sha256: String::new(),
        taken_at: String::new(),
        from_cluster: String::new(),
        without_quorum: false,
        other: serde_json::Map::new(),
    }
}

/// A volume on which this member has run.
fn used() -> Facts {
    let identity = Identity {
        start_count: 3,
        pod_start: 2,
        cluster_id: Some("c1".to_owned()),
        member_id: Some("a1".to_owned()),
        ..Identity::new(&flags())
    };
    Facts {
        data: vec!["member".to_owned()],
        identity: Ok(Some(identity)),
        wal: Ok(Some(WAL)),
        database: true,
        ..empty()
    }
}

/// A full volume blocks only a start that has to write a new identity.
#[test]
fn only_the_count_of_its_starts_may_stay_unwritten() {
    let facts = used();
    let there = facts.identity.clone().unwrap().unwrap();
    assert!(is_known(&facts, &Identity { start_count: 4, ..there.clone() }));
    assert!(!is_known(&facts, &Identity { start_count: 4, pod_start: 3, ..there.clone() }), "another Pod (I27)");
    assert!(!is_known(&facts, &Identity { member_id: None, ..there.clone() }), "another log (I5)");
    assert!(!is_known(&empty(), &there));
}

/// The operator's annotations on the Pod.
fn told(may_start_empty: Option<&str>, started: u64) -> Annotations {
    Annotations { may_start_empty: may_start_empty.map(str::to_owned), started: Ok(started), joined: Ok(None) }
}

fn told_joined(ids: &str) -> Annotations {
    Annotations { joined: Ok(Some(ids.to_owned())), ..told(Some(CLAIM), 0) }
}

fn changed(change: impl FnOnce(&mut Facts, &mut Identity)) -> Facts {
    let mut facts = used();
    let mut identity = facts.identity.clone().unwrap().unwrap();
    change(&mut facts, &mut identity);
    if facts.identity.as_ref().is_ok_and(Option::is_some) {
        facts.identity = Ok(Some(identity));
    }
    facts
}

fn verdict(facts: &Facts, request: &GateRequest, told: &Annotations) -> String {
    match decide(facts, request, told) {
        Decision::Start { state, first, .. } => format!("start {state:?} first={first}"),
        Decision::Refuse(report) => {
            assert!(report.message.contains("Nothing was touched") || report.message.contains(". "), "says what to do");
            report.verdict
        }
    }
}

#[test]
fn every_verdict_has_its_row() {
    let seed = GateRequest { seed: true, ..request() };
    let restore = GateRequest { seed: true, restore_uid: Some("restore-1".to_owned()), ..request() };
    let allowed = Some(CLAIM);
    let rows = vec![
        // An empty volume.
        (empty(), request(), None, "EmptyVolume"),
        (empty(), seed.clone(), None, "EmptyVolume"),
        (empty(), seed.clone(), Some("claim-0"), "EmptyVolume"),
        (empty(), seed.clone(), Some(""), "EmptyVolume"),
        (empty(), request(), allowed, "start Existing first=true"),
        (empty(), seed.clone(), allowed, "start New first=true"),
        (empty(), restore.clone(), allowed, "RestoreIncomplete"),
        (empty(), restore.clone(), None, "RestoreIncomplete"),
        // A first start that died before the rename of its identity file.
        (
            Facts { data: vec![".holdfast-identity.json.new".to_owned()], ..empty() },
            seed.clone(),
            allowed,
            "start New first=true",
        ),
        // Data of another owner, also when an empty volume would be allowed.
        (Facts { beside: vec!["default.etcd".to_owned()], ..empty() }, seed.clone(), allowed, "ForeignVolume"),
        (Facts { data: vec!["member".to_owned()], ..empty() }, seed.clone(), allowed, "ForeignVolume"),
        (Facts { wal: Ok(Some(WAL)), ..empty() }, seed.clone(), allowed, "ForeignVolume"),
        (Facts { wal: Err("torn".to_owned()), ..empty() }, seed.clone(), allowed, "ForeignVolume"),
        (Facts { database: true, ..empty() }, seed.clone(), allowed, "ForeignVolume"),
        (Facts { beside: vec![".holdfast-staging".to_owned()], ..empty() }, restore.clone(), None, "ForeignVolume"),
        (changed(|f, _| f.identity = Ok(None)), seed.clone(), allowed, "ForeignVolume"),
        // The member's own volume.
        (used(), request(), None, "start Existing first=false"),
        (used(), seed.clone(), None, "start Existing first=false"),
        (used(), seed.clone(), allowed, "start Existing first=false"),
        (changed(|f, _| f.beside = vec!["junk".to_owned()]), request(), None, "start Existing first=false"),
        // A volume of another member.
        (changed(|_, i| i.cluster_token = "t".to_owned()), request(), allowed, "WrongCluster"),
        (changed(|_, i| i.member_name = "t".to_owned()), request(), allowed, "WrongMember"),
        (changed(|_, i| i.member_uid = "t".to_owned()), request(), allowed, "WrongMember"),
        (changed(|_, i| i.claim_uid = "t".to_owned()), request(), allowed, "WrongClaim"),
        // Restored data.
        (changed(|_, i| i.restored = Some(restored())), restore.clone(), None, "start Existing first=false"),
        (changed(|_, i| i.restored = Some(restored())), request(), None, "start Existing first=false"),
        (used(), restore, None, "WrongRestore"),
        // A log that is missing.
        (changed(|f, _| f.wal = Ok(None)), request(), None, "EmptiedVolume"),
        (changed(|f, _| f.wal = Ok(None)), seed.clone(), allowed, "EmptiedVolume"),
        (changed(|f, _| f.database = false), seed.clone(), allowed, "EmptiedVolume"),
        (
            changed(|f, i| {
                f.wal = Ok(None);
                i.member_id = None;
                i.cluster_id = None;
            }),
            seed.clone(),
            allowed,
            "start New first=true",
        ),
        (
            changed(|f, i| {
                f.wal = Ok(None);
                i.member_id = None;
                i.cluster_id = None;
            }),
            seed.clone(),
            None,
            "EmptiedVolume",
        ),
        (
            changed(|f, i| {
                f.wal = Ok(None);
                i.member_id = None;
                i.restored = Some(restored());
            }),
            seed.clone(),
            allowed,
            "EmptiedVolume",
        ),
        // Unreadable files.
        (changed(|f, _| f.identity = Err("torn".to_owned())), seed.clone(), allowed, "UnreadableIdentity"),
        (changed(|f, _| f.wal = Err("torn".to_owned())), seed, allowed, "UnreadableWal"),
        // The log of another member under this member's identity.
        (changed(|f, _| f.wal = Ok(Some(Metadata { member_id: 9, ..WAL }))), request(), None, "WrongWal"),
        (changed(|f, _| f.wal = Ok(Some(Metadata { cluster_id: 9, ..WAL }))), request(), None, "WrongWal"),
    ];
    let mut shown = BTreeSet::new();
    for (facts, request, annotation, expected) in rows {
        // Before any Pod has served, and before the count existed.
        assert_eq!(verdict(&facts, &request, &told(annotation, 0)), expected, "{facts:?} {request:?} {annotation:?}");
        shown.insert(expected);
    }
    for (what, facts, request, told, expected) in rows_of_counted_pods() {
        assert_eq!(verdict(&facts, &request, &told), expected, "{what}");
        shown.insert(expected);
    }
    for verdict in Verdict::ALL {
        assert!(shown.contains(verdict.name()), "{verdict:?} has no row");
    }
}

/// Rows in which the operator has seen a Pod serve.
fn rows_of_counted_pods() -> Vec<(&'static str, Facts, GateRequest, Annotations, &'static str)> {
    let seed = GateRequest { seed: true, start: 2, ..request() };
    let restore = GateRequest { restore_uid: Some("restore-1".to_owned()), ..seed.clone() };
    let unreadable = Annotations { started: Err("torn".to_owned()), ..told(Some(CLAIM), 0) };
    let never_latched = |f: &mut Facts, i: &mut Identity| {
        f.wal = Ok(None);
        (i.member_id, i.cluster_id) = (None, None);
    };
    let not_latched = |_: &mut Facts, i: &mut Identity| (i.member_id, i.cluster_id) = (None, None);
    let nameless = Annotations { joined: Err("torn".to_owned()), ..told(None, 2) };
    let goes_on = "start Existing first=false";
    vec![
        ("the same Pod's container again", used(), seed.clone(), told(None, 2), goes_on),
        ("the next Pod", used(), GateRequest { start: 3, ..seed.clone() }, told(None, 2), goes_on),
        ("a Pod that never served came between", changed(|_, i| i.pod_start = 4), seed.clone(), told(None, 2), goes_on),
        ("a copy from before", changed(|_, i| i.pod_start = 1), seed.clone(), told(Some(CLAIM), 2), "OlderVolume"),
        (
            "a copy from before Pods were counted",
            changed(|_, i| i.pod_start = 0),
            seed.clone(),
            told(None, 1),
            "OlderVolume",
        ),
        (
            "an older copy without a log",
            changed(|f, i| (f.wal, i.pod_start) = (Ok(None), 1)),
            seed.clone(),
            told(None, 2),
            "OlderVolume",
        ),
        (
            "an older copy of another member",
            changed(|_, i| (i.member_uid, i.pod_start) = ("m".to_owned(), 1)),
            seed.clone(),
            told(None, 2),
            "WrongMember",
        ),
        (
            "only the identity is gone",
            changed(|f, _| f.identity = Ok(None)),
            seed.clone(),
            told(None, 1),
            "IdentityLost",
        ),
        (
            "a restored one, only the identity is gone",
            changed(|f, _| f.identity = Ok(None)),
            restore.clone(),
            told(None, 1),
            "IdentityLost",
        ),
        (
            "joined, only the identity is gone",
            changed(|f, _| f.identity = Ok(None)),
            seed.clone(),
            told_joined("c1/a1"),
            "IdentityLost",
        ),
        ("emptied, and still permitted", empty(), seed.clone(), told(Some(CLAIM), 1), "EmptiedVolume"),
        ("a restored one emptied", empty(), restore.clone(), told(Some(CLAIM), 1), "EmptiedVolume"),
        (
            "only the log emptied, before it was latched",
            changed(never_latched),
            seed.clone(),
            told(Some(CLAIM), 2),
            "EmptiedVolume",
        ),
        ("as whom it joined", changed(not_latched), seed.clone(), told_joined("c1/a1"), goes_on),
        ("not latched, another's log", changed(not_latched), seed.clone(), told_joined("c1/b1"), "WrongWal"),
        ("not latched, another cluster's log", changed(not_latched), seed.clone(), told_joined("c2/a1"), "WrongWal"),
        ("latched, and joined as another", used(), seed.clone(), told_joined("c1/b1"), "WrongWal"),
        ("joined, emptied, and still permitted", empty(), seed.clone(), told_joined("c1/a1"), "EmptiedVolume"),
        ("joined, only the log emptied", changed(never_latched), seed.clone(), told_joined("c1/a1"), "EmptiedVolume"),
        ("nobody knows as whom", used(), seed.clone(), nameless, "UnreadableAnnotations"),
        ("only the database emptied", changed(|f, _| f.database = false), seed.clone(), told(None, 2), "EmptiedVolume"),
        ("nobody knows: our own", used(), seed.clone(), unreadable.clone(), "UnreadableAnnotations"),
        ("nobody knows: empty and permitted", empty(), seed.clone(), unreadable.clone(), "UnreadableAnnotations"),
        (
            "nobody knows: restored",
            changed(|_, i| i.restored = Some(restored())),
            restore,
            unreadable,
            "UnreadableAnnotations",
        ),
    ]
}

/// The remedy for foreign data would cost a member that has served its last copy.
#[test]
fn nobody_is_advised_to_move_away_what_a_member_has_served() {
    let lost = |told: &Annotations| {
        let Decision::Refuse(report) = decide(&changed(|f, _| f.identity = Ok(None)), &request(), told) else {
            panic!("started")
        };
        report.message
    };
    let served = lost(&told(None, 1));
    assert!(served.contains("do not move or delete them") && served.contains("Pod number 1 of this member has served"));
    assert!(!served.contains("Mount an empty volume"), "{served}");
    let own = lost(&told_joined("c1/a1"));
    assert!(own.contains("the log is the one with which this member joined"), "{own}");
    let other = lost(&told_joined("c1/b1"));
    assert!(other.contains("the log names c1/a1") && other.contains("joined as c1/b1"), "{other}");
    assert!(lost(&told(Some(CLAIM), 0)).contains("Mount an empty volume"), "nothing of this member has been here");
}

#[test]
fn a_start_is_counted_and_the_log_remembered() {
    let facts = changed(|_, i| (i.member_id, i.cluster_id) = (None, None));
    let started = |start| {
        let Decision::Start { identity, .. } = decide(&facts, &GateRequest { start, ..request() }, &told(None, 2))
        else {
            panic!("refused")
        };
        identity
    };
    // The volume keeps the highest number: a start without a number does not lower it.
    assert_eq!([0, 1, 2, 3].map(|start| started(start).pod_start), [2, 2, 2, 3]);
    let identity = started(0);
    assert_eq!(identity.start_count, 4);
    assert_eq!(identity.member_id.as_deref(), Some("a1"));
    assert_eq!(identity.cluster_id.as_deref(), Some("c1"));
}

/// Generates every state of a volume.
fn any_volume() -> impl Strategy<Value = Facts> {
    let wal = prop_oneof![
        Just(Ok(None)),
        Just(Ok(Some(WAL))),
        Just(Ok(Some(Metadata { member_id: 9, ..WAL }))),
        Just(Err("torn".to_owned()))
    ];
    let (identity, was_restored, latched) = (any::<bool>(), any::<bool>(), any::<bool>());
    let volume =
        (wal, any::<bool>(), any::<bool>(), any::<bool>(), identity, was_restored, latched, any::<u64>(), 0..4u64);
    volume.prop_map(|(wal, database, beside, data, identity, was_restored, latched, start_count, pod_start)| Facts {
        beside: if beside { vec!["x".to_owned()] } else { vec![] },
        data: if data { vec!["member".to_owned()] } else { vec![] },
        identity: Ok(identity.then(|| Identity {
            start_count,
            pod_start,
            restored: was_restored.then(restored),
            member_id: latched.then(|| "a1".to_owned()),
            ..Identity::new(&flags())
        })),
        wal,
        database,
    })
}

proptest! {
    /// The rules that protect data, for every combination of the other inputs (I3, I27).
    #[test]
    fn nothing_starts_that_could_lose_what_was_acknowledged(
        facts in any_volume(), seed: bool, wanted_restore: bool, start in 0..5u64,
        annotation in proptest::option::of("claim-[0-2]"),
        started in prop_oneof![4 => (0..4u64).prop_map(Ok), 1 => Just(Err("torn".to_owned()))],
        joined in prop_oneof![
            4 => proptest::option::of(prop_oneof![Just("c1/a1".to_owned()), Just("c1/9".to_owned())]).prop_map(Ok),
            1 => Just(Err("torn".to_owned())),
        ],
    ) {
        let request =
            GateRequest { seed, start, restore_uid: wanted_restore.then(|| "restore-1".to_owned()), ..request() };
        let told = Annotations { may_start_empty: annotation, started, joined };
        if let Decision::Start { state, first, identity } = decide(&facts, &request, &told) {
            let had = facts.identity.clone().unwrap();
            let number = told.started.clone().unwrap();
            prop_assert!(had.as_ref().map_or(0, |had| had.pod_start) >= number, "an older copy");
            prop_assert_eq!(identity.pod_start, had.as_ref().map_or(0, |had| had.pod_start).max(start));
            prop_assert_eq!(first, facts.wal == Ok(None));
            prop_assert_eq!(state == ClusterState::New, seed && first);
            if first {
                prop_assert_eq!(told.may_start_empty.as_deref(), Some(CLAIM));
                prop_assert!(!wanted_restore && number == 0 && told.joined == Ok(None));
                prop_assert!(had.is_none_or(|had| had.restored.is_none() && had.member_id.is_none()));
            } else {
                prop_assert!(facts.database);
                let latched = had.is_some_and(|had| had.member_id.is_some());
                prop_assert!(!latched || facts.wal == Ok(Some(WAL)));
                let named = facts.wal.clone().unwrap().map(|wal| format!("{:x}/{:x}", wal.cluster_id, wal.member_id));
                prop_assert!(told.joined.clone().unwrap().is_none_or(|joined| Some(joined) == named), "I5");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_touches_nothing() {
    let volume = tempfile::tempdir().unwrap();
    fs::create_dir(volume.path().join("lost+found")).unwrap();
    let annotations = volume.path().join("lost+found/annotations");
    fs::write(&annotations, "a=\"b\"\n").unwrap();
    let request = GateRequest { volume: volume.path().to_owned(), annotations, ..request() };
    let error = run(request).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Refused);
    assert_eq!(error.gate_report().unwrap().verdict, "EmptyVolume");
    assert!(!volume.path().join(DATA_DIR).exists());
}

#[tokio::test]
async fn the_cluster_state_is_not_the_callers_to_choose() {
    let exec = ["etcd", "--initial-cluster-state=new"].map(str::to_owned).to_vec();
    let error = run(GateRequest { exec, ..request() }).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Config);
    assert_eq!(run(GateRequest { exec: vec![], ..request() }).await.unwrap_err().class(), ExitClass::Config);
}

#[tokio::test]
async fn the_identity_is_on_the_volume_before_etcd_is_started() {
    let volume = tempfile::tempdir().unwrap();
    let data_dir = volume.path().join(DATA_DIR);
    fs::create_dir(volume.path().join("lost+found")).unwrap();
    let annotations = tempfile::NamedTempFile::new().unwrap();
    fs::write(annotations.path(), format!("{MAY_START_EMPTY}=\"{CLAIM}\"\n")).unwrap();
    let request = GateRequest {
        volume: volume.path().to_owned(),
        annotations: annotations.path().to_owned(),
        // This program does not exist, so the gate returns and the test process lives on.
        exec: vec!["/nonexistent/etcd".to_owned()],
        ..request()
    };
    for count in 1..=2 {
        let error = run(request.clone()).await.unwrap_err();
        assert!(error.message().contains("/nonexistent/etcd"), "{error}");
        let facts = observe(volume.path(), &data_dir).unwrap();
        assert_eq!(facts.identity.unwrap().unwrap().start_count, count);
    }
    // The operator takes the permission back: a member that never wrote its log does not start again.
    fs::write(annotations.path(), "").unwrap();
    assert_eq!(run(request).await.unwrap_err().gate_report().unwrap().verdict, "EmptiedVolume");
}
