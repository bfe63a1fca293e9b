//! Screens of recorded objects. `UPDATE_GOLDEN=1` writes the texts; read the difference.

use std::fs;
use std::path::PathBuf;

use holdfast_api::condition::{Reason, Type, Wanted, merge};
use holdfast_api::drill::{Drill, DrillStatus, PassedDrill};
use holdfast_api::log::{Compaction, Log, LogStatus, Merges};
use holdfast_api::tls::Rotation;
use holdfast_api::{EtcdUser, EtcdUserSpec, EtcdUserStatus};
use serde_json::{Value, json};

use super::facts::{Facts, State};
use super::observe::{Objects, facts};
use super::render::render;
use crate::screen::Screen;

/// The folder of recordings and screens.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/status/recorded")
}

/// Reads a recording: its time, and the objects of one cluster.
fn recorded(name: &str) -> (jiff::Timestamp, Objects) {
    let text = fs::read_to_string(folder().join(format!("{name}.yaml"))).unwrap();
    let all: Value = serde_saphyr::from_str(&text).unwrap();
    let of = |kind: &str| {
        let items = all["items"].as_array().unwrap().iter();
        Value::Array(items.filter(|object| object["kind"] == kind).cloned().collect())
    };
    let objects = Objects {
        cluster: serde_json::from_value(of("EtcdCluster")[0].clone()).unwrap(),
        members: Ok(serde_json::from_value(of("EtcdMember")).unwrap()),
        snapshots: Ok(serde_json::from_value(of("EtcdSnapshot")).unwrap()),
        schedules: Ok(serde_json::from_value(of("EtcdSnapshotSchedule")).unwrap()),
        pods: Ok(serde_json::from_value(of("Pod")).unwrap()),
        users: Ok(serde_json::from_value(of("EtcdUser")).unwrap()),
        restores: Ok(serde_json::from_value(of("EtcdRestore")).unwrap()),
    };
    (all["at"].as_str().unwrap().parse().unwrap(), objects)
}

fn seen(name: &str) -> Facts {
    let (at, objects) = recorded(name);
    facts(&objects, at)
}

/// The same objects for a person who may read the EtcdCluster alone.
fn refused() -> Facts {
    let (at, mut objects) = recorded("healthy");
    let why =
        |what: &str| format!("your rights do not permit to list {what} in namespace shop (docs/plugin.md#rights)");
    objects.members = Err(why("etcdmembers"));
    objects.snapshots = Err(why("etcdsnapshots"));
    objects.schedules = Err(why("etcdsnapshotschedules"));
    objects.pods = Err(why("pods"));
    objects.users = Err(why("etcdusers"));
    objects.restores = Err(why("etcdrestores"));
    facts(&objects, at)
}

/// The healthy cluster on three nodes, which the testbed has not.
fn spread() -> Facts {
    let (at, mut objects) = recorded("healthy");
    let status = objects.cluster.status.as_mut().unwrap();
    for condition in status.conditions.iter_mut().filter(|condition| condition.type_ == "AtRisk") {
        condition.status = "False".to_owned();
    }
    for (number, pod) in objects.pods.as_mut().unwrap().iter_mut().enumerate() {
        pod.spec.as_mut().unwrap().node_name = Some(format!("node-{number}"));
    }
    facts(&objects, at)
}

/// A user of a cluster with this condition `Ready`, and days until the certificate ends.
fn user(cluster: &str, name: &str, ready: &Wanted, days: Option<i64>, at: jiff::Timestamp) -> EtcdUser {
    let mut user = EtcdUser::new(name, EtcdUserSpec::default());
    user.spec.cluster_ref.name = cluster.to_owned();
    let end = |days: i64| (at + jiff::SignedDuration::from_hours(24 * days)).to_string();
    user.status = Some(EtcdUserStatus {
        conditions: merge(&[], std::slice::from_ref(ready), None, at),
        certificate_not_after: days.map(end),
        ..EtcdUserStatus::default()
    });
    user
}

/// The healthy cluster while the clients' CA is exchanged, a year after its peers' CA should have been, with users.
fn peopled() -> Facts {
    let (at, mut objects) = recorded("healthy");
    let tls = objects.cluster.status.as_mut().unwrap().tls.as_mut().unwrap();
    tls.client.rotation = Some(Rotation::Waiting);
    tls.peer.ca_not_after = Some((at + jiff::SignedDuration::from_hours(24 * 200)).to_string());
    let good = Wanted::yes(Type::Ready, Reason::AsDesired, "x");
    let taken = |name: &str| {
        let message = format!("etcd has a user or a role {name}, which this EtcdUser did not make. Use another name");
        Wanted::no(Type::Ready, Reason::NameTaken, &message)
    };
    let missing = Wanted::no(Type::Ready, Reason::WaitingForReference, "the Secret login does not exist");
    let all = [
        user("orders", "shop", &good, Some(61), at),
        user("orders", "till", &good, Some(12), at),
        user("orders", "stock", &good, Some(29), at),
        user("orders", "audit", &missing, None, at),
        user("orders", "export", &missing, None, at),
        user("orders", "hand", &taken("hand"), None, at),
        user("elsewhere", "other", &taken("other"), Some(1), at),
    ];
    objects.users = Ok(all.into());
    objects.users.as_mut().unwrap().push(EtcdUser { status: None, ..user("orders", "young", &good, None, at) });
    facts(&objects, at)
}

const WIDE: Screen = Screen { width: 120, coloured: false, is_terminal: false };
const NARROW: Screen = Screen { width: 80, coloured: false, is_terminal: false };

/// Every recording, and the state that its first line shows.
const RECORDINGS: [(&str, State); 11] = [
    ("healthy", State::AtRisk),
    ("young", State::AtRisk),
    ("rolling", State::Progressing),
    ("upgrading", State::Progressing),
    ("quorum-lost", State::Down),
    ("parked", State::Parked),
    ("bare", State::AtRisk),
    ("saved", State::AtRisk),
    ("degraded", State::Degraded),
    ("stuck", State::Degraded),
    ("forming", State::Progressing),
];

mod golden {
    use super::*;

    fn compare(name: &str, text: &str) {
        let path = folder().join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, text).unwrap();
        }
        let wanted = fs::read_to_string(&path).unwrap_or_default();
        assert!(wanted == text, "{}: rewrite with UPDATE_GOLDEN=1, and read the difference:\n{text}", path.display());
    }

    #[test]
    fn every_recording_has_its_screen() {
        for (name, _) in RECORDINGS {
            compare(&format!("{name}.txt"), &render(&seen(name), WIDE));
            compare(&format!("{name}.80.txt"), &render(&seen(name), NARROW));
        }
        compare("ready.txt", &render(&spread(), WIDE));
        compare("ready.80.txt", &render(&spread(), NARROW));
        compare("users.txt", &render(&peopled(), WIDE));
        compare("users.80.txt", &render(&peopled(), NARROW));
        compare("users.json", &(serde_json::to_string_pretty(&peopled()).unwrap() + "\n"));
        compare("refused.80.txt", &render(&refused(), NARROW));
    }

    /// docs/plugin.md shows these screens.
    #[test]
    fn the_document_shows_the_screens() {
        let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plugin.md")).unwrap();
        for (name, facts) in [("ready", spread()), ("quorum-lost", seen("quorum-lost")), ("refused", refused())] {
            let text = render(&facts, NARROW);
            assert!(page.contains(&format!("```text\n{text}```")), "copy recorded/{name}.80.txt into docs/plugin.md");
        }
        let users = super::super::identity::render_users(&peopled().users.unwrap(), peopled().at, NARROW);
        assert!(page.contains(&format!("```text\n{users}```")), "copy the users of users.80.txt into docs/plugin.md");
    }

    #[test]
    fn colours_and_json_are_as_before() {
        let coloured = render(&seen("degraded"), Screen { coloured: true, ..WIDE });
        compare("degraded.colour.txt", &coloured);
        compare("healthy.json", &(serde_json::to_string_pretty(&seen("healthy")).unwrap() + "\n"));
    }
}

#[test]
fn the_state_is_the_operators_verdict_in_one_word() {
    for (name, state) in RECORDINGS {
        assert_eq!(seen(name).state, state, "{name}");
    }
    let ready = spread();
    assert_eq!((ready.state, ready.next), (State::Ready, vec![]));
}

#[test]
fn a_screen_is_never_wider_than_the_terminal_except_for_commands() {
    for (name, _) in RECORDINGS {
        let text = render(&seen(name), NARROW);
        let long = text.lines().find(|line| line.chars().count() > 80 && !line.trim().starts_with("kubectl"));
        assert_eq!(long, None, "{name}");
        assert!(!text.contains('\u{1b}'), "{name}");
    }
}

#[test]
fn certificates_of_members_are_a_column_where_their_days_differ() {
    let (at, mut objects) = recorded("healthy");
    let days = |objects: &mut Objects, days: [i64; 3]| {
        let members = &mut objects.cluster.status.as_mut().unwrap().members;
        for (member, days) in members.iter_mut().zip(days) {
            member.certificates_not_after = Some((at + jiff::SignedDuration::from_hours(24 * days)).to_string());
        }
        let found = facts(objects, at);
        let earliest = found.members.iter().filter_map(|member| member.certificates_until).min();
        assert_eq!(earliest, Some(at + jiff::SignedDuration::from_hours(24 * days.into_iter().min().unwrap())));
        render(&found, NARROW)
    };
    assert!(!days(&mut objects, [60, 60, 60]).contains("CERTS"));
    let text = days(&mut objects, [60, 20, 60]);
    let end = |days: i64| super::super::time::date(at + jiff::SignedDuration::from_hours(24 * days));
    assert!(text.contains("CERTS"), "{text}");
    assert_eq!((text.matches(&end(20)).count(), text.matches(&end(60)).count()), (1, 2), "{text}");
}

#[test]
fn colours_change_no_character() {
    let (plain, coloured) = (render(&seen("stuck"), WIDE), render(&seen("stuck"), Screen { coloured: true, ..WIDE }));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, code)) = rest.split_once("\u{1b}[") {
        stripped.push_str(before);
        rest = code.split_once('m').unwrap().1;
    }
    stripped.push_str(rest);
    assert_eq!(stripped, plain);
}

#[test]
fn refused_lists_are_lines_and_no_end() {
    let facts = refused();
    assert_eq!(facts.unread.len(), 6);
    assert_eq!(facts.members.len(), seen("healthy").members.len(), "the cluster's status names the members");
    assert!(facts.members.iter().all(|member| member.ready.is_none()), "no Pod is known, so none is unready");
    assert!(facts.next.iter().all(|step| !step.why.contains("EtcdSnapshotSchedule")), "unknown is not absent");
}

#[test]
fn a_snapshot_of_an_earlier_cluster_of_the_name_is_no_backup() {
    let (at, mut objects) = recorded("healthy");
    objects.cluster.status.as_mut().unwrap().last_snapshot = None;
    assert_eq!(facts(&objects, at).backups.last.unwrap().name, "orders-before");
    for snapshot in objects.snapshots.as_mut().unwrap() {
        snapshot.status.as_mut().unwrap().cluster_uid = Some("earlier".to_owned());
    }
    let backups = facts(&objects, at).backups;
    assert_eq!((backups.last, backups.complete), (None, Some(0)));
}

#[test]
fn each_fault_has_a_step_with_a_command() {
    let commands =
        |name: &str| -> Vec<String> { seen(name).next.into_iter().filter_map(|step| step.command).collect() };
    let has = |name: &str, words: &str| {
        let found = commands(name);
        assert!(found.iter().any(|command| command.contains(words)), "{name}: {words}: {found:?}");
    };
    has("quorum-lost", "get pods -l holdfast.dev/cluster=");
    has("quorum-lost", "restore plan orders --snapshot orders-before");
    has("parked", "cluster scale");
    has("bare", "snapshot create --cluster a");
    has("young", "schedule run orders-hourly --wait");
    has("stuck", "edit etcdc u");
    // A roll needs nothing; the testbed's one node is a risk.
    assert!(commands("rolling").iter().all(|command| command.contains("get pods")), "{:?}", commands("rolling"));
    for (name, _) in RECORDINGS {
        let namespace = format!("-n {}", seen(name).namespace);
        let about = |command: &String| !command.starts_with("kubectl holdfast check");
        assert!(commands(name).iter().filter(|it| about(it)).all(|it| it.contains(&namespace)), "{name}");
    }
}

#[test]
fn a_drill_is_a_line_with_its_time_to_recover() {
    let (at, mut objects) = recorded("healthy");
    let schedule = objects.schedules.as_mut().unwrap().first_mut().unwrap();
    schedule.spec.drill = Some(Drill { schedule: "0 3 * * *".to_owned(), ..Drill::default() });
    let status = schedule.status.as_mut().unwrap();
    let passed = PassedDrill { at: "2026-11-28T00:20:00Z".to_owned(), rto_seconds: 9, ..PassedDrill::default() };
    status.drill = Some(DrillStatus { last_passed: Some(passed), ..DrillStatus::default() });
    let conditions = status.conditions.clone();
    let rehearsed = [Wanted::yes(Type::Rehearsed, Reason::DrillPassed, "x")];
    status.conditions = merge(&conditions, &rehearsed, None, at);
    let seen = facts(&objects, at);
    let text = render(&seen, WIDE);
    let line = text.lines().find(|line| line.trim_start().starts_with("drill ")).unwrap();
    for word in ["orders-hourly", "passed", "rehearsed", "RTO 9 s"] {
        assert!(line.contains(word), "{line}");
    }
    assert!(seen.next.iter().all(|step| !step.why.contains("drill")), "{:?}", seen.next);

    let failed = [Wanted::no(Type::Rehearsed, Reason::DrillFailed, "x")];
    let schedule = objects.schedules.as_mut().unwrap().first_mut().unwrap();
    schedule.status.as_mut().unwrap().conditions = merge(&conditions, &failed, None, at);
    let seen = facts(&objects, at);
    let step = seen.next.iter().find(|step| step.why.contains("drill")).unwrap();
    assert_eq!(step.page.as_deref(), Some("runbooks/DrillFailed.md"));
    assert!(render(&seen, WIDE).contains("DrillFailed"));
}

#[test]
fn a_log_is_a_line_with_the_loss_that_it_leaves() {
    let (at, mut objects) = recorded("healthy");
    let schedule = objects.schedules.as_mut().unwrap().first_mut().unwrap();
    schedule.spec.log = Some(Log::default());
    let status = schedule.status.as_mut().unwrap();
    status.log = Some(LogStatus { revision: Some(7001), rpo_seconds: Some(15), ..LogStatus::default() });
    let conditions = status.conditions.clone();
    status.conditions = merge(&conditions, &[Wanted::yes(Type::LogCurrent, Reason::LogStored, "x")], None, at);
    let seen = facts(&objects, at);
    let text = render(&seen, WIDE);
    let line = text.lines().find(|line| line.trim_start().starts_with("log ")).unwrap();
    for word in ["orders-hourly", "revision 7001", "current", "RPO 15 s"] {
        assert!(line.contains(word), "{line}");
    }
    let behind = [Wanted::no(Type::LogCurrent, Reason::LogBehind, "x")];
    let schedule = objects.schedules.as_mut().unwrap().first_mut().unwrap();
    schedule.status.as_mut().unwrap().conditions = merge(&conditions, &behind, None, at);
    let step = facts(&objects, at).next.into_iter().find(|step| step.why.contains("the log")).unwrap();
    assert_eq!(step.page.as_deref(), Some("runbooks/LogBehind.md"));
}

#[test]
fn merges_that_fail_are_a_line() {
    let (at, mut objects) = recorded("healthy");
    let schedule = objects.schedules.as_mut().unwrap().first_mut().unwrap();
    schedule.spec.log = Some(Log { compaction: Some(Compaction::default()), ..Log::default() });
    let status = schedule.status.as_mut().unwrap();
    let merges = Merges { consecutive_failures: 12, ..Merges::default() };
    status.log = Some(LogStatus { merges: Some(merges), ..LogStatus::default() });
    let conditions = status.conditions.clone();
    status.conditions = merge(&conditions, &[Wanted::no(Type::Merged, Reason::MergeFailing, "x")], None, at);
    let seen = facts(&objects, at);
    let text = render(&seen, WIDE);
    let line = text.lines().find(|line| line.trim_start().starts_with("merge ")).unwrap();
    for word in ["orders-hourly", "no merge yet", "MergeFailing", "12 failed"] {
        assert!(line.contains(word), "{line}");
    }
    let step = seen.next.into_iter().find(|step| step.why.contains("does not merge")).unwrap();
    assert_eq!(step.page.as_deref(), Some("runbooks/MergeFailing.md"));
}

#[test]
fn a_ca_is_a_line_within_a_year_of_its_end_and_while_it_is_exchanged() {
    let (at, objects) = recorded("healthy");
    for (days, rotation, wanted) in [
        (366, None, vec![]),
        (364, None, vec!["client CA until"]),
        (3650, Some(Rotation::Trusting), vec!["exchange of the client CA, Trusting: the members restart"]),
        (3650, Some(Rotation::Waiting), vec!["exchange of the client CA, Waiting: ca.crt holds both CAs"]),
        (3650, Some(Rotation::Issuing), vec!["exchange of the client CA, Issuing: the operator issues"]),
        (30, Some(Rotation::Retiring), vec!["client CA until", "exchange of the client CA, Retiring: applications"]),
    ] {
        let mut objects = objects.clone();
        let client = &mut objects.cluster.status.as_mut().unwrap().tls.as_mut().unwrap().client;
        client.ca_not_after = Some((at + jiff::SignedDuration::from_hours(24 * days)).to_string());
        client.rotation = rotation;
        let text = render(&facts(&objects, at), WIDE);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| line.contains("client CA")).collect();
        assert_eq!(lines.len(), wanted.len(), "{days} {rotation:?}: {lines:?}");
        assert!(lines.iter().zip(&wanted).all(|(line, words)| line.starts_with(words)), "{lines:?}");
    }
    let (_, mut objects) = recorded("healthy");
    objects.cluster.status.as_mut().unwrap().tls.as_mut().unwrap().peer.rotation = Some(Rotation::Retiring);
    let text = render(&facts(&objects, at), WIDE);
    assert!(text.contains("exchange of the peer CA, Retiring: the members restart without the earlier CA"), "{text}");
}

#[test]
fn users_are_counted_and_those_that_need_a_look_have_their_reason() {
    let (at, mut objects) = recorded("healthy");
    let off = Wanted::no(Type::Ready, Reason::AuthDisabled, "authentication is off");
    for (cluster, count, wanted) in [
        ("elsewhere", 3, None),
        ("orders", 0, None),
        ("orders", 1, Some("1 EtcdUser, 0 ready")),
        ("orders", 64, Some("64 EtcdUsers, 0 ready")),
    ] {
        objects.users = Ok((0..count).map(|n| user(cluster, &format!("user-{n:02}"), &off, None, at)).collect());
        let text = render(&facts(&objects, at), NARROW);
        let line = text.lines().find(|line| line.contains("EtcdUser")).map(str::trim);
        assert_eq!((line, text.contains("USERS")), (wanted, wanted.is_some()), "{text}");
        // One reason with one message, however many users have it.
        assert_eq!(text.matches("AuthDisabled").count(), usize::from(wanted.is_some()), "{text}");
        assert_eq!(text.matches("authentication is off").count(), usize::from(wanted.is_some()), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80 || line.trim().starts_with("kubectl")), "{text}");
    }
}

/// The healthy cluster with these latches, an EtcdRestore `back` with this status, and a member for each triple of name, spec and
/// status.
fn returning(latches: Value, restore: Value, members: &[(&str, Value, Value)]) -> Facts {
    let (at, mut objects) = recorded("healthy");
    let present = latches["timeline"].clone();
    let status = objects.cluster.status.as_mut().unwrap();
    let mut all = serde_json::to_value(&status.latches).unwrap();
    all.as_object_mut().unwrap().extend(latches.as_object().unwrap().clone());
    status.latches = serde_json::from_value(all).unwrap();
    let object = json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdRestore", "metadata": {"name": "back", "uid": "r"},
        "spec": {"clusterRef": {"name": "orders"}, "timeline": 2, "from": {"snapshotRef": {"name": "orders-before"}},
                 "skipSafetySnapshot": "a test"},
        "status": restore,
    });
    objects.restores = Ok(vec![serde_json::from_value(object).unwrap()]);
    let known = objects.members.as_mut().unwrap();
    for (name, spec, status) in members {
        let mut member = serde_json::to_value(&known[0]).unwrap();
        member["metadata"]["name"] = json!(name);
        for (field, changed) in [("spec", spec), ("status", status)] {
            member[field].as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        }
        known.push(serde_json::from_value(member).unwrap());
    }
    let facts = facts(&objects, at);
    assert_eq!(serde_json::to_value(facts.timeline).unwrap(), present);
    facts
}

#[test]
fn a_return_under_way_is_a_line_and_a_step_and_its_member_is_none_of_the_cluster() {
    let ready = |reason: &str, message: &str| {
        json!([{"type": "Ready", "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": "2026-11-28T00:00:00Z"}])
    };
    let latched = |phase: &str| {
        let at = recorded("healthy").0 - jiff::SignedDuration::from_secs(12);
        json!({"returning": {
            "name": "back", "uid": "r", "timeline": 2, "deadlineSeconds": 60, "keepEarlierSeconds": 60, "member": "orders-x",
            "phases": [{"phase": phase, "at": at.to_string()}],
        }})
    };
    let ahead = || {
        let status = json!({"state": "Preparing", "conditions": ready("PodHeldUp", "no image")});
        ("orders-x", json!({"timeline": 2, "joined": null}), status)
    };
    let waits = json!({"phase": "Pending", "conditions": ready("Paused", "spec.paused is set")});
    let failed = json!({"phase": "Failed", "conditions": ready("ReturnFailed", "the key is missing")});
    for (latches, status, line, why, command) in [
        (latched("Preparing"), json!({}), "Preparing for 12s", "PodHeldUp: no image", "logs -f orders-x -c restore"),
        (latched("Saving"), json!({}), "Saving for 12s", "safety snapshot", "snapshot list orders"),
        (latched("SettingAside"), json!({}), "SettingAside for 12s", "present Pods", "get pods"),
        (latched("Starting"), json!({}), "Starting for 12s", "first member", "get pods"),
        (latched("TurningBack"), failed.clone(), "TurningBack for 12s", "TurningBack", "describe etcdrestore back"),
        (json!({}), waits, "makes timeline 2: Pending", "has not begun. Paused", "describe etcdrestore back"),
        (json!({}), failed, "", "has failed. ReturnFailed: the key is missing", "describe etcdrestore back"),
    ] {
        let facts = returning(latches, status, &[ahead()]);
        assert_eq!((facts.members.len(), facts.set_aside.len()), (3, 0), "{line}");
        let text = render(&facts, WIDE);
        assert!(text.contains(line) && text.contains("makes timeline") != line.is_empty(), "{line}: {text}");
        let step = facts.next.iter().find(|step| step.why.starts_with("EtcdRestore back ")).unwrap();
        assert!(step.why.contains(why), "{why}: {step:?}");
        assert!(step.command.as_ref().unwrap().contains(command), "{command}: {step:?}");
        let has_failed = line.is_empty() || line.starts_with("TurningBack");
        assert_eq!(step.page.as_deref(), has_failed.then_some("runbooks/ReturnFailed.md"), "{step:?}");
    }
}

#[test]
fn members_that_are_set_aside_stand_apart_with_the_end_of_their_claims() {
    let (at, _) = recorded("healthy");
    let aside = json!({"aside": {
        "restore": "back", "restoreUID": "r", "timeline": 2, "at": at.to_string(), "keepSeconds": 86_400,
    }});
    let claim = json!({"state": "SetAside", "claim": {"name": "data-orders-old", "uid": "c"}});
    let facts = returning(json!({"timeline": 2}), json!({"phase": "Complete"}), &[("orders-old", aside, claim)]);
    assert_eq!((facts.members.len(), facts.in_place.clone()), (3, None));
    assert!(facts.members.iter().all(|member| member.name != "orders-old"));
    let text = render(&facts, NARROW);
    let (_, block) = text.split_once("SET ASIDE\n").unwrap();
    let mut lines = block.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(lines.next().unwrap(), ["MEMBER", "TIMELINE", "KEPT", "UNTIL", "CLAIM"]);
    let until = at + jiff::SignedDuration::from_hours(24);
    let (day, time) = (crate::time::date(until), format!("{},", crate::time::clock(until)));
    assert_eq!(lines.next().unwrap(), ["orders-old", "1", &day, &time, "in", "24h", "data-orders-old"]);
    assert!(text.contains(" · timeline 2 · "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.trim().starts_with("kubectl")), "{text}");
}
