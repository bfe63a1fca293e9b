//! Corrections of a restore, or of the spec, before the first member serves and after.

use holdfast_api::EtcdBackupStore;
use holdfast_api::backup_store::Credentials;
use holdfast_api::condition::{Type, Wanted, merge};
use holdfast_api::restore::{Latest, Newest, RestorePoint, Restoring};
use holdfast_api::store::{Location, S3Checksum, S3Encryption, S3Location, S3ObjectLock, S3Sse, S3Tag, StoredSnapshot};
use holdfast_contract::LockMode;
use k8s_openapi::api::core::v1::ResourceRequirements;

use super::*;

type Change = fn(&mut S3Location);

/// Returns a usable store with this change.
fn store(change: Change) -> EtcdBackupStore {
    let mut s3 = S3Location { bucket: "b".to_owned(), ..S3Location::default() };
    change(&mut s3);
    let mut store = EtcdBackupStore::default();
    store.metadata.name = Some("vault".to_owned());
    store.spec.place = Location::S3(s3).into();
    store.spec.credentials = Some(Credentials { write: "writes".to_owned(), read: None, prune: None });
    let usable = Wanted::yes(Type::Ready, Reason::StoreUsable, "x");
    store.status.get_or_insert_default().conditions = merge(&[], &[usable], None, earlier().0);
    store
}

fn of_the_store(change: Change) -> Observed {
    let mut seen = bare(1);
    let store_ref = Some(LocalRef { name: "vault".to_owned() });
    let source = StoredSnapshot { store_ref, key: "k".to_owned(), ..StoredSnapshot::default() };
    seen.cluster.spec.bootstrap =
        Some(Bootstrap { restore: Some(Restore { source: Some(source), ..Restore::default() }) });
    seen.store = Some(Seen::Known(Some(store(change))));
    seen
}

fn writes(s3: &mut S3Location) {
    s3.tags = vec![S3Tag { name: "team".to_owned(), value: "blue".to_owned() }];
    s3.object_lock = Some(S3ObjectLock { mode: LockMode::Governance, days: 7 });
    s3.storage_class = Some("STANDARD_IA".to_owned());
    s3.checksum = Some(S3Checksum::Sha256);
    s3.sse = Some(S3Encryption { kind: S3Sse::AwsKms, kms_key_id: Some("k".to_owned()) });
}

fn customer(s3: &mut S3Location) {
    s3.sse = Some(S3Encryption { kind: S3Sse::Customer, kms_key_id: None });
}

/// A changed tag must not discard hours of a restore.
#[test]
fn how_a_store_is_written_to_concerns_no_restore_that_runs() {
    let begun = |change: Change| {
        let mut seen = of_the_store(change);
        let Some(Act::Latch(latched)) = act(&seen) else { panic!("{:?}", act(&seen)) };
        let restoring = latched.restoring.clone().unwrap();
        *latches(&mut seen) = *latched;
        (seen, restoring)
    };
    let plain: Change = |_| {};
    let with_customer_and_checksum: Change = |s3| {
        customer(s3);
        s3.checksum = Some(S3Checksum::Sha256);
    };
    let endpoint: Change = |s3| s3.endpoint = Some("https://s3.example.org".to_owned());
    let bucket: Change = |s3| s3.bucket = "another".to_owned();
    for (before, after, same) in [
        (plain, writes as Change, true),
        (writes, plain, true),
        (writes, writes, true),
        (plain, customer, false),
        (with_customer_and_checksum, customer, false),
        (plain, endpoint, false),
        (writes, bucket, false),
    ] {
        let (mut seen, restoring) = begun(before);
        seen.store = Some(Seen::Known(Some(store(after))));
        match act(&seen) {
            Some(Act::CreateMember(member)) => assert!(same && member.spec.restore == Some(restoring)),
            Some(Act::Latch(other)) => assert!(!same && other.restoring != Some(restoring)),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a cluster with a first member that serves, and has had no clients yet.
fn serves(made: Option<Restoring>, asked: Option<Restore>) -> Observed {
    let mut seen = seeding(3);
    seen.members[0].object.spec.joined = joined_member(&seen.cluster, 0).spec.joined;
    seen.members[0].pod.as_mut().unwrap().metadata.annotations = None;
    seen.members[0].object.spec.restore = made.clone();
    latches(&mut seen).restoring = made;
    seen.cluster.spec.bootstrap = asked.map(|asked| Bootstrap { restore: Some(asked) });
    seen
}

fn by_key(key: &str) -> Restore {
    Restore { source: Some(restoring(key).source), ..Restore::default() }
}

/// Otherwise the API server would accept the change, Holdfast would ignore it, and the API server would refuse a correction later.
#[test]
fn a_correction_that_comes_too_late_is_told_before_the_spec_is_frozen() {
    let named = |name: &str| Restore { snapshot_ref: Some(LocalRef { name: name.to_owned() }), ..Restore::default() };
    let of_snapshot = || Restoring { snapshot: Some("nightly".to_owned()), ..restoring("k1") };
    let in_store = || Restoring { store: Some("vault".to_owned()), ..restoring("k1") };
    let by_store = |name: &str, key: &str| {
        let store_ref = Some(LocalRef { name: name.to_owned() });
        let source = StoredSnapshot { store_ref, key: key.to_owned(), ..StoredSnapshot::default() };
        Restore { source: Some(source), ..Restore::default() }
    };
    let latest = |cluster: &str| Latest {
        store_ref: Some(LocalRef { name: "vault".to_owned() }),
        cluster: Some(cluster.to_owned()),
        ..Latest::default()
    };
    let question = holdfast_base::fingerprint::short(&latest("orders"));
    let newest =
        || Restoring { newest: Some(Newest { question: question.clone(), ..Newest::default() }), ..restoring("k1") };
    let by_latest = |cluster: &str| Restore { latest: Some(latest(cluster)), ..Restore::default() };
    let bumped = |bump| Restore { revision_bump: Some(bump), ..by_key("k1") };
    let unbumped = || Restoring { revision_bump: None, ..restoring("k1") };
    let read_otherwise = Restore {
        identity_secret_refs: vec![LocalRef { name: "age".to_owned() }],
        deadline_seconds: Some(60),
        ..by_key("k1")
    };
    let point = |revision| Some(RestorePoint { revision: Some(revision), ..RestorePoint::default() });
    let to_a_point = || Restoring { at: point(7), ..restoring("k1") };
    let by_point = |revision| Restore { at: point(revision), ..by_key("k1") };
    for (made, asked, put_back) in [
        (None, None, None),
        (Some(to_a_point()), Some(by_point(7)), None),
        (Some(to_a_point()), Some(by_point(8)), Some("Set source file:///backup/k1, at revision 7 again,")),
        (Some(to_a_point()), Some(by_key("k1")), Some("Set source file:///backup/k1, at revision 7 again,")),
        (Some(restoring("k1")), Some(by_point(7)), Some("Set source file:///backup/k1 again,")),
        (
            None,
            Some(by_key("k1")),
            Some(
                "Delete this cluster, which no client has reached, and create the cluster again with \
                 spec.bootstrap.restore",
            ),
        ),
        (Some(restoring("k1")), Some(by_key("k1")), None),
        (
            Some(restoring("k1")),
            Some(by_key("k2")),
            Some("Set source file:///backup/k1 again, with revisionBump 1000000000;"),
        ),
        (Some(restoring("k1")), None, Some("Set source file:///backup/k1 again,")),
        (Some(restoring("k1")), Some(bumped(1_000_000_000)), None),
        (Some(restoring("k1")), Some(bumped(7)), Some("with revisionBump 1000000000;")),
        (Some(unbumped()), Some(by_key("k1")), None),
        (Some(unbumped()), Some(bumped(7)), Some("with revisionBump 0;")),
        (Some(restoring("k1")), Some(read_otherwise), None),
        (Some(of_snapshot()), Some(named("nightly")), None),
        (Some(of_snapshot()), Some(named("daily")), Some("Set snapshotRef nightly again,")),
        (Some(of_snapshot()), Some(by_key("k1")), Some("Set snapshotRef nightly again,")),
        (Some(in_store()), Some(by_store("vault", "k1")), None),
        (Some(in_store()), Some(by_store("vault", "k2")), Some("Set source with storeRef vault and key k1 again,")),
        (Some(in_store()), Some(by_store("attic", "k1")), Some("Set source with storeRef vault and key k1 again,")),
        (Some(newest()), Some(by_latest("orders")), None),
        (Some(newest()), Some(by_latest("carts")), Some("Set the latest of the search that found k1 again,")),
    ] {
        let seen = serves(made.clone(), asked);
        let Some(put_back) = put_back else {
            let Some(Act::Latch(latched)) = act(&seen) else { panic!("{made:?}: {:?}", planned(&seen).waiting) };
            assert_eq!(latched.formed.unwrap().restored_from, made);
            continue;
        };
        assert_eq!(waits(&seen), Some(Reason::InvalidSpec), "{put_back}");
        let message = planned(&seen).waiting.unwrap().message;
        assert!(message.contains(put_back), "no {put_back:?} in {message}");
        assert_eq!(condition(&seen, "Degraded"), pair("True", "InvalidSpec"));
    }
}

/// A lost status, of a cluster that has had clients: the cluster forms again with its members.
#[test]
fn a_cluster_that_had_formed_is_recognized_whatever_its_spec_says() {
    let mut seen = serves(None, Some(by_key("k1")));
    seen.members[0].object.spec.start_count = 1;
    assert!(matches!(act(&seen), Some(Act::Latch(latched)) if latched.formed.is_some()));
    let mut seen = formed(3, 3);
    seen.cluster.status = None;
    restore(&mut seen, Some("k1"));
    assert!(matches!(act(&seen), Some(Act::Latch(latched)) if latched.formed.is_some()));
}

/// A user can correct a wrong version, class or size in place until the first member has served.
#[test]
fn a_corrected_spec_makes_the_first_member_anew_until_it_serves() {
    let changes: [fn(&mut holdfast_api::EtcdClusterSpec); 4] = [
        |spec| spec.version = "3.7.3".to_owned(),
        |spec| spec.storage.storage_class_name = Some("fast".to_owned()),
        |spec| spec.options.get_or_insert_default().snapshot_count = Some(5_000),
        |spec| spec.resources = Some(ResourceRequirements::default()),
    ];
    for change in changes {
        let mut seen = seeding(1);
        seen.etcd = Seen::unknown("refused");
        assert_eq!(act(&seen), None);
        change(&mut seen.cluster.spec);
        assert!(matches!(act(&seen), Some(Act::DeleteMember { member, .. }) if member == member_target(&seen, 0)));
        // The member serves now: Holdfast deletes no object of the member, and refuses the change in a condition.
        let mut seen = seeding(1);
        change(&mut seen.cluster.spec);
        seen.members[0].object.spec.joined = joined_member(&seen.cluster, 0).spec.joined;
        seen.members[0].pod.as_mut().unwrap().metadata.annotations = None;
        seen.members[0].object.spec.start_count = 0;
        assert_eq!(waits(&seen), Some(Reason::InvalidSpec));
        assert!(planned(&seen).waiting.unwrap().message.contains("put back the earlier value"));
        // The member has had clients: the latch was lost with the status.
        seen.members[0].object.spec.start_count = 1;
        assert!(matches!(act(&seen), Some(Act::Latch(latched)) if latched.formed.is_some()));
    }
}
