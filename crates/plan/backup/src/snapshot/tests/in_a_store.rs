//! Snapshots that go to an `EtcdBackupStore`.

use holdfast_api::EtcdBackupStore;
use holdfast_api::backup_store::{Credentials, Identity};
use holdfast_api::condition::{Reason, Type, Wanted, merge};
use holdfast_api::store::{Destination, Location, S3Location};
use holdfast_contract::AskMembers;

use super::*;

fn store(ready: &Wanted) -> EtcdBackupStore {
    let s3 = S3Location { bucket: "backups".to_owned(), ..S3Location::default() };
    let mut store = EtcdBackupStore { metadata: meta("vault", "store-uid"), ..EtcdBackupStore::default() };
    store.spec.place = Location::S3(s3).into();
    store.spec.credentials =
        Some(Credentials { write: "writes".to_owned(), read: Some("reads".to_owned()), prune: None });
    store.status.get_or_insert_default().conditions =
        merge(&[], std::slice::from_ref(ready), store.metadata.generation, now());
    store
}

fn usable() -> EtcdBackupStore {
    store(&Wanted::yes(Type::Ready, Reason::StoreUsable, "usable"))
}

fn naming(store: Option<EtcdBackupStore>) -> Observed {
    let mut seen = fresh();
    let store_ref = Some(LocalRef { name: "vault".to_owned() });
    seen.snapshot.spec.template.destination = Destination { store_ref, ..Destination::default() };
    seen.store = store;
    seen
}

fn secret(job: &Job) -> Option<String> {
    let volumes = job.spec.clone()?.template.spec?.volumes?;
    volumes.into_iter().find_map(|volume| volume.secret?.secret_name)
}

#[test]
fn a_store_that_is_not_ready_is_waited_for() {
    let denied = store(&Wanted::no(Type::Ready, Reason::StoreAccessDenied, "the store said no"));
    for (store, reason, words) in [
        (None, "WaitingForReference", "there is no EtcdBackupStore vault in this namespace yet"),
        (Some(denied), "WaitingForStore", "StoreAccessDenied"),
        (Some(EtcdBackupStore { status: None, ..usable() }), "WaitingForStore", "has not been probed yet"),
    ] {
        let plan = planned(&naming(store));
        let (phase, status, why, message) = told(&plan.status);
        assert_eq!((phase, status, why), (Phase::Pending, "False", reason));
        assert!(message.contains(words), "{message}");
        assert!(plan.act.is_none() && plan.status.store.is_none());
    }
}

#[test]
fn where_it_is_saved_is_recorded_before_and_on_the_job() {
    let seen = naming(Some(usable()));
    let plan = planned(&seen);
    let job = started(&seen);
    assert_eq!(plan.status.store, Some(usable().record()));
    assert!(args(&job).contains(&"--store=s3://backups".to_owned()));
    assert_eq!(secret(&job).as_deref(), Some("writes"));

    // The store moves: this snapshot does not.
    let mut moved = usable();
    moved.spec.place.s3.as_mut().unwrap().bucket = "elsewhere".to_owned();
    let mut later = naming(Some(moved.clone()));
    later.snapshot.status = Some(plan.status.clone());
    later.snapshot.status.as_mut().unwrap().started_at = Some(ago(600).0.to_string());
    let asks = started(&later);
    assert!(args(&asks).contains(&"--store=s3://backups".to_owned()), "{:?}", args(&asks));
    assert_eq!(secret(&asks).as_deref(), Some("reads"), "who only looks gets what only reads");
    assert_eq!(planned(&later).status.store, Some(usable().record()));

    // With the status lost, the Job still has the record.
    let mut lost = naming(Some(moved));
    lost.job = Some(Job { metadata: ObjectMeta { uid: Some("j".to_owned()), ..job.metadata.clone() }, ..job });
    lost.pods = vec![saved()];
    let plan = planned(&lost);
    assert_eq!((plan.status.phase, plan.status.store), (Phase::Complete, Some(usable().record())));
    lost.job.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(planned(&lost).status.store, None, "a stranger's Job says nothing");
}

/// The same store, with the store ID that a probe found here.
fn marked() -> EtcdBackupStore {
    let mut store = usable();
    let identity =
        Identity { id: "mark-of-vault".to_owned(), place: crate::store::place(&store).unwrap(), accepted: None };
    store.status.as_mut().unwrap().identity = Some(identity);
    store
}

#[test]
fn what_is_saved_expects_the_mark_that_the_store_had() {
    let expected = "--expect-store-id=mark-of-vault".to_owned();
    assert!(!args(&started(&naming(Some(usable())))).iter().any(|arg| arg.starts_with("--expect-store-id")));
    let seen = naming(Some(marked()));
    let plan = planned(&seen);
    assert!(args(&started(&seen)).contains(&expected));
    assert_eq!(plan.status.store.as_ref().unwrap().id.as_deref(), Some("mark-of-vault"));

    // A user accepts another store ID meanwhile, and the Job is gone: the snapshot's store ID stays.
    let mut store = marked();
    store.status.as_mut().unwrap().identity.as_mut().unwrap().id = "mark-of-another".to_owned();
    let mut again = naming(Some(store));
    again.snapshot.status = Some(plan.status.clone());
    assert!(args(&started(&again)).contains(&expected));

    // The identity of another place does not count.
    let mut moved = marked();
    moved.spec.place.s3.as_mut().unwrap().bucket = "elsewhere".to_owned();
    assert!(!args(&started(&naming(Some(moved)))).iter().any(|arg| arg.starts_with("--expect-store-id")));
}

/// Credentials that lead to another tenant's bucket with the same name: such a listing is no answer about the snapshot (I18).
#[test]
fn who_asks_expects_the_mark_too_and_another_store_has_no_say() {
    let begun = |store: EtcdBackupStore| {
        let mut seen = written(naming(Some(store)));
        seen.snapshot.status.as_mut().unwrap().started_at = Some(ago(600).0.to_string());
        seen
    };
    let expected = "--expect-store-id=mark-of-vault".to_owned();
    assert!(!args(&started(&begun(usable()))).iter().any(|arg| arg.starts_with("--expect-store-id")));
    let mut seen = begun(marked());
    assert!(args(&started(&seen)).contains(&expected));
    // The snapshot's store ID stays, whatever a user accepts meanwhile.
    seen.store.as_mut().unwrap().status.as_mut().unwrap().identity.as_mut().unwrap().id = "another".to_owned();
    assert!(args(&started(&seen)).contains(&expected));

    let refused = vec![failed(
        "p-ask",
        ExitClass::Refused,
        "the store ID mark-of-vault is expected, and the store has no store ID",
    )];
    let seen = asked(seen, refused);
    let plan = planned(&seen);
    let (phase, ready, reason, message) = told(&plan.status);
    assert_eq!((phase, ready, reason), (Phase::Running, "Unknown", "ReportLost"));
    assert!(message.ends_with("the store has no store ID"), "{message}");
    let again = aged(seen, 200);
    assert!(args(&started(&again)).contains(&expected), "asked again, for the same store");
    assert_eq!(planned(&asked(again, vec![saved()])).status.phase, Phase::Complete);
}

#[test]
fn a_lost_status_is_not_taken_for_a_new_snapshot_when_the_store_is_gone() {
    let mut seen = naming(None);
    seen.snapshot.metadata.creation_timestamp = Some(ago(3600));
    let plan = planned(&seen);
    assert_eq!((plan.status.phase, plan.act.is_none()), (Phase::Running, true));
    let (_, ready, reason, message) = told(&plan.status);
    assert_eq!((ready, reason), ("Unknown", "AskingStore"));
    assert!(message.contains("EtcdBackupStore vault") && !message.contains("report is gone"), "{message}");
    // The operator saves another snapshot only after the store's answer.
    seen.store = Some(usable());
    seen.snapshot.status = Some(plan.status);
    assert!(args(&started(&seen)).iter().any(|arg| arg.starts_with("--owner-uid")));
    assert_eq!(secret(&started(&seen)).as_deref(), Some("reads"));
}

#[test]
fn a_second_voter_of_a_large_database_is_asked_where_the_spec_says_so() {
    let mut seen = fresh();
    assert!(args(&started(&seen)).contains(&"--ask-members=Auto".to_owned()));
    seen.snapshot.spec.template.ask_members = Some(AskMembers::Always);
    assert!(args(&started(&seen)).contains(&"--ask-members=Always".to_owned()), "{:?}", args(&started(&seen)));
}
