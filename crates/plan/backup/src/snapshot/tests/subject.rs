//! A save whose cluster or Secret was deleted, while its next Pod waits.

use k8s_openapi::api::core::v1::{PodSpec, SecretVolumeSource, Volume};

use super::*;

/// A Pod that waits for this Secret.
fn preparing() -> Pod {
    let secret = SecretVolumeSource { secret_name: Some("keys".to_owned()), ..SecretVolumeSource::default() };
    let volumes = vec![Volume { name: "v".to_owned(), secret: Some(secret), ..Volume::default() }];
    let mut pod = waiting("ContainerCreating", None);
    pod.spec = Some(PodSpec { volumes: Some(volumes), ..PodSpec::default() });
    pod
}

fn failed_at_once(seen: &Observed, reason: &str, says: &str) {
    let plan = planned(seen);
    let (phase, _, why, message) = told(&plan.status);
    assert_eq!((phase, why, plan.act), (Phase::Failed, reason, None), "{message}");
    assert!(message.contains(says), "{message}");
}

#[test]
fn a_save_that_waits_ends_when_its_cluster_is_gone() {
    let mut waits = written(with(vec![preparing()]));
    waits.snapshot.status.as_mut().unwrap().cluster_uid = Some("cluster-uid".to_owned());
    assert_eq!(told(&planned(&waits).status).0, Phase::Running);
    let mut going = waits.clone();
    going.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(ago(1));
    failed_at_once(&going, "WaitingForReference", "EtcdCluster a is being deleted");
    let mut another = waits.clone();
    another.cluster.as_mut().unwrap().metadata.uid = Some("another".to_owned());
    failed_at_once(&another, "WaitingForReference", "another EtcdCluster has its name");
    waits.cluster = None;
    failed_at_once(&waits, "WaitingForReference", "EtcdCluster a was deleted");
    // The Job would wait to its deadline.
    waits.job.as_mut().unwrap().metadata.resource_version = Some("7".to_owned());
    let seen = written(waits);
    let job = Target::from(&seen.job.as_ref().unwrap().metadata);
    let plan = planned(&seen);
    assert!(matches!(&plan.act, Some(Act::DeleteJob { job: target, .. }) if *target == job), "{:?}", plan.act);
    crate::safety::snapshot(&seen, &plan, now()).unwrap();
    assert_eq!(Some(plan.status), seen.snapshot.status, "a final status stays");
}

#[test]
fn an_agent_that_runs_goes_on_without_its_cluster() {
    let mut seen = written(with(vec![running()]));
    seen.cluster = None;
    assert_eq!(told(&planned(&seen).status).0, Phase::Running);
    seen.pods = vec![saved()];
    assert_eq!(told(&planned(&seen).status).0, Phase::Complete);
}

/// The first Pod may have stored the snapshot before its node was lost.
#[test]
fn the_store_is_asked_where_an_earlier_pod_may_have_saved() {
    let lost = failed("p-0", ExitClass::Transient, "connection reset");
    let mut seen = written(with(vec![lost, preparing()]));
    seen.cluster = None;
    let plan = planned(&seen);
    assert!(matches!(plan.act, Some(Act::StartJob(_))), "{:?}", plan.act);
    assert_eq!(plan.status.phase, Phase::Running);
    assert!(plan.status.error.unwrap().message.contains("EtcdCluster a was deleted"));
    let seen = long_over(written(seen));
    failed_at_once(&asked(seen, nothing()), "EtcdUnavailable", "EtcdCluster a was deleted");
}

#[test]
fn a_save_that_waits_ends_when_its_secret_stays_away() {
    let mut seen = with(vec![preparing()]);
    seen.missing_secrets = vec!["keys".to_owned()];
    let mut seen = written(seen);
    let mut since = |seconds| {
        let held = seen.snapshot.status.as_mut().unwrap().held_up.as_mut().unwrap();
        assert_eq!((held.reason.as_str(), held.message.contains("Secret keys")), ("WaitingForReference", true));
        held.since = ago(seconds).0.to_string();
        seen.clone()
    };
    assert_eq!(told(&planned(&since(59)).status).0, Phase::Running, "a program may renew the Secret");
    failed_at_once(&since(60), "WaitingForReference", "Secret keys");
    let mut renewed = since(60);
    renewed.missing_secrets.clear();
    assert_eq!(told(&planned(&renewed).status).0, Phase::Running);
}
