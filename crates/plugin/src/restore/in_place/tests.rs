//! Returns in place: the object, the reasons against it, its plan, and its end.

use clap::Parser as _;
use jiff::Timestamp;
use serde_json::{Value, from_value, json};

use super::*;
use crate::restore::tests::{all, saved, snapshot, source};
use crate::screen::Screen;

const SCREEN: Screen = Screen { width: 80, coloured: false, is_terminal: false };

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    flags: InPlaceFlags,
}

/// The flags of a command line about the cluster `alpha`.
fn flags(words: &str) -> InPlaceFlags {
    Line::try_parse_from(format!("in-place alpha {words}").split_whitespace()).unwrap().flags
}

fn cluster(status: Value) -> EtcdCluster {
    EtcdCluster { status: Some(from_value(status).unwrap()), ..saved() }
}

fn restore(name: &str, timeline: u32, status: Value) -> EtcdRestore {
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdRestore", "metadata": {"name": name, "namespace": "prod"},
        "spec": {"clusterRef": {"name": "alpha"}, "timeline": timeline, "from": {"snapshotRef": {"name": "old"}},
                 "skipSafetySnapshot": "a test"},
        "status": status,
    }))
    .unwrap()
}

/// A condition `Ready` with this message.
fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-27T10:00:00Z"}])
}

/// A return that began at noon and took 31 s.
fn complete(name: &str, timeline: u32) -> EtcdRestore {
    let phases =
        [("Preparing", "00.5"), ("Saving", "10"), ("SettingAside", "20"), ("Starting", "22"), ("Complete", "31.5")];
    let phases = phases.map(|(phase, at)| json!({"phase": phase, "at": format!("2026-11-27T12:00:{at:0>2}Z")}));
    restore(
        name,
        timeline,
        json!({
            "phase": "Complete", "phases": phases, "outageSeconds": 21, "restoredRevision": 1000,
            "firstRevision": 1_000_003_500_i64, "safetySnapshot": "alpha-safety-x", "earlierMembers": ["alpha-a", "alpha-b"],
            "earlierKeptUntil": "2026-11-28T12:00:22Z", "conditions": ready("True", "Returned", "the cluster serves"),
        }),
    )
}

#[test]
fn the_object_names_the_next_timeline_and_saves_to_the_store_of_the_snapshot() {
    let mut from = all()[0].clone();
    from.spec.template.encryption = from_value(json!({"age": {"recipients": ["age1x"]}})).ok();
    for (status, words, name, store, skipped) in [
        (json!({}), "", "alpha-timeline-2", Some("vault"), None),
        (json!({"timeline": 4}), "--safety-store other", "alpha-timeline-5", Some("other"), None),
        (json!({}), "--skip-safety-snapshot nothing-is-left", "alpha-timeline-2", None, Some("nothing-is-left")),
    ] {
        let made = wanted(&cluster(status), &[], &from, &flags(words)).unwrap();
        assert_eq!((made.name_any().as_str(), made.namespace().as_deref()), (name, Some("prod")), "{words}");
        assert_eq!(made.spec.from.unwrap().snapshot_ref.unwrap().name, "old");
        assert_eq!(made.spec.skip_safety_snapshot.as_deref(), skipped, "{words}");
        let template = made.spec.safety_snapshot;
        assert_eq!(template.is_none(), store.is_none(), "{words}");
        if let Some(template) = template {
            assert_eq!(template.destination.store_ref.map(|store| store.name).as_deref(), store, "{words}");
            assert_eq!(template.encryption, from.spec.template.encryption, "the recipients of the snapshot");
        }
    }
    // A snapshot in a bucket of its own.
    from.spec.template.destination = from_value(json!({"s3": {"bucket": "b"}})).unwrap();
    let refused = wanted(&cluster(json!({})), &[], &from, &flags("")).unwrap_err();
    assert!(refused.contains("--safety-store") && refused.contains("--skip-safety-snapshot"), "{refused}");
    let made = wanted(&cluster(json!({})), &[], &from, &flags("--safety-store vault")).unwrap();
    let destination = serde_json::to_value(made.spec.safety_snapshot.unwrap().destination).unwrap();
    assert_eq!(destination, json!({"storeRef": {"name": "vault"}}));
}

#[test]
fn a_point_and_an_identity_are_in_the_object() {
    let mut from = snapshot("old", "Complete", "2026-11-27T10:00:00Z", 1000);
    from.status.as_mut().unwrap().artifact.as_mut().unwrap().encrypted = true;
    let none = wanted(&cluster(json!({})), &[], &from, &flags("--at-revision 1200")).unwrap_err();
    assert!(none.contains("--identity-secret"), "{none}");
    let opened = flags("--at-revision 1200 --identity-secret key");
    let made = wanted(&cluster(json!({})), &[], &from, &opened).unwrap();
    let wanted =
        json!({"snapshotRef": {"name": "old"}, "at": {"revision": 1200}, "identitySecretRefs": [{"name": "key"}]});
    assert_eq!(serde_json::to_value(made.spec.from).unwrap(), wanted);
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    for words in [
        "--safety-store a --skip-safety-snapshot because",
        "--plan --wait",
        "--plan --dry-run",
        "--dry-run --wait",
        "--at-revision 1 --at-time 2026-11-27T10:00:00Z",
        "--as beta",
    ] {
        let line = format!("in-place alpha {words}");
        assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{words}");
    }
    assert_eq!(flags("").source, source(None));
    for (words, named) in
        [("", false), ("--wait", false), ("--plan", true), ("--snapshot old", true), ("--at-revision 5 --wait", true)]
    {
        assert_eq!(check_named(&flags(words)).is_ok(), named, "{words}");
    }
}

#[test]
fn another_return_comes_first() {
    let latched = |phase: &str| {
        let phases = [json!({"phase": phase, "at": "2026-11-27T12:00:00Z"})];
        let returning = json!({"name": "back", "uid": "u", "timeline": 2, "phases": phases,
                               "deadlineSeconds": 1, "keepEarlierSeconds": 1});
        cluster(json!({"latches": {"returning": returning}}))
    };
    let waits = |timeline| vec![restore("early", timeline, json!({"phase": "Pending"}))];
    for (cluster, restores, wanted) in [
        (cluster(json!({})), vec![], None),
        (latched("Saving"), vec![], Some("EtcdRestore back under way: Saving since 2026-11-27T12:00:00Z")),
        (latched("Complete"), vec![], None),
        (
            cluster(json!({})),
            waits(2),
            Some("EtcdRestore early under way: Pending. Wait for its end: kubectl get etcdrestore early -n prod -w"),
        ),
        // Those of another timeline never begin.
        (cluster(json!({})), waits(3), None),
        (cluster(json!({"timeline": 2})), vec![complete("back", 2)], None),
    ] {
        let found = find_other(&cluster, &restores);
        match wanted {
            Some(words) => assert!(found.clone().is_some_and(|found| found.contains(words)), "{words}: {found:?}"),
            None => assert_eq!(found, None),
        }
    }
    let failed = restore(
        "alpha-timeline-2",
        2,
        json!({"phase": "Failed", "conditions": ready("False", "ReturnFailed", "the key is missing")}),
    );
    let refused = wanted(&cluster(json!({})), &[failed], &all()[0], &flags("")).unwrap_err();
    for said in ["stays Failed (the key is missing)", "kubectl delete etcdrestore alpha-timeline-2 -n prod"] {
        assert!(refused.contains(said), "{said}: {refused}");
    }
    let mut memory = cluster(json!({}));
    memory.spec.storage.medium = holdfast_api::cluster::Medium::Memory;
    assert!(wanted(&memory, &[], &all()[0], &flags("")).unwrap_err().contains("restore create alpha"));
}

#[test]
fn the_plan_tells_what_stays_and_where_the_present_data_goes() {
    let all = all();
    let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
    let planned = |words: &str, restores: &[EtcdRestore]| {
        let made = wanted(&cluster(json!({"timeline": 2})), restores, &all[0], &flags(words)).unwrap();
        let plan = plan(&made, restores, (&all[0], &all), now);
        let object = yaml("EtcdRestore", &made.metadata, &made.spec).unwrap();
        (serde_json::to_value(&plan).unwrap(), text(&plan, &object, SCREEN).unwrap())
    };
    let (json, words) = planned("", &[complete("back", 2)]);
    for said in [
        "# comes back EtcdSnapshot old: revision 1,000",
        "# is lost    every write after 10:00Z, 1,500 revisions at least",
        "# takes      back took 31 s, 21 s of them without a member for clients",
        "# clients    keep names and certificates",
        "# safety     a safety snapshot of the present data goes to EtcdBackupStore vault (--safety-store names another)",
        "# members    of timeline 2 are set aside, and keep their claims for 24h",
    ] {
        assert!(words.contains(said), "{said}: {words}");
    }
    let object: Value = serde_saphyr::from_str(&words).unwrap();
    assert_eq!(
        (&object["kind"], &object["spec"]["timeline"]),
        (&json!("EtcdRestore"), &json!(3)),
        "the whole text is YAML"
    );
    assert_eq!(json["inPlace"]["safetyStore"], "vault");
    assert_eq!(json["inPlace"]["last"], json!({"restore": "back", "seconds": 31, "outageSeconds": 21}));
    let (json, words) = planned("--skip-safety-snapshot all-is-garbage", &[]);
    assert!(words.contains("no safety snapshot of the present data: all-is-garbage\n"), "{words}");
    assert!(words.contains("# takes      unknown"), "{words}");
    assert_eq!(json["inPlace"].get("safetyStore"), None);
}

#[test]
fn snapshots_of_another_timeline_count_for_no_loss() {
    let mut all = all();
    for (snapshot, etcd) in all.iter_mut().zip(["a", "b", "b"]) {
        let source = json!({"member": "m", "memberID": "1", "clusterID": etcd});
        snapshot.status.as_mut().unwrap().source = from_value(source).unwrap();
    }
    let made = wanted(&cluster(json!({})), &[], &all[0], &flags("")).unwrap();
    let now = "2026-11-27T12:00:00Z".parse().unwrap();
    assert_eq!(plan(&made, &[], (&all[0], &all), now).revisions_lost, Some(0));
}

#[test]
fn a_return_ends_with_its_phases_or_with_a_remedy() {
    let with = |phase: &str, status: &str, reason: &str, message: &str| {
        restore("back", 2, json!({"phase": phase, "conditions": ready(status, reason, message)}))
    };
    let young = restore("back", 2, json!({}));
    assert_eq!(state(&young), Look::Waits("no operator has seen the EtcdRestore yet".to_owned()));
    let saves = with("Saving", "False", "Returning", "m");
    assert_eq!(state(&saves), Look::Waits("Saving Returning: m".to_owned()));
    assert_eq!(state(&complete("back", 2)), Look::Done);
    let Look::Failed(words) = state(&with("Failed", "False", "ReturnFailed", "the store is gone")) else { panic!() };
    for said in
        ["ReturnFailed: the store is gone. ", "runbooks/ReturnFailed.md", "kubectl delete etcdrestore back -n prod"]
    {
        assert!(words.contains(said), "{said}: {words}");
    }
    assert!(matches!(state(&with("Skipped", "True", "TimelineExists", "m")), Look::Failed(_)));
    let lines = "\
timeline   2
data       revision 1,000 as 1,000,003,500
phases     Preparing 9.5 s, Saving 10.0 s, SettingAside 2.0 s, Starting 9.5 s
outage     21 s without a member for clients
safety     EtcdSnapshot alpha-safety-x
set aside  alpha-a, alpha-b until 2026-11-28T12:00:22Z
";
    assert_eq!(summary(&complete("back", 2)), lines);
}
