//! Restores: the choice of the snapshot, the new cluster, and the figures of the plan.

use jiff::Timestamp;
use serde_json::from_value;

use super::*;

pub(super) fn snapshot(name: &str, phase: &str, completed: &str, revision: i64) -> EtcdSnapshot {
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

pub(super) fn saved() -> EtcdCluster {
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

pub(super) fn source(snapshot: Option<&str>) -> Source {
    Source {
        cluster: "alpha".to_owned(),
        snapshot: snapshot.map(str::to_owned),
        at: PointFlags::default(),
        identity_secret: None,
    }
}

fn subject(source: Source) -> Subject {
    Subject { source, new: None }
}

fn plan(snapshot: &EtcdSnapshot, clusters: &[EtcdCluster], new: &EtcdCluster, now: Timestamp) -> Plan {
    let restore = new.spec.bootstrap.clone().unwrap().restore.unwrap();
    Plan::for_restore(snapshot, &all(), clusters, (&new.name_any(), restore.at.as_ref()), now)
}

pub(super) fn all() -> Vec<EtcdSnapshot> {
    vec![
        snapshot("old", "Complete", "2026-11-27T10:00:00Z", 1000),
        snapshot("new", "Complete", "2026-11-27T11:00:00Z", 2500),
        snapshot("bad", "Failed", "2026-11-27T11:30:00Z", 0),
    ]
}

#[test]
fn the_newest_complete_snapshot_is_the_default_and_no_other_phase_is_restored() {
    let all = all();
    assert_eq!(choose(&all, &source(None)).unwrap().name_any(), "new");
    assert_eq!(choose(&all, &source(Some("old"))).unwrap().name_any(), "old");
    assert!(choose(&all, &source(Some("bad"))).unwrap_err().contains("is Failed"));
    assert!(choose(&all, &source(Some("none"))).unwrap_err().contains("snapshot list alpha"));
    assert!(choose(&[], &source(None)).unwrap_err().contains("docs/restore.md"));
}

#[test]
fn a_point_in_time_begins_with_the_newest_snapshot_before_it() {
    let all = all();
    let at_time = |time: &str| Source {
        at: PointFlags { at_time: Some(time.parse().unwrap()), ..PointFlags::default() },
        ..source(None)
    };
    let at_revision =
        |revision| Source { at: PointFlags { at_revision: Some(revision), ..PointFlags::default() }, ..source(None) };
    for (source, name) in [
        (at_time("2026-11-27T10:59:00Z"), Some("old")),
        (at_time("2026-11-27T12:00:00+01:00"), Some("new")),
        (at_time("2026-11-27T09:59:59Z"), None),
        (at_revision(2499), Some("old")),
        (at_revision(2500), Some("new")),
        (at_revision(999), None),
    ] {
        let chosen = choose(&all, &source).map(|snapshot| snapshot.name_any());
        match name {
            Some(name) => assert_eq!(chosen.as_deref(), Ok(name), "{source:?}"),
            None => assert!(chosen.unwrap_err().contains("is earlier than"), "{source:?}"),
        }
    }
    let mut allowed = at_revision(2000);
    allowed.at.allow_auth_changed = true;
    let new = new_cluster(Some(&saved()), &all[0], &subject(allowed), "prod").unwrap();
    let restore = new.spec.bootstrap.clone().unwrap().restore.unwrap();
    assert_eq!(serde_json::to_value(restore.at).unwrap(), json!({"revision": 2000, "allowAuthChanged": true}));

    let now = "2026-11-27T12:00:00Z".parse().unwrap();
    let words = plan(&all[0], &[], &new, now);
    let screen = Screen { width: 80, coloured: false, is_terminal: false };
    let words = words.render(screen);
    for said in ["and the log up to revision 2000", "every write after revision 2000, 500 revisions at least"] {
        assert!(words.contains(said), "{said}: {words}");
    }
    let new = new_cluster(None, &all[0], &subject(at_time("2026-11-27T10:42:07Z")), "prod").unwrap();
    let words = plan(&all[0], &[], &new, now).render(screen);
    assert!(words.contains("every write after 2026-11-27T10:42:07Z\n"), "{words}");
}

/// The schedule of the cluster with a log, as the operator wrote its status.
fn logged(current: &str, log: serde_json::Value) -> EtcdSnapshotSchedule {
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdSnapshotSchedule", "metadata": {"name": "hourly", "namespace": "prod"},
        "spec": {"clusterRef": {"name": "alpha"}, "schedule": "7 * * * *", "log": {},
                 "snapshotTemplate": {"destination": {"storeRef": {"name": "vault"}}}},
        "status": {"log": log, "conditions": [{
            "type": "LogCurrent", "status": current, "reason": "LogBehind", "message": "", "lastTransitionTime": "2026-11-27T10:00:00Z",
        }]},
    }))
    .unwrap()
}

/// The plan of a point from the first snapshot, at noon.
fn planned(schedules: &[EtcdSnapshotSchedule], at: &PointFlags) -> (Plan, String) {
    let all = all();
    let subject = subject(Source { at: at.clone(), ..source(None) });
    let new = new_cluster(Some(&saved()), &all[0], &subject, "prod").unwrap();
    let plan = plan(&all[0], &[], &new, "2026-11-27T12:00:00Z".parse().unwrap());
    let plan = plan.with_log(&all[0], &all, (schedules, at.point().as_ref()), Some("u"));
    (plan.clone(), plan.render(Screen { width: 80, coloured: false, is_terminal: false }))
}

#[test]
fn the_plan_tells_the_end_of_the_log() {
    let at_time = |time: &str| PointFlags { at_time: Some(time.parse().unwrap()), ..PointFlags::default() };
    let at_revision = |revision| PointFlags { at_revision: Some(revision), ..PointFlags::default() };
    let ended = [logged("False", json!({"revision": 2000, "time": "2026-11-27T10:30:00Z"}))];
    let (plan, words) = planned(&ended, &at_time("2026-11-27T10:42:07Z"));
    for said in [
        "and the log ends at revision 2,000, 2026-11-27T10:30:00Z, before 2026-11-27T10:42:07Z: the restore is refused",
        "The nearest point is --at-revision 2000\n",
        "is lost    every write after revision 2,000, 2026-11-27T10:30:00Z; the next point after it is EtcdSnapshot new, revision 2,500\n",
    ] {
        assert!(words.contains(said), "{said}: {words}");
    }
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["logEnd"], json!({"revision": 2000, "time": "2026-11-27T10:30:00Z", "reach": "Ended"}));
    assert_eq!(json["laterSnapshot"], json!({"snapshot": "new", "revision": 2500}));
    assert!(planned(&ended, &at_revision(2001)).1.contains("ends at revision 2,000"));
    // A log that reaches the point.
    for at in [at_time("2026-11-27T10:29:59Z"), at_revision(2000)] {
        let (_, words) = planned(&ended, &at);
        assert!(words.contains("it is stored up to revision 2,000") && !words.contains("refused"), "{words}");
    }
    // A log that goes on: the status is some minutes old.
    let newest = json!({"revision": 2600, "time": "2026-11-27T11:56:00Z"});
    let (_, words) = planned(&[logged("True", newest.clone())], &at_time("2026-11-27T11:59:00Z"));
    assert!(words.contains("it was stored up to revision 2,600") && words.contains("goes on"), "{words}");
    let (_, words) = planned(&[logged("False", newest)], &at_time("2026-11-27T11:59:00Z"));
    assert!(words.contains("nothing after it can be restored") && words.contains("refused"), "{words}");
    // From a snapshot before a gap the log ends at the gap.
    let gap = json!({"revision": 2600, "time": "2026-11-27T11:59:50Z", "interrupted": {"after": 1500, "until": 1600, "at": "2026-11-27T10:20:00Z"}});
    for at in [at_time("2026-11-27T10:30:00Z"), at_revision(1501)] {
        let (_, words) = planned(&[logged("True", gap.clone())], &at);
        assert!(words.contains("ends at revision 1,500"), "{words}");
    }
    let earlier = planned(&[logged("True", gap.clone())], &at_time("2026-11-27T10:10:00Z")).1;
    assert!(earlier.contains("a log that ends earlier"), "{earlier}");
    assert!(planned(&[logged("True", gap)], &at_revision(1500)).1.contains("it is stored up to revision 1,500"));
    // Without a status the end is unknown.
    assert!(planned(&[], &at_revision(1501)).1.contains("a log that ends earlier refuses the restore"));
}

#[test]
fn the_new_cluster_has_the_spec_of_the_saved_one_and_runs() {
    let all = all();
    let new = new_cluster(Some(&saved()), &all[0], &subject(source(None)), "prod").unwrap();
    assert_eq!((new.name_any().as_str(), new.spec.replicas, new.spec.paused), ("alpha-restored", 3, false));
    assert_eq!(new.spec.options, saved().spec.options);
    let restore = new.spec.bootstrap.unwrap().restore.unwrap();
    assert_eq!(restore.snapshot_ref.unwrap().name, "old");
    let alone = new_cluster(None, &all[0], &subject(source(None)), "prod").unwrap();
    assert_eq!((alone.spec.version.as_str(), alone.spec.storage.size().0.as_str()), ("3.6.16", "9Gi"));
    let mut hidden = all[0].clone();
    hidden.status.as_mut().unwrap().artifact.as_mut().unwrap().encrypted = true;
    assert!(new_cluster(None, &hidden, &subject(source(None)), "prod").unwrap_err().contains("--identity-secret"));
    let opened = Source { identity_secret: Some("key".to_owned()), ..source(None) };
    let opened = new_cluster(None, &hidden, &subject(opened), "prod").unwrap();
    assert_eq!(opened.spec.bootstrap.unwrap().restore.unwrap().identity_secret_refs[0].name, "key");
}

#[test]
fn the_plan_names_losses_and_the_time_of_earlier_restores() {
    let all = all();
    let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
    let screen = Screen { width: 80, coloured: false, is_terminal: false };
    let planned = |snapshot: &EtcdSnapshot, store| {
        let new = new_cluster(Some(&saved()), snapshot, &subject(source(None)), "prod").unwrap();
        let plan = plan(snapshot, &[saved(), restored_cluster(store)], &new, now);
        let object = yaml("EtcdCluster", &new.metadata, &new.spec).unwrap();
        (plan.clone(), text(&plan, &object, screen).unwrap())
    };
    let (old, words) = planned(&all[0], "s3://backups");
    assert_eq!((old.revisions_lost, old.expected_seconds), (Some(1500), Some(60)));
    for said in ["revision 1,000", "2h ago", "1,500 revisions at least", "about 60 s", "beta with 1.0 GiB took 30 s"] {
        assert!(words.contains(said), "{said}: {words}");
    }
    let yaml: serde_json::Value = serde_saphyr::from_str(&words).unwrap();
    assert_eq!(yaml["spec"]["bootstrap"]["restore"]["snapshotRef"]["name"], "old", "the whole text is YAML");
    let (newest, words) = planned(&all[1], "s3://other");
    assert_eq!((newest.revisions_lost, newest.expected_seconds), (Some(0), None));
    assert!(words.contains("this is the newest snapshot") && words.contains("takes      unknown"), "{words}");
}
