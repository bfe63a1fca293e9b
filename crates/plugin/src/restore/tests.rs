//! Restores: the choice of the snapshot, the new cluster, and the figures of the plan.

use jiff::Timestamp;
use serde_json::from_value;

use super::*;

fn snapshot(name: &str, phase: &str, completed: &str, revision: i64) -> EtcdSnapshot {
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdSnapshot", "metadata": {"name": name, "namespace": "prod"},
        "spec": {"clusterRef": {"name": "alpha"}, "destination": {"storeRef": {"name": "vault"}}},
        "status": {
            "phase": phase, "completedAt": completed, "clusterUID": "u",
            "verification": {"level": "HashKV", "message": "m"},
            "artifact": {
                "uri": "s3://backups/etcd/prod/alpha/1/x/snapshot.db.zst", "key": "prod/alpha/1/x", "dbBytes": 2_u64 << 30,
                "size": "2.0 GiB", "storedBytes": 700_u64 << 20, "sha256": "00", "revision": revision, "keys": 12345,
                "compression": "zstd", "etcdVersion": "3.6.16",
            },
        },
    }))
    .unwrap()
}

fn saved() -> EtcdCluster {
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "alpha", "namespace": "prod", "uid": "u"},
        "spec": {"replicas": 0, "version": "3.6.16", "paused": true, "storage": {"size": "16Gi"},
                 "options": {"snapshotCount": 20000}},
    }))
    .unwrap()
}

/// A cluster that was restored a day earlier.
fn restored_cluster(store: &str) -> EtcdCluster {
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "beta", "creationTimestamp": "2026-11-26T12:00:00Z"},
        "spec": {"version": "3.6.16"},
        "status": {
            "latches": {"formed": {"clusterID": "c", "at": "2026-11-26T12:00:30Z"}},
            "restore": {"phase": "Formed", "uri": format!("{store}/etcd/prod/alpha/1/w/snapshot.db.zst"), "dbBytes": 1_u64 << 30},
        },
    }))
    .unwrap()
}

fn subject(snapshot: Option<&str>) -> Subject {
    Subject {
        cluster: "alpha".to_owned(),
        snapshot: snapshot.map(str::to_owned),
        at: PointFlags::default(),
        new: None,
        identity_secret: None,
    }
}

fn all() -> Vec<EtcdSnapshot> {
    vec![
        snapshot("old", "Complete", "2026-11-27T10:00:00Z", 1000),
        snapshot("new", "Complete", "2026-11-27T11:00:00Z", 2500),
        snapshot("bad", "Failed", "2026-11-27T11:30:00Z", 0),
    ]
}

#[test]
fn the_newest_complete_snapshot_is_the_default_and_no_other_phase_is_restored() {
    let all = all();
    assert_eq!(choose(&all, &subject(None)).unwrap().name_any(), "new");
    assert_eq!(choose(&all, &subject(Some("old"))).unwrap().name_any(), "old");
    assert!(choose(&all, &subject(Some("bad"))).unwrap_err().contains("is Failed"));
    assert!(choose(&all, &subject(Some("none"))).unwrap_err().contains("snapshot list alpha"));
    assert!(choose(&[], &subject(None)).unwrap_err().contains("docs/restore.md"));
}

#[test]
fn a_point_in_time_begins_with_the_newest_snapshot_before_it() {
    let all = all();
    let at_time = |time: &str| Subject {
        at: PointFlags { at_time: Some(time.parse().unwrap()), ..PointFlags::default() },
        ..subject(None)
    };
    let at_revision =
        |revision| Subject { at: PointFlags { at_revision: Some(revision), ..PointFlags::default() }, ..subject(None) };
    for (subject, name) in [
        (at_time("2026-11-27T10:59:00Z"), Some("old")),
        (at_time("2026-11-27T12:00:00+01:00"), Some("new")),
        (at_time("2026-11-27T09:59:59Z"), None),
        (at_revision(2499), Some("old")),
        (at_revision(2500), Some("new")),
        (at_revision(999), None),
    ] {
        let chosen = choose(&all, &subject).map(|snapshot| snapshot.name_any());
        match name {
            Some(name) => assert_eq!(chosen.as_deref(), Ok(name), "{subject:?}"),
            None => assert!(chosen.unwrap_err().contains("is earlier than"), "{subject:?}"),
        }
    }
    let mut allowed = at_revision(2000);
    allowed.at.allow_auth_changed = true;
    let new = new_cluster(Some(&saved()), &all[0], &allowed, "prod").unwrap();
    let restore = new.spec.bootstrap.clone().unwrap().restore.unwrap();
    assert_eq!(serde_json::to_value(restore.at).unwrap(), json!({"revision": 2000, "allowAuthChanged": true}));

    let now = "2026-11-27T12:00:00Z".parse().unwrap();
    let plan = Plan::for_restore(&all[0], &all, &[], &new, now);
    let screen = Screen { width: 80, coloured: false, is_terminal: false };
    let words = plan.render(screen);
    for said in ["and the log up to revision 2000", "every write after revision 2000, 500 revisions at least"] {
        assert!(words.contains(said), "{said}: {words}");
    }
    let new = new_cluster(None, &all[0], &at_time("2026-11-27T10:42:07Z"), "prod").unwrap();
    let words = Plan::for_restore(&all[0], &all, &[], &new, now).render(screen);
    assert!(words.contains("every write after 2026-11-27T10:42:07Z\n"), "{words}");
}

#[test]
fn the_new_cluster_has_the_spec_of_the_saved_one_and_runs() {
    let all = all();
    let new = new_cluster(Some(&saved()), &all[0], &subject(None), "prod").unwrap();
    assert_eq!((new.name_any().as_str(), new.spec.replicas, new.spec.paused), ("alpha-restored", 3, false));
    assert_eq!(new.spec.options, saved().spec.options);
    let restore = new.spec.bootstrap.unwrap().restore.unwrap();
    assert_eq!(restore.snapshot_ref.unwrap().name, "old");
    let alone = new_cluster(None, &all[0], &subject(None), "prod").unwrap();
    assert_eq!((alone.spec.version.as_str(), alone.spec.storage.size().0.as_str()), ("3.6.16", "9Gi"));
    let mut hidden = all[0].clone();
    hidden.status.as_mut().unwrap().artifact.as_mut().unwrap().encrypted = true;
    assert!(new_cluster(None, &hidden, &subject(None), "prod").unwrap_err().contains("--identity-secret"));
    let opened = Subject { identity_secret: Some("key".to_owned()), ..subject(None) };
    let opened = new_cluster(None, &hidden, &opened, "prod").unwrap();
    assert_eq!(opened.spec.bootstrap.unwrap().restore.unwrap().identity_secret_refs[0].name, "key");
}

#[test]
fn the_plan_names_losses_and_the_time_of_earlier_restores() {
    let all = all();
    let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
    let screen = Screen { width: 80, coloured: false, is_terminal: false };
    let plan = |snapshot: &EtcdSnapshot, store| {
        let new = new_cluster(Some(&saved()), snapshot, &subject(None), "prod").unwrap();
        let plan = Plan::for_restore(snapshot, &all, &[saved(), restored_cluster(store)], &new, now);
        (plan.clone(), text(&plan, &new, screen).unwrap())
    };
    let (old, words) = plan(&all[0], "s3://backups");
    assert_eq!((old.revisions_lost, old.expected_seconds), (Some(1500), Some(60)));
    for said in ["revision 1,000", "2h ago", "1,500 revisions at least", "about 60 s", "beta with 1.0 GiB took 30 s"] {
        assert!(words.contains(said), "{said}: {words}");
    }
    let yaml: serde_json::Value = serde_saphyr::from_str(&words).unwrap();
    assert_eq!(yaml["spec"]["bootstrap"]["restore"]["snapshotRef"]["name"], "old", "the whole text is YAML");
    let (newest, words) = plan(&all[1], "s3://other");
    assert_eq!((newest.revisions_lost, newest.expected_seconds), (Some(0), None));
    assert!(words.contains("this is the newest snapshot") && words.contains("takes      unknown"), "{words}");
}
