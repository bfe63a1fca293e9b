//! Tests of a Job, one mutation of a good Job at a time.

use holdfast_api::name::LocalRef;
use holdfast_api::pod_security::PodSecurity;
use holdfast_api::store::{
    AzureLocation, GcsLocation, PvcLocation, S3Checksum, S3Encryption, S3Location, S3ObjectLock, S3Sse, S3Tag,
};
use holdfast_api::{EtcdCluster, component, role};
use holdfast_contract::{
    EtcdFlags, FAILURES, InspectRequest, LatestRequest, LockMode, PruneRequest, REQUEST, Request, Retry, SaveRequest,
    StoreFlags, VerifyRequest,
};
use k8s_openapi::api::core::v1::{Affinity, LocalObjectReference, PodAntiAffinity, Toleration};

use super::super::{budget, request, service};
use super::*;
use crate::objects::store::{self, Use};

fn to_s3() -> AgentJob {
    let work = Request::Save(SaveRequest {
        etcd: EtcdFlags { endpoints: vec!["http://a-1.a.prod.svc:2379".to_owned()], ..EtcdFlags::default() },
        namespace: "prod".to_owned(),
        cluster: "a".to_owned(),
        deadline_seconds: 600,
        ..SaveRequest::default()
    });
    let destination = Location::S3(S3Location {
        bucket: "backups".to_owned(),
        credentials_secret_ref: Some(LocalRef { name: "s3-keys".to_owned() }),
        ..S3Location::default()
    });
    AgentJob {
        namespace: Some("prod".to_owned()),
        owner: Some(OwnerReference { controller: Some(true), uid: "snap-uid".to_owned(), ..OwnerReference::default() }),
        snapshot: Some("nightly".to_owned()),
        ..AgentJob::new("nightly-0a1b2c3d".to_owned(), work, destination, "holdfast:test".to_owned())
    }
}

fn asked(work: &Request) -> SaveRequest {
    match work {
        Request::Save(request) => request.clone(),
        other => panic!("{other:?}"),
    }
}

/// The request that the agent of this Job reads.
fn sent(want: &AgentJob) -> Request {
    request_of(&job(want)).unwrap()
}

#[test]
fn a_job_that_looks_only_reads_and_is_the_same_otherwise() {
    let request = InspectRequest {
        namespace: "prod".to_owned(),
        cluster: "a".to_owned(),
        owner_uid: "snap-uid".to_owned(),
        deadline_seconds: 60,
        ..InspectRequest::default()
    };
    let to_pvc = Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None });
    let want = AgentJob { work: Request::Inspect(request), destination: to_pvc, ..to_s3() };
    let (spec, pod, container, labels) = parts(&job(&want));
    assert!(matches!(sent(&want), Request::Inspect(sent) if sent.owner_uid == "snap-uid"));
    assert_eq!(container.volume_mounts.unwrap()[0].read_only, Some(true));
    assert_eq!(pod.volumes.unwrap()[0].persistent_volume_claim.as_ref().unwrap().read_only, Some(true));
    assert_eq!((spec.active_deadline_seconds, spec.ttl_seconds_after_finished), (Some(180), Some(KEPT_SECONDS)));
    assert_eq!((labels[key::COMPONENT].as_str(), labels[key::CLUSTER].as_str()), (component::SNAPSHOT_AGENT, "a"));
    assert_eq!(job(&AgentJob { owner: None, ..want }).spec.unwrap().ttl_seconds_after_finished, None, "kept by hand");
}

#[test]
fn a_comparison_comes_first_and_alone_has_the_certificates() {
    let tls = LocalRef { name: "a-operator-tls".to_owned() };
    let endpoints = vec!["https://a-1.a.prod.svc:2379".to_owned()];
    let request = CompareRequest {
        etcd: EtcdFlags { endpoints, ..EtcdFlags::default() },
        deadline_seconds: 100,
        ..CompareRequest::default()
    };
    let want = AgentJob {
        work: Request::Verify(VerifyRequest { deadline_seconds: 60, ..VerifyRequest::default() }),
        compares: Some(request),
        external: Some(External { tls_secret_ref: Some(tls), ..External::default() }),
        etcd_image: Some(("etcd:v3.6.16".to_owned(), "IfNotPresent".to_owned())),
        ..to_s3()
    };
    let (spec, pod, agent, _) = parts(&job(&want));
    let [compare, install] = pod.init_containers.as_deref().unwrap() else { panic!("{pod:?}") };
    assert_eq!((compare.name.as_str(), install.name.as_str()), (COMPARE, "install"));
    assert_eq!(compare.image.as_deref(), Some("holdfast:test"), "not etcd's image");
    let sent = request::of_container(Some(&pod), COMPARE);
    let Some(Request::CompareMembers(sent)) = sent else { panic!("{sent:?}") };
    assert_eq!(sent.etcd.tls_dir, Some("/etc/holdfast/etcd-tls".into()));
    let mounts = |container: &Container| -> Vec<String> {
        container.volume_mounts.iter().flatten().map(|mount| mount.name.clone()).collect()
    };
    let variables: Vec<&str> = compare.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert_eq!((mounts(compare), variables), (vec!["etcd-tls".to_owned()], vec![REQUEST]));
    for other in [install, &agent] {
        assert!(!mounts(other).contains(&"etcd-tls".to_owned()), "{other:?}");
    }
    let secrets = pod.volumes.iter().flatten().filter_map(|volume| volume.secret.as_ref()?.secret_name.as_deref());
    assert!(secrets.collect::<Vec<_>>().contains(&"a-operator-tls"));
    assert_eq!(spec.active_deadline_seconds, Some(100 + 60 + DEADLINE_SLACK_SECONDS));
    assert_eq!(compare.security_context, agent.security_context);
}

#[test]
fn a_rehearsal_of_an_encrypted_snapshot_reads_the_identities() {
    let request = VerifyRequest { deadline_seconds: 60, ..VerifyRequest::default() };
    let identities = ["age-a", "age-b"].map(|name| LocalRef { name: name.to_owned() }).to_vec();
    let want = AgentJob { work: Request::Verify(request), identities, ..to_s3() };
    let (_, pod, agent, _) = parts(&job(&want));
    let Request::Verify(sent) = sent(&want) else { panic!() };
    for path in ["/etc/holdfast/identities/0", "/etc/holdfast/identities/1"] {
        assert!(sent.snapshot.identities.contains(&path.into()), "{sent:?}");
        assert!(agent.volume_mounts.iter().flatten().any(|mount| mount.mount_path == path));
    }
    let secrets = pod.volumes.iter().flatten().filter_map(|volume| volume.secret.as_ref());
    let optional: Vec<_> = secrets.filter(|secret| secret.secret_name.as_deref() == Some("age-b")).collect();
    assert_eq!(optional[0].optional, Some(true), "the agent reports a missing Secret");
}

#[test]
fn a_job_that_removes_writes_to_its_volume_and_locks_nothing() {
    let request = PruneRequest { cluster: "a".to_owned(), deadline_seconds: 60, ..PruneRequest::default() };
    let to_pvc = Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None });
    let want = AgentJob { work: Request::Prune(request), destination: to_pvc, ..to_s3() };
    let (spec, _, container, _) = parts(&job(&want));
    assert!(matches!(sent(&want), Request::Prune(_)));
    assert_eq!(container.volume_mounts.unwrap()[0].read_only, None);
    assert_eq!((spec.backoff_limit, spec.active_deadline_seconds), (Some(0), Some(180)), "its plan repeats it");
    let lock = Some(S3ObjectLock { mode: LockMode::Compliance, days: 30 });
    let locking = Location::S3(S3Location { bucket: "b".to_owned(), object_lock: lock, ..S3Location::default() });
    let Request::Prune(sent) = sent(&AgentJob { destination: locking, ..want }) else { panic!() };
    assert_eq!((sent.store.s3_object_lock, sent.store.s3_object_lock_days), (None, None));
}

/// The agent reports a missing Secret within a moment. A save waits for the Secret: kubelet then starts the Pod, and the Pod's
/// message names the missing Secret.
#[test]
fn who_looks_for_the_latest_starts_without_its_secrets() {
    let secret = |name: &str| Some(LocalRef { name: name.to_owned() });
    let place = Location::S3(S3Location {
        bucket: "backups".to_owned(),
        credentials_secret_ref: secret("s3-keys"),
        ca_ref: secret("s3-ca"),
        ..S3Location::default()
    });
    let optional = |work: Request| {
        let (_, pod, container, _) = parts(&job(&AgentJob { work, destination: place.clone(), ..to_s3() }));
        let volumes = pod.volumes.unwrap();
        assert!(container.volume_mounts.unwrap().iter().all(|mount| mount.read_only == Some(true)));
        volumes.iter().map(|volume| volume.secret.as_ref().unwrap().optional).collect::<Vec<_>>()
    };
    assert_eq!(optional(Request::Latest(LatestRequest::default())), [Some(true), Some(true)]);
    assert_eq!(optional(to_s3().work), [None, None]);
    assert_eq!(optional(Request::Inspect(InspectRequest::default())), [None, None]);
}

#[test]
fn who_speaks_to_a_bucket_is_told_of_the_proxy_and_who_writes_to_a_volume_is_not() {
    let proxies =
        Proxies { https: Some("http://proxy:3128".to_owned()), http: None, except: Some(".svc,$(HOME)".to_owned()) };
    let told = |want: &AgentJob| {
        let (_, _, container, _) = parts(&job(want));
        let all = container.env.unwrap().into_iter().map(|env| (env.name, env.value.unwrap_or_default()));
        all.filter(|(name, _)| name.contains("PROXY")).collect::<Vec<_>>()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let want = AgentJob { proxies, ..to_s3() };
    // The exceptions always contain the metadata servers.
    let except = ".svc,$$(HOME),169.254.0.0/16,100.100.100.200/32,168.63.129.16/32,fe80::/10,fd00:ec2::/32,fd20:ce::/32,\
                  metadata.google.internal";
    let both = [pair("HTTPS_PROXY", "http://proxy:3128"), pair("NO_PROXY", except)];
    for work in [want.work.clone(), Request::Latest(LatestRequest::default()), Request::Probe(ProbeRequest::default())]
    {
        assert_eq!(told(&AgentJob { work, ..want.clone() }), both);
    }
    let destination = Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None });
    assert_eq!(told(&AgentJob { destination, ..want.clone() }), []);
    let alone = Proxies { https: None, ..want.proxies.clone() };
    assert_eq!(told(&AgentJob { proxies: alone, ..want }), [], "nothing is left out of nothing");
}

fn parts(job: &Job) -> (JobSpec, PodSpec, Container, BTreeMap<String, String>) {
    let spec = job.spec.clone().unwrap();
    let pod = spec.template.spec.clone().unwrap();
    let container = pod.containers[0].clone();
    let labels = spec.template.metadata.clone().unwrap().labels.unwrap();
    (spec, pod, container, labels)
}

#[test]
fn the_pod_meets_the_restricted_standard_and_holds_no_token() {
    let (_, pod, container, _) = parts(&job(&to_s3()));
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.enable_service_links, Some(false));
    assert_eq!(pod.containers.len(), 1);
    assert!(pod.host_network.is_none() && pod.host_pid.is_none() && pod.host_ipc.is_none());
    let security = pod.security_context.unwrap();
    assert_eq!(security.run_as_non_root, Some(true));
    assert_eq!(
        (security.run_as_user, security.run_as_group, security.fs_group),
        (Some(65532), Some(65532), Some(65532))
    );
    assert_eq!(security.seccomp_profile.unwrap().type_, "RuntimeDefault");
    let security = container.security_context.unwrap();
    assert_eq!(security.allow_privilege_escalation, Some(false));
    assert_eq!(security.read_only_root_filesystem, Some(true));
    assert_eq!(security.capabilities.unwrap().drop, Some(vec!["ALL".to_owned()]));
    assert_eq!(security.privileged, None);
    for volume in pod.volumes.unwrap() {
        assert!(volume.host_path.is_none(), "{}: hostPath is not allowed", volume.name);
    }
}

#[test]
fn the_failure_policy_is_the_table_of_exit_classes() {
    let (spec, pod, ..) = parts(&job(&to_s3()));
    let rules = spec.pod_failure_policy.unwrap().rules;
    assert_eq!(rules[0].action, "Ignore");
    assert_eq!(rules[0].on_pod_conditions.as_ref().unwrap()[0].type_, "DisruptionTarget");
    assert_eq!(rules[1].action, "FailJob");
    let codes = rules[1].on_exit_codes.clone().unwrap();
    assert_eq!(codes.container_name.as_deref(), Some(pod.containers[0].name.as_str()));
    assert_eq!(codes.operator, "In");
    for failure in &FAILURES {
        let ends = codes.values.contains(&i32::from(failure.code));
        assert_eq!(ends, failure.retry != Retry::Again, "{failure:?}");
    }
    assert!(codes.values.contains(&USAGE), "a flag that is unknown stays so");
    assert!(codes.values.is_sorted(), "the API server refuses an unsorted list");
    // The API server refuses a failure policy without these two fields.
    assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
    assert_eq!(spec.pod_replacement_policy.as_deref(), Some("Failed"));
    assert_eq!(spec.backoff_limit, Some(6));
    assert_eq!(spec.active_deadline_seconds, Some(720), "the agent gives up first and leaves a report");
}

#[test]
fn no_service_of_a_cluster_selects_the_pod() {
    let mut want = to_s3();
    // A user who copies the members' labels onto the agent must not make the agent's Pod an endpoint.
    want.agent.pod_metadata = Some(PodMetadata {
        labels: BTreeMap::from([
            (key::COMPONENT.to_owned(), component::MEMBER.to_owned()),
            (key::ROLE.to_owned(), role::VOTER.to_owned()),
            (key::MEMBER.to_owned(), "a-1".to_owned()),
            (key::SNAPSHOT.to_owned(), "another".to_owned()),
            ("team".to_owned(), "storage".to_owned()),
        ]),
        annotations: BTreeMap::from([
            (key::MAY_START_EMPTY.to_owned(), "claim".to_owned()),
            ("cost".to_owned(), "backup".to_owned()),
        ]),
    });
    let made = job(&want);
    let (spec, _, _, labels) = parts(&made);
    assert_eq!(labels[key::COMPONENT], component::SNAPSHOT_AGENT);
    assert_eq!(labels[key::SNAPSHOT], "nightly");
    assert_eq!(labels["team"], "storage");
    assert!(!labels.contains_key(key::ROLE) && !labels.contains_key(key::MEMBER));
    assert_eq!(
        spec.template.metadata.unwrap().annotations,
        Some(BTreeMap::from([("cost".to_owned(), "backup".to_owned())]))
    );
    assert!(!made.metadata.labels.unwrap().contains_key("team"), "asked for the Pod, not for the Job");

    let cluster = EtcdCluster {
        metadata: ObjectMeta { name: Some("a".to_owned()), uid: Some("uid".to_owned()), ..ObjectMeta::default() },
        ..EtcdCluster::default()
    };
    for service in [service::peer(&cluster), service::client(&cluster)] {
        let selector = service.spec.unwrap().selector.unwrap();
        assert!(selector.iter().any(|(k, v)| labels.get(k) != Some(v)), "{selector:?} selects the agent");
    }
    let budget = budget::budget(&cluster, 3, 3).unwrap().spec.unwrap().selector.unwrap().match_labels.unwrap();
    assert!(budget.iter().any(|(k, v)| labels.get(k) != Some(v)), "{budget:?} selects the agent");
}

#[test]
fn placement_goes_along_without_the_members_affinity() {
    let mut want = to_s3();
    want.placement = Placement {
        affinity: Some(Affinity { pod_anti_affinity: Some(PodAntiAffinity::default()), ..Affinity::default() }),
        topology_spread_constraints: Some(vec![]),
        tolerations: Some(vec![Toleration { key: Some("etcd".to_owned()), ..Toleration::default() }]),
        node_selector: Some(BTreeMap::from([("disk".to_owned(), "ssd".to_owned())])),
        priority_class_name: Some("high".to_owned()),
        image_pull_secrets: Some(vec![LocalObjectReference { name: "pull".to_owned() }]),
        pod_security: None,
    };
    let (_, pod, ..) = parts(&job(&want));
    assert_eq!(pod.affinity, None);
    assert_eq!(pod.topology_spread_constraints, None);
    assert_eq!(pod.tolerations, want.placement.tolerations);
    assert_eq!(pod.node_selector, want.placement.node_selector);
    assert_eq!(pod.priority_class_name, want.placement.priority_class_name);
    assert_eq!(pod.image_pull_secrets, want.placement.image_pull_secrets);
    // A probe has no cluster, and a snapshot may need other nodes than the members.
    want.agent.tolerations = Some(vec![]);
    want.agent.node_selector = Some(BTreeMap::from([("pool".to_owned(), "backup".to_owned())]));
    want.agent.image_pull_secrets = Some(vec![]);
    for placement in [want.placement.clone(), Placement::default()] {
        let (_, pod, ..) = parts(&job(&AgentJob { placement, ..want.clone() }));
        let own = &want.agent;
        let of_pod = (&pod.tolerations, &pod.node_selector, &pod.image_pull_secrets);
        assert_eq!(of_pod, (&own.tolerations, &own.node_selector, &own.image_pull_secrets));
    }
}

#[test]
fn resources_are_the_defaults_or_the_users() {
    let (_, _, container, _) = parts(&job(&to_s3()));
    let resources = container.resources.unwrap();
    assert_eq!(resources.requests.unwrap()["memory"], Quantity("128Mi".to_owned()));
    assert_eq!(resources.limits.unwrap()["memory"], Quantity("256Mi".to_owned()));
    let limit = |bytes| {
        let want = AgentJob { most_bytes: Some(bytes), ..to_s3() };
        parts(&job(&want)).2.resources.unwrap().limits.unwrap()["memory"].0.clone()
    };
    assert_eq!(limit(1 << 30), "256Mi");
    assert_eq!(limit(8 << 30), "256Mi");
    assert_eq!(limit((8 << 30) + 1), "272Mi");
    assert_eq!(limit(64 << 30), "1152Mi");

    let mut want = to_s3();
    let own = ResourceRequirements {
        limits: Some(BTreeMap::from([("memory".to_owned(), Quantity("1Gi".to_owned()))])),
        ..ResourceRequirements::default()
    };
    want.agent.resources = Some(own.clone());
    assert_eq!(parts(&job(&want)).2.resources, Some(own));
}

#[test]
fn the_agent_reads_back_what_was_asked() {
    let (_, pod, container, _) = parts(&job(&to_s3()));
    assert_eq!(container.command, Some(["/holdfast", "agent", "run"].map(str::to_owned).to_vec()));
    assert_eq!(container.args, None);
    let flags = store::open(&to_s3().destination, Use::Save).flags;
    let expected = SaveRequest { store: flags, progress_port: Some(2382), ..asked(&to_s3().work) };
    assert_eq!(sent(&to_s3()), Request::Save(expected));

    let env = container.env.unwrap();
    assert_eq!((env.len(), env[0].name.as_str(), env[1].name.as_str()), (2, REQUEST, "HOLDFAST_POD_UID"));
    assert_eq!(env[1].value_from.as_ref().unwrap().field_ref.as_ref().unwrap().field_path, "metadata.uid");
    let mounts: Vec<_> = container.volume_mounts.unwrap().into_iter().map(|m| m.name).collect();
    let volumes: Vec<_> = pod.volumes.unwrap().into_iter().map(|v| v.name).collect();
    assert_eq!(mounts, volumes, "every volume is mounted");
}

#[test]
fn a_save_waits_on_its_spool_and_nobody_else_has_one() {
    let spool = Spool { size: Quantity("2Gi".to_owned()), storage_class_name: None };
    let want = AgentJob { spool: Some(spool), ..to_s3() };
    let (_, pod, container, _) = parts(&job(&want));
    let sent = asked(&sent(&want));
    assert_eq!((sent.spool_dir, sent.spool_mib), (Some("/spool".into()), Some(1776)));
    let (mount, volume) = (container.volume_mounts.unwrap().pop().unwrap(), pod.volumes.unwrap().pop().unwrap());
    assert_eq!((mount.name.as_str(), volume.name.as_str()), ("spool", "spool"));
    assert_eq!(volume.empty_dir.unwrap().size_limit.unwrap().0, "2Gi");
    let inspect = AgentJob { work: Request::Inspect(InspectRequest::default()), ..want };
    let (_, pod, ..) = parts(&job(&inspect));
    assert!(pod.volumes.unwrap().iter().all(|volume| volume.name != "spool"));
}

/// A deleted etcd's Secrets are gone, and a Pod would wait for these Secrets.
#[test]
fn only_who_saves_reaches_for_the_etcd() {
    let external = External {
        endpoints: vec!["https://10.0.0.11:2379".to_owned()],
        tls_secret_ref: named("legacy-certificates"),
        auth_secret_ref: named("legacy-root"),
        ..External::default()
    };
    let want = AgentJob { external: Some(external), ..to_s3() };
    for (work, reaches) in [
        (to_s3().work, true),
        (Request::Inspect(InspectRequest::default()), false),
        (Request::Latest(LatestRequest::default()), false),
        (Request::Probe(ProbeRequest::default()), false),
    ] {
        let verb = format!("{:?}", Kind::for_request(&work));
        let want = AgentJob { work, ..want.clone() };
        let (_, pod, container, _) = parts(&job(&want));
        if let Request::Save(SaveRequest { etcd, .. }) = sent(&want) {
            assert!(!etcd.endpoints.is_empty() && etcd.tls_dir.is_some() && etcd.auth_dir.is_some(), "{etcd:?}");
        }
        let volumes: Vec<_> = pod.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
        let mounts: Vec<_> = container.volume_mounts.unwrap().into_iter().map(|mount| mount.name).collect();
        let etcds = volumes.iter().filter(|volume| volume.starts_with("etcd-")).count();
        assert_eq!((etcds, &mounts), (if reaches { 2 } else { 0 }, &volumes), "{verb}");
    }
}

#[test]
fn a_claim_is_mounted_whole() {
    let mut want = to_s3();
    want.destination =
        Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: Some("etcd".to_owned()) });
    let (_, pod, container, _) = parts(&job(&want));
    assert_eq!(asked(&sent(&want)).store.url, "file:///backup/etcd");
    let claim = pod.volumes.unwrap()[0].persistent_volume_claim.clone().unwrap();
    assert_eq!((claim.claim_name.as_str(), claim.read_only), ("backups", None));
    let mount = container.volume_mounts.unwrap()[0].clone();
    assert_eq!((mount.mount_path.as_str(), mount.sub_path), ("/backup", None));
}

/// kubelet replaces `$(NAME)` in a variable by another variable's value (I28).
#[test]
fn a_dollar_stays_a_dollar() {
    let spec = Some(r#"{"version":"3.6.16","nodeSelector":{"a":"$(HOLDFAST_POD_UID)"}}"#.to_owned());
    let mut want = to_s3();
    want.work = Request::Save(SaveRequest { cluster_spec: spec, ..asked(&want.work) });
    want.work = Request::Save(SaveRequest { owner_name: Some("$(HOLDFAST_POD_UID)".to_owned()), ..asked(&want.work) });
    let env = parts(&job(&want)).2.env.unwrap();
    assert!(!env[0].value.as_ref().unwrap().contains('$'));
    let sent = asked(&sent(&want));
    assert_eq!((sent.owner_name.as_deref(), sent.cluster_spec), (Some("$(HOLDFAST_POD_UID)"), None));
    let spec = env.into_iter().find(|variable| variable.name == "HOLDFAST_CLUSTER_SPEC").unwrap().value;
    assert_eq!(spec.unwrap(), r#"{"version":"3.6.16","nodeSelector":{"a":"$$(HOLDFAST_POD_UID)"}}"#);
}

/// Only the verbs that move a database answer.
#[test]
fn a_save_alone_answers_about_its_progress() {
    let asked = |want: &AgentJob| {
        let ports = parts(&job(want)).2.ports.unwrap_or_default().into_iter();
        ports.map(|port| (port.name.unwrap(), port.container_port)).collect::<Vec<_>>()
    };
    assert_eq!(asked(&to_s3()), [("progress".to_owned(), 2382)]);
    let looks = AgentJob { work: Request::Inspect(InspectRequest::default()), ..to_s3() };
    assert_eq!(asked(&looks), []);
}

#[test]
fn earlier_attempts_are_remembered_on_the_job() {
    assert_eq!(job(&to_s3()).metadata.annotations, None);
    let again = job(&AgentJob { attempts_before: 2, ..to_s3() });
    assert_eq!(again.metadata.annotations.unwrap()[key::ATTEMPTS_BEFORE], "2");
    assert_eq!(again.metadata.owner_references.unwrap()[0].uid, "snap-uid");
}

fn rendered(destination: Location) -> (StoreFlags, Vec<(String, Option<bool>)>) {
    let want = AgentJob { destination, ..to_s3() };
    let (_, pod, container, _) = parts(&job(&want));
    let mounts = container.volume_mounts.unwrap().into_iter().map(|m| m.mount_path);
    let secrets = pod.volumes.unwrap().into_iter().map(|v| v.secret.and_then(|s| s.optional));
    let values = container.env.unwrap().into_iter().filter(|var| var.value.is_some()).map(|var| var.name);
    assert_eq!(values.collect::<Vec<_>>(), [REQUEST], "nothing of a store is in other variables");
    (asked(&sent(&want)).store, mounts.zip(secrets).collect())
}

fn named(name: &str) -> Option<LocalRef> {
    Some(LocalRef { name: name.to_owned() })
}

#[test]
fn what_s3_is_asked_for_is_handed_on() {
    let s3 = S3Location {
        bucket: "backups".to_owned(),
        sse: Some(S3Encryption { kind: S3Sse::AwsKms, kms_key_id: Some("alias/etcd".to_owned()) }),
        storage_class: Some("STANDARD_IA".to_owned()),
        tags: vec![
            S3Tag { name: "team".to_owned(), value: "a=b".to_owned() },
            S3Tag { name: "empty".to_owned(), value: String::new() },
        ],
        object_lock: Some(S3ObjectLock { mode: LockMode::Compliance, days: 30 }),
        checksum: Some(S3Checksum::Sha256),
        ..S3Location::default()
    };
    let reads = store::open(&Location::S3(s3.clone()), Use::Restore).flags;
    assert_eq!((reads.s3_object_lock, reads.s3_object_lock_days), (None, None), "who reads locks nothing");
    let (flags, mounts) = rendered(Location::S3(s3));
    let expected = StoreFlags {
        url: "s3://backups".to_owned(),
        s3_region: Some("us-east-1".to_owned()),
        s3_sse: Some(holdfast_contract::S3Sse::AwsKms),
        s3_sse_kms_key_id: Some("alias/etcd".to_owned()),
        s3_storage_class: Some("STANDARD_IA".to_owned()),
        s3_tag: vec!["team=a=b".to_owned(), "empty=".to_owned()],
        s3_object_lock: Some(LockMode::Compliance),
        s3_object_lock_days: Some(30),
        s3_checksum: Some(holdfast_contract::S3Checksum::Sha256),
        ..StoreFlags::default()
    };
    assert_eq!(flags, expected);
    assert_eq!(mounts, [], "without a Secret the Pod's surroundings provide the credentials");
}

#[test]
fn azure_and_google_are_stores_like_the_others() {
    let files = [("/etc/holdfast/credentials".to_owned(), None), ("/etc/holdfast/ca".to_owned(), None)];
    let azure = AzureLocation {
        container: "backups".to_owned(),
        prefix: Some("etcd".to_owned()),
        account: Some("acct".to_owned()),
        endpoint: Some("https://store.example.org/acct".to_owned()),
        ca_ref: named("ca"),
        credentials_secret_ref: named("keys"),
    };
    let expected = StoreFlags {
        url: "azure://backups/etcd".to_owned(),
        azure_account: Some("acct".to_owned()),
        azure_endpoint: Some("https://store.example.org/acct".to_owned()),
        azure_ca_file: Some("/etc/holdfast/ca/ca.crt".into()),
        credentials_dir: Some("/etc/holdfast/credentials".into()),
        ..StoreFlags::default()
    };
    assert_eq!(rendered(Location::Azure(azure)), (expected, files.to_vec()));
    let gcs = GcsLocation {
        bucket: "my_bucket".to_owned(),
        prefix: None,
        endpoint: Some("https://gcs.example.org".to_owned()),
        ca_ref: named("ca"),
        credentials_secret_ref: named("keys"),
    };
    let expected = StoreFlags {
        url: "gs://my_bucket".to_owned(),
        gcs_endpoint: Some("https://gcs.example.org".to_owned()),
        gcs_ca_file: Some("/etc/holdfast/ca/ca.crt".into()),
        credentials_dir: Some("/etc/holdfast/credentials".into()),
        ..StoreFlags::default()
    };
    assert_eq!(rendered(Location::Gcs(gcs)), (expected, files.to_vec()));
}

#[test]
fn the_user_of_a_pod_is_the_agents_else_the_clusters_else_the_operators() {
    let named = |run_as| Some(PodSecurity { run_as: Some(run_as) });
    let (fixed, unset) = (named(RunAs::Fixed), named(RunAs::Unset));
    for (agent, cluster, operator, user) in [
        (None, None, RunAs::Fixed, Some(65532)),
        (None, None, RunAs::Unset, None),
        (None, unset, RunAs::Fixed, None),
        (None, fixed, RunAs::Unset, Some(65532)),
        (fixed, unset, RunAs::Unset, Some(65532)),
        (unset, fixed, RunAs::Fixed, None),
        (Some(PodSecurity::default()), unset, RunAs::Fixed, None),
    ] {
        let mut want = AgentJob { run_as: operator, ..to_s3() };
        (want.agent.pod_security, want.placement.pod_security) = (agent, cluster);
        let security = parts(&job(&want)).1.security_context.unwrap();
        let users = [security.run_as_user, security.run_as_group, security.fs_group];
        assert_eq!((security.run_as_non_root, users), (Some(true), [user; 3]), "{agent:?} {cluster:?} {operator:?}");
    }
}
