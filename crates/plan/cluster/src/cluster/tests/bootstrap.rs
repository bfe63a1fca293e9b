//! Founding of a cluster: seeds and restores, and the latch before each step.

use holdfast_api::agent::Agent;
use holdfast_api::restore::{RestorePhase, RestoreStatus, Restoring};
use holdfast_api::snapshot::SnapshotTemplate;
use holdfast_contract::{CameAlong, Engine, Report, RestoredReport};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateRunning};

use super::*;
use holdfast_base::meta;

mod from_a_store {
    use holdfast_api::EtcdBackupStore;
    use holdfast_api::backup_store::{Credentials, Identity};
    use holdfast_api::condition::{Type, Wanted, merge};
    use holdfast_api::store::{Location, S3Location, StoredSnapshot};

    use super::*;
    use crate::cluster::Observed;

    fn store(bucket: &str, ready: bool) -> EtcdBackupStore {
        let s3 = S3Location { bucket: bucket.to_owned(), ..S3Location::default() };
        let mut store = EtcdBackupStore::default();
        store.metadata.name = Some("vault".to_owned());
        store.spec.place = Location::S3(s3).into();
        store.spec.credentials =
            Some(Credentials { write: "writes".to_owned(), read: Some("reads".to_owned()), prune: None });
        let wanted = Wanted { state: Some(ready), ..Wanted::yes(Type::Ready, Reason::StoreUsable, "x") };
        store.status.get_or_insert_default().conditions = merge(&[], &[wanted], None, earlier().0);
        store
    }

    fn seen(store: Option<EtcdBackupStore>) -> Observed {
        let mut seen = bare(1);
        let store_ref = Some(LocalRef { name: "vault".to_owned() });
        let source = StoredSnapshot { store_ref, key: "k".to_owned(), ..StoredSnapshot::default() };
        let restore = Restore { source: Some(source), ..Restore::default() };
        seen.cluster.spec.bootstrap = Some(Bootstrap { restore: Some(restore) });
        seen.store = Some(Seen::Known(store));
        seen
    }

    fn latched(seen: &Observed) -> holdfast_api::restore::Restoring {
        match act(seen) {
            Some(Act::Latch(latches)) => latches.restoring.expect("a restore is latched"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_is_waited_for() {
        assert_eq!(waits(&seen(None)), Some(Reason::WaitingForReference));
        assert_eq!(waits(&seen(Some(store("b", false)))), Some(Reason::WaitingForStore));
        assert_eq!(act(&seen(Some(store("b", false)))), None);
    }

    #[test]
    fn what_is_latched_is_the_place_itself_with_what_reads() {
        let restoring = latched(&seen(Some(store("b", true))));
        assert_eq!((restoring.store.as_deref(), restoring.source.store_ref.as_ref()), (Some("vault"), None));
        let s3 = restoring.source.place.s3.unwrap();
        assert_eq!((s3.bucket.as_str(), s3.credentials_secret_ref.unwrap().name.as_str()), ("b", "reads"));
    }

    #[test]
    fn what_is_under_way_goes_on_without_it_and_begins_anew_with_a_corrected_one() {
        let restoring = latched(&seen(Some(store("b", true))));
        for there in [None, Some(store("b", false)), Some(store("moved", false))] {
            let seen = under_way(&restoring, there);
            let Some(Act::CreateMember(member)) = act(&seen) else { panic!("{:?}", act(&seen)) };
            assert_eq!(member.spec.restore.as_ref(), Some(&restoring));
        }
        let corrected = under_way(&restoring, Some(store("moved", true)));
        assert_ne!(latched(&corrected).restore_uid, restoring.restore_uid);
    }

    /// Returns [`seen`] after the operator has latched this restore.
    fn under_way(restoring: &Restoring, store: Option<EtcdBackupStore>) -> Observed {
        let mut seen = seen(store);
        seen.cluster.status.get_or_insert_default().latches = Latches {
            pending_member: Some("a-m0".to_owned()),
            restoring: Some(restoring.clone()),
            ..Latches::default()
        };
        seen
    }

    /// Returns a store with this store ID.
    fn marked(id: &str) -> EtcdBackupStore {
        let mut store = store("b", true);
        let place = holdfast_base::store_identity::place(&store).unwrap();
        let identity = Identity { id: id.to_owned(), place, accepted: None };
        store.status.get_or_insert_default().identity = Some(identity);
        store
    }

    #[test]
    fn its_mark_is_expected_and_another_one_is_another_attempt() {
        let plain = latched(&seen(Some(store("b", true))));
        let one = latched(&seen(Some(marked("store-one"))));
        let two = latched(&seen(Some(marked("store-two"))));
        assert_eq!((plain.store_id.as_deref(), one.store_id.as_deref()), (None, Some("store-one")));
        assert!(plain.restore_uid != one.restore_uid && one.restore_uid != two.restore_uid);
        // Latched without the store ID, or the ID is unknown now, or the store is deleted: the attempt stays.
        let unmarked = || Some(store("b", true));
        for (begun, there) in
            [(&plain, Some(marked("store-one"))), (&one, Some(marked("store-one"))), (&one, unmarked()), (&one, None)]
        {
            let seen = under_way(begun, there);
            let Some(Act::CreateMember(member)) = act(&seen) else { panic!("{:?}", act(&seen)) };
            assert_eq!(member.spec.restore.as_ref(), Some(begun));
        }
        assert_eq!(latched(&under_way(&one, Some(marked("store-two")))), two);
    }
}

pub(super) fn snapshot(phase: Phase) -> EtcdSnapshot {
    let spec = EtcdSnapshotSpec {
        cluster_ref: Some(LocalRef { name: "old".to_owned() }),
        template: SnapshotTemplate {
            destination: Destination { place: restoring("k").source.place, ..Destination::default() },
            ..SnapshotTemplate::default()
        },
        ..EtcdSnapshotSpec::default()
    };
    let mut one = EtcdSnapshot::new("s", spec);
    one.status = Some(EtcdSnapshotStatus {
        phase,
        artifact: (phase == Phase::Complete).then(|| Artifact {
            key: "k".to_owned(),
            sha256: "5a".to_owned(),
            ..Artifact::default()
        }),
        error: Some(Failure::default()),
        ..EtcdSnapshotStatus::default()
    });
    one
}

pub(super) fn named_snapshot(seen: &mut Observed, found: Option<EtcdSnapshot>) {
    let named = LocalRef { name: "s".to_owned() };
    seen.cluster.spec.bootstrap =
        Some(Bootstrap { restore: Some(Restore { snapshot_ref: Some(named), ..Restore::default() }) });
    seen.snapshot = Some(Seen::Known(found));
}

#[test]
fn the_name_comes_before_the_member() {
    let mut seen = bare(3);
    let first = Latches { pending_member: Some("a-fresh".to_owned()), ..Latches::default() };
    assert_eq!(act(&seen), Some(Act::Latch(Box::new(first.clone()))));
    *latches(&mut seen) = first;
    let Some(Act::CreateMember(member)) = act(&seen) else { panic!() };
    assert_eq!(meta::name(&member.metadata), "a-fresh");
    assert_eq!((member.spec.role, member.spec.restore.clone()), (Birth::Seed, None));
    assert_eq!(member.spec.initial_cluster.as_deref(), Some("a-fresh=http://a-fresh.a.ns.svc:2380"));
}

#[test]
fn a_restore_is_latched_with_the_name() {
    let mut seen = bare(3);
    restore(&mut seen, Some("k1"));
    let first =
        Latches { pending_member: Some("a-fresh".to_owned()), restoring: Some(restoring("k1")), ..Latches::default() };
    assert_eq!(act(&seen), Some(Act::Latch(Box::new(first.clone()))));
    *latches(&mut seen) = first;
    let Some(Act::CreateMember(member)) = act(&seen) else { panic!() };
    assert_eq!(member.spec.restore, Some(restoring("k1")));
    // Corrected before the member existed: Holdfast latches again, with another name.
    seen.fresh_suffix = "other".to_owned();
    restore(&mut seen, Some("k2"));
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    assert_eq!((latched.pending_member.as_deref(), latched.restoring), (Some("a-other"), Some(restoring("k2"))));
}

#[test]
fn a_snapshot_has_to_be_complete() {
    let mut seen = bare(1);
    for found in [None, Some(snapshot(Phase::Pending)), Some(snapshot(Phase::Running)), Some(snapshot(Phase::Failed))] {
        named_snapshot(&mut seen, found);
        assert_eq!(waits(&seen), Some(Reason::WaitingForReference));
    }
    seen.snapshot = Some(Seen::unknown("timeout"));
    assert_eq!(waits(&seen), Some(Reason::WaitingForReference));
    named_snapshot(&mut seen, Some(snapshot(Phase::Complete)));
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    let attempt = latched.restoring.clone().unwrap();
    assert_eq!((attempt.sha256.as_deref(), attempt.snapshot.as_deref()), (Some("5a"), Some("s")));
    assert_eq!(attempt.source, restoring("k").source);
    // After the latch the restore does not need the object.
    *latches(&mut seen) = *latched;
    named_snapshot(&mut seen, None);
    assert!(matches!(act(&seen), Some(Act::CreateMember(m)) if m.spec.restore == Some(attempt)));
}

/// A deleted `EtcdSnapshot` and a new one of the same name are different snapshots: the restore keeps its data until the spec names
/// another snapshot.
#[test]
fn a_snapshot_that_is_made_again_under_its_name_is_not_taken_while_another_is_restored() {
    let named = |uid: Option<&str>, key: &str, phase| {
        let mut one = snapshot(phase);
        one.metadata.uid = uid.map(str::to_owned);
        if let Some(artifact) = one.status.as_mut().unwrap().artifact.as_mut() {
            key.clone_into(&mut artifact.key);
        }
        one
    };
    let of = |uid| named(Some(uid), "k", Phase::Complete);
    let mut seen = bare(1);
    named_snapshot(&mut seen, Some(of("u-first")));
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    let begun = latched.restoring.clone().unwrap();
    assert_eq!(begun.snapshot_uid.as_deref(), Some("u-first"));
    *latches(&mut seen) = *latched;
    let goes_on = |seen: &Observed, attempt: &Restoring| {
        assert!(matches!(act(seen), Some(Act::CreateMember(m)) if m.spec.restore.as_ref() == Some(attempt)));
    };
    for again in [
        of("u-first"),
        named(Some("u-second"), "other", Phase::Complete),
        named(Some("u-second"), "other", Phase::Running),
        named(Some("u-second"), "other", Phase::Failed),
    ] {
        named_snapshot(&mut seen, Some(again));
        goes_on(&seen, &begun);
    }
    // Another name in the spec is another source.
    let mut corrected = seen.clone();
    let restore = corrected.cluster.spec.bootstrap.as_mut().unwrap().restore.as_mut().unwrap();
    restore.snapshot_ref = Some(LocalRef { name: "t".to_owned() });
    corrected.snapshot = Some(Seen::Known(Some(named(Some("u-second"), "other", Phase::Complete))));
    let Some(Act::Latch(latched)) = act(&corrected) else { panic!() };
    let other = latched.restoring.unwrap();
    assert_eq!((other.source.key.as_str(), other.snapshot_uid.as_deref()), ("other", Some("u-second")));

    // An attempt of an earlier version has no UID: it goes on unchanged, and another source is another attempt.
    let old = Restoring { snapshot_uid: None, ..begun };
    latches(&mut seen).restoring = Some(old.clone());
    named_snapshot(&mut seen, Some(of("u-first")));
    goes_on(&seen, &old);
    named_snapshot(&mut seen, Some(named(Some("u-second"), "other", Phase::Complete)));
    seen.fresh_suffix = "other".to_owned();
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    assert_eq!(latched.restoring.unwrap().source.key, "other");
}

#[test]
fn a_restore_from_before_there_was_a_bump_is_ended_as_it_was_begun() {
    let mut seen = bare(1);
    named_snapshot(&mut seen, Some(snapshot(Phase::Complete)));
    let Some(Act::Latch(mut latched)) = act(&seen) else { panic!() };
    let begun = latched.restoring.as_mut().unwrap();
    assert_eq!(begun.revision_bump, Some(1_000_000_000));
    (begun.revision_bump, begun.restore_uid) = (None, "0123456789abcdef".to_owned());
    let begun = begun.clone();
    *latches(&mut seen) = *latched;
    for bump in [None, Some(0)] {
        let restore = |seen: &mut Observed| {
            seen.cluster.spec.bootstrap.as_mut().unwrap().restore.as_mut().unwrap().revision_bump = bump;
        };
        for gone in [false, true] {
            named_snapshot(&mut seen, (!gone).then(|| snapshot(Phase::Complete)));
            restore(&mut seen);
            let next = act(&seen);
            assert!(matches!(&next, Some(Act::CreateMember(m)) if m.spec.restore.as_ref() == Some(&begun)), "{next:?}");
        }
    }
    // A bump in the spec makes another attempt.
    named_snapshot(&mut seen, Some(snapshot(Phase::Complete)));
    seen.cluster.spec.bootstrap.as_mut().unwrap().restore.as_mut().unwrap().revision_bump = Some(7);
    let Some(Act::Latch(asked)) = act(&seen) else { panic!() };
    assert_eq!(asked.restoring.unwrap().revision_bump, Some(7));
}

#[test]
fn other_identities_are_another_attempt_also_when_the_snapshot_object_is_gone() {
    let secrets =
        |names: &[&str]| -> Vec<LocalRef> { names.iter().map(|name| LocalRef { name: (*name).to_owned() }).collect() };
    let name = |seen: &mut Observed, names: &[&str]| {
        let bootstrap = seen.cluster.spec.bootstrap.as_mut().unwrap();
        bootstrap.restore.as_mut().unwrap().identity_secret_refs = secrets(names);
    };
    let mut seen = bare(1);
    named_snapshot(&mut seen, Some(snapshot(Phase::Complete)));
    name(&mut seen, &["wrong"]);
    let Some(Act::Latch(first)) = act(&seen) else { panic!() };
    let wrong = first.restoring.clone().unwrap();
    assert_eq!(wrong.identity_secret_refs, secrets(&["wrong"]));
    *latches(&mut seen) = *first;
    named_snapshot(&mut seen, None);
    name(&mut seen, &["wrong"]);
    assert!(matches!(act(&seen), Some(Act::CreateMember(m)) if m.spec.restore.as_ref() == Some(&wrong)));
    name(&mut seen, &["wrong", "right"]);
    seen.fresh_suffix = "other".to_owned();
    let Some(Act::Latch(second)) = act(&seen) else { panic!() };
    let right = second.restoring.unwrap();
    assert_eq!(right.identity_secret_refs, secrets(&["wrong", "right"]));
    assert_eq!((&right.source, &right.sha256, &right.snapshot), (&wrong.source, &wrong.sha256, &wrong.snapshot));
    assert_ne!(right.restore_uid, wrong.restore_uid);
}

#[test]
fn the_attempt_is_the_same_for_a_retry_and_another_for_another_source() {
    let how = |revision_bump| How { revision_bump, ..How::default() };
    let (a, b) = (restoring("k1"), restoring("k2"));
    assert_eq!(a, restoring("k1"));
    assert_ne!(a.restore_uid, b.restore_uid);
    let plain = Of { source: &a.source, sha256: None, store_id: None };
    let one = restore_uid("u-a", plain, how(1), &[]);
    let identities = [LocalRef { name: "age".to_owned() }];
    for other in [
        restore_uid("u-b", plain, how(1), &[]),
        restore_uid("u-a", plain, how(0), &[]),
        restore_uid("u-a", Of { sha256: Some("5a"), ..plain }, how(1), &[]),
        restore_uid("u-a", Of { store_id: Some("5a"), ..plain }, how(1), &[]),
        restore_uid("u-a", plain, how(1), &identities),
    ] {
        assert_ne!(one, other);
    }
    let agent = Agent { service_account_name: Some("reader".to_owned()), ..Agent::default() };
    let ways = [
        How { agent: Some(&agent), ..how(1) },
        How { allow_unverified: true, ..how(1) },
        How { engine: Engine::Etcdutl, ..how(1) },
        How { deadline_seconds: Some(7), ..how(1) },
        How { deadline_seconds: Some(8), ..how(1) },
        how(1),
    ];
    let mut uids = ways.map(|way| restore_uid("u-a", plain, way, &[])).to_vec();
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), ways.len());
    assert_eq!(a.restore_uid.len(), 16);
    // A recorded attempt must keep its UID in every version.
    assert_eq!(restore_uid("u-a", plain, how(0), &[]), "0a109469e9f0e523");
    assert_eq!(a.restore_uid, "4073f710eff2e30d");
}

#[test]
fn joined_then_no_empty_start_then_formed_then_clients() {
    let mut seen = seeding(3);
    let Some(Act::LatchJoined { member, joined }) = act(&seen) else { panic!() };
    assert_eq!(member, member_target(&seen, 0));
    assert_eq!((joined.member_id.as_str(), joined.cluster_id.as_str()), ("10", "c1"));
    seen.members[0].object.spec.joined = Some(joined);
    assert_eq!(act(&seen), Some(forbidden(&seen, 0)));
    seen.members[0].pod.as_mut().unwrap().metadata.annotations = None;
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    let there = latched.formed.clone().unwrap();
    assert_eq!((there.cluster_id.as_str(), there.at.as_str()), ("c1", "2026-01-01T12:00:00Z"));
    assert_eq!(latched.pending_member, None);
    assert_eq!(condition(&seen, "Available").0, "False");
    *latches(&mut seen) = *latched;
    assert_eq!(act(&seen), Some(Act::AdmitClients { pod: pod_target(&seen, 0) }));
}

#[test]
fn a_seed_counts_only_alone_and_as_itself() {
    type Change = fn(&mut Observed);
    let changes: [(&str, Change); 6] = [
        ("etcd is silent", |s| s.etcd = Seen::unknown("no")),
        ("its own server is silent", |s| drop(s.answers.insert(named(0), Seen::unknown("no")))),
        ("its server is of another cluster", |s| {
            s.answers.insert(named(0), Seen::Known(Answer { cluster_id: 9, ..answer(0) }));
        }),
        ("its server has another ID", |s| {
            s.answers.insert(named(0), Seen::Known(Answer { member_id: 9, ..answer(0) }));
        }),
        ("etcd lists somebody else", |s| {
            etcd(s).members[0].name = "b".to_owned();
            etcd(s).members[0].peer_urls = vec!["http://b:2380".to_owned()];
        }),
        ("etcd lists two", |s| {
            let two = etcd(s).members[0].clone();
            etcd(s).members.push(two);
        }),
    ];
    for (what, change) in changes {
        let mut seen = seeding(1);
        change(&mut seen);
        assert_eq!(act(&seen), None, "{what}");
        assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd), "{what}");
    }
}

/// Returns a seed that is restored from `k1`, and has not served yet.
fn rebuilding() -> Observed {
    let mut seen = seeding(3);
    seen.etcd = Seen::unknown("no");
    seen.answers.clear();
    seen.members[0].object.spec.restore = Some(restoring("k1"));
    latches(&mut seen).restoring = Some(restoring("k1"));
    restore(&mut seen, Some("k1"));
    seen
}

#[test]
fn a_restore_that_is_taken_out_of_the_spec_founds_no_empty_cluster_instead() {
    let mut seen = rebuilding();
    restore(&mut seen, None);
    let stops = |seen: &Observed| {
        assert_eq!(act(seen), None);
        assert_eq!(waits(seen), Some(Reason::InvalidSpec));
    };
    stops(&seen);
    // With the latch alone, and with the seed alone after a lost status.
    let mut latched = seen.clone();
    latched.members.clear();
    stops(&latched);
    latches(&mut seen).restoring = None;
    stops(&seen);
    // With the field back, the same attempt goes on.
    latches(&mut seen).restoring = Some(restoring("k1"));
    restore(&mut seen, Some("k1"));
    assert_eq!((act(&seen), waits(&seen)), (None, Some(Reason::WaitingForEtcd)));
}

#[test]
fn a_corrected_restore_clears_the_failed_attempt_first() {
    let mut seen = rebuilding();
    assert_eq!(act(&seen), None);
    restore(&mut seen, Some("k2"));
    assert!(matches!(act(&seen), Some(Act::DeleteMember { member, .. }) if member == member_target(&seen, 0)));
    // While the member is being deleted: Holdfast first latches another name, then waits for the deletion.
    seen.members[0].object.metadata.deletion_timestamp = Some(earlier());
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    assert_eq!(latched.pending_member.as_deref(), Some("a-fresh"));
    *latches(&mut seen) = *latched;
    assert_eq!(waits(&seen), Some(Reason::ClearingFailedRestore));
    seen.members.clear();
    assert!(matches!(act(&seen), Some(Act::CreateMember(m)) if m.spec.restore == Some(restoring("k2"))));
}

/// The failed attempt ran on a dead node: kubelet does not report the end of its Pod, and Holdfast waits for that.
#[test]
fn an_attempt_that_cannot_be_cleared_for_its_node_says_so() {
    let mut seen = rebuilding();
    restore(&mut seen, Some("k2"));
    seen.members[0].object.metadata.deletion_timestamp = Some(earlier());
    latches(&mut seen).pending_member = None;
    let ends = |seen: &mut Observed, ago: i64| {
        let pod = seen.members[0].pod.as_mut().unwrap();
        pod.metadata.deletion_timestamp = Some(Time(noon() - SignedDuration::from_secs(ago)));
        pod.spec.as_mut().unwrap().node_name = Some("n7".to_owned());
        let plan = planned(seen);
        assert_eq!(plan.act, None);
        (plan.waiting.unwrap(), plan.wake)
    };
    let (waiting, wake) = ends(&mut seen, 29);
    assert_eq!((waiting.reason, wake), (Reason::ClearingFailedRestore, Wake::AfterMillis(1_000)));
    let (waiting, wake) = ends(&mut seen, 30);
    assert_eq!((waiting.reason, wake), (Reason::NodeSilent, Wake::OnChange));
    for part in ["Holdfast deletes the member a-m0 of the earlier attempt", "kubectl taint nodes n7 "] {
        assert!(waiting.message.contains(part), "no {part:?} in {}", waiting.message);
    }
    assert_eq!(condition(&seen, "Degraded"), pair("True", "NodeSilent"));
    assert_eq!(condition(&seen, "Ready"), pair("False", "NodeSilent"));
}

/// The status reports the phase of a restore, for any earlier status.
#[test]
fn a_restore_says_how_far_it_is() {
    let mut seen = seeding(3);
    restore(&mut seen, Some("k1"));
    seen.members[0].object.spec.restore = Some(restoring("k1"));
    let member = seen.members[0].object.clone();
    let told = |seen: &Observed| planned(seen).status.restore.unwrap();
    let report = |already, engine| {
        let report = RestoredReport {
            restore_uid: restoring("k1").restore_uid,
            uri: "file:///backup/k1/snapshot.db".to_owned(),
            db_bytes: 1 << 20,
            sha256: "5a".to_owned(),
            taken_at: "2026-11-21T16:22:33Z".to_owned(),
            from_cluster: "shop/orders".to_owned(),
            without_quorum: false,
            revision: Some(7),
            revision_bump: 0,
            point: None,
            survivor: None,
            came_along: Some(CameAlong { users: 2, ..CameAlong::default() }),
            not_compared: None,
            engine,
            fell_back: None,
            already,
            millis: 1,
        };
        serde_json::to_string(&Report::Restored(report)).unwrap()
    };
    let step = |state, said: Option<String>| {
        let mut pod = pod_of(&member);
        failed(&mut pod, "restore", 0, &said.clone().unwrap_or_default(), earlier());
        let status = &mut pod.status.as_mut().unwrap().init_container_statuses.as_mut().unwrap()[0];
        status.state = state;
        if said.is_none() {
            status.last_state = None;
        }
        pod
    };
    let running = Some(ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() });

    seen.members[0].pod = None;
    // Before the step has reported: the latched source.
    let begun = RestoreStatus {
        phase: Some(RestorePhase::Pending),
        uri: Some("file:///backup/k1".to_owned()),
        revision_bump: Some(1_000_000_000),
        ..RestoreStatus::default()
    };
    assert_eq!(told(&seen), begun);
    seen.members[0].pod = Some(step(running.clone(), None));
    assert_eq!(told(&seen).phase, Some(RestorePhase::Rebuilding));
    let mut pod = pod_of(&member);
    failed(&mut pod, "restore", 72, "it has users", earlier());
    seen.members[0].pod = Some(pod);
    assert_eq!(told(&seen).phase, Some(RestorePhase::Failed));
    assert_eq!(condition(&seen, "Degraded"), pair("True", "AuthRequiredNotConfigured"));
    // A second run, after a failure.
    let mut pod = step(running, Some("x".to_owned()));
    pod.metadata.uid = Some("u-again".to_owned());
    seen.members[0].pod = Some(pod);
    assert_eq!(told(&seen).phase, Some(RestorePhase::Rebuilding));

    seen.members[0].pod = Some(step(None, Some(report(false, Some(Engine::Graft)))));
    let known = told(&seen);
    assert_eq!(known.phase, Some(RestorePhase::Starting));
    assert_eq!((known.engine, known.came_along.as_ref().unwrap().users), (Some(Engine::Graft), 2));
    // A step that runs again finds complete data; the status keeps the first report.
    seen.cluster.status.as_mut().unwrap().restore = Some(known.clone());
    seen.members[0].pod = Some(step(None, Some(report(true, None))));
    assert_eq!(told(&seen), known);
    // A Pod without the step, in a formed cluster.
    let mut seen = formed(1, 1);
    seen.cluster.status.as_mut().unwrap().restore = Some(known.clone());
    latches(&mut seen).formed.as_mut().unwrap().restored_from = Some(restoring("k1"));
    assert_eq!(told(&seen), RestoreStatus { phase: Some(RestorePhase::Formed), ..known });
    assert_eq!(planned(&formed(1, 1)).status.restore, None);
}

#[test]
fn a_seed_that_has_served_is_past_the_point_of_correction() {
    let mut seen = seeding(3);
    seen.members[0].object.spec.restore = Some(restoring("k1"));
    seen.members[0].object.spec.joined = joined_member(&seen.cluster, 0).spec.joined;
    seen.members[0].pod.as_mut().unwrap().metadata.annotations = None;
    restore(&mut seen, Some("k1"));
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    assert_eq!(latched.formed.unwrap().restored_from, Some(restoring("k1")));
    etcd(&mut seen).cluster_id = 9;
    assert_eq!(waits(&seen), Some(Reason::SafetyStop));
}

#[test]
fn a_failed_restore_gives_the_reason() {
    for (code, reason) in
        [(65, "StoreAccessDenied"), (66, "ArtifactNotFound"), (67, "ArtifactCorrupt"), (69, "NoSpace")]
    {
        let mut seen = seeding(1);
        seen.etcd = Seen::unknown("no");
        seen.answers.clear();
        seen.members[0].object.spec.restore = Some(restoring("k"));
        latches(&mut seen).restoring = Some(restoring("k"));
        restore(&mut seen, Some("k"));
        let said = format!(r#"{{"kind":"failed","class":"NotFound","message":"said {code}"}}"#);
        failed(seen.members[0].pod.as_mut().unwrap(), "restore", code, &said, earlier());
        assert_eq!(condition(&seen, "Degraded"), pair("True", reason));
        assert_eq!(condition(&seen, "Ready"), pair("False", reason));
        assert_eq!(condition(&seen, "Progressing"), pair("True", "Restoring"));
        let ready = planned(&seen).status.conditions.into_iter().find(|c| c.type_ == "Ready").unwrap();
        assert!(ready.message.contains(&format!("said {code}")), "{}", ready.message);
    }
}

#[test]
fn two_seeds_are_a_matter_for_a_person() {
    let mut seen = seeding(1);
    let mut two = seen.members[0].clone();
    two.object.metadata.name = Some("a-two".to_owned());
    seen.members.push(two);
    assert_eq!(waits(&seen), Some(Reason::SafetyStop));
}

#[test]
fn a_lost_status_is_read_back() {
    // A seed that restores: its own spec has the source.
    let mut seen = seeding(1);
    seen.etcd = Seen::unknown("no");
    seen.members[0].object.spec.restore = Some(restoring("k"));
    restore(&mut seen, Some("k"));
    seen.cluster.status = None;
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    assert_eq!((latched.pending_member, latched.restoring), (Some(named(0)), Some(restoring("k"))));
    // A cluster of three has formed, also when the status is lost.
    let mut seen = formed(3, 3);
    seen.cluster.status = None;
    assert!(matches!(act(&seen), Some(Act::Latch(l)) if l.formed.as_ref().unwrap().cluster_id == "c1"));
    seen.etcd = Seen::unknown("no");
    assert_eq!(act(&seen), None);
}
