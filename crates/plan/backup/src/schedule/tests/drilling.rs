//! Drills: the `CronJob`, the result of each end of a Job, and when a proof is too old.

use holdfast_api::drill::{Drill, KubernetesDrill};
use holdfast_api::snapshot::Spool;
use holdfast_contract::{DrilledReport, ExitClass, FailedReport, Failure, KubernetesReport};
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;
use crate::fixtures::flags;

const OLDER: &str = "ns/a/u-a/20251231T100000Z-00000001-00000001";
const NEWER: &str = "ns/a/u-a/20251231T110000Z-00000002-00000002";

/// A schedule whose `CronJob`s stand, with a drill every night.
fn drilling() -> Observed {
    let mut seen = running();
    seen.schedule.spec.drill = Some(Drill { schedule: "0 3 * * *".to_owned(), ..Drill::default() });
    let mut cron = wanted(&seen).unwrap();
    stored(&mut cron.metadata, "u-drill");
    cron.metadata.creation_timestamp = Some(Time(noon() - minutes(24 * 60)));
    seen.drill_cron_job = Some(cron);
    seen.schedule.status = Some(planned(&seen).status);
    assert_eq!(planned(&seen).ensures, vec![]);
    seen
}

/// The `CronJob` of the drills that a plan applies.
fn wanted(seen: &Observed) -> Option<CronJob> {
    planned(seen).ensures.into_iter().find_map(|ensure| match ensure {
        Ensure::CronJob(cron) if cron.metadata.name.as_ref().unwrap().contains("-drill-") => Some(*cron),
        _ => None,
    })
}

fn pod(cron: &CronJob) -> PodSpec {
    cron.spec.clone().unwrap().job_template.spec.unwrap().template.spec.unwrap()
}

/// Adds a drill that ended `ago` minutes ago.
fn ended(seen: &mut Observed, name: &str, ago: i64, (code, reason): (i32, Option<&str>), report: Option<&Report>) {
    let template = seen.drill_cron_job.as_ref().unwrap().spec.clone().unwrap().job_template;
    let mut job = Job { metadata: template.metadata.unwrap(), spec: template.spec, status: None };
    stored(&mut job.metadata, &format!("u-{name}"));
    let at = Time(noon() - minutes(ago));
    job.metadata.name = Some(name.to_owned());
    job.metadata.creation_timestamp = Some(at.clone());
    let condition = JobCondition {
        type_: if code == 0 { "Complete" } else { "Failed" }.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(at.clone()),
        ..JobCondition::default()
    };
    job.status = Some(JobStatus {
        conditions: Some(vec![condition]),
        succeeded: (code == 0).then_some(1),
        failed: (code != 0).then_some(1),
        ..JobStatus::default()
    });
    let end = ContainerStateTerminated {
        exit_code: code,
        reason: reason.map(str::to_owned),
        message: report.map(|report| serde_json::to_string(report).unwrap()),
        started_at: Some(at.clone()),
        finished_at: Some(at),
        ..ContainerStateTerminated::default()
    };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let status = ContainerStatus { name: "agent".to_owned(), state, ..ContainerStatus::default() };
    let mut pod = Pod { spec: job.spec.as_ref().unwrap().template.spec.clone(), ..Pod::default() };
    pod.metadata.name = Some(format!("{name}-x"));
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    pod.status = Some(PodStatus {
        phase: Some(phase.to_owned()),
        container_statuses: Some(vec![status]),
        ..PodStatus::default()
    });
    seen.drills.push(Recall { job, pods: vec![pod] });
    seen.schedule.status = Some(planned(seen).status);
}

fn passed(key: &str) -> Report {
    let (restore_seconds, serve_seconds) = (Some(7), Some(2));
    let (revision, keys) = (Some(9), Some(4));
    Report::Drilled(DrilledReport {
        key: key.to_owned(),
        revision,
        keys,
        restore_seconds,
        serve_seconds,
        ..DrilledReport::default()
    })
}

fn failed(key: &str, class: ExitClass) -> (i32, Report) {
    let failed = Some(FailedReport { class, origin: None, message: "sha256 differs".to_owned() });
    let code = Failure::for_class(class, None).code.into();
    (code, Report::Drilled(DrilledReport { key: key.to_owned(), failed, ..DrilledReport::default() }))
}

fn message(plan: &Plan<EtcdSnapshotScheduleStatus>) -> String {
    plan.status.conditions.iter().find(|c| c.type_ == "Rehearsed").unwrap().message.clone()
}

#[test]
fn a_drill_of_a_snapshot_with_authentication_says_that_no_cluster_can_have_it() {
    let mut seen = drilling();
    let Report::Drilled(report) = passed(NEWER) else { panic!() };
    ended(&mut seen, "d-1", 5, (0, None), Some(&Report::Drilled(DrilledReport { auth_enabled: true, ..report })));
    let message = message(&planned(&seen));
    assert!(message.contains("no EtcdCluster can be restored from it"), "{message}");
}

#[test]
fn a_drill_runs_in_etcds_image_and_chooses_its_snapshot_itself() {
    let mut seen = running();
    seen.cluster.as_mut().unwrap().spec.placement.priority_class_name = Some("members".to_owned());
    seen.schedule.spec.drill = Some(Drill {
        schedule: "0 3 * * *".to_owned(),
        time_zone: Some("Europe/Berlin".to_owned()),
        scratch: Some(Spool { size: Quantity("20Gi".to_owned()), storage_class_name: None }),
        identity_secret_refs: vec![LocalRef { name: "age-key".to_owned() }],
        ..Drill::default()
    });
    let cron = wanted(&seen).unwrap();
    assert_eq!(cron.metadata.owner_references.as_ref().unwrap()[0].uid, "u-s", "it goes with the schedule");
    let spec = cron.spec.clone().unwrap();
    assert_eq!((spec.schedule.as_str(), spec.time_zone.as_deref()), ("0 3 * * *", Some("Europe/Berlin")));
    assert_eq!((spec.suspend, spec.concurrency_policy.as_deref()), (Some(false), Some("Forbid")));
    let job = spec.job_template.spec.as_ref().unwrap();
    assert!(job.active_deadline_seconds > Some(3600) && job.backoff_limit == Some(2));
    let template = job.template.metadata.as_ref().unwrap();
    assert_eq!(meta_label(template, key::COMPONENT), Some("snapshot-drill"), "no policy lets it reach a member");
    assert_eq!(meta_label(template, key::SCHEDULE), Some("nightly"));
    let pod = pod(&cron);
    assert_eq!((pod.priority_class_name, pod.automount_service_account_token), (None, Some(false)));
    let agent = &pod.containers[0];
    assert_eq!(agent.image.as_deref(), Some("example.org/etcd:v3.6.16"));
    assert_eq!(pod.init_containers.as_ref().unwrap()[0].name, "install");
    let told = flags(agent);
    for arg in [
        "--latest",
        "--level=drill",
        "--namespace=ns",
        "--cluster=a",
        "--lineage=u-a",
        "--identity=/etc/holdfast/identities/0",
    ] {
        assert!(told.contains(&arg.to_owned()), "{arg} is missing in {told:?}");
    }
    let foreign = ["--key", "--endpoints", "--no-proof", "--owner", "--cluster-spec"];
    assert!(!told.iter().any(|arg| foreign.iter().any(|name| arg.starts_with(name))), "{told:?}");
    let names: Vec<&str> = agent.env.iter().flatten().map(|env| env.name.as_str()).collect();
    assert!(!names.contains(&"HOLDFAST_OWNER_UID"), "{names:?}");
    let volume = |name: &str| pod.volumes.iter().flatten().find(|v| v.name == name).unwrap().clone();
    assert_eq!(volume("scratch").empty_dir.unwrap().size_limit.unwrap().0, "20Gi");
    assert_eq!(volume("backup").persistent_volume_claim.unwrap().read_only, None, "the proof is written there");
    let requests = agent.resources.clone().unwrap();
    assert_eq!((requests.requests.unwrap()["cpu"].0.as_str(), requests.limits), ("50m", None));

    let own = ResourceRequirements {
        limits: Some([("memory".to_owned(), Quantity("2Gi".to_owned()))].into()),
        ..ResourceRequirements::default()
    };
    let drill = seen.schedule.spec.drill.as_mut().unwrap();
    drill.resources = Some(own.clone());
    drill.scratch = Some(Spool { size: Quantity("20Gi".to_owned()), storage_class_name: Some("fast".to_owned()) });
    let pod = self::pod(&wanted(&seen).unwrap());
    assert_eq!(pod.containers[0].resources, Some(own));
    let scratch = pod.volumes.iter().flatten().find(|v| v.name == "scratch").unwrap().ephemeral.clone().unwrap();
    let claim = scratch.volume_claim_template.unwrap().spec;
    assert_eq!(claim.storage_class_name.as_deref(), Some("fast"));
}

#[test]
fn a_drill_with_a_kube_apiserver_runs_in_its_image_with_etcds_programs() {
    let mut seen = running();
    let kubernetes = KubernetesDrill {
        image: "registry.k8s.io/kube-apiserver:v1.36.3".to_owned(),
        encryption_config_secret_ref: Some(LocalRef { name: "sealed".to_owned() }),
    };
    seen.schedule.spec.drill =
        Some(Drill { schedule: "0 3 * * *".to_owned(), kubernetes: Some(kubernetes), ..Drill::default() });
    let pod = pod(&wanted(&seen).unwrap());
    let [install, programs] = &pod.init_containers.as_ref().unwrap()[..] else { panic!("{pod:?}") };
    assert_eq!((install.name.as_str(), install.args.as_deref().unwrap().len()), ("install", 2));
    assert_eq!((programs.name.as_str(), programs.image.as_deref()), ("install-etcd", Some("example.org/etcd:v3.6.16")));
    assert_eq!(programs.command.as_deref(), Some(&["/holdfast-bin/holdfast".to_owned()][..]));
    assert_eq!(programs.args.as_deref(), Some(&["install", "--etcd-to=/holdfast-bin"].map(str::to_owned)[..]));
    let mounts: Vec<_> = programs.volume_mounts.iter().flatten().map(|it| (it.name.as_str(), it.read_only)).collect();
    assert_eq!(mounts, [("bin", None)], "no Secret reaches etcd's image");

    let agent = &pod.containers[0];
    assert_eq!(agent.image.as_deref(), Some("registry.k8s.io/kube-apiserver:v1.36.3"));
    assert_eq!(agent.image_pull_policy.as_deref(), Some("IfNotPresent"));
    assert_eq!(agent.command.as_ref().unwrap()[0], "/holdfast-bin/holdfast");
    let args = flags(agent);
    for arg in [
        "--kubernetes=kube-apiserver",
        "--encryption-config=/etc/holdfast/encryption/encryption-config.yaml",
        "--bin-dir=/holdfast-bin",
        "--latest",
    ] {
        assert!(args.iter().any(|it| it == arg), "{arg} is missing in {args:?}");
    }
    let security = agent.security_context.clone().unwrap();
    assert_eq!((security.read_only_root_filesystem, security.allow_privilege_escalation), (Some(true), Some(false)));
    let capabilities = security.capabilities.unwrap();
    assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    assert_eq!(
        capabilities.add.as_deref(),
        Some(&["NET_BIND_SERVICE".to_owned()][..]),
        "the level restricted permits it"
    );
    let of_etcd = programs.security_context.clone().unwrap().capabilities.unwrap();
    assert_eq!(of_etcd.add, None);
    let volume =
        pod.volumes.iter().flatten().find(|volume| volume.name == "encryption").unwrap().secret.clone().unwrap();
    assert_eq!((volume.secret_name.as_deref(), volume.optional), (Some("sealed"), Some(true)));
    assert_eq!(agent.resources.clone().unwrap().requests.unwrap()["memory"].0, "768Mi");

    seen.schedule.spec.drill.as_mut().unwrap().kubernetes.as_mut().unwrap().encryption_config_secret_ref = None;
    let pod = self::pod(&wanted(&seen).unwrap());
    assert!(!pod.volumes.iter().flatten().any(|volume| volume.name == "encryption"));
    assert!(!flags(&pod.containers[0]).iter().any(|arg| arg.starts_with("--encryption-config")));
}

fn meta_label<'a>(meta: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

#[test]
fn a_passed_drill_is_a_proof_with_a_time_to_recover_and_is_noted_once() {
    let mut seen = drilling();
    assert_eq!(told(&planned(&seen), Type::Rehearsed), ("Unknown", "NoDrillYet"));
    let before = seen.schedule.status.clone();
    ended(&mut seen, "d1", 30, (0, None), Some(&passed(NEWER)));
    seen.schedule.status = before;
    let plan = planned(&seen);
    assert_eq!(told(&plan, Type::Rehearsed), ("True", "DrillPassed"));
    assert!(message(&plan).contains(NEWER) && message(&plan).contains("9 s"), "{}", message(&plan));
    let last = plan.status.drill.clone().unwrap().last_passed.unwrap();
    assert_eq!((last.restore_seconds, last.serve_seconds, last.rto_seconds), (7, 2, 9));
    assert_eq!((last.key.as_str(), last.job.as_str(), last.revision), (NEWER, "d1", Some(9)));
    assert_eq!(plan.notes.iter().map(|n| (n.warning, n.reason.as_str())).collect::<Vec<_>>(), [(false, "DrillPassed")]);
    seen.schedule.status = Some(plan.status);
    assert_eq!(planned(&seen).notes, vec![]);
    assert_eq!(planned(&seen).status.drill.unwrap().next_time.as_deref(), Some("2026-01-02T03:00:00Z"));
}

#[test]
fn decoded_objects_and_the_start_of_kube_apiserver_are_part_of_the_proof() {
    let mut seen = drilling();
    let Report::Drilled(report) = passed(NEWER) else { panic!("a drill") };
    let resources = [("pods".to_owned(), 5), ("secrets".to_owned(), 2)].into();
    let version = "v1.36.3".to_owned();
    let left_out_keys = Some(3);
    let found = KubernetesReport {
        version,
        ready_seconds: 11,
        objects: 7,
        resources,
        left_out_keys,
        ..KubernetesReport::default()
    };
    let report = Report::Drilled(DrilledReport { kubernetes: Some(found), ..report });
    let before = seen.schedule.status.clone();
    ended(&mut seen, "d1", 30, (0, None), Some(&report));
    seen.schedule.status = before;
    let plan = planned(&seen);
    let last = plan.status.drill.clone().unwrap().last_passed.unwrap();
    assert_eq!(last.rto_seconds, 20, "7 to restore, 2 to serve, 11 to be ready");
    let objects = last.kubernetes.unwrap();
    assert_eq!((objects.version.as_str(), objects.objects, objects.ready_seconds), ("v1.36.3", 7, 11));
    assert_eq!(objects.resources["pods"], 5);
    for word in ["v1.36.3", "20 s", "7 objects", "3 keys of resources"] {
        assert!(message(&plan).contains(word), "{word}: {}", message(&plan));
    }
    assert!(plan.notes[0].message.contains("ready 11 s later and decoded 7 objects"), "{:?}", plan.notes);
}

/// The bytes are those of the cluster, so the message does not call the snapshot broken.
#[test]
fn an_undecodable_object_is_a_failed_drill_that_names_it() {
    let mut seen = drilling();
    let message = "kube-apiserver v1.36.3 cannot decode /registry/pods/a/b".to_owned();
    let failed = Some(FailedReport { class: ExitClass::Undecodable, origin: None, message });
    let (undecodable, encrypted) = (vec!["/registry/pods/a/b".to_owned()], vec!["secrets k8s:enc:x".to_owned()]);
    let found = KubernetesReport {
        undecodable: undecodable.clone(),
        encrypted: encrypted.clone(),
        ..KubernetesReport::default()
    };
    let kubernetes = Some(found);
    let report =
        Report::Drilled(DrilledReport { key: NEWER.to_owned(), failed, kubernetes, ..DrilledReport::default() });
    let code = Failure::for_class(ExitClass::Undecodable, None).code.into();
    ended(&mut seen, "d1", 30, (code, None), Some(&report));
    let plan = planned(&seen);
    assert_eq!(told(&plan, Type::Rehearsed), ("False", "DrillFailed"));
    let words = self::message(&plan);
    assert!(
        words.contains("/registry/pods/a/b") && words.contains(NEWER) && !words.contains("Do not restore"),
        "{words}"
    );
    let last = plan.status.drill.clone().unwrap().last_failed.unwrap();
    assert_eq!((last.class.as_str(), last.undecodable, last.encrypted), ("Undecodable", undecodable, encrypted));
    ended(&mut seen, "d2", 10, (0, None), Some(&passed(NEWER)));
    assert_eq!(told(&planned(&seen), Type::Rehearsed), ("True", "DrillPassed"));
}

/// Only broken bytes and undecodable objects are a failed drill.
#[test]
fn an_end_without_a_result_leaves_the_last_proof_as_it_is() {
    let ends = [
        ("OOMKilled", (137, Some("OOMKilled")), None, "spec.drill.resources"),
        ("Full", (69, None), Some(failed(NEWER, ExitClass::Full).1), "sha256"),
        ("Transient", (68, None), Some(failed(NEWER, ExitClass::Transient).1), "sha256"),
        ("Refused", (71, None), Some(failed(NEWER, ExitClass::Refused).1), "sha256"),
        ("evicted", (143, None), None, "143"),
        ("no report", (0, None), None, "report is gone"),
    ];
    for (case, end, report, word) in ends {
        let mut seen = drilling();
        ended(&mut seen, "d1", 30, end, report.as_ref());
        let plan = planned(&seen);
        assert_eq!(told(&plan, Type::Rehearsed), ("Unknown", "DrillIncomplete"), "{case}");
        assert!(message(&plan).contains(word), "{case}: {}", message(&plan));

        let mut seen = drilling();
        ended(&mut seen, "d0", 60, (0, None), Some(&passed(OLDER)));
        ended(&mut seen, "d1", 30, end, report.as_ref());
        let plan = planned(&seen);
        assert_eq!(told(&plan, Type::Rehearsed), ("True", "DrillIncomplete"), "{case}");
        let drill = plan.status.drill.clone().unwrap();
        assert_eq!((drill.last_passed.unwrap().key.as_str(), drill.last_failed), (OLDER, None), "{case}");
        assert_eq!(drill.last_incomplete.unwrap().reason, "DrillIncomplete");

        // A failure stands, whatever comes without a result.
        let mut seen = drilling();
        let (code, broken) = failed(NEWER, ExitClass::Corrupt);
        ended(&mut seen, "d0", 60, (code, None), Some(&broken));
        ended(&mut seen, "d1", 30, end, report.as_ref());
        assert_eq!(told(&planned(&seen), Type::Rehearsed), ("False", "DrillFailed"), "{case}");
    }
}

#[test]
fn a_failed_drill_stands_until_a_snapshot_as_new_passes() {
    let mut seen = drilling();
    ended(&mut seen, "d0", 90, (0, None), Some(&passed(OLDER)));
    let (code, broken) = failed(NEWER, ExitClass::Corrupt);
    let before = seen.schedule.status.clone();
    ended(&mut seen, "d1", 60, (code, None), Some(&broken));
    let after = std::mem::replace(&mut seen.schedule.status, before);
    let plan = planned(&seen);
    assert_eq!(told(&plan, Type::Rehearsed), ("False", "DrillFailed"));
    assert!(message(&plan).contains(NEWER), "{}", message(&plan));
    assert!(plan.notes.iter().any(|note| note.warning && note.reason == "DrillFailed"), "{:?}", plan.notes);
    let last = plan.status.drill.clone().unwrap().last_failed.unwrap();
    assert_eq!(
        (last.key.as_deref(), last.class.as_str(), last.reason.as_str()),
        (Some(NEWER), "Corrupt", "DrillFailed")
    );
    seen.schedule.status = after;
    // The next search leaves the broken snapshot out.
    ended(&mut seen, "d2", 30, (0, None), Some(&passed(OLDER)));
    assert_eq!(told(&planned(&seen), Type::Rehearsed), ("False", "DrillFailed"));
    ended(&mut seen, "d3", 10, (0, None), Some(&passed(NEWER)));
    assert_eq!(told(&planned(&seen), Type::Rehearsed), ("True", "DrillPassed"));
    let drill = planned(&seen).status.drill.unwrap();
    assert_eq!(drill.last_failed.unwrap().job, "d1", "the record stays");
    // The Jobs are deleted, and the results stay.
    seen.drills.clear();
    assert_eq!(told(&planned(&seen), Type::Rehearsed), ("True", "DrillPassed"));
}

#[test]
fn a_proof_grows_old() {
    let two_days = minutes(2 * 24 * 60);
    let mut seen = drilling();
    let at = |seen: &Observed, now: Timestamp| {
        let plan = planned_at(seen, now);
        let (status, reason) = told(&plan, Type::Rehearsed);
        (status.to_owned(), reason.to_owned(), message(&plan))
    };
    let overdue = |(status, reason, message): (String, String, String), word: &str| {
        assert_eq!((status.as_str(), reason.as_str()), ("False", "DrillOverdue"));
        assert!(message.contains(word), "{message}");
    };
    assert_eq!(at(&seen, noon() + two_days - minutes(1)).1, "NoDrillYet");
    overdue(at(&seen, noon() + two_days), "kubectl describe cronjob nightly-drill-");
    ended(&mut seen, "d1", 30, (0, None), Some(&passed(NEWER)));
    // The drills began at noon.
    assert_eq!(at(&seen, noon() + two_days - minutes(1)).1, "DrillPassed");
    overdue(at(&seen, noon() + two_days), NEWER);
    seen.schedule.spec.drill.as_mut().unwrap().max_age_seconds = Some(3600);
    overdue(at(&seen, noon() + minutes(60)), NEWER);
    ended(&mut seen, "d2", 10, (137, Some("OOMKilled")), None);
    overdue(at(&seen, noon() + minutes(60)), "out of memory");
    let wake = planned_at(&seen, noon() + minutes(59)).wake;
    assert!(matches!(wake, Wake::AfterMillis(ms) if ms <= 60_000), "{wake:?}");
}

#[test]
fn drills_pause_with_the_schedule_and_end_with_the_field() {
    let mut seen = drilling();
    ended(&mut seen, "d1", 30, (0, None), Some(&passed(NEWER)));
    seen.schedule.spec.suspend = true;
    let plan = planned(&seen);
    assert_eq!(wanted(&seen).unwrap().spec.unwrap().suspend, Some(true));
    assert_eq!(told(&plan, Type::Rehearsed), ("Unknown", "Suspended"));
    let drill = plan.status.drill.clone().unwrap();
    assert_eq!((drill.active_since, drill.next_time), (None, None));
    assert!(drill.last_passed.is_some());
    seen.schedule.spec.suspend = false;
    seen.schedule.spec.drill = None;
    let plan = planned(&seen);
    let retired = wanted(&seen).unwrap();
    assert_eq!(retired.spec.unwrap().suspend, Some(true), "the operator has no right to delete it");
    assert_eq!(retired.metadata.labels, seen.drill_cron_job.as_ref().unwrap().metadata.labels);
    assert!(plan.status.drill.is_none() && plan.status.conditions.iter().all(|c| c.type_ != "Rehearsed"));
    seen.drill_cron_job = wanted(&seen).map(|mut cron| {
        stored(&mut cron.metadata, "u-drill");
        cron
    });
    assert_eq!(wanted(&seen), None);
    seen.schedule.metadata.deletion_timestamp = Some(Time(noon()));
    assert_eq!(planned(&seen).ensures, vec![]);
}

#[test]
fn a_mistake_names_its_field() {
    let mut seen = running();
    let mut says = |drill: Drill, reason: &str, word: &str| {
        seen.schedule.spec.drill = Some(drill);
        let plan = planned(&seen);
        assert_eq!(told(&plan, Type::Rehearsed), ("False", reason));
        assert!(message(&plan).contains(word), "{}", message(&plan));
        assert_eq!(told(&plan, Type::Ready), ("True", "AsDesired"), "backups go on");
        assert!(wanted(&seen).is_none());
    };
    let line = |line: &str| Drill { schedule: line.to_owned(), ..Drill::default() };
    says(line("0 25 * * *"), "InvalidSpec", "spec.drill.schedule: ");
    says(line("0 0 30 2 *"), "NeverFires", "spec.drill.schedule: ");
    let zone = Some("Mars/Base".to_owned());
    says(Drill { time_zone: zone, ..line("0 3 * * *") }, "InvalidSpec", "spec.drill.timeZone: ");
    let mut foreign = drilling();
    foreign.drill_cron_job.as_mut().unwrap().metadata.owner_references = None;
    let plan = planned(&foreign);
    assert_eq!(told(&plan, Type::Rehearsed), ("False", "NameConflict"));
    assert_eq!(plan.ensures, vec![]);
}

#[test]
fn the_first_drill_waits_for_a_cluster() {
    let mut seen = running();
    seen.schedule.spec.drill = Some(Drill { schedule: "0 3 * * *".to_owned(), ..Drill::default() });
    seen.cluster.as_mut().unwrap().status = None;
    let plan = planned(&seen);
    assert_eq!((told(&plan, Type::Rehearsed), wanted(&seen)), (("Unknown", "WaitingForCluster"), None));
}

#[test]
fn the_backups_of_a_cluster_are_healthy_only_if_they_are_rehearsed() {
    let mut schedule = drilling().schedule;
    let set = |schedule: &mut EtcdSnapshotSchedule, fresh: bool, rehearsed: Option<bool>| {
        let fresh = match fresh {
            true => Wanted::yes(Type::Fresh, Reason::BackupRecent, "fresh"),
            false => Wanted::no(Type::Fresh, Reason::BackupOverdue, "late"),
        };
        let rehearsed = match rehearsed {
            Some(true) => Wanted::yes(Type::Rehearsed, Reason::DrillPassed, "passed"),
            Some(false) => Wanted::no(Type::Rehearsed, Reason::DrillFailed, "broken"),
            None => Wanted::unknown(Type::Rehearsed, Reason::NoDrillYet, "none"),
        };
        schedule.status.as_mut().unwrap().conditions = merge(&[], &[fresh, rehearsed], None, noon());
    };
    for (fresh, rehearsed, state, reason) in [
        (true, Some(true), Some(true), Reason::BackupRecent),
        (true, None, Some(true), Reason::BackupRecent),
        (true, Some(false), Some(false), Reason::DrillFailed),
        (false, Some(false), Some(false), Reason::BackupOverdue),
    ] {
        set(&mut schedule, fresh, rehearsed);
        let healthy = healthy([&schedule]);
        assert_eq!((healthy.state, healthy.reason), (state, reason));
    }
    set(&mut schedule, true, Some(false));
    schedule.spec.drill = None;
    assert_eq!(healthy([&schedule]).state, Some(true));
}
