//! An `EtcdSnapshot` in a store that was edited since: the same place, with the present Secrets.

use holdfast_api::backup_store::{Credentials, StoreRecord};
use holdfast_api::restore::Restoring;
use holdfast_api::store::{Location, S3Location};
use holdfast_api::{EtcdBackupStore, EtcdBackupStoreSpec};

use super::bootstrap::{named_snapshot, snapshot};
use super::*;

/// Returns a store in this bucket, with Secrets of this name for reads and for the CA.
fn vault(bucket: &str, secret: &str) -> EtcdBackupStore {
    let s3 = S3Location {
        bucket: bucket.to_owned(),
        ca_ref: Some(LocalRef { name: format!("ca-{secret}") }),
        ..S3Location::default()
    };
    let credentials = Credentials { write: "writes".to_owned(), read: Some(secret.to_owned()), prune: None };
    let spec = EtcdBackupStoreSpec { place: Location::S3(s3).into(), credentials: Some(credentials), agent: None };
    EtcdBackupStore::new("vault", spec)
}

/// Returns a cluster that asks for a snapshot, saved to bucket `b` when the Secret was `old`.
fn asking(store: Seen<Option<EtcdBackupStore>>) -> Observed {
    let mut one = snapshot(Phase::Complete);
    let record = StoreRecord { name: "vault".to_owned(), ..vault("b", "old").record() };
    one.status.as_mut().unwrap().store = Some(record);
    one.spec.template.destination =
        Destination { store_ref: Some(LocalRef { name: "vault".to_owned() }), ..Destination::default() };
    let mut seen = bare(1);
    named_snapshot(&mut seen, Some(one));
    seen.store = Some(store);
    seen
}

fn known(store: EtcdBackupStore) -> Seen<Option<EtcdBackupStore>> {
    Seen::Known(Some(store))
}

fn latched(seen: &Observed) -> Restoring {
    let Some(Act::Latch(latches)) = act(seen) else { panic!("{:?}", act(seen)) };
    latches.restoring.unwrap()
}

/// Returns bucket, Secret for reads and Secret of the CA.
fn reads(restoring: &Restoring) -> (String, String, String) {
    let s3 = restoring.source.place.s3.clone().unwrap();
    (s3.bucket, s3.credentials_secret_ref.unwrap().name, s3.ca_ref.unwrap().name)
}

fn from(bucket: &str, secret: &str) -> (String, String, String) {
    (bucket.to_owned(), secret.to_owned(), format!("ca-{secret}"))
}

#[test]
fn a_snapshot_is_read_with_what_its_store_names_now_and_from_where_it_was_saved() {
    let mut going = vault("b", "new");
    going.metadata.deletion_timestamp = Some(earlier());
    for (store, expected) in [
        // No probe has used the new Secret yet: the sha256 identifies the snapshot.
        (known(vault("b", "new")), from("b", "new")),
        (known(going), from("b", "new")),
        // Holdfast sends no credentials of another place.
        (known(vault("moved", "new")), from("b", "old")),
        (Seen::Known(None), from("b", "old")),
    ] {
        let restoring = latched(&asking(store));
        assert_eq!((reads(&restoring), restoring.sha256.as_deref()), (expected, Some("5a")));
        assert_eq!((restoring.store, restoring.snapshot.as_deref()), (None, Some("s")));
    }
    assert_eq!(waits(&asking(Seen::unknown("timeout"))), Some(Reason::WaitingForReference));
}

#[test]
fn a_corrected_secret_is_another_attempt_and_a_store_that_goes_is_none() {
    let mut seen = asking(known(vault("b", "wrong")));
    let wrong = latched(&seen);
    *latches(&mut seen) =
        Latches { pending_member: Some("a-fresh".to_owned()), restoring: Some(wrong.clone()), ..Latches::default() };
    seen.fresh_suffix = "other".to_owned();
    for store in [Seen::Known(None), known(vault("moved", "new")), Seen::unknown("timeout")] {
        seen.store = Some(store);
        let Some(Act::CreateMember(member)) = act(&seen) else { panic!("{:?}", act(&seen)) };
        assert_eq!(member.spec.restore.as_ref(), Some(&wrong));
    }
    seen.store = Some(known(vault("b", "right")));
    let right = latched(&seen);
    assert_eq!((reads(&right), &right.sha256), (from("b", "right"), &wrong.sha256));
    assert_ne!(right.restore_uid, wrong.restore_uid);
}
