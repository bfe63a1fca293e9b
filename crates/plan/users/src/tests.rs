//! One pass over a user: in tables what is claimed, made, issued, waited for and deleted.

use holdfast_api::cluster::{EtcdClusterStatus, Formed, Latches};
use holdfast_api::condition::Reason;
use holdfast_api::name::LocalRef;
use holdfast_api::user::{KeyAccess, Matching, PasswordRef, Permission, ReclaimPolicy, UserCertificate};
use holdfast_api::{EtcdCluster, EtcdUser, USER_FINALIZER, key};
use holdfast_base::certificate::{Ca, Contents, Kept, Known, files};
use holdfast_base::{Act, Seen, Target, Wake};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use holdfast_safety as safety;

const CLUSTER: u64 = 0xc1;

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn kept(name: &str, owner: &str, files: holdfast_base::certificate::Files, common_name: Option<&str>) -> Kept {
    let known = Known {
        fingerprint: name.to_owned(),
        ca: "ca".to_owned(),
        anchor: "anchor".to_owned(),
        cas: vec![Ca { anchor: "anchor".to_owned(), not_after: noon(), fingerprint: "ca".to_owned() }],
        contents: "contents".to_owned(),
        for_servers: true,
        for_clients: true,
        common_name: common_name.map(str::to_owned),
        names: vec![],
        not_before: noon() - SignedDuration::from_hours(24 * 30),
        not_after: noon() + SignedDuration::from_hours(24 * 60),
    };
    let known = if files == files::CA { Known { fingerprint: "ca".to_owned(), ..known } } else { known };
    Kept {
        target: Target { name: name.to_owned(), uid: format!("u-{name}"), resource_version: "1".to_owned() },
        owner: Some(owner.to_owned()),
        typed: true,
        rotated_for: None,
        exchanged: None,
        written: None,
        digest: "d".to_owned(),
        leaves: [(files.certificate, Ok(known))].into(),
    }
}

/// A user that the operator sees for the first time, of a cluster with authentication.
fn new() -> Observed {
    let mut user = EtcdUser::default();
    user.metadata.name = Some("shop".to_owned());
    user.metadata.namespace = Some("ns".to_owned());
    user.metadata.uid = Some("u-shop".to_owned());
    user.metadata.resource_version = Some("7".to_owned());
    user.spec.cluster_ref = LocalRef { name: "a".to_owned() };
    user.spec.certificate = Some(UserCertificate {});
    user.spec.permissions = vec![Permission {
        key: "/shop/".to_owned(),
        matching: Matching::Prefix,
        range_end: None,
        access: KeyAccess::ReadWrite,
    }];
    let mut cluster = EtcdCluster::default();
    cluster.metadata.name = Some("a".to_owned());
    cluster.metadata.uid = Some("u-a".to_owned());
    cluster.status = Some(EtcdClusterStatus {
        auth_enabled: Some(true),
        latches: Latches {
            formed: Some(Formed { cluster_id: "c1".to_owned(), ..Formed::default() }),
            ..Latches::default()
        },
        ..EtcdClusterStatus::default()
    });
    Observed {
        user,
        cluster: Some(cluster),
        leader: None,
        reachable: true,
        taken: Some(Seen::Known(false)),
        rival: None,
        password: None,
        secret: None,
        ca: Some(kept("a-client-ca", "u-a", files::CA, None)),
        servers: None,
    }
}

fn held(seen: &mut Observed) {
    seen.user.metadata.finalizers = Some(vec![USER_FINALIZER.to_owned()]);
}

fn annotated(seen: &mut Observed, claim: &str) {
    seen.user.metadata.annotations = Some([(key::USER.to_owned(), claim.to_owned())].into());
}

/// A user that etcd has.
fn made() -> Observed {
    let mut seen = new();
    held(&mut seen);
    annotated(&mut seen, "c1/shop");
    seen.secret = Some(kept("shop-etcd-tls", "u-shop", files::CLIENT, Some("shop")));
    let Some(Act::PutUser { change, .. }) = act(&seen) else { panic!() };
    annotated(&mut seen, &change.claim);
    seen.taken = None;
    seen
}

/// The act, which keeps the safety rules.
fn act(seen: &Observed) -> Option<Act> {
    let plan = plan(seen, noon());
    assert_eq!(safety::user(seen, &plan), Ok(()), "{:?}", plan.act);
    plan.act
}

fn waits(seen: &Observed) -> Option<Reason> {
    let plan = plan(seen, noon());
    assert_eq!(plan.act, None);
    let ready = plan.status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    let reason = plan.waiting.map(|waiting| waiting.reason);
    assert_eq!(Some(ready.reason.as_str()), reason.map(Reason::as_str).or(Some("AsDesired")));
    reason
}

#[test]
fn a_user_is_claimed_before_etcd_gets_it() {
    let mut seen = new();
    let user = Target::from(&seen.user.metadata);
    assert_eq!(act(&seen), Some(Act::HoldUser { user: user.clone() }));
    held(&mut seen);
    assert_eq!(act(&seen), Some(Act::ClaimUser { user: user.clone(), claim: "c1/shop".to_owned() }));
    annotated(&mut seen, "c1/shop");
    let Some(Act::Issue(issue)) = act(&seen) else { panic!() };
    let Contents::Leaves { leaves, .. } = &issue.contents else { panic!() };
    assert_eq!(issue.metadata.name.as_deref(), Some("shop-etcd-tls"));
    assert_eq!(leaves[0].common_name.as_deref(), Some("shop"));
    seen.secret = Some(kept("shop-etcd-tls", "u-shop", files::CLIENT, Some("shop")));
    let Some(Act::PutUser { change, cluster_id, .. }) = act(&seen) else { panic!() };
    assert_eq!((change.name.as_str(), cluster_id, &change.permissions), ("shop", CLUSTER, &seen.user.spec.permissions));
    assert!(change.is_new && change.claim.starts_with("c1/shop/"));
    annotated(&mut seen, &change.claim);
    assert_eq!((act(&seen), waits(&seen)), (None, None));
    let plan = plan(&seen, noon());
    assert_eq!(plan.status.keys.as_deref(), Some("rw /shop/*"));
    assert!(plan.status.certificate_not_after.is_some());
    // No watch tells that the Secret is gone.
    assert_eq!(plan.wake, Wake::AfterMillis(300_000));
}

#[test]
fn a_user_of_somebody_else_is_not_changed() {
    let mut seen = new();
    held(&mut seen);
    seen.taken = Some(Seen::Known(true));
    assert_eq!(waits(&seen), Some(Reason::NameTaken));
    seen.user.spec.take_over = true;
    assert!(matches!(act(&seen), Some(Act::ClaimUser { .. })));
    seen.user.spec.take_over = false;
    for unknown in [None, Some(Seen::unknown("no"))] {
        seen.taken = unknown;
        assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd));
    }
    // A claim in another etcd cluster counts for nothing in this one.
    let mut moved = made();
    annotated(&mut moved, "c2/shop/k/l");
    moved.taken = Some(Seen::Known(true));
    assert_eq!(waits(&moved), Some(Reason::NameTaken));
    // After a return in place the earlier claim counts, and etcd is given all again.
    let latches = &mut moved.cluster.as_mut().unwrap().status.as_mut().unwrap().latches;
    latches.formed.as_mut().unwrap().earlier_cluster_ids = vec!["c2".to_owned()];
    let Some(Act::PutUser { change, cluster_id, .. }) = act(&moved) else { panic!() };
    assert!(change.is_new && change.changes_password && change.claim.starts_with("c1/shop/"), "{change:?}");
    assert_eq!(cluster_id, CLUSTER);
    let mut second = made();
    second.rival = Some("older".to_owned());
    assert_eq!(waits(&second), Some(Reason::NameTaken));
}

#[test]
fn an_edit_and_another_password_reach_etcd() {
    let mut seen = made();
    seen.user.spec.permissions.clear();
    let Some(Act::PutUser { change, .. }) = act(&seen) else { panic!() };
    assert_eq!((change.is_new, change.changes_password), (false, false), "tokens stay valid");
    let mut seen = made();
    seen.user.spec.certificate = None;
    seen.user.spec.password_secret_ref = Some(PasswordRef { name: "login".to_owned(), key: "password".to_owned() });
    seen.password = Some(Seen::Known(Some("u/1".to_owned())));
    let Some(Act::PutUser { change, .. }) = act(&seen) else { panic!() };
    assert_eq!(change.password, seen.user.spec.password_secret_ref);
    annotated(&mut seen, &change.claim);
    assert_eq!(waits(&seen), None);
    seen.password = Some(Seen::Known(Some("u/2".to_owned())));
    let Some(Act::PutUser { change, .. }) = act(&seen) else { panic!() };
    assert!(change.changes_password && !change.is_new);
    seen.password = Some(Seen::Known(None));
    assert_eq!(waits(&seen), Some(Reason::WaitingForReference));
    seen.password = Some(Seen::unknown("forbidden"));
    assert_eq!(waits(&seen), Some(Reason::RightsMissing));
}

#[test]
fn a_certificate_is_renewed_by_its_age_and_by_its_ca() {
    type Change = fn(&mut Known);
    let changes: [(&str, Change); 4] = [
        ("due", |known| known.not_after = noon() + SignedDuration::from_hours(24)),
        ("another CA", |known| known.ca = "older".to_owned()),
        ("another user", |known| known.common_name = Some("other".to_owned())),
        ("not valid yet", |known| known.not_before = noon() + SignedDuration::from_hours(1)),
    ];
    for (what, change) in changes {
        let mut seen = made();
        change(seen.secret.as_mut().unwrap().leaves.get_mut("tls.crt").unwrap().as_mut().unwrap());
        let Some(Act::Issue(issue)) = act(&seen) else { panic!("{what}") };
        assert!(issue.replaces.is_some());
    }
    let mut foreign = made();
    foreign.secret.as_mut().unwrap().owner = Some("u-other".to_owned());
    assert_eq!(waits(&foreign), Some(Reason::NameConflict));
    type Loss = fn(&mut Observed);
    let losses: [Loss; 3] = [
        |s| s.ca = None,
        |s| s.ca.as_mut().unwrap().owner = Some("u-other".to_owned()),
        |s| drop(s.ca.as_mut().unwrap().leaves.insert("tls.crt", Err("no PEM".to_owned()))),
    ];
    for lose in losses {
        let mut lost = made();
        lose(&mut lost);
        assert_eq!(waits(&lost), Some(Reason::CertificatePending));
    }
    // Also while etcd takes no change.
    let mut refused = made();
    refused.user.spec.permissions.clear();
    refused.secret = None;
    assert!(matches!(act(&refused), Some(Act::Issue(_))));
}

#[test]
fn what_is_missing_is_named() {
    type Change = fn(&mut Observed);
    let changes: [(Reason, Change); 5] = [
        (Reason::WaitingForReference, |s| s.cluster = None),
        (Reason::WaitingForCluster, |s| s.cluster.as_mut().unwrap().status = None),
        (Reason::Paused, |s| s.cluster.as_mut().unwrap().spec.paused = true),
        (Reason::AuthDisabled, |s| s.cluster.as_mut().unwrap().status.as_mut().unwrap().auth_enabled = Some(false)),
        (Reason::InvalidSpec, |s| {
            let tls = serde_json::json!({"insecure": true});
            s.cluster.as_mut().unwrap().spec.tls = serde_json::from_value(tls).unwrap();
        }),
    ];
    for (reason, change) in changes {
        let mut seen = made();
        change(&mut seen);
        assert_eq!(waits(&seen), Some(reason));
    }
    let mut silent = new();
    held(&mut silent);
    silent.reachable = false;
    assert_eq!(waits(&silent), Some(Reason::WaitingForEtcd));
    let mut silent = made();
    silent.reachable = false;
    assert_eq!(waits(&silent), None, "etcd has the user");
}

#[test]
fn etcd_loses_the_user_with_its_object() {
    let deleted = |change: fn(&mut Observed)| {
        let mut seen = made();
        seen.user.metadata.deletion_timestamp = Some(Time(noon()));
        change(&mut seen);
        seen
    };
    let drops = deleted(|_| {});
    let Some(Act::DropUser { name, cluster_id, .. }) = act(&drops) else { panic!() };
    assert_eq!((name.as_str(), cluster_id), ("shop", CLUSTER));
    type Change = fn(&mut Observed);
    let releases: [(&str, Change); 7] = [
        ("another object has claimed it", |s| s.rival = Some("other".to_owned())),
        ("a copy under another name", |s| s.user.spec.name = Some("admin".to_owned())),
        ("retained", |s| s.user.spec.reclaim_policy = ReclaimPolicy::Retain),
        ("no cluster", |s| s.cluster = None),
        ("the cluster goes", |s| s.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(noon()))),
        ("never claimed", |s| s.user.metadata.annotations = None),
        ("claimed elsewhere", |s| annotated(s, "c2/shop/k/l")),
    ];
    for (what, change) in releases {
        assert!(matches!(act(&deleted(change)), Some(Act::ReleaseUser { .. })), "{what}");
    }
    assert_eq!(plan(&deleted(|s| s.reachable = false), noon()).waiting.unwrap().reason, Reason::WaitingForEtcd);
    let paused = deleted(|s| s.cluster.as_mut().unwrap().spec.paused = true);
    assert_eq!(plan(&paused, noon()).waiting.unwrap().reason, Reason::Paused);
    assert_eq!(act(&deleted(|s| s.user.metadata.finalizers = None)), None);
}

/// Acts of a broken planner.
#[test]
fn the_safety_rules_hold_without_the_plan() {
    let broken = |seen: &Observed, act: Act| {
        let mut plan = plan(seen, noon());
        plan.act = Some(act);
        safety::user(seen, &plan).err().map(|violation| violation.invariant)
    };
    let mut seen = new();
    held(&mut seen);
    let user = Target::from(&seen.user.metadata);
    let claim = |claim: &str| Act::ClaimUser { user: user.clone(), claim: claim.to_owned() };
    assert_eq!(broken(&seen, claim("c2/shop")), Some("I31"));
    seen.taken = Some(Seen::Known(true));
    assert_eq!(broken(&seen, claim("c1/shop")), Some("I31"));
    let drop = |name: &str| Act::DropUser { user: user.clone(), name: name.to_owned(), cluster_id: CLUSTER };
    let mut made = made();
    assert_eq!(broken(&made, drop("shop")), Some("I31"), "it is not deleted");
    made.user.metadata.deletion_timestamp = Some(Time(noon()));
    assert_eq!(broken(&made, drop("root")), Some("I31"));
    assert_eq!(broken(&made, drop("shop")), None);
    assert_eq!(broken(&made, Act::ReleaseUser { user: user.clone() }), Some("I21"));
    made.user.spec.name = Some("root".to_owned());
    assert_eq!(broken(&made, drop("root")), Some("I31"));
}
