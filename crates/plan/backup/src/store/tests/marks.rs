//! A store ID: latched once, expected from then on, and replaced only with a user's permission (I25).

use holdfast_contract::NEW_STORE;

use super::*;
use crate::fixtures::flags_of_job;

const OTHER: &str = "ffffffff-0000-4000-8000-000000000000";

/// The store IDs that the probe's Job expects and accepts.
fn told_to(seen: &Observed) -> (Option<String>, Option<String>) {
    let plan = planned(seen);
    let args = flags_of_job(started(&plan));
    let flag = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(&format!("--{name}=")).map(str::to_owned));
    (flag("expect-store-id"), flag("accept-store-id"))
}

/// A probe that found this store ID, and refused it or not.
fn says(found: Option<&str>, refused: bool) -> Pod {
    let failed = refused.then_some(ExitClass::Refused);
    let report = Probed { store_id: found.map(str::to_owned), ..probed(&[], failed) };
    ended(code(&report), Some(&Report::Probed(report)))
}

/// The world after its next probe reported this.
fn after(seen: Observed, pod: Pod) -> (Observed, Plan<EtcdBackupStoreStatus>) {
    let seen = with(seen, vec![pod]);
    let plan = planned(&seen);
    (written(seen, &plan), plan)
}

fn accept(seen: &mut Observed, mark: Option<&str>) {
    let annotations = mark.map(|mark| [(key::ACCEPT_STORE.to_owned(), mark.to_owned())].into());
    seen.store.metadata.annotations = annotations;
}

fn exchange_secret(seen: &mut Observed, version: &str) {
    seen.secrets.insert("writes".to_owned(), Seen::Known(Some(version.to_owned())));
}

fn id(seen: &Observed) -> Option<String> {
    known(&seen.store).map(|known| known.id.clone())
}

/// A store whose Secret now leads to another bucket.
fn exchanged(found_there: Option<&str>) -> Observed {
    let mut seen = found(10);
    exchange_secret(&mut seen, "u/2");
    let (seen, plan) = after(seen, says(found_there, true));
    assert_eq!(told(&plan), ("False", "StoreExchanged"));
    seen
}

#[test]
fn the_first_usable_probe_latches_the_mark_and_later_ones_expect_it() {
    assert_eq!(told_to(&fresh()), (None, None));
    let seen = found(24 * 3600);
    assert_eq!(id(&seen).as_deref(), Some(MARK));
    assert_eq!(told_to(&seen), (Some(MARK.to_owned()), None));
    let mut secret = found(10);
    exchange_secret(&mut secret, "u/2");
    assert_eq!(told_to(&secret).0.as_deref(), Some(MARK), "credentials alone forget nothing");
    // A failed probe, and a probe that may not read the store ID, change nothing.
    for pod in [answered(&[], Some(ExitClass::Denied)), says(None, false)] {
        let (seen, _) = after(found(24 * 3600), pod);
        assert_eq!(id(&seen).as_deref(), Some(MARK));
    }
    // A store that is not usable has no known identity.
    let (seen, _) = after(fresh(), says(Some(OTHER), true));
    assert_eq!(id(&seen), None);
    // With the status lost, the probe takes the existing store ID.
    let mut lost = found(10);
    lost.store.status = None;
    assert_eq!(told_to(&lost), (None, None));
}

#[test]
fn another_store_is_told_and_not_used() {
    for (there, accepted) in [(Some(OTHER), OTHER), (None, NEW_STORE)] {
        let seen = exchanged(there);
        let plan = planned(&seen);
        let words = format!("holdfast.dev/accept-store={accepted}");
        assert!(ready(&plan).message.contains(&words), "{}", ready(&plan).message);
        assert!(plan.act.is_none(), "it is probed again when it is time");
        assert_eq!(id(&seen).as_deref(), Some(MARK), "what was known stays");
        let (reason, message) = usable("vault", Some(&seen.store)).unwrap_err();
        assert!(reason == Reason::WaitingForStore && message.contains("StoreExchanged"), "{message}");
        // The right Secret is back.
        let mut seen = seen;
        exchange_secret(&mut seen, "u/3");
        let (seen, plan) = after(seen, says(Some(MARK), false));
        assert_eq!((told(&plan), id(&seen).as_deref()), (("True", "StoreUsable"), Some(MARK)));
    }
}

#[test]
fn a_person_accepts_another_store_once() {
    for (there, accepted) in [(Some(OTHER), OTHER), (None, NEW_STORE)] {
        let mut seen = exchanged(there);
        accept(&mut seen, Some(accepted));
        assert_eq!(told_to(&seen), (Some(MARK.to_owned()), Some(accepted.to_owned())), "at once");
        let (seen, plan) = after(seen, says(Some(OTHER), false));
        assert_eq!((told(&plan), id(&seen).as_deref()), (("True", "StoreUsable"), Some(OTHER)));
        assert_eq!(plan.notes.iter().map(|n| n.reason.as_str()).collect::<Vec<_>>(), ["StoreAccepted"]);
        let after_that = planned(&seen);
        assert!(after_that.act.is_none() && after_that.notes.is_empty() && after_that.status == plan.status, "settled");

        // The annotation stays, and does not accept the next exchange.
        let mut again = seen;
        exchange_secret(&mut again, "u/4");
        assert_eq!(told_to(&again), (Some(OTHER.to_owned()), None));
        let (mut again, _) = after(again, says(None, true));
        // Removed and set again, the annotation accepts.
        accept(&mut again, None);
        assert_eq!(told_to(&again), (Some(OTHER.to_owned()), None));
        let (mut again, _) = after(again, says(None, true));
        accept(&mut again, Some(accepted));
        assert_eq!(told_to(&again).1.as_deref(), Some(accepted));
    }
}

#[test]
fn what_is_accepted_is_a_mark_and_meant_for_this_place() {
    for nonsense in ["", "yes", "a b c d e f g h", "--exec=/bin/sh", &"x".repeat(65)] {
        let mut seen = exchanged(Some(OTHER));
        accept(&mut seen, Some(nonsense));
        assert_eq!(told_to(&seen), (Some(MARK.to_owned()), None), "{nonsense:?}");
    }
    // Set before the first probe: used up when the store becomes usable.
    let mut early = fresh();
    accept(&mut early, Some(NEW_STORE));
    assert_eq!(told_to(&early), (None, None));
    let (mut early, _) = after(early, says(Some(MARK), false));
    exchange_secret(&mut early, "u/2");
    assert_eq!(told_to(&early), (Some(MARK.to_owned()), None));
}

#[test]
fn another_place_is_another_store_and_how_it_is_reached_is_not() {
    type Change = (&'static str, bool, fn(&mut S3Location));
    let changes: [Change; 8] = [
        ("bucket", true, |s3| s3.bucket = "elsewhere".to_owned()),
        ("prefix", true, |s3| s3.prefix = None),
        ("endpoint", true, |s3| s3.endpoint = Some("https://s3.example.com".to_owned())),
        ("region", true, |s3| s3.region = Some("eu-central-1".to_owned())),
        ("the certificates' Secret", false, |s3| s3.ca_ref = None),
        ("the storage class", false, |s3| s3.storage_class = Some("STANDARD_IA".to_owned())),
        ("the way of addressing", false, |s3| s3.force_path_style = Some(true)),
        ("nothing", false, |_| {}),
    ];
    for (what, moves, change) in changes {
        let mut seen = found(24 * 3600);
        change(seen.store.spec.place.s3.as_mut().unwrap());
        assert_eq!(told_to(&seen).0.is_none(), moves, "{what}");
        let record = usable("vault", Some(&seen.store)).unwrap();
        assert_eq!(record.id.is_none(), moves, "{what}: what was known of another place says nothing");
        let (seen, _) = after(seen, says(Some(OTHER), false));
        assert_eq!(id(&seen).as_deref(), Some(OTHER), "{what}");
    }
    let mut seen = found(24 * 3600);
    seen.store.spec.credentials.as_mut().unwrap().write = "others".to_owned();
    assert_eq!(told_to(&seen).0.as_deref(), Some(MARK), "the name of a Secret is no place");
}
