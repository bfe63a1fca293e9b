//! Undeletes: the choice of the schedule, the Job, and the result in a log.

use clap::Parser;
use holdfast_base::objects::job::request_of;
use holdfast_contract::{KeyCount, Request};
use serde_json::{from_value, json};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: UndeleteFlags,
}

fn flags(line: &str) -> UndeleteFlags {
    Line::try_parse_from(format!("undelete alpha {line}").split_whitespace()).unwrap().flags
}

fn schedule(name: &str, cluster: &str, has_log: bool) -> EtcdSnapshotSchedule {
    let mut spec = json!({
        "clusterRef": {"name": cluster}, "schedule": "7 * * * *",
        "snapshotTemplate": {"destination": {"s3": {"bucket": "b", "credentialsSecretRef": {"name": "inline"}}}},
    });
    if has_log {
        spec["log"] = json!({});
    }
    from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdSnapshotSchedule", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

fn cron(annotations: &Value) -> CronJob {
    let save =
        json!({"save": {"etcd": {"endpoints": ["http://m1:2379"]}, "store": {"url": "s3://b"}, "cluster": "alpha"}});
    from_value(json!({
        "metadata": {"name": "hourly-1a2b", "namespace": "prod"},
        "spec": {"schedule": "7 * * * *", "jobTemplate": {
            "metadata": {"labels": {"holdfast.dev/schedule": "hourly"}, "annotations": annotations},
            "spec": {"template": {"spec": {"containers": [{
                "name": "agent", "image": "agent:1", "command": ["/holdfast", "agent", "run"],
                "env": [{"name": "HOLDFAST_REQUEST", "value": save.to_string()}],
            }]}}},
        }},
    }))
    .unwrap()
}

#[test]
fn the_schedule_with_the_log_holds_the_point() {
    let chosen = |schedules: &[EtcdSnapshotSchedule], line: &str| {
        choose(schedules.to_vec(), &flags(line)).map(|schedule| schedule.name_any())
    };
    let [hourly, logged, other] = [("hourly", "alpha", false), ("logged", "alpha", true), ("other", "beta", true)]
        .map(|(name, cluster, has_log)| schedule(name, cluster, has_log));
    let all = [hourly.clone(), logged.clone(), other.clone()];
    let point = "--prefix=/a --at-revision=7";
    assert_eq!(chosen(&all, point).as_deref(), Ok("logged"));
    assert_eq!(chosen(std::slice::from_ref(&hourly), point).as_deref(), Ok("hourly"), "an archiver by hand may record");
    assert_eq!(chosen(&all, "--prefix=/a --snapshot=one --schedule=hourly").as_deref(), Ok("hourly"));
    assert_eq!(chosen(std::slice::from_ref(&hourly), "--prefix=/a --snapshot=one").as_deref(), Ok("hourly"));
    assert!(
        chosen(&all, "--prefix=/a --snapshot=one --schedule=other")
            .unwrap_err()
            .contains("no EtcdSnapshotSchedule other")
    );
    assert!(chosen(&[logged.clone(), logged], point).unwrap_err().contains("--schedule"));
    assert!(chosen(&[other], point).unwrap_err().contains("agent undelete"));
    assert!(chosen(&all, "--prefix=/a").unwrap_err().contains("--at-time"), "no point");
}

#[test]
fn a_point_is_named_once_and_changed_needs_apply() {
    let refused = |line: &str| Line::try_parse_from(format!("undelete alpha {line}").split_whitespace()).is_err();
    assert!(refused("--prefix=/a --at-revision=7 --snapshot=one"));
    assert!(refused("--prefix=/a --at-revision=7 --changed"));
    assert!(refused("--prefix=/a --all-keys --at-revision=7"));
    assert!(request(&flags("--at-revision=7"), String::new()).checked_prefix().is_err(), "no keys");
}

#[test]
fn the_job_asks_for_the_flags_with_the_secret_for_reading() {
    let flags = flags("--prefix=/a --at-revision=7 --apply --leases=drop --rate=9 --scratch=20Gi --scratch-class=fast");
    let asked = request(&flags, "prod/alpha/1a2b3c4d".to_owned());
    let record = json!({"name": "vault", "s3": {"bucket": "b"}, "credentials": {"write": "w", "read": "r"}});
    let stored = cron(&json!({key::STORE_RECORD: record.to_string()}));
    let made = job(&flags, &schedule("hourly", "alpha", true), &stored, asked.clone()).unwrap();
    assert!(made.name_any().starts_with("alpha-undelete-") && made.name_any().len() < 63, "{}", made.name_any());
    let Some(Request::Undelete(request)) = request_of(&made) else { panic!() };
    assert_eq!((request.rate, request.leases, request.apply, request.json), (Some(9), Leases::Drop, true, true));
    assert_eq!((request.from.as_str(), request.at_revision), ("prod/alpha/1a2b3c4d", Some(7)));
    let pod = made.spec.unwrap().template.spec.unwrap();
    let secrets: Vec<_> =
        pod.volumes.iter().flatten().filter_map(|volume| volume.secret.clone()?.secret_name).collect();
    assert_eq!(secrets, ["r"]);
    assert!(pod.volumes.iter().flatten().any(|volume| volume.ephemeral.is_some()));
    // An inline location of the schedule.
    let inline = job(&flags, &schedule("hourly", "alpha", true), &cron(&json!({})), asked.clone()).unwrap();
    let pod = inline.spec.unwrap().template.spec.unwrap();
    let secrets: Vec<_> =
        pod.volumes.iter().flatten().filter_map(|volume| volume.secret.clone()?.secret_name).collect();
    assert_eq!(secrets, ["inline"]);
    let error = job(&flags, &schedule("hourly", "alpha", true), &CronJob::default(), asked).unwrap_err();
    assert!(error.contains("another version"), "{error}");
}

#[test]
fn the_result_is_found_between_the_lines_of_the_log() {
    let report = UndeleteReport { missing: KeyCount { keys: 1, bytes: 2 << 20 }, ..UndeleteReport::default() };
    let line = serde_json::to_string(&report).unwrap();
    assert_eq!(result_in(&line), Some(Found::Report(Box::new(report.clone()))));
    let difference = json!({"difference": "missing", "key": "/a", "pointRevision": 7});
    assert_eq!(result_in(&difference.to_string()), Some(Found::Difference));
    for other in ["2026-11-28T10:42:07Z  INFO compared", "{\"level\":\"INFO\",\"message\":\"compared\"}", "", "7"] {
        assert_eq!(result_in(other), None, "{other}");
    }
    let text = text(&report, &flags("--prefix=/a --at-revision=7"));
    assert!(text.contains("missing  1 key, 2.0 MiB\n"), "{text}");
}

#[test]
fn a_pod_that_waits_or_ends_names_the_reason() {
    let pod = |status: Value| -> Pod { from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap() };
    let state = |state: Value| {
        pod(
            json!({"containerStatuses": [{"name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}),
        )
    };
    let waits = state(json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}));
    assert_eq!((has_started(&waits), waits_for(&waits).as_str()), (false, "no such image"));
    let pending = pod(json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]}));
    assert_eq!((has_started(&pending), waits_for(&pending).as_str()), (false, "0/3 nodes"));
    let message = json!({"kind": "failed", "class": "NotFound", "message": "the log ends"}).to_string();
    let ended = state(json!({"terminated": {"exitCode": 66, "message": message}}));
    assert!(has_started(&ended));
    assert_eq!(failure(&terminated(&ended).unwrap()).as_deref(), Some("the log ends"));
    assert_eq!(failure(&ContainerStateTerminated::default()), None);
}
