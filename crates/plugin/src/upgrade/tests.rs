//! The output for recorded objects, one change at a time.

use holdfast_api::condition::Reason;
use serde_json::{Value, json};

use super::*;

/// A cluster of three members of 3.5.35, as the operator leaves it.
fn cluster() -> Value {
    let member = |name: &str| json!({"name": name, "role": "voter", "version": "3.5.35", "healthy": true});
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-11-27T08:00:00Z"});
    json!({
        "metadata": {"name": "orders", "namespace": "prod", "uid": "u1", "generation": 4},
        "spec": {"replicas": 3, "version": "3.5.35", "storage": {"size": "10Gi"}},
        "status": {
            "observedGeneration": 4,
            "readyMembers": 3,
            "voters": 3,
            "version": "3.5.35",
            "members": [member("orders-a"), member("orders-b"), member("orders-c")],
            "conditions": [condition("Ready", "True", "AsDesired"), condition("Degraded", "False", "NothingWrong")],
        },
    })
}

fn member(name: &str) -> EtcdMember {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "prod"},
        "spec": {
            "clusterRef": {"name": "orders", "uid": "u1"},
            "role": "joiner",
            "version": "3.5.35",
            "storage": {"size": "10Gi"},
            "clusterToken": "t",
        },
    }))
    .unwrap()
}

fn snapshot(completed_at: &str) -> Value {
    json!({
        "metadata": {"name": "before-3-6", "namespace": "prod"},
        "spec": {"clusterRef": {"name": "orders"}, "destination": {"storeRef": {"name": "s"}}},
        "status": {
            "phase": "Complete",
            "completedAt": completed_at,
            "clusterUID": "u1",
            "artifact": {
                "key": "k",
                "uri": "s3://b/k",
                "etcdVersion": "3.5.35",
                "dbBytes": 1,
                "size": "1 B",
                "storedBytes": 1,
                "sha256": "5a",
                "storedSha256": "5a",
                "compression": "zstd",
            },
        },
    })
}

fn question(to: &str) -> Question {
    Question { cluster: "orders".to_owned(), access: Access::default(), to: to.to_owned() }
}

/// The output at noon, and the exit code.
fn printed(cluster: Value, snapshots: Vec<Value>, to: &str) -> (String, u8) {
    let cluster: EtcdCluster = serde_json::from_value(cluster).unwrap();
    let members = ["orders-a", "orders-b", "orders-c"].map(member);
    let snapshots: Vec<EtcdSnapshot> = snapshots.into_iter().map(|s| serde_json::from_value(s).unwrap()).collect();
    let now = "2026-11-27T12:00:00Z".parse().unwrap();
    let found = conditions(&cluster, &members, &snapshots, to, now);
    (text(&question(to), "prod", &found), if may_begin(&found) { 0 } else { NOT_NOW })
}

const READY: &str = "\
EtcdCluster orders in prod, to 3.6.16:

ok       step        3.6.16 is of the next minor after 3.5.35
ok       members     3 voters serve
ok       alarms      none is raised
ok       patch       3.5.35 has no known defect that matters
ok       snapshot    before-3-6 is from 2026-11-27T11:30:00Z
later    comparison  a Job compares the member list in each member's database with etcd's
later    rehearsal   a Job restores the snapshot with etcd 3.6.16 and compares the answers

The upgrade can begin now: kubectl patch -n prod etcdc orders --type merge -p '{\"spec\":{\"version\":\"3.6.16\"}}'
";

#[test]
fn an_upgrade_that_can_begin_is_printed_with_its_command() {
    assert_eq!(printed(cluster(), vec![snapshot("2026-11-27T11:30:00Z")], "3.6.16"), (READY.to_owned(), 0));
    let (same, code) = printed(cluster(), vec![], "3.5.36");
    assert!(code == 0 && same.contains("the members roll without a preflight"), "{same}");
    let (old, code) = printed(cluster(), vec![snapshot("2026-11-27T11:30:00Z")], "3.6.5");
    assert!(code == NOT_NOW && old.contains("3.6.5 has known defects. Set 3.6.11"), "{old}");
}

const NOT_YET: &str = "\
EtcdCluster orders in prod, to 3.6.16:

ok       step        3.6.16 is of the next minor after 3.5.35
NOT      members     orders-b does not serve as a voter; the cluster's conditions name the cause
NOT      alarms      the upgrade to 3.6.16 does not begin while the alarm in the condition Degraded is raised (runbooks/PreflightFailed.md)
NOT      patch       a member runs 3.5.20, which has known defects. Set spec.version 3.5.26 or a later patch of it first, then 3.6.16 (runbooks/PreflightFailed.md)
later    snapshot    Holdfast requests an EtcdSnapshot first, to the place of the newest one, once for each edit
ok       comparison  left out: spec.upgrade.rehearse is false
ok       rehearsal   left out: spec.upgrade.rehearse is false

The upgrade cannot begin now.
";

#[test]
fn each_condition_that_is_not_met_is_printed_with_its_remedy() {
    let mut object = cluster();
    object["spec"]["upgrade"] = json!({"rehearse": false});
    object["status"]["members"][1]["healthy"] = json!(false);
    object["status"]["members"][1]["version"] = json!("3.5.20");
    object["status"]["conditions"][1]["status"] = json!("True");
    object["status"]["conditions"][1]["reason"] = json!(Reason::AlarmRaised.as_str());
    let printed = printed(object, vec![snapshot("2026-11-27T10:30:00Z")], "3.6.16");
    assert_eq!(printed, (NOT_YET.to_owned(), NOT_NOW));
}

/// Unknown is not met.
#[test]
fn what_the_status_does_not_say_is_unknown() {
    let recent = || vec![snapshot("2026-11-27T11:30:00Z")];
    let stuck = json!({
        "type": "Degraded",
        "status": "True",
        "reason": "RolloutStuck",
        "message": "",
        "lastTransitionTime": "2026-11-27T08:00:00Z",
    });
    for (path, value, says) in [
        ("/status/observedGeneration", json!(3), "unknown  members     the operator has not written"),
        ("/status/members/0/version", Value::Null, "unknown  patch       no member has reported"),
        (
            "/status/conditions/1",
            stuck,
            "unknown  alarms      the condition Degraded has another reason first: RolloutStuck",
        ),
    ] {
        let mut object = cluster();
        *object.pointer_mut(path).unwrap() = value;
        let (text, code) = printed(object, recent(), "3.6.16");
        assert!(code == NOT_NOW && text.contains(says), "{text}");
    }
}

#[test]
fn a_step_that_is_none_ends_the_list() {
    let two = printed(cluster(), vec![], "3.7.3");
    assert!(two.1 == NOT_NOW && two.0.contains("next minor only") && !two.0.contains("snapshot"), "{}", two.0);
    let unknown = printed(cluster(), vec![], "3.9.1");
    assert!(unknown.1 == NOT_NOW && unknown.0.contains("NOT      spec"), "{}", unknown.0);
    let mut object = cluster();
    object["status"]["latches"] = json!({"upgrade": {
        "from": "3.5.35", "to": "3.6.16", "reversible": true, "snapshot": "s", "at": "2026-11-27T11:59:00Z",
    }});
    let begun = printed(object, vec![], "3.6.16");
    assert!(begun.1 == NOT_NOW && begun.0.contains("has begun already"), "{}", begun.0);
    let mut paused = cluster();
    paused["spec"]["paused"] = json!(true);
    assert!(printed(paused, vec![], "3.6.16").0.contains("spec.paused is set"));
}
